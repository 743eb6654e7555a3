"""From the accuracy that is wanted to the loss that buys it, and back."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_polars._accounting.claims import (
    ONE_RELEASE,
    Claim,
    Loss,
    Mechanism,
    Unit,
    check_mechanism,
    check_unit,
    range_of,
)
from dp_polars._accounting.costs import scaled_cost
from dp_polars._mechanisms.errors import error_bound, log_odds
from dp_polars._numeric.numbers import Number, as_fraction, positive_fraction, positive_int
from dp_polars.analysis._laws import mean_error, score_blocks, share_of_best
from dp_polars.analysis._rates import Comparable, as_probability, charged_as, check_comparable, claim_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import ArrayLike, NDArray


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
    """Return an error that is reached with probability at most `beta`, whatever the `k` scores are.

    The smallest t at which the bound on P(error ≥ t) is at most `beta`: k·exp(−λt) for the exponential
    mechanism (McSherry & Talwar 2007), (k − 1)·exp(−λt)/2 for permute-and-flip. In units of the scores; 0.0
    for one candidate. `loss_for_accuracy` is the inverse.

    Examples
    --------
    >>> round(accuracy(100, epsilon=1, monotonic=True), 3)
    6.898
    """
    count, risk = positive_int("k", k), as_probability("beta", beta)
    claim = claim_of(epsilon, rho, sensitivity, monotonic, mechanism)
    return error_bound(count, risk, claim)


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

    `error` is above 0, in units of the scores. 0.0 means that every loss does (one candidate, or a `beta`
    that even a uniform choice keeps).

    Examples
    --------
    >>> round(loss_for_accuracy(100, 10, monotonic=True), 4)
    0.6898
    """
    count, risk, goal = positive_int("k", k), as_probability("beta", beta), positive_fraction("error", error)
    chosen, score_range = check_mechanism(mechanism, check_unit(unit)), range_of(sensitivity, monotonic)
    needed = Fraction(log_odds(count, risk, chosen)) / goal
    return _smallest_loss(needed, unit, chosen, score_range, lambda claim: error_bound(count, risk, claim) <= goal)


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
        It reaches the goal and, as far as float64 can tell, no smaller loss does. 0.0 means that every loss
        does.

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
    """Return the loss that buys `rate`, and then a hair more until its claim reaches the goal."""
    if rate == 0:
        return 0.0
    loss, step = float(scaled_cost(unit, mechanism, rate * score_range, ONE_RELEASE)), 2.0**-51
    while not reached(Claim.of(Loss(as_fraction(unit, loss), unit), mechanism, score_range, ONE_RELEASE, None)):
        step *= 2
        loss *= 1 + step
    return loss
