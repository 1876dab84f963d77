"""Sybil over docs/**/*.md: every Python and pycon fence of both trees runs, with included sections expanded.

Sybil's own parser skips a fence that has more than a language in its first line (`python exec="true"`, `python title=`)
and would run a bare include line as code, so the parser is ours. How many examples each page gives is asserted in
tests/test_pages.py. At the root, since pytest looks here for files under docs/.
"""
import re
import shutil
from copy import copy

import markdown
from sybil import Sybil
from sybil.evaluators.doctest import NUMBER, DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract import DocTestStringParser
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer
from sybil.region import Lexeme

from harness.snippet import SNIPPETS
from harness.state import page

_page = markdown.Markdown(extensions=["pymdownx.snippets"], extension_configs={
    "pymdownx.snippets": {"base_path": [str(SNIPPETS)], "check_paths": True, "dedent_subsections": True}})


def expand(source: str) -> str:
    """What the page shows for a fence: the site's own preprocessor puts included sections in."""
    return "\n".join(_page.preprocessors["snippet"].run(source.splitlines())) + "\n"


class FenceParser:
    """Each fence whose language is python or pycon, whatever options follow; doctests where it begins with a prompt."""

    lexer = RawFencedCodeBlockLexer(re.compile(r"[ \t]*(?:python|pycon)(?=[\s{]|$)[^\n]*\n"))

    def __init__(self) -> None:
        self.code, self.doctest = PythonEvaluator(), DocTestEvaluator(NUMBER)
        self.split = DocTestStringParser(self.doctest)

    def __call__(self, document):
        for region in self.lexer(document):
            raw = region.lexemes["source"]
            region.parsed = Lexeme(expand(raw), raw.offset, raw.line_offset)
            region.evaluator = self.run_doctests if region.parsed.lstrip().startswith(">>>") else self.run_code
            yield region

    def run_code(self, example):
        self._turn_to(example)
        return self.code(example)

    def run_doctests(self, example):
        self._turn_to(example)
        for region in self.split(example.parsed, example.path):
            part = copy(example)
            part.parsed = region.parsed
            if failure := self.doctest(part):
                return failure
        return None

    @staticmethod
    def _turn_to(example) -> None:
        page.language = "zh" if "docs/zh" in example.path.replace("\\", "/") else "en"


def setup(namespace) -> None:
    """What a page's examples may use: the names that the shown sections rely on, and conditions to skip by."""
    import torch
    import torch.nn.functional as F
    namespace.update(torch=torch, F=F, has_cuda=shutil.which("nvidia-smi") is not None and torch.cuda.is_available())


pytest_collect_file = Sybil(parsers=[FenceParser(), SkipParser()], path="docs", patterns=["*.md"], setup=setup).pytest()
