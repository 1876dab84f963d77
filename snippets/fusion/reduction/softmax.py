"""Softmax of long rows, fp16: written out, by the library, compiled, and by kernels of our own, beside a copy. Needs triton."""
from functools import partial

import torch

from fusion.reduction.softmax_kernel import online_softmax, row_softmax, softmax, split_softmax


# --8<-- [start:inputs]
def inputs(rows=8192, columns=8192, dtype=torch.float16, device="cuda"):
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    return x, torch.softmax(x.float(), -1).to(dtype)
# --8<-- [end:inputs]


# --8<-- [start:functions]
def naive(x, answer):
    m = x.amax(-1, keepdim=True)  # reads x
    e = torch.exp(x - m)          # reads x, writes the difference; reads that, writes e
    s = e.sum(-1, keepdim=True)   # reads e
    return e / s                  # reads e, writes the result


def library(x, answer):
    return torch.softmax(x, -1)


def copy(x, answer):
    return torch.empty_like(answer).copy_(answer)  # knows the answer: reads a tensor, writes a tensor
# --8<-- [end:functions]


def own(function, **options):
    return lambda x, answer: function(x, **options)


def reference(x, answer):
    return torch.softmax(x.double(), -1)


variants = {"copy_": copy, "naive": naive, "torch.softmax": library, "own, two reads": own(online_softmax),
            "own, whole row": own(row_softmax), "own, split row": own(split_softmax, keep_packed=False), "own": own(softmax)}
compiled = {"compiled": partial(torch.compile, naive),
            "compiled, three passes": partial(torch.compile, naive, options={"online_softmax": False})}
cases = {"row_8192": {"rows": 8192, "columns": 8192}, "row_32768": {"rows": 4096, "columns": 32768},
         "row_262144": {"rows": 512, "columns": 262144}}
small = {"rows": 33, "columns": 70}
tolerance = {torch.float16: 4e-3}


def minimum_bytes(x, answer):
    return 2 * x.nbytes  # x read once, the result written once
