"""A page's claims: doctests over records in snippets/<page>/claims.pycon, shown on the page and run here and by Sybil."""
import doctest

from harness.record import REFERENCE
from harness.show import _shown, claims_result
from harness.snippet import SNIPPETS
from harness.state import page


def check(name: str, machine: str = REFERENCE, flags: int = 0) -> tuple[int, list[str]]:
    """(examples run, sources of those that failed) of snippets/<name>/claims.pycon against a machine's records."""
    failures: list[str] = []

    class Runner(doctest.DocTestRunner):
        def report_failure(self, out, test, example, got):
            failures.append(example.source.strip())

        def report_unexpected_exception(self, out, test, example, exc_info):
            failures.append(f"{example.source.strip()}  ({exc_info[0].__name__}: {exc_info[1]})")

    text = (SNIPPETS / name / "claims.pycon").read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    before, page.machine = page.machine, machine
    try:
        Runner(verbose=False, optionflags=flags).run(test, out=lambda text: None)
    finally:
        page.machine = before
    return len(test.examples), failures


def claims(name: str) -> str:
    """HTML: how many of the page's claims hold on the reference machine, and on this build's GPU if it is another."""
    return "\n".join(claims_result(machine, *check(name, machine)) for machine in _shown())
