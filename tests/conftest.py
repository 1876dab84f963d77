"""What tests share: the rule for what a machine lacks, and the site, built once."""
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness import site as harness_site

IN_CI = bool(os.environ.get("CI"))


def need(present, reason: str) -> None:
    """Skip with the reason what this machine cannot test; in CI a lack is an error, except of a GPU."""
    if not present:
        if IN_CI and "GPU" not in reason:
            pytest.fail(f"CI lacks something: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def built_site():
    """The folder of the site, built from the committed records in both languages."""
    harness_site.build()
    return harness_site.SITE


@pytest.fixture(scope="session")
def site_url(built_site):
    """Where the built site is served on this machine, with a slash at the end."""
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built_site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
