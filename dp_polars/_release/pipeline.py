"""The transformations of a private frame, from its columns to those that are read, proved once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, cast, get_args

import polars as pl
from polars import selectors as cs

from dp_polars._base.column_types import PrivacyUnit, is_opaque, must_have, parts_of, shown, unshared
from dp_polars._base.numbers import given, kind_of_frame, one_of
from dp_polars._bins.candidates import casting
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._sources.files import Identity
from dp_polars._sources.running import by_name
from dp_polars._steps.gate import adds_floats, fitting, one_output_each, refuse_patterns, row_by_row

if TYPE_CHECKING:
    from polars._typing import SelectorType

    from dp_polars._release.protection import Protection


# A step on rows of the columns that it was proved on.
Run: TypeAlias = Callable[[pl.LazyFrame], pl.LazyFrame]


class Filled(NamedTuple):
    """Which columns have no null, and no NaN, in any row: known from the steps alone."""

    not_null: frozenset[str] = frozenset()
    not_nan: frozenset[str] = frozenset()

    def but(self, names: Iterable[str]) -> Filled:
        return Filled(self.not_null.difference(names), self.not_nan.difference(names))

    def among(self, names: Iterable[str]) -> Filled:
        return Filled(self.not_null.intersection(names), self.not_nan.intersection(names))


class Step(ABC):
    """A step on private rows, which makes what comes of a row from that row alone."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The method that the user called, for the repr."""

    @property
    def looks_at_order(self) -> bool:
        """Whether the order of the columns may decide what comes out: where one expression has several outputs."""
        return any(expr.meta.has_multiple_outputs() for expr in getattr(self, "expressions", ()))

    def adds_floats(self, schema: pl.Schema) -> bool:  # noqa: ARG002
        """Return whether it adds up the floats of a list, which count to the nearest 2⁻⁴⁰."""
        return False

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        """Return all that decides what the step does to the columns that are live: usually its fields."""
        return tuple(getattr(self, one.name) for one in fields(self))  # type: ignore[arg-type]  # a dataclass

    def fills(self, before: Filled, schema: pl.Schema) -> Filled:  # noqa: ARG002
        """Return which columns have a value in every row afterwards, of a step on rows with these columns."""
        return Filled()

    @abstractmethod
    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        """Return what runs this step on rows of these columns; an error where it must not be run."""


JoinHow: TypeAlias = Literal["left", "inner", "semi", "anti"]
_HOW: tuple[JoinHow, ...] = get_args(JoinHow)
#: Joins that bring no column, and never two rows of one.
ONLY_FILTERS = frozenset({"semi", "anti"})


@dataclass(frozen=True)
class Expressions(Step):
    """A filter, a select or a with_columns. `call` is what the user wrote, if that is another method."""

    method: Literal["filter", "select", "with_columns"]
    expressions: tuple[pl.Expr, ...]
    call: str = ""

    @property
    def name(self) -> str:
        return self.call or self.method

    def adds_floats(self, schema: pl.Schema) -> bool:
        return any(
            adds_floats(expr, schema, self.name) for expr in one_output_each(self.expressions, schema, self.name)
        )

    def fills(self, before: Filled, schema: pl.Schema) -> Filled:
        if self.method == "filter":
            return before
        exprs = one_output_each(self.expressions, schema, self.name)
        as_they_are = {expr.meta.output_name() for expr in exprs if _is_selection(expr)}
        return before.but({expr.meta.output_name() for expr in exprs} - as_they_are)

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        exprs, frame = one_output_each(self.expressions, schema, self.name), pl.LazyFrame(schema=schema)
        proved = [row_by_row(expr, schema, self.name) for expr in exprs]
        if self.method == "filter":
            return lambda rows: rows.filter(*proved)
        outputs = [frame.select(expr).collect_schema().names() for expr in proved]
        for expr, names in zip(proved, outputs, strict=True):
            if unit is not None and not {*unit}.isdisjoint(names) and not _is_selection(expr):
                msg = (
                    f"{self.name}: an expression must not change the privacy unit {shown(unit)}.\n\n"
                    f"Hint: give the new column another name, or leave the unit out: pl.exclude({shown(unit)})."
                )
                raise ValueError(msg)
        if self.method == "with_columns":
            return lambda rows: rows.with_columns(*proved)
        names = [name for output in outputs for name in output]
        if unit is None and not names:
            msg = "select: at least one column must stay, or the rows are lost with the columns."
            raise ValueError(msg)
        left = [*(name for name in unit or () if name not in names), *names]
        # After with_columns, so that a constant has as many rows as the frame.
        return lambda rows: rows.with_columns(*proved).select(left)


@dataclass(frozen=True)
class Dropping(Expressions):
    """A filter that leaves out rows with a null, or a NaN, in some columns."""

    columns: SelectorType = field(kw_only=True)

    def fills(self, before: Filled, schema: pl.Schema) -> Filled:
        names = before.not_null if self.call == "drop_nulls" else before.not_nan
        names = names.union(pl.LazyFrame(schema=schema).select(self.columns).collect_schema().names())
        return before._replace(not_null=names) if self.call == "drop_nulls" else before._replace(not_nan=names)


@dataclass(frozen=True)
class EachColumn(Step):
    """A method of expressions on every column of some selectors, each proved by itself."""

    method: str
    columns: tuple[tuple[SelectorType, tuple[Any, ...]], ...]

    @property
    def name(self) -> str:
        return self.method

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:  # noqa: ARG002
        return self.method, *(getattr(columns.as_expr(), self.method)(*given) for columns, given in self.columns)

    def fills(self, before: Filled, schema: pl.Schema) -> Filled:
        """Return which columns are filled: those that get a number, or true or false, which is no NaN."""
        found = before
        for columns, (value, *_) in self.columns:
            names = pl.LazyFrame(schema=schema).select(columns).collect_schema().names()
            if not isinstance(value, (bool, int, float)) or value != value:  # NaN
                found = found.but(names)
            elif self.method == "fill_null":
                found = found._replace(not_null=found.not_null.union(names))
            elif self.method == "fill_nan":
                found = found._replace(not_nan=found.not_nan.union(names))
            else:
                found = found.but(names)
        return found

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        """Return what runs this step; where a column is selected twice, the last one counts."""
        frame, exprs = pl.LazyFrame(schema=schema), {}
        for columns, arguments in self.columns:
            for name in frame.select(columns).collect_schema().names():
                exprs[name] = getattr(cs.by_name(name), self.method)(*arguments)
        return Expressions("with_columns", tuple(exprs.values()), self.method).proved(schema, unit)


@dataclass(frozen=True)
class Rename(Step):
    """Other names for columns."""

    name: ClassVar[str] = "rename"
    mapping: Mapping[str, str] | Callable[[str], str]
    strict: bool

    def parts(self, live: Callable[[], Sequence[str]]) -> tuple[object, ...]:
        return self.strict, *(self._renamed(sorted(live())) if callable(self.mapping) else self.mapping).items()

    def _renamed(self, names: Sequence[str]) -> Mapping[str, str]:
        return {name: self.mapping(name) for name in names} if callable(self.mapping) else self.mapping

    def fills(self, before: Filled, schema: pl.Schema) -> Filled:
        mapping = self._renamed(schema.names())
        return Filled(*(frozenset(mapping.get(name, name) for name in names) for names in before))

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        mapping = self._renamed(schema.names())
        if unit is not None and any(old != new and not {old, new}.isdisjoint(unit) for old, new in mapping.items()):
            msg = (
                f"rename: the privacy unit {shown(unit)} must keep its name, and no other column may have it.\n\n"
                "Hint: rename it before `protect`."
            )
            raise ValueError(msg)
        return lambda rows: rows.rename(mapping, strict=self.strict)


@dataclass(frozen=True)
class Unnest(Step):
    """Fields of structs as columns."""

    name: ClassVar[str] = "unnest"
    structs: SelectorType
    separator: str | None

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:  # noqa: ARG002
        names = pl.LazyFrame(schema=schema).select(self.structs).collect_schema().names()
        with fitting(self.name):
            pl.LazyFrame(schema=schema).unnest(names, separator=self.separator).collect_schema()
        structs = [(name, field.name) for name in names for field in cast("pl.Struct", schema[name]).fields]
        fields = [field if self.separator is None else f"{name}{self.separator}{field}" for name, field in structs]
        taken = [*(name for name in schema if name not in names), *fields]
        if repeated := sorted({name for name in taken if taken.count(name) > 1}):
            msg = (
                f"unnest: fields must be named unlike each other and unlike the columns, got several named {repeated}."
                "\n\nHint: rename the columns first, or pass a separator."
            )
            raise ValueError(msg)
        return lambda rows: rows.unnest(names, separator=self.separator)


@dataclass(frozen=True)
class Join(Step):
    """A join with a public frame that has each key at most once."""

    name: ClassVar[str] = "join"
    public: pl.DataFrame
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: JoinHow

    def fills(self, before: Filled, schema: pl.Schema) -> Filled:
        return before.among(schema)

    def proved(self, schema: pl.Schema, unit: PrivacyUnit | None) -> Run:
        for name in self.left_on:
            must_have(name, schema, "join column {}", "private frame")
        pairs = zip(self.left_on, self.right_on, strict=True)
        others = {*self.public.columns} - {left for left, right in pairs if left == right}
        if unit is not None and self.how not in ONLY_FILTERS and not others.isdisjoint(unit):
            msg = f"the public frame of a join must not have a column named like the privacy unit, {shown(unit)}."
            raise ValueError(msg)
        public, left_on, right_on = self.public.lazy(), list(self.left_on), list(self.right_on)
        for left, right in zip(self.left_on, self.right_on, strict=True):
            ours, theirs = schema[left], self.public.schema[right]
            try:
                pl.LazyFrame(schema={"x": ours}).join(pl.LazyFrame(schema={"x": theirs}), on="x").collect_schema()
            except pl.exceptions.SchemaError:
                msg = f"join: the public column {right!r} must be of the type of {left!r}, {ours}, got {theirs}."
                raise TypeError(msg + casting(theirs, ours)) from None
        return lambda rows: rows.join(public, left_on=left_on, right_on=right_on, how=self.how)


@dataclass(frozen=True)
class CheckedPipeline:
    """Transformations that were proved, each once, on its columns: the first of `schemas`, then the next one."""

    schemas: tuple[pl.Schema, ...]
    runs: tuple[Run, ...] = ()

    def then(self, step: Step, unit: PrivacyUnit | None) -> CheckedPipeline:
        """Return these steps and one more, proved on the columns after them."""
        schema = self.schemas[-1]
        run = step.proved(schema, unit)
        after = run(pl.LazyFrame(schema=schema)).collect_schema()
        refuse_patterns(after)
        return CheckedPipeline((*self.schemas, after), (*self.runs, run))

    def rows(self, frame: pl.LazyFrame, first: int = 0) -> pl.LazyFrame:
        """Return the rows after all transformations, or those from `first` on; refuse columns that nothing proved."""
        if frame.collect_schema() != self.schemas[first]:
            msg = "The rows must have the columns that they had before they were read."
            raise TypeError(msg)
        for run in self.runs[first:]:
            frame = run(frame)
        return frame


@dataclass(frozen=True)
class Pipeline:
    """Who is protected and how, the row-by-row steps so far, and where the rows come from.

    `dataset` is the name of the data, if any; `files` are what its files were when they were protected; `unchecked`:
    whether what made the rows is not looked at. `filled_before` are columns with a value in every row, as the engine of
    a release knows them. `proof` is of these steps on the columns that they were last proved on; it is in no pickle.
    """

    protection: Protection
    steps: tuple[Step, ...] = ()
    dataset: str | None = None
    files: tuple[Identity, ...] = ()
    unchecked: bool = False
    filled_before: frozenset[str] = frozenset()
    proof: CheckedPipeline | None = field(default=None, repr=False, compare=False)

    @property
    def adds_floats(self) -> bool:
        """Whether a step adds up the floats of lists, so far as the columns are known."""
        schemas = () if self.proof is None else self.proof.schemas
        return any(step.adds_floats(schema) for step, schema in zip(self.steps, schemas, strict=False))

    @property
    def filled(self) -> frozenset[str]:
        """The columns that have a value in every row, as far as the columns and the steps say so."""
        if self.proof is None:
            return frozenset() if self.steps else self.filled_before
        found = Filled()
        for step, schema, after in zip(self.steps, self.proof.schemas, self.proof.schemas[1:], strict=False):
            found = step.fills(found, schema).among(after)
        types = self.proof.schemas[-1]
        return frozenset(name for name in found.not_null if name in found.not_nan or not types[name].is_float())

    def then(self, step: Step) -> Pipeline:
        proof = None if self.proof is None else self.proof.then(step, self._kept)
        return replace(self, steps=(*self.steps, step), proof=proof)

    @property
    def _kept(self) -> PrivacyUnit | None:
        """The columns that transformations leave as they are: the privacy unit, and those of disjoint parts."""
        parts = self.protection.parts
        return self.protection.unit if parts is None else tuple(sorted({*(self.protection.unit or ()), *parts.columns}))

    def proved(self, schema: pl.Schema) -> CheckedPipeline:
        """Return all transformations, proved on these columns; what is proved already is not proved again."""
        if self.proof is not None and self.proof.schemas[0] == schema:
            return self.proof
        unit = self.protection.unit
        for name in unit or ():
            must_have(name, schema, "privacy unit {} as a column")
            if is_opaque(schema[name]):
                msg = (
                    f"the privacy unit {name!r} must not be or hold an Extension or Objects, got {schema[name]}.\n\n"
                    "Hint: take its storage before protect: with_columns(pl.col(…).ext.storage())."
                )
                raise TypeError(msg)
            if schema[name].is_nested() and pl.Categorical in list(parts_of(schema[name])):
                # Polars may tell them apart by their numbers, which can be others in the next scan.
                msg = (
                    f"the privacy unit {name!r} must not hold Categoricals inside a nested type, got {schema[name]}."
                    "\n\nHint: cast them to pl.String before protect."
                )
                raise TypeError(msg)
        refuse_patterns(schema)
        proof = CheckedPipeline((schema,))
        for step in self.steps:
            proof = proof.then(step, self._kept)
        return proof

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "proof": None}


def expressions_of(exprs: Sequence[object], named: Mapping[str, object], *, strings: bool) -> tuple[pl.Expr, ...]:
    several = (expr if isinstance(expr, (list, tuple, Iterator)) else [expr] for expr in exprs)
    flat = [pl.lit(expr) if isinstance(expr, bool) else expr for expr in chain.from_iterable(several)]
    arguments = [pl.col(expr) if strings and isinstance(expr, str) else expr for expr in flat]
    for name, value in named.items():
        expr = pl.col(value) if strings and isinstance(value, str) else value
        arguments.append((expr if isinstance(expr, pl.Expr) else pl.lit(expr)).alias(name))
    for expr in arguments:
        if isinstance(expr, PrivateExpr):
            msg = (
                "steps on a private frame must be plain expressions, got a private answer.\n\nHint: put it into the "
                "agg of a private frame, or of its public groups: group_by({…}).agg(pl.col('x').dp.median(…))."
            )
            raise TypeError(msg)
        if not isinstance(expr, pl.Expr):
            msg = (
                f"steps on a private frame must be Polars expressions such as pl.col('x') > 3, got {given(expr)}."
                "\n\nHint: compute it of the columns of the row; or join a public table: frame.join(public, on=…)."
            )
            raise TypeError(msg)
    return tuple(expr for expr in arguments if isinstance(expr, pl.Expr))


def join_keys(on: object, left_on: object, right_on: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if (on is None) == (left_on is None) or (left_on is None) != (right_on is None):
        msg = (
            "join: the keys must be given as `on`, or as `left_on` and `right_on`.\n\n"
            "Hint: join a public table on a column: on=…."
        )
        raise TypeError(msg)
    sides = (("on", on), ("on", on)) if on is not None else (("left_on", left_on), ("right_on", right_on))
    left, right = (_key_names(*side) for side in sides)
    if len(left) != len(right):
        msg = f"join: left_on and right_on must name as many columns, got {len(left)} and {len(right)}."
        raise ValueError(msg)
    return left, right


def join_how(how: object) -> JoinHow:
    try:
        return one_of("how", how, _HOW, '"left", "inner", "semi" or "anti"')
    except ValueError as error:
        msg = (
            f'{error}\n\nHint: "left" keeps all rows of this frame. Rows of the other frame alone are nobody\'s here: '
            "join the released answers to a public frame that has them."
        )
        raise ValueError(msg) from None


def free_names(number: int, taken: Collection[str]) -> list[str]:
    prefix = "key"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return [f"{prefix}{i}" for i in range(number)]


def join_of(public: object, on: object, left_on: object, right_on: object, how: object) -> Join:
    left, right = join_keys(on, left_on, right_on)
    kind = join_how(how)
    if isinstance(public, pl.LazyFrame):
        public = public.collect(engine=by_name("auto"))
    if not isinstance(public, pl.DataFrame):
        msg = f"a private frame must be joined with a public DataFrame or LazyFrame, got {kind_of_frame(public)}"
        raise TypeError(msg)
    public = unshared(public)
    if missing := [name for name in right if name not in public.columns]:
        argument = "on" if right_on is None else "right_on"
        msg = f"{argument} must name columns of the public frame, {public.columns}, got {missing}."
        raise ValueError(msg)
    if kind in ONLY_FILTERS:
        public = public.select(*dict.fromkeys(right)).unique()
    elif public.select(right).is_duplicated().any():
        msg = (
            f"the public frame must have every key of {list(right)} at most once: a repeated one would multiply the "
            "rows of a person.\n\nHint: aggregate it first, or use unique(subset=…). If its rows are about people, it "
            "is not public: join it before `protect`."
        )
        raise ValueError(msg)
    for name in right:
        key = public[name]
        if is_opaque(key.dtype):
            msg = (
                f"join: the key {name!r} must not be or hold an Extension or Objects, got {key.dtype}.\n\n"
                "Hint: take the storage of both in the transformation before: with_columns(pl.col(…).ext.storage())."
            )
            raise TypeError(msg)
        is_nan = key.dtype.is_float() and key.is_nan().any()
        if is_nan or (key.dtype.is_nested() and any(part.is_float() for part in parts_of(key.dtype))):
            what = "NaN" if is_nan else f"{key.dtype}, which may hold NaN"
            msg = (
                f"join: the key {name!r} of the public frame must not be {what}: whether it equals a private NaN "
                "depends on the number of rows.\n\nHint: leave NaN out, public.drop_nans(…), and join by fields or "
                "elements."
            )
            raise ValueError(msg)
    # Null equals nothing. On Polars 1 a null list or struct equals one or not by how many rows there are.
    return Join(public.drop_nulls([*right]), left, right, kind)


def _key_names(argument: str, names: object) -> tuple[str, ...]:
    keys = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, (list, tuple)) else ()
    if not keys or not all(isinstance(name, str) for name in keys):
        msg = f"{argument} must be the name of a column or a list of names, got {given(names)}."
        raise TypeError(msg)
    return keys


def _is_selection(expr: pl.Expr) -> bool:
    """Return whether the outputs are columns as they are, under their own names."""
    # On Polars 1.36 an alias counts as a selection too; its node is told by its name.
    return expr.meta.is_column_selection() and 'Alias"' not in expr.meta.serialize(format="json")
