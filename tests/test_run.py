"""What a build does with snippets that fail, and that it leaves nothing behind."""
import copy
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
from rich.console import Console

from harness import __main__ as commands
from harness import counters, lock, process, record, run, snippet

ROOT = snippet.ROOT
REFERENCE = record.read(ROOT / "results" / record.REFERENCE / "fusion" / "pointwise" / "clocks.json")
MACHINE = REFERENCE["machine"]
# What a snippet's process does here, by the snippet's name, in place of the worker. The answer's file is the last word.
DOES = {
    "topic/good": "answer(dict(machine=MACHINE, data={'n': 1}))",
    "topic/raises": "print('before the error'); raise ValueError('the device is sad')",
    "topic/crashes": "print('before the crash'); os.kill(os.getpid(), signal.SIGSEGV)",
    "topic/hangs": "print('before the hang'); time.sleep(60)",
    "topic/silent": "print('nothing to say')",
    "topic/breaks": "answer(dict(machine=MACHINE, data={}, surprise=1))",
    "topic/compiles": "kept = os.environ['TRITON_CACHE_DIR']; os.makedirs(kept, exist_ok=True); open(kept + '/kernel.cubin', 'w'); "
                      "answer(dict(machine=MACHINE, data={}))",
    "topic/last": "answer(dict(machine=MACHINE, data={'n': 2}))",
}
SAYS = {  # what is printed of each failure: the reason, then a line of the log
    "topic/raises": (r"ended with status 1", "ValueError: the device is sad"),
    "topic/crashes": (r"killed by SIGSEGV", "before the crash"),
    "topic/hangs": (r"still running after its time limit of 1 s", "before the hang"),
    "topic/silent": (r"ended well but left no result", "nothing to say"),
    "topic/breaks": (r"'surprise' was unexpected", None),
}
HEAD = f"""import json, os, signal, sys, time
sys.stdin.readline()
MACHINE = {MACHINE!r}
def answer(it): json.dump(it, open(sys.argv[-1], 'w'))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of captures, whose processes are small scripts; each one that ran is a line in ran.txt."""
    for name in DOES:
        file = tmp_path / "snippets" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("time_limit_s = 1\n\n\ndef capture(device):\n    return {}\n", encoding="utf-8")
    ran = tmp_path / "ran.txt"
    ran.touch()

    def worker(task, name, *rest):
        noted = f"open({str(ran)!r}, 'a').write({name!r} + '\\n')\n"
        return [sys.executable, "-c", HEAD + noted + DOES[name], task, name, *rest]
    for module, key, value in ((snippet, "ROOT", tmp_path), (snippet, "SNIPPETS", tmp_path / "snippets"),
                               (record, "RESULTS", tmp_path / "results"), (run, "LOGS", tmp_path / "logs"),
                               (process, "COMPILED", tmp_path / "compiled"), (process, "worker", worker)):
        monkeypatch.setattr(module, key, value)
    snippet.digest.cache_clear()
    yield tmp_path
    snippet.digest.cache_clear()


def measured(project: Path, names: list[str], machine: dict = MACHINE, again: bool = False) -> tuple[list[str], str, list[str]]:
    """What failed, what was printed, and what ran."""
    (project / "ran.txt").write_text("", encoding="utf-8")
    console = Console(file=io.StringIO(), width=200, soft_wrap=True)
    failed = run.measure_all(names, machine, again, console)
    return failed, console.file.getvalue(), (project / "ran.txt").read_text(encoding="utf-8").split()


def earlier_record(name: str) -> bytes:
    """A good but stale record put in place."""
    old = {key: value for key, value in copy.deepcopy(REFERENCE).items() if key not in ("checksum", "schema")}
    record.write(old | {"snippet": name}, record.path(MACHINE["name"], name))
    return record.path(MACHINE["name"], name).read_bytes()


@pytest.mark.parametrize("name", SAYS)
def test_run_reports_a_failure_by_name_and_measures_the_others(project, name):
    before = earlier_record(name)
    failed, text, ran = measured(project, [name, "topic/last"])
    reason, logged = SAYS[name]
    assert failed == [name] and ran == [name, "topic/last"]
    assert re.search(rf"FAILED {name}: .*{reason}.*; run it again with: python -m harness run {name}\n", text)
    assert f"the end of logs/{name}.log" in text
    assert (f"| {logged}" in text) if logged else "  | " not in text
    assert record.path(MACHINE["name"], name).read_bytes() == before
    assert record.read(record.path(MACHINE["name"], "topic/last"))["data"] == {"n": 2}
    assert (project / "logs" / f"{name}.log").exists() and not (project / "logs" / "topic" / "last.log").exists()


def test_run_reports_what_nobody_thought_of(project, monkeypatch):
    def full(content, file):
        raise OSError("no space left on device")
    monkeypatch.setattr(record, "write", full)
    failed, text, _ = measured(project, ["topic/good", "topic/last"])
    assert failed == ["topic/good", "topic/last"]
    assert "FAILED topic/good: OSError('no space left on device')" in text


def test_run_with_nothing_changed_runs_nothing(project):
    assert measured(project, ["topic/good", "topic/last"])[2] == ["topic/good", "topic/last"]
    failed, text, ran = measured(project, ["topic/good", "topic/last"])
    assert (failed, ran) == ([], [])
    assert "2 snippets, 2 fresh, 0 to measure" in text


def test_run_time_left_falls_by_what_was_expected(project):
    text = measured(project, ["topic/good", "topic/raises", "topic/last"])[1]
    assert re.findall(r"about (\d+) s left", text) == ["270", "180", "90"]  # whatever each really took


def test_run_record_says_where_it_comes_from(project):
    measured(project, ["topic/good"])
    content = record.read(record.path(MACHINE["name"], "topic/good"))
    assert (content["snippet"], content["kind"], content["method_version"]) == ("topic/good", "capture", 1)
    assert content["digest"] == snippet.digest("topic/good") and content["machine"] == MACHINE


def test_run_keeps_what_was_compiled_and_says_how_much_was_new(project):
    counts = []
    for _ in range(2):
        measured(project, ["topic/compiles", "topic/last"], again=True)
        counts.append([record.read(record.path(MACHINE["name"], name))["compiled_count"] for name in ("topic/compiles", "topic/last")])
    assert counts == [[1, 0], [0, 0]]


def test_run_plans_only_the_snippet_whose_code_was_touched(project):
    measured(project, ["topic/good", "topic/last"])
    file = snippet.path("topic/last")
    file.write_text(file.read_text(encoding="utf-8") + "more = 1\n", encoding="utf-8")
    snippet.digest.cache_clear()
    assert run.plan(["topic/good", "topic/last"], MACHINE, False) == {"topic/last": "stale"}
    assert measured(project, ["topic/good", "topic/last"])[2] == ["topic/last"]


def test_run_plans_what_another_environment_measured_and_all_when_asked(project):
    measured(project, ["topic/good"])
    assert run.plan(["topic/good"], MACHINE | {"torch": "9.9"}, False) == {"topic/good": "other environment"}
    assert run.plan(["topic/good", "topic/last"], MACHINE, False) == {"topic/last": "missing"}
    assert run.plan(["topic/good", "topic/last"], MACHINE, True) == {"topic/good": "asked for", "topic/last": "asked for"}


def test_run_measures_again_what_was_edited_by_hand(project):
    measured(project, ["topic/good"])
    file = record.path(MACHINE["name"], "topic/good")
    file.write_text(file.read_text(encoding="utf-8").replace('"n": 1', '"n": 5'), encoding="utf-8")
    assert "checksum differs" in run.plan(["topic/good"], MACHINE, False)["topic/good"]
    assert measured(project, ["topic/good"])[0] == [] and record.read(file)["data"] == {"n": 1}


@pytest.mark.parametrize(("names", "status"), [(["topic/good"], 0), (["topic/raises"], 1)])
def test_build_renders_the_site_whatever_failed(project, monkeypatch, names, status):
    rendered = []
    monkeypatch.setattr(commands.machine, "has_gpu", lambda: True)
    monkeypatch.setattr(run, "this_machine", lambda: MACHINE)
    monkeypatch.setattr(commands.site, "build", rendered.append)
    monkeypatch.setattr(commands, "console", Console(file=io.StringIO()))
    assert commands.build(Namespace(names=names, fresh=False)) == status
    assert rendered == [MACHINE]
    assert ("1 failed: topic/raises; earlier records were kept" in commands.console.file.getvalue()) == bool(status)


def test_build_without_a_gpu_renders_the_records_as_they_are(project, monkeypatch):
    rendered = []
    monkeypatch.setattr(commands.machine, "has_gpu", lambda: False)
    monkeypatch.setattr(commands.site, "build", rendered.append)
    monkeypatch.setattr(commands, "console", Console(file=io.StringIO()))
    assert commands.build(Namespace(names=[], fresh=True)) == 0
    assert rendered == [None] and (project / "ran.txt").read_text() == ""


def test_run_says_why_a_gpu_cannot_be_described(monkeypatch):
    monkeypatch.setattr(process, "worker", lambda *words: [sys.executable, "-c", "import no_such_torch"])
    with pytest.raises(process.ChildError, match="cannot be described: ModuleNotFoundError: No module named 'no_such_torch'"):
        run.this_machine()


def test_run_takes_the_commit_of_a_copy_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("SOURCE_COMMIT", "abc1234")
    assert run._commit() == "abc1234"


def test_run_says_where_counters_are_missing(project, monkeypatch):
    snippet.path("topic/good").write_text("variants = compiled = {}\n", encoding="utf-8")
    monkeypatch.setattr(counters, "tool", lambda: None)
    monkeypatch.setitem(DOES, "topic/good", f"answer(dict(machine=MACHINE, results={RESULTS!r}))")
    assert measured(project, ["topic/good"])[0] == []
    content = record.read(record.path(MACHINE["name"], "topic/good"))
    assert content["counters_missing"] == "Nsight Compute (ncu) is not installed"


def test_run_counts_kernels_and_calls_in_processes_of_their_own(project, monkeypatch):
    snippet.path("topic/good").write_text("variants = compiled = {}\ncount_calls = True\n", encoding="utf-8")
    monkeypatch.setattr(counters, "tool", lambda: "ncu")
    monkeypatch.setattr(counters, "command", lambda table, metrics, *options: [sys.executable, "-c", NCU, table])
    compute = [result | {"kernels": [kernel | {"name": "k"} for kernel in result["kernels"]]} for result in RESULTS]
    monkeypatch.setitem(DOES, "topic/good", f"answer(dict(machine=MACHINE, results={compute!r}))")
    assert measured(project, ["topic/good"])[0] == []
    results = record.read(record.path(MACHINE["name"], "topic/good"))["results"]
    assert [result.get("again_us") for result in results] == [7.5, None, 7.5]
    assert [result.get("call_counters") for result in results] == [{"dram_read_bytes": 5, "dram_write_bytes": 6}] * 3
    assert [result["kernels"][0]["counters"]["registers"] for result in results] == [18, 18, 18]


RESULTS = [{**{key: value for key, value in result.items() if key in ("error", "call_us", "enqueue_us", "kernels", "memory")},
            "case": case, "variant": variant, "outcome": "measured"}
           for result in json.loads((ROOT / "results" / record.REFERENCE / "machine" / "copy.json").read_text())["results"][:1]
           for case, variant in (("big", "eager"), ("big", "fast"), ("small", "fast"))]
NCU = """
import json, sys
sys.stdin.readline()
table, out = sys.argv[1], sys.argv[-1]
calls = "count_calls" in sys.argv
header = '"ID","Domain","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"' + ("" if calls else ',"launch__registers_per_thread"')
rows = [f'"{n}","","range","5","6"' for n in range(3)] if calls else [f'"{n}","measure:{n}:x","k","1","2","18"' for n in range(3)]
open(table, "w").write("\\n".join([header, '"","","","byte","byte"', *rows]))
json.dump([None] * 3 if calls else [7.5, None, 7.5], open(out, "w"))
"""


def test_run_starts_the_next_process_early_and_lets_it_wait_for_its_turn(project):
    order = project / "order.txt"
    script = f"""
import pathlib, sys, time
name, order = sys.argv[1], pathlib.Path({str(order)!r})
def say(word): order.open("a").write(f"{{name}} {{word}}\\n")
say("up")
sys.stdin.readline()
begun = time.monotonic()
while "second up" not in order.read_text() and time.monotonic() - begun < 20: time.sleep(0.05)
say("works")
"""
    jobs = [process.Job((sys.executable, "-c", script, name), project / f"{name}.log") for name in ("first", "second")]
    with process.Line(jobs) as line:
        for job in jobs:
            line.run(job, 30)
    said = order.read_text().splitlines()
    assert said.index("second up") < said.index("first works") < said.index("second works")


def test_run_ends_a_waiting_process_that_is_not_wanted(project):
    jobs = [process.Job((sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.readline()"), project / f"{name}.log")
            for name in ("first", "second")]
    with process.Line(jobs) as line:
        line.run(jobs[0], 30)
        waiting = line.waiting[jobs[1]]
        assert alive(waiting.pid)
    assert not alive(waiting.pid)


def test_lock_refuses_a_second_holder_and_dies_with_the_first(tmp_path):
    file = tmp_path / "deep" / "build.lock"
    script = "import sys, time; from pathlib import Path; from harness import lock\n" \
             "with lock.hold(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script, str(file)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(lock.Locked, match=rf"process {holder.pid}, since \d\d:\d\d:\d\d"), lock.hold(file):
            pass
        holder.kill()
    with lock.hold(file):
        assert str(os.getpid()) in file.read_text(encoding="utf-8") and str(holder.pid) not in file.read_text(encoding="utf-8")


PARENT = """
import signal, sys
from pathlib import Path
from harness import process
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
signal.signal(signal.SIGHUP, signal.SIG_DFL)
child = '''
import os, subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), grandchild.pid, flush=True)
time.sleep(60)
'''
folder = Path(sys.argv[1])
try:
    with process.ended_like_ctrl_c():
        process.Line([]).run(process.Job((sys.executable, "-c", child), folder / "log.txt"), 60)
except KeyboardInterrupt:
    sys.exit(130)
"""


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true, limit_s: float = 20.0):
    begun = time.monotonic()
    while not (value := true()) and time.monotonic() - begun < limit_s:
        time.sleep(0.02)
    return value


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_process_leaves_no_child_alive_when_stopped(tmp_path, number):
    log = tmp_path / "log.txt"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT)
    pids = [int(word) for word in wait_until(lambda: log.exists() and log.read_text().endswith("\n") and log.read_text()).split()]
    assert len(pids) == 2 and all(alive(pid) for pid in pids)
    parent.send_signal(number)
    assert parent.wait(timeout=20) == 130
    assert wait_until(lambda: not any(alive(pid) for pid in pids))


def test_process_stays_deaf_to_a_hang_up_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with process.ended_like_ctrl_c():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_process_ends_what_a_child_that_ended_well_left_running(tmp_path):
    script = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    process.Line([]).run(process.Job((sys.executable, "-c", script), tmp_path / "log.txt"), 20)
    pid = int((tmp_path / "log.txt").read_text())
    assert wait_until(lambda: not alive(pid))


def test_process_environment_drops_what_changes_torch(monkeypatch, tmp_path):
    for key in ("TORCH_LOGS", "TRITON_INTERPRET", "CUDA_LAUNCH_BLOCKING", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(key, "mine")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(process, "COMPILED", tmp_path)
    seen = process.environment()
    assert not {"TORCH_LOGS", "TRITON_INTERPRET", "CUDA_LAUNCH_BLOCKING", "PYTORCH_ALLOC_CONF"} & seen.keys()
    assert seen["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor") and seen["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
    assert seen["PYTHONPATH"] == f"{ROOT}{os.pathsep}/elsewhere" and seen["CUDA_VISIBLE_DEVICES"] == "3"
