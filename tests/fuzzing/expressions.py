"""Expressions of all kinds, as text, over columns of every type, and rows to try them on.

Any method of `pl.Expr` and of its namespaces may come, also those that a later Polars will add. Nothing here knows
which of them look at other rows: the gate must.
"""

from __future__ import annotations

import builtins
import datetime as dt
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from random import Random
from typing import Any, TypeAlias

import hypothesis.strategies as st
import polars as pl

from tests.registry import COLUMNS

# Types that no candidates can be of, but columns beside.
NESTED = {
    "List": (pl.List(pl.Int64), [[1, 2, 3], [], [None], [2**63 - 1, 1]]),
    "List of floats": (pl.List(pl.Float64), [[0.1, 0.2, 0.3], [-0.0, math.nan], [], [1e16, 1.0, -1e16]]),
    "List of texts": (pl.List(pl.String), [["a", "b"], [], [None, "secret"]]),
    "List of booleans": (pl.List(pl.Boolean), [[True, False], [], [None]]),
    "Array": (pl.Array(pl.Int64, 2), [[1, 2], [3, None]]),
    "Array of floats": (pl.Array(pl.Float64, 2), [[0.1, -0.0], [math.nan, None]]),
    "Struct": (pl.Struct({"x": pl.Int64, "y": pl.String}), [{"x": 1, "y": "a"}, {"x": None, "y": "secret"}]),
    "Binary": (pl.Binary(), [b"", b"ff", b"zz=", b"\xff\xfe", b"12345678"]),
}
KINDS = {name: (column.dtype, column.values) for name, column in COLUMNS.items()} | NESTED
_TEXTS = ["12", "2020-01-31", "2021-03-28 02:30", "(", "a,b", '{"x": 1}', "ff", "é🎉ß"]


@dataclass(frozen=True)
class Case:
    """An expression on columns c0, c1, …: their kinds, rows, and how the expression is written."""

    kinds: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    text: str

    @property
    def schema(self) -> pl.Schema:
        return pl.Schema({f"c{i}": KINDS[kind][0] for i, kind in enumerate(self.kinds)})

    def frame(self, *places: int) -> pl.DataFrame:
        """Some of the rows, built anew: a slice of others would still hold their elements and nulls."""
        rows = [self.rows[place] for place in places]
        columns = [
            pl.Series(name, [row[i] for row in rows], dtype=dtype, strict=False)
            for i, (name, dtype) in enumerate(self.schema.items())
        ]
        return pl.DataFrame(columns)

    def build(self) -> pl.Expr | None:
        """The expression, None where Polars takes no such arguments."""
        made = evaluated(self.text)
        return made if isinstance(made, pl.Expr) else None


@dataclass
class Tally:
    """How many expressions could be built, and which of them were taken."""

    built: int = 0
    accepted: set[str] = field(default_factory=set)


def attempt(case: Any, prove: Callable[[pl.Expr], Any], holds: Callable[[Any], None], tally: Tally | None) -> None:
    """See that what is proved of a case, if it is taken at all, holds on its rows and doesn't raise."""
    expr, tally = case.build(), tally or Tally()
    if expr is None:
        return
    tally.built += 1
    try:
        proved = prove(expr)
    except (ValueError, TypeError, pl.exceptions.PolarsError):
        return
    if proved is None:
        return
    tally.accepted.add(str(expr))
    try:
        holds(proved)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        msg = f"the rows make it raise: {error}"
        raise AssertionError(msg) from None


# --- Rows -----------------------------------------------------------------------------------------------------------


def _more(dtype: pl.DataType) -> st.SearchStrategy[Any]:
    """More values of a type, where there are simple ones."""
    if dtype in (pl.Float32, pl.Float64):
        return st.floats(width=32 if dtype == pl.Float32 else 64)
    if dtype in (pl.Int64, pl.Int32, pl.Int16, pl.Int8, pl.UInt64, pl.UInt32, pl.UInt16, pl.UInt8):
        limits = pl.select(low=dtype.min(), high=dtype.max()).row(0)
        return st.integers(*limits)
    if dtype == pl.String:
        return st.one_of(st.sampled_from(_TEXTS), st.text(max_size=5))
    if dtype == pl.Date:
        return st.dates()
    if dtype == pl.List(pl.Float64):
        return st.lists(st.floats(), max_size=5)
    return st.nothing()


def _values(kind: str) -> st.SearchStrategy[Any]:
    dtype, values = KINDS[kind]
    return st.one_of(st.sampled_from([None, *values]), _more(dtype))


# --- Expressions -----------------------------------------------------------------------------------------------------

_CONSTANTS = ["0", "1", "-1", "3", "49", "0.1", "2.5", '"a"', '""', '"12"', "True", "None", "[1, 3]", '["a", "b"]']
_CONSTANTS += ["dt.date(2020, 2, 29)", "dt.datetime(2021, 3, 28, 2, 30)", "dt.timedelta(hours=1)", "dt.time(2, 30)"]
_TYPES = ["Int8", "Int64", "UInt64", "Float32", "Float64", "String", "Boolean", "Date", "Time", "Categorical", "Binary"]
_TYPES = [f"pl.{name}" for name in _TYPES] + ['pl.Datetime("us")', 'pl.Duration("ms")', "pl.Decimal(12, 2)"]
_TYPES += ['pl.Datetime("us", "Europe/Amsterdam")', "pl.List(pl.Int64)", 'pl.Enum(["a", "b"])']
_ZONES = ['"UTC"', '"Europe/Amsterdam"', "None"]
_BOOLEANS = ["True", "False"]
# What is done to each list by itself.
_OF_ELEMENTS = ["{0} * 2", "1 / {0}", "{0}.is_null()", "{0}.sum()", "{0}.rank()", "{0} - {0}.mean()", "{0}.sort()"]
_OF_ELEMENTS += ["{0}.filter({0}.is_not_null())", "{0}.cum_sum()", "{0}.shift()", "{0}.cast(pl.String)", "{0} > c0"]
_OF_ELEMENTS += ["{0}.hash()", "{0}.to_physical()", "{0}.unique()", "{0}.first()", "{0}.fill_null(0)", "{0}.len()"]
_BODIES = [body.format("pl.element()") for body in _OF_ELEMENTS]
# What a parameter of this name takes. Others take constants, or expressions.
_ARGUMENTS = {
    "ambiguous": ['"earliest"', '"null"', '"raise"'],
    "base": ["10", "16", "2.0"],
    "breaks": ["[0]", "[0.0, 2.0]"],
    "by": ['"1d"', "2", "c0"],
    "closed": ['"left"', '"both"'],
    "dtype": _TYPES,
    "encoding": ['"hex"', '"base64"'],
    "every": ['"1d"', '"1mo"', '"1h"'],
    "expr": _BODIES,
    "fields": ['["x"]', '["u", "v"]'],
    "format": ['"%Y-%m-%d"', '"%Y-%m-%d %H:%M"', '"%H:%M"'],
    "function": ["lambda v: v"],
    "half_life": ['"1d"'],
    "index": ["0", "1", "-1"],
    "labels": ['["a", "b"]', '["a", "b", "c"]'],
    "length": ["0", "2", "9", "-1"],  # a long one takes as much memory
    "method": ['"round"', '"average"', '"dense"'],
    "n": ["1", "2", "-1"],
    "name": ['"x"', '"c0"'],
    "new": ["[5]", "7", '"z"'],
    "non_existent": ['"null"', '"raise"'],
    "offset": ['"1d"', '"-1mo"', "1"],
    "other": ["[1, 3]", "pl.Series([1, 3])", 'pl.Series(["a", None])', "pl.Series([0.0])", "c0"],
    "old": ["[1]", "0", '["a"]'],
    "partition_by": ["c0", '"c0"'],
    "predicate": ["pl.element() > 1", "pl.element().is_not_null()"],
    "pattern": ['"a"', '"[ab]"', '"([0-9])"'],
    "return_dtype": _TYPES,
    "roll": ['"forward"', '"backward"'],
    "separator": ['","', '"-"'],
    "strategy": ['"forward"', '"mean"', '"zero"'],
    "time_unit": ['"ms"', '"us"', '"ns"'],
    "time_zone": _ZONES,
    "window_size": ["2", '"2d"'],
}
_OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^"]
_TOP = ["pl.when({0}).then({1}).otherwise({2})", "pl.when({0}.is_null()).then({1}).otherwise({2})"]
_TOP += ["pl.coalesce({0}, {1})", "pl.struct({0}.alias('x'), {1}.alias('y'))"]
_TOP += ["pl.struct({0}.alias('x'), {1}.alias('y')).struct.field('x')", "pl.concat_list({0}, {1})"]
_TOP += ["pl.concat_str({0}, {1})", "pl.format('{{}}-{{}}', {0}, {1})", "pl.sum_horizontal({0}, {1})"]
_TOP += ["pl.mean_horizontal({0}, {1})", "pl.min_horizontal({0}, {1})", "pl.max_horizontal({0}, {1}, {2})"]
_TOP += ["pl.any_horizontal({0}, {1})", "pl.all_horizontal({0}, {1})", "pl.arctan2({0}, {1})", "pl.date({0}, {1}, 1)"]
_TOP += ["pl.datetime({0}, 1, {1}, time_zone='Europe/Amsterdam')", "pl.time({0}, {1})"]
_TOP += ["pl.duration(days={0}, hours={1})", "pl.from_epoch({0}, 'd')", "pl.business_day_count({0}, {1})"]
_TOP += ["pl.corr({0}, {1})", "pl.lit(3)", "pl.len()", "pl.int_range(pl.len())", "pl.row_index()"]
_TOP += ["pl.lit(pl.Series([1, 2]))"]
# Functions of constants, and where they stand twice beside a column.
_TWINS = ["pl.lit(3).abs()", "pl.lit('a').str.to_uppercase()", "pl.lit(3).cast(pl.Int8)", "pl.date(2020, 2, 29)"]
_TWINS += ["pl.lit(0.5).round(1)", "pl.datetime(2021, 3, 28, 2)", "pl.lit(1).is_null()", "pl.duration(days=1)"]
_OF_TWINS = ["(({0} + {1}) - {1})", "pl.coalesce({0}, {1}, {1})", "pl.when({0} == {1}).then({1}).otherwise({0})"]
_OF_TWINS += ["(({0} < {1}) | ({0} > {1}))", "pl.struct({0}, x={1}, y={1})", "pl.concat_str({0}, {1}, {1})"]
# Not steps: what prints, pickles or renames, and `dp`, which is ours.
_LEFT_OUT = {"deserialize", "from_json", "inspect", "pipe", "register_plugin", "show"}
# Steps of one column that need no luck with their arguments.
_LIKELY = ["abs()", "cast(pl.Int64)", "cast(pl.Float64)", "cast(pl.String)", "cast(pl.Float32)", "fill_null(0)"]
_LIKELY += ["is_null()", "is_in([1,3])", "hash()", "round(1)", "clip(-5,5)", "is_not_null()", "replace(1,2)"]
_LIKELY += ["to_physical()", "cut([0.0,2.0])", 'cut([0.0],labels=["a","b"])', "sqrt()", "fill_nan(0)", "log1p()"]
_LIKELY += ["mean()", "rank()", "shift()", "cum_sum()", "is_close(0.1)", "floor()", "sign()", "cast(pl.Int8)"]
_LIKELY += ["cast(pl.Date)", "cast(pl.Categorical)", 'cast(pl.Datetime("us"))', 'alias("out")', 'name.suffix("_")']
_LIKELY += ['fill_null("a")', "is_between(0,9)"]


@cache
def _methods(space: str) -> list[tuple[str, list[inspect.Parameter]]]:
    """Every method of expressions, or of one of their namespaces, with its parameters."""
    found = []
    owner = type(getattr(pl.col("c0"), space)) if space else pl.Expr
    for name in sorted(set(dir(owner)) - _LEFT_OUT):
        method = inspect.getattr_static(owner, name)
        if not name.startswith("_") and inspect.isfunction(method):
            parameters = list(inspect.signature(method).parameters.values())[1:]
            found.append((f"{space}.{name}" if space else name, parameters))
    return found


def _namespace(dtype: pl.DataType) -> str:
    spaces = {pl.Array: "arr", pl.Binary: "bin", pl.Categorical: "cat", pl.Enum: "cat", pl.List: "list"}
    spaces |= {pl.String: "str", pl.Struct: "struct"}
    return "dt" if dtype.is_temporal() else spaces.get(dtype.base_type(), "")


class _Names(dict[str, Any]):
    """Names of frames; every other one that Python has not is a column."""

    def __missing__(self, name: str) -> pl.Expr:
        if hasattr(builtins, name) and name != "len":
            raise KeyError(name)
        return pl.col(name)


def evaluated(text: str, **names: Any) -> Any:
    """What a text stands for, None where Polars takes no such arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(text, {}, _Names(pl=pl, dt=dt, **names))
        except (Exception, pl.exceptions.PanicException):  # whatever: of the arguments alone
            return None


Columns: TypeAlias = tuple[tuple[str, pl.DataType], ...]


@lru_cache(maxsize=10_000)
def type_of(columns: Columns, text: str) -> pl.DataType | None:
    """The type of an expression, None where Polars does not take it."""
    expr = evaluated(text)
    if not isinstance(expr, pl.Expr):
        return None
    try:
        types = pl.LazyFrame(schema=dict(columns)).select(expr).collect_schema().dtypes()
    except (Exception, pl.exceptions.PanicException):  # whatever: of types alone
        return None
    return types[0] if len(types) == 1 else None


def text_of(random: Random, columns: Columns, steps: int, depth: int = 3, *, likely: bool = False) -> str:
    """An expression as it is written: a column, and about so many steps that fit its type, or only `likely` ones."""
    text, dtype = random.choice(columns)
    for _ in range(steps):
        longer = _with_step(random, columns, text, dtype, depth, likely=likely)
        found = type_of(columns, longer)
        if found is not None:
            text, dtype = longer, found
    return text


def _with_step(random: Random, columns: Columns, text: str, dtype: pl.DataType, depth: int, *, likely: bool) -> str:
    """An expression with one more step."""

    def another() -> str:
        return text_of(random, columns, random.randrange(depth), depth - 1, likely=likely)

    match random.randrange(6 if likely else 10):
        case 0 | 1 | 2:
            other = another() if random.random() < 0.5 else f"pl.lit({random.choice(_CONSTANTS)})"
            sides = (other, text) if random.random() < 0.3 else (text, other)
            return f"({sides[0]} {random.choice(_OPERATORS)} {sides[1]})"
        case 3 if random.random() < 0.3:  # a function of constants stands twice
            twin = random.choice(_TWINS)
            return random.choice(_OF_TWINS).format(text, twin)
        case 3:
            parts = [text, another(), another()]
            random.shuffle(parts)
            return random.choice(_TOP).format(*parts)
        case 4 | 5:
            steps = [step for step in _LIKELY if not likely or step != "log1p()"]  # Polars 1 crashes on it
            return random.choice([f"{{}}.{step}" for step in steps] + ["(-{})", "(~{})"]).format(text)
        case number:
            name, parameters = random.choice(_methods("" if number == 6 else _namespace(dtype)))
            return f"{text}.{name}({', '.join(_arguments(random, parameters, another))})"


def _arguments(random: Random, parameters: list[inspect.Parameter], another: Callable[[], str]) -> list[str]:
    given = []
    for parameter in parameters:
        kind, needed = parameter.kind, parameter.default is parameter.empty
        if kind is parameter.VAR_KEYWORD or (not needed and random.random() < 0.75):
            continue
        if isinstance(parameter.default, bool):
            pool = _BOOLEANS
        else:
            pool = _ARGUMENTS.get(parameter.name.rstrip("s"), _ARGUMENTS.get(parameter.name, _CONSTANTS))
        value = another() if pool is _CONSTANTS and random.random() < 0.25 else random.choice(pool)
        named = kind is parameter.KEYWORD_ONLY or (given and not needed)
        given.append(f"{parameter.name}={value}" if named and kind is not parameter.VAR_POSITIONAL else value)
    return given


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """An expression over one to three columns of any types, and two to six rows.

    It is made from all that is drawn, as a seed: drawn choice by choice, or from one number, most expressions would be
    those of other cases. With fewer steps it is the beginning of the same expression.
    """
    kinds = tuple(draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3)))
    rows = draw(st.lists(st.tuples(*map(_values, kinds)), min_size=2, max_size=6))
    number, steps = draw(st.integers(0, 2**64 - 1)), draw(st.integers(1, 6))
    columns = tuple(Case(kinds, (), "").schema.items())
    return Case(kinds, tuple(rows), text_of(Random(repr((kinds, rows, number))), columns, steps))
