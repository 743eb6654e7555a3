"""Preprocessing in Ibis: what is ordinary is taken and right, what mixes people is refused unless `unchecked`."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.sql.tools import MARKS, NUMBERS, counts, need_ibis, run

need_ibis()
need("duckdb")

import ibis  # noqa: E402

from dp_polars._engines.sql.reading import refuse_mixed_people  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402
from tests.sql.preprocessing import MIXING, ORDINARY, TABLES  # noqa: E402

pytestmark = MARKS
SURE = 10**6  # a loss at which noise is next to nothing
CASES = [(unit, name) for unit, cases in ORDINARY.items() for name in cases]
# What Postgres, or Ibis for it, has not.
NOT_IN_POSTGRES = {
    "difference of times": "an interval is no column that Ibis can cast",
    "exp": "of integers, Ibis divides them as integers there in a statement of its own, but not in a release",
}


def tables_of(con):
    """The tables, by name."""
    numbers = {"duckdb": "range AS i FROM range(240)", "postgres": "i::integer AS i FROM generate_series(0, 239) AS i"}
    run(con, f"CREATE TABLE numbers AS SELECT {numbers[con.name]}")
    for name, sql in TABLES.items():
        run(con, f"CREATE TABLE {name} AS {sql}")
    return SimpleNamespace(con=con, **{name: con.table(name) for name in TABLES})


@pytest.fixture(scope="module")
def duckdb():
    con = ibis.duckdb.connect()
    yield tables_of(con)
    con.disconnect()


@pytest.fixture(scope="module")
def postgres(server):
    server.sql("clinic", "DROP SCHEMA IF EXISTS hospital CASCADE", "CREATE SCHEMA hospital AUTHORIZATION owner")
    con = ibis.postgres.connect(
        host=str(server.folder), port=server.port, user="owner", database="clinic", schema="hospital"
    )
    yield tables_of(con)
    con.disconnect()


def asked(table, unit):
    """Queries about people, rows, and the last column, which is the one that is made."""
    asks = {"n": dpp.len(epsilon=SURE), "people": dpp.n_people(epsilon=SURE)}
    name = table.columns[-1]
    asks["values"] = dpp.count(name, epsilon=SURE)
    with suppress(TypeError):  # a list, for one
        (dtype,) = _SqlEngine(table).schema([name]).dtypes()
        values = table.select(name).to_polars().get_column(name).drop_nulls().unique().sort()
        if dtype.is_float():
            points = values.round().unique().sort().head(50).to_list()
            asks["median"] = dpp.median(name, [x + 0.37 for x in points], epsilon=SURE)
        else:
            asks["mode"] = dpp.mode(name, values.head(50).cast(dtype), epsilon=SURE)
    return dpp.protect(unit, max_groups=1, max_rows_per_group=10_000).agg(**asks)


def check(tables, unit, steps):
    """Compare an expression with a table that holds what it gives."""
    table, name = steps(tables), f"kept{next(NUMBERS)}"
    query = asked(table, unit)
    for column in refuse_mixed_people(table, (unit,)):
        _SqlEngine(table).refuse_coarse(column)
    run(tables.con, f"CREATE TABLE {name} AS {tables.con.compile(table, limit=None)}")
    kept = tables.con.table(name)
    kept = kept.cast(
        {
            of: kind
            for of, kind in table.schema().items()
            if kind.is_date() or kind.is_integer() or getattr(kind, "precision", None)
        }
    )
    there, again = (counts(rows, query) for rows in (table, kept))
    assert there == again
    assert all(there)
    return query, table


@pytest.mark.parametrize(("unit", "name"), CASES)
def test_ordinary_preprocessing_is_taken_and_right(duckdb, unit, name):
    query, table = check(duckdb, unit, ORDINARY[unit][name])
    if CASES.index((unit, name)) % 10 == 0:
        assert dpp.sql.release(query, table).height == 1


@pytest.mark.parametrize(("unit", "name"), CASES[::3])
def test_ordinary_preprocessing_is_taken_and_right_on_postgres(postgres, unit, name):
    if name in NOT_IN_POSTGRES:
        pytest.skip(NOT_IN_POSTGRES[name])
    check(postgres, unit, ORDINARY[unit][name])


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_people_is_refused_and_passes_unchecked(duckdb, name):
    table, budget = MIXING[name](duckdb), dpp.Budget(epsilon=1)
    query = dpp.protect("patient").agg(people=dpp.n_people(epsilon=1))
    with pytest.raises(ValueError, match=r"^table: [\s\S]*\n\nHint: [\s\S]*unchecked=True"):
        dpp.sql.release(query, table, budget=budget)
    assert budget.spent == 0
    dpp.sql.release(query, table, budget=budget, unchecked=True)
    assert budget.spent == 1


def test_there_are_as_many_as_are_guaranteed():
    assert len(CASES) >= 150
    assert len(MIXING) >= 35
