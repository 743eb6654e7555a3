"""Values from several rows of one person, made before a release: Spark, classic or Connect."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf


def totals(visits: DataFrame) -> DataFrame:
    """Return each patient's total and mean cost, and number of visits and hospitals."""
    return visits.groupBy("patient").agg(
        sf.sum("cost").alias("total"),
        sf.avg("cost").alias("mean"),
        sf.count("*").alias("visits"),
        sf.countDistinct("hospital").alias("hospitals"),
    )


def first_and_last(visits: DataFrame) -> DataFrame:
    """Return the hospitals of each patient's first and last visit."""
    return visits.groupBy("patient").agg(
        sf.min_by("hospital", "day").alias("first"),
        sf.max_by("hospital", "day").alias("last"),
    )


def gaps(visits: DataFrame) -> DataFrame:
    """Add the days since the same patient's visit before; null for the first one."""
    before = sf.lag("day").over(Window.partitionBy("patient").orderBy("day"))
    return visits.withColumn("gap", sf.datediff("day", before))


def comes_back(visits: DataFrame) -> DataFrame:
    """Keep visits that follow another one of the same patient within 1 to 30 days."""
    return gaps(visits).filter(sf.col("gap").between(1, 30))


def costly(visits: DataFrame) -> DataFrame:
    """Keep the visits of patients with costs above 700 in total."""
    total = sf.sum("cost").over(Window.partitionBy("patient"))
    return visits.withColumn("total", total).filter("total > 700")


def with_sex(visits: DataFrame, patients: DataFrame) -> DataFrame:
    """Join two tables about the same people on the privacy unit."""
    return visits.join(patients, "patient")


def line_items(orders: DataFrame, items: DataFrame) -> DataFrame:
    """Join line items to their orders, which name the patient."""
    return orders.join(items, "order")


def distinct(visits: DataFrame) -> DataFrame:
    """Keep each combination of patient, day and hospital once."""
    return visits.select("patient", "day", "hospital").distinct()
