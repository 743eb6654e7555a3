"""Scores with sensitivities of their own: float gaps against exact ones, and the sensitivity of the score."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import selection as own_sensitivities
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.selection import BETA, OwnSensitivities
from tests.helpers.reference import _exact, own_scores

RNG = np.random.default_rng(6)
COUNTS = RNG.integers(1, 16, 25)
N = int(COUNTS.sum())


def wide(low, high):
    return np.sign(RNG.normal(size=N)) * 10.0 ** RNG.uniform(low, high, N)


ROWS = {  # scores, sensitivities, unit, rate
    "whole": (RNG.integers(0, 10**6, N), RNG.integers(1, 200, N), 1, Fraction(1, 2)),
    "few": (RNG.integers(0, 3, N), RNG.integers(1, 3, N), 1, Fraction(3)),
    "equal": (np.zeros(N, np.int64), np.ones(N, np.int64), 1, Fraction(1)),
    "64 bits": (RNG.integers(-(2**63), 2**63 - 1, N), RNG.integers(1, 2**62, N), 1, Fraction(1)),
    "unsigned": (RNG.integers(0, 2**64, N, np.uint64), RNG.integers(2**63, 2**64, N, np.uint64), 1, Fraction(1)),
    "floats": (RNG.normal(0, 1e6, N), RNG.random(N) + 0.1, 1, Fraction(1, 3)),
    "decimals": (RNG.integers(0, 10**6, N), RNG.integers(1, 200, N), Fraction(1, 100), Fraction(1, 2)),
    "of wide ranges": (wide(-30, 30), abs(wide(-30, 30)), Fraction(100), Fraction(1, 10**9)),
    "huge and tiny": (wide(-300, 300), abs(wide(-300, 300)), 1, Fraction(1)),
    "of denormals at a usual rate": (wide(-320, -310), abs(wide(-322, -310)) + 5e-324, 1, Fraction(1)),
    "denormal": (wide(-320, -310), abs(wide(-322, -310)) + 5e-324, 1, Fraction(2**900)),
    "nearly tied": (RNG.integers(0, 3, N) + 2**62, RNG.integers(1, 3, N), 1, Fraction(2**60)),
    "objects": (np.array([Fraction(q, 3) for q in range(N)]), RNG.random(N) + 1, 1, Fraction(1)),
}  # fmt: skip


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("case", ROWS)
def test_gaps_are_as_exact_as_the_race_wants_them(case, lowest, mechanism):
    scores, sensitivities, unit, rate = ROWS[case]
    rows = OwnSensitivities(scores, sensitivities, COUNTS, Fraction(unit), lowest)
    gaps, begins = rows.gaps(rate, LAWS[mechanism]), np.cumsum(COUNTS) - COUNTS
    weights = rows._weights(rate, LAWS[mechanism])
    sign = -1 if lowest else 1
    for group, (begin, count) in enumerate(zip(begins.tolist(), COUNTS.tolist(), strict=True)):
        part = slice(begin, begin + count)
        t = Fraction(weights[group]) / Fraction(unit)
        exact = [
            -s for s in own_scores([sign * _exact(q) for q in scores[part]], sensitivities[part], t, Fraction(unit))
        ]
        assert min(exact) == min(gaps[part]) == 0
        exactly = rows._exact_gaps(group, weights[group])
        for row, gap in enumerate(exact):
            assert exactly(row) == gap
            found = gaps[begin + row]
            if math.isinf(found):
                assert gap > Fraction(2) ** 1023
            else:
                error = abs(Fraction(found) - gap)
                assert error <= gap / 2**48 or error * rate <= Fraction(1, 2**46)


def test_exact_numbers_are_used_where_floats_do_not_suffice(monkeypatch):
    asked, exactly = [], OwnSensitivities._exact_gaps
    monkeypatch.setattr(OwnSensitivities, "_exact_gaps", lambda *args: (asked.append(args[1]), exactly(*args))[1])

    def gaps(scores, sensitivities):
        asked.clear()
        counts = np.array([1, len(scores)])
        rows = OwnSensitivities(np.append(5, scores), np.append(1, sensitivities), counts, Fraction(1), lowest=False)
        return rows.gaps(Fraction(1), LAWS["exponential"])[1:].tolist(), asked

    # The best score has so large a sensitivity that two others, which are far away and nearly equal, lead the race.
    found, groups = gaps([2**61, 0, 1], [2**61, 1, 1])
    assert groups == [1]
    assert found[1:] == [0.5, 0]
    assert gaps([2**40, 0, 1], [2**40, 1, 1])[1] == []
    assert gaps([1e300, 0.0], [1e300, 1.0])[1] == [1]  # products that might overflow
    assert gaps([1e200, 0.0], [1e200, 1e200])[1] == []


@pytest.mark.parametrize("pairs", [1, 10, 1 << 17])
def test_groups_of_all_sizes_in_batches_of_all_sizes(pairs, mechanism, monkeypatch):
    monkeypatch.setattr(own_sensitivities, "_PAIRS", pairs)
    counts = np.array([1, 7, 3, 3, 40, 1])
    scores = RNG.integers(0, 100, counts.sum())
    best = np.cumsum(counts) - 1
    scores[best] = 10**9
    rows = OwnSensitivities(scores, RNG.integers(1, 9, counts.sum()), counts, Fraction(1), lowest=False)
    assert rows.best(Fraction(10), LAWS[mechanism], system_rng()).tolist() == best.tolist()


def test_the_score_has_sensitivity_one():
    """Random neighbours, each score moved by at most its own sensitivity; and whole ones at both ends."""
    largest = 0.0
    for _ in range(3_000):
        size = int(RNG.integers(2, 7))
        scores, own = RNG.normal(0, 4, size), 10.0 ** RNG.uniform(-2, 2, size)
        t = float(RNG.exponential(3))
        change = own * (RNG.uniform(-1, 1, size) if RNG.random() < 0.3 else RNG.choice([-1, 1], size))
        both = []
        for q in (scores, scores + change):
            c = q - t * own
            both.append(np.min(np.subtract.outer(c, c) / np.add.outer(own, own), axis=1))
        largest = max(largest, abs(both[0] - both[1]).max())
    assert 0.99 < largest <= 1 + 1e-9


def test_the_weight_is_the_error_that_is_missed_with_probability_beta(mechanism):
    rate, counts = Fraction(1, 3), np.array([1, 2, 50, 4096])
    rows = OwnSensitivities(np.zeros(counts.sum()), np.ones(counts.sum()), counts, Fraction(1), lowest=False)
    sizes = np.maximum(counts, 2)
    wanted = np.log((sizes if mechanism == "exponential" else (sizes - 1) / 2) / BETA) / float(rate)
    assert rows._weights(rate, LAWS[mechanism]) == pytest.approx(wanted, rel=1e-5)
    # Its product with each half of a float must be a float.
    assert all(Fraction(t).numerator.bit_length() <= 20 for t in rows._weights(rate, LAWS[mechanism]))


def test_the_weight_is_in_the_unit_of_the_scores(mechanism):
    one, small = (
        OwnSensitivities(np.zeros(5), np.ones(5), np.array([5]), unit, lowest=False)
        for unit in (Fraction(1), Fraction(1, 128))
    )
    assert small._weights(Fraction(3), LAWS[mechanism]) * 128 == one._weights(Fraction(3), LAWS[mechanism])


def test_gaps_of_exact_numbers_are_not_those_of_their_floats():
    scores = np.array([Fraction(2**40), Fraction(0), Fraction(1, 3)], object)
    rows = OwnSensitivities(scores, np.array([2.0**40, 1, 1]), np.array([3]), Fraction(1), lowest=False)
    assert rows.gaps(Fraction(1), LAWS["exponential"])[1] == pytest.approx(1 / 6, rel=2**-48)
