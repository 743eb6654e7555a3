"""Frames of Spark Connect are analysed whenever they run: what a release reads keeps the types that were checked."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from tests.spark.tools import CONNECT, MARKS, need_spark, on_both, to_polars, to_spark

need_spark()

import dp_polars.spark

pytestmark = [*MARKS, on_both]

HUGE = {"epsilon": 10**6}
# With it the server would often take the plan of the time before the charge.
CACHE = "spark.connect.session.planCache.enabled"
BEFORE = pl.DataFrame({"p": [i // 2 for i in range(80)], "g": ["a", "b"] * 40, "x": [1.0, 2.0] * 40})
DDL = "p string, g string, x double"


class ReplacingBudget(dpp.Budget):
    """A budget that is charged while somebody replaces a view."""

    def _charge(self, *args, **kwargs):
        charged = super()._charge(*args, **kwargs)
        self.replace_view()
        return charged


def replaced_after_the_charge(spark, select, tmp_path):
    """What a release from a view gives that is replaced by a selection of it, once it is charged."""
    to_spark(spark, BEFORE.cast({"p": pl.String}), DDL).createOrReplaceTempView("visits")
    after = spark.table("visits")
    to_spark(spark, BEFORE.cast({"p": pl.String}), DDL).createOrReplaceTempView("others")
    budget = ReplacingBudget(epsilon=10**8)
    budget.replace_view = lambda: spark.sql(f"select {select} from others").createOrReplaceTempView("visits")
    query = (
        dpp.protect("p", max_rows=2)
        .group_by({"g": ["a", "b"]})
        .agg(x=dpp.sum("x", 0, 9, step=1, **HUGE), people=dpp.n_people(**HUGE))
    )
    spark.conf.set(CACHE, "false")
    try:
        return to_polars(dp_polars.spark.release(query, after, budget=budget)).sort("g"), query
    finally:
        spark.conf.unset(CACHE)
        assert budget.spent > 0
        spark.catalog.dropTempView("visits")
        spark.catalog.dropTempView("others")


@pytest.mark.usefixtures("few_tasks")
@pytest.mark.parametrize("where", ["driver", "executors"])
def test_a_view_that_is_replaced_after_the_charge_keeps_its_types(spark, tmp_path, where, request):
    """A collation in the place of plain text would make one person of several; text in the place of numbers adds up."""
    if where == "executors":
        request.getfixturevalue("on_executors")
    select = "concat(if(p % 2 = 0, 'U', 'u'), p div 2) collate utf8_lcase as p, cast(g as varchar(9)) as g, '7' as x"
    released, query = replaced_after_the_charge(spark, select, tmp_path)
    if CONNECT:  # two people whose names differ in case alone are two, and text is a number
        assert_frame_equal(released, pl.DataFrame({"g": ["a", "b"], "x": [280.0, 280.0], "people": [40, 40]}))
    else:  # analysed once, as the frame was made
        assert_frame_equal(released, query.release(BEFORE).sort("g"))


def test_a_view_that_no_longer_fits_publishes_nothing(spark, tmp_path):
    if not CONNECT:
        pytest.skip("a classic frame is analysed once")
    for select in ("p, g", "p, g, 'secret' as x", "p, g, array(x) as x"):
        with pytest.raises(dpp.ReleaseError) as caught:
            replaced_after_the_charge(spark, select, tmp_path)
        assert caught.value.__cause__ is caught.value.__context__ is None
