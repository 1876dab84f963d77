"""What runs in a fresh process: `python -m harness.worker measure|count|count_calls|machine ...`. Needs torch and a GPU."""
import gc
import json
import os
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import torch

from harness import machine, snippet
from harness.counters import RANGE
from harness.measure import bind, compare, variants
from harness.timing import Clock

BEGUN = time.monotonic()


def say(text: str) -> None:
    """A line of the log, with the seconds since this process began its turn."""
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", flush=True)


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
    answer = {"machine": machine.describe()}  # its clock as it is found
    if snippet.kind(snippet.path(name)) == "lab":
        from harness import lab
        answer["data"] = lab.execute(name, say)
    else:
        answer |= _answer(snippet.load(name))
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


def _answer(module) -> dict:
    if reason := missing(getattr(module, "needs", {})):
        answer = {"unsupported": reason}
    elif hasattr(module, "capture"):
        answer = {"data": module.capture(device="cuda")}
    else:
        answer = {"results": compare(module, say)}
    torch.cuda.synchronize()  # an error that a kernel left behind is this snippet's
    return answer


def count(name: str, out: str, again: bool = True) -> None:
    """One call of each variant inside an NVTX range, for Nsight Compute to read; the ranges follow `compare`'s order.

    Before that each call is timed again: a second run, in another process than the first. The medians go to `out`.
    """
    module, clock, seconds = snippet.load(name), Clock() if again else None, []
    for name_of_case, case in module.cases.items():
        say(name_of_case)
        args = None  # the last case's memory goes back before the next case takes its own
        torch.manual_seed(0)
        for _, factory in variants(module):
            index = len(seconds)
            seconds.append(None)
            with suppress(torch.cuda.OutOfMemoryError, NotImplementedError):
                args = args or module.inputs(**case, device="cuda")
                seconds[index] = _count(bind(module, factory, args), index, clock)
    Path(out).write_text(json.dumps(seconds), encoding="utf-8")


def _count(call, index: int, clock: Clock | None) -> float | None:
    for _ in range(4):
        call()
    again_us = clock.call_us(call)["median"] if clock else None
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_push(f"{RANGE}{index}")
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    torch.cuda.nvtx.range_pop()
    return again_us


def count_calls(name: str, out: str) -> None:
    count(name, out, again=False)


def set_up_compiler() -> None:
    """A process's first compilation imports, and builds its patterns; a product that a library has needs no kernel for it."""
    with torch.compiler.config.patch(force_disable_caches=True):  # from a cache it would set up less
        torch.compile(torch.mm)(torch.ones(2, 2), torch.ones(2, 2))
    torch._dynamo.reset()


def prepare(name: str) -> None:
    """What takes seconds and launches nothing: import the snippet, and set up the compiler where the snippet compiles."""
    if snippet.kind(snippet.path(name)) == "lab":
        return  # its kernel is fresh: it imports for itself
    import torch._dynamo  # noqa: F401 (the profiler imports it, too)
    if "torch.compile" in snippet.path(name).read_text(encoding="utf-8"):
        set_up_compiler()
    snippet.load(name)
    gc.freeze()  # what was imported stays: a collection before each look at the memory need not walk it again


if __name__ == "__main__":
    task, *rest = sys.argv[1:]
    if task == "machine":
        print(json.dumps(machine.describe()))
    else:
        prepare(rest[0])
        say("ready")
        if sys.stdin.readline():  # our turn; at the end of the input there is nobody left who waits for us
            BEGUN = time.monotonic()
            {"measure": measure, "count": count, "count_calls": count_calls}[task](*rest)
            say("done")
            os._exit(0)  # at once: Inductor's pool of compilers takes ten seconds to end, and our parent ends the whole group
