"""What the planner reads of a file, only the names and types of its columns, and what can be computed of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from io import BytesIO
from pathlib import Path
from types import EllipsisType
from typing import Any, BinaryIO, NamedTuple

import polars as pl

from dp_polars._base.column_types import family

# The mark at both ends of a Parquet file, and its last bytes: the length of the footer, and the mark.
_MARK, _END = b"PAR1", b"\0\0\0\0PAR1"
_LARGEST = 2**28  # bytes of a footer: more are no schema of a table

# What a synthetic plan is about.
DEMO = pl.Schema(
    {
        "patient": pl.Int64(),
        "ward": pl.Enum(["north", "south", "east", "west"]),
        "diagnosis": pl.String(),
        "age": pl.Int16(),
        "days": pl.Float64(),
        "smoker": pl.Boolean(),
        "admitted": pl.Date(),
    }
)
# What is picked of it at first.
DEMO_PICKS = {
    "groups": ["ward"],
    "statistics": ["how many people", "diagnosis: most common value", "age: median", "days: mean"],
    "value diagnosis": "flu\nasthma\nfracture\nother",
    "value age": "0..120",
    "value days": "0..60 by 0.5",
}
_WORDS = "person|people|patient|customer|client|user|member|employee|student|subject|household|account|citizen|pid|uid"
# Names of a column that tells people apart, the likeliest first.
_LIKELY = tuple(
    re.compile(pattern)
    for pattern in (rf"({_WORDS})s?", rf"({_WORDS})s?[ _.-]?(id|no|nr|num|number|key|code)", rf".*({_WORDS}).*", "id")
)


def schema_of(path: str) -> pl.Schema:
    """Return the names and types of the columns of a Parquet file.

    Only the bytes of the footer are read from the file. They also hold the number of rows and the smallest and largest
    values of columns, which are private: nobody looks at them, and no message of the reader is shown. Metadata of a
    type is left out for the same reason.
    """
    try:
        target = Path(path).expanduser()
        if not (target.is_file() or target.is_dir() or not target.exists()):
            msg = "it is no regular file"  # a pipe without a writer would be waited for
            raise ValueError(msg)
        with target.open("rb") as file:
            footer = _footer(file)
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a null byte; RuntimeError: ~ of an unknown user
        why = getattr(error, "strerror", None) or error
        msg = f"FILE must be a file that can be opened, got {path!r}: {why}."
        if isinstance(error, IsADirectoryError) or any(sign in path for sign in "*?["):
            msg += "\n\nHint: of several files with the same columns, give any one."
        raise ValueError(msg) from None
    try:
        read = pl.read_parquet_schema(BytesIO(footer))
        schema = pl.Schema({name: _without_notes(dtype) for name, dtype in read.items()})
    except (Exception, pl.exceptions.PanicException):  # Polars panics at some damaged footers
        schema = pl.Schema()
    if not schema:
        msg = (
            f"FILE must be a Parquet file whose footer can be read, got {path!r}: it is damaged, encrypted or of "
            'another kind.\n\nHint: pl.scan_csv("visits.csv").sink_parquet("visits.parquet") makes one of a CSV file.'
        )
        raise ValueError(msg)
    return schema


def _footer(file: BinaryIO) -> bytes:
    """Return a Parquet file without its rows: the footer between two marks; nothing where there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(_END)))
    end = file.read(len(_END))
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MARK or not length <= min(size - len(_END), _LARGEST):
        return b""
    file.seek(size - len(_END) - length)
    return _MARK + file.read(length) + end


def _without_notes(dtype: Any) -> pl.DataType:  # noqa: ANN401
    """Return a type without what a writer noted with extension types in it: any text, also of the rows."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _without_notes(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.Array):
        return pl.Array(_without_notes(dtype.inner), dtype.size)
    if isinstance(dtype, pl.List):
        return pl.List(_without_notes(dtype.inner))
    if hasattr(dtype, "ext_storage"):
        return pl.Extension(dtype.ext_name(), _without_notes(dtype.ext_storage()))
    return dtype  # type: ignore[no-any-return]


def likely_unit(schema: pl.Schema) -> str | None:
    names = [
        name
        for name, dtype in schema.items()
        if dtype.is_integer() or isinstance(dtype, (pl.String, pl.Categorical, pl.Binary))
    ]
    return next((name for pattern in _LIKELY for name in names if pattern.fullmatch(name.lower())), None)


TOP = 3  # how many values a top has


class Statistic(NamedTuple):
    """A statistic of a column, or of the rows themselves (None)."""

    ask: str
    column: str | None = None


class _Kind(NamedTuple):
    """A statistic: how users read it, and of which columns."""

    title: str
    fits: Callable[[pl.DataType], bool] | None


def _is_text_or_boolean(dtype: pl.DataType) -> bool:
    return family(dtype) in ("text", "boolean")


def _is_category(dtype: pl.DataType) -> bool:
    return _is_text_or_boolean(dtype) or dtype.is_integer()


def _has_median(dtype: pl.DataType) -> bool:
    return family(dtype) is not None and not _is_text_or_boolean(dtype) and dtype != pl.Duration


_KINDS = {
    "n_people": _Kind("how many people", None),
    "len": _Kind("how many rows", None),
    "mode": _Kind("most common value", _is_category),
    "value_counts": _Kind("how many have each value", _is_category),
    "top_k": _Kind(f"top {TOP} values", lambda dtype: _is_category(dtype) and dtype != pl.Boolean),
    "first_above": _Kind(
        "first value that many have",
        lambda dtype: _has_median(dtype) and not (dtype.is_float() or isinstance(dtype, pl.Decimal)),
    ),
    "median": _Kind("median", _has_median),
    "quantile": _Kind("several quantiles", _has_median),
    "mean": _Kind("mean", lambda dtype: dtype.is_numeric()),
    "sum": _Kind("sum", lambda dtype: dtype.is_numeric()),
    "var": _Kind("variance", lambda dtype: dtype.is_numeric()),
    "std": _Kind("standard deviation", lambda dtype: dtype.is_numeric()),
    "share": _Kind("share that is true", lambda dtype: dtype == pl.Boolean),
}


def statistics_of(
    schema: pl.Schema, unit: str | EllipsisType | None, keys: Collection[str] = ()
) -> dict[str, Statistic]:
    """Return all that can be computed of columns of these types but `keys`, by how users read it."""
    asked = {
        kind.title: Statistic(ask)
        for ask, kind in _KINDS.items()
        if kind.fits is None and not (unit is None and ask == "n_people")
    }
    for name, dtype in schema.items():
        if name == unit or name in keys:
            continue
        fitting = ((ask, kind) for ask, kind in _KINDS.items() if kind.fits is not None and kind.fits(dtype))
        asked |= {f"{name}: {kind.title}": Statistic(ask, name) for ask, kind in fitting}
    return asked


class More(NamedTuple):
    """A further text that some statistics need: the name of its field, its first content, and an example."""

    title: str
    first: str
    example: str
    asks: Collection[str]


MORE = {
    "quantiles": More("Quantiles of", "0.25, 0.5, 0.75", "0.25, 0.5, 0.75", ("quantile",)),
    "threshold": More("How many people make a value the first one, of", "100", "100", ("first_above",)),
    "weights": More("Weights (none: each person counts once) of", "", "days up to 60", ("mode", "top_k")),
}


def more_of(statistics: Iterable[Statistic]) -> list[tuple[str, str]]:
    asked = [statistic for statistic in statistics if statistic.column is not None]
    found = ((kind, q.column) for q in asked for kind, more in MORE.items() if q.ask in more.asks)
    return list(dict.fromkeys(found))  # type: ignore[arg-type]  # no None among the columns


# Names of columns of text that are dates: their values are not read.
_DATES = re.compile(r"(.*[_ .-])?(date|day|month|time|timestamp|when|at|on)s?([_ .-].*)?", re.IGNORECASE)


def months_of(schema: pl.Schema) -> dict[str, str]:
    """Return the columns of months that dates offer, and texts that are called like dates, each with its column."""
    dated = [
        name
        for name, dtype in schema.items()
        if isinstance(dtype, (pl.Date, pl.Datetime)) or (dtype == pl.String and _DATES.fullmatch(name))
    ]
    return {f"{name}_month": name for name in dated if f"{name}_month" not in schema}


def own_values(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Enum):
        return "\n".join(dtype.categories)
    return "false\ntrue" if dtype == pl.Boolean else ""
