"""Floats of which several are equal: two zeros, and NaN with any bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._rowwise.nodes import parts_of

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


def of_one_kind(name: str, dtype: PolarsDataType, nan: float | None = float("nan")) -> pl.Expr:
    """Return a column of floats with one zero and one NaN, or `nan`: equal values are the same to the bit."""
    return _of_one_kind(pl.col(name), dtype, nan).alias(name)


def nested_of_one_kind(name: str, dtype: PolarsDataType) -> pl.Expr | None:
    """Return a column in which all floats, nested ones too, are of one kind; None where there are none."""
    return _nested(pl.col(name), dtype).alias(name) if has_floats(dtype) else None


def has_floats(dtype: PolarsDataType) -> bool:
    """Return whether a type is one of floats, or holds floats."""
    return any(part.is_float() for part in parts_of(dtype))


def _of_one_kind(value: pl.Expr, dtype: PolarsDataType, nan: float | None) -> pl.Expr:
    zero = pl.when(value == 0).then(pl.lit(0.0, dtype)).otherwise(value)
    return pl.when(value.is_nan()).then(pl.lit(nan, dtype)).otherwise(zero)


def _nested(value: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    if not has_floats(dtype):
        return value
    if isinstance(dtype, pl.List):
        return value.list.eval(_nested(pl.element(), dtype.inner))
    if isinstance(dtype, pl.Array):
        as_lists = value.arr.to_list().list.eval(_nested(pl.element(), dtype.inner))
        return as_lists.list.to_array(dtype.size).cast(dtype)
    if isinstance(dtype, pl.Struct):
        fields = [_nested(value.struct.field(of.name), of.dtype).alias(of.name) for of in dtype.fields]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    return _of_one_kind(value, dtype, float("nan"))
