"""Limits and clipping bounds that are found before the answers, under one guarantee."""

from __future__ import annotations

import html
import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from flint import arb, ctx

import dp_polars as dpp
from dp_polars._accounting.terms import Loss, exact
from dp_polars._base.numbers import show
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.limit_rule import PARTS
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._release.found import FoundLimits
from dp_polars._release.staged import StagedRequest
from tests.helpers.needs import need
from tests.helpers.noised import record
from tests.helpers.reference import law
from tests.helpers.refusals import refusals, refused
from tests.registry import RELATIONS

KEYS = {"g": ["A", "B", "C"]}


def visits(people=400, seed=1):
    rng = np.random.default_rng(seed)
    rows = np.minimum(rng.geometric(0.3, people), 40)
    number = int(rows.sum())
    return pl.DataFrame(
        {
            "p": np.repeat(np.arange(people), rows),
            "g": rng.choice(["A", "B", "C", "unlisted"], number, p=[0.4, 0.3, 0.2, 0.1]),
            "days": rng.integers(-3, 60, number),
            "cost": rng.lognormal(5, 1, number),
            "kind": rng.choice(["x", "y"], number),
        }
    )


def report(private):
    return private.group_by(KEYS).agg(
        people=dpp.n_people(),
        rows=dpp.len(),
        top=pl.col("kind").dp.mode(["x", "y"]),
        days=pl.col("days").dp.sum(),
        cost=pl.col("cost").dp.mean(),
        half=pl.col("days").dp.median(range(-3, 61)),
    )


# --- The choice -------------------------------------------------------------------------------------------------------


def choices_of(query):
    request = query._planned
    assert isinstance(request, StagedRequest)
    return [ask.query for ask in request.choices]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_one_person_moves_all_scores_by_no_more_than_their_range(relation, unit):
    """Brute force: people who are beyond any number of candidates come, go, or take each other's places."""
    query = report(visits().dp.protect("p", neighboring_relation=relation)).scaled_to(**{unit: 1})
    for choice in choices_of(query):
        size = len(choice.rule.counted)

        def scores(codes, choice=choice, size=size):
            passed = np.bincount(codes, minlength=size + 1) if codes else np.zeros(size + 1, np.int64)
            there = np.flatnonzero(passed)
            histogram = Histogram(there, passed[there], np.array([len(there)]))
            return choice.rule.scores(choice.beyond(histogram))

        people = [*range(20)] * 3 if size >= 20 else [*range(size + 1)] * 30
        codes = [0, 1, min(3, size), size // 2, size - 1, size]
        for one, other in itertools.product(codes, codes):
            moved = scores([*people, one]) - scores([*people, other] if relation == "replace_one" else people)
            assert moved.max() - moved.min() <= choice.rule.score_range
            assert choice.rule.at_median or moved.min() >= 0 or moved.max() <= 0


def log_ratios(choice, before, after):
    """The largest difference of logarithms, and the divergence of order 2, of a choice and its number of people."""
    rate = choice.claim.rate
    mechanism = {"exponential": "exponential", "permute_and_flip": "permute_and_flip"}[choice.claim.mechanism]
    laws = [law(choice.rule.scores(np.array(of)).tolist(), rate=rate, mechanism=mechanism) for of in (before, after)]
    with ctx.workprec(200):
        noise = arb(choice.noise().rate.numerator) / choice.noise().rate.denominator
        assert choice.noise(PARTS).rate * PARTS == choice.noise().rate
        worst = max(abs((one / two).log()) for one, two in zip(*laws, strict=True))
        # Both orders of the divergence; two numbers move by one at most, or by all parts, whatever is chosen.
        of_choice = max(
            sum((one * one / two for one, two in zip(*pair, strict=True)), arb(0)).log() for pair in (laws, laws[::-1])
        )
        q = (-noise).exp()
        at = lambda x: (1 - q) / (1 + q) * q ** abs(x)  # noqa: E731
        of_noise = sum((at(x) ** 2 / at(x - 1) for x in range(-4000, 4001)), arb(0)).log()
        return worst + 2 * noise, of_choice + 2 * of_noise


@pytest.mark.parametrize(
    ("unit", "value"), [("epsilon", 1), ("epsilon", Fraction(1, 10)), ("rho", Fraction(1, 50)), ("rho", 300)]
)
def test_a_choice_and_its_numbers_of_people_cost_what_is_charged(unit, value):
    """Against exact laws: their largest ratio is at most epsilon, their divergence of order 2 at most 2·rho."""
    query = report(visits().dp.protect("p")).scaled_to(**{unit: value})
    for choice in choices_of(query):
        size, targets = len(choice.rule.counted), choice.rule.targets
        for base in (0, 2, int(max(targets)) + 3):
            before = np.full(size, base)
            for beyond in (1, size // 2, size):
                after = before.copy()
                after[:beyond] += 1
                ratio, divergence = log_ratios(choice, before, after)
                assert divergence <= 2 * float(choice.claim.cost("rho")) * (1 + 1e-12)
                if unit == "epsilon":
                    assert ratio <= float(choice.claim.loss.value) * (1 + 1e-12)


def test_choices_are_drawn_by_their_law():
    query = visits().dp.protect("p").agg(dpp.len()).scaled_to(epsilon=2)
    (choice,) = choices_of(query)
    size, rng = len(choice.rule.counted), np.random.default_rng(0)
    passed = rng.integers(0, 6, size + 1)
    there = np.flatnonzero(passed)
    histogram = Histogram(there, passed[there], np.array([len(there)]))
    beyond = choice.beyond(histogram)
    assert beyond.tolist() == [int(passed[place + 1 :].sum()) for place in range(size)]
    expected = np.array(
        [
            float(one)
            for one in law(choice.rule.scores(beyond).tolist(), rate=choice.claim.rate, mechanism="permute_and_flip")
        ]
    )
    draws = 6000
    drawn = [choice.drawn([histogram]) for _ in range(draws)]
    counts = np.bincount([int(one.item()) for one, *_ in drawn], minlength=len(expected))
    # Four deviations, of each.
    assert (abs(counts - draws * expected) <= 4 * np.sqrt(draws * expected * (1 - expected)) + 4).all()
    people = np.array([people.item() - beyond[int(place.item())] for place, people, _ in drawn])
    lost = np.array([lost.item() - choice.parts_lost(beyond, int(place.item())).item() for place, _, lost in drawn])
    q = math.exp(-min(choice.claim.rate / 4, 1))
    for off, most in ((people, 1), (lost, PARTS)):
        scaled = off / most
        assert np.mean(abs(off) > noise_bound(choice.noise(most), 0.05)) <= 0.06
        wanted = math.sqrt(2 * q) / (1 - q) if most == 1 else math.sqrt(2) / min(choice.claim.rate / 4, 1)
        assert scaled.std() == pytest.approx(wanted, rel=0.1)
        assert abs(scaled.mean()) <= 4 * scaled.std() / math.sqrt(draws)


# --- What is charged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("unit", "other"), [("epsilon", "rho"), ("rho", "epsilon")])
def test_whatever_is_found_costs_no_more_than_is_charged(unit, other, relation):
    query = report(visits().dp.protect("p", neighboring_relation=relation)).scaled_to(**{unit: 1})
    request = query._planned
    charged = dict(request.charged)
    work = request.bind(PolarsEngine.of(visits().lazy()))
    types = {output.name: output.types for output in work.outputs}
    ruled = request.of_types(types)
    values = [choice.query.values for choice in ruled.choices]
    whats = [choice.what for choice in choices_of(query)]
    signs = [*itertools.product((0, 7, -1), repeat=2)]
    for place in range(max(map(len, values))):
        low, high = signs[place % len(signs)]
        places = [{"lower": low, "upper": high}.get(what, place) for what in whats]
        found = ruled._with([of[min(at, len(of) - 1)] for at, of in zip(places, values, strict=True)])
        for ask, planned in zip(found.asks, request.asks, strict=True):
            claim = ask.query.claim
            assert claim.loss == planned.query.claim.loss
            if claim._has_epsilon:
                assert claim.cost(other) <= charged[str(planned)].cost(other)


def test_both_stages_are_charged_together_before_a_row_is_read(tmp_path):
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    query = report(visits().dp.protect("p", budget=budget)).scaled_to(epsilon=1, delta=1e-6)
    assert query.found is None
    query.release()
    log = budget.log()
    assert log.height == len(query._planned.every) == len(query._planned.choices) + 6
    assert {what.partition(" of ")[0] for what in log["what"].to_list()} >= {"max_norm", "lower", "upper", "max_groups"}
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert budget.log().height == log.height


@pytest.mark.parametrize("numbers", [{"epsilon": 1, "delta": 1e-6}, {"epsilon": 1}, {"rho": Fraction(1, 40)}])
def test_choices_and_answers_cost_the_guarantee_together(numbers):
    query = report(visits().dp.protect("p")).scaled_to(**numbers)
    loss = query.loss
    if len(numbers) == 1:
        ((unit, value),) = numbers.items()
        assert loss == Loss(Fraction(value), unit)
    parts = [choice.claim.loss.value for choice in choices_of(query)]
    # At most a fifth, or three tenths of one group.
    assert 0 < sum(parts) <= loss.value * (Fraction(3, 10) if query._request.groups == 1 else Fraction(1, 5))
    assert sum(claim.cost(loss.unit) for claim in query._planned.claims) == loss.value


# --- Releases ---------------------------------------------------------------------------------------------------------


def test_what_is_found_is_what_people_have():
    """With little noise, what is found is the smallest candidate beyond which hardly anybody is."""
    rows = visits(2000)
    query = report(rows.dp.protect("p")).scaled_to(epsilon=10_000)
    answers = query.release(intervals=True)
    found = {one.name: one for one in query.found}
    listed = rows.filter(pl.col("g") != "unlisted")
    most = listed.group_by("p").len()["len"].max()
    assert found["max_groups of people"].value >= 2
    assert most / 2 <= found["max_norm of rows, days, cost"].value <= 2 * most
    assert -5 <= found["lower of days"].value <= -3
    assert found["upper of days"].value == 100
    assert found["lower of cost"].value == 0
    assert found["upper of cost"].value >= listed["cost"].quantile(0.999)
    true = (
        listed.group_by("g")
        .agg(pl.col("p").n_unique(), pl.len(), pl.col("days").sum(), pl.col("cost").mean())
        .sort("g")
    )
    assert answers["people"].to_list() == true["p"].to_list()
    assert (answers["rows"] - true["len"]).abs().max() <= 1
    assert (answers["days"] - true["days"]).abs().max() <= 60
    assert (answers["cost"] - true["cost"]).abs().max() <= 1
    assert "people are beyond it" in repr(query.found)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_noise_is_for_the_limit_that_was_found(unit):
    """Each answer's claim has what its limits let one person contribute, and its loss is that of before."""
    for query in (
        visits().dp.protect("p").group_by(KEYS).agg(people=dpp.n_people()),
        visits().dp.protect("p").group_by(KEYS).agg(rows=dpp.len()),
        visits().dp.protect("p").group_by(KEYS).agg(half=pl.col("days").dp.median(range(100))),
    ):
        request = query.scaled_to(**{unit: 1})._planned
        (limits,), values = request.limits.values(), request.choices[0].query.values
        different = set()
        for value in (values[0], values[2], values[-1]):
            settled = request._with([value] * len(limits))
            (ask,) = settled.asks
            of_protect = request.protection.with_limits(**dict.fromkeys(limits, int(value)))
            assert ask.query.claim.contributions == of_protect.contributions(ask.query, 3)
            assert ask.query.claim.loss == request.asks[0].query.claim.loss
            different.add(ask.query.claim.rate)
        assert len(different) == len({values[0], values[2], values[-1]})


def test_limits_that_were_found_hold_for_other_queries():
    query = report(visits().dp.protect("p")).scaled_to(epsilon=100)
    with pytest.raises(TypeError, match=r"^found must be what a query has found"):
        visits().dp.protect("p").with_limits(found=3)
    query.release()
    assert isinstance(query.found, FoundLimits)
    later = visits().dp.protect("p").with_limits(found=query.found)
    assert later.protection.limits == query.found.limits
    assert later.group_by(KEYS).agg(dpp.len(epsilon=1)).release().height == 3


def test_a_named_data_set_finds_once(tmp_path):
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")
    rows = visits()

    def asked():
        return report(rows.dp.protect("p", budget=budget, dataset="visits")).scaled_to(epsilon=5)

    first, second = asked(), asked()
    one = first.release(intervals=True)
    spent = budget.spent if hasattr(budget, "spent") else budget.remaining
    two = second.release(intervals=True)
    assert one.equals(two)
    assert first.found == second.found
    assert spent == (budget.spent if hasattr(budget, "spent") else budget.remaining)
    fresh = asked()
    fresh.release(ignore_cache=True)
    assert budget.remaining == 0


def test_a_publication_takes_queries_in_stages():
    private = visits().dp.protect("p")
    both = dpp.publication(report=report(private), rows=private.agg(n=dpp.len())).scaled_to(epsilon=1, delta=1e-6)
    released = both.release()
    assert released["rows"]["n"].len() == 1
    assert both.queries["report"].found is not None
    assert both.queries["rows"].found is not None


def test_only_limits_that_are_needed_are_found():
    rows = visits()

    def found(private, **asked):
        query = private.group_by(KEYS).agg(**asked)
        request = query._planned
        return [choice.query.what for choice in request.choices] if isinstance(request, StagedRequest) else []

    assert found(rows.dp.protect("p"), n=dpp.n_people()) == ["max_groups"]
    assert found(rows.dp.protect("p", max_groups=2), n=dpp.n_people()) == []
    assert found(rows.dp.protect("p", max_groups=None), n=dpp.n_people()) == []
    assert found(rows.dp.protect("p", max_rows=4), n=dpp.n_people(), r=dpp.len()) == []
    assert found(rows.dp.protect("p", max_groups=2), n=dpp.n_people(), r=dpp.len()) == ["max_norm"]
    assert found(rows.dp.protect("p", max_groups=2, max_rows_per_group=2), r=dpp.len()) == []
    assert found(rows.dp.protect("p", max_norm=2), r=dpp.len(), s=pl.col("days").dp.sum(0, 9)) == []
    assert found(rows.dp.protect("p", max_norm=2), s=pl.col("days").dp.sum(lower=0)) == ["upper"]
    assert found(rows.dp.protect(None), s=pl.col("days").dp.sum()) == ["lower", "upper"]
    query = rows.dp.protect("p").agg(n=dpp.n_people())
    assert not isinstance(query._planned, StagedRequest)


def test_rows_that_are_people_have_bounds_found():
    query = (
        visits()
        .dp.protect(None)
        .agg(mean=pl.col("days").dp.mean(), most=pl.col("days").dp.sum())
        .scaled_to(epsilon=5000)
    )
    answer = query.release()
    assert abs(answer["mean"].item() - visits()["days"].mean()) < 0.1
    assert [one.what for one in query.found] == ["lower", "upper", "lower", "upper"] or len(query.found) == 2


def test_explain_shows_both_stages_and_later_what_was_found():
    query = report(visits().dp.protect("p"))
    before = query.explain()
    assert before["output"].to_list()[:1] == ["max_groups of people"]
    assert before.filter(pl.col("output") == "cost")["error_95"].to_list() == [None]
    scaled = query.scaled_to(epsilon=1, delta=1e-6)
    assert "the limit is found first" in " ".join(scaled.explain()["note"])
    scaled.release()
    after = scaled.explain()
    assert "Found max_norm of rows, days, cost" in " ".join(after["note"])
    # In the other unit nothing was found, so that only errors without found bounds are known.
    others = after.filter(pl.col("note").str.contains(r"In (epsilon|rho) "))["output"].to_list()
    assert set(others) == {"people", "rows", "top", "half"}
    assert after["epsilon"].to_list() == scaled.explain()["epsilon"].to_list()
    names = [one.name for one in scaled.found]
    assert names == after["output"].to_list()[: len(names)]


def test_statement_report_and_file_have_both_stages(tmp_path):
    budget = dpp.Budget(epsilon=1, delta=1e-6, name="visits of a statement")
    query = report(visits().dp.protect("p", budget=budget)).scaled_to(epsilon=1, delta=1e-6)
    query.sink_parquet(tmp_path / "answers.parquet")
    claim = dpp.read_claim(tmp_path / "answers.parquet")
    assert "upper of cost" in claim["columns"]
    assert "max_norm of rows, days, cost" in json.dumps(dpp.statement(budget, [query]).facts)
    answers = pl.read_parquet(tmp_path / "answers.parquet")
    page = dpp.report(answers, query, tmp_path / "page.html", name="Visits").read_text("utf-8")
    assert "upper of cost" in page.replace("\xa0", " ")


@refusals(
    (
        lambda: visits().dp.protect("p", max_rows=3).agg(pl.col("days").dp.sum(epsilon=1)),
        ValueError,
        "^Output 'days' must have no loss of its own without lower and upper",
    ),
    (
        lambda: visits().dp.protect("p", max_rows=3).agg(pl.col("days").dp.sum(lower=0, within=5)),
        ValueError,
        "^Output 'days' must have no loss of its own without upper",
    ),
    (
        lambda: visits().dp.protect("p").agg(dpp.len(epsilon=1)),
        ValueError,
        "leave its loss out",
    ),
    (
        lambda: visits().select(pl.col("days").dp.sum(epsilon=1)),
        pl.exceptions.ComputeError,
        "lower and upper must be given on a plain frame",
    ),
    (
        lambda: pl.col("days").dp.sum(per_person=(0, 9)),
        TypeError,
        "^lower and upper must be given with per_person",
    ),
    (
        lambda: report(visits().dp.protect("p")).release(),
        ValueError,
        "every output must have a loss",
    ),
)
def test_what_is_refused_is_free(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_what_needs_limits_says_so_until_they_are_found():
    query = report(visits().dp.protect("p")).scaled_to(epsilon=50)
    with pytest.raises(ValueError, match=r"^n_rows_dropped must have all limits and clipping bounds"):
        query.n_rows_dropped(9, epsilon=1)
    with pytest.raises(ValueError, match=r"^query must have all limits and clipping bounds"):
        dpp.analysis.loss_for(query, visits(300), within={"rows": 9})
    with pytest.raises(ValueError, match=r"every output must have a loss"):
        dpp.analysis.simulate(report(visits().dp.protect("p")), visits(300))
    query.release()
    assert 0 < query.n_rows_dropped(50, epsilon=50).release().item() < visits().height
    assert dpp.analysis.simulate(query, visits(), allow_private=True).height > 0


def test_opendp_takes_no_query_in_stages():
    need("opendp")
    from dp_polars import opendp

    with pytest.raises(TypeError, match=r"^query must be given all limits and clipping bounds"):
        opendp.as_measurement(report(dpp.protect("p")).scaled_to(epsilon=1))


def test_a_query_may_be_scaled_again():
    once = report(visits().dp.protect("p")).scaled_to(epsilon=1)
    twice, other = once.scaled_to(epsilon=2), visits().dp.protect("p").agg(n=dpp.len())
    assert twice.loss.value == 2
    assert [choice.claim.loss.value for choice in choices_of(twice)] == [
        2 * choice.claim.loss.value for choice in choices_of(once)
    ]
    both = dpp.publication(once=once, other=other).scaled_to(epsilon=3)
    assert sum(query.loss.value for query in both.queries.values()) == 3
    assert both.release()["once"].height == 3


def test_outputs_with_losses_of_their_own_stand_beside_those_whose_limits_are_found():
    private = visits().dp.protect("p").group_by(KEYS)
    query = private.agg(people=dpp.n_people(epsilon=Fraction(1, 2)), days=pl.col("days").dp.mean()).scaled_to(
        epsilon=9999
    )
    assert [choice.what for choice in choices_of(query)] == ["max_norm", "lower", "upper"]
    assert query._asks[0].query.claim.loss.value == Fraction(1, 2)
    query.release()
    assert query._request.asks[1].query.upper >= 50
    refused(ValueError, "^within must be left out of", private.agg, dpp.n_people(within=9), pl.col("days").dp.mean())


TYPES = [pl.Int8, pl.UInt8, pl.Int32, pl.Int64, pl.UInt64, pl.Int128, pl.Boolean, pl.Float32, pl.Float64]
TYPES += [pl.Decimal(9, 2), pl.Decimal(38, 0), pl.Decimal(18, 4), pl.Decimal(38, 20), pl.Decimal(38, 30)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("step", [None, 1, Fraction(1, 1000)], ids=str)
@pytest.mark.parametrize("epsilon", [1, Fraction(1, 1000)], ids=str)
def test_whatever_is_found_is_answered(dtype, step, epsilon):
    """A release is charged before anything is found: none may fail, with any step, type or loss."""
    rows = pl.DataFrame({"p": [1], "x": [0]}).with_columns(pl.col("x").cast(dtype))
    column = pl.col("x").dp
    asks = {"of_rows": column.sum(step=step), "of_people": column.sum(step=step, per_person=True)}
    asks |= {"mean": column.mean(step=step), "var": column.var(step=step), "wide": column.sum(-(10**6), step=step)}
    if dtype.is_decimal() and dtype.scale >= 20:  # which hold neither a million nor 64 bits of ones
        asks = {} if step == 1 or (step and dtype.scale > 20) else {name: asks[name] for name in asks if name != "wide"}
    for name, ask in asks.items():
        query = rows.dp.protect("p").agg(n=dpp.len(), **{name: ask}).scaled_to(epsilon=epsilon)
        request = query._planned
        work = request.bind(PolarsEngine.of(rows.lazy()))
        types = {output.name: output.types for output in work.outputs}
        ruled = request.of_types(types)
        values = [choice.query.values for choice in ruled.choices]
        for low, high, limit in itertools.product((0, 1, -1), (0, 1, -2, -1), (0, -1)):
            places = {"lower": low, "upper": high}
            found = [
                of[max(min(places.get(one.query.what, limit), len(of) - 1), -len(of))]
                for one, of in zip(ruled.choices, values, strict=True)
            ]
            ruled._with(found).on_columns_of(work)
        query.release()
        assert epsilon < 1 or ruled.choices[0].query.size_of() > 20  # limits


def bounds_of(dtype, what="upper", **given):
    rows = pl.DataFrame({"p": [1], "x": [0]}).with_columns(pl.col("x").cast(dtype))
    query = rows.dp.protect("p", max_rows=1).agg(pl.col("x").dp.sum(**given)).scaled_to(epsilon=1)
    request = query._planned
    work = request.bind(PolarsEngine.of(rows.lazy()))
    ruled = request.of_types({output.name: output.types for output in work.outputs})
    return next((choice.query.values for choice in ruled.choices if choice.query.what == what), None)


def test_candidates_of_bounds_follow_the_type_of_the_column():
    assert bounds_of(pl.Int8) == (0, 1, 2, 5, 10, 20, 50, 100, 127)
    assert bounds_of(pl.Int8, "lower") == (0, -1, -2, -5, -10, -20, -50, -100, -128)
    assert bounds_of(pl.UInt8, "lower") is None
    assert bounds_of(pl.UInt16)[-2:] == (50_000, 65_535)
    booleans = pl.DataFrame({"p": [1], "x": [True]}).dp.protect("p", max_rows=1).agg(pl.col("x").dp.sum())
    assert not isinstance(booleans._planned, StagedRequest)
    assert (booleans._asks[0].query.lower, booleans._asks[0].query.upper) == (0, 1)
    assert bounds_of(pl.Int64)[-1] == 10**18
    assert bounds_of(pl.Decimal(6, 2))[1:3] == (Fraction(1, 100), Fraction(2, 100))
    assert bounds_of(pl.Decimal(6, 2))[-1] == Fraction(999_999, 100)
    assert max(bounds_of(pl.Decimal(38, 20))) * 10**20 < 2**63
    assert len(bounds_of(pl.Decimal(38, 20))) > 10
    assert bounds_of(pl.Float64)[:3] == (0, Fraction(1, 1000), Fraction(2, 1000))
    assert 10**5 < max(bounds_of(pl.Float64, step=Fraction(1, 1000))) <= 2**30 / 1000


# --- People's totals --------------------------------------------------------------------------------------------------


def test_bounds_of_totals_are_found():
    """With little noise: the smallest candidates beyond which hardly any total is."""
    rows = visits(2000)
    private = rows.dp.protect("p").group_by(KEYS)
    query = private.agg(
        days=pl.col("days").dp.sum(per_person=True),
        cost=pl.col("cost").dp.sum(0, per_person=True),
        of_rows=pl.col("days").dp.sum(),
    ).scaled_to(epsilon=20_000)
    answers = query.release()
    found = {one.name: one for one in query.found}
    assert set(found) >= {"lower of days", "upper of days", "upper of cost", "upper of of_rows"}
    assert "lower of cost" not in found  # totals of costs are above 0
    listed = rows.filter(pl.col("g") != "unlisted")
    totals = listed.group_by("p", "g").agg(pl.col("days").sum(), pl.col("cost").sum())
    of_people = totals.group_by("p").agg(pl.col("days", "cost").max())
    assert of_people["days"].quantile(0.99) <= found["upper of days"].value <= 5 * of_people["days"].max()
    assert of_people["cost"].quantile(0.99) <= found["upper of cost"].value <= 5 * of_people["cost"].max()
    assert found["upper of of_rows"].value == 100 < found["upper of days"].value
    true = totals.group_by("g").agg(pl.col("days", "cost").sum()).sort("g")
    assert (answers["days"] - true["days"]).abs().max() <= 100
    assert ((answers["cost"] - true["cost"]).abs() / true["cost"]).max() <= 0.02
    assert "their largest values" in repr(query.found)


def test_values_of_both_signs_add_up_before_totals_are_clipped():
    """A refund of a person takes away what was paid: values have no bounds of their own."""
    rows = pl.DataFrame({"p": [i // 2 for i in range(4000)], "x": [900, -880] * 2000})
    query = rows.dp.protect("p").agg(x=pl.col("x").dp.sum(per_person=True)).scaled_to(epsilon=1000)
    assert abs(query.release()["x"].item() - 20 * 2000) <= 20
    assert [exact(one.value) for one in query.found] == ["0", "20"]
    assert "per person from 0 to 20" in query.explain()["selects"][-1]


# --- What limits leave out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_what_one_person_loses_is_at_most_what_pays_for_it(unit):
    """Brute force: people beyond any number of candidates come, or take each other's places, whatever was chosen."""
    query = report(visits().dp.protect("p")).scaled_to(**{unit: 1})
    for choice in choices_of(query):
        size = len(choice.rule.counted)

        def lost(codes, place, choice=choice, size=size):
            passed = np.bincount(codes, minlength=size + 1)
            there = np.flatnonzero(passed)
            return int(
                choice.parts_lost(choice.beyond(Histogram(there, passed[there], np.array([len(there)]))), place)[0]
            )

        most = 0
        last = len(choice.rule.candidates) - 1
        for place in {0, 1, min(5, last), last // 3, last // 2, last}:
            base = lost([1] * 5 + [size] * 3, place)
            moved = [lost([1] * 5 + [size] * 3 + [code], place) - base for code in range(size + 1)]
            assert 0 <= min(moved) <= max(moved) <= PARTS
            most = max(most, max(moved) - min(moved))
        assert most == PARTS


def test_rows_that_limits_leave_out_are_those_that_are_lost():
    """With little noise: against the number that is lost, counted by hand; and they are said first."""
    rows = pl.DataFrame({"p": [*range(3000)] + [i % 200 for i in range(200 * 7)]})
    query = rows.dp.protect("p").agg(n=dpp.len()).scaled_to(epsilon=Fraction(1, 2))
    request = query._planned
    work = request.bind(PolarsEngine.of(rows.lazy()))
    # The limit 2 was drawn, and 200 people have 8 rows; a person counts up to the first candidate of 6 or more.
    found = pl.DataFrame({"place": [1], "people": [200], "lost": [200 * PARTS]})
    settled, _ = request.settled(found, work)
    (one,) = settled.found
    assert one.value == 2
    assert one.lost == 200 * 4
    assert one.is_large
    assert one.lost_bound < one.lost
    lines = settled.lines(None)
    assert (
        lines[0]
        .row["note"]
        .startswith(f"max_norm=2 changes n by about {show(one.lost / one.noise, 2)} times the noise: ")
    )
    assert not replace(one, lost=one.noise).is_large
    assert not replace(one, lost_bound=one.lost).is_large
    assert "no confidence interval" in lines[0].row["note"]


def test_a_report_begins_with_what_limits_leave_out(tmp_path):
    rows = pl.DataFrame({"p": [*range(30_000)] + [i % 4000 for i in range(60_000)]})
    query = rows.dp.protect("p").agg(n=dpp.len()).scaled_to(epsilon=1)
    answers = query.release()
    page = dpp.report(answers, query, tmp_path / "page.html", name="Rows")
    (one,) = query.found
    assert one.loss_in_words in html.unescape(page.read_text("utf-8"))
    large = replace(one, lost=one.noise + one.lost_bound + 1)
    query._settle(replace(query._request, found=(large,)))
    text = html.unescape(dpp.report(answers, query, page, name="Rows").read_text("utf-8"))
    assert text.index(large.warning) < text.index("<table")
    assert large.warning in query.statement().to_markdown().replace("\\", "")


def test_simulate_finds_limits_on_public_rows():
    query = report(visits().dp.protect("p")).scaled_to(epsilon=5000)
    simulated = dpp.analysis.simulate(query, visits(300, seed=9))
    assert {*simulated["output"]} == {"people", "rows", "top", "days", "cost", "half"}
    assert query.found is None
    rows = simulated.filter(output="rows")
    assert (rows["expected_error"] < 60).all()


def test_sizes_are_known_before_bounds_are():
    query = report(visits().dp.protect("p")).scaled_to(epsilon=5)
    sizes = dpp.analysis.size_needed(query, 0.1)
    assert sizes.height == 6
    assert sizes["size"].null_count() == 0


# --- Shared sums ------------------------------------------------------------------------------------------------------


def of_days(private, **more):
    asked = {
        "rows": dpp.count("days"),
        "total": pl.col("days").dp.sum(-3, 60),
        "mean": pl.col("days").dp.mean(-3, 60),
    }
    return private.group_by(KEYS).agg(people=dpp.n_people(), **asked, **more)


def draws_of(request):
    """The names of the outputs, the loss and the limits of each draw that outputs share, or have of their own."""
    asks = [ask for ask in request.asks if getattr(ask.query, "shared", ())]
    return {draw.outputs: draw.claim for ask in asks for draw in ask.query.shared}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": Fraction(1, 10)}], ids=str)
def test_outputs_share_sums_whatever_limit_is_found(loss, relation):
    """How they share their losses is fixed before; each draw that is made then costs what is charged at most."""
    (unit,) = loss
    frame = visits().lazy().dp.protect("p", neighboring_relation=relation)
    query = of_days(frame, cost=pl.col("cost").dp.mean()).scaled_to(**loss)
    request = query._request
    planned = draws_of(request)
    number = {("epsilon", "add_or_remove_one"): 1, ("epsilon", "replace_one"): 0}.get((unit, relation), 2)
    assert len(planned) == number
    assert all("cost" not in names for names in planned)  # its clipping bounds are found, too
    losses = sum(claim.loss.value for claim in request.claims)
    assert losses == query.loss.value == sum(ask.query.claim.loss.value for ask in request.every)
    assert {text for text, _ in request.charged if "rows, total, mean" in text} or not planned
    types = {output.name: output.types for output in request.bind(query._public_engine).outputs}
    other = "rho" if unit == "epsilon" else None
    for place in (0, 3, -1):
        found = request.of_types(types)._with(
            [choice.query.values[min(place, len(choice.query.values) - 1)] for choice in request.choices]
        )
        made = draws_of(found)
        assert {names: claim.loss for names, claim in made.items()} == {
            names: claim.loss for names, claim in planned.items()
        }
        if other:
            charged = {text: claim.cost("rho") for text, claim in request.charged}
            for ask in found.asks:
                for draw in getattr(ask.query, "shared", ()):
                    assert draw.claim.cost("rho") <= charged[str(draw)]
    released = query.release(intervals=True)
    assert released.columns[:2] == ["g", "people"]
    assert released.height == 3


def test_a_release_in_stages_draws_each_sum_once(monkeypatch):
    drawn = record(monkeypatch)
    query = of_days(visits().lazy().dp.protect("p")).scaled_to(epsilon=1)
    released = query.release()
    # The number of people beyond the limit, the people, and two sums for three statistics.
    numbers = [one for one in drawn if len(one.values) == 3]
    assert len(numbers) == 3
    assert released["total"].to_list() == pytest.approx((released["mean"] * released["rows"]).to_list(), abs=40)
