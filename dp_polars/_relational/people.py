"""People and their keys, as SELECTs: how many have each key, and how many rows or groups each of them has."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._engines.contract import GROUPS, ROWS, ROWS_IN_GROUP
from dp_polars._relational.arithmetic import is_evidence, physical
from dp_polars._relational.counting import few, in_groups, person_of
from dp_polars._relational.dialects import cast, constant
from dp_polars._relational.tables import comparable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints
    from dp_polars._engines.contract import KeyWork, PerPerson
    from dp_polars._relational.dialects import Dialect, Table, Value

_PEOPLE = "people"
# Databases have more times than public keys may be: only these are keys.
_TIMES: dict[pl.DataType, tuple[str, object, object]] = {
    pl.Date(): ("date", dt.date.min, dt.date.max),
    pl.Datetime("us"): ("timestamp", dt.datetime.min, dt.datetime.max),
    pl.Time(): ("time", dt.time.min, dt.time.max),
}


def one_row_per_person(table: Table, per_person: PerPerson, dialect: Dialect) -> Table:
    """Return one row for each person, with numbers of rows and groups: see `Engine`, duty 9."""
    unit, keys = table[per_person.privacy_unit], per_person.keys
    names = [] if keys is None else keys.columns
    key_columns = {f"k{i}": comparable(table[name], table.schema()[name], dialect) for i, name in enumerate(names)}
    rows = table.filter(is_evidence(unit, dialect)).select(person=person_of(unit, dialect), **key_columns)
    if keys is not None:
        rows = in_groups(rows, table, keys, dialect)
    by_group = rows.group_by(rows.columns).aggregate(**{ROWS: cast(rows.count(), "int64")})
    numbers = {ROWS: by_group[ROWS].sum(), GROUPS: by_group.count(), ROWS_IN_GROUP: by_group[ROWS].max()}
    people = by_group.group_by("person").aggregate(**{name: cast(value, "int64") for name, value in numbers.items()})
    return people.drop("person")


def people_by_key(table: Table, work: KeyWork, secret: int, dialect: Dialect) -> Table:
    """Return every key that somebody has as `k0`, `k1`, …, integers or texts, and how many have it: duty 8."""
    chosen, needed = {}, []
    for i, (name, dtype) in enumerate(work.types.items()):
        chosen[f"k{i}"] = _told_apart(table[name], dtype, dialect)
        needed += _conditions(table[name], dtype, dialect)
    names = list(chosen)
    if work.privacy_unit is None:
        rows = table.filter(needed).select(**chosen)
    else:
        unit = table[work.privacy_unit]
        rows = table.filter(is_evidence(unit, dialect), *needed).select(person=person_of(unit, dialect), **chosen)
        rows = few(rows.distinct(), ["person"], names, work.most, secret, dialect)
    counted = rows.group_by(names).aggregate(**{_PEOPLE: cast(rows.count(), "int64")})
    sent = {f"k{i}": _sent(counted[f"k{i}"], dtype) for i, dtype in enumerate(work.types.dtypes())}
    return counted.select(**sent, **{_PEOPLE: counted[_PEOPLE]})


def in_polars(found: Mapping[str, NDArray[np.generic]], types: pl.Schema) -> tuple[pl.DataFrame, Ints]:
    """Return the keys that `people_by_key` has found in their own types, and their numbers of people.

    Keys that a type can't hold are left out, which is a rule on the key alone: Ibis guesses the types of what it
    computes.
    """
    keys = [_of_type(name, found[f"k{i}"], dtype) for i, (name, dtype) in enumerate(types.items())]
    is_key = ~pl.DataFrame([key.is_null() for key in keys]).max_horizontal()
    people: Ints = np.asarray(found[_PEOPLE], np.int64)
    return pl.DataFrame(keys).filter(is_key), people[is_key.to_numpy()]


def _conditions(value: Value, dtype: pl.DataType, dialect: Dialect) -> list[Value]:
    """Return what must hold of a key: that there is one."""
    conditions = [is_evidence(value, dialect)]
    if dtype in _TIMES:
        kind, first, last = _TIMES[dtype]
        conditions += [value >= constant(str(first), kind), value <= constant(str(last), kind)]
    return conditions


def _told_apart(value: Value, dtype: pl.DataType, dialect: Dialect) -> Value:
    """Return what is equal only where the key is: integers, but for texts and decimals."""
    if dtype in _TIMES:
        ends = pl.Series(_TIMES[dtype][1:], dtype=dtype).to_physical().to_list()
        return physical(value, dtype, *ends)
    if dtype == pl.Boolean:
        return physical(value, dtype, 0, 1)
    return cast(value, "int64") if dtype.is_integer() else comparable(value, value.type(), dialect)


def _sent(value: Value, dtype: pl.DataType) -> Value:
    """Return how a key travels: as a text, or the bytes of one, where it is no integer."""
    return cast(value, "string") if dtype.is_decimal() else value


def _of_type(name: str, found: NDArray[np.generic], dtype: pl.DataType) -> pl.Series:
    """Return keys as they have travelled in their type; null where it can't hold them."""
    if dtype == pl.String:
        return pl.Series(name, list(map(_text, found.tolist())), dtype)
    if not isinstance(dtype, pl.Decimal):
        return pl.Series(name, found.astype(np.int64)).cast(dtype, strict=False)
    texts = pl.Series(name, found.tolist(), pl.String)
    is_exact = texts.str.contains(rf"^-?\d+(\.\d{{0,{dtype.scale}}}0*)?$")
    return texts.set(~is_exact, None).cast(dtype, strict=False)


def _text(found: str | bytes | bytearray | None) -> str | None:
    """Return a text by itself or by its bytes; None where these are none: an error would tell of them."""
    if not isinstance(found, (bytes, bytearray)):
        return found
    try:
        return found.decode()
    except UnicodeDecodeError:
        return None
