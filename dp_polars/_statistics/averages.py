"""Means, shares, variances and standard deviations."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
import polars as pl

from dp_polars._accounting.terms import NeighboringRelation, Terms
from dp_polars._base.numbers import Floats, Ints
from dp_polars._bins.binning import Clamping, OneCode, Squares
from dp_polars._mechanisms.joint_noise import JointNoise
from dp_polars._mechanisms.noise import check_scale, noise_bound
from dp_polars._statistics.measures import Clipped, Measure
from dp_polars._statistics.statistic import CountRule, HistogramQuery


class Average(Clipped):
    """A number from several draws with equal losses; the last one is the number of rows."""

    fixed_type: ClassVar[pl.DataType] = pl.Float64()
    largest: ClassVar[Fraction] = Fraction(1)  # each part of the claim scales it by a row's effect on that draw
    _rounded: ClassVar[str] = "error_95 and intervals include what rounding does"
    error_needs_rows: ClassVar[bool] = True  # totals and the number of rows have errors of a fixed size

    # Privacy claims without a default: a new average must prove its own.

    @property
    @abstractmethod
    def draws(self) -> int:
        """The number of draws that share the loss equally."""

    @abstractmethod
    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the most that one row changes each draw, in its whole units."""

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return pl.Float64()

    def units(self, *columns: pl.DataType) -> Clamping:
        """Return the weights of the rows: distances from the middle of the bounds, in halves of a step."""
        return replace(super().units(*columns), doubled=True)

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return Measure.range_of(self, relation, groups)

    @abstractmethod
    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        """Return the answers for totals in whole units: arrays of one length, also of floats."""

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        return pl.Series(self.of_totals(totals, *columns))

    def rows_of(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:  # noqa: ARG002
        """Return the number of rows in totals."""
        return np.asarray(totals[-1])

    def _half_step(self, *columns: pl.DataType) -> float:
        return float(self.known_step(*columns) / 2)

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The least and the largest possible answer."""

    @abstractmethod
    def _interval(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        """Return the ends of an interval that misses the answer of the values with probability at most beta."""

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        bits = self.bits_of_parts(*columns)
        numbers = [
            np.ldexp(column.to_numpy(), -bit) if bit else column.to_numpy()
            for column, bit in zip(drawn, bits, strict=True)
        ]
        answers = self.named(numbers, *columns)
        if beta is None:
            return (answers,)
        least, most = self._interval(numbers, beta, *columns)
        return answers, pl.Series(least), pl.Series(most)

    def _bounds(self, beta: float, *columns: pl.DataType) -> list[int] | list[float]:
        """Return a bound on each draw's error, in whole units; all are valid with probability 1 − beta."""
        claims, bits = self.noise(*columns), self.bits_of_parts(*columns)
        bounds = [noise_bound(claim, beta / len(claims)) for claim in claims]
        return [math.ldexp(bound, -bit) for bound, bit in zip(bounds, bits, strict=True)] if any(bits) else bounds

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        return None

    @abstractmethod
    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error that groups of at least `rows` rows exceed with probability at most `beta`."""


@dataclass(frozen=True)
class Mean(Average):
    """The mean of values within clipping bounds: half of the loss on a sum around the middle, half on a count."""

    terms: Terms
    draws: ClassVar[int] = 2
    exchanged: ClassVar[Fraction] = Fraction(1)

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return (CountRule(OneCode(), self.units(*columns)), CountRule(OneCode()))

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the effect of one row on the sum, in halves of a step, and on the count."""
        return (self.upper - self.lower) / self.known_step(*columns), Fraction(1)

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.lower), float(self.upper)

    def _interval(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        """Return the ends of all means that are possible under the noise: `docs/proofs/mean-intervals.md`.

        Each end moves outwards by the largest rounding of a value: a mean moves by no more. The answer is in the
        interval even if its count is below 1, or the bounds clip it.
        """
        (least, most), (low, high) = self._allowed(totals, beta, *columns), self.ends
        answers, moved = self.of_totals(totals, *columns), float(self.rounding(*columns))
        lower, upper = np.minimum(least - moved, answers), np.maximum(most + moved, answers)
        return np.clip(lower, low, high), np.clip(upper, low, high)

    def _allowed(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        """Return the ends of all means of values in whole steps that are possible under the noise."""
        noise = JointNoise.of(self.noise(*columns), self.bits_of_parts(*columns))
        (distance, count), (low, high), half = totals, self.ends, self._half_step(*columns)
        least, most = noise.quotients(distance, count, (high - low) / 2 / half, beta)
        middle = (low + high) / 2
        return middle + half * least, middle + half * most

    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        (distance, count), middle = totals, float((self.lower + self.upper) / 2)
        means: Floats = np.clip(middle + self._half_step(*columns) * distance / np.maximum(count, 1), *self.ends)
        return means

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the column's unit, in a group of at least `rows` rows.

        Let S be the sum of n ≥ 1 distances from the middle, and let noise move it by x, and n by y. Each exceeds its
        bound with a probability of beta/2. The divisor is n + z, the larger one of n + y and 1, so │z│ ≤ │y│. The
        answer A is clipped to ±h, with h half the distance of the bounds. If A > S/n, it was not clipped to −h: S + x ≥
        A·(n + z). So n·(A − S/n) ≤ x − A·z ≤ │x│ + h·│y│. The other side is symmetric. Each value is rounded by
        `rounding` at most, and so is their mean.
        """
        off, by = map(Fraction, self._bounds(beta, *columns))
        width = self.upper - self.lower
        of_noise = (off * self.known_step(*columns) + by * width) / (2 * rows)
        return float(min(width, of_noise + self.rounding(*columns)))

    def __str__(self) -> str:
        return f"mean of values {self._between}"


@dataclass(frozen=True)
class Share(Mean):
    """The share of rows with a true condition: the mean of a column of booleans, 1 and 0."""

    error_unit: ClassVar[str] = "shares"

    @classmethod
    def of(cls, terms: Terms) -> Self:
        return cls(Fraction(0), Fraction(1), Fraction(1), terms)

    @property
    def clipping(self) -> str:
        return "True counts as 1 and false as 0, which are the clipping bounds: no value lies beyond them."

    @property
    def clips_values(self) -> bool:
        return False

    def units(self, *columns: pl.DataType) -> Clamping:
        (column,) = columns
        if column != pl.Boolean:
            msg = (
                f"the condition must be Boolean, got a column of type {column}.\n\nHint: a share is of rows; try mean."
            )
            raise TypeError(msg)
        return super().units(column)

    def rounding(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        return Fraction(0)

    def note(self, size: int, alternative: HistogramQuery | None) -> str | None:  # noqa: ARG002
        return "A row whose condition is null is in neither number."

    def __str__(self) -> str:
        return "share of rows"


@dataclass(frozen=True)
class Variance(Average):
    """The variance of values that are clipped to public clipping bounds.

    A third of the loss pays for each of three draws: a sum of distances from the middle of the bounds, a sum of their
    squares around half of the largest (see `Squares`), and a count. Distances and squares have both signs.
    """

    terms: Terms
    draws: ClassVar[int] = 3
    exchanged: ClassVar[Fraction] = Fraction(14, 13)
    # Subtracted from the noisy number of rows, the divisor. With 1, the variance of one row is 0.
    ddof: Literal[0, 1] = 1
    error_unit: ClassVar[str] = "the column's unit, squared"
    _called: ClassVar[str] = "variance"
    _is_root: ClassVar[bool] = False

    def squares(self, *columns: pl.DataType) -> Squares:
        """Return the weights of the rows' squares; without a column type, with the step of integers."""
        if columns:
            units = self.units(*columns)
            return Squares(units.lower, units.upper, units.step, doubled=True)
        steps = max(math.ceil((self.upper - self.lower) / self.known_step()), 1)
        return Squares(Fraction(0), Fraction(steps), Fraction(1))

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        one = OneCode()
        return CountRule(one, self.units(*columns)), CountRule(one, self.squares(*columns)), CountRule(one)

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the effect of one row on the sum and on the squares, in halves of their steps, and on the count."""
        steps = (self.upper - self.lower) / self.known_step(*columns)
        return steps, Fraction(self.squares(*columns).largest), Fraction(1)

    @property
    def ends(self) -> tuple[float, float]:
        """Values between the bounds have a variance of at most h², with h half of their distance.

        With ddof 1 the most is the variance of two rows, 2·h²: n/(n − 1) falls with n.
        """
        return 0.0, float(self._shown((1 + self.ddof) * self._largest))

    @property
    def fewest(self) -> int:
        return 1 + self.ddof

    @property
    def _largest(self) -> float:
        return float((self.upper - self.lower) / 2) ** 2

    def _shown(self, variance: Any) -> Any:  # noqa: ANN401
        return np.sqrt(variance) if self._is_root else variance

    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        """Return mean squares minus squared means, of distances from the middle; with ddof 1 times n/(n − 1)."""
        variance = self._of_all(totals, *columns)
        if self.ddof:
            count = totals[-1]
            variance = np.where(count > 1, variance * (count / np.maximum(count - 1, 1)), 0.0)
            variance = np.minimum(variance, 2 * self._largest)
        answers: Floats = np.asarray(self._shown(variance), np.float64)
        return answers

    def _of_all(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        (distance, squares, count), row_weight = totals, self.squares(*columns)
        number = np.maximum(count, 1)
        of_squares = (squares / number + row_weight.largest) * (2.0**row_weight.shift / 2)
        variance = (of_squares - (distance / number) ** 2) * self._half_step(*columns) ** 2
        variances: Floats = np.clip(variance, 0.0, self._largest)
        return variances

    def _interval(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        bounds = self._bounds(beta, *columns)  # larger bounds, as each has a part of the probability
        least, most = self._extremes(totals, bounds, *columns)
        nobody = totals[-1] - bounds[-1] < self.fewest  # perhaps there are no rows: then nothing is known
        least[nobody], most[nobody] = self.ends
        return least, most

    def _extremes(self, totals: Sequence[Any], bounds: Sequence[float], *columns: pl.DataType) -> tuple[Floats, Floats]:
        """Return the ends if each total is within its bound, with rounding: `docs/proofs/numbers.md`, Theorem 5."""
        (distance, squares, count), (off, of_squares, by) = totals, bounds
        farthest, nearest = abs(distance) + off, np.maximum(abs(distance) - off, 0)
        fewest, most_rows = np.maximum(count - by, 1), np.maximum(count + by, 1)
        low, high = squares - of_squares, squares + of_squares
        least = np.minimum.reduce([self._of_all([farthest, low, n], *columns) for n in (fewest, most_rows)])
        slope = high * (2.0 ** self.squares(*columns).shift / 2)
        # Infinity if the top is beyond all numbers, or there is none.
        top = np.divide(2.0 * nearest * nearest, slope, out=np.full(len(count), np.inf), where=slope > 0)
        most = self._of_all([nearest, high, np.clip(top, fewest, most_rows)], *columns)
        if self.ddof:
            least = least * (most_rows / np.maximum(most_rows - 1, 1))
            most = most * (fewest / np.maximum(fewest - 1, 1))
        least, most = np.asarray(self._shown(least)), np.asarray(self._shown(most))
        squared, moved = (1 + self.ddof) * self._of_squares(*columns), float(self.rounding(*columns))
        moved *= math.sqrt(1 + self.ddof)
        if squared or moved:
            power = 2 if self._is_root else 1
            least = np.maximum(np.sqrt(np.maximum(least**power - squared, 0.0)) - moved, 0.0) ** (2 / power)
            most = (np.sqrt(most**power + squared) + moved) ** (2 / power)
        return np.clip(least, *self.ends), np.clip(most, *self.ends)

    def _of_squares(self, *columns: pl.DataType) -> float:
        shift = self.squares(*columns).shift
        return 2.0**shift / 2 * self._half_step(*columns) ** 2 if shift else 0.0

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the answer's unit, in a group of at least `rows` rows.

        Let n distances have the mean m and the mean square s. Let noise move their sum by x, the sum of the squares by
        y·q/2 and n by z. Let H be the largest distance and T·q the largest square. Then the mean moves by δ = (x −
        z·m)/(n + z), and the mean square by (y·q/2 − z·(s − T·q/2))/(n + z). The variance moves by the latter minus
        2·m·δ + δ². The part of z in it, except in δ², is z·(2·m² − s + T·q/2)/(n + z). Here s is at most T·q and at
        least m² − q/2, and │m│ is at most H. So δ is at most (│x│ + H·│z│)/(n − │z│). The variance moves by at most δ²
        and (q/2·│y│ + 2·H·│x│ + (H² + (T + 1)·q/2)·│z│)/(n − │z│). Roots of two numbers differ by at most the root of
        their difference.

        With ddof 1, the variance V becomes V·n/(n − 1). Let m = n + z. Then it moves by at most its own error times
        m/(m − 1), and by V times 1/(m − 1) − 1/(n − 1) = −z/((m − 1)·(n − 1)). V is at most h². Then rounding adds as
        in `_extremes`: a variance moves by off·(2·√V + off).
        """
        off, of_squares, by = self._bounds(beta, *columns)
        if rows <= by + self.ddof:
            return self.ends[1]
        row_weight = self.squares(*columns)
        steps = float((self.upper - self.lower) / self.known_step(*columns))
        unit, left = 2.0**row_weight.shift / 2, rows - by
        moved = (unit * of_squares + 2 * steps * off + (steps**2 + (row_weight.largest + 1) * unit) * by) / left
        moved = (moved + ((off + steps * by) / left) ** 2) * self._half_step(*columns) ** 2
        factor = math.sqrt(rows / (rows - self.ddof))
        if self.ddof:
            moved = moved * left / (left - 1) + self._largest * by / ((left - 1) * (rows - 1))
        moved, rounded = moved + factor**2 * self._of_squares(*columns), factor * float(self.rounding(*columns))
        if self._is_root:
            return min(math.sqrt(moved) + rounded, self.ends[1])
        return min(moved + rounded * (2 * factor * math.sqrt(self._largest) + rounded), self.ends[1])

    def __str__(self) -> str:
        divisor = "" if self.ddof else ", ddof=0"
        return f"{self._called} of values {self._between}{divisor}"


@dataclass(frozen=True)
class Deviation(Variance):
    """The standard deviation: the root of a variance."""

    error_unit: ClassVar[str] = "the column's unit"
    _called: ClassVar[str] = "standard deviation"
    _is_root: ClassVar[bool] = True
