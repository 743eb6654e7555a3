"""Spark runs the conformance suite of all engines."""

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

    # Rows that come from memory by a Python function have no text, and so no cached answers: this one is given one.
    def test_what_is_cached_is_shown_in_every_way_for_nothing(self, tmp_path, notes, monkeypatch):
        monkeypatch.setattr(_SparkEngine, "preprocessing", lambda _: "visits")
        super().test_what_is_cached_is_shown_in_every_way_for_nothing(tmp_path, notes)

    @on_both
    @pytest.mark.parametrize("misfit", Conformance.MISFITS)
    def test_what_does_not_fit_the_columns_is_free(self, misfit, notes):
        super().test_what_does_not_fit_the_columns_is_free(misfit, notes)

    @on_both
    @pytest.mark.parametrize("case", Conformance.EXPRESSIONS)
    def test_expressions_run_or_are_refused_for_free(self, case, notes):
        super().test_expressions_run_or_are_refused_for_free(case, notes)

    @on_both
    def test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars(self, tmp_path):
        """Also into a file, and where a group comes in several batches."""
        self.path = tmp_path / "released"
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 20)
        try:
            super().test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars()
        finally:
            self.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


# What the driver's own way can change: who draws, from which counts, and when. Selected keys never come to
# the driver, and what is counted is bounded and told apart where the rows are: the same for both.
OF_DRAWING = [
    "test_a_failure_shows_no_value_and_stays_charged",
    "test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars",
    "test_every_group_is_drawn_once_for_each_output",
    "test_lists_of_the_most_common_are_the_true_ones_at_a_large_loss",
    "test_no_rows_are_empty_histograms_and_have_no_keys",
    "test_rows_and_people_are_counted_as_by_the_reference",
    "test_rows_are_read_only_after_the_one_charge",
    "test_the_first_above_a_threshold_is_the_true_one_at_a_large_loss",
    "test_values_of_every_type_have_the_codes_of_the_reference",
    "test_weights_are_added_up",
    "test_what_is_cached_is_shown_in_every_way_for_nothing",
]
ALL = {name for name in dir(Conformance) if name.startswith("test_")}
assert {*OF_DRAWING} <= ALL


@pytest.mark.usefixtures("few_tasks")
class TestSparkDrawnByTheDriver(TestSpark):
    locals().update(dict.fromkeys(ALL - {*OF_DRAWING}))  # not collected again

    @pytest.fixture(autouse=True)
    def _on_the_driver(self, monkeypatch, on_executors):
        monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", 10**9)
