"""Which functions of one person's rows are taken, by the order that they need, and the columns that a step makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import polars as pl

from dp_polars._base.column_types import PrivacyUnit, is_opaque
from dp_polars._steps import nodes, whole_numbers
from dp_polars._steps.gate import adds_floats, fitting, in_full, row_by_row, shown
from dp_polars._steps.nodes import ExprNode, Tree, bases, names
from dp_polars._steps.rules import PEOPLE, Rule
from dp_polars._steps.whole_numbers import of_one_kind

if TYPE_CHECKING:
    from polars._typing import PolarsDataType, QuantileMethod


# One value for each person, whatever the order of the rows.
OF_ANY_ORDER = names("all any count has_nulls len max mean median min n_unique null_count quantile std sum var")
# One value for each person, and one for each row, that need an order.
FIRST_OF_ORDER = names("arg_max arg_min first first_non_null implode last last_non_null str.concat_vertical")
ALONG_ORDER = names(
    "cum_count cum_max cum_min cum_sum diff fill_null_with_strategy range.int_range rolling_expr shift shift_and_fill"
)
# As a serialized expression names what may follow an order.
_FOLLOW_ORDER = names("ArgMax ArgMin TopK MaxBy MinBy IsFirstDistinct IsLastDistinct RLEID PctChange Ordinal")
# Functions that are others in other words, of their inputs.
IN_OTHER_WORDS: dict[str, Callable[..., pl.Expr]] = {
    "pct_change": lambda value, n: value / value.shift(n) - 1,
    "rleid": lambda value: (value.ne_missing(value.shift(1)) & (value.is_null().cum_count() > 1)).cum_sum(),
}
# One value for each row. Rows that tie get one value, unless the method is "ordinal".
RANKS = names("rank")
# One value for each row, by how many of the person's values equal its own, and which of these it is.
FIRST_OF_EQUAL = names("is_first_distinct is_last_distinct")
OF_EQUAL = FIRST_OF_EQUAL | names("is_duplicated is_unique")
ONE_FOR_EACH_ROW = ALONG_ORDER | RANKS | OF_EQUAL
# Some of a person's rows: those with another value, one of equal ones, the value where another one is the largest.
SHORTER = names("drop_nans drop_nulls mode unique")
BY = names("max_by min_by")
SOME = SHORTER | BY | names("filter gather slice top_k")
SORTS = names("sort sort_by")
TAKEN = OF_ANY_ORDER | FIRST_OF_ORDER | ONE_FOR_EACH_ROW
# What says only how many there are, of a type of which nothing is known, too.
COUNTS = names("count has_nulls len null_count")
# What leaves nulls out, what adds up, and what lies in the middle.
WITHOUT_NULLS = names("count max mean median min quantile std sum var")
ADDED = names("mean std sum var")
MIDDLES = names("median quantile")

_ORDER = f"follows the order of the rows, which a parallel engine makes from everybody's, {PEOPLE}"
_TEXT = "cast the Categorical to pl.String, and take fields and elements of nested types, in the step before."
_TEMPORAL = frozenset({pl.Date, pl.Datetime, pl.Duration, pl.Time})


def _value(step: ExprNode) -> pl.DataType | None:
    """Return the type of what a step is about; None if it is about rows, as `pl.len()` is."""
    return next((dtype for value in step.inputs[:1] for dtype in value.dtypes()), None)  # type: ignore[return-value]


def is_not_of(fits: Callable[[pl.DataType], bool]) -> Callable[[ExprNode], bool]:
    """Return what says whether a step is about another type than those that fit, or about rows."""

    def is_other(step: ExprNode) -> bool:
        dtype = _value(step)
        return dtype is None or not fits(dtype)

    return is_other


def is_added_whole(name: str, dtype: PolarsDataType) -> bool:
    """Return whether a function adds whole numbers of 128 bits, where Polars' own sum would round, wrap or raise."""
    return name != "sum" or dtype.is_float() or dtype.is_decimal()


def is_an_integer(dtype: PolarsDataType | None) -> bool:
    return dtype is not None and dtype.is_integer() and dtype not in {pl.Int128, pl.UInt128}


def has_middle(dtype: pl.DataType) -> bool:
    return is_an_integer(dtype) or dtype.is_float() or dtype.is_decimal() or dtype.base_type() in _TEMPORAL


def rolls_otherwise(step: ExprNode) -> bool:
    """Return whether it is no plain sum or mean of numbers over the rows up to each."""
    options, dtype = step.parameters["options"], _value(step)
    is_added = step.parameters["function"] in {"Mean", "Sum"} and options["weights"] is None and not options["center"]
    return not (is_added and dtype is not None and (is_an_integer(dtype) or dtype.is_float() or dtype == pl.Boolean))


def fills_another_type(step: ExprNode) -> bool:
    """Return whether what fills is not of the type of the values: Polars plans one type then, and rows have another."""
    dtype, (fill, *_) = _value(step), step.inputs[-1].dtypes()
    if dtype is None or fill == pl.Null:
        return False
    return not ((dtype.is_integer() and fill.is_integer()) or (dtype.is_float() and fill.is_numeric()) or dtype == fill)


# Steps on one person's rows that are not taken, or not in every way.
REFUSED: tuple[Rule, ...] = (
    Rule(
        (TAKEN | SOME) - COUNTS,
        f"looks into a type that only its owner knows, {PEOPLE}",
        "take the storage of an Extension in the step before: pl.col('place').ext.storage().",
        lambda step: any(map(is_opaque, (dtype for value in step.inputs[:1] for dtype in value.dtypes()))),
        "of Extensions and Objects",
    ),
    Rule(
        names("sum cum_sum std var"),
        "takes numbers, and sums also booleans and durations",
        "cast to a number in the step before.",
        is_not_of(lambda dtype: whole_numbers.has_whole_numbers(dtype) or dtype == pl.Duration),
        "of anything else",
    ),
    Rule(
        names("all any"),
        "raises on texts, once there is one, and the error would tell that a row has it",
        "compare: (pl.col('x') != '').any().",
        lambda step: _value(step) not in {pl.Boolean, pl.Null},
        "of anything but booleans",
    ),
    Rule(
        names("fill_null_with_strategy"),
        "fills by the values before or after here",
        "fill with what the person has: pl.col('x').fill_null(pl.col('x').mean().over(unit)).",
        lambda step: not (isinstance(step.parameters, dict) and {*step.parameters} <= {"Forward", "Backward"}),
        "by anything but forward and backward",
    ),
    Rule(
        names("str.concat_vertical"),
        "takes texts",
        "cast to pl.String in the step before.",
        lambda step: _value(step) != pl.String,
        "of anything but texts",
    ),
    Rule(
        names("mean"),
        "takes numbers, booleans, dates and times",
        "cast to a number in the step before.",
        is_not_of(lambda dtype: whole_numbers.has_whole_numbers(dtype) or dtype.is_temporal()),
        "of anything else",
    ),
    Rule(
        names("median quantile"),
        "takes numbers, dates and times",
        "cast to a number in the step before.",
        is_not_of(has_middle),
        "of anything else",
    ),
    Rule(
        names("rolling_expr"),
        "takes sums and means of numbers or booleans, without weights or centre",
        "use the values before by shift: pl.max_horizontal(*(pl.col('x').shift(n).over(unit, order_by='day') for n in "
        "range(3))).",
        rolls_otherwise,
        "but `rolling_sum` and `rolling_mean` of numbers and booleans",
    ),
    Rule(
        names("max min"),
        "gives NaN to some people",
        "use min or max, which leave NaN out.",
        lambda step: bool(step.parameters.get("propagate_nans")),
        "that gives NaN where there is one (`nan_max`, `nan_min`)",
    ),
    Rule(
        names("max min rank cum_max cum_min arg_max arg_min max_by min_by"),
        "needs values with one order, and Categoricals and nested types have none that holds in the next scan",
        _TEXT,
        lambda step: bool(bases(*step.inputs[:1]) & {pl.Categorical, pl.List, pl.Array, pl.Struct, pl.Object}),
        "of Categoricals, lists, arrays or structs",
    ),
    Rule(
        names("n_unique unique mode is_duplicated is_unique is_first_distinct is_last_distinct"),
        "is not known to tell the same values apart in every engine",
        _TEXT,
        lambda step: bool(bases(*step.inputs[:1]) & {pl.List, pl.Array, pl.Struct, pl.Object}),
        "of lists, arrays or structs",
    ),
    Rule(
        names("rank"),
        "draws at random, for all rows together",
        'use method="min".',
        lambda step: bool(step.parameters["options"]["method"] == "Random"),
        "by random",
    ),
    Rule(
        TAKEN,
        "takes a parameter from the rows",
        "pass it as a constant.",
        lambda step: any(value.kind != "literal" for value in step.inputs[1:]),
        "with a parameter that is a column",
    ),
    Rule(
        names("shift_and_fill"),
        "is known by its type before it is run, and that would follow from the rows",
        "fill with a value of the column's type.",
        fills_another_type,
        "that fills with a value of another type",
    ),
    Rule(
        names("skew kurtosis product entropy correlation"),
        f"rounds by the order of the rows, {PEOPLE}",
        "use sums: of x, of x * x, and the count.",
    ),
    Rule(
        names("unique_counts value_counts"),
        "gives several values for one person, and is not known to be the same in every engine",
        "group by the value, too: group_by(unit, 'x').agg(pl.len()).",
    ),
    Rule(
        names("explode"),
        "changes the number of rows",
        "explode the frame in the step before: frame.explode('x').group_by(unit).agg(…).",
    ),
    Rule(names("item"), _ORDER, "sort, and take the first: pl.col('x').sort_by('day').first()."),
    Rule(names("over"), "can't stand in another group", "make its column with with_columns in the step before."),
)
UNKNOWN = Rule(
    frozenset(),
    "is not known to follow from a person's rows in any order",
    "use what the page Steps of a private frame lists for the rows of one person.",
    condition="any function that is not listed as taken",
)

NO_ORDER = Rule(
    FIRST_OF_ORDER | ALONG_ORDER | {*IN_OTHER_WORDS} | names("gather slice"),
    _ORDER,
    "give an order: pl.col('x').sort_by('day').first() in agg, order_by='day' in over. Rows that tie are told apart by "
    "their other columns.",
    condition="without an order",
)
NO_ORDER_OF_VALUES = Rule(
    SORTS | FIRST_OF_ORDER | ONE_FOR_EACH_ROW | BY | names("gather over slice"),
    f"must tell rows apart that tie, and these values have no order, {PEOPLE}",
    "leave the column out with select in the step before.",
    condition="next to a column of Objects or of an Extension type",
)
ORDER_ON_POLARS_1 = Rule(
    FIRST_OF_ORDER | BY | SORTS | names("gather"),
    "needs Polars 2: Polars 1 can't sort by such columns, or some of a person's rows",
    "leave the columns out with select, or filter, in the step before.",
    condition="by lists, arrays or structs, or of rows that are filtered, on Polars 1",
)
NO_CONDITION = Rule(
    names("filter"),
    "takes a condition, of booleans",
    "compare: pl.col('x').filter(pl.col('y') > 0).",
    condition="by anything but booleans",
)
PARAMETERS = Rule(
    names("gather quantile slice"),
    "takes a parameter from the rows",
    "pass it as a constant.",
    condition="with a parameter that is a column",
)
SEVERAL = Rule(
    frozenset({"a group's expression"}),
    "gives several values for one person",
    "end it by a function that gives one, such as sum, min or n_unique; or sort it: pl.col('x').sort() gives a list.",
    condition="without a function that gives one value, and without an order, in `agg`",
)
ONE_ALREADY = Rule(
    TAKEN - names("len"),
    "is given one value for a person already",
    "give it a column.",
    condition="of a constant, or of what is one value for each person already",
)
SORTED_ROWS = Rule(
    SORTS,
    f"gives sorted values to rows by their place, which a parallel engine makes from everybody's, {PEOPLE}",
    "give over the order: over(…, order_by=[…]).",
    condition="in `over`, without a function that gives one value",
)
NAMES_CATEGORIES = Rule(
    names("cast"),
    f"may add to the categories of the rows, {PEOPLE}",
    "make the Categorical in the step before.",
    condition="to a Categorical",
)
NOT_BY_ROWS = Rule(
    names("over"), "changes the place of rows", "leave mapping_strategy out.", condition="with a mapping_strategy"
)
MIXED_ORDERS = Rule(
    SORTS,
    f"brings rows of different orders or numbers together, {PEOPLE}",
    "sort and filter at one place, around the whole expression.",
    condition="next to another column, in another order, or of other rows",
)


def is_ordinal(step: ExprNode) -> bool:
    return bool(step.name in RANKS and step.parameters["options"]["method"] == "Ordinal")


def has_order(tree: Tree) -> bool:
    """Return whether an expression may follow an order of rows."""
    return (
        nodes.holds(tree, "Sort", "SortBy")
        or any(node["order_by"] is not None for node in nodes.of_kind(tree, "Over"))
        or any(f'"{word}"' in json.dumps(tree) for word in _FOLLOW_ORDER)
    )


@dataclass(frozen=True)
class SortKeys:
    """Columns that rows are sorted by, and how."""

    columns: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]


@dataclass(frozen=True)
class Value:
    """A part of an expression, on columns that hold what the functions in it give.

    `is_one`: there is one value for each person. `order` is the one in which the rows stand, if any; `along`: what a
    row has follows from that, too. `where` is the column that says which rows there are, if not all.
    """

    tree: Tree
    is_one: bool = True
    order: SortKeys | None = None
    along: bool = False
    where: str | None = None


@dataclass(frozen=True)
class Group:
    """Rows that one function sees: by which columns, in which order, and whether one row comes out for all of them.

    `is_inside`: whether it stands in another function of the same rows.
    """

    keys: tuple[str, ...]
    constant: frozenset[str]
    order: SortKeys | None = None
    is_row: bool = False
    is_inside: bool = False

    @property
    def within(self) -> Group:
        return replace(self, is_inside=True)


@dataclass
class TakenApart:
    """Expressions taken apart.

    `rows` are the columns of the frame whose equal values are made the same to the bit, also in the rows that go on.
    `levels` are columns to make first, each on those before it. `finals` are one value for each group, `late` what
    comes of them; `outputs` what is left, row by row. `temporary` are the columns that were made.
    """

    rows: list[pl.Expr] = field(default_factory=list)
    number: str = ""  # of each row: any, but no two rows have one
    levels: list[list[pl.Expr]] = field(default_factory=list)
    finals: list[pl.Expr] = field(default_factory=list)
    late: list[pl.Expr] = field(default_factory=list)
    outputs: list[pl.Expr] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    adds_floats: bool = False

    def before(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        rows = rows.with_columns(self.rows) if self.rows else rows
        rows = rows.with_row_index(self.number) if self.number else rows
        for level in self.levels:
            rows = rows.with_columns(level)
        return rows

    def groups(self, rows: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
        """Return one row for each group, with what the outputs are made of."""
        groups = self.before(rows).group_by(keys).agg(self.finals)
        for expr in self.late:
            groups = groups.with_columns(expr)
        return groups


_MICROSECONDS_PER_DAY = 86_400 * 10**6


class PersonColumns:
    """The columns that one step makes, and what is counted, added up and found in the middle by them."""

    def __init__(self, schema: pl.Schema, unit: PrivacyUnit | None, call: str) -> None:
        self.columns, self.unit, self.call = schema, unit, call
        self.schema: dict[str, PolarsDataType] = dict(schema)
        self.taken = TakenApart()
        self.finals: list[str] = []
        self.after: dict[str, int] = {}  # column -> after how many levels it is there
        self.found: dict[str, str] = {}  # what was made -> its column
        self.prefix = "of a person "
        while any(name.startswith(self.prefix) for name in schema):
            self.prefix += "and "

    # --- Columns that are made

    def column(self, value: Value) -> str:
        """Return the column of a value; one that is made for it, if it is none."""
        match value.tree:
            case {"Column": str(name)}:
                if name not in self.schema:
                    row_by_row(pl.col(name), self.columns, self.call)  # which says that it is not there
                return name
        return self.make(self.row_by_row(value.tree, self.schema))

    def row_by_row(self, tree: Tree, schema: dict[str, PolarsDataType]) -> pl.Expr:
        expr = in_full(tree, self.call)
        self.taken.adds_floats |= adds_floats(expr, pl.Schema(schema), self.call)
        return row_by_row(expr, pl.Schema(schema), self.call)

    def make(self, expr: pl.Expr) -> str:
        """Return the column that holds this expression of columns that there are."""
        text = expr.meta.serialize(format="json")
        if text not in self.found:
            level = max((self.after.get(name, 0) for name in nodes.of_kind(json.loads(text), "Column")), default=0)
            name = self.named(expr)
            if level == len(self.taken.levels):
                self.taken.levels.append([])
            self.taken.levels[level].append(expr.alias(name))
            self.after[name] = level + 1
            self.taken.temporary.append(name)
            self.found[text] = name
        return self.found[text]

    def final(self, expr: pl.Expr) -> str:
        text = "final " + expr.meta.serialize(format="json")
        if text not in self.found:
            self.found[text] = self.named(expr, of_group=True)
            self.taken.finals.append(expr.alias(self.found[text]))
            self.finals.append(self.found[text])
        return self.found[text]

    def named(self, expr: pl.Expr, *, of_group: bool = False) -> str:
        """Return a new name for a column, whose type is then known."""
        name = f"{self.prefix}{len(self.schema)}"
        with fitting(self.call):
            # As of a group: a column is a list there.
            (self.schema[name],) = self.types(expr, of_group=of_group)
        return name

    def types(self, expr: pl.Expr, *, of_group: bool) -> Sequence[PolarsDataType]:
        frame = pl.LazyFrame(schema=self.schema)
        if of_group:
            return frame.group_by(pl.lit(0).alias("")).agg(expr.alias("of")).collect_schema().dtypes()[1:]
        return frame.select(expr).collect_schema().dtypes()

    def one_kind(self, column: str, nan: float | None = float("nan")) -> str:
        """Return a column whose equal values are the same to the bit."""
        dtype = self.schema[column]
        return self.make(of_one_kind(column, dtype, nan)) if dtype.is_float() else column

    def constant(self, tree: Tree, name: str) -> Any:  # noqa: ANN401
        if nodes.holds(tree, "Column", "Selector"):
            self.refuse(PARAMETERS, step_named(name))
        return pl.select(in_full(tree, self.call)).item()

    # --- One value for each group

    def hold(self, expr: pl.Expr, group: Group) -> Value:
        return Value({"Column": self.held(expr, group=group)})

    def held(self, expr: pl.Expr, *, group: Group) -> str:
        if group.is_row and not group.is_inside:
            return self.final(expr)
        return self.make(over(expr, group.keys, None))

    def then(self, expr: pl.Expr, group: Group) -> Value:
        """Return what is computed from one value for each group, by expressions of our own."""
        if not group.is_row or group.is_inside:
            return Value({"Column": self.make(expr)})
        name = self.named(expr)
        self.taken.late.append(expr.alias(name))
        self.finals.append(name)
        return Value({"Column": name})

    # --- Sums and middles, by whole numbers

    def as_integers(self, column: str) -> tuple[str, PolarsDataType | None]:
        """Return integers that add up in any order, and the type that their sum has in the end, if another one."""
        dtype = self.schema[column]
        if dtype in {pl.Boolean, pl.Int64, pl.UInt64, pl.Int128}:
            return column, None
        return self.make(pl.col(column).cast(pl.Int64)), dtype if dtype == pl.Duration else None

    def whole(self, column: str, *, is_sum: bool) -> tuple[str, str | None]:
        """Return a column as whole numbers, and one that says what is beyond these, if anything may be."""
        dtype, value = self.schema[column], pl.col(column)
        is_beyond = whole_numbers.is_beyond(value, dtype)
        self.taken.adds_floats |= dtype.is_float()
        if is_sum and isinstance(dtype, pl.Decimal):
            number = whole_numbers.decimals(value, dtype)
        else:
            number = whole_numbers.whole(value, dtype)
        return self.make(number), None if is_beyond is None else self.make(is_beyond)

    def added(self, name: str, column: str, parameters: Any, group: Group) -> Value:  # noqa: ANN401
        dtype, instant = self.schema[column], None
        if dtype.is_temporal():
            instant = pl.Datetime("us") if dtype == pl.Date else dtype
            scale = _MICROSECONDS_PER_DAY if dtype == pl.Date else 1
            column = self.make(pl.col(column).to_physical().cast(pl.Int128) * scale)
            dtype = pl.Int64()  # so far as what they may be is concerned
            number, is_beyond = column, None
        else:
            number, is_beyond = self.whole(column, is_sum=name == "sum")
        hold = partial(self.held, group=group)
        total, count = hold(pl.col(number).sum()), hold(pl.col(number).count()) if name != "sum" else None
        if count is None:
            found = whole_numbers.sum_of(pl.col(total), dtype) if dtype.is_float() else pl.col(total)
        elif name == "mean":
            found = whole_numbers.mean_of(pl.col(total), pl.col(count), dtype)
        else:
            found = self.variance(number, dtype, parameters, group, hold)
            found = found.sqrt() if name == "std" else found
        if instant is not None:
            found = found.cast(pl.Int64, strict=False).cast(instant)
        if is_beyond is not None:
            found = pl.when(pl.col(hold(pl.col(is_beyond).any())).not_()).then(found)
        return self.then(found, group)

    def variance(
        self, number: str, dtype: PolarsDataType, ddof: int, group: Group, hold: Callable[[pl.Expr], str]
    ) -> pl.Expr:
        """Return the variance of a column of whole numbers: by their distances from the mean."""
        over, value = list(group.keys), pl.col(number)
        total, count = (pl.col(self.make(of.over(over))) for of in (value.sum(), value.count()))
        distance = self.make(value - whole_numbers.centre_of(total, count))
        size = pl.col(self.make(pl.col(distance).abs()))
        largest = pl.col(self.make(size.max().over(over)))
        share = pl.col(self.make(whole_numbers.share_of(pl.col(distance), largest)))
        square = pl.col(self.make(share * share))
        sums = (square.sum(), share.sum(), size.max(), value.count())
        squares, shares, size, count = (pl.col(hold(expr)) for expr in sums)
        return whole_numbers.variance_of(squares, shares, size, count, ddof, dtype)

    def middle(self, step: ExprNode, column: str, group: Group) -> Value:
        dtype, method, share = self.schema[column], "Midpoint", 0.5
        if step.name == "quantile":
            method, share = step.parameters["method"], self.constant(step.inputs[1].tree, "quantile")
        if dtype.is_decimal():
            column, dtype = self.make(pl.col(column).cast(pl.Float64)), pl.Float64()
        value = pl.col(self.one_kind(column))
        hold = partial(self.held, group=group)
        if method not in {"Midpoint", "Linear"}:
            way = cast("QuantileMethod", method.lower())
            return self.then(pl.col(hold(value.quantile(share, way))).cast(dtype), group)
        low, high = (pl.col(hold(value.quantile(share, way))) for way in ("lower", "higher"))
        part: pl.Expr | float = 0.5
        if method == "Linear":
            place = (pl.col(hold(value.count())).cast(pl.Float64) - 1) * share
            part = place - place.floor()
        between = pl.when(low == high).then(low).otherwise(low * (1 - part) + high * part)
        return self.then(between.cast(dtype), group)

    # --- What is refused

    def refuse(self, rule: Rule, step: ExprNode, details: str = "") -> NoReturn:
        raise ValueError(rule.message(self.call, shown(step), details))

    def refuse_function(self, step: ExprNode) -> NoReturn:
        self.refuse_by_rule(step)
        self.refuse(UNKNOWN, step)

    def refuse_by_rule(self, step: ExprNode) -> None:
        for rule in REFUSED:
            if rule.refuses(step):
                self.refuse(rule, step)


def step_named(name: str) -> ExprNode:
    return ExprNode("unknown", name, (), list)


def over(expr: pl.Expr, keys: Sequence[str], order: SortKeys | None) -> pl.Expr:
    if order is None or not order.columns:  # all rows are the same then
        return expr.over(keys)
    descending, nulls_last = order.descending[0], order.nulls_last[0]
    return expr.over(keys, order_by=list(order.columns), descending=descending, nulls_last=nulls_last)
