"""Numbers, lists and cubes as OpenDP measurements: their privacy maps, and losses that OpenDP scales."""

from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("opendp")

import math

import numpy as np
from opendp.measures import approximate, max_divergence, zero_concentrated_divergence
from opendp.metrics import symmetric_id_distance

from dp_polars import opendp as adapter
from dp_polars._accounting.costs import laplace_rho
from dp_polars._mechanisms.partition_selection import PartitionSelection
from dp_polars.opendp import as_measurement, frame_domain, make_private_query
from tests.helpers.needs import need
from tests.helpers.reference import bounded_range_rho, pure_rho

pytestmark = pytest.mark.usefixtures("features")


ROWS = pl.DataFrame({"person": [1, 1, 2, 3], "x": [1, 2, 3, 4]})
ASKS = {
    "len": lambda **loss: dpp.len(**loss),
    "count": lambda **loss: dpp.count("x", **loss),
    "sum": lambda **loss: dpp.sum("x", 0, 5, **loss),
    "mean": lambda **loss: dpp.mean("x", 0, 5, **loss),
    "value_counts": lambda **loss: dpp.value_counts("x", [1, 2], **loss),
}


@pytest.mark.parametrize("ask", ASKS)
def test_privacy_maps(ask):
    pure = adapter.as_measurement(ASKS[ask](epsilon=0.5))
    gaussian = adapter.as_measurement(ASKS[ask](rho=0.25))
    draws = 2 if ask == "mean" else 1
    in_rho = adapter.as_measurement(ASKS[ask](epsilon=0.5), output_measure=zero_concentrated_divergence())
    for distance in range(1, 6):
        assert pure.map(distance) == 0.5 * distance
        assert gaussian.map(distance) == pytest.approx(0.25 * distance**2)
        assert gaussian.map(distance) >= 0.25 * distance**2 * (1 - 1e-15)
        assert in_rho.map(distance) == pytest.approx(draws * float(pure_rho(Fraction(distance, 2 * draws))))
    assert pure(ROWS).shape == gaussian(ROWS).shape == (1, 1)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_first_above_a_threshold(relation):
    expr = dpp.first_above("x", [1, 2], threshold=2, epsilon=0.5, neighboring_relation=relation, lead=True)
    pure, in_rho = (
        adapter.as_measurement(expr, output_measure=m()) for m in (max_divergence, zero_concentrated_divergence)
    )
    for distance in range(1, 6):
        assert pure.map(distance) == 0.5 * distance
        exact = pure_rho(Fraction(distance, 2))
        assert exact <= in_rho.map(distance) <= exact * (1 + Fraction(1, 2**50))
    assert pure(ROWS).unnest("x").columns == ["answer", "lead"]
    # In several groups, under replace_one: of one person pairs of groups are pure, of two people all of them together.
    frame = dpp.protect("person", max_groups=3, neighboring_relation=relation).group_by({"g": range(5)})
    query = frame.agg(dpp.first_above("x", [1, 2], threshold=2, epsilon=0.5), dpp.len(rho=0.125, max_rows_per_group=1))
    measurement = adapter.as_measurement(query)
    one = 3 * pure_rho(Fraction(1, 6))
    two = 3 * pure_rho(Fraction(2, 6)) if relation == "add_or_remove_one" else pure_rho(Fraction(1))
    assert measurement.map(1) == pytest.approx(float(one) + 0.125)
    assert measurement.map(2) == pytest.approx(float(two) + 4 * 0.125)
    space = adapter.frame_domain(), measurement.input_metric
    assert adapter.make_private_query(*space, query, 0.05).map(1) == pytest.approx(0.05)


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_a_mode_with_its_lead(mechanism):
    expr = dpp.mode("x", [1, 2], epsilon=0.5, mechanism=mechanism, lead=True)
    pure, in_rho = (
        adapter.as_measurement(expr, output_measure=m()) for m in (max_divergence, zero_concentrated_divergence)
    )
    for distance in range(1, 6):
        assert pure.map(distance) == 0.5 * distance
        # As of anything with that epsilon, and rounded up.
        exact = pure_rho(Fraction(distance, 2))
        assert exact <= in_rho.map(distance) <= exact * (1 + Fraction(1, 2**50))
    assert pure(ROWS).unnest("x").columns == ["answer", "lead"]
    # Beside a Gaussian the loss is in rho, and stays what the lead costs when it is scaled.
    query = dpp.protect("person", max_rows=1).agg(expr, dpp.len(rho=0.125))
    metric = adapter.as_measurement(query).input_metric
    halved = adapter.make_private_query(adapter.frame_domain(), metric, query, 0.125)
    assert halved.map(1) == pytest.approx(0.125)


def test_a_mean_by_laplace_noise_under_rho_costs_both_halves():
    expr = dpp.mean("x", 0, 5, rho=0.25, mechanism="discrete_laplace")
    measurement = adapter.as_measurement(expr, output_measure=max_divergence())
    assert pure_rho(Fraction(measurement.map(1)) / 2) == pytest.approx(0.125)


def test_people():
    query = dpp.protect("person", max_rows=3).agg(dpp.n_people(epsilon=0.5), dpp.len(epsilon=0.25))
    measurement = adapter.as_measurement(query)
    for distance in range(1, 6):
        assert measurement.map(distance) == 0.75 * distance
    assert measurement(ROWS).columns == ["n_people", "len"]


def test_a_gaussian_has_no_map_in_epsilon():
    """It is refused when it is made, not when it is asked."""
    for query in (dpp.len(rho=0.25), dpp.protect("person", max_rows=1).agg(dpp.len(rho=0.25), dpp.n_people(epsilon=1))):
        with pytest.raises(ValueError, match="no loss in epsilon"):
            adapter.as_measurement(query, output_measure=max_divergence())


def test_a_loss_that_opendp_scales_to_hardly_anything_is_refused():
    metric = adapter.as_measurement(dpp.len(epsilon=1)).input_metric
    halved = adapter.make_private_query(adapter.frame_domain(), metric, dpp.len(epsilon=1), 0.5)
    assert halved.map(1) == 0.5
    with pytest.raises(ValueError, match=r"scale of at most 2\*\*50"):
        adapter.make_private_query(adapter.frame_domain(), metric, dpp.len(epsilon=1), 1e-17)


# Lists

FOURS = pl.DataFrame({"x": [4] * 500})
LETTERS = pl.DataFrame({"x": ["a"] * 900 + ["b"] * 400 + ["c"] * 5})


def asked(**options):
    return dpp.quantile("x", [0.1, 0.25, 0.5, 0.9], range(10), **options)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_privacy_maps_of_a_list_of_quantiles(relation):
    pure = adapter.as_measurement(asked(epsilon=6, neighboring_relation=relation))
    exponential = adapter.as_measurement(asked(rho=0.25, neighboring_relation=relation))
    in_rho = adapter.as_measurement(
        asked(epsilon=6, neighboring_relation=relation), output_measure=zero_concentrated_divergence()
    )
    levels = 3
    claim = asked(rho=0.25, neighboring_relation=relation).query.claim
    x = claim.rate * claim.score_range
    assert exponential.map(1) == pytest.approx(0.25)
    for distance in range(1, 6):
        assert pure.map(distance) == 6 * distance
        assert exponential.map(distance) == pytest.approx(float(levels * bounded_range_rho(x * distance)))
        assert in_rho.map(distance) == pytest.approx(float(levels * laplace_rho(Fraction(6 * distance, levels))))
    assert pure(FOURS).item().to_list() == exponential(FOURS).item().to_list() == [4, 4, 4, 4]


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential", "joint"])
@pytest.mark.parametrize("given", [["c", "b", "a"], None])
def test_privacy_maps_of_a_top_k(mechanism, given):
    rows = LETTERS if given else LETTERS.cast(pl.Enum(["c", "b", "a"]))

    def expr(**loss):
        return pl.col("x").dp.top_k(2, given, mechanism=mechanism, **loss)

    pure = adapter.as_measurement(expr(epsilon=0.5))
    concentrated = adapter.as_measurement(expr(rho=0.25))
    in_rho = adapter.as_measurement(expr(epsilon=0.5), output_measure=zero_concentrated_divergence())
    for distance in range(1, 6):
        assert pure.map(distance) == 0.5 * distance
        assert concentrated.map(distance) <= 0.25 * distance**2 * (1 + 1e-12)
        if mechanism != "permute_and_flip":
            draws = 1 if mechanism == "joint" else 2
            expected = draws * float(bounded_range_rho(0.5 / draws * distance))
            assert in_rho.map(distance) == pytest.approx(expected)
    assert concentrated.map(1) == pytest.approx(0.25)
    assert pure(rows).item().to_list() == ["a", "b"]
    assert adapter.as_measurement(dpp.protect(None).agg(expr(epsilon=5)))(rows).item().to_list() == ["a", "b"]


# Cubes

FRAME = pl.DataFrame({"p": range(60), "g": ["A", "B", "B"] * 20, "y": [1, 2, 3, 4] * 15})
DIMENSIONS = {"g": ["A", "B"], "y": [1, 2, 3, 4]}


@pytest.mark.parametrize(("loss", "at_two"), [({"epsilon": 1}, 2), ({"rho": 1}, 4)])
@pytest.mark.parametrize("tables", [None, [("g",), ("y", "g")]])
def test_a_cube_is_a_measurement(loss, at_two, tables):
    if tables and "epsilon" in loss:
        return
    query = dpp.protect("p", max_groups=1).cube(DIMENSIONS, tables=tables, **loss)
    measurement = adapter.as_measurement(query)
    assert measurement.map(1) == 1
    assert measurement.map(2) == at_two
    sure_loss = {"rho": 10**7} if tables else {"epsilon": 10**5}
    sure = adapter.as_measurement(dpp.protect("p", max_groups=1).cube(DIMENSIONS, tables=tables, **sure_loss))
    found = sure(FRAME)
    assert found.columns == ["g", "y", "count"]
    expected = FRAME.group_by("g", "y").len().sort("g", "y")
    assert found[-8:].rows() == expected.rows()
    assert found[:-8].rows() == ([] if tables is None else [("A", None, 20), ("B", None, 40)])


VISITS = pl.DataFrame({"p": range(200), "town": ["Bern"] * 100 + ["Olten"] * 99 + ["Twann"]})


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize(("loss", "inner"), [("epsilon", max_divergence), ("rho", zero_concentrated_divergence)])
def test_keys_are_an_approximate_measurement(loss, inner, relation):
    query = dpp.protect("p", max_groups=2, neighboring_relation=relation).keys("town", delta=2**-20, **{loss: 2})
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
    query = dpp.protect("p", max_groups=2).keys("town", rho=0.5, delta=2**-20)
    metric = symmetric_id_distance("p")
    made = make_private_query(frame_domain(), metric, query, 0.25)
    assert made.map(1) == (0.25, 2**-20)
    assert made(VISITS).height == 2


def test_a_quantile_over_people_is_a_pure_measurement():
    measurement = as_measurement(dpp.protect("p").rows_per_person(0.5, range(1, 9), epsilon=50))
    assert measurement.map(2) == 100
    assert measurement(VISITS).item() == 1


def test_bounds_and_how_many_they_cut_are_measurements():
    found = as_measurement(dpp.protect("p").bounds({"town": ["Bern", "Olten"]}, 0.5, epsilon=50))
    assert found.map(2) == 100
    bounds = found(VISITS)
    assert bounds.row(0) == (1, 1)
    towns = dpp.protect("p").with_bounds(bounds).group_by({"town": ["Bern", "Olten"]})
    cut = as_measurement(towns.agg(dpp.len(epsilon=1)).n_cut(epsilon=50))
    assert cut.map(3) == 150
    assert cut(VISITS).item() == 0
    replaced = dpp.protect("p", max_rows=1, neighboring_relation="replace_one").agg(dpp.len(epsilon=1))
    assert as_measurement(replaced.n_cut(rho=0.5)).map(2) == 2


@pytest.mark.parametrize("delta", [n * 1e-8 for n in range(1, 20)])
def test_the_map_of_one_person_is_at_most_the_delta_that_was_given(delta):
    query = dpp.protect("p", max_groups=1).keys("town", delta=delta, epsilon=1)
    assert as_measurement(query).map(1)[1] <= delta
