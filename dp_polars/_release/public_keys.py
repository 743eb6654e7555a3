"""Public keys: their values, their combinations, and their types."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import polars as pl

from dp_polars._base import column_types
from dp_polars._base.column_types import frame_of_arrow, unshared, without_nul
from dp_polars._base.numbers import given
from dp_polars._bins.candidates import FILL_NULLS, MOST, NO_FLOATS, Categories, Values, size_of

# Column -> its public values (their cross product), or a frame of combinations (also an Arrow table).
PublicKeys: TypeAlias = "Mapping[str, Values] | pl.DataFrame | object"


def public_keys(keys: PublicKeys) -> pl.DataFrame:
    if isinstance(keys, Mapping):
        return product(columns_of(keys))
    if hasattr(keys, "release"):
        msg = (
            f"group_by: keys must be released first, got {given(keys)}: until then nobody may know which there are.\n\n"
            'Hint: group_by("ward") selects them by a part of one guarantee; or release them first, '
            'frame.keys("ward", …).release(), which is charged by itself.'
        )
        raise TypeError(msg)
    if isinstance(keys, (pl.LazyFrame, pl.Series)) or not (
        isinstance(keys, pl.DataFrame) or hasattr(keys, "__arrow_c_stream__")
    ):
        msg = (
            "group_by: keys must be a dict (column -> public values) or a DataFrame of combinations, got "
            f"{given(keys)}: groups that are read off the rows would tell who is there.\n\n"
            'Hint: say which values there may be: group_by({"ward": ["A", "B"]}); or group_by("ward"), which selects '
            "groups privately."
        )
        raise TypeError(msg)
    frame = unshared(keys if isinstance(keys, pl.DataFrame) else column_types.of_arrow("keys", keys, frame_of_arrow))
    if not (frame.height >= 1 and frame.width >= 1):
        msg = f"keys must have at least one column and one combination, got {frame.shape}."
        raise ValueError(msg)
    _check_size(frame.height)
    if frame.null_count().sum_horizontal().item():
        msg = f"keys must not contain null.{FILL_NULLS}"
        raise ValueError(msg)
    if frame.is_duplicated().any():
        msg = "keys must not repeat a combination."
        raise ValueError(msg)
    for column in frame.get_columns():
        _values(column.name, column.unique())
    return frame


def way_without_values(columns: Sequence[str]) -> str:
    """Return a hint: the query for columns without known values."""
    return (
        f"Or group by {'the column' if len(columns) == 1 else 'the columns'}, which selects values that enough people "
        f"have: private.group_by({', '.join(map(json.dumps, columns))}).agg(people=dp_polars.n_people())"
        ".scaled_to(epsilon=1, delta=1e-6)."
    )


def columns_of(keys: Mapping[str, Values], *, all_are_answered: bool = True) -> list[pl.Series]:
    if not keys:
        msg = "keys must name at least one column.\n\nHint: without groups, call agg on the private frame itself."
        raise ValueError(msg)
    whole = math.prod if all_are_answered else max
    _check_size(whole([max(1, size_of(values)) for values in keys.values()]))  # before any of them is built
    columns = [_values(name, values) for name, values in keys.items()]
    _check_size(whole(list(map(len, columns))))
    return columns


def product(columns: Sequence[pl.Series]) -> pl.DataFrame:
    """Return all combinations of the values of columns, the last one running fastest."""
    frame = columns[0].to_frame()
    for column in columns[1:]:
        frame = frame.join(column.to_frame(), how="cross", maintain_order="left_right")
    return frame


def in_types_of(keys: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return the keys in the types of the private columns that they group by; text where that is a Categorical."""
    columns = {}
    for column in keys.get_columns():
        column_types.must_have(column.name, schema, "key column {}")
        dtype = schema[column.name]
        if dtype.is_float():
            raise TypeError(NO_FLOATS.format(f"the key column {column.name!r}", dtype))
        key_type = column_types.released(dtype)
        try:
            columns[column.name] = column if column.dtype == key_type else _cast(column, key_type)
        except TypeError as error:
            msg = f"keys of column {column.name!r} must be values of its type, {dtype}, got {column.dtype}."
            hint = str(error).partition("\n\n")[2]
            raise TypeError(f"{msg}\n\n{hint}".rstrip()) from None
    return pl.DataFrame(columns)


def _cast(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return a column of keys as values of a type; a TypeError where one is none."""
    distinct = column.unique(maintain_order=True)
    translated = Categories(distinct).for_column(dtype)
    return (
        column.to_frame("given")
        .join(pl.DataFrame({"given": distinct, "held": translated}), on="given", how="left", maintain_order="left")
        .get_column("held")
        .alias(column.name)
    )


def _check_size(combinations: int) -> None:
    if not combinations <= MOST:
        msg = (
            f"keys must have at most {MOST:,} combinations, got {combinations:,}: every one of them is answered.\n\n"
            "Hint: list fewer values, or give the combinations that you want as a DataFrame."
        )
        raise ValueError(msg)


def _values(name: object, values: Values) -> pl.Series:
    if not isinstance(name, str):
        msg = f"keys must name columns by strings, got {given(name)}."
        raise TypeError(msg)
    without_nul(name, "names of keys")
    series = Categories.of(values, f"keys of column {name!r}").values
    if series is None or series.dtype.is_float():
        found = "None" if series is None else str(series.dtype)
        msg = f"keys of column {name!r} must be text, integers, booleans, decimals or times, got {found}."
        if series is None:
            msg += f"\n\nHint: list them from public knowledge. {way_without_values([name])}"
        raise TypeError(msg)
    return series.alias(name)
