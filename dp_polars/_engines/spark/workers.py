"""Functions that executors run, and how they are sent there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dp_polars._base.column_types import is_wide
from dp_polars._base.numbers import Ints
from dp_polars._base.silence import silenced
from dp_polars._bins.binning import Binning
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._statistics.statistic import COUNT, DrawnOnce, KeysThatAreThere

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from dp_polars._release.contract import Output, Shown


Stage: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"

VERSION: str = import_module("dp_polars").__version__
MARKER = -1
COUNTED = ["group", "spec", "code", "count"]
# Rows drawn at once: Spark's batches of 10,000 would be mostly overhead.
_ROWS = 1 << 18


@dataclass(frozen=True)
class Answer:
    """One output, with the Spark types of its answers and draws."""

    output: Output
    dtype: pl.DataType
    drawn: tuple[pl.DataType, ...]

    @property
    def width(self) -> int:
        """How many numbers or candidates an answer has in each group."""
        return self.output.query.answer_width(*self.output.types)


def versions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return a task's version of this package. Spark imports this function by name, like all others here."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"version": [VERSION] * batch.num_rows})


def encoding(binnings: Mapping[int, tuple[str, Binning, pl.DataType]]) -> Stage:
    """Return the stage from (group, spec, code, count, values …) to (group, spec, code, count).

    `binnings`: for each spec that is coded here, the column of its values, their binning, and their type.
    Ignored values are left out. Equal codes of a batch are added up.
    If there are many more values than candidates, this merges most of them.
    """

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoders = {spec: binning.encoder() for spec, (_, binning, _) in binnings.items()}
        for rows in _in_chunks(batches, _ROWS):
            coded = rows.filter(pc.invert(pc.is_in(rows["spec"], pa.array(list(binnings), pa.int64()))))
            # All batches must have one schema, including which columns may be null.
            yield from pa.table({name: coded[name] for name in COUNTED}).to_batches()
            for spec, (name, binning, column) in binnings.items():
                part = rows.filter(pc.equal(rows["spec"], spec))
                values = part[name]
                if isinstance(column, pl.Datetime) and column.time_zone is not None:
                    # Polars may not know the session's time zone.
                    values = values.cast(pa.timestamp("us", column.time_zone))
                codes = encoders[spec]([pl.Series(values).cast(column)])
                numbers = {other: part[other] for other in ("group", "spec", "count")}
                found = pl.LazyFrame({**numbers, "code": codes}).filter(pl.col("code") < binning.size)
                counted = found.group_by("group", "spec", "code").agg(pl.col("count").sum())
                yield from counted.collect(engine="in-memory").cast(pl.Int64).to_arrow().to_batches()

    return _silenced_stage(encode)


def selecting(statistic: KeysThatAreThere, types: pl.Schema) -> Stage:
    """Return the stage from (k0, k1, …, people) to the shown keys, with noisy numbers if requested."""

    def select(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _in_chunks(batches, _ROWS):
            *keys, people = rows.combine_chunks().columns
            # Only wide types need the values.
            wide = [pl.Series(key) for key, dtype in zip(keys, types.dtypes(), strict=True) if is_wide(dtype)]
            shown, noisy = statistic.drawn(wide, _numpy(people))
            names = list(types)
            if statistic.counts:
                keys, names = [*keys, pa.chunked_array([noisy])], [*names, COUNT]
            yield from pa.table(keys, names=names).filter(pa.array(shown)).to_batches()

    return _silenced_stage(select)


def drawing(answers: Sequence[Answer], names: Sequence[str]) -> Stage:
    """Return the stage from a histogram, sorted by group, to one row per group: its key and its draws.

    `names`: the output columns.
    """
    widest = max(answer.width for answer in answers)

    def draw(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for histogram in whole_groups(batches):
            for part in _parts(histogram, max(1, _ROWS // widest)):
                yield pa.RecordBatch.from_arrays(_draw(part, answers), names=list(names))

    return _silenced_stage(draw)


def presenting(answers: Sequence[Answer], shown: Shown, names: Sequence[str]) -> Stage:
    """Return the stage from the output of `drawing`, or a part of it, to the rows that are shown.

    `names`: the key columns and the answers.
    """

    def present(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                columns = batch.columns
                keys = len(columns) - sum(len(answer.drawn) for answer in answers)
                drawn = [pl.Series(column.cast(_in_utc(column.type))) for column in columns[keys:]]
                columns = columns[:keys]
                for answer, found in zip(answers, shown.columns(drawn), strict=True):
                    columns += [in_arrow(column, answer.dtype) for column in found]
                yield pa.RecordBatch.from_arrays(columns, names=list(names))

    return _silenced_stage(present)


def _silenced_stage(stage: Stage) -> Stage:
    """Silence a stage only while it works. A silenced generator would silence Spark, too."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = stage(batches)
        while True:
            batch = silenced(next)(results, None)
            if batch is None:
                return
            yield batch

    return run


def _parts(histogram: pa.Table, most_groups: int) -> Iterator[pa.Table]:
    """Yield the histogram in tables of whole groups, `most_groups` in each but the last."""
    groups = _numpy(histogram["group"])
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))[::most_groups].tolist()
    for start, stop in zip(starts, [*starts[1:], len(groups)], strict=True):
        yield histogram.slice(start, stop - start)


def whole_groups(batches: Iterable[pa.RecordBatch], most_rows: int = _ROWS) -> Iterator[pa.Table]:
    """Yield the rows in large tables of whole groups: Spark's batches end anywhere.

    A group's held rows are added up whenever they have doubled.
    """
    held: list[pa.Table] = []  # rows of the last group so far
    for rows in _in_chunks(batches, most_rows):
        groups = _numpy(rows["group"])
        last = int(np.searchsorted(groups, groups[-1]))
        if last == 0 and held and held[0]["group"][0].as_py() == groups[0]:
            held.append(rows)
            if sum(part.num_rows for part in held) > 2 * max(most_rows, held[0].num_rows):
                held = [_added_up(pa.concat_tables(held))]
            continue
        if held or last:
            yield pa.concat_tables([*held, rows.slice(0, last)])
        held = [rows.slice(last)]
    if held:
        yield pa.concat_tables(held)


def _added_up(histogram: pa.Table) -> pa.Table:
    """Add up one group's rows by code."""
    is_marker = pc.equal(histogram["spec"], MARKER)
    counted = histogram.filter(pc.invert(is_marker)).group_by(COUNTED[:3]).aggregate([("count", "sum")])
    counted = counted.rename_columns(COUNTED)
    together = pa.concat_tables([histogram.filter(is_marker), counted], promote_options="default")
    return together.cast(histogram.schema)  # sums may be null, but Spark's columns may not


def _in_chunks(batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of at least `most_rows`, except the last one."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(part.num_rows for part in held) >= most_rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _draw(histogram: pa.Table, answers: Sequence[Answer]) -> list[pa.Array]:
    """Return the keys of all groups in the table, and their draws."""
    groups, specs, codes, counts = (_numpy(histogram[name]) for name in COUNTED)
    markers = np.flatnonzero(specs == MARKER)
    listed = groups[markers]
    columns = [column.combine_chunks() for column in histogram.drop_columns(COUNTED).take(markers).columns]
    known: DrawnOnce = {}
    for answer in answers:
        counted = []
        for spec in answer.output.specs:
            places = np.flatnonzero(specs == spec)
            counted.append(_histogram(groups[places], codes[places], counts[places], listed))
        columns += map(in_arrow, answer.output.drawn(counted, known), answer.drawn)
    return columns


def in_arrow(column: pl.Series, dtype: pl.DataType) -> pa.Array:
    """Convert a column to Spark's Arrow types, which lack lists with 64-bit offsets."""
    found = column.cast(dtype).to_arrow()
    return found.cast(pa.list_(found.type.value_type)) if column.dtype == pl.List else found


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """Return a type with times in UTC: Polars may not know the session's time zone."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_utc(field.type)) for field in kind.fields])
    return kind


def _histogram(groups: Ints, codes: Ints, counts: Ints, listed: Ints) -> Histogram:
    """Return one spec's histogram, in the ascending order of the listed groups."""
    if not np.isin(groups, listed).all():
        msg = "Every group must come with its key: Spark has divided one between two tasks."
        raise RuntimeError(msg)
    # Each task that encoded a code has its own row.
    return Histogram.of_pairs(np.searchsorted(listed, groups), codes, counts, len(listed))


def _numpy(column: pa.ChunkedArray) -> Ints:
    array: Ints = column.to_numpy()
    return array


# Rows of constants, in as many tasks as Spark makes by default: enough for one on each executor.
_PROBED = 1024

_ready: WeakSet[SparkSession] = WeakSet()


def mapped(rows: DataFrame, stage: Stage, schema: StructType | str) -> DataFrame:
    """Plan a stage on rows.

    Raises RuntimeError if tasks on constants show that executors lack this package.
    These tasks run once per session, before the charge.
    An executor that joins later with another Python fails on private rows.
    """
    if rows.sparkSession not in _ready:
        _check(rows.sparkSession)
        _ready.add(rows.sparkSession)
    return rows.mapInArrow(stage, schema)


def _check(spark: SparkSession) -> None:
    try:
        found = set(spark.range(_PROBED).mapInArrow(versions, "version string").toArrow()["version"].to_pylist())
    except Exception as error:  # it read only constants, so showing it is safe
        msg = f"a task that imports dp_polars failed on Spark's executors.{_HINT}"
        raise RuntimeError(msg) from error
    if found != {VERSION}:
        msg = f"Spark's executors must have dp_polars {VERSION}, got {', '.join(sorted(found))}.{_HINT}"
        raise RuntimeError(msg)


_HINT = (
    "\n\nHint: install the same version where PYSPARK_PYTHON points to on every executor; in a notebook on Databricks, "
    "by %pip install. Nothing was charged."
)
