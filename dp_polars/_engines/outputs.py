"""Outputs: what is drawn for each of them, and how that is shown, with which ranges and of which groups.

How it is shown is a function of what was drawn and of what is public: no part of what is asked, and free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import polars as pl

from dp_polars._questions.measures import BETA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._draws.histograms import Histogram
    from dp_polars._questions.question import Columns, HistogramQuery

#: Whether numbers come with their ranges, each of them at 95 %, or all of them together.
Ranges: TypeAlias = "bool | Literal['all']"


def names_of_ends(output: str) -> tuple[str, str]:
    """Return the columns that hold the ends of an output's range."""
    return f"{output}_low", f"{output}_high"


@dataclass(frozen=True)
class Output:
    """One answer: its name, what is asked, of columns of which types, and the positions of its tallies."""

    name: str
    query: HistogramQuery
    types: Columns
    tallies: tuple[int, ...]

    @property
    def dtype(self) -> pl.DataType:
        """Type of the answers."""
        return self.query.answer_type(*self.types)

    @property
    def drawn_types(self) -> tuple[pl.DataType, ...]:
        """Types of the columns of `drawn`."""
        return self.query.drawn_types(*self.types)

    def names(self, *, ranges: bool) -> list[str]:
        """Return the columns that are shown: the answers, and the ends of their ranges."""
        return [self.name, *(names_of_ends(self.name) if self.query.has_ends(ranges=ranges) else ())]

    def drawn(self, histograms: Sequence[Histogram]) -> tuple[pl.Series, ...]:
        """Draw once for each group: see `HistogramQuery.drawn`."""
        return self.query.drawn(histograms, *self.types)


@dataclass(frozen=True)
class Presentation:
    """How a release is shown.

    Parameters
    ----------
    ranges
        Whether numbers come with the ends of their 95 % ranges; "all": of ranges that all hold with 95 %.
    people
        The output that counts the people of a group. None: every group is shown.
    min_people
        The other outputs of groups with fewer people are null.
    sure
        Whether it is the lower end of the range that must be as large.
    """

    ranges: Ranges = False
    people: str | None = None
    min_people: int = 1
    sure: bool = False

    def of(self, outputs: Sequence[Output], groups: int) -> Shown:
        """Return the presentation of the outputs, for this number of groups."""
        numbers = groups * sum(
            output.query.answer_width(*output.types) for output in outputs if output.query.has_ranges
        )
        return Shown(tuple(outputs), self, beta_of_each(numbers) if self.ranges == "all" else BETA)


#: As it was drawn: without ranges, every group.
AS_DRAWN = Presentation()


def beta_of_each(numbers: int) -> float:
    """Return how often each of independent ranges may fail so that all of them hold with 95 %; rounded down."""
    return BETA if numbers <= 1 else -math.expm1(math.log1p(-BETA) / numbers) * (1 - 2.0**-40)


@dataclass(frozen=True)
class Shown:
    """How outputs are shown.

    Parameters
    ----------
    outputs
        In their order.
    presentation
        What was asked for.
    beta
        How often each range fails, at most.
    """

    outputs: tuple[Output, ...]
    presentation: Presentation
    beta: float = BETA

    @property
    def names(self) -> list[list[str]]:
        """The columns of each output."""
        return [output.names(ranges=bool(self.presentation.ranges)) for output in self.outputs]

    def columns(self, drawn: Sequence[pl.Series]) -> list[list[pl.Series]]:
        """Return the columns of each output, of what was drawn for all of them, one after the other."""
        left, beta = list(drawn), self.beta if self.presentation.ranges else None
        parts = [[left.pop(0) for _ in output.drawn_types] for output in self.outputs]
        shown = []
        for output, part, names in zip(self.outputs, parts, self.names, strict=True):
            columns = output.query.presented(part, beta, *output.types)
            shown.append([column.alias(name) for column, name in zip(columns, names, strict=True)])
        if self.presentation.people is None:
            return shown
        at = [output.name for output in self.outputs].index(self.presentation.people)
        enough = self._number(at, parts[at]) >= self.presentation.min_people
        return [part if place == at else [_only(enough, one) for one in part] for place, part in enumerate(shown)]

    def _number(self, at: int, drawn: Sequence[pl.Series]) -> pl.Series:
        """Return the number of people that counts: what was drawn, or the lower end of its range."""
        output = self.outputs[at]
        columns = output.query.presented(drawn, self.beta if self.presentation.sure else None, *output.types)
        return columns[1 if self.presentation.sure else 0]


def _only(shown: pl.Series, column: pl.Series) -> pl.Series:
    """Return a column that is null where it is not shown."""
    return column.zip_with(shown, pl.Series(column.name, [None], column.dtype))
