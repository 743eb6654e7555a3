"""Steps that make several rows out of one, or compare the rows of one person, whose number the bounds count later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import polars as pl
from polars import selectors as cs

from dp_polars._base.numbers import given, one_of
from dp_polars._base.privacy_units import as_arguments, shown
from dp_polars._frames.recipe import free_names
from dp_polars._frames.step import Step
from dp_polars._frames.steps import RowSteps, selector
from dp_polars._rowwise.nodes import is_opaque
from dp_polars._rowwise.orders import compared, has_order
from dp_polars._rowwise.zeros import nested_of_one_kind, of_one_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from polars._typing import ColumnNameOrSelector, SelectorType, UniqueKeepStrategy

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._frames.step import Run

_Keep = Literal["first", "last", "any", "none"]
_KEEP: tuple[_Keep, ...] = get_args(_Keep)


@dataclass(frozen=True)
class Explode(Step):
    """A row for each element of a list."""

    name: ClassVar[str] = "explode"
    multiplies: ClassVar[bool] = True

    column: SelectorType
    empty_as_null: bool
    keep_nulls: bool

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        return self.column.as_expr(), self.empty_as_null, self.keep_nulls

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        names = cs.expand_selector(schema, self.column)
        if len(names) != 1:
            msg = (
                f"explode: one column must be named, got {list(names)}: of several, lists of different lengths would "
                "raise an error, which would tell that a row has them.\n\nHint: explode one after the other."
            )
            raise ValueError(msg)
        (name,) = names
        if name in (unit or ()) or not isinstance(schema[name], (pl.List, pl.Array)):
            what = "the privacy unit" if name in (unit or ()) else f"one of the type {schema[name]}"
            msg = f"explode: the column {name!r} must be one of lists or arrays, got {what}."
            raise TypeError(msg)
        flags = {"empty_as_null": self.empty_as_null, "keep_nulls": self.keep_nulls}
        return lambda rows: rows.explode(name, **flags)


@dataclass(frozen=True)
class Unpivot(Step):
    """A row for each of some columns."""

    name: ClassVar[str] = "unpivot"
    multiplies: ClassVar[bool] = True

    on: SelectorType
    index: SelectorType
    variable_name: str
    value_name: str

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        return self.on.as_expr(), self.index.as_expr(), self.variable_name, self.value_name

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        unit = unit or ()
        stays = [name for name in schema if name in unit or name in cs.expand_selector(schema, self.index)]
        on = [name for name in cs.expand_selector(schema, self.on) if name not in unit]
        types = {schema[name] for name in on}
        if len(types) != 1:
            got = f"columns of {', '.join(sorted(map(str, types)))}" if types else "no column"
            msg = (
                f"unpivot: the columns of `on` must be of one type, got {got}.\n\n"
                "Hint: cast them first; or name the columns that stay, as index."
            )
            raise TypeError(msg)
        left = [*stays, self.variable_name, self.value_name]
        if len({*left}) < len(left):
            msg = f"unpivot: variable_name, value_name and the columns that stay must be different, got {left}."
            raise ValueError(msg)
        # Polars fails, depending on what is read later, where a new column is named like one of `on`.
        variable, value = free_names(2, schema)
        names = {variable: self.variable_name, value: self.value_name}
        return lambda rows: rows.unpivot(on, index=stays, variable_name=variable, value_name=value).rename(names)


@dataclass(frozen=True)
class Unique(Step):
    """Rows that are equal in some columns, the privacy unit among them: one of them, or none."""

    name: ClassVar[str] = "unique"

    subset: SelectorType
    keep: _Keep

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        return self.subset.as_expr(), self.keep

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        names = list(cs.expand_selector(schema, self.subset))
        unit = unit or ()
        if not {*unit} <= {*names}:
            msg = (
                f"unique: the columns must include the privacy unit {shown(unit)}, or rows of several people are "
                f"compared, got {names}.\n\nHint: subset=[{as_arguments(unit)}, …]."
            )
            raise ValueError(msg)
        nested = [name for name in names if schema[name].is_nested() or is_opaque(schema[name])]
        if nested:
            msg = (
                f"unique: columns must not be nested, nor Extensions or Objects, got {nested}: engines compare the "
                "floats in them differently.\n\nHint: leave them out, or take them apart first."
            )
            raise TypeError(msg)
        if self.keep == "none" or len(names) == len(schema):
            # Rows that are equal are the same to the bit then, whichever of them stays.
            floats = [of_one_kind(name, schema[name]) for name in names if schema[name].is_float()]
            return lambda rows: rows.with_columns(floats).unique(names, keep=self.keep)
        return self._one_of_each(schema, names)

    def _one_of_each(self, schema: pl.Schema, names: Sequence[str]) -> Run:
        """Return what keeps one of the rows that are equal in these columns: the first or the last by all others."""
        others = [name for name in schema if name not in names]
        without = [name for name in others if not has_order(schema[name])]
        if without:
            msg = (
                f"unique: keep={self.keep!r} must tell rows apart by all other columns, and {without} have no order: "
                "which row stays would follow from the order of the frame, and that depends on other people's rows."
                '\n\nHint: select the columns that you need first; or keep="none".'
            )
            raise TypeError(msg)
        # Rows that are equal in all columns are the same to the bit then.
        kinds = [nested_of_one_kind(name, dtype) for name, dtype in schema.items()]
        by = free_names(len(others) + 1, schema)
        order = [compared(name, schema[name]).alias(new) for name, new in zip(others, by, strict=False)]
        place = pl.int_range(pl.len()).over(names, order_by=by[:-1])
        wanted = pl.len().over(names).cast(pl.Int64) - 1 if self.keep == "last" else 0

        def run(rows: pl.LazyFrame) -> pl.LazyFrame:
            rows = rows.with_columns(kind for kind in kinds if kind is not None).with_columns(order)
            return rows.with_columns(place.alias(by[-1])).filter(pl.col(by[-1]) == wanted).drop(by)

        return run


class SeveralRows(RowSteps):
    """The methods of Polars' frames that may change how many rows a person has, with the names of Polars."""

    def explode(
        self,
        columns: ColumnNameOrSelector | Iterable[ColumnNameOrSelector],
        *,
        empty_as_null: bool = False,
        keep_nulls: bool = True,
    ) -> Self:
        """Make a row for each element of a list. The bounds of `protect` count the rows that come out.

        Parameters
        ----------
        columns
            One column of lists or arrays.
        empty_as_null
            Whether an empty list is a row with null; False: it has none.
        keep_nulls
            Whether null is a row with null; False: it has none.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        TypeError, ValueError
            If there is no privacy unit, or the column is not one of lists.
        """
        self._refuse_without_unit("explode")
        for flag in (empty_as_null, keep_nulls):
            if not isinstance(flag, bool):
                msg = f"explode: empty_as_null and keep_nulls must be True or False, got {given(flag)}."
                raise TypeError(msg)
        return self._after(Explode(selector("explode", columns), empty_as_null, keep_nulls))

    def unpivot(
        self,
        on: ColumnNameOrSelector | Sequence[ColumnNameOrSelector] | None = None,
        *,
        index: ColumnNameOrSelector | Sequence[ColumnNameOrSelector] | None = None,
        variable_name: str | None = None,
        value_name: str | None = None,
    ) -> Self:
        """Make a row for each of some columns. The bounds of `protect` count the rows that come out.

        Parameters
        ----------
        on
            The columns whose values become rows, all of one type; None: all but those of `index`.
        index
            The columns that stay, and the privacy unit in any case.
        variable_name, value_name
            The names of the new columns, "variable" and "value" if left out: whence a value is, and the value.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        TypeError, ValueError
            If there is no privacy unit or it is named in `on`, the columns are of several types, or names repeat.
        """
        self._refuse_without_unit("unpivot")
        for name in (variable_name, value_name):
            if name is not None and not isinstance(name, str):
                msg = f"unpivot: variable_name and value_name must be names, got {given(name)}."
                raise TypeError(msg)
        stays = cs.empty() if index is None else selector("unpivot", index)
        columns = cs.all() - stays if on is None else self._but_the_unit(selector("unpivot", on), on, "unpivot")
        return self._after(
            Unpivot(
                columns,
                stays,
                "variable" if variable_name is None else variable_name,
                "value" if value_name is None else value_name,
            )
        )

    def unique(
        self,
        subset: ColumnNameOrSelector | Sequence[ColumnNameOrSelector] | None = None,
        *,
        keep: UniqueKeepStrategy = "any",
        maintain_order: bool = False,  # noqa: ARG002
    ) -> Self:
        """Keep one of a person's rows that are equal in some columns; or none that has an equal.

        Why it is the same one in any order of the rows: see :doc:`/proofs/whole-numbers`.

        Parameters
        ----------
        subset
            The columns that are compared, the privacy unit among them; None: all. -0.0 equals 0.0, NaN equals NaN and
            null equals null.
        keep
            "none": rows that have an equal go, all of them. Otherwise one of equal rows stays: the first in the order
            of the other columns, or the last with "last".
        maintain_order
            Ignored: a private frame has no order.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        TypeError, ValueError
            If there is no privacy unit or it is not compared; if a compared column is nested; or if another one has
            no order and one of equal rows would stay.
        """
        self._refuse_without_unit("unique")
        columns = cs.all() if subset is None else selector("unique", subset)
        return self._after(Unique(columns, one_of("keep", keep, _KEEP)))

    def _refuse_without_unit(self, call: str) -> None:
        if self._recipe.protection.privacy_unit is None:
            msg = (
                f"{call}: a private frame must have a privacy unit, or every row would be a person of its own "
                "afterwards.\n\nHint: name the column that tells people apart, in protect."
            )
            raise ValueError(msg)
