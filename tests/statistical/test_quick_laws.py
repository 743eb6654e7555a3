"""The law of every mechanism by few draws, which half and twice the noise are told from: for every run of the tests.

The other files here find out a sampler at 0.7 or 1.3 times the rate, by more draws.
"""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dp_polars._accounting.costs import PROOFS
from tests.helpers.top_k_laws import law_of as law_of_top
from tests.registry import ASKS, MECHANISMS, NOISE
from tests.statistical import test_first_above_draws as first_above
from tests.statistical import test_gap_draws as gap_draws
from tests.statistical import test_kernel_draws as kernel
from tests.statistical import test_list_draws as quantiles
from tests.statistical import test_noise_draws as noise
from tests.statistical import test_own_sensitivity_draws as own
from tests.statistical import test_top_k_draws as top_k
from tests.statistical.goodness import check_sampler

DRAWS, CONTROLS, FALSE_ALARM = 6_100, (Fraction(1, 2), Fraction(2)), 1e-9


def check(draw, law):
    law = np.array(law, np.float64)
    check_sampler(draw, law / law.sum(), controls=CONTROLS, false_alarm=FALSE_ALARM)


def top_2(mechanism):
    counts, k = top_k.CASES["a tie at the top"]
    rate = Fraction(2, 5)
    return lambda f: top_k.drawn(counts, k, mechanism, rate * f, DRAWS), law_of_top(counts, k, rate, mechanism)


def several_quantiles(mechanism):
    law = quantiles.law_of("two, on one side", mechanism)
    return lambda f: quantiles.drawn("two, on one side", mechanism, f, DRAWS), [law[each] for each in sorted(law)]


def noisy_gap(mechanism):
    scores, rate, unit, m = gap_draws.CASES["blocks"]
    law = gap_draws.joint_law(scores, rate, unit, mechanism, m).ravel()
    return lambda f: gap_draws.draw(scores, rate * f, unit, mechanism, m, DRAWS), law


def above_threshold(_):
    counts, threshold, rate = first_above.CASES["around"]
    law = first_above.law_of(counts, threshold, rate)
    return lambda f: first_above.drawn(counts, threshold, rate * f, DRAWS), law


# What draws -> its words, and by one of them: the draws at a factor of the rate, and their law.
SAMPLERS = {
    **{
        f"{case} of {way}": (MECHANISMS, partial(kernel.sampler, case, way, draws=DRAWS))
        for way in kernel.WAYS
        for case in ("mode", "median")
    },
    "top k": (ASKS["top_k"].mechanisms, top_2),
    "several quantiles": (MECHANISMS, several_quantiles),
    "noisy gap": (MECHANISMS, noisy_gap),
    "above threshold": (["first_above"], above_threshold),
    "own sensitivities": (MECHANISMS, partial(own.sampler, "integers", draws=DRAWS)),
}


@pytest.mark.parametrize(("name", "word"), [(name, word) for name, (words, _) in SAMPLERS.items() for word in words])
def test_choices(name, word):
    check(*SAMPLERS[name][1](word))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(37, 3)], ids=str)
def test_noise(scale):
    noise.check_laplace(scale, DRAWS, CONTROLS, FALSE_ALARM)
    noise.check_gaussian(scale**2, DRAWS, CONTROLS, FALSE_ALARM)


def test_every_mechanism_has_a_law_here():
    """Those of keys are drawn by `test_every_number_of_people_is_shown_with_its_probability` and its neighbours."""
    words = {word for words, _ in SAMPLERS.values() for word in words} - {"joint"}
    assert {*words, *NOISE} == {word for word, proof in PROOFS.items() if proof.kind != "keys"}
