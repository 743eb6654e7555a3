"""Numbers as OpenDP measurements: their privacy maps, and losses that OpenDP scales."""

from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("opendp")

from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.mod import disable_features, enable_features

from dp_polars import opendp as adapter
from tests.helpers.reference import pure_rho


@pytest.fixture(autouse=True)
def features():
    enable_features("contrib", "honest-but-curious")
    yield
    disable_features("contrib", "honest-but-curious")


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
