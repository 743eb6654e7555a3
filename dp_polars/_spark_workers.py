"""What Spark's executors run in Python: encoding values, and drawing. It gets and gives batches in Arrow's format.

A histogram has the columns `group`, `output` (its position), `code` and `count`. A group's first row is its *marker*:
`output` is −1, and the key columns, null in all other rows, hold its public key. So a group without private rows is
answered too, and each key comes out exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from dp_polars._kernel import draw_from_runs
from dp_polars.scores import Runs

if TYPE_CHECKING:
    from dp_polars.queries import Counted

Stage: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"

MARKER = -1
# Rows that are encoded or drawn at once: Spark's batches of 10,000 would cost mostly overhead.
_ROWS = 1 << 18


@dataclass(frozen=True)
class Answer:
    """What is drawn for one output: from which column type, and as which type it is answered."""

    query: Counted
    column: pl.DataType
    dtype: pl.DataType


def encoding(query: Counted, column: pl.DataType) -> Stage:
    """Return the stage from (group, value, count) to (group, code, count), without values that are no evidence."""

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder, size = query.encoder(column), query.draw(column).size
        for rows in _in_chunks(batches):
            frame = pl.DataFrame(pl.from_arrow(rows))
            codes = pl.Series("code", encoder(frame["value"].cast(column)).astype(np.int64))
            # Many values may share a code: adding them up here saves Spark from sending each.
            counted = (
                frame.select("group", codes, "count").filter(pl.col("code") < size).group_by("group", "code").sum()
            )
            yield from counted.select("group", "code", "count").to_arrow().to_batches()

    return encode


def drawing(answers: Sequence[Answer], names: Sequence[str]) -> Stage:
    """Return the stage from a histogram, sorted by group, output and code, to one row of answers per group.

    `names` are those of the key columns and of the answers.
    """

    def draw(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for histogram in whole_groups(batches):
            yield pa.RecordBatch.from_arrays(_draw(histogram, answers), names=list(names))

    return draw


def whole_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables of whole groups, many at once: Spark's batches end anywhere."""
    held: pa.Table | None = None
    for rows in _in_chunks(batches):
        table = rows if held is None else pa.concat_tables([held, rows])
        groups = _numpy(table["group"])
        last = int(np.searchsorted(groups, groups[-1]))
        if last:
            yield table.slice(0, last)
        held = table.slice(last)
    if held is not None:
        yield held


def _in_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= _ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _draw(histogram: pa.Table, answers: Sequence[Answer]) -> list[pa.Array]:
    """Return the keys and the answers of all groups of the table."""
    groups, outputs, codes, counts = (_numpy(histogram[name]) for name in ("group", "output", "code", "count"))
    markers = np.flatnonzero(outputs == MARKER)
    columns = [column.combine_chunks() for column in histogram.select(histogram.column_names[4:]).take(markers).columns]
    for position, answer in enumerate(answers):
        own = outputs == position
        runs = _runs(groups[markers], groups[own], codes[own], counts[own])
        drawn = draw_from_runs(answer.query.draw(answer.column), runs)
        columns.append(answer.query.answers(drawn, answer.column).cast(answer.dtype).to_arrow())
    return columns


def _runs(
    listed: np.ndarray[tuple[int], np.dtype[np.int64]],
    groups: np.ndarray[tuple[int], np.dtype[np.int64]],
    codes: np.ndarray[tuple[int], np.dtype[np.int64]],
    counts: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Runs:
    """Return the histogram of the listed groups; rows of one code, which may come from several tasks, are added up."""
    new = np.ones(len(groups), bool)
    new[1:] = (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1])
    at = np.flatnonzero(new)
    sums = np.add.reduceat(counts, at) if len(at) else counts
    sizes = np.searchsorted(groups[at], listed, side="right") - np.searchsorted(groups[at], listed)
    if sizes.sum() != len(at):
        msg = "Every group must come with its key: Spark has divided one between two tasks."
        raise RuntimeError(msg)
    return Runs.of_counts(codes[at], sums, sizes)


def _numpy(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    array: np.ndarray[tuple[int], np.dtype[np.int64]] = column.to_numpy()
    return array
