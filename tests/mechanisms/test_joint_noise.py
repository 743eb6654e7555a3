"""The noise of a sum and of a count together, against exact laws."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._mechanisms.joint_noise import JointNoise, _slack_of_laplace, _slack_of_normal, _tail_of_laplace

UNITS = ["epsilon", "rho"]
SCALES = [Fraction(1, 5), Fraction(1, 2), Fraction(3, 4), Fraction(2), Fraction(7)]


def claim_of(scale, unit):
    """Noise of a scale, or of a deviation."""
    loss = 1 / scale if unit == "epsilon" else 1 / (2 * scale**2)
    mechanism = "discrete_laplace" if unit == "epsilon" else "discrete_gaussian"
    return Claim(Loss(loss, unit), mechanism, Fraction(1), Contributions(1, 1), "add_or_remove_one")


def law_of(scale, unit):
    """All numbers that noise takes but for 1e-17, and their probabilities."""
    reach = math.ceil(40 * scale) + 3
    numbers = np.arange(-reach, reach + 1)
    weights = np.exp(-abs(numbers) / float(scale) if unit == "epsilon" else -(numbers**2) / (2 * float(scale) ** 2))
    return numbers, weights / weights.sum()


def pair_of(on_sum, on_count, unit):
    pair = JointNoise.of([claim_of(on_sum, unit), claim_of(on_count, unit)], [0, 0])
    (x, of_x), (y, of_y) = law_of(on_sum, unit), law_of(on_count, unit)
    return pair, x[:, None], y[None, :], of_x[:, None] * of_y[None, :]


@pytest.mark.parametrize(
    "scale", [Fraction(1, 40), Fraction(2, 5), Fraction(1, 2), 1, Fraction(6, 5), 3, 12, 100], ids=str
)
@pytest.mark.parametrize("unit", UNITS)
def test_whole_numbers_are_near_a_continuous_variable(scale, unit):
    """Whichever number is passed with some probability, the other variable passes it, less the slack, as often."""
    mp.dps = 60
    is_laplace, size = unit == "epsilon", mp.mpf(Fraction(scale).numerator) / Fraction(scale).denominator
    slack = (_slack_of_laplace if is_laplace else _slack_of_normal)(float(scale))
    reach = math.ceil(14 * scale) + 4
    weights = [mp.exp(-k / size if is_laplace else -((k / size) ** 2) / 2) for k in range(4 * reach)]
    passed = [*itertools.accumulate(reversed(weights[1:]))][: -reach - 1 : -1]  # without a factor
    total = weights[0] + 2 * passed[0]

    def tail(x):
        if x <= 0:
            return mp.mpf(1)
        return mp.exp(-x / size) if is_laplace else mp.erfc(x / size / mp.sqrt(2))

    for number, weight in enumerate(passed, 1):
        probability = 2 * weight / total
        if number > 12 * scale + 1:
            break
        assert tail(number - slack * (1 + 1e-12)) >= probability >= tail(number - 1 + slack * (1 + 1e-12))
        if is_laplace:  # and no less slack is enough
            assert tail(number - 1 + 0.999 * slack) > probability


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("on_sum", SCALES, ids=str)
@pytest.mark.parametrize("on_count", SCALES, ids=str)
def test_whole_numbers_of_noise_are_within_the_bound(on_sum, on_count, unit):
    pair, x, y, law = pair_of(on_sum, on_count, unit)
    for by, beta in itertools.product((0, 0.3, -0.5, 1, 2.5), (0.05, 0.001)):
        bound = pair.bound(beta, 1, by)
        assert law[abs(x - by * y) > bound].sum() <= beta
        assert not pair.may_be(bound * (1 + 1e-9), beta, 1, by)
        assert pair.may_be(bound * (1 - 1e-9), beta, 1, by)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("by", [0, 0.25, 1, 3])
def test_the_bound_of_fine_noise_is_as_often_passed_as_it_says(unit, by):
    """Also a control: noise that is a tenth wider passes it too often."""
    pair, x, y, law = pair_of(Fraction(60), Fraction(40), unit)
    bound = pair.bound(0.05, 1, by) - pair.slack[0] - by * pair.slack[1]
    width = 2 * (1 + by)  # of the steps, at most, that the bound may pass at once
    assert law[abs(x - by * y) > bound + width].sum() < 0.05 < law[abs(x - by * y) > bound - width].sum()
    exact = pair.bound(0.05, 1, by)
    assert 0.045 < law[abs(x - by * y) > exact].sum() <= 0.05
    assert law[1.1 * abs(x - by * y) > exact].sum() > 0.05


def test_the_tail_of_two_laplace_variables():
    mp.dps = 40
    for far, p, r in itertools.product((0, 0.5, 3, 40), (1, 2.5), (1e-9, 0.3, 0.999999999, 1, 1 + 1e-7, 4, 1e6)):
        one, other = mp.mpf(p), mp.mpf(r)
        if one == other:
            exact = mp.exp(-far / one) * (1 + far / (2 * one))
        else:
            exact = (one**2 * mp.exp(-far / one) - other**2 * mp.exp(-far / other)) / (one**2 - other**2)
        assert float(_tail_of_laplace(np.array(far, float), p, r)) == pytest.approx(float(exact), rel=1e-12)
    assert float(_tail_of_laplace(np.array(3.0), 2, 0)) == pytest.approx(math.exp(-1.5), rel=1e-14)


@pytest.mark.parametrize("is_laplace", [True, False])
@pytest.mark.parametrize("beta", [0.05, 0.001, 1e-9])
def test_the_bound_is_convex_in_the_factor(is_laplace, beta):
    """So what lies on one side of noise is one stretch."""
    pair = JointNoise(is_laplace, (1.0, 1.0), (0.0, 0.0))
    for factors in (np.linspace(0, 4, 201), np.linspace(0, 40, 201), np.linspace(0.98, 1.02, 201)):
        bounds = np.array([pair.bound(beta, 1, by) for by in factors])
        assert (np.diff(bounds, 2) > -1e-9).all()
        assert (np.diff(bounds) > 0).all()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("on_sum", "on_count"), [(2, 2), (5, 2), (1, 4)])
@pytest.mark.parametrize(("total", "count"), [(0, 0), (0, 1), (1, 1), (-3, 3), (4, 9), (-70, 80), (60, 60)])
def test_the_true_quotient_is_between_the_ends(total, count, on_sum, on_count, unit):
    """Exactly: by all pairs of noise."""
    pair, x, y, law = pair_of(Fraction(on_sum), Fraction(on_count), unit)
    sums, counts = (numbers.ravel().astype(float) for numbers in np.broadcast_arrays(total + x, count + y))
    low, high = pair.quotients(sums, counts, 1.0, 0.05)
    for true in (total / count,) if count else (-1.0, 0.3, 1.0):
        inside = law.ravel()[(low <= true) & (true <= high)].sum()
        assert 0.95 <= inside < 0.9995
    assert (low >= -1).all()
    assert (high <= 1).all()


def test_ends_are_where_noise_is_as_large_as_what_was_drawn():
    """By a search over all quotients: the first and the last that are allowed, and none if none is."""
    rng = np.random.default_rng(5)
    grid = np.linspace(-7, 7, 4001)
    for is_laplace in (True, False):
        pair = JointNoise(is_laplace, (3.0, 1.5), (0.5, 0.25))
        sums, counts = rng.normal(0, 60, 400), rng.normal(4, 8, 400)
        low, high = pair.quotients(sums, counts, 7.0, 0.05)
        empty = 0
        for total, count, least, most in zip(sums, counts, low, high, strict=True):
            allowed = grid[pair.may_be(total - grid * count, 0.05, 1.0, grid)]
            if len(allowed):
                assert allowed[0] - 0.0036 <= least <= allowed[0]
                assert allowed[-1] <= most <= allowed[-1] + 0.0036
            else:
                assert least > most or most - least < 0.0036
                empty += 1
        assert 0 < empty < 400


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(7)], ids=str)
@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (3, 1), (2, 9), (70, 10), (0, 60)])
def test_the_true_part_is_between_the_ends(first, second, scale):
    """Exactly: by all pairs of noise. Its ends are where noise is as large as what was drawn."""
    pair, x, y, law = pair_of(scale, scale, "epsilon")
    one, other = (numbers.ravel().astype(float) for numbers in np.broadcast_arrays(first + x, second + y))
    low, high = pair.parts([one, other], 0.05)
    for true in (first / (first + second),) if first + second else (0.0, 0.3, 1.0):
        inside = law.ravel()[(low <= true) & (true <= high)].sum()
        assert 0.95 <= inside < 0.9999
    assert (low >= 0).all()
    assert (high <= 1).all()
    grid = np.linspace(0, 1, 1001)
    rng = np.random.default_rng(3)
    for place in rng.choice(len(one), 200, p=law.ravel()):
        allowed = grid[pair.may_be((1 - grid) * one[place] - grid * other[place], 0.05, 1 - grid, grid)]
        if len(allowed):
            assert allowed[0] - 0.001 <= low[place] <= allowed[0] + 1e-9
            assert allowed[-1] - 1e-9 <= high[place] <= allowed[-1] + 0.001


def test_the_bound_of_a_pair_is_convex():
    """In the part: so what lies on one side of noise is one stretch."""
    pair = JointNoise(True, (1.0, 1.0), (0.0, 0.0))
    for beta in (0.05, 0.001):
        bounds = np.array([pair.bound(beta, 1 - v, v) for v in np.linspace(0, 1, 201)])
        assert (np.diff(bounds, 2) > -1e-9).all()


@pytest.mark.parametrize(
    "scales", [(3, 2, 1), (1, 1, 0.5), (1, 1, 1), (2, 2, 1.999), (5, 1, 1e-7), (1, 0.5, 0)], ids=str
)
def test_the_tail_of_three_laplace_variables(scales):
    """By an integral of its characteristic function, and never below it; in any order."""
    mp.dps = 30
    exact = []
    for far in (0.5, 3, 20):
        p, q, r = (mp.mpf(scale) + number * mp.mpf(10) ** -9 for number, scale in enumerate(scales))
        of_each = (
            one**4 / ((one**2 - two**2) * (one**2 - three**2)) * mp.exp(-far / one)
            for one, two, three in ((p, q, r), (q, r, p), (r, p, q))
        )
        exact.append(float(sum(of_each)))
    for order in itertools.permutations(scales):
        found = _tail_of_laplace(np.array([0.5, 3.0, 20.0]), *order)
        assert (found >= np.array(exact) * (1 - 1e-6)).all()
        most = 1e-6 if max(scales) > 1.01 * min(scales) else 0.21  # of a scale that is a hundredth larger
        assert found == pytest.approx(exact, rel=most)
    if scales == (1, 1, 1):
        assert exact == pytest.approx([(8 + 5 * x + x**2) / 8 * math.exp(-x) for x in (0.5, 3, 20)], rel=1e-6)


@pytest.mark.parametrize(
    ("first", "middle", "last"), [(0, 0, 0), (0, 1, 0), (1, 0, 0), (3, 1, 2), (0, 0, 30), (60, 9, 4)]
)
def test_the_true_part_of_three_sums_is_between_the_ends(first, middle, last):
    """Exactly: by all noise of three sums, but for 1e-10."""
    claim, numbers = claim_of(Fraction(1), "epsilon"), np.arange(-25, 26)
    noise, weights = JointNoise.of([claim] * 3, [0] * 3), np.exp(-abs(numbers).astype(float))
    weights /= weights.sum()
    drawn = [
        (total + one).ravel()
        for total, one in zip((first, middle, last), np.meshgrid(*[numbers] * 3, indexing="ij"), strict=True)
    ]
    law = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
    low, high = noise.parts([one.astype(float) for one in drawn], 0.05)
    rows = first + middle + last
    for true in ((first + middle / 2) / rows,) if rows else (0.0, 0.3, 1.0):
        inside = law[(low <= true) & (true <= high)].sum()
        assert 0.95 <= inside < 0.9999
    low, high = JointNoise(True, (0.5,) * 3, (0.0,) * 3).parts(drawn, 0.05)  # a control: half of the noise
    assert law[(low <= true) & (true <= high)].sum() < 0.95


def test_the_bound_of_three_sums_is_convex():
    """In the part: so what lies on one side of noise is one stretch."""
    noise = JointNoise(True, (1.0,) * 3, (0.0,) * 3)
    for beta in (0.05, 0.001):
        bounds = np.array([noise.bound(beta, 1 - v, 0.5 - v, -v) for v in np.linspace(0, 1, 201)])
        assert (np.diff(bounds, 2) > -1e-9).all()
