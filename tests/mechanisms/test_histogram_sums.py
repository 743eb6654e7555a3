"""Histograms from pairs and rows in any order, against sums in plain Python."""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from dp_polars._mechanisms.histograms import Histogram

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
def test_rows_of_groups_without_those_that_are_no_evidence(rows, weighs):
    rows = sorted(rows, key=lambda row: row[0])
    codes = np.array([code for _, code, _ in rows], np.int64)
    weights = np.array([weight for *_, weight in rows], np.int64)
    lengths = np.bincount([group for group, *_ in rows], minlength=GROUPS) if rows else np.zeros(GROUPS, np.int64)
    size = SIZE - 2  # the code `size` is no evidence, and the test has none above it
    codes = np.minimum(codes, size)
    expected = Counter()
    for (group, _, weight), code in zip(rows, codes.tolist(), strict=True):
        if code < size:
            expected[group, code] += weight if weighs else 1
    assert told(Histogram.of_rows(codes, weights if weighs else None, lengths, size)) == dict(expected)
