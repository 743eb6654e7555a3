"""Numbers as users give them, and rigorous intervals of real ones."""

from __future__ import annotations

import math
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flint import arb


Number: TypeAlias = "int | float | Fraction | Decimal"
Word = TypeVar("Word", bound=str)

# Other packages' frames, and the way from them to one of Polars.
_OF_FRAMES = {
    "pandas": "pl.from_pandas(…)",
    "pyarrow": "pl.from_arrow(…)",
    "numpy": "pl.from_numpy(…)",
    "duckdb": "….pl()",
    "pyspark": "pl.from_arrow(….toArrow())",
}
_SHOWN = (str, bytes, int, float, complex, Fraction, Decimal, date, time, timedelta, type(None), np.generic)


def given(value: object) -> str:
    """Return an argument for a message: a plain value as it is, and the type of anything else (private rows?)."""
    return repr(value) if isinstance(value, _SHOWN) else kind(value)


def kind(value: object) -> str:
    """Return the type of an argument for a message; with its package, where other packages have such a type, too."""
    package, name = type(value).__module__.partition(".")[0], type(value).__name__
    return f"{package}.{name}" if package in _OF_FRAMES else name


def kind_of_frame(value: object) -> str:
    """Return the end of a message that asks for a Polars frame: what was given instead, and the way out."""
    way = _OF_FRAMES.get(type(value).__module__.partition(".")[0])
    return f"{kind(value)}." + (f"\n\nHint: {way} makes a Polars frame of it." if way else "")


def one_of(name: str, value: object, words: tuple[Word, ...], wanted: str | None = None) -> Word:
    """Return the word that was given, if it is one of these."""
    for word in words:
        if isinstance(value, str) and value == word:
            return word
    msg = f"{name} must be {wanted or f'one of {list(words)}'}, got {given(value)}."
    raise ValueError(msg)


def as_fraction(name: str, value: object) -> Fraction:
    """Return `value` as the exact rational that it prints as: 0.1 is 1/10."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, Fraction, Decimal, np.integer, np.floating)
    ):
        msg = f"{name} must be a number (int, float, Fraction or Decimal), got {given(value)}."
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
        msg = f"{name} must be an integer, got {given(value)}."
        raise TypeError(msg)
    if not value >= 1:
        msg = f"{name} must be at least 1, got {value!r}."
        raise ValueError(msg)
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return a truth value; a TypeError for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        msg = f"{name} must be True or False, got {given(value)}."
        raise TypeError(msg)
    return bool(value)


def show(value: Fraction, digits: int = 6, *, up: bool = False) -> str:
    """Return a short text of an exact rational for people, 1/10 as 0.1 and 1/3 as 0.333333; a cost rounded up."""
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_HALF_EVEN)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{float(rounded):.{digits}g}" if value == 0 or 2.0**-1000 < abs(value) < 2.0**1000 else f"{rounded:g}"


def nearest_float_up(value: Fraction) -> float:
    """Return the smallest float64 that is at least `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_up(value: Fraction) -> float:
    """Return a float next to `value` that, as the decimal that it prints as, is not below it: 0.1 for 1/10.

    For what users see, and give back to functions that take a float for that decimal. Infinite beyond all floats.
    """
    try:
        rounded = float(value)
    except OverflowError:
        return math.inf
    return rounded if as_fraction("value", rounded) >= value else float(np.nextafter(rounded, np.inf))


def plural(number: int, noun: str) -> str:
    """Return a number of things: "1 grid point", "2,000 grid points"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# FLINT's precision is global to the process. A ball is right at any precision, so a race could only cost
# accuracy, but a caller's own FLINT code must find the precision as it left it.
_lock = RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with balls of `bits` bits inside the block."""
    from flint import ctx

    with _lock, ctx.workprec(bits):
        yield


def ball(value: Fraction | int) -> arb:
    """Return the tightest ball around an exact rational at the current precision."""
    from flint import arb, fmpq

    return arb(fmpq(value.numerator, value.denominator))


def ball_between(low: Fraction, high: Fraction) -> arb:
    """Return a ball that holds every real from `low` to `high`."""
    return ball(low).union(ball(high))


def _exact(endpoint: arb) -> Fraction:
    mantissa, exponent = endpoint.man_exp()
    scale = Fraction(2) ** int(exponent)
    return int(mantissa) * scale


def lower(value: arb) -> Fraction:
    """Return a rational that is not above any number of the ball."""
    return _exact(value.lower())


def upper(value: arb) -> Fraction:
    """Return a rational that is not below any number of the ball."""
    return _exact(value.upper())
