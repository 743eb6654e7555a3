"""Replace people by whole numbers, once for each release, for any type of privacy unit."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base import column_types
from dp_polars._base.numbers import Ints, begin_runs, difference, marked_so_far, numbered, owners, sorted_words
from dp_polars._base.silence import in_parallel
from dp_polars._sources.running import by_name

# Texts that a thread compares at once.
_PART = 1 << 18


def labelled(person: pl.Series) -> pl.Series:
    """Return a whole number for each row's person. No row or field is null.

    Polars' work depends only on the types, unless two texts have the same 64-bit hash.
    """
    dtype = person.dtype
    if dtype.is_integer() and not column_types.is_wide(dtype):
        return person
    if isinstance(dtype, pl.Struct):
        return pl.Series(person.name, _together([labelled(field) for field in person.struct.unnest()]))
    labels = _of_texts(person) if dtype == pl.String else None
    return pl.Series(person.name, _of_groups(person) if labels is None else labels)


def _together(fields: list[pl.Series]) -> NDArray[np.unsignedinteger]:
    """Return a number for each combination of several columns of numbers."""
    found, size = np.zeros(len(fields[0]), np.uint64), 1
    for field in fields:
        values = field.to_numpy()
        least = values[:1] if not len(values) else values.min(keepdims=True)
        part, span = difference(values, least), 1
        if len(part):
            span += int(part.max())
        if size * span > 2**64:  # renumber, so that there are at most as many numbers as values
            (found, size), (part, span) = _dense(found), _dense(part)
        found, size = found * np.uint64(span % 2**64) + part, size * span
    return found


def _dense(numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], int]:
    values, places = numbered(numbers)
    return places.astype(np.uint64), len(values)


def _of_groups(person: pl.Series) -> Ints:
    grouped = person.to_frame("person").lazy().with_row_index("row").group_by("person").agg("row").select("row")
    lists = grouped.collect(engine=by_name("auto"))["row"]
    # Each list has the rows of one person: the value itself is no longer needed.
    labels = np.empty(len(person), np.int64)
    labels[lists.explode(empty_as_null=False).to_numpy()] = owners(lists.list.len().to_numpy())
    return labels


def _of_texts(person: pl.Series) -> Ints | None:
    """Return labels of texts, or None if different texts have the same hash.

    Rows are sorted by hash, and each text is compared with the one before it.
    Grouping in Polars takes twice the time or more.
    """
    number, person = len(person), person.rechunk()
    bits = np.uint64(max(number - 1, 0).bit_length())
    hashes = person.hash().to_numpy()
    # The first bits of a hash, then the row's place: one sort of words.
    words = sorted_words((hashes >> bits << bits) | np.arange(number, dtype=np.uint64))
    rows = (words & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    begins = begin_runs(words >> bits)
    differs = _differs(person, rows)
    if (differs & ~begins).any():  # different hashes with the same first bits
        runs = marked_so_far(begins)
        mixed = np.zeros(number + 1, bool)
        mixed[runs[differs & ~begins]] = True
        places = np.flatnonzero(mixed[runs])
        rows[places] = rows[places][np.argsort(hashes[rows[places]], kind="stable")]
        begins[places] = begin_runs(hashes[rows])[places]
        differs = _differs(person, rows)
    if (differs & ~begins).any():
        return None
    labels = np.empty(number, np.int64)
    labels[rows] = marked_so_far(begins)
    return labels


def _differs(texts: pl.Series, rows: Ints) -> NDArray[np.bool_]:
    """Return whether each row's text differs from the text of the row before it."""
    found = np.ones(len(rows), bool)

    def compare(start: int, stop: int) -> None:
        part = texts.gather(rows[start - 1 : stop])
        found[start:stop] = (part[1:] != part[:-1]).to_numpy()

    in_parallel(compare, [(start, min(start + _PART, len(rows))) for start in range(1, len(rows), _PART)])
    return found
