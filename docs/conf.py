"""How Sphinx makes a site of these pages: `make docs`."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

from sphinx.util import logging

HERE = Path(__file__).parent

project = "Harrier"
copyright = "the Harrier maintainers"
version = re.search(r'^version = "([^"]+)"', (HERE.parent / "Cargo.toml").read_text(), re.M)[1]
release = version
html_title = f"Harrier {version}"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_search_scorer = str(HERE / "search-scorer.js")
myst_heading_anchors = 3


def words_of_pages():
    """Words that people search for, by page and section: `search-words.toml`."""
    found = defaultdict(list)
    for word, target in tomllib.loads((HERE / "search-words.toml").read_text(encoding="utf-8")).items():
        page, _, section = target.partition("#")
        found[page].append((section, word))
    return found


def slug(heading):
    """The anchor of a heading, as MyST makes it."""
    text = re.sub(r"[^\w\- ]", "", heading.strip("# ").lower())
    return text.replace(" ", "-")


def entry(word):
    return f"```{{index}} ! single: {word}\n```\n"


def add_index_entries(_app, docname, content):
    """Puts the words behind the headings of their sections, as entries of the index.

    A heading that is not there is a warning, which `make docs` takes for an error.
    """
    words = words_of_pages().get(docname, [])
    if not words or content[0].startswith("```{include}"):
        # The index of a page that is included stands above it.
        content[0] = "".join(entry(word) + "\n" for _, word in words) + content[0]
        return
    lines, is_code = [], False
    for line in content[0].split("\n"):
        lines.append(line)
        is_code ^= line.lstrip().startswith("```")
        if is_code or not line.startswith("#"):
            continue
        is_title = line.startswith("# ")
        here = [(section, word) for section, word in words if section == ("" if is_title else slug(line))]
        if here:
            words = [other for other in words if other not in here]
            lines += ["", *(entry(word) for _, word in here)]
    for section, word in words:
        message = f'no section #{section} for "{word}" of search-words.toml'
        logging.getLogger(__name__).warning(message, location=docname)
    content[0] = "\n".join(lines)


def setup(app):
    app.connect("source-read", add_index_entries)
