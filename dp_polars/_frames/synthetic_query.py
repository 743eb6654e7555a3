"""The query of synthetic rows: dimensions that are measured, and tables that are chosen after that."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, loss_of
from dp_polars._accounting.costs import ALL, MechanismKind
from dp_polars._accounting.terms import Contributions, Loss, NeighboringRelation, Terms, Unit, warn_if_large
from dp_polars._base.calls import all_called
from dp_polars._base.column_types import must_have
from dp_polars._base.numbers import Number, given, one_of, positive_int
from dp_polars._bins.candidates import Grid, Values
from dp_polars._frames.cube import TAKEN
from dp_polars._frames.cube_query import (
    LARGEST_SCALE_OF_TABLES,
    CubeQuery,
    CubeRequest,
    name_of,
    of_table,
    sums_of,
    wanted_tables,
)
from dp_polars._frames.synthetic import Synthetic, frame_of, synthetic_of, with_values
from dp_polars._mechanisms.adaptive_tables import AdaptivePlan, weights_of
from dp_polars._mechanisms.graphical_models import MOST_DIMENSIONS, cells_of, imported
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.noise import noise_bound_at
from dp_polars._mechanisms.residuals import Axes, Noise, below, shares_of_loss
from dp_polars._release.contract import Engine, Presentation, Product, Released, Work
from dp_polars._release.pipeline import Expressions, Pipeline
from dp_polars._release.protection import Protection
from dp_polars._release.public_keys import columns_of
from dp_polars._release.request import Ask, Line, Request
from dp_polars._statistics.measures import Count
from dp_polars._statistics.statistic import Columns, HistogramQuery

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._accounting.guarantees import UnitTaken


# In rho: 15 rounds for each dimension; a tenth of the loss chooses (McKenna et al. 2022). An eighth measures these: a
# quarter makes pairs up to a tenth less exact (`benchmarks/RESULTS.md`). In epsilon losses add up, so there are fewer
# rounds.
_ROUNDS: dict[Unit, int] = {"epsilon": 2, "rho": 15}
_OF_DIMENSIONS = Fraction(1, 8)
_OF_CHOICES: dict[Unit, Fraction] = {"epsilon": Fraction(1, 5), "rho": Fraction(3, 32)}
_MOST_BINS = 1000


@dataclass(frozen=True)
class ChosenTables(Count):
    """The tables that rounds measure. Their losses add up to this one, whatever is chosen."""

    dimensions: int = field(kw_only=True)

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return 1, of which the cost is the largest: it covers every table (`docs/proofs/synthetic.md`)."""
        return ALL

    def of_part(self, part: Fraction) -> Claim:
        """Return the claim of one draw, for a part of the loss."""
        return replace(self.claim, loss=self.terms.times(part).loss, _draws=1)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        return float(noise_bound_at(self.claim.mechanism, self.of_part(Fraction(1, self.dimensions)).rate, beta))

    def note(self, size: int, alternative: object) -> str | None:  # noqa: ARG002
        return f"Answers decide which tables are measured; the error is for {self.dimensions} tables of the same loss."

    def __str__(self) -> str:
        return f"{super().__str__()} in chosen tables"


@dataclass(frozen=True)
class Choices(ChosenTables):
    """The choices of tables, by how far off the model is. Their losses add up to this one."""

    largest_weight: int = field(kw_only=True)
    mechanism_kind: ClassVar[MechanismKind] = "choice"

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return what one row changes a difference of scores by (`docs/proofs/synthetic.md`, Theorem 1)."""
        return Fraction((2 if relation == "add_or_remove_one" else 4) * self.largest_weight)

    @property
    def draws(self) -> int:
        """The number of draws with the largest cost in the other unit (Theorem 3)."""
        return 1 if self.terms.loss.unit == "epsilon" else rounds_of("rho", self.dimensions)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        return None

    def note(self, size: int, alternative: object) -> str | None:  # noqa: ARG002
        return "Each round measures the table of which the model is furthest off."

    def __str__(self) -> str:
        return "choices of tables"


def rounds_of(unit: Unit, dimensions: int) -> int:
    return _ROUNDS[unit] * dimensions


@dataclass(frozen=True)
class SyntheticWork(Work):
    """The work of synthetic rows: one histogram of all combinations that have rows."""

    plan: AdaptivePlan = field(kw_only=True)
    protection: Protection = field(kw_only=True)
    ends: tuple[pl.Series | None, ...] = field(kw_only=True)  # of the bins of each dimension, in the column's type

    def assemble(self, histograms: Sequence[Histogram]) -> pl.DataFrame:
        """Draw everything: a row for each table, the numbers of its dimensions, its noise, and its counts."""
        (cells,), plan = histograms, self.plan
        queries = [cast("Count", output.query) for output in self.outputs]
        wanted = dict.fromkeys([*plan.first, *(axes for axes, _ in plan.weights)])
        tables = {
            axes: counts.ravel() for axes, counts in sums_of(cells.codes, cells.weights, plan.sizes, [*wanted]).items()
        }
        rounds = [query for query in queries if isinstance(query, ChosenTables)]

        @cache
        def of_chosen(axes: Axes, part: Fraction) -> Claim:
            chosen = rounds[0]
            return of_table(self.protection, plan.sizes, axes, Count(chosen.counted, chosen.terms.times(part))).claim

        def claim_of(axes: Axes | None, part: Fraction) -> Claim:
            return rounds[1].of_part(part) if axes is None else of_chosen(axes, part)

        first = [query.claim for query in queries if not isinstance(query, ChosenTables)]
        measured = plan.measured(tables, first, claim_of)
        return frame_of(measured)

    def presented(self, drawn: pl.DataFrame, presentation: Presentation) -> pl.DataFrame:  # noqa: ARG002
        """Return what was drawn, with the values of each dimension."""
        keys = cast("Product", self.keys).values
        return with_values(drawn, [key if end is None else end for key, end in zip(keys, self.ends, strict=True)])


@dataclass(frozen=True)
class SyntheticRequest(CubeRequest):
    """Tables that are measured first, and those that rounds choose and measure."""

    ends: tuple[pl.Series | None, ...] = ()  # of the bins of each dimension; None: it has values
    weights: tuple[tuple[Axes, int], ...] = ()
    most_cells: int = 0
    parts: tuple[Mapping[Unit, Fraction], ...] = ()  # of the loss in each unit, for each output

    @property
    def names(self) -> list[str]:
        return cast("Product", self.keys).columns

    @property
    def rounds(self) -> list[ChosenTables]:
        return [ask.query for ask in self.asks if isinstance(ask.query, ChosenTables)]

    @property
    def about(self) -> str:
        return f"{super().about} of synthetic rows"

    @property
    def adaptive(self) -> AdaptivePlan:
        unit = self.asks[0].query.claim.loss.unit
        rounds = rounds_of(unit, len(self.sizes)) if self.rounds else 0
        return AdaptivePlan(self.sizes, self.drawn, self.weights, self.tables, rounds, self.most_cells)

    def with_asks(self, asks: Iterable[Ask[HistogramQuery]], taken: UnitTaken | None = None) -> SyntheticRequest:
        """Return the request at the losses of other outputs: their sum, in the parts that suit its unit."""
        asks = tuple(asks)
        if not any(ask.query.claim._is_open for ask in asks):
            whole = loss_of([ask.query.claim for ask in asks])
            asks = tuple(
                ask.with_terms(replace(ask.query.terms, loss=Loss(whole.value * part[whole.unit], whole.unit)))
                for ask, part in zip(asks, self.parts, strict=True)
            )
        return super().with_asks(asks, taken)

    def bind(self, engine: Engine[Released]) -> Work:
        imported()
        self.check_scale()
        names = self.names
        binned = {name: ends for name, ends in zip(names, self.ends, strict=True) if ends is not None}
        schema = self.checked_on(engine, names).schemas[-1]
        typed = tuple(None if ends is None else _in_type_of(ends, schema) for ends in self.ends)
        pipeline = self.pipeline
        if binned and engine.runs_expressions:
            pipeline = pipeline.then(_binning(binned, schema))
        elif binned:
            engine.bin({one.name: one for one in typed if one is not None})
        work = super(CubeRequest, replace(self, pipeline=pipeline)).bind(engine)
        return SyntheticWork(**vars(work), plan=self.adaptive, protection=self.protection, ends=typed)

    def check_scale(self) -> None:
        first, plan = (ask.query.claim for ask in self.asks[: len(self.drawn)]), self.adaptive
        claims = [*first, *(one.of_part(Fraction(1, plan.rounds)) for one in self.rounds[:1])]
        if any(not claim._is_open and claim.rate * LARGEST_SCALE_OF_TABLES < 1 for claim in claims):
            msg = f"synthetic: the noise must have a scale of at most 2**20, got more for {self.loss}."
            raise ValueError(msg)

    def _errors(self, ask: Ask[HistogramQuery], types: Columns) -> dict[str, object]:
        return Request._errors(self, ask, types)

    def _lines(self, engine: Engine[Released] | None) -> list[Line[HistogramQuery]]:
        return Request._lines(self, engine)


def _binning(ends: Mapping[str, pl.Series], schema: pl.Schema) -> Expressions:
    """Return the transformation of columns to the numbers of their bins: the outer ones have all that is beyond."""
    exprs = []
    for name, one in ends.items():
        column = pl.col(name)
        is_value = column.is_not_nan() if schema[name].is_float() else column.is_not_null()
        above = [pl.lit(0, pl.Int64), *((column >= pl.lit(end)).cast(pl.Int64) for end in one[1:-1])]
        while len(above) > 1:  # in pairs: `sum_horizontal` needs Polars 2, and a chain of all would be too deep
            above = [*(a + b for a, b in zip(above[::2], above[1::2], strict=False)), *above[len(above) // 2 * 2 :]]
        exprs.append(pl.when(is_value).then(above[0]).alias(name))
    return Expressions("with_columns", tuple(exprs), "synthetic")


def _in_type_of(ends: pl.Series, schema: pl.Schema) -> pl.Series:
    """Return the ends of bins in the type of their column; integers between two others begin at the next one."""
    must_have(ends.name, schema, "dimension {}")
    dtype = schema[ends.name]
    try:
        return (ends.ceil() if dtype.is_integer() and ends.dtype.is_float() else ends).cast(dtype)
    except pl.exceptions.PolarsError:
        msg = f"synthetic: the grid of {ends.name!r} must consist of values of its column's type, {dtype}."
        raise ValueError(msg) from None


@all_called
class SyntheticQuery(CubeQuery):
    """Synthetic rows of a private frame, requested but not yet released. Made by `PrivateFrame.synthetic`.

    It is a `PrivateQuery`, but for its release: a `Synthetic`.
    """

    if TYPE_CHECKING:

        def release(self, *args: object, **how: object) -> Synthetic: ...  # type: ignore[override]

    def _made(self, released: pl.DataFrame) -> Synthetic:  # type: ignore[override]
        request = cast("SyntheticRequest", self._request)
        is_binned = {name: ends is not None for name, ends in zip(request.names, request.ends, strict=True)}
        return synthetic_of(released, is_binned, json.dumps(request.claim_for_json()))


@all_called
class SyntheticRows:
    """The method of a private frame that requests synthetic rows."""

    _pipeline: Pipeline
    _source: pl.LazyFrame | None
    _budget: Budget | None

    def synthetic(
        self,
        dimensions: Mapping[str, Values],
        *,
        workload: Sequence[Sequence[str]] | None = None,
        weights: Sequence[Number] | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        delta: Number | None = None,
        loss_weight: Number | None = None,
        method: Literal["adaptive", "fixed"] = "adaptive",
        max_model_size: int = 1_000_000,
    ) -> SyntheticQuery:
        r"""Request synthetic rows: a model of noisy tables, from which rows are drawn for free.

        Pure DP (epsilon), zCDP (rho) or (epsilon, delta)-DP for one person, charged once, before a row is read. It
        needs the extra `dp-polars[synthetic]`.

        Proof: :doc:`/proofs/synthetic`.

        Parameters
        ----------
        dimensions
            Name of a column -> its public values, as for `cube`; or a grid (`dp_polars.grid`), or a list of floats: the
            ends of bins. Values beyond the first or the last end count in the outer bins. Never take them from the
            data. Rows with null, NaN, or a value that is not listed, are left out.
        workload
            The tables that the rows should agree with, as the `tables` of `cube`. None: all pairs of dimensions.
        weights
            How much each table of the workload matters, above 0. None: equally.
        epsilon, rho, delta
            The loss: exactly one of epsilon and rho; with delta a guarantee, as by `PrivateQuery.scaled_to`. None: it
            is said later, by `scaled_to`.
        loss_weight
            Set while the loss is undecided: this query's weight in the joint guarantee.
        method
            "adaptive": each dimension is measured, and then rounds choose the table of which the model is furthest off,
            and measure it. Permute-and-flip chooses in epsilon, the exponential mechanism in rho (AIM, McKenna et al.
            2022, arXiv 2201.12677). "fixed": the tables of the workload are measured once.
        max_model_size
            How many numbers the model may hold: tables that would make it larger are not chosen.

        Returns
        -------
        SyntheticQuery
            Its `release` gives a `Synthetic`. A person counts once if they are in one cell (`max_groups=1` or
            `max_rows=1`), else by their rows, under the limits of `protect`.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or a table, or with method="fixed" the model, is larger than
            `max_model_size`.
        ModuleNotFoundError
            If the extra is not installed.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> people = pl.DataFrame(
        ...     {"age": [20, 41, 70] * 300, "sick": [False, False, True] * 300}
        ... )
        >>> query = people.dp.protect(None).synthetic(
        ...     {"age": dpp.grid(0, 100, step=20), "sick": [True, False]}, epsilon=50
        ... )
        >>> query.release().rows(3).columns
        ['age', 'sick']
        """
        one_of("method", method, ("adaptive", "fixed"))
        most = positive_int("max_model_size", max_model_size)
        columns, ends = _dimensions(dimensions)
        sizes = tuple(map(len, columns))
        pairs = [*itertools.combinations([column.name for column in columns], min(2, len(columns)))]
        wanted = wanted_tables(pairs if workload is None else workload, weights, columns, "synthetic: workload")
        for axes in wanted:
            if (cells := math.prod(sizes[axis] for axis in axes)) > most:
                msg = (
                    f"synthetic: a table of the workload must have at most max_model_size cells, {most:,}, got "
                    f"{cells:,} by {tuple(columns[axis].name for axis in axes)}.\n\n"
                    "Hint: wider bins, fewer values, or a larger max_model_size, which takes longer."
                )
                raise ValueError(msg)
        if method == "fixed" and (cells := cells_of(sizes, wanted)) > most:
            msg = (
                f"synthetic: a model of all tables must hold at most max_model_size numbers, {most:,}, got {cells:,}."
                '\n\nHint: method="adaptive" chooses the tables that matter; or a smaller workload.'
            )
            raise ValueError(msg)
        is_guarantee = delta is not None
        given_loss = {} if is_guarantee else {"epsilon": epsilon, "rho": rho}
        terms = Terms.of(given_loss.get("epsilon"), given_loss.get("rho"), within=None, loss_weight=loss_weight)
        request = _request(self._pipeline, columns, ends, wanted, terms, most, is_fixed=method == "fixed")
        asked = SyntheticQuery(request, self._source, self._budget)
        if is_guarantee:
            return asked.scaled_to(epsilon=epsilon, rho=rho, delta=delta)
        if terms.loss_weight is None:
            request.check_scale()
            warn_if_large(request.loss)
        return asked


def _dimensions(dimensions: object) -> tuple[list[pl.Series], tuple[pl.Series | None, ...]]:
    """Return the values of each dimension, or the numbers of its bins, and the ends of these."""
    if not isinstance(dimensions, Mapping):
        msg = (
            f"synthetic: dimensions must be a dict, column -> its public values, got {given(dimensions)}.\n\n"
            'Hint: synthetic({"sex": ["f", "m"], "age": dpp.grid(0, 100, step=5)}, rho=0.1).'
        )
        raise TypeError(msg)
    found = {name: _ends(name, values) for name, values in dimensions.items()}
    codes = {name: dimensions[name] if ends is None else range(len(ends) - 1) for name, ends in found.items()}
    columns = columns_of(codes, all_are_answered=False)
    if taken := [column.name for column in columns if column.name in TAKEN]:
        msg = f"synthetic: no dimension may be named like a column of its answers, got {taken}.\n\nHint: rename it."
        raise ValueError(msg)
    if len(columns) > MOST_DIMENSIONS:
        msg = f"synthetic: there must be at most {MOST_DIMENSIONS} dimensions, got {len(columns)}."
        raise ValueError(msg)
    return columns, tuple(found.values())


def _ends(name: str, values: object) -> pl.Series | None:
    """Return the ends of bins; None: these are values."""
    if isinstance(values, Grid):
        ends = values.take(np.arange(min(values.size, _MOST_BINS + 2)))
    elif isinstance(values, (pl.Series, list, tuple)) and pl.Series(values, strict=False).dtype.is_float():
        ends = pl.Series(values, dtype=pl.Float64, strict=False)
        if not (ends.is_finite().fill_null(value=False).all() and ends.is_sorted() and ends.is_unique().all()):
            msg = f"synthetic: the ends of the bins of {name!r} must be finite and ascend, got {given(values)}."
            raise ValueError(msg)
    else:
        return None
    if not 2 <= len(ends) <= _MOST_BINS + 1:
        msg = f"synthetic: the bins of {name!r} must have from 2 to {_MOST_BINS + 1:,} ends, got {len(ends):,}."
        raise ValueError(msg)
    return ends.alias(name)


def _request(
    pipeline: Pipeline,
    columns: Sequence[pl.Series],
    ends: tuple[pl.Series | None, ...],
    wanted: Mapping[Axes, Fraction],
    terms: Terms,
    most_cells: int,
    *,
    is_fixed: bool,
) -> SyntheticRequest:
    sizes, protection, unit = tuple(map(len, columns)), pipeline.protection, terms.loss.unit
    weights, what = () if is_fixed else weights_of(wanted), _counted(protection, math.prod(sizes))
    of_each = dict.fromkeys(_ROUNDS, _OF_DIMENSIONS / len(sizes))
    ones = {(axis,): of_each for axis in range(len(sizes))}
    first = _fixed_parts(protection, sizes, wanted, what) if is_fixed else ones
    number = Count(what, terms)
    queries: dict[str, tuple[Count, Mapping[Unit, Fraction]]] = {
        name_of(columns, axes): (of_table(protection, sizes, axes, number), part) for axes, part in first.items()
    }
    if not is_fixed:
        total = protection.contributions(number, math.prod(sizes)).total
        bounds = Contributions(total, total), protection.neighboring_relation, math.prod(sizes)
        tables = ChosenTables(what, terms, dimensions=len(sizes))
        most = max(weight for _, weight in weights)
        choices = Choices(what, terms, dimensions=len(sizes), largest_weight=most)
        of_tables = {unit: 1 - _OF_DIMENSIONS - part for unit, part in _OF_CHOICES.items()}
        queries["chosen tables"] = tables.under(*bounds), of_tables
        queries["choices"] = choices.under(*bounds), _OF_CHOICES
    asks = []
    for name, (query, part) in queries.items():
        asks.append(Ask(name, (), query.with_terms(query.terms.times(part[unit]))))
    parts = tuple(part for _, part in queries.values())
    request = SyntheticRequest(pipeline, Product(tuple(columns)), tuple(asks), sizes, tuple(wanted), tuple(first))
    return replace(request, ends=ends, weights=weights, most_cells=most_cells, parts=parts)


def _counted(protection: Protection, cells: int) -> Literal["people", "rows"]:
    """Return what is counted: people if nobody is in several cells, else rows."""
    if protection.unit is None:
        return "rows"
    people = Count("people", Terms.at(Loss(Fraction(1), "rho")))
    return "people" if protection.contributions(people, cells).total == 1 else "rows"


def _fixed_parts(
    protection: Protection, sizes: Axes, wanted: Mapping[Axes, Fraction], what: Literal["people", "rows"]
) -> dict[Axes, dict[Unit, Fraction]]:
    """Return what is measured for a workload, and its parts of a loss: in rho as of a cube of these tables."""
    query = Count(what, Terms.at(Loss(Fraction(1), "rho")))
    claims = {axes: of_table(protection, sizes, axes, query).claim for axes in below(wanted)}
    precision = {axes: Noise(one.mechanism, one.rate).precision for axes, one in claims.items()}
    shares = shares_of_loss(sizes, {axes: float(one) for axes, one in wanted.items()}, precision)
    whole = sum(shares.values())
    return {axes: {"epsilon": Fraction(1, len(shares)), "rho": Fraction(part, whole)} for axes, part in shares.items()}
