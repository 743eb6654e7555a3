"""Rows in long form: one row for each list of codes that a row has.

So a plan for fifty statistics has as few joins and sorts as a plan for one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._bins.binning import CategoryBinning
from dp_polars._engines.spark.arithmetic import long, sf, spark_types, total
from dp_polars._engines.spark.rows import BROADCAST, any_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from dp_polars._engines.spark.rows import SpecColumns

# The most specs in a track, if there are several tracks; more if the average is larger.
_FEWEST = 8


class Tracks:
    """Specs with the same codes and limits. They share a row of the long form, its `track`.

    Each spec has its own columns in the track, named by places. So specs of different tracks share columns.

    Parameters
    ----------
    specs
        In the order of their numbers.
    limits
        Returns a value that specs of one track have in common.
    """

    def __init__(
        self, specs: Sequence[SpecColumns], limits: Callable[[SpecColumns], Hashable] = lambda _: None
    ) -> None:
        alike: dict[Hashable, list[SpecColumns]] = {}
        for one in specs:
            alike.setdefault((one.code, limits(one)), []).append(one)
        most = max(_FEWEST, -(-len(specs) // len(alike))) if len(alike) > 1 else len(specs)
        self.specs = specs
        self.tracks = [of[i : i + most] for of in alike.values() for i in range(0, len(of), most)]
        self.track_of = {one.number: track for track, of in enumerate(self.tracks) for one in of}
        #: Each spec's column for its number of rows, its sum of weights, and its counts in a cell.
        self.rows = self.named("rows", lambda one: one.has)
        weighs = [one for one in specs if one.units is not None]
        self.sum = self.named("sum", lambda one: (one.has, one.units, one.spec.row_weight), weighs)
        self.count = self.named("count", lambda one: one.number)
        kinds = dict.fromkeys(one.values for one in specs if one.values is not None)
        self._values = {kind: f"values{place}" for place, kind in enumerate(kinds)}
        firsts = {track: of[0] for track, of in enumerate(self.tracks) if of[0].values is not None}
        self._listed = {track: one for track, one in firsts.items() if isinstance(one.spec.binning, CategoryBinning)}
        self._in_python = [track for track in firsts if track not in self._listed]

    def named(
        self, word: str, kind: Callable[[SpecColumns], Hashable], specs: Sequence[SpecColumns] | None = None
    ) -> dict[int, str]:
        """Return a column name for each spec, by its number. In a track, specs of equal kinds share a column."""
        names: dict[int, str] = {}
        places: dict[int, dict[Hashable, int]] = {}
        for one in self.specs if specs is None else specs:
            of_track = places.setdefault(self.track_of[one.number], {})
            names[one.number] = f"{word}{of_track.setdefault(kind(one), len(of_track))}"
        return names

    @property
    def all_values(self) -> list[str]:
        """The columns of values, before `coded`."""
        return [*self._values.values()]

    @property
    def values(self) -> list[str]:
        """The columns of values that only Python can code, after `coded`."""
        return list(dict.fromkeys(self.value_of(self.tracks[track][0]) for track in self._in_python))

    def value_of(self, one: SpecColumns) -> str:
        """Return the column with a spec's values in place of codes."""
        assert one.values is not None
        return self._values[one.values]

    @property
    def in_python(self) -> list[SpecColumns]:
        return [one for track in self._in_python for one in self.tracks[track]]

    def columns(
        self,
        names: Mapping[int, str],
        kind: Callable[[SpecColumns], Hashable],
        column: Callable[[SpecColumns], Column],
    ) -> dict[str, Column]:
        """Return the named columns, computed for their specs in rows of their tracks.

        `column` must depend only on `kind`, so that several tracks can share an expression.
        """
        found: dict[str, dict[Hashable, tuple[SpecColumns, list[int]]]] = {}
        for one in self.specs:
            if one.number in names:
                of_name = found.setdefault(names[one.number], {})
                tracks = of_name.setdefault(kind(one), (one, []))[1]
                if self.track_of[one.number] not in tracks:
                    tracks.append(self.track_of[one.number])
        return {name: self._chosen([*of_name.values()], column) for name, of_name in found.items()}

    def _chosen(
        self, parts: Sequence[tuple[SpecColumns, list[int]]], column: Callable[[SpecColumns], Column]
    ) -> Column:
        if len(parts[0][1]) == len(self.tracks):
            return column(parts[0][0])
        whens = [(sf.col("track").isin(tracks), column(one)) for one, tracks in parts]
        return reduce(lambda chosen, when: chosen.when(*when), whens[1:], sf.when(*whens[0]))

    def spread(
        self,
        rows: DataFrame,
        by: Sequence[str],
        columns: Callable[[SpecColumns], Mapping[str, Column]],
        *,
        all_rows: bool = False,
    ) -> DataFrame:
        """Return the long form: `by`, `track`, `code` (null if found later), values, and the columns of specs.

        The columns of specs are integers.
        With several tracks, rows with null in all of them are dropped, unless `all_rows`.
        """
        parts = [{name: column for one in of for name, column in columns(one).items()} for of in self.tracks]
        names = list(dict.fromkeys(name for part in parts for name in part))
        nothing = sf.lit(None)

        def cells(track: int) -> list[Column]:
            one = self.tracks[track][0]
            known = long(0) if one.code is None else sf.col(one.code)
            found = {"track": sf.lit(track), "code": known if one.values is None else nothing.cast("long")}
            found |= {name: known if one.values == kind else nothing.cast(kind) for kind, name in self._values.items()}
            found |= {name: parts[track].get(name, nothing.cast("long")) for name in names}
            return [column.alias(name) for name, column in found.items()]

        if len(parts) == 1:
            return rows.select(*by, *cells(0))
        rows = rows.select(*by, rows_of(map(cells, range(len(parts)))))
        return rows if all_rows else rows.filter(sf.coalesce(*names).isNotNull())

    def coded(self, rows: DataFrame, *, all_rows: bool = False) -> DataFrame:
        """Find the codes of all lists by one join, and drop rows without a code, unless `all_rows`.

        Afterwards only values that Python codes remain.
        """
        if not self._listed:
            return rows
        value_columns = {track: self.value_of(one) for track, one in self._listed.items()}
        tables = []
        for track, name in value_columns.items():
            values = _values_of(self._listed[track])
            tables.append(pl.DataFrame({"its track": track, f"its {name}": values, "its code": range(len(values))}))
        used = list(dict.fromkeys(value_columns.values()))
        kinds = {name: kind for kind, name in self._values.items()}
        schema = spark_types.StructType().add("its track", spark_types.LongType())
        for name in used:
            schema = schema.add(f"its {name}", kinds[name])
        schema = schema.add("its code", spark_types.LongType())
        table = pl.concat(tables, how="diagonal_relaxed").select(
            pl.col("its track").cast(pl.Int64), *(f"its {name}" for name in used), pl.col("its code").cast(pl.Int64)
        )
        codes = rows.sparkSession.createDataFrame(table.to_arrow(), schema)
        if table.height <= BROADCAST:
            codes = sf.broadcast(codes)
        # A list of another type has null in this column.
        same = [
            sf.col(name) == sf.col(f"its {name}") if len(used) == 1 else sf.col(name).eqNullSafe(sf.col(f"its {name}"))
            for name in used
        ]
        if len(self.tracks) > 1:
            same.append(sf.col("track") == sf.col("its track"))
        are_all = len(value_columns) == len(self.tracks) and not all_rows
        rows = rows.join(codes, reduce(lambda one, two: one & two, same), "inner" if are_all else "left")
        rows = rows.withColumn("code", sf.col("its code") if are_all else sf.coalesce("code", "its code"))
        rows = rows.drop("its track", "its code", *(f"its {name}" for name in used))
        rows = rows.drop(*(name for name in self._values.values() if name not in self.values))
        if are_all or all_rows:
            return rows
        later = [sf.col(name).isNotNull() & sf.col("track").isin(self._in_python) for name in self.values]
        return rows.filter(any_of([sf.col("code").isNotNull(), *later]))

    def added_up(self, names: Mapping[int, str]) -> list[Column]:
        """Add up the named columns. Sums are clamped, except numbers of rows."""
        found: dict[str, bool] = {}
        for one in self.specs:
            if one.number in names:
                found[names[one.number]] = found.get(names[one.number], True) and one.is_count
        return [(sf.sum(name) if counts else total(sf.col(name))).alias(name) for name, counts in found.items()]

    def by_spec(self, rows: DataFrame, by: Sequence[str]) -> DataFrame:
        """Return the columns `by`, `spec` and `count`: a row for each spec with a count."""
        cells = []
        for place in range(max(map(len, self.tracks))):
            numbers = [of[place].number if place < len(of) else None for of in self.tracks]
            spec = sf.lit(numbers[0]).cast("long")
            if len(numbers) > 1:
                spec = sf.element_at(sf.array(*(sf.lit(one).cast("long") for one in numbers)), sf.col("track") + 1)
            cells.append([spec.alias("spec"), sf.col(f"count{place}").alias("count")])
        rows = rows.select(*by, *cells[0]) if len(cells) == 1 else rows.select(*by, rows_of(cells))
        return rows.filter(sf.col("count").isNotNull())


def _values_of(one: SpecColumns) -> pl.Series:
    binning = one.spec.binning
    assert isinstance(binning, CategoryBinning)
    return binning.values
