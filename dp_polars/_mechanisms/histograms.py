"""Histograms of weights by group and code, and the scores of candidates in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._accounting.costs import ALL
from dp_polars._accounting.terms import NeighboringRelation
from dp_polars._base.numbers import (
    Ints,
    SignedInts,
    joined,
    lengths_from,
    offsets,
    owners,
    positions,
    reduced,
    run_starts,
    slices,
    sorted_words,
    starts,
)
from dp_polars._base.silence import in_parallel

T = TypeVar("T")
# Parts of single rows: the group and the code of each row.
Rows: TypeAlias = "Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]"

# Rows, and cells of a dense histogram, per batch of a thread.
_SLICE_ROWS = 1 << 20
_SLICE_CELLS = 1 << 19
# Rows per chunk, so that temporaries stay in the cache.
_CHUNK = 1 << 17


@dataclass(frozen=True)
class Histogram:
    """Σ weight of each (group, code) with rows, ordered by group and then by code."""

    # Shape (n,): the code, and its weight (rows, people, or units of a public step).
    codes: Ints
    weights: Ints
    sizes: Ints  # shape (g,): the number of codes of each public group (may be 0)

    @classmethod
    def of_cells(
        cls, groups: NDArray[np.integer], codes: NDArray[np.integer], weights: NDArray[np.integer], number: int
    ) -> Histogram:
        """Return the histogram of pairs that are sorted by group and code."""
        sizes = np.bincount(groups, minlength=number)
        return cls(codes.astype(np.int64), weights.astype(np.int64), sizes)

    @classmethod
    def of_pairs(cls, groups: Ints, codes: Ints, weights: Ints | None, number: int) -> Histogram:
        """Return the histogram of pairs in any order; the weights of equal pairs add up (None: 1 each)."""
        width = int(codes.max(initial=0)) + 1
        fits = number * width < 2**63  # then one sort of words does, in half the time
        order = np.argsort(groups * width + codes, kind="stable") if fits else np.lexsort((codes, groups))
        groups, codes = groups[order], codes[order]
        first = run_starts(groups, codes)
        totals = lengths_from(first, len(order)) if weights is None else np.add.reduceat(weights[order], first)
        return cls.of_cells(groups[first], codes[first], totals, number)

    @classmethod
    def of_rows(cls, codes: NDArray[np.integer], weights: Ints | None, lengths: Ints, size: int) -> Histogram:
        """Return the histogram of rows, group after group; rows with the code `size` are ignored."""
        if weights is not None:
            counts = np.flatnonzero(codes < size)
            return cls.of_pairs(owners(lengths)[counts], codes[counts].astype(np.int64), weights[counts], len(lengths))
        count = cls._of_few_codes if is_dense(size, codes, lengths) else cls._of_many_codes
        return cls.joined(of_row_slices(partial(count, size=size), size, codes, lengths, _SLICE_ROWS))

    @classmethod
    def joined(cls, parts: Sequence[Histogram]) -> Histogram:
        """Return the histogram of the groups of all parts."""
        nothing = np.empty(0, np.int64)
        return joined([cls(nothing, nothing, nothing), *parts])

    @classmethod
    def _of_few_codes(cls, codes: NDArray[np.integer], lengths: Ints, size: int) -> Histogram:
        """Count with a counter for every code of every group."""
        counts = counts_of(codes, lengths, size)
        groups, occupied = np.nonzero(counts)
        return cls.of_cells(groups, occupied, counts[groups, occupied], len(lengths))

    @classmethod
    def _of_many_codes(cls, codes: NDArray[np.integer], lengths: Ints, size: int) -> Histogram:
        """Count by sorting."""
        if not len(lengths) * (size + 1) < 2**63:
            counts = np.flatnonzero(codes < size)
            return cls.of_pairs(owners(lengths)[counts], codes[counts].astype(np.int64), None, len(lengths))
        cells = np.sort(cells_of(codes, lengths, size))
        first = run_starts(cells)
        groups, occupied = np.divmod(cells[first], size + 1)
        counted = occupied < size
        return cls.of_cells(groups[counted], occupied[counted], lengths_from(first, len(cells))[counted], len(lengths))

    def with_rows_at(self, code: int, rows: int) -> Histogram:
        """Return the histogram with more rows of one code in every group; this code is the lowest, or the highest."""
        at = np.cumsum(self.sizes) if code else starts(self.sizes)
        groups = np.insert(owners(self.sizes), at, np.arange(len(self.sizes)))
        codes, weights = np.insert(self.codes, at, code), np.insert(self.weights, at, rows)
        if not len(codes):
            return self
        first = run_starts(groups, codes)
        return Histogram.of_cells(groups[first], codes[first], np.add.reduceat(weights, first), len(self.sizes))

    @property
    def totals(self) -> Ints:
        """The total weight of each group, shape (g,)."""
        return np.diff(offsets(self.weights)[offsets(self.sizes)])

    def repeated(self, times: int) -> Histogram:
        """Return the histogram of `times` copies of all groups, one copy after the other."""
        return Histogram(*(np.tile(column, times) for column in (self.codes, self.weights, self.sizes)))

    def part(self, first: int, last: int) -> Histogram:
        ends = offsets(self.sizes)
        rows = slice(ends[first], ends[last])
        return Histogram(self.codes[rows], self.weights[rows], self.sizes[first:last])


# Cells of the table in which rows are counted roughly: it stays in the cache. Each group has `_FEWEST_BINS` or more.
_BINS, _FEWEST_BINS = 1 << 16, 1 << 6
# Up to this many rows are sorted rather than counted roughly again. Rows are selected up to this part of all, 1/8.
_FEW_ROWS, _FEW_OF = 1 << 16, 8
# Up to this many public rows are added one by one.
_MOST_ADDED = 1 << 20


class SingleRows(Histogram):
    """The histogram of single rows in any order, counted on first use.

    Quantiles are drawn from the rows of the ranks near them. If few values are equal, selecting these rows is several
    times as fast as counting all values.

    Parameters
    ----------
    rows
        Parts of the rows.
    groups
        The number of groups.
    size
        The number of codes.
    """

    def __init__(self, rows: Rows, groups: int, size: int) -> None:
        self.rows, self.groups, self.size = rows, groups, size

    @cached_property
    def counted(self) -> Histogram:
        """The number of rows in each cell."""
        if (self.groups - 1).bit_length() + (self.size - 1).bit_length() > 64:
            codes, lengths = self.by_group()
            return Histogram.of_rows(codes, None, lengths, self.size)
        return Histogram.of_cells(*self._sorted(self.rows), self.groups)

    def with_rows_at(self, code: int, rows: int) -> Histogram:
        if rows * self.groups > _MOST_ADDED:
            return super().with_rows_at(code, rows)
        groups = np.repeat(np.arange(self.groups, dtype=np.min_scalar_type(self.groups)), rows)
        codes = np.full(len(groups), code, np.min_scalar_type(self.size))
        return SingleRows([*self.rows, (groups, codes)], self.groups, self.size)

    @property
    def codes(self) -> Ints:
        return self.counted.codes

    @property
    def weights(self) -> Ints:
        return self.counted.weights

    @property
    def sizes(self) -> Ints:
        return self.counted.sizes

    def by_group(self) -> tuple[NDArray[np.unsignedinteger], Ints]:
        """Return the codes group after group, and each group's number of rows."""
        lengths = np.zeros(self.groups, np.int64)
        nothing = np.empty(0, np.uint8), np.empty(0, np.uint8)
        groups, codes = (np.concatenate(column) for column in zip(nothing, *self.rows, strict=True))
        # As columns of a frame with two names: Polars 1 confuses two arrays of equal name and length in its plans.
        rows = pl.DataFrame({"group": groups, "code": codes}).group_by("group").agg("code").sort("group")
        lengths[rows["group"].to_numpy()] = rows["code"].list.len().to_numpy()
        return rows["code"].explode(empty_as_null=False).to_numpy(), lengths

    def of_group(self, group: int) -> Runs:
        """Return all runs of one group."""
        parts = [codes[groups == group].astype(np.int64) for groups, codes in self.rows]
        codes = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
        first = run_starts(codes)
        return Runs.of_counts(codes[first], lengths_from(first, len(codes)), np.array([len(first)]))

    @property
    def may_select(self) -> bool:
        """Whether `near` is faster than sorting by group."""
        return 0 < self.groups * _FEWEST_BINS <= _BINS

    def near(self, ranks: Callable[[Ints], tuple[Ints, Ints]]) -> Runs | None:
        """Return each group's runs that have a row of some ranks, and perhaps neighbouring ones.

        None: these are too many.

        `ranks`: each group's number of rows -> its first rank, and the rank after its last one.

        Rows are counted in few bins for each group. The rows in bins with these ranks stay, and are counted in
        narrower bins, until they are few.
        """
        rows, shift = self.rows, 64
        least = min((int(codes.min()) for _, codes in rows if len(codes)), default=0)
        width = max((int(codes.max()) for _, codes in rows if len(codes)), default=0) - least + 1
        base, below = np.full(self.groups, least), np.zeros(self.groups, np.int64)
        totals = first = last = below
        while shift == 64 or sum(len(codes) for _, codes in rows) > _FEW_ROWS:
            narrower = max((width - 1).bit_length() - (_BINS // self.groups).bit_length() + 1, 0)
            if narrower >= shift:  # the bins with these ranks are many
                break
            is_first, shift = shift == 64, narrower
            bins = ((width - 1) >> shift) + 1
            counts = _counted_in_bins(rows, base, shift, bins)
            upto = np.cumsum(counts, axis=1) + below[:, None]
            if is_first:
                totals = upto[:, -1].copy()
                first, last = ranks(totals)
                if (last - first).sum() * _FEW_OF > totals.sum() + _FEW_ROWS:
                    return None
            is_near = (counts > 0) & (upto > first[:, None]) & (upto - counts < last[:, None])
            low, high = is_near.argmax(axis=1), bins - is_near[:, ::-1].argmax(axis=1)
            some = np.flatnonzero(is_near.any(axis=1))
            below[some] = (upto - counts)[some, low[some]]
            if not shift:  # a bin is a code
                groups, places = np.nonzero(is_near)
                return self._of_near(groups, base[groups] + places, counts[groups, places], below, totals)
            rows = _in_bins(rows, base, shift, is_near)
            base += low << shift
            width = int(((high - low)[some] << shift).max(initial=1))
        return self._of_near(*self._sorted(rows), below, totals)

    def _sorted(self, rows: Rows) -> tuple[Ints, Ints, Ints]:
        """Return the group, the code and the number of rows of each cell, sorted."""
        bits = np.uint64((self.size - 1).bit_length())
        parts = [groups.astype(np.uint64) << bits | codes.astype(np.uint64) for groups, codes in rows]
        cells = sorted_words(np.concatenate([np.empty(0, np.uint64), *parts]))
        begins = run_starts(cells)
        found = cells[begins]
        groups, codes = found >> bits, found & ((np.uint64(1) << bits) - np.uint64(1))
        return groups.view(np.int64), codes.view(np.int64), lengths_from(begins, len(cells))

    def _of_near(self, groups: Ints, codes: Ints, counts: Ints, below: Ints, totals: Ints) -> Runs:
        """Return runs, if each group has a number of rows below its first one."""
        sizes = np.bincount(groups, minlength=self.groups)
        runs = Runs.of_counts(codes, counts, sizes)
        return Runs(codes, runs.below + below[groups], runs.upto + below[groups], sizes, totals)


def _bin_of(groups: NDArray[np.integer], codes: NDArray[np.integer], base: Ints, shift: int, bins: int) -> Ints:
    """Return the bin of each row: its code's distance from its group's base, without the last bits."""
    found = groups.astype(np.int64)
    place = codes.astype(np.int64)
    place -= base[:1] if (base == base[0]).all() else base[found]
    place >>= shift
    found *= bins
    found += place
    return found


def _counted_in_bins(rows: Rows, base: Ints, shift: int, bins: int) -> Ints:
    """Return the number of rows in each bin, shape (g, bins)."""
    total = np.zeros(len(base) * bins, np.int64)
    lock = Lock()

    def count(groups: NDArray[np.integer], codes: NDArray[np.integer]) -> None:
        counts = np.bincount(_bin_of(groups, codes, base, shift, bins), minlength=len(total))
        with lock:
            np.add(total, counts, out=total)

    in_parallel(count, rows)
    return total.reshape(len(base), bins)


def _in_bins(rows: Rows, base: Ints, shift: int, chosen: NDArray[np.bool_]) -> Rows:
    """Return the rows in chosen bins."""
    is_chosen = chosen.ravel()

    def choose(groups: NDArray[np.integer], codes: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[Any]]:
        at = np.flatnonzero(is_chosen[_bin_of(groups, codes, base, shift, chosen.shape[1])])
        return groups[at], codes[at]

    return in_parallel(choose, rows)


def is_dense(size: int, codes: NDArray[np.integer], lengths: Ints) -> bool:
    """Return whether a dense histogram, which costs its cells, is faster than a sparse one, a sort of the rows."""
    return len(lengths) * (size + 1) <= len(codes) + _SLICE_CELLS


def of_row_slices(
    work: Callable[[NDArray[Any], Ints], T], size: int, codes: NDArray[Any], lengths: Ints, rows: int
) -> list[T]:
    """Return the results of `work` on the rows of whole groups, slice by slice, in their order."""
    most = max(1, _SLICE_CELLS // (size + 1)) if is_dense(size, codes, lengths) else rows
    bounds = offsets(lengths)
    parts = list(slices(lengths, rows, most))
    return in_parallel(lambda a, b: work(codes[bounds[a] : bounds[b]], lengths[a:b]), parts)


def counts_of(codes: NDArray[np.integer], lengths: Ints, size: int) -> Ints:
    """Return the counts of the codes below `size`, shape (g, size)."""
    groups, width = len(lengths), size + 1
    if groups == 1:
        total = np.zeros(width, np.int64)
        for start in range(0, len(codes), _CHUNK):
            total += np.bincount(codes[start : start + _CHUNK], minlength=width)
        return total[None, :size]
    return np.bincount(cells_of(codes, lengths, size), minlength=groups * width).reshape(groups, width)[:, :size]


def cells_of(codes: NDArray[np.integer], lengths: Ints, size: int) -> Ints:
    """Return a number for the group and code of each row, ascending with the group and then with the code."""
    cells = np.repeat(np.arange(len(lengths)) * (size + 1), lengths)
    # NumPy adds int64 and uint64 as floats for any result type, and so rounds cells from 2**53 on.
    cells += codes.view(np.int64) if codes.dtype == np.uint64 else codes
    return cells


def _excess(rows: SignedInts, total: SignedInts, alpha: Fraction) -> SignedInts:
    """Return by how much `rows` exceeds α times all rows, in units of 1/den rows."""
    return alpha.denominator * rows - alpha.numerator * total


def _gap(below: SignedInts, upto: SignedInts, out: SignedInts | None = None) -> SignedInts:
    """Return the gap from the excess of the rows below, and of those up to the candidate."""
    gap = np.add(below, 1, out=out)
    np.maximum(gap, 0, out=gap)
    return np.maximum(gap, -upto, out=gap)


def gap_dtype(rows: int, unit: int) -> type[np.signedinteger]:
    """Return a type that fits the gaps, in units of 1/unit rows, of a group of `rows` rows."""
    return np.int32 if rows * unit < 2**31 - 1 else np.int64


@dataclass(frozen=True)
class Runs:
    """A sparse histogram: the occupied codes of each group, ascending."""

    # Shape (n,): the code, the group's rows strictly below it, and at or below it.
    codes: Ints
    below: Ints
    upto: Ints
    sizes: Ints  # shape (g,): occupied codes of each group (may be 0)
    totals: Ints  # shape (g,): rows of each group

    @classmethod
    def of_counts(cls, codes: Ints, counts: Ints, sizes: Ints) -> Runs:
        """Return the complete histogram from counts, given by group and ascending code."""
        running = offsets(counts)
        edges = running[offsets(sizes)]
        totals = np.diff(edges)
        if len(sizes) == 1:  # no row is before it
            return cls(codes, running[:-1], running[1:], sizes, totals)
        before = np.repeat(edges[:-1], sizes)
        return cls(codes, running[:-1] - before, running[1:] - before, sizes, totals)

    def nth_unoccupied(self, n: Ints) -> Ints:
        """Return, for each group, the n-th code (from 0) without a run."""
        owner = owners(self.sizes)
        passed = owner[self.codes - positions(0, self.sizes) <= n[owner]]
        return n + np.bincount(passed, minlength=len(self.sizes))


@dataclass(frozen=True)
class Slots:
    """Score blocks by group: `gaps`, `first` code and `multiplicities` of shape (n,), `sizes` of shape (g,).

    A slot contains the codes from `first` on. If `first` is −1, it contains all codes of the group in no other slot.
    """

    gaps: SignedInts
    first: SignedInts
    multiplicities: SignedInts
    sizes: Ints

    def part(self, slots: slice | NDArray[np.bool_]) -> Slots:
        m = self.multiplicities[slots]
        return Slots(self.gaps[slots], self.first[slots], m, np.array([len(m)]))

    @cached_property
    def begins(self) -> Ints:
        return starts(self.sizes)

    def of_group(self, group: int) -> Slots:
        return self.part(slice(self.begins[group], self.begins[group] + self.sizes[group]))

    def exact(self) -> tuple[Callable[[int], int], list[int]]:
        """Return the slots as `racing.ExactBlocks`."""
        return self.gaps.tolist().__getitem__, self.multiplicities.tolist()


def quantile_slots(
    runs: Runs, size: int, alpha: Fraction, low: Ints | int = 0, high: Ints | int | None = None
) -> Slots:
    """Return a slot for each occupied code and for each stretch between them.

    `low` and `high` limit the codes of each group to those from `low` up to, but not including, `high`. The runs must
    be within.
    """
    # An entry is a stretch and the run after it; the last entry of a group has no run.
    ends = np.cumsum(runs.sizes + 1)
    heads, lasts = ends - runs.sizes - 1, ends - 1
    at = positions(heads, runs.sizes)
    total = np.repeat(runs.totals, runs.sizes + 1)
    code, below, upto = np.empty_like(total), np.empty_like(total), np.empty_like(total)
    code[at], below[at], upto[at] = runs.codes, runs.below, runs.upto
    code[lasts], below[lasts], upto[lasts] = size if high is None else high, runs.totals, runs.totals

    gaps, first, m = (np.empty((len(code), 2), np.int64) for _ in range(3))
    below, upto = _excess(below, total, alpha), _excess(upto, total, alpha)
    gaps[:, 0] = _gap(below, below)
    gaps[:, 1] = _gap(below, upto)
    gaps[heads[runs.totals == 0], 0] = 0  # in a group without rows, all candidates are as good
    first[1:, 0], first[:, 1] = code[:-1], code
    first[:, 0] += 1
    first[heads, 0] = low
    m[:, 0], m[:, 1] = code, 1
    m[:, 0] -= first[:, 0]
    m[lasts, 1] = 0
    not_empty = m.ravel() > 0
    sizes = np.add.reduceat(not_empty, 2 * heads, dtype=np.int64)
    return Slots(gaps.ravel()[not_empty], first.ravel()[not_empty], m.ravel()[not_empty], sizes)


def merged_quantile_slots(runs: Runs, alpha: Fraction, low: Ints, high: Ints) -> Slots:
    """Return `quantile_slots` with neighbouring slots of one gap merged: half as many. Some are empty.

    Below the quantile an occupied code has the gap of the stretch after it, and above it that of the stretch before it.
    For below: the rows under the stretch, L, are the rows up to the code. So a slot extends from one occupied code to
    the next. `low` and `high` are as for `quantile_slots`; the runs must include the quantile's, if there is one.
    """
    owner, entries = owners(runs.sizes), runs.sizes + 2
    # For each group: the stretch before the first run, the runs, the stretch after the last one.
    ends = np.cumsum(entries)
    heads, tails = ends - entries, ends - 1
    aim = alpha.numerator * runs.totals
    of_run = aim[owner]
    below, upto = alpha.denominator * runs.below - of_run, alpha.denominator * runs.upto - of_run
    at = np.arange(len(owner)) + 2 * owner + 1
    gaps, first, stop = (np.empty(len(owner) + 2 * len(aim), np.int64) for _ in range(3))
    gaps[at], first[at] = _gap(below, upto), runs.codes
    stop[at] = runs.codes + 1
    first[heads], stop[tails] = low, high
    some = runs.sizes > 0
    begins, lasts = starts(runs.sizes)[some], np.cumsum(runs.sizes)[some] - 1
    stop[heads], first[tails] = high, high  # in a group without rows: everything, and nothing
    stop[heads[some]], first[tails[some]] = runs.codes[begins], runs.codes[lasts] + 1
    gaps[heads], gaps[tails] = 0, 1
    gaps[heads[some]], gaps[tails[some]] = np.maximum(-below[begins], 0), upto[lasts] + 1
    left, right = at[upto < 0], at[below >= 0]
    stop[left], first[right] = first[left + 1], stop[right - 1]
    return Slots(gaps, first, stop - first, entries)


def slots_of_ranks(codes: SignedInts, low: int, totals: Ints, size: int, alpha: Fraction) -> Slots:
    """Return a slot for each row of some ranks and for each stretch of codes before one, also for empty stretches.

    Among the rows of one code, all slots but one are empty.

    `codes`: shape (g, ranks), signed: the group's rows from rank `low` on, ascending; `size` after the last one.
    `totals`: shape (g,): rows of each group. The middle of each is within the ranks listed.
    """
    groups, ranks = codes.shape
    dtype = gap_dtype(max(low + ranks, int(totals.max())) + 1, alpha.denominator)
    # By how much the rows before each row, and after the last row, exceed α of all.
    excess = _excess(np.arange(low, low + ranks + 1, dtype=dtype), totals.astype(dtype)[:, None], alpha)
    below, upto = excess[:, :-1], excess[:, 1:]
    gaps = np.empty((groups, 2, ranks), dtype)
    _gap(below, below, out=gaps[:, 0])
    _gap(below, upto, out=gaps[:, 1])
    gaps[totals == 0] = 0  # in a group without rows, all candidates are as good

    first, m = np.empty_like(gaps, codes.dtype), np.empty_like(gaps, codes.dtype)
    first[:, 0, 0] = codes[:, 0] if low else 0
    np.add(codes[:, :-1], 1, out=first[:, 0, 1:])
    first[:, 1] = codes
    np.subtract(codes, first[:, 0], out=m[:, 0])
    np.maximum(m[:, 0], 0, out=m[:, 0])
    # One of several equal rows represents them: left of the middle the last one, right of it the first one, and around
    # it the one in the middle. Then the row's gap is the candidate's gap.
    left, right = upto < 0, below >= 0
    differs = codes[:, 1:] != codes[:, :-1]
    stands = ~(left | right)
    stands[:, :-1] |= left[:, :-1] & differs
    stands[:, 1:] |= right[:, 1:] & differs
    stands &= codes < size
    m[:, 1] = stands
    return Slots(gaps.ravel(), first.ravel(), m.ravel(), np.full(groups, 2 * ranks))


class Score(Protocol):
    """The quality of a candidate: everything that the kernel, the claim and the simulation need."""

    @property
    def unit(self) -> int:
        """Gaps are integers in units of 1/unit rows, at most the group's rows times `unit`."""

    @property
    def of_people(self) -> bool:
        """Whether `range` also bounds one *person's* effect, however many rows, if they count once per candidate."""

    @property
    def ranks(self) -> Fraction | None:
        """α, if a gap follows from the distance to the rank α·N, so that only rows near it matter; else None."""

    def range(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return R of one row, in the gaps' units, over `groups` groups; None: their number is unknown."""

    def same_group(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return R if another row of its group replaces a row, as a part of `range`."""

    def dense_gaps(self, counts: SignedInts) -> SignedInts:
        """Return the gaps of all candidates of some groups from their counts, both of shape (g, size)."""

    def slots(self, runs: Runs, size: int) -> Slots:
        """Return the score blocks of some groups."""


@dataclass(frozen=True)
class CountScore:
    """The count of a candidate: of rows, or of people."""

    unit = 1
    of_people = True
    ranks = None

    def range(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return Fraction(1 if relation == "add_or_remove_one" else 2)  # a replacement moves two counts in opposite ways

    def same_group(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return ALL  # two counts of one group move as far, in opposite ways

    def dense_gaps(self, counts: SignedInts) -> SignedInts:
        best: SignedInts = counts.max(axis=1, keepdims=True)
        return best - counts

    def slots(self, runs: Runs, size: int) -> Slots:
        """Return a slot for each occupied code, and one for all others of the group (its `first` is −1)."""
        counts = runs.upto - runs.below
        best = np.zeros(len(runs.sizes), np.int64)
        best[runs.sizes > 0] = reduced(np.maximum, counts, runs.sizes)
        has_rest = size > runs.sizes
        rest = np.cumsum(runs.sizes)[has_rest]
        return Slots(
            np.insert(np.repeat(best, runs.sizes) - counts, rest, best[has_rest]),
            np.insert(runs.codes, rest, -1),
            np.insert(np.ones_like(counts), rest, (size - runs.sizes)[has_rest]),
            runs.sizes + has_rest,
        )


@dataclass(frozen=True)
class QuantileScore:
    """The distance of a candidate from the lower α-quantile, in units of 1/den rows; 0 at the quantile."""

    alpha: Fraction
    of_people = False

    @property
    def unit(self) -> int:
        return self.alpha.denominator

    @property
    def ranks(self) -> Fraction:
        return self.alpha

    def range(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return R of one row; a replacement that may touch two groups has more (`docs/proofs/quantiles.md`)."""
        one = 2 * max(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)
        if relation == "add_or_remove_one":
            return Fraction(one)
        return Fraction(2 * self.alpha.denominator if groups == 1 else 2 * one)

    def same_group(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return ALL if relation == "add_or_remove_one" else self.range(relation, 1) / self.range(relation, groups)

    def dense_gaps(self, counts: SignedInts) -> SignedInts:
        upto = np.cumsum(counts, axis=1, dtype=counts.dtype)
        total = upto[:, -1:]
        upto = _excess(upto, total, self.alpha)
        below = upto - self.alpha.denominator * counts
        gaps = _gap(below, upto)
        gaps[total[:, 0] == 0] = 0  # in a group without rows, all candidates are as good
        return gaps

    def slots(self, runs: Runs, size: int) -> Slots:
        return quantile_slots(runs, size, self.alpha)
