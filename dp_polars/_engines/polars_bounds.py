"""Which of people's rows stay, once they are encoded: one order for all tallies; Polars then adds up what stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.arrays import offsets, run_lengths, slices
from dp_polars._base.threads import in_parallel
from dp_polars._engines.bounding import Asked, keep
from dp_polars._engines.polars_rows import by_name, collected

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from polars._typing import EngineType

    from dp_polars._base.arrays import Ints
    from dp_polars._engines.bounding import Layout, Limits, Marks, Stays
    from dp_polars._engines.contract import Tally

# Rows of people that NumPy bounds at once: their temporaries stay in the cache.
_PEOPLE_ROWS = 1 << 17


@dataclass(frozen=True)
class Kind:
    """Tallies that are alike, with the columns of their codes (None: all are 0) and, by position, of their weights."""

    numbers: tuple[int, ...]
    tallies: tuple[Tally, ...]
    layout: Layout
    code: str | None
    weights: Mapping[int, str]

    @property
    def is_evidence(self) -> pl.Expr:
        """Whether a row counts, but for bounds."""
        return pl.lit(value=True) if self.code is None else pl.col(self.code) < self.tallies[0].coding.size

    def named(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Return cells of `added_up_cells` with the sums of this kind's weights under the names of its tallies."""
        return cells.select("cell", "rows", *(pl.col(of).alias(weight_name(i)) for i, of in self.weights.items()))


def added_up_cells(rows: pl.LazyFrame, kinds: Sequence[Kind], is_counted: pl.Expr) -> pl.LazyFrame:
    """Return each cell of the rows that count, once: `cell`, `rows`, and sums of weights. All kinds have the same."""
    layout, weights = kinds[0].layout, list(dict.fromkeys(name for kind in kinds for name in kind.weights.values()))
    unsigned = pl.UInt32 if layout.bits <= 32 else pl.UInt64
    cell = pl.col(str(kinds[0].code)).cast(unsigned) if layout.code_bits else pl.lit(0, unsigned)
    if layout.group_bits:
        cell += pl.col("group").cast(unsigned) * pl.lit(2**layout.code_bits, unsigned)
    # Selected before it is filtered: a filter right after a shared plan would move into it, and part the branches.
    counted = rows.with_columns(cell.alias("cell"), is_counted.alias("is counted"))
    counted = counted.select("cell", "is counted", *weights).filter("is counted")
    return counted.group_by("cell").agg(pl.len().cast(pl.Int64).alias("rows"), pl.col(weights).cast(pl.Int64).sum())


def count_people(frame: pl.DataFrame, kinds: Sequence[Kind], engine: EngineType) -> list[pl.DataFrame]:
    """Return what stays of people's rows: for each kind columns `cell`, `rows` and `weight i`, each cell once.

    Parameters
    ----------
    frame
        `person`, `group` where there are several, and the columns that `kinds` name. It loses `person`.
    kinds
        What is counted.
    engine
        Polars' engine.
    """
    choices = _choices(kinds, frame)
    _mark(choices, *_by_person(frame.drop_in_place("person")), frame.get_column("group", default=None))
    together, plans = list[list[Kind]](), list[pl.LazyFrame]()
    for choice in choices:
        totals = {name: pl.Series(clipped) for name, (*_, clipped) in choice.totals.items()}
        bounded = frame.lazy().with_columns(pl.Series("stays", choice.stays), **totals)
        by_codes: dict[str | None, list[Kind]] = {}
        for kind in choice.kinds:
            by_codes.setdefault(kind.code if kind.layout.code_bits else None, []).append(kind)
        together += by_codes.values()
        plans += [added_up_cells(bounded, alike, pl.col("stays")) for alike in by_codes.values()]
    counted = zip(together, collected(plans, engine), strict=True)
    found = {kind.numbers: kind.named(cells) for alike, cells in counted for kind in alike}
    return [found[kind.numbers] for kind in kinds]


def _mark(choices: Sequence[_Choice], rows: NDArray[np.integer], lengths: Ints, group: pl.Series | None) -> None:
    """Mark what stays of the rows, which are given person after person."""
    groups = np.zeros(len(rows), np.uint8) if group is None else group.to_numpy()
    bounds = offsets(lengths)

    def mark_slice(first: int, last: int) -> None:
        at = rows[bounds[first] : bounds[last]].astype(np.int64, copy=False)
        asked = [choice.asked(at) for choice in choices]
        for choice, stays in zip(choices, keep(lengths[first:last], groups[at], asked), strict=True):
            choice.mark(at, stays)

    in_parallel(mark_slice, list(slices(lengths, _PEOPLE_ROWS, len(lengths))))


def _by_person(person: pl.Series) -> tuple[NDArray[np.integer], Ints]:
    """Return the places of all rows, those of each person together, and how many rows each person has."""
    bits = np.uint64(max(len(person) - 1, 0).bit_length())
    if person.dtype.is_integer() and not column_types.is_wide(person.dtype) and len(person):
        least, greatest = person.min(), person.max()
        spread = int(greatest) - int(least)  # type: ignore[arg-type]
        if spread.bit_length() + int(bits) <= 64:
            # Person and place in one word: one sort of words is several times as fast as hashing.
            words = person.to_numpy().astype(np.uint64)
            words -= np.uint64(int(least) % 2**64)  # type: ignore[arg-type]
            words <<= bits
            words |= np.arange(len(words), dtype=np.uint64)
            words.sort()
            lengths = run_lengths(words >> bits)
            words &= (np.uint64(1) << bits) - np.uint64(1)
            return words.view(np.int64), lengths
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
    stays: Marks
    kinds: list[Kind] = field(default_factory=list)
    totals: dict[str, tuple[Tally, NDArray[np.signedinteger], Ints]] = field(default_factory=dict)

    def join(self, kind: Kind, frame: pl.DataFrame) -> None:
        """Count a kind by this choice. Where people count, a column of their totals takes the place of its weights."""
        if self.people:
            for number, name in kind.weights.items():
                tally, clipped = kind.tallies[kind.numbers.index(number)], np.zeros(len(self.stays), np.int64)
                self.totals[f"total {number}"] = tally, frame[name].to_numpy(), clipped
            kind = replace(kind, weights={number: f"total {number}" for number in kind.weights})
        self.kinds.append(kind)

    def asked(self, at: Ints) -> Asked:
        """Return what is kept of some rows."""
        evidence = None if self.evidence is None else self.evidence[at]
        if not self.people:
            return Asked(self.limits, evidence)
        return Asked(self.limits, evidence, np.zeros(len(at), np.uint8) if self.codes is None else self.codes[at])

    def mark(self, at: Ints, stays: Stays) -> None:
        """Mark what stays of some rows; where people count, these get a person's total in a group and code."""
        rows = at[stays.rows]
        self.stays[rows] = True
        if stays.whose is None:
            return
        seen = np.flatnonzero(stays.whose >= 0)
        for tally, weights, clipped in self.totals.values():
            assert tally.weighing is not None
            totals = np.zeros(len(at), np.int64)
            np.add.at(totals, stays.whose[seen], weights[at[seen]].astype(np.int64, copy=False))
            clipped[rows] = np.clip(totals[stays.whose[stays.rows]], *tally.weighing.of_person)


def _choices(kinds: Sequence[Kind], frame: pl.DataFrame) -> list[_Choice]:
    """Return the kinds, those together that keep the same rows."""
    found: dict[object, _Choice] = {}
    evidence: dict[str | None, Marks | None] = {None: None}
    codes: dict[str | None, NDArray[np.unsignedinteger] | None] = {None: None}
    for kind in kinds:
        tally, code = kind.tallies[0], kind.code
        if code not in evidence:
            marks = frame.select(kind.is_evidence).to_series()
            evidence[code] = None if marks.all() else marks.to_numpy()
        if tally.people and code not in codes:
            codes[code] = frame[str(code)].to_numpy() if kind.layout.code_bits else None
        own_codes = codes[code] if tally.people else None
        # Codes matter where people count; otherwise the evidence alone does, and nothing where that is all rows.
        key = (tally.limits, tally.people, None if evidence[code] is None and own_codes is None else code)
        if key not in found:
            stays = np.zeros(frame.height, bool)
            found[key] = _Choice(tally.limits, tally.people, evidence[code], own_codes, stays)
        found[key].join(kind, frame)
    return list(found.values())


def weight_name(number: int) -> str:
    """Return the column that holds the weights of a tally, or their sums."""
    return f"weight {number}"
