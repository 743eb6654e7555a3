"""Lists of quantiles as OpenDP measurements: their privacy maps, and losses that OpenDP scales."""

from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.helpers.reference import bounded_range_rho

need("opendp")

from opendp.measures import zero_concentrated_divergence
from opendp.mod import disable_features, enable_features

from dp_polars import opendp as adapter
from dp_polars._accounting.costs import laplace_rho

ROWS = pl.DataFrame({"x": [4] * 500})
LEVELS = 3


@pytest.fixture(autouse=True)
def features():
    enable_features("contrib", "honest-but-curious")
    yield
    disable_features("contrib", "honest-but-curious")


def asked(**options):
    return dpp.quantile("x", [0.1, 0.25, 0.5, 0.9], range(10), **options)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_privacy_maps(relation):
    pure = adapter.as_measurement(asked(epsilon=6, neighboring_relation=relation))
    exponential = adapter.as_measurement(asked(rho=0.25, neighboring_relation=relation))
    in_rho = adapter.as_measurement(
        asked(epsilon=6, neighboring_relation=relation), output_measure=zero_concentrated_divergence()
    )
    claim = asked(rho=0.25, neighboring_relation=relation).query.claim
    x = claim.rate * claim.score_range
    assert exponential.map(1) == pytest.approx(0.25)
    for distance in range(1, 6):
        assert pure.map(distance) == 6 * distance
        assert exponential.map(distance) == pytest.approx(float(LEVELS * bounded_range_rho(x * distance)))
        assert in_rho.map(distance) == pytest.approx(float(LEVELS * laplace_rho(Fraction(6 * distance, LEVELS))))
    assert pure(ROWS).item().to_list() == exponential(ROWS).item().to_list() == [4, 4, 4, 4]


def test_opendp_may_scale_the_loss():
    metric = adapter.as_measurement(asked(epsilon=6)).input_metric
    halved = adapter.make_private_query(adapter.frame_domain(), metric, asked(epsilon=6), 3)
    assert halved.map(2) == 6
