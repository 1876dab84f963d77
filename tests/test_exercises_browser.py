"""The page of exercises in a browser: answered by keyboard, mouse and touch, kept, cleared, and readable without scripts."""
import json

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness.exercise import PARTS
from harness.labels import WORDS
from tests.test_browser import FAINT, SCHEMES, WIDTHS, asked, browser, resize, visit  # noqa: F401 (two are fixtures)
from tests.test_site import PREFIX, each_language

PAGE = "exercises/"
CHECKS = [f"{part}.{check}" for part, names in PARTS.items() for check in names]
STORED = "return JSON.parse(localStorage.getItem('exercises'))"


def find(within, selector: str):
    return within.find_element(By.CSS_SELECTOR, selector)


def every(within, selector: str) -> list:
    return within.find_elements(By.CSS_SELECTOR, selector)


class Check:
    """One check of the page, answered as by a reader at a keyboard."""

    def __init__(self, browser, name: str):  # noqa: F811
        self.browser, self.name, self.field = browser, name, find(browser, f"[data-check='{name}']")
        data = browser.execute_script("return {...arguments[0].dataset}", self.field)
        self.kind, answer, say = data["kind"], data["answer"], data["say"]
        self.answer, self.say = json.loads(answer), json.loads(say)

    def state(self) -> tuple[str, bool, bool, bool]:
        """What is said; whether the answer can be opened, and is open; whether the mark of a solved check shows."""
        return tuple(self.browser.execute_script("""
            const [said, told, mark] = ['said[role=status]', 'answer', 'solved']
              .map((part) => arguments[0].querySelector('.exercise__' + part))
            return [said.textContent, told.checkVisibility(), told.open, mark.checkVisibility()]""", self.field))

    def press(self) -> tuple:
        find(self.field, ".exercise__check").send_keys(Keys.ENTER)
        return self.state()

    def steps(self) -> list[str]:
        steps = "return [...arguments[0].querySelectorAll('li[data-key]')].map((one) => one.dataset.key)"
        return self.browser.execute_script(steps, self.field)

    def give(self, answer, *keys: str) -> None:
        """Fill in, from whatever stands there now; `keys` are pressed in the last field."""
        if self.kind == "number":
            find(self.field, "input").send_keys(Keys.CONTROL, "a", Keys.NULL, str(answer), *keys)
        elif self.kind == "choice":
            find(self.field, f"input[value='{answer[0]}']").send_keys(Keys.SPACE, *keys)
        elif self.kind == "match":
            for select, key in zip(every(self.field, "select"), answer, strict=True):
                place = self.browser.execute_script(
                    "return [...arguments[0].options].findIndex((one) => one.value === arguments[1])", select, key)
                select.send_keys(Keys.HOME, *[Keys.ARROW_DOWN] * place)
        else:
            self.arrange(answer)

    def arrange(self, answer: list[str]) -> None:
        """Move each step up by its button, which keeps the focus."""
        steps = list(zip(self.steps(), every(self.field, "[data-by='-1']"), strict=True))
        for place, key in enumerate(answer):
            here = next(here for here, step in enumerate(steps) if here >= place and step[0] == key)
            steps.insert(place, steps.pop(here))
            if here > place:
                steps[place][1].send_keys(*[Keys.ENTER] * (here - place))
                assert self.browser.switch_to.active_element == steps[place][1]
        assert self.steps() == answer

    def wrong(self) -> tuple:
        """A wrong answer, and what is said to it."""
        if self.kind == "number":
            return 2 * self.answer, self.say["high"]
        if self.kind == "choice":
            return [next(field.get_attribute("value") for field in every(self.field, "input")
                         if field.get_attribute("value") != self.answer[0])], self.say["one"]
        given = self.steps() if self.kind == "order" else self.answer[::-1]
        right = sum(mine == theirs for mine, theirs in zip(given, self.answer, strict=True))
        return given, self.say["wrong"].format(right=right, all=len(given))


def solve(browser, *names: str) -> None:  # noqa: F811
    for name in names:
        check = Check(browser, name)
        check.give(check.answer)
        assert check.press()[0] == check.say["right"]


def states(browser) -> list[str]:  # noqa: F811
    return [state.text for state in every(browser, ".exercise-progress__state")]


@each_language
def test_each_check_is_answered_wrong_and_right_by_keyboard(visit, language):  # noqa: F811
    browser = visit(PREFIX[language] + PAGE)  # noqa: F811
    words = WORDS[language]["exercise"]
    asked(browser)
    kinds = {"order"}  # never empty
    for name in CHECKS:
        check = Check(browser, name)
        assert check.state() == ("", False, False, False)
        if check.kind not in kinds:
            kinds.add(check.kind)
            assert check.press() == (words["say"]["empty"], False, False, False)
        given, said = check.wrong()
        check.give(given)
        assert check.press() == (said, True, False, False), name
        check.give(check.answer, *[Keys.ENTER] * (check.kind in ("number", "choice")))
        found = check.state() if check.kind in ("number", "choice") else check.press()
        assert found == (words["say"]["right"], True, True, True), name
    assert states(browser) == [words["solved"]] * 6
    assert [url for url in asked(browser) if not url.endswith("/favicon.svg")] == []


def test_number_is_judged_and_what_is_no_number(visit):  # noqa: F811
    check = Check(visit(PAGE), "traffic.eager")
    for text, word in (("1,5", "unreadable"), ("2,147.5 MB", "unreadable"), ("1", "low"), ("9e9", "high"),
                       ("2 147.5", "right"), ("2,147.5", "right")):
        check.give(text)
        assert check.state()[0] == ""  # an answer that changes is no longer judged
        check.give(text, Keys.ENTER)
        assert check.state()[:2] == (check.say[word], word != "unreadable"), text


def test_step_is_dragged_by_mouse_and_by_touch(visit):  # noqa: F811
    browser = visit(PAGE)  # noqa: F811
    check = Check(browser, "path.order")
    drawn = check.steps()
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", check.field)
    first, second, third, *_ = every(check.field, ".exercise__text")
    drag = ActionChains(browser).click_and_hold(first).move_to_element(second).move_to_element(third).move_by_offset(0, 6)
    drag.release().perform()
    assert check.steps() == [*drawn[1:3], drawn[0], *drawn[3:]]
    assert check.state()[0] == check.say["moved"].format(here=3, all=len(drawn))
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        boxes = [grip.rect for grip in every(check.field, ".exercise__grip")]
        top = browser.execute_script("return scrollY")
        at = [{"x": box["x"] + 5, "y": box["y"] - top + box["height"] / 2} for box in boxes]
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at[2]]})
        for place in (at[1], {**at[0], "y": at[0]["y"] - 6}):
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [place]})
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    assert check.steps() == drawn


def test_answers_and_results_survive_a_reload_and_the_other_language(visit, site_url):  # noqa: F811
    browser = visit(PAGE)  # noqa: F811
    solve(browser, "path.order", "traffic.eager", "kernels.fused", "risks.cases")
    Check(browser, "traffic.fused").give("12")
    find(browser, "[data-note='tiling.note']").send_keys("two sums <b>over</b> the keys\nblock by block")
    for address in (PAGE, "zh/" + PAGE):
        browser.get(site_url + address)
        order = Check(browser, "path.order")
        assert order.steps() == order.answer and order.state() == ("", True, False, True)
        assert find(Check(browser, "kernels.fused").field, "input:checked").get_attribute("value") == "division"
        risks = Check(browser, "risks.cases")
        assert [field.get_attribute("value") for field in every(risks.field, "select")] == risks.answer
        assert find(Check(browser, "traffic.fused").field, "input").get_attribute("value") == "12"
        assert not Check(browser, "traffic.fused").state()[1] and Check(browser, "traffic.eager").state()[1]
        assert find(browser, "[data-note='tiling.note']").get_attribute("value") == "two sums <b>over</b> the keys\nblock by block"
    words = WORDS["zh"]["exercise"]
    assert states(browser) == [words["of"].format(1, 2), words["of"].format(1, 3), words["of"].format(0, 3), words["of"].format(0, 4),
                               words["of"].format(1, 3), words["solved"]]
    assert browser.execute_script("return Object.keys(localStorage).filter((key) => !key.includes('__'))") == ["exercises"]


@each_language
def test_home_shows_what_is_solved_and_clears_it(visit, site_url, language):  # noqa: F811
    browser, words = visit(PREFIX[language] + PAGE), WORDS[language]["exercise"]  # noqa: F811
    solve(browser, "risks.cases")
    browser.get(site_url + PREFIX[language])
    assert states(browser)[-1] == words["solved"]
    find(browser, ".exercise-progress button").send_keys(Keys.ENTER)
    browser.switch_to.alert.accept()
    assert states(browser)[-1] == words["of"].format(0, 1) and browser.execute_script(STORED) is None
    every(browser, ".exercise-progress a")[-1].send_keys(Keys.ENTER)
    assert browser.current_url == f"{site_url}{PREFIX[language]}{PAGE}#risks"


def test_clearing_asks_first_and_clears_everything(visit):  # noqa: F811
    browser, words = visit("zh/" + PAGE), WORDS["zh"]["exercise"]  # noqa: F811
    drawn = Check(browser, "path.order").steps()
    button = find(browser, ".exercise-progress button")
    assert button.get_attribute("aria-disabled") == "true"
    Check(browser, "path.order").give(drawn[1::-1] + drawn[2:])
    solve(browser, "traffic.fused", "kernels.fused", "risks.cases")
    find(browser, "[data-note='path.note']").send_keys("mine")
    button.send_keys(Keys.ENTER)
    assert browser.switch_to.alert.text == words["sure"]
    browser.switch_to.alert.dismiss()
    assert set(browser.execute_script(STORED)["solved"]) == {"traffic.fused", "kernels.fused", "risks.cases"}
    button.send_keys(Keys.ENTER)
    browser.switch_to.alert.accept()
    assert browser.execute_script(STORED) is None and find(browser, ".exercise-progress [role=status]").text == words["cleared"]
    assert Check(browser, "path.order").steps() == drawn and every(browser, ".exercise input:checked") == []
    assert {field.get_attribute("value") for field in every(browser, ".exercise :is(select, input[type=text]), [data-note]")} == {""}
    assert [part for part in every(browser, ".exercise__solved, .exercise__answer") if part.is_displayed()] == []


def test_storage_of_another_kind_does_no_harm(visit):  # noqa: F811
    browser = visit(PAGE)  # noqa: F811
    drawn = Check(browser, "path.order").steps()
    for kept in ("no JSON", '{"version": 2, "solved": {"risks.cases": true}, "given": {}}',
                 '{"version": 1, "solved": {}, "given": {"path.order": ["GPU", "gone"], "risks.cases": ["x"]}}'):
        browser.execute_script("localStorage.setItem('exercises', arguments[0])", kept)
        browser.refresh()
        assert Check(browser, "path.order").steps() == drawn and WORDS["en"]["exercise"]["solved"] not in states(browser)
    solve(browser, "risks.cases")
    assert states(browser)[-1] == WORDS["en"]["exercise"]["solved"]
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_checks_work_where_nothing_can_be_kept(visit):  # noqa: F811
    browser = visit("robots.txt")  # noqa: F811
    shut = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('shut') }})"
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": shut})["identifier"]
    try:
        browser = visit(PAGE)
        check = Check(browser, "risks.cases")
        check.give(check.answer)
        assert check.press() == (check.say["right"], True, True, True)
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})


@each_language
def test_hints_and_answers_open_without_scripts(visit, language):  # noqa: F811
    browser = visit("robots.txt")  # noqa: F811
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser = visit(PREFIX[language] + PAGE)
        folded = every(browser, "article details:not(.kernel) > summary")
        assert len(folded) == 3 * len(PARTS) + len(CHECKS)
        for summary in folded[:4]:  # three of the text, one of a check
            summary.send_keys(Keys.ENTER)
        browser.execute_script("for (const summary of arguments[0]) summary.click()", folded[4:])
        inside = browser.execute_script("return arguments[0].map((one) => one.nextElementSibling)"
                                        ".map((one) => [one.checkVisibility(), one.textContent])", folded)
        assert all(shown and words.strip() for shown, words in inside)
        assert [needs.text for needs in every(browser, ".exercise__needs")] == [WORDS[language]["exercise"]["needs"]] * len(CHECKS)
        live = ".exercise button, .exercise-progress, .exercise-note, .exercise input:enabled, .exercise select:enabled"
        assert [part for part in every(browser, live) if part.is_displayed()] == []
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("scheme", SCHEMES)
@each_language
def test_everything_open_fits_and_is_readable(visit, language, scheme):  # noqa: F811
    browser = visit(PREFIX[language] + PAGE, WIDTHS[-1], scheme)  # noqa: F811
    solve(browser, "traffic.fused")
    browser.execute_script("for (const part of document.querySelectorAll('article details')) part.open = true")
    for width in WIDTHS:
        resize(browser, width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        sizes = browser.execute_script("return [...document.querySelectorAll("
                                       "':is(.exercise, .exercise-progress) :is(button, select, input[type=text])')]"
                                       ".map((one) => one.getBoundingClientRect()).map(({width, height}) => Math.min(width, height))")
        assert len(sizes) > 40 and min(sizes) >= 24  # WCAG 2.5.8
    texts = ":is(button:not([aria-disabled=true]), legend, span, strong, p, li, a, summary, code, select, input)"
    seen, faint = browser.execute_script(FAINT, f":is(.exercise, .exercise-note, .exercise-progress) {texts}")
    assert seen > 100 and faint == []


@each_language
def test_every_control_has_a_name(visit, language):  # noqa: F811
    browser = visit(PREFIX[language] + PAGE)  # noqa: F811
    controls = every(browser, ":is(.exercise, .exercise-note, .exercise-progress) :is(button, input, select, textarea)")
    some = [control for control in controls if control.tag_name != "button"] + controls[::7]
    names = [control.accessible_name for control in some]
    assert len(names) > 40 and all(names)
    assert len({control.accessible_name for control in every(browser, ".exercise-note textarea")}) == len(PARTS)
    groups = [group.accessible_name for group in every(browser, ".exercise")]
    assert len(set(groups)) == len(CHECKS)
