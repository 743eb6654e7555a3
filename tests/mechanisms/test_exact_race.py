"""The exact path: every verdict against 200-digit arithmetic on the very bits that it drew."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import racing
from dp_polars._mechanisms import racing as exact_race
from dp_polars._mechanisms.racing import LAWS, first_arrival, race
from tests.helpers import reference
from tests.statistical.goodness import cell_counts, check_sampler, fits
from tests.statistical.racing import Words, blocks_of, draw_blocks

ONES = 2**64 - 1


def always(word):
    return lambda count: np.full(count, word, np.uint64)


@pytest.fixture
def verdicts(monkeypatch):
    """What the exact path was asked, and the bits that it used: (positions, uniforms) of each call."""
    calls = []
    original, uniform = exact_race.first_arrival, exact_race.Uniform

    class Recorded(uniform):
        def __init__(self, *args):
            super().__init__(*args)
            calls[-1][1].append(self)

    def recording(gap, multiplicities, words_drawn, *rest):
        calls.append((list(words_drawn), []))
        winner = original(gap, multiplicities, words_drawn, *rest)
        for uniform, word in zip(calls[-1][1], words_drawn.values(), strict=False):
            assert uniform.prefix >> (uniform.bits - 64) == word  # more bits, not other ones
        return winner

    monkeypatch.setattr(exact_race, "Uniform", Recorded)
    monkeypatch.setattr(exact_race, "first_arrival", recording)
    return calls


def certify(winner, gaps, multiplicities, bits_of, rate, mechanism):
    """Every V within its drawn bits makes `winner` the first: so says reference.arrival at 200 digits.

    `bits_of` holds, by position, (prefix, bits): V lies between prefix/2**bits and (prefix + 1)/2**bits.
    """

    def arrival(position, v):
        if v == 1:
            last = arb("inf") if mechanism == "exponential" else arb(1)
            return last * (reference._arb(rate) * reference._arb(gaps[position])).exp()
        return reference.arrival(v, gaps[position], multiplicities[position], rate=rate, mechanism=mechanism)

    by_position = bits_of if isinstance(bits_of, dict) else dict(enumerate(bits_of))
    with ctx.workprec(4000):
        ends = {p: [Fraction(prefix + i, 2**bits) for i in (0, 1)] for p, (prefix, bits) in by_position.items()}
        latest = arrival(winner, ends[winner][1])
        assert all(latest < arrival(p, low) for p, (low, _) in ends.items() if p != winner)


def tie(first, gaps, multiplicities, rate, mechanism, bits):
    """The leading bits of a V for each block such that all arrive at once; the largest of them is `first`."""
    with ctx.workprec(4 * bits + 400):
        times = [
            reference.arrival(first, gap, m, rate=rate, mechanism=mechanism)
            for gap, m in zip(gaps, multiplicities, strict=True)
        ]
        time, values = min(times, key=float), []
        for gap, m in zip(gaps, multiplicities, strict=True):
            value = time * (-reference._arb(rate) * reference._arb(gap)).exp()
            v = 1 - (-m * value).exp() if mechanism == "exponential" else 1 - (1 - value) ** m
            values.append(int((v * arb(2) ** bits).lower().floor().unique_fmpz()))
        return values


BLOCKS = {  # gaps, multiplicities, rate
    "tied": ([0, 0, 0], [1, 1, 1], Fraction(1)),
    "tied blocks": ([0, 0], [7, 10**9], Fraction(1)),
    "one behind": ([0, 3], [1, 1], Fraction(1, 3)),
    "blocks": ([0, 1, 5], [1, 4, 10**6], Fraction(2, 7)),
    "far apart": ([0, 43], [1, 2**60], Fraction(1)),
    "huge numbers": ([0, 2**60], [1, 1], Fraction(1, 2**58)),
}
EXTENSIONS = {"random": [], "zeros first": [always(0)] * 8, "ones first": [always(ONES)] * 8}


@pytest.mark.parametrize("case", BLOCKS)
@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("word", [0, ONES, 2**63, 0x0123456789ABCDEF, "a tie of 64 bits", "a tie of 192 bits"])
def test_verdicts_on_equal_leading_bits(case, extension, word, mechanism, verdicts):
    gaps, multiplicities, rate = BLOCKS[case]
    drawn, calls = [word] * len(gaps), EXTENSIONS[extension]
    if isinstance(word, str):
        bits = 64 if "64" in word else 192
        ties = tie(Fraction(1, 3), gaps, multiplicities, rate, mechanism, bits)
        drawn = [v >> (bits - 64) for v in ties]
        if bits == 192:
            # The first comparison extends the second block, then the first, a word at a time.
            order = [(1, 64), (0, 64), (1, 0), (0, 0)]
            calls = [always(ties[i] >> shift & ONES) for i, shift in order] + calls
    asked = (gaps.__getitem__, multiplicities, dict(enumerate(drawn)), [], None, rate, LAWS[mechanism], Words(*calls))
    winner = exact_race.first_arrival(*asked)
    [(positions, uniforms)] = verdicts
    assert positions == list(range(len(gaps)))
    certify(winner, gaps, multiplicities, [(u.prefix, u.bits) for u in uniforms], rate, mechanism)
    if word == "a tie of 192 bits":
        assert max(u.bits for u in uniforms) > 192


def one_race(words, case, mechanism, *, extension=()):
    """Race one group whose V's begin with these 64-bit words; returns the winner and the bits of each V.

    `race` asks for the first 32 bits of all V's at once, and then for the next 32 of those that may still win.
    """
    gaps, multiplicities, rate = BLOCKS[case]
    halves = np.array([word >> 32 for word in words] + [0] * 2, np.uint32)[: len(words) // 2 * 2 + 2].view(np.uint64)
    seconds = [word << 32 & ONES for word in words]

    def give_seconds(count):
        if count < len(words):  # whose they are can't be seen from here: the same for all
            seconds[:] = [seconds[0]] * len(words)
        return seconds[:count]

    blocks = blocks_of(gaps, [0], multiplicities if max(multiplicities) > 1 else None)
    winners = race(blocks, rate, LAWS[mechanism], Words(lambda count: halves[:count], give_seconds, *extension))
    drawn = [(word >> 32 << 32 | second >> 32, 64) for word, second in zip(words, seconds, strict=True)]
    return int(winners.blocks[0]), drawn


@pytest.mark.parametrize("case", BLOCKS)
@pytest.mark.parametrize("word", [0, ONES, 1 << 32, ONES << 11 & ONES, 0x0123456789ABCDEF])
def test_races_of_equal_words(case, word, mechanism, verdicts):
    gaps, multiplicities, rate = BLOCKS[case]
    winner, drawn = one_race([word] * len(gaps), case, mechanism, extension=EXTENSIONS["zeros first"])
    for positions, uniforms in verdicts:
        for position, uniform in zip(positions, uniforms, strict=True):
            assert uniform.prefix >> (uniform.bits - 64) == drawn[position][0]
            drawn[position] = uniform.prefix, uniform.bits
    assert verdicts or case != "tied"
    certify(winner, gaps, multiplicities, drawn, rate, mechanism)


@pytest.mark.parametrize("case", BLOCKS)
def test_floats_decide_only_what_they_can(case, mechanism, verdicts):
    # Ties to 64 bits, and off by more and more: floats give up at first, and are right from where they don't.
    gaps, multiplicities, rate = BLOCKS[case]
    rng, asked = np.random.default_rng(5), 0
    for first in [*rng.random(2), 1e-9, 0.99999]:
        ties = tie(Fraction(first), gaps, multiplicities, rate, mechanism, 64)
        for shift in range(0, 60, 3):
            for sign in (-1, 1):
                words = [ties[0], *(min(max(v + (sign << shift), 0), ONES) for v in ties[1:])]
                verdicts.clear()
                winner, drawn = one_race(words, case, mechanism)
                for positions, uniforms in verdicts:
                    for position, uniform in zip(positions, uniforms, strict=True):
                        drawn[position] = uniform.prefix, uniform.bits
                asked += len(verdicts)
                certify(winner, gaps, multiplicities, drawn, rate, mechanism)
    assert 8 <= asked <= 160 - 8


def test_verdicts_on_near_ties_are_right(mechanism, verdicts):
    # Of one candidate and a crowd of about exp(rate·gap), whose times floats round most.
    rng, sharp = np.random.default_rng(11), 0
    for _ in range(1_000):
        rate = Fraction(int(rng.integers(1, 5)), int(rng.choice([3, 7, 11, 10**6 + 3])))
        gap = int(rng.integers(1, int(44 / rate)))
        gaps, m = [0, gap], [1, max(1, round(math.exp(float(rate * gap))))]
        words = tie(Fraction(float(rng.random())), gaps, m, rate, mechanism, 64)
        off = int(rng.integers(1, 2**17)) * int(rng.choice([-1, 1]))
        words[0] = min(max(words[0] + off, 0), ONES)
        halves = np.array([word >> 32 for word in words] + [0, 0], np.uint32).view(np.uint64)
        seconds = [word << 32 & ONES for word in words]
        source = Words(lambda n, w=halves: w[:n], lambda n, w=seconds: w[:n])
        verdicts.clear()
        winner = int(race(blocks_of(gaps, [0], m), rate, LAWS[mechanism], source).blocks[0])
        if verdicts and verdicts[0][0] != [0, 1]:
            continue  # the first half ruled one out
        sharp += 1
        drawn = [(word, 64) for word in words]
        for positions, uniforms in verdicts:
            drawn = [(u.prefix, u.bits) for u in uniforms[: len(positions)]]
        certify(winner, gaps, m, drawn, rate, mechanism)
    assert sharp > 300


def test_a_far_one_that_comes_just_before_the_first_near_one_wins(mechanism, monkeypatch):
    monkeypatch.setattr(racing, "FAR", 1.0)
    x, v = 1 + 1e-9, 0.25
    first = (v if mechanism == "permute_and_flip" else -math.log1p(-v)) / math.exp(x) * (1 - 2.0**-12)
    near, far = (int(u * 2**64) for u in (v, first if mechanism == "permute_and_flip" else -math.expm1(-first)))
    halves = np.array([near >> 32, 0], np.uint32).view(np.uint64)
    words = Words(lambda count: np.resize(halves, count), always(0), always(far))
    assert race(blocks_of([0, x], [0]), Fraction(1), LAWS[mechanism], words).blocks.tolist() == [1]


def test_equal_leading_bits_are_decided_by_fair_later_bits(mechanism):
    words = system_rng()
    asked = ([0, 0].__getitem__, [1, 1], {0: 7, 1: 7}, [], None, Fraction(1), LAWS[mechanism], words)
    answers = [first_arrival(*asked) for _ in range(3_000)]
    assert fits(cell_counts(answers, [0.5, 0.5]), [0.5, 0.5])


# Far candidates, at the true FAR


FAR_BLOCKS = ([0, 93, 95], [1, 3, 4], Fraction(1, 2))


def draw_beside_far(mechanism, *, draws, left_out, factor=1):
    """Winners where the smallest of all far V's is below 2**-64, which no test would live to see otherwise."""
    gaps, multiplicities, rate = FAR_BLOCKS
    random = system_rng()
    words = Words(random, random, always(0))
    scores = [-gap for gap in gaps]
    return draw_blocks(scores, multiplicities, rate * factor, mechanism, words, draws=draws, left_out=left_out)


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_far_candidates_win_by_words_of_zero(left_out, mechanism):
    # One of M far candidates arrives first, at V·exp(x)/M (but for a factor of 1 + 2**-64) with V uniform below
    # 2**-64 and x its own exponent; the next one, about exp(45) later, is too late.
    gaps, multiplicities, rate = FAR_BLOCKS
    count, law = sum(multiplicities[1:]), [0.0] * 3
    for position in (1, 2):
        a = math.exp(float(rate * gaps[position]) - 64 * math.log(2)) / count
        beats = -math.expm1(-a) / a if mechanism == "exponential" else (1 - a / 2 if a < 1 else 1 / (2 * a))
        law[position] = multiplicities[position] / count * beats
    law[0] = 1 - law[1] - law[2]
    assert float(rate * gaps[1]) * 0.98 > racing.FAR
    check_sampler(
        lambda factor: draw_beside_far(mechanism, draws=2_500, left_out=left_out, factor=factor),
        law,
        controls=[Fraction(98, 100), Fraction(102, 100)],
    )


@pytest.mark.parametrize("far_word", [0, 1])
def test_verdicts_on_one_far_candidate(far_word, mechanism, verdicts):
    gaps, rate, winners = [0, 89, 91], Fraction(1, 2), set()
    for word in range(0, ONES, ONES // 40):
        verdicts.clear()
        winner = exact_race.first_arrival(
            gaps.__getitem__, [1, 1, 1], {0: word, 1: ONES}, [2], far_word, rate, LAWS[mechanism], system_rng()
        )
        [(positions, uniforms)] = verdicts
        drawn = {position: (u.prefix, u.bits) for position, u in zip([*positions, 2], uniforms, strict=True)}
        certify(winner, gaps, [1, 1, 1], drawn, rate, mechanism)
        winners.add(winner)
    # From 2**-64 on the far one is later than 3 = exp(45.5)·2**-64, but V <= 1 is not.
    assert winners == ({0} if (far_word, mechanism) == (1, "permute_and_flip") else {0, 2})


def test_the_far_candidates_may_all_be_tried(mechanism):
    # In order: the next bits of the first far value and of the near one, the choice of the farther of the two, and the
    # second value, just above the first: at its smaller gap it comes earlier. Then none is left.
    words = Words(*map(always, [2**60, 0, 1, 0, 2**50]))
    winner = first_arrival(
        [0, 90, 92].__getitem__, [1, 1, 1], {0: ONES}, [1, 2], 0, Fraction(1, 2), LAWS[mechanism], words
    )
    assert winner == 1
    assert not words.calls


def test_far_values_are_the_order_statistics(mechanism, monkeypatch):
    # Rényi: the j-th shortest of M exponential waits is the sum of −log(1 − U_i)/(M − i), i < j.
    steps, original = [], exact_race._next_wait

    def recording(wait, count, uniform):
        result = original(wait, count, uniform)
        steps.append((wait, count, uniform, result))
        return result

    monkeypatch.setattr(exact_race, "_next_wait", recording)
    # All but the third are so far that no draw of them ends the search.
    gaps, multiplicities, seen = [0, 200, 0, 300], [1, 2, 1, 3], 0
    for _ in range(60):
        steps.clear()
        about = Fraction(1), LAWS[mechanism], system_rng()
        assert first_arrival(gaps.__getitem__, multiplicities, {0: ONES}, [1, 2, 3], 2**63, *about) in (0, 2)
        assert [count for _, count, _, _ in steps] == list(range(5, 5 - len(steps), -1))
        with ctx.workprec(1000):
            for wait, count, uniform, result in steps:
                v, u, w = wait(512), uniform(512), result(512)
                assert w.overlaps(v - (1 - u).log() / count)
                assert w > v
                assert w.rad() < 1e-100
                seen += 1
    assert seen > 60
