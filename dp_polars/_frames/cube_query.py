"""The query for a cube: a count in each combination of public values, or tables over some of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import numpy as np
import polars as pl

from dp_polars._accounting.budget import Budget
from dp_polars._accounting.terms import Contributions, Terms, warn_if_large
from dp_polars._base.calls import all_called
from dp_polars._base.numbers import Ints, Number, given, one_of, plural, positive_fraction
from dp_polars._base.silence import in_parallel
from dp_polars._bins.candidates import MOST, Values
from dp_polars._frames.cube import COUNT, TAKEN, Cube, cube_of, table
from dp_polars._frames.query import PrivateQuery
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.residuals import UNITS, Axes, Noise, TablePlan, below, largest_squares, shares_of_loss
from dp_polars._release.contract import AS_DRAWN, Engine, Presentation, Product, Released, Work, names_of_ends
from dp_polars._release.pipeline import Pipeline
from dp_polars._release.protection import Protection
from dp_polars._release.public_keys import columns_of, product, way_without_values
from dp_polars._release.release import release_all
from dp_polars._release.request import Ask, Line, Request
from dp_polars._sources.source import Opened, PrivateRows
from dp_polars._statistics.measures import BETA, Count
from dp_polars._statistics.statistic import Columns, HistogramQuery

if TYPE_CHECKING:
    from polars._typing import EngineType


_SEVERAL_CELLS = (
    'cube: counts="people" must be used if a person is in one cell: an answer adds up cells, and would count a '
    "person once for each of theirs.\n\n"
    'Hint: protect(…, max_groups=1) keeps one random cell of each person; or counts="rows", with limits on their rows.'
)
_TABLES = "must be a list of tuples of names of dimensions"
# Then sums of the most cells fit into 64 bits, except with a probability far below 2**-100; and into floats as
# multiples of one over `UNITS`.
_LARGEST_SCALE, LARGEST_SCALE_OF_TABLES = 2**32, 2**20
# Combinations of all dimensions need numbers of 64 bits, and the subsets of tables take at most seconds.
_MOST_COMBINATIONS, _MOST_SUBSETS = 2**62, 2048
# Cells of tables that are summed together and fit into the cache; rows per slice of a thread.
_CACHED, _SLICE = 1 << 17, 1 << 19
_NONE = Fraction(0)


@dataclass(frozen=True)
class CubeWork(Work):
    """The work of tables: one histogram of all occurring combinations, from which the drawn histograms follow."""

    plan: TablePlan = field(kw_only=True)  # the draws, and the tables that follow from them

    def assemble(self, histograms: Sequence[Histogram]) -> pl.DataFrame:
        """Draw once for each cell of each histogram, one after the other: one column."""
        (cells,), drawn = histograms, list[pl.Series]()
        sums = sums_of(cells.codes, cells.weights, self.plan.sizes, [axes for axes, _ in self.plan.noises])
        for output, (axes, _) in zip(self.outputs, self.plan.noises, strict=True):
            groups = np.flatnonzero(sums[axes])
            of_groups = sums[axes].ravel()[groups]
            drawn += output.drawn([Histogram.of_cells(groups, np.zeros_like(groups), of_groups, sums[axes].size)], {})
        return pl.DataFrame({"0": pl.concat(drawn, rechunk=True)})

    def presented(self, drawn: pl.DataFrame, presentation: Presentation) -> pl.DataFrame:  # noqa: ARG002
        ends = np.cumsum([self.plan.cells(axes) for axes, _ in self.plan.noises])
        tables = self.plan.fitted(np.split(drawn.to_series().to_numpy(), ends[:-1]))
        parts = [(axes, pl.Series(tables[axes].ravel() / UNITS, dtype=pl.Float64)) for axes in self.plan.tables]
        return table(cast("Product", self.keys).values, parts)


def sums_of(codes: Ints, weights: Ints, sizes: Axes, tables: Sequence[Axes]) -> dict[Axes, Ints]:
    """Return the sums of combinations, given by their numbers, over all dimensions but those of each table."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    wide = _together(sizes, tables)
    used = sorted({axis for axes in wide for axis in axes})
    is_one = bool((weights == 1).all())

    def add_up(start: int, stop: int) -> list[Ints]:
        part, part_weights = codes[start:stop], None if is_one else weights[start:stop]
        places = {axis: part // strides[axis] % sizes[axis] for axis in used}
        found = []
        for axes in wide:
            cells = np.zeros(len(part), np.int64)
            for axis in axes:
                cells *= sizes[axis]
                cells += places[axis]
            # Sums of weights are exact as floats up to 2**53.
            found.append(np.bincount(cells, part_weights, math.prod(sizes[axis] for axis in axes)).astype(np.int64))
        return found

    step = max([_SLICE, *(math.prod(sizes[axis] for axis in axes) for axes in wide)])
    parts = in_parallel(
        add_up, [(start, min(start + step, len(codes))) for start in range(0, max(len(codes), 1), step)]
    )
    found: dict[Axes, Ints] = {}
    for axes, *of_parts in zip(wide, *parts, strict=True):
        sums = sum(of_parts[1:], of_parts[0]).reshape([sizes[axis] for axis in axes])
        for one in tables:
            if one not in found and {*one} <= {*axes}:
                found[one] = sums.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in one))
    return {one: np.asarray(found[one]) for one in tables}


def _together(sizes: Axes, tables: Sequence[Axes]) -> list[Axes]:
    """Return few tables, not much larger, that all others are sums of."""
    left, found = sorted(tables, key=len, reverse=True), []
    while left:
        axes = {*left[0]}
        while True:
            cells = math.prod(sizes[axis] for axis in axes)
            room = [axis for axis, size in enumerate(sizes) if axis not in axes and cells * size <= _CACHED]
            gains = {axis: sum({*one} <= axes | {axis} for one in left) for axis in room}
            more = max(room, key=lambda axis: (gains[axis], -sizes[axis]), default=None)
            if more is None or gains[more] == len(left) == sum({*one} <= axes for one in left):
                break
            axes.add(more)
        found.append(tuple(sorted(axes)))
        left = [one for one in left if not {*one} <= axes]
    return found


@dataclass(frozen=True)
class CubeRequest(Request):
    """A count in each combination, or the tables over some of the dimensions; each output is one histogram."""

    has_own_ranges = True
    shares_sums = False

    sizes: tuple[int, ...] = ()  # the number of values of each dimension
    # The positions of the dimensions of each wanted table. Empty: one table of all dimensions, as it is drawn.
    tables: tuple[tuple[int, ...], ...] = ()
    drawn: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def over(cls, pipeline: Pipeline, columns: Sequence[pl.Series], query: Count) -> CubeRequest:
        keys, sizes = product(columns), tuple(map(len, columns))
        axes = tuple(range(len(sizes)))
        ask = Ask(COUNT, (), of_table(pipeline.protection, sizes, axes, query))
        return cls(pipeline, keys, (ask,), sizes, (), (axes,))

    @classmethod
    def of_tables(
        cls, pipeline: Pipeline, columns: Sequence[pl.Series], weights: Mapping[Axes, Fraction], query: Count
    ) -> CubeRequest:
        """Return the request of tables: public numbers decide which histograms are drawn, and how exactly.

        The losses of all histograms are whole parts of the loss, and add up to it.
        """
        sizes, tables = tuple(map(len, columns)), tuple(weights)
        said = query.with_loss(query.terms.loss.value)  # the proportions do not depend on the loss
        asked = {axes: of_table(pipeline.protection, sizes, axes, said) for axes in below(tables)}
        precision = {axes: Noise(one.claim.mechanism, one.claim.rate).precision for axes, one in asked.items()}
        parts = shares_of_loss(sizes, {axes: float(one) for axes, one in weights.items()}, precision)
        whole, asks = sum(parts.values()), []
        attained = _attained(pipeline, sizes, {axes: (asked[axes], part) for axes, part in parts.items()})
        for axes, part in parts.items():
            of_part = query.with_terms(replace(query.terms.times(Fraction(part, whole)), attained=attained))
            asks.append(Ask(name_of(columns, axes), (), of_table(pipeline.protection, sizes, axes, of_part)))
        return cls(pipeline, Product(tuple(columns)), tuple(asks), sizes, tables, tuple(parts))

    @property
    def plan(self) -> TablePlan:
        noises = (Noise(ask.query.claim.mechanism, ask.query.claim.rate) for ask in self.asks)
        return TablePlan(self.sizes, self.tables or self.drawn, tuple(zip(self.drawn, noises, strict=True)))

    @property
    def cells(self) -> Request:
        if self.tables:
            msg = (
                "a cube must be requested without tables here: its answers are fitted to several histograms.\n\n"
                "Hint: query.explain() has the error of each table."
            )
            raise TypeError(msg)
        return Request(self.pipeline, self.keys, self.asks)

    @property
    def about(self) -> str:
        return plural(len(self.tables), "table") if self.tables else plural(self.groups, "cell")

    def presentation(self, intervals: object = False, min_people: object = None, sure: object = False) -> Presentation:
        if super().presentation(intervals, None, False) != AS_DRAWN or min_people is not None or sure is not False:
            msg = (
                "intervals, min_people and sure must be left out of the release of a cube: each of its answers has a "
                "range.\n\nHint: cube.counts(by=…) has count_low and count_high."
            )
            raise ValueError(msg)
        return AS_DRAWN

    def bind(self, engine: Engine[Released]) -> Work:
        self.check_scale()
        work = super().bind(engine)
        return CubeWork(**vars(work), plan=self.plan) if self.tables else work

    def check_scale(self) -> None:
        largest = LARGEST_SCALE_OF_TABLES if self.tables else _LARGEST_SCALE
        if any(not ask.query.claim._is_open and ask.query.claim.rate * largest < 1 for ask in self.asks):
            exponent = largest.bit_length() - 1
            msg = f"cube: the noise must have a scale of at most 2**{exponent}, got more for {self.loss}."
            raise ValueError(msg)

    def _errors(self, ask: Ask[HistogramQuery], types: Columns) -> dict[str, object]:
        return super()._errors(ask, types) | {"groups": self.plan.cells(self.drawn[self.asks.index(ask)])}

    def _lines(self, engine: Engine[Released] | None) -> list[Line[HistogramQuery]]:
        """Return a line for each wanted table, and for each other table that is drawn for these."""
        if not self.tables:
            return super()._lines(engine)
        plan, columns = self.plan, cast("Product", self.keys).values
        asks, lines = dict(zip(self.drawn, self.asks, strict=True)), []
        for axes in [*self.tables, *(one for one in self.drawn if one not in self.tables)]:
            one = np.zeros(plan.shape(axes), np.bool_)
            one.flat[0] = True
            ask = asks.get(axes)
            row = self._explained(ask or self.asks[0]) | self._errors(ask or self.asks[0], ())
            why = []
            if ask is None:
                row |= {"output": name_of(columns, axes), "mechanism": None, "rate": None, "rho": 0.0}
                why.append("Not drawn: it follows from the others.")
            if axes not in self.tables:
                why.append("Drawn for the tables above.")
            note = " ".join([*why, str(row["note"])])
            error = None if self.is_open else plan.bound(axes, one, BETA)
            row |= {"error_95": error, "groups": plan.cells(axes), "note": note}
            lines.append(Line(row, ask))
        return lines


def name_of(columns: Sequence[pl.Series], axes: Axes) -> str:
    """Return the name of a table. No two tables have the same name, for any names of dimensions."""
    shown = repr if any("," in column.name or not column.name for column in columns) else str
    names = ", ".join(shown(columns[axis].name) for axis in axes)
    return f"count by {names}" if axes else "count of all"


def of_table(protection: Protection, sizes: Axes, axes: Axes, query: Count) -> Count:
    """Return the count in each combination of some dimensions, under the limits.

    It counts the rows that the limits keep in all combinations. A person has T of them, at most m in one combination.
    So one count has at most T, and at most m for each combination that it adds up. That is its own spread: in rho T² if
    all are in one count, not k·m² + r².
    """
    every = math.prod(sizes)
    groups = math.prod(sizes[axis] for axis in axes)
    bounds = protection.contributions(query, every)
    if query.counts_people and bounds.total > 1:
        raise ValueError(_SEVERAL_CELLS)
    bounds = Contributions(bounds.total, min(bounds.total, bounds.per_group * (every // groups)))
    return query.under(bounds, protection.neighboring_relation, groups)


def _attained(pipeline: Pipeline, sizes: Axes, parts: Mapping[Axes, tuple[Count, int]]) -> Fraction:
    """Return the histograms' joint loss as a part of the sum of their largest losses, in these proportions.

    `docs/proofs/tables.md`, Theorem 1.
    """
    (some, _), *_ = parts.values()
    protection = pipeline.protection
    spread = protection.contributions(some, math.prod(sizes))
    rows = [spread.per_group] * spread.full_groups + [spread.rest] * (spread.rest > 0)
    weights = {axes: part / query.claim._squares for axes, (query, part) in parts.items()}
    if protection.neighboring_relation == "add_or_remove_one":
        together = largest_squares(sizes, rows, weights)
    else:  # the new person has these rows, or some of them: then the count of all changes by the others
        of_all = sum(
            (weight for axes, weight in weights.items() if math.prod(sizes[axis] for axis in axes) == 1), _NONE
        )
        apart = {axes: weight for axes, weight in weights.items() if math.prod(sizes[axis] for axis in axes) > 1}
        together = largest_squares(sizes, rows, apart) + max(
            largest_squares(sizes, rows[:n], apart) + of_all * sum(rows[n:]) ** 2 for n in range(len(rows) + 1)
        )
    return min(Fraction(1), together / sum(part for _, part in parts.values()))


@all_called
class CubeQuery(PrivateQuery):
    """A cube of a private frame, requested but not yet released. Made by `PrivateFrame.cube`.

    It is a `PrivateQuery`, but for its release: a `Cube`.
    """

    def release(  # type: ignore[override]  # a cube's answers are no frame, and include their intervals
        self,
        frame: PrivateRows | tuple[PrivateRows, ...] | None = None,
        *,
        engine: EngineType = "auto",
        partitions: int | None = None,
        ignore_cache: bool = False,
        unchecked: bool = False,
    ) -> Cube:
        """Release the cube once, charged to the budget before a row is read.

        Parameters, and errors, are those of `PrivateQuery.release`. The cube answers statistics at no further cost.
        """
        query = self._handed_over(unchecked)
        with Opened() as opened:
            part = query._part(frame, AS_DRAWN, opened, engine, partitions)
            return query._made(release_all([part], self.budget, ignore_cache=ignore_cache)[0])

    def _made(self, released: pl.DataFrame) -> Cube:  # type: ignore[override]
        """Return the cube from the drawn columns."""
        return cube_of(released, cast("CubeRequest", self._request).plan, json.dumps(self._request.claim_for_json()))

    def sink_parquet(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Raise: a cube is released, and then written."""
        msg = "a cube must be released, and then written.\n\nHint: query.release().write(path)."
        raise TypeError(msg)


def tables_of(query: CubeQuery, cube: Cube) -> dict[str, tuple[list[str], pl.DataFrame]]:
    """Return the dimensions of each table of a cube, and its counts with their intervals, by its name."""
    plan, names = cast("CubeRequest", query._request).plan, [*cube.dimensions]
    keys = query._request.keys
    if keys is None or names != keys.columns or not cube.is_of(plan):
        msg = "released must be the release of this query, got a cube of another one."
        raise ValueError(msg)
    found = {}
    for axes in plan.tables:
        by = [names[axis] for axis in axes]
        if by:
            counts = cube.counts(by=by)
        else:
            counts = pl.DataFrame([cube.count()], [COUNT, *names_of_ends(COUNT)], orient="row")
        found[name_of([*cube.dimensions.values()], axes)] = by, counts
    return found


@all_called
class Cubes:
    """The method of a private frame that requests a cube."""

    _pipeline: Pipeline
    _source: pl.LazyFrame | None
    _budget: Budget | None

    def cube(
        self,
        dimensions: Mapping[str, Values],
        *,
        counts: Literal["people", "rows"] = "people",
        tables: Sequence[Sequence[str]] | None = None,
        weights: Sequence[Number] | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        delta: Number | None = None,
        loss_weight: Number | None = None,
    ) -> CubeQuery:
        r"""Request a cube: noisy counts of combinations, from which many statistics are answered for free.

        Pure DP (epsilon), zCDP (rho) or (epsilon, delta)-DP for one person, charged once. The released `Cube` answers
        filters, roll-ups, shares and rankings over its dimensions at no further cost.

        Proof: :doc:`/proofs/cubes` and :doc:`/proofs/tables`.

        Parameters
        ----------
        dimensions
            Name of a column -> its public values, as for `group_by`. Never take them from the data. A row with null or
            another value in one of them is left out of all tables. Without `tables`, there are at most 10⁷
            combinations, and with them 2⁶².
        counts
            "people" needs `max_groups=1` in `protect`: an answer adds up cells, and so it would count a person once for
            each of their cells. "rows" needs contribution limits, as `dpp.median`: further rows of a person are dropped
            at random, and `max_norm` does nothing.
        tables
            The tables that are wanted, each over some of the dimensions: `[("hospital",), ("hospital", "year")]`; `()`
            is the number of all. The histograms that are drawn for them, and their noise, make the mean variance as
            small as possible. All answers come from one fit, so they agree exactly. The noise is discrete Gaussian, so
            the loss is in rho, or a guarantee. None: one table of all dimensions, as it is drawn.
        weights
            The weight of each table's mean variance, above 0. None: equal weights.
        epsilon, rho
            The loss, at most one of them. With `tables` epsilon needs a delta. None: `scaled_to` of the query, or of
            its publication, sets it.
        delta
            With epsilon: the cube is (epsilon, delta)-differentially private, as by `PrivateQuery.scaled_to`.
        loss_weight
            Set while the loss is undecided: the weight of the whole cube in the joint guarantee.

        Returns
        -------
        CubeQuery
            Its `release` returns a `Cube`. A cell is a group: `max_groups` limits the number of cells in which a person
            counts.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a dimension is named like a column of the answers ("count", "share", and
            their ends), or people are counted who may be in several cells.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": range(1000), "ward": ["A", "B"] * 500})
        >>> visits = visits.with_columns(flu=pl.col("patient") < 200)
        >>> private = visits.dp.protect("patient", max_groups=1)
        >>> cube = private.cube(
        ...     {"ward": ["A", "B"], "flu": [True, False]}, epsilon=50
        ... ).release()
        >>> cube.count(pl.col("flu")).value
        200
        >>> cube.share(pl.col("flu"), by="ward").rows()
        [('A', 0.2, 0.2, 0.2), ('B', 0.2, 0.2, 0.2)]
        """
        one_of("counts", counts, ("people", "rows"))
        if not isinstance(dimensions, Mapping):
            msg = (
                f"cube: dimensions must be a dict, column -> its public values, got {given(dimensions)}.\n\n"
                'Hint: cube({"hospital": ["A", "B"], "year": range(2015, 2026)}, epsilon=1). '
                f"{way_without_values(['hospital', 'year'])}"
            )
            raise TypeError(msg)
        columns = columns_of(dimensions, all_are_answered=tables is None)
        if taken := [column.name for column in columns if column.name in TAKEN]:
            msg = f"cube: no dimension may be named like a column of its answers, got {taken}.\n\nHint: rename it."
            raise ValueError(msg)
        wanted = None if tables is None else wanted_tables(tables, weights, columns)
        if wanted is None and weights is not None:
            msg = "cube: weights must be left out without tables: they are of tables."
            raise TypeError(msg)
        if wanted is not None and epsilon is not None and delta is None:
            msg = (
                "cube: tables must have a loss in rho, or a guarantee, got epsilon alone: their noise is Gaussian.\n\n"
                "Hint: epsilon=1, delta=1e-6; or leave tables out, where all combinations are few."
            )
            raise ValueError(msg)
        # If every row is a person, rows are people.
        what: Literal["people", "rows"] = "rows" if self._pipeline.protection.privacy_unit is None else counts
        given_loss = (epsilon, rho) if delta is None else (None, None)
        mechanism = None if wanted is None else "discrete_gaussian"
        terms = Terms.of(*given_loss, mechanism=mechanism, within=None, loss_weight=loss_weight)
        query = Count(what, terms)
        # For a cube, a subset of the rows is drawn, so the norm does not limit them.
        pipeline = replace(self._pipeline, protection=replace(self._pipeline.protection, max_norm=None))
        if wanted is None:
            request = CubeRequest.over(pipeline, columns, query)
        else:
            request = CubeRequest.of_tables(pipeline, columns, wanted, query)
        if not request.is_open:
            request.check_scale()
            warn_if_large(request.loss)
        asked = CubeQuery(request, self._source, self._budget)
        return asked if delta is None else asked.scaled_to(epsilon=epsilon, rho=rho, delta=delta)


def wanted_tables(
    tables: object, weights: object, columns: Sequence[pl.Series], call: str = "cube: tables"
) -> dict[Axes, Fraction]:
    """Return the positions of the dimensions of each table, ascending, and its weight."""
    names, whose = [column.name for column in columns], call.partition(":")[0]
    if not isinstance(tables, (list, tuple)) or not all(isinstance(one, (list, tuple)) for one in tables):
        msg = f'{call} {_TABLES}, got {given(tables)}.\n\nHint: [("hospital",), ("hospital", "year")].'
        raise TypeError(msg)
    found: list[Axes] = []
    for one in tables:
        if unknown := [name for name in one if name not in names]:
            msg = f"{call} {_TABLES}, which are {names}, got {given(unknown[0])}."
            raise ValueError(msg)
        axes = tuple(sorted({names.index(name) for name in one}))
        if len(axes) < len(one) or axes in found:
            msg = f"{call} {_TABLES}, got {'a dimension' if len(axes) < len(one) else 'it'} twice: {tuple(one)}."
            raise ValueError(msg)
        found.append(axes)
    if not found:
        msg = f"{call} {_TABLES}, at least one, got none."
        raise ValueError(msg)
    if unused := [name for axis, name in enumerate(names) if not any(axis in axes for axes in found)]:
        msg = (
            f"{call} must have each dimension in one of them, got {unused[0]!r} in none.\n\n"
            "Hint: leave it out; a filter keeps the rows of some of its values."
        )
        raise ValueError(msg)
    _check_room([len(column) for column in columns], found, call)
    if weights is None:
        return dict.fromkeys(found, Fraction(1))
    if not isinstance(weights, (list, tuple)):
        msg = f"{whose}: weights must be a list of numbers, got {given(weights)}.\n\nHint: one for each table: [1, 3]."
        raise TypeError(msg)
    if len(weights) != len(found):
        msg = f"{whose}: weights must be {plural(len(found), 'number')}, one for each table, got {len(weights)}."
        raise ValueError(msg)
    return dict(zip(found, (positive_fraction(f"{whose}: weights", one) for one in weights), strict=True))


def _check_room(sizes: Sequence[int], tables: Sequence[Axes], call: str) -> None:
    if math.prod(sizes) > _MOST_COMBINATIONS:
        msg = (
            f"{call} must have at most 2**62 combinations of all dimensions, got {math.prod(sizes):.3g}.\n\n"
            "Hint: list fewer values, or leave a dimension out."
        )
        raise ValueError(msg)
    subsets = below(tables) if 2 ** max(map(len, tables)) <= _MOST_SUBSETS else ()
    if not 1 <= len(subsets) <= _MOST_SUBSETS:
        msg = (
            f"{call} must have at most {_MOST_SUBSETS:,} subsets of their dimensions together, got more.\n\n"
            "Hint: fewer tables, or tables over fewer dimensions."
        )
        raise ValueError(msg)
    cells = sum(math.prod(sizes[axis] for axis in axes) for axes in subsets)
    if cells > MOST:
        msg = (
            f"{call} and their subsets must have at most {MOST:,} cells together, got {cells:,}.\n\n"
            "Hint: list fewer values, or fewer tables."
        )
        raise ValueError(msg)
