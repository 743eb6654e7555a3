"""Spark runs the conformance suite of all engines."""

from __future__ import annotations

import sys

import pytest

from tests.engines import conformance
from tests.engines.conformance import Conformance
from tests.spark.tools import DDL, MARKS, ddl, need_spark, to_polars, to_spark

need_spark()

from pyspark import cloudpickle  # noqa: E402

import dp_polars.spark  # noqa: E402
from dp_polars.spark import _SparkEngine  # noqa: E402

pytestmark = MARKS


def reading(read):
    """Batches as they come, `read` being called where they do."""

    def stage(batches):
        for batch in batches:
            read()
            yield batch

    return stage


@pytest.mark.usefixtures("few_tasks", "on_executors")
class TestSpark(Conformance):
    kinds = frozenset(DDL)
    path = None

    @pytest.fixture(autouse=True)
    def _session(self, spark):
        # The classes of the suite are not importable on the executors.
        for module in (conformance, sys.modules[__name__]):
            cloudpickle.register_pickle_by_value(module)
        self.spark = spark

    def make(self, frame, read=None):
        columns = [(name.replace("`", "``"), ddl(dtype)) for name, dtype in frame.schema.items()]
        rows = to_spark(self.spark, frame, ", ".join(f"`{name}` {kind}" for name, kind in columns))
        if read is not None:
            rows = rows.mapInArrow(reading(read), rows.schema)
        return _SparkEngine(rows, self.path)

    def to_polars(self, released):
        return to_polars(released)

    def test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars(self, tmp_path):
        """Also into a file, and where a group comes in several batches."""
        self.path = tmp_path / "released"
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 20)
        try:
            super().test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars()
        finally:
            self.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.usefixtures("few_tasks")
class TestSparkDrawnByTheDriver(TestSpark):
    @pytest.fixture(autouse=True)
    def _on_the_driver(self, monkeypatch, on_executors):
        monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", 10**9)
