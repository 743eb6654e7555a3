"""Selection by the caller's scores against exact laws, and against the two other descriptions of permute-and-flip."""

import math
import random
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.selection import best_rows, exponential_mechanism, permute_and_flip
from tests.helpers import reference
from tests.registry import MECHANISMS
from tests.statistical.goodness import CONTROLS, cell_counts, check_sampler, fits

pytestmark = pytest.mark.slow

DRAWS = 100_000


def law_of(scores, rate, mechanism):
    return reference.floats(reference.law(scores, rate=rate, mechanism=mechanism, digits=20))


# scores, sensitivity, monotonic, epsilon -> the rate is epsilon/sensitivity, or half of it.
CALLS = {
    "ints": (np.array([3, 1, 3, 0, -2]), 1, False, Fraction(1)),
    "small ints": (np.array([127, -128, 126, 120], np.int8), 2, True, Fraction(1)),
    "unsigned": (np.array([2**64 - 1, 0, 2**64 - 2, 2**64 - 1, 2**64 - 5], np.uint64), 1, True, Fraction(1, 2)),
    "both ends of int64": (np.array([2**63 - 1, -(2**63), 2**63 - 2]), 1, True, Fraction(1)),
    "floats": (np.array([0.5, 0.25, -1.75, 0.1]), 0.5, False, Fraction(1)),
    "float32": (np.array([1e30, 1.0000001e30, 3e29], np.float32), 1e29, True, Fraction(1, 3)),
    "denormal floats": (np.array([5e-324, 0.0, 1.5e-323]), Fraction(1, 2**1000), True, Fraction(1)),
    "largest floats": (np.array([1.7e308, -1.7e308, 1.7e308 - 1e300, 1.7e308 - 2e300]), 1e300, True, Fraction(1)),
    "not all finite": (np.array([1.0, np.nan, 0.5, np.inf, -np.inf]), 1, True, Fraction(3)),
}


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("unit", ["epsilon", "rho", "permute_and_flip"])
def test_one_draw_for_each_row_of_scores(case, unit):
    scores, sensitivity, monotonic, epsilon = CALLS[case]
    rate = epsilon / reference._exact(sensitivity) / (1 if monotonic else 2)
    finite = np.isfinite(scores.astype(float))
    law = np.zeros(len(scores))
    mechanism = "permute_and_flip" if unit == "permute_and_flip" else "exponential"
    law[finite] = law_of(scores[finite].tolist(), rate, mechanism)
    rows = np.tile(scores, (DRAWS, 1))

    def draw(factor):
        claim = {"sensitivity": sensitivity, "monotonic": monotonic}
        if unit == "permute_and_flip":
            return permute_and_flip(rows, epsilon=epsilon * factor, **claim)
        x = epsilon * factor
        loss = {"epsilon": x} if unit == "epsilon" else {"rho": reference.bounded_range_rho(x, digits=20)}
        return exponential_mechanism(rows, **loss, **claim)

    controls = CONTROLS if case != "denormal floats" else ()  # gaps of 2**-72: as good as flat
    check_sampler(draw, law, controls=controls)


@pytest.mark.parametrize("mechanism", [permute_and_flip, exponential_mechanism])
def test_one_draw_from_one_row_of_scores(mechanism):
    scores = [6] + [0] * 20
    law = law_of(scores, Fraction(1, 2), MECHANISMS[mechanism is exponential_mechanism])

    def draw(factor):
        return [min(1, mechanism(scores, epsilon=factor, sensitivity=1)) for _ in range(2_000)]

    check_sampler(draw, [law[0], law[1:].sum()])


@pytest.mark.parametrize("lowest", [False, True])
def test_groups_of_different_lengths(mechanism, lowest):
    one, other, draws = np.array([2, 5, 1, 4]), np.array([0, 0, 3]), 50_000
    offered = np.array([True, True, True, False, True, True, True])
    scores = np.tile(np.concatenate([one, other]), draws)
    lengths = np.tile([4, 3, 0], draws)
    sign = -1 if lowest else 1
    rate = Fraction(1, 3)
    laws = [law_of(sign * one[:3], rate, mechanism), law_of(sign * other, rate, mechanism)]
    words = system_rng()
    chosen = best_rows(scores, lengths, rate, LAWS[mechanism], words, offered=np.tile(offered, draws), lowest=lowest)
    chosen = chosen.reshape(draws, 3)
    assert (chosen[:, 2] == -1).all()
    for group, law in enumerate(laws):
        assert fits(cell_counts(chosen[:, group], law), law)
    assert fits(cell_counts(chosen[:, :2] @ [3, 1], np.outer(*laws).ravel()), np.outer(*laws).ravel())


# The other descriptions


def algorithm_1(coins, rng):
    """McKenna & Sheldon (2020), Algorithm 1, to the letter."""
    order = list(range(len(coins)))
    rng.shuffle(order)
    for candidate in order:
        if rng.random() < coins[candidate]:
            return candidate
    raise AssertionError


def drawn(scores, rate, factor):
    return permute_and_flip(np.tile(scores, (DRAWS, 1)), epsilon=2 * rate * factor, sensitivity=1)


SCORES = [[0, -1], [3, 3, 1, 0], [5, 2, 4, 4, 0, -3]]


@pytest.mark.parametrize("scores", SCORES)
def test_permute_and_flip_is_algorithm_1(scores):
    rate = Fraction(1, 2)
    coins = reference.coins(scores, rate)
    law = reference.floats(reference.by_permutations(coins))
    rng, floats = random.SystemRandom(), [float(p) for p in coins]
    assert fits(cell_counts([algorithm_1(floats, rng) for _ in range(20_000)], law), law)

    check_sampler(partial(drawn, scores, rate), law)


def geometric_law(scores, q):
    """Law of the largest score after geometric noise, P(noise = j) = (1 − q)·q**j, with a uniform tie-break.

    A candidate that reaches the maximum t wins with E[1/(1 + ties)] = ∫₀¹ ∏ (P(other < t) + P(other = t)·x) dx.
    """
    law, t = np.zeros(len(scores)), max(scores)
    while t < max(scores) + 45 / -math.log(q):
        below = np.array([1 - q ** (t - s) if t > s else 0.0 for s in scores])
        equal = np.array([(1 - q) * q ** (t - s) if t >= s else 0.0 for s in scores])
        for r in range(len(scores)):
            others = np.polynomial.Polynomial([1.0])
            for i in range(len(scores)):
                if i != r:
                    others *= np.polynomial.Polynomial([below[i], equal[i]])
            law[r] += equal[r] * others.integ()(1.0)
        t += 1
    return law


@pytest.mark.parametrize("scores", SCORES)
def test_permute_and_flip_is_report_noisy_max_with_geometric_noise(scores):
    rate = Fraction(2, 3)
    q = math.exp(-rate)
    law = geometric_law(scores, q)
    np.testing.assert_allclose(law, law_of(scores, rate, "permute_and_flip"), rtol=1e-12)
    # Done literally as well: noise, and then a tie-break by a random key.
    rng = np.random.default_rng()
    noisy = np.array(scores) + rng.geometric(1 - q, (DRAWS, len(scores)))
    literal = np.lexsort((rng.random(noisy.shape), noisy))[:, -1]
    assert fits(cell_counts(literal, law), law)

    check_sampler(partial(drawn, scores, rate), law)
