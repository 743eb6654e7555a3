"""Ten statistics about hospital stays, one guarantee: ε = 1 and δ = 10⁻⁶ for everything on the page.

    python examples/whole_report.py [FOLDER]        (needs dp-polars[duckdb,plot])

The report is asked once, without data. Then Polars answers it from a frame, and DuckDB from a table.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import polars as pl

import dp_polars as dpp

# From public knowledge, never from the rows.
REGIONS = ["North", "East", "South", "West"]
HOSPITALS = [f"{region} {number}" for region in REGIONS for number in (1, 2, 3)]
AGES = ["0-17", "18-44", "45-64", "65+"]
MONTHS = [date(2025, month, 1) for month in range(1, 13)]
DIAGNOSES = ["asthma", "diabetes", "flu", "fracture", "heart", "migraine", "pneumonia", "stroke"]


def stays(people: int = 30_000, seed: int = 7) -> pl.DataFrame:
    """Return made-up stays: most people have one or two, some have many."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), np.minimum(rng.zipf(2.2, people), 60))
    n, home = len(person), rng.integers(0, 12, people)[person]
    age = rng.integers(0, 4, people)[person]
    month = np.minimum(rng.integers(0, 12, n) + (rng.random(n) < 0.2), 11)
    hospital = np.where(rng.random(n) < 0.9, home, rng.integers(0, 12, n))
    diagnosis = (age * 2 + rng.zipf(1.7, n)) % len(DIAGNOSES)
    days = np.minimum(rng.geometric(0.25 - 0.04 * age), 60)
    columns = {
        "patient": person,
        "hospital": np.array(HOSPITALS)[hospital],
        "region": np.array(REGIONS)[hospital // 3],
        "age": np.array(AGES)[age],
        "month": np.array(MONTHS, "datetime64[D]")[month],
        "diagnosis": np.array(DIAGNOSES)[diagnosis],
        "days": days,
        "cost": days * rng.integers(300, 900, n),
        "readmitted": rng.random(n) < 0.08 + 0.03 * age,
        "referrer": np.char.add("practice ", np.minimum(rng.zipf(1.3, n), 5000).astype(str)),
    }
    return pl.DataFrame(columns)


def report(private: dpp.PrivateFrame) -> dpp.Publication:
    """Request ten statistics: `scaled_to` shares one guarantee."""
    # A person counts in one cell, and for one referrer.
    once = private.with_limits(max_groups=1, max_rows_per_group=1)
    by_hospital = private.group_by({"hospital": HOSPITALS}).agg(
        mean=dpp.mean("days", 0, 30),  # 1. how long a stay is
        # 2. and its quantiles
        quantiles=dpp.quantile("days", [0.25, 0.5, 0.75], range(1, 61), loss_weight=3),
        readmitted=dpp.share(pl.col("readmitted")),  # 3. how many come back
    )
    return dpp.publication(
        # 4. how many people there are by region and month
        people=private.group_by({"region": REGIONS, "month": MONTHS}).agg(
            people=dpp.n_people(),
        ),
        # 5. the most common diagnosis by region and age
        diagnosis=private.group_by({"region": REGIONS, "age": AGES}).agg(
            people=dpp.n_people(), diagnosis=dpp.mode("diagnosis", DIAGNOSES)
        ),
        by_hospital=by_hospital,
        # 6. the five most common diagnoses; 7. the total cost
        in_all=private.agg(
            top=dpp.top_k("diagnosis", 5, DIAGNOSES),
            cost=dpp.sum("cost", 0, 20_000, step=1, loss_weight=3),
        ),
        # 8. a cross table that agrees with its margins
        cross=once.cube(
            {"region": REGIONS, "age": AGES},
            tables=[("region",), ("age",), ("region", "age")],
        ),
        # 9. a trend
        trend=private.group_by({"month": MONTHS}).agg(stays=dpp.len()),
        # 10. referrers that nobody listed
        referrers=once.keys("referrer", with_counts=True),
        # and how many stays of hospitals do not count because of the limits
        dropped=by_hospital.n_rows_dropped(10),
    )


LIMITS = {"max_groups": 4, "max_rows_per_group": 2}
TITLES = {
    "people": "People by region and month",
    "diagnosis": "The most common diagnosis",
    "by_hospital": "Stays by hospital",
    "in_all": "All hospitals together",
    "cross: count by region": "People by region",
    "cross: count by age": "People by age",
    "cross: count by region, age": "People by region and age",
    "trend": "Stays by month",
    "referrers": "Who refers",
    "dropped": "Stays that do not count",
}


def in_polars(rows: pl.DataFrame, folder: Path) -> tuple[dpp.Publication, dict[str, Any]]:
    """Release the report by one charge, and write its page and statement."""
    path = folder / "stays.db"
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=path, name="stays of 2025")
    asked = report(rows.dp.protect("patient", budget=budget, **LIMITS)).scaled_to()
    print(asked.explain())
    released = asked.release(intervals=True)
    units = {"mean": "days", "quantiles": "days", "cost": "€"}
    about = {"name": "Hospital stays in 2025", "units": units}
    page = dpp.report(released, asked, folder / "stays.html", titles=TITLES, **about)
    (folder / "statement.md").write_text(asked.statement(name=about["name"]).to_markdown())
    print(budget, f"The page: {page}", sep="\n")
    return asked, released


def in_duckdb(rows: pl.DataFrame) -> dict[str, Any]:
    """Release the same report from a table of DuckDB."""
    table = ibis.duckdb.connect().create_table("stays", rows.to_arrow())
    asked = report(dpp.protect("patient", **LIMITS)).scaled_to(epsilon=1, delta=1e-6)
    budget = dpp.Budget(epsilon=1, delta=1e-6, name="in DuckDB")
    return dpp.sql.release(asked, table, budget=budget, intervals=True)


def main(folder: Path) -> None:
    rows = stays()
    asked, released = in_polars(rows, folder)
    for name, answer in released.items():
        print(name, answer, sep="\n")
    print("In DuckDB:", *in_duckdb(rows).values(), sep="\n")
    try:
        from dp_polars import plot
    except ImportError:
        return
    figure = plot.answers(released["by_hospital"], asked.queries["by_hospital"])
    figure.save(folder / "hospitals.svg")
    print(f"A figure: {folder / 'hospitals.svg'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
