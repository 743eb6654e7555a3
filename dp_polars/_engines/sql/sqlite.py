"""The ways of SQLite, whose columns may hold values of any type: a value of another type than its column's is null.

SQLite runs in this process, so functions of Python stand in for what it lacks: see below. They take integers, floats
and bytes alone, and raise for none of them.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from dp_polars._base.process import require
from dp_polars._engines.sql.dialects import Dialect, by_column, cast, constant, function, ibis

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import polars as pl
    from numpy.typing import NDArray

    from dp_polars._engines.sql.dialects import Backend, Statement, Table, Value


_ops: Any = require("ibis.expr.operations", extra="sql")
_subqueries: Any = require("sqlglot.optimizer.eliminate_subqueries", extra="sql")

# What the declared type of a column has in its name if texts stay what they are, unless it also has INT.
_TEXTS = ("CHAR", "CLOB", "TEXT")
_PLACE, _QUOTIENT = "dp_polars_place", "dp_polars_quotient"
_DOUBLE, _TOTAL = "dp_polars_double", "dp_polars_total"


# --- What SQLite lacks ----------------------------------------------------------------------------------------------


def _place(secret: str, *values: object) -> int:
    """Return a hash of 64 bits under a key. No value raises: texts come as bytes."""
    found = blake2b(digest_size=8, key=secret.encode())
    for value in values:
        said = value if isinstance(value, bytes) else repr(value).encode()
        found.update(len(said).to_bytes(8, "big"))
        found.update(said)
    return int.from_bytes(found.digest(), "big", signed=True)


def _quotient(number: int | None, by: int) -> int | None:
    """Return the quotient towards 0."""
    if number is None:
        return None
    return number // by if number >= 0 else -(-number // by)


# SQLite's own division of integers is exact, but Ibis has no word for it; its MOD is one of floats.
_quotient_of = function(_QUOTIENT, ("int64", "int64"), "int64")
_float_of = function(_DOUBLE, ("string",), "float64")


@cache
def _place_of(values: int) -> Callable[..., Value]:
    return function(_PLACE, ("string", *[None] * values), "int64")


def _order(person: Sequence[Value], says: Sequence[Value], secret: int) -> Value:
    return _place_of(len(person) + len(says))(ibis.literal(str(secret)), *person, *says)


def _double(number: float) -> Value:
    """Return a constant that is this very float: what SQLite reads of a decimal is at times a neighbouring float."""
    return _float_of(ibis.literal(float(number).hex()))


class _ExactSum:
    """An exact sum, clamped to ±`largest`: SQLite's own raises beyond 64 bits."""

    def __init__(self) -> None:
        self.total = self.largest = 0

    def step(self, number: int | None, largest: int) -> None:
        self.total += number or 0
        self.largest = largest

    def finalize(self) -> int:
        return max(-self.largest, min(self.total, self.largest))


def _total(numbers: Value, largest: int) -> Value:
    total: Value = _total_of(numbers, constant(largest, "int64"))
    return total


@ibis.udf.agg.builtin(name=_TOTAL, signature=(("int64", "int64"), "int64"))  # type: ignore[untyped-decorator]
def _total_of(numbers: Value, largest: Value) -> Value: ...


def _fields(backend: Backend, texts: Sequence[pl.Series]) -> tuple[Table, Sequence[Value]]:
    """Return rows of texts by SQLite's JSON, in which numbers are texts too: it rounds large ones."""
    rows = json.dumps(list(zip(*(text.to_list() for text in texts), strict=True)), ensure_ascii=False)
    names = [f"f{i}" for i in range(len(texts))]
    fields = ", ".join(f"each_row.value ->> '$[{i}]' AS {name}" for i, name in enumerate(names))
    quoted = rows.replace("'", "''")
    # SQLite expects 25 rows of every list, and so would make no index of this one: those of one row multiply that.
    more = "".join(f", json_each('[0]') AS more{i}" for i in range(3))
    sql = f"SELECT {fields} FROM json_each('{quoted}') AS each_row{more}"
    table = _ops.SQLQueryResult(sql, ibis.schema(dict.fromkeys(names, "string")), backend).to_expr()
    return table, [table[name] for name in names]


# --- What is admitted -----------------------------------------------------------------------------------------------


def _admit(backend: Backend, table: Table) -> Table:
    """Return the rows, in which every column holds values of its own type, or null.

    Types must not come from rows: Ibis takes that of the first one where none is declared, and its person would decide
    what counts of all others.
    """
    ((encoding,),) = _rows(backend, "PRAGMA encoding")
    if encoding != "UTF-8":
        msg = f"the database must have the encoding 'UTF-8', got {encoding!r}."
        raise ValueError(msg)
    if _TOTAL not in {name for (name,) in _rows(backend, "SELECT name FROM pragma_function_list")}:
        # What a statement that still runs may use can't be made anew.
        for name, does, arguments in ((_PLACE, _place, -1), (_QUOTIENT, _quotient, 2), (_DOUBLE, float.fromhex, 1)):
            backend.con.create_function(name, arguments, does, deterministic=True)
        backend.con.create_aggregate(_TOTAL, 2, _ExactSum)
    if table.op().find((_ops.RandomScalar, _ops.RandomUUID)):
        msg = (
            "table must not draw at random: SQLite may draw twice, and a person then counts for more than the bounds."
            "\n\nHint: write the drawn rows to a table first."
        )
        raise TypeError(msg)
    for relation in table.op().find(_ops.Relation):
        _check_relation(backend, relation)
    return table.select([_held(table[name]).name(name) for name in table.columns])


def _check_relation(backend: Backend, relation: Any) -> None:  # noqa: ANN401
    names = list(relation.schema)
    if len({name.lower() for name in names}) < len(names):
        msg = f"column names must differ by more than case, which SQLite does not look at, got {names}."
        raise ValueError(msg)
    if isinstance(relation, (_ops.SQLQueryResult, _ops.SQLStringView)):
        msg = (
            "table must not be made of SQL in text: Ibis looks at the first row for the types of its columns."
            "\n\nHint: con.table(…), and steps of Ibis."
        )
        raise TypeError(msg)
    if isinstance(relation, _ops.DatabaseTable):
        declared = _declared(backend, relation)
        untyped = [name for name in names if not declared.get(name)]
        if untyped:
            msg = (
                f"the columns of {relation.name!r} must be declared with types, got none for {untyped}: Ibis looks at "
                "the first row for them.\n\nHint: CREATE TABLE with a type for each column; or, for a view that "
                "computes something, compute it in Ibis."
            )
            raise TypeError(msg)


def _declared(backend: Backend, table: Any) -> dict[str, str]:  # noqa: ANN401
    """Return what the columns of a table are declared as."""
    where = table.namespace.database
    return dict(_rows(backend, "SELECT name, upper(type) FROM pragma_table_info(?, ?)", (table.name, where)))


def _held(value: Value) -> Value:
    """Return a value where it is of its column's type, else null. Numbers that are equal are of both types."""
    kind, stored = value.type(), value.typeof()
    if kind.is_string():
        return ibis.ifelse(stored == "text", value, ibis.null("string"))
    if kind.is_binary():
        return ibis.ifelse(stored == "blob", value, ibis.null("binary"))
    number = ibis.ifelse(stored.isin(["real", "integer"]), cast(value, "float64"), ibis.null("float64"))
    if kind.is_floating():
        return number
    if kind.is_boolean():
        return ibis.cases((number == 1, True), (number == 0, False))
    if not kind.is_signed_integer():
        return value
    # As a column declared INTEGER would take a float; and of 64 bits, whatever the column is called.
    whole = cast(value, "int64")
    is_whole = (stored == "integer") | ((stored == "real") & (value == whole))
    return ibis.ifelse(is_whole, whole, ibis.null("int64"))


def _rows(backend: Backend, sql: str, values: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
    """Return what a statement gives, whatever the connection makes of rows and texts elsewhere."""
    cursor, factory = backend.con.cursor(), backend.con.text_factory
    cursor.row_factory, backend.con.text_factory = None, str
    try:
        found: list[tuple[Any, ...]] = cursor.execute(sql, values).fetchall()
    finally:
        backend.con.text_factory = factory
        cursor.close()
    return found


# --- Statements -----------------------------------------------------------------------------------------------------


def _describe(backend: Backend, table: Table, columns: Collection[str]) -> dict[str, str]:
    """Return the types by Ibis, of which other values are null; of a table's texts what makes numbers of some.

    A column that is declared STRING holds 1 for '001', and '01' of a column of texts is equal to that.
    """
    found = {name: str(table[name].type().copy(nullable=True)) for name in columns}
    declared = _declared(backend, table.op()) if isinstance(table.op(), _ops.DatabaseTable) else {}
    for name, kind in declared.items():
        if found.get(name) == "string" and ("INT" in kind or not any(text in kind for text in _TEXTS)):
            found[name] = kind
    return found


def _compile(backend: Backend, table: Table) -> str:
    """Return the SELECT with all subqueries by name: SQLite's parser takes about a hundred levels of anything."""
    nested = backend.compiler.to_sqlglot(table)
    sql: str = _subqueries.eliminate_subqueries(nested).sql(backend.dialect)
    return sql


def _prepare(backend: Backend, sql: str) -> None:
    _rows(backend, f"EXPLAIN {sql}")


def _fetch(backend: Backend, statement: Statement) -> dict[str, NDArray[Any]]:
    return by_column(statement, _rows(backend, statement.sql))


SQLITE = Dialect(
    name="sqlite",
    types={"boolean": "boolean", "int64": "integer", "float64": "floating", "string": "string"},
    unit_types=frozenset({"binary"}),
    way_out="cast it in Ibis first: dates and decimals to text, or to integers; of a table, declare texts as TEXT.",
    describe=_describe,
    prepare=_prepare,
    divide=_quotient_of,
    # A BLOB has no collation.
    binary=lambda text: cast(text, "binary"),
    order=_order,
    fetch=_fetch,
    oldest=(3, 40),
    nan_in_floats=False,
    admit=_admit,
    double=_double,
    remainder=lambda number, by: number - _quotient_of(number, by) * by,
    total=_total,
    compile=_compile,
    fields=_fields,
)
