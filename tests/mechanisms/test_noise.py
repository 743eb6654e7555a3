"""Noise: what floats decide and what the exact path decides, against 200-digit arithmetic; the public functions."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from flint import arb, ctx

from dp_polars._mechanisms import noise
from dp_polars._mechanisms.noise import (
    LARGEST_SCALE,
    LARGEST_VALUE,
    add_noise,
    discrete_gaussian,
    discrete_laplace,
    gaussian_noise,
    laplace_noise,
)
from tests.helpers.reference import _arb
from tests.statistical.racing import Words

ONES = 2**64 - 1


@pytest.fixture
def asked(monkeypatch):
    """The uniforms that the exact path looked at, by their first bits, with all the bits that it drew."""
    uniforms = {}

    class Recorded(noise.Uniform):
        def __init__(self, prefix, *rest):
            super().__init__(prefix, *rest)
            uniforms[prefix] = self

    monkeypatch.setattr(noise, "Uniform", Recorded)
    return uniforms


def around(targets, bits=64):
    """The words that hold the targets (reals from 0 to 1), and with them those around, at all distances."""
    middles = [int((target * arb(2) ** bits).floor().unique_fmpz()) for target in targets]
    offsets = [0, *(sign * ((1 << k) + j) for k in range(40) for j in (0, 1) for sign in (1, -1))]
    return middles, sorted({m + o for m in middles for o in offsets if 0 <= m + o < 1 << bits})


def ends(word, asked, bits=64):
    """Between which rationals the uniform that began with this word lies, as far as it was drawn."""
    prefix, bits = (asked[word].prefix, asked[word].bits) if word in asked else (word, bits)
    return Fraction(prefix, 1 << bits), Fraction(prefix + 1, 1 << bits)


# The floor of an exponential variable


def floor_at(uniform, scale):
    if uniform == 1:
        return 0
    return int((-_arb(uniform).log() * _arb(scale)).floor().unique_fmpz())


FLOORS = {  # scale: multiples of 1/scale that the exponential variable comes close to
    Fraction(1, 50): [1, 2],
    Fraction(1, 3): [1, 2, 7],
    Fraction(2): [1, 2, 3, 20, 60],
    Fraction(1000, 7): [1, 2, 142, 1000, 4000],
    Fraction(10**6): [1, 1000, 10**6, 2 * 10**7],
    Fraction(2**32 - 1): [1, 2**20 + 1, 2**32, 10 * 2**32],
}


@pytest.mark.parametrize("scale", FLOORS, ids=str)
def test_every_floor_is_the_true_one(scale, asked):
    with ctx.workdps(200):
        straddling, words = around([(-n / _arb(scale)).exp() for n in FLOORS[scale]])
        words = sorted({*words, 0, 1, 2, ONES - 1, ONES})
        floors = noise._geometric(len(words), scale, Words(words))
        for word, floor in zip(words, floors.tolist(), strict=True):
            low, high = ends(word, asked)
            assert floor_at(high, scale) == floor
            assert low == 0 or floor_at(low, scale) == floor
    assert {0, *straddling} <= set(asked)
    assert all(uniform.bits > 64 for word, uniform in asked.items() if word in straddling)
    assert all(uniform.prefix >> (uniform.bits - 64) == word for word, uniform in asked.items())
    if scale <= 1000:  # nearly all others are decided by floats
        assert sum(word >= 2**46 for word in asked) < len(words) / 2


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(10**6)])
def test_floors_without_slack_are_found_wrong(scale, asked, monkeypatch):
    for name in ("_SLACK", "_RELATIVE_SLACK", "_SMALLEST_WORD"):
        monkeypatch.setattr(noise, name, 0)
    # Away from the word that straddles the whole number, so that its 64 bits tell what the floor is.
    with ctx.workdps(200):
        straddling, words = around([(-n / _arb(scale)).exp() for n in FLOORS[scale]])
        words = [word for word in words if word not in straddling and word > 2**40]
        floors = noise._geometric(len(words), scale, Words(words))
        wrong = [w for w, f in zip(words, floors.tolist(), strict=True) if floor_at(ends(w, asked)[0], scale) != f]
    assert not asked
    assert wrong


def test_floats_decide_nearly_everything(asked):
    for scale in (Fraction(1, 10), Fraction(2), Fraction(10**6)):
        laplace_noise(100_000, scale)
        gaussian_noise(100_000, scale**2)
    # 1.2 million floors, of which 2**-18 are of small words, and 2**-24 next to a whole number.
    assert len(asked) < 60


# The remainder of a large scale


def test_every_coin_of_a_remainder_is_the_true_one(asked, monkeypatch):
    scale, shift = Fraction(2**50) - Fraction(1, 3), 18
    verdicts = {}

    def less(uniform, chance):
        first = uniform.prefix
        verdicts[first] = original(uniform, chance)
        return verdicts[first]

    original = noise.is_less
    monkeypatch.setattr(noise, "is_less", less)
    remainders = [2**8, 1000, 2**18 - 1]
    bits = 64 - shift
    with ctx.workdps(200):
        for remainder in remainders:
            chance = -(-remainder / _arb(scale)).expm1()
            straddling, prefixes = around([chance], bits)
            prefixes = [prefix for prefix in {*prefixes, 0, 1} if prefix < 2 ** (bits - 31)]
            drawn = [prefix << shift | remainder for prefix in prefixes]
            asked.clear()
            verdicts.clear()
            out = noise._remainders(len(drawn), shift, scale, Words(drawn))
            assert set(verdicts) == set(prefixes)
            assert set(verdicts.values()) == {True, False}
            for prefix, got in zip(prefixes, out.tolist(), strict=True):
                low, high = ends(prefix, asked)
                assert (_arb(low) > chance) if not verdicts[prefix] else (_arb(high) < chance)
                assert got == remainder or verdicts[prefix]
            # What came down tails was drawn again: not all of it gives the same number.
            again = [got for prefix, got in zip(prefixes, out.tolist(), strict=True) if verdicts[prefix]]
            assert len(again) < 3 or set(again) != {remainder}
            assert asked[straddling[0]].bits > bits


def test_a_remainder_of_zero_is_always_kept():
    assert noise._remainders(3, 18, Fraction(2**50), Words([0, 2**18, 2**32])).tolist() == [0, 0, 0]


def test_the_remainder_and_its_quotient_make_the_number():
    scale = Fraction(2**40)
    source = Words([2**63 + 12345], [(1 << 60) + 77])
    assert noise._geometric(1, scale, source).tolist() == [
        floor_at(Fraction(2**63 + 12345, 2**64), scale / 2**9) * 512 + 77
    ]


# The coin of a Gaussian


COINS = {  # variance: sizes
    Fraction(1, 2**1100): [0, 1, 5],
    Fraction(1, 10): [0, 1, 2, 3],
    Fraction(99, 100): [0, 1, 2, 5],
    Fraction(4): [0, 1, 2, 3, 10, 20],
    Fraction(10**6): [0, 1, 900, 1000, 5000, 10**4],
    Fraction(2**100 - 1, 3): [0, 2**49, 2**50 + 1, 2**52, 2**53 + 1, 2**62 + 1],
}


@pytest.mark.parametrize("variance", COINS, ids=["tiny", "1/10", "99/100", "4", "10**6", "large"])
def test_every_coin_of_a_gaussian_is_the_true_one(variance, asked):
    scale = math.isqrt(math.floor(variance)) + 1
    with ctx.workdps(400):
        for size in COINS[variance]:
            chance = (-((_arb(size) - _arb(variance) / scale) ** 2) / (2 * _arb(variance))).exp()
            straddling, words = around([chance]) if chance > arb(2) ** -1000 else ([0], [0, 1, 2])
            words = sorted({*words, 0, 1, 2**63, ONES - 1, ONES})
            asked.clear()
            heads = noise._coins(np.full(len(words), size), variance, scale, Words(words))
            for word, head in zip(words, heads.tolist(), strict=True):
                low, high = ends(word, asked)
                assert (_arb(high) < chance or high == chance) if head else _arb(low) > chance
            assert set(straddling) <= set(asked)
            assert len(asked) < len(words)


def test_coins_without_slack_are_found_wrong(monkeypatch, asked):
    monkeypatch.setattr(noise, "_COIN_SLACK", 0)
    with ctx.workdps(200):
        chance = (-((_arb(3) - _arb(Fraction(17, 4)) / 3) ** 2) / (2 * _arb(Fraction(17, 4)))).exp()
        straddling, words = around([chance])
        heads = noise._coins(np.full(len(words), 3), Fraction(17, 4), 3, Words(words))
        wrong = [w for w, head in zip(words, heads, strict=True) if (_arb(ends(w, asked)[0]) < chance) != head]
    assert {*wrong} - {*straddling}


# Noise that 64 bits don't hold


class Zeros(Words):
    """The quotients begin as told; those of zeros go on with 200 words of zeros, 12,800 bits, and then the `ends`."""

    def __init__(self, quotients, ends):
        super().__init__(quotients, [2**63] * len(quotients))  # remainders 0
        self.more = [word for end in ends for word in [0] * 200 + [end] * 55]

    def __call__(self, count):
        return np.array([self.more.pop(0)], np.uint64) if self.more else super().__call__(count)


def huge_noise(quotients, ends):
    source = Zeros(quotients, ends)
    started = []

    def words(count):
        if not started:  # the first 64 bits of all quotients
            started.append(True)
            return Words.__call__(source, count)
        return source(count)

    return laplace_noise(len(quotients) // 2, Fraction(2**50), lambda: words)


def test_noise_beyond_64_bits_becomes_the_last_number():
    # An exponential variable above 12,800·ln 2 = 8,872; times 2**50 that is above 2**63.
    assert huge_noise([0, 2**63, 2**63, 2**63], [2**63]).tolist() == [2**63 - 1, 0]
    assert huge_noise([2**63, 2**63, 2**63, 0], [2**63]).tolist() == [0, 1 - 2**63]


def test_huge_numbers_are_subtracted_before_they_are_narrowed():
    with ctx.workdps(400):
        quotients = []
        for end in (2**61, 2**63):
            bits = 64 * 256
            prefix = sum(end << (64 * i) for i in range(55))
            quotients.append(floor_at(Fraction(prefix, 1 << bits), Fraction(2**31)))
            assert quotients[-1] * 2**19 > 2**63
    assert huge_noise([0, 0], [2**61, 2**63]).tolist() == [(quotients[0] - quotients[1]) * 2**19]


def test_sizes_that_64_bits_do_not_hold_have_coins():
    sizes = np.array([2**70, 2**66 + 3, 2, 0], object)
    heads = noise._coins(sizes, Fraction(2**99), math.isqrt(2**99) + 1, Words([0, 5, 0, 1]))
    assert heads.tolist() == [False, False, True, True]
    assert noise._narrow(np.array([2**70, -(2**70), 3], object)).tolist() == [2**63 - 1, 1 - 2**63, 3]


def test_a_clamped_sum_does_not_show_that_the_noise_was_narrowed():
    values = [0, 1, -1, 10**9, LARGEST_VALUE, -LARGEST_VALUE]
    huge = [LARGEST_VALUE, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**63 + 7, 2**70]
    true_noise = [0, 5, -5, *huge, *(-number for number in huge)]
    for value in values:
        for drawn in true_noise:
            narrowed = noise._narrow(np.array([drawn], object))
            wanted = min(max(value + drawn, -LARGEST_VALUE), LARGEST_VALUE)
            assert add_noise(np.array([value]), narrowed).tolist() == [wanted]


# Parts and slices


def test_every_part_has_words_of_its_own(monkeypatch):
    monkeypatch.setattr(noise, "_SLICE", 10)
    monkeypatch.setattr(noise, "_PART", 100)
    sources = []

    def words():
        sources.append(Words())
        return sources[-1]

    assert laplace_noise(1001, Fraction(2), words).shape == (1001,)
    assert sorted(source.drawn for source in sources)[:2] == [2, 200]
    assert len(sources) == 11


@pytest.mark.parametrize("noise", [laplace_noise, gaussian_noise])
@pytest.mark.parametrize("count", [0, 1, 5, 2**15 + 1, 2**18 + 1])
def test_as_much_noise_as_asked(noise, count):
    drawn = noise(count, Fraction(4))
    assert drawn.shape == (count,)
    assert drawn.dtype == np.int64
    assert count < 10 or len(np.unique(drawn)) > 5


@pytest.mark.parametrize("noise", [laplace_noise, gaussian_noise])
@pytest.mark.parametrize("size", [Fraction(1, 10**400), Fraction(1, 10**300), Fraction(1, 1000)])
def test_tiny_scales_give_zeros(noise, size):
    assert not noise(10_000, size).any()


# The public functions


CALLS = {
    "laplace": lambda values, loss=1, sensitivity=1: discrete_laplace(values, epsilon=loss, sensitivity=sensitivity),
    "gaussian": lambda values, loss=1, sensitivity=1: discrete_gaussian(values, rho=loss, sensitivity=sensitivity),
}
both = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
CERTAIN = 10**6


@both
@pytest.mark.parametrize("dtype", [*"bhilqBHILQ", ">i4", "<u2", ">u8"])
def test_all_integer_types(call, dtype):
    values = np.array([[3, 100, 50], [0, 1, 2]], np.dtype(dtype))
    answer = call(values[:, ::-1], CERTAIN)
    assert answer.tolist() == values[:, ::-1].tolist()
    assert answer.dtype == np.int64
    assert answer.dtype.isnative


@both
def test_all_shapes(call):
    arrays = np.empty((0, 3), np.int64), np.zeros((2, 1, 3), int)
    for values in ([], [[], []], [1], [[1, -2], [3, 4]], ((1, 2),), *arrays):
        answer = call(values, CERTAIN)
        assert answer.shape == np.shape(values)
        assert answer.tolist() == np.asarray(values).tolist()
        assert answer.dtype == np.int64
    for value in (5, np.int8(5), np.array(5), np.uint64(5)):
        answer = call(value, CERTAIN)
        assert answer == 5
        assert type(answer) is int
    assert call([np.int8(5), 3, np.uint64(2)], CERTAIN).tolist() == [5, 3, 2]
    assert call(pl.Series([1, 2, 3]), CERTAIN).tolist() == [1, 2, 3]


@both
def test_values_are_left_as_they_are(call):
    values = np.arange(10)
    call(values)
    assert values.tolist() == list(range(10))


@both
def test_values_beyond_the_limit_are_clamped_without_an_error(call):
    # An error would tell that one person's number is so large.
    far = [2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**100]
    for values in ([*far], [-x for x in far], [*far, 0, -1], *far):
        answer = call(values, CERTAIN)
        assert np.array_equal(answer, np.clip(np.array(values, object), -LARGEST_VALUE, LARGEST_VALUE))
    assert call(np.array([2**64 - 1, 2**63, 7], np.uint64), CERTAIN).tolist() == [LARGEST_VALUE, LARGEST_VALUE, 7]
    assert call(np.array([-(2**63), 2**63 - 1]), CERTAIN).tolist() == [-LARGEST_VALUE, LARGEST_VALUE]


@both
def test_answers_stay_inside_the_limits(call):
    for value in (2**63 - 1, -(2**63)):
        answers = call(np.full(1000, value), 1, 2**40)
        assert (abs(answers) <= LARGEST_VALUE).all()
        assert (abs(answers) == LARGEST_VALUE).any()
        assert not (abs(answers) == LARGEST_VALUE).all()


@both
@pytest.mark.parametrize(
    ("values", "got"),
    [
        ([1.0], "float"),
        ([1, True], "bool"),
        (True, "bool"),
        (np.bool_(True), "dtype bool"),
        (1.5, "dtype float64"),
        ([1, None], "NoneType"),
        (["secret"], "str"),
        ("secret", "dtype <U6"),
        ([[1], [2, 3]], "list"),
        (np.array([1.0]), "dtype float64"),
        (np.array([True]), "dtype bool"),
        (np.array([1], object), "dtype object"),
        (None, "dtype object"),
        ([Fraction(1)], "Fraction"),
        ([Decimal(1)], "Decimal"),
        (np.array([1], "m8[s]"), "dtype timedelta64[s]"),
    ],
)
def test_what_is_no_integer(call, values, got):
    with pytest.raises(TypeError, match=r"^values must be integers of at most 64 bits in an array, or Python ") as info:
        call(values)
    assert str(info.value).endswith(f", got {got}.")


@both
@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True])
def test_losses_and_sensitivities(call, bad):
    for arguments in ({"loss": bad}, {"sensitivity": bad}):
        with pytest.raises((TypeError, ValueError), match=r"^(epsilon|rho|sensitivity) must be "):
            call([1], **arguments)


def test_the_largest_scales():
    assert abs(discrete_laplace(0, epsilon=Fraction(1, LARGEST_SCALE), sensitivity=1)) < 2**60
    with pytest.raises(ValueError, match=r"^sensitivity / epsilon must be at most 2\*\*50, got more\.$"):
        discrete_laplace(0, epsilon=Fraction(1, LARGEST_SCALE + 1), sensitivity=1)
    largest = Fraction(LARGEST_SCALE**2) - Fraction(1, 10)
    assert abs(discrete_gaussian(0, rho=1 / (2 * largest), sensitivity=1)) < 2**60
    with pytest.raises(ValueError, match=r"^sensitivity²/\(2·rho\) must be below 2\*\*100, got more\.$"):
        discrete_gaussian(0, rho=Fraction(1, 2 * LARGEST_SCALE**2), sensitivity=1)


# The privacy of the laws that the public functions draw from


def given_to(name, monkeypatch, call):
    """The scale or variance with which a public function asks for noise."""
    seen = []

    def record(count, size):
        seen.append(size)
        return np.zeros(count, np.int64)

    monkeypatch.setattr(noise, name, record)
    call()
    (size,) = seen
    return size


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.1, 1), (1, 3), (Fraction(7, 3), 2), (Decimal("2.5"), 0.5)])
def test_neighbours_differ_by_epsilon_and_no_more(epsilon, sensitivity, monkeypatch):
    scale = given_to(
        "laplace_noise", monkeypatch, lambda: discrete_laplace([0], epsilon=epsilon, sensitivity=sensitivity)
    )
    exact = Fraction(str(epsilon))
    assert scale == Fraction(str(sensitivity)) / exact
    # Both weights have the same sum over all whole numbers, so their ratio is that of the probabilities. All vectors of
    # two values and all neighbours within the sensitivity in the L1 norm:
    changes = [(a, b) for a in range(-3, 4) for b in range(-3, 4) if abs(a) + abs(b) <= sensitivity]
    ratios = {
        (abs(x - a) - abs(x) + abs(y - b) - abs(y)) / scale
        for a, b in changes
        for x in range(-8, 9)
        for y in range(-8, 9)
    }
    assert max(ratios) <= exact
    assert sensitivity < 1 or max(ratios) == exact


@pytest.mark.parametrize(("rho", "sensitivity"), [(0.05, 1), (Fraction(1, 2), 1), (2, 3), (8, 1)])
def test_the_renyi_divergences_are_at_most_rho_times_their_order(rho, sensitivity, monkeypatch):
    variance = given_to("gaussian_noise", monkeypatch, lambda: discrete_gaussian([0], rho=rho, sensitivity=sensitivity))
    exact = Fraction(str(rho))
    assert variance == Fraction(sensitivity) ** 2 / (2 * exact)
    orders = [Fraction(3, 2), Fraction(5, 2), *map(Fraction, range(2, 51))]
    reach = 60 * math.ceil(math.sqrt(variance)) + 50 * sensitivity
    with ctx.workdps(60):
        inverse = _arb(1 / (2 * variance))
        logs = {x: -(x**2) * inverse for x in range(-2 * reach, 2 * reach + 1)}
        total = sum((value.exp() for value in logs.values()), arb(0))
        for order in orders:
            alpha = _arb(order)
            terms = ((alpha * logs[x] + (1 - alpha) * logs[x - sensitivity]).exp() for x in range(-reach, reach + 1))
            divergence = (sum(terms, arb(0)) / total).log() / (alpha - 1)
            assert divergence < _arb(order * exact) * (1 + arb(10) ** -40)
            if order.denominator == 1:  # attained: the shifted sum is the sum
                assert divergence > _arb(order * exact) * (1 - arb(10) ** -40)


def test_the_sensitivity_of_a_gaussian_is_that_of_the_squares(monkeypatch):
    # Two values that one person moves by 1 each: √2 in the L2 norm. Squared, that is what a rho pays for.
    variance = given_to("gaussian_noise", monkeypatch, lambda: discrete_gaussian([0, 0], rho=1, sensitivity=1.4142136))
    assert 1 <= variance < 1 + Fraction(1, 10**6)


def test_pairs_of_draws_differ():
    values = np.zeros(100, np.int64)
    for call in CALLS.values():
        draws = [tuple(call(values, Fraction(1, 100))) for _ in range(4)]
        assert all(a != b for a, b in pairwise(draws))


# As many draws of a small scale as take a table, and as don't.
@pytest.mark.parametrize("count", [400, 20_000])
@pytest.mark.parametrize("draw", [noise.laplace_noise, lambda count, scale: noise.gaussian_noise(count, scale**2)])
def test_no_two_draws_of_a_call_have_the_same_noise(draw, count):
    """Two that had would be equal in every call; others are so in all of them with a probability below 1e-60."""
    calls = np.stack([draw(count, Fraction(2)) for _ in range(80)])

    def are_different(calls):
        return len(np.unique(calls, axis=1).T) == calls.shape[1]

    assert are_different(calls)
    calls[:, count // 2] = calls[:, 0]
    assert not are_different(calls)
