"""Laws of selection and of noise; and the loss for a wanted accuracy, and the reverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_polars._accounting.claims import Claim, check_mechanism, claim_for_scores
from dp_polars._accounting.terms import Loss, Mechanism, Unit
from dp_polars._base.column_types import Exact, exact_numbers, gaps_between
from dp_polars._base.numbers import Floats, Ints, Number, as_fraction
from dp_polars._mechanisms.racing import exponents_of

LAPLACE = "report_noisy_max_laplace"

# Gauss-Legendre on [0, T], T = min(1, 45/Σp). On the Bernstein ellipse with parameter ρ around [0, T] the integrand is
# at most exp(Σp·T·(ρ + 1/ρ − 2)/4). With ρ = 5.5 the error of 32 nodes is below 1e-25 of the integral (Trefethen,
# Approximation Theory and Approximation Practice, Theorem 19.3). The rest beyond T is below exp(−44) of it.
_REACH = 45.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_UNIT_NODES, _UNIT_WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
_CHUNK = 1 << 15  # blocks at a time: 32 nodes of each are 8 MiB
_UNDERFLOW = 746.0  # exp(−746) is zero in float64


@dataclass(frozen=True)
class ScoreBlocks:
    """Candidates with one score each, merged: the best block first."""

    gaps: Floats  # shape (n,), float64, ascending from 0: best score minus score, rounded once
    multiplicities: NDArray[np.int64]  # shape (n,): how many candidates have this score
    block_of: NDArray[np.int64]  # shape (k,): the block of each candidate


def checked_scores(name: str, scores: ArrayLike) -> Exact:
    """Return scores of shape (k,) in the widest type of their kind, exactly (see `_columns.Exact`), or raise."""
    array, offered = exact_numbers(name, scores)
    if array.ndim != 1:
        msg = f"{name} must be a vector of integers or floats, got shape {array.shape} of {array.dtype}."
        raise TypeError(msg)
    if not array.size >= 1:
        msg = f"{name} must hold at least one score, got none."
        raise ValueError(msg)
    wide = array.astype({"i": np.int64, "u": np.uint64, "f": np.float64, "O": object}[array.dtype.kind])
    if not (offered is None or offered.all()) or not (wide.dtype.kind == "O" or np.isfinite(wide).all()):
        msg = f"{name} must be finite, got null, NaN or infinity.\n\nHint: leave out candidates that must not win."
        raise ValueError(msg)
    return wide


def score_blocks(name: str, scores: ArrayLike) -> ScoreBlocks:
    return blocks_of(checked_scores(name, scores))


def blocks_of(scores: Exact) -> ScoreBlocks:
    values, position, counts = np.unique(scores, return_inverse=True, return_counts=True)
    gaps = gaps_between(values[-1:], values).astype(np.float64)
    return ScoreBlocks(gaps[::-1], counts[::-1].astype(np.int64), len(values) - 1 - position)


def block_probabilities(gaps: Floats, multiplicities: ArrayLike, rate: Fraction | float, mechanism: str) -> Floats:
    """Return the probability of each block: that any of its candidates is chosen. Relative error at most 1e-12.

    `gaps`: shape (n,): best score minus score; at least one is 0. They may repeat.
    `rate`: λ, so that the coin of a candidate is exp(−λ·gap). For report-noisy-max: one over the scale of its noise.
    """
    exponents, counts = exponents_of(gaps, rate), np.asarray(multiplicities, np.float64)
    if mechanism == LAPLACE:
        return _laplace_probabilities(exponents, counts)
    return np.exp(np.log(counts) - exponents + block_log_factors(gaps, counts, rate, mechanism))


def block_log_factors(gaps: Floats, multiplicities: ArrayLike, rate: Fraction | float, mechanism: str) -> Floats:
    """Return log(probability of one candidate of the block) + rate·gap, which never underflows."""
    exponents, counts = exponents_of(gaps, rate), np.asarray(multiplicities, np.float64)
    return _LOG_FACTORS[mechanism](exponents, counts, float(np.exp(np.log(counts) - exponents).sum()))


# log(probability of one candidate) + rate·gap, from the exponents, the multiplicities and the sum of all coins.
_LOG_FACTORS: dict[str, Callable[..., Floats]] = {
    "permute_and_flip": lambda exponents, *coins: np.log(_leave_one_out(np.exp(-exponents), *coins)),
    "exponential": lambda exponents, _, expected: np.full(len(exponents), -math.log(expected)),
}


def mean_error(blocks: ScoreBlocks, rate: float, mechanism: str) -> float:
    of_block = block_probabilities(blocks.gaps, blocks.multiplicities, rate, mechanism)
    possible = of_block > 0  # leaves out gaps that overflow
    return float((of_block[possible] * blocks.gaps[possible]).sum())


def share_of_best(blocks: ScoreBlocks, rate: float, mechanism: str) -> float:
    of_block = block_probabilities(blocks.gaps, blocks.multiplicities, rate, mechanism)
    others = float(of_block[1:].sum())
    # The smaller of the two has the smaller error.
    return 1 - others if others < 0.5 else float(of_block[0])


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, n, _CHUNK))


def _leave_one_out(coins: Floats, counts: Floats, expected: float) -> Floats:
    """Return ∫₀¹ ∏(1 − coin·t) dt for each block, over all candidates but one of it; `expected`: sum of all coins."""
    reach = min(1.0, _REACH / expected)
    nodes = reach * _UNIT_NODES
    log_product = np.zeros(len(nodes))
    for chunk in _chunks(len(coins)):
        # One row for each node, so that NumPy adds the blocks pairwise.
        log_product += (np.log1p(np.multiply.outer(-nodes, coins[chunk])) * counts[chunk]).sum(axis=1)
    masses = reach * _UNIT_WEIGHTS * np.exp(log_product)
    result = np.empty(len(coins))
    for chunk in _chunks(len(coins)):
        result[chunk] = masses @ (1 / (1 - np.multiply.outer(nodes, coins[chunk])))
    return result


def _laplace_probabilities(exponents: Floats, counts: Floats) -> Floats:
    """Return the law of report-noisy-max with Laplace noise of scale 1.

    P_r = ∫ f(u + x_r)·∏_{i≠r} F(u + x_i) du, with the density f and the distribution function F of the noise. Above the
    best score every F is 1 − exp(−(u + x))/2, which is permute-and-flip's integral with halved coins. Below it the
    integrand is smooth between the scores. Each score on the way halves the product, so only a few of them matter.
    """
    halved = np.exp(-exponents) / 2
    weights = np.exp(np.log(counts) - exponents) / 2
    result = weights * _leave_one_out(halved, counts, float(weights.sum()))
    for nodes, masses in _panels_below(exponents, counts):
        for chunk in _chunks(len(exponents)):
            # f/F is 1 below a candidate's own score, and exp(−v)/(2 − exp(−v)) above it.
            above = np.exp(-np.maximum(np.add.outer(nodes, exponents[chunk]), 0.0))
            result[chunk] += counts[chunk] * (masses @ (above / (2 - above)))
    return result


def _panels_below(exponents: Floats, counts: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield nodes u < 0 and masses weight·∏F(u + x_i), from the best score down until nothing is left.

    Nothing is left if the product without the best candidate is below exp(−50). A panel is at most 4 wide. So no F
    turns too fast for 32 nodes, and the product falls by at most exp(−16) on it.
    """
    scores_below, position = np.unique(exponents, return_inverse=True)
    passed = np.cumsum(np.bincount(position, weights=counts))
    ends = [*(-scores_below[1:][scores_below[1:] < _UNDERFLOW]).tolist(), -math.inf]
    end = 0.0
    for above, kink in zip(passed.tolist(), ends, strict=False):
        while end > kink:
            others = _log_product(np.array([end]), exponents, counts)[0] - (end - math.log(2))
            if others < -50 or end < -_UNDERFLOW:
                return
            start = max(kink, end - min(4.0, 16 / above))
            nodes = start + (end - start) * _UNIT_NODES
            yield nodes, (end - start) * _UNIT_WEIGHTS * np.exp(_log_product(nodes, exponents, counts))
            end = start


def _log_product(u: Floats, exponents: Floats, counts: Floats) -> Floats:
    """Return the sum of log F(u + x_i), with F the distribution function of Laplace noise of scale 1."""
    result = np.zeros(len(u))
    for chunk in _chunks(len(exponents)):
        v = np.add.outer(u, exponents[chunk])
        log_f = np.where(v < 0, v - math.log(2), np.log1p(-np.exp(-np.abs(v)) / 2))
        result += (log_f * counts[chunk]).sum(axis=1)
    return result


Comparable: TypeAlias = Mechanism | Literal["report_noisy_max_laplace"]


def claim_of(
    epsilon: Number | None, rho: Number | None, sensitivity: Number, monotonic: bool, mechanism: str | None
) -> Claim:
    return claim_for_scores(Loss.of(epsilon=epsilon, rho=rho), mechanism, sensitivity, monotonic)


def rate_of(
    epsilon: Number | None, rho: Number | None, sensitivity: Number, monotonic: bool, mechanism: str | None
) -> tuple[float, str]:
    name = check_comparable(mechanism, Loss.of(epsilon=epsilon, rho=rho).unit)
    return float(claim_of(epsilon, rho, sensitivity, monotonic, charged_as(name)).rate), name


def charged_as(mechanism: str) -> Mechanism:
    """Return the mechanism of the claim. Report-noisy-max's noise has the scale 1/λ of pure DP."""
    return check_mechanism("choice", None if mechanism == LAPLACE else mechanism, "epsilon")


def check_comparable(mechanism: str | None, unit: Unit) -> str:
    if mechanism != LAPLACE:
        return check_mechanism("choice", mechanism, unit)
    if unit != "epsilon":
        msg = f"mechanism {LAPLACE!r} must be given its loss as epsilon, got {unit}."
        raise ValueError(msg)
    return LAPLACE


def risk_of(confidence: object) -> float:
    """Return the probability beyond a level of confidence."""
    return as_probability("confidence", confidence, complement=True)


def as_probability(name: str, value: object, *, complement: bool = False) -> float:
    exact = as_fraction(name, value)
    probability = float(1 - exact if complement else exact)
    if not 0 < probability < 1:
        msg = f"{name} must lie strictly between 0 and 1 in float64, got {value!r}."
        raise ValueError(msg)
    return probability


# Up to this scale every probability has an entry of its own. Beyond, an entry covers several integers. That changes no
# result by more than a few 1e-9 of it: the law is close to a rounded continuous one.
_FINEST = 4096
# Scales from 0 -> the logarithm of the weight; and the number of scales after which a float64 is 0.
_LAWS: dict[str, tuple[Callable[[Floats], Floats], int]] = {
    "discrete_laplace": (lambda z: -abs(z), 45),
    "discrete_gaussian": (lambda z: -(z**2) / 2, 10),
}
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
# Scales from 0 on -> P(Z > z) of the continuous law.
_TAILS: dict[str, Callable[[Floats], Floats]] = {
    "discrete_laplace": lambda z: np.exp(-z) / 2,
    "discrete_gaussian": lambda z: _erfc(z / math.sqrt(2)) / 2,
}


class NoiseLaw:
    """The noise X of a claim of discrete Laplace or Gaussian noise, for arrays of thresholds of any shape.

    With `bits`: the claim is in parts of 2**−bits, and X is the nearest whole number. A row, or its largest value, has
    2**20 parts. So X is practically a rounded continuous number.
    """

    def __init__(self, claim: Claim, bits: int = 0) -> None:
        scale = math.ldexp(float(1 / claim.rate), -bits)
        self._rounded = _TAILS[claim.mechanism] if bits else None
        self._step = max(1.0, scale / _FINEST)
        self._scale, (self._log_weights, reach) = scale / self._step, _LAWS[claim.mechanism]
        self._index = np.arange(-1, np.ceil(reach * self._scale) + 2)
        weights = self._weights(self._index[1:])
        from_here_on = np.append(np.cumsum(weights[::-1])[::-1], 0)
        self._total = 2 * from_here_on[0] - weights[0]
        self._tails = from_here_on / self._total  # P(X > index)
        self._excesses = np.cumsum(self._tails[:0:-1])[::-1]  # E(X − index)⁺, from index 0 on

    def _weights(self, x: Floats) -> Floats:
        with np.errstate(over="ignore"):
            if self._rounded is not None:
                ends = (abs(abs(x) - 0.5) / self._scale, (abs(x) + 0.5) / self._scale)
                nearer, farther = map(self._rounded, ends)
                return np.asarray(np.where(abs(x) < 0.5, 1 - nearer, nearer) - farther)
            return np.asarray(np.exp(self._log_weights(x / self._scale)))

    def probability(self, x: Ints) -> Floats:
        return np.asarray(self._weights(x / self._step) / (self._total * self._step))

    def up_to(self, x: Floats) -> Floats:
        """Return P(X <= x) for whole numbers."""
        beyond = np.where(x < 0, -x - 1, x)  # the law is symmetric
        tail = np.interp((beyond + 0.5) / self._step - 0.5, self._index, self._tails)
        return np.asarray(np.where(x < 0, tail, 1 - tail))

    def excess(self, x: Floats) -> Floats:
        """Return E(X − x)⁺ for real numbers. It is linear between two integers."""
        above = self._step * np.interp(abs(x) / self._step, self._index[1:], self._excesses)
        return np.asarray(above + np.maximum(-x, 0))  # E(X − x)⁺ − E(x − X)⁺ = −x

    def error(self, bias: Ints) -> Floats:
        """Return E|X + bias|."""
        off = abs(bias).astype(np.float64)
        return np.asarray(off + 2 * self.excess(off))


# The probability that one of n − 1 candidates, each with the coin p, is chosen instead of the best one.
_MISSES: dict[str, Callable[[float, Floats], Floats]] = {
    "permute_and_flip": lambda n, p: 1 + np.expm1(n * np.log1p(-p)) / (n * p),
    "exponential": lambda n, p: (n - 1) * p / (1 + (n - 1) * p),
}


def worst_error(k: int, mechanism: str) -> float:
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
