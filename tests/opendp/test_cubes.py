"""Cubes as measurements of OpenDP: the count in each cell."""

from __future__ import annotations

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("opendp")

from opendp.mod import disable_features, enable_features

from dp_polars.opendp import as_measurement

FRAME = pl.DataFrame({"p": range(60), "g": ["A", "B", "B"] * 20, "y": [1, 2, 3, 4] * 15})
DIMENSIONS = {"g": ["A", "B"], "y": [1, 2, 3, 4]}


@pytest.fixture(autouse=True)
def features():
    enable_features("contrib", "honest-but-curious")
    yield
    disable_features("contrib", "honest-but-curious")


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
