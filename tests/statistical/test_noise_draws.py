"""Noise against its exact laws: scales from 0.1 to 2**50, where floats decide and where they hardly ever do."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import noise
from dp_polars._mechanisms.noise import NoiseTable, gaussian_noise, invert, laplace_noise
from dp_polars._mechanisms.racing import Uniform
from tests.statistical.goodness import CONTROLS, FALSE_ALARM, cell_counts, check_sampler, fits

pytestmark = pytest.mark.slow

DRAWS = 200_000
SCALES = [Fraction(1, 10), Fraction(1, 2), Fraction(2), Fraction(37, 3), Fraction(1000), Fraction(10**6)]
# Beyond 2**32 a scale is split.
LARGE_SCALES = [Fraction(2**32 - 1), Fraction(2**32), Fraction(10**12 + 1, 7), Fraction(2**50)]


def edges(scale, draws=DRAWS):
    """First numbers of all cells but the lowest: every number where the scale is small, fewer cells for fewer draws."""
    if scale < 8:
        return list(range(-math.ceil(12 * scale) - 1, math.ceil(12 * scale) + 3))
    width = Fraction(1, 8) if draws >= DRAWS else Fraction(1, 2)
    positive = sorted(
        {math.ceil(scale * width * i) for i in range(1, int(10 / width))} | {1, 2, math.ceil(scale / 100)}
    )
    return [-x + 1 for x in reversed(positive)] + positive


def cells(noise, cuts):
    return np.searchsorted(np.array(cuts), noise, side="right")


def laplace_law(scale, cuts):
    """P(cell) from the distribution function, in 200 digits: P(X < x) = q^(1 − x)/(1 + q) for x <= 0, q = exp(−1/s)."""
    with ctx.workdps(200):
        s = arb(scale.numerator) / scale.denominator
        q = (-1 / s).exp()

        def below(x):
            return (-(1 - x) / s).exp() / (1 + q) if x <= 0 else 1 - (-x / s).exp() / (1 + q)

        ends = [arb(0), *(below(x) for x in cuts), arb(1)]
        return np.array([float(b - a) for a, b in pairwise(ends)])


def gaussian_law(variance, cuts):
    """P(cell) by adding up all numbers within 12 deviations (in all 1e-31 lie outside): relative errors below 1e-13."""
    spread = math.isqrt(math.floor(144 * variance)) + 2
    ends = [min(-spread, cuts[0]), *cuts, max(spread, cuts[-1]) + 1]
    two = float(2 * variance)
    weights = [
        math.fsum(
            np.exp(-(np.arange(i, min(i + 2**20, b), dtype=np.float64) ** 2) / two).sum() for i in range(a, b, 2**20)
        )
        for a, b in pairwise(ends)
    ]
    return np.array(weights) / math.fsum(weights)


def check_laplace(scale, draws=DRAWS, controls=CONTROLS, false_alarm=FALSE_ALARM):
    cuts, about = edges(scale, draws), {"controls": controls, "false_alarm": false_alarm}
    check_sampler(lambda factor: cells(laplace_noise(draws, scale * factor), cuts), laplace_law(scale, cuts), **about)


def check_gaussian(variance, draws=DRAWS, controls=CONTROLS, false_alarm=FALSE_ALARM):
    """The factors are those of the deviation."""
    cuts = edges(Fraction(math.isqrt(math.floor(variance * 10**6)), 1000), draws)
    about = {"controls": controls, "false_alarm": false_alarm}
    law = gaussian_law(variance, cuts)
    check_sampler(lambda factor: cells(gaussian_noise(draws, variance * factor**2), cuts), law, **about)


def test_the_laws_add_up_and_are_those_of_the_formulas():
    for scale in (Fraction(1, 10), Fraction(5, 2)):
        weights = {x: math.exp(-abs(x) / float(scale)) for x in range(-200, 201)}
        law = laplace_law(scale, list(range(-20, 21)))[1:-1]
        assert law == pytest.approx([weights[x] / math.fsum(weights.values()) for x in range(-20, 20)], rel=1e-12)
    for variance in (Fraction(1, 10), Fraction(5, 2)):
        weights = {x: math.exp(-(x**2) / 2 / float(variance)) for x in range(-200, 201)}
        law = gaussian_law(variance, list(range(-5, 6)))[1:-1]
        assert law == pytest.approx([weights[x] / math.fsum(weights.values()) for x in range(-5, 5)], rel=1e-12)


def by_floats(monkeypatch):
    monkeypatch.setattr(noise, "table_for", lambda law, scale, count: None)


@pytest.fixture(params=["by table", "by floats"])
def _either_way(request, monkeypatch):
    """So many draws of a small scale come from a table. Fewer would not."""
    if request.param == "by floats":
        by_floats(monkeypatch)


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_discrete_laplace(scale):
    check_laplace(scale, 2_000_000 if scale < 1 else DRAWS)


@pytest.mark.parametrize("scale", LARGE_SCALES, ids=str)
def test_discrete_laplace_of_large_scales(scale):
    check_laplace(scale)


VARIANCES = [*(scale**2 for scale in SCALES), Fraction(1, 10), Fraction(1, 3), Fraction(99, 100), Fraction(17, 4)]


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_discrete_gaussian(variance):
    # A deviation of a tenth: exp(−50), and nothing but zeros; of 13/100 too.
    controls = [] if variance < Fraction(1, 25) else CONTROLS
    check_gaussian(variance, 2_000_000 if variance < 1 else DRAWS, controls)


@pytest.mark.parametrize("deviation", [2**33, 2**50 - 1])
def test_discrete_gaussian_of_large_variances(deviation):
    # The sum over a cell of width h·σ is the normal distribution's integral, up to one density at each end: 1/σ.
    cuts = [x for x in edges(Fraction(deviation)) if abs(x) < 5 * deviation]
    law = np.diff([0.0, *(math.erfc(-x / deviation / math.sqrt(2)) / 2 for x in cuts), 1.0])
    check_sampler(lambda factor: cells(gaussian_noise(DRAWS, deviation**2 * factor**2), cuts), law)


@pytest.mark.parametrize(
    "noise", [lambda: laplace_noise(DRAWS, Fraction(2**45)), lambda: gaussian_noise(DRAWS, Fraction(2**90))]
)
def test_the_last_digits_of_large_noise_are_uniform(noise):
    drawn = noise()
    for shift in (0, 6, 12, 18):
        law = np.full(64, 1 / 64)
        assert fits(cell_counts(drawn >> shift & 63, law), law)


def test_the_two_geometric_variables_are_independent():
    scale = Fraction(2)
    both = np.minimum(noise._geometric(2 * DRAWS, scale, system_rng()), 7)
    q = math.exp(-1 / 2)
    one = np.array([(1 - q) * q**n for n in range(7)] + [q**7])
    law = np.outer(one, one).ravel()
    assert fits(cell_counts(both[:DRAWS] * 8 + both[DRAWS:], law), law)
    # So are neighbours, and those one noise apart.
    assert fits(cell_counts(both[:-1:2] * 8 + both[1::2], law), law)
    assert not fits(cell_counts(both[:DRAWS] * 8 + both[:DRAWS], law), law)


def test_parts_and_slices_are_independent_and_follow_the_law(monkeypatch):
    monkeypatch.setattr(noise, "_SLICE", 7)
    monkeypatch.setattr(noise, "_PART", 1000)
    for scale in (Fraction(2), Fraction(37, 3)):
        check_laplace(scale, 20_000)
        check_gaussian(scale**2, 20_000)
    parts = laplace_noise(40_000, Fraction(1000)).reshape(40, 1000)
    assert len(np.unique(parts, axis=0)) == 40


# What floats leave over is rare. With slacks that leave nothing to floats, the exact path decides everything.


@pytest.fixture
def exact_only(monkeypatch):
    monkeypatch.setattr(noise, "_SLACK", 2.0)
    monkeypatch.setattr(noise, "_COIN_SLACK", 2.0**70)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(37, 3)], ids=str)
def test_the_exact_path_alone_follows_the_laws(scale, exact_only, monkeypatch):
    by_floats(monkeypatch)
    asked = []
    for name in ("_exact_floor", "_exact_coin"):
        original = getattr(noise, name)
        monkeypatch.setattr(noise, name, lambda *args, f=original: asked.append(f) or f(*args))
    check_laplace(scale, 6_000)
    assert len(asked) == 3 * 2 * 6_000
    check_gaussian(scale**2, 6_000)
    assert len(set(asked)) == 2


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2)], ids=str)
def test_a_table_that_decides_nothing_follows_the_laws(scale, monkeypatch):
    """All bits then come from Arb."""

    def undecided(self, word, words):
        return np.array([invert(self.law, Uniform(int(w), 64, words), 0) for w in word.tolist()])

    def open_guide(law, scale, count):
        table = NoiseTable.of(law)
        table.guide[:] = np.iinfo(table.guide.dtype).min
        return table

    monkeypatch.setattr(noise, "table_for", open_guide)
    check_laplace(scale, 20_000)  # by all 64 bits
    monkeypatch.setattr(NoiseTable, "_by_words", undecided)
    check_laplace(scale, 1_500, controls=[])
    check_gaussian(scale**2, 1_500, controls=[])


# Of a scale above 2**32 the coin of the remainder hardly ever matters. With fewer bits it does.


@pytest.mark.parametrize("bits", [2, 3, 5])
@pytest.mark.parametrize("scale", [Fraction(37, 3), Fraction(1000)], ids=str)
def test_a_split_scale_follows_the_law(bits, scale, monkeypatch):
    by_floats(monkeypatch)
    monkeypatch.setattr(noise, "_DIRECT_BITS", bits)
    check_laplace(scale, 20_000)
    check_gaussian(scale**2, 10_000)


def geometric_fits(scale):
    # Of G itself: in the difference of two, a wrong remainder is hard to see.
    q = math.exp(-1 / scale)
    law = np.array([(1 - q) * q**n for n in range(100)] + [q**100])
    return fits(cell_counts(np.minimum(noise._geometric(DRAWS, scale, system_rng()), 100), law), law)


@pytest.mark.parametrize("bits", [2, 32])
def test_remainders_need_their_coin(bits, monkeypatch):
    monkeypatch.setattr(noise, "_DIRECT_BITS", bits)
    assert geometric_fits(Fraction(37, 3))
    monkeypatch.setattr(noise, "is_less", lambda *_: False)
    # A scale of four bits is split only if floats may decide fewer.
    assert geometric_fits(Fraction(37, 3)) == (bits >= 4)


def test_coins_that_always_come_down_heads_are_found(monkeypatch):
    by_floats(monkeypatch)
    monkeypatch.setattr(noise, "_coins", lambda size, *_: np.ones(len(size), bool))
    cuts = edges(Fraction(2))
    law = gaussian_law(Fraction(4), cuts)
    assert not fits(cell_counts(cells(gaussian_noise(20_000, Fraction(4)), cuts), law), law)
