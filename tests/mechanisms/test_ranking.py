"""The order of the candidates of each group: levels, places, codes."""

import itertools

import numpy as np
import pytest

from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.top_k import Ranking, counts_at, free_place, stable_order


def histogram_of(counts, *, zeros=False):
    """The histogram of groups of shape (g, size); with zeros, a few of these are in it."""
    counts = np.asarray(counts)
    listed = (counts > 0) | (zeros & (np.arange(counts.size).reshape(counts.shape) % 3 == 0))
    groups, codes = np.nonzero(listed)
    return Histogram(codes, counts[groups, codes], listed.sum(axis=1))


COUNTS = {
    "random": np.random.default_rng(0).integers(0, 4, (60, 7)),
    "sparse": np.random.default_rng(1).integers(0, 40, (50, 9)) * (np.random.default_rng(2).random((50, 9)) < 0.2),
    "nobody": np.zeros((3, 4), int),
    "one candidate": [[3], [0]],
    "all occupied": [[5, 5, 1], [1, 2, 3]],
    "large": [[2**61, 0, 2**61, 5], [1, 2**40, 0, 0]],
}


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("case", COUNTS)
def test_every_place_has_its_candidate(case, zeros):
    counts = np.asarray(COUNTS[case])
    groups, size = counts.shape
    histogram = histogram_of(counts, zeros=zeros)
    ranking = Ranking.of(histogram, size)
    codes = ranking.codes_at(np.tile(np.arange(size), (groups, 1)))
    expected = np.argsort(-counts, axis=1, kind="stable")  # of equal counts the first candidate comes first
    assert (codes == expected).all()
    assert (counts_at(histogram, codes) == np.take_along_axis(counts, expected, axis=1)).all()
    ends = np.cumsum(ranking.levels)
    for group, end in enumerate(ends.tolist()):
        own = slice(end - ranking.levels[group], end)
        values, numbers = np.unique(counts[group], return_counts=True)
        assert ranking.counts[own].tolist() == values[::-1].tolist()
        assert ranking.multiplicities[own].tolist() == numbers[::-1].tolist()
        assert ranking.above[own].tolist() == (np.cumsum(numbers[::-1]) - numbers[::-1]).tolist()
    for first, last in ((0, groups), (groups // 2, groups), (1, 2), (0, 0)):
        part = ranking.part(first, min(last, groups))
        places = np.tile(np.arange(size), (len(part.levels), 1))
        assert (part.codes_at(places) == expected[first : min(last, groups)]).all()


def test_codes_without_rows_are_found_among_very_many():
    size = 2**31
    histogram = Histogram(np.array([0, 1, 7, size - 1]), np.array([5, 9, 9, 1]), np.array([3, 0, 1]))
    ranking = Ranking.of(histogram, size)
    places = np.array([[0, 2, 3, 7, size - 1], [0, 1, 2, 3, size - 1], [0, 1, 2, 3, size - 1]])
    assert ranking.codes_at(places).tolist() == [
        [1, 0, 2, 6, size - 1],
        [0, 1, 2, 3, size - 1],
        [size - 1, 0, 1, 2, size - 2],
    ]


def test_free_places_are_counted_from_a_first_one():
    for size in range(1, 6):
        for t in range(size):
            for taken in itertools.permutations(range(size), t):
                for first in range(size):
                    free = [place for place in range(first, size) if place not in taken]
                    if free:
                        n = np.arange(len(free))
                        given = np.tile(np.array(taken, np.int64), (len(free), 1))
                        assert free_place(given, np.full(len(free), first), n).tolist() == free


@pytest.mark.parametrize("largest", [3, 2**30, 2**62])
def test_the_order_is_stable_however_large_the_keys(largest):
    rng = np.random.default_rng(0)
    groups = np.sort(rng.integers(0, 5, 300))
    keys = rng.choice([0, 1, largest // 2, largest], 300)
    assert (stable_order(groups, keys) == np.lexsort((np.arange(300), keys, groups))).all()
    assert len(stable_order(groups[:0], keys[:0])) == 0
