"""The built site: links, hosts, headings, sitemaps, published files, and what stops a build or must not."""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from xml.etree import ElementTree

import pytest
from mkdocs.exceptions import PluginError

from harness import record, snippet
from harness import site as harness_site
from harness.labels import WORDS
from hooks import evidence

ROOT_URL = os.environ.get("SITE_URL", "http://127.0.0.1:8000/")  # as in mkdocs.yml
PREFIX = {"en": "", "zh": "zh/"}
SOURCES = sorted(page.relative_to(snippet.ROOT / "docs/en").with_suffix("").as_posix()
                 for page in (snippet.ROOT / "docs/en").rglob("*.md"))
PAGES = [re.sub(r"(^|/)index$", r"\1", name) if name.endswith("index") else f"{name}/" for name in SOURCES]
RECORDED = sorted(file.relative_to(record.RESULTS / record.REFERENCE).with_suffix("").as_posix()
                  for file in (record.RESULTS / record.REFERENCE).rglob("*.json"))
each_language = pytest.mark.parametrize("language", PREFIX)
each_page = pytest.mark.parametrize("page", PAGES)
MADE_UP, MADE_UP_GPU = "nvidia-made-up", "NVIDIA Made Up"
ELSEWHERE = {"every record": (RECORDED, None), "one record": (["fusion/pointwise/add"], None),
             "unsupported": (RECORDED, "fusion/pointwise/chain")}  # what it measured, and what it cannot run


class Html(HTMLParser):
    """What tests ask of a page: its elements with whether they are in the article, links, ids and what svgs hold."""

    def __init__(self, file: Path):
        super().__init__()
        self.elements: list[tuple[str, dict, bool]] = []
        self.drawings: list[list[str]] = []  # of each outermost svg of the article that is not hidden, the elements in it
        self.bare: str | None = None
        self.open_tables = 0  # tables of the article that no <details> folds away
        self.article = self.svg = self.folded = 0
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), bool(self.article)))
        if self.svg:
            self.drawings[-1].append(tag)
        elif tag == "svg" and self.article:
            self.drawings.append([])
            self.bare = dict(attrs).get("aria-hidden")
        self.open_tables += tag == "table" and bool(self.article) and not self.folded
        self.folded += tag == "details"
        self.article += tag == "article"
        self.svg += tag == "svg" and bool(self.article)

    def handle_endtag(self, tag):
        self.article -= tag == "article"
        self.svg -= tag == "svg" and bool(self.article)
        self.folded -= tag == "details"
        if tag == "svg" and not self.svg and self.drawings and self.bare:  # it says nothing that the text does not
            self.drawings.pop()
            self.bare = None

    def tags(self, pattern: str, in_article: bool = False) -> list[dict]:
        return [attrs for tag, attrs, inside in self.elements if re.fullmatch(pattern, tag) and (inside or not in_article)]

    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs, _ in self.elements if "id" in attrs]

    def links(self) -> list[str]:
        return [attrs[key] for _, attrs, _ in self.elements for key in ("href", "src") if attrs.get(key)]


def mkdocs(root: Path, language: str, *options: str, path: tuple = ()) -> subprocess.CompletedProcess:
    """A strict build of one language from the tree at `root`; `path` comes first where Python looks for modules."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, root])), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", harness_site.CONFIGS[language], *options]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def broken(link: str, page_url: str, site: Path) -> bool:
    """Whether a link within the site leads to no file, or to no such place in a page."""
    target, fragment = urldefrag(urljoin(page_url, link))
    if urlsplit(target).scheme in ("mailto", "data") or urlsplit(target).netloc != urlsplit(ROOT_URL).netloc:
        return False
    file = site / unquote(target.removeprefix(ROOT_URL))
    file = file / "index.html" if target.endswith("/") else file
    if not target.startswith(ROOT_URL) or not file.is_file():
        return True
    return bool(fragment) and unquote(fragment) not in ids(file)


@cache
def ids(file: Path) -> frozenset[str]:
    return frozenset(Html(file).ids())


@each_language
@pytest.mark.parametrize("page", [*PAGES, "404.html"])
def test_site_links_lead_somewhere(built_site, page, language):
    name = PREFIX[language] + page
    html = Html(built_site / name / ("" if page == "404.html" else "index.html"))
    assert len(html.links()) > 10
    assert [link for link in sorted(set(html.links())) if broken(link, ROOT_URL + name, built_site)] == []


@each_language
@each_page
def test_language_list_leads_to_the_same_page(built_site, page, language):
    url = ROOT_URL + PREFIX[language] + page
    named = {tag["hreflang"]: urljoin(url, tag["href"]) for tag in Html(built_site / PREFIX[language] / page / "index.html").tags("a")
             if tag.get("class") == "md-select__link"}
    assert named == {other: ROOT_URL + prefix + page for other, prefix in PREFIX.items()}


def test_site_links_to_every_record_from_both_languages(built_site):
    for prefix in PREFIX.values():
        url = f"{ROOT_URL}{prefix}reference/machines/"
        found = {urljoin(url, link) for link in Html(built_site / prefix / "reference/machines/index.html").links()}
        assert {f"{ROOT_URL}results/{record.REFERENCE}/{name}.json" for name in RECORDED} <= found


@pytest.mark.parametrize("link", ["nowhere/", "#nowhere", "../../above.html", "results/nowhere.json"])
def test_site_links_that_lead_nowhere_are_told(built_site, link):
    assert broken(link, ROOT_URL, built_site)


@each_language
@each_page
def test_page_asks_no_other_host(built_site, page, language):
    html = Html(built_site / PREFIX[language] / page / "index.html")
    asked = [link for tag in html.tags("link|script|img|iframe|source|video|audio|object|embed") if tag.get("rel") != "canonical"
             for link in (tag.get("href"), tag.get("src"), tag.get("srcset"), tag.get("data")) if link]
    assert len(asked) >= 4
    assert [link for link in asked if urlsplit(link).netloc or urlsplit(link).scheme] == []


def test_styles_ask_no_other_host(built_site):
    styles = list(built_site.rglob("*.css"))
    assert len(styles) >= 6
    far = re.compile(r"""(?:@import\s*|url\(\s*)["']?(?:https?:)?//[^"')]*""")
    assert [hit for style in styles for hit in far.findall(style.read_text(encoding="utf-8"))] == []


@each_language
@each_page
class TestPage:
    def html(self, site, page, language):
        return Html(site / PREFIX[language] / page / "index.html")

    def test_headings_have_ids_of_their_own(self, built_site, page, language):
        html = self.html(built_site, page, language)
        headings = html.tags("h[1-6]", in_article=True)
        assert len(headings) > 3 and all(heading.get("id") for heading in headings)
        assert sorted(html.ids()) == sorted(set(html.ids()))

    def test_drawings_have_titles(self, built_site, page, language):
        html = self.html(built_site, page, language)
        assert [drawing for drawing in html.drawings if drawing[:1] != ["title"]] == []
        assert len(html.drawings) >= (page in ("", "fusion/pointwise/", "reference/machines/"))

    def test_head_says_what_the_page_is(self, built_site, page, language):
        html = self.html(built_site, page, language)
        assert len(html.tags("h1")) == 1
        assert [tag["content"] for tag in html.tags("meta") if tag.get("name") == "description"][0]
        assert [tag["lang"] for tag in html.tags("html")] == [language]


@each_language
def test_sitemap_names_every_page_in_both_languages(built_site, language):
    space = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9", "x": "http://www.w3.org/1999/xhtml"}
    urls = ElementTree.parse(built_site / PREFIX[language] / "sitemap.xml").getroot().findall("s:url", space)
    named = {url.find("s:loc", space).text: {(link.get("hreflang"), link.get("href")) for link in url.findall("x:link", space)}
             for url in urls}
    assert named == {ROOT_URL + PREFIX[language] + page: {(other, ROOT_URL + prefix + page) for other, prefix in PREFIX.items()}
                     for page in PAGES}


def test_robots_names_both_sitemaps(built_site):
    lines = (built_site / "robots.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("Sitemap:")] == [
        f"Sitemap: {ROOT_URL}{prefix}sitemap.xml" for prefix in PREFIX.values()]


@each_language
def test_404_works_at_any_depth(built_site, language):
    html = Html(built_site / PREFIX[language] / "404.html")
    assert [tag["lang"] for tag in html.tags("html")] == [language]
    assert [link for link in html.links() if not link.startswith(("/", "http", "#"))] == []


@pytest.mark.parametrize(("folder", "pattern"), [("results", "*.json"), ("snippets", "*.py")])
def test_site_publishes_the_files_of_the_repository(built_site, folder, pattern):
    def contents(root):
        return {file.relative_to(root).as_posix(): file.read_bytes() for file in (root / folder).rglob(pattern)}
    assert len(contents(snippet.ROOT)) >= 5
    assert contents(built_site) == contents(snippet.ROOT)


def test_build_never_imports_torch(built_site, no_torch):
    """It would have ended there: the site was built with that folder in the path."""
    done = subprocess.run([sys.executable, "-c", "import torch"], env=os.environ | {"PYTHONPATH": str(no_torch)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "torch was imported" in done.stderr


def test_build_is_refused_where_torch_was_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    evidence.on_post_build(None)
    monkeypatch.setitem(sys.modules, "torch", object())
    with pytest.raises(PluginError, match="torch was imported"):
        evidence.on_post_build(None)


def test_build_of_both_languages_is_quick(build):
    assert build[1] < 30  # of a processor: other tests run beside it


def copy_tree(folder: Path) -> Path:
    """A copy of what a build reads."""
    for name in ("docs", "harness", "hooks", "overrides", "snippets", "results"):
        shutil.copytree(snippet.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for config in harness_site.CONFIGS.values():
        shutil.copy(snippet.ROOT / config, folder)
    return folder


@pytest.mark.parametrize(("text", "said"), [
    ("\n{{ chain.fp16.nothing | .1f }}\n", ["docs/en/fusion/pointwise.md", "chain.fp16.nothing", "no 'nothing'; there are: eager"]),
    ('\n```python exec="true" html="true"\nfrom harness.show import table\nprint(table("fusion/pointwise/chain", "nothing"))\n```\n',
     ["docs/en/fusion/pointwise.md: a block failed", "no 'nothing'; there are: fp16"])], ids=["value", "block"])
def test_build_stops_at_what_a_record_lacks(tmp_path, text, said):
    tree = copy_tree(tmp_path)
    with (tree / "docs/en/fusion/pointwise.md").open("a", encoding="utf-8") as page:
        page.write(text)
    done = mkdocs(tree, "en")
    assert done.returncode == 1
    assert [words for words in said if words not in done.stderr] == []


def measure_elsewhere(tree: Path, names: list[str], unsupported: str | None) -> dict:
    """Records of the reference again, as of a made-up machine; returns that machine's description."""
    for name in names:
        content = record.read(record.path(record.REFERENCE, name))
        content["machine"] |= {"name": MADE_UP, "gpu": MADE_UP_GPU}
        if name == unsupported:
            content = {key: value for key, value in content.items() if key not in ("results", "data")}
            content["unsupported"] = "needs what it lacks"
        record.write(content, tree / "results" / MADE_UP / f"{name}.json")
    return content["machine"]


def build_elsewhere(tree: Path, case: str) -> tuple[Path, subprocess.CompletedProcess]:
    machine = measure_elsewhere(copy_tree(tree), *ELSEWHERE[case])
    command = [sys.executable, "-c", f"from harness import site; site.build({machine!r})"]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return tree, subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Sites built on a made-up machine, all at once to save time: folder and finished build by case."""
    folders = [tmp_path_factory.mktemp(case) for case in ELSEWHERE]
    with ThreadPoolExecutor() as pool:
        return dict(zip(ELSEWHERE, pool.map(build_elsewhere, folders, ELSEWHERE), strict=True))


@each_language
@pytest.mark.parametrize("case", ELSEWHERE)
def test_build_on_another_machine_shows_both(elsewhere, case, language):
    tree, done = elsewhere[case]
    assert done.returncode == 0, done.stderr
    words = WORDS[language]
    text = (tree / "site" / PREFIX[language] / "fusion/pointwise/index.html").read_text(encoding="utf-8").replace("&#39;", "'")
    assert words["this_machine"] in text
    assert all(words["measured_on"].format(gpu) in text for gpu in ("NVIDIA H200", MADE_UP_GPU))
    assert (words["no_record"].format(MADE_UP_GPU) in text) is (case == "one record")
    assert (words["cannot_run"].format(MADE_UP_GPU, "needs what it lacks") in text) is (case == "unsupported")
