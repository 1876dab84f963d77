"""What a page's blocks print: tables, kernel lists and charts of a record, each with its provenance. No torch.

Every function returns HTML for the page's language. Templates escape what they show: a record is data from outside.
"""
from functools import partial
from pathlib import Path

import jinja2
from markupsafe import Markup

from harness import record, units
from harness.kernel_names import short
from harness.labels import word
from harness.results import Missing, Node, copy_ceiling_gbps, floor_us, load, matmul_ceiling_tflops, samples_median
from harness.snippet import names
from harness.state import page

DTYPES = ("fp16", "bf16", "tf32", "fp32")
_templates = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True,
                                trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
_templates.globals |= {"word": word, "units": units, "page": page, "short": short}
_templates.filters["zip"] = zip


def table(name: str, case: str, columns: tuple = ("time", "speedup", "kernels", "traffic", "share", "peak"),
          variants: tuple = ()) -> str:
    """A row a variant; the speed-up is against the first. Also: error, enqueue, kernel_time."""
    def rows(results: Node) -> str:
        found = [results[case][variant] for variant in variants or results[case]]
        return render("table.html", results=found, columns=columns, share=partial(_share, results["machine"]["name"]))
    return figure(name, rows)


def kernels(name: str, case: str, *variants: str) -> str:
    """The kernels of each variant in the order in which they ran."""
    return figure(name, lambda results: render(
        "kernels.html", results=[results[case][variant] for variant in variants or results[case]]))


def rows(name: str, head: dict, cells, numeric: int = 1) -> str:
    """A table of texts that `cells(record)` makes, a list a row; columns from `numeric` on are set as numbers."""
    return figure(name, lambda results: render("rows.html", head=head[page.language], cells=cells(results), numeric=numeric))


def bars(name: str, *results: tuple[str, str], floor: bool = True, title: dict) -> str:
    """A bar for each (case, variant): median time, the middle half of the samples, and the floor of the first."""
    def chart(loaded: Node) -> str:
        found = [loaded[case][variant] for case, variant in results]
        measured = [result for result in found if result["outcome"] == "measured"]
        cases = {result["case"] for result in found}
        rows = [{"label": _label(result, len(cases) > 1), **result["call_us"]} for result in measured]
        line = _floor_us(loaded["machine"]["name"], measured[0]) if floor and measured else None
        return render("bars.html", rows=rows, floor=line, title=title[page.language],
                       top=1.02 * max([row["q3"] for row in rows] + [line or 0], default=1))
    return figure(name, chart)


def timeline(name: str, case: str, labels: dict[str, dict[str, list[str]]], title: dict, note: dict) -> str:
    """The kernels of each variant to one scale, side by side as they ran; `labels` names each kernel's work."""
    def strip(results: Node) -> str:
        words = labels[page.language]
        top = max(results[case][variant]["kernels_us"] for variant in words)
        rows = [_strip(results[case][variant], words[variant], top) for variant in words]
        return render("timeline.html", rows=rows, title=title[page.language], note=note[page.language])
    return figure(name, strip)


def _strip(result: Node, words: list[str], top: float) -> dict:
    begin, parts = 0.0, []
    if len(words) != result["kernel_count"]:  # another card, other kernels
        words = [short(kernel["name"]) for kernel in result["kernels"]]
    for kernel, label in zip(result["kernels"], words, strict=True):
        us = kernel["time_us"]["median"]
        parts.append({"label": label, "us": us, "category": kernel["category"],
                      "begin": 100 * begin / top, "width": 100 * us / top})
        begin += us
    moved = "" if result["dram_bytes"] is None else f" · {word('traffic')} {units.traffic(result['dram_bytes'])}"
    return {"label": result["variant"], "parts": parts, "total": begin, "total_text": units.us(begin) + moved}


def clocks(name: str, labels: dict) -> str:
    """Every mode of a capture under every clock: median of the samples."""
    return figure(name, lambda data: render(
        "clocks.html", modes={mode: data[mode] for mode in data if mode not in ("machine", "record")},
        labels=labels[page.language], median=samples_median))


def ceilings() -> str:
    """The machine's own copy bandwidth and matrix-product rates, and the size that gave each."""
    def rows(results: Node) -> str:
        machine = results["machine"]["name"]
        found = [(word("copy"), f"{copy_ceiling_gbps(machine):,.0f} GB/s", "machine/copy")]
        found += [(word("matmul", dtype), f"{matmul_ceiling_tflops(dtype, machine):,.1f} TFLOP/s", "machine/matmul")
                  for dtype in DTYPES]
        return render("ceilings.html", rows=found)
    return figure("machine/copy", rows) + _provenance("machine/matmul", _shown()[0])


def machine_facts() -> str:
    return "".join(render("facts.html", facts=_machine(machine)) for machine in _shown())


def records() -> str:
    """Every snippet on every machine: when it was measured, and whether it still stands."""
    rows = [{"name": name, "machine": machine, "state": _state(name, machine),
             "record": load(name, machine)["record"] if record.path(machine, name).exists() else None}
            for machine in record.machines() for name in names()]
    return render("records.html", rows=rows)


def claims_result(machine: str, attempted: int, failures: list[str]) -> str:
    return render("claims.html", machine=_machine(machine)["gpu"], attempted=attempted, failures=failures)


def _shown() -> list[str]:
    """The reference machine, then the one that builds, if it is another and has any record."""
    here = page.here.get("name")
    return [record.REFERENCE, here] if here != record.REFERENCE and here in record.machines() else [record.REFERENCE]


def figure(name: str, draw, how: str = "measured_on") -> Markup:
    """What `draw` makes of the snippet's record on each machine shown, with the reason where there is none; `how` it came about."""
    parts = []
    for machine in _shown():
        try:
            results = load(name, machine)
        except Missing:
            if machine == record.REFERENCE:
                raise
            parts.append(render("absent.html", text=word("no_record", _machine(machine)["gpu"])))
            continue
        body = _body(results, draw)
        parts.append(render("figure.html", body=body, other=machine != record.REFERENCE) + _provenance(name, machine, how))
    return Markup("\n").join(parts)


def _body(results: Node, draw) -> Markup:
    """The figure, or why there is none: this card cannot run it, or its record lacks what the reference's has."""
    gpu = results["machine"]["gpu"]
    if reason := results["record"].get("unsupported"):
        return render("absent.html", text=word("cannot_run", gpu, reason))
    try:
        return draw(results)
    except (Missing, ValueError) as lack:
        if results["machine"]["name"] == record.REFERENCE:
            raise
        return render("absent.html", text=word("lacks", gpu, lack))


def _provenance(name: str, machine: str, how: str = "measured_on") -> str:
    content = load(name, machine)["record"]
    return render("provenance.html", record=content, name=name, how=how, state=_state(name, machine),
                  elsewhere=machine != page.here.get("name"))


def _state(name: str, machine: str) -> str:
    return record.freshness(name, machine, page.here if machine == page.here.get("name") else None)


def _machine(machine: str) -> Node:
    """What a machine's first record says of it."""
    found = next((name for name in names() if record.path(machine, name).exists()), None)
    return load(found, machine)["machine"] if found else Node(gpu=machine)


def _floor_us(machine: str, result: Node) -> float | None:
    """`floor_us`, or None for another machine whose copy ceiling is not measured."""
    try:
        return floor_us(result, machine)
    except Missing:
        if machine == record.REFERENCE:
            raise
        return None


def _share(machine: str, result: Node) -> str:
    """Of the copy ceiling: the time that the least bytes would take, over the time that the call took."""
    floor = _floor_us(machine, result)
    return "–" if floor is None else units.percent(floor / result["call_us"]["median"])


def _label(result: Node, with_case: bool) -> str:
    return f"{result['case']} · {result['variant']}" if with_case else result["variant"]


def render(template: str, **values) -> Markup:
    """HTML; everything but what this function itself made is escaped."""
    return Markup(_templates.get_template(template).render(**values))
