"""Tables of other packages: what is public is said before the charge, by name; only columns that are read matter."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import sys
import traceback

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import parquet

import dp_polars as dpp
from tests.helpers.needs import need

MANY = 10_000  # a loss at which there is next to no noise
INTERVAL = pa.month_day_nano_interval()
WIDE = pa.decimal256(40, 2)

TAKEN = {
    "half floats": pa.array([1.0, None], pa.float16()),
    "large text": pa.array(["a", None], pa.large_string()),
    "views of text": pa.array(["a", None], pa.string_view()),
    "views of bytes": pa.array([b"a", None], pa.binary_view()),
    "bytes of one size": pa.array([b"ab", None], pa.binary(2)),
    "decimals": pa.array([decimal.Decimal(1), None], pa.decimal128(15, 2)),
    "lists of one size": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "durations": pa.array([1, None], pa.duration("s")),
    "times": pa.array([1, None], pa.time32("s")),
    "seconds": pa.array([1, None], pa.timestamp("s")),
    "an offset": pa.array([1, None], pa.timestamp("us", "+02:00")),
    "milliseconds of days": pa.array([dt.date(2020, 1, 1), None], pa.date64()),
    "a dictionary of numbers": pa.array([1, None]).dictionary_encode(),
    "a dictionary of dates": pa.array([dt.date(2020, 1, 1), None]).dictionary_encode(),
    "structs": pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())])),
}
UNTAKEN = {
    "intervals": pa.array([None, (1, 2, 3)], INTERVAL),
    "decimals of 256 bits": pa.array([decimal.Decimal(1), None], WIDE),
    "decimals of 256 bits with few digits": pa.array([decimal.Decimal(1), None], pa.decimal256(10, 2)),
    "decimals of negative scale": pa.nulls(2, pa.decimal128(15, -2)),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["a", "b"])),
    "views of lists": pa.array([[1, 2], None], pa.list_view(pa.int32())),
    "a zone that nobody knows": pa.array([1, None], pa.timestamp("us", "Nowhere/City")),
    "a dictionary of intervals": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([(1, 2, 3)], INTERVAL)),
    "a dictionary of wide decimals": pa.DictionaryArray.from_arrays(
        pa.array([0, 0]), pa.array([decimal.Decimal(1)], WIDE)
    ),
    "lists of intervals": pa.array([[(1, 2, 3)], None], pa.list_(INTERVAL)),
    "structs of wide decimals": pa.array([{"a": decimal.Decimal(1)}, None], pa.struct([("a", WIDE)])),
    "maps to intervals": pa.nulls(2, pa.map_(pa.string(), INTERVAL)),
    "unions": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    "unions, dense": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "what nobody knows": pa.ExtensionArray.from_storage(
        pa.opaque(pa.binary(), "bignum", "DuckDB"), pa.array([b"1", None], pa.binary())
    ),
}
WAYS = {
    "table": lambda table: table,
    "batch": lambda table: table.to_batches()[0],
    "reader": lambda table: table.to_reader(),
    "dataset": pa.dataset.dataset,
    "stream": lambda table: Stream(table),
    "stream with a schema": lambda table: StreamOfSchema(table),
}


class Stream:
    """What gives its rows once, and tells nothing else."""

    def __init__(self, table):
        self.reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


class StreamOfSchema(Stream):
    def __arrow_c_schema__(self):
        return self.reader.schema.__arrow_c_schema__()


def asked(budget=None, **more):
    return dpp.protect("p", max_rows=1, budget=budget).agg(n=dpp.n_people(epsilon=MANY), **more)


def refused(query, rows, kind, message):
    """The error that costs nothing, and is an ordinary one."""
    assert query.budget is not None
    with pytest.raises(kind, match=message) as caught:
        query.release(rows)
    assert query.budget.spent == 0
    return caught.value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*TAKEN, *UNTAKEN])
def test_a_column_that_is_not_read_may_be_of_any_type(kind, way):
    table = pa.table({"x": {**TAKEN, **UNTAKEN}[kind], "p": [1, 2], "y": [0, 1]})
    query = asked(m=dpp.mode("y", [0, 1, 2], epsilon=MANY), k=dpp.sum("y", 0, 1, epsilon=MANY))
    assert query.release(WAYS[way](table)).select("n", "k").row(0) == (2, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", UNTAKEN)
def test_a_column_that_is_read_is_refused_by_name_before_the_charge(kind, way):
    table = pa.table({"x": UNTAKEN[kind], "p": [1, 2]})
    for more in ({"m": dpp.count("x", epsilon=1)}, {"m": dpp.mode("x", ["a"], epsilon=1)}):
        rows = WAYS[way](table)
        message = r"the column 'x' must be of a type that Polars takes, got [\s\S]*\n\nHint: "
        refused(asked(dpp.Budget(epsilon=2 * MANY), **more), rows, TypeError, message)


def test_a_unit_and_a_step_of_such_a_type_are_refused_too():
    table = pa.table({"p": UNTAKEN["intervals"], "x": [1, 2]})
    other = pa.table({"x": UNTAKEN["intervals"], "p": [1, 2]})
    budget = dpp.Budget(epsilon=2 * MANY)
    refused(asked(budget), table, TypeError, "the column 'p' must be")
    private = dpp.protect("p", max_rows=1, budget=budget)
    count = {"n": dpp.n_people(epsilon=1)}
    refused(private.filter(pl.col("x").is_not_null()).agg(**count), other, TypeError, "the column 'x' must be")
    if pl.__version__.startswith("1."):  # which reads a column that is made anew
        return
    new = private.with_columns(x=pl.lit(3)).agg(n=dpp.sum("x", 0, 3, epsilon=MANY))
    assert new.release(other).item() == 6


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_counted_where_no_column_is_read(way):
    for name in ("x", "p"):
        table = pa.table({name: UNTAKEN["intervals"]} if name == "x" else {"p": [1, 2]})
        query = dpp.protect(None).agg(n=dpp.len(epsilon=MANY))
        if way != "dataset" or name == "p":
            assert query.release(WAYS[way](table)).item() == 2


@pytest.mark.parametrize("way", ["table", "batch", "reader", "dataset"])
def test_names(way):
    budget, rows = dpp.Budget(epsilon=2 * MANY), [pa.array([1, 2])] * 3
    repeated = pa.table(rows, names=["p", "x", "x"])
    if way != "dataset":  # pyarrow itself refuses that
        refused(asked(budget), WAYS[way](repeated), ValueError, r"several of \['x'\]")
    with_nul = pa.table(rows, names=["p", "x", "x\0y"])
    of_nul = asked(budget, m=dpp.median("x\0y", [1, 2], epsilon=1))
    refused(of_nul, WAYS[way](with_nul), ValueError, r"must not hold the character NUL, got 'x\\x00y'")
    if way != "dataset":
        assert asked(m=dpp.sum("x", 0, 2, epsilon=MANY)).release(WAYS[way](with_nul)).row(0) == (2, 3)


def test_a_name_with_nul_is_refused_in_frames_of_polars_and_in_answers():
    frame, budget = pl.DataFrame({"p": [1, 2], "x\0y": [1, 2]}), dpp.Budget(epsilon=2 * MANY)
    private = frame.dp.protect("p", max_rows=1, budget=budget)
    with pytest.raises(ValueError, match="must not hold the character NUL"):
        private.agg(dpp.median("x\0y", [1, 2], epsilon=1)).release()
    for wrong in (
        lambda: private.agg(**{"n\0": dpp.n_people(epsilon=1)}),
        lambda: private.agg(dpp.n_people(epsilon=1).alias("n\0")),
        lambda: private.group_by({"x\0y": [1]}),
        lambda: private.group_by(pl.DataFrame({"x\0y": [1]})),
        lambda: private.keys("x\0y", epsilon=1, delta=1e-6),
    ):
        with pytest.raises(ValueError, match="must not hold the character NUL"):
            wrong()
    assert budget.spent == 0
    assert asked().release(frame).item() == 2


def test_a_stream_that_is_refused_is_closed_at_once():
    table = pa.table({"p": [1, 2]})
    closed = []

    class Closing(Stream):
        def __arrow_c_stream__(self, requested_schema=None):
            def batches():
                try:
                    yield from table.to_batches()
                finally:
                    closed.append(True)

            reader = pa.RecordBatchReader.from_batches(table.schema, batches())
            reader.read_next_batch()
            return reader.__arrow_c_stream__(requested_schema)

    rows = Closing(table)
    with pytest.raises(dpp.BudgetExceededError) as caught:
        asked(dpp.Budget(epsilon=1)).release(rows)
    assert caught.value.__traceback__ is not None
    assert closed == [True]


# --- Files ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_a_parquet_file_with_an_interval_is_said_to_be_one(tmp_path):
    duckdb = need("duckdb")
    path = tmp_path / "stay.parquet"
    duckdb.connect().execute(f"COPY (SELECT i AS p, INTERVAL (i) DAY AS stay FROM range(5) r(i)) TO '{path}'")
    with pytest.raises(ValueError, match=r"'stay' in this one[\s\S]*pyarrow\.dataset\.dataset") as caught:
        pl.scan_parquet(path).dp.protect("p")
    assert "ndjson" not in str(caught.value)
    assert asked().release(pa.dataset.dataset(path)).item() == 5


def test_wide_decimals_of_a_parquet_file_are_read_by_nobody(tmp_path):
    path, budget = tmp_path / "wide.parquet", dpp.Budget(epsilon=2 * MANY)
    parquet.write_table(pa.table({"p": [1, 2], "x": UNTAKEN["decimals of 256 bits"]}), path)
    rows = pa.dataset.dataset(path)
    assert asked().release(rows).item() == 2
    refused(asked(budget, m=dpp.count("x", epsilon=1)), rows, TypeError, "the column 'x' must be")
    if not pl.__version__.startswith("1."):  # which finds the columns of no such file
        private = pl.scan_parquet(path).dp.protect("p", max_rows=1, budget=budget)
        query = private.agg(m=dpp.count("x", epsilon=1))
        with pytest.raises(TypeError, match="the column 'x' must be"):
            query.release()
        assert budget.spent == 0


# --- pandas -----------------------------------------------------------------------------------------------------------


def test_pandas_frames_with_what_nobody_reads():
    pandas = need("pandas")
    one = pandas.DataFrame({"p": [1, 2], "x": [3, 4]})
    budget = dpp.Budget(epsilon=2 * MANY)
    refused(asked(budget), pandas.concat([one, one[["x"]]], axis=1), ValueError, r"several of \['x'\]")
    for odd in (
        {"note": [1, "a"]},
        {"shape": [object(), object()]},
        {"z": [1j, 2j]},
        {"sparse": pandas.arrays.SparseArray([0, 1])},
        {"kinds": pandas.Categorical([1, "b"])},
        {"when": pandas.period_range("2020", periods=2, freq="D")},
    ):
        rows = one.assign(**odd)
        assert asked(s=dpp.sum("x", 0, 4, epsilon=MANY)).release(rows).row(0) == (2, 7)
        (name,) = odd
        if rows[name].dtype != object:
            message = "column" if name == "when" else f"the column '{name}' must be of a type"
            query = asked(dpp.Budget(epsilon=2 * MANY), m=dpp.mode(name, ["a"], epsilon=1))
            refused(query, rows, TypeError, message)


def test_what_values_of_pandas_decide_is_charged():
    pandas = need("pandas")
    for note in ([1, "a"], [object(), object()], [10**30, 1]):
        budget = dpp.Budget(epsilon=2 * MANY)
        rows = pandas.DataFrame({"p": [1, 2], "note": pandas.Series(note, dtype=object)})
        with pytest.raises(dpp.ReleaseError):
            asked(budget, m=dpp.count("note", epsilon=1)).release(rows)
        assert budget.spent == MANY + 1


def test_an_index_of_pandas_is_a_column():
    pandas = need("pandas")
    rows = pandas.DataFrame({"x": ["a", None]}, index=pandas.Index([5, 6], name="p"))
    assert asked(m=dpp.count("x", epsilon=MANY)).release(rows).row(0) == (2, 1)
    several = rows.assign(q=1).set_index("q", append=True)
    assert asked(m=dpp.sum("q", 0, 1, epsilon=MANY)).release(several).row(0) == (2, 2)
    unnamed = pandas.DataFrame({"p": [1, 2]}, index=[7, 8])
    assert asked(m=dpp.count("__index_level_0__", epsilon=MANY)).release(unnamed).row(0) == (2, 2)


# --- DuckDB -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def con():
    connection = need("duckdb").connect()
    connection.execute("CREATE TABLE visits AS SELECT i AS p, i % 3 AS x FROM range(5) r(i)")
    yield connection
    connection.close()


OF_DUCKDB = {
    "INTERVAL": "INTERVAL 1 DAY",
    "INTERVAL[]": "[INTERVAL 1 DAY]",
    "STRUCT(a INTERVAL)": "{'a': INTERVAL 1 DAY}",
    "UNION(a INTEGER)": "union_value(a := 1)",
    "BIGNUM": "1::BIGNUM",
    "VARIANT": "'a'::VARIANT",
}
TAKEN_OF_DUCKDB = {
    "HUGEINT": "1::HUGEINT",
    "UHUGEINT": "1::UHUGEINT",
    "BIT": "'101'::BIT",
    "UUID": "uuid()",
    "ENUM": "'a'::ENUM('a', 'b')",
    "MAP": "MAP {'a': 1}",
    "TIMETZ": "'12:00'::TIMETZ",
    "ARRAY": "[1, 2]::INTEGER[2]",
    "GEOMETRY": "NULL::GEOMETRY",
    "BLOB": "'a'::BLOB",
    "TIMESTAMPTZ": "'2020-01-01'::TIMESTAMPTZ",
    "TIMESTAMP_S": "'2020-01-01'::TIMESTAMP_S",
}


@pytest.mark.parametrize("kind", [*OF_DUCKDB, *TAKEN_OF_DUCKDB])
def test_types_of_duckdb(con, kind):
    duckdb = need("duckdb")
    try:
        rows = con.sql(f"SELECT {({**OF_DUCKDB, **TAKEN_OF_DUCKDB})[kind]} AS odd, p, x FROM visits")
    except duckdb.Error:
        pytest.skip(f"this version of DuckDB has no {kind}")
    assert asked(s=dpp.sum("x", 0, 2, epsilon=MANY)).release(rows).row(0) == (5, 4)
    query = asked(dpp.Budget(epsilon=2 * MANY), m=dpp.count("odd", epsilon=MANY))
    if kind in OF_DUCKDB:
        refused(query, rows, TypeError, r"the column 'odd' must be of a type that Polars takes, got [\s\S]*Hint: ")
    elif kind != "GEOMETRY":
        assert query.release(rows).row(0) == (5, 5)


def refusals(con):
    """Releases that are refused before the charge, and what they raise."""
    sql = "SELECT p, x FROM visits"
    few = dpp.Budget(epsilon=1)
    of_another = dpp.protect("q", max_rows=1).agg(n=dpp.n_people(epsilon=1))
    wrong = asked(m=dpp.mode("x", ["a"], epsilon=1))
    return {
        "budget": lambda: asked(few).release(con.sql(sql)),
        "budget, of a table": lambda: asked(few).release(con.table("visits")),
        "budget, of a reader": lambda: asked(few).release(con.sql(sql).to_arrow_reader()),
        "unit": lambda: of_another.release(con.sql(sql)),
        "candidates": lambda: wrong.release(con.sql(sql)),
        "engine": lambda: asked().release(con.sql(sql), engine="spark"),
        "gpu": lambda: asked().release(con.sql(sql), engine="gpu"),
        "a parquet file": lambda: asked(few).sink_parquet("/tmp/never.parquet", con.sql(sql)),
        "a publication": lambda: dpp.publication(a=asked(few), b=asked(few)).release(
            {"a": con.sql(sql), "b": con.sql("SELECT p, x AS y FROM visits")}
        ),
        "a cube": lambda: (
            dpp.protect("p", max_groups=1, budget=few)
            .cube({"x": [0, 1]}, dpp.n_people(epsilon=2))
            .release(con.sql(sql))
        ),
    }


REFUSALS = ["budget", "budget, of a table", "budget, of a reader", "unit", "candidates", "engine", "gpu"]
REFUSALS += ["a parquet file", "a publication", "a cube"]


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_release_leaves_the_connection_as_it_was(con, case, monkeypatch):
    found = refusals(con)
    assert [*found] == REFUSALS
    with pytest.raises((ValueError, TypeError, dpp.BudgetExceededError)) as caught:
        found[case]()
    monkeypatch.setattr(sys, "last_exc", caught.value, raising=False)  # as of a notebook
    monkeypatch.setattr(sys, "last_traceback", caught.value.__traceback__, raising=False)
    gc.disable()
    try:
        if case == "budget, of a reader":  # which is the user's own, and may be read still
            return
        assert con.execute("SELECT count(*) FROM visits").fetchall() == [(5,)]
        assert con.sql("SELECT sum(x) FROM visits").fetchall() == [(4,)]
    finally:
        gc.enable()
    assert traceback.format_exception(caught.value)


def test_no_row_is_read_before_the_charge(con):
    seen = []

    def noted(value):
        seen.append(value)
        return value

    con.create_function("noted", noted, ["BIGINT"], "BIGINT")
    rows = con.sql(
        "WITH a AS MATERIALIZED (SELECT p, noted(x) AS x FROM visits) SELECT a.* FROM a JOIN a AS b USING (p)"
    )
    seen.clear()
    with pytest.raises(dpp.BudgetExceededError):
        asked(dpp.Budget(epsilon=1), m=dpp.sum("x", 0, 2, epsilon=1)).release(rows)
    assert seen == []
    assert asked(m=dpp.sum("x", 0, 2, epsilon=MANY)).release(rows).row(0) == (5, 4)
    assert seen


def test_a_connection_with_a_result_of_its_own_costs_nothing(con):
    """DuckDB 2 asks nothing else of it; before, such a result is gone."""
    rows = con.sql("SELECT p, x FROM visits")
    budget = dpp.Budget(epsilon=MANY)
    con.execute("SELECT * FROM range(1000000)")
    if need("duckdb").__version__.startswith("1."):
        assert asked(budget).release(rows).item() == 5
    else:
        refused(asked(budget), rows, ValueError, r"DuckDB could not find them out[\s\S]*cursor")


def test_a_release_that_fails_leaves_the_connection_as_it_was(con):
    rows = con.sql("SELECT p, CASE WHEN p = 4 THEN error('Ann Smith') ELSE 1 END::BIGINT AS x FROM visits")
    with pytest.raises(dpp.ReleaseError) as caught:
        asked(m=dpp.sum("x", 0, 2, epsilon=1)).release(rows)
    assert "Ann" not in "".join(traceback.format_exception(caught.value))
    assert con.execute("SELECT count(*) FROM visits").fetchall() == [(5,)]


def test_names_of_duckdb(con):
    budget = dpp.Budget(epsilon=2 * MANY)
    refused(asked(budget), con.sql("SELECT p, x, x FROM visits"), ValueError, r"several of \['x'\]")
    rows = con.sql('SELECT p, x AS "a""b", x + 1 AS "A""B", \'t\' AS "x y" FROM visits')
    query = asked(s=dpp.sum('A"B', 0, 3, epsilon=MANY), t=dpp.count("x y", epsilon=MANY))
    assert query.release(rows).row(0) == (5, 9, 5)


# --- Given to `protect` -----------------------------------------------------------------------------------------------


def test_a_frame_in_the_place_of_the_unit_is_said_to_come_before_it(con):
    pandas, frame = need("pandas"), pl.DataFrame({"patient": ["Ann Smith"]})
    for rows, words in (
        (frame.to_pandas() if sys.modules.get("pyarrow") else pandas.DataFrame(), r"pl\.from_pandas\(…\)\.dp\.protect"),
        (frame, r"frame\.dp\.protect\('patient', …\)"),
        (frame.lazy(), r"frame\.dp\.protect\('patient', …\)"),
        (frame.to_arrow(), r"pl\.from_arrow\(…\)\.dp\.protect\('patient', …\)[\s\S]*release\(…\)"),
        (con.sql("SELECT 1 AS patient"), r"….pl\(\)\.dp\.protect\('patient', …\)[\s\S]*release\(…\)"),
    ):
        for mistake in (
            lambda rows=rows: dpp.protect(rows, "patient"),
            lambda rows=rows: dpp.protect("patient", rows),
            lambda rows=rows: dpp.protect(rows, privacy_unit="patient"),
        ):
            with pytest.raises(TypeError, match=words) as caught:
                mistake()
            assert "Ann" not in str(caught.value)
