"""Figures of captures: stacks, dispatch, autograd, allocator, launches. Each returns HTML; none imports torch."""
from harness.chart import chart
from harness.labels import both, word
from harness.results import Node, samples_median
from harness.show import figure, render


def frames(*keys) -> str:
    """The captured stack at these keys of path/trace, from the user's line inwards, each frame with its layer."""
    return figure("path/trace", lambda data: render("frames.html", frames=_stack(_at(data, keys))))


def _at(data: Node, keys: tuple):
    for key in keys:
        data = data[key]
    return data


def _stack(event: Node) -> list[dict]:
    """Neighbours of one layer are one group, as they are read."""
    groups: list[dict] = []
    for frame in event["frames"]:
        if not groups or groups[-1]["layer"] != frame["layer"]:
            groups.append({"layer": frame["layer"], "frames": []})
        groups[-1]["frames"].append(frame)
    return groups


def key_sets() -> str:
    """The keys of a tensor, and those of a call on it, in each situation."""
    return figure("path/dispatch", lambda data: render("key_sets.html", situations=data["key_sets"]))


def dispatch_table(operator: str) -> str:
    """For each key that matters: what an operator's table holds, and the file that registered it."""
    return figure("path/dispatch", lambda data: render("dispatch_table.html", operator=operator, rows=data["tables"][operator]))


def key_order() -> str:
    """The keys that are functionalities, from the highest to the lowest: a call meets them in this order."""
    def rows(data: Node) -> str:
        top = data["order"]["PythonDispatcher"]
        order = {name: number for name, number in data["order"].items() if 0 < number <= top and "Of" not in name}
        return render("key_order.html", order=sorted(order.items(), key=lambda item: -item[1]))
    return figure("path/dispatch", rows)


def saved() -> str:
    """What autograd builds and keeps, eager and compiled."""
    return figure("path/trace", lambda data: render("saved.html", modes=data["autograd"]))


def by_case(name: str, variant: str) -> str:
    """The kernels of one variant, a row a case."""
    def rows(data: Node) -> str:
        cases = {case: results[variant] for case, results in data.items() if case not in ("machine", "record")}
        return render("by_case.html", cases=cases)
    return figure(name, rows)


def life() -> str:
    """Allocated, reserved and the device's own count, a step at a time."""
    def rows(data: Node) -> str:
        top = max(step["device_used_bytes"] for step in data["life"])
        return render("life.html", steps=data["life"], top=top, counts=("allocated_bytes", "reserved_bytes", "device_used_bytes"))
    return figure("path/allocator", rows)


def rounding() -> str:
    """Bytes asked for, allocated and reserved."""
    return figure("path/allocator", lambda data: render("rounding.html", rows=data["rounding"]))


def actions(*keys) -> str:
    """What the allocator did, in order, at these keys of path/allocator."""
    return figure("path/allocator", lambda data: render("actions.html", actions=_at(data, keys)))


def launch_chart() -> str:
    """Enqueue and total time over sizes, on two logarithmic axes, with the numbers in a table."""
    def series(data: Node) -> dict:
        modes = [mode for mode in data if mode not in ("machine", "record")]
        return {f"{mode}, {word(clock)}": {
            "points": [(2 ** int(size.removeprefix("2^")), samples_median(row[clock])) for size, row in data[mode].items()],
            "color": number, "dashed": clock == "enqueue_us"}
            for number, mode in enumerate(modes) for clock in ("enqueue_us", "total_us")}
    return chart("path/launch", series, x=both("elements"), y={"en": "time, µs", "zh": "时间，µs"}, title=both("launch_title"))
