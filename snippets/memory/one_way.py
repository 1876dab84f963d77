"""Kernels that only write or only read, whole and in part: what a memory moves that hands out no single bytes.

x has 8192 x 8192 elements of two bytes. S is its size in bytes.
"""
import torch


# --8<-- [start:whole]
def fill(x):
    return torch.full_like(x, 0.1)  # writes S, reads nothing


def row_sums(x):
    return x.sum(1)  # reads S, writes one number a row
# --8<-- [end:whole]


# --8<-- [start:parts]
def fill_one_in(step):
    def fill_part(x):
        x[:, ::step].fill_(0.1)  # writes S / step: two bytes of each 2 * step
        return x
    return fill_part


def fill_pieces(x):
    x.view(-1, 16)[::2].fill_(0.1)  # writes S / 2: of each 64 bytes the first 32
    return x


def sum_one_in(step):
    return lambda x: x[:, ::step].sum(1)  # reads S / step: two bytes of each 2 * step
# --8<-- [end:parts]


OPERATIONS = {"fill": fill, "fill_pieces": fill_pieces, "fill_one_in_16": fill_one_in(16), "row_sums": row_sums,
              "sum_one_in_16": sum_one_in(16), "sum_one_in_32": sum_one_in(32), "sum_one_in_64": sum_one_in(64)}
# The part of S that the code asks for.
SHARE = {"fill": 1, "fill_pieces": 1 / 2, "fill_one_in_16": 1 / 16, "row_sums": 1,
         "sum_one_in_16": 1 / 16, "sum_one_in_32": 1 / 32, "sum_one_in_64": 1 / 64}


def inputs(operation="fill", n=8192, device="cuda"):
    return torch.randn(n, n, device=device, dtype=torch.float16), operation


def run(x, operation):
    return OPERATIONS[operation](x)


def reference(x, operation):
    return OPERATIONS[operation](x.double())


variants = {"eager": run}
cases = {operation: {"operation": operation} for operation in OPERATIONS}
small = {"operation": "fill_one_in_16", "n": 64}
tolerance = {torch.float16: 6e-4}


def minimum_bytes(x, operation):
    return SHARE[operation] * x.nbytes
