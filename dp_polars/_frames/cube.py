"""A released cube: noisy counts of combinations of public values, which answer many statistics for free."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base.calls import all_called, called
from dp_polars._base.column_types import frame_of_arrow
from dp_polars._base.files import expanded, replacing
from dp_polars._base.numbers import Floats, Ints, given, plural, positive_int
from dp_polars._frames.claim_files import CLAIM_KEY
from dp_polars._mechanisms.graphical_models import Measured, Model, cells_of, fit, is_installed
from dp_polars._mechanisms.residuals import UNITS, Noise, TablePlan, sum_bounds
from dp_polars._release.contract import beta_of_each, names_of_ends
from dp_polars._release.public_keys import product
from dp_polars._sources.source import Unchanging
from dp_polars._statistics.measures import BETA

if TYPE_CHECKING:
    Mask = NDArray[np.bool_]


T = TypeVar("T", float, "float | None")

COUNT, SHARE = "count", "share"
UNBIASED = "unbiased"  # the column in a file of what the numbers were that intervals are around
#: What no dimension may be named: the columns of answers.
TAKEN = (COUNT, *names_of_ends(COUNT), SHARE, *names_of_ends(SHARE), UNBIASED)
_CUBE_KEY = b"dp_polars.cube"  # the name in a file's metadata of what makes a cube of its rows
_LARGEST_MODEL = 2**21  # how many numbers a model may hold
_SHOWN, _SHOWN_TABLES = 4, 12  # how many values of a dimension, and how many tables, `repr` shows
# How many intervals can hold together at most: what each may fail with is far above the error of its law.
_MOST_TOGETHER = 500_000


class Number(NamedTuple, Generic[T]):
    """A released number, and the ends of its 95 % confidence interval, which contains the number without noise."""

    value: T
    low: T
    high: T


@all_called
@dataclass(frozen=True, eq=False, repr=False)
class Cube(Unchanging):
    """Noisy counts of combinations of public values. Released by the query that `PrivateFrame.cube` makes.

    It holds no private row: only what was released, and what is public. So every answer is free, as often as you like.
    Each comes with its 95 % confidence interval: the number without noise, of the rows that the limits keep, lies in it
    with probability 0.95 at least. Counts may be negative. Common parts of two answers agree exactly: parts add up
    to their sum.

    Without tables, an answer is a sum of noisy counts (Int64), and its confidence interval is that of the sum of their
    noises. With tables, all answers come from one least-squares fit of all histograms that were drawn. They are
    Float64, multiples of 2⁻¹⁶, so that adding them up is exact; their intervals are those of weighted sums of noise.

    Filters are Polars expressions over the dimensions. Several must all be true, and null is not true.

    Proof: :doc:`/proofs/cubes` and :doc:`/proofs/tables`.

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
    >>> cube.counts(by="year").rows()
    [(2024, 600, 600, 600), (2025, 400, 400, 400)]
    >>> cube.share(pl.col("year") == 2025, by="ward").rows()
    [('A', 0.4, 0.4, 0.4), ('B', 0.4, 0.4, 0.4)]
    >>> cube.top("year", by="ward").rows()
    [('A', 2024, 300, 300, 300), ('B', 2024, 300, 300, 300)]
    """

    _dimensions: tuple[pl.Series, ...]
    _tables: tuple[tuple[tuple[int, ...], pl.Series], ...]
    _plan: TablePlan
    _claim: str
    _unbiased: tuple[pl.Series, ...] | None = None

    @property
    def dimensions(self) -> dict[str, pl.Series]:
        """The public values of each dimension, in their order."""
        return {values.name: values for values in self._dimensions}

    @property
    def claim(self) -> dict[str, Any]:
        """The guarantee and the cost of the release, as `read_claim` returns it."""
        return dict(json.loads(self._claim))

    def count(self, *where: pl.Expr) -> Number[float]:
        """Return how many there are, where all filters are true: Boolean expressions over the dimensions.

        A TypeError or ValueError where a filter is none, or no table has all its dimensions.
        """
        (counts,) = self._sums((), [self._mask(where)])
        return Number(*(numbers[0].item() for numbers in counts.ends(BETA)))

    def counts(self, *where: pl.Expr, by: str | Sequence[str], intervals: Literal[True, "all"] = True) -> pl.DataFrame:
        """Return how many there are of each value of a dimension, or combination of several, where filters are true.

        Parameters
        ----------
        *where
            As for `count`.
        by
            The name of a dimension, or several.
        intervals
            True: each confidence interval holds at 95 % by itself. "all": wider ones, which hold together with 95 %.

        Returns
        -------
        DataFrame
            A row for each combination, in the order of the values: the dimensions, and "count", "count_low" and
            "count_high" (Int64; with tables Float64). Errors are those of `count`; also if `by` is no dimension.
        """
        axes = self._axes("by", by)
        if not axes:
            msg = "by must name a dimension at least, got none.\n\nHint: count(…) is the number of all of them."
            raise ValueError(msg)
        if intervals is not True and not (isinstance(intervals, str) and intervals == "all"):
            msg = f'intervals must be True or "all", got {given(intervals)}.'
            raise ValueError(msg)
        (counts,) = self._sums(axes, [self._mask(where)])
        together = 1 if intervals is True else len(counts.values)
        if together > _MOST_TOGETHER:
            msg = f'intervals="all" must be of {_MOST_TOGETHER:,} numbers at most, got {together:,}.'
            raise ValueError(msg)
        return self._named(axes, COUNT, counts.ends(BETA / together))

    @overload
    def share(self, condition: pl.Expr, *where: pl.Expr, by: None = ...) -> Number[float | None]: ...

    @overload
    def share(self, condition: pl.Expr, *where: pl.Expr, by: str | Sequence[str]) -> pl.DataFrame: ...

    def share(
        self, condition: pl.Expr, *where: pl.Expr, by: str | Sequence[str] | None = None
    ) -> pl.DataFrame | Number[float | None]:
        """Return the share for which a condition is true, among where all filters are: of all, or by dimensions.

        Returns
        -------
        DataFrame or Number
            A row for each combination: the dimensions, and "share", "share_low" and "share_high" (Float64), all within
            [0, 1]. A share is null where the noisy count of the whole is not above 0. Without `by` a `Number`. Errors
            are those of `counts`.

        Notes
        -----
        Without tables, what the condition is true of, and the rest, are sums of different cells, so their noises are
        independent. Each has a confidence interval at √0.95, both hold at 0.95, and the ends of the share are the worst
        that both allow. With tables their noises depend on each other, and each has a confidence interval at 0.975.
        """
        axes = self._axes("by", by)
        mask, among = self._mask([condition]), self._mask(where)
        part, rest = self._sums(axes, [mask & among, ~mask & among])
        shares = _shares(part, rest)
        if by is not None:
            return self._named(axes, SHARE, shares)
        return Number(*(series.item() for series in shares))

    def top(self, dimension: str, *where: pl.Expr, by: str | Sequence[str] | None = None, k: int = 1) -> pl.DataFrame:
        """Return the k values of a dimension with the largest counts, the largest first.

        Parameters
        ----------
        dimension, *where
            The name of the dimension whose values are ranked, and filters as for `count`.
        by
            One or several others: a ranking for each of their combinations. None: one ranking.
        k
            At least 1; with fewer values, all of them are ranked.

        Returns
        -------
        DataFrame
            The dimensions of `by`, the ranked one, and "count", "count_low" and "count_high". Equal counts are in the
            order of the values. Errors are those of `counts`.

        Notes
        -----
        The ranking is that of noisy counts, so what is first has often been helped by its noise. A confidence interval
        holds at 95 % for a value that is chosen in advance, and less often for the one that came first.
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
        """Return the noisy count of every combination of each table, without intervals: `counts` gives them.

        Dimensions that a table leaves out are null there.
        """
        return table(self._dimensions, self._tables)

    def nonnegative(self) -> Cube:
        """Return a cube near to this one in which no number of a table is negative: its answers still agree.

        With the extra `dp-polars[synthetic]` its tables are those of one distribution: of the largest entropy, and near
        to the tables of this cube, weighted by the noise. Few people in many cells are then far less off than in this
        cube. Without the extra, or if the distribution would have more than 2²¹ numbers, or is further off than the
        noise explains, the tables are the nearest ones without negative numbers.

        Its numbers are *biased*: small ones are too large on average. The intervals stay those of this cube, clipped at
        0 (the number without noise is not below 0): so each holds as often as before, and a number need not lie in the
        middle of it, or inside.

        They are Float64, at least 0: where one would be 0, it may be a few 2⁻¹⁶ above it. A cube without tables is a
        TypeError: the nearest one is then each count clipped at 0, of which sums are far too large.

        Examples
        --------
        >>> import polars as pl
        >>> visits = pl.DataFrame({"ward": ["A", "A"] * 500, "year": [2024, 2025] * 500})
        >>> dimensions = {"ward": ["A", "B"], "year": [2024, 2025]}
        >>> query = visits.dp.protect(None).cube(
        ...     dimensions, tables=[("ward",), ("ward", "year")], rho=0.1
        ... )
        >>> released = query.release()
        >>> released.nonnegative().counts(by="ward")["count"].min() >= 0
        True
        >>> released.whole().counts(by="ward")["count"].dtype
        Int64
        """
        if self._is_drawn:
            msg = (
                "nonnegative: the cube must have been requested with tables: without, each count would be clipped at "
                "0, and sums of them be far too large.\n\nHint: cube(dimensions, tables=[…], rho=…)."
            )
            raise TypeError(msg)
        plan, found = self._plan, None
        measured = self._measured
        if is_installed() and cells_of(plan.sizes, [one.axes for one in measured]) <= _LARGEST_MODEL:
            model = fit(plan.sizes, measured)
            # The mean of what the noise makes, and five standard deviations.
            if model.off <= plan.degrees + 5 * math.sqrt(2 * plan.degrees):
                found = plan.of_distribution(
                    {axes: model.table(axes).reshape(plan.shape(axes)) for axes in plan.tables}
                )
        if found is None:
            numbers = {axes: one.to_numpy().astype(np.float64).reshape(plan.shape(axes)) for axes, one in self._tables}
            found = plan.nonnegative(numbers)
        return self._with([pl.Series(found[axes].ravel() / UNITS) for axes, _ in self._tables])

    def rows(self, n: int) -> pl.DataFrame:
        """Return n synthetic rows that agree with the tables of this cube, but for chance and negative numbers.

        They are drawn from the distribution of the largest entropy that is near to these tables, as for
        `PrivateFrame.synthetic`. Each call draws others. It needs the extra `dp-polars[synthetic]`. A TypeError for a
        cube without tables; a ValueError if the model of all tables would be larger than 2²¹ numbers.
        """
        if self._is_drawn:
            msg = (
                "rows: the cube must have been requested with tables, got one without.\n\n"
                "Hint: cube(dimensions, tables=[…], rho=…)."
            )
            raise TypeError(msg)
        codes = self._model().rows(positive_int("n", n))
        return pl.DataFrame([values.gather(of) for values, of in zip(self._dimensions, codes, strict=True)])

    def _model(self) -> Model:
        plan, measured = self._plan, self._measured
        if (cells := cells_of(plan.sizes, [one.axes for one in measured])) > _LARGEST_MODEL:
            msg = (
                f"the model of all tables must hold at most {_LARGEST_MODEL:,} numbers, got {cells:,}.\n\n"
                "Hint: fewer tables; or private.synthetic(…), which chooses the tables that matter."
            )
            raise ValueError(msg)
        return fit(plan.sizes, measured)

    @property
    def _measured(self) -> list[Measured]:
        """The histograms that were drawn, as the tables have them: what is near to them is near to all draws."""
        plan, found = self._plan, list[Measured]()
        for axes, noise in plan.noises:
            held, numbers = min((one for one in self._tables if {*axes} <= {*one[0]}), key=lambda one: len(one[1]))
            cells = numbers.to_numpy().astype(np.float64).reshape(plan.shape(held))
            counts = cells.sum(axis=tuple(place for place, axis in enumerate(held) if axis not in axes))
            found += [Measured(axes, noise, counts.ravel())] if axes else []
        return found

    def whole(self) -> Cube:
        """Return a cube of whole numbers that agree, for tables that form one tree: years in hospitals in countries.

        Each number is rounded up or down (Int64), so that parts still add up to their sum. The intervals stay those of
        this cube, clipped at 0; a number may lie up to 1 further off than before. After `nonnegative` none is negative.
        A ValueError where of two tables neither has all dimensions of the other: no rounding may agree with both then.
        """
        if self._is_drawn:
            return self
        plan, names = self._plan, list(self.dimensions)
        order = sorted(range(len(plan.tables)), key=lambda place: len(plan.tables[place]))
        for one, other in itertools.pairwise(order):
            small, large = plan.tables[one], plan.tables[other]
            if not {*small} < {*large}:
                apart = [tuple(names[axis] for axis in axes) for axes in (small, large)]
                msg = (
                    f"whole: of two tables one must have all dimensions of the other, got {apart[0]} and {apart[1]}: "
                    "rounded numbers may agree with one of them alone.\n\nHint: keep the fractions, which agree."
                )
                raise ValueError(msg)
        found: dict[int, pl.Series] = {}
        above: tuple[tuple[int, ...], Ints] | None = None
        for place in order:
            axes, numbers = self._tables[place]
            cells = numbers.to_numpy().reshape(plan.shape(axes))
            cells = np.rint(cells).astype(np.int64) if above is None else _rounded_in(cells, axes, *above)
            found[place], above = pl.Series(cells.ravel()), (axes, cells)
        return self._with([found[place] for place in range(len(found))])

    def _with(self, numbers: Sequence[pl.Series]) -> Cube:
        unbiased = self._unbiased or tuple(one for _, one in self._tables)
        tables = tuple((axes, one) for (axes, _), one in zip(self._tables, numbers, strict=True))
        return replace(self, _tables=tables, _unbiased=unbiased)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the cube into a Parquet file, with its claim: `read_cube` reads it, and `read_claim` the claim.

        Its rows are those of `to_frame`; after `nonnegative` or `whole` there is a column "unbiased" of what the
        numbers were. The file is written as by `PrivateQuery.sink_parquet`. A TypeError where a dimension has integers
        of 128 bits, which Parquet doesn't have.
        """
        from pyarrow import parquet

        if wide := [values.name for values in self._dimensions if values.dtype in (pl.Int128, pl.UInt128)]:
            msg = f"Cube.write can't write the dimension {wide[0]!r}: Parquet has no integers of 128 bits."
            raise TypeError(msg)
        rows = self._rows.to_arrow()
        plan = self._plan
        parts = [{"axes": axes, "mechanism": noise.mechanism, "rate": str(noise.rate)} for axes, noise in plan.noises]
        about = json.dumps({"sizes": plan.sizes, "tables": plan.tables, "histograms": parts}).encode()
        metadata = {**(rows.schema.metadata or {}), CLAIM_KEY: self._claim.encode(), _CUBE_KEY: about}
        with replacing(expanded(path)) as file:
            parquet.write_table(rows.replace_schema_metadata(metadata), file)

    def __repr__(self) -> str:
        lines = []
        for values in self._dimensions:
            shown = ", ".join([*map(repr, values[:_SHOWN].to_list()), *["…"] * (len(values) > _SHOWN)])
            lines.append(f"  {values.name}: {plural(len(values), 'value')} ({shown})")
        plan, names, claim = self._plan, [*self.dimensions], self.claim
        if self._is_drawn:
            ((axes, noise),), (column,) = plan.noises, claim["columns"].values()
            said = f"{column['selects']}, {plural(plan.cells(axes), 'cell')}, {noise.mechanism}"
            lines.append(f"  count: {said}, standard deviation {math.sqrt(noise.variance):.3g}")
        else:
            lines += [
                f"  table by ({', '.join(names[axis] for axis in axes)}): {plural(plan.cells(axes), 'cell')}, standard "
                f"deviation {math.sqrt(plan.variance(axes)):.3g}"
                for axes in plan.tables[:_SHOWN_TABLES]
            ]
            more = len(plan.tables) - _SHOWN_TABLES
            lines += [f"  and {plural(more, 'more table')}"] * (more > 0)
        methods = "count(…), counts(by=…), share(…), top(…), to_frame(), write(path)"
        return "\n".join([f"<Cube: {claim['protection']}, {claim['loss']}", *lines, f"  methods: {methods}>"])

    @property
    def _is_drawn(self) -> bool:
        return self._tables[0][1].dtype == pl.Int64 and self._unbiased is None

    @property
    def _rows(self) -> pl.DataFrame:
        return self.to_frame().with_columns([pl.concat(self._unbiased).alias(UNBIASED)] if self._unbiased else [])

    @property
    def _agrees(self) -> bool:
        if self._is_drawn:
            return True
        seen: dict[tuple[int, ...], NDArray[Any]] = {}
        for axes, numbers in self._tables:
            cells = numbers.to_numpy().reshape(self._plan.shape(axes))
            for other, _ in self._tables:
                shared = tuple(axis for axis in axes if axis in other)
                sums = cells.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in shared))
                if not np.array_equal(seen.setdefault(shared, sums), sums):
                    return False
        return True

    def is_of(self, plan: TablePlan) -> bool:
        return self._plan == plan

    def _axes(self, name: str, names: str | Sequence[str] | None) -> tuple[int, ...]:
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
        every: Mask = np.ones((1,) * len(self._plan.sizes), np.bool_)
        return reduce(and_, map(self._true_where, where), every)

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
                "Hint: a cube knows what it was released with alone; request another one with this dimension."
            )
            raise ValueError(msg)
        axes = [axis for axis, name in enumerate(known) if name in named]
        cells = product([self._dimensions[axis] for axis in axes]) if axes else pl.DataFrame()
        found = cells.select(filter_.alias("")).to_series()
        height = math.prod(self._plan.sizes[axis] for axis in axes)
        if found.dtype != pl.Boolean or len(found) not in (1, height):
            msg = (
                "a filter must be true or false for each combination of values, got "
                f"{plural(len(found), 'value')} of type {found.dtype}.\n\nHint: compare: pl.col(…) == …, is_in, &, |."
            )
            raise TypeError(msg)
        true = np.broadcast_to(found.fill_null(value=False).to_numpy(), (height,))
        return true.reshape([size if axis in axes else 1 for axis, size in enumerate(self._plan.sizes)])

    def _sums(self, by: Sequence[int], masks: Sequence[Mask]) -> list[_Sums]:
        needed = {axis for mask in masks for axis, size in enumerate(mask.shape) if size > 1} | set(by)
        known = self._unbiased or tuple(one for _, one in self._tables)
        fit = [(*one, middle) for one, middle in zip(self._tables, known, strict=True) if needed <= {*one[0]}]
        if not fit:
            names = tuple(name for axis, name in enumerate(self.dimensions) if axis in needed)
            msg = (
                f"a table must have all dimensions of a statistic, got {list(names)}, which none has.\n\n"
                f"Hint: request another cube, with {names} among its tables."
            )
            raise ValueError(msg)
        # Tables agree: so it does not matter which one.
        axes, numbers, around = min(fit, key=lambda one: len(one[1]))
        others = tuple(axis for axis in axes if axis not in needed)
        sizes = [size if axis in axes else 1 for axis, size in enumerate(self._plan.sizes)]

        def summed_up(numbers: pl.Series) -> NDArray[Any]:
            return np.asarray(numbers.to_numpy().reshape(sizes).sum(axis=others, keepdims=True))

        counts = summed_up(numbers)
        middle = counts if self._unbiased is None else summed_up(around)
        left = [axis for axis in range(counts.ndim) if axis not in by]
        others_of = tuple(axis for axis in left if axis in needed)
        together, found = math.prod(self._plan.sizes[axis] for axis in others), list[_Sums]()
        for mask in masks:
            values = _summed(np.where(mask, counts, 0), by)
            if self._is_drawn:
                cells = _summed(np.broadcast_to(np.where(mask, together, 0), counts.shape), by)
                found.append(_Sums.of_drawn(values, cells, self._plan.noises[0][1]))
                continue
            marks = np.broadcast_to(mask, counts.shape).transpose([*by, *left]).reshape(len(values), -1)
            off = partial(_off_of_fitted, self._plan, tuple(by), others_of, marks)
            shown = None if self._unbiased is None else _summed(np.where(mask, middle, 0), by)
            found.append(_Sums(values, off, BETA / 2, shown))
        return found

    def _named(self, by: Sequence[int], name: str, numbers: Sequence[Ints | pl.Series]) -> pl.DataFrame:
        names = (name, *names_of_ends(name))
        keys = product([self._dimensions[axis] for axis in by]) if by else pl.DataFrame()
        return keys.with_columns(pl.Series(one, values) for one, values in zip(names, numbers, strict=True))


def _rounded_in(cells: Floats, axes: tuple[int, ...], others: tuple[int, ...], sums: Ints) -> Ints:
    """Return cells rounded up or down, so that over all axes but `others` they add up to `sums`: their own, rounded."""
    left = [place for place, axis in enumerate(axes) if axis not in others]
    order = [*(axes.index(axis) for axis in others), *left]
    turned = cells.transpose(order)
    flat = turned.reshape(sums.size, -1)
    found = np.floor(flat).astype(np.int64)
    up = sums.reshape(-1, 1) - found.sum(axis=1, keepdims=True)
    found += np.argsort(np.argsort(found - flat, axis=1, kind="stable"), axis=1) < up
    return found.reshape(turned.shape).transpose(np.argsort(order))


def _summed(cells: NDArray[Any], by: Sequence[int]) -> NDArray[Any]:
    """Return the sums over all axes but some, in the order of these, the last running fastest."""
    left = [axis for axis in range(cells.ndim) if axis not in by]
    together = cells.transpose([*by, *left]).reshape(*(cells.shape[axis] for axis in by), -1)
    return np.asarray(together.sum(axis=-1).reshape(-1))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of cells, and how far they are off."""

    values: NDArray[Any]  # the sums, shape (g,)
    off: Callable[[float], NDArray[Any]]  # how far each is off, but for a probability
    beta_of_two: float  # with what probability a range of one of two sums may fail, so that both hold at 0.95
    around: Floats | None = None  # what the intervals are around, clipped at 0, where that is not the values

    @classmethod
    def of_drawn(cls, values: Ints, cells: Ints, noise: Noise) -> _Sums:
        """Return sums of noisy counts: of how many cells each is, shape (g,), and the noise of a cell."""
        return cls(values, partial(sum_bounds, noise, cells), beta_of_each(2))

    def ends(self, beta: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        off = self.off(beta)
        if self.around is None:
            return self.values, self.values - off, self.values + off
        return self.values, np.maximum(self.around - off, 0), np.maximum(self.around + off, 0)


def _off_of_fitted(plan: TablePlan, by: tuple[int, ...], others: tuple[int, ...], marks: Mask, beta: float) -> Floats:
    """Return how far sums are off: of each combination of `by`, of the cells of `others` in `marks`, shape (g, cells).

    The law is the same for all combinations of which the same cells are added up.
    """
    every, groups = (*by, *others), math.prod(plan.sizes[axis] for axis in by)
    shape, placed = [plan.sizes[axis] for axis in every], np.argsort(every)
    distinct, places = np.unique(marks, axis=0, return_inverse=True)
    found = []
    for marked in distinct:
        mask = np.zeros((groups, len(marked)), np.bool_)
        mask[0] = marked
        bound = plan.bound(tuple(sorted(every)), mask.reshape(shape).transpose(placed), beta)
        found.append(math.ceil(bound * UNITS) / UNITS)
    return np.array(found)[places.ravel()]


def _shares(part: _Sums, rest: _Sums) -> list[pl.Series]:
    """Return the share that a part has of it and the rest, and the ends of its confidence interval."""
    ends = (one.ends(one.beta_of_two)[1:] for one in (part, rest))
    (low, high), (rest_low, rest_high) = ([np.maximum(end, 0).astype(np.float64) for end in both] for both in ends)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.clip(part.values / (part.values + rest.values), 0, 1)
        lowest, highest = low / (low + rest_high), high / (high + rest_low)
    is_known = part.values + rest.values > 0
    return [
        pl.DataFrame({"value": value, "known": is_known}).select(pl.when("known").then("value")).to_series(),
        pl.Series(np.where(low + rest_high > 0, lowest, 0.0)),
        pl.Series(np.where(high + rest_low > 0, highest, 1.0)),
    ]


def table(dimensions: Sequence[pl.Series], tables: Sequence[tuple[Sequence[int], pl.Series]]) -> pl.DataFrame:
    """Return the numbers of tables with their combinations; dimensions that one leaves out are null there."""
    sizes, columns = [len(values) for values in dimensions], []
    for axis, values in enumerate(dimensions):
        places = []  # all tables at once, for a dimension takes Polars as long as a table
        for axes, _ in tables:
            along = [sizes[one] if one == axis else 1 for one in axes]
            numbers = np.arange(sizes[axis]) if axis in axes else np.full(1, sizes[axis])
            places.append(np.broadcast_to(numbers.reshape(along), [sizes[one] for one in axes]).ravel())
        columns.append(values.extend_constant(None, 1).gather(np.concatenate(places)))
    counts = pl.concat([numbers for _, numbers in tables])
    return pl.DataFrame({**{column.name: column for column in columns}, COUNT: counts})


def cube_of(frame: pl.DataFrame, plan: TablePlan, claim: str) -> Cube:
    tables, start, unbiased = [], 0, list[pl.Series]()
    dimensions: dict[int, pl.Series] = {}
    for axes in plan.tables:
        cells = plan.cells(axes)
        tables.append((axes, frame[COUNT][start : start + cells].rechunk()))
        if UNBIASED in frame.columns:
            unbiased.append(frame[UNBIASED][start : start + cells].rechunk())
        for place, axis in enumerate(axes):
            if axis not in dimensions:
                stride = plan.cells(axes[place + 1 :])
                dimensions[axis] = frame.to_series(axis)[start : start + plan.sizes[axis] * stride].gather_every(stride)
        start += cells
    values = tuple(dimensions[axis] for axis in sorted(dimensions))
    return Cube(values, tuple(tables), plan, claim, tuple(unbiased) or None)


@called
def read_cube(path: str | os.PathLike[str]) -> Cube:
    """Return the cube that a file holds, as `Cube.write` wrote it; a ValueError where it has been changed since.

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
        about, frame = json.loads(metadata[_CUBE_KEY]), frame_of_arrow(read)
        noises = [(tuple(one["axes"]), Noise(one["mechanism"], Fraction(one["rate"]))) for one in about["histograms"]]
        plan = TablePlan(tuple(about["sizes"]), tuple(map(tuple, about["tables"])), tuple(noises))
        expected = sum(map(plan.cells, plan.tables))
        columns = frame.columns[len(plan.sizes) :]
        if columns in ([COUNT], [COUNT, UNBIASED]) and frame.height == expected:
            cube, numbers = cube_of(frame, plan, metadata[CLAIM_KEY].decode()), [frame[name] for name in columns]
            is_counts = all(one.dtype in (pl.Int64, pl.Float64) and not one.has_nulls() for one in numbers)
            if is_counts and cube._agrees and cube._rows.equals(frame):
                return cube
    msg = f"the file must have been written by Cube.write, and not changed since, got {str(path)!r}."
    raise ValueError(msg)
