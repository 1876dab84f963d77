"""What the page being rendered is: its language, the machine whose records it shows, and the way to the site's root."""
import json
import os
from dataclasses import dataclass, field

from harness.record import REFERENCE


@dataclass
class Page:
    language: str = "en"
    machine: str = REFERENCE
    root: str = ""  # from the page to the root of the English site, where records and snippets are published
    here: dict = field(default_factory=lambda: json.loads(os.environ.get("THIS_MACHINE") or "{}"))  # this build's GPU, if any


page = Page()
