"""The site that `nox -s docs` makes: docs/, the systems' own READMEs, and the docstrings of what others may import.

The source folder is the repository, so that links are the same here and there; a link to any other file downloads it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.ext.napoleon import GoogleDocstring

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "rlbench"
author = copyright = "the rlbench developers"  # noqa: A001  Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["docs/**", "systems/**/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
html_theme = "furo"
html_title = "rlbench"
html_copy_source = False
html_extra_path = ["root"]  # leads from the top of the site to root_doc
myst_heading_anchors = 4
default_role = "literal"  # docstrings have single backticks
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"


def read_sections(_: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Reads `Args:` and the like; of a property Napoleon's own hook would take a word and a colon for a type."""
    if what not in {"attribute", "data", "property"}:
        lines[:] = GoogleDocstring(lines, what=what, name=name, obj=item, options=options).lines()


def setup(app: Sphinx) -> None:
    """Is called by Sphinx."""
    app.connect("autodoc-process-docstring", read_sections)
