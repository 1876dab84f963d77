"""A snippet's digest: what changes it, what does not, and that every supported Python gives the same."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import snippet
from tests.conftest import need

COMPARISON = '''"""What it shows."""
import torch
from topic.helper import scale


def run(x):
    return scale(x) + 1


variants = {"run": run}
time_limit_s = 60
'''
HELPER = "def scale(x):\n    return 2 * x\n"
CAPTURE = "def capture(device):\n    return {}\n"
ODD = '''@decorate(1, key="a")
def f(x, width=3):
    """A docstring
    of two lines."""
    名 = f"中文 {x!r:>{width}} {'in' + f'deep {x + 1}'} \u2028 {{kept}}" f'{x}'  # a comment
    text = rf"""first {x}
    second { x
    } third""" "tail"
    if (n := len(text)) > 10: return n
    match x:
        case [1, *rest] if rest:
            return rest
        case {"a": str() as a, **more}:
            return a, more
    # between
    return text \\
        + 名


class C:
    "doc"
    y: int = 0x_ff
'''


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder of snippets: one comparison that imports a helper, and one capture."""
    folder = tmp_path / "snippets"
    for name, source in (("topic/run", COMPARISON), ("topic/helper", HELPER), ("topic/seen", CAPTURE)):
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    monkeypatch.setattr(snippet, "ROOT", tmp_path)
    monkeypatch.setattr(snippet, "SNIPPETS", folder)
    snippet.digest.cache_clear()
    yield folder
    snippet.digest.cache_clear()


def rewritten(tree: Path, name: str, old: str, new: str, digest_of: str = "topic/run") -> str:
    """The digest after a change in one file."""
    file = tree / f"{name}.py"
    source = file.read_text(encoding="utf-8")
    assert old in source
    file.write_text(source.replace(old, new), encoding="utf-8")
    snippet.digest.cache_clear()
    return snippet.digest(digest_of)


@pytest.mark.parametrize(("old", "new"), [
    ("import torch\n", "import torch  # why\n"),
    ('"""What it shows."""', '"""Other\nwords."""\n'),
    ("def run(x):\n", 'def run(x):\n    """Now it has one."""\n\n'),
    ("scale(x) + 1", "scale(\n        x\n    ) + 1"),
    ("\n\n\nvariants", "\n\n\n\n# more room\nvariants"),
])
def test_digest_ignores_comments_docstrings_and_layout(tree, old, new):
    before = snippet.digest("topic/run")
    assert rewritten(tree, "topic/run", old, new) == before


@pytest.mark.parametrize(("name", "old", "new"), [
    ("topic/run", "+ 1", "+ 2"), ("topic/run", '"run":', '"runs":'), ("topic/helper", "2 * x", "3 * x"),
])
def test_digest_changes_with_code_of_its_own_or_imported(tree, name, old, new):
    before = snippet.digest("topic/run")
    assert rewritten(tree, name, old, new) != before


@pytest.mark.parametrize("line", [
    "from .helper import scale", "from . import helper", "import topic.helper", "from topic import helper",
])
def test_digest_follows_every_form_of_import(tree, line):
    before = rewritten(tree, "topic/run", "from topic.helper import scale", line)
    assert rewritten(tree, "topic/helper", "2 * x", "3 * x") != before


def test_digest_changes_with_the_method_of_its_kind(tree, monkeypatch):
    compared, captured = snippet.digest("topic/run"), snippet.digest("topic/seen")
    monkeypatch.setattr(snippet, "METHOD", {"comparison": 99, "capture": 1})
    snippet.digest.cache_clear()
    assert snippet.digest("topic/run") != compared
    assert snippet.digest("topic/seen") == captured


def test_digest_of_a_capture_counts_line_positions(tree):
    before = snippet.digest("topic/seen")
    assert rewritten(tree, "topic/seen", "return {}", "return {}  # the same line", "topic/seen") == before
    assert rewritten(tree, "topic/seen", "def capture", "\ndef capture", "topic/seen") != before


def test_digest_of_the_committed_clocks_follows_the_chain_it_imports():
    files: dict = {}
    snippet._collect(snippet.path("fusion/pointwise/clocks"), True, files)
    assert {file.stem for file in files} == {"clocks", "chain"}


def interpreter(version: str) -> str | None:
    """A working Python of that version, of pyenv or on the PATH; a pyenv shim may exist and fail."""
    installed = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    for python in [*map(str, installed), shutil.which(f"python{version}")]:
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_normalised_tokens_are_equal_on_every_supported_python(version, tmp_path):
    python = interpreter(version)
    need(python, f"no Python {version} here to compare tokens with")
    odd = tmp_path / "odd.py"
    odd.write_text(ODD, encoding="utf-8")
    files = [str(odd), *map(str, sorted(snippet.ROOT.glob("snippets/**/*.py")))]
    script = ("import json, sys; from harness.snippet import normalised_tokens as tokens\n"
              "sources = [open(file, encoding='utf-8').read() for file in sys.argv[1:]]\n"
              "print(json.dumps([tokens(source, lines) for source in sources for lines in (False, True)]))")
    told = subprocess.run([python, "-c", script, *files], cwd=snippet.ROOT, capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"})
    ours = [snippet.normalised_tokens(Path(file).read_text(encoding="utf-8"), lines)
            for file in files for lines in (False, True)]
    assert json.loads(told.stdout) == json.loads(json.dumps(ours))


def test_normalised_tokens_keep_an_f_string_as_it_is_written():
    strings = [text for kind, text in snippet.normalised_tokens(ODD) if kind == "STRING"]
    assert strings[1].startswith('f"中文 {x!r:>{width}}') and strings[1].endswith('{{kept}}"')
    assert strings[2] == "f'{x}'"
    assert strings[3] == 'rf"""first {x}\n    second { x\n    } third"""'
    assert "doc" not in "".join(strings)


def test_names_lists_what_a_folder_or_a_name_selects(tree):
    assert snippet.names() == ["topic/run", "topic/seen"]
    assert snippet.names("topic") == snippet.names("topic/") == ["topic/run", "topic/seen"]
    assert snippet.names("topic/seen") == ["topic/seen"]
    assert snippet.names("topic/seen", "topic") == ["topic/seen", "topic/run"]


@pytest.mark.parametrize("unknown", ["topic/ru", "nothing", "topic/helper"])
def test_names_refuses_an_unknown_one_by_name(tree, unknown):
    with pytest.raises(snippet.SnippetError, match=f"no snippet is named {unknown}; there are: topic/run, topic/seen"):
        snippet.names("topic/run", unknown)


def test_names_says_which_file_cannot_be_parsed(tree):
    (tree / "topic" / "broken.py").write_text("x = 1\ndef f(:\n", encoding="utf-8")
    with pytest.raises(snippet.SnippetError, match=r"snippets/topic/broken.py, line 2"):
        snippet.names()


def test_constant_reads_a_literal_without_importing(tree):
    (tree / "topic" / "never.py").write_text("raise SystemExit\nlimits = {'a': [1, 2]}\nsum = 1 + x\n", encoding="utf-8")
    assert snippet.constant("topic/never", "limits", None) == {"a": [1, 2]}
    assert snippet.constant("topic/never", "absent", 7) == 7
    with pytest.raises(snippet.SnippetError, match="sum must be a literal"):
        snippet.constant("topic/never", "sum", 0)


def test_load_names_what_a_comparison_lacks(tree, monkeypatch):
    (tree / "topic" / "bare_comparison.py").write_text("variants = {}\ninputs = cases = None\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(snippet.SnippetError, match="bare_comparison.py: a comparison also needs reference, small, tolerance"):
        snippet.load("topic/bare_comparison")
    for module in [name for name in sys.modules if name.split(".")[0] == "topic"]:
        del sys.modules[module]
