"""Sums and means of values that are clipped to public bounds, with noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import show
from dp_polars._codes.codings import OneCode, Units
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
        return f"totals of a person are clipped to {show(self.lowest)} … {show(self.highest)}"

    def __str__(self) -> str:
        return f"{super().__str__()}, per person from {show(self.lowest)} to {show(self.highest)}"


@dataclass(frozen=True)
class Mean(_Clipped):
    """The mean of values, clipped to public bounds: half of the loss on a sum around the middle, half on a count."""

    claim: Claim

    @property
    def fixed_type(self) -> pl.DataType:
        """Type of the answers."""
        return pl.Float64()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type; a TypeError where a column of this type has none."""
        check_scale(self.noise(*columns)[0])
        return pl.Float64()

    def units(self, *columns: pl.DataType) -> Units:
        """Return the weights of the rows: distances from the middle of the bounds, in halves of a step."""
        return replace(super().units(*columns), doubled=True)

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histograms are of: distances from the middle of the bounds, and rows with a value."""
        return (Evidence(OneCode(), self.units(*columns)), Evidence(OneCode()))

    @property
    def parts(self) -> int:
        """A sum and a count."""
        return 2

    @property
    def largest(self) -> Fraction:
        """One: each half of the claim scales it by what a row changes there."""
        return Fraction(1)

    @property
    def is_one_sided(self) -> bool:
        """Distances from the middle have both signs."""
        return False

    def noise(self, *columns: pl.DataType) -> tuple[Claim, ...]:
        """Return the claims of the sum, in halves of a step, and of the count: half of the loss each."""
        step = self.known_step(*columns)
        half = replace(self.claim, loss=replace(self.claim.loss, value=self.claim.loss.value / 2), draws=1)
        return replace(half, score_range=half.score_range * (self.upper - self.lower) / step), half

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Return the means, and the ends of their ranges, from the distances and the numbers of each group."""
        distance, count = (numbers.to_numpy() for numbers in drawn)
        half_step = float(self.units(*columns).step / 2)
        means = pl.Series(self._mean(distance, count, half_step))
        if beta is None:
            return (means,)
        # Each of the two is off by more with half of the probability.
        off, by = (noise_bound(claim, beta / 2) for claim in self.noise(*columns))
        corners = [self._mean(distance + a, count + b, half_step) for a in (-off, off) for b in (-by, by)]
        least, most = np.minimum.reduce(corners), np.maximum.reduce(corners)
        nobody = count - by < 1  # perhaps: then nothing is known
        least[nobody], most[nobody] = float(self.lower), float(self.upper)
        return means, pl.Series(least), pl.Series(most)

    def _mean(self, distance: Ints, count: Ints, half_step: float) -> NDArray[np.float64]:
        low, high = float(self.lower), float(self.upper)
        return np.clip(float((self.lower + self.upper) / 2) + half_step * distance / np.maximum(count, 1), low, high)

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        """Return the means: distances over numbers, from the middle of the bounds."""
        return pl.Series(self._mean(totals[0], totals[1], float(self.units(*columns).step / 2)))

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return None: the error of a mean depends on how many rows a group has."""
        return None

    @property
    def error_needs_rows(self) -> bool:
        """The sum and the number of rows are off, whatever the number."""
        return True

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the column's unit, in a group of at least `rows` rows.

        Let the sum of n distances from the middle be S, and let noise move it by x, and n by y: of each, more than its
        bound has a probability of beta/2. S is nh at most, h being half the distance of the bounds. So (S + x)/(n + y)
        is off from S/n by (x − y·S/n)/(n + y), which is at most (│x│ + h·│y│)/(n − │y│). Both means lie between the
        bounds.
        """
        (off, by), half_step = (
            (noise_bound(claim, beta / 2) for claim in self.noise(*columns)),
            self.known_step(*columns) / 2,
        )
        width = self.upper - self.lower
        return float(min(width, (off * half_step + by * width / 2) / (rows - by)) if rows > by else width)

    def __str__(self) -> str:
        return f"mean of values from {show(self.lower)} to {show(self.upper)}"


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
