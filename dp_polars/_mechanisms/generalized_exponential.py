"""Selection by scores that have public sensitivities of their own (Raskhodnikova & Smith 2016, arXiv 1504.07912).

Row i has the score q_i, which one person moves by at most the public D_i. With c_i = (best q) − q_i + t·D_i it is raced
by the score s_i = −max_j (c_i − c_j)/(D_i + D_j), which is at most 0, and 0 for the row with the least c. Its
sensitivity is 1, and R = 2 (`docs/proofs/ranges.md`, Theorem 3).

t is public: it depends on the rate and on how many rows a group offers. If s_i >= −a for a <= t, then
q_i >= q_j − 2·t·D_j for every j, because c_i <= c_j + a·(D_i + D_j). The t here is the a that is missed with a
probability of at most BETA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dp_polars._base.column_types import float_of
from dp_polars._base.rng import difference, owners, starts
from dp_polars._mechanisms.racing import Blocks, ExactBlocks, race

if TYPE_CHECKING:
    from dp_polars._base.column_types import Exact
    from dp_polars._base.rng import Ints, WordSource
    from dp_polars._mechanisms.racing import Floats, RacingLaw


BETA = 0.05
# Every row is compared with every other one of its group.
MOST_ROWS = 4096

# Pairs whose temporaries stay in the cache.
_PAIRS = 1 << 17
# Bits of t: its product with either half of a float is a float.
_T_BITS = 20
_LOW_HALF = np.uint64(2**27 - 1)
# Between these nothing overflows, and what underflows does not change the sum.
_SMALLEST, _LARGEST = 2.0**-900, 2.0**900


@dataclass(frozen=True)
class OwnSensitivities:
    """The rows that may win, group after group; no group is empty.

    Parameters
    ----------
    scores, sensitivities
        Shape (n,): all finite; the sensitivities above 0.
    counts
        Shape (g,): rows of each group, from 1 to MOST_ROWS.
    unit
        The unit of the sensitivities in that of the scores.
    lowest
        Whether the lowest score is the best.
    """

    scores: Exact
    sensitivities: Exact
    counts: Ints
    unit: Fraction
    lowest: bool

    def best(self, rate: Fraction, law: RacingLaw, words: WordSource) -> Ints:
        """Return the row that wins, for each group: a position among all rows."""
        weights = self._weights(rate, law)

        def exact(group: int) -> ExactBlocks:
            return self._exact_gaps(group, weights[group]).__getitem__, [1] * int(self.counts[group])

        return race(Blocks(self.gaps(rate, law), self.begins, exact), rate, law, words).blocks

    @cached_property
    def begins(self) -> Ints:
        return starts(self.counts)

    @cached_property
    def best_scores(self) -> Exact:
        best: Exact = (np.minimum if self.lowest else np.maximum).reduceat(self.scores, self.begins)
        return best

    def gaps(self, rate: Fraction, law: RacingLaw) -> Floats:
        """Return how far each row's score s is from the best one, which is 0: as `racing.Blocks.gaps` wants it.

        With u = 2**-53: c, of two floats, is off by at most 2**-100·c, as no term is negative. Its lower half is at
        most u·c. So the difference of two, in three operations, is off by at most 3u of itself and 2**-98 of the larger
        c. The sum of the sensitivities, the quotient and the unit add 5u: 2**-49.9 of the gap, and 2**-97·c_i/D_i.
        Where the latter is not small, the gap is found in exact numbers.
        """
        weights, owner = self._weights(rate, law), owners(self.counts)
        sensitivities, best = _double(self.sensitivities), self.best_scores[owner]
        high, low = (self.scores, best) if self.lowest else (best, self.scores)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            c = _add(_double_difference(high, low), _times(weights[owner], sensitivities))
            gaps = _largest_quotients(c, sensitivities[0], self.counts)
            slack = c[0] / sensitivities[0] * 2.0**-97
            sure = (slack <= gaps * 2.0**-50) | (slack * float_of(rate / self.unit) <= 2.0**-46)
            for magnitude in (c[0], sensitivities[0]):
                sure &= (magnitude >= _SMALLEST) & (magnitude <= _LARGEST)
            gaps *= float_of(1 / self.unit)
            sure &= np.isfinite(gaps)
        for group in np.unique(owner[~sure]).tolist():
            exact = self._exact_gaps(group, weights[group])
            begin, end = int(self.begins[group]), int(self.begins[group] + self.counts[group])
            for row in np.flatnonzero(~sure[begin:end]).tolist():
                gaps[begin + row] = float_of(exact[row])
        return gaps

    def _weights(self, rate: Fraction, law: RacingLaw) -> Floats:
        """Return t of each group, in units of scores over those of sensitivities: floats of few bits."""
        sizes, position = np.unique(np.maximum(self.counts, 2), return_inverse=True)
        error = np.array([law.log_odds(int(size), BETA) for size in sizes])
        with np.errstate(over="ignore", divide="ignore"):
            wanted = np.clip(error / float_of(rate / self.unit), 2.0**-1000, 2.0**1000)
        mantissa, exponent = np.frexp(wanted)
        weights: Floats = np.ldexp(np.rint(mantissa * 2**_T_BITS), exponent - _T_BITS)
        return weights[position]

    def _exact_gaps(self, group: int, weight: float) -> _ExactGaps:
        start = int(self.begins[group])
        rows = range(start, start + int(self.counts[group]))
        best, t = Fraction(self.best_scores.item(group)), Fraction(weight)
        sensitivities = [Fraction(self.sensitivities.item(row)) for row in rows]
        scores = (Fraction(self.scores.item(row)) for row in rows)
        c = [abs(best - score) + t * sensitivity for score, sensitivity in zip(scores, sensitivities, strict=True)]
        return _ExactGaps(c, sensitivities, self.unit)


@dataclass(frozen=True)
class _ExactGaps:
    """The gaps of one group, each found when it is asked for."""

    c: list[Fraction]
    sensitivities: list[Fraction]
    unit: Fraction

    def __getitem__(self, row: int) -> Fraction:
        c, sensitivity = self.c[row], self.sensitivities[row]
        return max((c - other) / (sensitivity + weight) for other, weight in self._distinct) / self.unit

    @cached_property
    def _distinct(self) -> set[tuple[Fraction, Fraction]]:
        return set(zip(self.c, self.sensitivities, strict=True))


def _largest_quotients(c: _Double, sensitivities: Floats, counts: Ints) -> Floats:
    """Return the largest (c_i − c_j)/(D_i + D_j) over all j of its group, for each row i: at least 0."""
    out, begins = np.empty(len(sensitivities)), starts(counts)
    for groups in _of_like_size(counts):
        width = int(counts[groups[0]])
        is_there = np.arange(width) < counts[groups, None]
        at = np.where(is_there, begins[groups, None] + np.arange(width), begins[groups, None])
        # A row that is not there is infinitely far.
        high, low, weights = np.where(is_there, c[0][at], np.inf), c[1][at], sensitivities[at]
        step = max(1, _PAIRS // (width * len(groups)))
        for row in range(0, width, step):
            some = slice(row, row + step)
            quotient = high[:, some, None] - high[:, None]
            quotient += low[:, some, None] - low[:, None]
            quotient /= weights[:, some, None] + weights[:, None]
            rows_there = is_there[:, some]
            out[at[:, some][rows_there]] = quotient.max(axis=2)[rows_there]
    return out


def _of_like_size(counts: Ints) -> Iterator[Ints]:
    """Yield all groups in batches, the largest first, of about as many pairs as `_PAIRS`, or one group."""
    order, done = np.argsort(-counts, kind="stable"), 0
    while done < len(order):
        most = max(1, _PAIRS // int(counts[order[done]]) ** 2)
        yield order[done : done + most]
        done += most


# A number as the sum of two floats, of which the second is at most half a unit in the last place of the first.
_Double: TypeAlias = "tuple[Floats, Floats]"


def _two_sum(a: Floats, b: Floats) -> _Double:
    """Return the sum of two floats, exactly (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _add(a: _Double, b: _Double) -> _Double:
    high, low = _two_sum(a[0], b[0])
    return _two_sum(high, low + (a[1] + b[1]))


def _times(t: Floats, factor: _Double) -> _Double:
    """Return the product with floats of few bits: with halves of the first float exactly."""
    upper = (factor[0].view(np.uint64) & ~_LOW_HALF).view(np.float64)
    high, low = _two_sum(t * upper, t * (factor[0] - upper))
    return _two_sum(high, low + t * factor[1])


def _double_difference(high: Exact, low: Exact) -> _Double:
    """Return high − low where it is not negative."""
    if high.dtype.kind == "f":
        return _two_sum(high, -low)
    if high.dtype.kind == "O":
        exact = np.empty(len(high), object)
        exact[:] = [Fraction(a) - Fraction(b) for a, b in zip(high, low, strict=True)]
        return _double(exact)
    return _double(difference(high, low))


def _double(numbers: Exact) -> _Double:
    """Return numbers of at least 0, exactly where they have 64 bits."""
    if numbers.dtype.kind == "f":
        return numbers.astype(np.float64), np.zeros(len(numbers))
    if numbers.dtype.kind == "O":
        high = np.array([float_of(number) for number in numbers], np.float64)
        finite = [Fraction(a) if math.isfinite(a) else Fraction(0) for a in high.tolist()]
        low = np.array([float_of(Fraction(number) - a) for number, a in zip(numbers, finite, strict=True)], np.float64)
        return high, low
    wide = numbers.astype(np.uint64)
    low = (wide & np.uint64(2**32 - 1)).astype(np.float64)
    return _two_sum((wide >> np.uint64(32)).astype(np.float64) * 2.0**32, low)
