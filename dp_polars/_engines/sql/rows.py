"""Columns that a statement reads: people, public groups, codes and weights; and the types that they must have.

Public lists are tables in the SQL text. Nothing is created in the database, so no write permission is needed.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base.column_types import must_have
from dp_polars._base.extras import require
from dp_polars._bins.binning import CategoryBinning, OneCode
from dp_polars._engines.sql.arithmetic import ABSENT, code, integer, is_present, units, within
from dp_polars._engines.sql.dialects import cast, constant, ibis
from dp_polars._release.contract import Product, reading_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._bins.binning import Binning
    from dp_polars._engines.sql.dialects import Dialect, Table, Value
    from dp_polars._release.contract import HistogramSpec


dt: Any = require("ibis.expr.datatypes", extra="sql")

_POLARS = {
    dt.Boolean: pl.Boolean(),
    dt.Int8: pl.Int8(),
    dt.Int16: pl.Int16(),
    dt.Int32: pl.Int32(),
    dt.Int64: pl.Int64(),
    dt.Float32: pl.Float32(),
    dt.Float64: pl.Float64(),
    dt.String: pl.String(),
    dt.Date: pl.Date(),
    dt.Time: pl.Time(),
}
# Digits of a second.
MICROSECONDS = 6
_HINTS: dict[Any, str] = {
    dt.UnsignedInteger: "cast it to a signed integer in Ibis first.",
    dt.Interval: "make it a number in Ibis first: t.departure.epoch_seconds() - t.arrival.epoch_seconds().",
    dt.Decimal: "cast it to a decimal of at most 38 digits in Ibis first.",
    dt.Timestamp: "cast it to a timestamp without a time zone, in microseconds, in Ibis first.",
}
# Up to this many public texts, each row is compared with all of them. For a join, DuckDB hashes all texts of a column.
_MOST_COMPARED = 8
# Private-use code points: separators that the texts don't contain.
_SEPARATORS = range(0xE000, 0xF900)


def binned(table: Table, ends: Mapping[str, pl.Series]) -> Table:
    """Replace columns by their bin numbers."""
    return table.mutate(**{name: _bin_of(table[name], one) for name, one in ends.items()})


def in_kept_parts(
    table: Table, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, secret: int, dialect: Dialect
) -> Table:
    """Return rows of listed parts, and only those in `most` random parts of each person: see `Engine.keep_parts`.

    The parts themselves break ties of hashes, so a tie can't let a person keep more.
    """
    for key in keys.get_columns():
        check_public(key)
    kinds = [table.schema()[name] for name in keys.columns]
    listed = public_table(keys.get_columns(), kinds, dialect)

    def parts_of(rows: Table) -> list[Value]:
        return [comparable(rows[name], kind, dialect) for name, kind in zip(keys.columns, kinds, strict=True)]

    rows = table.semi_join(listed, [value == listed[f"p{i}"] for i, value in enumerate(parts_of(table))])
    if unit is None or most >= keys.height:
        return rows
    rows = rows.filter(is_somebody(rows, unit, dialect))
    people, parts, rank = [*people_of(rows, unit, dialect).values()], parts_of(rows), f"part_{secret}"
    order = [dialect.order(people, parts, str(secret)), *parts]
    rows = rows.mutate(**{rank: ibis.dense_rank().over(group_by=people, order_by=order)})
    return rows.filter(rows[rank] < integer(most)).drop(rank)


def _bin_of(column: Value, ends: pl.Series) -> Value:
    kind = column.type()
    is_value = ~column.isnan() if kind.is_floating() else column.notnull()
    is_number = kind.is_floating() or kind.is_integer()
    inner = (constant(end, kind) if is_number else ibis.literal(end).cast(kind) for end in ends[1:-1])
    above = (ibis.ifelse(column >= end, integer(1), integer(0)) for end in inner)  # Postgres can't cast a boolean
    return ibis.ifelse(is_value, reduce(operator.add, above, integer(0)), ibis.null("int64"))


def public_table(columns: Sequence[pl.Series], types: Sequence[Value], dialect: Dialect) -> Table:
    """Return a table with the rows of `columns` as `p0`, `p1`, …, and their numbers as `number`.

    It is one text constant that the engine splits: with a constant for each value, Ibis would take minutes.

    Parameters
    ----------
    columns
        Without null. Texts must not contain NUL, which databases reject.
    types
        Their types in the database, for Ibis.
    """
    numbers = pl.Series("number", range(len(columns[0]))).cast(pl.String)
    texts = [numbers, *(_text(column).alias(f"p{i}") for i, column in enumerate(columns))]
    between, after = _unused(texts)
    rows = pl.select(pl.concat_str(texts, separator=between)).to_series().str.join(after).item()
    table = ibis.literal(rows).split(after).unnest().name("row").as_table()
    fields = table.row.split(between)
    values = {f"p{i}": comparable(fields[i + 1], kind, dialect) for i, kind in enumerate(types)}
    # All rows are distinct, but without DISTINCT Postgres would split the text again for each row of a join.
    return table.select(number=narrow(fields[0], len(numbers) - 1), **values).distinct()


def narrow(value: Value, most: int) -> Value:
    """Cast a number from 0 to `most` to a type of few bits: DuckDB groups by it faster (a mode: 220 ms, not 259)."""
    return cast(value, next(f"int{bits}" for bits in (16, 32, 64) if most < 2 ** (bits - 1)))


def comparable(value: Value, kind: Value, dialect: Dialect) -> Value:
    """Convert a text to a type, or return a column, so that equal values are identical."""
    if kind.is_string():
        return dialect.binary(value)
    if value.type() != kind:
        # Not in the column's own digits: rounding could move a time between two values onto one of them.
        value = value.cast(kind.copy(scale=MICROSECONDS) if kind.is_timestamp() else kind)
    return value


def check_public(values: pl.Series) -> None:
    """Refuse values that the engine can't read or would round."""
    if values.dtype == pl.String and values.str.contains("\0", literal=True).any():
        msg = "public texts must not hold the character NUL: databases take none."
        raise ValueError(msg)
    if isinstance(values.dtype, (pl.Date, pl.Datetime)) and not values.dt.year().is_between(1, 9999).all():
        msg = "public times must lie in the years 1 to 9999."
        raise ValueError(msg)
    if values.dtype == pl.Time and (values.to_physical() % 1000 != 0).any():
        msg = "public times must be whole microseconds."
        raise ValueError(msg)


def _text(values: pl.Series) -> pl.Series:
    """Return values as complete texts that every engine reads: Polars' own cast truncates a time's microseconds."""
    if values.dtype == pl.Boolean:
        return values.cast(pl.Int8).cast(pl.String)
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
    return values.dt.strftime("%H:%M:%S%.6f") if values.dtype == pl.Time else values.cast(pl.String)


def _unused(texts: Sequence[pl.Series]) -> tuple[str, str]:
    """Return two characters that no text contains."""
    used: set[str] = set()
    for text in texts:
        used.update(text.str.extract_all("[\ue000-\uf8ff]").explode().drop_nulls().unique().to_list())
    free = [chr(point) for point in _SEPARATORS if chr(point) not in used]
    if len(free) < 2:
        msg = "public texts must leave two of Unicode's characters for private use (U+E000 to U+F8FF) unused."
        raise ValueError(msg)
    return free[0], free[1]


# --- Columns that are read -------------------------------------------------------------------------------------------


def code_of(spec: HistogramSpec, table: Table, dialect: Dialect) -> tuple[Value | None, Value | None, Value | None]:
    """Return the column to code, its code, and its value if the code must be looked up in a list."""
    column = table[spec.names[0]] if spec.columns else None
    found = code(spec.binning, column, spec.types[0] if spec.columns else None, dialect)
    if found is None and not (isinstance(spec.binning, CategoryBinning) and spec.columns):
        msg = "candidates must be a list or a grid."
        raise TypeError(msg)
    value = comparable(column, column.type(), dialect) if found is None and column is not None else None
    return column, found, value


def columns_read(unit: PrivacyUnit | None, keys: Sequence[str], specs: Sequence[HistogramSpec]) -> list[str]:
    """Return the columns that a statement reads, each once."""
    names = [
        *(unit or ()),
        *keys,
        *(name for spec in specs for name in spec.names),
    ]
    return [*dict.fromkeys(names)]


def values_read(table: Table, specs: Sequence[HistogramSpec]) -> tuple[Table, Sequence[HistogramSpec]]:
    """Replace specs that count nulls by specs that count values, and return the table with columns for them."""
    found: dict[str, Value] = {}

    def put(new: str, old: str) -> None:
        found[new] = ibis.ifelse(table[old].isnull(), integer(0), ibis.null("int64"))

    specs = reading_values(specs, table.columns, put)
    return table.mutate(**found) if found else table, specs


def weight_of(spec: HistogramSpec, table: Table, dialect: Dialect, otherwise: int = 0) -> Value:
    """Return the weight of a row before it is doubled; `otherwise` for a row without one."""
    row_weight = spec.clamping
    return units(row_weight, table[spec.names[row_weight.column]], spec.types[row_weight.column], dialect, otherwise)


def people_of(table: Table, unit: PrivacyUnit, dialect: Dialect) -> dict[str, Value]:
    """Return the columns of a privacy unit, as `person0`, `person1` and so on."""
    return {f"person{i}": _person_of(table[name], dialect) for i, name in enumerate(unit)}


def person_in(rows: Table) -> list[str]:
    """Return the names of the person columns of rows."""
    return [name for name in rows.columns if name.startswith("person")]


def is_somebody(table: Table, unit: PrivacyUnit, dialect: Dialect) -> list[Value]:
    return [is_present(table[name], dialect) for name in unit]


def _person_of(unit: Value, dialect: Dialect) -> Value:
    """Return a column of a privacy unit, with identical values (and hashes) for equal ones."""
    kind = unit.type()
    if kind.is_string():
        return dialect.binary(unit)
    if kind.is_floating():  # make -0.0 equal to 0.0, also if an engine sorts it lower or writes it differently
        zero = constant("0", kind)
        return ibis.ifelse(unit.abs() == zero, zero, unit)
    return unit


def keys_of(table: Table, keys: pl.DataFrame | Product | None, dialect: Dialect) -> dict[str, Value]:
    """Return the key columns of rows, as `k0`, `k1` and so on."""
    names = [] if keys is None else keys.columns
    return {f"k{i}": comparable(table[name], table.schema()[name], dialect) for i, name in enumerate(names)}


def in_groups(rows: Table, table: Table, keys: pl.DataFrame | Product | None, dialect: Dialect) -> Table:
    """Replace keys by the number of their public group, `group`; drop rows with other keys."""
    if keys is None:
        return rows.mutate(group=integer(0))
    if isinstance(keys, Product):
        group = integer(0)
        for i, values in enumerate(keys.values):
            rows = in_groups(rows.rename(k0=f"k{i}") if i else rows, table, values.to_frame(), dialect)
            rows = rows.rename(**{f"place{i}": "group"})
        for i, stride in enumerate(keys.strides):
            group += rows[f"place{i}"] * integer(stride)
        group = narrow(group, keys.height - 1)
        return rows.mutate(group=group).drop(*(f"place{i}" for i in range(keys.width)))
    for key in keys.get_columns():
        check_public(key)
    kinds = [table.schema()[name] for name in keys.columns]
    if dialect.place is not None and keys.width == 1 and keys.height <= _MOST_COMPARED and kinds[0].is_string():
        texts = [dialect.binary(ibis.literal(text)) for text in keys.to_series().to_list()]
        rows = rows.mutate(group=dialect.place(rows["k0"], texts))
        return rows.filter(rows["group"].notnull()).drop("k0")
    listed = public_table(keys.get_columns(), kinds, dialect)
    names, public_names = [f"k{i}" for i in range(keys.width)], [f"p{i}" for i in range(keys.width)]
    rows = rows.inner_join(listed, [rows[one] == listed[other] for one, other in zip(names, public_names, strict=True)])
    return rows.rename(group="number").drop(*names, *public_names)


def candidates_of(spec: HistogramSpec, table: Table, dialect: Dialect) -> Table:
    """Return the candidates of a list as `p0`, with their codes as `number`."""
    values = spec.binning.values  # type: ignore[attr-defined]
    check_public(values)
    return public_table([values], [table.schema()[spec.names[0]]], dialect)


def any_of(conditions: Iterable[Value]) -> Value:
    return reduce(operator.or_, conditions)


def read_of(spec: HistogramSpec) -> tuple[str | None, Binning]:
    """Return the column and the binning of a spec's codes."""
    return spec.names[0] if spec.columns else None, spec.binning


@dataclass(frozen=True)
class Rows:
    """Rows in listed groups: the columns of `people_of`, `group`, and the columns named here.

    Parameters
    ----------
    table
        Without rows that contribute to nothing.
    codes
        The column of each spec's codes. If all codes are 0, it only shows contributing rows. None: 0 in every row.
    weights
        The column of each spec's weights before they are doubled. None: each row has weight 1.
    partial
        The codes that some rows may lack. Every row contributes to the others, and to None.
    packed
        If the column `said` has all columns of a row: the number of bits of each column, from the lowest on, and the
        value that 1 represents. 0 is `ABSENT`.
    whole
        The rows of all specs, if these rows are for some specs only: a row may contribute to none of them.
    """

    table: Table
    codes: tuple[str | None, ...]
    weights: tuple[str | None, ...]
    partial: frozenset[str]
    packed: Mapping[str, tuple[int, int]] | None = None
    whole: Rows | None = None

    def of(self, numbers: Sequence[int]) -> Rows:
        """Return the rows for some of the specs."""
        if len(numbers) == len(self.codes):
            return self
        codes, weights = ([names[number] for number in numbers] for names in (self.codes, self.weights))
        return replace(self, codes=tuple(codes), weights=tuple(weights), whole=self)

    @property
    def says(self) -> list[str]:
        """All columns that any output reads, except person and group."""
        if self.packed is not None:
            return ["said"]
        if self.whole is not None:
            return self.whole.says
        return [*dict.fromkeys(name for name in (*self.codes, *self.weights) if name is not None)]

    def read(self, table: Table) -> Table:
        """Unpack the columns of rows."""
        found = {}
        for name, (_, one) in (self.packed or {}).items():
            place = self._packed(table, name)
            found[name] = ibis.ifelse(place == integer(0), integer(ABSENT), place + integer(one - 1))
        return table.mutate(**found) if found else table

    def has(self, table: Table, name: str) -> Value:
        """Return whether rows have a value in a column, without unpacking them."""
        return has(table, name) if self.packed is None else self._packed(table, name) != integer(0)

    def place(self, table: Table, name: str, low: int, high: int) -> Value:
        """Return the place of a column's value from 1 on, for the value `low`; any place if it has none."""
        if self.packed is not None:
            return self._packed(table, name)
        return within(table[name], low, high) - integer(low - 1)  # values of other rows must not raise either

    def _packed(self, table: Table, name: str) -> Value:
        assert self.packed is not None
        names = [*self.packed]
        below = sum(self.packed[other][0] for other in names[: names.index(name)])
        return (table["said"] >> cast(integer(below), "int32")) & integer(2 ** self.packed[name][0] - 1)


def rows_of_people(
    table: Table,
    unit: PrivacyUnit,
    keys: pl.DataFrame | Product | None,
    specs: Sequence[HistogramSpec],
    dialect: Dialect,
    outputs: Sequence[str | None] = (),
    *,
    with_groups: bool = True,
) -> Rows:
    """Return rows with a person and a listed group that contribute to at least one spec.

    If not `with_groups`, rows of other groups stay, and the columns of `keys_of` replace `group`.
    """
    table, specs = values_read(table, specs)
    chosen = {**people_of(table, unit, dialect), **keys_of(table, keys, dialect)}
    codes, weights = dict[int, str | None](), dict[int, str | None]()
    places: dict[object, str] = {}
    lists: dict[str, Table] = {}
    for number in sorted(range(len(specs)), key=lambda n: specs[n].reading_order):
        spec = specs[number]
        with asked(outputs[number] if outputs else None):
            column, found, value = code_of(spec, table, dialect)
            has_value = column is not None and is_present(column, dialect)
            if spec.row_weight is not None:
                row_weight = spec.clamping
                of = spec.names[row_weight.column]
                tells = isinstance(spec.binning, OneCode) and row_weight.column == 0
                weight = places.setdefault(
                    (of, row_weight.lower, row_weight.upper, row_weight.step, tells), f"weight{number}"
                )
                weights[number] = weight
                chosen[weight] = weight_of(spec, table, dialect, ABSENT if tells else 0)
                if tells:
                    places.setdefault(of, weight)
            if column is None:
                codes[number] = None
                continue
            read = spec.names[0] if isinstance(spec.binning, OneCode) else read_of(spec)
            codes[number] = name = places.setdefault(read, f"code{number}")
            if value is not None:
                chosen[name], lists[name] = value, candidates_of(spec, table, dialect)
            elif name not in chosen:
                chosen[name] = ibis.ifelse(has_value, found, integer(ABSENT))
                places.setdefault(spec.names[0], name)
    rows = table.filter(is_somebody(table, unit, dialect)).select(**chosen)
    rows = in_groups(rows, table, keys, dialect) if with_groups else rows
    if lists:  # only joins, one after the other: each further SELECT would nest the text
        joined = rows
        for name, listed in lists.items():
            joined = joined.left_join(
                listed.rename({f"{name}_place": "number", f"{name}_value": "p0"}), [(name, f"{name}_value")]
            )
        found = {name: ibis.coalesce(joined[f"{name}_place"], integer(ABSENT)) for name in lists}
        rows = joined.select(*(name for name in rows.columns if name not in lists), **found)
    ordered = [tuple(names.get(number) for number in range(len(specs))) for names in (codes, weights)]
    known = [name for name in dict.fromkeys(ordered[0]) if name is not None]
    partial = frozenset(known)
    if None not in ordered[0]:
        rows = rows.filter(any_of(has(rows, name) for name in known))
        partial = frozenset(known if len(known) > 1 else [])
    return Rows(rows, codes=ordered[0], weights=ordered[1], partial=partial)


def named(name: str | None) -> list[str]:
    return [] if name is None else [name]


def weight_in(spec: HistogramSpec, name: str | None, dialect: Dialect) -> Callable[[Table], Value] | None:
    """Return the weight that is added up for a row. None: each row has weight 1."""
    added = spec.added
    return None if name is None or added is None else lambda rows: added.of_units(rows[name], integer, dialect.divide)


def has(rows: Table, name: str) -> Value:
    return rows[name] != integer(ABSENT)


@contextmanager
def asked(output: str | None) -> Iterator[None]:
    """Name the output in errors of this context."""
    try:
        yield
    except (TypeError, ValueError) as error:
        msg = f"Output {output!r}: {error}"
        raise type(error)(error if output is None else msg) from None


# --- Types of columns ------------------------------------------------------------------------------------------------


def schema_of(table: Any, columns: Collection[str], only_counted: Collection[str]) -> pl.Schema:  # noqa: ANN401
    """Return the Polars types of these columns. Columns of `only_counted` may have any type and get a dummy type."""
    types = {}
    for name in columns:
        must_have(name, table.columns, frame="table")
        types[name] = pl.Binary() if name in only_counted else _polars_type(name, table.schema()[name])
    return pl.Schema(types)


def _polars_type(name: str, kind: Any) -> pl.DataType:  # noqa: ANN401
    if kind.is_decimal() and kind.precision is not None and kind.precision <= 38 and kind.scale is not None:
        return pl.Decimal(kind.precision, kind.scale)
    if kind.is_timestamp() and kind.timezone is None and (kind.scale is None or kind.scale <= MICROSECONDS):
        return pl.Datetime("us")
    known = _POLARS.get(type(kind))
    if known is not None:
        return known
    msg = (
        f"the column {name!r} must be text, a signed integer of at most 64 bits, a float, a decimal of known digits, a "
        f"boolean, a date, a time or a timestamp without a time zone, got {_called(kind)}."
    )
    hint = next((hint for kinds, hint in _HINTS.items() if isinstance(kind, kinds)), None)
    raise TypeError(msg if hint is None else f"{msg}\n\nHint: {hint}")


def _called(kind: Any) -> Any:  # noqa: ANN401
    """Return a nullable type with Ibis' name for it."""
    return kind.copy(nullable=True)


def check_types(dialect: Dialect, table: Any, found: dict[str, str], unit: PrivacyUnit) -> None:  # noqa: ANN401
    """Refuse columns of a type that compares values in its own way, by the database's name for it."""
    for name, kind in found.items():
        plain = kind.partition("(")[0]
        family = dialect.types.get(plain)
        is_known = family is not None and getattr(table.schema()[name], f"is_{family}")()
        if is_known or (name in unit and plain in dialect.unit_types):
            continue
        what = f"the privacy unit {name!r}" if name in unit else f"the column {name!r}"
        types = sorted({*dialect.types, *(dialect.unit_types if name in unit else ())})
        msg = (
            f"{what} must have one of {dialect.name}'s types {', '.join(types)}, got {kind} "
            f"({_called(table.schema()[name])} in Ibis).\n\nHint: {dialect.way_out}"
        )
        raise TypeError(msg)
