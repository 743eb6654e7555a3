"""Top-k lists against their enumerated laws: rounds without replacement, and the joint mechanism."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms import racing
from dp_polars._mechanisms import top_k as joint
from dp_polars._mechanisms.drawing import Draw
from dp_polars._mechanisms.histograms import CountScore
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.top_k import draw_in_rounds, draw_jointly
from tests.helpers.top_k_laws import in_rounds, law_of, lists
from tests.mechanisms.test_ranking import histogram_of
from tests.registry import ASKS
from tests.statistical.goodness import cell_counts, check_sampler, fits

pytestmark = pytest.mark.slow

DRAWS = 60_000
MECHANISMS = ASKS["top_k"].mechanisms
CASES = {
    "five candidates": ([3, 0, 5, 3, 0], 3),
    "all different": ([9, 7, 4, 2, 1], 3),
    "a tie at the top": ([6, 6, 6, 1, 0], 2),
    "all of them": ([4, 1, 2, 0], 4),
    "nobody": ([0, 0, 0, 0], 2),
    "far ones": ([500, 3, 2, 2, 0], 3),
}


def as_positions(drawn, size, k):
    """Lists as positions among all of them."""
    weights = size ** np.arange(k)
    every = np.array(lists(size, k)) @ weights
    order = np.argsort(every)
    return order[np.searchsorted(every[order], np.asarray(drawn) @ weights)]


def drawn(counts, k, mechanism, rate, draws=DRAWS):
    # Between two other groups.
    groups = np.array([[1] * len(counts), *[counts] * draws, [0] * len(counts)])
    draw = Draw(len(counts), CountScore(), rate, LAWS["exponential" if mechanism == "joint" else mechanism])
    made = (draw_jointly if mechanism == "joint" else draw_in_rounds)(draw, histogram_of(groups), k)
    return as_positions(made[1:-1], len(counts), k)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("case", CASES)
def test_draws_follow_the_law(case, mechanism):
    counts, k = CASES[case]
    rate = Fraction(2, 5)
    law = np.array(law_of(counts, k, rate, mechanism))
    controls = {} if case not in ("nobody", "far ones") else {"controls": ()}
    check_sampler(lambda factor: drawn(counts, k, mechanism, rate * factor), law / law.sum(), **controls)


def test_the_first_answer_has_the_law_of_a_mode_at_a_share_of_the_loss():
    frame = pl.DataFrame({"g": np.repeat(np.arange(20_000), 11), "x": ([0] * 3 + [2] * 5 + [3] * 3) * 20_000})
    counts = (3, 0, 5, 3, 0)
    law = np.array(in_rounds(counts, 1, Fraction(1, 3), "permute_and_flip"))

    def draw(factor):
        answers = frame.group_by("g").agg(dpp.top_k("x", 3, range(5), epsilon=factor))["x"]
        return answers.list.first().to_numpy().astype(np.int64)

    check_sampler(draw, law / law.sum())


def test_rounds_of_the_exponential_mechanism_have_the_law_of_one_shot_gumbel_noise():
    counts, k, rate = np.array([3, 0, 5, 3, 0]), 3, 0.4
    noisy = counts + np.random.default_rng(0).gumbel(scale=1 / rate, size=(DRAWS, 5))
    law = np.array(law_of(counts, k, Fraction(2, 5), "exponential"))
    positions = as_positions(np.argsort(-noisy, axis=1)[:, :k], 5, k)
    assert fits(cell_counts(positions, law), law / law.sum())
    flipped = np.array(law_of(counts, k, Fraction(2, 5), "permute_and_flip"))
    assert not fits(cell_counts(positions, law), flipped / flipped.sum())
    assert not fits(cell_counts(drawn(counts, k, "exponential", Fraction(2, 5)), law), flipped / flipped.sum())


def test_races_that_floats_leave_open_have_the_same_law(monkeypatch):
    counts, k, rate = [3, 0, 5, 3, 0], 3, Fraction(2, 5)
    law, seen = np.array(law_of(counts, k, rate, "joint")), []
    monkeypatch.setattr(joint, "_SLACK", 0.002)
    first_arrival = racing.first_arrival
    monkeypatch.setattr(racing, "first_arrival", lambda *given: seen.append(1) or first_arrival(*given))
    counts_of_lists = cell_counts(drawn(counts, k, "joint", rate, draws=15_000), law)
    assert len(seen) > 1000
    assert fits(counts_of_lists, law / law.sum())


def test_rounds_with_many_far_candidates_have_the_same_law(monkeypatch):
    counts, k, rate = [3, 0, 5, 3, 0], 3, Fraction(2, 5)
    monkeypatch.setattr(racing, "FAR", 0.7)
    for mechanism in ("permute_and_flip", "exponential"):
        law = np.array(law_of(counts, k, rate, mechanism))
        assert fits(cell_counts(drawn(counts, k, mechanism, rate, draws=10_000), law), law / law.sum())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_candidates_without_rows_are_as_good_as_each_other(mechanism):
    """Of very many candidates, all empty but one: each is drawn as often, and none twice."""
    size, k = 40, 3
    counts = np.zeros((20_000, size), np.int64)
    counts[:, 7] = 1
    draw = Draw(size, CountScore(), Fraction(1, 10), LAWS["exponential" if mechanism == "joint" else mechanism])
    lists_drawn = (draw_jointly if mechanism == "joint" else draw_in_rounds)(draw, histogram_of(counts), k)
    assert all(len(set(each)) == k for each in lists_drawn.tolist())
    for position in range(k):
        others = lists_drawn[:, position][lists_drawn[:, position] != 7]
        uniform = np.full(size - 1, 1 / (size - 1))
        assert fits(cell_counts(others - (others > 7), uniform), uniform)
