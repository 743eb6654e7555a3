"""A mechanism that the package does not have: what it takes to add one, and its exact law, by quadrature.

Its racing value is g(w) = ln(1 + w), from 1 − exp(−w) up to w. Its noise Z = −ln g(W) exceeds z with the probability
S(z) = 1 − exp(1 − exp(exp(−z))). With u = exp(−z) its log-density is 1 − z + u − exp(u), of the slope
u·(exp(u) − 1) − 1, which is at least −1. So is that of ln S, minus the hazard rate: whatever the others drew, moving a
score by R changes the chance to win by a factor of at most exp(rate·R). At the rate ε/R it is ε-DP. No more is known of
its rho than what that proves.

S(z) is at most exp(−z), for 1 − exp(−w) <= g(w); so an error of t or more has with each of the others a probability of
at most E[g(W)]·exp(−rate·t), and E[g(W)] = 0.5963…
"""

import itertools

import numpy as np
import pytest

from dp_polars._accounting import costs
from dp_polars._mechanisms import racing as laws

TOY = "toy"
PROOF = costs.Proof("choice", costs.PURE_CURVE, "A toy: one candidate of each group.")
LAW = laws.RacingLaw(np.log1p, lambda wait: wait.log1p(), lambda k: 0.5964 * (k - 1))

# At 4 the best candidate has arrived but with a probability of exp(1 − exp(4)), below 1e-23.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(120)
_TIMES, _WEIGHTS = 2 * (_NODES + 1), 2 * _WEIGHTS


@pytest.fixture
def toy(monkeypatch):
    """The mechanism's word, once it is in the two tables."""
    monkeypatch.setitem(costs.PROOFS, TOY, PROOF)
    monkeypatch.setitem(laws.LAWS, TOY, LAW)
    return TOY


def law_of(scores, rate):
    """P of each candidate: the integral over its arrival times of their density times P(all others come later).

    One of gap x comes after t with the probability exp(−w), w = exp(t·exp(−rate·x)) − 1.
    """
    scores = np.asarray(scores, float)
    coins = np.exp(-float(rate) * (scores.max() - scores))
    growth = np.exp(np.multiply.outer(coins, _TIMES))
    nobody = np.exp((1 - growth).sum(axis=0))
    law = (coins[:, None] * growth * nobody) @ _WEIGHTS
    assert abs(law.sum() - 1) < 1e-13
    return law / law.sum()


def law_of_lists(scores, rate):
    """P of each ordered pair of candidates, flat, drawn one after the other without replacement."""
    size = len(scores)
    law, firsts = np.zeros((size, size)), law_of(scores, rate)
    for first, second in itertools.permutations(range(size), 2):
        left = [i for i in range(size) if i != first]
        law[first, second] = firsts[first] * law_of([scores[i] for i in left], rate)[left.index(second)]
    return law.ravel()
