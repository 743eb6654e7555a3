"""What is asked: frozen values that say which choice, of what candidates, at what loss. Engines interpret them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import polars as pl

from dp_polars._accounting.claims import Claim, Contributions, Loss, check_relation
from dp_polars._numeric.numbers import Number, as_fraction, positive_int, show
from dp_polars._queries import column_types
from dp_polars._queries.candidates import Categories, Ordered, ordered
from dp_polars._queries.drawing import Draw
from dp_polars._queries.encoding import Encoder, category_encoder, ordered_encoder
from dp_polars._queries.scores import CountScore, QuantileScore

if TYPE_CHECKING:
    from typing_extensions import Self

    from dp_polars._accounting.claims import NeighboringRelation, Unit
    from dp_polars._numeric.arrays import Ints
    from dp_polars._queries.candidates import Values
    from dp_polars._queries.scores import Score

_LARGEST_DENOMINATOR = 10_000


@dataclass(frozen=True)
class OfCategories(ABC):
    """One of a list of categories, by a score of its own."""

    candidates: Categories
    claim: Claim
    score: ClassVar[Score]

    def under(self, contributions: Contributions, relation: NeighboringRelation) -> Self:
        """Return the same question with the rate that the same loss pays for under these bounds."""
        score_range = self.score.range(relation)
        return replace(
            self, claim=Claim.of(self.claim.loss, self.claim.mechanism, score_range, contributions, relation)
        )

    def answer_type(self, column: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        return self.candidates.for_column(column).dtype

    def encoder(self, column: pl.DataType) -> Encoder:
        """Return the way from values of such a column to codes."""
        return category_encoder(self.candidates, column)

    @property
    def candidates_type(self) -> pl.DataType | None:
        """Type of the candidates; None where only the column's type names them."""
        return None if self.candidates.values is None else self.candidates.values.dtype

    def draw(self, column: pl.DataType | None = None) -> Draw:
        """Return what the kernel needs to know."""
        return Draw(len(self.candidates.for_column(column)), self.score, self.claim.rate, self.claim.mechanism)

    def answers(self, codes: Ints, column: pl.DataType | None = None) -> pl.Series:
        """Return the candidates that the codes stand for, in the type of the answer if the column's is given."""
        return self.candidates.for_column(column).gather(codes)

    @abstractmethod
    def __str__(self) -> str:
        """Return what is asked in a few words, for claims, messages and the ledger."""


@dataclass(frozen=True)
class Mode(OfCategories):
    """The most common of the candidates."""

    score: ClassVar[Score] = CountScore()

    def __str__(self) -> str:
        return f"mode of {self.candidates}"


@dataclass(frozen=True)
class Quantile:
    """The candidate nearest to the lower α-quantile."""

    alpha: Fraction
    candidates: Ordered
    claim: Claim

    @property
    def score(self) -> Score:
        """How good a candidate is."""
        return QuantileScore(self.alpha)

    def under(self, contributions: Contributions, relation: NeighboringRelation) -> Quantile:
        """Return the same question with the rate that the same loss pays for under these bounds."""
        score_range = self.score.range(relation)
        return replace(
            self, claim=Claim.of(self.claim.loss, self.claim.mechanism, score_range, contributions, relation)
        )

    def answer_type(self, column: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        ordered_encoder(self.candidates, column)
        return self.candidates.dtype

    def encoder(self, column: pl.DataType) -> Encoder:
        """Return the way from values of such a column to codes."""
        return ordered_encoder(self.candidates, column)

    @property
    def candidates_type(self) -> pl.DataType:
        """Type of the candidates, which is the answer's."""
        return self.candidates.dtype

    def draw(self, column: pl.DataType | None = None) -> Draw:  # noqa: ARG002
        """Return what the kernel needs to know."""
        return Draw(self.candidates.size, self.score, self.claim.rate, self.claim.mechanism)

    def answers(self, codes: Ints, column: pl.DataType | None = None) -> pl.Series:  # noqa: ARG002
        """Return the candidates that the codes stand for."""
        return self.candidates.take(codes)

    def __str__(self) -> str:
        name = "median" if self.alpha == Fraction(1, 2) else f"{show(self.alpha)}-quantile"
        return f"{name} on {self.candidates}"


@dataclass(frozen=True)
class ArgMax:
    """The row with the highest (or lowest) score, by scores of the caller's own."""

    claim: Claim
    lowest: bool = False

    @property
    def candidates_type(self) -> pl.DataType:
        """Type of the answer, a row's position."""
        return pl.UInt32()

    def answer_type(self, column: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        is_wide = column.is_integer() and column not in _INTEGERS
        if column_types.family(column) != "number" or is_wide:
            msg = f"scores must be integers of at most 64 bits, floats or decimals, got {column}."
            raise TypeError(msg)
        return pl.UInt32()

    def __str__(self) -> str:
        return f"row with the {'lowest' if self.lowest else 'highest'} score"


Counted: TypeAlias = "OfCategories | Quantile"
Query: TypeAlias = "OfCategories | Quantile | ArgMax"

_INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


def describe(query: Query) -> str:
    """Return the claim of a query in a few lines."""
    claim = query.claim
    other: Unit = "rho" if claim.loss.unit == "epsilon" else "epsilon"
    relation, per_row = "that of the given sensitivity", ""
    if claim.neighboring_relation is not None:
        relation = f"{claim.neighboring_relation}, rows of one person: {claim.contributions.total}"
        per_row = " per row"
    lines = {
        "selects": str(query),
        "loss": f"{claim.loss} in all (as {other}: {show(claim.cost(other), up=True)})",
        "mechanism": f"{claim.mechanism}, rate {show(claim.rate)} for R = {show(claim.score_range)}{per_row}",
        "relation": relation,
    }
    return "\n".join(f"{key + ':':<11}{text}" for key, text in lines.items())


def ask_mode(
    candidates: Values | None,
    *,
    epsilon: Number | None,
    rho: Number | None,
    contributions: int,
    neighboring_relation: str,
    mechanism: str | None,
) -> Mode:
    """Return the query of these arguments."""
    loss, relation = Loss.of(epsilon=epsilon, rho=rho), check_relation(neighboring_relation)
    rows = _in_one_group(contributions)
    return Mode(Categories.of(candidates), Claim.of(loss, mechanism, CountScore().range(relation), rows, relation))


def ask_quantile(
    alpha: Number,
    candidates: Values,
    *,
    epsilon: Number | None,
    rho: Number | None,
    contributions: int,
    neighboring_relation: str,
    mechanism: str | None,
) -> Quantile:
    """Return the query of these arguments."""
    loss, relation = Loss.of(epsilon=epsilon, rho=rho), check_relation(neighboring_relation)
    rows = _in_one_group(contributions)
    exact = as_fraction("alpha", alpha)
    if not 0 < exact < 1:
        msg = (
            f"alpha must lie strictly between 0 and 1, got {alpha!r}.\n\n"
            "Hint: 0.5 is the median, 0.9 the 90th percentile."
        )
        raise ValueError(msg)
    if not exact.denominator <= _LARGEST_DENOMINATOR:
        msg = (
            f"alpha must be a fraction with a denominator of at most {_LARGEST_DENOMINATOR:,}, got {alpha!r}.\n\n"
            "Hint: round it to four decimals."
        )
        raise ValueError(msg)
    claim = Claim.of(loss, mechanism, QuantileScore(exact).range(relation), rows, relation)
    return Quantile(exact, ordered(candidates), claim)


def ask_argmax(
    *,
    sensitivity: Number,
    monotonic: bool,
    epsilon: Number | None,
    rho: Number | None,
    mechanism: str | None,
    lowest: bool,
) -> ArgMax:
    """Return the query of these arguments."""
    return ArgMax(Claim.for_scores(Loss.of(epsilon=epsilon, rho=rho), mechanism, sensitivity, monotonic), lowest)


def _in_one_group(contributions: int) -> Contributions:
    """Return the bounds of an expression, which can't know the groups: all rows of a person may lie in one."""
    rows = positive_int("contributions", contributions)
    return Contributions(rows, rows)
