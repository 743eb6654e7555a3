"""A query as a Polars expression: rows in, one answer per group out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from polars.expr.name import ExprNameNameSpace

from dp_polars._mechanisms.selection import best_rows
from dp_polars._numeric.words import system_words
from dp_polars._queries import column_types, drawing
from dp_polars._queries.encoding import code_dtype
from dp_polars._queries.queries import ArgMax, Counted, Query, describe

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from polars._typing import IntoExpr, WindowMappingStrategy

IntoColumn: TypeAlias = "pl.Expr | str"
_State: TypeAlias = "tuple[bytes, Query, pl.Expr | None]"


class PrivateExpr(pl.Expr):
    """An expression whose every evaluation is a release: what the methods of `.dp` return.

    It is a `polars.Expr` and goes wherever one goes. `alias`, `over` and `name.*` keep the class; every other operation
    gives a plain `Expr`. Post-processing of a private *answer* is free, but an expression that a query names twice, as
    in `p - p`, may be drawn twice and then costs twice: collect it first.

    Attributes
    ----------
    query
        What is asked, with its privacy claim: a frozen value.
    """

    query: Query
    # What is asked about, where it is still known; None after `over`.
    _column: pl.Expr | None

    @classmethod
    def _of(cls, expr: pl.Expr, query: Query, column: pl.Expr | None) -> PrivateExpr:
        private = cls.__new__(cls)
        private._pyexpr, private.query, private._column = expr._pyexpr, query, column
        return private

    def alias(self, name: str) -> PrivateExpr:
        """Rename the answer."""
        return self._of(super().alias(name), self.query, self._column)

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
        windowed = super().over(
            partition_by,
            *more_exprs,
            order_by=order_by,
            descending=descending,
            nulls_last=nulls_last,
            mapping_strategy=mapping_strategy,
        )
        return self._of(windowed, self.query, None)

    @property
    def name(self) -> PrivateName:
        """The namespace that renames: see `polars.Expr.name`."""
        return PrivateName(self)

    def __repr__(self) -> str:
        return f"<PrivateExpr\n{describe(self.query)}>"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return f"<pre>{describe(self.query)}</pre>"

    def __getstate__(self) -> _State:  # type: ignore[override]
        return super().__getstate__(), self.query, self._column

    def __setstate__(self, state: _State) -> None:  # type: ignore[override]
        plain, self.query, self._column = state
        super().__setstate__(plain)


class PrivateName(ExprNameNameSpace):
    """Polars' renaming namespace, for expressions that stay private expressions."""

    def __init__(self, expr: PrivateExpr) -> None:
        super().__init__(expr)
        self._private = expr

    def _keep(self, renamed: pl.Expr) -> PrivateExpr:
        return PrivateExpr._of(renamed, self._private.query, self._private._column)

    def keep(self) -> PrivateExpr:
        """Keep the name of the root column."""
        return self._keep(super().keep())

    def map(self, function: Callable[[str], str]) -> PrivateExpr:
        """Rename by a function of the root's name."""
        return self._keep(super().map(function))

    def prefix(self, prefix: str) -> PrivateExpr:
        """Add a prefix to the root's name."""
        return self._keep(super().prefix(prefix))

    def suffix(self, suffix: str) -> PrivateExpr:
        """Add a suffix to the root's name."""
        return self._keep(super().suffix(suffix))

    def to_lowercase(self) -> PrivateExpr:
        """Make the root's name lower case."""
        return self._keep(super().to_lowercase())

    def to_uppercase(self) -> PrivateExpr:
        """Make the root's name upper case."""
        return self._keep(super().to_uppercase())

    def replace(self, pattern: str, value: str, *, literal: bool = False) -> PrivateExpr:
        """Replace in the root's name."""
        return self._keep(super().replace(pattern, value, literal=literal))


def as_expression(column: IntoColumn, query: Query) -> PrivateExpr:
    """Return the private expression that asks `query` about a column (a name or an expression)."""
    expr = pl.col(column) if isinstance(column, str) else column
    if not isinstance(expr, pl.Expr):
        msg = f"the column must be a name or a Polars expression, got {type(column).__name__}."
        raise TypeError(msg)
    if expr.meta.has_multiple_outputs():
        msg = (
            "the expression must have one output: with several, each column would be a release of its own.\n\n"
            'Hint: name the column, as in pl.col("name").'
        )
        raise ValueError(msg)
    if isinstance(expr, PrivateExpr):
        msg = "the expression must not be a private answer itself: ask about the column."
        raise TypeError(msg)
    # All groups in one call: imploded, each group is one row of a column of lists.
    if isinstance(query, ArgMax):
        drawn = pl.map_batches([expr.implode()], _DrawScores(query), pl.UInt32, is_elementwise=True)
    elif query.candidates_type is not None and expr.meta.is_column():
        # Codes implode faster than values. But below a node that changes the length (a filter), Polars would encode
        # group by group.
        codes = pl.map_batches([expr], _Encode(query), _codes_type(query), is_elementwise=True)
        drawn = pl.map_batches([codes.implode()], _DrawCodes(query), query.candidates_type, is_elementwise=True)
    else:
        raw = query.candidates_type or _NAMED_BY_COLUMN
        drawn = pl.map_batches([expr.implode()], _DrawValues(query), raw, is_elementwise=True)
    # The type of a UDF must be fixed: Polars would keep one that it resolved on an earlier frame. The outermost node
    # must be native: engines may evaluate a bare UDF several times, and OpenDP aborts on one.
    return PrivateExpr._of(_as_answer(drawn.first(), expr, query), query, expr)


# What a draw gives where only the column's type names the candidates (Enum, Boolean).
_NAMED_BY_COLUMN = pl.Struct({"text": pl.String, "flag": pl.Boolean})


def _codes_type(query: Counted) -> pl.DataType:
    return column_types.from_numpy_dtype(code_dtype(query.draw().size))


def _as_answer(drawn: pl.Expr, column: pl.Expr, query: Query) -> pl.Expr:
    """Cast what was drawn to the type of the answer, which may depend on the column's, and check that type."""
    schema = pl.map_batches([column], _Schema(query))
    # `~` refuses the struct that carries a message, and the error of Polars prints it; pl.struct resolves all fields.
    checked = pl.struct(schema.struct.field("answer"), ~schema.struct.field("fits")).struct.field("answer")
    answer = drawn.cast(pl.dtype_of(checked), strict=False)
    if query.candidates_type is not None:
        return answer
    # The name of the only field must not become the answer's: that is the column's, or its root's after `name.keep`.
    name = column.meta.output_name(raise_if_undetermined=False)
    only = answer.struct[0]
    return only.name.keep() if name is None else only.alias(name)


@dataclass(frozen=True)
class _Schema:
    """Says, from two dummy rows of the column's type, what type the answer has, or why there can't be one."""

    query: Query

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        column = series[0]
        answer: pl.DataType = pl.Boolean()
        fits: pl.DataType = pl.Boolean()
        try:
            answer = self.query.answer_type(column.dtype)
            if self.query.candidates_type is None:
                answer = pl.Struct({"flag" if answer == pl.Boolean else "text": answer})
        except (TypeError, ValueError) as error:
            # A paragraph of its own between Polars' words.
            fits = pl.Struct({f"\n\ncolumn {column.name!r}, {self.query}: {error}\n\n": pl.Boolean})
        return pl.Series(column.name, [None] * len(column), dtype=pl.Struct({"answer": answer, "fits": fits}))


@dataclass(frozen=True)
class _Encode:
    """Values -> codes, row by row."""

    query: Counted

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        column = series[0]
        return pl.Series(column.name, self.query.encoder(column.dtype)(column))


@dataclass(frozen=True)
class _DrawCodes:
    """Codes of the rows of each group, a column of lists -> answers of the candidates' type."""

    query: Counted

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        codes, lengths = _flatten(series[0])
        return self.query.answers(drawing.draw_from_rows(self.query.draw(), codes.to_numpy(), lengths))


@dataclass(frozen=True)
class _DrawValues:
    """Values of the rows of each group, a column of lists -> answers of the candidates' type."""

    query: Counted

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        values, lengths = _flatten(series[0])
        column = values.dtype
        codes = self.query.encoder(column)(values)
        answers = self.query.answers(drawing.draw_from_rows(self.query.draw(column), codes, lengths), column)
        if self.query.candidates_type is not None:
            return answers.cast(self.query.candidates_type)
        if column == pl.Boolean:
            return pl.select(pl.struct(pl.lit(None, pl.String).alias("text"), answers.alias("flag"))).to_series()
        return pl.select(
            pl.struct(answers.cast(pl.String).alias("text"), pl.lit(None, pl.Boolean).alias("flag"))
        ).to_series()


@dataclass(frozen=True)
class _DrawScores:
    """Scores of the rows of each group, a column of lists -> positions."""

    query: ArgMax

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        values, lengths = _flatten(series[0])
        self.query.answer_type(values.dtype)
        rate, offered = self.query.claim.rate, values.is_not_null().to_numpy()
        scores: column_types.Exact
        if values.dtype.is_float():
            scores = column_types.floats(values)
        else:
            scores = column_types.exact_integers(values)
            rate *= column_types.tick(values.dtype) or 1
        chosen = best_rows(
            scores,
            lengths,
            rate,
            self.query.claim.mechanism,
            system_words(),
            offered=offered,
            lowest=self.query.lowest,
        )
        return pl.Series(chosen).cast(pl.UInt32, strict=False)  # −1, no score offered, becomes null


def _flatten(lists: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return the values of a column of lists, one after the other, and how many each list has."""
    return lists.explode(empty_as_null=False), lists.list.len().to_numpy().astype(np.int64)
