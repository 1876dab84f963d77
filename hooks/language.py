"""Two builds make one bilingual site: English at /, Chinese at /zh/, from twin trees of pages.

The switch's links come from here and not from `extra.alternate`, whose head links make Material's script ask for a
sitemap per language on each page view; hreflang is in the sitemap instead (overrides/sitemap.xml).
"""
from importlib.util import find_spec
from pathlib import Path
from posixpath import relpath
from urllib.parse import urlsplit

from mkdocs.plugins import event_priority, get_plugin_logger
from mkdocs.structure.files import File

from harness.state import page as state

log = get_plugin_logger("language")
LANGUAGES = {"en": ("English", ""), "zh": ("简体中文", "zh/")}
# A split before each Chinese character: what the search falls back to without jieba's words.
CHARACTERS = r"[\s\u200b\u3000\-、。，．？！；：（）]+|(?=[\u4e00-\u9fff])"


@event_priority(50)  # before the search plugin copies its settings
def on_config(config):
    state.language = config.theme["language"]
    config.extra["alternate"] = True  # turns the switch on
    prefix = LANGUAGES[state.language][1]
    if not config.site_url.endswith("/" + prefix):
        config.site_url += prefix
    if state.language == "zh" and find_spec("jieba") is None:
        log.info("jieba is not installed: the Chinese search goes by characters instead of words")
        search = next(plugin for name, plugin in config.plugins.items() if name.endswith("search"))
        search.config["separator"] = CHARACTERS
    return config


def on_files(files, config):
    docs = Path(config.docs_dir)
    for language in LANGUAGES:
        for source in sorted((docs.parent / language).rglob("*.md")):
            name = source.relative_to(docs.parent / language)
            if not (docs / name).exists():
                log.warning("%s has no twin in docs/%s", name.as_posix(), state.language)  # an error in a strict build
    if state.language == "en":
        maps = "".join(f"Sitemap: {config.site_url}{prefix}sitemap.xml\n" for _, prefix in LANGUAGES.values())
        files.append(File.generated(config, "robots.txt", content=f"User-agent: *\nAllow: /\n{maps}"))
    return files


def on_env(env, config, files):
    env.globals["alternates"] = lambda url=None: list(_alternates(config, url))


def on_post_page(output, page, config):
    """Material's search dialog has no accessible name."""
    name = {"en": "Search", "zh": "搜索"}[state.language]
    return output.replace('data-md-component="search" role="dialog"', f'data-md-component="search" role="dialog" aria-label="{name}"')


def _alternates(config, url):
    """The page in each language; url is None for 404.html, which is served at any depth."""
    url = "" if url in (".", "./") else url
    own = LANGUAGES[state.language][1]
    root = config.site_url.removesuffix(own)
    for language, (name, prefix) in LANGUAGES.items():
        here, there = f"/{own}{url or ''}", f"/{prefix}{url or ''}"
        relative = urlsplit(root).path + prefix if url is None else relpath(there, here) + "/"
        yield {"lang": language, "name": name, "relative": relative, "absolute": root + prefix + (url or "")}
