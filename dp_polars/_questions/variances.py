"""Variances and standard deviations of values that are clipped to public bounds, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import show
from dp_polars._codes.codings import OneCode, Squares
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._questions.averages import Average
from dp_polars._questions.question import Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints


@dataclass(frozen=True)
class Variance(Average):
    """The population variance (ddof 0) of values that are clipped to public bounds.

    A third of the loss pays for each of a sum of distances from the middle of the bounds, a sum of their squares around
    half of the largest (see `Squares`), and a count. One row adds at most H, T and 1 to them, in their units, or takes
    that away: distances and squares have both signs.
    """

    claim: Claim

    def squares(self, *columns: pl.DataType) -> Squares:
        """Return how the squares of the rows are weighed; of bounds alone, as if the step were that of integers."""
        if columns:
            units = self.units(*columns)
            return Squares(units.lower, units.upper, units.step, doubled=True)
        return Squares(
            Fraction(0), Fraction(max(math.ceil((self.upper - self.lower) / self.known_step()), 1)), Fraction(1)
        )

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histograms are of: distances, their squares, and rows with a value."""
        return (
            Evidence(OneCode(), self.units(*columns)),
            Evidence(OneCode(), self.squares(*columns)),
            Evidence(OneCode()),
        )

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return what one row changes: the sum, in halves of a step, that of the squares, in theirs, and the count."""
        steps = (self.upper - self.lower) / self.known_step(*columns)
        return steps, Fraction(self.squares(*columns).largest), Fraction(1)

    @property
    def ends(self) -> tuple[float, float]:
        """No values between the bounds have a larger variance than h², with h half of their distance."""
        return 0.0, self._shown(float((self.upper - self.lower) / 2) ** 2)

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "the column's unit, squared"

    def _shown(self, variance: Any) -> Any:  # noqa: ANN401
        """Return what is shown in the place of a variance."""
        return variance

    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> NDArray[np.float64]:
        """Return mean squares less squared means, of distances from the middle."""
        (distance, squares, count), weighing = totals, self.squares(*columns)
        number = np.maximum(count, 1)
        of_squares = (squares / number + weighing.largest) * (2.0**weighing.shift / 2)
        variance = (of_squares - (distance / number) ** 2) * self._half_step(*columns) ** 2
        answers: NDArray[np.float64] = np.clip(self._shown(np.maximum(variance, 0.0)), *self.ends)
        return answers

    def _extremes(
        self, totals: Sequence[Ints], bounds: Sequence[int], *columns: pl.DataType
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the ends that a variance takes where each total is within its bound.

        With S, Q and n for the totals, the sum, that of the squares (in units of q/2) and the count, it is a constant
        plus (q/2)·Q·x − S²·x², with x = 1/n. That grows with Q, and falls with │S│; it is concave in x, with its top at
        x = (q/2)·Q/(2·S²). So it is smallest at an end of x, and largest at the x that is nearest to the top.
        """
        (distance, squares, count), (off, of_squares, by) = totals, bounds
        farthest, nearest = abs(distance) + off, np.maximum(abs(distance) - off, 0)
        fewest, most_rows = np.maximum(count - by, 1), np.maximum(count + by, 1)
        low, high = squares - of_squares, squares + of_squares
        least = [self.of_totals([farthest, low, number], *columns) for number in (fewest, most_rows)]
        slope = high * (2.0 ** self.squares(*columns).shift / 2)
        # With infinity for a top beyond all numbers, or where there is none.
        top = np.divide(2.0 * nearest * nearest, slope, out=np.full(len(count), np.inf), where=slope > 0)
        most = self.of_totals([nearest, high, np.clip(top, fewest, most_rows)], *columns)
        return np.minimum.reduce(least), most

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the answer's unit, in a group of at least `rows` rows.

        Let n distances have the mean m and the mean square s, and let noise move their sum by x, that of the squares by
        y·q/2 and n by z. With H the largest distance and T·q the largest square, the mean moves by
        δ = (x − z·m)/(n + z), the mean square by (y·q/2 − z·(s − T·q/2))/(n + z), and the variance by the latter less
        2·m·δ + δ². What z adds to this, but for δ², is z·(2·m² − s + T·q/2)/(n + z). Here s is at most T·q and at least
        m² − q/2, and │m│ is at most H. So δ is at most (│x│ + H·│z│)/(n − │z│), and the variance moves by δ² and
        (q/2·│y│ + 2·H·│x│ + (H² + (T + 1)·q/2)·│z│)/(n − │z│) at most. Roots of two numbers differ by the root of their
        difference at most.
        """
        off, of_squares, by = (noise_bound(claim, beta / 3) for claim in self.noise(*columns))
        if rows <= by:
            return self.ends[1]
        weighing, steps = self.squares(*columns), float(self.changes(*columns)[0])
        unit, left = 2.0**weighing.shift / 2, rows - by
        moved = (unit * of_squares + 2 * steps * off + (steps**2 + (weighing.largest + 1) * unit) * by) / left
        moved += ((off + steps * by) / left) ** 2
        return min(float(self._shown(moved * self._half_step(*columns) ** 2)), self.ends[1])

    def __str__(self) -> str:
        return f"variance of values from {show(self.lower)} to {show(self.upper)}"


@dataclass(frozen=True)
class Deviation(Variance):
    """The population standard deviation: the root of a variance."""

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "the column's unit"

    def _shown(self, variance: Any) -> Any:  # noqa: ANN401
        """Return the root."""
        return np.sqrt(variance)

    def __str__(self) -> str:
        return f"standard deviation of values from {show(self.lower)} to {show(self.upper)}"
