"""What Polars calls with columns where it evaluates a private expression, and the types of what that gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.terms import NO_BOUNDS, Bounds, Within
from dp_polars._base.settings import deaf
from dp_polars._questions.measures import Total
from dp_polars._questions.question import OfCodes, Query

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What a draw gives where only the column's type names the candidates (Enum, Boolean).
_ONE_ANSWER = {"text": pl.String(), "flag": pl.Boolean(), "whole": pl.Int64(), "real": pl.Float64()}
_LISTS = {"texts": pl.List(pl.String), "flags": pl.List(pl.Boolean)}
NAMED_BY_COLUMN = pl.Struct({**_ONE_ANSWER, **_LISTS})
# The same with a lead, whose type the column's may tell too.
LED_BY_COLUMN = pl.Struct({**_ONE_ANSWER, "lead_text": pl.String, "lead_whole": pl.Int64, "lead_real": pl.Float64})


def _field_of(dtype: pl.DataType) -> str:
    """Return the field that holds answers of a type."""
    if isinstance(dtype, pl.List):
        return "flags" if dtype.inner == pl.Boolean else "texts"
    if dtype == pl.Boolean:
        return "flag"
    return "real" if dtype.is_float() else "whole" if dtype.is_integer() else "text"


def _fields_of(dtype: pl.DataType, query: Query) -> list[tuple[str, pl.DataType]]:
    """Return which fields of a draw hold the answers, and of which type, where the column's type tells them."""
    if not (query.has_lead and isinstance(dtype, pl.Struct)):
        return [(_field_of(dtype), dtype)]
    answer, lead = pl.Schema(dtype.to_schema()).dtypes()
    return [(_field_of(answer), answer), (f"lead_{_field_of(lead)}", lead)]


_NO_PEOPLE = (
    "it must be asked of a private frame that knows who is a person.\n\n"
    'Hint: frame.dp.protect("patient", max_groups=1).agg(…).'
)
_NO_INTERVAL = (
    "an interval must be asked of a private frame: a plain expression has one column of answers, and the ends of an "
    "interval are two more.\n\n"
    'Hint: frame.dp.protect("patient", max_rows=…).agg(…); or leave interval out.'
)


def refuse_bounds(bounds: Bounds) -> None:
    """Refuse bounds where nobody knows who is a person."""
    if bounds.given:
        msg = (
            f"{', '.join(bounds.given)} must be left out here: a person's rows are bounded on private frames only, for "
            "a plain frame does not know who is a person.\n\n"
            'Hint: frame.dp.protect("patient").agg(…), or contributions=… for the most rows that one person has.'
        )
        raise TypeError(msg)


def refuse_open(query: Query) -> None:
    """Refuse a question whose loss nobody said: a plain expression has no other outputs to share one with."""
    if query.claim.is_open:
        msg = (
            "a loss must be given here, got none: only the outputs of a private frame share a promise.\n\n"
            "Hint: epsilon=1.0 is for pure differential privacy, rho=0.1 for zero-concentrated, and within=10 says how "
            'wrong the answer may be. Or frame.dp.protect("patient").agg(…).scaled_to(epsilon=1, delta=1e-6).'
        )
        raise ValueError(msg)


def refuse_unreached(within: Within | None) -> None:
    """Refuse a question for which there is no loss on a plain frame."""
    if within is not None and within.unreached is not None:
        raise ValueError(within.unreached)


# The only field of `AnswerType` where there is an answer; otherwise the message is its name.
ANSWER = "answer"


def raise_if_message(field_name: str) -> str:
    """Raise the message of `AnswerType`, if there is one.

    A message travels as a field name: Polars loses what a UDF raises while a schema is resolved, but it passes on what
    a function that renames fields raises, and such a function sees field names only.
    """
    if field_name != ANSWER:
        raise TypeError(field_name)
    return field_name


class _OnRows(ABC):
    """What Polars calls with columns, in threads of its own."""

    def __call__(self, series: Sequence[pl.Series], *, return_dtype: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        return deaf(self.of)(series)

    @abstractmethod
    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        """Return what becomes of the columns."""


@dataclass(frozen=True)
class AnswerType(_OnRows):
    """Says, from two dummy rows of the columns' types, what type the answer has, or why there can't be one."""

    query: Query
    bounds: Bounds = NO_BOUNDS
    reads_column: bool = True
    within: Within | None = None

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        column = series[0]
        try:
            if self.query.needs_people:
                raise TypeError(_NO_PEOPLE)
            if self.query.has_interval:
                raise TypeError(_NO_INTERVAL)
            refuse_bounds(self.bounds)
            refuse_unreached(self.within)
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


@dataclass(frozen=True)
class Encode(_OnRows):
    """Values -> codes, row by row."""

    query: OfCodes

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        coding = self.query.coding(*(column.dtype for column in series))
        return pl.Series(series[0].name, coding.encoder()(series))


@dataclass(frozen=True)
class DrawCodes(_OnRows):
    """Codes of the rows of each group, a column of lists -> answers of the query's own type."""

    query: OfCodes

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        codes, lengths = _flatten(series[0])
        return self.query.answers_of_codes(codes.to_numpy(), None, lengths)


@dataclass(frozen=True)
class DrawRows(_OnRows):
    """Rows of each group, columns of lists -> answers of the query's own type."""

    query: Query

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        columns, lengths = zip(*map(_flatten, series), strict=True)
        if any((other != lengths[0]).any() for other in lengths[1:]):
            msg = (
                "the columns of one question must have a value for every row, got one that has more or fewer.\n\n"
                "Hint: filter both, the column and its weights, by the same condition."
            )
            raise ValueError(msg)
        return _raw(self.query.answers_of_rows(columns, lengths[0]), self.query)


@dataclass(frozen=True)
class Weigh(_OnRows):
    """Values -> weights in one histogram, row by row; 0 for rows that do not count."""

    query: Total
    part: int

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        evidence = self.query.evidence(*(column.dtype for column in series))[self.part]
        codes, weights = evidence.of_rows(series)
        weights = (codes == 0) * (1 if weights is None else weights)
        return pl.Series(series[0].name, weights.astype(np.int64))


@dataclass(frozen=True)
class DrawTotals(_OnRows):
    """Sums of weights of each group, and a value for the column's type -> answers of the query's own type."""

    query: Total

    def of(self, series: Sequence[pl.Series]) -> pl.Series:
        parts = self.query.parts
        totals = [total.fill_null(0).to_numpy() for total in series[:parts]]
        types = [column.dtype for column in series[parts:]]
        (answers,) = self.query.presented(self.query.drawn_of_totals(totals, *types), None, *types)
        return _raw(answers, self.query)


def _raw(answers: pl.Series, query: Query) -> pl.Series:
    """Return answers in the type that a draw has, which is fixed when the expression is built."""
    if query.fixed_type is not None:
        return answers.cast(query.fixed_type)
    raw = (LED_BY_COLUMN if query.has_lead else NAMED_BY_COLUMN).to_schema()
    columns = answers.struct.unnest().get_columns() if query.has_lead else [answers]
    drawn = {}
    for (name, _), column in zip(_fields_of(answers.dtype, query), columns, strict=True):
        drawn[name] = column.cast(raw[name])
    fields = [drawn.get(name, pl.lit(None, dtype)).alias(name) for name, dtype in raw.items()]
    return pl.select(pl.struct(fields)).to_series()


def _flatten(lists: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return the values of a column of lists, one after the other, and how many each list has."""
    return lists.explode(empty_as_null=False), lists.list.len().to_numpy().astype(np.int64)
