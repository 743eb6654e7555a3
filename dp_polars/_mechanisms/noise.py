"""Discrete noise: exact draws, their laws by inversion, and bounds on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, repeat
from operator import mul
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.costs import largest
from dp_polars._accounting.terms import Loss, Mechanism, warn_if_large
from dp_polars._base.calls import called
from dp_polars._base.numbers import (
    Number,
    Rng,
    ball,
    lower,
    positive_fraction,
    positive_loss,
    precision,
    system_rng,
    upper,
)
from dp_polars._base.silence import in_parallel, silenced
from dp_polars._mechanisms.racing import Uniform, floor_of, is_less

if TYPE_CHECKING:
    from flint import arb

# The first bits of U to look up: their table of 2**16 values stays in the cache.
_GUIDE_BITS = 16
_CELL = np.uint64(64 - _GUIDE_BITS)
# The least number of draws per entry for which a table pays: an entry costs about as much as 50 draws.
_DRAWS_PER_ENTRY = 50
# At smaller scales, the interval of a probability may include 0.
_SMALLEST_SCALE = Fraction(1, 64)


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(X = n) ∝ exp(−│n│/scale), so P(X >= n) = q^n/(1 + q) for n >= 1, with q = exp(−1/scale)."""

    scale: Fraction

    @property
    def reach(self) -> int:
        """An m with P(X >= m) < 2**-64."""
        return math.ceil(Fraction(45) * self.scale) + 1  # 64·ln 2 < 45

    def tails(self, first: int, last: int, bits: int) -> list[arb]:
        """Return balls of P(X >= n) for n from `first` >= 1 to `last`, with relative radii of some 2**-bits."""
        with precision(bits + 64):
            q = ball(-1 / self.scale).exp()
            tail = ball(-first / self.scale).exp() / (1 + q)
            return [*accumulate(repeat(q, last - first), mul, initial=tail)]


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(X = n) ∝ exp(−n²/(2·variance))."""

    variance: Fraction

    @property
    def reach(self) -> int:
        # The weights add up to more than one, and those from m on to less than 2·σ·exp(−m²/(2σ²)) + exp(−m²/(2σ²)).
        deviation = math.sqrt(self.variance)
        return math.ceil(deviation * math.sqrt(2 * (45 + math.log(2 * deviation + 1)))) + 1

    def tails(self, first: int, last: int, bits: int, most_terms: int | None = None) -> list[arb]:
        """See `DiscreteLaplace.tails`; a radius may be larger if `most_terms` is less than `bits` need."""
        from flint import acb, arb

        with precision(bits + 64):
            # Σ e^(−x²/(2σ²)) over all integers: Jacobi's θ₃ at 0.
            theta = acb.modular_theta(acb(0), acb(0, 1 / (2 * arb.pi() * ball(self.variance))))[2].real
            tail = self._weight_from(last, bits, most_terms)
            tails = [*accumulate(reversed(self._weights(first, last - first)), initial=tail)]
            return [one / theta for one in reversed(tails)]

    def _weight_from(self, first: int, bits: int, most_terms: int | None) -> arb:
        """Return Σ e^(−x²/(2σ²)) over all x >= `first` >= 1.

        Terms are added until the rest does not matter at `bits` bits, or `most_terms` is reached. Terms fall. So the
        rest is between the integral from its beginning and that integral plus one term.
        """
        from flint import arb

        terms = max(math.isqrt(math.floor(first**2 + 2 * bits * self.variance)) + 2 - first, 1)
        terms = terms if most_terms is None else min(terms, most_terms)
        *weights, after = self._weights(first, terms + 1)
        deviation = ball(self.variance).sqrt()
        integral = deviation * (arb.pi() / 2).sqrt() * (ball(first + terms) / (deviation * arb(2).sqrt())).erfc()
        return sum(weights, integral.union(integral + after))

    def _weights(self, first: int, count: int) -> list[arb]:
        """Return e^(−x²/(2σ²)) for `count` numbers x from `first` on."""
        # From one x to the next: times `ratio`, which itself shrinks by `square`.
        weight = ball(-(Fraction(first) ** 2) / (2 * self.variance)).exp()
        ratio, square = ball(-Fraction(2 * first + 1) / (2 * self.variance)).exp(), ball(-1 / self.variance).exp()
        weights = []
        for _ in range(count):
            weights.append(weight)
            weight *= ratio
            ratio *= square
        return weights


# A law of whole numbers that is symmetric around 0.
Law: TypeAlias = DiscreteLaplace | DiscreteGaussian


def below(law: Law, n: int, bits: int) -> arb:
    """Return a ball of P(X < n)."""
    if n <= 0:
        return law.tails(1 - n, 1 - n, bits)[0]
    return 1 - law.tails(n, n, bits)[0]


@dataclass(frozen=True)
class NoiseTable:
    """Thresholds that invert a draw from 64 bits of U."""

    law: Law
    first: int  # P(X < first) is below 2**-64, like P(X > −first)
    # Shape (m,), ascending: ⌊2**64·P(X < first + i)⌋. A word above it means X >= first + i, one below it X < first + i.
    # An equal word leaves that open. The first one is 0 and the last one 2**64 − 1.
    thresholds: NDArray[np.uint64]
    # Shape (2**16,): the draw for each value of the first 16 bits; the type's smallest number if these don't decide.
    guide: NDArray[Any]

    @classmethod
    def of(cls, law: Law) -> NoiseTable:
        reach = law.reach
        upper_half = _floors(law, reach)  # of P(X >= 1), P(X >= 2), …
        # P(X < n) is P(X >= 1 − n), and 1 − P(X >= n). No such probability is a multiple of 2**-64.
        thresholds = np.concatenate([upper_half[::-1], ~upper_half])
        edges = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << _CELL
        begin = np.searchsorted(thresholds, edges)
        decided = begin == np.searchsorted(thresholds, edges | ~(~np.uint64(0) << _CELL), side="right")
        dtype = np.int16 if reach < 2**15 else np.int64
        guide = np.where(decided, begin - reach, np.iinfo(dtype).min).astype(dtype)
        return cls(law, 1 - reach, thresholds, guide)

    def draw(self, count: int, rng: Rng) -> NDArray[np.int64]:
        leading = rng(-(-count * _GUIDE_BITS // 64)).view(np.uint16)[:count]
        found = self.guide[leading]
        drawn = found.astype(np.int64)
        open_at = np.flatnonzero(found == np.iinfo(found.dtype).min)
        if len(open_at):
            word = leading[open_at].astype(np.uint64) << _CELL | rng(len(open_at)) >> np.uint64(_GUIDE_BITS)
            drawn[open_at] = self._by_words(word, rng)
        return drawn

    def _by_words(self, word: NDArray[np.uint64], rng: Rng) -> NDArray[np.int64]:
        position = np.searchsorted(self.thresholds, word)
        drawn: NDArray[np.int64] = self.first - 1 + position
        for i in np.flatnonzero(self.thresholds[position] == word).tolist():
            drawn[i] = invert(self.law, Uniform(int(word[i]), 64, rng), int(drawn[i]))
        return drawn


def invert(law: Law, uniform: Uniform, guess: int) -> int:
    """Return the largest n with P(X < n) <= uniform, by a search that begins at `guess`."""
    return largest(lambda n: not is_less(uniform, lambda bits: below(law, n, bits)), guess)


def _floors(law: Law, reach: int) -> NDArray[np.uint64]:
    """Return ⌊2**64·P(X >= n)⌋ for n from 1 to `reach`."""
    bits = 128
    while True:
        tails = law.tails(1, reach, bits)
        with precision(bits + 64):
            least, most = ([math.floor(end(tail) * 2**64) for tail in tails] for end in (lower, upper))
        if least == most:
            return np.array(least, np.uint64)
        bits *= 2


_table = lru_cache(maxsize=16)(NoiseTable.of)


def table_for(law: Law, scale: Fraction, count: int) -> NoiseTable | None:
    """Return a table of the law, of about this scale, if `count` draws justify it."""
    if scale < _SMALLEST_SCALE or 90 * scale * _DRAWS_PER_ENTRY > count:
        return None
    return _table(law)


# int64; an array of Python integers if one is huge, which happens with a probability below 2**-2000.
_Whole: TypeAlias = "NDArray[Any]"

LARGEST_SCALE = 2**50
# Private values and answers are clamped to this; see `add_noise`.
LARGEST_VALUE = 2**62 - 1

# Samples per slice, so that temporaries stay in the cache; and the fewest samples that justify a thread.
_SLICE = 1 << 14
_PART = 1 << 18

# The most bits before the point of a scale for which floats decide ⌊E·scale⌋. A larger scale is split, below.
_DIRECT_BITS = 32
# The error of float(E·scale), with slack. U is between word and word + 1 units of 2**-64, and the word is rounded to a
# float: for words of at least 2**46, ln(U) is off by at most 2**-46 + 2**-53. NumPy's logarithm adds 4 units in the
# last place (2**-50 relative), the float of the scale and the product 2**-53 each: together 2**-49 relative. In all:
# scale·2**-45 and 2**-46 relative, which is true even if the logarithm is eight times as far off.
_SMALLEST_WORD = np.uint64(2**46)
_SLACK = 2.0**-45
_RELATIVE_SLACK = 2.0**-46
# Floors that floats decide are below 45·2**_DIRECT_BITS. From here on, 19 more bits of a split scale might not fit.
_HUGE = 2**43

# The relative error of exp(−z)·2**64 for z <= _FAR, with slack (`_coins`).
_COIN_SLACK = 2.0**-40
_FAR = 64.0


@silenced
def laplace_noise(count: int, scale: Fraction, rng: Callable[[], Rng] = system_rng) -> NDArray[np.int64]:
    """Return independent noise with P(x) ∝ exp(−|x|/scale): exactly, for 0 < scale <= LARGEST_SCALE.

    Noise is clamped to ±(2**63 − 1), which it exceeds with a probability below exp(−8191). `add_noise` hides the
    difference.
    """
    table = table_for(DiscreteLaplace(scale), scale, count)
    return _in_slices(count, table, lambda n, source: _laplace(n, scale, source), rng)


@silenced
def gaussian_noise(count: int, variance: Fraction, rng: Callable[[], Rng] = system_rng) -> NDArray[np.int64]:
    """Return independent noise with P(x) ∝ exp(−x²/(2·variance)): exactly, for 0 < variance < LARGEST_SCALE².

    Noise is clamped to ±(2**63 − 1), which it exceeds with a probability below exp(−2**24). `add_noise` hides the
    difference.
    """
    table = table_for(DiscreteGaussian(variance), Fraction(math.sqrt(variance)), count)
    return _in_slices(count, table, lambda n, source: _gaussian(n, variance, source), rng)


def add_noise(values: NDArray[np.int64], noise: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return values of at most LARGEST_VALUE plus noise, clamped to ±LARGEST_VALUE.

    The result is a function of the true sum only, even if the noise was narrowed to ±(2**63 − 1). Both the narrowed and
    the true noise are then beyond LARGEST_VALUE with any such value. So clamping is post-processing.
    """
    return values + np.clip(noise, -LARGEST_VALUE - values, LARGEST_VALUE - values)


def noise_of(claim: Claim, count: int) -> NDArray[np.int64]:
    return _NOISE[claim.mechanism][0](count, 1 / claim.rate)


def check_scale(claim: Claim, room: int = 1) -> None:
    """Raise for noise that would not fit into 64 bits, or would not if it were `room` times as large."""
    if not (claim._is_open or claim.rate * LARGEST_SCALE >= room):
        msg = f"the noise must have a scale of at most 2**50, got more for {claim.loss}.\n\nHint: take a wider step."
        raise ValueError(msg)


def noise_bound(claim: Claim, beta: float) -> int:
    """Return the smallest w with P(|noise| > w) <= beta, for beta from 1e-15 to 1/2; one more or less above 2**40."""
    return noise_bound_at(claim.mechanism, claim.rate, beta)


def noise_bound_at(mechanism: Mechanism, rate: Fraction, beta: float) -> int:
    """Return `noise_bound` for noise at a rate."""
    scale = float(max(1 / rate, Fraction(1, 64)))  # at a smaller scale too, P(|noise| > 0) is below 1e-15
    return _NOISE[mechanism][1](scale, beta)


def _laplace_bound(scale: float, beta: float) -> int:
    # P(|X| > w) = 2q^(w+1)/(1+q), q = exp(−1/scale).
    bound = math.ceil(scale * (math.log(2 / beta) - math.log1p(math.exp(-1 / scale)))) - 1
    return max(bound, 0)


def _gaussian_bound(scale: float, beta: float) -> int:
    if scale > 2**12:
        # By Euler and Maclaurin, the sum from w + 1 on is the integral from w + 1/2 on, minus at most 1e-7 of it.
        return math.ceil(-scale * NormalDist().inv_cdf(beta / 2) - 0.5)
    weights = np.exp(-(np.arange(math.ceil(10 * scale) + 2) ** 2) / (2 * scale**2))
    tails = 2 * np.cumsum(weights[::-1])[::-1] / (2 * weights.sum() - 1)
    return int(np.count_nonzero(tails[1:] > beta))


# For each mechanism, its sampler and its bound, at a scale.
_NOISE: dict[str, tuple[Callable[[int, Fraction], NDArray[np.int64]], Callable[[float, float], int]]] = {
    "discrete_laplace": (lambda count, scale: laplace_noise(count, scale), _laplace_bound),
    "discrete_gaussian": (lambda count, scale: gaussian_noise(count, scale**2), _gaussian_bound),
}


@called
def discrete_laplace(values: ArrayLike, *, epsilon: Number, sensitivity: Number) -> int | NDArray[np.int64]:
    r"""Add discrete Laplace noise to integers: epsilon-DP, by exact sampling.

    Parameters
    ----------
    values
        Integers of any shape: an array or scalar of a NumPy integer type, or Python integers in (nested) lists. Their
        shape and type are public, the numbers are private.
    epsilon
        The privacy loss of the release, in pure DP, for all values together.
    sensitivity
        The most that one person can change the values in all: the sum of the absolute changes (the L1 norm). We don't
        check this. If it is too small, the release is less private than `epsilon`.

    Returns
    -------
    int or ndarray
        The values plus independent noise, int64 in the shape of `values`; an int for a scalar.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or sensitivity / epsilon is above 2**50. Never because of a number.

    Notes
    -----
    P(noise = x) is proportional to exp(−abs(x)·epsilon/sensitivity), exactly (Ghosh, Roughgarden & Sundararajan 2012).
    Values and answers are clamped to ±(2**62 − 1), which costs no privacy. The noise itself reaches that with a
    probability below exp(−4095).

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> dpp.mechanisms.discrete_laplace([3, 100, 20], epsilon=100, sensitivity=1).tolist()
    [3, 100, 20]
    """
    array = _checked(values)
    loss = Loss(positive_loss("epsilon", epsilon), "epsilon")
    scale = positive_fraction("sensitivity", sensitivity) / loss.value
    if not scale <= LARGEST_SCALE:
        msg = "sensitivity / epsilon must be at most 2**50, got more."
        raise ValueError(msg)
    warn_if_large(loss)
    return _noisy(array, laplace_noise(array.size, scale))


@called
def discrete_gaussian(values: ArrayLike, *, rho: Number, sensitivity: Number) -> int | NDArray[np.int64]:
    r"""Add discrete Gaussian noise to integers: rho-zCDP, by exact sampling.

    Parameters
    ----------
    values
        As for `discrete_laplace`.
    rho
        The privacy loss of the release, in zero-concentrated DP, for all values together.
    sensitivity
        The most that one person can change the values in all: the root of the sum of the squared changes (the L2
        norm). We don't check this. If it is too small, the release is less private than `rho`.

    Returns
    -------
    int or ndarray
        The values plus independent noise, int64 in the shape of `values`; an int for a scalar.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or sensitivity²/(2·rho) is not below 2**100. Never because of a number.

    Notes
    -----
    P(noise = x) is proportional to exp(−x²/(2·variance)) with variance = sensitivity²/(2·rho), exactly (Canonne, Kamath
    & Steinke 2020, arXiv 2004.00010). Values and answers are clamped to ±(2**62 − 1), which costs no privacy. The noise
    itself reaches that with a probability below exp(−2**22).

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> dpp.mechanisms.discrete_gaussian(
    ...     [[3, 100], [20, -7]], rho=1000, sensitivity=1
    ... ).tolist()
    [[3, 100], [20, -7]]
    """
    array = _checked(values)
    loss = Loss(positive_loss("rho", rho), "rho")
    variance = positive_fraction("sensitivity", sensitivity) ** 2 / (2 * loss.value)
    if not variance < LARGEST_SCALE**2:
        msg = "sensitivity²/(2·rho) must be below 2**100, got more."
        raise ValueError(msg)
    warn_if_large(loss)
    return _noisy(array, gaussian_noise(array.size, variance))


def _checked(values: ArrayLike) -> NDArray[np.int64]:
    """Return the values clamped to ±LARGEST_VALUE: that brings neighbours closer, never further apart."""
    wanted = "values must be integers of at most 64 bits in an array, or Python integers in lists of equal lengths"
    if isinstance(values, (int, list, tuple)):
        # As objects: otherwise NumPy's type would depend on the size of the numbers.
        array = np.asarray(values, dtype=object)
        for value in array.flat:
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                msg = f"{wanted}, got {type(value).__name__}."
                raise TypeError(msg)
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "iu":
            msg = f"{wanted}, got dtype {array.dtype}."
            raise TypeError(msg)
    if array.dtype.kind == "u":
        array = np.minimum(array.astype(np.uint64), np.uint64(LARGEST_VALUE))
    if array.dtype.kind != "O":
        array = array.astype(np.int64)
    return np.asarray(np.clip(array, -LARGEST_VALUE, LARGEST_VALUE), np.int64)


def _noisy(values: NDArray[np.int64], noise: NDArray[np.int64]) -> int | NDArray[np.int64]:
    noisy = add_noise(values, noise.reshape(values.shape))
    return noisy if values.ndim else int(noisy)


def _in_slices(
    count: int, table: NoiseTable | None, draw: Callable[[int, Rng], _Whole], rng: Callable[[], Rng]
) -> NDArray[np.int64]:
    """Return `count` draws, by the table if there is one; each part uses its own random words."""
    out = np.empty(count, np.int64)

    def fill(begin: int, end: int) -> None:
        source = rng()
        for start in range(begin, end, _SLICE):
            stop = min(start + _SLICE, end)
            number = stop - start
            out[start:stop] = _narrow(draw(number, source)) if table is None else table.draw(number, source)

    in_parallel(fill, [(begin, min(begin + _PART, count)) for begin in range(0, count, _PART)])
    return out


def _narrow(noise: _Whole) -> NDArray[np.int64]:
    """Return noise as int64, clamped to ±(2**63 − 1)."""
    if noise.dtype == object:
        noise = np.clip(noise, 1 - 2**63, 2**63 - 1).astype(np.int64)
    return noise


def _laplace(count: int, scale: Fraction, rng: Rng) -> _Whole:
    both = _geometric(2 * count, scale, rng)
    return both[:count] - both[count:]


def _gaussian(count: int, variance: Fraction, rng: Rng) -> _Whole:
    scale = math.isqrt(math.floor(variance)) + 1  # ⌊σ⌋ + 1
    # The approximate acceptance rate: from 0.44 for a small variance to 0.76 for a large one. It affects speed only.
    weights = max(1.0, math.sqrt(2 * math.pi * variance))
    rate = weights * math.tanh(1 / (2 * scale)) * math.exp(-variance / (2 * scale**2))
    parts, missing = [np.empty(0, np.int64)], count
    while missing:
        noise = _laplace(math.ceil((missing + 2 * math.sqrt(missing) + 4) / rate), Fraction(scale), rng)
        accepted = noise[np.flatnonzero(_coins(abs(noise), variance, scale, rng))][:missing]
        parts.append(accepted)
        missing -= len(accepted)
    return np.concatenate(parts)


def _geometric(count: int, scale: Fraction, rng: Rng) -> _Whole:
    """Return G = ⌊E·scale⌋ for independent standard exponential variables E: P(G >= n) = exp(−n/scale)."""
    shift = math.floor(scale).bit_length() - _DIRECT_BITS
    if shift > 0:
        # Memorylessness: the quotient of G by 2**shift is geometric too, and independent of the remainder.
        number: _Whole = _geometric(count, scale / 2**shift, rng) * 2**shift
        number += _remainders(count, shift, scale, rng)
        return number

    word = rng(count)
    rounded = float(max(scale, Fraction(1, 2**1000)))  # at a smaller scale too, floats only return 0
    low = word.astype(np.float64)
    np.maximum(low, 1.0, out=low)
    low *= 2.0**-64
    np.log(low, out=low)
    low *= -rounded
    high = low * (1 + _RELATIVE_SLACK)
    high += rounded * _SLACK
    low *= 1 - _RELATIVE_SLACK
    low -= rounded * _SLACK
    undecided = np.floor(low, out=low) != np.floor(high, out=high)
    undecided |= word < _SMALLEST_WORD
    floors: _Whole = low.astype(np.int64)
    for i in np.flatnonzero(undecided).tolist():
        floor = _exact_floor(Uniform(int(word[i]), 64, rng), scale)
        if floor >= _HUGE:
            floors = floors.astype(object)
        floors[i] = floor
    return floors


def _exact_floor(uniform: Uniform, scale: Fraction) -> int:
    return floor_of(lambda bits: -uniform(bits).log() * ball(scale))


def _remainders(count: int, shift: int, scale: Fraction, rng: Rng) -> NDArray[np.int64]:
    """Return L from 0 to 2**shift − 1 with P(L) ∝ exp(−L/scale): uniform, and accepted with probability exp(−L/scale).

    The lowest bits of a word are L, the others the leading bits of the coin. It shows tails with a probability below
    2**shift/scale <= 2**(1 − _DIRECT_BITS).
    """
    surely_accepted = np.uint64(2 ** (65 - _DIRECT_BITS))
    out = np.empty(count, np.int64)
    pending = np.arange(count)
    while len(pending):
        word = rng(len(pending))
        remainder = (word & np.uint64(2**shift - 1)).astype(np.int64)
        out[pending] = remainder
        tails = []
        for i in np.flatnonzero(word < surely_accepted).tolist():
            exponent = -int(remainder[i]) / scale
            coin = Uniform(int(word[i]) >> shift, 64 - shift, rng)
            if is_less(coin, lambda _, exponent=exponent: -ball(exponent).expm1()):  # type: ignore[misc]
                tails.append(i)
        pending = pending[tails]
    return out


def _coins(size: _Whole, variance: Fraction, scale: int, rng: Rng) -> NDArray[np.bool_]:
    """Return coins that show heads with the probability exp(−z), z = (size − variance/scale)²/(2·variance).

    With u = 2**-53 and c = variance/scale <= scale, the difference d = size − c is off by at most 2u·(|d| + 2c). So z
    is off by at most 4u·z + 4u·|d|/scale, with |d|/scale <= √(2z) <= 1 + z, and by 4u·z for the products. Together this
    is below 2**-49·(1 + z), and below 2**-42 for z <= _FAR. exp(−z) has the same relative error; NumPy's exp adds
    2**-50.
    """
    word = rng(len(size))
    z = size.astype(np.float64)
    z -= float(variance / scale)
    with np.errstate(over="ignore"):  # infinite: far
        z *= z
        z *= float(min(1 / (2 * variance), Fraction(2**1000)))  # at a smaller variance all but 0 are far
    # A farther one has a coin below 2**-90. Then floats return tails, or for the word 0 leave it undecided.
    np.minimum(z, _FAR, out=z)
    chance = np.exp(np.negative(z, out=z), out=z)
    chance *= 2.0**64
    # U is between word and word + 1 units of 2**-64.
    uniform = word.astype(np.float64)
    not_tails = uniform < chance * (1 + _COIN_SLACK)
    uniform += 1
    chance *= 1 - _COIN_SLACK
    heads: NDArray[np.bool_] = uniform <= chance
    for i in np.flatnonzero(not_tails != heads).tolist():
        heads[i] = _exact_coin(Uniform(int(word[i]), 64, rng), int(size[i]), variance, scale)
    return heads


def _exact_coin(uniform: Uniform, size: int, variance: Fraction, scale: int) -> bool:
    """Return whether uniform < exp(−(size − variance/scale)²/(2·variance))."""
    exponent = -((size - variance / scale) ** 2) / (2 * variance)
    return is_less(uniform, lambda _: ball(exponent).exp())
