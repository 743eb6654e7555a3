"""Each test that takes a `mechanism` of a choice runs with all of them."""

from tests.privacy.conftest import mechanism

__all__ = ["mechanism"]
