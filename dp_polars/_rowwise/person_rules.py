"""The table of rules for steps that look at all rows of one person: what is taken, what is refused, and why.

What such a step gives must follow from the person's rows as a multiset: neither from their order in the frame, which a
parallel engine makes from everybody's rows, nor from how other people's rows cut the chunks.
"""

from __future__ import annotations

import polars as pl

from dp_polars._rowwise.names import names
from dp_polars._rowwise.nodes import Step, bases
from dp_polars._rowwise.rules import PEOPLE, RAISES, Rule

# One value for each person, whatever the order of the rows.
OF_ANY_ORDER = names("all any count has_nulls len max median min n_unique null_count quantile sum")
# One value for each person, and one for each row, that need an order.
FIRST_OF_ORDER = names("arg_max arg_min first first_non_null last last_non_null")
ALONG_ORDER = names("cum_count cum_max cum_min cum_sum diff shift shift_and_fill")
# One value for each row. Rows that tie get one value, unless the method is "ordinal".
RANKS = names("rank")
SORTS = names("sort sort_by")
TAKEN = OF_ANY_ORDER | FIRST_OF_ORDER | ALONG_ORDER | RANKS

_ORDER = f"follows the order of the rows, which a parallel engine makes from everybody's, {PEOPLE}"
_SCALE = "add integers: (pl.col('cost') * 100).round().cast(pl.Int64).sum()."
_TEXT = "cast the Categorical to pl.String, and take fields and elements of nested types, in the step before."
_TEMPORAL = frozenset({pl.Date, pl.Datetime, pl.Duration, pl.Time})


def _value(step: Step) -> pl.DataType | None:
    """Return the type of what a step is about; None if it is about rows, as `pl.len()` is."""
    return next((dtype for value in step.inputs[:1] for dtype in value.dtypes()), None)  # type: ignore[return-value]


def of_floats(step: Step) -> bool:
    dtype = _value(step)
    return dtype is not None and dtype.is_float()


def of_decimals(step: Step) -> bool:
    return isinstance(_value(step), pl.Decimal)


def is_no_number(step: Step) -> bool:
    """Return whether values can't be added up as Int64."""
    dtype = _value(step)
    return not (is_an_integer(dtype) or (dtype is not None and dtype.base_type() in {pl.Boolean, pl.Duration}))


def is_an_integer(dtype: pl.DataType | None) -> bool:
    """Return whether a type is an integer of at most 64 bits."""
    return dtype is not None and dtype.is_integer() and dtype not in {pl.Int128, pl.UInt128}


def is_not_exact(step: Step) -> bool:
    """Return whether the middle of two values may be rounded in several ways, or is none."""
    dtype = _value(step)
    return not (is_an_integer(dtype) or (dtype is not None and dtype.base_type() in _TEMPORAL))


def has_no_one_order(step: Step) -> bool:
    """Return whether values have an order that may differ in the next scan, or none."""
    return bool(bases(*step.inputs[:1]) & {pl.Categorical, pl.List, pl.Array, pl.Struct, pl.Object})


def is_nested(step: Step) -> bool:
    return bool(bases(*step.inputs[:1]) & {pl.List, pl.Array, pl.Struct, pl.Object})


def propagates_nan(step: Step) -> bool:
    return bool(step.parameters.get("propagate_nans"))


def is_random(step: Step) -> bool:
    return bool(step.parameters["options"]["method"] == "Random")


def fills_another_type(step: Step) -> bool:
    """Return whether what fills is not of the type of the values: Polars plans one type then, and rows have another."""
    dtype, (fill, *_) = _value(step), step.inputs[-1].dtypes()
    if dtype is None or fill == pl.Null:
        return False
    return not ((dtype.is_integer() and fill.is_integer()) or (dtype.is_float() and fill.is_numeric()) or dtype == fill)


def given_a_column(step: Step) -> bool:
    return any(value.kind != "literal" for value in step.inputs[1:])


# Steps on one person's rows that are not taken, or not in every way.
REFUSED: tuple[Rule, ...] = (
    Rule(
        names("sum cum_sum"),
        f"rounds floats by the order of the rows, {PEOPLE}",
        _SCALE,
        of_floats,
        "of floats",
    ),
    Rule(
        names("sum cum_sum"),
        "raises where the digits don't suffice, and the error would tell of a person",
        "add integers: (pl.col('cost').cast(pl.Float64) * 100).round().cast(pl.Int64).sum().",
        of_decimals,
        "of Decimals",
    ),
    Rule(
        names("sum cum_sum"),
        "takes integers of at most 64 bits, booleans and durations",
        "cast to pl.Int64 in the step before.",
        is_no_number,
        "of anything else",
    ),
    Rule(
        names("median quantile"),
        "takes integers of at most 64 bits, dates and times: what is exact",
        "scale to integers in the step before: (pl.col('cost') * 100).round().cast(pl.Int64).",
        is_not_exact,
        "of anything else",
    ),
    Rule(
        names("max min"),
        "gives NaN to some people",
        "use min or max, which leave NaN out.",
        propagates_nan,
        "that gives NaN where there is one (`nan_max`, `nan_min`)",
    ),
    Rule(
        names("max min rank cum_max cum_min arg_max arg_min"),
        "needs values with one order, and Categoricals and nested types have none that holds in the next scan",
        _TEXT,
        has_no_one_order,
        "of Categoricals, lists, arrays or structs",
    ),
    Rule(
        names("n_unique"),
        "is not known to tell the same values apart in every engine",
        _TEXT,
        is_nested,
        "of lists, arrays or structs",
    ),
    Rule(names("rank"), "draws at random, for all rows together", 'use method="min".', is_random, "by random"),
    Rule(
        TAKEN,
        "takes a parameter from the rows",
        "pass it as a constant.",
        given_a_column,
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
        names("mean"),
        f"rounds by the order of the rows, {PEOPLE}",
        "divide integers: pl.col('x').sum() / pl.col('x').count().",
    ),
    Rule(
        names("std var skew kurtosis product entropy correlation"),
        f"rounds by the order of the rows, {PEOPLE}",
        "divide sums of integers: of x, of x * x, and the count.",
    ),
    Rule(
        names("mode unique max_by min_by is_first_distinct is_last_distinct gather item slice"),
        _ORDER,
        "sort by every column that is read, and take the first: pl.col('x').sort_by('day', 'x').first().",
    ),
    Rule(
        names("filter drop_nulls drop_nans"),
        "changes the number of rows",
        "write pl.when(condition).then(value), or filter the frame before.",
    ),
    Rule(
        names("over"),
        "can't stand in another group",
        "make its column with with_columns in the step before.",
    ),
)
UNKNOWN = Rule(
    frozenset(),
    "is not known to follow from a person's rows in any order",
    "use what the page Steps of a private frame lists for the rows of one person.",
    condition="any function that is not listed as taken",
)

NO_ORDER = Rule(
    FIRST_OF_ORDER | ALONG_ORDER | RANKS,
    _ORDER,
    "give an order that ties can't show through: in agg sort_by(…) of every column that is read, in over "
    "order_by=[…] of every column of the frame.",
    condition="without an order",
)
TIES = Rule(
    FIRST_OF_ORDER | ALONG_ORDER | RANKS,
    f"may tell rows apart that tie in its order, and which one comes first may follow from other rows, {PEOPLE}",
    "name these columns in the order, too, or leave them out with select in the step before.",
    condition="in an order that leaves out a column that is read, or one of the frame where each row has its value",
)
INEXACT_ORDER = Rule(
    SORTS | names("over"),
    f"needs an order of values that are equal to the last bit, and floats, Categoricals and nested types are not, "
    f"{PEOPLE}",
    "cast to integers or texts in the step before, or leave the column out with select.",
    condition="by floats, Categoricals or nested types",
)
SEVERAL = Rule(
    frozenset({"a group's expression"}),
    "gives several values for one person",
    "end it by a function that gives one, such as sum, min or n_unique.",
    condition="without a function that gives one value, in `agg`",
)
ONE_ALREADY = Rule(
    TAKEN - names("len"),
    "is given one value for a person already",
    "give it a column.",
    condition="of a constant, or of what is one value for each person already",
)
ALONG_ALREADY = Rule(
    FIRST_OF_ORDER | ALONG_ORDER | RANKS,
    f"is given values that follow an order, in which the rows that tie may come otherwise the second time, {PEOPLE}",
    "make its column with with_columns in the step before.",
    condition="of what follows an order already, as `cum_sum` does",
)
SEVERAL_ORDERS = Rule(
    names("over"),
    f"has several orders in one step, in which rows that are the same may come otherwise each time, {PEOPLE}",
    "take a step for each order.",
    condition="with two orders in one step",
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
NO_COLUMN = Rule(
    SORTS | names("over"),
    "takes names of columns here",
    "make the column with with_columns in the step before.",
    condition="by an expression that is no column",
)
TWO_WAYS = Rule(
    ALONG_ORDER,
    "takes an order of one direction here",
    "sort in one direction, by columns made for it in the step before.",
    condition="in an order of several directions",
)
NOT_BY_ROWS = Rule(
    names("over"),
    "changes the place of rows",
    "leave mapping_strategy out.",
    condition="with a mapping_strategy",
)
MIXED_ORDERS = Rule(
    SORTS,
    f"brings values of different orders together, {PEOPLE}",
    "sort at one place, around the whole expression.",
    condition="next to another column, or in another order",
)
COMPANY = Rule(
    frozenset({"a step"}),
    f"gives a person another result alone than among others, or in another order, {PEOPLE}",
    "take it apart: make its columns in several steps.",
    condition="of which a trial on synthetic people shows it",
)
RAISING = Rule(
    frozenset({"a step"}),
    RAISES,
    "cast its columns in the step before.",
    condition="of which a trial on synthetic people shows it",
)


def is_ordinal(step: Step) -> bool:
    """Return whether a rank tells rows apart that tie."""
    return bool(step.name in RANKS and step.parameters["options"]["method"] == "Ordinal")
