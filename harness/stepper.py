"""The online softmax of one row, block by block, in plain floats: stepper.js does the same for scores that a reader edits. No torch."""
import math

from markupsafe import Markup

from harness.show import render

BLOCK = 4
SCORES = (1.0, 2.0, 0.5, -1.0, 0.0, 3.0, 1.5, 2.5, 2.0, -0.5, 3.0, 1.0)  # the maximum: first found, then raised, then kept
VALUES = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (1, -1), (-1, 1), (2, 1), (1, 2), (0, -1), (-1, 0), (1, 1))
MASKED = -math.inf
PRESETS = {  # what a reader may load; the first is the row as it stands
    "given": SCORES, "rising": sorted(SCORES), "falling": sorted(SCORES, reverse=True),
    "first_masked": (MASKED,) * BLOCK + SCORES[BLOCK:], "all_masked": (MASKED,) * len(SCORES),
    "huge": tuple(score + 1000 for score in SCORES)}


def steps(scores: list[float]) -> list[dict]:
    """The state before the first block and after each, with the factor on l and o (arXiv 2307.08691) and on o / l (2205.14135)."""
    m, l, o = MASKED, 0.0, [0.0, 0.0]
    found = [{"m": m, "l": l, "o": o, "mean": o}]
    for first in range(0, len(scores), BLOCK):
        part = scores[first:first + BLOCK]
        old, m = m, max(m, *part)
        safe = 0.0 if m == MASKED else m  # -inf - -inf would be NaN
        factor = math.exp(old - safe)
        p = [math.exp(score - safe) for score in part]
        before, l = l, factor * l + _dot(p, [1] * BLOCK)
        o = [factor * sum_ + _dot(p, column) for sum_, column in zip(o, zip(*VALUES[first:first + BLOCK], strict=True), strict=True)]
        found.append({"scores": part, "top": max(part), "old": old, "m": m, "factor": factor, "l": l, "o": o,
                      "scale": factor * before / (l or 1), "mean": [sum_ / (l or 1) for sum_ in o]})
    return found


def whole(scores: list[float]) -> list[float]:
    """The softmax of the whole row times its values, in one go; 0 if every score is masked."""
    top = max(scores)
    p = [0.0 if top == MASKED else math.exp(score - top) for score in scores]
    return [_dot(p, column) / (_dot(p, [1] * len(p)) or 1) for column in zip(*VALUES, strict=True)]


def _dot(weights: list[float], column: list[float]) -> float:
    """From left to right, as the script adds: Python's own sum compensates for rounding from 3.12 on."""
    total = 0.0
    for weight, value in zip(weights, column, strict=True):
        total += weight * value
    return total


def number(value: float | list) -> str:
    """A number with at most four decimals, a pair in brackets; a minus sign, and -inf as its sign."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(number, value))})"
    text = f"{value + 0.0:.4f}".rstrip("0").rstrip(".") if math.isfinite(value) else "-∞"
    return "0" if text == "-0" else text.replace("-", "−")


def stepper() -> Markup:
    """The row, a table of its steps and the whole row at once, for the page's language; stepper.js makes it steppable."""
    cells = [{"score": score, "value": value} for score, value in zip(SCORES, VALUES, strict=True)]
    return render("stepper.html", blocks=[cells[first:first + BLOCK] for first in range(0, len(cells), BLOCK)], size=BLOCK,
                  steps=steps(SCORES), whole=whole(SCORES), presets=PRESETS, number=number)
