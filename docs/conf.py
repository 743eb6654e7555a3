"""Sphinx's configuration. Build it with `python -m sphinx -W -n docs docs/_build`."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

import dp_polars

project = "dp_polars"
author = "The dp_polars authors"
copyright = "2026, The dp_polars authors"  # noqa: A001
version = release = dp_polars.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_design"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_mock_imports = ["ibis", "pyspark", "sqlglot"]  # large packages, each for the sake of one page
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
# Types of signatures: most belong to other packages. MyST checks the links of pages.
nitpick_ignore_regex = [("py:class", ".*")]
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
default_role = "literal"

html_theme = "pydata_sphinx_theme"
html_title = "dp_polars"
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_center": [],  # all pages are in the sidebar, under their captions
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"**": ["globaltoc.html"]}
html_static_path = ["static"]
html_extra_path = ["static/llms.txt"]  # to the root, where programs look for it
html_css_files = ["wide.css"]
html_js_files = ["stack.js"]
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")

MADE_BY_USERS = {"dp_polars.Budget"}


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", _shown_signature, priority=1)  # before numpydoc's own


def _shown_signature(_app: Sphinx, what: str, name: str, *about: object) -> tuple[str, str] | None:
    """Show a class without its constructor, unless users call it, and types without their modules."""
    *_, signature, returned = about
    if not isinstance(signature, str):
        return None
    if what in {"class", "exception"} and name not in MADE_BY_USERS:
        return "", ""
    shown = (re.sub(r"~(?:\w+\.)*", "", part or "") for part in (signature, returned))
    return tuple(re.sub(r"\bNumber\b(?!\[)", "float | Decimal | Fraction", part) for part in shown)
