"""Synthetic rows: what a release of them gives."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dp_polars._base.calls import all_called
from dp_polars._base.column_types import frame_of_arrow
from dp_polars._base.files import expanded, replacing
from dp_polars._base.numbers import Floats, Ints, given, plural, positive_int
from dp_polars._frames.claim_files import CLAIM_KEY
from dp_polars._frames.cube import COUNT
from dp_polars._mechanisms.graphical_models import Measured, Model, fit
from dp_polars._mechanisms.residuals import Axes, Noise, sum_bound
from dp_polars._release.contract import names_of_ends
from dp_polars._release.public_keys import product
from dp_polars._sources.source import Unchanging
from dp_polars._statistics.measures import BETA

# A table that is measured for the j-th time gets β/2^j: all of its intervals hold together. `sum_bound` takes 0.001.
_MOST_INTERVALS = 5
_SHOWN = 4
_KEY = b"dp_polars.synthetic"  # the name in a file's metadata of its dimensions, and which of them have bins


class FitError(NamedTuple):
    """How far a model is from a table that was measured, as a part of all rows: half of the absolute differences."""

    distance: float
    of_noise: float  # what the noise of the table alone makes, on average


@dataclass(frozen=True, eq=False)
class Dimension:
    """The public values of a column, or the ends of its bins, in the column's type."""

    values: pl.Series
    is_binned: bool

    @property
    def size(self) -> int:
        return len(self.values) - self.is_binned

    @property
    def named(self) -> pl.Series:
        """The values; a bin is named by its lower end."""
        return self.values[: self.size]

    def of_codes(self, codes: Ints) -> pl.Series:
        """Return the values of codes; within a bin they are uniform, the last one with its upper end."""
        if not self.is_binned:
            return self.values.gather(codes)
        rng, dtype = np.random.default_rng(), self.values.dtype
        if dtype.is_float() or dtype.is_decimal():
            ends = self.values.cast(pl.Float64).to_numpy()
            low, high = ends[codes], ends[codes + 1]
            return pl.Series(self.values.name, low + rng.random(len(codes)) * (high - low)).cast(dtype)
        physical = self.values.to_physical()
        ends = physical.cast(pl.Int64).to_numpy().copy()
        ends[-1] += 1
        drawn = rng.integers(ends[codes], np.maximum(ends[codes] + 1, ends[codes + 1]))
        return pl.Series(self.values.name, drawn).cast(physical.dtype).cast(dtype)


@all_called
@dataclass(frozen=True, eq=False, repr=False)
class Synthetic(Unchanging):
    """A model of private rows, and the noisy tables that it was fitted to. Released by `PrivateFrame.synthetic`.

    It holds no private row: only what was released, and what is public. So everything here is free, as often as you
    like. The model knows the tables that were measured. All else about several columns is a guess.

    Proof: :doc:`/proofs/synthetic`.

    Examples
    --------
    >>> import polars as pl
    >>> visits = pl.DataFrame({"ward": ["A", "B"] * 500, "flu": [True, False] * 500})
    >>> private = visits.dp.protect(None)
    >>> made = private.synthetic(
    ...     {"ward": ["A", "B"], "flu": [True, False]}, rho=20
    ... ).release()
    >>> made.rows(1000).shape
    (1000, 2)
    """

    _dimensions: tuple[Dimension, ...]
    _measured: tuple[Measured, ...]
    _claim: str

    @property
    def dimensions(self) -> dict[str, pl.Series]:
        """The public values of each dimension; of a binned one the lower ends of its bins."""
        return {one.values.name: one.named for one in self._dimensions}

    @property
    def claim(self) -> dict[str, Any]:
        """The guarantee and the cost of the release, as `read_claim` returns it."""
        return dict(json.loads(self._claim))

    @property
    def measured(self) -> list[list[str]]:
        """The dimensions of each table that was measured, in the order of the draws."""
        return [[self._dimensions[axis].values.name for axis in one.axes] for one in self._measured]

    def rows(self, n: int) -> pl.DataFrame:
        """Return n synthetic rows, in the types of the columns.

        Each call draws others. A value of a binned column is uniform within its bin. Statistics of the rows have no
        confidence interval: those of measured tables are in `counts`.
        """
        codes = self._model.rows(positive_int("n", n))
        return pl.DataFrame([one.of_codes(of) for one, of in zip(self._dimensions, codes, strict=True)])

    def counts(self, by: str | Sequence[str]) -> pl.DataFrame:
        """Return how many rows the model has in each combination of dimensions.

        Parameters
        ----------
        by
            The name of a dimension, or several.

        Returns
        -------
        DataFrame
            A row for each combination: the dimensions, "count" of the model, and "count_low" and "count_high" (all
            Float64). If a measured table has all of these dimensions, they are the ends of a 95 % confidence interval,
            which follows from its noise and not from the model; otherwise they are null.
        """
        axes = self._axes(by)
        numbers = (self._model.table(axes), *self._ends(axes))
        keys = product([self._dimensions[axis].named for axis in axes])
        for name, of in zip((COUNT, *names_of_ends(COUNT)), numbers, strict=True):
            keys = keys.with_columns(pl.lit(None, pl.Float64).alias(name) if of is None else pl.Series(name, of))
        return keys

    def error(self, by: str | Sequence[str]) -> FitError:
        """Return how far the model is from a table that was measured; a ValueError if this one was not.

        Compare it with `of_noise`, what the table's noise alone makes: beyond that, the model is off.
        """
        axes = self._axes(by)
        found = [(self._summed(one, axes), one) for one in self._measured if {*axes} == {*one.axes}]
        if not found:
            names = [self._dimensions[axis].values.name for axis in axes]
            msg = (
                f"error: by must be the dimensions of a table that was measured, got {names}.\n\n"
                "Hint: made.measured lists the tables."
            )
            raise ValueError(msg)
        counts, one = min(found, key=lambda pair: pair[1].noise.variance)
        total = 2 * self._model.total
        distance = float(np.abs(self._model.table(axes) - counts).sum()) / total
        return FitError(distance, len(counts) * one.noise.mean_size / total)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the measured tables into a Parquet file, with the claim: `Synthetic.read` reads it.

        The model is not written: it is fitted again when it is used.
        """
        from pyarrow import parquet

        rows = with_values(frame_of(self._measured), [one.values for one in self._dimensions]).to_arrow()
        about = json.dumps({one.values.name: one.is_binned for one in self._dimensions}).encode()
        metadata = {**(rows.schema.metadata or {}), CLAIM_KEY: self._claim.encode(), _KEY: about}
        with replacing(expanded(path)) as file:
            parquet.write_table(rows.replace_schema_metadata(metadata), file)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Synthetic:
        """Return what `write` wrote into a file; a ValueError for any other file."""
        from pyarrow import parquet

        read = parquet.read_table(expanded(path))
        metadata = read.schema.metadata or {}
        if CLAIM_KEY not in metadata or _KEY not in metadata:
            msg = f"the file must have been written by Synthetic.write, got {str(path)!r}."
            raise ValueError(msg)
        return synthetic_of(frame_of_arrow(read), json.loads(metadata[_KEY]), metadata[CLAIM_KEY].decode())

    def __repr__(self) -> str:
        lines = []
        for one in self._dimensions:
            shown = ", ".join([*map(repr, one.named[:_SHOWN].to_list()), *["…"] * (one.size > _SHOWN)])
            lines.append(f"  {one.values.name}: {plural(one.size, 'bin' if one.is_binned else 'value')} ({shown})")
        claim, tables = self.claim, {tuple(names): None for names in self.measured if len(names) > 1}
        lines += [f"  measured by ({', '.join(names)})" for names in tables]
        methods = "rows(n), counts(by=…), error(by=…)"
        return "\n".join([f"<Synthetic: {claim['protection']}, {claim['loss']}", *lines, f"  methods: {methods}>"])

    @cached_property
    def _model(self) -> Model:
        return fit(tuple(one.size for one in self._dimensions), self._measured)

    def _axes(self, by: object) -> Axes:
        names = [by] if isinstance(by, str) else list(by) if isinstance(by, (list, tuple)) else []
        known = list(self.dimensions)
        if not names or len({*names}) < len(names) or not {*names} <= {*known}:
            msg = f"by must name dimensions, each once, of {known}, got {given(by)}."
            raise ValueError(msg)
        return tuple(map(known.index, names))

    def _summed(self, one: Measured, axes: Axes) -> Floats:
        """Return the noisy counts of a table, summed up to some of its dimensions, in their order."""
        counts = one.counts.reshape([self._dimensions[axis].size for axis in one.axes])
        order = [axis for axis in one.axes if axis in axes]
        summed = counts.sum(axis=tuple(place for place, axis in enumerate(one.axes) if axis not in axes))
        return np.asarray(summed.transpose([order.index(axis) for axis in axes]).ravel(), np.float64)

    def _ends(self, axes: Axes) -> tuple[Floats | None, Floats | None]:
        """Return the narrowest intervals of the measured tables: each j-th one fails with at most β/2^j."""
        tables = [one for one in self._measured if {*axes} <= {*one.axes}][:_MOST_INTERVALS]
        found = []
        for place, one in enumerate(tables, 1):
            sizes = [self._dimensions[axis].size for axis in one.axes if axis not in axes]
            found.append((sum_bound(one.noise, math.prod(sizes), BETA / 2**place), one))
        if not found:
            return None, None
        bound, one = min(found, key=lambda pair: pair[0])
        counts = self._summed(one, axes)
        return np.maximum(counts - bound, 0), np.maximum(counts + bound, 0)


def frame_of(measured: Sequence[Measured]) -> pl.DataFrame:
    """Return a row for each table: the numbers of its dimensions, its noise, and its counts."""
    columns = {
        "axes": [list(one.axes) for one in measured],
        "mechanism": [one.noise.mechanism for one in measured],
        "rate": [str(one.noise.rate) for one in measured],
        "counts": [one.counts for one in measured],
    }
    return pl.DataFrame(columns, schema_overrides={"axes": pl.List(pl.Int64), "counts": pl.List(pl.Int64)})


def with_values(tables: pl.DataFrame, values: Sequence[pl.Series]) -> pl.DataFrame:
    """Return the tables with a column for each dimension, of which the first row has the values."""
    none = [None] * (tables.height - 1)
    return tables.with_columns(
        pl.Series(f"{axis}", [one, *none], pl.List(one.dtype)) for axis, one in enumerate(values)
    )


def synthetic_of(tables: pl.DataFrame, is_binned: Mapping[str, bool], claim: str) -> Synthetic:
    dimensions = [Dimension(tables[f"{axis}"][0].alias(name), is_binned[name]) for axis, name in enumerate(is_binned)]
    measured = [
        Measured(tuple(row["axes"]), Noise(row["mechanism"], Fraction(row["rate"])), np.array(row["counts"], np.int64))
        for row in tables.iter_rows(named=True)
    ]
    return Synthetic(tuple(dimensions), tuple(measured), claim)
