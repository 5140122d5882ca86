"""Sphinx configuration: MyST pages, numpydoc docstrings, one theme."""

import re
from importlib.metadata import version as version_of

project = "convref"
author = "The convref authors"
release = version = version_of("convref")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["amsmath", "dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"convref {version}"

autodoc_typehints = "none"  # shapes and types stand in the docstrings
numpydoc_show_class_members = False
add_module_names = False


def escape_starred_shapes(app, what, name, obj, options, lines):
    """Keep docutils from reading the star of a shape like (N, C, *spatial) as emphasis."""
    lines[:] = [re.sub(r"(?<=, )\*(?=\w+[,)])", r"\\*", line) for line in lines]


def setup(app):
    """Run before numpydoc, which sees the docstring at the default priority."""
    app.connect("autodoc-process-docstring", escape_starred_shapes, priority=100)
