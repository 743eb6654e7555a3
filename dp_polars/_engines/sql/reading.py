"""Read Ibis expressions as the transformations that `_sources/check.py` checks.

Nothing is rewritten, and no row is read.

Views, files and SQL text count as tables: their preprocessing is not visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from dp_polars._base.column_types import must_have
from dp_polars._base.extras import require
from dp_polars._engines.sql import operations
from dp_polars._engines.sql.dialects import TESTED, compiled
from dp_polars._sources import check as kinds
from dp_polars._sources.check import ColumnOrigin, PlanNode, Seen
from dp_polars._sources.marks import Reading

if TYPE_CHECKING:
    from dp_polars._base.column_types import PrivacyUnit


_ops: Any = require("ibis.expr.operations", extra="sql")

# Relations and values of Ibis have no types for mypy here.
Node: TypeAlias = Any
# From a column before a transformation to its name there. None: it belongs to another relation.
_Names: TypeAlias = Callable[[Node], str | None]

_OF_SEVERAL = (_ops.Analytic, _ops.Reduction, _ops.WindowFunction)
_RANDOM = (_ops.RandomScalar, _ops.RandomUUID)
# Computing these again may change them: the last bit of a sum, or the first of equal rows.
_VARYING = (*_OF_SEVERAL, _ops.ScalarUDF, *_RANDOM, _ops.Limit, _ops.Sample, _ops.SQLQueryResult, _ops.SQLStringView)
# Joins that choose one of several partners.
_ONE_OF_SEVERAL = frozenset({"any_inner", "any_left", "asof"})
_ONE_PARTNER = _ONE_OF_SEVERAL | {"anti", "semi"}
_BUILTIN = require("ibis.expr.operations.udf", extra="sql").InputType.BUILTIN
_LEFT_ALONE = frozenset({"anti", "semi"})


def refuse_mixed_people(table: Any, unit: PrivacyUnit | None) -> list[Node]:  # noqa: ANN401
    """Refuse a table expression that visibly mixes people; return the text columns that distinguish them.

    The engine must not treat two values of these columns as equal.

    Raises
    ------
    ValueError
        If a transformation visibly mixes people, or if columns of the unit are missing.
    """
    for name in unit or ():
        must_have(name, table.columns, "privacy unit {}", "table")
    reader = _Reader(table)
    try:
        last = reader.step(table.op())
        reads = kinds.refuse_mixing(last, unit, "table", reader.is_same)
    except RecursionError:
        kinds.refuse("table", kinds.UNKNOWN, "a very deep expression", unit)
    people = [read for read in reads if not read.is_of_facts]
    for number, one in enumerate(people):
        for other in people[:number]:
            if unit and (one.unit is None or one.unit != other.unit) and reader.is_same(one.source, other.source):
                kinds.refuse("table", kinds.TWO_UNITS, "a table that is read twice", unit)
    found: list[tuple[Node, Any]] = [(read.source, read.unit) for read in people if read.unit]
    columns = [table_read.fields[name] for table_read, of in found for name in sorted(of.all)]
    brings_together = any(step.seen or step.pairs for step in last.every)
    return [column for column in dict.fromkeys(columns) if column.dtype.is_string()] if brings_together else []


def differs_between_runs(table: Any) -> bool:  # noqa: ANN401
    """Return whether each read of the rows may differ."""
    joins = table.op().find(_ops.JoinLink)
    return bool(table.op().find(_VARYING)) or any(join.how in _ONE_OF_SEVERAL for join in joins)


def has_text(table: Any) -> bool:  # noqa: ANN401
    """Return whether the SQL fully describes an expression, without Python, clocks, randomness or memory."""
    parts = table.op().find((_ops.Impure, _ops.InMemoryTable))
    return all(getattr(part, "__input_type__", None) is _BUILTIN for part in parts)


def columns_with_values(table: Any) -> frozenset[str]:  # noqa: ANN401
    """Return columns that have a value in every row: by their type, or as the last transformations leave them."""
    known = frozenset(name for name, dtype in table.schema().items() if not dtype.nullable)
    return known | _filled(table.op())


def _filled(node: Node) -> frozenset[str]:
    if not operations.is_of_ibis(node) or not hasattr(node, "parent"):
        return frozenset()
    kind, columns = type(node).__name__, frozenset(node.fields)
    if kind in ("Filter", "Sort", "DropColumns"):
        return _filled(node.parent) & columns
    if kind == "DropNull":
        every = node.how == "any"
        names = columns if node.subset is None else frozenset(one.name for one in node.subset)
        return _filled(node.parent) | (names if every else frozenset())
    if kind == "FillNull":
        return _filled(node.parent) | (
            frozenset(node.replacements) if _maps_to_values(node.replacements) else frozenset()
        )
    if kind == "Project":
        before = _filled(node.parent)
        return frozenset(name for name, value in node.values.items() if _has_value(value, node.parent, before))
    return frozenset()


def _maps_to_values(replacements: Any) -> bool:  # noqa: ANN401
    return isinstance(replacements, Mapping) and all(map(_is_value, replacements.values()))


def _is_value(one: Any) -> bool:  # noqa: ANN401
    if isinstance(one, _ops.Literal):
        one = one.value
    return isinstance(one, (bool, int)) or (isinstance(one, Decimal) and one.is_finite())


def _has_value(value: Node, parent: Node, before: frozenset[str]) -> bool:
    """Return whether there is a value in every row: of a column as it is, or by a constant in the place of null."""
    if isinstance(value, _ops.Field):
        return value.rel == parent and value.name in before
    if not isinstance(value, _ops.Coalesce):
        return False
    # Other values may be made null where they would raise (`Dialect.admit`).
    *columns, last = value.arg
    return all(isinstance(one, _ops.Field) for one in columns) and isinstance(last, _ops.Literal) and _is_value(last)


class _Reader:
    def __init__(self, table: Any) -> None:  # noqa: ANN401
        self.table = table
        self.known: dict[Node, PlanNode] = {}  # an expression may contain a part many times
        self.memory: list[Reading] = []

    def step(self, node: Node) -> PlanNode:
        if node not in self.known:
            self.known[node] = self._step(node)
        return self.known[node]

    def _step(self, node: Node) -> PlanNode:
        columns, kind = [*node.fields], type(node).__name__ if operations.is_of_ibis(node) else ""
        if kind in operations.TABLES:
            cached = _cached(node)
            return PlanNode(columns, source=node) if cached is None else self.step(cached)
        if kind == "JoinChain":
            return self.join(node)
        if kind in operations.SETS:
            together = not isinstance(node, _ops.Union) or node.distinct
            return PlanNode(
                columns,
                (self.step(node.left), self.step(node.right)),
                {name: ColumnOrigin(0, frozenset([name])) for name in columns},
                (Seen(kinds.DISTINCT, shown(node), frozenset(columns)),) if together else (),
            )
        if not hasattr(node, "parent"):
            return PlanNode(columns, seen=(Seen(kinds.UNKNOWN, shown(node)),), source=node)
        below, named, seen = self.step(node.parent), _names_of(node.parent), None
        if kind == "Aggregate":
            keys = _named(_fields(node.groups.values()), named)
            seen = Seen(kinds.AGGREGATION if node.groups else kinds.REDUCTION, shown(node), keys or None)
            return self.made(below, columns, {name: [one] for name, one in node.groups.items()}, named, node, seen)
        if kind == "Distinct":
            seen = Seen(kinds.DISTINCT, shown(node), frozenset(columns))
        elif kind not in operations.ON_ROWS:
            seen = Seen(kinds.PLACE if kind in operations.PICKS else kinds.UNKNOWN, shown(node))
        return self.made(below, columns, {name: _made_of(node, name) for name in columns}, named, node, seen)

    def made(
        self,
        below: PlanNode,
        columns: Sequence[str],
        values: Mapping[str, Sequence[Node]],
        named: _Names,
        node: Node,
        seen: Seen | None = None,
        conditions: Sequence[Node] = (),
    ) -> PlanNode:
        """Return a transformation of each row or group of another one; `conditions` are further expressions in it."""
        found, several = [seen] if seen else [], shown(node) if isinstance(node, _ops.TableUnnest) else ""
        parts = _parts([*(child for child in node.__children__ if isinstance(child, _ops.Value)), *conditions])
        in_windows = {part.func for part in parts if isinstance(part, _ops.WindowFunction)}
        for part in parts:
            if isinstance(part, (_ops.Analytic, _ops.Reduction)) and part not in in_windows:
                found += [] if isinstance(node, _ops.Aggregate) else [Seen(kinds.REDUCTION, shown(part))]
            if isinstance(part, _ops.Subquery):
                below = self.looked_up(below, part, named)
            elif isinstance(part, _ops.Unnest):
                several = shown(part)
            else:
                found += self.seen(part, named)
        origins = {name: _origin(given, named) for name, given in values.items()}
        return PlanNode(
            columns, (below,), {name: one for name, one in origins.items() if one}, tuple(found), None, None, several
        )

    def looked_up(self, below: PlanNode, node: Node, named: _Names) -> PlanNode:
        """Return a look-up in another relation as a join that adds no column."""
        table, pairs, found = node.rel, list[tuple[str, str]](), list[Seen]()
        if isinstance(node, _ops.InSubquery):
            (column,) = table.fields
            name = named(node.needle) if isinstance(node.needle, _ops.Field) else None
            is_one = name is not None and _is_of_one_type(node.needle, table.fields[column])
            pairs = [(name, column)] if is_one and name is not None else []
        elif isinstance(node, _ops.ExistsSubquery) and isinstance(table, _ops.Filter):
            for part in _parts(table.predicates):
                of_others = isinstance(part, (_ops.Subquery, _ops.Unnest, *_OF_SEVERAL))
                found += [Seen(kinds.UNKNOWN, shown(part))] if of_others else self.seen(part, named)
            table, pairs = table.parent, _pairs(table.predicates, named, _names_of(table.parent))
        right = self.step(table)
        if isinstance(node.rel, _ops.Project):
            # Ibis makes a table of the column. Nobody left the others out, which tell whether it is about people.
            right = replace(right, columns=[*right.columns, *table.parent.fields])
        return _joined(below, right, below.columns, {}, pairs, join=shown(node), seen=found)

    def join(self, node: Node) -> PlanNode:
        """Return a join of several tables as joins of two. Columns of later tables are renamed if names clash."""
        below, names = self.step(node.first), {(node.first, name): name for name in node.first.fields}
        joined = {node.first}
        for number, link in enumerate(node.rest, start=1):
            right, renamed = self.step(link.table), dict[str, str]()
            if link.how not in _LEFT_ALONE:
                renamed = {f"{name} of {number}" if name in below.columns else name: name for name in right.columns}

            def named(field: Node, names: Mapping[Any, str] = dict(names)) -> str | None:
                return names.get((field.rel, field.name))

            pairs = _pairs(link.predicates, named, _names_of(link.table))
            several = "" if link.how in _ONE_PARTNER else shown(node)
            below = _joined(below, right, [*below.columns, *renamed], renamed, pairs, several)
            names |= {(link.table, name): new for new, name in renamed.items()}
            joined.add(link.table)
        values = {name: [value] for name, value in node.values.items()}
        conditions = [predicate for link in node.rest for predicate in link.predicates]
        return self.made(
            below, [*values], values, lambda field: names.get((field.rel, field.name)), node, None, conditions
        )

    def seen(self, part: Node, named: _Names) -> list[Seen]:
        """Return the operations in an expression that use several rows, or may use them."""
        if isinstance(part, (_ops.ScalarUDF, _ops.AggUDF)):
            if part.__input_type__ is not _BUILTIN:
                return [Seen(kinds.CODE, f"`{part.__func_name__}(…)`")]
            return [] if self.is_built_in(part) else [Seen(kinds.NAMED, f"`{part.__func_name__}(…)`")]
        kind = type(part).__name__
        if not operations.is_of_ibis(part) or kind not in operations.VALUES:
            return [Seen(kinds.UNKNOWN, shown(part))]
        if kind in operations.PYTHON:
            return [Seen(kinds.CODE, shown(part))]
        if kind == "WindowFunction":
            keys = _named((key for key in part.group_by if isinstance(key, _ops.Field)), named)
            mixing = kinds.WINDOW if part.group_by or part.order_by else kinds.REDUCTION
            return [Seen(mixing, shown(part.func), keys or None)]
        if kind in operations.RANDOM:
            return [Seen(kinds.RANDOM, shown(part))]
        return [Seen(kinds.PLACE, shown(part))] if kind in operations.PLACES else []

    def is_built_in(self, function: Node) -> bool:
        """Return whether the function is the engine's own and depends only on its arguments."""
        name, where = function.__func_name__, function.__udf_namespace__
        wanted = "scalar" if isinstance(function, _ops.ScalarUDF) else "aggregate"
        if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or where.catalog or where.database:
            return False
        with suppress(Exception):  # Ibis may fail to write it, or have no connection
            backend = self.table.get_backend()
            # Ibis writes some names differently, such as YEAR.
            is_written = re.search(rf'(?<![.\w"]){name}\(', compiled(backend, self.table), re.IGNORECASE)
            return bool(is_written and TESTED[backend.name].kind_of_function(backend, name.lower()) == wanted)
        return False

    # --- Tables

    def is_same(self, one: Node, other: Node) -> bool:
        """Return whether two tables may be the same."""
        return not self._keys(one).isdisjoint(self._keys(other))

    def _keys(self, node: Node) -> frozenset[object]:
        if isinstance(node, _ops.SQLStringView):  # SQL text on other tables
            return frozenset[object]([node]).union(*map(self._keys, self.step(node.parent).sources))
        if isinstance(node, _ops.InMemoryTable):
            memory = Reading(memory=node.data.obj)
            number = next((i for i, one in enumerate(self.memory) if one.may_be_one_with(memory)), len(self.memory))
            self.memory += [memory] if number == len(self.memory) else []
            return frozenset([number])
        # Ibis distinguishes one table under two namespaces, or in two cases. Some engines don't.
        return frozenset([node.name.casefold() if isinstance(node, _ops.PhysicalTable) else node])


def _joined(
    left: PlanNode,
    right: PlanNode,
    columns: Sequence[str],
    renamed: Mapping[str, str],
    pairs: Sequence[tuple[str, str]],
    several: str = "",
    join: str = "`.join(…)`",
    seen: Sequence[Seen] = (),
) -> PlanNode:
    """Return a join of two tables; `renamed` has the output columns of the right one."""
    origins = {name: ColumnOrigin(0, frozenset([name])) for name in left.columns}
    origins |= {new: ColumnOrigin(1, frozenset([name])) for new, name in renamed.items()}
    return PlanNode(columns, (left, right), origins, tuple(seen), pairs, None, several, join)


def _pairs(predicates: Sequence[Node], left: _Names, right: _Names) -> list[tuple[str, str]]:
    """Return the pairs of columns that a join requires to be equal, if they have the same type."""
    found, predicates = list[tuple[str, str]](), [*predicates]
    for predicate in predicates:  # the list grows
        if isinstance(predicate, _ops.And):
            predicates += [predicate.left, predicate.right]
        elif isinstance(predicate, _ops.Equals):
            sides = (predicate.left, predicate.right)
            if all(isinstance(side, _ops.Field) for side in sides) and _is_of_one_type(*sides):
                names = ((left(one), right(other)) for one, other in (sides, sides[::-1]))
                found += [(one, other) for one, other in names if one is not None and other is not None]
    return found


def _is_of_one_type(left: Node, right: Node) -> bool:
    """Return whether equality of two columns means equal values, if the engine has one type of texts."""
    one, other = (value.dtype.copy(nullable=True) for value in (left, right))
    return bool(one == other or (one.is_integer() and other.is_integer()) or (one.is_string() and other.is_string()))


def _origin(values: Sequence[Node], named: _Names) -> ColumnOrigin | None:
    """Return the source columns of a computed column. None: it does not depend on its row only."""
    if any(isinstance(part, (*_OF_SEVERAL, *_RANDOM, _ops.Subquery, _ops.Unnest)) for part in _parts(values)):
        return None
    columns = _named(_fields(values), named)
    is_plain = all(isinstance(value, _ops.Field) for value in values)
    return ColumnOrigin(0, columns, "" if is_plain else ", ".join(value.name for value in values)) if columns else None


def _made_of(node: Node, name: str) -> list[Node]:
    """Return the expressions from which a transformation of each row makes a column."""
    if isinstance(node, _ops.Project):
        return [node.values[name]]
    if isinstance(node, _ops.TableUnnest) and name in {node.column_name, node.offset}:
        return []
    if isinstance(node, _ops.FillNull):
        given = node.replacements if isinstance(node.replacements, _ops.Value) else node.replacements.get(name)
        return [node.parent.fields[name], *([given] if isinstance(given, _ops.Value) else [])]
    return [node.parent.fields[name]]


def _names_of(relation: Node) -> _Names:
    return lambda field: field.name if field.rel == relation else None


def _parts(values: Iterable[Node]) -> list[Node]:
    return [*dict.fromkeys(part for value in values for part in value.find(_ops.Node, filter=_ops.Value))]


def _named(fields: Iterable[Node], named: _Names) -> frozenset[str]:
    return frozenset(name for field in fields if (name := named(field)) is not None)


def _fields(values: Iterable[Node]) -> list[Node]:
    return [part for part in _parts(values) if isinstance(part, _ops.Field)]


def _cached(node: Node) -> Node | None:
    """Return the expression behind a table that Ibis caches. None: it is no such table."""
    if not isinstance(node, _ops.DatabaseTable):
        return None
    return getattr(getattr(node.source, "_cache_name_to_entry", {}).get(node.name), "orig_op", None)


# How users write operations with another name.
_SHOWN = {
    "Aggregate": "`.aggregate(…)`",
    "CountStar": "`.count()`",
    "DenseRank": "`ibis.dense_rank()`",
    "ExistsSubquery": "`.any()` of another table",
    "InSubquery": "`.isin(…)` of another table",
    "JoinChain": "`.join(…)`",
    "Limit": "`.limit(…)` (or head)",
    "MinRank": "`ibis.rank()`",
    "NTile": "`ibis.ntile(…)`",
    "RandomScalar": "`ibis.random()`",
    "RandomUUID": "`ibis.uuid()`",
    "RowID": "`.rowid()`",
    "RowNumber": "`ibis.row_number()`",
    "ScalarSubquery": "a reduction inside an expression",
    "StandardDev": "`.std()`",
    "TableUnnest": "`.unnest(…)`",
    "Variance": "`.var()`",
}


def shown(node: Node) -> str:
    """Return how a user may have written an operation."""
    kind = type(node).__name__
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    return _SHOWN.get(kind, f"`.{words}(…)`")
