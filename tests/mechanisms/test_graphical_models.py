"""Graphical models: against all combinations, added up one by one."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms.graphical_models import Measured, Model, cells_of, fit, spread, summed_to
from dp_polars._mechanisms.residuals import Noise


def some_tables(rng, most, values):
    """Return sizes of dimensions, and tables of up to three of them."""
    dimensions = int(rng.integers(1, most + 1))
    sizes = tuple(int(size) for size in rng.integers(1, values + 1, dimensions))
    wide = [int(rng.integers(1, min(3, dimensions) + 1)) for _ in range(rng.integers(1, 2 * dimensions + 1))]
    tables = [tuple(sorted(rng.choice(dimensions, width, replace=False).tolist())) for width in wide]
    return sizes, [*dict.fromkeys(tables)]


def shares_of(sizes, logs):
    """Return the shares of all combinations."""
    every, added = tuple(range(len(sizes))), np.zeros(sizes)
    for axes, log in logs.items():
        added = added + spread(log, axes, every)
    weights = np.exp(added - added.max())
    return weights / weights.sum()


@pytest.mark.parametrize(("most", "values", "seed"), [(5, 5, 1), (9, 3, 2), (3, 9, 3)])
def test_tables_are_sums_over_all_combinations(most, values, seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        sizes, tables = some_tables(rng, most, values)
        logs = {axes: rng.normal(0, 2, [sizes[axis] for axis in axes]) for axes in tables}
        model, shares = Model(sizes, logs, 7.0), shares_of(sizes, logs)
        every = tuple(range(len(sizes)))
        for width in (1, 2, 3):
            for axes in itertools.permutations(every, min(width, len(sizes))):
                np.testing.assert_allclose(model.table(axes), 7 * summed_to(shares, every, axes).ravel(), atol=1e-9)
        assert cells_of(sizes, tables) <= sum(math.prod(sizes) for _ in sizes)


def test_potentials_that_floats_do_not_hold_are_cut():
    logs = {(0, 1): np.array([[0.0, -5000.0], [-5000.0, 0.0]]), (1, 2): np.array([[3000.0, 0.0], [0.0, 3000.0]])}
    model = Model((2, 2, 2), logs, 10.0)
    np.testing.assert_allclose(model.table((0, 2)), [5, 0, 0, 5], atol=1e-9)
    assert all(len({*row}) == 1 for row in zip(*(codes.tolist() for codes in model.rows(100)), strict=True))


@pytest.mark.parametrize("ridge", [0.01, 0.3])
def test_a_fit_is_where_the_loss_is_least(ridge):
    rng = np.random.default_rng(8)
    for _ in range(10):
        sizes, tables = some_tables(rng, 5, 4)
        true = rng.gamma(0.5, 40, sizes)
        every, noise = tuple(range(len(sizes))), Noise("discrete_gaussian", Fraction(1, 4))
        measured = []
        for axes in [*tables, tables[0]]:  # one of them is measured twice
            counts = summed_to(true, every, axes).ravel()
            measured.append(Measured(axes, noise, counts + np.rint(rng.normal(0, 4, len(counts)))))
        model = fit(sizes, measured, ridge=ridge)
        for axes in tables:
            own = [one.counts for one in measured if one.axes == axes]
            # The derivative by each potential: how far the table is off, and what the potential costs.
            off = len(own) * (model.table(axes) - np.mean(own, axis=0)) / 16 + ridge * model.logs[axes].ravel()
            assert abs(off).mean() < 0.05
        again = fit(sizes, measured, model, ridge)
        for axes in tables:
            np.testing.assert_allclose(again.table(axes), model.table(axes), atol=1)


def test_rows_have_the_tables_of_the_model_but_for_chance():
    rng, many = np.random.default_rng(9), 20_000
    for _ in range(6):
        sizes, tables = some_tables(rng, 6, 4)
        model = Model(sizes, {axes: rng.normal(0, 1, [sizes[axis] for axis in axes]) for axes in tables}, float(many))
        rows = model.rows(many)
        assert [len(codes) for codes in rows] == [many] * len(sizes)
        for axes in tables:
            shape = [sizes[axis] for axis in axes]
            counts = np.bincount(np.ravel_multi_index([rows[axis] for axis in axes], shape), minlength=math.prod(shape))
            assert (abs(counts - model.table(axes)) < 6 * np.sqrt(model.table(axes) + 1)).all()
    assert [len(codes) for codes in model.rows(1)] == [1] * len(sizes)
