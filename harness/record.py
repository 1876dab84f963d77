"""A record: what one machine measured of one snippet, as JSON under results/<machine>/. Nothing here imports torch."""
import hashlib
import json
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from statistics import quantiles

import jsonschema

from harness import snippet
from harness.scrub import leak, scrub

RESULTS = snippet.ROOT / "results"
REFERENCE = "nvidia-h200"  # the machine whose figures the prose and the claims speak of
SCHEMA_VERSION = 1
ENVIRONMENT = ("gpu", "driver", "cuda", "cudnn", "torch", "triton")  # another one: measured again on a GPU
MAX_BYTES = 8 * 2**20
_schema = json.loads((Path(__file__).parent / "record.schema.json").read_text(encoding="utf-8"))
_validator = jsonschema.Draft202012Validator(_schema)
_is_summary = jsonschema.Draft202012Validator({"$ref": "#/$defs/summary", "$defs": _schema["$defs"]}).is_valid


class RecordError(Exception):
    """A record that cannot be used; the message names the file, what is wrong and what to do."""


def path(machine: str, name: str) -> Path:
    return RESULTS / machine / f"{name}.json"


def machines() -> list[str]:
    """Folders that hold records, the reference first."""
    found = sorted(folder.name for folder in RESULTS.iterdir() if folder.is_dir()) if RESULTS.is_dir() else []
    return sorted(found, key=lambda name: (name != REFERENCE, name))


def summarise(samples: list[float]) -> dict:
    """Median and quartiles of the samples, in the samples' unit, beside the raw samples."""
    samples = [round(sample, 3) for sample in samples]
    q1, median, q3 = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"median": round(median, 3), "q1": round(q1, 3), "q3": round(q3, 3), "samples": samples}


def checksum(record: dict) -> str:
    """SHA-256 over the content, whatever the layout of the file."""
    content = {key: value for key, value in record.items() if key != "checksum"}
    return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def write(record: dict, file: Path) -> None:
    """Scrub, sign, validate, and put the record in place whole or not at all. Raises RecordError, leaving the old one."""
    record = scrub({"schema": SCHEMA_VERSION, **record})
    record["checksum"] = checksum(record)
    validate(record, file)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(dump(record))
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def dump(record: dict) -> str:
    """JSON with an item a line, but lists of numbers on one line, so that a diff can be read."""
    def text(value, indent=0):
        pad = " " * (indent + 1)
        if isinstance(value, dict) and value:
            items = [f"{pad}{json.dumps(key)}: {text(item, indent + 1)}" for key, item in value.items()]
            return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
        if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
            return "[\n" + ",\n".join(pad + text(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
        return json.dumps(value, ensure_ascii=False)
    return text(record) + "\n"


def read(file: Path) -> dict:
    """The record in `file`. It is data from outside: size, schema, checksum and privacy are checked before use."""
    label = _label(file)
    if file.stat().st_size > MAX_BYTES:
        raise RecordError(f"{label}: larger than {MAX_BYTES} bytes; a record is never that large")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{label}: not JSON ({error}); restore it from git or measure again") from error
    validate(record, file)
    return record


def validate(record: dict, file: Path) -> None:
    """Raise RecordError unless the record keeps the schema, its checksum, its own arithmetic, and privacy."""
    label = _label(file)
    try:
        json.dumps(record, allow_nan=False)
    except (ValueError, RecursionError):
        raise RecordError(f"{label}: holds NaN or an infinity, which is no figure, or is nested too deep; measure it again") from None
    error = jsonschema.exceptions.best_match(_validator.iter_errors(record))
    if error:
        where = "/".join(str(part) for part in error.absolute_path) or "the top"
        raise RecordError(f"{label}: at {where}: {error.message[-200:]}; measure it again")  # it begins with the value
    if file.is_relative_to(RESULTS) and file != path(record["machine"]["name"], record["snippet"]):
        raise RecordError(f"{label}: is of {record['snippet']} on {record['machine']['name']}; move it to where that belongs")
    if record["checksum"] != checksum(record):
        changed = _contradiction(record) or "a figure"
        raise RecordError(f"{label}: checksum differs: {changed} was edited by hand; restore it from git or measure again")
    if wrong := _contradiction(record):
        raise RecordError(f"{label}: {wrong} does not follow from its samples; measure it again")
    if private := leak(record):
        raise RecordError(f"{label}: holds {private!r}, which names the machine that ran it; measure it again")


def _contradiction(value, where: str = "") -> str | None:
    """The first summary whose figures do not follow from its raw samples."""
    if isinstance(value, dict):
        if "samples" in value and "median" in value and _is_summary(value):
            expected = summarise(value["samples"])
            for key in ("median", "q1", "q3"):
                if abs(expected[key] - value[key]) > 1e-6 * abs(expected[key]) + 1e-9:
                    return f"{where}/{key}"
        value = list(value.items())
    elif isinstance(value, list):
        value = [(_name(item, index), item) for index, item in enumerate(value)]
    else:
        return None
    return next((found for key, item in value if (found := _contradiction(item, f"{where}/{key}"))), None)


def _name(item, index: int) -> str:
    return f"{item['case']}/{item['variant']}" if isinstance(item, dict) and {"case", "variant"} <= item.keys() else str(index)


def freshness(name: str, machine: str, environment: dict | None = None) -> str:
    """"missing", "stale" (the snippet changed), "other environment" (torch, driver or CUDA did) or "fresh"."""
    file = path(machine, name)
    if not file.exists():
        return "missing"
    digest, measured_in = _stamp(file, file.stat().st_mtime_ns)
    if digest != snippet.digest(name):
        return "stale"
    if environment and any(measured_in.get(key) != environment.get(key) for key in ENVIRONMENT):
        return "other environment"
    return "fresh"


@lru_cache(maxsize=256)
def _stamp(file: Path, changed: int) -> tuple[str, dict]:
    """Digest and machine of a record: reading one checks all of it, and a page asks under each figure."""
    record = read(file)
    return record["digest"], record["machine"]


def _label(file: Path) -> str:
    return file.relative_to(snippet.ROOT).as_posix() if file.is_relative_to(snippet.ROOT) else file.name
