"""Scores of the caller's own by brute force: all small vectors and their neighbours, exact laws."""

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Loss
from tests.helpers import reference

pytestmark = pytest.mark.slow

# Rényi orders.
ORDERS = np.array([1.001, 1.05, 1.3, 1.7, 2, 3, 5, 9, 17, 30, 50])


@pytest.mark.parametrize("monotonic", [True, False])
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_own_scores_lose_no_more_than_they_say(sensitivity, monotonic, mechanism):
    steps = range(-sensitivity, sensitivity + 1)
    changes = [c for c in itertools.product(steps, repeat=3) if not monotonic or min(c) >= 0 or max(c) <= 0]
    vectors = np.array(list(itertools.product(range(6), repeat=2)))
    vectors = np.column_stack([np.full(len(vectors), 3), vectors])  # only differences count
    for loss in (Loss(Fraction(3), "epsilon"), Loss(Fraction(1, 4), "rho")):
        rate = Claim.for_scores(loss, mechanism, sensitivity, monotonic).rate

        @functools.cache
        def log_law(scores, rate=rate):
            law = reference.law(scores, rate=rate, mechanism=mechanism, digits=17)
            return np.array([float(p.log()) for p in law])

        largest = 0.0
        for scores, change in itertools.product(vectors.tolist(), changes):
            changed = [s + c for s, c in zip(scores, change, strict=True)]
            p = log_law(tuple(s - max(scores) for s in scores))
            q = log_law(tuple(s - max(changed) for s in changed))
            if loss.unit == "epsilon":
                largest = max(largest, float((p - q).max()))
            else:
                exponents = np.multiply.outer(ORDERS, p) + np.multiply.outer(1 - ORDERS, q)
                largest = max(largest, float((np.log(np.exp(exponents).sum(axis=1)) / (ORDERS - 1) / ORDERS).max()))
        assert largest <= loss.value * (1 + 1e-9)
        if (loss.unit, mechanism) == ("epsilon", "permute_and_flip"):
            assert largest >= 0.99 * loss.value
