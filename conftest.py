"""Sybil over docs/**/*.md: every Python and pycon fence of both trees runs, with included sections expanded.

Sybil's own parser skips a fence that has more than a language in its first line (`python exec="true"`, `python title=`)
and would run a bare include line as code, so the parser is ours. How many examples each page gives is asserted in
tests/test_pages.py. At the root, since pytest looks here for files under docs/.
"""
import linecache
import re
import shutil
from copy import copy
from functools import partial
from importlib.util import find_spec

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
        return run_kernel(example) if "@triton.jit" in example.parsed else self.code(example)

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


def run_kernel(example) -> None:
    """Triton asks for the source of what it decorates: give it the expanded fence, which is in no file."""
    name = f"<{example.path}, line {example.line}>"
    linecache.cache[name] = (len(example.parsed), None, example.parsed.splitlines(keepends=True), name)
    exec(compile(example.parsed, name, "exec"), example.namespace)


def setup(namespace) -> None:
    """What a page's examples may use: the names that the shown sections rely on, and conditions to skip by."""
    import torch
    import torch.nn.functional as F
    if find_spec("triton"):
        import triton
        import triton.language as tl
        namespace.update(triton=triton, tl=tl)
    namespace.update(torch=torch, F=F, partial=partial, has_cuda=shutil.which("nvidia-smi") is not None and torch.cuda.is_available())


pytest_collect_file = Sybil(parsers=[FenceParser(), SkipParser()], path="docs", patterns=["*.md"], setup=setup).pytest()
