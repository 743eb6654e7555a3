"""Expressions in words: what people read of them in a statement."""

import datetime as dt

import polars as pl
import polars.selectors as cs
import pytest

import dp_polars as dpp
from dp_polars._steps.words import in_words

X, T = pl.col("year"), pl.col("t")

WORDS = {
    "year = 2024": X == 2024,
    "(year > 3) and ('a b' is one of 'x', 'y')": (X > 3) & pl.col("a b").is_in(["x", "y"]),
    "year is between 1 and 5, without the upper end": X.is_between(1, 5, closed="left"),
    "(t begins with '[(col(') or (not b)": T.str.starts_with("[(col(") | ~pl.col("b"),
    "z as (if year > 1: 'a', otherwise null)": pl.when(X > 1).then(pl.lit("a")).otherwise(None).alias("z"),
    "month start of d": pl.col("d").dt.month_start(),
    "year as Int32": X.cast(pl.Int32),
    "d ≥ 2024-01-01": pl.col("d") >= dt.date(2024, 1, 1),
    "year or, if missing, 0": X.fill_null(0),
    "−year": -X,
    "a, b": pl.col("a", "b"),
    "(year divided, without the rest, by 10) × 10": X // 10 * 10,
    "t is not missing": T.is_not_null(),
    "year ≠ 1.5": X != 1.5,
    "t = 'it\\'s \"so\"'": T == 'it\'s "so"',
    "lowercase of t": T.str.to_lowercase(),
    "year": X.alias("year"),
    "(year − 1) is missing": (X - 1).is_null(),
}


@pytest.mark.parametrize("words", WORDS)
def test_words_of_expressions(words):
    assert in_words(WORDS[words]) == words


def test_long_lists_are_cut_and_say_how_long_they_are():
    said = in_words(X.is_in(list(range(50))))
    assert said.endswith("19, … (50 in all)")
    assert "20" not in said


@pytest.mark.parametrize("expr", [X.clip(0, 3), cs.numeric(), float("inf") == X, T.str.replace("a", "b")])
def test_what_has_no_words_stands_as_polars_writes_it(expr):
    assert in_words(expr) == " ".join(str(expr).split())


def test_a_statement_says_what_was_kept_and_read_in_words():
    rows = pl.DataFrame({"p": [1], "year": [2024], "t": ["a"]})
    query = (
        rows.dp.protect("p", max_rows=1)
        .filter(X == 2024)
        .with_columns(decade=X // 10)
        .agg(dpp.len(epsilon=1), m=pl.col("decade").filter(T == "a").dp.median(range(300), epsilon=1))
    )
    text = query.statement().to_html()
    assert (
        "rows are kept where: year = 2024; columns are made: decade as (year divided, without the rest, by 10)" in text
    )
    for debug in ("dyn int", "col(", "[("):
        assert debug not in text
