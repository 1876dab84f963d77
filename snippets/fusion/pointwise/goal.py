"""Is the own kernel as fast as copy_, measured by turns in one process, and gelu alone as right as eager's, band by band?"""
import re
from collections import Counter

import torch
import torch.nn.functional as F

from fusion.pointwise.kernel import bias_gelu, launch

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
BANDS = [(-12.5, -12), (-8, -7), (-5.5, -5), (-4.5, -4), (-3.5, -3), (-2, -1), (-1, 0), (0, 1), (1, 4)]


# --8<-- [start:turns]
def device_us(call, flush):
    """One call between two CUDA events, with a cold L2, enqueued while the device still works on something else."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
    torch.cuda._sleep(500_000)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def by_turns(dtype, count=60, rows=8192, columns=8192):
    """Times of copy_, of the own kernel and of its fp32 form, taken in turn: a warmer card slows all alike."""
    x = torch.randn(rows, columns, device="cuda", dtype=dtype)
    bias, copied = torch.randn(columns, device="cuda", dtype=dtype), torch.empty_like(x)
    calls = {"copy_": lambda: copied.copy_(x), "own": lambda: bias_gelu(x, bias)}
    if dtype != torch.float32:
        calls["fp32 form"] = lambda: bias_gelu(x, bias, "fp32")
    flush = torch.empty(2**28, dtype=torch.int8, device="cuda")  # several times L2
    samples = {name: [] for name in calls}
    for turn in range(count + 20):
        for name, call in calls.items():
            us = device_us(call, flush)
            if turn >= 20:
                samples[name].append(us)
    return {name: {"samples_us": values} for name, values in samples.items()}
# --8<-- [end:turns]


# --8<-- [start:bands]
def reference(z):
    """gelu in float64 by erfc, which keeps its digits where 1 + erf loses them."""
    return 0.5 * z * torch.erfc(-z / 2**0.5)


def relative_error(y, z):
    right = reference(z.double())
    return float((y.double() - right).norm() / right.norm())


def ways(compiled):
    """gelu alone: the own kernel with nothing to add and nothing to scale."""
    def own(form):
        return lambda z: bias_gelu(z, torch.zeros_like(z[0]), form, scale=1.0, shift=0.0)
    return {"eager": F.gelu, "compiled": compiled, "sigmoid": own("sigmoid"), "own": own(None)}


def errors(dtype, device, compiled, rows=1024, columns=4096):
    """{band: {way: relative error against float64}}. The first two bands are too far out for fp16, where gelu rounds to 0."""
    found = {}
    for low, high in BANDS[2:] if dtype == torch.float16 else BANDS:
        torch.manual_seed(0)
        z = torch.empty(rows, columns, device=device).uniform_(low, high).to(dtype)
        found[f"{low:g} … {high:g}"] = {name: relative_error(way(z), z) for name, way in ways(compiled).items()}
    return found
# --8<-- [end:bands]


# --8<-- [start:instructions]
KINDS = {"FFMA": "arithmetic_count", "FMUL": "arithmetic_count", "FADD": "arithmetic_count", "FMNMX": "arithmetic_count",
         "MUFU": "special_count", "HADD2": "convert_count", "F2FP": "convert_count",
         "MOV": "constants_count", "IMAD.MOV": "constants_count", "HFMA2": "constants_count",  # of two constants: a move
         "FSEL": "constants_count", "FSETP": "constants_count"}


def instructions(form):
    """Instructions an element in the machine code for fp16, by kind. It has no loop: each stands for one issue a warp."""
    x = torch.zeros(2, 8192, device="cuda", dtype=torch.float16)
    code = launch(x, x[0], torch.empty_like(x), form).asm["sass"]
    opcodes = re.findall(r"\t(?:@!?U?P\d+ )?([A-Z][A-Z0-9]*(?:\.MOV)?)", code)
    end = len(opcodes) - opcodes[::-1].index("EXIT")  # behind the last exit is padding
    found = Counter(KINDS.get(opcode, "memory_count") for opcode in opcodes[:end])
    return {kind: found[kind] * 128 / 2048 for kind in sorted({*KINDS.values(), "memory_count"})}  # 128 threads, 2048 elements
# --8<-- [end:instructions]


def awkward(device):
    """{shape: relative error}: one row, one column, and rows that end inside a block."""
    found = {}
    for rows, columns in ((1, 5000), (5000, 1), (37, 3001)):
        z = torch.randn(rows, columns, device=device, dtype=torch.float16)
        found[f"{rows} × {columns}"] = relative_error(bias_gelu(z, torch.zeros_like(z[0]), scale=1.0, shift=0.0), z)
    return found


def capture(device="cuda"):
    compiled = torch.compile(F.gelu) if device == "cuda" else F.gelu
    shape = (1024, 4096) if device == "cuda" else (4, 256)
    data = {"errors": {name: errors(dtype, device, compiled, *shape) for name, dtype in DTYPES.items()}}
    data["awkward"] = awkward(device)
    if device == "cuda":
        data["instructions"] = {form: instructions(form) for form in ("erf", "sigmoid", "tail", "fp32")}
        data["by_turns"] = {name: by_turns(dtype) for name, dtype in DTYPES.items()}
    return data
