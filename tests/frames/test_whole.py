"""Publications of all that can be asked: cubes, selected keys, dropped rows and answers, in one guarantee."""

import re
from fractions import Fraction

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._accounting.terms import Loss
from dp_polars._frames.query import followed

WARDS, MONTHS = ["A", "B", "C"], [1, 2, 3, 4]
# 600 people with three stays each: one in each ward, in two or three months.
STAYS = pl.DataFrame(
    {
        "patient": [number // 3 for number in range(1800)],
        "ward": WARDS * 600,
        "month": [1 + number % 4 for number in range(1800)],
        "town": [f"town {(number // 3) % 7}" for number in range(1800)],
    }
)
GUARANTEE = {"epsilon": 1, "delta": 1e-6}


def protected(budget=None, rows=STAYS, **more):
    limits = {"max_groups": 2, "max_rows_per_group": 2}
    return rows.dp.protect("patient", budget=budget, **limits, **more)


def everything(private, *, tables=True):
    once = private.with_limits(max_groups=1)
    by_ward = private.group_by({"ward": WARDS}).agg(people=dpp.n_people(), stays=dpp.len())
    asked = {
        "by_ward": by_ward,
        "cells": once.cube({"ward": WARDS}, loss_weight=2),
        "towns": private.keys("town", loss_weight=3),
        "cut": by_ward.n_rows_dropped(10),
    }
    if tables:
        asked["cross"] = once.cube({"ward": WARDS, "month": MONTHS}, tables=[("ward",), ("ward", "month")])
    return asked


@pytest.fixture
def budget(tmp_path):
    return dpp.Budget(**GUARANTEE, path=tmp_path / "ledger.db")


def losses_of(publication):
    return {name: query.loss for name, query in publication.queries.items()}


def test_one_guarantee_is_shared_over_all_by_their_weights(budget):
    scaled = dpp.publication(everything(protected(budget))).scaled_to(**GUARANTEE)
    losses = losses_of(scaled)
    assert {loss.unit for loss in losses.values()} == {"rho"}
    part = losses["cut"].value
    assert {name: loss.value / part for name, loss in losses.items()} == {
        "by_ward": 2,
        "cells": 2,
        "towns": 3,
        "cut": 1,
        "cross": 1,
    }
    assert scaled.loss.value == 9 * part == budget._guarantee.rho
    assert scaled.delta == budget._guarantee.keys_delta == Fraction(1, 2 * 10**6)
    assert scaled.queries["towns"].delta == scaled.delta
    assert "the unit is rho, not epsilon: Output 'count by ward': a discrete Gaussian" in scaled.explain()["note"][0]


def test_the_unit_is_that_of_the_smaller_errors():
    """Where no table forces rho."""
    asked = everything(protected(), tables=False)
    few = dpp.publication(cells=asked["cells"], cut=asked["cut"]).scaled_to(**GUARANTEE)
    assert few.loss == Loss(Fraction(1), "epsilon")
    private = protected()
    many = {f"q{number}": private.cube({"ward": WARDS}, counts="rows") for number in range(12)}
    assert dpp.publication(many).scaled_to(**GUARANTEE).loss.unit == "rho"


@pytest.mark.parametrize("loss", [{"rho": Fraction(1, 10)}, {"epsilon": Fraction(1, 2)}], ids=str)
@pytest.mark.parametrize(
    "ask",
    [
        lambda private, **loss: private.with_limits(max_groups=1).cube({"ward": WARDS, "month": MONTHS}, **loss),
        lambda private, **loss: private.cube({"ward": WARDS}, counts="rows", tables=[("ward",), ()], **loss),
        lambda private, **loss: private.keys("town", delta=1e-7, **loss),
        lambda private, **loss: private.group_by({"ward": WARDS}).agg(dpp.len()).n_rows_dropped(9, **loss),
    ],
    ids=["cube", "tables", "keys", "dropped"],
)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_what_is_scaled_to_a_loss_has_the_claims_of_what_is_requested_at_it(ask, loss, relation):
    private = protected(neighboring_relation=relation)
    waiting = ask(private)
    assert waiting._request.is_open
    assert {claim.rate for claim in waiting._request.claims} == {0}
    if "epsilon" in loss and waiting._request.claims[0].mechanism == "discrete_gaussian":  # tables
        with pytest.raises(ValueError, match="no loss in epsilon"):
            waiting.scaled_to(**loss)
        return
    requested = ask(private, **loss)
    assert waiting.scaled_to(**loss)._request.claims == requested._request.claims
    twice = {unit: 2 * value for unit, value in loss.items()}
    both = dpp.publication(a=waiting, b=ask(private, loss_weight=1)).scaled_to(**twice)
    assert both.queries["b"]._request.claims == requested._request.claims


def test_a_release_is_one_charge_and_a_dict_of_frames_and_cubes(budget):
    released = dpp.publication(everything(protected(budget))).scaled_to().release(intervals=True, min_people=1)
    assert isinstance(released["cells"], dpp.Cube)
    assert isinstance(released["cross"], dpp.Cube)
    assert released["by_ward"].columns[:4] == ["ward", "people", "people_low", "people_high"]
    assert released["towns"].columns == ["town"]
    assert released["cut"].columns == ["n_rows_dropped", "n_rows_dropped_low", "n_rows_dropped_high"]
    log = budget.log()
    assert log["when"].n_unique() == 1
    assert log["what"].str.split(": ").list.first().unique(maintain_order=True).to_list() == [*everything(protected())]
    assert (budget.remaining, budget.remaining_delta) == (0, 0)


def test_answers_without_noise():
    """At a huge loss all answers are the true ones, under the limits."""
    asked = everything(protected())
    released = dpp.publication(asked).scaled_to(epsilon=10**6, delta=1e-6).release()
    # Each person counts in two of three wards: with weights of 2/3 in epsilon, and of √(2/3) in rho.
    assert released["by_ward"]["people"].to_list() == [490] * 3
    assert released["cells"].count().value == 600
    assert sorted(released["towns"]["town"]) == [f"town {number}" for number in range(7)]
    assert released["cross"].counts(by="ward")["count"].sum() == pytest.approx(600, abs=1)
    # What is dropped follows from the norm of the unit: three rows less 3·√(2/3), for each person, rounded.
    assert released["cut"].item() == 600


def test_what_drops_rows_is_asked_as_it_is_scaled(budget):
    asked = everything(protected(budget))
    publication = dpp.publication(asked)
    scaled = publication.scaled_to(**GUARANTEE)
    for one in (publication, scaled):
        assert one.queries["cut"]._request.bounded is one.queries["by_ward"]._request
    assert {claim.mechanism for claim in scaled.queries["cut"]._request.bounded.claims} == {"discrete_gaussian"}
    other = protected().agg(n=dpp.len(epsilon=1))
    assert followed([other]) == [other]
    # Also where the query was scaled before, and the number was asked of the other one.
    before = asked["by_ward"].scaled_to(rho=Fraction(1, 100))
    together = dpp.publication(by_ward=before, cut=asked["cut"])
    assert together.queries["cut"]._request.bounded is together.queries["by_ward"]._request
    elsewhere = dpp.publication(other=protected(budget).agg(stays=dpp.len(), people=dpp.n_people()), cut=asked["cut"])
    assert elsewhere.queries["cut"]._request.bounded is asked["by_ward"]._request


@pytest.mark.parametrize("shown", [{"intervals": True}, {"min_people": 5}, {"min_people": 5, "sure": True}], ids=str)
def test_what_is_shown_is_not_for_cubes(shown):
    cube = protected().with_limits(max_groups=1).cube({"ward": WARDS})
    with pytest.raises(ValueError, match="must be left out of the release of a cube"):
        dpp.publication(cube=cube).scaled_to(epsilon=1).release(**shown)
    by_ward = protected().group_by({"ward": WARDS}).agg(people=dpp.n_people())
    released = dpp.publication(cube=cube, by_ward=by_ward).scaled_to(epsilon=1).release(**shown)
    assert isinstance(released["cube"], dpp.Cube)
    assert ("people_low" in released["by_ward"].columns) == ("intervals" in shown)
    with pytest.raises(ValueError, match=r"^intervals must be"):
        dpp.publication(cube=cube, by_ward=by_ward).scaled_to(epsilon=1).release(intervals="some")


def test_answers_are_kept_for_each(budget):
    private = protected(budget, dataset="stays")
    asked = dpp.publication(everything(private)).scaled_to(epsilon=Fraction(1, 2), delta=5e-7)
    first, again = (asked.release() for _ in range(2))
    assert budget.log().height == 7
    for name in ("by_ward", "towns", "cut"):
        assert_frame_equal(first[name], again[name])
    for name in ("cells", "cross"):
        assert_frame_equal(first[name].to_frame(), again[name].to_frame())
    assert budget.answers().height == 5


class TestTheRest:
    """`scaled_to()` takes what the budget has left."""

    def test_of_a_guarantee_of_which_nothing_is_spent_it_is_the_guarantee(self, budget):
        publication = dpp.publication(everything(protected(budget)))
        assert publication.scaled_to()._claims() == publication.scaled_to(**GUARANTEE)._claims()
        assert publication.scaled_to().statement().facts["guarantee"] == "ε = 1 and δ = 0.000001"
        alone = protected(budget).agg(n=dpp.n_people())
        assert alone.scaled_to()._request.claims == alone.scaled_to(**GUARANTEE)._request.claims

    @pytest.mark.parametrize("first", [{"epsilon": 0.3}, {"rho": 0.004}], ids=str)
    @pytest.mark.parametrize("tables", [False, True])
    def test_of_a_guarantee_that_has_paid_before(self, budget, first, tables):
        private = protected(budget)
        private.agg(n=dpp.n_people(**first)).release()
        scaled = dpp.publication(everything(private, tables=tables)).scaled_to()
        assert scaled.loss.value == getattr(budget.remaining, scaled.loss.unit)
        assert scaled.delta == budget.remaining_delta > 0
        assert scaled.statement().facts["guarantee"] is None
        note = scaled.explain()["note"][0]
        assert (
            re.search(r"For epsilon=[\d.]+ or rho=[\d.]+ left, the unit is (rho|epsilon)", note) or "rho" not in first
        )
        scaled.release()
        left = budget.remaining.epsilon if scaled.loss.unit == "epsilon" else budget.remaining.rho
        assert left == budget.remaining_delta == 0

    @pytest.mark.parametrize("total", [{"epsilon": 1}, {"rho": Fraction(1, 4)}], ids=str)
    def test_of_a_sum(self, total):
        budget = dpp.Budget(**total)
        private = protected(budget)
        private.agg(n=dpp.n_people(**{unit: value / 4 for unit, value in total.items()})).release()
        asked = everything(private, tables="rho" in total)
        del asked["towns"]
        scaled = dpp.publication(asked).scaled_to()
        assert (scaled.loss.unit, scaled.loss.value) == (budget.unit, budget.total * Fraction(3, 4))
        scaled.release()
        assert budget.remaining == 0
        with pytest.raises(ValueError, match="must be given a budget that has something left"):
            scaled.scaled_to()

    def test_of_a_sum_with_a_delta_keys_get_all_of_it(self):
        budget = dpp.Budget(rho=Fraction(1, 10), delta=1e-6)
        private = protected(budget)
        keys = {"towns": private.keys("town"), "months": private.keys("month", loss_weight=3)}
        scaled = dpp.publication(keys).scaled_to()
        assert [query.delta * 10**6 for query in scaled.queries.values()] == [Fraction(1, 4), Fraction(3, 4)]
        scaled.release()
        assert (budget.remaining, budget.remaining_delta) == (0, 0)

    def test_without_a_budget_there_is_none(self):
        with pytest.raises(TypeError, match="there is no budget of which it could take the rest"):
            dpp.publication(everything(protected())).scaled_to()


class TestDeltasOfKeys:
    def test_keys_with_a_delta_keep_it_and_the_others_share_the_rest(self):
        private = protected()
        keys = {"a": private.keys("town", delta=1e-7), "b": private.keys("month"), "c": private.keys("ward")}
        scaled = dpp.publication(keys).scaled_to(**GUARANTEE)
        assert [query.delta * 10**7 for query in scaled.queries.values()] == [1, 2, 2]

    def test_no_more_than_the_budget_has_left_for_keys(self, budget):
        private = protected(budget)
        private.keys("town", epsilon=0.1, delta=4e-7).release()
        scaled = dpp.publication(keys=private.keys("month")).scaled_to(epsilon=0.5, delta=5e-7)
        assert scaled.delta == Fraction(1, 10**7)

    def test_no_room_for_keys(self):
        private = protected(dpp.Budget(**GUARANTEE, keys_delta=0))
        with pytest.raises(
            ValueError, match=r"delta must leave room for the keys, which spend 0, got 1e-06, of which 0 is"
        ):
            dpp.publication(keys=private.keys("town")).scaled_to(**GUARANTEE)

    def test_a_delta_is_needed(self):
        keys = protected().keys("town")
        for loss in ({"epsilon": 1}, {"rho": 0.1}):
            with pytest.raises(ValueError, match="keys that are selected need a delta"):
                keys.scaled_to(**loss)
            with pytest.raises(TypeError, match=r"^keys: delta must be given with a loss"):
                protected().keys("town", **loss)
            assert keys.scaled_to(**GUARANTEE).delta == Fraction(1, 2 * 10**6)
            assert protected().keys("town", delta=1e-8).scaled_to(**loss).delta == Fraction(1, 10**8)
        with pytest.raises(ValueError, match="every output must have a loss, got none for 'keys'"):
            keys.release()
        assert keys.explain().select("error_95", "epsilon", "rho", "mechanism").row(0) == (None,) * 4
        with pytest.raises(ValueError, match="delta must be greater than 0 for keys"):
            protected().keys("town", delta=0)

    def test_counts_of_keys_are_in_rho_alone(self):
        private = protected()
        scaled = dpp.publication(keys=private.keys("town", with_counts=True)).scaled_to(**GUARANTEE)
        assert scaled.loss.unit == "rho"
        assert scaled.queries["keys"]._request.claims[0].mechanism == "discrete_gaussian_threshold"
        with pytest.raises(ValueError, match="no loss in epsilon"):
            private.keys("town", delta=1e-8, with_counts=True).scaled_to(epsilon=1)


def test_page_and_statement_of_all_say_the_guarantee(budget, tmp_path):
    publication = dpp.publication(everything(protected(budget))).scaled_to()
    released = publication.release()
    page = dpp.report(
        released, publication, tmp_path / "page.html", name="Stays", titles={"cross: count by ward": "By ward"}
    ).read_text()
    assert "a guarantee: differential privacy with ε = 1 and δ = 0.000001.</p>" in page.replace("\xa0", " ")
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings[:6] == ["by_ward", "cells", "towns", "cut", "By ward", "cross: count by ward, month"]
    text = publication.statement(name="Stays").to_markdown()
    assert "keeps the guarantee of ε = 1 and δ = 0.000001" in text
    assert "Release " not in text.replace("Release type", "")
    assert "| cross: count by ward |" in text
    of_budget = dpp.statement(budget, [publication])
    assert {entry["recorded"] for entry in of_budget.facts["ledger"]["entries"]} == {*publication.queries}
    with pytest.raises(TypeError, match=r"must be what query\.release\(\) returned, a Cube"):
        dpp.report({**released, "cells": released["towns"]}, publication, tmp_path / "page.html")
