"""What is promised to each person of a private frame, and how much of their rows counts so that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from dp_polars._accounting.terms import Contributions, check_relation, in_words
from dp_polars._base.numbers import kind_of_frame, positive_int
from dp_polars._base.privacy_units import PrivacyUnit, privacy_unit_of, shown, text_of
from dp_polars._engines.bounding import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.terms import Bounds, NeighboringRelation
    from dp_polars._questions.question import HistogramQuery

_BOUNDS = ("max_rows", "max_groups", "max_rows_per_group")


@dataclass(frozen=True)
class Protection:
    """Who a person is, and how much of a person's data may count.

    Parameters
    ----------
    unit
        The columns whose values together tell people apart; None: every row is another person.
    max_rows, max_groups, max_rows_per_group
        How much of one person counts in one output: rows in all, groups, and rows in each group. None: not bounded.
    """

    unit: PrivacyUnit | None
    max_rows: int | None
    max_groups: int | None
    max_rows_per_group: int | None
    neighboring_relation: NeighboringRelation

    @property
    def privacy_unit(self) -> str | None:
        """The privacy unit as a text: the name of one column, or several as JSON."""
        return text_of(self.unit)

    @classmethod
    def of(
        cls,
        privacy_unit: str | Sequence[str] | None,
        max_rows: int | None,
        max_groups: int | None,
        max_rows_per_group: int | None,
        neighboring_relation: str,
    ) -> Protection:
        """Return the protection of these arguments of `protect`."""
        unit = privacy_unit_of(privacy_unit)
        bounds = {"max_rows": max_rows, "max_groups": max_groups, "max_rows_per_group": max_rows_per_group}
        checked = {name: positive_int(name, value) for name, value in bounds.items() if value is not None}
        if unit is None and checked:
            msg = (
                f"{', '.join(checked)} must be left out where privacy_unit is None: every row is a person.\n\n"
                "Hint: name the column that tells people apart."
            )
            raise ValueError(msg)
        rows, groups, per_group = map(checked.get, _BOUNDS)
        return cls(unit, rows, groups, per_group, check_relation(neighboring_relation))

    def of_output(self, bounds: Bounds) -> Protection:
        """Return the protection with the bounds of an output, which override these one by one."""
        if self.privacy_unit is None and bounds.given:
            msg = (
                f"{', '.join(bounds.given)} must be left out where privacy_unit is None: every row is a person.\n\n"
                "Hint: in protect, name the column that tells people apart."
            )
            raise ValueError(msg)
        rows, groups, per_group = ({**self.bounds, **bounds.given}.get(name) for name in _BOUNDS)
        return Protection(self.unit, rows, groups, per_group, self.neighboring_relation)

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds that there are, by name."""
        bounds = {name: getattr(self, name) for name in _BOUNDS}
        return {name: value for name, value in bounds.items() if value is not None}

    @property
    def rows_in_all(self) -> int | None:
        """How many rows of a person the bounds leave, whatever the groups are; None: no bound says."""
        known = [] if self.max_rows is None else [self.max_rows]
        if self.max_groups is not None and self.max_rows_per_group is not None:
            known.append(self.max_groups * self.max_rows_per_group)
        return min(known, default=None)

    def bounds_of(self, query: HistogramQuery) -> dict[str, int]:
        """Return the bounds that matter to an output, by name."""
        bounds = self.bounds
        if self._bounds_groups_only(query):
            bounds.pop("max_rows_per_group", None)
        return bounds

    def of_one_row(self) -> OneRowEach:
        """Return the protection of people of whom each has at most one row."""
        return OneRowEach(self.unit, None, None, None, self.neighboring_relation)

    def counts_people(self, query: HistogramQuery) -> bool:
        """Return whether the output counts distinct people rather than rows."""
        return self.privacy_unit is not None and query.counts_people

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:
        """Return what the output counts."""
        return "people" if self.privacy_unit is None or self.counts_people(query) else "rows"

    def _bounds_groups_only(self, query: HistogramQuery) -> bool:
        """Return whether only the number of a person's groups matters."""
        return self.counts_people(query) and query.bounds_people

    def contributions(self, query: HistogramQuery, groups: int) -> Contributions:
        """Return the contribution bounds used to calibrate `query` over this number of public groups."""
        if query.needs_people and self.privacy_unit is None:
            msg = (
                f"privacy_unit must be given for a {query}.\n\n"
                "Hint: in protect, name the column that tells people apart."
            )
            raise ValueError(msg)
        if self.privacy_unit is None:
            return Contributions(1, 1)
        in_groups = min(self.max_groups or groups, groups)
        if self._bounds_groups_only(query):
            return Contributions(min(self.max_rows or in_groups, in_groups), 1)
        per_group = self.max_rows_per_group or self.max_rows
        if self.counts_people(query) and query.fixed_size is not None:  # a person counts once for each candidate
            per_group = min(per_group or query.fixed_size, query.fixed_size)
        if per_group is None:
            msg = (
                f"the rows of one person must be bounded for a {query}.\n\n"
                "Hint: give protect, or this output, max_rows, or max_rows_per_group (with max_groups where there are "
                "many groups)."
            )
            raise ValueError(msg)
        total = min(self.max_rows or in_groups * per_group, in_groups * per_group)
        return Contributions(total, min(per_group, total))

    def limits(self, query: HistogramQuery, groups: int) -> Limits:
        """Return what must be enforced so that no person exceeds `contributions`."""
        if self.privacy_unit is None:
            return Limits()
        bounds = self.contributions(query, groups)
        if self._bounds_groups_only(query):
            return Limits(groups=bounds.total if bounds.total < groups else None)
        in_groups = min(self.max_groups or groups, groups)
        return Limits(
            rows=bounds.total if bounds.total < in_groups * bounds.per_group else None,
            groups=in_groups if in_groups < groups else None,
            # Where a person may have no more rows in all than in one group, the bound on all of them will do.
            rows_per_group=bounds.per_group
            if in_groups * bounds.per_group <= bounds.total or bounds.per_group < bounds.total
            else None,
        )

    def dropping(self, query: HistogramQuery, groups: int) -> dict[str, int]:
        """Return the bounds, by name, beyond which a person may have rows, which are then dropped."""
        limits, bounds = self.limits(query, groups), self.bounds
        # A person counts once for each candidate, so a bound of all of them drops nothing.
        is_all = self.counts_people(query) and limits.rows_per_group == query.fixed_size
        enforced = {
            "max_rows": limits.rows,
            "max_groups": limits.groups,
            "max_rows_per_group": None if is_all else limits.rows_per_group,
        }
        # What no bound of its own says is said by that of all rows.
        names = {
            name if bounds.get(name) == value else "max_rows" for name, value in enforced.items() if value is not None
        }
        return {name: value for name, value in bounds.items() if name in names}

    def with_bounds(self, released: object) -> Protection:
        """Return the same protection with the bounds in a released frame; refuse one that there is already."""
        found = _bounds_in(released)
        taken = self.bounds
        repeated = [name for name in found if name in taken]
        if repeated:
            msg = (
                f"with_bounds: released must hold no bound that protect has already, got {', '.join(repeated)}.\n\n"
                f"Hint: leave it out of protect, or out of the frame: released.drop({repeated[0]!r})."
            )
            raise ValueError(msg)
        every = {**dict.fromkeys(_BOUNDS), **taken, **found}
        return Protection.of(self.unit, **every, neighboring_relation=self.neighboring_relation)

    @property
    def keys_per_person(self) -> int:
        """For how many keys that nobody listed one person may count."""
        if self.privacy_unit is None:
            return 1
        bounds = [bound for bound in (self.max_groups, self.max_rows) if bound is not None]
        if not bounds:
            msg = (
                "keys: max_groups must be given where there is a privacy unit, got None: nobody knows how many keys "
                "there are.\n\nHint: protect(…, max_groups=3) keeps 3 random keys of a person who has more."
            )
            raise ValueError(msg)
        return min(bounds)

    def __str__(self) -> str:
        if self.unit is None:
            return f"one person per row, {self.neighboring_relation}"
        bounds = [in_words(self.bounds)] if self.bounds else []
        return ", ".join([f"one person per {shown(self.unit)}", self.neighboring_relation, *bounds])


def _bounds_in(released: object) -> dict[str, int]:
    """Return the bounds in a frame of one row, by name."""
    hint = "Hint: with_bounds(private.bounds(keys, epsilon=0.1).release()), or give the bounds to protect."
    if not isinstance(released, pl.DataFrame):
        msg = f"with_bounds: released must be a DataFrame, got {kind_of_frame(released)}"
        raise TypeError(msg if "Hint" in msg else f"{msg}\n\n{hint}")
    others = [name for name in released.columns if name not in _BOUNDS]
    if others or not released.width:
        msg = f"with_bounds: released must have columns of {list(_BOUNDS)} alone, got {others or 'none'}.\n\n{hint}"
        raise ValueError(msg)
    if released.height != 1:
        msg = f"with_bounds: released must have one row.\n\n{hint}"
        raise ValueError(msg)
    try:
        return {name: positive_int(f"with_bounds: {name}", released[name].item()) for name in released.columns}
    except (TypeError, ValueError) as error:
        msg = f"{error}\n\n{hint}"
        raise type(error)(msg) from None


@dataclass(frozen=True)
class OneRowEach(Protection):
    """The protection of people of whom each has at most one row: a count of rows counts people, and drops none."""

    def of_output(self, bounds: Bounds) -> Protection:
        super().of_output(bounds)
        return self

    def counts_people(self, query: HistogramQuery) -> bool:
        return super().counts_people(query) and query.clips is not None

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:  # noqa: ARG002
        return "people"

    def contributions(self, query: HistogramQuery, groups: int) -> Contributions:  # noqa: ARG002
        return Contributions(1, 1)

    def limits(self, query: HistogramQuery, groups: int) -> Limits:  # noqa: ARG002
        return Limits()

    @property
    def keys_per_person(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"{super().__str__()}, one row each"
