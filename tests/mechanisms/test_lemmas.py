"""The error bounds of floats as lemmas: proved over their whole domains by interval arithmetic.

Where it can, a lemma runs the code's own function on all floats of a box at once (`tests/helpers/rounded.py`), with its
slack set to zero, and compares what floats may be off by with the slack that the code has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars._base.numbers import ball
from dp_polars._mechanisms import (
    above_threshold,
    noise,
    noisy_gap,
    partition_selection,
    racing,
    residuals,
    selection,
    top_k,
)
from dp_polars._mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from dp_polars._mechanisms.racing import LAWS
from tests.helpers import machine_checked, rounded
from tests.helpers.rounded import U32, ULPS, DoneError, Rounded, Slack, U, min_of, worst

ONE = Fraction(1)
STEP = Fraction(1, 2**53)
# V in its leading bits: from one step to one less than 1. At 0 and at 1 the times are 0 and infinite, exactly.
V = (STEP, 1 - 2 * STEP)
M = (1, 2**63)
LINE = 128
NEAR = (0, Fraction(racing.FAR) * (1 + Fraction(1, 2**45)))
Side = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Lemma:
    """A bound on errors.

    Parameters
    ----------
    constant
        The name of the constant that the code uses.
    statement, domain
        In words, for the page.
    ratio
        One side of each dimension -> the most that floats may be off there, as a share of what the constant allows.
    box, along
        The domain, and the dimensions along which it is cut; None: all.
    """

    constant: str
    statement: str
    domain: str
    ratio: Callable[..., arb]
    box: tuple[Side, ...]
    along: tuple[int, ...] | None = None


def share(needed, allowed):
    return needed / ball(Fraction(float(allowed)))


def function_slack():
    """Return how far off an elementary function is, relative."""
    return 2 * rounded.ULPS * ball(U)


@contextmanager
def patched(module, **values):
    """Let names of a module stand for other things; a name of Python's own may be one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(module, name, value, raising=False)
        yield


def in_turn(*values):
    """Return a function that gives one after the other: what stands for the calls of `float`."""
    left = iter(values)
    return lambda _: next(left)


def bits(v):
    return Rounded.exact(*v, grid=True)


def whole(side, **kwargs):
    return Rounded.exact(*side, integer=True, **kwargs)


def exponents(x):
    """Return rate·gap as the code computes it: gaps are off by 2**-48 of themselves, and by 2**-46/rate."""
    gaps = Rounded.exact(*x).off(Fraction(1, 2**48), Fraction(1, 2**46))
    with patched(racing, float=in_turn(Rounded.exact(1).off(U))):  # all is as at the rate 1, but for its rounding
        return racing.exponents_of(gaps, ONE)


# --- The race


def sharp_times(law):
    def ratio(v, m, x):
        with patched(racing, leading_bits=bits):
            times = racing._sharp_times(v, exponents(x), whole(m), law)
        off = times[0].relative.max(times[1].relative)
        # Who loses by floats, loses: if a time is at most another one, its bound is at most that of the other.
        return share((1 + off) / (1 - off) / (1 - ball(U)) - 1, racing._SLACK)

    return ratio


def far_times():
    """The nearest far candidate comes no earlier than the code says."""
    early = -ball(Fraction(racing.FAR) * (Fraction(1, 2**48) + 4 * U) + Fraction(1, 2**46))
    return share(-early.expm1() + 2 * function_slack(), racing._SLACK)


def far_coin():
    """A coin that is not raced one by one is below what 64 bits tell."""
    return ball(-Fraction(racing.FAR)).exp() * 2**64


def first_pass(is_plain):
    """As `racing._rule_out` computes: in float32."""

    def ratio(v, m, x):
        # float32 of gap and rate (from a float64), and their product; or of a product of floats.
        scale = np.exp(Rounded.exact(*x, unit=U32).off(3 * U32 + U + 40 * U, Fraction(1, 2**46)))
        word, weights = (Rounded.exact(*side).astype(np.float32) for side in (v, m))
        low = word * scale
        high = low + scale
        if not is_plain:
            high /= Rounded.exact(2**32 - 1 - v[1], 2**32 - 1 - v[0]).astype(np.float32)
            high /= weights
        # The bound is multiplied by the slack and, with weights, by these.
        rounding = 2 if is_plain else 4
        off = (1 + low.relative) / (1 - high.relative) * (1 + rounding * ball(U32)) - 1
        return share(off, racing._FIRST_SLACK)

    return ratio


# --- The gap


def with_ends(end):
    """Return what adds, to the boxes that end at LINE, those two points between which all is a line.

    From LINE on, what floats may be off by, as bounded here, and what is allowed both grow linearly with the last side:
    the sizes of sums are sums of sizes. So the two ends are as good as all that lies between.
    """

    def wrapped(ratio):
        def of_all(*sides):
            found = ratio(*sides)
            if sides[-1][1] == LINE:
                for point in (LINE, end):
                    found = found.max(ratio(*sides[:-1], (Fraction(point), Fraction(point))))
            return found

        return of_all

    return wrapped


def log_times(law, *, second=False, weighted=True):
    @with_ends(2**1023)
    def ratio(*sides):
        *drawn, m, x = sides
        with patched(noisy_gap, leading_bits=bits, _SLACK=0.0, _RELATIVE_SLACK=0.0):
            times = (
                noisy_gap._log_second_times(*drawn, exponents(x), whole(m), law)
                if second
                else noisy_gap._log_times(*drawn, exponents(x), whole(m) if weighted else None, law)
            )
        allowed = ball(Fraction(noisy_gap._SLACK)) + ball(Fraction(noisy_gap._RELATIVE_SLACK)) * ball(x[0])
        return times.low.absolute.max(times.high.absolute) / allowed

    return ratio


def whole_units(gap):
    seen = []
    between = Rounded.exact(*gap, seen=seen).off(U)
    with patched(noisy_gap, _RELATIVE_SLACK=0.0), suppress(DoneError):
        noisy_gap._whole_units(SimpleNamespace(low=between, high=between), Rounded.exact(1).off(U))
    return share(seen[0][0].relative, noisy_gap._RELATIVE_SLACK)


# --- Noise


def floors(word, scale):
    """U lies between the word and one more: E is off by that, too."""
    seen, of_scale = [], Rounded.exact(*scale).off(U)
    words = whole(word, seen=seen)
    slacks = {"_SLACK": 0.0, "_RELATIVE_SLACK": 0.0}
    with patched(noise, float=in_turn(of_scale), **slacks), suppress(DoneError):
        noise._geometric(1, ONE, lambda _: words)
    (computed,) = seen[0]
    more = (1 / ball(word[0])).log1p() * ball(scale[1])
    allowed = ball(scale[0]) * ball(Fraction(noise._SLACK)) * (1 - 3 * ball(U))
    allowed += computed.value.least * ball(Fraction(noise._RELATIVE_SLACK))
    return (computed.absolute + more) / allowed


def coins(distance, deviation):
    """All in units of σ: the size of the noise is σ²/scale and a distance, and σ/scale is at most 1."""
    seen = []
    size = whole((max(0, distance[0] + deviation[0]), distance[1] + deviation[1]), seen=seen, room=2)
    middle = Rounded.exact(*deviation).off(U)
    word = whole((1, 2**64), seen=seen, room=2)
    with (
        patched(noise, _COIN_SLACK=0.0, float=in_turn(middle, Rounded.exact(Fraction(1, 2)).off(U))),
        suppress(DoneError),
    ):
        noise._coins(size, ONE, 1, lambda _: word)
    ratios = []
    for uniform, chance in seen:
        off = (1 + uniform.relative) / (1 - chance.relative) - 1
        ratios.append(share(off, noise._COIN_SLACK))
    return ratios[0].max(ratios[1])


def far_coins():
    """Beyond _FAR only the word 0 is too close to call."""
    z = ball(-Fraction(noise._FAR) * (1 - Fraction(1, 2**40)))
    return z.exp() * 2**64 * (1 + ball(Fraction(noise._COIN_SLACK)))


def laplace_reach(scale):
    """P(X >= m) < exp(−m/scale), and m is 45 scales and one, or more."""
    assert all(DiscreteLaplace(Fraction(end)).reach >= 45 * end + 1 for end in scale)
    return (-45 - 1 / ball(scale[1])).exp() * 2**64


def gaussian_reach(deviation):
    """The reach is √(2·(45 + ln(2σ + 1))) deviations or more, by two roots, a logarithm and four more operations."""
    log = (2 * ball(deviation[1]) + 1).log()
    exponent = -(45 + log) * (1 - 16 * ball(U)) ** 2
    for end in deviation:
        least = 2 * (45 + (2 * ball(end) + 1).log())
        assert ball(Fraction(DiscreteGaussian(Fraction(end) ** 2).reach)) / ball(end) > least.sqrt() * (
            1 - 16 * ball(U)
        )
    # What is added up is at most 2σ + 1 times that.
    return (exponent + log).exp() * 2**64


# --- The first above a threshold


def anchored(run):
    """Return how much of each slack is used up, at most; the slack outweighs what came before it."""

    def ratio(*sides):
        used = []
        with patched(above_threshold, _SLACK=Slack.of(above_threshold._SLACK, used), leading_bits=bits):
            left = run(*sides)
        used += [2 * bound.relative / ball(Fraction(above_threshold._SLACK)) for bound in left]
        return functools.reduce(arb.max, used, arb(0))

    return ratio


def reached(v, missing, m):
    """The hazards, the chance that a run of m reaches the threshold, and the place in it."""
    start = Rounded.exact(*missing)
    hazards = above_threshold._hazards(above_threshold.Between(start, start))
    waits = above_threshold._waits(v)
    bounds = []
    for hazard, wait in ((hazards.low, waits.high), (hazards.high, waits.low)):
        bounds.append(above_threshold._chance(hazard * whole(m)) * (1 - above_threshold._SLACK))
        bounds.append(wait / hazard)
    return bounds


def gaps_above(v, above):
    """By how much the answer is above: a fresh wait, and what nothing is missing of, at the rate 1 but for rounding."""
    missing = Rounded.exact(-above[1], -above[0])
    with patched(above_threshold, float=in_turn(Rounded.exact(1).off(U))):
        found = above_threshold._Search._gaps(
            SimpleNamespace(rate=ONE), above_threshold._waits(v), above_threshold.Between(missing, missing)
        )
    return found.low, found.high


@with_ends(37 * 2**1000)
def thresholds_missing(gap, rate, wait):
    """λ·(T + z − q): T − q is a whole number, or one and a part; its error and all is over a power
    of 2 near the rate."""
    part = Rounded.exact(0, 1).off(0, Fraction(1, 2**54))
    of_rate = Rounded.exact(*rate).off(U)
    zero = SimpleNamespace(low=Rounded.exact(*wait), high=Rounded.exact(*wait))
    search = SimpleNamespace(threshold=Fraction(1, 2), rate=ONE, runs=SimpleNamespace(counts=-whole(gap)))
    with patched(above_threshold, float=in_turn(of_rate, part), _SLACK=0.0):
        part_is_there = Part(part)
        with patched(above_threshold, float=in_turn(of_rate, part_is_there)):
            found = above_threshold._Search._missing(search, zero)
    allowed = ball(Fraction(above_threshold._SLACK)) * (ball(wait[0]) + ball(rate[0]) * (ball(gap[0]) + 1))
    return found.low.absolute / allowed


class Part(Rounded):
    """The part of a threshold beyond its whole number: there is one."""

    def __init__(self, like):
        self.__dict__.update(like.__dict__)

    def __gt__(self, _):
        return 1


# --- The joint draw


@with_ends(10**300)
def joint_times(v, most, x):
    seen = []
    size = ball(most[1])
    logs = Rounded(Rounded.exact(-most[1], most[1]).value, None, 4 * ball(U) * size)
    steps = SimpleNamespace(
        errors=[0], sizes=np.array([1]), owner=None, top=np.zeros((1, 1)), log_multiplicities=lambda: (logs, 0.0)
    )
    draw = SimpleNamespace(rate=ONE, size=1)
    drawn = bits(v)
    drawn.seen = seen
    whole_errors = Rounded.exact(*x).off(3 * U)
    names = {"leading_bits": lambda _: drawn, "exponents_of": lambda *_: whole_errors, "_SLACK": 0.0}
    with patched(top_k, **names), suppress(DoneError):
        top_k._race(steps, draw, lambda _: None)
    low = seen[0][0]
    return low.absolute / (ball(Fraction(top_k._SLACK)) * (ball(x[0]) + ball(most[0]) + 64))


def log_multiplicities(k):
    """k whole numbers of 2**-bits, rounded from logarithms, and two logarithms, of at most ln(size + 1) each."""
    of_units = ball(Fraction(1, 2)) * ball(k[1]) / (ball(k[1]) + 2)
    of_logs = function_slack() / ball(Fraction(top_k._LOG_SLACK))
    return of_units.max(of_logs)


# --- Own sensitivities


def double_sums():
    """c is off by at most 2**-100 of itself: two products and sums of the lower halves are rounded."""
    u = ball(U)
    product = u * u * (1 + u)  # of t and the lower half, which is u of the upper one
    its_sum = u * (u + u * (1 + u))
    total = u * (u + u) + u * (u + u + u)  # the sum of two lower halves, and with what two_sum left
    given = 2 * u * u  # an exact number that two floats stand for
    return (product + its_sum + total + given) * ball(Fraction(2**100))


def gaps_of_own():
    """Gaps are off by at most 2**-48 of themselves: three operations, D_i + D_j, the quotient, the unit; and 2**-50."""
    u = ball(U)
    relative = (1 + 3 * u) * (1 + 2 * u) / (1 - 3 * u) * (1 + 2 * u) - 1
    return (relative + ball(Fraction(1, 2**50))) * 2**48


def small_part_of_own():
    """2**-97·c/D holds what two c, off by 2**-100, and their halves leave."""
    u = ball(U)
    halves = 2 * u * u + 2 * u * 2 * u
    return (2 * ball(Fraction(1, 2**100)) + halves) * 2**97


# --- Keys


def selection_floats(exponent, log_delta):
    """π before it is cut to 1, over _SLACK·(1 + π): the parts of `PartitionSelection.floats`, one by one."""
    u = ball(U)
    # (k − 1)·ε + ln δ: two floats and a product, and a logarithm of a float.
    first = Rounded.exact(*exponent).off(3 * U)
    log = (
        np.log(Rounded(Rounded.exact(*log_delta).value.grown(arb.exp), u, None))
        if log_delta[1] < 0
        else Rounded.exact(0)
    )
    rise = np.exp(first + log)
    # kε and ε in expm1: shares of at most 3u and u of the arguments, whose slopes are at most 1; a quotient, a product.
    e = function_slack()
    factor = (1 + rise.relative) * ((1 + 4 * u + e) / (1 - 2 * u - e)) * (1 + u) ** 2 - 1
    # rise is a chance: at most 1. So is the one that 1 − rise + c is multiplied by, which is off by 4u and e.
    absolute = factor + (factor + 3 * u) * (1 + 5 * u + e) + 5 * u + e
    # c = δ·exp(−ε)/(1 − exp(−ε)): ε is off by u, and up to 700, as beyond it c is nothing.
    relative = (700 * u).expm1() + 3 * e + 20 * u
    return share(absolute.max(relative), partition_selection._SLACK)


# --- Sums of noise


def most_points(mechanism, number, rate):
    """Return how many terms `residuals.sum_bound` adds up, at most: real numbers of draws are allowed."""
    draws, least, largest = ball(number[1]), ball(rate[0]), ball(rate[1])
    tail = ball(Fraction(residuals._TAIL))
    if mechanism == "discrete_gaussian":
        furthest = (2 * draws * (2 / tail).log()).sqrt() / least
    else:  # by some of the points at which the code takes the bound
        furthest = None
        for share_of_rate in np.geomspace(1e-4, 0.999, 200)[::10].tolist():
            s = least * ball(Fraction(share_of_rate))
            generating = -(-(((s / 2).sinh() / (least / 2).sinh()) ** 2)).log1p()
            bound = (draws * generating + (2 / tail).log()) / s
            furthest = min_of(furthest, bound)
    half = furthest + 2
    period = 2 * half + 1
    enough = ((1 + period.log()) / tail).log() / ball(number[0])  # of −ln φ
    if mechanism == "discrete_gaussian":
        # ln φ is at most −t²/(2·rate²) + ln 2, for rates of at most 1.
        t = largest * (2 * (enough + arb(2).log())).sqrt() if rate[1] <= 1 else arb.pi()
    else:
        sine = (largest / 2).sinh() * enough.expm1().sqrt()
        t = 2 * sine.asin() if sine < 1 else arb.pi()
    return (t * period / (2 * arb.pi()) + 2).min(half)


def sums(mechanism):
    """By 1/sin(t/2) <= π/t a term counts 1/j at most, and its angle, off by 4u of itself, is πj at most."""

    def ratio(number, rate):
        points, u = most_points(mechanism, number, rate), ball(U)
        harmonic = 1 + points.log()
        weights = (ball(Fraction(1, 2**40)) + 2 * function_slack()) * harmonic
        rounding = weights + 4 * arb.pi() * u * points + 2 * points * u * harmonic + 4 * u
        return share(rounding + 2 * ball(Fraction(residuals._TAIL)), residuals._SLACK)

    return ratio


def name_of(module, name, of=""):
    """Return a constant's name for the page: one that has moved is found here."""
    assert attrgetter(name)(module) is not None
    return f"{module.__name__.rpartition('.')[2]}.{name}{of}"


LEMMAS = [
    *(
        Lemma(
            name_of(racing, "_SLACK"),
            f"`_sharp_times` ({name}): no time that wins by its bits has a lower bound above"
            " the least upper bound times 1 + slack",
            "V from 2⁻⁵³ to 1 − 2⁻⁵², 1 to 2⁶³ candidates of one score, rate·gap from 0 to FAR, gaps as in `Blocks`",
            sharp_times(law),
            (V, M, NEAR),
        )
        for name, law in LAWS.items()
    ),
    Lemma(
        name_of(racing, "_SLACK"),
        "`race`: no far candidate comes earlier than V·exp(FAR)·(1 − slack)",
        "every gap that a float says is beyond FAR/rate",
        far_times,
        (),
    ),
    Lemma(name_of(racing, "FAR"), "a coin exp(−FAR) is below 2⁻⁶⁴", "", far_coin, ()),
    *(
        Lemma(
            name_of(racing, "_FIRST_SLACK"),
            f"`_rule_out` in float32 ({name}): a candidate that is ruled out comes later",
            "the first 32 bits of V from 1 to 2³² − 2, 1 to 2⁶³ candidates, rate·gap from 0 to FAR",
            first_pass(is_plain),
            ((1, 2**32 - 2), M, NEAR),
        )
        for name, is_plain in (("uniform racing values, one candidate each", True), ("all others", False))
    ),
    Lemma(
        name_of(noisy_gap, "_SLACK"),
        "`_log_times` (uniform racing values): logarithms of times are off by at most slack + relative slack·rate·gap",
        "V as above, rate·gap from 0 to 2¹⁰²³",
        log_times(LAWS["permute_and_flip"], weighted=False),
        (V, M, (0, LINE)),
        (2,),
    ),
    *(
        Lemma(
            name_of(noisy_gap, "_SLACK"),
            f"`{'_log_second_times' if second else '_log_times'}` ({name}): the same",
            "V (and V′) as above, 1 to 2⁶³ candidates with one score, rate·gap from 0 to 2¹⁰²³",
            log_times(law, second=second),
            (V, V, (2, 2**63), (0, LINE)) if second else (V, M, (0, LINE)),
            (3,) if second else (2,),
        )
        for second in (False, True)
        for name, law in LAWS.items()
    ),
    Lemma(
        name_of(noisy_gap, "_RELATIVE_SLACK"),
        "`_whole_units`: a gap in units is off by at most the slack, relative",
        "gaps from 2⁻¹⁰⁰⁰ to 2¹⁰⁰⁰ units",
        whole_units,
        ((Fraction(1, 2**1000), 2**1000),),
    ),
    Lemma(
        name_of(noise, "_SLACK"),
        "`_geometric`: E·scale is off by at most slack·scale, and the relative slack of itself",
        "words from 2⁴⁶ to 2⁶⁴, scales from 1 to 2 (a power of 2 changes nothing)",
        floors,
        ((int(noise._SMALLEST_WORD), 2**64), (1, 2)),
    ),
    Lemma(
        name_of(noise, "_COIN_SLACK"),
        "`_coins`: what floats say of U < exp(−z) is so",
        "distances of −1 to √(2·_FAR) + 0.1 standard deviations, σ/scale from 0 to 1, words from 1 to 2⁶⁴",
        coins,
        ((-1, Fraction(114, 10)), (0, 1)),
    ),
    Lemma(name_of(noise, "_FAR"), "`_coins`: beyond _FAR a coin is below one word", "z from _FAR on", far_coins, ()),
    Lemma(
        name_of(noise, "DiscreteLaplace.reach"),
        "P(X ≥ reach) is below 2⁻⁶⁴",
        "scales from 2⁻⁶ to 2⁵⁰",
        laplace_reach,
        ((Fraction(1, 64), 2**50),),
    ),
    Lemma(
        name_of(noise, "DiscreteGaussian.reach"),
        "P(X ≥ reach) is below 2⁻⁶⁴",
        "standard deviations from 2⁻⁶ to 2⁵⁰",
        gaussian_reach,
        ((Fraction(1, 64), 2**50),),
    ),
    Lemma(
        name_of(above_threshold, "_SLACK"),
        "`_waits`, `_hazards`, `_chance` and the place in a run: each slack is twice what floats are off by before it",
        "V as above, λ·(T + z − q) from 2⁻³⁹ to 700, 1 to 2⁶³ candidates in a run",
        anchored(reached),
        (V, (Fraction(1, 2**39), 700), M),
        (1,),
    ),
    Lemma(
        name_of(above_threshold, "_SLACK"),
        "`_Search._gaps`: the same",
        "V as above, λ·(q − T − z) from 0 to 2¹⁰⁰⁰",
        anchored(gaps_above),
        (V, (0, 2**1000)),
        (),
    ),
    Lemma(
        name_of(above_threshold, "_SLACK"),
        "`_Search._missing`: λ·(T + z − q) is off by at most the slack of λz and of λ·(│T − q│ + 1)",
        "λz from 0 to 37, │T − q│ up to 2⁶², rates from 2⁻¹⁰⁰⁰ to 2⁹⁰⁰",
        thresholds_missing,
        ((0, 2**62), (1, 2), (0, LINE)),
    ),
    Lemma(
        name_of(top_k, "_SLACK"),
        "`_race`: ln(−ln(1 − V)) + rate·error − ln Q is off by at most what ln Q is, and the slack of rate·error + "
        "k·ln(size + 1) + 64",
        "V as above, rate·error from 0 to 10³⁰⁰, k·ln(size + 1) from ½ to 2²⁰",
        joint_times,
        (V, (Fraction(1, 2), 2**20), (0, LINE)),
        (1, 2),
    ),
    Lemma(
        name_of(top_k, "_LOG_SLACK"),
        "`log_multiplicities`: ln Q is off by at most (k + 2)·(2^−bits + slack·ln(size + 1))",
        "k from 1 to 2²⁰",
        log_multiplicities,
        ((1, 2**20),),
    ),
    Lemma(
        name_of(selection, "OwnSensitivities", ": 2⁻¹⁰⁰"),
        "c, of two floats, is off by at most 2⁻¹⁰⁰ of itself",
        "floats from 2⁻⁹⁰⁰ to 2⁹⁰⁰",
        double_sums,
        (),
    ),
    Lemma(
        name_of(selection, "OwnSensitivities", ": 2⁻⁹⁷"),
        "a gap is off by at most 2⁻⁹⁷·c/D, in addition to its part",
        "the same",
        small_part_of_own,
        (),
    ),
    Lemma(
        name_of(racing, "Blocks", ": gaps, 2⁻⁴⁸"),
        "gaps of own sensitivities are off by at most 2⁻⁴⁸ of themselves",
        "the same",
        gaps_of_own,
        (),
    ),
    *(
        Lemma(
            name_of(residuals, "_SLACK"),
            f"`sum_bound` ({mechanism.replace('_', ' ')}): the probability is off by at most the slack",
            f"2 to 10⁷ draws, rates from {low} to {high}",
            sums(mechanism),
            ((2, 10**7), sides),
        )
        for mechanism, low, high, sides in (
            ("discrete_laplace", "2⁻⁵⁰", "64", (Fraction(1, 2**50), 64)),
            ("discrete_gaussian", "2⁻⁵⁰", "1", (Fraction(1, 2**50), 1)),
            ("discrete_gaussian", "1", "64", (1, 64)),
        )
    ),
    Lemma(
        name_of(partition_selection, "_SLACK"),
        "`PartitionSelection.floats`: π is off by at most the slack times 1 + π",
        "(k − 1)·ε from 0 to 694, δ from 2⁻¹⁰⁰⁰ to 1",
        selection_floats,
        ((0, 694), (-694, 0)),
    ),
]


MOST_SLACK = 16


def is_proved(lemma, part=1):
    """Return whether floats are off by less than this part of what the constant allows."""
    return worst(lemma.ratio, lemma.box, part, lemma.along)[0]


@functools.cache
def slack(number):
    """Return the largest power of two, up to MOST_SLACK, by which the constant might be smaller and still be proved."""
    lemma, found = LEMMAS[number], 1
    assert is_proved(lemma)
    while found < MOST_SLACK and is_proved(lemma, Fraction(1, 2 * found)):
        found *= 2
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LEMMAS)), ids=[f"{lemma.constant}-{i}" for i, lemma in enumerate(LEMMAS)])
def test_lemma(number):
    """It is proved; and with a constant that is too small, it is not: that is the control."""
    assert slack(number) >= 1
    too_small = Fraction(1, 2**40) if slack(number) == MOST_SLACK else Fraction(1, 2 * slack(number))
    assert not is_proved(LEMMAS[number], too_small)


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
def test_sums_have_no_more_terms_than_the_lemma_says(mechanism):
    for number in (2, 3, 10, 1000, 10**7):
        for rate in (Fraction(1, 2**30), Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(8)):
            law = residuals.Noise(mechanism, rate)
            period = 2 * math.ceil(law.chernoff(number, residuals._TAIL)) + 1
            points = residuals._points(law, number, period)
            assert points <= most_points(mechanism, (number, number), (rate, rate))


@pytest.mark.slow
@pytest.mark.parametrize("times", [8, 64])
def test_functions_may_be_eight_times_as_far_off(times, monkeypatch):
    """The control: not 64 times."""
    monkeypatch.setattr(rounded, "ULPS", times * ULPS)
    assert all(map(is_proved, LEMMAS)) == (times == 8)


def table():
    """Return the table of the page."""
    shown = {1: "1", 2: "2", 4: "4", 8: "8", MOST_SLACK: f"{MOST_SLACK} or more"}
    lines = ["| | constant | statement | domain | slack |", "|---|---|---|---|---|"]
    lines += [
        f"| {i + 1} | `{lemma.constant}` | {lemma.statement} | {lemma.domain} | {shown[slack(i)]} |"
        for i, lemma in enumerate(LEMMAS)
    ]
    return "\n".join(lines)


@pytest.mark.slow
def test_the_page_has_these_lemmas():
    assert machine_checked.table("lemmas") == table(), "run python -m tests.helpers.machine_checked"


# --- The assumption: NumPy's elementary functions are accurate to 4 units in the last place


def points(low, high, number=3000):
    """Floats that are spread over all their powers of two."""
    rng = np.random.default_rng(1)
    return np.exp(rng.uniform(math.log(low), math.log(high), number)) * (1 + rng.integers(0, 2**20, number) * 2.0**-52)


FUNCTIONS = {
    "exp": (np.exp, arb.exp, [points(1e-300, 700), -points(1e-300, 700)]),
    "log": (np.log, arb.log, [points(1e-300, 1e300), 1 - points(1e-16, 0.5), 1 + points(1e-15, 0.5)]),
    "log1p": (np.log1p, arb.log1p, [-points(2.0**-53, 0.99), points(2.0**-53, 1), points(2.0**-53, 0.5) - 1]),
    "expm1": (np.expm1, arb.expm1, [-points(1e-40, 700)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("ulps", [ULPS, 0.4])
def test_elementary_functions_are_as_accurate_as_assumed(name, ulps):
    """The only part that is sampled. The control: nothing is accurate to 0.4 units."""
    function, exact, samples = FUNCTIONS[name]
    farthest = 0.0
    with ctx.workprec(200):
        for x in np.concatenate(samples):
            true = exact(arb(float(x)))
            off = abs(arb(float(function(np.array([x]))[0])) - true)
            unit = math.ulp(float(true.mid()))
            farthest = max(farthest, float((off / unit).upper()))
    assert (farthest <= ulps) == (ulps == ULPS)


@pytest.mark.slow
def test_every_float32_is_raised_as_accurately_as_assumed():
    """All of them from 2**-25 to 46; below, exp(x) is 1 or the next float."""
    first, last = (int(np.float32(x).view(np.uint32)) for x in (2.0**-25, 46.0))
    farthest = 0.0
    for begin in range(first, last, 1 << 22):
        x = np.arange(begin, min(begin + (1 << 22), last), dtype=np.uint32).view(np.float32)
        found, true = np.exp(x), np.exp(x.astype(np.float64))
        true -= found
        np.abs(true, out=true)
        true /= np.spacing(found)
        farthest = max(farthest, float(true.max()))
    assert 0.5 <= farthest <= ULPS - 0.1
    small = np.exp((1 / points(2.0**25, 2.0**100)).astype(np.float32))
    assert small.dtype == np.float32
    assert ((small >= 1) & (small <= 1 + 2.0**-22)).all()
