"""Exact laws of a choice among scores that you may look at, and bounds for any scores.

**Nothing here is private.** The functions show the scores that they get. Use public or synthetic ones, such as last
year's published counts. All parameters behind the scores are keyword-only.

Every function raises TypeError or ValueError for an argument that is not as described.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_polars._accounting.claims import Claim, check_mechanism, claim_of_choice, range_of
from dp_polars._accounting.costs import scaled_cost
from dp_polars._accounting.terms import ONE_RELEASE, Loss, Mechanism, Unit, check_unit
from dp_polars._base.calls import called
from dp_polars._base.column_types import float_of
from dp_polars._base.numbers import Floats, Number, as_loss, loss_up, positive_fraction, positive_int
from dp_polars._mechanisms.racing import LAWS, error_bound
from dp_polars.analysis._laws import (
    Comparable,
    ScoreBlocks,
    as_probability,
    block_log_factors,
    block_probabilities,
    blocks_of,
    charged_as,
    check_comparable,
    checked_scores,
    claim_of,
    mean_error,
    rate_of,
    risk_of,
    score_blocks,
    share_of_best,
    worst_error,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "accuracy",
    "error_quantile",
    "expected_error",
    "loss_needed",
    "privacy_loss",
    "probability_of_best",
    "selection_probabilities",
    "worst_expected_error",
]


def __dir__() -> list[str]:
    return __all__


def selection_probabilities(
    scores: ArrayLike,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Comparable | None = None,
) -> NDArray[np.float64]:
    """Return the probability that each candidate is chosen.

    Parameters
    ----------
    scores
        Shape (k,), integers or floats, all finite: the quality of each candidate, higher is better.
    epsilon, rho
        The loss of one release, exactly one of them. `epsilon` (pure DP) means permute-and-flip, `rho` (zCDP) the
        exponential mechanism. A float is the decimal that it prints as, rounded down to 12 digits.
    sensitivity
        The most that one person can change any one score.
    monotonic
        Whether one person moves all scores in the same direction. The range R of a difference of two scores is
        `sensitivity` if so, else twice that, and the mechanisms' rate λ is `epsilon` / R in pure DP. Counts are
        monotonic if a person is added or removed, but not if one is replaced: then one count falls and another rises.
    mechanism
        "permute_and_flip", "exponential", or None for the usual one of the loss's unit. Or "report_noisy_max_laplace",
        for comparison and with `epsilon` only: the largest score after Laplace noise of scale R / `epsilon` (Dwork &
        Roth 2014, Section 3.3).

    Returns
    -------
    numpy.ndarray
        Shape (k,), float64. Relative error below 1e-12 if it does not underflow. (A candidate with a coin below 1e-308
        has a probability of at least 5e-324 here, never 0.) A million candidates take about a second.

    Raises
    ------
    TypeError
        Unless exactly one of `epsilon` and `rho` is given and the scores are a vector of numbers.
    ValueError
        If scores are empty, NaN or infinite, or a parameter is out of its range.

    Notes
    -----
    Permute-and-flip: p_r·∫₀¹ ∏_{i≠r}(1 − p_i·t) dt with p = exp(−λ·gap), from McKenna & Sheldon (2020, arXiv
    2010.12603), by Gauss-Legendre quadrature; the exponential mechanism: p_r / Σp (McSherry & Talwar 2007).

    Examples
    --------
    >>> selection_probabilities([10, 9, 8], epsilon=1, monotonic=True).round(4)
    array([0.765 , 0.1756, 0.0594])
    """
    blocks = score_blocks("scores", scores)
    rate, chosen = rate_of(epsilon, rho, sensitivity, monotonic, mechanism)
    of_candidate = block_probabilities(blocks.gaps, blocks.multiplicities, rate, chosen) / blocks.multiplicities
    return np.asarray(np.maximum(of_candidate, np.finfo(np.float64).smallest_subnormal)[blocks.block_of])


def expected_error(
    scores: ArrayLike,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Comparable | None = None,
) -> float:
    """Return the mean of best score minus chosen score.

    Parameters, and errors, are those of `selection_probabilities`.

    Returns
    -------
    float
        In units of the scores; 0 if all of them are equal.

    Examples
    --------
    >>> round(expected_error([10, 9, 2], epsilon=1, monotonic=True), 4)
    0.1851
    """
    blocks = score_blocks("scores", scores)
    return mean_error(blocks, *rate_of(epsilon, rho, sensitivity, monotonic, mechanism))


def error_quantile(
    scores: ArrayLike,
    *,
    confidence: Number = 0.95,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Comparable | None = None,
) -> float:
    """Return the smallest error that is not exceeded with the probability `confidence`, strictly between 0 and 1.

    The other parameters, and errors, are those of `selection_probabilities`.

    Returns
    -------
    float
        Best score minus chosen score, in units of the scores.

    Notes
    -----
    Probabilities are added up in float64. If their sum is within 1e-13 of `confidence`, the result may be either of the
    two neighbouring errors.

    Examples
    --------
    >>> error_quantile([10, 9, 2], epsilon=1, monotonic=True, confidence=0.99)
    1.0
    """
    risk = risk_of(confidence)
    blocks = score_blocks("scores", scores)
    return _error_quantile(blocks, risk, *rate_of(epsilon, rho, sensitivity, monotonic, mechanism))


def _error_quantile(blocks: ScoreBlocks, risk: float, rate: float, mechanism: str) -> float:
    of_block = block_probabilities(blocks.gaps, blocks.multiplicities, rate, mechanism)
    exceeded = np.cumsum(of_block[:0:-1])[::-1]  # of all blocks but the last: the probability of a larger error
    return float(blocks.gaps[np.count_nonzero(exceeded > risk)])


def probability_of_best(
    scores: ArrayLike,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Comparable | None = None,
) -> float:
    """Return the probability that a candidate with the best score is chosen.

    Parameters, and errors, are those of `selection_probabilities`.

    Returns
    -------
    float
        Between 0 and 1. Candidates with the same best score count together.

    Examples
    --------
    >>> round(probability_of_best([10, 9, 2], epsilon=1, monotonic=True), 4)
    0.8159
    """
    blocks = score_blocks("scores", scores)
    return share_of_best(blocks, *rate_of(epsilon, rho, sensitivity, monotonic, mechanism))


@called
def accuracy(
    k: int,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Mechanism | None = None,
    confidence: Number = 0.95,
) -> float:
    """Return an error that is not exceeded with the probability `confidence`, for any `k` scores.

    `k` is at least 1, `confidence` strictly between 0 and 1. For the others see `selection_probabilities`; only the two
    mechanisms of this package.

    Returns
    -------
    float
        Best score minus chosen score, in units of the scores. 0.0 for one candidate. `loss_needed(k, error=…)` is
        the inverse.

    Notes
    -----
    It is the smallest t at which a bound on P(error ≥ t) is at most 1 − `confidence`: k·exp(−λt) for the exponential
    mechanism (McSherry & Talwar 2007), (k − 1)·exp(−λt)/2 for permute-and-flip.

    Examples
    --------
    >>> round(accuracy(100, epsilon=1, monotonic=True), 3)
    6.898
    """
    count, risk = positive_int("k", k), risk_of(confidence)
    return error_bound(count, risk, claim_of(epsilon, rho, sensitivity, monotonic, mechanism))


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
    r"""Return the largest mean error for any `k` scores. It needs no data.

    Parameters are those of `accuracy`.

    Returns
    -------
    float
        Best score minus chosen score, on average, in units of the scores: below ln(k)/λ. Relative error below
        1e-12. 0.0 for one candidate.

    Notes
    -----
    It is the maximum over p of the mean error of one best candidate and k − 1 others with the same coin p (McKenna &
    Sheldon 2020, arXiv 2010.12603, Equation 7 for the exponential mechanism and 8 for permute-and-flip): −ln(p)/λ·(1 −
    1/(1 + (k − 1)p)) and −ln(p)/λ·(1 − (1 − (1 − p)^k)/(kp)).

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
    return worst_error(count, claim.mechanism) / float(claim.rate)


@called
def loss_needed(
    scores: ArrayLike | int,
    *,
    error: Number | None = None,
    confidence: Number = 0.95,
    expected_error: Number | None = None,
    probability_of_best: Number | None = None,
    unit: Unit = "epsilon",
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Comparable | None = None,
) -> float:
    """Return the smallest loss, in `unit`, that reaches a goal on these scores, or on any scores.

    Parameters
    ----------
    scores
        Shape (k,), as for `selection_probabilities`. Or their number k: then the loss reaches the goal for any scores,
        with one of the two mechanisms of this package.
    error, confidence
        The goal: with the probability `confidence`, the error is not above this. On scores it is the error of
        `error_quantile`, for a number of scores the one of `accuracy`. Above 0, in units of the scores.
    expected_error
        Or the goal: a mean error of at most this, above 0, in units of the scores. For a number of scores it is
        `worst_expected_error`.
    probability_of_best
        Or the goal: a candidate with the best score at least this often, strictly between 0 and 1. On scores only.
    unit
        "epsilon" or "rho".
    sensitivity, monotonic, mechanism
        As for `selection_probabilities`.

    Returns
    -------
    float
        It reaches the goal, and no smaller loss does, to the precision of float64. 0.0 means that every loss reaches
        it.

    Notes
    -----
    All goals are monotone in the loss for every mechanism that adds noise of a fixed shape to the scores and takes the
    largest, as these do: with the noise held fixed, a smaller scale never makes the chosen score worse.

    Examples
    --------
    >>> round(loss_needed([10, 9, 2], probability_of_best=0.99, monotonic=True), 3)
    3.912
    >>> round(loss_needed(100, error=10, monotonic=True), 4)
    0.6898
    """
    goals = {"error": error, "expected_error": expected_error, "probability_of_best": probability_of_best}
    given_ones = [name for name, goal in goals.items() if goal is not None]
    if len(given_ones) != 1:
        got = " and ".join(given_ones) or "none of them"
        msg = f"exactly one of error, expected_error and probability_of_best must be given, got {got}."
        raise TypeError(msg)
    (goal,) = given_ones
    number = goals[goal]
    wanted = as_probability(goal, number) if goal == "probability_of_best" else positive_fraction(goal, number)
    risk, score_range = risk_of(confidence), range_of(sensitivity, monotonic)
    if isinstance(scores, (int, np.integer)):
        return _loss_for_any(positive_int("scores", scores), goal, wanted, risk, unit, mechanism, score_range)
    blocks, name = score_blocks("scores", scores), check_comparable(mechanism, check_unit(unit))
    reached: Callable[[float], bool] = {
        "error": lambda rate: _error_quantile(blocks, risk, rate, name) <= float(wanted),
        "expected_error": lambda rate: mean_error(blocks, rate, name) <= float(wanted),
        "probability_of_best": lambda rate: share_of_best(blocks, rate, name) >= wanted,
    }[goal]
    needed = _smallest_rate(blocks.gaps, reached)
    return _smallest_loss(needed, unit, charged_as(name), score_range, lambda claim: reached(float(claim.rate)))


def _loss_for_any(
    k: int,
    goal: str,
    wanted: Fraction | float,
    risk: float,
    unit: Unit,
    mechanism: str | None,
    score_range: Fraction,
) -> float:
    chosen = check_mechanism("choice", mechanism, check_unit(unit))
    if goal == "probability_of_best":
        msg = (
            f"scores must be a vector for probability_of_best, got the number {k}: the best of any scores may be "
            "hardly better than the others, and is chosen hardly more often then.\n\nHint: error=… or expected_error=…."
        )
        raise TypeError(msg)
    if goal == "error":
        odds = Fraction(LAWS[chosen].log_odds(k, risk))
        return _smallest_loss(
            odds / Fraction(wanted), unit, chosen, score_range, lambda claim: error_bound(k, risk, claim) <= wanted
        )
    worst = worst_error(k, chosen)
    needed = Fraction(worst) / Fraction(wanted)
    return _smallest_loss(needed, unit, chosen, score_range, lambda claim: worst / float(claim.rate) <= wanted)


def _smallest_rate(gaps: Floats, reached: Callable[[float], bool]) -> Fraction:
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
        low, high = (low, middle) if reached(2.0**middle) else (middle, high)
    return Fraction(2.0**high)


def _smallest_loss(
    rate: Fraction, unit: Unit, mechanism: Mechanism, score_range: Fraction, reached: Callable[[Claim], bool]
) -> float:
    """Return a float loss for `rate`, moved up until the rounded-down rate reaches the goal."""
    if rate == 0:
        return 0.0
    least, step = scaled_cost(unit, mechanism, rate * score_range, ONE_RELEASE), Fraction(1, 2**40)
    loss = loss_up(least)
    while not reached(claim_of_choice(Loss(as_loss(unit, loss), unit), mechanism, score_range, ONE_RELEASE, None)):
        least, step = least * (1 + step), 2 * step
        loss = loss_up(least)
    return loss


def privacy_loss(
    scores: ArrayLike,
    neighbor_scores: ArrayLike,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Mechanism | None = None,
) -> float:
    """Return the largest absolute log-ratio of a candidate's probabilities on two score vectors.

    It is at most epsilon for neighbours: their scores differ as described by `sensitivity` and `monotonic`. We don't
    check that they do, so you can try any pair.

    Parameters
    ----------
    scores, neighbor_scores
        Shape (k,) each, as for `selection_probabilities`.
    epsilon, rho, sensitivity, monotonic, mechanism
        As for `selection_probabilities`; only the two mechanisms of this package.

    Returns
    -------
    float
        Error below 1e-12, or 1e-14 of the value if that is more, also for tiny probabilities.

    Examples
    --------
    Permute-and-flip is ε-DP, but its log-ratios span more than ε: it is not bounded-range.

    >>> privacy_loss([0, 0], [1, -1], epsilon=2)
    2.0
    >>> round(privacy_loss([0], [0], epsilon=2), 6)
    0.0
    """
    claim = claim_of(epsilon, rho, sensitivity, monotonic, mechanism)
    first, second = checked_scores("scores", scores), checked_scores("neighbor_scores", neighbor_scores)
    if first.shape != second.shape:
        msg = f"neighbor_scores must have the shape of scores {first.shape}, got {second.shape}."
        raise ValueError(msg)
    factors = []
    for vector in (first, second):
        blocks = blocks_of(vector)
        logs = block_log_factors(blocks.gaps, blocks.multiplicities, claim.rate, claim.mechanism)
        factors.append(logs[blocks.block_of])
    # log P = log factor − rate·gap: the gaps are subtracted first, since those of far candidates are large.
    return float(np.max(np.abs(factors[0] - factors[1] - float(claim.rate) * _gap_changes(first, second))))


def _gap_changes(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Return the gaps of `first` minus those of `second`, nearly without rounding if they are close."""
    if first.dtype.kind == second.dtype.kind == "f":
        return np.asarray((first.max() - second.max()) - (first - second))
    a, b = ([Fraction(score) for score in vector.tolist()] for vector in (first, second))
    apart = max(a) - max(b)
    return np.array([float_of(apart - (x - y)) for x, y in zip(a, b, strict=True)])
