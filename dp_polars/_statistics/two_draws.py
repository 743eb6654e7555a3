"""Statistics from two draws that others use, too: those of a mean, or of a pair of sums.

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

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import Floats, Ints
from dp_polars._bins.binning import OneCode
from dp_polars._bins.weights import type_in_steps
from dp_polars._mechanisms.noise import LARGEST_VALUE, check_scale, noise_bound
from dp_polars._mechanisms.noise_pairs import NoisePair
from dp_polars._statistics.averages import Mean, Share
from dp_polars._statistics.measures import Clipped, Count, Measure, Multiple, SharedDraw, Sum, Total, checked
from dp_polars._statistics.statistic import CountRule

_WIDEST = 62  # bits of whole numbers that fit into 64 bits with a sign and a carry


class Combined(Multiple):
    """A whole number of steps: the rounded sum of two draws, each times a constant."""

    @abstractmethod
    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, Fraction]:
        """Return a whole unit of each draw, in steps of the answer."""

    def _of_parts(self, *columns: pl.DataType) -> tuple[int, int, int]:
        """Return the factors of both draws, in parts, and the divisor of their sum: whole numbers."""
        bits = self.bits_of_parts(*columns)
        first, second = (one / 2**bit for one, bit in zip(self.coefficients(*columns), bits, strict=True))
        unit = math.lcm(first.denominator, second.denominator)
        return int(first * unit), int(second * unit), unit

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        first, second, unit = self._of_parts(*columns)
        numbers = [column.to_numpy() for column in drawn]
        factors = first, second
        off = 0 if beta is None else math.ceil(Fraction(self._bound(beta, *columns)) * unit)
        largest = sum(int(np.abs(one).max(initial=0)) * abs(by) for one, by in zip(numbers, factors, strict=True))
        if 2 * (largest + off) + unit >= 1 << _WIDEST:
            numbers = [number.astype(object) for number in numbers]
        total = numbers[0] * first + numbers[1] * second
        shown = [(2 * total + unit) // (2 * unit)]
        if beta is not None:
            shown += (total - off) // unit, -(-(total + off) // unit)
        return tuple(self.named([_in_64_bits(one)], *columns) for one in shown)

    def _bound(self, beta: float, *columns: pl.DataType) -> float:
        """Return a bound, in steps, on how far noise moves the number; it fails with probability beta."""
        first, second = map(float, self.coefficients(*columns))
        return _noise_of(self, *columns).bound(-second, beta, first)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return an error in the answer's unit, including rounding to whole steps."""
        return float((self._bound(beta, *columns) + 0.5) * float(self._step(*columns)))

    def of_totals(self, totals: Sequence[Floats], *columns: pl.DataType) -> Floats:
        """Return the unrounded numbers for noisy totals in whole units."""
        first, second = (float(one * self._step(*columns)) for one in self.coefficients(*columns))
        numbers: Floats = first * np.asarray(totals[0]) + second * np.asarray(totals[1])
        return numbers

    def _step(self, *columns: pl.DataType) -> Fraction:
        """Return the answer's step; 1 if only the still unknown type defines it."""
        return self.known_step(*columns) if isinstance(self, Clipped) else Fraction(1)


def _in_64_bits(numbers: Ints) -> Ints:
    return np.clip(numbers, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)


def _noise_of(query: Measure, *columns: pl.DataType) -> NoisePair:
    (of_first, of_second), (on_first, on_second) = query.noise(*columns), query.bits_of_parts(*columns)
    return NoisePair.of(of_first, of_second, (on_first, on_second))


def _with(kind: type[Any], query: Measure, **others: object) -> Any:  # noqa: ANN401
    """Return a statistic of another class with the same fields."""
    return kind(**{one.name: getattr(query, one.name) for one in fields(query) if one.init} | others)


@dataclass(frozen=True)
class CentredSum(Combined, Sum):
    """A sum from the draws of a mean: the distances from the middle of the clipping bounds, and the number of rows."""

    @property
    def alone(self) -> Sum:  # type: ignore[override]  # its own sum has another draw
        return Sum(
            self.lower, self.upper, self.step, of_floats=self.of_floats, claim=self.claim, in_parts=self.in_parts
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

    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, Fraction]:
        return Fraction(1, 2), (self.lower + self.upper) / self.known_step(*columns) / 2


class Paired(Total):
    """A number from a pair of sums: the distances of values from the lower clipping bound, and from the upper one.

    One row changes both sums together by the distance of the bounds.
    """

    shared: tuple[SharedDraw, ...]
    alone_as: ClassVar[type[Measure]]  # its class with draws of its own

    @property
    def values(self) -> Clipped:
        """The clipping bounds of the values, and their step."""
        assert isinstance(self, Clipped)
        return self

    def _width(self, *columns: pl.DataType) -> Fraction:
        """Return the distance of the bounds in steps."""
        return (self.values.upper - self.values.lower) / self.values.known_step(*columns)

    @property
    def alone(self) -> Any:  # noqa: ANN401
        return _with(self.alone_as, self, shared=())

    def with_claim(self, claim: Claim) -> Any:  # noqa: ANN401
        """Return the statistic at another claim: from its own pair if it has one, and only the loss differs."""
        (draw,) = self.shared
        if draw.is_shared or claim == self.claim or claim != replace(self.claim, loss=claim.loss):
            return super().with_claim(claim)
        changed = replace(draw, claim=replace(draw.claim, loss=claim.loss))
        return checked(_with(type(self), self, claim=claim, shared=(changed,)))

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        units = replace(self.values.units(*columns), doubled=False)
        return (
            CountRule(OneCode(), replace(units, from_bound="lower")),
            CountRule(OneCode(), replace(units, from_bound="upper")),
        )

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return the joint effect of one row on both sums, in steps: each of them changes by no more."""
        return (self._width(*columns),) * 2

    def units_of_row(self, *columns: pl.DataType) -> tuple[int, ...]:
        return tuple(map(int, self.changes(*columns)))


@dataclass(frozen=True)
class PairedSum(Combined, Paired, Sum):
    """A sum from a pair: the upper bound times the first sum and the lower one times the second, over their distance.

    For a value x between a and b is (b·(x − a) + a·(b − x))/(b − a).
    """

    alone_as: ClassVar[type[Measure]] = Sum

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return type_in_steps(self.known_step(*columns), *columns, of_floats=self.of_floats)

    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, Fraction]:  # noqa: ARG002
        width = self.upper - self.lower
        return self.upper / width, self.lower / width


@dataclass(frozen=True)
class PairedCount(Combined, Paired, Count):
    """A number of rows from a pair: a row adds the distance of the bounds to both sums together."""

    pair_of: Clipped
    alone_as: ClassVar[type[Measure]] = Count

    @property
    def values(self) -> Clipped:
        return self.pair_of

    @property
    def alone(self) -> Count:  # type: ignore[override]  # its own count has another draw
        return Count(self.counted, self.claim, in_parts=self.in_parts)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return super().answer_type(*columns)

    def coefficients(self, *columns: pl.DataType) -> tuple[Fraction, Fraction]:
        return (1 / self._width(*columns),) * 2


@dataclass(frozen=True)
class PairedMean(Paired, Mean):
    """A mean from a pair: the lower bound, plus the first sum's part of both, times the distance of the bounds."""

    alone_as: ClassVar[type[Measure]] = Mean

    def _centred(self, totals: Sequence[Any], *columns: pl.DataType) -> list[Any]:
        """Return the sum of distances from the middle, in halves of a step, and the number of rows."""
        first, second = totals
        return [first - second, (first + second) / float(self._width(*columns))]

    def of_totals(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        return super().of_totals(self._centred(totals, *columns), *columns)

    def rows_of(self, totals: Sequence[Any], *columns: pl.DataType) -> Floats:
        return np.asarray(self._centred(totals, *columns)[1])

    def _allowed(self, totals: Sequence[Any], beta: float, *columns: pl.DataType) -> tuple[Floats, Floats]:
        first, second = (np.asarray(one, np.float64) for one in totals)
        least, most = _noise_of(self, *columns).parts(first, second, beta)
        (low, high) = self.ends
        return low + (high - low) * least, low + (high - low) * most

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error in the column's unit, in a group of at least `rows` rows.

        Let noise move the two sums by X and Y, in units of the distance 2h of the bounds. Let S/n be the mean's
        distance from the middle, and A the answer's. As in `Mean.error_among`, n·│A − S/n│ is at most the error of h·(X
        − Y) − z·A, for some z between 0 and X + Y. That is linear in z: h·(X − Y) at one end, and (h − A)·X − (h + A)·Y
        at the other. Both are at most 2h times the larger one of │X│ and │Y│.
        """
        claims, (bits, _) = self.noise(*columns), self.bits_of_parts(*columns)
        off = math.ldexp(max(noise_bound(claim, beta / 2) for claim in claims), -bits)
        of_noise = Fraction(off) * self.known_step(*columns) / rows
        return float(min(self.upper - self.lower, of_noise + self.rounding(*columns)))


@dataclass(frozen=True)
class PairedShare(PairedMean, Share):
    """A share from a pair: the rows with the condition, and those without it."""

    alone_as: ClassVar[type[Measure]] = Share


def paired(query: Measure, draw: SharedDraw, values: Clipped) -> Measure:
    """Return the statistic from a pair of sums of values between clipping bounds."""
    kind = {Count: PairedCount, Sum: PairedSum, Mean: PairedMean, Share: PairedShare}[type(query)]
    of = {"pair_of": values} if kind is PairedCount else {}
    found: Measure = _with(kind, query, shared=(draw,), **of)
    return found
