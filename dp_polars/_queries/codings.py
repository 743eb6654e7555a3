"""How a row becomes evidence: frozen values that say which code and which weight it has.

An engine that runs NumPy asks for the encoder; one that runs SQL translates the value into its own words, and must
agree with them on every row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dp_polars._queries.encoding import category_encoder, grid_steps, ordered_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from dp_polars._numeric.arrays import Ints
    from dp_polars._queries.candidates import Categories, Ordered
    from dp_polars._queries.encoding import Codes, Encoder, FloatSteps, IntegerSteps


class Coding(ABC):
    """Row by row from the columns that a query reads to codes below `size`; `size` itself is no evidence."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of codes."""

    @abstractmethod
    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        """Return what gives every row its code; made once, for many batches of rows."""


class Weighing(ABC):
    """Row by row from the columns that a query reads to integer weights; of rows without evidence, arbitrary ones."""

    @abstractmethod
    def weigher(self) -> Callable[[Sequence[pl.Series]], Ints]:
        """Return what gives every row its weight; made once, for many batches of rows."""


@dataclass(frozen=True)
class CategoryCoding(Coding):
    """The position of the value among categories; null and other values are no evidence.

    Without `column`, the type of the values, there is no encoder.
    """

    categories: Categories
    column: pl.DataType | None = None

    @property
    def values(self) -> pl.Series:
        """The values that the codes stand for, in the type of the answer."""
        return self.categories.for_column(self.column)

    @cached_property
    def size(self) -> int:
        return len(self.values)

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        return _of_one_column(category_encoder(self.categories, _known(self.column)))


@dataclass(frozen=True)
class NearestCoding(Coding):
    """The position of the candidate that is nearest to the value, ties down; null and NaN are no evidence.

    Without `column`, the type of the values, there is no encoder.
    """

    candidates: Ordered
    column: pl.DataType | None = None

    @property
    def size(self) -> int:
        return self.candidates.size

    @property
    def steps(self) -> IntegerSteps | FloatSteps | None:
        """The codes as arithmetic, for engines that have no arrays; None where they are no arithmetic."""
        return grid_steps(self.candidates, _known(self.column))

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        return _of_one_column(ordered_encoder(self.candidates, _known(self.column)))


def _of_one_column(encoder: Encoder) -> Callable[[Sequence[pl.Series]], Codes]:
    return lambda columns: encoder(columns[0])


def _known(column: pl.DataType | None) -> pl.DataType:
    if column is None:
        msg = "unreachable: rows are coded where their type is known"
        raise AssertionError(msg)
    return column
