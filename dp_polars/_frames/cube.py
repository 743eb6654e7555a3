"""A released cube: noisy counts of all combinations of public values, which answer many questions for free."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
import polars as pl

from dp_polars._base.calls import called
from dp_polars._base.numbers import given, plural, positive_int
from dp_polars._base.paths import expanded, replacing
from dp_polars._engines.outputs import beta_of_each, names_of_ends
from dp_polars._frames.claim_files import CLAIM_KEY
from dp_polars._frames.group_keys import product
from dp_polars._mechanisms.noise_sums import Noise, sum_bounds
from dp_polars._questions.measures import BETA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dp_polars._base.arrays import Ints

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

T = TypeVar("T", int, "float | None")

COUNT, SHARE = "count", "share"
#: What no dimension may be named: the columns of answers.
TAKEN = (COUNT, *names_of_ends(COUNT), SHARE, *names_of_ends(SHARE))
# The name in a file's metadata of what makes a cube of its rows.
_CUBE_KEY = b"dp_polars.cube"
# How many values of a dimension `repr` shows.
_SHOWN = 4


class Number(NamedTuple, Generic[T]):
    """A released number, and the ends of its 95 % range: the number without noise lies between them, or is one."""

    value: T
    low: T
    high: T


@dataclass(frozen=True)
class Histogram:
    """Noisy counts of the combinations of some dimensions, and the law of the noise on each.

    Parameters
    ----------
    axes
        The positions of its dimensions, ascending.
    noise
        What was added to each count, independently.
    counts
        Int64: the count of each combination, the last dimension running fastest.
    """

    axes: tuple[int, ...]
    noise: Noise
    counts: pl.Series


@dataclass(frozen=True, eq=False, repr=False)
class Cube:
    """Noisy counts of all combinations of public values. Released by the query that `PrivateFrame.cube` makes.

    It holds no private row: only what was released, and what is public. So every answer is free, as often as you like.
    An answer is a sum of noisy counts, and its 95 % range is that of the sum of their noises, exactly: the number
    without noise, of the rows that the bounds keep, lies in it with probability 0.95 at least. Counts may be negative.

    Without marginals all answers agree with each other: parts add up to their sum. With marginals, each answer comes
    from the one histogram whose sum has the least noise, and answers from different histograms may differ by that.

    Filters are Polars expressions over the dimensions. Several must all be true, and null is not true.

    Notes
    -----
    Proof: :doc:`/proofs/cubes`.
    """

    _dimensions: tuple[pl.Series, ...]
    _histograms: tuple[Histogram, ...]
    _claim: str

    @property
    def dimensions(self) -> dict[str, pl.Series]:
        """The public values of each dimension, in their order."""
        return {values.name: values for values in self._dimensions}

    @property
    def claim(self) -> dict[str, Any]:
        """What the release promised and cost, as `read_claim` returns it."""
        claim: dict[str, Any] = json.loads(self._claim)
        return claim

    @called
    def count(self, *where: pl.Expr) -> Number[int]:
        """Return how many there are, where all filters are true.

        Parameters
        ----------
        *where
            Boolean expressions over the dimensions. None: everything.

        Returns
        -------
        Number
            `value`, and its 95 % range from `low` to `high`.

        Raises
        ------
        TypeError, ValueError
            If a filter is no Boolean expression over the dimensions.

        Examples
        --------
        >>> import polars as pl
        >>> visits = pl.DataFrame(
        ...     {"ward": ["A", "B"] * 500, "year": [2024] * 600 + [2025] * 400}
        ... )
        >>> private = visits.dp.protect(None)
        >>> cube = private.cube(
        ...     {"ward": ["A", "B"], "year": [2024, 2025]}, epsilon=50
        ... ).release()
        >>> cube.count(pl.col("year") == 2024)
        Number(value=600, low=600, high=600)
        """
        (counts,) = self._sums((), [self._mask(where)])
        value, low, high = (int(numbers[0]) for numbers in counts.ends(BETA))
        return Number(value, low, high)

    @called
    def counts(self, *where: pl.Expr, by: str | Sequence[str]) -> pl.DataFrame:
        """Return how many there are of each value of a dimension, or combination of several, where filters are true.

        Parameters
        ----------
        *where
            As for `count`.
        by
            The name of a dimension, or several.

        Returns
        -------
        DataFrame
            A row for each combination, in the order of the values: the dimensions, and "count", "count_low" and
            "count_high" (Int64). Each range holds at 95 % by itself.

        Raises
        ------
        TypeError, ValueError
            If a filter is not over the dimensions, or `by` is no dimension.

        Examples
        --------
        >>> import polars as pl
        >>> visits = pl.DataFrame(
        ...     {"ward": ["A", "B"] * 500, "year": [2024] * 600 + [2025] * 400}
        ... )
        >>> private = visits.dp.protect(None)
        >>> cube = private.cube(
        ...     {"ward": ["A", "B"], "year": [2024, 2025]}, epsilon=50
        ... ).release()
        >>> cube.counts(by="year").rows()
        [(2024, 600, 600, 600), (2025, 400, 400, 400)]
        """
        axes = self._axes("by", by)
        if not axes:
            msg = "by must name a dimension at least, got none.\n\nHint: count(…) is the number of all of them."
            raise ValueError(msg)
        (counts,) = self._sums(axes, [self._mask(where)])
        return self._named(axes, COUNT, counts.ends(BETA))

    @overload
    def share(self, condition: pl.Expr, *where: pl.Expr, by: None = ...) -> Number[float | None]: ...

    @overload
    def share(self, condition: pl.Expr, *where: pl.Expr, by: str | Sequence[str]) -> pl.DataFrame: ...

    @called
    def share(
        self, condition: pl.Expr, *where: pl.Expr, by: str | Sequence[str] | None = None
    ) -> pl.DataFrame | Number[float | None]:
        """Return the share for which a condition is true: of the count with the condition left out.

        Parameters
        ----------
        condition
            A Boolean expression over the dimensions.
        *where
            Filters of both counts: among what the share is taken.
        by
            The name of a dimension, or several. None: one share.

        Returns
        -------
        DataFrame or Number
            A row for each combination: the dimensions, and "share", "share_low" and "share_high" (Float64), all within
            [0, 1]. A share is null where the noisy count of the whole is not above 0. Without `by` a `Number`.

        Raises
        ------
        TypeError, ValueError
            As for `counts`.

        Notes
        -----
        What the condition is true of, and the rest, are sums of different cells, so their noises are independent. Each
        has a range at √0.95, both hold at 0.95, and the ends of the share are the worst that both allow.

        Examples
        --------
        >>> import polars as pl
        >>> visits = pl.DataFrame(
        ...     {"ward": ["A", "B"] * 500, "year": [2024] * 600 + [2025] * 400}
        ... )
        >>> private = visits.dp.protect(None)
        >>> cube = private.cube(
        ...     {"ward": ["A", "B"], "year": [2024, 2025]}, epsilon=50
        ... ).release()
        >>> cube.share(pl.col("year") == 2025, by="ward").rows()
        [('A', 0.4, 0.4, 0.4), ('B', 0.4, 0.4, 0.4)]
        """
        axes = self._axes("by", by)
        mask, among = self._mask([condition]), self._mask(where)
        part, rest = self._sums(axes, [mask & among, ~mask & among])
        shares = _shares(part, rest)
        if by is not None:
            return self._named(axes, SHARE, shares)
        value, low, high = (series.item() for series in shares)
        return Number(value, low, high)

    @called
    def top(self, dimension: str, *where: pl.Expr, by: str | Sequence[str] | None = None, k: int = 1) -> pl.DataFrame:
        """Return the k values of a dimension with the largest counts, the largest first.

        Parameters
        ----------
        dimension
            The name of the dimension whose values are ranked.
        *where
            As for `count`.
        by
            One or several others: a ranking for each of their combinations. None: one ranking.
        k
            At least 1; with fewer values, all of them are ranked.

        Returns
        -------
        DataFrame
            The dimensions of `by`, the ranked one, and "count", "count_low" and "count_high". Equal counts are in the
            order of the values.

        Raises
        ------
        TypeError, ValueError
            As for `counts`; also if k is no whole number of at least 1.

        Notes
        -----
        The ranking is that of noisy counts, so what is first has often been helped by its noise. A range holds at 95 %
        for a value that is chosen in advance, and less often for the one that came first.

        Examples
        --------
        >>> import polars as pl
        >>> visits = pl.DataFrame(
        ...     {"ward": ["A", "B"] * 500, "year": [2024] * 600 + [2025] * 400}
        ... )
        >>> private = visits.dp.protect(None)
        >>> cube = private.cube(
        ...     {"ward": ["A", "B"], "year": [2024, 2025]}, epsilon=50
        ... ).release()
        >>> cube.top("year", by="ward").rows()
        [('A', 2024, 300, 300, 300), ('B', 2024, 300, 300, 300)]
        """
        axes = (*self._axes("by", by), *self._axes("dimension", dimension))
        if len(axes) > len(set(axes)):
            msg = f"by must leave out the dimension that is ranked, got {dimension!r} in both."
            raise ValueError(msg)
        most = min(positive_int("k", k), len(self._dimensions[axes[-1]]))
        counts = self.counts(*where, by=[self._dimensions[axis].name for axis in axes])
        values = counts[COUNT].to_numpy().reshape(-1, len(self._dimensions[axes[-1]]))
        ranked = np.argsort(-values, axis=1, kind="stable")[:, :most]
        return counts[(ranked + values.shape[1] * np.arange(len(values))[:, None]).ravel()]

    def to_frame(self) -> pl.DataFrame:
        """Return the noisy count of every combination of all dimensions, without ranges: `counts` gives them."""
        return self._table(self._histograms[:1])

    @called
    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the cube into a Parquet file, with its claim: `read_cube` reads it, and `read_claim` the claim.

        Its rows are those of `to_frame`, and then those of the marginals, where dimensions that are left out are null.
        The file is written next to `path` and then renamed, so it is never incomplete. An existing one is replaced.

        Parameters
        ----------
        path
            The file; `~` is the home folder.

        Raises
        ------
        TypeError
            If a dimension has integers of 128 bits, which Parquet doesn't have.
        """
        from pyarrow import parquet

        if wide := [values.name for values in self._dimensions if values.dtype in (pl.Int128, pl.UInt128)]:
            msg = f"Cube.write can't write the dimension {wide[0]!r}: Parquet has no integers of 128 bits."
            raise TypeError(msg)
        table = self._table(self._histograms).to_arrow()
        parts = [
            {"axes": one.axes, "mechanism": one.noise.mechanism, "rate": str(one.noise.rate)}
            for one in self._histograms
        ]
        about = json.dumps({"sizes": self._sizes, "histograms": parts}).encode()
        metadata = {**(table.schema.metadata or {}), CLAIM_KEY: self._claim.encode(), _CUBE_KEY: about}
        with replacing(expanded(path)) as file:
            parquet.write_table(table.replace_schema_metadata(metadata), file)

    def __repr__(self) -> str:
        lines = []
        for values in self._dimensions:
            shown = ", ".join([*map(repr, values[:_SHOWN].to_list()), *["…"] * (len(values) > _SHOWN)])
            lines.append(f"  {values.name}: {plural(len(values), 'value')} ({shown})")
        claim = self.claim
        for one, asked in zip(self._histograms, claim["columns"].items(), strict=True):
            name, column = asked
            noise = f"{one.noise.mechanism}, standard deviation {math.sqrt(one.noise.variance):.3g}"
            lines.append(f"  {name}: {column['selects']}, {plural(len(one.counts), 'cell')}, {noise}")
        asks = "count(…), counts(by=…), share(…), top(…), to_frame(), write(path)"
        return "\n".join([f"<Cube: {claim['protection']}, {claim['loss']}", *lines, f"  ask: {asks}>"])

    def __deepcopy__(self, memo: dict[int, object]) -> Cube:
        return self

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self._dimensions))

    def _table(self, histograms: Sequence[Histogram]) -> pl.DataFrame:
        return table(self._dimensions, [(one.axes, one.counts) for one in histograms])

    def _axes(self, name: str, names: str | Sequence[str] | None) -> tuple[int, ...]:
        """Return the positions of dimensions."""
        listed = [names] if isinstance(names, str) else [] if names is None else list(names)
        known = list(self.dimensions)
        if unknown := [one for one in listed if one not in known]:
            msg = f"{name} must name dimensions of the cube, {known}, got {given(unknown[0])}."
            raise ValueError(msg)
        if len(set(listed)) < len(listed):
            msg = f"{name} must name each dimension once, got {listed}."
            raise ValueError(msg)
        return tuple(map(known.index, listed))

    def _mask(self, where: Sequence[pl.Expr]) -> Mask:
        """Return for which cells all filters are true: an axis per dimension, of length 1 where none is over it."""
        mask: Mask = np.ones((1,) * len(self._sizes), np.bool_)
        for filter_ in where:
            mask = mask & self._true_where(filter_)
        return mask

    def _true_where(self, filter_: pl.Expr) -> Mask:
        if not isinstance(filter_, pl.Expr):
            msg = (
                f"a filter must be a Polars expression over the dimensions, got {given(filter_)}.\n\n"
                'Hint: cube.count(pl.col("year") == 2024).'
            )
            raise TypeError(msg)
        known, named = list(self.dimensions), set(filter_.meta.root_names())
        if filter_.meta.has_multiple_outputs() or not named <= set(known):
            others = sorted(named - set(known))
            msg = (
                f"a filter must be one expression over the dimensions of the cube, {known}, got "
                f"{f'the column {others[0]!r}' if others else 'several columns'}.\n\n"
                "Hint: a cube knows what it was released with alone; ask for another one with this dimension."
            )
            raise ValueError(msg)
        axes = [axis for axis, name in enumerate(known) if name in named]
        cells = product([self._dimensions[axis] for axis in axes]) if axes else pl.DataFrame()
        found = cells.select(filter_.alias("")).to_series()
        height = math.prod(self._sizes[axis] for axis in axes)
        if found.dtype != pl.Boolean or len(found) not in (1, height):
            msg = (
                "a filter must be true or false for each combination of values, got "
                f"{plural(len(found), 'value')} of type {found.dtype}.\n\nHint: compare: pl.col(…) == …, is_in, &, |."
            )
            raise TypeError(msg)
        true = np.broadcast_to(found.fill_null(value=False).to_numpy(), (height,))
        return true.reshape([size if axis in axes else 1 for axis, size in enumerate(self._sizes)])

    def _sums(self, by: Sequence[int], masks: Sequence[Mask]) -> list[_Sums]:
        """Return the sum over the cells of each mask, for each combination of some dimensions.

        All come from one histogram: of those that have all dimensions that matter, the one whose sums have the least
        variance. How many cells a sum has is the same share of all cells in each, whatever the mask is.
        """
        needed = {axis for mask in masks for axis, size in enumerate(mask.shape) if size > 1} | set(by)
        fit = [one for one in self._histograms if needed <= set(one.axes)]
        best = min(fit, key=lambda one: one.noise.variance * len(one.counts))
        sizes = [size if axis in best.axes else 1 for axis, size in enumerate(self._sizes)]
        others = tuple(axis for axis in best.axes if axis not in needed)
        counts = best.counts.to_numpy().reshape(sizes).sum(axis=others, keepdims=True)
        together = math.prod(self._sizes[axis] for axis in others)
        found = []
        for mask in masks:
            cells = np.broadcast_to(np.where(mask, together, 0), counts.shape)
            found.append(_Sums(_summed(np.where(mask, counts, 0), by), _summed(cells, by), best.noise))
        return found

    def _named(self, by: Sequence[int], name: str, numbers: Sequence[Ints | pl.Series]) -> pl.DataFrame:
        """Return numbers and their ends with the combinations that they are of."""
        names = (name, *names_of_ends(name))
        keys = product([self._dimensions[axis] for axis in by]) if by else pl.DataFrame()
        return keys.with_columns(pl.Series(one, values) for one, values in zip(names, numbers, strict=True))


def _summed(cells: Ints, by: Sequence[int]) -> Ints:
    """Return the sums over all axes but some, in the order of these, the last running fastest."""
    left = [axis for axis in range(cells.ndim) if axis not in by]
    sums: Ints = cells.transpose([*by, *left]).reshape(*(cells.shape[axis] for axis in by), -1).sum(axis=-1)
    return sums.reshape(-1)


@dataclass(frozen=True)
class _Sums:
    """Sums of noisy counts, of how many cells each is, and the noise of a cell; shape (g,)."""

    values: Ints
    cells: Ints
    noise: Noise

    def ends(self, beta: float) -> tuple[Ints, Ints, Ints]:
        """Return the sums and the ends of their ranges, each of which fails with probability `beta` at most."""
        off = sum_bounds(self.noise, self.cells, beta)
        return self.values, self.values - off, self.values + off


def _shares(part: _Sums, rest: _Sums) -> list[pl.Series]:
    """Return the share that a part has of it and the rest, and the ends of its range."""
    ends = [
        [np.maximum(numbers, 0).astype(np.float64) for numbers in one.ends(beta_of_each(2))] for one in (part, rest)
    ]
    (_, low, high), (_, rest_low, rest_high) = ends
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.clip(part.values / (part.values + rest.values), 0, 1)
        lowest, highest = low / (low + rest_high), high / (high + rest_low)
    is_known = part.values + rest.values > 0
    return [
        pl.DataFrame({"value": value, "known": is_known}).select(pl.when("known").then("value")).to_series(),
        pl.Series(np.where(low + rest_high > 0, lowest, 0.0)),
        pl.Series(np.where(high + rest_low > 0, highest, 1.0)),
    ]


def table(dimensions: Sequence[pl.Series], histograms: Sequence[tuple[Sequence[int], pl.Series]]) -> pl.DataFrame:
    """Return the counts of histograms with their combinations; dimensions that one leaves out are null there."""
    schema = pl.Schema({values.name: values.dtype for values in dimensions})
    parts = []
    for axes, counts in histograms:
        keys = product([dimensions[axis] for axis in axes]) if axes else pl.DataFrame({"": [0]})
        nothing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in keys.columns]
        parts.append(keys.with_columns(nothing).select(schema.names()).with_columns(counts.alias(COUNT)))
    return pl.concat(parts)


def cube_of(
    frame: pl.DataFrame,
    sizes: Sequence[int],
    noises: Sequence[tuple[tuple[int, ...], Noise]],
    claim: str,
) -> Cube:
    """Return the cube whose `table` is a frame: the histogram of all dimensions first."""
    histograms, start = [], 0
    for axes, noise in noises:
        cells = math.prod(sizes[axis] for axis in axes)
        histograms.append(Histogram(axes, noise, frame[COUNT][start : start + cells].rechunk()))
        start += cells
    return Cube(dimensions_of(frame, sizes), tuple(histograms), claim)


def dimensions_of(frame: pl.DataFrame, sizes: Sequence[int]) -> tuple[pl.Series, ...]:
    """Return the values of each dimension, from all their combinations, the last dimension running fastest."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return tuple(
        frame.to_series(axis)[: size * stride].gather_every(stride)
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    )


@called
def read_cube(path: str | os.PathLike[str]) -> Cube:
    """Return the cube that a file holds, as `Cube.write` wrote it.

    Parameters
    ----------
    path
        The file; `~` is the home folder.

    Returns
    -------
    Cube

    Raises
    ------
    ValueError
        If the file was not written by `Cube.write`, or has been changed since, so that it is no cube.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> private = pl.DataFrame({"ward": ["A", "B"] * 50}).dp.protect(None)
    >>> cube = private.cube({"ward": ["A", "B"]}, epsilon=50).release()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cube.write(Path(folder) / "cube.parquet")
    ...     again = dpp.read_cube(Path(folder) / "cube.parquet")
    >>> again.count(pl.col("ward") == "A").value
    50
    """
    from pyarrow import parquet

    read = parquet.read_table(expanded(path))
    metadata = read.schema.metadata or {}
    if CLAIM_KEY in metadata and _CUBE_KEY in metadata:
        about = json.loads(metadata[_CUBE_KEY])
        frame = pl.DataFrame(read)
        noises = [(tuple(one["axes"]), Noise(one["mechanism"], Fraction(one["rate"]))) for one in about["histograms"]]
        sizes = about["sizes"]
        expected = sum(math.prod(sizes[axis] for axis in axes) for axes, _ in noises)
        if (frame.width, frame.height, frame.columns[-1]) == (len(sizes) + 1, expected, COUNT):
            cube = cube_of(frame, sizes, noises, metadata[CLAIM_KEY].decode())
            is_counts = frame[COUNT].dtype == pl.Int64 and not frame[COUNT].has_nulls()
            if is_counts and cube._table(cube._histograms).equals(frame):
                return cube
    msg = f"the file must have been written by Cube.write, and not changed since, got {str(path)!r}."
    raise ValueError(msg)
