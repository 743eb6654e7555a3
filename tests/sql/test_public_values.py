"""Public keys and candidates reach a database in full, and none of them is another one there."""

import datetime as dt

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dp_polars as dpp
from tests.sql.tools import MARKS, NUMBERS, need_ibis

need_ibis()

import ibis  # noqa: E402

from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS

HUGE = 10**6


def of_duckdb(rows):
    con = ibis.duckdb.connect()
    con.raw_sql(f"CREATE TABLE visits AS {rows}")
    return con.table("visits")


def of_postgres(owner, reader, rows):
    name = f"rows{next(NUMBERS)}"
    owner.raw_sql(f"CREATE VIEW {name} AS {rows}")
    return reader.table(name)


def counted(table, keys):
    query = dpp.protect(None).group_by(keys).agg(n=dpp.len(epsilon=HUGE))
    return dpp.sql.release(query, table)["n"].to_list()


def at(microsecond):
    return dt.datetime(2020, 1, 1, 0, 0, 1, microsecond)


COARSE = {"timestamp(0)": "timestamp(0)", "timestamp(3)": "timestamp(3)", "a cast in Ibis": "timestamp"}


@pytest.mark.parametrize("case", COARSE)
def test_times_between_two_of_a_coarse_column_are_no_keys(owner, reader, case):
    """Rounded to the column's digits, a hundred keys in 400 µs would be one, in which everyone counts."""
    table = of_postgres(
        *(owner, reader),
        f"SELECT n AS p, CAST('2020-01-01 00:00:01' AS {COARSE[case]}) AS at FROM generate_series(1, 7) AS s(n)",
    )
    if case == "a cast in Ibis":
        near = table["at"].between(ibis.timestamp("1900-01-01"), ibis.timestamp("2100-01-01"))
        table = table.mutate(at=ibis.ifelse(near, table["at"], None).cast("timestamp(0)"))
    times = [at(4 * i) for i in range(100)]
    assert counted(table, {"at": times}) == [7] + 99 * [0]
    asked = {"counts": dpp.value_counts("at", times, epsilon=HUGE), "top": dpp.top_k("at", 2, times[:2], epsilon=HUGE)}
    got = dpp.sql.release(dpp.protect(None).agg(**asked), table)
    assert [one["count"] for one in got["counts"][0]] == [7] + 99 * [0]
    assert got["top"][0].to_list() == times[:2]
    # A quantile takes the nearest one.
    asked = dpp.median("at", [at(0), at(4000), at(8000)], epsilon=HUGE)
    assert dpp.sql.release(dpp.protect(None).agg(asked), table).item() == at(0)


def test_times_of_the_day_between_two_of_a_coarse_column_are_no_keys(owner, reader):
    table = of_postgres(owner, reader, "SELECT CAST('12:00:01' AS time(0)) AS at FROM generate_series(1, 7) AS s(n)")
    times = [dt.time(12, 0, 1), dt.time(12, 0, 1, 4000), dt.time(12, 0, 1, 400_000)]
    assert counted(table, {"at": times}) == [7, 0, 0]


def test_constants_that_the_engine_takes_for_one_are_counted_once():
    engine = _SqlEngine(of_duckdb("SELECT 'a' AS k FROM range(7)"))
    assert engine.distinct([pl.DataFrame({"k": ["b", "a", "c", "a"]})]) == [3]


def test_public_times_are_told_to_the_microsecond():
    table = of_duckdb(
        "SELECT TIMESTAMP '2020-01-01 00:00:01.000001' AS at FROM range(3) "
        "UNION ALL SELECT TIMESTAMP '2020-01-01 00:00:01.000002' FROM range(5)"
    )
    assert counted(table, {"at": [at(1), at(2)]}) == [3, 5]


@pytest.mark.parametrize("first", range(0xE000, 0xE004))
def test_public_texts_with_characters_for_private_use(first):
    keys = [f"a{chr(first)}b", f"a{chr(first + 1)}b", "a"]
    rows = " UNION ALL ".join(f"SELECT '{key}' AS k FROM range({n})" for n, key in enumerate(keys, 1))
    assert counted(of_duckdb(rows), {"k": keys}) == [1, 2, 3]


@pytest.mark.parametrize("given", ["Series", "Arrow"])
def test_candidates_that_are_written_to_later_stay_as_they_were(engine, given):
    """As ones, five candidates would count each row five times."""
    table = engine.table(pl.DataFrame({"Int64": [1] * 7}))
    numbers = np.arange(1, 6)
    candidates = pl.Series(numbers) if given == "Series" else pa.array(numbers)
    query = dpp.protect(None).agg(n=dpp.value_counts("Int64", candidates, epsilon=HUGE))
    numbers[:] = 1
    released = dpp.sql.release(query, table)
    assert released.explode("n").unnest("n").rows() == [(1, 7), (2, 0), (3, 0), (4, 0), (5, 0)]


@pytest.mark.parametrize("weight", ["'NaN'::DOUBLE", "NULL::DOUBLE"])
@pytest.mark.parametrize("unit", [None, "p"])
def test_a_weight_that_is_none_is_zero(weight, unit):
    table = of_duckdb(
        f"SELECT range AS p, 'a' AS x, {weight} AS w FROM range(9) "
        "UNION ALL SELECT range, 'b', 1.0::DOUBLE FROM range(2)"
    )
    asked = dpp.mode("x", ["a", "b"], counts=dpp.weights("w", max_weight=2, step=0.5), epsilon=HUGE)
    assert dpp.sql.release(dpp.protect(unit).agg(asked), table).item() == "b"


@pytest.mark.parametrize("people", [1, 30])
def test_bytes_that_are_no_text_are_ignored(people):
    """DuckDB takes over Arrow's texts unchecked; that a person has such a one must not show."""
    texts = b"ab" * 40 + b"\xff\xfe" * people + b"cd" * 20
    ends = np.arange(0, len(texts) + 1, 2, np.int32)
    told = pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(texts))
    visits = pa.table({"p": pa.array(range(len(told))), "k": told})
    con = ibis.duckdb.connect()
    con.con.register("visits", visits)
    table = con.table("visits")
    found = dpp.sql.release(dpp.protect("p", max_groups=1).keys("k", epsilon=20, delta=1e-3), table)
    assert found["k"].to_list() == ["ab", "cd"]
    query = dpp.protect("p", max_groups=1).group_by({"k": ["ab", "cd"]}).agg(n=dpp.n_people(epsilon=HUGE))
    assert dpp.sql.release(query, table)["n"].to_list() == [40, 20]
    assert dpp.sql.release(dpp.protect("p").agg(dpp.mode("k", ["ab", "cd"], epsilon=HUGE)), table).item() == "ab"
    assert dpp.sql.release(dpp.protect("k").agg(n=dpp.n_people(epsilon=HUGE)), table).item() == 3


@pytest.mark.parametrize("many", [8, 9])
def test_each_of_few_texts_and_of_many_is_found_as_it_is(engine, many):
    """Few are compared with each row, and many are joined with all of them."""
    texts = ["", "a", "A", "a ", "á", "a\u0301", "it's", 'a "b" \\ $1 {} %s', "\ue000"][-many:]
    frame = pl.DataFrame({"g": [text for i, text in enumerate(texts) for _ in range(i + 1)] + [None, "b", "á "]})
    assert counted(engine.table(frame), {"g": texts}) == list(range(1, many + 1))
