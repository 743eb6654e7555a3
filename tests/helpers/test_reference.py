"""The reference laws against each other: they share no formula."""

import sys
from fractions import Fraction

import numpy as np
import pytest
from flint import ctx

from tests.helpers import reference
from tests.helpers.needs import PACKAGES, is_here, need, required
from tests.helpers.places import ROOT


@pytest.mark.parametrize("gaps", [[0], [0, 0], [0, 1, 1, 3], [0, 2, 5, 5, 7, 30], [4, 0, 1, 0, 2]])
def test_three_ways_to_the_law_of_permute_and_flip_agree(gaps):
    rate = Fraction(1, 3)
    law = reference.law([-g for g in gaps], rate=rate, mechanism="permute_and_flip")
    with ctx.workprec(700):
        ps = reference.coins([-g for g in gaps], rate)
        by_integral = reference._by_integral(ps, [1] * len(ps))
        for other in (reference.by_subsets(ps), reference.by_permutations(ps), by_integral):
            assert all((a - b).abs_upper() < 1e-190 for a, b in zip(law, other, strict=True))


def test_algorithm_1_with_rational_coins_is_exact():
    expected = [Fraction(23, 36), Fraction(2, 9), Fraction(5, 36)]
    ps = [Fraction(1), Fraction(1, 2), Fraction(1, 3)]
    assert reference.by_subsets(ps) == reference.by_permutations(ps) == expected


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("multiplicities", [[3, 1, 2], [1, 700, 900], [5, 10**9, 10**12]])
def test_laws_of_blocks_sum_to_one(mechanism, multiplicities):
    law = reference.law([5, 3, -20], multiplicities, rate=Fraction(1, 2), mechanism=mechanism)
    with ctx.workprec(700):
        assert (sum(law) - 1).abs_upper() < 1e-190


def test_a_block_is_its_candidates_together():
    scores, multiplicities = [4, 1, 0], [2, 3, 1]
    blocks = reference.law(scores, multiplicities, rate=1, mechanism="permute_and_flip")
    each = reference.law(np.repeat(scores, multiplicities), rate=1, mechanism="permute_and_flip")
    with ctx.workprec(700):
        assert (blocks[1] - sum(each[2:5])).abs_upper() < 1e-190


def test_arrival_times_keep_their_digits_at_both_ends():
    tiny = Fraction(1, 2**900)
    first = reference.arrival(tiny, 3, 10**9, rate=Fraction(1, 2), mechanism="permute_and_flip")
    last = reference.arrival(1 - tiny, 3, 1, rate=Fraction(1, 2), mechanism="exponential")
    assert first.rel_accuracy_bits() > 600
    assert last.rel_accuracy_bits() > 600


@pytest.fixture
def lacks_altair(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delenv("REQUIRE_PLOT", raising=False)


def test_a_lack_skips_and_fails_where_it_is_required_and_a_misspelt_name_is_an_error(lacks_altair, monkeypatch):
    assert not is_here("altair")
    with pytest.raises(pytest.skip.Exception, match="altair is not installed"):
        need("altair.vegalite")
    monkeypatch.setenv("REQUIRE_PLOT", "1")
    with pytest.raises(pytest.fail.Exception, match="altair is not installed, and REQUIRE_PLOT is set"):
        need("altair.vegalite")
    with pytest.raises(AssertionError, match="altair is not installed"):
        is_here("altair")
    monkeypatch.setenv("REQUIRE_PLOTS", "1")
    with pytest.raises(AssertionError, match="PLOTS"):
        required()


def test_ci_requires_every_name_and_tests_skip_in_no_other_way():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [name for name in PACKAGES if f"REQUIRE_{name}=1" not in ci] == []
    others = [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "test_reference.py" and "importorskip" in path.read_text(encoding="utf-8")
    ]
    assert others == []
