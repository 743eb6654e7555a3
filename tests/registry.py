"""What the suites take their parameters from: every way to ask, every type of column, key and person.

A new query gets an entry in `ASKS`, `STATISTICS`, `LAWS` and `TRUE_ANSWERS`, a number in `NUMBERS` and `STATISTICS`, a
method of private frames in `OF_FRAMES`, a type of Polars in `COLUMNS`; the suites then run with it.
"""

from __future__ import annotations

import datetime as dt
import inspect
import math
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

import dp_polars as dpp
from dp_polars._bins.candidates import Grid
from dp_polars._expressions.namespace import PrivateNamespace
from tests.helpers.reference import bounded_range_rho, own_scores

UTC = dt.UTC
G, X, S, V = pl.col("g"), pl.col("x"), pl.col("s"), pl.col("v")
ENGINES = ["in-memory", "streaming"]
MECHANISMS = ["permute_and_flip", "exponential"]
NOISE = ["discrete_laplace", "discrete_gaussian"]
RELATIONS = ["add_or_remove_one", "replace_one"]


def under(relation: Any, query: Any) -> Any:
    """Return the statistic of a plain expression under a relation: on a private frame, `protect` has it."""
    return query.under(query.claim.contributions, relation)


# --- Ways to ask ----------------------------------------------------------------------------------------------------

MISSING: Any = inspect.Parameter.empty  # of a parameter that must be given
LOSS = {"epsilon": None, "rho": None}
LOSS_WEIGHT = {"loss_weight": None}
_ROWS = {"contributions": 1}


@dataclass(frozen=True)
class Ask:
    """One method of `expr.dp`.

    Parameters
    ----------
    positional, keywords
        The exact parameters: name -> default.
    arguments, options
        What is given for the positional ones, about a column of integers, and what must be given beside the loss.
    example
        More keywords, a loss among them, that are no defaults.
    about
        A column of `COLUMNS` -> the parameters of statistics about it but for the loss, each a dict by name. None: it
        can't be asked. `WEIGHT` names a column of whole weights.
    counts
        Whether it counts rows: private frames and engines can be asked it.
    mechanisms
        The words that it knows; none where it takes epsilon alone.
    """

    positional: dict[str, Any]
    keywords: dict[str, Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    example: dict[str, Any]
    about: Callable[[Column], list[dict[str, Any]]]
    counts: bool = True
    mechanisms: tuple[str, ...] = ("permute_and_flip", "exponential")


# A column of whole weights, beside the one that is asked about.
WEIGHT = "w"


def _of_categories(column: Column, *options: dict[str, Any]) -> list[dict[str, Any]]:
    if column.categories is None:
        return []
    candidates = pl.Series(column.categories, dtype=column.dtype)
    return [{"candidates": candidates, **more} for more in ({}, *options)]


def _of_points(column: Column, *options: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"candidates": given, **more} for given, _ in column.points for more in (options or ({},))]


def _of_numbers(column: Column) -> list[dict[str, Any]]:
    if column.dtype.is_float():
        return [{"lower": -1, "upper": 2, "step": 0.25}, {"lower": 0.5, "upper": 3, "step": Fraction(1, 2)}]
    if column.dtype.is_integer() or column.dtype.is_decimal():
        low = -3 if min(column.values) < 0 else 0
        return [{"lower": low, "upper": 5}, {"lower": 1, "upper": 4}, {"lower": low, "upper": 6, "step": 3}]
    return []


def _of_totals(column: Column) -> list[dict[str, Any]]:
    """Of sums: of rows, and of people's totals, which need a privacy unit."""
    rows, ends = _of_numbers(column), ((-3, 6), (0, 3), (3, 9), (-6, -3))
    return rows + [{**one, "per_person": end} for one in rows for end in ends]


_OF_ROWS = {"within": None, **LOSS, **LOSS_WEIGHT, **_ROWS, "mechanism": None}
_OF_SCORES = {
    "sensitivity": MISSING, "monotonic": False, "gap": False, "gap_step": None, **LOSS, "mechanism": None
}  # fmt: skip
ASKS = {
    "mode": Ask(
        {"candidates": None},
        {**_OF_ROWS, "counts": "people", "too_few": None, "gap": False},
        ([1, 2],),
        {},
        {"epsilon": 1, "gap": True},
        lambda column: (
            _of_categories(
                column,
                {"counts": "rows"},
                {"too_few": 2},
                {"gap": True},
                {"mechanism": "exponential"},
                {"counts": dpp.weights(WEIGHT, max_weight=3)},
                {"counts": dpp.weights(WEIGHT, max_weight=4, step=2, of="rows")},
            )
            + [{}] * isinstance(column.dtype, (pl.Boolean, pl.Enum))
        ),
    ),
    "top_k": Ask(
        {"k": MISSING, "candidates": None},
        {**_OF_ROWS, "counts": "people"},
        (2, [1, 2]),
        {},
        {"epsilon": 1, "mechanism": "joint"},
        lambda column: [
            {"k": 2, **more}
            for more in _of_categories(
                column,
                {"counts": "rows"},
                {"mechanism": "joint"},
                {"mechanism": "exponential"},
                {"counts": dpp.weights(WEIGHT, max_weight=3)},
            )
        ],
        mechanisms=("permute_and_flip", "exponential", "joint"),
    ),
    "first_above": Ask(
        {"candidates": MISSING},
        {"threshold": MISSING, **LOSS, **LOSS_WEIGHT, "counts": "people", "gap": False, **_ROWS},
        ([1, 2],),
        {"threshold": 3},
        {"threshold": 2.5, "epsilon": 1, "gap": True},
        lambda column: [
            {"threshold": 2, **one}
            for one in [
                *_of_categories(column, {"counts": "rows"}, {"gap": True}, {"threshold": 0.5}),
                *(one for one in _of_points(column) if isinstance(one["candidates"], Grid)),
            ]
        ],
        mechanisms=(),
    ),
    "median": Ask(
        {"candidates": None},
        {**_OF_ROWS, "confidence": None},
        ([1, 2],),
        {},
        {"rho": 1, "contributions": 2},
        lambda column: _of_points(column, {}, {"confidence": 0.95}),
    ),
    "quantile": Ask(
        {"quantile": MISSING, "candidates": None},
        {**_OF_ROWS, "confidence": None},
        (0.9, [1, 2]),
        {},
        {"epsilon": 1, "contributions": 2},
        lambda column: _of_points(
            column, {"quantile": 0.9}, {"quantile": [0.25, 0.5, 0.9]}, {"quantile": 0.9, "confidence": Fraction(2, 3)}
        ),
    ),
    "argmax": Ask(
        {},
        _OF_SCORES,
        (),
        {"sensitivity": 1},
        {"epsilon": 1, "sensitivity": 3, "monotonic": True},
        lambda column: [{"sensitivity": 1}, {"sensitivity": 2, "gap": True, "gap_step": 1}] * bool(_of_numbers(column)),
        False,
    ),
    "argmin": Ask(
        {},
        _OF_SCORES,
        (),
        {"sensitivity": 1},
        {"epsilon": 1, "sensitivity": 3, "mechanism": "exponential", "gap": True, "gap_step": 2},
        lambda column: [{"sensitivity": 1}, {"sensitivity": pl.col(WEIGHT)}] * bool(_of_numbers(column)),
        False,
    ),
}
# Numbers with noise, which have laws and true answers of their own (tests/statistics, tests/privacy).
NUMBERS = {
    "count": Ask({}, _OF_ROWS, (), {}, {"epsilon": 1}, lambda _: [{}]),
    "null_count": Ask({}, _OF_ROWS, (), {}, {"epsilon": 1}, lambda _: [{}]),
    "sum": Ask(
        {"lower": None, "upper": None},
        {**_OF_ROWS, "step": None, "per_person": None},
        (0, 9),
        {},
        {"epsilon": 1, "step": 3},
        _of_totals,
    ),
    "mean": Ask(
        {"lower": None, "upper": None},
        {**_OF_ROWS, "step": None, "rows": None},
        (0, 9),
        {},
        {"rho": 1, "contributions": 2},
        _of_numbers,
    ),
    "var": Ask(
        {"lower": None, "upper": None},
        {"ddof": 1, **_OF_ROWS, "step": None, "rows": None},
        (0, 9),
        {},
        {"rho": 1, "contributions": 2},
        _of_numbers,
    ),
    "std": Ask(
        {"lower": None, "upper": None},
        {"ddof": 1, **_OF_ROWS, "step": None, "rows": None},
        (0, 9),
        {},
        {"epsilon": 1, "mechanism": "discrete_laplace"},
        _of_numbers,
    ),
    "value_counts": Ask({"candidates": MISSING}, _OF_ROWS, ([1, 2],), {}, {"rho": 1}, _of_categories),
}
# Numbers that read no column: functions of the package.
OF_NO_COLUMN = ("len", "n_people")
# Numbers that are asked of a condition: functions of the package.
OF_CONDITIONS = ("share",)
# Statistics of private frames that are no outputs of `agg`: (frame, public keys, a key column, a loss) -> each of them.
OF_FRAMES: dict[str, Callable[[Any, Any, str, dict[str, Any]], list[dpp.PrivateQuery]]] = {
    "keys": lambda frame, _, column, loss: [
        frame.keys(*columns, delta=1e-3, **loss, **more)
        for columns in ((column,), (column, WEIGHT))
        for more in ([{}, {"with_counts": True}] if "rho" in loss else [{}])
    ],
    "cube": lambda frame, keys, _, loss: [
        frame.cube(
            {**listed, **more},
            counts="people" if frame.protection.max_groups == 1 else "rows",
            tables=tables,
            **loss,
        )
        for listed in [keys.to_dict() if isinstance(keys, pl.DataFrame) else keys]
        for more, tables in (
            ({}, None),
            ({WEIGHT: [1, 2, 5]}, None),
            ({WEIGHT: [1, 2, 5]}, [tuple(listed), (WEIGHT,)]),
            ({WEIGHT: [0, 2]}, [(*listed, WEIGHT), ()]),
        )
        if tables is None or "rho" in loss  # their noise is Gaussian
    ],
    "n_rows_dropped": lambda frame, keys, _, loss: [
        (frame if keys is None else frame.group_by(keys)).agg(asked).n_rows_dropped(most, **loss)
        for asked, most in zip(_CUT, (1, 2, 3, 9), strict=True)
    ],
}
# Outputs that cut people of whom a row, a group, a candidate or a part of a weight is too many.
_CUT = [
    [dpp.len(epsilon=1)],
    [dpp.n_people(epsilon=1), dpp.sum(WEIGHT, 0, 3, epsilon=1)],
    [dpp.mode(WEIGHT, [1, 2, 5], counts=dpp.weights(WEIGHT, max_weight=4), epsilon=1), dpp.count("x", epsilon=1)],
    [dpp.value_counts(WEIGHT, [1, 2, 5], epsilon=1), dpp.median(WEIGHT, [0, 3], epsilon=1).alias("median")],
]
COUNTED = [name for name, ask in ASKS.items() if ask.counts]


@dataclass(frozen=True)
class Statistic:
    """A statistic about few integers: all that one person can do to its answer is enumerated (tests/privacy).

    Parameters
    ----------
    way, arguments, options, column
        What is asked: a function of the package; it is asked of the column, unless it reads none.
    """

    way: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    column: pl.Expr = field(default_factory=lambda: X)  # in Polars 1 an expression has no hash

    @property
    def is_number(self) -> bool:
        return self.way not in ASKS

    @property
    def mechanisms(self) -> Sequence[str | None]:
        """The words that it is asked by; None: it has but one mechanism."""
        return NOISE if self.is_number else ASKS[self.way].mechanisms or [None]

    @property
    def is_pure(self) -> bool:
        return self.way == "first_above" or "gap" in self.options

    @property
    def of_people(self) -> bool:
        """Whether people count in private frames: once for each candidate, or group, whatever their rows are."""
        if self.is_number:
            return self.way == "n_people" or "per_person" in self.options
        counts = self.options.get("counts", "people")
        return "counts" in ASKS[self.way].keywords and getattr(counts, "of_people", counts == "people")

    def ask(self, mechanism: str | None = None, **more: Any) -> dpp.PrivateExpr:
        about = () if self.way in OF_NO_COLUMN else (self.column,)
        by = {} if mechanism is None else {"mechanism": mechanism}
        return getattr(dpp, self.way)(*about, *self.arguments, **self.options, **by, **more)


_WEIGHED = {of: dpp.weights(pl.col(WEIGHT), max_weight=3, step=Fraction(3, 2), of=of) for of in ("people", "rows")}
STATISTICS = {
    "median": Statistic("median", ([1, 2],)),
    "quantile": Statistic("quantile", (0.9, [1, 2])),
    # At 3/5 a replaced row loses more where it stays in its group, at 9/10 where it does not.
    "three fifths": Statistic("quantile", (0.6, [1, 2])),
    "quarter": Statistic("quantile", (0.25, [1, 2])),
    "mode": Statistic("mode", ([1, 2],)),
    "mode of rows": Statistic("mode", ([1, 2],), {"counts": "rows"}),
    "too few": Statistic("mode", ([1, 2],), {"too_few": 2}),
    "weights": Statistic("mode", ([1, 2],), {"counts": _WEIGHED["people"]}),
    "weights of rows": Statistic("mode", ([1, 2],), {"counts": _WEIGHED["rows"]}),
    "gap": Statistic("mode", ([1, 2],), {"gap": True}),
    "gap, too few": Statistic("mode", ([1, 2],), {"gap": True, "too_few": 2}),
    "first above": Statistic("first_above", ([1, 2, 3],), {"threshold": 1}),
    "first above with its gap": Statistic("first_above", ([1, 2],), {"threshold": 0.5, "gap": True}),
    "first above of rows": Statistic("first_above", ([1, 2],), {"threshold": 2, "counts": "rows", "gap": True}),
    "top 1": Statistic("top_k", (1, [1, 2, 3])),
    "top 2": Statistic("top_k", (2, [1, 2, 3])),
    "top 2 of rows": Statistic("top_k", (2, [1, 2, 3]), {"counts": "rows"}),
    "top 3": Statistic("top_k", (3, [1, 2, 3])),
    "len": Statistic("len"),
    "n_people": Statistic("n_people"),
    "count": Statistic("count"),
    "null_count": Statistic("null_count", column=pl.when(X < 0).then(None).otherwise(X)),
    "sum": Statistic("sum", (-4, 3)),
    "sum from 0": Statistic("sum", (0, 3)),
    "sum above 0": Statistic("sum", (1, 3)),
    "sum below 0": Statistic("sum", (-4, -2)),
    "sum in halves": Statistic("sum", (-4, 3), {"step": Fraction(1, 2)}),
    "sum of a person": Statistic("sum", (-4, 9), {"per_person": (-4, 3)}),
    "sum of a person from 0": Statistic("sum", (-4, 9), {"per_person": (0, 3)}),
    "sum of a person above 0": Statistic("sum", (-4, 9), {"per_person": (1, 3)}),
    "sum of a person below 0": Statistic("sum", (-4, 9), {"per_person": (-4, -2)}),
    "mean": Statistic("mean", (1, 3)),
    "var": Statistic("var", (-4, 3)),
    "fine var": Statistic("var", (-4, 3), {"step": Fraction(1, 2**13)}),
    "std": Statistic("std", (-4, 3)),
    "share": Statistic("share", column=X < 2),
    "value_counts": Statistic("value_counts", ([-4, 1, 3],)),
}
# Steps that make several rows of one, on columns p (the unit), g, x and of weights: a frame -> the frame with the same
# columns. One wants a column of lists.
LISTS = "lists"
MULTIPLYING: dict[str, Callable[[Any], Any]] = {
    "explode": lambda frame: frame.explode(LISTS).drop(LISTS),
    "unpivot": lambda frame: frame.unpivot(WEIGHT, index=["g", "x"], value_name="of").rename({"of": WEIGHT}),
}


def ask(name: str, column: pl.Expr | str = "x", *arguments: Any, **options: Any) -> dpp.PrivateExpr:
    """The expression of this name about a column, with the arguments given, or else those of the registry.

    Not by `.dp`: where OpenDP is loaded, a call without a loss is of its own (tests/opendp/test_sharing.py).
    """
    known = ASKS[name]
    expr = pl.col(column) if isinstance(column, str) else column
    return getattr(PrivateNamespace(expr), name)(*(arguments or known.arguments), **{**known.options, **options})


# --- Columns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A type, and what may stand in a column of it.

    Parameters
    ----------
    dtype
        The type.
    values
        Some of its values, those at the ends too; without null and NaN.
    categories
        Candidates of a mode, not all of the values; None: a mode can't be asked.
    points
        Candidates of a quantile: what is given, and the points that it stands for, in ascending order.
    """

    dtype: pl.DataType
    values: list[Any]
    categories: list[Any] | None
    points: tuple[tuple[Any, Sequence[Any]], ...] = ()


def _integers(dtype: pl.DataType, *ends: int) -> Column:
    low = -3 if min(ends) < 0 else 0
    coarse, wide = [low, low + 1, low + 4], sorted({0, *ends, *(end - end // 3 for end in ends)})
    points = (coarse, coarse), (range(low, 9, 3), range(low, 9, 3)), (wide, wide)
    return Column(dtype, [*ends, *range(low, low + 6)], [low + 2, ends[0], low + 1], points)


def _floats(dtype: pl.DataType) -> Column:
    halves = [i / 2 for i in range(-3, 4)]
    points = [-1.5, -0.5, 0.5, 1.25]  # 0 and -1 are in the middle of two
    tenths = [Decimal(i) / 10 for i in range(-10, 11)]
    grids = (
        (dpp.grid(-1, 1, step=0.1), tenths),
        (dpp.grid(-0.75, 1.25, step=0.5), [i / 4 for i in range(-3, 6, 2)]),
        (dpp.grid(0.2, 2, per_decade=4), [0.2, 0.316, 0.562, 1, 1.78, 2]),
    )
    values = [math.inf, -math.inf, -0.0, 0.25, 1e30, -1e30, *halves]
    if dtype == pl.Float64():
        values += [0.05, 0.15, 0.1 + 0.2, 1e300, -1e308]  # ties of decimals, and what is no float32
    return Column(dtype, values, None, ((points, points), *grids))


_DAYS = [dt.date(1899, 12, 31), dt.date(1970, 1, 1), dt.date(2000, 1, 2), dt.date(2000, 1, 3), dt.date(2021, 3, 28)]
_HOUR = dt.timedelta(hours=1)
# Before 1970, and around the hours that summer time leaves out or repeats in New York.
_MOMENTS = [
    dt.datetime(1899, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    *(dt.datetime(2020, 3, 8, 7) + _HOUR * i for i in range(2)),
    *(dt.datetime(2020, 11, 1, 5) + _HOUR * i for i in range(2)),
]
_SPANS = [dt.timedelta(days=-1, microseconds=1), dt.timedelta(0), dt.timedelta(seconds=1), dt.timedelta(hours=30)]
_TEXTS = ["a", "A", "a ", "é", "e\u0301", "", "日本"]


def _moments(dtype: pl.Datetime) -> Column:
    zone = zoneinfo.ZoneInfo(dtype.time_zone) if dtype.time_zone else None
    values = [moment.replace(tzinfo=UTC).astimezone(zone) if zone else moment for moment in _MOMENTS]
    if dtype.time_unit == "ms":
        values = [moment.replace(microsecond=moment.microsecond // 1000 * 1000) for moment in values]
    first = dt.datetime(2020, 1, 1, tzinfo=zone and UTC)
    days = [first + dt.timedelta(days=i) for i in range(366)]
    return Column(
        dtype,
        values,
        [values[2], values[1]],
        ((values[1:5], values[1:5]), (dpp.grid(first, days[-1], step="1d"), days)),
    )


COLUMNS = {
    "Boolean": Column(pl.Boolean(), [True, False], [True, False]),
    "Int8": _integers(pl.Int8(), 127, -128),
    "Int16": _integers(pl.Int16(), 2**15 - 1, -(2**15)),
    "Int32": _integers(pl.Int32(), 2**31 - 1, -(2**31)),
    "Int64": _integers(pl.Int64(), 2**63 - 1, -(2**63)),
    "Int128": Column(
        pl.Int128(),
        [5, 0, 2**62, -(2**100), 2**64, 2**100],
        [5, 2**62, 0],
        ((range(-10, 11), range(-10, 11)), ([-(2**60), 0, 2**60], [-(2**60), 0, 2**60])),
    ),
    "UInt128": Column(
        pl.UInt128(), [0, 5, 2**64, 2**127], [5, 2**62, 0], (([1, 5, 70], [1, 5, 70]), (range(9), range(9)))
    ),
    "UInt8": _integers(pl.UInt8(), 255),
    "UInt16": _integers(pl.UInt16(), 2**16 - 1),
    "UInt32": _integers(pl.UInt32(), 2**32 - 1),
    "UInt64": _integers(pl.UInt64(), 2**64 - 1),
    "Float32": _floats(pl.Float32()),
    "Float64": _floats(pl.Float64()),
    "Decimal": Column(
        pl.Decimal(10, 2),
        [Decimal(i) / 100 for i in (-100, -50, -1, 0, 25, 50, 75, 125, 126, 9_999_999_999)],
        [Decimal("0.25"), Decimal(-1)],
        (
            ([0, 1, 2], [0, 1, 2]),
            (dpp.grid(Decimal(-1), Decimal(1), step=Decimal("0.1")), [Decimal(i) / 10 for i in range(-10, 11)]),
        ),
    ),
    "wide Decimal": Column(
        pl.Decimal(38, 6),
        [Decimal(10) ** 29, -(Decimal(10) ** 29), Decimal(0), Decimal("0.75")],
        None,
        (([Decimal(-1), Decimal("0.5"), Decimal(10**6)],) * 2,),
    ),
    "String": Column(pl.String(), _TEXTS, ["é", "a ", "no such", ""]),
    "Categorical": Column(pl.Categorical(), _TEXTS, ["é", "a ", "no such", ""]),
    "named Categorical": Column(pl.Categorical(pl.Categories("tests of dp_polars")), _TEXTS, ["é", "a ", "no such"]),
    "Enum": Column(pl.Enum(["b", "a", "é", "", "unused"]), ["a", "é", "", "b"], ["", "unused", "a"]),
    "Date": Column(
        pl.Date(),
        _DAYS,
        [_DAYS[3], _DAYS[0]],
        (
            (_DAYS[1:3], _DAYS[1:3]),
            (dpp.grid(_DAYS[2], dt.date(2000, 2, 1), step="1d"), [_DAYS[2] + dt.timedelta(i) for i in range(31)]),
        ),
    ),
    "Datetime": _moments(pl.Datetime("us")),
    "Datetime in UTC": _moments(pl.Datetime("us", "UTC")),
    "Datetime in milliseconds": _moments(pl.Datetime("ms")),
    "Datetime in nanoseconds": _moments(pl.Datetime("ns")),
    "Datetime in Berlin": _moments(pl.Datetime("ns", "Europe/Berlin")),
    "Duration": Column(
        pl.Duration("us"),
        _SPANS,
        [_SPANS[3], _SPANS[0]],
        (
            (_SPANS[1:], _SPANS[1:]),
            (dpp.grid(_SPANS[1], dt.timedelta(minutes=1), step="1s"), [dt.timedelta(seconds=i) for i in range(61)]),
        ),
    ),
    "Time": Column(
        pl.Time(),
        [dt.time(0), dt.time(12, 30), dt.time(12, 30, 0, 1), dt.time(23, 59, 59, 999999)],
        [dt.time(12, 30), dt.time(0)],
        (([dt.time(1), dt.time(12), dt.time(13)],) * 2,),
    ),
}

# Types of keys: values that can be public groups.
KEYS = {
    name: (column.dtype, column.values[:3])
    for name, column in COLUMNS.items()
    if not column.dtype.is_float() and name != "wide Decimal"
}

# Types of privacy units, each with distinct people.
UNITS = {
    "Int8": (pl.Int8(), list(range(-50, 50))),
    "Int64": (pl.Int64(), [-(2**63), 2**63 - 1, *range(50)]),
    "UInt64": (pl.UInt64(), [2**64 - 1, 2**63, *range(50)]),
    "Int128": (pl.Int128(), [2**100, -(2**100), *range(50)]),
    "String": (pl.String(), ["", "é", "a" * 40, *(f"person {i}" for i in range(50))]),
    "Binary": (pl.Binary(), [b"", b"\x00", *(bytes([i, 255]) for i in range(50))]),
    "Boolean": (pl.Boolean(), [True, False]),
    "Date": (pl.Date(), [dt.date(2000, 1, 1) + dt.timedelta(days=i) for i in range(50)]),
    "Datetime in UTC": (
        pl.Datetime("us", "UTC"),
        [dt.datetime(2000, 1, 1, tzinfo=UTC) + dt.timedelta(hours=i) for i in range(50)],
    ),
    "Duration": (pl.Duration("us"), [dt.timedelta(hours=i) for i in range(50)]),
    "Time": (pl.Time(), [dt.time(i // 2, 30 * (i % 2)) for i in range(48)]),
    "Decimal": (pl.Decimal(20, 2), [Decimal(i) / 4 for i in range(50)]),
    "Categorical": (pl.Categorical(), [f"person {i}" for i in range(50)]),
    "named Categorical": (pl.Categorical(pl.Categories("units")), [f"person {i}" for i in range(50)]),
    "Enum": (pl.Enum([f"{i}" for i in range(50)]), [f"{i}" for i in range(50)]),
    # Two zeros are one person.
    "Float64": (pl.Float64(), [0.0, math.inf, -math.inf, *(i / 8 for i in range(1, 50))]),
    "Float32": (pl.Float32(), [0.0, *(i / 8 for i in range(1, 50))]),
    "List": (pl.List(pl.Int64), [[i] for i in range(50)]),
    "Struct": (pl.Struct({"a": pl.Int64, "b": pl.String}), [{"a": i // 7, "b": str(i % 7)} for i in range(49)]),
}


# --- Laws ------------------------------------------------------------------------------------------------------------

# One group of rows.
VALUES = [0, 1, 1, 1, 2, 2, 4, 4, 4, None]
CANDIDATES = [0, 1, 2, 3, 4, 5]
COUNTS = [VALUES.count(candidate) for candidate in CANDIDATES]


def quantile_scores(counts: Sequence[int], num: int, den: int) -> list[int]:
    """Of the num/den-quantile, by the docs, "The privacy claims": rows that must come or go, times `den`."""
    n_rows = sum(counts)
    below = [sum(counts[:i]) for i in range(len(counts))]
    return [
        -max(0, num * n_rows - den * (b + c), den * b - num * n_rows + 1) for b, c in zip(below, counts, strict=True)
    ]


_OFFERED = [x for x in VALUES if x is not None]

# The expression, given a factor of the loss; the scores of its candidates, its rate and its mechanism.
LAWS = {
    "mode": (lambda f: X.dp.mode(CANDIDATES, epsilon=Fraction(1, 2) * f), COUNTS, Fraction(1, 2), "permute_and_flip"),
    "mode of values": (
        lambda f: X.filter(X.is_not_null()).dp.mode(CANDIDATES, epsilon=Fraction(1, 2) * f),
        COUNTS,
        Fraction(1, 2),
        "permute_and_flip",
    ),
    "mode by weight": (
        lambda f: X.dp.mode(
            CANDIDATES, counts=dpp.weights(X * 0.5, max_weight=1.5, step=0.5), epsilon=Fraction(3, 2) * f
        ),
        [min(value, 3) * n for value, n in zip(CANDIDATES, COUNTS, strict=True)],  # in halves
        Fraction(1, 2),
        "permute_and_flip",
    ),
    "the first of a top 3": (
        lambda f: X.dp.top_k(3, CANDIDATES, epsilon=Fraction(3, 2) * f).list.first(),
        COUNTS,
        Fraction(1, 2),
        "permute_and_flip",
    ),
    "a top 1, jointly": (
        lambda f: (X + 0).dp.top_k(1, CANDIDATES, epsilon=Fraction(f) / 2, mechanism="joint").list.first(),
        COUNTS,
        Fraction(1, 2),
        "exponential",
    ),
    "median": (
        lambda f: X.dp.median(range(6), epsilon=Fraction(2, 3) * f),
        quantile_scores(COUNTS, 1, 2),
        Fraction(1, 3),
        "permute_and_flip",
    ),
    "quantile": (
        lambda f: (X * 0.5).dp.quantile(0.75, dpp.grid(0, 2.5, step=0.5), rho=bounded_range_rho(4 * f)),
        quantile_scores(COUNTS, 3, 4),
        Fraction(4, 6),
        "exponential",
    ),
    "a list of one quantile": (
        lambda f: X.dp.quantile([0.25], range(6), epsilon=Fraction(2) * f),
        quantile_scores(COUNTS, 1, 4),
        Fraction(2, 6),
        "permute_and_flip",
    ),
    "argmax": (
        lambda f: (X * X).dp.argmax(sensitivity=4, epsilon=f),
        [x * x for x in _OFFERED],
        Fraction(1, 8),
        "permute_and_flip",
    ),
    "argmax by sensitivities": (
        lambda f: (X * X).dp.argmax(sensitivity=X + 1, epsilon=f * 4),
        # t = ln(8/2/0.05)/2 for the nine rows with a score, rounded to 20 bits.
        own_scores([x * x for x in _OFFERED], [x + 1 for x in _OFFERED], Fraction(round(math.log(80) * 2**17), 2**18)),
        Fraction(2),
        "permute_and_flip",
    ),
}


# --- True answers ---------------------------------------------------------------------------------------------------

# So much that every answer is the true one.
SURE = {"epsilon": 10_000}
GROUPS, ROWS = 40, 25


def many_groups() -> pl.DataFrame:
    """Forty groups, one after the other, in each of which the right answers are known."""
    group = np.repeat(np.arange(GROUPS), ROWS)
    row = np.tile(np.arange(ROWS), GROUPS)
    return pl.DataFrame(
        {
            "g": group,
            "t": pl.Series(group).cast(pl.Int64),
            "when": [dt.datetime(2020, 1, 1) + dt.timedelta(days=int(day)) for day in group],
            # Three fifths are the group's own value, the others lie on both sides of it.
            "x": np.where(row % 5 < 3, group, np.where(row % 5 == 3, group - 7, group + 9)),
            "s": pl.Series(np.where(row % 5 < 3, group % 3, row % 3)).replace_strict([0, 1, 2], ["a", "b", "c"]),
            "v": np.where(row == group % ROWS, 5.0, -row / 10.0),
        }
    ).with_columns(pl.col("t").set_sorted())


def _as_text(answers: pl.Expr) -> pl.Expr:
    return answers.struct.json_encode()


# Every way to ask about these rows, and the true answer of a group.
TRUE_ANSWERS = {
    "median": (lambda: X.dp.median(range(-10, 61), **SURE), lambda g: g),
    "median of values": (lambda: (X + 0).dp.median(range(-10, 61), **SURE), lambda g: g),
    "median of some": (lambda: X.filter(X >= G).dp.median(dpp.grid(-10, 60, step=0.5), rho=10**9), lambda g: g),
    "quantiles": (lambda: X.dp.quantile([0.3, 0.5, 0.7], range(-10, 61), **SURE), lambda g: [g] * 3),
    "quantiles of values": (
        lambda: (X + 0).dp.quantile([0.1, 0.5, 0.9], dpp.grid(-10, 60, step=0.5), **SURE),
        lambda g: [g - 7, g, g + 9],
    ),
    "mode": (lambda: S.dp.mode(["c", "b", "a"], **SURE), lambda g: "abc"[g % 3]),
    "mode of values": (lambda: S.filter(S.is_not_null()).dp.mode(["c", "b", "a"], rho=10**9), lambda g: "abc"[g % 3]),
    "mode of enums": (lambda: S.cast(pl.Enum(["a", "b", "c"])).dp.mode(**SURE), lambda g: "abc"[g % 3]),
    "mode by weight": (
        lambda: S.dp.mode(["c", "b", "a"], counts=dpp.weights(X == G, max_weight=1), **SURE),
        lambda g: "abc"[g % 3],
    ),
    "top 2": (lambda: S.dp.top_k(2, ["b", "a"], **SURE), lambda g: ["b", "a"] if g % 3 == 1 else ["a", "b"]),
    "top 2 of enums, jointly": (
        lambda: S.cast(pl.Enum(["a", "b", "c"])).filter(S != "c").dp.top_k(2, mechanism="joint", **SURE),
        lambda g: ["b", "a"] if g % 3 == 1 else ["a", "b"],
    ),
    "first above": (lambda: X.dp.first_above(range(-10, 61), threshold=10, **SURE), lambda g: g),
    "first above on a grid": (
        lambda: (X + 0).dp.first_above(dpp.grid(-10, 60, step=0.5), threshold=9.5, **SURE),
        lambda g: g,
    ),
    "none above": (
        lambda: X.dp.first_above([*range(60, -11, -1)], threshold=15.5, **SURE).fill_null(-99),
        lambda _: -99,
    ),
    "argmax": (lambda: V.dp.argmax(sensitivity=1, **SURE), lambda g: g % ROWS),
    "argmin": (lambda: (-V).dp.argmin(sensitivity=1, **SURE), lambda g: g % ROWS),
    "argmax by sensitivities": (lambda: V.dp.argmax(sensitivity=V.abs() + 1, **SURE), lambda g: g % ROWS),
    # Gaps of 14 or 16 rows, and of 5 or 5.1: rounded so that no noise is seen. As text, which all contexts compare.
    "gap of a mode": (
        lambda: _as_text(S.dp.mode(["c", "b", "a"], gap=True, **SURE)).str.replace(r"\d\}", "_"),
        lambda g: f'{{"answer":"{"abc"[g % 3]}","gap":1_',
    ),
    "gap of a mode of enums": (
        # Polars 1.36 writes the number of an Enum's category.
        lambda: _as_text(
            S.cast(pl.Enum(["a", "b", "c"]))
            .dp.mode(gap=True, **SURE)
            .cast(pl.Struct({"answer": pl.String, "gap": pl.Int64}))
        ).str.replace(r"\d\}", "_"),
        lambda g: f'{{"answer":"{"abc"[g % 3]}","gap":1_',
    ),
    "gap of a first above": (
        lambda: _as_text(S.dp.first_above(["c", "a", "b"], threshold=9.5, gap=True, **SURE)).str.replace(r"\d\}", "_"),
        lambda g: f'{{"answer":"{"abc"[g % 3]}","gap":_',
    ),
    "gap of an argmax": (
        lambda: _as_text(V.dp.argmax(sensitivity=1, gap=True, gap_step=2, **SURE)),
        lambda g: f'{{"answer":{g % ROWS},"gap":4.0}}',
    ),
}
