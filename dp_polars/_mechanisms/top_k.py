"""The top k candidates: in rounds, and jointly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp_polars._base.numbers import (
    Ints,
    Rng,
    lengths_from,
    offsets,
    owners,
    positions,
    run_starts,
    slices,
    starts,
    uniform_below,
)
from dp_polars._mechanisms import racing
from dp_polars._mechanisms.drawing import Draw
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.racing import LAWS, V_STEP, Blocks, ExactBlocks, Floats, exponents_of, leading_bits, race


@dataclass(frozen=True)
class Ranking:
    """All candidates of some groups in *levels* of one count, the highest first; the order of equal ones is arbitrary.

    The *place* of a candidate is its position in this order, from 0. A group's last level is its candidates without
    rows.
    """

    histogram: Histogram  # the histogram that is ranked, without zeros
    ranked: Ints  # shape (n,): the occupied codes, by group and place
    size: int  # number of candidates
    # Shape (l,): the count of each level, the number of candidates with it, and the number of the group with more.
    counts: Ints
    multiplicities: Ints
    above: Ints
    levels: Ints  # shape (g,): levels of each group

    @classmethod
    def of(cls, histogram: Histogram, size: int) -> Ranking:
        """Return the ranking of `size` candidates by a histogram of counts, none of them negative."""
        occupied = histogram.weights > 0
        if not occupied.all():
            sizes = np.bincount(owners(histogram.sizes)[occupied], minlength=len(histogram.sizes))
            histogram = Histogram(histogram.codes[occupied], histogram.weights[occupied], sizes)
        counts, sizes = histogram.weights, histogram.sizes
        owner = owners(sizes)
        order = stable_order(owner, counts.max(initial=0) - counts)
        counts = counts[order]
        first = run_starts(owner, counts) if len(counts) else np.empty(0, np.int64)
        levels = np.bincount(owner[first], minlength=len(sizes))
        rest, has_rest = np.cumsum(levels), sizes < size
        last, unoccupied = rest[has_rest], (size - sizes)[has_rest]
        return cls(
            histogram,
            histogram.codes[order],
            size,
            np.insert(counts[first], last, 0),
            np.insert(lengths_from(first, len(counts)), last, unoccupied),
            np.insert(first - starts(sizes)[owner[first]], last, sizes[has_rest]),
            levels + has_rest,
        )

    def part(self, first: int, last: int) -> Ranking:
        ends, rows = offsets(self.levels), offsets(self.histogram.sizes)
        levels = slice(ends[first], ends[last])
        histogram, ranked = self.histogram.part(first, last), self.ranked[rows[first] : rows[last]]
        counts, m, above = (column[levels] for column in (self.counts, self.multiplicities, self.above))
        return Ranking(histogram, ranked, self.size, counts, m, above, self.levels[first:last])

    def codes_at(self, places: Ints) -> Ints:
        """Return the codes of the candidates at these places, shape (g, k)."""
        sizes = self.histogram.sizes[:, None]
        begins = starts(self.histogram.sizes)[:, None]
        codes = np.empty_like(places)
        occupied = places < sizes
        codes[occupied] = self.ranked[(begins + places)[occupied]]
        group, _ = at = np.nonzero(~occupied)
        # The n-th code (from 0) without rows comes after the occupied codes with at most n such codes before them.
        nth, width = (places - sizes)[at], self.size + 1
        without_rows = self.histogram.codes - positions(0, self.histogram.sizes)
        cells = owners(self.histogram.sizes) * width + without_rows
        codes[at] = nth + np.searchsorted(cells, group * width + nth, side="right") - begins[group, 0]
        return codes


def counts_at(histogram: Histogram, codes: Ints) -> Ints:
    width = 1 + max(int(histogram.codes.max(initial=0)), int(codes.max(initial=0)))
    cells = owners(histogram.sizes) * width + histogram.codes
    wanted = np.arange(len(codes))[:, None] * width + codes
    if not len(cells):
        return np.zeros_like(codes)
    at = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
    return np.where(cells[at] == wanted, histogram.weights[at], 0)


def stable_order(groups: Ints, keys: Ints) -> Ints:
    """Return the stable order by group and key; groups are ascending, and no key is negative."""
    if not len(keys):
        return np.empty(0, np.int64)
    width, bits = int(keys.max()) + 1, len(keys).bit_length()
    if (int(groups[-1]) + 1) * width >> 63 - bits:
        return np.lexsort((keys, groups))
    # One integer contains group, key and position: sorting integers takes a fraction of the time.
    packed = (groups * width + keys) << bits | np.arange(len(keys))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def draw_in_rounds(draw: Draw, histogram: Histogram, k: int) -> Ints:
    """Return k distinct codes per group, shape (g, k): each one drawn from the remaining ones, at the draw's rate."""
    ranking, rng = Ranking.of(histogram, draw.size), draw.rng()
    begins, left = starts(ranking.levels), ranking.multiplicities.copy()
    places = np.empty((len(ranking.levels), k), np.int64)
    for turn in range(k if len(begins) else 0):
        best = np.maximum.reduceat(np.where(left > 0, ranking.counts, -1), begins)
        # The gap of an empty level is irrelevant: a block without candidates never wins.
        gaps = np.maximum(np.repeat(best, ranking.levels) - ranking.counts, 0)

        def exact(group: int, gaps: Ints = gaps) -> ExactBlocks:
            levels = slice(begins[group], begins[group] + ranking.levels[group])
            return gaps[levels].tolist().__getitem__, left[levels].tolist()

        won = race(Blocks(gaps, begins, exact, left), draw.rate, draw.law, rng).blocks
        places[:, turn] = free_place(places[:, :turn], ranking.above[won], uniform_below(left[won], rng))
        left[won] -= 1
    return ranking.codes_at(places)


def free_place(taken: Ints, first: Ints, n: Ints) -> Ints:
    """Return, for each group, the n-th place (from 0) from `first` on that is free; `taken` has shape (g, t)."""
    n = n + first - (taken < first[:, None]).sum(axis=1)
    # The number of free places before each taken one.
    free_before = np.sort(taken, axis=1) - np.arange(taken.shape[1])
    place: Ints = n + (free_before <= n[:, None]).sum(axis=1)
    return place


# Steps per batch of temporaries, unless one group has more.
_STEPS = 1 << 19
# The relative error of each term of an arrival time, with slack: NumPy's log and log1p are accurate to 4 units in the
# last place.
_SLACK = 2.0**-46
# The relative error of a logarithm: 16 times as much.
_LOG_SLACK = 2.0**-46


@dataclass(frozen=True)
class _Steps:
    """The blocks of some groups: in each group the block of error 0 first, then its steps by error."""

    ranking: Ranking
    # Shape (n,): the rank t from 0, and the level of its count among the ranking's levels; −1 for error 0.
    ranks: Ints
    levels: Ints
    errors: Ints  # shape (n,)
    sizes: Ints  # shape (g,): blocks of each group
    top: Ints  # shape (g, k): the counts c_j

    @classmethod
    def of(cls, ranking: Ranking, k: int) -> _Steps:
        groups, begins = len(ranking.levels), starts(ranking.levels)
        # The level of each rank. Ranks descend, so that the last rank comes first among equal errors.
        ranks = np.arange(k - 1, -1, -1)
        width = ranking.size + 1
        cells = owners(ranking.levels) * width + ranking.above
        level_of_rank = np.searchsorted(cells, np.arange(groups)[:, None] * width + ranks, side="right") - 1
        below = begins[:, None] + ranking.levels[:, None] - 1 - level_of_rank
        levels = positions(level_of_rank.ravel() + 1, below.ravel())
        errors = np.repeat(ranking.counts[level_of_rank].ravel(), below.ravel()) - ranking.counts[levels]
        owner = np.repeat(np.arange(groups), below.sum(axis=1))
        order = stable_order(owner, errors)
        sizes = below.sum(axis=1)
        # Error 0 comes before the others.
        zero = starts(sizes)
        ranks = np.insert(np.repeat(np.tile(ranks, groups), below.ravel())[order], zero, -1)
        return cls(
            ranking,
            ranks,
            np.insert(levels[order], zero, -1),
            np.insert(errors[order], zero, 0),
            sizes + 1,
            ranking.counts[level_of_rank[:, ::-1]],
        )

    @cached_property
    def owner(self) -> Ints:
        return owners(self.sizes)

    def log_multiplicities(self) -> tuple[Floats, float]:
        """Return ln Q of each block, and a bound on their error.

        Running products are sums of whole numbers, ln n in units of 2**-bits. Equal factors of several steps cancel. So
        the error is as large as for k logarithms, not for one per step.
        """
        k, size = self.top.shape[1], self.ranking.size
        bits = 61 - math.ceil(k * math.log(size + 1) + 1).bit_length()
        logs = np.log(np.maximum(np.arange(size + 1), 1))
        units = np.rint(np.ldexp(logs, bits)).astype(np.int64)
        is_zero = self.ranks < 0
        # A factor's candidates before and after the step, minus those of the ranks before.
        before = np.where(is_zero, 1, self.ranking.above[self.levels] - self.ranks)
        added = np.where(is_zero, 1, self.ranking.multiplicities[self.levels])
        factors = np.where(is_zero, 0, units[np.where(is_zero, 1, before + added)] - units[before])
        begins = starts(self.sizes)
        running = np.cumsum(factors) - factors  # modulo 2**64: differences are right
        at_first = _at_least(self.ranking, self.top) - np.arange(k)
        running += np.repeat(units[at_first].sum(axis=1) - running[begins], self.sizes)
        # For n up to `size`: the error of a float's ln, and half a unit for the rounding.
        off = (k + 2) * (2.0**-bits + _LOG_SLACK * math.log(size + 1))
        return np.ldexp(running.astype(np.float64), -bits) + logs[added] - logs[before], off

    def multiplicity(self, block: int) -> int:
        """Return Q of one block, exactly."""
        group, rank_of_step = int(self.owner[block]), int(self.ranks[block])
        part = self.ranking.part(group, group + 1)
        (widths,), _ = _widths(part, self.top[[group]], self.ranks[[block]], self.errors[[block]])
        return math.prod(width if rank == rank_of_step else width - rank for rank, width in enumerate(widths.tolist()))


def _widths(ranking: Ranking, top: Ints, ranks: Ints, errors: Ints) -> tuple[Ints, Ints]:
    """Return the number of candidates, used ones included, and their first place, for each element of a group's block.

    Both are of shape (g, k).
    """
    above, upto = (_at_least(ranking, top - errors[:, None] + more) for more in (1, 0))
    rank, ranks_of_steps = np.arange(top.shape[1]), ranks[:, None]
    first = np.where(rank == ranks_of_steps, above, 0)
    return np.where(rank < ranks_of_steps, above, upto) - first, first


def _at_least(ranking: Ranking, counts: Ints) -> Ints:
    """Return the number of candidates of each group with such a count or a higher one, shape (g, k)."""
    owner, begins = owners(ranking.levels), starts(ranking.levels)
    columns = [
        np.add.reduceat(np.where(ranking.counts >= column[owner], ranking.multiplicities, 0), begins)
        for column in counts.T
    ]
    return np.stack(columns, axis=1)


def draw_jointly(draw: Draw, histogram: Histogram, k: int) -> Ints:
    """Return k distinct codes per group, shape (g, k), by one exponential mechanism on all sequences of them."""
    ranking, rng = Ranking.of(histogram, draw.size), draw.rng()
    codes = [np.empty((0, k), np.int64)]
    for first, last in slices(ranking.levels, max(1, _STEPS // k), len(ranking.levels)):
        part = ranking.part(first, last)
        steps = _Steps.of(part, k)
        codes.append(part.codes_at(_places(steps, _race(steps, draw, rng), rng)))
    return np.concatenate(codes)


def _race(steps: _Steps, draw: Draw, rng: Rng) -> Ints:
    """Return the drawn block of each group: the first to arrive at ln(−ln(1 − V)) + rate·error − ln Q."""
    drawn, begins = rng(len(steps.errors)), starts(steps.sizes)
    v = leading_bits(drawn)
    with np.errstate(divide="ignore"):  # infinite at either end, as it should be
        low, high = np.log(-np.log1p(-v)), np.log(-np.log1p(-(v + V_STEP)))
    # Clipped if it is certainly too late: the block of error 0 arrives long before.
    exponents = np.minimum(exponents_of(steps.errors, draw.rate), 1e300)
    logs, off = steps.log_multiplicities()
    most = steps.top.shape[1] * math.log(draw.size + 1)
    slack = (exponents + (most + 64)) * _SLACK + off
    low += exponents - logs - slack
    high += exponents - logs + slack
    possible = np.flatnonzero(low <= np.repeat(np.minimum.reduceat(high, begins), steps.sizes))
    owner = steps.owner[possible]
    winners = np.empty(len(begins), np.int64)
    winners[owner] = possible
    for group in np.flatnonzero(np.bincount(owner) > 1).tolist():
        blocks = possible[owner == group].tolist()
        error, multiplicities = steps.errors[blocks].tolist().__getitem__, [*map(steps.multiplicity, blocks)]
        raced = dict(enumerate(drawn[blocks].tolist()))
        law = LAWS["exponential"]
        won = racing.first_arrival(error, multiplicities, raced, [], None, draw.rate, law, rng)
        winners[group] = blocks[won]
    return winners


def _places(steps: _Steps, blocks: Ints, rng: Rng) -> Ints:
    """Return the places of a uniform sequence of one block per group, shape (g, k): element by element."""
    ranks, top = steps.ranks[blocks], steps.top
    widths, first = _widths(steps.ranking, top, ranks, steps.errors[blocks])
    places = np.empty_like(top)
    for rank in range(top.shape[1]):
        # Elements before this one are among its candidates, except the one that attains the error.
        free = widths[:, rank] - np.where(ranks == rank, 0, rank)
        places[:, rank] = free_place(places[:, :rank], first[:, rank], uniform_below(free, rng))
    return places
