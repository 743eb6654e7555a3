"""What a loss means at a delta is rounded up, at every step."""

from fractions import Fraction

import pytest

from dp_polars._accounting.costs import epsilon_at, pure_epsilon
from dp_polars._base.numbers import as_fraction, ball, precision


def test_a_delta_that_is_nearly_one_is_not_one():  # its logarithm would be 0
    assert epsilon_at("rho", Fraction(1, 2), 1 - Fraction(1, 2**60), Fraction(0)) == 0


@pytest.mark.parametrize("delta", [Fraction(n, 10**6 + 1) for n in range(1, 60)])
def test_the_epsilon_of_pure_dp_is_never_below_the_truth(delta):
    epsilon = Fraction(97, 50)
    found = as_fraction("epsilon", pure_epsilon(epsilon, delta))  # the decimal that it prints as
    with precision(512):
        true = (ball(epsilon).exp() - ball(found).exp()) / (1 + ball(epsilon).exp())
        assert true <= ball(delta)
