"""Budgets that hold a delta, and the files of those that hold none."""

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars import Budget, BudgetExceededError, analysis
from dp_polars._accounting.claims import Claim, claim_of_choice
from dp_polars._accounting.costs import epsilon_at, pure_epsilon, zcdp_delta
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._base.numbers import as_fraction, ball, precision, show
from tests.helpers.reference import pure_rho

ONE = Contributions(1, 1)
RELATION = "add_or_remove_one"
MICRO = Fraction(1, 10**6)


def keys(loss, delta=MICRO, unit="epsilon", groups=1):
    mechanism = "partition_selection" if unit == "epsilon" else "discrete_gaussian_threshold"
    of_claim = Loss(Fraction(loss), unit), mechanism, Fraction(1), Contributions(groups, 1)
    return Claim(*of_claim, RELATION, delta=Fraction(delta))


def pure(loss, unit="epsilon", mechanism=None):
    return claim_of_choice(Loss(Fraction(loss), unit), mechanism, Fraction(1), ONE, RELATION)


def gaussian(rho):
    return Claim(Loss(Fraction(str(rho)), "rho"), "discrete_gaussian", Fraction(1), ONE, None)


def pay(budget, *claims):
    entries = [(f"keys({i})", one) for i, one in enumerate(claims)]
    budget._charge(entries, privacy_unit="patient", neighboring_relation=RELATION)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_losses_and_deltas_add_up_exactly(path, unit):
    of_keys = {"keys_delta": 3e-6} if unit == "epsilon" else {}
    budget = Budget(**{unit: 1}, delta=3e-6, **of_keys, path=path)
    assert (budget.delta, budget.spent_delta, budget.remaining_delta) == (3 * MICRO, 0, 3 * MICRO)
    for n in range(1, 4):
        pay(budget, keys(Fraction(1, 10), MICRO, unit))
        assert (budget.spent, budget.spent_delta) == (Fraction(n, 10), n * MICRO)
        assert (budget.remaining, budget.remaining_delta) == (1 - Fraction(n, 10), (3 - n) * MICRO)
    pay(budget, pure(Fraction(1, 10), unit))  # costs no delta
    assert (budget.spent, budget.spent_delta) == (Fraction(4, 10), 3 * MICRO)


def test_a_delta_too_much_is_refused_with_both_numbers(path):
    budget = Budget(rho=2, delta=1e-6, path=path)
    pay(budget, keys(0.5, MICRO / 2, "rho"))
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, keys(0.5, MICRO / 2, "rho"), keys(0.25, MICRO / 4, "rho"))
    error = refused.value
    assert str(error).startswith(
        "The release does not fit the budget: requested delta=0.00000075, remaining 0.0000005, short by 0.00000025. "
        "Nothing was charged."
    )
    assert "rho" not in str(error)  # of which enough is left
    numbers = (error.requested_delta, error.remaining_delta, error.short_by_delta)
    assert numbers == (MICRO * 3 / 4, MICRO / 2, MICRO / 4)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.short_by_delta) == (str(error), MICRO / 4)
    assert (budget.spent, budget.spent_delta, budget.log().height) == (Fraction(1, 2), MICRO / 2, 1)
    with pytest.raises(BudgetExceededError, match=r"rho=2\.5, remaining 1\.5, short by 1\. Nothing") as refused:
        pay(budget, keys(2.5, MICRO / 10, "rho"))
    assert "delta=" not in str(refused.value)
    with pytest.raises(BudgetExceededError, match=r"short by 1; requested delta=0\.000001, remaining 0\.0000005"):
        pay(budget, keys(2.5, MICRO, "rho"))
    pay(budget, keys(1.5, MICRO / 2, "rho"))  # all that is left, of both
    assert (budget.remaining, budget.remaining_delta) == (0, 0)


def test_a_hair_of_delta_too_much_is_refused(path):
    budget = Budget(rho=1, delta=MICRO, path=path)
    pay(budget, keys(0.1, MICRO - Fraction(1, 10**40), "rho"))
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, keys(0.1, Fraction(1, 10**40) + Fraction(1, 10**60), "rho"))
    assert refused.value.short_by_delta == Fraction(1, 10**60)


def test_without_a_delta_nothing_that_spends_one_is_released(path):
    budget = Budget(epsilon=1, path=path)
    with pytest.raises(
        ValueError,
        match=r"(?s)must have a delta for 'keys\(1\)', which spends delta=0.000001. Nothing was "
        r"charged.*Hint: Budget\(epsilon=…, delta=…\)",
    ):
        pay(budget, pure(0.1), keys(0.1))
    assert (budget.spent, budget.spent_delta, budget.remaining_delta, budget.delta) == (0, 0, 0, None)
    with pytest.raises(BudgetExceededError, match=r"remaining 1, short by 1\. Nothing") as refused:
        pay(budget, pure(2))
    assert refused.value.short_by_delta is refused.value.requested_delta is None


def test_keys_cost_what_is_proved_in_a_budget_of_the_other_unit(path):
    budget = Budget(rho=1, delta=MICRO, path=path)
    pay(budget, keys(Fraction(6, 10), MICRO, groups=3))
    exact = 3 * pure_rho(Fraction(2, 10))
    assert exact <= budget.spent <= exact * (1 + Fraction(1, 2**90))
    guarantee = Budget(epsilon=1, delta=MICRO)
    pay(guarantee, keys(Fraction(1, 100), MICRO / 2, "rho"))
    assert (guarantee.remaining_delta, guarantee.remaining.rho) == (0, guarantee._guarantee.rho - Fraction("0.01"))


def test_a_ledger_keeps_its_delta(tmp_path):
    path = tmp_path / "ledger.db"
    budget = Budget(rho=1, delta=2e-6, path=path, name="x")
    pay(budget, keys(Fraction(1, 10), MICRO, "rho"))
    for one in (Budget(rho=1, delta=2 * MICRO, path=path), copy.copy(budget), pickle.loads(pickle.dumps(budget))):
        assert (one.spent, one.spent_delta, one.delta, one._name) == (Fraction(1, 10), MICRO, 2 * MICRO, "x")
    for wrong, said in ((None, "rho=1"), (1e-6, "rho=1, delta=0.000001")):
        with pytest.raises(
            ValueError, match=f"must be opened with its own total, rho=1, delta=0.000002, got {said}[.]"
        ):
            Budget(rho=1, delta=wrong, path=path)
    plain = tmp_path / "plain.db"
    Budget(rho=1, path=plain)
    with pytest.raises(ValueError, match=r"must be opened with its own total, rho=1, got rho=1, delta=0.000001[.]"):
        Budget(rho=1, delta=1e-6, path=plain)
    assert [Budget(rho=1, path=plain).spent, budget.spent] == [0, Fraction(1, 10)]


def test_an_older_copy_that_was_charged_elsewhere_is_seen_by_its_delta(tmp_path):
    """Its loss is larger than that of the ledger whose place it takes."""
    path, elsewhere = tmp_path / "ledger.db", tmp_path / "elsewhere.db"
    budget = Budget(epsilon=1, delta=MICRO, path=path)
    elsewhere.write_bytes(path.read_bytes())
    pay(Budget(epsilon=1, delta=MICRO, path=elsewhere), pure(0.2))
    pay(budget, keys(0.1, MICRO / 2))
    path.write_bytes(elsewhere.read_bytes())
    with pytest.raises(ValueError, match=r"is damaged: it has 0 spent, and had 0.0000005 before"):
        pay(budget, keys(0.1, MICRO))


def test_a_budget_prints_both(tmp_path):
    budget = Budget(rho=1, delta=MICRO)
    pay(budget, keys(0.25, MICRO / 4, "rho"))
    assert repr(budget) == (
        "Budget(rho=1, delta=0.000001, spent=0.25 (delta 0.00000025), remaining=0.75 (delta 0.00000075))"
    )
    guarantee = Budget(epsilon=1, delta=MICRO, keys_delta=MICRO / 4)
    pay(guarantee, keys(0.25, MICRO / 4))
    assert repr(guarantee) == (
        "Budget(epsilon=1, delta=0.000001, keys_delta=0.00000025, spent=0.25 (delta 0.00000025), remaining=0.75 "
        f"(rho about {show(guarantee.remaining.rho)}, delta 0))"
    )


def test_the_log_has_the_deltas(path):
    budget = Budget(epsilon=1, delta=MICRO, path=path)
    assert budget.log().height == 0
    pay(budget, keys(0.25, MICRO / 4), pure(0.25))
    log = budget.log()
    assert log.columns[-2:] == ["delta", "running_delta"]
    rows = log.select("delta", "running_delta", "exact_delta").rows()
    assert rows == [(2.5e-7, 2.5e-7, "1/4000000"), (0.0, 2.5e-7, "0")]
    assert log["mechanism"].to_list() == ["partition_selection", "permute_and_flip"]
    assert log.schema["delta"] == pl.Float64


# (epsilon, delta)


@pytest.mark.parametrize("rho", [0.001, 0.1, 1, 20])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_what_a_rho_means_is_what_its_best_order_proves(rho, delta):
    at = Budget(rho=rho).epsilon_at(delta)
    assert at.spent == 0.0
    logs = np.linspace(-12, 12, 2_000_001)
    for _ in range(2):  # and once more, next to the best
        orders = 1 + np.exp(logs)
        proved = rho * orders + np.log(1 / (delta * orders)) / (orders - 1) + np.log1p(-1 / orders)
        logs = logs[proved.argmin()] + np.linspace(-2e-5, 2e-5, 2001)
    assert at.total == pytest.approx(max(0, proved.min()), rel=1e-12)
    assert analysis.compose([gaussian(rho)], delta=delta) <= at.total


def test_spent_and_total():
    budget = Budget(rho=1)
    pay(budget, pure(0.25, "rho"))
    at = budget.epsilon_at(1e-6)
    assert at == (Budget(rho=0.25).epsilon_at(1e-6).total, Budget(rho=1).epsilon_at(1e-6).total)
    assert 0 < at.spent < at.total
    assert budget.epsilon_at(0) == (math.inf, math.inf)
    assert Budget(rho=1).epsilon_at(0).spent == 0.0


def test_an_epsilon_is_no_more_than_itself():
    budget = Budget(epsilon=1)
    assert budget.epsilon_at(0) == (0.0, 1.0)
    at = budget.epsilon_at(0.05)
    assert at.total == pytest.approx(math.log(math.e - 0.05 * (1 + math.e)))
    assert pure_epsilon(Fraction(1), Fraction(9, 10)) == 0.0


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_what_is_spent_of_delta_counts(unit):
    budget = Budget(**{unit: 1}, delta=MICRO, **({"keys_delta": MICRO} if unit == "epsilon" else {}))
    pay(budget, keys(0.5, MICRO / 2, unit))
    assert budget.epsilon_at(MICRO / 3) == (math.inf, math.inf)
    half = budget.epsilon_at(MICRO * 3 / 4)
    assert half.total == math.inf
    left = (MICRO / 4) / (1 - MICRO / 2)
    assert half.spent == Budget(**{unit: 0.5}).epsilon_at(left).total
    whole = budget.epsilon_at(MICRO)
    assert whole.total == (math.inf if unit == "rho" else 1.0)
    if unit == "rho":
        # A mixture: with probability 1 − δ₀ what is zCDP, otherwise anything.
        epsilon = budget.epsilon_at(3 * MICRO).total
        mixed = 1e-6 + (1 - 1e-6) * zcdp_delta(Fraction(1), Fraction(epsilon))
        assert mixed == pytest.approx(3e-6, rel=1e-3)


@pytest.mark.parametrize("value", [-1e-9, 1, math.nan, "1", None])
def test_deltas_that_are_none(value):
    with pytest.raises((TypeError, ValueError), match=r"^delta must be "):
        Budget(rho=1).epsilon_at(value)


def test_a_profile_has_what_keys_spend():
    rest = analysis.PrivacyProfile.of([keys(0.5, MICRO)])
    assert rest.delta(0.5) == 1e-6
    assert rest.delta(0) == pytest.approx(1e-6 + (1 - 1e-6) * math.tanh(0.25))
    assert rest.epsilon(1e-7) == math.inf
    assert rest.epsilon(1e-6) == 0.5
    assert rest.epsilon(0.1) == pytest.approx(math.log(math.exp(0.5) - (0.1 - 1e-6) * (1 + math.exp(0.5))), rel=1e-5)
    several = rest.compose(3)
    assert several.spent_delta == 3 * MICRO
    assert several.epsilon(2e-6) == math.inf
    assert 1.2 < several.epsilon(1e-3) < 1.5
    assert rest.compose(10**6).delta(100) == 1.0
    gaussian = analysis.PrivacyProfile.of([keys(0.5, MICRO, "rho"), pure(0.5, "rho")])
    assert gaussian.epsilon(1e-6) == math.inf
    alone = Budget(rho=1).epsilon_at((Fraction(1, 10**5) - MICRO) / (1 - MICRO)).total
    assert gaussian.epsilon(1e-5) == pytest.approx(alone, rel=1e-12) or gaussian.epsilon(1e-5) < alone


def shown(n, epsilon, delta):
    """The probabilities of keys of 0 to n people: optimal partition selection (arXiv 2006.03684)."""
    pi = [0.0]
    for _ in range(n):
        pi.append(min(math.exp(epsilon) * pi[-1] + delta, 1 - math.exp(-epsilon) * (1 - pi[-1] - delta), 1))
    return np.array(pi)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1, 1e-5), (2.5, 1e-2)])
@pytest.mark.parametrize("people", [1, 2, 3, 7])
def test_the_delta_of_several_people(epsilon, delta, people):
    pi = shown(300, epsilon, delta)
    low, high = pi[:-people], pi[people:]
    grown = math.exp(people * epsilon)
    worst = max((high - grown * low).max(), (low - grown * high).max(), (1 - low - grown * (1 - high)).max())
    bound = float(keys(Fraction(str(epsilon)), Fraction(str(delta)))._delta_of(people))
    assert worst <= bound * (1 + 1e-9)
    if bound < 0.3:
        assert bound <= worst * 1.01  # no more than needed


def test_deltas_of_distances():
    one = keys(0.5, MICRO, groups=4)
    assert [one._delta_of(d) for d in (0, Fraction(1, 2), 1)] == [0, MICRO, MICRO]
    assert one._delta_of(Fraction(3, 2)) == one._delta_of(2) > 2 * MICRO
    assert one._delta_of(10**6) == 1
    assert [keys(0.5, MICRO, "rho")._delta_of(d) for d in (0, 1, 2)] == [0, MICRO, 1]
    assert [pure(1)._delta_of(d) for d in (0, 1, 5)] == [0, 0, 0]


def test_deltas_of_several_keys_add_up():
    both = analysis.PrivacyProfile.of([keys(0.5, MICRO), keys(0.25, 2 * MICRO)])
    assert (both.spent_delta, both.epsilon(3 * MICRO)) == (3 * MICRO, 0.75)
    assert both.epsilon(2.9e-6) == math.inf
    assert both.delta(0.75) == 3e-6


def test_a_delta_that_is_nearly_one_is_not_one():  # its logarithm would be 0
    assert epsilon_at("rho", Fraction(1, 2), 1 - Fraction(1, 2**60), Fraction(0)) == 0


@pytest.mark.parametrize("delta", [Fraction(n, 10**6 + 1) for n in range(1, 60)])
def test_the_epsilon_of_pure_dp_is_never_below_the_truth(delta):
    epsilon = Fraction(97, 50)
    found = as_fraction("epsilon", pure_epsilon(epsilon, delta))  # the decimal that it prints as
    with precision(512):
        true = (ball(epsilon).exp() - ball(found).exp()) / (1 + ball(epsilon).exp())
        assert true <= ball(delta)
