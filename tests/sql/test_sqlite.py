"""SQLite's own seams: values of another type than their column's, collations, overflow, and what its files may hold."""

from __future__ import annotations

import itertools
import random
import sqlite3
import struct
from collections import Counter
from contextlib import closing

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._release.request import only_counted
from tests.helpers.runs import histograms_by
from tests.helpers.tallies import as_frame
from tests.sql.tools import MARKS, histograms_of, need_ibis, to_sqlite

need_ibis()

import ibis  # noqa: E402

from dp_polars._engines.sql import sqlite  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS
MANY = 10**6
WIDE = {"max_groups": MANY, "max_rows_per_group": MANY}


@pytest.fixture
def con():
    made = ibis.sqlite.connect()
    yield made
    made.disconnect()


def counts(table, query):
    """The histograms of a query."""
    sql = _SqlEngine(table, only_counted(query.request))
    return [Counter({row[:2]: row[2] for row in as_frame(each).rows()}) for each in histograms_by(sql, query)]


def keys(table, *columns, unit="p"):
    """Key -> people."""
    sql = _SqlEngine(table)
    query = dpp.protect(unit, **({} if unit is None else {"max_groups": MANY})).keys(*columns, epsilon=1, delta=1e-3)
    found, people = sql.prepare_people_by_key(query.request.bind(sql))()
    return dict(zip(found.rows(), people.tolist(), strict=True))


# --- Values of another type -----------------------------------------------------------------------------------------

COLUMNS = {"p": "INTEGER", "name": "TEXT", "k": "TEXT", "year": "SMALLINT", "x": "REAL", "n": "INTEGER", "b": "BOOLEAN"}
PLAIN = [
    (1, "ann", "a", 2020, 0.5, 1, True),
    (1, "ann", "b", 2021, 1.5, 2, False),
    (2, "bob", "a", 2020, 2.5, 3, True),
    (3, "cyd", "A", 2021, None, 4, None),
    (4, "dee", "b", 2020, 1.5, 9, False),
]
# As SQL has it; INTEGER and REAL columns keep what is no number, and BOOLEAN is any number.
ODD = ["'odd'", "''", "'1'", "' 1 '", "'1.0'", "'0x1'", "'1e999'", "'nan'", "'true'", "x'61'", "x''", "x'00'", "1", "0",
       "2", "-1", "1.0", "0.5", "-0.0", "1e18", "1e19", "9223372036854775807", "-9223372036854775808",
       "9223372036854775808", "1e999", "-1e999", "5e-324", "NULL", "CAST(x'ff' AS TEXT)", "CAST(x'6100' AS TEXT)",
       "CAST(x'eda080' AS TEXT)", "zeroblob(10000)", "printf('%.*c', 10000, 'a')"]  # fmt: skip


def made(con):
    con.raw_sql(f"CREATE TABLE visits ({', '.join(f'{column} {kind}' for column, kind in COLUMNS.items())})")
    con.con.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * len(COLUMNS))})", PLAIN)
    con.con.commit()
    return con.table("visits")


def questions():
    """Every kind, by people of integers, of text and of none."""
    of_any = {
        "m": dpp.median("x", dpp.grid(0, 3, step=0.1), epsilon=1),
        "l": dpp.median("x", [0, 0.3, 2.5], epsilon=1),
        "i": dpp.median("n", range(0, 10, 3), epsilon=1),
        "s": dpp.sum("x", 0, 3, step=0.25, epsilon=1),
        "t": dpp.mean("n", -4, 8, step=2, epsilon=1),
        "o": dpp.mode("n", [1, 2, 3], epsilon=1),
        "q": dpp.mode("b", [True, False], epsilon=1),
        "e": dpp.mode("name", ["ann", "eve", "odd", "1"], epsilon=1),
        "w": dpp.mode("name", ["ann", "eve", "odd"], weights="n", max_weight=8, epsilon=1),
        "v": dpp.value_counts("k", ["a", "A", ""], epsilon=1),
        "c": dpp.count("x", epsilon=1),
        "z": dpp.len(epsilon=1),
    }
    of_groups = {name: asked for name, asked in of_any.items() if name != "v"}
    for unit in ("p", "name", None):
        few, many = ({} for _ in range(2)) if unit is None else ({"max_groups": 1, "max_rows_per_group": 1}, WIDE)
        for bounds in (few, many) if unit else (many,):
            private = dpp.protect(unit, **bounds)
            yield private.agg(**of_any)
            yield private.group_by({"k": ["a", "b", "1", "odd"]}).agg(**of_groups)
            yield private.group_by({"year": [2020, 1], "b": [True, False]}).agg(**of_any)
        if unit is not None:
            yield dpp.protect(unit).rows_per_person(0.5, range(9), epsilon=1)


class Prepared:
    """A question whose statements, and so whose secrets, stay: the others' rows that are chosen are the same again."""

    def __init__(self, table, query):
        self.sql = _SqlEngine(table, only_counted(query.request))
        self.work = query.request.bind(self.sql)
        self.run = self.sql.prepare_histograms(self.work)

    def counts(self):
        return [Counter({row[:2]: row[2] for row in as_frame(each).rows()}) for each in self.run()]

    def largest(self):
        return [1 if tally.weighing is None else max(tally.weighing.largest, 1) for tally in self.work.tallies]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_of_another_type_changes_its_own_cell_alone(con, column):
    """Also where its row is the first: nothing raises, and what the others count for stays what it was."""
    table = made(con)
    prepared = [Prepared(table, query) for query in questions()]
    before = [each.counts() for each in prepared]
    place, seen = list(COLUMNS).index(column), 0
    for value, rowid in zip(ODD, itertools.cycle((-5, 99)), strict=False):
        row = ["7", "'eve'", "'a'", "2020", "1.5", "2", "1"]
        row[place] = value
        con.raw_sql(f"INSERT INTO visits (rowid, {', '.join(COLUMNS)}) VALUES ({rowid}, {', '.join(row)})")
        # Someone who is there already may have another of their rows kept, or one more.
        cells = 2 if column == "p" and value.strip("' ") in ("1", "1.0", "2") else 1
        for each, old in zip(prepared, before, strict=True):
            for one, other, largest in zip(old, each.counts(), each.largest(), strict=True):
                changed = {cell: other[cell] - one[cell] for cell in one | other if other[cell] != one[cell]}
                assert len(changed) <= cells, (value, changed)
                assert all(abs(change) <= largest for change in changed.values()), (value, changed)
                seen += len(changed)
        con.raw_sql(f"DELETE FROM visits WHERE rowid = {rowid}")
    assert seen > 100
    assert [each.counts() for each in prepared] == before


@pytest.mark.parametrize("column", ["p", "k", "year", "b", "n"])
def test_a_value_of_another_type_is_at_most_one_key_more(con, column):
    before = {names: keys(made_once(con), *names) for names in (("k",), ("year", "b", "n"), ("name",))}
    place = list(COLUMNS).index(column)
    for value in ODD:
        row = ["7", "'eve'", "'a'", "2020", "1.5", "2", "1"]
        row[place] = value
        con.raw_sql(f"INSERT INTO visits (rowid, {', '.join(COLUMNS)}) VALUES (-5, {', '.join(row)})")
        for names, old in before.items():
            new = keys(con.table("visits"), *names)
            changed = {key: new.get(key, 0) - old.get(key, 0) for key in {*old, *new}}
            assert sorted(changed.values())[:-1] == [0] * (len(changed) - 1), (value, names)
            assert max(changed.values()) in (0, 1)
        con.raw_sql("DELETE FROM visits WHERE rowid = -5")


def made_once(con):
    return con.table("visits") if "visits" in con.list_tables() else made(con)


def test_what_counts_of_a_column_is_of_its_type(con):
    """Or a number that is equal to one: an integer of Ibis may be a float of SQLite's."""
    con.raw_sql("CREATE TABLE t (i INTEGER, s TEXT, f REAL, b BOOLEAN, d BLOB)")
    for value in ODD:
        con.raw_sql(f"INSERT INTO t VALUES ({', '.join([value] * 5)})")
    table = _SqlEngine(con.table("t"))._table
    found = {
        name: [row[0] for row in con.con.execute(con.compile(table.select(name)))] for name in "if b".replace(" ", "")
    }
    kinds = {
        name: {row[0] for row in con.con.execute(con.compile(table.select(k=table[name].typeof())))} for name in "isfbd"
    }
    assert kinds == {
        "i": {"integer", "null"}, "s": {"text", "null"}, "f": {"real", "null"}, "b": {"integer", "null"},
        "d": {"blob", "null"},
    }  # fmt: skip
    whole = Counter(value for value in found["i"] if value is not None)
    # Texts that look like integers are integers in such a column: SQLite turns them when they are written.
    assert whole == {1: 5, 0: 2, 2: 1, -1: 1, 10**18: 1, 2**63 - 1: 1, -(2**63): 1}
    assert Counter(value for value in found["b"] if value is not None) == {1: 5, 0: 2}
    assert {float("inf"), -float("inf"), 0.5, 5e-324, 1e19, 2.0**63} <= set(found["f"])
    # MOD of SQLite gives floats, which Ibis takes for integers.
    con.raw_sql("CREATE TABLE u (x INTEGER)")
    con.raw_sql("INSERT INTO u VALUES (7), (10), (12)")
    rest = con.table("u").mutate(x=lambda t: t.x % 4)
    assert counts(rest, dpp.protect(None).agg(dpp.mode("x", range(4), epsilon=1))) == [
        {(0, 0): 1, (0, 2): 1, (0, 3): 1}
    ]


UNTYPED = {
    "a column": "CREATE TABLE odd (p INTEGER, x)",
    "a column that is not asked about": "CREATE TABLE odd (p INTEGER, x INTEGER, y)",
    "a view": "CREATE VIEW odd AS SELECT p, x || '' AS x FROM plain",
}


@pytest.mark.parametrize("case", UNTYPED)
def test_types_that_ibis_finds_in_the_first_row_are_refused(con, case):
    """With the same words whatever the first row holds: its person would decide what counts of all others."""
    budget, errors = dpp.Budget(epsilon=1), set()
    for value in ("1", "'a'", "0.5", "x'00'"):
        for kind, name in (("TABLE", "plain"), ("TABLE", "odd"), ("VIEW", "odd")):
            if con.con.execute(
                "SELECT 1 FROM sqlite_master WHERE (type, name) = (?, ?)", (kind.lower(), name)
            ).fetchone():
                con.raw_sql(f"DROP {kind} {name}")
        con.raw_sql("CREATE TABLE plain (p INTEGER, x TEXT)")
        con.raw_sql(f"INSERT INTO plain VALUES (1, {value})")
        con.raw_sql(UNTYPED[case])
        if "VIEW" not in UNTYPED[case]:
            con.raw_sql(f"INSERT INTO odd VALUES (1, {', '.join([value] * UNTYPED[case].count(','))})")
        elif con.con.execute("SELECT type FROM pragma_table_info('odd') WHERE name = 'x'").fetchone()[0]:
            pytest.skip("this SQLite knows types of what views compute")
        for table in (con.table("odd"), con.table("odd").select("p"), con.table("odd").filter(ibis._.p > 0).limit(3)):
            with pytest.raises(TypeError, match=r"must be declared with types[\s\S]*Hint: CREATE TABLE") as caught:
                dpp.sql.release(dpp.protect("p").agg(dpp.n_people(epsilon=1)), table, budget=budget)
            errors.add(str(caught.value))
    assert len(errors) == 1
    assert budget.spent == 0


def test_types_are_those_of_the_table_that_is_read(con, tmp_path):
    """One of another file, and a temporary one that hides one of the same name."""
    query, untyped = dpp.protect("p").agg(dpp.mode("x", ["a", "b"], epsilon=1)), "must be declared with types"
    with closing(sqlite3.connect(tmp_path / "other.db")) as raw:
        raw.execute("CREATE TABLE visits (p INTEGER, x TEXT)")
        raw.execute("CREATE TABLE odd (p INTEGER, x)")
        raw.execute("INSERT INTO odd VALUES (1, 'a')")
        raw.execute("INSERT INTO visits VALUES (1, 'a')")
        raw.commit()
    con.attach("other", tmp_path / "other.db")
    assert counts(con.table("visits", database="other"), query) == [{(0, 0): 1}]
    for typed, database in (("other", "other"), ("temp", None), ("main", None)):
        if database is None:
            for where in ("main", "temp"):
                con.raw_sql(f"DROP TABLE IF EXISTS {where}.odd")
                con.raw_sql(f"CREATE TABLE {where}.odd (p INTEGER, x {'TEXT' if where == typed else ''})")
                con.raw_sql(f"INSERT INTO {where}.odd VALUES (1, '{where[0]}'), (2, 'b')")
        if typed == "temp":
            assert counts(con.table("odd", database=database), query) == [{(0, 1): 1}]
        else:
            with pytest.raises(TypeError, match=untyped):
                dpp.sql.release(query, con.table("odd", database=database))


def test_sql_in_text_is_refused(con):
    made(con)
    for table in (
        con.sql("SELECT p, x || '' AS x FROM visits"),
        con.sql("SELECT p FROM visits", schema={"p": "int64"}),
        con.table("visits").alias("v").sql("SELECT p FROM v"),
    ):
        with pytest.raises(TypeError, match=r"table must not be made of SQL in text[\s\S]*Hint: con.table"):
            dpp.sql.release(dpp.protect("p").agg(dpp.n_people(epsilon=1)), table)


REFUSED = {
    "DATE": "sqlite's types boolean, float64, int64, string.*got date[\\s\\S]*cast it in Ibis first",
    "TIMESTAMP": "got timestamp[\\s\\S]*cast it in Ibis first",
    "TIME": "got time[\\s\\S]*cast it in Ibis first",
    "DECIMAL(10, 2)": "got decimal[\\s\\S]*cast it in Ibis first",
    "NUMERIC": "got decimal[\\s\\S]*Ibis first",
    "BLOB": "got binary",
    "JSON": "got json",
    "UUID": "got uuid",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_types_that_sqlite_has_not(con, kind):
    con.raw_sql(f"CREATE TABLE t (p INTEGER, x {kind})")
    con.raw_sql("INSERT INTO t VALUES (1, '2020-01-31'), (2, 'odd'), (2, x'00'), (3, NULL)")
    table, budget = con.table("t"), dpp.Budget(epsilon=1, delta=2e-3)
    for query in (
        dpp.protect("p").agg(dpp.value_counts("x", [dt_or_text(table)], epsilon=1)),
        dpp.protect("p").group_by({"x": [dt_or_text(table)]}).agg(dpp.n_people(epsilon=1)),
        dpp.protect("p", max_groups=1).keys("x", epsilon=1, delta=1e-3),
    ):
        with pytest.raises((TypeError, ValueError), match=REFUSED[kind]):
            dpp.sql.release(query, table, budget=budget)
    if kind != "BLOB":
        with pytest.raises(TypeError, match=r"the privacy unit 'x' must have one of sqlite's types binary, boolean"):
            dpp.sql.release(dpp.protect("x").agg(dpp.n_people(epsilon=1)), table, budget=budget)
    assert budget.spent == 0
    if kind in ("DATE", "TIMESTAMP"):  # the way out
        text = table.mutate(x=table.x.cast("string"))
        query = dpp.protect("p").agg(dpp.mode("x", ["2020-01-31", "odd"], epsilon=1))
        assert counts(text, query) == [{(0, 0): 1, (0, 1): 1}]
    assert counts(table, dpp.protect(None).agg(dpp.count("x", epsilon=1))) == [{(0, 0): 1 if kind == "BLOB" else 3}]


def dt_or_text(table):
    """A candidate of a type that Polars has."""
    import datetime as dt
    from decimal import Decimal

    kind = table.schema()["x"]
    if kind.is_date():
        return dt.date(2020, 1, 31)
    if kind.is_timestamp():
        return dt.datetime(2020, 1, 31)
    return dt.time(1) if kind.is_time() else Decimal("1.5") if kind.is_decimal() else "odd"


# --- Text -----------------------------------------------------------------------------------------------------------

TEXTS = ["a", "A", "a ", "a\0", "a\0b", "á", "", " ", "1", "01"]


@pytest.mark.parametrize("collation", ["BINARY", "NOCASE", "RTRIM"])
def test_no_collation_merges_people_values_or_keys(con, collation):
    con.raw_sql(f"CREATE TABLE t (p TEXT COLLATE {collation}, x TEXT COLLATE {collation}, k TEXT COLLATE {collation})")
    con.con.executemany("INSERT INTO t VALUES (?, ?, ?)", [(p, x, x) for p in TEXTS for x in TEXTS])
    con.con.commit()
    for column in ("p", "x", "k", "p, x", "k, p"):
        con.raw_sql(f"CREATE INDEX of_{column.replace(', ', '_')} ON t ({column})")
    con.raw_sql("ANALYZE")
    public = [text for text in TEXTS if "\0" not in text]
    everyone = Counter({(0, code): len(TEXTS) for code in range(len(public))})
    for bounds in ({"max_rows_per_group": MANY}, {"max_groups": 99, "max_rows_per_group": 99}):
        query = dpp.protect("p", **bounds)
        assert counts(con.table("t"), query.agg(dpp.mode("x", public, epsilon=1))) == [everyone]
        (found,) = counts(con.table("t"), query.group_by({"k": public}).agg(dpp.n_people(epsilon=1)))
        assert found == {(group, 0): len(TEXTS) for group in range(len(public))}
    assert counts(con.table("t"), dpp.protect("p", max_rows=1).agg(dpp.len(epsilon=1))) == [{(0, 0): len(TEXTS)}]
    assert keys(con.table("t"), "k") == {(text,): len(TEXTS) for text in TEXTS}


def test_texts_that_are_none_are_no_keys_but_people(con):
    """Bytes that are no UTF-8 raise where Python would read them."""
    con.raw_sql("CREATE TABLE t (p TEXT, k TEXT)")
    con.raw_sql(
        "INSERT INTO t VALUES (CAST(x'ff' AS TEXT), 'a'), (CAST(x'fe' AS TEXT), 'a'), ('p', CAST(x'80' AS TEXT))"
    )
    con.raw_sql("INSERT INTO t VALUES (CAST(x'efbfbd' AS TEXT), 'a')")  # what such bytes are often replaced by
    assert keys(con.table("t"), "k") == {("a",): 3}
    assert counts(con.table("t"), dpp.protect("p", max_rows=1).agg(dpp.len(epsilon=1))) == [{(0, 0): 4}]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_databases_of_another_encoding_are_refused(con, encoding):
    con.raw_sql(f"PRAGMA encoding = '{encoding}'")
    made(con)
    with pytest.raises(ValueError, match=f"the database must have the encoding 'UTF-8', got '{encoding}'"):
        dpp.sql.release(dpp.protect("p").agg(dpp.n_people(epsilon=1)), con.table("visits"))


# --- Numbers --------------------------------------------------------------------------------------------------------


def test_constant_floats_are_exact(con):
    """SQLite 3.40 reads 16 of these 3,000 as the float beside, where they stand as decimals."""
    rng = random.Random(1)
    floats = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(3000)]
    floats = [value for value in floats if value == value] + [0.1, 1e23, 5e-324, 2.0**1023, float("inf"), -float("inf")]
    made(con)
    _SqlEngine(con.table("visits"))
    for part in itertools.batched(floats, 500) if hasattr(itertools, "batched") else [floats[:500], floats[-500:]]:
        told = con.table("visits").limit(1).select(**{f"x{i}": sqlite._double(x) for i, x in enumerate(part)})
        assert con.con.execute(con.compile(told)).fetchone() == tuple(part)


def test_the_largest_integers_are_added_up(con):
    con.raw_sql("CREATE TABLE t (g INTEGER, n INTEGER)")
    rows = [(0, 2**63 - 1)] * 9 + [(1, -(2**63))] * 9 + [(2, 2**62), (2, -(2**62)), (2, 3)] + [(3, "odd"), (3, 2.5)]
    con.con.executemany("INSERT INTO t VALUES (?, ?)", rows)
    most = 2**29
    asked = dpp.sum("n", -most, most, epsilon=1)
    (found,) = counts(con.table("t"), dpp.protect(None).group_by({"g": range(4)}).agg(asked))
    assert found == {(0, 0): 9 * most, (1, 0): -9 * most, (2, 0): 3}


# --- Files, connections, names --------------------------------------------------------------------------------------


def test_column_names_that_differ_by_case_alone_are_refused(con):
    """SQLite would take the one for the other, and so perhaps a value for a person."""
    table = made(con)
    for odd in (table.mutate(P=table.n), table.mutate(P=table.n).select("P"), table.mutate(P=table.n).drop("p")):
        with pytest.raises(ValueError, match="column names must differ by more than case"):
            dpp.sql.release(dpp.protect("P").agg(dpp.n_people(epsilon=1)), odd)


@pytest.mark.parametrize("name", [*(f"t{i}" for i in range(30)), "value", "rank", "rows", 'odd "name"; --'])
def test_tables_may_be_called_what_a_statement_calls_its_own(con, name):
    frame = pl.DataFrame({"p": [1, 1, 2, 3], "g": [1, 2, 1, 1], "x": [1.0, 2.0, 3.0, 4.0]})
    table = to_sqlite(con, con, frame)
    quoted = '"' + name.replace('"', '""') + '"'
    con.raw_sql(f"ALTER TABLE {table.get_name()} RENAME TO {quoted}")
    query = (
        dpp.protect("p", max_groups=2, max_rows_per_group=2)
        .group_by({"g": [1, 2]})
        .agg(
            m=dpp.median("x", [1, 2, 3], epsilon=1), n=dpp.n_people(epsilon=1), s=dpp.sum("x", 0, 4, step=1, epsilon=1)
        )
    )
    for _, expected, got in histograms_of(frame, con.table(name), query):
        assert all(one.equals(other) for one, other in zip(expected, got, strict=True))


SETTINGS = ["PRAGMA reverse_unordered_selects = ON", "PRAGMA automatic_index = OFF", "PRAGMA full_column_names = ON",
            "PRAGMA short_column_names = OFF", "PRAGMA case_sensitive_like = OFF", "PRAGMA cache_size = 1",
            "PRAGMA temp_store = FILE", "PRAGMA query_only = ON", "PRAGMA recursive_triggers = OFF"]  # fmt: skip


def test_settings_and_factories_of_a_connection_make_no_difference(tmp_path):
    file = tmp_path / "clinic.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE t (p TEXT, k TEXT, x REAL)")
        raw.executemany("INSERT INTO t VALUES (?, ?, ?)", [(f"{i % 9}", "ab"[i % 2], i / 4) for i in range(60)])
        raw.commit()
    query = (
        dpp.protect("p", max_rows_per_group=MANY)
        .group_by({"k": ["a", "b"]})
        .agg(m=dpp.median("x", range(9), epsilon=1), s=dpp.sum("x", 0, 9, step=0.25, epsilon=1))
    )
    expected = None
    for setting in [None, *SETTINGS, "row_factory", "text_factory", "detect_types", "in a transaction", "read only"]:
        uri = f"{file.as_uri()}?mode={'ro' if setting == 'read only' else 'rw'}"
        types = sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES if setting == "detect_types" else 0
        with closing(sqlite3.connect(uri, uri=True, detect_types=types)) as raw:
            con = type(ibis.sqlite.connect()).from_connection(raw)
            table = con.table("t")
            if setting == "row_factory":
                raw.row_factory = lambda cursor, row: {"hidden": row}
            elif setting == "text_factory":
                raw.text_factory = bytes
            elif setting == "in a transaction":
                raw.execute("INSERT INTO t VALUES ('x', 'z', 0)")
            elif setting is not None and setting.startswith("PRAGMA"):
                raw.execute(setting)
            found = counts(table, query), keys(table, "k")
            if setting == "in a transaction":
                assert raw.in_transaction
                assert found[1].pop(("z",)) == 1
            expected = expected or found
            assert found == expected, setting


def test_a_statement_that_still_runs_is_no_hindrance(con):
    made(con)
    query = dpp.protect("p", max_rows=1).agg(dpp.mean("n", 0, 9, epsilon=1))
    dpp.sql.release(query, con.table("visits"))
    running = con.con.execute("SELECT dp_polars_place('1', p) FROM visits")
    running.fetchone()
    dpp.sql.release(query, con.table("visits"))
    assert len(running.fetchall()) == len(PLAIN) - 1


def test_tables_that_draw_at_random_are_refused(con):
    """SQLite 3.51 draws a column anew for the bounds and for what is counted: a person then had two groups for one."""
    table = made(con)
    for odd in (table.filter(ibis.random() < 0.5), table.mutate(g=(ibis.random() * 40).floor().cast("int64"))):
        with pytest.raises(TypeError, match="table must not draw at random"):
            dpp.sql.release(dpp.protect("p").agg(dpp.n_people(epsilon=1)), odd)


def test_public_lists_are_searched_by_an_index(con):
    """Without one each candidate would be compared with every row: 26 s instead of 0.3 s for 32,000 of both."""
    query = dpp.protect("p", max_groups=1).group_by({"k": ["a", "b"]}).agg(dpp.mode("n", range(5), epsilon=1))
    if sqlite3.sqlite_version_info >= (3, 41):
        pytest.skip("plans of 3.40")
    statement = Prepared(made(con), query).run.args[-1]
    plan = [step for *_, step in con.con.execute(f"EXPLAIN QUERY PLAN {statement.sql}")]
    assert sum("(p0=?)" in step for step in plan) == 2


def test_many_levels_of_steps_are_understood(con):
    """SQLite's parser knows a hundred levels of brackets; those of subqueries are none."""
    table = made(con)
    for i in range(25):
        table = table.filter(table.n > -i).mutate(n=table.n + i).distinct()
    query = dpp.protect("p", max_groups=1, max_rows_per_group=1).group_by({"k": ["a", "b"]})
    query = query.agg(dpp.mode("b", [True, False], weights="x", max_weight=3, step=0.25, counts="rows", epsilon=1))
    assert counts(table, query)[0].total() > 0
