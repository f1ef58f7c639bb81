"""Sphinx: build with `make docs`."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from generate import generate  # noqa: E402

from schedlang.editors.pygments import SchedLexer  # noqa: E402
from schedlang.version import __version__  # noqa: E402

generate()

project = "schedlang"
author = "the schedlang authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "findings", "reference/generated/*.md"]  # parts of pages; those in folders are pages
highlight_language = "none"
pygments_style = "friendly"
smartquotes = False     # they make one dash of the two of an option
html_extra_path = ["reference/generated/extra"]      # pictures, and the pages that step through them
html_theme = "alabaster"
html_show_copyright = False
html_theme_options = {
    "description": "schedules of collective communication", "fixed_sidebar": True,
    "body_max_width": "920px", "code_font_size": "0.8em",       # so that a line of output fits
    "page_width": "860px",      # on narrower screens the navigation stands below the text; see _static/custom.css
}
html_static_path = ["_static"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"


def setup(app):
    app.add_lexer("sched", SchedLexer)      # also where schedlang is not installed
