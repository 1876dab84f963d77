"""The roofline: every counted kernel of every comparison, under the ceilings measured on the same machine. No torch."""
from functools import lru_cache

from harness import record, snippet
from harness.chart import Axis
from harness.kernel_names import short
from harness.results import Node, copy_ceiling_gbps, load, matmul_ceiling_tflops
from harness.show import DTYPES, figure, render
from harness.state import page

ON_TENSOR_CORES = ("matmul", "attention")  # their FLOPs are the snippet's own count; of others the executed fp32 operations
ROOFS = ("bf16", "tf32", "fp32")
LEAST_FLOPS = 1e6  # of a kernel on the chart: those of tiny calls, in the table alone, would stretch it over decades
CATEGORIES = ("pointwise", "reduction", "matmul", "attention", "copy", "other")


def roofline() -> str:
    """Achieved FLOP/s over arithmetic intensity, both logarithmic; each point links to its page; then the same as a table."""
    return figure("machine/matmul", lambda data: _draw(data["machine"]["name"]))


def _draw(machine: str) -> str:
    points = sorted(kernels(machine), key=lambda point: point["intensity"])
    shown = [point for point in points if point["flops"] >= LEAST_FLOPS]
    across, up = (Axis([point[key] for point in shown], log=True) for key in ("intensity", "tflops"))
    roofs = [{"dtype": dtype, "tflops": ceiling_tflops(dtype, machine)} for dtype in ROOFS]
    slope = copy_ceiling_gbps(machine) / 1e3  # TFLOP/s at one FLOP a byte
    return render("roofline.html", points=points, shown=shown, across=across, up=up, roofs=roofs, slope=slope, categories=CATEGORIES)


def ceiling_tflops(dtype: str, machine: str | None = None) -> float:
    """The best product in that dtype; in fp32, which has no tensor cores, the best loop of multiply-adds on registers."""
    if dtype != "fp32":
        return matmul_ceiling_tflops(dtype, machine)
    loops = load("memory/intensity", machine)
    return max(loops[case]["run"]["flops"] / loops[case]["run"]["call_us"]["median"] / 1e6 for case in loops if case.startswith("loop_"))


def kernels(machine: str | None = None) -> list[dict]:
    """Each kernel whose traffic was counted: its FLOPs, bytes, us, intensity (FLOP/byte), TFLOP/s and its share of its roof."""
    machine = machine or page.machine
    found, slope, roofs = [], copy_ceiling_gbps(machine) / 1e3, {dtype: ceiling_tflops(dtype, machine) for dtype in DTYPES}
    for name in snippet.names():
        if snippet.kind(snippet.path(name)) == "comparison" and record.path(machine, name).exists():
            for result in load(name, machine)["record"].get("results", ()):
                found += [_point(name, result, kernel, slope, roofs) for kernel in result.get("kernels", ()) if _counted(result, kernel)]
    return found


def _counted(result: Node, kernel: Node) -> bool:
    counters = kernel["counters"]
    if not counters or not counters["dram_read_bytes"] and not counters["dram_write_bytes"]:
        return False
    return "flops" in result if kernel["category"] in ON_TENSOR_CORES else counters.get("flops_count") is not None


def _point(name: str, result: Node, kernel: Node, slope: float, roofs: dict[str, float]) -> dict:
    tensor = kernel["category"] in ON_TENSOR_CORES
    alike = sum(other["category"] == kernel["category"] for other in result["kernels"])  # two products share the call's count
    flops = result["flops"] / alike if tensor else kernel["counters"]["flops_count"]
    moved = kernel["counters"]["dram_read_bytes"] + kernel["counters"]["dram_write_bytes"]
    us, intensity = kernel["time_us"]["median"], flops / moved
    tflops = flops / us / 1e6
    dtype = next((dtype for dtype in DTYPES if result["case"].startswith(dtype)), "bf16")
    roof = min(roofs[dtype if tensor else "fp32"], intensity * slope)
    return {"kernel": short(kernel["name"]), "category": kernel["category"], "name": name, "case": result["case"],
            "variant": result["variant"], "page": page_of(name), "flops": flops, "bytes": moved, "us": us,
            "intensity": intensity, "tflops": tflops, "gbps": moved / us / 1e3, "share": tflops / roof if roof else None}


@lru_cache
def page_of(name: str) -> str:
    """The page that shows the snippet's code, or the one that verifies records, as a path within the site."""
    docs = snippet.ROOT / "docs" / "en"
    pages = sorted(docs.rglob("*.md"), key=lambda file: (file.parent.name not in name, file))
    found = next((file for file in pages if f"{name}.py" in file.read_text(encoding="utf-8")), docs / "reference" / "machines.md")
    return found.relative_to(docs).with_suffix("").as_posix().removesuffix("index").rstrip("/") + "/"
