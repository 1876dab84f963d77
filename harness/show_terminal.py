"""A record in the terminal: what a reader sees after `python -m harness run`."""
from rich.console import Console
from rich.table import Table

from harness import units
from harness.kernel_names import short
from harness.results import load


def show(name: str, machine: str, console: Console) -> None:
    """A row a variant with its kernels; a capture is named with the file that holds it."""
    content = load(name, machine)["record"]
    if "results" not in content:
        console.print(f"{name}: {content.get('unsupported') or f'captured in results/{machine}/{name}.json'}", markup=False)
        return
    table = Table(title=f"{name} on {content['machine']['gpu']}", title_justify="left")
    for column in ("case", "variant", "time", "middle half", "host enqueue", "peak extra", "kernels"):
        table.add_column(column, overflow="fold")
    for row in content["results"]:
        if row["outcome"] != "measured":
            table.add_row(row["case"], row["variant"], row["outcome"], "", "", "", row.get("reason", ""))
            continue
        call = row["call_us"]
        table.add_row(row["case"], row["variant"], units.us(call["median"]), f"{units.us(call['q1'])} – {units.us(call['q3'])}",
                      units.us(row["enqueue_us"]["median"]), units.size(row["memory"]["peak_extra_bytes"]),
                      "\n".join(f"{units.us(kernel['time_us']['median'])}  {short(kernel['name'])}" for kernel in row["kernels"]))
    console.print(table, markup=False)
