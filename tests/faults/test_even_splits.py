"""Budgets split by dividing: k floats of `total / k` fit the total (opendp #2131, w3c/attribution #77)."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dp_polars as dpp
from dp_polars import Budget, BudgetExceededError, analysis
from dp_polars._accounting.claims import claim_of_choice
from dp_polars._accounting.terms import ONE_RELEASE, Loss, check_delta
from dp_polars._base.numbers import as_fraction, as_loss, loss_up, positive_loss
from tests.helpers.needs import need
from tests.helpers.refusals import refused

TOTALS = [1, 1.0, 2, 3, 10, 0.1, 0.3, 0.7, 1.5, 12.3456789012, 1e-6, 5e-7, 3e-9, 1e-300, Decimal("0.9"), Fraction(3, 7)]
# Of these numbers of parts the shortest decimals of `1 / k` add up to more than 1.
PARTS = [11, 13, 15, 41, 90, 123, 158]
ROWS = pl.DataFrame({"p": range(60), "x": [1] * 60})


@pytest.mark.parametrize("total", TOTALS, ids=repr)
def test_parts_of_a_total_add_up_to_no_more(total):
    whole = as_loss("epsilon", total)
    for k in range(1, 1001):
        part = float(total) / k
        found = as_loss("epsilon", part)
        assert found * k <= whole
        assert found >= Fraction(repr(part)) * (1 - Fraction(1, 10**11))
    assert sum(Fraction(repr(1 / k)) * k > 1 for k in range(1, 1001)) > 400  # what happens without
    assert all(Fraction(repr(1 / k)) * k > 1 for k in PARTS)


@given(st.floats(1e-300, 1e300))
@example(0.1)
@example(1 / 3)
@example(2 / 3)
def test_a_loss_is_the_decimal_that_a_float_prints_as_of_twelve_digits_and_never_more(value):
    found = as_loss("rho", value)
    exact = Fraction(repr(value))
    assert exact * (1 - Fraction(1, 10**11)) < found <= exact
    digits = f"{Decimal(repr(value)).normalize():e}".partition("e")[0].replace(".", "")
    if len(digits) <= 12:
        assert found == exact
    # What is shown of a loss is no less than it, given back, and what was given comes back as it is.
    assert as_loss("rho", loss_up(exact)) >= exact
    assert as_loss("rho", loss_up(found)) == found
    assert loss_up(found) == float(found)


def test_other_numbers_are_exact_and_narrow_floats_keep_fewer_digits():
    for value in (7, np.int64(7), Fraction(1, 7), Decimal("0.12345678901234567890"), 10**30):
        assert as_loss("epsilon", value) == Fraction(str(value))
    assert as_loss("epsilon", np.float64(1 / 7)) == as_loss("epsilon", 1 / 7) == Fraction("0.142857142857")
    for k in range(1, 1001):
        assert as_loss("epsilon", np.float32(1 / k)) * k <= 1
    assert as_loss("epsilon", np.float32(0.1)) == Fraction(1, 10)
    assert as_loss("epsilon", np.float16(0.1)) == Fraction(1, 10)
    assert (loss_up(Fraction(1, 3)), loss_up(Fraction(0))) == (0.333333333334, 0)
    for value in (math.nan, math.inf, 0.0, -1.0):
        refused(ValueError, "epsilon must be", positive_loss, "epsilon", value)


def claims(loss, k):
    return [(f"part {n}", claim_of_choice(loss, None, Fraction(1), ONE_RELEASE, None)) for n in range(k)]


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("k", PARTS)
@pytest.mark.parametrize("total", [1, 0.3])
def test_a_budget_pays_for_all_parts(tmp_path, unit, k, total):
    """Also on disk, opened anew with the same float."""
    loss = Loss.of(**{"epsilon": None, "rho": None, unit: total / k})
    for path in (None, tmp_path / "ledger.db"):
        budget = Budget(**{unit: total}, path=path)
        for first in (claims(loss, k - 1), claims(loss, 1)):
            one = budget if path is None else Budget(**{unit: total}, path=path)
            one._charge(first, privacy_unit=None, neighboring_relation="add_or_remove_one")
        assert 0 <= budget.remaining <= Fraction(1, 10**9)
        assert budget.spent == k * as_loss(unit, total / k)  # what is charged is what was read
        shown = budget.log()["exact_loss"].unique().item()
        assert Fraction(shown) == loss.value == Fraction(repr(budget.log()["loss"][0]))
        with pytest.raises(BudgetExceededError):
            budget._charge(claims(loss, 1), privacy_unit=None, neighboring_relation="add_or_remove_one")


@pytest.mark.parametrize("k", PARTS)
def test_a_guarantee_pays_for_all_parts(k):
    budget = Budget(epsilon=1, delta=1e-6)
    private = ROWS.dp.protect("p", max_groups=1, budget=budget)
    for _ in range(k):
        private.keys("x", delta=5e-7 / k, epsilon=1 / k).release()
    assert budget.remaining_delta <= Fraction(1, 10**15)
    budget = Budget(epsilon=1, delta=1e-6)
    rho = float(budget.remaining.rho)
    private = ROWS.dp.protect("p", max_rows=1, budget=budget)
    private.agg(**{f"n{n}": dpp.len(rho=rho / k) for n in range(k)}).release()
    assert budget.remaining.rho <= Fraction(1, 10**10)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_total_and_a_delta_are_never_rounded_up(unit):
    for value in (1 / 3, 2 / 3, 1 / 11, 0.1 + 0.2, 0.1234567890123456):
        budget = Budget(**{unit: value}, delta=value)
        for found in (budget.total, budget.delta, check_delta(value)):
            assert Fraction(repr(value)) >= found == as_loss("delta", value)
        assert str(float(budget.total)) in repr(budget)  # and what counts is shown
    assert Budget(epsilon=0.1 + 0.2).total == Fraction(3, 10)


def test_every_way_to_say_a_loss_reads_it_alike(tmp_path):
    part, exact = 1 / 11, as_loss("epsilon", 1 / 11)
    assert exact < Fraction(1, 11) < Fraction(repr(part))
    private = ROWS.dp.protect("p", max_rows=1)
    query = private.agg(n=dpp.len(epsilon=part))
    assert query.loss.value == query._asks[0].query.claim.loss.value == exact
    assert query.scaled_to(epsilon=part).loss.value == exact
    assert private.agg(n=dpp.len()).scaled_to(rho=part).loss == Loss(exact, "rho")
    assert pl.col("x").dp.mode([1, 2], epsilon=part).query.claim.loss.value == exact
    assert Loss(part, "rho").value == exact
    # What is shown is what is charged.
    assert query.explain()["epsilon"].item() == float(exact)
    assert as_loss("rho", query.explain()["rho"].item()) >= query._asks[0].query.claim.cost("rho")
    assert as_loss("epsilon", query.statement().facts["loss"]["value"]) == exact
    # Analyses of the same number are of the same loss.
    profile = analysis.PrivacyProfile.of([(part, "exponential")])
    assert profile.parts == (("exponential", exact, 1),)
    simulated = analysis.simulate(query, ROWS, losses=[part], allow_private=True)
    assert as_loss("epsilon", simulated["loss"].item()) == exact
    needed = analysis.scores.loss_needed([10, 9, 2], probability_of_best=0.99, monotonic=True)
    assert as_loss("epsilon", needed) == as_fraction("epsilon", needed)  # it may be given back


@pytest.mark.parametrize("k", [11, 49])
def test_opendp_maps_of_all_parts_fit(k):
    need("opendp")
    import opendp.prelude as dp

    from dp_polars.opendp import as_measurement, frame_domain, make_private_query

    dp.enable_features("contrib", "honest-but-curious")
    query = dpp.protect("p", max_rows=1).agg(n=dpp.len(epsilon=1 / k))
    measurement = as_measurement(query)
    assert Fraction(measurement.map(1)) * k <= 1
    other = make_private_query(frame_domain(), measurement.input_metric, query, 0.7 / k)
    assert Fraction(other.map(1)) * k <= Fraction(7, 10)


# What a refusal says


def message(budget, query):
    with pytest.raises(BudgetExceededError) as refused:
        query.release()
    text = str(refused.value)
    assert "/" not in text.replace("ledger", "")  # no ratios
    return text


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_refusal_shows_decimals_of_what_is_missing_and_a_way_that_works(unit):
    budget = Budget(**{unit: Fraction(2, 3) + Fraction(1, 7)})
    private = ROWS.dp.protect("p", max_rows=1, budget=budget)
    private.agg(n=dpp.len(**{unit: Fraction(1, 7)})).release()
    query = private.agg(a=dpp.len(**{unit: 0.8}), b=dpp.len(**{unit: 0.1}))
    text = message(budget, query)
    # 2/3 is left: that is rounded down, and what is missing up.
    assert f"requested {unit}=0.9, remaining 0.666666, short by 0.233334. Nothing was charged." in text
    assert "delta" not in text
    hint = f"query.scaled_to({unit}=budget.remaining.{unit})"
    says = f"Hint: it fits at {unit}=0.666666: {hint} takes all that is left, 74 % of what was requested; "
    assert f"{says}where one guarantee is shared, it fits at 0.74 times its loss_weight." in text
    eval(hint, {"query": query, "budget": budget}).release()
    assert budget.remaining == 0
    assert "Hint: budget.remaining is 0, so that no query.scaled_to(…) fits." in message(budget, query)


def test_a_refusal_by_a_guarantee_names_what_lacks():
    budget = Budget(epsilon=1, delta=1e-6)
    private = ROWS.dp.protect("p", max_groups=1, max_rows=1, budget=budget)
    text = message(budget, private.keys("x", delta=1e-6, epsilon=0.1))
    assert "requested delta=0.000001, remaining 0.0000005, short by 0.0000005. Nothing" in text
    assert "epsilon=" not in text
    assert "rho=" not in text
    assert "budget.remaining_delta" in text
    query = private.agg(n=dpp.len(epsilon=3))
    text = message(budget, query)
    assert "requested epsilon=3, remaining 1, short by 2 (or in rho: requested rho=" in text
    assert "delta=" not in text
    text = message(budget, private.agg(n=dpp.len(rho=3)))
    assert "requested rho=3, remaining 0.0229374" in text
    assert "query.scaled_to(rho=budget.remaining.rho)" in text
    query.scaled_to(epsilon=budget.remaining.epsilon).release()
    assert budget.remaining == 0


def test_small_numbers_are_decimals_too():
    budget = Budget(rho=1, delta=1e-10 / 3)
    assert "delta=3.33333333333e-11" in repr(budget)
    private = ROWS.dp.protect("p", max_groups=1, budget=budget)
    text = message(budget, private.keys("x", delta=1e-10, rho=0.5))
    assert "requested delta=0.0000000001, remaining 3.33333333333e-11, short by 6.66666666667e-11." in text


def test_a_ledger_of_another_total_is_named_by_what_opens_it(tmp_path):
    Budget(epsilon=Fraction(1, 3), path=tmp_path / "ledger.db")
    with pytest.raises(ValueError, match=r"own total, epsilon=Fraction\(1, 3\), got epsilon=0\.333333333333\."):
        Budget(epsilon=1 / 3, path=tmp_path / "ledger.db")
    Budget(epsilon=1 / 3, path=tmp_path / "other.db")
    assert Budget(epsilon=1 / 3, path=tmp_path / "other.db")._total_text == "epsilon=0.333333333333"
