"""Attention written by hand in many forms: does torch.compile turn it into a call of SDPA, and is the result right?

The answer is read from the generated code of a fresh cache. Inductor's own counter is recorded beside it, cold and warm.
"""
import re

import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

# --8<-- [start:imports]
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch.fx.experimental.proxy_tensor import make_fx

# --8<-- [end:imports]

time_limit_s = 120


# --8<-- [start:inputs]
def inputs(n=256, heads=4, d=64, dtype=torch.bfloat16, device="cuda"):
    """q, k, v (2, heads, n, d), and a mask (n, n) of 0 and minus infinity."""
    q, k, v = (torch.randn(2, heads, n, d, device=device, dtype=dtype) for _ in range(3))
    mask = torch.full((n, n), -torch.inf, device=device, dtype=dtype).triu(1)
    return q, k, v, mask


def heads_last(q, k, v, mask):
    """The same numbers as (2, n, heads, d), the layout that a projection leaves."""
    return *(x.transpose(1, 2).contiguous() for x in (q, k, v)), mask
# --8<-- [end:inputs]


# --8<-- [start:forms]
def scores(q, k):
    return q @ k.transpose(-2, -1)


def softmax(s, dim=-1, dtype=None):
    return torch.softmax(s, dim, dtype=dtype)


def softmax_by_hand(s):
    weights = torch.exp(s - s.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


FORMS = {  # s stands for the scores, q @ k.T; with d = 64 the default divisor of SDPA is 8, and 20 is a choice of one's own
    "s / 20": lambda q, k, v, mask: softmax(scores(q, k) / 20) @ v,
    "s * 0.05": lambda q, k, v, mask: softmax(scores(q, k) * 0.05) @ v,
    "s / 8 + mask": lambda q, k, v, mask: softmax(scores(q, k) / 8 + mask) @ v,
    "s / 20 + mask": lambda q, k, v, mask: softmax(scores(q, k) / 20 + mask) @ v,
    "s / 20 + mask, exp and sum by hand": lambda q, k, v, mask: softmax_by_hand(scores(q, k) / 20 + mask) @ v,
    "s / 20 + mask, softmax in fp32": lambda q, k, v, mask: softmax(
        scores(q, k) / 20 + mask, dtype=torch.float32).to(q.dtype) @ v,
    "s / 20, softmax over the queries": lambda q, k, v, mask: softmax(scores(q, k) / 20, dim=-2) @ v,
    "mask + s / 20": lambda q, k, v, mask: softmax(mask + scores(q, k) / 20) @ v,
    "s * 0.05 + mask": lambda q, k, v, mask: softmax(scores(q, k) * 0.05 + mask) @ v,
    "(s / 20).masked_fill": lambda q, k, v, mask: softmax((scores(q, k) / 20).masked_fill(mask < 0, -torch.inf)) @ v,
}
HEADS_LAST = {  # the same, from q, k, v of shape (batch, n, heads, d)
    "s / 8": lambda q, k, v, mask: softmax(scores(q, k) / 8) @ v,
    "s / 20": FORMS["s / 20"],
    "s * 0.05": FORMS["s * 0.05"],
    "s / 20 + mask": FORMS["s / 20 + mask"],
    "(q / 20) @ k.T": lambda q, k, v, mask: softmax(scores(q / 20, k)) @ v,
}


def from_heads_last(form):
    return lambda q, k, v, mask: form(*(x.permute(0, 2, 1, 3) for x in (q, k, v)), mask)


def sdpa(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1 / 20)
# --8<-- [end:forms]


CALL = re.compile(r"torch\.ops\.aten\._scaled_dot_product_(\w+)\.")


# --8<-- [start:error]
def error(out, function, args):
    """Relative error against the same function, not compiled, in float64."""
    right = function(*(x.double() for x in args))
    return float((out.double() - right).norm() / right.norm())
# --8<-- [end:error]


# --8<-- [start:observe]
def observe(function, args, **options):
    """Compile and run: which SDPA the generated code calls, what Inductor's counter says, and the error."""
    torch._dynamo.reset()
    counters.clear()
    out, code = run_and_get_code(torch.compile(function, **options), *args)
    called = sorted(set(CALL.findall("\n".join(code))))
    return {"calls": ", ".join(called), "call_count": len(called), "counter_count": counters["inductor"]["fuse_attention"],
            "error": error(out, function, args)}


def observe_fresh(function, args, **options):
    with fresh_cache():  # a warm cache gives the code back without running the pass that counts
        return observe(function, args, **options) | {"eager_error": error(function(*args), function, args)}
# --8<-- [end:observe]


# --8<-- [start:rewritten]
def rewritten(function, args):
    """The graph after Inductor's pattern matcher; it can be looked at and run without compiling anything."""
    with torch.no_grad():
        graph = make_fx(function, decomposition_table=select_decomp_table(), tracing_mode="fake")(*args)
        graph.graph.eliminate_dead_code()
        joint_graph_passes(graph)
    return graph


def sdpa_calls(graph):
    return sum("scaled_dot_product" in str(node.target) for node in graph.graph.nodes)
# --8<-- [end:rewritten]


def observe_tf32(function, args):
    """The same with fp32 products allowed to round to TF32; else Inductor leaves attention in fp32 alone on a GPU."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return observe_fresh(function, args)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def capture(device="cuda", n=256):
    torch.manual_seed(0)
    args = inputs(n, device=device)
    last, half, single = heads_last(*args), *(tuple(x.to(dtype) for x in args) for dtype in (torch.float16, torch.float32))
    wrong = FORMS["s / 20 + mask"]
    with fresh_cache():
        cache = {"cold": observe(FORMS["s / 20"], args), "warm": observe(FORMS["s / 20"], args)}
    return {"forms": {name: observe_fresh(form, args) for name, form in FORMS.items()},
            "heads_last": {name: observe_fresh(from_heads_last(form), last) for name, form in HEADS_LAST.items()},
            "dtypes": {"fp16": observe_fresh(wrong, half), "fp32": observe_fresh(wrong, single),
                       "fp32, TF32 allowed": observe_tf32(wrong, single)},
            "matcher_off": observe_fresh(wrong, args, options={"pattern_matcher": False}),
            "sdpa": observe_fresh(sdpa, args), "cache": cache}
