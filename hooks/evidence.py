"""Puts measured values into prose, and publishes the records and snippets that pages link to.

`{{ chain.fp16.eager.call_us.median | .0f }}` is an expression over the records that the page names in its front matter.
A key that a record lacks ends the build, naming page and key.
"""
import re
import sys
from posixpath import relpath

from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File

from harness import record, results, snippet
from harness.state import page as state

log = get_plugin_logger("evidence")
VALUE = re.compile(r"\{\{(?P<expression>[^{}|]+)(?:\|(?P<format>[^{}]*))?\}\}")
FENCE = re.compile(r"^(?P<mark>[ \t]*(?:`{3,}|~{3,})).*?^(?P=mark)[ \t]*$", re.M | re.S)
FUNCTIONS = {"floor_us": results.floor_us, "copy_gbps": results.copy_ceiling_gbps, "matmul_tflops": results.matmul_ceiling_tflops,
             "median": results.samples_median, "sum": sum, "len": len, "max": max, "min": min, "round": round}


def on_files(files, config):
    if state.language == "en":  # once for both languages
        for folder, pattern in ((record.RESULTS, "*.json"), (snippet.SNIPPETS, "*.py")):
            for source in sorted(folder.rglob(pattern)):
                name = source.relative_to(snippet.ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown, page, config, files):
    depth = "../" if state.language == "zh" else ""
    state.root = relpath("/", "/" + page.url) + "/" + depth
    state.machine = record.REFERENCE
    known = page.meta.get("records") or {}
    return fill(markdown, known, f"docs/{state.language}/{page.file.src_uri}")


def on_page_content(html, page, config, files):
    if "Traceback (most recent call last)" in re.sub(r"<[^>]*>", "", html):  # markdown-exec's own warning does not say where
        log.warning("docs/%s/%s: a block failed; the lines above say how", state.language, page.file.src_uri)


def on_post_build(config):
    if "torch" in sys.modules:
        raise PluginError("torch was imported while the site was built; records are all that a page may read")


def fill(markdown: str, known: dict[str, str], where: str) -> str:
    """Replace every {{ expression | format }} outside fences. Raises PluginError for one that has no value."""
    out, end = [], 0
    for fence in FENCE.finditer(markdown):
        out += [VALUE.sub(lambda found: _value(found, known, where), markdown[end:fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*out, VALUE.sub(lambda found: _value(found, known, where), markdown[end:])])


def _value(found: re.Match, known: dict[str, str], where: str) -> str:
    expression, spec = found["expression"].strip(), (found["format"] or "").strip()
    try:
        names = {alias: results.load(name) for alias, name in known.items() if re.search(rf"\b{alias}\b", expression)}
        value = eval(expression, {"__builtins__": {}, **FUNCTIONS, **names})  # noqa: S307 (pages are code: SECURITY.md)
        if not isinstance(value, (int, float, str)) or isinstance(value, bool):
            raise TypeError(f"gives a {type(value).__name__}, not a number or a text")
        return format(value, spec)
    except (results.Missing, record.RecordError, ArithmeticError, TypeError, NameError, ValueError, SyntaxError, LookupError) as error:
        raise PluginError(f"{where}: {{{{ {expression} }}}}: {error}") from error
