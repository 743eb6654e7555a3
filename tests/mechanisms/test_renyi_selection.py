"""Which keys are shown by a loss in rho: every step against Rényi divergences at many orders, and draws against these.

Divergences are computed here from their definition, with 200 bits.
"""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._accounting.terms import Loss, Terms
from dp_polars._base.numbers import ball, precision, upper
from dp_polars._mechanisms import renyi_selection
from dp_polars._mechanisms.partition_selection import GaussianThreshold, threshold_for
from dp_polars._mechanisms.renyi_selection import RenyiSelection
from dp_polars._statistics.statistic import KeysThatAreThere
from tests.statistical.goodness import fits
from tests.statistical.racing import Words

EVERY = [
    (Fraction(1, 200), Fraction(1, 10**6)),
    (Fraction(1, 10), Fraction(1, 1000)),
    (Fraction(1, 1000), Fraction(1, 100)),
    (Fraction(1, 2), Fraction(1, 10**9)),
    (Fraction(1), Fraction(1, 2**299)),
    (Fraction(5), Fraction(1, 3000)),
    (Fraction(100), Fraction(1, 7)),
    (Fraction(10**9), Fraction(1, 10**12)),
    (Fraction(1, 50), Fraction(9, 10)),
]
# α − 1 of many orders α, small ones and large ones.
ORDERS = [Fraction(2) ** exponent for exponent in range(-20, 0)] + [Fraction(n, 8) for n in range(8, 480)]
ORDERS += [Fraction(2) ** exponent for exponent in range(6, 14)]


def largest_part(p, q, rho, orders=ORDERS):
    """The largest divergence of two Bernoulli laws, both ways, over rho·α. Upper ends, so it is never too small."""
    largest = 0.0
    for one, other in ((p, q), (q, p)):
        logs = [(ball(x).log(), ball(y).log()) for x, y in ((one, other), (1 - one, 1 - other))]
        for more in map(ball, orders):
            moment = sum(((1 + more) * x - more * y).exp() for x, y in logs)
            largest = max(largest, float(upper(moment.log() / more / (ball(rho) * (1 + more)))))
    return largest


def steps(selection):
    """The two laws given that nothing is lost, for each number of people: (n, p, q)."""
    chances, kept = [chance.exact for chance in selection.table], 1 - selection.delta
    for n, (one, two) in enumerate(pairwise(chances[1:]), 1):
        yield n, one / kept, (two - selection.delta) / kept


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "delta"), EVERY)
def test_every_person_more_costs_at_most_rho_and_no_larger_chance_does(rho, delta):
    selection = RenyiSelection(rho, delta)
    chances = [chance.exact for chance in selection.table]
    assert chances[0] == 0
    assert delta * (1 - Fraction(1, 2**50)) <= chances[1] <= delta
    assert chances == sorted(chances)
    assert chances[-1] >= 1 - delta  # so 1 is at most δ more
    with precision(200):
        for n, p, q in steps(selection):
            if chances[n + 1] == chances[-1]:  # so that 1 is next: less than possible
                assert chances[n + 1] <= chances[n] + delta or largest_part(p, q, rho) <= 1
                continue
            assert p < q < 1
            assert largest_part(p, q, rho) <= 1
            logit, end = (math.log(x) - math.log(1 - x) for x in (p, q))
            at = Fraction(renyi_selection._closest_order(min(logit, -end), end - logit, float(min(rho, 100))))
            assert largest_part(p, q, min(rho, 100), [max(at - 1, ORDERS[0])]) >= 1 - 1e-5


def law_at(logit):
    """The probabilities of one and of zero, of which the smaller one is a float."""
    small = Fraction(renyi_selection._expit(-abs(logit)))
    return (small, 1 - small) if logit < 0 else (1 - small, small)


@settings(deadline=None, max_examples=300)
@given(
    logit=st.floats(-40, 40),
    rho=st.floats(1e-4, 50).map(Fraction),
    factor=st.sampled_from([0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9, 1 + 1e-9, 1 + 1e-6, 1.001, 1.1, 2]),
)
def test_what_is_proved_is_true(logit, rho, factor):
    """For laws near the limit, below and above it: nothing beyond it is proved."""
    width = factor * renyi_selection._largest_width(logit, 1.0, float(rho))
    (p, of_p), (q, of_q) = (law_at(x) for x in (logit, logit + width))
    if of_q < Fraction(1, 2**900):
        return
    with precision(400):
        proved = renyi_selection._is_proved((p, of_p), (q, of_q), rho)
        assert not proved or largest_part(p, q, rho) <= 1
    assert not (proved and factor > 1)


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(4)])
def test_randomized_response_costs_what_is_known(epsilon):
    """Its rho is ε·tanh(ε/2), at the order 1 alone (`docs/proofs/composition.md`, Theorem 1)."""
    p, of_p = law_at(-float(epsilon))
    known = Fraction(float(epsilon) * math.tanh(float(epsilon) / 2))
    with precision(400):
        for factor, is_enough in ((1 + Fraction(1, 10**9), True), (1 - Fraction(1, 10**9), False)):
            assert renyi_selection._is_proved((p, of_p), (of_p, p), known * factor) == is_enough


def test_what_nothing_proves_grows_by_delta(monkeypatch):
    """Then all but δ stays as it is, which costs nothing."""
    monkeypatch.setattr(renyi_selection, "_is_proved", lambda *_: False)
    delta = Fraction(1, 8)
    table = renyi_selection.chances_for.__wrapped__(Fraction(1, 10), delta)
    assert [chance.exact for chance in table] == [n * delta for n in range(8)]


def test_the_range_of_tables():
    for rho, delta in ((Fraction(1, 10**7), Fraction(1, 10**6)), (Fraction(1), Fraction(1, 2**301))):
        assert not RenyiSelection.has_table(rho, delta)
    rho, delta = Fraction(1, 10**5), Fraction(1, 10**3)
    assert RenyiSelection.has_table(rho, delta)
    assert len(RenyiSelection(rho, delta).table) < 700 < renyi_selection._LONGEST


def asked(rho, delta, keys, relation="add_or_remove_one"):
    terms = Terms.at(Loss.of(epsilon=None, rho=rho))
    return KeysThatAreThere.of(("k",), terms, delta, keys, relation, counts=False)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("keys", [1, 3, 10])
def test_the_loss_of_a_person_is_divided_among_their_keys(keys, relation):
    rho, delta, changed = Fraction(1, 50), Fraction(1, 10**6), keys * (1 if relation == "add_or_remove_one" else 2)
    selection = asked(rho, delta, keys, relation).selection
    assert isinstance(selection, RenyiSelection)
    assert rho * (1 - Fraction(1, 2**80)) <= selection.rho * changed <= rho
    assert delta * (1 - Fraction(1, 2**80)) <= 1 - (1 - selection.delta) ** changed <= delta


def test_long_tables_become_a_threshold():
    """Of so little loss, with the same cost."""
    assert isinstance(asked(Fraction(1, 10**8), Fraction(1, 10**6), 1).selection, GaussianThreshold)


@pytest.mark.parametrize("keys", [1, 3, 10])
@pytest.mark.parametrize("rho", [Fraction(1, 200), Fraction(23, 1000), Fraction(1, 10)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(1, 10**9)])
def test_a_key_needs_fewer_people_than_with_a_noisy_number(rho, delta, keys):
    coin, variance = asked(rho, delta, keys).selection, keys / (2 * rho)
    threshold = GaussianThreshold(variance, threshold_for(variance, delta, keys))
    for chance in (0.5, 0.95):
        assert 0.8 * threshold.people_for(chance) < coin.people_for(chance) < 0.9 * threshold.people_for(chance)


# --- Draws ---

PEOPLE, DRAWS = 40, 100_000


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "delta"), [(Fraction(1, 4), Fraction(1, 100)), (Fraction(1, 50), Fraction(1, 10))])
def test_every_number_of_people_is_shown_with_its_probability(rho, delta):
    def counts(selection):
        people = np.repeat(np.arange(1, PEOPLE + 1), DRAWS)
        return selection.draw(people)[0].reshape(PEOPLE, DRAWS).sum(axis=1)

    def all_fit(found):
        return all(fits([n, DRAWS - n], [chance, 1 - chance]) for n, chance in zip(found, chances, strict=True))

    chances = RenyiSelection(rho, delta).chances(np.arange(1, PEOPLE + 1))
    assert all_fit(counts(RenyiSelection(rho, delta)))
    for other in ((rho * Fraction(6, 5), delta), (rho * Fraction(4, 5), delta), (rho, 2 * delta), (rho, delta / 2)):
        assert not all_fit(counts(RenyiSelection(*other))), other


@pytest.mark.parametrize("people", [1, 2, 5, 7, 9])
def test_words_decide_exactly_and_then_more_bits(people):
    selection = RenyiSelection(Fraction(1, 4), Fraction(1, 1000))
    bits = math.floor(selection.table[people].exact * 2**192)
    head, *rest = (bits >> 64 * place & 2**64 - 1 for place in (2, 1, 0))

    def shown(*words):
        return selection.shown(np.array([people]), Words(*([word] for word in words))).tolist()

    assert shown(head - 1) == [True]
    assert shown(head + 1) == [False]
    assert shown(head, max(rest[0] - 1, 0), 0) == [rest[0] > 0]
    assert shown(head, rest[0] + 1, 0) == [False]


def test_nobody_is_never_shown_and_many_always_are():
    selection = RenyiSelection(Fraction(1, 4), Fraction(1, 1000))
    certain, every = len(selection.table), np.full(1000, 2**64 - 1, np.uint64)
    assert not selection.shown(np.zeros(1000, np.int64), lambda n: np.zeros(n, np.uint64)).any()
    assert selection.shown(np.array([certain, 2**62] * 500), lambda n: every[:n]).all()
    assert not selection.shown(np.full(1000, certain - 1), lambda n: every[:n]).any()
    assert selection.chances(np.array([0, certain - 1, certain])).tolist()[::2] == [0, 1]
    for chance in (0.05, 0.5, 0.95):
        needed = selection.people_for(chance)
        below, above = selection.chances(np.array([needed - 1, needed]))
        assert below < chance <= above
    assert RenyiSelection(Fraction(1, 50), Fraction(9, 10)).people_for(0.5) == 1
    assert selection.draw(np.array([1, certain]))[1] is None
