"""What the page being rendered is: its language, the machine whose records it shows, and the way to the site's root."""
import os
from dataclasses import dataclass, field

from harness.record import REFERENCE


@dataclass
class Page:
    language: str = "en"
    machine: str = REFERENCE
    root: str = ""  # from the page to the root of the English site, where records and snippets are published
    here: str = field(default_factory=lambda: os.environ.get("THIS_MACHINE", ""))  # the GPU of this build, if any


page = Page()
