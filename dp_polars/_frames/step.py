"""What every step on private rows says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._base.privacy_units import PrivacyUnit

# A step on rows of the columns that it was proved on; a join of private rows takes those of its sources, too.
Run: TypeAlias = Callable[..., pl.LazyFrame]


class Step(ABC):
    """A step on private rows, which makes what comes of one person's rows from these alone."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The method that the user called, for the repr."""

    @property
    def looks_at_order(self) -> bool:
        """Whether the order of the columns may decide what comes out."""
        return False

    @property
    def multiplies(self) -> bool:
        """Whether several rows may come of one."""
        return False

    def leaves_one_row(self, unit: PrivacyUnit | None, *, before: bool) -> bool:  # noqa: ARG002
        """Return whether every person has one row at most after it; `before`: they had one at most before."""
        return before and not self.multiplies

    def adds_floats(self, schema: pl.Schema, unit: PrivacyUnit | None) -> bool:  # noqa: ARG002
        """Return whether it adds up a person's floats, which count to the nearest 2⁻⁴⁰."""
        return False

    @abstractmethod
    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:
        """Return all that decides what the step does to the columns that are live."""

    @abstractmethod
    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        """Return what runs this step on rows of these columns; an error where it must not be run."""
