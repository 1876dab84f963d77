"""What compiled or fused code does that eager code does not: another kernel for each size, roundings left out, other random
numbers, attributes read once, a row that does not fit in registers. Needs a GPU for its kernel counts and registers."""
import logging
import os
import time

import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

SIZES = range(4096, 4096 + 10 * 64, 64)


# --8<-- [start:chain]
def chain(x, bias):
    return F.gelu(x + bias) * 0.5 + 0.1  # four kernels in eager mode, one when compiled
# --8<-- [end:chain]


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def kernel_count(call, device):
    """How many kernels a call runs on the GPU; 0 on the CPU, where there are none."""
    if device != "cuda":
        return 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def call_us(call, device, count=20):
    """Time of a call among `count`; on a GPU between two events, the device busy until all are enqueued."""
    if device != "cuda":
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count * 1e6
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(5_000_000)
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count * 1e3


# --8<-- [start:sizes]
def sizes(dynamic, device, columns, offset=0):
    """Ten batch sizes, one after another: the first call of each, and what a later call of that size runs."""
    torch._dynamo.reset()
    counters.clear()
    function, found = torch.compile(chain, dynamic=dynamic), []
    bias = torch.randn(columns, device=device).half()
    for rows in SIZES:
        x = torch.randn(rows + offset, columns, device=device).half()
        wait(device)
        begin = time.perf_counter()
        function(x, bias)
        wait(device)
        first_us = (time.perf_counter() - begin) * 1e6
        graphs = counters["stats"]["unique_graphs"]
        kernels = kernel_count(lambda: function(x, bias), device)
        later = [call_us(lambda: function(x, bias), device) for _ in range(5)]
        found.append({"rows": rows + offset, "first_call_us": first_us, "graphs_count": graphs, "kernels_count": kernels,
                      "later": {"samples_us": later}})
    return found
# --8<-- [end:sizes]


class Warnings(logging.Handler):
    """Counts how often Dynamo says that it gives up."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def emit(self, record):
        self.count += "hit config.recompile_limit" in record.getMessage()


def static_and_automatic(device, columns):
    """A kernel for every size; then torch.compile's own choice, on sizes that share no kernel with the first ten."""
    warnings, logger = Warnings(), logging.getLogger("torch._dynamo.convert_frame")
    logger.addHandler(warnings)
    try:
        with fresh_cache():  # an empty folder: every size is compiled anew
            return {"static": sizes(False, device, columns), "warnings_count": warnings.count,
                    "automatic": sizes(None, device, columns, offset=32)}
    finally:
        logger.removeHandler(warnings)


# --8<-- [start:split]
def split(x):
    """A float32 as two float16: what fits, and what that rounding lost."""
    hi = x.half()
    lo = (x - hi.float()).half()
    return hi, lo
# --8<-- [end:split]


def relative(found, right):
    return float((found.double() - right).norm() / right.norm())


def rounding(device, size):
    """The split in each form: how many low parts are 0, and how far hi + lo is from x."""
    x, found = torch.randn(size, size, device=device), {}
    forms = {"eager": split, "compiled": torch.compile(split, dynamic=False),
             "compiled, casts kept": torch.compile(split, dynamic=False, options={"emulate_precision_casts": True})}
    for name, form in forms.items():
        torch._dynamo.reset()
        hi, lo = form(x)
        found[name] = {"elements_count": x.numel(), "zeros_count": int((lo == 0).sum()),
                       "error": relative(hi.double() + lo.double(), x.double())}
    return found


def bits(device, size):
    """The chain in float16: how many elements differ between eager and compiled, and each one's error against float64."""
    torch._dynamo.reset()
    x, bias = torch.randn(size, size, device=device).half(), torch.randn(size, device=device).half()
    eager, fused, right = chain(x, bias), torch.compile(chain, dynamic=False)(x, bias), chain(x.double(), bias.double())
    return {"elements_count": x.numel(), "differ_count": int((eager != fused).sum()),
            "eager_error": relative(eager, right), "compiled_error": relative(fused, right)}


# --8<-- [start:dropout]
def dropout(x):
    return F.dropout(x, 0.5)


def masks(device, count):
    """Which elements survive for one seed: eager, compiled, and compiled with eager's own random numbers."""
    x, kept = torch.ones(count, device=device), {}
    forms = {"eager": dropout, "compiled": torch.compile(dropout, dynamic=False),
             "compiled, fallback_random": torch.compile(dropout, dynamic=False, options={"fallback_random": True})}
    for name, form in forms.items():
        torch._dynamo.reset()
        torch.manual_seed(0)
        kept[name] = form(x) != 0
    return {name: {"elements_count": count, "kept_count": int(mask.sum()), "differ_count": int((mask != kept["eager"]).sum())}
            for name, mask in kept.items()}
# --8<-- [end:dropout]


# --8<-- [start:settings]
class Settings:
    scale = 4.0
    calls = []


def scaled(x):
    Settings.calls.append(len(x))  # a side effect
    return x * Settings.scale  # an attribute of a class


def scaled_by_environment(x):
    return x * float(os.environ.get("SITE_SCALE", "4"))
# --8<-- [end:settings]


# --8<-- [start:changed]
def changed(device, compile):
    """What a call gives before and after each setting goes from 4 to 40, and how many of two calls left their mark."""
    x, by_attribute, by_environment = torch.ones(3, device=device), compile(scaled), compile(scaled_by_environment)
    Settings.scale = 4.0
    Settings.calls.clear()
    before = {"attribute": float(by_attribute(x)[0]), "environment": float(by_environment(x)[0])}
    Settings.scale, os.environ["SITE_SCALE"] = 40.0, "40"
    after = {"attribute": float(by_attribute(x)[0]), "environment": float(by_environment(x)[0])}
    del os.environ["SITE_SCALE"]
    return {"before": before, "after": after, "appended_count": len(Settings.calls)}
# --8<-- [end:changed]


def side_effects(device):
    torch._dynamo.reset()
    return {"eager": changed(device, lambda function: function), "compiled": changed(device, torch.compile)}


def registers(device):
    """What the compiler gave each kernel of spill.py: registers a thread, and spilled words of four bytes a thread."""
    if device != "cuda":
        return {}
    from fusion.spill import launch, one_pass, two_passes
    found = {}
    for columns in (8192, 32768, 65536, 131072):
        x = torch.zeros(1, columns, device=device).half()
        handles = {"one pass": launch(one_pass, x, columns, 16)[1], "two passes": launch(two_passes, x, 4096, 8)[1]}
        found[f"columns_{columns}"] = {name: {"registers_count": handle.n_regs, "spills_count": handle.n_spills}
                                       for name, handle in handles.items()}
    return found


def capture(device="cuda", columns=8192, size=4096):
    return {"sizes": static_and_automatic(device, columns), "rounding": rounding(device, size), "bits": bits(device, size),
            "masks": masks(device, size * size), "side_effects": side_effects(device), "registers": registers(device)}
