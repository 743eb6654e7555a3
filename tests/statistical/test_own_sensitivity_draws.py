"""The law of an argmax by sensitivities of their own, against exact probabilities of the exact scores."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms.racing import LAWS, Blocks, race
from tests.helpers import reference
from tests.registry import V, X
from tests.statistical.goodness import check_sampler

DRAWS = 30_000
ROWS = {
    "integers": ([30, 20, 25, 0], [9, 1, 4, 2]),
    "floats": ([1.5, 1.0, -0.25, 1.5], [0.5, 0.1, 2.5, 0.75]),
    "decimals": ([Decimal("1.25"), Decimal("1.00"), Decimal("0.5")], [1, 2, 3]),
    "one sensitivity": ([3, 2, 2, 0], [1, 1, 1, 1]),
}


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("case", ROWS)
def test_the_law(case, lowest, mechanism):
    check_sampler(*sampler(case, mechanism, lowest=lowest))


def sampler(case, mechanism, *, lowest=False, draws=DRAWS):
    scores, own = ROWS[case]
    size, rate = len(scores), Fraction(1)
    # t as the docs have it, rounded to 20 bits.
    error = math.log((size if mechanism == "exponential" else (size - 1) / 2) / 0.05)
    bits = 20 - math.frexp(error)[1]
    t = Fraction(round(error * 2**bits), 2**bits)
    exact = reference.own_scores([-Fraction(q) if lowest else Fraction(q) for q in scores], own, t)
    gaps = [-score for score in exact]
    law = reference.floats(reference.law(exact, rate=rate, mechanism=mechanism))
    expr = (X.dp.argmin if lowest else X.dp.argmax)(epsilon=2, sensitivity=V, mechanism=mechanism)
    assert expr.query.claim.rate == rate
    frame = pl.DataFrame({"g": np.repeat(np.arange(draws), size), "x": scores * draws, "v": own * draws})

    def draw(factor):
        if factor == 1:
            return frame.group_by("g").agg(expr)["x"].to_numpy()
        # At another rate alone: another loss would change t as well.
        flat = np.tile(np.array(gaps, float), draws)
        blocks = Blocks(flat, np.arange(draws) * size, lambda _: (gaps.__getitem__, [1] * size))
        return race(blocks, rate * factor, LAWS[mechanism], system_rng()).blocks % size

    return draw, law
