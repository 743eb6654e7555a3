"""Budgets that guarantee (epsilon, delta): what fits, what is left, and what their files and errors say."""

import copy
import pickle
from fractions import Fraction

import polars as pl
import pytest

from dp_polars import Budget, BudgetExceededError
from dp_polars._accounting.guarantees import Guarantee
from tests.accounting.test_deltas import MICRO, gaussian, keys, pay, pure


@pytest.fixture
def budget(path):
    return Budget(epsilon=3, delta=MICRO, path=path)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_one_pure_release_and_two_by_rho_fit_in_any_order(budget, turn):
    part = budget._guarantee.part(Fraction(1), MICRO).rho
    assert part == Guarantee.of(Fraction(1), MICRO).rho
    claims = [pure(1), gaussian(part), gaussian(part)]
    for one in claims[turn:] + claims[:turn]:
        assert budget._state.has_room([one])
        pay(budget, one)
    order = budget._guarantee.order
    assert budget.remaining.rho * order == budget._guarantee.divergence - 1 - 2 * part * order
    assert budget.remaining == budget.remaining.epsilon == budget.remaining.rho * budget._guarantee.order
    assert budget.log()["unit"].sort().to_list() == ["epsilon", "rho", "rho"]
    pay(budget, gaussian(budget.remaining.rho))  # to the last bit
    assert (budget.remaining, budget.remaining.rho, budget.spent) == (0, 0, 3)
    assert not budget._state.has_room([gaussian(Fraction(1, 10**30))])


def test_what_has_no_epsilon_closes_the_sum_of_epsilons_for_good(budget):
    pay(budget, gaussian(Fraction(1, 1000)))
    assert budget.remaining.epsilon == budget._guarantee.divergence - budget._guarantee.order / 1000 < 2
    assert not budget._state.has_room([pure(2)])
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, pure(2))
    assert refused.value.short_by == 2 - budget.remaining.epsilon
    pay(budget, pure(budget.remaining.epsilon))  # its divergence is at most its epsilon
    assert budget.log()["running_total"].to_list() == [None, None]


def test_pure_releases_may_spend_all_of_epsilon(budget):
    for left in (2, 1, 0):
        pay(budget, pure(1))
        assert budget.remaining.epsilon == left
    assert budget.remaining.rho == 0
    with pytest.raises(BudgetExceededError):
        pay(budget, gaussian(Fraction(1, 10**9)))


def test_keys_have_their_part_of_delta_in_either_case(budget):
    assert (budget.delta, budget._keys_delta, budget.remaining_delta) == (MICRO, MICRO / 2, MICRO / 2)
    pay(budget, keys(1, MICRO / 4))
    for one in (keys(1, MICRO / 3), keys(Fraction(1, 1000), MICRO / 3, "rho")):
        assert not budget._state.has_room([one])
        with pytest.raises(BudgetExceededError) as refused:
            pay(budget, one)
        assert refused.value.short_by_delta == MICRO / 12
    pay(budget, keys(Fraction(1, 1000), MICRO / 4, "rho"))
    assert (budget.spent_delta, budget.remaining_delta) == (MICRO / 2, 0)


@pytest.mark.parametrize(("part", "rho"), [(0, 0.0242), (Fraction(9, 10), 0.0208), (1, 0)])
def test_the_part_for_keys_is_chosen(part, rho):
    budget = Budget(epsilon=1, delta=MICRO, keys_delta=part * MICRO)
    assert float(budget.remaining.rho) == pytest.approx(rho, abs=2e-3)
    assert budget.remaining_delta == part * MICRO
    assert budget._state.has_room([pure(1)])
    assert budget._state.has_room([gaussian(Fraction(1, 1000))]) == (part < 1)


def test_the_error_says_both(path):
    budget = Budget(epsilon=1, delta=MICRO, path=path)
    pay(budget, pure(Fraction(1, 2)))
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, pure(Fraction(3, 4)))
    error = refused.value
    rho = Fraction(3, 4) / budget._guarantee.order
    numbers = (error.requested, error.remaining, error.short_by)
    assert (error.unit, *numbers) == ("epsilon", *(Fraction(n, 4) for n in (3, 2, 1)))
    assert (error.requested_rho, error.short_by_rho) == (rho, rho - budget.remaining.rho)
    assert "requested epsilon=0.75, remaining 0.5, short by 0.25 (or in rho: requested rho=" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.short_by_rho) == (str(error), error.short_by_rho)
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, gaussian(1))
    error = refused.value
    assert (error.unit, error.requested, error.short_by) == ("rho", 1, 1 - budget.remaining.rho)
    assert str(error).partition("Hint")[0].count("rho=") == 1
    assert budget.log().height == 1


def test_what_remains_is_a_number_and_both():
    budget = Budget(epsilon=1, delta=MICRO)
    remaining = budget.remaining
    assert (remaining, str(remaining)) == (1, "epsilon=1 or rho=0.02293744764")
    for one in (copy.copy(remaining), copy.deepcopy(remaining), pickle.loads(pickle.dumps(remaining))):
        assert (one, one.epsilon, one.rho) == (1, 1, remaining.rho)
    assert repr(remaining).startswith("Remaining(epsilon=Fraction(1, 1), rho=Fraction(")
    for unit, other in (("epsilon", "rho"), ("rho", "epsilon")):
        alone = Budget(**{unit: Fraction(1, 2)}).remaining
        assert (str(alone), repr(alone), getattr(alone, unit), getattr(alone, other)) == (
            *("1/2", "Fraction(1, 2)", Fraction(1, 2)),
            None,
        )
        assert copy.copy(alone) == alone


def test_a_ledger_keeps_its_guarantee(tmp_path):
    path = tmp_path / "ledger.db"
    budget = Budget(epsilon=1, delta=MICRO, path=path)
    pay(budget, pure(Fraction(1, 10)), gaussian(Fraction(1, 1000)))
    for one in (Budget(epsilon=1, delta=1e-6, keys_delta=5e-7, path=path), pickle.loads(pickle.dumps(budget))):
        assert (one._guarantee, one.remaining) == (budget._guarantee, budget.remaining)
        assert one.remaining.rho == budget.remaining.rho
    said = "must be opened with its own total, epsilon=1, delta=0.000001, got epsilon=1"
    for other, told in (({"delta": MICRO, "keys_delta": 0}, ", delta=0.000001, keys_delta=0"), ({}, "")):
        with pytest.raises(ValueError, match=f"{said}{told}[.]"):
            Budget(epsilon=1, **other, path=path)


def test_a_ledger_has_the_order_that_it_was_made_with(tmp_path, monkeypatch):
    """It was fixed before the first answer; another version, or machine, might find another one."""
    path = tmp_path / "ledger.db"
    guarantee = Guarantee.of(Fraction(1), MICRO)
    other = Guarantee(guarantee.epsilon, MICRO, MICRO / 2, Fraction(20), Fraction(1, 50))
    with monkeypatch.context() as patched:
        patched.setattr(Guarantee, "of", lambda *_: other)
        pay(Budget(epsilon=1, delta=MICRO, path=path), gaussian(Fraction(1, 100)))
    again = Budget(epsilon=1, delta=MICRO, path=path)
    assert (again._guarantee, again.remaining.rho) == (other, Fraction(1, 100))
    # Also where that ledger takes the place of one that this object has read.
    before = Budget(epsilon=1, delta=MICRO, path=tmp_path / "before.db")
    assert before._guarantee == guarantee != other
    path.replace(before._path)
    pay(before, gaussian(Fraction(1, 200)))
    assert before.remaining.rho == Fraction(1, 200)


def test_the_log_of_a_guarantee(budget):
    pay(budget, pure(1), gaussian(Fraction(1, 50)))
    log = budget.log()
    assert log.schema["running_rho"] == pl.Float64
    running = [1 / float(budget._guarantee.order), 1 / float(budget._guarantee.order) + 0.02]
    assert log["running_rho"].to_list() == pytest.approx(running)
    assert log.select("loss", "running_total", "unit").rows() == [(1.0, 1.0, "epsilon"), (0.02, None, "rho")]


def test_the_epsilon_of_a_guarantee_at_other_deltas():
    budget = Budget(epsilon=1, delta=MICRO)
    assert budget.epsilon_at(MICRO) == budget.epsilon_at(1e-3) == (0.0, 1.0)
    assert budget.epsilon_at(6e-7).total > 1
    assert budget.epsilon_at(5e-7).total == float("inf")
    pay(budget, gaussian(Fraction(1, 100)))
    assert budget.epsilon_at(6e-7).total > 1
    alone = Budget(rho=Fraction(1, 100)).epsilon_at(MICRO).total
    assert budget.epsilon_at(MICRO) == (alone, 1.0)
    pay(budget, pure(Fraction(1, 10)))
    assert alone < budget.epsilon_at(MICRO).spent < alone + 0.2
    other = Budget(epsilon=1, delta=MICRO)
    pay(other, pure(Fraction(9, 10)))
    assert other.epsilon_at(0).spent == pytest.approx(0.9, rel=1e-15)
    only = Budget(epsilon=1, delta=MICRO, keys_delta=MICRO)
    assert (only.epsilon_at(MICRO).total, only.epsilon_at(MICRO / 2).total) == (1.0, float("inf"))
