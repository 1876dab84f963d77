"""The picture of the path: one pass on a common clock, the stack behind each allocation and operator, and what autograd keeps."""
import torch

from path import autograd, stacks, timeline
from path.example import forward


def capture(device="cuda"):
    allocations = {name: stacks.allocator_events(name) for name in stacks.MODES}
    dispatch = stacks.dispatch_stacks(device)
    functions = {"eager": forward, "compiled": torch.compile(forward)}
    return {"allocations": allocations, "dispatch": dispatch,
            "timeline": {name: timeline.trace(function) for name, function in functions.items()},
            "autograd": {name: autograd.look(function, device) for name, function in functions.items()}}
