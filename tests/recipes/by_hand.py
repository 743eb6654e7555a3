"""Queries about the tables that recipes make, and the answers worked out by hand from the ten visits."""

from __future__ import annotations

import polars as pl
from recipes.on_polars import ITEMS, ORDERS, PATIENTS, VISITS

import dp_polars as dpp

SURE = 10**9  # a loss at which the noise rounds to nothing
TABLES = {"visits": VISITS, "patients": PATIENTS, "orders": ORDERS, "items": ITEMS}
SEVERAL = ("visits", "patients"), ("orders", "items")


def sums(*names: str) -> dict[str, dpp.PrivateExpr]:
    return {name: dpp.sum(name, 0, 10_000, step=0.5 if name == "mean" else 1, epsilon=SURE) for name in names}


def counts(*names: str) -> dict[str, dpp.PrivateExpr]:
    return {name: dpp.value_counts(name, ["A", "B", "C"], epsilon=SURE) for name in names}


PEOPLE = {"people": dpp.n_people(epsilon=SURE), "rows": dpp.len(epsilon=SURE)}
# Recipe -> the tables that it takes, what is asked, and the answers.
RECIPES = {
    # 600 + 50 + 800 + 750; 200 + 50 + 400 + 187.5; hospitals 2 + 1 + 1 + 3
    "totals": (
        ("visits",),
        PEOPLE | sums("total", "mean", "visits", "hospitals"),
        {"people": 4, "rows": 4, "total": 2200, "mean": 837.5, "visits": 10, "hospitals": 7},
    ),
    # First A A B C, last B A B B.
    "first_and_last": (("visits",), counts("first", "last"), {"first": [2, 1, 1], "last": [1, 3, 0]}),
    # 10 + 49 of patient 1, 1 of patient 3, 30 + 0 + 61 of patient 4.
    "gaps": (
        ("visits",),
        {"known": dpp.count("gap", epsilon=SURE)} | sums("gap"),
        {"known": 6, "gap": 151},
    ),
    # After 10 days, 1 and 30.
    "comes_back": (("visits",), PEOPLE, {"people": 3, "rows": 3}),
    # Patients 3 and 4, who pay 800 and 750.
    "costly": (("visits",), PEOPLE, {"people": 2, "rows": 6}),
    # Patient 4 is in no list of patients, and patient 5 has no visit: patients 1 and 3 are f, patient 2 is m.
    "with_sex": (
        ("visits", "patients"),
        PEOPLE | {"sex": dpp.value_counts("sex", ["f", "m"], epsilon=SURE)},
        {"people": 3, "rows": 6, "sex": [2, 1]},
    ),
    # Order 13 is nobody's.
    "line_items": (("orders", "items"), PEOPLE | sums("units"), {"people": 2, "rows": 4, "units": 11}),
    # One visit is there twice.
    "distinct": (("visits",), PEOPLE, {"people": 4, "rows": 9}),
}


def asked(recipe: str) -> dpp.PrivateQuery:
    return dpp.protect("patient", max_rows=10).agg(**RECIPES[recipe][1])


def check(recipe: str, released: pl.DataFrame) -> None:
    (row,) = released.to_dicts()
    answers = {name: [one["count"] for one in cell] if isinstance(cell, list) else cell for name, cell in row.items()}
    assert answers == RECIPES[recipe][2]
