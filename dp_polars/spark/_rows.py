"""What is read of private rows on Spark: a person, the keys, and what the tallies look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp_polars._codes.codings import CategoryCoding, OneCode
from dp_polars._engines.contract import reading_values
from dp_polars.spark._arithmetic import clip, code, doubled, is_evidence, is_float, long, sf, units, units_of
from dp_polars.spark._tables import Groups, with_codes

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame

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
    is_coded
        Whether it does. If not, it holds the values, which are to be coded when they are counted.
    units
        The weight of a row before it is doubled. None: one each.
    keeps
        The column that says which rows stay. Tallies that differ in their weights alone share it.
    """

    number: int
    tally: Tally
    has: str | None
    is_coded: bool
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
    rows: DataFrame, privacy_unit: PrivacyUnit | None, key_columns: Sequence[str], values: Mapping[str, str]
) -> DataFrame:
    """Return the rows of somebody: the columns `person0`, …, `k0`, …, and those of `values` by their new names."""
    chosen = [rows[quoted(name)].alias(f"k{i}") for i, name in enumerate(key_columns)]
    chosen += [_one_zero(rows, name).alias(alias) for name, alias in values.items()]
    if privacy_unit is None:
        return rows.select(*chosen)
    people = {f"person{i}": name for i, name in enumerate(privacy_unit)}
    somebody = [is_evidence(sf.col(of), rows.schema[name].dataType) for of, name in people.items()]
    rows = rows.select(*chosen, *(_one_zero(rows, name).alias(of) for of, name in people.items()))
    for is_somebody in somebody:
        rows = rows.filter(is_somebody)
    return rows


def person_in(rows: DataFrame) -> list[str]:
    """Return which columns of rows say whose they are. They are hashed one after the other, as Spark does."""
    return [name for name in rows.columns if name.startswith("person")]


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

    def put(new: str, old: str) -> None:
        nulls[new] = sf.when(sf.col(quoted(old)).isNull(), long(0))

    tallies = dict(zip(tallies, reading_values([*tallies.values()], frame.columns, put), strict=True))
    frame = frame.withColumns(nulls) if nulls else frame
    names = dict.fromkeys(name for tally in tallies.values() for name in tally.names)
    values = {name: f"value{i}" for i, name in enumerate(names)}
    rows = evidence(frame, privacy_unit, groups.columns, values)
    kinds = rows.schema
    chosen: dict[str, Column] = {}
    lists: dict[str, tuple[str, pl.Series]] = {}
    places: dict[object, str] = {}
    asked = []
    for number in sorted(tallies, key=lambda number: tallies[number].reading_order):
        tally = tallies[number]
        has: str | None = None
        weight: str | None = None
        of = [values[name] for name in tally.names]
        there = [is_evidence(sf.col(name), kinds[name].dataType) for name in of]
        if tally.weighing is not None:
            weighing = units_of(tally)
            i = weighing.column
            tells = isinstance(tally.coding, OneCode) and i == 0
            weight = places.setdefault((of[i], weighing.lower, weighing.upper, weighing.step, tells), f"units{number}")
            found = sf.when(there[i], units(weighing, sf.col(of[i]), tally.types[i]))
            chosen[weight] = found if tells else found.otherwise(long(0))
            if tells:
                places.setdefault(of[0], weight)
        is_coded = True
        if of:
            has = places.setdefault(
                of[0] if isinstance(tally.coding, OneCode) else (of[0], tally.coding), f"code{number}"
            )
            known = code(tally.coding, sf.col(of[0]))
            if looks_up and isinstance(tally.coding, CategoryCoding):
                lists[has] = of[0], tally.coding.values
            else:
                is_coded = known is not None
            if has not in chosen and has not in lists:
                chosen[has] = sf.when(there[0], sf.col(of[0]) if known is None else known)
                places.setdefault(of[0], has)
        same = has, isinstance(tally.coding, OneCode) if tally.people else None, tally.limits
        asked.append(Asked(number, tally, has, is_coded, weight, places.setdefault(same, f"keeps{number}")))
    rows = rows.withColumns(chosen)
    for name, (value, categories) in lists.items():
        rows = with_codes(rows, value, name, categories)
    return rows.drop(*values.values()), sorted(asked, key=lambda one: one.number)


def _one_zero(rows: DataFrame, name: str) -> Column:
    """Return a column in which -0.0 is 0.0, in hashes too."""
    column, kind = rows[quoted(name)], rows.schema[name].dataType
    return column + sf.lit(0.0).cast(kind) if is_float(kind) else column


def quoted(name: str) -> str:
    """Return a name of a column as Spark reads it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
