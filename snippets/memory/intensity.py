"""Two operations whose arithmetic intensity can be turned up: a matrix product by its inner length, a loop by its steps."""
import torch
import triton
import triton.language as tl


# --8<-- [start:product]
def product(a, b):
    # [n, k] @ [k, n]: 2 * n * n * k FLOPs, and n * n results to write whatever k is
    return a @ b
# --8<-- [end:product]


# --8<-- [start:loop]
@triton.jit
def multiply_add_kernel(x_pointer, y_pointer, count,
                        STEPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_pointer + at, mask=at < count)   # 4 bytes read
    for _ in tl.static_range(STEPS):
        y = y * 0.99 + 0.01                        # one multiply-add, 2 FLOPs
    tl.store(y_pointer + at, y, mask=at < count)   # 4 bytes written


def multiply_add(x, steps):
    y = torch.empty_like(x)
    multiply_add_kernel[(triton.cdiv(x.numel(), 1024),)](
        x, y, x.numel(), STEPS=steps, BLOCK=1024)
    return y
# --8<-- [end:loop]


def inputs(k=None, steps=None, n=8192, device="cuda"):
    """(operation, its arguments): a product of [n, k] and [k, n] in bf16, or the loop over [n, n] in fp32."""
    if k:
        return product, (torch.randn(n, k, device=device, dtype=torch.bfloat16), torch.randn(k, n, device=device, dtype=torch.bfloat16))
    return multiply_add, (torch.randn(n, n, device=device), steps)


def reference(operation, arguments):
    if operation is product:
        return arguments[0].double() @ arguments[1].double()
    x, steps = arguments
    return (x.double() - 1) * 0.99**steps + 1  # 1 is where y = y * 0.99 + 0.01 stands still


variants = {"run": lambda operation, arguments: operation(*arguments)}
cases = {f"product_{k}": {"k": k} for k in (16, 64, 256, 1024)} | {f"loop_{steps}": {"steps": steps} for steps in (1, 4, 16, 64, 256)}
small = {"steps": 4, "n": 37}
tolerance = {torch.bfloat16: 8e-3, torch.float32: 1e-5}


def minimum_bytes(operation, arguments):
    if operation is product:
        a, b = arguments
        return a.nbytes + b.nbytes + 2 * a.shape[0] * b.shape[1]  # both operands read, the bf16 result written
    return 2 * arguments[0].nbytes


def flops(operation, arguments):
    if operation is product:
        a, b = arguments
        return 2 * a.shape[0] * b.shape[1] * a.shape[1]
    x, steps = arguments
    return 2 * x.numel() * steps
