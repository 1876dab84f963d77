"""Who works when, simulated: a lane for each worker, a box for each piece of work, one way of sharing it out below the other. No torch."""
from collections.abc import Callable

from harness.results import Node
from harness.show import figure, render
from harness.state import page


def lanes(name: str, ways: Callable[[Node], dict], *, worker: str, title: dict, unit: dict) -> str:
    """`ways(record)` gives {label: [[(start, end, text), ...], ...]}: for each way a list a worker; a label may be (English, Chinese).

    All ways have one time axis. What a worker waits for the last one is dashed. The same numbers stand in a table below.
    """
    def draw(data: Node) -> str:
        found = [_way(label, workers, page.language == "zh") for label, workers in ways(data).items()]
        return render("lanes.html", ways=found, top=max(way["end"] for way in found), worker=worker, title=title[page.language],
                      unit=unit[page.language])
    return figure(name, draw, "simulated_on")


def _way(label: str | tuple[str, str], workers: list, chinese: bool) -> dict:
    """When the last worker is done, and which share of all workers' time until then is work."""
    end = max(pieces[-1][1] for pieces in workers)
    busy = sum(stop - start for pieces in workers for start, stop, _ in pieces)
    text = label if isinstance(label, str) else label[chinese]
    return {"label": text, "workers": workers, "end": end, "share": busy / end / len(workers)}
