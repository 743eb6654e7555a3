"""Sending stages to the executors' Python: whether they can run them is known before the charge."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from dp_polars.spark._workers import VERSION, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from dp_polars.spark._workers import Stage

# Rows of constants, over as many tasks as Spark takes: enough for one on each executor.
_ROWS = 1024

_ready: WeakSet[SparkSession] = WeakSet()


def mapped(rows: DataFrame, stage: Stage, schema: StructType | str) -> DataFrame:
    """Plan what a stage makes of rows.

    Raises
    ------
    RuntimeError
        If tasks over constants show that the executors lack this package. They run once for a session, before the
        charge. An executor that comes later with another Python fails on private rows.
    """
    if rows.sparkSession not in _ready:
        _check(rows.sparkSession)
        _ready.add(rows.sparkSession)
    return rows.mapInArrow(stage, schema)


def _check(spark: SparkSession) -> None:
    """Refuse executors that have not this version of the package."""
    try:
        found = set(spark.range(_ROWS).mapInArrow(versions, "version string").toArrow()["version"].to_pylist())
    except Exception as error:  # of constants alone, so it may be shown
        msg = f"a task that imports dp_polars failed on Spark's executors.{_HINT}"
        raise RuntimeError(msg) from error
    if found != {VERSION}:
        msg = f"Spark's executors must have dp_polars {VERSION}, got {', '.join(sorted(found))}.{_HINT}"
        raise RuntimeError(msg)


_HINT = (
    "\n\nHint: install the same version where PYSPARK_PYTHON points to on every executor; in a notebook on Databricks, "
    "by %pip install. Nothing was charged."
)
