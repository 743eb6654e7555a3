"""Publications from tables of a database."""

import pytest

import dp_polars as dpp
from tests.engines.publications import Publications
from tests.sql.tools import MARKS, need_ibis

need_ibis()

pytestmark = MARKS


class TestSql(Publications):
    door = dpp.sql

    @pytest.fixture(autouse=True)
    def _engine(self, engine):
        self.table = engine.table
