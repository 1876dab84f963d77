"""gelu, then a step that reads its results: compiled as one function and as two. Needs only torch."""
from functools import partial

import torch
import torch.nn.functional as F

count_calls = True


# --8<-- [start:consumers]
def activate(*xs):
    return [F.gelu(x) for x in xs]


def stencil(y):
    """Sum over each 3 x 3 neighbourhood, (n, n) to (n - 2, n - 2): reads each y nine times."""
    n = y.shape[0] - 2
    return sum(y[i:i + n, j:j + n] for i in range(3) for j in range(3))


def pairs(y):
    """Mean distance of each y to all the others, (n,) to (n,): reads each y n times."""
    return (y[:, None] - y[None, :]).abs().mean(-1)


def join(*ys):
    """Eight tensors side by side, (n, n / 8) each to (n, n): reads each y once."""
    return torch.cat(ys, 1).tanh()


def scale(y):
    """The plain case, (n, n) to (n, n): reads each y once."""
    return y * 0.5 + 0.1
# --8<-- [end:consumers]


# --8<-- [start:together]
def together(consume, *xs):
    return consume(*activate(*xs))  # compiled as one function: reads xs, writes the result


def consumed(consume, *ys):
    return consume(*ys)


def apart():
    """Two compiled functions: what gelu gives is written to memory in between, once, and read from there."""
    first, second = torch.compile(activate, dynamic=False), torch.compile(consumed, dynamic=False)
    return lambda consume, *xs: second(consume, *first(*xs))
# --8<-- [end:together]


CONSUMERS = {consume.__name__: consume for consume in (stencil, pairs, join, scale)}


def inputs(name="stencil", n=8192, dtype=torch.float16, device="cuda"):
    shapes = {"pairs": [(n,)], "join": 8 * [(n, n // 8)]}.get(name, [(n, n)])
    return CONSUMERS[name], *(torch.randn(shape, device=device, dtype=dtype) for shape in shapes)


def reference(consume, *xs):
    return together(consume, *(x.double() for x in xs))


variants = {}
compiled = {"fused": partial(torch.compile, together, dynamic=False), "apart": apart}
cases = {"stencil": {}, "pairs": {"name": "pairs"}, "join": {"name": "join"}, "stencil_in_l2": {"n": 2048},
         "scale_in_l2": {"name": "scale", "n": 2048}}
small = {"n": 34}
tolerance = {torch.float16: 1e-3}


def minimum_bytes(consume, *xs):
    result = consume(*(x.to("meta") for x in xs))  # its shape alone
    return sum(x.nbytes for x in xs) + result.nbytes
