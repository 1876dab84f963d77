"""A figure that a page shows cannot change by a factor of two without a claim failing, even with its checksum renewed."""
import copy
import json
import re
from collections.abc import Iterator
from functools import cache, partial

import pytest

from harness import claims, record, results, snippet
from harness.show import bars, ceilings, clocks, kernels, table, timeline  # noqa: F401 (for the pages' blocks)
from hooks.evidence import fill
from tests.test_pages import DOCS, PAGES, fences, front

PAGES_WITH_CLAIMS = [file.parent.relative_to(snippet.SNIPPETS).as_posix() for file in sorted(snippet.SNIPPETS.rglob("claims.pycon"))]
RECORDS = {name: record.read(record.path(record.REFERENCE, name)) for name in snippet.names()}


def figures(value, where: tuple = ()) -> Iterator[tuple]:
    """The way to every figure of a record: a summary with its samples is one, any other number is one."""
    if isinstance(value, dict) and "samples" in value or isinstance(value, list) and where[-1:] != ("results",) and all(
            isinstance(item, (int, float)) for item in value):
        yield where
    elif isinstance(value, (dict, list)) and where[-1:] not in (("grid",), ("block",)):
        kept = value[:12] if where[-1:] == ("kernels",) else value  # of a call with hundreds of kernels a dozen stand for all
        for key, item in kept.items() if isinstance(kept, dict) else enumerate(kept):
            yield from figures(item, (*where, key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value and where[-1] != "line":  # a place in a file
        yield where


def scaled(value, factor: float):
    if isinstance(value, dict):
        return {key: scaled(item, factor) for key, item in value.items()}
    if isinstance(value, list):
        return [scaled(item, factor) for item in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return int(value * factor) if isinstance(value, int) else value * factor


def changed(content, where: tuple, factor: float):
    """The content with one figure scaled; what is beside the way to it is shared."""
    if not where:
        return scaled(content, factor)
    content = copy.copy(content)
    content[where[0]] = changed(content[where[0]], where[1:], factor)
    return content


def using(topic: str) -> list[str]:
    """The pages that show something of a record: by an alias, by a block, or by a figure that draws no other record."""
    own = {"path/trace": "frames|saved|explorer", "path/dispatch": "key_sets|dispatch_table|key_order",
           "path/allocator": "life|rounding|actions", "path/launch": "launch_chart", "machine/copy": "share|floor_us|bars"}
    more = r"|table\(|bars\(" if topic == "machine/copy" else ""
    pattern = re.compile(rf"{re.escape(topic)}\b|\b(?:{own.get(topic, topic)})\({more}")
    return [name for name in PAGES if pattern.search((DOCS / "en" / name).read_text(encoding="utf-8"))]


# What shows every record at once is held as a whole by its page's own claims.
OF_EVERY_RECORD = ("harness.claims", "records()", "roofline()")


@cache
def parsed(name: str) -> tuple:
    """A page's source, its aliases and its blocks, compiled."""
    source = (DOCS / "en" / name).read_text(encoding="utf-8")
    blocks = [compile(body, name, "exec") for info, body in fences(source)
              if info.startswith("python exec") and not any(block in body for block in OF_EVERY_RECORD)]
    return source, front(source).get("records") or {}, blocks


def shown(pages: list[str]) -> str:
    """Everything that the pages show of the records: filled-in text and printed blocks."""
    out = []
    for name in pages:
        source, aliases, blocks = parsed(name)
        out.append(fill(source, aliases, name))
        for block in blocks:
            exec(block, {"print": out.append})
    return re.sub(r"(?<=<small).*?(?=</small>)", "", "\n".join(out), flags=re.S)  # the spread goes with its median


TREES = {name: results.tree(content) for name, content in RECORDS.items()}


@pytest.fixture
def pages_read(monkeypatch):
    """Let the pages read the committed records, with the given contents in place of one of them."""
    trees = dict(TREES)
    monkeypatch.setattr(results, "_load", lambda file, changed: trees[
        file.relative_to(record.RESULTS / record.REFERENCE).with_suffix("").as_posix()])

    def use(name: str, content: dict) -> None:
        trees[name] = results.tree(content)
    return use


@cache
def holding(topic: str) -> list[str]:
    """The pages whose claims read the record, its own first: they are the likeliest to fail; those on machines read all records."""
    mentions = [page for page in PAGES_WITH_CLAIMS if topic in (snippet.SNIPPETS / page / "claims.pycon").read_text(encoding="utf-8")]
    return list(dict.fromkeys([*sorted(mentions, key=lambda page: not topic.startswith(page)), "reference/machines"]))


def unnoticed(changes: list[tuple], content: dict, use, noticed, at_once: int = 32) -> list[tuple]:
    """The changes, (way, factor), that `noticed()` does not tell from none: together first, each further by an amount of its own."""
    found = []
    for first in range(0, len(changes), at_once):
        some, together = changes[first:first + at_once], content
        for number, (where, factor) in enumerate(some):
            together = changed(together, where, factor ** (1 + number / 50))
        use(together)
        if not noticed():
            found += some
        elif len(some) > 1:
            found += unnoticed(some, content, use, noticed, -(-len(some) // 2))
    return found


@pytest.mark.parametrize("page", PAGES_WITH_CLAIMS)
def test_claims_hold(page):
    attempted, failed = claims.check(page)
    assert failed == [] and attempted >= 8


@pytest.mark.parametrize("name", snippet.names())
def test_figure_shown_is_held_by_a_claim(name, pages_read):
    content, pages, use = RECORDS[name], using(name), partial(pages_read, name)
    use(content)
    assert not any(claims.check(page)[1] for page in holding(name))
    before, unheld, held = shown(pages), [], 0
    measured = {key: content[key] for key in ("results", "data", "machine") if key in content}
    for factor in (2, 0.5):
        loose = changes = [(where, factor) for where in figures(measured)]
        for number, page in enumerate(holding(name)):
            loose = unnoticed(loose, content, use, lambda page=page: claims.check(page, all_of_them=False)[1], 32 if number else 1)
        held += len(changes) - len(loose)
        unseen = unnoticed(loose, content, use, lambda: shown(pages) != before)
        unheld += [change for change in loose if change not in unseen]
    assert unheld == []
    assert held > 10


def test_changed_bound_makes_a_claim_fail(monkeypatch, tmp_path):
    folder = tmp_path / "fusion" / "pointwise"
    folder.mkdir(parents=True)
    text = (snippet.SNIPPETS / "fusion/pointwise/claims.pycon").read_text(encoding="utf-8")
    assert "<= 0.30 *" in text
    (folder / "claims.pycon").write_text(text.replace("<= 0.30 *", "<= 0.20 *"), encoding="utf-8")
    monkeypatch.setattr(claims, "SNIPPETS", tmp_path)
    assert claims.check("fusion/pointwise")[1] == ["fused.dram_bytes <= 0.20 * eager.dram_bytes"]


def test_figure_edited_by_hand_is_named(tmp_path):
    content = changed(RECORDS["fusion/pointwise/chain"], ("results", 0, "call_us", "median"), 2)
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(record.RecordError, match="fp16/eager/call_us/median was edited by hand"):
        record.read(file)
