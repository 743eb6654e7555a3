"""Each test that takes an `engine` of Polars, or a `relation`, runs with all of them."""

import pytest

import dp_polars as dpp
from tests.registry import ENGINES, RELATIONS


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(params=RELATIONS)
def relation(request):
    return request.param


@pytest.fixture
def budget(tmp_path):
    return dpp.Budget(epsilon=100, path=tmp_path / "ledger.db")
