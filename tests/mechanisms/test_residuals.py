"""One fit of several histograms: against least squares, and sums of weighted noise against their laws."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms.residuals import (
    UNITS,
    Noise,
    TablePlan,
    WeightedNoise,
    below,
    shares_of_loss,
    sum_bound,
    weighted_bound,
)

GAUSSIAN = "discrete_gaussian"


def planned(sizes, tables, rho, weights=None):
    """The plan of tables at a loss, as a cube of people has it."""
    weights = weights or dict.fromkeys(tables, 1.0)
    parts = shares_of_loss(sizes, weights, dict.fromkeys(below(tables), 2 * rho))
    rates = [Fraction(math.sqrt(2 * rho * part / sum(parts.values()))) for part in parts.values()]
    return TablePlan(
        sizes, tuple(tables), tuple((axes, Noise(GAUSSIAN, rate)) for axes, rate in zip(parts, rates, strict=True))
    )


def mapped(sizes, axes):
    """The matrix that adds all combinations up to a table."""
    places = np.array(list(itertools.product(*map(range, sizes))))
    rows = np.ravel_multi_index(places[:, list(axes)].T, [sizes[axis] for axis in axes]) if axes else [0] * len(places)
    matrix = np.zeros((math.prod(sizes[axis] for axis in axes), len(places)))
    matrix[rows, np.arange(len(places))] = 1
    return matrix


def best(sizes, weights, rho):
    """The least sum of mean variances that continuous noise reaches (Xiao et al. 2023, arXiv 2305.08175)."""
    total = 0.0
    for axes in below(weights):
        part = math.prod(1 - 1 / sizes[axis] for axis in axes)
        load = sum(
            weight * part / math.prod(sizes[axis] for axis in table if axis not in axes) ** 2
            for table, weight in weights.items()
            if {*axes} <= {*table}
        )
        total += math.sqrt(load * part)
    return total**2 / (2 * rho)


@pytest.mark.parametrize(
    ("sizes", "tables"),
    [
        ((2, 3, 4), [(0, 1), (1, 2), (0, 2), (0,)]),
        ((3, 1, 4), [(0, 1, 2), (1,), ()]),
        ((2, 2, 3, 2), [(0, 1, 2), (2, 3), (0, 3)]),
        ((5,), [()]),
    ],
    ids=str,
)
def test_the_fit_is_least_squares_and_its_variances_are_right(sizes, tables):
    plan, rng = planned(sizes, tables, 0.01), np.random.default_rng(45)
    true = rng.integers(0, 60, math.prod(sizes))
    counts = [mapped(sizes, axes) @ true + rng.integers(-30, 30, plan.cells(axes)) for axes, _ in plan.noises]
    matrix = np.concatenate([mapped(sizes, axes) for axes, _ in plan.noises])
    roots = np.sqrt(np.concatenate([[noise.precision] * plan.cells(axes) for axes, noise in plan.noises]))
    solve = np.linalg.pinv(matrix * roots[:, None]) * roots
    found = plan.fitted([one.astype(np.int64) for one in counts])
    assert set(found) == set(below(tables))
    for axes, table in found.items():
        to_table = mapped(sizes, axes) @ solve
        off = table.ravel() / UNITS - to_table @ np.concatenate(counts)
        assert (abs(off) * UNITS < 2 ** len(axes)).all()
        variances = ((to_table / roots) ** 2).sum(axis=1)
        assert np.allclose(variances, plan.variance(axes))
        for _ in range(3):
            mask = rng.random(plan.shape(axes)) < 0.5
            own = mask.ravel() @ to_table
            law = plan.law(axes, mask)
            assert np.isclose(sum(one.squares for one in law), ((own / roots) ** 2).sum())
            # All factors, not only their squares.
            start = 0
            for one, (of, _) in zip(law, plan.noises, strict=True):
                part = np.sort(abs(own[start : start + plan.cells(of)]))
                start += plan.cells(of)
                assert np.allclose(
                    part[part > 1e-9], np.repeat(one.factors, one.numbers)[-(part > 1e-9).sum() or None :]
                )


def check_sums(found):
    """Each table adds up to all smaller ones, to the last digit."""
    for axes, other in itertools.product(found, repeat=2):
        if {*other} < {*axes}:
            rest = tuple(place for place, axis in enumerate(axes) if axis not in other)
            assert np.array_equal(found[axes].sum(axis=rest), found[other])


@pytest.mark.parametrize("seed", range(200))
def test_random_tables_add_up_to_the_last_digit(seed):
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(1, 9, rng.integers(1, 7)).tolist())
    every = [axes for size in range(4) for axes in itertools.combinations(range(len(sizes)), size)]
    tables = [every[place] for place in rng.permutation(len(every))[: rng.integers(1, 7)]]
    plan = planned(sizes, tables, 10 ** rng.uniform(-3, 1))
    scale = 10 ** rng.uniform(0, 7)
    found = plan.fitted([rng.normal(scale, scale, plan.cells(axes)).astype(np.int64) for axes, _ in plan.noises])
    shown = {axes: table / UNITS for axes, table in found.items()}
    assert all((shown[axes] * UNITS == table).all() for axes, table in found.items())
    check_sums(shown)


@pytest.mark.parametrize(
    ("sizes", "width", "most"),
    [
        ((10,) * 10, 2, 1.10),
        ((8,) * 8, 2, 1.101),
        ((12, 9, 15, 8), 2, 1.10),
        ((4,) * 6, 3, 1.2),
        ((4,) * 6, 2, 1.2),
        ((2,) * 8, 2, 1.45),
    ],
    ids=str,
)
def test_the_mean_variance_is_close_to_the_best_of_continuous_noise(sizes, width, most):
    tables = list(itertools.combinations(range(len(sizes)), width))
    plan = planned(sizes, tables, 0.02)
    reached = sum(plan.variance(axes) for axes in tables)
    assert 1 <= reached / best(sizes, dict.fromkeys(tables, 1.0), 0.02) <= most


def test_weights_make_a_table_more_exact_and_no_other_shares_are_better():
    sizes, tables = (5, 8, 4), [(0, 1), (1, 2), (0,)]
    weights = {(0, 1): 1.0, (1, 2): 1.0, (0,): 30.0}
    plain, weighed = planned(sizes, tables, 1), planned(sizes, tables, 1, weights)
    assert weighed.variance((0,)) < 0.8 * plain.variance((0,))
    assert weighed.variance((1, 2)) > plain.variance((1, 2))

    def worth(precision):
        noises = tuple((axes, Noise(GAUSSIAN, Fraction(math.sqrt(p)))) for axes, p in precision.items())
        plan = TablePlan(sizes, tuple(tables), noises)
        return sum(weight * plan.variance(axes) for axes, weight in weights.items())

    shares = {axes: noise.precision for axes, noise in weighed.noises}
    least, rng = worth(shares), np.random.default_rng(3)
    for _ in range(300):
        other = {axes: 1e-9 + shares.get(axes, 0) * math.exp(rng.normal(0, 0.4)) for axes in below(tables)}
        other = {axes: p + 2 * rng.dirichlet(np.ones(len(other)) * 0.1)[0] * 0.05 for axes, p in other.items()}
        assert worth({axes: 2 * p / sum(other.values()) for axes, p in other.items()}) > least * 0.997


@pytest.mark.slow
@pytest.mark.parametrize("rate", [Fraction(1, 9), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(20)], ids=str)
@pytest.mark.parametrize("factors", [[1, 1, 1], [0.5, 1.25, 3], [1, 0.1, 0.01, 0.01], [7]], ids=str)
@pytest.mark.parametrize("beta", [0.05, 0.5, 0.001])
def test_bounds_of_weighted_sums_against_their_enumerated_law(rate, factors, beta):
    reach = max(1, math.ceil(6.5 / float(rate)))
    x = np.arange(-reach, reach + 1)
    one = np.exp(-((x * float(rate)) ** 2) / 2)
    one /= one.sum()
    step = 100
    law, ends = np.ones(1), 0
    for factor in factors:  # on a lattice of 1/100, on which all factors are
        spread = np.zeros(2 * round(factor * step) * reach + 1)
        spread[:: round(factor * step)] = one
        law, ends = np.convolve(law, spread), ends + round(factor * step) * reach
    at = abs(np.arange(-ends, ends + 1)) / step
    parts = [WeightedNoise.of(Noise(GAUSSIAN, rate), np.array([factor]), 1) for factor in factors]
    bound = weighted_bound(parts, beta)
    missed = law[at > bound].sum()
    assert missed <= beta
    deviation = math.sqrt(sum(one.squares for one in parts))
    assert law[at > bound - 0.04 * deviation - 2 / step].sum() > beta * 0.999 or bound < 0.04 * deviation
    together = WeightedNoise.of(Noise(GAUSSIAN, rate), np.array(factors), 1)
    assert math.isclose(weighted_bound([together], beta), bound, rel_tol=1e-3)


def test_bounds_of_equal_weights_are_those_of_sums():
    for rate, number in ((Fraction(1, 5), 40), (Fraction(1, 40), 3), (Fraction(1), 900)):
        noise = Noise(GAUSSIAN, rate)
        exact = sum_bound(noise, number, 0.05)
        found = weighted_bound([WeightedNoise.of(noise, np.ones(1), number)], 0.05)
        assert exact <= math.floor(found) <= exact * 1.02 + 1


def test_no_draws_are_not_off():
    assert weighted_bound([WeightedNoise.of(Noise(GAUSSIAN, Fraction(1)), np.zeros(4), 3)], 0.05) == 0


# --- Without negative numbers ---


@pytest.mark.parametrize(
    ("sizes", "tables"),
    [
        ((4, 3, 5), [(0, 1), (1, 2), (0,)]),
        ((3, 4), [(0, 1), (0,), ()]),
        ((5, 1, 6), [(0, 1, 2)]),
        ((2,) * 5, [(0, 1, 2), (2, 3, 4), (0, 4)]),
    ],
    ids=str,
)
def test_no_nearer_tables_are_without_negative_numbers(sizes, tables):
    plan, rng = planned(sizes, tables, 0.02), np.random.default_rng(7)
    true = rng.poisson(1.5, math.prod(sizes)) * (rng.random(math.prod(sizes)) < 0.4)
    counts = [
        mapped(sizes, axes) @ true + np.rint(rng.normal(0, noise.precision**-0.5, plan.cells(axes)))
        for axes, noise in plan.noises
    ]
    fitted = {axes: table / UNITS for axes, table in plan.fitted([one.astype(np.int64) for one in counts]).items()}
    assert min(table.min() for table in fitted.values()) < -1
    found = {axes: table / UNITS for axes, table in plan.nonnegative({axes: fitted[axes] for axes in tables}).items()}
    assert min(table.min() for table in found.values()) >= 0
    check_sums(found)

    def slope(change):
        """The derivative of the squared distance, by all histograms that were drawn, towards a change of all tables."""
        total = 0.0
        for axes, noise in plan.noises:
            total += noise.precision * float(((found[axes] - fitted[axes]) * change[axes]).sum())
        return total

    deviation = math.sqrt(max(plan.variance(axes) for axes in found))
    for _ in range(400):
        # A small table of people at random, on few combinations: no negative number, and all tables of it agree.
        x = rng.exponential(1, math.prod(sizes)) * (rng.random(math.prod(sizes)) < rng.uniform(0.02, 1))
        x *= rng.uniform(0, 2) * found[()].item() / max(x.sum(), 1e-9)
        other = {axes: (mapped(sizes, axes) @ x).reshape(plan.shape(axes)) for axes in found}
        size = sum(noise.precision * float(((other[a] - found[a]) ** 2).sum()) for a, noise in plan.noises) ** 0.5
        assert slope({axes: other[axes] - found[axes] for axes in found}) > -0.05 * size * (1 + 1 / deviation)
