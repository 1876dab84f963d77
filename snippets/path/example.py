"""The line that this chapter follows, and its inputs."""
import torch
import torch.nn.functional as F


# --8<-- [start:example]
def inputs(rows=8192, columns=8192, dtype=torch.float16, device="cuda", requires_grad=False):
    x = torch.randn(rows, columns, device=device, dtype=dtype, requires_grad=requires_grad)
    bias = torch.randn(columns, device=device, dtype=dtype, requires_grad=requires_grad)
    return x, bias


def forward(x, bias):
    y = F.gelu(x + bias)
    return y
# --8<-- [end:example]
