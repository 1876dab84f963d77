"""The online softmax stepper: what is drawn is what Python counts, the script counts alike, and it steps by mouse, touch and keys."""
import json
import math
import random
import re
from xml.etree import ElementTree

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness import snippet
from harness.labels import WORDS
from harness.state import page
from harness.stepper import PRESETS, SCORES, VALUES, number, stepper, steps, whole
from tests.figure_page import ASSETS, open_figure
from tests.test_browser import FAINT, SCHEMES, WIDTHS
from tests.test_browser import browser as chromium  # noqa: F401 (a fixture)
from tests.test_explorer import having

SCRIPT, STYLE = ASSETS / "js/stepper.js", ASSETS / "css/stepper.css"
SHOWN = ("scores", "top", "m", "factor", "l", "o", "scale", "mean")
each_language = pytest.mark.parametrize("language", ("en", "zh"))


def drawn(language: str = "en") -> ElementTree.Element:
    page.language = language
    return ElementTree.fromstring(f"<main>{stepper()}</main>")


def expected(scores) -> list[list[str]]:
    """The text of every cell, from Python's own steps."""
    def text(step: dict, key: str) -> str:
        return ", ".join(map(number, step[key])) if key == "scores" else number(step[key])
    return [[text(step, key) if key in step else "–" for key in SHOWN] for step in steps(scores)]


@each_language
def test_table_holds_every_step(language):
    root = drawn(language)
    rows = [["".join(cell.itertext()) for cell in row] for row in having(root, "stepper__step")]
    assert [row[1:] for row in rows] == expected(SCORES) and len(rows) == 4
    assert [part.text for part in root.iter("legend")] == [row[0] for row in rows[1:]]
    (result,) = [part for part in root.iter("strong") if part.get("data-key") == "whole"]
    assert result.text == number(whole(SCORES)) == rows[-1][-1]


def test_row_is_drawn_with_its_values():
    cells = having(drawn(), "stepper__cell")
    assert [float(next(cell.iter("input")).get("value")) for cell in cells] == list(SCORES)
    assert [tuple(map(float, cell.get("data-value").split())) for cell in cells] == list(VALUES)
    assert ["".join(next(cell.iter("small")).itertext()) for cell in cells] == [f"v {number(value)}" for value in VALUES]


def test_row_shows_each_kind_of_step():
    assert [step["factor"] for step in steps(SCORES)[1:]] == [0, math.exp(-1), 1]
    assert {len(scores) for scores in PRESETS.values()} == {12}


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (-0.0, "0"), (-1.5, "−1.5"), (1 / 3, "0.3333"), (-math.inf, "−∞"), (-1e-9, "0"), (1000.0, "1000"),
    ((1, -2.25), "(1, −2.25)")])
def test_numbers_are_written_short(value, text):
    assert number(value) == text


@each_language
def test_stepper_speaks_the_pages_language(language):
    html = ElementTree.tostring(drawn(language), encoding="unicode")
    other = {"en": "zh", "zh": "en"}[language]
    for key in ("title", "legend", "whole", "hint", "back", "next", "say_start", "say_step", "say_masked", "say_done"):
        assert WORDS[language]["stepper"][key] in html and WORDS[other]["stepper"][key] not in html


def test_script_is_small_and_names_no_host():
    script, style = SCRIPT.read_text(encoding="utf-8"), STYLE.read_text(encoding="utf-8")
    assert 2000 < len(script.encode()) < 6 * 1024
    for word in ("http", "fetch(", "import", "url(", "innerHTML", "eval("):
        assert word not in script + style
    assert not re.search(r"[\u4e00-\u9fff]", script)


def test_site_loads_script_and_style():
    config = (snippet.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "assets/js/stepper.js" in config and "assets/css/stepper.css" in config


@pytest.fixture
def visit(chromium, tmp_path):  # noqa: F811
    def opened(width: int = 1440, scheme: str = "light", language: str = "en", script: bool = True):
        page.language = language
        return open_figure(chromium, tmp_path, "stepper", stepper(), width, scheme, language, script)
    return opened


def find(browser, selector: str):
    return browser.find_element(By.CSS_SELECTOR, selector)


def shown(browser) -> list[list[str]]:
    return browser.execute_script("return [...document.querySelectorAll('.stepper__step')].map((row) => "
                                  "[...row.cells].slice(1).map((cell) => cell.textContent))")


def current(browser) -> tuple[int, int]:
    """The marked row of the table, and the marked block; 0 is none."""
    return tuple(browser.execute_script(
        "return ['.stepper__step', '.stepper__block'].map((part, i) => "
        "[...document.querySelectorAll(part)].findIndex((one) => one.classList.contains('is-here')) + i)"))


def said(browser) -> str:
    return find(browser, ".stepper__said[aria-live=polite]").text


def score(browser, place: int, text: str) -> None:
    field = find(browser, f"input[aria-label='score {place}']")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text)


def test_script_counts_as_python_does(visit):
    browser, chance = visit(), random.Random(0)
    rows = [[chance.choice([-math.inf, chance.uniform(-99, 99), chance.gauss(0, 1)]) for _ in SCORES] for _ in range(40)]
    rows += [list(map(float, scores)) for scores in PRESETS.values()]
    ask = "return JSON.stringify({} , (_, v) => typeof v === 'number' ? String(v) : v)"
    for scores in rows:
        given = [str(one).replace("inf", "Infinity") for one in scores]
        found = json.loads(browser.execute_script(
            ask.format("[Stepper.steps(arguments[0].map(Number), arguments[1], 4), Stepper.whole(arguments[0].map(Number), arguments[1])]"),
            given, VALUES))
        for mine, theirs in zip(steps(scores), found[0], strict=True):
            for key in mine:
                assert flat(theirs[key]) == pytest.approx(flat(mine[key]), rel=1e-12, abs=1e-13), key
        assert flat(found[1]) == pytest.approx(whole(scores), rel=1e-12, abs=1e-13)
    assert len(rows) > 40 and any(max(scores[:4]) == -math.inf for scores in rows)


def flat(value) -> list[float]:
    return list(map(float, value if isinstance(value, list | tuple) else [value]))


def test_script_writes_numbers_as_python_does(visit):
    browser, chance = visit(), random.Random(1)
    values = [0, -0.0, 1e-9, -1e-9, 0.5, -2.25, 1000, 123.45678, *(chance.uniform(-20, 20) for _ in range(200))]
    assert browser.execute_script("return arguments[0].map(Stepper.number)", values) == list(map(number, values))
    assert browser.execute_script("return Stepper.number(-Infinity)") == number(-math.inf)


def test_script_leaves_the_drawn_table_as_it_is(visit):
    assert shown(visit()) == expected(SCORES)


@each_language
def test_stepping_by_buttons_says_m_l_and_factor(visit, language):
    browser = visit(language=language)
    back, forward = browser.find_elements(By.CSS_SELECTOR, "[data-do]")
    assert current(browser) == (0, 0) and said(browser) == WORDS[language]["stepper"]["say_start"]
    for place, step in enumerate(steps(SCORES)[1:], 1):
        forward.click()
        assert current(browser) == (place, place)
        for text in (f"m = {number(step['m'])}", f"({number(step['old'])} − {number(step['m'])}) = {number(step['factor'])}",
                     f"= {number(step['l'])}"):
            assert text in said(browser)
    assert number(whole(SCORES)) in said(browser)
    forward.click()
    assert current(browser) == (3, 3) and forward.get_attribute("aria-disabled") == "true"
    back.click()
    assert current(browser) == (2, 2) and "{" not in said(browser)


def test_stepping_by_keys_spares_the_fields(visit):
    browser = visit()
    find(browser, "[data-do='1']").send_keys(Keys.ARROW_RIGHT * 5, Keys.ARROW_LEFT)
    assert current(browser) == (2, 2)
    find(browser, "input").send_keys(Keys.ARROW_RIGHT)
    assert current(browser) == (2, 2)


def test_stepping_by_touch(visit):
    browser = visit(width=375)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        for selector in ("[data-do='1']", "[data-do='1']", ".stepper__mask"):
            place = browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); const area = "
                                           "arguments[0].getBoundingClientRect(); return {x: area.x + area.width / 2, "
                                           "y: area.y + area.height / 2}", find(browser, selector))
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [place]})
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    assert current(browser) == (2, 2) and shown(browser) == expected((-math.inf, *SCORES[1:]))


def test_edited_score_is_counted_anew(visit):
    browser = visit()
    score(browser, 2, "-7.25")
    score(browser, 11, "8")
    scores = [*SCORES[:1], -7.25, *SCORES[2:10], 8.0, *SCORES[11:]]
    assert shown(browser) == expected(scores)
    assert find(browser, "[data-key=whole]").text == number(whole(scores))
    assert [button.get_attribute("aria-pressed") for button in browser.find_elements(By.CSS_SELECTOR, "[data-scores]")].count("true") == 0


def test_half_typed_score_changes_nothing_and_comes_back(visit):
    browser = visit()
    score(browser, 1, "-")
    assert shown(browser) == expected(SCORES)
    find(browser, "input[aria-label='score 1']").send_keys(Keys.TAB)
    assert find(browser, "input[aria-label='score 1']").get_attribute("value") == "1"
    score(browser, 1, "99999999")
    assert shown(browser) == expected((9999.0, *SCORES[1:]))


def test_masking_a_score_and_back(visit):
    browser = visit()
    mask = find(browser, "[aria-label='mask score 6']")
    mask.click()
    assert shown(browser) == expected((*SCORES[:5], -math.inf, *SCORES[6:]))
    assert mask.get_attribute("aria-pressed") == "true" and find(browser, "input[aria-label='score 6']").get_attribute("value") == ""
    mask.click()
    assert shown(browser) == expected(SCORES) and find(browser, "input[aria-label='score 6']").get_attribute("value") == "3"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_loaded_and_end_as_the_whole_row(visit, name):
    browser = visit()
    button = browser.find_elements(By.CSS_SELECTOR, "[data-scores]")[list(PRESETS).index(name)]
    button.click()
    scores = list(map(float, PRESETS[name]))
    assert shown(browser) == expected(scores) and button.get_attribute("aria-pressed") == "true"
    assert shown(browser)[-1][-1] == find(browser, "[data-key=whole]").text == number(whole(scores))
    for _ in range(3):
        find(browser, "[data-do='1']").click()
        assert "NaN" not in said(browser) and "{" not in said(browser)
    if name == "all_masked":
        assert WORDS["en"]["stepper"]["say_masked"].format(block=3) in said(browser)


def test_stepper_reads_without_scripts(visit):
    browser = visit(script=False)
    assert shown(browser) == expected(SCORES)
    assert [field.get_attribute("readonly") for field in browser.find_elements(By.TAG_NAME, "input")] == ["true"] * 12
    assert [part for part in browser.find_elements(By.CSS_SELECTOR, ".stepper button, .stepper__hint") if part.is_displayed()] == []


@pytest.mark.parametrize(("width", "scheme"), [(width, scheme) for width in WIDTHS for scheme in SCHEMES])
@each_language
def test_stepper_fits_and_is_readable(visit, language, width, scheme):
    browser = visit(width, scheme, language)
    for selector in ("[data-do='1']", ".stepper__mask"):
        find(browser, selector).click()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = browser.execute_script("return [...document.querySelectorAll('.stepper :is(button, input)')].map((one) => "
                                   "one.getBoundingClientRect()).map(({width, height}) => Math.min(width, height))")
    assert len(sizes) > 30 and min(sizes) >= 24  # WCAG 2.5.8
    seen, faint = browser.execute_script(FAINT, ".stepper :is(button:not([aria-disabled=true]), td, th, p, small, legend, input)")
    assert seen > 60 and faint == []
