"""Where a chart puts its values, which ones it labels, and what its table says; the roofline's points and where they lead."""
import re

import pytest

from harness import record, results, roofline, snippet
from harness.chart import Axis, chart
from harness.state import page

TEXT = {"en": "a text", "zh": "一段话"}


@pytest.mark.parametrize(("values", "log", "unit", "ticks"), [
    ([1, 1000], True, None, ["1", "10", "100", "1 k"]),
    ([60, 400], True, None, ["50", "100", "200", "500"]),
    ([256, 2**18], True, None, ["2^8", "2^10", "2^12", "2^14", "2^16", "2^18"]),
    ([3 * 2**10, 2**20], True, "size", ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"]),
    ([3, 47], False, None, ["0", "10", "20", "30", "40", "50"]),
    ([0.2, 0.9], False, None, ["0", "0.2", "0.4", "0.6", "0.8", "1"])])
def test_axis_labels_round_values(values, log, unit, ticks):
    axis = Axis(values, log, unit)
    assert [axis.label(tick) for tick in axis.ticks] == ticks
    assert all(-0.001 <= axis.place(value) <= 100.001 for value in values)


def test_axis_places_evenly_or_by_the_logarithm():
    assert Axis([0, 10], log=False).place(5) == 50
    assert Axis([1, 100], log=True).place(10) == pytest.approx(50)
    assert Axis([4, 64], log=True).place(16) == pytest.approx(50)
    assert Axis([7], log=True).place(7) >= 0  # one value is no range to divide by


def test_chart_draws_every_point_and_repeats_it_in_the_table(monkeypatch):
    def series(data):
        return {"plain": [(1, 2.5), (10, 25.0)], ("cited", "引用"): {"points": [(10, 30.0)], "cited": True}}
    def drawn():
        return chart("fusion/pointwise/chain", series, x=TEXT, y=TEXT, title=TEXT, log="x")
    text = drawn()
    assert len(re.findall(r"<circle cx[^>]*><title>", text)) == 3 and "chart--cited" in text
    assert re.findall(r"<td>(.*?)</td>", text) == ["2.5", "–", "25", "30"]
    assert "cited" in text and "引用" not in text
    monkeypatch.setattr(page, "language", "zh")
    assert "引用" in drawn() and "一段话" in drawn()


def test_roofline_points_follow_from_their_record():
    points = roofline.kernels()
    assert len(points) > 150
    which = ("fusion/pointwise/chain", "fp16", "default")
    (point,) = (point for point in points if (point["name"], point["case"], point["variant"]) == which)
    kernel = results.load("fusion/pointwise/chain").fp16.default.kernels[0]
    assert point["flops"] == kernel.counters.flops_count
    assert point["bytes"] == kernel.counters.dram_read_bytes + kernel.counters.dram_write_bytes
    assert point["tflops"] == pytest.approx(point["flops"] / kernel.time_us.median / 1e6)
    assert point["share"] == pytest.approx(point["gbps"] / results.copy_ceiling_gbps())  # left of the ridge memory is the roof


def test_roofline_counts_a_product_by_its_formula():
    (point,) = (point for point in roofline.kernels() if (point["name"], point["case"]) == ("machine/matmul", "bf16_8192"))
    assert point["flops"] == 2 * 8192**3 and 0.8 < point["share"] < 1.02


def test_roofline_leads_to_the_page_that_shows_the_snippet():
    for name, page_url in {(point["name"], point["page"]) for point in roofline.kernels()}:
        source = snippet.ROOT / "docs" / "en" / page_url.rstrip("/")
        file = source.with_suffix(".md") if source.with_suffix(".md").is_file() else source / "index.md"
        assert f"{name}.py" in file.read_text(encoding="utf-8") or page_url == "reference/machines/", name


def test_roofline_leaves_out_what_was_not_counted(monkeypatch):
    content = record.read(record.path(record.REFERENCE, "fusion/pointwise/add"))
    for result in content["results"]:
        for kernel in result["kernels"]:
            kernel["counters"] = None
    tree = results.tree(content)
    real = results.load
    monkeypatch.setattr(roofline, "load", lambda name, machine=None: tree if name == "fusion/pointwise/add" else real(name, machine))
    assert not [point for point in roofline.kernels() if point["name"] == "fusion/pointwise/add"]
