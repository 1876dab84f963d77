"""What the repository promises outside its code: README, workflow, CI, versions."""
import re

import pytest
import yaml

from harness import results, snippet

README = (snippet.ROOT / "README.md").read_text(encoding="utf-8")
WORKFLOW = yaml.safe_load((snippet.ROOT / ".github/workflows/site.yml").read_text(encoding="utf-8"))
COMMANDS = re.search(r"```console\n(.*?)```", README, re.S)[1].strip().splitlines()


def test_readme_result_is_the_record():
    chain = results.load("fusion/pointwise/chain")
    eager, fused = chain.fp16.eager, chain.fp16.default
    said = re.search(r"move ([\d.]+) times fewer bytes, and the call is ([\d.]+) times faster", README)
    assert said.groups() == (f"{eager.dram_bytes / fused.dram_bytes:.2f}", f"{eager.call_us.median / fused.call_us.median:.2f}")
    assert f"(torch {chain.machine.torch}, {chain.record.date}, " in README and chain.machine.gpu in README


def test_readme_has_two_commands():
    assert [f"python3 -m pip install nox && python3 -m nox -s {session}" for session in ("build", "tests")] == COMMANDS


def test_ci_runs_the_readme_test_command():
    assert COMMANDS[1] in (snippet.ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_readme_link_leads_somewhere(link):
    assert (snippet.ROOT / link).exists()


def test_workflow_gives_the_least_rights():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    writing = {name for name, job in WORKFLOW["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing == {"deploy"}
    assert WORKFLOW["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}


def test_workflow_runs_no_stranger_with_rights_or_on_a_gpu():
    assert set(WORKFLOW[True]) == {"push", "pull_request"}  # YAML reads the key `on` as true
    assert {job["runs-on"] for job in WORKFLOW["jobs"].values()} == {"ubuntu-latest"}
    used = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used and all(action.startswith("actions/") for action in used)


def test_constraints_pin_what_a_cpu_machine_gets():
    pins = dict(line.split("==") for line in (snippet.ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert pins["torch"] == "2.13.0" and {"triton", "mkdocs-material", "markdown-exec", "sybil", "pytest", "nox"} <= pins.keys()


def test_top_level_is_the_layout():
    tracked = {path.name for path in snippet.ROOT.iterdir()} - {"site", "wheelhouse", "__pycache__"}
    assert {name for name in tracked if not name.startswith(".")} == {
        "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "mkdocs.yml", "mkdocs.zh.yml", "noxfile.py",
        "pyproject.toml", "constraints.txt", "conftest.py", "docs", "overrides", "snippets", "results", "harness", "hooks", "tests"}
