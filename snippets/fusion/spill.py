"""Softmax over rows of growing length: one pass that keeps the row in registers, and two that read it twice."""
from functools import partial

import torch
import triton
import triton.language as tl


# --8<-- [start:one]
@triton.jit
def one_pass(x, out, columns, BLOCK: tl.constexpr):
    """A block a row, with the whole row in registers: columns <= BLOCK. Reads it once, writes it once."""
    row, at = tl.program_id(0).to(tl.int64) * columns, tl.arange(0, BLOCK)
    scores = tl.load(x + row + at, at < columns, other=-float("inf")).to(tl.float32)
    p = tl.exp(scores - tl.max(scores, 0))
    tl.store(out + row + at, p / tl.sum(p, 0), at < columns)
# --8<-- [end:one]


# --8<-- [start:two]
@triton.jit
def two_passes(x, out, columns, BLOCK: tl.constexpr):
    """A block a row, BLOCK columns at a time. Reads the row twice: for its maximum and sum, then for the result."""
    row, lane = tl.program_id(0).to(tl.int64) * columns, tl.arange(0, BLOCK)
    top, total = tl.full((BLOCK,), -1e38, tl.float32), tl.zeros((BLOCK,), tl.float32)  # finite: -inf - -inf is NaN
    for begin in range(0, columns, BLOCK):
        at = begin + lane
        scores = tl.load(x + row + at, at < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, scores)
        total = total * tl.exp(top - higher) + tl.exp(scores - higher)
        top = higher
    row_top = tl.max(top, 0)
    row_total = tl.sum(total * tl.exp(top - row_top), 0)
    for begin in range(0, columns, BLOCK):
        at = begin + lane
        scores = tl.load(x + row + at, at < columns, other=-float("inf")).to(tl.float32)
        tl.store(out + row + at, tl.exp(scores - row_top) / row_total, at < columns)
# --8<-- [end:two]


def launch(kernel, x, block, warps):
    """The result, and Triton's handle of the kernel that wrote it."""
    out = torch.empty_like(x)
    return out, kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block, num_warps=warps)


def in_one_pass(x, warps=16):
    return launch(one_pass, x, triton.next_power_of_2(x.shape[1]), warps)[0]


def in_two_passes(x, block=4096, warps=8):
    return launch(two_passes, x, block, warps)[0]


def softmax(x):
    return torch.softmax(x, -1)


def inputs(columns=32768, elements=2**27, dtype=torch.float16, device="cuda"):
    return (torch.randn(elements // columns, columns, device=device, dtype=dtype),)


def reference(x):
    return softmax(x.double())


variants = {"one pass": in_one_pass, "two passes": in_two_passes}
compiled = {"compiled": partial(torch.compile, softmax, dynamic=False)}
cases = {f"columns_{columns}": {"columns": columns} for columns in (32768, 131072)}
small = {"columns": 5000, "elements": 15000}
tolerance = {torch.float16: 3e-3}  # an element of a long row is small, and float16 has fewer digits there


def minimum_bytes(x):
    return 2 * x.nbytes
