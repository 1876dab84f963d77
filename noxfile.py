"""The project's sessions. `nox -s build` is the main one; a plain `nox` runs what CI runs.

With --no-venv nothing is installed: the interpreter is taken as it is, as on a GPU machine in a closed network.
"""
import importlib.util
import shutil
import sysconfig
from pathlib import Path

import nox

nox.needs_version = ">=2025.10.14"
nox.options.sessions = ["lint", "check", "tests", "build"]
nox.options.reuse_venv = "yes"
HAS_GPU = shutil.which("nvidia-smi") is not None
HAS_TORCH = importlib.util.find_spec("torch") is not None  # in the Python that runs nox: an image's own is used as it is


def projects(*groups: str) -> tuple[str, ...]:
    """What the dependency groups of pyproject.toml name."""
    return nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *groups)


def install(session: nox.Session, *groups: str) -> None:
    """The named dependency groups at the tested versions."""
    if session.virtualenv.venv_backend != "none":
        session.install("-c", "constraints.txt", *projects(*groups))


def install_build(session: nox.Session) -> None:
    """What renders the site and, on a GPU machine, what measures: the image's own torch, or one from the registry."""
    install(session, "docs", "chinese-search", *(["gpu"] if HAS_GPU and not HAS_TORCH else []))
    if HAS_GPU and HAS_TORCH and session.virtualenv.venv_backend != "none":
        # --system-site-packages sees nothing of an interpreter that is itself a venv, as some images' is
        inner = session.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True)
        Path(inner.strip(), "image.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


@nox.session
def build(session: nox.Session) -> None:
    """Measure what needs it (with an NVIDIA GPU), then build both languages. -- --fresh | -- fusion/pointwise"""
    install_build(session)
    session.run("python", "-m", "harness", "build", *session.posargs)


@nox.session
def serve(session: nox.Session) -> None:
    """Serve one language with live reload, from the records as they are. -- zh"""
    install_build(session)
    session.run("python", "-m", "harness", "serve", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Every page's examples and every test; what a machine lacks is skipped with its reason, and is an error in CI."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff over the code, snippets too."""
    install(session, "lint")
    session.run("ruff", "check", ".")


@nox.session
def check(session: nox.Session) -> None:
    """Records fresh, languages alike, figures not typed, no snippet unused. Needs neither torch nor a browser."""
    install(session, "check")
    session.run("python", "-m", "harness", "check")
    session.run("python", "-m", "pytest", "-q", "--noconftest", "tests/test_pages.py", "tests/test_repository.py")


@nox.session(default=False)
def wheelhouse(session: nox.Session) -> None:
    """An offline bundle for a GPU machine in a closed network. -- --python 3.12 [--with-jieba]"""
    session.run("python", "-m", "harness.wheelhouse", *session.posargs, *projects("docs"))
