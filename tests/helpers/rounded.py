"""Floats as the code computes them, all at once: enclosures of exact numbers, and bounds of how far floats are off.

The code's own functions run on a `Rounded`. It takes every operation to be rounded once (IEEE 754), and NumPy's
elementary functions to be accurate to `ULPS` units in the last place, which is the one assumption. Balls are Arb's: so
a bound holds for all numbers of a box, and not for samples.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, ctx

from dp_polars._base.numbers import ball

ULPS = 4
# Half a unit in the last place, relative: of float64 and float32.
U, U32 = Fraction(1, 2**53), Fraction(1, 2**24)
BITS = 128


class DoneError(Exception):
    """What was to be seen is seen: the code need not go on."""


@dataclass(frozen=True)
class Span:
    """All numbers from one end to the other. The ends are exact; they are moved outward where they must be rounded."""

    low: arb
    high: arb

    @classmethod
    def over(cls, *balls):
        return cls(*(functools.reduce(pick, ends) for pick, ends in _ends(balls)))

    def __neg__(self):
        return Span(-self.high, -self.low)

    def __abs__(self):
        return self if self.low >= 0 else -self if self.high <= 0 else Span(arb(0), self.size)

    def __add__(self, other):
        return Span.over(self.low + other.low, self.high + other.high)

    def __mul__(self, other):
        return Span.over(*(a * b for a in (self.low, self.high) for b in (other.low, other.high)))

    def __truediv__(self, other):
        assert other.least > 0
        return Span.over(*(a / b for a in (self.low, self.high) for b in (other.low, other.high)))

    def grown(self, function):
        """Return the values of an increasing function."""
        return Span.over(function(self.low), function(self.high))

    @property
    def size(self):
        return abs(self.low).max(abs(self.high))

    @property
    def least(self):
        return self.low if self.low > 0 else -self.high if self.high < 0 else arb(0)


def _ends(balls):
    return (arb.min, [x.lower() for x in balls]), (arb.max, [x.upper() for x in balls])


def most(number):
    """Return the upper end of a ball, as a ball."""
    return number.upper()


class Rounded(np.lib.mixins.NDArrayOperatorsMixin):
    """A float that approximates an exact number.

    Parameters
    ----------
    value
        A ball around the exact number.
    relative, absolute
        How far off the float is at most; None: not known.
    grid
        Whether the number is a whole multiple of 2**-53 and at most 1, as are sums of two such: they are exact.
    integer
        Whether it is an integer, and no float yet: sums are exact, and all else makes a float of it first.
    unit
        Half a unit in the last place of its type.
    seen
        Where the operands of comparisons and `np.floor` are put; the code stops after as many as it has room for.
    """

    def __init__(self, value, relative=None, absolute=None, *, grid=False, integer=False, unit=U, seen=None, room=1):
        self.value, self.grid, self.integer = value, grid, integer
        self.unit, self.seen, self.room = unit, seen, room
        least, largest = value.least, value.size
        if relative is not None:
            absolute = min_of(absolute, relative * largest)
        if absolute is not None and least > 0:
            relative = min_of(relative, absolute / least)
        self.relative = None if relative is None else most(relative)
        self.absolute = None if absolute is None else most(absolute)

    @classmethod
    def exact(cls, low, high=None, **kwargs):
        """Return any float from `low` to `high`."""
        ends = [ball(Fraction(low)), ball(Fraction(low if high is None else high))]
        return cls(Span.over(*ends), arb(0), arb(0), **kwargs)

    def off(self, relative=0, absolute=0):
        """Return the same, off by so much more."""
        return Rounded(
            self.value,
            self.relative + ball(Fraction(relative)) if not absolute else None,
            self.absolute + ball(Fraction(absolute)) + ball(Fraction(relative)) * self.value.size,
            unit=self.unit,
            seen=self.seen,
            room=self.room,
        )

    @property
    def dtype(self):
        return np.dtype(np.float64)

    def __len__(self):
        return 1

    def astype(self, dtype, **_):
        unit = U32 if np.dtype(dtype) == np.float32 else U
        return self._made(self.value, self.relative, self.absolute, unit=unit)

    def _made(self, value, relative, absolute, slack=None, unit=None):
        """Return the result of an operation, rounded once, or by what an elementary function is off."""
        unit = unit or self.unit
        u = ball(unit if slack is None else 2 * slack * unit)
        if absolute is not None:
            absolute = absolute + u * (value.size + absolute)
        if relative is not None:
            relative = relative + u * (1 + relative)
        return Rounded(value, relative, absolute, unit=unit, seen=self.seen, room=self.room)

    def __array_ufunc__(self, ufunc, method, *inputs, out=(None,), **_):
        if ufunc not in _OF_INTEGERS or not all(
            x.integer if isinstance(x, Rounded) else isinstance(x, int) for x in inputs
        ):
            inputs = [x.astype(np.float64) if isinstance(x, Rounded) and x.integer else x for x in inputs]
        found = getattr(self, "_" + ufunc.__name__)(*inputs) if method == "__call__" else self
        if out[0] is None:
            return found
        out[0].__dict__.update(found.__dict__)
        return out[0]

    def _see(self, *operands):
        watcher = next(x for x in operands if isinstance(x, Rounded) and x.seen is not None)
        watcher.seen.append(operands)
        if len(watcher.seen) >= watcher.room:
            raise DoneError
        return np.array([False])

    _less = _less_equal = _greater = _greater_equal = _see

    def _equal(self, *_):
        return np.array([False])

    _not_equal = _equal

    def _floor(self, x):
        self._see(x)
        return x

    def __setitem__(self, key, value):
        assert not np.any(key)

    def _negative(self, x):
        return Rounded(
            -x.value, x.relative, x.absolute, grid=x.grid, integer=x.integer, unit=x.unit, seen=x.seen, room=x.room
        )

    def _absolute(self, x):
        return Rounded(abs(x.value), x.relative, x.absolute, unit=x.unit, seen=x.seen, room=x.room)

    def _add(self, x, y):
        is_integer = isinstance(x, Rounded) and x.integer  # then both are
        x, y = self._both(x, y)
        value = x.value + y.value
        if is_integer:
            return Rounded(value, arb(0), arb(0), integer=True, seen=self.seen, room=self.room)
        if x.grid and y.grid:
            return Rounded(value, arb(0), arb(0), grid=True, unit=x.unit, seen=self.seen, room=self.room)
        relative = None
        if x.relative is not None and y.relative is not None and x.value.low >= 0 and y.value.low >= 0:
            relative = x.relative.max(y.relative)
        return self._made(value, relative, x.absolute + y.absolute)

    def _subtract(self, x, y):
        x, y = self._both(x, y)
        return self._add(x, self._negative(y))

    def _multiply(self, x, y):
        if isinstance(y, Anchor):
            return y.anchored(x)
        x, y = self._both(x, y)
        value, relative = x.value * y.value, None
        if x.relative is not None and y.relative is not None:
            relative = x.relative + y.relative + x.relative * y.relative
        absolute = x.value.size * y.absolute + y.value.size * x.absolute + x.absolute * y.absolute
        return self._made(value, relative, absolute)

    def _divide(self, x, y):
        x, y = self._both(x, y)
        assert y.relative < 1
        relative = (1 + x.relative) / (1 - y.relative) - 1
        return self._made(x.value / y.value, relative, None)

    _true_divide = _divide

    def _maximum(self, x, y):
        return self._extreme(x, y, lambda a, b: a.max(b))

    def _minimum(self, x, y):
        return self._extreme(x, y, lambda a, b: a.min(b))

    def _extreme(self, x, y, of):
        x, y = self._both(x, y)
        relative = None
        if None not in (x.relative, y.relative) and x.value.low >= 0 and y.value.low >= 0:
            relative = x.relative.max(y.relative)
        value = Span(of(x.value.low, y.value.low), of(x.value.high, y.value.high))
        return Rounded(value, relative, x.absolute.max(y.absolute), unit=x.unit, seen=self.seen, room=self.room)

    def _clip(self, x, least, largest):
        return self._minimum(self._maximum(x, least), largest)

    def _exp(self, x):
        return self._made(x.value.grown(arb.exp), x.absolute.expm1(), None, ULPS)

    def _log(self, x):
        assert x.relative < 1
        return self._made(x.value.grown(arb.log), None, -(-x.relative).log1p(), ULPS)

    def _log1p(self, x):
        if x.absolute == 0:
            return self._made(x.value.grown(arb.log1p), arb(0), arb(0), ULPS)
        assert 1 + x.value.low > x.absolute
        return self._made(x.value.grown(arb.log1p), None, x.absolute / (1 + x.value.low - x.absolute).lower(), ULPS)

    def _expm1(self, x):
        """If x moves by a share, ln│eˣ − 1│ moves by at most the largest x·eˣ/(eˣ − 1) of that."""
        assert x.value.high < 0
        assert x.relative < 1
        least = x.value.least * (1 - x.relative)  # │x│/(e^│x│ − 1) falls
        slope = most(least / least.expm1()).min(arb(1))
        return self._made(x.value.grown(arb.expm1), (slope * -(-x.relative).log1p()).expm1(), None, ULPS)

    def _both(self, *numbers):
        return [n if isinstance(n, Rounded) else constant(n, self) for n in numbers]


class Slack(float):
    """A slack that stands where the code's does: 1 − slack, or 1 + slack, must outweigh what floats are off by then."""

    ratios: list

    @classmethod
    def of(cls, value, ratios):
        slack = cls(value)
        slack.ratios = ratios
        return slack

    def __rsub__(self, one):
        return Anchor(self, one - Fraction(float(self)))

    def __radd__(self, one):
        return Anchor(self, one + Fraction(float(self)))


class Anchor:
    """One less a slack, or one and a slack."""

    def __init__(self, slack, factor):
        self.slack, self.factor = slack, ball(factor)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return inputs[0].__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def anchored(self, x):
        """Return a bound that is right: what follows starts anew. Half of the slack is left for operations to come."""
        self.slack.ratios.append(2 * (x.relative + 2 * ball(x.unit)) / ball(Fraction(float(self.slack))))
        value = x.value * Span(self.factor, self.factor)
        return Rounded(value, arb(0), arb(0), unit=x.unit, seen=x.seen, room=x.room)


_OF_INTEGERS = (np.add, np.subtract, np.negative)


def constant(number, like):
    exact = Fraction(float(number))
    return Rounded.exact(exact, grid=(exact * 2**53).denominator == 1 and abs(exact) <= 1, unit=like.unit)


def min_of(a, b):
    return b if a is None else a.min(b)


def worst(ratio, box, enough, along=None, boxes=2000):
    """Return whether `ratio` is below `enough` on the whole box, and how many parts of it that took.

    A part on which that is not proved is cut in two, along its widest side (of those named by `along`). Where it is
    small and still not proved, the answer is no.
    """
    parts, proved = [tuple((Fraction(low), Fraction(high)) for low, high in box)], 0
    with ctx.workprec(BITS):
        while parts:
            part = parts.pop()
            if ratio(*part) < ball(Fraction(enough)):
                proved += 1
                continue
            widths = [width(*side) if along is None or i in along else 0.0 for i, side in enumerate(part)]
            widest = widths.index(max(widths, default=0)) if widths else None
            if widest is None or widths[widest] < 2**-6 or proved + len(parts) > boxes:
                return False, proved
            low, high = part[widest]
            middle = cut(low, high)
            parts += [(*part[:widest], half, *part[widest + 1 :]) for half in ((low, middle), (middle, high))]
    return True, proved


def width(low, high):
    """How wide a side is: as a share of its end, and by its number of doublings where it has many."""
    if low > 0 and high > 4 * low:
        return (high / low).numerator.bit_length() - (high / low).denominator.bit_length() + 1
    return float((high - low) / max(abs(low), abs(high), Fraction(1))) if high > low else 0.0


def cut(low, high):
    if low > 0 and high > 4 * low:
        doublings = (high / low).numerator.bit_length() - (high / low).denominator.bit_length()
        return low * 2 ** (doublings // 2)
    return (low + high) / 2
