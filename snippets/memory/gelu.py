"""One call that is one kernel, F.gelu(x), large and small: what the clocks of measuring.py are pointed at."""
import torch
import torch.nn.functional as F


def inputs(n=8192, dtype=torch.float16, device="cuda"):
    return (torch.randn(n, n, device=device, dtype=dtype),)


def gelu(x):
    return F.gelu(x)  # reads x, writes the result


def reference(x):
    x = x.double()
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


variants = {"gelu": gelu}
cases = {"large": {"n": 8192}, "small": {"n": 64}}
small = {"n": 33}
tolerance = {torch.float16: 6e-4}


def minimum_bytes(x):
    return 2 * x.nbytes
