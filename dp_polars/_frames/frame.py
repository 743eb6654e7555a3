"""The private frame, and its refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from types import EllipsisType
from typing import TYPE_CHECKING, NoReturn, Self

import polars as pl
from polars.dataframe.group_by import GroupBy

from dp_polars._accounting.budget import Budget
from dp_polars._accounting.terms import Loss, Terms, check_delta, warn_if_large
from dp_polars._base.calls import all_called, like
from dp_polars._base.column_types import without_nul
from dp_polars._base.numbers import Number, flag, given, plural
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._expressions.outputs import outputs_of, read_by_row
from dp_polars._frames.cube_query import Cubes
from dp_polars._frames.methods import Steps
from dp_polars._frames.own_rows import code_of, private_call, refuse_own_rows, refuse_windows
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest
from dp_polars._frames.synthetic_query import SyntheticRows
from dp_polars._release.found import FoundLimits
from dp_polars._release.pipeline import expressions_of, join_of
from dp_polars._release.protection import Protection
from dp_polars._release.public_keys import PublicKeys, public_keys
from dp_polars._release.request import Ask
from dp_polars._release.selected import request_of_any
from dp_polars._sources.source import Unchanging, WithoutRows
from dp_polars._statistics.measures import Count
from dp_polars._statistics.statistic import COUNT, HistogramQuery, KeysThatAreThere, of_histogram
from dp_polars._steps.nodes import names, warn_if_untested
from dp_polars._steps.rules import BOUNDS, PEOPLE, Rule

if TYPE_CHECKING:
    from dp_polars._release.pipeline import JoinHow, Pipeline, Step


_RELEASE = "request private answers with agg(…), then release() the query."
_COMBINES = "combines the rows of several people, and would show the result without noise"

# The last rule is for methods that no other rule names.
METHODS = (
    Rule(
        names("head limit slice tail first last sample top_k bottom_k gather gather_every"),
        f"keeps rows by their place among the others, {PEOPLE}",
        "leave it out, or filter by what the row itself holds.",
    ),
    Rule(
        names("sort reverse set_sorted is_sorted with_row_index with_row_count"),
        "goes by the order of the rows, and a private frame has none",
        "leave it out; sort the answers: query.release().sort(…); make values by the order of one person's rows "
        "before `protect`.",
    ),
    Rule(
        names("shift interpolate upsample"),
        f"takes values from other rows, {PEOPLE}",
        "use what depends on the row and on constants alone; take values from one person's rows before `protect`.",
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
        "filter the released answers: query.release().filter(…).",
    ),
    Rule(
        names("group_by_dynamic rolling partition_by pivot unstack transpose to_dummies"),
        "makes groups from the rows, and that there is a group would tell that a row is there",
        'group by public keys, group_by({"ward": ["A", "B"]}), or by a column, group_by("ward"), whose groups are '
        "selected privately.",
    ),
    Rule(names("melt"), "is the old name of `unpivot`", "use unpivot(…)."),
    Rule(
        names(
            "join_asof join_where merge_sorted update hstack vstack extend insert_column replace_column with_context"
        ),
        "brings in rows or columns otherwise than by a key",
        "join a public frame: join(…, on=…); join tables about people before `protect`.",
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
        "use agg(…), and release() the query here.",
    ),
    Rule(names("explain show_graph"), "shows how private rows are read", "explain the query: frame.agg(…).explain()."),
    Rule(names("dtypes width"), "is a part of the schema", "use collect_schema()."),
    Rule(names("release"), "is of a query, and nothing is requested yet", "call agg first: agg(…).release()."),
    Rule(names("dp"), "frame is already protected", "go on with filter, with_columns, group_by or agg."),
    Rule(
        frozenset(),
        "is not known to look at one row alone",
        "use filter, with_columns, select, join, group_by and agg; the page Supported transformations lists all.",
    ),
)


def refusal(method: str, call: str = "") -> str:
    """Return why a private frame lacks a method, written as `call`, and an alternative."""
    family = re.sub("^(iter|sink|to|write)_.*", r"\1_…", method)
    rule = next(rule for rule in METHODS if not rule.steps or method in rule.steps or family in rule.steps)
    return rule.message(call or method, "this")


class Refusing:
    """Raises for methods of Polars that would reveal private rows, with an alternative."""

    if not TYPE_CHECKING:  # so that type checkers see only real methods

        def __getattr__(self, name: str) -> NoReturn:
            if name in ("_df", "_ldf"):  # attributes that functions of Polars read from their arguments
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
                raise AttributeError(msg, name=name, obj=None if hint else self)
            raise AttributeError(refusal(name), name=name, obj=None)

    def __len__(self) -> int:
        raise TypeError(refusal("len"))

    def __iter__(self) -> NoReturn:
        raise TypeError(refusal("rows", "iter"))

    def __getitem__(self, item: object) -> NoReturn:
        raise TypeError(refusal("rows", "frame[…]"))


_ARGMAX = "a mode or a quantile, or dp.argmax on a frame of public candidates with their scores."


@all_called
class PrivateFrame(Steps, Cubes, SyntheticRows, Refusing, WithoutRows):
    """Rows about people; only answers of `agg` can be released. Made by `protect`.

    Every method returns a new frame. The transformations before `agg` must be row by row, which is proved for each
    whole expression. If a value could make a transformation raise, it returns null instead (casts are not strict). The
    privacy unit can't be changed or dropped.
    """

    def __init__(self, pipeline: Pipeline, source: pl.LazyFrame | None, budget: Budget | None) -> None:
        if budget is not None and not isinstance(budget, Budget):
            msg = (
                f"budget must be a Budget or None, got {type(budget).__name__}.\n\n"
                "Hint: budget=dp_polars.Budget(epsilon=1)."
            )
            raise TypeError(msg)
        warn_if_untested(pl.__version__)
        if source is not None:
            pipeline = replace(pipeline, proof=pipeline.proved(source.collect_schema()))
        self._pipeline, self._source, self._budget = pipeline, source, budget

    @property
    def protection(self) -> Protection:
        """Who is protected, and by which contribution limits."""
        return self._pipeline.protection

    def collect_schema(self) -> pl.Schema:
        """Return the public names and types of the columns after all transformations. Without data, a TypeError."""
        if self._source is None:
            msg = "the frame must be built on data to have columns.\n\nHint: frame.dp.protect(…)."
            raise TypeError(msg)
        return self._pipeline.proved(self._source.collect_schema()).schemas[-1]

    def filter(self, *predicates: pl.Expr | str | bool, **constraints: object) -> Self:
        """Keep the rows for which all predicates are true.

        Predicates are Boolean expressions of the columns of a row, names of Boolean columns, or `name=value`: the
        column equals the constant. TypeError or ValueError if one is not row by row.
        """
        equal = tuple(pl.col(name) == pl.lit(value) for name, value in constraints.items())
        return self._then("filter", (*expressions_of(predicates, {}, strings=True), *equal))

    def with_columns(self, *exprs: pl.Expr | str, **named: object) -> Self:
        """Add or replace columns, row by row. Windows over one person's rows belong before `protect`.

        They are expressions, names of columns or named constants. TypeError or ValueError if one is not row by row, or
        changes the privacy unit. On exact sums of a row's list, see :doc:`/proofs/whole-numbers`.
        """
        return self._then("with_columns", expressions_of(exprs, named, strings=True))

    def select(self, *exprs: pl.Expr | str, **named: object) -> Self:
        """Keep or compute columns, row by row. The privacy unit stays, even if it is not named.

        Parameters, result and errors are those of `with_columns`.
        """
        return self._then("select", expressions_of(exprs, named, strings=True))

    def join(
        self,
        other: pl.DataFrame | pl.LazyFrame,
        on: str | Sequence[str] | None = None,
        how: JoinHow = "left",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
    ) -> Self:
        """Add the columns of a public frame. Tables about people are joined before `protect`.

        Parameters
        ----------
        other
            Public rows that have each key at most once (for "semi" and "anti" it may repeat); a LazyFrame is collected
            at once.
        on
            The columns that must be equal, with the same names in both frames. Null equals nothing. Categoricals are
            compared as text.
        how
            "left" keeps rows without a partner (their new columns are null), "inner" drops them. "semi" keeps the rows
            that have a partner, "anti" those without, and neither brings a column.
        left_on, right_on
            Instead of `on`, if the names differ: this frame's columns, and the other frame's.

        Returns
        -------
        PrivateFrame
            A column of the other frame that is named like one of this frame gets the suffix "_right".

        Raises
        ------
        TypeError, ValueError
            If a frame lacks a column, or its type differs or can't be joined. If the public frame repeats a key, or has
            a column named like the privacy unit. If the other frame is private.
        """
        if isinstance(other, PrivateFrame):
            keys = code_of(on=on, left_on=left_on, right_on=right_on, how=how)
            self._refuse_own_rows("join with a private frame", f"join(other, {keys})")
        return self._after(join_of(other, on, left_on, right_on, how))

    def group_by(
        self, keys: str | Sequence[str] | PublicKeys | None = None, *more: object, **named: object
    ) -> PrivateGroupBy:
        """Group by columns with privately selected groups, or by public keys, to query every group.

        Parameters
        ----------
        keys, *more
            Names of columns: the groups are combinations of their values that enough people have. A part of the
            guarantee selects them before they are answered. So the query must be `scaled_to` an epsilon and a delta,
            and its outputs have no loss of their own. `explain` shows how many people a shown group needs. Null is
            never a key. Floats are refused.

            Or public keys: a dict, column -> its public values (a list, a range, a Series, an Arrow array, an Enum; all
            combinations are groups), or a frame with the groups as rows. At most 10⁷. Never take them from the data.
            Every key is answered, and rows of other keys are ignored. Keys are released in their column's type; those
            of a Categorical as String.
        **named
            Refused: make columns of expressions first, with `with_columns`. Make one row for each person before
            `protect`.

        Returns
        -------
        PrivateGroupBy
            Its `agg` queries every group.

        Raises
        ------
        TypeError, ValueError
            If public keys are null, repeat, or don't fit their column's type; if a name is no column, or one of floats.

        Notes
        -----
        Groups are selected as by `keys`, and each person counts for a limited number of them: `max_groups` or
        `max_rows` if given, else a limit that is found first. So a query of selected groups has up to four stages, all
        charged together before a row is read. Proof: :doc:`/proofs/limits`, Theorem 7.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": range(900), "ward": ["A", "B", "B"] * 300})
        >>> query = visits.dp.protect("patient").group_by("ward").agg(people=dpp.n_people())
        >>> query.scaled_to(epsilon=5, delta=1e-6).release()["ward"].to_list()
        ['A', 'B']
        """
        names = [*(keys if isinstance(keys, (list, tuple)) else [keys]), *more]
        columns = {*map(_name_of, names), *named} - {"maintain_order"}
        if self.protection.unit is not None and {*self.protection.unit} <= columns:
            most = 1 if {*self.protection.unit} == columns else ...
            self._refuse_own_rows("group_by", f"group_by({code_of(*names, **named)}).agg(…)", most)
        if named or keys is None:
            name = next(iter(named), "ward")
            msg = (
                f"group_by must be given public keys or names of columns, got {', '.join(named) or 'none'}.\n\n"
                f"Hint: group_by({{{name!r}: […]}}) queries public groups; group_by({name!r}) selects groups privately."
            )
            raise TypeError(msg)
        if not more and not isinstance(keys, (str, list, tuple, pl.Expr)):
            return PrivateGroupBy(self, public_keys(keys))
        _check_names("group_by", tuple(names))
        return PrivateGroupBy(self, tuple(map(str, names)))

    def unique(self, subset: object = None, **options: object) -> NoReturn:
        """Refuse: rows of one person are compared before `protect`."""
        unit = self.protection.unit
        if unit is None:
            raise ValueError(refusal("is_unique", "unique"))
        names = [subset] if isinstance(subset, (str, pl.Expr)) else subset
        names = [*unit, *(name for name in names if name not in unit)] if isinstance(names, (list, tuple)) else names
        self._refuse_own_rows("unique", f"unique({code_of(*([] if names is None else [names]), **options)})")

    def keys(
        self,
        *columns: str,
        delta: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        loss_weight: Number | None = None,
        with_counts: bool = False,
    ) -> PrivateQuery:
        r"""Select the keys that enough people have, if you can't list them.

        The release is (epsilon, delta)-DP for one person, or delta-approximately rho-zCDP. A key of only one person is
        shown with probability at most delta. The cost is one person's loss over all keys together.

        Parameters
        ----------
        *columns
            Names of columns: a key is a combination of their values. Null is never a key, and a row with a null in one
            of these columns is left out. Floats are refused.
        delta
            Above 0 and below 1, and far below one over the number of people, such as 1e-8. It is spent in addition to
            the loss. If no loss is given, it may be left out: `scaled_to` with a delta then gives keys their part of
            it, by their `loss_weight`.
        epsilon, rho
            The loss, at most one of them. Selection is optimal in both units. With `with_counts`, or if a key needs
            thousands of people in rho, it is by discrete Gaussian noise on the numbers of people, and a threshold.
            None: `scaled_to` of the query, or of its publication, sets it.
        loss_weight
            Set while the loss is undecided: the weight of this query in the joint guarantee.
        with_counts
            Whether to add the noisy numbers of people, in a column "count". Only with rho. A key then needs some 15 %
            more people.

        Returns
        -------
        PrivateQuery
            Its release is a frame of the keys that are shown, sorted, one column for each of `columns`, in that
            column's type (String for a Categorical); perhaps without rows. It goes into `group_by(frame)`, and a column
            of it into `mode(candidates)`. `intervals=True` adds nothing to it. Its `explain` has one row: the numbers
            of people from which on a key is shown with probabilities of 95, 50 and 5 %. Its `rate` is the epsilon of
            one key, or √(2·rho) of one key: one over the standard deviation of the noise, if there is any.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a column is missing or of floats, or there is a privacy unit and
            `protect` was given no `max_groups` (nor `max_rows`).

        Notes
        -----
        With a privacy unit, people are counted. Without one, every row is a person. A person with more keys than
        `max_groups` counts for that many of them, chosen at random from that person's own rows. The larger that limit,
        the more people a key needs. 128-bit integers and decimals beyond 64 bits are never shown.

        With epsilon: Desfontaines, Voss, Gipson & Mandayam 2022 (arXiv 2006.03684, Theorem 1). With rho: Harrison &
        Manurangsi 2026 (arXiv 2603.09167); Canonne, Kamath & Steinke 2020 (arXiv 2004.00010); Bun & Steinke 2016 (arXiv
        1605.02065, Definition 8.1).

        Proof: :doc:`/proofs/keys`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame(
        ...     {"patient": range(100), "town": ["Bern"] * 60 + ["Olten"] * 39 + ["Twann"]}
        ... )
        >>> private = visits.dp.protect("patient", max_groups=1)
        >>> towns = private.keys("town", epsilon=1, delta=1e-8).release()
        >>> towns["town"].to_list()
        ['Bern', 'Olten']
        >>> private.group_by(towns).agg(dpp.n_people(epsilon=1)).release().height
        2
        """
        terms, protection = Terms.of(epsilon, rho, within=None, loss_weight=loss_weight), self._pipeline.protection
        _check_names("keys", columns)
        with_counts = flag("with_counts", with_counts)
        if with_counts and epsilon is not None:
            msg = (
                "with_counts must be left out with epsilon: partition selection puts no noise on the numbers of "
                "people.\n\n"
                "Hint: give rho, or request counts of the keys that were released: group_by(keys).agg(…)."
            )
            raise ValueError(msg)
        if with_counts and COUNT in columns:
            msg = f"keys: no column may be named {COUNT!r} with with_counts=True.\n\nHint: rename it."
            raise ValueError(msg)
        if delta is None and terms.loss_weight is None:
            msg = (
                f"keys: delta must be given with a loss, got {terms.loss} alone: a key of one person is shown with "
                "probability at most delta.\n\n"
                "Hint: keys(…, delta=1e-8), or leave out both: scaled_to(epsilon=1, delta=1e-6) then says them."
            )
            raise TypeError(msg)
        if with_counts and terms.loss_weight is not None:
            terms = replace(terms, loss=Loss(terms.loss.value, "rho"))
        person = protection.keys_per_person, protection.neighboring_relation
        gone = Fraction(0) if delta is None else check_delta(delta)
        if delta is not None and not gone:
            msg = "delta must be greater than 0 for keys, got 0.\n\nHint: 1e-8, say; it may be left out without a loss."
            raise ValueError(msg)
        statistic = KeysThatAreThere.of(columns, terms, gone, *person, counts=with_counts)
        if terms.loss_weight is None:
            warn_if_large(terms.loss, gone)
        request = KeyRequest(self._pipeline, None, (Ask("keys", tuple(map(pl.col, columns)), statistic),))
        return PrivateQuery(request, self._source, self._budget)

    def with_limits(
        self,
        *,
        max_groups: int | EllipsisType | None = ...,
        max_rows_per_group: int | EllipsisType | None = ...,
        max_rows: int | EllipsisType | None = ...,
        max_norm: int | EllipsisType | None = ...,
        found: FoundLimits | None = None,
    ) -> Self:
        """Set other contribution limits: the same rows, steps and budget, as if `protect` had these limits.

        All answers of a query have the limits of its frame. For limits of its own, put a statistic into a
        query of its own, and release both as one `publication`.

        Parameters
        ----------
        max_groups, max_rows_per_group, max_rows, max_norm
            As for `protect`: public integers of at least 1. None: no such limit. If left out, a limit stays as it is.
        found
            `PrivateQuery.found` of a release: its limits, unless another one is given. If different outputs have
            different ones, the largest is used. If there is a norm, a limit of the rows in each group is left out:
            numbers would lose rows by it.

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
        given = {"max_groups": max_groups, "max_rows_per_group": max_rows_per_group, "max_rows": max_rows}
        asked = {**given, "max_norm": max_norm}
        if found is not None:
            if not isinstance(found, FoundLimits):
                msg = (
                    f"found must be what a query has found, got {type(found).__name__}.\n\n"
                    "Hint: with_limits(found=query.found), after query.release()."
                )
                raise TypeError(msg)
            asked = {name: found.limits.get(name, ...) if value is ... else value for name, value in asked.items()}
        limits = {name: value for name, value in asked.items() if not isinstance(value, EllipsisType)}
        pipeline = replace(self._pipeline, protection=self.protection.with_limits(**limits))
        return type(self)(pipeline, self._source, self._budget)

    def collect(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Refuse: private rows don't leave the frame."""
        msg = "private rows must not be collected.\n\nHint: use agg(…), then release()."
        raise TypeError(msg)

    def agg(self, *exprs: PrivateExpr, **named: PrivateExpr) -> PrivateQuery:
        """Request private answers about all rows together.

        Counts, sums, means, shares and variances of the same column, and of the same expression, share their sums: each
        sum is drawn once, and all of their losses pay for it. Columns without nulls after `drop_nulls` or `fill_null`
        (of floats also without NaN) share the number of rows, also with `dp_polars.len`. No error is larger than
        without the others. `explain` shows the shared sums, and the ledger has one entry for each draw.

        Proofs: :doc:`/proofs/shared-sums`, :doc:`/proofs/sum-pairs`.

        Parameters
        ----------
        *exprs, **named
            Private answers (`pl.col("x").dp.median(…)`, `dp_polars.n_people(…)`), named by their column or by the
            keyword. Each loss covers everything that one person contributes. The frame has the relation and the
            contribution limits: `with_limits` sets other ones, for a query of its own. If `filter` is the last call on
            the column, as in `pl.col("x").filter(pl.col("y") > 0).dp.mean(…)`, rows for which it is not true are
            ignored like nulls, before any limit. Several columns (`pl.col("a", "b")`, or a selector or a pattern on a
            frame with data) are one output each, with the whole loss each, named by their columns:
            `name.suffix("_mean")` renames all. A selector leaves out the privacy unit and the keys.

        Returns
        -------
        PrivateQuery
            Nothing is read before its `release`. TypeError or ValueError if an expression is no private answer, names
            repeat, or the rows of a person are not bounded enough.
        """
        return self._ask(None, exprs, named)

    def __repr__(self) -> str:
        return f"<PrivateFrame\n{self._described()}\nquery:    agg(…), or group_by({{column: public values}}).agg(…)>"

    def _described(self) -> str:
        lines = {
            "rows": "none yet, release(frame) takes them" if self._source is None else "private, only answers leave",
            "protects": str(self.protection),
            "steps": ", ".join(step.name for step in self._pipeline.steps) or "none",
            "budget": "none" if self._budget is None else f"{self._budget._total_text} in all",
        }
        return "\n".join(f"{key + ':':<10}{text}" for key, text in lines.items())

    def _refuse_own_rows(self, call: str, recipe: str, max_rows: object = ...) -> NoReturn:
        self.protection.refuse_no_unit(call)
        refuse_own_rows(call, recipe, self.protection.unit or (), has_rows=self._source is not None, max_rows=max_rows)

    def _after(self, step: Step) -> Self:
        return type(self)(self._pipeline.then(step), self._source, self._budget)

    def _ask(
        self,
        keys: pl.DataFrame | tuple[str, ...] | None,
        exprs: Sequence[PrivateExpr],
        named: dict[str, PrivateExpr],
    ) -> PrivateQuery:
        by = [] if keys is None else list(keys) if isinstance(keys, tuple) else keys.columns
        flat = [item for expr in exprs for item in (expr if isinstance(expr, (list, tuple)) else [expr])]
        left_out = {*(self.protection.unit or ()), *by}
        columns = None if self._source is None else self.collect_schema
        outputs = (
            output
            for name, expr in [*((None, expr) for expr in flat), *named.items()]
            for output in outputs_of(expr, name, columns, left_out)
        )
        asks = tuple(_ask_of(expr, name) for name, expr in outputs)
        read = [column for ask in asks for column in ask.columns]
        refuse_windows("agg", read, self.protection.unit, has_rows=self._source is not None)
        taken = [ask.name for ask in asks] + by
        repeated = sorted({name for name in taken if taken.count(name) > 1})
        if repeated or not asks:
            msg = (
                f"outputs must be named unlike each other and unlike the keys, got several named {repeated}.\n\n"
                "Hint: use alias, or agg(name=…); of several columns name.suffix(…)."
                if repeated
                else "agg must be given at least one private answer, got none."
            )
            raise ValueError(msg)
        engine = None if self._source is None else PolarsEngine.of(self._source)
        unit = "epsilon" if self._budget is None else self._budget.unit
        query = PrivateQuery(request_of_any(self._pipeline, keys, asks, unit, engine), self._source, self._budget)
        if not query._request.is_open:
            warn_if_large(query.loss)
        return query


@all_called
class PrivateGroupBy(Refusing, Unchanging):
    """A private frame with its groups: public keys, or columns with selected groups. Made by `group_by`."""

    def __init__(self, frame: PrivateFrame, keys: pl.DataFrame | tuple[str, ...]) -> None:
        self._frame, self._keys = frame, keys

    def agg(self, *exprs: PrivateExpr, **named: PrivateExpr) -> PrivateQuery:
        """Request private answers about every group: see `PrivateFrame.agg`."""
        return self._frame._ask(self._keys, exprs, named)

    def __repr__(self) -> str:
        of = self._keys
        columns = of if isinstance(of, tuple) else of.columns
        number = "selected" if isinstance(of, tuple) else plural(of.height, "public group")
        groups = f"{number} by {', '.join(map(repr, columns))}"
        return f"<PrivateGroupBy\n{self._frame._described()}\ngroups:   {groups}\nquery:    agg(…)>"


def _check_names(call: str, columns: tuple[object, ...]) -> None:
    if not columns:
        example = "" if call == "group_by" else ", delta=…, epsilon=…"
        msg = f'{call} must be given at least one column, got none.\n\nHint: {call}("town"{example}).'
        raise ValueError(msg)
    for name in columns:
        if not isinstance(name, str):
            hint = "make a column with with_columns first."
            msg = f"{call} must be given names of columns, got {given(name)}.\n\nHint: {hint}"
            raise TypeError(msg)
        without_nul(name, "names of keys")
    if len(set(columns)) < len(columns):
        msg = f"{call} must be given each column once, got {list(columns)}."
        raise ValueError(msg)


def _name_of(key: object) -> str | None:
    """Return the column that a key names or creates; None if it is no name."""
    if isinstance(key, pl.Expr):
        return key.meta.output_name(raise_if_undetermined=False)
    return key if isinstance(key, str) else None


def _ask_of(expr: object, name: str | None) -> Ask[HistogramQuery]:
    if not isinstance(expr, PrivateExpr):
        msg = (
            f"agg on a private frame must be given private answers, got {type(expr).__name__}.\n\n"
            f"Hint: {private_call(expr)}dp_polars.len(epsilon=…) counts rows, dp_polars.n_people(epsilon=…) people, "
            'and pl.col("age").dp reads a column. Work on answers after the release: query.release().with_columns(…).'
        )
        raise TypeError(msg)
    query, columns = of_histogram(expr.query, "agg on a private frame", _ARGMAX), expr.columns
    if columns is None:
        msg = "agg on a private frame must not be given an expression with over.\n\nHint: group_by public keys instead."
        raise TypeError(msg)
    if query.claim.contributions.total != 1:
        msg = "contributions must be left out on a private frame.\n\nHint: give protect contribution limits."
        raise ValueError(msg)
    name = expr.meta.output_name() if name is None else name
    columns, filtered = read_by_row(columns, name, counts_nulls=isinstance(query, Count) and query.counted == "nulls")
    return Ask(name, columns, query, filtered, expr.within)
