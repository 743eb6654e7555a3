"""Grids of quantiles without candidates: which points they have, and that codes are those of a list of these."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base import column_types
from dp_polars._bins.binning import NearestBinning
from dp_polars._bins.candidates import YEARS, Digits, Grid, Points, bound_in_units, grid_between, widest_grid
from tests.helpers.refusals import refused

INTEGERS = [pl.Int8, pl.Int64, pl.UInt8, pl.UInt64, pl.Int128]
EXACT = [*INTEGERS, pl.Decimal(38, 2), pl.Decimal(12, 4), pl.Duration("us"), pl.Duration("ms")]
OTHERS = [pl.Float32, pl.Float64, pl.Date, pl.Datetime("us"), pl.Datetime("ns", "UTC")]
BOUNDS = [(0, 0), (0, "0.001"), ("-0.5", 0), (-50, 200), (0, 10**6), (-2000, 5), (-(10**12), 10**12)]


def exact(values):
    """Values as rational numbers: of times in nanoseconds."""
    unit = column_types.tick(values.dtype)
    if unit is None:
        return [Fraction(repr(value)) for value in values]
    return [int(value) * unit for value in column_types.integers(values)]


def points_of(grid):
    return grid.take(np.arange(grid.size))


@pytest.mark.parametrize("dtype", [*EXACT, pl.Float64], ids=str)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_points_have_three_digits_or_are_all_whole_numbers(dtype, bounds):
    dtype = dtype() if isinstance(dtype, type) else dtype
    lower, upper = map(Fraction, bounds)
    grid = grid_between(lower, upper, dtype)
    points = points_of(grid)
    values = exact(points)
    assert values == sorted(set(values))
    assert 0 in values
    tick = column_types.tick(dtype) or 0
    for end, bound in ((values[0], lower), (values[-1], upper)):
        bound = bound_in_units(bound, dtype)
        assert float(end) == float(bound) or abs(end - bound) < tick or abs(end) == 10**18 * tick
    if isinstance(grid, Grid):
        assert dtype.is_integer()
        assert values == [*range(int(values[0]), int(values[-1]) + 1)]
        assert grid.size <= 2**16
        return
    assert grid.size <= 2**15
    assert all((value / grid.step).denominator == 1 for value in values)
    assert all(len(str(abs(int(value / grid.step))).rstrip("0")) <= 3 for value in values)
    # No number with three digits is left out, but near 0.
    widest = max(abs(values[0]), abs(values[-1]))
    if widest and not tick:
        small = [value for value in values if abs(value) >= widest / 10**3]
        for sign in (1, -1):
            sizes = sorted(float(value) for value in small if value * sign > 0)
            assert all(two - one <= max(abs(one), abs(two)) / 99 for one, two in itertools.pairwise(sizes))


@pytest.mark.parametrize("dtype", [*EXACT, *OTHERS], ids=str)
def test_codes_are_those_of_a_list_of_the_points(dtype):
    dtype = dtype() if isinstance(dtype, type) else dtype
    rng = np.random.default_rng(5)
    tick, has_years = column_types.tick(dtype), dtype in (pl.Date, pl.Datetime)
    for bounds in [(2000, 2001), (2010, 2024)] if has_years else BOUNDS:
        grid = grid_between(*map(Fraction, bounds), dtype)
        points = points_of(grid)
        if tick is None:
            some = column_types.floats(points)[rng.integers(0, grid.size, 4000)]
            # Not so near to the middle of two points that rounding of floats decides.
            values = np.concatenate([some, some * (1 + rng.normal(0, 1e-3, 4000)), some + rng.normal(0, 1e-5, 4000)])
            values = pl.Series([*values, np.inf, -np.inf, 0.0, -0.0, np.nan, None]).cast(dtype)
        else:
            near = column_types.integers(points)[rng.integers(0, grid.size, 4000)].astype(object)
            low, high = (0, 255) if dtype == pl.UInt8 else (-128, 127) if dtype == pl.Int8 else (-(10**18), 10**18)
            if dtype == pl.UInt64:
                low = 0
            if dtype == pl.Date:
                low, high = -50_000, 50_000
            if dtype == pl.Decimal(12, 4):
                low, high = 1 - 10**12, 10**12 - 1
            unit = column_types.tick(grid.dtype) / tick
            scales = [1, 1, 5, 10, 49, 50, 51, 500, 5 * 10**6]
            off = [
                int(rng.integers(-1, 2)) * scale + int(rng.integers(-1, 2))
                for scale in rng.choice(scales, 4000).tolist()
            ]
            numbers = [min(max(int(x * unit) + y, low), high) for x, y in zip(near, off, strict=True)] + [low, high]
            values = pl.Series([*numbers, None], dtype=pl.Int128 if dtype == pl.Int128 else pl.Int64)
            if isinstance(dtype, pl.Decimal):
                values = (values.cast(pl.Decimal(38, dtype.scale)) * Decimal(1).scaleb(-dtype.scale)).cast(dtype)
            else:
                values = values.cast(pl.Int32).cast(dtype) if dtype == pl.Date else values.cast(dtype)
        of_grid, of_list = (
            NearestBinning(candidates, dtype).encoder()([values]) for candidates in (grid, Points(points))
        )
        assert of_grid.tolist() == of_list.tolist(), bounds


def test_values_are_the_points_themselves():
    """Every point has its own code, and values are the decimals that they print as."""
    for bounds in BOUNDS:
        grid = grid_between(*map(Fraction, bounds), pl.Float64())
        points = points_of(grid)
        assert isinstance(grid, Digits)
        assert NearestBinning(grid, pl.Float64()).encoder()([points]).tolist() == [*range(grid.size)]
        assert all(len(repr(value).replace("e", ".").split(".")[0].strip("-0")) <= 13 for value in points)
        step = Decimal(grid.step.numerator) / Decimal(grid.step.denominator)
        assert all(Decimal(repr(value)) % step == 0 for value in points.sample(min(500, grid.size), seed=1))


def test_times_have_days_or_the_finest_steps():
    day, at = pl.Date(), pl.Datetime("us")

    def steps(lower, upper, dtype):
        grid = grid_between(Fraction(lower), Fraction(upper), dtype)
        first, last = grid.take(np.array([0, grid.size - 1]))
        return first, last, grid.step / (60 * 10**9)

    assert steps(2020, 2024, day) == (dt.date(2020, 1, 1), dt.date(2024, 1, 1), 1440)
    assert steps(2024, 2000, day) == (dt.date(2024, 1, 1), dt.date(2025, 1, 1), 1440)
    assert [steps(2020, year, at)[2] for year in (2021, 2022, 2024, 2028)] == [15, 60, 60, 1440]
    assert steps(1700, 2250, pl.Datetime("ns"))[0] == dt.datetime(1700, 1, 1)


def test_there_are_as_many_years_as_sizes():
    from dp_polars._release.ruled import _SIZES_OF_RANKS

    for years in YEARS.values():
        assert len(years) == len(_SIZES_OF_RANKS)
        assert len(set(years)) == len(years)
    assert [*YEARS["upper"]] == sorted(YEARS["upper"])
    assert [*YEARS["lower"]] == sorted(YEARS["lower"], reverse=True)


def test_grids_are_no_wider_than_the_widest():
    for dtype in [*EXACT, *OTHERS]:
        dtype = dtype() if isinstance(dtype, type) else dtype
        most = widest_grid(dtype).size
        has_years = dtype in (pl.Date, pl.Datetime)
        lowers = YEARS["lower"] if has_years else [-(10**k) for k in range(13)]
        uppers = YEARS["upper"] if has_years else [10**k for k in range(13)]
        sizes = [grid_between(Fraction(low), Fraction(high), dtype).size for low in lowers for high in uppers]
        assert max(sizes) <= max(most, 2**16)


def test_types_without_an_usual_grid_are_refused():
    for dtype in (pl.String(), pl.Boolean(), pl.Time(), pl.Decimal(38, 20)):
        refused(TypeError, "^candidates must be given for a column of type", widest_grid, dtype)
    frame = pl.LazyFrame(schema={"p": pl.Int64, "x": pl.Time})
    asked = frame.dp.protect("p", max_rows=1).agg
    refused(TypeError, "candidates must be given for a column of type Time", asked, dpp.median("x"))
