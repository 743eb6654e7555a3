"""Ends of balls are rational numbers on either side of what the balls hold."""

from fractions import Fraction

import pytest

from dp_polars._base.numbers import ball, ball_between, lower, precision, upper


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
        held = ball_between(Fraction(-1, 3), Fraction(2, 7))
        assert lower(held) < Fraction(-1, 3)
        assert upper(held) > Fraction(2, 7)
