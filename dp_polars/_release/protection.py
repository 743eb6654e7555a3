"""What one person may contribute: the protection of a frame, and the contribution limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import EllipsisType
from typing import TYPE_CHECKING, Literal

from dp_polars._accounting.terms import Contributions, NeighboringRelation, check_relation, in_words
from dp_polars._base.column_types import PrivacyUnit, privacy_unit_of, shown, text_of_unit
from dp_polars._base.numbers import plural, positive_int
from dp_polars._mechanisms.person_weights import PersonWeight
from dp_polars._statistics.statistic import HistogramQuery

if TYPE_CHECKING:
    import polars as pl


def _power(query: HistogramQuery) -> Literal[1, 2]:
    """Return the power of which norm Gaussian noise, or Laplace noise, is charged."""
    return 1 if query.claim._has_epsilon else 2


@dataclass(frozen=True)
class Limits:
    """The most that counts of one person's rows in one output; None: all of them."""

    rows: int | None = None  # rows in all. Not for counts of people.
    groups: int | None = None  # groups in all
    rows_per_group: int | None = None  # rows in each group. Not for counts of people.

    @property
    def everything(self) -> bool:
        return self == Limits()


@dataclass(frozen=True)
class Layout:
    """How groups and codes are laid out in cells."""

    group_bits: int
    code_bits: int

    @classmethod
    def of(cls, groups: int, size: int, where: str = "") -> Layout:
        layout = cls(max(groups - 1, 0).bit_length(), (size - 1).bit_length())
        if not layout.bits <= 64:
            msg = (
                f"{where}groups times candidates must fit into 64 bits, got {groups:,} groups and {size:,} candidates."
                "\n\n"
                "Hint: take fewer groups, or a wider step between the candidates."
            )
            raise ValueError(msg)
        return layout

    @property
    def bits(self) -> int:
        return self.group_bits + self.code_bits


@dataclass(frozen=True, eq=False)
class Parts:
    """Public, disjoint parts of the rows, of which each person counts in `most` at most: `docs/proofs/parts.md`."""

    keys: pl.DataFrame  # row i has the values of part i, in the columns that say in which part a row is
    most: int

    @property
    def columns(self) -> list[str]:
        return self.keys.columns

    @property
    def number(self) -> int:
        return self.keys.height

    def __str__(self) -> str:
        return f"in {self.most} of {plural(self.number, 'part')} by {', '.join(self.columns)}"


_LIMITS = ("max_rows", "max_groups", "max_rows_per_group", "max_norm")


def most_in_words(limits: Mapping[str, int], *, in_parts: bool) -> str:
    """Return how much of one person contribution limits, by their names, let count in full."""
    words = {
        "max_groups": ("in", "group", ""),
        "max_rows_per_group": ("with", "row", " in each group"),
        "max_rows": ("with", "row", " in all"),
    }
    said = [
        (before, f"{plural(limits[name], noun)}{after}")
        for name, (before, noun, after) in words.items()
        if name in limits
    ]
    if "max_norm" in limits:
        said.append(("with", f"a norm of {limits['max_norm']:,}"))
    if in_parts:
        return f"Each person counts at most as much as {', '.join(limit for _, limit in said)}."
    return f"Each person counts {', '.join(f'{before} at most {limit}' for before, limit in said)}."


def limits_in_words(limits: Mapping[str, int], *, in_parts: bool) -> str:
    """Return what contribution limits, by their names, let count of one person, and what they do with the rest."""
    beyond = "A person with more counts in part." if in_parts else "Rows beyond that are dropped at random."
    return f"{most_in_words(limits, in_parts=in_parts)} {beyond}"


@dataclass(frozen=True)
class Protection:
    """Who a person is, and how much of a person's data may count."""

    unit: PrivacyUnit | None  # the columns whose values together tell people apart; None: every row is another person
    # How much of one person counts in one output: rows in all, groups, and rows in each group. None: no limit.
    max_rows: int | None
    max_groups: int | None
    max_rows_per_group: int | None
    neighboring_relation: NeighboringRelation
    # The norm of a person's numbers of rows per group, for numbers alone. None: it follows from the others.
    max_norm: int | None = None
    # The limits that were neither given nor set to None: they are found privately where a guarantee is shared.
    left_out: tuple[str, ...] = ()
    # Disjoint parts of the rows, each of which is asked the same. None: all rows are asked together.
    parts: Parts | None = field(default=None, kw_only=True)

    @property
    def members(self) -> PrivacyUnit | None:
        """The columns that tell apart who is limited: people, and in parts each person in each of them."""
        if self.unit is None or self.parts is None:
            return self.unit
        return tuple(sorted({*self.unit, *self.parts.columns}))

    @property
    def changed_parts(self) -> int:
        """In how many parts one person may change something: `docs/proofs/parts.md`, Theorem 1."""
        if self.parts is None:
            return 1
        one, other = self.parts.most, 0 if self.neighboring_relation == "add_or_remove_one" else self.parts.most
        return min(one + other, self.parts.number)

    def parts_of_people(self, people: Fraction) -> Fraction:
        """Return how many times as many parts several people may change as one: `docs/proofs/parts.md`, Theorem 3."""
        if self.parts is None or people <= 1:
            return Fraction(1)
        return min(people * self.changed_parts, Fraction(self.parts.number)) / self.changed_parts

    @property
    def drops_parts(self) -> bool:
        """Whether a person may have rows in more parts than count."""
        return self.unit is not None and self.parts is not None and self.parts.most < self.parts.number

    def parts_in_words(self) -> str | None:
        """Return in how many parts a person counts; None: there are no parts."""
        if self.parts is None:
            return None
        of = f"{plural(self.parts.number, 'part')} by {', '.join(self.parts.columns)}"
        if not self.drops_parts:
            return f"Rows are in {of}."
        return f"Each person counts in at most {self.parts.most} of {of}; rows in other parts are dropped at random."

    @property
    def privacy_unit(self) -> str | None:
        """The privacy unit as a text: the name of one column, or several as JSON."""
        return text_of_unit(self.unit)

    @classmethod
    def of(
        cls,
        privacy_unit: str | Sequence[str] | None,
        max_rows: int | EllipsisType | None,
        max_groups: int | EllipsisType | None,
        max_rows_per_group: int | EllipsisType | None,
        neighboring_relation: str,
        max_norm: int | EllipsisType | None = ...,
    ) -> Protection:
        unit, relation = privacy_unit_of(privacy_unit), check_relation(neighboring_relation)
        asked = zip(_LIMITS, (max_rows, max_groups, max_rows_per_group, max_norm), strict=True)
        given = {name: value for name, value in asked if not isinstance(value, EllipsisType)}
        if unit is None:
            given = {name: value for name, value in given.items() if value is not None}
        return cls(unit, None, None, None, relation, left_out=_LIMITS).with_limits(**given)

    def with_limits(self, **given: int | None) -> Protection:
        """Return the protection with other limits, by their names. None: no such limit."""
        if self.unit is None and given:
            msg = (
                f"{', '.join(given)} must be left out where privacy_unit is None: every row is a person.\n\n"
                "Hint: in protect, name the column that tells people apart."
            )
            raise ValueError(msg)
        limits = {name: value if value is None else positive_int(name, value) for name, value in given.items()}
        left_out = tuple(name for name in self.left_out if name not in limits)
        return replace(self, **limits, left_out=left_out)  # type: ignore[arg-type]  # by their names

    def refuse_no_unit(self, call: str, why: str = "every row is a person") -> None:
        if self.unit is None:
            msg = (
                f"{call}: there must be a privacy unit, got None: {why}.\n\n"
                "Hint: name the column that tells people apart, in protect."
            )
            raise ValueError(msg)

    @property
    def limits(self) -> dict[str, int]:
        limits = {name: getattr(self, name) for name in _LIMITS}
        return {name: value for name, value in limits.items() if value is not None}

    def limits_of(self, query: HistogramQuery) -> dict[str, int]:
        limits = self.limits
        if self._limits_groups_only(query):
            limits.pop("max_rows_per_group", None)
        if not query.weighs_people:
            limits.pop("max_norm", None)
        elif "max_norm" in limits:
            limits = {name: limits[name] for name in ("max_rows_per_group", "max_norm") if name in limits}
        return limits

    def counts_people(self, query: HistogramQuery) -> bool:
        return self.privacy_unit is not None and query.counts_people

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:
        return "people" if self.privacy_unit is None or self.counts_people(query) else "rows"

    def _limits_groups_only(self, query: HistogramQuery) -> bool:
        return self.counts_people(query) and query.limits_people

    def contributions(self, query: HistogramQuery, groups: int) -> Contributions:
        """Return the contribution limits used to calibrate `query` over this number of public groups."""
        if query.needs_people and self.privacy_unit is None:
            msg = (
                f"privacy_unit must be given for a {query}.\n\n"
                "Hint: in protect, name the column that tells people apart."
            )
            raise ValueError(msg)
        if self.privacy_unit is None:
            return Contributions(1, 1)
        in_groups = min(self.max_groups or groups, groups)
        if self.max_norm is not None and query.weighs_people:
            # As if all of it were in one cell, so that it holds for both norms: the unit may change. What a person
            # can't pass anyway is no more than one in each group.
            all_groups = self._limits_groups_only(query) and groups <= self.max_norm
            return Contributions(groups, 1) if all_groups else Contributions(self.max_norm, self.max_norm)
        if self._limits_groups_only(query):
            return Contributions(min(self.max_rows or in_groups, in_groups), 1)
        per_group = self.max_rows_per_group or self.max_rows
        if self.counts_people(query) and query.fixed_size is not None:  # a person counts once for each candidate
            per_group = min(per_group or query.fixed_size, query.fixed_size)
        if per_group is None:
            msg = (
                f"the rows of one person must be bounded for this output, {query}.\n\n"
                "Hint: give protect or with_limits max_rows, or max_rows_per_group (with max_groups if there are many "
                "groups). Or leave its loss out: scaled_to(epsilon=1, delta=1e-6) pays for a limit that is found "
                "privately."
            )
            raise ValueError(msg)
        total = min(self.max_rows or in_groups * per_group, in_groups * per_group)
        return Contributions(total, min(per_group, total))

    def weight(self, query: HistogramQuery, groups: int) -> PersonWeight | None:
        """Return how much of a person counts in a number, so that none exceeds `contributions`; None: all of everybody.

        `docs/proofs/norms.md`, Theorem 1. Public facts decide whether a limit can bind.
        """
        if self.privacy_unit is None or not query.weighs_people:
            return None
        spread, power = self.contributions(query, groups), _power(query)
        limit, cap = spread.total if power == 1 else spread.squares, None
        most: int | None = None  # rows, or codes, of a person in a group
        if self._limits_groups_only(query):
            most = 1
        else:
            most = cap = self.max_rows_per_group
            if self.counts_people(query) and query.fixed_size is not None and query.fixed_size <= (cap or math.inf):
                most, cap = query.fixed_size, None
        # By both norms: the unit of a loss may still change, and what counts in parts must not.
        can_bind = most is None or groups * most > spread.total or groups * most**2 > spread.squares
        return PersonWeight(cap, limit if can_bind else None, power) if can_bind or cap is not None else None

    def drawn_limits(self, query: HistogramQuery, groups: int) -> Limits:
        """Return what must be enforced so that no person exceeds `contributions`, where rows are drawn for that."""
        return Limits() if query.in_parts else self._drawn(query, groups)

    def _drawn(self, query: HistogramQuery, groups: int) -> Limits:
        """Return which rows of a person would stay, if they were drawn."""
        if self.privacy_unit is None:
            return Limits()
        spread = self.contributions(query, groups)
        if self._limits_groups_only(query):
            return Limits(groups=spread.total if spread.total < groups else None)
        in_groups = min(self.max_groups or groups, groups)
        if spread.per_group == 1:  # with one row in a group, rows and groups are as many: engines limit groups faster
            in_groups = min(in_groups, spread.total)
        return Limits(
            rows=spread.total if spread.total < in_groups * spread.per_group else None,
            groups=in_groups if in_groups < groups else None,
            # Where a person may have no more rows in all than in one group, the limit on all of them will do.
            rows_per_group=spread.per_group
            if in_groups * spread.per_group <= spread.total or spread.per_group < spread.total
            else None,
        )

    def dropping(self, query: HistogramQuery, groups: int) -> dict[str, int]:
        """Return the limits, by name, beyond which a person may have rows, which are then dropped, or count in part."""
        if self.max_norm is not None and query.weighs_people:
            return self.limits_of(query) if query.in_parts else {}
        drawn, limits = self._drawn(query, groups), self.limits
        # A person counts once for each candidate, so a limit of all of them drops nothing.
        is_all = self.counts_people(query) and drawn.rows_per_group == query.fixed_size
        enforced = {
            "max_rows": drawn.rows,
            "max_groups": drawn.groups,
            "max_rows_per_group": None if is_all else drawn.rows_per_group,
        }
        # What no limit of its own says is said by that of all rows.
        given = ((name, value) for name, value in enforced.items() if value is not None)
        names = {name if limits.get(name) == value else "max_rows" for name, value in given}
        return {name: value for name, value in limits.items() if name in names}

    @property
    def keys_per_person(self) -> int:
        """For how many selected keys one person may count."""
        if self.privacy_unit is None:
            return 1
        limits = [limit for limit in (self.max_groups, self.max_rows) if limit is not None]
        if not limits:
            msg = (
                "keys: max_groups must be given where there is a privacy unit, got None: nobody knows how many keys "
                "there are.\n\nHint: protect(…, max_groups=3) keeps 3 random keys of a person who has more."
            )
            raise ValueError(msg)
        return min(limits)

    def __str__(self) -> str:
        parts = [] if self.parts is None else [str(self.parts)]
        if self.unit is None:
            return ", ".join(["one person per row", self.neighboring_relation, *parts])
        limits = [*parts, *([in_words(self.limits)] if self.limits else [])]
        return ", ".join([f"one person per {shown(self.unit)}", self.neighboring_relation, *limits])
