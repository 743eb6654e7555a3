"""What one order of a person's groups and rows keeps: the exact joint law of several specs, over all orders."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import permutations

import numpy as np
import polars as pl

import dp_polars as dpp
from dp_polars._release.protection import Limits
from tests.statistical.goodness import fits


def crowd(seed, people=40):
    """Rows of people who have up to 30, in groups 0 … 6 of which 5 are public, and values 0 … 5, of which 5 count."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), rng.integers(1, 31, people))
    return pl.DataFrame(
        {
            "person": person,
            "g": rng.integers(0, 7, len(person)) % (1 + person % 7),
            "value": pl.Series(rng.integers(0, 6, len(person)) % (1 + person % 6)).replace(3, None),
            "w": rng.integers(1, 4, len(person)),
        }
    )


# What is asked of a crowd, and what is kept of each person then.
ASKED = {
    "mode": dpp.mode("value", range(5), epsilon=1),
    "mode of many": dpp.mode("value", range(17), epsilon=1),
    "median": dpp.median("value", range(5), epsilon=1),
    "value_counts": dpp.value_counts("value", range(5), epsilon=1),
    "len": dpp.len(epsilon=1),
    "count": dpp.count("value", epsilon=1),
    "weighed rows": dpp.mode("value", range(5), counts=dpp.weights("w", max_weight=3, of="rows"), epsilon=1),
    "weighed": dpp.mode("value", range(5), counts=dpp.weights("w", max_weight=4), epsilon=1),
}


def under(limits, groups, *names):
    """These outputs under one set of limits, those in which people count in so many groups under that one."""
    of_groups = ("mode", "mode of many", "weighed")
    return [(name, Limits(groups=groups) if name in of_groups else limits) for name in names]


_ROWS, _GROUPS = ("median", "value_counts", "len", "count", "weighed rows"), ("mode", "weighed")
# Each of them is one query's.
BOUNDS = [
    under(Limits(groups=3, rows_per_group=2, rows=4), 3, *_ROWS, *_GROUPS),
    under(Limits(rows=2), 2, *_ROWS, *_GROUPS),
    under(Limits(groups=2, rows_per_group=3), 2, *_ROWS, *_GROUPS),
    under(Limits(groups=1, rows_per_group=4), 1, *_ROWS, *_GROUPS),
    under(Limits(rows_per_group=1), None, "median", "value_counts", "weighed rows"),
]
PEOPLE, LARGEST = ("mode", "mode of many", "value_counts", "weighed"), {"weighed rows": 3, "weighed": 4}


def about(asked):
    """A query with all of these outputs, by names of ASKED, in the groups 0 … 4."""
    asks = {str(i): ASKED[each] for i, (each, _) in enumerate(asked)}
    return dpp.protect("person", max_rows=1).group_by({"g": range(5)}).agg(**asks)


def limited(work, asked):
    """The specs of its outputs, each with limits of its own, by which rows are drawn."""
    own = [work.specs[output.specs[0]] for output in work.outputs]
    return tuple(
        replace(spec, limits=limits, weight=None, bits=0) for spec, (_, limits) in zip(own, asked, strict=True)
    )


def lost_by(one, other, limits, *, people, largest=1):
    """What a histogram loses in each cell by the person who is gone in the other; no more than the bounds."""
    lost = one.join(other, on=["group", "code"], how="full", suffix="_without", coalesce=True).fill_null(0)
    lost = lost.with_columns(lost=pl.col("count") - pl.col("count_without")).filter(pl.col("lost") != 0)
    per_group = lost.group_by("group").agg(pl.col("lost").sum())
    if lost.height > 0:
        assert lost["lost"].min() > 0
        assert lost["lost"].max() <= largest or not people
        assert per_group.height <= (limits.groups or 5)
        assert per_group["lost"].max() <= (limits.rows_per_group or 400) * largest
        assert per_group["lost"].sum() <= (limits.rows or 400) * largest
    return lost


# Rows of one person: group and code.
SPREAD = ((0, 0), (0, 1), (0, 1), (1, 2), (2, 3), (2, 4), (2, 5), (2, 5))
SOME = ((0, 0), (0, 1), (0, 1), (1, 2), (1, 3), (2, 4))


@dataclass(frozen=True)
class Bounded:
    """What a spec keeps of a person at most, whether people count, and the codes of its rows (None: all)."""

    limits: Limits
    people: bool = False
    sees: tuple[int, ...] | None = None

    def first(self, rows, groups):
        """The rows that stay, sorted, of rows and groups in their order."""
        seen = [row for row in rows if self.sees is None or row[1] in self.sees]
        if self.people:  # a code has the number of its first row
            seen = list(dict.fromkeys(seen))
        have = {group for group, _ in seen}
        stay = [group for group in groups if group in have][: self.limits.groups]
        found, taken = [], Counter()
        for row in seen:
            if row[0] in stay and (self.limits.rows_per_group is None or taken[row[0]] < self.limits.rows_per_group):
                taken[row[0]] += 1
                found.append(row)
        return tuple(sorted(found[: self.limits.rows]))


@cache
def joint_law(rows, *specs):
    """What stays of these rows for each spec -> probability, by enumeration of all orders of groups and of rows."""
    counted = Counter()
    of_groups = list(permutations(sorted({group for group, _ in rows})))
    for order in set(permutations(rows)):  # each as likely as another, whichever rows are equal
        for groups in of_groups:
            counted[tuple(spec.first(order, groups) for spec in specs)] += 1
    return {outcome: Fraction(n, counted.total()) for outcome, n in counted.items()}


def law(rows, limits, *, people):
    """What stays of these rows -> probability."""
    return {stays: chance for (stays,), chance in joint_law(tuple(rows), Bounded(limits, people)).items()}


def independent(law):
    """The law of what each spec keeps if each had an order of its own."""
    product = {(): Fraction(1)}
    for place in range(len(next(iter(law)))):
        own = Counter()
        for outcome, chance in law.items():
            own[outcome[place]] += chance
        product = {(*outcome, each): p * q for outcome, p in product.items() for each, q in own.items()}
    return product


def follows(found, expected):
    """Whether outcomes may come from a law."""
    counts = Counter(found)
    if not set(counts) <= set(expected):
        return False
    return fits([counts[outcome] for outcome in expected], [float(chance) for chance in expected.values()])


# Tallies of one query, each with contributing rows of its own, of the rows SOME; and which of them are looked at
# together, among all of them.
_FEW, _SEVERAL = Limits(rows=2, groups=2, rows_per_group=2), Limits(groups=2, rows_per_group=2)
TALLIES = {
    "rows": Bounded(_FEW),
    "rows of some": Bounded(_FEW, sees=(1, 2, 4)),
    "rows of others": Bounded(_FEW, sees=(0, 3, 4)),
    "groups of people": Bounded(Limits(groups=2), people=True, sees=(0, 2, 4)),
    "codes of people": Bounded(_FEW, people=True),
}
TOGETHER = (
    ("rows", "rows of some"), ("rows of some", "rows of others"), ("rows", "groups of people"),
    ("rows", "codes of people"), ("groups of people", "codes of people"),
    ("rows", "rows of others", "groups of people"),
)  # fmt: skip
# Without a limit on all rows, an engine may choose in another way; and so if nothing but rows counts.
SEVERAL = {
    "rows": Bounded(_SEVERAL),
    "rows of some": Bounded(_SEVERAL, sees=(1, 2, 4, 5)),
    "rows of others": Bounded(_SEVERAL, sees=(0, 2, 3)),
}
SEVERAL_TOGETHER = ("rows", "rows of some"), ("rows", "rows of others"), ("rows of some", "rows of others")
OF_GROUPS = {**SEVERAL, "groups of people": Bounded(Limits(groups=2), people=True, sees=(0, 2, 4))}
OF_GROUPS_TOGETHER = (*SEVERAL_TOGETHER, ("rows", "groups of people"), ("rows of some", "groups of people"))
# One row of a person in each group, and its people, in as many groups: an engine may look for one row at once.
ONE_ROW = {
    "any row": Bounded(Limits(groups=2, rows_per_group=1)),
    "a row of some": Bounded(Limits(groups=2, rows_per_group=1), sees=(1, 2, 5)),
    "people": Bounded(Limits(groups=2), people=True),
    "people of some": Bounded(Limits(groups=2), people=True, sees=(0, 2, 4)),
}
ONE_ROW_TOGETHER = (
    ("any row", "a row of some"),
    ("any row", "people"),
    ("a row of some", "people of some"),
    ("people", "people of some"),
)
