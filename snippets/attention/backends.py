"""Which kernel scaled_dot_product_attention runs, found in five ways; what turns each backend off; what a refusal costs.

Needs an NVIDIA GPU for its figures. On a CPU, where SDPA has flash and math, the same functions run and are tested.
"""
import os

# --8<-- [start:imports]
import re
import time
import warnings
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch.autograd import DeviceType
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention, can_use_efficient_attention, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.profiler import ProfilerActivity, profile

# --8<-- [end:imports]

time_limit_s = 120

# --8<-- [start:names]
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
FUSED = ("cuDNN", "flash", "efficient")


def order():
    """The names of the backends in the order in which SDPA asks them. Private: torch 2.11 to 2.13 have it."""
    names = {int(backend): name for name, backend in BACKENDS.items()}
    return [names[number] for number in torch._C._get_sdp_priority_order() if number in names]
# --8<-- [end:names]


# --8<-- [start:inputs]
def additive(keep, dtype):
    """0 where a key is kept and minus infinity where it is not."""
    return torch.zeros(keep.shape, device=keep.device, dtype=dtype).masked_fill(~keep, -torch.inf)


def inputs(*, batch=2, heads=8, kv_heads=8, q_len=256, kv_len=256, d=64, v_d=None, dtype=torch.float16, device="cuda",
           mask=None, grad=False, layout=None, **options):
    """q (batch, heads, q_len, d), k and v with kv_heads and kv_len, and the keyword arguments of one call of SDPA."""
    def tensor(heads, rows, columns):
        return torch.randn(batch, heads, rows, columns, device=device, dtype=dtype)
    qkv = tensor(heads, q_len, d), tensor(kv_heads, kv_len, d), tensor(kv_heads, kv_len, v_d or d)
    if layout:
        qkv = tuple(LAYOUTS[layout](x) for x in qkv)
    qkv = tuple(x.detach().requires_grad_(grad) for x in qkv)
    if mask:
        options["attn_mask"] = MASKS[mask](torch.ones(q_len, kv_len, dtype=torch.bool, device=device).tril(), dtype)
    return qkv, options


LAYOUTS = {"folded": lambda x: x.flatten(0, 1),  # batch and heads in one dimension: three in all
           "d not last in memory": lambda x: x.mT.contiguous().mT}  # the same shape, with stride 1 along the rows
MASKS = {"boolean": lambda keep, dtype: keep, "additive": additive,
         "learned": lambda keep, dtype: additive(keep, dtype).requires_grad_()}
# --8<-- [end:inputs]


# --8<-- [start:calls]
CALLS = {  # each changes one thing of the first, except where its name says two
    "self-attention, fp16, d = 64": {},
    "is_causal": {"is_causal": True},
    "bf16": {"dtype": torch.bfloat16},
    "fp32": {"dtype": torch.float32},
    "boolean mask": {"mask": "boolean"},
    "additive mask": {"mask": "additive"},
    "mask that requires grad": {"mask": "learned"},
    "d = 32": {"d": 32},
    "d = 96": {"d": 96},
    "d = 128": {"d": 128},
    "d = 160": {"d": 160},
    "d = 192": {"d": 192},
    "d = 256": {"d": 256},
    "d = 264": {"d": 264},
    "d = 512": {"d": 512},
    "d = 60, no multiple of 8": {"d": 60},
    "d = 60, boolean mask": {"d": 60, "mask": "boolean"},
    "d = 60, fp32": {"d": 60, "dtype": torch.float32},
    "d = 64, V with 128": {"v_d": 128},
    "d = 192, V with 128": {"d": 192, "v_d": 128},
    "GQA, 2 KV heads": {"kv_heads": 2, "enable_gqa": True},
    "GQA, boolean mask": {"kv_heads": 2, "enable_gqa": True, "mask": "boolean"},
    "GQA, fp32": {"kv_heads": 2, "enable_gqa": True, "dtype": torch.float32},
    "GQA, d = 512": {"kv_heads": 2, "enable_gqa": True, "d": 512},
    "1 KV head, enable_gqa left out": {"kv_heads": 1},
    "128 queries, 256 keys": {"q_len": 128},
    "128 queries, 256 keys, is_causal": {"q_len": 128, "is_causal": True},
    "1 query, 256 keys": {"q_len": 1},
    "1 key": {"kv_len": 1},
    "dropout": {"dropout_p": 0.1},
    "dropout, 1 query": {"dropout_p": 0.1, "q_len": 1},
    "requires grad": {"grad": True},
    "requires grad, d = 192": {"grad": True, "d": 192},
    "requires grad, d = 256": {"grad": True, "d": 256},
    "deterministic": {"deterministic": True},
    "deterministic, GQA, boolean mask": {"deterministic": True, "kv_heads": 2, "enable_gqa": True, "mask": "boolean"},
    "three dimensions": {"layout": "folded"},
    "d not last in memory": {"layout": "d not last in memory"},
}
# --8<-- [end:calls]


# --8<-- [start:mode]
@contextmanager
def mode(deterministic):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
# --8<-- [end:mode]


# --8<-- [start:ways]
def by_choice(qkv, options):
    """Ask the function that SDPA itself asks."""
    number = torch._fused_sdp_choice(*qkv, **options)
    return next(name for name, backend in BACKENDS.items() if int(backend) == number)


OPERATORS = {"cudnn_attention": "cuDNN", "flash_attention": "flash", "flash_attention_for_cpu": "flash",
             "efficient_attention": "efficient", "attention_math": "math"}


def by_operators(events):
    """The profiler's rows: each backend is an operator of its own below aten::scaled_dot_product_attention."""
    rows = {event.name.removeprefix("aten::_scaled_dot_product_") for event in events if event.device_type == DeviceType.CPU}
    found = [OPERATORS[row] for row in rows if row in OPERATORS]
    return found[0] if len(found) == 1 else "none"


KERNELS = {"cudnn": "cuDNN", "flash_fwd": "flash", "fmha_cutlass": "efficient", "softmax": "math"}  # asked in this order


def by_kernels(names):
    """The kernels that ran. Math has no attention kernel: it is known by its softmax among the matrix products."""
    found = (backend for part, backend in KERNELS.items() if any(part in name.lower() for name in names))
    return next(found, "none")


def by_forcing(cells):
    """Forbid all backends but one, for each: the first in the order that does not refuse is the one."""
    return next((name for name in order() if cells[name].startswith(ACCEPTED)), "none")


GATES = {"cuDNN": can_use_cudnn_attention, "flash": can_use_flash_attention, "efficient": can_use_efficient_attention,
         "math": lambda params: True}


def by_gates(qkv, options):
    """The tests that each backend puts a call through, asked from Python."""
    params = SDPAParams(*qkv, options.get("attn_mask"), options.get("dropout_p", 0.0), options.get("is_causal", False),
                        options.get("enable_gqa", False))
    return next(name for name in order() if GATES[name](params))
# --8<-- [end:ways]


# --8<-- [start:force]
ACCEPTED = "yes"
SECTIONS = {"Memory efficient": "efficient", "Flash attention": "flash", "cuDNN attention": "cuDNN"}


def force(backend, qkv, options):
    """"yes" if the backend takes the call when it is the only one allowed, else its reason in PyTorch's own words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(BACKENDS[backend]):
                out = F.scaled_dot_product_attention(*qkv, **options)
        except RuntimeError as error:
            return reason(backend, [str(warning.message) for warning in caught], str(error))
    try:
        if qkv[0].requires_grad:
            torch.autograd.grad(out, qkv, torch.ones_like(out))
        return ACCEPTED
    except RuntimeError as error:
        return f"{ACCEPTED}, without a backward pass: {sentence(str(error))}"


def reason(backend, messages, error):
    """The first sentence of what SDPA says below "<backend> kernel not used because:", else of its error."""
    if "No available kernel" not in error:
        return sentence(error)  # the gates let it through, and the backend itself refused
    section, found = None, []
    for message in messages:
        if "kernel not used because" in message:
            section = next((name for start, name in SECTIONS.items() if message.startswith(start)), None)
        elif section == backend:
            found.append(sentence(message))
    return found[0] if found else "no reason given"


def sentence(text):
    text = re.split(r"\s*\(Triggered internally|\n", text)[0]
    return re.split(r"\.(?=\s|[A-Z]|$)|,? (?:but )?[Gg]ot:? ", text)[0].strip()[:200]
# --8<-- [end:force]


# --8<-- [start:examine]
def profiled(call, on_gpu):
    """The events of one call; the profiler is asked again where it came back without a kernel."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    for _ in range(3):
        with profile(activities=activities) as found:
            call()
            if on_gpu:
                torch.cuda.synchronize()
        events = list(found.events())
        if not on_gpu or any(event.device_type == DeviceType.CUDA for event in events):
            return events
    raise RuntimeError("the profiler saw no kernel")


def examine(device="cuda", deterministic=False, **case):
    """One call of SDPA: what each backend says to it, which one runs by each way of asking, and its kernels."""
    qkv, options = inputs(device=device, **case)
    with mode(deterministic):
        cells = {name: force(name, qkv, options) for name in BACKENDS}
        try:
            events = profiled(lambda: F.scaled_dot_product_attention(*qkv, **options), device == "cuda")
        except RuntimeError as error:  # its gates chose a backend that then failed
            return {"cells": cells, "ways": {}, "kernels": [], "error": sentence(str(error))}
        ways = {"choice": by_choice(qkv, options), "operators": by_operators(events), "forced": by_forcing(cells)}
        kernels = [event.name for event in events if event.device_type == DeviceType.CUDA]
        if device == "cuda":
            ways |= {"kernels": by_kernels(kernels), "gates": by_gates(qkv, options)}
    return {"cells": cells, "ways": ways, "kernels": [name[:150] for name in kernels]}
# --8<-- [end:examine]


# --8<-- [start:cost]
def event_us(call, count=20):
    """Device time of single calls, in us; a kernel that spins keeps the host's work out of it."""
    samples = []
    for _ in range(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3)
    return samples


def peak_bytes(call):
    """What a call allocates at its peak, its output included, beyond what was allocated before."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def cost(call, device="cuda"):
    """Which backend runs a call; on a GPU also its time, its extra memory and its kernels, each with its time."""
    call()  # plans are built, cuBLAS has its workspace
    events = profiled(call, device == "cuda")
    if device != "cuda":
        return {"runs": by_operators(events)}
    kernels = [event for event in events if event.device_type == DeviceType.CUDA]
    return {"runs": by_operators(events), "peak_bytes": peak_bytes(call), "samples_us": event_us(call),
            "kernels": [{"name": event.name[:150], "time_us": event.time_range.elapsed_us()} for event in kernels]}
# --8<-- [end:cost]


# --8<-- [start:remedies]
def add_a_dimension(q, k, v, **options):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], **options)[0]


def say_gqa(q, k, v, **options):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)


def pad(q, k, v, **options):
    """Zeros up to the next multiple of 8: they add nothing to a score, but the scale must be that of the true d."""
    d = q.shape[-1]
    q, k, v = (F.pad(x, (0, -d % 8)) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, scale=d**-0.5, **options)[..., :d]


def repeat(q, k, v, enable_gqa, **options):
    """A copy of each KV head for every query head of its group: no GQA is left. Memory for k and v, not for scores."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, **options)
# --8<-- [end:remedies]


# --8<-- [start:pairs]
LONG = {"batch": 1, "heads": 32, "kv_heads": 32, "q_len": 4096, "kv_len": 4096, "d": 128, "dtype": torch.bfloat16}
GROUPED = LONG | {"kv_heads": 8, "enable_gqa": True}
PAIRS = {  # a call that falls to math, and the same result asked for in another way
    "three dimensions": (LONG | {"layout": "folded", "is_causal": True}, add_a_dimension),
    "1 KV head, enable_gqa left out": (LONG | {"kv_heads": 1}, say_gqa),
    "d = 124, boolean mask": (LONG | {"d": 124, "mask": "boolean"}, pad),
    "deterministic, GQA, boolean mask": (GROUPED | {"mask": "boolean", "deterministic": True}, repeat),
    "GQA, fp32": (GROUPED | {"dtype": torch.float32}, repeat),
}


def compare(remedy, device="cuda", deterministic=False, **case):
    """Cost of the call as asked and of the remedy, and how far their results differ, relative to their size."""
    qkv, options = inputs(device=device, **case)
    with mode(deterministic), torch.no_grad():
        asked, instead = F.scaled_dot_product_attention(*qkv, **options).float(), remedy(*qkv, **options).float()
        difference = float((asked - instead).norm() / asked.norm())
        del asked, instead
        return {"asked": cost(lambda: F.scaled_dot_product_attention(*qkv, **options), device),
                "instead": cost(lambda: remedy(*qkv, **options), device), "difference": difference}
# --8<-- [end:pairs]


# --8<-- [start:loud]
def loud(qkv, options):
    """Math left out of what is allowed: a call that no fused backend takes raises, and says why."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel([BACKENDS[name] for name in FUSED]):
                F.scaled_dot_product_attention(*qkv, **options)
            return {"error": "none", "warnings": []}
        except RuntimeError as error:
            messages = [re.split(r"\s*\(Triggered internally", str(warning.message))[0][:200] for warning in caught]
            return {"error": f"RuntimeError: {error}"[:200], "warnings": messages}
# --8<-- [end:loud]


# --8<-- [start:seen]
def seen(q_len, kv_len, device="cuda", dtype=torch.float16, backend="math", **options):
    """How many keys each query sees: all scores are 0, and v is a unit matrix, so the output is the probabilities."""
    q, k = (torch.zeros(1, 1, n, 64, device=device, dtype=dtype) for n in (q_len, kv_len))
    v = torch.eye(kv_len, 64, device=device, dtype=dtype)[None, None]
    with sdpa_kernel(BACKENDS[backend]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = F.scaled_dot_product_attention(q, k, v, **options)
    return (out[0, 0] > 0).sum(-1).tolist()
# --8<-- [end:seen]


# --8<-- [start:masked]
def masked_row(fill, device="cuda", dtype=torch.float16, backend="math"):
    """What comes out of a row whose keys are all masked: "0", "NaN", or "mean of V", as if nothing were masked."""
    (q, k, v), _ = inputs(batch=1, heads=1, kv_heads=1, q_len=64, kv_len=64, dtype=dtype, device=device)
    q = q.zero_()
    mask = torch.ones(64, 64, dtype=torch.bool, device=device)
    mask[0] = False
    if fill is not None:  # a number that is added in place of False
        mask = torch.zeros(64, 64, device=device, dtype=dtype).masked_fill(~mask, fill)
    with sdpa_kernel(BACKENDS[backend]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0, 0, 0].double()
    if row.isnan().all():
        return "NaN"
    mean = v[0, 0].double().mean(0)
    return "0" if (row == 0).all() else "mean of V" if (row - mean).abs().max() < 0.02 else "something else"
# --8<-- [end:masked]


def each_backend(function, *args, **options):
    """What `function` gives on each backend; a refusal is text too."""
    def one(backend):
        try:
            return function(*args, backend=backend, **options)
        except RuntimeError:
            return "refused"
    return {name: one(name) for name in BACKENDS}


def rows(device="cuda"):
    """Where the diagonal starts when lengths differ, and what a row without keys gives."""
    lowest = torch.finfo(torch.float16).min
    qkv, options = inputs(q_len=128, device=device)
    lower_right = profiled(lambda: F.scaled_dot_product_attention(*qkv, attn_mask=causal_lower_right(128, 256)), device == "cuda")
    return {
        "causal_lower_right runs": by_operators(lower_right),
        "is_causal": each_backend(seen, 2, 8, device=device, is_causal=True),
        "one query, is_causal": each_backend(seen, 1, 8, device=device, is_causal=True),
        "causal_lower_right": each_backend(seen, 2, 8, device=device, attn_mask=causal_lower_right(2, 8)),
        "False": each_backend(masked_row, None, device=device),
        "minus infinity": each_backend(masked_row, -torch.inf, device=device),
        "least fp16 number": each_backend(masked_row, lowest, device=device),
        "by hand": "NaN" if torch.softmax(torch.full((1, 8), -torch.inf), -1).isnan().all() else "0"}


# --8<-- [start:first]
def first_calls(backend, lengths=(1000, 1100, 1200), more=(1300, 1400, 1500), device="cuda"):
    """Wall time in us: first and second call with each length, each once more after the others; first calls of others."""
    def wall_us(qkv):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with sdpa_kernel(BACKENDS[backend]):
            F.scaled_dot_product_attention(*qkv, is_causal=True)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e6
    made, others = ([inputs(q_len=length, kv_len=length, device=device)[0] for length in some] for some in (lengths, more))
    pairs = [[wall_us(qkv), wall_us(qkv)] for qkv in made]
    return {"first": {"samples_us": [pair[0] for pair in pairs]}, "second": {"samples_us": [pair[1] for pair in pairs]},
            "back": {"samples_us": [wall_us(qkv) for qkv in made]}, "again": {"samples_us": [wall_us(qkv) for qkv in others]}}
# --8<-- [end:first]


# --8<-- [start:example]
EXAMPLE = {"batch": 2, "heads": 16, "kv_heads": 16, "q_len": 2048, "kv_len": 2048, "d": 64, "is_causal": True}


def example(device="cuda", **changes):
    """One call as SDPA runs it, then on each backend alone."""
    qkv, options = inputs(device=device, **EXAMPLE | changes)

    def call():
        return F.scaled_dot_product_attention(*qkv, **options)
    found = {"default": cost(call, device)}
    for name, backend in BACKENDS.items():
        if force(name, qkv, options) == ACCEPTED:
            with sdpa_kernel(backend):
                found[name] = cost(call, device)
    return found
# --8<-- [end:example]


def capture(device="cuda", calls=CALLS, pairs=PAIRS):
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # math in deterministic mode asks for it
    torch.set_warn_always(True)  # else some reasons are told once a process
    torch.manual_seed(0)
    data = {"order": {"before": order()}}
    qkv, options = inputs(device=device, layout="folded")
    F.scaled_dot_product_attention(*qkv, **options)
    data |= {"order": data["order"] | {"after": order()}, "loud": loud(qkv, options)}
    if device == "cuda":  # before any other call has had these shapes
        for name in ("cuDNN", "flash"):
            first_calls(name, (900,), ())  # what a process's first call loads is no cost of a shape
        data["first"] = {name: first_calls(name) for name in ("cuDNN", "flash")}
    data["example"] = example(device, **({} if device == "cuda" else {"q_len": 64, "kv_len": 64}))
    data["calls"] = {name: examine(device, **case) for name, case in calls.items()}
    data["pairs"] = {name: compare(remedy, device, **case) for name, (case, remedy) in pairs.items()}
    data["rows"] = rows(device)
    torch.set_warn_always(False)
    return data
