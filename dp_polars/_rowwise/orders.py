"""Orders of rows without ties: columns of every type that has an order, so that rows that tie are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._rowwise.nodes import parts_of

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_EXTENSION = getattr(pl, "BaseExtension", ())


def has_order(dtype: PolarsDataType) -> bool:
    """Return whether values of a type have an order: Objects and Extension types have none."""
    parts = list(parts_of(dtype))
    return not any(part in {pl.Object, pl.Unknown} or isinstance(part, _EXTENSION) for part in parts)


def compared(name: str, dtype: PolarsDataType) -> pl.Expr:
    """Return what a column is compared by: Categoricals by their texts, as their numbers follow from other rows."""
    holds_categories = any(part == pl.Categorical for part in parts_of(dtype))
    return pl.col(name).cast(_as_texts(dtype)) if holds_categories else pl.col(name)


def _as_texts(dtype: PolarsDataType) -> PolarsDataType:
    """Return a type with texts in place of Categoricals."""
    if isinstance(dtype, pl.List):
        return pl.List(_as_texts(dtype.inner))
    if isinstance(dtype, pl.Array):
        return pl.Array(_as_texts(dtype.inner), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({of.name: _as_texts(of.dtype) for of in dtype.fields})
    return pl.String() if dtype == pl.Categorical else dtype
