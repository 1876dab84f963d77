"""Records as pages read them: `load("fusion/pointwise/chain").fp16.eager.call_us.median`. Never imports torch."""
import re
from functools import lru_cache
from statistics import median

from harness import record
from harness.state import page


class Missing(KeyError):
    """A key that a record does not have; the message names what there is instead."""

    def __str__(self) -> str:
        return self.args[0]


class Node(dict):
    """A part of a record, read as attributes; a key's other signs are underscores: max_autotune, broadcast_compiled."""

    def __getattr__(self, name: str):
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
    content = record.read(file)
    tree = _nodes(content.get("data", {}))
    for result in content.get("results", ()):
        tree.setdefault(result["case"], Node())[result["variant"]] = _nodes({**result, **_derived(result)})
    tree = Node(tree)
    tree["machine"], tree["record"] = _nodes(content["machine"]), _nodes(content)
    return tree


def _nodes(value):
    if isinstance(value, dict):
        return Node({key: _nodes(item) for key, item in value.items()})
    return [_nodes(item) for item in value] if isinstance(value, list) else value


def _derived(result: dict) -> dict:
    """Sums over a call's kernels: count, us, and bytes where every kernel but the driver's copies was counted."""
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
    return max(size["copy_"]["minimum_bytes"] / size["copy_"]["call_us"]["median"] / 1e3
               for case, size in load("machine/copy", machine).items() if case.startswith("mib_"))


def matmul_ceiling_tflops(dtype: str, machine: str | None = None) -> float:
    """The best square product of the machine's own record in that dtype (fp16, bf16, tf32, fp32), in TFLOP/s."""
    return max(size["matmul"]["flops"] / size["matmul"]["call_us"]["median"] / 1e6
               for case, size in load("machine/matmul", machine).items() if case.startswith(dtype + "_"))


def floor_us(result: Node, machine: str | None = None) -> float:
    """The least time for a result's least bytes at the copy ceiling, in us."""
    return result["minimum_bytes"] / copy_ceiling_gbps(machine) / 1e3
