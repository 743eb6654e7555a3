"""Each test that takes a `relation`, or a `mechanism` of a choice, runs with all of them."""

import pytest

from tests.registry import MECHANISMS, RELATIONS


@pytest.fixture(params=RELATIONS)
def relation(request):
    return request.param


@pytest.fixture(params=MECHANISMS)
def mechanism(request):
    return request.param
