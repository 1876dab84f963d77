"""Builds both languages of the site with MkDocs, or serves them, and looks at what came out."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from harness.snippet import ROOT

CONFIGS = {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}  # English first: it empties site/, where Chinese is site/zh/
PREFIX = {"en": "", "zh": "zh"}
SITE = ROOT / "site"
# What a strict build lets through: a block that did not run, one that failed, a value that was not read.
WRONG = ("Traceback (most recent call last)", "--8<--", "--8&lt;--", "{{", 'exec="true"')


class SiteError(Exception):
    """The built site is not what it should be."""


def _environment(machine: dict | None) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "THIS_MACHINE": json.dumps(machine or {}), "NO_MKDOCS_2_WARNING": "1"}


def build(machine: dict | None = None, site: Path = SITE) -> None:
    """Both languages, strictly; `machine` describes this build's GPU, if it has one. Raises SiteError."""
    for language, config in CONFIGS.items():
        # never --quiet: with it a failed block ends with status 0
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f", config, "-d", str(site / PREFIX[language])]
        status = subprocess.run(command, cwd=ROOT, env=_environment(machine), check=False).returncode
        if status:
            raise SiteError(f"mkdocs build of {config} ended with status {status}; its own lines above say where")
    check(site)


def serve(language: str, machine: dict | None = None) -> int:
    if language not in CONFIGS:
        raise SiteError(f"no language {language}; there are: {', '.join(CONFIGS)}")
    command = [sys.executable, "-m", "mkdocs", "serve", "--livereload", "-f", CONFIGS[language]]
    return subprocess.run(command, cwd=ROOT, env=_environment(machine), check=False).returncode


def check(site: Path) -> None:
    """Raise SiteError for the first page that is absent, unfinished or holds a failed block."""
    for language, prefix in PREFIX.items():
        for source in sorted((ROOT / "docs" / language).rglob("*.md")):
            inner = source.relative_to(ROOT / "docs" / language).with_suffix("").as_posix()
            folder = inner.removesuffix("index").rstrip("/")
            file = site / prefix / folder / "index.html"
            if not file.is_file():
                raise SiteError(f"docs/{language}/{inner}.md: no page came of it; a block may have called sys.exit")
            text = file.read_text(encoding="utf-8")
            prose = re.sub(r"<(script|pre)\b.*?</\1>", "", text, flags=re.S)
            found = next((mark for mark in WRONG if mark in prose), None)
            if found or WRONG[0] in re.sub(r"<[^>]*>", "", text):  # a traceback is highlighted word by word
                raise SiteError(f"docs/{language}/{inner}.md: the built page holds {found or WRONG[0]!r}")
