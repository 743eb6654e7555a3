"""The linear program of examples/lattice.py: by hand, by Theorem 3 of the paper, and against another program."""

import itertools
import math

import numpy as np
import pytest

from dp_polars import analysis
from tests.helpers.needs import need

need("scipy")

from lattice import lattice_scores, optimal_expected_error
from scipy import optimize, sparse


def ratio_to_optimum(n, levels, epsilon, mechanism="permute_and_flip"):
    scores, orders = lattice_scores(n, levels)
    errors = [analysis.scores.expected_error(row, epsilon=epsilon, mechanism=mechanism) for row in scores]
    return np.average(errors, weights=orders) / optimal_expected_error(n, levels, epsilon)


@pytest.mark.parametrize(("n", "levels"), [(2, 4), (3, 4), (4, 4), (6, 4), (4, 2), (4, 8)])
def test_permute_and_flip_is_optimal_above_the_threshold_of_theorem_3(n, levels):
    threshold = 2 * math.log((1 + math.sqrt(5)) / 2)
    for epsilon in (threshold, 1.3, 2):
        assert ratio_to_optimum(n, levels, epsilon) == pytest.approx(1, abs=1e-6)
        assert ratio_to_optimum(n, levels, epsilon, "exponential") > 1.05


def test_permute_and_flip_is_nearly_optimal_below_it():
    ratios = [ratio_to_optimum(4, 8, epsilon) for epsilon in (0.1, 0.2, 0.3, 0.35, 0.375, 0.4, 0.5, 0.6, 0.65)]
    assert min(ratios) > 1 + 1e-4
    assert max(ratios) == pytest.approx(1.011, abs=5e-4)


def least_error(n, lowest, highest, epsilon, scored, *, by_differences):
    """The least mean error over the vectors `scored` of any ε-DP mechanism on all integer scores, by its own program.

    Neighbours are vectors that differ by at most 1 in every score. Scores outside lowest … highest are clipped into it
    first, which brings neighbours closer; so the best mechanism on the box is one for all scores.
    """
    vectors = list(itertools.product(range(lowest, highest + 1), repeat=n))
    # One distribution for each vector, or for all with the same differences.
    classes = [tuple(np.subtract(v, max(v)).tolist()) for v in vectors] if by_differences else vectors
    variable = {key: i for i, key in enumerate(dict.fromkeys(classes))}
    at = {vector: variable[key] for vector, key in zip(vectors, classes, strict=True)}
    steps = [step for step in itertools.product((-1, 0, 1), repeat=n) if any(step)]
    moved = ((vector, tuple(np.add(vector, step).tolist())) for vector in vectors for step in steps)
    pairs = np.array(sorted({(at[one], at[other]) for one, other in moved if other in at and at[one] != at[other]}))
    larger, smaller = ((column[:, None] * n + np.arange(n)).ravel() for column in pairs.T)
    rows, size = np.arange(len(larger)), len(variable) * n
    private = sparse.csr_array(
        (np.repeat([math.exp(-epsilon), -1.0], len(rows)), (np.tile(rows, 2), np.append(larger, smaller))),
        shape=(len(rows), size),
    )
    cost = np.zeros(size)
    for vector in scored:
        cost[at[vector] * n + np.arange(n)] += (max(vector) - np.array(vector)) / len(scored)
    sums = sparse.csr_array((np.ones(size), (np.repeat(np.arange(len(variable)), n), np.arange(size))))
    below, equal = {"A_ub": private, "b_ub": np.zeros(len(rows))}, {"A_eq": sums, "b_eq": np.ones(len(variable))}
    return optimize.linprog(cost, **below, **equal, method="highs").fun


@pytest.mark.parametrize(("epsilon", "least", "flip"), [(1, 0.3153, 0.3818), (2, 0.1160, 0.1494)])
def test_permute_and_flip_is_optimal_only_among_mechanisms_that_look_at_differences(epsilon, least, flip):
    scored = [vector for vector in itertools.product((0, -2), repeat=3) if max(vector) == 0]
    error = np.mean([analysis.scores.expected_error(vector, epsilon=epsilon) for vector in scored])
    assert error == pytest.approx(flip, abs=5e-5)
    # The counterexample: what sees the scores themselves errs a fifth less.
    assert least_error(3, -3, 1, epsilon, scored, by_differences=False) == pytest.approx(least, abs=5e-5)
    # The control: the same program over mechanisms that see differences only gives permute-and-flip's error.
    assert least_error(3, -3, 1, epsilon, scored, by_differences=True) == pytest.approx(error, abs=1e-6)
    assert optimal_expected_error(3, 2, epsilon) == pytest.approx(error, abs=1e-6)


def test_the_lattice():
    scores, orders = lattice_scores(3, 3)
    assert scores.tolist() == [[0, 0, 0], [0, 0, -2], [0, 0, -4], [0, -2, -2], [0, -2, -4], [0, -4, -4]]
    assert orders.tolist() == [1, 3, 3, 3, 6, 3]
    # All vectors with a best score of 0: those of three levels without those of two.
    assert orders.sum() == 3**3 - 2**3
    assert lattice_scores(1, 5)[0].tolist() == [[0]]


def test_the_linear_program_by_hand():
    # Two candidates, two levels: P(worse) = p at (0, −1), 1/2 at (0, 0), and p >= exp(−ε)/2. Two vectors of
    # three.
    for epsilon in (0.1, 1, 3):
        expected = 2 / 3 * 2 * math.exp(-epsilon) / 2
        assert optimal_expected_error(2, 2, epsilon) == pytest.approx(expected, rel=1e-9)
    assert optimal_expected_error(1, 3, 1) == 0
    assert optimal_expected_error(3, 1, 1) == 0
