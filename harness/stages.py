"""What each stage of a compiler made of a function, side by side: every line shows the source lines it comes from. No torch.

stages.js marks the kin of a line in all stages; without it the listings stand one below the other, with the numbers beside them.
"""
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from harness.labels import WORDS
from harness.results import Node
from harness.show import figure, render
from harness.state import page

LEXERS = {"cpp": "cpp", "sass": "text"}  # all other stages are Python


def stages(name: str, key: str, titles: dict[str, dict[str, str]]) -> str:
    """The stages of `key` (inference, training) that `titles` names, in its order; `source` comes first and is what a reader picks from."""
    def draw(data: Node) -> str:
        words = titles[page.language]
        found = [_stage(stage, words[stage], data[key]["stages"][stage]) for stage in words]
        return render("stages.html", source=_picks(data[key]["stages"]["source"]), stages=found, words=WORDS[page.language]["stages"])
    return figure(name, draw)


def _picks(lines: list[Node]) -> list[dict]:
    """The source lines that anything comes from, without their indent."""
    return [{"number": line["from"][0], "text": line["text"].strip()} for line in lines if line["from"]]


def _stage(stage: str, title: str, lines: list[Node]) -> dict:
    """Lines of one listing in the site's own colours, with what they come from as the script wants it."""
    return {"title": title, "lines": [{"html": html, "from": " ".join(line["from"])}
                                      for html, line in zip(_coloured(stage, lines), lines, strict=True)]}


def _coloured(stage: str, lines: list[Node]) -> list[Markup]:
    """Every line of a text as HTML with Pygments' classes; no line of these listings is within a longer token."""
    lexer, formatter = get_lexer_by_name(LEXERS.get(stage, "python"), stripnl=False), HtmlFormatter(nowrap=True)
    return [Markup(highlight(line["text"], lexer, formatter).rstrip("\n")) for line in lines]  # noqa: S704 (Pygments escapes)
