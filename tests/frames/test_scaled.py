"""The same query at another cost: `scaled_to`."""

import warnings
from dataclasses import replace
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Loss
from tests.frames.test_explain import every_kind
from tests.helpers.refusals import refusals

X = pl.col("x")
ROWS = pl.DataFrame({"p": [i // 3 for i in range(300)], "g": [0, 1, 2] * 100, "x": [i % 5 for i in range(300)]})
MIXED = {
    "n": dpp.n_people(epsilon=1),
    "again": dpp.n_people(epsilon=1),  # of the same claim: each is paid
    "mean": X.dp.mean(0, 4, rho=Fraction(1, 50), mechanism="discrete_laplace"),
    "top": X.dp.top_k(2, range(5), epsilon=Fraction(1, 3)),
    "median": X.dp.median(range(5), rho=Fraction(1, 10)),
    "mode": X.dp.mode(range(5), epsilon=2, gap=True),
}


def mixed(relation="add_or_remove_one", **more):
    protected = dpp.protect("p", max_rows=4, max_groups=2, neighboring_relation=relation)
    return protected.group_by({"g": range(3)}).agg(**MIXED, **more)


def cost(query, unit):
    return sum((one.query.claim.cost(unit) for one in query._asks), Fraction(0))


def factors(scaled, query):
    losses = ([one.query.claim.loss.value for one in each._asks] for each in (scaled, query))
    return {one / other for one, other in zip(*losses, strict=True)}


def times(query, factor):
    """Return what the query costs with every loss times a factor, in both units, from claims of its own."""
    claims = [one.query.claim for one in query._asks]
    claims = [replace(claim, loss=Loss(claim.loss.value * factor, claim.loss.unit)) for claim in claims]
    return {unit: sum((claim.cost(unit) for claim in claims), Fraction(0)) for unit in ("epsilon", "rho")}


@pytest.mark.parametrize("target", [2, Fraction(1, 7), 0.3, 19])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_every_query_costs_exactly_what_is_asked_where_all_losses_are_in_that_unit(unit, target):
    exact = Fraction(str(target))
    for query in every_kind(**{unit: Fraction(1, 3)}):
        scaled = query.scaled_to(**{unit: target})
        assert (str(scaled.loss), scaled.loss.value) == (str(Loss(exact, unit)), exact)
        assert scaled.delta == query.delta
        assert len(factors(scaled, query)) == 1
        for one, two in zip(scaled._asks, query._asks, strict=True):
            again = replace(one.query.claim, loss=two.query.claim.loss)
            assert again == two.query.claim  # the mechanism, the bounds, the range and the delta are what they were
            assert replace(one, query=one.query.with_loss(again.loss.value)) == two
        assert scaled.scaled_to(**{unit: query.loss.value})._asks == query._asks
        assert (scaled._protection, scaled._request.about) == (query._protection, query._request.about)


def test_a_query_that_was_asked_by_its_error_has_another_one():
    within = {
        "n": dpp.n_people(within=10),
        "mean": X.dp.mean(0, 4, step=1, within=0.1, rows=500),
        "median": X.dp.median(range(5), within=20),
    }
    query = dpp.protect("p", max_rows=4, max_groups=2).group_by({"g": range(3)}).agg(**within)
    for target in ({"epsilon": 1}, {"rho": 1}, {"epsilon": query.loss.value}):
        scaled = query.scaled_to(**target)
        (factor,) = factors(scaled, query)
        same = [str(one.query.claim.loss) for one in scaled._asks]
        by_loss = dpp.protect("p", max_rows=4, max_groups=2).group_by({"g": range(3)})
        losses = [one.query.claim.loss.value for one in scaled._asks]
        asked = {
            "n": dpp.n_people(epsilon=losses[0]),
            "mean": X.dp.mean(0, 4, step=1, epsilon=losses[1]),
            "median": X.dp.median(range(5), epsilon=losses[2]),
        }
        expected = by_loss.agg(**asked)
        assert [str(one.query.claim.loss) for one in expected._asks] == same
        told, errors = scaled.explain(), expected.explain()["error_95"].to_list()
        mean = expected._asks[1].query
        assert told["error_95"].to_list() == [errors[0], mean.error_among(500, 0.05, pl.Int64()), errors[2]]
        assert told["note"][1].startswith(
            "error_95 is for 500 rows or more. Counts people beyond max_rows=4, max_groups=2 in part"
        )
        assert (told["error_95"] > query.explain()["error_95"]).all() == (factor < 1)
        assert not any(one.within for one in scaled._asks)
        again = scaled.scaled_to(epsilon=query.loss.value)
        assert again.explain()["error_95"].to_list() == query.explain()["error_95"].to_list()


@pytest.mark.parametrize("target", [Fraction(1, 1000), Fraction(1, 3), 1, 2, Fraction(99, 10)])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_of_losses_in_both_units_the_factor_is_the_largest_of_four_digits(unit, target, relation):
    query = mixed(relation)
    scaled = query.scaled_to(**{unit: target})
    (factor,) = factors(scaled, query)
    power = Fraction(10) ** (len(str(int(factor * 10**12))) - 1 - 12)
    digits = factor / power * 1000
    assert digits.denominator == 1
    assert 1000 <= digits < 10_000
    assert cost(scaled, unit) == times(query, factor)[unit] <= target < times(query, factor + power / 1000)[unit]


def test_a_query_that_is_scaled_to_what_it_costs_stays_what_it_is():
    query = mixed()
    for unit in ("epsilon", "rho"):
        assert query.scaled_to(**{unit: cost(query, unit)})._asks == query._asks


def test_rows_and_budget_stay_and_a_release_is_charged_what_was_asked():
    budget = dpp.Budget(epsilon=1)
    query = ROWS.dp.protect("p", max_rows=3, budget=budget).agg(dpp.len(epsilon=3), X.dp.mode(range(5), epsilon=1))
    scaled = query.scaled_to(epsilon=1)
    assert budget.spent == 0
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert scaled.release().shape == (1, 2)
    assert budget.spent == 1
    assert budget.log()["exact_loss"].to_list() == ["3/4", "1/4"]


def test_the_error_is_that_of_the_new_loss():
    small, large = (mixed().scaled_to(rho=rho).explain() for rho in (0.01, 1))
    for column in ("epsilon", "rho"):
        assert (small[column] < large[column]).all()
    assert (small["error_95"] > large["error_95"]).drop_nulls().all()
    assert "The release costs rho=" not in small["note"][0]
    assert "The release costs epsilon=" in small["note"][0]
    assert cost(mixed(rows=dpp.len(rho=1)).scaled_to(rho=2), "rho") <= 2


def test_no_row_is_read(monkeypatch):
    query = ROWS.lazy().dp.protect("p", max_rows=3).agg(dpp.len(epsilon=3))

    def collected(*_, **__):
        raise AssertionError

    monkeypatch.setattr(pl.LazyFrame, "collect", collected)
    assert str(query.scaled_to(epsilon=1).loss) == "epsilon=1"


MIXED_ROWS = mixed(rows=dpp.len(rho=1))
KEYS = dpp.protect("p", max_groups=1).keys("g", rho=1, delta=1e-6)
SUM = ROWS.dp.protect("p", max_rows=1).agg(X.dp.sum(0, 2**30, epsilon=1))  # what only the column's type tells
GAUSSIAN = "has discrete Gaussian noise"
GAUSSIAN_HINT = r"[\s\S]*Hint: scaled_to\(rho=…\), or request the output with epsilon=…"
SCALE = "the noise must have a scale of at most"


@refusals(
    (lambda: MIXED_ROWS.scaled_to(epsilon=2), ValueError, f"got epsilon: output 'rows' {GAUSSIAN}{GAUSSIAN_HINT}"),
    (lambda: KEYS.scaled_to(epsilon=2), ValueError, f"output 'keys' {GAUSSIAN}"),
    (
        lambda: dpp.protect(None).agg(dpp.len(epsilon=1)).scaled_to(epsilon=Fraction(1, 10**20)),
        *(ValueError, f"Output 'len': {SCALE}"),
    ),
    (lambda: SUM.scaled_to(epsilon=Fraction(1, 10**7)), ValueError, f"Output 'x': {SCALE}"),
    (
        lambda: KEYS.scaled_to(rho=Fraction(1, 10**40)),
        *(ValueError, "Output 'keys': the noise of a key must have a standard deviation below"),
    ),
    (
        lambda: mixed().scaled_to(),
        TypeError,
        "scaled_to must be given a loss or a guarantee, got none: there is no budget",
    ),
    (lambda: mixed().scaled_to(epsilon=1, rho=1), TypeError, "got both"),
    (lambda: mixed().scaled_to(epsilon=0), ValueError, "epsilon must be greater than 0"),
    (lambda: mixed().scaled_to(rho="1"), TypeError, "rho must be a number"),
)
def test_what_no_query_can_be_scaled_to(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_large_loss_warns():
    query = dpp.protect(None).agg(dpp.len(epsilon=1))
    with pytest.warns(dpp.LargeLossWarning, match="epsilon=21 protects nobody"):
        query.scaled_to(epsilon=21)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        query.scaled_to(epsilon=20)
