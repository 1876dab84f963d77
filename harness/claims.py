"""A page's claims: doctests over records in snippets/<page>/claims.pycon, shown on the page and run here and by Sybil."""
import doctest
import io
from contextlib import redirect_stdout
from functools import lru_cache
from pathlib import Path

from harness.record import REFERENCE
from harness.show import _shown, claims_result
from harness.snippet import SNIPPETS
from harness.state import page


def check(name: str, machine: str = REFERENCE, all_of_them: bool = True) -> tuple[int, list[str]]:
    """(examples, sources of those that failed) of snippets/<name>/claims.pycon against a machine's records.

    Not `all_of_them` stops at the first that fails.
    """
    file = SNIPPETS / name / "claims.pycon"
    examples = _compiled(file, file.stat().st_mtime_ns)
    failures, names = [], {"__name__": "claims"}
    before, page.machine = page.machine, machine
    try:
        for example, code in examples:
            if fault := _fault(example, code, names):
                failures.append(fault)
                if not all_of_them:
                    break
    finally:
        page.machine = before
    return len(examples), failures


@lru_cache(maxsize=64)
def _compiled(file: Path, changed: int) -> list[tuple]:
    """doctest's own runner compiles an example each time; these run thousands of times in the tests."""
    examples = doctest.DocTestParser().get_examples(file.read_text(encoding="utf-8"), file.name)
    return [(example, compile(example.source, f"<{file.name}, line {example.lineno + 1}>", "single")) for example in examples]


def _fault(example: doctest.Example, code, names: dict) -> str | None:
    """The source of an example that does not print what it should, with the error if it raised one."""
    printed, source = io.StringIO(), example.source.strip()
    try:
        with redirect_stdout(printed):
            exec(code, names)  # claims are code: SECURITY.md
    except Exception as error:  # whatever a claim raises, it does not hold
        return f"{source}  ({type(error).__name__}: {error})"
    return None if printed.getvalue() == example.want else source


def claims(name: str) -> str:
    """HTML: how many of the page's claims hold on the reference machine, and on this build's GPU if it is another."""
    return "\n".join(claims_result(machine, *check(name, machine)) for machine in _shown())
