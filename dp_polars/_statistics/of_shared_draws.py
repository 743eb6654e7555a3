"""Statistics from draws that others use, too: those of a mean, or Bernstein sums.

Proofs: `docs/proofs/shared-sums.md`, `docs/proofs/sum-pairs.md`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl

from dp_polars._accounting.terms import Terms
from dp_polars._base.numbers import Floats, Ints
from dp_polars._bins.binning import Clamping, OneCode, Products
from dp_polars._bins.weights import type_in_steps
from dp_polars._mechanisms.joint_noise import JointNoise
from dp_polars._mechanisms.noise import LARGEST_VALUE, check_scale, noise_bound
from dp_polars._statistics.averages import Average, Deviation, Mean, Share, Variance
from dp_polars._statistics.measures import Clipped, Count, Measure, Multiple, SharedDraw, Sum, Total, checked
from dp_polars._statistics.statistic import CountRule

PAIR, THREE = 2, 3  # numbers of sums: of degree 1, and of degree 2
_WIDEST = 62  # bits of whole numbers that fit into 64 bits with a sign and a carry


class Combined(Multiple):
    """A whole number of steps: the rounded sum of several draws, each times a constant."""

    @abstractmethod
    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return a whole unit of each draw, in steps of the answer."""

    def _of_parts(self, *columns: pl.DataType) -> tuple[list[int], int]:
        """Return the factors of all draws, in parts, and the divisor of their sum: whole numbers."""
        bits = self.bits_of_parts(*columns)
        factors = [one / 2**bit for one, bit in zip(self.coefficients(*columns), bits, strict=True)]
        unit = math.lcm(*(factor.denominator for factor in factors))
        return [int(factor * unit) for factor in factors], unit

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        factors, unit = self._of_parts(*columns)
        numbers = [column.to_numpy() for column in drawn]
        off = 0 if beta is None else math.ceil(Fraction(self._bound(beta, *columns)) * unit)
        largest = sum(int(np.abs(one).max(initial=0)) * abs(by) for one, by in zip(numbers, factors, strict=True))
        if 2 * (largest + off) + unit >= 1 << _WIDEST:
            numbers = [number.astype(object) for number in numbers]
        total = np.asarray(sum(number * by for number, by in zip(numbers, factors, strict=True)))
        shown = [(2 * total + unit) // (2 * unit)]
        if beta is not None:
            shown += (total - off) // unit, -(-(total + off) // unit)
        return tuple(self.named([_in_64_bits(one)], *columns) for one in shown)

    def _bound(self, beta: float, *columns: pl.DataType) -> float:
        """Return a bound, in steps, on how far noise moves the number; it fails with probability beta."""
        return _noise_of(self, *columns).bound(beta, *map(float, self.coefficients(*columns)))

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return an error in the answer's unit, including rounding to whole steps."""
        return float((self._bound(beta, *columns) + 0.5) * float(self._step(*columns)))

    def of_totals(self, totals: Sequence[Floats], *columns: pl.DataType) -> Floats:
        """Return the unrounded numbers for noisy totals in whole units."""
        factors = [one * self._step(*columns) for one in self.coefficients(*columns)]
        return np.asarray(_added(totals, factors))

    def _step(self, *columns: pl.DataType) -> Fraction:
        """Return the answer's step; 1 if only the still unknown type defines it."""
        return self.known_step(*columns) if isinstance(self, Clipped) else Fraction(1)


def _in_64_bits(numbers: Ints) -> Ints:
    return np.clip(numbers, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)


def _noise_of(query: Measure, *columns: pl.DataType) -> JointNoise:
    return JointNoise.of(query.noise(*columns), query.bits_of_parts(*columns))


def _with(kind: type[Any], query: Measure, **others: object) -> Any:  # noqa: ANN401
    """Return a statistic of another class with the same fields."""
    return kind(**{one.name: getattr(query, one.name) for one in fields(query) if one.init} | others)


@dataclass(frozen=True)
class CentredSum(Combined, Sum):
    """A sum from the draws of a mean: the distances from the middle of the clipping bounds, and the number of rows."""

    @property
    def alone(self) -> Sum:  # type: ignore[override]  # its own sum has another draw
        return Sum(
            self.lower, self.upper, self.step, of_floats=self.of_floats, terms=self.terms, in_parts=self.in_parts
        )

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return CountRule(OneCode(), replace(self.units(*columns), doubled=True)), CountRule(OneCode())

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the effect of one row on the sum of distances, in halves of a step, and on the count."""
        return (self.upper - self.lower) / self.known_step(*columns), Fraction(1)

    def units_of_row(self, *columns: pl.DataType) -> tuple[int, ...]:
        return tuple(map(int, self.changes(*columns)))

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return type_in_steps(self.known_step(*columns), *columns, of_floats=self.of_floats)

    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        return Fraction(1, 2), (self.lower + self.upper) / self.known_step(*columns) / 2


class Bernstein(Total):
    """A number from Bernstein sums of values between clipping bounds: a pair of sums, or three.

    Let u be a value's distance from the lower bound, in parts of the distance of the bounds. A pair adds up u and
    1 − u; three sums add up u², 2u·(1 − u) and (1 − u)². So one row changes all of them by 1 together.
    """

    shared: tuple[SharedDraw, ...]
    alone_as: ClassVar[type[Measure]]  # its class with draws of its own

    @property
    def values(self) -> Clipped:
        """The clipping bounds of the values, and their step."""
        assert isinstance(self, Clipped)
        return self

    @property
    def places(self) -> list[Fraction]:
        """The u at which each sum is the only one, if they had a fine step: 1 for the first one, and 0 for the last."""
        degree = self.shared[0].sums - 1
        return [1 - Fraction(number, degree) for number in range(degree + 1)]

    def _width(self, *columns: pl.DataType) -> Fraction:
        """Return the distance of the bounds in steps."""
        return (self.values.upper - self.values.lower) / self.values.known_step(*columns)

    def _of_row(self, *columns: pl.DataType) -> Fraction:
        """Return the effect of one row on all sums together, in their units."""
        return Fraction(self._rule(*columns).largest) if len(self.places) > PAIR else self._width(*columns)

    def _rule(self, *columns: pl.DataType) -> Products:
        """Return the weights of the second of three sums; without a column type, with the step of integers."""
        if columns:
            units = self.values.units(*columns)
            return Products(units.lower, units.upper, units.step)
        return Products(Fraction(0), Fraction(max(math.ceil(self._width()), 1)), Fraction(1))

    @property
    def alone(self) -> Any:  # noqa: ANN401
        return _with(self.alone_as, self, shared=())

    def with_terms(self, terms: Terms) -> Any:  # noqa: ANN401
        """Return the statistic on other terms: from its own pair if it has one, and only the loss differs."""
        (draw,) = self.shared
        if draw.is_shared or terms == self.terms or terms != replace(self.terms, loss=terms.loss):
            return super().with_terms(terms)
        changed = replace(draw, claim=replace(draw.claim, loss=terms.loss))
        return checked(_with(type(self), self, terms=terms, shared=(changed,)))

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        units, middle = replace(self.values.units(*columns), doubled=False), list[Clamping]()
        if len(self.places) > PAIR:
            units = self._rule(*columns)
            middle = [units]
        first, last = replace(units, from_bound="lower"), replace(units, from_bound="upper")
        return tuple(CountRule(OneCode(), weight) for weight in (first, *middle, last))

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the joint effect of one row on all sums, in their units: each of them changes by no more."""
        return (self._of_row(*columns),) * len(self.places)

    def units_of_row(self, *columns: pl.DataType) -> tuple[int, ...]:
        return tuple(map(int, self.changes(*columns)))


def _added(totals: Sequence[Any], factors: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the sum of totals, each times a factor."""
    return sum(total * float(by) for total, by in zip(totals, factors, strict=True))


@dataclass(frozen=True)
class BernsteinSum(Combined, Bernstein, Sum):
    """A sum: each Bernstein sum times the value at its place, which is a clipping bound or their middle."""

    alone_as: ClassVar[type[Measure]] = Sum

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return type_in_steps(self.known_step(*columns), *columns, of_floats=self.of_floats)

    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        unit = self._of_row(*columns) * self.known_step(*columns)
        return tuple((self.lower + (self.upper - self.lower) * place) / unit for place in self.places)


@dataclass(frozen=True)
class BernsteinCount(Combined, Bernstein, Count):
    """A number of rows: each one adds the same to all sums together."""

    sums_of: Clipped
    alone_as: ClassVar[type[Measure]] = Count

    @property
    def values(self) -> Clipped:
        return self.sums_of

    @property
    def alone(self) -> Count:  # type: ignore[override]  # its own count has another draw
        return Count(self.counted, self.terms, in_parts=self.in_parts)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return super().answer_type(*columns)

    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        return (1 / self._of_row(*columns),) * len(self.places)


class _BernsteinAverage(Bernstein, Average):
    """An average: of totals as they are drawn for it alone, which are sums of the Bernstein sums times constants."""

    @abstractmethod
    def _factors(self, *columns: pl.DataType) -> list[list[Fraction]]:
        """Return the factors of all sums, for each total."""

    def _centred(self, totals: Sequence[Any], *columns: pl.DataType) -> list[Any]:
        """Return the totals that are drawn for it alone: the sum of distances from the middle comes first."""
        return [_added(totals, factors) for factors in self._factors(*columns)]

    def _of_distances(self, *columns: pl.DataType) -> list[Fraction]:
        per_unit = self._width(*columns) / self._of_row(*columns)  # in halves of a step
        return [(2 * place - 1) * per_unit for place in self.places]

    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        return super().of_totals(self._centred(totals, *columns), *columns)  # type: ignore[safe-super]

    def rows_of(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        return np.asarray(sum(totals) / float(self._of_row(*columns)))


@dataclass(frozen=True)
class BernsteinMean(_BernsteinAverage, Mean):
    """A mean from Bernstein sums: the mean of their places, with the sums as weights."""

    alone_as: ClassVar[type[Measure]] = Mean

    def _factors(self, *columns: pl.DataType) -> list[list[Fraction]]:
        return [self._of_distances(*columns), [1 / self._of_row(*columns)] * len(self.places)]

    def _allowed(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        sums = [np.asarray(one, np.float64) for one in totals]
        least, most = _noise_of(self, *columns).parts(sums, beta)
        (low, high) = self.ends
        return low + (high - low) * least, low + (high - low) * most

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the column's unit, in a group of at least `rows` rows.

        Let noise move the first and the last sum by X and Y, and the middle one by M, in units of the distance 2h of
        the bounds. Let S/n be the mean's distance from the middle, and A the answer's. As in `Mean.error_among`,
        n·│A − S/n│ is at most the error of h·(X − Y) − z·A, for some z between 0 and X + M + Y. That is linear in z:
        h·(X − Y) at one end, and (h − A)·X − A·M − (h + A)·Y at the other. Both are at most h times the larger one of
        │2·X + M│ and │M + 2·Y│.
        """
        claims, (bits, *_) = self.noise(*columns), self.bits_of_parts(*columns)
        if len(claims) == PAIR:
            off = math.ldexp(max(noise_bound(claim, beta / 2) for claim in claims), -bits)
        else:
            off = _noise_of(self, *columns).bound(beta / 2, *map(float, self.places))
        of_noise = Fraction(off) * (self.upper - self.lower) / self._of_row(*columns) / rows
        return float(min(self.upper - self.lower, of_noise + self.rounding(*columns)))


@dataclass(frozen=True)
class BernsteinShare(BernsteinMean, Share):
    """A share from a pair: the rows with the condition, and those without it."""

    alone_as: ClassVar[type[Measure]] = Share


@dataclass(frozen=True)
class BernsteinVariance(_BernsteinAverage, Variance):
    """A variance from three Bernstein sums: (A·C − B²/4)/(A + B + C)² times the squared distance of the bounds."""

    alone_as: ClassVar[type[Measure]] = Variance

    def _factors(self, *columns: pl.DataType) -> list[list[Fraction]]:
        unit, squares = self._of_row(*columns), self.squares(*columns).largest
        of_squares = [by * squares / unit for by in (1, -3, 1)]
        return [self._of_distances(*columns), of_squares, [1 / unit] * len(self.places)]

    def _interval(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        return super()._interval(self._centred(totals, *columns), beta, *columns)

    def _bounds(self, beta: float, *columns: pl.DataType) -> list[int] | list[float]:
        noise, factors = _noise_of(self, *columns), self._factors(*columns)
        return [noise.bound(beta / len(factors), *map(float, of_each)) for of_each in factors]

    def _of_squares(self, *columns: pl.DataType) -> float:
        """Return how far rounding moves a mean square: the first sum by half a unit, and so the square by two."""
        rule = self._rule(*columns)
        return super()._of_squares(*columns) + (0.0 if rule.is_exact else 2 * self._largest / rule.largest)


@dataclass(frozen=True)
class BernsteinDeviation(BernsteinVariance, Deviation):
    """A standard deviation from three Bernstein sums."""

    alone_as: ClassVar[type[Measure]] = Deviation


_KINDS: dict[type, type[Any]] = {
    kind.alone_as: kind
    for kind in (BernsteinCount, BernsteinSum, BernsteinMean, BernsteinShare, BernsteinVariance, BernsteinDeviation)
}


def bernstein(query: Measure, draw: SharedDraw, values: Clipped) -> Measure:
    """Return the statistic from Bernstein sums of values between clipping bounds."""
    kind = _KINDS[type(query)]
    found: Measure = _with(kind, query, shared=(draw,), **({"sums_of": values} if kind is BernsteinCount else {}))
    return found
