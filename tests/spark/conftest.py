"""A real Spark cluster for the tests of this folder: two executor processes of their own on this machine."""

import os
import shutil

import pytest

from tests.helpers.needs import lack
from tests.spark.tools import PARTITIONS, started


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        lack("SPARK", "Java 17 or newer is missing: neither java nor JAVA_HOME was found")
    session = started(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def on_executors(monkeypatch):
    """Histograms of any size are drawn by executors."""
    import dp_polars.spark

    monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", 0)


@pytest.fixture
def few_tasks(spark):
    """Small plans in few tasks, where it does not matter how many there are."""
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
