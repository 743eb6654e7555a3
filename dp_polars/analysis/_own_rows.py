"""Whether rows that are said to be public are those that a query protects: read off both plans, nothing is run."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._rowwise.files import files_of_scan
from dp_polars._rowwise.views import dataset_of, kind_of, nodes, serialized_scans

if TYPE_CHECKING:
    from dp_polars._frames.query import PrivateQuery


def refuse_own_rows(call: str, query: PrivateQuery, tables: Sequence[pl.LazyFrame]) -> None:
    """Refuse rows, or files, that the query protects: the result would show them.

    Copies of rows are not recognised.
    """
    protected = {mark for plan in query._sources for mark in _marks(plan)}
    if protected and any(not protected.isdisjoint(_marks(table)) for table in tables):
        msg = (
            f"{call} must be given public or synthetic rows, got the very ones that the query protects. The result is "
            "not private: it shows true answers, or follows from them without noise.\n\n"
            "Hint: give last year's published rows, or analysis.synthetic(schema, people=…, rows=…). Where the rows "
            "are public themselves, or the result is for those alone who may see the rows: private=True."
        )
        raise ValueError(msg)


def _marks(frame: pl.LazyFrame) -> Iterator[Hashable]:
    """Yield what tells the sources of a plan from others: addresses of arrays, paths of files, pyarrow datasets."""
    hidden = in_memory = False
    try:
        for plan in nodes(frame):
            kind = kind_of(plan)
            hidden |= kind is None
            if kind == "DataFrameScan":
                in_memory = True
                yield from _addresses(pl.DataFrame._from_pydf(plan.view_current_node().df))
            elif kind == "Scan":
                yield from map(_path, plan.view_current_node().paths)
            elif kind == "PythonScan" and (dataset := dataset_of(plan.view_current_node().options[0])) is not None:
                yield id(dataset)
    except ValueError:  # a plan that Polars does not show is not one that `protect` has taken
        return
    if hidden and not in_memory:  # JSON would hold in full what is in memory
        for scan in serialized_scans(frame) or ():
            yield from map(_path, files_of_scan(scan))


def _path(path: object) -> str:
    return str(path) if "://" in str(path) else os.path.realpath(str(path))


def _addresses(rows: pl.DataFrame) -> Iterator[int]:
    """Yield where the arrays of a frame lie in memory: slices, and frames with more columns, share them."""
    for column in rows:
        if column.dtype not in (pl.Int128, pl.UInt128):  # which Arrow lacks
            for chunk in column.get_chunks():
                array = chunk.to_arrow(compat_level=pl.CompatLevel.newest())
                yield from (buffer.address for buffer in array.buffers() if buffer is not None and buffer.size)
