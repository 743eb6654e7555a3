"""Facts about whole columns that Polars believes, and that end where rows enter."""

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

    Parquet files whose footers name no sorting columns bring none: a scan of them stays, so that filters may enter it.
    """
    plan = visited(frame)
    while kind_of(plan) == "Filter":
        plan.set_node(*plan.get_inputs())
    is_scan = kind_of(plan) == "Scan" and plan.view_current_node().scan_type[0] == "parquet"
    if is_scan and names_sorting_columns(list(map(str, plan.view_current_node().paths))) is False:
        return frame
    return column_types.without_flags(frame)


def names_sorting_columns(files: Iterable[str]) -> bool | None:
    """Return whether the footer of a Parquet file names columns that Polars then takes for sorted; None: not known."""
    from pyarrow import parquet

    is_known = True
    for file in files:
        try:
            footer = None if REMOTE.match(file) else parquet.read_metadata(file)
        except Exception:  # encrypted, say
            footer = None
        if footer is None:
            is_known = False
        elif any(footer.row_group(number).sorting_columns for number in range(footer.num_row_groups)):
            return True
    return False if is_known else None


def rows_of_joined(frame: pl.LazyFrame) -> int | None:
    """Return how many rows the tables have that a plan joins; None: it joins none, or that is not known so easily.

    To count what a join gives takes as long as to run it.
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
    except Exception:  # other files, those elsewhere, what is encrypted
        return None
    return rows if joins else None


def with_clean_memory(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return a plan that finds no sorted flags in the frames that it holds in memory.

    If steps could meet some, it is run. A plan can't be changed, but Polars' in-memory engine lets a function stand for
    a source.
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
    """Put frames without sorted flags into a plan for those that it holds in memory."""
    waiting = [plan.get_node()]
    while waiting:
        plan.set_node(waiting.pop())
        waiting += plan.get_inputs()
        if kind_of(plan) == "DataFrameScan":
            rows = pl.DataFrame._from_pydf(plan.view_current_node().df).select(list(plan.get_schema()))
            plan.set_udf(partial(_first, column_types.without_flags(rows)))


def _first(rows: pl.DataFrame, *_: object) -> pl.DataFrame:
    return rows
