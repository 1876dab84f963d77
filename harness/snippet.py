"""A snippet: a file under snippets/ that gives a comparison (`variants`) or a capture (`capture`), or a lab under snippets/labs/.

Nothing here imports torch: what a snippet is, and its digest, are read from its source.
"""
import ast
import hashlib
import importlib
import io
import re
import sys
import tokenize
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SNIPPETS = ROOT / "snippets"
# Raise a version when the way of measuring changes: it is part of the digest, so its records become stale.
METHOD = {"comparison": 2, "capture": 1, "lab": 1}
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


class SnippetError(Exception):
    """A snippet that does not exist or does not keep the contract."""


def path(name: str) -> Path:
    return SNIPPETS / f"{name}.py"


def kind(file: Path) -> str | None:
    """"lab", "capture", "comparison", or None for a file that is only imported by snippets."""
    return _kind(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _kind(file: Path, changed: int) -> str | None:
    if file.parent == SNIPPETS / "labs":
        return "lab"
    tops = _parse(file).body
    if any(isinstance(node, ast.FunctionDef) and node.name == "capture" for node in tops):
        return "capture"
    return "comparison" if "variants" in _assigned(tops) else None


def _parse(file: Path) -> ast.Module:
    return _parse_as_it_is(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _parse_as_it_is(file: Path, changed: int) -> ast.Module:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise SnippetError(f"{file.relative_to(SNIPPETS.parent).as_posix()}, line {error.lineno}: {error.msg}") from None


def _assigned(tops: list[ast.stmt]) -> dict[str, ast.expr]:
    return {target.id: node.value for node in tops if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(target, ast.Name)}


def names(*prefixes: str) -> list[str]:
    """Every snippet, or those named by a full name or a folder, in the order asked for. Raises SnippetError for an unknown name."""
    found = [file.relative_to(SNIPPETS).with_suffix("").as_posix()
             for file in sorted(SNIPPETS.rglob("*.py")) if kind(file)]
    for prefix in prefixes:
        if not any(_under(name, prefix) for name in found):
            raise SnippetError(f"no snippet is named {prefix}; there are: {', '.join(found)}")
    return list(dict.fromkeys(name for prefix in prefixes for name in found if _under(name, prefix))) if prefixes else found


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix.rstrip("/") + "/")


def load(name: str):
    """Import the snippet as a module. Raises SnippetError where it breaks the contract."""
    if kind(path(name)) == "lab":
        raise SnippetError(f"snippets/{name}.py is a lab: importing would run it")
    if str(SNIPPETS) not in sys.path:
        sys.path.insert(0, str(SNIPPETS))
    module = importlib.import_module(name.replace("/", "."))
    if kind(path(name)) == "comparison":
        missing = [part for part in ("inputs", "reference", "cases", "small", "tolerance") if not hasattr(module, part)]
        if missing:
            raise SnippetError(f"snippets/{name}.py: a comparison also needs {', '.join(missing)}")
    return module


def constant(name: str, key: str, default):
    """A literal that the snippet assigns at its top, read without importing it."""
    value = _assigned(_parse(path(name)).body).get(key)
    try:
        return default if value is None else ast.literal_eval(value)
    except ValueError:
        raise SnippetError(f"snippets/{name}.py: {key} must be a literal: it is read without importing") from None


@cache
def digest(name: str) -> str:
    """SHA-256 over what the snippet does: its tokens, those of what it imports from snippets/, and the method.

    Comments, docstrings, blank lines and layout do not count. A capture records line numbers, so there they do.
    A lab records what each code cell printed, so where its cells begin and end does.
    """
    what = kind(path(name))
    seen: dict[Path, list] = {}
    _collect(path(name), what == "capture", seen)
    if what == "lab":
        seen[path(name)] = [normalised_tokens(cell) for cell in code_cells(path(name).read_text(encoding="utf-8"))]
    parts = [f"{what} {METHOD[what]}"]
    parts += [f"{file.relative_to(SNIPPETS).as_posix()} {tokens}" for file, tokens in sorted(seen.items())]
    return "sha256:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _collect(file: Path, with_lines: bool, seen: dict[Path, list]) -> None:
    source = file.read_text(encoding="utf-8")
    seen[file] = normalised_tokens(source, with_lines)
    for module in _imported(ast.parse(source), file.relative_to(SNIPPETS).parts[:-1]):
        other = SNIPPETS / (module.replace(".", "/") + ".py")
        if other.is_file() and other not in seen:
            _collect(other, with_lines, seen)


def _imported(tree: ast.AST, package: tuple[str, ...]) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found


def code_cells(source: str) -> list[str]:
    """The code cells of a lab, in py:percent form: each cell begins with a line `# %%`."""
    heads_and_bodies = re.split(r"^# %%(.*)\n", source, flags=re.M)
    return [body for head, body in zip(heads_and_bodies[1::2], heads_and_bodies[2::2], strict=True) if "[markdown]" not in head]


def normalised_tokens(source: str, with_lines: bool = False) -> list[tuple]:
    """The source as (type, text) tokens, or (type, text, line), equal on Python 3.11 to 3.13."""
    kept: list[tuple] = []
    line: list[tuple] = []
    for kind_name, text, row in _tokens(source):
        line.append((kind_name, text, row) if with_lines else (kind_name, text))
        if kind_name == "NEWLINE":
            words = [token for token in line if token[0] not in ("NEWLINE", "INDENT", "DEDENT")]
            if [token[0] for token in words] == ["STRING"]:  # a docstring
                line = [token for token in line if token[0] in ("INDENT", "DEDENT")]
            kept, line = kept + line, []
    return kept + line


def _tokens(source: str):
    """Python 3.12 splits an f-string into parts where 3.11 gives one STRING: join them again from the source."""
    rows = io.StringIO(source).readlines()  # not splitlines, which also splits where the tokenizer does not
    depth, start = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_START":
            start = token.start if depth == 0 else start
            depth += 1
        elif name == "FSTRING_END":
            depth -= 1
            if depth == 0:
                yield "STRING", _slice(rows, start, token.end), start[0]
        elif depth == 0 and token.type not in LAYOUT:
            yield name, "" if name in ("NEWLINE", "INDENT", "DEDENT") else token.string, token.start[0]


def _slice(rows: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return rows[start[0] - 1][start[1]:end[1]]
    middle = rows[start[0]:end[0] - 1]
    return "".join([rows[start[0] - 1][start[1]:], *middle, rows[end[0] - 1][:end[1]]])
