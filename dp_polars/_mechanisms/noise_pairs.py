"""The joint noise of a sum and of a count: their errors, and the means that they allow.

Proof: `docs/proofs/mean-intervals.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
class NoisePair:
    """Independent noise X on a sum and Y on a count, in whole units of these.

    Each is near a continuous variable: a Laplace variable, or a normal one.
    """

    is_laplace: bool
    scales: tuple[float, float]  # of these variables: the scale, or the standard deviation
    slack: tuple[float, float]  # the largest distance of X and Y from them

    @classmethod
    def of(cls, of_sum: Claim, of_count: Claim, bits: tuple[int, int] = (0, 0)) -> NoisePair:
        """Return the noise of two claims of one mechanism, each in parts of 2**−bits."""
        scales = [float(1 / claim.rate) for claim in (of_sum, of_count)]
        slack = map(_slack_of_laplace if of_sum._has_epsilon else _slack_of_normal, scales)
        (p, r), (s, t) = (
            [math.ldexp(one, -bit) for one, bit in zip(both, bits, strict=True)] for both in (scales, slack)
        )
        return cls(of_sum._has_epsilon, (p, r), (s, t))

    def may_be(self, off: ArrayLike, by: ArrayLike, beta: float, times: ArrayLike = 1.0) -> NDArray[np.bool_]:
        """Return whether times·X − by·Y is at least this far from 0 with a probability above `beta`, or nearly so."""
        by, times = np.abs(by), np.abs(times)
        far = np.maximum(np.abs(off) - times * self.slack[0] - by * self.slack[1], 0.0)
        if not self.is_laplace:
            deviation = np.hypot(times * self.scales[0], by * self.scales[1])
            return np.asarray(far <= -NormalDist().inv_cdf(beta * _CAUTION / 2) * deviation)
        return np.asarray(_tail_of_laplace(far, times * self.scales[0], by * self.scales[1]) > beta * _CAUTION)

    def bound(self, by: float, beta: float, times: float = 1.0) -> float:
        """Return a bound on times·X − by·Y that fails with probability `beta`."""
        low, high = 0.0, 1.0
        while self.may_be(high, by, beta, times):
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.may_be(middle, by, beta, times) else (low, middle)
        return high

    def quotients(self, sums: Floats, counts: Floats, most: float, beta: float) -> tuple[Floats, Floats]:
        """Return the ends of all quotients from −most to most that the draws allow, shape (g,).

        For the true quotient v, sums − v·counts is X − v·Y. So v is between the ends with probability 1 − beta. If no
        quotient is left, the lower end is `most`, and the upper one −most.
        """

        def at(v: Floats) -> tuple[Floats, NDArray[np.bool_]]:
            off = sums - v * counts
            return off, self.may_be(off, v, beta)

        return self._ends_of_allowed(at, -most, most, len(sums))

    def parts(self, first: Floats, second: Floats, beta: float) -> tuple[Floats, Floats]:
        """Return the ends of all parts from 0 to 1 that two drawn sums allow, shape (g,).

        Let v be the first true sum's part of both sums. Then (1 − v)·first − v·second is (1 − v)·X − v·Y. If no part is
        left, the lower end is 1, and the upper one 0.
        """

        def at(v: Floats) -> tuple[Floats, NDArray[np.bool_]]:
            off = (1 - v) * first - v * second
            return off, self.may_be(off, v, beta, 1 - v)

        return self._ends_of_allowed(at, 0.0, 1.0, len(first))

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


def _tail_of_laplace(far: Floats, one: ArrayLike, other: ArrayLike) -> Floats:
    """Return P(│X + Y│ > far) for Laplace variables of two scales p ≥ r: (p²·e^(−far/p) − r²·e^(−far/r))/(p² − r²).

    The form avoids cancellation if the scales are alike.
    """
    p, ratio = np.maximum(one, other), np.minimum(one, other) / np.maximum(one, other)
    u, ratio = far / p, np.maximum(ratio, 1e-200)
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
