"""Histograms of rows: every row in its own cell, however large the numbers are."""

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.histograms import Histogram


# With the last of them, a number for each group and code leaves 64 bits.
@pytest.mark.parametrize("size", [2**32 + 1, 2**52 + 1, 2**53, 2**62])
def test_codes_of_64_bits_are_not_rounded(size):
    codes = np.array([size, size - 1, 5, size, size - 2, size - 1, size], np.uint64)
    histogram = Histogram.of_rows(codes, None, np.array([1, 2, 2, 1, 1]), size)
    assert histogram.codes.tolist() == [5, size - 1, size - 2, size - 1]
    assert histogram.weights.tolist() == [1, 1, 1, 1]
    assert histogram.sizes.tolist() == [0, 2, 1, 1, 0]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_groups_without_evidence_raise_nothing(value):
    rows = pl.DataFrame({"ward": [1, 1, 2], "x": [value] * 3}, schema={"ward": pl.Int64, "x": pl.Float64})
    points = dpp.grid(0, 2**52, step=1)
    drawn = rows.group_by("ward").agg(dpp.quantile("x", [0.1, 0.2, 0.3, 0.5, 0.9], points, epsilon=1))
    assert drawn["x"].list.len().to_list() == [5, 5]
