"""The site that `nox -s docs` makes: docs/, the systems' own READMEs, and the docstrings of what others may import.

The source folder is the repository, so that links are the same here and there; a link to any other file downloads it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "rlbench"
author = copyright = "the rlbench developers"  # noqa: A001  Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["docs/**", "systems/**/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
html_theme = "furo"
html_title = "rlbench"
html_copy_source = False
myst_heading_anchors = 4
default_role = "literal"  # docstrings have single backticks
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
