"""Histograms as the engines of this package make them, and as frames to compare."""

from __future__ import annotations

import numpy as np
import polars as pl

from dp_polars._mechanisms.histograms import Histogram
from dp_polars._release.contract import HistogramSpec
from dp_polars._release.protection import Limits

SCHEMA = {"group": pl.Int64, "code": pl.Int64, "count": pl.Int64}


def spec_of(frame, column, query, limits=None, *, people=False, part=0):
    """One spec of a query about a column (a name or an expression) of a frame, or about none of its columns."""
    if column is None:
        return HistogramSpec((), (), query.count_rules()[part], limits or Limits(), people)
    expr = pl.col(column) if isinstance(column, str) else column
    types = (frame.lazy().select(expr).collect_schema().dtypes()[0],)
    return HistogramSpec((expr,), types, query.count_rules(*types)[part], limits or Limits(), people)


def histogram(counts):
    """The frame of a histogram of (group, code) -> count."""
    rows = [(*cell, n) for cell, n in sorted(counts.items())]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def as_frame(found: Histogram) -> pl.DataFrame:
    """A histogram as a frame: `group`, `code`, `count`."""
    groups = np.repeat(np.arange(len(found.sizes)), found.sizes)
    return pl.DataFrame({"group": groups, "code": found.codes, "count": found.weights}, schema=SCHEMA)


def as_histogram(frame, groups):
    """The histogram of such a frame, for so many groups."""
    columns = (frame[name].to_numpy() for name in SCHEMA)
    return Histogram.of_cells(*columns, groups)
