"""What follows from one person's rows is made in Ibis: every recipe is accepted, and right, on DuckDB and Postgres."""

import pytest

import dp_polars as dpp
from tests.recipes.by_hand import RECIPES, TABLES, asked, check
from tests.sql.tools import MARKS, need_ibis

need_ibis()

from recipes import on_ibis  # noqa: E402

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore:.*protects nobody")]


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_accepted_and_right(engine, recipe):
    tables = [engine.table(TABLES[name]) for name in RECIPES[recipe][0]]
    check(recipe, dpp.sql.release(asked(recipe), getattr(on_ibis, recipe)(*tables)))
