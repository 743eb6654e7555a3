r"""The joint exponential mechanism of top-k: one draw among all sequences of k distinct candidates.

Gillenwater, Joseph, Muñoz Medina & Ribero 2022 (arXiv 2201.12333). With c₁ >= c₂ >= … the counts in descending order,
the sequence s scores −max_j (c_j − c(s_j)), minus its *error*: the largest count that it misses. Error 0 always exists.

Sequences are drawn in blocks. With n_j(e) the number of candidates whose count is c_j − e or more, a sequence errs by
at most e where its j-th element, for every j, is one of n_j(e) candidates: the first ones of the order, so
n_1(e) <= n_2(e) <= …, and there are N(e) = ∏_j (n_j(e) − j) such sequences, j from 0.

An error is 0, or c_t − c for some rank t and some count c below c_t: a *step* (t, c). Its block holds the sequences of
error e = c_t − c whose element at t is the first one that attains the error. Before t, elements come from the n_j(e⁻)
candidates with counts above c_j − e; at t from the m(c) candidates with the count c, none of which is used yet, as
those before t have counts above c_j − e >= c; after t from the n_j(e):

    Q(t, c) = ∏_{j<t} (n_j(e⁻) − j) · m(c) · ∏_{j>t} (n_j(e) − j).

All blocks together are all sequences, each once. With the steps in the order of e, and of descending t within one
error, each of them multiplies the running product N by (n_t(e) − t)/(n_t(e⁻) − t), and Q is what it adds to it: so
Q = N·m(c)/(n_t(e⁻) − t), N before the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dp_polars._base.arrays import Ints, owners, positions, slices, starts
from dp_polars._base.words import uniform_below
from dp_polars._draws.ranking import Ranking, free_place, stable_order
from dp_polars._mechanisms import exact_race
from dp_polars._mechanisms.laws import LAWS
from dp_polars._mechanisms.racing import V_STEP, exponents_of, leading_bits

if TYPE_CHECKING:
    from dp_polars._base.words import WordSource
    from dp_polars._draws.drawing import Draw
    from dp_polars._draws.histograms import Histogram
    from dp_polars._mechanisms.laws import Floats

# Steps whose temporaries are held at a time, unless one group has more.
_STEPS = 1 << 19
# What each term of an arrival time may be off by, relative, with room to spare: NumPy's log and log1p are accurate to 4
# units in the last place.
_SLACK = 2.0**-46
# What a logarithm may be off by, relative: 16 times as much.
_LOG_SLACK = 2.0**-46


@dataclass(frozen=True)
class _Steps:
    """The blocks of some groups: in each group the block of error 0 first, then its steps by error.

    Parameters
    ----------
    ranks, levels
        Shape (n,): the rank t from 0, and the level of its count among those of the ranking; −1 for error 0.
    errors
        Shape (n,).
    sizes
        Shape (g,): blocks of each group.
    top
        Shape (g, k): the counts c_j.
    """

    ranking: Ranking
    ranks: Ints
    levels: Ints
    errors: Ints
    sizes: Ints
    top: Ints

    @classmethod
    def of(cls, ranking: Ranking, k: int) -> _Steps:
        """Return the blocks of these groups."""
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
        """Group of each block."""
        return owners(self.sizes)

    def log_multiplicities(self) -> tuple[Floats, float]:
        """Return ln Q of each block, and how much they may be off.

        Running products are sums of whole numbers, ln n in units of 2**-bits: what several steps multiply cancels, so
        the error is that of k logarithms, and not one for each step.
        """
        k, size = self.top.shape[1], self.ranking.size
        bits = 61 - math.ceil(k * math.log(size + 1) + 1).bit_length()
        logs = np.log(np.maximum(np.arange(size + 1), 1))
        units = np.rint(np.ldexp(logs, bits)).astype(np.int64)
        is_zero = self.ranks < 0
        # A factor's candidates before and after the step, less those that the ranks before take.
        before = np.where(is_zero, 1, self.ranking.above[self.levels] - self.ranks)
        added = np.where(is_zero, 1, self.ranking.multiplicities[self.levels])
        factors = np.where(is_zero, 0, units[np.where(is_zero, 1, before + added)] - units[before])
        begins = starts(self.sizes)
        running = np.cumsum(factors) - factors  # modulo 2**64: differences are right
        at_first = _at_least(self.ranking, self.top) - np.arange(k)
        running += np.repeat(units[at_first].sum(axis=1) - running[begins], self.sizes)
        # For n up to `size`, what a float's ln is off by, and half a unit for the rounding.
        off = (k + 2) * (2.0**-bits + _LOG_SLACK * math.log(size + 1))
        return np.ldexp(running.astype(np.float64), -bits) + logs[added] - logs[before], off

    def multiplicity(self, block: int) -> int:
        """Return Q of one block, exactly."""
        group, rank_of_step = int(self.owner[block]), int(self.ranks[block])
        part = self.ranking.part(group, group + 1)
        (widths,), _ = _widths(part, self.top[[group]], self.ranks[[block]], self.errors[[block]])
        return math.prod(width if rank == rank_of_step else width - rank for rank, width in enumerate(widths.tolist()))


def _widths(ranking: Ranking, top: Ints, ranks: Ints, errors: Ints) -> tuple[Ints, Ints]:
    """Return how many candidates each element of one block per group may be, with used ones, and their first place.

    Both are of shape (g, k).
    """
    above, upto = (_at_least(ranking, top - errors[:, None] + more) for more in (1, 0))
    rank, ranks_of_steps = np.arange(top.shape[1]), ranks[:, None]
    first = np.where(rank == ranks_of_steps, above, 0)
    return np.where(rank < ranks_of_steps, above, upto) - first, first


def _at_least(ranking: Ranking, counts: Ints) -> Ints:
    """Return how many candidates of each group have such a count or a higher one, shape (g, k)."""
    owner, begins = owners(ranking.levels), starts(ranking.levels)
    columns = [
        np.add.reduceat(np.where(ranking.counts >= column[owner], ranking.multiplicities, 0), begins)
        for column in counts.T
    ]
    return np.stack(columns, axis=1)


def draw_jointly(draw: Draw, histogram: Histogram, k: int) -> Ints:
    """Return k distinct codes per group, shape (g, k), by one exponential mechanism on all sequences of them."""
    ranking, words = Ranking.of(histogram, draw.size), draw.words()
    codes = [np.empty((0, k), np.int64)]
    for first, last in slices(ranking.levels, max(1, _STEPS // k), len(ranking.levels)):
        part = ranking.part(first, last)
        steps = _Steps.of(part, k)
        codes.append(part.codes_at(_places(steps, _race(steps, draw, words), words)))
    return np.concatenate(codes)


def _race(steps: _Steps, draw: Draw, words: WordSource) -> Ints:
    """Return the block drawn of each group: the first to arrive at ln(−ln(1 − V)) + rate·error − ln Q."""
    drawn, begins = words(len(steps.errors)), starts(steps.sizes)
    v = leading_bits(drawn)
    with np.errstate(divide="ignore"):  # infinite at either end, and rightly so
        low, high = np.log(-np.log1p(-v)), np.log(-np.log1p(-(v + V_STEP)))
    # Clipped where it is late beyond all doubt: the block of error 0 arrives long before.
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
        won = exact_race.first_arrival(
            steps.errors[blocks].tolist().__getitem__,
            [steps.multiplicity(block) for block in blocks],
            {position: int(drawn[block]) for position, block in enumerate(blocks)},
            [],
            None,
            draw.rate,
            LAWS["exponential"],
            words,
        )
        winners[group] = blocks[won]
    return winners


def _places(steps: _Steps, blocks: Ints, words: WordSource) -> Ints:
    """Return the places of a uniform sequence of one block per group, shape (g, k): element by element."""
    ranks, top = steps.ranks[blocks], steps.top
    widths, first = _widths(steps.ranking, top, ranks, steps.errors[blocks])
    places = np.empty_like(top)
    for rank in range(top.shape[1]):
        # Elements before this one lie among the candidates that it may be, but for the one that attains the error.
        free = widths[:, rank] - np.where(ranks == rank, 0, rank)
        places[:, rank] = free_place(places[:, :rank], first[:, rank], uniform_below(free, words))
    return places
