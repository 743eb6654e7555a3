"""Numbers that users give, as exact rationals."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np

Number: TypeAlias = "int | float | Fraction | Decimal"


def as_fraction(name: str, value: object) -> Fraction:
    """Return `value` as the exact rational that it prints as: 0.1 is 1/10."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, Fraction, Decimal, np.integer, np.floating)
    ):
        msg = f"{name} must be a number (int, float, Fraction or Decimal), got {value!r}."
        raise TypeError(msg)
    if isinstance(value, Fraction):
        return value
    if isinstance(value, (int, np.integer)):
        return Fraction(int(value))
    if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
        msg = f"{name} must be finite, got {value!r}."
        raise ValueError(msg)
    return Fraction(str(value))


def positive_fraction(name: str, value: object) -> Fraction:
    """Return `value` as an exact rational above zero."""
    exact = as_fraction(name, value)
    if not exact > 0:
        msg = f"{name} must be greater than 0, got {value!r}."
        raise ValueError(msg)
    return exact


def positive_int(name: str, value: object) -> int:
    """Return `value` as an int of at least 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        msg = f"{name} must be an integer, got {value!r}."
        raise TypeError(msg)
    if not value >= 1:
        msg = f"{name} must be at least 1, got {value!r}."
        raise ValueError(msg)
    return int(value)


def show(value: Fraction, digits: int = 6) -> str:
    """Return a short text of an exact rational for people: 1/10 as 0.1, 1/3 as 0.333333."""
    if value == 0 or 2.0**-1000 < abs(value) < 2.0**1000:
        return f"{float(value):.{digits}g}"
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.{digits}g}"  # beyond the floats
