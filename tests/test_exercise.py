"""The checks of the exercises: what a typed answer means, what is right, and that the script judges each case as Python does."""
import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness import exercise, snippet
from harness.exercise import PARTS, choice, count_right, match, note, number, order, parse, progress, verdict
from harness.labels import WORDS
from harness.state import page
from tests.test_browser import browser as chromium  # noqa: F401 (a fixture)

ASSETS = snippet.ROOT / "overrides/assets"
SCRIPT, STYLE = ASSETS / "js/exercise.js", ASSETS / "css/exercise.css"
NUMBERS = {"12": 12, " 12.50 ": 12.5, "1e3": 1000, "1.5E-3": .0015, "+7": 7, "-7": -7, "−7": -7, ".5": .5, "5.": 5, "1,234.5": 1234.5,
           "1,234,567": 1234567, "1 234 567": 1234567, "1_000": 1000, "12,345": 12345, "１０２４": 1024, "１，０２４．５": 1024.5,
           "1\u00a0000": 1000, "1\u202f000": 1000, "2,147e3": 2147000, "0": 0, "-0": 0, "007": 7}
NONE = ("", " ", "1,5", "12,34", "1,2345", "1234,567", "1,000 000", "1.000,5", "1.2.3", "12 MB", "e5", ".", "-", "--1", "1e", "1e1.5",
        "0x10", "inf", "nan", "1e999", "-1e999", "∞", "½", "٣", "ten", "1 2", "1__000", ",500", "1,000,")
ANSWERS = [("number", given, answer, tolerance, found) for given, answer, tolerance, found in (
    ("100", 100, 0, "right"), ("101", 100, .01, "right"), ("99", 100, .01, "right"), ("101.01", 100, .01, "high"),
    ("98.9", 100, .01, "low"), ("-99", -100, .01, "right"), ("-102", -100, .01, "low"),
    ("0", 0, .5, "right"), ("0.001", 0, .5, "high"), ("1e3", 1000, .001, "right"),
    ("2,147", 2147.5, .001, "right"), ("0.135", .1353352832366127, .01, "right"), ("1,35", 1.35, .01, "unreadable"), ("", 5, .1, "empty"),
    ("  ", 5, .1, "empty"), ("five", 5, .1, "unreadable"))] + [
    ("list", given, answer, 0, found) for given, answer, found in (
        (["a"], ["a"], "right"), (["b"], ["a"], "wrong"), ([""], ["a"], "empty"), (["a", "b", "c"], ["a", "b", "c"], "right"),
        (["a", "c", "b"], ["a", "b", "c"], "wrong"), (["d", "a", "d"], ["d", "a", "d"], "right"), (["a", ""], ["a", "b"], "empty"))]
BOTH = {"en": "Which `one`?", "zh": "哪个 `one`？"}
OPTIONS = {"a": {"en": "first", "zh": "甲"}, "b": {"en": "second", "zh": "乙"}, "c": {"en": "third", "zh": "丙"}}
each_language = pytest.mark.parametrize("language", ("en", "zh"))


def checks() -> dict[str, str]:
    """One of each kind."""
    return {"number": number("traffic.eager", BOTH, 2147.48, "MB"), "choice": choice("kernels.fused", BOTH, OPTIONS, "b", BOTH),
            "order": order("path.order", BOTH, ["a", "b", "a", "c"], OPTIONS),
            "match": match("risks.cases", BOTH, [(OPTIONS["a"], "b"), (OPTIONS["b"], "a")], OPTIONS)}


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_typed_number_is_read(text, value):
    assert parse(text) == value


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number_is_refused(text):
    assert parse(text) is None


@pytest.mark.parametrize(("kind", "given", "answer", "tolerance", "found"), ANSWERS)
def test_answer_is_judged(kind, given, answer, tolerance, found):
    assert verdict(given, answer, tolerance) == found


def test_right_places_are_counted():
    assert [count_right(given, list("abc")) for given in (list("abc"), list("acb"), list("bca"))] == [3, 1, 0]


def test_script_judges_as_python_does(chromium, tmp_path):  # noqa: F811
    blank = tmp_path / "page.html"
    blank.write_text(f"<!doctype html><meta charset='utf-8'><script>{SCRIPT.read_text(encoding='utf-8')}</script>", encoding="utf-8")
    chromium.get(blank.as_uri())
    chance = random.Random(0)
    texts = [*NUMBERS, *NONE, *("".join(chance.choices("0123456789,. _eE+-−", k=chance.randint(1, 9))) for _ in range(3000))]
    assert chromium.execute_script("return arguments[0].map(Answer.parse)", texts) == [parse(text) for text in texts]
    assert 200 < sum(parse(text) is not None for text in texts) < len(texts)
    cases = [(given, answer, tolerance) for _, given, answer, tolerance, _ in ANSWERS]
    cases += [(str(chance.uniform(.97, 1.03) * 4.2), 4.2, tolerance) for tolerance in (0, .01, .02) for _ in range(200)]
    cases += [(chance.sample("abcd", 4), list("abcd"), 0) for _ in range(100)]
    assert chromium.execute_script("return arguments[0].map((one) => Answer.verdict(...one))", cases) == [verdict(*case) for case in cases]
    lists = [case[:2] for case in cases if isinstance(case[1], list)]
    counted = chromium.execute_script("return arguments[0].map((one) => Answer.countRight(...one))", lists)
    assert counted == [count_right(*one) for one in lists] and len(lists) > 100


@each_language
def test_checks_are_drawn_in_the_pages_language(language):
    page.language = language
    other = {"en": "zh", "zh": "en"}[language]
    for kind, html in checks().items():
        root = ElementTree.fromstring(str(html).replace("&nbsp;", " "))
        assert root.get("data-kind") == kind and json.loads(root.get("data-say")) == WORDS[language]["exercise"]["say"]
        assert "<code>one</code>" in html and WORDS[language]["exercise"]["needs"] in html and WORDS[other]["exercise"]["needs"] not in html


def test_answer_is_in_the_page_once_and_for_the_script():
    roots = {kind: ElementTree.fromstring(str(html)) for kind, html in checks().items()}
    assert {kind: json.loads(root.get("data-answer")) for kind, root in roots.items()} == {
        "number": 2147.48, "choice": ["b"], "order": ["a", "b", "a", "c"], "match": ["b", "a"]}
    told = {kind: "".join(next(root.iter("details")).itertext()) for kind, root in roots.items()}
    assert "2,147 MB" in told["number"] and "second" in told["choice"] and "first → second" in told["match"]
    assert re.findall(r"first|second|third", told["order"]) == ["first", "second", "first", "third"]


def test_steps_are_mixed_the_same_way_each_time():
    steps = list("abcdefgh")
    labels = {step: {"en": step, "zh": step} for step in steps}
    roots = [ElementTree.fromstring(str(order("path.order", BOTH, steps, labels))) for _ in range(2)]
    drawn = [[one.get("data-key") for one in root.iter("li") if one.get("data-key")] for root in roots]
    assert drawn[0] == drawn[1] and sorted(drawn[0]) == steps and count_right(drawn[0], steps) <= 2


def test_unknown_check_is_refused():
    with pytest.raises(KeyError, match="traffic.nothing"):
        number("traffic.nothing", BOTH, 1)
    with pytest.raises(ValueError, match="nothing"):
        note("nothing")


@each_language
def test_progress_names_every_check(language):
    page.language = language
    items = list(ElementTree.fromstring(str(progress("exercises/"))).iter("li"))
    named = [[f"{part}.{check}" for check in names] for part, names in PARTS.items()]
    assert [json.loads(item.get("data-checks")) for item in items] == named
    assert [next(item.iter("a")).get("href") for item in items] == [f"exercises/#{part}" for part in PARTS]
    assert list(WORDS[language]["exercise"]["parts"]) == list(PARTS)


@each_language
def test_page_has_every_check_and_note(language):
    text = (snippet.ROOT / "docs" / language / "exercises/index.md").read_text(encoding="utf-8")
    used = re.findall(r'(?:number|choice|order|match)\("(\w+\.\w+)"', text)
    assert used == [f"{part}.{check}" for part, names in PARTS.items() for check in names]
    assert re.findall(r'note\("(\w+)"\)', text) == list(PARTS)
    headings = re.findall(r"^## \d\. (.*) \{ #(\w+) \}$", text, re.M)
    assert {part: title for title, part in headings} == WORDS[language]["exercise"]["parts"]
    hints = re.findall(r'^\?\?\? (?:tip|success) "(.*)"$', text, re.M)
    assert len(hints) == 3 * len(PARTS) and len(set(hints)) == 3


def test_script_is_small_and_sends_nothing():
    script, style = SCRIPT.read_text(encoding="utf-8"), STYLE.read_text(encoding="utf-8")
    assert 4000 < len(script.encode()) < 9 * 1024 and script.count("\n") < 150
    for name in ("http", "fetch(", "XMLHttp", "sendBeacon", "cookie", "import", "url(", "innerHTML", "eval("):
        assert name not in script + style
    assert script.count("localStorage.setItem(Kept.key,") == 1 and not re.search(r"[\u4e00-\u9fff]", script)


def test_harness_needs_no_torch():
    assert "import torch" not in Path(exercise.__file__).read_text(encoding="utf-8")
