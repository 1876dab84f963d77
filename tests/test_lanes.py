"""The figure of who works when: boxes where they belong, the share at work, the same numbers as a table."""
import re

import pytest

from harness.lanes import lanes
from harness.state import page

TEXT = {"en": "a text", "zh": "一段话"}


def drawn():
    def ways(data):
        return {"uneven": [[(0, 1, 1)], [(0, 3, 3), (3, 4, 1)]], ("even", "均匀"): [[(0, 2, 2)], [(0, 2, 2)]]}
    return str(lanes("attention/schedule", ways, worker="SM", title=TEXT, unit={"en": "blocks", "zh": "块"}))


def test_lanes_draw_every_piece_to_one_scale():
    html = drawn()
    boxes = re.findall(r'<svg x="([\d.]+)%" y="(\d+)" width="([\d.]+)%"', html)
    assert boxes == [("0.00", "20", "25.00"), ("0.00", "34", "75.00"), ("75.00", "34", "25.00"),
                     ("0.00", "78", "50.00"), ("0.00", "92", "50.00")]
    assert re.findall(r'<line x1="([\d.]+)%" x2="([\d.]+)%"', html) == [("25.00", "100.00")]  # only the first of the uneven way waits
    assert re.findall(r'text-anchor="end">([^<]*)<', html) == ["4 blocks · 62 %", "2 blocks · 100 %"]


def test_lanes_repeat_their_numbers_in_a_table_and_in_the_title():
    html = drawn()
    assert re.findall(r"<td>(.*?)</td>", html) == ["1", "2", "3 1", "2"]
    assert '<p class="legend">a text</p>' in html and 'role="img"' in html
    assert "Simulated, not measured" in html and "Measured on" not in html
    assert "<title>a text: uneven, 4 blocks, 62 %; even, 2 blocks, 100 %</title>" in html


@pytest.mark.parametrize(("language", "word"), [("en", "even"), ("zh", "均匀")])
def test_lanes_speak_the_pages_language(monkeypatch, language, word):
    monkeypatch.setattr(page, "language", language)
    html = drawn()
    assert f">{word}<" in html and ("均匀" in html) == (language == "zh") and TEXT[language] in html
