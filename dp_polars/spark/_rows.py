"""What is read of private rows on Spark: a person, the keys, and what the tallies look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp_polars._codes.codings import CategoryCoding, OneCode
from dp_polars._engines.contract import reading_values
from dp_polars.spark._arithmetic import clip, code, doubled, is_evidence, is_float, long, sf, units, units_of
from dp_polars.spark._column_types import types
from dp_polars.spark._tables import Groups, with_codes, with_columns

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._engines.contract import Tally


@dataclass(frozen=True)
class Asked:
    """A tally and the columns that it reads, which tallies share.

    Parameters
    ----------
    number
        The position of the tally among those of the release.
    has
        A column that is null where a row is no evidence. None: every row is evidence. Where codes are not all 0, it
        holds them.
    values
        The type of the values that it holds instead, where these are to be coded when they are counted.
    units
        The weight of a row before it is doubled. None: one each.
    keeps
        The column that says which rows stay. Tallies that differ in their weights alone share it.
    """

    number: int
    tally: Tally
    has: str | None
    values: DataType | None
    units: str | None
    keeps: str

    @property
    def code(self) -> str | None:
        """The column of codes. None: 0 in every row."""
        return None if isinstance(self.tally.coding, OneCode) else self.has

    @property
    def is_evidence(self) -> Column:
        """Whether a row is evidence."""
        return sf.expr("true") if self.has is None else sf.col(self.has).isNotNull()

    @property
    def together(self) -> str | None:
        """The column of what a person weighs in a group and code, where people are weighed."""
        return f"weight{self.number}" if self.tally.people and self.units is not None else None

    @property
    def of_person(self) -> Column:
        """What is left of `together`, clipped."""
        return clip(sf.col(self.together), *units_of(self.tally).of_person)

    @property
    def of_row(self) -> Column:
        """The weight of a row."""
        return long(1) if self.units is None else doubled(units_of(self.tally), sf.col(self.units))

    @property
    def weight(self) -> Column:
        """What is added up."""
        return self.of_row if self.together is None else self.of_person


def evidence(
    rows: DataFrame, privacy_unit: PrivacyUnit | None, key_columns: Sequence[str], values: Mapping[str, Column]
) -> DataFrame:
    """Return the rows of somebody: the columns `person0`, …, `k0`, …, and those of `values`."""
    kinds = rows.schema
    chosen = [_typed(kinds, name).alias(f"k{i}") for i, name in enumerate(key_columns)]
    chosen += [column.alias(name) for name, column in values.items()]
    if privacy_unit is None:
        return rows.select(*chosen)
    people = dict(zip(person_of(privacy_unit), privacy_unit, strict=True))
    somebody = [is_evidence(sf.col(of), kinds[name].dataType) for of, name in people.items()]
    rows = rows.select(*chosen, *(_one_zero(kinds, name).alias(of) for of, name in people.items()))
    for is_somebody in somebody:
        rows = rows.filter(is_somebody)
    return rows


def person_of(privacy_unit: PrivacyUnit | None) -> list[str]:
    """Return which columns of `evidence` say whose rows are. They are hashed one after the other, as Spark does."""
    return [f"person{i}" for i, _ in enumerate(privacy_unit or ())]


def read(
    frame: DataFrame,
    privacy_unit: PrivacyUnit | None,
    groups: Groups,
    tallies: Mapping[int, Tally],
    *,
    looks_up: bool = True,
) -> tuple[DataFrame, list[Asked]]:
    """Return the evidence, and where each of the tallies, by their numbers, has its columns.

    Without `looks_up` values stand in the place of codes that a list of categories has.
    """
    nulls: dict[str, Column] = {}
    kinds = frame.schema

    def put(new: str, old: str) -> None:
        nulls[new] = sf.when(sf.col(quoted(old)).isNull(), long(0))

    tallies = dict(zip(tallies, reading_values([*tallies.values()], kinds.names, put), strict=True))
    names = dict.fromkeys(name for tally in tallies.values() for name in tally.names)
    values = {name: f"value{i}" for i, name in enumerate(names)}
    columns = {new: nulls[name] if name in nulls else _one_zero(kinds, name) for name, new in values.items()}
    types_of = {name: types.LongType() if name in nulls else kinds[name].dataType for name in names}
    rows = evidence(frame, privacy_unit, groups.columns, columns)
    chosen: dict[str, Column] = {}
    lists: dict[str, tuple[str, pl.Series, DataType]] = {}
    places: dict[object, str] = {}
    asked = []
    for number in sorted(tallies, key=lambda number: tallies[number].reading_order):
        tally = tallies[number]
        has: str | None = None
        weight: str | None = None
        of = [values[name] for name in tally.names]
        there = [is_evidence(sf.col(values[name]), types_of[name]) for name in tally.names]
        if tally.weighing is not None:
            weighing = units_of(tally)
            i = weighing.column
            tells = isinstance(tally.coding, OneCode) and i == 0
            weight = places.setdefault((of[i], weighing.lower, weighing.upper, weighing.step, tells), f"units{number}")
            found = sf.when(there[i], units(weighing, sf.col(of[i]), tally.types[i]))
            chosen[weight] = found if tells else found.otherwise(long(0))
            if tells:
                places.setdefault(of[0], weight)
        uncoded: DataType | None = None
        if of:
            has = places.setdefault(
                of[0] if isinstance(tally.coding, OneCode) else (of[0], tally.coding), f"code{number}"
            )
            known = code(tally.coding, sf.col(of[0]))
            if looks_up and isinstance(tally.coding, CategoryCoding):
                lists[has] = of[0], tally.coding.values, types_of[tally.names[0]]
            elif known is None:
                uncoded = types_of[tally.names[0]]
            if has not in chosen and has not in lists:
                chosen[has] = sf.when(there[0], sf.col(of[0]) if known is None else known)
                places.setdefault(of[0], has)
        same = has, isinstance(tally.coding, OneCode) if tally.people else None, tally.limits
        asked.append(Asked(number, tally, has, uncoded, weight, places.setdefault(same, f"keeps{number}")))
    rows = with_columns(rows, chosen)
    for name, (value, categories, kind) in lists.items():
        rows = with_codes(rows, value, name, categories, kind)
    return rows.drop(*values.values()), sorted(asked, key=lambda one: one.number)


def _typed(kinds: StructType, name: str) -> Column:
    """Return a column as the type that was looked at: a frame of Spark Connect is analysed anew whenever it runs."""
    return sf.col(quoted(name)).cast(kinds[name].dataType)


def _one_zero(kinds: StructType, name: str) -> Column:
    """Return a column in which -0.0 is 0.0, in hashes too."""
    column, kind = _typed(kinds, name), kinds[name].dataType
    return column + sf.lit(0.0).cast(kind) if is_float(kind) else column


def quoted(name: str) -> str:
    """Return a name of a column as Spark reads it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
