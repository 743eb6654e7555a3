"""Count people in part, in Spark's own SQL: no row is dropped, but people beyond the limits get smaller weights.

One pass over the rows finds both a person's norm and the numbers that it scales.
A second read of the frame could return other rows.
All sums are of integers, so a task that Spark repeats gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from dp_polars._base.extras import require
from dp_polars._engines.spark.arithmetic import divide, long, sf
from dp_polars._engines.spark.rows import with_columns
from dp_polars._mechanisms.person_weights import part_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from dp_polars._engines.spark.rows import SpecColumns
    from dp_polars._engines.spark.tracks import Tracks
    from dp_polars._mechanisms.person_weights import PersonWeight


Window = require("pyspark.sql", extra="spark").Window


class _Columns:
    """Arithmetic of Spark."""

    whole: ClassVar = staticmethod(long)
    quotient: ClassVar = staticmethod(divide)
    choose: ClassVar = staticmethod(lambda condition, yes, no: sf.when(condition, yes).otherwise(no))

    @staticmethod
    def scaled_root(unit: float, limit: float, by: Column) -> Column:
        return sf.floor(sf.lit(unit) * sf.sqrt(sf.lit(limit) / by.cast("double")))


_OF = _Columns()


def columns_of_numbers(tracks: Tracks) -> dict[int, str]:
    """Return each spec's column of a person's contributing rows in a group, or codes if people count."""
    return tracks.named("number", lambda one: (tracks.rows[one.number], one.spec.people, one.spec.weight))


def numbers_of_codes(tracks: Tracks) -> dict[str, Column]:
    """Return the columns of `columns_of_numbers` for a row of a person, a group and a code."""

    def number(one: SpecColumns) -> Column:
        found = sf.col(tracks.rows[one.number])
        return (found > 0).cast("long") if one.spec.people else found  # each code counts once

    return tracks.columns(columns_of_numbers(tracks), lambda one: (tracks.rows[one.number], one.spec.people), number)


def with_weights(pairs: DataFrame, owner: Sequence[str], tracks: Tracks, is_first: Column | None = None) -> DataFrame:
    """Add the weight of each of a person's rows in a group, in parts: `weight of …` for each of `columns_of_numbers`.

    `owner`: the columns of a person, and the track.
    `is_first`: the one row that represents a person and a group. None: there is only one.
    """
    numbers = columns_of_numbers(tracks)
    weighed = {one.number: one.spec.weight for one in tracks.specs if one.spec.weight is not None}

    def norm(one: SpecColumns) -> Column:
        found = weighed[one.number].norm(sf.col(numbers[one.number]), _OF)
        return found if is_first is None else sf.when(is_first, found).otherwise(long(0))

    def weight(one: SpecColumns) -> Column:
        of = weighed[one.number]
        of_person = None if of.limit is None else sf.col(f"norm of {numbers[one.number]}")
        return of.of_rows(of_person, sf.col(numbers[one.number]), _OF)

    def kind(one: SpecColumns) -> PersonWeight:
        return weighed[one.number]

    limited = {number: f"norm of {numbers[number]}" for number, of in weighed.items() if of.limit is not None}
    norms = tracks.columns(limited, kind, norm)
    pairs = with_columns(pairs, {name: sf.sum(one).over(Window.partitionBy(*owner)) for name, one in norms.items()})
    return with_columns(
        pairs, tracks.columns({number: f"weight of {numbers[number]}" for number in weighed}, kind, weight)
    )


def parts_of_people(cells: DataFrame, person: Sequence[str], tracks: Tracks) -> DataFrame:
    """Add each person's sums in each cell: a column of `tracks.count` for each spec, null if there is none.

    `cells` has one row for each person, group and code, with its number of rows and its sum of weights.
    If rows are drawn, it has one row for each of them instead.
    """
    numbers, owner = columns_of_numbers(tracks), [*person, "track"]
    weighed = [one for one in tracks.specs if one.spec.weight is not None]
    if weighed:
        cells = with_columns(cells, numbers_of_codes(tracks))
    is_first = None
    if any(one.code is not None for one in weighed):
        in_group = Window.partitionBy(*owner, "group")
        more = {name: sf.sum(name).over(in_group) for name in dict.fromkeys(numbers[one.number] for one in weighed)}
        place = sf.row_number().over(in_group.orderBy("code", *tracks.values))
        cells, is_first = cells.withColumns({**more, "place of code": place}), sf.col("place of code") == 1
    cells = with_weights(cells, owner, tracks, is_first)

    def kind(one: SpecColumns) -> tuple[object, ...]:
        of_person = one.spec.clamping.of_person if one.is_clipped else None
        names = tracks.rows[one.number], tracks.sum.get(one.number), numbers[one.number]
        return *names, of_person, one.spec.people, one.spec.weight, one.spec.bits

    def part(one: SpecColumns) -> Column:
        found = total_of(one, tracks)
        if one.spec.weight is not None:
            found = part_of(found, sf.col(f"weight of {numbers[one.number]}"), one.spec.bits, _OF)
        return sf.when(sf.col(tracks.rows[one.number]) > 0, found)

    return with_columns(cells, tracks.columns(tracks.count, kind, part))


def total_of(one: SpecColumns, tracks: Tracks) -> Column:
    """Return a person's sum in a group and code."""
    if one.units is None:
        return long(1) if one.spec.people else sf.col(tracks.rows[one.number])
    return one.of_total(sf.col(tracks.sum[one.number]))
