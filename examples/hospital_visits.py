"""The report that a manager gets: counts, the top diagnosis, median age, mean stay and costs of every hospital.

    python examples/hospital_visits.py [FOLDER]

Makes the visits of 200,000 patients, several rows each, as Parquet files in FOLDER (default: a temporary one). A budget
that outlives the process pays for the report: for the answers, and for how many visits the bounds on a patient's rows
leave out. The figure needs the extra `plot`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import dp_polars as dpp

PATIENTS = 200_000
HOSPITALS = ["Ahlbeck", "Bansin", "Heringsdorf", "Koserow", "Zinnowitz"]
SHARES = [0.0002, 0.003, 0.05, 0.25, 0.6968]
# At most this many hospitals of one patient count, and this many visits to each: a guess that costs nothing.
BOUNDS = {"max_groups": 2, "max_rows_per_group": 8}
DIAGNOSES = ["asthma", "diabetes", "flu", "fracture", "none"]


def make_visits(folder: Path) -> None:
    rng = np.random.default_rng(5)
    visits = rng.geometric(0.25, PATIENTS)
    patient = np.repeat(np.arange(PATIENTS), visits)
    n = len(patient)
    home = rng.choice(len(HOSPITALS), PATIENTS, p=SHARES)[patient]  # most people keep to one hospital
    hospital = np.where(rng.random(n) < 0.9, home, rng.choice(len(HOSPITALS), n, p=SHARES))
    sick = (rng.random(n) * (3 + hospital % 3)).astype(np.int64) % len(DIAGNOSES)
    days = np.minimum(rng.geometric(0.3 - 0.03 * hospital), 60)
    frame = pl.DataFrame(
        {
            "patient_id": patient,
            "year": rng.integers(2022, 2025, n),
            "hospital": pl.Series(HOSPITALS).gather(hospital),
            "diagnosis": pl.Series(DIAGNOSES).gather(sick),
            "age": np.clip(rng.normal(52, 20, PATIENTS), 0, 110).astype(np.int64)[patient],
            "days": days,
            "cost": (days * rng.gamma(4, 120, n)).round(2),
        }
    )
    for i, part in enumerate(frame.iter_slices(n // 4 + 1)):
        part.write_parquet(folder / f"visits-{i}.parquet")
    print(f"{n:,} synthetic visits of {PATIENTS:,} patients.\n")


def visits_of_2024(folder: Path, budget: dpp.Budget) -> dpp.PrivateFrame:
    visits = pl.scan_parquet(folder / "visits-*.parquet").dp.protect("patient_id", budget=budget, **BOUNDS)
    return visits.filter(pl.col("year") == 2024)


def report(visits: dpp.PrivateFrame) -> dpp.PrivateQuery:
    """Make the report: one guarantee for all of it; the mean and the sum get twice the part of the others."""
    query = visits.group_by({"hospital": HOSPITALS}).agg(
        patients=dpp.n_people(),
        visits=dpp.len(),
        days=pl.col("days").dp.mean(0, 30, loss_weight=2),
        # What one patient costs a hospital in a year is clipped, however many visits. A sum of rows up to 10,000
        # would be lower, and have more noise.
        cost=pl.col("cost").dp.sum(0, 30_000, step=1, per_person=(0, 30_000), loss_weight=2),
        age=pl.col("age").dp.median(range(121)),
        top=pl.col("diagnosis").dp.mode(DIAGNOSES, too_few=20),
    )
    return query.scaled_to(epsilon=2, delta=1e-6)


def table(released: pl.DataFrame) -> pl.DataFrame:
    """Return the numbers with their intervals as text. Whatever you compute from a release costs nothing."""

    def shown(name: str, unit: int = 1, digits: int = 0) -> pl.Expr:
        # A count below 0 is noise: to clip it is free, too.
        ends = ((pl.col(name + end) / unit).clip(0).round(digits) for end in ("", "_low", "_high"))
        return pl.format("{} ({} to {})", *(end if digits else end.cast(pl.Int64) for end in ends))

    return released.sort("patients", descending=True).select(
        "hospital",
        shown("patients").alias("patients"),
        shown("visits").alias("visits"),
        shown("days", digits=1).alias("mean days"),
        shown("cost", unit=1000).alias("cost, thousands"),
        pl.col("age").alias("median age"),
        pl.col("top").fill_null("(too few)").alias("top diagnosis"),
    )


def main(folder: Path) -> None:
    make_visits(folder)
    budget = dpp.Budget(epsilon=3, delta=1e-6, path=folder / "hospital-visits.db", name="hospital visits")
    visits = visits_of_2024(folder, budget)
    query = report(visits)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True, fmt_str_lengths=60):
        print("Before a row is read: what it costs one patient, and how far off an answer may be (95 %).")
        print(query.explain().select("output", "selects", "rho", pl.col("error_95").round(1), "error_unit"))
        released = query.release(intervals=True, engine="streaming")
        print("\nThe report on 2024, under the limits on each patient's visits; costs are of totals that are clipped.")
        print("Each range is of the noise alone, and holds the number without it with probability 95 %.")
        print(table(released))
        cut, low, high = query.n_rows_dropped(8, epsilon=0.1).release(intervals=True, engine="streaming").row(0)
        print(f"About {cut:,} visits ({low:,} to {high:,}) do not count because of the limits.")
        print("So counts and sums are a little too low: no other range says so.")
        print("\nPaid before a row was read, and stored on disk:", budget)
        print(budget.log().select("what", "unit", pl.col("loss", "running_rho").round(3)))
    print("\nThe same report again does not fit:")
    try:
        query.release()
    except dpp.BudgetExceededError as error:
        print(error)
    try:
        from dp_polars import plot
    except ImportError:
        return
    plot.answers(released, query).save(folder / "report.png", scale_factor=2)
    print(f"\nThe figure to share: {folder / 'report.png'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
