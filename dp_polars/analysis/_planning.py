"""From a wanted accuracy to the loss that it needs, and back."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dp_polars._accounting.claims import Claim, check_mechanism, range_of
from dp_polars._accounting.costs import scaled_cost
from dp_polars._accounting.terms import ONE_RELEASE, Loss, Mechanism, Unit, check_unit
from dp_polars._base.numbers import Number, as_fraction, positive_fraction, positive_int
from dp_polars._base.process import called
from dp_polars._mechanisms.racing import LAWS, error_bound
from dp_polars.analysis._laws import (
    Comparable,
    as_probability,
    charged_as,
    check_comparable,
    claim_of,
    mean_error,
    score_blocks,
    share_of_best,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray


@called
def accuracy(
    k: int,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Mechanism | None = None,
    beta: Number = 0.05,
) -> float:
    """Return an error that is exceeded with probability at most `beta`, whatever the `k` scores are.

    Parameters
    ----------
    k
        Candidates, at least 1.
    epsilon, rho, sensitivity, monotonic, mechanism
        See the top of this page; only the two mechanisms of this package.
    beta
        Strictly between 0 and 1.

    Returns
    -------
    float
        Best score minus chosen score, in units of the scores. 0.0 for one candidate. `loss_for_accuracy` is the
        inverse.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    It is the smallest t at which a bound on P(error ≥ t) is at most `beta`: k·exp(−λt) for the exponential mechanism
    (McSherry & Talwar 2007), (k − 1)·exp(−λt)/2 for permute-and-flip.

    Examples
    --------
    >>> round(accuracy(100, epsilon=1, monotonic=True), 3)
    6.898
    """
    count, risk = positive_int("k", k), as_probability("beta", beta)
    claim = claim_of(epsilon, rho, sensitivity, monotonic, mechanism)
    return error_bound(count, risk, claim)


@called
def worst_expected_error(
    k: int,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Mechanism | None = None,
) -> float:
    r"""Return the largest mean error that any `k` scores can lead to. It needs no data.

    Parameters
    ----------
    k
        Candidates, at least 1.
    epsilon, rho, sensitivity, monotonic, mechanism
        See the top of this page; only the two mechanisms of this package.

    Returns
    -------
    float
        Best score minus chosen score, on average, in units of the scores: below ln(k)/λ. Relative error below
        1e-12. 0.0 for one candidate.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    It is the maximum over p of the mean error of one best candidate and k − 1 others that share the coin p
    (McKenna & Sheldon 2020, arXiv 2010.12603, Equation 7 for the exponential mechanism and 8 for
    permute-and-flip): −ln(p)/λ·(1 − 1/(1 + (k − 1)p)) and −ln(p)/λ·(1 − (1 − (1 − p)^k)/(kp)).

    No other scores are worse: moving two coins a and b, next to a best one, to their mean never lowers the
    error. Let h(p) = −p·ln(p). The exponential mechanism's error is Σh(p_i)/Σp_i/λ, the sum of coins stays,
    and h is concave. Permute-and-flip's is an integral over t of a weight that does not depend on a and b, times
    h(a)(1 − bt) + h(b)(1 − at) + H·(1 − at)(1 − bt) with H ≥ 0. The last term grows with a·b. The others are linear
    in t: at t = 0 they are h(a) + h(b), and at t = 1, with x = 1 − a and y = 1 − b, x·y·(l(x) + l(y)), where
    l(x) = 1 − Σ x^j/(j(j + 1)) is concave and not negative.

    Examples
    --------
    >>> round(worst_expected_error(100, epsilon=1, monotonic=True), 3)
    2.428
    """
    count, claim = positive_int("k", k), claim_of(epsilon, rho, sensitivity, monotonic, mechanism)
    return _worst_error(count, claim.mechanism) / float(claim.rate)


# The probability that one of n − 1 candidates, each with the coin p, is chosen instead of the best one.
_MISSES: dict[str, Callable[[float, NDArray[np.float64]], NDArray[np.float64]]] = {
    "permute_and_flip": lambda n, p: 1 + np.expm1(n * np.log1p(-p)) / (n * p),
    "exponential": lambda n, p: (n - 1) * p / (1 + (n - 1) * p),
}


def _worst_error(k: int, mechanism: str) -> float:
    """Return λ times the largest mean error of a best candidate and k − 1 others at one gap."""
    if k == 1:
        return 0.0
    # Beyond the right end the error falls, and is below 0.02.
    low, high, n = 0.0, math.log(k) + 5, float(k)
    best = 0.0
    for _ in range(10):
        scaled_gaps = np.linspace(low, high, 65)[1:-1]
        p = np.exp(-scaled_gaps)
        errors = scaled_gaps * _MISSES[mechanism](n, p)
        top = int(np.argmax(errors))
        best, width = max(best, float(errors[top])), (high - low) / 64
        low, high = float(scaled_gaps[top]) - width, float(scaled_gaps[top]) + width
    return best


@called
def loss_for_accuracy(
    k: int,
    error: Number,
    *,
    beta: Number = 0.05,
    unit: Unit = "epsilon",
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Mechanism | None = None,
) -> float:
    """Return the smallest loss, in `unit`, at which `accuracy` is at most `error`.

    Parameters
    ----------
    k
        Candidates, at least 1.
    error
        Above 0, in units of the scores.
    beta
        Strictly between 0 and 1.
    unit
        "epsilon" or "rho".
    sensitivity, monotonic, mechanism
        See the top of this page; only the two mechanisms of this package.

    Returns
    -------
    float
        0.0 means that every loss reaches it: there is one candidate, or `beta` is so large that a uniform choice does.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> round(loss_for_accuracy(100, 10, monotonic=True), 4)
    0.6898
    """
    count, risk, goal = positive_int("k", k), as_probability("beta", beta), positive_fraction("error", error)
    chosen, score_range = check_mechanism("choice", mechanism, check_unit(unit)), range_of(sensitivity, monotonic)
    needed = Fraction(LAWS[chosen].log_odds(count, risk)) / goal
    return _smallest_loss(needed, unit, chosen, score_range, lambda claim: error_bound(count, risk, claim) <= goal)


@called
def loss_for(
    scores: ArrayLike,
    *,
    expected_error: Number | None = None,
    probability_of_best: Number | None = None,
    unit: Unit = "epsilon",
    mechanism: Comparable | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
) -> float:
    """Return the smallest loss, in `unit`, that reaches a goal on these scores.

    Parameters
    ----------
    scores
        Shape (k,), as for `selection_probabilities`.
    expected_error
        The goal: a mean error of at most this, above 0, in units of the scores.
    probability_of_best
        Or the goal: a candidate with the best score at least this often, strictly between 0 and 1.
    unit, mechanism, sensitivity, monotonic
        `unit` is "epsilon" or "rho". For the rest see the top of this page.

    Returns
    -------
    float
        It reaches the goal, and no smaller loss does, to the precision of float64. 0.0 means that every loss reaches
        it.

    Notes
    -----
    Both goals are monotone in the loss for every mechanism that adds noise of a fixed shape to the scores
    and takes the largest, as these do: with the noise held fixed, a smaller scale never makes the chosen
    score worse.

    Examples
    --------
    >>> round(loss_for([10, 9, 2], probability_of_best=0.99, monotonic=True), 3)
    3.912
    """
    if (expected_error is None) == (probability_of_best is None):
        what = "neither" if expected_error is None else "both"
        msg = f"exactly one of expected_error and probability_of_best must be given, got {what}."
        raise TypeError(msg)
    blocks = score_blocks("scores", scores)
    name = check_comparable(mechanism, check_unit(unit))
    if expected_error is not None:
        error = float(positive_fraction("expected_error", expected_error))

        def reached(rate: float) -> bool:
            return mean_error(blocks, rate, name) <= error
    else:
        share = as_probability("probability_of_best", probability_of_best)

        def reached(rate: float) -> bool:
            return share_of_best(blocks, rate, name) >= share

    needed = _smallest_rate(blocks.gaps, reached)
    charged = charged_as(name)
    score_range = range_of(sensitivity, monotonic)
    return _smallest_loss(needed, unit, charged, score_range, lambda claim: reached(float(claim.rate)))


def _smallest_rate(gaps: NDArray[np.float64], reached: Callable[[float], bool]) -> Fraction:
    """Return the smallest rate that reaches a goal, to 1e-13 of it, by bisection; 0 if all do."""
    apart = gaps[gaps > 0]
    if not apart.size:
        return Fraction(0)
    # At `low` all coins are 1 to 2**-60, at `high` those of all but the best underflow.
    low, high = (max(-1000.0, min(1000.0, x)) for x in (-60 - math.log2(apart[-1]), 11 - math.log2(apart[0])))
    if reached(2.0**low):
        return Fraction(0)
    while high - low > 1e-13:
        middle = (low + high) / 2
        if reached(2.0**middle):
            high = middle
        else:
            low = middle
    return Fraction(2.0**high)


def _smallest_loss(
    rate: Fraction, unit: Unit, mechanism: Mechanism, score_range: Fraction, reached: Callable[[Claim], bool]
) -> float:
    """Return a float loss for `rate`, nudged upward until the rounded-down rate meets the goal."""
    if rate == 0:
        return 0.0
    loss, step = float(scaled_cost(unit, mechanism, rate * score_range, ONE_RELEASE)), 2.0**-51
    while not reached(Claim.of(Loss(as_fraction(unit, loss), unit), mechanism, score_range, ONE_RELEASE, None)):
        step *= 2
        loss *= 1 + step
    return loss
