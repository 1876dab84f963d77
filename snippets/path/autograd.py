"""What autograd builds for `gelu(x + bias)`, and what that keeps alive until the backward pass."""
import torch
from torch.autograd.graph import saved_tensors_hooks

from path.example import inputs


# --8<-- [start:graph]
def chain(y):
    """Names of the backward graph's nodes, from the result to the leaves, breadth first."""
    names, nodes = [], [y.grad_fn]
    for node in nodes:
        names.append(node.name())
        nodes += [following for following, _ in node.next_functions if following is not None]
    return names


def saved(function, x, bias):
    """Every tensor that autograd saves during a call, and whose memory it is."""
    kept = []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = function(x, bias)
    known = {"x": x, "bias": bias, "y": y}
    of = {tensor.untyped_storage().data_ptr(): name for name, tensor in known.items()}
    return y, [{"shape": list(tensor.shape), "size_bytes": tensor.nbytes,
                "memory_of": of.get(tensor.untyped_storage().data_ptr(), "an intermediate")} for tensor in kept]
# --8<-- [end:graph]


def memory(function, x, bias):
    """Bytes above the start: at the forward's peak, held after it with only the result kept, and at the backward's peak."""
    function(x, bias)
    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = function(x, bias)
    torch.cuda.synchronize()
    found = {"forward_peak_bytes": torch.cuda.max_memory_allocated() - start, "held_bytes": torch.cuda.memory_allocated() - start}
    if y.requires_grad:
        gradient = torch.ones_like(y)
        torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated()
        y.backward(gradient)
        torch.cuda.synchronize()
        found["backward_peak_bytes"] = torch.cuda.max_memory_allocated() - start
    return found


def look(function, device):
    """Graph, saved tensors, and memory of a training step and of inference."""
    x, bias = inputs(device=device, requires_grad=True)
    y, kept = saved(function, x, bias)
    found = {"graph": chain(y), "saved": kept, "input_bytes": x.nbytes}
    del y
    if device == "cuda":
        found["training"] = memory(function, x, bias)
        x.grad = bias.grad = None
        with torch.no_grad():
            found["inference"] = memory(function, x, bias)
    return found
