"""gelu(x + bias) * 0.5 + 0.1 as one kernel of our own, rung by rung: the same bytes, fewer instructions."""
from functools import partial

import torch

from fusion.pointwise.kernel import bias_gelu


def inputs(rows=8192, columns=8192, dtype=torch.float16, device="cuda"):
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    bias = torch.randn(columns, device=device, dtype=dtype)
    return x, bias


def reference(x, bias):
    y = x.double() + bias.double()
    return 0.25 * y * torch.erfc(-y / 2**0.5) + 0.1


# --8<-- [start:rungs]
def one_load(x, bias, form=None):
    """Half the block: each of the 128 threads has one load of 16 bytes of x under way, not two."""
    return bias_gelu(x, bias, form, block=2048 // x.element_size())


variants = {
    "erf, one load": partial(one_load, form="erf"),
    "erf": partial(bias_gelu, form="erf"),
    "sigmoid": partial(bias_gelu, form="sigmoid"),
    "tail, one load": one_load,
    "tail": bias_gelu}
# --8<-- [end:rungs]
cases = {"fp16": {"dtype": torch.float16}, "bf16": {"dtype": torch.bfloat16}, "fp32": {"dtype": torch.float32}}
small = {"rows": 33, "columns": 70}
tolerance = {torch.float16: 3e-4, torch.bfloat16: 5e-3, torch.float32: 3e-6}


def minimum_bytes(x, bias):
    return x.nbytes + bias.nbytes + x.nbytes  # x and bias read once, the result written once
