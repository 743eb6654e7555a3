"""Values from several rows of one person, made before a release: Ibis, on DuckDB or Postgres."""

from __future__ import annotations

import ibis
from ibis import _
from ibis.expr.types import Table


def totals(visits: Table) -> Table:
    """Return each patient's total and mean cost, and number of visits and hospitals."""
    return visits.group_by("patient").aggregate(
        total=_.cost.sum(),
        mean=_.cost.cast("float64").mean(),
        visits=_.count(),
        hospitals=_.hospital.nunique(),
    )


def first_and_last(visits: Table) -> Table:
    """Return the hospitals of each patient's first and last visit."""
    return visits.group_by("patient").aggregate(
        first=_.hospital.argmin(_.day),
        last=_.hospital.argmax(_.day),
    )


def gaps(visits: Table) -> Table:
    """Add the days since the same patient's visit before; null for the first one."""
    before = visits.day.lag().over(group_by="patient", order_by="day")
    return visits.mutate(gap=visits.day.delta(before, unit="day"))


def comes_back(visits: Table) -> Table:
    """Keep visits that follow another one of the same patient within 1 to 30 days."""
    return gaps(visits).filter(_.gap.between(1, 30))


def costly(visits: Table) -> Table:
    """Keep the visits of patients with costs above 700 in total."""
    total = visits.cost.sum().over(ibis.window(group_by="patient"))
    return visits.mutate(total=total).filter(_.total > 700)


def with_sex(visits: Table, patients: Table) -> Table:
    """Join two tables about the same people on the privacy unit."""
    return visits.join(patients, "patient")


def line_items(orders: Table, items: Table) -> Table:
    """Join line items to their orders, which name the patient."""
    return orders.join(items, "order")


def distinct(visits: Table) -> Table:
    """Keep each combination of patient, day and hospital once."""
    return visits.select("patient", "day", "hospital").distinct()
