"""Backward of softmax (fp16), RMS norm and layer norm (bf16): written out and compiled, by the library, and our own. Needs triton."""
from functools import partial

import torch

from fusion.reduction.norm_kernel import norm_backward, softmax_backward

EPS = 1e-5


# --8<-- [start:functions]
def softmax_naive(dy, y):
    return y * (dy - (dy * y).sum(-1, keepdim=True))


def norm_naive(dy, x, weight, mean, rstd):
    """dx and dweight; with a mean (layer norm) dbias too. What a row needs of its forward pass are mean and rstd."""
    dtype, dy, x = x.dtype, dy.to(rstd.dtype), x.to(rstd.dtype)
    x_hat = (x if mean is None else x - mean) * rstd
    g = dy * weight
    dx = g - x_hat * (g * x_hat).mean(-1, keepdim=True)  # along the row
    if mean is not None:
        dx = dx - g.mean(-1, keepdim=True)
    grads = [dx * rstd, (dy * x_hat).sum(0)]             # across the rows
    return [grad.to(dtype) for grad in (grads if mean is None else [*grads, dy.sum(0)])]
# --8<-- [end:functions]


def naive(kind, *tensors):
    return softmax_naive(*tensors) if kind == "softmax" else norm_naive(*tensors)


def library(kind, dy, x, *rest):
    """The operators that autograd calls."""
    if kind == "softmax":
        return torch.ops.aten._softmax_backward_data(dy, x, -1, dy.dtype)
    weight, mean, rstd = rest
    if kind == "rms":
        return torch.ops.aten._fused_rms_norm_backward(dy, x, weight.shape, rstd, weight, [True, True])
    return torch.ops.aten.native_layer_norm_backward(dy, x, weight.shape, mean, rstd, weight, weight, [True, True, True])


def own(kind, *tensors):
    return softmax_backward(*tensors) if kind == "softmax" else norm_backward(*tensors)


def inputs(kind, rows, columns, dtype=torch.bfloat16, device="cuda"):
    """Like what a forward pass leaves: softmax keeps its result, a norm its input and the rows' mean and rstd in fp32."""
    x, dy = (torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(2))
    if kind == "softmax":
        return kind, dy, torch.softmax(x, -1)
    weight = torch.randn(columns, device=device, dtype=dtype)
    mean = x.float().mean(-1, keepdim=True) if kind == "layer" else None
    rstd = torch.rsqrt((x.float() - (0 if mean is None else mean)).pow(2).mean(-1, keepdim=True) + EPS)
    return kind, dy, x, weight, mean, rstd


def reference(kind, *tensors):
    return naive(kind, *(None if tensor is None else tensor.double() for tensor in tensors))


variants = {"library": library, "own": own}
compiled = {"compiled": partial(torch.compile, naive)}
cases = {"softmax_8192x8192": {"kind": "softmax", "rows": 8192, "columns": 8192, "dtype": torch.float16},
         "rms_8192x8192": {"kind": "rms", "rows": 8192, "columns": 8192},
         "layer_1024x12288": {"kind": "layer", "rows": 1024, "columns": 12288}}
small = {"kind": "layer", "rows": 33, "columns": 70, "dtype": torch.float32}
tolerance = {torch.float16: 2e-3, torch.bfloat16: 4e-3, torch.float32: 1e-6}


def minimum_bytes(kind, dy, x, *rest):
    return 3 * x.nbytes  # dy and x (softmax: y) read once, dx written once; what is as long as a row or a column is left out
