"""What the types of Polars columns mean: which can be compared with which, and their values in NumPy."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

# Columns of one family can be compared with each other.
Family: TypeAlias = Literal["number", "text", "boolean", "datetime", "datetime with time zone", "duration", "time"]

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6}
_DAY = 86_400 * 10**9
_INT64 = np.iinfo(np.int64)


def family(dtype: pl.DataType) -> Family | None:
    """Return the family of a type, or None where no candidates can be compared with it."""
    if dtype.is_numeric():
        return "number"
    if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)):
        return "text"
    if isinstance(dtype, pl.Datetime):
        return "datetime" if dtype.time_zone is None else "datetime with time zone"
    plain: dict[object, Family] = {
        pl.Boolean: "boolean",
        pl.Date: "datetime",
        pl.Duration: "duration",
        pl.Time: "time",
    }
    return plain.get(dtype.base_type())


def released(dtype: pl.DataType) -> pl.DataType:
    """Return the type in which values of such a column are released: that of the column, but text for a Categorical.

    A category's number is that of its first appearance in any row, and the list of all categories comes along with
    each of them: both would tell what the private rows hold.
    """
    return pl.String() if isinstance(dtype, pl.Categorical) else dtype


def tick(dtype: pl.DataType) -> Fraction | None:
    """Return the size of one physical unit of an integer-like type: numbers in 1, times in nanoseconds.

    None for floats, text and everything else.
    """
    if isinstance(dtype, pl.Decimal):
        return Fraction(1, 10**dtype.scale)
    if isinstance(dtype, (pl.Datetime, pl.Duration)):
        return Fraction(_NANOSECONDS[dtype.time_unit])
    if dtype == pl.Date:
        return Fraction(_DAY)
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Time):
        return Fraction(1)
    return None


def integers(values: pl.Series) -> NDArray[np.integer]:
    """Return the physical integers of an integer-like column; what stands for a null is arbitrary.

    128-bit types (Decimal is one) come as int64, values beyond it as its nearest end.
    """
    if not values.dtype.is_integer():
        values = values.to_physical()
    if values.dtype == pl.Boolean:
        values = values.cast(pl.UInt8)
    elif is_wide(values.dtype):
        low = None if values.dtype.is_unsigned_integer() else _INT64.min
        values = values.clip(low, _INT64.max).cast(pl.Int64)
    return (values.fill_null(0) if values.null_count() else values).to_numpy()


def is_wide(dtype: pl.DataType) -> bool:
    """Return whether a type holds 128-bit integers, which NumPy has not."""
    return dtype in (pl.Int128, pl.UInt128, pl.Decimal)


def fit_into_64_bits(values: pl.Series) -> bool:
    """Return whether `integers` tells each of these values from every other one that the type can hold."""
    if not is_wide(values.dtype):
        return True
    physical = integers(values)
    return bool(((physical > _INT64.min) & (physical < _INT64.max)).all())


def floats(values: pl.Series) -> NDArray[np.float64]:
    """Return the values of a numeric column as float64, a null as NaN."""
    return values.cast(pl.Float64).to_numpy()


def from_numpy_dtype(dtype: np.dtype[np.generic]) -> pl.DataType:
    """Return the Polars type of a NumPy type."""
    return pl.Series(np.empty(0, dtype)).dtype
