"""The differences between engines: integer division, text, hashes, and the names of types.

Ibis divides integers as floats on most engines and does not report collations, so dialects cover both.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dp_polars._base.extras import require

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray


ibis: Any = require("ibis", extra="sql")
_ops: Any = require("ibis.expr.operations", extra="sql")
_sql: Any = require("sqlglot.expressions", extra="sql")
_parsed: Any = require("sqlglot", extra="sql").parse_one

# Columns, scalars, tables and connections of Ibis have no types for mypy here.
Value: TypeAlias = Any
Table: TypeAlias = Any
Backend: TypeAlias = Any
#: The part of each spec in a SELECT, and the name of its numbers.
Places: TypeAlias = "Sequence[tuple[int, str]]"

#: Placeholders for the secrets of the orders of groups and rows, until a text is sent. They are no numbers, so a text
#: that is sent with them fails.
OF_GROUPS, OF_ROWS = secrets.token_hex(16), secrets.token_hex(16)
_SECRET_BITS = 63  # fits the integers of all engines


def cast(value: Value, dtype: Value) -> Value:
    """Return a CAST that Ibis writes even if it seems needless: from an enum to text, or of a wide sum."""
    return _ops.Cast(value, to=ibis.dtype(dtype)).to_expr()


def constant(number: float | str, dtype: Value) -> Value:
    """Return a typed constant as a cast of its text: it is rounded correctly, and its sign is no operator.

    Without quotes, DuckDB reads 0.1 as a decimal and converts it to a different float.
    Postgres reads -9223372036854775808 as a number of more than 64 bits.
    """
    return ibis.literal(number if isinstance(number, str) else repr(number)).cast(dtype)


def function(name: str, takes: Sequence[str | None], gives: str) -> Callable[..., Value]:
    """Return an engine's function by name, with the types of its arguments (None: any) and result."""

    def of_any(*arguments: Value) -> Value: ...

    names = [f"argument{i}" for i in range(len(takes))]
    one_each = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    of_any.__signature__ = Signature(one_each)  # type: ignore[attr-defined]
    engine_function: Callable[..., Value] = ibis.udf.scalar.builtin(of_any, name=name, signature=(tuple(takes), gives))
    return engine_function


_divide = function("divide", ("int64", "int64"), "int64")
_int8div = function("int8div", ("int64", "int64"), "int64")
_encode = function("encode", ("string",), "binary")
_round = function("round", (None, "int32"), "decimal")  # Ibis has no type for decimals with any number of digits
_hash = function("hash", (None,), "uint64")
_xor = function("xor", ("uint64", "uint64"), "uint64")
_mod = function("mod", ("uint64", "uint64"), "uint64")
_bit_count = function("bit_count", ("int64",), "int8")
_list_select = function("list_select", ("array<int64>", "array<int64>"), "array<int64>")
_list_grade_up = function("list_grade_up", ("array<uint64>",), "array<int64>")
_list_position = function("list_position", ("array<binary>", "binary"), "int32")
_hash_text = function("hashtextextended", ("string", "int64"), "int64")


def _order_duckdb(person: Sequence[Value], says: Sequence[Value], secret: str) -> Value:
    place = _hash(_xor(_hash(person[0]), constant(secret, "uint64")))
    for value in (*person[1:], *says):
        place = _hash(_xor(place, _hash(value)))
    return place


def _order_postgres(person: Sequence[Value], says: Sequence[Value], secret: str) -> Value:
    # Postgres folds a 64-bit integer into 32 bits before hashing, so texts are hashed. Seeded hashes of short texts are
    # not uniform in the upper half: some orders of four rows came twice as often as others. Hashing the hash fixes
    # that.
    seed = constant(secret, "int64")
    place = _hash_text(cast(person[0], "string"), seed)
    for value in (*person[1:], *says):
        place = _hash_text(cast(value, "string"), place)
    return _hash_text(cast(place, "string"), seed)


class Common:
    """Named tables of one statement. Each is computed once, so it is the same at each use.

    Engines would compute some tables again, and Ibis writes some of them twice.
    Then rows that the caller samples at random would be two different samples.

    Parameters
    ----------
    is_prepared
        Whether each read of the rows may differ, as sums of floats do in their last bits.
    """

    def __init__(self, *, is_prepared: bool = False) -> None:
        self.is_prepared = is_prepared
        self.tables: dict[str, Table] = {}

    def read_again(self, table: Table, columns: Collection[str]) -> Table:
        """Return the rows for a statement that reads these columns several times, always with the same values."""
        if not self.is_prepared or isinstance(table.op(), _ops.UnboundTable):  # named, so it is computed once anyway
            return table
        rows = self.once(table.select(*columns) if columns else table)
        return _ops.DatabaseTable(rows.get_name(), rows.schema(), table.get_backend()).to_expr()

    def once(self, table: Table) -> Table:
        """Name a table. The name contains the secret, so no table of the database has it."""
        for name, one in self.tables.items():
            if one.equals(table) or ibis.table(table.schema(), name=name).equals(table):
                return ibis.table(table.schema(), name=name)
        name = f"dp_polars_{OF_GROUPS}_{len(self.tables)}"
        self.tables[name] = table
        return ibis.table(table.schema(), name=name)


@dataclass(frozen=True)
class Select:
    """A SELECT of integers, and of texts if keys are selected.

    Parameters
    ----------
    sql
        Its text, with placeholders for secrets until it is `sealed`.
    types
        Its columns with their Ibis types.
    """

    sql: str
    types: Value

    @classmethod
    def of(cls, backend: Backend, table: Table, common: Common | None = None) -> Select:
        tables = {} if common is None else common.tables
        try:
            named = [(name, compiled(backend, one)) for name, one in tables.items()]
            last = compiled(backend, table)
        except RecursionError:
            msg = (
                "a release in a database must have fewer outputs: Ibis can't write so long a statement.\n\n"
                "Hint: request some of them in a release of their own."
            )
            raise ValueError(msg) from None
        quoted = [(_sql.to_identifier(name, quoted=True).sql(backend.dialect), one) for name, one in named]
        texts = ", ".join(f"{name} AS MATERIALIZED ({one})" for name, one in quoted)
        sql = f"WITH {texts} SELECT * FROM ({last}) AS counted" if named else last
        return cls(sql, table.schema())

    def sealed(self, secret: int | None = None) -> Select:
        """Fill in a secret, drawn unless it is given. The result is sent once."""
        secret = secrets.randbits(_SECRET_BITS) if secret is None else secret
        text = self.sql.replace(OF_GROUPS, str(secret)).replace(OF_ROWS, str(secret ^ 1))
        return Select(text, self.types)

    def prepare(self, backend: Backend, dialect: Dialect, written: Callable[[], Sequence[Table]]) -> None:
        """Make the engine check that it can run this; a TypeError names the missing function.

        `written` returns the Ibis tables of the statement.
        """
        try:
            dialect.prepare(backend, self.sql)
        except Exception as error:
            # The engine's own message quotes the statement, and so the secret.
            missing = _missing(written(), backend, dialect)
            found = f"but has no {missing}" if missing else f"got {type(error).__name__}"
            msg = f"{backend.name} must know all that a release needs, {found}."
            raise TypeError(msg) from None

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        columns: Sequence[str] = self.types.names
        return columns

    @property
    def is_of_integers(self) -> bool:
        """Whether all columns are integers."""
        return all(kind.is_integer() for kind in self.types.types)


@dataclass
class Written:
    """A statement, the places of its numbers, and the last connection with a number that it returned."""

    statement: Select
    places: Places
    asked: tuple[Callable[[], Backend | None], int] = (lambda: None, 0)

    def answer_of(self, backend: Backend) -> int | None:
        """Return the number from this very connection, if it was used last."""
        of, number = self.asked
        return number if of() is backend else None


def _missing(tables: Sequence[Table], backend: Backend, dialect: Dialect) -> str | None:
    """Return the name of the first function that the engine can't run with nulls. None: it can run all."""
    for table in tables:
        for node in table.op().find(_ops.ScalarUDF):
            constants = [
                arg if isinstance(arg, _ops.Literal) else _ops.Literal(None, arg.dtype.copy(nullable=True))
                for arg in node.args
            ]
            asked = type(node)(*constants).to_expr().name("found").as_table()
            try:
                dialect.prepare(backend, compiled(backend, asked))
            except Exception:
                return f"function {node.__func_name__!r}"
    return None


def compiled(backend: Backend, table: Table) -> str:
    sql: str = backend.compile(table, limit=None)
    # Ibis writes lambdas in a syntax that DuckDB 2 has dropped.
    return re.sub(r"(__ibis_param_\w+__) -> ", r"LAMBDA \1: ", sql) if backend.name == "duckdb" else sql


def all_rows(tables: Sequence[Table]) -> Table:
    """Unite tables in one call: Ibis writes a tree then. Repeated calls would give a deeply nested text."""
    return tables[0].union(*tables[1:]) if len(tables) > 1 else tables[0]


def equal_ones_together(rows: Table) -> Table:
    """Return each distinct row once, with the number of its `copies`."""
    return rows.group_by(rows.columns).aggregate(copies=rows.count())


def _copies_duckdb(rows: Table, _: Sequence[str]) -> Table:
    # Rows that agree in the columns that are read agree in all columns. Grouping is faster than a window.
    distinct = equal_ones_together(rows)
    return distinct.mutate(copy=ibis.range(distinct["copies"]).unnest()).drop("copies")


def _drawn_duckdb(numbers: Value, most: int, place: Value) -> Value:
    # Places in the sorted list distinguish equal numbers, so each number has its own hash.
    order = _list_grade_up(ibis.range(numbers.length()).map(lambda i: _hash(_xor(place, _hash(i)))))
    return _list_select(numbers.sort(), order[:most])


def _differ_duckdb(numbers: Value, count: Value) -> Value:
    # One bit for each number: equal numbers share a bit, and some different ones do too.
    bits = constant("1", "int64") << cast(_mod(cast(numbers, "uint64"), constant("62", "uint64")), "int32")
    return cast(_bit_count(bits.bit_or()), "int64") == count


def _race(lowest: int, place: Value, copies: Value) -> Value:
    # The minimum of c exponential numbers has the law of one of them divided by c. No hash leads to the logarithm of 0,
    # and no time is as large as 2**6.
    number = cast(place, "float64") - constant(float(lowest), "float64") + constant(1.0, "float64")
    time = -(number * constant(2.0**-64, "float64")).ln() / cast(copies, "float64")
    return cast(time * constant(2.0**57, "float64"), "int64")


@dataclass(frozen=True)
class Dialect:
    """One engine's dialect.

    Parameters
    ----------
    name
        Its name in Ibis.
    types
        The engine's names for types that can be queried, each with the family that Ibis must show. The engine
        distinguishes the same values of these types as Polars does. Ibis' types are not enough: it shows padded,
        case-insensitive and enumerated text as strings, 128-bit integers as decimals, and guesses the types of
        computed columns.
    unit_types
        More types that a privacy unit may have.
    way_out
        A hint for columns of another type.
    describe
        Connection, table, columns -> the engine's names for their types. Reads no row.
    prepare
        Connection, SELECT -> an error if the engine can't run it. Reads no row and no statistics of rows: it only
        resolves names.
    divide
        64-bit integers, a positive divisor -> the quotient rounded towards 0, exactly.
    binary
        Text -> a value that is equal only if the text is equal byte by byte.
    order
        Columns of the person, values, the text of a secret -> a random place in the order of a person's rows. It
        hashes one column after the other, so that no order remains visible in the next.
    fetch
        Connection, statement -> its result: int64, or objects with text or with the bytes of text.
    oldest
        The oldest version with all that is needed.
    kind_of_function
        Connection, a name in small letters -> "scalar" or "aggregate" if it is the engine's own function, means the
        same for everybody who may be queried, and depends only on its arguments. None otherwise.
    nan_in_decimals
        Whether a decimal may be NaN.
    admit
        Connection, rows -> these rows, with null if a transformation would raise on a row, if the engine can do that.
        Reads no row.
    copies
        Rows, all their columns that are read -> the rows with numbers, `copy`, that distinguish equal rows.
    drawn
        A list of integers, a number, a random place -> at most that number of them, in a random order that depends
        only on the place. All are equally likely, including equal ones. For engines that sort lists faster than they
        number rows. None: windows are used.
    race
        A random place, a number of rows -> the minimum of that number of random times, as a signed integer.
    time
        A random place -> a random time of one row, as a signed integer.
    differ
        Numbers from 0 on of rows, the number of rows -> an aggregate that is true only if all are distinct; it may be
        false for distinct ones, too. None: the engine has no such aggregate.
    place
        A value, others -> the index, from 0, of the equal one among them, or null. For engines that find it faster
        than by a join. None: a join is used.
    has_structs
        Whether it can find the smallest struct.
    cast
        Values, a type -> the converted values, without an error if the engine has such a cast.
    written
        Statements by digests of their subjects.
    """

    name: str
    types: dict[str, str]
    unit_types: frozenset[str]
    way_out: str
    describe: Callable[[Backend, Table, Collection[str]], dict[str, str]]
    prepare: Callable[[Backend, str], None]
    divide: Callable[[Value, Value], Value]
    binary: Callable[[Value], Value]
    order: Callable[[Sequence[Value], Sequence[Value], str], Value]
    fetch: Callable[[Backend, Select], dict[str, NDArray[Any]]]
    kind_of_function: Callable[[Backend, str], str | None]
    race: Callable[[Value, Value], Value]
    time: Callable[[Value], Value]
    oldest: tuple[int, int]
    nan_in_decimals: bool = False
    admit: Callable[[Backend, Table], Table] = lambda _, table: table
    copies: Callable[[Table, Sequence[str]], Table] = lambda rows, says: rows.mutate(
        copy=ibis.row_number().over(group_by=says)
    )
    drawn: Callable[[Value, int, Value], Value] | None = None
    differ: Callable[[Value, Value], Value] | None = None
    place: Callable[[Value, Sequence[Value]], Value] | None = None
    has_structs: bool = False
    cast: Callable[[Value, Value], Value] = cast

    written: dict[str, Written] = field(default_factory=dict, init=False, repr=False, compare=False)

    def settled(self, table: Table, types: Mapping[str, str]) -> dict[str, Value]:
        """Cast columns to the types that Ibis shows, if `types` has another family than Ibis guesses.

        DuckDB truncates a date to a timestamp, and adds up integers in more than 64 bits.
        Decimals of any size become floats. None of this raises.
        """
        settled = {}
        for name, kind in types.items():
            value, family, guessed = table[name], self.types.get(kind.partition("(")[0]), table[name].type()
            if family == "floating" and guessed.is_decimal():
                settled[name] = cast(value, "float64")
            elif family == "decimal" and guessed.is_decimal() and guessed.precision is None:
                ends = (constant(f"{sign}1e300", "decimal") for sign in ("-", ""))
                rounded = ibis.greatest(next(ends), ibis.least(_round(value, constant(300, "int32")), next(ends)))
                is_number = value != constant("NaN", "decimal") if self.nan_in_decimals else value.notnull()
                settled[name] = ibis.ifelse(is_number, cast(rounded, "float64"), ibis.null("float64"))
            elif (guessed.is_date() and kind.lower().startswith("timestamp")) or (
                guessed.is_signed_integer() and family != "integer"
            ):
                settled[name] = self.cast(value, guessed)
        return settled

    def check_version(self, version: str) -> None:
        """Refuse old versions."""
        numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
        if not tuple(numbers) >= self.oldest:
            msg = f"{self.name} must be of version {'.'.join(map(str, self.oldest))} or newer, got {version}."
            raise ValueError(msg)


_FALLIBLE = (
    *(_sql.Add, _sql.BitwiseLeftShift, _sql.BitwiseRightShift, _sql.Div, _sql.Func, _sql.IntDiv, _sql.Mod, _sql.Mul),
    *(_sql.Neg, _sql.Sub),
)
# DuckDB rejects these in a TRY, or handles their parts separately.
_NOT_IN_TRY = (_sql.AggFunc, _sql.Lambda, _sql.Query, _sql.Subquery, _sql.Unnest, _sql.Explode, _sql.Window)
_CHOICES = (_sql.And, _sql.Case, _sql.Coalesce, _sql.If, _sql.Or)


def _lenient(backend: Backend, table: Table) -> Table:
    """Return the rows of an expression, with null if a function, a cast or arithmetic on a row's values raises.

    Each such node has its own TRY. DuckDB moves an expression out of two nested TRYs, but not if it is a TRY itself.
    Aggregates and windows can't be wrapped. Expressions that DuckDB rejects this way stay unchanged.
    """
    if isinstance(table.op(), _ops.DatabaseTable):
        return table
    with suppress(Exception):  # the expression itself raises this again, before the charge
        backend._run_pre_execute_hooks(table)  # tables that Ibis holds in memory
        # Parse the SQL: parts of Ibis' tree have several places, and a walk misses some.
        tree = _parsed(backend.compile(table, limit=None), read=backend.dialect)
        for node in reversed([*tree.find_all(_sql.Cast, *_FALLIBLE)]):
            _wrap(node)
        sql = tree.sql(backend.dialect)
        backend.raw_sql(f"DESCRIBE {sql}").fetchall()
        return _ops.SQLQueryResult(sql, table.schema(), backend).to_expr()
    return table


def _wrap(node: Any) -> None:  # noqa: ANN401
    """Put a node into a TRY, or make a cast a TRY_CAST."""
    if node.find(_sql.Identifier) is None or isinstance(node, _CHOICES):
        return
    if type(node) is _sql.Cast:
        node.replace(_sql.TryCast(this=node.this, to=node.to))
    elif node.find(*_NOT_IN_TRY) is None and not isinstance(node.parent, (_sql.Window, _sql.Filter, _sql.IgnoreNulls)):
        node.replace(_sql.Anonymous(this="TRY", expressions=[node.copy()]))


def _describe_duckdb(backend: Backend, table: Table, columns: Collection[str]) -> dict[str, str]:
    if not columns:
        return {}
    try:
        found = backend.raw_sql(f"DESCRIBE {backend.compile(table.select(*columns), limit=None)}").fetchall()
    except Exception as error:
        if type(error).__name__ != "FatalException":
            raise
        found = None
    if found is None:  # raised here: the error quotes the earlier one, which may contain values of rows
        msg = "the database can't be queried: DuckDB has failed on an earlier statement.\n\nHint: connect anew."
        raise RuntimeError(msg)
    return {row[0]: row[1] for row in found}


def _fetch_duckdb(backend: Backend, statement: Select) -> dict[str, NDArray[Any]]:
    found = backend.raw_sql(statement.sql).fetchnumpy()
    return {name: found[name] for name in statement.columns}


# Functions of DuckDB that read the session, plans or storage, or call their argument.
_OF_THE_SESSION = frozenset(
    {
        *("current_database", "current_schema", "current_schemas", "current_setting", "getvariable", "in_search_path"),
        *("index_key", "invoke", "json_serialize_plan", "vector_type", "version"),
    }
)
_FUNCTIONS_OF_DUCKDB = """SELECT database_name, schema_name, function_type, CAST(parameter_types AS VARCHAR),
return_type, stability FROM duckdb_functions() WHERE lower(function_name) = '{}'"""


def _function_of_duckdb(backend: Backend, name: str) -> str | None:
    sql = _FUNCTIONS_OF_DUCKDB.format(name)
    found = frozenset(backend.raw_sql(sql).fetchall())
    # DuckDB calls a Python function internal, too. So compare with a fresh connection.
    if name in _OF_THE_SESSION or found != _functions_of_new_duckdb(sql):
        return None
    depends = [
        stability == "CONSISTENT" or (stability == "CONSISTENT_WITHIN_QUERY" and takes != "[]")
        for *_, takes, _, stability in found
    ]
    kinds = {kind for _, _, kind, *_ in found}
    return kinds.pop() if len(kinds) == 1 and all(depends) else None


@cache
def _functions_of_new_duckdb(sql: str) -> frozenset[tuple[str, ...]]:
    with require("duckdb", extra="sql").connect() as connection:
        return frozenset(connection.execute(sql).fetchall())


def _function_of_postgres(backend: Backend, name: str) -> str | None:
    # A function of that name in another schema may be the one that is called. Object ids from 16384 on are users' own.
    with backend.begin() as cursor:
        found = cursor.execute(
            "SELECT DISTINCT p.prokind::text, n.nspname = 'pg_catalog' AND p.oid < 16384 AND p.provolatile = 'i' "
            "AND NOT p.proretset FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n "
            f"ON n.oid = p.pronamespace WHERE pg_catalog.lower(p.proname::text) = '{name}'"
        ).fetchall()
    if len(found) != 1 or not found[0][1]:
        return None
    return {"f": "scalar", "a": "aggregate"}.get(found[0][0])


def _describe_postgres(backend: Backend, table: Table, columns: Collection[str]) -> dict[str, str]:
    """Return the types' own names, or `NAME(COLLATION)` if a collation treats different texts as equal.

    The join's condition is false, so it reads no row of the table.
    """
    renamed = {f"c{i}": table[name] for i, name in enumerate(columns)}
    texts = {f"c{i}" for i, name in enumerate(columns) if table.schema()[name].is_string()}
    described = [f"pg_catalog.pg_typeof(r.{name})::text" for name in renamed]
    described += [
        "(SELECT n.collname::text FROM pg_catalog.pg_collation AS n WHERE NOT n.collisdeterministic "
        f"AND n.oid = pg_catalog.pg_collation_for(r.{name} || '')::regcollation)"
        for name in texts
    ]
    settings = ("server_encoding", "client_encoding", "standard_conforming_strings")
    described += [f"current_setting('{name}')" for name in settings]
    sql = f"SELECT {', '.join(described)}"
    if columns:
        rows = backend.compile(table.select(**renamed), limit=None)
        sql += f" FROM (SELECT 1 AS one) AS o LEFT JOIN ({rows}) AS r ON FALSE"
    with backend.begin() as cursor:
        (row,) = cursor.execute(sql).fetchall()
    if row[-len(settings) :] != ("UTF8", "UTF8", "on"):
        msg = f"the database must have the settings {settings} of ('UTF8', 'UTF8', 'on'), got {row[-len(settings) :]}."
        raise ValueError(msg)
    collations = dict(zip(texts, row[len(columns) :], strict=False))
    return {
        name: kind if collations.get(f"c{i}") is None else f'text with the collation "{collations[f"c{i}"]}"'
        for i, (name, kind) in enumerate(zip(columns, row, strict=False))
    }


def _prepare_postgres(backend: Backend, sql: str) -> None:
    name = f"dp_polars_{secrets.token_hex(8)}"
    with backend.begin() as cursor:
        cursor.execute(f"PREPARE {name} AS {sql}")
        cursor.execute(f"DEALLOCATE {name}")


def _fetch_postgres(backend: Backend, statement: Select) -> dict[str, NDArray[Any]]:
    # Not by Ibis' batches: with a cursor, Postgres uses only one process.
    with backend.begin() as cursor:
        rows = cursor.execute(statement.sql).fetchall()
    found = np.array(rows, np.int64 if statement.is_of_integers else object)
    found = found.reshape(len(rows), len(statement.columns)).T
    return dict(zip(statement.columns, found, strict=True))


def _types_of(**families: str) -> dict[str, str]:
    """Return type -> the family that Ibis must show."""
    return {kind: family for family, kinds in families.items() for kind in kinds.split(", ")}


DUCKDB = Dialect(
    name="duckdb",
    types=_types_of(
        boolean="BOOLEAN",
        integer="TINYINT, SMALLINT, INTEGER, BIGINT",
        floating="FLOAT, DOUBLE",
        decimal="DECIMAL",
        string="VARCHAR, ENUM",
        date="DATE",
        time="TIME",
        timestamp="TIMESTAMP",
    ),
    unit_types=frozenset(
        {
            *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT", "BLOB", "UUID"),
            *("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
        }
    ),
    way_out="cast it in Ibis first.",
    describe=_describe_duckdb,
    prepare=lambda backend, sql: backend.raw_sql(f"DESCRIBE {sql}").fetchall(),
    divide=_divide,
    # A BLOB uses no collation, of a column or of the session.
    binary=lambda text: _encode(cast(text, "string")),
    order=_order_duckdb,
    fetch=_fetch_duckdb,
    kind_of_function=_function_of_duckdb,
    copies=_copies_duckdb,
    drawn=_drawn_duckdb,
    differ=_differ_duckdb,
    place=lambda value, others: cast(_list_position(ibis.array(others), value), "int64") - constant(1, "int64"),
    race=partial(_race, 0),
    time=lambda place: cast(place >> constant(1, "int32"), "int64"),
    has_structs=True,
    admit=_lenient,
    cast=lambda value, dtype: _ops.TryCast(value, to=dtype).to_expr(),
    # Older versions read a table twice if a statement names it twice: random rows of the caller would be two samples.
    oldest=(1, 4),
)
POSTGRES = Dialect(
    name="postgres",
    types=_types_of(
        boolean="boolean",
        integer="smallint, integer, bigint",
        floating="real, double precision",
        decimal="numeric",
        string="text, character varying",
        date="date",
        time="time without time zone",
        timestamp="timestamp without time zone",
    ),
    unit_types=frozenset({"uuid", "bytea", "timestamp with time zone"}),
    way_out='query a view in which it is cast: CAST(column AS text) COLLATE "C", for a text.',
    describe=_describe_postgres,
    prepare=_prepare_postgres,
    divide=_int8div,
    binary=lambda text: text,  # collations that treat different texts as equal are refused
    order=_order_postgres,
    fetch=_fetch_postgres,
    kind_of_function=_function_of_postgres,
    race=partial(_race, -(2**63)),
    time=lambda place: place,
    oldest=(13, 0),
    nan_in_decimals=True,
)

#: The engines with tests, by name.
TESTED = {dialect.name: dialect for dialect in (DUCKDB, POSTGRES)}
