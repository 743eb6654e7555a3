"""From codes to answers: all ways build the same scores, and every answer is a code."""

from contextlib import contextmanager
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import event, given, settings

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import drawing, racing
from dp_polars._mechanisms import histograms as of_histograms
from dp_polars._mechanisms.drawing import Draw, draw_from_rows, draw_from_runs, draw_groups
from dp_polars._mechanisms.histograms import Runs, SingleRows
from dp_polars._mechanisms.racing import LAWS, Winners
from tests.privacy.datasets import all_counts, as_rows, built_gaps, gaps_of, score_of, scores_of
from tests.registry import MECHANISMS

ALPHAS = [None, Fraction(1, 2), Fraction(1, 4), Fraction(9, 10)]
WAYS = [drawing._draw_dense, drawing._draw_sparse, draw_from_rows]


@contextmanager
def near_ends():
    """What is nearly sure not to win is far then: most of a histogram."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (drawing, racing):
            patch.setattr(module, "FAR", 9.0)
        yield


def histogram_of(draw, codes, lengths):
    """What one has who has a histogram and no rows."""
    counts = counts_of(draw.size, codes, lengths)
    return Runs.of_counts(np.nonzero(counts)[1], counts[counts > 0], (counts > 0).sum(axis=1))


def from_runs(draw, codes, lengths):
    return draw_from_runs(draw, histogram_of(draw, codes, lengths))


def from_blocks(draw, codes, lengths):
    return drawing._draw_from_blocks(draw, histogram_of(draw, codes, lengths))


def single_rows(size, codes, lengths):
    """The rows in any order, in parts, and only those that contribute."""
    order = np.random.default_rng(1).permutation(len(codes))
    groups, codes = np.repeat(np.arange(len(lengths), dtype=np.uint16), lengths)[order], codes[order]
    parts = np.array_split(np.flatnonzero(codes < size), 3)
    return SingleRows([(groups[part], codes[part]) for part in parts], len(lengths), size)


def from_single_rows(draw, codes, lengths):
    return draw_groups(draw, single_rows(draw.size, codes, lengths))


@contextmanager
def few_bins(groups):
    """Rows are counted in two to four bins for each group, again and again."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_BINS", 4 * groups), ("_FEWEST_BINS", 1), ("_FEW_ROWS", 0), ("_FEW_OF", 0)):
            patch.setattr(of_histograms, name, value)
        yield


def in_few_bins(draw, codes, lengths):
    with few_bins(len(lengths)):
        return from_single_rows(draw, codes, lengths)


HELD = [from_single_rows, in_few_bins]


@pytest.mark.parametrize("way", [*WAYS, from_runs, from_blocks, *HELD])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_all_small_data_sets_get_their_scores(way, alpha):
    for size, rows in ((4, 5), (3, 7)):
        counts = all_counts(size, rows)
        codes, lengths = as_rows(counts, shuffle=True)
        draw = Draw(size, score_of(alpha), Fraction(1), LAWS["permute_and_flip"])
        assert (built_gaps(way, draw, codes, lengths) == gaps_of(counts, alpha)).all()


@st.composite
def groups_of_rows(draw):
    size = draw(st.integers(1, 9))
    rows = st.lists(st.integers(0, size), max_size=12)  # `size` does not contribute
    groups = draw(st.lists(rows, min_size=1, max_size=5))
    return size, np.concatenate([np.array(g, np.uint8) for g in groups]), np.array([len(g) for g in groups])


def counts_of(size, codes, lengths):
    parts = np.split(codes, np.cumsum(lengths)[:-1])
    return np.array([np.bincount(part, minlength=size + 1)[:size] for part in parts])


@given(groups_of_rows(), st.sampled_from(ALPHAS), st.fractions(Fraction(1, 20), 20))
@settings(max_examples=60)
def test_all_ways_build_the_same_scores(rows, alpha, rate):
    size, codes, lengths = rows
    counts = counts_of(size, codes, lengths)
    draw = Draw(size, score_of(alpha), rate, LAWS["exponential"])
    for way in [*WAYS, from_runs, from_blocks, *HELD]:
        assert (built_gaps(way, draw, codes, lengths) == gaps_of(counts, alpha)).all()


@given(groups_of_rows(), st.sampled_from(ALPHAS[1:]), st.sampled_from([1, 2, 5, 11]))
@settings(max_examples=60)
def test_a_histogram_without_its_far_ends_keeps_every_score(rows, alpha, rate):
    size, codes, lengths = rows
    counts = counts_of(size, codes, lengths)
    with near_ends():
        draw = Draw(size, score_of(alpha), Fraction(rate), LAWS["exponential"])
        for way in [drawing._draw_sparse, *HELD]:
            assert (built_gaps(way, draw, codes, lengths) == gaps_of(counts, alpha)).all()


@st.composite
def histograms(draw):
    counts = st.lists(st.integers(0, 6), min_size=12, max_size=12)
    return np.array(draw(st.lists(counts, min_size=1, max_size=4))), draw(st.lists(st.integers(0, 2), max_size=4))


@pytest.mark.slow
@given(histograms(), st.sampled_from(ALPHAS[1:]), st.sampled_from([1, 2, 5, 11]))
@settings(max_examples=60)
def test_runs_without_their_far_ends_keep_every_score(histogram, alpha, rate):
    counts, empty = histogram
    counts[[i for i in empty if i < len(counts)]] = 0  # groups without rows
    seen = []
    with near_ends():

        def from_near_runs(draw, codes, lengths):
            drawn = drawing._draw_near_runs(draw, alpha, histogram_of(draw, codes, lengths))
            seen.append(drawn is not None)
            return draw_from_runs(draw, histogram_of(draw, codes, lengths)) if drawn is None else drawn

        draw = Draw(12, score_of(alpha), Fraction(rate), LAWS["exponential"])
        assert (built_gaps(from_near_runs, draw, *as_rows(counts)) == gaps_of(counts, alpha)).all()
    event(f"cut: {seen[0]}")


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS[1:])
@pytest.mark.parametrize("rate", [Fraction(1, 3), 5, 100])
@near_ends()
def test_runs_of_large_and_small_groups_are_cut(alpha, rate):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (5, 300)) * np.array([[1], [0], [1], [1], [1]])
    counts[2, :-2], counts[3, 3:] = 0, 0
    draw, rows = Draw(300, score_of(alpha), Fraction(rate), LAWS["exponential"]), as_rows(counts)
    runs = histogram_of(draw, *rows)
    assert drawing._draw_near_runs(draw, alpha, runs) is not None
    for way in [from_runs, *HELD]:
        assert (built_gaps(way, draw, *rows) == gaps_of(counts, alpha)).all()


@pytest.mark.parametrize("size", [6, 2**53])
def test_rows_one_by_one_are_counted(size):
    """Also if the group and the code don't fit into one word together."""
    codes = np.array([3, size - 1, 3, 0, 3, size - 1], np.uint64)
    groups = np.array([0, 4000, 0, 4000, 1, 4000], np.uint16)
    rows = SingleRows([(groups[:4], codes[:4]), (groups[4:], codes[4:])], 4001, size)
    assert rows.codes.tolist() == [3, 3, 0, size - 1]
    assert rows.weights.tolist() == [2, 1, 1, 2]
    assert np.flatnonzero(rows.sizes).tolist() == [0, 1, 4000]
    assert rows.sizes.sum() == 4


SPREADS = {
    "even": lambda rng, size: rng.integers(0, size, 5000),
    "in a corner": lambda rng, size: np.minimum(rng.integers(0, 200, 5000), size - 1),
    "one value": lambda rng, size: np.full(5000, size // 3),
    "both ends": lambda rng, size: np.where(rng.random(5000) < 0.5, 0, size - 1),
    "few": lambda rng, size: rng.choice(rng.integers(0, size, 5), 5000),
    "none": lambda rng, size: np.empty(0, np.int64),
}


@pytest.mark.parametrize("bins", [4, 64, 1 << 16])
@pytest.mark.parametrize("size", [1, 2, 1000, 10**9, 2**53])
@pytest.mark.parametrize("spread", SPREADS)
def test_selected_runs_are_those_of_a_sort(spread, size, bins, monkeypatch):
    """All rows of the ranks are selected, with the true number of rows below each code, and few others."""
    monkeypatch.setattr(of_histograms, "_BINS", bins)
    monkeypatch.setattr(of_histograms, "_FEW_ROWS", 0)
    monkeypatch.setattr(of_histograms, "_FEW_OF", 1)
    rng = np.random.default_rng(size)
    codes = SPREADS[spread](rng, size)
    groups = rng.choice([0, 2, 3], len(codes))
    groups[:1] = 3  # a group without rows, and perhaps one of a single row
    codes, groups = np.append(codes, size - 1)[-5000:], np.append(groups, 1)[-5000:]
    parts = [(groups[i::3].astype(np.uint8), codes[i::3].astype(np.uint64)) for i in range(3)]
    first, last = np.array([0, 0, 700, 1600, 0]), np.array([3, 1, 720, 2000, 0])
    totals = np.bincount(groups, minlength=5)
    first, last = np.minimum(first, totals), np.minimum(last, totals)
    seen = []
    runs = SingleRows(parts, 5, size).near(lambda each: seen.append(each) or (first, last))
    assert [each.tolist() for each in seen] == [totals.tolist()]
    assert runs.totals.tolist() == totals.tolist()
    bounds = np.cumsum([0, *runs.sizes])
    for group in range(5):
        own = slice(bounds[group], bounds[group + 1])
        ascending = np.sort(codes[groups == group])
        found = runs.codes[own]
        assert set(found) >= set(ascending[first[group] : last[group]])
        assert (np.diff(found) > 0).all()
        if len(found):  # no code between the first and the last is missing
            between = (ascending >= found[0]) & (ascending <= found[-1])
            assert found.tolist() == np.unique(ascending[between]).tolist()
        assert runs.below[own].tolist() == np.searchsorted(ascending, found).tolist()
        assert runs.upto[own].tolist() == np.searchsorted(ascending, found, side="right").tolist()
        if size == 10**9 and bins > 4 and spread in ("even", "in a corner"):
            assert len(found) <= last[group] - first[group] + 300


@pytest.mark.parametrize("rate", [1, 2, 5, 11, 30])
@pytest.mark.parametrize("way", [drawing._draw_sparse, from_runs, *HELD])
@near_ends()
def test_what_is_left_out_is_far(way, rate, monkeypatch):
    seen = []

    def stand_in(blocks, rate, law, words):
        for group, near in enumerate(blocks.sizes().tolist()):
            gap, multiplicities = blocks.exact(group)
            left_out = [i for i in range(near, len(multiplicities)) if multiplicities[i]]
            assert all(gap(i) * rate >= 9 for i in left_out)
            seen.append(bool(left_out))
        return Winners(blocks.starts.copy())

    monkeypatch.setattr(drawing, "race", stand_in)
    rng = np.random.default_rng(0)
    for _ in range(30):
        counts = rng.integers(0, 6, (4, 40))
        for alpha in (Fraction(1, 2), Fraction(9, 10), Fraction(2, 7)):
            way(Draw(40, score_of(alpha), Fraction(rate), LAWS["exponential"]), *as_rows(counts))
    assert any(seen)


LONG = 50_000
SHAPES = {
    "equal": lambda rng: np.full(LONG, 7),
    "spread": lambda rng: rng.integers(0, 10**8, LONG),
    "two": lambda rng: np.arange(LONG) % 2,
    "most are equal": lambda rng: np.where(rng.random(LONG) < 0.9, 7, rng.integers(0, 10**8, LONG)),
    "few": lambda rng: rng.integers(0, 10, LONG),
    "ascending": lambda rng: np.arange(LONG),
    "descending": lambda rng: np.arange(LONG)[::-1],
    "what the sample misses": lambda rng: np.where(np.arange(LONG) % (LONG // drawing._SAMPLE), 9, 3),
    "all is fill": lambda rng: np.full(LONG, 10**8),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ranks_of_long_groups_are_those_of_a_sort(shape, dtype):
    rows = SHAPES[shape](np.random.default_rng(1)).astype(dtype)
    ranked = np.sort(rows)
    for low, high in [(0, 1), (0, LONG), (LONG - 1, LONG), (LONG // 2 - 40, LONG // 2 + 60), (7, 300), (4_990, 5_020)]:
        found = drawing._ranked_of_many(rows.copy(), low, high)
        assert found.dtype == dtype
        assert (found == ranked[low:high]).all()
        assert found.shape == (high - low,)


@pytest.mark.parametrize("alpha", ALPHAS[1:])
def test_long_groups_get_the_scores_of_short_ones(alpha, monkeypatch):
    counts = np.random.default_rng(0).integers(0, 9, (3, 30))
    draw, rows = Draw(30, score_of(alpha), Fraction(1), LAWS["exponential"]), as_rows(counts, shuffle=True)
    monkeypatch.setattr(drawing, "_LONG", 1)
    monkeypatch.setattr(drawing, "_SAMPLE", 20)
    assert (built_gaps(drawing._draw_sparse, draw, *rows) == gaps_of(counts, alpha)).all()


@pytest.mark.parametrize("alpha", [Fraction(9999, 10000), Fraction(1, 10000)])
@pytest.mark.parametrize("way", [drawing._draw_dense, from_runs, from_blocks])
def test_a_small_group_beside_a_large_one(way, alpha):
    # Gaps of 700,000 rows in units of 1/10,000 row need 64 bits; those of the small group alone would not.
    counts = [[1, 2, 1], [499_000, 900, 100], [10, 700_000, 20]]
    draw = Draw(3, score_of(alpha), Fraction(1, 10**12), LAWS["exponential"])
    assert (built_gaps(way, draw, *as_rows(counts)) == gaps_of(counts, alpha)).all()


@pytest.mark.parametrize("alpha", [Fraction(9999, 10000), Fraction(1, 10000)])
@pytest.mark.parametrize("rows", [214_748, 214_749, 214_800, 500_000])
def test_gaps_at_the_ends_of_their_types(rows, alpha):
    # 214,748 rows in units of 1/10,000 row are the most that 32 bits hold.
    for counts in ([rows - 3, 2, 1], [0, 0, rows], [rows // 2, 0, rows - rows // 2], [10, rows - 30, 20]):
        draw = Draw(3, score_of(alpha), Fraction(1000), LAWS["exponential"])
        codes, lengths = as_rows([counts])
        assert (built_gaps(drawing._draw_dense, draw, codes, lengths) == gaps_of([counts], alpha)).all()
        scores = scores_of(counts, alpha)
        assert scores[drawing._draw_sparse(draw, codes, lengths)[0]] == max(scores)


# Answers


def test_no_groups():
    draw = Draw(3, score_of(None), Fraction(1), LAWS["permute_and_flip"])
    assert draw_from_rows(draw, np.empty(0, np.uint8), np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("way", [*WAYS, from_runs, from_blocks, *HELD])
def test_groups_without_contributing_rows_get_any_code(way, alpha):
    lengths = np.array([0, 2, 0, 1] * 100)
    codes = np.full(lengths.sum(), 5, np.uint8)
    answers = way(Draw(5, score_of(alpha), Fraction(10**6), LAWS["exponential"]), codes, lengths)
    assert set(answers) == set(range(5))  # one of them missing: 5·(4/5)**400 < 1e-38


@pytest.mark.parametrize("size", [1, 2, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**62])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_codes_of_all_types(size, alpha):
    dtype = np.min_scalar_type(size)
    low, high, nothing = 0, size - 1, size
    codes = np.array([low, low, low, nothing, high, high, high, nothing], dtype)
    lengths = np.array([4, 0, 4])
    for mechanism in ("permute_and_flip", "exponential"):
        answers = draw_from_rows(Draw(size, score_of(alpha), Fraction(100), LAWS[mechanism]), codes, lengths)
        assert [answers[0], answers[2]] == [low, high]
        assert 0 <= answers[1] < size
        assert answers.dtype == np.int64


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("small", [(), ("SLICE_ROWS",), ("_CHUNK",), ("SLICE_ROWS", "_SLICE_CELLS", "_CHUNK")])
def test_at_a_large_rate_the_answer_is_the_true_one(way, alpha, small, monkeypatch):
    for name in small:
        for module in (drawing, of_histograms):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 50)
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 9, (300, 12)) * (rng.random((300, 12)) < 0.4)
    codes, lengths = as_rows(counts, shuffle=True)
    scores = np.array([scores_of(one, alpha) for one in counts])
    for mechanism in MECHANISMS:
        answers = way(Draw(12, score_of(alpha), Fraction(1000), LAWS[mechanism]), codes, lengths)
        assert (scores[np.arange(300), answers] == scores.max(axis=1)).all()


@given(
    st.integers(1, 40),
    st.lists(st.lists(st.integers(0, 40), max_size=8), min_size=1, max_size=8),
    st.sampled_from(ALPHAS),
    st.fractions(Fraction(1, 10**6), 10**6).filter(lambda x: x > 0)
    | st.sampled_from([Fraction(1, 2**1000), Fraction(2**1000)]),
    st.sampled_from(MECHANISMS),
)
def test_every_answer_is_a_code(size, groups, alpha, rate, mechanism):
    codes = np.array([min(code, size) for group in groups for code in group], np.uint8)
    lengths = np.array([len(group) for group in groups])
    draw = Draw(size, score_of(alpha), rate, LAWS[mechanism])
    for way in WAYS:
        answers = way(draw, codes, lengths)
        assert answers.shape == (len(groups),)
        assert ((answers >= 0) & (answers < size)).all()


def test_a_group_larger_than_a_slice():
    codes = np.full(3 * drawing.SLICE_ROWS, 3, np.uint8)
    codes[:10] = 1
    for alpha in ALPHAS:
        for lengths in ([len(codes)], [5, len(codes) - 5], [0, len(codes)]):
            answers = draw_from_rows(
                Draw(7, score_of(alpha), Fraction(100), LAWS["exponential"]), codes, np.array(lengths)
            )
            assert answers[-1] == 3


def test_every_slice_draws_its_own_stream(monkeypatch):
    monkeypatch.setattr(drawing, "SLICE_ROWS", 10)
    made = []

    def words():
        made.append(system_rng())
        return made[-1]

    draw = Draw(3, score_of(None), Fraction(1), LAWS["permute_and_flip"], words)
    draw_from_rows(draw, np.zeros(100, np.uint8), np.full(50, 2))
    assert len(made) >= 10


def test_the_rows_order_within_a_group_does_not_matter():
    counts = all_counts(3, 6)
    for alpha in ALPHAS:
        draw = Draw(3, score_of(alpha), Fraction(1, 2), LAWS["exponential"])
        for way in WAYS[:2]:
            gaps = [built_gaps(way, draw, *as_rows(counts, shuffle=shuffle)) for shuffle in (False, True)]
            assert (gaps[0] == gaps[1]).all()
