"""Private expressions, and how Polars runs them on rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.expr.name import ExprNameNameSpace

from dp_polars._accounting.terms import Within, warn_if_large
from dp_polars._base.column_types import from_numpy_dtype
from dp_polars._base.numbers import Number, given
from dp_polars._base.silence import silenced
from dp_polars._bins.binning import code_dtype
from dp_polars._statistics.measures import Total, check_within, with_loss_for
from dp_polars._statistics.statement_facts import AT_DELTA, Known, facts_of_claims, output_facts
from dp_polars._statistics.statistic import HistogramQuery, Query, describe

if TYPE_CHECKING:
    from polars._typing import IntoExpr, WindowMappingStrategy

    from dp_polars._statistics.statement import Statement

QueryT = TypeVar("QueryT", bound=Query)

# Type names of a draw if only the column's type names the candidates (Enum, Boolean), or of a gap.
_ONE_ANSWER = {"text": pl.String(), "flag": pl.Boolean(), "whole": pl.Int64(), "real": pl.Float64()}
_LISTS = {"texts": pl.List(pl.String), "flags": pl.List(pl.Boolean)}
_GAPS = {"gap_text": pl.String(), "gap_whole": pl.Int64(), "gap_real": pl.Float64()}
NAMED_BY_COLUMN = pl.Struct({**_ONE_ANSWER, **_LISTS, **_GAPS})


def _field_of(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return "flags" if dtype.inner == pl.Boolean else "texts"
    if dtype == pl.Boolean:
        return "flag"
    return "real" if dtype.is_float() else "whole" if dtype.is_integer() else "text"


def _fields_of(dtype: pl.DataType, query: Query) -> list[tuple[str, pl.DataType]]:
    """Return the fields of a draw with the answers, and their types, if the column's type defines them."""
    if not (query.has_gap and isinstance(dtype, pl.Struct)):
        return [(_field_of(dtype), dtype)]
    answer, gap = pl.Schema(dtype.to_schema()).dtypes()
    return [(_field_of(answer), answer), (f"gap_{_field_of(gap)}", gap)]


_NO_PEOPLE = (
    "it must be used on a private frame that knows who is a person.\n\n"
    'Hint: frame.dp.protect("patient", max_groups=1).agg(…).'
)
_NO_BOUNDS = (
    "{} must be given on a plain frame: clipping bounds are found in a stage before the answers, which an expression "
    "does not have.\n\nHint: give them, as in {}; or "
    'frame.dp.protect("patient").agg(…).scaled_to(epsilon=1, delta=1e-6).'
)
_NO_INTERVAL = (
    "an interval must be used on a private frame: a plain expression has one column of answers, and the ends of an "
    "interval are two more.\n\n"
    'Hint: frame.dp.protect("patient", max_rows=…).agg(…); or leave interval out.'
)


def refuse_of_frames(within: Within | None) -> None:
    """Raise for requests that only private frames support: finding a loss by the types of their columns."""
    if within is not None and within.unreached is not None:
        raise ValueError(within.unreached)


def refuse_open(query: Query) -> None:
    if query.claim._is_open:
        msg = (
            "a loss must be given here, got none: only the outputs of a private frame share a guarantee.\n\n"
            "Hint: epsilon=1.0 is for pure differential privacy, rho=0.1 for zero-concentrated, and within=10 says how "
            'wrong the answer may be. Or frame.dp.protect("patient").agg(…).scaled_to(epsilon=1, delta=1e-6).'
        )
        raise ValueError(msg)


ANSWER = "answer"  # the only field of `AnswerType` if there is an answer; otherwise its name is an error message


def raise_if_message(field_name: str) -> str:
    """Raise the message of `AnswerType`, if there is one.

    It is a field name: while Polars resolves a schema, only errors from functions that rename fields reach the user.
    """
    if field_name != ANSWER:
        raise TypeError(field_name)
    return field_name


@dataclass(frozen=True)
class _OnRows(ABC, Generic[QueryT]):
    """A function of columns that Polars calls, in threads of its own."""

    query: QueryT

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        return silenced(self.of)(series)

    @abstractmethod
    def of(self, series: Sequence[pl.Series]) -> pl.Series: ...


@dataclass(frozen=True)
class AnswerType(_OnRows[Query]):
    """Returns, for two dummy rows of the columns' types, the type of the answer, or why there can't be one."""

    reads_column: bool
    within: Within | None

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        column = series[0]
        try:
            if self.query.needs_people:
                raise TypeError(_NO_PEOPLE)
            if self.query.always_has_ends:
                raise TypeError(_NO_INTERVAL)
            refuse_of_frames(self.within)
            if self.query.finds:
                raise TypeError(_NO_BOUNDS.format(*self.query.left_out))
            refuse_open(self.query)
            answer = self.query.answer_type(*(source.dtype for source in series if self.reads_column))
            if self.query.fixed_type is None:
                answer = pl.Struct(dict(_fields_of(answer, self.query)))
            schema = {ANSWER: answer}
        except (TypeError, ValueError) as error:
            where = f"column {column.name!r}, " if self.reads_column else ""
            message = f"{where}{self.query}: {error}".removesuffix(".")  # Polars ends it
            schema = {message: pl.Boolean()}
        return pl.Series(column.name, [None] * len(column), dtype=pl.Struct(schema))


class Encode(_OnRows[HistogramQuery]):
    """Values -> codes, row by row."""

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        (rule,) = self.query.count_rules(*(column.dtype for column in series))
        return pl.Series(series[0].name, rule.binning.encoder()(series))


class DrawCodes(_OnRows[HistogramQuery]):
    """Codes of the rows of each group, a column of lists -> answers of the query's own type."""

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        codes, lengths = _flatten(series[0])
        return self.query.answers_of_codes(codes.to_numpy(), None, lengths)


class DrawRows(_OnRows[Query]):
    """Rows of each group, columns of lists -> answers of the query's own type."""

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        columns, lengths = zip(*map(_flatten, series), strict=True)
        if any((other != lengths[0]).any() for other in lengths[1:]):
            msg = (
                "the columns of one statistic must have a value for every row, got one that has more or fewer.\n\n"
                "Hint: filter both, the column and its weights, by the same condition."
            )
            raise ValueError(msg)
        return _raw(self.query.answers_of_rows(columns, lengths[0]), self.query)


@dataclass(frozen=True)
class Weigh(_OnRows[Total]):
    """Values -> weights in one histogram, row by row; 0 for rows that do not count."""

    part: int

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        codes, weights = self.query.count_rules(*(column.dtype for column in series))[self.part].of_rows(series)
        weights = (codes == 0) * (1 if weights is None else weights)
        return pl.Series(series[0].name, weights.astype(np.int64))


class DrawTotals(_OnRows[Total]):
    """Sums of weights of each group, and a value for the column's type -> answers of the query's own type."""

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        parts = len(self.query.changes())
        totals = [total.fill_null(0).to_numpy() for total in series[:parts]]
        types = [column.dtype for column in series[parts:]]
        (answers,) = self.query.presented(self.query.drawn_of_totals(totals, *types), None, *types)
        return _raw(answers, self.query)


def _raw(answers: pl.Series, query: Query) -> pl.Series:
    """Return answers in the draw's type, which is fixed when the expression is built."""
    if query.fixed_type is not None:
        return answers.cast(query.fixed_type)
    raw = NAMED_BY_COLUMN.to_schema()
    columns = answers.struct.unnest().get_columns() if query.has_gap else [answers]
    fields = _fields_of(answers.dtype, query)
    drawn = {name: column.cast(raw[name]) for (name, _), column in zip(fields, columns, strict=True)}
    every = [drawn.get(name, pl.lit(None, dtype)).alias(name) for name, dtype in raw.items()]
    return pl.select(pl.struct(every)).to_series()


def _flatten(lists: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return the values of a column of lists, one after the other, and the length of each list."""
    return lists.explode(empty_as_null=False), lists.list.len().to_numpy().astype(np.int64)


IntoColumn: TypeAlias = "pl.Expr | str"


class PrivateExpr(pl.Expr):
    """A private answer as a Polars expression, as the methods of `.dp` return it: every evaluation is a release.

    It is a `polars.Expr` and works wherever one does. `alias`, `over` and `name.*` keep the class; every other
    operation returns a plain `Expr`. You may do anything with a private *answer* at no further cost. But a query that
    names the expression twice, as in `p - p`, may draw twice and then costs twice: collect it first.

    It may read several columns, as `pl.col("a", "b")` or a selector. Then it is one output for each of them in the
    `agg` of a private frame, each with the whole loss. A plain frame refuses it: Polars raises a ComputeError.

    Attributes
    ----------
    query
        The statistic, with its privacy claim.
    within
        The accuracy, if it was requested instead of a loss; `agg` of a private frame finds the loss anew. None: the
        loss was given.
    columns
        The columns that it reads, if they are still known; None after `over`.
    named
        If it reads several columns: each column under the name of its answer. Otherwise None.
    """

    query: Query
    within: Within | None
    columns: tuple[pl.Expr, ...] | None
    named: pl.Expr | None = None

    @classmethod
    def _of(cls, expr: pl.Expr, **known: object) -> PrivateExpr:
        private = cls.__new__(cls)
        vars(private).update(known, _pyexpr=expr._pyexpr)
        return private

    def _of_column(self, column: pl.Expr, name: str) -> PrivateExpr:
        """Return the same statistic about one of several columns."""
        one = _drawn(self.query, [column], self.within)
        return self._with(one.alias(name), columns=(column,), named=None)

    def alias(self, name: str) -> PrivateExpr:
        """Rename the answer: see `polars.Expr.alias`."""
        return self._renamed(lambda expr: expr.alias(name))

    def _renamed(self, rename: Callable[[pl.Expr], pl.Expr]) -> PrivateExpr:
        named = None if self.named is None else rename(self.named)
        return self._with(rename(pl.Expr._from_pyexpr(self._pyexpr)), named=named)

    def _with(self, expr: pl.Expr, **changes: object) -> PrivateExpr:
        return self._of(expr, **{**vars(self), **changes})

    def over(
        self,
        partition_by: IntoExpr | Iterable[IntoExpr] | None = None,
        *more_exprs: IntoExpr,
        order_by: IntoExpr | Iterable[IntoExpr] | None = None,
        descending: bool = False,
        nulls_last: bool = False,
        mapping_strategy: WindowMappingStrategy = "group_to_rows",
    ) -> PrivateExpr:
        """Draw one answer per group and give it to each of its rows: see `polars.Expr.over`."""
        refuse_several(self)
        windowed = super().over(
            partition_by,
            *more_exprs,
            order_by=order_by,
            descending=descending,
            nulls_last=nulls_last,
            mapping_strategy=mapping_strategy,
        )
        return self._with(windowed, columns=None)

    @property
    def name(self) -> PrivateName:
        """The namespace that renames: see `polars.Expr.name`."""
        return PrivateName(self)

    def statement(self, *, at_delta: Number = AT_DELTA, **known: Unpack[Known]) -> Statement:
        """Return the privacy statement of one evaluation; it lists the facts that a plain expression can't know.

        It knows its statistic, its loss and its mechanism. It does not know who is a person, the data, the groups, the
        rest of the query, the number of evaluations, or a budget. The query of a private frame knows all that:
        `PrivateQuery.statement` has the same arguments.

        Examples
        --------
        >>> import dp_polars as dpp
        >>> statement = dpp.median("age", range(121), epsilon=1).statement(name="Median age")
        >>> statement.facts["unit"]["why"]
        'not known, for a plain expression does not know whose a row is.'
        """
        from dp_polars._statistics.statement import Statement

        name = "several columns" if self.named is not None else self.meta.output_name()
        claim = self.query.claim
        if not claim._is_open and (self.within is None or self.within.unreached is None):
            loss = facts_of_claims([claim], at_delta)
            outputs = [output_facts(name, self.query, str(self.query))]
        else:
            loss, outputs = None, []
        protection = "It is calibrated to the sensitivity that the caller gave."
        if claim.neighboring_relation is not None:
            rows = claim.contributions.total
            protection = (
                f"It is calibrated to one person who has {rows} rows at most. Nothing drops more, which lose more."
            )
        where = "None is said." if claim._is_open else f"agg of a private frame finds it, from {self.within}."
        release = {
            "loss": loss,
            "asks": "answers",
            "protection": protection,
            "limits": {},
            "unchecked": None,
            "table": {"columns": None, "files": None, "before": None},
            "keys": None,
            "public_frames": [],
            "steps": None,
            "outputs": outputs,
        }
        unit: dict[str, object] = {
            "person": None,
            "why": "not known, for a plain expression does not know whose a row is.",
            "relation": claim.neighboring_relation,
            "notes": [],
        }
        no_loss = f"the loss of the {self.query}. {where}"
        return Statement.of("asked", known, loss=loss, no_loss=no_loss, unit=unit, releases=[release])

    def __repr__(self) -> str:
        return f"<PrivateExpr\n{self._described()}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return f"<pre>{self._described()}</pre>"

    def _described(self) -> str:
        within = self.within
        if within is not None and within.unreached is not None:
            text = f"selects:   {self.query}\nloss:      found by agg of a private frame, from {within}"
        else:
            text = describe(self.query) + ("" if within is None else f"\nasked:     {within}")
        several = "\ncolumns:   several, one output for each, in agg of a private frame" * (self.named is not None)
        return text + several

    def __getstate__(self) -> tuple[bytes, dict[str, object]]:  # type: ignore[override]
        return super().__getstate__(), {name: value for name, value in vars(self).items() if name != "_pyexpr"}

    def __setstate__(self, state: tuple[bytes, dict[str, object]]) -> None:  # type: ignore[override]
        plain, known = state
        vars(self).update(known)
        super().__setstate__(plain)


class PrivateName(ExprNameNameSpace):
    """Polars' renaming namespace, for expressions that stay private expressions."""

    def __init__(self, expr: PrivateExpr) -> None:
        super().__init__(expr)
        self._private = expr

    def keep(self) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.keep())

    def map(self, function: Callable[[str], str]) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.map(function))

    def prefix(self, prefix: str) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.prefix(prefix))

    def suffix(self, suffix: str) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.suffix(suffix))

    def to_lowercase(self) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.to_lowercase())

    def to_uppercase(self) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.to_uppercase())

    def replace(self, pattern: str, value: str, *, literal: bool = False) -> PrivateExpr:
        return self._private._renamed(lambda expr: expr.name.replace(pattern, value, literal=literal))


def on_terms(query: HistogramQuery, *columns: IntoColumn, name: str | None = None) -> PrivateExpr:
    """Return the private expression of `query` on its terms; `within` finds the loss for a plain frame."""
    asked, within = query.with_terms(replace(query.terms, within=None)), query.terms.within
    if within is not None:
        check_within(asked, within)
        try:
            asked = with_loss_for(asked, within)
        except ValueError as error:
            within = replace(within, unreached=str(error))
    return as_expression(asked, *columns, name=name, within=within)


def as_expression(
    query: Query, *columns: IntoColumn, name: str | None = None, within: Within | None = None
) -> PrivateExpr:
    """Return the private expression of `query` about columns; its name is the first column's, or `name`."""
    exprs = [as_column(column) for column in columns]
    warn_if_large(query.claim.loss)
    if not any(expr.meta.has_multiple_outputs() for expr in exprs):
        answer = _drawn(query, exprs, within)
        return answer if name is None else answer.alias(name)
    if len(exprs) > 1 or not isinstance(query, HistogramQuery):
        raise ValueError(_ONE_OUTPUT)
    # `agg` of private frames makes one answer per column. A plain frame raises when Polars resolves the type.
    refused = pl.lit(None, pl.Struct({_ONE_OUTPUT.removesuffix("."): pl.Boolean})).name.map_fields(raise_if_message)
    known = {"query": query, "within": within}
    return PrivateExpr._of(refused, **known, columns=tuple(exprs), named=exprs[0])


def _drawn(query: Query, exprs: list[pl.Expr], within: Within | None) -> PrivateExpr:
    """Return the private expression about columns of one output each, named like the first one."""
    known = {"query": query, "within": within, "columns": tuple(exprs)}
    checked = silenced(_checked)(exprs, AnswerType(query, bool(exprs), within))
    if query.claim._is_open:  # it contains nothing that draws
        return PrivateExpr._of(checked, **known)
    raw = query.fixed_type or NAMED_BY_COLUMN
    # All groups in one call: imploded, each group is one row of a column of lists.
    if isinstance(query, Total):
        # Sums need no lists. The column's first value is passed only for its type.
        parts = (Weigh(query, part) for part in range(len(query.changes())))
        totals = [pl.map_batches(exprs, weigh, pl.Int64, is_elementwise=True).sum() for weigh in parts] if exprs else []
        inputs = [*totals, *(expr.first() for expr in exprs)] if exprs else [pl.len().cast(pl.Int64)]
        drawn = pl.map_batches(inputs, DrawTotals(query), raw, is_elementwise=True)
    elif len(exprs) == 1 and exprs[0].meta.is_column() and isinstance(query, HistogramQuery) and query.fixed_size:
        # Codes implode faster than values. But below a node that changes the length (a filter), Polars would encode
        # group by group.
        code_type = from_numpy_dtype(code_dtype(query.fixed_size))
        codes = pl.map_batches(exprs, Encode(query), code_type, is_elementwise=True)
        drawn = pl.map_batches([codes.implode()], DrawCodes(query), raw, is_elementwise=True)
    else:
        drawn = pl.map_batches([expr.implode() for expr in exprs], DrawRows(query), raw, is_elementwise=True)
    # The type of a UDF must be fixed: Polars would keep one that it resolved on an earlier frame. The outermost node
    # must be native: engines may evaluate a bare UDF several times, and OpenDP aborts on one.
    answer = silenced(_as_answer)(drawn.first(), checked, exprs, query)  # `pl.dtype_of` is unstable to Polars
    return PrivateExpr._of(answer, **known)


def where_true(where: IntoColumn | None) -> tuple[pl.Expr, ...]:
    """Return a column that has values only if a condition is true; nothing without a condition."""
    if where is None:
        return ()
    condition = condition_of("where", where, 'where=pl.col("age") >= 65')
    # Polars gives a constant only one row. So we filter some column, and turn it into one without nulls.
    return (pl.col(condition.meta.root_names()[0]).is_null().filter(condition),)


def condition_of(name: str, given_as: IntoColumn, example: str) -> pl.Expr:
    """Return the condition in an argument called `name`: an expression of the columns of a row, or a column's name."""
    condition = pl.col(given_as) if isinstance(given_as, str) else given_as
    is_one = isinstance(condition, pl.Expr) and not condition.meta.has_multiple_outputs()
    if not is_one or isinstance(condition, PrivateExpr) or not condition.meta.root_names():
        msg = f"{name} must be one condition that reads columns, got {given(given_as)}.\n\nHint: {example}."
        raise TypeError(msg)
    return condition


_ONE_OUTPUT = (
    "the expression must have one output: with several, each column would be a release of its own.\n\n"
    'Hint: name the column, as in pl.col("name"). In the agg of a private frame several columns are several outputs, '
    "each with the whole loss, but not with weights."
)


def refuse_several(expr: PrivateExpr) -> None:
    if expr.named is not None:
        raise ValueError(_ONE_OUTPUT)


def as_column(column: IntoColumn) -> pl.Expr:
    expr = pl.col(column) if isinstance(column, str) else column
    if not isinstance(expr, pl.Expr):
        msg = f"the column must be a name or a Polars expression, got {type(column).__name__}."
        raise TypeError(msg)
    if isinstance(expr, PrivateExpr):
        msg = "the expression must not be a private answer itself: use the column."
        raise TypeError(msg)
    return expr


def _checked(columns: list[pl.Expr], answer_type: AnswerType) -> pl.Expr:
    """Return a struct of the answer's type; it raises if a plain expression can't have an answer."""
    return pl.map_batches(columns or [pl.lit(0)], answer_type).name.map_fields(raise_if_message)


def _as_answer(drawn: pl.Expr, checked: pl.Expr, columns: Sequence[pl.Expr], query: Query) -> pl.Expr:
    """Cast draws to the type of the answer, which may depend on the columns."""
    answer = drawn.cast(pl.dtype_of(checked.struct.field(ANSWER)), strict=False)
    if query.fixed_type is not None:
        return answer
    if query.has_gap:  # name it only once: an expression that is named twice may be drawn twice
        return answer.struct.rename_fields(["answer", "gap"])
    # The answer's name is the column's, or its root's after `name.keep`, not that of the only field.
    name = columns[0].meta.output_name(raise_if_undetermined=False)
    only = answer.struct[0]
    return only.name.keep() if name is None else only.alias(name)
