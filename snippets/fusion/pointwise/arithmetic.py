"""The same bytes with more and less arithmetic: a copy, then the compiled chain around relu, tanh gelu and erf gelu."""
from functools import partial

import torch
import torch.nn.functional as F


# --8<-- [start:functions]
def copy(x, bias, activation):
    return torch.empty_like(x).copy_(x)


def chain(x, bias, activation):
    return activation(x + bias) * 0.5 + 0.1


gelu_tanh = partial(F.gelu, approximate="tanh")  # gelu_erf in cheaper arithmetic, differing by up to 5e-4
# --8<-- [end:functions]


def inputs(activation="gelu", rows=8192, columns=8192, dtype=torch.float16, device="cuda"):
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    bias = torch.randn(columns, device=device, dtype=dtype)
    return x, bias, ACTIVATIONS[activation]


def reference(x, bias, activation):
    if activation is None:
        return x.double()
    return activation(x.double() + bias.double()) * 0.5 + 0.1


def run(x, bias, activation):
    return copy(x, bias, activation) if activation is None else chain(x, bias, activation)


ACTIVATIONS = {"copy_only": None, "relu": F.relu, "gelu_tanh": gelu_tanh, "gelu": F.gelu}
variants = {}
compiled = {"compiled": partial(torch.compile, run)}
cases = {name: {"activation": name} for name in ACTIVATIONS}
small = {"rows": 33, "columns": 70}
tolerance = {torch.float16: 6e-4}


def minimum_bytes(x, bias, activation):
    return 2 * x.nbytes + (bias.nbytes if activation else 0)
