"""The weight of people beyond the contribution limits in a number.

No rows are dropped. All sums over a person's rows in a group are scaled by one weight. It follows from that person's
numbers of contributing rows. Proof: `docs/proofs/norms.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from dp_polars._base.numbers import Ints

#: A weight of one has this many parts, as a power of 2.
UNIT_BITS = 20
UNIT = 1 << UNIT_BITS
# More rows of one person in a group count as these, so that all numbers fit into 64 bits.
_MOST_ROWS = {1: 1 << 30, 2: 1 << 20}
# Below `UNIT` by more than the errors of three rounded float operations, so that weights are never too large.
_SAFE_UNIT = float(UNIT) * (1 - 2.0**-50)


def bits_of_parts(largest: int) -> int:
    """Return into how many parts a unit of a sum is divided, as a power of 2; one row adds at most `largest` units."""
    return max(0, UNIT_BITS + 1 - max(largest, 1).bit_length())


class Arithmetic(Protocol):
    """An engine's operations on 64-bit integers; its values have Python's operators +, −, ·, < and <=."""

    def whole(self, number: int) -> Any:  # noqa: ANN401
        """Return a constant."""

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:  # noqa: ANN401
        """Return one of two numbers."""

    def quotient(self, number: Any, by: Any) -> Any:  # noqa: ANN401
        """Return a number from 0 on, divided by one from 1 on, rounded down."""

    def scaled_root(self, unit: float, limit: float, by: Any) -> Any:  # noqa: ANN401
        """Return unit·√(limit/by), rounded down: quotient, root and product are IEEE floats of 64 bits."""


@dataclass(frozen=True)
class PersonWeight:
    """The weight of a person: first a cap for each group, then a norm of all groups together.

    A person has n contributing rows in a group. m = min(n, `cap`) of them would count, and the norm is Σ m^`power` over
    the groups. Beyond `limit`, the weight is below 1 and reduces the norm of all weighted parts to the limit.
    """

    cap: int | None  # rows in each group. None: all of them.
    limit: int | None  # the largest norm. None: no limit is necessary.
    power: Literal[1, 2]

    def counted(self, rows: Any, of: Arithmetic) -> Any:  # noqa: ANN401
        """Return the number of a person's rows in a group that would count without the norm."""
        most = of.whole(min(self.cap or _MOST_ROWS[self.power], _MOST_ROWS[self.power]))
        return of.choose(rows < most, rows, most)

    def norm(self, rows: Any, of: Arithmetic) -> Any:  # noqa: ANN401
        """Return a group's part of a person's norm."""
        counted = self.counted(rows, of)
        return counted if self.power == 1 else counted * counted

    @property
    def most(self) -> int:
        """The largest norm, in numbers that fit into the arithmetic."""
        assert self.limit is not None
        return min(self.limit, 1 << 30 * self.power)

    def is_beyond(self, norm: Any, of: Arithmetic) -> Any:  # noqa: ANN401
        return of.whole(self.most) < norm

    def of_norm(self, norm: Any, of: Arithmetic) -> Any:  # noqa: ANN401
        """Return the weight of a person, in parts: `UNIT` for all within the limit, as whole numbers decide."""
        beyond = self.is_beyond(norm, of)
        by = of.choose(beyond, norm, of.whole(self.most))
        if self.power == 1:
            scaled = of.quotient(of.whole(self.most * UNIT), by)
        else:
            scaled = of.scaled_root(_SAFE_UNIT, float(self.most), by)
        return of.choose(beyond, scaled, of.whole(UNIT))

    def of_rows(self, norm: Any, rows: Any, of: Arithmetic) -> Any:  # noqa: ANN401
        """Return the weight of each row of a person in a group, in parts.

        `norm`: the person's norm; ignored without a limit.
        """
        of_person = of.whole(UNIT) if self.limit is None else self.of_norm(norm, of)
        return of.quotient(of_person * self.counted(rows, of), of.choose(of.whole(0) < rows, rows, of.whole(1)))


def part_of(total: Any, weight: Any, bits: int, of: Arithmetic) -> Any:  # noqa: ANN401
    """Return a person's sum in a group times the weight of the rows, in parts of 2**−bits, rounded toward zero."""
    negative = total < of.whole(0)
    absolute = of.choose(negative, of.whole(0) - total, total)
    high = of.quotient(absolute, of.whole(UNIT))
    low = absolute - high * of.whole(UNIT)
    part = weight * high * of.whole(1 << bits)
    part = part + of.quotient(weight * low, of.whole(1 << (UNIT_BITS - bits)))
    return of.choose(negative, of.whole(0) - part, part)


class _Arrays:
    """The arithmetic of NumPy, and of Python's integers."""

    whole = staticmethod(int)
    choose = staticmethod(np.where)
    quotient = staticmethod(np.floor_divide)

    @staticmethod
    def scaled_root(unit: float, limit: float, by: Ints) -> Ints:
        root: Ints = np.floor(unit * np.sqrt(limit / np.asarray(by, np.float64))).astype(np.int64)
        return root


ARRAYS: Arithmetic = _Arrays()


def rounded(parts: Any, bits: int) -> Any:  # noqa: ANN401
    """Return the whole number nearest to a number of parts, ties up."""
    return parts if not bits else (parts + (1 << (bits - 1))) >> bits


def ends_of(parts: Ints, bound: int, bits: int) -> tuple[Ints, Ints]:
    """Return the nearest whole numbers around a confidence interval of parts."""
    return (parts - bound) >> bits, -((-(parts + bound)) >> bits)


def bound_in_rows(bound: int, bits: int) -> float:
    """Return a bound in parts as a bound in whole numbers, including the rounding of the answer."""
    return math.ldexp(bound, -bits) + (0.5 if bits else 0.0)
