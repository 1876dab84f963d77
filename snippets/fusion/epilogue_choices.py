"""Two questions about epilogues: which gelu does cuBLASLt's have, and does Inductor fuse one when it may time it first?"""
import re

import torch
import torch.nn.functional as F
from torch._inductor.utils import fresh_cache, run_and_get_code

from fusion.epilogue import full_epilogue, inputs, unfused

time_limit_s = 120


# --8<-- [start:choices]
TUNED = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON",
         # Two candidates of about twenty, so that tuning takes seconds: one tile shape, with fewer and with more warps.
         "test_configs.autotune_choice_desc_regex": "BLOCK_K=64, BLOCK_M=128, BLOCK_N=128"}


def kernels_chosen(args):
    """Names of the kernels in the code that Inductor generates after it has timed the product, alone and with an epilogue."""
    with fresh_cache():
        _, code = run_and_get_code(torch.compile(unfused, options=TUNED), *args)
    return re.findall(r"async_compile\.triton\('(\w+)'", "\n".join(code))
# --8<-- [end:choices]


def error(out, right):
    return float((out.double() - right).norm() / right.norm())


def gelu_errors(x, w, bias):
    """Relative error of the fused epilogue against both forms of gelu, in float64."""
    y, out = x.double() @ w.double() + bias.double(), full_epilogue(x, w, bias)
    return {form: error(out, F.gelu(y, approximate=form)) for form in ("none", "tanh")}


def capture(device="cuda"):
    torch.manual_seed(0)
    large = inputs(k=128, device=device) if device == "cuda" else None  # a CPU has no templates to choose from
    return {"kernels": kernels_chosen(large) if large else [],
            "gelu": gelu_errors(*inputs(256, 256, 256, dtype=torch.float32, device=device))}
