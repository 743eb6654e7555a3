"""The law of whole-number noise: how probable a draw is, and how much it exceeds a bound on average."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dp_polars._accounting.claims import Claim
    from dp_polars._base.arrays import Ints

# Up to this scale every probability has an entry of its own. Beyond, a step of the table stands for several integers,
# which changes no result by more than a few 1e-9 of it: the law is that of a rounded continuous one, to that.
_FINEST = 4096
# Scales from 0 -> the logarithm of the weight; and at how many scales nothing is left that a float64 can tell from 0.
_LAWS: dict[str, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], int]] = {
    "discrete_laplace": (lambda z: -abs(z), 45),
    "discrete_gaussian": (lambda z: -(z**2) / 2, 10),
}


class NoiseLaw:
    """The noise X of a claim, for arrays of thresholds of any shape.

    Parameters
    ----------
    claim
        The claim of discrete Laplace or discrete Gaussian noise.
    """

    def __init__(self, claim: Claim) -> None:
        scale = float(1 / claim.rate)
        self._step = max(1.0, scale / _FINEST)
        self._scale, (self._log_weights, reach) = scale / self._step, _LAWS[claim.mechanism]
        self._index = np.arange(-1, np.ceil(reach * self._scale) + 2)
        weights = self._weights(self._index[1:])
        from_here_on = np.append(np.cumsum(weights[::-1])[::-1], 0)
        self._total = 2 * from_here_on[0] - weights[0]
        self._tails = from_here_on / self._total  # P(X > index)
        self._excesses = np.cumsum(self._tails[:0:-1])[::-1]  # E(X − index)⁺, from index 0 on

    def _weights(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            weights: NDArray[np.float64] = np.exp(self._log_weights(x / self._scale))
        return weights

    def probability(self, x: Ints) -> NDArray[np.float64]:
        """Return P(X = x)."""
        probability: NDArray[np.float64] = self._weights(x / self._step) / (self._total * self._step)
        return probability

    def up_to(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P(X <= x) for whole numbers."""
        beyond = np.where(x < 0, -x - 1, x)  # the law is symmetric
        tail = np.interp((beyond + 0.5) / self._step - 0.5, self._index, self._tails)
        upto: NDArray[np.float64] = np.where(x < 0, tail, 1 - tail)
        return upto

    def excess(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return E(X − x)⁺ for real numbers. It is linear between two integers."""
        above: NDArray[np.float64] = self._step * np.interp(abs(x) / self._step, self._index[1:], self._excesses)
        above += np.maximum(-x, 0)  # E(X − x)⁺ − E(x − X)⁺ = −x
        return above

    def error(self, bias: Ints) -> NDArray[np.float64]:
        """Return E|X + bias|."""
        off: NDArray[np.float64] = abs(bias).astype(np.float64)
        off += 2 * self.excess(off)
        return off
