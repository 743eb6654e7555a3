"""All databases run the conformance suite of all engines."""

from __future__ import annotations

import pytest

import dp_polars as dpp
from tests.engines.conformance import SECRET, Conformance, Failing
from tests.engines.publications import Publications
from tests.sql.tools import DUCKDB, MARKS, MORE_OF_DUCKDB, MORE_OF_POSTGRES, POSTGRES, need_ibis, to_duckdb, to_postgres

need_ibis()

import ibis  # noqa: E402

from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS


@ibis.udf.scalar.builtin(name="noted")
def noted() -> bool: ...


def of_one_preprocessing(engine):
    """Return an engine whose cached answers are those of one table, by whatever name the suite makes it."""
    engine.preprocessing = lambda: "visits"
    return engine


class TestDuckDB(Conformance):
    kinds = frozenset(DUCKDB)
    more_units = frozenset(MORE_OF_DUCKDB)

    def make(self, frame, read=None):
        con = ibis.duckdb.connect()
        table = to_duckdb(con, frame)
        if read is not None:

            def noted_by_python(number: int) -> bool:
                read()
                return True

            con.con.create_function("noted", noted_by_python, side_effects=True)
            con.raw_sql("CREATE VIEW seen AS SELECT * FROM " + table.get_name() + " WHERE noted(rowid)")
            table = con.table("seen")
        return of_one_preprocessing(_SqlEngine(table))


class TestPostgres(Conformance):
    kinds = frozenset(POSTGRES)
    more_units = frozenset(MORE_OF_POSTGRES)

    @pytest.fixture(autouse=True)
    def _connections(self, owner, reader):
        self.owner, self.reader = owner, reader

    def make(self, frame, read=None):
        table = to_postgres(self.owner, self.reader, frame)
        if read is not None:
            name = table.get_name()
            raised = f"RAISE EXCEPTION 'no such value: {SECRET}';" if isinstance(read, Failing) else ""
            self.owner.raw_sql(
                f"CREATE FUNCTION noted_{name}() RETURNS boolean VOLATILE LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE NOTICE 'read {name}'; {raised} RETURN true; END $$"
            )
            self.owner.raw_sql(f"CREATE VIEW seen_{name} AS SELECT * FROM {name} WHERE noted_{name}()")

            def note(diagnostics):
                if diagnostics.message_primary == f"read {name}":
                    read_quietly(read)

            self.reader.con.add_notice_handler(note)
            table = self.reader.table(f"seen_{name}")
        return of_one_preprocessing(_SqlEngine(table))


def read_quietly(read):
    """Note the read; the server has raised already where it must fail."""
    try:
        read()
    except RuntimeError:
        assert isinstance(read, Failing)


class TestPublications(Publications):
    door = dpp.sql

    @pytest.fixture(autouse=True)
    def _engine(self, engine):
        self.table = engine.table
