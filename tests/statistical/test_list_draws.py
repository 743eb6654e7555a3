"""Draws of lists of quantiles against their exact laws: all digits, all levels."""

from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms import drawing, racing
from dp_polars._mechanisms import quantile_trees as cells
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.quantile_trees import TreeDraw, tree
from dp_polars._mechanisms.racing import LAWS
from tests.privacy.lists import law_of_list
from tests.statistical.goodness import CONTROLS, cell_counts, check_sampler, fits

pytestmark = pytest.mark.slow

DRAWS = 40_000
# name: (counts of the values, quantiles, bits of a digit, rate)
CASES = {
    "quartiles": ([2, 0, 3], ["1/4", "1/2", "3/4"], 1, Fraction(2)),
    "ties": ([1, 5], ["1/4", "1/2", "3/4"], 1, Fraction(3)),
    "two, on one side": ([2, 1, 0, 2], ["1/2", "9/10"], 1, Fraction(3)),
    "two, on the other side": ([1, 2, 2], ["1/10", "1/3"], 1, Fraction(3)),
    "four bits of the digits": ([2, 1], ["1/3", "2/3"], 2, Fraction(2)),
    "no digits": ([3, 1, 2], ["1/4", "1/2", "3/4"], 0, Fraction(2)),
    "one": ([1, 0, 2, 1], ["2/3"], 1, Fraction(2)),
    "three levels": ([2, 3], ["1/5", "2/5", "1/2", "9/10"], 1, Fraction(4)),
    "many rows": ([9, 4, 8], ["1/4", "1/2", "3/4"], 1, Fraction(1)),
    "many rows, no digits": ([9, 3, 8, 0, 10], ["1/4", "1/2", "3/4"], 0, Fraction(1)),
    "nobody": ([0, 0, 0], ["1/4", "1/2", "3/4"], 1, Fraction(1)),
}


def drawn(case, mechanism, factor=Fraction(1), draws=DRAWS):
    """Lists of many groups alike, between two others, as positions among those that are possible."""
    counts, alphas, bits, rate = CASES[case]
    root = tree([Fraction(alpha) for alpha in alphas])
    one = np.array([[i for i, n in enumerate(counts) for _ in range(n)]], np.int64)
    rows = np.concatenate([[0, 1], np.tile(one, (draws, 1)).ravel(), [1]])
    lengths = np.array([2, *[one.size] * draws, 1])
    histogram = Histogram.of_rows(rows, None, lengths, len(counts))
    answers = TreeDraw(root, len(counts), bits, rate * factor, LAWS[mechanism]).groups(histogram)[1:-1]
    lists = sorted(law_of(case, mechanism))
    return np.array([lists.index(tuple(each)) for each in answers.tolist()])


def law_of(case, mechanism):
    counts, alphas, bits, rate = CASES[case]
    return law_of_list(tuple(counts), tree([Fraction(alpha) for alpha in alphas]), rate, mechanism, 2**bits)


@pytest.mark.parametrize("case", CASES)
def test_draws_follow_the_law(case, mechanism):
    law = law_of(case, mechanism)
    shares = np.array([law[each] for each in sorted(law)])
    controls = () if case == "nobody" else CONTROLS
    check_sampler(lambda factor: drawn(case, mechanism, factor), shares / shares.sum(), controls=controls)


@pytest.mark.parametrize("case", ["quartiles", "ties", "three levels", "many rows", "many rows, no digits"])
def test_the_law_does_not_depend_on_who_counts_as_far(case, mechanism, monkeypatch):
    """Races that a smaller FAR leaves open draw the digits of the whole group, and go on from there."""
    seen, left_out = [], []
    for module in (drawing, racing):
        monkeypatch.setattr(module, "FAR", 0.7)
    monkeypatch.setattr(cells, "_ROWS_LEFT_WHOLE", 0)  # so that cells beside the few ranks that are near stay large
    first_arrival, race = racing.first_arrival, drawing.race

    def racing_on(*given):
        result = race(*given)
        left_out.extend(result.left_out)
        return result

    monkeypatch.setattr(drawing, "race", racing_on)
    monkeypatch.setattr(racing, "first_arrival", lambda *given: seen.append(1) or first_arrival(*given))
    law = law_of(case, mechanism)
    shares = np.array([law[each] for each in sorted(law)])
    counts = cell_counts(drawn(case, mechanism, draws=4_000), shares)
    assert len(seen) > 500
    assert not case.startswith("many rows") or len(left_out) > 50
    assert fits(counts, shares / shares.sum())
