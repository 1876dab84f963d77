"""The compiler's stages side by side: lines and their source lines are the record's, and kin is marked by mouse, touch and keys."""
from xml.etree import ElementTree

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness import snippet, stages
from harness.labels import WORDS
from harness.results import _nodes
from harness.state import page
from tests.figure_page import ASSETS, open_figure
from tests.test_browser import FAINT, SCHEMES, WIDTHS
from tests.test_browser import browser as chromium  # noqa: F401 (a fixture)
from tests.test_explorer import having

SCRIPT, STYLE = ASSETS / "js/stages.js", ASSETS / "css/stages.css"
LONG = [{"text": f"FFMA R{number}, R1, R2, R3 & <R4>", "from": ["2"] if number >= 60 else []} for number in range(80)]
RECORD = _nodes({"training": {"stages": {
    "source": [{"text": "def f(x):", "from": []}, {"text": "    y = x + 1", "from": ["1"]},
               {"text": "    return y * \"0.5\"", "from": ["2"]}],
    "forward": [{"text": "a: \"f16[8, 8]\"", "from": ["1"]}, {"text": "b = aten.add.Tensor(a, 1)  # f16[8, 8]", "from": ["1"]},
                {"text": "    c = aten.mul.Tensor(b, 0.5)", "from": ["2"]}, {"text": "return (c,)", "from": ["2"]}],
    "triton": [{"text": "def kernel(in_ptr0):", "from": []}, {"text": "    x0 = xindex % 8", "from": ["1", "2"]},
               {"text": "    tmp1 = tl.load(in_ptr0 + (x0), None)", "from": ["1"]}],
    "sass": LONG}}})
TITLES = {"en": {"forward": "A graph", "triton": "A kernel", "sass": "Machine code"},
          "zh": {"forward": "图", "triton": "一个 kernel", "sass": "机器码"}}
each_language = pytest.mark.parametrize("language", ("en", "zh"))


@pytest.fixture(autouse=True)
def page_state(monkeypatch):
    language = page.language
    monkeypatch.setattr(stages, "figure", lambda name, draw: draw(RECORD))
    yield
    page.language = language


def drawn(language: str = "en") -> ElementTree.Element:
    page.language = language
    return ElementTree.fromstring(f"<main>{stages.stages('fusion/compiler', 'training', TITLES)}</main>")


@each_language
def test_every_line_is_drawn_with_what_it_comes_from(language):
    root = drawn(language)
    recorded = [line for stage in TITLES[language] for line in RECORD.training.stages[stage]]
    lines = having(root, "stages__line")
    assert ["".join(line.itertext()).removesuffix("\n") for line in lines] == [line.text for line in recorded]
    assert [line.get("data-from") for line in lines] == [" ".join(line["from"]) or None for line in recorded]
    assert [part.get("aria-label") for part in having(root, "stages__stage")] == list(TITLES[language].values())


def test_source_lines_are_what_one_picks():
    buttons = list(having(drawn(), "stages__picks")[0])
    assert [button.get("data-from") for button in buttons] == ["1", "2"]
    assert ["".join(button.itertext()) for button in buttons] == ["1 y = x + 1", "2 return y * \"0.5\""]


def test_code_is_coloured_with_the_sites_classes():
    lines = having(drawn(), "stages__line")
    assert {("b", "n"), ("1", "mi"), ("# f16[8, 8]", "c1")} <= {(part.text, part.get("class")) for part in lines[1]}
    assert list(lines[-1]) == []  # machine code has no lexer


def test_words_are_the_pages():
    for language, other in (("en", "zh"), ("zh", "en")):
        html = ElementTree.tostring(drawn(language), encoding="unicode")
        assert all(text in html for text in WORDS[language]["stages"].values())
        assert not any(text in html for key, text in WORDS[other]["stages"].items() if key != "count")
    assert WORDS["en"]["stages"].keys() == WORDS["zh"]["stages"].keys()


def test_script_is_small_and_names_no_host():
    script, style = SCRIPT.read_text(encoding="utf-8"), STYLE.read_text(encoding="utf-8")
    assert len(script.splitlines()) < 80
    for word in ("http", "fetch(", "import", "url(", "innerHTML", "eval("):
        assert word not in script + style


def test_site_loads_script_and_style():
    config = (snippet.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "assets/js/stages.js" in config and "assets/css/stages.css" in config


@pytest.fixture
def visit(chromium, tmp_path):  # noqa: F811
    def opened(width: int = 1440, scheme: str = "light", language: str = "en", script: bool = True):
        page.language = language
        body = stages.stages("fusion/compiler", "training", TITLES)
        return open_figure(chromium, tmp_path, "stages", body, width, scheme, language, script)
    return opened


def marked(browser) -> list[int]:
    """How many lines are marked in each stage."""
    return browser.execute_script("return [...document.querySelectorAll('.stages__stage')].map((stage) => "
                                  "stage.querySelectorAll('.is-kin').length)")


def find(browser, selector: str):
    return browser.find_element(By.CSS_SELECTOR, selector)


def picks(browser):
    return browser.find_elements(By.CSS_SELECTOR, ".stages__picks button")


def said(browser) -> str:
    return find(browser, ".stages__said[aria-live=polite]").text


@each_language
def test_picking_a_line_marks_its_kin_and_counts_it(visit, language):
    browser = visit(language=language)
    first, second = picks(browser)
    assert marked(browser) == [0, 0, 0] and said(browser) == WORDS[language]["stages"]["hint"]
    first.click()
    assert marked(browser) == [2, 2, 0] and first.get_attribute("aria-pressed") == "true"
    counts = " · ".join(f"{title} {WORDS[language]['stages']['count'].format(n=n, all=count)}"
                        for title, n, count in zip(TITLES[language].values(), (2, 2, 0), (4, 3, 80), strict=True))
    assert said(browser) == WORDS[language]["stages"]["said"].format(counts)
    second.click()
    assert marked(browser) == [2, 1, 20] and first.get_attribute("aria-pressed") == "false"
    second.click()  # a second time takes it away
    browser.execute_script("document.activeElement.blur()")
    assert marked(browser) == [0, 0, 0]


def test_marked_lines_are_scrolled_to_within_their_stage(visit):
    browser = visit()
    before = browser.execute_script("return scrollY")
    picks(browser)[1].click()
    place = "const box = document.querySelectorAll('.stages__code')[2].getBoundingClientRect(), " \
            "line = document.querySelectorAll('.stages__stage')[2].querySelector('.is-kin').getBoundingClientRect()\n" \
            "return [line.top - box.top, box.bottom - line.bottom]"
    assert all(distance > 0 for distance in browser.execute_script(place))
    assert browser.execute_script("return scrollY") == before  # the page stays


def test_keys_are_enough(visit):
    browser = visit()
    picks(browser)[0].send_keys(Keys.NULL)
    assert marked(browser) == [2, 2, 0]  # the focus alone shows it
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert marked(browser) == [2, 1, 20]
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert picks(browser)[1].get_attribute("aria-pressed") == "true"
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert marked(browser) == [0, 0, 0] and said(browser) == WORDS["en"]["stages"]["hint"]
    reached = set()
    for _ in range(8):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(browser.switch_to.active_element.get_attribute("aria-label"))
    assert set(TITLES["en"].values()) <= reached  # each listing can be scrolled by keys


def test_pointing_at_a_line_marks_its_kin_while_it_lasts(visit):
    browser = visit()
    picks(browser)[1].click()
    browser.execute_script("document.activeElement.blur()")
    index = browser.find_elements(By.CSS_SELECTOR, ".stages__line")[5]  # of both source lines
    ActionChains(browser).move_to_element(index).perform()
    assert marked(browser) == [4, 2, 20]
    ActionChains(browser).move_to_element(find(browser, ".stages__said")).perform()
    assert marked(browser) == [2, 1, 20]


def test_stage_is_gone_to_on_a_phone(visit):
    browser = visit(375)
    browser.find_elements(By.CSS_SELECTOR, "[data-go]")[2].click()
    left, right = browser.execute_script("const part = document.querySelectorAll('.stages__stage')[2].getBoundingClientRect()\n"
                                         "return [part.left, part.right]")
    assert left >= -5 and right <= 380


def test_stages_read_without_scripts(visit):
    browser = visit(script=False)
    tops = browser.execute_script("return [...document.querySelectorAll('.stages__stage')].map((part) => part.getBoundingClientRect().top)")
    assert tops == sorted(set(tops)) and len(tops) == 3  # one below the other
    assert browser.execute_script("return getComputedStyle(document.querySelectorAll('.stages__line')[5], '::before').content") == '"1 2"'
    assert not find(browser, ".stages__go").is_displayed() and not picks(browser)[0].is_enabled()


@pytest.mark.parametrize(("width", "scheme"), [(width, scheme) for width in WIDTHS for scheme in SCHEMES])
@each_language
def test_stages_fit_and_are_readable(visit, language, width, scheme):
    browser = visit(width, scheme, language)
    picks(browser)[1].click()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = browser.execute_script("return [...document.querySelectorAll('.stages button')].map((one) => "
                                   "one.getBoundingClientRect()).map(({width, height}) => Math.min(width, height))")
    assert len(sizes) == 5 and min(sizes) >= 24  # WCAG 2.5.8
    seen, faint = browser.execute_script(FAINT, ".stages :is(button, p, code, code span)")
    assert seen > 60 and faint == []
