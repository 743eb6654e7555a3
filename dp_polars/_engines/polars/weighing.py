"""Count people in part, in Polars: no row is dropped, but people beyond the limits get smaller weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base.numbers import Floats, Ints, numbered, reduced, run_lengths
from dp_polars._engines.polars.arithmetic import EXPRESSIONS
from dp_polars._engines.polars.people import AlikeSpecs, labels_of, weight_name
from dp_polars._mechanisms.person_weights import ARRAYS, UNIT_BITS, PersonWeight, part_of
from dp_polars._sources.running import collected

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._engines.polars.people import CellsOfKinds
    from dp_polars._release.contract import HistogramSpec


def weigh_people(frame: pl.DataFrame, kinds: Sequence[AlikeSpecs], engine: EngineType) -> CellsOfKinds:
    """Return the weighted sums of each kind.

    `frame`: `person` (`labels.labelled`), `group` if there are several, and the columns of `kinds`.
    """
    in_table: list[AlikeSpecs] = []
    by_codes: dict[str | None, list[AlikeSpecs]] = {}
    for kind in kinds:
        if kind.layout.code_bits or (kind.specs[0].people and kind.weights):  # or people's values are added up
            by_codes.setdefault(kind.code if kind.layout.code_bits else None, []).append(kind)
        else:
            in_table.append(kind)
    plans: dict[tuple[int, ...], pl.LazyFrame] = {}
    for code, alike in by_codes.items():
        plans |= {kind.numbers: plan for kind, plan in zip(alike, _weighed(frame, code, alike, engine), strict=True)}
    found = dict(zip(plans, collected([*plans.values()], engine), strict=True))
    return found | (_Table.of(frame).counted(in_table) if in_table else {})


# Up to this many pairs of a person and a group per row, a table has all pairs. `_FEW_PAIRS` always fit.
_PAIRS_PER_ROW, _FEW_PAIRS = 4, 1 << 16


@dataclass(frozen=True, eq=False)
class _Table:
    """A place for each pair of a person and a group, in which rows are counted without Polars.

    There is a place for every pair in order. If these are too many, only pairs with rows get one.
    """

    frame: pl.DataFrame
    place: Ints  # one for each row
    groups: int
    pairs: Ints | None  # pairs with rows. None: all pairs.
    size: int  # number of places

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Table:
        labels, least, span = labels_of(frame["person"], 62)
        group = frame["group"].to_numpy() if "group" in frame.columns else np.zeros(frame.height, np.uint8)
        groups, most = int(group.max(initial=0)) + 1, max(_FEW_PAIRS, _PAIRS_PER_ROW * frame.height)
        # Unsigned: the differences of labels fit into 63 bits, but labels need not.
        people = (labels.astype(np.uint64) - np.uint64(least % 2**64)).astype(np.int64)
        if (span + 1) * groups >= 1 << 63:
            people = numbered(people.view(np.uint64))[1]
        size = (int(people.max(initial=0)) + 1) * groups
        place = people * groups + group
        if size <= most:
            return cls(frame, place, groups, None, size)
        pairs, place = numbered(place.view(np.uint64))
        return cls(frame, place, groups, pairs.view(np.int64), len(pairs))

    def counted(self, kinds: Sequence[AlikeSpecs]) -> CellsOfKinds:
        """Return the weighted sums of each kind. No kind adds up people."""
        found, rows, sums, weights = {}, dict[str | None, Ints](), dict[object, Ints](), dict[object, Ints]()
        contributing: dict[str | None, NDArray[np.bool_] | None] = {}
        for kind in kinds:
            if kind.code not in contributing:
                contributing[kind.code] = self._contributing(kind)
            chosen = contributing[kind.code]
            code = None if chosen is None else kind.code
            places = self.place if chosen is None else self.place[chosen]
            if code not in rows:
                rows[code] = np.bincount(places, minlength=self.size)
            spec = kind.specs[0]
            counts = np.minimum(rows[code], 1) if spec.people else rows[code]
            same = code, spec.people, spec.weight
            if same not in weights:
                weights[same] = self._of_row(_weight(kind), counts)
            parts = {}
            for number, spec in zip(kind.numbers, kind.specs, strict=True):
                total, name = counts, kind.weights.get(number)
                if name is not None:
                    if (code, name) not in sums:
                        assert spec.added is not None
                        # Floats add up faster than integers, and are exact below 2**53.
                        is_small = spec.added.largest * int(rows[code].max(initial=0)) < 1 << 53
                        values = self.frame[name].cast(pl.Float64 if is_small else pl.Int64).to_numpy()
                        sums[code, name] = self._sums(values if chosen is None else values[chosen], places)
                    total = spec.of_sums(sums[code, name], counts)
                parts[weight_name(number)] = self._by_group(_parts(total, weights[same], spec.bits))
            cells = np.arange(self.groups, dtype=np.uint32 if kind.layout.bits <= 32 else np.uint64)
            has_rows = pl.Series(self._by_group(rows[code]) > 0)
            found[kind.numbers] = pl.DataFrame({"cell": cells, **parts}).filter(has_rows)
        return found

    def _by_group(self, numbers: Ints) -> Ints:
        """Add up by group."""
        if self.pairs is None:
            found: Ints = np.einsum("ij->j", numbers.reshape(-1, self.groups))  # several times as fast as `sum`
            return found
        found = np.zeros(self.groups, np.int64)
        np.add.at(found, self._group_of_pair, numbers)
        return found

    def _by_person(self, numbers: Ints) -> Ints:
        """Add up by person, and return each place's person total."""
        if self.pairs is None:
            return np.repeat(numbers.reshape(-1, self.groups).sum(axis=1), self.groups)
        of_each: Ints = np.repeat(reduced(np.add, numbers, self._pairs_of_person), self._pairs_of_person)
        return of_each

    @cached_property
    def _group_of_pair(self) -> Ints:
        assert self.pairs is not None
        return self.pairs % self.groups

    @cached_property
    def _pairs_of_person(self) -> Ints:
        """How many pairs each person has; those of one person lie side by side."""
        assert self.pairs is not None
        return run_lengths(self.pairs // self.groups)

    def _contributing(self, kind: AlikeSpecs) -> NDArray[np.bool_] | None:
        """Return the contributing rows. None: all rows."""
        if kind.code is None:
            return None
        contributes: NDArray[np.bool_] = self.frame[kind.code].to_numpy() < kind.specs[0].binning.size
        return None if contributes.all() else contributes

    def _sums(self, values: Ints | Floats, places: Ints) -> Ints:
        """Add up values by place. Sums of floats are below 2**53."""
        if values.dtype.kind == "f":
            return np.bincount(places, values, self.size).astype(np.int64)
        sums = np.zeros(self.size, np.int64)
        np.add.at(sums, places, values)
        return sums

    def _of_row(self, weight: PersonWeight, counts: Ints) -> Ints:
        """Return the weight of each row in a place, in parts."""
        norm = None if weight.limit is None else self._by_person(weight.norm(counts, ARRAYS))
        of_row: Ints = weight.of_rows(norm, counts, ARRAYS)
        return of_row


def _parts(total: Ints, weight: Ints, bits: int) -> Ints:
    """Return `part_of`, by a single product if that surely fits into 64 bits."""
    absolute = np.abs(total)
    is_small = absolute.max(initial=0) < 1 << (62 - UNIT_BITS)
    parts: Ints = (
        np.sign(total) * ((absolute * weight) >> (UNIT_BITS - bits))
        if is_small
        else part_of(total, weight, bits, ARRAYS)
    )
    return parts


def _weighed(
    frame: pl.DataFrame, code: str | None, kinds: Sequence[AlikeSpecs], engine: EngineType
) -> list[pl.LazyFrame]:
    """Return plans that add up the parts of kinds with these codes (None: a single code)."""
    groups = ["group"] if "group" in frame.columns else []
    by = [*groups, *([] if code is None else [code])]
    sums = [one for i, kind in enumerate(kinds) for one in _sums(i, kind)]
    # One row for each person, group and code. Rows that contribute to no kind are left out.
    pairs = frame.lazy().filter(pl.any_horizontal(kind.contributes for kind in kinds)).group_by("person", *by).agg(sums)
    pairs = pairs.with_columns(_number(i, kind).alias(f"n {i}") for i, kind in enumerate(kinds))
    if code is not None:  # each code of a person in a group has the weight of one row
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
        # A left join: people within the limits need no second look.
        pairs = pairs.join(beyond, on="person", how="left", nulls_equal=True)
    return [_cells(pairs, i, kind) for i, kind in enumerate(kinds)]


def _weight(kind: AlikeSpecs) -> PersonWeight:
    weight = kind.specs[0].weight
    assert weight is not None
    return weight


def _sums(i: int, kind: AlikeSpecs) -> list[pl.Expr]:
    """Return how many rows of a pair contribute, and the sums of their weights."""
    counts, names = kind.contributes, dict.fromkeys(kind.weights.values())
    sums = [pl.when(counts).then(pl.col(name).cast(pl.Int64)).sum().alias(f"{i} {name}") for name in names]
    assert kind.code is not None, "`sum` of a constant would count one row; such kinds are counted in a table"
    return [counts.cast(pl.Int64).sum().alias(f"rows {i}"), *sums]


def _number(i: int, kind: AlikeSpecs) -> pl.Expr:
    """Return how many rows count in a pair: one if people count."""
    rows = pl.col(f"rows {i}")
    return (rows > 0).cast(pl.Int64) if kind.specs[0].people else rows


def _total(i: int, kind: AlikeSpecs, number: int, spec: HistogramSpec) -> pl.Expr:
    """Return a person's sum in a group and code."""
    counted = _number(i, kind)
    if number not in kind.weights:
        return counted
    total: pl.Expr = spec.of_sums(pl.col(f"{i} {kind.weights[number]}"), pl.col(f"rows {i}"), EXPRESSIONS.whole)
    if spec.people:
        low, high = (EXPRESSIONS.whole(end) for end in spec.clamping.of_person)
        total = pl.when(pl.col(f"rows {i}") > 0).then(total.clip(low, high)).otherwise(EXPRESSIONS.whole(0))
    return total


def _cells(pairs: pl.LazyFrame, i: int, kind: AlikeSpecs) -> pl.LazyFrame:
    """Return a kind's weighted sums by cell."""
    # People within the limits are not in `beyond`, so they have null here.
    of_row = _weight(kind).of_rows(pl.col(f"norm {i}").fill_null(0), pl.col(f"n {i}"), EXPRESSIONS)
    parts = {
        weight_name(number): part_of(_total(i, kind, number, spec), pl.col("of row"), spec.bits, EXPRESSIONS)
        for number, spec in zip(kind.numbers, kind.specs, strict=True)
    }
    counted = pairs.filter(pl.col(f"rows {i}") > 0).with_columns(of_row.alias("of row"))
    return counted.select(kind.cell.alias("cell"), **parts).group_by("cell").agg(pl.all().sum())
