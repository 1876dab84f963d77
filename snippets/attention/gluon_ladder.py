"""The rungs of the Gluon kernel, each by one switch, timed by turns in one process as in forward.py: causal, bf16, 16384 tokens.

`steps` add up, from the first to the kernel as it is. `alone` change one thing of the kernel as it is. Needs triton and sm_90.
"""
import torch

from attention import forward, gluon_kernel

needs = {"capability": (9, 0), "memory_bytes": 8 * 2**30}
time_limit_s = 300
POINTS = ((128, 16384), (128, 1024), (64, 16384), (64, 1024))  # one kernel serves every length

# --8<-- [start:steps]
ALL = 1 << 14  # more heads than there are
STEPS = {
    "head_by_head": {"DYNAMIC": False, "TOGETHER": 1, "CARRY": False, "TURNS": False},
    "longest_first": {"DYNAMIC": False, "TOGETHER": ALL, "FORTH": True, "CARRY": False, "TURNS": False},
    "drawn": {"TOGETHER": ALL, "CARRY": False, "TURNS": False},
    "heads_in_l2": {"CARRY": False, "TURNS": False},
    "carry": {"TURNS": False},
    "as_it_is": {}}
ALONE = {
    "skip_rescale": {"SKIP": 8},
    "polynomial": {"POLY": 8},
    "small_blocks": {"BLOCK": 64, "STAGES": 4}}
# --8<-- [end:steps]


def point(d, n, flush):
    """{rung: {"samples_us", "error"}}. Raises ValueError where a rung is wrong."""
    torch.manual_seed(0)
    shape = (forward.TOKENS // n, forward.HIDDEN // d, n, d)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    calls = {name: lambda switches=switches: gluon_kernel.attention(q, k, v, True, **switches)
             for name, switches in (STEPS | ALONE).items()}
    errors = {name: forward.error(call(), q, k, v, True) for name, call in calls.items()}
    wrong = {name: error for name, error in errors.items() if not error < forward.TOLERANCE}
    if wrong:
        raise ValueError(f"relative errors above the tolerance: {wrong}")
    samples = forward.duel(calls, flush)
    return {name: {"samples_us": samples[name], "error": float(f"{errors[name]:.3g}")} for name in calls}


def capture(device="cuda"):
    flush = torch.empty(2**28, dtype=torch.int8, device=device)  # several times L2
    data = {}
    for d, n in POINTS:
        data.setdefault(f"d{d}", {})[f"n{n}"] = point(d, n, flush)
    return data
