"""Plans before `protect`: steps that look at all rows of one person, and only of that one.

Nothing can be rewritten there. So such a step may hold one function of one column, whose value is the same to the bit
in any order of the rows, on columns whose equal values are the same to the bit. Whose a row is, says the privacy unit,
or for owned rows all columns of their join: these columns are followed from the end of the plan to its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import polars as pl

from dp_polars._rowwise import nodes, person_rules, plan_rules
from dp_polars._rowwise.gate import shown
from dp_polars._rowwise.nodes import Step
from dp_polars._rowwise.one_unit import Whose
from dp_polars._rowwise.person_trials import refuse_company

if TYPE_CHECKING:
    from dp_polars._rowwise.rules import Rule

# The columns that say whose a row is. None: not known. Empty: not known yet, which only `owned` may ask for.
Keys: TypeAlias = "tuple[str, ...] | None"

_SAME_COLUMNS = frozenset({"Cache", "Filter", "MapFunction", "SimpleProjection", "Sort", "Union"})
_JOINS = frozenset({"Anti", "Inner", "Left", "Semi"})
_OPTIONS_OF_JOINS = 6


class PlanPeople:
    """Looks at the steps of a plan that bring rows together."""

    def __init__(self, plan: Any, call: str, number: int) -> None:  # noqa: ANN401
        self.plan, self.call, self.number = plan, call, number
        self.joins = 0
        self.are_there = False  # steps on people's rows, among those that were looked at

    # --- Whose the rows are

    def followed(self, node: Any, inputs: Sequence[int], keys: Keys) -> list[Keys]:  # noqa: ANN401
        """Return what the columns that say whose a row is are called in each input; None where that is lost."""
        kind = type(node).__name__
        names: list[list[str | None]]
        if keys is None:
            return [None] * len(inputs)
        if kind == "Join":
            pairs = dict(zip(map(self._column, node.left_on), map(self._column, node.right_on), strict=True))
            names = [[*keys], [pairs.get(key) for key in keys]]
        elif kind in {"Select", "HStack", "GroupBy"}:
            outputs = node.keys if kind == "GroupBy" else self.plan.get_exprs()
            shown_as = {expr.output_name: self._column(expr) for expr in outputs}
            names = [[shown_as.get(key, key if kind == "HStack" else None) for key in keys]]
        elif kind == "MapFunction" and len(node.function) > 1:
            function, columns = node.function[:2]  # of `unpivot` those that stay, of others those that change
            names = [[key if (key in columns) == (function == "unpivot") else None for key in keys]]
        else:
            names = [[*keys] if kind in _SAME_COLUMNS else [None]] * len(inputs)
        return [self._there(value, columns) for value, columns in zip(inputs, names, strict=True)]

    def whose(self, node: Any, number: int, inputs: Sequence[int], after: Whose) -> list[Whose]:  # noqa: ANN401
        """Return which columns of each input say whose a row is, also before a step that computes them."""
        below = [after] * len(inputs)
        if after.columns is None:
            return below
        self.plan.set_node(number)
        for place, names in enumerate(self.followed(node, inputs, after.columns)):
            if names is not None:
                below[place] = replace(after, columns=names)
                continue
            if type(node).__name__ == "MapFunction" and node.function[0] in {"explode", "unpivot"}:
                self._refuse(plan_rules.SEVERAL_UNITS, node.function[0])
            self.plan.set_node(inputs[place])
            is_second = after.computed_by is not None
            columns = None if is_second else tuple(self.plan.get_schema())
            # One step may compute several columns, each of which is the unit of another branch.
            below[place] = Whose(columns, (self.number, number, after.columns))
        return below

    def _there(self, number: int, names: Sequence[str | None]) -> Keys:
        self.plan.set_node(number)
        schema = self.plan.get_schema()
        known = tuple(name for name in names if name is not None and name in schema)
        return known if len(known) == len(names) else None

    # --- Steps

    def check_groups(self, node: Any, number: int, keys: Keys) -> None:  # noqa: ANN401
        """Refuse a group_by of rows of several people, or one whose values don't follow from a person's rows."""
        self.are_there = True
        options = node.options
        if keys is None:
            self._refuse(plan_rules.GROUPS, "GroupBy")
        if node.apply or any(value is not None for value in (options.dynamic, options.rolling, options.slice)):
            self._refuse(plan_rules.OTHER_GROUPS, "GroupBy")
        self.plan.set_node(number)
        groups = [self._key("GroupBy", expr.node) for expr in node.keys]
        self._check([self._function(expr.node) for expr in node.aggs], groups, keys, is_window=False)

    def check_window(self, view: Any, keys: tuple[str, ...]) -> None:  # noqa: ANN401
        """Refuse a window over rows of several people, or one whose value does not follow from a person's rows."""
        self.are_there = True
        groups = [self._key("over", number) for number in view.partition_by]
        if not {*keys} <= {*groups}:
            self._refuse(plan_rules.WINDOWS, "over")
        if view.order_by is not None or view.options.kind != "groups_to_rows":
            self._refuse(plan_rules.ORDERED_WINDOWS, "over")
        self._check([self._function(view.function)], groups, keys, is_window=True)

    def check_join(self, node: Any, inputs: Sequence[int], below: Sequence[Keys]) -> None:  # noqa: ANN401
        """Refuse a join in which rows of two people meet, or one that may raise."""
        self.are_there = True
        if None in below:
            self._refuse(plan_rules.JOINS, "Join")
        how, nulls_equal, piece, *_ = node.options
        is_known = len(node.options) == _OPTIONS_OF_JOINS and getattr(node, "predicate", None) is None
        if how not in _JOINS or piece is not None or not is_known:
            self._refuse(plan_rules.OTHER_JOINS, "Join")
        if nulls_equal:
            self._refuse(plan_rules.JOINS_OF_NULLS, "Join")
        for number, exprs in zip(inputs, (node.left_on, node.right_on), strict=True):
            self.plan.set_node(number)
            for expr in exprs:  # columns of two types are cast, and so are no columns
                self._key("Join", expr.node)
        self.joins += 1

    # --- What they compute

    def _check(
        self,
        functions: Sequence[tuple[str, str | None, dict[str, Any]]],
        groups: list[str],
        keys: Keys,
        *,
        is_window: bool,
    ) -> None:
        """Refuse functions that give a person other values where others are there: they are tried."""
        if not keys:  # owned rows, looked at again when their join is known
            return
        schema = self.plan.get_schema()
        read = [column for _, column, _ in functions if column is not None]
        names = {name: f"{place}" for place, name in enumerate(dict.fromkeys([*groups, *read]))}
        of = [names[name] for name in groups]
        exprs = [
            (pl.len() if column is None else getattr(pl.col(names[column]), name)(**parameters)).alias(f"of {place}")
            for place, (name, column, parameters) in enumerate(functions)
        ]

        def run(rows: pl.LazyFrame) -> pl.LazyFrame:
            return rows.with_columns(expr.over(of) for expr in exprs) if is_window else rows.group_by(of).agg(exprs)

        unit = tuple(names[key] for key in keys)
        refuse_company(run, pl.Schema({place: schema[name] for name, place in names.items()}), unit, self.call)

    def _function(self, number: int) -> tuple[str, str | None, dict[str, Any]]:
        """Return a function of a person's rows: its name, its column and how it is called; refuse any other."""
        view, parameters = self._viewed(number), None
        match type(view).__name__:
            case "Len":
                return "len", None, {}
            case "Agg":
                name, inputs = view.name, view.arguments
                if name == "count" and view.options:
                    name = "len"
                elif name in {"max", "min"}:
                    parameters = {"propagate_nans": view.options}
            case "Function":
                function, *more = view.function_data
                name, inputs = nodes.function_name(str(function).rpartition(".")[2]), view.input
                parameters = {"ignore_nulls": more[0]} if name in {"all", "any"} else None
            case _:
                self._refuse(plan_rules.NO_FUNCTION, "a group's expression")
        of = self._column(inputs[0])
        dtypes = [] if of is None else [self.plan.get_schema()[of]]
        step = Step("function", name, [Step("column", "a column", (), lambda: dtypes)], list, parameters)
        for rule in (plan_rules.LATER, *((*person_rules.REFUSED, *plan_rules.OF_PEOPLE) if of is not None else ())):
            if rule.refuses(step):
                self._refuse(rule, name)
        if of is None or len(inputs) > 1:
            self._refuse(plan_rules.NO_FUNCTION, "a group's expression")
        return name, of, parameters if name in {"all", "any"} and parameters else {}

    def _key(self, step: str, number: int) -> str:
        """Return a column that rows are brought together by; refuse one whose equal values may differ."""
        name = self._column(number)
        if name is None or not plan_rules.is_plain(self.plan.get_schema()[name]):
            self._refuse(plan_rules.INEXACT_KEYS, step)
        return name

    def _column(self, expr: Any) -> str | None:  # noqa: ANN401
        """Return the name of a column, None of any other expression."""
        view = self._viewed(getattr(expr, "node", expr))
        return str(view.name) if type(view).__name__ == "Column" else None

    def _viewed(self, number: int) -> Any:  # noqa: ANN401
        try:
            return self.plan.view_expression(number)
        except NotImplementedError:
            return None

    def _refuse(self, rule: Rule, name: str) -> NoReturn:
        raise ValueError(rule.message(self.call, shown(Step("unknown", name, (), list))))
