"""softmax(q @ k.T / sqrt(d)) @ v in eager mode, with what pointwise fusion can do, and as one kernel.

The scores of all heads are 1 * heads * n * n elements. One write of them, or one read, is a pass; passes are counted beside
the lines that make them.
"""
from functools import partial

import torch
import torch.nn.functional as F

needs = {"memory_bytes": 32 * 2**30}


# --8<-- [start:inputs]
def inputs(n, heads=16, d=64, masked=False, *, dtype=torch.bfloat16, device="cuda"):
    """q, k, v (1, heads, n, d); mask (n, n), 0 or minus infinity, added to the scores of every head."""
    q, k, v = (torch.randn(1, heads, n, d, device=device, dtype=dtype) for _ in range(3))
    mask = torch.full((n, n), -torch.inf, device=device, dtype=dtype).triu(1) if masked else None
    return q, k, v, mask
# --8<-- [end:inputs]


# --8<-- [start:functions]
def naive(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1)          # 1 pass: writes the scores
    scores = scores / q.shape[-1] ** 0.5      # 2 passes: reads them, writes them
    if mask is not None:
        scores = scores + mask                # 2 passes, and the mask is read once for every head
    weights = torch.softmax(scores, dim=-1)   # 2 passes
    return weights @ v                        # 1 pass: reads the weights


def sdpa(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # no pass
# --8<-- [end:functions]


# --8<-- [start:fusion]
def fusion_only():
    """What a compiler does with any chain; without its pattern matcher it does not know attention."""
    return torch.compile(naive, options={"pattern_matcher": False})
# --8<-- [end:fusion]


compiled = {"fusion only": fusion_only, "compiled": partial(torch.compile, naive)}


def reference(q, k, v, mask):
    return naive(*(None if x is None else x.double() for x in (q, k, v, mask)))


variants = {"naive": naive, "sdpa": sdpa}
cases = {"plain": {"n": 4096}, "masked": {"n": 4096, "masked": True}}
small = {"n": 40, "heads": 2, "d": 16, "masked": True}
tolerance = {torch.bfloat16: 2e-2}


def minimum_bytes(q, k, v, mask):
    return 4 * q.nbytes + (0 if mask is None else mask.nbytes)  # q, k, v read, the output written


def flops(q, k, v, mask):
    return 4 * q.numel() * k.shape[-2]  # two products of N x N x d a head
