"""Numbers become the exact rationals that they print as."""

import math
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given

from dp_polars._base.numbers import (
    as_fraction,
    ball,
    error_up,
    float_up,
    kind,
    kind_of_frame,
    lower,
    nearest_float_up,
    positive_fraction,
    positive_int,
    precision,
    show,
    upper,
)
from tests.helpers.refusals import refused


def test_what_a_number_means():
    for exact, ways in (
        (Fraction(1, 10), [0.1, np.float64(0.1), np.float32(0.1), np.float16(0.1), Decimal("0.10")]),
        (Fraction(1, 10**7), [1e-7]),
        (Fraction(10**22), [1e22]),
        (Fraction(5, 10**324), [5e-324]),
        (Fraction(0), [-0.0]),
        (Fraction(3), [3]),
        (Fraction(10**400), [10**400, Decimal("1e400")]),
        (Fraction(1, 10**400), [Decimal("1e-400")]),
        (Fraction(2**64 - 1), [np.uint64(2**64 - 1)]),
        (Fraction(-3), [np.int8(-3)]),
        (Fraction(1, 3), [Fraction(1, 3)]),
    ):
        for found in (as_fraction("x", way) for way in ways):
            assert found == exact
            assert type(found) is Fraction


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.1)
def test_a_float_is_the_decimal_that_it_prints_as(value):
    """So that ten tenths are one."""
    assert as_fraction("x", value) == Fraction(repr(value))
    assert float(as_fraction("x", value)) == value
    assert sum(as_fraction("x", value) for _ in range(10)) == 10 * Fraction(repr(value))


def test_what_is_refused():
    for check in (as_fraction, positive_fraction):
        for value in (True, np.True_, "1", None, 1j, [1], np.array([1]), b"1"):
            words = r"^epsilon must be a number \(int, float, Fraction or Decimal\), got "
            refused(TypeError, words, check, "epsilon", value)
        for value in (math.nan, math.inf, -math.inf, *map(Decimal, ("NaN", "sNaN", "Infinity")), np.float32("nan")):
            refused(ValueError, r"^rho must be finite, got ", check, "rho", value)
    for value in (0, 0.0, -0.0, -1, -1e-300, Fraction(-1, 3), Decimal(0)):
        refused(ValueError, r"^epsilon must be greater than 0, got ", positive_fraction, "epsilon", value)
    words = r"^sensitivity must be greater than 0, got Fraction\(-1, 3\)\.$"
    refused(ValueError, words, positive_fraction, "sensitivity", Fraction(-1, 3))
    for value in (True, 1.0, "1", None, Fraction(1), np.float64(1)):
        refused(TypeError, r"^contributions must be an integer, got ", positive_int, "contributions", value)
    for value in (0, -1, np.int64(0)):
        refused(ValueError, r"^contributions must be at least 1, got ", positive_int, "contributions", value)


def test_positive_integers():
    for value in (1, 7, np.int32(7), np.uint8(200), 10**30):
        found = positive_int("contributions", value)
        assert (found, type(found)) == (value, int)


def test_numbers_for_people_and_costs_which_are_never_below_the_truth():
    third, tenth = Fraction(1, 3), Fraction(1, 10)
    assert [show(value) for value in (tenth, third, Fraction(2), Fraction(0))] == ["0.1", "0.333333", "2", "0"]
    assert [show(value, up=True) for value in (third, tenth, Fraction(2))] == ["0.333334", "0.1", "2"]
    for exponent in (-5000, -400, -308, 308, 400, 5000):
        text = show(Fraction(10) ** exponent / 3 * 3)
        assert Fraction(text) == Fraction(10) ** exponent
        assert len(text) < 15


@given(st.fractions(0, 10**6), st.floats(0, 1e300))
@example(Fraction(3, 10), 0.3)
def test_the_smallest_float_that_is_not_below(value, number):
    rounded = nearest_float_up(value)
    assert Fraction(rounded) >= value > Fraction(float(np.nextafter(rounded, -1)))
    for exact in (value, as_fraction("x", number)):  # as the decimals that they print as
        rounded = float_up(exact)
        assert as_fraction("x", rounded) >= exact > as_fraction("x", np.nextafter(rounded, -1))
    assert float_up(as_fraction("x", number)) == number  # stays what it is


def test_errors_are_whole_numbers_from_100_on_and_never_below_the_truth():
    shown = [0.0004567, 0.1, 99.94, 99.96, 100, 12_911.2, 1.5e16]
    assert list(map(error_up, shown)) == ["0.000457", "0.1", "100", "100", "100", "12,912", "1.5e+16"]


def test_floats_above_what_is_no_float():
    assert float_up(Fraction(1, 3)) == 0.33333333333333337
    assert float_up(Fraction(1, 10**400)) == 5e-324


def test_another_package_and_the_way_from_it_are_named():
    for value, name, way in (
        (pd.DataFrame(), "pandas.DataFrame", "pl.from_pandas"),
        (pd.Series(dtype=int), "pandas.Series", "pl.from_pandas"),
        (pa.table({}), "pyarrow.Table", "pl.from_arrow"),
        (np.zeros(1), "numpy.ndarray", "pl.from_numpy"),
        (pl.Series(), "Series", None),
        ({}, "dict", None),
        (Fraction(1), "Fraction", None),
    ):
        assert kind(value) == name
        hint = "" if way is None else f"\n\nHint: {way}(…) makes a Polars frame of it."
        assert kind_of_frame(value) == f"{name}.{hint}"


@pytest.mark.parametrize("bits", [2, 53, 200])
@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(-1, 3), Fraction(10**40, 7), Fraction(1, 10**40)])
def test_the_ends_lie_on_either_side_of_what_is_no_dyadic_number(value, bits):
    with precision(bits):
        low, high = lower(ball(value)), upper(ball(value))
    assert low < value < high
    assert high - low <= abs(value) * Fraction(4, 2**bits)


def test_a_number_that_fits_is_itself_and_a_range_is_held_whole():
    with precision(20):
        assert lower(ball(Fraction(5, 8))) == upper(ball(Fraction(5, 8))) == Fraction(5, 8)
        held = ball(Fraction(-1, 3)).union(ball(Fraction(2, 7)))
        assert lower(held) < Fraction(-1, 3)
        assert upper(held) > Fraction(2, 7)
