"""The laws of the race: how a candidate's racing value follows from its wait, in one table by the mechanism's word.

Every candidate waits W = −log(1 − V), V uniform on (0, 1): a standard exponential time. Its racing value is g(W), and
it arrives at g(W)·exp(rate·gap). The first to arrive wins. g(w) = 1 − exp(−w) makes it permute-and-flip (McKenna &
Sheldon 2020, arXiv 2010.12603; −log g(W) is then the exponential noise of Ding et al. 2021, arXiv 2105.07260), g(w) = w
the exponential mechanism (McSherry & Talwar 2007, as a Gumbel race).

Among m candidates with one score the first wait is that of one divided by m, and after each arrival the next one among
the n that are left comes 1/n of a fresh wait later, whatever g is. So a law is g and a bound on the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from flint import arb

    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.terms import Mechanism

Floats: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True)
class RacingLaw:
    """What a race must know of a mechanism.

    The log-density of −log g(W) must not fall faster than a slope of 1. So a choice at the rate ε/R is ε-DP, with its
    lead as well (`docs/proofs/leads.md`).

    Parameters
    ----------
    values
        g in float64, shape (n,): ascending, from 1 − exp(−w) up to w, off by at most 8 units in the last place; g(0) is
        0. An infinite wait is allowed.
    exact_value
        g in interval arithmetic.
    odds
        The number of candidates -> c, so that an error of t or more has a probability of at most c·exp(−rate·t).
    is_uniform
        Whether g(W) = V. That saves the logarithm of V.
    """

    values: Callable[[Floats], Floats]
    exact_value: Callable[[arb], arb]
    odds: Callable[[int], float]
    is_uniform: bool = False

    def log_odds(self, k: int, beta: float) -> float:
        """Return rate times an error that is reached with probability at most `beta`, with k candidates."""
        return 0.0 if k == 1 else max(0.0, math.log(self.odds(k) / beta))


def _flip(waits: Floats) -> Floats:
    return -np.expm1(-waits)


def _flip_exactly(wait: arb) -> arb:
    return -(-wait).expm1()


def _half_of_others(k: int) -> float:
    # McKenna & Sheldon 2020: against each single candidate the chance is half its coin.
    return (k - 1) / 2


# A word that is no key here does not race: it raises KeyError.
LAWS: dict[Mechanism, RacingLaw] = {
    "permute_and_flip": RacingLaw(_flip, _flip_exactly, _half_of_others, is_uniform=True),
    "exponential": RacingLaw(lambda waits: waits, lambda wait: wait, float),
}


def error_bound(k: int, beta: float, claim: Claim) -> float:
    """Return an error that is reached with probability at most `beta`, in the units of the claim's range."""
    return LAWS[claim.mechanism].log_odds(k, beta) / float(claim.rate)
