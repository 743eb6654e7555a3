"""The race against the exact laws of both racing."""

from fractions import Fraction

import pytest
from flint import arb

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import racing
from dp_polars._mechanisms import racing as exact_race
from tests.helpers import reference
from tests.statistical.goodness import CONTROLS, cell_counts, check_sampler, fits
from tests.statistical.racing import draw_blocks

pytestmark = pytest.mark.slow

# name: (scores, multiplicities, rate). All laws change with the rate but those named in FLAT.
CASES = {
    "two": ([0, -1], None, Fraction(1)),
    "tied": ([3, 3, 3, 1, 1, 0], None, Fraction(2, 3)),
    "all tied": ([7] * 6, None, Fraction(2, 3)),
    "single": ([-5], None, Fraction(2, 3)),
    "skewed": ([0] + [-6] * 25, None, Fraction(1, 2)),
    "a ladder": (list(range(0, -20, -1)), None, Fraction(1, 7)),
    "huge gaps": ([-1, 0, -(10**17), -(2**62), -2], None, Fraction(1, 2)),
    "floats": ([0.1, 0.7, -3.25, 1e-300, -1e300, 1.5], None, Fraction(1, 3)),
    "blocks": ([0, -2, -5], [1, 3, 50], Fraction(4, 5)),
    "a block ahead": ([0, -1], [9, 4], Fraction(1)),
    "large blocks": ([-25, 0, -12], [10**11, 1, 10**6], Fraction(1)),
    "one large block": ([4], [10**18], Fraction(1)),
    # exp(-43.5) · 2**62 = 0.6: near, and yet hardly ever one of them alone.
    "the largest blocks": ([0, -87], [1, 2**62], Fraction(1, 2)),
}
FLAT = {"all tied", "single", "one large block"}


@pytest.mark.parametrize("case", CASES)
def test_the_race_follows_the_law(case, mechanism):
    scores, multiplicities, rate = CASES[case]
    law = reference.floats(reference.law(scores, multiplicities, rate=rate, mechanism=mechanism, digits=20))

    def draw(factor):
        return draw_blocks(scores, multiplicities, rate * factor, mechanism, system_rng(), draws=100_000)

    check_sampler(draw, law, controls=[] if case in FLAT else CONTROLS)


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_far_candidates_win_as_often_as_they_should(mechanism, left_out):
    # Each of them wins with a probability below exp(-45) < 2**-64, but there are 2**63 of them.
    assert Fraction(91, 2) > racing.FAR
    scores, multiplicities, rate = [0, -91, -92], [1, 2**62, 2**61 + 2**60], Fraction(1, 2)
    law = reference.floats(reference.law(scores, multiplicities, rate=rate, mechanism=mechanism, digits=20))
    assert law[1:].sum() > 0.05

    def draw(factor):
        blocks = (scores, multiplicities, rate * factor, mechanism, system_rng())
        # At a smaller rate they are near.
        return draw_blocks(*blocks, draws=8_000, left_out=left_out if factor >= 1 else 0)

    check_sampler(draw, law, controls=[Fraction(96, 100), Fraction(104, 100)])


# Far candidates are raced by an algorithm of its own, which the true FAR hardly ever starts. At a small one it decides
# most races, and the law must not notice.
FAR_CASES = {  # scores, multiplicities, left out
    "candidates": ([0, -2, -3, -5, -5, -6], None, 0),
    "a crowd": ([0] + [-3] * 8, None, 0),
    "blocks": ([0, -1, -3, -5, -6, -9], [1, 2, 1, 3, 4, 8], 0),
    "blocks that win together": ([0, -4, -30], [1, 4, 30], 0),
    "left out": ([0, -1, -5, -6], [1, 2, 5, 8], 2),
    "candidates left out": ([0, -1, -3, -4, -5, -5], None, 4),
}


def draw_far(case, mechanism, monkeypatch, *, factor=1, draws=3_000):
    scores, multiplicities, left_out = FAR_CASES[case]
    monkeypatch.setattr(racing, "FAR", 1.0)
    rate = factor * Fraction(1, 2)
    return draw_blocks(scores, multiplicities, rate, mechanism, system_rng(), draws=draws, left_out=left_out)


def far_law(case, mechanism):
    scores, multiplicities, _ = FAR_CASES[case]
    return reference.floats(reference.law(scores, multiplicities, rate=Fraction(1, 2), mechanism=mechanism, digits=20))


@pytest.mark.parametrize("chunk", [1 << 15, 8])
@pytest.mark.parametrize("case", FAR_CASES)
def test_the_law_does_not_depend_on_who_counts_as_far(case, mechanism, chunk, monkeypatch):
    monkeypatch.setattr(racing, "CHUNK", chunk)  # groups are cut in two
    law = far_law(case, mechanism)
    assert fits(cell_counts(draw_far(case, mechanism, monkeypatch), law), law)


@pytest.mark.parametrize("factor", CONTROLS)
def test_a_far_path_at_another_rate_is_found(factor, mechanism, monkeypatch):
    law = far_law("left out", mechanism)
    assert not fits(cell_counts(draw_far("left out", mechanism, monkeypatch, factor=factor, draws=6_000), law), law)


def drawn_afresh(wait, count, uniform):
    return exact_race.wait_of(count, uniform)


def never(wait, count, uniform):
    return lambda bits: arb(2) ** 1000


@pytest.mark.parametrize("mistake", [drawn_afresh, never])
def test_mistakes_in_the_far_path_are_found(mistake, mechanism, monkeypatch):
    monkeypatch.setattr(exact_race, "_next_wait", mistake)
    law = far_law("blocks that win together", mechanism)
    assert not fits(cell_counts(draw_far("blocks that win together", mechanism, monkeypatch), law), law)
