"""The trace explorer: what is drawn is what was recorded, and it can be explored by mouse, touch and keys, or read without scripts."""
import copy
from pathlib import Path
from xml.etree import ElementTree

import material
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness import record, results, show, snippet
from harness.explorer import HALVES, explorer, readable
from harness.labels import WORDS
from harness.state import page
from tests.test_browser import FAINT, SCHEMES, WIDTHS, resize, wait
from tests.test_browser import browser as chromium  # noqa: F401 (a fixture)

ASSETS = snippet.ROOT / "overrides/assets"
SCRIPT, STYLE = ASSETS / "js/explorer.js", ASSETS / "css/explorer.css"
NAMED = {"light": "default", "dark": "slate"}
PAGE = """<!doctype html><html lang="{language}"><head><meta charset="utf-8"><style>{style}</style></head>
<body dir="ltr" data-md-color-scheme="{scheme}" data-md-color-primary="indigo"><div class="md-container"><main class="md-main">
<div class="md-main__inner md-grid"><div class="md-content"><article class="md-content__inner md-typeset" style="max-width: 690px">
{body}</article></div></div></main></div><script>{script}</script></body></html>"""
SVG = "{http://www.w3.org/2000/svg}"
each_language = pytest.mark.parametrize("language", ("en", "zh"))
each_window = pytest.mark.parametrize(("width", "scheme"), [(width, scheme) for width in WIDTHS for scheme in SCHEMES])
# Bars and ticks of less than 3:1 to the page, from computed colours.
PALE = """
const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
  .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
const rgb = (colour) => { brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1); return [...brush.getImageData(0, 0, 1, 1).data].join() }
const back = light(rgb(getComputedStyle(document.body).getPropertyValue("--md-default-bg-color")))
return [...document.querySelectorAll(".explorer__event")].map((event) => light(rgb(getComputedStyle(event).stroke)))
  .map((edge) => (Math.max(edge, back) + .05) / (Math.min(edge, back) + .05)).filter((ratio) => !(ratio >= 3))
"""
# What is wider than the window and in no box that scrolls.
BROAD = """
return [...document.querySelectorAll("body *")].filter((part) => !part.closest(".explorer__half, table") && part.checkVisibility())
  .filter((part) => part.getBoundingClientRect().right > innerWidth).map((part) => part.outerHTML.slice(0, 80))
"""
# Labels of one drawing that lie on one another.
CROWDED = """
const found = []
for (const drawing of document.querySelectorAll(".explorer__svg")) {
  const boxes = [...drawing.querySelectorAll("text")].filter((text) => text.checkVisibility())
    .map((text) => [text, text.getBoundingClientRect()])
  for (const [i, [text, box]] of boxes.entries())
    for (const [other, area] of boxes.slice(0, i))
      if (box.left < area.right && area.left < box.right && box.top + 3 < area.bottom && area.top + 3 < box.bottom)
        found.push(`${text.textContent} on ${other.textContent}`)
}
return found
"""


@pytest.fixture(autouse=True)
def page_state():
    language = page.language
    yield
    page.language = language


def data() -> dict:
    return record.read(record.path(record.REFERENCE, "path/trace"))["data"]


def trace() -> dict:
    return data()["timeline"]


def drawn(language: str = "en", **options) -> ElementTree.Element:
    page.language = language
    return ElementTree.fromstring(f"<main>{explorer(**options)}</main>")


def having(root, name: str) -> list:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


@each_language
def test_explorer_draws_every_event_once_to_one_scale(language):
    halves = having(drawn(language), "explorer__half")
    assert [half.get("data-half") for half in halves] == list(HALVES)
    scales, bars = [], 0
    for half, recorded in zip(halves, trace().values(), strict=True):
        for event, raw in zip(having(half, "explorer__event"), recorded, strict=True):
            assert f"explorer--{raw['lane'].lower()}" in event.get("class")
            assert readable(raw) in event[0].text
            if raw["lane"] != "allocator":
                bar = event.find(f"{SVG}rect")
                scales += [raw["start_us"] / percent(bar.get("x"))] if raw["start_us"] else []
                assert percent(bar.get("width")) == pytest.approx(raw["duration_us"] / scales[0] if scales else 0, abs=.01) or not scales
                bars += 1
    assert bars > 60 and max(scales) == pytest.approx(min(scales), rel=.001)


@each_language
def test_explorer_table_holds_every_event(language):
    table = next(drawn(language).iter("table"))
    for body, recorded in zip(table.findall("tbody"), trace().values(), strict=True):
        rows = having(body, "explorer__row")
        for row, raw in zip(rows, recorded, strict=True):
            cells = ["".join(cell.itertext()) for cell in row]
            assert cells[1].endswith(raw["name"])
            assert cells[4] == (f"{raw['bytes']:,}" if "bytes" in raw else "–")
            assert cells[6] == (" × ".join(map(str, raw["grid"])) if "grid" in raw else "–")
            assert cells[8:] == [str(raw.get("registers", "–")), str(raw.get("correlation", "–"))]


def test_explorer_ties_every_launch_to_its_kernel():
    count = 0
    for half, recorded in zip(having(drawn(), "explorer__half"), trace().values(), strict=True):
        tied = {(int(arrow.get("data-from")), int(arrow.get("data-to"))) for arrow in having(half, "explorer__arrow")}
        kernels = {raw["correlation"]: index for index, raw in enumerate(recorded) if raw["lane"] == "GPU"}
        expected = {(index, kernels[raw["correlation"]]) for index, raw in enumerate(recorded)
                    if raw["lane"] == "launch" and raw.get("correlation") in kernels}
        assert tied == expected and len(kernels) == len(expected)
        events = having(half, "explorer__event")
        for launch, kernel in tied:
            assert events[launch].get("data-pair") == str(kernel) and events[kernel].get("data-pair") == str(launch)
        count += len(tied)
    assert count == 9


def test_explorer_gives_nested_events_rows_of_their_own():
    below = 0
    for half in having(drawn(), "explorer__half"):
        bars = [(event.get("data-track"), float(bar.get("y")), float(event.get("data-from")), float(event.get("data-to")))
                for event in having(half, "explorer__event") for bar in event.findall(f"{SVG}rect")]
        for i, (track, y, begin, end) in enumerate(bars):
            for other, other_y, other_begin, other_end in bars[:i]:
                if track == other and begin < other_end and other_begin < end:
                    assert y > other_y
                    below += 1
    assert below > 20


@each_language
def test_explorer_unfolds_two_operators_by_layer(language):
    root = drawn(language)
    stacks = having(root, "explorer__stack")
    assert [stack.get("data-frames") for stack in stacks] == ["aten::add", "aten::gelu"]
    for stack, event in zip(stacks, data()["allocations"]["requires_grad"], strict=True):
        assert ["".join(name.itertext()) for name in having(stack, "raw")] == [frame["name"] for frame in event["frames"]]
        layers = ["".join(group.find("strong").itertext()) for group in having(stack, "frames__group")]
        assert layers == ["Python", "binding", "dispatcher", "autograd", "dispatcher", "ATen", "allocator"]
    eager = having(having(root, "explorer__half")[0], "explorer__event")
    for name in ("aten::add", "aten::gelu"):
        tracks = sorted(event.get("data-track") for event in eager if event.get("data-frames") == name)
        assert tracks == ["ATen", "GPU", "allocator", "launch"]


def test_explorer_escapes_names(monkeypatch):
    content = copy.deepcopy(record.read(record.path(record.REFERENCE, "path/trace")))
    hostile = "</title><script>alert(1)</script>\" onload='alert(2)' <b>"
    for half in content["data"]["timeline"].values():
        for event in half:
            event["name"] = event["name"] if event["lane"] == "allocator" else hostile
    for frame in content["data"]["allocations"]["requires_grad"][0]["frames"]:
        frame |= {"name": hostile, "short": hostile, "file": hostile + ".py"}
    monkeypatch.setattr(show, "load", lambda name, machine=None: results.tree(content))
    for small in (False, True):
        html = explorer(small=small)
        assert "<script" not in html and "&lt;script&gt;" in html
        root = ElementTree.fromstring(f"<main>{html}</main>")
        assert not [element for element in root.iter() if element.get("onload") or element.tag == "script"]


@each_language
def test_explorer_speaks_the_pages_language(language):
    text = " ".join(drawn(language).itertext())
    other = {"en": "zh", "zh": "en"}[language]
    for key, said in WORDS[language]["explorer"].items():
        assert key in ("title", "show", "zoom", "in", "out", "caption", "pinned") or said in text, key
        if said != WORDS[other]["explorer"][key] and len(said) > 12:
            assert WORDS[other]["explorer"][key] not in text


@each_language
def test_small_explorer_is_the_forward_pass_alone(language):
    root = drawn(language, small=True)
    figure = having(root, "explorer")[0]
    assert "explorer--small" in figure.get("class")
    assert [half.get("data-half") for half in having(root, "explorer__half")] == list(HALVES)
    assert not [element.tag for element in figure.iter() if element.tag in ("table", "details", "button", "a")]
    names = [[event[0].text for event in having(half, "explorer__event")] for half in having(root, "explorer__half")]
    assert list(map(len, names)) == [9, 11] and not [name for half in names for name in half if "ackward" in name]
    drawings = having(root, "explorer__svg")
    assert [drawing.get("role") for drawing in drawings] == ["img", "img"]
    assert "CUDAFunctor_add" in drawings[0][1].text and "triton_poi_fused_add_gelu_0" in drawings[1][1].text


def test_drawing_says_what_it_shows():
    for drawing, recorded in zip(having(drawn(), "explorer__svg"), trace().values(), strict=True):
        assert drawing.get("role") == "img" and [part.tag for part in drawing[:2]] == [f"{SVG}title", f"{SVG}desc"]
        assert str(len(recorded)) in drawing[0].text
        assert [raw["name"] for raw in recorded if raw["lane"] in ("Python", "GPU") and readable(raw) not in drawing[1].text] == []


def test_script_is_small_and_names_no_host():
    script, style = SCRIPT.read_text(encoding="utf-8"), STYLE.read_text(encoding="utf-8")
    assert 2000 < len(script.encode()) < 12 * 1024
    for word in ("http", "fetch(", "import", "url(", "innerHTML", "eval("):
        assert word not in script + style


def test_pages_with_the_figure_load_the_script(built_site):
    found = 0
    for file in built_site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        if 'class="explorer' in text:
            assert "assets/js/explorer.js" in text and "assets/css/explorer.css" in text, file
            found += 1
    assert found >= 2


@pytest.fixture
def visit(chromium, tmp_path):  # noqa: F811
    """Opens a page that holds the figure alone, in Material's styles and ours."""
    sheets = Path(material.__file__).parent / "templates/assets/stylesheets"
    styles = [next(sheets.glob("main.*.min.css")), next(sheets.glob("palette.*.min.css")), ASSETS / "css/site.css", STYLE]
    style = "".join(sheet.read_text(encoding="utf-8") for sheet in styles)

    def opened(width: int = 1440, scheme: str = "light", language: str = "en", body: str | None = None):
        page.language = language
        file = tmp_path / "page.html"
        file.write_text(PAGE.format(language=language, scheme=NAMED[scheme], style=style, script=SCRIPT.read_text(encoding="utf-8"),
                                    body=explorer() if body is None else body), encoding="utf-8")
        resize(chromium, width)
        chromium.get(file.as_uri())
        assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
        return chromium
    return opened


def event(browser, half: str, text: str):
    """The first event of a half whose title has that text."""
    return browser.execute_script("return [...document.querySelectorAll(`[data-half=${arguments[0]}] .explorer__event`)]"
                                  ".find((event) => event.querySelector('title').textContent.includes(arguments[1]))", half, text)


def centre(browser, element) -> dict:
    """Where an event is in the window, once scrolled to."""
    return browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'nearest'}); const area = "
                                  "arguments[0].querySelector('rect, path').getBoundingClientRect(); "
                                  "return {x: area.x + Math.min(area.width / 2, 30), y: area.y + area.height / 2}", element)


def panel(browser) -> str:
    return browser.find_element(By.CSS_SELECTOR, ".explorer__facts").text


def focused(browser) -> str:
    return browser.execute_script("return document.activeElement.querySelector('title')?.textContent")


def press(browser, *keys: str) -> None:
    ActionChains(browser, duration=0).send_keys(*keys).perform()


def scale(browser) -> float:
    """Pixels of the first eager kernel's bar."""
    return browser.execute_script("return document.querySelector('[data-half=eager] .explorer--gpu rect').getBoundingClientRect().width")


@each_window
def test_mouse_selects(visit, width, scheme):
    browser = visit(width, scheme)
    launch = event(browser, "eager", "cudaLaunchKernel")
    for _ in range(2):  # again after Escape, which leaves the focus where it is
        press(browser, Keys.ESCAPE)
        assert panel(browser) == ""
        click = {"button": "left", "clickCount": 1, **centre(browser, launch)}
        for kind in ("mousePressed", "mouseReleased"):
            browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **click})
    assert "cudaLaunchKernel" in panel(browser) and "45.8 µs" in panel(browser)
    kin = [element.get_attribute("textContent") for element in browser.find_elements(By.CSS_SELECTOR, ".explorer__event.is-kin title")]
    assert [name.split(": ")[1].split(", ")[0] for name in kin] == ["y = gelu(x + bias)", "aten::add", "elementwise_kernel<128"]
    assert len(browser.find_elements(By.CSS_SELECTOR, ".explorer__arrow.is-kin")) == 1
    assert browser.find_element(By.CSS_SELECTOR, "details[data-frames='aten::add']").get_attribute("open")
    assert not browser.find_element(By.CSS_SELECTOR, "details[data-frames='aten::gelu']").get_attribute("open")


@each_window
def test_touch_selects(visit, width, scheme):
    browser = visit(width, scheme, "zh")
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        kernel = event(browser, "compiled", "GPU: triton_poi_fused_add_gelu_0")
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [centre(browser, kernel)]})
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        wait(browser, panel)
        assert "triton_poi_fused_add_gelu_0" in panel(browser)
        assert f"{WORDS['zh']['explorer']['grid']}\n65536 × 1 × 1" in panel(browser)
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


@each_window
def test_figure_is_readable(visit, width, scheme):
    browser = visit(width, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for button in (None, "fit", "in", "in"):
        if button:
            browser.find_element(By.CSS_SELECTOR, f"[data-do={button}]").click()
        assert browser.execute_script(CROWDED) == []
        ticks = [int(tick.text) for tick in browser.find_elements(By.CSS_SELECTOR, "[data-half=eager] text.explorer__tick")]
        assert len(ticks) > 4 and len({later - tick for tick, later in zip(ticks, ticks[1:], strict=False)}) == 1
    browser.execute_script("arguments[0].focus(); document.querySelectorAll('.explorer > details').forEach((part) => { part.open = true })",
                           event(browser, "eager", "aten::add"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(BROAD) == []
    assert browser.execute_script(PALE) == []
    seen, faint = browser.execute_script(FAINT, ".explorer :is(text, p, dt, dd, td, th, code, summary, small, span, button:not(:disabled))")
    assert seen > 500 and faint == []


@each_window
def test_keyboard_walks_and_follows_the_arrow(visit, width, scheme):
    browser = visit(width, scheme)
    browser.execute_script("document.querySelector('[data-do=fit]').focus()")
    walk = [(Keys.TAB, "Python: y = gelu"), (Keys.ARROW_DOWN, "ATen: aten::add"), (Keys.ARROW_RIGHT, "ATen: aten::gelu"),
            (Keys.ARROW_LEFT, "ATen: aten::add"), (Keys.ARROW_UP, "Python: y = gelu"), (Keys.ARROW_RIGHT, "Python: y.backward"),
            (Keys.ARROW_LEFT, "Python: y = gelu"), (Keys.ARROW_DOWN, "ATen: aten::add")]
    for key, name in walk:
        press(browser, key)
        assert name in focused(browser) and name.split(": ")[1] in panel(browser)
    browser.execute_script("arguments[0].focus()", event(browser, "eager", "cudaLaunchKernel"))
    press(browser, "f")
    assert "CUDAFunctor_add" in focused(browser)
    press(browser, Keys.ENTER, Keys.ARROW_RIGHT)
    pinned = browser.find_element(By.CSS_SELECTOR, ".explorer__facts--pinned")
    assert "GeluCUDAKernelImpl" in panel(browser) and "CUDAFunctor_add" in pinned.text
    press(browser, Keys.ARROW_LEFT, "f")
    assert "cudaLaunchKernel" in focused(browser)
    press(browser, Keys.ESCAPE)
    assert panel(browser) == "" == pinned.text
    press(browser, Keys.TAB)
    assert browser.execute_script("return document.activeElement.closest('.explorer__svg')") is None  # one stop of Tab


@each_window
def test_zoom_changes_the_scale(visit, width, scheme):
    browser = visit(width, scheme)
    whole = scale(browser)
    browser.find_element(By.CSS_SELECTOR, "[data-do=in]").click()
    assert scale(browser) == pytest.approx(1.5 * whole, rel=.01)
    browser.execute_script("arguments[0].focus()", event(browser, "eager", "aten::add"))
    press(browser, "+")
    assert scale(browser) == pytest.approx(2.25 * whole, rel=.01)
    press(browser, "-", "-")
    assert scale(browser) == pytest.approx(whole, rel=.01)
    at = centre(browser, event(browser, "eager", "y = gelu"))
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseWheel", "deltaX": 0, "deltaY": -200, "modifiers": 2, **at})
    wait(browser, lambda browser: scale(browser) > 1.3 * whole)
    browser.find_element(By.CSS_SELECTOR, "[data-do=fit]").click()
    box = browser.find_element(By.CSS_SELECTOR, ".explorer__box")
    assert browser.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", box) <= 1
    browser.find_element(By.CSS_SELECTOR, "[data-do=reset]").click()
    assert scale(browser) == pytest.approx(whole, rel=.01)
    before = browser.execute_script("arguments[0].scrollLeft = 10; return arguments[0].scrollLeft", box)
    ActionChains(browser, duration=0).move_to_element(box).click_and_hold().move_by_offset(-90, 0).release().perform()
    moved = browser.execute_script("return arguments[0].scrollLeft", box) - before
    assert moved == pytest.approx(90, abs=2)


def test_toggle_hides_a_half(visit):
    browser = visit(375)
    halves = browser.find_elements(By.CSS_SELECTOR, ".explorer__half")
    for name, shown in (("eager", [True, False]), ("compiled", [False, True]), ("both", [True, True])):
        button = browser.find_element(By.CSS_SELECTOR, f"[data-do={name}]")
        button.click()
        assert [half.is_displayed() for half in halves] == shown and button.get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("width", WIDTHS)
def test_figure_is_whole_without_scripts(visit, width):
    browser = visit(width)
    count = sum(map(len, trace().values()))
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser = visit(width)
        shapes = browser.find_elements(By.CSS_SELECTOR, ".explorer__event > rect, .explorer__event path")
        assert len([shape for shape in shapes if shape.size["height"] > 5]) == count
        assert len([text for text in browser.find_elements(By.CSS_SELECTOR, ".explorer__label") if text.text]) > 25
        assert not browser.find_element(By.CSS_SELECTOR, ".explorer__tools").is_displayed()
        assert not browser.find_element(By.CSS_SELECTOR, ".explorer__panel").is_displayed()
        browser.find_element(By.CSS_SELECTOR, ".explorer__data > summary").click()
        wait(browser, lambda browser: browser.find_element(By.CSS_SELECTOR, ".explorer__row").is_displayed())
        assert len(browser.find_elements(By.CSS_SELECTOR, ".explorer__row")) == count
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_script_leaves_other_pages_alone(visit):
    browser = visit(body="<p>Nothing to explore.</p>")
    assert browser.find_element(By.TAG_NAME, "article").get_attribute("innerHTML").strip() == "<p>Nothing to explore.</p>"
