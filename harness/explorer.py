"""The trace explorer: every event of one pass to one scale, eager above compiled, and the frames within two operators. No torch.

What is drawn is a list of events in the record's order; the table and the script (explorer.js) number them alike.
"""
import re
from itertools import groupby

from harness import units
from harness.kernel_names import short
from harness.results import Node
from harness.show import figure, render

HALVES = ("eager", "compiled")
TRACKS = ("Python", "ATen", "autograd", "allocator", "launch", "GPU")  # autograd: the operators on its own thread
UNFOLDED = ("aten::add", "aten::gelu")  # eager's operators, in the order of their allocations
ROW, BAR, AXIS, GAP, ARROWS, TICKS = 18, 14, 20, 7, 22, 16  # heights in px; of ticks, up or down
LETTER = 0.56  # rem, the size of a label: explorer.css
WIDTH = 52  # rem, of the whole form at zoom 1: explorer.css
NARROW, WIDE = 22, 50  # em of a label, the least width of the small form on a phone and elsewhere
MARGIN = 0.5  # em, around a label


def explorer(name: str = "path/trace", small: bool = False) -> str:
    """The pass as a figure that explorer.js makes explorable; `small` is its forward part only, for reading alone."""
    def draw(data: Node) -> str:
        events = {half: [_event(raw) for raw in data["timeline"][half]] for half in HALVES}
        if small:
            events = {half: _forward(found) for half, found in events.items()}
        top = _top(max(event["end_us"] for found in events.values() for event in found))
        halves = [_half(half, found, top, small) for half, found in events.items()]
        return render("explorer.html", halves=halves, ticks=_ticks(top, small), small=small,
                      stacks=() if small else _stacks(data))
    return figure(name, draw)


def readable(event: dict) -> str:
    """A name to read, of a kernel or an operator."""
    name = re.sub(r"^## Call (\w+) \w+ ##$", r"\1", event["name"])
    name = re.sub(r"^autograd::engine::evaluate_function: ", "evaluate ", name).replace("torch::autograd::", "")
    return short(name) if event["lane"] == "GPU" else name


def _event(raw: Node) -> dict:
    track = "autograd" if raw["lane"] == "ATen" and raw["thread"] else raw["lane"]
    known = {key: raw.get(key) for key in ("bytes", "allocated_bytes", "grid", "block", "registers", "correlation")}
    return {**raw, **known, "track": track, "short": readable(raw), "end_us": raw["start_us"] + raw["duration_us"]}


def _forward(events: list[dict]) -> list[dict]:
    """The first line, what its thread did within it, and the kernels that it launched."""
    line = events[0]
    within = [event for event in events if event["thread"] == line["thread"] and _contains(line, event)]
    launched = {event["correlation"] for event in within if event["lane"] == "launch"}
    return [event for event in events
            if event in within or event["lane"] == "GPU" and event["correlation"] in launched]


def _contains(outer: dict, inner: dict) -> bool:
    return outer["start_us"] <= inner["start_us"] and inner["end_us"] <= outer["end_us"]


def _top(us: float) -> float:
    return 50 * (us // 50 + 1)


def _ticks(top: float, small: bool) -> list[dict]:
    step = 50 if small else 100
    return [{"us": us, "x": 100 * us / top} for us in range(0, int(top), step)]


def _half(name: str, events: list[dict], top: float, small: bool) -> dict:
    """Everything that the template draws of one half; lengths in percent of the axis, heights in px."""
    for index, event in enumerate(events):
        event |= {"index": index, "x": 100 * event["start_us"] / top, "width": 100 * event["duration_us"] / top}
    tracks, height = _layout(events)
    _relate(events, UNFOLDED if name == "eager" and not small else ())
    labels = [label for event in events for label in _labels(event, small)]
    arrows = [(event, events[event["pair"]]) for event in events if event["lane"] == "launch" and event["pair"] is not None]
    return {"name": name, "events": events, "tracks": tracks, "height": height, "labels": labels, "arrows": arrows, "top": top,
            "end_us": max(event["end_us"] for event in events)}


def _layout(events: list[dict]) -> tuple[list[dict], int]:
    """Gives each event its row and y; returns the tracks from above and the height of all. An event within another is a row lower."""
    tracks, y = [], AXIS
    for name in TRACKS:
        mine = [event for event in events if event["track"] == name]
        if not mine:
            continue
        y += ARROWS if name == "GPU" else GAP
        rows = _nest(mine)
        height = rows * TICKS if name == "allocator" else rows * ROW - (ROW - BAR)
        for event in mine:
            event["y"] = y + (TICKS if name == "allocator" else event["row"] * ROW)
        tracks.append({"name": name, "lane": mine[0]["lane"], "y": y, "height": height})
        y += height
    return tracks, y + GAP


def _nest(events: list[dict]) -> int:
    """Gives each event its row, and where the next one in that row begins, in percent; returns how many rows there are."""
    running: list[dict] = []
    last: dict[int, dict] = {}
    for event in events:
        while running and running[-1]["end_us"] <= event["start_us"]:
            running.pop()
        ticks = event["lane"] == "allocator"
        event |= {"row": int(event["bytes"] < 0) if ticks else len(running), "until": 100.0}
        if event["row"] in last:
            last[event["row"]]["until"] = event["x"]
        last[event["row"]] = event
        if not ticks:
            running.append(event)
    return 1 + max(last)


def _relate(events: list[dict], unfolded: tuple) -> None:
    """Gives each event the other end of its arrow, its kin (what it is in, what it holds, what that launched) and its frames."""
    ends = {lane: {event["correlation"]: event["index"] for event in events if event["lane"] == lane} for lane in ("launch", "GPU")}
    for event in events:
        other = {"launch": "GPU", "GPU": "launch"}.get(event["lane"])
        event["pair"] = ends[other].get(event["correlation"]) if other and event["correlation"] is not None else None
    for event in events:
        cause = event if event["lane"] != "GPU" or event["pair"] is None else events[event["pair"]]
        around = [one for one in events if one["lane"] == "Python" or one["lane"] == "ATen" and one["thread"] == cause["thread"]]
        around = [one for one in around if _contains(one, cause)]
        inside = [one for one in events if event["lane"] == "ATen" and one["thread"] == event["thread"] and _contains(event, one)]
        launched = {one["pair"] for one in [event, *inside] if one["pair"] is not None}
        event["kin"] = sorted(({one["index"] for one in around + inside} | launched) - {event["index"]})
        event["frames"] = next((one["name"] for one in around if one["name"] in unfolded), None)


def _labels(event: dict, small: bool) -> list[dict]:
    """One label for the whole form; for the small one, one for a phone and one for wider windows, unless they are the same."""
    if not small:
        return [_label(event, WIDTH / LETTER)]
    phone, wide = _label(event, NARROW), _label(event, WIDE)
    return [wide] if phone == wide else [{**phone, "only": "phone"}, {**wide, "only": "wide"}]


def _label(event: dict, width: float) -> dict:
    """The longest name that fits into the event's bar or, after it, before the next of its row; an empty one if none does."""
    inside, end = event["width"] * width / 100 - MARGIN, event["x"] + event["width"]
    after = (event["until"] - end) * width / 100 - (3 if event["lane"] == "allocator" else 2) * MARGIN
    label = {"event": event, "names": _names(event), "text": "", "x": event["x"], "until": event["until"]}
    for text in label["names"]:
        if _em(text) <= max(inside, after):
            return label | {"text": text, "x": event["x"] if _em(text) <= inside else end}
    return label


def _names(event: dict) -> list[str]:
    """From the longest: a kernel's name, what it computes, and that without what is common to all; an allocation's size."""
    if event["lane"] == "allocator":
        return [f"{'+' if event['bytes'] > 0 else '−'}{units.size(abs(event['bytes']))}"]
    work = event["short"].rpartition(" · ")[2]
    return list(dict.fromkeys([event["short"], work, re.sub(r"CUDAKernelImpl$|^CUDAFunctor_|^aten::|^triton_[a-z]+_fused_", "", work)]))


def _em(text: str) -> float:
    """About how wide a text is, in its own size, in a sans-serif type."""
    return sum(0.34 if sign in "iljtfrI:.,· ()|" else 0.72 if sign.isupper() else 0.86 if sign in "mw" else 0.57 for sign in text)


def _stacks(data: Node) -> list[dict]:
    """The frames from the user's line to the allocation that each unfolded operator makes, neighbours of a layer together."""
    found = []
    for name, event in zip(UNFOLDED, data["allocations"]["requires_grad"], strict=False):
        groups = [{"layer": layer, "frames": list(frames)} for layer, frames in groupby(event["frames"], lambda frame: frame["layer"])]
        found.append({"name": name, "bytes": event["size_bytes"], "count": len(event["frames"]), "groups": groups})
    return found
