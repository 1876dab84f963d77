"""Child processes: one at a time, a clean environment, a time limit, and nothing left behind on the GPU."""
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.snippet import ROOT

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES",
        "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "USER", "LOGNAME")


class ChildError(Exception):
    """A child that ended badly; the message says how."""


def environment(cache: Path) -> dict[str, str]:
    """What a snippet's process sees: no setting of the caller's that changes torch, and compiler caches of its own."""
    clean = {key: os.environ[key] for key in KEPT if key in os.environ}
    return {**clean, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), clean.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}


def worker(*words: str) -> list[str]:
    return [sys.executable, "-m", "harness.worker", *words]


def run(command: list[str], cache: Path, log: Path, limit_s: float) -> None:
    """Run a child to its end, its output in `log`. Raises ChildError; whatever happens, its process group is gone."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(command, cwd=ROOT, env=environment(cache), stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise ChildError(f"still running after its time limit of {limit_s:.0f} s") from None
        finally:
            _end(child)
    if status < 0:
        raise ChildError(f"killed by {signal.Signals(-status).name}")
    if status:
        raise ChildError(f"ended with status {status}")


def _end(child: subprocess.Popen) -> None:
    """Kill the whole group: Nsight Compute, its target, and compiler workers."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


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
