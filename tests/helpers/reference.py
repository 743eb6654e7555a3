"""Slow, rigorous laws of both mechanisms: what the samplers and the fast analysis are tested against.

Scores and rates are exact rationals (a float counts as the binary number it is). Results are balls of
`flint.arb` that provably hold the true probability, to about `digits` significant digits; `floats` makes an
array of them. Nothing here shares code with `dp_polars.analysis`, and `by_subsets` shares no formula with
`law`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import acb, arb, arb_poly, ctx, fmpq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DIGITS = 200
_LARGEST_DEGREE = 1500  # of a polynomial; more racers are integrated numerically, as rigorously


def _exact(value: Any) -> Fraction:
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def _arb(value: Any) -> arb:
    exact = _exact(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def coins(scores: Sequence[Any], rate: Any) -> list[arb]:
    """exp(−rate·gap) of each score, at the current precision."""
    exact = [_exact(score) for score in scores]
    best = max(exact)
    return [(-(_arb(rate) * _arb(best - score))).exp() for score in exact]


def law(
    scores: Sequence[Any],
    multiplicities: Sequence[int] | None = None,
    *,
    rate: Any,
    mechanism: str,
    digits: int = DIGITS,
) -> list[arb]:
    """Probability of each block: that any of its candidates wins. Without multiplicities: of each candidate.

    Scores may repeat. `rate` is λ: the coin of a candidate is exp(−λ·gap).
    """
    exact = [_exact(score) for score in scores]
    counts = [1] * len(exact) if multiplicities is None else [int(m) for m in multiplicities]
    merged: dict[Fraction, int] = dict.fromkeys(exact, 0)
    for score, m in zip(exact, counts, strict=True):
        merged[score] += m
    method = {"exponential": _weights, "permute_and_flip": _by_polynomial}[mechanism]
    if method is _by_polynomial and sum(counts) > _LARGEST_DEGREE:
        method = _by_integral
    bits = math.ceil(digits * math.log2(10)) + 64
    while True:
        with ctx.workprec(bits):
            each = method(coins(list(merged), rate), list(merged.values()))
            of = dict(zip(merged, each, strict=True))
            blocks = [m * of[score] for score, m in zip(exact, counts, strict=True)]
        if all(p.rel_accuracy_bits() >= digits * math.log2(10) for p in blocks):
            return blocks
        bits *= 2


def floats(probabilities: Iterable[arb]) -> np.ndarray:
    """The nearest float64 of each probability."""
    return np.array([float(p) for p in probabilities])


# Each of these takes distinct coins and how often each occurs, and returns the probability of one of each.


def _weights(ps: list[arb], counts: list[int]) -> list[arb]:
    total = sum((m * p for p, m in zip(ps, counts, strict=True)), arb(0))
    return [p / total for p in ps]


def _by_polynomial(ps: list[arb], counts: list[int]) -> list[arb]:
    """p·∫₀¹ ∏(1 − p_i t) dt over the others, the product expanded as a polynomial in t."""
    factors = [arb_poly([1, -p]) ** m for p, m in zip(ps, counts, strict=True)]
    while len(factors) > 1:
        factors = [math.prod(factors[i : i + 2], start=arb_poly([1])) for i in range(0, len(factors), 2)]
    product = factors[0].coeffs()
    each = []
    for p in ps:
        # Divide by (1 − p t), from the constant term up, and integrate term by term.
        quotient, total = arb(0), arb(0)
        for power, coefficient in enumerate(product[:-1]):
            quotient = coefficient + p * quotient
            total += quotient / (power + 1)
        each.append(p * total)
    return each


def _by_integral(ps: list[arb], counts: list[int]) -> list[arb]:
    """The same integral by Arb's rigorous adaptive quadrature, on panels that double in length."""
    expected = sum((p * m for p, m in zip(ps, counts, strict=True)), arb(0))
    first = 2.0 ** -max(0, math.ceil(math.log2(float(expected.upper()))))
    edges = [0.0]
    while edges[-1] < 1:
        edges.append(min(1.0, 2 * edges[-1] or first))
    each = []
    for r, p in enumerate(ps):

        def product(t: acb, _: bool, r: int = r) -> acb:
            value = acb(1)
            for i, (q, m) in enumerate(zip(ps, counts, strict=True)):
                value *= (1 - q * t) ** (m - (i == r))
            return value

        tiny = arb(2) ** (-ctx.prec) * first
        panels = (acb.integral(product, a, b, abs_tol=tiny).real for a, b in itertools.pairwise(edges))
        each.append(p * sum(panels, arb(0)))
    return each


def noisy_max_law(scores: Sequence[Any], *, rate: Any, digits: int = 30) -> list[arb]:
    """Law of the largest score after Laplace noise of scale 1/rate, rigorously: k up to 20 or so."""
    exact = [_exact(score) for score in scores]
    bits = math.ceil(digits * math.log2(10)) + 64
    with ctx.workprec(bits):
        xs = [_arb(rate) * _arb(max(exact) - score) for score in exact]
        k, edges = len(xs), sorted({_exact(rate) * (score - max(exact)) for score in exact})
        # Above the best score F is 1 − exp(−u − x)/2: an integral of permute-and-flip's kind, with half the
        # coins.
        above = _by_polynomial([(-x).exp() / 2 for x in xs], [1] * k)
        # Below the worst one all are exp(u + x)/2.
        below = math.prod(((x + _arb(edges[0])).exp() / 2 for x in xs), start=arb(1)) / k
        total = [a + below for a in above]
        for low, high in itertools.pairwise(edges):
            passed = [_exact(rate) * (score - max(exact)) >= high for score in exact]
            for r in range(k):

                def density(u: acb, _: bool, r: int = r, passed: list[bool] = passed) -> acb:
                    value = acb(1)
                    for i, x in enumerate(xs):
                        tail = (u + x if passed[i] else -u - x).exp() / 2
                        value *= tail if passed[i] or i == r else 1 - tail
                    return value

                total[r] += acb.integral(density, _arb(low), _arb(high)).real
    return total


def by_subsets(ps: Sequence[Any]) -> list[Any]:
    """Algorithm 1 of McKenna & Sheldon (2020), literally: which candidates came before, all with tails.

    `ps` are the coins (Fractions stay exact; one must be 1). Over all 2^(k−1) subsets: k up to 15 or so.
    """
    k = len(ps)
    law_of: list[Any] = []
    for r, p in enumerate(ps):
        others = [1 - q for i, q in enumerate(ps) if i != r]
        first: Any = 0 * p  # the probability that the flips come to r
        for size in range(k):
            tails = sum((math.prod(subset) for subset in itertools.combinations(others, size)), 0 * p)
            first += _times(tails, Fraction(1, k * math.comb(k - 1, size)))
        law_of.append(p * first)
    return law_of


def bounded_range_rho(x: Any, digits: int = 60) -> Fraction:
    """The tight rho of bounded range x (arXiv 2510.25746): y − 1 − ln y for y = x/(exp(x) − 1), to so many digits."""
    exact = _exact(x)
    if exact == 0:
        return Fraction(0)
    with ctx.workdps(4 * digits + 10 * max(0, -math.floor(math.log10(exact)))):
        ball = _arb(exact)
        kept = 1 - (-ball).exp()
        middle = (ball * (-ball).exp() / kept - 1 - (ball / kept).log() + ball).mid()
        mantissa, exponent = middle.man_exp()
    return int(mantissa) * Fraction(2) ** int(exponent)


def pure_rho(x: Any, digits: int = 60) -> Fraction:
    """The rho of randomized response, x·tanh(x/2), and so of whatever is x-DP, to so many digits."""
    with ctx.workdps(4 * digits):
        mantissa, exponent = (_arb(_exact(x)) * (_arb(_exact(x)) / 2).tanh()).mid().man_exp()
    return int(mantissa) * Fraction(2) ** int(exponent)


def _times(value: Any, factor: Fraction) -> Any:
    return value * _arb(factor) if isinstance(value, arb) else value * factor


def by_permutations(ps: Sequence[Any]) -> list[Any]:
    """The same by running through all k! orders: k up to 7 or so."""
    k = len(ps)
    law_of: list[Any] = [0 * ps[0]] * k
    for order in itertools.permutations(range(k)):
        reached: Any = 1
        for i in order:
            law_of[i] += reached * ps[i]
            reached = reached * (1 - ps[i])
    return [_times(total, Fraction(1, math.factorial(k))) for total in law_of]


def arrival(v: Any, gap: Any, multiplicity: int, *, rate: Any, mechanism: str, digits: int = DIGITS) -> arb:
    """Arrival time of a block: F⁻¹(v) of the smallest of `multiplicity` draws, times exp(rate·gap).

    Permute-and-flip: 1 − (1−v)^(1/m). Exponential mechanism: −log(1−v)/m. 0 < v < 1, exact.
    """
    bits = math.ceil(digits * math.log2(10)) + 64
    cancelled = _exact(v).denominator.bit_length() + (_exact(rate) * _exact(gap) + 1).numerator.bit_length()
    with ctx.workprec(bits + cancelled):
        log_survival = (1 - _arb(v)).log() / multiplicity
        first = -log_survival if mechanism == "exponential" else -log_survival.expm1()
        return first * (_arb(rate) * _arb(gap)).exp()


def own_scores(scores: Sequence[Any], sensitivities: Sequence[Any], t: Any, unit: Any = 1) -> list[Fraction]:
    """Generalised scores (Raskhodnikova & Smith 2016) of rows with sensitivities of their own, in units of `unit`."""
    rows = [(_exact(q), _exact(own) * unit) for q, own in zip(scores, sensitivities, strict=True)]
    return [min(((q - t * own) - (other_q - t * other)) / (own + other) for other_q, other in rows) for q, own in rows]


def log_ratios(
    scores: Sequence[Any], neighbor: Sequence[Any], *, rate: Any, mechanism: str, digits: int = DIGITS
) -> list[arb]:
    """log P(candidate | scores) − log P(candidate | neighbor), for every candidate."""
    laws = [law(s, rate=rate, mechanism=mechanism, digits=digits) for s in (scores, neighbor)]
    with ctx.workprec(math.ceil(digits * math.log2(10)) + 64):
        return [a.log() - b.log() for a, b in zip(*laws, strict=True)]


def largest_loss(
    scores: Sequence[Any], neighbor: Sequence[Any], *, rate: Any, mechanism: str, digits: int = DIGITS
) -> float:
    """The largest absolute log-ratio between the laws of two score vectors: the privacy loss of this pair."""
    ratios = log_ratios(scores, neighbor, rate=rate, mechanism=mechanism, digits=digits)
    return max(abs(float(x)) for x in ratios)


def expectation(probabilities: Iterable[arb], values: Iterable[Any], digits: int = DIGITS) -> arb:
    """Σ P·value: the expected error where the values are the gaps."""
    with ctx.workprec(math.ceil(digits * math.log2(10)) + 64):
        return sum((p * _arb(v) for p, v in zip(probabilities, values, strict=True)), arb(0))


def plus(one: Any, other: Any) -> Any:
    """The sum of two people's numbers."""
    return tuple(
        tuple(tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in zip(xs, ys, strict=True))
        for xs, ys in zip(one, other, strict=True)
    )


def together(one: Any, other: Any) -> Counter[Any]:
    """The law of the sum of what two people add: their orders are independent."""
    found: Counter[Any] = Counter()
    for (x, p), (y, q) in itertools.product(one.items(), other.items()):
        found[plus(x, y)] += p * q
    return found
