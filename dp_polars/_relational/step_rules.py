"""The table of rules for steps in Ibis: what is taken, what is refused, why, and what to write instead.

Names are those of `ibis.expr.operations`; what is in no list here is refused, also what a later Ibis will add.
"""

from __future__ import annotations

from functools import partial

from dp_polars._rowwise.names import names
from dp_polars._rowwise.rules import COMBINES, PEOPLE, RAISES, Rule

# --- What looks at one row ------------------------------------------------------------------------------------------

COMPARISONS = names(
    "Equals NotEquals Greater GreaterEqual Less LessEqual IdenticalTo Between InValues NullIf SimpleCase"
)
TRUE_OR_FALSE = COMPARISONS - names("NullIf SimpleCase") | names(
    "And EndsWith IsInf IsNan IsNull Not NotNull Or StartsWith StringContains StringSQLILike StringSQLLike Xor"
)
DIVISIONS = names("Divide FloorDivide Modulus")
# Without digits, Ibis casts what comes out to Int64.
ROUNDINGS = names("Ceil Floor Round")
# What they take without raising on any engine: the ends that `clip` must keep to.
DOMAINS: dict[str, tuple[float, float]] = {
    "Exp": (-700.0, 700.0),
    "Ln": (5e-324, float("inf")),
    "Log10": (5e-324, float("inf")),
    "Log2": (5e-324, float("inf")),
    "Sqrt": (0.0, float("inf")),
}
# What makes numbers of numbers, of which the engine's type may not hold the result.
OF_NUMBERS = names("Abs Add Divide FloorDivide Modulus Multiply Negate Power Subtract")
OF_TWO = names("Add BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Modulus Multiply Subtract")
OF_SEVERAL = names("Clip Coalesce Greatest IfElse Least SearchedCase SimpleCase")
# What looks at a decimal as it is.
OF_ANY_NUMBER = names("Alias Cast IsNull NotNull Literal TryCast StructColumn Hash")
OF_BITS = names("BitwiseAnd BitwiseOr BitwiseXor")
# Tried: integers turn around in DataFusion, and become floats in SQLite; floats become infinite, or 0.
INTEGERS_NEVER_RAISE = names("datafusion sqlite")
FLOATS_NEVER_RAISE = names("datafusion duckdb sqlite")
SUMS_NEVER_RAISE = names("datafusion duckdb postgres")
TESTED = names("datafusion duckdb postgres sqlite")
OF_A_ROW = (
    COMPARISONS
    | DIVISIONS
    | names(
        """
        Abs Add Alias And Array BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Capitalize Cast Clip Coalesce Date DateDelta
        DayOfWeekIndex DayOfWeekName EndsWith ExtractDay ExtractDayOfYear ExtractEpochSeconds ExtractHour
        ExtractIsoYear ExtractMicrosecond ExtractMillisecond ExtractMinute ExtractMonth ExtractQuarter ExtractSecond
        ExtractWeekOfYear ExtractYear Greatest Hash HexDigest IfElse IsInf IsNan IsNull LStrip Least Literal Lowercase
        Multiply Negate Not NotNull Or RStrip Reverse SearchedCase Sign StartsWith StringConcat StringContains
        StringFind StringLength Strip StructColumn StructField Subtract Time TimestampDelta TryCast
        Uppercase Xor
        """
    )
)
# Functions of one column: what else they are given must be a constant.
WITH_CONSTANTS = (
    names(
        """
        Bucket DateAdd DateSub DateTruncate LPad Power RPad RegexExtract RegexReplace RegexSearch Repeat StrRight
        Strftime StringReplace StringSQLILike StringSQLLike StringSlice Substring TimestampAdd
        TimestampSub TimestampTruncate Translate
        """
    )
    | ROUNDINGS
    | DOMAINS.keys()
)
PATTERNS = names("StringSQLILike StringSQLLike")
REGEXES = names("RegexExtract RegexReplace RegexSearch")
WITH_PLACES = names("LPad RPad Repeat StrRight StringSlice Substring")
TO_SEVERAL_ROWS = names("Unnest")

# --- What looks at the rows of one person ---------------------------------------------------------------------------

OF_ANY_ORDER = names("All Any Count CountDistinct CountStar Max Min Sum")
ENDS = names("First Last")
RANKS = names("CumeDist DenseRank MinRank PercentRank")
ALONG_ORDER = names("Lag Lead RowNumber") | ENDS
OF_PEOPLE = OF_ANY_ORDER | RANKS | ALONG_ORDER

TABLES = names("DatabaseTable InMemoryTable")
SAME_ROWS = names("AliasedRelation JoinReference SelfReference")
ONE_BY_ONE = names("DropColumns DropNull FillNull Filter Project Sort TableUnnest")
SETS = names("Difference Distinct Intersection Union")
JOINS = names("anti cross inner left semi")
# Types whose equal values are the same, as Ibis asks for them.
EXACT = names("binary boolean date integer string time timestamp uuid")
# Where operations that raise on other engines don't: Postgres has a cast for `try_cast`, and JSON for a struct, of
# which it can't cast null.
ON_SOME_ENGINES = {"StructField": names("duckdb"), "TryCast": names("duckdb")}
# What makes nanoseconds of timestamps in DataFusion, which raises before 1677 and after 2262.
IN_NANOSECONDS = names("ExtractEpochSeconds ExtractMicrosecond ExtractMillisecond ExtractMinute ExtractSecond")
IN_NANOSECONDS_WITH_A_ZONE = names("Date TimestampTruncate")
# Where functions raise on times beyond the years 1 to 9999, or `infinity`. Steps that move times do everywhere, and so
# may all others on engines that are not tested.
MOVES = names("DateAdd DateSub TimestampAdd TimestampSub")
OF_TIMES = {
    **dict.fromkeys(MOVES | names("Strftime"), names("datafusion duckdb postgres")),
    **dict.fromkeys(IN_NANOSECONDS, names("datafusion")),
    **dict.fromkeys(names("ExtractIsoYear ExtractWeekOfYear TimestampTruncate"), names("duckdb")),
    **dict.fromkeys(names("DateTruncate TimestampDelta"), names("duckdb postgres")),
    **dict.fromkeys(names("DateDelta DayOfWeekName"), names("postgres")),
    "ExtractEpochSeconds": names("datafusion duckdb"),
    "Time": names("datafusion duckdb"),
}
# Which do nothing with a time.
OF_ANY_TIME = names("Alias IsNull NotNull Literal StructColumn")
# What Ibis has functions of Python for in SQLite: they raise for texts that are no UTF-8, and more.
IN_PYTHON = names(
    "BitwiseNot BitwiseXor DateDelta LPad RPad RegexExtract RegexReplace RegexSearch Repeat Reverse Translate"
)
TIMES_AS_TEXT = names("duckdb postgres")
FILTERING_JOINS = names("anti semi")

# --- What is refused ------------------------------------------------------------------------------------------------

_UNIT = "after protect('person', …): "
_CONSTANT = f"use a public constant; or, {_UNIT}group by that column, too, or take over(group_by='person')."

REFUSED = (
    Rule(
        names("SQLQueryResult SQLStringView"),
        "is a text that we don't look into",
        "write its steps in Ibis; or make a view of it, and take con.table(…), if its rows are those of one person.",
    ),
    Rule(
        names("Limit"),
        f"keeps rows by their place among the others, {PEOPLE}",
        "leave it out: protect bounds how many rows of a person count; or filter by what the row itself holds.",
    ),
    Rule(
        names("RandomScalar RandomUUID Sample"),
        "draws at random, and a statement may do so several times for one row",
        "keep a part by a hash: table.filter(table.person.hash() % 10 == 0).",
    ),
    Rule(names("DateNow TimestampNow"), "differs whenever it is read", "use a constant: ibis.date('2026-01-31')."),
    Rule(names("RowID"), f"depends on the place of a row among the others, {PEOPLE}", "leave it out."),
    Rule(names("ScalarSubquery"), COMBINES, _CONSTANT),
    Rule(
        names("ExistsSubquery InSubquery"),
        f"looks a value up in other rows, {PEOPLE}",
        "give a list of constants: isin([1, 2]); or use semi_join, on the privacy unit or with an ibis.memtable.",
    ),
    Rule(
        names(
            """
            ApproxCountDistinct ApproxMedian ApproxMultiQuantile ApproxQuantile BitAnd BitOr BitXor Correlation
            CountDistinctStar Covariance Kurtosis Mean Median MultiQuantile Quantile StandardDev Variance
            """
        ),
        f"is rounded or estimated by the order of the rows, {PEOPLE}",
        "of one person's rows, use sums of integers and counts: x.sum() / x.count().nullif(0).",
    ),
    Rule(
        names("ArgMax ArgMin Arbitrary ArrayCollect GroupConcat Mode NTile NthValue"),
        f"follows the order of the rows, {PEOPLE}",
        "of one person's rows, take x.first(order_by=[…]), ordered by all columns that it reads.",
    ),
    Rule(
        names(
            "ArrayIndex DateFromYMD StringToDate StringToTime StringToTimestamp TimeFromHMS TimestampFromUNIX "
            "TimestampFromYMDHMS"
        ),
        RAISES,
        "make such a column in a view, where what does not fit is null.",
    ),
)
# Rules that the gate applies by what it finds, and not by the name of a step.
_rule = partial(Rule, frozenset())
UNKNOWN = _rule("is not known to look at its own row alone", "use what the page In a database lists.")
PYTHON = _rule("can't be inspected, and may combine rows", "write it with Ibis' expressions.")

_FOLLOWED = "and hand the unit on unchanged: a step may rename it, but not compute it."
NO_UNIT = _rule(
    COMBINES, "name the privacy unit in protect, and group by it, join on it or give it to over(group_by=…)."
)
GROUPS = _rule(
    COMBINES,
    f"group by all columns of the privacy unit, {_FOLLOWED} Groups of several people are asked about by the query: "
    "group_by({…}).",
)
WINDOWS = _rule(COMBINES, f"give over all columns of the privacy unit, over(group_by='person'), {_FOLLOWED}")
JOINED = _rule(
    f"brings rows together, {PEOPLE}",
    "join tables of people by equality of all columns of the privacy unit, each of one type on both sides, "
    f"{_FOLLOWED} An ibis.memtable on the right is taken as public.",
)
OTHER_JOINS = _rule(
    f"keeps rows of the right side, or picks one of several, {PEOPLE}",
    "join by how='inner', 'left', 'semi' or 'anti', or 'cross' with public rows.",
)
SET_OF_PEOPLE = _rule(
    f"compares a row with the others, {PEOPLE}",
    f"leave it out: protect bounds how many rows of a person count; or name the privacy unit, {_FOLLOWED}",
)
TWICE = _rule(
    "reads a table twice, with other columns as the privacy unit: a row would belong to several people",
    "take the same columns for the unit, unchanged, wherever the table is read.",
)
SEVERAL_UNITS = _rule(
    "makes rows of several people out of one, of which the privacy unit is computed: it goes with each of them",
    "compute the unit before, or take a column for it that stays as it is.",
)
PUBLIC_TWICE = _rule(
    f"takes one ibis.memtable for public and for private rows, {PEOPLE}", "join it by the privacy unit."
)
SEVERAL_ROWS = _rule(
    "makes several rows out of one, or may read a row twice",
    "name the privacy unit, whose rows protect bounds; to look values up, use substitute({…}) or cases(…).",
)
INEXACT = _rule(
    "takes integers, booleans, texts, dates, times, UUIDs and bytes here: equal values of other types may differ",
    "leave such columns out with select, or make integers of them: (t.x.clip(0, 10**4) * 100).round().",
)
NOT_INTEGERS = _rule(
    f"adds integers alone here: other sums are rounded by the order of the rows, {PEOPLE}",
    "(t.x.clip(0, 10**4) * 100).round().sum().",
)
NO_ORDER = _rule(
    f"follows the order of the rows, in which ties may come otherwise by other rows, {PEOPLE}",
    "order by columns that ties can't show through: of first and last in a group, those that it reads; in over, all "
    "columns of the table (select the few that you need first).",
)
SEVERAL_ORDERS = _rule(
    f"has several orders in one step, in which equal rows may come otherwise each time, {PEOPLE}",
    "take a step for each order.",
)
SLIDING = _rule(
    f"of booleans slides over rows, for which DataFusion {RAISES}",
    "take integers: t.b.ifelse(1, 0).max().over(…).",
)
NESTED = _rule("can't stand in another window or group", "make its column in the step before.")
PARAMETER = _rule(f"takes a parameter from the rows, and {RAISES}", "pass it as a constant.")
CASTS = _rule(RAISES, "make floats and decimals fit first: x.clip(0, 10**6).cast('int64'); on DuckDB, use try_cast.")
IN_SQLITE = _rule(
    f"is a function of Python in SQLite, and {RAISES}: a text that is no UTF-8, or no date",
    "make such a column in a view, or leave it out.",
)
STRUCTS = _rule(
    "of a struct (which pivot_longer makes) raises on null on this engine, and the error would tell of it",
    "take the columns one by one, and union what comes out.",
)
_NEAR = "t.at.between(ibis.timestamp('1900-01-01'), ibis.timestamp('2100-01-01'))"
TIMES = _rule(
    f"{RAISES}: times far away, such as infinity", f"make those null before: ibis.ifelse({_NEAR}, t.at, None)."
)
OVERFLOWS = _rule(
    f"{RAISES}: a number that its type does not hold",
    "keep it small before, by clip (and on Postgres floats from being tiny, by round): "
    "t.x.clip(0, 10**4).round(2) * 100; or make integers wider before: t.n.cast('int64') + 1; of booleans in SQLite, "
    "t.b.ifelse(1, 0).sum().",
)
CONSTANTS = _rule(
    f"is given a constant that {RAISES} on some engine",
    "plain patterns such as '[a-z]+[0-9]{2}', formats such as '%Y-%m-%d', lengths from 0 to 2**30, texts as long as "
    "those that they replace, decimals with their type: ibis.literal(x, 'decimal(38, 9)').",
)
LONG = _rule(f"{RAISES}: texts become too long", "shorten the text before: x.substr(0, 100).repeat(1000).")
ZEROS = _rule(RAISES, "divide by a constant, or by x.nullif(0).")
OUTSIDE = _rule(RAISES, "keep to what it takes by clip: x.clip(1, 100).ln(), x.clip(0, 100).round().")
POWERS = _rule(RAISES, "give a whole exponent of 0 or more; or multiply, as integers in DataFusion.")
ESCAPES = _rule(RAISES, "end the pattern in no backslash: x.endswith('\\\\') looks for one.")
MIXED = _rule(
    f"brings values of several types together, such as texts and what is none, and {RAISES}",
    "compare texts with texts: t.code == '5', or cast the other side to 'string'; write dates as '2024-01-31'.",
)

# How users write what is not written as it is called.
SHOWN = {
    "Add": "`+`",
    "Aggregate": "`.group_by(…).aggregate(…)`",
    "CountStar": "`.count()`",
    "DateNow": "`ibis.today()`",
    "DenseRank": "`ibis.dense_rank()`",
    "Divide": "`/`",
    "ExistsSubquery": "`.any()` of another table",
    "FloorDivide": "`//`",
    "InSubquery": "`.isin(…)` of another table",
    "JoinChain": "`.join(…)`",
    "Limit": "`.limit(…)` (or head)",
    "MinRank": "`ibis.rank()`",
    "Modulus": "`%`",
    "Multiply": "`*`",
    "Negate": "`-`",
    "Power": "`**`",
    "Project": "`select` or `mutate`",
    "RandomScalar": "`ibis.random()`",
    "RandomUUID": "`ibis.uuid()`",
    "RowNumber": "`ibis.row_number()`",
    "SQLQueryResult": "`con.sql(…)`",
    "SQLStringView": "`.sql(…)`",
    "ScalarSubquery": "a reduction inside an expression",
    "StructField": "a field",
    "StringSQLILike": "`.ilike(…)`",
    "StringSQLLike": "`.like(…)`",
    "StandardDev": "`.std()`",
    "StringToDate": "`.as_date(…)`",
    "StringToTimestamp": "`.as_timestamp(…)`",
    "Subtract": "`-`",
    "TableUnnest": "`.unnest(…)`",
    "TimestampNow": "`ibis.now()`",
    "Variance": "`.var()`",
}
