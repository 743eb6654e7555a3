"""Histograms over some dimensions each, and the one least-squares fit of all of them, by residuals.

A histogram over a set B of dimensions is summed up to each subset C of B. Less its mean along each dimension of C, that
is the residual of C: what the table of C says in addition to all smaller ones. Residuals of different sets are
orthogonal. So least squares over all histograms is, for each C, the mean of its residuals from the histograms B ⊇ C,
weighted by how exact they are there, which is p_B/∏_{B∖C} n_i at the precision p_B = 1/σ_B²; and a table is the sum of
the residuals of its subsets, spread evenly. Nothing as large as all combinations is ever made. Proof:
docs/proofs/tables.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp_polars._mechanisms.noise_sums import Noise, WeightedNoise, weighted_bound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dp_polars._base.rng import Ints


Axes: TypeAlias = "tuple[int, ...]"
Floats: TypeAlias = "NDArray[np.float64]"

#: Numbers of tables are multiples of one over this. Floats hold them, and their sums, exactly up to 2**37.
UNITS = 1 << 16
_LARGEST = 2.0**42
# Shares of a loss are parts of 2**16. What gets less than this part of an equal share is not drawn.
_PARTS, _LEAST_SHARE = 1 << 16, 0.05
# The mean variance is at most this much above the least one, as a share of it, or the steps are used up.
_GAP, _STEPS = 1e-3, 2000
# Up to when tables without negative numbers are looked for: until none is further below 0 than this share of its noise,
# and the squared distance is known to this share of itself; or the steps are used up.
_NEARLY, _DUAL_STEPS = 2e-3, 5000


def below(tables: Iterable[Axes]) -> tuple[Axes, ...]:
    """Return all subsets of tables, each once, smaller ones first."""
    found = {
        subset for axes in tables for size in range(len(axes) + 1) for subset in itertools.combinations(axes, size)
    }
    return tuple(sorted(found, key=lambda axes: (len(axes), axes)))


def _subsets(axes: Axes) -> list[Axes]:
    return [subset for size in range(len(axes) + 1) for subset in itertools.combinations(axes, size)]


def shares_of_loss(sizes: Axes, weights: dict[Axes, float], precision: dict[Axes, float]) -> dict[Axes, int]:
    """Return which histograms are drawn, and in which proportions they share a loss in rho.

    The sum of the mean variances of the wanted tables, times their weights, is Σ_C u_C/Σ_{B⊇C} p_B/∏_{B∖C} n_i. It is
    convex in the precisions p_B, and multiplicative steps lead to the least one (Silvey, Titterington & Torsney 1978).
    How far off it is then, follows from the gradient.

    Parameters
    ----------
    weights
        The wanted tables, and how much each matters.
    precision
        What 1/σ_B² would be if a histogram had all of the loss: those that may be drawn.
    """
    drawn = list(precision)
    places = {axes: place for place, axes in enumerate(drawn)}
    n = np.array(sizes, np.float64)
    loads = np.zeros(len(drawn))
    for table, weight in weights.items():
        for subset in _subsets(table):
            rest = [axis for axis in table if axis not in subset]
            loads[places[subset]] += weight * np.prod(1 - 1 / n[list(subset)]) / np.prod(n[rest]) ** 2
    tells = np.zeros((len(drawn), len(drawn)))
    for column, axes in enumerate(drawn):
        for subset in _subsets(axes):
            rest = [axis for axis in axes if axis not in subset]
            tells[places[subset], column] = precision[axes] / np.prod(n[rest])
    matters = loads > 0  # a dimension of one value has no residual
    tells, loads = tells[matters], loads[matters]
    share = np.full(len(drawn), 1 / len(drawn))
    for _ in range(_STEPS):
        sums = tells @ share
        slope = (loads / sums**2) @ tells
        if slope.max() <= (1 + _GAP) * float(share @ slope):
            break
        share *= np.sqrt(slope)
        share /= share.sum()
    parts = np.rint(share * _PARTS).astype(np.int64)
    fewest = max(1, math.ceil(_LEAST_SHARE * _PARTS / len(drawn)))
    parts[parts < fewest] = 0
    # Something must tell of each residual; what is drawn first for that is the largest histogram.
    for place in range(len(drawn) - 1, -1, -1):
        if matters[place] and not parts[(tells[np.flatnonzero(matters) == place] > 0)[0]].any():
            parts[place] = fewest
    return {axes: int(number) for axes, number in zip(drawn, parts, strict=True) if number}


@dataclass(frozen=True)
class TablePlan:
    """What is drawn for which tables; everything here is public.

    Parameters
    ----------
    sizes
        How many values each dimension has.
    tables
        The dimensions of each wanted table, ascending.
    noises
        The dimensions of each histogram, and what is added to its counts.
    """

    sizes: Axes
    tables: tuple[Axes, ...]
    noises: tuple[tuple[Axes, Noise], ...]

    def shape(self, axes: Axes) -> Axes:
        return tuple(self.sizes[axis] for axis in axes)

    def cells(self, axes: Iterable[int]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    @cached_property
    def _precisions(self) -> dict[Axes, dict[int, float]]:
        """For each residual, how exact it is in each histogram that tells of it: p_B/∏_{B∖C} n_i."""
        wanted, found = set(below(self.tables)), dict[Axes, dict[int, float]]()
        for place, (axes, noise) in enumerate(self.noises):
            for subset in _subsets(axes):
                if subset in wanted:
                    rest = [axis for axis in axes if axis not in subset]
                    found.setdefault(subset, {})[place] = noise.precision / self.cells(rest)
        return found

    @cached_property
    def _trust(self) -> dict[Axes, dict[int, float]]:
        """For each residual, by how much each histogram that tells of it counts; together 1."""
        return {
            subset: {place: one / sum(of.values()) for place, one in of.items()}
            for subset, of in self._precisions.items()
        }

    def fitted(self, counts: Sequence[Ints]) -> dict[Axes, Ints]:
        """Return all tables below the wanted ones, in whole numbers of 1/`UNITS`: they agree exactly.

        A table is rounded in its sums from the first values on. The last of these are those of the smaller tables. So
        each number is off by less than 2**│axes│ units from the exact least squares.

        Parameters
        ----------
        counts
            The counts of each histogram, the last dimension running fastest.
        """
        sums: dict[Axes, Floats] = {}
        for place, ((axes, _), numbers) in enumerate(zip(self.noises, counts, strict=True)):
            of_subsets = {axes: numbers.reshape(self.shape(axes))}
            for subset in reversed(_subsets(axes)):
                if subset not in of_subsets:
                    more = min(
                        (axis for axis in axes if axis not in subset), key=lambda axis: self.sizes[axis], default=-1
                    )
                    wider = tuple(sorted({*subset, more}))
                    of_subsets[subset] = of_subsets[wider].sum(axis=wider.index(more))
                trust = self._trust.get(subset, {}).get(place)
                if trust is not None:
                    sums[subset] = sums.get(subset, 0) + trust * of_subsets[subset].astype(np.float64)
        return self._rounded({axes: _residual(total) for axes, total in sums.items()})

    def _table(self, axes: Axes, residuals: Mapping[Axes, Floats]) -> Floats:
        """Return a table, the sum of the residuals of its subsets, spread evenly."""
        table = np.zeros(self.shape(axes))
        for subset in _subsets(axes):
            if subset in residuals:
                rest = [axis for axis in axes if axis not in subset]
                spread = [self.sizes[axis] if axis in subset else 1 for axis in axes]
                table = table + residuals[subset].reshape(spread) / self.cells(rest)
        return table

    def _rounded(self, residuals: Mapping[Axes, Floats]) -> dict[Axes, Ints]:
        rounded: dict[Axes, Ints] = {}
        for axes in below(self.tables):
            table = self._table(axes, residuals)
            for axis in range(len(axes)):
                np.cumsum(table, axis=axis, out=table)
            numbers = np.rint(np.clip(table, -_LARGEST, _LARGEST) * UNITS).astype(np.int64)
            for place in range(len(axes)):
                last = (slice(None),) * place + (-1,)
                numbers[last] = rounded[axes[:place] + axes[place + 1 :]]
            rounded[axes] = numbers
        return {axes: _differences(numbers) for axes, numbers in rounded.items()}

    def nonnegative(self, tables: Mapping[Axes, Floats]) -> dict[Axes, Ints]:
        """Return the nearest tables without negative numbers, weighted by the noise, in units as `fitted`.

        Their residuals are r_C + Σ_{A⊇C} R_C(μ_A)/(s_C·∏_{A∖C} n_i), s_C being how exact r_C is, and μ >= 0 where the
        dual is largest: its gradient is minus the tables themselves. Accelerated steps (Beck & Teboulle 2009) come
        close to it; what is still below 0 is mixed with even tables of the same total, as little as it takes.

        Parameters
        ----------
        tables
            All wanted tables, which agree.
        """
        largest = [axes for axes in self.tables if not any({*axes} < {*other} for other in self.tables)]
        residuals = {
            subset: _residual(tables[axes].sum(axis=_places_of(axes, subset)))
            for axes in reversed(largest)
            for subset in _subsets(axes)
        }
        trust = {subset: sum(self._precisions[subset].values()) for subset in residuals if subset in self._precisions}

        def of(duals: Mapping[Axes, Floats]) -> dict[Axes, Floats]:
            found = dict(residuals)
            for axes, dual in duals.items():
                for subset in _subsets(axes):
                    if subset in trust:
                        rest = _places_of(axes, subset)
                        weight = trust[subset] * self.cells(axes[place] for place in rest)
                        found[subset] = found[subset] + _residual(dual.sum(axis=rest)) / weight
            return found

        def steepness(subset: Axes) -> float:
            above = [axes for axes in largest if {*subset} <= {*axes}]
            return sum(1 / self.cells(axis for axis in axes if axis not in subset) for axes in above) / trust[subset]

        step, start = 1 / max(map(steepness, trust)), {axes: self._table(axes, residuals) for axes in largest}
        duals = {axes: np.zeros(self.shape(axes)) for axes in largest}
        ahead, pace = duals, 1.0
        enough = _NEARLY * math.sqrt(min(map(self.variance, largest)))
        for _ in range(_DUAL_STEPS):
            now = of(ahead)
            found = {axes: self._table(axes, now) for axes in largest}
            gap, distance = (sum(float((ahead[axes] * one[axes]).sum()) for axes in largest) for one in (found, start))
            if min(float(table.min()) for table in found.values()) > -enough and gap <= _NEARLY * (gap - distance):
                break
            moved = {axes: np.maximum(ahead[axes] - step * found[axes], 0) for axes in largest}
            faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
            ahead = {axes: moved[axes] + (pace - 1) / faster * (moved[axes] - duals[axes]) for axes in largest}
            duals, pace = moved, faster
        now, mixed = of(ahead), 0.0
        found = {axes: self._table(axes, now) for axes in largest}
        # A rounded number is off by less than this.
        margins = {axes: 2.0 ** (len(axes) + 1) / UNITS for axes in largest}
        total = max(float(now[()]), *(2 * margins[axes] * self.cells(axes) for axes in largest))
        for axes in largest:
            even, least = total / self.cells(axes), float(found[axes].min())
            if least < margins[axes]:
                mixed = max(mixed, (margins[axes] - least) / (even - least))
        now = {axes: (1 - mixed) * residual for axes, residual in now.items()}
        now[()] = now[()] + mixed * total
        return self._rounded(now)

    def bound(self, axes: Axes, mask: NDArray[np.bool_], beta: float) -> float:
        """Return how far the sum of some cells of a table is off, but for a probability of `beta` at most."""
        return _bound(self, axes, mask.tobytes(), beta)

    def law(self, axes: Axes, mask: NDArray[np.bool_]) -> list[WeightedNoise]:
        """Return the noise of the sum of some cells of a table, shape `shape(axes)`: how often each draw counts."""
        weights = mask.astype(np.float64)
        of_subsets: dict[Axes, Floats] = {}
        for subset in _subsets(axes):
            rest = _places_of(axes, subset)
            of_subsets[subset] = _residual(weights.sum(axis=rest) / self.cells(axes[place] for place in rest))
        found = []
        for place, (of, noise) in enumerate(self.noises):
            shared = tuple(axis for axis in of if axis in axes)
            factors = np.zeros(self.shape(shared))
            for subset in _subsets(shared):
                if (trust := self._trust.get(subset, {}).get(place)) is not None:
                    spread = [self.sizes[axis] if axis in subset else 1 for axis in shared]
                    factors = factors + trust * of_subsets[subset].reshape(spread)
            together = self.cells(axis for axis in of if axis not in axes)
            found.append(WeightedNoise.of(noise, factors.ravel(), together))
        return found

    def variance(self, axes: Axes) -> float:
        """Return the variance of a cell of a table, for noise that is not small."""
        found = 0.0
        for subset in _subsets(axes):
            part = math.prod(1 - 1 / self.sizes[axis] for axis in subset)
            if part:
                exact = sum(self._precisions[subset].values())
                found += part / exact / self.cells(axis for axis in axes if axis not in subset) ** 2
        return found


@lru_cache(maxsize=1 << 12)
def _bound(plan: TablePlan, axes: Axes, mask: bytes, beta: float) -> float:
    marks = np.frombuffer(mask, np.bool_).reshape(plan.shape(axes))
    # Each number is off by some units more, which are those of its rounding.
    return weighted_bound(plan.law(axes, marks), beta) + float(marks.sum()) * 2.0 ** len(axes) / UNITS


def _places_of(axes: Axes, subset: Axes) -> Axes:
    """Return the places of those axes that are not in a subset."""
    return tuple(place for place, axis in enumerate(axes) if axis not in subset)


def _residual(table: Floats) -> Floats:
    """Return a table less its mean along each dimension."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _differences(sums: Ints) -> Ints:
    for axis in range(sums.ndim):
        sums = np.diff(sums, axis=axis, prepend=0)
    return sums
