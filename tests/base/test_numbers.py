"""Numbers become the exact rationals that they print as."""

from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from dp_polars._base.numbers import (
    as_fraction,
    ball,
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


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        (1e22, Fraction(10**22)),
        (5e-324, Fraction(5, 10**324)),
        (-0.0, Fraction(0)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.float16(0.1), Fraction(1, 10)),
        (3, Fraction(3)),
        (10**400, Fraction(10**400)),
        (np.uint64(2**64 - 1), Fraction(2**64 - 1)),
        (np.int8(-3), Fraction(-3)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.10"), Fraction(1, 10)),
        (Decimal("1e-400"), Fraction(1, 10**400)),
        (Decimal("1e400"), Fraction(10**400)),
    ],
)
def test_what_a_number_means(value, exact):
    found = as_fraction("x", value)
    assert found == exact
    assert type(found) is Fraction


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_the_decimal_that_it_prints_as(value):
    assert as_fraction("x", value) == Fraction(repr(value))
    assert float(as_fraction("x", value)) == value


def test_ten_tenths_are_one():
    assert sum(as_fraction("x", 0.1) for _ in range(10)) == 1


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 1j, [1], np.array([1]), b"1"])
@pytest.mark.parametrize("check", [as_fraction, positive_fraction])
def test_what_is_no_number(check, value):
    with pytest.raises(TypeError, match=r"^epsilon must be a number \(int, float, Fraction or Decimal\), got "):
        check("epsilon", value)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        np.float32("nan"),
    ],
)
@pytest.mark.parametrize("check", [as_fraction, positive_fraction])
def test_what_is_not_finite(check, value):
    with pytest.raises(ValueError, match=r"^rho must be finite, got "):
        check("rho", value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, -1e-300, Fraction(-1, 3), Decimal(0)])
def test_what_is_not_positive(value):
    with pytest.raises(ValueError, match=r"^epsilon must be greater than 0, got "):
        positive_fraction("epsilon", value)


def test_messages_show_the_value():
    with pytest.raises(ValueError, match=r"^sensitivity must be greater than 0, got Fraction\(-1, 3\)\.$"):
        positive_fraction("sensitivity", Fraction(-1, 3))


@pytest.mark.parametrize("value", [1, 7, np.int32(7), np.uint8(200), 10**30])
def test_positive_integers(value):
    assert positive_int("contributions", value) == value
    assert type(positive_int("contributions", value)) is int


@pytest.mark.parametrize("value", [True, 1.0, "1", None, Fraction(1), np.float64(1)])
def test_what_is_no_integer(value):
    with pytest.raises(TypeError, match=r"^contributions must be an integer, got "):
        positive_int("contributions", value)


@pytest.mark.parametrize("value", [0, -1, np.int64(0)])
def test_what_is_no_positive_integer(value):
    with pytest.raises(ValueError, match=r"^contributions must be at least 1, got "):
        positive_int("contributions", value)


@pytest.mark.parametrize(
    ("value", "text"), [(Fraction(1, 10), "0.1"), (Fraction(1, 3), "0.333333"), (Fraction(2), "2"), (Fraction(0), "0")]
)
def test_numbers_for_people(value, text):
    assert show(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(Fraction(1, 3), "0.333334"), (Fraction(1, 10), "0.1"), (Fraction(2), "2")]
)
def test_costs_for_people_are_never_below_the_truth(value, text):
    assert show(value, up=True) == text


@pytest.mark.parametrize("exponent", [-5000, -400, -308, 308, 400, 5000])
def test_numbers_beyond_the_floats_for_people(exponent):
    text = show(Fraction(10) ** exponent / 3 * 3)
    assert Fraction(text) == Fraction(10) ** exponent
    assert len(text) < 15


@given(st.fractions(0, 10**6))
def test_the_smallest_float_that_is_not_below(value):
    rounded = nearest_float_up(value)
    assert Fraction(rounded) >= value > Fraction(float(np.nextafter(rounded, -1)))


@given(st.fractions(0, 10**6) | st.floats(0, 1e300).map(lambda x: as_fraction("x", x)))
def test_a_float_that_is_not_below(value):
    rounded = float_up(value)
    assert as_fraction("x", rounded) >= value
    assert as_fraction("x", np.nextafter(rounded, -1)) < value


def test_a_decimal_stays_what_it_is():
    assert float_up(Fraction(3, 10)) == 0.3
    assert float_up(Fraction(1, 3)) == 0.33333333333333337
    assert float_up(Fraction(1, 10**400)) == 5e-324


@pytest.mark.parametrize(
    ("value", "name", "way"),
    [
        (pd.DataFrame(), "pandas.DataFrame", "pl.from_pandas"),
        (pd.Series(dtype=int), "pandas.Series", "pl.from_pandas"),
        (pa.table({}), "pyarrow.Table", "pl.from_arrow"),
        (np.zeros(1), "numpy.ndarray", "pl.from_numpy"),
        (pl.Series(), "Series", None),
        ({}, "dict", None),
        (Fraction(1), "Fraction", None),
    ],
)
def test_another_package_and_the_way_from_it_are_named(value, name, way):
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


def test_a_number_that_fits_is_itself():
    with precision(20):
        assert lower(ball(Fraction(5, 8))) == upper(ball(Fraction(5, 8))) == Fraction(5, 8)


def test_a_range_is_held_whole():
    with precision(20):
        held = ball(Fraction(-1, 3)).union(ball(Fraction(2, 7)))
        assert lower(held) < Fraction(-1, 3)
        assert upper(held) > Fraction(2, 7)
