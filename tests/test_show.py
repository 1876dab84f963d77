"""What pages show of the records, on the reference machine and on another, in both languages."""
import io
import shutil
from html.parser import HTMLParser

import pytest
from rich.console import Console

from harness import record, show, show_terminal, snippet, units
from harness.chart import chart
from harness.labels import WORDS
from harness.results import Missing
from harness.roofline import roofline
from harness.state import page

CHAIN, CLOCKS = "fusion/pointwise/chain", "fusion/pointwise/clocks"
OTHER, OTHER_GPU = "nvidia-other-1", "NVIDIA Other 1"
TITLE = {"en": "A title", "zh": "标题"}
LABELS = {language: {"enqueue": "Enqueue", "timer": "Timer"} for language in ("en", "zh")}
FIGURES = {
    "table": lambda: show.table(CHAIN, "fp16", ("time", "kernels", "kernel_time", "enqueue", "peak", "traffic", "share",
                                               "speedup", "error")),
    "kernels": lambda: show.kernels(CHAIN, "fp16"),
    "bars": lambda: show.bars(CHAIN, ("fp16", "eager"), ("fp32", "default"), title=TITLE),
    "timeline": lambda: show.timeline(CHAIN, "fp16", {key: {"eager": ["a"] * 4, "default": ["b"]} for key in TITLE}, TITLE, TITLE),
    "clocks": lambda: show.clocks(CLOCKS, LABELS),
    "ceilings": show.ceilings,
    "machine_facts": show.machine_facts,
    "records": show.records,
    "rows": lambda: show.rows(CHAIN, {"en": ["variant", "time"], "zh": ["变体", "时间"]}, lambda data: [
        [name, units.us(result.call_us.median)] for name, result in data.fp16.items()]),
    "chart": lambda: chart(CHAIN, lambda data: {("a", "甲"): [(1, data.fp16.eager.call_us.median), (4, 2.0)]},
                           x=TITLE, y=TITLE, title=TITLE),
    "roofline": roofline,
}


def content_of(name: str, machine: str = record.REFERENCE) -> dict:
    content = record.read(record.path(machine, name))
    return {key: value for key, value in content.items() if key not in ("schema", "checksum")}


@pytest.fixture(scope="module")
def fresh_records(tmp_path_factory):
    """The reference's records in a folder of their own, each with the digest that its snippet has now."""
    folder = tmp_path_factory.mktemp("results")
    shutil.copytree(record.RESULTS / record.REFERENCE, folder / record.REFERENCE)
    for name in snippet.names():
        if record.freshness(name, record.REFERENCE) != "fresh":  # while its snippet is being changed
            content = record.read(record.path(record.REFERENCE, name))
            record.write(content | {"digest": snippet.digest(name)}, folder / record.REFERENCE / f"{name}.json")
    return folder


@pytest.fixture
def reference(fresh_records, tmp_path, monkeypatch):
    """A copy of the fresh records; the page is English and no GPU builds it."""
    shutil.copytree(fresh_records, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "here", {})
    monkeypatch.setattr(page, "language", "en")


def put(name: str, **changes) -> None:
    """A record of the other machine: the reference's, with another GPU and what is changed."""
    content = content_of(name)
    machine = content["machine"] | {"name": OTHER, "gpu": OTHER_GPU}
    content = {key: value for key, value in (content | {"machine": machine} | changes).items() if value is not None}
    record.write(content, record.path(OTHER, name))


@pytest.fixture
def other(reference, monkeypatch):
    """A build on another card, which has measured its copy bandwidth: half of the reference's."""
    results = content_of("machine/copy")["results"]
    for result in results:
        result["call_us"] |= record.summarise([2 * sample for sample in result["call_us"]["samples"]])
    put("machine/copy", results=results)
    monkeypatch.setattr(page, "here", content_of("machine/copy")["machine"] | {"name": OTHER, "gpu": OTHER_GPU})


class Balance(HTMLParser):
    """Every tag that is opened is closed, in order."""

    VOID = {"line", "rect", "br"}

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("figure", FIGURES)
def test_show_figure_is_whole_html_in_the_pages_language(reference, monkeypatch, figure, language):
    monkeypatch.setattr(page, "language", language)
    html = FIGURES[figure]()
    assert {"table", "svg"} & set(Balance(html).tags)
    if figure not in ("machine_facts", "records"):
        said = {key: [words["measured_on"].format("NVIDIA H200"), words["elsewhere"]] for key, words in WORDS.items()}
        assert all(words in html for words in said.pop(language))
        assert not any(words in html for [others] in [said.values()] for words in others)
        assert "&lt;div" not in html and "&lt;p" not in html


def test_show_table_has_the_records_figures(reference):
    first = content_of(CHAIN)["results"][0]
    html = show.table(CHAIN, "fp16", ("time", "kernels", "speedup"))
    assert html.count('<th scope="row">') == 5
    assert f"{first['call_us']['median']:.1f} µs" in html and f"<td>{len(first['kernels'])}</td>" in html
    assert "<td>1.00×</td>" in html


def test_show_refuses_a_case_or_a_record_that_is_not_there(reference):
    with pytest.raises(Missing, match="no 'fp8'; there are: fp16, fp32"):
        show.table(CHAIN, "fp8")
    with pytest.raises(Missing, match="no record of fusion/none"):
        show.table("fusion/none", "fp16")


EVIL = '<script>alert("x")</script>'


def test_show_escapes_what_a_record_holds(other):
    content = content_of(CHAIN)
    results = content["results"]
    results[0]["kernels"][0]["name"] = EVIL
    results[0]["counters_missing"] = EVIL
    results[1] = {"case": "fp16", "variant": EVIL, "outcome": "unsupported", "reason": EVIL}
    put(CHAIN, results=results, machine=content["machine"] | {"name": OTHER, "gpu": EVIL})
    for figure in ("table", "kernels", "records"):
        html = FIGURES[figure]()
        assert EVIL not in html and "<script" not in html
    assert show.table(CHAIN, "fp16").count("&lt;script&gt;") >= 3


@pytest.mark.parametrize("changes", [{"results": None, "unsupported": "no"}, None])
def test_show_escapes_a_machines_name_at_the_start_of_a_sentence(other, changes):
    for name in ("machine/copy", *([CHAIN] if changes else [])):
        content = content_of(name, record.REFERENCE)
        put(name, **(changes or {}), machine=content["machine"] | {"name": OTHER, "gpu": EVIL})
    html = show.table(CHAIN, "fp16")
    assert "<p class=\"evidence__absent\">&lt;script&gt;" in html and "<script" not in html


def test_show_puts_this_builds_gpu_beside_the_reference(other):
    put(CHAIN)
    html = show.table(CHAIN, "fp16", ("share",))
    assert html.count("This build&#39;s own GPU:") == 1
    order = ["Measured on NVIDIA H200 (not by", "This build&#39;s own GPU:", f"Measured on {OTHER_GPU} ·"]
    assert sorted(order, key=html.index) == order
    assert html.count('<div class="evidence') == 2 and '<div class="evidence evidence--other">' in html


def test_show_measures_the_share_by_each_machines_own_ceiling(other):
    put(CHAIN)
    result = content_of(CHAIN)["results"][0]
    shares = [100 * show.floor_us(result, machine) / result["call_us"]["median"] for machine in (record.REFERENCE, OTHER)]
    assert shares[1] == pytest.approx(2 * shares[0], rel=1e-3)
    html = show.table(CHAIN, "fp16", ("share",))
    parts = html.split("This build&#39;s own GPU:")
    assert all(f"<td>{share:.0f} %</td>" in part for share, part in zip(shares, parts, strict=True))


def test_show_does_without_the_ceiling_of_another_machine(reference, monkeypatch):
    put(CHAIN)
    monkeypatch.setattr(page, "here", content_of("machine/copy")["machine"] | {"name": OTHER, "gpu": OTHER_GPU})
    assert "<td>–</td>" in show.table(CHAIN, "fp16", ("share",)).split("own GPU:")[1]
    assert "bars__floor" not in FIGURES["bars"]().split("own GPU:")[1]
    assert OTHER_GPU in show.machine_facts()
    assert f"{OTHER_GPU} has no record of this snippet." in show.ceilings()


def test_show_says_why_another_machine_cannot_run_it(other):
    put(CHAIN, results=None, unsupported="needs compute capability (9, 0), this GPU has (8, 0)")
    assert f"{OTHER_GPU} cannot run this: needs compute capability (9, 0), this GPU has (8, 0)." in show.table(CHAIN, "fp16")


def test_show_says_that_another_machine_has_no_record(other, monkeypatch):
    assert f"{OTHER_GPU} has no record of this snippet." in show.kernels(CHAIN, "fp16")
    monkeypatch.setattr(page, "language", "zh")
    assert f"{OTHER_GPU} 没有这段代码的记录。" in show.kernels(CHAIN, "fp16")


def test_show_says_what_another_machines_record_lacks(other):
    put(CHAIN, results=[result for result in content_of(CHAIN)["results"] if result["case"] == "fp32"])
    html = show.table(CHAIN, "fp16")
    assert f"The record of {OTHER_GPU} lacks what this figure shows: no &#39;fp16&#39;; there are: fp32" in html


def test_show_says_that_a_record_is_stale(reference):
    stale = "The snippet has changed since: these figures are of its earlier version."
    assert stale not in show.table(CHAIN, "fp16")
    record.write(content_of(CHAIN) | {"digest": "sha256:" + "0" * 64}, record.path(record.REFERENCE, CHAIN))
    assert stale in show.table(CHAIN, "fp16")
    assert show.records().count("<td>stale</td>") == 1


def test_show_table_tells_outcomes_in_words(other):
    results = content_of(CHAIN)["results"]
    results[0] = {"case": "fp16", "variant": "eager", "outcome": "out of memory"}
    results[1] = {"case": "fp16", "variant": "default", "outcome": "unsupported", "reason": "no such mode"}
    results[2]["call_us"] |= {"unstable": True, "host_gap": True}
    put(CHAIN, results=results)
    html = show.table(CHAIN, "fp16", ("time", "speedup")).split("own GPU:")[1]
    assert '<td colspan="2">out of memory</td>' in html and '<td colspan="2">not supported: no such mode</td>' in html
    assert "· unstable · includes host gaps" in html and "<td>–</td>" in html and "×" not in html


def test_show_says_why_bytes_were_not_counted(reference):
    content = content_of(CHAIN)
    for kernel in content["results"][0]["kernels"]:
        kernel["counters"] = None
    record.write(content | {"counters_missing": "ncu is not installed"}, record.path(record.REFERENCE, CHAIN))
    assert '<abbr title="ncu is not installed">not counted</abbr>' in show.table(CHAIN, "fp16", ("traffic",))


def test_show_records_lists_every_snippet_on_every_machine(other):
    html = show.records()
    assert html.count('<tr><th scope="row">') == 2 * len(snippet.names())
    committed = sum(record.path(record.REFERENCE, name).exists() for name in snippet.names())
    assert html.count("<td>fresh</td>") == committed + 1
    assert html.count("<td>missing</td>") == 2 * len(snippet.names()) - committed - 1


def test_show_terminal_tells_a_comparison_and_a_capture(reference):
    console = Console(file=io.StringIO(), width=200)
    show_terminal.show(CHAIN, record.REFERENCE, console)
    show_terminal.show(CLOCKS, record.REFERENCE, console)
    text = console.file.getvalue()
    assert f"{CHAIN} on NVIDIA H200" in text and "vectorized_elementwise_kernel<8> · GeluCUDAKernelImpl" in text
    assert f"{CLOCKS}: captured in results/nvidia-h200/{CLOCKS}.json" in text
