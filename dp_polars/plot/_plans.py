"""Figures to plan by: errors by the size of groups, the right top by its lead, and what bounds drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars.plot._charts import lines

if TYPE_CHECKING:
    import altair as alt


# Smaller shares are drawn there.
_LEAST = 0.001


def error_by_size(frame: pl.DataFrame, *, width: int = 420) -> alt.LayerChart:
    """Plot the relative error of every output by the size of a group, one line per output.

    Parameters
    ----------
    frame
        What `dp_polars.analysis.error_by_size` returned, of six outputs at most. What is not known is left out.
    width
        In pixels, without axes.

    Returns
    -------
    altair.LayerChart
        Both axes are logarithmic. Errors below 0.1 % are drawn there, and lines end at 100 %.

    Raises
    ------
    ValueError
        If the frame lacks columns, has more than six outputs, or no error that is known.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient").agg(people=dpp.n_people(within=10))
    >>> sizes = [50, 100, 200, 500, 1000]
    >>> chart = error_by_size(dpp.analysis.error_by_size(query, sizes))
    """
    _check(frame, "error_by_size", ("output", "size", "size_unit", "relative"))
    known = frame.filter(pl.col("relative").is_not_null())
    points = known.with_columns(pl.col("relative").clip(_LEAST) * 100)
    units = " or ".join(known["size_unit"].unique(maintain_order=True).sort())
    return _lines(
        points,
        "size",
        "relative",
        "output",
        x_title=f"{units} in the group",
        y_title="error, % of the largest answer",
        log_x=True,
        log_y=True,
        y_domain=(100 * _LEAST, 100),
        width=width,
    )


def best_by_gap(frame: pl.DataFrame, *, width: int = 420) -> alt.LayerChart:
    """Plot how probable the most common candidate is at least, by how far it leads, one line per mode.

    Parameters
    ----------
    frame
        What `dp_polars.analysis.best_by_gap` returned, of six modes at most.
    width
        In pixels, without axes.

    Returns
    -------
    altair.LayerChart

    Raises
    ------
    ValueError
        If the frame lacks columns, has more than six outputs, or no row.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient").agg(dpp.mode("reason", ["flu", "cold"], epsilon=0.1))
    >>> chart = best_by_gap(dpp.analysis.best_by_gap(query, range(0, 100, 5)))
    """
    _check(frame, "best_by_gap", ("output", "gap", "gap_unit", "probability"))
    return _lines(
        frame.with_columns(pl.col("probability") * 100),
        "gap",
        "probability",
        "output",
        x_title=f"lead of the most common value ({' or '.join(frame['gap_unit'].unique(maintain_order=True))})",
        y_title="right top one, % of releases",
        y_domain=(0, 100),
        width=width,
    )


def dropped(frame: pl.DataFrame, *, width: int = 420) -> alt.LayerChart:
    """Plot what share of rows is dropped, by the bound on rows, one line for each bound on groups.

    Parameters
    ----------
    frame
        What `dp_polars.analysis.dropped` returned, with six bounds on groups at most. Rows without a bound on rows per
        group are left out.
    width
        In pixels, without axes.

    Returns
    -------
    altair.LayerChart

    Raises
    ------
    ValueError
        If the frame lacks columns, has more than six bounds on groups, or no row with a bound on rows.

    Examples
    --------
    >>> import polars as pl
    >>> from dp_polars import analysis
    >>> schema = {"patient": pl.Int64, "ward": pl.String}
    >>> rows = analysis.synthetic(schema, people=100, rows=900)
    >>> chart = dropped(
    ...     analysis.dropped(
    ...         rows, "patient", by="ward", max_groups=[1, 3], max_rows_per_group=[1, 2, 5]
    ...     )
    ... )
    """
    _check(frame, "dropped", ("max_groups", "max_rows_per_group", "rows_dropped"))
    bounded = frame.filter(pl.col("max_rows_per_group").is_not_null() & pl.col("rows_dropped").is_not_null())
    groups = pl.col("max_groups")
    named = pl.format("{} group{}", groups, pl.when(groups > 1).then(pl.lit("s")).otherwise(pl.lit("")))
    return _lines(
        bounded.with_columns(pl.col("rows_dropped") * 100, line=named.fill_null(pl.lit("all groups"))),
        "max_rows_per_group",
        "rows_dropped",
        "line",
        x_title="rows of a person in a group that count, at most",
        y_title="% of rows that are dropped",
        width=width,
    )


def _lines(frame: pl.DataFrame, x: str, y: str, series: str, *, width: int, **style: Any) -> alt.LayerChart:  # noqa: ANN401
    return lines(frame, x, y, series, width=width, height=max(round(width * 2 / 3), 190), **style)


def _check(frame: pl.DataFrame, name: str, columns: tuple[str, ...]) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        msg = f"frame must have the columns of dp_polars.analysis.{name}, it lacks {missing}."
        raise ValueError(msg)
