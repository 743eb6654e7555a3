"""Record and replay of every way to ask, on Spark: `tests/replay`."""

import importlib
from functools import partial

import pytest

import dp_polars as dpp
from dp_polars._frames.cube_query import CubeQuery
from tests.fuzzing.exploring import explore
from tests.replay import doors
from tests.replay.cases import ONLY_KINDS, WAYS, cases
from tests.replay.checks import check
from tests.replay.doors import Doors
from tests.spark.tools import DDL, MARKS, ddl, need_spark, to_polars, to_spark

need_spark()

from pyspark import cloudpickle

pytestmark = MARKS


def ask(case, spark, side):
    frame = case.frame(side)
    rows = to_spark(spark, frame, ", ".join(f"`{name}` {ddl(dtype)}" for name, dtype in frame.schema.items()))
    query = case.query(dpp.protect)
    if isinstance(query, CubeQuery):
        return {"answers": dpp.spark.release(query, rows)}
    released = dpp.spark.release(query, rows, intervals=case.intervals)
    answers = to_polars(released)
    return {"answers": answers, "type": released.schema.json()}


@pytest.mark.usefixtures("few_tasks")
# What is counted and charged is the same wherever it is drawn: one way in three is drawn by the driver, too.
@pytest.mark.parametrize(
    ("way", "where"), [(way, "executors") for way in WAYS] + [(way, "driver") for way in [*WAYS][::3]]
)
def test_answers_follow_from_the_outputs_and_inputs_move_as_claimed(way, where, spark, tmp_path, request):
    if where == "executors":
        request.getfixturevalue("on_executors")
    # The classes of the suite are not importable on the executors.
    cloudpickle.register_pickle_by_value(doors)
    importlib.import_module("dp_polars.spark")
    answered = []

    def holds(case):
        answered.append(check(case, partial(ask, case, spark), partial(Doors, folder=tmp_path)))

    # Few, for each takes seconds: so a person has many rows in each, and in many groups.
    few = cases(way, ONLY_KINDS.get(way, DDL), DDL).filter(lambda case: len(case.one) > 4 and case.base)
    if way != "keys":
        few = few.filter(lambda case: case.groups is not None)
    explore(holds, few, examples=1)
    assert all(answered), "there is no answer"
