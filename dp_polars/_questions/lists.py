"""Several answers for each group from one histogram, as a list: what is drawn, and how wrong a list is."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from dp_polars._questions.question import OfCodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints
    from dp_polars._draws.histograms import Histogram


class Mistakes(NamedTuple):
    """How wrong the list of each group is, compared with the best one; each field has the shape (g,).

    Parameters
    ----------
    right
        Whether the whole list is as good as the best one.
    wrong
        How far off it is, in `ListQuery.distance_unit`: on average over the list, say.
    worst
        How far off its worst answer is, in the same unit.
    ranks
        How many rows or people it is off, where `wrong` is about something else. None: there is no such number.
    """

    right: NDArray[np.bool_]
    wrong: NDArray[np.float64]
    worst: NDArray[np.float64]
    ranks: NDArray[np.float64] | None = None


class ListQuery(OfCodes):
    """A question whose answer is a list of `width` candidates for each group.

    A class says how codes are drawn (`draw_codes`), which would be right (`true_codes`), and how wrong others are
    (`mistakes`). Expressions, engines and `analysis.simulate`, which draws many lists, need no more.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """How many answers a list has."""

    @abstractmethod
    def draw_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        """Draw the codes of each group's list, shape (g, width)."""

    @abstractmethod
    def true_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        """Return the codes of each group's best list, shape (g, width); groups without rows get any codes."""

    @abstractmethod
    def mistakes(self, codes: Ints, histogram: Histogram, *columns: pl.DataType) -> Mistakes:
        """Return how wrong lists of codes, shape (g, width), are; groups without rows get any numbers."""

    @abstractmethod
    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the lists of candidates that codes of shape (g, width) stand for."""

    @property
    def distance_unit(self) -> str | None:
        """What `Mistakes.wrong` is measured in. None: rows, or people."""
        return None

    def answer_width(self, *columns: pl.DataType) -> int:  # noqa: ARG002
        return self.width

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw a list for each group from its histogram, also for groups without rows."""
        (histogram,) = histograms
        return (self.named(self.draw_codes(histogram, *columns), *columns),)


def in_lists(values: pl.Series, width: int) -> pl.Series:
    """Return values, group after group, as a list of `width` values for each group."""
    groups = len(values) // width
    return values.reshape((groups, width)).arr.to_list() if groups else values.implode().clear()
