"""Claims: rates never above, and costs never below, what the formulas of the docs (proofs/spreads.md) give."""

import copy
import itertools
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import given

import dp_polars as dpp
from dp_polars._accounting.claims import Claim, check_mechanism, claim_for_scores, claim_of_choice
from dp_polars._accounting.costs import bounded_range_rho, laplace_rho, pure_rho, scaled_cost, scaled_rate
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._base.numbers import as_fraction
from tests.helpers import reference
from tests.registry import MECHANISMS

ONE = Contributions(1, 1)
HAIR = Fraction(1, 2**90)  # of relative rounding

positive = st.fractions(Fraction(1, 10**6), 10**6).filter(lambda x: x > 0)
extreme = st.builds(lambda m, e: m * Fraction(2) ** e, st.fractions(1, 2), st.integers(-600, 600))
spreads = st.builds(lambda m, extra: Contributions(m + extra, m), st.integers(1, 9), st.integers(0, 40))


def claim(loss, unit, mechanism, *, score_range=1, contributions=ONE):
    return claim_of_choice(
        Loss(Fraction(loss), unit), mechanism, Fraction(score_range), contributions, "add_or_remove_one"
    )


def ball(x):
    return arb(fmpq(x.numerator, x.denominator))


def true_rho(mechanism, x, contributions):
    """Design §3, Grouping, as a ball of 400 digits and more: x is the rate times R."""
    k, m, r = contributions.full_groups, contributions.per_group, contributions.rest
    with ctx.workprec(4000):
        of_one = true_bounded_range_rho if mechanism == "exponential" else true_laplace_rho
        return k * of_one(ball(x * m)) + (of_one(ball(x * r)) if r else 0)


def true_laplace_rho(x):
    return x + (-x).exp() - 1


def true_bounded_range_rho(x):
    """Return y − 1 − ln y for y = x/(exp(x) − 1)."""
    kept = 1 - (-x).exp()
    return x * (-x).exp() / kept - 1 - (x / kept).log() + x


# Losses


@pytest.mark.parametrize(("epsilon", "rho"), [(None, None), (1, 1), (0.5, 0.0)])
def test_exactly_one_loss(epsilon, rho):
    with pytest.raises(TypeError, match=r"^exactly one of epsilon and rho must be given, got "):
        Loss.of(epsilon=epsilon, rho=rho)


def test_a_loss_is_exact():
    assert Loss.of(epsilon=0.1, rho=None) == Loss(Fraction(1, 10), "epsilon")
    assert Loss.of(epsilon=None, rho=0.3) == Loss(Fraction(3, 10), "rho")
    assert str(Loss.of(epsilon=0.1, rho=None)) == "epsilon=0.1"
    assert str(Loss.of(epsilon=Fraction(1, 3), rho=None)) == "epsilon=0.333334"  # never below the loss


def test_the_unit_chooses_the_mechanism():
    assert check_mechanism("choice", None, "epsilon") == "permute_and_flip"
    assert check_mechanism("choice", None, "rho") == "exponential"
    for mechanism, unit in itertools.product(MECHANISMS, ["epsilon", "rho"]):
        assert check_mechanism("choice", mechanism, unit) == mechanism


# Contributions


@given(spreads)
def test_full_groups_are_the_worst_case(contributions):
    total, m = contributions.total, contributions.per_group
    assert contributions.full_groups * m + contributions.rest == total
    assert 0 <= contributions.rest < m
    # The largest sum of squares of parts of at most m that sum to at most `total`, by dynamic programming.
    best = [0] * (total + 1)
    for rows in range(1, total + 1):
        best[rows] = max(best[rows - part] + part**2 for part in range(1, min(m, rows) + 1))
    assert contributions.squares == best[total]


# Rates


@given(loss=positive, score_range=positive, contributions=spreads, mechanism=st.sampled_from(MECHANISMS))
def test_the_rate_of_pure_dp_is_exact(loss, score_range, contributions, mechanism):
    made = claim(loss, "epsilon", mechanism, score_range=score_range, contributions=contributions)
    assert made.rate * score_range * contributions.total == loss


@given(loss=positive, score_range=positive, contributions=spreads, mechanism=st.sampled_from(MECHANISMS))
def test_the_rate_of_zcdp_is_the_largest_that_the_loss_pays(loss, score_range, contributions, mechanism):
    made = claim(loss, "rho", mechanism, score_range=score_range, contributions=contributions)
    x = made.rate * score_range
    with ctx.workprec(4000):
        assert not true_rho(mechanism, x, contributions) > ball(loss)
        assert true_rho(mechanism, x * (1 + HAIR), contributions) > ball(loss)


def gaussian(rho, contributions=ONE, score_range=1):
    loss = Loss(Fraction(rho), "rho")
    return Claim(loss, "discrete_gaussian", Fraction(score_range), contributions, "add_or_remove_one")


def test_rational_roots_are_exact_and_others_rounded_down():
    assert gaussian(2).rate == 2
    assert gaussian(Fraction(9, 50), score_range=3).rate == Fraction(1, 5)
    assert gaussian(Fraction(9, 2), Contributions(3, 3)).rate == 1
    assert gaussian(Fraction(5, 2), Contributions(3, 2)).rate == 1
    rate = gaussian(1).rate
    assert rate**2 < 2 < (rate * (1 + HAIR)) ** 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("factor", [Fraction(1, 2**1003), Fraction(2**1003), Fraction(10**400)])
def test_rates_that_floats_can_not_hold_are_refused(factor, unit, mechanism):
    message = r"^(epsilon|rho) over the range of the score must lie between 2\*\*-1000 and 2\*\*1000, got "
    with pytest.raises(ValueError, match=message):
        claim(factor, "epsilon", mechanism)
    with pytest.raises(ValueError, match=message):
        claim(1, unit, mechanism, score_range=1 / factor)


# Costs


@given(
    loss=st.one_of(positive, extreme),
    unit=st.sampled_from(["epsilon", "rho"]),
    contributions=spreads,
    mechanism=st.sampled_from(MECHANISMS),
)
def test_the_cost_in_the_unit_asked_is_the_loss(loss, unit, contributions, mechanism):
    try:
        made = claim(loss, unit, mechanism, contributions=contributions)
    except ValueError:
        assert not Fraction(1, 2**990) < loss < 2**990  # the root of a rho may lie further out
        return
    assert made.cost(unit) == loss


@given(x=st.one_of(positive, extreme), contributions=spreads, mechanism=st.sampled_from(MECHANISMS))
def test_the_cost_in_rho_is_never_below_the_truth(x, contributions, mechanism):
    cost = scaled_cost("rho", mechanism, x, contributions)
    with ctx.workprec(6000):
        truth = true_rho(mechanism, x, contributions)
        assert not ball(cost) < truth
        assert ball(cost) * ball(1 - HAIR) < truth


@given(x=positive, contributions=spreads, mechanism=st.sampled_from(MECHANISMS))
def test_the_cost_in_epsilon_is_exact(x, contributions, mechanism):
    assert scaled_cost("epsilon", mechanism, x, contributions) == x * contributions.total


@given(loss=positive, contributions=spreads)
def test_a_rho_costs_more_epsilon_over_several_groups(loss, contributions):
    made = claim(loss, "rho", "exponential", contributions=contributions)
    cost, t, squares = made.cost("epsilon"), contributions.total, contributions.squares
    assert cost == made.rate * t
    # More than T·√(8·rho/(k·m² + r²)), for the tight rho buys more, and so more than √(8·rho).
    assert cost**2 * (1 + HAIR) ** 2 * squares > 8 * loss * t**2 >= 8 * loss * squares


@given(
    loss=positive,
    distance=st.fractions(Fraction(1, 50), 50).filter(lambda d: d > 0),
    contributions=spreads,
    mechanism=st.sampled_from(MECHANISMS),
)
def test_the_cost_of_several_people(loss, distance, contributions, mechanism):
    """By the formulas of the proofs, in floats: distance people move a score as far as one whose range is so."""
    made = claim(loss, "epsilon", mechanism, contributions=contributions)
    assert made.cost("epsilon", distance) == loss * distance
    assert made.cost("rho", distance) <= made.cost("rho") * max(distance, distance**2) * (1 + HAIR)
    x = float(loss / contributions.total * distance)
    rows = [contributions.per_group] * contributions.full_groups + [contributions.rest]
    # f(x) = x + exp(−x) − 1 loses digits where x is small; there it is x²/2 − x³/6 + x⁴/24.
    rho = {
        "exponential": lambda y: float(reference.bounded_range_rho(Fraction(y))),
        "permute_and_flip": lambda y: y + math.expm1(-y) if y > 1e-3 else y**2 / 2 - y**3 / 6 + y**4 / 24,
    }[mechanism]
    assert float(made.cost("rho", distance)) == pytest.approx(math.fsum(rho(x * n) for n in rows), rel=1e-9)


def test_nobody_loses_nothing():
    for mechanism, unit, asked in itertools.product(MECHANISMS, ["epsilon", "rho"], ["epsilon", "rho"]):
        assert claim(1, unit, mechanism).cost(asked, 0) == 0


def test_rho_of_permute_and_flip_between_its_bounds():
    assert laplace_rho(Fraction(0)) == 0
    for x in (Fraction(1, 10**300), Fraction(1, 7), Fraction(1), Fraction(6), Fraction(10**50)):
        assert max(x**2 / 2 - x**3 / 6, x - 1) < laplace_rho(x) <= min(x**2 / 2, x) * (1 + HAIR)
        # What holds of bounded range is false for it, everywhere.
        assert laplace_rho(x) > bounded_range_rho(x) or x == 10**50
    assert laplace_rho(Fraction(2)) > Fraction(2) ** 2 / 8


def test_costs_are_short_numbers():
    # Ledgers keep them for ever.
    for x in (Fraction(1, 3), Fraction(1, 10**200), Fraction(10**9, 7)):
        assert laplace_rho(x).numerator.bit_length() <= 100
        assert pure_rho(x).numerator.bit_length() <= 100
        assert bounded_range_rho(x).numerator.bit_length() <= max(100, (x**2 / 8).numerator.bit_length())
    for mechanism in MECHANISMS:
        assert claim(Fraction(1, 3), "rho", mechanism).rate.numerator.bit_length() <= 100


# Bounded range: the tight rho


def test_the_tight_rho_of_bounded_range_at_known_points():
    # Design §3, from arXiv 2510.25746.
    for eta, known in ((1, 0.12330), (4, 1.670), (8, 4.92)):
        assert float(bounded_range_rho(Fraction(eta))) == pytest.approx(known, rel=1e-3)
    assert bounded_range_rho(Fraction(0)) == 0


@given(st.one_of(positive, extreme))
def test_the_tight_rho_is_below_an_eighth_of_the_square_and_above_the_truth(x):
    rho = bounded_range_rho(x)
    with ctx.workprec(6000):
        truth = true_bounded_range_rho(ball(x))
        assert not ball(rho) < truth
        assert ball(rho) * ball(1 - HAIR) < truth
    assert x**2 / 8 * (1 - x**2 / 72) <= rho <= min(x**2 / 8, x * (1 + HAIR))


@given(x=st.one_of(positive, extreme), factor=st.fractions(1, 2))
def test_the_tight_rho_grows_and_is_convex(x, factor):
    rho, more, twice = (bounded_range_rho(x * by) for by in (Fraction(1), factor, Fraction(2)))
    assert rho <= more <= twice
    between = (2 - factor) * rho + (factor - 1) * twice
    assert more <= between * (1 + HAIR)


@pytest.mark.parametrize("eta", [0.01, 0.3, 1, 3, 8, 16])
def test_the_tight_rho_is_the_supremum_over_orders_and_pairs(eta):
    # Two answers whose probabilities change by the factors exp(t) and exp(t − η): the extreme points of bounded range.
    t = np.linspace(0, eta, 4001)[1:-1]
    log_q, log_rest = np.log(np.expm1(eta - t) / np.expm1(eta)), np.log(np.expm1(t) / np.expm1(eta)) + eta - t
    above_one = np.geomspace(1e-4, 300, 150)[:, None]
    renyi = np.logaddexp(log_q + (1 + above_one) * t, log_rest + (1 + above_one) * (t - eta)) / above_one
    largest = float((renyi / (1 + above_one)).max())
    rho = float(bounded_range_rho(as_fraction("eta", eta)))
    assert largest <= rho * (1 + 1e-9)
    assert largest >= rho * (1 - 1e-3)
    assert largest < eta**2 / 8


@given(rho=st.one_of(positive, extreme), contributions=spreads, mechanism=st.sampled_from(MECHANISMS))
def test_a_rate_and_back_is_never_over_budget(rho, contributions, mechanism):
    x = scaled_rate("rho", mechanism, rho, contributions)
    spent = scaled_cost("rho", mechanism, x, contributions)
    assert rho * (1 - HAIR) <= spent <= rho
    assert scaled_cost("rho", mechanism, x * (1 + HAIR), contributions) > rho
    more = scaled_rate("rho", mechanism, rho * 2, contributions)
    assert x < more <= 2 * x * (1 + HAIR) + 2 * rho / contributions.total  # a root at first, a line in the end


def test_equal_rho_gives_the_exponential_mechanism_the_larger_rate():
    for rho in (Fraction(1, 10**9), Fraction(1, 10), Fraction(1), Fraction(6), Fraction(1000)):
        rates = {mechanism: claim(rho, "rho", mechanism).rate for mechanism in MECHANISMS}
        assert rates["exponential"] > rates["permute_and_flip"]


# However a claim is made, its rate is what its loss pays for.

SPREAD = Contributions(5, 2)
MADE = {
    "by hand": lambda: Claim(Loss(Fraction(1, 3), "epsilon"), "permute_and_flip", Fraction(2), SPREAD, "replace_one"),
    "of": lambda: claim_of_choice(Loss.of(epsilon=None, rho=0.2), None, Fraction(3), SPREAD, "add_or_remove_one"),
    "for scores": lambda: claim_for_scores(Loss.of(epsilon=1, rho=None), "exponential", 3, monotonic=False),
    "of an expression": lambda: dpp.mode("x", ["a"], rho=0.1, contributions=3).query.claim,
    "of a query": lambda: dpp.protect("p", max_rows=3).agg(dpp.median("x", [1], epsilon=0.5))._asks[0].query.claim,
}
CHANGED = {
    "not at all": lambda claim: claim,
    "less loss": lambda claim: replace(claim, loss=replace(claim.loss, value=claim.loss.value / 7)),
    "more loss": lambda claim: replace(claim, loss=replace(claim.loss, value=claim.loss.value * 7)),
    "the other unit": lambda claim: replace(claim, loss=Loss(Fraction(1, 5), OTHER[claim.loss.unit])),
    "the other mechanism": lambda claim: replace(claim, mechanism=OTHER[claim.mechanism]),
    "a smaller range": lambda claim: replace(claim, score_range=claim.score_range / 9),
    "fewer contributions": lambda claim: replace(claim, contributions=Contributions(1, 1)),
    "more contributions": lambda claim: replace(claim, contributions=Contributions(9, 4)),
    "a copy": copy.deepcopy,
    "a pickle": lambda claim: pickle.loads(pickle.dumps(claim)),
}
OTHER = {"epsilon": "rho", "rho": "epsilon", "permute_and_flip": "exponential", "exponential": "permute_and_flip"}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("way", MADE)
def test_no_claim_is_charged_less_than_its_rate_spends(way, change):
    made = CHANGED[change](MADE[way]())
    for unit in ("epsilon", "rho"):
        spends = scaled_cost(unit, made.mechanism, made.rate * made.score_range, made.contributions)
        assert spends <= made.cost(unit) <= spends * (1 + HAIR)


def test_a_rate_can_not_be_given():
    made = MADE["of"]()
    with pytest.raises((TypeError, ValueError), match="rate"):
        replace(made, rate=Fraction(10**6))
    with pytest.raises(TypeError, match=r"rate|positional"):
        Claim(made.loss, made.mechanism, made.score_range, made.contributions, None, Fraction(10**6))


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("value", [Fraction(-1, 2), Fraction(0), -1.0, math.nan, math.inf])
def test_a_loss_is_above_0(unit, value):
    with pytest.raises(ValueError, match=f"{unit} must be (greater than 0|finite)"):
        Loss(value, unit)
    with pytest.raises(ValueError, match=f"{unit} must be (greater than 0|finite)"):
        replace(Loss(Fraction(1), unit), value=value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": "gaussian"}, "mechanism must be one of"),
        ({"score_range": Fraction(0)}, "score_range must be greater than 0"),
        ({"neighboring_relation": "none"}, "neighboring_relation must be one of"),
        ({"_draws": 0}, "draws must be"),
    ],
)
def test_every_field_of_a_claim_is_checked(change, words):
    with pytest.raises(ValueError, match=words):
        replace(MADE["of"](), **change)
    with pytest.raises(ValueError, match="1 <= per_group <= total"):
        Contributions(1, 2)
    with pytest.raises(ValueError, match="unit must be one of"):
        Loss(Fraction(1), "delta")


# Gaps


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(epsilon=positive, spread=spreads)
def test_a_gap_changes_nothing_in_epsilon_and_costs_what_is_pure_in_rho(mechanism, epsilon, spread):
    without = claim(epsilon, "epsilon", mechanism, contributions=spread)
    gap = replace(without, _gap=True)
    assert (gap.rate, gap.cost("epsilon")) == (without.rate, epsilon)
    assert gap.mechanism == mechanism
    assert gap.cost("rho") == scaled_cost("rho", "discrete_laplace", epsilon / spread.total, spread)
    assert gap.cost("rho") > without.cost("rho")
    assert gap.cost("epsilon", 3) == 3 * epsilon
    # The other way round, the rate is what the pure loss of that rho gives.
    back = replace(gap, loss=Loss(gap.cost("rho"), "rho"))
    assert gap.rate * (1 - HAIR) <= back.rate <= gap.rate * (1 + HAIR)  # its cost was rounded up


def test_numbers_have_no_gap():
    with pytest.raises(ValueError, match="a gap must be that of a choice, got the mechanism 'discrete_laplace'"):
        replace(dpp.len(epsilon=1).query.claim, _gap=True)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_profiles_take_a_gap_for_randomized_response(mechanism):
    gap = dpp.mode("x", [1], epsilon=1, mechanism=mechanism, gap=True).query.claim
    noise = dpp.len(epsilon=1).query.claim
    profiles = [dpp.analysis.PrivacyProfile.of([each]) for each in (gap, noise)]
    for t in (0, Fraction(1, 3), 0.9, 1):
        assert profiles[0].delta(t) == profiles[1].delta(t)
        assert profiles[0].delta(t) >= dpp.analysis.privacy_profile(1, mechanism).delta(t)


# Keys: a delta beside the loss


def keys_claim(loss, unit, mechanism, delta, groups=1):
    loss, spread = Loss(Fraction(loss), unit), Contributions(groups, 1)
    return Claim(loss, mechanism, Fraction(1), spread, "add_or_remove_one", delta=delta)


KEYS = {
    "partition_selection": "epsilon",
    "renyi_partition_selection": "rho",
    "discrete_gaussian_threshold": "rho",
}


@pytest.mark.parametrize("mechanism", KEYS)
def test_keys_spend_a_delta_and_only_they(mechanism):
    made = keys_claim(1, KEYS[mechanism], mechanism, Fraction(1, 10**6))
    assert made.delta == Fraction(1, 10**6)
    assert str(made) == f"{KEYS[mechanism]}=1, delta=1e-06"
    assert str(claim(1, "rho", "exponential")) == "rho=1"
    with pytest.raises(ValueError, match=f"^delta must be greater than 0 for '{mechanism}', got 0"):
        keys_claim(1, KEYS[mechanism], mechanism, 0)
    with pytest.raises(ValueError, match=r"^keys must count every person once"):
        replace(made, contributions=Contributions(3, 2))
    with pytest.raises(ValueError, match=r"^keys must count every person once"):
        replace(made, _draws=2)
    for other in ("permute_and_flip", "exponential", "discrete_laplace"):
        with pytest.raises(ValueError, match=f"^delta must be 0 for '{other}', which spends none, got 1e-06"):
            replace(claim(1, "epsilon", other) if other != "discrete_laplace" else noisy(), delta=Fraction(1, 10**6))


def noisy():
    return Claim(Loss(Fraction(1), "epsilon"), "discrete_laplace", Fraction(1), ONE, None)


@pytest.mark.parametrize("value", [-1, Fraction(-1, 10**9), 1, 2.0, math.nan, math.inf, "1e-6", True, None])
def test_deltas_that_are_none(value):
    with pytest.raises((TypeError, ValueError), match=r"^delta must be (at least 0 and below 1|a number|finite)"):
        keys_claim(1, "epsilon", "partition_selection", value)


def test_units_of_keys():
    with pytest.raises(ValueError, match=r"^partition selection must have its loss in epsilon, got rho"):
        keys_claim(1, "rho", "partition_selection", Fraction(1, 10))
    for mechanism in ("renyi_partition_selection", "discrete_gaussian_threshold"):
        with pytest.raises(ValueError, match=f"^{mechanism} has no epsilon"):
            keys_claim(1, "epsilon", mechanism, Fraction(1, 10))


@given(loss=positive, groups=st.integers(1, 50))
def test_what_keys_cost_beside_their_delta(loss, groups):
    selection = keys_claim(loss, "epsilon", "partition_selection", Fraction(1, 10), groups)
    assert selection.rate * groups == selection.cost("epsilon") == loss
    exact = groups * reference.pure_rho(selection.rate)
    assert exact <= selection.cost("rho") <= exact * (1 + HAIR)
    for mechanism in ("renyi_partition_selection", "discrete_gaussian_threshold"):
        in_rho = keys_claim(loss, "rho", mechanism, Fraction(1, 10), groups)
        assert in_rho.cost("rho") == loss
        assert in_rho.rate**2 * groups / 2 <= loss <= in_rho.rate**2 * (1 + HAIR) * groups / 2
        with pytest.raises(ValueError, match="no loss in epsilon"):
            in_rho.cost("epsilon")


def test_a_printed_delta_is_not_below_the_true_one():
    made = keys_claim(1, "epsilon", "partition_selection", Fraction(1, 3))
    assert Fraction(str(made).partition("delta=")[2]) >= made.delta
