"""Measures the snippets whose records need it, one fresh process after another, and keeps each good record. No torch."""
import json
import os
import re
import subprocess
import tempfile
import time
from collections import deque
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness import counters, process, record, snippet

LOGS = snippet.ROOT / ".cache" / "logs"
GUESS_S = 90.0  # of a snippet that was never measured


def this_machine() -> dict:
    """Description of the GPU here, asked of a child so that this process never imports torch. Raises ChildError."""
    try:
        asked = subprocess.run(process.worker("machine"), cwd=snippet.ROOT, env=process.environment(),
                               capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        raise process.ChildError("this machine's GPU could not be described within 300 s") from None
    if asked.returncode:
        tail = asked.stderr.strip().splitlines()[-1:] or ["no output"]
        raise process.ChildError(f"this machine's GPU cannot be described: {tail[0]}; is torch with CUDA installed?")
    return json.loads(asked.stdout.strip().splitlines()[-1])


def plan(names: list[str], machine: dict, again: bool) -> dict[str, str]:
    """The snippets to measure, each with its reason."""
    reasons = {}
    for name in names:
        try:
            state = record.freshness(name, machine["name"], machine)
        except record.RecordError as error:
            state = str(error)
        if again or state != "fresh":
            reasons[name] = "asked for" if again else state
    return reasons


def measure_all(names: list[str], machine: dict, again: bool, console: Console) -> list[str]:
    """Measure what needs it; returns the names that failed. Their earlier records stay as they are."""
    reasons = plan(names, machine, again)
    console.print(f"{machine['gpu']}: {len(names)} snippets, {len(names) - len(reasons)} fresh, {len(reasons)} to measure")
    failed = []
    for name in reasons:
        _log(name).unlink(missing_ok=True)
    expected_s = {name: _expected_s(name, machine["name"]) for name in reasons}  # before new records change it
    left_s = sum(expected_s.values())
    with tempfile.TemporaryDirectory() as folder, _progress(console) as progress, \
            process.Line([job for name in reasons for job in _jobs(name, Path(folder)).values()]) as line:
        task = progress.add_task("", total=len(reasons), left="")
        for number, (name, reason) in enumerate(reasons.items(), 1):
            progress.update(task, description=name, left=f"about {left_s:.0f} s left")
            if not console.is_terminal:
                console.print(f"[{number}/{len(reasons)}] {name} ({reason}), about {left_s:.0f} s left", markup=False)
            if not _kept(name, machine["name"], Path(folder), line, console):
                failed.append(name)
            left_s -= expected_s[name]
            progress.advance(task)
    return failed


def _progress(console: Console) -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                    TextColumn("{task.fields[left]}"), console=console, disable=not console.is_terminal)


def _expected_s(name: str, machine: str) -> float:
    for where in (machine, record.REFERENCE):
        try:
            return record.read(record.path(where, name))["duration_s"]
        except (OSError, record.RecordError):
            continue
    return GUESS_S


def _log(name: str) -> Path:
    return LOGS / f"{name}.log"


def _jobs(name: str, folder: Path) -> dict[str, process.Job]:
    """The processes of a snippet in order: the measurement, then one for the counters of each kernel, or of each call."""
    tasks = {"measure": []}
    if snippet.kind(snippet.path(name)) == "comparison" and counters.tool():
        if snippet.constant(name, "count_traffic", True):
            tasks["count"] = counters.command(str(folder / name / "count.csv"), counters.KERNEL_METRICS, *counters.EACH_KERNEL)
        if snippet.constant(name, "count_calls", False):
            tasks["count_calls"] = counters.command(str(folder / name / "count_calls.csv"), counters.CALL_METRICS,
                                                    *counters.WHOLE_CALL)
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    return {task: process.Job((*before, *process.worker(task, name, str(out / f"{task}.json"))), _log(name))
            for task, before in tasks.items()}


def _kept(name: str, machine: str, folder: Path, line: process.Line, console: Console) -> bool:
    """Measure one snippet and write its record; say by name what went wrong."""
    log = _log(name)
    begun, compiled = time.monotonic(), _compiled_count()
    try:
        answer, spent_s = measure(name, folder, line)
        answer["duration_s"] = round(time.monotonic() - begun, 1)
        answer["compiled_count"] = _compiled_count() - compiled
        record.write(answer, record.path(machine, name))
    except Exception as error:  # whatever one snippet does, the others are still measured
        known = isinstance(error, (process.ChildError, record.RecordError, snippet.SnippetError))
        error = error if known else repr(error)
        console.print(f"FAILED {name}: {error}; run it again with: python -m harness run {name}", markup=False)
        console.print(f"  the end of {log.relative_to(snippet.ROOT).as_posix()}:", markup=False)
        for said in _tail(log):
            console.print(f"  | {said}", markup=False, highlight=False)
        return False
    log.unlink(missing_ok=True)
    parts = ", ".join(f"{task} {seconds:.1f}" for task, seconds in spent_s.items())
    console.print(f"  measured {name} in {answer['duration_s']} s ({parts})", markup=False)
    return True


def _compiled_count() -> int:
    """How many kernels the compilers keep."""
    return sum(1 for _ in process.COMPILED.rglob("*.cubin"))


def _tail(log: Path, lines: int = 20) -> list[str]:
    if not log.exists():
        return ["(no log was written)"]
    return list(deque(log.read_text(encoding="utf-8", errors="replace").splitlines(), lines))


def measure(name: str, folder: Path, line: process.Line) -> tuple[dict, dict[str, float]]:
    """A record's content, from processes of its own: the measurement, then the counters. And what each took, in seconds."""
    jobs, limit_s, spent_s = _jobs(name, folder), snippet.constant(name, "time_limit_s", 600), {}

    def finish(task: str):
        begun = time.monotonic()
        try:
            line.run(jobs.pop(task), limit_s)
        finally:
            spent_s[task] = time.monotonic() - begun
        return _answer(folder / name / f"{task}.json")
    answer = finish("measure")
    if answer.get("results") and not jobs:
        wanted = snippet.constant(name, "count_traffic", True)
        answer["counters_missing"] = "Nsight Compute (ncu) is not installed" if wanted else "this snippet asks for times alone"
    for task in list(jobs) if answer.get("results") else ():
        try:
            again = finish(task)
            table = counters.parse((folder / name / f"{task}.csv").read_text(encoding="utf-8"))
            counters.ATTACH[task](answer["results"], table)
            for result, again_us in zip(answer["results"], again, strict=True):
                result.update({"again_us": again_us} if again_us else {})
        except (process.ChildError, OSError, ValueError) as error:
            answer["counters_missing"] = f"Nsight Compute could not read the counters: {error}"[:300]
    what = snippet.kind(snippet.path(name))
    return {"snippet": name, "kind": what, "method_version": snippet.METHOD[what], "digest": snippet.digest(name),
            "date": date.today().isoformat(), "commit": _commit(), **answer}, spent_s


def _answer(out: Path):
    try:
        return json.loads(out.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise process.ChildError("ended well but left no result") from None


def _commit() -> str | None:
    """The commit the snippets were at, with a + where the tree had changes; $SOURCE_COMMIT says it for a copy of a tree."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        described = subprocess.run(command, cwd=snippet.ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # an image without git
        described = ""
    found = os.environ.get("SOURCE_COMMIT") or described
    return found if re.fullmatch(r"[0-9a-f]{4,40}\+?", found) else None
