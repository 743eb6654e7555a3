"""The private frame, and what it refuses."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import EllipsisType
from typing import TYPE_CHECKING, Generic, NoReturn, Self, TypeVar, overload

import polars as pl
from polars.dataframe.group_by import GroupBy

from dp_polars._accounting.budget import Budget
from dp_polars._accounting.terms import NeighboringRelation, warn_if_large
from dp_polars._base.calls import all_called, like
from dp_polars._base.numbers import plural
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._expressions.namespace import outputs_of, read_by_row
from dp_polars._frames.cube_query import Cubes
from dp_polars._frames.joins import OwnedJoin, OwnedRows, PrivateJoin, refuse_others, refuse_without_unit
from dp_polars._frames.key_query import Unlisted
from dp_polars._frames.methods import Steps
from dp_polars._frames.query import PrivateQuery
from dp_polars._questions.measures import Count
from dp_polars._questions.question import HistogramQuery, of_histogram
from dp_polars._release.pipeline import PersonGroups, expressions_of, join_how, join_keys, join_of, person_keys
from dp_polars._release.protection import Protection
from dp_polars._release.request import Ask, Request
from dp_polars._release.sources import PublicKeys, Unchanging, WithoutRows, public_keys, schemas_of, sources_of
from dp_polars._steps.nodes import names, warn_if_untested
from dp_polars._steps.plans import preparation_of
from dp_polars._steps.rules import BOUNDS, PEOPLE, Rule

if TYPE_CHECKING:
    from dp_polars._release.pipeline import JoinHow, Joining, Pipeline, Step


_RELEASE = "ask for private answers with agg(…), then release() the query."
_COMBINES = "combines the rows of several people, and would show the result without noise"

# The last rule is for what no other names.
METHODS = (
    Rule(
        names("head limit slice tail first last sample top_k bottom_k gather gather_every"),
        f"keeps rows by their place among the others, {PEOPLE}",
        "leave it out, or filter by what the row itself holds.",
    ),
    Rule(
        names("sort"),
        "goes by the order of the rows, and a private frame has none",
        "leave it out; sort the answers: query.release().sort(…). For what a person has first, sort inside: "
        'group_by(unit).agg(pl.col("diagnosis").sort_by("day").first()).',
    ),
    Rule(
        names("reverse set_sorted is_sorted with_row_index with_row_count"),
        "goes by the order of the rows, and a private frame has none",
        "leave it out; sort the answers: query.release().sort(…).",
    ),
    Rule(
        names("shift interpolate upsample"),
        f"takes values from other rows, {PEOPLE}",
        "use what depends on the row and on constants alone.",
    ),
    Rule(names("is_duplicated is_unique"), f"compares a row with the others, {PEOPLE}", BOUNDS),
    Rule(
        names(
            """
            sum mean median quantile min max std var product null_count n_unique approx_n_unique describe corr all
            estimated_size
            """
        ),
        _COMBINES,
        _RELEASE,
    ),
    Rule(
        names("count len height shape is_empty"),
        _COMBINES,
        "agg(dp_polars.len(epsilon=…)) counts rows, agg(dp_polars.n_people(epsilon=…)) people; then release() the "
        "query.",
    ),
    Rule(
        names("having"),
        "chooses groups by their rows, and that there is a group would tell of people",
        "filter the released answers: query.release().filter(…); or choose among one person's groups: "
        "group_by(unit, …).having(…).",
    ),
    Rule(
        names("group_by_dynamic rolling partition_by pivot unstack transpose to_dummies"),
        "makes groups from the rows, and that there is a group would tell that a row is there",
        'group by public keys: group_by({"ward": ["A", "B"]}).',
    ),
    Rule(names("melt"), "is the old name of `unpivot`", "use unpivot(…)."),
    Rule(
        names(
            "join_asof join_where merge_sorted update hstack vstack extend insert_column replace_column with_context"
        ),
        "brings in rows or columns otherwise than by a key",
        "join a public frame, a private one on the privacy unit, or owned rows: join(…, on=…).",
    ),
    Rule(
        names("map_batches map_columns map_rows map_groups inspect fold pipe_with_schema"),
        "runs a Python function on the rows, which may combine them or print them",
        "write it with native expressions: with_columns(…), filter(…).",
    ),
    Rule(names("sql"), "is not inspected", "use filter, with_columns and select."),
    Rule(
        names(
            """
            collect collect_async collect_batches execute fetch profile show glimpse plot style equals get_column
            get_columns item row rows rows_by_key hash_rows serialize iter_… sink_… to_… write_…
            """
        ),
        "shows private rows",
        _RELEASE,
    ),
    Rule(
        names("lazy clone cache rechunk shrink_to_fit clear"),
        "does nothing here: a private frame is lazy, and every method gives a new one",
        "leave it out.",
    ),
    Rule(
        names("remote"),
        "runs on machines where nothing protects the rows or pays for the answer",
        "ask with agg(…), and release() the query here.",
    ),
    Rule(names("explain show_graph"), "shows how private rows are read", "explain the query: frame.agg(…).explain()."),
    Rule(names("dtypes width"), "is a part of the schema", "use collect_schema()."),
    Rule(names("release"), "is of a query, and nothing is asked yet", "ask with agg first: agg(…).release()."),
    Rule(names("dp"), "frame is already protected", "go on with filter, with_columns, group_by or agg."),
    Rule(
        frozenset(),
        "is not known to look at one row alone",
        "use filter, with_columns, select, join, group_by and agg; the page Steps of a private frame lists all.",
    ),
)


def refusal(method: str, call: str = "") -> str:
    """Return why a private frame does not have a method, written as `call`, and what to do instead."""
    family = re.sub("^(iter|sink|to|write)_.*", r"\1_…", method)
    rule = next(rule for rule in METHODS if not rule.steps or method in rule.steps or family in rule.steps)
    return rule.message(call or method, "this")


class Refusing:
    """Says what to do instead of a method of Polars that would reveal private rows."""

    if not TYPE_CHECKING:  # so that a type checker knows the methods that there are

        def __getattr__(self, name: str) -> NoReturn:
            if name in ("_df", "_ldf"):  # of what a function of Polars is given
                msg = (
                    f"'PrivateFrame' object has no attribute {name!r}: a function of Polars was given a private frame, "
                    "whose rows it must not see.\n\n"
                    "Hint: call methods of the private frame: private.join(public, on=…)."
                )
                raise AttributeError(msg, name=name, obj=self)
            kinds = pl.LazyFrame, pl.DataFrame, GroupBy
            if name.startswith("_") or not (name == "release" or any(hasattr(kind, name) for kind in kinds)):
                meant = None if name.startswith("_") else like(name, {one for one in dir(self) if one[0] != "_"})
                hint = "" if meant is None else f".\n\nHint: did you mean {meant}?"
                msg = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
                raise AttributeError(msg, name=name, obj=self)
            raise AttributeError(refusal(name))

    def __len__(self) -> int:
        raise TypeError(refusal("len"))

    def __iter__(self) -> NoReturn:
        raise TypeError(refusal("rows", "iter"))

    def __getitem__(self, item: object) -> NoReturn:
        raise TypeError(refusal("rows", "frame[…]"))


FrameT = TypeVar("FrameT", bound="PrivateFrame")
_ARGMAX = "a mode or a quantile, or dp.argmax on a frame of public candidates with their scores."


class _OnTheRight(type):
    """Says what to write where a join of Polars is given a private frame: it asks only whether both are of one kind."""

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, (pl.DataFrame, pl.LazyFrame)):
            asks = sys._getframe(1).f_globals.get("__name__", "")
            if asks.partition(".")[0] == "polars":
                msg = (
                    "join: a private frame must be on the left, for its rows stay private.\n\n"
                    'Hint: private.join(public, on=…, how="left"), or "inner".'
                )
                raise TypeError(msg)
        return super().__instancecheck__(instance)


@all_called
class PrivateFrame(Steps, Unlisted, Cubes, Refusing, WithoutRows, metaclass=_OnTheRight):
    """Rows about people, of which only the answers of `agg` can be released. Made by `protect`.

    Every method gives a new frame. The steps before `agg` must be row by row, which is proved for each whole
    expression. A step that a value could make raise is changed to give null instead (casts are not strict). The privacy
    unit can't be changed or dropped.
    """

    def __init__(self, pipeline: Pipeline, sources: tuple[pl.LazyFrame, ...], budget: Budget | None) -> None:
        if budget is not None and not isinstance(budget, Budget):
            msg = (
                f"budget must be a Budget or None, got {type(budget).__name__}.\n\n"
                "Hint: budget=dp_polars.Budget(epsilon=1)."
            )
            raise TypeError(msg)
        warn_if_untested(pl.__version__)
        if sources:
            pipeline = replace(pipeline, proof=pipeline.proved(*schemas_of(sources)))
        self._pipeline, self._sources, self._budget = pipeline, sources, budget

    @property
    def protection(self) -> Protection:
        """Who is protected, and by which bounds."""
        return self._pipeline.protection

    def collect_schema(self) -> pl.Schema:
        """Return the names and types of the columns after all steps: they are public. Without data, a TypeError."""
        if not self._sources:
            msg = "the frame must be built on data to have columns.\n\nHint: frame.dp.protect(…)."
            raise TypeError(msg)
        return self._pipeline.proved(*schemas_of(self._sources)).schemas[-1]

    def filter(self, *predicates: pl.Expr | str | bool, **constraints: object) -> Self:
        """Keep the rows for which all predicates are true.

        Predicates are Boolean expressions of the columns of a row, names of Boolean columns, or `name=value`: the
        column equals the constant. One that is not row by row is a TypeError or ValueError.
        """
        equal = tuple(pl.col(name) == pl.lit(value) for name, value in constraints.items())
        return self._then("filter", (*expressions_of(predicates, {}, strings=True), *equal))

    def with_columns(self, *exprs: pl.Expr | str, **named: object) -> Self:
        """Add or replace columns, row by row, or by windows over one person's rows: see :doc:`/proofs/whole-numbers`.

        They are expressions, names of columns or named constants. A TypeError or ValueError where one is not row by
        row, or changes the privacy unit.
        """
        return self._then("with_columns", expressions_of(exprs, named, strings=True))

    def select(self, *exprs: pl.Expr | str, **named: object) -> Self:
        """Keep or compute columns, row by row. The privacy unit stays, even if it is not named.

        Parameters, result and errors are those of `with_columns`.
        """
        return self._then("select", expressions_of(exprs, named, strings=True))

    def join(
        self,
        other: pl.DataFrame | pl.LazyFrame | PrivateFrame | OwnedRows,
        on: str | Sequence[str] | None = None,
        how: JoinHow = "left",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
    ) -> Self:
        """Add the columns of a public frame, of another private frame of the same people, or of owned rows.

        Parameters
        ----------
        other
            - Public rows that have each key at most once (for "semi" and "anti" it may repeat); a LazyFrame is
              collected at once.
            - A private frame with the same privacy unit, relation and budget (one object, one ledger, or none). The
              columns must include the privacy unit on both sides. Rows of null and NaN people leave both frames first.
              The bounds of this frame count what comes out. Those of `other` are kept before the frames meet: with
              `max_rows=1` there, one random row of each person stays.
            - `dp_polars.owned(…)`: rows without the privacy unit that belong to those who name them.
        on
            The columns that must be equal, by their names, which are the same in both frames. Null equals nothing.
            Categoricals are compared as text. Private and owned rows are not joined by floats (a float unit may be).
        how
            "left" keeps rows without a partner (their new columns are null), "inner" drops them. "semi" keeps the rows
            that have a partner, "anti" those without, and neither brings a column.
        left_on, right_on
            Instead of `on`, where the names differ: this frame's columns, and the other frame's.

        Returns
        -------
        PrivateFrame
            A column of the other frame that is named like one of this frame gets the suffix "_right". Rows of one
            person may multiply: the bounds of `protect` count what comes out.

        Raises
        ------
        TypeError, ValueError
            If a frame lacks a column, or it is of another type or none that can be joined; if a public frame repeats a
            key, or a public or an owned one has a column named like the privacy unit; if two private frames differ in
            unit, relation or budget, are not joined on the unit, or one has rows and the other none yet.
        """
        if isinstance(other, PrivateFrame):
            for one in (self.protection, other.protection):
                one.refuse_no_unit("join")
            hint = "give protect of both the same; rename a column before."
            budgets = self._budget, other._budget
            refuse_others("join: both private frames", self.protection, other.protection, budgets, hint)
            left, right = join_keys(on, left_on, right_on)
            refuse_without_unit(self.protection.unit or (), left, right)
            return self._joined(other, PrivateJoin(left, right, join_how(how), other._pipeline))
        if isinstance(other, OwnedRows):
            self.protection.refuse_no_unit("join", "one row may own many")
            left, right = join_keys(on, left_on, right_on)
            for plan in other._sources:
                preparation_of(plan, right, "join", is_owned=True, unchecked=other.origin.unchecked)
            return self._joined(other, OwnedJoin(left, right, join_how(how), other.origin))
        return self._after(join_of(other, on, left_on, right_on, how))

    @overload  # names first: any other object may be public keys
    def group_by(  # type: ignore[overload-overlap]
        self,
        keys: str | pl.Expr | Sequence[str | pl.Expr],
        *more: str | pl.Expr,
        maintain_order: bool = False,
        **named: pl.Expr,
    ) -> PersonGroupBy[Self]: ...

    @overload
    def group_by(self, keys: PublicKeys) -> PrivateGroupBy: ...

    def group_by(
        self,
        keys: PublicKeys | str | pl.Expr | Sequence[str | pl.Expr] | None = None,
        *more: str | pl.Expr,
        maintain_order: bool = False,  # noqa: ARG002
        **named: pl.Expr,
    ) -> PrivateGroupBy | PersonGroupBy[Self]:
        """Group by public keys, to ask about every group; or by the privacy unit, to have one row for each person.

        How sums of a person's floats are exact, and ties in an order are told apart: see :doc:`/proofs/whole-numbers`.

        Parameters
        ----------
        keys
            Public keys: a dict, column -> its public values (a list, a range, a Series, an Arrow array, an Enum; all
            combinations are groups), or a frame whose rows are the groups. At most 10⁷. Never take them from the data.
            Every key is answered, and rows of other keys are ignored. Keys are released in their column's type; those
            of a Categorical as String. Or the name of a column, or a list of names.
        maintain_order
            Ignored: a private frame has no order.
        *more, **named
            Names of further columns, and expressions under names of their own: `pl.col("day").dt.year().alias("year")`,
            or `year=…`. The privacy unit must be one of all names.

        Returns
        -------
        PrivateGroupBy or PersonGroupBy
            Where keys are public, its `agg` asks about every group. Where they are names, its `agg` gives a private
            frame with one row for each person and value of the further columns.

        Raises
        ------
        TypeError, ValueError
            If keys are null, repeat, or don't fit their column's type; if names leave the privacy unit out.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": [1, 1, 2], "cents": [500, 700, 900]})
        >>> private = visits.dp.protect("patient")
        >>> private.group_by("patient").agg(pl.col("cents").sum()).columns
        ['patient', 'cents']
        """
        if keys is None or any(not isinstance(value, pl.Expr) for value in named.values()):
            name = next(iter(named), "ward")
            msg = (
                "group_by must be given public keys, or names of columns, the privacy unit among them; keywords are "
                f"expressions of a person's rows.\n\nHint: group_by({{{name!r}: […]}}) asks about public groups."
            )
            raise TypeError(msg)
        given = (
            *(keys if isinstance(keys, (list, tuple)) else [keys]),
            *more,
            *(value.alias(name) if isinstance(value, pl.Expr) else value for name, value in named.items()),
        )
        if named or any(isinstance(key, (str, pl.Expr)) for key in given):
            names, exprs = person_keys(given, self.protection.unit)
            return PersonGroupBy(self._then("with_columns", exprs, "group_by") if exprs else self, names)
        return PrivateGroupBy(self, public_keys((keys, *more) if more else keys))

    def with_limits(
        self,
        *,
        max_groups: int | EllipsisType | None = ...,
        max_rows_per_group: int | EllipsisType | None = ...,
        max_rows: int | EllipsisType | None = ...,
    ) -> Self:
        """Set other contribution limits: the same rows, steps and budget, as if `protect` had these limits.

        All answers of a query have the limits of its frame. To ask one statistic under limits of its own, ask it in a
        query of its own, and release both as one `publication`.

        Parameters
        ----------
        max_groups, max_rows_per_group, max_rows
            As for `protect`: public integers of at least 1. None: no such limit. If left out, a limit stays as it is.

        Returns
        -------
        PrivateFrame
            Another frame; this one keeps its limits.

        Raises
        ------
        TypeError, ValueError
            If a limit is not as described, or there is no privacy unit.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": [1, 1, 2], "ward": ["A", "B", "A"]})
        >>> private = visits.dp.protect("patient", max_groups=1, max_rows_per_group=2)
        >>> wards = {"ward": ["A", "B"]}
        >>> both = dpp.publication(
        ...     rows=private.group_by(wards).agg(dpp.len(epsilon=1)),
        ...     people=private.with_limits(max_groups=2)
        ...     .group_by(wards)
        ...     .agg(dpp.n_people(epsilon=1)),
        ... )
        >>> [table.height for table in both.release().values()]
        [2, 2]
        """
        asked = {"max_groups": max_groups, "max_rows_per_group": max_rows_per_group, "max_rows": max_rows}
        given = {name: value for name, value in asked.items() if not isinstance(value, EllipsisType)}
        pipeline = replace(self._pipeline, protection=self.protection.with_limits(**given))
        return type(self)(pipeline, self._sources, self._budget)

    def collect(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Refuse: private rows don't leave the frame."""
        msg = "private rows must not be collected.\n\nHint: ask with agg(…), then release()."
        raise TypeError(msg)

    def agg(self, *exprs: PrivateExpr, **named: PrivateExpr) -> PrivateQuery:
        """Ask for private answers about all rows together.

        Parameters
        ----------
        *exprs, **named
            Private answers (`pl.col("x").dp.median(…)`, `dp_polars.n_people(…)`), named by their column or by the
            keyword. The loss of each is what one person loses to it in all. The relation and the contribution limits
            are those of the frame: `with_limits` sets other ones, for a query of its own. Where `filter` is the last
            step of the column, as in `pl.col("x").filter(pl.col("y") > 0).dp.mean(…)`, rows for which it is not true
            are ignored like nulls, before any bound. Several columns (`pl.col("a", "b")`, or a selector or a pattern on
            a frame with data) are one output each, with the whole loss each, named by their columns:
            `name.suffix("_mean")` renames all. A selector leaves out the privacy unit and the keys.

        Returns
        -------
        PrivateQuery
            Nothing is read before its `release`. A TypeError or ValueError where an expression is no private answer,
            names repeat, or the rows of a person are not bounded enough.
        """
        return self._ask(None, exprs, named)

    def __repr__(self) -> str:
        return f"<PrivateFrame\n{self._described()}\nask:      agg(…), or group_by({{column: public values}}).agg(…)>"

    def _described(self) -> str:
        lines = {
            "rows": "private, only answers leave" if self._sources else "none yet, release(frame) takes them",
            "protects": str(self.protection),
            "steps": ", ".join(step.name for step in self._pipeline.steps) or "none",
            "budget": "none" if self._budget is None else f"{self._budget.total_text} in all",
        }
        return "\n".join(f"{key + ':':<10}{text}" for key, text in lines.items())

    def _after(self, step: Step) -> Self:
        return type(self)(self._pipeline.then(step), self._sources, self._budget)

    def _joined(self, other: PrivateFrame | OwnedRows, step: Joining) -> Self:
        if bool(self._sources) != bool(other._sources):
            one, none = ("first", "other") if self._sources else ("other", "first")
            msg = (
                f"join: both frames must have rows, or neither: the {one} has rows, the {none} has none yet.\n\n"
                "Hint: protect data in both, or build both without and give release(…) a tuple of frames in the order "
                "of the joins."
            )
            raise TypeError(msg)
        pipeline = self._pipeline.then(step, *schemas_of(other._sources))
        sources = (*self._sources, *other._sources)
        sources_of(sources, pipeline.origins if sources else ())  # refuses a table of two units
        return type(self)(pipeline, sources, self._budget)

    def _ask(
        self, keys: pl.DataFrame | None, exprs: Sequence[PrivateExpr], named: dict[str, PrivateExpr]
    ) -> PrivateQuery:
        flat = [item for expr in exprs for item in (expr if isinstance(expr, (list, tuple)) else [expr])]
        relation = self.protection.neighboring_relation
        left_out = {*(self.protection.unit or ()), *(() if keys is None else keys.columns)}
        columns = self.collect_schema if self._sources else None
        outputs = (
            output
            for name, expr in [*((None, expr) for expr in flat), *named.items()]
            for output in outputs_of(expr, name, columns, left_out)
        )
        asks = tuple(_ask_of(expr, name, relation) for name, expr in outputs)
        taken = [ask.name for ask in asks] + ([] if keys is None else keys.columns)
        repeated = sorted({name for name in taken if taken.count(name) > 1})
        if repeated or not asks:
            msg = (
                f"outputs must be named unlike each other and unlike the keys, got several named {repeated}.\n\n"
                "Hint: use alias, or agg(name=…); of several columns name.suffix(…)."
                if repeated
                else "agg must be given at least one private answer, got none."
            )
            raise ValueError(msg)
        engine = PolarsEngine.of(*self._sources) if self._sources else None
        unit = "epsilon" if self._budget is None else self._budget.unit
        query = PrivateQuery(Request.of(self._pipeline, keys, asks, unit, engine), self._sources, self._budget)
        if not query.request.is_open:
            warn_if_large(query.loss)
        return query


@all_called
class PrivateGroupBy(Refusing, Unchanging):
    """A private frame with its public groups. Made by `PrivateFrame.group_by`."""

    def __init__(self, frame: PrivateFrame, keys: pl.DataFrame) -> None:
        self._frame, self._keys = frame, keys

    def agg(self, *exprs: PrivateExpr, **named: PrivateExpr) -> PrivateQuery:
        """Ask for private answers about every group: see `PrivateFrame.agg`."""
        return self._frame._ask(self._keys, exprs, named)

    def __repr__(self) -> str:
        groups = f"{plural(self._keys.height, 'public group')} by {', '.join(map(repr, self._keys.columns))}"
        return f"<PrivateGroupBy\n{self._frame._described()}\ngroups:   {groups}\nask:      agg(…)>"


@all_called
class PersonGroupBy(Refusing, Unchanging, Generic[FrameT]):
    """A private frame's rows, person by person. Made by `PrivateFrame.group_by` of names."""

    def __init__(self, frame: FrameT, keys: tuple[str, ...], having: tuple[pl.Expr, ...] = ()) -> None:
        self._frame, self._keys, self._having = frame, keys, having

    def having(self, *predicates: pl.Expr) -> PersonGroupBy[FrameT]:
        """Keep the groups for which all predicates are true: a filter after `agg`, of what `agg` could compute."""
        return PersonGroupBy(self._frame, self._keys, (*self._having, *expressions_of(predicates, {}, strings=False)))

    def agg(self, *exprs: pl.Expr | str, **named: object) -> FrameT:
        """Compute one row for each person, and each value of the further columns that the person has.

        Parameters
        ----------
        *exprs, **named
            Polars expressions of one value for each group: `pl.len()`, `pl.col("cents").sum()`,
            `pl.col("plan").sort_by("day", "plan").first()`. What they give must follow from the rows of a person in any
            order: the page Steps of a private frame lists the functions. Sums are of Int64, and wrap beyond its range.

        Returns
        -------
        PrivateFrame
            With the columns of `group_by`, the privacy unit first, and the outputs. Rows whose person is null or NaN
            are dropped. Grouped by the unit alone, each person has one row. Then outputs are calibrated to one row, and
            the bounds of `protect` do nothing, until a step may make several rows of one. A TypeError or ValueError
            where an expression is not known to look at one person's rows in any order.
        """
        exprs = expressions_of(exprs, named, strings=True)
        if not self._having:
            return self._frame._after(PersonGroups(self._keys, exprs))
        names = [f"having {number}" for number in range(len(self._having))]
        having = [expr.alias(name) for expr, name in zip(self._having, names, strict=True)]
        return self._frame._after(PersonGroups(self._keys, (*exprs, *having))).filter(*map(pl.col, names)).drop(names)

    def len(self, name: str = "len") -> FrameT:
        """Count each person's rows: `agg(pl.len().alias(name))`."""
        return self.agg(pl.len().alias(name))

    def max(self) -> FrameT:
        """Take the largest value of every other column: `agg(pl.all().max())`."""
        return self.agg(pl.all().max())

    def mean(self) -> FrameT:
        """Take the mean of every other column: `agg(pl.all().mean())`."""
        return self.agg(pl.all().mean())

    def median(self) -> FrameT:
        """Take the median of every other column: `agg(pl.all().median())`."""
        return self.agg(pl.all().median())

    def min(self) -> FrameT:
        """Take the smallest value of every other column: `agg(pl.all().min())`."""
        return self.agg(pl.all().min())

    def n_unique(self) -> FrameT:
        """Count the different values of every other column: `agg(pl.all().n_unique())`."""
        return self.agg(pl.all().n_unique())

    def sum(self) -> FrameT:
        """Add up every other column: `agg(pl.all().sum())`."""
        return self.agg(pl.all().sum())

    def __repr__(self) -> str:
        keys = ", ".join(map(repr, self._keys))
        return f"<PersonGroupBy\n{self._frame._described()}\nperson:   {keys}\nnext:     agg(…)>"


def _ask_of(expr: object, name: str | None, relation: NeighboringRelation) -> Ask[HistogramQuery]:
    if not isinstance(expr, PrivateExpr):
        msg = (
            f"agg on a private frame must be given private answers, got {type(expr).__name__}.\n\n"
            'Hint: dp_polars.len(epsilon=…) counts rows, dp_polars.n_people(epsilon=…) people, and pl.col("age").dp '
            "asks about a column. Work on answers after the release: query.release().with_columns(…)."
        )
        raise TypeError(msg)
    query, columns = of_histogram(expr.query, "agg on a private frame", _ARGMAX), expr.columns
    if columns is None:
        msg = "agg on a private frame must not be given an expression with over.\n\nHint: group_by public keys instead."
        raise TypeError(msg)
    if query.claim.contributions.total != 1:
        msg = "contributions must be left out on a private frame.\n\nHint: give protect the bounds on a person's rows."
        raise ValueError(msg)
    if query.claim.neighboring_relation not in ("add_or_remove_one", relation):
        msg = (
            "neighboring_relation must be left out on a private frame, got "
            f"{query.claim.neighboring_relation!r}.\n\nHint: give it to protect."
        )
        raise ValueError(msg)
    name = expr.meta.output_name() if name is None else name
    columns, filtered = read_by_row(columns, name, counts_nulls=isinstance(query, Count) and query.counted == "nulls")
    return Ask(name, columns, query, filtered, expr.within)
