"""Choices by the caller's own scores, floats or integers, and by scores with sensitivities of their own.

The latter use the generalized exponential mechanism (Raskhodnikova & Smith 2016, arXiv 1504.07912). Row i has the
score q_i, and one person moves it by at most the public D_i. With c_i = (best q) − q_i + t·D_i, the race uses the score
s_i = −max_j (c_i − c_j)/(D_i + D_j), of sensitivity 1 and R = 2. t is a public bound that the error exceeds with a
probability of at most BETA. It depends on the rate and on the number of rows in a group (`docs/proofs/ranges.md`,
Theorem 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_polars._accounting.claims import Claim, claim_for_scores
from dp_polars._accounting.terms import Loss, warn_if_large
from dp_polars._base import column_types
from dp_polars._base.calls import called
from dp_polars._base.column_types import Exact, float_of
from dp_polars._base.numbers import (
    Ints,
    Number,
    Rng,
    batches_of_like,
    difference,
    lengths_from,
    offsets,
    owners,
    starts,
    system_rng,
    uniform_below,
)
from dp_polars._base.silence import silenced
from dp_polars._mechanisms.noisy_gap import race_with_gap
from dp_polars._mechanisms.racing import FAR, LAWS, Blocks, ExactBlocks, Floats, GapArray, RacingLaw, race

# The number of scores from which blocks are faster than one racer each, and the most different gaps to count.
_MANY = 1 << 12
_MOST_GAPS = 1 << 20
# Gaps up to which all are counted, and gaps that fit into 8 bits.
_SMALL, _NARROW = 1 << 12, 1 << 8
# Gaps up to which a comparison each is faster than counting; the number of random positions to try first.
_FEW_GAPS = 16
_TRIES = 256


def best_integer(scores: NDArray[Any], rate: Fraction, law: RacingLaw, rng: Rng, *, lowest: bool = False) -> int | None:
    """Return the chosen position; None if scores are not integers, or one racer each is as fast.

    Only gaps of up to FAR/rate are counted. Scores beyond are raced as far candidates.
    """
    if scores.dtype.kind not in "iu" or len(scores) < _MANY:
        return None
    low, high = int(scores.min()), int(scores.max())
    top, window = low if lowest else high, math.floor(Fraction(FAR) / rate)
    if min(high - low, window) > _MOST_GAPS:
        return None
    counted, most = scores, min(high - low, window)
    if high - low < _SMALL:  # faster to count than to leave out
        most = high - low
    elif high - low > window:
        counted = scores[np.flatnonzero(scores <= top + window if lowest else scores >= top - window)]
    if counted.itemsize < 8:
        counted = counted.astype(np.int64)
    best = counted.dtype.type(top)
    counts = _counts(counted - best if lowest else best - counted, most)
    occupied = np.flatnonzero(counts[: window + 1])

    def exact(_: int) -> ExactBlocks:
        # All blocks: those of the window first, as they ascend.
        values, every = np.unique(scores, return_counts=True)
        order = slice(None) if lowest else slice(None, None, -1)
        distances = [abs(top - value) for value in values[order].tolist()]
        return distances.__getitem__, every[order].tolist()

    start = np.zeros(1, np.int64)
    blocks = Blocks(occupied, start, exact, counts[occupied], np.array([len(scores) - counts[occupied].sum()]))
    winners = race(blocks, rate, law, rng)
    gap = int(exact(0)[0](winners.left_out[0]) if winners.left_out else occupied[winners.blocks[0]])
    return _place_of(scores, top + gap if lowest else top - gap, rng)


def _place_of(scores: NDArray[Any], score: int, rng: Rng) -> int:
    """Return a uniform position of a score: the first of some random positions that has it, if any."""
    tried = uniform_below(np.full(_TRIES, len(scores)), rng)
    found = np.flatnonzero(scores[tried] == score)
    if len(found):
        return int(tried[found[0]])
    places = np.flatnonzero(scores == score)
    return int(places[uniform_below(np.array([len(places)]), rng)[0]])


def _counts(gaps: NDArray[np.integer], most: int) -> NDArray[np.int64]:
    """Return the number of gaps of each size up to `most`."""
    if most >= _NARROW:
        return np.bincount(gaps.astype(np.intp, copy=False)).astype(np.int64, copy=False)
    narrow = gaps.astype(np.uint8)
    if most < _FEW_GAPS:
        return np.array([np.count_nonzero(narrow == gap) for gap in range(most + 1)])
    # Two at a time: repeated increments of the same few counters wait for each other.
    even = len(narrow) // 2 * 2
    pairs = np.bincount(narrow[:even].view(np.uint16), minlength=_NARROW**2).reshape(_NARROW, _NARROW)
    counts: NDArray[np.int64] = pairs.sum(axis=0) + pairs.sum(axis=1)
    return counts + np.bincount(narrow[even:], minlength=_NARROW)


@called
def permute_and_flip(
    scores: ArrayLike, *, epsilon: Number, sensitivity: Number, monotonic: bool = False
) -> int | NDArray[np.int64]:
    r"""Select one candidate per row of scores by permute-and-flip: epsilon-DP, by exact sampling.

    Parameters
    ----------
    scores
        Quality scores, higher is better, shape (k,) or (g, k) with k >= 1: lists of integers and floats, NumPy arrays,
        Series, DataFrames or Arrow arrays. No score is rounded: integers of any size stay exact, also among floats and
        nulls. Their number, and which of them are finite, count as public. A candidate with a null, masked,
        NaN or infinite score can't win.
    epsilon
        The privacy loss of the release, in pure DP. For shape (g, k) it covers all g draws together, if `sensitivity`
        sums over all rows of scores that one person touches.
    sensitivity
        The most that one person can change any one score.
    monotonic
        Whether one person moves all scores in the same direction. We don't check this. The range R is then
        `sensitivity` instead of twice that. Counts are monotonic if a person is added or removed, but not if one is
        replaced: then one count falls and another rises.

    Returns
    -------
    int or ndarray
        The chosen position; for shape (g, k) an int64 array of shape (g,), one independent draw per row.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a row has no finite score.

    Notes
    -----
    McKenna & Sheldon 2020, arXiv 2010.12603: the rate is epsilon/R, and the probability of every candidate is the real
    number that Lemma 1 (Appendix A) gives for it.

    Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/race`.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> dpp.mechanisms.permute_and_flip([3, 1, 200], epsilon=1.0, sensitivity=1)
    2
    """
    loss = Loss.of(epsilon=epsilon, rho=None)
    return _select(scores, claim_for_scores(loss, "permute_and_flip", sensitivity, monotonic))


@called
def exponential_mechanism(
    scores: ArrayLike,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number,
    monotonic: bool = False,
) -> int | NDArray[np.int64]:
    r"""Select one candidate per row of scores by the exponential mechanism: epsilon-DP or rho-zCDP, by exact sampling.

    Parameters
    ----------
    scores, sensitivity, monotonic
        As for `permute_and_flip`.
    epsilon, rho
        The privacy loss of the release, in pure DP or in zero-concentrated DP: exactly one of them. By bounded range,
        rho = y − 1 − ln y with y = epsilon/(exp(epsilon) − 1). That is a little less than epsilon²/8 (Harrison &
        Manurangsi 2026, arXiv 2510.25746).

    Returns
    -------
    int or ndarray
        The chosen position; for shape (g, k) an int64 array of shape (g,), one independent draw per row.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a row has no finite score.

    Notes
    -----
    McSherry & Talwar 2007. The probability of a candidate is proportional to exp(epsilon/R · score), exactly.

    Proofs: :doc:`/proofs/exponential`, :doc:`/proofs/race`.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> dpp.mechanisms.exponential_mechanism(
    ...     [3, 1, 900], rho=0.1, sensitivity=1, monotonic=True
    ... )
    2
    """
    return _select(scores, claim_for_scores(Loss.of(epsilon=epsilon, rho=rho), "exponential", sensitivity, monotonic))


def _select(scores: ArrayLike, claim: Claim) -> int | NDArray[np.int64]:
    array, offered = silenced(column_types.exact_numbers)("scores", scores)
    if array.ndim not in (1, 2) or not array.shape[-1] >= 1:
        msg = f"scores must have shape (k,) or (g, k) with k >= 1, got {array.shape}."
        raise ValueError(msg)
    rows = np.atleast_2d(array)
    lengths = np.full(len(rows), rows.shape[1], np.int64)
    flat = None if offered is None else offered.ravel()
    warn_if_large(claim.loss)
    law = LAWS[claim.mechanism]
    chosen = silenced(best_rows)(rows.ravel(), lengths, claim.rate, law, system_rng(), offered=flat)
    if (chosen < 0).any():
        msg = "scores must have at least one finite number in every row."
        raise ValueError(msg)
    return int(chosen[0]) if array.ndim == 1 else chosen


def best_rows(
    scores: column_types.Exact,
    lengths: Ints,
    rate: Fraction,
    law: RacingLaw,
    rng: Rng,
    *,
    offered: NDArray[np.bool_] | None = None,
    lowest: bool = False,
) -> Ints:
    """Return, for each group, the position of the chosen row within it; −1 if none has a finite score.

    `scores` are those of all rows, group after group, and `lengths` the rows of each group. `offered` marks the rows
    that may win (None: all); a NaN or infinite score never wins.
    """
    rows, scores, counts = _offered(scores, lengths, offered)
    chosen = np.full(len(lengths), -1, np.int64)
    counted = best_integer(scores, rate, law, rng, lowest=lowest) if len(lengths) == 1 else None
    if counted is not None:
        chosen[0] = counted
    else:
        blocks, groups = _blocks(scores, counts, lowest)
        chosen[groups] = race(blocks, rate, law, rng).blocks
    return _places(chosen, rows, lengths)


def best_rows_with_gap(
    scores: column_types.Exact,
    lengths: Ints,
    rate: Fraction,
    unit: Fraction,
    law: RacingLaw,
    rng: Rng,
    *,
    offered: NDArray[np.bool_] | None = None,
    lowest: bool = False,
) -> tuple[Ints, Ints]:
    """Return `best_rows`, and the gaps: by how many whole units of the score the row beat the next.

    A gap is −1 if at most one row may win. `unit` is in the unit of the scores.
    """
    rows, scores, counts = _offered(scores, lengths, offered)
    blocks, groups = _blocks(scores, counts, lowest)
    chosen, gaps = (np.full(len(lengths), -1, np.int64) for _ in range(2))
    chosen[groups], gaps[groups] = race_with_gap(blocks, rate, unit, law, rng)
    return _places(chosen, rows, lengths), gaps


def _offered(
    scores: column_types.Exact, lengths: Ints, offered: NDArray[np.bool_] | None
) -> tuple[Ints | None, column_types.Exact, Ints]:
    """Return the rows that may win (None: all), their scores, and their number in each group."""
    if scores.dtype.kind == "f":
        finite = np.isfinite(scores)
        offered = finite if offered is None else finite & offered
    if offered is None or offered.all():
        return None, scores, lengths
    rows = np.flatnonzero(offered)
    return rows, scores[rows], np.diff(np.searchsorted(rows, offsets(lengths)))


def _blocks(scores: column_types.Exact, counts: Ints, lowest: bool) -> tuple[Blocks, Ints]:
    """Return a block for each score, and the groups with scores."""
    groups = np.flatnonzero(counts)
    begins = starts(counts)[groups]
    best = (np.minimum if lowest else np.maximum).reduceat(scores, begins) if len(groups) else scores[:0]

    def exact(group: int) -> ExactBlocks:
        start, size = int(begins[group]), int(counts[groups[group]])
        top = Fraction(best.item(group))
        return (lambda i: abs(top - Fraction(scores.item(start + i)))), [1] * size

    return Blocks(_RowGaps(scores, best, begins, lowest), begins, exact), groups


def _places(chosen: Ints, rows: Ints | None, lengths: Ints) -> Ints:
    """Return the places of the winners in their groups, from their places among the offered rows; −1 stays."""
    found = np.flatnonzero(chosen >= 0)
    won = chosen[found] if rows is None else rows[chosen[found]]
    chosen[found] = won - starts(lengths)[found]
    return chosen


@dataclass(frozen=True)
class _RowGaps:
    """The distance of each row's score from the best one of its group: see `column_types.gaps_between`."""

    scores: column_types.Exact
    best: column_types.Exact
    starts: Ints
    lowest: bool

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: slice) -> GapArray:
        part = self.scores[rows]
        first, last = np.searchsorted(self.starts, [rows.start, rows.start + len(part) - 1], side="right")
        best = self.best[first - 1 : last]
        if len(best) > 1:
            edges = np.maximum(self.starts[first - 1 : last] - rows.start, 0)
            best = np.repeat(best, lengths_from(edges, len(part)))
        high, low = (part, best) if self.lowest else (best, part)
        return column_types.gaps_between(high, low)


BETA = 0.05
# The most rows: each is compared with all others of its group.
MOST_ROWS = 4096

# Pairs per batch, so that temporaries stay in the cache.
_PAIRS = 1 << 17
# Bits of t: its product with either half of a float is exact in floats.
_T_BITS = 20
_LOW_HALF = np.uint64(2**27 - 1)
# Between these nothing overflows, and underflow does not change the sum.
_SMALLEST, _LARGEST = 2.0**-900, 2.0**900


@dataclass(frozen=True)
class OwnSensitivities:
    """The rows that may win, group after group; no group is empty."""

    # Shape (n,): all scores are finite, and all sensitivities above 0.
    scores: Exact
    sensitivities: Exact
    counts: Ints  # shape (g,): rows of each group, from 1 to MOST_ROWS
    unit: Fraction  # the unit of the sensitivities in that of the scores
    lowest: bool  # whether the lowest score is the best

    def best(self, rate: Fraction, law: RacingLaw, rng: Rng) -> Ints:
        """Return the row that wins, for each group: a position among all rows."""
        weights = self._weights(rate, law)

        def exact(group: int) -> ExactBlocks:
            return self._exact_gaps(group, weights[group]), [1] * int(self.counts[group])

        return race(Blocks(self.gaps(rate, law), self.begins, exact), rate, law, rng).blocks

    @cached_property
    def begins(self) -> Ints:
        return starts(self.counts)

    @cached_property
    def best_scores(self) -> Exact:
        return (np.minimum if self.lowest else np.maximum).reduceat(self.scores, self.begins)

    def gaps(self, rate: Fraction, law: RacingLaw) -> Floats:
        """Return the distance of each row's score s from the best one, 0, for `racing.Blocks.gaps`.

        With u = 2**-53: c, of two floats, is off by at most 2**-100·c, as no term is negative. Its lower half is at
        most u·c. So the difference of two, in three operations, is off by at most 3u of itself and 2**-98 of the larger
        c. The sum of the sensitivities, the quotient and the unit add 5u: 2**-49.9 of the gap, and 2**-97·c_i/D_i.
        If the latter is not small, the gap is computed exactly.
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
                gaps[begin + row] = float_of(exact(row))
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

    def _exact_gaps(self, group: int, weight: float) -> Callable[[int], Fraction]:
        start = int(self.begins[group])
        rows = range(start, start + int(self.counts[group]))
        best, t = Fraction(self.best_scores.item(group)), Fraction(weight)
        sensitivities = [Fraction(self.sensitivities.item(row)) for row in rows]
        scores = (Fraction(self.scores.item(row)) for row in rows)
        c = [abs(best - score) + t * sensitivity for score, sensitivity in zip(scores, sensitivities, strict=True)]
        return _exact_gap(c, sensitivities, self.unit)


def _exact_gap(c: list[Fraction], sensitivities: list[Fraction], unit: Fraction) -> Callable[[int], Fraction]:
    """Return a function from a row of one group to its exact gap."""
    distinct = set(zip(c, sensitivities, strict=True))
    return lambda row: max((c[row] - other) / (sensitivities[row] + one) for other, one in distinct) / unit


def _largest_quotients(c: _Double, sensitivities: Floats, counts: Ints) -> Floats:
    """Return the largest (c_i − c_j)/(D_i + D_j) over all j of its group, for each row i: at least 0."""
    out, begins = np.empty(len(sensitivities)), starts(counts)
    for groups in batches_of_like(counts, lambda size: _PAIRS // size**2):
        width = int(counts[groups[0]])
        is_there = np.arange(width) < counts[groups, None]
        at = np.where(is_there, begins[groups, None] + np.arange(width), begins[groups, None])
        # a missing row is infinitely far
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


# A number as the sum of two floats; the second is at most half a unit in the last place of the first.
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
    """Return the product with floats of few bits: exact for both halves of the first float."""
    upper = (factor[0].view(np.uint64) & ~_LOW_HALF).view(np.float64)
    high, low = _two_sum(t * upper, t * (factor[0] - upper))
    return _two_sum(high, low + t * factor[1])


def _double_difference(high: Exact, low: Exact) -> _Double:
    """Return high − low if it is not negative."""
    if high.dtype.kind == "f":
        return _two_sum(high, -low)
    if high.dtype.kind == "O":
        exact = np.empty(len(high), object)
        exact[:] = [Fraction(a) - Fraction(b) for a, b in zip(high, low, strict=True)]
        return _double(exact)
    return _double(difference(high, low))


def _double(numbers: Exact) -> _Double:
    """Return numbers of at least 0; exact if they have 64 bits."""
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
