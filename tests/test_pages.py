"""The text of the pages: twins, fences, values, links, numbers. Needs neither torch nor a browser (nox -s check)."""
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from harness import record, snippet

DOCS = snippet.ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS / "en").as_posix() for page in (DOCS / "en").rglob("*.md"))
FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=mark)[ \t]*$", re.M | re.S)
# An option that markdown-exec or highlight does not know makes a fence no fence at all, without a word.
INFO = re.compile(r'(?:python exec="true" html="true"|python title="[\w/.-]+"|pycon|console|json)')
VALUE = re.compile(r"\{\{.*?\}\}")
HEADING = re.compile(r"^(#{1,4}) .*?\{ #([\w-]+) \}$", re.M)
LINK = re.compile(r"\]\(([^)\s]+)")
CITED = re.compile(r"\[[^\]]*\]\([^)]*\)\{ \.cited \}")
UNIT = (r"(?:[µmnu]?s|seconds?|minutes?|[kKMGT]i?B(?:/s)?|bytes?|[TGM]?FLOPs?(?:/s)?|[GM]Hz|W"
        r"|times|fold|倍|秒|微秒|毫秒|分钟|字节|瓦)")
# A figure: digits with a unit behind them, or a factor such as 3x or 3.5×. A shape, 8192 × 8192, is none.
TYPED = re.compile(rf"(?<![\w.#-])\d[\d.,]*(?:\s?{UNIT}(?![A-Za-z0-9])|\s?[x×](?!\s?\d|\w))")


def text(language: str, name: str) -> str:
    return (DOCS / language / name).read_text(encoding="utf-8")


def prose(source: str) -> str:
    """The page without front matter, fences, code spans, HTML tags, values and cited links."""
    source = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S)
    for pattern in (FENCE, VALUE, CITED, re.compile(r"`[^`\n]+`"), re.compile(r"\]\([^)]*\)"), re.compile(r"<[^>]+>")):
        source = pattern.sub(" ", source)
    return source


def front(source: str) -> dict:
    return yaml.safe_load(source.split("---\n")[1])


def fences(source: str) -> list[tuple[str, str]]:
    return [(found["info"], found["body"]) for found in FENCE.finditer(source)]


def test_pages_are_all_here():
    assert len(PAGES) >= 4
    assert sorted(page.relative_to(DOCS / "zh").as_posix() for page in (DOCS / "zh").rglob("*.md")) == PAGES


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("what", [
    fences, HEADING.findall, lambda source: Counter(VALUE.findall(source)),
    lambda source: Counter(LINK.findall(source)), lambda source: sorted(front(source)),
    lambda source: front(source).get("records")], ids=["fences", "headings", "values", "links", "front", "records"])
def test_page_has_the_same_in_both_languages(name, what):
    assert what(text("zh", name)) == what(text("en", name))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", PAGES)
class TestPage:
    def test_fences_are_known_ones(self, language, name):
        source = text(language, name)
        assert [info for info, _ in fences(source) if not INFO.fullmatch(info)] == []
        assert len(re.findall(r"^(`{3,}|~{3,})", source, re.M)) == 2 * len(fences(source))

    def test_every_heading_has_an_id(self, language, name):
        headings = re.findall(r"^#{1,4} .*$", FENCE.sub("", text(language, name)), re.M)
        assert [heading for heading in headings if not HEADING.fullmatch(heading)] == []

    def test_no_figure_is_typed(self, language, name):
        assert TYPED.findall(prose(text(language, name))) == []

    def test_front_matter_describes_the_page(self, language, name):
        meta = front(text(language, name))
        assert meta["title"] and 30 <= len(meta["description"].encode()) <= 600

    def test_value_names_a_record(self, language, name):
        for topic in (front(text(language, name)).get("records") or {}).values():
            assert topic in snippet.names()


def test_chinese_is_written_as_chinese():
    """Half-width digits and Latin words stand off by a space; punctuation between Chinese characters is full-width."""
    for name in PAGES:
        source = re.sub(r"\A---\n.*?\n---\n", "", text("zh", name), flags=re.S)
        source = re.sub(r"\]\([^)]*\)(?:\{ \.cited \})?|[*_\[\]]", "", FENCE.sub("", source))
        source = re.sub(r"`[^`\n]+`|\{\{.*?\}\}", "0", source)  # what stands there is a word or a number
        assert re.findall(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", source) == [], name
        assert re.findall(r"[\u4e00-\u9fff][,;:!?]|[\u4e00-\u9fff]\.(?:\s|$)", source) == [], name
        assert re.findall(r"[\u4e00-\u9fff] +[，。：；！？、]|[，。：；！？、] +[\u4e00-\u9fff]", source) == [], name


@pytest.mark.parametrize(("line", "found"), [
    ("it takes 105 µs", True), ("3.5x faster", True), ("3.5× faster", True), ("moves 4.2 TB/s", True), ("128 MiB", True),
    ("快了 3 倍", True), ("用时 5 微秒", True), ("two times", False), ("a tensor of 8192 × 8192 elements", False),
    ("torch 2.11", False), ("{{ chain.fp16 | .1f }} µs", False), ("`0.2 s`", False), ("4 times", True),
    ('[4.8 TB/s](https://example.org "sheet"){ .cited }', False), ("[4.8 TB/s](https://example.org)", True)])
def test_typed_figures_are_told_apart(line, found):
    assert bool(TYPED.search(prose(line))) is found


def test_every_snippet_is_used():
    pages = "".join(text("en", name) for name in PAGES)
    used = {name for name in snippet.names() if re.search(rf"\b{re.escape(name)}\b", pages)}
    assert sorted(used | {"machine/copy", "machine/matmul"}) == snippet.names()


def test_every_record_is_of_a_snippet():
    """A record left behind by a snippet that was renamed would be published, and never measured again."""
    for file in record.RESULTS.rglob("*.json"):
        machine, _, name = file.relative_to(record.RESULTS).with_suffix("").as_posix().partition("/")
        assert name in snippet.names(), file
        assert record.read(file)["snippet"] == name and record.read(file)["machine"]["name"] == machine


def test_every_reference_record_is_fresh():
    assert {name: record.freshness(name, record.REFERENCE) for name in snippet.names()} == dict.fromkeys(snippet.names(), "fresh")


def test_both_navigations_list_every_page():
    class Loader(yaml.SafeLoader):
        pass
    Loader.add_multi_constructor("", lambda loader, suffix, node: None)

    def leaves(part):
        items = part.values() if isinstance(part, dict) else part
        return [part] if isinstance(part, str) else [leaf for item in items for leaf in leaves(item)]
    for config in ("mkdocs.yml", "mkdocs.zh.yml"):
        loaded = yaml.load(Path(snippet.ROOT, config).read_text(encoding="utf-8"), Loader)
        assert sorted(leaves(loaded["nav"])) == PAGES, config
