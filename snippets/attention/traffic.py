"""Attention as four operators and as one kernel, against the length: time, memory, and what the DRAM moved. Needs triton."""
import torch
import torch.nn.functional as F

from attention import triton_kernel
from attention.ladder import flops, inputs, minimum_bytes, reference, sample  # noqa: F401  (parts of this comparison too)

needs = {"memory_bytes": 40 * 2**30}
time_limit_s = 300


# --8<-- [start:functions]
def standard(q, k, v, causal):
    scores = q @ k.mT * q.shape[-1] ** -0.5            # 1 pass: writes n * n scores a head; 2: reads, writes
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)  # 2 passes
    return torch.softmax(scores, dim=-1) @ v           # 2 passes; 1: reads


def sdpa(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # no pass


def own(together=None):
    """The Triton kernel with so many heads at work at a time; as it is: one, or under a mask as many as L2 holds."""
    def attend(q, k, v, causal):
        out = torch.empty_like(q)
        triton_kernel.launch(q, k, v, out, causal=causal, together=together)
        return out
    return attend
# --8<-- [end:functions]


variants = {"standard": standard, "SDPA": sdpa, "Triton": own(), "Triton, all heads at once": own(1 << 14)}
cases = {**{f"full_{n}": {"n": n, "causal": False} for n in (2048, 4096, 8192, 16384)},
         "causal_16384": {}, "causal_1024": {"n": 1024, "heads": 256}}
small = {"n": 200, "heads": 2, "dtype": torch.float16}
tolerance = {torch.bfloat16: 1e-2, torch.float16: 1e-3}  # standard rounds the scores and the weights
