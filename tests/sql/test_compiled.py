"""SQL for engines that can't be reached from here: it is compiled for every way to ask, and nothing of it is run.

What is seen: Ibis has a word for all that a release needs, its SQL is of the engine's grammar as sqlglot knows it, it
writes nothing, and the functions in it are in the documentation of the engine's makers.
"""

import datetime as dt
import re

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._release.request import only_counted
from tests.fuzzing.exploring import explore
from tests.replay.cases import ONLY_KINDS, WAYS, cases
from tests.sql.tools import DUCKDB, MARKS, need_ibis

need_ibis()

import ibis  # noqa: E402
import sqlglot  # noqa: E402
from ibis.backends.sql import compilers  # noqa: E402
from ibis.expr import operations as ops  # noqa: E402

from dp_polars._engines.sql import dialects  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS

NAMES = ["bigquery", "snowflake", "trino"]
# Looked up on 23 November 2026, each of them: of all three engines, and of each, by what its makers say of functions.
# BigQuery: the reference of GoogleSQL, its dialect (github.com/google/zetasql, docs/*_functions.md), and
#     cloud.google.com/bigquery/docs/reference/standard-sql/functions-and-operators.
# Snowflake: a page for each, docs.snowflake.com/en/sql-reference/functions/NAME.
# Trino: github.com/trinodb/trino, docs/src/main/sphinx/functions/list.md.
# That a function takes what it is given there was looked up for the dates and times of BigQuery and Snowflake alone.
SHARED = {"ABS", "CEIL", "COALESCE", "CONCAT", "COUNT", "GREATEST", "LEAST", "MAX", "MD5", "MIN", "ROUND", "ROW_NUMBER",
          "SPLIT", "SUM"}  # fmt: skip
FUNCTIONS = {
    "bigquery": {"ARRAY_LENGTH", "COUNTIF", "DATETIME_DIFF", "DATE_DIFF", "GENERATE_ARRAY", "IEEE_DIVIDE", "IF",
                 "IS_NAN", "LOGICAL_AND", "MOD", "SAFE_OFFSET", "TIME_DIFF", "TO_HEX"},
    "snowflake": {"ARRAY_GENERATE_RANGE", "ARRAY_SIZE", "ARRAY_TO_STRING", "COUNT_IF", "DATEDIFF", "DATE_FROM_PARTS",
                  "FLATTEN", "GET", "IFF", "NULLIF", "PARSE_JSON"},
    "trino": {"BOOL_AND", "CARDINALITY", "DATE_DIFF", "DATE_FORMAT", "DATE_TRUNC", "ELEMENT_AT", "EXTRACT", "FORMAT",
              "FROM_ISO8601_DATE", "IF", "IS_NAN", "SEQUENCE", "TO_HEX", "TO_UNIXTIME", "TO_UTF8"},
}  # fmt: skip
# What a parenthesis follows, too: types, words of the grammar, and names that sqlglot gives to what is unnested.
WORDS = {"CAST", "DECIMAL", "EXISTS", "FILTER", "TABLE", "TIMESTAMP", "UNNEST", "_U", "_U_2"}


class Offline:
    """What stands for a connection: it compiles as Ibis' backend does, and notes what it would be asked."""

    version = "1.0"

    def __init__(self, name):
        self.name, self.asked = name, []
        self.compiler = getattr(compilers, name).compiler
        self.dialect = self.compiler.dialect

    def compile(self, table, limit=None):
        return self.compiler.to_sqlglot(table.unbind()).sql(dialect=self.dialect)

    def sql(self, sql):
        self.asked.append(sql)

    def _run_pre_execute_hooks(self, table):
        pass

    def table(self, frame):
        return ops.DatabaseTable("visits", ibis.Schema.from_polars(frame.schema), self).to_expr()


def compiled(name, query, frame):
    """The statement of a query."""
    backend = Offline(name)
    table = backend.table(frame)
    with pytest.raises(ValueError, match=r"tested engines \[[\s\S]*Hint: [\s\S]*untested=True"):
        _SqlEngine(table)
    engine = _SqlEngine(table, only_counted(query.request), untested=True)
    engine.prepare(query.request.bind(engine))
    (sql,) = backend.asked
    return sql


def check(name, sql):
    """See that it is one SELECT of the engine's, of functions that it has, and that all names mean a table."""
    (tree,) = sqlglot.parse(sql, read=getattr(compilers, name).compiler.dialect)
    assert isinstance(tree, sqlglot.exp.Query)
    assert not list(tree.find_all(sqlglot.exp.Create, sqlglot.exp.Drop, sqlglot.exp.DML, sqlglot.exp.Command))
    named = [one.args["alias"].this for one in tree.find_all(sqlglot.exp.CTE)]
    asked = [one.this for one in tree.find_all(sqlglot.exp.Table)]
    made, read = ({name for name in names if name.name.startswith("dp_polars")} for names in (named, asked))
    assert made == read
    assert all(name.quoted for name in made | read)
    outside = re.sub(r"'(?:[^'\\]|''|\\.)*'", "''", sql)  # of what is quoted
    called = {word.upper() for word in re.findall(r"\b([A-Za-z_][A-Za-z_0-9]*)\(", outside)}
    assert called <= SHARED | FUNCTIONS[name] | WORDS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_is_compiled_and_not_run(name, way):
    def holds(case):
        check(name, compiled(name, case.query(dpp.protect), case.frame(0)))

    explore(holds, cases(way, ONLY_KINDS.get(way, frozenset(DUCKDB)), frozenset(DUCKDB)), examples=4, shrinks=False)


FIRST = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.time(0)
# How far each of these is from the beginning.
DIFFERENCES = {
    "bigquery": (
        "DATE_DIFF(`t0`.`x`, CAST('1970-01-01' AS DATE), DAY)",
        "DATETIME_DIFF(`t0`.`x`, CAST('1970-01-01 00:00:00' AS DATETIME), MICROSECOND)",
        "TIME_DIFF(`t0`.`x`, CAST('00:00:00' AS TIME), MICROSECOND) * CAST('1000' AS INT64)",
    ),
    "snowflake": (
        """DATEDIFF(DAY, CAST('1970-01-01' AS DATE), "t0"."x")""",
        """DATEDIFF(MICROSECOND, CAST('1970-01-01 00:00:00' AS TIMESTAMP), "t0"."x")""",
        """DATEDIFF(MICROSECOND, CAST('00:00:00' AS TIME), "t0"."x")""",
    ),
}


@pytest.mark.parametrize("kind", range(3), ids=["date", "datetime", "time"])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences_of_times_are_asked_for(name, kind):
    """BigQuery has no UNIX_SECONDS of a DATETIME, and Snowflake's remainders before 1970 are negative."""
    first = FIRST[kind]
    later = dt.time(12) if first == dt.time(0) else first + dt.timedelta(days=1)
    query = dpp.protect(None).agg(dpp.median("x", [first, later], epsilon=1))
    assert DIFFERENCES[name][kind] in compiled(name, query, pl.DataFrame({"x": [first]}))


@pytest.mark.parametrize("lacks", ["HexDigest", "function 'md5'"])
@pytest.mark.parametrize("name", NAMES)
def test_what_ibis_or_the_engine_has_no_word_for_is_named_and_free(name, lacks, monkeypatch):
    """As MD5 is for Ibis on these engines: without a word of ours, bounds on people can't be kept."""

    def sql(_, text):
        if "MD5(" in text.upper():
            raise RuntimeError(text)

    if lacks == "HexDigest":
        monkeypatch.setattr(dialects, "_DIGESTS", {})
    else:
        monkeypatch.setattr(Offline, "sql", sql)
    budget, frame = dpp.Budget(epsilon=1), pl.DataFrame({"p": [1], "x": [1]})
    query = dpp.protect("p", max_rows=1).agg(dpp.median("x", [1, 2], epsilon=1))
    with pytest.raises(TypeError, match=f"^{name} must know all that a release needs, but has no {lacks}.$"):
        dpp.sql.release(query, Offline(name).table(frame), budget=budget, untested=True)
    assert budget.spent == 0
