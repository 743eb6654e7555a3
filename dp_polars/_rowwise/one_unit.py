"""One table, one unit: a table that is read twice must have the same columns as the privacy unit both times.

Otherwise a row belongs to two people, as the visit of a patient and as that of a doctor: one who leaves takes a row of
the other along, and no bound counts that. Files are recognised by what they are, frames in memory by where their
columns are. Nothing is known of two files that hold the same rows, or of a copy in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._rowwise.files import are_different

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Whose:
    """The columns that say whose a row is, in the order of the privacy unit.

    `computed_by`: by what texts the unit is computed of them, if it is. None: nothing says whose a row is, or it is not
    known yet; `is_of_facts`: because the table is joined to people's rows by other columns.
    """

    columns: tuple[str, ...] | None
    computed_by: object = None
    is_owned: bool = False
    is_of_facts: bool = False


@dataclass(frozen=True, eq=False)
class Reading:
    """One place where a table is read: its files, or a frame, an Arrow table or a dataset in memory.

    `order` are the columns of a CSV file in their order, where the reader may have named them.
    """

    whose: Whose
    files: tuple[str, ...] = ()
    memory: Any = None
    order: tuple[str, ...] = ()

    def may_be_one_with(self, other: Reading) -> bool:
        """Return whether both may read one table."""
        if self.files and other.files:
            return not are_different([*dict.fromkeys(self.files), *dict.fromkeys(other.files)])
        if self.memory is None or other.memory is None:
            return False
        return self.memory is other.memory or not _all_places(self.memory).isdisjoint(_all_places(other.memory))

    def has_unit_of(self, other: Reading) -> bool:
        """Return whether the same columns say whose a row is, if both read one table."""
        one, two = self.whose, other.whose
        if one.is_of_facts or two.is_of_facts:
            return one.is_of_facts and two.is_of_facts
        if one.is_owned or two.is_owned:  # an owned row belongs to all who name it
            return one.is_owned and two.is_owned
        if one.columns is None or two.columns is None or one.computed_by != two.computed_by:
            return False
        if len(one.columns) != len(two.columns):
            return False
        return all(map(self._is_column_of, [other] * len(one.columns), one.columns, two.columns))

    def _is_column_of(self, other: Reading, name: str, of_other: str) -> bool:
        """Return whether a column is one of another reading, where names may be others: in memory, or of a CSV file."""
        if self.order or other.order:
            return any(pair == (name, of_other) for pair in zip(self.order, other.order, strict=False))
        places, others = _places(self.memory, name), _places(other.memory, of_other)
        return not places.isdisjoint(others) if places and others else name == of_other


def refuse_two_units(places: Iterable[Sequence[Reading]], call: str) -> None:
    """Refuse a table that is read at two of these places if other columns are the privacy unit there."""
    for one, other in (pair for several in combinations(places, 2) for pair in product(*several)):
        if not one.has_unit_of(other) and one.may_be_one_with(other):
            msg = (
                f"{call}: a table that is read twice has one privacy unit: otherwise a row belongs to several people, "
                "and goes with each of them.\n\nHint: take the same columns for the unit, unchanged, wherever the "
                "table is read; rows of the table that is protected can't be owned rows, or be joined by other columns."
            )
            raise ValueError(msg)


def _places(table: Any, name: str) -> frozenset[int]:  # noqa: ANN401
    """Return where the values of a column begin in memory, which is also where those of a slice do.

    Where it is null is left out: columns that differ in their values may share that. Nested columns are no unit: all of
    them counts.
    """
    if isinstance(table, pl.DataFrame) and table.schema[name] in (pl.Int128, pl.UInt128):  # Arrow has no such type
        # Where a slice of it begins: it is taken for another column.
        return frozenset(piece._s.as_single_ptr() for piece in table.get_column(name).get_chunks() if len(piece))
    pieces = [] if table is None else _pieces(table, name)
    buffers = (piece.buffers()[1 : None if piece.type.num_fields else 2] for piece in pieces if len(piece))
    return frozenset(buffer.address for several in buffers for buffer in several if buffer)


def _all_places(table: Any) -> frozenset[int]:  # noqa: ANN401
    names = table.columns if isinstance(table, pl.DataFrame) else getattr(_of_arrow(table), "column_names", ())
    return frozenset[int]().union(*(_places(table, name) for name in names))


def _of_arrow(table: Any) -> Any:  # noqa: ANN401
    """Return the table of a dataset in memory, without a copy; anything else as it is."""
    return table.to_table() if type(table).__name__ == "InMemoryDataset" else table


def _pieces(table: Any, name: str) -> list[Any]:  # noqa: ANN401
    """Return the pieces of a column as Arrow has them, without a copy; none of a type that Arrow does not have."""
    if not isinstance(table, pl.DataFrame):
        table = _of_arrow(table)
        column = table.column(name) if hasattr(table, "column_names") else None
        return [] if column is None else list(getattr(column, "chunks", [column]))
    column = table.get_column(name)
    if column.dtype == pl.Object:
        return []
    column = column.to_physical() if isinstance(column.dtype, pl.Categorical) else column
    return [piece.to_arrow(compat_level=pl.CompatLevel.newest()) for piece in column.get_chunks()]
