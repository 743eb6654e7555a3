"""Synthetic rows of tables in a database: the same bins and counts as of Polars."""

import datetime as dt
import math
import warnings

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.sql.tools import MARKS, need_ibis

need_ibis()

pytestmark = MARKS


@pytest.fixture(scope="module", autouse=True)
def mbi():
    with warnings.catch_warnings():  # of JAX's settings
        warnings.simplefilter("ignore")
        return need("mbi")


@pytest.fixture(scope="module")
def rows():
    many = 400
    days = [dt.date(2025, 1, 1) + dt.timedelta(days=i % 12) for i in range(many)]
    floats = [[-math.inf, -1.0, 0.0, 0.5, 1.0, 7.25, math.inf, math.nan, None][i % 9] for i in range(many)]
    columns = {"p": range(many), "Int32": [i % 8 for i in range(many)], "Float64": floats, "Date": days}
    columns["String"] = [["a", "b", "c", None][i % 4] for i in range(many)]
    return pl.DataFrame(columns, schema_overrides={"Int32": pl.Int32})


DIMENSIONS = {
    "Int32": [0.0, 1.5, 6.5, 7.0],
    "Float64": [0.0, 0.5, 1.0, 5.0],
    "Date": dpp.grid(dt.date(2025, 1, 1), dt.date(2025, 1, 13), step="4d"),
    "String": ["a", "b"],
}


def test_bins_and_counts_are_those_of_polars(rows, engine, tmp_path):
    budget = dpp.Budget(rho=100, path=tmp_path / "ledger.db")
    how = {"workload": [("Int32", "Float64"), ("Date", "String")], "method": "fixed", "rho": 19}
    by_polars = rows.dp.protect("p", max_groups=1).synthetic(DIMENSIONS, **how).release()
    private = dpp.protect("p", max_groups=1, budget=budget, dataset="rows")
    table = engine.table(rows)
    found = dpp.sql.release(private.synthetic(DIMENSIONS, **how), table)
    assert type(found) is dpp.Synthetic
    for by in (["Int32", "Float64"], ["Date", "String"], ["Float64"]):
        one, other = (each.counts(by=by) for each in (found, by_polars))
        assert one.drop("count", "count_low", "count_high").equals(other.drop("count", "count_low", "count_high"))
        assert (one["count"] - other["count"]).abs().max() < 4
        assert one["count"].max() > 10
    assert found.rows(50).schema == by_polars.rows(50).schema
    again = dpp.sql.release(private.synthetic(DIMENSIONS, **how), table)
    assert budget.spent == 19
    assert [one.counts.tolist() for one in again._measured] == [one.counts.tolist() for one in found._measured]
    other = {**DIMENSIONS, "Float64": [0.0, 0.5, 2.0, 5.0]}
    dpp.sql.release(private.synthetic(other, **how), table)
    assert budget.spent == 38


def test_rounds_run_on_a_table(rows, engine):
    # Each number has one text only, so the pair says what neither column does.
    dimensions = {"String": ["a", "b"], "Int32": [0, 1, 4, 5]}
    query = dpp.protect("p", max_groups=1).synthetic(dimensions, epsilon=50)
    made = dpp.sql.release(query, engine.table(rows))
    assert made.rows(20).columns == ["String", "Int32"]
    assert ["String", "Int32"] in made.measured
