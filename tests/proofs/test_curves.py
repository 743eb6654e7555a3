"""What the proofs of docs/proofs rest on, checked by code of its own: the curves of rho, gaps, adaptive losses."""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from flint import arb, ctx

import dp_polars as dpp
from dp_polars._accounting.costs import bounded_range_rho, laplace_rho, pure_rho
from tests.helpers import reference

LOSSES = [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(3), Fraction(10), Fraction(30)]
ORDERS = ["1.0000001", "1.01", "1.3", "2", "3.5", "10", "1000"]


def ball(x):
    return arb(x.numerator) / x.denominator


# The Laplace mechanism


def divergence_of_laplace(x, order):
    """D of two Laplace laws of the scale 1 that are x apart (Mironov 2017, Proposition 6)."""
    ends = order * ((order - 1) * x).exp() + (order - 1) * (-order * x).exp()
    return (ends / (2 * order - 1)).log() / (order - 1)


@pytest.mark.parametrize("x", LOSSES, ids=str)
def test_the_laplace_mechanism_has_its_rho_at_every_order(x):
    with ctx.workdps(100):
        rho = ball(laplace_rho(x))
        for order in map(arb, ORDERS):
            assert divergence_of_laplace(ball(x), order) < order * rho
        near_one = 1 + arb(10) ** -30
        assert divergence_of_laplace(ball(x), near_one) > rho * (1 - arb(10) ** -25)


@pytest.mark.parametrize("x", LOSSES, ids=str)
def test_the_laplace_divergence_is_that_function(x):
    with ctx.workdps(100):
        for order in map(arb, ORDERS):
            s, exact = order - arb("0.5"), ball(x)
            g = (s * exact).cosh() + (s * exact).sinh() / (2 * s)
            assert ((-exact / 2 + g.log()) / (order - 1)).overlaps(divergence_of_laplace(exact, order))


def zeros_inside(x, radius):
    """How often g(u) = cosh(x√u) + sinh(x√u)/(2√u) turns around 0 as u goes around a circle: its zeros inside."""
    angles = np.linspace(0, 2 * math.pi, 20_001)
    root = np.sqrt(radius * np.exp(1j * angles) + 0j)
    values = np.cosh(x * root) + np.sinh(x * root) / (2 * root)
    turned = np.unwrap(np.angle(values))
    assert abs(np.diff(turned)).max() < 1  # so no turn was missed
    return round((turned[-1] - turned[0]) / (2 * math.pi))


@pytest.mark.parametrize("x", [0.01, 0.5, 1, 4, 20])
def test_the_zeros_of_the_laplace_mechanisms_function_are_real_and_below_zero(x):
    # Between its zeros on the negative axis g changes its sign: u = −(z/x)², cos z + (x/2)·sin(z)/z.
    for z in (7.0, 20.0, 50.0):
        points = np.linspace(1e-9, z, 100_001)
        on_the_axis = np.cos(points) + x / 2 * np.sin(points) / points
        assert zeros_inside(x, (z / x) ** 2) == np.count_nonzero(np.diff(np.sign(on_the_axis)))


# The exponential mechanism


def softplus(theta):
    return np.logaddexp(0, theta)


def most_at(x, order, steps=200_001):
    """The largest rho at an order of pairs with two answers and bounded range x."""
    theta = np.linspace(-order * x - 40, 40, steps)
    a, b, c = (softplus(theta + step) for step in (0, x, order * x))
    return ((c - a - order * (b - a)) / (order * (order - 1))).max()


@pytest.mark.parametrize("x", [0.3, 1, 4, 12])
def test_bounded_range_loses_less_at_larger_orders(x):
    found = [most_at(x, order) for order in (1.01, 1.1, 1.5, 2, 3, 6, 20)]
    assert (np.diff(found) < 0).all()
    rho = float(bounded_range_rho(Fraction(x)))
    assert rho * 0.97 < found[0] < rho


def test_two_answers_are_the_worst_case_of_bounded_range():
    rng = np.random.default_rng(3)
    for _ in range(200):
        x, size = rng.uniform(0.1, 6), int(rng.integers(2, 6))
        q = rng.dirichlet(np.ones(size))
        p = q * np.exp(rng.uniform(0, x, size))
        p /= p.sum()
        for order in (1.001, 1.5, 3.0, 10.0):
            divergence = math.log((q * (p / q) ** order).sum()) / (order - 1)
            assert divergence <= order * most_at(x, order, 4_001) * (1 + 1e-3)


# Whatever is pure


@pytest.mark.parametrize("x", LOSSES, ids=str)
def test_the_divergence_of_randomized_response_is_that_of_the_proof(x):
    with ctx.workdps(60):
        p = 1 / (1 + (-ball(x)).exp())
        for order in map(arb, ORDERS):
            power = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
            stated = ((order - arb("0.5")) * ball(x)).cosh() / (ball(x) / 2).cosh()
            assert power.overlaps(stated)
            assert stated.log() / (order - 1) < order * ball(pure_rho(x))
        slope = ball(x) * (ball(x) / 2).tanh()  # of ln cosh(x√u) at u = 1/4
        middle, off = arb("0.25"), arb(10) ** -20
        rise = ((middle + off).sqrt() * ball(x)).cosh().log() - ((middle - off).sqrt() * ball(x)).cosh().log()
        assert abs(rise / (2 * off) - slope) < arb(10) ** -15


# Gaps


def test_a_gap_is_as_near_to_the_true_one_as_is_said():
    scores, groups, epsilon, beta = np.array([40, 37, 37, 30, 12]), 20_000, 0.5, 0.05
    rows = pl.DataFrame({"g": np.repeat(np.arange(groups), len(scores)), "q": np.tile(scores, groups)})
    drawn = pl.col("q").dp.argmax(sensitivity=1, monotonic=True, epsilon=epsilon, gap=True, gap_step=1)
    found = rows.group_by("g").agg(drawn.alias("drawn"))["drawn"]
    true = np.array([q - np.delete(scores, i).max() for i, q in enumerate(scores)])
    answers = found.struct.field("answer").to_numpy()
    off = found.struct.field("gap").to_numpy() - true[answers]
    bound = math.log(len(scores) / beta) / epsilon
    # Rounded down, by less than 1.
    assert np.mean((off > bound) | (off < -bound - 1)) <= beta + 4 * math.sqrt(beta / groups)
    assert np.mean(abs(off) > bound / 3) > beta  # so a bound of a third would be found out


# Adaptive queries


@pytest.mark.parametrize(("mechanism", "unit"), [("permute_and_flip", "epsilon"), ("exponential", "rho")])
def test_adaptive_queries_never_lose_more_than_the_budget(mechanism, unit):
    """The second query's loss, and its scores, are chosen by the first answer: as much as the budget then has."""
    total, attained = Fraction(1), 0.0
    for share in (Fraction(1, 4), Fraction(1, 2), Fraction(7, 10)):
        for spent_after in ((1, 1), (1, 0), (Fraction(1, 2), 1)):
            here, there = (_two_queries(mechanism, unit, total, share, spent_after, one_row) for one_row in (0, 1))
            budget = dpp.Budget(**{unit: total})
            assert budget.remaining == total
            losses = np.log(here / there)
            if unit == "epsilon":
                worst = abs(losses).max()
                assert worst <= float(total) * (1 + 1e-12)
            else:
                orders = np.array([1.0001, 1.5, 3, 10, 50])
                divergences = np.log((here * np.exp((orders[:, None] - 1) * losses)).sum(axis=1)) / (orders - 1)
                worst = (divergences / orders).max()
                assert worst <= float(total)
            attained = max(attained, worst)
    assert attained > 0.6


def _two_queries(mechanism, unit, total, share, spent_after, one_row):
    """The joint law of two modes of two candidates: of counts (0, 0), and of those of a data set with a row more."""

    def law(loss, counts):
        claim = pl.col("x").dp.mode(["a", "b"], **{unit: loss}, mechanism=mechanism).query.claim
        return reference.floats(reference.law(counts, rate=claim.rate, mechanism=mechanism))

    counts = (one_row, 0)
    first = law(total * share, counts)
    second = [law((total - total * share) * part, counts) if part else np.array([0.5, 0.5]) for part in spent_after]
    return np.array([first[i] * q for i in range(2) for q in second[i]])


def test_a_budget_refuses_what_an_answer_asks_too_much():
    budget, rows = dpp.Budget(epsilon=1), pl.DataFrame({"p": range(50), "x": ["a", "b"] * 25})
    private = rows.dp.protect("p", max_rows=1, budget=budget)
    answer = private.agg(x=pl.col("x").dp.mode(["a", "b"], epsilon=0.6)).release().item()
    with pytest.raises(dpp.BudgetExceededError):
        private.agg(x=pl.col("x").dp.mode(["a", "b"], epsilon=0.5 if answer == "a" else 0.41)).release()
    private.agg(x=pl.col("x").dp.mode(["a", "b"], epsilon=0.4)).release()
    assert budget.remaining == 0


# The law of Gaussian noise


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(1), Fraction(11, 2)])
def test_weights_around_a_point_between_integers_add_up_to_less(variance):
    """Poisson's summation: Σ exp(−(x − c)²/(2σ²)) is largest at whole c."""
    sums = []
    for c in np.linspace(0, 0.5, 11):
        x = np.arange(-80, 81)
        sums.append(np.exp(-((x - c) ** 2) / (2 * float(variance))).sum())
    assert (np.diff(sums) < 1e-14).all()
