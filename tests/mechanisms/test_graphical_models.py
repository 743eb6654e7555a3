"""Graphical models, fitted by `mbi`: against all combinations, added up one by one."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms.graphical_models import Measured, cells_of, fit
from dp_polars._mechanisms.residuals import Noise
from tests.helpers.needs import need

with warnings.catch_warnings():  # of JAX's settings
    warnings.simplefilter("ignore")
    need("mbi")

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


def measured_of(tables, seed):
    rng = np.random.default_rng(seed)
    true, found = rng.gamma(0.5, 40, SIZES), []
    for axes in [*tables, tables[0]]:  # one of them is measured twice
        counts = summed(true, axes)
        found.append(Measured(axes, NOISE, counts + np.rint(rng.normal(0, 4, len(counts)))))
    return found


@pytest.fixture(scope="module", params=TABLES)
def fitted(request):
    measured = measured_of(TABLES[request.param], len(request.param))
    return measured, fit(SIZES, measured)


def test_tables_are_sums_over_all_combinations(fitted):
    _, model = fitted
    logs = np.zeros(SIZES)
    for axes, factor in model.fitted.potentials.tables.items():
        order = np.argsort(axes)
        own = np.asarray(factor.values).transpose(order)
        logs = logs + own.reshape([size if axis in axes else 1 for axis, size in enumerate(SIZES)])
    weights = np.exp(logs - logs.max())
    weights *= model.total / weights.sum()
    for width in (1, 2, 3):
        for axes in itertools.permutations(EVERY, width):
            np.testing.assert_allclose(model.table(axes), summed(weights, axes), atol=1e-6)


def test_a_fit_is_where_the_loss_is_least(fitted):
    measured, model = fitted
    rng = np.random.default_rng(3)
    off = [(model.table(one.axes) - one.counts) / one.noise.variance for one in measured]
    size = math.sqrt(sum(float((one**2).sum()) * 16 for one in off))
    for _ in range(300):
        # The derivative of the loss, towards any other distribution of the same total.
        other = rng.exponential(1, SIZES) * (rng.random(SIZES) < rng.uniform(0.02, 1)) + 1e-9
        other *= model.total / other.sum()
        moves = [summed(other, one.axes) - model.table(one.axes) for one in measured]
        length = math.sqrt(sum(float((move**2).sum()) / 16 for move in moves))
        slope = sum(float(a @ b) for a, b in zip(off, moves, strict=True))
        assert slope > -0.02 * (size + 1) * length
    again = fit(SIZES, measured, model)
    for one in measured:
        np.testing.assert_allclose(again.table(one.axes), model.table(one.axes), atol=1)


def test_a_fit_starts_with_potentials_of_fewer_tables(fitted):
    measured, model = fitted
    more = [*measured, *measured_of([(0, 1), (2, 4)], 9)]
    warm, cold = fit(SIZES, more, model), fit(SIZES, more)
    for one in more:
        np.testing.assert_allclose(warm.table(one.axes), cold.table(one.axes), atol=1)


def test_places_for_more_tables_change_nothing(fitted):
    measured, model = fitted
    other = fit(SIZES, measured, model, places=[(1, 3), (2, 4)])
    assert len(other.fitted.potentials.cliques) == len({(1, 3), (2, 4), *(one.axes for one in measured)})
    for one in measured:
        np.testing.assert_allclose(other.table(one.axes), model.table(one.axes), atol=1)
    for axes in itertools.permutations(EVERY, 3):
        np.testing.assert_allclose(other.table(axes), model.table(axes), atol=2)


def test_rows_have_the_tables_of_the_model_but_for_chance(fitted):
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


def test_a_model_holds_the_numbers_of_its_cliques():
    assert cells_of(SIZES, TABLES["a tree"]) == 2 + 3 * 4 + 4 * 3 + 3 * 1
    assert cells_of(SIZES, TABLES["a wide one"]) == 3 * 3 * 4 + 2 * 1
    assert cells_of(SIZES, TABLES["a circle"]) in {3 * 2 * 4 + 3 * 4 * 3 + 1, 3 * 2 * 3 + 2 * 4 * 3 + 1}


def test_fits_are_in_float64_and_leave_no_setting():
    jax = need("jax")
    before = jax.config.jax_enable_x64, jax.config.jax_enable_compilation_cache
    model = fit((2, 2), [Measured((0, 1), NOISE, np.array([2**40, 2**39, 2**39, 2**40 + 200]))])
    assert (jax.config.jax_enable_x64, jax.config.jax_enable_compilation_cache) == before
    assert np.asarray(next(iter(model.fitted.potentials.tables.values())).values).dtype == np.float64
    np.testing.assert_allclose(model.table((0,)), [2**40 + 2**39, 2**40 + 2**39 + 200], atol=16)
