"""The words that rendered blocks use, from labels.yml, where both languages stand side by side. A missing one is a KeyError."""
from pathlib import Path

import yaml

from harness.state import page

_pairs = yaml.safe_load((Path(__file__).parent / "labels.yml").read_text(encoding="utf-8"))
WORDS = {language: {key: pair[language] for key, pair in _pairs.items()} for language in ("en", "zh")}


def both(key: str) -> dict:
    """The word in each language, as figures take their titles."""
    return _pairs[key]


def word(key: str, *values) -> str:
    text = WORDS[page.language][key]
    return text.format(*values) if isinstance(text, str) else text[values[0]]
