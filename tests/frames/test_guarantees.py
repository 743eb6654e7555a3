"""One guarantee for all outputs: `scaled_to(epsilon=…, delta=…)`, and outputs that wait for their loss."""

import math
import random
import re
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting.guarantees import Guarantee
from tests.helpers.needs import need
from tests.helpers.refusals import refusals

X, Y = pl.col("x"), pl.col("y")
MILLIONTH = Fraction(1, 10**6)
UNITS = ("epsilon", "rho")


def unit_of(query):
    """Return the unit that a query was taken in: that in which all losses that were shared are."""
    (unit,) = {ask.query.claim.loss.unit for ask in query._asks}
    return unit


def counts(number, **loss):
    return {f"n{i}": dpp.n_people(**loss) for i in range(number)}


def errors_of(query):
    return query.explain()["error_95"].to_list()


def notes_of(query):
    return query.explain()["note"].to_list()


# Outputs, groups and rows of a person -> errors of a count and of a mode of 100 candidates, by `epsilon` and by `rho`,
# at (1, 1e-6) without a part for keys.
TABLE = {
    (1, 1, 1): ([3.4957], [9.3804]),
    (2, 1, 1): ([6.4915, 13], [13.0587, 24]),
    (8, 1, 1): ([24.4659, 55], [25.6174, 48]),
    (8, 4, 1): ([96.3634, 220], [50.7349, 97]),
    (20, 4, 1): ([240.1586, 551], [79.9283, 154]),
    (20, 10, 5): ([2996.2323, 1379], [628.436, 243]),
}


def report(outputs, groups, rows, budget=None, **protected):
    """Return as many counts as modes, by turns, of people in one group of rows or more."""
    private = dpp.protect("p", max_groups=groups, max_rows_per_group=rows, budget=budget, **protected)
    asked = {f"o{i}": X.dp.mode(range(100)) if i % 2 else dpp.count(X + i) for i in range(outputs)}
    return private.group_by({"g": range(20)}).agg(**asked)


@pytest.mark.parametrize(("case", "errors"), TABLE.items())
def test_the_unit_decides_the_error_and_the_better_one_is_taken(case, errors):
    query, guarantee = report(*case), Guarantee.of(Fraction(1), MILLIONTH, Fraction(0))
    by_unit = [errors_of(query.scaled_to(epsilon=1))[:2], errors_of(query.scaled_to(rho=guarantee.rho))[:2]]
    assert by_unit == [pytest.approx(of_unit, abs=1e-4) for of_unit in errors]
    assert round(float(guarantee.rho), 5) == 0.02436
    better = min(UNITS, key=lambda unit: math.prod(errors[UNITS.index(unit)]))
    # A budget that keeps nothing for keys has all of delta for rho.
    budget = dpp.Budget(epsilon=1, delta=1e-6, keys_delta=0)
    taken = report(*case, budget=budget).scaled_to(epsilon=1, delta=1e-6)
    assert unit_of(taken) == better
    assert errors_of(taken)[:2] == pytest.approx(errors[UNITS.index(better)], abs=1e-4)
    # So has one of which nothing is spent, and a query without a budget. Half of delta left to keys is 3 % more error.
    for budget in (None, dpp.Budget(epsilon=1, delta=1e-6)):
        assert errors_of(report(*case, budget=budget).scaled_to(epsilon=1, delta=1e-6)) == errors_of(taken)
    budget = dpp.Budget(epsilon=1, delta=1e-6, keys_delta=MILLIONTH / 2)
    halved = report(*case, budget=budget).scaled_to(epsilon=1, delta=1e-6)
    assert unit_of(halved) == better
    for with_keys, without in zip(errors_of(halved), errors_of(taken), strict=True):
        assert without <= with_keys <= 1.04 * without + 1
    other = UNITS[1 - UNITS.index(better)]
    # A count alone would take all of the budget as Gaussian noise, by more rho.
    said = [8.8] if case == (1, 1, 1) else errors[UNITS.index(other)]
    for note, error in zip(notes_of(taken), said, strict=False):
        (number,) = re.findall(rf"In {other} error_95 would be ([\d,.]+\d)\.", note)
        assert float(number.replace(",", "")) == pytest.approx(error, rel=0.005)


def test_what_is_scaled_to_the_guarantee_of_a_budget_fits_into_it_exactly():
    rows = pl.DataFrame({"p": [i // 5 for i in range(500)], "g": [i % 20 for i in range(500)], "x": [7] * 500})
    for case, keys_delta in (((2, 1, 1), None), ((8, 4, 1), None), ((20, 10, 5), Fraction(1, 10**7))):
        budget = dpp.Budget(epsilon=1, delta=1e-6, keys_delta=keys_delta)
        query = report(*case, budget=budget).scaled_to(epsilon=1, delta=1e-6)
        assert query.release(rows).height == 20
        assert (budget.remaining, budget.remaining.rho) == (0, 0)
        with pytest.raises(dpp.BudgetExceededError):
            query.release(rows)


def test_cached_answers_statements_and_files_of_a_shared_guarantee(tmp_path):
    frame = pl.DataFrame({"p": range(200), "g": [1] * 200, "x": [3] * 200})
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "budget.db")
    private = frame.dp.protect("p", max_groups=4, max_rows_per_group=1, budget=budget, dataset="visits")
    query = private.group_by({"g": range(9)}).agg(dpp.n_people(), X.dp.mode(range(9), loss_weight=2))
    with pytest.raises(ValueError, match="every output must have a loss, got none for 'n_people', 'x'"):
        query.release()
    with pytest.raises(ValueError, match="a loss must be said first, got none"):
        query.statement()
    assert budget.spent == 0
    scaled, same = (query.scaled_to(epsilon=1, delta=1e-6) for _ in range(2))
    first = scaled.release()
    assert scaled.release().equals(first)
    assert same.release(intervals=True).drop("n_people_low", "n_people_high").equals(first)
    assert budget.answers().height == 1
    one, two = (ask.query.claim.loss.value for ask in scaled._asks)
    assert two == 2 * one
    text = dpp.statement(budget, [scaled]).to_markdown()
    assert "discrete Gaussian" in text or "discrete_gaussian" in text


def some_outputs(some):
    """Return random outputs without a loss, and perhaps some with one."""
    makers = [
        lambda more: dpp.len(**more),
        lambda more: dpp.n_people(**more),
        lambda more: dpp.count("x", **more),
        lambda more: X.dp.mode(range(some.choice([2, 9, 300])), **more),
        lambda more: X.dp.median(range(some.choice([5, 121])), **more),
        lambda more: X.dp.quantile([0.1, 0.5, 0.9], range(50), **more),
        lambda more: X.dp.quantile(0.25, range(50), confidence=0.9, **more),
        lambda more: X.dp.top_k(some.choice([2, 6]), range(20), **more),
        lambda more: X.dp.sum(0, some.choice([1, 1000]), step=1, **more),
        lambda more: X.dp.mean(0, 100, step=1, **more),
        lambda more: X.dp.var(0, 20, step=1, **more),
        lambda more: X.dp.value_counts(range(some.choice([3, 40])), **more),
        lambda more: dpp.share(X > 3, **more),
    ]
    asked = {}
    for number in range(some.choice([1, 1, 2, 3, 5, 9])):
        more = {} if some.random() < 0.6 else {"loss_weight": some.choice([2, 0.1, Fraction(7, 3)])}
        asked[f"o{number}"] = some.choice(makers)(more)
    if some.random() < 0.2:
        asked["kept"] = dpp.n_people(**some.choice([{"epsilon": Fraction(1, 1000)}, {"rho": Fraction(1, 10**5)}]))
    if some.random() < 0.04:
        asked["near"] = dpp.n_people(within=some.choice([20_000, 50_000]))
    return asked


def some_query(some):
    bounds = some.choice([(1, 1), (2, 1), (4, 1), (3, 4), (10, 5)])
    relation = some.choice(["add_or_remove_one", "replace_one"])
    private = dpp.protect("p", max_groups=bounds[0], max_rows_per_group=bounds[1], neighboring_relation=relation)
    return private.group_by({"g": range(some.choice([1, 5, 20]))}).agg(**some_outputs(some))


def proved_epsilon(rho, delta):
    """Return the ε of ρ-zCDP at a δ on a fine grid of orders: Canonne, Kamath & Steinke 2020, Corollary 13."""
    low, high = -4.0, 5.0
    for _ in range(3):
        places = np.linspace(low, high, 4000)
        orders = 1 + 10**places
        found = rho * orders + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        best = int(found.argmin())
        low, high = places[max(best - 1, 0)], places[min(best + 1, 3999)]
    return float(found.min())


def size_of(asks):
    """Return the geometric mean of errors, of means in groups of 1,000."""
    errors = []
    for ask in asks:
        error = ask.query.error_among(1000, 0.05)
        errors.append(ask.query.error(ask.query.size_of(), 0.05) if error is None else error)
    return math.exp(math.fsum(map(math.log, errors)) / len(errors)) if all(errors) else 0.0


@pytest.mark.slow
def test_500_random_queries_keep_their_guarantee_in_the_better_unit():
    some, taken = random.Random(43), {"epsilon": 0, "rho": 0}
    for _ in range(500):
        query = some_query(some)
        epsilon, delta = Fraction(some.choice([1, 5, 10, 30, 80]), 10), Fraction(1, 10 ** some.choice([4, 6, 9]))
        scaled = query.scaled_to(epsilon=epsilon, delta=delta)
        claims = {ask.name: ask.query.claim for ask in scaled._asks}
        # What keeps its loss says nothing of the unit.
        (unit,) = {ask.loss.unit for name, ask in claims.items() if name not in ("kept", "near")}
        taken[unit] += 1
        total = sum(claim.cost(unit) for claim in claims.values())
        guarantee = Guarantee.of(epsilon, delta, Fraction(0))
        rho, is_whole = guarantee.rho, total > guarantee.rho and unit == "rho"
        if is_whole:  # of Gaussian noise alone, by its own profile
            assert {claim.mechanism for claim in claims.values()} == {"discrete_gaussian"}
            assert guarantee.is_kept_by([*claims.values()])
            assert 0.998 * epsilon < analysis.compose(claims.values(), delta=delta) <= epsilon
            rho = total
        assert total == (epsilon if unit == "epsilon" else rho)
        if unit == "rho" and not is_whole:
            assert 0.9999 * float(epsilon) < proved_epsilon(float(total), float(delta)) <= float(epsilon) * (1 + 1e-9)
        other = "rho" if unit == "epsilon" else "epsilon"
        if "kept" in claims and not claims["kept"]._has_epsilon:
            assert unit == "rho"
            continue
        there = query.scaled_to(**{other: rho if other == "rho" else epsilon})
        if "near" not in claims:  # its loss was found in epsilon, and is found anew in rho
            assert size_of(scaled._asks) <= size_of(there._asks) * (1 + 1e-9)
        for ask, before in zip(scaled._asks, query._asks, strict=True):
            if before.query.claim._is_open:
                assert ask.query.claim.mechanism == ask.query.in_unit(unit).claim.mechanism
    assert min(taken.values()) > 125


def test_no_accountant_proves_that_a_guarantee_is_broken():
    """Privacy loss distributions of dp_accounting, which are nearly the truth, never say more than was guaranteed."""
    pld = need("dp_accounting.pld.privacy_loss_distribution")
    some = random.Random(7)
    closest = {"epsilon": 0.0, "rho": 0.0}
    for _ in range(24):
        groups, outputs = some.choice([1, 1, 4]), some.choice([1, 2, 8])
        query = dpp.protect("p", max_groups=groups).group_by({"g": range(9)})
        query = query.agg(**{f"o{i}": dpp.n_people() if i % 2 else X.dp.mode(range(9)) for i in range(outputs)})
        epsilon, delta = some.choice([0.5, 1, 3]), some.choice([1e-5, 1e-8])
        scaled, whole = query.scaled_to(epsilon=epsilon, delta=delta), None
        # Each is rounded up by a step at most.
        step = {"value_discretization_interval": 1e-3 * epsilon / (groups * outputs)}
        dots = {**step, "use_connect_dots": True}
        for ask in scaled._asks:
            x = float(ask.query.claim.rate)
            one = {
                "discrete_gaussian": partial(pld.from_discrete_gaussian_mechanism, 1 / x, 1, **dots),
                "discrete_laplace": partial(pld.from_discrete_laplace_mechanism, x, 1, **dots),
                "permute_and_flip": partial(pld.from_laplace_mechanism, 1 / x, **dots),
                # A choice of two candidates, of which one row moves both: exp(±x/2).
                "exponential": partial(pld.from_randomized_response, 2 / (math.exp(x / 2) + 1), 2, **step),
            }[ask.query.claim.mechanism]().self_compose(groups)
            whole = one if whole is None else whole.compose(one)
        proved = whole.get_epsilon_for_delta(delta)
        assert proved <= epsilon * 1.0011
        unit = unit_of(scaled)
        closest[unit] = max(closest[unit], proved / epsilon)
    assert closest["epsilon"] > 0.99
    assert closest["rho"] > 0.7  # half of delta is left to keys, and a sum of rho is no distribution


def private(**more):
    return dpp.protect("p", max_groups=1, max_rows_per_group=1, **more)


ONE_UNIT = {
    "a gap": (X.dp.mode(range(9), gap=True), "epsilon"),
    "a first above": (X.dp.first_above(range(9), threshold=5), "epsilon"),
    "a Gaussian by name": (dpp.len(mechanism="discrete_gaussian"), "rho"),
    "a Gaussian that keeps its loss": (dpp.len(rho=1e-6), "rho"),
}


@pytest.mark.parametrize(("output", "unit"), ONE_UNIT.values(), ids=ONE_UNIT)
@pytest.mark.parametrize("others", [0, 12])
def test_what_exists_in_one_unit_only_decides_for_all(output, unit, others):
    scaled = private().agg(one=output, **counts(others + 1)).scaled_to(epsilon=1, delta=1e-6)
    assert unit_of(scaled) == unit
    reason = "in which alone 'one' can be requested" if unit == "epsilon" else "not epsilon: "
    assert reason in notes_of(scaled)[0]
    free = private().agg(**counts(others + 2)).scaled_to(epsilon=1, delta=1e-6)
    assert unit_of(free) == ("rho" if others else "epsilon")


def test_a_gap_beside_gaussian_noise_is_paid_in_rho():
    query = private().agg(X.dp.mode(range(9), gap=True), dpp.len(mechanism="discrete_gaussian"))
    scaled = query.scaled_to(epsilon=1, delta=1e-6)
    rho = Guarantee.of(Fraction(1), MILLIONTH, Fraction(0)).rho  # no keys are selected
    costs = [claim.cost("rho") for claim in scaled._request.claims]
    assert [ask.query.claim.loss.unit for ask in scaled._asks] == ["epsilon", "rho"]
    assert costs[1] == rho / 2
    assert rho / 2 * (1 - Fraction(1, 10**20)) < costs[0] <= rho / 2


def test_mechanisms_by_name_stay_and_all_others_are_the_better_ones():
    asked = {
        "flip": X.dp.mode(range(9), mechanism="permute_and_flip"),
        "exponential": X.dp.mode(range(9), mechanism="exponential"),
        "laplace": dpp.len(mechanism="discrete_laplace"),
        "joint": X.dp.top_k(2, range(9), mechanism="joint"),
        "rounds": X.dp.top_k(6, range(9)),
        "n": dpp.len(),
    }
    in_rho, in_epsilon = ("exponential", 6, "discrete_gaussian"), ("exponential", 1, "discrete_laplace")
    for unit, free in (("rho", in_rho), ("epsilon", in_epsilon)):
        query = private().agg(**asked).scaled_to(**{unit: 1})
        mechanisms = [claim.mechanism for claim in query._request.claims]
        assert mechanisms[:4] == ["permute_and_flip", "exponential", "discrete_laplace", "exponential"]
        assert (mechanisms[4], query._asks[4].query.claim._draws, mechanisms[5]) == free
        assert query.loss.value == 1 if unit == "epsilon" else query._request.claims[0].cost("rho") == Fraction(1, 6)


@pytest.mark.parametrize("losses", [{"epsilon": 1}, {"rho": 0.3}])
def test_outputs_that_all_have_a_loss_keep_their_shares_in_the_better_unit(losses):
    """What was asked in one unit is asked in the other one where that is better, by the better mechanism there."""
    (unit,) = losses
    query = private().agg(twice=X.dp.mode(range(9), **{unit: 2 * losses[unit]}), **counts(20, **losses))
    scaled = query.scaled_to(epsilon=1, delta=1e-6)
    assert unit_of(scaled) == "rho"
    found = [claim.loss.value for claim in scaled._request.claims]
    assert found[0] == 2 * found[1] == 2 * found[-1]
    assert sum(found) == Guarantee.of(Fraction(1), MILLIONTH, Fraction(0)).rho
    assert {claim.mechanism for claim in scaled._request.claims} == {"exponential", "discrete_gaussian"}
    (few,) = private().agg(dpp.n_people(**losses)).scaled_to(epsilon=1, delta=1e-6)._asks
    assert (str(few.query.claim), few.query.claim.mechanism) == ("epsilon=1", "discrete_laplace")


def test_losses_in_both_units_are_shared_by_what_they_cost_in_rho():
    query = private().agg(a=dpp.len(epsilon=0.4), b=X.dp.mode(range(9), rho=0.08))
    scaled = query.scaled_to(epsilon=1, delta=1e-6)
    one, other = (claim.cost("rho") for claim in query._request.claims)
    assert [claim.loss.value for claim in scaled._request.claims] == [one / (one + other), other / (one + other)]
    assert unit_of(scaled) == "epsilon"


def test_a_budget_with_room_in_one_unit_alone_decides():
    def taken(outputs, budget):
        return report(outputs, 1, 1, budget).scaled_to(epsilon=1, delta=1e-6)

    frame, room = pl.DataFrame({"p": [1], "g": [1], "x": [1]}), dpp.Budget(epsilon=2)
    scaled = taken(20, room)
    assert unit_of(scaled) == "epsilon"
    assert "in which alone the budget has room: errors are " in notes_of(scaled)[0]
    scaled.release(frame)
    assert room.remaining == 1
    assert unit_of(taken(1, dpp.Budget(rho=0.03))) == "rho"
    empty = taken(1, dpp.Budget(epsilon=0.5))
    assert unit_of(empty) == "epsilon"  # and release refuses it
    with pytest.raises(dpp.BudgetExceededError):
        empty.release(frame)
    for_keys = taken(20, dpp.Budget(epsilon=1, delta=1e-6, keys_delta=1e-6))
    assert "the unit is epsilon, not rho: all of delta is for keys." in notes_of(for_keys)[0]


def test_keys_have_their_part_of_delta():
    guarantee = {"epsilon": 1, "delta": 1e-6}
    scaled = private().keys("x", epsilon=3, delta=4e-7).scaled_to(**guarantee)
    assert (scaled.loss.value, scaled.delta) == (1, Fraction(4, 10**7))
    frame, keys = pl.DataFrame({"p": range(90), "x": [1] * 90}), private(budget=dpp.Budget(**guarantee))
    assert keys.keys("x", epsilon=1, delta=5e-7).scaled_to(**guarantee).release(frame).height
    with pytest.raises(ValueError, match=r"delta must leave room for the keys, which spend 6e-07, got 1e-06"):
        private().keys("x", epsilon=3, delta=6e-7).scaled_to(**guarantee)
    with_counts = private().keys("x", rho=3, delta=4e-7, with_counts=True).scaled_to(**guarantee)
    assert with_counts._asks[0].query.claim.mechanism == "discrete_gaussian_threshold"


def test_what_has_a_loss_keeps_it_and_the_rest_is_shared():
    query = private().agg(
        kept=dpp.len(epsilon=0.25), near=dpp.n_people(within=20), a=dpp.n_people(), b=X.dp.mode(range(3), loss_weight=3)
    )
    scaled = query.scaled_to(epsilon=1)
    kept, near, one, three = (ask.query.claim.loss.value for ask in scaled._asks)
    assert (kept, near + kept + one + three, three) == (Fraction(1, 4), 1, 3 * one)
    assert scaled._asks[1].within == query._asks[1].within
    in_rho = query.scaled_to(rho=1)
    assert [claim.loss.unit for claim in in_rho._request.claims] == ["epsilon", "rho", "rho", "rho"]
    assert in_rho._asks[1].query.claim.mechanism == "discrete_gaussian"
    assert errors_of(in_rho)[1] == errors_of(scaled)[1] == 20
    assert sum(claim.cost("rho") for claim in in_rho._request.claims) == 1
    with pytest.raises(ValueError, match=r"the outputs with a loss cost .* which leaves nothing to the others"):
        query.scaled_to(epsilon=0.1)
    with pytest.raises(
        ValueError, match=r"scaled_to must be given a guarantee that the outputs can keep, got epsilon=0\.1"
    ):
        query.scaled_to(epsilon=0.1, delta=1e-9)


def test_a_query_without_losses_shows_what_needs_none():
    query = private().agg(dpp.n_people(), dpp.mode("x", range(9), loss_weight=2), Y.dp.mean(0, 9, step=1))
    explained = query.explain()
    for column in ("error_95", "mechanism", "rate", "epsilon", "rho"):
        assert explained[column].to_list() == [None] * 3
    assert explained["candidates"].to_list() == [1, 9, 1]
    assert explained["score_range"].to_list() == [1, 1, 1]
    assert explained["note"][1].startswith("No loss yet, loss_weight=2: so no error is known.")
    assert "Nothing can be released yet: query.scaled_to(epsilon=1, delta=1e-6)" in explained["note"][0]
    assert "costs: nothing yet, see scaled_to" in repr(query)
    assert "mode of 9 candidates, no loss yet, loss_weight=2" in repr(query)


ROWS = pl.DataFrame({"p": range(40), "x": [i % 3 for i in range(40)]})
REFUSED = {
    "release": lambda query: query.release(ROWS),
    "loss": lambda query: query.loss,
    "statement": lambda query: query.statement(),
    "simulate": lambda query: analysis.simulate(query, ROWS),
    "size_needed": lambda query: analysis.size_needed(query),
    "error_by_size": lambda query: analysis.error_by_size(query, [100]),
}


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_without_a_loss_nothing_is_released_or_simulated(use):
    query = private().agg(n=dpp.n_people(), x=dpp.mode("x", range(3), epsilon=1))
    with pytest.raises(ValueError, match=r"(?s)loss.*got none.*Hint: query\.scaled_to\(epsilon=1, delta=1e-6\)"):
        use(query)


def test_what_asks_for_losses_needs_none():
    query = private().agg(n=dpp.n_people(), x=dpp.mode("x", range(3)))
    tried = analysis.simulate(query, ROWS, losses=[0.5, 2])
    assert tried["loss"].to_list() == [0.5, 2.0] * 2
    assert tried.equals(analysis.simulate(query.scaled_to(epsilon=1), ROWS, losses=[0.5, 2]))
    found = analysis.loss_for(query, ROWS, within=5)
    assert found.equals(analysis.loss_for(query.scaled_to(epsilon=1), ROWS, within=5))
    in_rho = private(budget=dpp.Budget(rho=1)).agg(n=dpp.n_people(), x=dpp.mode("x", range(3)))
    assert analysis.loss_for(in_rho, ROWS, within=5)["loss_unit"].to_list() == ["rho", "rho"]


def test_a_claim_without_a_loss_has_no_cost_and_draws_nothing_that_depends_on_rows():
    claim = dpp.n_people().query.claim
    assert (claim.rate, claim._is_open) == (0, True)
    with pytest.raises(ValueError, match="a loss must be said first"):
        claim.cost("epsilon")
    with pytest.raises(ValueError, match="a loss must be said first"):
        dpp.Budget(epsilon=1)._charge([("n", claim)], privacy_unit=None, neighboring_relation="add_or_remove_one")


COUNT = private().agg(dpp.n_people())


@refusals(
    (lambda: COUNT.scaled_to(rho=1, delta=1e-6), TypeError, "delta must be left out with rho"),
    (lambda: COUNT.scaled_to(epsilon=1, delta=0), ValueError, "delta must be"),
    (lambda: COUNT.scaled_to(epsilon=1, delta=1), ValueError, "delta must be"),
    (lambda: COUNT.scaled_to(epsilon=1, rho=1, delta=1e-6), TypeError, "exactly one of epsilon and rho"),
    (lambda: COUNT.scaled_to(delta=1e-6), TypeError, "exactly one of epsilon and rho"),
    (lambda: COUNT.scaled_to(epsilon=math.nan, delta=1e-6), ValueError, "epsilon must be finite"),
)
def test_what_is_no_guarantee_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_guarantee_that_protects_nobody_warns():
    with pytest.warns(dpp.LargeLossWarning, match="epsilon=30 protects nobody"):
        COUNT.scaled_to(epsilon=30, delta=1e-6)
