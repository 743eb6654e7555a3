"""A guarantee of (epsilon, delta) against the worst of adaptive analysts, by exact trees of three releases.

An analyst sees each answer and then picks the next release from a menu, as long as a rule allows it. What a release
costs is computed from its two laws. The delta of the whole tree is then exact but for the rounding of floats: the sum
over its leaves of P − e^ε·Q, where that is above 0. The package's rule keeps the guarantee. Each condition of its proof
is left out once, and then the same search finds a tree that breaks it.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from dp_polars import analysis
from dp_polars._accounting.budget import Budget
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.costs import divergence_for, laplace_rho, zcdp_delta
from dp_polars._accounting.guarantees import FREE, Cost, Guarantee
from dp_polars._accounting.terms import Contributions, Loss

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
HALF = Guarantee.of(EPSILON, DELTA)
# Without keys, all of delta is for divergences.
NO_KEYS = Guarantee.of(EPSILON, DELTA, Fraction(0))


class Release(NamedTuple):
    """The log-ratios of outcomes with their probabilities under P, and what one person loses."""

    outcomes: tuple[tuple[float, float], ...]
    cost: Cost


def divergence(p, q, order):
    """The divergence of an order of two laws, of both directions the larger one."""
    if (p == 0).any() or (q == 0).any():
        return math.inf
    either = [(math.log((a * (a / b) ** (order - 1)).sum()) / (order - 1)) for a, b in ((p, q), (q, p))]
    return max(0.0, *either)


def release(p, q, order, *, is_pure=True):
    p, q = np.array(p), np.array(q)
    ratios = np.log(p / q)
    loss = Fraction(float(abs(ratios).max()) * (1 + 1e-12)) if is_pure else None
    cost = Cost(loss, Fraction(divergence(p, q, order) * (1 + 1e-12)), Fraction(0))
    return Release(tuple(zip(p.tolist(), ratios.tolist(), strict=True)), cost)


def tail(ratio, most, order):
    """A rare outcome with this log-ratio, as often as a divergence allows: the worst case of its conversion."""
    low, high = -300.0, -1e-3
    for _ in range(100):
        middle = (low + high) / 2
        p, q = math.exp(middle), math.exp(middle - ratio)
        if divergence(np.array([p, 1 - p]), np.array([q, 1 - q]), order) <= most * (1 - 1e-9):
            low = middle
        else:
            high = middle
    p, q = math.exp(low), math.exp(low - ratio)
    return release([p, 1 - p], [q, 1 - q], order)


def response(epsilon, order):
    """Randomized response: the worst of what is pure."""
    p = 1 / (1 + math.exp(-epsilon))
    return release([p, 1 - p], [1 - p, p], order)


def keys(delta):
    """A symbol that says which of the two laws it is, and otherwise nothing."""
    return Release(((float(delta), math.inf), (1 - float(delta), 0.0)), Cost(Fraction(0), Fraction(0), Fraction(delta)))


def without_epsilon(one):
    """The same release, of which only the divergence is known."""
    return one._replace(cost=one.cost._replace(loss=None))


def menu_of(order, divergences, others=()):
    """Releases that reach, alone or in two parts, where the conversion at the order is tight."""
    peak = float(EPSILON) + math.log(float(order) / (float(order) - 1))
    tails = [
        tail(peak * share, float(most) * part, float(order))
        for most in divergences
        for share, part in ((1, 1), (0.5, 0.5), (0.4, 0.4), (0.6, 0.6), (0.5, 0.3))
    ]
    pure = [response(float(EPSILON) * share, float(order)) for share in (0.5, 0.999999)]
    return [*tails, *map(without_epsilon, tails[:2]), *pure, *map(keys, (DELTA / 2, DELTA)), *others]


def worst(allows: Callable[[Cost, Cost], bool], menu, spent=FREE, ratio=0.0, turns=3):
    """The largest delta that an analyst reaches from here on, given the log-ratio of what was seen."""
    best = -math.expm1(min(0.0, float(EPSILON) - ratio))
    if not turns or ratio == math.inf:
        return best
    for one in menu:
        if allows(spent, one.cost):
            after = spent.plus(one.cost)
            found = (p * worst(allows, menu, after, ratio + more, turns - 1) for p, more in one.outcomes)
            best = max(best, sum(found))
    return best


def of_package(guarantee):
    return lambda spent, cost: guarantee.fits(cost, guarantee.left(spent))


def is_pure(total):
    return total.loss is not None and total.loss <= EPSILON


B, B_OF_ALL = HALF.divergence, divergence_for(EPSILON, DELTA, HALF.order)
MENU = menu_of(HALF.order, (B, B_OF_ALL))


def test_the_rule_keeps_its_guarantee_and_wastes_next_to_nothing():
    found = worst(of_package(HALF), MENU) / float(DELTA)
    assert 0.95 < found <= 1
    menu = menu_of(NO_KEYS.order, (NO_KEYS.divergence,))
    assert 0.95 < worst(of_package(NO_KEYS), menu) / float(DELTA) <= 1


# Each of these leaves out a condition. The factor is by how much the guarantee is broken then.


def converts_all_until_keys_come(spent, cost):
    total = spent.plus(cost)
    most = B if spent.delta or cost.delta else B_OF_ALL
    return total.delta <= DELTA / 2 and (is_pure(total) or total.divergence <= most)


def shares_delta_freely(spent, cost):
    total = spent.plus(cost)
    left = (DELTA - total.delta) / (1 - total.delta)
    fits = left > 0 and total.divergence <= divergence_for(EPSILON, left, HALF.order)
    return total.delta <= DELTA and (is_pure(total) or fits)


def pure_sums_may_spend_all_on_keys(spent, cost):
    total = spent.plus(cost)
    return (is_pure(total) and total.delta <= DELTA) or (total.delta <= DELTA / 2 and total.divergence <= B)


def keys_beside_a_conversion_of_all(spent, cost):
    total = spent.plus(cost)
    return total.delta <= DELTA and (is_pure(total) or total.divergence <= B_OF_ALL)


@pytest.mark.parametrize(
    ("rule", "factor"),
    [
        (converts_all_until_keys_come, 1.4),
        (shares_delta_freely, 1.9),
        (pure_sums_may_spend_all_on_keys, 1.4),
        (keys_beside_a_conversion_of_all, 1.9),
    ],
)
def test_without_its_part_for_keys_the_guarantee_is_broken(rule, factor):
    assert worst(rule, MENU) > factor * float(DELTA)


class Pots(NamedTuple):
    """What pure and other releases spent: a pot for each."""

    pure: Cost = FREE
    other: Cost = FREE
    delta: Fraction = Fraction(0)

    def plus(self, cost):
        if cost.loss is None:
            return self._replace(other=self.other.plus(cost))
        return self._replace(pure=self.pure.plus(cost))


def test_separate_pots_break_the_guarantee_a_thousandfold():
    """So a release without an epsilon leaves none for the others, for ever."""

    def allows(spent, cost):
        total = spent.plus(cost)
        return is_pure(total.pure) and total.other.divergence <= B and cost.delta == 0

    assert worst(allows, MENU, Pots()) > 1000 * float(DELTA)


def test_several_orders_each_at_all_of_delta_break_the_guarantee():
    """So the order is fixed beforehand."""
    orders = [Fraction(40), Fraction(15)]
    most = [divergence_for(EPSILON, DELTA, order) for order in orders]

    class Sums(NamedTuple):
        sums: tuple[Fraction, ...]

        def plus(self, cost):
            return Sums(tuple(a + b for a, b in zip(self.sums, cost.divergence, strict=True)))

    def of_both(one):
        p = np.array([p for p, _ in one.outcomes])
        q = np.array([p * math.exp(-ratio) for p, ratio in one.outcomes])
        costs = tuple(Fraction(divergence(p, q, float(order)) * (1 + 1e-12)) for order in orders)
        return Release(one.outcomes, Cost(None, costs, Fraction(0)))

    peaks = [float(EPSILON) + math.log(float(order) / (float(order) - 1)) for order in orders]
    first_of = 0.3, 0.12
    shapes = [(*first_of, orders[0]), (peaks[0] - first_of[0], float(most[0]) - first_of[1] - 1e-6, orders[0])]
    ends = list(zip(peaks, most, orders, strict=True))
    shapes += [(peak, float(of) * part, order) for peak, of, order in ends for part in (0.9, 0.95, 1)]
    menu = [of_both(tail(ratio, of, float(order))) for ratio, of, order in shapes]

    def by(fits):
        return worst(lambda spent, cost: fits(spent.plus(cost).sums), menu, Sums((Fraction(0),) * 2))

    some = by(lambda sums: any(a <= b for a, b in zip(sums, most, strict=True)))
    first, second = (by(lambda sums, i=i: sums[i] <= most[i]) for i in (0, 1))
    assert max(first, second) <= float(DELTA) < 1.7 * float(DELTA) < some


def test_one_direction_is_not_enough():
    p, q = np.array([0.6, 0.4]), np.array([0.6 + 0.4 * (1 - 1e-9), 0.4e-9])
    order = float(HALF.order)
    one_way = math.log((q * (q / p) ** (order - 1)).sum()) / (order - 1)
    assert one_way <= B
    assert max(0, *(p - math.e * q)) > 0.1
    assert divergence(p, q, order) > B


def test_keys_are_not_decomposed_by_lone_keys():
    """Given that no key of one person is shown, one of two people tells more than λ; given no symbol, it doesn't."""
    rate, delta = 1.0, 1e-6
    shown = [0.0]
    for _ in range(60):
        shown.append(min(math.exp(rate) * shown[-1] + delta, 1 - math.exp(-rate) * (1 - shown[-1] - delta), 1))
    assert shown[2] / shown[1] == pytest.approx(math.exp(rate) + 1)
    for fewer, more in pairwise(shown):
        # Any pair within (λ, δ′) is a function of a symbol and randomized response (Kairouz et al. 2015).
        for one, other in ((more, fewer), (fewer, more), (1 - more, 1 - fewer), (1 - fewer, 1 - more)):
            assert one <= math.exp(rate) * other + delta * (1 + 1e-9)


# The package


def claim(value, unit, mechanism=None, delta=0, contributions=1):
    terms = Contributions(contributions, 1)
    kind = mechanism or {"epsilon": "permute_and_flip", "rho": "exponential"}[unit]
    return Claim(Loss(Fraction(value), unit), kind, Fraction(1), terms, None, delta=Fraction(delta))


@pytest.mark.parametrize("epsilon", ["1/1000", "1/10", "1", "3", "20"])
@pytest.mark.parametrize("delta", ["1/1000000000000", "1/1000000", "1/100"])
@pytest.mark.parametrize("part", [0, Fraction(1, 10), Fraction(1, 2), Fraction(99, 100)])
def test_the_largest_rho_converts_to_the_guarantee_and_no_larger_one(epsilon, delta, part):
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    guarantee = Guarantee.of(epsilon, delta, part * delta)
    left = float((delta - guarantee.keys_delta) / (1 - guarantee.keys_delta))
    assert zcdp_delta(guarantee.rho, epsilon) <= left * (1 + 1e-12)
    if guarantee.divergence < epsilon * Fraction(999, 1000):  # where delta is large, no more than epsilon is taken
        assert zcdp_delta(guarantee.rho * (1 + Fraction(1, 10**6)), epsilon) > left
    budget = Budget(epsilon=epsilon, delta=delta, keys_delta=part * delta)
    for mechanism in ("exponential", "discrete_gaussian"):
        assert budget._state.has_room([claim(guarantee.rho / 7, "rho", mechanism)] * 7)
    assert budget._state.has_room([claim(epsilon, "epsilon")])
    if guarantee.rho:  # once something is charged, no release takes all of it by a proof of its own
        first, hair = claim(guarantee.rho / 10**6, "rho", "discrete_gaussian"), guarantee.rho / 10**9
        budget._charge([("a", first)], privacy_unit=None, neighboring_relation="add_or_remove_one")
        for more in (0, hair):
            rest = guarantee.rho - first.loss.value + more
            assert budget._state.has_room([claim(rest, "rho", "discrete_gaussian")]) == (not more)


def test_what_an_output_costs():
    """Permute-and-flip has no ε²/8."""
    small, large = Fraction(1, 1000), Fraction(1)
    assert HALF.cost(claim(small, "epsilon")) == (small, HALF.order * laplace_rho(small), 0)
    assert HALF.order * laplace_rho(large) > large
    assert HALF.cost(claim(large, "epsilon")) == (large, large, 0)
    assert HALF.cost(claim(Fraction(1, 50), "rho", "discrete_gaussian")) == (None, HALF.order / 50, 0)
    by_rho = claim(Fraction(1, 50), "rho")
    assert by_rho.cost("epsilon") < HALF.order / 50
    assert HALF.cost(by_rho) == (by_rho.cost("epsilon"), by_rho.cost("epsilon"), 0)


def test_half_of_the_gaussian_is_left_where_an_or_of_sums_leaves_none():
    spent = HALF.cost(claim(Fraction(1, 4), "epsilon"))
    left = HALF.left(spent)
    assert left.divergence / HALF.divergence == pytest.approx(0.53, abs=0.005)
    gaussian = HALF.cost(claim(HALF.rho * Fraction(53, 100), "rho", "discrete_gaussian"))
    assert HALF.fits(gaussian, left)


@pytest.mark.parametrize("seed", range(200))
def test_random_mixtures_never_lose_more_by_their_loss_distributions(seed):
    """As many releases of both units as fit: composed as dp_accounting and this package do, they keep the guarantee."""
    rng = np.random.default_rng(seed)
    epsilon = Fraction(str(round(float(rng.uniform(0.1, 5)), 3)))
    delta = Fraction(1, 10 ** int(rng.integers(4, 10)))
    guarantee, spent, claims = Guarantee.of(epsilon, delta), FREE, []
    for _ in range(12):
        unit = "epsilon" if rng.random() < 0.5 else "rho"
        mechanism = {
            "epsilon": ["permute_and_flip", "discrete_laplace", "exponential"],
            "rho": ["exponential", "discrete_gaussian", "discrete_laplace"],
        }[unit][rng.integers(3)]
        of = epsilon if unit == "epsilon" else guarantee.rho
        one = claim(of * Fraction(int(rng.integers(1, 60)), 100), unit, mechanism)
        if guarantee.fits(guarantee.cost(one), guarantee.left(spent)):
            claims.append(one)
            spent = spent.plus(guarantee.cost(one))
    assert claims
    assert analysis.compose(claims, delta=delta) <= float(epsilon) * (1 + 1e-9)


# One release of several outputs


def test_outputs_of_one_release_are_a_sequence_given_the_orders():
    """A mode of group 0 and the rows of group 1, both at epsilon = 2, where another person keeps one group of both.

    Without the orders, the first answer tells of that person's order, and the second one then loses more than its own
    2. Given the orders, each loses 2 at most, and so do both together 4.
    """
    x = np.arange(-20, 25)

    def laws(order, more):
        """Of both outputs: the other person's row of value a is in group 0, or their row in group 1, by their order."""
        mode = analysis.scores.selection_probabilities([2 + (order == 0) + more, 3], epsilon=2, monotonic=True)
        return mode, math.tanh(1) * np.exp(-2.0 * np.abs(x - (order == 1) - more))

    def loss(one, other):
        return np.abs(np.log(one / other)).max()

    given = {more: [laws(order, more) for order in (0, 1)] for more in (0, 1)}
    for first, second in zip(*given.values(), strict=True):
        assert max(loss(one, other) for one, other in zip(first, second, strict=True)) <= 2 + 1e-12
    joint = [sum(np.multiply.outer(*both) for both in outputs) / 2 for outputs in given.values()]
    after = [law / law.sum(axis=1, keepdims=True) for law in joint]
    assert loss(*after) == pytest.approx(2.6064, abs=1e-4)  # more than the claim of the second output
    assert loss(*joint) <= 4
