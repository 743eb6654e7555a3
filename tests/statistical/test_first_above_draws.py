"""The law of the first candidate above a threshold, and of its gap, against exact probabilities."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms import above_threshold as thresholds
from dp_polars._mechanisms.above_threshold import Search, first_above_groups
from dp_polars._mechanisms.histograms import Histogram
from tests.helpers.first_above_laws import log_law
from tests.registry import X
from tests.statistical.goodness import cell_counts, check_sampler, fits

DRAWS, GAPS = 60_000, 5
# Counts of the candidates in their order, the threshold and the rate.
CASES = {
    "below": ([1, 3, 0, 0, 0, 2, 1], Fraction(4), Fraction(1, 2)),
    "around": ([1, 3, 0, 0, 6, 5, 5, 1], Fraction(4), Fraction(1, 3)),
    "tied": ([2, 2, 2, 2], Fraction(2), Fraction(1)),
    "tied and above": ([5, 5, 5, 0, 0, 5], Fraction(7, 2), Fraction(1, 2)),
    "nothing": ([0, 0, 0], Fraction(3, 2), Fraction(3, 4)),
    "one": ([3], Fraction(2), Fraction(1, 2)),
}


def drawn(counts, threshold, rate, draws=DRAWS):
    """Cells of the law that are drawn from: a code and a gap each, and none."""
    row = np.array(counts)
    occupied = np.flatnonzero(row)
    histogram = Histogram(
        np.tile(occupied, draws), np.tile(row[occupied], draws), np.full(draws, len(occupied), np.int64)
    )
    codes, gaps = first_above_groups(Search(len(row), threshold, rate), histogram)
    assert ((codes < 0) == (gaps < 0)).all()
    return np.where(codes < 0, len(row) * GAPS, codes * GAPS + np.minimum(gaps, GAPS - 1))


def law_of(counts, threshold, rate):
    law = np.exp(log_law([counts], float(threshold), float(rate), GAPS)[0])
    return law / law.sum()


@pytest.mark.parametrize("case", CASES)
def test_answers_and_gaps_have_their_joint_law(case):
    counts, threshold, rate = CASES[case]
    check_sampler(lambda factor: drawn(counts, threshold, rate * factor), law_of(counts, threshold, rate))


@pytest.mark.parametrize("case", CASES)
def test_the_exact_path_has_the_same_law(case, monkeypatch):
    monkeypatch.setattr(thresholds, "_SLACK", 1.0)  # so that floats prove nothing of what may be reached
    counts, threshold, rate = CASES[case]
    law = law_of(counts, threshold, rate)
    assert fits(cell_counts(drawn(counts, threshold, rate, 1_000), law), law)


@pytest.mark.slow
def test_a_run_of_a_billion_candidates_is_one_draw():
    """Which quarter of them is first is known: of none before, each is passed over with the same chance, given z."""
    size, threshold, rate = 10**9, Fraction(20), Fraction(1)
    groups = 40_000
    histogram = Histogram(np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(groups, np.int64))
    u = (np.polynomial.legendre.leggauss(2_000)[0] + 1) / 2
    weights = np.polynomial.legendre.leggauss(2_000)[1] / 2
    chance = np.log1p(-np.exp(-float(rate * threshold)) * u)
    upto = np.array([-np.expm1(size * part / 4 * chance) @ weights for part in range(5)] + [1.0])

    def cells(factor):
        codes, _ = first_above_groups(Search(size, threshold, rate * factor), histogram)
        return np.where(codes < 0, 4, codes * 4 // size)

    check_sampler(cells, np.diff(upto))


def test_a_threshold_that_is_far_above_draws_exactly_too():
    """Chances far below the last bit of a float: no answer, whichever way they are decided."""
    histogram = Histogram(np.array([0, 2]), np.array([5, 2**61]), np.array([1, 1]))
    codes, gaps = first_above_groups(Search(4, Fraction(2**62), Fraction(2**1000)), histogram)
    assert codes.tolist() == gaps.tolist() == [-1, -1]
    codes, gaps = first_above_groups(Search(4, Fraction(1, 3), Fraction(2**1000)), histogram)
    assert codes.tolist() == [0, 2]
    assert gaps.tolist() == [4, 2**61 - 1]


def test_at_a_tiny_rate_a_gap_is_the_largest_that_there_is():
    histogram = Histogram(np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(200, np.int64))
    codes, gaps = first_above_groups(Search(3, Fraction(5), Fraction(1, 2**1000)), histogram)
    assert set(gaps[codes >= 0].tolist()) == {thresholds.LARGEST_GAP}
    assert 100 < (codes >= 0).sum() < 190  # 3 in 4


# As users ask: expressions, which count rows, and private frames.


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], [f"{i}" for i in range(300)]])
def test_as_users_ask(more):
    groups, rows = 20_000, ["a"] + ["b"] * 3 + ["c"] * 5
    counts = [1, 3, *([0] * len(more)), 5]
    candidates = ["a", "b", *more, "c"]
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), len(rows)), "x": rows * groups})
    law = law_of(counts, 4, 0.5)
    code = {candidate: i for i, candidate in enumerate(candidates)}

    def cells(answers):
        found = answers.struct.unnest()
        codes = found["answer"].replace_strict(code, default=-1, return_dtype=pl.Int64).to_numpy()
        gaps = np.minimum(found["gap"].fill_null(-1).to_numpy(), GAPS - 1)
        return np.where(codes < 0, len(counts) * GAPS, codes * GAPS + gaps)

    def asked(factor):
        return X.dp.first_above(candidates, threshold=4, epsilon=factor, gap=True)

    check_sampler(lambda factor: cells(frame.group_by("g").agg(asked(factor))["x"]), law)
    query = frame.dp.protect(None).group_by({"g": range(groups)}).agg(asked(1))
    assert fits(cell_counts(cells(query.release()["x"]), law), law)


def test_a_grid_is_looked_at_from_its_lowest_point_on():
    values, groups = [0.2, 0.9, 1.1, 1.0, 7.0], 30_000
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), len(values)), "x": values * groups})
    law = law_of([1, 3, 0, 1], 3, 0.5).reshape(-1)
    of_answers = np.append(law[:-1].reshape(4, GAPS).sum(axis=1), law[-1])

    def cells(factor):
        asked = dpp.first_above("x", dpp.grid(0, 3, step=1.0), threshold=3, epsilon=factor)
        return frame.group_by("g").agg(asked)["x"].fill_null(4).cast(pl.Int64).to_numpy()

    check_sampler(cells, of_answers)
