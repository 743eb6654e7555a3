"""Which keys are shown: probabilities against the recurrence and against brute sums, and draws against these."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._base.numbers import ball, lower, precision, system_rng, upper
from dp_polars._mechanisms import partition_selection as key_selection
from dp_polars._mechanisms.partition_selection import (
    GaussianThreshold,
    PartitionSelection,
    delta_of_one_key,
    threshold_for,
)
from tests.statistical.goodness import fits
from tests.statistical.racing import Words

EVERY = [
    (Fraction(1), Fraction(1, 10**6)),
    (Fraction(1, 10), Fraction(1, 1000)),
    (Fraction(3), Fraction(1, 10)),
    (Fraction(1, 100), Fraction(1, 10**10)),
    (Fraction(40), Fraction(1, 10**8)),
    (Fraction(1), Fraction(9, 10)),
    (Fraction(10**6), Fraction(1, 7)),
    (Fraction(1, 10**12), Fraction(1, 100)),
    (Fraction(2**990), Fraction(1, 3)),
    (Fraction(1, 5), Fraction(1, 2**999)),
    (Fraction(1, 2**900), Fraction(1, 2**900)),
]


def by_the_recurrence(epsilon, delta, most):
    """π(0), π(1), … as balls, by the recurrence that defines them."""
    chances = [arb(0)]
    for _ in range(most):
        before = chances[-1]
        second = 1 - (-ball(epsilon)).exp() * (1 - before - ball(delta))
        # e^ε times anything that is there is beyond 1 where ε is huge.
        first = arb(2) if epsilon > 10**4 and before > 0 else ball(delta)
        if epsilon <= 10**4:
            first = ball(epsilon).exp() * before + ball(delta)
        least = arb(1)
        for each in (first, second):
            least = each if each < least else least
        chances.append(least)
    return chances


@pytest.mark.parametrize(("epsilon", "delta"), EVERY)
def test_the_closed_form_is_the_recurrence(epsilon, delta):
    selection = PartitionSelection(epsilon, delta)
    with precision(500):
        expected = by_the_recurrence(epsilon, delta, min(400, 2 * selection.turning_point + 9))
        for people, chance in enumerate(expected[1:], 1):
            found = selection.real(people)
            assert abs((found if found < 1 else arb(1)) - chance) < arb(2) ** -400


@pytest.mark.parametrize(("epsilon", "delta"), EVERY)
def test_floats_stay_within_their_bound(epsilon, delta):
    selection = PartitionSelection(epsilon, delta)
    turn, rng = min(selection.turning_point, 2**61), np.random.default_rng(0)
    people = np.unique([*range(1, 40), max(turn - 1, 1), turn, turn + 1, *rng.integers(1, 3 * turn + 5, 100)])
    floats = selection.floats(people)
    with precision(4000):
        for number, found in zip(people.tolist(), floats.tolist(), strict=True):
            error = abs(ball(Fraction(found)) - selection.real(number))
            # A hundredth of what is allowed.
            assert float(upper(error)) <= key_selection._SLACK * (1 + found) / 100


def test_numbers_known():
    """Of the paper's own example: at ε = 1, δ = 1e-5, π(n) grows as δ(e^n − 1)/(e − 1) and is 1 from 24 on."""
    selection = PartitionSelection(Fraction(1), Fraction(1, 10**5))
    assert selection.floats(np.array([1, 2])) == pytest.approx([1e-5, 1e-5 * (1 + math.e)])
    chances = selection.floats(np.arange(1, 40))
    assert (np.diff(chances) > 0).all()
    certain = int(np.flatnonzero(chances >= 1)[0]) + 1
    assert selection.shown(np.full(10**5, certain), system_rng()).all()
    assert not selection.shown(np.zeros(10**5, np.int64), lambda n: np.zeros(n, np.uint64)).any()


PAIRS = [(Fraction(1), Fraction(1, 100)), (Fraction(1, 3), Fraction(1, 20)), (Fraction(1, 10), Fraction(1, 10**4))]
PEOPLE, DRAWS = 60, 100_000


def shown(selection):
    """How often keys of 1 to 60 people are shown, of so many draws each."""
    people = np.repeat(np.arange(1, PEOPLE + 1), DRAWS)
    return selection.draw(people)[0].reshape(PEOPLE, DRAWS).sum(axis=1)


def all_fit(counts, chances):
    return all(
        fits([count, DRAWS - count], [chance, 1 - chance]) for count, chance in zip(counts, chances, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_every_number_of_people_is_shown_with_its_probability(epsilon, delta):
    with precision(200):
        chances = [min(1.0, float(chance.mid())) for chance in by_the_recurrence(epsilon, delta, PEOPLE)[1:]]
    assert all_fit(shown(PartitionSelection(epsilon, delta)), chances)
    for others in (
        (epsilon * Fraction(6, 5), delta),
        (epsilon * Fraction(4, 5), delta),
        (epsilon, 2 * delta),
        (epsilon, delta / 2),
    ):
        assert not all_fit(shown(PartitionSelection(*others)), chances), others


@pytest.mark.parametrize("people", [1, 3, 7, 14, 15, 20])
def test_what_floats_cannot_decide_more_bits_do(people):
    """The word that π begins with, and then bits just below or just above the rest of π."""
    selection = PartitionSelection(Fraction(1, 2), Fraction(1, 1000))
    with precision(400):
        chance = selection.real(people)
        bits = math.floor(lower(chance) * 2**192)
    head, *rest = (bits >> 64 * place & 2**64 - 1 for place in (2, 1, 0))

    def words(*given):
        return Words(*([word] for word in given))

    one = np.array([people])
    assert selection.shown(one, words(head, rest[0], rest[1] - 1, 0)).tolist() == [True]
    assert selection.shown(one, words(head, rest[0], rest[1] + 1, 0)).tolist() == [False]
    assert selection.shown(one, words(head, rest[0] - 1, 0)).tolist() == [True]
    assert selection.shown(one, words(head, rest[0] + 1, 0)).tolist() == [False]


@settings(deadline=None)
@given(
    delta=st.fractions(Fraction(1, 10**12), Fraction(99, 100)),
    keys=st.integers(1, 10**6),
)
def test_the_delta_of_one_key_is_rounded_down_by_a_hair(delta, keys):
    share = delta_of_one_key(delta, keys)
    with precision(600):
        lone = 1 - (1 - ball(share)) ** keys
        assert not lone > ball(delta)
        assert 1 - (1 - ball(share * (1 + Fraction(1, 2**90)))) ** keys > ball(delta)
    assert share.numerator.bit_length() <= 100 or keys == 1


# --- The Gaussian threshold ---

VARIANCES = [
    Fraction(1, 1000),
    Fraction(1, 10),
    Fraction(1, 2),
    Fraction(1),
    Fraction(5),
    Fraction(77, 3),
    Fraction(1000),
    Fraction(10**5),
]
DELTAS = [Fraction(3, 4), Fraction(1, 3), Fraction(1, 100), Fraction(1, 10**6), Fraction(1, 10**12)]


def weights(variance, most):
    return [ball(-Fraction(x * x) / (2 * variance)).exp() for x in range(most)]


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_threshold_is_the_smallest_by_brute_sums(variance):
    with precision(300):
        one_side = weights(variance, math.ceil(40 * math.sqrt(variance)) + 50)
        total = one_side[0] + 2 * sum(one_side[1:], arb(0))
        tails = [arb(0)]
        for weight in reversed(one_side[1:]):
            tails.append(tails[-1] + weight)
        tails = tails[:0:-1]  # tails[x − 1] = P(noise >= x)·total
        for delta in DELTAS:
            for keys in (1, 3, 100):
                # The lone person's keys, none of which may be shown.
                enough = [1 - (1 - tail / total) ** keys <= ball(delta) for tail in tails]
                assert threshold_for(variance, delta, keys) == enough.index(True) + 2


@pytest.mark.parametrize("variance", [Fraction(10**9), Fraction(10**14), Fraction(2**98), Fraction(1, 2**1900)])
def test_thresholds_of_extreme_noise(variance):
    """Here a normal tail is good to a few units."""
    found = threshold_for(variance, Fraction(1, 10**6), 1)
    expected = max(4.753424308822899 * math.sqrt(variance), 1) + 1
    assert found == pytest.approx(expected, rel=1e-7, abs=2)


@pytest.mark.parametrize("terms", [1, 3, 20])
@pytest.mark.parametrize("variance", [Fraction(4), Fraction(90), Fraction(1000)])
def test_a_threshold_is_proved_by_however_few_terms(variance, terms, monkeypatch):
    """At a delta a hair below the tail from n on, a lone key that reaches n must not be shown: the bounds hold both."""
    monkeypatch.setattr(key_selection, "_MOST_TERMS", terms)
    with precision(300):
        one_side = weights(variance, math.ceil(40 * math.sqrt(variance)) + 50)
        total = one_side[0] + 2 * sum(one_side[1:], arb(0))
        for reached in (1, 2, 3, 5, 8, 13):
            tail = lower(sum(one_side[reached:], arb(0)) / total)
            found = threshold_for.__wrapped__(variance, tail * (1 - Fraction(1, 2**60)), 1)
            assert reached + 2 <= found <= 2 * reached + 2 + math.sqrt(variance)


def test_a_threshold_is_refused_where_floats_could_not_hold_its_noise():
    for variance, delta in ((Fraction(2**100), Fraction(1, 10)), (Fraction(1), Fraction(1, 2**1000))):
        with pytest.raises(ValueError, match="the noise of a key must have"):
            threshold_for(variance, delta, 2)
    with pytest.raises(ValueError, match="delta must lie between"):
        PartitionSelection(Fraction(1), Fraction(1, 2**1001))


@pytest.mark.parametrize(("variance", "threshold"), [(Fraction(3), 6), (Fraction(1, 4), 2), (Fraction(100), 25)])
def test_noisy_numbers_are_shown_from_the_threshold_on(variance, threshold):
    selection = GaussianThreshold(variance, threshold)
    people = np.repeat(np.arange(1, 4), DRAWS)
    seen, noisy = selection.draw(people)
    assert (seen == (noisy >= threshold)).all()
    with precision(200):
        one_side = [float(weight.mid()) for weight in weights(variance, 400)]
    total = one_side[0] + 2 * sum(one_side[1:])
    found = [int(seen[people == number].sum()) for number in range(1, 4)]

    def chances(threshold):
        return [sum(one_side[abs(x)] for x in range(threshold - n, 400)) / total for n in range(1, 4)]

    assert all_fit(found, chances(threshold))
    off = 1 + math.isqrt(math.floor(variance)) // 5  # so far that it is seen whatever is drawn
    assert not all_fit(found, chances(threshold + off))
    assert not all_fit(found, chances(threshold - off))


# --- How many people a key needs ---


@pytest.mark.parametrize(("epsilon", "delta"), [pair for pair in EVERY if Fraction(1, 1000) < pair[0] < 100])
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.95])
def test_people_that_partition_selection_needs(epsilon, delta, chance):
    with precision(300):
        chances = by_the_recurrence(epsilon, delta, 4000)
        expected = next(people for people, each in enumerate(chances) if each >= arb(chance))
    assert PartitionSelection(epsilon, delta).people_for(chance) == expected


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.95])
def test_people_that_a_threshold_needs(variance, chance):
    threshold = threshold_for(variance, Fraction(1, 10**6), 3)
    with precision(200):
        one_side = [float(weight.mid()) for weight in weights(variance, math.ceil(20 * math.sqrt(variance)) + 20)]
    both = np.array([*reversed(one_side[1:]), *one_side])
    tails = np.cumsum(both[::-1])[::-1] / both.sum()  # of noise from −(n − 1) on
    least = int(np.flatnonzero(tails >= chance)[-1]) - len(one_side) + 1
    assert GaussianThreshold(variance, threshold).people_for(chance) == max(threshold - least, 1)


def test_people_beyond_all_numbers():
    assert PartitionSelection(Fraction(1, 2**900), Fraction(1, 2**900)).people_for(0.5) == 2**62
