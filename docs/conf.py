"""Sphinx's configuration. Build it with `python -m sphinx -W -n docs docs/_build`."""

from __future__ import annotations

import dp_polars

project = "dp_polars"
author = "The dp_polars authors"
copyright = "2026, The dp_polars authors"  # noqa: A001
version = release = dp_polars.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_mock_imports = ["ibis", "pyspark", "sqlglot"]  # large packages, each for the sake of one page
autodoc_typehints = "none"
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
