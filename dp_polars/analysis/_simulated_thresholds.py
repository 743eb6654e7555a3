"""The law of the first candidate above a threshold on public rows, by integration over the noise of the threshold.

With s = λz, which is standard exponential, no candidate up to some run reaches the threshold with the probability
∏(1 − p_j(s))^m_j over these runs, p_j(s) = exp(−max(0, s + λ(T − q_j))). The mean of that over s, and of what the next
run takes of it, is integrated by Gauss and Legendre on short intervals, which end where a count is: there p_j has a
kink. What is beyond s = 45 has the probability e^−45.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base.arrays import offsets
from dp_polars._draws.first_above import count_runs
from dp_polars._draws.histograms import Histogram
from dp_polars.analysis._simulated_choices import Histograms, positions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dp_polars._accounting.claims import Claim
    from dp_polars._base.arrays import Ints
    from dp_polars._questions.first_above import FirstAbove
    from dp_polars._questions.question import Columns

    Floats = NDArray[np.float64]

_FAR, _WIDTH = 45.0, 1.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# Runs times nodes that are held at once.
_CELLS = 1 << 18
# Slightly less, so that rounding does not decide a share that is met exactly.
_SHARES = (0.05 * (1 - 1e-12), 0.95 * (1 - 1e-12))


# What says how probable near answers are: no column of `simulate`.
NEAR = "probability_near"


def law_of_first_above(
    question: FirstAbove, types: Columns, histograms: Histograms, within: float = 0
) -> Callable[[Claim], pl.DataFrame]:
    """Return what gives the law of the answers at a claim, a row per group: the columns of `simulate` that it fills.

    An answer's error is how far it is below the threshold, or one before it is above, whichever is more: 0 of the true
    answer. It is measured on all rows, also those that the bounds drop. `NEAR` is how probable the true answer is, and
    any other one whose error is at most `within`, where that is above 0.
    """
    everything, bounded = histograms
    search = question.search(*types)
    counts = np.zeros((len(everything.codes) + 1, 2), np.int64)  # of all rows, and of those that count; the last: none
    counts[:-1, 0] = everything.weights
    counts[positions_of(everything, bounded), 1] = bounded.weights
    pairs, labels = np.unique(counts, axis=0, return_inverse=True)
    labels = labels.ravel()
    # Runs of candidates that are alike in both; those without rows have the first label, which is (0, 0).
    first, runs = count_runs(Histogram(everything.codes, labels[:-1], everything.sizes), search.size)
    truly, seen = pairs[runs.counts].T
    bounds = offsets(runs.sizes)

    def law(claim: Claim) -> pl.DataFrame:
        parts = [slice(begin, end) for begin, end in pairwise(bounds)]
        groups = [
            _of_group(
                *(first[part], runs.multiplicities[part], truly[part], seen[part]), search.threshold, claim.rate, within
            )
            for part in parts
        ]
        columns = list(zip(*groups, strict=True)) or [()] * 6
        true, low, high = (question.named(np.array(columns[i], np.int64), *types) for i in (0, 3, 4))
        numbers = {"probability_true": columns[1], "expected_error": columns[2], NEAR: columns[5]}
        return pl.DataFrame(
            {
                "true_answer": true,
                **{name: np.array(column, np.float64) for name, column in numbers.items()},
                "answer_5": low,
                "answer_95": high,
            }
        )

    return law


def _of_group(
    first: Ints, m: Ints, truly: Ints, seen: Ints, threshold: Fraction, rate: Fraction, within: float
) -> tuple[int, float, float, int, int, float]:
    """Return the true code, how probable it is, the mean error, the codes at both ends of the range, and `NEAR`.

    −1 is the code of no candidate.
    """
    aim, least = float(threshold), math.ceil(threshold)
    # The first one of a run that truly reaches the threshold is apart: only it is right.
    parts = np.where((truly >= least) & (m > 1), 2, 1)
    are_later = np.zeros(int(parts.sum()), bool)
    are_later[np.cumsum(parts)[parts == 2] - 1] = True
    first, m, truly, seen, parts = (np.repeat(column, parts) for column in (first, m, truly, seen, parts))
    first = first + are_later
    m = np.where(parts == 1, m, np.where(are_later, m - 1, 1))

    integral = _Integral.of(np.multiply(aim - seen, float(rate), dtype=np.float64), m)
    law = integral.law()
    passed = np.maximum.accumulate(np.append(0.0, truly - aim))
    errors = np.maximum(passed, np.append(aim - truly, 0.0))
    reached = np.append(truly >= least, True)
    right = int(np.argmax(reached))
    codes = np.append(first, -1)
    ends = (integral.at_share(share, law) for share in _SHARES)
    low, high = (int(codes[run]) + place for run, place in ends)
    is_near = errors <= within if within else np.arange(len(law)) == right
    chances = min(float(law[right]), 1.0), min(float(law[is_near].sum()), 1.0)
    return int(codes[right]), chances[0], float(law @ errors), low, high, chances[1]


@dataclass(frozen=True)
class _Integral:
    """Where the integrand is looked at, with which weights; λ·(T − q) and the multiplicity of each run."""

    nodes: Floats
    weights: Floats
    missing: Floats
    m: Ints

    @classmethod
    def of(cls, missing: Floats, m: Ints) -> _Integral:
        kinks = np.maximum.accumulate(-missing)
        kinks = np.unique(kinks[(kinks > 0) & (kinks < _FAR)])
        ends = np.union1d(np.arange(0, _FAR + _WIDTH, _WIDTH), kinks)
        half = np.diff(ends)[:, None] / 2
        nodes = (ends[:-1, None] + half * (1 + _NODES)).ravel()
        return cls(nodes, (half * _WEIGHTS).ravel() * np.exp(-nodes), missing, m)

    def _log_passed(self, nodes: Floats, runs: slice) -> Floats:
        """Return the log of the chance that one candidate is passed over, shape (runs, nodes)."""
        with np.errstate(divide="ignore"):  # −inf where nothing is missing
            return np.log1p(-np.exp(-np.maximum(self.missing[runs, None] + nodes, 0)))

    def law(self) -> Floats:
        """Return how probable each run is, and last that none reaches the threshold."""
        law, rest = np.zeros(len(self.m)), 0.0
        step = max(1, _CELLS // len(self.m))
        for start in range(0, len(self.nodes), step):
            part = slice(start, start + step)
            passed = self._log_passed(self.nodes[part], slice(None)) * self.m[:, None]
            before = np.exp(np.cumsum(np.vstack([np.zeros((1, passed.shape[1])), passed]), axis=0))
            law += (before[:-1] * -np.expm1(passed)) @ self.weights[part]
            rest += float(before[-1] @ self.weights[part])
        return np.append(law, rest)

    def at_share(self, share: float, law: Floats) -> tuple[int, int]:
        """Return the run, and the place in it, of the first answer that a given share of the draws does not exceed."""
        upto = np.cumsum(law)
        run = min(int(np.searchsorted(upto, share)), len(self.m))
        if run == len(self.m) or self.m[run] == 1:
            return run, 0
        before, step = np.zeros(len(self.nodes)), max(1, _CELLS // len(self.nodes))
        for start in range(0, run, step):
            part = slice(start, min(start + step, run))
            before += (self._log_passed(self.nodes, part) * self.m[part, None]).sum(axis=0)
        before, passed = np.exp(before) * self.weights, self._log_passed(self.nodes, slice(run, run + 1))[0]
        missing = share - (upto[run - 1] if run else 0.0)
        low, high = 1, int(self.m[run])  # how many of the run's candidates are enough
        while low < high:
            middle = (low + high) // 2
            enough = float(before @ -np.expm1(passed * middle)) >= missing
            low, high = (low, middle) if enough else (middle + 1, high)
        return run, low - 1
