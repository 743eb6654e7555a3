"""The Polars engine: histograms of rows and of people, in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from operator import add, or_
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException

from dp_polars._base import column_types, progress
from dp_polars._base.column_types import PrivacyUnit
from dp_polars._base.numbers import Ints, sorted_words
from dp_polars._base.silence import in_parallel, silenced
from dp_polars._bins.binning import (
    CategoryBinning,
    Clamping,
    Encoder,
    NearestBinning,
    OneCode,
    category_encoder,
    code_dtype,
)
from dp_polars._bins.candidates import Categories
from dp_polars._engines.polars.held import Held
from dp_polars._engines.polars.labels import labelled
from dp_polars._engines.polars.people import (
    AlikeSpecs,
    CellsOfKinds,
    Cut,
    added_up_cells,
    count_people,
    one_row_per_person,
    people_by_key,
    weight_name,
)
from dp_polars._engines.polars.rows import (
    FEW,
    added_up,
    in_kept_parts,
    in_parts,
    is_a_person,
    is_equal_by_value,
    listed,
    may_filter_scans,
    own_keys,
    person_of,
    with_groups,
)
from dp_polars._engines.polars.weighing import weigh_people
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._release.contract import (
    HistogramSpec,
    KeyWork,
    LocalEngine,
    PartChoice,
    Product,
    UnreadableError,
    Work,
    gathered,
)
from dp_polars._release.protection import Layout
from dp_polars._sources.flags import rows_of_joined, unflagged
from dp_polars._sources.marks import digest_of, mark_of, text_of_plan
from dp_polars._sources.running import ANY_FILTER, NO_FILTER_IN_SCANS, by_name, collected
from dp_polars._sources.source import Source

if TYPE_CHECKING:
    from polars._typing import EngineType


# Counters in total, each of eight bytes.
_MOST_COUNTERS = 1 << 23
# The most combinations of key values for which a table of groups is built.
_MOST_COMBINATIONS = 1 << 22
# Rows that a thread counts at once: a slice's temporaries stay in the cache. With no more than `_MOST_ROWS`, sums of
# weights (each at most 2**30, `_bins/weights.py`) are exact as floats.
_SLICE_ROWS, _MOST_ROWS = 1 << 17, 1 << 21

_Numbering: TypeAlias = Callable[[pl.DataFrame], "NDArray[np.integer]"]


def fit_arrays(groups: int, specs: Sequence[HistogramSpec], together: Sequence[Sequence[int]]) -> bool:
    """Return whether the counters of alike specs fit into memory. Only public sizes decide."""
    counters = 0
    for spec_numbers in together:
        weighed = sum(specs[number].row_weight is not None for number in spec_numbers)
        first = specs[spec_numbers[0]]
        if weighed or not _are_held(groups, [first]):
            counters += _cells(groups, first.binning.size) * (1 + weighed)
    return counters <= _MOST_COUNTERS


def _are_held(groups: int, specs: Sequence[HistogramSpec]) -> bool:
    """Return whether the rows of alike specs are held: for ordered values that hardly ever repeat."""
    binning = specs[0].binning
    is_fine = _cells(groups, binning.size) > _MOST_COUNTERS and isinstance(binning, NearestBinning)
    return is_fine and all(spec.row_weight is None and spec.weight is None for spec in specs)


def _cells(groups: int, size: int) -> int:
    """Return the number of cells. The extra group and the extra code are for rows without one."""
    return (groups + 1) * (size + 1)


def count_rows(
    rows: pl.LazyFrame,
    keys: pl.DataFrame | None,
    specs: Sequence[HistogramSpec],
    together: Sequence[Sequence[int]],
    engine: EngineType,
) -> dict[int, Histogram]:
    """Return the histogram of rows for each spec in `together`, by its position, from one scan."""
    groups = 1 if keys is None else keys.height
    kinds = [(numbers, [specs[number] for number in numbers]) for numbers in together]
    counts = [(_Held if _are_held(groups, of) else _Counts)(groups, numbers, of) for numbers, of in kinds]
    group_of = None if keys is None else _numbering(keys, rows.collect_schema())
    is_joined = keys is not None and group_of is None
    filters_scans = not is_joined and may_filter_scans(rows)  # this function adds no filter
    optimizations = ANY_FILTER if filters_scans else NO_FILTER_IN_SCANS
    # Only when streaming: in memory, Polars would build a column for every weight.
    plan = grouped(rows, keys, specs, together) if by_name(engine) == "streaming" and not is_joined else None
    if plan is not None:
        sums = plan.collect(engine="streaming", optimizations=optimizations)
        group = None if group_of is None else group_of(sums)
        for counters in counts:
            assert isinstance(counters, _Counts), "there is no plan for ordered values"
            counters.add_sums(sums, group)
        return {number: histogram for counters in counts for number, histogram in counters.histograms()}
    plain_keys = [] if keys is None else [pl.col(name).alias(f"key {i}") for i, name in enumerate(keys.columns)]
    columns = [pl.lit(0, pl.UInt8).alias("row"), *(own_keys(rows, keys) if is_joined else plain_keys)]
    columns += [column for counters in counts for column in counters.columns]
    # `with_columns` first, so that a constant has as many rows as the frame.
    plan = rows.with_columns(columns).select(expr.meta.output_name() for expr in columns)
    if keys is not None and is_joined:
        plan, group_of = plan.join(listed(keys), on=[f"key {i}" for i in range(keys.width)]), _joined
    step = min(max(_SLICE_ROWS, *(counters.cells for counters in counts)), _MOST_ROWS)

    @silenced
    def count_batch(batch: pl.DataFrame) -> None:
        def count_slice(start: int, stop: int) -> None:
            part = batch[start:stop]
            group = None if group_of is None else group_of(part)
            for counters in counts:
                counters.add(part, group)

        in_parallel(count_slice, [(start, start + step) for start in range(0, batch.height, step)])

    # Lazy, because Polars 1.36 ignores the `optimizations` of `sink_batches`.
    sink = plan.sink_batches(count_batch, chunk_size=step * pl.thread_pool_size(), maintain_order=False, lazy=True)
    sink.collect(engine=by_name(engine), optimizations=optimizations)
    return {number: histogram for counters in counts for number, histogram in counters.histograms()}


class _Counted:
    """Counters for alike specs."""

    def __init__(self, groups: int, numbers: Sequence[int], specs: Sequence[HistogramSpec]) -> None:
        self._groups, self._numbers, self._size = groups, numbers, specs[0].binning.size
        self.cells = _cells(groups, self._size)
        self.columns = [column.alias(f"column {numbers[0]} {i}") for i, column in enumerate(specs[0].columns)]
        self._encode = specs[0].binning.encoder()
        self._lock = Lock()


class _Counts(_Counted):
    """Number of rows in each cell (a group and a code), and the sums of their weights."""

    def __init__(self, groups: int, numbers: Sequence[int], specs: Sequence[HistogramSpec]) -> None:
        super().__init__(groups, numbers, specs)
        self._weigh = [None if spec.row_weight is None else spec.row_weight.weigh for spec in specs]
        self._rows = np.zeros(self.cells, np.int64)
        self._sums = [None if weigh is None else np.zeros(self.cells, np.int64) for weigh in self._weigh]

    def add(self, batch: pl.DataFrame, group: NDArray[np.integer] | None) -> None:
        """Count rows of these groups."""
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
        """Count rows that `grouped` has added up."""
        first = self._numbers[0]
        # No column: every row has the same code.
        values = [sums[name] for name in [f"column {first} 0"] if name in sums.columns]
        cells = self._cells_of(values, sums.height, group)
        np.add.at(self._rows, cells, sums[f"rows {first}"].to_numpy())
        for number, total in zip(self._numbers, self._sums, strict=True):
            if total is not None:
                np.add.at(total, cells, sums[f"weight {number}"].to_numpy())

    def _cells_of(self, values: Sequence[pl.Series], height: int, group: NDArray[np.integer] | None) -> Ints:
        cells = np.zeros(height, np.int64) if group is None else group.astype(np.int64) * (self._size + 1)
        if values:  # else every row has the code 0
            cells += self._encode(values).astype(np.int64, copy=False)
        return cells

    def histograms(self) -> list[tuple[int, Histogram]]:
        """Return each spec's position and histogram."""
        rows = self._rows.reshape(self._groups + 1, self._size + 1)
        rows[self._groups], rows[:, self._size] = 0, 0
        sizes, cells = np.count_nonzero(rows, axis=1)[: self._groups], np.flatnonzero(self._rows != 0)
        codes = cells - np.repeat(np.arange(self._groups) * (self._size + 1), sizes)
        return [
            (number, Histogram(codes, (self._rows if sums is None else sums)[cells], sizes))
            for number, sums in zip(self._numbers, self._sums, strict=True)
        ]


class _Held(_Counted):
    """Groups and codes of single rows."""

    def __init__(self, groups: int, numbers: Sequence[int], specs: Sequence[HistogramSpec]) -> None:
        super().__init__(groups, numbers, specs)
        self.cells, self._held = 0, Held(groups, self._size)  # no counters

    def add(self, batch: pl.DataFrame, group: NDArray[np.integer] | None) -> None:
        """Hold rows of these groups."""
        code = self._encode([batch[column.meta.output_name()] for column in self.columns])
        group = np.zeros(len(code), np.uint8) if group is None else group
        counts = np.flatnonzero((code < self._size) & (group < self._groups))
        self._held.add(group[counts], code[counts])

    def histograms(self) -> list[tuple[int, Histogram]]:
        """Return each spec's position and histogram."""
        histogram = self._held.histogram()
        return [(number, histogram) for number in self._numbers]


def _numbering(keys: pl.DataFrame, schema: pl.Schema) -> _Numbering | None:
    """Return a function from rows to group numbers. None: there are too many combinations for a table."""
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


# Memory for the codes, weights and people of rows while they are grouped.
_PARTITION_BYTES = 1 << 30
# The person, the group number, the place among the person's rows, and Polars' own data for grouping.
_BYTES_OF_ROW = 24
# Up to this many cells per occupied cell, cells are ordered by a table, else by a sort.
_CELLS_PER_COUNT = 8


class PolarsEngine(LocalEngine):
    """Rows in a frame, a file or a stream, counted by Polars in this process.

    `partitions`: how many parts of the people are counted, one after the other, each in its own scan.
    None: parts of about 1 GiB; the rows are counted first to find their number.
    The plan depends only on `partitions` and the sizes of public arguments.
    """

    runs_expressions = True
    counts_per_person = True

    def __init__(self, source: Source, engine: EngineType = "auto", partitions: int | None = None) -> None:
        self._source, self._engine, self._partitions = source, engine, partitions

    @classmethod
    def of(cls, plan: pl.LazyFrame, engine: EngineType = "auto", partitions: int | None = None) -> PolarsEngine:
        """Return the engine of a plan, without opening a source."""
        return cls(Source(plan, lambda: plan, marked=lambda: plan), engine, partitions)

    def mark(self) -> str:
        """Return whether the rows are in memory or in files, and the names of the files."""
        return "" if self._source.unread is None else mark_of(self._source.unread)

    def preprocessing(self) -> str | None:
        """Return a digest of the plan without its rows in memory. None if the plan has no text."""
        source = self._source
        return None if source.unread is None or source.marked is None else text_of_plan(source.unread)

    def digest_of_rows(self, key: bytes) -> str | None:
        """Return a keyed digest of the rows in memory, or "" if there are none."""
        marked = self._source.marked
        try:
            return "" if marked is None else digest_of(marked(), key)
        except (Exception, PanicException):  # the conversion failed, so the release fails too
            return None

    def schema(self, columns: Collection[str]) -> pl.Schema:  # noqa: ARG002
        if self._source.unread is None:
            raise UnreadableError
        return self._source.unread.collect_schema()

    def distinct(self, lists: Sequence[pl.DataFrame]) -> list[int]:
        """Return how many rows of each list differ in the list's own types."""
        return [constants.n_unique() for constants in lists]

    def keep_parts(self, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, choice: PartChoice) -> None:
        source = self._source
        found = choice.of_source.get(id(source))
        if found is None:

            def read() -> pl.LazyFrame:
                return in_kept_parts(unflagged(source.read()), keys, most, unit, self._engine)

            found = choice.of_source[id(source)] = source, replace(source, read=cache(read))
        self._source = found[1]

    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        """Refuse groups and candidates if their cells don't fit into one integer."""
        for output in work.outputs:
            for spec in output.specs:
                Layout.of(work.groups, work.specs[spec].binning.size, f"Output {output.name!r}: ")
        return partial(self._histograms, work)

    def prepare_people_by_key(self, work: KeyWork) -> Callable[[], tuple[pl.DataFrame, Ints]]:
        # "auto" means streaming here: it is Polars' fastest engine for grouping by many keys.
        engine = "streaming" if self._engine == "auto" else self._engine

        def find() -> tuple[pl.DataFrame, Ints]:
            rows = self._read()
            parts = 1 if work.privacy_unit is None else self._parts(rows, 2 * _BYTES_OF_ROW)
            return people_by_key(work.rows(rows), work, engine, parts)

        return find

    def _histograms(self, work: Work) -> list[Histogram]:
        """Return each spec's histogram from one scan of the rows, or from one scan for each part of the people."""
        source = self._read()
        rows = work.rows(source)
        if work.per_person is not None:
            rows = one_row_per_person(rows, work.per_person, _cuts(work.per_person.specs))
        is_grouped = work.privacy_unit is not None and any(spec.by_person for spec in work.specs)
        partitions = self._parts(source, _BYTES_OF_ROW + _bytes_of_row(work.specs)) if is_grouped else 1
        return count(rows, work.privacy_unit, work.keys, work.specs, engine=self._engine, partitions=partitions)

    def _read(self) -> pl.LazyFrame:
        return unflagged(self._source.read())

    def _parts(self, source: pl.LazyFrame, row: int) -> int:
        """Return the number of parts of the people, if each row takes `row` bytes."""
        if self._partitions is not None:
            return self._partitions
        progress.at(1, 2)
        number = rows_of_joined(source)
        if number is None:
            number = collected([source.select(pl.len())], self._engine)[0].item()
        progress.at(2, 2)
        return -(-number * row // _PARTITION_BYTES) or 1


def count(
    rows: pl.LazyFrame,
    privacy_unit: PrivacyUnit | None,
    keys: pl.DataFrame | Product | None,
    specs: Sequence[HistogramSpec],
    *,
    engine: EngineType = "auto",
    partitions: int = 1,
) -> list[Histogram]:
    """Return the histogram of each spec.

    Rows with null or NaN in the privacy unit are left out. Without a privacy unit there are no limits.
    The columns of `keys` have the names and types of `rows` (text for a Categorical). Row i is group i.
    With a `Product`, only groups with rows are counted.
    People are counted in `partitions`, one after the other.
    """
    groups = 1 if keys is None else keys.height
    if privacy_unit is not None:
        rows = rows.filter(is_a_person(privacy_unit, rows.collect_schema()))
    together = gathered(specs, HistogramSpec.counts_like)
    kinds = [
        AlikeSpecs(
            tuple(numbers),
            tuple(specs[number] for number in numbers),
            Layout.of(groups, specs[numbers[0]].binning.size),
            _code_name(specs, numbers[0]),
            {number: name for number in numbers if (name := _weight_name(specs, number)) is not None},
        )
        for numbers in together
    ]
    found: CellsOfKinds = {}
    held: dict[tuple[int, ...], Held] = {}
    if privacy_unit is not None and any(spec.by_person for spec in specs):
        if not isinstance(keys, Product):
            fine = [kind for kind in kinds if _are_held(groups, kind.specs)]
            held = {kind.numbers: Held(groups, kind.specs[0].binning.size) for kind in fine}
        for part in in_parts(rows, privacy_unit, partitions):
            (frame,) = collected([_coded(part, privacy_unit, keys, specs)], engine)
            frame = frame.with_columns(labelled(frame["person"]))
            weighed = [kind for kind in kinds if kind.specs[0].weight is not None]
            drawn = [kind for kind in kinds if kind.specs[0].weight is None]
            of_part = weigh_people(frame, weighed, engine) | count_people(frame, drawn, held, engine)
            for numbers, more in of_part.items():  # no person is in two parts
                found[numbers] = added_up([found[numbers], more], ["cell"], engine) if numbers in found else more
    elif not isinstance(keys, Product) and fit_arrays(groups, specs, together):
        histograms = count_rows(rows, keys, specs, together, engine)
        return [histograms[number] for number in range(len(specs))]
    else:
        found = _counted_by_row(_coded(rows, None, keys, specs), kinds, engine)
    if isinstance(keys, Product):
        of_spec = {number: cells for numbers, cells in found.items() for number in numbers}
        sums = (of_spec[number].select("cell", _weight(spec, number)).sort("cell") for number, spec in enumerate(specs))
        pairs = ((column.to_numpy().astype(np.int64) for column in cells) for cells in sums)
        # Each group with rows once.
        return [Histogram(groups, counts, np.array([len(groups)])) for groups, counts in pairs]
    of_number = {number: rows.histogram() for numbers, rows in held.items() for number in numbers}
    for numbers, of_kind in found.items():
        for number in numbers:
            counted = of_kind.select("cell", count=_weight(specs[number], number))
            of_number[number] = _by_group(counted, Layout.of(groups, specs[number].binning.size), groups)
    return [of_number[number] for number in range(len(specs))]


def _counted_by_row(coded: pl.LazyFrame, kinds: Sequence[AlikeSpecs], engine: EngineType) -> CellsOfKinds:
    """Return the cells of each kind, counted without limits."""
    if len(kinds) > 1:
        # Scan once. Polars must not share the scan itself: see `NO_FILTER_IN_SCANS`.
        coded = collected([coded], engine)[0].lazy()
    plans, finds = zip(*(added_up_cells(coded, [kind], [kind.contributes]) for kind in kinds), strict=True)
    cells = collected(plans, engine)
    return {kind.numbers: find(one) for kind, (find,), one in zip(kinds, finds, cells, strict=True)}


def _code_name(specs: Sequence[HistogramSpec], number: int) -> str | None:
    """Return the column of a spec's codes, shared by specs with the same binning. None: every code is 0."""
    spec = specs[number]
    if not spec.columns:
        return None
    same = (i for i, other in enumerate(specs) if other.binning == spec.binning and other.reads_like(spec))
    return f"code {next(same)}"


def _weight_name(specs: Sequence[HistogramSpec], number: int) -> str | None:
    """Return the column that a spec adds up, shared by specs that add up the same. None: every weight is 1."""
    spec = specs[number]
    if spec.added is None:
        return None
    same = (i for i, other in enumerate(specs) if other.added == spec.added and other.reads_like(spec))
    return weight_name(next(same))


def _weight(spec: HistogramSpec, number: int) -> pl.Expr:
    """Return the sums of a spec's weights."""
    rows, sums = pl.col("rows"), pl.col(weight_name(number))
    if spec.weight is not None:
        return sums
    return rows if spec.row_weight is None else spec.of_sums(sums, rows)


def _coded(
    rows: pl.LazyFrame,
    privacy_unit: PrivacyUnit | None,
    keys: pl.DataFrame | Product | None,
    specs: Sequence[HistogramSpec],
) -> pl.LazyFrame:
    """Return contributing rows in listed groups: `person`, `group`, codes and weights.

    All histograms use this one plan, so Polars scans the rows once.
    """
    columns = _made(specs)
    others = _numbered(rows, keys) if isinstance(keys, Product) else own_keys(rows, keys)
    if privacy_unit is not None:
        others.append(person_of(privacy_unit, rows.collect_schema()).alias("person"))
    if not columns and not others:
        others.append(pl.lit(0, pl.UInt8).alias("row"))
    # `with_columns` first, so that a constant has as many rows as the frame.
    coded = rows.with_columns(*columns.values(), *others)
    coded = coded.select(*columns, *(expr.meta.output_name() for expr in others))
    sizes = {_code_name(specs, number): spec.binning.size for number, spec in enumerate(specs)}
    if None not in sizes:
        coded = coded.filter(pl.any_horizontal(pl.col(str(name)) < size for name, size in sizes.items()))
    if isinstance(keys, Product):
        names = [f"key {i}" for i in range(keys.width)]
        listed = [pl.col(name) < len(values) for name, values in zip(names, keys.values, strict=True)]
        places = zip(names, keys.strides, strict=True)
        group = reduce(add, (pl.col(name).cast(pl.UInt64) * pl.lit(stride, pl.UInt64) for name, stride in places))
        return coded.filter(listed).with_columns(group.alias("group")).drop(names)
    return coded if keys is None else with_groups(coded, keys)


def _numbered(rows: pl.LazyFrame, keys: Product) -> list[pl.Expr]:
    """Return the place of each key among its values, or the number of values if the key is not listed."""
    schema, found = rows.collect_schema(), []
    for i, values in enumerate(keys.values):
        binning = CategoryBinning(Categories(values.alias("")), schema[values.name])
        code = _by_row([pl.col(values.name)], binning.encoder(), code_dtype(len(values)))
        found.append(code.alias(f"key {i}"))
    return found


def _made(specs: Sequence[HistogramSpec]) -> dict[str, pl.Expr]:
    """Return codes and weights of each row, under our own names to avoid clashes with columns."""
    columns: dict[str, pl.Expr] = {}
    for number, spec in enumerate(specs):
        code, weight = _code_name(specs, number), _weight_name(specs, number)
        if code is not None and code not in columns:
            exact = spec.binning.expression(spec.columns, spec.types)
            if exact is None and isinstance(spec.binning, CategoryBinning):
                exact = _compared(spec.columns[0], spec.binning.values, spec.types[0])
            if exact is None:
                exact = _by_row(spec.columns, spec.binning.encoder(), code_dtype(spec.binning.size))
            columns[code] = exact.alias(code)
        if weight is not None and spec.added is not None and weight not in columns:
            exact, dtype = spec.added.expression(spec.columns, spec.types), _weight_dtype(spec.added)
            if exact is None:
                exact = _by_row(spec.columns, spec.added.weigh, dtype)
            columns[weight] = exact.fill_null(0).cast(column_types.from_numpy_dtype(dtype)).alias(weight)
    return columns


def _compared(column: pl.Expr, values: pl.Series, dtype: pl.DataType) -> pl.Expr | None:
    """Return each value's place in a short list by comparing. None: a table is faster."""
    if len(values) > FEW or not is_equal_by_value(dtype):
        return None
    place = pl.lit(len(values), pl.UInt8)
    for number, value in enumerate(values):
        place = pl.when(column == pl.lit(value, dtype)).then(pl.lit(number, pl.UInt8)).otherwise(place)
    return place


def _cuts(specs: Sequence[HistogramSpec]) -> list[Cut]:
    """Return specs with the expressions for their codes and weights."""
    columns = _made(specs)

    def of(name: str | None) -> pl.Expr | None:
        return None if name is None else columns[name]

    return [Cut(spec, of(_code_name(specs, i)), of(_weight_name(specs, i))) for i, spec in enumerate(specs)]


def _weight_dtype(row_weight: Clamping) -> np.dtype[np.signedinteger]:
    return np.dtype(np.int32 if row_weight.largest < 1 << 31 else np.int64)


def _bytes_of_row(specs: Sequence[HistogramSpec]) -> int:
    """Return the bytes for codes and weights of one row."""
    columns: dict[str | None, int] = {}
    for number, spec in enumerate(specs):
        columns[_code_name(specs, number)] = code_dtype(spec.binning.size).itemsize
        if spec.added is not None:
            columns[_weight_name(specs, number)] = _weight_dtype(spec.added).itemsize
    columns.pop(None, None)
    return sum(columns.values())


def _by_row(
    columns: Sequence[pl.Expr],
    function: Callable[[Sequence[pl.Series]], NDArray[np.generic]],
    dtype: np.dtype[np.generic],
) -> pl.Expr:
    """Return an integer for every row, computed by NumPy from columns."""
    return pl.map_batches(
        list(columns) or [pl.lit(0)],
        silenced(lambda values: pl.Series(function(values).astype(dtype, copy=False))),
        column_types.from_numpy_dtype(dtype),
        is_elementwise=True,
    )


def _by_group(histogram: pl.DataFrame, layout: Layout, groups: int) -> Histogram:
    """Split cells into groups and codes, sorted."""
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
    # With one group, a cell is a code.
    return Histogram(cells.astype(np.int64), counts, np.array([len(cells)]))


def _sorted(histogram: pl.DataFrame, layout: Layout) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Return the cells in ascending order, and their counts."""
    cells, counts = histogram["cell"].to_numpy(), histogram["count"].to_numpy()
    bits = int(counts.max(initial=0)).bit_length()
    if layout.bits + bits <= 64 and counts.min(initial=0) >= 0:  # one word sorts several times as fast
        words = cells.astype(np.uint64) << np.uint64(bits)
        words |= counts.astype(np.uint64)
        words = sorted_words(words)
        return words >> np.uint64(bits), (words & np.uint64((1 << bits) - 1)).astype(np.int64)
    order = np.argsort(cells)
    return cells[order], counts[order]


# The most combinations of public values by which rows are grouped: their table stays in the cache.
_MOST_GROUPED = 1 << 17


def grouped(
    rows: pl.LazyFrame, keys: pl.DataFrame | None, specs: Sequence[HistogramSpec], together: Sequence[Sequence[int]]
) -> pl.LazyFrame | None:
    """Return a plan that adds up all specs for each combination of listed values, or None.

    None: a binning or a row weight is no Polars expression, or there are too many combinations.
    Only public sizes and types decide.

    Columns: `key i`; `column n 0` with the categories of spec n.
    `rows n` is the number of rows that count, for the first spec n of each kind.
    `weight n` is the sum of weights, for each spec n with weights.
    A value that is not listed is null or stays as it is.
    """
    schema = rows.collect_schema()
    named = [] if keys is None else [pl.col(key.name).alias(f"key {place}") for place, key in enumerate(keys)]
    values = (
        []
        if keys is None
        else [(f"key {i}", key.unique(maintain_order=True), schema[key.name]) for i, key in enumerate(keys)]
    )
    read, sums = list[pl.Expr](), list[pl.Expr]()
    for numbers in together:
        first = specs[numbers[0]]
        names = [f"column {numbers[0]} {place}" for place in range(len(first.columns))]
        named += [column.alias(name) for column, name in zip(first.columns, names, strict=True)]
        counted = pl.col("row")
        if isinstance(first.binning, CategoryBinning):
            values.append((names[0], first.binning.values, first.types[0]))
        elif not isinstance(first.binning, OneCode):
            return None
        elif names:
            read.append(first.binning.counts([pl.col(names[0])], first.types).alias(f"is there {numbers[0]}"))
            counted = pl.col(f"is there {numbers[0]}").cast(pl.Int64)  # in 32 bits, their number could overflow
        sums.append(counted.sum().alias(f"rows {numbers[0]}"))
        for number in numbers:
            row_weight = specs[number].row_weight
            if row_weight is not None:
                weight = row_weight.expression([pl.col(name) for name in names], first.types)
                if weight is None:
                    return None
                read.append(weight.alias(f"weight {number}"))
                sums.append(pl.col(f"weight {number}").sum())
    by = [_listed(pl.col(name), listed, dtype) for name, listed, dtype in values]
    columns = [column for column, _ in filter(None, by)]
    if None in by or math.prod(most for _, most in filter(None, by)) > _MOST_GROUPED:
        return None
    # Our own names avoid clashes with columns. `with_columns` first, so that a constant has as many rows as the frame.
    named.append(pl.lit(1, pl.Int64).alias("row"))
    plan = rows.with_columns(named).select(column.meta.output_name() for column in named).select(*columns, "row", *read)
    return plan.group_by(name for name, *_ in values).agg(sums) if values else plan.select(sums)


def _listed(column: pl.Expr, values: pl.Series, dtype: pl.DataType) -> tuple[pl.Expr, int] | None:
    """Return a column with few unlisted values, and the most different values it can have, with null.

    `values` have the column's type (texts for a Categorical).
    None: Polars may treat other values as equal than we do.
    Rows are not filtered, because Polars may move a filter into a scan.
    """
    if not len(values):
        return None
    if dtype == pl.Boolean:
        return column, 3
    if isinstance(dtype, pl.Enum):
        return column, len(dtype.categories) + 1
    if not is_equal_by_value(dtype):
        return None
    most = len(values)
    is_listed = column.is_in(values.implode())
    if most <= FEW:
        is_listed = reduce(or_, [column == pl.lit(value, dtype) for value in values])
    elif dtype != pl.String:
        least, greatest = (values.sort()[place] for place in (0, -1))
        ends = values.sort().to_physical()
        span = int(ends[-1]) - int(ends[0]) + 1
        if span <= 2 * most:
            most, is_listed = span, column.is_between(pl.lit(least, dtype), pl.lit(greatest, dtype))
    return pl.when(is_listed).then(column), most + 1
