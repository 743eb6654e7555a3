"""Scores of limits and bounds: what one person changes, by brute force, and what is public about them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_polars._accounting.terms import Loss
from dp_polars._mechanisms.limit_rule import PARTS, Rule, bound_rule, bounds_up_to, limit_rule, part_of_loss
from dp_polars.analysis.scores import selection_probabilities
from tests.helpers.limits import drawn

KINDS = ("linear", "norm", "root", "selection")
EPSILON, RHO = Loss(Fraction(1, 2), "epsilon"), Loss(Fraction(1, 50), "rho")
# Below, between and beyond numbers of people, so that each branch of a score is reached.
TARGETS = ((0, 0, 0), (1, 1, 1), (2, 1, 0), (0, 3, 1), (5, 5, 5))


def beyond(rule, people):
    """How many people lie beyond each b, given what is compared of each: the definition."""
    return np.array([sum(person > b for person in people) for b in rule.counted], np.int64)


def neighbours(people, most):
    """Data sets without one person, and with another one in the place of one."""
    removed = [people[:i] + people[i + 1 :] for i in range(len(people))]
    replaced = [(*rest, other) for rest in removed for other in range(most + 1)]
    return removed, replaced


def moved(rule, one, other):
    """By how much the difference of two scores changes, at most."""
    changes = rule.scores(beyond(rule, one)) - rule.scores(beyond(rule, other))
    return int(changes.max() - changes.min())


@pytest.mark.parametrize("targets", TARGETS, ids=str)
@pytest.mark.parametrize("candidates", [(1, 2, 4), (0, 1, 3)], ids=str)
@pytest.mark.parametrize("at_median", [False, True])
def test_one_person_moves_scores_apart_by_at_most_their_range(targets, at_median, candidates):
    """All data sets of up to four people; 0 stands for a person without a contributing row."""
    rule = Rule(candidates, targets, (0, 7, 11), at_median)
    most = {"removed": 0, "replaced": 0}
    for size in range(1, 5):
        for people in itertools.combinations_with_replacement(range(6), size):
            for name, others in zip(most, neighbours(people, 5), strict=True):
                most[name] = max(most[name], *(moved(rule, people, other) for other in others))
    assert max(most.values()) <= rule.score_range
    # It is attained, unless T is beyond all people; half of them are beyond none of two candidates if T is 0.
    if targets == (5, 5, 5):
        assert most == dict.fromkeys(most, 2 if at_median else 0)
    elif not at_median:
        assert most == dict.fromkeys(most, 1)


def test_a_two_sided_score_would_move_by_twice_as_much():
    """The control: the score of which the page warns."""

    class TwoSided(Rule):
        def scores(self, counted):
            return -abs(counted - np.array(self.targets))

    rule = TwoSided((1, 2, 4), (1, 1, 1), (0, 0, 0))
    assert moved(rule, (2,), (2, 5)) == 2
    assert moved(Rule(rule.candidates, rule.targets, rule.offsets), (2,), (2, 5)) == 1


def test_scores_are_as_defined():
    rule = Rule((1, 2, 4), (3, 2, 2), (0, 10, 20))
    assert rule.counted == (1, 2, 4)
    assert rule.scores(np.array([9, 3, 1])).tolist() == [-6, -11, -20]
    median = Rule((1, 2, 4), (9, 3, 3), (0, 10, 20), at_median=True)
    assert median.counted == (0, 1, 2, 4)
    assert median.scores(np.array([10, 9, 5, 1])).tolist() == [-8, -12, -20]
    bounds = Rule((0, 2, 4), (9, 3, 3), (0, 10, 20), at_median=True)
    assert bounds.counted == (0, 2, 4)
    assert bounds.scores(np.array([10, 9, 5])).tolist() == [-10, -18, -22]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [EPSILON, RHO], ids=str)
@pytest.mark.parametrize("cells", [1, 3, 24, 10**6])
def test_the_formulas_are_rounded_up(kind, loss, cells):
    noise = Fraction(10 * cells, 3)
    rule = limit_rule(kind, loss, cells, noise)
    epsilon = float(loss.value) if loss.unit == "epsilon" else math.sqrt(8 * loss.value)
    power = min(2.2 + 1.2 * math.log(cells), 6)
    before = -1
    for b, target, offset in zip(rule.candidates, rule.targets, rule.offsets, strict=True):
        factor = min(0.5 + math.log(b), 2.5)
        shape = {"norm": cells**-0.2, "root": 1.75 * (math.sqrt(b + 1) - math.sqrt(b))}.get(kind, 1)
        wanted = 2.0**60 if kind == "selection" else factor * shape * float(noise)
        assert wanted * (1 - 1e-9) <= target < wanted * (1 + 1e-9) + 1
        wanted = power * math.log(b) * rule.score_range / epsilon
        assert wanted * (1 - 1e-9) <= offset
        assert before < offset < max(wanted * (1 + 1e-9) + 1, before + 2)
        before = offset


def test_whole_numbers_stay_whole():
    """Of intervals around them, the upper end lies above; no candidate may depend on how wide they are."""
    assert limit_rule("linear", EPSILON, 24, Fraction(20, 3) * 6).targets[0] == 20
    assert limit_rule("linear", EPSILON, 24, Fraction(2, 5)).targets[-1] == 1
    tenth, bounds = Loss(Fraction(1, 10), "epsilon"), bounds_up_to(Fraction(1), Fraction(5))
    assert bound_rule(tenth, Fraction(1, 8), bounds).offsets == (0, 1, 50, 100)
    assert bound_rule(tenth, Fraction(3, 8), bounds).targets == (6,) * 4


def test_candidates_of_limits_are_public():
    every = limit_rule("linear", EPSILON, 24, Fraction(1)).candidates
    assert every[:15] == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18)
    assert every[-1] == 10**6
    assert list(every) == sorted(set(every))
    ratios = [after / before for before, after in itertools.pairwise(every[9:])]
    assert max(ratios) < 1.17
    assert limit_rule("root", RHO, 24, Fraction(1), most=24).candidates[-3:] == (20, 22, 24)
    assert limit_rule("root", RHO, 13, Fraction(1), most=13).candidates[-3:] == (11, 12, 13)
    assert limit_rule("root", RHO, 1, Fraction(1), most=1).candidates == (1,)
    assert limit_rule("root", RHO, 24, Fraction(1), most=10**7).candidates[-2:] == (10**6, 10**7)


def test_candidates_of_bounds_are_public():
    assert bounds_up_to(Fraction(1), Fraction(127)) == (0, 1, 2, 5, 10, 20, 50, 100)
    assert bounds_up_to(Fraction(1, 100), Fraction(1)) == tuple(Fraction(n, 100) for n in (0, 1, 2, 5, 10, 20, 50, 100))
    assert bounds_up_to(Fraction(3, 10), Fraction(9)) == (0, Fraction(1, 2), 1, 2, 5)
    assert bounds_up_to(Fraction(1), Fraction(2**63 - 1))[-1] == 5 * 10**18
    lower = bound_rule(EPSILON, Fraction(1), [-b for b in bounds_up_to(Fraction(1, 2), Fraction(5))])
    upper = bound_rule(EPSILON, Fraction(1), bounds_up_to(Fraction(1, 2), Fraction(5)))
    assert upper.offsets == (0, 1, 2, 12, 22)
    assert lower.offsets == (0, 2, 4, 14, 24)  # few columns have values below 0
    assert lower.targets == upper.targets == (16,) * 5


@given(st.fractions(Fraction(1, 10**6), Fraction(20)), st.sampled_from(["epsilon", "rho"]), st.integers(1, 10**6))
def test_the_part_is_the_smallest_that_is_enough(value, unit, cells):
    loss = Loss(value, unit)
    noise = Fraction(cells) / value
    part = part_of_loss(loss, cells, noise)
    most = 0.3 if cells < 4 else 0.2 if cells < 8 else 0.15 if cells < 16 else 0.1
    parts = [p for p in (2, 3, 5, 7, 10, 15, 20, 30) if p <= 100 * most]
    assert 100 * part in parts
    enough = [
        p
        for p in parts
        if (p * value / 100 * noise >= 8 if unit == "epsilon" else Fraction(8 * p, 100) * value * noise**2 >= 64)
    ]
    assert 100 * part == (enough[0] if enough else parts[-1])


def test_extremes_stay_within_64_bits():
    tiny = Loss(Fraction(1, 10**200), "epsilon")
    rule = limit_rule("linear", tiny, 24, Fraction(10**200))
    assert max(rule.targets) == 2**60
    assert 2**60 <= max(rule.offsets) < 2**60 + len(rule.offsets)
    few = rule.scores(np.zeros(len(rule.candidates), np.int64))
    many = rule.scores(np.full(len(rule.candidates), 2**62))
    assert (few <= 0).all()
    assert (many < 0).all()
    assert drawn(rule, np.zeros(len(rule.candidates), np.int64), tiny) in rule.candidates


@pytest.mark.parametrize("law", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("beta", [0.5, 0.1, 0.01, 1e-4])
def test_the_score_that_is_drawn_is_near_the_best(law, beta):
    """By the exact laws: Theorem 4 of limits holds at the rate of a choice, and not at twice the rate."""
    rate, missed = Fraction(1, 5), 0.0
    for beyond_each, kind in itertools.product(((900, 40, 3, 0), (50, 50, 50, 50), (9000, 700, 90, 9)), KINDS[::3]):
        rule = limit_rule(kind, Loss(rate, "epsilon"), 4, Fraction(20), 100)
        people = [person for b, many in zip((2, 5, 30, 90), beyond_each, strict=True) for person in [b] * many]
        scores = rule.scores(beyond(rule, people))
        chances = selection_probabilities(
            scores, epsilon=2 * rate, mechanism=law
        )  # of scores that move by 1 either way
        least = scores.max() - math.log(len(scores) / beta) / float(rate)
        assert chances[scores < least].sum() <= beta
        half = scores.max() - math.log(len(scores) / beta) / float(2 * rate)
        missed = max(missed, chances[scores < half].sum())
    assert missed > beta or beta > 0.01


def test_a_large_loss_draws_the_best_score():
    """Offsets are for the loss of the rule; at 200 times the rate nothing but the best candidate is drawn."""
    people = [1] * 50_000 + [3] * 30_000 + [7] * 10_000 + [900] * 50
    loss, large = Loss(Fraction(1, 10), "epsilon"), Loss(Fraction(20), "epsilon")
    rule = limit_rule("linear", loss, 24, Fraction(240))
    assert drawn(rule, beyond(rule, people), large) == 7
    rule = limit_rule("selection", loss, 24, Fraction(240))
    assert drawn(rule, beyond(rule, people), large) == 1
    assert drawn(rule, beyond(rule, people[30_000:]), large) == 3
    bounds = bound_rule(loss, Fraction(30), bounds_up_to(Fraction(1), Fraction(10**6)))
    values = [Fraction(40)] * 30_000 + [Fraction(3000)] * 200
    assert drawn(bounds, beyond(bounds, values), large) == 50


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_what_a_person_loses_is_in_the_middle_of_two_candidates(kind):
    """By the definition, for whole numbers, which are as often each one, and for bounds of both signs."""
    if kind is None:
        for sign in (1, -1):
            rule = bound_rule(EPSILON, Fraction(1), [sign * b for b in bounds_up_to(Fraction(1), Fraction(10**4))])
            place = rule.candidates.index(sign * 20)
            # 35, 75 and 150 are in the middle of (20, 50], (50, 100] and (100, 200]; 100 is the first beyond 60.
            assert rule.most_lost(place, None) == 80
            parts = rule.parts_lost(place, None).tolist()
            assert parts[:4] == [round(PARTS * 15 / 80), round(PARTS * 55 / 80), PARTS, PARTS]
            assert rule.parts_lost(0, None).tolist() == [0] * len(rule.candidates)
            assert rule.most_lost(len(rule.candidates) - 1, None) == 0
        return
    rule = limit_rule(kind, EPSILON, 24, Fraction(1), most=200)
    for b in (1, 2, 7, 20):
        place = rule.candidates.index(b)
        top = next(c for c in rule.candidates if c >= 3 * b)
        most, parts = rule.most_lost(place, kind), rule.parts_lost(place, kind)
        lost = (lambda x, b=b: x - math.sqrt(b * x)) if kind == "root" else (lambda x, b=b: x - b)
        assert float(most) == pytest.approx(lost(top), abs=1e-4)
        for low, high, part in zip(rule.candidates[place:], rule.candidates[place + 1 :], parts, strict=False):
            inside = np.linspace(low, high, 1001) if kind == "norm" else np.arange(low + 1, high + 1)
            wanted = np.mean([lost(min(x, top)) for x in inside])
            assert part * float(most) / PARTS == pytest.approx(wanted, abs=float(most) / PARTS + 0.02)
        assert parts[-1] == PARTS == parts.max()
    assert rule.parts_lost(len(rule.candidates) - 1, kind).tolist() == [0]
