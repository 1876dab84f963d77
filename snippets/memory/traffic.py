"""gelu(x + bias) * 0.5 + 0.1 at sizes above and below the L2 cache: bytes counted by hand, to be held against counters."""
import torch
import torch.nn.functional as F

count_calls = True  # counters of the whole call, beside those of each kernel


# --8<-- [start:chain]
def chain(x, bias):  # S: the size of x in bytes
    y = x + bias     # reads S (and bias, one row), writes S
    y = F.gelu(y)    # reads S, writes S
    y = y * 0.5      # reads S, writes S
    return y + 0.1   # reads S, writes S
# --8<-- [end:chain]


def inputs(n=8192, device="cuda"):
    x = torch.randn(n, n, device=device, dtype=torch.float16)
    bias = torch.randn(n, device=device, dtype=torch.float16)
    return x, bias


def reference(x, bias):
    y = x.double() + bias.double()
    return 0.25 * y * (1 + torch.erf(y / 2**0.5)) + 0.1


def fused():
    return torch.compile(chain)


variants = {"eager": chain}
compiled = {"fused": fused}
cases = {f"mib_{2 * n * n // 2**20}": {"n": n} for n in (2048, 3072, 4096, 8192)}
small = {"n": 33}
tolerance = {torch.float16: 6e-4}


def minimum_bytes(x, bias):
    return x.nbytes + bias.nbytes + x.nbytes
