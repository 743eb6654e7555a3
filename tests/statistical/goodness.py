"""A G-test whose false-alarm rate is proved for every sample size, however rare a cell is.

G = 2n·KL(observed ‖ law). By Agrawal (2020, arXiv 1904.02291) the moment generating function of KL is at most that of a
gamma distribution with shape d = cells − 1 and rate n, so that P(G/2 >= x) <= exp(d − x)·(x/d)^d for x > d. Nothing is
asymptotic: cells need not be pooled, and a rate of 1e-12 means that.
"""

import math
from fractions import Fraction

import numpy as np

# Of one test. All runs of the suite on all platforms together have fewer than 1,000 of them: below 1e-9.
FALSE_ALARM = 1e-12
# Factors of the rate at which a sampler must be found out.
CONTROLS = (Fraction(7, 10), Fraction(13, 10))


def statistic(counts, law):
    """G of observed counts, both of shape (cells,); infinite where the impossible happened."""
    counts, law = np.asarray(counts), np.asarray(law, np.float64)
    assert counts.shape == law.shape
    assert abs(law.sum() - 1) < 1e-12
    seen = counts > 0
    if (law[seen] == 0).any():
        return math.inf
    observed = counts[seen] / counts.sum()
    return float(2 * (counts[seen] * (np.log(observed) - np.log(law[seen]))).sum())


def threshold(cells, false_alarm=FALSE_ALARM):
    """The G that is reached with probability at most `false_alarm` where the law is true."""
    d = cells - 1
    if d == 0:
        return 1e-6  # G is 0 but for rounding
    low, high = d, d + 1
    while _log_tail(high, d) > math.log(false_alarm):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_tail(middle, d) > math.log(false_alarm) else (low, middle)
    return 2 * high


def _log_tail(x, d):
    return d - x + d * math.log(x / d)


def fits(counts, law, false_alarm=FALSE_ALARM):
    """Whether the counts may come from the law."""
    return statistic(counts, law) < threshold(len(law), false_alarm)


def cell_counts(answers, law):
    """Counts of answers 0 … cells − 1."""
    counts = np.bincount(answers, minlength=len(law))
    assert len(counts) == len(law)
    return counts


def check_sampler(draw, law, *, controls=CONTROLS, false_alarm=FALSE_ALARM):
    """The answers of `draw(1)` follow the law; those of a sampler at another rate (the `controls`) don't.

    Parameters
    ----------
    draw
        Factor of the rate (a Fraction) -> answers, shape (n,).
    """
    counts = cell_counts(draw(Fraction(1)), law)
    assert fits(counts, law, false_alarm), (counts, law)
    for factor in controls:
        assert not fits(cell_counts(draw(factor), law), law, false_alarm), f"a sampler at {factor} of the rate passes"
