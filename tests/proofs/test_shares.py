"""The range of a cube's share, by enumeration of the noise."""

from fractions import Fraction

import numpy as np
import pytest

from dp_polars._frames.cube import _shares, _Sums
from dp_polars._mechanisms.residuals import Noise


def law_of(mechanism, rate, cells):
    """The law of a sum of the noise of some cells, from −n to n."""
    x = np.arange(-120, 121)
    weights = np.exp(-abs(x) * rate) if mechanism == "discrete_laplace" else np.exp(-((x * rate) ** 2) / 2)
    law = one = weights / weights.sum()
    for _ in range(cells - 1):
        law = np.convolve(law, one)
    middle = len(law) // 2
    return np.arange(-120, 121), law[middle - 120 : middle + 121]


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("cells", [(1, 1), (1, 3), (2, 5)])
@pytest.mark.parametrize("true", [(0, 1), (1, 0), (3, 4), (40, 2), (0, 60), (500, 500)])
def test_ranges_of_shares_hold_with_95_percent_by_enumeration(true, cells, mechanism):
    rate = 0.5
    noise = Noise(mechanism, Fraction(1, 2))
    (x, p), (y, q) = (law_of(mechanism, rate, number) for number in cells)
    values = [grid.ravel() for grid in np.meshgrid(true[0] + x, true[1] + y, indexing="ij")]
    part, rest = (
        _Sums.of_drawn(value, np.full(len(value), number), noise) for value, number in zip(values, cells, strict=True)
    )
    _, low, high = (series.to_numpy() for series in _shares(part, rest))
    share = true[0] / sum(true)
    holds = (low <= share + 1e-15) & (share - 1e-15 <= high)
    covered = (np.outer(p, q).ravel() * holds).sum()
    assert covered >= 0.95
    if true == (500, 500):  # of two large counts it is no wider than it must be by much
        assert covered <= 0.999
