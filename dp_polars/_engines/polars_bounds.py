"""Histograms of people's rows, once they are encoded: one grouping by person and one order for all tallies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._base.arrays import offsets, slices
from dp_polars._base.threads import in_parallel
from dp_polars._engines.bounding import Asked, keep
from dp_polars._engines.polars_rows import by_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints
    from dp_polars._codes.codings import Weighing
    from dp_polars._engines.bounding import Layout, Limits, Marks, Stays
    from dp_polars._engines.contract import Tally

# Rows of people that NumPy bounds at once: their temporaries stay in the cache.
_PEOPLE_ROWS = 1 << 17
# Bits of a cell up to which each has a counter: then there are no more of them than rows in a slice.
_MOST_BITS = 17


@dataclass(frozen=True)
class Kind:
    """Tallies that are alike, with the columns of their codes (None: all are 0) and, by position, of their weights."""

    numbers: tuple[int, ...]
    tallies: tuple[Tally, ...]
    layout: Layout
    code: str | None
    weights: Mapping[int, str]

    def weighing(self, number: int) -> Weighing:
        """Return the weighing of one of the tallies that have weights."""
        weighing = self.tallies[self.numbers.index(number)].weighing
        assert weighing is not None
        return weighing


def count_people(frame: pl.DataFrame, kinds: Sequence[Kind]) -> list[pl.DataFrame]:
    """Return what stays of people's rows: for each kind columns `cell`, `rows` and `weight i`, each cell once.

    Parameters
    ----------
    frame
        `person`, `group` where there are several, and the columns that `kinds` name. It is empty afterwards.
    kinds
        What is counted.
    """
    rows, lengths = _by_person(frame.drop_in_place("person"))
    # Column by column, since those of several chunks are copied.
    columns = {name: frame.drop_in_place(name).to_numpy() for name in frame.columns}
    groups = columns.get("group", np.zeros(len(rows), np.uint8))
    choices, bounds = _choices(kinds, columns), offsets(lengths)

    def add_slice(first: int, last: int) -> None:
        at = rows[bounds[first] : bounds[last]].astype(np.int64)
        own_groups = groups[at]
        asked = [choice.asked(at) for choice in choices]
        for choice, stays in zip(choices, keep(lengths[first:last], own_groups, asked), strict=True):
            choice.add(at, own_groups[stays.rows].astype(np.uint64), stays)

    in_parallel(add_slice, list(slices(lengths, _PEOPLE_ROWS, len(lengths))))
    found = {counted.kind.numbers: counted.frame() for choice in choices for counted in choice.counted}
    return [found[kind.numbers] for kind in kinds]


def _by_person(person: pl.Series) -> tuple[NDArray[np.unsignedinteger], Ints]:
    """Return the places of all rows, those of each person together, and how many rows each person has."""
    grouped = person.to_frame().lazy().with_row_index("row").group_by("person").agg("row").select("row")
    lists = grouped.collect(engine=by_name("auto"))["row"]
    # Each list holds one person's rows: the value of the privacy unit is not needed any more.
    return lists.explode(empty_as_null=False).to_numpy(), lists.list.len().to_numpy().astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Choice:
    """Kinds that keep the same rows: of the same evidence and limits, though perhaps of other codes."""

    limits: Limits
    people: bool
    evidence: Marks | None
    codes: NDArray[np.unsignedinteger] | None
    counted: list[_Counted] = field(default_factory=list)

    def asked(self, at: Ints) -> Asked:
        """Return what is kept of some rows."""
        evidence = None if self.evidence is None else self.evidence[at]
        if not self.people:
            return Asked(self.limits, evidence)
        return Asked(self.limits, evidence, np.zeros(len(at), np.uint8) if self.codes is None else self.codes[at])

    def add(self, at: Ints, groups: NDArray[np.uint64], stays: Stays) -> None:
        """Count what stays of some rows; these are its groups."""
        rows = at[stays.rows]
        for counted in self.counted:
            counted.add(at, rows, groups, stays)


def _choices(kinds: Sequence[Kind], columns: Mapping[str, NDArray[Any]]) -> list[_Choice]:
    """Return the kinds, those together that keep the same rows."""
    found: dict[object, _Choice] = {}
    evidence: dict[str | None, Marks | None] = {None: None}
    for kind in kinds:
        tally, codes = kind.tallies[0], None
        if kind.code is not None:
            codes = columns[kind.code] if tally.coding.size > 1 else None
            if kind.code not in evidence:
                marks: Marks = columns[kind.code] < tally.coding.size
                evidence[kind.code] = None if marks.all() else marks
        # Codes matter where people count; otherwise the evidence alone does, and nothing where that is all rows.
        differs = evidence[kind.code] is not None or (tally.people and codes is not None)
        choice = found.setdefault(
            (tally.limits, tally.people, kind.code if differs else None),
            _Choice(tally.limits, tally.people, evidence[kind.code], codes),
        )
        counted = _Counted if kind.layout.bits <= _MOST_BITS else _Listed
        choice.counted.append(counted(kind, codes, {i: columns[name] for i, name in kind.weights.items()}))
    return list(found.values())


class _Counted:
    """What stays of a kind, slice after slice: added up at once where there are few cells, otherwise at the end."""

    def __init__(
        self, kind: Kind, codes: NDArray[np.unsignedinteger] | None, weights: Mapping[int, NDArray[np.signedinteger]]
    ) -> None:
        self.kind, self._codes, self._weights = kind, codes, weights
        self._size = 1 << kind.layout.bits
        self._sums = {name: np.zeros(self._size, np.int64) for name in ("rows", *map(weight_name, weights))}
        self._lock = Lock()

    def add(self, at: Ints, rows: Ints, groups: NDArray[np.uint64], stays: Stays) -> None:
        """Count the rows that stay, of these groups, of some rows."""
        cells = groups << np.uint64(self.kind.layout.code_bits)
        if self._codes is not None:
            cells |= self._codes[rows].astype(np.uint64)
        weights = {weight_name(number): self._weighed(number, at, rows, stays) for number in self._weights}
        self._count(cells, weights)

    def _weighed(self, number: int, at: Ints, rows: Ints, stays: Stays) -> tuple[NDArray[np.signedinteger], int]:
        """Return what each row that stays weighs, or each person in a group and code; and the most of either sign."""
        column, weighing = self._weights[number], self.kind.weighing(number)
        if stays.whose is None:
            return column[rows], weighing.largest
        seen = np.flatnonzero(stays.whose >= 0)
        totals = exact_sums(stays.whose[seen], column[at[seen]], len(at), weighing.largest)
        least, most = weighing.of_person
        return np.clip(totals[stays.whose[stays.rows]], least, most), max(abs(least), abs(most))

    def _count(self, cells: NDArray[np.uint64], weights: Mapping[str, tuple[NDArray[np.signedinteger], int]]) -> None:
        at = cells.view(np.int64)
        sums = {"rows": np.bincount(at, minlength=self._size)}
        for name, (column, largest) in weights.items():
            sums[name] = exact_sums(at, column, self._size, largest)
        with self._lock:
            for name, more in sums.items():
                self._sums[name] += more

    def frame(self) -> pl.DataFrame:
        """Return each cell once, with what its rows and weights add up to."""
        cells = np.flatnonzero(self._sums["rows"])
        return pl.DataFrame(
            {"cell": cells.astype(np.uint32), **{name: sums[cells] for name, sums in self._sums.items()}}
        )


class _Listed(_Counted):
    """A kind of many cells: those of the rows that stay are listed, and added up at the end."""

    def __init__(
        self, kind: Kind, codes: NDArray[np.unsignedinteger] | None, weights: Mapping[int, NDArray[np.signedinteger]]
    ) -> None:
        self.kind, self._codes, self._weights = kind, codes, weights
        self._dtype = np.dtype(np.uint32 if kind.layout.bits <= 32 else np.uint64)
        self._parts: list[pl.DataFrame] = []
        self._count(np.empty(0, np.uint64), {weight_name(number): (np.empty(0, np.int64), 0) for number in weights})

    def _count(self, cells: NDArray[np.uint64], weights: Mapping[str, tuple[NDArray[np.signedinteger], int]]) -> None:
        columns = {name: column.astype(np.int64, copy=False) for name, (column, _) in weights.items()}
        self._parts.append(pl.DataFrame({"cell": cells.astype(self._dtype, copy=False), **columns}))

    def frame(self) -> pl.DataFrame:
        return added_up_cells(pl.concat(self._parts).lazy()).collect(engine=by_name("auto"))


def weight_name(number: int) -> str:
    """Return the column that holds the sums of a tally's weights."""
    return f"weight {number}"


def added_up_cells(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Return each cell once: columns `cell`, `rows`, and the sums of weights."""
    sums = pl.exclude("cell").cast(pl.Int64).sum()
    return cells.group_by("cell").agg(pl.len().cast(pl.Int64).alias("rows"), sums)


def exact_sums(places: Ints, weights: NDArray[np.signedinteger], size: int, largest: int) -> Ints:
    """Return the sum of the weights at each place below `size`, none beyond `largest` or its negative.

    As floats they are exact below 2**53; what could be more is added up in two parts.
    """
    if largest * len(weights) < 1 << 53:
        return np.bincount(places, weights, size).astype(np.int64)
    wide = weights.astype(np.int64)
    bits = max(largest.bit_length() // 2, 1)
    high, low = exact_sums(places, wide >> bits, size, (largest >> bits) + 1), wide & ((1 << bits) - 1)
    return (high << bits) + exact_sums(places, low, size, (1 << bits) - 1)
