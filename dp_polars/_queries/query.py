"""What is asked: frozen values that say which answer is wanted, from which evidence, at what loss.

Engines make the histograms; a query draws from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._numeric.numbers import show
from dp_polars._queries.histograms import Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from typing_extensions import Self

    from dp_polars._accounting.claims import Contributions, NeighboringRelation, Unit
    from dp_polars._numeric.arrays import Ints
    from dp_polars._queries.codings import Coding, Weighing
    from dp_polars._queries.encoding import Codes

# The types of the columns that a query reads, in their order.
Columns: TypeAlias = "tuple[pl.DataType, ...]"


class Query(ABC):
    """One question about columns, with its privacy claim."""

    claim: Claim

    @abstractmethod
    def __str__(self) -> str:
        """Return what is asked in a few words, for claims, messages and the ledger."""

    @property
    @abstractmethod
    def fixed_type(self) -> pl.DataType | None:
        """The type of what is drawn; None where only the column's type names the candidates."""

    @abstractmethod
    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for columns of these types; a TypeError where that can't be."""

    @abstractmethod
    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw one answer per group.

        Parameters
        ----------
        columns
            What the query reads, of shape (n,): the rows of all groups, group after group.
        lengths
            Shape (g,): rows of each group; they add up to n.
        """


class HistogramQuery(Query):
    """A question that a histogram answers: on private frames and on any engine.

    It says how a row becomes evidence (`coding`, `weighing`), how a person counts (`counts_people`, `bounds_people`),
    how much that moves its scores (`range_of`), and which draws it makes on the histogram (`answers`).
    """

    @property
    @abstractmethod
    def counts_people(self) -> bool:
        """Whether a person counts once for each candidate, where it is known who they are."""

    @property
    @abstractmethod
    def bounds_people(self) -> bool:
        """Whether `range_of` also bounds one person's effect on a group, however many candidates they count for."""

    @abstractmethod
    def range_of(self, relation: NeighboringRelation) -> Fraction:
        """Return the most that one row (or person, where people count) changes what the claim's range is about."""

    @abstractmethod
    def coding(self, *columns: pl.DataType) -> Coding:
        """Return the codes of rows of such columns; a TypeError or ValueError where there are none."""

    def weighing(self, *columns: pl.DataType) -> Weighing | None:  # noqa: ARG002
        """Return the weights of rows of such columns; None: one each."""
        return None

    @abstractmethod
    def answers(self, histogram: Histogram, *columns: pl.DataType) -> pl.Series:
        """Draw one answer per group from its histogram, also for groups without rows."""

    @property
    def fixed_size(self) -> int | None:
        """Number of codes; None where only the column's type tells it."""
        return None if self.fixed_type is None else self.coding().size

    @abstractmethod
    def error(self, size: int, beta: float) -> float:
        """Return an error that is reached with probability at most `beta`, with so many candidates, in `error_unit`."""

    def under(self, contributions: Contributions, relation: NeighboringRelation) -> Self:
        """Return the same question with the rate that the same loss pays for under these bounds."""
        asked = self.claim
        return self.with_claim(Claim(asked.loss, asked.mechanism, self.range_of(relation), contributions, relation))

    def with_claim(self, claim: Claim) -> Self:
        """Return the same question with another claim."""
        return replace(self, claim=claim)  # type: ignore[type-var]  # every query is a dataclass

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        """Draw one answer per group from the codes of its rows, shape (n,), group after group."""
        return self.answers(Histogram.of_rows(codes, weights, lengths, self.coding(*columns).size), *columns)

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw one answer per group from its rows: see `Query.answers_of_rows`."""
        types = tuple(column.dtype for column in columns)
        weighing = self.weighing(*types)
        weights = None if weighing is None else weighing.weigher()(columns)
        return self.answers_of_codes(self.coding(*types).encoder()(columns), weights, lengths, types)


def of_histogram(query: Query, asker: str, way_out: str) -> HistogramQuery:
    """Return the query, unless private rows can't be asked it: its scores would be raw rows."""
    if not isinstance(query, HistogramQuery):
        msg = (
            f"{asker} must be asked for what rows are counted for, got an argmax, whose scores would be raw rows.\n\n"
            f"Hint: {way_out}"
        )
        raise TypeError(msg)
    return query


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
