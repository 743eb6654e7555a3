"""The joint noise of two or three sums: their errors, and the means that they allow.

Proof: `docs/proofs/mean-intervals.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import Floats

# How often the stretch that contains an end is halved. Then its outer side is the end.
_HALVINGS = 40
# Floats are off by far less than this part of a probability.
_CAUTION = 1 - 2.0**-40


@dataclass(frozen=True)
class JointNoise:
    """Independent noise on several sums, in whole units of these.

    Each is near a continuous variable: a Laplace variable, or a normal one.
    """

    is_laplace: bool
    scales: tuple[float, ...]  # of these variables: the scale, or the standard deviation
    slack: tuple[float, ...]  # the largest distances of the noise from them

    @classmethod
    def of(cls, claims: Sequence[Claim], bits: Sequence[int]) -> JointNoise:
        """Return the noise of claims of one mechanism, each in parts of 2**−bits."""
        is_laplace = claims[0]._has_epsilon
        scales = [float(1 / claim.rate) for claim in claims]
        slack = map(_slack_of_laplace if is_laplace else _slack_of_normal, scales)
        in_units = [tuple(map(math.ldexp, of_each, [-bit for bit in bits])) for of_each in (scales, slack)]
        return cls(is_laplace, *in_units)

    def may_be(self, off: ArrayLike, beta: float, *by: ArrayLike) -> NDArray[np.bool_]:
        """Return whether the noises, each times its factor, may add up to this much, or nearly so.

        So the probability that their sum is at least this far from 0 is above `beta`.
        """
        factors = [np.abs(factor) for factor in by]
        far = np.abs(off) - sum(factor * slack for factor, slack in zip(factors, self.slack, strict=True))
        far, scales = np.maximum(far, 0.0), [factor * of for factor, of in zip(factors, self.scales, strict=True)]
        if not self.is_laplace:
            deviation = np.sqrt(sum(scale**2 for scale in scales))
            return np.asarray(far <= -NormalDist().inv_cdf(beta * _CAUTION / 2) * deviation)
        return np.asarray(_tail_of_laplace(far, *scales) > beta * _CAUTION)

    def bound(self, beta: float, *by: float) -> float:
        """Return a bound on the sum of all noises, each times its factor, that fails with probability `beta`."""
        low, high = 0.0, 1.0
        while self.may_be(high, beta, *by):
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.may_be(middle, beta, *by) else (low, middle)
        return high

    def quotients(self, sums: Floats, counts: Floats, most: float, beta: float) -> tuple[Floats, Floats]:
        """Return the ends of all quotients from −most to most that the draws allow, shape (g,).

        For the true quotient v, sums − v·counts is X − v·Y. So v is between the ends with probability 1 − beta. If no
        quotient is left, the lower end is `most`, and the upper one −most.
        """

        def at(v: Floats) -> tuple[Floats, NDArray[np.bool_]]:
            off = sums - v * counts
            return off, self.may_be(off, beta, 1.0, v)

        return self._ends_of_allowed(at, -most, most, len(sums))

    def parts(self, sums: Sequence[Floats], beta: float) -> tuple[Floats, Floats]:
        """Return the ends of all parts from 0 to 1 that drawn Bernstein sums allow, shape (g,).

        With d + 1 sums, let v be the true mean of 1, 1 − 1/d, …, 0 with the sums as weights. Then the sums, each times
        its place in this list less v, add up to noise with these factors. If no part is left, the lower end is 1, and
        the upper one 0.
        """
        places = [1 - number / (len(sums) - 1) for number in range(len(sums))]

        def at(v: Floats) -> tuple[Floats, NDArray[np.bool_]]:
            factors = [place - v for place in places]
            off = sum((by * drawn for by, drawn in zip(factors, sums, strict=True)), np.zeros(len(v)))
            return off, self.may_be(off, beta, *factors)

        return self._ends_of_allowed(at, 0.0, 1.0, len(sums[0]))

    @staticmethod
    def _ends_of_allowed(
        at: Callable[[Floats], tuple[Floats, NDArray[np.bool_]]], least: float, most: float, groups: int
    ) -> tuple[Floats, Floats]:
        """Return the ends of the allowed numbers from `least` to `most`.

        `at` returns, for one number per group, the noise that it implies, and whether that is allowed.
        """

        def side(number: Floats) -> NDArray[np.int8]:
            """Return 0 for an allowed number, and otherwise the sign of the unexplained rest."""
            off, is_allowed = at(number)
            return np.where(is_allowed, 0, np.sign(off)).astype(np.int8)

        first, last = np.full(groups, float(least)), np.full(groups, float(most))
        at_first, at_last = side(first), side(last)

        def end(outer: Floats, inner: Floats, at_outer: NDArray[np.int8], at_inner: NDArray[np.int8]) -> Floats:
            # The numbers on one side of noise are one stretch. Here it begins at `outer`, if that is not allowed.
            for _ in range(_HALVINGS):
                middle = (outer + inner) / 2
                goes_on = (side(middle) == at_outer) & (at_outer != 0)
                outer, inner = np.where(goes_on, middle, outer), np.where(goes_on, inner, middle)
            return np.where((at_outer == at_inner) & (at_outer != 0), inner, outer)

        return end(first, last, at_first, at_last), end(last, first, at_last, at_first)


def _tail_of_laplace(far: Floats, *scales: ArrayLike) -> Floats:
    """Return P(│X + Y│ > far) for Laplace variables of two scales p ≥ r: (p²·e^(−far/p) − r²·e^(−far/r))/(p² − r²).

    The form avoids cancellation if the scales are alike. With more scales it is the same difference of probabilities,
    each without one of both. There the largest one is made a hundredth larger than the smallest one, at least.
    """
    *rest, r, p = np.sort(np.broadcast_arrays(*scales), axis=0)[[*range(1, len(scales) - 1), 0, -1]]
    if rest:
        p = np.maximum(p, 1.01 * r)
        with_p, with_r = (_tail_of_laplace(far, *rest, one) for one in (p, r))
        return np.asarray((p**2 * with_p - r**2 * with_r) / (p**2 - r**2))
    u, ratio = far / p, np.maximum(r / p, 1e-200)
    apart = u * (1 - ratio) / ratio
    decay = np.where(apart > 1e-12, -np.expm1(-apart) / np.maximum(apart, 1e-12), 1.0)
    return np.asarray(np.exp(-u) * (1 + u * decay * ratio / (1 + ratio)))


def _slack_of_laplace(scale: float) -> float:
    """Return the largest distance of discrete Laplace noise from a Laplace variable of its scale."""
    return 1 - scale * math.log(2 / (1 + math.exp(-1 / scale)))


def _slack_of_normal(deviation: float) -> float:
    """Return the distance of discrete Gaussian noise from a normal variable, exceeded with less than 1e-32."""
    if deviation >= 1.2:
        return 0.5 + max(0.05, 0.6 / deviation)
    return 1.0 if deviation >= 0.5 else 2.0
