"""Columns that publicly have a value in every row share their number of rows in a database, too."""

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.noised import record
from tests.sql.tools import MARKS, need_ibis

need_ibis()

import ibis  # noqa: E402

from dp_polars._engines.sql.reading import columns_with_values  # noqa: E402

pytestmark = MARKS

ROWS = pl.DataFrame(
    {
        "p": [f"p{i // 2}" for i in range(120)],
        "g": [i % 2 for i in range(120)],
        "x": [i % 10 for i in range(120)],
        "y": [None if i % 6 == 0 else i % 5 for i in range(120)],
        "f": [float(i % 4) for i in range(120)],
    }
)


def report(budget=None, **options):
    frame = dpp.protect("p", **{"max_groups": 2, "max_rows_per_group": 1, "budget": budget} | options)
    return frame.group_by({"g": [0, 1]}).agg(
        rows=dpp.len(rho=1),
        x=dpp.mean("x", 0, 10, rho=1),
        y=dpp.mean("y", 0, 10, rho=1),
        f=dpp.mean("f", 0, 10, step=1, rho=1),
    )


def charged(budget):
    return [what.partition(":") for what in budget.log()["what"]]


CASES = {
    "nothing": (lambda table: table, []),
    "nulls": (lambda table: table.drop_null(), ["rows, x, y"]),
    "nulls of one": (lambda table: table.drop_null("x"), ["rows, x"]),
    "of both": (lambda table: table.drop_null(["x", "y"]), ["rows, x, y"]),
    "rows of nulls alone": (lambda table: table.drop_null(["x", "y"], how="all"), []),
    "filled": (lambda table: table.fill_null({"y": 0}), ["rows, y"]),
    "filled by a column": (lambda table: table.mutate(y=table.y.fill_null(0)), ["rows, y"]),
    "filled by another column": (lambda table: table.mutate(y=table.y.fill_null(table.x)), []),
    "then a filter": (lambda table: table.drop_null().filter(lambda t: t.x > 1), ["rows, x, y"]),
    "in order, less a column": (lambda table: table.drop_null().order_by("x").drop("y").mutate(y=1), ["rows, x"]),
    "then it changes": (lambda table: table.drop_null().mutate(x=lambda t: t.x + 1), ["rows, y"]),
    "renamed": (lambda table: table.drop_null("x").rename(y="x", x="y"), ["rows, y"]),
    "then grouped": (lambda table: table.drop_null().distinct(), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_columns_that_publicly_have_a_value_share_the_number_of_rows(engine, case, monkeypatch):
    steps, expected = CASES[case]
    noised = record(monkeypatch)
    table, budget = steps(engine.table(ROWS)), dpp.Budget(rho=10)
    query = report(budget)
    released = dpp.sql.release(query, table, unchecked=case == "then grouped")
    shared = [names for names, _, what in charged(budget) if "number of rows" in what and "," in names]
    assert shared == expected
    assert budget.spent == query.loss.value == 4
    # Each draw is charged, once.
    draws = sum("mean of" in what for _, _, what in charged(budget)) + budget.log().height
    assert len(noised) == draws
    # What is said to have a value in every row has one; answers without noise are those of the rows.
    rows = table.to_polars()
    for name in columns_with_values(table):
        assert rows[name].null_count() == 0
    true = rows.group_by("g").agg(rows=pl.len(), x=pl.col("x").mean(), y=pl.col("y").mean()).sort("g")
    for name in ("rows", "x", "y"):
        np.testing.assert_allclose(released.sort("g")[name].to_numpy(), true[name].to_numpy(), rtol=1e-3)


def test_a_constraint_says_it_too():
    con = ibis.duckdb.connect()
    con.raw_sql("CREATE TABLE visits (p VARCHAR, g INT, x INT NOT NULL, y DECIMAL(9, 2) NOT NULL, f DOUBLE NOT NULL)")
    con.raw_sql("INSERT INTO visits VALUES ('a', 0, 1, 2, 3), ('b', 1, 4, 5, 6)")
    budget = dpp.Budget(rho=10)
    dpp.sql.release(report(budget), con.table("visits"))
    assert "rows, x, y" in [names for names, *_ in charged(budget)]  # a float may be NaN
    outer = con.table("visits").select("p", "g").left_join(con.table("visits").drop("g"), "p").drop("p_right")
    assert columns_with_values(outer) == frozenset()


def test_a_decimal_of_postgres_may_be_nan(engine):
    table = engine.table(ROWS).drop_null()
    table = table.mutate(x=table.x.cast("decimal(10, 2)")).drop_null("x")
    budget = dpp.Budget(rho=10)
    dpp.sql.release(report(budget), table)
    is_shared = "rows, x, y" in [names for names, *_ in charged(budget)]
    assert is_shared == (engine.name == "duckdb")


def test_an_error_that_was_requested_is_kept(engine):
    """Draws that are shared at the release could make it larger."""
    table, budget = engine.table(ROWS).drop_null(), dpp.Budget(rho=10)
    frame = dpp.protect("p", max_groups=2, max_rows_per_group=1, budget=budget).group_by({"g": [0, 1]})
    query = frame.agg(rows=dpp.len(rho=1), x=dpp.mean("x", 0, 10, step=1, within=1, rows=60))
    dpp.sql.release(query, table)
    assert [names for names, *_ in charged(budget)] == ["rows", "x"]


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_what_is_shared_costs_what_is_charged(engine, relation, monkeypatch):
    """For each neighbour of a small table, the loss of all draws; of some it is near what is charged."""
    noised = record(monkeypatch)
    rows = pl.DataFrame(
        {
            "p": ["a", "a", "b", "c", "c"],
            "g": [0, 1, 0, 1, 0],
            "x": [0, 10, 10, 0, 5],
            "y": [0, 10, 10, 10, 0],
            "f": [0.0, 10, 10, 0, 0],
        }
    )

    def drawn(table):
        del noised[:]
        budget = dpp.Budget(rho=10)
        dpp.sql.release(report(budget, neighboring_relation=relation), engine.table(table).drop_null())
        return [one.scaled for one in noised], float(budget.spent)

    whole, spent = drawn(rows)
    losses = []
    for person in ("a", "b", "c"):
        others = rows.filter(pl.col("p") != person)
        if relation == "replace_one":
            one = rows.filter(pl.col("p") == person)
            others = others.vstack(one.with_columns(-pl.col("x", "y", "f") + 10, g=1 - pl.col("g")))
        left, _ = drawn(others)
        losses.append(sum(((one - two) ** 2).sum() for one, two in zip(whole, left, strict=True)) / 2)
    assert max(losses) <= spent
    assert max(losses) > spent / 3
