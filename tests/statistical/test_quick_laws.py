"""The law of every mechanism by few draws, which half and twice the noise are told from: for every run of the tests.

The other files here find out a sampler at 0.7 or 1.3 times the rate, by more draws.
"""

from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms.drawing import Draw
from dp_polars._mechanisms.racing import LAWS
from tests.helpers.top_k_laws import law_of as law_of_top
from tests.privacy.datasets import score_of
from tests.registry import MECHANISMS
from tests.statistical import test_first_above_draws as first_above
from tests.statistical import test_kernel_draws as kernel
from tests.statistical import test_lead_draws as leads
from tests.statistical import test_list_draws as quantiles
from tests.statistical import test_noise_draws as noise
from tests.statistical import test_own_sensitivity_draws as own
from tests.statistical import test_top_k_draws as top_k
from tests.statistical.goodness import check_sampler

DRAWS, CONTROLS, FALSE_ALARM = 6_100, (Fraction(1, 2), Fraction(2)), 1e-9


def check(draw, law):
    law = np.array(law, np.float64)
    check_sampler(draw, law / law.sum(), controls=CONTROLS, false_alarm=FALSE_ALARM)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("way", kernel.WAYS)
def test_modes_and_medians(way, mechanism):
    for case in ("mode", "median"):
        counts, _, alpha, rate = kernel.CASES[case]
        codes, lengths = kernel.rows_of(case, DRAWS)

        def draw(factor, counts=counts, alpha=alpha, rate=rate, codes=codes, lengths=lengths):
            return kernel.WAYS[way](Draw(len(counts), score_of(alpha), rate * factor, LAWS[mechanism]), codes, lengths)

        check(draw, kernel.law_of(case, mechanism))


@pytest.mark.parametrize("mechanism", top_k.MECHANISMS)
def test_top_k(mechanism):
    counts, k = top_k.CASES["a tie at the top"]
    law = law_of_top(counts, k, Fraction(2, 5), mechanism)
    check(lambda factor: top_k.drawn(counts, k, mechanism, Fraction(2, 5) * factor, DRAWS), law)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_several_quantiles(mechanism):
    law = quantiles.law_of("two, on one side", mechanism)
    law = [law[each] for each in sorted(law)]
    check(lambda factor: quantiles.drawn("two, on one side", mechanism, factor, DRAWS), law)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noisy_gaps(mechanism):
    scores, rate, unit, m = leads.CASES["blocks"]
    law = leads.joint_law(scores, rate, unit, mechanism, m).ravel()
    check(lambda factor: leads.draw(scores, rate * factor, unit, mechanism, m, DRAWS), law)


def test_the_first_above_a_threshold():
    counts, threshold, rate = first_above.CASES["around"]
    law = first_above.law_of(counts, threshold, rate)
    check(lambda factor: first_above.drawn(counts, threshold, rate * factor, DRAWS), law)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_generalized_exponential_mechanism(mechanism):
    own.check_law("integers", mechanism, draws=DRAWS, check=check)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(37, 3)], ids=str)
def test_noise(scale):
    noise.check_laplace(scale, DRAWS, CONTROLS, FALSE_ALARM)
    noise.check_gaussian(scale**2, DRAWS, CONTROLS, FALSE_ALARM)
