"""What follows from one person's rows is made in Spark: every recipe is right."""

import pytest

import dp_polars as dpp
from tests.recipes.by_hand import RECIPES, TABLES, asked, check
from tests.spark.tools import MARKS, need_spark, on_both, to_polars

need_spark()

from recipes import on_spark

pytestmark = [*MARKS, on_both, pytest.mark.filterwarnings("ignore:.*protects nobody")]


@pytest.mark.usefixtures("few_tasks")
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_right(spark, tmp_path, recipe):
    tables = []
    for name in RECIPES[recipe][0]:
        TABLES[name].write_parquet(tmp_path / f"{name}.parquet")
        tables.append(spark.read.parquet(str(tmp_path / f"{name}.parquet")))
    check(recipe, to_polars(dpp.spark.release(asked(recipe), getattr(on_spark, recipe)(*tables))))
