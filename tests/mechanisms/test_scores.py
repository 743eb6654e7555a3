"""The scores against their meaning, by brute force."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given

import dp_polars as dpp
from dp_polars._bins.binning import ordered_encoder
from dp_polars._bins.candidates import grid, ordered
from dp_polars._mechanisms.histograms import (
    CountScore,
    Histogram,
    QuantileScore,
    Runs,
    merged_quantile_slots,
    quantile_slots,
)
from tests.privacy.datasets import all_counts, gaps_of, scores_of

ALPHAS = [Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(9, 10), Fraction(1, 10), Fraction(2, 7)]


def lower_quantile(counts, alpha):
    """The candidate at rank ceil(α·N), from 1: the smallest with at least α·N rows at or below it."""
    return int(np.searchsorted(np.cumsum(counts), math.ceil(alpha * int(sum(counts)))))


def test_the_median_score_is_the_number_of_people_to_add_or_remove():
    data_sets = all_counts(3, 11)[1:]  # an empty one has no median
    medians = np.array([lower_quantile(counts, Fraction(1, 2)) for counts in data_sets])
    for counts in all_counts(3, 5):
        distance = np.abs(data_sets - counts).sum(axis=1)
        nearest = [int(distance[medians == candidate].min()) for candidate in range(3)]
        assert [-score for score in scores_of(counts, Fraction(1, 2))] == nearest


@pytest.mark.parametrize("alpha", ALPHAS)
def test_exactly_the_lower_quantile_scores_zero(alpha):
    for counts in all_counts(4, 7)[1:]:
        assert np.flatnonzero(np.array(scores_of(counts, alpha)) == 0).tolist() == [lower_quantile(counts, alpha)]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gaps_are_those_of_the_definition(alpha):
    counts = all_counts(4, 6)[1:]
    assert (QuantileScore(alpha).dense_gaps(counts) == gaps_of(counts, alpha)).all()


def largest_range(data_sets, scores, near):
    changes = scores[:, None, :] - scores[None, :, :]
    return int((changes.max(axis=2) - changes.min(axis=2))[near].max())


@pytest.mark.parametrize("alpha", [None, *ALPHAS])
def test_the_range_by_enumeration(alpha):
    counts = all_counts(4 if alpha is None else 3, 5 if alpha is None else 11)
    scores = np.array([scores_of(one, alpha) for one in counts])
    change = counts[:, None, :] - counts[None, :, :]
    one_row = np.abs(change).sum(axis=2) == 1
    replaced = (np.abs(change).sum(axis=2) == 2) & (change.sum(axis=2) == 0)
    exact = (CountScore() if alpha is None else QuantileScore(alpha)).range
    assert largest_range(counts, scores, one_row) == exact("add_or_remove_one")
    # A replacement is a removal in one group and an addition in another one; within one group it does less.
    assert exact("replace_one") == 2 * exact("add_or_remove_one")
    assert exact("replace_one", 2) == exact("replace_one", 10**6) == exact("replace_one")
    # Where there is one group, also of rows that don't count: a row may go and none come.
    assert exact("add_or_remove_one", 1) == exact("add_or_remove_one")
    within = 2 if alpha is None else 2 * alpha.denominator
    assert largest_range(counts, scores, replaced | one_row) == within == exact("replace_one", 1)
    assert within <= exact("replace_one")


@given(
    values=st.lists(st.integers(-50, 350), min_size=1, max_size=12),
    points=st.lists(st.integers(0, 300), min_size=1, max_size=8, unique=True),
    alpha=st.sampled_from(ALPHAS),
)
def test_snapping_commutes_with_the_lower_quantile(values, points, alpha):
    candidates = ordered(points)
    encode = ordered_encoder(candidates, pl.Int64())
    codes = encode(pl.Series(values, dtype=pl.Int64))
    rank = math.ceil(alpha * len(values)) - 1
    counts = np.bincount(codes, minlength=len(points))
    assert lower_quantile(counts, alpha) == encode(pl.Series(np.sort(values)[[rank]]))[0]


@given(
    values=st.lists(st.floats(-10, 1010), min_size=1, max_size=12),
    size=st.integers(2, 1000),
    alpha=st.sampled_from(ALPHAS),
)
def test_snapping_floats_commutes_with_the_lower_quantile(values, size, alpha):
    encode = ordered_encoder(ordered(grid(0, size - 1, step=1)), pl.Float64())
    codes = encode(pl.Series(values, dtype=pl.Float64))
    rank = math.ceil(alpha * len(values)) - 1
    counts = np.bincount(codes, minlength=size)
    assert lower_quantile(counts, alpha) == encode(pl.Series(np.sort(values)[[rank]]))[0]


# Sparse histograms and slots


@st.composite
def histograms(draw):
    size = draw(st.integers(1, 7))
    rows = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    return np.array(draw(st.lists(rows, min_size=1, max_size=6)))


def runs_of(counts):
    sizes = (counts > 0).sum(axis=1)
    return Runs.of_counts(np.nonzero(counts)[1], counts[counts > 0], sizes)


@given(histograms())
def test_a_sparse_histogram_says_what_lies_below(counts):
    runs = runs_of(counts)
    upto = np.cumsum(counts, axis=1)
    assert (runs.totals == counts.sum(axis=1)).all()
    assert (runs.upto == upto[counts > 0]).all()
    assert (runs.below == (upto - counts)[counts > 0]).all()


@given(histograms(), st.sampled_from([None, *ALPHAS]))
def test_slots_name_every_code_once_with_its_gap(counts, alpha):
    size = counts.shape[1]
    slots = (CountScore() if alpha is None else QuantileScore(alpha)).slots(runs_of(counts), size)
    assert (slots.multiplicities > 0).all()
    end = 0
    for group, of_group in enumerate(slots.sizes):
        found = np.full(size, -1)
        for i in range(end, end + of_group):
            first, m = slots.first[i], slots.multiplicities[i]
            codes = np.arange(first, first + m) if first >= 0 else np.flatnonzero(counts[group] == 0)
            assert len(codes) == m
            assert (found[codes] == -1).all()
            found[codes] = slots.gaps[i]
        assert (found == gaps_of(counts[[group]], alpha)[0]).all()
        end += of_group
    assert end == len(slots.gaps)


def test_slots_of_many_candidates_and_rows_do_not_overflow():
    size, alpha = 2**62, Fraction(9999, 10000)
    runs = Runs.of_counts(np.array([0, size - 1]), np.array([2**40, 2**40]), np.array([2]))
    slots = quantile_slots(runs, size, alpha)
    assert slots.multiplicities.tolist() == [1, size - 2, 1]
    total, exact = 2**41, []
    for below, upto in itertools.pairwise([0, 2**40]):
        exact.append(max(0, 9999 * total - 10000 * upto, 10000 * below - 9999 * total + 1))
    assert slots.gaps.tolist() == [exact[0], 9999 * total - 10000 * 2**40, 0]


def gaps_in(slots, size):
    """The gap of each candidate of each group; every one is in one slot."""
    gaps = np.full((len(slots.sizes), size), -1)
    owner = np.repeat(np.arange(len(slots.sizes)), slots.sizes)
    for group, gap, first, m in zip(owner, slots.gaps, slots.first, slots.multiplicities, strict=True):
        assert m >= 0
        assert (gaps[group, first : first + m] == -1).all()
        gaps[group, first : first + m] = gap
    return gaps


@pytest.mark.parametrize("alpha", ALPHAS)
def test_merged_slots_have_the_gaps_of_the_definition(alpha):
    counts = all_counts(4, 6)
    runs = Runs.of_counts(np.nonzero(counts)[1], counts[counts > 0], (counts > 0).sum(axis=1))
    nothing = np.zeros(len(counts), np.int64)
    slots = merged_quantile_slots(runs, alpha, nothing, nothing + 4)
    expected = gaps_of(counts, alpha)
    expected[counts.sum(axis=1) == 0] = 0
    assert (gaps_in(slots, 4) == expected).all()
    assert (gaps_in(quantile_slots(runs, 4, alpha), 4) == expected).all()
    assert (slots.sizes == runs.sizes + 2).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_merged_slots_of_some_runs_are_those_of_all_there(alpha):
    """Runs on both sides of the quantile are left out, and the candidates beside them; what is left has its gaps."""
    counts = np.random.default_rng(0).integers(0, 4, (200, 12))
    counts[:, ::3] = 0
    runs = Runs.of_counts(np.nonzero(counts)[1], counts[counts > 0], (counts > 0).sum(axis=1))
    expected = gaps_of(counts, alpha)
    ends = np.cumsum(runs.sizes)
    begins, places = ends - runs.sizes, []
    for start, end, one in zip(begins.tolist(), ends.tolist(), counts, strict=True):
        quantile = int(np.searchsorted(runs.codes[start:end], lower_quantile(one, alpha)))
        places.append((start + max(quantile - 1, 0), min(start + quantile + 2, end)))
    first, stop = np.array(places).T
    at = np.concatenate([np.arange(a, b) for a, b in places])
    near = Runs(runs.codes[at], runs.below[at], runs.upto[at], stop - first, runs.totals)
    low = np.where(first > begins, runs.codes[first], 0)
    high = np.where(stop < ends, runs.codes[stop - 1] + 1, 12)
    found = gaps_in(merged_quantile_slots(near, alpha, low, high), 12)
    inside = (np.arange(12) >= low[:, None]) & (np.arange(12) < high[:, None])
    assert ((found == expected) == inside).all()
    assert (found[~inside] == -1).all()


# With the last of them, a number for each group and code leaves 64 bits.
@pytest.mark.parametrize("size", [2**32 + 1, 2**52 + 1, 2**53, 2**62])
def test_codes_of_64_bits_are_not_rounded(size):
    codes = np.array([size, size - 1, 5, size, size - 2, size - 1, size], np.uint64)
    histogram = Histogram.of_rows(codes, None, np.array([1, 2, 2, 1, 1]), size)
    assert histogram.codes.tolist() == [5, size - 1, size - 2, size - 1]
    assert histogram.weights.tolist() == [1, 1, 1, 1]
    assert histogram.sizes.tolist() == [0, 2, 1, 1, 0]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_groups_without_contributing_rows_raise_nothing(value):
    rows = pl.DataFrame({"ward": [1, 1, 2], "x": [value] * 3}, schema={"ward": pl.Int64, "x": pl.Float64})
    points = dpp.grid(0, 2**52, step=1)
    drawn = rows.group_by("ward").agg(dpp.quantile("x", [0.1, 0.2, 0.3, 0.5, 0.9], points, epsilon=1))
    assert drawn["x"].list.len().to_list() == [5, 5]


GROUPS, SIZE = 4, 5
pairs = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, SIZE - 1), st.integers(-3, 9)), max_size=20)


def told(histogram):
    """(group, code) -> weight, of a histogram in its order."""
    groups = np.repeat(np.arange(len(histogram.sizes)), histogram.sizes)
    cells = list(zip(groups.tolist(), histogram.codes.tolist(), strict=True))
    assert cells == sorted(set(cells))
    return dict(zip(cells, histogram.weights.tolist(), strict=True))


@given(pairs)
def test_pairs_in_any_order_are_added_up(rows):
    groups, codes, weights = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    weighed, counted = Counter(), Counter()
    for group, code, weight in rows:
        weighed[group, code] += weight
        counted[group, code] += 1
    assert told(Histogram.of_pairs(groups, codes, weights, GROUPS)) == dict(weighed)
    assert told(Histogram.of_pairs(groups, codes, None, GROUPS)) == dict(counted)


@pytest.mark.slow
@pytest.mark.parametrize("weighs", [True, False])
@given(rows=pairs)
def test_rows_of_groups_without_those_that_do_not_contribute(rows, weighs):
    rows = sorted(rows, key=lambda row: row[0])
    codes = np.array([code for _, code, _ in rows], np.int64)
    weights = np.array([weight for *_, weight in rows], np.int64)
    lengths = np.bincount([group for group, *_ in rows], minlength=GROUPS) if rows else np.zeros(GROUPS, np.int64)
    size = SIZE - 2  # the code `size` does not contribute, and the test has none above it
    codes = np.minimum(codes, size)
    expected = Counter()
    for (group, _, weight), code in zip(rows, codes.tolist(), strict=True):
        if code < size:
            expected[group, code] += weight if weighs else 1
    assert told(Histogram.of_rows(codes, weights if weighs else None, lengths, size)) == dict(expected)
