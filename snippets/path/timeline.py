"""One forward and one backward pass on a common clock: Python lines, ATen operators, allocations, launches, kernels."""
import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from path.example import inputs

# The trace's categories, by the lane in which this site draws them.
LANES = {"user_annotation": "Python", "cpu_op": "ATen", "cuda_runtime": "launch", "cuda_driver": "launch",
         "kernel": "GPU", "gpu_memcpy": "GPU", "gpu_memset": "GPU", "cpu_instant_event": "allocator"}
KEPT = {"correlation": "correlation", "grid": "grid", "block": "block", "registers per thread": "registers", "stream": "stream",
        "Bytes": "bytes", "Total Allocated": "allocated_bytes", "External id": "external_id"}


LINES = ("y = gelu(x + bias)", "y.backward(gradient)", "torch.cuda.synchronize()")


# --8<-- [start:lines]
def lines(function, x, bias, gradient):
    """Each line of the program under a label of its own."""
    with record_function(LINES[0]):
        y = function(x, bias)
    with record_function(LINES[1]):
        y.backward(gradient)
    with record_function(LINES[2]):
        torch.cuda.synchronize()
# --8<-- [end:lines]


def trace(function):
    """The events of one pass, in us from the first of them. Earlier passes have compiled, cached and loaded everything."""
    x, bias = inputs(requires_grad=True)
    gradient = torch.randn_like(x)
    for _ in range(5):
        x.grad = bias.grad = None
        lines(function, x, bias, gradient)
    x.grad = bias.grad = None
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        for _ in range(2):  # the first pass under the profiler pays for the profiler: the second is kept
            x.grad = bias.grad = None
            lines(function, x, bias, gradient)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        return events(json.loads(file.read_text(encoding="utf-8"))["traceEvents"])


def events(raw):
    kept = [event for event in raw if event.get("cat") in LANES and wanted(event)]
    first = max(event["ts"] for event in kept if event["name"] == LINES[0])  # the last pass
    kept, threads = [event for event in kept if event["ts"] >= first], {}
    found = []
    for event in sorted(kept, key=lambda event: (event["ts"], -event.get("dur", 0))):
        lane, extra = LANES[event["cat"]], event.get("args", {})
        thread = threads.setdefault(event["tid"], len(threads)) if lane != "GPU" else None
        name = ("alloc" if extra.get("Bytes", 0) > 0 else "free") if lane == "allocator" else event["name"]
        found.append({"lane": lane, "name": name, "start_us": round(event["ts"] - first, 3), "duration_us": round(event.get("dur", 0), 3),
                      "thread": thread, **{key: extra[source] for source, key in KEPT.items() if source in extra}})
    return found


def wanted(event):
    """Leaves out the profiler's own steps, and memory of the CPU."""
    if event["cat"] == "cpu_instant_event":
        return event["name"] == "[memory]" and event["args"].get("Device Type") == 1
    return not event["name"].startswith(("ProfilerStep", "PyTorch Profiler", "Activity Buffer"))
