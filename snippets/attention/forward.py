"""A duel of forward kernels: by turns in one process, kernel times of five rounds, at 16384 tokens and 2048 = heads * d.

FLOPs: two products of n * n * d a head, 4 * n * n * d, half of it with a causal mask. Needs triton.
What is not installed is left out, and named under "absent".
"""
from statistics import median

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention import triton_kernel

needs = {"memory_bytes": 32 * 2**30}
time_limit_s = 400
TOKENS, HIDDEN = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
ROUNDS, CALLS = 5, 4
TOLERANCE = 4e-3  # of bf16


# --8<-- [start:contenders]
def library(backend):
    """SDPA with one backend allowed: it raises where that one cannot run."""
    def bind(q, k, v, causal):
        def call():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return call
    return bind


def own_triton(q, k, v, causal):
    return lambda: triton_kernel.attention(q, k, v, causal)


def own_gluon(q, k, v, causal):
    from attention import gluon_kernel
    return lambda: gluon_kernel.attention(q, k, v, causal)


def flex(q, k, v, causal):
    """FlexAttention, compiled; each shape takes seconds, so only two lengths, and causal."""
    if not causal or q.shape[-2] not in (4096, 16384):
        return None
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.reset()  # else a second shape is silently a dynamic one
    n = q.shape[-2]
    blocks = create_block_mask(lambda b, h, query, key: query >= key, None, None, n, n, device=q.device)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, block_mask=blocks)


def package(q, k, v, causal):
    """The flash-attn-4 package, whose tensors are (batch, n, heads, d)."""
    from flash_attn.cute import flash_attn_func
    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))

    def call():
        out = flash_attn_func(q, k, v, causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
    return call


CONTENDERS = {
    "Triton": own_triton, "Gluon": own_gluon, "cuDNN": library(SDPBackend.CUDNN_ATTENTION),
    "FlashAttention-2": library(SDPBackend.FLASH_ATTENTION), "efficient": library(SDPBackend.EFFICIENT_ATTENTION),
    "FlexAttention": flex, "FlashAttention-4": package}
# --8<-- [end:contenders]


# --8<-- [start:duel]
def duel(calls, flush):
    """{name: median us of each round}: all take their turn in every round, so a warmer card slows all alike."""
    names = [name for turn in range(ROUNDS) for name in rotated(list(calls), turn) for _ in range(CALLS)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for name in names:
            flush.zero_()  # a cold L2
            torch.cuda._sleep(1000)  # a spin kernel, which marks where the call begins
            calls[name]()
            torch.cuda._sleep(1000)  # and one that marks where it ends
            torch.cuda.synchronize()
    times = between_marks(profile.events())
    if len(times) != len(names):
        raise RuntimeError(f"the profiler saw {len(times)} of {len(names)} calls")
    samples = {name: [] for name in calls}
    for first in range(0, len(names), CALLS):  # the first call of a turn warms the card up
        samples[names[first]].append(round(median(times[first + 1:first + CALLS]), 3))
    return samples


def rotated(names, turn):
    return names[turn % len(names):] + names[:turn % len(names)]


def between_marks(events):
    """The kernel time of each call in us: the sum over the kernels between two marks."""
    device = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    times, inside = [], False
    for event in sorted(device, key=lambda event: event.time_range.start):
        if "spin_kernel" in event.name:
            inside = not inside
            if inside:
                times.append(0.0)
        elif inside:
            times[-1] += event.time_range.elapsed_us()
    return times
# --8<-- [end:duel]


def error(out, q, k, v, causal):
    """Relative error of 64 rows of one head, against float64."""
    n = q.shape[-2]
    rows = torch.arange(0, n, n // 64, device=q.device)
    scores = q[0, 0, rows].double() @ k[0, 0].double().T * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.arange(n, device=q.device) > rows[:, None], -torch.inf)
    right = torch.softmax(scores, -1) @ v[0, 0].double()
    return float((out[0, 0, rows].double() - right).norm() / right.norm())


def bound(args, absent):
    """({name: call}, {name: error}) of all that run here. Raises ValueError where one is wrong."""
    calls, errors = {}, {}
    for name, bind in CONTENDERS.items():
        try:
            call = None if name in absent else bind(*args)
            out = call() if call else None
        except Exception as reason:  # not installed, or not for this card: named, and left out from here on
            absent[name] = type(reason).__name__
            continue
        if call:
            calls[name], errors[name] = call, error(out, *args)
            if not errors[name] < TOLERANCE:
                raise ValueError(f"{name} is wrong: relative error {errors[name]:.3g}, shape {tuple(args[0].shape)}")
    return calls, errors


def point(d, n, causal, flush, absent):
    """{name: {"samples_us", "error"}} at one head dimension and length."""
    torch.manual_seed(0)
    shape = (TOKENS // n, HIDDEN // d, n, d)
    args = (*(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)), causal)
    calls, errors = bound(args, absent)
    samples = duel(calls, flush)
    return {name: {"samples_us": samples[name], "error": float(f"{errors[name]:.3g}")} for name in calls}


def capture(device="cuda"):
    flush = torch.empty(2**28, dtype=torch.int8, device=device)  # several times L2
    absent, data = {}, {}
    for d in (128, 64):
        data[f"d{d}"] = {mask: {f"n{n}": point(d, n, mask == "causal", flush, absent) for n in LENGTHS} for mask in ("causal", "full")}
    return {**data, "absent": absent}
