"""What runs in a fresh process: `python -m harness.worker measure|compile|count|machine ...`. Needs torch and a GPU."""
import json
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import torch

from harness import machine, snippet
from harness.counters import RANGE
from harness.measure import bind, compare, variants


def missing(needs: dict) -> str | None:
    """Why this machine cannot run a snippet, from its `needs`: capability, memory_bytes, packages."""
    have = torch.cuda.get_device_capability()
    memory = torch.cuda.get_device_properties(0).total_memory
    if tuple(needs.get("capability", (0, 0))) > have:
        return f"needs compute capability {needs['capability']}, this GPU has {have}"
    if needs.get("memory_bytes", 0) > memory:
        return f"needs {needs['memory_bytes']} bytes of device memory, this GPU has {memory}"
    absent = [package for package in needs.get("packages", ()) if find_spec(package) is None]
    return f"needs the package {', '.join(absent)}" if absent else None


def measure(name: str, out: str) -> None:
    """The whole of a snippet; the answer is written to `out`, since standard output belongs to the log."""
    module = snippet.load(name)
    answer: dict = {"machine": machine.describe()}
    if reason := missing(getattr(module, "needs", {})):
        answer["unsupported"] = reason
    elif hasattr(module, "capture"):
        answer["data"] = module.capture(device="cuda")
    else:
        answer["results"] = compare(module, say=lambda text: print(text, flush=True))
    torch.cuda.synchronize()  # an error that a kernel left behind is this snippet's
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


def compile_seconds(name: str, out: str, case: str, variant: str) -> None:
    """Seconds from wrapping a function to its first result, in a process whose compiler is imported and started."""
    torch.compile(lambda x: x + 1)(torch.ones(1, device="cuda"))
    module = snippet.load(name)
    args = module.inputs(**module.cases[case], device="cuda")
    torch.cuda.synchronize()
    begun = time.perf_counter()
    bind(module, module.compiled[variant], args)()
    torch.cuda.synchronize()
    Path(out).write_text(json.dumps(round(time.perf_counter() - begun, 3)), encoding="utf-8")


def count(name: str) -> None:
    """One call of each variant inside an NVTX range, for Nsight Compute to read; the ranges follow `compare`'s order."""
    module, index = snippet.load(name), 0
    for case in module.cases.values():
        args = None  # the last case's memory goes back before the next case takes its own
        torch.manual_seed(0)
        for number, (_, factory) in enumerate(variants(module)):
            with suppress(torch.cuda.OutOfMemoryError, NotImplementedError):
                args = args or module.inputs(**case, device="cuda")
                _count(bind(module, factory, args), index + number)
        index += sum(1 for _ in variants(module))


def _count(call, index: int) -> None:
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_push(f"{RANGE}{index}")
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    task, *rest = sys.argv[1:]
    if task == "machine":
        print(json.dumps(machine.describe()))
    else:
        {"measure": measure, "compile": compile_seconds, "count": count}[task](*rest)
