"""One release of discrete Gaussians that takes a whole guarantee: exact laws of many groups, and what is left then."""

import math
import threading
from fractions import Fraction
from itertools import accumulate
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import Budget, BudgetExceededError
from dp_polars._accounting import gaussians
from dp_polars._accounting.guarantees import Guarantee
from dp_polars._base.numbers import ball, precision
from tests.accounting.test_deltas import MICRO, gaussian, keys, pay, pure
from tests.helpers.gaussians import delta_of, ratios

GUARANTEES = [(Fraction(1), MICRO), (Fraction(1, 2), Fraction(1, 10**8)), (Fraction(8), MICRO)]


def least(x):
    """The shift without which no Gaussian has the delta at epsilon 0 of noise on counts."""
    whole = np.arange(-math.ceil(40 / x), math.ceil(40 / x) + 1)
    return 2 * NormalDist().inv_cdf((1 + 1 / np.exp(-((whole * x) ** 2) / 2).sum()) / 2)


@pytest.mark.parametrize("x", [0.006, 0.02, 0.05, 0.1, 0.3, 0.9, 1.4, 2.0, 2.6, 3.0])
def test_a_move_is_widened_by_as_little_as_is_proved(x):
    """Both errors of every threshold test, on lattices of all sizes, by code of its own."""
    exact = Fraction(str(x))
    widened = gaussians.widened(exact)
    assert (
        least(x) * (1 - 1e-12)
        <= widened
        <= max(Fraction(least(x)) * (1 + Fraction(1, 10**9)), exact * Fraction(2001, 2000))
    )
    with precision(200):
        for steps in (1, 2, 3, 5, 7, 8, 20)[: 3 if x < 0.1 else None]:
            h, shift = exact / steps, ball(widened / steps)
            last = math.ceil((Fraction(27, 2) + exact) / h) + 2
            masses = [(-ball((k * h) ** 2) / 2).exp() for k in range(3 * last)]
            above = list(accumulate(reversed(masses)))[::-1]
            total, root = above[0] + above[1], ball(Fraction(2)).sqrt()
            for k in range(last):
                z = root * (2 * above[k + 1] / total).erfcinv()
                assert ((z - shift) / root).erfc() / 2 >= above[k] / total * ball(1 - Fraction(1, 10**30))


def test_nothing_is_proved_of_what_moves_too_far():
    assert gaussians.shift_of([(Fraction(31, 10), 1)]) is None
    assert gaussians.shift_of([(Fraction(1, 10), 10**9)]) is None
    assert gaussians.shift_of([]) == 0
    assert gaussians.delta_of(Fraction(0), Fraction(1)) == 0
    assert gaussians.epsilon_of(Fraction(1), Fraction(0)) is None
    moves = [(Fraction(1, 5), 3), (Fraction(1, 2), Fraction(1, 2))]
    assert gaussians.shift_of(moves) == pytest.approx(gaussians.likely_shift(moves), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
def test_the_largest_shift_and_its_epsilon(epsilon, delta):
    most = gaussians.largest_shift(epsilon, delta)
    assert gaussians.delta_of(most, epsilon) >= delta > gaussians.delta_of(most * (1 - Fraction(1, 2**40)), epsilon)
    assert gaussians.epsilon_of(most, delta) == pytest.approx(epsilon, rel=1e-12)
    assert gaussians.epsilon_of(most, delta / 10) > epsilon
    assert gaussians.epsilon_of(Fraction(1, 10**6), Fraction(1, 10)) == 0


NOTHING = (np.ones(1), np.zeros(1))


@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
@pytest.mark.parametrize("groups", [1, 2, 7, 30])
def test_many_groups_keep_the_guarantee_and_use_it(epsilon, delta, groups):
    """One person more in each group moves both counts of each: the exact delta of all noises, in both directions."""
    rows = pl.DataFrame({"p": [1], "g": [0]})
    budget = Budget(epsilon=epsilon, delta=delta)
    private = rows.dp.protect("p", max_groups=groups, max_rows_per_group=1, budget=budget)
    query = private.group_by({"g": range(groups)}).agg(
        rows=dpp.len(loss_weight=2, mechanism="discrete_gaussian"), people=dpp.n_people(mechanism="discrete_gaussian")
    )
    query = query.scaled_to(epsilon=epsilon, delta=delta)
    alone = Guarantee.of(epsilon, delta, Fraction(0)).rho
    # Where few counts have noise of about one, it is so far from a continuous Gaussian that rho may prove more.
    assert query.loss.value >= alone * (1 - Fraction(1, 10**9)) * (1 if epsilon == 8 else Fraction(11, 10))
    claims = [ask.query.claim for ask in query._asks]
    for sign in (0, 1):
        found = delta_of([ratios(float(claim.rate), groups)[sign] for claim in claims], float(epsilon))
        assert found <= delta * (1 + 1e-9)
        assert found >= delta * (0.97 if epsilon < 8 else 0.9 if groups == 30 else 0.15)
    query.release()
    assert budget.remaining <= 1e-8
    assert (budget.remaining_delta, budget.spent) == (0, epsilon - budget.remaining)


@pytest.mark.parametrize(("epsilon", "delta", "factor"), [(*GUARANTEES[0], 1.019), (*GUARANTEES[2], 3.0)])
def test_the_profile_of_a_continuous_gaussian_is_too_little(epsilon, delta, factor):
    shift = gaussians.largest_shift(epsilon, delta)
    found = max(delta_of([one, NOTHING], float(epsilon)) for one in ratios(float(shift), 1))
    assert found > factor * delta
    assert not Guarantee.of(epsilon, delta).is_kept_by([gaussian(shift**2 / 2)])


def whole(epsilon, delta):
    """A claim that keeps the guarantee by itself, and hardly by less than all."""
    shift = gaussians.largest_shift(epsilon, delta)
    rho = shift**2 / 2 * (shift / gaussians.widened(shift)) ** 2
    assert not Guarantee.of(epsilon, delta).is_kept_by([gaussian(rho * Fraction(21, 20))])
    return gaussian(rho * Fraction(999_999, 10**6))


@pytest.mark.parametrize("first", [None, pure(Fraction(1, 10**9)), gaussian(Fraction(1, 10**9))])
def test_only_a_budget_of_which_nothing_is_spent_is_taken_whole(first, path):
    budget, one = Budget(epsilon=1, delta=MICRO, path=path), whole(Fraction(1), MICRO)
    if first is None:
        assert budget._state.has_room([one])
        pay(budget, one)
        assert budget._guarantee.is_closed
    else:
        pay(budget, first)
        assert not budget._state.has_room([one])
        with pytest.raises(BudgetExceededError, match=r"requested rho=0\.027"):
            pay(budget, one)
        return
    for again in (budget, budget if path is None else Budget(epsilon=1, delta=MICRO, path=path)):
        assert (again.remaining, again.remaining.rho, again.remaining_delta) == (0, 0, 0)
        for more in (pure(Fraction(1, 10**9)), gaussian(Fraction(1, 10**9)), keys(Fraction(1, 10**9), MICRO / 10**9)):
            assert not again._state.has_room([more])
            with pytest.raises(BudgetExceededError):
                pay(again, more)
    spent, total = budget.epsilon_at(MICRO)
    assert (spent, total) == (1, 1) > budget.epsilon_at(1e-3)
    assert budget.epsilon_at(MICRO / 2).spent > 1


def test_what_is_mixed_stays_with_the_filter():
    epsilon = Fraction(1)
    alone = Guarantee.of(epsilon, MICRO, Fraction(0)).rho
    one = whole(epsilon, MICRO)
    assert one.loss.value > Fraction(11, 10) * alone
    for other in (pure(Fraction(1, 10**6)), keys(Fraction(1, 10**6), MICRO / 10, "rho")):
        assert not Budget(epsilon=1, delta=MICRO)._state.has_room([one, other])


def test_two_at_once_can_not_both_take_all(tmp_path):
    path, one, paid = tmp_path / "ledger.db", whole(Fraction(1), MICRO), []
    budget = Budget(epsilon=1, delta=MICRO, path=path)

    def take():
        try:
            pay(Budget(epsilon=1, delta=MICRO, path=path), one)
            paid.append(1)
        except BudgetExceededError:
            paid.append(0)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(paid) == [0] * 5 + [1]
    assert budget.log().height == 1


def choice(rho):
    """An exponential mechanism, of which a pure loss is known, too: here one that is above the guarantee."""
    return [dpp.mode("x", [1, 2], rho=rho / 30, mechanism="exponential").query.claim] * 30


def test_the_first_charge_fixes_the_part_for_keys(path):
    half, alone = (Guarantee.of(Fraction(1), MICRO, part).rho for part in (MICRO / 2, Fraction(0)))
    between = (half + alone) / 2
    budget = Budget(epsilon=1, delta=MICRO, path=path)
    assert budget.remaining_delta == MICRO / 2  # so far
    # What fits beside keys leaves them a half.
    small = Budget(epsilon=1, delta=MICRO)
    pay(small, *choice(half / 2))
    assert small.remaining_delta == MICRO / 2
    assert not small._state.has_room(choice(between - half / 2))
    # What does not, leaves them nothing, and goes on by the order of that.
    assert budget._state.has_room(choice(between))
    pay(budget, *choice(between))
    assert (budget.remaining_delta, budget.spent_delta) == (0, 0)
    assert budget.remaining.rho == pytest.approx(alone - between, rel=1e-6)
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, keys(Fraction(1, 1000), MICRO / 4, "rho"))
    assert refused.value.short_by_delta == MICRO / 4
    pay(budget, *choice(budget.remaining.rho / 2))
    if path is not None:
        assert Budget(epsilon=1, delta=MICRO, path=path).remaining == budget.remaining
        assert Budget(epsilon=1, delta=MICRO, keys_delta=0, path=path).remaining == budget.remaining
        with pytest.raises(ValueError, match="must be opened with its own total"):
            Budget(epsilon=1, delta=MICRO, keys_delta=MICRO / 2, path=path)
    # What was said stays.
    for part in (MICRO / 2, MICRO / 10):
        said = Budget(epsilon=1, delta=MICRO, keys_delta=part)
        assert not said._state.has_room(choice(alone))
        assert not said._state.has_room([whole(Fraction(1), MICRO)])
        assert said._state.has_room([whole(Fraction(1), MICRO - part)])
    assert not Budget(epsilon=1, delta=MICRO)._state.has_room(
        [*choice(between), keys(Fraction(1, 10**6), MICRO / 4, "rho")]
    )


def test_before_the_first_charge_the_total_holds_whatever_takes_all():
    budget, said = Budget(epsilon=1, delta=MICRO), Budget(epsilon=1, delta=MICRO, keys_delta=0)
    for delta in (MICRO * Fraction(9, 10), MICRO * Fraction(6, 10)):
        most = gaussians.epsilon_of(gaussians.largest_shift(Fraction(1), MICRO), delta)
        assert budget.epsilon_at(delta).total >= said.epsilon_at(delta).total >= most > 1
    pay(said, gaussian(Fraction(1, 1000)))
    assert 1 < said.epsilon_at(MICRO * Fraction(6, 10)).total < most
