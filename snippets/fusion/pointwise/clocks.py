"""One call of the compiled chain under six clocks: they answer different questions, so they give different times."""
import time

import torch
from torch._dynamo.utils import counters
from torch.utils.benchmark import Timer

from fusion.pointwise.chain import compiled_chain, inputs


# --8<-- [start:clocks]
def event_us(call, busy_cycles):
    """Between two CUDA events. With the device kept busy first, the call is enqueued before the first event fires."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    if busy_cycles:
        torch.cuda._sleep(busy_cycles)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def wall_us(call, count, synchronize=True):
    """The host's clock around `count` calls, per call."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    if synchronize:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e6


CLOCKS = {
    "enqueue": lambda call: wall_us(call, 1, synchronize=False),
    "events_host_hidden": lambda call: event_us(call, busy_cycles=2_000_000),
    "events": lambda call: event_us(call, busy_cycles=0),
    "wall_one_call": lambda call: wall_us(call, 1),
    "wall_200_calls": lambda call: wall_us(call, 200),
}
# --8<-- [end:clocks]


# --8<-- [start:timer]
def timer_runs(call, count=5):
    """`Timer.blocked_autorange`, a run after another: what it says, how many calls it put in a block, what compiled."""
    timer = Timer("call()", globals={"call": call})
    runs = {"samples_us": [], "calls_in_a_block": [], "graphs_compiled": []}
    for _ in range(count):
        before = counters["stats"]["unique_graphs"]
        run = timer.blocked_autorange()
        runs["samples_us"].append(run.median * 1e6)
        runs["calls_in_a_block"].append(run.number_per_run)
        runs["graphs_compiled"].append(counters["stats"]["unique_graphs"] - before)
    return runs
# --8<-- [end:timer]


def capture(device="cuda"):
    data = {}
    for mode in ("default", "max-autotune"):
        torch._dynamo.reset()
        function, args = compiled_chain(mode), inputs(device=device)
        for _ in range(10):
            function(*args)
        data[mode] = {name: {"samples_us": [clock(lambda: function(*args)) for _ in range(30)]}
                      for name, clock in CLOCKS.items()}
        data[mode]["timer"] = timer_runs(lambda: function(*args))
    return data
