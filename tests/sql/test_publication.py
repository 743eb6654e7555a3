"""Publications from tables of a database: one charge for all queries."""

from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from tests.sql.tools import MARKS, need_ibis

need_ibis()

pytestmark = MARKS

VISITS = pl.DataFrame(
    {"patient": [number // 3 for number in range(900)], "ward": ["A", "B", "C"] * 300, "month": [1, 2, 3] * 300}
)


def publication(loss, budget=None, dataset=None):
    private = dpp.protect("patient", max_groups=3, max_rows_per_group=1, budget=budget, dataset=dataset)
    return dpp.publication(
        by_ward=private.group_by({"ward": ["A", "B", "C"]}).agg(people=dpp.n_people(**loss)),
        by_month=private.group_by({"month": [1, 2, 3]}).agg(rows=dpp.len(**loss), people=dpp.n_people(**loss)),
    )


def test_one_table_or_one_for_each(engine):
    table, half = engine.table(VISITS), engine.table(VISITS.head(450))
    asked = publication({"epsilon": 10**6})
    released = dpp.sql.release(asked, table, ranges=True, min_people=2)
    assert released["by_ward"].rows() == [(ward, 300, 300, 300) for ward in "ABC"]
    assert released["by_month"]["rows"].to_list() == [300] * 3
    released = dpp.sql.release(asked, {"by_ward": table, "by_month": half})
    assert [frame["people"].to_list() for frame in released.values()] == [[300] * 3, [150] * 3]
    assert asked.last.released is released
    with pytest.raises(ValueError, match="must have the names of the queries"):
        dpp.sql.release(asked, {"by_ward": table})


def test_it_is_charged_as_one_and_kept_for_each(engine, tmp_path):
    table, budget = engine.table(VISITS), dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    asked = publication({}, budget, "visits").scaled_to(epsilon=1, delta=1e-6)
    released = dpp.sql.release(asked, table)
    again = dpp.sql.release(asked, table)
    assert all(released[name].equals(again[name]) for name in released)
    assert budget.remaining == 0
    assert budget.log()["what"].str.split(":").list.first().to_list() == ["by_ward", "by_month", "by_month"]
    with pytest.raises(dpp.BudgetExceededError):
        dpp.sql.release(asked, table, fresh=True)
    with pytest.raises(TypeError, match="budget must be left out"):
        dpp.sql.release(asked, table, budget=dpp.Budget(epsilon=1))


def test_what_is_refused_of_one_table_costs_nothing(engine):
    budget = dpp.Budget(epsilon=1)
    table, other = engine.table(VISITS), engine.table(VISITS.drop("month"))
    with pytest.raises((TypeError, ValueError)):
        dpp.sql.release(publication({"epsilon": 0.1}), {"by_ward": table, "by_month": other}, budget=budget)
    assert budget.remaining == 1
    dpp.sql.release(publication({"epsilon": 0.1}), table, budget=budget)
    assert budget.remaining == Fraction(7, 10)


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
