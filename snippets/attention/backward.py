"""Forward pass and training step of attention by every backend, and by hand. Needs only torch.

The backward pass alone is the difference of the two: a call that begins with saved tensors cannot be repeated fairly
without the forward pass that saves them.
"""
import torch

from attention import cost
from attention.cost import standard, step
from attention.memory import BACKENDS, pinned, refused

count_traffic = False
needs = {"capability": (8, 0), "memory_bytes": 24 * 2**30}
time_limit_s = 180


# --8<-- [start:inputs]
def inputs(d, training=False, *, n=4096, tokens=16384, width=2048, dtype=torch.bfloat16, device="cuda"):
    """q, k, v and the gradient of the output, (tokens / n, width / d, n, d) each: 16k tokens, whatever the length."""
    q, k, v, dout = (torch.randn(tokens // n, width // d, n, d, device=device, dtype=dtype) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_(training)
    return q, k, v, dout if training else None
# --8<-- [end:inputs]


def by(attention):
    return lambda *args: step(attention, *args)


def refusing(backend):
    """A backend that refuses these inputs, or this device, is unsupported, not wrong."""
    attention = pinned(backend)

    def call(q, k, v, dout):
        try:
            return step(attention, q, k, v, dout)
        except RuntimeError as error:
            if not refused(error):
                raise
            raise NotImplementedError("the backend refuses these inputs") from error
    return call


# The first head of the first sequence stands for all of them.
reference, sample = cost.reference, cost.sample
variants = {"standard": by(standard), **{name: refusing(BACKENDS[name]) for name in ("efficient", "flash", "cudnn")}}
cases = {f"{mode}_d{d}": {"d": d, "training": mode == "training"} for d in (64, 128) for mode in ("forward", "training")}
small = {"d": 16, "training": True, "n": 70, "tokens": 140, "width": 32}
tolerance = {torch.bfloat16: 1.5e-2}


def flops(q, k, v, dout):
    """The papers' convention: 4 n n d a head forward, 2.5 times that backward, whatever a kernel does."""
    return int((1 if dout is None else 3.5) * 4 * q.numel() * k.shape[-2])


def minimum_bytes(q, k, v, dout):
    return (4 if dout is None else 4 + 8) * q.nbytes  # as in attention/cost
