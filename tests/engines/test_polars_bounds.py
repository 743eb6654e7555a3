"""Sums of what stays of people's rows: exact, slice by slice, and with whatever the columns are."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines import polars_bounds, polars_engine
from dp_polars._engines.bounding import Limits
from dp_polars._engines.polars_bounds import exact_sums
from dp_polars._engines.polars_engine import count
from tests.helpers.tallies import as_frame, tally_of


@pytest.mark.parametrize("largest", [0, 1, 2**30, 2**40 + 1, 2**50 + 1, 2**53, 2**59])
def test_sums_are_exact(largest):
    rng = np.random.default_rng(1)
    weights = rng.integers(-largest, largest, 2000, endpoint=True)
    weights[:600], weights[600:900], places = largest, -largest, rng.integers(0, 3, 2000)
    places[:600] = places[900:1200] = 1
    sums = exact_sums(places, weights, 5, largest)
    for place in range(5):
        own = sum(weights[places == place].tolist())
        assert abs(own) < 2**63 or largest > 2**53
        assert sums[place] == (own + 2**63) % 2**64 - 2**63
    assert len(exact_sums(places[:0], weights[:0], 2, largest)) == 2


@pytest.mark.parametrize("rows", [3, 1 << 17])
@pytest.mark.parametrize("bits", [0, 17])
@pytest.mark.parametrize("largest", [3, 2**29])
def test_cells_and_slices_change_no_sum(rows, bits, largest, monkeypatch):
    """Small slices, and cells that are listed instead of counted."""
    monkeypatch.setattr(polars_bounds, "_PEOPLE_ROWS", rows)
    monkeypatch.setattr(polars_bounds, "_MOST_BITS", bits)
    rng = np.random.default_rng(2)
    values = rng.integers(-largest, largest, 500, endpoint=True)
    frame = pl.DataFrame({"p": rng.integers(0, 60, 500), "g": rng.integers(0, 4, 500), "x": values})
    frame = frame.with_columns(x=pl.when(pl.col("x") % 7 > 0).then("x"))
    total = dpp.sum("x", -largest, largest, epsilon=1).query
    tallies = [
        tally_of(frame, "x", total, Limits(groups=4)),
        tally_of(frame, "x", total, Limits(groups=4), people=True),
        tally_of(frame, None, dpp.len(epsilon=1).query, Limits(groups=4)),
        tally_of(frame, "p", dpp.mode("p", range(50), epsilon=1).query, Limits(groups=4), people=True),
    ]
    found = [as_frame(each).rows() for each in count(frame.lazy(), ("p",), pl.DataFrame({"g": [2, 0, 3]}), tallies)]
    listed = [(2, 0), (0, 1), (3, 2)]
    seen = frame.filter(pl.col("x").is_not_null())
    clipped = seen.group_by("g", "p").agg(pl.col("x").sum().clip(-largest, largest))
    assert found[0] == [(i, 0, seen.filter(g=g)["x"].sum()) for g, i in listed]
    assert found[1] == [(i, 0, clipped.filter(g=g)["x"].sum()) for g, i in listed]
    assert found[2] == [(i, 0, frame.filter(g=g).height) for g, i in listed]
    people = {(i, p) for g, i in listed for p in frame.filter(g=g)["p"] if p < 50}
    assert found[3] == [(i, p, 1) for i, p in sorted(people)]


def test_columns_that_are_read_alike_are_encoded_once():
    """Five tallies of one column: one column of codes, and one of weights for each weighing."""
    frame, column = pl.LazyFrame({"p": [1, 1, 2], "x": [1.0, 2.0, None]}), pl.col("x")
    total = dpp.sum("x", 0, 3, step=1, epsilon=1).query
    mean = dpp.mean("x", 0, 3, step=1, epsilon=1).query
    number = dpp.count("x", epsilon=1).query
    asked = [(total, 0), (total, 0), (mean, 0), (mean, 1), (number, 0)]
    limits = [Limits(rows=5), Limits(rows=4), Limits(rows=5), Limits(rows=3), Limits(rows_per_group=3)]
    tallies = [
        tally_of(frame, column, query, most, part=part) for (query, part), most in zip(asked, limits, strict=True)
    ]
    assert len(polars_engine._made(tallies)) == 3  # codes; whole steps; distances from the middle
    assert [as_frame(each)["count"].item() for each in count(frame, ("p",), None, tallies)] == [3, 3, 0, 2, 2]
