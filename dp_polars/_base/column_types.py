"""Column types: their values, privacy units of several columns, and copies of public values."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base.numbers import difference, given, kind

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

# Columns of one family can be compared.
Family: TypeAlias = Literal["number", "text", "boolean", "datetime", "datetime with time zone", "duration", "time"]

# Integers of any width, or float64; if neither is exact for all values, objects: Python integers and Fractions.
Exact: TypeAlias = "NDArray[Any]"

FromArrow = TypeVar("FromArrow", pl.Series, pl.DataFrame)
FrameT = TypeVar("FrameT", pl.DataFrame, pl.LazyFrame)

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6}
_DAY = 86_400 * 10**9
_INT64 = np.iinfo(np.int64)


def family(dtype: pl.DataType) -> Family | None:
    """Return the family of a type. None: no candidates can be compared with it."""
    if dtype.is_numeric():
        return "number"
    if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)):
        return "text"
    if isinstance(dtype, pl.Datetime):
        return "datetime" if dtype.time_zone is None else "datetime with time zone"
    plain: dict[object, Family] = {pl.Boolean: "boolean", pl.Date: "datetime", pl.Duration: "duration", pl.Time: "time"}
    return plain.get(dtype.base_type())


def released(dtype: pl.DataType) -> pl.DataType:
    """Return the type in which a column's values are released: its own, but text for a Categorical.

    Categories are numbered by first appearance in any row, and each comes with the list of all categories.
    Both would reveal private rows.
    """
    return pl.String() if isinstance(dtype, pl.Categorical) else dtype


def tick(dtype: pl.DataType) -> Fraction | None:
    """Return the size of an integer-like type's physical unit, in 1 or in nanoseconds. None: another type."""
    if isinstance(dtype, pl.Decimal):
        return Fraction(1, 10**dtype.scale)
    if isinstance(dtype, (pl.Datetime, pl.Duration)):
        return Fraction(_NANOSECONDS[dtype.time_unit])
    if dtype == pl.Date:
        return Fraction(_DAY)
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Time):
        return Fraction(1)
    return None


def ends(dtype: pl.DataType) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest number that a type of integers, Decimals or booleans can hold."""
    if dtype == pl.Boolean:
        return Fraction(0), Fraction(1)
    if isinstance(dtype, pl.Decimal):
        most = (10 ** (dtype.precision or 38) - 1) * Fraction(1, 10**dtype.scale)
        return -most, most
    bits = int(str(dtype).removeprefix("U").removeprefix("Int"))
    return (
        (Fraction(0), Fraction(2**bits - 1))
        if dtype.is_unsigned_integer()
        else (Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1))
    )


def has_value(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return column.is_not_null() & column.is_not_nan() if dtype.is_float() else column.is_not_null()


def integers(values: pl.Series) -> NDArray[np.integer]:
    """Return the physical integers of an integer-like column; null becomes 0.

    128-bit types (such as Decimal) become int64, and values beyond become its nearest end: candidates are strictly
    inside.
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
    return dtype in (pl.Int128, pl.UInt128, pl.Decimal)  # NumPy lacks them


def are_within_64_bits(values: pl.Series) -> NDArray[np.bool_]:
    """Return whether `integers` keeps these values of a wide type distinct from all others."""
    physical = integers(values)
    return (physical > _INT64.min) & (physical < _INT64.max)


def exact_values(values: pl.Series) -> Exact:
    """Return the exact physical values of a numeric column; null becomes 0, or NaN among floats."""
    if values.dtype.is_float():
        return floats(values)
    if not is_wide(values.dtype):
        return integers(values)
    wide = values.to_physical().fill_null(0)
    if wide.is_between(_INT64.min, _INT64.max).all():
        return wide.cast(pl.Int64).to_numpy()
    return np.array(wide.to_list(), object)


def are_finite(values: pl.Series) -> NDArray[np.bool_]:
    """Return which values of a numeric column are neither null nor NaN nor infinite."""
    if values.dtype.is_float():
        return np.isfinite(floats(values))
    return values.is_not_null().to_numpy()


def floats(values: pl.Series) -> NDArray[np.float64]:
    return values.cast(pl.Float64).to_numpy()


def from_numpy_dtype(dtype: np.dtype[np.generic]) -> pl.DataType:
    return pl.Series(np.empty(0, dtype)).dtype


def of_arrow(name: str, values: object, as_polars: Callable[[Any], FromArrow]) -> FromArrow:
    """Return an Arrow array or table as a Series or a DataFrame; a TypeError if Polars lacks a type."""
    with suppress(Exception, pl.exceptions.PanicException):
        return as_polars(values)
    found = getattr(values, "schema", getattr(values, "type", kind(values)))
    msg = f"{name} must be of types that Polars knows, got {found}."
    raise TypeError(msg)


def frame_of_arrow(values: Any) -> pl.DataFrame:  # noqa: ANN401  # pyarrow is optional
    """Return a table as a Polars frame with its own names: Polars would rename a column without a name."""
    frame = pl.DataFrame(values)
    names: Any = getattr(getattr(values, "schema", None), "names", None)  # for Arrow's tables
    names = getattr(values, "columns", ()) if names is None else names
    if len(names) == frame.width:
        frame.columns = [one if one == "" else name for one, name in zip(names, frame.columns, strict=True)]
    return frame


def exact_numbers(name: str, values: object) -> tuple[Exact, NDArray[np.bool_] | None]:
    """Return integers and floats of any shape, without rounding, and which values exist.

    NumPy's own choice of a type turns integers among signs, floats or nulls into floats, and rounds them.

    `array`: integers, float64, or objects: see `Exact`.
    `offered`: false for null or masked values, and among objects for NaN and infinity. None: true everywhere.
    """
    if isinstance(values, (list, tuple)):
        return _of_list(name, values)
    if hasattr(values, "__arrow_c_stream__") and hasattr(values, "columns") and not isinstance(values, pl.DataFrame):
        values = of_arrow(name, values, pl.DataFrame)
    if isinstance(values, pl.DataFrame):
        array, offered = _stacked(name, [_of_series(name, column) for column in values.get_columns()])
        return array.T, None if offered is None else offered.T
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return _of_series(name, values if isinstance(values, pl.Series) else of_arrow(name, values, pl.Series))
    # NumPy would turn integers with nulls into floats: in an Index of pandas, and in a Series before pandas 3.
    of_pandas = getattr(values, "array", values)
    if hasattr(of_pandas, "__arrow_array__"):
        import pyarrow as pa

        return _of_series(name, pl.Series(pa.array(of_pandas)))
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise _no_number(name, f"dtype {array.dtype}")
    offered = ~np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    return array.astype(np.float64) if array.dtype.kind == "f" else array, offered


def _of_series(name: str, values: pl.Series) -> tuple[Exact, NDArray[np.bool_] | None]:
    if values.dtype.is_float():
        return exact_values(values), None  # a null is NaN
    if not values.dtype.is_integer():
        raise _no_number(name, f"dtype {values.dtype}")
    return exact_values(values), values.is_not_null().to_numpy() if values.null_count() else None


def _of_list(name: str, values: Sequence[object]) -> tuple[Exact, NDArray[np.bool_] | None]:
    kinds = set(map(type, values))
    if kinds and all(hasattr(kind, "__len__") and not issubclass(kind, (str, bytes)) for kind in kinds):
        return _stacked(name, [exact_numbers(name, row) for row in values])
    floating = {kind for kind in kinds if issubclass(kind, (float, np.floating))}
    whole = {kind for kind in kinds if issubclass(kind, (int, np.integer)) and kind is not bool}
    if kinds - floating - whole or np.longdouble in floating:
        raise _no_number(name, f"a list with {sorted(kind.__name__ for kind in kinds)}")
    if not whole:
        return np.array(values, np.float64), None
    array = np.array(values)
    if array.dtype.kind in "iu":
        return array, None
    return _of_objects(np.array([value.item() if isinstance(value, np.generic) else value for value in values], object))


def _stacked(
    name: str, parts: Sequence[tuple[Exact, NDArray[np.bool_] | None]]
) -> tuple[Exact, NDArray[np.bool_] | None]:
    if not parts:
        return np.empty((0, 0)), None
    arrays = [array for array, _ in parts]
    if len({array.shape for array in arrays}) > 1:
        msg = f"{name} must have shape (k,) or (g, k), got rows of different lengths."
        raise ValueError(msg)
    offered = None
    if any(mask is not None for _, mask in parts):
        offered = np.stack([np.ones(array.shape, bool) if mask is None else mask for array, mask in parts])
    kinds = {array.dtype.kind for array in arrays}
    if kinds == {"f"} or np.result_type(*arrays).kind in "iu":
        return np.stack(arrays), offered
    mixed, finite = _of_objects(np.stack([array.astype(object) for array in arrays]))
    return mixed, finite if offered is None else offered if finite is None else offered & finite


def _of_objects(values: NDArray[Any]) -> tuple[Exact, NDArray[np.bool_] | None]:
    """Return Python numbers as floats if these are exact, otherwise as integers and Fractions."""
    flat = values.ravel()
    finite = np.array([not isinstance(value, float) or math.isfinite(value) for value in flat], bool)
    exact = [Fraction(value) if isinstance(value, float) else value for value in np.where(finite, flat, 0)]
    rounded = [float_of(value) for value in exact]
    pairs = zip(rounded, exact, strict=True)
    if all(math.isfinite(nearest) and Fraction(nearest) == value for nearest, value in pairs):
        return np.where(finite, rounded, np.nan).reshape(values.shape), None
    array = np.empty(len(exact), object)
    array[:] = exact
    return array.reshape(values.shape), finite.reshape(values.shape)


def float_of(value: Fraction | int) -> float:
    """Return the nearest float, or infinity for numbers beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def gaps_between(high: Exact, low: Exact) -> Exact:
    """Return high − low, which must not be negative: exact for integers, rounded once for floats and objects."""
    if high.dtype.kind == "O":
        return np.array([float_of(Fraction(a) - Fraction(b)) for a, b in np.broadcast(high, low)], np.float64)
    if high.dtype.kind == "f":
        with np.errstate(over="ignore"):  # an infinite gap is simply a large one
            return high - low
    return difference(high, low)


def _no_number(name: str, found: str) -> TypeError:
    return TypeError(f"{name} must be integers or floats of at most 64 bits, got {found}.")


#: Sorted, distinct column names.
PrivacyUnit: TypeAlias = tuple[str, ...]


def privacy_unit_of(names: object) -> PrivacyUnit | None:
    """Check the privacy unit given to `protect`: None, a name or a list of names, in any order."""
    if names is None:
        return None
    unit = (names,) if isinstance(names, str) else names
    if not isinstance(unit, (list, tuple)) or not all(isinstance(name, str) for name in unit):
        msg = f"privacy_unit must be the name of a column, a list of names, or None, got {given(names)}."
        raise TypeError(msg)
    if not unit or len({*unit}) < len(unit):
        msg = (
            f"privacy_unit must name at least one column, and each once, got {list(unit)}.\n\n"
            "Hint: protect(None) says that every row is another person."
        )
        raise ValueError(msg)
    return tuple(sorted(unit))


def text_of_unit(unit: PrivacyUnit | None) -> str | None:
    """Return a privacy unit as unique text for a ledger: the name of one column, or several names as JSON."""
    if unit is None:
        return None
    is_name = len(unit) == 1 and not unit[0].startswith("[")  # such a name could equal the JSON of several names
    return unit[0] if is_name else json.dumps(unit, ensure_ascii=False)


def unit_of_text(text: str | None) -> PrivacyUnit | None:
    if text is None:
        return None
    return tuple(json.loads(text)) if text.startswith("[") else (text,)


def shown(unit: PrivacyUnit) -> str:
    """Return a privacy unit as users write it in `protect`."""
    return repr(unit[0] if len(unit) == 1 else list(unit))


def unshared(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a copy in memory to which nothing else refers.

    A frame can be changed in place, and so can a NumPy array behind it.
    A value repeated after the check would multiply a person's rows.
    Polars' own copies, even from `gather`, share the bytes of texts.
    """
    if pl.Object in frame.dtypes:
        msg = "a public frame must have columns of Polars' types, got one of type Object."
        raise TypeError(msg)
    return without_flags(cast("pl.DataFrame", pickle.loads(pickle.dumps(frame))))


def without_flags(frame: FrameT) -> FrameT:
    """Remove sorted flags: Polars relies on them, and with a false one a row would affect other rows.

    A field of a struct has no flag. Nothing is copied.
    Filters of later transformations stay above this one, so Polars runs none of them on a flagged column.
    """
    dtypes = enumerate(frame.collect_schema().items())
    cleared = [
        pl.struct(_at(place, name).alias("column")).struct.field("column").alias(name)
        for place, (name, dtype) in dtypes
        if dtype != pl.Object  # it has no order, and no struct can contain it
    ]
    return frame.with_columns(cleared)


def _at(place: int, name: str) -> pl.Expr:
    """Return a column by its name, or by its place if Polars would read the name as a pattern.

    Not always by its place: POLARS_AUTO_STRUCTIFY makes a struct of such a column.
    """
    return pl.nth(place) if name == "*" or name.startswith("^") else pl.col(name)


def parts_of(dtype: PolarsDataType) -> Iterator[PolarsDataType]:
    yield dtype
    if isinstance(dtype, (pl.List, pl.Array)):
        yield from parts_of(dtype.inner)
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from parts_of(field.dtype)
    if isinstance(dtype, pl.BaseExtension):
        yield from parts_of(dtype.ext_storage())


def with_leaves(dtype: PolarsDataType, change: Callable[[PolarsDataType], PolarsDataType]) -> PolarsDataType:
    if isinstance(dtype, pl.List):
        return pl.List(with_leaves(dtype.inner, change))
    if isinstance(dtype, pl.Array):
        return pl.Array(with_leaves(dtype.inner, change), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: with_leaves(field.dtype, change) for field in dtype.fields})
    if isinstance(dtype, pl.BaseExtension):
        return pl.Extension(dtype.ext_name(), with_leaves(dtype.ext_storage(), change), dtype.ext_metadata())
    return change(dtype)


def must_have(name: str, columns: Iterable[str], what: str = "column {}", frame: str = "frame") -> None:
    columns = list(columns)
    if name not in columns:
        msg = f"the {frame} must have the {what.format(repr(name))}, got the columns {columns}."
        raise ValueError(msg)


def without_nul(name: str, what: str) -> str:
    """Return a column name; a ValueError if it contains NUL, which ends names in Arrow and in files."""
    if "\0" in name:
        msg = f"{what} must not hold the character NUL, got {name!r}.\n\nHint: rename it."
        raise ValueError(msg)
    return name


def is_opaque(dtype: PolarsDataType) -> bool:
    """Return whether a type is, or contains, an unknown one: an Extension, an Object."""
    return any(isinstance(part, (pl.BaseExtension, pl.Object)) for part in parts_of(dtype))
