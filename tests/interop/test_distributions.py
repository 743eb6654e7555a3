"""Every expression has its exact law, and at a changed loss another one. What contexts draw is in `test_contexts.py`.

The false-alarm rate of each is 1e-12 (tests/statistical/goodness.py).
"""

import numpy as np
import polars as pl
import pytest

from tests.helpers import reference
from tests.registry import LAWS, VALUES
from tests.statistical.goodness import check_sampler

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


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_exact_and_a_changed_loss_is_found(frame, name):
    def draw(factor):
        return as_codes(frame.group_by("g").agg(y=LAWS[name][0](factor))["y"])

    check_sampler(draw, law_of(name))
