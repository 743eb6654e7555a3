"""A query as a Polars expression: rows in, one answer per group out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
from polars.expr.name import ExprNameNameSpace

from dp_polars import _columns, _kernel
from dp_polars._encoding import Codes, code_dtype
from dp_polars._random import system_words
from dp_polars.queries import ArgMax, Counted, Query, describe
from dp_polars.selection import best_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from polars._typing import IntoExpr, WindowMappingStrategy

IntoColumn: TypeAlias = "pl.Expr | str"


class PrivateExpr(pl.Expr):
    """An expression whose every evaluation is a release: what the methods of `.dp` return.

    It is a `polars.Expr` and goes wherever one goes. `alias`, `over` and `name.*` keep the class; every other operation gives a
    plain `Expr`: post-processing of a private answer is free.

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
        private = cls._from_pyexpr(expr._pyexpr)
        private.query, private._column = query, column
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
    def name(self) -> PrivateName:  # type: ignore[override]
        """The namespace that renames: see `polars.Expr.name`."""
        return PrivateName(self)

    def __repr__(self) -> str:
        return f"<PrivateExpr\n{describe(self.query)}>"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return f"<pre>{describe(self.query)}</pre>"

    def __getstate__(self) -> Any:
        return super().__getstate__(), self.query, self._column

    def __setstate__(self, state: Any) -> None:
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
    schema = pl.map_batches([expr], _Schema(query), return_dtype=None)
    # `~` refuses the struct that carries a message, and the error of Polars prints it; pl.struct resolves all its fields.
    checked = pl.struct(schema.struct.field("answer"), schema.struct.field("codes"), ~schema.struct.field("fits"))
    answer, codes = (pl.dtype_of(checked.struct.field(name)) for name in ("answer", "codes"))
    # All groups in one call: imploded, each group is one row of a column of lists. Codes implode faster than values, but
    # below a node that changes the length (a filter), Polars encodes group by group.
    encode_first = not isinstance(query, ArgMax) and expr.meta.is_column()
    if encode_first:
        expr_codes = pl.map_batches([expr], _Encode(query), codes, is_elementwise=True)
        drawn = pl.map_batches([expr_codes.implode()], _DrawCodes(query), answer, is_elementwise=True)
    else:
        function = _DrawScores(query) if isinstance(query, ArgMax) else _DrawValues(query)
        drawn = pl.map_batches([expr.implode()], function, answer, is_elementwise=True)
    # The outermost node must be native: engines may evaluate a bare UDF several times, and OpenDP aborts on one.
    return PrivateExpr._of(drawn.first(), query, expr)


@dataclass(frozen=True)
class _Schema:
    """Says, from two dummy rows of the column's type, what the types of answer and codes are, or that they can't be."""

    query: Query

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        column = series[0]
        answer: pl.DataType = pl.Boolean()
        codes: pl.DataType = pl.Boolean()
        fits: pl.DataType = pl.Boolean()
        try:
            answer = self.query.answer_type(column.dtype)
            if not isinstance(self.query, ArgMax):
                codes = _columns.from_numpy_dtype(code_dtype(self.query.draw(column.dtype).size))
        except (TypeError, ValueError) as error:
            fits = pl.Struct({f"{self.query}: {error}": pl.Boolean})
        fields = pl.Struct({"answer": answer, "codes": codes, "fits": fits})
        return pl.Series(column.name, [None] * len(column), dtype=fields)


@dataclass(frozen=True)
class _Encode:
    """Values -> codes, row by row."""

    query: Counted

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        column = series[0]
        return pl.Series(column.name, self.query.encoder(column.dtype)(column))


@dataclass(frozen=True)
class _DrawCodes:
    """Codes of the rows of each group, a column of lists -> answers."""

    query: Counted

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType) -> pl.Series:
        codes, lengths = _flatten(series[0])
        return _answer(self.query, codes.to_numpy(), lengths, return_dtype)


@dataclass(frozen=True)
class _DrawValues:
    """Values of the rows of each group, a column of lists -> answers."""

    query: Counted

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType) -> pl.Series:
        values, lengths = _flatten(series[0])
        return _answer(self.query, self.query.encoder(values.dtype)(values), lengths, return_dtype)


@dataclass(frozen=True)
class _DrawScores:
    """Scores of the rows of each group, a column of lists -> positions."""

    query: ArgMax

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType) -> pl.Series:
        values, lengths = _flatten(series[0])
        self.query.answer_type(values.dtype)
        rate, offered = self.query.claim.rate, values.is_not_null().to_numpy()
        if values.dtype.is_float():
            scores = _columns.floats(values)
        else:
            scores = _columns.integers(values)
            rate *= _columns.tick(values.dtype) or 1
        chosen = best_rows(
            scores,
            lengths,
            rate,
            self.query.claim.mechanism,
            system_words(),
            offered=offered,
            lowest=self.query.lowest,
        )
        return pl.Series(chosen).cast(return_dtype, strict=False)  # −1, no score offered, becomes null


def _answer(query: Counted, codes: Codes, lengths: NDArray[np.int64], answer: pl.DataType) -> pl.Series:
    # A mode's answer has its column's type; a quantile's does not depend on it.
    return query.answers(_kernel.draw_from_rows(query.draw(answer), codes, lengths), answer)


def _flatten(lists: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return the values of a column of lists, one after the other, and how many each list has."""
    return lists.explode(empty_as_null=False), lists.list.len().to_numpy().astype(np.int64)
