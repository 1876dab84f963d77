"""What each mode of torch.compile costs a program: on the device, in a loop, in memory, and before the first result."""
import gc
import time
from functools import partial

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import metrics
from torch._inductor.utils import clear_caches, fresh_cache

from fusion.pointwise.chain import chain, inputs

time_limit_s = 150
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
SIZES = (64, 1024, 4096, 8192)  # rows and columns of x


# --8<-- [start:clocks]
def device_us(call):
    """The device's part of a call: cold L2, and a spin kernel that keeps the device busy until the host is done."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush = torch.empty(4 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda")
    samples = []
    for _ in range(25):
        torch.cuda.synchronize()
        flush.zero_()
        torch.cuda._sleep(3_000_000)
        begin.record()
        call()
        end.record()
        hidden = not begin.query()  # the device has not begun the call when the host is done with it
        end.synchronize()
        if hidden:
            samples.append(begin.elapsed_time(end) * 1e3)
    return samples


def loop_us(call, count=50):
    """A call's share of a loop with one wait at its end: what a program pays, be it for the host or for the device."""
    samples = []
    for _ in range(11):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) / count * 1e6)
    return samples


def enqueue_us(call):
    """The host's part of a call: until it returns, on an idle device."""
    samples = []
    for _ in range(100):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begin) * 1e6)
    return samples
# --8<-- [end:clocks]


# --8<-- [start:kernels]
def kernels(call, count=4):
    """A call's kernels: how many and how long, the copies of its inputs into a graph's memory told apart from the work."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    found = {"copy": [], "work": []}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            copies = "multi_tensor" in event.name or "Memcpy" in event.name
            found["copy" if copies else "work"].append(event.device_time)
    return {f"{kind}_{key}": value for kind, times in found.items()
            for key, value in (("count", len(times) / count), ("us", sum(times) / count))}
# --8<-- [end:kernels]


# --8<-- [start:memory]
def memory(call):
    """What a call allocates beyond its inputs, and what its CUDA graph keeps in a pool of its own between calls."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    pools = [part["total_size"] for part in torch.cuda.memory_snapshot() if tuple(part["segment_pool_id"]) != (0, 0)]
    return {"peak_extra_bytes": torch.cuda.max_memory_allocated() - before, "pool_bytes": sum(pools)}
# --8<-- [end:memory]


def measure(function, *args):
    call = partial(function, *args)
    for _ in range(4):  # the second call of a graph mode records, the third replays
        call()
    clocks = {clock.__name__: {"samples_us": clock(call)} for clock in (device_us, loop_us, enqueue_us)}
    return {**clocks, **kernels(call), **memory(call)}


# --8<-- [start:compile]
def first_result(mode, args):
    """Compile the chain anew and wait for its first result; the compiled function, and what that took and found."""
    torch._dynamo.reset()
    gc.collect()
    counters.clear()
    metrics.reset()
    begin = time.perf_counter()
    function = torch.compile(chain, mode=mode)
    function(*args)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return function, {"first_result_s": seconds, "generated_count": metrics.generated_kernel_count,
                      "cache_hit_count": counters["inductor"]["fxgraph_cache_hit"]}


def cold_and_warm(mode, args):
    """An empty cache folder; then the same folder again, with all that Inductor keeps in memory thrown away."""
    with fresh_cache():
        function, cold = first_result(mode, args)
        cold.update(measure(function, *args))
        del function
        clear_caches()
        function, warm = first_result(mode, args)
        for _ in range(4):
            function(*args)
        return {**cold, "warm": {**warm, **memory(partial(function, *args))}}
# --8<-- [end:compile]


def sizes():
    found = {}
    for size in SIZES:
        args = inputs(rows=size, columns=size)
        found[str(size)] = {"eager": measure(chain, *args)}
        for mode in MODES:
            if size == max(SIZES):  # by now every part of the compiler has been used once
                found[str(size)][mode] = cold_and_warm(mode, args)
            else:
                function, first = first_result(mode, args)
                found[str(size)][mode] = {"generated_count": first["generated_count"],
                                          **measure(function, *args)}
                del function  # and with it the memory of its graph
    return found


# --8<-- [start:static]
def marked(marks, args):
    """reduce-overhead on inputs that are, or are not, promised to stay where they are."""
    torch._dynamo.reset()
    args = [tensor.detach() for tensor in args]  # a mark sits on the tensor object; these have none
    for tensor in args if marks else ():
        torch._dynamo.mark_static_address(tensor)
    function = torch.compile(chain, mode="reduce-overhead")
    call = partial(function, *args)
    for _ in range(4):
        call()
    return function, {"device_us": {"samples_us": device_us(call)}, **kernels(call), **memory(call)}


def static_inputs(args):
    """No marks, then marks, with one cache folder; marks with a folder of their own, and inputs that move after all."""
    found = {}
    with fresh_cache():
        found["unmarked"] = marked(False, args)[1]
        found["marked, old cache"] = marked(True, args)[1]
    with fresh_cache():
        function, found["marked"] = marked(True, args)
        found["new_address"] = {"samples_us": []}
        for moved in [args[0].clone() for _ in range(4)]:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            function(moved, args[1])
            torch.cuda.synchronize()
            found["new_address"]["samples_us"].append((time.perf_counter() - begin) * 1e6)
    return found
# --8<-- [end:static]


# --8<-- [start:layers]
def layers(count=20, width=256, device="cuda"):
    """`count` small layers for a batch of one: many kernels with next to nothing to do."""
    parts = [part for _ in range(count) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*parts).to(device, torch.float16).eval(), torch.randn(1, width, device=device, dtype=torch.float16)
# --8<-- [end:layers]


@torch.no_grad()
def small_layers():
    model, x = layers()
    found = {"eager": measure(model, x)}
    for mode in MODES[:2]:
        torch._dynamo.reset()
        function = torch.compile(model, mode=mode)
        found[mode] = measure(function, x)
        del function
    return found


# --8<-- [start:outputs]
def fate(old, copy):
    """What became of an output once its function has been called again."""
    try:
        return "intact" if torch.equal(old, copy) else "overwritten"
    except RuntimeError as error:
        return str(error).split(" Stack trace")[0]


def outputs(x, bias, step=lambda: None):
    """Hold each output until the next call, then read it; and keep a copy, as you should."""
    torch._dynamo.reset()
    function = torch.compile(chain, mode="reduce-overhead")
    fates, held = [], None
    for number in range(6):
        step()
        new = function(x + number, bias)
        if held:
            fates.append(fate(*held))
        held = new, new.clone()
    return fates
# --8<-- [end:outputs]


def capture(device="cuda"):
    small = inputs(rows=64, columns=64, device=device)
    return {"sizes": sizes(), "static": static_inputs(inputs(device=device)), "layers": small_layers(),
            "outputs": {"plain": outputs(*small), "marked steps": outputs(*small, torch.compiler.cudagraph_mark_step_begin)}}
