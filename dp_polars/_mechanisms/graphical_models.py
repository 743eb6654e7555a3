"""Graphical models of noisy tables (McKenna, Sheldon & Miklau 2019, arXiv 1901.09136).

A model is the distribution of the largest entropy that has the tables, but for a part of their noise: regularized as by
Dudík, Phillips & Schapire (2007, JMLR 8:1217). `mbi` draws their rows. All of it follows from what was released, so no
guarantee depends on it, or on its floats.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dp_polars._base.extras import require
from dp_polars._base.numbers import Floats, Ints
from dp_polars._mechanisms.residuals import Axes, Noise

#: Each round looks at all pairs of dimensions: 1,225 pairs of 50.
MOST_DIMENSIONS = 50
# A number of the model is off its noisy count by this part of the noise, times its potential. If it is smaller, fits
# take longer, and are no better. If it is larger, models know less of what was measured (`benchmarks/RESULTS.md`).
_RIDGE = 0.25
# It is larger where the noise is a large part of a mean count, and dimensions are in many tables that say the same:
# this, times the tables of several dimensions for each dimension, times the root of the noise over the mean count.
_RIDGE_OF_MANY = 0.3
# A fit ends where each number is as near as this to where it should be, in standard deviations of its noise; or here.
_NEAR, _STEPS = 0.5, 2000


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
    total: float
    potentials: Mapping[Axes, Floats]  # the logarithm of each weight is their sum
    aims: Mapping[Axes, tuple[float, Floats]]  # measured tables: one over the variance, and the counts

    @cached_property
    def off(self) -> float:
        """How far it is from the measured tables: the sum of squares, in variances of their noise."""
        return float(sum(w * np.square(self.table(axes) - counts).sum() for axes, (w, counts) in self.aims.items()))

    def table(self, axes: Axes) -> Floats:
        """Return how many rows the model has in each cell of a table, shape (cells,)."""
        ordered = tuple(sorted(axes))
        held = next((of for of in self._shares if {*axes} <= {*of}), None)
        if held is None:
            logs, _ = _elimination(self.sizes, tuple(self.potentials), ordered).sums([*self.potentials.values()])
            table = np.exp(logs - logs.max())
        else:
            others = tuple(place for place, axis in enumerate(held) if axis not in axes)
            table = self._shares[held].reshape([self.sizes[axis] for axis in held]).sum(axis=others)
        shares = table.transpose([ordered.index(axis) for axis in axes]).ravel()
        return np.asarray(shares * (self.total / shares.sum()))

    @cached_property
    def _shares(self) -> dict[Axes, Floats]:
        found = _elimination(self.sizes, tuple(self.potentials)).shares([*self.potentials.values()])
        return dict(zip(self.potentials, found[1], strict=True))

    def rows(self, number: int) -> list[Ints]:
        """Return the codes of rows in each dimension: as many of each combination as the model has, but for chance."""
        mbi = imported()
        domain = mbi.Domain(tuple(range(len(self.sizes))), self.sizes)

        def vector(tables: Mapping[Axes, Floats]) -> Any:  # noqa: ANN401
            shaped = {axes: one.reshape([self.sizes[axis] for axis in axes]) for axes, one in tables.items()}
            factors = {axes: mbi.Factor(domain.project(axes), one) for axes, one in shaped.items()}
            return mbi.CliqueVector(domain, tuple(factors), factors)

        with _settings():
            marginals = vector({axes: shares * self.total for axes, shares in self._shares.items()})
            model = mbi.MarkovRandomField(potentials=vector(self.potentials), marginals=marginals, total=self.total)
            drawn = model.synthetic_data(rows=number).to_dict()
        return [np.asarray(drawn[axis]).astype(np.int64) for axis in range(len(self.sizes))]


def fit(sizes: Axes, measured: Sequence[Measured], warm_start: Model | None = None) -> Model:
    """Return the model with potentials θ for which N·log Σ exp(Σ θ) − θ·counts + Σ ridge·θ²/2 is least.

    There its numbers are the counts less ridge·θ. Without a ridge they would be the counts, if any distribution has
    them; noisy ones are seldom those of one.
    """
    counts, weights = dict[Axes, Floats](), dict[Axes, float]()
    for one in measured:  # tables of the same dimensions are one
        axes, weight = tuple(sorted(one.axes)), 1 / max(one.noise.variance, 1e-12)
        table = one.counts.reshape([sizes[axis] for axis in one.axes]).transpose(np.argsort(one.axes))
        counts[axes] = np.asarray(counts.get(axes, 0.0) + weight * table.ravel(), np.float64)
        weights[axes] = weights.get(axes, 0) + weight
    aims = {axes: (weight, counts[axes] / weight) for axes, weight in sorted(weights.items())}
    parts = [(weight / len(one), float(one.sum())) for weight, one in aims.values()]
    total = max(1.0, sum(part * rows for part, rows in parts) / sum(part for part, _ in parts))
    before = {} if warm_start is None else warm_start.potentials
    wanted = np.concatenate([one for _, one in aims.values()])
    lengths = [len(one) for _, one in aims.values()]
    noise = np.repeat([weight**-0.5 for weight, _ in aims.values()], lengths)
    mean = total / np.repeat(lengths, lengths)
    many = sum(len(axes) > 1 for axes in aims) / len(sizes)
    ridge = noise * np.maximum(_RIDGE, _RIDGE_OF_MANY * many * np.sqrt(noise / mean))
    ends = np.cumsum(lengths)[:-1]
    scale = np.sqrt(np.maximum(wanted, 0) + noise)  # in these units all second derivatives are about the same
    elimination, farthest = _elimination(sizes, tuple(aims)), math.inf

    def objective(scaled: Floats) -> tuple[float, Floats]:
        nonlocal farthest
        potentials = scaled / scale
        logarithm, shares = elimination.shares(np.split(potentials, ends))
        bent = ridge * potentials
        slope = total * np.concatenate(shares) - wanted + bent
        farthest = float((np.abs(slope) / noise).max())
        return total * logarithm - float(potentials @ (wanted - bent / 2)), slope / scale

    def ended(intermediate_result: object) -> None:  # noqa: ARG001
        if farthest <= _NEAR:
            raise StopIteration

    found = require("scipy.optimize", extra="synthetic").minimize(
        objective,
        scale * np.concatenate([before.get(axes, np.zeros(len(one))) for axes, (_, one) in aims.items()]),
        jac=True,
        method="L-BFGS-B",
        callback=ended,
        options={"maxcor": 50, "maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 0, "gtol": 0},
    )
    return Model(sizes, total, dict(zip(aims, np.split(found.x / scale, ends), strict=True)), aims)


class _Part(NamedTuple):
    """An array of a sum: how it lies among the first dimensions of the sum, up to its own last one."""

    array: int
    order: Axes  # of its own dimensions, as they are in the sum
    back: Axes  # the inverse of that order
    shape: Axes  # with 1 for each dimension that it lacks
    lacking: Axes


@dataclass(frozen=True)
class _Sum:
    """A sum of arrays, of which each has some of the dimensions. Those that need the fewest of them are added first."""

    shape: Axes
    parts: tuple[_Part, ...]

    def of(self, arrays: Sequence[Floats]) -> Floats:
        added = np.zeros(())
        for part in self.parts:
            added = _longer(added, len(part.shape)) + arrays[part.array].transpose(part.order).reshape(part.shape)
        return np.broadcast_to(_longer(added, len(self.shape)), self.shape)

    def back(self, joint: Floats, found: list[Any]) -> None:
        """Sum an array of this shape over what each part lacks, in turn, and put it in the place of the part."""
        for part in reversed(self.parts):
            joint = _summed(joint, tuple(range(len(part.shape), joint.ndim)))
            found[part.array] = _summed(joint, part.lacking).transpose(part.back)


@dataclass(frozen=True)
class _Elimination:
    """The order in which dimensions are summed out of a product of arrays, which are given by their logarithms."""

    shapes: tuple[Axes, ...]  # of the arrays
    steps: tuple[_Sum, ...]  # the first dimension of each is summed out
    last: _Sum

    def sums(self, tables: Sequence[Floats]) -> tuple[Floats, list[Floats]]:
        """Return the logarithms of the sums, and in each step the share of each number that was added up."""
        arrays = [one.reshape(shape) for one, shape in zip(tables, self.shapes, strict=True)]
        shares = list[Floats]()
        for step in self.steps:
            logs = step.of(arrays)
            top = logs.max(axis=0)
            weights = np.exp(logs - top)
            sums = weights.sum(axis=0)
            arrays.append(top + np.log(sums))
            shares.append(np.divide(weights, sums, out=weights))
        return self.last.of(arrays), shares

    def shares(self, tables: Sequence[Floats]) -> tuple[float, list[Floats]]:
        """Return the logarithm of the sum of all, and its derivatives: in which share of it each number is."""
        logs, shares = self.sums(tables)
        found: list[Any] = [np.ones(())] * (len(tables) + len(shares))
        for place in reversed(range(len(shares))):
            self.steps[place].back(np.multiply(shares[place], found[len(tables) + place], out=shares[place]), found)
        return float(logs), [one.ravel() for one in found[: len(tables)]]


def _longer(array: Floats, dimensions: int) -> Floats:
    return array.reshape(array.shape + (1,) * (dimensions - array.ndim))


def _summed(array: Floats, axes: Axes) -> Floats:
    return array.sum(axis=axes) if axes else array


@lru_cache(maxsize=4096)
def _elimination(sizes: Axes, tables: tuple[Axes, ...], remaining: Axes = ()) -> _Elimination:
    """Return how to sum the product of tables over all dimensions but the remaining ones."""

    def sum_of(arrays: Iterable[int], axes: Axes) -> _Sum:
        parts = []
        for array in arrays:
            inside = [axis for axis in axes if axis in left[array]]
            first = axes[: axes.index(inside[-1]) + 1] if inside else ()
            shape = tuple(sizes[axis] if axis in inside else 1 for axis in first)
            lacking = tuple(place for place, axis in enumerate(first) if axis not in inside)
            order, back = tuple(map(left[array].index, inside)), tuple(map(inside.index, left[array]))
            parts.append(_Part(array, order, back, shape, lacking))
        parts.sort(key=lambda one: len(one.shape))
        return _Sum(tuple(sizes[axis] for axis in axes), tuple(parts))

    left, steps = dict(enumerate(tables)), list[_Sum]()
    for axis, _ in _order(sizes, tables, remaining):
        touched = [array for array, axes in left.items() if axis in axes]
        others = tuple(sorted({one for array in touched for one in left[array]} - {axis}))
        steps.append(sum_of(touched, (axis, *others)))
        left = {array: of for array, of in left.items() if array not in touched}
        left[len(tables) + len(steps) - 1] = others
    shapes = tuple(tuple(sizes[axis] for axis in axes) for axes in tables)
    return _Elimination(shapes, tuple(steps), sum_of(left, remaining))


def _order(sizes: Axes, tables: Iterable[Axes], remaining: Axes = ()) -> Iterator[tuple[int, set[int]]]:
    """Yield the dimensions as they are summed out, the cheapest one first, each with all those it is in a sum with."""
    neighbors = dict[int, set[int]]()
    for axes in (*tables, remaining):
        for axis in axes:
            neighbors[axis] = neighbors.get(axis, set()) | {*axes}
    costs = {axis: math.prod(sizes[one] for one in beside) for axis, beside in neighbors.items()}
    left = {*neighbors} - {*remaining}
    while left:
        axis = min(left, key=lambda one: (costs[one], -sizes[one], one))
        yield axis, neighbors[axis]
        left.remove(axis)
        for one in neighbors[axis] - {axis}:
            neighbors[one] = (neighbors[one] | neighbors[axis]) - {axis}
            costs[one] = math.prod(sizes[other] for other in neighbors[one])


def cells_of(sizes: Axes, tables: Iterable[Axes]) -> int:
    """Return how many numbers a model of tables holds: those of its largest sums, none of which has another's."""
    return _cells_of(sizes, frozenset(tables))


@lru_cache(maxsize=4096)
def _cells_of(sizes: Axes, tables: frozenset[Axes]) -> int:
    largest = list[set[int]]()
    for _, axes in _order(sizes, tables):
        if not any(axes <= one for one in largest):  # what follows has nothing that was summed out
            largest.append(axes)
    return sum(math.prod(sizes[axis] for axis in axes) for axes in largest)


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
