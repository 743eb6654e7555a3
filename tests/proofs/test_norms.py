"""No spread of the parts of a person is worse than full groups: of discrete Laplace noise, by exact enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars.analysis._profile import PrivacyProfile


def losses(moves, q):
    """Log-ratio over −log(q) -> (probability without the moves, with them), of noise with P(z) ∝ q^|z|, exactly."""
    found = {0: (Fraction(1), Fraction(1))}
    for move in moves:
        own = {move: (1 / (1 + q), q**move / (1 + q)), -move: (q**move / (1 + q), 1 / (1 + q))}
        for k in range(1, move):
            own[move - 2 * k] = q**k * (1 - q) / (1 + q), q ** (move - k) * (1 - q) / (1 + q)
        if move == 0:
            own = {0: (Fraction(1), Fraction(1))}
        together = {}
        for (one, (p, r)), (other, (s, t)) in itertools.product(found.items(), own.items()):
            before = together.get(one + other, (0, 0))
            together[one + other] = before[0] + p * s, before[1] + r * t
        found = together
    return found


def deltas(moves, q, last):
    """The hockey-stick divergences at e^ε = q^−t, for t from 0 on: exactly."""
    law = losses(moves, q).values()
    return [sum(max(p - q**-t * r, Fraction(0)) for p, r in law) for t in range(last + 1)]


def test_losses_are_those_of_the_noise():
    """By the definition, in floats."""
    q, z = 0.7, np.arange(-200, 201)
    p, r = q ** abs(z), q ** abs(z - 3)
    p, r = p / p.sum(), r / r.sum()
    for t, exact in enumerate(deltas([3], Fraction(7, 10), 3)):
        assert np.maximum(p - q**-t * r, 0).sum() == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("q", [Fraction(1, 3), Fraction(4, 5), Fraction(99, 100)], ids=str)
def test_parts_in_fuller_groups_are_no_better(q):
    """Alone, and with further moves beside them."""
    for s, t in itertools.product(range(1, 7), repeat=2):
        for others in ((), (2,), (1, 4)) if s >= t else ():
            last = s + t + sum(others)
            before, after = (deltas([*moves, *others], q, last) for moves in ((s, t), (s + 1, t - 1)))
            assert all(x <= y for x, y in zip(before, after, strict=True)), (s, t, others)
            assert before != after


@pytest.mark.parametrize(("total", "per_group"), [(2, 1), (3, 1), (3, 2)])
def test_no_spread_of_parts_is_above_the_profile(total, per_group):
    """Six parts a row: all ways in which a person may be spread over up to five groups."""
    parts, epsilon = 6, 3.0
    q = Fraction(math.exp(-epsilon / total / parts)).limit_denominator(10**6)
    loss = Fraction(-math.log(q) * total * parts).limit_denominator(10**9) + Fraction(1, 10**9)
    spread = Contributions(total, per_group)
    claim = Claim(Loss(loss, "epsilon"), "discrete_laplace", Fraction(1), spread, "add_or_remove_one")
    profile = PrivacyProfile.of([claim])
    last = total * parts
    charged = [profile.delta(Fraction(-math.log(q) * t).limit_denominator(10**12)) for t in range(last)]
    most = parts * per_group
    spreads = [
        moves
        for moves in itertools.combinations_with_replacement(range(most, -1, -1), 5)
        if sum(moves) == last and all(move % 2 == 0 or move == most for move in moves)
    ]
    assert len(spreads) > 4
    for moves in spreads:
        found = deltas([move for move in moves if move], q, last - 1)
        assert all(float(x) <= y * (1 + 1e-6) + 1e-9 for x, y in zip(found, charged, strict=True)), moves


def test_randomized_response_is_worse_where_it_is_spread():
    """The control: of whole rows, three moves of two thirds are worse than two of one."""

    def at_zero(x, n):
        p = 1 / (1 + math.exp(-x))
        law = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        return sum(max(a - b, 0) for a, b in zip(law, law[::-1], strict=True))

    assert at_zero(2 / 3, 3) == pytest.approx(0.466, abs=5e-4)
    assert at_zero(1, 2) == pytest.approx(0.462, abs=5e-4)
