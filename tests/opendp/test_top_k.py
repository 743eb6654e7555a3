"""Top-k lists as OpenDP measurements: their privacy maps, and answers."""

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.helpers.reference import bounded_range_rho

need("opendp")

from opendp.measures import zero_concentrated_divergence
from opendp.mod import disable_features, enable_features

from dp_polars import opendp as adapter


@pytest.fixture(autouse=True)
def features():
    enable_features("contrib", "honest-but-curious")
    yield
    disable_features("contrib", "honest-but-curious")


ROWS = pl.DataFrame({"x": ["a"] * 900 + ["b"] * 400 + ["c"] * 5})


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential", "joint"])
@pytest.mark.parametrize("given", [["c", "b", "a"], None])
def test_privacy_maps(mechanism, given):
    rows = ROWS if given else ROWS.cast(pl.Enum(["c", "b", "a"]))

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
