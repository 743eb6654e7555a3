"""Cubes from databases: the same cells, bounds and tables as on Polars."""

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


@pytest.mark.parametrize("tables", [None, [("y",), ("g",)], [("g", "y"), ()]], ids=str)
def test_a_cube_is_that_of_polars(engine, tables):
    # 10 rows of each person, at most: none is dropped.
    loss = {"rho": 10**7} if tables else {"epsilon": 10**5}
    query = dpp.protect("p", max_rows=10).cube(DIMENSIONS, counts="rows", tables=tables, **loss)
    cube = dpp.sql.release(query, engine.table(ROWS))
    assert isinstance(cube, dpp.Cube)
    there = query.release(ROWS)
    assert cube.to_frame().equals(there.to_frame())
    assert cube.counts(by="y")["count"].sum() == cube.count().value > 200
    assert repr(cube) == repr(there)
    assert cube.counts(by="y").equals(there.counts(by="y"))


@pytest.mark.parametrize("tables", [[("g",), ("y",)], [("g", "y")]], ids=str)
@pytest.mark.parametrize(
    "bounds", [{"max_groups": 1}, {"max_rows": 3}, {"max_groups": 2, "max_rows_per_group": 1}], ids=str
)
def test_tables_are_of_the_rows_that_the_bounds_keep(engine, bounds, tables):
    counts = "people" if bounds == {"max_groups": 1} else "rows"
    query = dpp.protect("p", **bounds).cube(DIMENSIONS, counts=counts, tables=tables, rho=10**9)
    own = ROWS.filter(pl.col("g").is_in(["A", "B", "C"]), pl.col("y").is_in([2022, 2020]))
    most = {"people": 1}.get(counts, bounds.get("max_rows", 2))
    per_group = bounds.get("max_rows_per_group", 99)
    rows = own.group_by("p", "g", "y").agg(n=pl.len().clip(upper_bound=per_group)).group_by("p").agg(pl.col("n").sum())
    expected = rows["n"].clip(upper_bound=most).sum()
    cube = dpp.sql.release(query, engine.table(ROWS))
    assert cube.count().value == expected
    assert cube.counts(by="g")["count"].sum() == cube.counts(by="y")["count"].sum() == expected


def test_a_person_is_in_one_cell(engine):
    query = dpp.protect("p", max_groups=1).cube(DIMENSIONS, epsilon=10**5)
    assert dpp.sql.release(query, engine.table(ROWS)).count().value == 50  # the others have a year that is not listed


def test_answers_are_kept_and_ranges_are_left_out(engine, tmp_path):
    budget = dpp.Budget(rho=10, path=tmp_path / "ledger.db")
    query = dpp.protect("p", max_groups=1, budget=budget, dataset="rows").cube(
        DIMENSIONS, epsilon=1, delta=1e-6, tables=[("g",), ("y",)]
    )
    table = engine.table(ROWS)
    first, again = (dpp.sql.release(query, table) for _ in range(2))
    assert first.to_frame().equals(again.to_frame())
    assert first.count() == again.count()
    for shown in ({"ranges": True}, {"min_people": 5}, {"sure": True}):
        with pytest.raises(ValueError, match="must be left out"):
            dpp.sql.release(query, table, **shown)
    assert budget.log().height == 2
