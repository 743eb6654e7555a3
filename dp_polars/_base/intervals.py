"""Rigorous interval arithmetic: real numbers as balls that provably hold them (Arb, through python-flint).

FLINT is loaded when the first ball is made: that takes as long as a small query, and most need none.
"""

from __future__ import annotations

from contextlib import contextmanager
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flint import arb

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
