"""SQL arithmetic for codes and weights of rows, equal to the encoders of `_bins` on every row.

Values are clipped to public clipping bounds first. So nothing here raises for a value, or leaves a type.
An engine may evaluate conditions and columns in any order. The caller leaves out NaN and null.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._bins.binning import Beyond, FloatSteps, IntegerSteps, NearestBinning, OneCode, Pieces
from dp_polars._engines.sql.dialects import cast, constant, ibis
from dp_polars._mechanisms.noise import LARGEST_VALUE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dp_polars._bins.binning import Binning, Clamping, Thresholds
    from dp_polars._engines.sql.dialects import Dialect, Table, Value
    from dp_polars._release.contract import HistogramSpec


# A list of points becomes a tree of comparisons in the SQL text: Ibis needs half a millisecond for each.
_MOST_POINTS = 4096
# With up to this many digits, DuckDB can multiply a 64-bit decimal by a power of ten to make it whole.
_MOST_PLACES = 18
_INT64 = np.iinfo(np.int64)
_EPOCH = dt.datetime(1970, 1, 1)
_LAST_MICROSECOND = 86_400 * 10**6 - 1


def code(binning: Binning, value: Value, dtype: pl.DataType | None, dialect: Dialect) -> Value | None:
    """Return the code of a value. None: it must be looked up in a list.

    Raises
    ------
    TypeError, ValueError
        If the engine's arithmetic is not known to be exact for every value.
    """
    if isinstance(binning, OneCode):
        return integer(0)
    if not isinstance(binning, (NearestBinning, Beyond)) or dtype is None:
        return None
    steps, last = binning.steps, binning.size - 1
    if isinstance(steps, IntegerSteps):
        place = steps.place(physical(value, dtype, steps.low, steps.high), integer, dialect.divide)
        # Times are in microseconds, and may be just beyond ends in nanoseconds.
        return place if steps.ends_are_points and dtype != pl.Time else within(place, 0, last)
    if isinstance(steps, FloatSteps):
        low, high = _ends(steps, last)
        place = _clip(_double(value, dtype), floating(low), floating(high)) - floating(steps.start)
        place = place * floating(steps.per_step)
        return within((place - floating(0.5)).ceil(), 0, last)
    if isinstance(steps, Pieces):
        return _by_pieces(steps, value, dtype, dialect)
    thresholds = binning.thresholds
    if thresholds is None:
        msg = f"a grid must be given in units of a column of type {dtype}: neither 64 bits nor floats give its codes."
        raise TypeError(msg)
    return _by_comparing(thresholds, value, dtype)


def units(row_weight: Clamping, value: Value, dtype: pl.DataType, dialect: Dialect, otherwise: int = 0) -> Value:
    """Round a value to units of the step, before the weight is doubled; `otherwise` for null and NaN.

    Raises
    ------
    TypeError, ValueError
        If the engine has no arithmetic for it.
    """
    low, high = row_weight.ends
    tick = column_types.tick(dtype)
    if tick is None:
        found = _units_of_floats(row_weight, _double(value, dtype), low, high)
    elif dtype.is_integer() and row_weight.step == tick:
        found = physical(value, dtype, low, high)
    else:
        steps, per = max(1, row_weight.ticks(tick)), max(1, int(row_weight.step / tick))
        found = physical(value, dtype, low * per // steps, -(-high * per // steps))
        found = within(_nearest(found * integer(steps) if steps > 1 else found, per, dialect), low, high)
    return ibis.ifelse(is_present(value, dialect), found, integer(otherwise))


def integer(number: int) -> Value:
    return constant(number, "int64")


def floating(number: float) -> Value:
    return constant(float(number), "float64")


def is_present(value: Value, dialect: Dialect) -> Value:
    """Return whether a value is neither null nor NaN."""
    kind = value.type()
    if kind.is_floating():
        return value.notnull() & ~value.isnan()
    if kind.is_decimal() and dialect.nan_in_decimals:
        return value.notnull() & (value != constant("NaN", kind))
    return value.notnull()


def _clip(column: Value, low: Value, high: Value) -> Value:
    """Clip a column to bounds. NaN becomes the upper bound: engines with NaN sort it after all numbers.

    Cases take DuckDB a third of the time of `greatest`. They show DuckDB the range, so it counts in an array.
    """
    return ibis.cases((column < low, low), (column > high, high), else_=column)


def within(number: Value, low: int, high: int) -> Value:
    """Clip a computed integer to bounds. Cases would compute it three times."""
    return ibis.greatest(integer(low), ibis.least(number, integer(high)))


def _double(value: Value, dtype: pl.DataType) -> Value:
    """Return a number as a float. Every engine rounds an integer to the nearest float, ties to even."""
    if not (dtype.is_float() or dtype.is_integer()):
        msg = (
            f"candidates of a column of type {dtype} must be of such a type too: engines make floats of it in ways of "
            "their own.\n\nHint: give Decimals, or cast the column to a float in Ibis first."
        )
        raise TypeError(msg)
    return cast(value, "float64")


def physical(value: Value, dtype: pl.DataType, low: int, high: int) -> Value:
    """Return a value's physical integer, clipped to the bounds as far as 64 bits allow."""
    low, high = (min(max(end, int(_INT64.min)), int(_INT64.max)) for end in (low, high))
    if dtype == pl.Boolean:
        return within(ibis.ifelse(value, integer(1), integer(0)), low, high)
    if dtype.is_integer():
        return _clip(cast(value, "int64"), integer(low), integer(high))
    if isinstance(dtype, pl.Decimal):
        return _of_decimals(value, dtype.scale, low, high)
    if dtype == pl.Time:
        return _of_times(value, low // 1000, -(-high // 1000)) * integer(1000)
    day = 86_400 * 10**6
    per_unit = day if dtype == pl.Date else 1
    try:
        first, last = (_EPOCH + dt.timedelta(microseconds=end * per_unit) for end in (low, high))
    except OverflowError:
        msg = "candidates of times must lie in the years 1 to 9999."
        raise ValueError(msg) from None
    if dtype == pl.Date:
        return cast(_clip(value, *(constant(str(end.date()), "date") for end in (first, last))).epoch_days(), "int64")
    ends = (constant(end.isoformat(" ", "microseconds"), "timestamp") for end in (first, last))
    return _of_timestamps(_clip(value, *ends))


def _of_decimals(value: Value, places: int, low: int, high: int) -> Value:
    if places > _MOST_PLACES:
        msg = (
            f"decimals that are ordered or added up must have at most {_MOST_PLACES} digits after the point, got "
            f"{places}.\n\nHint: cast the column in Ibis first."
        )
        raise TypeError(msg)
    ends = (constant(f"{Decimal(end).scaleb(-places):f}", f"decimal(38, {places})") for end in (low, high))
    clipped = cast(_clip(value, *ends), f"decimal(19, {places})")
    return cast(clipped * constant(10**places, "decimal(19, 0)"), "int64")


def _of_timestamps(value: Value) -> Value:
    """Return microseconds since 1970. Whole seconds stay exact if an engine returns floats."""
    seconds = cast(value.truncate("s").epoch_seconds(), "int64")
    return seconds * integer(10**6) + cast(value.microsecond(), "int64")


def _of_times(value: Value, low: int, high: int) -> Value:
    """Return microseconds of the day. DuckDB and Postgres have 24:00:00, which Python's time lacks."""
    within = (min(max(end, 0), _LAST_MICROSECOND) for end in (low, high))
    ends = ((_EPOCH + dt.timedelta(microseconds=end)).time().isoformat("microseconds") for end in within)
    clipped = _clip(value, *(constant(end, "time") for end in ends))
    seconds = cast(clipped.hour(), "int64") * integer(3600) + cast(clipped.minute(), "int64") * integer(60)
    return (seconds + cast(clipped.second(), "int64")) * integer(10**6) + cast(clipped.microsecond(), "int64")


def _ends(steps: FloatSteps, last: int) -> tuple[float, float]:
    """Return two floats: the code is 0 up to the first one, and the last code from the second one on.

    Between them, no product is too large for a float, or small enough for Postgres to raise.
    """

    def place(x: float) -> float:
        return math.ceil((x - steps.start) * steps.per_step - 0.5)

    low = steps.start + 0.25 / steps.per_step
    high = steps.start + (last + 1) / steps.per_step
    while place(high) < last:
        high += max(abs(high), 1 / steps.per_step) * 2.0**-50
    return low if place(low) <= 0 else steps.start, high


def _by_comparing(thresholds: Thresholds, value: Value, dtype: pl.DataType) -> Value:
    """Count the thresholds that a value is above, by a balanced tree of comparisons."""
    values, below = thresholds.values, thresholds.below
    if len(values) >= _MOST_POINTS:
        given = below + len(values) + 1
        msg = (
            f"candidates without a regular step must be at most {_MOST_POINTS:,} in SQL, got {given:,}."
            "\n\nHint: take a grid: dp_polars.grid(…)."
        )
        raise ValueError(msg)
    if not len(values):
        return integer(below)
    are_floats = values.dtype.kind == "f"
    if are_floats:
        place = _double(value, dtype)
    elif dtype.is_integer():  # as it is: a clipped one would be written at each comparison
        place = cast(value, "int64")
    else:
        place = physical(value, dtype, int(values[0]), int(values[-1]) + 1)
    if not are_floats and (np.diff(values) == 1).all():  # one after the other: a difference is enough
        first, last = int(values[0]), min(int(values[-1]) + 1, int(_INT64.max))
        return within(place, first, last) - integer(first) + integer(below)
    constants = [floating(point) if are_floats else integer(point) for point in values.tolist()]
    return _between(place, constants, lambda first: integer(below + first))


def _between(place: Value, constants: Sequence[Value], of: Callable[[int], Value]) -> Value:
    """Return `of(n)` if a value is above exactly n of the ascending constants."""

    def tree(first: int, end: int) -> Value:
        """Return this for a value above the first constants, and not above the constants from `end` on."""
        if first == end:
            return of(first)
        middle = (first + end) // 2
        return ibis.ifelse(place > constants[middle], tree(middle + 1, end), tree(first, middle))

    return tree(0, len(constants))


def _by_pieces(pieces: Pieces, value: Value, dtype: pl.DataType, dialect: Dialect) -> Value:
    """Return a value's code by the steps of its piece."""
    are_floats = isinstance(pieces.steps[0], FloatSteps)
    as_constant, low, high = floating if are_floats else integer, pieces.low, pieces.ends[-1]
    if are_floats:
        inside = _clip(_double(value, dtype), floating(low), floating(high))
    else:
        inside = physical(value, dtype, low, high)

    def code_in(piece: int) -> Value:
        steps, first = pieces.steps[piece], integer(pieces.codes[piece])
        if not isinstance(steps, FloatSteps):
            return steps.place(inside, integer, dialect.divide) + first
        place = (inside - floating(steps.start)) * floating(steps.per_step)
        return within((place - floating(0.5)).ceil(), 0, pieces.sizes[piece] - 1) + first

    return _between(inside, [as_constant(end) for end in pieces.ends[:-1]], code_in)


def _nearest(number: Value, per: int, dialect: Dialect) -> Value:
    """Round an integer to whole units of `per`, ties to even."""
    if per == 1:
        return number
    one, by = integer(1), integer(per)
    # Quotients and remainders round towards 0.
    rest = number % by
    is_below = rest < integer(0)
    whole = dialect.divide(number, by) - ibis.ifelse(is_below, one, integer(0))
    rest = ibis.ifelse(is_below, rest + by, rest)
    is_odd = whole % integer(2) != integer(0)
    is_up = (rest > by - rest) | ((rest == by - rest) & is_odd)
    return whole + ibis.ifelse(is_up, one, integer(0))


def _units_of_floats(row_weight: Clamping, value: Value, low: int, high: int) -> Value:
    """Round floats to whole units of the step, ties to even, for any tie rule of ROUND.

    Values beyond the bounds are not multiplied, and values near 0 become 0.
    Postgres raises for products that are too large or too small.
    """
    per_unit = float(1 / row_weight.step)
    first, last = (floating(float(end * row_weight.step)) for end in (low, high))
    is_small = value.abs() < floating(float(row_weight.step / 4))
    inside = ibis.cases((value < first, first), (value > last, last), (is_small, floating(0.0)), else_=value)
    # Adding and subtracting 2**52 rounds a float to the nearest integer, ties to even. The ends are at most 2**30 steps
    # from 0 (`check_size`), so their products round to them. Other products lie between.
    shift = floating(1.5 * 2.0**52)
    return cast(inside * floating(per_unit) + shift - shift, "int64")


# --- Sums of cells ---------------------------------------------------------------------------------------------------


#: A spec's number in a cell without contributing rows, and a row's value if it doesn't contribute. No sum is this low.
ABSENT = -(2**63)


@dataclass(frozen=True)
class Number:
    """A spec's number in each cell, from the rows with `counts` true (None: from all rows)."""

    counts: Value | None
    weight: Value | None = None
    person: Value | None = None  # counted once each


def cells_of(rows: Table, by: Sequence[str], numbers: Sequence[Number]) -> Table:
    """Return the cells with rows, with `number0`, `number1` and so on."""
    found = {f"number{i}": _found(rows, number) for i, number in enumerate(numbers)}
    return rows.group_by(list(by)).aggregate(**found)


def _found(rows: Table, number: Number) -> Value:
    some = cast(rows.count(where=number.counts), "int64")
    total = some
    if number.person is not None:
        total = cast(number.person.nunique(where=number.counts), "int64")
    elif number.weight is not None:
        weight = number.weight
        weight = weight if number.counts is None else ibis.ifelse(number.counts, weight, integer(0))
        total = total_of(weight)
    return total if number.counts is None else ibis.ifelse(some > 0, total, integer(ABSENT))


def total_of(numbers: Value, weights_of: Callable[[Value], Value] = lambda total: total) -> Value:
    """Return an exact sum of 64-bit integers, or a weight computed from it, clamped to ±LARGEST_VALUE.

    No row can make it raise: engines add up in more than 64 bits.
    """
    ends = (integer(end) for end in (-LARGEST_VALUE, LARGEST_VALUE))
    return cast(ibis.greatest(next(ends), ibis.least(weights_of(numbers.sum()), next(ends))), "int64")


def of_sums(spec: HistogramSpec, rows: Value) -> Callable[[Value], Value]:
    """Return a function from the sum of `spec.added` over some rows to the sum of their weights."""
    # Give the number of rows as many bits as the sum: times a constant it may need more than 64.
    return lambda sums: spec.of_sums(sums, sums * integer(0) + rows, integer)


def of_person(weight: Value, row_weight: Clamping) -> Value:
    """Add up a person's weights, clipped to `row_weight.of_person`."""
    low, high = row_weight.of_person
    return within(total_of(weight), low, high)
