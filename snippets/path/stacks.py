"""The stack of each allocation and each free of `gelu(x + bias)`, and of each operator as it reaches `__torch_dispatch__`."""
from contextlib import nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from path import private
from path.example import forward, inputs
from path.frames import describe

MODES = {"plain": (False, nullcontext), "requires_grad": (True, nullcontext), "no_grad": (True, torch.no_grad),
         "inference_mode": (True, torch.inference_mode)}


def allocator_events(name):
    """What the allocator does during one call in the named mode, each event with the stack that led to it."""
    requires_grad, mode = MODES[name]
    x, bias = inputs(requires_grad=requires_grad)
    with mode():
        forward(x, bias)  # later calls find the memory in the cache
        with private.memory_events() as events:
            y = forward(x, bias)
    del y
    return [{"action": event["action"], "size_bytes": event["size"], "frames": describe(event.get("frames", []))} for event in events]


class Seen(TorchDispatchMode):
    """Keeps the operator and the stack of each call that reaches `__torch_dispatch__`."""

    def __init__(self):
        super().__init__()
        self.operators, self.stacks = [], []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.operators.append(str(operator))
        self.stacks.append(private.stack_here())
        return operator(*args, **(kwargs or {}))


def dispatch_stacks(device="cuda"):
    """The stack at the moment at which each operator reaches `__torch_dispatch__`, with gradients asked for."""
    x, bias = inputs(rows=8, columns=8, device=device, requires_grad=True)
    with Seen() as seen:
        forward(x, bias)
    named = private.name_frames(seen.stacks)
    return [{"operator": operator, "frames": describe(frames)} for operator, frames in zip(seen.operators, named, strict=True)]
