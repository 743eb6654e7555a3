"""Transformations of a private frame as methods, row by row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar

import polars as pl
from polars import selectors as cs

from dp_polars._base.calls import all_called
from dp_polars._base.column_types import PrivacyUnit, shown
from dp_polars._base.numbers import flag, given
from dp_polars._frames.own_rows import refuse_windows
from dp_polars._release.pipeline import (
    Dropping,
    EachColumn,
    Expressions,
    Rename,
    Step,
    Unnest,
    expressions_of,
    free_names,
)

if TYPE_CHECKING:
    from polars._typing import (
        ColumnNameOrSelector,
        FillNullStrategy,
        PolarsDataType,
        PythonDataType,
        SelectorType,
    )

    from dp_polars._release.pipeline import Pipeline, Run


P = ParamSpec("P")
T = TypeVar("T")

_NO_UNIT = "every row would be a person of its own afterwards"
# The columns that a constant fills, by its type.
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


@all_called
class Steps:
    """The methods of Polars' frames that work row by row, with the names and parameters of Polars."""

    _pipeline: Pipeline
    _source: pl.LazyFrame | None

    if TYPE_CHECKING:

        def _after(self, step: Step) -> Self: ...

        def collect_schema(self) -> pl.Schema: ...

    def _then(
        self, method: Literal["filter", "select", "with_columns"], exprs: tuple[pl.Expr, ...], call: str = ""
    ) -> Self:
        refuse_windows(call or method, exprs, self._pipeline.protection.unit, has_rows=self._source is not None)
        return self._after(Expressions(method, exprs, call))

    @property
    def columns(self) -> list[str]:
        """The names of the columns after all transformations: see `collect_schema`."""
        return self.schema.names()

    @property
    def schema(self) -> pl.Schema:
        """The names and types of the columns after all transformations: see `collect_schema`."""
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
        """Leave columns out. The privacy unit stays if a selector covers it. To name it is a ValueError."""
        gone = self._but_the_unit(selector("drop", columns, strict=strict), columns, "drop")
        return self._then("select", (cs.all() - gone,), "drop")

    def rename(self, mapping: Mapping[str, str] | Callable[[str], str], *, strict: bool = True) -> Self:
        """Give columns other names. ValueError if the privacy unit would get one, or another column its name."""
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
        """Convert columns to other types. The privacy unit keeps its own. If it is named, that is a ValueError.

        Values that do not fit become null. `strict` is ignored: an error would reveal that a row has such a value.
        """
        pairs = dtypes.items() if isinstance(dtypes, Mapping) else [(cs.all(), dtypes)]
        casts = []
        for key, dtype in pairs:
            columns = key if isinstance(key, str) or cs.is_selector(key) else cs.by_dtype(key)
            casts.append((self._but_the_unit(selector("cast", columns), columns, "cast"), (dtype,)))
        return self._after(EachColumn("cast", tuple(casts)))

    def drop_nulls(self, subset: ColumnNameOrSelector | Collection[ColumnNameOrSelector] | None = None) -> Self:
        """Keep the rows that have no null in some columns, or in any."""
        columns = cs.all() if subset is None else selector("drop_nulls", subset)
        return self._after(
            Dropping("filter", (pl.all_horizontal(columns.is_not_null()),), "drop_nulls", columns=columns)
        )

    def drop_nans(self, subset: ColumnNameOrSelector | Collection[ColumnNameOrSelector] | None = None) -> Self:
        """Keep the rows that have no NaN in some columns, or in any; nulls stay."""
        columns = cs.float() if subset is None else selector("drop_nans", subset)
        is_nan = pl.any_horizontal(columns.is_nan().fill_null(value=False))
        return self._after(Dropping("filter", (~is_nan,), "drop_nans", columns=columns))

    def fill_null(
        self,
        value: object = None,
        strategy: FillNullStrategy | None = None,
        limit: int | None = None,
        *,
        matches_supertype: bool = True,
    ) -> Self:
        """Replace nulls, except in the privacy unit: its null rows are dropped.

        Parameters
        ----------
        value
            A constant, which fills the columns of its kind (numbers fill columns of all numbers), or an expression,
            which fills all. ValueError if it is not row by row, or does not fit all columns.
        strategy, limit
            Refused: they use values of other rows.
        matches_supertype
            Whether a number also fills columns of other numeric types than Int64 (of an int) or Float64.
        """
        columns = next(columns for kinds, columns in _FILLED if isinstance(value, kinds))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not matches_supertype:
            columns = cs.by_dtype(pl.Int64 if isinstance(value, int) else pl.Float64)
        return self._after(EachColumn("fill_null", ((self._but_the_unit(columns), (value, strategy, limit)),)))

    def fill_nan(self, value: float | pl.Expr | None) -> Self:
        """Replace NaN in all columns of floats but the privacy unit, by a number, null or an expression."""
        return self._after(EachColumn("fill_nan", ((self._but_the_unit(cs.float()), (value,)),)))

    def unnest(
        self,
        columns: ColumnNameOrSelector | Collection[ColumnNameOrSelector],
        *more_columns: ColumnNameOrSelector,
        separator: str | None = None,
    ) -> Self:
        """Put the fields of structs in their place. ValueError if the privacy unit, or its name, is among them."""
        named = (columns, more_columns)
        return self._after(Unnest(self._but_the_unit(selector("unnest", named), named, "unnest"), separator))

    def pipe(self, function: Callable[Concatenate[Self, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `function(frame, *args, **kwargs)`, as in Polars."""
        return function(self, *args, **kwargs)

    def _but_the_unit(self, columns: SelectorType, named: object = (), call: str = "") -> SelectorType:
        unit = self._pipeline.protection.unit or ()
        if any(isinstance(name, str) and name in unit for name in _flat(named)):
            msg = (
                f"{call}: the privacy unit {shown(unit)} must stay as it is.\n\n"
                "Hint: leave it out. It never appears in an answer unless you request it."
            )
            raise ValueError(msg)
        return columns - cs.by_name(*unit, require_all=False) if unit else columns

    def explode(
        self,
        columns: ColumnNameOrSelector | Iterable[ColumnNameOrSelector],
        *,
        empty_as_null: bool = False,
        keep_nulls: bool = True,
    ) -> Self:
        """Make a row for each element of a list. The limits of `protect` count the new rows.

        It must be one column of lists or arrays, and there must be a privacy unit: else a TypeError or ValueError.
        `empty_as_null` and `keep_nulls` decide whether an empty list, and null, becomes a row with null or none.
        """
        self._pipeline.protection.refuse_no_unit("explode", _NO_UNIT)
        flags = flag("explode: empty_as_null", empty_as_null), flag("explode: keep_nulls", keep_nulls)
        return self._after(Explode(selector("explode", columns), *flags))

    def unpivot(
        self,
        on: ColumnNameOrSelector | Sequence[ColumnNameOrSelector] | None = None,
        *,
        index: ColumnNameOrSelector | Sequence[ColumnNameOrSelector] | None = None,
        variable_name: str | None = None,
        value_name: str | None = None,
    ) -> Self:
        """Make a row for each of some columns. The limits of `protect` count the rows that come out.

        Parameters
        ----------
        on
            The columns with the values that become rows, all of one type; None: all but those of `index`. It is an
            error if it names the privacy unit or there is none, if columns are of several types, or if names repeat.
        index
            The columns that stay, and the privacy unit in any case.
        variable_name, value_name
            The names of the new columns, "variable" and "value" if left out: the source of a value, and the value.
        """
        self._pipeline.protection.refuse_no_unit("unpivot", _NO_UNIT)
        names = ["variable" if variable_name is None else variable_name, "value" if value_name is None else value_name]
        for name in names:
            if not isinstance(name, str):
                msg = f"unpivot: variable_name and value_name must be names, got {given(name)}."
                raise TypeError(msg)
        stays = cs.empty() if index is None else selector("unpivot", index)
        columns = cs.all() - stays if on is None else self._but_the_unit(selector("unpivot", on), on, "unpivot")
        return self._after(Unpivot(columns, stays, *names))


def _flat(columns: object) -> list[object]:
    if isinstance(columns, (str, pl.Expr)) or not isinstance(columns, Collection):
        return [columns]
    return [item for column in columns for item in _flat(column)]


def selector(call: str, columns: object, *, strict: bool = True) -> SelectorType:
    flat = _flat(columns)
    for column in flat:
        if not isinstance(column, str) and not cs.is_selector(column):
            msg = f"{call}: columns must be names or selectors, got {given(column)}."
            raise TypeError(msg)
    names = [column for column in flat if isinstance(column, str)]
    selectors = [column for column in flat if not isinstance(column, str)]
    return reduce(or_, selectors, cs.by_name(*names, require_all=strict))


@dataclass(frozen=True)
class Explode(Step):
    """A row for each element of a list."""

    name: ClassVar[str] = "explode"

    column: SelectorType
    empty_as_null: bool
    keep_nulls: bool

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
        return lambda rows: rows.explode(name, empty_as_null=self.empty_as_null, keep_nulls=self.keep_nulls)


@dataclass(frozen=True)
class Unpivot(Step):
    """A row for each of some columns."""

    name: ClassVar[str] = "unpivot"

    on: SelectorType
    index: SelectorType
    variable_name: str
    value_name: str

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
        # If a new column has the name of one of `on`, Polars may fail later.
        variable, value = free_names(2, schema)
        names = {variable: self.variable_name, value: self.value_name}
        return lambda rows: rows.unpivot(on, index=stays, variable_name=variable, value_name=value).rename(names)
