"""Search in a browser: words of both languages, and Chinese where the site was built without jieba."""
import json
import re

import pytest
from selenium.webdriver.common.by import By

from harness import snippet
from tests.conftest import served
from tests.test_browser import browser, visit, wait  # noqa: F401 (two are fixtures)
from tests.test_site import PREFIX, mkdocs

KERNELS, VERIFICATION = "fusion/pointwise/", "reference/verification/"
HIDE_JIEBA = '''
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "jieba" else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
'''


@pytest.fixture(scope="module")
def without_jieba(tmp_path_factory):
    """A folder with Chinese in zh/, built as on a machine that has no jieba, and what that build said."""
    folder = tmp_path_factory.mktemp("without_jieba")
    (folder / "sitecustomize.py").write_text(HIDE_JIEBA, encoding="utf-8")
    done = mkdocs(snippet.ROOT, "zh", "-d", str(folder / "site/zh"), path=(folder,))
    assert done.returncode == 0, done.stderr
    return folder / "site", done.stderr


@pytest.fixture(scope="module")
def url_without_jieba(without_jieba):
    with served(without_jieba[0]) as url:
        yield url


def results(browser, word: str) -> list[tuple[str, str]]:  # noqa: F811
    """Page and text of what the search finds."""
    field = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.click()
    field.clear()
    field.send_keys(word)
    links = "return [...document.querySelectorAll('.md-search-result__link')].map((a) => [a.href.split(/[?#]/)[0], a.textContent])"
    return wait(browser, lambda browser: [tuple(found) for found in browser.execute_script(links)])


@pytest.mark.parametrize(("language", "word", "page"), [
    ("en", "broadcast", KERNELS), ("en", "float64 reference", VERIFICATION),
    ("zh", "融合", KERNELS), ("zh", "显存", VERIFICATION), ("zh", "广播", KERNELS)])
def test_search_finds_the_page(visit, site_url, language, word, page):  # noqa: F811
    found = results(visit(PREFIX[language]), word)
    assert site_url + PREFIX[language] + page in [url for url, _ in found]
    assert all(url.startswith(site_url + PREFIX[language]) for url, _ in found)
    assert word.split()[0] in found[0][1] + found[1][1]


def test_search_finds_nothing_for_what_no_page_says(visit):  # noqa: F811
    browser = visit("")  # noqa: F811
    results(browser, "broadcast")
    field = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.clear()
    field.send_keys("zebra")
    wait(browser, lambda browser: not browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link"))


def test_build_without_jieba_says_so(without_jieba):
    site, said = without_jieba
    assert "jieba is not installed: the Chinese search goes by characters" in said
    index = json.loads((site / "zh/search/search_index.json").read_text(encoding="utf-8"))
    words = re.split(index["config"]["separator"], "很大的显存，GPU")
    assert [word for word in words if word] == ["很", "大", "的", "显", "存", "GPU"]
    assert not any("\u200b" in document["text"] for document in index["docs"])


@pytest.mark.parametrize(("word", "page"), [("融合", KERNELS), ("显存", VERIFICATION), ("字节与显存", VERIFICATION)])
def test_search_without_jieba_finds_words_within_sentences(visit, url_without_jieba, word, page):  # noqa: F811
    found = results(visit("zh/", site=url_without_jieba), word)
    assert f"{url_without_jieba}zh/{page}" in [url for url, _ in found]
