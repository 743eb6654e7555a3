"""The table of rules for plans before `protect`, where a step is looked at but can't be rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._rowwise import conditions as when
from dp_polars._rowwise import person_rules
from dp_polars._rowwise.lenient import SWITCHES
from dp_polars._rowwise.names import DIVISIONS, OPERATORS, names
from dp_polars._rowwise.nodes import Step, bases
from dp_polars._rowwise.rules import BOUNDS, CLOCKS, COMBINES, LAST_BIT, PEOPLE, RAISES, Rule

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

# Types whose equal values are the same to the bit, in every scan; integers of at most 64 bits are others.
_PLAIN = frozenset({pl.Boolean, pl.String, pl.Date, pl.Datetime, pl.Duration, pl.Time, pl.Enum})

# Steps in a plan before `protect`, where nothing can be rewritten.
_AFTER = "do it after `protect`, where such a value gives null."
BEFORE_PROTECT = (
    Rule(names("cast"), RAISES, _AFTER, when.may_not_fit, "of values that the type may not hold"),
    Rule(frozenset(SWITCHES), RAISES, _AFTER, when.is_strict, "with strict=True or null_on_oob=False"),
    Rule(names("dt.datetime_function"), RAISES, _AFTER, condition="of columns"),
    Rule(names("dt.replace_time_zone"), CLOCKS, _AFTER, when.is_local, "to a local time zone"),
    Rule(names("replace_strict"), RAISES, "pass default=None.", when.has_no_default, "without a default"),
    Rule(OPERATORS, RAISES, "cast Decimals to pl.Float64.", when.holds_decimals, "on Decimals"),
    Rule(DIVISIONS, LAST_BIT, "divide after `protect`.", when.divides_by_a_constant, "of floats by a constant"),
)

# What files hold.
MAY_REPEAT = Rule(
    frozenset({"a scan of several files"}),
    "may read a row twice: they must be known to be different where every row is a person",
    "name each file once, without links to it, or name the privacy unit.",
    condition="that may be one file, without a privacy unit",
)
FILTERED = Rule(
    frozenset({"a pyarrow dataset with a filter of its own"}),
    f"skips rows by the least and largest values of others, {PEOPLE}",
    "filter after `protect`.",
)

REWRITTEN = Rule(
    frozenset({"a file that was rewritten"}),
    "may have other rows, or other columns, than when it was looked at",
    "scan it anew and protect that.",
    condition="since it was scanned, or since `protect`; another mode, or another link to it, looks the same",
)
NO_COLUMNS = Rule(
    frozenset({"a plan without columns"}),
    "loses the number of its rows",
    "leave one column in.",
    condition="at any place",
)
UNRESOLVED = Rule(
    frozenset({"a Delta or Iceberg table"}),
    "shows its files only when Polars reads it",
    "scan it through Arrow: pl.scan_pyarrow_dataset(DeltaTable(…).to_pyarrow_dataset()) for Delta, "
    "release(table.scan().to_arrow_batch_reader()) for Iceberg.",
    condition="in `pl.scan_delta` or `pl.scan_iceberg`",
)

# Steps on the rows of one person, which are taken with a unit.
_LATER = "do it after `protect`, where values are made one of a kind first."
_WHOSE = "without the privacy unit, or before a step that changes it (for owned rows: all columns of their join)"
TWICE = Rule(
    frozenset({"a table that is read twice"}),
    "has one privacy unit: otherwise a row belongs to several people, and goes with each of them",
    "take the same columns for the unit, unchanged, wherever the table is read; rows of the table that is protected "
    "can't be owned rows.",
    condition="with other columns as the privacy unit, in one plan or in the frames of a join",
)
SEVERAL_UNITS = Rule(
    names("explode unpivot"),
    "makes rows of several people out of one: it goes with each of them",
    "name a column that stays as it is as the privacy unit.",
    condition="of the privacy unit, or of a row whose unit is computed later",
)
GROUPS = Rule(
    names("GroupBy"),
    COMBINES,
    "group by the privacy unit, too, and leave it as it is; or ask about groups after `protect`: group_by({…}).agg(…).",
    condition=_WHOSE,
)
WINDOWS = Rule(
    names("over"),
    COMBINES,
    "take one person's rows: over(unit, …), and leave the unit as it is; or group by public keys after `protect`.",
    condition=_WHOSE,
)
JOINS = Rule(
    names("Join"),
    f"brings rows together, {PEOPLE}",
    "join tables of people on the privacy unit of both, and leave it as it is; join a public frame after `protect`.",
    condition=_WHOSE,
)
OTHER_GROUPS = Rule(
    names("GroupBy"),
    "takes windows of time, or rows by their place, or runs a Python function",
    "group by columns alone.",
    condition="as group_by_dynamic, rolling, head or map_groups make it",
)
ORDERED_WINDOWS = Rule(
    names("over"), "takes no order and no mapping here", _LATER, condition="with order_by or mapping_strategy"
)
OTHER_JOINS = Rule(
    names("Join"),
    'is "inner", "left", "semi" or "anti" here, on columns that are equal',
    "join so, and concat what is left over.",
    condition='as "full", "right", "cross", join_asof or join_where make it',
)
JOINS_OF_NULLS = Rule(
    names("Join"),
    "lets null equal nothing here: a null person is nobody",
    "leave nulls_equal out.",
    condition="with nulls_equal=True",
)
VALIDATED = Rule(
    names("Join"), RAISES, "leave `validate` out.", condition="with `validate`, of which a trial on twins shows it"
)
INEXACT_KEYS = Rule(
    names("GroupBy Join over"),
    "takes names of columns here that are integers of at most 64 bits, booleans, texts, Enums, dates or times, of one "
    "type on both sides of a join",
    "make such a column in the step before, or do it after `protect`.",
    condition="by expressions, or by columns of other types",
)
NO_FUNCTION = Rule(
    frozenset({"a group's expression"}),
    "is one function of one column here, such as pl.col('x').min() or pl.len()",
    "make its column in the step before, and what follows from it in the step after; or do it after `protect`.",
    condition="of anything else, in `group_by` and `over`",
)
OF_PEOPLE_TAKEN = person_rules.OF_ANY_ORDER - names("quantile")
LATER = Rule(
    frozenset(),
    "is not taken of a person's rows here",
    "do it after `protect`, if the page Steps of a private frame lists it; in any order are taken here: "
    f"{', '.join(sorted(OF_PEOPLE_TAKEN))}.",
    lambda step: step.name not in OF_PEOPLE_TAKEN,
    "any other function, in `group_by` and `over`",
)


def is_plain(dtype: PolarsDataType) -> bool:
    """Return whether equal values of a type are the same to the bit, in every scan."""
    return dtype.base_type() in _PLAIN or person_rules.is_an_integer(dtype)


def _is_no_int64(step: Step) -> bool:
    return bases(*step.inputs) != {pl.Int64}


def _is_not_plain(step: Step) -> bool:
    return not all(is_plain(dtype) for value in step.inputs for dtype in value.dtypes())


def _is_not_of_integers(step: Step) -> bool:
    return not all(
        map(person_rules.is_an_integer, (dtype for value in (step, *step.inputs) for dtype in value.dtypes()))
    )


# What one person has may be one value in all, where nobody else is there: Polars may take it for a constant then.
DIVIDED = Rule(
    DIVISIONS,
    LAST_BIT,
    "divide after `protect`.",
    _is_not_of_integers,
    "of anything but integers, in a plan with a step on one person's rows",
)

# Functions of one person's rows in a plan, that are not taken in every way.
OF_PEOPLE = (
    Rule(
        names("sum"),
        "adds Int64 alone here",
        "cast in the step before: pl.col('n').cast(pl.Int64), (pl.col('cost') * 100).round().cast(pl.Int64, "
        "strict=False).",
        _is_no_int64,
        "of anything but Int64",
    ),
    Rule(
        names("max min n_unique median"),
        "takes integers of at most 64 bits, booleans, texts, Enums, dates and times here",
        _LATER,
        _is_not_plain,
        "of other types",
    ),
)

# What a plan before `protect` may hold in addition to expressions.
PLANS = (
    MAY_REPEAT,
    FILTERED,
    REWRITTEN,
    NO_COLUMNS,
    UNRESOLVED,
    TWICE,
    Rule(
        frozenset({"Slice", "a scan with n_rows", "a scan with skip_rows_after_header", "a scan with skip_rows"})
        | {"a scan with skip_lines"},
        f"keeps rows by their place among the others, {PEOPLE}",
        "leave it out, or filter by what the row itself holds.",
    ),
    Rule(names("Distinct"), f"compares a row with the others, {PEOPLE}", BOUNDS),
    GROUPS,
    WINDOWS,
    JOINS,
    OTHER_GROUPS,
    ORDERED_WINDOWS,
    OTHER_JOINS,
    JOINS_OF_NULLS,
    VALIDATED,
    INEXACT_KEYS,
    NO_FUNCTION,
    *OF_PEOPLE,
    DIVIDED,
    Rule(
        names("HConcat MergeSorted ExtContext"),
        f"brings rows together, {PEOPLE}",
        "join a public frame after `protect`.",
    ),
    Rule(
        frozenset({"a concat"}),
        "may hold a row twice",
        "concat frames before lazy(), scan several files at once, or name the privacy unit.",
        condition="without a privacy unit",
    ),
    Rule(
        names("explode unpivot"),
        "makes several rows out of one",
        "name the privacy unit, whose rows `protect` bounds.",
        condition="without a privacy unit",
    ),
    SEVERAL_UNITS,
    Rule(
        frozenset({"row_index", "hint_sorted", "a scan with a row index", "a sort by a constant"}),
        f"depends on the order of the rows, {PEOPLE}",
        "leave it out: a private frame takes no notice of the order of rows.",
    ),
    Rule(
        frozenset({"PythonScan", "a step that Polars does not show"}),
        "can't be inspected, and may combine rows",
        "leave it out, or do it after `protect`, with native expressions.",
    ),
    Rule(frozenset(), "is not known to look at its own row alone", "leave it out: steps by row come after `protect`."),
)
