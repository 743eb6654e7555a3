"""Numbers: parsed from users, in rigorous intervals, random from the system, and in arrays shared by threads."""

from __future__ import annotations

import math
import os
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import date, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from flint import arb

Number: TypeAlias = "int | float | Fraction | Decimal"
Word = TypeVar("Word", bound=str)
Arrays = TypeVar("Arrays", bound="DataclassInstance")

# Other packages' frames, with conversions to Polars.
_OF_FRAMES = {
    "pandas": "pl.from_pandas(…)",
    "pyarrow": "pl.from_arrow(…)",
    "numpy": "pl.from_numpy(…)",
    "duckdb": "….pl()",
    "ibis": "….to_polars()",
    "pyspark": "pl.from_arrow(….toArrow())",
}
# Functions of packages that accept rows for a query without data. Other packages have none.
_RELEASES = {
    "pandas": "release(…)",
    "pyarrow": "release(…)",
    "duckdb": "release(…)",
    "ibis": "dp_polars.sql.release(query, …)",
    "pyspark": "dp_polars.spark.release(query, …)",
}
_NUMBERS = (int, float, Fraction, Decimal, np.integer, np.floating)
_SHOWN = (str, bytes, int, float, complex, Fraction, Decimal, date, time, timedelta, type(None), np.generic)


def given(value: object) -> str:
    """Return an argument for a message: a plain value itself, or the type of anything else (private rows?)."""
    return repr(value) if isinstance(value, _SHOWN) else kind(value)


def kind(value: object) -> str:
    """Return an argument's type for a message, with its package if others have a type of this name."""
    package, name = _package(value), type(value).__name__
    return f"{package}.{name}" if package in _OF_FRAMES else name


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0].lstrip("_")


def before_unit(frame: object, unit: object) -> str | None:
    """Return a message for a frame given to `protect` in place of the unit. None: it is no frame."""
    package, protected = _package(frame), f"dp.protect({unit!r}, …)"
    is_frame = type(frame).__name__ in {"DataFrame", "LazyFrame", "GeoDataFrame"}
    is_frame |= any(hasattr(frame, name) for name in ("__arrow_c_stream__", "limit", "to_table"))
    if not is_frame:
        return None
    way = f"{_OF_FRAMES.get(package, 'frame')}.{protected}"
    if package in _RELEASES:
        way += f"; or query = dp_polars.protect({unit!r}, …).agg(…), and then "
        way += _RELEASES[package] if "(query" in _RELEASES[package] else f"query.{_RELEASES[package]}"
    return f"protect must be given the privacy unit alone, got {kind(frame)}: rows go before it.\n\nHint: {way}."


def kind_of_frame(value: object) -> str:
    """Return the end of a message that requires a Polars frame: the given type, and a way out."""
    way = _OF_FRAMES.get(_package(value))
    return f"{kind(value)}." + (f"\n\nHint: {way} makes a Polars frame of it." if way else "")


def one_of(name: str, value: object, words: tuple[Word, ...], wanted: str | None = None) -> Word:
    for word in words:
        if isinstance(value, str) and value == word:
            return word
    msg = f"{name} must be {wanted or f'one of {list(words)}'}, got {given(value)}."
    raise ValueError(msg)


def as_fraction(name: str, value: object) -> Fraction:
    """Return `value` as the exact rational that it prints as: 0.1 is 1/10."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, _NUMBERS):
        msg = f"{name} must be a number (int, float, Fraction or Decimal), got {given(value)}."
        raise TypeError(msg)
    if isinstance(value, Fraction):
        return value
    if isinstance(value, (int, np.integer)):
        return Fraction(int(value))
    if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
        msg = f"{name} must be finite, got {value!r}."
        raise ValueError(msg)
    return Fraction(str(value))


def positive_fraction(name: str, value: object) -> Fraction:
    exact = as_fraction(name, value)
    if not exact > 0:
        msg = f"{name} must be greater than 0, got {value!r}."
        raise ValueError(msg)
    return exact


# Significant digits of a loss given as a float. The errors of quotients of floats are far smaller: see `as_loss`.
DIGITS = 12


def as_loss(name: str, value: object) -> Fraction:
    """Return a loss, a delta or a total: a float as the decimal that it prints as, rounded down to 12 digits.

    So k losses of `total / k` fit a total of at most 12 digits, whichever way the quotient was rounded.
    Narrow floats keep fewer digits: 5 for 32 bits. All other numbers are exact.
    """
    exact = as_fraction(name, value)
    if not isinstance(value, (float, np.floating)):
        return exact
    return rounded_down(exact, min(DIGITS, np.finfo(type(value)).precision - 1))


def positive_loss(name: str, value: object) -> Fraction:
    positive_fraction(name, value)
    return as_loss(name, value)


def positive_int(name: str, value: object) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        msg = f"{name} must be an integer, got {given(value)}."
        raise TypeError(msg)
    if not value >= 1:
        msg = f"{name} must be at least 1, got {value!r}."
        raise ValueError(msg)
    return int(value)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        msg = f"{name} must be True or False, got {given(value)}."
        raise TypeError(msg)
    return bool(value)


def show(value: Fraction, digits: int = 6, *, up: bool = False) -> str:
    """Return a short text of an exact rational for people, 0.1 for 1/10 and 0.333333 for 1/3; costs are rounded up."""
    rounded = decimal_of(value, digits, ROUND_CEILING if up else ROUND_HALF_EVEN)
    return f"{float(rounded):.{digits}g}" if value == 0 or 2.0**-1000 < abs(value) < 2.0**1000 else f"{rounded:g}"


def cost_up(value: Fraction) -> str:
    """Return a loss or a delta as shown everywhere: a decimal of up to four digits, rounded up."""
    short = f"{decimal_of(value, 4, ROUND_CEILING):f}"
    if len(short) > 20:
        return show(value, 4, up=True)
    return short.rstrip("0").rstrip(".") if "." in short else short


def error_up(value: float) -> str:
    """Return an error as a short text, rounded up: three digits, and from 100 on a whole number."""
    return f"{math.ceil(value):,}" if 100 <= value < 1e15 else show(as_fraction("error", value), 3, up=True)


def rounded_down(value: Fraction, digits: int) -> Fraction:
    """Return the nearest decimal below of this number of significant digits."""
    return Fraction(decimal_of(value, digits))


def decimal_of(value: Fraction, digits: int, rounding: str = ROUND_FLOOR) -> Decimal:
    context = Context(prec=digits, rounding=rounding, traps=[])
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def nearest_float_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_up(value: Fraction) -> float:
    """Return a float next to `value` that is not below it as the decimal that it prints as: 0.1 for 1/10.

    Users see it, and pass it to functions that read a float as that decimal. Infinite beyond all floats.
    """
    try:
        rounded = float(value)
    except OverflowError:
        return math.inf
    return rounded if as_fraction("value", rounded) >= value else math.nextafter(rounded, math.inf)


def loss_up(value: Fraction) -> float:
    """Return a float that is not below an exact loss if given back (`as_loss`): of 12 digits, rounded up."""
    return float_up(Fraction(decimal_of(value, DIGITS, ROUND_CEILING)))


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# FLINT's precision is global to the process. A ball is right at any precision, so a race would only cost accuracy. But
# a caller's own FLINT code must find its precision unchanged.
_lock = RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with balls of `bits` bits inside the block."""
    from flint import ctx

    with _lock, ctx.workprec(bits):
        yield


def ball(value: Fraction | int) -> arb:
    """Return the tightest ball around an exact rational at the current precision."""
    from flint import arb, fmpq

    return arb(fmpq(value.numerator, value.denominator))


def _exact(endpoint: arb) -> Fraction:
    mantissa, exponent = map(int, endpoint.man_exp())
    return mantissa * Fraction(2) ** exponent


def lower(value: arb) -> Fraction:
    return _exact(value.lower())


def upper(value: arb) -> Fraction:
    return _exact(value.upper())


# n -> n independent uniform 64-bit words. Tests pass their own.
Rng: TypeAlias = Callable[[int], NDArray[np.uint64]]

_ZEROS = memoryview(bytes(1 << 20))


def system_rng() -> Rng:
    """Return a new stream of words: AES-256 in counter mode under a key from the operating system.

    Every call of a mechanism makes its own, so forks, threads and copies never share a stream.
    """
    encryptor = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor()

    def draw(count: int) -> NDArray[np.uint64]:
        out = np.empty(count, np.uint64)
        view = out.view(np.uint8).data
        # In chunks that stay in the cache: 14 times as fast as os.urandom.
        for start in range(0, len(view), len(_ZEROS)):
            piece = view[start : start + len(_ZEROS)]
            encryptor.update_into(_ZEROS[: len(piece)], piece)
        return out

    return draw


def uniform_below(bounds: NDArray[np.int64], rng: Rng) -> NDArray[np.int64]:
    """Return, for each bound m >= 1, an exactly uniform integer from 0 to m − 1."""
    out = np.zeros(len(bounds), np.int64)
    pending = np.flatnonzero(bounds > 1)
    while len(pending):
        m = bounds[pending].astype(np.uint64)
        word = rng(len(pending))
        # The words from 2**64 mod m on are a whole number of rounds of m; smaller words are drawn again.
        accepted = word >= (~m + np.uint64(1)) % m
        out[pending[accepted]] = (word[accepted] % m[accepted]).astype(np.int64)
        pending = pending[~accepted]
    return out


Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
SignedInts: TypeAlias = "NDArray[np.signedinteger]"  # 32 bits if they suffice: half the time

# From this many words on, a sort uses all threads.
_MANY_WORDS = 1 << 20


def offsets(lengths: Ints) -> Ints:
    """Return where each group begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def marked_so_far(marks: NDArray[np.bool_]) -> Ints:
    """Return for each place the number of marks up to it, including its own."""
    number = marks.astype(np.int64)  # NumPy adds up Booleans at a quarter of the speed
    return np.cumsum(number, out=number)


def ranks_of_marks(marks: NDArray[np.bool_]) -> Ints:
    """Return for each place the number of marks before it, and last the number of all."""
    return np.concatenate([np.zeros(1, np.int64), marked_so_far(marks)])


def starts(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths


def owners(lengths: Ints) -> Ints:
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def positions(first: Ints | int, lengths: Ints) -> Ints:
    """Return, for every row, first[group] plus the row's place in its group."""
    at = np.repeat(first - starts(lengths), lengths)
    at += np.arange(len(at))
    return at


def lengths_from(starts: Ints, total: int) -> Ints:
    """Return the number of rows of each group, from the groups' first places."""
    lengths = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
    lengths[-1:] = total - starts[-1:]
    return lengths


def joined(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate dataclasses of arrays."""
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, of.name) for part in parts]) for of in fields(kind)))


def reduced(operation: np.ufunc, values: NDArray[Any], lengths: Ints) -> NDArray[Any]:
    """Apply an operation to the values of each group that has values."""
    return operation.reduceat(values, starts(lengths)[lengths > 0]) if len(values) else values


def slices(lengths: Ints, rows: int, most_groups: int) -> Iterator[tuple[int, int]]:
    """Yield runs of whole groups: at most `rows` rows (or one group) and at most `most_groups` groups."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        before = ends[start] - lengths[start]
        stop = max(int(np.searchsorted(ends, before + rows, side="right")), start + 1)
        stop = min(stop, start + most_groups)
        yield start, stop
        start = stop


def begin_runs(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether each label begins a run of equal labels, along the last axis."""
    begins = np.ones(labels.shape, bool)
    np.not_equal(labels[..., 1:], labels[..., :-1], out=begins[..., 1:])
    return begins


def run_starts(*labels: NDArray[np.integer]) -> Ints:
    """Return the start of each run of equal labels (or pairs of labels)."""
    begins = begin_runs(labels[0])
    for other in labels[1:]:
        begins |= begin_runs(other)
    return np.flatnonzero(begins)


def run_lengths(labels: NDArray[np.integer]) -> Ints:
    return lengths_from(run_starts(labels), len(labels))


def batches_of_like(sizes: Ints, most: Callable[[int], int]) -> Iterator[Ints]:
    """Yield all groups, the largest first, in batches of similar size; `most` limits the groups in a batch."""
    order, done = np.argsort(-sizes, kind="stable"), 0
    while done < len(order):
        batch = order[done : done + max(1, most(int(sizes[order[done]])))]
        yield batch
        done += len(batch)


def numbered(values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Ints]:
    """Return the distinct values in ascending order, and each value's place among them."""
    bits = np.uint64(max(len(values) - 1, 0).bit_length())
    if int(values.max(initial=0)).bit_length() + int(bits) > 64:
        found, places = np.unique(values, return_inverse=True)
        return found, places.astype(np.int64, copy=False)
    # Value and place in one word: sorting words is several times as fast as an argsort.
    words = sorted_words((values << bits) | np.arange(len(values), dtype=np.uint64))
    ascending = words >> bits
    begins, places = begin_runs(ascending), np.empty(len(values), np.int64)
    places[(words & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)] = marked_so_far(begins) - 1
    return ascending[begins], places


def sorted_words(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _faster_sort()(words)


@cache
def _faster_sort() -> Callable[[NDArray[np.uint64]], NDArray[np.uint64]]:
    """Return NumPy's sort or Polars', measured without data: NumPy's is much slower without AVX2."""
    words = np.arange(1 << 14, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    def seconds(sort: Callable[[NDArray[np.uint64]], object]) -> float:
        return min(timeit.repeat(lambda: sort(words), number=1, repeat=3))

    return np.sort if seconds(np.sort) < seconds(_sorted_by_polars) else _sorted_by_polars


def _sorted_by_polars(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return pl.Series(words).sort(multithreaded=len(words) >= _MANY_WORDS).to_numpy()


def difference(high: NDArray[np.integer], low: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return high − low modulo 2**64, which is exact unless negative, for any signedness."""
    above, below = (
        (numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.int64)).view(np.uint64)
        for numbers in (high, low)
    )
    return above - below
