"""Steps in Ibis: the proof that a row of a table expression follows from one row, or from the rows of one person.

What is claimed per person rests on it. An expression of Ibis is a tree: it is walked from its end to its beginning,
against the tables of step_rules.py, and the privacy unit is followed on the way, through renames, groups and joins.
Nothing is rewritten, and no row is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NoReturn

from dp_polars._base.extras import require
from dp_polars._relational import step_rules as rules
from dp_polars._relational.column_types import must_have
from dp_polars._relational.overflow import Overflow
from dp_polars._relational.values import (
    flat,
    is_constant,
    is_exact,
    is_of_one_type,
    is_value,
    operation_of,
)
from dp_polars._rowwise.one_unit import Reading, Whose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._relational.values import Node
    from dp_polars._rowwise.rules import Rule

_ops: Any = require("ibis.expr.operations", extra="sql")


def refuse_unsafe_steps(table: Any, unit: PrivacyUnit | None, backend: str) -> list[Node]:  # noqa: ANN401
    """Refuse a table expression in which one person's rows may depend on those of others.

    Parameters
    ----------
    table
        An Ibis table expression. What a table of the database holds, a view for one, is not looked at.
    unit
        The columns that say whose a row is. None: each row is a person, so a step must make at most one row of each.
    backend
        What Ibis calls the engine.

    Returns
    -------
    list
        Columns of texts by which a step tells people apart: a collation must not take two of them for one.

    Raises
    ------
    ValueError
        If a step is not known to look at one row, or at the rows of one person; if it raises on values that a column
        may well have, such as 0 as a divisor; or if the columns of the unit are not there.
    """
    for name in unit or ():
        must_have(table, name, "the privacy unit")
    gate = _Gate(backend, has_unit=unit is not None)
    try:
        gate.rows(table.op(), _Whose(unit or ()))
    except RecursionError:
        msg = (
            "table: the expression must be one that can be inspected, got a very deep one.\n\n"
            "Hint: make a view of its first steps."
        )
        raise ValueError(msg) from None
    return gate.finish()


@dataclass(frozen=True)
class _Whose:
    """The columns of a relation that say whose a row is.

    `computed_by`: the step after this relation that computes one of them. They are that step's columns then.
    """

    columns: tuple[str, ...]
    computed_by: Node = None

    @property
    def is_known(self) -> bool:
        return self.computed_by is None

    def before(self, step: Node, parent: Node, outputs: Sequence[Node]) -> _Whose:
        """Return what is known of the rows before a step, whose columns are made by these expressions."""
        if not self.is_known:
            return self
        if all(type(value) is _ops.Field and value.rel == parent for value in outputs):
            return _Whose(tuple(value.name for value in outputs))
        return _Whose(self.columns, step)


@dataclass(frozen=True)
class _Place:
    """Where an expression stands.

    `relations`: whose columns it may read. `people`: the columns that say whose a row is; None: not known, or each row
    is a person. `in_group`: it gives one value for a group. `inside`: it is given to a function of a group or a window.
    """

    relations: tuple[Node, ...]
    people: tuple[Node, ...] | None = None
    in_group: bool = False
    inside: bool = False
    orders: set[tuple[Node, ...]] = field(default_factory=set)  # in which windows number rows
    seen: set[tuple[Node, bool]] = field(default_factory=set)  # a part may stand in an expression many times


class _Gate:
    """Walks relations and values, and refuses what is not known."""

    def __init__(self, backend: str, *, has_unit: bool) -> None:
        self.has_unit = has_unit
        self.overflow = Overflow(backend)
        self.whose: dict[object, _Whose] = {}  # by table
        self.public: set[object] = set()
        self.units: list[Node] = []  # columns that say whose a row is, where they begin
        self.brings_together = False  # whether a step does that with the rows of a person
        self.seen: set[tuple[Node, _Whose]] = set()  # a part may stand in an expression many times

    # --- Relations

    def rows(self, node: Node, whose: _Whose) -> None:
        """Refuse a relation, or one that it is made of; `whose` is said of its rows."""
        if (node, whose) in self.seen:
            return
        self.seen.add((node, whose))
        kind = operation_of(node)
        if kind in rules.TABLES:
            cached = _cached(node)
            if cached is not None:
                self.rows(cached, whose)
                return
            # To Ibis, one table under two namespaces is two, or in two cases, of which some engines see one.
            table = node if kind == "InMemoryTable" else node.name.casefold()
            if self.whose.setdefault(table, whose) != whose:
                self.refuse(rules.TWICE, f"the table {node.name!r}")
            self.begin(node, whose)
        elif kind in rules.SAME_ROWS:
            self.rows(node.parent, whose)
        elif kind in rules.ONE_BY_ONE:
            self.one_by_one(node, kind, whose)
        elif kind in rules.SETS:
            self.set_of_rows(node, kind, whose)
        elif kind == "Aggregate":
            self.groups(node, whose)
        elif kind == "JoinChain":
            self.join(node, whose)
        else:
            self.refuse_unlisted(node)

    def finish(self) -> list[Node]:
        """Refuse a table in memory that stands for public rows and for private ones; return the columns of texts."""
        private = [_in_memory(node, of) for node, of in self.whose.items() if not isinstance(node, str)]
        public = [_in_memory(node, _Whose(())) for node in self.public]
        for one, other in combinations(private, 2):
            if not one.has_unit_of(other) and one.may_be_one_with(other):
                self.refuse(rules.TWICE, "an ibis.memtable")
        if any(one.may_be_one_with(other) for one in private for other in public):
            self.refuse(rules.PUBLIC_TWICE, shown("JoinChain"))
        return [column for column in self.units if column.dtype.is_string()] if self.brings_together else []

    def one_by_one(self, node: Node, kind: str, whose: _Whose) -> None:
        """Refuse a step on each row that has an expression of another kind."""
        outputs = dict(node.parent.fields)
        expressions: Iterable[Node] = ()
        match kind:
            case "Project":
                outputs, expressions = node.values, node.values.values()
            case "Filter":
                expressions = node.predicates
            case "Sort":
                expressions = [key.arg for key in node.keys]
            case "DropNull":
                expressions = node.subset or ()
            case "FillNull":
                # One value fills all columns that may have it.
                given = node.replacements
                by_name = dict.fromkeys(outputs, given) if isinstance(given, _ops.Value) else given
                filled = {name: value for name, value in by_name.items() if outputs[name].dtype.nullable}
                expressions = [_ops.Coalesce((outputs[name], value)) for name, value in filled.items()]
                outputs |= dict.fromkeys(by_name)
            case "TableUnnest":
                self.refuse_several_rows(kind)
                outputs |= dict.fromkeys((node.column_name, node.offset))
                expressions = [node.column]
        below = whose.before(node, node.parent, [outputs[name] for name in whose.columns] if whose.is_known else ())
        if not below.is_known:
            self.begin(node, whose)
            several = next(iter(node.find(_ops.Unnest, filter=lambda part: part is node or is_value(part))), None)
            if kind == "TableUnnest" or several is not None:
                self.refuse(rules.SEVERAL_UNITS, shown("Unnest"))
        self.values(expressions, self.place(node.parent, below))
        self.rows(node.parent, below)

    def begin(self, node: Node, whose: _Whose) -> None:
        """Note the columns of the unit, which are what a table holds or a step computes."""
        if whose.is_known:
            self.units += [node.fields[name] for name in whose.columns]

    def set_of_rows(self, node: Node, kind: str, whose: _Whose) -> None:
        """Refuse a comparison of rows of several people."""
        if kind == "Union" and not node.distinct:
            self.refuse_several_rows(kind)
            if not whose.is_known and _tables(node.left) & _tables(node.right):
                self.refuse(rules.SEVERAL_UNITS, shown(kind))
        elif not self.has_unit or not whose.is_known:
            self.refuse(rules.SET_OF_PEOPLE, shown(kind), _computed(whose))
        else:
            self.brings_together = True
            self.refuse_inexact(node.fields.values(), kind)
        if kind != "Distinct":
            for name in node.fields:
                if self.overflow.mixes_decimals([node.left.fields[name], node.right.fields[name]], kind):
                    self.refuse(rules.CASTS, shown(kind))
        for parent in (node.parent,) if kind == "Distinct" else (node.left, node.right):
            self.rows(parent, whose)

    def groups(self, node: Node, whose: _Whose) -> None:
        """Refuse groups of rows of several people."""
        below = whose.before(node, node.parent, [node.groups.get(name) for name in whose.columns])
        if not self.has_unit or not below.is_known:
            self.refuse(rules.GROUPS if self.has_unit else rules.NO_UNIT, shown("Aggregate"), _computed(whose))
        self.brings_together = True
        self.values(node.groups.values(), self.place(node.parent, below))
        self.refuse_inexact(node.groups.values(), "Aggregate")
        self.values(node.metrics.values(), replace(self.place(node.parent, below), in_group=True))
        self.rows(node.parent, below)

    def join(self, node: Node, whose: _Whose) -> None:
        """Follow the unit into all tables of a join. Those that are not joined by it must be in memory: public."""
        tables = (node.first, *(link.table for link in node.rest))
        equal = _Equal()
        for number, link in enumerate(node.rest, start=2):
            self.values(link.predicates, _Place(tables[:number]))
            equal.add(link)
        people = [node.values[name] for name in whose.columns] if self.has_unit and whose.is_known else None
        columns = {table: None if people is None else equal.columns(people, table) for table in tables}
        if columns[node.first] is None:  # then whose its rows are is not known after the join
            people, columns = None, dict.fromkeys(tables)
        for link in node.rest:
            if link.how not in rules.JOINS:
                self.refuse(rules.OTHER_JOINS, shown("JoinChain"), f" (how={link.how!r})")
            if columns[link.table] is None:
                self.refuse_private(link, whose, is_known=people is not None)
            else:
                self.brings_together = True
                self.refuse_inexact(people or (), "JoinChain")
        self.values(node.values.values(), _Place(tables, None if people is None else tuple(people)))
        for table in tables:
            known = columns[table]
            if known is not None:
                self.rows(table, _Whose(known))
            elif table == node.first:
                self.begin(node, whose)
                self.rows(table, _Whose(whose.columns, node) if whose.is_known else whose)

    def refuse_private(self, link: Node, whose: _Whose, *, is_known: bool) -> None:
        """Refuse a table of a join that is not in memory, and one that makes several rows where each is a person."""
        table = link.table
        while operation_of(table) in rules.SAME_ROWS:
            table = table.parent
        if operation_of(table) != "InMemoryTable":
            self.refuse(rules.JOINED if self.has_unit else rules.NO_UNIT, shown("JoinChain"), _computed(whose))
        if link.how not in rules.FILTERING_JOINS:
            self.refuse_several_rows("JoinChain")
            if self.has_unit and not is_known:
                self.refuse(rules.SEVERAL_UNITS, shown("JoinChain"))
        self.public.add(table)

    def place(self, relation: Node, whose: _Whose) -> _Place:
        known = self.has_unit and whose.is_known
        return _Place((relation,), tuple(relation.fields[name] for name in whose.columns) if known else None)

    # --- Values

    def values(self, values: Iterable[Node], place: _Place) -> None:
        for value in values:
            self.value(value, place)

    def value(self, node: Node, place: _Place) -> None:
        """Refuse a value, or one that it is made of."""
        if not isinstance(node, _ops.Node) or (node, place.inside) in place.seen:
            return
        place.seen.add((node, place.inside))
        kind = operation_of(node)
        if kind == "Field":
            if node.rel not in place.relations or (place.in_group and not place.inside):
                self.refuse(rules.UNKNOWN, "a column of another table")
        elif kind == "WindowFunction":
            self.window(node, place)
        elif kind in rules.OF_PEOPLE:
            if not place.in_group:
                self.refuse(rules.GROUPS if self.has_unit else rules.NO_UNIT, shown(kind))
            self.of_group(node, kind, place)
        elif kind in rules.TO_SEVERAL_ROWS and not place.in_group and not place.inside:
            self.refuse_several_rows(kind)
            self.values(node.args, place)
        elif kind in rules.OF_A_ROW | rules.WITH_CONSTANTS:
            rule = self.overflow.refusal(node, kind)
            if rule is not None:
                self.refuse(rule, shown(kind))
            for value in flat(node.args):
                self.value(value, place)
        else:
            self.refuse_unlisted(node)

    def of_group(self, node: Node, kind: str, place: _Place) -> None:
        """Refuse a function of the rows of a group that does not follow from these in any order."""
        if place.inside:
            self.refuse(rules.NESTED, shown(kind))
        if kind in rules.RANKS | rules.ALONG_ORDER - rules.ENDS:
            self.refuse(rules.UNKNOWN, shown(kind))
        self.inputs(node, kind, place)
        if kind in rules.ENDS:
            if self.overflow.backend == "sqlite" and node.arg.dtype.is_string():
                self.refuse(rules.IN_SQLITE, shown(kind))
            self.refuse_ties(node.order_by, _fields(node.arg), kind)

    def inputs(self, node: Node, kind: str, place: _Place) -> None:
        """Refuse what a function of several rows is given."""
        inside = replace(place, inside=True)
        for value in flat(node.args):
            if isinstance(value, _ops.Relation):
                if value not in place.relations:
                    self.refuse(rules.UNKNOWN, "rows of another table")
            else:
                self.value(value.arg if operation_of(value) == "SortKey" else value, inside)
        if kind in {"CountDistinct", "Max", "Min"}:
            self.refuse_inexact([node.arg], kind)
        if kind == "Sum" and not (node.arg.dtype.is_integer() or node.arg.dtype.is_boolean()):
            self.refuse(rules.NOT_INTEGERS, shown(kind))
        if kind == "Sum" and self.overflow.adds_too_much(node.arg):
            self.refuse(rules.OVERFLOWS, shown(kind))
        if kind in {"Lag", "Lead"}:
            if not all(map(is_constant, (node.offset, node.default))):
                self.refuse(rules.PARAMETER, shown(kind))
            rule = self.overflow.refusal(node, kind)
            if rule is not None:
                self.refuse(rule, shown(kind))

    def window(self, node: Node, place: _Place) -> None:
        """Refuse a window over rows of several people, or one whose values don't follow from a person's rows."""
        kind = operation_of(node.func)
        if kind not in rules.OF_PEOPLE:
            self.refuse_unlisted(node.func)
        if place.inside or place.in_group:
            self.refuse(rules.NESTED, shown(kind))
        if place.people is None or not {*place.people} <= {*node.group_by}:
            self.refuse(rules.WINDOWS if self.has_unit else rules.NO_UNIT, shown(kind))
        self.brings_together = True
        inside = replace(place, inside=True)
        self.values([*node.group_by, *(key.arg for key in node.order_by)], inside)
        self.refuse_inexact(node.group_by, kind)
        self.inputs(node.func, kind, place)
        if kind in rules.RANKS:
            self.refuse_inexact([key.arg for key in node.order_by], kind)
        if kind in rules.ALONG_ORDER or (node.start, node.end) != (None, None):
            # Rows that are the same in all columns come in any order: one that is the same for all outputs.
            columns = {column for relation in place.relations for column in relation.fields.values()}
            self.refuse_ties(node.order_by, columns - {*node.group_by}, kind)
            place.orders.add(tuple(node.order_by))
            if len(place.orders) > 1:
                self.refuse(rules.SEVERAL_ORDERS, shown(kind))
            if not all(is_constant(end.value) for end in (node.start, node.end) if end is not None):
                self.refuse(rules.PARAMETER, shown(kind))
            slides = node.start is not None and node.func.dtype.is_boolean() and kind in rules.OF_ANY_ORDER
            if slides and self.overflow.backend not in rules.TESTED - {"datafusion"}:
                self.refuse(rules.SLIDING, shown(kind))
            if node.how != "rows" or getattr(node.func, "order_by", ()):
                self.refuse(rules.UNKNOWN, shown(kind))

    # --- Refusals

    def refuse_several_rows(self, kind: str) -> None:
        if not self.has_unit:
            self.refuse(rules.SEVERAL_ROWS, shown(kind))

    def refuse_inexact(self, values: Iterable[Node], kind: str) -> None:
        """Refuse values that may be equal without being the same."""
        for value in values:
            if not is_exact(value.dtype):
                self.refuse(rules.INEXACT, shown(kind), f" (got {value.dtype})")

    def refuse_ties(self, order: Sequence[Node], columns: Iterable[Node], kind: str) -> None:
        """Refuse an order in which rows may tie that differ in these columns."""
        ordered = {key.arg for key in order}
        missing = sorted({column.name for column in columns if column not in ordered})
        if missing or not order:
            self.refuse(rules.NO_ORDER, shown(kind), f" (the order leaves out {missing})" if missing else "")
        self.refuse_inexact(ordered, kind)

    def refuse_unlisted(self, node: Node) -> NoReturn:
        kind = operation_of(node)
        if not kind:
            self.refuse(rules.PYTHON, f"`{type(node).__name__}(…)`")
        self.refuse(next((rule for rule in rules.REFUSED if kind in rule.steps), rules.UNKNOWN), shown(kind))

    def refuse(self, rule: Rule, step: str, details: str = "") -> NoReturn:
        who = "person's rows follow from that person's" if self.has_unit else "row follows from one row"
        msg = f"{rule.message('table', step, details)} If you know that each {who}: unchecked=True."
        raise ValueError(msg)


def _cached(node: Node) -> Node | None:
    """Return what made a table that Ibis caches; None for another one."""
    if operation_of(node) != "DatabaseTable":
        return None
    return getattr(getattr(node.source, "_cache_name_to_entry", {}).get(node.name), "orig_op", None)


def _tables(node: Node) -> set[str]:
    """Return the names of the tables that a relation reads; none for tables in memory, all of which may be one."""
    found: set[str] = set()
    for table in node.find(lambda part: operation_of(part) in rules.TABLES):
        cached = _cached(table)
        name = "" if operation_of(table) == "InMemoryTable" else table.name.casefold()
        found |= {name} if cached is None else _tables(cached)
    return found


def _in_memory(node: Node, whose: _Whose) -> Reading:
    """Return one place where an ibis.memtable is read."""
    return Reading(Whose(whose.columns, whose.computed_by), memory=node.data.obj)


class _Equal:
    """Columns of a join that are equal wherever both have values."""

    def __init__(self) -> None:
        self.classes: list[set[Node]] = []

    def add(self, link: Node) -> None:
        """Add what a table of the join is joined by."""
        for predicate in link.predicates:
            if type(predicate) is not _ops.Equals:
                continue
            pair = (predicate.left, predicate.right)
            if any(type(value) is not _ops.Field for value in pair) or not is_of_one_type(*pair):
                continue
            here = [value for value in pair if value.rel == link.table]
            if len(here) != 1:
                continue
            if link.how in {"inner", "semi"}:
                self._unite({*pair})
            elif link.how in {"left", "anti"} and not any(here[0] in one for one in self.classes):
                # The columns of tables before stay apart: where there is no partner, they may differ.
                self._unite({*pair})

    def _unite(self, pair: set[Node]) -> None:
        apart = [one for one in self.classes if one.isdisjoint(pair)]
        self.classes = [*apart, pair.union(*(one for one in self.classes if not one.isdisjoint(pair)))]

    def columns(self, outputs: Sequence[Node], table: Node) -> tuple[str, ...] | None:
        """Return the columns of a table that are equal to outputs of the join; None where one is missing."""
        found = []
        for output in outputs:
            same = next((one for one in self.classes if output in one), {output})
            fields = [value for value in same if type(value) is _ops.Field and value.rel == table]
            if not fields:
                return None
            found.append(output.name if output in fields else min(value.name for value in fields))
        return tuple(found)


def shown(kind: str) -> str:
    """Return how a user may have written a step."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    return rules.SHOWN.get(kind, f"`.{words}(…)`")


def _computed(whose: _Whose) -> str:
    return "" if whose.is_known else f" ({shown(operation_of(whose.computed_by))} after it computes the privacy unit)"


def _fields(node: Node) -> list[Node]:
    return list(node.find(_ops.Field))
