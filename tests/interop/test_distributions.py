"""An expression has one distribution, the exact one, wherever it stands: G-tests of every context on both engines.

The false-alarm rate of each is 1e-12 (tests/statistical/goodness.py).
"""

import numpy as np
import polars as pl
import pytest

from tests.helpers import reference
from tests.registry import CANDIDATES, ENGINES, LAWS, VALUES, X
from tests.statistical.goodness import cell_counts, check_sampler, fits

DRAWS = 8_000


def law_of(name):
    _, scores, rate, mechanism = LAWS[name]
    law = reference.floats(reference.law(scores, rate=rate, mechanism=mechanism, digits=20))
    return np.append(law, 0.0) if name.startswith("argmax") else law  # the row without a score can't win


def as_codes(answers):
    """Positions among the candidates (or rows); of lists, of their only answer."""
    answers = answers.list.first() if answers.dtype == pl.List else answers
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


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_exact_and_a_changed_loss_is_found(frame, name):
    def draw(factor):
        return as_codes(frame.group_by("g").agg(y=LAWS[name][0](factor))["y"])

    check_sampler(draw, law_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_the_same_in_every_context(frame, name, context, engine):
    answers = CONTEXTS[context](frame.lazy(), LAWS[name][0](1)).collect(engine=engine)["y"]
    assert len(answers) >= 2000
    law = law_of(name)
    assert fits(cell_counts(as_codes(answers), law), law)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_the_same_in_one_group_of_all_rows(frame, name, engine):
    # An expression object used twice could be drawn once: these are built one by one.
    expressions = [LAWS[name][0](1).alias(f"y{i}") for i in range(400)]
    answers = frame.head(len(VALUES)).lazy().select(expressions).collect(engine=engine).transpose().to_series()
    law = law_of(name)
    assert fits(cell_counts(as_codes(answers), law), law)


@pytest.mark.slow
def test_groups_are_drawn_independently(frame):
    """Of two neighbouring groups, and of two expressions in one query: the law of pairs is the product."""
    law = law_of("mode")
    pairs = np.outer(law, law).ravel()
    one, two = (
        frame.group_by("g", maintain_order=True)
        .agg(a=LAWS["mode"][0](1), b=LAWS["mode"][0](1))
        .select("a", "b")
        .to_numpy()
        .T
    )
    assert fits(cell_counts(one[::2] * len(law) + one[1::2], pairs), pairs)
    assert fits(cell_counts(one * len(law) + two, pairs), pairs)


@pytest.mark.slow
@pytest.mark.parametrize("build", [lambda: X.dp.mode(CANDIDATES, epsilon=1), lambda: X.dp.median(range(6), rho=1)])
def test_no_contributing_row_is_a_uniform_draw(frame, build):
    uniform = np.full(6, 1 / 6)
    answers = frame.with_columns(x=pl.lit(None, pl.Int64)).group_by("g").agg(y=build())["y"]
    assert fits(cell_counts(as_codes(answers), uniform), uniform)
    answers = frame.group_by("g").agg(y=X.filter(X > 99).dp.median(range(6), epsilon=1))["y"]
    assert fits(cell_counts(as_codes(answers), uniform), uniform)
