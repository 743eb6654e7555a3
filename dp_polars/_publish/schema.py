"""What the planner reads of a file: the names and types of its columns, from its footer, and nothing else."""

from __future__ import annotations

import os
import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from typing import BinaryIO


# The mark at both ends of a Parquet file, and its last bytes: the length of the footer, and the mark.
_MARK, _END = b"PAR1", b"\0\0\0\0PAR1"
# Bytes of a footer: more are no schema of a table.
_LARGEST = 2**28

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
    "questions": ["how many people", "diagnosis: most common value", "age: median", "days: mean"],
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
    values of columns, which are private: nobody looks at them, and no message of the reader is shown. What a writer
    noted with a type is left out for the same reason.
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
    """Return the column that is most likely to tell people apart, by its name and type; None where there is none."""
    names = [
        name
        for name, dtype in schema.items()
        if dtype.is_integer() or isinstance(dtype, (pl.String, pl.Categorical, pl.Binary))
    ]
    found = (name for pattern in _LIKELY for name in names if pattern.fullmatch(name.lower()))
    return next(found, None)
