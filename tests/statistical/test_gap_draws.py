"""The law of answers with their gaps, against exact probabilities.

P(answer = i, gap >= ℓ) is the probability that i wins with a score that is ℓ lower: noise is added to both alike.
"""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import noisy_gap
from dp_polars._mechanisms.noisy_gap import race_with_gap
from dp_polars._mechanisms.racing import LAWS, Blocks
from dp_polars._mechanisms.selection import best_rows_with_gap
from tests.helpers import reference
from tests.registry import X
from tests.statistical.goodness import cell_counts, check_sampler, fits

DRAWS = 40_000
# Gaps in whole units that get a cell of their own; all larger ones share one.
CELLS = 8


def joint_law(scores, rate, unit, mechanism, multiplicities=None):
    """Law of (block, gap in units), shape (blocks, CELLS), the last cell being all larger gaps."""
    counts = [1] * len(scores) if multiplicities is None else multiplicities
    tails = np.zeros((len(scores), CELLS))
    for i, steps in np.ndindex(tails.shape):
        if counts[i]:
            # One candidate of the block, and what is left of it.
            rest = [(Fraction(s), c - (j == i)) for j, (s, c) in enumerate(zip(scores, counts, strict=True))]
            rest = [pair for pair in rest if pair[1]] + [(Fraction(scores[i]) - steps * unit, 1)]
            law = reference.law(*zip(*rest, strict=True), rate=rate, mechanism=mechanism, digits=17)
            tails[i, steps] = counts[i] * float(law[-1])
    return tails - np.column_stack([tails[:, 1:], np.zeros(len(scores))])


def draw(scores, rate, unit, mechanism, multiplicities=None, draws=DRAWS):
    """Cells of the joint law that are drawn from."""
    gaps = [max(scores) - score for score in scores]
    width, m = len(gaps), None if multiplicities is None else np.tile(multiplicities, draws)
    counts = multiplicities or [1] * width
    blocks = Blocks(
        np.tile(gaps, draws), np.arange(draws) * width, lambda _: ([*map(Fraction, gaps)].__getitem__, counts), m
    )
    found = race_with_gap(blocks, rate, unit, LAWS[mechanism], system_rng())
    return (found[0] % width) * CELLS + np.minimum(found[1], CELLS - 1)


def laplace_law(gap, rate, unit):
    """Law of ⌊(gap + Laplace noise of scale 1/rate)/unit⌋, of either sign, from −CELLS to CELLS − 1, the ends open."""

    def cdf(x):
        return math.exp(rate * x) / 2 if x < 0 else 1 - math.exp(-rate * x) / 2

    edges = [-math.inf, *(n * unit - gap for n in range(1 - CELLS, CELLS)), math.inf]
    return np.diff([0.0 if edge == -math.inf else 1.0 if edge == math.inf else cdf(edge) for edge in edges])


@pytest.mark.parametrize("gap", [0, 1, 3])
@pytest.mark.parametrize("unit", [Fraction(1), Fraction(5, 2)])
def test_for_two_candidates_it_is_a_shifted_rounded_laplace_distribution(gap, unit):
    rate = Fraction(1, 2)
    law = laplace_law(gap, float(rate), float(unit))

    def signed(factor):
        cell = draw([gap, 0], rate * factor, unit, "permute_and_flip")
        # The second one is ahead by n units or more, and less than n + 1: the difference lies from −n − 1 to −n.
        return np.where(cell < CELLS, cell, CELLS - 1 - cell) + CELLS

    check_sampler(signed, law)


CASES = {
    "tied": ([0, 0, 0], Fraction(1), Fraction(1, 4), None),
    "some": ([3, 5, 2, 2], Fraction(1, 2), Fraction(1), None),
    "real scores": ([0.5, 0.25, 0.75], Fraction(3), Fraction(1, 10), None),
    "far": ([0, -60, -62], Fraction(1), Fraction(9), None),
    "one block": ([1], Fraction(1), Fraction(1, 3), [3]),
    "blocks": ([2, 1, 0], Fraction(1), Fraction(1, 2), [1, 3, 10]),
    "empty blocks": ([2, 0, 2], Fraction(2, 3), Fraction(1), [0, 2, 1]),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_and_gaps_have_their_joint_law(case, mechanism):
    scores, rate, unit, m = CASES[case]
    law = joint_law(scores, rate, unit, mechanism, m).ravel()
    check_sampler(lambda factor: draw(scores, rate * factor, unit, mechanism, m), law)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["some", "blocks"])
def test_the_exact_path_has_the_same_law(case, mechanism, monkeypatch):
    monkeypatch.setattr(noisy_gap, "_SLACK", 1e6)  # so that floats can decide nothing
    scores, rate, unit, m = CASES[case]
    law = joint_law(scores, rate, unit, mechanism, m).ravel()
    assert fits(cell_counts(draw(scores, rate, unit, mechanism, m, draws=3_000), law), law)


@pytest.mark.parametrize("lowest", [False, True])
def test_groups_of_rows(mechanism, lowest):
    one, draws, rate = np.array([2, 5, 1, 4]), 20_000, Fraction(1, 2)
    sign = -1 if lowest else 1
    offered = np.tile([True, True, False, True, True], draws)
    scores, lengths = np.tile([*one, 7], draws), np.tile([4, 1, 0], draws)
    chosen, found_gaps = best_rows_with_gap(
        sign * scores, lengths, rate, Fraction(1), LAWS[mechanism], system_rng(), offered=offered, lowest=lowest
    )
    chosen, found_gaps = chosen.reshape(draws, 3), found_gaps.reshape(draws, 3)
    assert (chosen[:, 1:] == [0, -1]).all()
    assert (found_gaps[:, 1:] == -1).all()
    law = joint_law([2, 5, 4], rate, Fraction(1), mechanism).ravel()
    cells = np.array([0, 1, -1, 2])[chosen[:, 0]] * CELLS + np.minimum(found_gaps[:, 0], CELLS - 1)
    assert fits(cell_counts(cells, law), law)


# As users ask: the paths of rows, dense and sparse, and of histograms.

VALUES = ["a"] * 5 + ["b"] * 4 + ["c"]


@pytest.mark.parametrize(
    ("more", "too_few"), [([], None), (["d"], None), (["d", "e", "f"], 3), ([f"{i}" for i in range(300)], None)]
)
def test_modes_with_gaps(more, too_few):
    groups, candidates = 20_000, ["a", "b", "c", *more]
    counts = [5, 4, 1] + [0] * len(more) + ([] if too_few is None else [too_few])
    blocks = {score: counts.count(score) for score in sorted(set(counts), reverse=True)}
    law = joint_law(list(blocks), Fraction(1, 2), Fraction(1), "permute_and_flip", list(blocks.values())).ravel()
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), len(VALUES)), "x": VALUES * groups})

    def ask(factor):
        return X.dp.mode(candidates, epsilon=Fraction(1, 2) * factor, gap=True, too_few=too_few)

    def cells(answers):
        score = dict(zip([*candidates, None], counts, strict=False))
        block = [list(blocks).index(score[answer]) for answer in answers["answer"].to_list()]
        return np.array(block) * CELLS + np.minimum(answers["gap"].to_numpy(), CELLS - 1)

    def of_rows(factor):
        return cells(frame.group_by("g").agg(ask(factor))["x"].struct.unnest())

    check_sampler(of_rows, law)
    query = frame.dp.protect(None).group_by({"g": range(groups)}).agg(ask(1))
    assert fits(cell_counts(cells(query.release()["x"].struct.unnest()), law), law)


def test_with_a_gap_candidates_that_nobody_has_are_as_good_as_each_other():
    """Were one of them never an answer, it would tell that nobody has it."""
    groups, candidates, rate = 40_000, range(6), Fraction(1, 2)
    private = pl.DataFrame({"g": range(groups), "x": [2] * groups}).dp.protect(None).group_by({"g": range(groups)})
    law = reference.floats(reference.law([0, 0, 1, 0, 0, 0], rate=rate, mechanism="permute_and_flip", digits=17))

    def drawn(factor):
        answers = private.agg(dpp.mode("x", candidates, epsilon=rate * factor, gap=True)).release()
        return answers["x"].struct.field("answer").to_numpy()

    check_sampler(drawn, law)
