"""x + bias, three ways: bias broadcast by eager mode, bias written out to the full size first, and compiled."""
from functools import partial

import torch


# --8<-- [start:inputs]
def inputs(rows=8192, columns=8192, dtype=torch.float16, device="cuda"):
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    bias = torch.randn(columns, device=device, dtype=dtype)
    full = bias.expand(rows, columns).contiguous()  # as large as x
    return x, bias, full
# --8<-- [end:inputs]


# --8<-- [start:functions]
def add_broadcast(x, bias, full):
    return x + bias  # reads x, writes the result


def add_full(x, bias, full):
    return x + full  # reads x and full, writes the result: half as many bytes again
# --8<-- [end:functions]


def reference(x, bias, full):
    return x.double() + bias.double()


variants = {"broadcast": add_broadcast, "full": add_full}
compiled = {"broadcast, compiled": partial(torch.compile, add_broadcast)}
cases = {"fp16": {"dtype": torch.float16}}
small = {"rows": 33, "columns": 70}
tolerance = {torch.float16: 6e-4, torch.float32: 1e-7}


def minimum_bytes(x, bias, full):
    return x.nbytes + bias.nbytes + x.nbytes
