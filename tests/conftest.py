"""What tests share: the rule for what a machine lacks, and the site, built once."""
import os
import resource
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness import site as harness_site
from harness.state import page

IN_CI = bool(os.environ.get("CI"))


def need(present, reason: str) -> None:
    """Skip with the reason what this machine cannot test; in CI a lack is an error, except of a GPU."""
    if not present:
        if IN_CI and "GPU" not in reason:
            pytest.fail(f"CI lacks something: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def english(monkeypatch):
    """Each test begins in English: a page's examples leave their language behind."""
    monkeypatch.setattr(page, "language", "en")


def child_processor_s() -> float:
    """What ended children of this process used of a processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="session")
def no_torch(tmp_path_factory):
    """A folder which makes `import torch` end a Python that has it in its path."""
    folder = tmp_path_factory.mktemp("no_torch")
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text("raise SystemExit('torch was imported')\n")
    return folder


@pytest.fixture(scope="session")
def build(tmp_path_factory, no_torch):
    """The site, built from the committed records in both languages: its folder, and what it took of a processor, in seconds."""
    folder, before = tmp_path_factory.mktemp("site"), child_processor_s()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(no_torch), prepend=os.pathsep)
        harness_site.build(site=folder)
    return folder, child_processor_s() - before


@pytest.fixture(scope="session")
def built_site(build):
    return build[0]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@contextmanager
def served(folder):
    """Where a folder is served on this machine, with a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def site_url(built_site):
    with served(built_site) as url:
        yield url
