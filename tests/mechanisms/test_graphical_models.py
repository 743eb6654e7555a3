"""Graphical models: against all combinations, added up one by one."""

import collections
import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms import graphical_models
from dp_polars._mechanisms.graphical_models import Measured, cells_of, fit
from dp_polars._mechanisms.residuals import Noise
from tests.helpers.needs import need

need("scipy")

SIZES, NOISE = (3, 2, 4, 3, 1), Noise("discrete_gaussian", Fraction(1, 4))
EVERY = tuple(range(len(SIZES)))
TABLES = {
    "a tree": [(0,), (1,), (0, 2), (2, 3), (3, 4)],
    "a circle": [(0, 1), (1, 2), (2, 3), (0, 3), (4,)],
    "a wide one": [(3, 0, 2), (1,), (1, 4)],
    "not all dimensions": [(0, 2), (2,), (3,)],
}


def summed(table, axes):
    """Return the sums of a table of all dimensions, over all but some, in their order."""
    return np.einsum(table, list(EVERY), list(axes)).ravel()


def measured_of(tables, seed, noise=NOISE):
    rng = np.random.default_rng(seed)
    true, found = rng.gamma(0.5, 40, SIZES), []
    for axes in [*tables, tables[0]]:  # one of them is measured twice
        counts = summed(true, axes)
        found.append(Measured(axes, noise, counts + np.rint(rng.normal(0, 4, len(counts)))))
    return found


@pytest.fixture(scope="module", params=TABLES)
def fitted(request):
    measured = measured_of(TABLES[request.param], len(request.param))
    return measured, fit(SIZES, measured)


def test_tables_are_sums_over_all_combinations(fitted):
    _, model = fitted
    logs = np.zeros(SIZES)
    for axes, potentials in model.potentials.items():
        logs = logs + potentials.reshape([size if axis in axes else 1 for axis, size in enumerate(SIZES)])
    weights = np.exp(logs - logs.max())
    weights *= model.total / weights.sum()
    for width in (1, 2, 3):
        for axes in itertools.permutations(EVERY, width):
            np.testing.assert_allclose(model.table(axes), summed(weights, axes), atol=1e-6)


def test_a_fit_is_where_each_number_is_off_by_its_potential(fitted):
    assert ridges_of(*fitted) == {graphical_models._RIDGE}


def test_of_much_noise_and_many_tables_each_number_is_further_off():
    measured = measured_of([*itertools.combinations(EVERY, 2)], 3, Noise("discrete_gaussian", Fraction(1, 100)))
    ridges = ridges_of(measured, fit(SIZES, measured))
    assert min(ridges) == graphical_models._RIDGE
    assert max(ridges) > 1.5 * graphical_models._RIDGE


def ridges_of(measured, model):
    """Return the ridges of all tables, by which a fit ended in the right place."""
    found = set()
    several = collections.Counter(tuple(sorted(one.axes)) for one in measured)
    assert {*model.potentials} == {*several}
    many = sum(len(axes) > 1 for axes in several) / len(SIZES)
    for axes, potentials in model.potentials.items():
        noise = math.sqrt(measured[0].noise.variance / several[axes])
        counts = sum(as_sorted(one) for one in measured if {*one.axes} == {*axes}) / several[axes]
        ridge = graphical_models._RIDGE_OF_MANY * many * math.sqrt(noise * len(counts) / model.total)
        found.add(max(graphical_models._RIDGE, ridge))
        # There the derivative of a convex function is 0: it is where it is least.
        slope = model.table(axes) - counts + max(graphical_models._RIDGE, ridge) * noise * potentials
        assert abs(slope).max() <= graphical_models._NEAR * noise
    return found


def as_sorted(one):
    shaped = one.counts.reshape([SIZES[axis] for axis in one.axes])
    return shaped.transpose(np.argsort(one.axes)).ravel()


def test_a_fit_starts_with_potentials_of_fewer_tables(fitted, monkeypatch):
    measured, model = fitted
    more = [*measured, *measured_of([(0, 1), (2, 4)], 9)]
    warm, cold = fit(SIZES, more, model), fit(SIZES, more)
    for one in more:
        np.testing.assert_allclose(warm.table(one.axes), cold.table(one.axes), atol=2 * graphical_models._NEAR * 4)
    calls, shares = [], graphical_models._Elimination.shares
    monkeypatch.setattr(graphical_models._Elimination, "shares", lambda *given: calls.append(given) or shares(*given))
    fit(SIZES, measured, model)
    from_model = len(calls)
    fit(SIZES, measured)
    assert from_model < (len(calls) - from_model) / 2


def test_what_is_certain_is_fitted():
    rng = np.random.default_rng(7)
    true = np.rint(rng.gamma(0.3, 400, SIZES))
    pairs = [*itertools.combinations(EVERY, 2)]
    model = fit(SIZES, [Measured(axes, Noise("discrete_gaussian", Fraction(2)), summed(true, axes)) for axes in pairs])
    for axes in pairs:
        np.testing.assert_allclose(model.table(axes), summed(true, axes), atol=0.5)
    assert model.off < 5  # of 50 numbers and more


@pytest.mark.parametrize("size", [1, 400])
def test_extreme_potentials_neither_overflow_nor_vanish(size):
    tables = [(0, 1), (1, 2), (0, 2)]
    extreme = {axes: np.full(3 * 3, -1000.0 * size) for axes in tables}
    for of in extreme.values():
        of[::4] = 1000.0 * size
    model = graphical_models.Model((3, 3, 3), 90.0, extreme, {})
    np.testing.assert_allclose(model.table((0, 1)), 30 * np.eye(3).ravel())
    np.testing.assert_allclose(model.table((2, 0, 1)).reshape(3, 3, 3)[1], 30 * np.diag([0, 1, 0]))


@pytest.fixture(scope="module")
def mbi():
    with warnings.catch_warnings():  # of JAX's settings
        warnings.simplefilter("ignore")
        return need("mbi")


def test_rows_have_the_tables_of_the_model_but_for_chance(fitted, mbi):
    measured, model = fitted
    many = 20_000
    rows = model.rows(many)
    assert [len(codes) for codes in rows] == [many] * len(SIZES)
    for one in measured:
        shape = [SIZES[axis] for axis in one.axes]
        codes = np.ravel_multi_index([rows[axis] for axis in one.axes], shape)
        counts, wanted = np.bincount(codes, minlength=math.prod(shape)), model.table(one.axes) * (many / model.total)
        assert (abs(counts - wanted) < 6 * np.sqrt(wanted + 1)).all()
    assert [len(codes) for codes in model.rows(1)] == [1] * len(SIZES)


def test_a_model_holds_the_numbers_of_its_largest_sums():
    assert cells_of(SIZES, TABLES["a tree"]) == 2 + 3 * 4 + 4 * 3 + 3 * 1
    assert cells_of(SIZES, TABLES["a wide one"]) == 3 * 3 * 4 + 2 * 1
    assert cells_of(SIZES, TABLES["a circle"]) == 3 * 2 * 3 + 2 * 4 * 3 + 1
    pairs = [*itertools.combinations(EVERY, 2)]
    assert cells_of(SIZES, pairs) == math.prod(SIZES)
    assert cells_of((2,) * 30, itertools.pairwise(range(30))) == 29 * 4
    assert cells_of((2,) * 30, [(0, other) for other in range(1, 30)]) == 29 * 4


def test_rows_are_drawn_in_float64_and_leave_no_setting(mbi):
    jax = need("jax")
    before = jax.config.jax_enable_x64, jax.config.jax_enable_compilation_cache
    counts = np.array([2**30, 2**29, 2**29, 2**30 + 10**5])
    model = fit((2, 2), [Measured((0, 1), NOISE, counts)])
    assert abs(model.table((0, 1)) - counts).max() < 8
    assert len(model.rows(10)[0]) == 10
    assert (jax.config.jax_enable_x64, jax.config.jax_enable_compilation_cache) == before
