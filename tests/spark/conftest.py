"""A real Spark cluster for the tests of this folder: two executor processes of their own on this machine."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from tests.helpers.needs import lack
from tests.spark.tools import PARTITIONS, session_of


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        lack("SPARK", "Java 17 or newer is missing: neither java nor JAVA_HOME was found")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        # A process has sessions of one kind: SPARK_API_MODE=connect makes this one of Spark Connect.
        .config("spark.checkpoint.dir", str(folder / "checkpoints"))
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.task.maxFailures", "3")
        .config("spark.shuffle.io.maxRetries", "1")
        .config("spark.shuffle.io.retryWait", "500ms")
        .config("spark.sql.session.timeZone", "America/New_York")
        # Adaptive execution would put frames as small as these into one task.
        .config("spark.sql.shuffle.partitions", PARTITIONS)
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    )
    session = session_of(builder)
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
