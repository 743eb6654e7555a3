"""`filter` as the last step of a column in `agg`: rows that it leaves out are null, so that no answer counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_by_row(
    columns: Sequence[pl.Expr], output: str, *, counts_nulls: bool = False
) -> tuple[tuple[pl.Expr, ...], bool]:
    """Return the columns of an output, the first one without its last `filter`, and whether it had one.

    No row is left out of a column: where the condition is false or null, the value is null, which every question
    ignores before any bound. Weights of rows that are ignored do not count, so they need no filter. A question that
    `counts_nulls` ignores what is not null instead.

    Raises
    ------
    ValueError
        If weights are filtered.
    """
    if any(_filtered(weights) is not None for weights in columns[1:]):
        msg = (
            f"Output {output!r}: weights must have no filter: what counts follows from the column alone.\n\n"
            'Hint: filter the column, pl.col("x").filter(…).dp.mode(…, weights=pl.col("w")): other rows weigh nothing.'
        )
        raise ValueError(msg)
    if not columns or (found := _filtered(columns[0])) is None:
        return tuple(columns), False
    value, condition = found
    if counts_nulls:
        is_counted = (condition & value.is_null()).fill_null(value=False)
        return (pl.when(~is_counted).then(pl.lit(value=True)).otherwise(None),), True
    # Without `otherwise`, Polars 1 could not read it back from a pickle.
    return (pl.when(condition).then(value).otherwise(None), *columns[1:]), True


def _filtered(column: pl.Expr) -> tuple[pl.Expr, pl.Expr] | None:
    """Return what a column's last step filters, and by which condition; None where the last step is another."""
    match column.meta.pop():
        case [inner] if inner.meta.undo_aliases().meta.eq(column.meta.undo_aliases()):  # a name
            return _filtered(inner)
        case [condition, value] if value.filter(condition).meta.eq(column):
            return value, condition
    return None
