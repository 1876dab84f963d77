"""Labs: one source for two languages, executed in a kernel that leaves nothing behind, and the pages made of them.

No test here needs a GPU: cells run on the CPU at a small size, and pages are made from such a run.
"""
import ast
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from harness import lab, record, results, snippet
from harness.state import page
from tests.conftest import need, served
from tests.test_browser import asked, browser, visit  # noqa: F401 (two are fixtures)
from tests.test_pages import TYPED, prose

NAMES = [name for name in snippet.names() if snippet.kind(snippet.path(name)) == "lab"]
PAGES = [name.replace("_", "-") for name in NAMES]
HEADING = re.compile(r"^#{1,4} .*?\{ #([\w-]+) \}$", re.M)
MACHINE = {"name": record.REFERENCE, "gpu": "NVIDIA H200", "capability": "9.0", "sm_count": 132, "memory_bytes": 2**37, "l2_bytes": 2**26,
           "torch": "2", "triton": None, "cuda": None, "cudnn": None, "driver": None}


def source(name: str) -> str:
    return snippet.path(name).read_text(encoding="utf-8")


def markdown(name: str, language: str) -> list[str]:
    return [cell.source for cell in lab.read(name).cells if cell.cell_type == "markdown" and cell.metadata.get("lang") == language]


def small(code: str) -> str:
    return code.replace('device = "cuda"', 'device = "cpu"', 1) if code.startswith("device") else code


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A snippets/ with a lab of one's own: `tree(text)` writes it and gives its name."""
    monkeypatch.setattr(snippet, "SNIPPETS", tmp_path)
    snippet.digest.cache_clear()

    def write(text: str) -> str:
        (tmp_path / "labs").mkdir(exist_ok=True)
        (tmp_path / "labs" / "own.py").write_text(text, encoding="utf-8")
        snippet.digest.cache_clear()
        return "labs/own"
    yield write
    snippet.digest.cache_clear()


def test_there_are_three_labs():
    assert NAMES == ["labs/attention_backend", "labs/attention_cost", "labs/pointwise_fusion"]


@pytest.mark.parametrize("name", NAMES)
class TestSource:
    def test_code_is_the_same_in_both_languages(self, name):
        english, chinese = (lab.notebook(name, language, str) for language in ("en", "zh"))
        codes = [[cell.source for cell in taken.cells if cell.cell_type == "code"] for taken in (english, chinese)]
        assert codes[0] == codes[1] and len(codes[0]) >= 6
        assert [cell.cell_type for cell in english.cells] == [cell.cell_type for cell in chinese.cells]

    def test_text_has_the_same_parts_in_both_languages(self, name):
        for what in (HEADING.findall, re.compile(r"\]\(([^)\s]+)").findall, re.compile("<details").findall):
            assert [what(cell) for cell in markdown(name, "en")] == [what(cell) for cell in markdown(name, "zh")]
        assert sum(cell.count("<details") for cell in markdown(name, "en")) == 3
        assert {"size", "predict", "change", "questions"} <= set(HEADING.findall("\n".join(markdown(name, "en"))))

    def test_headings_have_ids_and_no_figure_is_typed(self, name):
        for language in ("en", "zh"):
            text = "\n\n".join(markdown(name, language))
            headings = re.findall(r"^#{1,4} .*$", text, re.M)
            assert [heading for heading in headings if not HEADING.fullmatch(heading)] == []
            assert TYPED.findall(prose(text).replace("8 GiB", "")) == []  # which is what a lab needs

    def test_chinese_is_written_as_chinese(self, name):
        text = re.sub(r"`[^`\n]+`", "0", re.sub(r"\]\([^)]*\)|<[^>]*>|[*_\[\]]", "", "\n".join(markdown(name, "zh"))))
        assert re.findall(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", text) == []
        assert re.findall(r"[\u4e00-\u9fff][,;:!?]|[\u4e00-\u9fff]\.(?:\s|$)", text) == []
        assert re.findall(r"[\u4e00-\u9fff] +[，。：；！？、]|[，。：；！？、] +[\u4e00-\u9fff]", text) == []

    def test_digest_sees_the_cells_that_jupyter_sees(self, name):
        cells = [cell.source for cell in lab.read(name).cells if cell.cell_type == "code"]
        assert [cell.strip() for cell in snippet.code_cells(source(name))] == [cell.strip() for cell in cells]

    def test_code_is_short_and_imports_nothing_of_ours(self, name):
        code = "\n".join(snippet.code_cells(source(name)))
        assert max(map(len, code.splitlines())) <= 130
        functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
        assert max(node.end_lineno - node.lineno for node in functions) < 25
        assert "harness" not in code


def test_digest_changes_with_code_and_cells_but_not_with_text(tree):
    first = '# %% [markdown] lang="en"\n# text\n\n# %%\nx = 1\nprint(x)\n'

    def digest(text):
        return snippet.digest(tree(text))
    assert digest(first.replace("# text", "# other")) == digest(first.replace("x = 1", "x = 1  # why")) == digest(first)
    assert len({digest(first), digest(first.replace("1", "2")), digest(first.replace("print", "# %%\nprint"))}) == 3


def test_cell_of_an_unknown_language_is_refused(tree):
    with pytest.raises(snippet.SnippetError, match="lang='fr'"):
        lab.read(tree('# %% [markdown] lang="fr"\n# bonjour\n'))
    with pytest.raises(snippet.SnippetError, match="code is neither"):
        lab.read(tree('# %% lang="en"\nx = 1\n'))


def test_lab_cannot_be_imported_by_mistake(tree):
    with pytest.raises(snippet.SnippetError, match="importing would run it"):
        snippet.load(tree("# %%\nx = 1\n"))


class TestExecute:
    def test_outputs_come_cell_by_cell(self, tree):
        name = tree("# %%\nprint('a')\nprint('b')\n\n# %%\n1 + 1\n\n# %%\nfound = {'n': 3}\n")
        assert lab.execute(name) == {"cells": [[{"name": "stdout", "text": "a\nb\n"}], [{"name": "result", "text": "2"}], []],
                                     "found": {"n": 3}}

    def test_standard_error_belongs_to_the_log(self, tree):
        said = []
        name = tree("# %%\nimport sys\nprint('noise', file=sys.stderr)\nprint('figure')\n# %%\nfound = {}\n")
        assert lab.execute(name, said.append)["cells"] == [[{"name": "stdout", "text": "figure\n"}], []]
        assert "noise\n" in said

    def test_kernel_sees_neither_this_repository_nor_the_users_startup_files(self, tree, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", str(snippet.ROOT))
        name = tree("# %%\nimport importlib.util, os\n# %%\nfound = {'harness': bool(importlib.util.find_spec('harness')), "
                    "'home': os.environ['IPYTHONDIR'] == os.getcwd()}\n")
        assert lab.execute(name)["found"] == {"harness": False, "home": True}

    def test_cell_that_fails_ends_the_lab(self, tree):
        from nbclient.exceptions import CellExecutionError
        with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
            lab.execute(tree("# %%\n1 / 0\n# %%\nfound = {}\n"))

    def test_kernel_dies_with_its_process_group(self, tmp_path, tree):
        need(sys.platform == "linux", "the parent's death is told by Linux")
        tree(f"# %%\nimport os, pathlib, time\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\ntime.sleep(60)\n")
        code = ("from harness import lab, snippet; from pathlib import Path; "
                f"snippet.SNIPPETS = Path({str(tmp_path)!r}); lab.execute('labs/own')")
        child = subprocess.Popen([sys.executable, "-c", code], cwd=snippet.ROOT, start_new_session=True)
        try:
            for _ in range(200):
                if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
                    break
                time.sleep(0.1)
            kernel = int((tmp_path / "pid").read_text())
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for _ in range(50):
            state = Path(f"/proc/{kernel}/stat")
            if not state.exists() or ") Z " in state.read_text():
                return
            time.sleep(0.1)
        pytest.fail("the kernel outlived the process that started it")


def test_worker_writes_what_a_lab_said(tree, monkeypatch, tmp_path):
    worker = pytest.importorskip("harness.worker")
    monkeypatch.setattr(worker.machine, "describe", lambda: MACHINE)
    name = tree("# %%\nprint('a', end='')\n# %%\nfound = {'n': 1}\n")
    worker.prepare(name)
    worker.measure(name, str(tmp_path / "out.json"))
    said = {"cells": [[{"name": "stdout", "text": "a"}], []], "found": {"n": 1}}
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == {"machine": MACHINE, "data": said}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The labs' pages in both languages, made from a run on the CPU by the site's own configuration; what they link to is empty."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    need(find_spec("mkdocs_jupyter"), "mkdocs-jupyter is not installed")
    need(any(map(shutil.which, ("g++", "c++", "clang++"))), "no C++ compiler, which torch.compile needs on a CPU")
    folder, patch = tmp_path_factory.mktemp("labs"), pytest.MonkeyPatch()
    patch.setenv("OMP_NUM_THREADS", "1")  # small sizes, and other tests beside this one
    patch.delitem(sys.modules, "torch", raising=False)  # other tests of this process have it; the build must not
    (snippet.ROOT / ".cache").mkdir(exist_ok=True)
    inside = tempfile.TemporaryDirectory(dir=snippet.ROOT / ".cache")  # what the site publishes lies in the project
    patch.setattr(record, "RESULTS", Path(inside.name, "results"))
    for name in NAMES:
        data = json.loads(json.dumps(lab.execute(name, code=small)))
        record.write({"snippet": name, "kind": "lab", "method_version": 1, "digest": snippet.digest(name), "date": "2026-01-01",
                      "commit": None, "duration_s": 1.0, "machine": MACHINE, "data": data}, record.path(record.REFERENCE, name))
    for language in ("en", "zh"):
        docs = folder / "docs" / language
        for inner in PAGES:
            (docs / inner).parent.mkdir(parents=True, exist_ok=True)
            text = (snippet.ROOT / "docs" / language / f"{inner}.md").read_text(encoding="utf-8")
            (docs / f"{inner}.md").write_text(text.partition("## ")[0], encoding="utf-8")  # its claims are the reference's
    for language, config in (("en", "mkdocs.yml"), ("zh", "mkdocs.zh.yml")):
        links = [link.partition("#")[::2] for name in NAMES for cell in markdown(name, language)
                 for link in re.findall(r"\]\(([^)\s]+)", cell) if not link.startswith("http")]
        for target in {normpath(join("labs", path)) for path, _ in links} - {f"{inner}.md" for inner in PAGES}:
            anchors = {anchor for path, anchor in links if normpath(join("labs", path)) == target and anchor} or {"top"}
            (folder / "docs" / language / target).parent.mkdir(parents=True, exist_ok=True)
            text = "".join(f"## Part {{ #{anchor} }}\n\n" for anchor in anchors)
            (folder / "docs" / language / target).write_text(text, encoding="utf-8")
        (folder / "docs" / language / "index.md").write_text("# Home\n", encoding="utf-8")
        hooks = [str(snippet.ROOT / "hooks" / f"{name}.py") for name in ("language", "labs", "evidence")]
        loaded = load_config(str(snippet.ROOT / config), docs_dir=str(folder / "docs" / language), hooks=hooks, strict=True,
                             site_dir=str(folder / "site" / ("zh" if language == "zh" else "")), site_url="https://example.org/")
        loaded.nav = None
        for assets, asset in ((loaded.extra_css, "assets/css/lab.css"), (loaded.extra_javascript, "assets/js/lab.js")):
            assets.extend({asset} - set(map(str, assets)))
        loaded.plugins.on_startup(command="build", dirty=False)
        build(loaded)
    patch.undo()
    inside.cleanup()
    page.language = "en"
    return folder / "site"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("inner", PAGES)
class TestSite:
    def read(self, site, language, inner) -> str:
        return (site / ("zh" if language == "zh" else "") / inner / "index.html").read_text(encoding="utf-8")

    def test_page_is_light_and_asks_no_other_host(self, site, language, inner):
        html = self.read(site, language, inner)
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', html)
        addresses = [first or second for first, second in loaded]
        assert addresses and not [address for address in addresses if urlsplit(address).netloc]
        folder = site / ("zh" if language == "zh" else "") / inner
        weight = len(gzip.compress(html.encode())) + sum(
            len(gzip.compress((folder / urlsplit(address).path).resolve().read_bytes())) for address in addresses)
        assert weight < 250 * 1024

    def test_headings_have_ids_and_the_contents_lead_to_them(self, site, language, inner):
        html = self.read(site, language, inner)
        ids = re.findall(r"<h[1-4]\b[^>]*?(?: id=\"([^\"]*)\")?>", html.partition("<article")[2].partition("</article")[0])
        assert len(ids) >= 6 and all(ids)
        told = re.findall(r'href="#([^"]+)" class="md-nav__link"', html)
        assert set(told) >= set(ids[1:])
        assert set(ids) == set(HEADING.findall("\n".join(markdown(inner.replace("-", "_"), language))))

    def test_outputs_stand_under_their_cells(self, site, language, inner):
        html = self.read(site, language, inner)
        assert html.count('class="lab-output') >= 5
        assert html.count("data-note=") == html.count("data-guess=") == 1
        assert "<details>" in html and 'markdown="1"' not in html and "Traceback" not in html

    def test_downloads_are_there_and_portable(self, site, language, inner):
        folder = (site / ("zh" if language == "zh" else "") / inner).parent
        taken = json.loads((folder / f"{inner.rpartition('/')[2]}.ipynb").read_text(encoding="utf-8"))
        script = (folder / f"{inner.rpartition('/')[2]}.py").read_text(encoding="utf-8")
        codes = ["".join(cell["source"]) for cell in taken["cells"] if cell["cell_type"] == "code"]
        assert [code.strip() for code in snippet.code_cells(script)] == [code.strip() for code in codes]
        assert codes == [cell.source for cell in lab.read(inner.replace("-", "_")).cells if cell.cell_type == "code"]
        assert all(cell["outputs"] == [] for cell in taken["cells"] if cell["cell_type"] == "code")
        text = "\n".join("".join(cell["source"]) for cell in taken["cells"] if cell["cell_type"] == "markdown")
        assert "{ #" not in text and "exec=" not in text and "exec=" not in script
        links = re.findall(r"\]\(([^)\s]+)", text)
        assert links and all(link.startswith("https://") for link in links)
        assert bool(re.search(r"[\u4e00-\u9fff]", text)) is (language == "zh")
        for link in links:
            if link.startswith("https://example.org/"):
                assert (site / urlsplit(link).path.strip("/") / "index.html").exists()


SENTENCE = "This lab needs an NVIDIA GPU with 8 GiB of memory and a PyTorch that was built for CUDA."


def taken(site: Path, path: str, folder: Path, device: str) -> Path:
    """What a reader downloads, away from the site and this repository; on the CPU it runs at a small size."""
    text = (site / path).read_text(encoding="utf-8")
    mark = 'device = \\"cuda\\"' if path.endswith(".ipynb") else 'device = "cuda"'
    assert text.count(mark) == 1
    copy = folder / Path(path).name
    copy.write_text(text.replace(mark, mark.replace("cuda", device)), encoding="utf-8")
    return copy


def run(file: Path) -> subprocess.CompletedProcess:
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, file.name], cwd=file.parent, env=alone, capture_output=True, encoding="utf-8", check=False)


# A lab's two files in both languages have the same code (test_downloads_are_there_and_portable): each lab is run from one of them.
def test_taken_script_runs_from_top_to_bottom(site, tmp_path):
    ran = run(taken(site, "zh/labs/pointwise-fusion.py", tmp_path, "cpu"))
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) >= 10


@pytest.mark.parametrize("path", ["labs/attention-backend.ipynb", "zh/labs/attention-cost.ipynb"])
def test_taken_notebook_runs_from_top_to_bottom(site, path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(taken(site, path, tmp_path, "cpu"), as_version=4)
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in codes] == list(range(1, len(codes) + 1))
    assert all(cell.outputs for cell in codes if "\nprint(" in cell.source)


def test_lab_says_in_one_sentence_what_it_needs(site, tmp_path):
    torch = pytest.importorskip("torch")
    for name in NAMES:
        assert f'if device == "cuda" and not torch.cuda.is_available():\n    raise SystemExit("{SENTENCE}")\n' in source(name)
    if not torch.cuda.is_available():
        ran = run(taken(site, "labs/attention-cost.py", tmp_path, "cuda"))
        assert (ran.returncode, ran.stdout, ran.stderr.splitlines()[-1]) == (1, "", SENTENCE)


def test_output_is_escaped_and_no_value_is_read_from_it(tree, monkeypatch):
    name = tree('# %% [markdown] lang="en"\n# # A { #a }\n\n# %%\nprint(1)\n')
    said = results.Node(cells=[[{"name": "stdout", "text": "<script>alert(1)</script> {{ 1 + 1 }}\n\n# no heading"}]])
    monkeypatch.setattr(lab, "load", lambda name: said)
    made = lab.markdown(name)
    assert "<script>" not in made and "{{" not in made and "&lt;script&gt;" in made


def test_record_of_other_cells_is_refused(tree, monkeypatch):
    name = tree('# %% [markdown] lang="en"\n# # A { #a }\n\n# %%\nprint(1)\n')
    monkeypatch.setattr(lab, "load", lambda name: results.Node(cells=[[], []]))
    with pytest.raises(ValueError, match="argument 2 is longer"):
        lab.markdown(name)


@pytest.fixture(scope="module")
def site_url(site):
    """Where the labs' pages are served; the browser tests' own `visit` goes there."""
    with served(site) as url:
        yield url


@pytest.mark.parametrize(("prefix", "none"), [("", "none yet"), ("zh/", "还没有填")])
def test_guess_is_kept_and_shown_beside_the_result(visit, prefix, none):  # noqa: F811
    window = visit(f"{prefix}{PAGES[0]}/", 375)
    assert asked(window) and not [entry for entry in window.get_log("browser") if entry["level"] == "SEVERE"]
    beside = "return document.querySelector('[data-guess]').innerText"
    assert window.execute_script(beside) == none
    window.find_element("css selector", "#predict .headerlink").send_keys(Keys.TAB)  # by keyboard: the field is what comes next
    window.switch_to.active_element.send_keys("3 x")
    assert window.execute_script(beside) == "3 x"
    window.refresh()
    assert window.execute_script(beside) == window.execute_script("return document.querySelector('[data-note]').value") == "3 x"
    assert window.execute_script("return document.documentElement.scrollWidth") <= 375
    assert not [address for address in asked(window) if not address.startswith(("http://127.0.0.1:", "data:", "chrome:"))]
