"""python -m harness build|run|serve|check: the commands behind the nox sessions."""
import argparse
import sys

from rich.console import Console

from harness import lock, machine, process, record, run, show_terminal, site, snippet

console = Console(soft_wrap=True)


def build(arguments) -> int:
    """Measure what needs it where there is a GPU, then render both languages. 1 if any snippet failed."""
    here, failed = None, []
    if machine.has_gpu():
        here = run.this_machine()
        failed = run.measure_all(snippet.names(*arguments.names), here, _again(arguments), console)
    else:
        console.print("no NVIDIA GPU here: the committed records are rendered as they are")
    site.build(here)
    console.print("site/ is built; open site/index.html through a server: python -m http.server -d site")
    return _report(failed)


def measure(arguments) -> int:
    """Measure the named snippets on this GPU and print what it said."""
    if not machine.has_gpu():
        console.print("no NVIDIA GPU here, so nothing was measured; the committed records are under results/")
        return 2
    description = run.this_machine()
    names = snippet.names(*arguments.names)
    failed = run.measure_all(names, description, True, console)
    for name in names:
        if name not in failed:
            show_terminal.show(name, description["name"], console)
    return _report(failed)


def serve(arguments) -> int:
    return site.serve((arguments.names or ["en"])[0], run.this_machine() if machine.has_gpu() else None)


def check(arguments) -> int:
    """Every record of the reference machine reads well and is fresh."""
    states = {name: record.freshness(name, record.REFERENCE) for name in snippet.names()}
    for name, state in states.items():
        if state != "fresh":
            console.print(f"{name}: {state}; measure it on a GPU: nox -s build -- {name}", markup=False)
    return int(any(state != "fresh" for state in states.values()))


def _again(arguments) -> bool:
    return arguments.fresh or bool(arguments.names)


def _report(failed: list[str]) -> int:
    if failed:
        console.print(f"{len(failed)} failed: {', '.join(failed)}; earlier records were kept", markup=False)
    return int(bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness", description=__doc__)
    parser.add_argument("command", choices=["build", "run", "serve", "check"])
    parser.add_argument("names", nargs="*", help="snippets, or folders of them; for serve: en or zh")
    parser.add_argument("--fresh", action="store_true", help="measure again what is fresh, too")
    arguments = parser.parse_args()
    command = {"build": build, "run": measure, "serve": serve, "check": check}[arguments.command]
    try:
        with process.ended_like_ctrl_c():
            if arguments.command in ("build", "run"):
                with lock.hold(snippet.ROOT / ".cache" / "build.lock"):
                    return command(arguments)
            return command(arguments)
    except (lock.Locked, process.ChildError, record.RecordError, snippet.SnippetError, site.SiteError) as error:
        console.print(f"error: {error}", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running, and earlier records are as they were")
        return 130


if __name__ == "__main__":
    sys.exit(main())
