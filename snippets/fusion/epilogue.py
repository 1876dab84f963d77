"""gelu(x @ w + bias): who applies the bias and the gelu, kernels of their own or the matrix product before it stores?

Every variant uses the tanh form of gelu, because that is the form which cuBLASLt's epilogue has.
"""
from functools import partial

import torch
import torch.nn.functional as F

time_limit_s = 300


# --8<-- [start:inputs]
def inputs(m=8192, n=8192, k=8192, dtype=torch.bfloat16, device="cuda"):
    """x (m, k), w (k, n), bias (n,). The weights are scaled so that a result has about the size of a normal number."""
    x = torch.randn(m, k, device=device, dtype=dtype)
    w = torch.randn(k, n, device=device, dtype=dtype) / k**0.5
    bias = torch.randn(n, device=device, dtype=dtype)
    return x, w, bias
# --8<-- [end:inputs]


# --8<-- [start:functions]
def unfused(x, w, bias):
    y = x @ w                              # reads x and w, writes y: m * n elements
    y = y + bias                           # reads y, writes y
    return F.gelu(y, approximate="tanh")   # reads y, writes the result


def bias_epilogue(x, w, bias):
    y = torch.addmm(bias, x, w)            # adds the bias before it stores: writes y
    return F.gelu(y, approximate="tanh")   # reads y, writes the result


def full_epilogue(x, w, bias):
    return torch._addmm_activation(bias, x, w, use_gelu=True)  # private; writes the result and nothing else
# --8<-- [end:functions]


# --8<-- [start:triton]
TRITON = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON",  # Inductor's own matrix product, not cuBLAS
          # One tile shape, so that there is nothing to tune: then the epilogue is fused without asking whether it pays.
          "test_configs.autotune_choice_desc_regex": "BLOCK_K=64, BLOCK_M=128, BLOCK_N=128.*num_stages=3, num_warps=4"}


def triton_product():
    return torch.compile(unfused, options=TRITON if torch.cuda.is_available() else None)  # its templates are for a GPU
# --8<-- [end:triton]


def reference(x, w, bias):
    return F.gelu(x.double() @ w.double() + bias.double(), approximate="tanh")


variants = {"unfused": unfused, "bias epilogue": bias_epilogue, "full epilogue": full_epilogue}
compiled = {"compiled": partial(torch.compile, unfused), "compiled, Triton product": triton_product}
cases = {"k8192": {}, "k128": {"k": 128}}
small = {"m": 33, "n": 70, "k": 40}
tolerance = {torch.bfloat16: 8e-3}


def minimum_bytes(x, w, bias):
    result_bytes = x.shape[0] * w.shape[1] * x.element_size()
    return x.nbytes + w.nbytes + bias.nbytes + result_bytes  # operands read once, the result written once


def flops(x, w, bias):
    return 2 * x.shape[0] * x.shape[1] * w.shape[1]  # the product alone
