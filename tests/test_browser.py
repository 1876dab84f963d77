"""The built site in a browser: errors, hosts, widths, the language switch, contrast, keyboard, no scripts."""
import json
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from harness import record
from tests.conftest import need
from tests.test_site import PAGES, PREFIX, Html, each_language, each_page

WIDTHS, SCHEMES = (375, 1440), ("light", "dark")
KERNELS = "fusion/pointwise/"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")
# Texts of the article with less contrast to what lies behind them than 4.5:1, from computed colours.
FAINT = """
const parse = (color) => { const n = color.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n.slice(0, 3), 1] : n }
const over = (top, under) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * under[i])
const behind = (element) => {
  if (!element) return [255, 255, 255]
  const own = parse(getComputedStyle(element).backgroundColor)
  return own[3] === 1 ? own.slice(0, 3) : over(own, behind(element.parentElement))
}
const opacity = (element) => element ? getComputedStyle(element).opacity * opacity(element.parentElement) : 1
const light = (rgb) => rgb.map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
const found = []
let seen = 0
for (const element of document.querySelectorAll(arguments[0])) {
  if (!element.checkVisibility() || element.matches(".headerlink")) continue
  seen++
  const style = getComputedStyle(element), bar = element.matches(".timeline__label") && element.parentElement.querySelector("rect")
  const back = bar ? parse(getComputedStyle(bar).fill).slice(0, 3) : behind(element)
  const front = parse(element.closest("svg") ? style.fill : style.color)
  front[3] *= opacity(element)
  const [low, high] = [light(over(front, back)), light(back)].sort((a, b) => a - b)
  const ratio = (high + .05) / (low + .05)
  if (!(ratio >= 4.5)) found.push(`${ratio.toFixed(2)} ${element.tagName} ${element.className.baseVal ?? element.className}: ` +
    element.textContent.trim().slice(0, 40))
}
return [seen, found]
"""
TEXTS = (".md-typeset :is(h1, h2, p, li, a, td, th, small, code), .provenance, .legend, svg text, "
         ".md-footer :is(a, span, div), .highlight span")
# Labels of the drawings that leave the page, are cut by their own part, or lie on one another.
COLLIDING = """
const found = []
for (const drawing of document.querySelectorAll("article svg:not(svg svg, [aria-hidden])")) {
  const texts = [...drawing.querySelectorAll("text")].filter((text) => text.checkVisibility())
  const boxes = texts.map((text) => text.getBoundingClientRect())
  texts.forEach((text, i) => {
    const box = boxes[i], bar = text.parentElement !== drawing && text.parentElement.querySelector(":scope > rect")
    const part = bar && !text.closest(".explorer") && bar.getBoundingClientRect()
    const outside = !text.closest(".explorer__box") && (box.left < 0 || box.right > innerWidth)  // that box scrolls
    if (outside || part && box.width > part.width + 1) found.push(`cut: ${text.textContent}`)
    for (let j = 0; j < i; j++)
      if (box.left < boxes[j].right && boxes[j].left < box.right && box.top + 3 < boxes[j].bottom && boxes[j].top + 3 < box.bottom)
        found.push(`${texts[j].textContent} on ${text.textContent}`)
  })
}
return found
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium with a profile of its own, 1440 px wide."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    need(program and driver, "no Chromium with chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    chromium.get("about:blank")
    asked(chromium)  # what the browser's own first page asked for
    yield chromium
    chromium.quit()


@pytest.fixture
def visit(browser, site_url):
    """Opens a page as a new visitor with that width and colour scheme."""
    def opened(page: str, width: int = 1440, scheme: str = "light", site: str = site_url):
        browser.get("about:blank")  # a page still open would store the scheme that it had
        resize(browser, width)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": site.rstrip("/"), "storageTypes": "local_storage"})
        browser.get(site + page)
        return browser
    return opened


def resize(browser, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def asked(browser) -> list[str]:
    """The addresses asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]


def wait(browser, condition):
    return WebDriverWait(browser, 10, poll_frequency=.1).until(condition)


@each_language
@each_page
class TestPage:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_opens_whole_and_readable(self, visit, site_url, page, language, scheme):
        browser = visit(PREFIX[language] + page, WIDTHS[-1], scheme)
        shown = browser.find_element(By.TAG_NAME, "body").get_attribute("data-md-color-scheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        for width in WIDTHS:
            resize(browser, width)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            assert browser.execute_script(COLLIDING) == [], width
        seen, faint = browser.execute_script(FAINT, TEXTS)
        assert seen > 40 and faint == []
        urls = asked(browser)
        assert len(urls) > 5 and [url for url in urls if not url.startswith((site_url, "data:", "blob:" + site_url))] == []
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

    def test_needs_no_scripts(self, visit, built_site, page, language):
        browser = visit("robots.txt")
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            browser = visit(PREFIX[language] + page)
            assert browser.find_elements(By.CSS_SELECTOR, "html.no-js")  # so scripts are off
            html = Html(built_site / PREFIX[language] / page / "index.html")
            for selector, count in (("article table:not(details table)", html.open_tables),
                                    ("article svg:not(svg svg, [aria-hidden])", len(html.drawings))):
                shown = [found for found in browser.find_elements(By.CSS_SELECTOR, selector)
                         if found.is_displayed() and found.size["height"] > 50]
                assert len(shown) == count
        finally:
            browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@each_language
@pytest.mark.parametrize("page", PAGES[::6])  # the list is the same on every page; where its links lead tests/test_site.py asks of all
def test_switches_language_and_back(visit, site_url, page, language):
    browser = visit(PREFIX[language] + page)
    other = "en" if language == "zh" else "zh"
    for there in (other, language):
        browser.find_element(By.CSS_SELECTOR, ".md-select button").send_keys(Keys.NULL)  # the focus opens the list
        link = browser.find_element(By.CSS_SELECTOR, f".md-select__link[hreflang={there}]")
        wait(browser, lambda _, link=link: link.is_displayed())
        link.send_keys(Keys.ENTER)
        wait(browser, lambda browser, there=there: browser.current_url == site_url + PREFIX[there] + page)
        assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == there


def test_contrast_of_faint_text_is_told(visit):
    browser = visit("")
    browser.execute_script("document.querySelector('.provenance').style.color = '#999'")
    assert [line for line in browser.execute_script(FAINT, TEXTS)[1] if "provenance" in line]


def test_labels_that_collide_are_told(visit):
    browser = visit("")
    browser.execute_script("document.querySelectorAll('.timeline > text').forEach((text) => text.setAttribute('x', '2%'))")
    assert browser.execute_script(COLLIDING)


@each_language
def test_colour_scheme_follows_the_system(visit, language):
    shades = []
    for scheme in SCHEMES:
        browser = visit(PREFIX[language], scheme=scheme)
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        shades.append(sum(int(part) for part in colour.strip("rgba()").split(",")[:3]) / 3)
    assert shades[0] > 200 and shades[1] < 80


@each_language
def test_kernel_opens_with_the_keyboard(visit, language):
    browser = visit(PREFIX[language] + KERNELS)
    details = browser.find_element(By.CSS_SELECTOR, "details.kernel")
    raw = details.find_element(By.CSS_SELECTOR, ".raw")
    assert not raw.is_displayed()
    details.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    wait(browser, lambda _: raw.is_displayed())
    chain = record.read(record.path(record.REFERENCE, "fusion/pointwise/chain"))
    assert raw.text in [kernel["name"] for result in chain["results"] for kernel in result["kernels"]]


def test_pages_are_all_opened():
    assert len(PAGES) >= 4


@each_language
def test_roofline_is_walked_by_keyboard_and_leads_to_pages(browser, site_url, language):
    browser.get(f"{site_url}{PREFIX[language]}memory/roofline/")
    points = browser.find_elements(By.CSS_SELECTOR, ".roofline svg a")
    said = browser.find_element(By.CSS_SELECTOR, ".roofline__said")
    assert len(points) > 100
    assert [point.get_attribute("tabindex") for point in points].count("-1") == len(points) - 1  # one stop for Tab
    browser.execute_script("arguments[0].focus()", points[0])
    for key, index in ((Keys.ARROW_RIGHT, 1), (Keys.ARROW_RIGHT, 2), (Keys.ARROW_LEFT, 1), (Keys.END, len(points) - 1), (Keys.HOME, 0)):
        browser.switch_to.active_element.send_keys(key)
        assert browser.switch_to.active_element == points[index]
        assert said.text == points[index].get_attribute("aria-label") and "FLOP/B" in said.text
    target = points[0].get_dom_attribute("href").replace("../", "")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser, lambda driver: driver.current_url == site_url + target)
