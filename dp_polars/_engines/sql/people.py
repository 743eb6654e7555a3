"""People and their keys, as SELECTs: the number of people per key, and each person's rows or groups."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._bins.binning import OneCode
from dp_polars._engines.sql.arithmetic import integer, is_present, physical, total_of
from dp_polars._engines.sql.dialects import OF_GROUPS, all_rows, cast, constant, ibis
from dp_polars._engines.sql.rows import (
    any_of,
    comparable,
    has,
    is_somebody,
    people_of,
    person_in,
    rows_of_people,
)
from dp_polars._engines.sql.weighing import Columns
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.contract import MOST_IN_ALL, MOST_IN_GROUP, ROWS_CUT, PersonNumber

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._base.numbers import Ints
    from dp_polars._engines.sql.dialects import Common, Dialect, Table, Value
    from dp_polars._engines.sql.rows import Rows
    from dp_polars._release.contract import HistogramSpec, KeyWork, PerPerson


_PEOPLE = "people"
# Databases have more times than public keys may have: only these become keys.
_TIMES: dict[pl.DataType, tuple[str, object, object]] = {
    pl.Date(): ("date", dt.date.min, dt.date.max),
    pl.Datetime("us"): ("timestamp", dt.datetime.min, dt.datetime.max),
    pl.Time(): ("time", dt.time.min, dt.time.max),
}


def one_row_per_person(table: Table, per_person: PerPerson, dialect: Dialect, common: Common) -> Table:
    """Return one row for each person: see `Engine`, duty 9."""
    unit, keys = per_person.privacy_unit, per_person.keys
    if per_person.by is not None:
        pairs = _pairs(table, unit, per_person.by, dialect)
        person = person_in(pairs)
        number = {PersonNumber.name(0): cast(pairs.count(), "int64")}
        return pairs.group_by(person).aggregate(**number).drop(*person)
    if per_person.numbers:
        return _numbers(rows_of_people(table, unit, keys, per_person.specs, dialect), per_person.numbers, dialect)
    held = rows_of_people(table, unit, keys, per_person.cut, dialect)
    held = replace(held, table=common.once(held.table))
    every = all_rows([_cut(held, number, spec, dialect) for number, spec in enumerate(per_person.cut)])
    person = person_in(every)
    return every.group_by(person).aggregate(**{ROWS_CUT: cast(every[ROWS_CUT].max(), "int64")}).drop(*person)


def _numbers(held: Rows, numbers: Sequence[PersonNumber], dialect: Dialect) -> Table:
    """Return each person's numbers."""
    rows = held.table
    of_groups: dict[str, Value] = {}
    of_people: dict[str, Value] = {}
    person = person_in(rows)
    for place, number in enumerate(numbers):
        name = held.codes[place]
        there = None if name is None else has(rows, name)
        if number.what.endswith("code"):
            code = rows[name]
            of_groups[f"n{place}"] = code.max(where=there) if number.what == "largest code" else code.min(where=there)
        elif number.is_total:
            weights = number.spec.clamping.of_units(rows[held.weights[place]], integer, dialect.divide)
            weights = weights if there is None else ibis.ifelse(there, weights, integer(0))
            some = cast(rows.count(where=there), "int64") > integer(0)
            of_groups[f"n{place}"] = ibis.ifelse(some, total_of(weights), ibis.null("int64"))
        elif number.spec.people and name is not None and not isinstance(number.spec.binning, OneCode):
            of_groups[f"n{place}"] = rows[name].nunique(where=there)
        else:
            counted = cast(rows.count(where=there), "int64")
            of_groups[f"n{place}"] = ibis.least(counted, integer(1)) if number.spec.people else counted
    by_group = rows.group_by([*person, "group"]).aggregate(**of_groups)
    for place, number in enumerate(numbers):
        found = cast(by_group[f"n{place}"], "int64")
        counted = ibis.least(found, integer(number.most))
        match number.what:
            case "largest code" | "largest total":
                total = found.max()
            case "smallest code" | "smallest total":
                total = found.min()
            case "groups":
                total = ibis.ifelse(found > integer(0), integer(1), integer(0)).sum()
            case "rows":
                total = counted.sum()
            case "squares":
                total = (counted * counted).sum()
            case "most rows":
                total = counted.max()
        if not number.is_end:
            total = ibis.ifelse(total > integer(0), total, ibis.null("int64"))
        of_people[number.name(place)] = cast(total, "int64")
    return by_group.group_by(person).aggregate(**of_people).drop(*person)


def _cut(held: Rows, number: int, spec: HistogramSpec, dialect: Dialect) -> Table:
    """Return the people over a spec's limits or with clipped weights, with how many rows are dropped."""
    name, weight = held.codes[number], held.weights[number]
    rows = held.table if name is None else held.table.filter(has(held.table, name))
    person = person_in(rows)
    by, is_clipped = [*person, "group"], ibis.literal(value=False)
    if spec.people:
        cells = rows.group_by([*by, *([] if name is None or isinstance(spec.binning, OneCode) else [name])])
        if weight is not None:
            low, high = spec.clamping.of_person
            weights = spec.clamping.of_units(rows[weight], integer, dialect.divide)
            total = total_of(weights)
            is_clipped = (total < integer(low)) | (total > integer(high))
        rows = cells.aggregate(clipped=ibis.ifelse(is_clipped, integer(1), integer(0)))
    else:
        rows = rows.mutate(clipped=integer(0))
    pairs = rows.group_by(by).aggregate(rows=cast(rows.count(), "int64"), clipped=rows["clipped"].max())
    limits, of = spec.limits, Columns(dialect)
    pairs = pairs.mutate(counted=ibis.least(pairs["rows"], integer(MOST_IN_GROUP)))
    remaining = pairs["counted"]
    if limits.rows_per_group is not None:
        remaining = ibis.least(remaining, integer(limits.rows_per_group))
    if spec.weight is not None:
        norm = total_of(spec.weight.norm(pairs["counted"], of), lambda total: total.over(group_by=person))
        pairs = pairs.mutate(weight=spec.weight.of_rows(norm, pairs["counted"], of))
        pairs = pairs.mutate(clipped=ibis.ifelse(pairs["weight"] < integer(UNIT), integer(1), pairs["clipped"]))
        remaining = pairs["weight"] * pairs["counted"]
    most = {"groups": limits.groups, "in_group": limits.rows_per_group, "in_all": limits.rows, "clipped": 0}
    people = pairs.group_by(person).aggregate(
        groups=pairs.count(),
        in_group=pairs["rows"].max(),
        in_all=pairs["rows"].sum(),
        clipped=pairs["clipped"].max(),
        total=total_of(pairs["counted"]),
        remaining=total_of(remaining),
    )
    over = [people[what] > bound for what, bound in most.items() if bound is not None]
    total, remaining = ibis.least(people["total"], integer(MOST_IN_ALL)), people["remaining"]
    if spec.weight is not None:
        remaining = dialect.divide(remaining + integer(UNIT // 2), integer(UNIT))
    remaining = ibis.least(remaining, integer(MOST_IN_ALL))
    if limits.groups is not None:
        groups = cast(people["groups"], "int64")
        on_average = dialect.divide(integer(2 * limits.groups) * remaining + groups, integer(2) * groups)
        remaining = ibis.ifelse(groups > integer(limits.groups), on_average, remaining)
    if limits.rows is not None:
        remaining = ibis.least(remaining, integer(limits.rows))
    return people.filter(any_of(over)).select(*person, **{ROWS_CUT: total - remaining})


def people_by_key(table: Table, work: KeyWork, dialect: Dialect) -> Table:
    """Return every key of a person as `k0`, `k1`, … (integers or texts), and its number of people: duty 8."""
    names = [f"k{i}" for i in range(len(work.types))]
    rows = _pairs(table, work.privacy_unit, work.types, dialect)
    if work.privacy_unit is not None:
        rows = _few(rows, names, work.most, dialect)
    counted = rows.group_by(names).aggregate(**{_PEOPLE: cast(rows.count(), "int64")})
    keys = ((f"k{i}", dtype.is_decimal()) for i, dtype in enumerate(work.types.dtypes()))
    # Decimals are sent as texts: drivers and Ibis disagree on their digits.
    sent = {name: cast(counted[name], "string") if is_text else counted[name] for name, is_text in keys}
    return counted.select(**sent, **{_PEOPLE: counted[_PEOPLE]})


def _pairs(table: Table, unit: PrivacyUnit | None, types: pl.Schema, dialect: Dialect) -> Table:
    """Return each person's distinct keys as `k0`, `k1`, …; without a privacy unit each row's key."""
    chosen, needed = {}, []
    for i, (name, dtype) in enumerate(types.items()):
        chosen[f"k{i}"] = _told_apart(table[name], dtype, dialect)
        needed += _conditions(table[name], dtype, dialect)
    if unit is None:
        return table.filter(needed).select(**chosen)
    person = people_of(table, unit, dialect)
    return table.filter(*is_somebody(table, unit, dialect), *needed).select(**person, **chosen).distinct()


def _few(rows: Table, by: Sequence[str], most: int, dialect: Dialect) -> Table:
    """Keep `most` random keys of each person; `by` breaks ties of the hashes."""
    person = person_in(rows)
    place = dialect.order([rows[name] for name in person], [rows[name] for name in by], OF_GROUPS)
    numbered = rows.mutate(rank=ibis.row_number().over(group_by=person, order_by=[place, *by]))
    return numbered.filter(numbered["rank"] < most).drop("rank")


def in_polars(found: Mapping[str, NDArray[np.generic]], types: pl.Schema) -> tuple[pl.DataFrame, Ints]:
    """Return the keys of `people_by_key` in their own types, and their numbers of people.

    Keys that don't fit their type are dropped. This depends only on the key: Ibis guesses types of computed columns.
    """
    keys = [_of_type(name, found[f"k{i}"], dtype) for i, (name, dtype) in enumerate(types.items())]
    is_key = ~pl.DataFrame([key.is_null() for key in keys]).max_horizontal()
    people: Ints = np.asarray(found[_PEOPLE], np.int64)
    return pl.DataFrame(dict(zip(types, keys, strict=True))).filter(is_key), people[is_key.to_numpy()]


def _conditions(value: Value, dtype: pl.DataType, dialect: Dialect) -> list[Value]:
    """Return conditions for a value to be a key: it is not null, and Polars can represent it."""
    conditions = [is_present(value, dialect)]
    if dtype in _TIMES:
        kind, *ends = _TIMES[dtype]
        values = (value, *(constant(str(end), kind) for end in ends))
        number, first, last = (comparable(one, one.type(), dialect) for one in values)
        conditions += [number >= first, number <= last]
    return conditions


def _told_apart(value: Value, dtype: pl.DataType, dialect: Dialect) -> Value:
    """Return a value that is equal only for equal keys: an integer, except for texts and decimals."""
    if dtype in _TIMES:
        low, high = pl.Series(_TIMES[dtype][1:], dtype=dtype).to_physical().to_list()
        return physical(value, dtype, low, high)
    if dtype == pl.Boolean:
        return physical(value, dtype, 0, 1)
    return cast(value, "int64") if dtype.is_integer() else comparable(value, value.type(), dialect)


def _of_type(name: str, found: NDArray[np.generic], dtype: pl.DataType) -> pl.Series:
    """Convert fetched keys to their type; null if a key does not fit."""
    if dtype == pl.String:
        return pl.Series(name, list(map(_text, found.tolist())), dtype)
    if not isinstance(dtype, pl.Decimal):
        return pl.Series(name, found.astype(np.int64)).cast(dtype, strict=False)
    texts = pl.Series(name, found.tolist(), pl.String)
    is_exact = texts.str.contains(rf"^-?\d+(\.\d{{0,{dtype.scale}}}0*)?$")
    return texts.set(~is_exact, None).cast(dtype, strict=False)


def _text(found: str | bytes | bytearray | None) -> str | None:
    """Return a text from text or bytes. None if the bytes are no text: an error would reveal them."""
    if not isinstance(found, (bytes, bytearray)):
        return found
    try:
        return found.decode()
    except UnicodeDecodeError:
        return None
