"""Joins of private frames, and rows that several people own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NoReturn

import polars as pl

from dp_polars._base.column_types import PrivacyUnit, as_arguments, is_opaque, must_have, released, shown
from dp_polars._base.numbers import flag, given, kind_of_frame, plural
from dp_polars._engines.polars.people import few_of_each
from dp_polars._release.pipeline import ONLY_FILTERS, CheckedPipeline, Joining, Origin, free_names
from dp_polars._release.protection import OneRowEach, Protection
from dp_polars._release.sources import WithoutRows
from dp_polars._steps.gate import refuse_patterns
from dp_polars._steps.plans import files_of, preparation_of
from dp_polars._steps.scans import compared, identities, is_a_person

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._release.pipeline import JoinHow, Pipeline, Run, Step


@dataclass(frozen=True)
class _ByColumns(Joining):
    """A join on columns that are equal; several partners of a row give several rows."""

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: JoinHow

    @property
    def multiplies(self) -> bool:
        return self.how not in ONLY_FILTERS

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        return self.left_on, self.right_on, self.how

    def run(self, schema: pl.Schema, further: pl.Schema, floats: Collection[str] = ()) -> Run:
        """Return the join of rows of these columns; `floats` may hold floats, for NaN is not in them."""
        keys = free_names(len(self.left_on), {*schema, *further})
        for left, right in zip(self.left_on, self.right_on, strict=True):
            must_have(left, schema, "join column {}", "private frame")
            must_have(right, further, "join column {}", "right frame")
            _refuse_key(left, right, schema[left], further[right], may_be_float=left in floats)
        on_left, on_right = (
            [compared(name, columns).alias(key) for name, key in zip(names, keys, strict=True)]
            for names, columns in ((self.left_on, schema), (self.right_on, further))
        )
        others = [] if self.how in ONLY_FILTERS else [name for name in further if name not in self.right_on]

        def run(rows: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
            right = right.select(*on_right, *map(pl.col, others))
            # No column is found by what it is called on the right, so that its name can't be a left one's.
            return rows.with_columns(on_left).join(right, on=keys, how=self.how).drop(keys)

        return run


@dataclass(frozen=True)
class PrivateJoin(_ByColumns):
    """A join with another private frame of the same people, on the privacy unit and perhaps further columns."""

    right: Pipeline

    @property
    def name(self) -> str:
        return "join of a private frame" if self.most is None else f"join of {plural(self.most, 'row')} of each person"

    @property
    def most(self) -> int | None:
        """How many rows of a person stay on the right, before the frames meet; None: all that there are."""
        if self.how in ONLY_FILTERS and {*self.right_on} == {*(self.right.protection.unit or ())}:
            return None  # whether a person has a row does not follow from which rows stay
        return self.right.calibration.rows_in_all

    @property
    def multiplies(self) -> bool:
        return super().multiplies and not (self.most == 1 or isinstance(self.right.calibration, OneRowEach))

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:
        return *super().parts(live), self.most

    @property
    def origins(self) -> tuple[Origin, ...]:
        return self.right.origins

    @property
    def further_steps(self) -> tuple[Step, ...]:
        return self.right.steps

    def further(self, *sources: pl.Schema) -> CheckedPipeline:
        return self.right.proved(*sources)

    def joined(self, schema: pl.Schema, further: pl.Schema, unit: PrivacyUnit | None) -> Run:
        unit = unit or ()
        for name in unit:
            if released(schema[name]) != released(further[name]):
                msg = (
                    f"join: the privacy unit {name!r} must have one type in both frames, got {schema[name]} and "
                    f"{further[name]}.\n\nHint: cast one of them before protect."
                )
                raise TypeError(msg)
        join, most = self.run(schema, further, floats=unit), self.most

        def of_people(rows: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
            right = right.filter(is_a_person(unit, further))
            # Never trusted: a person may have thousands of rows there, each of which would meet all of the left ones.
            right = right if most is None else few_of_each(right, unit, most)
            return join(rows.filter(is_a_person(unit, schema)), right)

        return of_people


@dataclass(frozen=True)
class OwnedJoin(_ByColumns):
    """A join with rows that belong to those who name them."""

    owned: Origin
    name: ClassVar[str] = "join of owned rows"

    @property
    def origins(self) -> tuple[Origin, ...]:
        return (replace(self.owned, keys=self.right_on, is_owned=True),)

    def further(self, *sources: pl.Schema) -> CheckedPipeline:
        for schema in sources:
            refuse_patterns(schema)
        return CheckedPipeline(sources)

    def joined(self, schema: pl.Schema, further: pl.Schema, unit: PrivacyUnit | None) -> Run:
        if unit is not None and not {*unit}.isdisjoint(further):
            msg = (
                f"join: owned rows must not have a column named like the privacy unit, {shown(unit)}.\n\n"
                "Hint: rows that carry the privacy unit are a private frame: protect them. Or rename the column."
            )
            raise ValueError(msg)
        return self.run(schema, further)


def refuse_others(
    who: str, one: Protection, other: Protection, budgets: tuple[Budget | None, Budget | None], hint: str
) -> None:
    """Refuse frames, or queries, of other people, of another relation, or that another budget pays for."""
    relations = one.neighboring_relation, other.neighboring_relation
    for what, got, are_same in (
        ("privacy unit", (one.privacy_unit, other.privacy_unit), one.unit == other.unit),
        ("neighboring_relation", relations, relations[0] == relations[1]),
    ):
        if not are_same:
            msg = f"{who} must have the same {what}, got {got[0]!r} and {got[1]!r}.\n\nHint: {hint}"
            raise ValueError(msg)
    if not is_same_budget(*budgets):
        had = "one with a budget and one without" if None in budgets else "two budgets"
        msg = (
            f"{who} must have the same budget, got {had}.\n\n"
            "Hint: give protect of both the same Budget; a release is charged to it once."
        )
        raise ValueError(msg)


def refuse_without_unit(unit: PrivacyUnit, left_on: Sequence[str], right_on: Sequence[str]) -> None:
    if not {(name, name) for name in unit} <= {*zip(left_on, right_on, strict=True)}:
        sides = [side for side, names in (("left", left_on), ("right", right_on)) if not {*unit} <= {*names}]
        where = f" the {sides[0]} columns lack it" if len(sides) == 1 else f" got {list(left_on)} and {list(right_on)}"
        msg = (
            f"join: private frames must be joined on the privacy unit {shown(unit)}, paired with itself:{where}.\n\n"
            f"Hint: on=[{as_arguments(unit)}, …]. Rows without the unit that belong to those who name them are "
            "dp_polars.owned(…)."
        )
        raise ValueError(msg)


def is_same_budget(left: Budget | None, right: Budget | None) -> bool:
    if left is None or right is None:
        return left is right
    return left is right or (left.path is not None and left.path == right.path)


def _refuse_key(left: str, right: str, dtype: pl.DataType, other: pl.DataType, *, may_be_float: bool) -> None:
    names = repr(left) if left == right else f"{left!r} and {right!r}"
    # As text: the number of a category may be another one in the other frame.
    if released(dtype) != released(other):
        msg = (
            f"join: the columns {names} must have one type in both frames, got {dtype} and {other}.\n\n"
            "Hint: cast one of them first."
        )
        raise TypeError(msg)
    if dtype.is_nested() or is_opaque(dtype) or dtype == pl.Null or (dtype.is_float() and not may_be_float):
        what = "floats: engines compare NaN and -0.0 differently" if dtype.is_float() else f"of the type {dtype}"
        msg = (
            f"join: the columns {names} must not be {what}.\n\nHint: join by integers, texts or dates; "
            "of floats, by (pl.col(…) * 100).round().cast(pl.Int64), say."
        )
        raise TypeError(msg)


class OwnedRows(WithoutRows):
    """Private rows without the privacy unit, which belong to those who name them. Made by `owned`.

    They can only stand on the right of a private frame's `join`.
    """

    def __init__(self, sources: tuple[pl.LazyFrame, ...], origin: Origin) -> None:
        self._sources = sources
        self.origin: Origin = origin

    def collect(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Refuse: owned rows are private."""
        msg = "owned rows must not be collected: they are private.\n\nHint: private.join(owned, …), then agg(…)."
        raise TypeError(msg)

    def __repr__(self) -> str:
        rows = "private, only answers leave" if self._sources else "none yet, release(frames) takes them"
        return f"<OwnedRows\nrows:     {rows}\nuse:      private.join(owned, …)>"


def owned(
    frame: pl.LazyFrame | pl.DataFrame | None = None, *, dataset: str | None = None, unchecked: bool = False
) -> OwnedRows:
    r"""Take rows that carry no privacy unit, but belong to those who name them: line items of orders.

    A private frame's `join` brings them to the people whose rows name them. They are as private as that frame: nothing
    of them is shown, kept or pickled. With a person go that person's own rows; an owned row that nobody else names then
    reaches no answer. A change of an owned row that k people name is a change of k people.

    Proof: :doc:`/proofs/contributions`.

    Parameters
    ----------
    frame
        The rows, also larger than memory (a scan). What happened to them before must be by row, or include all
        columns of the later join, as before `protect` the unit. None: `release` takes
        them later, as for a query without data.
    dataset, unchecked
        As for `protect`: only where all frames of a query have a name are answers kept.

    Returns
    -------
    OwnedRows
        For the right side of `PrivateFrame.join`, on columns that are no floats. Null equals nothing. `join` refuses a
        plan that visibly mixes rows of several who name them: a TypeError or ValueError.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> orders = pl.DataFrame({"customer": range(100), "order": range(100)})
    >>> items = pl.DataFrame({"order": [i // 3 for i in range(300)], "cents": [250] * 300})
    >>> query = (
    ...     orders.dp.protect("customer", max_rows=5)
    ...     .join(dpp.owned(items), on="order", how="inner")
    ...     .agg(pl.col("cents").dp.median(range(0, 1001, 50), epsilon=1))
    ... )
    >>> query.release().item()
    250
    """
    if dataset is not None and (not isinstance(dataset, str) or not dataset):
        msg = f"dataset must be a name or None, got {given(dataset)}."
        raise TypeError(msg)
    is_unchecked = flag("unchecked", unchecked)
    if frame is None:
        return OwnedRows((), Origin(dataset, unchecked=is_unchecked))
    if not isinstance(frame, (pl.LazyFrame, pl.DataFrame)):
        msg = f"owned rows must be a LazyFrame, a DataFrame or None, got {kind_of_frame(frame)}"
        if isinstance(frame, WithoutRows):
            msg += "\n\nHint: a private frame has its own privacy unit: private.join(other, on=…) takes it as it is."
        raise TypeError(msg)
    plan = frame.lazy()
    # It is looked at again when the columns of the join are known.
    readings, _ = preparation_of(plan, (), "owned", is_owned=True, unchecked=is_unchecked)
    return OwnedRows((plan,), Origin(dataset, identities(files_of(readings)), unchecked=is_unchecked))
