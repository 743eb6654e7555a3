"""Several quantiles at once: each splits the rows in two, and the others are drawn from the parts.

ApproximateQuantiles (Kaplan, Schnapp & Stemmer 2022, arXiv 2110.05429): the middle quantile is drawn from all rows,
the others from the rows up to its answer, or beyond it. A row is in one part of each level, so a level costs what one
quantile does.

Answers that split rows are chosen among pairs of a value and a second digit (`_draws/cells.py`): without it, rows
equal to an answer would all go to one side. Answers that split nothing are chosen among values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dp_polars._base.arrays import Ints, positions, slices, starts
from dp_polars._base.threads import in_parallel
from dp_polars._base.words import WordSource, system_words
from dp_polars._draws.cells import Cells
from dp_polars._draws.drawing import Draw, draw_from_slots, far_gap, near_ranks
from dp_polars._draws.scores import QuantileScore, Runs, Slots, merged_quantile_slots

if TYPE_CHECKING:
    from dp_polars._draws.histograms import Histogram
    from dp_polars._mechanisms.laws import RacingLaw

# Cells that a thread holds before it takes the next groups, and groups with or without rows.
_SLICE_CELLS = 1 << 19
_SLICE_GROUPS = 1 << 16
# The number of bits of a second digit; fewer where the value needs the room (62 bits in all). More bits would make the
# few answers that are far off more likely. With fewer, more rows share a digit: now one in 2**20 rows of one value.
_DIGIT_BITS = 20
_PAIR_BITS = 62


@dataclass(frozen=True)
class Node:
    """One quantile of the list: its index, its share within its part of the rows, and the nodes of the two parts."""

    index: int
    alpha: Fraction
    left: Node | None
    right: Node | None

    @property
    def splits(self) -> bool:
        """Whether others are drawn from the rows on its sides."""
        return self.left is not None or self.right is not None

    @property
    def depth(self) -> int:
        """Number of levels from here on."""
        return 1 + max(0 if child is None else child.depth for child in (self.left, self.right))

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
    """Return ⌈log₂(count + 1)⌉: how many levels a tree of `count` quantiles needs."""
    return count.bit_length()


def tree(alphas: Sequence[Fraction]) -> Node:
    """Return the tree of ascending quantiles strictly between 0 and 1, with as few levels as possible.

    The top of each part is the quantile nearest to its middle that allows this: that one has the smallest range.
    The α-quantile of all rows is the (α − a)/(b − a)-quantile of those between the a- and the b-quantile.
    """

    def of(first: int, last: int, low: Fraction, high: Fraction) -> Node | None:
        if first == last:
            return None
        most = 2 ** (levels_of(last - first) - 1) - 1  # of one side
        tops = range(max(first, last - 1 - most), min(last - 1, first + most) + 1)
        parts = {top: (alphas[top] - low) / (high - low) for top in tops}
        top = min(tops, key=lambda i: abs(parts[i] - Fraction(1, 2)))
        return Node(top, parts[top], of(first, top, low, alphas[top]), of(top + 1, last, alphas[top], high))

    root = of(0, len(alphas), Fraction(0), Fraction(1))
    if root is None:
        msg = "unreachable: there is a quantile"
        raise AssertionError(msg)
    return root


def digit_bits(size: int) -> int:
    """Return how many bits the second digits have, with `size` candidates."""
    return min(_DIGIT_BITS, _PAIR_BITS - size.bit_length())


def rows_off(root: Node, size: int, rate: Fraction, law: RacingLaw, beta: float) -> float:
    """Return a bound on how many rows any answer of a list is off, with a probability of at least 1 − `beta`.

    Each of m draws is off by t rows or more with a probability of at most beta/m (`log_odds`). Let a draw have an error
    below t. Its split leaves a rank that is off by less than t + 1 rows, as all rows of the drawn pair go left.
    (Rows that share a digit may be more: one in 2**20 of the rows of one value, which we leave out.) A draw from the
    rows between two splits, off by a and b rows, aims at a rank that is off by (1 − α′)a + α′b.
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
    """How to draw lists of quantiles.

    Parameters
    ----------
    root
        The tree.
    size
        Number of values.
    bits
        Bits of a second digit.
    rate
        λ of a score whose range is 1: a node whose range is R draws at rate/R.
    """

    root: Node
    size: int
    bits: int
    rate: Fraction
    law: RacingLaw
    words: Callable[[], WordSource] = system_words

    def of(self, node: Node) -> Draw:
        """Return how one quantile is drawn."""
        size = self.size << self.bits if node.splits else self.size
        rate = self.rate / node.score_range
        return Draw(size, QuantileScore(node.alpha), rate, self.law, self.words)

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
            self._draw(
                self.root,
                Cells.of_values(part.codes, part.weights, part.sizes, self.bits),
                lowest,
                lowest + ((self.size << self.bits) - 1),
                values,
            )
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
    """Draw a quantile of each group from `low` to `high`, where its rows are; return also the cells then known.

    Rows near the quantile get their digits. All others are left out of the race, unless it is too close to call: then
    the digits of the whole group are drawn.
    """
    alpha, words = draw.score.ranks, draw.words()
    if alpha is None:
        msg = "unreachable: it is a quantile"
        raise AssertionError(msg)
    first, last = near_ranks(cells.totals, alpha, far_gap(draw, alpha))
    cells, begin, end = cells.drawn(first, last, words)
    ends = np.cumsum(cells.sizes)
    codes = cells.codes if len(cells.codes) else low
    # Where nothing is cut off, any valid index will do.
    least = np.where(begin > ends - cells.sizes, codes[np.minimum(begin, len(codes) - 1)], low)
    most = np.where(end < ends, codes[end - 1], high)
    runs = _runs(cells, begin, end)
    known: dict[int, Cells] = {}

    def complete(group: int) -> Slots:
        if group not in known:
            group_cells = cells.group(group)
            known[group] = group_cells.drawn(np.zeros(1, np.int64), group_cells.totals, words)[0]
        group_cells = known[group]
        every = _runs(group_cells, np.zeros(1, np.int64), group_cells.sizes)
        return merged_quantile_slots(every, alpha, low[[group]], high[[group]] + 1)

    slots = merged_quantile_slots(runs, alpha, least, most + 1)
    code, offset = draw_from_slots(draw, slots, (least - low) + (high - most), complete)
    return code + offset, cells.replaced(known) if known else cells


def _runs(cells: Cells, begin: Ints, end: Ints) -> Runs:
    """Return the histogram of the cells from `begin` up to `end` of each group, which have one pair each."""
    sizes, totals = end - begin, cells.totals
    at = positions(begin, sizes)
    upto = np.cumsum(cells.counts)[at] - np.repeat(starts(totals), sizes)
    return Runs(cells.codes[at], upto - cells.counts[at], upto, sizes, totals)
