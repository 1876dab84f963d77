"""x + y + z, each stored in another order: one kernel, one kernel without tiles, two kernels, and copies first."""
from functools import partial

import torch


# --8<-- [start:functions]
def three(x, y, z):
    # reads three tensors, writes one
    return x + y.permute(2, 0, 1) + z.permute(1, 2, 0)


def add_y(x, y):
    return x + y.permute(2, 0, 1)  # reads two, writes one


def add_z(w, z):
    return w + z.permute(1, 2, 0)  # reads two, writes one
# --8<-- [end:functions]


def contiguous_y(y):
    return y.permute(2, 0, 1).contiguous()


def contiguous_z(z):
    return z.permute(1, 2, 0).contiguous()


def add(x, y, z):
    return x + y + z


# --8<-- [start:variants]
def untiled():
    """Every index runs along the result's last axis."""
    return torch.compile(three, options={"triton.max_tiles": 1})


def apart():
    first, second = torch.compile(add_y), torch.compile(add_z)
    return lambda x, y, z: second(first(x, y), z)


def copied():
    """y and z are put in x's order by kernels of their own: 2 + 2 tensors moved, then 4."""
    of_y, of_z, last = torch.compile(contiguous_y), torch.compile(contiguous_z), torch.compile(add)
    return lambda x, y, z: last(x, of_y(y), of_z(z))
# --8<-- [end:variants]


def inputs(n=512, dtype=torch.float16, device="cuda"):
    return tuple(torch.randn(n, n, n, device=device, dtype=dtype) for _ in range(3))


def reference(x, y, z):
    return three(x.double(), y.double(), z.double())


variants = {}
compiled = {"fused": partial(torch.compile, three), "fused, untiled": untiled, "apart": apart, "copied first": copied}
cases = {"fp16": {}}
small = {"n": 20}
tolerance = {torch.float16: 6e-4}


def minimum_bytes(x, y, z):
    return 4 * x.nbytes
