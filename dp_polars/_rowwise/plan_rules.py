"""The table of rules for plans before `protect`, where a step is looked at but can't be rewritten."""

from __future__ import annotations

from dp_polars._rowwise import conditions as when
from dp_polars._rowwise.lenient import SWITCHES
from dp_polars._rowwise.names import DIVISIONS, OPERATORS, names
from dp_polars._rowwise.rules import BOUNDS, CLOCKS, COMBINES, LAST_BIT, PEOPLE, RAISES, Rule

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

# What a plan before `protect` may hold in addition to expressions.
PLANS = (
    MAY_REPEAT,
    FILTERED,
    REWRITTEN,
    NO_COLUMNS,
    UNRESOLVED,
    Rule(
        frozenset({"Slice", "a scan with n_rows", "a scan with skip_rows_after_header", "a scan with skip_rows"})
        | {"a scan with skip_lines"},
        f"keeps rows by their place among the others, {PEOPLE}",
        "leave it out, or filter by what the row itself holds.",
    ),
    Rule(names("Distinct"), f"compares a row with the others, {PEOPLE}", BOUNDS),
    Rule(names("GroupBy"), COMBINES, "ask about groups after `protect`: group_by({…}).agg(…)."),
    Rule(
        names("Join HConcat MergeSorted ExtContext"),
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
