"""Lists of quantiles: trees of draws, and the cells that they divide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.numbers import (
    Ints,
    Rng,
    begin_runs,
    joined,
    lengths_from,
    offsets,
    owners,
    positions,
    ranks_of_marks,
    run_starts,
    slices,
    starts,
    system_rng,
)
from dp_polars._base.silence import in_parallel
from dp_polars._mechanisms.drawing import Draw, draw_from_slots, far_gap, near_ranks
from dp_polars._mechanisms.histograms import Histogram, QuantileScore, Runs, Slots, merged_quantile_slots
from dp_polars._mechanisms.racing import RacingLaw

Bits = NDArray[np.uint8]

# Digits are the leading bits of 32.
MOST_BITS = 32
# A cell is halved while it has more rows than this plus twice the wanted ones. Halving costs an eighth of a byte a row,
# drawing costs a digit and its place in a sort.
_ROWS_LEFT_WHOLE = 32
# Random bytes per batch.
_CHUNK = 1 << 22
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)


@dataclass(frozen=True)
class Cells:
    """The cells of each group with rows, ascending."""

    # Shape (n,): the first pair, log2 of the number of pairs, and the number of rows, at least 1.
    codes: Ints
    bits: Bits
    counts: Ints
    sizes: Ints  # shape (g,): cells of each group (may be 0)

    @classmethod
    def of_values(cls, values: Ints, counts: Ints, sizes: Ints, bits: int) -> Cells:
        """Return the cells of a histogram of values, each of 2**bits pairs."""
        return cls(values << bits, np.full(len(values), bits, np.uint8), counts, sizes)

    @property
    def totals(self) -> Ints:
        return np.diff(offsets(self.counts)[offsets(self.sizes)])

    def at(self, positions: Ints | slice, sizes: Ints) -> Cells:
        return Cells(self.codes[positions], self.bits[positions], self.counts[positions], sizes)

    def part(self, first: int, stop: int) -> Cells:
        ends = offsets(self.sizes)
        return self.at(slice(ends[first], ends[stop]), self.sizes[first:stop])

    def cut(self, codes: Ints) -> tuple[Cells, Cells]:
        """Return the cells of each group up to a pair, shape (g,), and those beyond. No cell has the pair inside."""
        upto = ranks_of_marks(self.codes <= np.repeat(codes, self.sizes))
        begins = starts(self.sizes)
        sizes = upto[begins + self.sizes] - upto[begins]
        rest = self.sizes - sizes
        return self.at(positions(begins, sizes), sizes), self.at(positions(begins + sizes, rest), rest)

    def by_value(self, bits: int) -> Cells:
        """Return one cell of one pair, the value itself, for each value."""
        if not len(self.codes):
            return self
        values = self.codes >> bits
        new = begin_runs(values)
        new[starts(self.sizes)[self.sizes > 0]] = True
        at, upto = np.flatnonzero(new), ranks_of_marks(new)
        ends = offsets(self.sizes)
        counts = np.add.reduceat(self.counts, at)
        return Cells(values[at], np.zeros(len(at), np.uint8), counts, np.diff(upto[ends]))

    def replaced(self, groups: Mapping[int, Cells]) -> Cells:
        parts, done = [], 0
        for group, cells in sorted(groups.items()):
            parts += [self.part(done, group), cells]
            done = group + 1
        return joined([*parts, self.part(done, len(self.sizes))])

    def drawn(self, low: Ints, high: Ints, rng: Rng) -> tuple[Cells, Ints, Ints]:
        """Return cells of one pair for each group's rows of the ranks from `low` up to, but not including, `high`.

        `cells`: the same rows, in smaller cells at these ranks. Rows of one pair are one cell.
        `begin`, `end`: shape (g,): the range in `cells` of the cells at these ranks.
        """
        running, begins = np.cumsum(self.counts), starts(self.totals)
        first = np.searchsorted(running, begins + low, side="right")
        stop = np.where(high > low, np.searchsorted(running, begins + high, side="left") + 1, first)
        inside = positions(first, stop - first)
        if not self.bits[inside].any():
            return self, first, stop
        group, counts = owners(stop - first), self.counts[inside]
        low, high = begins + low, begins + high
        codes, bits, ranks = self.codes[inside], self.bits[inside], running[inside] - counts
        window = _Window(codes, bits, counts, ranks, group, low[group], high[group])
        codes, bits, counts, owner, before, wanted = window.halved(rng).with_digits(rng)
        sizes, number = np.bincount(owner, minlength=len(low)), len(self.codes)
        # For each group: the cells before these ranks, the new ones, and the cells after them.
        old = starts(self.sizes)
        lengths = np.stack([first - old, sizes, old + self.sizes - stop], axis=1)
        places = positions(np.stack([old, number + starts(sizes), stop], axis=1).ravel(), lengths.ravel())
        both = joined([self, Cells(codes, bits, counts, sizes)])
        cells = both.at(places, lengths.sum(axis=1))
        begin = starts(cells.sizes) + lengths[:, 0] + np.bincount(owner[before], minlength=len(low))
        return cells, begin, begin + np.bincount(owner[wanted], minlength=len(low))


@dataclass(frozen=True)
class _Window:
    # As of `Cells`, of many groups.
    codes: Ints
    bits: Bits
    counts: Ints
    # Shape (n,): the rank of the first row among the rows of all groups, and the group of the cell.
    ranks: Ints
    group: Ints
    # Shape (n,): the wanted ranks in that group.
    low: Ints
    high: Ints

    def at(self, positions: Ints) -> _Window:
        return _Window(*(getattr(self, column.name)[positions] for column in fields(self)))

    def wanted(self) -> Ints:
        upto = np.minimum(self.ranks + self.counts, self.high)
        wanted: Ints = np.maximum(upto - np.maximum(self.ranks, self.low), 0)
        return wanted

    def are_large(self) -> NDArray[np.bool_]:
        """Return which cells to halve: those with far more rows than wanted ones."""
        wanted = self.wanted()
        large: NDArray[np.bool_] = self.counts > 2 * wanted + _ROWS_LEFT_WHOLE
        return large & (wanted > 0) & (self.bits > 0)

    def halved(self, rng: Rng) -> _Window:
        """Return smaller cells, until none is large. At first only a group's outermost cells may be large."""
        large = self.are_large()
        if not large.any():
            return self
        parts, window = [self.at(np.flatnonzero(~large))], self.at(np.flatnonzero(large))
        while len(window.codes):
            heads, bits = _binomial_halves(window.counts, rng), window.bits - np.uint8(1)
            second = window.codes + (np.int64(1) << bits.astype(np.int64))
            halves = _Window(
                _in_turn(window.codes, second),
                _in_turn(bits, bits),
                _in_turn(heads, window.counts - heads),
                _in_turn(window.ranks, window.ranks + heads),
                *(np.repeat(column, 2) for column in (window.group, window.low, window.high)),
            )
            large = halves.are_large()
            parts.append(halves.at(np.flatnonzero(~large & (halves.counts > 0))))
            window = halves.at(np.flatnonzero(large))
        every = joined(parts)
        return every.at(np.argsort(every.ranks, kind="stable"))

    def with_digits(self, rng: Rng) -> tuple[Ints, Bits, Ints, Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the codes, bits and counts of cells, with one pair each at the wanted rows.

        Also return each cell's group, whether it is before the wanted ranks, and whether it is at them.
        """
        wanted = self.wanted() > 0
        split = np.flatnonzero(wanted & (self.bits > 0))
        rows, bits = self.counts[split], self.bits[split]
        total, width = int(rows.sum()), np.int64(bits.max(initial=0))
        digits = rng(total // 2 + 1).view(np.uint32)[:total] >> np.repeat(np.uint32(MOST_BITS) - bits, rows)
        keys = np.repeat(np.arange(len(split)) << width, rows) + digits.astype(np.int64)
        keys.sort()
        new = run_starts(keys)
        keys = keys[new]
        # A cell is divided into its rows' pairs, or stays one.
        pieces = np.ones(len(wanted), np.int64)
        pieces[split] = np.bincount(keys >> width, minlength=len(split))
        origin = owners(pieces)
        at = positions(starts(pieces)[split], pieces[split])
        made_codes, made_bits, made_counts = self.codes[origin], self.bits[origin], self.counts[origin]
        made_codes[at] += keys & ((np.int64(1) << width) - 1)
        made_bits[at], made_counts[at] = 0, lengths_from(new, total)
        before = self.ranks + self.counts <= self.low
        return made_codes, made_bits, made_counts, self.group[origin], before[origin], wanted[origin]


def _in_turn(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    return np.stack([first, second], axis=1).ravel()


def _binomial_halves(counts: Ints, rng: Rng) -> Ints:
    """Return the number of heads among n fair coins, exactly, for each n of `counts` (at least 1)."""
    bounds = offsets((counts + 7) // 8)
    last = bounds[1:] - 1
    masks = (np.uint8(255) >> ((8 - counts % 8) % 8).astype(np.uint8)).astype(np.uint8)
    heads = np.zeros(len(counts), np.int64)
    for start in range(0, int(bounds[-1]), _CHUNK):
        stop = min(start + _CHUNK, int(bounds[-1]))
        coins = rng((stop - start + 7) // 8).view(np.uint8)[: stop - start]
        ending = slice(*np.searchsorted(last, [start, stop]))
        coins[last[ending] - start] &= masks[ending]
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        beyond = int(np.searchsorted(bounds, stop))
        cuts = np.maximum(bounds[first:beyond] - start, 0)
        heads[first:beyond] += np.add.reduceat(_ONES[coins], cuts, dtype=np.int64)
    return heads


# Cells, and groups with or without rows, per slice of a thread.
_SLICE_CELLS = 1 << 19
_SLICE_GROUPS = 1 << 16
# The bits of a second digit; fewer if the value needs them (62 bits in all). More bits would make answers with a large
# error, which are rare, more likely. With fewer, more rows have equal digits: now one in 2**20 rows of one value.
_DIGIT_BITS = 20
_PAIR_BITS = 62


@dataclass(frozen=True)
class Node:
    """One quantile of the list: its index, its level within its part of the rows, and the nodes of the two parts."""

    index: int
    alpha: Fraction
    left: Node | None
    right: Node | None

    @property
    def splits(self) -> bool:
        """Whether others are drawn from the rows on its sides."""
        return self.left is not None or self.right is not None

    @property
    def score_range(self) -> int:
        """R of one row that is added or removed, in the units of this node's gaps."""
        return int(QuantileScore(self.alpha).range("add_or_remove_one"))

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes from here on, each before those of its parts."""
        yield self
        for child in (self.left, self.right):
            if child is not None:
                yield from child.nodes()


def levels_of(count: int) -> int:
    """Return ⌈log₂(count + 1)⌉: the number of levels in a tree of `count` quantiles."""
    return count.bit_length()


def tree(alphas: Sequence[Fraction]) -> Node:
    """Return the tree of ascending quantiles strictly between 0 and 1, with as few levels as possible.

    The top of each part is the quantile nearest to its middle that allows this: it has the smallest range. The
    α-quantile of all rows is the (α − a)/(b − a)-quantile of those between the a- and the b-quantile.
    """

    def of(first: int, last: int, low: Fraction, high: Fraction) -> Node | None:
        if first == last:
            return None
        most = 2 ** (levels_of(last - first) - 1) - 1  # on one side
        tops = range(max(first, last - 1 - most), min(last - 1, first + most) + 1)
        parts = {top: (alphas[top] - low) / (high - low) for top in tops}
        top = min(tops, key=lambda i: abs(parts[i] - Fraction(1, 2)))
        return Node(top, parts[top], of(first, top, low, alphas[top]), of(top + 1, last, alphas[top], high))

    root = of(0, len(alphas), Fraction(0), Fraction(1))
    assert root is not None, "there is a quantile"
    return root


def digit_bits(size: int) -> int:
    return min(_DIGIT_BITS, _PAIR_BITS - size.bit_length())


def rows_off(root: Node, size: int, rate: Fraction, law: RacingLaw, beta: float) -> float:
    """Return a bound on how many rows any answer of a list is off, with a probability of at least 1 − `beta`.

    `docs/proofs/quantiles.md`, Theorem 3. Rows with equal digits are left out: one in 2**20 of the rows of one value.
    """
    beta_of_draw = beta / sum(1 for _ in root.nodes())

    def worst(node: Node, low: float, high: float) -> float:
        candidates = size << digit_bits(size) if node.splits else size
        draw_error = law.log_odds(candidates, beta_of_draw) / float(rate / node.score_range) / node.alpha.denominator
        share = float(node.alpha)
        error = (1 - share) * low + share * high + draw_error
        left = 0.0 if node.left is None else worst(node.left, low, error + 1)
        right = 0.0 if node.right is None else worst(node.right, error + 1, high)
        return max(error, left, right)

    return worst(root, 0.0, 0.0)


@dataclass(frozen=True)
class TreeDraw:
    root: Node
    size: int  # number of values
    bits: int  # bits of a second digit
    rate: Fraction  # for a score of range 1: a node with range R draws at rate/R
    law: RacingLaw
    rng: Callable[[], Rng] = system_rng

    def of(self, node: Node) -> Draw:
        size = self.size << self.bits if node.splits else self.size
        rate = self.rate / node.score_range
        return Draw(size, QuantileScore(node.alpha), rate, self.law, self.rng)

    def groups(self, histogram: Histogram) -> Ints:
        """Return the values of each group's list, shape (g, quantiles); ascending, also for a group without rows."""
        number = sum(1 for _ in self.root.nodes())
        # Rows near a quantile that splits get a cell each.
        near_rows = sum(2 * far_gap(self.of(node), node.alpha) // node.alpha.denominator for node in self.root.nodes())
        cells = np.minimum(histogram.totals, histogram.sizes + min(near_rows, 2**62))

        def of_slice(first: int, last: int) -> Ints:
            part = histogram.part(first, last)
            values = np.empty((last - first, number), np.int64)
            lowest = np.zeros(last - first, np.int64)
            of_values = Cells.of_values(part.codes, part.weights, part.sizes, self.bits)
            self._draw(self.root, of_values, lowest, lowest + ((self.size << self.bits) - 1), values)
            return values

        parts = in_parallel(of_slice, list(slices(cells, _SLICE_CELLS, _SLICE_GROUPS)))
        return np.concatenate([np.empty((0, number), np.int64), *parts])

    def _draw(self, node: Node, cells: Cells, low: Ints, high: Ints, values: Ints) -> None:
        """Fill in the values of a node and those below it, from the rows between two pairs of each group."""
        if not node.splits:
            codes, _ = _draw_one(self.of(node), cells.by_value(self.bits), low >> self.bits, high >> self.bits)
            values[:, node.index] = codes
            return
        codes, cells = _draw_one(self.of(node), cells, low, high)
        values[:, node.index] = codes >> self.bits
        # An answer is a candidate on both sides, so neither side is ever without one.
        left, right = cells.cut(codes)
        if node.left is not None:
            self._draw(node.left, left, low, codes, values)
        if node.right is not None:
            self._draw(node.right, right, codes, high, values)


def _draw_one(draw: Draw, cells: Cells, low: Ints, high: Ints) -> tuple[Ints, Cells]:
    """Draw a quantile of each group within its rows, from `low` to `high`; return also the cells known by then.

    Rows near the quantile get their digits. All others stay out of the race unless floats leave it undecided. Then the
    digits of the whole group are drawn.
    """
    alpha, rng = draw.score.ranks, draw.rng()
    assert alpha is not None, "it is a quantile"
    first, last = near_ranks(cells.totals, alpha, far_gap(draw, alpha))
    cells, begin, end = cells.drawn(first, last, rng)
    ends = np.cumsum(cells.sizes)
    codes = cells.codes if len(cells.codes) else low
    # If nothing is left out, any valid index is right.
    least = np.where(begin > ends - cells.sizes, codes[np.minimum(begin, len(codes) - 1)], low)
    most = np.where(end < ends, codes[end - 1], high)
    runs = _runs(cells, begin, end)
    known: dict[int, Cells] = {}

    def complete(group: int) -> Slots:
        if group not in known:
            group_cells = cells.part(group, group + 1)
            known[group] = group_cells.drawn(np.zeros(1, np.int64), group_cells.totals, rng)[0]
        group_cells = known[group]
        every = _runs(group_cells, np.zeros(1, np.int64), group_cells.sizes)
        return merged_quantile_slots(every, alpha, low[[group]], high[[group]] + 1)

    slots = merged_quantile_slots(runs, alpha, least, most + 1)
    code, offset = draw_from_slots(draw, slots, (least - low) + (high - most), complete)
    return code + offset, cells.replaced(known) if known else cells


def _runs(cells: Cells, begin: Ints, end: Ints) -> Runs:
    """Return the histogram of the cells from `begin` up to `end` of each group; each cell must have one pair."""
    sizes, totals = end - begin, cells.totals
    at = positions(begin, sizes)
    upto = np.cumsum(cells.counts)[at] - np.repeat(starts(totals), sizes)
    return Runs(cells.codes[at], upto - cells.counts[at], upto, sizes, totals)
