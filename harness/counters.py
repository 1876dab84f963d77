"""Hardware counters of every kernel of a snippet, read by Nsight Compute (`ncu`) and parsed from its CSV."""
import csv
import glob
import operator
import re
import shutil

# Our key, with its unit, for each metric; ncu prints base units (bytes, percent, counts) when asked.
METRICS = {
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "registers": "launch__registers_per_thread",
    "instructions_count": "smsp__inst_executed.sum",
    "issue_active_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "dram_active_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "duration_us": "gpu__time_duration.sum",  # printed in ns
}
# fp32 operations executed, by instruction: a fused multiply-add is two. Tensor cores and other types are not in it.
FLOPS = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": weight for op, weight in (("fadd", 1), ("fmul", 1), ("ffma", 2))}
KERNEL_METRICS = (*METRICS.values(), *FLOPS)
CALL_METRICS = (METRICS["dram_read_bytes"], METRICS["dram_write_bytes"])
# A call as it runs, with cold caches at its start alone: where ncu counts kernels, it empties the caches before each.
EACH_KERNEL = ("--profile-from-start", "off")
WHOLE_CALL = ("--replay-mode", "app-range", "--cache-control", "all")
RANGE = "measure:"  # an NVTX range around each call that is counted


def tool() -> str | None:
    return shutil.which("ncu") or next(iter(sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)), None)


def command(log: str, metrics: tuple[str, ...] = KERNEL_METRICS, *options: str) -> list[str]:
    """ncu's own options: clocks are left as they are, and only what the worker brackets is counted."""
    return [tool(), "--csv", "--page", "raw", "--print-units", "base", "--nvtx", "--clock-control", "none",
            "--target-processes", "application-only",  # else ncu waits for the processes of Inductor's pool to end
            *options, "--log-file", log, "--metrics", ",".join(metrics)]


def parse(text: str) -> dict[str, list[dict]]:
    """ncu's CSV as {range: [counters of each kernel, in order of launch]}. Raises ValueError where there is no table."""
    lines = text.splitlines()
    begin = next((row for row, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None and "No kernels were profiled" in text:
        return {}
    if begin is None:
        raise ValueError(next((line for line in lines if "ERR" in line), "ncu printed no table").strip("= "))
    rows = list(csv.DictReader(lines[begin:]))[1:]  # the first row holds the units
    found: dict[str, list[dict]] = {}
    for row in rows:
        label = re.search(rf"{RANGE}([^:\"]+)", " ".join(value for key, value in row.items() if "Domain" in (key or "")))
        counters = {key: _number(row[metric]) for key, metric in METRICS.items() if metric in row}
        if counters.get("duration_us"):
            counters["duration_us"] /= 1e3
        found.setdefault(label[1] if label else "", []).append({"kernel": row["Kernel Name"], **counters, **_flops(row)})
    return found


def _flops(row: dict) -> dict:
    executed = [_number(row.get(metric)) for metric in FLOPS]
    return {} if None in executed else {"flops_count": sum(map(operator.mul, executed, FLOPS.values()))}


def _number(text: str | None) -> float | int | None:
    if not text or not re.fullmatch(r"[\d,]+(\.\d+)?", text):
        return None
    value = float(text.replace(",", ""))
    return int(value) if value.is_integer() else round(value, 2)


def attach(results: list[dict], counted: dict[str, list[dict]]) -> None:
    """Put each kernel's counters beside its times. Copies by the driver (Memcpy, Memset) are no kernels to ncu."""
    for index, result in enumerate(results):
        launched = [kernel for kernel in result.get("kernels") or [] if not kernel["name"].startswith("Mem")]
        rows = counted.get(str(index), [])
        if len(rows) != len(launched):
            result["counters_missing"] = f"ncu saw {len(rows)} kernels where the profiler saw {len(launched)}"
            continue
        if len(launched) < len(result.get("kernels") or []):
            result["counters_missing"] = "a copy or fill by the driver is no kernel to Nsight Compute"
        for kernel, row in zip(launched, rows, strict=True):
            kernel["counters"] = {key: value for key, value in row.items() if key != "kernel"}


def attach_calls(results: list[dict], counted: dict[str, list[dict]]) -> None:
    """Put a whole call's traffic beside its kernels': a range a call, in order. Raises ValueError where one is missing."""
    measured = [result for result in results if result["outcome"] == "measured"]
    rows = [row for rows in counted.values() for row in rows]
    if len(rows) != len(measured):
        raise ValueError(f"ncu saw {len(rows)} calls where {len(measured)} were measured")
    for result, row in zip(measured, rows, strict=True):
        result["call_counters"] = {key: row[key] for key in ("dram_read_bytes", "dram_write_bytes")}


ATTACH = {"count": attach, "count_calls": attach_calls}
