"""The query that was tried on a sample with Polars, unchanged on a Spark cluster.

    python examples/spark_visits.py        (needs dp-polars[spark], and Java 17 or newer)

Starts a cluster of two executor processes on this machine, makes visits of 50,000 patients inside Spark, releases once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import dp_polars as dpp
import dp_polars.spark

DIAGNOSES = ["asthma", "diabetes", "flu", "fracture", "none"]


def main(folder: Path) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Each of the patients below has four visits, so this drops none. Answers are about the rows that are left.
    query = (
        dpp.protect("patient_id", max_rows=4)
        .group_by({"hospital": ["A", "B", "C", "D"]})
        .agg(
            top=dpp.mode("diagnosis", DIAGNOSES, epsilon=0.5),
            age=dpp.median("age", range(121), epsilon=0.5),
        )
    )
    sample = pl.DataFrame(
        {"patient_id": [1, 2, 3], "hospital": ["A", "A", "B"], "diagnosis": ["flu"] * 3, "age": [30, 40, 50]}
    )
    print("on a sample of synthetic rows, with Polars:", query.release(sample).shape)

    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .appName("dp_polars: visits")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    patient = sf.col("id") % 50_000
    visits = spark.range(200_000).select(
        patient.alias("patient_id"),
        sf.element_at(sf.array(*map(sf.lit, ["A", "B", "C", "X"])), (sf.hash("id") % 4 + 4) % 4 + 1).alias("hospital"),
        sf.element_at(sf.array(*map(sf.lit, DIAGNOSES)), ((sf.hash(patient) % 7 + 7) % 7 % 5 + 1).cast("int")).alias(
            "diagnosis"
        ),
        (patient % 90).alias("age"),
    )
    budget = dpp.Budget(epsilon=2, path=folder / "spark-visits.db")
    released = dp_polars.spark.release(query, visits, budget=budget, path=folder / "released")
    released.orderBy("hospital").show()
    print("collected twice, drawn once:", released.collect() == released.collect())
    print(budget)
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
