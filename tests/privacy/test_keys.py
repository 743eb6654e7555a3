"""Selected keys, per person: the exact law of a whole release, for all small data sets and their neighbours.

People have up to three keys, of which one or two count. The laws are written here anew, from what the docs say: a
random subset of each person's keys, people counted, and then each key shown with π(n), or by its noisy number. Only
rates, deltas and thresholds are the package's. Another test holds real releases against these laws.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._accounting.terms import Loss, Terms
from dp_polars._mechanisms.renyi_selection import RenyiSelection
from dp_polars._statistics.statistic import KeysThatAreThere
from tests.privacy import datasets
from tests.statistical.goodness import fits

KEYS = "abc"
# What one person may have: every set of keys that is not empty.
PERSONS = [set(own) for n in (1, 2, 3) for own in itertools.combinations(KEYS, n)]
BASES = [list(people) for n in (0, 1, 2) for people in itertools.combinations_with_replacement(PERSONS, n)]
# One where a key is nearly sure to be shown, and one that is about as likely shown as not.
BASES += [[{"a"}] * 9 + [{"b"}] * 4, [{"a", "b"}] * 4 + [{"a"}] * 2]
DELTA = Fraction(1, 20)


def statistic(relation="add_or_remove_one", most=1, delta=DELTA, *, counts=False, **loss):
    terms = Terms.at(Loss.of(**{"epsilon": None, "rho": None, **loss}))
    return KeysThatAreThere.of(("k",), terms, delta, most, relation, counts=counts)


def subsets(own, most):
    """What stays of a person's keys: each of these with the same probability."""
    return list(itertools.combinations(sorted(own), min(most, len(own))))


def counts_of(people, most):
    """The law of the numbers of people of all keys: one for each way to choose subsets."""
    law = Counter({(0,) * len(KEYS): Fraction(1)})
    for own in people:
        following = Counter()
        ways = subsets(own, most)
        for counts, chance in law.items():
            for chosen in ways:
                one_more = tuple(n + (key in chosen) for n, key in zip(counts, KEYS, strict=True))
                following[one_more] += chance / len(ways)
        law = following
    return law


def product_law(each):
    """The law of independent outcomes, one for each key."""
    law = np.ones(1)
    for own in each:
        law = np.multiply.outer(law, own).ravel()
    return law


def mixture(laws):
    return sum(float(chance) * law for law, chance in laws)


# --- Epsilon ---


def pi(epsilon, delta, most):
    """π(0), π(1), … by the recurrence."""
    chances = [0.0]
    for _ in range(most):
        before = chances[-1]
        first, second = math.exp(epsilon) * before + delta, 1 - math.exp(-epsilon) * (1 - before - delta)
        chances.append(min(first, second, 1.0))
    return np.array(chances)


def shown_law(people, most, asked):
    """The probability of each set of keys that may be released, shape (2**3,)."""
    by_epsilon = asked.claim.loss.unit == "epsilon"
    chances = (
        pi(float(asked.selection.epsilon), float(asked.selection.delta), 20)
        if by_epsilon
        else asked.selection.chances(np.arange(21))
    )
    return mixture(
        (product_law([np.array([1 - chances[n], chances[n]]) for n in counts]), chance)
        for counts, chance in counts_of(people, most).items()
    )


def divergence(one, other, epsilon):
    """The hockey-stick divergence, both ways: the least delta."""
    return max(
        np.maximum(one - math.exp(epsilon) * other, 0).sum(), np.maximum(other - math.exp(epsilon) * one, 0).sum()
    )


def neighbours(relation, bases=BASES):
    for base in bases:
        if relation == "add_or_remove_one":
            yield from ((base, [*base, person]) for person in PERSONS)
        else:
            yield from (([*base, one], [*base, two]) for one, two in itertools.combinations(PERSONS, 2))


def worst(relation, most, asked, epsilon, bases=BASES):
    return max(
        divergence(shown_law(one, most, asked), shown_law(two, most, asked), epsilon)
        for one, two in neighbours(relation, bases)
    )


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_keys_by_epsilon_cost_at_most_epsilon_and_delta(relation, most, epsilon):
    asked = statistic(relation, most, epsilon=epsilon)
    found = worst(relation, most, asked, float(epsilon))
    assert found <= DELTA * (1 + 1e-12)
    # Of a new person with so many keys of their own it is all needed. A replaced one has no 2·3 keys among three.
    if relation == "add_or_remove_one":
        assert found >= DELTA * (1 - 1e-9)
    else:
        assert found >= DELTA / 3


@pytest.mark.parametrize("most", [2, 3])
def test_keys_that_each_cost_the_whole_are_found_out(most):
    """The control: π with the epsilon and delta of the whole release for each of a person's keys."""
    assert worst("add_or_remove_one", most, statistic(most=1, epsilon=1), 1.0) > DELTA * 1.5


def test_a_replaced_person_costs_more_than_one_who_comes_or_goes():
    assert worst("replace_one", 1, statistic(epsilon=1), 1.0, BASES[:9]) > DELTA * 1.5


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize(
    "loss", [{"epsilon": 2}, {"rho": Fraction(1, 2)}, {"rho": Fraction(1, 2), "counts": True}], ids=str
)
@pytest.mark.parametrize("delta", [Fraction(1, 20), Fraction(1, 10**9)])
def test_keys_of_one_person_alone_are_shown_with_probability_at_most_delta(most, loss, delta):
    asked = statistic(most=most, delta=delta, **loss)
    if "epsilon" in loss:
        lone = float(asked.selection.epsilon), float(asked.selection.delta)
        chance = pi(*lone, 1)[1]
    else:
        chance = noisy_law(1, asked)[1:].sum() if "counts" in loss else asked.selection.chances(np.array([1]))[0]
    if "counts" not in loss:
        assert -math.expm1(most * math.log1p(-chance)) >= float(delta) * (1 - 1e-9)
    assert -math.expm1(most * math.log1p(-chance)) <= float(delta) * (1 + 1e-12)


# --- Rho, with noisy numbers ---

NOISE = 60  # beyond so many standard deviations nothing is left that a float would show


def noisy_law(people, asked):
    """The law of what is released of one key: nothing, or its noisy number from the threshold on."""
    selection = asked.selection
    if people == 0:
        law = np.zeros(NOISE + 1)
        law[0] = 1
        return law
    variance, most = float(selection.variance), selection.threshold + NOISE
    noise = np.exp(-(np.arange(-most - 20, most + 20) ** 2) / (2 * variance))
    noise /= noise.sum()
    numbers = np.arange(-most - 20, most + 20) + people
    above = noise[(numbers >= selection.threshold) & (numbers < selection.threshold + NOISE)]
    return np.concatenate([[1 - above.sum()], above])


def released_law(counts, asked, hidden=()):
    """The law of a release with noisy numbers, given the counts; `hidden` keys are not shown."""
    return product_law([noisy_law(0 if key in hidden else n, asked) for key, n in zip(KEYS, counts, strict=True)])


def renyi(one, other, alpha):
    both = (one > 1e-290) & (other > 1e-290)
    assert one[~both].sum() < 1e-12
    return datasets.renyi(np.log(one[both]), np.log(other[both]), alpha)


def approximate(base, one, two, most, asked):
    """The laws of a release without its events, and given them: of `base` with a person `one`, or with `two`.

    None: nobody. The events are the docs': that no key of theirs alone is shown, and coins of one probability in all.
    """
    others = counts_of(base, most)
    laws = [[], [], [], []]
    for own_one, own_two in itertools.product(subsets(one, most), subsets(two, most)):
        chance = Fraction(1, len(subsets(one, most)) * len(subsets(two, most)))
        for counts, weight in others.items():
            for place, own, rest in ((0, own_one, own_two), (2, own_two, own_one)):
                mine = tuple(n + (key in own) for n, key in zip(counts, KEYS, strict=True))
                alone = [key for key, n in zip(KEYS, counts, strict=True) if n == 0 and key in own and key not in rest]
                laws[place].append((released_law(mine, asked), chance * weight))
                laws[place + 1].append((released_law(mine, asked, alone), chance * weight))
    return [mixture(law) for law in laws]


SMALL = [[], [{"a"}], [{"a", "b"}], [{"a"}, {"a", "b", "c"}], [{"a"}] * 5 + [{"b"}] * 2]


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_noisy_numbers_are_approximately_zero_concentrated(relation, most):
    """All but delta of both releases is within rho of each other: Bun & Steinke 2016, Definition 8.1."""
    rho = Fraction(2)
    asked = statistic(relation, most, rho=rho, counts=True)
    lone = noisy_law(1, asked)[1:].sum()
    kept = (1 - lone) ** most
    assert kept >= 1 - float(DELTA) * (1 + 1e-12)
    nobody = [set()] if relation == "add_or_remove_one" else PERSONS
    largest = 0.0
    for base, one, two in itertools.product(SMALL, nobody, PERSONS):
        whole, given, other, other_given = approximate(base, one, two, most, asked)
        assert (whole - kept * given).min() >= -1e-15
        assert (other - kept * other_given).min() >= -1e-15
        for alpha in (1.01, 1.5, 2, 5, 20):
            for ratio in (renyi(given, other_given, alpha), renyi(other_given, given, alpha)):
                assert ratio <= float(rho) * alpha * (1 + 1e-9)
                largest = max(largest, ratio / (float(rho) * alpha))
    # It is nearly all needed, by a person whose keys others have: of the numbers below the threshold nothing is seen.
    assert largest > (0.5 if relation == "add_or_remove_one" else 0.2)


def test_a_threshold_one_lower_spends_more_than_delta():
    """The control."""
    for most in (1, 2, 3):
        asked = statistic(most=most, rho=1, counts=True)
        lower = KeysThatAreThere(asked.columns, asked.terms, most)
        lower.__dict__["selection"] = type(asked.selection)(asked.selection.variance, asked.selection.threshold - 1)
        assert (
            1 - (1 - noisy_law(1, lower)[1:].sum()) ** most > DELTA >= 1 - (1 - noisy_law(1, asked)[1:].sum()) ** most
        )


# --- Rho, without numbers ---


def coin_laws(base, one, two, most, asked):
    """The laws of a release and those given its events: of `base` with a person `one`, or with `two` (nobody: empty).

    For each key that only one of both has, the event is a coin. Given it, the key is shown as the docs say.
    """
    chances = asked.selection.chances(np.arange(20))
    delta = float(asked.selection.delta)
    fewer, more = np.minimum(chances / (1 - delta), 1), (chances - delta) / (1 - delta)
    laws = [[], [], [], []]
    for own_one, own_two in itertools.product(subsets(one, most), subsets(two, most)):
        chance = Fraction(1, len(subsets(one, most)) * len(subsets(two, most)))
        for counts, weight in counts_of(base, most).items():
            for place, own, rest in ((0, own_one, own_two), (2, own_two, own_one)):
                whole, given = [], []
                for key, n in zip(KEYS, counts, strict=True):
                    shown = chances[n + (key in own)]
                    if (key in own) != (key in rest):
                        kept = max(more[n + 1], fewer[n]) if key in own else fewer[n]
                    else:
                        kept = shown
                    whole.append(np.array([1 - shown, shown]))
                    given.append(np.array([1 - kept, kept]))
                laws[place].append((product_law(whole), chance * weight))
                laws[place + 1].append((product_law(given), chance * weight))
    return [mixture(law) for law in laws]


def largest_cost(relation, most, asked, rho):
    """The largest divergence given the events, over rho·α, if these have at least the probability 1 − DELTA."""
    nobody = [set()] if relation == "add_or_remove_one" else PERSONS
    kept = (1 - float(asked.selection.delta)) ** asked.claim.contributions.total
    assert kept >= 1 - float(DELTA) * (1 + 1e-12)
    largest = 0.0
    for base, one, two in itertools.product(SMALL, nobody, PERSONS):
        whole, given, other, other_given = coin_laws(base, one, two, most, asked)
        assert (whole - kept * given).min() >= -1e-15
        assert (other - kept * other_given).min() >= -1e-15
        for alpha in (1 + 1e-6, 1.01, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 20, 100):
            for ratio in (renyi(given, other_given, alpha), renyi(other_given, given, alpha)):
                largest = max(largest, ratio / (rho * alpha))
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("rho", [Fraction(1, 5), Fraction(2)])
def test_coins_by_rho_are_approximately_zero_concentrated(relation, most, rho):
    """All but delta of both releases is within rho of each other: Bun & Steinke 2016, Definition 8.1."""
    largest = largest_cost(relation, most, statistic(relation, most, rho=rho), float(rho))
    assert largest <= 1 + 1e-6
    # It is nearly all needed, by a person whose keys others have.
    assert largest > (0.9 if relation == "add_or_remove_one" else 0.4)


def test_coins_that_each_cost_the_whole_are_found_out():
    """The control: the rho of the whole release for each of a person's keys."""
    asked = statistic(most=2, rho=1)
    assert largest_cost("add_or_remove_one", 2, asked, 1.0) <= 1 + 1e-6
    asked.__dict__["selection"] = RenyiSelection(Fraction(1), asked.selection.delta)
    assert largest_cost("add_or_remove_one", 2, asked, 1.0) > 1.5


# --- Real releases ---

COPIES = 8000
PEOPLE = [{"a", "b", "c"}, {"a", "b"}, {"a"}, {"a"}, {"b", "c"}]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_releases_follow_the_law(most, engine, unit):
    """Copies of a small data set, with keys of their own, in one release: each copy is a draw from the law."""
    rows = [
        (8 * copy + person, f"{copy} {key}")
        for copy in range(COPIES)
        for person, own in enumerate(PEOPLE)
        for key in [*own, *own]
    ]
    frame = pl.DataFrame(rows, {"p": pl.Int64, "k": pl.String}, orient="row").sample(fraction=1, shuffle=True)
    for factor in (Fraction(1), Fraction(7, 10), Fraction(13, 10)):
        private = frame.dp.protect("p", max_groups=most)
        loss = {unit: 2 * factor}
        released = private.keys("k", **loss, delta=DELTA).release(engine=engine)
        shown = [0] * COPIES
        for name in released["k"]:
            copy, key = name.split()
            shown[int(copy)] |= 4 >> KEYS.index(key)
        law = shown_law(PEOPLE, most, statistic(most=most, **{unit: 2}))
        assert fits(np.bincount(shown, minlength=8), law) == (factor == 1)


@pytest.mark.slow
def test_noisy_numbers_follow_the_law():
    rows = [(8 * copy + person, copy) for copy in range(COPIES) for person in range(5)]
    frame = pl.DataFrame(rows, {"p": pl.Int64, "k": pl.Int64}, orient="row")
    asked = statistic(rho=Fraction(1, 4), counts=True)
    for factor in (Fraction(1), Fraction(7, 10), Fraction(13, 10)):
        released = (
            frame.dp.protect("p", max_groups=1).keys("k", rho=factor / 4, delta=DELTA, with_counts=True).release()
        )
        numbers = released["count"].to_numpy() - asked.selection.threshold + 1
        if numbers.min() < 1:  # of a lower threshold
            assert factor != 1
            continue
        # Far numbers together: the fewer cells, the sooner a wrong law is found out.
        seen = np.bincount(np.minimum(numbers, 6), minlength=7)
        seen[0] = COPIES - len(numbers)
        law = noisy_law(5, asked)
        assert fits(seen, [*law[:6], law[6:].sum()]) == (factor == 1)
