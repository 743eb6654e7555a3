"""Tables of other packages: their columns before the charge, and the rows of the columns that are read, after it.

Nothing before `Table.read` reads rows, except that the types of pandas' object columns depend on their values.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import polars as pl

from dp_polars._base.column_types import parts_of, without_nul
from dp_polars._base.numbers import kind_of_frame

# Objects of pyarrow, pandas, DuckDB and others, without types for mypy here.
_Any: TypeAlias = Any

# The name of a placeholder for types that Polars doesn't accept; its metadata has the type's own name.
_UNTAKEN = "dp_polars.untaken"
_MOST_DIGITS = 38  # in Polars' decimals
_TAKEN = frozenset(
    {
        *("NA", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("HALF_FLOAT", "FLOAT", "DOUBLE", "DATE32", "DATE64", "TIME32", "TIME64", "TIMESTAMP", "DURATION"),
        *("STRING", "LARGE_STRING", "STRING_VIEW", "BINARY", "LARGE_BINARY", "BINARY_VIEW", "FIXED_SIZE_BINARY"),
    }
)
_TAKEN_OF_PARTS = frozenset({"LIST", "LARGE_LIST", "FIXED_SIZE_LIST", "STRUCT", "MAP"})
# DuckDB returns these as bytes that may differ for equal values.
_BYTES_OF_DUCKDB = re.compile(r"\bVARIANT\b")


@dataclass(frozen=True)
class Table:
    """A table that is not read yet.

    Parameters
    ----------
    columns
        Each column's name with its Arrow field, or with the name of its type if Arrow lacks it.
    read
        The places of columns, at least one -> a pyarrow Table with them.
    has_rows_again
        Whether each read returns the same rows.
    close
        Closes open resources.
    """

    columns: Sequence[tuple[str, _Any]]
    read: Callable[[Sequence[int]], _Any]
    has_rows_again: bool = False
    close: Callable[[], object] = lambda: None

    def schema(self) -> pl.Schema:
        """Return the columns in Polars' types; refuse names that no Polars frame can have."""
        names = [name for name, _ in self.columns]
        if not names:
            msg = "release: a table without columns loses the number of its rows.\n\nHint: leave one column in."
            raise ValueError(msg)
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            msg = f"release: each column must have a name of its own, got several of {repeated}.\n\nHint: rename them."
            raise ValueError(msg)
        return pl.Schema({name: _in_polars(column) for name, column in self.columns})

    def rows(self, schema: pl.Schema, names: Collection[str]) -> pl.LazyFrame:
        """Return the rows with all columns of `schema`; columns that are not in `names` contain only null."""
        places = {name: place for place, (name, _) in enumerate(self.columns)}
        read = [name for name in schema if name in names]
        table = self.read([places[name] for name in read or [_smallest(schema)]])
        if read:  # by places, because names end at NUL in Arrow's C interface
            frame = pl.DataFrame(table.rename_columns([str(place) for place in range(len(read))]))
            frame.columns = read
        else:
            frame = pl.DataFrame({schema.names()[0]: pl.repeat(None, table.num_rows, dtype=pl.Null, eager=True)})
        left_out = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in names]
        return frame.lazy().with_columns(left_out).select(schema.names()) if left_out else frame.lazy()


def table_of(frame: object) -> Table | None:
    """Return another package's table, with its columns and a reader. None: it can't even be opened.

    Raises a TypeError if it is no table, and a ValueError if the package can't determine its columns.
    """
    import pyarrow as pa

    pandas = sys.modules.get("pandas")  # a frame's owner has imported it
    package = type(frame).__module__.partition(".")[0].lstrip("_")
    of_frame: _Any = frame
    if isinstance(frame, pa.RecordBatchReader):
        return _of_reader(frame)
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return Table(_fields(frame.schema), lambda places: _in_arrow(of_frame).select(places), has_rows_again=True)
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return _of_pandas(frame)
    if package == "duckdb" and hasattr(frame, "limit"):
        return _of_duckdb(frame)
    if package == "ibis" and hasattr(frame, "schema"):
        return _of_ibis(frame)
    is_column = isinstance(frame, (pl.Series, pa.ChunkedArray)) or type(frame).__name__ == "Series"
    if is_column or not hasattr(frame, "__arrow_c_stream__"):
        msg = (
            "private rows must be a LazyFrame, a DataFrame, a pyarrow dataset or an object with Arrow's C stream, got "
            f"{kind_of_frame(frame)}"
        )
        raise TypeError(msg)
    try:
        if not hasattr(frame, "__arrow_c_schema__"):  # it may return its rows only once, so the stream stays open
            return _of_reader(pa.RecordBatchReader.from_stream(frame))
        schema = pa.schema(frame)
    except Exception:  # it may convert or run here, so its message may contain values
        return None

    def read(places: Sequence[int]) -> _Any:
        reader = _of_reader(pa.RecordBatchReader.from_stream(frame))
        try:
            return reader.read(places)
        finally:
            reader.close()

    return Table(_fields(schema), read)


def _of_reader(reader: _Any) -> Table:
    import pyarrow as pa

    def read(places: Sequence[int]) -> _Any:
        schema = pa.schema([reader.schema.field(place) for place in places])
        try:
            return pa.Table.from_batches((batch.select(places) for batch in reader), schema)
        finally:
            reader.close()

    return Table(_fields(reader.schema), read, close=reader.close)


def _in_arrow(frame: _Any) -> _Any:
    import pyarrow as pa

    return pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame


def _of_pandas(frame: _Any) -> Table:
    """Return pandas' columns, and its index as columns, as pyarrow does, but one at a time."""
    import pyarrow as pa

    taken = [str(name) for name in frame.columns]
    columns = [(name, frame.iloc[:, place]) for place, name in enumerate(taken)]
    if type(frame.index).__name__ != "RangeIndex":
        for i, name in enumerate(frame.index.names):
            shown = f"__index_level_{i}__" if name is None or str(name) in taken else str(name)
            columns.append((shown, frame.index.get_level_values(i).to_series()))

    def read(places: Sequence[int]) -> _Any:
        arrays = [pa.array(columns[place][1], from_pandas=True) for place in places]
        return pa.table(arrays, names=[str(place) for place in places])

    return Table([(name, _field_of_pandas(values)) for name, values in columns], read, has_rows_again=True)


def _field_of_pandas(values: _Any) -> _Any:
    import pyarrow as pa

    if values.dtype == object:
        kind = pa.string()  # if it is another type, a release fails after the charge: that depends on values
        with suppress(Exception):
            kind = pa.infer_type(values.to_numpy(), from_pandas=True)
        return pa.field("", kind)
    try:
        return pa.field("", pa.array(values.iloc[:0], from_pandas=True).type)
    except Exception:
        return str(values.dtype)


def _of_duckdb(relation: _Any) -> Table:
    """Return the columns of a relation. A LIMIT of 0 reads no row and leaves no result open."""
    names, kinds = list(relation.columns), list(map(str, relation.types))
    error, columns = None, list[_Any]()
    try:
        if any(map(_BYTES_OF_DUCKDB.search, kinds)):  # Arrow may lack this type
            for place, kind in enumerate(kinds):
                one = None if _BYTES_OF_DUCKDB.search(kind) else relation.select(f"#{place + 1}").limit(0)
                columns.append(kind if one is None else one.to_arrow_table().schema.field(0))
        else:
            columns = list(relation.limit(0).to_arrow_table().schema)
    except Exception as found:
        error = type(found).__name__
    if error is not None:  # raised here, so that no exception with private values is its context
        msg = (
            "release: the columns of private rows must be known before the rows are read, but DuckDB could not find "
            f"them out ({error}). Its message may hold values of rows and is not shown.\n\n"
            "Hint: finish other results of the connection first, or give the relation of a cursor: "
            "connection.cursor().sql(…)."
        )
        raise ValueError(msg)

    def read(places: Sequence[int]) -> _Any:
        return relation.select(", ".join(f"#{place + 1}" for place in places)).to_arrow_table()

    return Table(list(zip(names, columns, strict=True)), read)


def _of_ibis(table: _Any) -> Table:
    import pyarrow as pa

    def field(kind: _Any) -> _Any:
        with suppress(Exception):
            return pa.field("", kind.to_pyarrow())
        return str(kind)

    columns = [(name, field(kind)) for name, kind in table.schema().items()]
    return Table(columns, lambda places: table.select(*(columns[place][0] for place in places)).to_pyarrow())


def _fields(schema: _Any) -> list[tuple[str, _Any]]:
    return [(field.name, field) for field in schema]


def _smallest(schema: pl.Schema) -> str:
    """Return a cheap column for counting rows."""
    flat = (name for name, dtype in schema.items() if dtype.is_numeric() or dtype.is_temporal())
    taken = (name for name, dtype in schema.items() if untaken(dtype) is None)
    return next(chain(flat, taken, schema))


# --- Types that Polars does not accept --------------------------------------------------------------------------------


def untaken(dtype: pl.DataType) -> str | None:
    """Return the name of a type that Polars can't read. None: Polars can read it."""
    if isinstance(dtype, pl.BaseExtension) and dtype.ext_name() == _UNTAKEN:
        return str(dtype.ext_metadata())
    # Polars shows such columns of files, but fails when it reads them.
    is_wide = any(isinstance(part, pl.Decimal) and (part.precision or 0) > _MOST_DIGITS for part in parts_of(dtype))
    return str(dtype) if is_wide else None


def without_untaken(plan: pl.LazyFrame) -> pl.LazyFrame:
    """Return a plan without file columns that Polars shows but can't read."""
    kinds = {name: untaken(dtype) for name, dtype in plan.collect_schema().items()}
    nothing = [pl.lit(None, dtype=_placeholder(kind)).alias(name) for name, kind in kinds.items() if kind is not None]
    return plan.with_columns(nothing) if nothing else plan


def has_untaken(schema: pl.Schema) -> bool:
    return any("\0" in name or untaken(dtype) is not None for name, dtype in schema.items())


def refuse_untaken(names: Collection[str], schema: pl.Schema) -> None:
    """Refuse columns to be read if Polars does not accept their type or name.

    Raises
    ------
    TypeError, ValueError
        With the name of the column, and how to cast it.
    """
    for name in names:
        kind = untaken(schema[name]) if name in schema else None
        if kind is not None:
            msg = (
                f"release: the column {name!r} must be of a type that Polars takes, got {kind}.\n\n"
                f"Hint: {_way_out(name, kind)}. A column that the query does not read may be of any type."
            )
            raise TypeError(msg)
        without_nul(name, "release: names of columns")


def _way_out(name: str, kind: str) -> str:
    if "interval" in kind.lower():
        return f"make it a number first, in DuckDB epoch({name})"
    if "decimal" in kind.lower():
        return f"cast it to {_MOST_DIGITS} digits first, in Arrow table[{name!r}].cast(pyarrow.decimal128(38, 2))"
    if "run_end" in kind:
        return f"decode it first, pyarrow.compute.run_end_decode(table[{name!r}])"
    if "list_view" in kind:
        return f"cast it first, table[{name!r}].cast(pyarrow.list_(…))"
    return f"cast it first, to text for one: in DuckDB CAST({name} AS VARCHAR)"


def scan_of_dataset(dataset: _Any) -> pl.LazyFrame:
    """Return a scan of a pyarrow dataset, with placeholder types for columns that Polars doesn't accept."""
    import pyarrow as pa

    schema = Table(_fields(dataset.schema), _read_nothing).schema()
    if any("\0" in name for name in schema):  # a scan's names end there
        refuse_untaken(schema, schema)
    taken = [field for field in dataset.schema if untaken(schema[field.name]) is None]
    if not taken or len(taken) == len(schema):
        return pl.scan_pyarrow_dataset(dataset)
    scan = pl.scan_pyarrow_dataset(dataset.replace_schema(pa.schema(taken, dataset.schema.metadata)))
    there = {field.name for field in taken}
    left_out = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in there]
    return scan.with_columns(left_out).select(schema.names())


def _read_nothing(_: Sequence[int]) -> _Any:
    raise NotImplementedError


@cache
def _ids() -> tuple[frozenset[int], frozenset[int]]:
    """Return the numbers of Arrow's types that Polars accepts, and of nested types."""
    import pyarrow as pa

    def ids(names: Collection[str]) -> Iterator[int]:
        return (getattr(pa.lib, f"Type_{name}") for name in names if hasattr(pa.lib, f"Type_{name}"))

    return frozenset(ids(_TAKEN)), frozenset(ids(_TAKEN_OF_PARTS))


def _in_polars(column: _Any) -> pl.DataType:
    """Return Polars' type of an Arrow column, found with one row: without rows, Polars raises or accepts too much."""
    import pyarrow as pa

    if not isinstance(column, str) and _is_taken(column.type):
        field = pa.field("0", column.type, metadata=column.metadata)
        with suppress(Exception, pl.exceptions.PanicException):
            return pl.DataFrame(pa.table([pa.nulls(1, column.type)], schema=pa.schema([field]))).dtypes[0]
    return _placeholder(column if isinstance(column, str) else str(column.type))


def _placeholder(kind: str) -> pl.DataType:
    return pl.Extension(_UNTAKEN, pl.Null(), kind)


def _is_taken(kind: _Any) -> bool:
    import pyarrow as pa

    flat, of_parts = _ids()
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name != "arrow.opaque" and _is_taken(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _is_taken(kind.value_type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _MOST_DIGITS and 0 <= kind.scale <= kind.precision and kind.bit_width <= 128)
    if kind.id in of_parts:
        return all(_is_taken(kind.field(place).type) for place in range(kind.num_fields))
    return kind.id in flat
