"""Checks that a page makes of a reader's answer: a number, a choice, an order, a matching; exercise.js compares as this does. No torch.

The right answer is computed where the page is built, from records. It is in the page and is not shown before an attempt.
"""
import json
import math
import random
import re
import unicodedata

from markupsafe import Markup, escape

from harness.labels import word
from harness.show import render
from harness.state import page

# The exercises in their order, each with its checks: it is solved when all of them are.
PARTS = {"path": ("order", "inference"), "traffic": ("eager", "fused", "three"), "tiling": ("written", "matrix", "output"),
         "online": ("m", "factor", "l", "mean"), "kernels": ("fused", "factor", "compiled"), "risks": ("cases",)}
# 1234.5, 1,234.5, 1 234.5, 1_234.5, .5, 1e3: a comma only before three digits, since 1,5 may be meant as one or as fifteen.
NUMBER = re.compile(r"[+-]?(?:(?:[0-9]{1,3}(?:([, _])[0-9]{3}(?:\1[0-9]{3})*)|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse(text: str) -> float | None:
    """The number that a reader typed, full-width signs as well; None if it is none, or not finite."""
    plain = unicodedata.normalize("NFKC", text).replace("−", "-").strip()
    if not NUMBER.fullmatch(plain):
        return None
    value = float(re.sub("[, _]", "", plain))
    return value if math.isfinite(value) else None


def verdict(given: str | list[str], answer: float | list[str], tolerance: float = 0.0) -> str:
    """right, or why not: low, high and unreadable of a number, wrong of a list, empty while something is not filled in."""
    if isinstance(answer, list):
        return "empty" if not all(given) else "right" if given == answer else "wrong"
    if not given.strip():
        return "empty"
    value = parse(given)
    if value is None:
        return "unreadable"
    return "right" if abs(value - answer) <= tolerance * abs(answer) else "low" if value < answer else "high"


def count_right(given: list[str], answer: list[str]) -> int:
    return sum(mine == right for mine, right in zip(given, answer, strict=True))


def number(check: str, question: dict, answer: float, unit: str = "", *, tolerance: float = 0.01, why: dict | None = None) -> Markup:
    """A field for a number, right within the relative tolerance."""
    digits = f"{answer:,.0f}" if abs(answer) >= 1000 else f"{answer:.4g}"
    return _check(check, "number", question, answer, [f"{digits} {unit}".strip()], why=why, unit=unit, tolerance=tolerance)


def choice(check: str, question: dict, options: dict[str, dict], answer: str, why: dict | None = None) -> Markup:
    """One of several options, each a key with its text in both languages."""
    return _check(check, "choice", question, [answer], [text(options[answer])], why=why, options=options)


def order(check: str, question: dict, steps: list[str], labels: dict[str, dict], why: dict | None = None) -> Markup:
    """Steps to arrange, given as keys in the right order; a key that comes twice is one label at two places."""
    mixed, chance = list(steps), random.Random(check)
    while count_right(mixed, steps) > len(steps) // 4:
        chance.shuffle(mixed)
    return _check(check, "order", question, steps, [text(labels[step]) for step in steps], why=why, mixed=mixed, labels=labels)


def match(check: str, question: dict, rows: list[tuple[dict, str]], options: dict[str, dict], why: dict | None = None) -> Markup:
    """For each row's text one of the options; rows come with the key of theirs."""
    told = [text(row) + Markup(" → ") + text(options[key]) for row, key in rows]
    return _check(check, "match", question, [key for _, key in rows], told, why=why, rows=[row for row, _ in rows], options=options)


def note(part: str) -> Markup:
    """A place for an answer in the reader's own words, kept in their browser."""
    return render("exercise_note.html", part=list(PARTS).index(part) + 1, id=f"{part}.note")


def progress(pages: str = "") -> Markup:
    """Which exercises are solved, and a button that clears what is kept; `pages` leads to the page of the exercises."""
    parts = {part: [f"{part}.{check}" for check in checks] for part, checks in PARTS.items()}
    return render("exercise_progress.html", parts=parts, pages=pages, json=json.dumps)


def text(words: dict) -> Markup:
    """In the page's language; `code` in backticks."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words[page.language]))))


def _check(check: str, kind: str, question: dict, answer, told: list, *, why: dict | None, **values) -> Markup:
    part, _, name = check.partition(".")
    if name not in PARTS[part]:
        raise KeyError(f"{check} is in no part of PARTS")
    return render("exercise.html", id=check, kind=kind, question=text(question), answer=json.dumps(answer), told=told,
                  why=text(why) if why else "", text=text, say=json.dumps(word("exercise", "say"), ensure_ascii=False), **values)
