"""People by Polars: numbers in which nobody's rows are dropped, but people beyond the limits count in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base.numbers import Ints
from dp_polars._engines.polars.arithmetic import EXPRESSIONS
from dp_polars._engines.polars.people import AlikeSpecs, labels_of, weight_name
from dp_polars._mechanisms.person_weights import ARRAYS, UNIT, PersonWeight, part_of
from dp_polars._sources.running import collected

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._release.contract import HistogramSpec


def weigh_people(frame: pl.DataFrame, kinds: Sequence[AlikeSpecs], engine: EngineType) -> list[pl.DataFrame]:
    """Return the sums of parts of each kind: columns `cell` and `weight i` of each of its specs, each cell once.

    `frame`: `person`, `group` where there are several, and the columns that `kinds` name.
    """
    by_codes: dict[str | None, list[int]] = {}
    for place, kind in enumerate(kinds):
        by_codes.setdefault(kind.code if kind.layout.code_bits else None, []).append(place)
    counted: dict[int, pl.DataFrame] = {}
    table = _Table.of(frame, [place for place in by_codes.get(None, []) if not _adds_up_people(kinds[place])])
    if table is not None:
        counted = table.counted(kinds, engine)
        by_codes = {
            code: left for code, of in by_codes.items() if (left := [place for place in of if place not in counted])
        }
    plans, places = [], []
    for code, of_code in by_codes.items():
        for place, plan in zip(
            of_code, _weighed(frame, code, [kinds[place] for place in of_code], engine), strict=True
        ):
            plans.append(plan)
            places.append(place)
    found = counted | dict(zip(places, collected(plans, engine), strict=True))
    return [found[place] for place in range(len(kinds))]


def _adds_up_people(kind: AlikeSpecs) -> bool:
    """Return whether all of a person's values in a group are added up before they count."""
    return kind.specs[0].people and bool(kind.weights)


# Pairs of a person and a group for each row up to which all of them lie in a table; and how many always do.
_PAIRS_PER_ROW, _FEW_PAIRS = 4, 1 << 16


@dataclass(frozen=True, eq=False)
class _Table:
    """A place for each pair of a person and a group: numbers of rows are counted there without hashing."""

    frame: pl.DataFrame
    places: Sequence[int]  # of the kinds
    pair: Ints  # of each row
    groups: int

    @classmethod
    def of(cls, frame: pl.DataFrame, places: Sequence[int]) -> _Table | None:
        """Return the table of some kinds, none of which adds up people; None if there are none, or no room."""
        if not places or not frame.height:
            return None
        labels, least, span = labels_of(frame["person"], 62)
        group = frame.get_column("group", default=None)
        groups = 1 if group is None else int(group.max()) + 1
        if (span + 1) * groups > max(_FEW_PAIRS, _PAIRS_PER_ROW * frame.height):
            return None
        pair = (labels.astype(np.int64) - least) * groups
        if group is not None:
            pair += group.to_numpy()
        return cls(frame, places, pair, groups)

    def counted(self, kinds: Sequence[AlikeSpecs], engine: EngineType) -> dict[int, pl.DataFrame]:
        """Return the sums of parts of each kind, by its place."""
        numbers: dict[str | None, Ints] = {}
        found, several = {}, dict[int, tuple[Ints, Ints]]()
        for place in self.places:
            kind = kinds[place]
            if kind.code not in numbers:
                numbers[kind.code] = self._numbers(kind)
            rows = numbers[kind.code]
            counts = np.minimum(rows, 1) if kind.specs[0].people else rows
            several[place] = counts, self._of_row(_weight(kind), counts)
        totals = self._totals([kinds[place] for place in self.places if kinds[place].weights], engine)
        for place in self.places:
            kind, (counts, of_row) = kinds[place], several[place]
            scaled = self._scaled(kind, of_row, engine) if kind.weights else None
            sums = {"cell": np.arange(self.groups).astype(np.uint32 if kind.layout.bits <= 32 else np.uint64)}
            for number, spec in zip(kind.numbers, kind.specs, strict=True):
                if number not in kind.weights:
                    parts = part_of(counts, of_row, spec.bits, ARRAYS)
                    sums[weight_name(number)] = parts.reshape(-1, self.groups).sum(axis=0)
                    continue
                assert scaled is not None
                all_rows, of_name = totals[kind.code], kind.weights[number]
                total = spec.clamping.of_sums(all_rows[of_name], all_rows["rows"])
                part = spec.clamping.of_sums(scaled[of_name].to_numpy(), scaled["rows"].to_numpy())
                more = part_of(part, of_row[scaled["pair"].to_numpy()], spec.bits, ARRAYS) - (part << spec.bits)
                parts = total << spec.bits
                np.add.at(parts, scaled["pair"].to_numpy() % self.groups, more)
                sums[weight_name(number)] = parts
            is_there = counts.reshape(-1, self.groups).any(axis=0)
            found[place] = pl.DataFrame(sums).filter(pl.Series(is_there))
        return found

    def _numbers(self, kind: AlikeSpecs) -> Ints:
        """Return how many rows of each pair contribute."""
        pair = self.pair
        if kind.code is not None:
            contributes = self.frame[kind.code].to_numpy() < kind.specs[0].binning.size
            pair = pair if contributes.all() else pair[contributes]
        size = (int(self.pair.max()) // self.groups + 1) * self.groups
        counted: Ints = np.bincount(pair, minlength=size)
        return counted

    def _of_row(self, weight: PersonWeight, counts: Ints) -> Ints:
        """Return what each row of a pair weighs, in parts."""
        of_person: Ints = np.full(1, UNIT)
        if weight.limit is not None:
            norms = weight.norm(counts, ARRAYS).reshape(-1, self.groups).sum(axis=1)
            of_person = np.repeat(weight.of_norm(norms, ARRAYS), self.groups)
        of_row: Ints = weight.of_rows(of_person, counts, ARRAYS)
        return of_row

    def _totals(self, kinds: Sequence[AlikeSpecs], engine: EngineType) -> dict[str | None, dict[str, Ints]]:
        """Return for each contributing column how many rows of each group there are, and the sums of their values."""
        of_code: dict[str | None, list[AlikeSpecs]] = {}
        for kind in kinds:
            of_code.setdefault(kind.code, []).append(kind)
        plans = []
        for alike in of_code.values():
            names = dict.fromkeys(name for kind in alike for name in kind.weights.values())
            rows = self.frame.lazy().filter(alike[0].is_evidence)
            sums = [pl.len().cast(pl.Int64).alias("rows"), *(pl.col(name).cast(pl.Int64).sum() for name in names)]
            has_groups = "group" in self.frame.columns
            plans.append(
                rows.group_by("group").agg(sums) if has_groups else rows.select(pl.lit(0).alias("group"), *sums)
            )
        found = dict[str | None, dict[str, Ints]]()
        for code, of_groups in zip(of_code, collected(plans, engine), strict=True):
            found[code] = {name: np.zeros(self.groups, np.int64) for name in of_groups.columns[1:]}
            for name, column in found[code].items():
                column[of_groups["group"].to_numpy()] = of_groups[name].to_numpy()
        return found

    def _scaled(self, kind: AlikeSpecs, of_row: Ints, engine: EngineType) -> pl.DataFrame:
        """Return the pairs that count in part: how many rows, and the sums of their values."""
        names = [*dict.fromkeys(kind.weights.values())]
        rows = np.flatnonzero((of_row < UNIT)[self.pair])
        frame = self.frame.select(*names, *([] if kind.code is None else [kind.code]))[rows]
        frame = frame.with_columns(pair=self.pair[rows]).filter(kind.is_evidence)
        sums = [pl.len().cast(pl.Int64).alias("rows"), *(pl.col(name).cast(pl.Int64).sum() for name in names)]
        return collected([frame.lazy().group_by("pair").agg(sums)], engine)[0]


def _weighed(
    frame: pl.DataFrame, code: str | None, kinds: Sequence[AlikeSpecs], engine: EngineType
) -> list[pl.LazyFrame]:
    """Return the plans that add up the parts of kinds with these codes (None: of one code)."""
    groups = ["group"] if "group" in frame.columns else []
    by = [*groups, *([] if code is None else [code])]
    sums = [one for i, kind in enumerate(kinds) for one in _sums(i, kind)]
    # A row of a person, a group and a code. What contributes to none of the kinds is left out.
    pairs = frame.lazy().filter(pl.any_horizontal(kind.is_evidence for kind in kinds)).group_by("person", *by).agg(sums)
    pairs = pairs.with_columns(_number(i, kind).alias(f"n {i}") for i, kind in enumerate(kinds))
    if code is not None:  # the codes of a person in a group, of which each has the weight of one row
        pairs = pairs.with_columns(pl.col(f"n {i}").sum().over("person", *groups) for i in range(len(kinds)))
    pairs = collected([pairs], engine)[0].lazy()
    weights = {i: weight for i, kind in enumerate(kinds) if (weight := _weight(kind)).limit is not None}
    if weights:
        norms = {f"norm {i}": weight.norm(pl.col(f"n {i}"), EXPRESSIONS).sum() for i, weight in weights.items()}
        of_groups = pairs if code is None else pairs.unique(["person", *groups])
        people = of_groups.group_by("person").agg(**norms)
        beyond = people.filter(
            pl.any_horizontal(weight.is_beyond(pl.col(f"norm {i}"), EXPRESSIONS) for i, weight in weights.items())
        )
        # People within the limits are not looked at again.
        pairs = pairs.join(beyond, on="person", how="left", nulls_equal=True)
    return [_cells(pairs, i, kind) for i, kind in enumerate(kinds)]


def _weight(kind: AlikeSpecs) -> PersonWeight:
    weight = kind.specs[0].weight
    assert weight is not None
    return weight


def _sums(i: int, kind: AlikeSpecs) -> list[pl.Expr]:
    """Return how many rows of a pair contribute, and the sums of what they add up to."""
    counts, names = kind.is_evidence, dict.fromkeys(kind.weights.values())
    sums = [pl.when(counts).then(pl.col(name).cast(pl.Int64)).sum().alias(f"{i} {name}") for name in names]
    rows = pl.len() if kind.code is None else counts.sum()  # a constant is no column: its sum would be one
    return [rows.cast(pl.Int64).alias(f"rows {i}"), *sums]


def _number(i: int, kind: AlikeSpecs) -> pl.Expr:
    """Return how many rows count in a pair: where people count, one."""
    rows = pl.col(f"rows {i}")
    return (rows > 0).cast(pl.Int64) if kind.specs[0].people else rows


def _total(i: int, kind: AlikeSpecs, number: int, spec: HistogramSpec) -> pl.Expr:
    """Return a person's sum in a group and code."""
    counted = _number(i, kind)
    if number not in kind.weights:
        return counted
    total: pl.Expr = spec.clamping.of_sums(
        pl.col(f"{i} {kind.weights[number]}"), pl.col(f"rows {i}"), EXPRESSIONS.whole
    )
    if spec.people:
        low, high = (EXPRESSIONS.whole(end) for end in spec.clamping.of_person)
        total = pl.when(pl.col(f"rows {i}") > 0).then(total.clip(low, high)).otherwise(EXPRESSIONS.whole(0))
    return total


def _cells(pairs: pl.LazyFrame, i: int, kind: AlikeSpecs) -> pl.LazyFrame:
    """Return the sums of a kind's parts in each cell."""
    weight, layout = _weight(kind), kind.layout
    of_person = EXPRESSIONS.whole(UNIT)
    if weight.limit is not None:
        norm = pl.col(f"norm {i}").fill_null(0)
        of_person = weight.of_norm(norm, EXPRESSIONS)
    of_row = weight.of_rows(of_person, pl.col(f"n {i}"), EXPRESSIONS)
    parts = {
        weight_name(number): part_of(_total(i, kind, number, spec), pl.col("of row"), spec.bits, EXPRESSIONS)
        for number, spec in zip(kind.numbers, kind.specs, strict=True)
    }
    unsigned = pl.UInt32 if layout.bits <= 32 else pl.UInt64
    cell = pl.col(str(kind.code)).cast(unsigned) if layout.code_bits else pl.lit(0, unsigned)
    if layout.group_bits:
        cell += pl.col("group").cast(unsigned) * pl.lit(2**layout.code_bits, unsigned)
    counted = pairs.filter(pl.col(f"rows {i}") > 0).with_columns(of_row.alias("of row"))
    return counted.select(cell.alias("cell"), **parts).group_by("cell").agg(pl.all().sum())
