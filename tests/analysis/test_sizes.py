"""How large groups must be, how far ahead modes, what bounds drop: by brute force; synthetic rows to try them."""

import datetime as dt
import itertools
import math
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars.analysis import synthetic
from tests.helpers import reference
from tests.helpers.refusals import refused

PRIVATE = dpp.protect("patient", max_groups=1, max_rows_per_group=2)


def outputs(**amounts):
    return PRIVATE.group_by({"ward": ["A", "B", "C"]}).agg(
        people=dpp.n_people(**amounts),
        rows=dpp.len(**amounts),
        top=dpp.mode("reason", ["fall", "flu", "cold"], **amounts),
        by_cost=dpp.mode("reason", ["fall", "flu"], counts=dpp.weights("cost", max_weight=500, step=1), **amounts),
        age=dpp.median("age", range(121), **amounts),
        total=dpp.sum("days", -10, 30, step=0.5, **amounts),
        per_person=dpp.sum("days", 0, 30, step=0.5, per_person=(0, 90), **amounts),
        mean=dpp.mean("days", -10, 30, step=0.5, **amounts),
        share=dpp.share("smoker", **amounts),
        deviation=dpp.std("days", 0, 30, step=0.5, **amounts),
        counts=dpp.value_counts("reason", ["fall", "flu"], **amounts),
        three=dpp.top_k("reason", 2, ["fall", "flu", "cold"], **amounts),
    )


@pytest.mark.parametrize("amounts", [{"epsilon": 1}, {"rho": 0.1}])
def test_errors_are_those_of_explain_and_shares_of_the_largest_answer(amounts):
    query, sizes = outputs(**amounts), [7, 1000, 100_000]
    errors = analysis.error_by_size(query, sizes)
    assert errors["output"].unique(maintain_order=True).to_list() == [ask.name for ask in query._asks]
    assert errors["size"].to_list() == sizes * len(query._asks)
    known = {row["output"]: row for row in query.explain().iter_rows(named=True)}
    largest = {"total": 30, "per_person": 90, "by_cost": 500}
    for row in errors.iter_rows(named=True):
        name, size = row["output"], row["size"]
        explained = known[name]
        assert row["error_unit"] == explained["error_unit"]
        assert row["size_unit"] == (
            "rows" if name in {"rows", "age", "total", "mean", "share", "deviation"} else "people"
        )
        if name in {"mean", "share", "deviation"}:
            width = {"mean": 40, "share": 1, "deviation": 15 * math.sqrt(2)}[name]  # of two rows, by one less
            assert explained["error_95"] is None
            assert row["relative"] == pytest.approx(row["error_95"] / width)
        else:
            assert row["error_95"] == explained["error_95"]
            assert row["relative"] == pytest.approx(row["error_95"] / (size * largest.get(name, 1)))
    # The note of explain has the error of a mean at 1,000 rows, in three digits, rounded up.
    (at_1000,) = errors.filter(output="mean", size=1000)["error_95"]
    noted = float(known["mean"]["note"].split("1,000 rows: ±")[1].split(";")[0])
    assert at_1000 <= noted <= at_1000 * 1.01


@pytest.mark.parametrize("relative", [0.5, Fraction(1, 10), 0.013])
def test_the_size_that_is_needed_is_the_smallest_that_does(relative):
    query = outputs(epsilon=0.7)
    needed = analysis.size_needed(query, relative)
    assert needed["output"].to_list() == [ask.name for ask in query._asks]
    for row in needed.iter_rows(named=True):
        sizes = [size for size in (row["size"] - 1, row["size"], row["size"] + 1, 3 * row["size"]) if size]
        of_output = analysis.error_by_size(query, sizes).filter(output=row["output"])
        assert of_output["size_unit"].unique().to_list() == [row["size_unit"]]
        for size, found in of_output.select("size", "relative").rows():
            assert (found <= float(relative)) == (size >= row["size"])


def test_an_accuracy_that_was_asked_for_says_how_many_people_that_takes():
    query = dpp.protect("patient", max_groups=1).agg(people=dpp.n_people(within=30))
    assert analysis.size_needed(query, 0.1).rows() == [("people", 300, "people")]
    assert analysis.size_needed(query, 10**-18).rows() == [("people", None, "people")]


def test_what_only_the_type_tells_is_not_known_without_rows():
    private = dpp.protect("patient", max_groups=1)
    bare = private.agg(dpp.mode("ward", epsilon=1))
    assert analysis.error_by_size(bare, [10]).row(0) == ("ward", 10, "people", None, "people", None)
    assert analysis.size_needed(bare).row(0) == ("ward", None, "people")
    refused(ValueError, "Output 'ward': candidates must be known", analysis.best_by_gap, bare, [1])
    typed = pl.LazyFrame(schema={"patient": pl.Int64, "ward": pl.Enum(["A", "B"])})
    query = typed.dp.protect("patient", max_groups=1).agg(dpp.mode("ward", epsilon=1))
    assert analysis.size_needed(query).item(0, "size") > 1
    assert analysis.best_by_gap(query, [0])["probability"].item() == 0.5


@pytest.mark.parametrize("amounts", [{"epsilon": 0.5}, {"rho": 0.02}])
@pytest.mark.parametrize("candidates", [["fall"], ["fall", "flu"], ["fall", "flu", "cold", "none"]])
@pytest.mark.parametrize("too_few", [None, 3])
def test_the_right_top_is_at_least_as_probable_as_that(amounts, candidates, too_few):
    query = PRIVATE.agg(top=dpp.mode("reason", candidates, too_few=too_few, **amounts))
    claim = query._asks[0].query.claim
    others = len(candidates) - 1 + (too_few is not None)
    found = analysis.best_by_gap(query, [0, 1, 2.5, 6])
    assert found["gap"].to_list() == [0, 1, 2.5, 6]
    assert found["gap_unit"].unique().to_list() == ["people"]
    for gap, probability in found.select("gap", "probability").rows():
        # Exact where all others are equal, and a lower bound where they are further behind.
        for behind in itertools.combinations_with_replacement([gap, gap + 1, gap + 4], min(others, 3)):
            rest = [*behind, *[gap] * (others - len(behind))]
            (exact, *_) = reference.floats(
                reference.law([20, *(20 - one for one in rest)], rate=claim.rate, mechanism=claim.mechanism)
            )
            assert probability <= exact + 1e-12
            if set(rest) <= {gap}:
                assert probability == pytest.approx(exact, rel=1e-12)


def test_gaps_of_weights_are_in_their_unit():
    query = PRIVATE.agg(
        dpp.mode("reason", ["fall", "flu"], counts=dpp.weights("cost", max_weight=500, step=10), epsilon=1),
        dpp.n_people(epsilon=1),
    )
    found = analysis.best_by_gap(query, [1000, 1500])
    assert found["gap_unit"].to_list() == ["the weights' unit"] * 2
    # One of two that is 1,000 behind: coin p = exp(-1000/500), chosen instead with probability p/2.
    assert found["probability"].to_list() == pytest.approx([1 - math.exp(-2) / 2, 1 - math.exp(-3) / 2])


def test_bounds_drop_what_they_drop_on_average():
    visits = pl.DataFrame(
        {
            "p": [1] * 6 + [2] * 3 + [3] + [None] * 4 + [4] * 2,
            "ward": ["A", "A", "A", "B", "B", "C", "A", "B", "C", "A", "A", "B", "C", "A", None, "B"],
        }
    )
    groups, rows = [None, 1, 2, 5], [None, 1, 2]
    found = analysis.rows_dropped(visits, "p", by="ward", max_groups=groups, max_rows_per_group=rows)
    assert found.columns == ["max_groups", "max_rows_per_group", "rows_dropped", "people_cut"]
    people = {1: [3, 2, 1], 2: [1, 1, 1], 3: [1], 4: [1]}
    expected = []
    for g, m in itertools.product(groups, rows):
        kept = cut = 0
        for sizes in people.values():
            subsets = list(itertools.combinations(sizes, min(g or 9, len(sizes))))
            mean = sum(sum(min(n, m or 9) for n in subset) for subset in subsets) / len(subsets)
            kept, cut = kept + mean, cut + (mean < sum(sizes))
        expected.append((g, m, pytest.approx(1 - kept / 11), cut / 4))
    assert found.rows() == expected
    assert analysis.rows_dropped(visits.lazy(), ["p"], max_rows_per_group=[2]).rows() == [
        (None, 2, pytest.approx(5 / 12), 0.5)
    ]
    assert analysis.rows_dropped(visits.clear(), "p").rows() == [(None, None, None, None)]


def test_the_mean_is_that_of_releases():
    rows = synthetic({"p": pl.Int64, "w": pl.Enum(["A", "B", "C"])}, people=300, rows=2400)
    grouped = dpp.protect("p", max_groups=2, max_rows_per_group=2).group_by({"w": ["A", "B", "C"]})
    query = grouped.agg(m=dpp.mode("w", ["A", "B", "C"], counts="rows", epsilon=1))
    (share,) = analysis.rows_dropped(rows, "p", by="w", max_groups=[2], max_rows_per_group=[2])["rows_dropped"]
    drawn = [analysis.simulate(query, rows)["left_out"].sum() / 2400 for _ in range(20)]
    assert sum(drawn) / 20 == pytest.approx(share, abs=0.01)
    assert 0.2 < share < 0.8
    # Of numbers nobody's rows are dropped: people count in part, and lose no more than that, in both units.
    lost = [
        analysis.simulate(grouped.agg(dpp.len(**loss)), rows)["left_out"].sum() / 2400
        for loss in ({"rho": 1}, {"epsilon": 1})
    ]
    assert 0.1 < lost[0] < lost[1] <= share + 1e-3


@pytest.mark.parametrize("skew", [0, 0.5, 1, 1.5])
def test_skew_makes_people_unequal(skew):
    rows = synthetic({"p": pl.Int64}, people=1000, rows=5000, skew=skew)
    counts = rows["p"].value_counts()["count"].sort(descending=True)
    top = counts[:50].sum() / 5000
    weights = [rank**-skew for rank in range(1, 1001)]
    assert top == pytest.approx((50 + 4000 * sum(weights[:50]) / sum(weights)) / 5000, abs=0.06)
    assert rows.equals(analysis.synthetic({"p": pl.Int64}, people=1000, rows=5000)) == (skew == 0.5)


def test_what_does_not_fit_is_refused():
    query, by_size = outputs(epsilon=1), analysis.error_by_size
    one, types = pl.DataFrame({"p": [1]}), {"p": pl.Int64}
    refused(ValueError, "sizes must not be empty", by_size, query, [])
    refused(ValueError, r"sizes\[0\] must be", by_size, query, [0])
    refused(TypeError, "sizes must be a list of numbers", by_size, query, 5)
    refused(TypeError, "query must be a PrivateQuery", by_size, "q", [5])
    refused(TypeError, "one for keys", analysis.size_needed, PRIVATE.keys("ward", epsilon=1, delta=1e-6))
    refused(ValueError, "relative must be", analysis.size_needed, query, 0)
    refused(ValueError, "gaps must be 0 or more, got -1", analysis.best_by_gap, query, [-1])
    refused(TypeError, "must have a mode", analysis.best_by_gap, PRIVATE.agg(dpp.len(epsilon=1)), [1])
    refused(TypeError, "frame must be a DataFrame", analysis.rows_dropped, [1], "p")
    refused(ValueError, "must name columns of the frame", analysis.rows_dropped, one, "q")
    refused(ValueError, r"max_groups\[0\] must", analysis.rows_dropped, one, "p", max_groups=[0])
    refused(ValueError, "skew must be from 0 to 4", synthetic, types, people=2, rows=2, skew=5)
    refused(TypeError, "skew must be a number", synthetic, types, people=2, rows=2, skew="x")


# --- Synthetic rows: from public things alone, the same each time, of every type that can be asked about

SYNTHETIC = {
    "p": pl.Int64,
    "int8": pl.Int8,
    "uint64": pl.UInt64,
    "int128": pl.Int128,
    "float32": pl.Float32,
    "float": pl.Float64,
    "decimal": pl.Decimal(10, 2),
    "share": pl.Decimal(4, 4),
    "text": pl.String,
    "category": pl.Categorical(),
    "enum": pl.Enum(["x", "y", "z"]),
    "boolean": pl.Boolean,
    "date": pl.Date,
    "milliseconds": pl.Datetime("ms", "Europe/Berlin"),
    "nanoseconds": pl.Datetime("ns"),
    "duration": pl.Duration("ms"),
    "time": pl.Time,
}


def test_all_types_and_the_numbers_that_were_asked_for():
    rows = synthetic(SYNTHETIC, people=200, rows=3000)
    assert rows.schema == pl.DataFrame(schema=SYNTHETIC).schema
    assert rows.height == 3000
    assert rows["p"].n_unique() == 200
    assert rows.null_count().sum_horizontal().item() == 0
    assert rows.equals(synthetic(pl.DataFrame(schema=SYNTHETIC).schema, people=200, rows=3000))
    # A minority has many rows, and everybody has one.
    of_people = rows["p"].value_counts()["count"].sort()
    assert of_people[0] >= 1
    assert of_people[-1] > 3 * of_people.median()
    # Not sorted by people: the first rows are of many.
    assert rows["p"].head(100).n_unique() > 50
    for name in ("text", "category", "enum"):
        counts = rows.group_by(name).len()["len"].sort(descending=True)
        assert counts[0] > 1.6 * counts[1] > 2 * counts[2]
    assert set(rows["text"]) == set("abcdefghij")
    assert rows["boolean"].sum() < 1200
    for name, low, high in (("int8", 0, 99), ("float", 0, 99.99), ("share", 0, 0.9999)):
        assert low <= rows[name].min() < low + (high - low) / 4
        assert high >= rows[name].max() > high - (high - low) / 4
        assert rows[name].cast(pl.Float64).is_between(low + (high - low) / 4, high - (high - low) / 4).mean() > 0.7
    assert rows["date"].dt.year().unique().to_list() == [2024]
    assert rows["nanoseconds"].dt.year().unique().to_list() == [2024]


def test_public_values_are_taken():
    values = {
        "ward": ["B", "A"],
        "age": range(30, 40),
        "cost": dpp.grid(0, 10, step=0.5),
        "day": [dt.date(2026, 5, 1), dt.date(2026, 5, 9)],
        "month": pl.Series([4, 5, 6]),
        "p": [f"N{i}" for i in range(1000)],
    }
    schema = {"ward": pl.Enum(["A", "B"]), "age": pl.Int8, "cost": pl.Float64, "day": pl.Datetime("us")}
    schema |= {"month": pl.UInt8, "p": pl.Categorical()}
    rows = synthetic(schema, people=40, rows=1000, values=values, privacy_unit="p")
    assert rows.schema == pl.Schema(schema)
    assert rows["ward"].value_counts(sort=True)["ward"].to_list() == ["B", "A"]
    assert set(rows["age"]) == set(range(30, 40))
    assert set(rows["cost"] * 2) <= set(range(21))
    assert set(rows["day"].dt.day()) == {1, 9}
    assert set(rows["month"]) == {4, 5, 6}
    assert set(rows["p"].cast(pl.String)) == {f"N{i}" for i in range(40)}


def test_the_first_column_is_the_privacy_unit_unless_others_are_named():
    schema = {"a": pl.String, "b": pl.Int64, "c": pl.Int16}
    first, named = (synthetic(schema, people=50, rows=90), synthetic(schema, people=50, rows=90, privacy_unit="b"))
    assert set(first["a"]) == {str(i) for i in range(50)}
    assert set(named["b"]) == set(range(50))
    of_categories = synthetic({"a": pl.Categorical()}, people=50, rows=90)
    assert set(of_categories["a"].cast(pl.String)) == set(first["a"])
    both = synthetic(schema, people=50, rows=90, privacy_unit=["a", "c"])
    assert both.select("a", "c").n_unique() == 50


def test_a_query_is_rehearsed_on_them():
    schema = pl.Schema({"patient": pl.Int64(), "ward": pl.String(), "days": pl.Float64()})
    rows = synthetic(schema, people=300, rows=900, values={"ward": ["A", "B"], "days": dpp.grid(0, 30, step=0.5)})
    query = dpp.protect("patient", max_groups=2, max_rows_per_group=4).group_by({"ward": ["A", "B"]})
    query = query.agg(patients=dpp.n_people(epsilon=1), days=dpp.mean("days", 0, 30, step=0.5, epsilon=1))
    needed = dpp.analysis.loss_for(query, rows, within={"patients": 20, "days": 2})
    assert needed["loss"].is_between(0.2, 6).all()
    law = dpp.analysis.simulate(query, rows)
    assert law["left_out"].sum() > 0


def test_what_can_not_be_made_up():
    schema = {"p": pl.Int64, "x": pl.String}

    def asked(schema=schema, people=5, rows=9, **options):
        return synthetic(schema, people=people, rows=rows, **options)

    held = r" must be values that a column of type Int8 can hold"
    named = r"values must name columns of the schema, got \['y'\] where they are \['p', 'x'\]"
    refused(TypeError, "people must be an integer, got", asked, people=2.5)
    refused(ValueError, "people must be at least 1, got 0", asked, people=0)
    refused(TypeError, "rows must be an integer", asked, rows="many")
    refused(ValueError, "rows must be at least people, 10, for each has one, got 9", asked, people=10)
    for wrong in ({}, None, [pl.Int64], {"p": "Int64?"}, {"p": 5}):
        refused(TypeError, "schema must be the types of columns by their names, got", asked, wrong)
    refused(TypeError, r"got List\(Int64\) of column 'x'", asked, {"p": pl.Int64, "x": pl.List(pl.Int64)})
    refused(TypeError, "values must be a dict of columns and their public values, got", asked, values=["a"])
    refused(ValueError, named, asked, values={"y": [1]})
    refused(ValueError, r"privacy_unit must name columns of the schema, got \['y'\]", asked, privacy_unit="y")
    refused(TypeError, r"values\['x'\] must be of one type", asked, values={"x": ["a", 1]})
    refused(ValueError, r"values\['x'\] must not be empty", asked, values={"x": []})
    refused(ValueError, rf"values\['n'\]{held}", asked, {"p": pl.Int64, "n": pl.Int8}, values={"n": range(300)})
    refused(ValueError, r"values\['p'\] must have one for each of 5 people, got 2", asked, values={"p": [1, 2]})
    refused(ValueError, "values must be given for the privacy unit 'd' of type Date", asked, {"d": pl.Date})
    refused(ValueError, rf"values\['p'\]{held}", asked, {"p": pl.Int8}, people=200, rows=200)
