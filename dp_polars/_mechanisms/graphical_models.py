"""Graphical models of noisy tables (McKenna, Sheldon & Miklau 2019, arXiv 1901.09136).

A model gives each combination x of all dimensions the weight exp(Σ_A θ_A(x_A)), of potentials θ_A of tables A: of all
distributions with its tables, it has the largest entropy. Sums over combinations go along a tree of cliques, so nothing
as large as all combinations is made, unless the tables need it. A fit is the θ of which the tables are nearest to noisy
ones, in least squares weighted by their noise, by L-BFGS (Liu & Nocedal 1989).

All of it follows from what was released, so no guarantee depends on it, or on its floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dp_polars._base.numbers import Floats, Ints
from dp_polars._mechanisms.residuals import Axes, Noise

#: `numpy.einsum` has a letter for each dimension.
MOST_DIMENSIONS = 50
# A fit ends where the gradient of a number, in deviations of its noise, is this on average; or after these steps.
_ENOUGH, _STEPS, _MEMORY = 1e-2, 300, 20
# What each squared potential costs, in units of its noise: it keeps those finite of which no row is known.
_RIDGE, _MOST_RIDGE = 1.5, 0.1
_LEAST_LOG = -700.0  # exp(−745) is 0 in floats


@dataclass(frozen=True, eq=False)
class Measured:
    """A noisy table: its dimensions, its noise, and its counts, the last dimension running fastest."""

    axes: Axes
    noise: Noise
    counts: Ints | Floats


class _Clique:
    """All combinations of some dimensions, and the tables of them that matter.

    The dimensions are two halves. Marks say which value each combination of the right half has in a table, so one
    product of matrices sums up to all tables, and another one adds up their potentials.
    """

    def __init__(self, sizes: Axes, axes: Axes, tables: Iterable[Axes]) -> None:
        self.sizes, half, cells, right = sizes, math.sqrt(math.prod(sizes[axis] for axis in axes)), 1, set[int]()
        for axis in sorted(axes, key=lambda axis: sizes[axis]):
            if cells * sizes[axis] <= half:
                right, cells = right | {axis}, cells * sizes[axis]
        self.left, self.right = (tuple(axis for axis in axes if (axis in right) == of) for of in (False, True))
        self.shape = tuple(sizes[axis] for axis in (*self.left, *self.right))
        codes = np.indices([sizes[axis] for axis in self.right]).reshape(len(self.right), cells)
        # By which dimensions of the right half tables have: them, and their columns of marks.
        self.parts, marks, start = dict[Axes, tuple[list[Axes], slice]](), [np.empty((cells, 0))], 0
        for table in tables:
            part = tuple(axis for axis in self.right if axis in table)
            if part not in self.parts:
                shape = [sizes[axis] for axis in part]
                many = math.prod(shape)
                self.parts[part] = [], slice(start, start + many)
                of = [codes[self.right.index(axis)] for axis in part]
                code = np.ravel_multi_index(of, shape) if part else np.zeros(cells, np.int64)
                marks.append((code[:, None] == np.arange(many)).astype(np.float64))
                start += many
            self.parts[part][0].append(table)
        self.marks: Floats = np.concatenate(marks, axis=1)

    def added(self, logs: Mapping[Axes, Floats]) -> Floats:
        """Return the sums of potentials in all combinations, shape (left, right)."""
        sides = np.empty((math.prod(self.sizes[axis] for axis in self.left), self.marks.shape[1]))
        for part, (tables, columns) in self.parts.items():
            axes = (*self.left, *part)
            block = np.zeros([self.sizes[axis] for axis in axes])
            for table in tables:
                block += spread(logs[table], table, axes)
            sides[:, columns] = block.reshape(len(sides), -1)
        return np.asarray(sides @ self.marks.T)

    def summed(self, cells: Floats) -> dict[Axes, Floats]:
        """Return the tables of numbers of all combinations, shape (left, right)."""
        sides, found = cells @ self.marks, dict[Axes, Floats]()
        for part, (tables, columns) in self.parts.items():
            axes = (*self.left, *part)
            block = sides[:, columns].reshape([self.sizes[axis] for axis in axes])
            found.update((table, summed_to(block, axes, table)) for table in tables)
        return found


def spread(table: Floats, axes: Axes, wider: Axes) -> Floats:
    """Return a table in the order of more dimensions, with length 1 along those that it has not."""
    order = [axes.index(axis) for axis in wider if axis in axes]
    sizes = iter(table.transpose(order).shape)
    return table.transpose(order).reshape([next(sizes) if axis in axes else 1 for axis in wider])


def summed_to(table: Floats, axes: Axes, wanted: Axes) -> Floats:
    """Return the sums of a table over all dimensions but some, in the order of these."""
    rest = [axis for axis in axes if axis in wanted]
    summed = table.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in wanted))
    return np.asarray(summed.transpose([rest.index(axis) for axis in wanted]))


def _cliques(sizes: Axes, tables: Iterable[Axes]) -> list[tuple[Axes, int | None]]:
    """Return the cliques of a junction tree, each after its parent, of which the place is given."""
    neighbors = {axis: {axis} for axis in range(len(sizes))}
    for table in tables:
        for axis in table:
            neighbors[axis] |= {*table}
    left = list[set[int]]()
    while neighbors:  # the dimension goes first that has the fewest combinations with its neighbours
        first = min(neighbors, key=lambda axis: (math.prod(sizes[one] for one in neighbors[axis]), axis))
        clique = neighbors.pop(first)
        for axis in clique - {first}:
            neighbors[axis] = (neighbors[axis] | clique) - {first}
        if not any(clique <= other for other in left):
            left.append(clique)
    tree = [(tuple(sorted(left.pop())), None)] if left else []
    found: list[tuple[Axes, int | None]] = [*tree]
    while left:  # a tree of the largest intersections
        pairs = [(clique, place) for clique in left for place in range(len(found))]
        clique, place = max(pairs, key=lambda pair: len(pair[0] & {*found[pair[1]][0]}))
        left.remove(clique)
        found.append((tuple(sorted(clique)), place))
    return found


class _Tree:
    """A junction tree of tables."""

    def __init__(self, sizes: Axes, tables: Sequence[Axes]) -> None:
        cliques = _cliques(sizes, tables)
        self.sizes, self.parents = sizes, [parent for _, parent in cliques]
        self.shared = [
            () if parent is None else tuple(axis for axis in axes if axis in cliques[parent][0])
            for axes, parent in cliques
        ]
        self.members: list[list[Axes]] = [[] for _ in cliques]
        for table in tables:
            fit = [place for place, (axes, _) in enumerate(cliques) if {*table} <= {*axes}]
            self.members[min(fit, key=lambda place: math.prod(sizes[axis] for axis in cliques[place][0]))].append(table)
        self.cliques = []
        for place, (axes, _) in enumerate(cliques):
            below = [self.shared[child] for child, parent in enumerate(self.parents) if parent == place]
            self.cliques.append(_Clique(sizes, axes, dict.fromkeys([*self.members[place], *below, self.shared[place]])))

    def shares(self, logs: Mapping[Axes, Floats]) -> tuple[list[Floats], list[dict[Axes, Floats]]]:
        """Return the distribution of potentials over each clique, shape (left, right), and its tables of that."""
        found, sums = list[Floats](), list[dict[Axes, Floats]]()
        messages = [{table: logs[table] for table in members} for members in self.members]
        for place in reversed(range(len(self.cliques))):
            clique, message = self.cliques[place], messages[place]
            zeros = {
                table: np.zeros([self.sizes[axis] for axis in table]) for of, _ in clique.parts.values() for table in of
            }
            cells = clique.added({**zeros, **message})
            np.exp(cells - cells.max(), out=cells)
            found.insert(0, cells)
            sums.insert(0, clique.summed(cells))
            parent, shared = self.parents[place], self.shared[place]
            if parent is not None:
                with np.errstate(divide="ignore"):
                    sent = np.maximum(np.log(sums[0][shared] / sums[0][shared].max()), _LEAST_LOG)
                messages[parent][shared] = messages[parent].get(shared, 0) + sent
        for place, clique in enumerate(self.cliques):
            parent, shared = self.parents[place], self.shared[place]
            if parent is not None:
                inner, sent = sums[place][shared], sums[parent][shared]
                factors = np.divide(sent, inner, out=np.zeros_like(sent), where=inner > 0)
                cells = found[place].reshape(clique.shape)
                cells *= spread(factors, shared, (*clique.left, *clique.right))
            found[place] /= found[place].sum()
            sums[place] = clique.summed(found[place])
        return found, sums

    def tables(self, logs: Mapping[Axes, Floats]) -> dict[Axes, Floats]:
        _, sums = self.shares(logs)
        return {table: of[table] for members, of in zip(self.members, sums, strict=True) for table in members}


@dataclass(frozen=True, eq=False)
class Model:
    """A distribution over all combinations of dimensions, times a number of rows."""

    sizes: Axes
    logs: dict[Axes, Floats]  # the potentials of each table
    total: float

    def table(self, axes: Axes) -> Floats:
        """Return how many rows the model has in each cell of a table, shape (cells,)."""
        for clique, cells in zip(self._tree.cliques, self._shares, strict=True):
            every = (*clique.left, *clique.right)
            if {*axes} <= {*every}:
                return np.asarray(summed_to(cells.reshape(clique.shape), every, axes).ravel() * self.total)
        operands: list[Any] = [part for axis in axes for part in (np.ones(self.sizes[axis]), [axis])]
        for of, log in self.logs.items():
            operands += [np.exp(log - log.max()), list(of)]
        table: Floats = np.einsum(*operands, list(axes), optimize="greedy").ravel()
        weight = float(table.sum())
        if not (math.isfinite(weight) and weight > 0):  # floats ended
            table, weight = np.ones(len(table)), float(len(table))
        return np.asarray(table * (self.total / weight))

    def rows(self, number: int) -> list[Ints]:
        """Return the codes of rows in each dimension: as many of each combination as the model has, but for chance."""
        rng, found = np.random.default_rng(), dict[int, Ints]()
        for clique, cells in zip(self._tree.cliques, self._shares, strict=True):
            axes = (*clique.left, *clique.right)
            known, new = ([axis for axis in axes if (axis in found) == of] for of in (True, False))
            shape = [self.sizes[axis] for axis in known]
            given = (
                np.ravel_multi_index([found[axis] for axis in known], shape) if known else np.zeros(number, np.int64)
            )
            order = [axes.index(axis) for axis in (*known, *new)]
            weights = cells.reshape(clique.shape).transpose(order).reshape(math.prod(shape), -1) + np.finfo(float).tiny
            ends = np.cumsum(weights, axis=1)
            ends = (ends / ends[:, -1:] + np.arange(len(ends))[:, None]).ravel()
            # Rows with the same known values each get another part of [0, 1), at random.
            mixed = rng.permutation(number)
            order_of_rows = mixed[np.argsort(given[mixed], kind="stable")]
            counts = np.bincount(given, minlength=len(weights))
            ranks = np.arange(number) - np.repeat(np.cumsum(counts) - counts, counts)
            place = np.empty(number)
            place[order_of_rows] = (ranks + rng.random(number)) / np.repeat(counts, counts)
            codes = np.searchsorted(ends, given + place, side="right") - given * weights.shape[1]
            codes = np.clip(codes, 0, weights.shape[1] - 1)
            found.update(zip(new, np.unravel_index(codes, [self.sizes[axis] for axis in new]), strict=True))
        return [np.asarray(found[axis], np.int64) for axis in range(len(self.sizes))]

    @cached_property
    def _tree(self) -> _Tree:
        return _Tree(self.sizes, [*self.logs])

    @cached_property
    def _shares(self) -> list[Floats]:
        return self._tree.shares(self.logs)[0]


def fit(
    sizes: Axes, measured: Sequence[Measured], warm_start: Model | None = None, ridge: float | None = None
) -> Model:
    """Return the model nearest to all tables, weighted by their noise.

    `ridge`: what the squares of potentials cost, in units of the noise. None: `_RIDGE` over the mean count of a cell.
    """
    sums, weights = dict[Axes, Floats](), dict[Axes, float]()
    for one in measured:  # tables of the same dimensions are one
        weight = 1 / max(one.noise.variance, 1e-12)
        sums[one.axes] = np.asarray(sums.get(one.axes, 0) + weight * one.counts, np.float64)
        weights[one.axes] = weights.get(one.axes, 0) + weight
    counts = {axes: one / weights[axes] for axes, one in sums.items()}
    exact = {axes: weights[axes] / len(one) for axes, one in counts.items()}
    total = max(1.0, sum(exact[axes] * float(one.sum()) for axes, one in counts.items()) / sum(exact.values()))
    shapes = {axes: tuple(sizes[axis] for axis in axes) for axes in counts}
    ends = np.cumsum([len(one) for one in counts.values()])
    deviations = np.concatenate([np.full(len(one), weights[axes] ** -0.5) for axes, one in counts.items()])
    wanted, tree = np.concatenate([*counts.values()]), _Tree(sizes, [*counts])

    sizes_of = np.repeat([len(one) for one in counts.values()], [len(one) for one in counts.values()])
    costs = np.minimum(_RIDGE * sizes_of / total, _MOST_RIDGE) if ridge is None else np.full(len(wanted), ridge)

    # Steps are of about the same size in all numbers that are fitted: about as curved as each is by itself.
    curved = np.sqrt(np.maximum(wanted, deviations) + costs * deviations**2)

    def logs_of(point: Floats) -> dict[Axes, Floats]:
        parts = np.split(point / curved, ends[:-1])
        return {axes: part.reshape(shapes[axes]) for axes, part in zip(counts, parts, strict=True)}

    def slope(point: Floats) -> Floats:
        tables = tree.tables(logs_of(point))
        found = np.concatenate([tables[axes].ravel() for axes in counts])
        return np.asarray((total * found - wanted + costs * deviations**2 * point / curved) / curved)

    start = np.zeros(len(wanted))
    if warm_start is not None:
        known = [warm_start.logs.get(axes, np.zeros(shape)).ravel() for axes, shape in shapes.items()]
        start = np.concatenate(known) * curved
    point = _least(slope, start)
    return Model(sizes, logs_of(point), total)


def _least(slope: Callable[[Floats], Floats], start: Floats) -> Floats:
    """Return about where a convex function is least, by its gradient alone: limited-memory BFGS."""
    point, here, moves = start, slope(start), list[tuple[Floats, Floats, float]]()
    steps, enough = 1, _ENOUGH * math.sqrt(len(start))
    while steps < _STEPS and float(np.linalg.norm(here)) > enough:
        way, factors = here, list[float]()
        for moved, change, both in reversed(moves):
            factors.append(float(moved @ way) / both)
            way = way - factors[-1] * change
        if moves:
            way = way * (moves[-1][2] / float(moves[-1][1] @ moves[-1][1]))
        for (moved, change, both), factor in zip(moves, reversed(factors), strict=True):
            way = way + (factor - float(change @ way) / both) * moved
        down, length = float(here @ way), 1.0
        while True:
            then = slope(point - length * way)
            steps, still = steps + 1, float(then @ way)
            if still >= -down / 2 or steps >= _STEPS:  # not far beyond the least
                break
            length *= max(0.1, down / (down - still))
        moved, change = -length * way, then - here
        point, here, both = point + moved, then, float(moved @ change)
        if both > 0:
            moves = [*moves, (moved, change, both)][-_MEMORY:]
    return point


def cells_of(sizes: Axes, tables: Iterable[Axes]) -> int:
    """Return how many numbers a model of tables holds."""
    return sum(math.prod(sizes[axis] for axis in axes) for axes, _ in _cliques(sizes, tables))
