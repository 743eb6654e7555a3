"""What the tests with databases share."""

import itertools

import polars as pl
import pytest

from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.request import only_counted
from tests.helpers.needs import need
from tests.helpers.runs import histograms_by
from tests.helpers.specs import as_frame
from tests.registry import COLUMNS, UNITS

# Types of the registry that the engines have, and what they call them.
POSTGRES = {"Boolean": "boolean", "Int16": "smallint", "Int32": "integer", "Int64": "bigint", "Float32": "real"}
POSTGRES |= {"Float64": "double precision", "Decimal": "decimal(10,2)", "wide Decimal": "decimal(38,6)"}
POSTGRES |= {"String": "text", "Date": "date", "Datetime": "timestamp", "Time": "time"}
DUCKDB = {"Int8": "tinyint", **POSTGRES}
# What only a privacy unit may have.
MORE_OF_DUCKDB = {"UInt64": "UBIGINT", "Int128": "HUGEINT", "Binary": "BLOB", "Datetime in UTC": "TIMESTAMPTZ"}
MORE_OF_POSTGRES = {"Binary": "bytea", "Datetime in UTC": "timestamptz"}
TYPES = {"duckdb": DUCKDB, "postgres": POSTGRES}
MARKS = [
    pytest.mark.slow,
    # One worker of pytest-xdist runs all of this, so that Postgres starts once.
    pytest.mark.xdist_group("sql"),
    # What Ibis itself does with its drivers.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*future.infer_string.*"),
]
NUMBERS = itertools.count()


def need_ibis():
    """Skip the module where there is no Ibis, unless it is required."""
    need("ibis")


def declared(frame, names):
    """The columns of a frame, as a CREATE TABLE has them."""
    dtypes = {name: (COLUMNS[name].dtype if name in COLUMNS else UNITS[name][0]) for name in names}

    def kind_of(dtype):
        if isinstance(dtype, pl.Decimal):
            return f"DECIMAL({dtype.precision},{dtype.scale})"
        return next(kind for name, kind in names.items() if dtypes[name] == dtype)

    return ", ".join(f'"{name}" {kind_of(dtype)}' for name, dtype in frame.schema.items())


def to_duckdb(con, frame):
    """A table of DuckDB with the rows of a frame."""
    name = f"rows{next(NUMBERS)}"
    con.raw_sql(f"CREATE TABLE {name} ({declared(frame, {**DUCKDB, **MORE_OF_DUCKDB})})")
    if frame.schema.get("p") == pl.Int128:  # which Arrow has not
        con.con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * frame.width)})", frame.rows())
        return con.table(name)
    con.con.register("given", frame.to_arrow())
    con.raw_sql(f"INSERT INTO {name} SELECT * FROM given")
    con.con.unregister("given")
    return con.table(name)


def to_postgres(owner, reader, frame):
    """A table of Postgres with the rows of a frame, for someone who may only read."""
    name = f"rows{next(NUMBERS)}"
    with owner.begin() as cursor:
        cursor.execute(f"CREATE TABLE {name} ({declared(frame, {**POSTGRES, **MORE_OF_POSTGRES})})")
        with cursor.copy(f"COPY {name} FROM STDIN") as copy:
            for row in frame.rows():
                copy.write_row(row)
    return reader.table(name)


def histograms_of(frame, table, query):
    """The histograms of all outputs, by Polars and by the engine of a table."""
    from dp_polars.sql import _SqlEngine

    by_polars = PolarsEngine.of(frame.lazy())
    in_sql = _SqlEngine(table, only_counted(query._request))
    works = [query._request.bind(each) for each in (by_polars, in_sql)]
    both = [each.prepare_histograms(work)() for each, work in zip((by_polars, in_sql), works, strict=True)]
    for output in works[0].outputs:
        yield output.name, *([as_frame(own[spec]) for spec in output.specs] for own in both)


def counts(table, query):
    """The histograms of a query."""
    from dp_polars.sql import _SqlEngine

    sql = _SqlEngine(table, only_counted(query._request))
    return [as_frame(each).rows() for each in histograms_by(sql, query)]


def run(con, sql):
    """What a statement gives."""
    if con.name == "postgres":
        with con.begin() as cursor:
            found = cursor.execute(sql)
            return found.fetchall() if found.description else []
    return con.con.execute(sql).fetchall()
