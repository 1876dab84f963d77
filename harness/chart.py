"""Charts of a record over two axes, with the same numbers in a table below. No torch."""
import math
from collections.abc import Callable

from harness import units
from harness.results import Node
from harness.show import figure, render
from harness.state import page

MOST_TICKS = 7


class Axis:
    """Places values between 0 and 100 %, evenly or by their logarithm, and labels a few round ones."""

    def __init__(self, values: list[float], log: bool, unit: str | None = None) -> None:
        self.log, self.unit = log, unit
        self.base = 2 if log and (unit == "size" or all(math.log2(value).is_integer() for value in values)) else 10
        if log and self.base == 2:
            self.low, self.high = min(values), max(values)
            powers = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
            self.ticks = [2.0**power for power in powers[::math.ceil(len(powers) / MOST_TICKS)]]
        else:
            self.ticks = _decades(min(values), max(values)) if log else _even(max(values))
            self.low, self.high = self.ticks[0], self.ticks[-1]
        while len(self.ticks) > MOST_TICKS:
            self.ticks = self.ticks[::2]

    def place(self, value: float) -> float:
        scale = math.log if self.log else float
        return 100 * (scale(value) - scale(self.low)) / ((scale(self.high) - scale(self.low)) or 1)

    def label(self, value: float) -> str:
        if self.unit == "size":
            return units.size(value)
        if self.base == 2 and value >= 128:
            return f"2^{math.log2(value):.0f}"
        return units.short(value)


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 in each decade around the values; the decades alone where that is too many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    inside = [step for step, after in zip(steps, steps[1:], strict=False) if after > low * 1.0001 and step < high]
    inside.append(next(step for step in steps if step >= high))
    return inside if len(inside) <= MOST_TICKS else [10.0**power for power in range(first, last + 1)]


def _even(high: float) -> list[float]:
    """Zero and at least three round steps to the highest value."""
    power = 10.0 ** math.floor(math.log10(high or 1))
    step = next(step for step in (power / 5, power / 2, power, power * 2) if high / step <= 5)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def chart(name: str, series: Callable[[Node], dict], *, x: dict, y: dict, title: dict, log: str = "xy") -> str:
    """Lines through the points of each series: {label: [(x, y), ...]}, a label being one text or (English, Chinese).

    A series of published values is {"points": [...], "cited": True} and drawn hollow; "dashed" makes a second style.
    `x` and `y` name their axis with its unit; "unit": "size" labels bytes as KiB and MiB. `log` names logarithmic axes.
    """
    def draw(data: Node) -> str:
        lines = [_line(number, label, given) for number, (label, given) in enumerate(series(data).items())]
        points = [point for line in lines for point in line["points"]]
        across = Axis([point[0] for point in points], "x" in log, x.get("unit"))
        up = Axis([point[1] for point in points], "y" in log, y.get("unit"))
        columns = sorted({point[0] for point in points})
        return render("chart.html", lines=lines, across=across, up=up, columns=columns, x=x[page.language], y=y[page.language],
                      title=title[page.language])
    return figure(name, draw)


def _line(number: int, label, given) -> dict:
    given = given if isinstance(given, dict) else {"points": given}
    text = label if isinstance(label, str) else label[page.language == "zh"]
    return {"color": number % 8, "label": text, "cited": False, "dashed": False, **given}
