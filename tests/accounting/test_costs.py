"""Costs in rho, by code of their own: exact divergences, and what all small neighbours lose."""

import itertools
import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given

import dp_polars as dpp
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.costs import HALF, gaussian_rho, pure_rho, scaled_cost, scaled_rate
from dp_polars._accounting.terms import Contributions, Loss
from tests.accounting.test_claims import HAIR, ball, extreme, positive, spreads
from tests.helpers import reference
from tests.registry import under

CHOICES = ("permute_and_flip", "exponential")
NOISE = ("discrete_laplace", "discrete_gaussian")
MECHANISMS = (*CHOICES, *NOISE, "partition_selection", "renyi_partition_selection", "discrete_gaussian_threshold")
# What one group costs, in floats.
RHO = {
    "permute_and_flip": lambda x: x + math.expm1(-x),
    "exponential": lambda x: float(reference.bounded_range_rho(Fraction(x))),
    "discrete_laplace": lambda x: x * math.tanh(x / 2),
    "discrete_gaussian": lambda x: x**2 / 2,
}


def h(x):
    return x * np.tanh(x / 2)


@pytest.mark.parametrize(
    "x", [Fraction(1, 10**6), Fraction(1, 10), Fraction(1), Fraction(3), Fraction(12), Fraction(60)]
)
def test_randomized_response_costs_its_rho_at_no_order_more(x):
    with ctx.workdps(200):
        rho = ball(pure_rho(x))
        p = 1 / (1 + (-ball(x)).exp())
        for order in (1 + arb(10) ** -30, arb("1.001"), arb("1.5"), arb(2), arb(7), arb(100), arb(10**6)):
            power = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
            assert power.log() / (order - 1) / order < rho
        order = 1 + arb(10) ** -30  # where it is attained
        power = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        assert power.log() / (order - 1) > rho * ball(1 - Fraction(1, 10**25))


def test_nothing_of_the_same_pure_loss_costs_more():
    rng = np.random.default_rng(22)
    orders = 1 + np.geomspace(1e-3, 300, 60)[:, None]
    for _ in range(3000):
        size, x = int(rng.integers(2, 7)), float(np.exp(rng.uniform(-3, 3)))
        log_q = np.log(rng.dirichlet(np.full(size, rng.uniform(0.1, 3))) + 1e-200)
        log_p = log_q + rng.choice([rng.uniform(0, x, size), rng.choice([0.0, x], size)])
        log_p -= np.logaddexp.reduce(log_p)  # all ratios are within x of each other, and so of 1
        log_q -= np.logaddexp.reduce(log_q)
        assert np.abs(log_p - log_q).max() <= x * (1 + 1e-9)
        renyi = np.logaddexp.reduce(orders * log_p + (1 - orders) * log_q, axis=1) / (orders[:, 0] - 1)
        assert (renyi / orders[:, 0]).max() <= float(pure_rho(Fraction(x))) * (1 + 1e-6) + 1e-12


@given(st.one_of(positive, extreme))
def test_the_rho_of_what_is_pure_is_rounded_up_by_a_hair(x):
    rho = pure_rho(x)
    with ctx.workprec(6000):
        truth = ball(x) * (ball(x) / 2).tanh()
        assert not ball(rho) < truth
        assert ball(rho) * ball(1 - HAIR) < truth
    assert rho <= min(x**2 / 2, x) * (1 + HAIR)


def test_it_is_less_than_half_the_square():
    assert pure_rho(Fraction(0)) == 0
    for x, factor in ((1, 1.08), (2, 1.31), (4, 2.07), (8, 4.0)):
        assert float(Fraction(x**2, 2) / pure_rho(Fraction(x))) == pytest.approx(factor, abs=0.005)
    assert gaussian_rho(Fraction(3)) == Fraction(9, 2)


def partitions(total, largest):
    """All ways to write `total` as a sum of numbers up to `largest`."""
    if total == 0:
        yield ()
    for part in range(min(total, largest), 0, -1):
        for rest in partitions(total - part, part):
            yield (part, *rest)


def cost(mechanism, x, total, per_group, same_group=Fraction(1), unit="rho", **more):
    return float(scaled_cost(unit, mechanism, Fraction(x), Contributions(total, per_group), same_group, **more))


@pytest.mark.parametrize("mechanism", RHO)
@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 7, 12])
def test_no_spread_costs_more(mechanism, total):
    for per_group in range(1, total + 1):
        ways = list(partitions(total, per_group))
        for x in (0.01, 0.3, 0.7, 1, 1.3, 2, 2.6, 4, 9, 40):
            worst = max(math.fsum(RHO[mechanism](x * rows) for rows in way) for way in ways)
            charged = cost(mechanism, x, total, per_group)
            # Real parts of rows may cost a little more than whole rows, of what is not convex.
            slack = 0.015 if mechanism == "discrete_laplace" else 1e-9
            assert worst * (1 - 1e-9) <= charged <= worst * (1 + slack)
            if mechanism == "discrete_laplace":
                assert charged <= total * x * math.tanh(x * per_group / 2) * (1 + 1e-12)


def test_filling_groups_is_not_the_worst_case_of_what_is_pure():
    filled, alike = h(6) + h(2), 2 * h(4)
    assert (filled, alike) == (pytest.approx(7.493, abs=1e-3), pytest.approx(7.712, abs=1e-3))
    assert cost("discrete_laplace", 2, 4, 3) == pytest.approx(alike, rel=1e-12)
    assert cost("discrete_laplace", Fraction(1, 2), 4, 3) == pytest.approx(h(1.5) + h(0.5), rel=1e-12)


def test_parts_of_rows_cost_no_more_either():
    """As several people do, of whom each has as many rows: the spread of their mean."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        per_group, groups = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        total = int(rng.integers(per_group, per_group * groups + 1))
        x = float(np.exp(rng.uniform(-3, 3)))
        parts = rng.dirichlet(np.full(groups + 2, rng.uniform(0.2, 5)), 2000) * total
        parts = parts[parts.max(axis=1) <= per_group]
        # And one of any size beside others that are alike.
        one, n = np.linspace(0, per_group, 500)[:, None], np.arange(1, groups + 3)
        rest = (total - one) / n
        some = np.where((rest >= 0) & (rest <= per_group), h(x * one) + n * h(x * np.abs(rest)), 0)
        worst = max(h(x * parts).sum(axis=1).max(initial=0), some.max())
        charged = cost("discrete_laplace", x, total, per_group)
        assert worst <= charged * (1 + 1e-9)
        assert worst >= charged * (1 - 1e-3)


def test_what_the_proof_of_the_worst_spread_rests_on():
    """Of h(x) = x·tanh(x/2): h'(p) = h'(q) for p < q, where h is convex and concave, means h''(p) + h''(q) > 0."""

    def derivatives(x):
        """Balls of h', h'' and h'''' over a ball of x."""
        u, two, four = x / 2, arb(2), arb(4)
        t, s = u.tanh(), 1 / u.cosh() ** 2
        first = t + u * s
        second = s * (1 - u * t)
        # h''(u) = s − u·s·t with s' = −2st and t' = s, by u; each derivative by x halves.
        fourth = (s * (four * t**2 - two * s) - (s * (-four * t + u * (four * t**2 - two * s)) * t
                  + 2 * (s - two * u * s * t) * s + u * s * (-two * s * t))) / 4  # fmt: skip
        return first, second, fourth

    def balls(low, high, n):
        width = (high - low) / n
        for i in range(n):
            yield arb(low + (i + 0.5) * width, width * 0.5001)

    with ctx.workprec(100):
        for x in (arb("0.3"), arb("1.7"), arb("2.5")):  # the fourth derivative, against a difference
            step = arb("1e-8")
            values = [derivatives(x + k * step)[1] for k in (-1, 0, 1)]
            difference = (values[0] - 2 * values[1] + values[2]) / step**2
            assert abs(difference - derivatives(x)[2]) < arb("1e-6")
        least = arb("-0.0745")
        # (Beyond 40, |h''| is at most 4·exp(−x)·(1 + x/2).)
        assert all(derivatives(x)[1] > least for x in balls(0, 40, 20_000))
        # Below 2.08 there is nothing to show.
        assert all(derivatives(x)[1] > -least for x in balls(0, 2.08, 4000))
        # Above, q is below 2.88, as h' falls there; and between, h'' is convex: the trapezoid rule is above the
        # integral of h'' from p to q, which is 0.
        assert derivatives(arb("2.88"))[0] < derivatives(arb("2.08"))[0]
        assert all(derivatives(x)[2] > 0 for x in balls(2.0, 2.9, 500))


def exchanges(total, per_group, groups=4):
    """All rows that go and come, in each group: pairs of vectors."""
    spread = [v for v in itertools.product(range(per_group + 1), repeat=groups) if sum(v) <= total]
    gone = [v for v in spread if list(v) == sorted(v, reverse=True)]
    return np.array([(a, b) for a in gone for b in spread])


@pytest.mark.parametrize("mechanism", NOISE)
@pytest.mark.parametrize(("total", "per_group"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3)])
def test_one_sided_numbers_that_are_replaced(mechanism, total, per_group):
    """Each number changes by what comes less what goes: x is twice a row."""
    pairs = exchanges(total, per_group)
    moved = np.abs(pairs[:, 0] - pairs[:, 1])
    for x in (0.1, 1, 2.2, 4, 10):
        of_one = np.array([RHO[mechanism](x / 2 * n) for n in range(total + 1)])
        worst = of_one[moved].sum(axis=1).max()
        charged = cost(mechanism, x, total, per_group, HALF)
        assert worst <= charged * (1 + 1e-12)
        if total <= 2 * per_group:  # in four groups
            assert worst >= charged * (1 - (0.015 if mechanism == "discrete_laplace" else 1e-9))
        assert charged <= cost(mechanism, x, total, per_group)
    if mechanism == "discrete_gaussian":
        assert 2 * cost(mechanism, 1, total, per_group, HALF) == cost(mechanism, 1, total, per_group)


@pytest.mark.parametrize("mechanism", CHOICES)
@pytest.mark.parametrize(("total", "per_group"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (4, 3)])
@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(3, 5), Fraction(9, 10)])
def test_quantiles_that_are_replaced(alpha, mechanism, total, per_group):
    """A row in the place of another one of its group moves scores by 2·den, one that comes or goes by `alone`."""
    den, alone = alpha.denominator, 2 * max(alpha.numerator, alpha.denominator - alpha.numerator)
    gone, come = exchanges(total, per_group).transpose(1, 0, 2)
    moved = 2 * den * np.minimum(gone, come) + alone * np.abs(gone - come)
    for x in (0.1, 1, 2.2, 4, 10):
        of_one = {n: RHO[mechanism](x * n / (2 * alone)) if n else 0.0 for n in np.unique(moved).tolist()}
        worst = np.vectorize(of_one.get)(moved).sum(axis=1).max()
        charged = cost(mechanism, x, total, per_group, Fraction(den, alone))
        assert worst <= charged * (1 + 1e-9)
        assert worst >= charged * (1 - 1e-9)
        assert charged <= cost(mechanism, x, total, per_group)
    if alpha > Fraction(1, 2):
        assert cost(mechanism, 0.01, total, total, Fraction(den, alone)) < 0.7 * cost(mechanism, 0.01, total, total)


SPREADS = [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 2), (4, 3)]
FEW = [(*spread, groups) for spread in SPREADS for groups in (1, 2, 3, 4) if groups * spread[1] >= spread[0]]


@pytest.mark.parametrize("mechanism", [*CHOICES, *NOISE])
@pytest.mark.parametrize(("total", "per_group", "groups"), FEW)
@pytest.mark.parametrize("pair", [Fraction(1), Fraction(14, 13), Fraction(3, 2), Fraction(2)])
def test_what_is_replaced_in_few_groups(mechanism, total, per_group, groups, pair):
    """A row alone moves a group by 1, one in the place of another by `pair`: all ways to go and to come."""
    gone, come = exchanges(total, per_group, groups).transpose(1, 0, 2)
    moved = np.maximum(gone, come) + float(pair - 1) * np.minimum(gone, come)
    among = {"same_group": pair / 2, "groups": groups}
    if mechanism != "discrete_gaussian":
        charged = cost(mechanism, 2, total, per_group, unit="epsilon", **among)
        assert moved.sum(axis=1).max() == pytest.approx(charged, rel=1e-12)
    for x in (0.1, 1, 2.2, 4, 10):
        of_one = {n: RHO[mechanism](x / 2 * n) if n else 0.0 for n in np.unique(moved).tolist()}
        worst = np.vectorize(of_one.get)(moved).sum(axis=1).max()
        charged = cost(mechanism, x, total, per_group, **among)
        assert worst <= charged * (1 + 1e-12)
        # Of a curve that is not convex, all that is known of groups is how far one moves, and all together. Gaussian
        # noise is on people in real parts, of whom more may meet.
        loose = {"discrete_laplace": 0.35, "discrete_gaussian": 0.35 if total % per_group or pair > 1 else 1e-9}
        assert worst >= charged * (1 - loose.get(mechanism, 1e-9))
        assert charged <= cost(mechanism, x, total, per_group, pair / 2) * (1 + 1e-12)


@pytest.mark.parametrize(("total", "per_group", "groups"), FEW)
def test_the_draws_of_a_mean_cost_together(total, per_group, groups):
    """Values at the ends move the sum by all rows, and the count by the difference: of x = 2, by one a row."""
    gone, come = exchanges(total, per_group, groups).transpose(1, 0, 2)
    moved = np.concatenate([gone + come, abs(gone - come)], axis=1)
    among = {"same_group": HALF, "draws": 2}
    charged = cost("discrete_gaussian", 2, total, per_group, **among)
    assert (moved**2).sum(axis=1).max() / 2 == pytest.approx(charged, rel=1e-12)
    assert charged == cost("discrete_gaussian", 2, total, per_group)  # of one of both, before: half as much
    charged = cost("discrete_laplace", 2, total, per_group, unit="epsilon", groups=groups, **among)
    assert moved.sum(axis=1).max() == pytest.approx(charged, rel=1e-12)
    for x in (0.1, 1, 2.2, 4, 10):
        worst = h(x / 2 * moved).sum(axis=1).max()
        charged = cost("discrete_laplace", x, total, per_group, groups=groups, **among)
        assert worst * (1 - 1e-12) <= charged <= 2 * cost("discrete_laplace", x, total, per_group) * (1 + 1e-12)


def test_parts_of_rows_in_a_mean_cost_no_more_than_their_norm():
    """With real weights of rows all that is used of a person is the norm over groups."""
    rng = np.random.default_rng(6)
    gone, come = rng.exponential(size=(2, 10_000, 5)) ** rng.uniform(0.2, 3, (2, 10_000, 1))
    gone, come = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (gone, come))
    charged = cost("discrete_gaussian", 2, 1, 1, HALF, draws=2)
    for values in (1.0, rng.uniform(-1, 1, gone.shape)):  # the means of values from −1 to 1
        others = -values if isinstance(values, float) else rng.uniform(-1, 1, gone.shape)
        moved = (gone * values - come * others) ** 2 + (gone - come) ** 2
        assert moved.sum(axis=1).max() / 2 <= charged * (1 + 1e-12)
    assert ((gone + come) ** 2 + (gone - come) ** 2).sum(axis=1).min() / 2 >= charged * (1 - 1e-12)


def test_the_draws_of_a_variance_cost_together():
    """A value moves a distance d, a square 2d² − 1 and a count: another in its place by hardly more than both alone."""
    same_group, ends = under("replace_one", dpp.var("x", 0, 1, rho=1).query).claim._same_group, np.linspace(-1, 1, 401)
    of_value = np.stack([ends, 2 * ends**2 - 1, np.ones_like(ends)], axis=1)
    part = np.concatenate([np.linspace(0, 1, 101), 1 / np.linspace(1, 1e-3, 101)])[:, None, None, None]
    worst_square, worst_sum = 0.0, 0.0
    for first in of_value[::4]:
        moved = part * first - of_value[None, :, None, :]
        worst_square = max(worst_square, ((moved**2).sum(axis=-1) / (part[..., 0] ** 2 + 1)).max())
        larger, less = np.maximum(part[..., 0], 1), np.minimum(part[..., 0], 1)
        worst_sum = max(worst_sum, (abs(moved).sum(axis=-1) - 3 * larger - less / 8).max())
    assert 3.01 < worst_square <= 3 + 1 / 64  # so both alone are not enough
    assert abs(worst_sum) <= 1e-12
    assert 2 * cost("discrete_gaussian", 2, 1, 1, same_group, draws=3) / 2 >= 3 + 1 / 64 + 2**-20
    one = cost("discrete_laplace", 2, 1, 1, same_group, unit="epsilon", groups=1, draws=3)
    assert one >= 3 + 1 / 8 + 2**-20
    assert cost("discrete_laplace", 2, 1, 1, same_group, unit="epsilon", draws=3) == 6


shares = st.sampled_from([Fraction(1), HALF, Fraction(5, 9), Fraction(2, 3)])


@given(
    rho=st.one_of(positive, extreme), contributions=spreads, mechanism=st.sampled_from(MECHANISMS), same_group=shares
)
def test_a_rate_and_back_is_never_over_budget(rho, contributions, mechanism, same_group):
    x = scaled_rate("rho", mechanism, rho, contributions, same_group)
    spent = scaled_cost("rho", mechanism, x, contributions, same_group)
    assert rho * (1 - HAIR) <= spent <= rho
    assert scaled_cost("rho", mechanism, x * (1 + HAIR), contributions, same_group) > rho


def test_what_a_replacement_in_one_group_does_is_checked():
    loss, one = Loss(Fraction(1), "rho"), Contributions(1, 1)
    for relation, mechanism, same_group, gap in (
        ("add_or_remove_one", "discrete_gaussian", HALF, False),
        (None, "exponential", HALF, False),
        ("replace_one", "first_above", Fraction(2, 3), False),
        ("replace_one", "discrete_laplace", Fraction(1, 3), False),
        ("replace_one", "exponential", Fraction(2, 3), True),
        ("replace_one", "exponential", Fraction(1, 3), False),
        ("replace_one", "exponential", Fraction(4, 3), False),
    ):
        with pytest.raises(ValueError, match=r'^same_group must be 1, or under "replace_one" from 1/2 on'):
            Claim(loss, mechanism, Fraction(1), one, relation, _same_group=same_group, _gap=gap)
