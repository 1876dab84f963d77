"""A moving average of many small tensors: op by op, fused down one tensor, fused across the tensors, and fused both ways."""
from functools import partial

import torch

count_traffic = False  # what differs here is the number of launches


# --8<-- [start:inputs]
def inputs(count=64, elements=2**14, device="cuda"):
    """Two lists of `count` fp32 tensors, as an optimizer or a moving average of weights meets them."""
    averages = [torch.randn(elements, device=device) for _ in range(count)]
    weights = [torch.randn(elements, device=device) for _ in range(count)]
    return averages, weights
# --8<-- [end:inputs]


# --8<-- [start:functions]
def loop(averages, weights):
    """Two operations a tensor, one tensor after the other: 2 * count kernels, 5 tensors moved for each."""
    return [torch.add(average * 0.9,               # reads 1, writes 1
                      weight, alpha=0.1)           # reads 2, writes 1
            for average, weight in zip(averages, weights, strict=True)]


def foreach(averages, weights):
    """The same two operations, each for all tensors at once: as many bytes, a few kernels."""
    scaled = torch._foreach_mul(averages, 0.9)             # reads 1, writes 1
    return torch._foreach_add(scaled, weights, alpha=0.1)  # reads 2, writes 1
# --8<-- [end:functions]


def reference(averages, weights):
    return [0.9 * average.double() + 0.1 * weight.double() for average, weight in zip(averages, weights, strict=True)]


variants = {"loop": loop, "foreach": foreach}
compiled = {"loop, compiled": partial(torch.compile, loop), "foreach, compiled": partial(torch.compile, foreach)}
cases = {"small": {"elements": 2**14}, "large": {"elements": 2**20}}
small = {"count": 5, "elements": 70}
tolerance = {torch.float32: 2e-7}


def minimum_bytes(averages, weights):
    return sum(2 * average.nbytes + weight.nbytes for average, weight in zip(averages, weights, strict=True))
