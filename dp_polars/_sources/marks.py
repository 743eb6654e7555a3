"""Distinguish tables: marks and digests of rows, and addresses of columns in memory."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from dp_polars._base.column_types import parts_of
from dp_polars._sources.files import are_different, mark_of_files
from dp_polars._sources.views import dataset_of, kind_of, module_of, plan_nodes, serialized, sources_read

_ESTIMATE = re.compile(r"ESTIMATED ROWS: \d+")
# Signs of Python code in a plan's JSON.
_PYTHON = ('"AnonymousFunction":', '"OpaquePython":', '"callback":')


def mark_of(frame: pl.LazyFrame) -> str:
    """Return the kinds of sources of a checked plan, and an identification of its files.

    No row is read, and no file size: sizes depend on rows, and the mark is public.
    """
    kinds, files = set(), []
    for found, of in sources_read(frame):
        kinds.add(module_of(of) if callable(of) else "files" if found else "memory")
        files += found
    return " and ".join(sorted(kinds)) + (f" {mark_of_files(files)}" if files else "")


def text_of_plan(frame: pl.LazyFrame) -> str | None:
    """Return a digest of a plan: of its transformations, constants and files, and of columns in memory.

    None: the plan runs Python code, or JSON can't represent it.
    """
    found, shown = [], ""
    for plan in plan_nodes(frame):
        found.append(kind_of(plan))
        if found[-1] == "PythonScan" and dataset_of(plan.view_current_node().options[0]) is None:
            return None
    if found == ["DataFrameScan"]:
        tree: Any = sorted((name, str(dtype)) for name, dtype in plan.get_schema().items())
    else:
        tree = serialized(frame)
        # JSON has the same word for infinities and NaN. Polars' estimate of a file's rows is left out.
        shown = _ESTIMATE.sub("", frame._ldf.describe_plan())
    text = json.dumps([tree, shown])
    if tree is None or any(word in text for word in _PYTHON):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(frame: pl.LazyFrame, key: bytes) -> str | None:
    """Return a keyed digest of all rows in a plan's memory: "" if there are none, None if it can't be computed.

    The order of rows does not matter: a `group_by` gives another one each time.
    """
    found = [_sums(of, key) for _, of in sources_read(frame) if isinstance(of, pl.DataFrame)]
    if None in found:
        return None
    return hashlib.blake2b(repr(found).encode(), key=key, digest_size=32).hexdigest() if found else ""


def _sums(rows: pl.DataFrame, key: bytes) -> tuple[int, ...] | None:
    """Return the number of rows, and two sums of their hashes under the key."""
    texts = [pl.col(name).cast(pl.String) for name, dtype in rows.schema.items() if isinstance(dtype, pl.Categorical)]
    nested = [dtype for dtype in rows.dtypes if not isinstance(dtype, pl.Categorical)]
    if any(isinstance(part, (pl.Categorical, pl.Object)) for dtype in nested for part in parts_of(dtype)):
        return None  # each process numbers categories anew
    seeds = np.frombuffer(hashlib.blake2b(key, digest_size=16).digest(), np.uint64)
    try:
        compared = rows.with_columns(texts).select(sorted(rows.columns))
        sums = [int(compared.hash_rows(int(seed)).to_numpy().sum(dtype=np.uint64)) for seed in seeds]
    except (PolarsError, PanicException):
        return None
    return rows.height, *sums


@dataclass(frozen=True, eq=False)
class Reading:
    """One read of a table: its files, or a frame, an Arrow table or a dataset in memory.

    `order`: the columns of a CSV file in order, if the reader may have renamed them.
    `columns`: the columns that identify people, in the order of the privacy unit. None: there are none, or they are
    not known yet.
    `computed_by`: the texts by which the unit is computed of them, if it is.
    `is_of_facts`: the table is joined to people's rows by other columns.
    """

    files: tuple[str, ...] = ()
    memory: Any = None
    order: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    computed_by: object = None
    is_of_facts: bool = False

    def may_be_one_with(self, other: Reading) -> bool:
        if self.files and other.files:
            return not are_different([*dict.fromkeys(self.files), *dict.fromkeys(other.files)])
        if self.memory is None or other.memory is None:
            return False
        return self.memory is other.memory or not all_places(self.memory).isdisjoint(all_places(other.memory))

    def has_unit_of(self, other: Reading) -> bool:
        """Return whether both readings identify people by the same columns, if both read one table."""
        if self.is_of_facts or other.is_of_facts:
            return self.is_of_facts and other.is_of_facts
        if self.columns is None or other.columns is None or self.computed_by != other.computed_by:
            return False
        pairs = zip(self.columns, other.columns, strict=False)
        return len(self.columns) == len(other.columns) and all(self._is_column_of(other, *pair) for pair in pairs)

    def _is_column_of(self, other: Reading, name: str, of_other: str) -> bool:
        """Return whether a column is the same in another reading, if names may differ: in memory, or of a CSV file."""
        if self.order or other.order:
            return any(pair == (name, of_other) for pair in zip(self.order, other.order, strict=False))
        places, others = _places(self.memory, name), _places(other.memory, of_other)
        return not places.isdisjoint(others) if places and others else name == of_other


def refuse_two_units(places: Iterable[Sequence[Reading]], call: str) -> None:
    """Refuse a table that is read at two of these places with different privacy units."""
    for one, other in (pair for several in combinations(places, 2) for pair in product(*several)):
        if not one.has_unit_of(other) and one.may_be_one_with(other):
            msg = (
                f"{call}: a table that is read twice has one privacy unit: otherwise a row belongs to several people, "
                "and goes with each of them.\n\nHint: take the same columns for the unit, unchanged, wherever the "
                "table is read; rows of the table that is protected can't be joined by other columns."
            )
            raise ValueError(msg)


def _places(table: Any, name: str) -> frozenset[int]:  # noqa: ANN401
    """Return the addresses of a column's values in memory, which slices share.

    The null mask is left out: different columns may share it.
    Nested columns can't be a privacy unit, so all of their buffers are returned.
    """
    if isinstance(table, pl.DataFrame) and table.schema[name] in (pl.Int128, pl.UInt128):  # Arrow has no such type
        # The address where its values begin. A slice has another one, so it counts as another column.
        return frozenset(piece._s.as_single_ptr() for piece in table.get_column(name).get_chunks() if len(piece))
    pieces = [] if table is None else _pieces(table, name)
    buffers = (piece.buffers()[1 : None if piece.type.num_fields else 2] for piece in pieces if len(piece))
    return frozenset(buffer.address for several in buffers for buffer in several if buffer)


def all_places(table: Any) -> frozenset[int]:  # noqa: ANN401
    """Return the addresses of all columns in memory: of a frame, an Arrow table, or a dataset of one."""
    names = table.columns if isinstance(table, pl.DataFrame) else getattr(_of_arrow(table), "column_names", ())
    return frozenset[int]().union(*(_places(table, name) for name in names))


def _of_arrow(table: Any) -> Any:  # noqa: ANN401
    """Return the table of a dataset in memory, without a copy; anything else unchanged."""
    return table.to_table() if type(table).__name__ == "InMemoryDataset" else table


def _pieces(table: Any, name: str) -> list[Any]:  # noqa: ANN401
    """Return a column's chunks in Arrow, without a copy; none if Arrow lacks the type."""
    if not isinstance(table, pl.DataFrame):
        table = _of_arrow(table)
        column = table.column(name) if hasattr(table, "column_names") else None
        return [] if column is None else list(getattr(column, "chunks", [column]))
    column = table.get_column(name)
    if column.dtype == pl.Object:
        return []
    column = column.to_physical() if isinstance(column.dtype, pl.Categorical) else column
    return [piece.to_arrow(compat_level=pl.CompatLevel.newest()) for piece in column.get_chunks()]
