"""Facts about whole columns that Polars relies on, removed before private rows enter."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import polars as pl

from dp_polars._base import column_types
from dp_polars._sources.files import REMOTE
from dp_polars._sources.running import NO_FILTER_IN_SCANS
from dp_polars._sources.views import kind_of, plan_nodes, visited


def unflagged(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of a plan without sorted flags, as `column_types.without_flags` does.

    A Parquet file without sorting columns in its footer has no flags: its scan stays, so that filters can enter it.
    """
    plan = visited(frame)
    while kind_of(plan) == "Filter":
        plan.set_node(*plan.get_inputs())
    is_scan = kind_of(plan) == "Scan" and plan.view_current_node().scan_type[0] == "parquet"
    if is_scan and names_sorting_columns(list(map(str, plan.view_current_node().paths))) is False:
        return frame
    return column_types.without_flags(frame)


def names_sorting_columns(files: Iterable[str]) -> bool | None:
    """Return whether the footer of a Parquet file names columns that Polars then treats as sorted. None: unknown."""
    from pyarrow import parquet

    is_known = True
    for file in files:
        try:
            footer = None if REMOTE.match(file) else parquet.read_metadata(file)
        except Exception:  # encrypted, for example
            footer = None
        if footer is None:
            is_known = False
        elif any(footer.row_group(number).sorting_columns for number in range(footer.num_row_groups)):
            return True
    return False if is_known else None


def rows_of_joined(frame: pl.LazyFrame) -> int | None:
    """Return the number of rows in the tables that a plan joins. None: there is no join, or counting is slow.

    Counting the rows of a join's result takes as long as running the join.
    """
    from pyarrow import parquet

    rows, joins = 0, False
    try:
        for plan in plan_nodes(frame):
            node = None if plan.get_inputs() else plan.view_current_node()
            joins |= kind_of(plan) == "Join"
            if kind_of(plan) == "DataFrameScan" and node is not None:
                rows += pl.DataFrame._from_pydf(node.df).height
            elif node is not None:
                rows += sum(parquet.read_metadata(str(path)).num_rows for path in node.paths)
    except Exception:  # other formats, remote files, encrypted files
        return None
    return rows if joins else None


def with_clean_memory(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return a plan without sorted flags in its frames in memory.

    If transformations could meet a flag, the plan is run.
    A plan can't be changed, but Polars' in-memory engine lets a function replace a source.
    """
    number, is_flagged = 0, False
    for plan in plan_nodes(frame):
        number += 1
        is_flagged |= kind_of(plan) == "DataFrameScan" and _has_flags(
            pl.DataFrame._from_pydf(plan.view_current_node().df)
        )
    if not is_flagged or number == 1:
        return frame
    ldf = frame._ldf.with_optimizations(NO_FILTER_IN_SCANS._pyoptflags)
    return pl.DataFrame._from_pydf(ldf.collect("in-memory", _clean)).lazy()


def _has_flags(rows: pl.DataFrame) -> bool:
    return any(flags.get("SORTED_ASC") or flags.get("SORTED_DESC") for flags in rows.flags.values())


def _clean(plan: Any, *_: object) -> None:  # noqa: ANN401
    """Replace the frames in a plan's memory by copies without sorted flags."""
    waiting = [plan.get_node()]
    while waiting:
        plan.set_node(waiting.pop())
        waiting += plan.get_inputs()
        if kind_of(plan) == "DataFrameScan":
            rows = pl.DataFrame._from_pydf(plan.view_current_node().df).select(list(plan.get_schema()))
            plan.set_udf(partial(_first, column_types.without_flags(rows)))


def _first(rows: pl.DataFrame, *_: object) -> pl.DataFrame:
    return rows
