"""Known values of the permute-and-flip paper (McKenna & Sheldon 2020, arXiv 2010.12603)."""

import itertools
import math
import sys

import numpy as np
import pytest

from dp_polars import analysis
from tests.helpers.needs import need
from tests.registry import MECHANISMS


def worst_case(n, mechanism):
    """Return the largest expected error over scores (0, −g, …, −g) with λ = 1, and p = exp(−g) there."""

    def error(p):
        gap = -math.log(p)
        scores = np.r_[0.0, np.full(n - 1, -gap)]
        return analysis.expected_error(scores, epsilon=1, monotonic=True, mechanism=mechanism)

    # The error has one peak: golden section on log p.
    low, high, golden = -math.log(n) - 5.0, -1e-3, (math.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        a, b = high - golden * (high - low), low + golden * (high - low)
        if error(math.exp(a)) < error(math.exp(b)):
            low = a
        else:
            high = b
    return error(math.exp(low)), math.exp(low)


def test_largest_errors_for_three_candidates():
    for mechanism, error, p in zip(MECHANISMS, (0.6515, 0.9261), (0.321, 0.232), strict=True):
        found, at = worst_case(3, mechanism)
        # ε = Δ = 1: the unit 2Δ/ε is 2.
        assert 2 * found == pytest.approx(error, abs=5e-5)
        assert at == pytest.approx(p, abs=5e-4)


@pytest.mark.parametrize(
    ("n", "exponential", "flip"),
    [
        (2, 0.27846, 0.18394),
        (10, 1.10100, 0.89323),
        (100, 2.62865, 2.42793),
        (1000, 4.42050, 4.26541),
        (10_000, 6.36018, 6.23992),
    ],
)
def test_worst_cases(n, exponential, flip):
    assert worst_case(n, "exponential")[0] == pytest.approx(exponential, abs=5e-6)
    assert worst_case(n, "permute_and_flip")[0] == pytest.approx(flip, abs=5e-6)


def ratio_to_optimum(n, levels, epsilon, mechanism="permute_and_flip"):
    scores, orders = analysis.lattice_scores(n, levels)
    errors = [analysis.expected_error(row, epsilon=epsilon, mechanism=mechanism) for row in scores]
    return np.average(errors, weights=orders) / analysis.optimal_expected_error(n, levels, epsilon)


@pytest.mark.parametrize(("n", "levels"), [(2, 4), (3, 4), (4, 4), (6, 4), (4, 2), (4, 8)])
def test_permute_and_flip_is_optimal_above_the_threshold_of_theorem_3(n, levels):
    need("scipy")
    threshold = 2 * math.log((1 + math.sqrt(5)) / 2)
    for epsilon in (threshold, 1.3, 2):
        assert ratio_to_optimum(n, levels, epsilon) == pytest.approx(1, abs=1e-6)
        assert ratio_to_optimum(n, levels, epsilon, "exponential") > 1.05


def test_permute_and_flip_is_nearly_optimal_below_it():
    need("scipy")
    ratios = [ratio_to_optimum(4, 8, epsilon) for epsilon in (0.1, 0.2, 0.3, 0.35, 0.375, 0.4, 0.5, 0.6, 0.65)]
    assert min(ratios) > 1 + 1e-4
    assert max(ratios) == pytest.approx(1.011, abs=5e-4)


def least_error(n, lowest, highest, epsilon, scored, *, by_differences):
    """The least mean error over the vectors `scored` of any ε-DP mechanism on all integer scores, by its own program.

    Neighbours are vectors that differ by at most 1 in every score. Scores outside lowest … highest are clipped into it
    first, which brings neighbours closer; so the best mechanism on the box is one for all scores.
    """
    from scipy import optimize, sparse

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
    solution = optimize.linprog(
        cost,
        A_ub=private,
        b_ub=np.zeros(len(rows)),
        A_eq=sparse.csr_array((np.ones(size), (np.repeat(np.arange(len(variable)), n), np.arange(size)))),
        b_eq=np.ones(len(variable)),
        method="highs",
    )
    return solution.fun


@pytest.mark.parametrize(("epsilon", "least", "flip"), [(1, 0.3153, 0.3818), (2, 0.1160, 0.1494)])
def test_permute_and_flip_is_optimal_only_among_mechanisms_that_look_at_differences(epsilon, least, flip):
    need("scipy")
    scored = [vector for vector in itertools.product((0, -2), repeat=3) if max(vector) == 0]
    error = np.mean([analysis.expected_error(vector, epsilon=epsilon) for vector in scored])
    assert error == pytest.approx(flip, abs=5e-5)
    # The counterexample: what sees the scores themselves errs a fifth less.
    assert least_error(3, -3, 1, epsilon, scored, by_differences=False) == pytest.approx(least, abs=5e-5)
    # The control: the same program over mechanisms that see differences only gives permute-and-flip's error.
    assert least_error(3, -3, 1, epsilon, scored, by_differences=True) == pytest.approx(error, abs=1e-6)
    assert analysis.optimal_expected_error(3, 2, epsilon) == pytest.approx(error, abs=1e-6)


def test_the_lattice():
    scores, orders = analysis.lattice_scores(3, 3)
    assert scores.tolist() == [[0, 0, 0], [0, 0, -2], [0, 0, -4], [0, -2, -2], [0, -2, -4], [0, -4, -4]]
    assert orders.tolist() == [1, 3, 3, 3, 6, 3]
    # All vectors with a best score of 0: those of three levels without those of two.
    assert orders.sum() == 3**3 - 2**3
    assert analysis.lattice_scores(1, 5)[0].tolist() == [[0]]


def test_the_linear_program_by_hand():
    need("scipy")
    # Two candidates, two levels: P(worse) = p at (0, −1), 1/2 at (0, 0), and p >= exp(−ε)/2. Two vectors of
    # three.
    for epsilon in (0.1, 1, 3):
        expected = 2 / 3 * 2 * math.exp(-epsilon) / 2
        assert analysis.optimal_expected_error(2, 2, epsilon) == pytest.approx(expected, rel=1e-9)
    assert analysis.optimal_expected_error(1, 3, 1) == 0
    assert analysis.optimal_expected_error(3, 1, 1) == 0


def test_bad_lattices(monkeypatch):
    for n, levels, name in ((0, 2, "n must"), (2, 0, "levels must")):
        with pytest.raises(ValueError, match=name):
            analysis.optimal_expected_error(n, levels, 1)
    with pytest.raises(TypeError, match="n must be an integer"):
        analysis.optimal_expected_error(2.5, 2, 1)
    with pytest.raises(ValueError, match="epsilon must"):
        analysis.optimal_expected_error(2, 2, 0)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "scipy.optimize", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dp-polars\[analysis\]'"):
        analysis.optimal_expected_error(2, 2, 1)


def test_the_mode_of_hepth(dpbench):
    counts = np.load(dpbench / "HEPTH.n4096.npy").reshape(1024, -1).sum(axis=1)
    errors = {m: analysis.expected_error(counts, epsilon=0.04, monotonic=True, mechanism=m) for m in MECHANISMS}
    assert errors["exponential"] / errors["permute_and_flip"] == pytest.approx(1.84, abs=0.005)
    needed = analysis.loss_for(
        counts, expected_error=errors["permute_and_flip"], monotonic=True, mechanism="exponential"
    )
    assert needed / 0.04 == pytest.approx(1.27, abs=0.005)


def test_laplace_noise_gets_worse_without_end_beside_permute_and_flip():
    for exponent in (0.01, 1, 5, 30):
        laplace, exponential, flip = (
            analysis.selection_probabilities([0, -exponent], epsilon=1, monotonic=True, mechanism=m)[1]
            for m in ("report_noisy_max_laplace", "exponential", "permute_and_flip")
        )
        assert laplace / flip == pytest.approx(1 + exponent / 2, rel=1e-9)
        assert exponential / flip == pytest.approx(2 / (1 + math.exp(-exponent)), rel=1e-9)
