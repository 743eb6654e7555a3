"""Cubes from databases: the same cells, bounds and marginals as on Polars."""

from __future__ import annotations

import polars as pl
import pytest

import dp_polars as dpp
from tests.sql.tools import MARKS, need_ibis

need_ibis()

pytestmark = MARKS

ROWS = pl.DataFrame(
    {
        "p": [i % 70 for i in range(700)],
        "g": [["A", "B", "Z", None][i % 4] for i in range(700)],
        "y": [2020 + i % 7 % 3 for i in range(700)],
    }
)
DIMENSIONS = {"g": ["B", "A", "C"], "y": [2022, 2020]}


@pytest.mark.parametrize("marginals", [None, [("y",), ()]], ids=str)
def test_a_cube_is_that_of_polars(engine, marginals):
    # 10 rows of each person, at most: none is dropped.
    query = dpp.protect("p", max_rows=10).cube(DIMENSIONS, counts="rows", marginals=marginals, epsilon=10**5)
    cube = dpp.sql.release(query, engine.table(ROWS))
    assert isinstance(cube, dpp.Cube)
    there = query.release(ROWS)
    assert cube.to_frame().equals(there.to_frame())
    assert cube.to_frame()["count"].sum() == cube.count().value > 200
    assert repr(cube) == repr(there)
    assert cube.counts(by="y").equals(there.counts(by="y"))


def test_a_person_is_in_one_cell(engine):
    query = dpp.protect("p", max_groups=1).cube(DIMENSIONS, epsilon=10**5)
    assert dpp.sql.release(query, engine.table(ROWS)).count().value == 50  # the others have a year that is not listed


def test_answers_are_kept_and_ranges_are_left_out(engine, tmp_path):
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")
    query = dpp.protect("p", max_groups=1, budget=budget, dataset="rows").cube(DIMENSIONS, epsilon=1, marginals=[()])
    table = engine.table(ROWS)
    first, again = (dpp.sql.release(query, table) for _ in range(2))
    assert first.to_frame().equals(again.to_frame())
    assert first.count() == again.count()
    for shown in ({"ranges": True}, {"min_people": 5}, {"sure": True}):
        with pytest.raises(ValueError, match="must be left out"):
            dpp.sql.release(query, table, **shown)
    assert budget.spent == 1
