"""Codes and weights of rows as SQL arithmetic, which agrees with the encoders of `_bins` on every row.

Nothing here raises on a value, nor leaves a type, in whatever order an engine takes conditions and columns: values are
clipped to public clipping bounds before anything else is done with them. The caller leaves out NaN and null.
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


# A list of points is a tree of comparisons in the SQL text: Ibis needs half a millisecond for each.
_MOST_POINTS = 4096
# Digits after the point up to which DuckDB holds a decimal of 64 bits times the power of ten that makes it whole.
_MOST_PLACES = 18
_INT64 = np.iinfo(np.int64)
_EPOCH = dt.datetime(1970, 1, 1)
_LAST_MICROSECOND = 86_400 * 10**6 - 1


def code(binning: Binning, value: Value, dtype: pl.DataType | None, dialect: Dialect) -> Value | None:
    """Return the code of a value; None where it must be looked up in a list.

    Raises
    ------
    TypeError, ValueError
        If the engine's arithmetic is not known to give the code of every value.
    """
    if isinstance(binning, OneCode):
        return integer(0)
    if not isinstance(binning, (NearestBinning, Beyond)) or dtype is None:
        return None
    steps, last = binning.steps, binning.size - 1
    if isinstance(steps, IntegerSteps):
        place = steps.place(physical(value, dtype, steps.low, steps.high), integer, dialect.divide)
        # Times are microseconds, and may lie just beyond ends that are nanoseconds.
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
    """Return how many units of its step a value weighs, before that is doubled; `otherwise` for null and NaN.

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
    """Return a column clipped to bounds. NaN gives the upper one: engines that have NaN order it after all numbers.

    As cases, which take DuckDB a third of the time of `greatest`, and whose range it knows: it then counts in an array.
    """
    return ibis.cases((column < low, low), (column > high, high), else_=column)


def within(number: Value, low: int, high: int) -> Value:
    """Return a computed integer clipped to bounds: cases would compute it three times."""
    return ibis.greatest(integer(low), ibis.least(number, integer(high)))


def _double(value: Value, dtype: pl.DataType) -> Value:
    """Return the float of a number; of an integer the nearest one, ties to even, as every engine does."""
    if not (dtype.is_float() or dtype.is_integer()):
        msg = (
            f"candidates of a column of type {dtype} must be of such a type too: engines make floats of it in ways of "
            "their own.\n\nHint: give Decimals, or cast the column to a float in Ibis first."
        )
        raise TypeError(msg)
    return cast(value, "float64")


def physical(value: Value, dtype: pl.DataType, low: int, high: int) -> Value:
    """Return the physical integer of a value, clipped to as much of the bounds as 64 bits hold."""
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
    """Return microseconds since 1970. Whole seconds are exact also where an engine gives floats."""
    seconds = cast(value.truncate("s").epoch_seconds(), "int64")
    return seconds * integer(10**6) + cast(value.microsecond(), "int64")


def _of_times(value: Value, low: int, high: int) -> Value:
    """Return microseconds of the day. DuckDB and Postgres have a 24:00:00, which no Python time is."""
    within = (min(max(end, 0), _LAST_MICROSECOND) for end in (low, high))
    ends = ((_EPOCH + dt.timedelta(microseconds=end)).time().isoformat("microseconds") for end in within)
    clipped = _clip(value, *(constant(end, "time") for end in ends))
    seconds = cast(clipped.hour(), "int64") * integer(3600) + cast(clipped.minute(), "int64") * integer(60)
    return (seconds + cast(clipped.second(), "int64")) * integer(10**6) + cast(clipped.microsecond(), "int64")


def _ends(steps: FloatSteps, last: int) -> tuple[float, float]:
    """Return floats at and below which the code is 0, and at and above which it is the last.

    Between them no product is too large for a float, nor so small that Postgres would raise for it.
    """

    def place(x: float) -> float:
        return math.ceil((x - steps.start) * steps.per_step - 0.5)

    low = steps.start + 0.25 / steps.per_step
    high = steps.start + (last + 1) / steps.per_step
    while place(high) < last:
        high += max(abs(high), 1 / steps.per_step) * 2.0**-50
    return low if place(low) <= 0 else steps.start, high


def _by_comparing(thresholds: Thresholds, value: Value, dtype: pl.DataType) -> Value:
    """Return how many thresholds a value is above, by a balanced tree of comparisons."""
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
    place = _double(value, dtype) if are_floats else physical(value, dtype, int(values[0]), int(values[-1]) + 1)
    constants = [floating(point) if are_floats else integer(point) for point in values.tolist()]
    return _between(place, constants, lambda first: integer(below + first))


def _between(place: Value, constants: Sequence[Value], of: Callable[[int], Value]) -> Value:
    """Return what a value has by how many ascending constants it is above."""

    def tree(first: int, end: int) -> Value:
        """Return that of a value that is above the first constants, and not above those from `end` on."""
        if first == end:
            return of(first)
        middle = (first + end) // 2
        return ibis.ifelse(place > constants[middle], tree(middle + 1, end), tree(first, middle))

    return tree(0, len(constants))


def _by_pieces(pieces: Pieces, value: Value, dtype: pl.DataType, dialect: Dialect) -> Value:
    """Return the code of a value, by the steps of the piece in which it lies."""
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
    """Return an integer in whole units of `per`: the nearest one, ties to even."""
    if per == 1:
        return number
    one, by = integer(1), integer(per)
    # Quotients and remainders are rounded towards 0.
    rest = number % by
    is_below = rest < integer(0)
    whole = dialect.divide(number, by) - ibis.ifelse(is_below, one, integer(0))
    rest = ibis.ifelse(is_below, rest + by, rest)
    is_odd = whole % integer(2) != integer(0)
    is_up = (rest > by - rest) | ((rest == by - rest) & is_odd)
    return whole + ibis.ifelse(is_up, one, integer(0))


def _units_of_floats(row_weight: Clamping, value: Value, low: int, high: int) -> Value:
    """Return floats in whole units of the step: the nearest one, ties to even, whatever ROUND does with ties.

    Beyond the bounds nothing is multiplied, and what is near 0 is 0: Postgres raises for products that are too large or
    too small.
    """
    per_unit = float(1 / row_weight.step)
    first, last = (floating(float(end * row_weight.step)) for end in (low, high))
    is_small = value.abs() < floating(float(row_weight.step / 4))
    inside = ibis.cases((value < first, first), (value > last, last), (is_small, floating(0.0)), else_=value)
    # Adding 2**52 and taking it away rounds a float to the nearest integer, ties to even. The ends are at most 2**30
    # steps from 0 (`check_size`), so their products are rounded to them, and those between them lie between.
    shift = floating(1.5 * 2.0**52)
    return cast(inside * floating(per_unit) + shift - shift, "int64")


# --- Sums of cells ---------------------------------------------------------------------------------------------------


#: What stands where a spec has nothing in a cell, or a row contributes nothing: no number is so far from 0.
ABSENT = -(2**63)


@dataclass(frozen=True)
class Number:
    """The sum of a spec in each cell: of the rows for which `counts` is true (None: of all)."""

    counts: Value | None
    weight: Value | None = None
    person: Value | None = None  # distinct ones


def cells_of(rows: Table, by: Sequence[str], numbers: Sequence[Number]) -> Table:
    """Return the cells that there are, with `number0`, `number1` and so on."""
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
    """Return the exact sum of integers of 64 bits, or what is made of it, but at most ±LARGEST_VALUE.

    No row makes it raise: engines add up in more than 64 bits.
    """
    ends = (integer(end) for end in (-LARGEST_VALUE, LARGEST_VALUE))
    return cast(ibis.greatest(next(ends), ibis.least(weights_of(numbers.sum()), next(ends))), "int64")


def of_sums(spec: HistogramSpec, rows: Value) -> Callable[[Value], Value]:
    """Return what makes the sum of the weights of a number of rows of the sum of `spec.added`."""
    # The number of rows with as many bits as the sum: times a constant it may need more than 64.
    return lambda sums: spec.of_sums(sums, sums * integer(0) + rows, integer)


def of_person(weight: Value, row_weight: Clamping) -> Value:
    """Return the sum of a person's weights, clipped to `row_weight.of_person`."""
    low, high = row_weight.of_person
    return within(total_of(weight), low, high)
