"""From rows to histograms: how many rows, or how many people, each candidate of each group has.

The rows are encoded and grouped inside Polars; NumPy chooses which of a person's rows stay. Whatever stays of a
person depends on that person's own rows and on fresh random words, never on anyone else's rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._engines.bounding import Cells, Kept, keep
from dp_polars._numeric.threads import in_parallel
from dp_polars._queries import column_types
from dp_polars._queries.drawing import draw_from_runs, offsets, slices
from dp_polars._queries.encoding import code_dtype
from dp_polars._queries.scores import Runs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from polars._typing import EngineType

    from dp_polars._numeric.arrays import Ints
    from dp_polars._queries.encoding import Codes
    from dp_polars._queries.queries import Counted

# Rows of people that Polars groups at once: 1 GiB or so.
_PARTITION_ROWS = 1 << 24
# Rows of people that NumPy bounds at once: their temporaries stay in the cache.
_PEOPLE_ROWS = 1 << 17
# Cells for each occupied one up to which they are put in order by their places, not by sorting.
_CELLS_PER_COUNT = 8
# Rows of a histogram that one slice of a draw works on, and groups with or without rows.
_DRAW_ROWS = 1 << 19
_DRAW_GROUPS = 1 << 19


@dataclass(frozen=True)
class Output:
    """What is counted for one output.

    Parameters
    ----------
    name
        Its name in the answer.
    column
        The values that are asked about: row by row, one output.
    query
        What is asked of them: a mode or a quantile.
    kept
        The most that is kept of one person's rows.
    people
        Whether distinct people are counted per candidate, rather than rows.
    """

    name: str
    column: pl.Expr
    query: Counted
    kept: Kept
    people: bool


def count(
    rows: pl.LazyFrame,
    privacy_unit: str | None,
    keys: pl.DataFrame | None,
    outputs: Sequence[Output],
    *,
    engine: EngineType = "auto",
    partitions: int | None = None,
) -> list[pl.DataFrame]:
    """Return the histogram of each output.

    Parameters
    ----------
    rows
        The private rows.
    privacy_unit
        The column that says whose a row is; rows where it is null or NaN are left out. None: every row is a person of
        its own, and nothing has to be bounded.
    keys
        The public groups: the columns are named and typed as in `rows` (a Categorical there is text here), without
        null, and row i is group i. None: one group.
    outputs
        What is counted, each by itself.
    engine
        Polars' engine.
    partitions
        In how many parts people are counted, one after the other, each by a scan of the rows. None: so many that a
        part has about 2**24 rows, for which the rows are counted first. This and the sizes of the public arguments
        are all that the plan depends on.

    Returns
    -------
    list of DataFrame
        Columns `group` (UInt32), `code` (UInt32, or UInt64 where there are more candidates) and `count` (UInt64),
        sorted by group and code; only pairs that have rows. Rows that have no candidate, or no listed group, are
        left out before anything is bounded.
    """
    by_person = privacy_unit is not None and any(_by_person(output) for output in outputs)
    if partitions is None and by_person:
        total = _collected(rows.select(pl.len()), engine).item()
        partitions = max(1, -(-total // _PARTITION_ROWS))
    if privacy_unit is not None:
        rows = rows.filter(_is_a_person(privacy_unit, rows.collect_schema()[privacy_unit]))
    return [_count(rows, privacy_unit, keys, output, engine, partitions or 1) for output in outputs]


def _is_a_person(privacy_unit: str, dtype: pl.DataType) -> pl.Expr:
    unit = pl.col(privacy_unit)
    return unit.is_not_null() & unit.is_not_nan() if dtype.is_float() else unit.is_not_null()


def _by_person(output: Output) -> bool:
    return output.people or not output.kept.everything


def _count(
    rows: pl.LazyFrame,
    privacy_unit: str | None,
    keys: pl.DataFrame | None,
    output: Output,
    engine: EngineType,
    partitions: int,
) -> pl.DataFrame:
    dtype = rows.select(output.column).collect_schema().dtypes()[0]
    size = output.query.draw(dtype).size
    layout = Cells.of(1 if keys is None else len(keys), size)
    if privacy_unit is None or not _by_person(output):
        cells = _cells(rows, None, keys, output, dtype, layout)
        return _by_group(_histogram(cells, engine), layout, size)

    parts = (
        _count_people(_cells(part, privacy_unit, keys, output, dtype, layout), output, layout, engine)
        for part in _partitions(rows, privacy_unit, partitions)
    )
    histogram = next(parts)
    for part in parts:
        # Nobody is in two parts.
        histogram = pl.concat([histogram, part]).group_by("cell").agg(pl.col("count").sum())
    return _by_group(histogram, layout, size)


def _partitions(rows: pl.LazyFrame, privacy_unit: str, partitions: int) -> Iterator[pl.LazyFrame]:
    """Yield the rows in parts, all rows of a person in one of them. Says on a terminal how far it is."""
    if partitions == 1:
        yield rows
        return
    unit = pl.col(privacy_unit)
    if isinstance(rows.collect_schema()[privacy_unit], (pl.Categorical, pl.Enum)):
        # The text, because the number of a category may be another one in the next scan.
        unit = unit.cast(pl.String)
    part = unit.hash(int.from_bytes(os.urandom(8), "little")) % partitions
    shows = sys.stderr is not None and sys.stderr.isatty()
    try:
        for number in range(partitions):
            if shows:
                print(f"\rcounting people: {number / partitions:4.0%}", end="", file=sys.stderr, flush=True)
            yield rows.filter(part == number)
    finally:
        if shows:
            print("\r" + " " * 21, end="\r", file=sys.stderr, flush=True)


def _cells(
    rows: pl.LazyFrame,
    privacy_unit: str | None,
    keys: pl.DataFrame | None,
    output: Output,
    dtype: pl.DataType,
    layout: Cells,
) -> pl.LazyFrame:
    """Return the rows that count as columns `cell` and, where a unit is given, `person`."""
    names = [] if keys is None else keys.columns
    size, encode = output.query.draw(dtype).size, output.query.encoder(dtype)
    code = output.column.map_batches(
        lambda values: pl.Series(encode(values)), column_types.from_numpy_dtype(code_dtype(size)), is_elementwise=True
    )
    person = [] if privacy_unit is None else [pl.col(privacy_unit).alias("person")]
    # Names of our own, so that no column's name can be in the way.
    own_keys = [pl.col(name).alias(f"key {i}") for i, name in enumerate(names)]
    schema = rows.collect_schema()
    row_keys = [key.cast(column_types.released(schema[name])) for key, name in zip(own_keys, names, strict=True)]
    coded = rows.select(*person, *row_keys, code.alias("code")).filter(pl.col("code") < size)
    unsigned = pl.UInt32 if layout.bits <= 32 else pl.UInt64
    cell = pl.col("code").cast(unsigned)
    if keys is not None:
        groups = keys.lazy().select(own_keys).with_row_index("group")
        coded = coded.join(groups, on=[f"key {i}" for i in range(len(names))])
        if layout.group_bits:
            cell += pl.col("group").cast(unsigned) * pl.lit(2**layout.code_bits, unsigned)
    return coded.select(*([] if privacy_unit is None else ["person"]), cell.alias("cell"))


def _count_people(cells: pl.LazyFrame, output: Output, layout: Cells, engine: EngineType) -> pl.DataFrame:
    """Return the histogram of these people's cells: columns `cell` and `count`."""
    # Polars says which rows are one person's; who that is does not matter any more.
    lists = _collected(cells.group_by("person").agg("cell").select("cell"), engine).to_series()
    lengths = lists.list.len().to_numpy().astype(np.int64)
    flat = lists.explode(empty_as_null=False).to_numpy()
    del lists
    bounds = offsets(lengths)

    def of_slice(first: int, last: int) -> Codes:
        own = flat[bounds[first] : bounds[last]]
        return keep(own, lengths[first:last], output.kept, layout, people=output.people).astype(flat.dtype)

    parts = list(slices(lengths, _PEOPLE_ROWS, layout.most_people(people=output.people)))
    kept = np.concatenate([flat[:0], *in_parallel(of_slice, parts)])
    return _histogram(pl.LazyFrame({"cell": kept}), engine)


def _histogram(cells: pl.LazyFrame, engine: EngineType) -> pl.DataFrame:
    """Return how often each cell occurs: columns `cell` and `count`."""
    return _collected(cells.group_by("cell").agg(pl.len().cast(pl.UInt64).alias("count")), engine)


def _collected(plan: pl.LazyFrame, engine: EngineType) -> pl.DataFrame:
    """Return what a plan on private rows gives, with no filter moved into the scans.

    There a filter leaves out row groups by what it gives on their least and largest values: x * 2 > 0 on a group with a
    value so large that it overflows is false, and the group's other rows are gone. NaN may be in neither.
    """
    return plan.collect(engine=engine, optimizations=pl.QueryOptFlags(predicate_pushdown=False))


def _by_group(histogram: pl.DataFrame, layout: Cells, size: int) -> pl.DataFrame:
    """Return the histogram with the cells taken apart, sorted."""
    cells: NDArray[np.integer]
    if 1 << layout.bits <= _CELLS_PER_COUNT * histogram.height:
        every = np.zeros(1 << layout.bits, np.uint64)
        every[histogram["cell"].to_numpy()] = histogram["count"].to_numpy()
        cells = np.flatnonzero(every)
        counts = pl.Series(every[cells])
    else:
        cells, counts = _sorted(histogram, layout)
    code = np.uint32 if size <= 2**32 else np.uint64
    if layout.group_bits:
        groups = (cells >> layout.code_bits).astype(np.uint32)
        codes = (cells & ((1 << layout.code_bits) - 1)).astype(code)
    else:  # with one group there is nothing to take apart
        groups, codes = np.zeros(len(cells), np.uint32), cells.astype(code)
    return pl.DataFrame({"group": groups, "code": codes, "count": counts})


def _sorted(histogram: pl.DataFrame, layout: Cells) -> tuple[Codes, pl.Series]:
    """Return the cells in ascending order, and their counts."""
    bits = int(histogram["count"].max() or 0).bit_length()  # type: ignore[arg-type]
    if layout.bits + bits <= 64:  # both in one word, which sorts several times as fast
        words = histogram["cell"].to_numpy().astype(np.uint64) << np.uint64(bits)
        words |= histogram["count"].to_numpy()
        words.sort()
        counts = pl.Series(words & np.uint64((1 << bits) - 1))
        words >>= np.uint64(bits)
        return words, counts
    histogram = histogram.sort("cell")
    return histogram["cell"].to_numpy(), histogram["count"]


def draw_groups(histogram: pl.DataFrame, groups: int, query: Counted, column: pl.DataType) -> Ints:
    """Return one code per group, shape (groups,).

    Parameters
    ----------
    histogram
        What `count` returns. A group that it does not name has no rows: its answer is uniform.
    groups
        Number of public groups.
    query
        What is asked.
    column
        The type of the column that is asked about.
    """
    draw = query.draw(column)
    bounds = np.searchsorted(histogram["group"].to_numpy(), np.arange(groups + 1, dtype=np.uint32))
    lengths = np.diff(bounds)

    def of_slice(first: int, last: int) -> Ints:
        part = histogram[bounds[first] : bounds[last]]
        codes, counts = (part[name].to_numpy().astype(np.int64) for name in ("code", "count"))
        return draw_from_runs(draw, Runs.of_counts(codes, counts, lengths[first:last]))

    parts = list(slices(lengths, _DRAW_ROWS, _DRAW_GROUPS))
    return np.concatenate([np.empty(0, np.int64), *in_parallel(of_slice, parts)])
