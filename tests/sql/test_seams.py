"""What SQL engines assume, rewrite and hold that Polars has not: it is refused for free, or makes no difference."""

import datetime as dt
import itertools

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.person_weights import UNIT
from tests.helpers.alone import alone
from tests.sql.tools import MARKS, NUMBERS, counts, histograms_of, need_ibis
from tests.statistical.goodness import fits

need_ibis()

import ibis  # noqa: E402

from dp_polars._engines.sql import dialects  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS


OF_DUCKDB = {
    "unsigned": ("CAST(1 AS UTINYINT)", "signed integer.*got uint8[\\s\\S]*Hint: cast it to a signed"),
    "128 bits": ("CAST(1 AS HUGEINT)", "got HUGEINT .*decimal[\\s\\S]*Hint: cast it in Ibis first", 1),
    "a zone": ("CAST('2020-01-01' AS TIMESTAMPTZ)", "got timestamp.*[\\s\\S]*without a time zone"),
    "nanoseconds": ("CAST('2020-01-01' AS TIMESTAMP_NS)", "got timestamp\\(9\\)[\\s\\S]*in microseconds"),
    "milliseconds": ("CAST('2020-01-01' AS TIMESTAMP_MS)", "TIMESTAMP_MS", dt.datetime(2020, 1, 1)),
    "an interval": ("INTERVAL 1 DAY", "got interval[\\s\\S]*seconds"),
    "a list": ("[1]", "got array<int32>"),
    "a json": ("CAST('1' AS JSON)", "got json"),
    "an identifier": ("CAST('c0ffee00-0000-4000-8000-000000000000' AS UUID)", "got uuid"),
}
OF_POSTGRES = {
    "padded": ("CAST('a' AS char(3))", "got character .string[\\s\\S]*COLLATE"),
    "an enumeration": ("CAST('a' AS mood)", "got mood|got unknown"),
    "a domain": ("CAST('a' AS word)", "got word|got unknown"),
    "without case": ("CAST('a' AS text) COLLATE nocase", 'got text with the collation "nocase"'),
    "any digits": ("CAST(1.5 AS numeric)", "must not hold floats|got Float64|floats"),
    "too many digits": ("CAST(1.5 AS numeric(50, 2))", "at most 38 digits"),
    "a zone": ("CAST('2020-01-01' AS timestamptz)", "without a time zone"),
    "a time with a zone": ("CAST('12:00' AS timetz)", "time with time zone", dt.time(12)),
    "an interval": ("INTERVAL '1 day'", "got interval"),
    "an address": ("CAST('::1' AS inet)", "got inet|got unknown"),
    "a json": ("CAST('1' AS jsonb)", "got json"),
    "an array": ("ARRAY[1]", "got array"),
    "an identifier": ("CAST('c0ffee00-0000-4000-8000-000000000000' AS uuid)", "got uuid"),
    "a name": ("CAST('a' AS name)", "got name"),
}


@pytest.fixture(scope="session")
def types(owner):
    owner.raw_sql("CREATE TYPE mood AS ENUM ('a', 'b')")
    owner.raw_sql("CREATE DOMAIN word AS text")
    owner.raw_sql("CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")


@pytest.mark.parametrize("case", OF_DUCKDB)
def test_types_of_duckdb_that_are_refused(case):
    expression, message, *candidate = OF_DUCKDB[case]
    con = ibis.duckdb.connect()
    con.raw_sql(f"CREATE VIEW seen AS SELECT 1 AS p, {expression} AS x")
    refused(con.table("seen"), message, *candidate)


@pytest.mark.parametrize("case", OF_POSTGRES)
def test_types_of_postgres_that_are_refused(owner, reader, types, case):
    expression, message, *candidate = OF_POSTGRES[case]
    name = f"odd{next(NUMBERS)}"
    owner.raw_sql(f"CREATE VIEW {name} AS SELECT 1 AS p, {expression} AS x")
    refused(reader.table(name), message, *candidate)


def test_decimals_of_any_digits_are_floats_in_postgres(owner, reader):
    """However large or small: Postgres raises where one is cast to a float that does not hold it."""
    name = f"odd{next(NUMBERS)}"
    values = "'1e131071', '-1e131071', '1e-16383', '1.5', 'NaN', 'Infinity', '-Infinity', '2.5'"
    owner.raw_sql(f"CREATE TABLE {name} AS SELECT 1 AS p, CAST(x AS numeric) AS x FROM unnest(ARRAY[{values}]) AS x")
    table = reader.table(name)
    query = dpp.protect(None).agg(dpp.median("x", [0.0, 2.0, 3.0], epsilon=1))
    rows = {(0, 0): 3, (0, 1): 2, (0, 2): 2}  # NaN is null
    (found,) = counts(table, query)
    assert {(group, code): number for group, code, number in found} == rows


def refused(table, message, candidate="a"):
    """As a value and as a key, for free; but values are counted of any type."""
    budget = dpp.Budget(epsilon=1)
    for query in (
        dpp.protect("p").agg(dpp.mode("x", [candidate], epsilon=1)),
        dpp.protect("p").group_by({"x": [candidate]}).agg(dpp.n_people(epsilon=1)),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            dpp.sql.release(query, table, budget=budget)
    assert budget.spent == 0
    assert counts(table, dpp.protect(None).agg(dpp.count("x", epsilon=1))) == [[(0, 0, 1)]]


def test_people_whom_a_collation_takes_for_one_are_refused(owner, reader, types):
    name = f"odd{next(NUMBERS)}"
    owner.raw_sql(f'CREATE TABLE {name} (p text COLLATE nocase, q text COLLATE "de-x-icu", c char(2), x int)')
    owner.raw_sql(f"INSERT INTO {name} VALUES ('a', 'a', 'a', 1), ('A', 'A', 'a ', 1)")
    table, asked = reader.table(name), dpp.n_people(epsilon=1)
    for unit, message in (("p", "the privacy unit 'p' must have.*nocase"), ("c", "the privacy unit 'c'.*character")):
        with pytest.raises(TypeError, match=message):
            dpp.sql.release(dpp.protect(unit).agg(asked), table)
    assert counts(table, dpp.protect("q").agg(asked)) == [[(0, 0, 2)]]  # a language alone merges nobody
    # The way out that the message names.
    owner.raw_sql(f'CREATE VIEW plain_{name} AS SELECT CAST(p AS text) COLLATE "C" AS p, x FROM {name}')
    assert counts(reader.table(f"plain_{name}"), dpp.protect("p").agg(asked)) == [[(0, 0, 2)]]


def test_settings_of_a_connection_that_change_texts_are_refused(server, owner):
    name = f"odd{next(NUMBERS)}"
    owner.raw_sql(f"CREATE TABLE {name} (x text)")
    query = dpp.protect(None).agg(dpp.mode("x", ["a"], epsilon=1))
    con = server.connect("reader")
    for setting in ("standard_conforming_strings = off", "client_encoding = 'LATIN1'"):
        con.raw_sql(f"SET {setting}")
        with pytest.raises(ValueError, match=setting.partition(" ")[0]):
            dpp.sql.release(query, con.table(name))
        con.raw_sql(f"RESET {setting.partition(' ')[0]}")
    assert dpp.sql.release(query, con.table(name)).item() == "a"
    con.disconnect()


@pytest.mark.parametrize("kind", ["UUID", "TIMESTAMP WITH TIME ZONE", "DATE", "BOOLEAN"])
def test_people_may_be_of_types_that_can_not_be_asked_about(engine, kind):
    people = {
        "UUID": ["'c0ffee00-0000-4000-8000-000000000000'", "'C0FFEE00-0000-4000-8000-000000000001'"],
        "BOOLEAN": ["TRUE", "FALSE"],
    }.get(kind, ["'2020-01-01'", "'2020-01-02'"])
    values = ", ".join(f"(CAST({person} AS {kind}), {x})" for person in people for x in range(3))
    table = engine.view(f"SELECT * FROM (VALUES {values}, (NULL, 1)) AS v(p, x)")
    query = dpp.protect("p", max_rows=1).agg(n=dpp.len(epsilon=1), people=dpp.n_people(epsilon=1))
    # Each of three rows of a person counts as a third, rounded down.
    assert counts(table, query) == [[(0, 0, 2 * 3 * (UNIT // 3))], [(0, 0, 2)]]


@pytest.mark.parametrize("where", ["column", "session"])
def test_a_collation_of_duckdb_merges_neither_people_nor_values(where):
    con = ibis.duckdb.connect()
    con.raw_sql(f"CREATE TABLE t (p VARCHAR{' COLLATE NOCASE' if where == 'column' else ''}, x VARCHAR, k VARCHAR)")
    con.raw_sql("INSERT INTO t SELECT p, p, p FROM (VALUES ('a'), ('A'), ('á'), ('a '), ('b')) AS v(p)")
    if where == "session":
        con.raw_sql("SET default_collation = 'nocase'")
    query = (
        dpp.protect("p", max_groups=1)
        .group_by({"k": ["A", "a", "á"]})
        .agg(x=dpp.mode("x", ["a", "A"], epsilon=1), n=dpp.n_people(epsilon=1))
    )
    assert counts(con.table("t"), query) == [[(0, 1, 1), (1, 0, 1)], [(0, 0, UNIT), (1, 0, UNIT), (2, 0, UNIT)]]


def test_an_enum_of_duckdb_is_text():
    con = ibis.duckdb.connect()
    con.raw_sql(
        "CREATE TABLE t AS SELECT CAST(x AS ENUM('b', 'a', 'c')) AS x FROM (VALUES ('a'), ('b'), ('a')) AS v(x)"
    )
    query = dpp.protect("x").group_by({"x": ["a", "none"]}).agg(y=dpp.mode("x", ["none", "a"], epsilon=1))
    assert counts(con.table("t"), query) == [[(0, 1, 1)]]


SETTINGS = {
    "duckdb": ["SET integer_division = true", "SET ieee_floating_point_ops = false", "SET default_order = 'DESC'",
               "SET default_null_order = 'NULLS FIRST'", "SET preserve_insertion_order = false", "SET threads = 1"],
    "postgres": ["SET DateStyle = 'German, DMY'", "SET extra_float_digits = -15", "SET bytea_output = 'escape'",
                 "SET transform_null_equals = on", "SET work_mem = '64kB'", "SET enable_hashagg = off",
                 "SET enable_hashjoin = off", "SET TIMEZONE = 'America/New_York'"],
}  # fmt: skip


def test_settings_of_a_session_make_no_difference(engine):
    frame = pl.DataFrame(
        {
            "p": pl.Series([0.1, 0.1 + 2**-52, 0.5, None, -0.0, 0.0, 1.0, 1.0], dtype=pl.Float64),
            "d": [dt.date(2020, 2, 1), dt.date(2020, 1, 2), *[dt.date(2020, 2, 1)] * 6],
            "t": [dt.datetime(2020, 3, 8, 2, 30) + dt.timedelta(hours=i) for i in range(8)],
            "x": [1e308, -1e308, 0.25, 5e-324, -0.0, 7.5, float("nan"), float("inf")],
            "i": [7, -7, 2**63 - 1, -(2**63), None, 5, -5, 0],
        }
    )
    asked = {
        "t": dpp.median("t", dpp.grid(dt.datetime(2020, 3, 8), dt.datetime(2020, 3, 9), step="1h"), epsilon=1),
        "x": dpp.median("x", dpp.grid(0, 8, step=0.5), epsilon=1),
        "s": dpp.sum("x", -1, 8, step=0.5, epsilon=1),
        "i": dpp.median("i", range(-100, 101, 5), epsilon=1),
        "j": dpp.sum("i", -4, 4, step=2, epsilon=1),
        "m": dpp.mode("t", [dt.datetime(2020, 3, 8, 2, 30)], epsilon=1),
    }
    query = (
        dpp.protect("p", max_rows_per_group=100)
        .group_by({"d": [dt.date(2020, 1, 2), dt.date(2020, 2, 1)]})
        .agg(**asked)
    )
    table = engine.table(frame)
    for setting in SETTINGS[engine.name]:
        engine.reader.raw_sql(setting)
        try:
            for name, expected, got in histograms_of(frame, table, query):
                assert all(one.equals(other) for one, other in zip(expected, got, strict=True)), (setting, name)
        finally:
            what = setting.split()[1]
            engine.reader.raw_sql("SET TIMEZONE = 'UTC'" if what == "TIMEZONE" else f"RESET {what}")


ODD = {
    "duckdb": """SELECT * FROM (VALUES
        (1, DATE 'infinity', TIMESTAMP 'infinity', TIME '24:00:00', CAST(1 AS DECIMAL(10, 2))),
        (2, DATE '-infinity', TIMESTAMP '-infinity', TIME '00:00:00', CAST(2 AS DECIMAL(10, 2))),
        (3, DATE '4000-01-01 (BC)', TIMESTAMP '4000-01-01 (BC) 00:00:00', TIME '12:00:00', CAST(3 AS DECIMAL(10, 2))),
        (4, DATE '250000-01-01', TIMESTAMP '250000-01-01 00:00:00', TIME '12:00:00', CAST(3 AS DECIMAL(10, 2)))
        ) AS v(n, d, t, c, m)""",
    "postgres": """SELECT n, d, t, c, CAST(m AS numeric(10, 2)) AS m FROM (VALUES
        (1, DATE 'infinity', TIMESTAMP 'infinity', TIME '24:00:00', CAST('NaN' AS numeric(10, 2))),
        (2, DATE '-infinity', TIMESTAMP '-infinity', TIME '00:00:00', 2),
        (3, DATE '4000-01-01 BC', TIMESTAMP '4000-01-01 00:00:00 BC', TIME '12:00:00', 3),
        (4, DATE '250000-01-01', TIMESTAMP '250000-01-01 00:00:00', TIME '12:00:00', 3)
        ) AS v(n, d, t, c, m)""",
}


def test_values_that_polars_has_not_raise_nothing(engine):
    """Infinite and far times are beyond the candidates, a NaN among decimals does not contribute, and nobody."""
    table = engine.view(ODD[engine.name])
    first, noon = dt.datetime(2020, 1, 1), dt.time(12)
    query = (
        dpp.protect(None)
        .group_by({"n": range(1, 5)})
        .agg(
            d=dpp.median("d", dpp.grid(first.date(), dt.date(2020, 1, 9), step="2d"), epsilon=1),
            listed=dpp.median("d", [first.date(), dt.date(2020, 1, 2), dt.date(2020, 1, 9)], epsilon=1),
            t=dpp.median("t", dpp.grid(first, dt.datetime(2020, 1, 9), step="2d"), epsilon=1),
            c=dpp.median("c", [dt.time(1), noon, dt.time(13)], epsilon=1),
            m=dpp.median("m", [1, 2, 3], epsilon=1),
            s=dpp.sum("m", 0, 3, epsilon=1),
            number=dpp.count("m", epsilon=1),
            at=dpp.mode("t", [first], epsilon=1),
            noon=dpp.mode("c", [dt.time(0), noon], epsilon=1),
        )
    )
    d, listed, t, c, m, s, n, at, at_noon = counts(table, alone(query))
    assert d == t == [(0, 4, 1), (1, 0, 1), (2, 0, 1), (3, 4, 1)]
    assert listed == [(0, 2, 1), (1, 0, 1), (2, 0, 1), (3, 2, 1)]
    assert c == [(0, 2, 1), (1, 0, 1), (2, 1, 1), (3, 1, 1)]
    assert at == []
    assert at_noon == [(1, 0, 1), (2, 1, 1), (3, 1, 1)]
    own = [] if engine.name == "postgres" else [(0, 100)]
    assert s == [(group, 0, weight) for group, weight in [*own, (1, 200), (2, 300), (3, 300)]]
    assert n == [(group, 0, 1) for group, _ in [*own, (1, 0), (2, 0), (3, 0)]]
    assert m == [(group, code, 1) for group, code in ([(0, 0)] if own else []) + [(1, 1), (2, 2), (3, 2)]]
    people = dpp.protect("m", max_rows=1).agg(dpp.len(epsilon=1))
    assert counts(table, people) == [[(0, 0, (3 if own else 2) * UNIT)]]


def test_a_condition_is_not_needed_before_what_it_guards(engine):
    """Engines take conditions in any order: here one that lets nothing odd through stands beside the codes."""
    frame = pl.DataFrame({"x": [float("nan"), float("inf"), 1e308, -1e308, None, 3.0] * 50, "g": list(range(6)) * 50})
    table = engine.table(frame)
    table = table.filter(table.x < 10, ~table.x.isnan(), table.x > -10)
    query = (
        dpp.protect(None)
        .group_by({"g": range(6)})
        .agg(a=dpp.median("x", range(10), epsilon=1), b=dpp.sum("x", 0, 9, step=0.5, epsilon=1))
    )
    assert counts(table, query) == [[(5, 3, 50)], [(5, 0, 300)]]


def test_orders_are_those_of_uniform_permutations(engine):
    """The hashes of four rows of each of many people are in each of the 24 orders equally often."""
    people = 40_000 if engine.name == "duckdb" else 20_000
    table = engine.table(pl.DataFrame({"p": range(people)}).join(pl.DataFrame({"v": range(4)}), how="cross"))
    dialect = _SqlEngine(table)._dialect
    for person, says in [
        ([table.p], [table.v]),
        ([table.p.cast("string")], [table.v, table.v % 2]),
        ([table.p], [table.p * 0 + 3, table.v + 2**40]),
        ([table.p, table.p * 0 + 3], [table.v + 2**40]),
        ([table.p * 0 + 3, table.p.cast("string")], [table.v]),
    ]:
        place = ibis.row_number().over(group_by=table.p, order_by=dialect.order(person, says, str(2**62 + 12345)))
        statement = dialects.Select.of(engine.reader, table.select("p", "v", place=dialects.cast(place, "int64")))
        found = dialect.fetch(engine.reader, statement)
        places = np.empty((people, 4), np.int64)
        places[found["p"], found["v"]] = found["place"]
        orders = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
        seen = np.bincount([orders[tuple(own)] for own in places.tolist()], minlength=24)
        assert fits(seen, np.full(24, 1 / 24))
        assert not fits(seen, np.linspace(0.8, 1.2, 24) / 24)
