"""Every private part of torch that this chapter looks through, in one place. Each is there in torch 2.11 to 2.13.

Private means that a later torch may rename or drop it. Then `find` says which one is gone, and nothing is recorded.
"""
import os
from contextlib import contextmanager

os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "fast")  # names of C++ frames without addr2line: 0.1 s a stack, not 0.5

import torch  # noqa: E402


def find(path):
    """The object at a dotted path below torch. Raises RuntimeError with its name where this torch has none."""
    found = torch
    for part in path.split("."):
        if not hasattr(found, part):
            raise RuntimeError(f"torch {torch.__version__} has no torch.{path}, which this snippet looks through")
        found = getattr(found, part)
    return found


@contextmanager
def memory_events():
    """Collect what the caching allocator does inside the block: a list of {action, size, stream, frames}."""
    record, snapshot = find("cuda.memory._record_memory_history"), find("cuda.memory._snapshot")
    events = []
    record(enabled="all", context="all", stacks="all", clear_history=True)
    try:
        yield events
        torch.cuda.synchronize()
        events += snapshot()["device_traces"][torch.cuda.current_device()]
    finally:
        record(enabled=None)


def stack_here():
    """The Python, TorchScript and C++ frames of the caller, not yet named."""
    return find("_C._profiler.gather_traceback")(python=True, script=True, cpp=True)


def name_frames(stacks):
    """Names, files and lines of the frames of each stack, the innermost first."""
    return find("_C._profiler.symbolize_tracebacks")(stacks)


def key_set(tensor):
    """A tensor's dispatch keys, the highest first."""
    return _names(find("_C._dispatch_keys")(tensor))


def thread_keys():
    """The dispatch keys that this thread adds to every call, and those that it takes away."""
    return {"include": _names(find("_C._dispatch_tls_local_include_set")()),
            "exclude": _names(find("_C._dispatch_tls_local_exclude_set")())}


def call_key(*tensors):
    """The key whose kernel a call on these tensors meets first: the highest of (theirs and the thread's) less the excluded."""
    keys, include = find("_C._dispatch_keys"), find("_C._dispatch_tls_local_include_set")()
    union = include
    for tensor in tensors:
        union = union | keys(tensor)
    return _names(union - find("_C._dispatch_tls_local_exclude_set")())


def _names(keys):
    """A DispatchKeySet prints its keys from the lowest to the highest."""
    inner = str(keys).removeprefix("DispatchKeySet(").removesuffix(")")
    return [name for name in reversed(inner.split(", ")) if name]


def key_order():
    """Every dispatch key of this torch with its number; the higher number runs first."""
    return {name: int(key) for name, key in find("_C.DispatchKey").__members__.items()}


def dispatch_table(operator):
    """The computed table of an operator, as text: a line a key with the file that registered its kernel."""
    return find("_C._dispatch_dump_table")(operator)
