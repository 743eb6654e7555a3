"""The look at Ibis expressions: the unit is followed, what mixes people is refused, and how it is said."""

from __future__ import annotations

import datetime as dt
import importlib
import pkgutil
import random
import struct
from collections import Counter
from contextlib import suppress

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.sql.tools import MARKS, need_ibis, run

need_ibis()
need("duckdb")

import ibis  # noqa: E402
import ibis.expr.operations as ops  # noqa: E402
import pyarrow as pa  # noqa: E402
from ibis.common.exceptions import IbisError  # noqa: E402

from dp_polars._engines.sql import dialects, operations  # noqa: E402
from dp_polars._engines.sql.reading import _Reader, differs_between_runs, refuse_mixed_people  # noqa: E402
from dp_polars._sources import check as kinds  # noqa: E402

pytestmark = MARKS

VISITS = {"p": "INTEGER", "q": "INTEGER", "x": "DOUBLE PRECISION", "i": "BIGINT", "s": "VARCHAR", "b": "BOOLEAN"}
PEOPLE = {"p": "INTEGER", "y": "BIGINT", "city": "VARCHAR"}
ROWS = [(1, 2, 0.0, 0, "a", True), (1, 1, 5.0, -1, "5", False), (2, 1, 2.5, 0, "b", True), (None, 1, 2.5, 4, "a", True)]
OF_PEOPLE = [(1, 5, "Rome"), (1, 7, "Oslo"), (2, 5, "Rome"), (4, 0, None), (None, 1, "Rome"), (3, None, "Oslo")]
PUBLIC = ibis.memtable(pl.DataFrame({"q": [1, 2, 2], "name": ["one", "two", "zwei"]}))
FRAME = pl.DataFrame({"p": pl.Series([1, 2], dtype=pl.Int32), "q": pl.Series([2, 1], dtype=pl.Int32)})


# --- What runs it ---------------------------------------------------------------------------------------------------


def rows_of(con, table):
    """The rows of an expression, in no order."""
    con._run_pre_execute_hooks(table)
    sql = con.compile(table, limit=None)
    # Its driver does not take years before the first.
    return Counter(map(repr, run(con, f"SELECT CAST(r AS text) FROM ({sql}) AS r" if con.name == "postgres" else sql)))


class Made:
    """Tables with some of the rows, each made once."""

    def __init__(self, con):
        self.con, self.tables = con, {}

    def table(self, kinds, rows):
        key = (*kinds, repr(rows))
        if key not in self.tables:
            name = f"gate_{len(self.tables)}"
            run(self.con, f"DROP TABLE IF EXISTS {name}")
            run(self.con, f"CREATE TABLE {name} ({', '.join(map(' '.join, kinds.items()))})")
            if rows:
                values = (f"({', '.join(map(self.said, row))})" for row in rows)
                run(self.con, f"INSERT INTO {name} VALUES {', '.join(values)}")
            self.tables[key] = self.con.table(name)
        return self.tables[key]

    def said(self, value):
        if isinstance(value, float):
            return f"CAST('{value}' AS DOUBLE PRECISION)"
        if isinstance(value, str | dt.date):
            return f"'{value}'"
        return "NULL" if value is None else str(value)

    def both(self, rows=ROWS, people=OF_PEOPLE):
        return self.table(VISITS, rows), self.table(PEOPLE, people)


@pytest.fixture(scope="module")
def duckdb():
    con = ibis.duckdb.connect()
    yield Made(con)
    con.disconnect()


@pytest.fixture(scope="module")
def postgres(server):
    server.sql("clinic", "DROP SCHEMA IF EXISTS gate CASCADE", "CREATE SCHEMA gate AUTHORIZATION owner")
    con = ibis.postgres.connect(
        host=str(server.folder), port=server.port, user="owner", database="clinic", schema="gate"
    )
    yield Made(con)
    con.disconnect()


# --- What is taken and what is refused ------------------------------------------------------------------------------


@ibis.udf.scalar.builtin
def levenshtein(one: str, other: str) -> int:
    """A function of the engine."""


def named(name, *, of="scalar", **more):
    """A function that is called by a name of the engine."""

    def function(one: int) -> int: ...

    return getattr(ibis.udf, of).builtin(function, name=name, **more)


class Above(ops.Value):
    """What Ibis does not have."""

    arg: ops.Value
    dtype, shape = ibis.dtype("int64"), ibis.expr.rules.shape_like("arg")


class Abs(Above):
    """What is called as an operation of Ibis."""


@ibis.udf.scalar.python
def Add(x: int) -> int:  # noqa: N802
    """A function that is called as an operation of Ibis."""
    return x


def cached(table):
    """What Ibis caches of a table. It is dropped with its connection: the end of Ibis' own fails on DuckDB."""
    found = table.cache()
    found.op().source._cache_name_to_entry[found.op().name].finalizer.detach()
    return found


def sql_of(table):
    return ops.SQLQueryResult(
        "SELECT 1 AS p, 2 AS q", ibis.schema({"p": "int32", "q": "int32"}), table.op().source
    ).to_expr()


def sql_on(table):
    return ops.SQLStringView(table.op(), "SELECT 1 AS p, 2 AS q", ibis.schema({"p": "int32", "q": "int32"})).to_expr()


MEMORY = ibis.memtable(pl.DataFrame({"p": [1, 2], "q": [1, 2]}))
TAKEN = {
    "a join by more": lambda t, u: t.join(u, [t.p == u.p, t.i < u.y]),
    "a join under another name": lambda t, u: t.join(of := u.rename(person="p"), t.p == of.person),
    "whose unit is that of the right": lambda t, u: t.left_join(u, "p").select(u.p, "i"),
    "a join of three": lambda t, u: t.join(u, "p").left_join(u.view(), "p"),
    "a right join": lambda t, u: t.right_join(u, "p"),
    "an outer join": lambda t, u: t.outer_join(u, "p"),
    "a join of groups": lambda t, u: t.join(u.group_by("p").aggregate(n=u.count()), "p"),
    "the latest of the person": lambda t, u: t.asof_join(u, t.i > u.y, "p"),
    "public rows, then groups": lambda t, _: t.join(PUBLIC, "q").group_by("p").agg(n=ibis._.count()),
    "public rows twice": lambda t, _: t.join(PUBLIC, "q").left_join(PUBLIC.view().rename(i="q", other="name"), "i"),
    "what is in both": lambda t, u: t.select("p", v="i").intersect(u.select("p", v="y")),
    "what is in one": lambda t, u: t.select("p", v="i").difference(u.select("p", v="y")),
    "equal rows once": lambda t, _: t.select("p", "s").distinct(keep=None),
    "words": lambda t, _: t.select("p", words=t.s.split("a")).unnest("words", offset="place"),
    "longer": lambda t, _: t.select("p", "q", "i").mutate(i=ibis._.i).pivot_longer(["q", "i"]),
    "a person that is computed": lambda t, _: t.mutate(p=t.i % 2).group_by("p").aggregate(n=ibis._.count()),
    "groups by what a person is computed of": lambda t, _: (
        t.group_by("p", "q").agg(n=t.count()).mutate(p=ibis._.p + ibis._.q)
    ),
    "a group that computes the person": lambda t, _: t.group_by(p=t.p % 2).aggregate(n=t.count()),
    "another column as the person": lambda t, _: t.drop("p").rename(p="q").group_by("p").agg(n=ibis._.count()),
    "nobody has a name": lambda t, _: t.fill_null({"p": 9}).group_by("p").aggregate(n=ibis._.count()),
    "a function of the engine": lambda t, _: t.mutate(z=levenshtein(t.s, "a")),
    "the time": lambda t, _: t.filter(ibis.now() > dt.datetime(2020, 1, 1)),
    "a query in text": lambda t, _: sql_of(t).filter(ibis._.p > 0),
    "a query in text about a table": lambda t, _: sql_on(t).filter(ibis._.p > 0),
    "rows that are joined to a query in text by the person": lambda t, _: t.join(sql_on(t), "p"),
    "one frame in memory twice": lambda t, _: t.semi_join(
        ibis.memtable(FRAME).union(ibis.memtable(FRAME).filter(ibis._.q > 1)), "p"
    ),
    "what is cached": lambda t, _: cached(t.group_by("p").aggregate(n=t.count())).filter(ibis._.n > 1),
    "a column that is all of a table": lambda t, u: t.filter(t.q.isin(u.select("y").y)),
    "persons that others know": lambda t, u: t.filter(((t.p == u.p) & (u.y > 5)).any()),
}
REFUSED = {
    "a maximum deep inside": (
        lambda t, _: t.mutate(z=ibis.ifelse(t.b, t.i, t.i.max() + 1)),
        r"`\.max\(…\)` combines all rows",
    ),
    "a maximum of a join": (
        lambda t, u: t.join(u, "p").select("p", z=lambda joined: joined.y.max()),
        "combines all rows",
    ),
    "a mean in a condition": (lambda t, _: t.filter(t.x > t.x.mean()), "a reduction inside an expression brings in"),
    "another table's values": (
        lambda t, _: t.filter(t.q.isin(t.filter(t.b).q)),
        r"`\.isin\(…\)` of another table brings in",
    ),
    # Ibis makes tables of these columns, without the person.
    "a column of another table about people": (lambda t, u: t.filter(t.q.isin(u.y)), "a table about people"),
    "what is made of it": (lambda t, u: t.mutate(z=t.q.notin(u.y + 1)), "a table about people"),
    "its only value": (lambda t, u: t.filter(t.q == u.y.as_scalar()), "a table about people"),
    "another table's rows": (lambda t, u: t.filter((t.q == u.p).any()), r"`\.any\(\)` of another table brings in"),
    "counts of values": (
        lambda t, _: t.q.value_counts().rename(p="q_count"),
        r"`\.aggregate\(…\)` combines rows of several",
    ),
    "a window by the partner of a left join": (
        lambda t, u: t.left_join(u, "p").select("p", n=t.i.max().over(group_by=u.p)),
        "looks at rows of several people",
    ),
    "a chain that leaves the person": (
        # Where `u` has no partner, q is another person than p.
        lambda t, u: t.left_join(u, [t.p == u.p, t.q == u.p]).join(of := u.view(), ibis._.q == of.p).select("p", "i"),
        "a table about people",
    ),
    "a join by another column, beside one of the unit's name": (
        lambda t, u: t.join(u, t.p == u.y, rname="{name}_of_u"),
        "a table about people",
    ),
    "people in another column": (lambda t, u: t.filter(t.p.isin(u.y)), "a table about people"),
    "a join with computed people": (lambda t, u: t.join(u, t.p == u.p + 1), "a table about people"),
    "a join of two types": (
        lambda t, u: t.join(of := u.mutate(p=u.p.cast("float64")), t.p == of.p),
        "a table about people",
    ),
    "a unit from another table": (lambda t, u: t.join(u, t.q == u.y).select(u.p, "i"), "a table about people"),
    "a join by something else, and another name after it": (
        lambda t, u: t.join(u, t.q == u.y).mutate(p=ibis._.p.cast("string")),
        "a table about people",
    ),
    "names that swap people": (
        lambda t, _: t.rename(p="q", q="p").select("p", "i").union(t.select("p", "i")),
        "has other columns as the privacy unit",
    ),
    "a table under two cases": (
        lambda t, _: t.select("p", "i").union(t.op().source.table(t.get_name().upper()).select(p="q", i="i")),
        "a table that is read twice has other columns as the privacy unit 'p' each time",
    ),
    "a union of computed people": (
        lambda t, _: t.select("i", p="q").union(t.select("i", p=-t.q)),
        "a table that is read twice",
    ),
    "two tables of one frame in memory": (
        lambda *_: ibis.memtable(FRAME).select("p").union(ibis.memtable(FRAME.clone()).select(p="q")),
        "is read twice",
    ),
    "private rows as public ones": (
        lambda *_: MEMORY.join(MEMORY.view().drop("p"), "q"),
        "other people's rows of the same table",
    ),
    "a cached mean": (lambda t, _: cached(t.mutate(z=t.i.mean())).filter(ibis._.i > 0), "combines all rows"),
    "a cached table with another unit": (
        lambda t, _: t.select("p", "i").union(cached(t).select(p="q", i="i")),
        "is read twice",
    ),
    "a query in text about a table, joined back": (lambda t, _: t.join(sql_on(t).drop("p"), "q"), "of the same table"),
    "a person by a window": (lambda t, _: t.mutate(p=ibis.row_number()).distinct(), "combines all rows|looks at rows"),
    "a function of Python": (lambda t, _: t.mutate(z=Add(t.q)), r"`Add_?\d*\(…\)` is code that"),
    "a function of Python in a condition of a join": (
        lambda t, u: t.join(u, [t.p == u.p, Add(t.q) < u.y]),
        "is code that",
    ),
    "chance in a condition of a join": (lambda t, u: t.join(u, [t.p == u.p, ibis.random() < 0.5]), "draws at random"),
    "a maximum in a condition of a join": (lambda t, u: t.join(u, [t.p == u.p, t.i < t.i.max()]), "combines all"),
    "a function of Python among what others know": (
        lambda t, u: t.filter(((t.p == u.p) & (Add(u.y) > 5)).any()),
        "is code that",
    ),
    "chance among what others know": (
        lambda t, u: t.filter(((t.p == u.p) & (ibis.random() < 0.5)).any()),
        "draws at random",
    ),
    "an operation that nobody knows": (lambda t, _: t.mutate(z=Above(t.q).to_expr()), "can't be looked into"),
    "an operation that is called as a known one": (lambda t, _: t.mutate(z=Abs(t.q).to_expr()), "can't be looked into"),
    "chance": (lambda t, _: t.filter(ibis.random() < 0.5), r"`ibis\.random\(\)` draws at random"),
    "names by chance": (lambda t, _: t.mutate(z=ibis.uuid()), r"`ibis\.uuid\(\)` draws at random"),
}
TAKEN_BY_ROW = {
    "values": lambda t, _: t.mutate(z=t.x / t.i + 1).filter(t.s.cast("int64") > 0).order_by("z").drop("s"),
    "a public list": lambda t, _: t.semi_join(PUBLIC, "q"),
    "none of a public list": lambda t, _: t.anti_join(PUBLIC, "q"),
    "any public row": lambda t, _: t.any_left_join(PUBLIC, "q"),
    "a union of two tables": lambda t, u: t.select("p").union(u.select("p")),
}
REFUSED_BY_ROW = {
    "unnest": (
        lambda t, _: t.select("p", z=ibis.array([t.s])).unnest("z"),
        r"`\.unnest\(…\)` makes several rows of one",
    ),
    "unnest in a projection": (lambda t, _: t.select(z=ibis.array([t.s, t.s]).unnest()), "makes several rows of one"),
    "a union": (lambda t, _: t.union(t), "a table that is read twice may read a row twice"),
    "distinct rows": (lambda t, _: t.distinct(), r"`\.distinct\(…\)` compares the rows of several people"),
    "a join with public rows": (lambda t, _: t.join(PUBLIC, "q"), "makes several rows of one"),
    "all public rows": (lambda t, _: t.cross_join(PUBLIC), "makes several rows of one"),
    "private rows as public ones": (lambda *_: MEMORY.semi_join(MEMORY.view(), "q"), "may read a row twice"),
    "groups": (lambda t, _: t.group_by("p").aggregate(n=t.count()), "combines rows of several people"),
    "a window": (lambda t, _: t.mutate(z=t.i.max().over(group_by="p")), "looks at rows of several people"),
    "head": (lambda t, _: t.head(3), r"`\.limit\(…\)` \(or head\) picks or fills by the place"),
}


def cases(of_people, by_row):
    """Those of each person, and those that must be by row as there are no people."""
    both = [(steps, ("p",)) for steps in of_people.values()] + [(steps, None) for steps in by_row.values()]
    return pytest.mark.parametrize(("steps", "unit"), both, ids=[*of_people, *(f"by row: {name}" for name in by_row)])


@cases(TAKEN, TAKEN_BY_ROW)
def test_what_follows_the_unit_or_is_by_row_is_taken(duckdb, steps, unit):
    refuse_mixed_people(steps(*duckdb.both()), unit)


@cases(REFUSED, REFUSED_BY_ROW)
def test_what_does_not_follow_it_or_is_not_by_row_is_refused_by_name(duckdb, steps, unit):
    made, message = steps
    with pytest.raises(ValueError, match=rf"^table: .*({message})[\s\S]*\n\nHint: [\s\S]*unchecked=True\.$"):
        refuse_mixed_people(made(*duckdb.both()), unit)


# --- Operations and functions, by name --------------------------------------------------------------------------------


def classes_of_ibis():
    """All classes of nodes that the installed Ibis has."""
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    found, waiting = {ops.Node}, [ops.Node]
    while waiting:
        new = [one for one in waiting.pop().__subclasses__() if one not in found]
        found |= {*new}
        waiting += new
    return {one for one in found if one.__module__.startswith(f"{ops.__name__}.")}


def test_every_operation_of_ibis_is_in_one_list():
    lists = {name: of for name, of in vars(operations).items() if isinstance(of, frozenset) and name != "VALUES"}
    names = {one.__name__ for one in classes_of_ibis()}
    for name in names:
        assert [place for place, of in lists.items() if name in of] != [], f"{name} is in no list: is it by row?"
        assert sum(name in of for of in lists.values()) == 1, name
    assert len(operations.BY_ROW) > 250
    if ibis.__version__.startswith("12."):
        assert frozenset().union(*lists.values()) == names


def test_lists_of_operations_agree_with_what_ibis_says_of_them():
    kinds_of = {one.__name__: one for one in classes_of_ibis() if one.__name__ not in operations.BASES}
    for name, one in kinds_of.items():
        assert (name in operations.REDUCTIONS) == (issubclass(one, ops.Reduction) and name not in OTHER_REDUCTIONS)
        assert (name in operations.ANALYTIC) == (issubclass(one, ops.Analytic) and name != "AnalyticVectorizedUDF")
        if name in operations.BY_ROW:
            assert not issubclass(one, (ops.Relation, ops.Subquery, ops.Reduction, ops.Analytic))
    assert all(issubclass(kinds_of[name], ops.Impure) for name in operations.RANDOM)


OTHER_REDUCTIONS = {"AggUDF", "ReductionVectorizedUDF"}


def by_name(table, function):
    """Whether a function by name is taken, as a column and inside one."""
    found = set()
    for steps in (table.mutate(z=function(table.q)), table.filter(function(table.q) + 1 > 2)):
        said = None
        try:
            refuse_mixed_people(steps, ("p",))
        except ValueError as error:
            said = str(error)
        found.add(said is None)
        assert said is None or "is, by its name, no function that the database itself has" in said
    (taken,) = found
    return taken


NAMES = {
    "duckdb": {
        True: ["abs", "ABS", "hash", "bin", "bit_count"],
        False: [
            *("random", "nextval", "uuid", "gen_random_uuid", "current_setting", "getvariable", "stats", "setseed"),
            *("vector_type", "version", "now", "txid_current", "error", "unnest", "range", "max", "sum", "nothing"),
            *("generate_subscripts", "write_log", "currval", "a b", "x(1); --", "__internal_barrier"),
        ],
    },
    "postgres": {
        True: ["abs", "ABS", "md5", "factorial"],
        False: [
            *("random", "nextval", "gen_random_uuid", "current_setting", "clock_timestamp", "now", "version", "max"),
            *("generate_series", "pg_sleep", "nothing", "row_number", "pg_relation_size", "a b", "x(1); --"),
        ],
    },
}


def test_functions_by_name_must_be_the_engines_own(engine):
    table = engine.table(pl.DataFrame({"p": [1, 1, 2, None], "q": [1, 2, 3, 4]}))
    for expected, names in NAMES[engine.name].items():
        for name in names:
            assert by_name(table, named(name)) is expected, name
    assert not by_name(table, named("abs", database="main", catalog="memory"))


def test_aggregates_by_name_must_be_the_engines_own(engine):
    table = engine.table(pl.DataFrame({"p": [1, 1, 2, None], "q": [1, 2, 3, 4]}))
    own, other = named("bit_xor", of="agg"), named("far", of="agg")
    if engine.name == "duckdb" or int(engine.reader.version.split(".")[0]) >= 14:
        refuse_mixed_people(table.group_by("p").aggregate(z=own(table.q)), ("p",))
    for wrong in (other, named("abs", of="agg"), named("random", of="agg")):
        with pytest.raises(ValueError, match="is, by its name, no function"):
            refuse_mixed_people(table.group_by("p").aggregate(z=wrong(table.q)), ("p",))
    with pytest.raises(ValueError, match="combines all rows"):
        refuse_mixed_people(table.mutate(z=own(table.q)), ("p",))


@pytest.mark.parametrize("where", ["main", "another schema", "temporary", "in place of another", "Python", "overload"])
def test_a_macro_of_a_database_is_no_function_of_the_row(where):
    """It may read the whole table, whatever it is called."""
    con = ibis.duckdb.connect()
    con.raw_sql("CREATE TABLE t AS SELECT range AS p, CASE WHEN range = 0 THEN 5 ELSE 1 END AS q FROM range(20)")
    con.raw_sql("CREATE SCHEMA other")
    name, of = "far", "(SELECT max(q) FROM t)"
    if where == "Python":
        con.con.create_function("far", lambda x: x, ["BIGINT"], "BIGINT")
    elif where == "overload":
        con.con.create_function(name := "bin", lambda x: x, ["BOOLEAN"], "BIGINT")
    else:
        name = "abs" if where == "in place of another" else "far"
        words = "TEMP MACRO" if where == "temporary" else "MACRO"
        con.raw_sql(f"CREATE {words} {'other.' if where == 'another schema' else ''}{name}(a) AS {of}")
    table, budget = con.table("t"), dpp.Budget(epsilon=1)
    query = dpp.protect("p", max_rows=1, budget=budget).agg(n=dpp.n_people(epsilon=1))
    for called in (name, name.upper()):
        assert not by_name(table, named(called))
        with pytest.raises(ValueError, match=r"is, by its name, no function[\s\S]*Hint: use a built-in function"):
            dpp.sql.release(query, table.filter(table.q >= named(called)(table.q)))
    assert budget.spent == 0
    dpp.sql.release(query, table.filter(table.q >= table.q.abs()))
    assert budget.spent == 1
    con.disconnect()


def test_a_function_of_a_user_of_postgres_is_no_function_of_the_row(engine):
    if engine.name != "postgres":
        pytest.skip("of Postgres")
    table = engine.table(pl.DataFrame({"p": [1, 1, 2, None], "q": [1, 2, 3, 4]}))
    made = "AS 'SELECT 1' LANGUAGE sql IMMUTABLE"
    for name, takes in (("far", "bigint"), ("md5", "bigint"), ("abs", "text")):
        engine.owner.raw_sql(f"CREATE FUNCTION public.{name}({takes}) RETURNS int {made}")
        try:
            assert not by_name(table, named(name))
        finally:
            engine.owner.raw_sql(f"DROP FUNCTION public.{name}({takes})")
    assert by_name(table, named("abs"))


def test_a_unit_of_several_columns_is_followed_as_a_whole(duckdb):
    table, _ = duckdb.both()
    unit = ("p", "q")
    for steps in (
        table.group_by("p", "q").aggregate(n=table.count()),
        table.join(table.view(), ["p", "q"]),
        table.join(PUBLIC, "q"),  # which has one of its columns, and is joined by it
        table.mutate(n=table.count().over(group_by=["q", "p"])),
    ):
        refuse_mixed_people(steps, unit)
    swapped = table.join(of := table.view(), [table.p == of.q, table.q == of.p]).select(table.p, table.q, of.i)
    for odd in (
        table.group_by("p").aggregate(q=table.q.max()),
        table.mutate(n=table.count().over(group_by="p")),
        table.join(table.view(), "p"),
        swapped,
    ):
        with pytest.raises(ValueError, match=r"^table: "):
            refuse_mixed_people(odd, unit)


def test_a_table_under_two_namespaces_is_one(duckdb):
    plain, again = duckdb.both()[0], duckdb.con.table(duckdb.both()[0].get_name(), database="main")
    refuse_mixed_people(plain.select("p", "i").union(again.select("p", "i")), ("p",))
    with pytest.raises(ValueError, match="is read twice"):
        refuse_mixed_people(plain.select("p", "i").union(again.select("i", p="q")), ("p",))


def test_a_very_deep_expression_is_refused(duckdb):
    table, _ = duckdb.both()
    table = table.select("p", "i")
    for i in range(400):
        table = table.filter(table.i != i).mutate(i=table.i + 1)
    with pytest.raises(ValueError, match=r"^table: a very deep expression can't be looked into[\s\S]*unchecked=True"):
        refuse_mixed_people(table, ("p",))


def test_what_may_differ_between_runs_is_known(duckdb):
    table, _ = duckdb.both()
    assert not differs_between_runs(table.filter(table.x > 1).mutate(z=table.x * 2).union(table.mutate(z=table.x)))
    for steps in (
        table.group_by("p").agg(x=table.x.mean()),
        table.mutate(z=table.x.sum().over(group_by="p")),
        sql_of(table),
        table.join(PUBLIC, "q", how="any_left"),
        table.asof_join(PUBLIC, "q"),
    ):
        assert differs_between_runs(steps)


# --- Releases -------------------------------------------------------------------------------------------------------

ASKED = {"p": dpp.protect("p").agg(n=dpp.n_people(epsilon=100)), None: dpp.protect(None).agg(n=dpp.len(epsilon=100))}


def test_a_refusal_is_free_and_unchecked_steps_are_charged(engine):
    made, people = engine.table(pl.DataFrame({"p": [1, 1, 2, None], "x": [1, 2, 3, 4]})), 2
    for unit, query in ASKED.items():
        budget = dpp.Budget(epsilon=100)
        with pytest.raises(ValueError, match=r"`\.limit\(…\)`[\s\S]*unchecked=True"):
            dpp.sql.release(query, made.limit(99), budget=budget)
        assert budget.spent == 0
        released = dpp.sql.release(query, made.limit(99), budget=budget, unchecked=True)
        assert released.item() == (people if unit else 4)
        assert budget.spent == 100
    with pytest.raises(ValueError, match="the table must have the privacy unit 'p', got the columns"):
        dpp.sql.release(ASKED["p"], made.drop("p"))


def test_cubes_are_checked_too(duckdb):
    table, _ = duckdb.both()
    query = dpp.protect("p", max_groups=1).cube({"q": [1, 2]}, epsilon=1)
    with pytest.raises(ValueError, match="by the place among all rows"):
        dpp.sql.release(query, table.head(3))
    dpp.sql.release(query, table.head(3), unchecked=True)


def test_views_files_and_queries_in_text_are_tables(duckdb, tmp_path):
    con, (table, _) = duckdb.con, duckdb.both()
    con.raw_sql(f"CREATE OR REPLACE VIEW of_many AS SELECT p FROM {table.get_name()} ORDER BY x LIMIT 3")
    frame = pl.DataFrame({"p": [1, 2, 3]})
    frame.write_parquet(tmp_path / "visits.parquet")
    frame.write_csv(tmp_path / "visits.csv")
    for rows in (
        con.table("of_many"),
        con.read_parquet(tmp_path / "visits.parquet"),
        con.read_csv(tmp_path / "visits.csv"),
        ibis.memtable(frame),
    ):
        dpp.sql.release(ASKED["p"], rows)
    assert dpp.sql.release(ASKED["p"], sql_of(table)).item() == 1


@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT", "NOCASE.NOACCENT"])
def test_steps_need_a_unit_whose_texts_are_told_apart(collation):
    """To such a column 'ann' and 'Ann' are one: a group by it has rows of both."""
    con = ibis.duckdb.connect()
    for name, kind in (("plain", "TEXT"), ("odd", f"TEXT COLLATE {collation}")):
        run(con, f"CREATE TABLE {name} (p {kind}, x BIGINT)")
        run(con, f"INSERT INTO {name} VALUES ('ann', 1), ('Ann', 2)")
    budget = dpp.Budget(epsilon=100)
    for steps in (
        lambda t: t.group_by("p").aggregate(x=t.x.clip(0, 9).sum()),
        lambda t: t.mutate(x=t.x.max().over(group_by="p")),
        lambda t: t.distinct(),
        lambda t: t.semi_join(t.view(), "p"),
        lambda t: t.fill_null({"p": "-"}).distinct(),
    ):
        assert dpp.sql.release(ASKED["p"], steps(con.table("plain"))).item() == 2
        with pytest.raises(
            ValueError, match=r"the privacy unit 'p' must be compared byte by byte[\s\S]*Hint: a column"
        ):
            dpp.sql.release(ASKED["p"], steps(con.table("odd")), budget=budget)
        dpp.sql.release(ASKED["p"], steps(con.table("odd")), unchecked=True)
    assert budget.spent == 0
    assert dpp.sql.release(ASKED["p"], con.table("odd").filter(ibis._.x > 0)).item() == 2  # by row
    con.disconnect()


def test_a_unit_of_texts_without_case_is_no_unit_in_postgres(server, owner, reader):
    server.sql(
        "clinic",
        "CREATE EXTENSION IF NOT EXISTS citext",
        "DROP TABLE IF EXISTS plain_names, odd_names",
        "CREATE TABLE plain_names AS SELECT p, 1 AS x FROM unnest(ARRAY['ann', 'Ann', 'ANN']) AS p",
        "CREATE TABLE odd_names AS SELECT p::citext, x FROM plain_names",
    )
    plain, odd, budget = reader.table("plain_names"), reader.table("odd_names"), dpp.Budget(epsilon=100)
    assert dpp.sql.release(ASKED["p"], plain.distinct()).item() == 3
    for steps in (plain.join(odd, "p"), odd.distinct().mutate(p=ibis._.p + ""), plain.semi_join(odd, "p")):
        with pytest.raises(TypeError, match=r"the privacy unit 'p' must have one of postgres's types .*, got citext"):
            dpp.sql.release(ASKED["p"], steps, budget=budget)
    assert budget.spent == 0


# --- Errors ---------------------------------------------------------------------------------------------------------


def test_no_row_of_preprocessing_raises_on_duckdb():
    """DuckDB takes what stands in two of its TRYs out of both; each part has one of its own."""
    con = ibis.duckdb.connect()
    run(
        con,
        "CREATE TABLE v AS SELECT i % 4 AS p, CASE WHEN i % 2 = 0 THEN 'x' ELSE CAST(i AS VARCHAR) END AS s, "
        "i - 3.0::DOUBLE AS x, 9223372036854775000 + i AS big, DATE '9999-12-01' AS d FROM range(8) AS t(i)",
    )
    table = con.table("v")
    number, calm = table.s.cast("int64"), []
    for steps in (
        table.mutate(y=number + 1, z=number + 2),
        table.filter(number > 2),
        table.filter(number + 1 > 2, number + 2 > 2),
        table.mutate(z=table.big * table.big + 1),
        table.filter((table.big << table.big) > 0),
        table.mutate(z=ibis.ifelse(table.x > 0, table.big >> table.p, table.big << 62)),
        table.mutate(z=table.x.log() + 1 / table.x),
        table.mutate(z=table.s.as_date("%Y"), y=table.d + ibis.interval(years=10**6)),
        table.mutate(z=table.x.lag().over(group_by="p", order_by=number)),
        table.group_by("p", k=number).agg(z=table.big.sum(), y=number.sum()),
        table.join(of := table.view(), [table.p == of.p, table.s.cast("int64") == of.big]),
        table.mutate(z=ibis.array([table.s]).map(lambda text: text.cast("int64"))),
        ibis.memtable({"p": [1, 2], "s": ["x", "1"]}).mutate(z=ibis._.s.cast("int64")),
    ):
        con._run_pre_execute_hooks(steps)
        with suppress(Exception):
            run(con, con.compile(steps, limit=None))
            calm.append(steps)
        query = dpp.protect("p", max_rows=100).agg(n=dpp.len(epsilon=100), z=dpp.count(steps.columns[-1], epsilon=100))
        dpp.sql.release(query, steps)
    assert len(calm) <= 2  # all others raise without this
    con.disconnect()


def test_a_connection_that_has_failed_does_not_say_why():
    """DuckDB says once more what failed first, and that quotes values."""
    texts = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<iii", 0, 2, 4)), pa.py_buffer(b"\xff\xfeab")]
    )
    con = ibis.duckdb.connect()
    con.con.register("arrow", pa.table({"p": [1, 2], "s": texts}))
    table, query = con.table("arrow"), dpp.protect("p", max_rows=1).agg(dpp.mode("s", ["AB"], epsilon=1))
    with pytest.raises(dpp.ReleaseError) as caught:
        dpp.sql.release(query, table.mutate(s=table.s.upper()))
    assert caught.value.__cause__ is caught.value.__context__ is None
    with pytest.raises(RuntimeError, match=r"can't be queried[\s\S]*connect anew") as caught:
        dpp.sql.release(query, table)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("unit", ["p", None])
def test_what_is_read_several_times_is_made_once(engine, unit):
    """Sums of floats differ in their last bits each time; drawn rows are others."""
    table = engine.table(pl.DataFrame({"p": [1, 1, 2, 3], "x": [1, 2, 3, 4]}))
    steps = table.mutate(y=table.x.sum().over(group_by="p"))
    query = dpp.protect(unit).agg(dpp.mode("x", [1, 2], epsilon=1), b=dpp.mode("y", [3, 4], epsilon=1))
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            dialects.Common, "once", lambda self, rows, own=dialects.Common.once: seen.append(rows) or own(self, rows)
        )
        dpp.sql.release(query, steps, unchecked=True)
        made = sum("y" in rows.columns for rows in seen)
        dpp.sql.release(query, table.mutate(y=table.x), unchecked=True)
    assert made == 1
    assert len(seen) == made


# --- Cached answers --------------------------------------------------------------------------------------------------


def test_a_cached_answer_belongs_to_the_steps(duckdb, tmp_path):
    table, budget = duckdb.both()[0], dpp.Budget(epsilon=100, path=tmp_path / "ledger.db")
    query = dpp.protect("p", dataset="visits", budget=budget).agg(n=dpp.n_people(epsilon=1))
    memory = ibis.memtable({"p": [1, 2]})
    for spent, steps in [
        (1, table),
        (1, table),
        (2, table.filter(table.i > 0)),
        (3, table.filter(table.i > 1)),
        (3, table.filter(table.i > 0)),
        *((number, memory) for number in (4, 5)),
        *((number, table.filter(ibis.now() > dt.datetime(2020, 1, 1))) for number in (6, 7)),
        (8, table.filter(levenshtein(table.s, "a") < 5)),
        (8, table.filter(levenshtein(table.s, "a") < 5)),
        (8, table),
    ]:
        dpp.sql.release(query, steps)
        assert budget.spent == spent


# --- Random steps ---------------------------------------------------------------------------------------------------


def random_value(table, chance):
    """A random integer of a row, or of several."""
    column = table[chance.choice(["q", "i"])]
    window = {"group_by": chance.choice([["p"], ["p", "q"], ["q"], []])}
    return chance.choice(
        [
            lambda: column.clip(0, 9) + chance.randrange(3),
            lambda: ibis.ifelse(column > 1, column, table.p),
            lambda: table.p,
            lambda: column.max().over(**window),
            lambda: column.sum().over(**window),
            lambda: column.max(),
            lambda: table.count().over(**window),
            lambda: ibis.rank().over(**window, order_by=column),
            lambda: ibis.row_number().over(**window, order_by=["p", "q", "i"]),
            lambda: column.cumsum(**window, order_by=["i", "q", "p"]),
        ]
    )()


def random_steps(tables, chance):
    """A random expression with the columns p, q and i: good steps and bad ones."""
    table = tables[chance.randrange(2)]
    for _ in range(chance.randrange(1, 5)):
        other = tables[chance.randrange(2)]
        if chance.random() < 0.3:
            other = other.rename(p="q", q="p")
        other = other.view() if other.equals(table) else other
        by = chance.choice([["p"], ["p", "q"], ["q"], ["p", "i"]])
        table = chance.choice(
            [
                lambda t=table: t.mutate(i=random_value(t, chance)),
                lambda t=table: t.mutate(q=random_value(t, chance)),
                lambda t=table: t.mutate(p=random_value(t, chance)),
                lambda t=table: t.filter(random_value(t, chance) > chance.randrange(3)),
                lambda t=table: t.rename(p="q", q="p"),
                lambda t=table: t.distinct(),
                lambda t=table, o=other: t.union(o.select(*t.columns)),
                lambda t=table, o=other: t.difference(o.select(*t.columns)),
                lambda t=table, by=by: t.group_by("p").aggregate(q=t.q.max(), i=t.count()),
                lambda t=table, by=by: t.group_by(by).aggregate(n=t.count()).select(p=by[0], q=ibis._[by[-1]], i="n"),
                lambda t=table: t.group_by("q").aggregate(p=t.p.min(), i=t.i.sum()),
                lambda t=table: t.fill_null({chance.choice(["p", "q", "i"]): 1}),
                lambda t=table, o=other, by=by: t.join(o, by).select(t.p, t.q, o.i),
                lambda t=table, o=other, by=by: t.join(o, by).select(o.p, t.q, o.i),
                lambda t=table, o=other: t.join(o, t.p == o.q).select(t.p, t.q, o.i),
                lambda t=table, o=other: t.join(o, t.p == o.q).select(o.p, t.q, o.i),
                lambda t=table, o=other: t.left_join(o, "p").select(chance.choice([t.p, o.p]), t.q, o.i),
                lambda t=table, o=other, by=by: t.semi_join(o, by),
                lambda t=table, o=other, by=by: t.anti_join(o, by),
                lambda t=table: t.order_by("i").limit(2),
                lambda t=table: t.filter(t.i >= t.i.max()),
            ]
        )()
        table = table.select(
            *(
                table[name].cast("int64").name(name)
                if table.schema()[name].is_integer() and not table.schema()[name].is_int64()
                else name
                for name in ("p", "q", "i")
            )
        )
    return table


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("made", ["duckdb", "postgres"])
def test_random_steps_that_are_accepted_leave_other_people_alone(made, seed, request):
    """One person is there or not. What is accepted leaves the rows of all others as they are; what isn't, at times.

    A unit that is another column renamed means other people: those of that column.
    """
    chance, made = random.Random(seed), request.getfixturevalue(made)

    def tables(data):  # two tables are two to Ibis, whatever they hold
        kinds = [{**dict.fromkeys("pqi", "BIGINT"), f"of{number}": "BIGINT"} for number in range(2)]
        return [
            made.table(kind, [(*row, 0) for row in rows]).select(*"pqi") for kind, rows in zip(kinds, data, strict=True)
        ]

    samples = [
        [
            [(chance.choice([1, 2, 3, None]), chance.randrange(1, 4), chance.randrange(3)) for _ in range(8)]
            for _ in "ab"
        ]
        for _ in range(4)
    ]
    accepted = refused = harmful = 0
    while accepted < 15:
        shape, data = chance.random(), chance.choice(samples)
        there = tables(data)
        try:
            result = random_steps(there, random.Random(shape))
        except IbisError:  # an ambiguous name
            continue
        reader, passes, reads = _Reader(result), True, []
        try:
            refuse_mixed_people(result, ("p",))
            reads = kinds.refuse_mixing(reader.step(result.op()), ("p",), "", reader.is_same)
        except ValueError:
            passes = False
        whose = [
            next((read.unit for read in reads if read.source == table.op().parent), kinds.Unit((frozenset("p"),)))
            for table in there
        ]
        if passes and any(one is None or one.computed_by or len(one.all) > 1 for one in whose):
            continue
        places = [0 if not passes else "pqi".index(min(one.all)) for one in whose]
        without = tables([[row for row in rows if row[at] != 3] for rows, at in zip(data, places, strict=True)])
        results = [result, random_steps(without, random.Random(shape))]
        try:
            others = [rows_of(made.con, table.filter(table.p.notnull(), table.p != 3)) for table in results]
        except IbisError:  # it has no words for what it made itself
            continue
        same = others[0] == others[1]
        accepted, refused, harmful = accepted + passes, refused + (not passes), harmful + (not same)
        assert same or not passes, made.con.compile(result)
    assert harmful > 3
    assert refused > harmful
