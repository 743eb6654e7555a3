"""Polars as an engine: how many rows, or how many people, each candidate of each group has.

The rows are encoded and grouped inside Polars; NumPy chooses which of a person's rows stay. Whatever stays of a
person depends on that person's own rows and on fresh random words, never on anyone else's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.arrays import offsets, slices
from dp_polars._base.settings import deaf
from dp_polars._base.threads import in_parallel
from dp_polars._codes.encoding import code_dtype
from dp_polars._draws.histograms import Histogram
from dp_polars._engines.bounding import Layout, keep
from dp_polars._engines.contract import LocalEngine, Tally, UnreadableError, alike
from dp_polars._engines.polars_arrays import count_rows, fit_arrays
from dp_polars._engines.polars_people import one_row_per_person, people_by_key
from dp_polars._engines.polars_rows import added_up, by_name, collected, in_parts, is_a_person, listed, own_keys
from dp_polars._rowwise.marks import mark_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from polars._typing import EngineType

    from dp_polars._base.arrays import Ints
    from dp_polars._engines.contract import KeyWork, Work

# Rows of people that Polars groups at once: 1 GiB or so.
_PARTITION_ROWS = 1 << 24
# Rows of people that NumPy bounds at once: their temporaries stay in the cache.
_PEOPLE_ROWS = 1 << 17
# Cells for each occupied one up to which they are put in order by their places, not by sorting.
_CELLS_PER_COUNT = 8

# Positions of tallies that are alike -> their cells, as of `_added_up`.
_Found: TypeAlias = "dict[tuple[int, ...], pl.DataFrame]"


class PolarsEngine(LocalEngine):
    """Rows in a frame, a file or a stream, counted by Polars in this process.

    Parameters
    ----------
    unread
        A plan to know the columns by. None: the rows could not be opened.
    read
        What opens the rows, after the charge.
    engine
        Polars' engine.
    partitions
        In how many parts people are counted, one after the other, each by a scan of the rows. None: as many as
        give parts of about 2**24 rows each; the rows are counted first for that. This and the sizes of the public
        arguments are all that the plan depends on.
    """

    runs_expressions = True
    counts_per_person = True

    def __init__(
        self,
        unread: pl.LazyFrame | None,
        read: Callable[[], pl.LazyFrame],
        engine: EngineType = "auto",
        partitions: int | None = None,
    ) -> None:
        self._unread, self._read, self._engine, self._partitions = unread, read, engine, partitions

    def mark(self) -> str:
        """Return whether the rows lie in memory or in files, and of files in which ones."""
        return "" if self._unread is None else mark_of(self._unread)

    def schema(self, columns: Collection[str]) -> pl.Schema:  # noqa: ARG002
        if self._unread is None:
            raise UnreadableError
        return self._unread.collect_schema()

    def distinct(self, constants: pl.DataFrame) -> int:
        """Return how many rows differ: they are compared in the types that they have."""
        return constants.n_unique()

    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        """Refuse groups and candidates whose cells don't fit into one integer."""
        for output in work.outputs:
            for tally in output.tallies:
                Layout.of(work.groups, work.tallies[tally].coding.size, f"Output {output.name!r}: ")
        return partial(self._histograms, work)

    def prepare_people_by_key(self, work: KeyWork) -> Callable[[], tuple[pl.DataFrame, Ints]]:
        # Grouping by many keys is what Polars' streaming engine does best, so that is "auto" here.
        engine = "streaming" if self._engine == "auto" else self._engine

        def find() -> tuple[pl.DataFrame, Ints]:
            source = self._read()
            parts = self._parts(source, int(work.privacy_unit is not None))
            return people_by_key(work.rows(source), work, engine, parts)

        return find

    def _histograms(self, work: Work) -> list[Histogram]:
        """Return the histogram of each tally, all from one scan of the rows (or one for each part of the people)."""
        source = self._read()
        rows = work.rows(source)
        if work.per_person is not None:
            rows = one_row_per_person(rows, work.per_person)
        by_person = 0 if work.privacy_unit is None else sum(tally.by_person for tally in work.tallies)
        partitions = self._parts(source, by_person)
        return count(rows, work.privacy_unit, work.keys, work.tallies, engine=self._engine, partitions=partitions)

    def _parts(self, source: pl.LazyFrame, by_person: int) -> int:
        """Return in how many parts people are counted, where `by_person` histograms hold them."""
        if self._partitions is not None or not by_person:
            return self._partitions or 1
        total = collected([source.select(pl.len())], self._engine)[0].item()
        return -(-total * by_person // _PARTITION_ROWS) or 1


def count(
    rows: pl.LazyFrame,
    privacy_unit: str | None,
    keys: pl.DataFrame | None,
    tallies: Sequence[Tally],
    *,
    engine: EngineType = "auto",
    partitions: int = 1,
) -> list[Histogram]:
    """Return the histogram of each tally.

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
    tallies
        What is counted, each by itself.
    engine
        Polars' engine.
    partitions
        In how many parts people are counted, one after the other. Rows that need not be told apart by person are
        counted by themselves, once.
    """
    groups = 1 if keys is None else keys.height
    if privacy_unit is not None:
        rows = rows.filter(is_a_person(privacy_unit, rows.collect_schema()[privacy_unit]))
    layouts = [Layout.of(groups, tally.coding.size) for tally in tallies]
    together = [tuple(tally_numbers) for tally_numbers in alike(tallies)]
    whole = [numbers for numbers in together if privacy_unit is None or not tallies[numbers[0]].by_person]
    people = [numbers for numbers in together if numbers not in whole]
    histograms: dict[int, Histogram] = {}
    found: _Found = {}
    if whole and fit_arrays(groups, tallies, whole):
        histograms = count_rows(rows, keys, tallies, whole, engine)
    elif whole:
        coded = _coded(rows, None, keys, tallies, whole)
        found |= _counted_by_row(coded, tallies, whole, layouts, engine)
    for part in in_parts(rows, privacy_unit, partitions) if people and privacy_unit is not None else ():
        coded = _coded(part, privacy_unit, keys, tallies, people)
        for tally_numbers, cells in _counted_by_person(coded, tallies, people, layouts, engine).items():
            if tally_numbers in found:  # nobody is in two parts
                cells = added_up([found[tally_numbers], cells], ["cell"], engine)
            found[tally_numbers] = cells
    for tally_numbers, cells in found.items():
        for number in tally_numbers:
            counted = cells.select("cell", count=_weight(tallies[number], number))
            histograms[number] = _by_group(counted, layouts[number], groups)
    return [histograms[number] for number in range(len(tallies))]


def _counted_by_row(
    coded: pl.LazyFrame,
    tallies: Sequence[Tally],
    together: Sequence[tuple[int, ...]],
    layouts: Sequence[Layout],
    engine: EngineType,
) -> _Found:
    """Return the cells of tallies that are alike, without regard to people."""
    plans = [_added_up(_cells(coded, tallies, numbers, layouts[numbers[0]])) for numbers in together]
    return dict(zip(together, collected(plans, engine), strict=True))


def _counted_by_person(
    coded: pl.LazyFrame,
    tallies: Sequence[Tally],
    together: Sequence[tuple[int, ...]],
    layouts: Sequence[Layout],
    engine: EngineType,
) -> _Found:
    """Return the cells of tallies that are alike, where each person's rows are bounded together."""
    cells = (_cells(coded, tallies, numbers, layouts[numbers[0]]) for numbers in together)
    plans = [rows.group_by("person").agg(pl.exclude("person")).drop("person") for rows in cells]
    return {
        numbers: _count_people(lists, tallies, numbers, layouts[numbers[0]])
        for numbers, lists in zip(together, collected(plans, engine), strict=True)
    }


def _weight(tally: Tally, number: int) -> pl.Expr:
    """Return the column that holds a tally's weights."""
    return pl.col("rows" if tally.weighing is None else f"weight {number}")


def _coded(
    rows: pl.LazyFrame,
    privacy_unit: str | None,
    keys: pl.DataFrame | None,
    tallies: Sequence[Tally],
    together: Sequence[Sequence[int]],
) -> pl.LazyFrame:
    """Return the rows of listed groups as `person`, `group`, a code for each kind of tally, and weights.

    Every histogram is counted from this one plan, so that Polars scans the rows once for all of them.
    """
    coded_columns, others = _made(tallies, together), own_keys(rows, keys)
    if privacy_unit is not None:
        others.append(pl.col(privacy_unit).alias("person"))
    # A constant gets as many rows as the frame.
    coded = rows.with_columns(*coded_columns, *others)
    coded = coded.select(expr.meta.output_name() for expr in [*coded_columns, *others])
    if len(together) == 1:
        first = together[0][0]
        coded = coded.filter(pl.col(f"code {first}") < tallies[first].coding.size)
    if keys is not None:
        coded = coded.join(listed(keys), on=[f"key {i}" for i in range(keys.width)])
    return coded


def _made(tallies: Sequence[Tally], together: Sequence[Sequence[int]]) -> list[pl.Expr]:
    """Return codes and weights, row by row; under names of our own, so that no column's name can be in the way."""
    columns = []
    for tally_numbers in together:
        first = tally_numbers[0]
        coding = tallies[first].coding
        code = coding.expression(tallies[first].columns, tallies[first].types)
        if code is None:
            code = _by_row(tallies[first].columns, coding.encoder(), code_dtype(coding.size))
        columns.append(code.alias(f"code {first}"))
        for number in tally_numbers:
            weighing = tallies[number].weighing
            if weighing is not None:
                weight = weighing.expression(tallies[number].columns, tallies[number].types)
                if weight is None:
                    weight = _by_row(tallies[number].columns, weighing.weigher(), np.dtype(np.int64))
                columns.append(weight.fill_null(0).alias(f"weight {number}"))
    return columns


def _by_row(
    columns: Sequence[pl.Expr],
    function: Callable[[Sequence[pl.Series]], NDArray[np.generic]],
    dtype: np.dtype[np.generic],
) -> pl.Expr:
    """Return an integer for every row, from what NumPy makes of columns."""
    return pl.map_batches(
        list(columns) or [pl.lit(0)],
        deaf(lambda values: pl.Series(function(values))),
        column_types.from_numpy_dtype(dtype),
        is_elementwise=True,
    )


def _cells(coded: pl.LazyFrame, tallies: Sequence[Tally], tally_numbers: Sequence[int], layout: Layout) -> pl.LazyFrame:
    """Return the rows that count for tallies that are alike: `cell`, weights, and `person` where there is one."""
    schema, first = coded.collect_schema(), tally_numbers[0]
    carried = [name for name in ("person", *(f"weight {number}" for number in tally_numbers)) if name in schema]
    group = ["group"] if "group" in schema else []
    # Selected before it is filtered: a filter right after the shared plan would move into it, and part the branches.
    rows = coded.select(pl.col(f"code {first}").alias("code"), *group, *carried).filter(
        pl.col("code") < tallies[first].coding.size
    )
    unsigned = pl.UInt32 if layout.bits <= 32 else pl.UInt64
    cell = pl.col("code").cast(unsigned)
    if group and layout.group_bits:
        cell += pl.col("group").cast(unsigned) * pl.lit(2**layout.code_bits, unsigned)
    return rows.select(cell.alias("cell"), *carried)


def _count_people(lists: pl.DataFrame, tallies: Sequence[Tally], alike: Sequence[int], layout: Layout) -> pl.DataFrame:
    """Return the histogram of these people's cells, one list each: columns `cell`, `rows` and weights."""
    tally, weighings = tallies[alike[0]], [tallies[number].weighing for number in alike]
    most = [weighing.largest for weighing in weighings if weighing is not None]
    # Each list holds one person's rows: the value of the privacy unit is not needed any more.
    lengths = lists["cell"].list.len().to_numpy().astype(np.int64)
    cells, *weights = (column.explode(empty_as_null=False).to_numpy() for column in lists)
    bounds = offsets(lengths)

    def of_slice(first: int, last: int) -> tuple[NDArray[np.unsignedinteger], list[Ints]]:
        rows = slice(bounds[first], bounds[last])
        stays, weighed = keep(
            cells[rows],
            lengths[first:last],
            tally.limits,
            layout,
            people=tally.people,
            weights=[weight[rows] for weight in weights],
            most=most,
        )
        return stays.astype(cells.dtype), weighed

    parts = in_parallel(of_slice, list(slices(lengths, _PEOPLE_ROWS, layout.most_people(people=tally.people))))
    columns = {"cell": np.concatenate([cells[:0], *(stays for stays, _ in parts)])}
    for place, name in enumerate(lists.columns[1:]):
        columns[name] = np.concatenate([weights[place][:0], *(weighed[place] for _, weighed in parts)])
    return _added_up(pl.LazyFrame(columns)).collect(engine=by_name("auto"))


def _added_up(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Return each cell once: columns `cell`, `rows`, and the sums of weights."""
    return cells.group_by("cell").agg(pl.len().cast(pl.Int64).alias("rows"), pl.exclude("cell").sum())


def _by_group(histogram: pl.DataFrame, layout: Layout, groups: int) -> Histogram:
    """Return the histogram with the cells taken apart, sorted."""
    cells: NDArray[np.integer]
    if 1 << layout.bits <= _CELLS_PER_COUNT * histogram.height:
        every = np.zeros(1 << layout.bits, np.int64)
        is_there = np.zeros(1 << layout.bits, bool)
        at = histogram["cell"].to_numpy()
        every[at], is_there[at] = histogram["count"].to_numpy(), True
        cells = np.flatnonzero(is_there)
        counts = every[cells]
    else:
        cells, counts = _sorted(histogram, layout)
    if layout.group_bits:
        group_numbers = (cells >> layout.code_bits).astype(np.int64)
        return Histogram.of_cells(group_numbers, cells & ((1 << layout.code_bits) - 1), counts, groups)
    # With one group there is nothing to take apart.
    return Histogram(cells.astype(np.int64), counts, np.array([len(cells)]))


def _sorted(histogram: pl.DataFrame, layout: Layout) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Return the cells in ascending order, and their counts."""
    cells, counts = histogram["cell"].to_numpy(), histogram["count"].to_numpy()
    bits = int(counts.max(initial=0)).bit_length()
    if layout.bits + bits <= 64 and counts.min(initial=0) >= 0:  # both in one word, which sorts several times as fast
        words = cells.astype(np.uint64) << np.uint64(bits)
        words |= counts.astype(np.uint64)
        words.sort()
        counts = (words & np.uint64((1 << bits) - 1)).astype(np.int64)
        words >>= np.uint64(bits)
        return words, counts
    order = np.argsort(cells)
    return cells[order], counts[order]
