"""Which keys there are, where nobody listed them: the question, its claim, and what is released of the keys found."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._accounting.claims import Claim, check_mechanism
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._base import column_types
from dp_polars._mechanisms.partition_selection import (
    GaussianThreshold,
    KeySelection,
    PartitionSelection,
    delta_of_one_key,
    threshold_for,
)
from dp_polars._questions.question import Asked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from dp_polars._accounting.terms import NeighboringRelation, Unit
    from dp_polars._base.rng import Ints


COUNT = "count"


@dataclass(frozen=True)
class KeysThatAreThere(Asked):
    """The keys in some columns that enough people have: combinations of values, none of them null.

    Parameters
    ----------
    columns
        Names of the key columns.
    claim
        By "partition_selection" or "discrete_gaussian_threshold", of all keys together.
    keys_per_person
        For how many keys one person counts, at most.
    counts
        Whether the noisy numbers of people come along.
    """

    columns: tuple[str, ...]
    claim: Claim
    keys_per_person: int
    counts: bool = False

    @classmethod
    def of(
        cls,
        columns: tuple[str, ...],
        loss: Loss,
        delta: Fraction,
        keys_per_person: int,
        relation: NeighboringRelation,
        *,
        counts: bool,
    ) -> KeysThatAreThere:
        """Return the question by the mechanism that the unit of the loss chooses.

        A replaced person takes away one of at most g keys each, and the new one adds one: 2g keys change by one.
        """
        changed = keys_per_person if relation == "add_or_remove_one" else 2 * keys_per_person
        claim = Claim(
            loss,
            check_mechanism("keys", None, loss.unit),
            Fraction(1),
            Contributions(changed, 1),
            relation,
            delta=delta,
        )
        return cls(columns, claim, keys_per_person, counts)._checked()

    @property
    def loss_units(self) -> tuple[Unit, ...]:
        """In which units the same may be asked: partition selection has no numbers of people."""
        return ("rho",) if self.counts else super().loss_units

    def with_claim(self, claim: Claim) -> Self:
        return super().with_claim(claim)._checked()

    def _checked(self) -> Self:
        """Return the question; refuse a claim that it can't select by."""
        _ = self.selection
        return self

    @cached_property
    def selection(self) -> KeySelection:
        """What shows the keys."""
        return _SELECTIONS[self.claim.mechanism](self)

    def types(self, schema: pl.Schema) -> pl.Schema:
        """Return the names and types of the keys as they are released, for columns of these types."""
        types = {}
        for name in self.columns:
            if name not in schema:
                msg = f"the frame must have the key column {name!r}, got the columns {list(schema)}."
                raise ValueError(msg)
            dtype = schema[name]
            if column_types.family(dtype) is None or dtype.is_float():
                msg = f"keys: the column {name!r} must hold text, integers, decimals, booleans or times, got {dtype}."
                if dtype.is_float():
                    msg += "\n\nHint: round or cut it to integers, decimals or categories first."
                raise TypeError(msg)
            types[name] = column_types.released(dtype)
        return pl.Schema(types)

    def drawn(self, keys: Sequence[pl.Series], people: Ints) -> tuple[NDArray[np.bool_], Ints | None]:
        """Draw once for each key: whether it is shown, and its noisy number, if there is one.

        Keys of 128-bit types that `group_by` would not take are not shown. That is a rule on the key alone.
        """
        shown, noisy = self.selection.draw(people)
        for column in keys:
            if column_types.is_wide(column.dtype):
                shown &= column_types.are_within_64_bits(column)
        return shown, noisy

    def released(self, keys: pl.DataFrame, people: Ints) -> pl.DataFrame:
        """Draw once for every key that somebody has, and return those that are shown, sorted.

        Parameters
        ----------
        keys
            The keys in the types of `types`, each once, without null, in any order.
        people
            Shape (n,): the number of people who have each, at least 1.
        """
        shown, noisy = self.drawn(keys.get_columns(), people)
        counted = [pl.Series(COUNT, noisy)] if self.counts else []
        left = keys.select(self.columns).with_columns(counted).filter(pl.Series(shown)).sort(self.columns)
        return pl.DataFrame({column.name: _anew(column) for column in left.get_columns()})

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.columns))
        return f"the {names} that enough people have" + (", with their number" if self.counts else "")


def _by_partition(query: KeysThatAreThere) -> KeySelection:
    claim = query.claim
    return PartitionSelection(claim.rate, delta_of_one_key(claim.delta, claim.contributions.total))


def _by_threshold(query: KeysThatAreThere) -> KeySelection:
    variance = 1 / query.claim.rate**2
    return GaussianThreshold(variance, threshold_for(variance, query.claim.delta, query.keys_per_person))


_SELECTIONS = {"partition_selection": _by_partition, "discrete_gaussian_threshold": _by_threshold}


def _anew(column: pl.Series) -> pl.Series:
    """Return the values in memory of their own.

    What is left out stays in the buffers of a filtered column: texts, and the bits after the last one of booleans.
    """
    column = column.rechunk()
    if column.dtype == pl.Boolean:
        return pl.Series(column.name, column.to_numpy())
    return pl.Series(column.name, column.to_arrow()) if column.dtype == pl.String else column
