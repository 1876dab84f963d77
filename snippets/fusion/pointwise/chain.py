"""gelu(x + bias) * 0.5 + 0.1: four pointwise operations in eager mode, and in each mode of torch.compile."""
from functools import partial

import torch
import torch.nn.functional as F

time_limit_s = 600


# --8<-- [start:inputs]
def inputs(rows=8192, columns=8192, dtype=torch.float16, device="cuda"):
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    bias = torch.randn(columns, device=device, dtype=dtype)
    return x, bias
# --8<-- [end:inputs]


# --8<-- [start:functions]
def chain(x, bias):
    y = x + bias          # reads x, writes y; bias stays in cache
    y = F.gelu(y)         # reads y, writes a new y
    return y * 0.5 + 0.1  # two operations, each reads and writes


def compiled_chain(mode):
    return torch.compile(chain, mode=mode)
# --8<-- [end:functions]


def reference(x, bias):
    y = x.double() + bias.double()
    return 0.25 * y * (1 + torch.erf(y / 2**0.5)) + 0.1


MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
variants = {"eager": chain}
compiled = {mode: partial(compiled_chain, mode) for mode in MODES}
cases = {"fp16": {"dtype": torch.float16}, "fp32": {"dtype": torch.float32}}
small = {"rows": 33, "columns": 70}
tolerance = {torch.float16: 6e-4, torch.float32: 5e-7}


def minimum_bytes(x, bias):
    return x.nbytes + bias.nbytes + x.nbytes  # x and bias read once, the result written once
