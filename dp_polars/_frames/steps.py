"""Row-by-row methods of a private frame that are written as a filter, a select or a with_columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

import polars as pl
from polars import selectors as cs

from dp_polars._base.numbers import given
from dp_polars._base.privacy_units import shown
from dp_polars._frames.recipe import EachColumn, Expressions, Recipe, Rename, Unnest, expressions_of
from dp_polars._frames.step import Step

if TYPE_CHECKING:
    from typing import Self

    from polars._typing import ColumnNameOrSelector, FillNullStrategy, PolarsDataType, PythonDataType, SelectorType

P = ParamSpec("P")
T = TypeVar("T")

# Which columns a constant fills, by its type.
_FILLED: tuple[tuple[type | tuple[type, ...], SelectorType], ...] = (
    (bool, cs.boolean()),
    ((int, float), cs.numeric()),
    (str, cs.string(include_categorical=True)),
    (dt.datetime, cs.datetime()),
    (dt.date, cs.date()),
    (dt.time, cs.time()),
    (dt.timedelta, cs.duration()),
    (object, cs.all()),
)


class RowSteps:
    """The methods of Polars' frames that work on each row alone, with the names and parameters of Polars."""

    _recipe: Recipe

    if TYPE_CHECKING:

        def _after(self, step: Step) -> Self: ...

        def collect_schema(self) -> pl.Schema: ...

    def _then(
        self, method: Literal["filter", "select", "with_columns"], exprs: tuple[pl.Expr, ...], call: str = ""
    ) -> Self:
        return self._after(Expressions(method, exprs, call))

    @property
    def columns(self) -> list[str]:
        """The names of the columns after all steps: see `collect_schema`."""
        return self.collect_schema().names()

    @property
    def schema(self) -> pl.Schema:
        """The names and types of the columns after all steps: see `collect_schema`."""
        return self.collect_schema()

    def with_columns_seq(self, *exprs: pl.Expr | str, **named: object) -> Self:
        """Add or replace columns, row by row: `with_columns` under its other name."""
        return self._then("with_columns", expressions_of(exprs, named, strings=True), "with_columns_seq")

    def select_seq(self, *exprs: pl.Expr | str, **named: object) -> Self:
        """Keep or make columns, row by row: `select` under its other name."""
        return self._then("select", expressions_of(exprs, named, strings=True), "select_seq")

    def remove(self, *predicates: pl.Expr | str | bool, **constraints: object) -> Self:
        """Drop the rows for which all predicates are true; keep those for which one is null.

        Parameters, result and errors are those of `filter`.
        """
        equal = tuple(pl.col(name) == pl.lit(value) for name, value in constraints.items())
        true = (*expressions_of(predicates, {}, strings=True), *equal)
        return self._then("filter", (~reduce(and_, true).fill_null(value=False),) if true else (), "remove")

    def drop(self, *columns: ColumnNameOrSelector | Collection[ColumnNameOrSelector], strict: bool = True) -> Self:
        """Leave columns out. The privacy unit stays, even if a selector covers it.

        Parameters
        ----------
        *columns
            Names or selectors.
        strict
            Whether a name without a column is an error.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        ValueError
            If the privacy unit is named.
        """
        gone = self._but_the_unit(selector("drop", columns, strict=strict), columns, "drop")
        return self._then("select", (cs.all() - gone,), "drop")

    def rename(self, mapping: Mapping[str, str] | Callable[[str], str], *, strict: bool = True) -> Self:
        """Give columns other names.

        Parameters
        ----------
        mapping
            Old name -> new name, or a function of names.
        strict
            Whether an old name without a column is an error.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        ValueError
            If the privacy unit would get another name, or another column its name.
        """
        if not (isinstance(mapping, Mapping) or callable(mapping)):
            msg = f"rename: mapping must be a dict of names or a function of them, got {given(mapping)}."
            raise TypeError(msg)
        return self._after(Rename(mapping if callable(mapping) else dict(mapping), strict))

    def cast(
        self,
        dtypes: Mapping[ColumnNameOrSelector | PolarsDataType, PolarsDataType | PythonDataType]
        | PolarsDataType
        | PythonDataType,
        *,
        strict: bool = True,  # noqa: ARG002
    ) -> Self:
        """Convert columns to other types. What does not fit becomes null.

        Parameters
        ----------
        dtypes
            Names, selectors or types of columns -> their new types; or one type for all. The privacy unit keeps its
            type, where it is not named.
        strict
            Ignored: an error would reveal that a row has a value that does not fit.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        ValueError
            If the privacy unit is named, or a cast is not row by row.
        """
        pairs = dtypes.items() if isinstance(dtypes, Mapping) else [(cs.all(), dtypes)]
        casts = []
        for key, dtype in pairs:
            columns = key if isinstance(key, str) or cs.is_selector(key) else cs.by_dtype(key)
            casts.append((self._but_the_unit(selector("cast", columns), columns, "cast"), (dtype,)))
        return self._after(EachColumn("cast", tuple(casts)))

    def drop_nulls(self, subset: ColumnNameOrSelector | Collection[ColumnNameOrSelector] | None = None) -> Self:
        """Keep the rows that have no null.

        Parameters
        ----------
        subset
            The columns that are looked at; None: all.

        Returns
        -------
        PrivateFrame
        """
        columns = cs.all() if subset is None else selector("drop_nulls", subset)
        return self._then("filter", (pl.all_horizontal(columns.is_not_null()),), "drop_nulls")

    def drop_nans(self, subset: ColumnNameOrSelector | Collection[ColumnNameOrSelector] | None = None) -> Self:
        """Keep the rows that have no NaN; nulls stay.

        Parameters
        ----------
        subset
            The columns that are looked at; None: all of floats.

        Returns
        -------
        PrivateFrame
        """
        columns = cs.float() if subset is None else selector("drop_nans", subset)
        return self._then("filter", (~pl.any_horizontal(columns.is_nan().fill_null(value=False)),), "drop_nans")

    def fill_null(
        self,
        value: object = None,
        strategy: FillNullStrategy | None = None,
        limit: int | None = None,
        *,
        matches_supertype: bool = True,
    ) -> Self:
        """Replace nulls, but not those of the privacy unit, whose rows are dropped.

        Parameters
        ----------
        value
            A constant, which fills the columns of its kind (numbers fill columns of all numbers), or an expression,
            which fills all.
        strategy, limit
            Refused: they take values from other rows.
        matches_supertype
            Whether a number also fills columns of other numeric types than Int64 (of an int) or Float64.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        ValueError
            If the expression is not row by row, or does not fit all columns.
        """
        columns = next(columns for kinds, columns in _FILLED if isinstance(value, kinds))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not matches_supertype:
            columns = cs.by_dtype(pl.Int64 if isinstance(value, int) else pl.Float64)
        return self._after(EachColumn("fill_null", ((self._but_the_unit(columns), (value, strategy, limit)),)))

    def fill_nan(self, value: float | pl.Expr | None) -> Self:
        """Replace NaN in all columns of floats but the privacy unit.

        Parameters
        ----------
        value
            A number, null or an expression.

        Returns
        -------
        PrivateFrame
        """
        return self._after(EachColumn("fill_nan", ((self._but_the_unit(cs.float()), (value,)),)))

    def unnest(
        self,
        columns: ColumnNameOrSelector | Collection[ColumnNameOrSelector],
        *more_columns: ColumnNameOrSelector,
        separator: str | None = None,
    ) -> Self:
        """Put the fields of structs in their place, as columns.

        Parameters
        ----------
        columns, *more_columns
            Names or selectors of structs.
        separator
            What stands between the struct's name and the field's; None: the field's name alone.

        Returns
        -------
        PrivateFrame

        Raises
        ------
        ValueError
            If the privacy unit is named, or a field has its name.
        """
        named = (columns, more_columns)
        structs = self._but_the_unit(selector("unnest", named), named, "unnest")
        return self._after(Unnest(structs, separator))

    def pipe(self, function: Callable[Concatenate[Self, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes of the private frame: `function(frame, *args, **kwargs)`."""
        return function(self, *args, **kwargs)

    def _but_the_unit(self, columns: SelectorType, named: object = (), call: str = "") -> SelectorType:
        """Return the columns without the privacy unit; refuse them if it is named."""
        unit = self._recipe.protection.unit or ()
        if any(isinstance(name, str) and name in unit for name in _flat(named)):
            msg = (
                f"{call}: the privacy unit {shown(unit)} must stay as it is.\n\n"
                "Hint: leave it out. It never appears in an answer unless you ask for it."
            )
            raise ValueError(msg)
        return columns - cs.by_name(*unit, require_all=False) if unit else columns


def _flat(columns: object) -> list[object]:
    if isinstance(columns, (str, pl.Expr)) or not isinstance(columns, Collection):
        return [columns]
    return [item for column in columns for item in _flat(column)]


def selector(call: str, columns: object, *, strict: bool = True) -> SelectorType:
    """Return names and selectors as one selector."""
    flat = _flat(columns)
    for column in flat:
        if not isinstance(column, str) and not cs.is_selector(column):
            msg = f"{call}: columns must be names or selectors, got {given(column)}."
            raise TypeError(msg)
    names = [column for column in flat if isinstance(column, str)]
    selectors = [column for column in flat if not isinstance(column, str)]
    return reduce(or_, selectors, cs.by_name(*names, require_all=strict))
