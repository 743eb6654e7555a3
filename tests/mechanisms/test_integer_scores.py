"""Many integer scores as blocks: the same law as one racer each, whatever the type, the window and the far ones."""

from fractions import Fraction

import numpy as np
import pytest

import dp_polars as dpp
from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import racing
from dp_polars._mechanisms import selection as integer_scores
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.selection import best_integer
from tests.helpers import reference
from tests.statistical.goodness import check_sampler

TYPES = [np.int8, np.uint8, np.int16, np.int64, np.uint64]


@pytest.fixture
def _few(monkeypatch):
    monkeypatch.setattr(integer_scores, "_MANY", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("far", [45.0, 1.0, 0.0])
def test_positions_have_the_exact_law(mechanism, lowest, far, monkeypatch):
    """With a small FAR most scores are left out of the race and come in by its exact path."""
    from dp_polars._mechanisms import racing

    for module in (racing, integer_scores):
        monkeypatch.setattr(module, "FAR", far)
    scores, rate = np.array([7, 9, 9, 4, 8, 7, 9, 0]), Fraction(1, 2)
    own = -scores if lowest else scores
    law = np.array([float(p) for p in reference.law(own.tolist(), rate=rate, mechanism=mechanism, digits=30)])
    draws = 20_000 if far == 45 else 1_500

    def sample(factor):
        words = system_rng()
        chosen = [best_integer(scores, rate * factor, LAWS[mechanism], words, lowest=lowest) for _ in range(draws)]
        return np.array(chosen)

    check_sampler(sample, law, controls=() if far < 45 else (Fraction(7, 10), Fraction(13, 10)))


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("lowest", [False, True])
def test_the_ends_of_every_type(dtype, lowest):
    info = np.iinfo(dtype)
    scores = np.array([info.min, info.max, info.max - 1, info.min + 1], dtype)
    best = 0 if lowest else 1
    for rate in (Fraction(100), Fraction(1, 2**64)):
        found = {best_integer(scores, rate, LAWS["permute_and_flip"], system_rng(), lowest=lowest) for _ in range(80)}
        if rate == 100:
            assert found == {best}
        elif info.bits < 64:
            assert found == {0, 1, 2, 3}
        else:  # too many different gaps to count
            assert found == {None}


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("count", [1, 2, 7, 300, 70_001])
@pytest.mark.parametrize("spread", [1, 15, 16, 17, 255, 256, 257, 5000])
def test_counts_of_gaps(count, spread):
    gaps = np.random.default_rng(count).integers(0, spread, count)
    counts = integer_scores._counts(gaps, spread)
    expected = np.bincount(gaps, minlength=spread)
    assert counts[: len(expected)].tolist() == expected[: len(counts)].tolist()
    assert counts.sum() == count


def test_selections_take_blocks_where_they_pay(monkeypatch):
    asked = []
    original = integer_scores._counts
    monkeypatch.setattr(integer_scores, "_counts", lambda gaps, most: asked.append(most) or original(gaps, most))
    scores = np.arange(10_000)
    few = {"epsilon": 40, "sensitivity": 1}
    assert scores[dpp.mechanisms.permute_and_flip(scores, **few)] > 9_980
    assert dpp.mechanisms.exponential_mechanism(np.ma.masked_greater(scores, 77), **few) > 60
    dpp.mechanisms.permute_and_flip(scores.astype(float), **few)
    dpp.mechanisms.permute_and_flip(scores[:100], **few)
    assert asked == [2]


def test_a_rare_best_score_wins_at_each_of_its_places(mechanism):
    scores = np.zeros(2**16, np.int64)
    scores[[3, 60_000]] = 9  # tries at random find them once in a hundred times
    found = {best_integer(scores, Fraction(100), LAWS[mechanism], system_rng()) for _ in range(64)}
    assert found == {3, 60_000}


def test_far_integer_scores_win_where_there_are_many(mechanism, monkeypatch):
    for module in (integer_scores, racing):
        monkeypatch.setattr(module, "FAR", 1.0)
    scores = np.append(3, np.zeros(5000, np.int64))  # each of the others wins with a chance of some e⁻³
    found = [best_integer(scores, Fraction(1), LAWS[mechanism], system_rng()) for _ in range(20)]
    assert sum(place > 0 for place in found) > 10
