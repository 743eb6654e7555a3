"""A clipping bound of −0.5 was shown as −1.5."""

from fractions import Fraction

import polars as pl
import pytest

from dp_polars._accounting.terms import exact, in_decimals


@pytest.mark.parametrize("value", ["-0.5", "-1.25", "-3", "-0.001", "2.5", "0"])
def test_decimals_of_either_sign_are_shown_as_they_are(value):
    assert exact(Fraction(value)) == in_decimals(Fraction(value), up=True) == value


def test_a_negative_bound_is_shown_as_it_was_given():
    query = (
        pl.DataFrame({"p": [1], "x": [0.0]}).dp.protect("p", max_rows=1).agg(pl.col("x").dp.mean(-0.5, 1, epsilon=1))
    )
    assert "from -0.5 to 1" in query.explain()["selects"].item()
