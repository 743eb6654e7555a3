"""Cubes from Spark: the executors count, the driver draws."""

import polars as pl
import pytest

import dp_polars as dpp
from tests.spark.tools import MARKS, need_spark, on_both, to_spark

need_spark()

pytestmark = [*MARKS, on_both]

ROWS = pl.DataFrame(
    {
        "p": [i % 70 for i in range(700)],
        "g": [["A", "B", "Z", None][i % 4] for i in range(700)],
        "y": [2020 + i % 7 % 3 for i in range(700)],
    }
)
DIMENSIONS = {"g": ["B", "A", "C"], "y": [2022, 2020]}


@pytest.mark.usefixtures("few_tasks")
def test_a_cube_is_that_of_polars(spark, tmp_path):
    rows = to_spark(spark, ROWS, "p long, g string, y long")
    for tables in (None, [("y",), ("g",), ()], [("y", "g")]):
        # 10 rows of each person, at most: none is dropped.
        loss = {"rho": 10**7} if tables else {"epsilon": 10**5}
        query = dpp.protect("p", max_rows=10).cube(DIMENSIONS, counts="rows", tables=tables, **loss)
        cube, there = dpp.spark.release(query, rows), query.release(ROWS)
        assert isinstance(cube, dpp.Cube)
        assert cube.to_frame().equals(there.to_frame())
        assert cube.counts(by="y")["count"].sum() == cube.count().value > 200
        assert repr(cube) == repr(there)
        assert cube.counts(by="y").equals(there.counts(by="y"))
    budget = dpp.Budget(rho=10, path=tmp_path / "ledger.db")
    kept = dpp.protect("p", max_groups=1, budget=budget, dataset="rows").cube(
        DIMENSIONS, rho=1, tables=[("g",), ("y",)]
    )
    rows.write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    first, again = (dpp.spark.release(kept, rows) for _ in range(2))
    assert first.to_frame().equals(again.to_frame())
    assert first.count() == again.count()
    for wrong in ({"ranges": True}, {"path": str(tmp_path / "answers")}):
        with pytest.raises(ValueError, match="must be left out"):
            dpp.spark.release(kept, rows, **wrong)
    assert budget.spent == 1
    people = dpp.protect("p", max_groups=1).cube(DIMENSIONS, epsilon=10**5)
    assert dpp.spark.release(people, rows).count().value == 50  # the others have a year that is not listed
    few = dpp.protect("p", max_groups=2, max_rows_per_group=1)
    some = dpp.spark.release(few.cube(DIMENSIONS, counts="rows", tables=[("g",), ("y",)], rho=10**9), rows)
    own = ROWS.filter(pl.col("g").is_in(["A", "B", "C"]), pl.col("y").is_in([2022, 2020]))
    kept = own.unique().group_by("p").agg(pl.len().clip(upper_bound=2))["len"].sum()
    assert some.counts(by="g")["count"].sum() == some.counts(by="y")["count"].sum() == kept
    every_row = dpp.protect(None).cube({"g": ["A", "B"]}, epsilon=10**5)
    assert dpp.spark.release(every_row, rows).counts(by="g")["count"].to_list() == [175, 175]
