"""Answers that are asked for by how wrong they may be: the loss that a private frame finds."""

from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._statistics.measures import error_95
from dp_polars._statistics.shared_sums import alone, draws_shared
from tests.registry import RELATIONS

PEOPLE = 60
ROWS = pl.DataFrame(
    {
        "p": [i // 3 for i in range(3 * PEOPLE)],
        "g": [i % 3 for i in range(3 * PEOPLE)],
        "d": pl.Series(["flu", "cold", "gout", "flu"] * (3 * PEOPLE // 4), dtype=pl.Enum(["cold", "flu", "gout"])),
        "x": [i % 9 for i in range(3 * PEOPLE)],
        "f": [i % 9 / 4 for i in range(3 * PEOPLE)],
        "cents": pl.Series([Decimal(i % 900) / 100 for i in range(3 * PEOPLE)], dtype=pl.Decimal(12, 2)),
    }
)
NAMES = ["cold", "flu", "gout"]
# Output -> who asks, with any loss, and how wrong it may be.
ASKED = {
    "len": (dpp.len, 25),
    "len, between two numbers": (lambda **loss: dpp.len(where=pl.col("x") > 3, **loss), 12.5),
    "n_people": (dpp.n_people, 10),
    "count": (lambda **loss: dpp.count("f", **loss), 30),
    "sum": (lambda **loss: dpp.sum("x", 0, 8, **loss), 240),
    "sum of cents": (lambda **loss: dpp.sum("cents", 0, 9, **loss), Decimal("310.07")),
    "sum of floats": (lambda **loss: dpp.sum("f", -1, 2, step=0.1, **loss), 49.9),
    "sum of people": (lambda **loss: dpp.sum("x", 0, 8, per_person=(0, 16), **loss), 240),
    "mean": (lambda **loss: dpp.mean("x", 0, 8, **loss), 0.5),
    "mean of cents": (lambda **loss: dpp.mean("cents", 0, 9, step=0.5, **loss), 0.3),
    "value_counts": (lambda **loss: dpp.value_counts("d", NAMES, **loss), 15),
    "mode": (lambda **loss: dpp.mode("d", **loss), 12),
    "mode by rows": (lambda **loss: dpp.mode("d", counts="rows", **loss), 40),
    "mode or too few": (lambda **loss: dpp.mode("d", too_few=5, mechanism="exponential", **loss), 12),
    "mode by weights": (lambda **loss: dpp.mode("d", counts=dpp.weights("x", max_weight=8), **loss), 100),
    "mode by cents": (lambda **loss: dpp.mode("d", counts=dpp.weights("cents", max_weight=9, step=0.3), **loss), 99.9),
    "median": (lambda **loss: dpp.median("x", range(9), **loss), 33),
    "median, with an interval": (lambda **loss: dpp.median("x", range(9), confidence=0.95, **loss), 99),
    "quantile": (lambda **loss: dpp.quantile("f", 0.9, dpp.grid(0, 2, step=0.25), **loss), 51.5),
    "quantiles": (lambda **loss: dpp.quantile("x", [0.25, 0.5, 0.75], range(9), **loss), 90),
    "top_k": (lambda **loss: dpp.top_k("d", 2, **loss), 20),
    "top_k, jointly": (lambda **loss: dpp.top_k("x", 6, range(9), **loss), 60),
    "top_k by weights": (lambda **loss: dpp.top_k("d", 2, counts=dpp.weights("cents", max_weight=9), **loss), 200),
}
OF_MEANS = {"mean", "mean of cents"}
UNITS = {"epsilon": {"epsilon": 50}, "rho": {"rho": 50}}


def rows_of(name):
    return {"rows": 5000} if name in OF_MEANS else {}


def private(relation="add_or_remove_one", unit=None, rows=ROWS, **options):
    budget = None if unit is None else dpp.Budget(**{unit: 15})
    bounds = {"max_rows_per_group": 2, "max_groups": 2, "neighboring_relation": relation, "budget": budget} | options
    return rows.dp.protect("p", **bounds).group_by({"g": range(3)})


def error_of(frame, name, loss, drawn=lambda query: query):
    """What `explain` says of the same query at a loss that is written out."""
    expr, _ = ASKED[name]
    if name in OF_MEANS:  # `explain` has no error without a number of rows
        query = drawn(frame.agg(o=expr(**loss))._asks[0].query)
        return query.error_among(5000, 0.05, ROWS["cents" if "cents" in name else "x"].dtype)
    return frame.agg(o=expr(**loss)).explain()["error_95"].item()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ASKED)
def test_the_loss_is_the_smallest_of_four_digits(name, relation, unit):
    expr, within = ASKED[name]
    frame = private(relation, unit)
    query = frame.agg(o=expr(within=within, **rows_of(name)))
    loss = query.loss
    assert loss.unit == unit
    assert len(Decimal(f"{float(loss.value):.12g}").normalize().as_tuple().digits) <= 4
    assert Fraction(f"{float(loss.value):.12g}") == loss.value
    assert query.explain()["error_95"].item() <= float(within)
    assert error_of(frame, name, {unit: loss.value}) == query.explain()["error_95"].item()
    # One unit less in the fourth digit is not enough.
    digit = Fraction(10) ** (len(str(int(loss.value))) - 4 if loss.value >= 1 else -4)
    while loss.value / digit < 1000:
        digit /= 10
    assert error_of(frame, name, {unit: loss.value - digit}) > float(within)
    # A mean has a pair of its own, for which half of the loss is enough.
    if name in OF_MEANS and unit == "epsilon" and relation == "add_or_remove_one":
        assert error_of(frame, name, {unit: 1.9 * loss.value}, alone) > float(within)


@pytest.mark.parametrize("unit", UNITS)
def test_an_exact_count_costs_what_makes_it_exact(unit):
    frame = private(unit=unit, max_groups=3)  # of three groups, so nobody counts in part
    query = frame.agg(o=dpp.n_people(within=0))
    assert query.explain()["error_95"].item() == 0
    assert frame.agg(o=dpp.n_people(**{unit: query.loss.value * Fraction(99, 100)})).explain()["error_95"].item() > 0


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("asked", [dpp.len, dpp.n_people])
def test_no_count_is_exact_where_people_may_count_in_part(asked, unit):
    with pytest.raises(ValueError, match=r"within=0 is never reached: error_95 is 0\.5 at least"):
        private(unit=unit, max_groups=1).agg(o=asked(within=0))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ASKED)
def test_it_is_the_query_with_that_loss_written_out(name, unit):
    """The same claim, so the same draws, and the same price."""
    expr, within = ASKED[name]
    frame = private(unit=unit)
    (ask,) = frame.agg(o=expr(within=within, **rows_of(name)))._asks
    (written,) = frame.agg(o=expr(**{unit: ask.query.claim.loss.value}))._asks
    assert ask.query == written.query
    assert (ask.within.value, ask.within.rows) == (Fraction(str(within)), rows_of(name).get("rows"))
    assert written.within is None


SHARING = {
    "a pair": lambda loss: {"rows": dpp.count("x", epsilon=loss)},
    "a count and sums": lambda loss: {f"to {high}": dpp.mean("x", 0, high, epsilon=loss) for high in (10, 20, 30)},
    "a variance": lambda loss: {"var": dpp.var("x", 0, 8, epsilon=5 * loss), "rows": dpp.count("x", epsilon=loss)},
    "open losses": lambda _: {"var": dpp.var("x", 0, 8), "rows": dpp.count("x"), "total": dpp.sum("x", 0, 8)},
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", SHARING)
def test_a_mean_is_as_accurate_from_shared_draws(case, relation):
    """Its loss is that of a pair of its own, unless sharing takes that pair and leaves too little."""
    frame, asked = private(relation), {"mean": dpp.mean("x", 0, 8, within=0.5, rows=5000)}
    (by_itself,) = frame.agg(**asked)._asks
    loss = by_itself.query.claim.loss.value
    query = frame.agg(**asked, **SHARING[case](loss))
    if case == "open losses":
        query = query.scaled_to(epsilon=8 * loss)
    mean = query._asks[0]
    assert draws_shared(mean.query)[-1].is_shared
    assert error_95(mean.query, 5000, pl.Int64()) <= 0.5
    assert query.explain()["error_95"][0] <= 0.5
    has_pair = relation == "add_or_remove_one"
    is_shared_as_pair = draws_shared(mean.query)[0].sums == 2
    assert is_shared_as_pair == (has_pair and case == "a pair")
    if is_shared_as_pair or not has_pair:
        assert mean.query.claim.loss.value == loss
    else:
        assert loss <= mean.query.claim.loss.value <= Fraction(201, 100) * loss


def test_what_a_release_charges_is_that_loss():
    budget = dpp.Budget(rho=1)
    query = ROWS.dp.protect("p", max_groups=1, budget=budget).group_by({"g": range(3)}).agg(dpp.n_people(within=20))
    assert query.explain()["rho"].item() == float(query.loss.value)
    query.release()
    assert budget.spent == query.loss.value
    assert private().agg(dpp.len(within=20)).loss.unit == "epsilon"  # without a budget


def test_limits_of_a_frame_are_those_it_is_found_under():
    wide, narrow = (private(**more).agg(dpp.n_people(within=10)) for more in ({}, {"max_groups": 1}))
    assert narrow.loss.value < wide.loss.value
    errors = [frame.explain()["error_95"].item() for frame in (wide, narrow)]
    assert all(9.99 < error <= 10 for error in errors)
    # Without groups a person is in one of them.
    alone = ROWS.dp.protect("p", max_rows_per_group=2, max_groups=2).agg(dpp.n_people(within=10))
    assert alone.loss.value < wide.loss.value


def test_a_mechanism_by_name_is_kept():
    gauss = private().agg(dpp.len(within=20, mechanism="discrete_gaussian"))
    assert gauss.loss.unit == "rho"
    assert gauss.loss == private(unit="rho").agg(dpp.len(within=20)).loss
    for unit in (None, "epsilon", "rho"):
        for word in ("permute_and_flip", "exponential"):
            (ask,) = private(unit=unit).agg(dpp.mode("d", within=12, mechanism=word))._asks
            assert ask.query.claim.mechanism == word
        (ask,) = private(unit=unit).agg(dpp.len(within=20, mechanism="discrete_laplace"))._asks
        assert (ask.query.claim.mechanism, ask.query.claim.loss.unit) == ("discrete_laplace", unit or "epsilon")


@pytest.mark.parametrize(
    ("k", "word", "unit", "joint", "mechanism", "draws"),
    [
        (6, None, "epsilon", True, "exponential", 1),
        (6, None, "rho", False, "exponential", 6),
        (6, "joint", "rho", True, "exponential", 1),
        (6, "permute_and_flip", "rho", False, "permute_and_flip", 6),
        (2, None, "epsilon", False, "permute_and_flip", 2),
        (2, None, "rho", False, "exponential", 2),
    ],
)
def test_top_k_draws_as_it_would_at_a_loss_in_that_unit(k, word, unit, joint, mechanism, draws):
    (ask,) = private(unit=unit).agg(dpp.top_k("x", k, range(9), within=60, mechanism=word))._asks
    assert (ask.query.joint, ask.query.claim.mechanism, ask.query.claim._draws) == (joint, mechanism, draws)
    assert ask.query.claim.loss.unit == unit


def test_a_gap_is_paid_in_epsilon_by_any_budget():
    frame = private(unit="rho")
    (ask,) = frame.agg(dpp.mode("d", within=12, gap=True))._asks
    assert ask.query.claim._gap
    assert ask.query.claim.loss == private().agg(dpp.mode("d", within=12)).loss


def test_steps_and_candidates_are_those_of_the_column():
    frame, without = private(), dpp.protect("p", max_rows_per_group=2, max_groups=2).group_by({"g": range(3)})
    # People may count in part: so answers are rounded to the step, which is a part of the error.
    found = [frame.agg(dpp.sum("cents", 0, 1, step=step, within=10)).loss.value for step in (None, 1)]
    assert found[0] < found[1]
    assert found[0] == without.agg(dpp.sum("cents", 0, 1, step=Decimal("0.01"), within=10)).loss.value
    assert frame.agg(dpp.mode("d", within=12)).loss == without.agg(dpp.mode("d", NAMES, within=12)).loss
    for expr, lacks in [
        (dpp.sum("cents", 0, 9, within=300), "step"),
        (dpp.mean("cents", 0, 9, within=1, rows=5000), "step"),
        (dpp.mode("d", NAMES, counts=dpp.weights("cents", max_weight=9), within=99), "step"),
        (dpp.top_k("d", 2, NAMES, counts=dpp.weights("cents", max_weight=9), within=99), "step"),
        (dpp.mode("d", within=12), "candidates"),
    ]:
        with pytest.raises(ValueError, match=f"Output '(cents|d)': {lacks} must be given with within=") as error:
            without.agg(expr)
        assert f"Hint: give {lacks}=" in str(error.value)


def test_a_cached_answer_is_that_of_the_loss_written_out(tmp_path):
    budget = dpp.Budget(epsilon=5, path=tmp_path / "ledger.db")
    frame = ROWS.dp.protect("p", max_groups=2, budget=budget, dataset="visits").group_by({"g": range(3)})
    query = frame.agg(dpp.n_people(within=30))
    first, spent = query.release(), budget.spent
    again = frame.agg(dpp.n_people(epsilon=query.loss.value)).release()
    assert again.equals(first)
    assert budget.spent == spent
    frame.agg(dpp.n_people(within=31)).release()  # follows from the more exact draw
    assert budget.spent == spent
    frame.agg(dpp.n_people(within=29)).release()
    assert budget.spent > spent


def test_a_mean_is_explained_for_the_rows_it_was_asked_for():
    found, fewer = (private().agg(dpp.mean("x", 0, 8, within=1, rows=rows)) for rows in (5000, 500))
    assert 0 < found.explain()["error_95"].item() <= 1
    assert found.loss.value < fewer.loss.value
    assert private().agg(dpp.mean("x", 0, 8, epsilon=1)).explain()["error_95"].item() is None


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (dpp.sum("x", 0, 8, within=0.5), r"Output 'x': within=0.5 would take epsilon=\d.*above 20 protects nobody"),
        (dpp.quantile("x", [0.25, 0.5, 0.75], range(9), within=0.3), "within=0.3 is never reached: error_95 is 0.5 "),
        (dpp.mode("x", [7], within=3), "within=3 must be smaller: every loss"),
        (dpp.mean("x", 0, 8, within=8, rows=9000), "within=8, rows=9000 must be smaller"),
        (dpp.mean("x", 0, 8, within=0.1, rows=2), r"rows=2 would take epsilon=\d.*above 20"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.query),
)
def test_what_can_not_be_reached_is_refused_before_anything_is_read(expr, message):
    with pytest.raises(ValueError, match=message) as error:
        private().agg(expr)
    assert "Hint: " in str(error.value)


def test_the_refusal_names_the_loss_that_it_would_take():
    with pytest.raises(ValueError, match="would take epsilon=") as error:
        private().agg(dpp.sum("x", 0, 8, within=0.5))
    (named,) = [word for word in str(error.value).split() if word.startswith("epsilon=")]
    loss = Fraction(named.removeprefix("epsilon=").rstrip(":"))
    with pytest.warns(dpp.LargeLossWarning):
        query = private().agg(dpp.sum("x", 0, 8, epsilon=loss))
    assert query.explain()["error_95"].item() == 0.5  # only rounding is left


def test_at_another_loss_it_is_explained_as_it_is_there():
    request = private().agg(dpp.mean("x", 0, 8, within=1, rows=5000))._request
    less = private().agg(dpp.mean("x", 0, 8, epsilon=0.01))._asks[0].query.terms
    assert request.with_asks([request.asks[0].with_terms(less)]).explain(None)["error_95"].item() > 1
