"""What papers and vendors published on attention, from published/*.csv. Others' figures: to be cited, never measured here.

A row is one figure: where it stands, the configuration, value and unit, and how it was read ("printed", "printed on a bar",
or "read off a bar", which is approximate). `value_to` is the other end of a range. Without a value `outcome` says why.
"""
import csv
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_suffix("")
NUMBERS = ("head_dim", "causal", "seqlen", "batch", "heads", "kv_heads", "value", "value_to")


@cache
def table(name):
    """Every row of published/<name>.csv, what is a number as a number. FileNotFoundError for an unknown name."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [{key: _number(text) if key in NUMBERS else text for key, text in row.items()} for row in csv.DictReader(file)]


def _number(text):
    """The number of a cell; a text such as 192/128 as it stands, nothing as None."""
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text or None


def rows(name, /, **where):
    """The rows of which every column in `where` has the value given."""
    return [row for row in table(name) if all(row[key] == value for key, value in where.items())]


def value(name, /, **where):
    """The one value that `where` selects. LookupError unless it is exactly one."""
    found = rows(name, **where)
    if len(found) != 1:
        raise LookupError(f"{name} has {len(found)} rows with {where}")
    return found[0]["value"]


def points(name, /, **where):
    """[(sequence length, value), ...] of the rows selected that have a value, by length."""
    return sorted((row["seqlen"], row["value"]) for row in rows(name, **where) if row["value"] is not None)
