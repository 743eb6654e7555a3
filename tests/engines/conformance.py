"""What every engine must do, as its contract says (`dp_polars/_release/contract.py`), seen through whole releases.

To run it for an engine: derive a class named `Test…` from `Conformance` and say how the engine is made.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Terms
from dp_polars._bins.binning import Beyond, Clamping, OneCode
from dp_polars._bins.candidates import grid_between
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._mechanisms.partition_selection import KeySelection
from dp_polars._release import release
from dp_polars._release.contract import ROWS_CUT, Engine, HistogramSpec, Output, PerPerson, PersonNumber, Work
from dp_polars._release.protection import Limits
from dp_polars._release.public_keys import in_types_of
from dp_polars._release.release import prepare
from dp_polars._release.request import Request
from dp_polars._statistics.statistic import CountRule, HistogramQuery, KeysThatAreThere
from tests.engines.orders import (
    OF_GROUPS,
    OF_GROUPS_TOGETHER,
    ONE_ROW,
    ONE_ROW_TOGETHER,
    SEVERAL,
    SEVERAL_TOGETHER,
    SOME,
    SPREAD,
    TALLIES,
    TOGETHER,
    follows,
    independent,
    joint_law,
    law,
)
from tests.helpers import by_hand
from tests.helpers.alone import alone
from tests.helpers.by_hand import Part
from tests.helpers.runs import release_by
from tests.registry import COLUMNS, KEYS, UNITS
from tests.statistical.goodness import fits

SECRET = "secret-hiv-7"
COPIES = 3000
MANY = 10**6
# A privacy unit of two columns.
PAIR = ("p", "part")


# --- What a release can tell of an engine ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Reveal(HistogramQuery):
    """A query that answers with one of its histograms, and a mark that no two draws share. No private query at all."""

    asked: HistogramQuery
    terms: Terms
    log: str | None = None  # the file where draws are noted
    part: int = 0

    @property  # a cached one has a lock, and Spark sends this class by value
    def claim(self) -> Claim:
        return self.asked.with_terms(self.terms).claim

    def __str__(self) -> str:
        return f"histogram of a {self.asked}"

    @property
    def fixed_type(self) -> pl.DataType | None:
        return self.asked.fixed_type

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        self.asked.answer_type(*columns)
        return pl.String()

    @property
    def counts_people(self) -> bool:
        return self.asked.counts_people

    @property
    def limits_people(self) -> bool:
        return self.asked.limits_people

    @property
    def weighs_people(self) -> bool:
        return self.asked.weighs_people

    @property
    def in_parts(self) -> bool:
        return self.asked.in_parts

    def bits_of_parts(self, *columns: pl.DataType) -> tuple[int, ...]:
        return self.asked.bits_of_parts(*columns)

    def range_of(self, relation, groups=None):
        return self.asked.range_of(relation, groups)

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return self.asked.count_rules(*columns)

    def error(self, size: int, beta: float) -> float:
        return self.asked.error(size, beta)

    def drawn(self, histograms, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        histogram, bits = histograms[self.part], self.bits_of_parts(*columns)[self.part]
        told, ends = [], np.cumsum(histogram.sizes)
        for size, end in zip(histogram.sizes.tolist(), ends.tolist(), strict=True):
            own = slice(end - size, end)
            codes, weights = histogram.codes[own].tolist(), histogram.weights[own].tolist()
            assert codes == sorted(set(codes)), "each code must be there once, in ascending order"
            told.append(json.dumps([os.urandom(8).hex(), list(zip(codes, weights, strict=True)), bits]))
        if self.log is not None:
            with open(self.log, "a") as file:  # noqa: PTH123  # also where a worker of Spark runs this
                file.write("".join(f"{text}\n" for text in told))
        return (pl.Series(told, dtype=pl.String),)


def in_units(told):
    """Code -> weight, of what a histogram told in parts: an int where it is whole."""
    _, cells, bits = json.loads(told)
    exact = ((code, Fraction(parts, 2**bits)) for code, parts in cells)
    return {code: int(weight) if weight.denominator == 1 else weight for code, weight in exact}


def revealing(query, log=None, parts=()):
    """The same query, answering with histograms: of an output, the first one, or that of its place in `parts`."""
    log, parts = None if log is None else str(log), dict(parts)
    if type(query._request) is Request:  # of sums that are shared, the first output would be revealed for all
        query = alone(query)
    return with_asks(query, (Reveal(ask.query, ask.query.terms, log, parts.get(ask.name, 0)) for ask in query._asks))


def clipped(rule, ends):
    """A rule by which a person's sum of weights, in a group and code, is clipped to ends of its own."""
    units = rule.row_weight
    low, high = (end * units.step for end in ends)
    return replace(rule, row_weight=replace(units, ends_of_person=(low, high)))


def with_asks(query, queries):
    """The same query with other queries in its outputs."""
    asks = tuple(replace(ask, query=each) for ask, each in zip(query._asks, queries, strict=True))
    return dpp.PrivateQuery(replace(query._request, asks=asks), None, query.budget)


@dataclass(frozen=True)
class ShowEverything(KeySelection):
    """Shows every key with its true number of people. Nothing private about it."""

    log: str | None = None  # the file where draws are noted

    def draw(self, people):
        if self.log is not None:
            with open(self.log, "a") as file:  # noqa: PTH123  # also where a worker of Spark runs this
                file.write("".join(f"{number}\n" for number in people.tolist()))
        return np.ones(len(people), bool), people

    def chances(self, people):
        return np.ones(len(people))

    def people_for(self, chance):
        return 1


@dataclass(frozen=True)
class ShowFrom(KeySelection):
    """Shows the keys of at least so many people."""

    least: int

    def draw(self, people):
        return people >= self.least, people

    def chances(self, people):
        return (people >= self.people_for(1)).astype(float)

    def people_for(self, chance):
        return self.least


@dataclass(frozen=True)
class RevealedKeys(KeysThatAreThere):
    """Keys by a selection that is given."""

    by: KeySelection = ShowEverything()

    @property
    def selection(self):
        return self.by


def revealing_keys(query, by=None):
    """The same query for keys, which shows all of them, or those that `by` selects."""
    (one,) = query._asks
    asked = one.query
    revealed = RevealedKeys(asked.columns, asked.terms, asked.keys_per_person, True, by or ShowEverything())
    return with_asks(query, [revealed])


@dataclass(frozen=True)
class Noting:
    """Notes in a file that rows are read."""

    file: Path

    def __call__(self) -> None:
        with open(self.file, "a") as file:  # noqa: PTH123
            file.write("read\n")


@dataclass(frozen=True)
class Failing(Noting):
    """Fails where rows are read, with a value of a row in its message."""

    def __call__(self) -> None:
        Noting.__call__(self)
        msg = f"no such value: {SECRET}"
        raise RuntimeError(msg)


class Asked(NamedTuple):
    """An expression, and what is counted for it: a column by a code; people, where there are some; or weights."""

    expr: dpp.PrivateExpr
    code_of: by_hand.CodeOf
    column: str = "x"
    people: bool = False
    weigh: by_hand.WeightOf | None = None


@dataclass(frozen=True)
class OfPeople(Request):
    """A query about numbers that each person has: people as rows."""

    groups: ClassVar[int] = 1
    numbers: tuple[OfPerson, ...] = field(kw_only=True)

    def bind(self, engine):
        own = dict.fromkeys(one.column for one in self.numbers if one.column is not None)
        proved = self.checked_on(engine, [*([] if self.keys is None else self.keys.columns), *own])
        keys = None if self.keys is None else in_types_of(self.keys, proved.schemas[-1])
        types = (pl.Int64(),)
        specs = tuple(
            HistogramSpec(ask.columns, types, *ask.query.count_rules(*types), Limits(), people=False)
            for ask in self.asks
        )
        outputs = tuple(Output(ask.name, ask.query, types, (place,)) for place, ask in enumerate(self.asks))
        numbers = tuple(one.of(proved.schemas[-1]) for one in self.numbers)
        return Work(None, None, specs, outputs, proved.rows, PerPerson(self.protection.unit, keys, numbers=numbers))


@dataclass(frozen=True)
class OfKeys(Request):
    """A query about how many keys each person has: people as rows."""

    groups: ClassVar[int] = 1
    by: tuple[str, ...] = field(kw_only=True)

    def bind(self, engine):
        proved = self.checked_on(engine, self.by)
        (ask,), types, schema = self.asks, (pl.Int64(),), proved.schemas[-1]
        spec = HistogramSpec(ask.columns, types, *ask.query.count_rules(*types), Limits(), people=False)
        per_person = PerPerson(self.protection.unit, by=pl.Schema((name, schema[name]) for name in self.by))
        return Work(None, None, (spec,), (Output(ask.name, ask.query, types, (0,)),), proved.rows, per_person)


class OfPerson(NamedTuple):
    """A number of each person: of all rows, or of those with a value in a column."""

    what: str
    column: str | None = None
    cap: int | None = None
    people: bool = False

    def of(self, schema):
        columns = () if self.column is None else (pl.col(self.column),)
        types = () if self.column is None else (schema[self.column],)
        codes = OneCode()
        if self.what.endswith("code"):
            codes = Beyond(ENDS, *types, closed=self.what == "smallest code")
        weights = Clamping(Fraction(0), Fraction(9), Fraction(1)) if self.what.endswith("total") else None
        spec = HistogramSpec(columns, types, CountRule(codes, weights), Limits(), self.people)
        return PersonNumber(spec, self.what, self.cap)


ENDS = tuple(map(Fraction, (-1, 0, "1/2", 3, 8, 14)))


def numbers_of(unit, numbers, most, keys=None):
    """The query for how many people have which numbers, from 0 to a largest one."""
    medians = [dpp.median(PersonNumber.name(place), range(most), epsilon=1) for place, _ in enumerate(numbers)]
    query = dpp.protect(unit, max_rows=1).agg(*medians)
    return dpp.PrivateQuery(OfPeople(query._request.pipeline, keys, query._asks, numbers=tuple(numbers)), None, None)


def protected(keys=None, unit="p", steps=lambda frame: frame, **bounds):
    """A private frame, or its groups."""
    frame = steps(dpp.protect(unit, **bounds))
    return frame if keys is None else frame.group_by(keys)


# Types and bounds of grids of three digits: a list of their points is no longer than databases take.
FOUND_GRIDS = [
    (pl.Int64(), -1000, 100_000),
    (pl.Float64(), 0, 20),
    (pl.Float64(), -20, 0),
    (pl.Decimal(12, 2), -10, 1000),
]


def stays_of_copies(found):
    """What stays of each copy of a person, of a histogram in which the codes of copy p are 16p to 16p + 15."""
    own = [[] for _ in range(COPIES)]
    for (group,), counts in found.items():
        for code, n in counts.items():
            if code < 16 * COPIES:
                own[code // 16] += [(group, code % 16)] * n
    return [tuple(sorted(cells)) for cells in own]


def visits():
    """People with many rows, with nulls, NaN, unlisted keys and values that are no candidates."""
    rng = np.random.default_rng(5)
    n = 600

    def with_holes(values, hole=None):
        return [hole if rng.random() < 0.1 else value for value in values]

    return pl.DataFrame(
        {
            "p": with_holes(rng.integers(0, 50, n).tolist()),
            "ward": with_holes(rng.choice(["north", "south", "east", "unlisted"], n).tolist()),
            "year": with_holes(rng.integers(2019, 2023, n).tolist()),
            "flavour": with_holes(rng.choice(["sweet", "sour", "salty", "bitter"], n).tolist()),
            "price": with_holes(with_holes((rng.integers(-4, 30, n) / 2).tolist(), math.nan)),
            "weight": with_holes(rng.integers(-1, 7, n).tolist()),
            "amount": with_holes(with_holes([*(rng.integers(-4, 30, n - 1) / 8).tolist(), math.inf], math.nan)),
            "part": with_holes([["a", "ab"][i % 2] for i in range(n)]),
        }
    )


FLAVOURS = ["salty", "sour", "sweet"]
# The east has no rows in 2030; nobody knows the west.
GROUPS = pl.DataFrame({"ward": ["east", "north", "west", "south", "north"], "year": [2030, 2021, 2020, 2020, 2019]})
BOTH = [
    dpp.mode("flavour", FLAVOURS, epsilon=1),
    dpp.median("price", range(11), epsilon=1),
    dpp.quantile("price", 0.9, range(11), rho=1).alias("high"),
]

CODES = {"flavour": by_hand.category_code(FLAVOURS), "price": by_hand.nearest_code(range(11)), "weight": lambda _: 0}


def _not_nan(value):
    return None if math.isnan(value) else 0


def by_reference(column, unit=None, *, people=False, keys=GROUPS, weigh=None):
    """The histograms of a column of `visits`, where nobody is over a bound."""
    rows, listed = visits().to_dicts(), None if keys is None else keys.to_dicts()
    how = {"unit": unit, "people": people and unit is not None, "weigh": weigh}
    return by_hand.histograms(rows, listed, column, CODES[column], **how)


# What one person's rows are bounded by: what is asked, the bounds given to `protect`, and what then may stay.
BOUNDS = [
    ("mode", {"max_groups": 1}, Limits(groups=1)),
    ("mode", {"max_groups": 2, "max_rows_per_group": 1}, Limits(groups=2)),
    ("mode", {"max_rows": 2, "max_groups": 3, "max_rows_per_group": 2}, Limits(groups=2)),
    ("median", {"max_rows": 3}, Limits(rows=3)),
    ("median", {"max_rows_per_group": 2}, Limits(rows_per_group=2)),
    ("median", {"max_groups": 2, "max_rows_per_group": 1}, Limits(groups=2, rows_per_group=1)),
    ("median", {"max_groups": 2, "max_rows_per_group": 3}, Limits(groups=2, rows_per_group=3)),
    ("median", {"max_groups": 1, "max_rows": 2}, Limits(groups=1, rows=2)),
    ("median", {"max_rows": 3, "max_rows_per_group": 2}, Limits(rows=3, rows_per_group=2)),
    ("median", {"max_rows": 2, "max_rows_per_group": 1}, Limits(groups=2, rows_per_group=1)),
    ("median", {"max_rows": 3, "max_groups": 2, "max_rows_per_group": 2}, Limits(rows=3, groups=2, rows_per_group=2)),
]

# How much of a person counts in numbers, in four groups: the limits given to `protect`, and what follows from them in ε
# and in rho, for numbers of rows and for numbers of people. None: everybody in full.
WARDS = {"ward": ["east", "north", "west", "south"]}
PARTS = [
    ({"max_rows": 3}, [Part(None, 3, 1), Part(None, 9, 2)], [Part(None, 3, 1), Part(None, 3, 2)]),
    (
        {"max_groups": 2, "max_rows_per_group": 2},
        [Part(2, 4, 1), Part(2, 8, 2)],
        [Part(None, 2, 1), Part(None, 2, 2)],
    ),
    ({"max_rows": 5, "max_rows_per_group": 2}, [Part(2, 5, 1), Part(2, 9, 2)], [None, None]),
    ({"max_rows_per_group": 2}, [Part(2, None, 1), Part(2, None, 2)], [None, None]),
    ({"max_norm": 3}, [Part(None, 3, 1), Part(None, 9, 2)], [Part(None, 3, 1), Part(None, 9, 2)]),
    (
        {"max_norm": 2, "max_rows_per_group": 1},
        [Part(1, 2, 1), Part(1, 4, 2)],
        [Part(None, 2, 1), Part(None, 4, 2)],
    ),
]

# People beside copies of one person, with more rows: person, group, code.
OTHERS = [(-1 - p % 500, p % 7, 16 * COPIES + p % 3) for p in range(2000)] + [(-501, 2, 16 * COPIES)] * 500

# Bounds of sums, and their steps.
SUMS = [(0, 3, 1), (-4, 6, 2), (-(2**28), 2**28, 1)]  # the squares of the last one are rounded

# Different values of a type that something coarser would take for one.
NEAR: dict[str, list[Any]] = {
    "String": ["a", "A", "a ", " a", "\u00e4", "a\u0308", "ss", "\u00df", "0", "00", "a\ue000b", "\ue001", ""],
    "Int64": [2**53, 2**53 + 1, -(2**53), -(2**53) - 1, 2**62, 2**62 + 1],
    "Decimal": [Decimal("0.01"), Decimal("0.02"), Decimal("90071992547.40"), Decimal("90071992547.41")],
    "Datetime": [dt.datetime(2020, 1, 1, 0, 0, 0, us) for us in (0, 1, 2, 999, 1000)],
    "Time": [dt.time(23, 59, 59, us) for us in (0, 1, 500_000, 999_999)],
    "Date": [dt.date(2020, 1, 1), dt.date(2020, 1, 2)],
}


class Conformance:
    """The suite. An engine's class says what stands above `make`, and `make` itself."""

    #: Names in `COLUMNS`, `KEYS` and `UNITS` of what the engine has columns of.
    kinds: ClassVar[frozenset[str]] = frozenset({*COLUMNS, *UNITS})
    #: More that only a privacy unit may have.
    more_units: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def make(self, frame: pl.DataFrame, read: Callable[[], None] | None = None) -> Engine[Any]:
        """The engine over these rows, `read` being called wherever they are read."""

    def to_polars(self, released: Any) -> pl.DataFrame:
        """What was released, as a frame."""
        return released

    def pytest_generate_tests(self, metafunc):
        for name, table in (("column", COLUMNS), ("key", KEYS), ("unit", UNITS), ("near", NEAR)):
            if name in metafunc.fixturenames:
                known = self.kinds | self.more_units if name == "unit" else self.kinds
                metafunc.parametrize(name, [kind for kind in table if kind in known])

    def told(self, query, frame, budget=None, log=None, parts=()):
        """Output -> key -> code -> weight, by a release."""
        return self.read(query, release_by(revealing(query, log, parts), self.make(frame), budget))

    def told_of(self, query, frame, specs):
        """Output -> key -> code -> weight, where output i is of spec i, changed as `specs[i]` says."""
        engine = self.make(frame)
        work = revealing(query)._request.bind(engine)
        changed = tuple(
            replace(work.specs[output.specs[0]], **changes) for output, changes in zip(work.outputs, specs, strict=True)
        )
        outputs = tuple(replace(output, specs=(i,)) for i, output in enumerate(work.outputs))
        return self.read(query, engine.prepare(replace(work, specs=changed, outputs=outputs))().presented())

    def read(self, query, released):
        released, names = self.to_polars(released), [ask.name for ask in query._asks]
        keys = released.drop(names).rows() or [()]
        return {name: {k: in_units(t) for k, t in zip(keys, released[name], strict=True)} for name in names}

    # --- Histograms ---

    @pytest.fixture(params=[None, "p", PAIR], ids=str)
    def person(self, request):
        return request.param

    @pytest.mark.parametrize("kind", FOUND_GRIDS, ids=str)
    def test_codes_of_grids_that_are_found_are_those_of_a_list(self, kind):
        dtype, lower, upper = kind
        grid = grid_between(Fraction(lower), Fraction(upper), dtype)
        points, rng = grid.take(np.arange(grid.size)), np.random.default_rng(2)
        if dtype.is_float():
            near = points.to_numpy()[rng.integers(0, grid.size, 900)]
            values = [
                *near,
                *(near * (1 + rng.normal(0, 1e-3, 900))),
                -1e300,
                1e300,
                1e-320,
                0.0,
                -0.0,
                math.inf,
                math.nan,
            ]
        else:
            tick = Fraction(1, 10 ** getattr(dtype, "scale", 0))
            near = [int(Fraction(point) / tick) for point in points.sample(900, seed=3)]
            off = [
                int(scale) * int(up)
                for scale, up in zip(rng.choice([0, 1, 5, 6, 50], 900), rng.integers(-1, 2, 900), strict=True)
            ]
            values = [Decimal(x + y).scaleb(-getattr(dtype, "scale", 0)) for x, y in zip(near, off, strict=True)]
            values = [*values, Decimal(10**9), Decimal(-(10**9))]
            values = values if dtype.is_decimal() else [int(value) for value in values]
        frame = pl.DataFrame({"p": range(len(values) + 1), "x": pl.Series([*values, None], dtype=dtype)})
        asks = {"of_grid": dpp.median("x", grid, epsilon=1), "of_list": dpp.median("x", points, epsilon=1)}
        found = self.told(protected(max_rows=1).agg(**asks), frame)
        assert found["of_grid"] == found["of_list"]
        assert len(found["of_grid"][()]) > 300

    def test_values_of_every_type_have_the_codes_of_the_reference(self, column, person):
        kind = COLUMNS[column]
        nan = [math.nan] if kind.dtype.is_float() else []
        values = [value for i, value in enumerate(kind.values * 3) for _ in range(i % 4)] + nan + [None]
        frame = pl.DataFrame(
            {
                "x": pl.Series(values * 2, dtype=kind.dtype, strict=False),
                "p": [None if i % 9 == 8 else i % 7 for i in range(2 * len(values))],
                "g": [i % 3 for i in range(2 * len(values))],
                "part": [None if i % 13 == 12 else "ab"[: 1 + i % 2] for i in range(2 * len(values))],
            }
        )
        number = by_hand.category_code([0])
        some = by_hand.nearest_code([0]) if kind.dtype.is_numeric() else (lambda value: 0)  # NaN is none
        asked = {
            "values": Asked(dpp.count("x", epsilon=1), some),
            "rows": Asked(dpp.len(epsilon=1), number, "one"),
            "nulls": Asked(dpp.null_count("x", epsilon=1), number, "null"),
            "nulls of another": Asked(dpp.null_count("part", epsilon=1), number, "no part"),
        }
        parts = {}
        if column == "Boolean":
            asked["true"] = Asked(dpp.share("x", epsilon=1), some, weigh=by_hand.around("x", 1, 1))
        if person is not None:
            asked["people"] = Asked(dpp.n_people(epsilon=1), number, "one", people=True)
        if kind.categories is not None:
            categories, code_of = pl.Series(kind.categories, dtype=kind.dtype), by_hand.category_code(kind.categories)
            asked["mode"] = Asked(dpp.mode("x", categories, epsilon=1), code_of, people=True)
            asked["mode of rows"] = Asked(dpp.mode("x", categories, counts="rows", epsilon=1), code_of)
            asked["counts"] = Asked(dpp.value_counts("x", categories, epsilon=1), code_of, people=True)
        if column in ("Boolean", "Enum"):
            known = [False, True] if column == "Boolean" else kind.dtype.categories.to_list()
            asked["of the type"] = Asked(dpp.mode("x", epsilon=1), by_hand.category_code(known), people=True)
        for i, (given, points) in enumerate(kind.points):
            asked[f"quantile {i}"] = Asked(dpp.quantile("x", 0.3, given, epsilon=1), by_hand.nearest_code(points))
        for lower, upper, step in SUMS if kind.dtype.is_numeric() or column == "Boolean" else ():
            units, own = (lower, upper), ("x", upper, step, lower)
            total, precise = {"step": step, "epsilon": 1}, {"step": step, "epsilon": 10**9}
            asked[f"sum {units}"] = Asked(dpp.sum("x", *units, **total), some, weigh=by_hand.weight_of(*own))
            asked[f"distances {units}"] = Asked(dpp.var("x", *units, **precise), some, weigh=by_hand.around(*own))
            asked[f"squares {units}"] = Asked(dpp.std("x", *units, **precise), some, weigh=by_hand.squares(*own))
            parts[f"squares {units}"] = 1
            weigh, code_of = by_hand.weight_of("x", upper, step), by_hand.category_code(["ab", "a"])
            for counts in ("people", "rows"):
                by = dpp.weights("x", max_weight=upper, step=step, of=counts)
                query = dpp.mode("part", ["ab", "a"], counts=by, epsilon=1)
                weighed = Asked(query, code_of, "part", counts == "people", weigh)
                asked[f"weights of {counts} to {upper}"] = weighed
            if person is not None:  # between none, one and several values of a person
                ends = lower + step, 2 * upper - step
                query, weigh = dpp.sum("x", *units, per_person=ends, **total), by_hand.weight_of(*own, ends)
                asked[f"totals {units}"] = Asked(query, some, people=True, weigh=weigh)
        bounds = {} if person is None else {"max_rows_per_group": MANY}
        query = protected({"g": [2, 1, 7]}, person, **bounds).agg(**{name: each.expr for name, each in asked.items()})
        nulls = {new: pl.when(pl.col(of).is_null()).then(0) for new, of in (("null", "x"), ("no part", "part"))}
        rows, listed = frame.with_columns(one=0, **nulls).to_dicts(), [{"g": 2}, {"g": 1}, {"g": 7}]
        for name, found in self.told(query, frame, parts=parts).items():
            _, code_of, counted, people, weigh = asked[name]
            how = {"unit": person, "people": people and person is not None, "weigh": weigh}
            assert found == by_hand.histograms(rows, listed, counted, code_of, **how), name

    def test_rows_with_a_value_take_no_place_among_nulls(self):
        frame = pl.DataFrame({"p": [i % 20 for i in range(200)], "x": [None if i < 40 else i for i in range(200)]})
        others = pl.when(pl.col("x").is_null()).then(1)
        frame = frame.with_columns(NULL0=others)  # a name of ours, but for case
        asked = {"nulls": dpp.null_count("x", epsilon=1), "values": dpp.count("x", epsilon=1)}
        asked["others"] = dpp.count("NULL0", epsilon=1)
        found = self.told(protected(max_rows=1).agg(**asked), frame)
        assert found == {"nulls": {(): {0: 20}}, "values": {(): {0: 20}}, "others": {(): {0: 20}}}
        (one,) = self.told(protected(unit=None).agg(dpp.null_count("NULL0", epsilon=1)), frame).values()
        assert one == {(): {0: 160}}
        private = protected(max_rows=2)
        for name, cut in (("nulls", 0), ("values", 20)):
            (one,) = self.told(private.agg(asked[name]).n_rows_dropped(1, epsilon=1), frame).values()
            assert one[()].get(0, 0) == cut

    @pytest.mark.parametrize("grouped", [True, False])
    def test_rows_and_people_are_counted_as_by_the_reference(self, person, grouped):
        """In whatever order they are."""
        frame, keys = visits(), GROUPS if grouped else None
        bounds = {} if person is None else {"max_rows_per_group": MANY}
        query = protected(keys, person, **bounds).agg(*BOTH)
        found = self.told(query, frame)
        assert found == self.told(query, frame.sample(fraction=1, shuffle=True, seed=3))
        by_rows = by_reference("price", person, keys=keys)
        assert found["price"] == found["high"] == by_rows
        assert found["flavour"] == by_reference("flavour", person, people=True, keys=keys)
        assert min(len(each) for each in by_rows.values()) == 0 or not grouped

    @pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential", "joint"])
    def test_lists_of_the_most_common_are_the_true_ones_at_a_large_loss(self, person, mechanism):
        asked = dpp.top_k("flavour", 3, FLAVOURS, epsilon=10**7, mechanism=mechanism)
        released = self.to_polars(release_by(protected(GROUPS, person).agg(top=asked), self.make(visits())))
        counts = by_reference("flavour", person, people=True)
        assert released["top"].dtype == pl.List(pl.String)
        assert len(released) == len(GROUPS)
        for *key, found in released.rows():
            own = [counts[tuple(key)].get(FLAVOURS.index(flavour), 0) for flavour in found]
            assert sorted(found) == FLAVOURS
            assert own == sorted(own, reverse=True)

    def test_the_first_above_a_threshold_is_the_true_one_at_a_large_loss(self, person):
        thresholds = [0.5, 1.5, 3.5, 10**6]
        asked = {
            f"{name} {threshold}": dpp.first_above(column, candidates, threshold=threshold, gap=True, epsilon=10**7)
            for name, column, candidates in (("list", "flavour", FLAVOURS), ("grid", "price", dpp.grid(0, 10, step=1)))
            for threshold in thresholds
        }
        released = self.to_polars(release_by(protected(GROUPS, person).agg(**asked), self.make(visits())))
        assert len(released) == len(GROUPS)
        for name, column, points in (("list", "flavour", FLAVOURS), ("grid", "price", [*range(11)])):
            counts = by_reference(column, person, people=True)
            for row, threshold in itertools.product(released.rows(named=True), thresholds):
                own = counts[tuple(row[key] for key in GROUPS.columns)]
                above = [(point, own[i] - threshold) for i, point in enumerate(points) if own.get(i, 0) >= threshold]
                first = {"answer": above[0][0], "gap": int(above[0][1])} if above else {"answer": None, "gap": None}
                assert row[f"{name} {threshold}"] == first

    def test_keys_of_every_type_name_their_groups_and_are_found(self, key):
        dtype, values = KEYS[key]
        own = pl.Series("k", [*values, None] * 4, dtype=dtype)
        kind = pl.String() if isinstance(dtype, pl.Categorical) else dtype
        frame = pl.DataFrame({"k": own, "x": [i % 3 for i in range(len(own))]})
        listed, code_of = values[1::-1], by_hand.category_code([1, 0])
        keys = pl.DataFrame({"k": pl.Series(listed, dtype=kind)})
        found = self.told(protected(keys, None).agg(dpp.mode("x", [1, 0], epsilon=1)), frame)
        assert found["x"] == by_hand.histograms(frame.to_dicts(), [{"k": k} for k in listed], "x", code_of)
        # Selected keys: those that group_by would not take are none.
        released = self.to_polars(release_by(self.keys(["k"], "x"), self.make(frame)))
        within = [value for value in values if not (isinstance(value, int) and abs(value) >= 2**63 and "128" in key)]
        expected = by_hand.people_by_key(frame.to_dicts(), ["k"], "x")
        expected = {k: n for k, n in expected.items() if k[0] in within}
        assert dict(zip(released.select("k").rows(), released["count"], strict=True)) == expected
        assert released["k"].dtype == kind
        assert released["k"].equals(released["k"].sort())

    def test_people_of_every_type_are_neither_merged_nor_divided(self, unit):
        """Each has six rows; a zero may have either sign. Nobody's have another value and key."""
        dtype, people = UNITS[unit]
        ids, n = [person for person in people for _ in range(6)], len(people)
        if dtype.is_float():
            ids = [-0.0 if person == 0 and i % 4 > 1 else person for i, person in enumerate(ids)]
        ids += [None, math.nan if dtype.is_float() else None]
        frame = pl.DataFrame({"p": pl.Series(ids, dtype=dtype), "x": [i % 2 for i in range(6 * n)] + [2, 2]})
        frame = frame.with_columns(k=pl.int_range(pl.len()) % 3).sample(fraction=1, shuffle=True, seed=1)
        found = self.told(
            protected(max_rows=1).agg(
                dpp.mode("x", range(3), epsilon=1), m=dpp.median("x", range(3), rho=1), n=dpp.count("x", epsilon=1)
            ),
            frame,
        )
        assert found["n"][()] == {0: n * Fraction(6 * (2**20 // 6), 2**20)}
        assert found["x"][()] == {0: n, 1: n}
        assert sum(found["m"][()].values()) == n
        assert 2 not in found["m"][()]
        assert self.found(self.keys(["x"]), frame) == {(0,): n, (1,): n}
        assert sum(self.found(self.keys(["x"], most=1), frame).values()) == n
        if self.make(frame).counts_per_person:
            assert self.told(numbers_of("p", [OfPerson("rows")], 9), frame) == {"number 0": {(): {6: n}}}
            groups = numbers_of("p", [OfPerson("groups")], 9, pl.DataFrame({"k": [2, 0, 7]}))
            assert self.told(groups, frame) == {"number 0": {(): {2: n}}}

    def test_people_of_several_columns_differ_in_one_of_them(self):
        """Whatever their values are together as one text; who lacks one of them is nobody."""
        pairs = [
            ("a", "bc"), ("ab", "c"), ("a", "c"), ("ab", "bc"), ("a:b", "c"), ("a", "b:c"), ("", "abc"), ("abc", ""),
        ]  # fmt: skip
        people = [(*pair, z) for pair in pairs for z in (0.0, 1.5)]
        rows = [
            (p, q, -0.0 if z == 0 and i % 2 else z, i, i % 4) for p, q, z in people for i in range(6)
        ]  # of each three rows with either zero, in groups 0 to 3
        rows += [(None, "bc", 0.0, 9, 0), ("a", None, 0.0, 9, 0), ("a", "bc", None, 9, 0), ("a", "bc", math.nan, 9, 0)]
        frame = pl.DataFrame(rows, schema=["p", "q", "z", "x", "k"], orient="row")
        frame = frame.sample(fraction=1, shuffle=True, seed=1)
        unit, n = ["z", "q", "p"], len(people)
        asks = {
            "people": dpp.n_people(epsilon=1),
            "mode": dpp.mode("x", range(10), epsilon=1),
            "rows": dpp.count("x", epsilon=1),
            "total": dpp.sum("x", 0, 9, per_person=(0, 3), epsilon=1),
        }
        keys = {"k": range(4)}
        found = self.told(protected(keys, unit, max_rows_per_group=MANY).agg(**asks), frame)
        each = {0: (0, 4), 1: (1, 5), 2: (2,), 3: (3,)}  # group -> what a person has there
        assert found["people"] == {(k,): {0: n} for k in each}
        assert found["mode"] == {(k,): dict.fromkeys(xs, n) for k, xs in each.items()}
        assert found["rows"] == {(k,): {0: n * len(xs)} for k, xs in each.items()}
        assert found["total"] == {(k,): {0: n * min(sum(xs), 3)} for k, xs in each.items()}
        for names in (["people"], ["people", "mode"]):  # where nothing is bounded, they are counted in another way
            of_people = protected(keys, unit, max_rows_per_group=MANY).agg(**{name: asks[name] for name in names})
            assert self.told(of_people, frame) == {name: found[name] for name in names}
        bounded = self.told(protected(keys, unit, max_groups=3, max_rows_per_group=1).agg(**asks), frame)
        for name in ("people", "rows"):
            assert sum(sum(cells.values()) for cells in bounded[name].values()) == 3 * n
        (one,) = self.told(protected(None, unit, max_rows=1).agg(dpp.count("x", epsilon=1)), frame).values()
        assert one == {(): {0: n * Fraction(6 * (2**20 // 6), 2**20)}}  # each of six rows by a sixth, rounded down
        assert self.found(self.keys(["k"], unit), frame) == {(k,): n for k in each}
        assert sum(self.found(self.keys(["k"], unit, most=3), frame).values()) == 3 * n
        if self.make(frame).counts_per_person:
            assert self.told(numbers_of(unit, [OfPerson("rows")], 9), frame) == {"number 0": {(): {6: n}}}
            private = protected(keys, unit, max_rows=5)
            cut = revealing(private.agg(dpp.count("x", epsilon=1)).n_rows_dropped(1, epsilon=1))
            assert self.told(cut, frame) == {"n_rows_dropped": {(): {0: n}}}

    def test_no_rows_are_empty_histograms_and_have_no_keys(self):
        for rows in (visits().clear(), visits().with_columns(p=pl.lit(None, pl.Int64))):
            for bounds in ({"max_rows": 1}, {"max_groups": 1, "max_rows_per_group": 2}):
                found = self.told(protected(GROUPS, **bounds).agg(*BOTH), rows)
                assert found == {name: {key: {} for key in GROUPS.rows()} for name in ("flavour", "price", "high")}
            released = self.to_polars(release_by(self.keys(["ward", "year"]), self.make(rows)))
            assert released.schema == {"ward": pl.String(), "year": pl.Int64(), "count": pl.Int64()}
            assert released.height == 0

    @pytest.mark.parametrize("counts", ["people", "rows"])
    @pytest.mark.parametrize(("weights", "step"), [("weight", None), ("amount", 0.25)])
    def test_weights_are_added_up(self, person, counts, weights, step):
        """Of a code, those of all rows that stay, or of each person as far as one may weigh."""
        bounds = {} if person is None else {"max_rows_per_group": MANY}
        asked = dpp.mode(
            "flavour", FLAVOURS, counts=dpp.weights(weights, max_weight=5, step=step, of=counts), epsilon=1
        )
        found = self.told(protected(GROUPS, person, **bounds).agg(asked), visits())["flavour"]
        weigh = by_hand.weight_of(weights, 5, step or 1)
        assert found == by_reference("flavour", person, people=counts == "people", weigh=weigh)
        assert max(max(own.values(), default=0) for own in found.values()) > 5  # several people

    def test_weights_and_totals_stay_with_the_groups_that_are_kept(self):
        """A person of two groups is kept in one, with all that they weigh there, or their whole total."""
        rows = [(p, group, "a", w, x) for p in range(COPIES) for group, w, x in ((0, 2, 5), (0, 2, 5), (1, 2, 2))]
        frame = pl.DataFrame(rows, schema=["p", "g", "a", "w", "x"], orient="row")
        asks = {
            "weighed": dpp.mode("a", ["b", "a"], counts=dpp.weights("w", max_weight=3), epsilon=1),
            "total": dpp.sum("x", 0, 5, per_person=(0, 7), epsilon=1),
        }
        every, found = (
            self.told(protected({"g": range(2)}, max_rows_per_group=1, **bounds).agg(**asks), frame)
            for bounds in ({}, {"max_groups": 1})
        )
        assert every["total"] == {(0,): {0: 7 * COPIES}, (1,): {0: 2 * COPIES}}
        # 2 and 2, at most 3, or 2; 5 and 5, at most 7, or 2.
        for name, code, first, second in (("weighed", 1, 3, 2), ("total", 0, 7, 2)):
            stayed = [found[name][0,][code] / first, found[name][1,][code] / second]
            assert stayed == list(map(int, stayed))
            assert sum(stayed) == COPIES
            assert fits(stayed, [0.5, 0.5])

    def test_totals_of_people_are_clipped_once_whatever_the_order_of_their_rows(self):
        """Values that go up and down: a total that is clipped on the way would be another one."""
        rows = [(1, 0, x) for x in (3, 3, -3, 3, -2)] + [(2, 0, x) for x in (-3, -3, -3, 3)] + [(3, 0, 1), (4, 1, 2)]
        rows += [(5, 0, None), (None, 0, 3), (6, 2, 3), (4, 1, -2)]
        frame = pl.DataFrame(rows, schema=["p", "g", "x"], orient="row")
        asks = {
            "both": dpp.sum("x", -3, 3, per_person=(-5, 3), epsilon=1),
            "above": dpp.sum("x", -3, 3, per_person=(2, 4), epsilon=1),
            "below": dpp.sum("x", -3, 3, per_person=(-9, -1), epsilon=1),
            "people": dpp.n_people(epsilon=1),
        }
        keys = {"g": [0, 1, 7]}
        for private in (protected(keys), protected(keys, max_rows_per_group=1)):
            assert self.told(private.agg(**asks), frame.sample(fraction=1, shuffle=True)) == {
                "both": {(0,): {0: 3 - 5 + 1}, (1,): {0: 0}, (7,): {}},
                "above": {(0,): {0: 4 + 2 + 2}, (1,): {0: 2}, (7,): {}},
                "below": {(0,): {0: -1 - 6 - 1}, (1,): {0: -1}, (7,): {}},
                "people": {(0,): {0: 4}, (1,): {0: 1}, (7,): {}},
            }

    def test_each_query_has_the_limits_of_its_frame(self):
        """Ten rows of each person in each of three groups, of which as much counts as a query's limits say."""
        rows = [(p, group) for p in range(9) for group in range(3)] * 10
        frame = pl.DataFrame(rows, schema=["p", "g"], orient="row").sample(fraction=1, shuffle=True)
        private = dpp.protect("p", max_groups=2, max_rows_per_group=2)
        for limits, expected in (
            ({}, 36),
            ({"max_rows_per_group": 7}, 126),
            ({"max_groups": None}, 54),
            ({"max_rows": 5, "max_groups": None, "max_rows_per_group": None}, 45),
            ({"max_rows": 30, "max_groups": None, "max_rows_per_group": 10}, 270),
        ):
            query = private.with_limits(**limits).group_by({"g": range(3)}).agg(n=dpp.len(epsilon=1))
            found = sum(sum(cells.values()) for cells in self.told(query, frame)["n"].values())
            assert expected * (1 - 1e-4) <= found <= expected

    # --- People in part ---

    @pytest.mark.parametrize("unit_of_loss", [0, 1], ids=["epsilon", "rho"])
    @pytest.mark.parametrize(("bounds", "of_rows", "of_people"), PARTS, ids=str)
    def test_people_beyond_the_limits_count_in_proportion(self, bounds, of_rows, of_people, unit_of_loss):
        """All their rows, of one weight; nobody within the limits changes, and no row is drawn."""
        frame = visits().with_columns(one=0, null=pl.when(pl.col("weight").is_null()).then(0))
        zero, some, loss = by_hand.category_code([0]), CODES["weight"], {("epsilon", "rho")[unit_of_loss]: 1}
        ends = ("weight", 5, 1, -1)
        totals = by_hand.weight_of("weight", 5, 1, -1, (-2, 9))
        huge = by_hand.weight_of("price", 2**28, 1, -(2**28))
        # How many parts a row, or person, has: 2^20 up to twice that, of the largest one.
        asked = {
            "rows": (Asked(dpp.len(**loss), zero, "one"), 20),
            "nulls": (Asked(dpp.null_count("weight", **loss), zero, "null"), 20),
            "values": (Asked(dpp.count("price", **loss), _not_nan, "price"), 20),
            "people": (Asked(dpp.n_people(**loss), zero, "one", people=True), 20),
            "flavours": (
                Asked(dpp.value_counts("flavour", FLAVOURS, **loss), CODES["flavour"], "flavour", people=True),
                20,
            ),
            "sum": (Asked(dpp.sum("weight", -1, 5, **loss), some, "weight", weigh=by_hand.weight_of(*ends)), 18),
            "huge": (Asked(dpp.sum("price", -(2**28), 2**28, step=1, **loss), _not_nan, "price", weigh=huge), 0),
            "total": (
                Asked(dpp.sum("weight", -1, 5, per_person=(-2, 9), **loss), some, "weight", people=True, weigh=totals),
                17,
            ),
            "mean": (Asked(dpp.mean("weight", -1, 5, **loss), some, "weight", weigh=by_hand.around(*ends)), 18),
            "squares": (Asked(dpp.var("weight", -1, 5, **loss), some, "weight", weigh=by_hand.squares(*ends)), 15),
            "number": (Asked(dpp.std("weight", -1, 5, **loss), some, "weight"), 20),
        }
        parts = {"squares": 1, "number": 2}
        rows, listed = frame.to_dicts(), [{"ward": ward} for ward in WARDS["ward"]]
        for unit in ("p", PAIR):
            query = protected(WARDS, unit, **bounds).agg(**{name: each.expr for name, (each, _) in asked.items()})
            found = self.told(query, frame, parts=parts)
            assert found == self.told(query, frame.sample(fraction=1, shuffle=True, seed=3), parts=parts)
            changed = 0
            for name, (each, bits) in asked.items():
                only_groups = each.people and name != "flavours"
                part = (of_people if only_groups else of_rows)[unit_of_loss]
                how = {"unit": unit, "people": each.people, "weigh": each.weigh}
                in_full = by_hand.histograms(rows, listed, each.column, each.code_of, **how)
                expected = in_full
                if part is not None:
                    expected = by_hand.weighed(rows, listed, each.column, each.code_of, part, bits, **how)
                    changed += expected != in_full
                assert found[name] == expected, name
            assert changed >= (6 if of_people[0] is None else 8)

    # --- Bounds ---

    @pytest.mark.parametrize(("asked", "bounds", "limits"), BOUNDS, ids=lambda value: str(value).replace("max_", ""))
    def test_what_stays_is_a_random_subset_of_a_persons_own_rows(self, asked, bounds, limits):
        """Many copies of one person, each with codes of its own, beside others with more; under both units of loss."""
        rows = [(p, group, 16 * p + code) for p in range(COPIES) for group, code in SPREAD] + OTHERS
        frame = pl.DataFrame(rows, schema=dict.fromkeys("pkx", pl.Int64), orient="row")
        frame = frame.sample(fraction=1, shuffle=True)
        candidates = range(16 * COPIES + 3)
        asks = {unit: getattr(pl.col("x").dp, asked)(candidates, **{unit: 1}) for unit in ("epsilon", "rho")}
        query = protected({"k": range(7)}, **bounds).agg(**asks)
        expected = law(SPREAD, limits, people=asked != "median")
        for name, found in self.told(query, frame).items():
            (claim,) = (each.query.claim for each in query._asks if each.name == name)
            own = stays_of_copies(found)
            assert follows(own, expected)
            # No more than the claim was charged for: groups of a mode, where people count, rows elsewhere.
            for cells in set(own):
                each = Counter(group for group, _ in ({(g, 0) for g, _ in cells} if asked == "mode" else cells))
                assert each.total() <= claim.contributions.total
                assert max(each.values()) <= claim.contributions.per_group

    @pytest.mark.parametrize("bounds", [{"max_groups": 1}, {"max_rows": 1}, {"max_rows": 1, "max_groups": 2}])
    def test_people_of_several_columns_have_each_an_order_of_their_own(self, bounds):
        """Also people who differ in one column alone: what stays of one tells nothing of the other."""
        rows = [(p, group, 16 * p + group) for p in range(COPIES) for group in range(3)]
        frame = pl.DataFrame(rows, schema=dict.fromkeys("nkx", pl.Int64), orient="row")
        text = (pl.col("n") // 60).cast(pl.String)
        frame = frame.select("k", "x", p=pl.col("n") % 60, part=text).sample(fraction=1, shuffle=True)
        private = protected({"k": range(3)}, PAIR, max_rows_per_group=1, **bounds)
        (found,) = self.told(private.agg(dpp.median("x", range(16 * COPIES + 3), epsilon=1)), frame).values()
        own = [cells[0] for cells in stays_of_copies(found) if len(cells) == 1]
        assert len(own) == COPIES
        # They differ in `p` alone, and in `part` alone.
        for pairs in (zip(own[::2], own[1::2], strict=True), zip(own[:1500], own[1500:], strict=True)):
            ninths = {((g, g), (h, h)): Fraction(1, 9) for g in range(3) for h in range(3)}
            assert follows(list(pairs), ninths)

    @pytest.mark.parametrize(
        ("has", "specs", "together"),
        [
            (SOME, TALLIES, TOGETHER),
            (SPREAD, OF_GROUPS, OF_GROUPS_TOGETHER),
            (SPREAD, SEVERAL, SEVERAL_TOGETHER),
            (SPREAD, ONE_ROW, ONE_ROW_TOGETHER),
        ],
        ids=["all", "of groups", "several rows", "one row"],
    )
    def test_one_order_decides_what_tallies_keep_together(self, has, specs, together):
        """Of contributing rows and people of their own: the joint law of what one person's rows and groups are in."""
        columns = list(specs)
        rows = [
            (p, group, *(16 * p + code if seen.sees is None or code in seen.sees else None for seen in specs.values()))
            for p in range(COPIES)
            for group, code in has
        ] + [(p, group, *[code] * len(columns)) for p, group, code in OTHERS]
        frame = pl.DataFrame(rows, schema=dict.fromkeys(["p", "k", *columns], pl.Int64), orient="row")
        asks = {
            name: getattr(pl.col(name).dp, "mode" if each.people else "median")(range(16 * COPIES + 3), epsilon=1)
            for name, each in specs.items()
        }
        query = protected({"k": range(7)}, max_rows=1).agg(**asks)
        changes = [{"limits": each.limits, "people": each.people} for each in specs.values()]
        found = self.told_of(query, frame.sample(fraction=1, shuffle=True), changes)
        own = {name: stays_of_copies(found[name]) for name in columns}
        for names in together:
            expected = joint_law(has, *(specs[name] for name in names))
            found_together = list(zip(*(own[name] for name in names), strict=True))
            assert follows(found_together, expected), names
            apart = independent(expected)
            assert not follows(found_together, {**dict.fromkeys(found_together, 0), **apart}), names

    def test_a_persons_sum_is_clipped_to_both_ends(self):
        """After all rows of the person in a group and code are added up; who has no row there adds nothing."""
        rows = [(p, p % 3, w) for p in range(40) for w in [2, 2, -1][: p % 4]] + [(p, 0, -2) for p in range(50, 60)] * 4
        frame = pl.DataFrame(rows, schema=["p", "k", "x"], orient="row").sample(fraction=1, shuffle=True, seed=2)
        ends = {"a": (1, 3), "b": (-5, 2), "c": (-2, -1), "d": (-100, 100)}
        query = protected({"k": range(4)}, max_rows=1).agg(**{name: dpp.sum("x", -3, 3, epsilon=1) for name in ends})
        query = alone(query)
        changes = []
        for name, each in ends.items():
            (rule,) = next(ask for ask in query._asks if ask.name == name).query.count_rules(pl.Int64())
            changes.append({"people": True, "limits": Limits(), "rule": clipped(rule, each)})
        found = self.told_of(query, frame, changes)
        totals = Counter()
        for p, k, x in rows:
            totals[p, k] += x
        for name, (low, high) in ends.items():
            sums = {
                group: sum(min(max(total, low), high) for (_, k), total in totals.items() if k == group)
                for group in range(4)
            }
            whose = {group for _, group in totals}
            expected = {(group,): {0: total} if group in whose else {} for group, total in sums.items()}
            assert found[name] == expected, name

    def test_a_row_is_as_likely_as_another_one_that_is_equal_to_many(self):
        """Of 99 rows A and one B, one in a hundred that stay is B: not every second, as of *distinct* rows."""
        people = 800
        frame = pl.DataFrame({"p": range(people)}).join(pl.DataFrame({"x": [0] * 99 + [1]}), how="cross")
        frame = frame.with_columns(g=pl.lit(0)).sample(fraction=1, shuffle=True)
        bounds = [{"max_rows": 1}, *({"max_rows_per_group": most, "max_groups": 1} for most in (1, 2))]
        for bound, groups in [*((bound, 1) for bound in bounds), (bounds[1], 2)]:
            query = protected({"g": range(groups)}, **bound).agg(x=dpp.median("x", range(2), epsilon=1))
            ((found, *others),) = (each.values() for each in self.told(query, frame).values())
            assert others == [{}] * (groups - 1)
            stayed = [found.get(0, 0), found.get(1, 0)]
            assert sum(stayed) == people * next(iter(bound.values()))
            assert fits(stayed, [99 / 100, 1 / 100])
            assert not fits(stayed, [1 / 2, 1 / 2])

    @pytest.mark.parametrize("nothing", ["no candidate", "null", "unlisted key", "null key"])
    def test_what_does_not_count_takes_nobodys_place(self, nothing):
        """One of a person's eleven rows counts: whatever the bounds, it stays."""
        values, keys = ["a"] * 11, list(range(11))
        for i in set(range(11)) - {7}:
            if nothing in ("no candidate", "null"):
                values[i] = "other" if nothing == "no candidate" else None
            else:
                keys[i] = -1 if nothing == "unlisted key" else None
        # NaN is no value, too.
        numbers = [7.0 if value == "a" else math.nan if nothing == "no candidate" else None for value in values]
        frame = pl.DataFrame({"p": [1] * 11, "k": keys, "x": values, "y": pl.Series(numbers, dtype=pl.Float64)})
        asked = [dpp.mode("x", ["b", "a"], epsilon=1), dpp.median("y", [6, 7], epsilon=1)]
        for bounds in ({"max_rows": 1}, {"max_groups": 1, "max_rows_per_group": 1}):
            found = self.told(protected({"k": range(11)}, **bounds).agg(*asked), frame)
            assert found == {name: {(k,): {1: 1} if k == 7 else {} for k in range(11)} for name in ("x", "y")}

    def test_every_release_is_bounded_afresh(self):
        frame = pl.DataFrame({"p": [i // 40 for i in range(480)], "k": [*range(40)] * 12, "x": [0] * 480})
        query = protected({"k": range(40)}, max_rows=1).agg(dpp.mode("x", [0, 1], epsilon=1))
        first, second = (self.told(query, frame)["x"] for _ in range(2))
        assert sum(counts.get(0, 0) for counts in first.values()) == 12
        assert first != second  # the same with a probability of at most 12! / 40**12, about 3e-11

    @pytest.mark.parametrize("bounds", [{"max_rows": 3}, {"max_groups": 3, "max_rows_per_group": 1}])
    def test_a_mean_is_a_sum_over_the_rows_that_it_counts(self, bounds):
        """Everyone's rows in a group say its number, so whichever rows stay, each group's mean is its number."""
        frame = pl.DataFrame({"p": [i // 24 for i in range(2400)], "g": [i % 8 for i in range(2400)]})
        query = protected({"g": range(8)}, **bounds).agg(x=dpp.mean("g", 0, 8, epsilon=10**6))
        released = self.to_polars(release_by(query, self.make(frame)))
        # A row more in one of some forty in the sum, or in their number, would show a hundred times as much.
        assert dict(released.rows()) == pytest.approx({g: g for g in range(8)}, abs=1e-4)

    @pytest.mark.parametrize("bounds", [{"max_rows": 3}, {"max_groups": 3, "max_rows_per_group": 1}, None])
    def test_each_shared_sum_is_drawn_once(self, bounds):
        """With much noise: a sum is the mean times the number of rows, and two counts of one column are one draw."""
        frame = pl.DataFrame({"p": [i // 24 for i in range(2400)], "g": [i % 8 for i in range(2400)]})
        for loss, draws in (({"epsilon": 1}, 1), ({"rho": Fraction(1, 8)}, 2)):  # a pair; a sum and a count
            query = protected({"g": range(8)}, **(bounds or {"unit": None})).agg(
                rows=dpp.count("g", **loss),
                again=dpp.count("g", **loss),
                total=dpp.sum("g", -20, 30, **loss),
                mean=dpp.mean("g", -20, 30, **loss),
            )
            assert len(query._request.claims) == draws
            released = self.to_polars(release_by(query, self.make(frame)))
            assert released["rows"].to_list() == released["again"].to_list()
            off = released.select((pl.col("total") - pl.col("mean") * pl.col("rows")).abs().max()).item()
            assert off <= 0.5 + 30 / 2 + 1e-6  # the number of rows, and the sum, are rounded to whole ones

    def test_a_pair_of_sums_is_of_the_clipped_values_of_rows_with_one(self):
        """With next to no noise: numbers of rows, sums and means of integers, some of which are null."""
        frame = pl.DataFrame({"p": range(600), "g": [i % 3 for i in range(600)], "x": [i % 41 - 8 for i in range(600)]})
        frame = frame.with_columns(x=pl.when(pl.col("p") % 7 > 0).then("x"))
        loss = {"epsilon": 10**9}
        query = protected({"g": range(3)}, unit=None).agg(
            rows=dpp.count("x", **loss),
            total=dpp.sum("x", -3, 20, step=1, **loss),
            mean=dpp.mean("x", -3, 20, step=1, **loss),
        )
        assert [draw.sums for ask in query._asks for draw in ask.query.shared] == [2, 2, 2]
        released = self.to_polars(release_by(query, self.make(frame))).sort("g")
        clipped = frame.drop_nulls().with_columns(pl.col("x").clip(-3, 20)).group_by("g").agg(
            rows=pl.len(), total=pl.sum("x"), mean=pl.mean("x")
        )  # fmt: skip
        for name in ("rows", "total", "mean"):
            assert released[name].to_list() == pytest.approx(clipped.sort("g")[name].to_list(), rel=1e-12)

    @pytest.mark.parametrize(
        ("low", "high", "step"), [(-3, 20, 1), (10**6 - 8, 10**6 + 9, 1), (-3, 20, 0.01), (-3, 20, 1e-5)], ids=str
    )
    def test_three_sums_are_of_the_clipped_values_of_rows_with_one(self, low, high, step):
        """With next to no noise; some values are null, and the bounds are far from 0, or far apart in steps."""
        values = [(number * 7919 % 2900) / 100 + low - 3 for number in range(600)]
        values = [math.floor(value) for value in values] if step == 1 else values
        frame = pl.DataFrame({"p": range(600), "g": [i % 3 for i in range(600)], "x": values})
        frame = frame.with_columns(x=pl.when(pl.col("p") % 7 > 0).then("x"))
        loss = {"epsilon": 10**12}  # noise of 2**30 parts of a row
        for unit, limits in ((None, {}), ("p", {"max_rows": 1})):
            query = protected({"g": range(3)}, unit=unit, **limits).agg(
                rows=dpp.count("x", **loss),
                total=dpp.sum("x", low, high, step=step, **loss),
                mean=dpp.mean("x", low, high, step=step, **loss),
                spread=dpp.var("x", low, high, step=step, **loss),
            )
            assert [draw.sums for ask in query._asks for draw in ask.query.shared] == [3] * 4
            released = self.to_polars(release_by(query, self.make(frame))).sort("g")
            clipped = frame.drop_nulls().with_columns(pl.col("x").clip(low, high)).group_by("g").agg(
                rows=pl.len(), total=pl.sum("x"), mean=pl.mean("x"), spread=pl.var("x")
            )  # fmt: skip
            for name in ("rows", "total", "mean", "spread"):
                true = clipped.sort("g")[name].to_list()
                assert released[name].to_list() == pytest.approx(true, rel=1e-6 if name == "spread" else 1e-12)

    # --- Public values ---

    def test_values_that_are_nearly_the_same_are_told_apart(self, near):
        """The first one is there once, the second one twice, and so on."""
        dtype = pl.Decimal(15, 2) if near == "Decimal" else COLUMNS[near].dtype
        values = pl.Series("x", NEAR[near], dtype)
        frame = pl.DataFrame({"x": values.gather([i for i in range(len(values)) for _ in range(i + 1)])})
        query = protected(unit=None).agg(x=dpp.mode("x", values, epsilon=1))
        assert self.told(query, frame)["x"][()] == {i: i + 1 for i in range(len(values))}
        query = protected({"x": values}, None).agg(n=dpp.count("x", epsilon=1))
        assert self.told(query, frame)["n"] == {(value,): {0: i + 1} for i, value in enumerate(values)}
        # And so an engine says how many constants it tells apart.
        engine = self.make(frame)
        prepare(query._request, engine)
        for listed in (values, pl.concat([values, values[:2], values[1:]])):
            assert engine.distinct([listed.to_frame(), listed[:1].to_frame()]) == [len(values), 1]

    @pytest.mark.parametrize("kind", ["keys", "keys of people", "candidates", "candidates of people"])
    def test_public_values_that_are_one_to_the_engine_are_refused_for_free(self, kind, notes, monkeypatch):
        engine = self.make(visits(), Noting(notes))
        counted = engine.distinct

        def without_case(lists):
            return counted([constants.with_columns(pl.col(pl.String).str.to_lowercase()) for constants in lists])

        monkeypatch.setattr(engine, "distinct", without_case)
        listed = pl.DataFrame({"year": [1, 2, 2, 3, 3, 1], "ward": ["a", "B", "c", "D", "d", "b"]})
        words = ["z", "y", "Äa", "x", "äa", "w"]
        if kind.startswith("candidates"):
            query, two = protected(unit=None).agg(x=dpp.mode("flavour", words, epsilon=1)), ("'Äa'", "'äa'")
            if kind == "candidates of people":
                private = protected(listed[:3], max_groups=1)
                query = private.agg(x=dpp.mode("flavour", words, epsilon=1)).n_rows_dropped(1, epsilon=1)
        else:
            two = ("(3, 'D')", "(3, 'd')")
            query = protected(listed, None).agg(x=dpp.count("price", epsilon=1))
            if kind == "keys of people":
                query = protected(listed, max_rows=1).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1)
        first, second = map(re.escape, two)
        message = rf"{kind[:4]}.* must be different .*{first} and {second}[\s\S]*Hint: "
        self.refuses(query, message, notes, engine)

    # --- Selected keys ---

    def keys(self, columns, unit="p", most=MANY, steps=lambda frame: frame, by=None):
        bounds = {} if unit is None else {"max_groups": most}
        private = steps(dpp.protect(unit, **bounds))
        return revealing_keys(private.keys(*columns, epsilon=1, delta=1e-3), by)

    def found(self, query, frame, budget=None):
        """Key -> people, in the order of the release."""
        released = self.to_polars(release_by(query, self.make(frame), budget))
        assert released.columns == [*query._asks[0].query.columns, "count"]
        return {row[:-1]: row[-1] for row in released.rows()}

    def test_keys_are_found_as_by_the_reference(self, person):
        frame = visits()
        for columns in (["ward"], ["year", "ward"]):
            found = self.found(self.keys(columns, person), frame)
            assert found == by_hand.people_by_key(frame.to_dicts(), columns, person)
            assert list(found) == sorted(found)
            assert len(found) > 3

    def test_a_persons_keys_are_a_random_subset(self):
        """Two of each copy's four; rows with null, of nobody, and of the same key take no place."""
        rows = [(p, 8 * p + key) for p in range(COPIES) for key in (0, 1, 2, 3, 3, 3)]
        rows += [(p, None) for p in range(COPIES)] + [(None, 8 * p + 7) for p in range(COPIES)]
        rows += [(-1 - p, 8 * COPIES + p % 5) for p in range(500)]
        frame = pl.DataFrame(rows, schema={"p": pl.Int64, "k": pl.Int64}, orient="row")
        found = self.found(self.keys(["k"], most=2), frame.sample(fraction=1, shuffle=True))
        assert [found.pop((8 * COPIES + key,)) for key in range(5)] == [100] * 5
        assert set(found.values()) == {1}
        own = [[] for _ in range(COPIES)]
        for (key,) in found:
            own[key // 8].append(key % 8)
        counted = Counter(map(tuple, own))
        outcomes = list(combinations(range(4), 2))
        assert set(counted) == set(outcomes)
        assert fits([counted[outcome] for outcome in outcomes], [1 / 6] * 6)

    def test_only_keys_that_are_shown_leave(self):
        frame = visits()
        everything = by_hand.people_by_key(frame.to_dicts(), ["ward", "year"], "p")
        middle = sorted(everything.values())[len(everything) // 2]
        found = self.found(self.keys(["ward", "year"], by=ShowFrom(middle)), frame)
        assert found == {key: people for key, people in everything.items() if people >= middle}
        assert list(found) == sorted(found)
        assert self.found(self.keys(["ward"], by=ShowFrom(MANY)), frame) == {}

    def test_every_key_is_drawn_for_once(self, tmp_path):
        log, frame = tmp_path / "draws", visits()
        found = self.found(self.keys(["ward", "year"], by=ShowEverything(str(log))), frame)
        assert sorted(map(int, log.read_text().split())) == sorted(found.values())

    def test_keys_after_expressions(self, notes):
        frame = visits()

        def steps(private):
            return private.with_columns(decade=pl.col("year") // 10)

        query = self.keys(["decade"], None, steps=steps)
        if self.make(frame).runs_expressions:
            assert self.found(query, frame) == by_hand.people_by_key(steps(frame).to_dicts(), ["decade"], None)
        else:
            self.refuses(query, "query must not have row operations", notes)

    # --- People as rows ---

    OF_PEOPLE: ClassVar[dict[str, OfPerson]] = {
        "rows": OfPerson("rows"),
        "rows with a value, at most two in a group": OfPerson("rows", "price", 2),
        "squares": OfPerson("squares"),
        "squares of rows with a value": OfPerson("squares", "weight"),
        "most rows": OfPerson("most rows"),
        "most rows with a value, at most two": OfPerson("most rows", "price", 2),
        "groups": OfPerson("groups"),
        "groups with a value": OfPerson("groups", "amount"),
        "groups as people": OfPerson("rows", "flavour", people=True),
        "largest float": OfPerson("largest code", "amount"),
        "smallest float": OfPerson("smallest code", "price"),
        "largest integer": OfPerson("largest code", "weight"),
        "smallest integer": OfPerson("smallest code", "weight"),
        "largest total": OfPerson("largest total", "weight", people=True),
        "smallest total of floats": OfPerson("smallest total", "price", people=True),
    }

    @pytest.mark.parametrize("unit_of", ["p", PAIR], ids=str)
    @pytest.mark.parametrize("keys", [None, GROUPS])
    def test_numbers_of_each_person_are_those_by_hand(self, keys, unit_of):
        frame = visits()
        if not self.make(frame).counts_per_person:
            return
        listed = None if keys is None else keys.to_dicts()
        # All at once: each has columns of its own, whatever it shares with others.
        found = self.told(numbers_of(unit_of, self.OF_PEOPLE.values(), 1000, keys), frame).values()
        for (way, number), told in zip(self.OF_PEOPLE.items(), found, strict=True):
            expected = by_hand.numbers(frame.to_dicts(), listed, unit_of, number.of(frame.schema), number.column)
            assert told == {(): dict(Counter(expected))}, way
            assert len(expected) > 2

    def test_two_limits_of_drawn_rows_are_found(self):
        """With hardly any noise: in rho, of all rows of a person and of those in a group."""
        rows = [(p, ward, n) for p in range(40) for ward, most in (("a", 3), ("b", 1), ("c", 9)) for n in range(most)]
        frame = pl.DataFrame(rows, {"p": pl.Int64, "ward": pl.String, "x": pl.Int64}, orient="row")
        if not self.make(frame).counts_per_person:
            return
        asked = dpp.protect("p").group_by({"ward": ["a", "b"]}).agg(half=dpp.median("x", range(9)))
        request, settled = asked.scaled_to(rho=10**5)._request, []
        released = self.to_polars(release.release_by(request, self.make(frame), on_settled=settled.append))
        found = [(one.what, int(one.value)) for one in settled[0].all_found]
        assert found == [("max_rows", 4), ("max_rows_per_group", 3)]
        assert released.sort("ward")["half"].to_list() == [1, 0]

    @pytest.mark.parametrize("unit_of", ["p", PAIR], ids=str)
    @pytest.mark.parametrize("by", [("ward",), ("year", "ward")], ids=str)
    def test_keys_of_each_person_are_counted(self, by, unit_of):
        """Each once, without those that hold a null; who has none is no row."""
        frame = visits()
        if not self.make(frame).counts_per_person:
            return
        unit = [unit_of] if isinstance(unit_of, str) else [*unit_of]
        own = {(*(row[name] for name in unit), *(row[name] for name in by)) for row in frame.to_dicts()}
        expected = Counter(Counter(one[: len(unit)] for one in own if None not in one).values())
        query = dpp.protect(unit_of, max_rows=1).agg(dpp.median(PersonNumber.name(0), range(99), epsilon=1))
        asked = OfKeys(query._request.pipeline, None, query._asks, by=by)
        (found,) = self.told(dpp.PrivateQuery(asked, None, None), frame).values()
        assert found == {(): dict(expected)}
        assert len(expected) > 2

    @pytest.mark.parametrize("by", [("ward",), ("year", "ward")], ids=str)
    def test_selected_groups_are_answered_in_stages(self, by, tmp_path, notes):
        """With hardly any noise the groups of all people; a data set with a name selects once."""
        if not self.make(visits()).counts_per_person:
            query = dpp.protect("p").group_by(*by).agg(dpp.n_people()).scaled_to(epsilon=9, delta=1e-6)
            self.refuses(query, "this engine can't count the groups of each person", notes)
            return
        frame = visits().filter(pl.col("ward") != "unlisted")
        frame = pl.concat([frame, frame.with_columns(pl.col("p") + 50), frame.with_columns(pl.col("p") + 100)])
        budget = dpp.Budget(epsilon=10**6, delta=1e-3, path=tmp_path / "ledger.db")
        private = dpp.protect("p", budget=budget, dataset="visits").group_by(*by)
        asked = {
            "people": dpp.n_people(),
            "rows": dpp.len(),
            "top": dpp.mode("flavour", FLAVOURS),
            "weights": dpp.sum("weight"),
        }
        query = private.agg(**asked).scaled_to(epsilon=10**5, delta=1e-6)
        released = self.to_polars(release_by(query, self.make(frame), intervals=True)).sort(by)
        rows = frame.drop_nulls(["p", *by])
        true = rows.group_by(by).agg(pl.col("p").n_unique(), pl.len(), pl.col("weight").sum()).sort(by)
        assert released.select(by).rows() == true.select(by).rows()
        assert (released["people"] - true["p"]).abs().max() <= 1
        assert (released["rows"] - true["len"]).abs().max() <= 3
        assert (released["weights"] - true["weight"]).abs().max() <= 30
        spent, unread = budget.spent, Noting(notes)
        if self.make(frame).preprocessing() is not None:  # otherwise nothing is cached
            again = self.to_polars(release_by(query, self.make(frame, unread), intervals=True)).sort(by)
            assert_frame_equal(again, released)
            assert budget.spent == spent
            assert not notes.exists()
        alone = dpp.protect("p").group_by(*by).agg(**asked).scaled_to(epsilon=1, delta=1e-6)
        none = self.to_polars(release_by(alone, self.make(frame.filter(p=1)), intervals=True))
        assert none.schema == released.schema
        assert not none.height

    @pytest.mark.parametrize("by", [None, ["north", "south", "nowhere"], "ward"], ids=str)
    def test_modes_choose_among_selected_candidates(self, by, tmp_path, notes):
        """With hardly any noise the value of most people; a data set with a name selects once; few people have none."""

        def grouped(private):
            return private if by is None else private.group_by(by if isinstance(by, str) else {"ward": by})

        asked = {
            "top": dpp.mode("flavour"),
            "two": dpp.top_k("flavour", 2),
            "rows": dpp.mode("flavour", counts="rows"),
            "year": dpp.mode("year", gap=by is None),
        }
        if not self.make(visits()).counts_per_person:
            query = grouped(dpp.protect("p")).agg(top=dpp.mode("flavour")).scaled_to(epsilon=9, delta=1e-6)
            self.refuses(query, "this engine can't count the (candidates|groups) of each person", notes)
            return
        frame = visits().filter(pl.col("ward") != "unlisted")
        is_even = pl.col("p") % 2 == 0
        often = {"flavour": pl.lit("sweet"), "year": pl.lit(2021, pl.Int64)}
        frame = frame.with_columns(
            **{name: pl.when(is_even).then(value).otherwise(name) for name, value in often.items()}
        )
        frame = pl.concat([frame, *(frame.with_columns(pl.col("p") + more) for more in (50, 100, 150))])
        budget = dpp.Budget(epsilon=10**6, delta=1e-3, path=tmp_path / "ledger.db")
        private = grouped(dpp.protect("p", budget=budget, dataset="visits"))
        query = private.agg(**asked).scaled_to(epsilon=10**5, delta=1e-6)
        released = self.to_polars(release_by(query, self.make(frame)))
        assert released.height == (1 if by is None else 3)
        for answers in released.iter_rows(named=True):
            year = answers["year"]["answer"] if by is None else answers["year"]
            if answers.get("ward") == "nowhere":  # one of the values that people have elsewhere
                assert answers["top"] in frame["flavour"]
                continue
            assert (answers["top"], answers["two"][0], answers["rows"], year) == ("sweet", "sweet", "sweet", 2021)
            assert len({*answers["two"]}) == 2
        spent, unread = budget.spent, Noting(notes)
        if self.make(frame).preprocessing() is not None:  # otherwise nothing is cached
            again = self.to_polars(release_by(query, self.make(frame, unread)))
            assert_frame_equal(again, released, check_row_order=False)
            assert budget.spent == spent
            assert not notes.exists()
        alone = grouped(dpp.protect("p")).agg(**asked).scaled_to(epsilon=1, delta=1e-6)
        none = self.to_polars(release_by(alone, self.make(frame.filter(p=1))))
        assert none.schema == released.schema
        assert none.select(*asked).null_count().row(0) == (none.height,) * 4

    @pytest.mark.parametrize("unit_of", ["p", PAIR], ids=str)
    @pytest.mark.parametrize("keys", [None, GROUPS])
    def test_rows_are_cut_where_an_output_loses_some(self, keys, unit_of, notes):
        """As it is asked: by the bounds that `protect` has, of what each output counts."""
        few = (10, Limits(3, 2, 2)) if unit_of == "p" else (4, Limits(1, 1, 1))
        limits = Limits(rows=few[0]) if keys is None else few[1]
        bounds = {f"max_{name}": most for name, most in vars(limits).items() if most is not None}
        frame = visits()
        if not self.make(frame).counts_per_person:
            query = protected(keys, unit_of, **bounds).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1)
            self.refuses(query, "this engine can't count", notes)
            return
        listed = None if keys is None else keys.to_dicts()
        asks = {
            "price": (dpp.median("price", range(11), epsilon=1), False),
            "flavour": (dpp.mode("flavour", FLAVOURS, epsilon=1), True),
        }
        cut, dropped = set(), Counter()
        for name, (_, people) in asks.items():
            seen = by_hand.contributing_rows(frame.to_dicts(), listed, name, CODES[name], unit_of)
            own, contributing = Limits(groups=limits.groups) if people else limits, [(*each[:3], 1) for each in seen]
            cut |= by_hand.cut(contributing, own, people)
            dropped |= Counter(by_hand.rows_cut(contributing, own, people))
        query = protected(keys, unit_of, **bounds).agg(*(asked for asked, _ in asks.values()))
        for most in (1, 3):  # those whose rows are more are clipped
            (histogram,) = self.told(query.n_rows_dropped(most, epsilon=1), frame).values()
            assert histogram == {(): {0: sum(min(number, most) for number in dropped.values())}}
        assert 1 < len(cut) < frame.select(PAIR if unit_of == PAIR else "p").n_unique() - 1

    CUTS: ClassVar[dict[str, Any]] = {
        "rows": [("price", Limits(rows=3), False)],
        "groups": [("flavour", Limits(groups=2), True)],
        "rows of a group": [("price", Limits(rows_per_group=2), False)],
        "codes of a group": [("flavour", Limits(rows_per_group=1), True)],
        "codes of all": [("flavour", Limits(rows=2), True)],
        "rows of the groups": [("price", Limits(groups=2, rows_per_group=2, rows=3), False)],
        "totals": [("weight", Limits(), (0, 4)), ("weight", Limits(), (-1, 100))],
        "weights of codes": [("weighted", Limits(), (0, 4)), ("weighted", Limits(), (1, 100))],
        "several": [("price", Limits(rows_per_group=2), False), ("flavour", Limits(groups=2), True)],
        "nobody": [("price", Limits(rows=MANY), False), ("weight", Limits(), (-MANY, MANY))],
    }

    @pytest.mark.parametrize("keys", [None, GROUPS])
    @pytest.mark.parametrize("cut", CUTS)
    def test_people_who_are_cut_are_those_of_the_reference(self, cut, keys):
        frame, engine = visits(), self.make(visits())
        if not engine.counts_per_person:
            return
        asks = {
            "price": dpp.median("price", range(11), epsilon=1),
            "flavour": dpp.mode("flavour", FLAVOURS, epsilon=1),
            "weight": dpp.sum("weight", -2, 3, epsilon=1),
            "weighted": dpp.mode("flavour", FLAVOURS, counts=dpp.weights("weight", max_weight=3), epsilon=1),
        }
        of_asked = protected(keys, max_rows=1).agg(**asks)._request.bind(engine)
        specs, over, dropped = [], set(), Counter()
        listed = None if keys is None else keys.to_dicts()
        for name, limits, people in self.CUTS[cut]:
            (output,) = (each for each in of_asked.outputs if each.name == name)
            spec = of_asked.specs[output.specs[0]]
            rule = clipped(spec.rule, people) if isinstance(people, tuple) else spec.rule
            drawn = {"limits": limits, "weight": None, "bits": 0}  # nobody counts in part
            specs.append(replace(spec, people=bool(people), rule=rule, **drawn))
            column, least = ("flavour", 0) if name == "weighted" else (name, -2)
            seen = by_hand.contributing_rows(frame.to_dicts(), listed, column, CODES[column], "p")
            weigh = by_hand.weight_of("weight", 3, 1, least)
            contributing = [(p, key, code, weigh(row)) for p, key, code, row in seen]
            over |= by_hand.cut(contributing, limits, people)
            dropped |= Counter(by_hand.rows_cut(contributing, limits, people))
        work = revealing(numbers_of("p", [OfPerson("rows")], MANY))._request.bind(engine)
        (spec,), per_person = work.specs, PerPerson(work.per_person.privacy_unit, of_asked.keys, tuple(specs))
        spec = replace(spec, columns=(pl.col(ROWS_CUT),))
        work = replace(work, specs=(spec,), per_person=per_person)
        (told,) = self.to_polars(engine.prepare(work)().presented()).to_series().to_list()
        ones = frame.with_columns(one=0).to_dicts()
        rows = Counter(repr(p) for p, *_ in by_hand.contributing_rows(ones, listed, "one", int, "p"))
        assert dict(json.loads(told)[1]) == dict(Counter(dropped[p] for p in over))
        assert keys is None or bool(over) == (cut != "nobody")
        assert len(over) < len(rows) or keys is None

    # --- Charges and draws ---

    @pytest.fixture
    def notes(self, tmp_path):
        return tmp_path / "reads"

    def query(self, **options):
        return revealing(protected(GROUPS, max_rows=3).agg(dpp.median("price", range(11), epsilon=1), **options))

    @pytest.mark.parametrize("asked", ["answers", "keys"])
    def test_rows_are_read_only_after_the_one_charge(self, asked, notes):
        budget = dpp.Budget(epsilon=1, delta=2e-3)
        dear = self.query(more=dpp.mode("flavour", FLAVOURS, epsilon=1))
        query = self.query() if asked == "answers" else self.keys(["ward"])
        with pytest.raises(dpp.BudgetExceededError):
            release_by(dear, self.make(visits(), Noting(notes)), budget)
        assert budget.spent == 0
        assert not notes.exists()
        release_by(query, self.make(visits()), budget)
        assert budget.remaining == 0 or asked == "keys"  # they spend a delta, too
        assert budget.log().height == 1
        with pytest.raises(dpp.BudgetExceededError):
            release_by(query, self.make(visits(), Noting(notes)), budget)
        assert not notes.exists()
        release_by(query, self.make(visits(), Noting(notes)), dpp.Budget(epsilon=1, delta=2e-3))
        assert notes.exists()

    @pytest.mark.parametrize("asked", ["answers", "keys"])
    def test_a_failure_shows_no_value_and_stays_charged(self, asked, notes, capfd):
        budget = dpp.Budget(epsilon=1, delta=2e-3)
        query = self.query() if asked == "answers" else self.keys(["ward"])
        with pytest.raises(dpp.ReleaseError) as caught:
            release_by(query, self.make(visits(), Failing(notes)), budget)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert str(caught.value) == str(dpp.ReleaseError())
        assert SECRET not in "".join(capfd.readouterr())
        assert notes.exists()
        assert budget.remaining == 0 or asked == "keys"
        assert budget.log().height == 1

    def test_every_group_is_drawn_once_for_each_output(self, tmp_path):
        log = tmp_path / "draws"
        query = revealing(protected(GROUPS, max_rows=3).agg(*BOTH), log)
        released = self.to_polars(release_by(query, self.make(visits())))
        assert sorted(released.select("ward", "year").rows()) == sorted(GROUPS.rows())
        drawn = [text for name in ("flavour", "price", "high") for text in released[name]]
        assert sorted(drawn) == sorted(log.read_text().splitlines())
        again = self.to_polars(release_by(query, self.make(visits())))
        marks = {json.loads(text)[0] for text in [*drawn, *again["flavour"], *again["price"], *again["high"]]}
        assert len(marks) == 2 * 3 * len(GROUPS)

    def test_what_is_cached_is_shown_in_every_way_for_nothing(self, tmp_path, notes):
        """With intervals or without, and of groups with enough people: the same numbers, and no row is read."""
        budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger.db")
        frame = dpp.protect("p", max_rows=3, budget=budget, dataset="visits").group_by(GROUPS)
        numbers = {
            "people": dpp.n_people(epsilon=0.5),
            "mean": dpp.mean("price", 0, 10, step=0.5, epsilon=0.5),
            "sum": dpp.sum("weight", -2, 4, epsilon=0.5),
            "all": dpp.value_counts("flavour", FLAVOURS, epsilon=0.5),
            "variance": dpp.var("price", 0, 10, step=0.5, epsilon=0.5),
        }
        choices = {
            "mode": dpp.mode("flavour", FLAVOURS, epsilon=0.5, too_few=3),
            "median": dpp.median("price", range(11), epsilon=0.5),
            "led": dpp.mode("flavour", FLAVOURS, epsilon=0.5, gap=True),
            "prices": dpp.quantile("price", [0.1, 0.9], range(11), epsilon=0.5),
        }
        query, keys = frame.agg(**numbers, **choices), GROUPS.columns

        def shown(read=None, **how):
            return self.to_polars(release_by(query, self.make(visits(), read), **how)).sort(keys)

        plain, unread = shown(min_people=10**6), Noting(notes)
        others = [*numbers, *choices][1:]
        assert plain.select(pl.col(others).null_count()).row(0) == (len(GROUPS),) * len(others)
        people = plain["people"].to_list()
        ranged, every = shown(unread, intervals=True), shown(unread, intervals="all")
        ends = [f"{name}_{end}" for name in numbers for end in ("low", "high")]
        assert [name for name in every.columns if name not in plain.columns] == ends
        assert every.schema == ranged.schema
        assert {name: ranged.schema[name] for name in plain.columns} == plain.schema
        assert_frame_equal(shown(unread), ranged.select(plain.columns))
        assert_frame_equal(every.select(plain.columns), ranged.select(plain.columns))
        assert ranged["people"].to_list() == people
        # Some of the numbers follow from these draws.
        some = frame.agg(**{name: numbers[name] for name in ("sum", "variance", "people", "all")})
        of_some = self.to_polars(release_by(some, self.make(visits(), unread), intervals=True)).sort(keys)
        assert_frame_equal(of_some, ranged.select(of_some.columns))
        all_numbers = len(GROUPS) * (4 + len(FLAVOURS))
        (claim,), (bits,) = query._asks[0].query.noise(), query._asks[0].query.bits_of_parts()

        def check_ends(found, beta):
            """Parts are rounded to the nearest whole number, and the ends to the one beyond."""
            width = Fraction(noise_bound(claim, beta), 2**bits)
            for off in (found["people"] - found["people_low"], found["people_high"] - found["people"]):
                assert all(width - Fraction(501, 1000) < one < width + Fraction(1501, 1000) for one in off)

        for found, beta in ((ranged, 0.05), (every, 1 - 0.95 ** (1 / all_numbers))):
            check_ends(found, beta)
        # By the number, and by its lower end: the largest of the groups is enough.
        for found, intervals, sure in ((ranged, True, False), (every, "all", True)):
            column = "people_low" if sure else "people"
            least = max(1, found[column].max())
            hidden = shown(unread, intervals=intervals, min_people=least, sure=sure)
            seen = ["people", "people_low", "people_high", *keys]
            enough = pl.when(pl.col(column) >= least).then(pl.exclude(seen)).otherwise(None)
            assert_frame_equal(hidden, found.with_columns(enough.name.keep()))
        assert not notes.exists()
        assert budget.spent == 4.5
        drawn = shown(unread, intervals=True, ignore_cache=True)
        check_ends(drawn, 0.05)
        assert drawn.columns[2:6] == ["people", "people_low", "people_high", "mean"]
        assert budget.spent == 9
        assert notes.exists()

    # --- Answers ---

    def test_a_huge_loss_gives_the_true_answers_and_ranges_of_polars(self):
        """Of every kind of output; columns have names that must be quoted, and one group has no rows."""
        frame = visits().with_columns(
            pl.col("weight").ge(3).alias("late"),
            pl.col("weight").cast(pl.Decimal(12, 2)).alias("paid"),
            (dt.date(2020, 1, 1) + pl.duration(days=pl.col("weight"))).cast(pl.Date).alias("day"),
        )
        frame = frame.rename({"ward": "ward.id", "flavour": "x`y"})
        if not {"Decimal", "Date"} <= self.kinds:
            frame = frame.drop("paid", "day")
        huge, shares = {"epsilon": 10**15}, [0.1, 0.5, 0.9]
        asked = {
            "rows": dpp.len(**huge),
            "people": dpp.n_people(**huge),
            "values": dpp.count("price", **huge),
            "late": dpp.sum("late", 0, 1, **huge),
            "sum": dpp.sum("weight", -2, 4, rho=10**25),
            "totals": dpp.sum("weight", -2, 4, per_person=(-3, 9), **huge),
            "mean": dpp.mean("amount", -1, 3, step=0.125, **huge),
            "variance": dpp.var("amount", -1, 3, step=0.125, **huge),
            "deviation": dpp.std("weight", -2, 4, rho=10**25),
            "nulls": dpp.null_count("x`y", **huge),
            "share": dpp.share("late", **huge),
            "counts": dpp.value_counts("x`y", FLAVOURS, **huge),
            "counts by rho": dpp.value_counts("weight", range(3), rho=10**25),
            "few": dpp.mode("x`y", FLAVOURS, too_few=1000, **huge),
        }
        choices = {
            "top": dpp.mode("x`y", FLAVOURS, **huge),
            "top of rows": dpp.mode("x`y", FLAVOURS, counts="rows", **huge),
            "top 2 by weight": dpp.top_k("x`y", 2, FLAVOURS, counts=dpp.weights("weight", max_weight=6), **huge),
            "price": dpp.median("price", dpp.grid(0, 10**6, step=0.01), **huge),
            # Of nobody the answer is any candidate, and its ends are those of the candidates.
            "middle": dpp.quantile("price", 0.51, dpp.grid(0, 10**6, step=0.01), confidence=0.95, **huge),
        }
        lists = {
            "prices": dpp.quantile("price", shares, dpp.grid(0, 1_000, step=0.000_001), **huge),
            "few prices": dpp.quantile("price", shares, [0.0, 1.25, 9.0, 30.0], **huge),
            "weights": dpp.quantile("weight", shares, range(-5, 1_000_000), **huge),
        }
        if "day" in frame.columns:
            asked["paid"] = dpp.sum("paid", 0, 5_000, **huge)
            days = dpp.grid(dt.date(2020, 1, 1), dt.date(2020, 2, 1), step="1d")
            lists["days"] = dpp.quantile("day", shares, days, **huge)
        private = dpp.protect("p", max_rows=1_000).group_by({"ward.id": ["south", "nowhere", "north"]})
        query = private.agg(**asked, **choices, **lists)
        expected = query.release(frame, intervals=True).sort("ward.id")
        released = self.to_polars(release_by(query, self.make(frame), intervals=True)).sort("ward.id")
        assert released.schema == expected.schema
        names = [*choices, *lists]
        assert_frame_equal(released.drop(names), expected.drop(names))
        known = pl.col("ward.id") != "nowhere"
        assert_frame_equal(released.filter(known), expected.filter(known))
        for name in lists:
            (nobody,) = released.filter(~known)[name].to_list()
            assert len(nobody) == 3
            assert nobody == sorted(nobody)

    # --- Errors ---

    def refuses(self, query, message, notes, engine=None):
        """See that nothing is charged, and no row read."""
        budget = dpp.Budget(epsilon=9, delta=0.1)
        with pytest.raises((TypeError, ValueError, pl.exceptions.ColumnNotFoundError), match=message):
            release_by(query, engine or self.make(visits(), Noting(notes)), budget)
        assert budget.spent == 0
        assert not notes.exists()

    # What is asked, of which keys (selected ones, where nothing is asked) and people; and what is said.
    MISFITS: ClassVar[dict[str, Any]] = {
        "no such column": (lambda: dpp.mode("nowhere", [1], epsilon=1), GROUPS, "p", "nowhere"),
        "no such key": (lambda: BOTH[0], {"hospital": ["A"]}, "p", "the key column 'hospital'|the column 'hospital'"),
        "no such person": (lambda: BOTH[0], GROUPS, "patient", "the privacy unit 'patient'|the column 'patient'"),
        "a median of texts": (
            lambda: dpp.median("flavour", [1, 2], epsilon=1),
            GROUPS,
            "p",
            "Output 'flavour': candidates of type Int64 can't be a quantile of a column of type String",
        ),
        "texts as keys of numbers": (lambda: BOTH[0], {"year": ["2020"]}, "p", "keys of column 'year' must be values"),
        "numbers as keys of texts": (
            lambda: BOTH[0],
            {"ward": [1]},
            "p",
            r"keys of column 'ward' must be values of its type[\s\S]*Hint: give texts",
        ),
        "numbers as candidates of texts": (
            lambda: dpp.mode("flavour", [1, 2], epsilon=1),
            GROUPS,
            "p",
            r"can't be categories of a column of type String[\s\S]*Hint: give texts",
        ),
        "keys of floats": (None, ["price"], "p", "keys: the column 'price' must hold text, .* got Float64"),
        "no such unlisted key": (None, ["nowhere"], "p", "the key column 'nowhere'|the column 'nowhere'"),
        "nobody with keys": (None, ["ward"], "patient", "the privacy unit 'patient'|the column 'patient'"),
    }

    @pytest.mark.parametrize("misfit", MISFITS)
    def test_what_does_not_fit_the_columns_is_free(self, misfit, notes):
        expr, keys, unit, message = self.MISFITS[misfit]
        if expr is None:
            self.refuses(self.keys(keys, unit), message, notes)
        else:
            self.refuses(revealing(protected(keys, unit, max_rows=1).agg(expr())), message, notes)

    EXPRESSIONS: ClassVar[dict[str, Any]] = {
        "filter": (lambda frame: frame.filter(pl.col("price") > 3), pl.col("price")),
        "with_columns": (lambda frame: frame.with_columns(price=pl.col("price") - 1), pl.col("price")),
        "an expression": (lambda frame: frame, pl.col("price") + 1),
        "a filter of an output": (lambda frame: frame, pl.col("price").filter(pl.col("price") > 3)),
    }

    @pytest.mark.parametrize("case", EXPRESSIONS)
    def test_expressions_run_or_are_refused_for_free(self, case, notes):
        steps, column = self.EXPRESSIONS[case]
        query = protected(GROUPS, None, steps).agg(x=column.dp.median(range(11), epsilon=1))
        frame = visits()
        engine = self.make(frame, Noting(notes))
        if engine.runs_expressions:
            made = steps(frame).group_by("ward", "year").agg(x=column).explode("x")  # by Polars' own filter
            told = by_hand.histograms(made.to_dicts(), GROUPS.to_dicts(), "x", CODES["price"])
            assert self.told(query, frame) == {"x": told}
        else:
            message = rf"Polars expressions[\s\S]*Hint: .* on {engine.rows_are} first"
            self.refuses(revealing(query), message, notes, engine)

    @pytest.mark.parametrize("not_true", [False, None])
    def test_rows_where_a_condition_is_not_true_take_nobodys_place(self, not_true, notes):
        """The condition is true in one of a person's eleven rows: whatever the bounds, it stays."""
        true = [True if i == 7 else not_true for i in range(11)]
        frame = pl.DataFrame({"p": [1] * 11, "k": range(11), "c": pl.Series(true, dtype=pl.Boolean), "x": [1.5] * 11})
        asked = {
            "median": pl.col("x").filter("c").dp.median([0, 1.5], epsilon=1),
            "weighed": pl.col("k")
            .filter("c")
            .dp.mode([0, 7], counts=dpp.weights(pl.col("k"), max_weight=9), epsilon=1),
            "len": dpp.len(where="c", epsilon=1),
            "n_people": dpp.n_people(where=pl.col("c"), epsilon=1),
        }
        codes = {"median": {1: 1}, "weighed": {1: 7}, "len": {0: 1}, "n_people": {0: 1}}
        for bounds in ({"max_rows": 1}, {"max_groups": 1, "max_rows_per_group": 1}):
            query = protected({"k": range(11)}, **bounds).agg(**asked)
            if self.make(frame).runs_expressions:
                expected = {name: {(k,): code if k == 7 else {} for k in range(11)} for name, code in codes.items()}
                assert self.told(query, frame) == expected
                continue
            engine = self.make(frame, Noting(notes))
            ways = {"median": "value END", "len": "1 END, and request dpp.c", "n_people": r"0 END.*per_person=\(0, 1\)"}
            for name, way in ways.items():
                one = protected({"k": range(11)}, **bounds).agg(**{name: asked[name]})
                hint = rf"Hint: make the column on {engine.rows_are} first.*CASE WHEN condition THEN .*{way}"
                self.refuses(one, hint, notes, engine)
