"""What Sybil collects on each page: an example that is silently no example shows here."""
import importlib.util

import pytest
from sybil.document import Document

from harness import snippet

EXAMPLES = {
    "index.md": 3,
    "path/overview.md": 6, "path/python-to-tensor.md": 7, "path/dispatcher.md": 11, "path/autograd.md": 7,
    "path/aten.md": 6, "path/allocator.md": 13, "path/launch.md": 7,
    "memory/hierarchy.md": 16, "memory/roofline.md": 6, "memory/counting-traffic.md": 8, "memory/measuring.md": 10,
    "fusion/index.md": 6, "fusion/compiler.md": 15, "fusion/pointwise.md": 24, "fusion/attention-fusion.md": 19,
    "fusion/reduction.md": 23, "fusion/modes.md": 19, "fusion/when-not-to-fuse.md": 19,
    "attention/cost.md": 11, "attention/online-softmax.md": 13, "attention/flash-attention.md": 20,
    "attention/backward.md": 14, "attention/backends.md": 22, "attention/reading-the-paper.md": 3,
    "attention/paper-vs-gpu.md": 19,
    "labs/pointwise-fusion.md": 2, "labs/attention-backend.md": 2, "labs/attention-cost.md": 2,
    "exercises/index.md": 15,
    "reference/machines.md": 7, "reference/verification.md": 3}


@pytest.fixture(scope="module")
def site_parser():
    """The parser of the conftest.py that collects docs/."""
    spec = importlib.util.spec_from_file_location("root_conftest", snippet.ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", ["en", "zh"])
def test_examples_are_all_collected(site_parser, language):
    docs = snippet.ROOT / "docs" / language
    found = {page.relative_to(docs).as_posix(): len(list(Document.parse(str(page), site_parser.FenceParser())))
             for page in docs.rglob("*.md")}
    assert found == EXAMPLES


def test_included_section_is_what_runs(site_parser):
    shown = site_parser.expand('--8<-- "fusion/pointwise/chain.py:functions"')
    assert "def chain(x, bias):" in shown and "--8<--" not in shown


def test_failing_example_names_its_line(site_parser, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```pycon\n>>> 1 + 1\n3\n\n```\n", encoding="utf-8")
    (example,) = Document.parse(str(page), site_parser.FenceParser())
    with pytest.raises(Exception, match="line 3"):
        example.evaluate()
