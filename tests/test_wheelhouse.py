"""The offline bundle: what is downloaded, its checksums, and how to use it."""
import hashlib
import subprocess

import pytest

from harness import wheelhouse

WHEELS = {"rich-13.0-py3-none-any.whl": b"rich", "jinja2-3.1-py3-none-any.whl": b"jinja"}


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """A wheelhouse made of made-up wheels; returns its folder and how pip was called."""
    folder, calls = tmp_path / "wheelhouse", []

    def pip(*words):
        calls.append(words)
        for name, content in ({"jieba-0.42-py3-none-any.whl": b"jieba"} if words[0] == "wheel" else WHEELS).items():
            (folder / name).write_bytes(content)
    monkeypatch.setattr(wheelhouse, "FOLDER", folder)
    monkeypatch.setattr(wheelhouse, "pip", pip)
    return folder, calls


def made(monkeypatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["wheelhouse", *words])
    wheelhouse.main()


def test_wheelhouse_checksums_are_what_sha256sum_checks(bundle, monkeypatch, capsys):
    folder, _ = bundle
    made(monkeypatch, "--python", "3.12", "rich>=13", "jinja2")
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(WHEELS.items())]
    assert (folder / "SHA256SUMS").read_text(encoding="utf-8") == "".join(lines)
    check = ["sha256sum", "--quiet", "-c", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0
    (folder / "rich-13.0-py3-none-any.whl").write_bytes(b"other")
    assert subprocess.run(check, cwd=folder, capture_output=True, check=False).returncode == 1
    assert "2 wheels, 0.0 MiB" in capsys.readouterr().out
    assert "sha256sum --quiet -c SHA256SUMS" in (folder / "HOW-TO.txt").read_text(encoding="utf-8")


def test_wheelhouse_downloads_for_the_python_of_the_gpu_machine(bundle, monkeypatch):
    folder, calls = bundle
    made(monkeypatch, "--python", "3.12", "rich>=13", "jinja2")
    [words] = calls
    assert words[0] == "download" and words[-2:] == ("rich>=13", "jinja2")
    assert words[words.index("--python-version") + 1] == "3.12" and "--only-binary=:all:" in words
    assert words[words.index("-c") + 1] == "constraints.txt"


def test_wheelhouse_drops_an_earlier_bundle_and_builds_jieba_when_asked(bundle, monkeypatch):
    folder, calls = bundle
    folder.mkdir()
    (folder / "old-1.0-py3-none-any.whl").write_bytes(b"old")
    made(monkeypatch, "--with-jieba", "rich")
    assert [words[0] for words in calls] == ["download", "wheel"]
    assert sorted(path.name for path in folder.glob("*.whl")) == ["jieba-0.42-py3-none-any.whl", *sorted(WHEELS)]
    assert len((folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()) == 3
