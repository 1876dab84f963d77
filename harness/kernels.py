"""The kernels of one call, from individual profiler events: name, time, grid, block, registers. Times are in us."""
import json
import tempfile
from collections import Counter
from pathlib import Path

import torch

from harness.kernel_names import category
from harness.record import summarise
from harness.timing import Clock

CALLS = 10
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
MARKER = "spin_kernel"


def kernels(call, clock: Clock) -> list[dict]:
    """Each kernel of a call in the order of its start, over 10 calls with a cold L2.

    Raises RuntimeError where the profiler saw no kernel: an empty list is a broken profiler, not a result.
    """
    calls = _split(_events(call, clock))
    common = Counter(tuple(event["name"] for event in events) for events in calls).most_common(1)
    names, seen = common[0] if common else ((), 0)
    if not names or seen < CALLS // 2:
        raise RuntimeError(f"the profiler's kernel list is empty or differs between calls ({seen} of {CALLS} agree)")
    alike = [events for events in calls if tuple(event["name"] for event in events) == names]
    return [_kernel([events[index] for events in alike]) for index in range(len(names))]


def _events(call, clock: Clock) -> list[dict]:
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        for _ in range(CALLS):
            clock.prepare()  # ends with a spin kernel, which marks where the call begins
            call()
            torch.cuda._sleep(1000)  # and one that marks where it ends
            torch.cuda.synchronize()  # a pause, as between the samples of a call: a hot card clocks lower
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return sorted((event for event in events if event.get("cat") in ON_DEVICE), key=lambda event: event["ts"])


def _split(events: list[dict]) -> list[list[dict]]:
    """The events between every first and second marker."""
    calls, inside = [], False
    for event in events:
        if MARKER in event["name"]:
            inside = not inside
            if inside:
                calls.append([])
        elif inside:
            calls[-1].append(event)
    return calls


def _kernel(events: list[dict]) -> dict:
    first = events[0]["args"]
    return {"name": events[0]["name"], "category": category(events[0]["name"]),
            "time_us": summarise([event["dur"] for event in events]),
            "grid": first.get("grid"), "block": first.get("block"), "registers": first.get("registers per thread"),
            "counters": None}
