"""Private queries on Spark: the same query, claim, budget and draws, on the cluster with the rows."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast, overload

import polars as pl
import pyarrow as pa

from dp_polars._base.calls import called
from dp_polars._base.column_types import must_have
from dp_polars._base.extras import require
from dp_polars._base.silence import is_silenced, silenced
from dp_polars._engines.spark.arithmetic import answer_type, made, polars_type, spark_type, spark_types, weighs_exactly
from dp_polars._engines.spark.counting import fresh_seed, histograms, one_row_per_person, shown_keys, union
from dp_polars._engines.spark.rows import Groups, binned, distinct, in_kept_parts, text_of_frame
from dp_polars._engines.spark.workers import Answer, drawing, in_arrow, mapped, presenting
from dp_polars._frames.cube_query import CubeRequest
from dp_polars._frames.publication import Publication, release_with
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._release.contract import AS_DRAWN, Drawn, Engine, KeyWork, LocalEngine, Released
from dp_polars._release.request import AnyRequest, only_counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from dp_polars._accounting.budget import Budget
    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._frames.cube import Cube
    from dp_polars._frames.cube_query import CubeQuery
    from dp_polars._frames.publication import Charged, ChargedAndShown
    from dp_polars._frames.query import PrivateQuery
    from dp_polars._release.contract import HistogramSpec, Intervals, Output, PartChoice, Presentation, Shown, Work
    from dp_polars._statistics.statistic import Asked

    class _OfFrames(ChargedAndShown, total=False):
        path: str | os.PathLike[str] | None


__all__ = ["release"]

_sql: Any = require("pyspark.sql", extra="spark")
_errors: Any = require("pyspark.errors", extra="spark")

# Their errors quote rows, and these loggers print errors, some of them on stderr.
for _logger in (
    *map(
        require("pyspark.logger", extra="spark").PySparkLogger.getLogger,
        ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "pyspark.sql.connect.logging"),
    ),
    *map(logging.getLogger, ("py4j.clientserver", "py4j.java_gateway")),
):
    _logger.addFilter(lambda _: not is_silenced.get())

# With at most this many cells (groups times codes), counts come to the driver, which draws: a second shuffle and Python
# workers would take longer. One task draws this many at once.
_MOST_CELLS = 1 << 18
# The assumed number of selected groups, until they are selected.
_SELECTED = 1000
_TYPES = b"spark"  # the key of Spark's types in Arrow's schema
# The key of the declared type of a text column that Spark pads or limits in length.
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"


def __dir__() -> list[str]:
    return __all__


@overload
def release(query: CubeQuery, frame: DataFrame, **how: Unpack[Charged]) -> Cube: ...
@overload
def release(
    query: Publication, frame: DataFrame | Mapping[str, DataFrame], **how: Unpack[_OfFrames]
) -> dict[str, Any]: ...
@overload
def release(query: PrivateQuery, frame: DataFrame, **how: Unpack[_OfFrames]) -> DataFrame: ...
@called
def release(
    query: PrivateQuery | Publication,
    frame: DataFrame | Mapping[str, DataFrame],
    *,
    budget: Budget | None = None,
    path: str | os.PathLike[str] | None = None,
    intervals: Intervals = False,
    min_people: int | None = None,
    sure: bool = False,
    ignore_cache: bool = False,
    unchecked: bool = False,
) -> DataFrame | Cube | dict[str, Any]:
    """Release all outputs of a query once, from the rows of a Spark DataFrame, charged before a row is read.

    Contribution limits, distinct people, counts and sums are native Spark SQL. The executors draw, many groups at once,
    with their own operating system's randomness. At most 262,144 cells, groups times candidates, come to the driver,
    which draws in the same way. Nothing draws an answer again: it is a local frame, or on disk when this returns.

    Parameters
    ----------
    query
        A query of `dp_polars.protect(…)` without data, by `agg`, `keys` or another method. It has no row operations
        (filter, with_columns, select, join, expressions inside `agg`): do those in Spark first, row by row. Or a
        publication of such queries, which is charged as one: all or nothing.
    frame
        The private rows, of a classic session or of Spark Connect. Everything that made them is your preprocessing,
        unchecked: a transformation that carries something of other people into a person's rows (a `dropDuplicates`, a
        `limit`, a window over all rows) is not covered. People, keys and values are compared by Spark, without
        collations. A query reads the frame once. For a publication, the frame of all its queries, or a dict of frames
        by their names. Each query reads its frame anew. So write a frame with sums of floats, picks or chance to a
        table first.
    budget
        The budget to charge, if the query itself has none.
    path
        A folder that does not exist yet, for the answers as Parquet. None: a local frame if the driver draws,
        otherwise a checkpoint in Spark's checkpoint directory (`spark.sparkContext.setCheckpointDir`, or
        `spark.checkpoint.dir`). For a publication, each query has a folder of its name in it. If one fails, the
        folders of those before it stay.
    ignore_cache
        As for `PrivateQuery.release`. Answers that the query's budget caches (`dataset` of `dp_polars.protect`) go
        through the driver, also when they are drawn. The shown ones go to `path`.
    unchecked
        As for `dp_polars.protect`. No Spark frame is checked, so this only enters the claim and the ledger.
    all others
        As for `PrivateQuery.release`.

    Returns
    -------
    DataFrame
        The public keys, each once (in no order), then one column per output. Selected keys are sorted. Modes have the
        column's type, quantiles the candidates' (unsigned integers a wider one). Counts are bigint, means double, sums
        bigint, decimal or double, value counts an array of structs `value` and `count`.

        A query of `cube` gives a `Cube`: the executors count, and the driver draws. `path`, `intervals`, `min_people`
        and `sure` are left out then, and no checkpoint directory is needed. In a publication they are for the others.

    Raises
    ------
    BudgetExceededError, ReleaseError, TypeError, ValueError
        As for `PrivateQuery.release`; also if there is no place for the answers. Nothing is charged then.
    RuntimeError
        If an executor lacks this version of the package. Nothing is charged then.
    """

    def engine_of(request: AnyRequest[Asked], one: Any, name: str | None) -> _OnSpark[Any]:  # noqa: ANN401
        if not isinstance(one, _sql.DataFrame) or one.isStreaming:
            kind = f"{type(one).__module__}.{type(one).__name__}"
            msg = f"frame must be a batch DataFrame of a Spark session, got {kind}."
            raise TypeError(msg)
        if isinstance(request, CubeRequest):
            if path is not None and name is None:
                msg = "path must be left out for a cube, which comes to the driver.\n\nHint: cube.write(path)."
                raise ValueError(msg)
            return _CubeEngine(one, only_counted(request))
        if path is None or name is None:
            return _SparkEngine(one, path, only_counted(request))
        if not (name.isidentifier() and name[0] != "_"):
            msg = f"names of queries must be identifiers, each for a folder in path, got {name!r}."
            raise ValueError(msg)
        return _SparkEngine(one, f"{os.fspath(path).rstrip('/')}/{name}", only_counted(request))

    asked: dict[str, Any] = {"intervals": intervals, "min_people": min_people, "sure": sure}
    asked |= {"ignore_cache": ignore_cache, "unchecked": unchecked}
    released: DataFrame | Cube | dict[str, Any] = release_with(engine_of, query, frame, budget, **asked)
    return released


class _OnSpark(Engine[Released]):
    """The rows of a Spark DataFrame."""

    rows_are = "the Spark DataFrame"

    def __init__(self, frame: DataFrame, only_counted: Collection[str] = ()) -> None:
        self._frame, self._only_counted, self._handed_over = frame, only_counted, frame

    def schema(self, columns: Collection[str]) -> pl.Schema:
        return pl.Schema(
            {name: _type_of(self._frame, name, is_only_counted=name in self._only_counted) for name in columns}
        )

    @silenced
    def preprocessing(self) -> str | None:
        try:
            return text_of_frame(self._handed_over)
        except Exception:  # missing files, or a plan that is too deep: then the release fails, or caches nothing
            return None

    @silenced
    def keep_parts(self, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, choice: PartChoice) -> None:
        _check_unit(self._frame, unit)
        self._frame = in_kept_parts(self._frame, keys, most, unit, choice.secret)
        _ = self._frame.schema  # analysed before the charge, also by Spark Connect

    def distinct(self, lists: Sequence[pl.DataFrame]) -> list[int]:
        schema = self._frame.schema
        kinds = [[schema[name].dataType for name in constants.columns] for constants in lists]
        return distinct(self._frame.sparkSession, lists, kinds)


class _CubeEngine(_OnSpark[pl.DataFrame], LocalEngine):
    """Native SQL counts and limits; the counts of all groups come to the driver, which draws."""

    def bin(self, ends: Mapping[str, pl.Series]) -> None:
        if all(one.dtype.is_numeric() or one.dtype == pl.Date for one in ends.values()):
            self._frame = binned(self._frame, ends)
        else:  # for values that a time zone may move
            super().bin(ends)

    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        _check_unit(self._frame, work.privacy_unit)
        return _collecting(self._frame, Groups.of(self._frame, work.keys), work)

    def prepare_people_by_key(self, work: KeyWork) -> NoReturn:
        """Raise: this engine only counts the cells of cubes."""
        raise NotImplementedError


def _collecting(frame: DataFrame, listed: Groups, work: Work) -> Callable[[], list[Histogram]]:
    """Return a function that brings the counts of all groups to the driver. Each cell comes once."""
    parts = histograms(frame, work.privacy_unit, listed, work.specs, fresh_seed(), to_driver=True)
    planned = reduce(_sql.DataFrame.unionAll, parts)
    _ = planned.schema  # analysed before the charge, also by Spark Connect: a refusal is free

    def count() -> list[Histogram]:
        cells = _collected(planned)
        found = []
        for number in range(len(work.specs)):
            part = cells.filter(pl.col("spec") == number)
            groups, codes, counts = (part[name].to_numpy() for name in ("group", "code", "count"))
            found.append(work.histogram(groups, codes, counts))
        return found

    return count


def _collected(counted: DataFrame) -> pl.DataFrame:
    return cast("pl.DataFrame", pl.from_arrow(counted.toArrow()))


class _SparkEngine(_OnSpark["DataFrame"]):
    """Native SQL counts and limits, the executors draw, and the answers are written to disk."""

    counts_per_person = True

    def __init__(
        self, frame: DataFrame, path: str | os.PathLike[str] | None, only_counted: Collection[str] = ()
    ) -> None:
        super().__init__(frame, only_counted)
        self._target = None if path is None else _new_folder(frame.sparkSession, path)

    def filled(self) -> frozenset[str]:
        """Return columns without null, of types that have no NaN."""
        fractional = spark_types.FractionalType  # of which decimals have no NaN
        return frozenset(
            one.name
            for one in self._frame.schema.fields
            if not one.nullable
            and (not isinstance(one.dataType, fractional) or isinstance(one.dataType, spark_types.DecimalType))
        )

    def prepare(self, work: Work | KeyWork, presentation: Presentation = AS_DRAWN) -> Callable[[], Drawn[DataFrame]]:
        _check_unit(self._frame, work.privacy_unit)
        if not self._comes_here(work) and self._target is None:
            _check_checkpoints(self._frame.sparkSession)
        if isinstance(work, KeyWork):
            keys = self._keys(work)
            return lambda: self._shown_once(keys, keys.schema, work, presentation)
        draw, types = self._drawn(work)
        self._check_names(self._shown(work, presentation)[-1].names)
        return lambda: self._shown_once(draw(), types, work, presentation)

    def prepare_stage(self, work: Work | KeyWork) -> Callable[[], bytes]:
        if not isinstance(work, KeyWork):
            return super().prepare_stage(work)
        _check_unit(self._frame, work.privacy_unit)
        keys = self._keys(work)
        # This runs once and brings all shown keys to the driver, so no file is needed.
        return lambda: self._shown_once(keys, keys.schema, work, AS_DRAWN).packed()

    def _keys(self, work: KeyWork) -> DataFrame:
        keys = shown_keys(self._frame, work)
        self._check_names(keys.columns)
        return keys

    def _comes_here(self, work: Work | KeyWork) -> bool:
        """Whether the driver draws. Public numbers decide, and for selected keys there are none."""
        if isinstance(work, KeyWork):
            return False
        return (work.groups or _SELECTED) * sum(spec.binning.size for spec in work.specs) <= _MOST_CELLS

    def _check_names(self, names: Sequence[str]) -> None:
        """Refuse columns that can't be in one Parquet file."""
        may_clash = self._target is not None and len({name.lower() for name in names}) < len(names)
        if may_clash and self._frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            msg = (
                f"keys and outputs must have names that differ by more than case, got {names}.\n\n"
                "Hint: rename one, or set spark.sql.caseSensitive to true."
            )
            raise ValueError(msg)

    def _drawn(self, work: Work) -> tuple[Callable[[], DataFrame | pa.Table], StructType]:
        """Return a function for the keys and their draws, as a plan or here; columns are named by places."""
        frame = self._frame
        if work.per_person is not None:
            _check_unit(frame, work.per_person.privacy_unit)
            for spec in work.per_person.specs:
                _check_weights(spec, "n_rows_dropped")
            frame = one_row_per_person(frame, work.per_person)
        groups = Groups.of(frame, work.keys)
        kinds = self._kinds_of_keys(work)
        answers = [_answer(output, work) for output in work.outputs]
        for answer in answers:
            for dtype, known in zip(answer.output.drawn_types, answer.drawn, strict=True):
                kinds.append(self._kind(answer, dtype, known, work))
        fields = _fields(map(str, range(len(kinds))), kinds)
        if self._comes_here(work):
            return partial(_drawn_here, work, _collecting(frame, groups, work), answers, fields.names), fields
        found = histograms(frame, work.privacy_unit, groups, work.specs, fresh_seed())
        planned = mapped(union(groups, found), drawing(answers, fields.names), fields)
        _ = planned.schema
        return lambda: planned, fields

    def _presented(
        self, drawn: DataFrame | pa.Table, types: StructType, work: Work | KeyWork, presentation: Presentation
    ) -> DataFrame:
        if isinstance(work, KeyWork):
            return self._here(drawn, types) if isinstance(drawn, pa.Table) else drawn
        answers, shown, fields = self._shown(work, presentation)
        stage = presenting(answers, shown, fields.names)
        if not isinstance(drawn, pa.Table):
            return drawn.mapInArrow(stage, fields)
        batches = list(stage(drawn.combine_chunks().to_batches()))
        return self._here(pa.Table.from_batches(batches) if batches else [], fields)

    def _here(self, rows: pa.Table | list[Any], types: StructType) -> DataFrame:
        frame = self._frame.sparkSession.createDataFrame(rows, schema=types)
        return frame.coalesce(1) if len(rows) <= _MOST_CELLS else frame

    def _shown(self, work: Work, presentation: Presentation) -> tuple[list[Answer], Shown, StructType]:
        shown = presentation.of(work.outputs, work.groups)
        names, kinds = [] if work.keys is None else work.keys.columns, self._kinds_of_keys(work)
        answers = [_answer(output, work) for output in work.outputs]
        for answer, of_answer in zip(answers, shown.names, strict=True):
            names += of_answer
            kinds += [self._kind(answer, answer.output.dtype, answer.dtype, work)] * len(of_answer)
        return answers, shown, _fields(names, kinds)

    def _shown_once(
        self, drawn: DataFrame | pa.Table, types: StructType, work: Work | KeyWork, presentation: Presentation
    ) -> Drawn[DataFrame]:
        """Return the keys and their draws: packed rows, or a plan that runs once, because each run would draw anew."""

        def packed() -> bytes:
            nonlocal drawn
            rows = drawn if isinstance(drawn, pa.Table) else drawn.toArrow()
            drawn = rows
            return _packed(rows, types)

        def published() -> DataFrame:
            shown = self._presented(drawn, types, work, presentation)
            # Rows in this process are never drawn again.
            return shown if self._target is None and isinstance(drawn, pa.Table) else _published(shown, self._target)

        return Drawn(packed, published)

    def _kinds_of_keys(self, work: Work) -> list[DataType]:
        return [self._frame.schema[name].dataType for name in ([] if work.keys is None else work.keys.columns)]

    def _kind(self, answer: Answer, dtype: pl.DataType, known: pl.DataType, work: Work) -> DataType:
        """Return the Spark type of a column: the narrower type of a private column, if it has values of that column."""
        # With people as rows, there are only numbers.
        columns = [] if work.per_person else work.specs[answer.output.specs[0]].names
        inner = dtype.inner if isinstance(dtype, pl.List) else dtype
        named = made(inner.fields[0].dtype if isinstance(inner, pl.Struct) else inner)
        if not columns or named not in answer.output.types[:1]:
            return spark_type(known)
        return spark_type(known, (named, self._frame.schema[columns[0]].dataType))

    def picked(self, answer: bytes, keys: int, places: Sequence[int]) -> bytes:
        table, types = _read(answer)
        columns = [*range(keys), *(keys + place for place in places)]
        names = [str(place) for place in range(len(columns))]
        fields = _fields(names, [types.fields[place].dataType for place in columns])
        return _packed(pa.table([table.column(place) for place in columns], names), fields)

    def unpacked(self, answer: bytes, work: Work | KeyWork, presentation: Presentation) -> Drawn[DataFrame]:
        return self._shown_once(*_read(answer), work, presentation)


def _packed(rows: pa.Table, types: StructType) -> bytes:
    table, file = rows.replace_schema_metadata({_TYPES: types.json()}), pa.BufferOutputStream()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return bytes(file.getvalue().to_pybytes())


def _read(packed: bytes) -> tuple[pa.Table, StructType]:
    table = pa.ipc.open_stream(packed).read_all()
    return table, spark_types.StructType.fromJson(json.loads(table.schema.metadata[_TYPES]))


def _drawn_here(
    work: Work, count: Callable[[], list[Histogram]], answers: Sequence[Answer], names: Sequence[str]
) -> pa.Table:
    drawn = work.assemble(count() if work.groups else ())
    known = [dtype for answer in answers for dtype in answer.drawn]
    keys = drawn.width - len(known)
    columns = [column.to_arrow() for column in drawn.get_columns()[:keys]]
    columns += map(in_arrow, drawn.get_columns()[keys:], known)
    return pa.table(columns, names=names)


def _fields(names: Iterable[str], kinds: Iterable[DataType]) -> StructType:
    return spark_types.StructType(
        [spark_types.StructField(name, kind) for name, kind in zip(names, kinds, strict=True)]
    )


def _check_unit(frame: DataFrame, unit: PrivacyUnit | None) -> None:
    for name in unit or ():
        must_have(name, frame.columns, "privacy unit {} as a column")
        kind = frame.schema[name].dataType.simpleString()
        if "collate" in kind:  # Spark would treat several people as one, and limit them as one
            msg = f"the privacy unit {name!r} must have no collation, got {kind}."
            raise TypeError(msg)


def _answer(output: Output, work: Work) -> Answer:
    for spec in output.specs:
        _check_weights(work.specs[spec], f"Output {output.name!r}")
    known = answer_type(output.dtype)
    if known is None:
        msg = (
            f"Output {output.name!r}: candidates must have a type that Spark has, got {output.dtype}.\n\n"
            "Hint: cast them; times to microseconds."
        )
        raise TypeError(msg)
    # Whole numbers, lists of them, or answers: Spark has every type that an answer needs.
    drawn = tuple(answer_type(dtype) or dtype for dtype in output.drawn_types)
    return Answer(output, known, drawn)


def _check_weights(spec: HistogramSpec, asked: str) -> None:
    if not weighs_exactly(spec):
        msg = (
            f"{asked}: decimals that are added up must have at most 17 digits after the point, got a column of type "
            f"{spec.types[-1]}.\n\nHint: cast it in Spark first, to the digits of the step."
        )
        raise TypeError(msg)


def _type_of(frame: DataFrame, name: str, *, is_only_counted: bool) -> pl.DataType:
    """Return the Polars type of a column, or Binary if only the presence of a value matters."""
    must_have(name, frame.columns)
    kind = frame.schema[name].dataType
    if is_only_counted:
        return pl.Binary()  # in place of any type
    dtype = polars_type(kind)
    declared = frame.schema[name].metadata.get(_DECLARED, "")
    if declared.startswith("char("):
        msg = f"the column {name!r} must not be padded text, got {declared}.\n\nHint: rtrim it in Spark first."
        raise TypeError(msg)
    if dtype is None:
        msg = (
            f"the column {name!r} must be text without a collation, a number, a boolean, a date, a timestamp or a "
            f"day-time interval, got {kind.simpleString()}."
        )
        raise TypeError(msg)
    return dtype


def _check_checkpoints(spark: SparkSession) -> None:
    context, folder = getattr(spark, "sparkContext", None), None
    if context is not None:
        folder = context.getCheckpointDir()
    else:  # on Spark Connect; a server may hide its settings
        with contextlib.suppress(_errors.PySparkException):
            folder = spark.conf.get("spark.checkpoint.dir", None)
    if folder is None:
        msg = (
            f"path must be given where executors draw (beyond {_MOST_CELLS:,} cells, and for selected keys) "
            'and Spark has no checkpoint directory.\n\nHint: release(…, path="s3://…/released"), or '
            'spark.sparkContext.setCheckpointDir("…") (on Spark Connect spark.checkpoint.dir, set when its server '
            "starts): on storage that all executors reach."
        )
        raise ValueError(msg)


def _new_folder(spark: SparkSession, path: str | os.PathLike[str]) -> str:
    target = os.fspath(path)
    if set(target) & set("{}[]*?\\"):  # Spark would read it as a pattern, which may match other folders
        msg = f"path must have none of the characters {{}}[]*?\\, got {target!r}."
        raise ValueError(msg)
    if target.startswith("~"):
        msg = f"path must not begin with ~, got {target!r}: to Spark that is a folder.\n\nHint: write the path out."
        raise ValueError(msg)
    try:
        _ = spark.read.format("binaryFile").load(target).schema  # this format has its own schema, so no file is read
    except _errors.AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return target
        raise
    msg = f"path must be a folder that does not exist yet, got {target!r}."
    raise ValueError(msg)


def _published(drawn: DataFrame, target: str | None) -> DataFrame:
    """Run the release once and return its answers from disk. Only one attempt of each task is saved there."""
    if target is None:
        return drawn.checkpoint(eager=True)
    # With this version, the committer moves nothing into the folder before all tasks are done.
    writer = drawn.write.option("mapreduce.fileoutputcommitter.algorithm.version", "1")
    writer.mode("error").parquet(target)
    return drawn.sparkSession.read.schema(drawn.schema).parquet(target)
