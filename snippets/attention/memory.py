"""What attention holds: the peak of a forward pass and of a training step over the length, up to where the card is full;
and which tensors autograd saves, for every backend of SDPA. Needs only torch.
"""
import gc

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention.cost import flash, inputs, standard, step

needs = {"capability": (8, 0)}
time_limit_s = 120
LENGTHS = tuple(2**power for power in range(10, 17))


# --8<-- [start:peak]
def settle(device):
    """Give back what no tensor holds, so that the next length finds an empty card."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def peak(attention, n, training, *, device="cuda", **shape):
    """Bytes above the inputs at the highest moment of one call; or that the card was full."""
    settle(device)
    try:
        args = inputs(n, training, device=device, **shape)
        start = allocated(device)
        step(attention, *args)
        return {"outcome": "fits", "length": n, "peak_bytes": highest(device) - start,
                "inputs_bytes": sum(x.nbytes for x in args if x is not None)}
    except torch.cuda.OutOfMemoryError:
        return {"outcome": "out of memory", "length": n}


def allocated(device):
    if device != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def highest(device):
    return torch.cuda.max_memory_allocated() if device == "cuda" else 0
# --8<-- [end:peak]


def climb(attention, training, lengths, device, **shape):
    """Longer and longer rows, to the first that does not fit."""
    found = {}
    for n in lengths:
        found[f"n_{n}"] = peak(attention, n, training, device=device, **shape)
        if found[f"n_{n}"]["outcome"] != "fits":
            break
    settle(device)
    return found


BACKENDS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def pinned(backend):
    """SDPA by one backend; torch raises RuntimeError where that one refuses."""
    def attention(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)
    return attention


def refused(error):
    """Whether that error says that the one backend allowed cannot run these inputs, or this device."""
    return any(text in str(error) for text in ("No available kernel", "No viable backend"))


# --8<-- [start:saved]
def saved(attention, q, k, v):
    """The output, and every tensor that autograd saves on the way, each piece of memory once."""
    kept = {}

    def keep(x):
        kept.setdefault(x.untyped_storage().data_ptr(), x)
        return x
    with saved_tensors_hooks(keep, lambda x: x):
        out = attention(q, k, v)
    known = {x.untyped_storage().data_ptr(): name for name, x in {"q": q, "k": k, "v": v, "output": out}.items()}
    return out, [{"of": known.get(pointer, "its own"), "shape": " × ".join(map(str, x.shape)),
                  "dtype": str(x.dtype).removeprefix("torch."), "saved_bytes": x.untyped_storage().nbytes()}
                 for pointer, x in kept.items() if x.numel()]
# --8<-- [end:saved]


# --8<-- [start:hold]
def hold(attention, args, device):
    """What is saved; the peak of the forward pass, what is left after it, and the peak of both passes, above the inputs."""
    settle(device)
    start = allocated(device)
    out, kept = saved(attention, *args[:3])
    forward = highest(device) - start
    held = allocated(device) - start  # from here the peak counts anew
    gradients = torch.autograd.grad(out, args[:3], args[3])
    return {"saved": kept, "forward_peak_bytes": forward, "held_bytes": held, "backward_peak_bytes": highest(device) - start,
            "gradients_bytes": sum(x.nbytes for x in gradients)}
# --8<-- [end:hold]


# --8<-- [start:repeat]
def unequal(attention, args, times=8):
    """Of so many repetitions of one training step, how many give a gradient that differs in any bit from the first."""
    first = step(attention, *args)
    again = [step(attention, *args) for _ in range(times)]
    return {name: sum(not torch.equal(other[index], first[index]) for other in again)
            for index, name in enumerate(("out_count", "dq_count", "dk_count", "dv_count"))}
# --8<-- [end:repeat]


def look(attention, args, device):
    try:
        step(attention, *args)  # libraries make their workspaces in the first call
    except RuntimeError as error:
        if not refused(error):
            raise
        return {"outcome": "refused"}
    return {"outcome": "fits"} | hold(attention, args, device) | {"unequal": unequal(attention, args)}


def capture(device="cuda", lengths=LENGTHS, n=4096, **shape):
    torch.manual_seed(0)
    kinds = {"standard": standard, "flash": flash}
    for attention in kinds.values():  # libraries make their workspaces in the first call
        step(attention, *inputs(256, True, device=device, **shape))
    args = inputs(n, True, device=device, **shape)
    kinds_and_backends = {"standard": standard, **{name: pinned(backend) for name, backend in BACKENDS.items()}}
    kept = {name: look(attention, args, device) for name, attention in kinds_and_backends.items()}
    del args
    return {"forward": {name: climb(attention, False, lengths, device, **shape) for name, attention in kinds.items()},
            "training": {name: climb(attention, True, lengths, device, **shape) for name, attention in kinds.items()},
            "kept": kept}
