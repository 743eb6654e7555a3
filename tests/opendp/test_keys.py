"""Keys that nobody listed, and quantiles over people, as OpenDP measurements."""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.partition_selection import PartitionSelection
from tests.helpers.needs import need

need("opendp")

from opendp.measures import approximate, max_divergence, zero_concentrated_divergence
from opendp.metrics import symmetric_id_distance

from dp_polars.opendp import as_measurement, frame_domain, make_private_query

pytestmark = pytest.mark.usefixtures("features")


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
