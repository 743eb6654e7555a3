"""Draws from rows and from histograms against exact laws: the whole way from codes to answers."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms import drawing, histograms, racing
from dp_polars._mechanisms.drawing import Draw, draw_from_rows, draw_from_runs, draw_groups
from dp_polars._mechanisms.histograms import Runs, SingleRows
from dp_polars._mechanisms.racing import LAWS
from tests.helpers import reference
from tests.privacy.datasets import score_of, scores_of
from tests.statistical.goodness import CONTROLS, cell_counts, check_sampler, fits

pytestmark = pytest.mark.slow


def held(draw, codes, lengths):
    """The rows as an engine holds them: in any order, in parts, and only those that contribute."""
    order = np.random.default_rng(1).permutation(len(codes))
    groups, codes = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)[order], codes[order]
    counts = codes < draw.size
    parts = np.array_split(np.flatnonzero(counts), 3)
    return SingleRows([(groups[part], codes[part]) for part in parts], len(lengths), draw.size)


def draw_from_held(draw, codes, lengths):
    """Draw as an engine that holds rows: a mode from their histogram."""
    return draw_groups(draw, held(draw, codes, lengths))


def draw_selected(draw, codes, lengths):
    """Draw from the rows near the ranks, which are selected in bins."""
    if draw.score.ranks is None:
        return draw_from_held(draw, codes, lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histograms, "_FEW_OF", 0)  # however many they are
        patch.setattr(histograms, "_FEW_ROWS", 0)
        return drawing._draw_selected(draw, draw.score.ranks, held(draw, codes, lengths))


WAYS = {
    "rows": draw_from_rows,
    "dense": drawing._draw_dense,
    "sparse": drawing._draw_sparse,
    "held": draw_from_held,
    "selected": draw_selected,
}
# name: (counts of the candidates, rows that do not contribute, alpha, rate)
CASES = {
    "mode": ([3, 0, 1, 4, 0], 2, None, Fraction(1, 2)),
    "mode of nobody": ([0, 0, 0, 0], 3, None, Fraction(1, 2)),
    "mode of one candidate": ([2], 0, None, Fraction(1, 2)),
    "median": ([2, 0, 0, 3, 1, 0], 1, Fraction(1, 2), Fraction(1, 3)),
    "median in the middle": ([0, 3, 0, 3], 0, Fraction(1, 2), Fraction(1, 3)),
    "median of nobody": ([0, 0, 0], 0, Fraction(1, 2), Fraction(1, 3)),
    "first decile": ([4, 1, 0, 2], 0, Fraction(1, 10), Fraction(1, 20)),
    "third": ([1, 1, 1, 0, 2], 1, Fraction(2, 3), Fraction(1, 5)),
}
FLAT = {"mode of nobody", "mode of one candidate", "median of nobody"}


def rows_of(case, draws):
    counts, nothing, _, _ = CASES[case]
    one = np.repeat(np.arange(len(counts) + 1, dtype=np.uint8), [*counts, nothing])
    np.random.default_rng(0).shuffle(one)
    return np.tile(one, draws), np.full(draws, len(one))


def law_of_counts(counts, alpha, rate, mechanism):
    return reference.floats(reference.law(scores_of(counts, alpha), rate=rate, mechanism=mechanism, digits=20))


def sampler(case, way, mechanism, *, draws=30_000):
    """The draws from rows at a factor of the rate, and their law."""
    counts, _, alpha, rate = CASES[case]
    rows = rows_of(case, draws)

    def draw(factor):
        return WAYS[way](Draw(len(counts), score_of(alpha), rate * factor, LAWS[mechanism]), *rows)

    return draw, law_of_counts(counts, alpha, rate, mechanism)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_draws_from_rows_follow_the_law(case, way, mechanism):
    check_sampler(*sampler(case, way, mechanism), controls=() if case in FLAT else CONTROLS)


@pytest.mark.parametrize("way", [draw_from_runs, drawing._draw_from_blocks])
@pytest.mark.parametrize("case", ["mode", "median", "third"])
def test_draws_from_a_histogram_follow_the_law(case, way, mechanism):
    counts, _, alpha, rate = CASES[case]
    occupied, draws = np.flatnonzero(counts), 50_000
    sizes = np.full(draws, len(occupied))
    runs = Runs.of_counts(np.tile(occupied, draws), np.tile(np.take(counts, occupied), draws), sizes)

    def draw(factor):
        return way(Draw(len(counts), score_of(alpha), rate * factor, LAWS[mechanism]), runs)

    check_sampler(draw, law_of_counts(counts, alpha, rate, mechanism))


@pytest.mark.parametrize("case", ["mode", "median", "first decile"])
@pytest.mark.parametrize("size", ["dense", "sparse"])
def test_slices_of_few_groups_change_nothing(case, size, mechanism, monkeypatch):
    monkeypatch.setattr(drawing, "SLICE_ROWS", 60)
    for module in (drawing, histograms):
        monkeypatch.setattr(module, "_CHUNK", 25)
    monkeypatch.setattr(histograms, "_SLICE_CELLS", 25 if size == "dense" else -(10**9))
    draw, law = sampler(case, "rows", mechanism, draws=5_000)
    assert fits(cell_counts(draw(1), law), law)


def test_groups_of_one_slice_are_independent(mechanism):
    # The same group side by side: pairs of neighbours follow the product law.
    for way in WAYS:
        draw, law = sampler("mode", way, mechanism, draws=40_000)
        pairs, of_pairs = draw(1).reshape(-1, 2) @ [len(law), 1], np.outer(law, law).ravel()
        assert fits(cell_counts(pairs, of_pairs), of_pairs)


# A grid of a billion points


SIZE = 10**9
# Codes of the rows, alpha, and a rate at which crowds of bad candidates and the few good ones win about as often.
ROWS = {
    "few rows": ([5, 10**6, 10**6, 7 * 10**8], Fraction(1, 2), Fraction(7)),
    "at both ends": ([0, 0, SIZE - 1], Fraction(1, 2), Fraction(10)),
    "nobody": ([], Fraction(1, 2), Fraction(1, 2)),
    "ninth decile": ([10**3, 10**4, 10**5, 10**8, 2 * 10**8], Fraction(9, 10), Fraction(7, 2)),
    # All but some 30 ranks around the middle are left out.
    "many rows": ([*range(20)] * 3 + [*range(10**8, 10**8 + 25)] * 2, Fraction(1, 2), Fraction(5, 3)),
    "many ties": ([*[10**4] * 50, *[10**6] * 3, *[10**8] * 50], Fraction(1, 2), Fraction(5, 2)),
    "mode": ([7, 7, 7, 10**5, 10**8, 10**8], None, Fraction(7)),
}


def cells_of(codes):
    """Boundaries of cells that hold one score each: the rows' own codes, and the stretches between, cut in three."""
    edges = sorted({0, SIZE, *codes, *(code + 1 for code in codes)})
    cuts = [low + (high - low) // part for low, high in itertools.pairwise(edges) for part in (4, 2)]
    return np.array(sorted({*edges, *cuts}))


def law_of_cells(codes, cells, alpha, rate, mechanism):
    codes, scores = np.sort(codes), []
    for low in cells[:-1].tolist():
        below, upto = np.searchsorted(codes, low, "left"), np.searchsorted(codes, low, "right")
        three = [int(below), int(upto - below), int(len(codes) - upto)]
        scores.append(three[1] if alpha is None else scores_of(three, alpha)[1])
    return reference.floats(reference.law(scores, np.diff(cells), rate=rate, mechanism=mechanism, digits=15))


@pytest.mark.parametrize("case", ROWS)
def test_draws_on_a_billion_candidates_follow_the_law(case, mechanism):
    codes, alpha, rate = ROWS[case]
    cells, draws = cells_of(codes), 20_000
    law = law_of_cells(codes, cells, alpha, rate, mechanism)
    flat, lengths = np.tile(np.array(codes, np.uint32), draws), np.full(draws, len(codes))

    def draw(factor):
        answers = draw_from_rows(Draw(SIZE, score_of(alpha), rate * factor, LAWS[mechanism]), flat, lengths)
        assert ((answers >= 0) & (answers < SIZE)).all()
        return np.searchsorted(cells, answers, side="right") - 1

    check_sampler(draw, law, controls=() if case == "nobody" else CONTROLS)


@pytest.fixture
def _near(monkeypatch):
    """A small FAR: most candidates of a group are left out of the histogram, and win all the same."""
    for module in (drawing, racing):
        monkeypatch.setattr(module, "FAR", 1.0)


@pytest.mark.usefixtures("_near")
@pytest.mark.parametrize("chunk", [1 << 16, 40])
def test_candidates_left_out_win_as_often_as_they_should(chunk, mechanism, monkeypatch):
    # In batches of groups of like length too, which are not in their order.
    monkeypatch.setattr(histograms, "_SLICE_CELLS", -(10**9))  # the sparse way
    monkeypatch.setattr(drawing, "_CHUNK", chunk)
    alpha, rate, draws = Fraction(1, 2), Fraction(1, 4), 1_500
    groups = [[3, 1, 0, 2, 1, 3, 0, 4], [9, 0, 0, 0, 0, 0, 0, 2]]
    one = np.concatenate([np.repeat(np.arange(8, dtype=np.uint8), counts) for counts in groups])
    lengths = np.tile([sum(counts) for counts in groups], draws)
    answers = draw_from_rows(Draw(8, score_of(alpha), rate, LAWS[mechanism]), np.tile(one, draws), lengths)
    for of_group, counts in zip(answers.reshape(draws, 2).T, groups, strict=True):
        law = law_of_counts(counts, alpha, rate, mechanism)
        assert fits(cell_counts(of_group, law), law)
    assert np.isin(answers[::2], [0, 1, 6, 7]).sum() > 100


@pytest.mark.usefixtures("_near")
@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(1, 4)])
def test_runs_left_out_win_as_often_as_they_should(alpha, mechanism, monkeypatch):
    # All runs but those around the quantile are left out.
    groups = np.array([[3, 1, 0, 2, 1, 3, 0, 4, 2, 1, 2, 2], [0, 1, 1, 1, 2, 1, 1, 1, 1, 0, 2, 3]])
    size, draws, rate = groups.shape[1], 3_000, Fraction(1, 2)
    codes, counts = np.tile(np.nonzero(groups)[1], draws), np.tile(groups[groups > 0], draws)
    runs = Runs.of_counts(codes, counts, np.tile((groups > 0).sum(axis=1), draws))
    near = []

    def recording(blocks, *rest):
        near.append(len(blocks.gaps))
        return racing.race(blocks, *rest)

    monkeypatch.setattr(drawing, "race", recording)

    def draw(factor):
        return draw_from_runs(Draw(size, score_of(alpha), rate * factor, LAWS[mechanism]), runs).reshape(draws, 2)

    found = {factor: np.concatenate([draw(factor) for _ in range(3)]) for factor in CONTROLS} | {1: draw(1)}
    for group, own in enumerate(groups):
        law = law_of_counts(own, alpha, rate, mechanism)
        for factor, answers in found.items():
            assert fits(cell_counts(answers[:, group], law), law) == (factor == 1)
    assert max(near) < len(codes)  # cut
