"""A lab: a notebook as a py:percent file under snippets/labs/. A Markdown cell is in one language, or in both; code is shared.

It is executed once, on the GPU, in a fresh kernel; its record holds what each code cell printed, and the figures that the
lab left in `found`. A page shows the cells of its language with that; a reader downloads them without it. No torch here.
"""
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from markupsafe import Markup

from harness import snippet
from harness.labels import word
from harness.results import load
from harness.show import figure, render
from harness.snippet import ROOT, SnippetError
from harness.state import page

# The kernel dies with the process that executes the lab, whose group the harness kills. Jupyter gives it a group of its own.
KERNEL = "import ctypes; ctypes.CDLL(None).prctl(1, 9); from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
LAST = "import json; print(json.dumps(found))"
LANGUAGES = {"en", "zh"}


def read(name: str):
    """The whole lab as a notebook, both languages in it. Raises SnippetError for a cell whose language is unknown."""
    import jupytext
    notebook = jupytext.read(snippet.path(name), fmt="py:percent")
    for cell in notebook.cells:
        if cell.metadata.get("lang", "en") not in LANGUAGES or (cell.cell_type == "code" and "lang" in cell.metadata):
            raise SnippetError(f"snippets/{name}.py: a cell has lang={cell.metadata['lang']!r}; Markdown is en or zh, code is neither")
    return notebook


def execute(name: str, say=print, code=None) -> dict:
    """Run the code cells in a fresh kernel, away from this repository; `code(source)` may change a cell, for tests.

    {"cells": for each code cell its outputs as {"name": stdout or result, "text"}, "found": figures}. What goes to standard error
    belongs to the log: libraries put times, process ids and places there.
    """
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    sources = [(code or str)(cell.source) for cell in read(name).cells if cell.cell_type == "code"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (*sources, LAST)])
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", KERNEL, "-f", "{connection_file}", "--HistoryManager.enabled=False"]
        spec = Path(folder, "kernels", "lab", "kernel.json")
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps({"argv": argv, "display_name": "lab", "language": "python"}), encoding="utf-8")
        manager = AsyncKernelManager(kernel_name="lab", transport="ipc", connection_file=str(Path(folder, "connection.json")),
                                     kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(spec.parents[1])]))
        client = NotebookClient(notebook, km=manager, timeout=None, coalesce_streams=True, resources={"metadata": {"path": folder}},
                                on_cell_start=lambda cell, cell_index: say(f"{name}, code cell {cell_index + 1}"))
        client.execute(cleanup_kc=True, env=_environment(folder))
    *cells, last = [[kept for output in cell.outputs if (kept := _plain(output, say))] for cell in notebook.cells]
    return {"cells": cells, "found": json.loads(last[0]["text"])}


def _environment(folder: str) -> dict[str, str]:
    """The harness's own, without this repository, and without what the user keeps for Jupyter and IPython."""
    kept = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and Path(part).resolve() != ROOT]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(kept), "IPYTHONDIR": folder, "JUPYTER_CONFIG_DIR": folder}


def _plain(output, say) -> dict[str, str] | None:
    if output.get("name") == "stderr":
        return say(output.text)
    text = output.text if output.output_type == "stream" else output.data["text/plain"]
    return {"name": output.get("name", "result"), "text": text}


def notebook(name: str, language: str, to_page=None, outputs: list | None = None):
    """The lab in one language. With `outputs` as a page shows it; without as a reader takes it away: `to_page` gives a link's address."""
    import nbformat
    shown = outputs is not None
    cells = [cell for cell in read(name).cells if cell.metadata.get("lang", language) == language
             and (shown or "page" not in cell.metadata.get("tags", ()))]
    for number, cell in enumerate(cells):
        cell.metadata, cell["id"] = {}, f"cell-{number}"
        if cell.cell_type == "markdown" and not shown:
            cell.source = portable(cell.source, to_page)
    codes = [cell for cell in cells if cell.cell_type == "code"]
    for cell, said in zip(codes, outputs if shown else [[]] * len(codes), strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", name=output["name"], text=output["text"]) for output in said]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def portable(markdown: str, to_page) -> str:
    """Markdown for any notebook viewer: no attributes, and links that lead to the site."""
    markdown = re.sub(r"[ ]*\{ [#.][^}]*\}|(?<=<details) markdown=\"1\"", "", markdown)
    return re.sub(r"\]\((?!https?:|#)([^)\s#]+)(#[^)]*)?\)", lambda found: f"]({to_page(found[1])}{found[2] or ''})", markdown)


def script(name: str, language: str, to_page) -> str:
    """The lab as a plain script, its Markdown as comments."""
    import jupytext
    taken = notebook(name, language, to_page)
    taken.metadata = {"jupytext": {"notebook_metadata_filter": "-all"}}
    return jupytext.writes(taken, fmt="py:percent")


def markdown(name: str) -> str:
    """The page: mkdocs-jupyter's exporter with a template of our own, which leaves Markdown to MkDocs.

    So headings get their ids, links are checked and blocks run as on any page, and no style sheet is put into it.
    """
    from mkdocs_jupyter.convert import get_nbconvert_app
    from nbconvert.exporters import MarkdownExporter
    shown = notebook(name, page.language, outputs=load(name).cells)
    exporter = MarkdownExporter(config=get_nbconvert_app().config, template_name="lab_page",
                                extra_template_basedirs=[str(Path(__file__).parent / "templates")])
    exporter.template_file = "index.md.j2"
    file = name.rpartition("/")[2].replace("_", "-")
    return exporter.from_notebook_node(shown, {"lab": {"name": name, "file": file, "word": word}})[0]


def provenance(name: str) -> Markup:
    """Where it was measured; and what the lab said on this build's GPU, if that is another machine."""
    return figure(name, lambda data: render("lab_cells.html", data=data))


def guess(key: str, question: dict) -> Markup:
    """A field for a prediction, kept in the reader's browser."""
    return render("lab_guess.html", key=f"labs.{key}", question=question[page.language])


def beside(key: str, measured: str) -> Markup:
    """The prediction made in the field of that key, beside what was measured."""
    return render("lab_beside.html", key=f"labs.{key}", measured=measured)
