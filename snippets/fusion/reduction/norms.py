"""RMS norm and layer norm of each row, bf16: written out, by the library, compiled, and our own kernel. Needs triton."""
from functools import partial

import torch
import torch.nn.functional as F

from fusion.reduction.norm_kernel import norm

EPS = 1e-5


# --8<-- [start:functions]
def naive(x, weight, bias):
    """Layer norm with a bias, RMS norm without."""
    y = x.float()                                               # reads 2 bytes an element, writes 4
    if bias is not None:
        y = y - y.mean(-1, keepdim=True)                        # reads 4; reads 4, writes 4
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)  # reads 4, writes 4; reads 4; reads 4, writes 4
    y = y * weight if bias is None else y * weight + bias       # reads 4, writes 4, for each operation
    return y.to(x.dtype)                                        # reads 4, writes 2


def library(x, weight, bias):
    if bias is None:
        return F.rms_norm(x, weight.shape, weight, EPS)
    return F.layer_norm(x, weight.shape, weight, bias, EPS)
# --8<-- [end:functions]


def own(x, weight, bias):
    return norm(x, weight, bias, EPS)


def inputs(rows, columns, layer=False, dtype=torch.bfloat16, device="cuda"):
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    weight, bias = (torch.randn(columns, device=device, dtype=dtype) for _ in range(2))
    return x, weight, bias if layer else None


def reference(x, weight, bias):
    x = x.double() if bias is None else x.double() - x.double().mean(-1, keepdim=True)
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()
    return y if bias is None else y + bias.double()


variants = {"naive": naive, "library": library, "own": own}
compiled = {"compiled": partial(torch.compile, naive)}
cases = {"rms_16384x4096": {"rows": 16384, "columns": 4096}, "rms_8192x8192": {"rows": 8192, "columns": 8192},
         "rms_4096x16384": {"rows": 4096, "columns": 16384}, "layer_1024x12288": {"rows": 1024, "columns": 12288, "layer": True}}
small = {"rows": 33, "columns": 70, "layer": True}
tolerance = {torch.bfloat16: 4e-3}


def minimum_bytes(x, weight, bias):
    return 2 * x.nbytes + weight.nbytes * (1 if bias is None else 2)
