"""Private rows that were given: a plan with their columns, and a function that reads the rows later."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

import polars as pl

from dp_polars._sources.files import refuse_repeated_files
from dp_polars._sources.flags import with_clean_memory
from dp_polars._sources.marks import Reading
from dp_polars._sources.plans import files_of, preprocessing_of, reading_of_arrow, refuse_rewritten_files
from dp_polars._sources.running import collected
from dp_polars._sources.tables import scan_of_dataset, table_of, untaken, without_untaken
from dp_polars._sources.views import has_python_source, holds_rows, serialized
from dp_polars._steps.nodes import holds_answer

if TYPE_CHECKING:
    from typing import Self

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._sources.files import Identity


# A frame of private rows: also a pyarrow dataset, and any object with Arrow's C stream.
PrivateRows: TypeAlias = "pl.LazyFrame | pl.DataFrame | object"

# Readers that a release has read. Whether others have read one can't be known without reading rows.
_READ: WeakSet[object] = WeakSet()


@dataclass(frozen=True)
class Source:
    """Private rows that are not read yet; `unread` is None if they could not be opened.

    `marked`: identifies these rows, and may be read at any time. None: nothing identifies them.
    `wanted`: for each query, the columns that `read` must return with values. Empty: all columns.
    None: `read` always returns all values.
    `close`: closes open sources before rows are read.
    """

    unread: pl.LazyFrame | None
    read: Callable[[], pl.LazyFrame]
    readings: tuple[Reading, ...] = ()
    marked: Callable[[], pl.LazyFrame] | None = None
    wanted: list[Collection[str]] | None = None
    close: Callable[[], object] = lambda: None

    @property
    def files(self) -> tuple[str, ...]:
        return files_of(self.readings)

    def refuse_rewritten_files(self, known: tuple[Identity, ...] | None) -> None:
        """Refuse a plan if its files have changed since `protect`, or since their columns were resolved."""
        if self.unread is not None:
            refuse_rewritten_files(self.unread, self.files, known)


class Opened(dict[tuple[int, "PrivacyUnit | None", bool], Source]):
    """Sources shared by several queries, by the identity of their frame, their unit and whether they are unchecked.

    The end of the block closes open ones, also after an error.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.values():
            source.close()


def source_of(frame: PrivateRows, unit: PrivacyUnit | None, *, unchecked: bool = False) -> Source:
    """Return private rows without reading them; refuse a plan that visibly mixes people."""
    if isinstance(frame, pl.DataFrame):
        frame = frame.lazy()
    if isinstance(frame, pl.LazyFrame):
        with asking_after_protect(frame):
            readings, varies = preprocessing_of(frame, unit, unchecked=unchecked)
        plan = without_untaken(frame)
        if not varies:
            return Source(plan, lambda: with_clean_memory(plan), readings, lambda: plan)
        # A release reads its rows more than once: sums of floats, choices and ties must not change.
        return Source(plan, lambda: collected([with_clean_memory(plan)], "auto")[0].lazy(), readings, lambda: plan)
    datasets = sys.modules.get("pyarrow.dataset")  # a dataset's owner has imported it
    if datasets is not None and isinstance(frame, datasets.Dataset):
        reading = replace(reading_of_arrow(frame), columns=unit)
        if unit is None:
            refuse_repeated_files(reading.files)
        dataset = scan_of_dataset(frame)
        return Source(dataset, lambda: dataset, (reading,), lambda: dataset)
    return _source_of_table(frame, Reading(memory=frame, columns=unit))


def _source_of_table(frame: object, reading: Reading) -> Source:
    is_reader = type(frame).__name__ == "RecordBatchReader"
    if is_reader and frame in _READ:
        msg = (
            "private rows must be there to be read, got a RecordBatchReader that a release has read: it holds none "
            "any more.\n\nHint: release its read_all(), a Table, which can be read again."
        )
        raise ValueError(msg)
    table = table_of(frame)
    if table is None:  # the failure depends on rows, so the engine reports it after the charge
        return Source(None, pl.LazyFrame)
    close: Callable[[], object] = (lambda: None) if is_reader else table.close  # its owner closes a reader
    try:
        schema = table.schema()
    except (TypeError, ValueError):
        close()
        raise
    every = [name for name, dtype in schema.items() if untaken(dtype) is None]
    wanted: list[Collection[str]] = []

    def read() -> pl.LazyFrame:
        if is_reader:
            _READ.add(frame)
        return table.rows(schema, {*every}.intersection(set[str]().union(*wanted)) if wanted else every)

    def marked() -> pl.LazyFrame:
        return table.rows(pl.Schema({name: schema[name] for name in every}), every)

    unread = pl.DataFrame(schema=schema).lazy()
    return Source(unread, read, (reading,), marked if table.has_rows_again else None, wanted, close)


@contextmanager
def asking_after_protect(plan: pl.LazyFrame) -> Iterator[None]:
    """If a refused plan draws private answers, raise that they come after `protect`."""
    try:
        yield
    except ValueError:
        # Polars crashes when it serializes a Python source with files in buffers.
        if has_python_source(plan) or not holds_answer(serialized(plan)):
            raise
        msg = (
            "protect: a private answer must come after `protect`, got one in what makes the rows, where it is "
            "drawn from all of them.\n\n"
            'Hint: use it after `protect`: frame.dp.protect("patient", max_rows=1).agg(pl.col("x").dp.mean(…)). For '
            'each group: group_by({"ward": ["A", "B"]}).agg(…).'
        )
        raise ValueError(msg) from None


def opened_source(
    frame: PrivateRows, unit: PrivacyUnit | None, opened: Opened | None = None, *, unchecked: bool = False
) -> Source:
    """Return `source_of(…)`. Queries of a publication share `opened` sources, so each is read once."""
    opened, key = Opened() if opened is None else opened, (id(frame), unit, unchecked)
    if key not in opened:
        source = source_of(frame, unit, unchecked=unchecked)
        opened[key] = replace(source, read=cache(source.read))
    return opened[key]


class Unchanging:
    """A value that never changes: copying returns the object itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self


class WithoutRows(Unchanging):
    """A value that may have private rows, `_source`, and can be pickled only without them. None: no rows yet."""

    _source: pl.LazyFrame | None

    def __getstate__(self) -> dict[str, object]:
        if self._source is not None and holds_rows(self._source):
            msg = (
                f"a {type(self).__name__} must be bound to no rows in memory to be pickled: they would all be in the "
                "pickle.\n\nHint: build the query without data, dp_polars.protect(…), and give the rows to "
                "release(frame); or protect a scan of files."
            )
            raise TypeError(msg)
        return self.__dict__.copy()
