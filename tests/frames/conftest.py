"""Each test that takes an `engine` of Polars, or a `relation`, runs with all of them."""

import pytest

from tests.registry import ENGINES, RELATIONS


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(params=RELATIONS)
def relation(request):
    return request.param
