"""The Triton kernel rung by rung, causal and not: what each step buys. Needs triton."""
from functools import partial

import torch

from attention import rungs, triton_kernel

time_limit_s = 300


# --8<-- [start:inputs]
def inputs(n=16384, causal=True, heads=16, d=128, *, dtype=torch.bfloat16, device="cuda"):
    """q, k, v (1, heads, n, d), and whether the mask is causal."""
    q, k, v = (torch.randn(1, heads, n, d, device=device, dtype=dtype) for _ in range(3))
    return q, k, v, causal
# --8<-- [end:inputs]


def tiled_by(*tile):
    """The last kernel with (rows, keys) of another tile, and warps."""
    def attend(q, k, v, causal):
        out = torch.empty_like(q)
        triton_kernel.launch(q, k, v, out, causal=causal, tile=tile)
        return out
    return attend


# --8<-- [start:rungs]
first = partial(rungs.attention, stop=False, exp2=False, split=False)
variants = {
    "mask everywhere": first,
    "stop at the diagonal": partial(first, stop=True),
    "exp2": partial(first, stop=True, exp2=True),
    "mask only where needed": rungs.attention,
    "tile of 128 rows": partial(rungs.attention, tile=(128, 64, 4)),
    "TMA": triton_kernel.attention,
    "TMA, 64 x 64": tiled_by(64, 64, 4),
    "TMA, 128 x 128": tiled_by(128, 128, 8)}
# --8<-- [end:rungs]


def sample(out):
    """Rows all over two heads: the whole matrix in float64 would be too large to check."""
    return out[:, :2, ::max(1, out.shape[-2] // 64)]


def reference(q, k, v, causal):
    """The sampled rows in float64, from the whole of K and V."""
    n = q.shape[-2]
    step = max(1, n // 64)
    q, k, v = q[:, :2, ::step].double(), k[:, :2].double(), v[:, :2].double()
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.arange(n, device=q.device) > torch.arange(0, n, step, device=q.device)[:, None], -torch.inf)
    return torch.softmax(scores, -1) @ v


cases = {"causal": {}, "full": {"causal": False}}
small = {"n": 200, "heads": 2, "dtype": torch.float16}  # Triton's interpreter multiplies no bf16
tolerance = {torch.bfloat16: 4e-3, torch.float16: 6e-4}


def minimum_bytes(q, k, v, causal):
    return 4 * q.nbytes  # q, k, v read, the output written


def flops(q, k, v, causal):
    return 4 * q.numel() * k.shape[-2] // (2 if causal else 1)  # two products of n x n x d a head; half of it causal
