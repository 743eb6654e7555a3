"""The rules of the row gate, and the conditions for refusing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.column_types import family, is_opaque, parts_of
from dp_polars._steps import nodes
from dp_polars._steps.nodes import ExprNode, bases, names
from dp_polars._steps.whole_numbers import has_floats

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

# Functions that add up a row's own list.
_ADDS = names("arr.mean arr.sum list.mean list.sum")
# The kinds of values that are accepted on Polars 1.
_KINDS: dict[object, str] = {
    pl.Boolean: "boolean",
    pl.String: "text",
    **dict.fromkeys((pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64), "number"),
    **dict.fromkeys((pl.Float32, pl.Float64), "number"),
}


def is_float(step: ExprNode) -> bool:
    return any(dtype.is_float() for dtype in step.dtypes())


def shows_zeros(step: ExprNode) -> bool:
    """Return whether an operation shows the sign of a zero, including conversions of a number to text among texts."""
    return step.name in nodes.OF_SIGNED_ZEROS or (step.name != "as_struct" and pl.String in bases(step))


def is_unlisted(step: ExprNode) -> bool:
    return step.name not in nodes.TAKEN.get(step.kind, ())


def is_spelled_on_polars_2(step: ExprNode) -> bool:
    """Return whether an operation is missing here on Polars 1, but may be rewritten on Polars 2."""
    of_rows = step.name.startswith(("arr.", "list.")) or step.name in {"dt.replace", "struct.with_fields"}
    return of_rows and is_unlisted(step) and needs_polars_2(step)


def needs_polars_2(step: ExprNode) -> bool:
    """Return whether an operation is not on the short list for Polars 1, on Polars 1."""
    if not pl.__version__.startswith("1.") or step.name == "a name":
        return False
    taken = next((kinds for steps, kinds in nodes.ON_POLARS_1.items() if step.name in steps), None)
    if taken is None or taken == nodes.ANY:
        return taken is None
    values = step.inputs[1:] if step.name == "when" else step.inputs
    if step.name in nodes.OF_ONE_COLUMN and parameters_vary(step):
        return True
    if step.name.startswith("str."):  # its other inputs may be numbers
        values = varying(step)
    kinds = {_KINDS.get(base) for base in bases(*values) - {pl.Null, pl.List}}
    types = {dtype for value in values if value.varies for dtype in value.dtypes()}
    is_mixed = step.name in nodes.OF_ONE_TYPE and (len(kinds) > 1 or len(types) > 1)
    return (
        is_mixed
        or not kinds <= taken
        or any(pl.List in map(type, value.dtypes()) for value in step.inputs if value.varies)
        or not all(dtype.base_type() in _KINDS for dtype in step.dtypes())
    )


def varying(step: ExprNode) -> list[ExprNode]:
    return [value for value in step.inputs if value.varies]


def parameters_vary(step: ExprNode) -> bool:
    if step.name in nodes.OF_ROWS_PARAMETERS or (step.name == "str.contains" and step.parameters["literal"]):
        return False
    return any(value.varies for value in step.inputs[1:])


def converts_nested(step: ExprNode) -> bool:
    others = {0} if step.name == "when" else nodes.SETS.get(step.name, set())
    values = [value for place, value in enumerate(step.inputs) if place not in others]
    types = {dtype for value in values for dtype in value.dtypes() if dtype != pl.Null}
    return len(types) > 1 and any(dtype.is_nested() for dtype in types)


def holds_floats(step: ExprNode) -> bool:
    return any(dtype.is_nested() for dtype in step.dtypes()) and any(base.is_float() for base in bases(step))


def has_few_categories(step: ExprNode) -> bool:
    """Return whether a category that an operation adds may not fit, including nested types."""
    # If a category does not fit, the result's type is unknown: planning such an operation adds the category.
    values = [step] if step.kind == "cast" else step.inputs
    parts = [part for value in values for dtype in value.dtypes() for part in parts_of(dtype)]
    return any(isinstance(part, pl.Categorical) and part.categories.physical() != pl.UInt32 for part in parts)


def adds_floats(step: ExprNode) -> bool:
    adds = step.name in _ADDS and any(map(has_floats, step.inputs[0].dtypes()))
    return adds or any(map(adds_floats, step.inputs))


def has_lists(step: ExprNode) -> bool:
    return all(isinstance(dtype, (pl.List, pl.Array)) for dtype in step.dtypes())


def is_set(series: ExprNode) -> bool:
    """Return whether a Series is a set of values: the values themselves, or one list of them."""
    return not has_lists(series) or pl.select(nodes.without_nan(series.tree)).height == 1


def does_not_fit_the_array(step: ExprNode) -> bool:
    array, value = step.inputs if step.name == "arr.contains" else (step.inputs[1], step.inputs[0])
    pairs = [(kind.inner, of) for kind in array.dtypes() if isinstance(kind, pl.Array) for of in value.dtypes()]
    return not all(inner == of or (inner.is_integer() and of.is_integer()) for inner, of in pairs)


def is_local(step: ExprNode) -> bool:
    return any(isinstance(dtype, pl.Datetime) and dtype.time_zone not in {None, "UTC"} for dtype in step.dtypes())


def ambiguous_is_no_word(step: ExprNode) -> bool:
    match step.inputs[-1].tree:
        case None | {"Literal": {"Scalar": {"String": _}}}:
            return False
    return True


def replaces_categories_by_number(step: ExprNode) -> bool:
    """Return whether values other than texts are used as categories, or become some."""
    _, old, *others = step.inputs
    values = [old] if pl.Categorical in bases(step.inputs[0]) else []
    values += others if pl.Categorical in bases(step) else []
    return not bases(*values) <= {pl.Categorical, pl.Enum, pl.String, pl.Null, pl.List}


# Operations that test equality, and operations that compare in any way.
_EQUATES = names("""
    == != eq_missing ne_missing is_in replace replace_strict arr.contains arr.count_matches list.contains
    list.count_matches
""")
_COMPARES = nodes.COMPARISONS | _EQUATES | names("is_between")


def _compared(step: ExprNode) -> set[PolarsDataType]:
    """Return the types of the values that an operation compares."""
    value, *others = step.inputs
    if step.name.startswith("replace"):
        others = others[:1]
    types = [*value.dtypes()], [dtype for other in others for dtype in other.dtypes()]
    holders = {"is_in": 1, "replace": 1, "replace_strict": 1}.get(step.name, 0 if "." in step.name else None)
    if holders is not None:
        held = [dtype.inner if isinstance(dtype, (pl.List, pl.Array)) else dtype for dtype in types[holders]]
        return {*types[1 - holders], *held}
    return {*types[0], *types[1]}


def compares_days_with_times(step: ExprNode) -> bool:
    types = _compared(step)
    return pl.Date in types and any(isinstance(dtype, pl.Datetime) for dtype in types)


def compares_unlike_types(step: ExprNode) -> bool:
    types = _compared(step)
    kinds = {family(dtype) for dtype in types if dtype != pl.Date} - {None}  # type: ignore[arg-type]  # no class
    if pl.Date in types and not any(isinstance(dtype, pl.Datetime) for dtype in types):
        kinds.add("datetime")
    return len({"number" if kind == "boolean" else kind for kind in kinds}) > 1


@dataclass(frozen=True)
class Rule:
    """A reason to refuse a step, and the way out."""

    steps: frozenset[str]  # names of operations; none: all
    why: str  # how it fails, after the name, with the consequence
    instead: str  # the way out
    where: Callable[[ExprNode], bool] = lambda _: True  # which of these operations are refused
    condition: str = ""  # the same in words, for the documentation

    def refuses(self, step: ExprNode) -> bool:
        return (not self.steps or step.name in self.steps) and self.where(step)

    def message(self, call: str, step: str, details: str = "") -> str:
        return f"{call}: {step} {self.why}{details}.\n\nHint: {self.instead}"


# The table.

PEOPLE = "so one person could change another's result"
COMBINES = f"combines several rows, {PEOPLE}"
_CONSTANT = "use a public constant, for example last year's mean; take it of one person's rows before `protect`."
_IN_ORDER = (
    "take one person's rows before `protect`: "
    "with_columns(pl.col('x').{}().over(unit, order_by='day')).dp.protect(unit, …)."
)
BOUNDS = "leave it out: `protect` limits how many rows of a person count, and a mode counts each person once."
LAST_BIT = f"rounds a row's last bit differently where the row is alone in its chunk, {PEOPLE}"
_CATEGORY = f"may take a category's number, which other rows decide, {PEOPLE}"
CLOCKS = "raises on a local time that a clock change leaves out, and the error would tell that a row has it"
RAISES = "raises on some values, and the error would tell that a row has one"

_TOO_MANY = "raises where the rows hold too many categories, and the error would tell that they do"
_NO_FEW = "cast the Categorical to pl.String first, or use pl.Categorical."

# Operations that are never accepted. The last rule is for operations without another one.
UNLISTED: tuple[Rule, ...] = (
    Rule(nodes.COMBINING, COMBINES, _CONSTANT),
    Rule(
        nodes.MOVING,
        COMBINES,
        "take one person's rows before `protect`: with_columns(pl.col('x').max().over(unit)).dp.protect(unit, …); or "
        "group by public keys: group_by({…}).agg(…).",
    ),
    Rule(
        nodes.PLACING | nodes.SORTING,
        f"depends on the place of a row among the others, {PEOPLE}",
        f"use what depends on the row and on constants alone; or {_IN_ORDER.format('diff')}",
    ),
    Rule(
        nodes.FILLING,
        f"fills a row from the others, {PEOPLE}",
        f"fill with a constant: fill_null(0); or {_IN_ORDER.format('forward_fill')}",
    ),
    Rule(nodes.COMPARING, f"compares a row with the others, {PEOPLE}", BOUNDS),
    Rule(
        nodes.RESIZING,
        "changes the number of rows",
        "filter the frame: frame.filter(…), frame.drop_nulls(…); or filter last: (x + 1).filter(…).dp.mean(…) in agg; "
        "explode the frame: frame.explode(…).",
    ),
    Rule(
        nodes.BREAKING,
        f"takes its breaks from the rows, {PEOPLE}",
        "cut at public breaks: bin_intervals([…]), which Polars 1 calls cut([…]).",
    ),
    Rule(nodes.RANDOM, "draws at random, for all rows together", "keep a part by hash() % 10 == 0."),
    Rule(
        nodes.CODE,
        "can't be inspected, and may combine rows",
        "write it with native expressions.",
    ),
    Rule(
        frozenset({"a Series"}),
        "has values of its own for the rows by their place",
        "pass a single value, or a list where a set is meant: is_in([1, 2]).",
    ),
    Rule(
        nodes.OF_JSON,
        "is not by row for all types, or raises on some values",
        "use str.json_path_match for texts, and pl.format on the fields of structs.",
    ),
    Rule(
        frozenset(),
        "is not known to look at its own row alone",
        "use what depends on the row and on constants alone; the page Supported transformations lists what is taken.",
        is_unlisted,
        "any transformation that is not listed as taken",
    ),
)

# The rules that name operations.
NAMED = UNLISTED[:-1]

# The worst leaks were on Polars 1 only.
NEEDS_POLARS_2 = Rule(
    frozenset(),
    "needs Polars 2",
    "install Polars 2; or write the transformation before `protect`, where rows are yours to prepare: "
    'frame.with_columns(is_new=pl.col("day") >= date(2026, 1, 1)).dp.protect(…), and then filter("is_new"). The page '
    "Supported transformations lists the few transformations that Polars 1 takes.",
    needs_polars_2,
    "any transformation that is not on the short list above, on Polars 1",
)

# Found by a trial on extreme rows: each row by itself, twice, and before and after nulls.
COMPANY = Rule(
    frozenset(),
    f"gives a row another result alone than among others, {PEOPLE}",
    "cast its columns to one type in the transformation before.",
)

# Operations that `list.eval` can't apply to a row's own list.
OWN_LIST = Rule(
    frozenset({"list.agg", "list.eval"}),
    "takes row-by-row steps on pl.element(), and single functions that follow from a list's own elements",
    "use list.sum, list.mean, list.var, list.std, list.median for floats, and another list.eval for what comes after.",
)

# Operations that are accepted with conditions.
LISTED: tuple[Rule, ...] = (
    Rule(
        frozenset(),
        f"looks into a type that only its owner knows: categories' numbers may show, {PEOPLE}, or a value raise",
        'take the storage of an Extension first: pl.col("place").ext.storage(); columns of Objects are only carried '
        "along: take what you need of them before `protect`.",
        lambda step: step.name not in nodes.OF_OPAQUE and any(map(is_opaque, step.input_types)),
        "any transformation on Extension types or Objects but `is_null`, `is_not_null`, `ext.storage` and "
        "`struct.field`",
    ),
    Rule(
        names("cast coalesce fill_null replace replace_strict when"),
        _TOO_MANY,
        _NO_FEW,
        has_few_categories,
        "on Categoricals of 8 or 16 bits, also in nested types; `cast` to them",
    ),
    Rule(
        nodes.OPERATORS | {"when"} | (nodes.OF_COLUMNS - nodes.OF_MIXED_TYPES),
        f"converts a whole column to a nested type, {PEOPLE}",
        "give a constant the column's very type: pl.lit(value, dtype=…).",
        converts_nested,
        "on lists, arrays or structs of different types",
    ),
    Rule(
        _EQUATES,
        "takes a day for its midnight, so that other times of the day equal none",
        'compare days: pl.col("at").dt.date() == date(2026, 1, 31); or give a datetime.',
        compares_days_with_times,
        "of a Datetime with a Date",
    ),
    Rule(
        _COMPARES,
        "compares values of unlike types by the numbers or texts behind them",
        'give a value of the column\'s type, pl.col("zip") == "8001"; or cast the column, '
        'pl.col("zip").cast(pl.Int64, strict=False) == 8001; to a local time give its time zone, '
        'pl.lit(datetime(2026, 1, 31)).dt.replace_time_zone("Europe/Paris").',
        compares_unlike_types,
        "of texts, numbers, dates, times and durations with each other",
    ),
    Rule(
        nodes.ARITHMETIC,
        LAST_BIT,
        "take elements from lists with list.get, and fields from structs.",
        holds_floats,
        "with floats in lists, arrays or structs",
    ),
    Rule(
        nodes.OF_ONE_COLUMN,
        "takes a parameter from the rows",
        "pass it as a constant; choose among constants by pl.when.",
        parameters_vary,
        "with a parameter that is a column",
    ),
    Rule(
        nodes.OF_ONE_COLUMN,
        "takes no struct as a parameter",  # Polars 2.1 hangs on one in str.zfill
        "pass a single value or a list.",
        lambda step: pl.Struct in bases(*step.inputs[1:]),
        "with a parameter that is a struct",
    ),
    Rule(
        names("arctan2"),
        "takes numbers only",  # Polars 2.1 crashes on a struct
        "take elements from lists with list.get, and fields from structs.",
        lambda step: any(dtype.is_nested() for dtype in step.input_types),
        "of lists, arrays or structs",
    ),
    Rule(
        names("is_in"),
        f"looks a value up in other rows, {PEOPLE}",
        "pass a list, or a column of lists.",
        lambda step: step.inputs[1].varies and (has_lists(step.inputs[0]) or not has_lists(step.inputs[1])),
        "in a column",
    ),
    Rule(
        names("str.strptime"),
        f"guesses its format from other rows, {PEOPLE}",
        'pass the format: str.to_date("%Y-%m-%d").',
        lambda step: step.parameters is None,
        "without a format",
    ),
    Rule(
        names("reinterpret"),
        f"treats NaN or −0 differently where the row is alone in its chunk, {PEOPLE}",
        "cast to the integers that you mean.",
        lambda step: any(map(is_float, step.inputs)),
        "on floats",
    ),
    Rule(
        nodes.OF_TEXTS,
        "shows the signs of zeros in nested types, which other rows may decide",
        "give its fields or elements.",
        lambda step: any(map(holds_floats, step.inputs)),
        "on lists, arrays or structs of floats",
    ),
    Rule(
        names("arr.contains is_in"),
        RAISES,
        "give values of the array's very type.",
        does_not_fit_the_array,
        "in an array of another type",
    ),
    Rule(
        nodes.FUNCTIONS - nodes.OF_CATEGORIES,
        _CATEGORY,
        "cast the Categorical to pl.String first.",
        lambda step: pl.Categorical in bases(*varying(step)),
        "on a Categorical",
    ),
    Rule(
        names("replace replace_strict"),
        _CATEGORY,
        "give texts for categories, or cast the Categorical to pl.String first.",
        replaces_categories_by_number,
        "of categories by or with what is no text",
    ),
    Rule(
        names("cast"),
        _CATEGORY,
        "cast the Categorical to pl.String first.",
        lambda step: bases(step, *step.inputs) - {pl.Enum, pl.String, pl.Null} > {pl.Categorical},
        "between a Categorical and anything but texts and Enums",
    ),
    Rule(
        names("cast"),
        "guesses a format",
        "use str.to_datetime(format).",
        lambda step: (
            pl.String in bases(*step.inputs) - bases(step)
            and not bases(step, *step.inputs).isdisjoint({pl.Date, pl.Datetime, pl.Time})
        ),
        "of a text to a date or time",
    ),
    Rule(
        names("cast"),
        "is not by row for all nested types",
        "cast fields or elements.",
        lambda step: bool(bases(step, *step.inputs) & {pl.List, pl.Array, pl.Struct}),
        "of lists, arrays or structs",
    ),
    Rule(
        names("dt.datetime_function dt.replace_time_zone"),
        CLOCKS,
        'pass ambiguous="earliest".',
        ambiguous_is_no_word,
        "with a column as `ambiguous`",
    ),
)

# Operations that raise on some value, found by a trial on extreme values of their input types.
RAISING = tuple(
    Rule(steps, RAISES, instead)
    for steps, instead in [
        (nodes.ARITHMETIC, "cast Decimals to pl.Float64 first; take elements from lists with list.get."),
        (nodes.COMPARISONS, "put the column before the constant; compare an Enum as cast(pl.String)."),
        (names("dt.add_business_day"), 'pass roll="forward" or roll="backward".'),
        (names("pow"), "give the exponent as a number, not a negative one for integers."),
        (names("replace_strict"), "pass default=None."),
        (
            frozenset[str](),
            "give it only values that fit: clip numbers, or cast to a wider type, in the transformation before.",
        ),
    ]
)
