"""Sums, means and variances of values that are clipped to public bounds, with noise."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import show
from dp_polars._codes.codings import OneCode, Squares, Units
from dp_polars._codes.multiples import in_steps, type_in_steps
from dp_polars._codes.units import check_held, check_size, units_of
from dp_polars._mechanisms.noise import check_scale, noise_bound
from dp_polars._questions.measures import Multiple, Total
from dp_polars._questions.question import Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints


@dataclass(frozen=True)
class _Clipped(Total):
    """A number of values that are clipped to public bounds and rounded to a public step.

    Parameters
    ----------
    lower, upper
        Exact.
    step
        Exact. None: the last digit of the column's type.
    """

    lower: Fraction
    upper: Fraction
    step: Fraction | None

    def units(self, *columns: pl.DataType) -> Units:
        """Return the values in whole units of the step; a TypeError or ValueError where a column has none."""
        (column,) = columns
        return units_of(self.lower, self.upper, self.step, column)

    def known_step(self, *columns: pl.DataType) -> Fraction:
        """Return the step, or 1 if only the still unknown column type defines it (its last digit is at most 1)."""
        return self.units(*columns).step if columns else self.step or Fraction(1)

    @property
    def left_to_column(self) -> str | None:
        """The step: noise of the same scale in finer steps has a longer tail."""
        return "step" if self.step is None else None

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "the column's unit"

    @property
    def is_one_sided(self) -> bool:
        """Whether no two values have different signs."""
        return self.lower >= 0 or self.upper <= 0


@dataclass(frozen=True)
class Sum(_Clipped, Multiple):
    """The sum of values, clipped to public bounds, in units of a public step.

    Parameters
    ----------
    lower, upper, step, claim
        See above.
    of_floats
        Whether the step was given as a float or a Fraction: then the answer is a float.
    """

    of_floats: bool
    claim: Claim

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answers; None where the column's type decides."""
        return pl.Float64() if self.of_floats else None

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        step = self.units(*columns).step
        check_scale(self._in_steps(step))
        return type_in_steps(step, *columns, of_floats=self.of_floats)

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histogram is of: the rows with a value, each weighing its units."""
        return (Evidence(OneCode(), self.units(*columns)),)

    @property
    def largest(self) -> Fraction:
        """The most that one row adds or takes away, in the column's unit."""
        return max(abs(self.lower), abs(self.upper))

    @property
    def adds_up(self) -> bool:
        """Whether no row takes away."""
        return self.lower >= 0

    def _in_steps(self, step: Fraction) -> Claim:
        """Return the claim of the noise in whole units of a step."""
        return replace(self.claim, score_range=self.claim.score_range / step)

    def noise(self, *columns: pl.DataType) -> tuple[Claim, ...]:
        """Return the claim of the noise, in steps."""
        return (self._in_steps(self.known_step(*columns)),)

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        """Return whole units of the step as numbers of the answer's type."""
        return in_steps(totals[0], self.units(*columns).step, self.answer_type(*columns))

    def answer_step(self, *columns: pl.DataType) -> Fraction:
        """Return the step."""
        return self.units(*columns).step

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return an error in the column's unit; that of integers if only the still unknown type defines the step."""
        step = self.known_step(*columns)
        return float(noise_bound(self._in_steps(step), beta) * step)

    def __str__(self) -> str:
        return f"sum of values from {show(self.lower)} to {show(self.upper)}"


@dataclass(frozen=True)
class SumOfPeople(Sum):
    """The sum of people's totals: the values of one person in a group add up, and that total is clipped.

    With [lo, hi] the bounds of a total, a person who comes or goes changes the sum of a group by at most
    max(│lo│, │hi│), whatever rows they have: by their total, for a person without a value adds 0. Under "replace_one"
    and in one group, the change is the difference of two numbers from {0} ∪ [lo, hi]: if these have one sign, it is no
    larger than the largest of them. So all of it is as for a row of a `Sum` from lo to hi.

    Parameters
    ----------
    lowest, highest
        Exact: lo and hi. They are whole multiples of the step.
    """

    lowest: Fraction
    highest: Fraction

    def units(self, *columns: pl.DataType) -> Units:
        """Return the values in whole units of the step, and the ends of totals; an error where a column has none."""
        units, (column,) = super().units(*columns), columns
        if self.step is None:
            check_held(self.lowest, self.highest, units.step, column, "per_person")
        check_size(replace(units, lower=self.lowest, upper=self.highest))
        return replace(units, ends_of_person=(self.lowest, self.highest))

    @property
    def counts_people(self) -> bool:
        """A person counts once."""
        return True

    @property
    def bounds_people(self) -> bool:
        """One person's effect on a group is that of their total."""
        return True

    @property
    def needs_people(self) -> bool:
        """It must be known who is a person."""
        return True

    @property
    def is_one_sided(self) -> bool:
        """Whether no two totals have different signs."""
        return self.lowest >= 0 or self.highest <= 0

    @property
    def largest(self) -> Fraction:
        """The most that one person adds or takes away, in the column's unit."""
        return max(abs(self.lowest), abs(self.highest))

    @property
    def adds_up(self) -> bool:
        """Whether no person takes away."""
        return self.lowest >= 0

    @property
    def clips(self) -> str:
        """Which totals are clipped."""
        return f"clips a person's total to {show(self.lowest)} … {show(self.highest)}"

    def __str__(self) -> str:
        return f"{super().__str__()}, per person from {show(self.lowest)} to {show(self.highest)}"


class _Average(_Clipped):
    """A number that several draws give, which share the loss equally; the last one is on the number of rows."""

    @property
    def fixed_type(self) -> pl.DataType:
        """Type of the answers."""
        return pl.Float64()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type; a TypeError where a column of this type has none."""
        for claim in self.noise(*columns):
            check_scale(claim)
        return pl.Float64()

    def units(self, *columns: pl.DataType) -> Units:
        """Return the weights of the rows: distances from the middle of the bounds, in halves of a step."""
        return replace(super().units(*columns), doubled=True)

    @abstractmethod
    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the most that one row changes what each draw is on, in its whole units, in either direction."""

    @property
    def parts(self) -> int:
        """One histogram for each draw."""
        return len(self.changes())

    @property
    def largest(self) -> Fraction:
        """One: each share of the claim scales it by what a row changes there."""
        return Fraction(1)

    @property
    def is_one_sided(self) -> bool:
        """Distances from the middle have both signs."""
        return False

    def noise(self, *columns: pl.DataType) -> tuple[Claim, ...]:
        """Return the claim of each draw: an equal share of the loss."""
        changes = self.changes(*columns)
        loss = replace(self.claim.loss, value=self.claim.loss.value / len(changes))
        share = replace(self.claim, loss=loss, draws=1)
        return tuple(replace(share, score_range=share.score_range * change) for change in changes)

    @abstractmethod
    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> NDArray[np.float64]:
        """Return the answers that totals stand for: arrays that go together, also of floats."""

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        """Return the answers that totals stand for."""
        return pl.Series(self.of_totals(totals, *columns))

    def _half_step(self, *columns: pl.DataType) -> float:
        return float(self.known_step(*columns) / 2)

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """Between which numbers every answer lies."""

    @abstractmethod
    def _extremes(
        self, totals: Sequence[Ints], bounds: Sequence[int], *columns: pl.DataType
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest answer for totals that are no further from these than bounds."""

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Return the answers, and the ends of their ranges, from the noisy totals of each group."""
        numbers = [column.to_numpy() for column in drawn]
        answers = self.named(numbers, *columns)
        if beta is None:
            return (answers,)
        claims = self.noise(*columns)
        # Each of the draws is off by more with its share of the probability.
        bounds = [noise_bound(claim, beta / len(claims)) for claim in claims]
        least, most = self._extremes(numbers, bounds, *columns)
        nobody = numbers[-1] - bounds[-1] < 1  # perhaps: then nothing is known
        least[nobody], most[nobody] = self.ends
        return answers, pl.Series(least), pl.Series(most)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return None: the error depends on how many rows a group has."""
        return None

    @property
    def error_needs_rows(self) -> bool:
        """The totals and the number of rows are off, whatever the number."""
        return True


@dataclass(frozen=True)
class Mean(_Average):
    """The mean of values, clipped to public bounds: half of the loss on a sum around the middle, half on a count."""

    claim: Claim

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histograms are of: distances from the middle of the bounds, and rows with a value."""
        return (Evidence(OneCode(), self.units(*columns)), Evidence(OneCode()))

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return what one row changes: the sum, in halves of a step, and the count."""
        return (self.upper - self.lower) / self.known_step(*columns), Fraction(1)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds."""
        return float(self.lower), float(self.upper)

    def _extremes(
        self, totals: Sequence[Ints], bounds: Sequence[int], *columns: pl.DataType
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the ends at the corners: a quotient is monotonic in both of its terms."""
        (distance, count), (off, by) = totals, bounds
        corners = [self.of_totals([distance + a, count + b], *columns) for a in (-off, off) for b in (-by, by)]
        return np.minimum.reduce(corners), np.maximum.reduce(corners)

    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> NDArray[np.float64]:
        """Return distances over numbers, from the middle of the bounds."""
        (distance, count), middle = totals, float((self.lower + self.upper) / 2)
        means: NDArray[np.float64] = np.clip(
            middle + self._half_step(*columns) * distance / np.maximum(count, 1), *self.ends
        )
        return means

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the column's unit, in a group of at least `rows` rows.

        Let the sum of n ≥ 1 distances from the middle be S, and let noise move it by x, and n by y: of each, more than
        its bound has a probability of beta/2. What is divided by is n + z, the larger one of n + y and 1, so │z│ ≤ │y│.
        The answer A is clipped to ±h, h being half the distance of the bounds. If A > S/n, it is not −h that was
        clipped to: S + x ≥ A·(n + z). So n·(A − S/n) ≤ x − A·z ≤ │x│ + h·│y│. The other side is the same, turned round.
        """
        off, by = (noise_bound(claim, beta / 2) for claim in self.noise(*columns))
        width = self.upper - self.lower
        return float(min(width, (off * self.known_step(*columns) + by * width) / (2 * rows)))

    def __str__(self) -> str:
        return f"mean of values from {show(self.lower)} to {show(self.upper)}"


@dataclass(frozen=True)
class Variance(_Average):
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


@dataclass(frozen=True)
class Share(Mean):
    """The share of rows with a condition that is true: the mean of a column of booleans, 1 and 0."""

    @classmethod
    def of(cls, claim: Claim) -> Self:
        """Return the share at a claim."""
        return cls(Fraction(0), Fraction(1), Fraction(1), claim)

    def units(self, *columns: pl.DataType) -> Units:
        """Return the weights of the rows; a TypeError where a column holds no conditions."""
        (column,) = columns
        if column != pl.Boolean:
            msg = (
                f"the condition must be Boolean, got a column of type {column}.\n\nHint: a share is of rows; try mean."
            )
            raise TypeError(msg)
        return super().units(column)

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "shares"

    def __str__(self) -> str:
        return "share of rows"
