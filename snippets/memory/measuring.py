"""One call of F.gelu under the common clocks, then ways to get a wrong number, each beside the right one. Times in us."""
import time

import torch
import torch.nn.functional as F
from torch._inductor.utils import fresh_cache
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

FLUSH_BYTES = 2**28  # several times the L2 of today's cards
BUSY_CYCLES = 2_000_000  # about a millisecond: longer than the host needs for any call here


# --8<-- [start:host]
def wall_us(call, count=1, synchronize=True):
    """The host's clock around `count` calls, per call. The device is idle when it starts."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    if synchronize:
        torch.cuda.synchronize()  # without it the clock stops while the device still works
    return (time.perf_counter() - begin) / count * 1e6
# --8<-- [end:host]


# --8<-- [start:events]
def event_us(call, busy_cycles=0, flush=None):
    """The device's clock between two events in its stream, one before the call and one after it."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    if flush is not None:
        flush.zero_()                   # fills L2 with other data: the call finds none of its inputs there
    if busy_cycles:
        torch.cuda._sleep(busy_cycles)  # the device spins while the host enqueues what follows
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3
# --8<-- [end:events]


# --8<-- [start:tools]
def timer_us(call):
    """torch.utils.benchmark: blocks of many calls on the host's clock, a synchronize at both ends of each block."""
    return [seconds * 1e6 for seconds in Timer("call()", globals={"call": call}).blocked_autorange().times]


def do_bench_us(call):
    """Triton: two events around each call, and a buffer of 256 MB overwritten before it."""
    from triton.testing import do_bench
    return [ms * 1e3 for ms in do_bench(call, return_mode="all")]


def profiler_us(call, count=60):
    """torch.profiler: from the start of the kernel to its end, as the device noted them."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    return [event.time_range.elapsed_us() for event in seen.events() if event.device_type == DeviceType.CUDA]
# --8<-- [end:tools]


def samples(sample, count=60):
    return [sample() for _ in range(count)]


# --8<-- [start:clocks]
CLOCKS = {
    "enqueue": lambda call, flush: samples(lambda: wall_us(call, synchronize=False)),
    "wall": lambda call, flush: samples(lambda: wall_us(call)),
    "wall_200_calls": lambda call, flush: samples(lambda: wall_us(call, 200), 10),
    "timer": lambda call, flush: timer_us(call),
    "events_idle": lambda call, flush: samples(lambda: event_us(call)),
    "events_busy": lambda call, flush: samples(lambda: event_us(call, BUSY_CYCLES)),
    "events_busy_cold": lambda call, flush: samples(lambda: event_us(call, BUSY_CYCLES, flush)),
    "do_bench": lambda call, flush: do_bench_us(call),
    "profiler": lambda call, flush: profiler_us(call),
}
# --8<-- [end:clocks]


def under_every_clock(call, flush, clocks=tuple(CLOCKS)):
    """{clock: its samples} of a call that has run before."""
    for _ in range(20):
        call()
    return {clock: {"samples_us": CLOCKS[clock](call, flush)} for clock in clocks}


# --8<-- [start:first]
def first_calls(function, x, count=100):
    """A function's first calls in this process: the first loads the kernel, and compiles it where the function does."""
    return {"samples_us": samples(lambda: wall_us(lambda: function(x)), count)}
# --8<-- [end:first]


# --8<-- [start:caches]
def hot_and_cold(mib, flush):
    """A copy whose tensors the copy before it left in L2, and one that finds L2 full of something else."""
    source = torch.randn(mib * 2**19, device="cuda", dtype=torch.float16)
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
    return {name: {"samples_us": samples(lambda: event_us(lambda: target.copy_(source), BUSY_CYCLES, buffer), 20)}
            for name, buffer in (("hot", None), ("cold", flush))}
# --8<-- [end:caches]


# --8<-- [start:matmul]
def sustained(a, b, batches=40, calls=10, spin_cycles=200_000):
    """Products back to back, after a rest: us a call, and the clock in MHz that a spin of known cycles shows after each batch."""
    out, found = a @ b, {"samples_us": [], "samples_mhz": []}
    torch.cuda.synchronize()
    time.sleep(1)
    for _ in range(batches):
        begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        begin.record()
        for _ in range(calls):
            torch.mm(a, b, out=out)
        middle.record()
        torch.cuda._sleep(spin_cycles)
        end.record()
        torch.cuda.synchronize()
        found["samples_us"].append(begin.elapsed_time(middle) * 1e3 / calls)
        found["samples_mhz"].append(spin_cycles / (middle.elapsed_time(end) * 1e3))
    return found
# --8<-- [end:matmul]


# --8<-- [start:outliers]
def with_outliers(call, count=100, every=25):
    """Wall clock; before one call in 25 the allocator gives its memory back, and the call must ask the driver for more."""
    found = []
    for number in range(count):
        if number % every == 0:
            torch.cuda.empty_cache()
        found.append(wall_us(call))
    return {"samples_us": found}
# --8<-- [end:outliers]


def capture(device="cuda"):
    x = torch.randn(8192, 8192, device=device, dtype=torch.float16)
    few = torch.randn(64, 64, device=device, dtype=torch.float16)
    with fresh_cache():  # an empty folder: nothing that an earlier run compiled
        data = {"first": {"eager": first_calls(F.gelu, x), "compiled": first_calls(torch.compile(F.gelu), x)}}
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    data["large"] = under_every_clock(lambda: F.gelu(x), flush)
    data["small"] = under_every_clock(lambda: F.gelu(few), flush)
    data["thirty"] = under_every_clock(lambda: [F.gelu(few) for _ in range(30)], flush,
                                       ("enqueue", "do_bench", "events_busy_cold"))
    data["nothing"] = under_every_clock(lambda: None, flush, ("wall", "events_idle", "events_busy"))
    data["outliers"] = with_outliers(lambda: F.gelu(x))
    data["copies"] = {f"mib_{mib}": hot_and_cold(mib, flush) for mib in (1, 2, 4, 8, 16, 24, 32, 48, 64, 128)}
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    data["matmul"] = {"randn": sustained(a, b), "zeros": sustained(torch.zeros_like(a), torch.zeros_like(b))}
    return data
