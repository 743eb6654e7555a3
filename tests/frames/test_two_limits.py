"""In rho, two limits are found for rows that are drawn: of all rows of a person, and of those in each group."""

from __future__ import annotations

import html
import itertools
import json
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._release.ruled import at_worst
from dp_polars._statistics.limits import LimitChoice
from tests.helpers.reference import floats, law
from tests.registry import RELATIONS

BOTH = ["max_rows", "max_rows_per_group"]
KEYS = {"g": ["A", "B"]}
STATISTICS = {
    "median": lambda: pl.col("x").dp.median(range(5)),
    "list": lambda: pl.col("x").dp.quantile([0.1, 0.5, 0.75, 0.99], range(5)),
    "mode": lambda: pl.col("x").dp.mode(range(5), counts="rows"),
    "top": lambda: pl.col("x").dp.top_k(2, range(5), counts="rows"),
    "mode by name": lambda: pl.col("x").dp.mode(range(5), counts="rows", mechanism="permute_and_flip"),
}


def people(*rows):
    """Each person's numbers of rows in A, in B and in a group that is not listed."""
    every = [(p, "ABC"[g], (p + g) % 5) for p, of in enumerate(rows) for g, n in enumerate(of) for _ in range(n)]
    return pl.DataFrame(every, {"p": pl.Int64, "g": pl.String, "x": pl.Int64}, orient="row")


MANY = people(*[(5, 1, 0)] * 500, *[(1, 0, 3)] * 100)


def asked(private, keys=KEYS, statistic="median"):
    return private.group_by(keys).agg(half=STATISTICS[statistic]())


def found_by(query):
    return [one.query.what for one in getattr(query._planned, "choices", ())]


# --- Which limits are found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistic", STATISTICS)
def test_they_are_found_in_rho_alone(statistic):
    query = asked(MANY.dp.protect("p"), statistic=statistic)
    for unit, whats in (("rho", BOTH), ("epsilon", BOTH[:1])):
        assert found_by(query.scaled_to(**{unit: 1})) == whats
        budget = dpp.Budget(**{unit: 1})
        assert found_by(asked(MANY.dp.protect("p", budget=budget), statistic=statistic).scaled_to(**{unit: 1})) == whats
    several = {str(i): STATISTICS["median"]() for i in range(9)}
    taken = MANY.dp.protect("p").group_by(KEYS).agg(**several).scaled_to(epsilon=1, delta=1e-6)
    assert taken._planned.asks[0].query.claim.loss.unit == "rho"
    assert found_by(taken) == BOTH


def test_they_are_found_where_rows_in_several_groups_cost_less():
    def whats(keys=KEYS, **limits):
        return found_by(asked(MANY.dp.protect("p", **limits), keys).scaled_to(rho=1))

    assert whats(max_groups=2) == whats(max_groups=None) == whats(max_norm=3) == BOTH
    assert whats({"g": ["A"]}) == whats(max_groups=1) == whats(max_rows_per_group=None) == ["max_rows"]
    assert whats(max_rows_per_group=2) == ["max_rows"]
    assert whats(max_rows=2) == whats(max_groups=2, max_rows_per_group=2) == []
    all_rows = MANY.dp.protect("p").agg(pl.col("x").dp.median(range(5))).scaled_to(rho=1)
    assert found_by(all_rows) == ["max_rows"]
    beside = MANY.dp.protect("p").group_by(KEYS).agg(n=dpp.len(), people=dpp.n_people(), half=STATISTICS["mode"]())
    assert found_by(beside.scaled_to(rho=1)) == ["max_norm", "max_groups", *BOTH]
    of_outputs = {"n": {"max_norm": 5}, "people": {"max_groups": 2}, "half": dict.fromkeys(BOTH, 5)}
    assert beside.scaled_to(rho=1)._planned.limits == of_outputs


# --- The choices ------------------------------------------------------------------------------------------------------


def stage_of(frame, relation="add_or_remove_one", rho=1):
    """Both choices with the histograms that their stage reads."""
    seen, drawn = [], LimitChoice.drawn

    def noted(self, histograms, *types):
        seen.append((self, histograms[0]))
        return drawn(self, histograms, *types)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LimitChoice, "drawn", noted)
        asked(frame.dp.protect("p", neighboring_relation=relation)).scaled_to(rho=rho).release()
    assert [choice.what for choice, _ in seen] == BOTH
    return seen


def test_people_are_compared_by_all_rows_and_by_the_most_in_a_group():
    rows = [(1, 0, 9), (2, 2, 0), (0, 3, 1), (0, 0, 4), (6, 1, 0)]
    numbers = {"max_rows": [1, 4, 3, 7], "max_rows_per_group": [1, 2, 3, 6]}
    for choice, histogram in stage_of(people(*rows)):
        expected = [sum(x > b for x in numbers[choice.what]) for b in choice.rule.counted]
        assert choice.beyond(histogram).tolist() == expected


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_person_moves_the_scores_apart_by_at_most_their_range(relation):
    """Brute force: anybody with up to three rows in each group comes, goes, or takes the place of anybody else."""
    kinds = [*itertools.product(range(4), range(4), (0, 2))]
    of_one = [{choice.what: choice.beyond(one) for choice, one in stage_of(people(kind), relation)} for kind in kinds]
    worst = 0
    for choice, _ in stage_of(people((1, 0, 0)), relation):
        beyond = [of[choice.what] for of in of_one]
        for base in itertools.combinations_with_replacement(range(0, len(kinds), 6), 2):
            before = sum(beyond[place] for place in base)
            for one, other in itertools.product(beyond, beyond if relation == "replace_one" else [0 * beyond[0]]):
                moved = choice.rule.scores(before + one) - choice.rule.scores(before + other)
                worst = max(worst, moved.max() - moved.min())
                assert worst <= choice.rule.score_range
    assert worst == 2


def test_both_are_drawn_by_their_laws():
    """On a few people, against the exact law of the exponential mechanism. The bound is 5 standard deviations."""
    draws = 2000
    for choice, histogram in stage_of(people((2, 1, 0), (1, 1, 1), (4, 0, 0), (0, 1, 0)), rho=20):
        scores = choice.rule.scores(choice.beyond(histogram)).tolist()
        expected = floats(law(scores, rate=choice.claim.rate, mechanism="exponential", digits=30))
        places = [choice.drawn([histogram])[0].item() for _ in range(draws)]
        counts = np.bincount(places, minlength=len(scores))
        assert (abs(counts - draws * expected) <= 5 * np.sqrt(draws * expected * (1 - expected)) + 5).all()
        assert (expected[:2] > 0.02).all()


# --- What is charged, and drawn ---------------------------------------------------------------------------------------


def of_places(query, *places):
    """The request with what is found at these places of the candidates."""
    request = query._planned
    return request._with([one.query.values[place] for one, place in zip(request.choices, places, strict=True)])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_whatever_is_found_costs_no_more_than_is_charged(statistic, relation):
    """In epsilon, whatever both limits are."""
    for number, rho in itertools.product((2, 3, 20), (Fraction(1, 100), 40)):
        keys = {"g": [str(group) for group in range(number)]}
        private = dpp.protect("p", neighboring_relation=relation)
        query = asked(private, keys, statistic).scaled_to(rho=rho)
        charged = query._planned.claims[-1]
        largest = 0
        for places in itertools.product((0, 1, 2, 3, 9, -1), repeat=2):
            claim = of_places(query, *places).asks[0].query.claim
            assert claim.loss == charged.loss
            largest = max(largest, claim.cost("epsilon"))
        assert at_worst(charged, 1).cost("epsilon") < largest <= charged.cost("epsilon")
        if relation == "add_or_remove_one":
            assert largest >= Fraction(8, 10) * charged.cost("epsilon")


def test_noise_is_for_both_limits():
    query = asked(MANY.dp.protect("p")).scaled_to(rho=1)
    rates = {}
    for places in itertools.product((0, 2, 5), repeat=2):
        (ask,) = of_places(query, *places).asks
        rows, per_group = (of.query.values[place] for of, place in zip(query._planned.choices, places, strict=True))
        protection = dpp.protect("p", max_rows=int(rows), max_rows_per_group=int(per_group)).protection
        assert ask.query.claim.contributions == protection.contributions(ask.query, 2)
        rates[places] = ask.query.claim.rate
    assert rates[5, 2] > rates[5, 5]
    assert rates[2, 0] > rates[2, 2]


def test_what_is_found_is_of_the_median_person(tmp_path):
    """With hardly any noise; and all that tells of the release has both limits."""
    budget = dpp.Budget(rho=10**5, path=tmp_path / "ledger.db", name="two limits")
    query = asked(MANY.dp.protect("p", budget=budget)).scaled_to(rho=10**4)
    assert "max_rows=5, max_rows_per_group=5; the limits are found first" in query.explain()["note"][-1]
    answers = query.release()
    names = [f"{what} of half" for what in BOTH]
    assert [(one.name, one.value) for one in query.found] == [*zip(names, (6, 5), strict=True)]
    assert answers["half"].to_list() == [MANY.filter(g=g)["x"].median() for g in "AB"]
    assert query.explain()["limits"][-1] == "max_rows=6, max_rows_per_group=5"
    assert query.explain()["output"].to_list() == [*names, "half"]
    assert budget.log()["what"].str.starts_with("max_rows").to_list() == [True, True, False]
    facts = json.dumps(dpp.statement(budget, [query]).facts)
    page = html.unescape(dpp.report(answers, query, tmp_path / "page.html", name="Rows").read_text("utf-8"))
    assert all(name in facts for name in names)
    assert "the limit of 6 was found privately" in page
    assert "the limit of 5 was found privately" in page


def test_what_is_found_holds_for_later_queries():
    query = asked(MANY.dp.protect("p")).scaled_to(rho=10**4)
    query.release()
    assert query.found.limits == {"max_rows": 6, "max_rows_per_group": 5}
    later = asked(MANY.dp.protect("p").with_limits(found=query.found)).scaled_to(rho=1)
    assert found_by(later) == []
    # Numbers have a norm, which no limit of drawn rows should make smaller.
    both = MANY.dp.protect("p").group_by(KEYS).agg(n=dpp.len(), half=STATISTICS["median"]()).scaled_to(rho=10**4)
    both.release()
    assert [one.what for one in both.found] == ["max_norm", *BOTH]
    assert sorted(both.found.limits) == ["max_norm", "max_rows"]


def test_a_named_data_set_finds_both_once(tmp_path):
    budget = dpp.Budget(rho=1, path=tmp_path / "ledger.db")

    def query():
        return asked(MANY.dp.protect("p", budget=budget, dataset="visits")).scaled_to(rho=Fraction(1, 2))

    first, second = query(), query()
    assert first.release().equals(second.release())
    assert first.found == second.found
    assert len(first.found) == 2
    assert budget.remaining == Fraction(1, 2)


def test_simulate_finds_both_on_public_rows():
    query = asked(MANY.dp.protect("p")).scaled_to(rho=1000)
    assert dpp.analysis.simulate(query, MANY, allow_private=True).height == 2
    assert query.found is None


@pytest.mark.parametrize("guarantee", [{"epsilon": 1, "delta": 1e-6}, {"epsilon": 0.3, "delta": 1e-9}, {"rho": 0.02}])
@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6, 12])
def test_choices_have_the_parts_that_they_should_have_whatever_the_unit(groups, guarantee):
    """Limits of one unit may make errors smaller in the other: the choices still get more than the smallest part."""
    outputs = {
        "people": dpp.n_people(),
        "rows": dpp.len(),
        "cost": pl.col("cost").dp.mean(),
        "top": pl.col("ill").dp.mode(["flu", "none"]),
        "age": pl.col("age").dp.median(range(121)),
        "ages": pl.col("age").dp.mode(range(121), counts="rows"),
    }
    types = {"p": pl.Int64, "g": pl.Int64, "cost": pl.Int64, "ill": pl.String, "age": pl.Int64}
    frame = pl.DataFrame(schema=types).dp.protect("p").group_by({"g": range(groups)})
    names = [("age",), ("age", "people"), ("people", "cost", "top", "age"), ("rows", "ages"), tuple(outputs)]
    for chosen in names:
        request = frame.agg(**{name: outputs[name] for name in chosen}).scaled_to(**guarantee)._planned
        for part, wanted in zip(request.parts, request.wanted, strict=True):
            assert wanted / 2 <= part <= 2 * wanted, (chosen, request.parts, request.wanted)
