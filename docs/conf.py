"""Sphinx's configuration. Build it with `python -m sphinx -W -n docs docs/_build`."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import dp_polars

project = "dp_polars"
author = "The dp_polars authors"
copyright = "2026, The dp_polars authors"  # noqa: A001
version = release = dp_polars.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_copybutton", "sphinx_design"]
myst_enable_extensions = ["colon_fence"]  # no formulas: their fonts and scripts would come from elsewhere
myst_heading_anchors = 3
exclude_patterns = ["_build", "design.md", "extending.md"]  # for contributors, in the repository
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

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
html_title = f"dp_polars {version}"
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_center": [],  # all pages are in the sidebar, under their captions
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"**": ["globaltoc.html"]}
html_static_path = ["static"]
html_extra_path = ["static/llms.txt"]  # to the root, where programs look for it
html_css_files = ["wide.css"]
html_js_files = ["stack.js"]
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")

MADE_BY_USERS = {"dp_polars.Budget"}


ROOT = Path(__file__).parents[1]
# A link to a file outside of docs: on the site it leads to the highlighted file, and from a name to its definition.
OUTSIDE = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<up>(?:\.\./)+)(?P<path>[\w./-]+\.(?:py|md|txt))\)")


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", _shown_signature, priority=1)  # before numpydoc's own
    app.connect("source-read", _link_to_code)
    app.connect("html-collect-pages", _code_pages)


def _line_of(path: Path, name: str) -> int | None:
    """Return the line that defines a name, such as `f` or `A.f`."""
    node: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for part in name.split("."):
        inside = [one for one in ast.iter_child_nodes(node) if getattr(one, "name", None) == part]
        if not inside:
            return None
        node = inside[0]
    return getattr(node, "lineno", None)


def _outside(link: re.Match[str], page: Path) -> Path | None:
    """Return the file of a link that is in the repository, but not among the pages."""
    path = (page.parent / link["up"] / link["path"]).resolve()
    return path if path.is_file() and not path.is_relative_to(ROOT / "docs") else None


def _link_to_code(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Link to the highlighted file, where a page links to one of the repository."""
    page = ROOT / "docs" / f"{docname}.md"

    def linked(link: re.Match[str]) -> str:
        path = _outside(link, page)
        if path is None:
            return link[0]
        text, line = link["text"].strip("`"), None
        if path.suffix == ".py":
            line = _line_of(path, text)
        href = "../" * docname.count("/") + f"code/{path.relative_to(ROOT).as_posix()}.html"
        shown = f"<code>{html.escape(text)}</code>" if link["text"].startswith("`") else html.escape(text)
        return f'<a class="reference internal" href="{href}{f"#line-{line}" if line else ""}">{shown}</a>'

    source[0] = OUTSIDE.sub(linked, source[0])


def _code_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page of every file that a page links to."""
    paths = {
        path
        for page in (ROOT / "docs").rglob("*.md")
        for link in OUTSIDE.finditer(page.read_text(encoding="utf-8"))
        if (path := _outside(link, page)) is not None
    }
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        language = "python" if path.suffix == ".py" else "markdown"
        code = app.builder.highlighter.highlight_block(  # type: ignore[attr-defined]
            path.read_text(encoding="utf-8"), language, lineanchors="line"
        )
        yield (
            f"code/{name}",
            {"title": name, "body": f'<h1>{name}</h1>\n<div class="repository-file">{code}</div>'},
            "page.html",
        )


def _shown_signature(_app: Sphinx, what: str, name: str, *about: object) -> tuple[str, str] | None:
    """Show a class without its constructor, unless users call it, and types without their modules."""
    *_, signature, returned = about
    if not isinstance(signature, str):
        return None
    if what in {"class", "exception"} and name not in MADE_BY_USERS:
        return "", ""
    shown = (re.sub(r"~(?:\w+\.)*", "", part or "") for part in (signature, returned))
    return tuple(re.sub(r"\bNumber\b(?!\[)", "float | Decimal | Fraction", part) for part in shown)
