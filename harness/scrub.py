"""Takes out of every string of a record what belongs to the machine that ran it and not to the experiment."""
import getpass
import re
import socket
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PART = r"[^\s/\"'`:;,()<>|\[\]{}=]+"
_KNOWN = r"(?:home|root|tmp|usr|opt|var|mnt|srv|etc|work|workspace|data|scratch|Users|private|nix)"
_REST = rf"(?:{_PART}/+)*(?:{_PART})?"
# An absolute path of two parts or more. After a bracket a slash divides, unless a folder every Unix machine has follows.
PATH = re.compile(rf"\bfile:/+{_REST}|(?<![\w./*)\]}}-])/{_PART}/+{_REST}"
                  rf"|(?:(?<![\w./-])|(?<=-I)|(?<=-L)|(?<=-isystem))/{_KNOWN}/+{_REST}"
                  rf"|(?<![\w./-])(?:{_PART}/+)*(?:site|dist)-packages/+{_REST}")  # also what is left of one, cut before
WINDOWS_PATH = re.compile(r"\b[A-Za-z]:(?:/(?!/)|\\+)[^\\/\s\"'<>|:]+(?:[\\/]+[^\\/\s\"'<>|:]+)*")
IDENTITY = re.compile(
    r"(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{4,27}"                        # UUID of a GPU
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"       # UUID of anything
    r"|\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b"      # PCI address
    r"|(?i:serial(?:[ _-]?(?:number|no\.?))?\s*[:=]\s*)\S+")                # serial number
# Names that identify nobody, and that a record may hold as words of its own.
ORDINARY = {"localhost", "root", "user", "host", "python", "torch", "triton", "cuda", "nvidia", "gpu", "data", "kernel",
            "kernels", "machine", "driver", "ubuntu", "admin", "runner", "test", "main", "case", "variant", "results",
            "snippet", "memory", "eager", "compiled", "name", "error", "outcome", "samples", "reason", "date", "commit"}
PACKAGES = ("site-packages/", "dist-packages/")


def scrub(value):
    """The same data with every string, keys too, free of paths, host, user, UUIDs and serial numbers."""
    if isinstance(value, str):
        return _scrub_text(value)
    if isinstance(value, dict):
        return {_scrub_text(key): scrub(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub(item) for item in value]
    return value


def leak(value) -> str | None:
    """The first string of a record that names a machine, or None."""
    if isinstance(value, str):
        found = PATH.search(value) or WINDOWS_PATH.search(value) or IDENTITY.search(value)
        return found[0] if found else None
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        return next((found for item in value if (found := leak(item))), None)
    return None


def _scrub_text(text: str) -> str:
    text = WINDOWS_PATH.sub(lambda found: _relative(found[0].replace("\\", "/")), text)
    text = PATH.sub(lambda found: _relative(found[0].removeprefix("file://")), text)
    text = IDENTITY.sub("(removed)", text)
    for word, name in _own_names().items():
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", name, text)
    return text


def _relative(path: str) -> str:
    """Package-relative for a package's file, project-relative for ours, else the file's name alone."""
    for marker in (*PACKAGES, f"{ROOT}/"):
        if marker in path:
            return path.rpartition(marker)[2]
    return path.rstrip("/").rpartition("/")[2]


def _own_names() -> dict[str, str]:
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a passwd entry
        user = ""
    words = {host: "host", host.partition(".")[0]: "host", user: "user"}
    return {word: name for word, name in words.items() if len(word) > 2 and word.lower() not in ORDINARY}
