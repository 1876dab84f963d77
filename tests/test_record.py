"""A record goes in whole or not at all, and comes out only if it is what was measured."""
import copy
import json
import os
from pathlib import Path

import pytest

from harness import record, snippet

NAME = "fusion/pointwise/chain"
COMMITTED = sorted(path.relative_to(record.RESULTS).with_suffix("").as_posix() for path in record.RESULTS.rglob("*.json"))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder of results."""
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def good():
    """A small good record: the reference's, with one result."""
    content = record.read(snippet.ROOT / "results" / record.REFERENCE / f"{NAME}.json")
    content["results"] = content["results"][:1]
    del content["checksum"], content["schema"]
    return copy.deepcopy(content)


def file_of(results: Path) -> Path:
    return results / record.REFERENCE / f"{NAME}.json"


def placed(results: Path, content: dict, resign: bool = True) -> Path:
    """The content put in place as a stranger would, with a checksum that fits it unless told otherwise."""
    file = file_of(results)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"schema": 1, **content}
    if resign:
        content["checksum"] = record.checksum(content)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", COMMITTED)
def test_record_committed_reads(name):
    content = record.read(record.RESULTS / f"{name}.json")
    assert f"{content['machine']['name']}/{content['snippet']}" == name


def test_record_committed_exists_of_every_snippet_kind():
    kinds = [record.read(record.RESULTS / f"{name}.json")["kind"] for name in COMMITTED]
    assert kinds.count("comparison") >= 5 and kinds.count("capture") >= 1


def test_record_round_trips(results, good):
    record.write(good, file_of(results))
    content = record.read(file_of(results))
    assert content == {"schema": 1, **good, "checksum": record.checksum({"schema": 1, **good})}
    assert [path.name for path in file_of(results).parent.iterdir()] == ["chain.json"]


def test_record_write_scrubs(results, good):
    good["results"][0]["kernels"][0]["name"] = "kernel of /home/bob/x.py"
    record.write(good, file_of(results))
    assert record.read(file_of(results))["results"][0]["kernels"][0]["name"] == "kernel of x.py"


def test_record_of_one_sample_is_its_own_median():
    assert record.summarise([2.5]) == {"median": 2.5, "q1": 2.5, "q3": 2.5, "samples": [2.5]}
    assert record.summarise([1, 2, 3, 4]) == {"median": 2.5, "q1": 1.75, "q3": 3.25, "samples": [1, 2, 3, 4]}


def test_record_names_a_figure_edited_by_hand(results, good):
    record.write(good, file_of(results))
    content = json.loads(file_of(results).read_text(encoding="utf-8"))
    content["results"][0]["call_us"]["median"] /= 2
    placed(results, content, resign=False)
    with pytest.raises(record.RecordError, match="checksum differs: /results/fp16/eager/call_us/median was edited by hand"):
        record.read(file_of(results))


def test_record_refuses_a_figure_that_its_samples_do_not_give(results, good):
    good["results"][0]["enqueue_us"]["q3"] += 1
    with pytest.raises(record.RecordError, match="/results/fp16/eager/enqueue_us/q3 does not follow from its samples"):
        record.read(placed(results, good))


def result(content: dict) -> dict:
    return content["results"][0]


WRONG = {
    "negative time": (lambda c: result(c)["call_us"].update(median=-1.0), "call_us/median"),
    "absurd time": (lambda c: result(c)["call_us"].update(median=1e12), "call_us/median"),
    "absurd size": (lambda c: result(c)["memory"].update(peak_extra_bytes=10**400), "memory/peak_extra_bytes"),
    "negative size": (lambda c: result(c).update(minimum_bytes=-1), "minimum_bytes"),
    "absurd error": (lambda c: result(c)["error"].update(max_abs=10**400), "error/max_abs"),
    "unknown key": (lambda c: result(c).update(note="x"), "'note' was unexpected"),
    "unknown key at the top": (lambda c: c.update(note="x"), "'note' was unexpected"),
    "wrong is no outcome": (lambda c: result(c).update(outcome="wrong"), "at results/0"),
    "measured without kernels": (lambda c: result(c).pop("kernels"), "'kernels' is a required property"),
    "results and data": (lambda c: c.update(data={}), "is valid under each of"),
    "neither results nor data": (lambda c: c.pop("results"), "not valid under any"),
    "machine name": (lambda c: c["machine"].update(name="../up"), "machine/name"),
    "clock": (lambda c: c["machine"].update(sm_clock_max_mhz=10**400), "sm_clock_max_mhz"),
    "commit": (lambda c: c.update(commit="main"), "commit"),
}


@pytest.mark.parametrize("what", WRONG)
def test_record_refuses_what_the_schema_does_not_allow(results, good, what):
    change, told = WRONG[what]
    change(good)
    with pytest.raises(record.RecordError, match=told):
        record.read(placed(results, good))


@pytest.mark.parametrize("data", [None, [], "text"])
def test_record_refuses_a_capture_that_is_not_keyed(results, good, data):
    del good["results"]
    with pytest.raises(record.RecordError, match="data"):
        record.read(placed(results, good | {"data": data}))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_record_refuses_what_is_no_number(results, good, number):
    text = placed(results, good).read_text(encoding="utf-8")
    median = f'"median": {result(good)["call_us"]["median"]}'
    assert median in text
    for key in (median, '"date": '):  # in a figure, and anywhere
        file_of(results).write_text(text.replace(key, f'"median": {number}' if key == median else f'"x": {number}, {key}'),
                                    encoding="utf-8")
        with pytest.raises(record.RecordError, match="NaN or an infinity"):
            record.read(file_of(results))


@pytest.mark.parametrize(("text", "told"), [
    ("{", "not JSON"), ("[]", "is not of type 'object'"), ("[" * 100_000, "not JSON"), ("\udcff", "not JSON"),
    ('{"data": ' + '{"a":' * 900 + "1" + "}" * 901, "."),
])
def test_record_refuses_what_is_not_a_record(results, text, told):
    file_of(results).parent.mkdir(parents=True)
    file_of(results).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(record.RecordError, match=told):
        record.read(file_of(results))


def test_record_refuses_a_file_that_is_too_large(results, good):
    file = placed(results, good)
    with file.open("ab") as out:
        out.write(b" " * record.MAX_BYTES)
    with pytest.raises(record.RecordError, match="larger than 8388608 bytes"):
        record.read(file)


@pytest.mark.parametrize("summary", [{"samples": "abc", "median": 1}, {"samples": [], "median": 1}, {"samples": [1], "median": None}])
def test_record_takes_a_captures_own_samples_as_they_are(results, good, summary):
    del good["results"]
    data = {"runs": [summary, {"variant": "without a case"}]}
    assert record.read(placed(results, good | {"kind": "capture", "data": data}))["data"] == data


@pytest.mark.parametrize("private", ["/home/bob/x.py", "C:\\Users\\bob", "GPU-1a2b3c4d-0011-2233-4455-66778899aabb"])
def test_record_refuses_a_private_string(results, good, private):
    result(good)["kernels"][0]["name"] = f"kernel {private}"
    with pytest.raises(record.RecordError, match="names the machine that ran it"):
        record.read(placed(results, good))


def test_record_refuses_to_stand_for_another_machine_or_snippet(results, good):
    good["machine"]["name"] = "nvidia-h100"
    with pytest.raises(record.RecordError, match="is of fusion/pointwise/chain on nvidia-h100"):
        record.read(placed(results, good))


@pytest.fixture
def earlier(results, good):
    """A good record in place, as bytes."""
    record.write(good, file_of(results))
    return file_of(results).read_bytes()


def unchanged(results: Path, earlier: bytes) -> bool:
    return file_of(results).read_bytes() == earlier and len(list(file_of(results).parent.iterdir())) == 1


@pytest.mark.parametrize("median", [-1.0, float("nan"), float("inf")])
def test_record_write_of_a_bad_one_leaves_the_earlier(results, good, earlier, median):
    result(good)["call_us"]["median"] = median
    with pytest.raises(record.RecordError):
        record.write(good, file_of(results))
    assert unchanged(results, earlier)


def test_record_write_that_fails_leaves_the_earlier_and_no_temporary_file(results, good, earlier, monkeypatch):
    def full(*paths):
        raise OSError("no space left on device")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        record.write(good | {"date": "2030-01-01"}, file_of(results))
    assert unchanged(results, earlier)


def test_record_freshness_tells_its_four_states(results, good):
    assert record.freshness(NAME, record.REFERENCE) == "missing"
    good["digest"] = snippet.digest(NAME)
    record.write(good | {"date": "2001-01-01"}, file_of(results))  # a date never counts
    assert record.freshness(NAME, record.REFERENCE) == "fresh"
    assert record.freshness(NAME, record.REFERENCE, good["machine"]) == "fresh"
    for key in ("gpu", "driver", "cuda", "cudnn", "torch", "triton"):
        assert record.freshness(NAME, record.REFERENCE, good["machine"] | {key: "9"}) == "other environment"
    assert record.freshness(NAME, record.REFERENCE, good["machine"] | {"sm_clock_found_mhz": 9, "python": "3.9"}) == "fresh"
    record.write(good | {"digest": "sha256:" + "0" * 64}, file_of(results))
    assert record.freshness(NAME, record.REFERENCE, good["machine"]) == "stale"


def test_record_machines_begin_with_the_reference(results):
    for name in ("a-card", record.REFERENCE, "z-card"):
        (results / name).mkdir()
    (results / "README.md").write_text("")
    assert record.machines() == [record.REFERENCE, "a-card", "z-card"]
