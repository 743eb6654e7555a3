"""A new mechanism costs its proof and its law, and no other line of the package."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting import costs
from dp_polars._accounting.claims import Claim, claim_for_scores
from dp_polars._accounting.terms import Contributions, Loss, Terms
from dp_polars._base.numbers import ball, lower, precision, upper
from dp_polars._mechanisms.noise import noise_bound, noise_of
from dp_polars._mechanisms.racing import LAWS, error_bound
from dp_polars._statistics.statistic import KeysThatAreThere
from dp_polars.analysis._laws import NoiseLaw
from tests.mechanisms.toy_mechanism import LAW, PROOF, TOY, law_of, law_of_lists, toy
from tests.privacy.datasets import all_counts, scores_of
from tests.statistical.goodness import check_sampler

__all__ = ["toy"]

GROUPS = 40_000
COUNTS = [4, 3, 1, 0]
# What is asked of the column x, and the law of the positions of its answers at a loss of 1.
ASKS = {
    "mode": (lambda **how: dpp.mode("x", range(4), **how), law_of(COUNTS, 1)),
    "median": (
        lambda **how: dpp.median("x", range(4), **how),
        law_of(scores_of(COUNTS, Fraction(1, 2)), Fraction(1, 2)),
    ),
    "quarter": (
        lambda **how: dpp.quantile("x", 0.25, range(4), **how),
        law_of(scores_of(COUNTS, Fraction(1, 4)), Fraction(1, 6)),
    ),
    "top 2": (lambda **how: dpp.top_k("x", 2, range(4), **how), law_of_lists(COUNTS, Fraction(1, 2))),
}
FRAME = pl.DataFrame(
    {
        "g": np.repeat(np.arange(GROUPS), sum(COUNTS)),
        "x": np.tile(np.repeat(np.arange(len(COUNTS)), COUNTS), GROUPS),
    }
)


def positions(answers):
    """Cells of the law: an answer, or both of a list."""
    return answers.list.get(0) * 4 + answers.list.get(1) if answers.dtype == pl.List else answers


def test_the_toy_is_what_it_says():
    w = np.geomspace(1e-8, 500, 10_000)
    g = LAW.values(w)
    assert (-np.expm1(-w) <= g * (1 + 1e-15)).all()
    assert (g <= w).all()
    log_density = 1 + np.log(g) + g - np.exp(g)  # at z = −ln g
    assert (np.diff(log_density) / -np.diff(np.log(g)) >= -1 - 1e-9).all()
    hazard = (1 + w) * np.log1p(w) / np.expm1(w)
    assert (hazard <= 1 + 1e-15).all()
    assert hazard[0] > 1 - 1e-7
    for value in (0.1, 1.0, 30.0):
        with precision(128):
            exact = LAW.exact_value(ball(Fraction(value)))
            assert lower(exact) <= upper(exact)
            assert float(upper(exact)) == pytest.approx(float(LAW.values(np.array([value]))[0]), rel=1e-15)


def test_it_is_epsilon_dp_on_all_small_data_sets_and_no_better():
    counts = all_counts(3, 4)
    laws = {tuple(c): law_of(c, 1) for c in counts.tolist()}
    ratios = []
    for c in laws:
        for i in range(3):
            more = tuple(n + (j == i) for j, n in enumerate(c))
            if more in laws:
                ratios.append(np.abs(np.log(laws[more] / laws[c])).max())
    assert 0.9 < max(ratios) <= 1


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("on", ["expression", "private frame"])
@pytest.mark.parametrize("name", ASKS)
def test_statistics_draw_by_its_law(name, on):
    ask, law = ASKS[name]

    def draw(factor):
        expr = ask(epsilon=factor, mechanism=TOY)
        if on == "expression":
            answers = FRAME.group_by("g", maintain_order=True).agg(expr)
        else:
            answers = FRAME.dp.protect(None).group_by({"g": range(GROUPS)}).agg(expr).release()
        return positions(answers["x"])

    check_sampler(draw, law)


@pytest.mark.usefixtures("toy")
def test_argmax_draws_by_its_law():
    scores = [0.5, 2.0, 1.25]
    frame = pl.DataFrame({"g": np.repeat(np.arange(GROUPS), 3), "x": scores * GROUPS})

    def draw(factor):
        expr = dpp.argmax("x", sensitivity=0.5, epsilon=factor, mechanism=TOY)
        return frame.group_by("g", maintain_order=True).agg(expr)["x"]

    check_sampler(draw, law_of(scores, 1))


@pytest.mark.usefixtures("toy")
def test_its_error_is_bounded():
    claim = claim_for_scores(Loss(Fraction(1), "epsilon"), TOY, 1, monotonic=True)
    for k in (2, 5, 50):
        for beta in (0.3, 0.05, 0.001):
            t = error_bound(k, beta, claim)
            assert law_of([t] + [0] * (k - 1), 1)[1:].sum() <= beta


@pytest.mark.usefixtures("toy")
def test_it_is_charged_explained_and_listed():
    budget = dpp.Budget(rho=3)
    query = FRAME.head(80).dp.protect(None, budget=budget).agg(m=dpp.mode("x", range(4), epsilon=1, mechanism=TOY))
    assert query.explain()["mechanism"].to_list() == [TOY]
    assert PROOF.said in query.statement().to_markdown()
    assert query.explain()["error_95"].item() == np.ceil(np.log(0.5964 * 3 / 0.05)) - 1
    query.release()
    (charge,) = budget.log().rows(named=True)
    assert charge["mechanism"] == TOY
    assert budget.spent == costs.pure_rho(Fraction(1))
    assert f"mechanism: {TOY}, rate 1 for R = 1 per row" in str(dpp.mode("x", [1], epsilon=1, mechanism=TOY))


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("rows", [Contributions(1, 1), Contributions(5, 2)])
def test_rho_pays_for_no_more_than_its_proof(relation, rows):
    """Of a curve that is not convex, a replacement in one group costs what all its moves together may."""
    query = dpp.quantile("x", Fraction(3, 5), range(4), rho=0.1, mechanism=TOY).query.under(rows, relation)
    claim = query.claim
    each = claim.rate * claim.score_range
    assert claim._same_group == (1 if relation == "add_or_remove_one" else Fraction(5, 6))
    most = claim._same_group * rows.per_group
    full, rest = divmod(rows.total, most)
    worst = max(
        full * costs.pure_rho(each * most) + costs.pure_rho(each * rest),
        (full + bool(rest)) * costs.pure_rho(each * rows.total / (full + bool(rest))),
    )
    assert Fraction(99, 1000) < worst <= Fraction(1, 10) + Fraction(1, 10**20)


@pytest.mark.usefixtures("toy")
def test_it_composes_as_what_is_pure():
    profile = analysis.privacy_profile(1, TOY)
    assert profile.delta(0.5) == pytest.approx((np.e - np.exp(0.5)) / (1 + np.e), rel=1e-12)
    assert profile.epsilon(1e-6) == pytest.approx(1 - 1e-6 * (1 + 1 / np.e), rel=1e-9)


ASKED_BY_WORD = {
    **{name: lambda ask=ask: ask(epsilon=1, mechanism=TOY) for name, (ask, _) in ASKS.items()},
    "argmax": lambda: dpp.argmax("x", sensitivity=1, epsilon=1, mechanism=TOY),
    "count": lambda: dpp.count("x", epsilon=1, mechanism=TOY),
    "claim": lambda: Claim(Loss(Fraction(1), "epsilon"), TOY, Fraction(1), Contributions(1, 1), None),
    "analysis": lambda: analysis.scores.selection_probabilities([1, 2], epsilon=1, mechanism=TOY),
    "composition": lambda: analysis.compose([(1, TOY)], delta=0),
}


@pytest.mark.parametrize("name", ASKED_BY_WORD)
def test_an_unknown_word_is_refused_at_the_door(name):
    with pytest.raises(ValueError, match=r"^mechanism must be one of \[.*got 'toy'"):
        ASKED_BY_WORD[name]()


def test_a_number_is_not_drawn_by_a_choice(toy):
    for ask in (dpp.len, lambda **how: dpp.sum("x", 0, 1, **how)):
        with pytest.raises(ValueError, match=r"^mechanism must be one of \['discrete_laplace', 'discrete_gaussian'\]"):
            ask(epsilon=1, mechanism=toy)


def test_without_a_law_nothing_is_drawn(monkeypatch):
    monkeypatch.setitem(costs.PROOFS, TOY, PROOF)
    assert TOY not in LAWS
    for ask, _ in ASKS.values():
        query = ask(epsilon=1, mechanism=TOY).query
        with pytest.raises(KeyError, match=TOY):
            query.answers_of_rows([pl.Series([1, 2])], np.array([2]))


def test_without_a_law_of_analysis_nothing_is_computed(toy):
    with pytest.raises(KeyError, match=toy):
        analysis.scores.selection_probabilities([1, 2], epsilon=1, mechanism=toy)


def test_a_curve_without_a_pair_composes_nothing(monkeypatch):
    monkeypatch.setitem(costs.PROOFS, TOY, replace(PROOF, curve=costs.Curve(lambda x: x)))
    profile = analysis.privacy_profile(1, TOY)
    with pytest.raises(KeyError):
        profile.delta(0.5)


def test_noise_and_keys_by_an_unknown_word_are_not_drawn(monkeypatch):
    claim = Claim(Loss(Fraction(1), "epsilon"), "discrete_laplace", Fraction(1), Contributions(1, 1), None)
    monkeypatch.setitem(costs.PROOFS, TOY, replace(PROOF, kind="number"))
    for function in (lambda claim: noise_of(claim, 1), lambda claim: noise_bound(claim, 0.05), NoiseLaw):
        function(claim)
        with pytest.raises(KeyError, match=TOY):
            function(replace(claim, mechanism=TOY))
    keys = KeysThatAreThere.of(("x",), Terms.at(claim.loss), Fraction(1, 100), 1, "add_or_remove_one", counts=False)
    monkeypatch.setitem(costs.PROOFS, TOY, replace(PROOF, kind="keys"))
    with pytest.raises(KeyError, match=TOY):
        _ = keys.with_terms(replace(keys.terms, mechanism=TOY)).selection
