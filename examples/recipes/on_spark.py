"""What follows from one person's rows, made before a release: Spark, classic or Connect."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf


def totals(visits: DataFrame) -> DataFrame:
    """One row a patient: the total and the mean of the costs, the number of visits, the number of hospitals."""
    return visits.groupBy("patient").agg(
        sf.sum("cost").alias("total"),
        sf.avg("cost").alias("mean"),
        sf.count("*").alias("visits"),
        sf.countDistinct("hospital").alias("hospitals"),
    )


def first_and_last(visits: DataFrame) -> DataFrame:
    """One row a patient: the hospital of the first visit, and of the last one."""
    return visits.groupBy("patient").agg(
        sf.min_by("hospital", "day").alias("first"),
        sf.max_by("hospital", "day").alias("last"),
    )


def gaps(visits: DataFrame) -> DataFrame:
    """Every visit, with the days since the patient's visit before; null for the first one."""
    before = sf.lag("day").over(Window.partitionBy("patient").orderBy("day"))
    return visits.withColumn("gap", sf.datediff("day", before))


def comes_back(visits: DataFrame) -> DataFrame:
    """The visits that follow another one of the same patient within 1 to 30 days."""
    return gaps(visits).filter(sf.col("gap").between(1, 30))


def costly(visits: DataFrame) -> DataFrame:
    """The visits of patients whose costs are above 700 in all."""
    total = sf.sum("cost").over(Window.partitionBy("patient"))
    return visits.withColumn("total", total).filter("total > 700")


def with_sex(visits: DataFrame, patients: DataFrame) -> DataFrame:
    """Two tables about the same people, joined on the privacy unit."""
    return visits.join(patients, "patient")


def line_items(orders: DataFrame, items: DataFrame) -> DataFrame:
    """Line items name an order, and the order names a patient."""
    return orders.join(items, "order")


def distinct(visits: DataFrame) -> DataFrame:
    """Each combination of patient, day and hospital once."""
    return visits.select("patient", "day", "hospital").distinct()
