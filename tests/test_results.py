"""Records as pages read them."""
import pytest

from harness import claims, labels, record, results, snippet
from harness.results import Missing, Node, load
from harness.state import page

CHAIN = "fusion/pointwise/chain"


def test_results_node_reads_keys_as_attributes():
    node = Node({"max-autotune": Node(call_us=1), "broadcast, compiled": 2, "plain": 3})
    assert (node.max_autotune.call_us, node.broadcast_compiled, node.plain) == (1, 2, 3)
    assert node["max-autotune"] is node.max_autotune and node["max_autotune"] is node.max_autotune


def test_results_node_says_what_there_is_instead():
    with pytest.raises(Missing) as raised:
        _ = Node(first=1, second=2).third
    assert str(raised.value) == "no 'third'; there are: first, second"
    assert not hasattr(Node(first=1), "third")
    with pytest.raises(KeyError):
        _ = Node(first=1)["third"]


def test_results_load_names_a_record_that_is_missing():
    with pytest.raises(Missing, match="no record of fusion/none for nvidia-h200; measure it: python -m harness run fusion/none"):
        load("fusion/none")


def test_results_load_reads_comparisons_by_case_and_variant_and_captures_as_data():
    raw = record.read(record.path(record.REFERENCE, CHAIN))
    eager = next(result for result in raw["results"] if (result["case"], result["variant"]) == ("fp16", "eager"))
    loaded = load(CHAIN)
    assert loaded.fp16.eager.call_us.median == eager["call_us"]["median"]
    assert loaded.machine.gpu == "NVIDIA H200" and loaded.record.snippet == CHAIN
    data = record.read(record.path(record.REFERENCE, "fusion/pointwise/clocks"))["data"]
    assert load("fusion/pointwise/clocks").default.enqueue.samples_us == data["default"]["enqueue"]["samples_us"]


def counted(read, written) -> dict:
    return {"dram_read_bytes": read, "dram_write_bytes": written}


def kernels(*counters) -> dict:
    return {"kernels": [{"time_us": {"median": 1.25}, "counters": row} for row in counters]}


@pytest.mark.parametrize(("rows", "read", "written", "total"), [
    ([counted(10, 1), counted(20, 2)], 30, 3, 33), ([counted(0, 0)], 0, 0, 0),
    ([counted(10, 1), None], None, None, None), ([counted(10, 1), counted(None, 2)], None, 3, None),
])
def test_results_sums_are_derived_where_every_kernel_was_counted(rows, read, written, total):
    assert results._derived(kernels(*rows)) == {
        "kernel_count": len(rows), "kernels_us": 1.25 * len(rows), "dram_read_bytes": read, "dram_write_bytes": written,
        "dram_bytes": total}


def test_results_sums_need_kernels():
    assert results._derived({"outcome": "out of memory"}) == {}


def test_results_ceilings_and_floor_follow_from_the_records():
    copies = record.read(record.path(record.REFERENCE, "machine/copy"))["results"]
    best = max(result["minimum_bytes"] / result["call_us"]["median"] * 1e6 for result in copies) / 1e9
    assert results.copy_ceiling_gbps() == pytest.approx(best)
    assert 1e3 < best < 4.8e3  # an H200's memory peaks at 4.8 TB/s
    assert 100 < results.matmul_ceiling_tflops("bf16") < 990
    assert results.floor_us(Node(minimum_bytes=best * 1e3)) == pytest.approx(1.0)


def test_results_ceiling_that_was_not_measured_is_missing():
    with pytest.raises(Missing, match=r"machine/matmul has no measured case fp4_\.\.\. on nvidia-h200"):
        results.matmul_ceiling_tflops("fp4")


def test_results_samples_median():
    assert results.samples_median({"samples_us": [3, 1, 2]}) == 2


def keys(words: dict, above: str = "") -> set[str]:
    return {f"{above}{key}" for key in words} | {
        inner for key, word in words.items() if isinstance(word, dict) for inner in keys(word, f"{above}{key}/")}


def test_labels_are_the_same_in_both_languages():
    english, chinese = labels.WORDS["en"], labels.WORDS["zh"]
    assert keys(english) == keys(chinese)
    for key, text in english.items():
        if isinstance(text, str):
            assert text.count("{}") == chinese[key].count("{}"), key


def test_labels_word_fills_in_and_chooses(monkeypatch):
    assert labels.word("measured_on", "X") == "Measured on X" and labels.word("outcome", "unsupported") == "not supported"
    monkeypatch.setattr(page, "language", "zh")
    assert labels.word("measured_on", "X") == "测量于 X" and labels.word("outcome", "unsupported") == "不支持"
    with pytest.raises(KeyError):
        labels.word("no such label")


CLAIMS = """A page's claims.

>>> from harness.results import load
>>> chain = load("fusion/pointwise/chain")
>>> chain.fp16.eager.kernel_count
4
>>> chain.fp16.eager.kernel_count == 5
True
>>> chain.fp16.lazy
0
>>> 1 + 1
2
"""


@pytest.fixture
def page_claims(tmp_path, monkeypatch):
    """A page named `made` whose claims fail twice."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "claims.pycon").write_text(CLAIMS, encoding="utf-8")
    monkeypatch.setattr(claims, "SNIPPETS", tmp_path)


def test_claims_check_names_the_examples_that_fail(page_claims):
    attempted, failures = claims.check("made")
    assert attempted == 6
    assert failures[0] == "chain.fp16.eager.kernel_count == 5"
    assert failures[1].startswith("chain.fp16.lazy  (Missing: no 'lazy'; there are: eager, ")
    assert len(failures) == 2


def test_claims_check_reads_the_machine_that_it_is_asked_about(page_claims, monkeypatch):
    attempted, failures = claims.check("made", "nvidia-none")
    assert attempted == 6 and failures[0].startswith('chain = load("fusion/pointwise/chain")  (Missing: no record of')
    assert page.machine == record.REFERENCE


def test_claims_are_shown_with_what_fails(page_claims):
    html = claims.claims("made")
    assert "Checked in this build against the record of NVIDIA H200: 4 of 6 examples hold." in html
    assert "Does not hold on NVIDIA H200:" in html and "<code>chain.fp16.eager.kernel_count == 5</code>" in html


def test_claims_of_the_committed_pages_are_there():
    found = sorted(file.parent.relative_to(snippet.SNIPPETS).as_posix() for file in snippet.SNIPPETS.rglob("claims.pycon"))
    assert all(claims.check(name)[0] > 0 for name in found)
