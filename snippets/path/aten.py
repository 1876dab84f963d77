"""Six adds, and the kernel that ATen picks for each: the operands' layout and dtype decide, not the operator."""
import torch


# --8<-- [start:operands]
def operands(case, rows, columns, device):
    x = torch.randn(rows, columns, device=device, dtype=torch.float16)
    if case == "same_shape":
        return x, torch.randn_like(x)
    if case == "broadcast":
        return x, torch.randn(columns, device=device, dtype=torch.float16)        # one row for all rows
    if case == "misaligned":
        longer = torch.randn(rows * columns + 1, device=device, dtype=torch.float16)
        return x, longer[1:].view(rows, columns)                                  # begins 2 bytes late
    if case == "transposed":
        return x, torch.randn(columns, rows, device=device, dtype=torch.float16).t()  # not contiguous
    if case == "mixed_dtype":
        return x, torch.randn(rows, columns, device=device)                       # fp16 + fp32 gives fp32
    return x[:1, :1].contiguous(), x[1:2, :1].contiguous()                        # one element
# --8<-- [end:operands]


def inputs(case="same_shape", rows=8192, columns=8192, device="cuda"):
    return operands(case, rows, columns, device)


def add(x, other):
    return x + other


def reference(x, other):
    return x.double() + other.double()


variants = {"add": add}
cases = {case: {"case": case} for case in ("same_shape", "broadcast", "misaligned", "transposed", "mixed_dtype", "one_element")}
small = {"case": "transposed", "rows": 33, "columns": 70}
tolerance = {torch.float16: 6e-4, torch.float32: 1e-7}


def minimum_bytes(x, other):
    result = torch.result_type(x, other).itemsize * x.numel()
    return x.nbytes + other.nbytes + result  # each operand read once, the result written once
