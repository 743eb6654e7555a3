"""Which functions of one person's rows are taken, by the order that they need, and their trials on synthetic people."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
from polars.exceptions import PanicException, PolarsError

from dp_polars._steps import trials, whole_numbers
from dp_polars._steps.nodes import ExprNode, bases, is_opaque, names
from dp_polars._steps.rules import PEOPLE, RAISES, Rule
from dp_polars._steps.trials import apart_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polars._typing import EngineType, PolarsDataType

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._steps.rules import Rule

    Run = Callable[[pl.LazyFrame], pl.LazyFrame]


# One value for each person, whatever the order of the rows.
OF_ANY_ORDER = names("all any count has_nulls len max mean median min n_unique null_count quantile std sum var")
# One value for each person, and one for each row, that need an order.
FIRST_OF_ORDER = names("arg_max arg_min first first_non_null implode last last_non_null str.concat_vertical")
ALONG_ORDER = names(
    "cum_count cum_max cum_min cum_sum diff fill_null_with_strategy range.int_range rolling_expr shift shift_and_fill"
)
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


def of_floats(step: ExprNode) -> bool:
    dtype = _value(step)
    return dtype is not None and dtype.is_float()


def is_no_number(step: ExprNode) -> bool:
    """Return whether values can't be added up."""
    dtype = _value(step)
    return dtype is None or not (whole_numbers.has_whole_numbers(dtype) or dtype == pl.Duration)


def is_no_boolean(step: ExprNode) -> bool:
    return _value(step) not in {pl.Boolean, pl.Null}


def has_no_mean(step: ExprNode) -> bool:
    dtype = _value(step)
    return dtype is None or not (whole_numbers.has_whole_numbers(dtype) or dtype.is_temporal())


def is_added_whole(name: str, dtype: PolarsDataType) -> bool:
    """Return whether a function adds whole numbers of 128 bits, where Polars' own sum would round, wrap or raise."""
    return name != "sum" or dtype.is_float() or dtype.is_decimal()


def is_an_integer(dtype: PolarsDataType | None) -> bool:
    return dtype is not None and dtype.is_integer() and dtype not in {pl.Int128, pl.UInt128}


def has_no_middle(step: ExprNode) -> bool:
    dtype = _value(step)
    return not (
        is_an_integer(dtype)
        or (dtype is not None and (dtype.is_float() or dtype.is_decimal() or dtype.base_type() in _TEMPORAL))
    )


def has_no_one_order(step: ExprNode) -> bool:
    """Return whether values have an order that may differ in the next scan, or none."""
    return bool(bases(*step.inputs[:1]) & {pl.Categorical, pl.List, pl.Array, pl.Struct, pl.Object})


def is_nested(step: ExprNode) -> bool:
    return bool(bases(*step.inputs[:1]) & {pl.List, pl.Array, pl.Struct, pl.Object})


def is_of_opaque(step: ExprNode) -> bool:
    return any(map(is_opaque, (dtype for value in step.inputs[:1] for dtype in value.dtypes())))


def fills_otherwise(step: ExprNode) -> bool:
    """Return whether nulls are filled by anything but the value before or after them."""
    return not (isinstance(step.parameters, dict) and {*step.parameters} <= {"Forward", "Backward"})


def is_no_text(step: ExprNode) -> bool:
    return _value(step) != pl.String


def rolls_otherwise(step: ExprNode) -> bool:
    """Return whether it is no plain sum or mean of numbers over the rows up to each."""
    options, dtype = step.parameters["options"], _value(step)
    is_added = step.parameters["function"] in {"Mean", "Sum"} and options["weights"] is None and not options["center"]
    return not (is_added and dtype is not None and (is_an_integer(dtype) or dtype.is_float() or dtype == pl.Boolean))


def propagates_nan(step: ExprNode) -> bool:
    return bool(step.parameters.get("propagate_nans"))


def is_random(step: ExprNode) -> bool:
    return bool(step.parameters["options"]["method"] == "Random")


def fills_another_type(step: ExprNode) -> bool:
    """Return whether what fills is not of the type of the values: Polars plans one type then, and rows have another."""
    dtype, (fill, *_) = _value(step), step.inputs[-1].dtypes()
    if dtype is None or fill == pl.Null:
        return False
    return not ((dtype.is_integer() and fill.is_integer()) or (dtype.is_float() and fill.is_numeric()) or dtype == fill)


def given_a_column(step: ExprNode) -> bool:
    return any(value.kind != "literal" for value in step.inputs[1:])


# Steps on one person's rows that are not taken, or not in every way.
REFUSED: tuple[Rule, ...] = (
    Rule(
        (TAKEN | SOME) - COUNTS,
        f"looks into a type that only its owner knows, {PEOPLE}",
        "take the storage of an Extension in the step before: pl.col('place').ext.storage().",
        is_of_opaque,
        "of Extensions and Objects",
    ),
    Rule(
        names("sum cum_sum std var"),
        "takes numbers, and sums also booleans and durations",
        "cast to a number in the step before.",
        is_no_number,
        "of anything else",
    ),
    Rule(
        names("all any"),
        "raises on texts, once there is one, and the error would tell that a row has it",
        "compare: (pl.col('x') != '').any().",
        is_no_boolean,
        "of anything but booleans",
    ),
    Rule(
        names("fill_null_with_strategy"),
        "fills by the values before or after here",
        "fill with what the person has: pl.col('x').fill_null(pl.col('x').mean().over(unit)).",
        fills_otherwise,
        "by anything but forward and backward",
    ),
    Rule(
        names("str.concat_vertical"),
        "takes texts",
        "cast to pl.String in the step before.",
        is_no_text,
        "of anything but texts",
    ),
    Rule(
        names("mean"),
        "takes numbers, booleans, dates and times",
        "cast to a number in the step before.",
        has_no_mean,
        "of anything else",
    ),
    Rule(
        names("median quantile"),
        "takes numbers, dates and times",
        "cast to a number in the step before.",
        has_no_middle,
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
        propagates_nan,
        "that gives NaN where there is one (`nan_max`, `nan_min`)",
    ),
    Rule(
        names("max min rank cum_max cum_min arg_max arg_min max_by min_by"),
        "needs values with one order, and Categoricals and nested types have none that holds in the next scan",
        _TEXT,
        has_no_one_order,
        "of Categoricals, lists, arrays or structs",
    ),
    Rule(
        names("n_unique unique mode is_duplicated is_unique is_first_distinct is_last_distinct"),
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
    Rule(
        names("item"),
        _ORDER,
        "sort, and take the first: pl.col('x').sort_by('day').first().",
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
    names("over"),
    "changes the place of rows",
    "leave mapping_strategy out.",
    condition="with a mapping_strategy",
)
MIXED_ORDERS = Rule(
    SORTS,
    f"brings rows of different orders or numbers together, {PEOPLE}",
    "sort and filter at one place, around the whole expression.",
    condition="next to another column, in another order, or of other rows",
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


def is_ordinal(step: ExprNode) -> bool:
    """Return whether a rank tells rows apart that tie."""
    return bool(step.name in RANKS and step.parameters["options"]["method"] == "Ordinal")


# Rows of all people together, a quarter of them twice; how far a row is from the next one in the shuffled frame.
_ROWS, _STEP = 48, 29
# Whose the rows are, in turn; but the first one, of nulls, is all that one person has. A row that is there twice
# has one owner.
_OWNERS = [1, 1, 2, None, 2, 2, 1, 2, 2, 2, 2, 2]

_ANOTHER_NAN = struct.unpack("<d", (0xFFF8_0000_0000_0001).to_bytes(8, "little"))[0]


def refuse_company(run: Run, schema: pl.Schema, unit: PrivacyUnit, call: str) -> None:
    """Refuse a step that raises on synthetic rows, or gives a person others where other people are there.

    It is run on the rows of all, of each person alone, in other orders, in other chunks, streamed and not optimized: a
    person's rows must be the same ones to the bit, in any order.
    """
    rule = _broken(run, _people(schema, unit), unit)
    if rule is not None:
        raise ValueError(rule.message(call, "the step"))


def _broken(run: Run, frame: pl.DataFrame, unit: PrivacyUnit) -> Rule | None:
    """Return the rule that a step breaks on these rows, if any."""
    try:
        together = _rows(run(frame.lazy()))
        by_themselves: Counter[str] = Counter()
        for person in frame.partition_by(unit, maintain_order=True):
            by_themselves += _rows(run(person.lazy()))
        if by_themselves != together or any(_rows(*way) != together for way in _ways(run, frame)):
            return COMPANY
        run(frame.clear().lazy()).collect(engine="in-memory")
    except (PolarsError, PanicException):
        return RAISING
    return None


def _ways(run: Run, frame: pl.DataFrame) -> Iterator[tuple[pl.LazyFrame, EngineType, bool]]:
    """Yield the same rows in other orders and chunks, and other ways to run the step on them."""
    backwards, shuffled = frame.reverse(), frame[[row * _STEP % frame.height for row in range(frame.height)]]
    chunks = pl.concat([frame[start : start + 5] for start in range(0, frame.height, 5)], rechunk=False)
    yield run(backwards.lazy()), "in-memory", True
    yield run(shuffled.lazy()), "in-memory", True
    yield run(chunks.lazy()), "in-memory", True
    yield run(frame.lazy()), "streaming", True
    yield run(shuffled.lazy()), "streaming", True
    yield run(frame.lazy()), "in-memory", False


def _people(schema: pl.Schema, unit: PrivacyUnit) -> pl.DataFrame:
    """Return rows of extreme values of some people, each with several rows, some of them twice; one is nobody."""
    numbers = [number % (_ROWS * 3 // 4) for number in range(_ROWS)]
    columns = {}
    for place, (name, dtype) in enumerate(schema.items(), 1):
        values = pl.concat([trials.extremes(dtype), *_floats(dtype)])
        # The second part is for columns whose place is a multiple of how many values they have.
        picks = [(number * place + number // len(values)) % len(values) for number in numbers]
        columns[name] = values.gather(picks)
    for place, name in enumerate(unit):  # of several columns, some people differ in one of them alone
        people = trials.extremes(schema[name])  # nobody first
        there = min(len(people) - 1, 3) or 1
        owners = [0 if person is None else 1 + person % there for person in _OWNERS]
        whose = [owners[(number + place) % len(owners)] if number else 1 for number in numbers]
        columns[name] = people.gather([owner % len(people) for owner in whose])
    return pl.DataFrame(columns)


def _floats(dtype: PolarsDataType) -> list[pl.Series]:
    """Return floats that equal others or add up with rounding, also nested ones; none of types that hold none."""
    if dtype.is_float():
        return [pl.Series([-0.0, _ANOTHER_NAN, 0.1, 0.7, 5e-324, 2.0**54, 2.0**55], dtype=pl.Float64).cast(dtype)]
    if isinstance(dtype, (pl.List, pl.Array)):
        size = dtype.size if isinstance(dtype, pl.Array) else 2
        found = [
            pl.concat([values.gather([(start + n) % len(values) for n in range(size)]).implode() for start in range(3)])
            for values in _floats(dtype.inner)
        ]
        return [values.list.to_array(size) if isinstance(dtype, pl.Array) else values for values in found]
    if isinstance(dtype, pl.Struct):
        fields = [(of.name, [trials.extremes(of.dtype), *_floats(of.dtype)][-1][:3]) for of in dtype.fields]
        if any(_floats(of.dtype) for of in dtype.fields):
            return [
                pl.DataFrame({name: values.gather([0, -1, 0]) for name, values in fields})
                .to_struct()
                .cast(apart_type(dtype))
            ]
    return []


def _rows(plan: pl.LazyFrame, engine: EngineType = "in-memory", optimized: bool = True) -> Counter[str]:
    """Return the rows of a plan, to the bit, and how often each is there."""
    flags = pl.QueryOptFlags(predicate_pushdown=False) if optimized else pl.QueryOptFlags.none()
    frame = plan.collect(engine=engine, optimizations=flags)
    return Counter(map(repr, frame.select(pl.all().to_physical()).iter_rows()))
