"""Child processes: one at a time on the GPU, a clean environment, a time limit, and nothing left behind."""
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from harness.snippet import ROOT

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES",
        "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "USER", "LOGNAME")

COMPILED = ROOT / ".cache" / "compiled"  # what compilers keep: a next run compiles what changed
AHEAD = max(1, min(8, (os.cpu_count() or 1) // 2))  # children that get ready while one measures


class ChildError(Exception):
    """A child that ended badly; the message says how."""


def environment() -> dict[str, str]:
    """What a snippet's process sees: no setting of the caller's that changes torch, and this project's compiler caches."""
    clean = {key: os.environ[key] for key in KEPT if key in os.environ}
    return {**clean, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), clean.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(COMPILED / "inductor"), "TRITON_CACHE_DIR": str(COMPILED / "triton")}


def worker(*words: str) -> list[str]:
    return [sys.executable, "-m", "harness.worker", *words]


class Job(NamedTuple):
    """A child to run: its command, and the file that takes its output."""
    command: tuple[str, ...]
    log: Path


class Line:
    """Children in the order in which they are expected to run: one works, the next ones are up and wait for their turn.

    A child imports torch and its compiler for seconds before it touches the GPU; it does so while those before it measure.
    Its turn comes as a line on its standard input; the end of that input, should we die, ends a waiting child.
    """

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.waiting: dict[Job, subprocess.Popen] = {}

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        for child in self.waiting.values():
            _end(child)

    def run(self, job: Job, limit_s: float) -> None:
        """Run a child to its end. Raises ChildError; whatever happens, its process group is gone."""
        child = self.waiting.pop(job, None) or _start(job)
        try:
            with suppress(BrokenPipeError):  # it has ended already: its status says how
                child.stdin.write(b"\n")
                child.stdin.flush()
            self._prepare_after(job)
            status = child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise ChildError(f"still running after its time limit of {limit_s:.0f} s") from None
        finally:
            _end(child)
        if status < 0:
            raise ChildError(f"killed by {signal.Signals(-status).name}")
        if status:
            raise ChildError(f"ended with status {status}")

    def _prepare_after(self, job: Job) -> None:
        """Start those that follow, and end those that should have run before them and were not wanted."""
        place = self.jobs.index(job) + 1 if job in self.jobs else len(self.jobs)
        following = self.jobs[place:place + AHEAD]
        for other in [other for other in self.waiting if other not in following]:
            _end(self.waiting.pop(other))
        for other in following:
            if other not in self.waiting:
                self.waiting[other] = _start(other)


def _start(job: Job) -> subprocess.Popen:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as out:
        return subprocess.Popen(job.command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=out,
                                stderr=subprocess.STDOUT, start_new_session=True)


def _end(child: subprocess.Popen) -> None:
    """Kill the whole group: Nsight Compute, its target, and compiler workers."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdin.close()


@contextmanager
def ended_like_ctrl_c():
    """Let SIGTERM and SIGHUP unwind as Ctrl-C does, so that a child is killed on those too."""
    def stop(number, frame):
        raise KeyboardInterrupt
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)
              if signal.getsignal(number) != signal.SIG_IGN}  # nohup stays what it says
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
