"""Record and replay of every way to ask, on databases: `tests/replay`."""

from dataclasses import replace
from functools import partial

import pytest

import dp_polars as dpp
from dp_polars._frames.cube_query import CubeQuery
from tests.fuzzing.exploring import explore
from tests.replay.cases import ONLY_KINDS, WAYS, cases
from tests.replay.checks import check
from tests.replay.doors import Doors, known_dialects
from tests.sql.tools import DUCKDB, MARKS, MORE_OF_DUCKDB, MORE_OF_POSTGRES, POSTGRES, need_ibis

need_ibis()

pytestmark = MARKS

KINDS = {"duckdb": (DUCKDB, MORE_OF_DUCKDB), "postgres": (POSTGRES, MORE_OF_POSTGRES)}


@pytest.fixture
def asked(engine, monkeypatch):
    """What the engine is asked: descriptions, and statements that are prepared and run."""
    told = []
    dialect = known_dialects()[engine.name]

    def describe(backend, table, columns):
        told.append(f"describe {backend.compile(table)} {columns}")
        return dialect.describe(backend, table, columns)

    def prepare(backend, sql):
        told.append(f"prepare {sql}")
        return dialect.prepare(backend, sql)

    def fetch(backend, statement):
        told.append(f"run {statement.sql}")
        return dialect.fetch(backend, statement)

    spied = replace(dialect, describe=describe, prepare=prepare, fetch=fetch)
    monkeypatch.setitem(known_dialects(), engine.name, spied)
    return told


def ask(case, engine, asked, side):
    asked.clear()
    known_dialects()[engine.name].written.clear()  # a connection is asked once whether it can run a statement
    table = engine.table(case.frame(side))
    query = case.query(dpp.protect)
    intervals = {} if isinstance(query, CubeQuery) else {"intervals": case.intervals}
    return {"answers": dpp.sql.release(query, table, **intervals), "asked": list(asked)}


def holds_in(engine, asked, answered):
    """Run both checks on a case."""

    def holds(case):
        answered.append(check(case, partial(ask, case, engine, asked), partial(Doors, sql=True)))

    return holds


@pytest.mark.parametrize("way", WAYS)
def test_answers_follow_from_the_outputs_and_inputs_move_as_claimed(way, engine, asked):
    kinds, more = KINDS[engine.name]
    answered = []
    explore(holds_in(engine, asked, answered), cases(way, ONLY_KINDS.get(way, kinds), {*kinds, *more}), examples=6)
    assert sum(answered) > len(answered) * 0.6, "hardly anything is answered"
