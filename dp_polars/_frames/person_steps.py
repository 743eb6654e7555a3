"""Steps on all rows of one person: windows, and one row for each person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from dp_polars._base.numbers import given
from dp_polars._base.privacy_units import as_arguments
from dp_polars._engines.polars_rows import is_a_person
from dp_polars._frames.step import Step
from dp_polars._rowwise.person_gate import Taken, of_groups, over_people
from dp_polars._rowwise.person_trials import refuse_company

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._frames.step import Run


@dataclass(frozen=True)
class PersonGroups(Step):
    """One row for each person, or for each value of further columns that a person has."""

    name: ClassVar[str] = "group_by"

    keys: tuple[str, ...]
    expressions: tuple[pl.Expr, ...]

    @property
    def looks_at_order(self) -> bool:
        """Whether the order of the columns may decide what comes out."""
        return any(expr.meta.has_multiple_outputs() for expr in self.expressions)

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        return self.keys, *self.expressions

    def leaves_one_row(self, unit: PrivacyUnit | None, *, before: bool) -> bool:
        return before or {*self.keys} == {*(unit or ())}

    def adds_floats(self, schema: pl.Schema, unit: PrivacyUnit | None) -> bool:
        return of_groups(self.expressions, schema, unit or (), self.keys, self.name).adds_floats

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        """Return what runs this step; an error where it looks at more than one person's rows, or at their order."""
        keys, unit = list(self.keys), unit or ()
        taken = of_groups(self.expressions, schema, unit, keys, self.name)
        person = is_a_person(unit, schema)

        def run(rows: pl.LazyFrame) -> pl.LazyFrame:
            # Nobody is a group, or two, of their own: these are fewer than their rows.
            groups = taken.groups(rows, keys).filter(person)
            # After with_columns, so that a constant has as many rows as the frame.
            return groups.with_columns(taken.outputs).select(
                *keys, *(expr.meta.output_name() for expr in taken.outputs)
            )

        refuse_company(run, schema, unit, self.name)
        return run


def windows(exprs: Sequence[pl.Expr], schema: pl.Schema, unit: PrivacyUnit | None, call: str) -> tuple[Taken, Run]:
    """Return expressions with windows taken apart, and what makes the columns that they need."""
    taken = over_people(exprs, schema, unit, call)
    person = is_a_person(unit or (), schema)
    return taken, lambda rows: taken.before(rows.filter(person))


def person_keys(names: Sequence[object], unit: PrivacyUnit | None) -> tuple[tuple[str, ...], tuple[pl.Expr, ...]]:
    """Return the columns of `group_by`, the unit first, and those to make; refuse other things, or none of the unit."""
    wrong = [name for name in names if not isinstance(name, (str, pl.Expr)) or _has_several(name)]
    if wrong:
        msg = (
            "group_by must be given names of columns, the privacy unit among them, or public keys: a dict or a frame "
            f"alone; got {given(wrong[0])} among names.\n\nHint: make a column with with_columns in the step before."
        )
        raise TypeError(msg)
    computed = tuple(key for key in names if isinstance(key, pl.Expr) and not key.meta.is_column())
    keys = tuple(key.meta.output_name() if isinstance(key, pl.Expr) else str(key) for key in names)
    if unit is None or not {*unit} <= {*keys}:
        way = "" if unit is None else f"group_by({as_arguments(unit)}) gives one row for each person. "
        msg = (
            f"group_by: names of columns must include the privacy unit, got {list(keys)}: which groups there are would "
            f"tell of people.\n\nHint: {way}To ask about groups, list them, group_by({{{keys[0]!r}: […]}}), or find "
            f"them with keys({keys[0]!r}, …)."
        )
        raise ValueError(msg)
    if len(set(keys)) < len(keys):
        msg = f"group_by must be given each column once, got {list(keys)}."
        raise ValueError(msg)
    return (*unit, *(name for name in keys if name not in unit)), computed


def _has_several(key: object) -> bool:
    """Return whether an expression has several outputs, or none whose name is known."""
    return isinstance(key, pl.Expr) and (
        key.meta.has_multiple_outputs() or key.meta.output_name(raise_if_undetermined=False) is None
    )
