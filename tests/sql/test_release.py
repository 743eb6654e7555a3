"""Whole releases in SQL: exact laws, Parquet beside Polars, and what is refused before the charge."""

import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from tests.helpers import reference
from tests.helpers.spies import fix_words
from tests.sql.tools import MARKS, counts, histograms_of, need_ibis
from tests.statistical.goodness import check_sampler

need_ibis()

import ibis  # noqa: E402

from dp_polars.sql import TESTED, _SqlEngine  # noqa: E402

pytestmark = MARKS


def test_answers_follow_the_exact_law(engine):
    """20,000 groups with the same rows are 20,000 draws; 0.7 and 1.3 times the rate must be told from it."""
    groups = 20_000
    own = pl.DataFrame({"x": [0, 0, 0, 1, 3, 3, 3, 3]})
    table = engine.table(pl.DataFrame({"g": range(groups)}).join(own, how="cross"))
    drawn, asks = {}, {}
    for factor in (Fraction(1), Fraction(7, 10), Fraction(13, 10)):
        query = (
            dpp.protect(None)
            .group_by({"g": range(groups)})
            .agg(
                mode=dpp.mode("x", range(4), epsilon=Fraction(3, 4) * factor),
                # The rate goes with the root of rho.
                median=dpp.median("x", range(4), rho=Fraction(1, 2) * factor**2),
            )
        )
        drawn[factor] = dpp.sql.release(query, table)
        asks[factor] = {ask.name: ask.query for ask in query._asks}
        assert drawn[factor]["g"].to_list() == list(range(groups))
    for name, scores in [("mode", [3, 1, 0, 4]), ("median", [-2, 0, -1, -1])]:
        claim = asks[Fraction(1)][name].claim
        law = reference.floats(reference.law(scores, rate=claim.rate, mechanism=claim.mechanism, digits=20))
        check_sampler(lambda factor, name=name: drawn[factor][name].to_numpy(), law)


def test_a_shared_guarantee_is_released_and_without_a_loss_nothing_is(engine):
    table = engine.table(pl.DataFrame({"p": range(40), "x": [i % 3 for i in range(40)]}))
    budget = dpp.Budget(epsilon=1, delta=1e-6)
    private = dpp.protect("p", max_groups=1, max_rows_per_group=1, budget=budget)
    query = private.agg(n=dpp.n_people(), x=dpp.mode("x", range(3)))
    with pytest.raises(ValueError, match="every output must have a loss, got none for 'n', 'x'"):
        dpp.sql.release(query, table)
    assert budget.spent == 0
    assert dpp.sql.release(query.scaled_to(epsilon=1, delta=1e-6), table).height == 1
    assert budget.remaining == 0


def test_answers_are_the_same_whatever_a_process_sets_and_a_driver_warns_of(engine, monkeypatch):
    """Warnings of a driver may tell of rows."""
    edges = [0.0, 5e-324, -1e-310, 1e-20, 3.5, 1.7e308, np.inf, -np.inf, np.nan, None]
    table = engine.table(pl.DataFrame({"x": pl.Series(edges * 30, dtype=pl.Float64)}))
    asked = dpp.protect(None).agg(
        median=dpp.median("x", [-1e300, 0.0, 1e-310, 2.5], epsilon=1),
        list=dpp.quantile("x", [0.25, 0.5], range(-9, 9), epsilon=1),
        mean=dpp.mean("x", -9, 9, step=0.5, epsilon=1),
        sum=dpp.sum("x", -9, 9, step=0.5, rho=0.1),
    )
    fix_words(monkeypatch.setattr)
    plain = dpp.sql.release(asked, table, intervals=True)
    name = table.get_backend().name
    own = TESTED[name]

    def loud(backend, statement):
        warnings.warn("Ada is 36", stacklevel=1)  # which is an error in these tests
        assert np.float64(5e-324) * 0.3 == 0  # and so is this below
        return own.fetch(backend, statement)

    monkeypatch.setitem(TESTED, name, replace(own, fetch=loud))
    with np.errstate(all="raise"):
        assert_frame_equal(dpp.sql.release(asked, table, intervals=True), plain, check_exact=True)


def test_a_folder_of_parquet_is_the_same_to_duckdb_and_to_polars(tmp_path):
    rng = np.random.default_rng(3)
    for part in range(3):
        pl.DataFrame(
            {
                "patient": rng.integers(0, 500, 2000),
                "ward": rng.choice(["north", "south", "gone"], 2000),
                "age": rng.normal(50, 20, 2000),
                "diagnosis": rng.choice(["flu", "cold", "asthma"], 2000),
            }
        ).write_parquet(tmp_path / f"part-{part}.parquet")
    query = (
        dpp.protect("patient", max_rows_per_group=1000)
        .group_by({"ward": ["north", "south", "west"]})
        .agg(
            top=dpp.mode("diagnosis", ["flu", "cold", "asthma"], epsilon=10_000),
            age=dpp.median("age", range(101), epsilon=10_000),
            people=dpp.n_people(epsilon=10_000),
            mean=dpp.mean("age", 0, 100, step=0.5, epsilon=10_000_000),
        )
    )
    table = ibis.duckdb.connect().read_parquet(str(tmp_path / "*.parquet"))
    in_sql, by_polars = dpp.sql.release(query, table), query.release(pl.scan_parquet(tmp_path))
    in_sql, by_polars = (released.filter(pl.col("ward") != "west") for released in (in_sql, by_polars))
    assert in_sql.drop("mean").equals(by_polars.drop("mean"))
    assert (in_sql["mean"] - by_polars["mean"]).abs().max() < 0.5
    for _, expected, got in histograms_of(pl.read_parquet(tmp_path), table, query):
        assert all(one.equals(other) for one, other in zip(expected, got, strict=True))


def test_steps_are_done_in_ibis_and_what_ibis_holds_is_found(engine):
    frame = pl.DataFrame({"p": [1, 2, 3], "x": [1.0, 2.5, 4.0], "k": ["a", "b", "a"]})
    table = engine.table(frame)
    table = table.filter(table.x > 1).mutate(x=(table.x * 2).cast("int64"), **{'odd "name"; --': table.k})
    query = dpp.protect("p").group_by({'odd "name"; --': ["a", "b"]}).agg(dpp.mode("x", [5, 8], epsilon=1))
    assert counts(table, query) == [[(0, 1, 1), (1, 0, 1)]]
    query = dpp.protect("p").agg(dpp.mode("x", [1, 4], epsilon=1))
    held = ibis.memtable(frame.cast({"x": pl.Int64}).to_arrow())
    if engine.name == "duckdb":  # on Postgres Ibis would need the right to create tables
        assert counts(held, query) == [[(0, 0, 1), (0, 1, 1)]]


REFUSED = {
    "no query": (lambda: 5, TypeError, "query must be a PrivateQuery, got int"),
    "data": (
        lambda: pl.DataFrame({"x": [1]}).dp.protect(None).agg(dpp.mode("x", [1], epsilon=1)),
        TypeError,
        "query must be built without data",
    ),
    "two budgets": (
        lambda: dpp.protect(None, budget=dpp.Budget(epsilon=1)).agg(dpp.mode("x", [1], epsilon=1)),
        TypeError,
        "budget must be left out",
    ),
    "many points": (
        lambda: dpp.protect(None).agg(dpp.median("x", [i * i for i in range(5000)], epsilon=1)),
        ValueError,
        r"Output 'x': candidates without a regular step must be at most 4,096[\s\S]*Hint: take a grid",
    ),
    "floats for decimals": (
        lambda: dpp.protect(None).agg(dpp.median("m", [0.5, 1.25], epsilon=1)),
        TypeError,
        r"Output 'm': candidates of a column of type Decimal[\s\S]*Hint: give Decimals",
    ),
    "deep decimals": (
        lambda: dpp.protect(None).agg(dpp.sum("deep", 0, Decimal("0.1"), step=Decimal("0.1"), epsilon=1)),
        TypeError,
        "Output 'deep': decimals that are ordered or added up must have at most 18 digits",
    ),
    "a NUL": (
        lambda: dpp.protect(None).agg(dpp.mode("s", ["a\0"], epsilon=1)),
        ValueError,
        "Output 's': public texts must not hold the character NUL",
    ),
    "nanoseconds": (
        lambda: dpp.protect(None).agg(dpp.mode("c", pl.Series([1]).cast(pl.Time), epsilon=1)),
        ValueError,
        "Output 'c': public times must be whole microseconds",
    ),
    "floats as keys": (
        lambda: dpp.protect(None).group_by({"f": [1]}).agg(dpp.len(epsilon=1)),
        TypeError,
        "the key column 'f' must not hold floats, got Float64",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_run_in_sql_is_refused_before_the_charge(engine, case):
    make, kind, message = REFUSED[case]
    sql = "SELECT 1 AS x, CAST(1 AS DECIMAL(5, 2)) AS m, CAST(0 AS DECIMAL(30, 19)) AS deep, 'a' AS s, "
    table = engine.view(sql + "TIME '12:00:00' AS c, CAST(1 AS DOUBLE PRECISION) AS f")
    budget = dpp.Budget(epsilon=5)
    with pytest.raises(kind, match=message):
        dpp.sql.release(make(), table, budget=budget)
    assert budget.spent == 0


def test_engines_that_are_too_old_are_refused(engine, monkeypatch):
    table = engine.table(pl.DataFrame({"p": [1]}))
    oldest = _SqlEngine(table)._dialect.oldest
    monkeypatch.setattr(type(engine.reader), "version", f"v{oldest[0] - 1}.17.3-dev5")
    with pytest.raises(ValueError, match=f"{engine.name} must be of version {oldest[0]}.{oldest[1]} or newer, got v"):
        dpp.sql.release(dpp.protect("p").agg(dpp.n_people(epsilon=1)), table)


def test_what_is_no_table_of_ibis_is_refused():
    query = dpp.protect(None).agg(dpp.mode("x", [1], epsilon=1))
    with pytest.raises(TypeError, match=r"table must be an Ibis table, got polars.*DataFrame[\s\S]*Hint: ibis"):
        dpp.sql.release(query, pl.DataFrame({"x": [1]}))


def test_what_the_engine_lacks_is_named_before_the_charge(engine, monkeypatch):
    table, budget = engine.table(pl.DataFrame({"p": [1], "x": [1]})), dpp.Budget(epsilon=1)
    no_such = ibis.udf.scalar.builtin(name="no_such_function", signature=(("int64",), "int64"))(lambda x: ...)
    monkeypatch.setattr("dp_polars._engines.sql.rows.integer", lambda number: no_such(number))
    query = dpp.protect("p").agg(dpp.n_people(epsilon=1))
    message = f"{engine.name} must know all that a release needs, but has no function 'no_such_function'."
    with pytest.raises(TypeError, match=f"^{message}$") as caught:
        dpp.sql.release(query, table, budget=budget)
    assert caught.value.__cause__ is None
    assert budget.spent == 0


def test_what_else_an_engine_says_of_a_statement_is_not_shown(engine, monkeypatch):
    """It quotes the statement, and so the secret."""
    table, budget = engine.table(pl.DataFrame({"p": [1], "x": [1]})), dpp.Budget(epsilon=1)
    own = TESTED[engine.name]

    def prepare(backend, sql):
        if table.get_name() in sql:
            raise RuntimeError(sql)
        own.prepare(backend, sql)

    monkeypatch.setitem(TESTED, engine.name, replace(own, prepare=prepare))
    query = dpp.protect("p", max_rows=1).agg(dpp.median("x", [1, 2, 4], epsilon=1))
    with pytest.raises(TypeError, match=rf"^{engine.name} must know all that a release needs, got RuntimeError\.$"):
        dpp.sql.release(query, table, budget=budget)
    assert budget.spent == 0


def test_the_room_is_an_attribute_of_the_package():
    assert dpp.sql.release.__module__ == "dp_polars.sql"
