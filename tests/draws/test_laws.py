"""Properties of the laws that follow from the blocks that the code builds, and of its answers, for any data."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from dp_polars._base.words import system_words
from dp_polars._draws import drawing
from dp_polars._draws.drawing import Draw, draw_from_rows
from dp_polars._mechanisms import selection
from dp_polars._mechanisms.laws import LAWS
from dp_polars._mechanisms.racing import Winners
from dp_polars._mechanisms.selection import best_rows
from tests.helpers import reference
from tests.privacy.datasets import as_rows, built_gaps, score_of
from tests.registry import MECHANISMS

mechanisms = st.sampled_from(MECHANISMS)
rates = st.fractions(Fraction(1, 9), 3)
alphas = st.sampled_from([Fraction(1, 2), Fraction(1, 4), Fraction(9, 10)])
counts_ = st.lists(st.integers(0, 5), min_size=1, max_size=6)
scores_ = st.lists(st.integers(-6, 6), min_size=1, max_size=6)


def law_of_gaps(gaps, rate, mechanism, multiplicities=None):
    """Law of one candidate of each block (0 where a block has none)."""
    law = reference.law([-g for g in gaps], multiplicities, rate=rate, mechanism=mechanism, digits=18)
    return reference.floats(law) / (1 if multiplicities is None else np.maximum(np.array(multiplicities, float), 1))


def law_of_counts(way, counts, alpha, rate, mechanism):
    draw = Draw(len(counts), score_of(alpha), rate, LAWS[mechanism])
    return law_of_gaps(built_gaps(way, draw, *as_rows([counts]))[0].tolist(), rate, mechanism)


def law_of_scores(scores, rate, mechanism, **kwargs):
    """The law of the blocks that `best_rows` races."""
    laws = []

    def stand_in(blocks, rate, law, words):
        gap, multiplicities = blocks.exact(0)
        laws.append(law_of_gaps([gap(i) for i in range(len(multiplicities))], rate, mechanism))
        return Winners(blocks.starts.copy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "race", stand_in)
        best_rows(np.array(scores), np.array([len(scores)]), rate, LAWS[mechanism], system_words(), **kwargs)
    return laws[0]


def same(a, b):
    return np.allclose(a, b, rtol=1e-13, atol=0)


@given(counts_, rates, mechanisms, st.randoms())
@settings(max_examples=50)
def test_permuted_candidates_have_permuted_probabilities_of_being_the_mode(counts, rate, mechanism, random):
    order = random.sample(range(len(counts)), len(counts))
    for way in (drawing._draw_dense, drawing._draw_sparse):
        law = law_of_counts(way, counts, None, rate, mechanism)
        assert same(law[order], law_of_counts(way, [counts[i] for i in order], None, rate, mechanism))


@given(scores_, rates, mechanisms, st.randoms())
@settings(max_examples=50)
def test_permuted_scores_have_permuted_probabilities(scores, rate, mechanism, random):
    order = random.sample(range(len(scores)), len(scores))
    law = law_of_scores(scores, rate, mechanism)
    assert same(law[order], law_of_scores([scores[i] for i in order], rate, mechanism))


@given(scores_, st.integers(-(2**62), 2**62), rates, mechanisms)
@settings(max_examples=50)
def test_constants_units_and_signs_change_nothing(scores, constant, rate, mechanism):
    law = law_of_scores(scores, rate, mechanism)
    assert same(law, law_of_scores([s + constant for s in scores], rate, mechanism))
    assert same(law, law_of_scores([float(s) for s in scores], rate, mechanism))
    assert same(law, law_of_scores([s / 8 for s in scores], rate * 8, mechanism))
    assert same(law, law_of_scores([-s for s in scores], rate, mechanism, lowest=True))


@given(counts_, st.one_of(st.none(), alphas), rates, mechanisms)
@settings(max_examples=50)
def test_blocks_are_their_candidates_together(counts, alpha, rate, mechanism):
    laws = [law_of_counts(way, counts, alpha, rate, mechanism) for way in (drawing._draw_dense, drawing._draw_sparse)]
    assert same(*laws)
    assert laws[0].sum() == pytest.approx(1, rel=1e-13)
    # The same law again from the blocks themselves, each raced as one.
    seen = []

    def stand_in(blocks, rate, law, words):
        gap, multiplicities = blocks.exact(0)
        each = law_of_gaps([gap(i) for i in range(len(multiplicities))], rate, mechanism, multiplicities)
        seen.append(np.repeat(each, multiplicities))
        return Winners(blocks.starts.copy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "race", stand_in)
        drawing._draw_sparse(Draw(len(counts), score_of(alpha), rate, LAWS[mechanism]), *as_rows([counts]))
    assert same(np.sort(seen[0]), np.sort(laws[0]))


@given(
    st.integers(1, 40),
    st.lists(st.lists(st.integers(0, 40), max_size=8), min_size=1, max_size=8),
    st.one_of(st.none(), alphas),
    st.fractions(Fraction(1, 10**6), 10**6).filter(lambda x: x > 0)
    | st.sampled_from([Fraction(1, 2**1000), Fraction(2**1000)]),
    mechanisms,
)
def test_every_answer_is_a_code(size, groups, alpha, rate, mechanism):
    codes = np.array([min(code, size) for group in groups for code in group], np.uint8)
    lengths = np.array([len(group) for group in groups])
    draw = Draw(size, score_of(alpha), rate, LAWS[mechanism])
    for way in (drawing._draw_dense, drawing._draw_sparse, draw_from_rows):
        answers = way(draw, codes, lengths)
        assert answers.shape == (len(groups),)
        assert ((answers >= 0) & (answers < size)).all()


anything = arrays.arrays(st.sampled_from([np.int8, np.int64, np.uint64, np.float32, np.float64]), st.integers(1, 12))


@given(anything, st.fractions(Fraction(1, 10**9), 10**9), mechanisms, st.booleans(), st.data())
def test_every_answer_is_a_row_on_offer(scores, rate, mechanism, lowest, data):
    # NaN and infinities among them; no warning either.
    lengths = np.array([len(scores) // 2, 0, len(scores) - len(scores) // 2])
    offered = data.draw(arrays.arrays(bool, len(scores)))
    if scores.dtype.kind == "f":
        scores = scores.astype(np.float64)
    chosen = best_rows(scores, lengths, rate, LAWS[mechanism], system_words(), offered=offered, lowest=lowest)
    can_win = offered & (np.isfinite(scores) if scores.dtype.kind == "f" else True)
    for row, possible in zip(chosen, np.split(can_win, np.cumsum(lengths)[:-1]), strict=True):
        assert possible[row] if row >= 0 else not possible.any()
