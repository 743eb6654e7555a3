"""Means and shares of values that are clipped to public bounds, with noise; and what several draws give together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import show
from dp_polars._codes.codings import OneCode, Units
from dp_polars._mechanisms.noise import check_scale, noise_bound
from dp_polars._questions.question import Evidence
from dp_polars._questions.sums import Clipped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints
    from dp_polars._questions.question import HistogramQuery


class Average(Clipped):
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

    @property
    def fewest(self) -> int:
        """The least number of rows that have an answer."""
        return 1

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

    @property
    def _rounded(self) -> str:
        return "error_95 and ranges include what rounding does"

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
        least, most = self._with_rounding(*self._extremes(numbers, bounds, *columns), *columns)
        nobody = numbers[-1] - bounds[-1] < self.fewest  # perhaps: then nothing is known
        least[nobody], most[nobody] = self.ends
        return answers, pl.Series(least), pl.Series(most)

    @abstractmethod
    def _with_rounding(
        self, least: NDArray[np.float64], most: NDArray[np.float64], *columns: pl.DataType
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ends that hold the answer of the values themselves, of ends for what these are rounded to."""

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return None: the error depends on how many rows a group has."""
        return None

    @property
    def error_needs_rows(self) -> bool:
        """The totals and the number of rows are off, whatever the number."""
        return True


@dataclass(frozen=True)
class Mean(Average):
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

    def _with_rounding(
        self, least: NDArray[np.float64], most: NDArray[np.float64], *columns: pl.DataType
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ends that are further apart by what each value is rounded by at most: a mean moves by no more."""
        (low, high), off = self.ends, float(self.rounding(*columns))
        return np.maximum(least - off, low), np.minimum(most + off, high)

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
        Each value is rounded by `rounding` at most, and so is their mean.
        """
        off, by = (noise_bound(claim, beta / 2) for claim in self.noise(*columns))
        width = self.upper - self.lower
        of_noise = (off * self.known_step(*columns) + by * width) / (2 * rows)
        return float(min(width, of_noise + self.rounding(*columns)))

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

    def rounding(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        """Return 0: a condition is true or false."""
        return Fraction(0)

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "shares"

    def note(self, size: int, alternative: HistogramQuery | None) -> str | None:  # noqa: ARG002
        """Return what becomes of rows without an answer."""
        return "A row whose condition is null is in neither number."

    def __str__(self) -> str:
        return "share of rows"
