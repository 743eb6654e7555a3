"""Graphical models of noisy tables, fitted by `mbi` (McKenna, Sheldon & Miklau 2019, arXiv 1901.09136).

All of it follows from what was released, so no guarantee depends on it, or on its floats.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from dp_polars._base.extras import require
from dp_polars._base.numbers import Floats, Ints
from dp_polars._mechanisms.residuals import Axes, Noise

#: `numpy.einsum` has a letter for each dimension.
MOST_DIMENSIONS = 50
# Steps of a fit, at most. It ends where 50 more lessen the loss by less than a part of it: more would fit the noise.
# If the noise does not explain the loss, the fit goes on to a smaller part.
_STEPS, _ENOUGH, _EXACT = 1000, 0.2, 1e-5


@dataclass(frozen=True, eq=False)
class Measured:
    """A noisy table: its dimensions, its noise, and its counts, the last dimension running fastest."""

    axes: Axes
    noise: Noise
    counts: Ints | Floats


@dataclass(frozen=True, eq=False)
class Model:
    """A distribution over all combinations of dimensions, times a number of rows."""

    sizes: Axes
    fitted: Any  # what `mbi` made
    aims: dict[Axes, tuple[float, Floats]]  # measured tables, with one over the variance: potentials of others are 0

    @property
    def potentials(self) -> Any:  # noqa: ANN401
        every = self.fitted.potentials
        return type(every)(every.domain, tuple(self.aims), {axes: every[axes] for axes in self.aims})

    @cached_property
    def off(self) -> float:
        """How far it is from the measured tables: the sum of squares, in variances of their noise."""
        return float(sum(w * np.square(self.table(axes) - counts).sum() for axes, (w, counts) in self.aims.items()))

    @property
    def total(self) -> float:
        return float(self.fitted.total)

    def table(self, axes: Axes) -> Floats:
        """Return how many rows the model has in each cell of a table, shape (cells,)."""
        held = [(cells, list(of)) for of, cells in self._marginals if {*axes} <= {*of}]
        factors = held[:1] or [*self._factors, *((np.ones(self.sizes[axis]), [axis]) for axis in axes)]
        operands: list[Any] = [part for pair in factors for part in pair]
        table: Floats = np.einsum(*operands, list(axes), optimize="greedy").ravel()
        weight = float(table.sum())
        if not (math.isfinite(weight) and weight > 0):  # floats ended
            table, weight = np.ones(len(table)), float(len(table))
        return np.asarray(table * (self.total / weight))

    @cached_property
    def _marginals(self) -> list[tuple[Axes, Floats]]:
        return [(axes, np.asarray(one.values)) for axes, one in self.fitted.marginals.tables.items()]

    @cached_property
    def _factors(self) -> list[tuple[Floats, list[int]]]:
        logs = [(np.asarray(one.values), list(axes)) for axes, one in self.potentials.tables.items()]
        return [(np.exp(log - log.max()), axes) for log, axes in logs]

    def rows(self, number: int) -> list[Ints]:
        """Return the codes of rows in each dimension: as many of each combination as the model has, but for chance."""
        with _settings():
            drawn = self.fitted.synthetic_data(rows=number).to_dict()
        return [np.asarray(drawn[axis]).astype(np.int64) for axis in range(len(self.sizes))]


def fit(
    sizes: Axes,
    measured: Sequence[Measured],
    warm_start: Model | None = None,
    places: Iterable[Axes] = (),
    degrees: int | None = None,
) -> Model:
    """Return the model of the largest entropy among those nearest to all tables, weighted by their noise.

    `places`: tables that change nothing. But a model that has them, measured or not, is fitted by the same program.
    `degrees`: how many independent draws the tables are of, if they agree: as many as they have cells, if None.
    """
    mbi, domain = imported(), domain_of(sizes)
    counts = dict[Axes, Floats]((axes, np.zeros(math.prod(sizes[axis] for axis in axes))) for axes in places)
    weights = dict[Axes, float].fromkeys(counts, 0.0)
    for one in measured:  # tables of the same dimensions are one
        weight = 1 / max(one.noise.variance, 1e-12)
        counts[one.axes] = np.asarray(counts.get(one.axes, 0.0) + weight * one.counts, np.float64)
        weights[one.axes] = weights.get(one.axes, 0) + weight
    with _settings():
        tables = [
            mbi.LinearMeasurement(counts[axes] / (weight or 1), axes, 1 / math.sqrt(weight) if weight else math.inf)
            for axes, weight in sorted(weights.items())  # one order: a program that is known is not compiled again
        ]
        total = mbi.estimation.minimum_variance_unbiased_total([one for one in tables if one.stddev < math.inf])
        loss = replace(mbi.marginal_loss.from_linear_measurements(tables, domain), cliques=tuple(sorted(weights)))
        aims = {axes: (weight, counts[axes] / weight) for axes, weight in sorted(weights.items()) if weight}

        def estimated(enough: float, before: Model | None) -> Model:
            start = None if before is None else before.potentials
            how = {"known_total": total, "iters": _STEPS, "tol": enough, "patience": 1, "warm_start": start}
            return Model(sizes, mbi.estimation.MirrorDescent().estimate(domain, loss, **how), aims)

        model = estimated(_ENOUGH, warm_start)
        explained = sum(len(counts[axes]) for axes in aims) if degrees is None else degrees  # by noise, on average
        return model if model.off <= explained else estimated(_EXACT, model)


def domain_of(sizes: Axes) -> Any:  # noqa: ANN401
    return imported().Domain(tuple(range(len(sizes))), sizes)


def cells_of(sizes: Axes, tables: Iterable[Axes]) -> int:
    """Return how many numbers a model of tables holds."""
    return _cells_of(sizes, tuple(sorted({*tables})))


@lru_cache(maxsize=4096)
def _cells_of(sizes: Axes, tables: tuple[Axes, ...]) -> int:
    trees = imported().junction_tree
    tree, _ = trees.make_junction_tree(domain_of(sizes), tables)
    return sum(math.prod(sizes[axis] for axis in axes) for axes in trees.maximal_cliques(tree))


def is_installed() -> bool:
    """Whether models can be fitted: the extra is installed."""
    return find_spec("mbi") is not None


def imported() -> Any:  # noqa: ANN401
    """Return `mbi`; without its extra, say how to install it."""
    with warnings.catch_warnings():  # of JAX's settings, which are others here
        warnings.simplefilter("ignore")
        return require("mbi", extra="synthetic")


@contextmanager
def _settings() -> Iterator[None]:
    """Compute in float64, and keep no compiled program on disk."""
    jax = require("jax", extra="synthetic")
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
