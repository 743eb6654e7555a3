"""What follows from one person's rows, made before a release: Ibis, on DuckDB or Postgres."""

from __future__ import annotations

import ibis
from ibis import _
from ibis.expr.types import Table


def totals(visits: Table) -> Table:
    """One row a patient: the total and the mean of the costs, the number of visits, the number of hospitals."""
    return visits.group_by("patient").aggregate(
        total=_.cost.sum(),
        mean=_.cost.cast("float64").mean(),
        visits=_.count(),
        hospitals=_.hospital.nunique(),
    )


def first_and_last(visits: Table) -> Table:
    """One row a patient: the hospital of the first visit, and of the last one."""
    return visits.group_by("patient").aggregate(
        first=_.hospital.argmin(_.day),
        last=_.hospital.argmax(_.day),
    )


def gaps(visits: Table) -> Table:
    """Every visit, with the days since the patient's visit before; null for the first one."""
    before = visits.day.lag().over(group_by="patient", order_by="day")
    return visits.mutate(gap=visits.day.delta(before, unit="day"))


def comes_back(visits: Table) -> Table:
    """The visits that follow another one of the same patient within 1 to 30 days."""
    return gaps(visits).filter(_.gap.between(1, 30))


def costly(visits: Table) -> Table:
    """The visits of patients whose costs are above 700 in all."""
    total = visits.cost.sum().over(ibis.window(group_by="patient"))
    return visits.mutate(total=total).filter(_.total > 700)


def with_sex(visits: Table, patients: Table) -> Table:
    """Two tables about the same people, joined on the privacy unit."""
    return visits.join(patients, "patient")


def line_items(orders: Table, items: Table) -> Table:
    """Line items name an order, and the order names a patient."""
    return orders.join(items, "order")


def distinct(visits: Table) -> Table:
    """Each combination of patient, day and hospital once."""
    return visits.select("patient", "day", "hospital").distinct()
