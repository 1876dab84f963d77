"""Softmax of long rows, fp16: written out, by the library, compiled, and by kernels of our own, beside a copy. Needs triton."""
from functools import partial

import torch
import triton

from fusion.reduction.softmax_kernel import online_softmax, row_kernel, scale_of, softmax, split_softmax


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


def own(function):
    return lambda x, answer: function(x)


def whole_row_in_32_bits(x):
    """A step on the way: the row stays on the chip, but every element of it takes a register of its own."""
    rows, columns = x.shape
    if columns > 65536:
        raise NotImplementedError(f"a row of {columns} elements does not fit in the registers of one program")
    y = torch.empty_like(x)
    row_kernel[(rows,)](x, y, rows, columns, ROWS=1, BLOCK=triton.next_power_of_2(columns), PACKED=False, SCALE=scale_of(x), num_warps=16)
    return y


def pipelined(x, answer):
    """Pieces wait for their row in shared memory. In Gluon, which no interpreter runs on a CPU."""
    if not x.is_cuda:
        raise NotImplementedError("Gluon needs a GPU")
    from fusion.reduction.pipeline_kernel import pipeline_softmax
    return pipeline_softmax(x)


def reference(x, answer):
    return torch.softmax(x.double(), -1)


variants = {
    "copy_": copy, "naive": naive, "torch.softmax": library, "own, two reads": own(online_softmax),
    "own, row in 32 bits": own(whole_row_in_32_bits), "own, split row": own(split_softmax), "own, pipelined": pipelined,
    "own": own(softmax)}
compiled = {"compiled": partial(torch.compile, naive),
            "compiled, three passes": partial(torch.compile, naive, options={"online_softmax": False})}
cases = {"row_8192": {"rows": 8192, "columns": 8192}, "row_32768": {"rows": 4096, "columns": 32768},
         "row_262144": {"rows": 512, "columns": 262144}}
small = {"rows": 33, "columns": 70}
tolerance = {torch.float16: 4e-3}


def minimum_bytes(x, answer):
    return 2 * x.nbytes  # x read once, the result written once
