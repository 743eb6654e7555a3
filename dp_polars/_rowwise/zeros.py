"""Floats of which several are equal: two zeros, and NaN with any bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


def of_one_kind(name: str, dtype: PolarsDataType, nan: float | None = float("nan")) -> pl.Expr:
    """Return a column of floats with one zero and one NaN, or `nan`: equal values are the same to the bit."""
    column = pl.col(name)
    return (
        pl.when(column.is_nan())
        .then(pl.lit(nan, dtype))
        .when(column == 0)
        .then(pl.lit(0.0, dtype))
        .otherwise(column)
        .alias(name)
    )
