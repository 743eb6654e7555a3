"""What may be said of a plan before `protect`: the kinds of its steps, for their literals may be private."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

import polars as pl

from dp_polars._rowwise.files import REMOTE
from dp_polars._rowwise.views import kind_of, nodes

# Nodes that a plan shows -> what their step is called.
_KINDS = {
    "Filter": "filter",
    "GroupBy": "group_by",
    "HStack": "with_columns",
    "Join": "join",
    "Select": "select",
    "SimpleProjection": "select",
    "Sort": "sort",
    "Union": "concat",
}
_MAPS = ("explode", "rechunk", "unnest", "unpivot")
# None: a source that Polars does not show.
_SOURCES = (None, "Cache", "DataFrameScan", "PythonScan")


def steps_and_urls(frame: pl.LazyFrame) -> tuple[list[str] | None, list[str]]:
    """Return the kinds of a plan's steps, sorted, each once, and the names of files that it reads from URLs.

    It returns no literal, no column and no number of steps, and no query of a URL, which may hold a password. The
    kinds are None where files are gone without which Polars shows no plan.
    """
    kinds, urls = set[str](), list[str]()
    try:
        for plan in nodes(frame):
            kind = kind_of(plan)
            if kind == "MapFunction":
                name = plan.view_current_node().function[0]
                kinds.add(name if name in _MAPS else "another step")
            elif kind == "Scan":
                paths = map(str, plan.view_current_node().paths)
                urls += [PurePosixPath(urlsplit(path).path).name for path in paths if REMOTE.match(path)]
            elif kind not in _SOURCES:
                kinds.add(_KINDS.get(str(kind), "another step"))
    except (ValueError, OSError, pl.exceptions.PolarsError):
        return None, urls
    return sorted(kinds), urls
