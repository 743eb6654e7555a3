"""Know before you spend: the exact probabilities of both mechanisms on given scores, their errors and their losses.

**Nothing here is private.** The functions show the scores, or the frame, that they are given. Give them public or
synthetic ones, such as last year's published data. Or use the bounds that hold for all scores.

Parameters that many functions share, all keyword-only:

``epsilon``, ``rho``
    The loss of one release, exactly one of them. ``epsilon`` (pure DP) means permute-and-flip, ``rho``
    (zCDP) the exponential mechanism. A float is the decimal that it prints as, rounded down to 12 digits.
``sensitivity``
    The most that one person can change any one score.
``monotonic``
    Whether one person moves all scores in the same direction. The range R of a difference of two scores is
    ``sensitivity`` if so, else twice that, and the mechanisms' rate λ is ``epsilon`` / R in pure DP. Counts are
    monotonic where a person comes or goes, but not where one is replaced: then one count falls and another rises.
``mechanism``
    ``"permute_and_flip"``, ``"exponential"``, or None for the one that the unit of the loss chooses.
    Functions of the scores also take ``"report_noisy_max_laplace"``, for comparison and with ``epsilon``
    only: the largest score after Laplace noise of scale R / ``epsilon``, that is 2·``sensitivity`` /
    ``epsilon``, or ``sensitivity`` / ``epsilon`` for monotonic scores (Dwork & Roth 2014, Section 3.3).

Every function raises TypeError or ValueError for an argument that is not as described.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_polars._base.column_types import float_of
from dp_polars.analysis import _laws
from dp_polars.analysis._laws import accuracy, loss_for, loss_for_accuracy, worst_expected_error
from dp_polars.analysis._losses import loss_for_query
from dp_polars.analysis._profile import PrivacyProfile, compose, privacy_profile
from dp_polars.analysis._simulation import simulate
from dp_polars.analysis._sizes import best_by_gap, error_by_size, rows_dropped, size_needed, synthetic

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dp_polars._accounting.terms import Mechanism
    from dp_polars._base.numbers import Number
    from dp_polars.analysis._laws import Comparable


__all__ = [
    "PrivacyProfile",
    "accuracy",
    "best_by_gap",
    "compose",
    "error_by_size",
    "error_quantile",
    "expected_error",
    "loss_for",
    "loss_for_accuracy",
    "loss_for_query",
    "privacy_loss",
    "privacy_profile",
    "probability_of_best",
    "rows_dropped",
    "selection_probabilities",
    "simulate",
    "size_needed",
    "synthetic",
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
    epsilon, rho, sensitivity, monotonic, mechanism
        See the top of this page.

    Returns
    -------
    numpy.ndarray
        Shape (k,), float64. Relative error below 1e-12 where it does not underflow (a candidate whose coin
        is below 1e-308 has a probability of at least 5e-324 here, never 0). A million candidates take about a second.

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
    blocks = _laws.score_blocks("scores", scores)
    rate, chosen = _laws.rate_of(epsilon, rho, sensitivity, monotonic, mechanism)
    of_candidate = _laws.block_probabilities(blocks.gaps, blocks.multiplicities, rate, chosen) / blocks.multiplicities
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
    blocks = _laws.score_blocks("scores", scores)
    return _laws.mean_error(blocks, *_laws.rate_of(epsilon, rho, sensitivity, monotonic, mechanism))


def error_quantile(
    scores: ArrayLike,
    *,
    beta: Number = 0.05,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanism: Comparable | None = None,
) -> float:
    """Return the smallest error that is exceeded with probability at most `beta`, strictly between 0 and 1.

    The other parameters, and errors, are those of `selection_probabilities`.

    Returns
    -------
    float
        Best score minus chosen score, in units of the scores.

    Notes
    -----
    Probabilities are added up in float64. If their sum is within 1e-13 of `beta`, the result may be either of the two
    neighbouring errors.

    Examples
    --------
    >>> error_quantile([10, 9, 2], epsilon=1, monotonic=True, beta=0.01)
    1.0
    """
    risk = _laws.as_probability("beta", beta)
    blocks = _laws.score_blocks("scores", scores)
    rate, chosen = _laws.rate_of(epsilon, rho, sensitivity, monotonic, mechanism)
    of_block = _laws.block_probabilities(blocks.gaps, blocks.multiplicities, rate, chosen)
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
        Between 0 and 1. Candidates that share the best score count together.

    Examples
    --------
    >>> round(probability_of_best([10, 9, 2], epsilon=1, monotonic=True), 4)
    0.8159
    """
    blocks = _laws.score_blocks("scores", scores)
    return _laws.share_of_best(blocks, *_laws.rate_of(epsilon, rho, sensitivity, monotonic, mechanism))


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

    It is at most epsilon for neighbours, whose scores differ as `sensitivity` and `monotonic` say. We don't check that
    they do, so you can try any pair.

    Parameters
    ----------
    scores, neighbor_scores
        Shape (k,) each, as for `selection_probabilities`.
    epsilon, rho, sensitivity, monotonic, mechanism
        See the top of this page; only the two mechanisms of this package.

    Returns
    -------
    float
        Error below 1e-12, or 1e-14 of the value where that is more, however small the probabilities are.

    Examples
    --------
    Permute-and-flip is ε-DP, but its log-ratios span more than ε: it is not bounded-range.

    >>> privacy_loss([0, 0], [1, -1], epsilon=2)
    2.0
    >>> round(privacy_loss([0], [0], epsilon=2), 6)
    0.0
    """
    claim = _laws.claim_of(epsilon, rho, sensitivity, monotonic, mechanism)
    first, second = _laws.checked_scores("scores", scores), _laws.checked_scores("neighbor_scores", neighbor_scores)
    if first.shape != second.shape:
        msg = f"neighbor_scores must have the shape of scores {first.shape}, got {second.shape}."
        raise ValueError(msg)
    factors = []
    for vector in (first, second):
        blocks = _laws.blocks_of(vector)
        logs = _laws.block_log_factors(blocks.gaps, blocks.multiplicities, claim.rate, claim.mechanism)
        factors.append(logs[blocks.block_of])
    # log P = log factor − rate·gap: the gaps are subtracted first, since far candidates' are large.
    return float(np.max(np.abs(factors[0] - factors[1] - float(claim.rate) * _gap_changes(first, second))))


def _gap_changes(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Return the gaps of `first` minus those of `second`, nearly without rounding where they are close."""
    if first.dtype.kind == second.dtype.kind == "f":
        return np.asarray((first.max() - second.max()) - (first - second))
    a, b = ([Fraction(score) for score in vector.tolist()] for vector in (first, second))
    apart = max(a) - max(b)
    return np.array([float_of(apart - (x - y)) for x, y in zip(a, b, strict=True)])
