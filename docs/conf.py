"""Sphinx configuration: MyST pages, numpydoc docstrings, one theme, formulas without a network."""

import re
from importlib import import_module
from importlib.metadata import version as version_of
from inspect import getdoc

from sphinx.util.docutils import SphinxDirective

project = "convref"
author = copyright = "The convref authors"
release = version = version_of("convref")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
extensions += ["sphinx-mathjax-offline"]  # MathJax among the pages, not from another host
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {"chtml": {"matchFontHeight": False, "scale": 1.05}}  # equations fit the column
myst_enable_extensions = ["amsmath", "dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"convref {version}"
html_static_path = ["_static"]
html_css_files = ["convref.css"]

autodoc_typehints = "none"  # shapes and types stand in the docstrings
numpydoc_show_class_members = False
add_module_names = False


def escape_starred_shapes(app, what, name, obj, options, lines):
    """Keep docutils from reading the star of a shape like (N, C, *spatial) as emphasis."""
    lines[:] = [re.sub(r"(?<=, )\*(?=\w*[,)])", r"\\*", line) for line in lines]


class Functions(SphinxDirective):
    """``.. functions:: MODULE``: a table of the functions of a module, then their pages."""

    required_arguments = 1

    def run(self):
        name = self.arguments[0]
        module = import_module(name)
        bases = [f for f in module.__all__ if not f.endswith(PASSES)]
        rows = [".. list-table::", "   :header-rows: 1", "", *cells("function", "derivatives", "")]
        for base in bases:
            passes = [p for p in PASSES if base + p in module.__all__]
            links = (f":func:`{p[1:].replace('_', ' ')} <{name}.{base}{p}>`" for p in passes)
            summary, _, _ = getdoc(getattr(module, base)).replace("*", r"\*").partition("\n\n")
            rows += cells(f":func:`~{name}.{base}`", ", ".join(links), " ".join(summary.split()))
        text = "\n".join([*rows, "", f".. automodule:: {name}", "   :members:", ""])
        return self.parse_text_to_nodes(text)


PASSES = ("_backward", "_jvp", "_double_backward")


def cells(first, *more):
    """Return the lines of a row of a list-table."""
    return [f"   * - {first}", *(f"     - {text}" for text in more)]


def setup(app):
    """Run before numpydoc, which sees the docstring at the default priority."""
    app.add_directive("functions", Functions)
    app.connect("autodoc-process-docstring", escape_starred_shapes, priority=100)
