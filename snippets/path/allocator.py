"""Where the bytes live: what the caching allocator hands out, keeps, rounds, and asks the device for."""
import torch

from path import private
from path.example import inputs

MIB = 2**20


def state(step, result=None):
    """The three counts of memory: what tensors hold, what the allocator holds, and what the device has given away."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {"step": step, "allocated_bytes": torch.cuda.memory_allocated(), "reserved_bytes": torch.cuda.memory_reserved(),
            "device_used_bytes": total - free}


def fresh():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


# --8<-- [start:life]
def life():
    """The example, a step at a time."""
    fresh()
    steps = [state("start")]
    x, bias = inputs()
    steps.append(state("x, bias made"))
    total = x + bias
    steps.append(state("x + bias"))
    y = torch.nn.functional.gelu(total)
    steps.append(state("gelu"))
    del total
    steps.append(state("x + bias freed"))
    del x, bias, y
    steps.append(state("everything freed"))
    torch.cuda.empty_cache()
    steps.append(state("empty_cache()"))
    return steps
# --8<-- [end:life]


def rounding():
    """Bytes asked for, counted as allocated, and newly reserved, from an empty cache each time."""
    rows = []
    for size in (1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 128 * MIB + 1):
        fresh()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        rows.append({"asked_bytes": size, "allocated_bytes": torch.cuda.memory_allocated() - allocated,
                     "reserved_bytes": torch.cuda.memory_reserved() - reserved})
        del tensor
    return rows


def actions(events):
    return [{"action": event["action"], "size_bytes": event["size"]} for event in events]


def misses():
    """The allocator's actions in a first and a second run of the example: cudaMalloc is `segment_alloc`."""
    fresh()
    x, bias = inputs()
    runs = []
    for _ in range(2):
        with private.memory_events() as events:
            y = torch.nn.functional.gelu(x + bias)
            del y
        runs.append(actions(events))
    return runs


# --8<-- [start:reuse]
def reuse():
    """Whether a freed block's address comes back: at the same size, at a smaller one, and on another stream."""
    fresh()
    first = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    address = first.data_ptr()
    del first
    found = {}
    for name, size in (("same_size", 64 * MIB), ("smaller", 40 * MIB)):
        again = torch.empty(size, dtype=torch.uint8, device="cuda")
        found[name] = again.data_ptr() == address
        del again
    with torch.cuda.stream(torch.cuda.Stream()), private.memory_events() as events:
        other = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        found["other_stream"] = other.data_ptr() == address
    found["other_stream_actions"] = actions(events)
    return found
# --8<-- [end:reuse]


# --8<-- [start:fragmentation]
def fragmentation():
    """Free every second block of a row of blocks, then ask for one that is larger than any gap and smaller than their sum."""
    fresh()
    blocks = [torch.empty(4 * MIB, dtype=torch.uint8, device="cuda") for _ in range(20)]  # five to a segment of 20 MiB
    full = torch.cuda.memory_reserved()
    del blocks[::2]
    stats = torch.cuda.memory_stats()
    gaps = {"reserved_bytes": full, "free_bytes": full - torch.cuda.memory_allocated(),
            "inactive_split_bytes": stats["inactive_split_bytes.all.current"]}
    with private.memory_events() as events:
        wanted = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    return {**gaps, "asked_bytes": wanted.nbytes, "actions": actions(events), "newly_reserved_bytes": torch.cuda.memory_reserved() - full}
# --8<-- [end:fragmentation]


def capture(device="cuda"):
    torch.empty(1, device=device)  # the CUDA context, which none of torch's counters shows
    return {"life": life(), "rounding": rounding(), "misses": misses(), "reuse": reuse(), "fragmentation": fragmentation()}
