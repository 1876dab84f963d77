"""Records as pages read them: `load("fusion/pointwise/chain").fp16.eager.call_us.median`. Never imports torch."""
import re
from functools import lru_cache
from statistics import median

from harness import record
from harness.state import page


class Missing(KeyError, AttributeError):
    """A key that a record does not have; the message names what there is instead."""

    def __str__(self) -> str:
        return self.args[0]


class Node(dict):
    """A part of a record, read as attributes; a key's other signs are underscores: max_autotune, broadcast_compiled."""

    def __getattr__(self, name: str):
        if name in self:
            return super().__getitem__(name)
        for key, value in self.items():
            if re.sub(r"\W+", "_", str(key)) == name:
                return value
        raise Missing(f"no {name!r}; there are: {', '.join(map(str, self))}")

    def __getitem__(self, key):
        return super().__getitem__(key) if key in self else self.__getattr__(str(key))


def load(name: str, machine: str | None = None) -> Node:
    """The record of a snippet on the page's machine. A comparison is read as <case>.<variant>, a capture as its data."""
    file = record.path(machine or page.machine, name)
    if not file.exists():
        raise Missing(f"no record of {name} for {machine or page.machine}; measure it: python -m harness run {name}")
    return _load(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _load(file, changed) -> Node:
    return tree(record.read(file))


def tree(content: dict) -> Node:
    """A record's content as <case>.<variant>, or its captured data, with `machine` and the whole `record` beside."""
    top = _nodes(content.get("data", {}))
    uncounted = {key: content[key] for key in ("counters_missing",) if key in content}
    for result in content.get("results", ()):
        top.setdefault(result["case"], Node())[result["variant"]] = _nodes({**uncounted, **result, **_derived(result)})
    return Node(top, machine=_nodes(content["machine"]), record=_nodes(content))


def _nodes(value):
    if isinstance(value, dict):
        return Node({key: _nodes(item) for key, item in value.items()})
    numbers = isinstance(value, list) and value and isinstance(value[0], (int, float))  # samples: nothing in them to turn
    return [_nodes(item) for item in value] if isinstance(value, list) and not numbers else value


def _derived(result: dict) -> dict:
    """Sums over a call's kernels: count, us, and bytes where every kernel was counted (the driver's copies never are)."""
    kernels = result.get("kernels", [])
    if not kernels:
        return {}
    counted = [kernel["counters"] for kernel in kernels]
    sums = {key: sum(row[key] for row in counted) if all(row and row.get(key) is not None for row in counted) else None
            for key in ("dram_read_bytes", "dram_write_bytes")}
    total = None if None in sums.values() else sum(sums.values())
    return {"kernel_count": len(kernels), "kernels_us": round(sum(kernel["time_us"]["median"] for kernel in kernels), 3),
            "dram_bytes": total, **sums}


def samples_median(node) -> float:
    """Median of a capture's `samples_us`."""
    return median(node["samples_us"])


def copy_ceiling_gbps(machine: str | None = None) -> float:
    """The best copy of the machine's own record, in GB/s, bytes read and written."""
    return _best("machine/copy", "copy_", "mib_", lambda copy: copy["minimum_bytes"] / 1e3, machine)


def matmul_ceiling_tflops(dtype: str, machine: str | None = None) -> float:
    """The best square product of the machine's own record in that dtype (fp16, bf16, tf32, fp32), in TFLOP/s."""
    return _best("machine/matmul", "matmul", f"{dtype}_", lambda matmul: matmul["flops"] / 1e6, machine)


def _best(name: str, variant: str, prefix: str, work, machine: str | None) -> float:
    """The most work in a microsecond over the cases that begin with `prefix`. Raises Missing where none was measured."""
    found = [case[variant] for key, case in load(name, machine).items() if key.startswith(prefix)]
    rates = [work(result) / result["call_us"]["median"] for result in found if result["outcome"] == "measured"]
    if not rates:
        raise Missing(f"{name} has no measured case {prefix}... on {machine or page.machine}")
    return max(rates)


def floor_us(result: Node, machine: str | None = None) -> float:
    """The least time for a result's least bytes at the copy ceiling, in us."""
    return result["minimum_bytes"] / copy_ceiling_gbps(machine) / 1e3
