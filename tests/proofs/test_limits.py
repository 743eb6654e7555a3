"""A limit that is drawn first, and a count whose noise follows from it: what both lose, by enumeration of their law."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._accounting import costs
from dp_polars._accounting.claims import Claim, claim_for_scores
from dp_polars._accounting.terms import ONE_RELEASE, Contributions, Loss, Terms
from dp_polars._mechanisms.limit_rule import Rule
from dp_polars._statistics.measures import Count
from tests.helpers import reference

FIRST, SECOND = Fraction(1, 5), Fraction(4, 5)
CANDIDATES = (1, 2, 4)
RULES = [Rule(CANDIDATES, (1, 1, 0), (0, 1, 3)), Rule(CANDIDATES, (5, 5, 5), (0, 1, 3), at_median=True)]
# Counts of which noise makes no difference any more.
REACH = np.arange(-160, 190)


def claim_of(limit, loss=SECOND, unit="epsilon"):
    """The claim of a count of rows in one group, with the limit in all."""
    word = "discrete_laplace" if unit == "epsilon" else "discrete_gaussian"
    return Count("rows", Terms.at(Loss(loss, unit), limit, word)).claim


def laws(rule, people, mechanism, second):
    """The probability of each limit together with each released count: an array, a row for each candidate.

    `people`: how many rows each of them has. A person beyond the limit adds the limit, as weights do in one group.
    """
    beyond = np.array([sum(n > b for n in people) for b in rule.counted], np.int64)
    rate = FIRST / rule.score_range
    chosen = reference.floats(reference.law(rule.scores(beyond).tolist(), rate=rate, mechanism=mechanism, digits=30))
    rows = []
    for limit, p in zip(rule.candidates, chosen, strict=True):
        count, claim = sum(min(n, limit) for n in people), second(limit)
        exponent = abs(REACH - count) if (claim.loss.unit == "epsilon") else (REACH - count) ** 2 / 2.0
        noise = np.exp(-exponent * float(claim.rate if (claim.loss.unit == "epsilon") else claim.rate**2))
        rows.append(p * noise / noise.sum())
    return np.array(rows)


def every_pair():
    """All data sets of up to three people with up to six rows, and one person more."""
    for size in range(3):
        for people in itertools.combinations_with_replacement(range(7), size):
            for more in range(1, 7):
                yield people, (*people, more)


def largest_epsilon(rule, mechanism, second):
    """The largest log-ratio of both laws, over all pairs."""
    return max(
        abs(np.log(laws(rule, one, mechanism, second)) - np.log(laws(rule, other, mechanism, second))).max()
        for one, other in every_pair()
    )


@pytest.mark.parametrize("rule", RULES, ids=["numbers", "selections"])
@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_stages_lose_the_sum_of_their_losses_whatever_the_limit(rule, mechanism):
    worst = largest_epsilon(rule, mechanism, claim_of)
    assert worst <= float(FIRST + SECOND) + 1e-6
    assert worst > 0.9 * float(FIRST + SECOND), worst


def laws_of_medians(values, mechanism, second=lambda _: SECOND):
    """The probability of both bounds together with each median on the whole numbers between them."""
    found = {}
    for sign in (-1, 1):
        rule = Rule((0, 1, 3), (0, 0, 0), (0, 1, 2))
        beyond = np.array([sum(sign * x > b for x in values) for b in rule.counted], np.int64)
        law = reference.law(rule.scores(beyond).tolist(), rate=FIRST / 2, mechanism=mechanism, digits=30)
        found[sign] = dict(zip(rule.candidates, reference.floats(law), strict=True))
    rows = []
    for low, high in itertools.product(found[-1], found[1]):
        clipped = [min(max(x, -low), high) for x in values]
        misses = [
            max(0, len(values) - 2 * sum(x <= c for x in clipped), 2 * sum(x < c for x in clipped) - len(values) + 1)
            for c in range(-low, high + 1)
        ]
        rate = second((low, high)) / 2  # their range is 2
        law = reference.law([-miss for miss in misses], rate=rate, mechanism=mechanism, digits=30)
        rows += [found[-1][low] * found[1][high] * float(p) for p in reference.floats(law)]
    return np.log(rows)


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_a_quantile_on_a_grid_that_is_found_loses_the_sum(mechanism):
    """Both bounds share the loss of the first stage: over all small data sets and one person more."""
    worst, control = 0.0, 0.0
    for size in range(3):
        for values in itertools.combinations_with_replacement((-4, -1, 0, 2, 4), size):
            for more in (-4, -1, 0, 2, 4):
                of = ([*values], [*values, more])
                worst = max(worst, abs(np.subtract(*(laws_of_medians(one, mechanism) for one in of))).max())
                # The control: a rate that grows with the number of candidates.
                wide = lambda y: SECOND * (1 + sum(y))  # noqa: E731
                control = max(control, abs(np.subtract(*(laws_of_medians(one, mechanism, wide) for one in of))).max())
    assert worst <= float(FIRST + SECOND) + 1e-6
    assert worst > 0.5 * float(FIRST + SECOND), worst
    assert control > float(FIRST + SECOND)


def test_noise_that_ignores_the_limit_loses_more():
    """The control: noise of the smallest candidate, and a count that keeps what the limit lets through."""
    assert largest_epsilon(RULES[0], "permute_and_flip", lambda _: claim_of(1)) > 2 * float(FIRST + SECOND)


def divergence(p, q, order):
    with np.errstate(divide="ignore"):
        return float(np.logaddexp.reduce((order * np.log(p) + (1 - order) * np.log(q)).ravel())) / (order - 1)


def spread_over_groups(limit, loss=SECOND):
    """The claim of a number of people in each group, of whom each counts in so many groups."""
    return replace(claim_of(limit, loss), contributions=Contributions(limit, 1))


PARTS = 4


def moved(limit, groups, order):
    """The divergence of all numbers of people, if one in so many groups comes: in parts, as weights have it."""
    shift, noise = PARTS * min(limit, groups) // groups, np.arange(-1600, 1601)
    p, q = (np.exp(-abs(noise - s) * float(spread_over_groups(limit).rate) / PARTS) for s in (0, shift))
    return groups * divergence(p / p.sum(), q / q.sum(), order)


@pytest.mark.parametrize("order", [1.01, 2, 8, 64])
@pytest.mark.parametrize("offsets", [(0, 1, 3), (0, 60, 90)], ids=str)
def test_in_the_other_unit_the_worst_candidate_is_charged(order, offsets):
    """Laplace noise costs a rho that falls with the limit: that of the smallest candidate holds, no other one does."""
    rule = Rule(CANDIDATES, (1, 1, 0), offsets)
    first = float(claim_for_scores(Loss(FIRST, "epsilon"), "exponential", Fraction(1, 2), False).cost("rho"))
    costs = {limit: float(spread_over_groups(limit).cost("rho")) for limit in CANDIDATES}
    assert costs[1] > costs[2] > costs[4]
    worst = 0.0
    for one in itertools.chain.from_iterable(itertools.combinations_with_replacement(CANDIDATES, n) for n in range(4)):
        for groups in CANDIDATES:
            p, q = (laws(rule, people, "exponential", claim_of).sum(1) for people in (one, (*one, groups)))
            for a, b in ((p, q), (q, p)):
                of_limits = [(order - 1) * moved(limit, groups, order) for limit in CANDIDATES]
                worst = max(worst, divergence(a * np.exp(np.array(of_limits) / order), b, order))
    assert 0 < worst <= order * (first + costs[1]) + 1e-9
    if order < 1.1 and offsets[1] > 1:  # the smallest is nearly certain; at large orders the pure loss is less
        assert worst > order * costs[2]


def test_a_rho_is_the_same_for_all_limits():
    """With Gaussian noise whose deviation follows from the limit, both stages lose their rho together."""
    rho = Fraction(1, 10)
    first = float(claim_for_scores(Loss(FIRST, "epsilon"), "exponential", Fraction(1, 2), False).cost("rho"))
    worst = 0.0
    for one, other in itertools.islice(every_pair(), 0, None, 3):
        p, q = (laws(RULES[0], people, "exponential", lambda b: claim_of(b, rho, "rho")) for people in (one, other))
        kept = (p > 1e-280) & (q > 1e-280)
        worst = max(worst, divergence(p[kept], q[kept], 2))
    assert 0.8 * 2 * float(rho) < worst <= 2 * (first + float(rho)) + 1e-9


def kept(counts, total, most):
    """How many rows of a person in each of two groups stay, with their probabilities: random ones of all."""
    capped = [min(n, most) for n in counts]
    drawn = min(total, sum(capped))
    ways = {(i, drawn - i): math.comb(capped[0], i) * math.comb(capped[1], drawn - i) for i in range(drawn + 1)}
    return {stay: n / math.comb(sum(capped), drawn) for stay, n in ways.items() if n}


def laws_of_modes(people, rate_of):
    """The probability of both limits together with the modes of two groups: people's rows against two others."""
    numbers = [[sum(counts) for counts in people], [max(counts) for counts in people]]
    rule = Rule((1, 2, 3), (0, 0, 0), (0, 1, 2), at_median=True)
    chosen = []
    for xs in numbers:
        beyond = np.array([sum(x > b for x in xs) for b in rule.counted], np.int64)
        found = reference.law(rule.scores(beyond).tolist(), rate=FIRST / 2, mechanism="exponential", digits=30)
        chosen.append(reference.floats(found))
    rows = []
    for (i, total), (j, most) in itertools.product(enumerate(rule.candidates), repeat=2):
        rate, answers = float(rate_of(total, most)), np.zeros((2, 2))
        for stay in itertools.product(*(kept(counts, total, most).items() for counts in people)):
            p = math.prod(one for _, one in stay)
            sums = [sum(of[group] for of, _ in stay) for group in (0, 1)]
            wins = [1 / (1 + math.exp(rate * (2 - n))) for n in sums]
            answers += p * np.outer([wins[0], 1 - wins[0]], [wins[1], 1 - wins[1]])
        rows.append(chosen[0][i] * chosen[1][j] * answers)
    return np.array(rows)


def test_two_limits_of_drawn_rows_lose_the_sum():
    """In rho, by enumeration: both choices, and modes of groups of which each person has a random part of the rows."""
    rho = Fraction(1, 5)

    def rate_of(total, most):
        total = min(total, 2 * most)
        contributions = Contributions(total, min(most, total))
        return Claim(Loss(rho, "rho"), "exponential", Fraction(1), contributions, "add_or_remove_one").rate

    choice = claim_for_scores(Loss(FIRST, "epsilon"), "exponential", Fraction(1, 2), False)
    bound = 2 * float(choice.cost("rho")) + float(rho)
    kinds = [*itertools.product(range(4), repeat=2)]
    worst, control = 0.0, 0.0
    for base in [(), *((kind,) for kind in kinds[::4])]:
        for more in kinds[1:]:
            pairs = [
                [laws_of_modes(people, rates) for people in (base, (*base, more))]
                for rates in (rate_of, lambda total, _: rate_of(total, 1))  # the control: as if all rows were spread
            ]
            lost, too_much = (
                max(divergence(*of, order) / order for of in (pair, pair[::-1]) for order in (1.5, 2, 8))
                for pair in pairs
            )
            worst, control = max(worst, lost), max(control, too_much)
    assert 0.5 * bound < worst <= bound + 1e-9
    assert control > bound


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
@pytest.mark.parametrize("score_range", [1, 2])
def test_a_quarter_of_a_range_pays_for_each_number_of_people(mechanism, score_range):
    """On a grid of rates: costs grow with rates, so the ends of each interval decide all of it."""

    def cost(kind, x):
        return costs.scaled_cost("rho", kind, Fraction(x), ONE_RELEASE)

    def is_paid(low, high):
        """One number by a quarter, and two by a half."""
        return all(
            cost(mechanism, low * (score_range + Fraction(number, 4))) - cost(mechanism, high * score_range)
            >= number * cost("discrete_laplace", min(high / 4, Fraction(1)))
            for number in (1, 2)
        )

    rate = Fraction(1, 1000)
    while rate < 4:
        larger = Fraction(math.ceil(rate * 1_009_000), 10**6)
        assert is_paid(rate, larger)
        rate = larger
    rooms = [
        cost(mechanism, n * (score_range + Fraction(1, 4))) - cost(mechanism, n * score_range) for n in range(4, 200)
    ]
    assert sorted(rooms) == rooms
    assert rooms[0] >= cost("discrete_laplace", 1)
