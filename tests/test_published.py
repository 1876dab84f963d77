"""The published figures: their schema, a few rows against the papers, and that what is measured here is what they ran."""
import csv

import pytest

from harness import snippet
from harness.snippet import load

SOURCES = ("flash-attention", "flash-attention-2", "flash-attention-3", "flash-attention-4", "flex-attention", "cudnn-frontend")
COLUMNS = ["source", "url", "place", "gpu", "dtype", "passes", "setting", "head_dim", "causal", "seqlen", "batch", "heads", "kv_heads",
           "implementation", "metric", "value", "value_to", "unit", "outcome", "reading", "note"]
UNITS = {"TFLOP/s", "GFLOP", "GB", "MB", "ms", "s", "days", "x", "%", "1"}
published, rates = load("attention/published"), load("attention/rates")


def test_published_files_are_those_known():
    assert {file.stem for file in published.FOLDER.glob("*.csv")} == set(SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_published_rows_keep_the_schema(source):
    with (published.FOLDER / f"{source}.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == COLUMNS
    rows = published.table(source)
    assert rows
    for row in rows:
        assert row["url"].startswith("https://") and row["source"] and row["place"] and row["gpu"] and row["implementation"]
        assert row["outcome"] in ("reported", "out of memory", "failed")
        assert row["reading"] in ("printed", "printed on a bar", "read off a bar")
        assert row["unit"] in UNITS
        assert (row["outcome"] == "reported") == isinstance(row["value"], (int, float))
        assert row["value_to"] is None or row["value_to"] > row["value"]


def test_no_figure_is_given_twice():
    for source in SOURCES[:3]:
        keys = [tuple(row[key] for key in COLUMNS if key not in ("value", "reading")) for row in published.table(source)]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("source", "where", "value"), [
    ("flash-attention", {"source": "FlashAttention, arXiv 2205.14135v2", "place": "Fig 2 left", "implementation": "Standard",
                         "metric": "runtime"}, 41.7),
    ("flash-attention", {"source": "FlashAttention, NeurIPS 2022 camera-ready", "place": "Fig 2 left",
                         "implementation": "FlashAttention", "metric": "runtime"}, 11.7),
    ("flash-attention", {"place": "Table 20", "implementation": "PyTorch", "seqlen": 4096}, 50.44),
    ("flash-attention", {"place": "Table 11", "implementation": "FlashAttention", "seqlen": 4096}, 37.49),
    ("flash-attention", {"place": "Table 21", "implementation": "PyTorch", "seqlen": 4096}, 17024),
    ("flash-attention-2", {"place": "Fig 7d", "implementation": "FA2", "seqlen": 16384}, 328),
    ("flash-attention-2", {"place": "Fig 4c", "implementation": "FA2", "seqlen": 512}, 88),
    ("flash-attention-3", {"place": "Fig 5c", "implementation": "FA3", "seqlen": 16896}, 648),
    ("flash-attention-3", {"place": "Fig 6b", "implementation": "cuDNN", "seqlen": 8448}, 518),
    ("cudnn-frontend", {"place": "llama3.1", "dtype": "bf16", "passes": "fwd", "causal": 1, "seqlen": 16384, "metric": "rate"}, 673)])
def test_published_value_is_the_paper_s(source, where, value):
    assert published.value(source, **where) == value


def test_value_refuses_what_is_not_one_row():
    with pytest.raises(LookupError, match="0 rows"):
        published.value("flash-attention-2", place="Fig 9")


def test_points_leave_out_what_ran_out_of_memory():
    assert [n for n, _ in published.points("flash-attention-2", place="Fig 7a", implementation="PyTorch")] == [512, 1024, 2048, 4096, 8192]


def test_flops_give_the_published_times_of_cudnn_back():
    """NVIDIA prints time and rate: the formula must turn one into the other."""
    rows = [row for row in published.rows("cudnn-frontend", place="llama3.1", metric="runtime") if row["dtype"] == "bf16"]
    assert len(rows) == 20
    for row in rows:
        work = rates.flops(row["batch"], row["heads"], row["seqlen"], row["head_dim"], causal=bool(row["causal"]), passes=row["passes"])
        same = {key: row[key] for key in ("place", "dtype", "passes", "causal", "seqlen")}
        rate = published.value("cudnn-frontend", metric="rate", **same)
        assert work / row["value"] / 1e9 == pytest.approx(rate, rel=0.01)


def test_measured_lengths_are_those_of_the_papers():
    lengths = {way: sorted(found) for way, found in snippet.constant("attention/papers", "LENGTHS", {}).items()}
    second = sorted({row["seqlen"] for row in published.rows("flash-attention-2", place="Fig 7a")})
    third = sorted({row["seqlen"] for row in published.rows("flash-attention-3", place="Fig 5a")})
    assert lengths["flash"] == sorted({*second, *third})
    assert lengths["cudnn"] == third and lengths["efficient"] == second
    for row in published.rows("flash-attention-3", place="Fig 5a"):
        assert row["batch"] == round(16384 / row["seqlen"])


def test_both_passes_are_added_sample_by_sample():
    point = {"forward": {"samples_us": [1.0, 9.0, 2.0]}, "backward": {"samples_us": [9.0, 1.0, 3.0]}}
    assert [rates.median_us(point, passes) for passes in ("fwd", "bwd", "fwd+bwd")] == [2.0, 3.0, 10.0]


def test_curve_leaves_out_what_was_not_measured():
    point = {"forward": {"samples_us": [100.0]}, "backward": {"samples_us": [250.0]}}
    lengths = {"4224": {"flash": point}, "512": {"flash": point, "cudnn": {"outcome": "refused"}}}
    assert [length for length, _ in rates.curve(lengths, "d64 causal", "flash", "fwd")] == [512, 4224]
    assert rates.curve(lengths, "d64 full", "cudnn", "fwd") == []
    assert rates.curve(lengths, "d64 causal", "flash", "fwd+bwd")[0][1] == pytest.approx(3.5 * 2 * 32 * 32 * 512**2 * 64 / 350 / 1e6)
