"""A private frame from end to end: public keys, several rows per person, one budget, a refused over-spend.

    python examples/hospital_visits.py [FOLDER]

Makes the visits of 200,000 patients, several rows each, as Parquet files in FOLDER (default: a temporary one), asks for
the most common diagnosis and the median age of every ward of three hospitals in 2024, and shows what it cost.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import dp_polars as dpp

PATIENTS = 200_000
HOSPITALS = ["A", "B", "C"]
WARDS = range(1, 9)
DIAGNOSES = ["asthma", "diabetes", "flu", "fracture", "none"]


def make_visits(folder: Path) -> None:
    rng = np.random.default_rng(5)
    visits = rng.geometric(0.25, PATIENTS)
    patient = np.repeat(np.arange(PATIENTS), visits)
    n = len(patient)
    age = np.clip(rng.normal(52, 20, PATIENTS), 0, 110).astype(np.int64)[patient]
    home = rng.integers(0, len(HOSPITALS), PATIENTS)[patient]  # most people keep to one hospital
    hospital = np.where(rng.random(n) < 0.9, home, rng.integers(0, len(HOSPITALS), n))
    ward = rng.integers(1, 9, n)
    sick = (rng.random(n) * (3 + ward % 3)).astype(np.int64) % len(DIAGNOSES)
    frame = pl.DataFrame(
        {
            "patient_id": patient,
            "year": rng.integers(2022, 2025, n),
            "hospital": pl.Series(HOSPITALS).gather(hospital),
            "ward": ward,
            "diagnosis": pl.Series(DIAGNOSES).gather(sick),
            "age": age,
        }
    )
    for i, part in enumerate(frame.iter_slices(n // 4 + 1)):
        part.write_parquet(folder / f"visits-{i}.parquet")
    print(f"made {n:,} visits of {PATIENTS:,} patients in {folder}")


def main(folder: Path) -> None:
    make_visits(folder)
    budget = dpp.Budget(epsilon=2, path=folder / "visits-budget.db", name="hospital visits")
    query = (
        pl.scan_parquet(folder / "visits-*.parquet")
        .dp.protect("patient_id", budget=budget, max_groups=2, max_rows_per_group=1)
        .filter(pl.col("year") == 2024)
        .group_by({"hospital": HOSPITALS, "ward": WARDS})
        .agg(
            top=pl.col("diagnosis").dp.mode(DIAGNOSES, epsilon=0.5),
            age=pl.col("age").dp.median(range(121), epsilon=0.25),
        )
    )
    print(query)
    print("\nexplain(), before a row is read:")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200):
        print(query.explain())
    start = time.perf_counter()
    released = query.release(engine="streaming")
    print(f"\nreleased in {time.perf_counter() - start:.2f} s:")
    with pl.Config(tbl_rows=8):
        print(released)
    query.sink_parquet(folder / "published.parquet")
    print("\na second release, into a file that says what it cost:")
    print(dpp.read_claim(folder / "published.parquet"))
    print("\nthe budget:", budget)
    print(budget.log())
    print("\na third release does not fit:")
    try:
        query.release()
    except dpp.BudgetExceededError as error:
        print(error)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
