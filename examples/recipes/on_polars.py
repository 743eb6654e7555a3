"""Values from several rows of one person, made before `protect`: plain Polars."""

from __future__ import annotations

from datetime import date

import polars as pl

JANUARY = date(2026, 1, 1)
VISITS = pl.DataFrame(
    {
        "patient": [1, 1, 1, 2, 3, 3, 4, 4, 4, 4],
        "day": [1, 11, 60, 5, 2, 3, 9, 39, 39, 100],
        "hospital": ["A", "A", "B", "A", "B", "B", "C", "A", "A", "B"],
        "cost": [100, 300, 200, 50, 400, 400, 10, 20, 20, 700],
    }
).with_columns(day=pl.lit(JANUARY) + pl.duration(days=pl.col("day")))
PATIENTS = pl.DataFrame({"patient": [1, 2, 3, 5], "sex": ["f", "m", "f", "m"]})
ORDERS = pl.DataFrame({"order": [10, 11, 12], "patient": [1, 1, 3]})
ITEMS = pl.DataFrame({"order": [10, 10, 11, 12, 13], "units": [2, 3, 1, 5, 9]})


def totals(visits: pl.LazyFrame) -> pl.LazyFrame:
    """Return each patient's total and mean cost, and number of visits and hospitals."""
    return visits.group_by("patient").agg(
        total=pl.col("cost").sum(),
        mean=pl.col("cost").mean(),
        visits=pl.len(),
        hospitals=pl.col("hospital").n_unique(),
    )


def first_and_last(visits: pl.LazyFrame) -> pl.LazyFrame:
    """Return the hospitals of each patient's first and last visit."""
    return visits.group_by("patient").agg(
        first=pl.col("hospital").sort_by("day").first(),
        last=pl.col("hospital").sort_by("day").last(),
    )


def gaps(visits: pl.LazyFrame) -> pl.LazyFrame:
    """Add the days since the same patient's visit before; null for the first one."""
    before = pl.col("day").diff().over("patient", order_by="day")
    return visits.with_columns(gap=before.dt.total_days())


def comes_back(visits: pl.LazyFrame) -> pl.LazyFrame:
    """Keep visits that follow another one of the same patient within 1 to 30 days."""
    return gaps(visits).filter(pl.col("gap").is_between(1, 30))


def costly(visits: pl.LazyFrame) -> pl.LazyFrame:
    """Keep the visits of patients with costs above 700 in total."""
    return visits.filter(pl.col("cost").sum().over("patient") > 700)


def with_sex(visits: pl.LazyFrame, patients: pl.LazyFrame) -> pl.LazyFrame:
    """Join two tables about the same people on the privacy unit."""
    return visits.join(patients, on="patient", how="inner")


def line_items(orders: pl.LazyFrame, items: pl.LazyFrame) -> pl.LazyFrame:
    """Join line items to their orders, which name the patient."""
    return orders.join(items, on="order", how="inner")


def distinct(visits: pl.LazyFrame) -> pl.LazyFrame:
    """Keep each combination of patient, day and hospital once."""
    return visits.select("patient", "day", "hospital").unique()
