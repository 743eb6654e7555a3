"""Histograms of rows with a counter for every cell: no row is joined with the public keys.

For rows that need not be told apart by person. Polars' streaming engine adds up what it can by itself (`polars_sums`).
Otherwise Polars hands over each batch once; sums are all that is held of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base.settings import deaf
from dp_polars._base.threads import in_parallel
from dp_polars._codes.candidates import Categories
from dp_polars._codes.encoding import category_encoder
from dp_polars._draws.histograms import Histogram
from dp_polars._engines.contract import Tally
from dp_polars._engines.polars_rows import ANY_FILTER, NO_FILTER_IN_SCANS, by_name, listed, own_keys
from dp_polars._engines.polars_sums import grouped
from dp_polars._rowwise.scans import may_filter_scans

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._base.arrays import Ints
    from dp_polars._codes.encoding import Encoder

# Counters in all, of eight bytes.
_MOST_COUNTERS = 1 << 23
# Combinations of values of several key columns, in a table of their groups.
_MOST_COMBINATIONS = 1 << 22
# Rows that a thread counts at once: at least, since their temporaries stay in the cache; and at most, since the sums of
# their weights, each at most 2**30 (`_codes/units.py`), are then exact as floats.
_SLICE_ROWS, _MOST_ROWS = 1 << 17, 1 << 21

_Numbering: TypeAlias = Callable[[pl.DataFrame], "NDArray[np.integer]"]


def fit_arrays(groups: int, tallies: Sequence[Tally], together: Sequence[Sequence[int]]) -> bool:
    """Return whether there is room for the counters of tallies, given by `alike`; public sizes alone decide it."""
    counters = 0
    for tally_numbers in together:
        weighed = sum(tallies[number].weighing is not None for number in tally_numbers)
        counters += _cells(groups, tallies[tally_numbers[0]].coding.size) * (1 + weighed)
    return counters <= _MOST_COUNTERS


def _cells(groups: int, size: int) -> int:
    """Return how many cells there are: one more group and one more code take up rows of neither."""
    return (groups + 1) * (size + 1)


def count_rows(
    rows: pl.LazyFrame,
    keys: pl.DataFrame | None,
    tallies: Sequence[Tally],
    together: Sequence[Sequence[int]],
    engine: EngineType,
) -> dict[int, Histogram]:
    """Return the histogram of rows of each tally that `together` names, by its position, all by one scan."""
    groups = 1 if keys is None else keys.height
    counts = [_Counts(groups, numbers, [tallies[number] for number in numbers]) for numbers in together]
    group_of = None if keys is None else _numbering(keys, rows.collect_schema())
    is_joined = keys is not None and group_of is None
    filters_scans = not is_joined and may_filter_scans(rows)  # nothing is filtered here
    optimizations = ANY_FILTER if filters_scans else NO_FILTER_IN_SCANS
    # In memory, Polars would hold a column for every weight.
    plan = grouped(rows, keys, tallies, together) if by_name(engine) == "streaming" and not is_joined else None
    if plan is not None:
        sums = plan.collect(engine="streaming", optimizations=optimizations)
        group = None if group_of is None else group_of(sums)
        for counters in counts:
            counters.add_sums(sums, group)
        return {number: histogram for counters in counts for number, histogram in counters.histograms()}
    plain_keys = [] if keys is None else [pl.col(name).alias(f"key {i}") for i, name in enumerate(keys.columns)]
    columns = [pl.lit(0, pl.UInt8).alias("row"), *(own_keys(rows, keys) if is_joined else plain_keys)]
    columns += [column for counters in counts for column in counters.columns]
    # A constant gets as many rows as the frame.
    plan = rows.with_columns(columns).select(expr.meta.output_name() for expr in columns)
    if keys is not None and is_joined:
        plan, group_of = plan.join(listed(keys), on=[f"key {i}" for i in range(keys.width)]), _joined
    step = min(max(_SLICE_ROWS, *(counters.cells for counters in counts)), _MOST_ROWS)

    @deaf
    def count_batch(batch: pl.DataFrame) -> None:
        def count_slice(start: int, stop: int) -> None:
            part = batch[start:stop]
            group = None if group_of is None else group_of(part)
            for counters in counts:
                counters.add(part, group)

        in_parallel(count_slice, [(start, start + step) for start in range(0, batch.height, step)])

    # Lazy: Polars 1.36 takes no notice of the optimizations that it is given here.
    sink = plan.sink_batches(count_batch, chunk_size=step * pl.thread_pool_size(), maintain_order=False, lazy=True)
    sink.collect(engine=by_name(engine), optimizations=optimizations)
    return {number: histogram for counters in counts for number, histogram in counters.histograms()}


class _Counts:
    """The rows of each cell, a group and a code, and the sums of their weights, for tallies that are alike."""

    def __init__(self, groups: int, numbers: Sequence[int], tallies: Sequence[Tally]) -> None:
        self._groups, self._numbers, self._size = groups, numbers, tallies[0].coding.size
        self.cells = _cells(groups, self._size)
        self.columns = [column.alias(f"column {numbers[0]} {i}") for i, column in enumerate(tallies[0].columns)]
        self._encode = tallies[0].coding.encoder()
        self._weigh = [None if tally.weighing is None else tally.weighing.weigher() for tally in tallies]
        self._rows = np.zeros(self.cells, np.int64)
        self._sums = [None if weigh is None else np.zeros(self.cells, np.int64) for weigh in self._weigh]
        self._lock = Lock()

    def add(self, batch: pl.DataFrame, group: NDArray[np.integer] | None) -> None:
        """Count some rows, of these groups."""
        values = [batch[column.meta.output_name()] for column in self.columns]
        cells = self._cells_of(values, batch.height, group)
        rows = np.bincount(cells, minlength=self.cells)
        sums = [
            None if weigh is None else np.bincount(cells, weigh(values), self.cells).astype(np.int64)
            for weigh in self._weigh
        ]
        with self._lock:
            self._rows += rows
            for total, more in zip(self._sums, sums, strict=True):
                if total is not None and more is not None:
                    total += more

    def add_sums(self, sums: pl.DataFrame, group: NDArray[np.integer] | None) -> None:
        """Count rows that `polars_sums` has added up."""
        first = self._numbers[0]
        # One code, where nothing is grouped by a column.
        values = [sums[name] for name in [f"column {first} 0"] if name in sums.columns]
        cells = self._cells_of(values, sums.height, group)
        np.add.at(self._rows, cells, sums[f"rows {first}"].to_numpy())
        for number, total in zip(self._numbers, self._sums, strict=True):
            if total is not None:
                np.add.at(total, cells, sums[f"weight {number}"].to_numpy())

    def _cells_of(self, values: Sequence[pl.Series], height: int, group: NDArray[np.integer] | None) -> Ints:
        cells = np.zeros(height, np.int64) if group is None else group.astype(np.int64) * (self._size + 1)
        if values:  # otherwise every row has the code 0
            cells += self._encode(values).astype(np.int64, copy=False)
        return cells

    def histograms(self) -> list[tuple[int, Histogram]]:
        """Return the histogram of each tally, and its position."""
        rows = self._rows.reshape(self._groups + 1, self._size + 1)
        rows[self._groups], rows[:, self._size] = 0, 0
        sizes, cells = np.count_nonzero(rows, axis=1)[: self._groups], np.flatnonzero(self._rows != 0)
        codes = cells - np.repeat(np.arange(self._groups) * (self._size + 1), sizes)
        return [
            (number, Histogram(codes, (self._rows if sums is None else sums)[cells], sizes))
            for number, sums in zip(self._numbers, self._sums, strict=True)
        ]


def _numbering(keys: pl.DataFrame, schema: pl.Schema) -> _Numbering | None:
    """Return what gives rows the number of their group, or the number of groups; None if a table has no room."""
    distinct = [column.unique(maintain_order=True).alias("") for column in keys]
    sizes = [len(values) + 1 for values in distinct]
    if keys.width > 1 and math.prod(sizes) > _MOST_COMBINATIONS:
        return None
    of_keys, of_rows = (
        [category_encoder(Categories(values), dtype) for values, dtype in zip(distinct, types, strict=True)]
        for types in (keys.dtypes, [schema[name] for name in keys.columns])
    )

    def combination(encoders: Sequence[Encoder], columns: Sequence[pl.Series]) -> Ints:
        number = np.zeros(len(columns[0]), np.int64)
        for column, encode, size in zip(columns, encoders, sizes, strict=True):
            number *= size
            number += encode(column).astype(np.int64, copy=False)
        return number

    if keys.width == 1:
        return lambda batch: of_rows[0](batch["key 0"])
    table = np.full(math.prod(sizes), keys.height)
    table[combination(of_keys, keys.get_columns())] = np.arange(keys.height)
    return lambda batch: table[combination(of_rows, [batch[f"key {i}"] for i in range(keys.width)])]


def _joined(batch: pl.DataFrame) -> NDArray[np.integer]:
    return batch["group"].to_numpy()
