"""Publications and cubes through the `release` of databases and of Spark: one charge, and the answers of Polars.

To run it: derive a class named `Test…` from `Publications`, and say how a table is made and what releases from it.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

import dp_polars as dpp

VISITS = pl.DataFrame(
    {"patient": [number // 3 for number in range(900)], "ward": ["A", "B", "C"] * 300, "month": [1, 2, 3] * 300}
)
ROWS = pl.DataFrame(
    {
        "p": [i % 70 for i in range(700)],
        "g": [["A", "B", "Z", None][i % 4] for i in range(700)],
        "y": [2020 + i % 7 % 3 for i in range(700)],
    }
)
DIMENSIONS = {"g": ["B", "A", "C"], "y": [2022, 2020]}
TABLES = [[("g",), ("y",)], [("g", "y")]]
BOUNDS: list[dict[str, int]] = [{"max_groups": 1}, {"max_rows": 3}, {"max_groups": 2, "max_rows_per_group": 1}]


def publication(budget=None, dataset=None, **loss):
    private = dpp.protect("patient", max_groups=3, max_rows_per_group=1, budget=budget, dataset=dataset)
    return dpp.publication(
        by_ward=private.group_by({"ward": ["A", "B", "C"]}).agg(people=dpp.n_people(**loss)),
        by_month=private.group_by({"month": [1, 2, 3]}).agg(rows=dpp.len(**loss), people=dpp.n_people(**loss)),
        in_all=private.agg(month=dpp.median("month", range(1, 13), **loss)),
    )


class Publications:
    """The suite."""

    door: Any  # the module with `release`

    @abstractmethod
    def table(self, frame):
        """A table with these rows, of which answers can be kept."""

    def to_polars(self, released):
        return released

    def release(self, query, table, **options):
        """What was released, as frames of Polars; cubes as they are."""
        released = self.door.release(query, table, **options)
        named = released if isinstance(released, dict) else {"": released}
        frames = {name: one if isinstance(one, dpp.Cube) else self.to_polars(one) for name, one in named.items()}
        return frames if isinstance(released, dict) else frames[""]

    def test_one_table_or_one_for_each(self):
        table, half = self.table(VISITS), self.table(VISITS.head(450))
        asked = publication(epsilon=10**6)
        released = self.release(asked, table, intervals=True, min_people=2)
        assert released["by_ward"].sort("ward").rows() == [(ward, 300, 300, 300) for ward in "ABC"]
        assert released["by_month"]["rows"].to_list() == [300] * 3
        released = self.door.release(asked, {"by_ward": table, "by_month": half, "in_all": table})
        found = [self.to_polars(released[name])["people"].to_list() for name in ("by_ward", "by_month")]
        assert found == [[300] * 3, [150] * 3]
        with pytest.raises(ValueError, match="must have the names of the queries"):
            self.door.release(asked, {"by_ward": table})

    def test_it_is_charged_as_one_and_cached_for_each(self, tmp_path):
        table, budget = self.table(VISITS), dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
        asked = publication(budget, "visits").scaled_to(epsilon=1, delta=1e-6)
        released, again = (self.release(asked, table) for _ in range(2))
        assert all(released[name].sort("*").equals(again[name].sort("*")) for name in released)
        assert budget.remaining == 0
        charged = budget.log()["what"].str.split(":").list.first().to_list()
        assert charged == ["by_ward", "by_month", "by_month", "in_all"]
        with pytest.raises(dpp.BudgetExceededError):
            self.door.release(asked, table, ignore_cache=True)
        with pytest.raises(TypeError, match="budget must be left out"):
            self.door.release(asked, table, budget=dpp.Budget(epsilon=1))

    def test_cubes_keys_and_dropped_rows_are_in_one_charge(self, tmp_path):
        private = dpp.protect("p", max_groups=1, max_rows_per_group=4)
        by_g = private.group_by({"g": ["A", "B"]}).agg(rows=dpp.len(mechanism="discrete_gaussian"))
        asked = dpp.publication(
            by_g=by_g,
            cells=private.cube(DIMENSIONS, counts="rows"),
            tables=private.cube(DIMENSIONS, tables=TABLES[0]),
            keys=private.keys("g", with_counts=True),
            cut=by_g.n_rows_dropped(10),
        ).scaled_to(epsilon=10**6, delta=1e-6)
        budget, table = dpp.Budget(epsilon=10**6, delta=1e-6, path=tmp_path / "ledger.db"), self.table(ROWS)
        released, there = self.release(asked, table, budget=budget, intervals=True), asked.release(ROWS)
        assert [*released] == [*asked.queries]
        assert budget.log()["when"].n_unique() == 1
        assert budget.remaining < 1
        assert released["cells"].to_frame().columns == there["cells"].to_frame().columns
        assert released["tables"].count().value == there["tables"].count().value == 50
        assert released["keys"]["g"].to_list() == ["A", "B", "Z"]
        assert released["by_g"].sort("g")["rows"].to_list() == there["by_g"]["rows"].to_list()
        assert released["cut"]["n_rows_dropped"].item() == there["cut"].item() > 0

    def test_limits_and_clipping_bounds_are_found_as_on_polars(self, tmp_path):
        """Both stages are charged at once, what was found stays what it is, and a cached release finds it again."""

        def asked(budget=None, dataset=None):
            private = dpp.protect("p", budget=budget, dataset=dataset)
            by_g = private.group_by({"g": ["A", "B"]}).agg(
                people=dpp.n_people(), rows=dpp.len(), years=pl.col("y").dp.sum(), year=pl.col("y").dp.mean()
            )
            typical = private.agg(pl.col("y").dp.median(range(2020, 2023)), mode=pl.col("g").dp.mode(["A", "B"]))
            return dpp.publication(by_g=by_g, typical=typical).scaled_to(epsilon=10**6)

        budget, table = dpp.Budget(epsilon=10**6, path=tmp_path / "ledger.db"), self.table(ROWS)
        here, there, again = asked(budget, "rows"), asked(), asked(budget, "rows")
        released, expected = self.release(here, table), there.release(ROWS)
        assert budget.log()["when"].n_unique() == 1
        assert budget.remaining == 0
        for name in ("by_g", "typical"):
            found = [(one.name, one.value) for one in here.queries[name].found]
            assert found == [(one.name, one.value) for one in there.queries[name].found]
        answers = released["by_g"].sort("g")
        for column in ("people", "rows", "years", "year"):
            off = (answers[column].cast(pl.Float64) - expected["by_g"][column].cast(pl.Float64)).abs().max()
            assert off <= expected["by_g"][column].max() / 1000
        assert self.release(again, table)["by_g"].sort("g").equals(answers)
        assert again.queries["by_g"].found == here.queries["by_g"].found

    def test_grids_of_medians_are_found_as_on_polars(self):
        """Bounds of dates are years, and all values of a column are far from the middle of two points."""
        day = pl.date(2024, 3, 1) + pl.duration(days=pl.col("y") % 3)
        rows = ROWS.with_columns(
            day=day,
            at=day.cast(pl.Datetime("us")),
            cost=pl.col("y") * 1.25,
            paid=(pl.col("y") * 3).cast(pl.Decimal(9, 2)),
        )
        columns = ["y", "day", "at", "cost", "paid"]

        def asked():
            private = dpp.protect("p", max_rows=9).group_by({"g": ["A", "B", "nobody"]})
            return private.agg(*(pl.col(name).dp.median() for name in columns)).scaled_to(epsilon=10**6)

        here, there = asked(), asked()
        answers, expected = self.release(here, self.table(rows)).sort("g"), there.release(rows).sort("g")
        assert [(one.name, one.value) for one in here.found] == [(one.name, one.value) for one in there.found]
        for name in columns:
            one, two = (
                each[name].cast(pl.Datetime("us")).to_physical()
                if name in ("day", "at")
                else each[name].cast(pl.Float64)
                for each in (answers, expected)
            )
            assert one.to_list() == two.to_list(), name
            assert one.is_null().to_list() == [False, False, True]

    def test_what_is_refused_of_one_table_costs_nothing(self):
        budget = dpp.Budget(epsilon=1)
        table, other = self.table(VISITS), self.table(VISITS.drop("month"))
        asked = publication(epsilon=Fraction(1, 10))
        with pytest.raises((TypeError, ValueError)):
            self.door.release(asked, {"by_ward": table, "by_month": other, "in_all": table}, budget=budget)
        assert budget.remaining == 1
        self.door.release(asked, table, budget=budget)
        assert budget.remaining == Fraction(6, 10)

    @pytest.mark.parametrize("tables", [None, [("y",), ("g",), ()], [("y", "g")]], ids=str)
    def test_a_cube_is_that_of_polars(self, tables):
        # 10 rows of each person, at most: none is dropped.
        loss = {"rho": 10**7} if tables else {"epsilon": 10**5}
        query = dpp.protect("p", max_rows=10).cube(DIMENSIONS, counts="rows", tables=tables, **loss)
        cube, there = self.release(query, self.table(ROWS)), query.release(ROWS)
        assert isinstance(cube, dpp.Cube)
        assert cube.to_frame().equals(there.to_frame())
        assert cube.counts(by="y")["count"].sum() == cube.count().value > 200
        assert repr(cube) == repr(there)
        assert cube.counts(by="y").equals(there.counts(by="y"))

    @pytest.mark.parametrize("tables", TABLES, ids=str)
    @pytest.mark.parametrize("bounds", BOUNDS, ids=str)
    def test_tables_are_of_the_rows_that_the_bounds_keep(self, bounds, tables):
        counts = "people" if bounds == {"max_groups": 1} else "rows"
        query = dpp.protect("p", **bounds).cube(DIMENSIONS, counts=counts, tables=tables, rho=10**9)
        own = ROWS.filter(pl.col("g").is_in(DIMENSIONS["g"]), pl.col("y").is_in(DIMENSIONS["y"]))
        most = 1 if counts == "people" else bounds.get("max_rows", 2)
        each = pl.len().clip(upper_bound=bounds.get("max_rows_per_group", 99))
        rows = own.group_by("p", "g", "y").agg(n=each).group_by("p").agg(pl.col("n").sum())
        cube = self.release(query, self.table(ROWS))
        assert cube.count().value == rows["n"].clip(upper_bound=most).sum()
        assert cube.counts(by="g")["count"].sum() == cube.counts(by="y")["count"].sum() == cube.count().value

    def test_a_person_is_in_one_cell_and_without_people_every_row_counts(self):
        query = dpp.protect("p", max_groups=1).cube(DIMENSIONS, epsilon=10**5)
        table = self.table(ROWS)
        assert self.release(query, table).count().value == 50  # the others have a year that is not listed
        every_row = dpp.protect(None).cube({"g": ["A", "B"]}, epsilon=10**5)
        assert self.release(every_row, table).counts(by="g")["count"].to_list() == [175, 175]

    @pytest.mark.parametrize("loss", [{"epsilon": 1, "delta": 1e-6}, {"rho": 1}], ids=str)
    def test_cubes_are_cached_and_intervals_are_left_out(self, tmp_path, loss):
        budget = dpp.Budget(rho=10, path=tmp_path / "ledger.db")
        private = dpp.protect("p", max_groups=1, budget=budget, dataset="rows")
        query, table = private.cube(DIMENSIONS, tables=TABLES[0], **loss), self.table(ROWS)
        first, again = (self.release(query, table) for _ in range(2))
        assert first.to_frame().equals(again.to_frame())
        assert first.count() == again.count()
        for shown in ({"intervals": True}, {"min_people": 5}, {"sure": True}):
            with pytest.raises(ValueError, match="must be left out"):
                self.door.release(query, table, **shown)
        assert budget.log().height == 2
        assert budget.spent == 1 or "epsilon" in loss

    @pytest.mark.parametrize("max_parts", [1, 2])
    def test_parts_are_the_same_in_every_query(self, max_parts):
        """Each patient has rows in three wards, of which two are listed."""
        table = self.table(VISITS.with_columns(age=pl.col("patient")))
        private = dpp.protect("patient", max_groups=1, max_rows_per_group=1)
        by_age = private.group_by({"age": range(300)})
        asked = {
            "one": by_age.agg(n=dpp.n_people(epsilon=10**6)),
            "other": by_age.agg(n=dpp.len(epsilon=10**6)),
            "in_all": private.agg(n=dpp.n_people(epsilon=10**6)),
        }
        parts = dpp.publication(asked, by={"ward": ["B", "A"]}, max_parts=max_parts)
        released = {name: one.sort("ward") for name, one in self.release(parts, table).items()}
        one, other = (released[name].sort("ward", "age") for name in ("one", "other"))
        assert one.equals(other)
        assert one.group_by("age").agg(pl.col("n").sum())["n"].to_list() == [max_parts] * 300
        in_all = one.group_by("ward", maintain_order=True).agg(pl.col("n").sum())
        assert in_all.rows() == released["in_all"].rows()
        least = 90 if max_parts == 1 else 300
        assert in_all["n"].min() >= least

    def test_keys_of_parts_and_their_cache(self, tmp_path):
        table, budget = self.table(VISITS), dpp.Budget(epsilon=100, delta=1e-2, path=tmp_path / "ledger.db")
        private = dpp.protect("patient", max_groups=2, max_rows_per_group=1, budget=budget, dataset="visits")
        asked = dpp.publication(
            months=private.keys("month"), people=private.agg(n=dpp.n_people()), by={"ward": ["A", "B"]}
        ).scaled_to(epsilon=10, delta=1e-3)
        released, again = (self.release(asked, table) for _ in range(2))
        assert all(released[name].sort("*").equals(again[name].sort("*")) for name in released)
        assert released["months"].sort("ward").rows() == [("A", 1), ("B", 2)]
        assert budget.log().height == 2
