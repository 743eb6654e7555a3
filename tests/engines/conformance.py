"""What every engine must do, as its contract says (`dp_polars/_engines/contract.py`), seen through whole releases.

To run it for an engine: derive a class named `Test…` from `Conformance` and say how the engine is made.
"""

from __future__ import annotations

import json
import math
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.claims import Claim
from dp_polars._engines.bounding import Kept
from dp_polars._engines.contract import Engine
from dp_polars._frames.release import release_by
from dp_polars._queries.codings import Weighing
from dp_polars._queries.query import Answers, Evidence, HistogramQuery
from tests import by_hand
from tests.engines.test_bounding import SPREAD, law
from tests.registry import COLUMNS, KEYS, UNITS, ask
from tests.statistical.goodness import fits

SECRET = "secret-hiv-7"
COPIES = 3000
MANY = 10**6


# --- What a release can tell of an engine ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Reveal(HistogramQuery):
    """A query that answers with the whole histogram, and a mark that no two draws share. No private query at all."""

    asked: HistogramQuery
    claim: Claim
    log: str | None = None  # the file where draws are noted
    weights: Weighing | None = None

    def __str__(self) -> str:
        return f"histogram of a {self.asked}"

    @property
    def fixed_type(self) -> pl.DataType | None:
        return self.asked.fixed_type

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        self.asked.answer_type(columns[0])
        return pl.String()

    @property
    def counts_people(self) -> bool:
        return self.asked.counts_people

    @property
    def bounds_people(self) -> bool:
        return self.asked.bounds_people

    def range_of(self, relation):
        return self.asked.range_of(relation)

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        (asked,) = self.asked.evidence(*columns[:1])
        return (replace(asked, weighing=self.weights),)

    def error(self, size: int, beta: float) -> float:
        return self.asked.error(size, beta)

    def answers(self, histograms, *columns: pl.DataType) -> Answers:
        (histogram,) = histograms
        told, ends = [], np.cumsum(histogram.sizes)
        for size, end in zip(histogram.sizes.tolist(), ends.tolist(), strict=True):
            own = slice(end - size, end)
            codes, weights = histogram.codes[own].tolist(), histogram.weights[own].tolist()
            assert codes == sorted(set(codes)), "each code must be there once, in ascending order"
            told.append(json.dumps([os.urandom(8).hex(), list(zip(codes, weights, strict=True))]))
        if self.log is not None:
            with open(self.log, "a") as file:  # noqa: PTH123  # also where a worker of Spark runs this
                file.write("".join(f"{text}\n" for text in told))
        return Answers(pl.Series(told, dtype=pl.String))


@dataclass(frozen=True)
class SecondColumn(Weighing):
    """Weights that stand in the second column."""

    def weigher(self):
        return lambda columns: columns[1].fill_null(0).to_numpy().astype(np.int64)


def revealing(query, log=None):
    """The same query, answering with histograms."""
    query._asks = tuple(
        replace(ask, query=Reveal(ask.query, ask.query.claim, None if log is None else str(log))) for ask in query.asks
    )
    return query


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


def protected(keys=None, unit="p", steps=lambda frame: frame, **bounds):
    """A private frame, or its groups."""
    frame = steps(dpp.protect(unit, **bounds))
    return frame if keys is None else frame.group_by(keys)


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
            "weight": rng.integers(0, 5, n).tolist(),
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

# What one person's rows are bounded by: what is asked, the bounds given to `protect`, and what then may stay.
BOUNDS = [
    ("mode", {"max_groups": 1}, Kept(groups=1)),
    ("mode", {"max_groups": 2, "max_rows_per_group": 1}, Kept(groups=2)),
    ("mode", {"max_rows": 2, "max_groups": 3, "max_rows_per_group": 2}, Kept(groups=2)),
    ("median", {"max_rows": 3}, Kept(rows=3)),
    ("median", {"max_rows_per_group": 2}, Kept(rows_per_group=2)),
    ("median", {"max_groups": 2, "max_rows_per_group": 1}, Kept(groups=2, rows_per_group=1)),
    ("median", {"max_groups": 2, "max_rows_per_group": 3}, Kept(groups=2, rows_per_group=3)),
    ("median", {"max_groups": 1, "max_rows": 2}, Kept(groups=1, rows=2)),
    ("median", {"max_rows": 3, "max_rows_per_group": 2}, Kept(rows=3, rows_per_group=2)),
    ("median", {"max_rows": 3, "max_groups": 2, "max_rows_per_group": 2}, Kept(rows=3, groups=2, rows_per_group=2)),
]


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
        for name, table in (("column", COLUMNS), ("key", KEYS), ("unit", UNITS)):
            if name in metafunc.fixturenames:
                known = self.kinds | self.more_units if name == "unit" else self.kinds
                metafunc.parametrize(name, [kind for kind in table if kind in known])

    def told(self, query, frame, budget=None, log=None):
        """Output -> key -> code -> weight, by a release."""
        released = self.to_polars(release_by(revealing(query, log), self.make(frame), budget))
        names = [ask.name for ask in query.asks]
        keys = [name for name in released.columns if name not in names]
        return {
            name: {tuple(row[key] for key in keys): dict(json.loads(row[name])[1]) for row in released.to_dicts()}
            for name in names
        }

    # --- Histograms ---

    @pytest.fixture(params=[None, "p"])
    def person(self, request):
        return request.param

    def test_values_of_every_type_have_the_codes_of_the_reference(self, column, person):
        kind = COLUMNS[column]
        nan = [math.nan] if kind.dtype.is_float() else []
        values = [value for i, value in enumerate(kind.values * 3) for _ in range(i % 4)] + nan + [None]
        frame = pl.DataFrame(
            {
                "x": pl.Series(values * 2, dtype=kind.dtype, strict=False),
                "p": [None if i % 9 == 8 else i % 7 for i in range(2 * len(values))],
                "g": [i % 3 for i in range(2 * len(values))],
            }
        )
        asked, codes = {}, {}
        if kind.categories is not None:
            asked["mode"] = dpp.mode("x", pl.Series(kind.categories, dtype=kind.dtype), epsilon=1)
            codes["mode"] = by_hand.category_code(kind.categories)
        if column in ("Boolean", "Enum"):
            asked["of the type"] = dpp.mode("x", epsilon=1)
            codes["of the type"] = by_hand.category_code(
                [False, True] if column == "Boolean" else kind.dtype.categories.to_list()
            )
        for i, (given, points) in enumerate(kind.points):
            asked[f"quantile {i}"] = dpp.quantile("x", 0.3, given, epsilon=1)
            codes[f"quantile {i}"] = by_hand.nearest_code(points)
        bounds = {} if person is None else {"max_rows_per_group": MANY}
        query = protected({"g": [2, 1, 7]}, person, **bounds).agg(**asked)
        for name, found in self.told(query, frame).items():
            assert found == by_hand.histograms(
                frame.to_dicts(),
                [{"g": 2}, {"g": 1}, {"g": 7}],
                "x",
                codes[name],
                unit=person,
                people=person is not None and not name.startswith("quantile"),
            ), name

    @pytest.mark.parametrize("grouped", [True, False])
    def test_rows_and_people_are_counted_as_by_the_reference(self, person, grouped):
        frame, keys = visits(), GROUPS if grouped else None
        bounds = {} if person is None else {"max_rows_per_group": MANY}
        found = self.told(protected(keys, person, **bounds).agg(*BOTH), frame)
        rows, listed = frame.to_dicts(), GROUPS.to_dicts() if grouped else None
        by_rows = by_hand.histograms(rows, listed, "price", by_hand.nearest_code(range(11)), unit=person)
        assert found["price"] == found["high"] == by_rows
        assert found["flavour"] == by_hand.histograms(
            rows, listed, "flavour", by_hand.category_code(FLAVOURS), unit=person, people=person is not None
        )
        assert min(len(each) for each in by_rows.values()) == 0 or not grouped

    def test_keys_of_every_type_name_their_groups(self, key):
        dtype, values = KEYS[key]
        own = pl.Series("k", [*values, None] * 4, dtype=dtype)
        frame = pl.DataFrame({"k": own, "x": [i % 3 for i in range(len(own))]})
        listed = values[1::-1]
        keys = pl.DataFrame({"k": pl.Series(listed, dtype=pl.String() if isinstance(dtype, pl.Categorical) else dtype)})
        found = self.told(protected(keys, None).agg(dpp.mode("x", [1, 0], epsilon=1)), frame)
        code_of = by_hand.category_code([1, 0])
        assert found["x"] == by_hand.histograms(frame.to_dicts(), [{"k": k} for k in listed], "x", code_of)

    def test_people_of_every_type_are_neither_merged_nor_divided(self, unit):
        dtype, people = UNITS[unit]
        ids = [person for person in people for _ in range(3)]
        nobody = [None, None]
        if dtype.is_float():
            ids = [-0.0 if person == 0 and i % 2 else person for i, person in enumerate(ids)]
            nobody = [None, math.nan]
        rows = list(zip([*ids, *nobody], [i % 2 for i in range(len(ids))] + [2, 2], strict=True))
        np.random.default_rng(1).shuffle(order := list(range(len(rows))))
        frame = pl.DataFrame(
            {"p": pl.Series([rows[i][0] for i in order], dtype=dtype), "x": [rows[i][1] for i in order]}
        )
        query = protected(max_rows=1).agg(
            dpp.mode("x", range(3), epsilon=1), dpp.median("x", range(3), rho=1).alias("m")
        )
        found = self.told(query, frame)
        assert found["x"][()] == {0: len(people), 1: len(people)}
        assert sum(found["m"][()].values()) == len(people)
        assert 2 not in found["m"][()]

    def test_the_order_of_rows_does_not_matter(self):
        query = protected(GROUPS, max_rows_per_group=MANY).agg(*BOTH)
        told = self.told(query, visits())
        assert told == self.told(query, visits().sample(fraction=1, shuffle=True, seed=3))

    def test_no_rows_are_empty_histograms(self):
        for rows in (visits().clear(), visits().with_columns(p=pl.lit(None, pl.Int64))):
            for bounds in ({"max_rows": 1}, {"max_groups": 1, "max_rows_per_group": 2}):
                found = self.told(protected(GROUPS, **bounds).agg(*BOTH), rows)
                assert found == {name: {key: {} for key in GROUPS.rows()} for name in ("flavour", "price", "high")}

    def test_weights_of_rows_are_added_up(self, person):
        """Those of a code, of all rows that stay; here they stand in a column of their own."""
        bounds = {} if person is None else {"max_rows_per_group": MANY}
        query = revealing(protected(GROUPS, person, **bounds).agg(dpp.median("price", range(11), epsilon=1)))
        (one,) = query.asks
        columns = (*one.columns, pl.col("weight"))
        query._asks = (replace(one, columns=columns, query=replace(one.query, weights=SecondColumn())),)
        frame = visits()
        released = self.to_polars(release_by(query, self.make(frame)))
        found = {row[:2]: dict(map(tuple, json.loads(row[2])[1])) for row in released.rows()}
        code_of = by_hand.nearest_code(range(11))
        assert found == by_hand.histograms(
            frame.to_dicts(), GROUPS.to_dicts(), "price", code_of, unit=person, weight="weight"
        )

    # --- Bounds ---

    @pytest.mark.parametrize(("asked", "bounds", "kept"), BOUNDS, ids=lambda value: str(value).replace("max_", ""))
    def test_what_stays_is_a_random_subset_of_a_persons_own_rows(self, asked, bounds, kept):
        """Many copies of one person, each with codes of its own, beside others with more; under both units of loss."""
        rows = [(p, group, 16 * p + code) for p in range(COPIES) for group, code in SPREAD]
        rows += [(-1 - p % 500, p % 7, 16 * COPIES + p % 3) for p in range(2000)] + [(-501, 2, 16 * COPIES)] * 500
        frame = pl.DataFrame(rows, schema=dict.fromkeys("pkx", pl.Int64), orient="row")
        frame = frame.sample(fraction=1, shuffle=True)
        candidates = range(16 * COPIES + 3)
        asks = {unit: ask(asked, "x", candidates, **{unit: 1}) for unit in ("epsilon", "rho")}
        query = protected({"k": range(7)}, **bounds).agg(**asks)
        expected = law(SPREAD, kept, people=asked == "mode")
        outcomes = sorted(expected)
        for name, found in self.told(query, frame).items():
            (claim,) = (each.query.claim for each in query.asks if each.name == name)
            own = [[] for _ in range(COPIES)]
            for (group,), counts in found.items():
                for code, n in counts.items():
                    if code < 16 * COPIES:
                        own[code // 16] += [(group, code % 16)] * n
            counted = Counter(tuple(sorted(cells)) for cells in own)
            assert set(counted) <= set(expected)
            assert fits([counted[outcome] for outcome in outcomes], [float(expected[each]) for each in outcomes])
            # No more than the claim was charged for: groups where people count, rows elsewhere.
            for cells in counted:
                each = Counter(group for group, _ in (cells if asked == "median" else {(g, 0) for g, _ in cells}))
                assert each.total() <= claim.contributions.total
                assert max(each.values()) <= claim.contributions.per_group

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
        frame = pl.DataFrame({"p": [1] * 40, "k": range(40), "x": [0] * 40})
        query = protected({"k": range(40)}, max_rows=1).agg(dpp.mode("x", [0, 1], epsilon=1))
        chosen = [
            [key for key, counts in self.told(query, frame)["x"].items() if counts] for _ in range(8)
        ]  # all the same with probability 40**-7, about 6e-12
        assert all(len(keys) == 1 for keys in chosen)
        assert len(set(map(tuple, chosen))) > 1

    # --- Charges and draws ---

    @pytest.fixture
    def notes(self, tmp_path):
        return tmp_path / "reads"

    def query(self, **options):
        return revealing(protected(GROUPS, max_rows=3).agg(dpp.median("price", range(11), epsilon=1), **options))

    def test_rows_are_read_only_after_a_charge(self, notes):
        budget, engine = dpp.Budget(epsilon=1), self.make(visits(), Noting(notes))
        with pytest.raises(dpp.BudgetExceededError):
            release_by(self.query(more=dpp.mode("flavour", FLAVOURS, epsilon=1)), engine, budget)
        assert budget.spent == 0
        assert not notes.exists()
        release_by(self.query(), self.make(visits(), Noting(notes)), budget)
        assert notes.exists()

    def test_a_release_is_charged_once(self, notes):
        budget = dpp.Budget(epsilon=1)
        release_by(self.query(), self.make(visits()), budget)
        assert budget.remaining == 0
        assert budget.log().height == 1
        with pytest.raises(dpp.BudgetExceededError):
            release_by(self.query(), self.make(visits(), Noting(notes)), budget)
        assert not notes.exists()

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

    # --- Errors ---

    def test_a_failure_shows_no_value_and_stays_charged(self, notes, capfd):
        budget = dpp.Budget(epsilon=1)
        with pytest.raises(dpp.ReleaseError) as caught:
            release_by(self.query(), self.make(visits(), Failing(notes)), budget)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert str(caught.value) == str(dpp.ReleaseError())
        assert SECRET not in "".join(capfd.readouterr())
        assert notes.exists()
        assert budget.remaining == 0

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
    }

    @pytest.mark.parametrize("misfit", MISFITS)
    def test_what_does_not_fit_the_columns_is_free(self, misfit, notes):
        expr, keys, unit, message = self.MISFITS[misfit]
        budget = dpp.Budget(epsilon=1)
        query = revealing(protected(keys, unit, max_rows=1).agg(expr()))
        with pytest.raises((TypeError, ValueError, pl.exceptions.ColumnNotFoundError), match=message):
            release_by(query, self.make(visits(), Noting(notes)), budget)
        assert budget.spent == 0
        assert not notes.exists()

    EXPRESSIONS: ClassVar[dict[str, Any]] = {
        "filter": (lambda frame: frame.filter(pl.col("price") > 3), pl.col("price")),
        "with_columns": (lambda frame: frame.with_columns(price=pl.col("price") - 1), pl.col("price")),
        "an expression": (lambda frame: frame, pl.col("price") + 1),
    }

    @pytest.mark.parametrize("case", EXPRESSIONS)
    def test_expressions_run_or_are_refused_for_free(self, case, notes):
        steps, column = self.EXPRESSIONS[case]
        query = protected(GROUPS, None, steps).agg(x=column.dp.median(range(11), epsilon=1))
        frame, budget = visits(), dpp.Budget(epsilon=1)
        engine = self.make(frame, Noting(notes))
        if engine.runs_expressions:
            made = steps(frame).with_columns(x=column)
            code_of = by_hand.nearest_code(range(11))
            expected = by_hand.histograms(made.to_dicts(), GROUPS.to_dicts(), "x", code_of)
            assert self.told(query, frame) == {"x": expected}
        else:
            with pytest.raises(TypeError, match=rf"Polars expressions[\s\S]*Hint: .* on {engine.rows_are} first"):
                release_by(revealing(query), engine, budget)
            assert budget.spent == 0
            assert not notes.exists()
