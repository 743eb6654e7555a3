"""An expression has one distribution, the exact one, wherever it stands: G-tests of every context on both engines.

The false-alarm rate of each is 1e-12 (tests/statistical/goodness.py).
"""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from tests import reference
from tests.statistical.goodness import check_sampler, fits, tally

DRAWS = 8_000
X = pl.col("x")
VALUES = [0, 1, 1, 1, 2, 2, 4, 4, 4, None]
CANDIDATES = [0, 1, 2, 3, 4, 5]
COUNTS = [VALUES.count(candidate) for candidate in CANDIDATES]


def quantile_scores(num, den):
    """By the docs, "The privacy claims"."""
    evidence = sum(COUNTS)
    below = [sum(COUNTS[:i]) for i in range(len(CANDIDATES))]
    return [
        -max(0, num * evidence - den * (b + c), den * b - num * evidence + 1)
        for b, c in zip(below, COUNTS, strict=True)
    ]


# Every way to ask, given a factor of the loss.


def mode(factor):
    return X.dp.mode(CANDIDATES, epsilon=Fraction(1, 2) * factor)


def mode_of_values(factor):
    return X.filter(X.is_not_null()).dp.mode(CANDIDATES, epsilon=Fraction(1, 2) * factor)


def median(factor):
    return X.dp.median(range(6), epsilon=Fraction(2, 3) * factor)


def quantile_on_a_grid(factor):
    return (X * 0.5).dp.quantile(0.75, dpp.grid(0, 2.5, step=0.5), rho=Fraction(2) * factor**2)


def argmax(factor):
    return (X * X).dp.argmax(sensitivity=4, epsilon=factor)


# The expression, its scores, its rate, its mechanism.
ASK = {
    "mode": (mode, COUNTS, Fraction(1, 2), "permute_and_flip"),
    "mode of values": (mode_of_values, COUNTS, Fraction(1, 2), "permute_and_flip"),
    "median": (median, quantile_scores(1, 2), Fraction(1, 3), "permute_and_flip"),
    "quantile": (quantile_on_a_grid, quantile_scores(3, 4), Fraction(4, 6), "exponential"),
    "argmax": (argmax, [x * x for x in VALUES if x is not None], Fraction(1, 8), "permute_and_flip"),
}


def law_of(name):
    _, scores, rate, mechanism = ASK[name]
    law = reference.floats(reference.law(scores, rate=rate, mechanism=mechanism, digits=20))
    return np.append(law, 0.0) if name == "argmax" else law  # the row without a score can't win


def as_codes(answers):
    """Positions among the candidates (or rows)."""
    values = answers.to_numpy()
    return (values * 2 if answers.dtype == pl.Float64 else values).astype(np.int64)


@pytest.fixture(scope="module")
def frame():
    group = np.repeat(np.arange(DRAWS), len(VALUES))
    return pl.DataFrame({"g": group, "t": group, "x": VALUES * DRAWS}).with_columns(pl.col("t").set_sorted())


# From a lazy frame with DRAWS equal groups to as many answers.
CONTEXTS = {
    "agg": lambda lf, e: lf.group_by("g").agg(y=e),
    "agg of sorted keys": lambda lf, e: lf.group_by("t").agg(y=e),
    "over": lambda lf, e: lf.select(y=e.over("g", mapping_strategy="explode")),
    "over rows": lambda lf, e: lf.select("g", y=e.over("g")).unique(),
    "dynamic": lambda lf, e: lf.group_by_dynamic("t", every="1i").agg(y=e),
    "rolling": lambda lf, e: lf.head(2000).rolling("t", period="1i").agg(y=e),
}


@pytest.mark.parametrize("name", ASK)
def test_the_law_is_exact_and_a_changed_loss_is_found(frame, name):
    def draw(factor):
        return as_codes(frame.group_by("g").agg(y=ASK[name][0](factor))["y"])

    check_sampler(draw, law_of(name))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ASK)
def test_the_law_is_the_same_in_every_context(frame, name, context, engine):
    answers = CONTEXTS[context](frame.lazy(), ASK[name][0](1)).collect(engine=engine)["y"]
    assert len(answers) >= 2000
    law = law_of(name)
    assert fits(tally(as_codes(answers), law), law)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("name", ASK)
def test_the_law_is_the_same_in_one_group_of_all_rows(frame, name, engine):
    # An expression object used twice could be drawn once: these are built one by one.
    expressions = [ASK[name][0](1).alias(f"y{i}") for i in range(400)]
    answers = frame.head(len(VALUES)).lazy().select(expressions).collect(engine=engine).transpose().to_series()
    law = law_of(name)
    assert fits(tally(as_codes(answers), law), law)


def test_groups_are_drawn_independently(frame):
    """Of two neighbouring groups, and of two expressions in one query: the law of pairs is the product."""
    law = law_of("mode")
    pairs = np.outer(law, law).ravel()
    one, two = frame.group_by("g", maintain_order=True).agg(a=mode(1), b=mode(1)).select("a", "b").to_numpy().T
    assert fits(tally(one[::2] * len(law) + one[1::2], pairs), pairs)
    assert fits(tally(one * len(law) + two, pairs), pairs)


@pytest.mark.parametrize("build", [lambda: X.dp.mode(CANDIDATES, epsilon=1), lambda: X.dp.median(range(6), rho=1)])
def test_no_evidence_is_a_uniform_draw(frame, build):
    uniform = np.full(6, 1 / 6)
    answers = frame.with_columns(x=pl.lit(None, pl.Int64)).group_by("g").agg(y=build())["y"]
    assert fits(tally(as_codes(answers), uniform), uniform)
    answers = frame.group_by("g").agg(y=X.filter(X > 99).dp.median(range(6), epsilon=1))["y"]
    assert fits(tally(as_codes(answers), uniform), uniform)
