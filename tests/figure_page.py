"""A page that holds one figure alone, in Material's styles and ours, opened in the browser."""
from pathlib import Path

import material

from harness import snippet
from tests.test_browser import resize
from tests.test_explorer import NAMED, PAGE

ASSETS = snippet.ROOT / "overrides/assets"


def open_figure(chromium, folder: Path, name: str, body: str, width: int, scheme: str, language: str, script: bool):  # noqa: PLR0917
    """The figure's HTML with assets/js/<name>.js, unless `script` is False, and assets/css/<name>.css; no error in the console."""
    sheets = Path(material.__file__).parent / "templates/assets/stylesheets"
    styles = [next(sheets.glob("main.*.min.css")), next(sheets.glob("palette.*.min.css")), ASSETS / "css/site.css",
              ASSETS / f"css/{name}.css"]
    style = "".join(sheet.read_text(encoding="utf-8") for sheet in styles)
    code = (ASSETS / f"js/{name}.js").read_text(encoding="utf-8") if script else ""
    file = folder / "page.html"
    file.write_text(PAGE.format(language=language, scheme=NAMED[scheme], style=style, body=body, script=code), encoding="utf-8")
    resize(chromium, width)
    chromium.get(file.as_uri())
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    return chromium
