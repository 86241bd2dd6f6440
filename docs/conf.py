"""How Sphinx makes a site of these pages: `make docs`."""

import re
from pathlib import Path

project = "Harrier"
copyright = "the Harrier maintainers"
version = re.search(r'^version = "([^"]+)"', Path(__file__).parent.parent.joinpath("Cargo.toml").read_text(), re.M)[1]
release = version
html_title = f"Harrier {version}"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "test-times.tsv", "peers.py"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 3
