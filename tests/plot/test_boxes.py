"""Box plots of released lists of quantiles: what they hold, what is refused, and that they render to PNG."""

import datetime as dt
from decimal import Decimal

import polars as pl

from tests.helpers.needs import need
from tests.helpers.refusals import refused

need("altair")
need("vl_convert")

import dp_polars as dpp
from dp_polars import plot
from tests.plot.test_plot import png_size, rows, texts

FIVE = [0.05, 0.25, 0.5, 0.75, 0.95]
COLUMNS = {"rank", "low", "box_low", "middle", "box_high", "high"}
VISITS = pl.DataFrame({"ward": ["A", "B", "C", "D"] * 300, "days": [i % 40 for i in range(1200)], "p": range(1200)})


def asked(**more):
    return (
        VISITS.dp.protect("p", max_rows=1)
        .group_by({"ward": ["A", "B", "C", "Z"]})
        .agg(stay=pl.col("days").dp.quantile(FIVE, range(60), epsilon=2), n=dpp.len(epsilon=1), **more)
    )


def test_a_box_per_group(tmp_path):
    query = asked()
    released = query.release(ranges=True)
    chart = plot.box(released, query)
    png_size(chart, tmp_path / "box.png")
    said = texts(chart)
    for text in (
        "Private quantiles of stay at ε = 3",
        "0.05 and 0.95",
        "0.25 to 0.75",
        "line: 0.5",
        "one person per 'p'",
    ):
        assert text in said
    ranked = released.sort(pl.col("stay").list.get(2), descending=True, maintain_order=True)
    assert str(ranked["ward"].to_list()).replace("'", '"') in said  # the largest first, and named by the key alone
    data = rows(chart)
    found = sorted(
        [row["rank"], *(row[name] for name in ("low", "box_low", "middle", "box_high", "high"))] for row in data
    )
    assert found == [[i, *map(float, five)] for i, five in enumerate(ranked["stay"].to_list())]
    # Nothing but the release is in the figure.
    assert set().union(*map(set, data)) == COLUMNS


def test_groups_that_are_hidden_come_last():
    query = asked(people=dpp.n_people(epsilon=9))
    released = query.release(min_people=100)
    assert released["stay"].is_null().to_list() == [False, False, False, True]
    data = rows(plot.box(released, query, most=3))
    assert len([row for row in data if row["middle"] is not None]) == 3


def test_quartiles_are_boxes_without_whiskers(tmp_path):
    query = asked(quartiles=pl.col("days").dp.quantile([0.25, 0.5, 0.75], range(60), epsilon=2))
    released = query.release()
    chart = plot.box(released, query, output="quartiles")
    png_size(chart, tmp_path / "quartiles.png")
    said = texts(chart)
    assert "box: 0.25 to 0.75 quantiles · line: 0.5" in said
    assert "whiskers" not in said
    data = rows(chart)
    assert set().union(*map(set, data)) == {"rank", "box_low", "middle", "box_high"}
    ranked = released.sort(pl.col("quartiles").list.get(1), descending=True, maintain_order=True)
    found = sorted([row["rank"], *(row[name] for name in ("box_low", "middle", "box_high"))] for row in data)
    assert found == [[i, *map(float, three)] for i, three in enumerate(ranked["quartiles"].to_list())]
    refused(ValueError, r"query must have one list of three or five quantiles, got 2", plot.box, released, query)


def test_boxes_of_an_expression_of_dates_and_of_many_groups(tmp_path):
    day = (pl.lit(dt.date(2024, 1, 1)) + pl.duration(days="days")).alias("day")
    expr = day.dp.quantile(FIVE, dpp.grid(dt.date(2024, 1, 1), dt.date(2024, 6, 1), step="1d"), epsilon=1)
    chart = plot.box(VISITS.group_by("ward").agg(expr), expr, most=2)
    png_size(chart, tmp_path / "days.png")
    assert "the first 2 of 4 groups" in texts(chart)
    assert "rows of one person: 1" in texts(chart)
    assert "temporal" in texts(chart)
    assert {row["rank"] for row in rows(chart)} == {0, 1}
    money = pl.DataFrame({"x": [Decimal("1.50")] * 99})
    expr = pl.col("x").dp.quantile(FIVE, dpp.grid(Decimal(0), Decimal(3), step=Decimal("0.5")), rho=5)
    one = plot.box(money.select(expr), expr)
    png_size(one, tmp_path / "one.png")
    assert "all rows" in texts(one)
    assert "ρ = 5" in texts(one)
    assert [row["middle"] for row in rows(one)] == [1.5]


def test_bad_boxes():
    query = asked()
    released = query.release()
    two = asked(other=pl.col("days").dp.quantile(FIVE, range(30), epsilon=1))
    assert "quantiles of other" in texts(plot.box(two.release(), two, output="other"))
    halves = dpp.quantile("days", [0.25, 0.75], range(60), epsilon=1)
    hours = pl.col("t").dp.quantile(FIVE, [dt.timedelta(hours=i) for i in range(5)], epsilon=1)
    times = pl.DataFrame({"t": [dt.timedelta(hours=1)] * 9}).select(hours)
    listed, got = "list of three or five quantiles", r".\n\nHint: dp_"
    no_column = "with a column 'stay' and a group"
    for arguments, error, words in (
        ((released, pl.col("days")), TypeError, "query must be a PrivateQuery or a PrivateExpr, got Expr"),
        ((released.lazy(), query), TypeError, "released must be a DataFrame, got LazyFrame"),
        ((released.drop("stay"), query), ValueError, no_column),
        ((released.clear(), query), ValueError, no_column),
        ((released, halves), ValueError, rf"query must have one {listed}, got 0{got}polars.quantile"),
        ((two.release(), two), ValueError, r"got 2.\n\nHint: output= one of \['other', 'stay'\]"),
        ((times, hours), TypeError, "numbers, dates or datetimes, got lists of Duration"),
    ):
        refused(error, words, plot.box, *arguments)
    refused(ValueError, rf"output must be a {listed} of the query, got 'n'{got}", plot.box, released, query, output="n")
    refused(ValueError, "most must be at least 1", plot.box, released, query, most=0)
