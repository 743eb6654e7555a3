"""Spark runs the conformance suite of all engines."""

from __future__ import annotations

import sys

import pytest

from tests.engines import conformance
from tests.engines.conformance import Conformance
from tests.spark.tools import DDL, MARKS, ddl, need_spark, on_both, to_polars, to_spark

need_spark()

from pyspark import cloudpickle

import dp_polars.spark
from dp_polars.spark import _SparkEngine

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

    # Rows that come from memory by a Python function have no text, and so no kept answers: these are given one.
    def test_a_kept_answer_is_what_was_released(self, tmp_path, notes, monkeypatch):
        monkeypatch.setattr(_SparkEngine, "preparation", lambda _: "visits")
        super().test_a_kept_answer_is_what_was_released(tmp_path, notes)

    def test_what_is_kept_is_shown_in_every_way_for_nothing(self, tmp_path, notes, monkeypatch):
        monkeypatch.setattr(_SparkEngine, "preparation", lambda _: "visits")
        super().test_what_is_kept_is_shown_in_every_way_for_nothing(tmp_path, notes)

    @on_both
    def test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars(self, tmp_path):
        """Also into a file, and where a group comes in several batches."""
        self.path = tmp_path / "released"
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 20)
        try:
            super().test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars()
        finally:
            self.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


# Keys that nobody listed never come to the driver, and who is cut or told apart is found where the rows are counted:
# the same for both.
COUNTED_ALIKE = [
    "test_an_engine_says_how_many_constants_it_tells_apart",
    "test_expressions_run_or_are_refused_for_free",
    "test_keys_are_found_as_by_the_reference",
    "test_keys_of_every_type_are_found",
    "test_keys_that_do_not_fit_the_columns_are_free",
    "test_people_are_cut_where_an_output_loses_something_of_them",
    "test_people_of_every_type_are_neither_merged_nor_divided",
    "test_people_of_every_type_are_told_apart_by_key",
    "test_people_who_are_cut_are_those_of_the_reference",
    "test_public_values_that_are_one_to_the_engine_are_refused_for_free",
    "test_what_does_not_fit_the_columns_is_free",
    "test_what_stays_is_a_random_subset_of_a_persons_own_rows",
]
assert {*COUNTED_ALIKE} <= {*dir(Conformance)}


@pytest.mark.usefixtures("few_tasks")
class TestSparkDrawnByTheDriver(TestSpark):
    locals().update(dict.fromkeys(COUNTED_ALIKE))  # not collected again

    @pytest.fixture(autouse=True)
    def _on_the_driver(self, monkeypatch, on_executors):
        monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", 10**9)
