"""Statistics of the same rows share their sums: which do, what each draw costs, and that none is worse than alone."""

import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.claims import cost
from dp_polars._statistics.measures import error_95
from dp_polars._statistics.of_shared_draws import Bernstein, CentredSum
from tests.helpers.alone import alone
from tests.helpers.noised import record
from tests.registry import RELATIONS

X, Y = pl.col("x"), pl.col("y")
UNITS = ["epsilon", "rho"]
SHAPES = [{"max_rows": 1}, {"max_groups": 4, "max_rows_per_group": 3}, {"max_norm": 5}]


def private(groups=3, *, unit="person", relation="add_or_remove_one", limits=SHAPES[1]):
    frame = dpp.protect(unit, **limits if unit else {}, neighboring_relation=relation)
    return frame.group_by({"g": range(groups)})


def shared_of(query):
    """The names of the outputs of each shared draw."""
    draws = [draw for ask in query._asks for draw in getattr(ask.query, "shared", ())]
    return sorted({(draw.what.partition(" from ")[0], draw.outputs) for draw in draws})


REPORT = {
    "rows": lambda **loss: dpp.count(X, **loss),
    "total": lambda **loss: X.dp.sum(0, 10, **loss),
    "mean": lambda **loss: X.dp.mean(0, 10, **loss),
}


def report(unit="epsilon", losses=(1, 1, 1)):
    return {name: ask(**{unit: loss}) for (name, ask), loss in zip(REPORT.items(), losses, strict=True)}


# In ε, statistics share a sum and a count where rows are replaced; where they come or go, a pair of sums.
RELATION = {"epsilon": "replace_one", "rho": "add_or_remove_one"}


@pytest.mark.parametrize("unit", UNITS)
def test_a_report_has_two_draws(unit):
    query = private(relation=RELATION[unit]).agg(**report(unit))
    assert shared_of(query) == [
        ("number of rows", ("rows", "total", "mean")),
        ("sum of distances", ("total", "mean")),
    ]
    assert len(query._request.claims) == 2
    assert cost(query._request.claims, unit) == query.loss.value == 3


def test_only_the_same_rows_share():
    loss = {"rho": 1}
    query = private().agg(
        len=dpp.len(**loss),
        of_y=Y.dp.mean(0, 10, **loss),
        of_some=pl.when(Y > 3).then(X).dp.mean(0, 10, **loss),
        count_of_some=pl.when(Y > 3).then(X).dp.count(**loss),
        other_unit=X.dp.count(epsilon=1),
        people=dpp.n_people(**loss),
        nulls=X.dp.null_count(**loss),
        totals=X.dp.sum(0, 10, per_person=(0, 10), **loss),
        counts=X.dp.value_counts([1, 2], **loss),
        median=X.dp.median([1, 2], **loss),
        **report("rho"),
    )
    assert shared_of(query) == [
        ("number of rows", ("of_some", "count_of_some")),
        ("number of rows", ("rows", "total", "mean")),
        ("sum of distances", ("of_some",)),
        ("sum of distances", ("total", "mean")),
    ]


def test_one_statistic_shares_nothing():
    for asked in (
        X.dp.count(epsilon=1),
        X.dp.sum(0, 10, epsilon=1),
        X.dp.mean(0, 1, rho=1),
        X.dp.var(0, 1, epsilon=1),
    ):
        assert shared_of(private().agg(asked)) == []
    for mixed in (
        {"a": X.dp.count(epsilon=1), "b": Y.dp.count(epsilon=1)},
        {"a": dpp.len(epsilon=1), "b": X.dp.count(epsilon=1)},
    ):
        assert shared_of(private().agg(**mixed)) == []


def test_other_bounds_make_another_sum_and_no_other_count():
    query = private().agg(one=X.dp.mean(0, 10, rho=1), two=X.dp.mean(0, 20, rho=1), three=X.dp.var(0, 10, rho=1))
    assert shared_of(query) == [
        ("number of rows", ("one", "two", "three")),
        ("sum of distances", ("one", "three")),
        ("sum of distances", ("two",)),
        ("sum of squares", ("three",)),
    ]


def noise_of(query, bits=True):
    """The scale of all noise of an answer: added up in epsilon, squared in rho; in the unit of the column."""
    scales = [Fraction(1, 2**bit) / claim.rate for claim, bit in zip(query.noise(), query.bits_of_parts(), strict=True)]
    if not isinstance(query, CentredSum):
        return scales
    pair = [scales[0] / 2, abs(query.lower + query.upper) / 2 * scales[1]]
    return [sum(pair) if query.claim._has_epsilon else Fraction(math.hypot(*map(float, pair)))]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("limits", [*SHAPES, None], ids=str)
def test_nothing_is_worse_than_alone(limits, unit, relation):
    """For all pairs and triples of statistics at losses that differ by far: each draw, and each error."""
    kinds = {
        "rows": lambda **loss: dpp.count(X, **loss),
        "total": lambda **loss: X.dp.sum(0, 8, **loss),
        "far": lambda **loss: X.dp.sum(90, 98, **loss),
        "both": lambda **loss: X.dp.sum(-4, 4, **loss),
        "mean": lambda **loss: X.dp.mean(0, 8, **loss),
        "var": lambda **loss: X.dp.var(-4, 4, **loss),
        "std": lambda **loss: X.dp.std(0, 8, **loss),
    }
    shares = 0
    for groups in (1, 4):
        for names in [*itertools.combinations(kinds, 2), *itertools.combinations(kinds, 3)]:
            for losses in ((1, 1, 1), (1, Fraction(1, 10), Fraction(1, 3)), (Fraction(1, 20), 1, 1)):
                asked = {name: kinds[name](**{unit: loss}) for name, loss in zip(names, losses, strict=False)}
                together = private(groups, unit=limits and "person", relation=relation, limits=limits).agg(**asked)
                shares += bool(shared_of(together))
                for ask, one in zip(together._asks, alone(together)._asks, strict=True):
                    assert ask.query.claim == one.query.claim
                    if not isinstance(ask.query, Bernstein):  # of which another test is
                        noises = zip(noise_of(ask.query), noise_of(one.query), strict=True)
                        assert all(a <= b * (1 + 1e-15) for a, b in noises)
                    rows = 100 if ask.query.error_needs_rows else None
                    if ask.query.in_parts:  # whole rows have noise that is rounded
                        assert error_95(ask.query, rows) <= error_95(one.query, rows) * (1 + 1e-5)
                assert cost(together._request.claims, unit) == sum(losses[: len(names)])
    assert shares > 100 or (relation == "replace_one" and shares > 10)


def test_a_sum_is_no_worse_by_its_exact_law():
    """Whole rows: by all noise of both draws, and that of the sum alone."""
    for (lower, upper), epsilon in itertools.product([(0, 8), (-2, 8), (4, 8)], (Fraction(1, 4), Fraction(1, 2))):
        asked = {"rows": X.dp.count(epsilon=epsilon), "total": X.dp.sum(lower, upper, step=1, epsilon=epsilon)}
        asked["spread"] = X.dp.var(lower, upper, step=1, epsilon=epsilon)
        query = private(unit=None, relation="replace_one").agg(**asked)
        total, one = query._asks[1].query, alone(query)._asks[1].query
        assert isinstance(total, CentredSum)
        laws = []
        for claim in (*total.noise(pl.Int64()), *one.noise(pl.Int64())):
            numbers = np.arange(-2000, 2001)
            weights = np.exp(-abs(numbers) * float(claim.rate))
            laws.append(weights / weights.sum())
        numbers = np.arange(-2000, 2001)
        off = abs(numbers[:, None] / 2 + (lower + upper) / 2 * numbers[None, :])
        both = laws[0][:, None] * laws[1][None, :]
        for far in range(1, 200, 7):
            assert both[off > far].sum() <= laws[2][abs(numbers) >= far].sum()
        error = total.error(1, 0.05, pl.Int64())
        assert both[off > error - 0.5].sum() <= 0.05 < both[off > 0.7 * error].sum()


def test_losses_go_to_the_draws_in_proportion_to_what_is_needed():
    replaced = private(relation="replace_one")
    query = replaced.agg(**report(losses=(2, 1, 1)))
    losses = {
        draw.what.partition(" from")[0]: draw.claim.loss.value for ask in query._asks for draw in ask.query.shared
    }
    assert losses == {"number of rows": Fraction(8, 3), "sum of distances": Fraction(4, 3)}
    # A sum needs both draws. If its loss is not enough for both, it has its own.
    small = {"epsilon": Fraction(1, 10)}
    asked = {"total": X.dp.sum(5, 10, epsilon=1), "spread": X.dp.var(5, 10, **small)}
    assert shared_of(private().agg(**asked)) == []
    assert shared_of(private().agg(**asked, rows=X.dp.count(**small))) == [
        ("number of rows", ("spread", "rows")),
        ("sum of distances", ("spread",)),
        ("sum of squares", ("spread",)),
    ]


def test_open_losses_leave_the_rest_to_others():
    query = private().agg(people=dpp.n_people(), **{name: ask() for name, ask in REPORT.items()}).scaled_to(epsilon=1)
    people, *others = (ask.query.claim.loss.value for ask in query._asks)
    assert people == Fraction(1, 3)
    assert others == [Fraction(2, 9)] * 3
    assert [claim.loss.value for claim in query._request.claims] == [Fraction(1, 3), Fraction(2, 3)]
    assert query.loss.value == 1


@pytest.mark.parametrize("unit", UNITS)
def test_a_query_costs_what_it_is_scaled_to(unit):
    """Also in the other unit, in which draws that are shared cost more than those of each statistic alone."""
    query = private().agg(median=X.dp.median([1, 2], epsilon=1), **report()).scaled_to(**{unit: Fraction(1, 2)})
    assert query.loss.unit == unit or query.loss.unit == "epsilon"
    assert Fraction(999, 2000) < cost(query._request.claims, unit) <= Fraction(1, 2)
    promised = private().agg(**{name: ask() for name, ask in REPORT.items()}).scaled_to(epsilon=1, delta=1e-6)
    budget = dpp.Budget(epsilon=1, delta=1e-6)
    dpp.protect("person", max_rows=1, budget=budget)
    assert budget._state.has_room(promised._request.claims)


def test_an_error_is_found_alone_and_then_shared():
    within = private().agg(rows=X.dp.count(within=50), mean=X.dp.mean(0, 10, epsilon=1))
    only = private().agg(rows=X.dp.count(within=50))
    assert within._asks[0].query.claim == only._asks[0].query.claim
    assert shared_of(within) != []
    explained = within.explain()
    assert explained["error_95"][0] <= 50
    assert (
        "The sums of distances from 0 and from 10 are drawn once for rows and mean, with epsilon="
        in explained["note"][0]
    )


FRAME = pl.DataFrame({"person": [1, 1, 2, 3, 3, 4, 5], "g": [0, 1, 0, 0, 2, 2, 1], "x": [1, 2, 3, 4, None, 10, 12]})


def test_draws_are_of_the_right_sums(monkeypatch):
    drawn = record(monkeypatch)
    query = (
        FRAME.lazy().dp.protect("person", max_groups=2, max_rows_per_group=1).group_by({"g": range(3)}).agg(**report())
    )
    found = query.release(intervals=True)
    assert len(drawn) == 2
    assert found["rows"].to_list() == [3, 2, 1]
    assert found["total"].to_list() == [8, 12, 10]
    assert found["mean"].to_list() == pytest.approx([8 / 3, 6, 10])


@pytest.mark.parametrize("unit", UNITS)
def test_answers_agree_and_intervals_hold(unit):
    """With much noise a sum is the mean times the number of rows, up to rounding, and intervals hold with 95 %."""
    groups = 20_000
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), 8), "x": np.tile(np.arange(8), groups)})
    frame = frame.with_columns(person=pl.int_range(pl.len()))
    for person, limits in (("person", {"max_rows": 1}), (None, {})):
        query = frame.lazy().dp.protect(person, **limits, neighboring_relation=RELATION[unit])
        query = query.group_by({"g": range(groups)})
        loss = Fraction(1, 10) if unit == "epsilon" else Fraction(1, 2000)
        found = query.agg(**report(unit, (loss,) * 3)).release(intervals=True)
        inner = found.filter(pl.col("rows") > 1, pl.col("mean").is_between(0.001, 9.999))
        assert inner.height > 1000
        off = inner.select((pl.col("total") - pl.col("mean") * pl.col("rows")).abs().max()).item()
        assert off <= (5.5 if person else 0.51)  # rows and sums are rounded to whole numbers
        for name, true in (("rows", 8), ("total", 28), ("mean", 3.5)):
            inside = found.select(pl.lit(true).is_between(f"{name}_low", f"{name}_high").mean()).item()
            assert 0.9435 < inside < 0.975, (person, name, inside)


@pytest.mark.parametrize("relation", RELATIONS)
def test_each_draw_is_charged_once(relation, tmp_path):
    budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger.db")
    query = (
        FRAME.lazy()
        .dp.protect("person", max_groups=2, max_rows_per_group=1, neighboring_relation=relation, budget=budget)
        .group_by({"g": range(3)})
        .agg(people=dpp.n_people(epsilon=1), **report())
    )
    query.release()
    log = budget.log()
    assert log["output"].to_list() if "output" in log.columns else True
    assert budget.spent == 4
    texts = " ".join(map(str, log.rows()))
    if relation == "replace_one":
        assert log.height == 3
        assert "rows, total, mean: number of rows" in texts
        assert "total, mean: sum of distances from the middle of 0 and 10" in texts
    else:
        assert log.height == 2
        assert "rows, total, mean: sums of distances from 0 and from 10" in texts


def test_wide_sums_do_not_leave_64_bits():
    """Numbers of parts times the middle of the bounds do, of very many rows: then exact integers decide."""
    most, whole, parts = 2**29, 2**40, 2**53
    private = dpp.protect("person", max_rows=1)
    total = private.agg(rows=X.dp.count(rho=1), total=X.dp.sum(0, most, step=1, rho=1))._asks[1].query
    assert isinstance(total, CentredSum)
    assert total.bits_of_parts(pl.Int64()) == (0, 20)
    (shown,) = total.presented([pl.Series([whole]), pl.Series([parts])], None, pl.Int64())
    assert shown.item() == whole // 2 + parts // 2**20 * (most // 2)  # distances are in halves of a step


def test_all_intervals_of_shared_sums_hold_together():
    """Three numbers of two draws: each fails with a third of 5 %, and all hold with 95 % at least."""
    groups = 20_000
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), 8), "x": np.tile(np.arange(8), groups)})
    asked = report("epsilon", (Fraction(1, 20),) * 3)
    own = (
        frame.with_columns(person=pl.int_range(pl.len()))
        .filter(pl.col("g") == 0)
        .lazy()
        .dp.protect("person", max_rows=1)
    )
    together, each = (own.agg(**asked).release(intervals=one) for one in ("all", True))
    widths = [(one["rows_high"] - one["rows_low"]).item() for one in (together, each)]
    # Two Laplace variables of the scale s pass t·s together with the probability (1 + t/2)·exp(−t).
    passed = np.linspace(2, 12, 100_001)
    tail = (1 + passed / 2) * np.exp(-passed)
    bound = [2 * passed[np.argmax(tail <= beta)] / (3 / 20) for beta in (0.05 / 3, 0.05)]
    assert widths == pytest.approx(bound, abs=2)
    query = frame.lazy().dp.protect(None).group_by({"g": range(groups)}).agg(**asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dp_polars._release.contract.BETA", 0.05 * groups)  # as if each group were a release of its own
        found = query.release(intervals="all")
    inside = pl.all_horizontal(
        pl.lit(true).is_between(f"{name}_low", f"{name}_high")
        for name, true in (("rows", 8), ("total", 28), ("mean", 3.5))
    )
    assert 0.9435 < found.select(inside.mean()).item() < 0.995


WITH_NULLS = pl.DataFrame(
    {
        "person": range(6),
        "g": [0, 0, 1, 1, 2, 2],
        "x": [1, None, 3, 4, 5, 6],
        "y": [1.0, 2.0, None, float("nan"), 5.0, 6.0],
        "z": [1, 2, 3, None, 5, 6],
    }
)


def numbers_of_rows(frame, **asked):
    """The names of the outputs of each number of rows that is drawn; a pair has its own."""
    asked = asked or {
        "rows": dpp.len(rho=1),
        **{name: pl.col(name).dp.mean(0, 10, step=1, rho=1) for name in ("x", "y", "z")},
    }
    query = frame.group_by({"g": range(3)}).agg(**asked)
    return [
        draw.outputs
        for draw in dict.fromkeys(d for ask in query._asks for d in ask.query.shared)
        if "of rows" in draw.what
    ]


OF_SOME = pl.DataFrame({"g": [0], "z": [1]})
FILLED = {
    "nothing": (lambda frame: frame, []),
    "nulls": (lambda frame: frame.drop_nulls(), [("rows", "x", "z")]),
    "nulls of one": (lambda frame: frame.drop_nulls("x"), [("rows", "x")]),
    "both": (lambda frame: frame.drop_nulls().drop_nans(), [("rows", "x", "y", "z")]),
    "filled": (lambda frame: frame.fill_null(0), [("rows", "x", "z")]),
    "filled NaN": (lambda frame: frame.fill_null(0).fill_nan(0.0), [("rows", "x", "y", "z")]),
    "NaN is null": (lambda frame: frame.drop_nulls().drop_nans().fill_nan(None), [("rows", "x", "z")]),
    "then a filter": (lambda frame: frame.drop_nulls().filter(pl.col("x") > 2), [("rows", "x", "z")]),
    "then another column": (lambda frame: frame.drop_nulls().with_columns(w=pl.col("x") + 1), [("rows", "x", "z")]),
    "then it changes": (lambda frame: frame.drop_nulls().with_columns(x=pl.col("x") + 1), [("rows", "z")]),
    "then it is cast": (lambda frame: frame.drop_nulls().cast({"x": pl.Int8}), [("rows", "z")]),
    "renamed": (
        lambda frame: frame.drop_nulls(["x"]).rename({"x": "w"}).rename({"z": "x", "w": "z"}),
        [("rows", "z")],
    ),
    "selected": (lambda frame: frame.drop_nulls().select("g", "x", "y", pl.col("z") * 2), [("rows", "x")]),
    "joined": (
        lambda frame: frame.drop("z").drop_nulls().join(OF_SOME, on="g", how="left"),
        [("rows", "x")],
    ),
    "exploded": (lambda frame: frame.drop_nulls().with_columns(w=pl.lit([1, 2])).explode("w"), []),
}  # fmt: skip


@pytest.mark.parametrize("case", FILLED)
def test_columns_that_publicly_have_a_value_share_the_number_of_rows(case):
    steps, expected = FILLED[case]
    frame = steps(WITH_NULLS.lazy().dp.protect("person", max_rows=2))
    assert numbers_of_rows(frame) == expected
    # What is said to have a value in every row has one.
    rows = steps_of(frame)
    for name in frame._pipeline.filled:
        assert rows[name].null_count() == 0
        assert not rows[name].dtype.is_float() or not rows[name].is_nan().any()


def steps_of(frame):
    """The private rows after all transformations."""
    return frame._pipeline.proof.rows(WITH_NULLS.lazy()).collect()


def test_rows_of_one_condition_share_their_number():
    frame = WITH_NULLS.lazy().dp.protect("person", max_rows=2).drop_nulls()
    some = pl.col("g") > 0
    loss = {"rho": 1}
    asked = {
        "number": dpp.len(where=some, **loss),
        "x": pl.col("x").filter(some).dp.mean(0, 10, **loss),
        "z": pl.when(some).then(pl.col("z")).dp.mean(0, 10, **loss),
        "y": pl.col("y").filter(some).dp.mean(0, 10, step=1, **loss),
        "other": pl.col("x").filter(pl.col("g") > 1).dp.mean(0, 10, **loss),
        "all": pl.col("x").dp.mean(0, 10, **loss),
    }
    assert numbers_of_rows(frame, **asked) == [("number", "x", "z")]


def test_queries_without_data_share_sums_of_one_column_alone():
    frame = dpp.protect("person", max_rows=2).drop_nulls("x")
    assert numbers_of_rows(frame, rows=dpp.len(rho=1), x=X.dp.mean(0, 10, rho=1)) == []


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 1}], ids=str)
def test_sums_of_several_columns_are_of_the_right_columns(loss, monkeypatch):
    record(monkeypatch)
    frame = WITH_NULLS.lazy().dp.protect("person", max_groups=1, max_rows_per_group=1).drop_nulls().drop_nans()
    query = frame.group_by({"g": range(3)}).agg(
        rows=dpp.len(**loss),
        **{f"mean {name}": pl.col(name).dp.mean(0, 10, step=1, **loss) for name in ("x", "y", "z")},
        **{f"sum {name}": pl.col(name).dp.sum(0, 10, step=1, **loss) for name in ("x", "y", "z")},
    )
    true = steps_of(frame).group_by("g").agg(
        pl.len().alias("rows"), *(pl.mean(name).alias(f"mean {name}") for name in ("x", "y", "z")),
        *(pl.sum(name).alias(f"sum {name}") for name in ("x", "y", "z")),
    ).sort("g")  # fmt: skip
    found = query.release().filter(pl.col("g").is_in(true["g"].implode()))
    assert found.with_columns(pl.all().cast(pl.Float64)).equals(true.with_columns(pl.all().cast(pl.Float64)))


def test_eight_statistics_of_a_report_need_six_sums():
    """TPC-H's Q1: four sums, three means and a number of rows, of columns without nulls."""
    columns = {"quantity": 50, "price": 100_000, "disc_price": 100_000, "charge": 110_000, "discount": 1}
    frame = pl.DataFrame({"person": [1], "flag": ["A"], **{name: [1] for name in columns}})
    loss = {"rho": 1}
    asked = {f"sum_{name}": pl.col(name).dp.sum(0, most, **loss) for name, most in [*columns.items()][:4]}
    asked |= {
        f"avg_{name}": pl.col(name).dp.mean(0, columns[name], **loss) for name in ("quantity", "price", "discount")
    }
    private = frame.lazy().dp.protect("person", max_groups=3, max_rows_per_group=20).drop_nulls()
    query = private.group_by({"flag": ["A", "B"]}).agg(**asked, len=dpp.len(**loss))
    assert len(query._request.claims) == 6
    assert len(query._request.bind(query._public_engine).specs) == 6
    assert cost(query._request.claims, "rho") == 8
    without = frame.lazy().dp.protect("person", max_groups=3, max_rows_per_group=20)
    assert len(without.group_by({"flag": ["A", "B"]}).agg(**asked, len=dpp.len(**loss))._request.claims) > 6
