"""Histograms over some dimensions each, and one least-squares fit of all of them, by residuals.

A histogram over a set B of dimensions is summed up to each subset C of B. Subtract its mean along each dimension of C:
the result is the residual of C, the part of C's table that no smaller table contains. `docs/proofs/tables.md` proves
the fit: for each C the weighted mean of its residuals from the histograms B ⊇ C. No table of all combinations is made.

The error of a sum of noise follows from the characteristic function φ of a draw, with an error bound for each step. It
is P_N(w) of `docs/proofs/cubes.md`, Theorem 2. If draws have different factors, it is P_L(w) of
`docs/proofs/tables.md`, Theorem 4. Rounding adds less than 1e-10. For P_N angles are below 10⁵ and powers of φ above
exp(−32). For P_L the logarithm of φ is off by less than 1e-11 if it is above −30. `_SLACK` covers that and tails.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp_polars._accounting.terms import Mechanism
from dp_polars._base.numbers import Ints
from dp_polars._mechanisms.noise import noise_bound_at

_TAIL = 1e-11
_SLACK = 1e-9
# A higher rate has less noise; at this one a draw is nonzero with a probability below 1e-27.
_HIGHEST_RATE = 64.0
# Below this standard deviation, sum up a discrete Gaussian. From it on, φ is a sum of bells around the multiples of 2π
# (Poisson): all but three of them together are below exp(−39) of it.
_SMALL = 1
# In standard deviations: a mean of many draws is farther off with a probability of about 0.05 (or a half).
_NEAR = (1.8, 2.4)
# The deviation of G, relative to S; the part of β for G; the end of its terms.
_OF_NORMAL, _NORMAL_BETA, _FAR = 1 / 200, 1e-3, 7.5
# Factors of draws that share one batch of characteristic functions.
_AT_ONCE = 64


@dataclass(frozen=True)
class Noise:
    """The law of one draw: "discrete_laplace" or "discrete_gaussian" at a rate, as in a claim."""

    mechanism: Mechanism
    rate: Fraction

    @cached_property
    def _rate(self) -> float:
        return min(float(self.rate), _HIGHEST_RATE)

    @property
    def precision(self) -> float:
        """One over the variance of a discrete Gaussian that is not small: the square of the rate."""
        return self._rate**2

    @cached_property
    def variance(self) -> float:
        """The variance of one draw; for a discrete Gaussian that is not small, a bound at most 1e-6 too large."""
        if self.mechanism == "discrete_laplace":
            return float(0.5 / np.sinh(self._rate / 2) ** 2)
        weights, squares = self._weights
        return 2 * float(weights @ squares) if len(squares) else self._rate**-2

    @property
    def mean_size(self) -> float:
        """The mean of the absolute value of a draw; approximate for a Gaussian."""
        if self.mechanism == "discrete_laplace":
            return 1 / math.sinh(self._rate)
        return math.sqrt(2 / math.pi * self.variance)

    @cached_property
    def _weights(self) -> tuple[Floats, Floats]:
        """The probabilities of 1, 2, … of a small discrete Gaussian, and their squares; otherwise empty."""
        scale = 1 / self._rate
        if scale >= _SMALL:
            return np.empty(0), np.empty(0)
        squares = np.arange(1.0, math.ceil(14 * scale) + 2) ** 2
        weights = np.exp(-squares / (2 * scale**2))
        return weights / (1 + 2 * weights.sum()), squares

    def log_characteristic(self, t: Floats) -> Floats:
        """Return ln φ(t), for t from 0 to π, with a relative error of some units in the last place."""
        if self.mechanism == "discrete_laplace":
            return -np.log1p((np.sin(t / 2) / math.sinh(self._rate / 2)) ** 2)
        weights, squares = self._weights
        if not len(weights):
            beside = -2 * math.pi / self._rate**2  # the bells on both sides, relative to the middle one
            shares = np.exp(beside * (math.pi - t)) + np.exp(beside * (math.pi + t))
            bells: Floats = -((t / self._rate) ** 2) / 2 + np.log1p(shares) - math.log1p(2 * math.exp(beside * math.pi))
            return bells
        summed: Floats = np.log1p(-4 * (np.sin(np.outer(t / 2, np.sqrt(squares))) ** 2 @ weights))
        return summed

    def chernoff(self, number: int, beta: float) -> float:
        """Return an x with P(|S| >= x) <= beta, for the sum S of this number of draws."""
        if self.mechanism == "discrete_gaussian":  # subgaussian: Canonne, Kamath & Steinke 2020, Corollary 17
            return math.sqrt(2 * number * math.log(2 / beta)) / self._rate
        s = self._rate * np.geomspace(1e-4, 0.999, 200)  # the bound is valid at each of them
        generating = -np.log1p(-((np.sinh(s / 2) / math.sinh(self._rate / 2)) ** 2))
        return float(((number * generating + math.log(2 / beta)) / s).min())


def sum_bounds(noise: Noise, numbers: Ints, beta: float) -> Ints:
    """Return for each number of draws the smallest w with P(|their sum| > w) <= beta, or one more if that is too close.

    `numbers`: how many draws are summed, from 0 to 10⁷. Equal numbers are computed once.
    `beta`: from 0.001 to 0.5.
    """
    distinct, places = np.unique(numbers, return_inverse=True)
    bounds = np.array([sum_bound(noise, number, beta) for number in distinct.tolist()], np.int64)
    return bounds[places.reshape(numbers.shape)]


@lru_cache(maxsize=1 << 16)
def sum_bound(noise: Noise, number: int, beta: float) -> int:
    """Return the smallest w with P(|S| > w) <= beta, for the sum S of the draws: see `sum_bounds`."""
    if number == 0:
        return 0
    if number == 1:
        return noise_bound_at(noise.mechanism, noise.rate, beta)
    most = math.ceil(noise.chernoff(number, _TAIL))
    period = 2 * most + 1
    points = _points(noise, number, period)
    t: Floats = np.arange(1.0, points + 1) * (2 * math.pi / period)
    weights = np.exp(number * noise.log_characteristic(t)) / np.sin(t / 2)

    def holds(w: int) -> bool:
        inside = (2 * w + 1 + 2 * float(weights @ np.sin((w + 0.5) * t))) / period
        return inside >= 1 - beta + _SLACK

    # `high` is always valid: at first by Chernoff's bound. The brackets only save time.
    low, high = -1, most
    for deviations in _NEAR:
        tried = min(most, math.floor(deviations * math.sqrt(number * noise.variance)))
        if low < tried < high:
            low, high = (low, tried) if holds(tried) else (tried, high)
    return low + 1 + bisect_left(range(low + 1, high), True, key=holds)


def _points(noise: Noise, number: int, period: int) -> int:
    """Return the last term j to compute: later terms add up to `_TAIL` at most, or don't exist."""
    enough = math.log(_TAIL / (1 + math.log(period)))

    def are_enough(j: int) -> bool:
        return number * float(noise.log_characteristic(np.array([j * (2 * math.pi / period)]))[0]) <= enough

    return 1 + bisect_left(range(1, (period - 1) // 2), True, key=are_enough)


@dataclass(frozen=True, eq=False)
class WeightedNoise:
    """Draws of one discrete Gaussian: their `factors`, shape (k,), and the number of draws with each."""

    noise: Noise
    factors: Floats
    numbers: Ints

    @classmethod
    def of(cls, noise: Noise, factors: Floats, repeated: int) -> WeightedNoise:
        """Return draws with these factors, each repeated; factors are merged if equal up to 2**-40 of the largest."""
        sizes = np.abs(factors)
        largest = float(sizes.max(initial=0))
        if not largest:
            return cls(noise, np.empty(0), np.empty(0, np.int64))
        _, first, numbers = np.unique(np.rint(sizes / largest * 2.0**40), return_index=True, return_counts=True)
        return cls(noise, sizes[first], numbers * repeated)

    @property
    def squares(self) -> float:
        """The sum of each draw's squared bound on its deviation."""
        return float(self.numbers @ self.factors**2) / self.noise.precision

    def log_characteristic(self, t: Floats) -> Floats:
        """Return ln φ(t) of the sum, for any t."""
        found = np.zeros(len(t))
        for start in range(0, len(self.factors), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            angles = np.remainder(np.outer(self.factors[part], t), 2 * math.pi)
            folded = np.minimum(angles, 2 * math.pi - angles)
            logs = self.noise.log_characteristic(folded.ravel()).reshape(folded.shape)
            found += self.numbers[part] @ logs
        return found


def weighted_bound(draws: Sequence[WeightedNoise], beta: float) -> float:
    """Return a w with P(|S| > w) <= beta, for the sum S of all draws: at most 2 % above the smallest.

    All draws are discrete Gaussian. `beta` is from 1e-5 to 0.5.
    """
    deviation = math.sqrt(sum(one.squares for one in draws))
    if not deviation:
        return 0.0
    s, of_normal = deviation * _OF_NORMAL, _NORMAL_BETA * beta
    most = math.sqrt(2 * math.log(2 / _TAIL) * (deviation**2 + s**2))  # subgaussian: Canonne, Kamath & Steinke 2020
    period = 2 * most
    j: Floats = np.arange(1.0, math.ceil(_FAR / s * period / (2 * math.pi)) + 1)
    t = j * (2 * math.pi / period)
    weights = np.exp(sum((one.log_characteristic(t) for one in draws), -((s * t) ** 2) / 2)) * (2 / math.pi) / j

    def holds(w: float) -> bool:
        return 2 * w / period + float(weights @ np.sin(w * t)) >= 1 - beta + of_normal + _SLACK

    low, high = 0.0, most  # `high` is always valid, by Chernoff's bound
    while high - low > s / 16:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high - NormalDist().inv_cdf(of_normal / 2) * s * (1 + 1e-6)


Axes: TypeAlias = "tuple[int, ...]"
Floats: TypeAlias = "NDArray[np.float64]"

#: Numbers of tables are multiples of one over this. Floats represent them, and their sums, exactly up to 2**37.
UNITS = 1 << 16
_LARGEST = 2.0**42
# Loss weights are parts of 2**16. A histogram with less than this part of an equal weight is not drawn.
_PARTS, _LEAST_SHARE = 1 << 16, 0.05
# Up to this number of combinations and ways, we try all ways in which a person's combinations may agree.
_MOST_MEETING, _MOST_WAYS = 6, 10_000
# Stop if the mean variance is at most this much above the least one, as a part of it, or after this many steps.
_GAP, _STEPS = 1e-3, 2000
# When to stop the search for tables without negative numbers: no cell is further below 0 than this part of its noise,
# and the squared distance is known to this part of itself. Or the steps are used up.
_NEARLY, _DUAL_STEPS = 2e-3, 5000


def below(tables: Iterable[Axes]) -> tuple[Axes, ...]:
    """Return all subsets of tables, each once, smaller ones first."""
    found = {subset for axes in tables for subset in _subsets(axes)}
    return tuple(sorted(found, key=lambda axes: (len(axes), axes)))


def _subsets(axes: Axes) -> list[Axes]:
    return [subset for size in range(len(axes) + 1) for subset in itertools.combinations(axes, size)]


def shares_of_loss(sizes: Axes, weights: dict[Axes, float], precision: dict[Axes, float]) -> dict[Axes, int]:
    """Return which histograms are drawn, and the proportions in which they split a loss in rho.

    The weighted sum of the mean variances of the wanted tables is convex in the precisions. Multiplicative steps lead
    to the least one (Silvey, Titterington & Torsney 1978). The gradient bounds the remaining distance.

    `weights`: the wanted tables, and the weight of each.
    `precision`: the histograms that may be drawn, and for each its 1/σ_B² if it had all of the loss.
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
    # Each residual needs a histogram that contains it; otherwise we draw the largest such histogram.
    for place in range(len(drawn) - 1, -1, -1):
        if matters[place] and not parts[(tells[np.flatnonzero(matters) == place] > 0)[0]].any():
            parts[place] = fewest
    return {axes: int(number) for axes, number in zip(drawn, parts, strict=True) if number}


def largest_squares(sizes: Axes, rows: Sequence[int], weights: Mapping[Axes, Fraction]) -> Fraction:
    """Return the largest weighted sum of squares of histograms, if different combinations have these rows.

    Two combinations are in one cell of each histogram over dimensions in which they agree. `docs/proofs/tables.md`,
    Theorem 1: the largest over all ways to agree, if these are few. Otherwise as if each pair could agree in all
    dimensions but one.
    """
    every, number = frozenset(range(len(sizes))), len(rows)
    found: dict[frozenset[int], Fraction] = {}

    def meet(axes: frozenset[int]) -> Fraction:
        """Return the weight of all histograms with the same cell for combinations that agree in these dimensions."""
        if axes not in found:
            found[axes] = sum((weight for one, weight in weights.items() if axes.issuperset(one)), Fraction(0))
        return found[axes]

    squares = sum(n * n for n in rows)
    apart, pairs = squares * meet(every), list(itertools.combinations(range(number), 2))
    partitions = [_partitions(number, size) for size in sizes] if number <= _MOST_MEETING else []
    if not partitions or math.prod(map(len, partitions)) > _MOST_WAYS:
        return apart + (sum(rows) ** 2 - squares) * max(meet(every - {axis}) for axis in every if sizes[axis] > 1)
    most = Fraction(0)
    for way in itertools.product(*partitions):
        agreed = [frozenset(axis for axis in every if way[axis][one] == way[axis][other]) for one, other in pairs]
        if every not in agreed:
            together = (2 * rows[a] * rows[b] * meet(axes) for (a, b), axes in zip(pairs, agreed, strict=True))
            most = max(most, sum(together, Fraction(0)))
    return apart + most


@cache
def _partitions(number: int, most: int) -> list[tuple[int, ...]]:
    """Return the ways to partition things, as labels: at most this number of different ones."""
    ways: list[tuple[int, ...]] = [()]
    for _ in range(number):
        ways = [(*way, value) for way in ways for value in range(min(len({*way}) + 1, most))]
    return ways


@dataclass(frozen=True)
class TablePlan:
    """The draws for each table; all fields are public."""

    sizes: Axes  # the number of values of each dimension
    tables: tuple[Axes, ...]  # the dimensions of each wanted table, ascending
    noises: tuple[tuple[Axes, Noise], ...]  # the dimensions of each histogram, and the noise on its counts

    def shape(self, axes: Axes) -> Axes:
        return tuple(self.sizes[axis] for axis in axes)

    def cells(self, axes: Iterable[int]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    @cached_property
    def _precisions(self) -> dict[Axes, dict[int, float]]:
        """For each residual, its precision in each histogram that contains it: p_B/∏_{B∖C} n_i."""
        wanted, found = set(below(self.tables)), dict[Axes, dict[int, float]]()
        for place, (axes, noise) in enumerate(self.noises):
            for subset in _subsets(axes):
                if subset in wanted:
                    found.setdefault(subset, {})[place] = noise.precision / self.cells({*axes} - {*subset})
        return found

    @cached_property
    def _trust(self) -> dict[Axes, dict[int, float]]:
        """For each residual, the weight of each histogram that contains it; together 1."""
        return {
            subset: {place: one / sum(of.values()) for place, one in of.items()}
            for subset, of in self._precisions.items()
        }

    def fitted(self, counts: Sequence[Ints]) -> dict[Axes, Ints]:
        """Return all tables below the wanted ones, in whole numbers of 1/`UNITS`: they agree exactly.

        Each number is off by less than 2**│axes│ units from the exact least squares (Theorem 3).

        `counts`: the counts of each histogram, the last dimension running fastest.
        """
        sums: dict[Axes, Floats] = {}
        for place, ((axes, _), numbers) in enumerate(zip(self.noises, counts, strict=True)):
            of_subsets = {axes: numbers.reshape(self.shape(axes))}
            for subset in reversed(_subsets(axes)):
                if subset not in of_subsets:
                    rest = (axis for axis in axes if axis not in subset)
                    more = min(rest, key=lambda axis: self.sizes[axis], default=-1)
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
                spread = [self.sizes[axis] if axis in subset else 1 for axis in axes]
                table = table + residuals[subset].reshape(spread) / self.cells({*axes} - {*subset})
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

        Their residuals are r_C + Σ_{A⊇C} R_C(μ_A)/(s_C·∏_{A∖C} n_i). Here s_C is the precision of r_C, and μ >= 0
        maximises the dual: its gradient is minus the tables themselves. Accelerated steps (Beck & Teboulle 2009) come
        close to it. Cells that are still below 0 are mixed with even tables of the same total, as little as possible.

        `tables`: all wanted tables, which agree.
        """
        largest, residuals = self._largest, self._residuals(tables)
        trust = {subset: sum(self._precisions[subset].values()) for subset in residuals if subset in self._precisions}

        def of(duals: Mapping[Axes, Floats]) -> dict[Axes, Floats]:
            found = dict(residuals)
            for axes, dual in duals.items():
                for subset in _subsets(axes):
                    if subset in trust:
                        weight = trust[subset] * self.cells({*axes} - {*subset})
                        found[subset] = found[subset] + _residual(dual.sum(axis=_places_of(axes, subset))) / weight
            return found

        def steepness(subset: Axes) -> float:
            above = [axes for axes in largest if {*subset} <= {*axes}]
            return sum(1 / self.cells({*axes} - {*subset}) for axes in above) / trust[subset]

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
        return self._without_negatives(of(ahead))

    def _without_negatives(self, residuals: dict[Axes, Floats]) -> dict[Axes, Ints]:
        """Return rounded tables, mixed with even tables of the same total as little as possible."""
        largest, mixed = self._largest, 0.0
        found = {axes: self._table(axes, residuals) for axes in largest}
        # A rounded number is off by less than this.
        margins = {axes: 2.0 ** (len(axes) + 1) / UNITS for axes in largest}
        total = max(float(residuals[()]), *(2 * margins[axes] * self.cells(axes) for axes in largest))
        for axes in largest:
            even, least = total / self.cells(axes), float(found[axes].min())
            if least < margins[axes]:
                mixed = max(mixed, (margins[axes] - least) / (even - least))
        now = {axes: (1 - mixed) * residual for axes, residual in residuals.items()}
        now[()] = now[()] + mixed * total
        return self._rounded(now)

    @property
    def _largest(self) -> list[Axes]:
        return [axes for axes in self.tables if not any({*axes} < {*other} for other in self.tables)]

    def _residuals(self, tables: Mapping[Axes, Floats]) -> dict[Axes, Floats]:
        return {
            subset: _residual(tables[axes].sum(axis=_places_of(axes, subset)))
            for axes in reversed(self._largest)
            for subset in _subsets(axes)
        }

    def of_distribution(self, tables: Mapping[Axes, Floats]) -> dict[Axes, Ints]:
        """Return tables without negative numbers, which agree up to floats, in units as `fitted`."""
        return self._without_negatives(self._residuals(tables))

    @property
    def degrees(self) -> int:
        """The number of free numbers in all tables, except the total."""
        return sum(math.prod(self.sizes[axis] - 1 for axis in axes) for axes in below(self.tables) if axes)

    def bound(self, axes: Axes, mask: NDArray[np.bool_], beta: float) -> float:
        """Return a bound that the error of a sum of cells of a table exceeds with probability at most `beta`."""
        return _bound(self, axes, mask.tobytes(), beta)

    def law(self, axes: Axes, mask: NDArray[np.bool_]) -> list[WeightedNoise]:
        """Return the noise of a sum of cells of a table, shape `shape(axes)`: the factor of each draw."""
        weights = mask.astype(np.float64)
        of_subsets = {
            subset: _residual(weights.sum(axis=_places_of(axes, subset)) / self.cells({*axes} - {*subset}))
            for subset in _subsets(axes)
        }
        found = []
        for place, (of, noise) in enumerate(self.noises):
            shared = tuple(axis for axis in of if axis in axes)
            factors = np.zeros(self.shape(shared))
            for subset in _subsets(shared):
                if (trust := self._trust.get(subset, {}).get(place)) is not None:
                    spread = [self.sizes[axis] if axis in subset else 1 for axis in shared]
                    factors = factors + trust * of_subsets[subset].reshape(spread)
            found.append(WeightedNoise.of(noise, factors.ravel(), self.cells({*of} - {*axes})))
        return found

    def variance(self, axes: Axes) -> float:
        """Return the variance of a cell of a table; valid if the noise is not small."""
        found = 0.0
        for subset in _subsets(axes):
            part = math.prod(1 - 1 / self.sizes[axis] for axis in subset)
            if part:
                exact = sum(self._precisions[subset].values())
                found += part / exact / self.cells({*axes} - {*subset}) ** 2
        return found


@lru_cache(maxsize=1 << 12)
def _bound(plan: TablePlan, axes: Axes, mask: bytes, beta: float) -> float:
    marks = np.frombuffer(mask, np.bool_).reshape(plan.shape(axes))
    # Rounding moves each number by some units more.
    return weighted_bound(plan.law(axes, marks), beta) + float(marks.sum()) * 2.0 ** len(axes) / UNITS


def _places_of(axes: Axes, subset: Axes) -> Axes:
    return tuple(place for place, axis in enumerate(axes) if axis not in subset)


def _residual(table: Floats) -> Floats:
    """Return a table minus its mean along each dimension."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _differences(sums: Ints) -> Ints:
    for axis in range(sums.ndim):
        sums = np.diff(sums, axis=axis, prepend=0)
    return sums
