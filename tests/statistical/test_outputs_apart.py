"""Outputs of one release keep rows by one order, but each answers by random words of its own."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import polars as pl

import dp_polars as dpp
from dp_polars._base import numbers as words
from tests.statistical.goodness import cell_counts, fits

GROUPS, FAR = 5000, 2


def released():
    """Noise of two numbers and two choices of the same rows; in each group both candidates are as common."""
    frame = pl.DataFrame({"p": np.arange(2 * GROUPS), "g": np.arange(2 * GROUPS) % GROUPS})
    frame = frame.with_columns(x=(pl.col("p") >= GROUPS).cast(pl.Int64))
    query = (
        dpp.protect("p", max_rows=1)
        .group_by({"g": range(GROUPS)})
        .agg(
            rows=dpp.len(epsilon=1),
            values=dpp.count("x", epsilon=1),
            people=dpp.n_people(epsilon=1),
            one=dpp.mode("x", [0, 1], epsilon=1),
            other=dpp.mode("x", [0, 1], epsilon=1),
            middle=dpp.median("x", [0, 1], rho=1),
        )
    )
    found = query.release(frame)
    return {
        name: found[name].to_numpy()
        if name in ("one", "other", "middle")
        else np.clip(found[name] - 2, -FAR, FAR) + FAR
        for name in found.columns[1:]
    }


def law_of(name, answers):
    if name in ("one", "other"):
        return np.array([0.5, 0.5])
    if name == "middle":
        return np.bincount(answers) / len(answers)
    q = np.exp(-1)
    inner = (1 - q) / (1 + q) * q ** np.abs(np.arange(1 - FAR, FAR))
    return np.array([(1 - inner.sum()) / 2, *inner, (1 - inner.sum()) / 2])


def pairs_that_fit(answers):
    """Which two outputs have the joint law of independent ones."""
    laws = {name: law_of(name, own) for name, own in answers.items()}
    return {
        (one, other): fits(
            cell_counts(answers[one] * len(laws[other]) + answers[other], np.outer(laws[one], laws[other]).ravel()),
            np.outer(laws[one], laws[other]).ravel(),
        )
        for one, other in combinations(answers, 2)
    }


def test_answers_are_independent():
    found = pairs_that_fit(released())
    assert len(found) == 15
    assert all(found.values()), found


def test_answers_by_the_same_words_are_found_out(monkeypatch):
    """Where every output draws from a stream of its own, but all streams have the same key."""
    monkeypatch.setattr(words, "os", SimpleNamespace(urandom=bytes))
    found = pairs_that_fit(released())
    numbers, choices = ["rows", "values", "people"], ["one", "other", "middle"]
    shared = [*combinations(numbers, 2), *combinations(choices, 2)]
    assert [pair for pair, fit in found.items() if not fit] == shared
