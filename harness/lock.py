"""One build at a time: a lock that dies with its holder, and says who that is."""
import fcntl
import os
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path


class Locked(Exception):
    """Another build holds the lock."""


@contextmanager
def hold(file: Path):
    """Hold `file` exclusively, or raise Locked with the holder's process and since when."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise Locked(f"another build is running ({handle.read().strip()}); wait for it, or end it") from None
        handle.truncate(0)
        handle.write(f"process {os.getpid()}, since {datetime.now():%H:%M:%S}")
        handle.flush()
        yield
