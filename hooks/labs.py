"""Makes a page of each lab, from the cells of the page's language and the recorded outputs, and publishes what a reader takes away.

A page names its lab in its front matter; its own text, the claims and the takeaway, follows the lab's.
"""
from pathlib import Path, PurePosixPath
from posixpath import join, normpath

import nbformat
import yaml
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from harness import lab, record, results, snippet
from harness.state import page as state


def on_files(files, config):
    for page in [file for file in files.documentation_pages() if file.src_uri.startswith("labs/")]:
        meta = yaml.safe_load(Path(page.abs_src_path).read_text(encoding="utf-8").split("---\n")[1])
        if name := meta.get("lab"):
            stem = PurePosixPath(page.src_uri).with_suffix("").as_posix()
            address = address_of(config.site_url, files)
            taken = nbformat.writes(lab.notebook(name, state.language, address)) + "\n"
            files.append(File.generated(config, f"{stem}.ipynb", content=taken))
            files.append(File.generated(config, f"{stem}.py", content=lab.script(name, state.language, address)))
    return files


def address_of(site_url: str, files):
    """From a link of a lab's page, as written there, to the address on the published site."""
    def address(link: str) -> str:
        file = files.get_file_from_path(normpath(join("labs", link)))
        if file is None:
            raise PluginError(f"a lab links to {link}, which is no page")
        return site_url + ("" if file.url == "./" else file.url)
    return address


@event_priority(50)  # before the values in its text are filled in
def on_page_markdown(markdown, page, config, files):
    name = page.meta.get("lab")
    if not name:
        return markdown
    try:
        return f"{lab.markdown(name)}\n{markdown}"
    except (results.Missing, record.RecordError, snippet.SnippetError, ValueError) as error:
        raise PluginError(f"docs/{state.language}/{page.file.src_uri}: {error}") from error
