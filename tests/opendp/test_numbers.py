"""Numbers, lists and cubes as OpenDP measurements: their privacy maps, and losses that OpenDP scales."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("opendp")

from opendp.measures import approximate, max_divergence, zero_concentrated_divergence
from opendp.metrics import symmetric_id_distance

from dp_polars._accounting.costs import laplace_rho
from dp_polars._mechanisms.partition_selection import PartitionSelection
from dp_polars.opendp import as_measurement, frame_domain, make_private_query
from tests.helpers.reference import bounded_range_rho, pure_rho
from tests.registry import MECHANISMS, RELATIONS

pytestmark = pytest.mark.usefixtures("features")

# Of digits that the reference has.
SLACK = Fraction(1, 10**20)
ROWS = pl.DataFrame({"person": [1, 1, 2, 3], "x": [1, 2, 3, 4]})
FOURS = pl.DataFrame({"x": [4] * 500})
LETTERS = pl.DataFrame({"x": ["a"] * 900 + ["b"] * 400 + ["c"] * 5})


def half_square(x):
    return x**2 / 2


# What is asked, in how many draws, and what one costs in rho where epsilon is given, and where rho is.
MAPS = {
    "len": (dpp.len, 1, pure_rho, half_square),
    "count": (partial(dpp.count, "x"), 1, pure_rho, half_square),
    "sum": (partial(dpp.sum, "x", 0, 5), 1, pure_rho, half_square),
    # In epsilon a mean has a pair of sums, which costs no more than one number.
    "mean": (partial(dpp.mean, "x", 0, 5), 2, lambda x: pure_rho(2 * x) / 2, half_square),
    "value_counts": (partial(dpp.value_counts, "x", [1, 2]), 1, pure_rho, half_square),
}
for relation in RELATIONS:
    above = partial(dpp.first_above, "x", [1, 2], threshold=2, gap=True)
    several = partial(dpp.quantile, "x", [0.1, 0.25, 0.5, 0.9], range(10))
    MAPS[f"gap above, {relation}"] = (above, 1, pure_rho, None)
    MAPS[f"quantiles, {relation}"] = (several, 3, laplace_rho, bounded_range_rho)
for mechanism, draws, rho in (
    ("permute_and_flip", 2, laplace_rho),
    ("exponential", 2, bounded_range_rho),
    ("joint", 1, bounded_range_rho),
):
    for given in (["c", "b", "a"], None):
        MAPS[f"top 2 of {given}, {mechanism}"] = (
            partial(dpp.top_k, "x", 2, given, mechanism=mechanism),
            draws,
            rho,
            rho,
        )
for mechanism in MECHANISMS:
    mode = partial(dpp.mode, "x", [1, 2], mechanism=mechanism, gap=True)
    MAPS[f"gap, {mechanism}"] = (mode, 1, pure_rho, None)


@pytest.mark.parametrize("case", MAPS)
def test_privacy_maps(case):
    ask, draws, of_epsilon, of_rho = MAPS[case]
    rows, answer = ROWS, None
    if case.startswith("top"):
        rows, answer = LETTERS.cast(pl.Enum(["c", "b", "a"])) if "None" in case else LETTERS, ["a", "b"]
    elif case.startswith("quantiles"):
        rows, answer = FOURS, [4, 4, 4, 4]
    by_epsilon = as_measurement(ask(epsilon=6))
    in_rho = as_measurement(ask(epsilon=6), output_measure=zero_concentrated_divergence())
    measurements = [by_epsilon]
    for distance in range(1, 6):
        exact = draws * of_epsilon(Fraction(6 * distance, draws))
        assert by_epsilon.map(distance) == 6 * distance
        assert exact * (1 - SLACK) <= in_rho.map(distance) <= exact * (1 + Fraction(1, 2**50))
    if of_rho is not None:
        by_rho, claim = as_measurement(ask(rho=0.25)), ask(rho=0.25).query.claim
        assert by_rho.map(1) == pytest.approx(0.25)
        for distance in range(1, 6):
            exact = draws * of_rho(claim.rate * claim.score_range * distance)
            assert exact * (1 - Fraction(1, 10**15)) <= by_rho.map(distance) <= exact * (1 + Fraction(1, 10**12))
        measurements.append(by_rho)
    if case.startswith("top"):
        measurements.append(as_measurement(dpp.protect(None).agg(ask(epsilon=6))))
    for measurement in measurements:
        released = measurement(rows)
        assert released.shape == (1, 1)
        assert answer is None or released.item().to_list() == answer
        assert not case.startswith("gap") or released.unnest("x").columns == ["answer", "gap"]


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_first_above_a_threshold_in_several_groups(relation):
    """Under replace_one of one person pairs of groups are pure, of two people all of them together."""
    frame = dpp.protect("person", max_groups=3, max_rows_per_group=1, neighboring_relation=relation)
    query = frame.group_by({"g": range(5)}).agg(
        dpp.first_above("x", [1, 2], threshold=2, epsilon=0.5), dpp.len(rho=0.125)
    )
    measurement = as_measurement(query)
    one = 3 * pure_rho(Fraction(1, 6))
    two = 3 * pure_rho(Fraction(2, 6)) if relation == "add_or_remove_one" else pure_rho(Fraction(1))
    assert measurement.map(1) == pytest.approx(float(one) + 0.125)
    assert measurement.map(2) == pytest.approx(float(two) + 4 * 0.125)
    assert make_private_query(frame_domain(), measurement.input_metric, query, 0.05).map(1) == pytest.approx(0.05)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_gap_beside_a_gaussian_stays_what_it_costs_when_it_is_scaled(mechanism):
    gap = dpp.mode("x", [1, 2], epsilon=0.5, mechanism=mechanism, gap=True)
    query = dpp.protect("person", max_rows=1).agg(gap, dpp.len(rho=0.125))
    halved = make_private_query(frame_domain(), as_measurement(query).input_metric, query, 0.125)
    assert halved.map(1) == pytest.approx(0.125)


def test_a_mean_by_laplace_noise_under_rho_costs_both_halves():
    expr = dpp.mean("x", 0, 5, rho=0.25, mechanism="discrete_laplace")
    measurement = as_measurement(expr, output_measure=max_divergence())
    assert pure_rho(Fraction(measurement.map(1)) / 2) == pytest.approx(0.125)


def test_people():
    query = dpp.protect("person", max_rows=3).agg(dpp.n_people(epsilon=0.5), dpp.len(epsilon=0.25))
    measurement = as_measurement(query)
    for distance in range(1, 6):
        assert measurement.map(distance) == 0.75 * distance
    assert measurement(ROWS).columns == ["n_people", "len"]


def test_a_gaussian_has_no_map_in_epsilon():
    """It is refused when it is made, not when it is asked."""
    for query in (dpp.len(rho=0.25), dpp.protect("person", max_rows=1).agg(dpp.len(rho=0.25), dpp.n_people(epsilon=1))):
        with pytest.raises(ValueError, match="no loss in epsilon"):
            as_measurement(query, output_measure=max_divergence())


def test_a_loss_that_opendp_scales_to_hardly_anything_is_refused():
    metric = as_measurement(dpp.len(epsilon=1)).input_metric
    halved = make_private_query(frame_domain(), metric, dpp.len(epsilon=1), 0.5)
    assert halved.map(1) == 0.5
    with pytest.raises(ValueError, match=r"scale of at most 2\*\*50"):
        make_private_query(frame_domain(), metric, dpp.len(epsilon=1), 1e-17)


FRAME = pl.DataFrame({"p": range(60), "g": ["A", "B", "B"] * 20, "y": [1, 2, 3, 4] * 15})
DIMENSIONS = {"g": ["A", "B"], "y": [1, 2, 3, 4]}


@pytest.mark.parametrize(("loss", "at_two"), [({"epsilon": 1}, 2), ({"rho": 1}, 4)])
@pytest.mark.parametrize("tables", [None, [("g",), ("y", "g")]])
def test_a_cube_is_a_measurement(loss, at_two, tables):
    if tables and "epsilon" in loss:
        return
    query = dpp.protect("p", max_groups=1).cube(DIMENSIONS, tables=tables, **loss)
    measurement = as_measurement(query)
    assert measurement.map(1) == 1
    assert measurement.map(2) == at_two
    sure_loss = {"rho": 10**7} if tables else {"epsilon": 10**5}
    sure = as_measurement(dpp.protect("p", max_groups=1).cube(DIMENSIONS, tables=tables, **sure_loss))
    found = sure(FRAME)
    assert found.columns == ["g", "y", "count"]
    expected = FRAME.group_by("g", "y").len().sort("g", "y")
    assert found[-8:].rows() == expected.rows()
    assert found[:-8].rows() == ([] if tables is None else [("A", None, 20), ("B", None, 40)])


VISITS = pl.DataFrame({"p": range(200), "town": ["Bern"] * 100 + ["Olten"] * 99 + ["Twann"]})


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("loss", "inner"), [("epsilon", max_divergence), ("rho", zero_concentrated_divergence)])
def test_keys_are_an_approximate_measurement(loss, inner, relation):
    query = dpp.protect("p", max_groups=2, neighboring_relation=relation).keys(
        "town", delta=Fraction(1, 2**20), **{loss: 2}
    )
    measurement = as_measurement(query)
    assert measurement.output_measure == approximate(inner())
    assert measurement.map(1) == (2.0, 2**-20)
    assert measurement(VISITS)["town"].to_list() == ["Bern", "Olten"]
    with pytest.raises(ValueError, match="output_measure must be approximate"):
        as_measurement(query, output_measure=inner())


def test_the_delta_of_several_people_holds_for_their_keys():
    """One key that d people share, or none: the hockey-stick divergence at dε."""
    query = dpp.protect("p", max_groups=1).keys("town", epsilon=1, delta=Fraction(1, 1000))
    measurement, selection = as_measurement(query), PartitionSelection(Fraction(1), Fraction(1, 1000))
    for people in (2, 3, 5):
        epsilon, delta = measurement.map(people)
        assert epsilon == people
        chances = np.minimum(selection.floats(np.arange(1, 40)), 1)
        chances = np.concatenate([[0.0], chances])
        for n in range(30):
            one, other = chances[n], chances[n + people]
            assert other - math.exp(epsilon) * one <= delta
            assert (1 - one) - math.exp(epsilon) * (1 - other) <= delta
        # Of people whom nobody is with it is nearly all needed.
        assert chances[people] >= 0.99 * delta


def test_keys_at_another_loss_keep_their_delta():
    query = dpp.protect("p", max_groups=2).keys("town", rho=0.5, delta=Fraction(1, 2**20))
    metric = symmetric_id_distance("p")
    made = make_private_query(frame_domain(), metric, query, 0.25)
    assert made.map(1) == (0.25, 2**-20)
    assert made(VISITS).height == 2


def test_how_many_rows_bounds_cut_is_a_measurement():
    towns = dpp.protect("p", max_rows=1).group_by({"town": ["Bern", "Olten"]})
    cut = as_measurement(towns.agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=50))
    assert cut.map(3) == 150
    assert cut(VISITS).item() == 0
    replaced = dpp.protect("p", max_rows=1, neighboring_relation="replace_one").agg(dpp.len(epsilon=1))
    assert as_measurement(replaced.n_rows_dropped(1, rho=0.5)).map(2) == 2


@pytest.mark.parametrize("delta", [n * 1e-8 for n in range(1, 20)])
def test_the_map_of_one_person_is_at_most_the_delta_that_was_given(delta):
    query = dpp.protect("p", max_groups=1).keys("town", delta=delta, epsilon=1)
    assert as_measurement(query).map(1)[1] <= delta
