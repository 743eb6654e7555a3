"""The test of the tests: its false-alarm rate is what it says, and it finds what is there."""

import numpy as np
import pytest
from scipy.stats import binom, chi2

from tests.statistical.goodness import FALSE_ALARM, fits, statistic, threshold


@pytest.mark.parametrize("p", [1e-9, 1e-3, 0.03, 0.5, 0.97])
@pytest.mark.parametrize("false_alarm", [0.01, 1e-4, FALSE_ALARM])
def test_false_alarms_of_two_cells_by_enumeration(p, false_alarm):
    n = 300
    heads = np.arange(n + 1)
    rejected = [statistic([n - x, x], [1 - p, p]) >= threshold(2, false_alarm) for x in heads]
    assert binom.pmf(heads[rejected], n, p).sum() <= false_alarm


def test_false_alarms_of_many_cells_by_simulation():
    rng, law = np.random.default_rng(1), np.array([0.5, 0.3, 0.1, 0.05, 0.04, 0.0099, 0.0001])
    rejected = sum(statistic(rng.multinomial(500, law), law) >= threshold(7, 0.05) for _ in range(4000))
    assert rejected <= 0.05 * 4000


@pytest.mark.parametrize("cells", [2, 5, 40, 1000])
def test_thresholds_are_above_the_asymptotic_ones_but_not_far(cells):
    asymptotic = chi2.isf(FALSE_ALARM, cells - 1)
    assert asymptotic < threshold(cells) < 2 * asymptotic


def test_what_can_not_happen_is_found_at_once():
    assert not fits([10**6, 1], [1.0, 0.0])
    assert fits([10**6, 0], [1.0, 0.0])
    assert fits([10], [1.0])
