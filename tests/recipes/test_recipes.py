"""What follows from one person's rows is made before `protect`: every recipe is accepted, and right, on Polars."""

import polars as pl
import pytest
from recipes import on_polars

import dp_polars as dpp
from tests.recipes.by_hand import RECIPES, TABLES, asked, check

pytestmark = pytest.mark.filterwarnings("ignore:.*protects nobody")


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_accepted_and_right_on_polars(recipe, engine):
    tables = [TABLES[name].lazy() for name in RECIPES[recipe][0]]
    prepared = getattr(on_polars, recipe)(*tables)
    check(recipe, asked(recipe).release(prepared, engine=engine))
    private = prepared.dp.protect("patient", max_rows=10)
    check(recipe, private.agg(**RECIPES[recipe][1]).release(engine=engine))


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_accepted_and_right_from_files(recipe, tmp_path):
    tables = []
    for name in RECIPES[recipe][0]:
        TABLES[name].write_parquet(tmp_path / f"{name}.parquet")
        tables.append(pl.scan_parquet(tmp_path / f"{name}.parquet"))
    check(recipe, asked(recipe).release(getattr(on_polars, recipe)(*tables)))


def test_the_answers_need_the_recipe():
    """A control: without the step of one person's rows, other numbers come out."""
    query = dpp.protect("patient", max_rows=10).agg(rows=dpp.len(epsilon=10**9))
    assert query.release(TABLES["visits"]).item() == 10
    assert query.release(on_polars.totals(TABLES["visits"].lazy())).item() == 4
