"""Numbers on private frames: explain, losses, budgets, sharing, intervals and files."""

import datetime as dt
import math
import re
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Loss
from dp_polars._engines.polars.engine import PolarsEngine
from tests.helpers.alone import alone
from tests.helpers.reference import pure_rho
from tests.helpers.refusals import refusals

SURE = 10**9
ROWS = pl.DataFrame(
    {
        "person": [1, 1, 2, 3, 3, 4, None],
        "ward": ["A", "A", "A", "B", "A", "B", "A"],
        "x": [1, 2, 3, None, 5, 9, 9],
        "cost": pl.Series(["0.10", "0.20", None, "7.35", "1.00", "1.00", "1.00"]).cast(pl.Decimal(10, 2)),
    }
)
WARDS = {"ward": ["A", "B", "C"]}


def asks(**loss):
    return {
        "people": dpp.n_people(**loss),
        "rows": dpp.len(**loss),
        "values": dpp.count("x", **loss),
        "sum": dpp.sum("x", 0, 5, **loss),
        "cost": dpp.sum("cost", 0, 1, **loss),
        "mean": dpp.mean("x", 0, 5, **loss),
        "counts": dpp.value_counts("x", [1, 3, 9], **loss),
    }


@pytest.mark.parametrize(
    "frame", [ROWS, ROWS.lazy(), pl.concat([ROWS[:2], ROWS[2:]], rechunk=False)], ids=["", "lazy", "chunks"]
)
@pytest.mark.parametrize("partitions", [None, 3])
def test_answers(frame, engine, partitions):
    query = frame.dp.protect("person", max_groups=2, max_rows_per_group=2).group_by(WARDS).agg(**asks(epsilon=SURE))
    found = query.release(engine=engine, partitions=partitions)
    assert found["people"].to_list() == [3, 2, 0]
    assert found["rows"].to_list() == [4, 2, 0]
    assert found["values"].to_list() == [4, 1, 0]
    assert found["sum"].to_list() == [11, 5, 0]
    assert [str(cost) for cost in found["cost"]] == ["1.30", "2.00", "0.00"]
    assert found["mean"].to_list() == [11 / 4, 5, 2.5]
    assert [[one["count"] for one in counts] for counts in found["counts"].to_list()] == [
        [1, 1, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]


def test_explain_gives_errors_in_the_columns_unit():
    protected = ROWS.dp.protect("person", max_groups=2, max_rows_per_group=3).group_by(WARDS)
    by_name = {row["output"]: row for row in alone(protected.agg(**asks(epsilon=1))).explain().to_dicts()}
    # P(|X| >= 1 + w) = 2q^(w+1)/(1+q) <= 0.05, q = exp(−1/scale): people 2, rows 6, sums 30 and 6.00.
    expected = {"people": 6, "rows": 18, "values": 18, "sum": 90, "counts": 18}
    for name, error in expected.items():
        assert by_name[name]["error_95"] == pytest.approx(error, abs=1), name
    assert by_name["cost"]["error_95"] == pytest.approx(17.97, abs=0.02)  # in hundredths
    assert by_name["mean"]["error_95"] is None
    units = {"people": "people", "rows": "rows", "values": "rows", "counts": "people"}
    assert {name: row["error_unit"] for name, row in by_name.items()} == {
        **dict.fromkeys(asks(epsilon=1), "the column's unit"),
        **units,
    }
    assert by_name["counts"]["candidates"] == 3
    assert {row["candidates"] for name, row in by_name.items() if name != "counts"} == {1}
    assert {row["epsilon"] for row in by_name.values()} == {1}
    assert {row["mechanism"] for row in by_name.values()} == {"discrete_laplace"}
    gaussian = protected.agg(**asks(rho=1)).explain()
    assert gaussian["epsilon"].to_list() == [None] * 7
    assert gaussian["rho"].to_list() == [1] * 7
    assert set(gaussian["mechanism"]) == {"discrete_gaussian"}
    # Without data, an integer column is assumed.
    pipeline = dpp.protect("person", max_rows=1).agg(
        s=dpp.sum("cost", 0, 100, epsilon=1), m=dpp.mode("x", [1], too_few=2, epsilon=1)
    )
    assert pipeline.explain()["error_95"].to_list()[0] == pytest.approx(100 * math.log(20) + 0.5, abs=0.01)
    assert pipeline.explain()["error_95"].to_list()[1] > 0


def choices(**loss):
    return {
        "signed": dpp.sum("x", -1, 5, **loss),
        "mode": pl.col("x").dp.mode([1, 3, 9], **loss),
        "median": pl.col("x").dp.median(range(10), **loss),
        "quantiles": pl.col("x").dp.quantile([0.25, 0.5], range(10), **loss),
        "top": pl.col("x").dp.top_k(2, [1, 3, 9], **loss),
    }


ADDED_UP = {"rows", "values", "sum", "cost", "counts"}
OTHERS = {"mean", "signed", "median", "quantiles"}


@pytest.mark.parametrize(
    ("bounds", "says", "too_low", "without_rows"),
    [
        ({"max_rows": 4}, {"max_rows=4"}, ADDED_UP, OTHERS),
        ({"max_rows_per_group": 2}, {"max_rows_per_group=2"}, ADDED_UP, OTHERS),
        # A person counts once for each of three candidates in each of three groups.
        ({"max_rows_per_group": 3}, {"max_rows_per_group=3"}, ADDED_UP - {"counts"}, OTHERS),
        ({"max_rows": 9}, {"max_rows=9"}, ADDED_UP - {"counts"}, OTHERS),
        (
            {"max_groups": 2, "max_rows_per_group": 3},
            {"max_groups=2", "max_groups=2, max_rows_per_group=3"},
            ADDED_UP | {"people"},
            OTHERS | {"mode", "top"},
        ),
        ({"max_groups": 3, "max_rows_per_group": 3}, {"max_rows_per_group=3"}, ADDED_UP - {"counts"}, OTHERS),
        # People are in no more groups than they have rows; three rows are beyond none of three groups.
        ({"max_rows": 2}, {"max_rows=2"}, ADDED_UP | {"people"}, OTHERS | {"mode", "top"}),
        ({"max_rows": 2, "max_rows_per_group": 5}, {"max_rows=2"}, ADDED_UP | {"people"}, OTHERS | {"mode", "top"}),
    ],
)
def test_explain_says_which_answers_lack_the_rows_that_bounds_drop(bounds, says, too_low, without_rows):
    """A range of noise is not the range of a number of which only a half counts. Numbers weigh, choices drop."""
    protected = ROWS.dp.protect("person", **bounds).group_by(WARDS)
    loss = {"epsilon": 1, "mechanism": "permute_and_flip"}
    asked = asks(epsilon=1) | choices(epsilon=1) | {"top": pl.col("x").dp.top_k(2, [1, 3, 9], **loss)}
    explained = protected.agg(**asked).explain()
    notes = dict(explained.select("output", "note").rows())
    begins = {True: "Counts people beyond ", False: "Drops rows beyond "}  # by whether it is a number
    dropping = {
        name: note.partition(first)[2]
        for name, note in notes.items()
        if (first := begins[name in {*asks(), "signed"}]) in note
    }
    assert {re.split(" of a person| in part", note)[0] for note in dropping.values()} == says
    assert {name for name, note in dropping.items() if " in part, which makes it too low." in note} == too_low
    fewer = (
        "in part, so their rows count less. The error is",
        "of a person, so it is only of kept rows; people with more count less. The error is",
    )
    assert {name for name, note in dropping.items() if any(text in note for text in fewer)} == without_rows
    nothing = "No row is dropped. The error is that of the noise alone."
    assert {name for name, note in notes.items() if nothing in note} == set(notes) - set(dropping)


def test_where_every_row_is_a_person_nothing_is_dropped_and_no_column_is_without_a_type():
    asked = {name: ask for name, ask in (asks(epsilon=1) | choices(epsilon=1)).items() if name not in ("people", "top")}
    query = alone(ROWS.dp.protect(None).group_by(WARDS).agg(**asked))
    explained, clipping = query.explain(), {ask.name: ask.query.clipping for ask in query._asks}
    nothing = "No row is dropped. The error is that of the noise alone."
    notes = dict(explained.select("output", "note").rows())
    mean = notes.pop("mean")
    for name, note in notes.items():
        assert note.partition(" The release costs ")[0] == " ".join(filter(None, [nothing, clipping[name]]))
    assert mean.startswith("1,000 rows: ±")
    assert mean.endswith(f"{nothing} {clipping['mean']}")
    assert explained["limits"].to_list() == [None] * len(asked)
    for one in (explained, ROWS.dp.protect(None).agg(x=dpp.mean("x", 0, 5, rho=1)).explain()):
        assert one.schema == ROWS.dp.protect("person", max_rows=1).agg(**asks(epsilon=1)).explain().schema
        assert pl.Null not in one.dtypes


def test_losses_of_mixtures():
    protected = ROWS.dp.protect("person", max_rows=2)
    pure = protected.agg(a=dpp.len(epsilon=1), b=dpp.mode("x", [1], epsilon=1), c=dpp.median("x", [1], epsilon=2))
    assert pure.loss == Loss(Fraction(4), "epsilon")
    gaussian = protected.agg(a=dpp.len(rho=1), b=dpp.mean("x", 0, 5, rho=1))
    assert str(gaussian.loss) == "rho=2"
    mixed = protected.agg(a=dpp.len(rho=1), b=dpp.mean("x", 0, 5, epsilon=1), c=dpp.len(epsilon=1))
    # Two rows in one group; the pair of a mean costs as a number of rows does.
    exact = 1 + pure_rho(1) + pure_rho(1)
    assert exact <= mixed.loss.value <= exact * (1 + Fraction(1, 2**90))
    assert mixed.loss.unit == "rho"
    laplace = protected.agg(a=dpp.len(rho=1, mechanism="discrete_laplace"), b=dpp.len(epsilon=1))
    assert laplace.loss.unit == "epsilon"
    # Of a choice, what its rho costs in epsilon.
    median = dpp.median("x", range(10), rho=0.5)
    alone = dpp.protect(None).agg(median)
    as_epsilon = alone._asks[0].query.claim.cost("epsilon")
    assert 2 < as_epsilon < 2.1
    assert alone.loss == Loss(Fraction(1, 2), "rho")
    assert dpp.protect(None).agg(dpp.len(epsilon=1), median).loss == Loss(1 + as_epsilon, "epsilon")


def forbidden():
    raise AssertionError("a row was read")


def test_a_gaussian_has_no_place_on_a_budget_in_epsilon(monkeypatch):
    budget = dpp.Budget(epsilon=10)
    query = ROWS.dp.protect("person", max_rows=1, budget=budget).agg(a=dpp.n_people(epsilon=1), b=dpp.len(rho=0.1))
    monkeypatch.setattr(PolarsEngine, "_histograms", lambda *_: forbidden())
    with pytest.raises(ValueError, match=r"(?s)no loss in epsilon.*Hint: keep a budget in rho, or give epsilon="):
        query.release()
    assert budget.spent == 0
    assert budget.log().height == 0


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_budgets_are_charged_each_number(unit):
    budget = dpp.Budget(**{unit: 100})
    query = alone(ROWS.dp.protect("person", max_rows=2, max_groups=1, budget=budget).agg(**asks(epsilon=1)))
    query.release()
    claims = {ask.name: ask.query.claim for ask in query._asks}
    assert budget.spent == sum(claim.cost(unit) for claim in claims.values())
    log = budget.log()
    assert log["what"].to_list()[:2] == ["people: number of people", "rows: number of rows"]
    assert set(log["mechanism"]) == {"discrete_laplace"}
    assert float(claims["rows"].cost("rho")) == pytest.approx(math.tanh(0.5))
    assert float(claims["mean"].cost("rho")) == pytest.approx(2 * 0.5 * math.tanh(0.25))
    with pytest.raises(dpp.BudgetExceededError):
        ROWS.dp.protect("person", max_rows=2, budget=budget).agg(a=dpp.len(epsilon=1000)).release()


def test_histograms_are_shared():
    def specs(**exprs):
        query = ROWS.dp.protect("person", max_rows=2).agg(**exprs)
        return len(query._request.bind(PolarsEngine.of(ROWS.lazy())).specs)

    count, mean = dpp.count("x", epsilon=1), dpp.mean("x", 0, 5, epsilon=1)
    assert specs(a=mean) == 2
    assert specs(a=mean, b=count) == 2
    assert specs(a=count, b=dpp.count("x", epsilon=2)) == 1
    assert specs(a=count, b=dpp.count("x", rho=1)) == 2  # weights follow from another norm
    assert specs(a=dpp.mode("x", [1, 3], epsilon=1), b=dpp.mode("x", [1, 3], rho=1)) == 1
    assert specs(a=dpp.sum("x", 0, 5, epsilon=1), b=dpp.sum("x", 0, 5, epsilon=2)) == 2  # a pair
    assert specs(a=dpp.sum("x", -5, 5, epsilon=1), b=dpp.sum("x", -5, 5, epsilon=Fraction(1, 2))) == 1
    assert specs(a=dpp.sum("x", 0, 5, epsilon=1), b=dpp.sum("x", 0, 6, epsilon=1)) == 2
    assert specs(a=dpp.sum("x", 0, 6, epsilon=1), b=dpp.sum("x", 0, 6, step=2, epsilon=1)) == 2
    assert specs(a=count, b=dpp.count("cost", epsilon=1), c=dpp.len(epsilon=1)) == 3
    assert specs(a=dpp.len(epsilon=1), b=dpp.n_people(epsilon=1)) == 2
    assert specs(a=dpp.mode("x", [1, 3], epsilon=1), b=dpp.mode("x", [1, 3], epsilon=1, counts="rows")) == 2


def test_names_that_ranges_need_are_refused_before_the_charge():
    budget = dpp.Budget(epsilon=10)
    protected = ROWS.rename({"ward": "a_high"}).dp.protect("person", max_rows=1, budget=budget)
    outputs = protected.agg(a=dpp.len(epsilon=1), a_low=dpp.len(epsilon=1))
    keys = protected.group_by({"a_high": ["A"]}).agg(a=dpp.len(epsilon=1))
    for query, name in ((outputs, "a_low"), (keys, "a_high")):
        with pytest.raises(
            ValueError, match=rf"(?s)must not be named like the ends of a confidence interval, got \['{name}'\].*Hint"
        ):
            query.release(intervals=True)
    assert budget.spent == 0
    outputs.release()
    protected.agg(a=dpp.mode("x", [1], epsilon=1), a_low=dpp.mode("x", [1], epsilon=1)).release(intervals=True)
    assert budget.spent == 4


def test_hardly_any_noise_has_ranges_too():
    # Two people have one row, two have two: a half of each row counts, rounded down, or just below it by a root.
    for loss, expected in (({"epsilon": 10**290}, (4, 4, 4)), ({"rho": 10**400}, (4, 3, 4))):
        query = ROWS.dp.protect("person", max_rows=1).agg(a=dpp.len(**loss), b=dpp.sum("x", 0, 5, **loss))
        assert query.release(intervals=True).select("a", "a_low", "a_high").row(0) == expected


def test_files_carry_the_claims_of_numbers(tmp_path):
    query = ROWS.dp.protect("person", max_rows=2).group_by(WARDS).agg(**asks(epsilon=1), gaussian=dpp.len(rho=1))
    query.sink_parquet(tmp_path / "a.parquet", intervals=True)
    claim = dpp.read_claim(tmp_path / "a.parquet")
    assert claim["loss"].startswith("rho=")
    assert claim["columns"]["mean"]["mechanism"] == "discrete_laplace"
    assert claim["columns"]["gaussian"]["loss"] == {"unit": "rho", "value": 1.0, "exact": "1"}
    assert claim["columns"]["sum"]["selects"] == "sum of values from 0 to 5"
    assert dt.date.fromisoformat(claim["date"])
    found = pl.read_parquet(tmp_path / "a.parquet")
    assert found.height == 3
    assert found["counts_low"].dtype == pl.List(pl.Struct({"value": pl.Int64, "count": pl.Int64}))


@pytest.mark.parametrize(("rho", "value"), [(10**299, 1e299), (10**400, None)], ids=["held", "beyond"])
def test_a_claim_beyond_all_floats_is_exact(tmp_path, rho, value):
    query = ROWS.dp.protect("person", max_rows=1).agg(a=dpp.len(rho=rho), b=dpp.mode("x", [1], rho=1))
    assert query.explain()["rho"].to_list() == [value or math.inf, 1]
    query.sink_parquet(tmp_path / "a.parquet")
    claim = dpp.read_claim(tmp_path / "a.parquet")
    assert claim["columns"]["a"]["loss"] == {"unit": "rho", "value": value, "exact": str(rho)}
    assert claim["columns"]["b"]["loss"]["value"] == 1


NO_CONTRIBUTIONS = "contributions must be left out"
BOUNDED = "the rows of one person must be"
NO_UNIT = "Output 'n_people': privacy_unit must be given for a number of people"
protect = ROWS.dp.protect


@refusals(
    (lambda: protect(None).agg(dpp.n_people(epsilon=1)), ValueError, NO_UNIT),
    (lambda: protect("person").agg(dpp.len(epsilon=1)), ValueError, f"Output 'len': {BOUNDED} bounded"),
    (lambda: protect("person").agg(dpp.mode("x", [1], epsilon=1, counts="rows")), ValueError, f"Output 'x': {BOUNDED}"),
    (lambda: protect("person", max_groups=2).agg(dpp.mean("x", 0, 1, epsilon=1)), ValueError, BOUNDED),
    (lambda: protect("person", max_rows=1).agg(dpp.len(epsilon=1, contributions=2)), ValueError, NO_CONTRIBUTIONS),
    (
        lambda: protect("person", max_rows=2**20).agg(dpp.len(epsilon=1e-12)),
        *(ValueError, "Output 'len': the noise must have a scale"),
    ),
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_people_may_count_without_bounds_on_rows():
    counts = dpp.value_counts("x", [1, 2, 3], epsilon=SURE)
    found = ROWS.dp.protect("person").group_by(WARDS).agg(dpp.n_people(epsilon=SURE), v=counts)
    assert found.release()["n_people"].to_list() == [3, 2, 0]
    [people, counts] = found._asks
    assert people.query.claim.contributions.total == 3
    assert counts.query.claim.contributions.total == 9  # once for each candidate of each group


def test_gaps_on_private_frames(tmp_path):
    rows = pl.DataFrame({"p": range(100), "g": [0, 1] * 50, "x": ["a", "a", "a", "b"] * 25}).with_columns(
        e=pl.col("x").cast(pl.Enum(["a", "b", "c"]))
    )
    asked = {
        "x": dpp.mode("x", ["a", "b"], gap=True, epsilon=SURE),
        "few": dpp.mode("x", ["a", "b"], gap=True, too_few=70, epsilon=SURE),
        "e": dpp.mode("e", gap=True, epsilon=SURE),
        "one": dpp.mode("x", ["b"], gap=True, epsilon=SURE),
    }
    query = rows.dp.protect("p", max_groups=1).group_by({"g": [0, 1, 2]}).agg(**asked)
    released = query.release(intervals=True)
    assert released.columns == ["g", *asked]
    assert released.schema["e"] == pl.Struct({"answer": pl.Enum(["a", "b", "c"]), "gap": pl.Int64})
    assert released["one"].struct.field("gap").to_list() == [None] * 3
    for name, gaps in {"x": (50, 0, 0), "few": (20, 45, 70), "e": (50, 0, 0)}.items():
        for found, gap in zip(released[name].struct.field("gap").to_list(), gaps, strict=True):
            assert found in (gap, max(gap - 1, 0))  # rounded down, so one less if the noise is below 0
    assert released["x"].struct.field("answer").to_list()[0] == "a"
    assert released["few"].struct.field("answer").to_list() == [None] * 3
    explained = query.explain()
    assert explained["selects"].to_list()[0] == "mode of 2 candidates, and its gap"
    assert explained["error_unit"].to_list() == ["people"] * 4
    assert explained["epsilon"].to_list() == [SURE] * 4
    query.sink_parquet(tmp_path / "answers.parquet")
    assert dpp.read_claim(tmp_path / "answers.parquet")["columns"]["x"]["selects"].endswith("and its gap")
    simulated = dpp.analysis.simulate(query, rows, allow_private=True)
    assert simulated.filter(pl.col("output") == "x")["true_answer"].to_list()[0] == "a"
    assert simulated.filter(pl.col("output") == "few")["true_answer"].to_list() == [None] * 3


def test_a_share_is_the_mean_of_a_condition():
    frame = pl.DataFrame({"x": [1, 2, 3, None, 5], "is old": [True, None, True, False, True]})
    for ask, expected in (("is old", 0.75), (pl.col("x") > 2, 0.5), (pl.col("x").is_null(), 0.2)):
        expr = dpp.share(ask, epsilon=SURE)
        for found in (frame.select(expr), frame.dp.protect(None).agg(expr).release()):
            assert found.schema == {"share": pl.Float64()}
            assert found.item() == expected
    share = dpp.share("is old", epsilon=1).query
    assert share.claim == dpp.mean(pl.col("is old").cast(pl.Int8), 0, 1, epsilon=1).query.claim
    assert share.noise(pl.Boolean()) == dpp.mean("x", 0, 1, epsilon=1).query.noise(pl.Int8())
    assert dpp.share("is old", within=0.1, rows=1000).query.error_among(1000, 0.05) <= 0.1


@pytest.mark.parametrize("condition", [True, None, pl.lit(value=True), pl.all() > 1, dpp.len(epsilon=1)], ids=str)
def test_a_share_is_of_one_condition_about_columns(condition):
    with pytest.raises(
        TypeError, match=r"^condition must be one condition that reads columns, got [\s\S]*Hint: dpp\.share"
    ):
        dpp.share(condition, epsilon=1)


def test_a_share_is_of_booleans():
    frame = pl.DataFrame({"x": [0, 1]})
    message = "share of rows: the condition must be Boolean, got a column of type Int64"
    with pytest.raises(pl.exceptions.ComputeError, match=message):
        frame.select(dpp.share("x", epsilon=1))
    with pytest.raises(TypeError, match="Output 'share': the condition must be Boolean"):
        frame.dp.protect(None).agg(dpp.share("x", epsilon=1)).release()
