"""The question whose answer is a cube: a count in each combination of public values, and in marginals of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.large import warn_if_large
from dp_polars._accounting.terms import Contributions, Loss, Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import given, one_of, plural
from dp_polars._draws.histograms import Histogram
from dp_polars._engines.contract import Engine, Released, Work
from dp_polars._engines.outputs import AS_DRAWN, Presentation
from dp_polars._frames import group_keys
from dp_polars._frames.cube import COUNT, TAKEN, Cube, cube_of, dimensions_of, table
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.request import Ask, Request
from dp_polars._mechanisms.noise_sums import Noise
from dp_polars._questions.measures import Count, totals_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polars._typing import EngineType

    from dp_polars._accounting.budgets import Budget
    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Values
    from dp_polars._frames.recipe import Recipe
    from dp_polars._frames.request import AnyRequest
    from dp_polars._frames.sources import PrivateRows
    from dp_polars._questions.question import Asked, Columns, HistogramQuery

_SEVERAL_CELLS = (
    'cube: counts="people" must be asked where a person is in one cell: an answer adds up cells, and would count a '
    "person once for each of theirs.\n\n"
    'Hint: protect(…, max_groups=1) keeps one random cell of each person; or counts="rows", with bounds on their rows.'
)
_MARGINALS = "marginals must be a list of tuples of names of dimensions"
# Sums of as many cells as there may be then fit into 64 bits, but with a probability far below 2**-100.
_LARGEST_SCALE = 2**32


@dataclass(frozen=True)
class CubeWork(Work):
    """The work of a cube: one histogram of all cells, from which those of marginals follow.

    Parameters
    ----------
    sizes
        How many values each dimension has.
    marginals
        The positions of the dimensions of each marginal.
    """

    sizes: tuple[int, ...] = ()
    marginals: tuple[tuple[int, ...], ...] = ()

    def assemble(self, histograms: Sequence[Histogram]) -> pl.DataFrame:
        """Draw once for each cell, and once for each cell of each marginal: in one column, one after the other."""
        drawn: list[pl.Series] = []
        for output, axes in zip(self.outputs, _of_outputs(self.sizes, self.marginals), strict=True):
            (tally,) = output.tallies
            drawn += output.drawn([_marginal(histograms[tally], self.sizes, axes)])
        return pl.DataFrame({"0": pl.concat(drawn, rechunk=True)})

    def presented(self, drawn: pl.DataFrame, presentation: Presentation) -> pl.DataFrame:  # noqa: ARG002
        """Return the combinations with what was drawn for them, as `cube.table` has them."""
        keys, counts = cast("pl.DataFrame", self.keys), drawn.to_series()
        joint = keys.with_columns(counts[: keys.height].alias(COUNT))
        if not self.marginals:
            return joint
        dimensions, start, parts = dimensions_of(keys, self.sizes), keys.height, []
        for axes in self.marginals:
            stop = start + math.prod(self.sizes[axis] for axis in axes)
            parts.append((axes, counts[start:stop]))
            start = stop
        return pl.concat([joint, table(dimensions, parts)], rechunk=False)


def _of_outputs(sizes: tuple[int, ...], marginals: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """Return the positions of the dimensions of each output: all of them first, then those of marginals."""
    return [tuple(range(len(sizes))), *marginals]


def _marginal(cells: Histogram, sizes: tuple[int, ...], axes: tuple[int, ...]) -> Histogram:
    """Return the sums of the cells of a histogram over all dimensions but some."""
    if len(axes) == len(sizes):
        return cells
    others = tuple(axis for axis in range(len(sizes)) if axis not in axes)
    sums = totals_of(cells).reshape(sizes).sum(axis=others).reshape(-1)
    groups = np.flatnonzero(sums)
    return Histogram.of_cells(groups, np.zeros_like(groups), sums[groups], len(sums))


@dataclass(frozen=True)
class CubeRequest(Request):
    """A count in each cell, and in each cell of marginals: each output is one histogram."""

    sizes: tuple[int, ...] = ()
    marginals: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def over(
        cls,
        recipe: Recipe,
        keys: pl.DataFrame,
        sizes: tuple[int, ...],
        marginals: tuple[tuple[int, ...], ...],
        query: Count,
    ) -> CubeRequest:
        """Return the request that shares the loss of a count equally among all cells and each marginal.

        A marginal is of the rows that the cells keep. A person has T of them, at most m in a cell; so at most T and at
        most m for each cell that is added up, in one cell of the marginal. That is its own spread: in rho T² where all
        meet, not k·m² + r².
        """
        protection, cells = recipe.calibration, keys.height
        share = Loss(query.claim.loss.value / (1 + len(marginals)), query.claim.loss.unit)
        query = query.with_claim(replace(query.claim, loss=share))
        asks = []
        for axes in _of_outputs(sizes, marginals):
            names = ", ".join(keys.columns[axis] for axis in axes)
            name = COUNT if len(axes) == len(sizes) else f"count by {names}" if names else "count of all"
            groups = math.prod(sizes[axis] for axis in axes)
            bounds = protection.contributions(query, cells)
            if query.counts_people and bounds.total > 1:
                raise ValueError(_SEVERAL_CELLS)
            bounds = Contributions(bounds.total, min(bounds.total, bounds.per_group * (cells // groups)))
            asks.append(Ask(name, (), query.under(bounds, protection.neighboring_relation, groups)))
        return cls(recipe, keys, tuple(asks), sizes, marginals)

    @property
    def cells(self) -> Request:
        """The count in each cell, without marginals and as any other output."""
        return Request(self.recipe, self.keys, self.asks[:1])

    @property
    def about(self) -> str:
        return plural(self.groups, "cell")

    def presentation(self, ranges: object = False, min_people: object = None, sure: object = False) -> Presentation:
        if super().presentation(ranges, None, False) != AS_DRAWN or min_people is not None or sure is not False:
            msg = (
                "ranges, min_people and sure must be left out of the release of a cube: each of its answers has a "
                "range.\n\nHint: cube.counts(by=…) has count_low and count_high."
            )
            raise ValueError(msg)
        return AS_DRAWN

    def bind(self, engine: Engine[Released]) -> CubeWork:
        work = super().bind(engine)
        parts = {field.name: getattr(work, field.name) for field in fields(work)}
        return CubeWork(**parts, sizes=self.sizes, marginals=self.marginals)

    def cube(self, released: pl.DataFrame) -> Cube:
        """Return the cube of what `CubeWork.presented` gave."""
        noises = [Noise(ask.query.claim.mechanism, ask.query.claim.rate) for ask in self.asks]
        noises_of = list(zip(_of_outputs(self.sizes, self.marginals), noises, strict=True))
        return cube_of(released, self.sizes, noises_of, json.dumps(self.claim_for_json()))

    def _errors(self, ask: Ask[HistogramQuery], types: Columns) -> dict[str, object]:
        axes = _of_outputs(self.sizes, self.marginals)[self.asks.index(ask)]
        groups = math.prod(self.sizes[axis] for axis in axes)
        return super()._errors(ask, types) | {"groups": groups}


class CubeQuery(PrivateQuery):
    """A cube of a private frame, asked for but not yet released. Made by `PrivateFrame.cube`.

    It is a `PrivateQuery`, but for its release: a `Cube`.
    """

    @called
    def release(  # type: ignore[override]  # what a cube answers is no frame, and its ranges come with the answers
        self,
        frame: PrivateRows | tuple[PrivateRows, ...] | None = None,
        *,
        engine: EngineType = "auto",
        partitions: int | None = None,
        fresh: bool = False,
        unchecked: bool = False,
    ) -> Cube:
        """Release the cube once, charged to the budget before a row is read.

        Parameters
        ----------
        frame, engine, partitions, fresh, unchecked
            As for `PrivateQuery.release`.

        Returns
        -------
        Cube
            What answers questions at no further cost.

        Raises
        ------
        BudgetExceededError, ReleaseError, TypeError, ValueError
            As for `PrivateQuery.release`.
        """
        query = self.handed_over(unchecked)
        return cube_from(query.request, query._released(frame, AS_DRAWN, engine, partitions, fresh))

    def sink_parquet(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Raise: a cube is released, and then written."""
        msg = "a cube must be released, and then written.\n\nHint: query.release().write(path)."
        raise TypeError(msg)


def cube_from(request: AnyRequest[Asked], released: pl.DataFrame) -> Cube:
    """Return the cube of what an engine released for the request of one."""
    return cast("CubeRequest", request).cube(released)


class Cubes:
    """The method of a private frame that asks for a cube."""

    _recipe: Recipe
    _sources: tuple[pl.LazyFrame, ...]
    _budget: Budget | None

    @called
    def cube(
        self,
        dimensions: Mapping[str, Values],
        *,
        counts: Literal["people", "rows"] = "people",
        epsilon: Number | None = None,
        rho: Number | None = None,
        marginals: Sequence[Sequence[str]] | None = None,
    ) -> CubeQuery:
        r"""Ask for a cube: one noisy histogram of all combinations, from which many questions are answered for free.

        Pure DP (epsilon) or zCDP (rho) for one person, charged once. The released `Cube` answers filters, roll-ups,
        shares and rankings over its dimensions at no further cost.

        Parameters
        ----------
        dimensions
            Name of a column -> its public values, as for `group_by`. All combinations are cells, at most 10⁷. Never
            take them from the data. Rows with null, or a value that is not listed, in one of them are left out.
        counts
            "people" needs `max_groups=1` in `protect`, or people of one row each: an answer adds up cells, and so it
            would count a person once for each of their cells. "rows" needs bounds on a person's rows, as `dpp.len`.
        epsilon, rho
            The loss, exactly one of them.
        marginals
            Further histograms, each over some of the dimensions: `[("hospital",), ("hospital", "year")]`; `()` is the
            number of all. Each, and that of all cells, gets an equal share of the loss, and each answer comes from the
            one whose sum has the least noise. Answers from different histograms may differ by their noise. All are of
            the rows that the bounds keep in the cells.

        Returns
        -------
        CubeQuery
            Its `release` gives a `Cube`. A cell is a group: `max_groups` bounds in how many cells a person counts.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a dimension is named like a column of the answers ("count", "share", and
            their ends), or people are counted who may be in several cells.

        Notes
        -----
        With T rows of a person in all and m in a cell at most, of each marginal T of them may be in one of its cells,
        though not more than m for each cell that it adds up: its noise is calibrated to that.

        Proof: :doc:`/proofs/cubes`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame(
        ...     {
        ...         "patient": range(1000),
        ...         "ward": ["A", "B"] * 500,
        ...         "flu": [True] * 200 + [False] * 800,
        ...     }
        ... )
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
                "cube: dimensions must be a dict, column -> its public values, got "
                f'{given(dimensions)}.\n\nHint: cube({{"hospital": ["A", "B"], "year": range(2015, 2026)}}, epsilon=1).'
            )
            raise TypeError(msg)
        columns = group_keys.columns_of(dimensions)
        keys = group_keys.product(columns)
        if taken := [name for name in keys.columns if name in TAKEN]:
            msg = f"cube: no dimension may be named like a column of its answers, got {taken}.\n\nHint: rename it."
            raise ValueError(msg)
        protection = self._recipe.calibration
        # Where every row is a person, rows are people.
        what: Literal["people", "rows"] = "rows" if protection.privacy_unit is None else counts
        query = Count(what, Claim.on(Terms.at(Loss.of(epsilon=epsilon, rho=rho)), "number"))
        sizes = tuple(map(len, columns))
        request = CubeRequest.over(self._recipe, keys, sizes, _axes(marginals, keys.columns), query)
        if any(ask.query.claim.rate * _LARGEST_SCALE < 1 for ask in request.asks):
            msg = f"cube: the noise must have a scale of at most 2**32, got more for {request.loss}."
            raise ValueError(msg)
        warn_if_large(request.loss)
        return CubeQuery(request, self._sources, self._budget)


def _axes(marginals: object, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the dimensions of each marginal, ascending."""
    if marginals is None:
        return ()
    if not isinstance(marginals, (list, tuple)) or not all(isinstance(one, (list, tuple)) for one in marginals):
        msg = f'{_MARGINALS}, got {given(marginals)}.\n\nHint: [("hospital",), ("hospital", "year")].'
        raise TypeError(msg)
    found = []
    for one in marginals:
        if unknown := [name for name in one if name not in names]:
            msg = f"{_MARGINALS}, which are {list(names)}, got {given(unknown[0])}."
            raise ValueError(msg)
        axes = tuple(sorted({names.index(name) for name in one}))
        if len(axes) < len(one) or axes in found or len(axes) == len(names):
            why = "a dimension twice" if len(axes) < len(one) else "it twice" if axes in found else "all dimensions"
            msg = f"{_MARGINALS}, each of some of them and different, got {why}: {tuple(one)}."
            raise ValueError(msg)
        found.append(axes)
    return tuple(found)
