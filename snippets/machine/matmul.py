"""How many floating-point operations a second this GPU does at best: square matrix products, by dtype.

A product of two N x N matrices takes N multiplications and N additions for each of its N * N results: 2 * N**3.
The inputs are random: on zeros the card draws less power and runs faster than it ever does on real data.
"""
import torch

needs = {"memory_bytes": 8 * 2**30}
time_limit_s = 300


def inputs(n, dtype, tf32=False, device="cuda"):
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    return a, b, tf32


def matmul(a, b, tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32  # whether fp32 inputs may be rounded to 10 bits of mantissa
    return a @ b


def reference(a, b, tf32):
    return a.double() @ b.double()


DTYPES = {"fp16": (torch.float16, False), "bf16": (torch.bfloat16, False),
          "tf32": (torch.float32, True), "fp32": (torch.float32, False)}
variants = {"matmul": matmul}
cases = {f"{name}_{n}": {"n": n, "dtype": dtype, "tf32": tf32}
         for name, (dtype, tf32) in DTYPES.items() for n in (4096, 8192)}
small = {"n": 96, "dtype": torch.float32}
tolerance = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-3}


def minimum_bytes(a, b, tf32):
    return a.nbytes + b.nbytes + a.nbytes  # two operands read, one result written


def flops(a, b, tf32):
    return 2 * a.shape[0] ** 3
