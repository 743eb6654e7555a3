"""Our measurements inside every accountant of OpenDP, next to OpenDP's own."""

import math

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("opendp")

from opendp.combinators import (
    make_approximate,
    make_composition,
    make_fix_delta,
    make_fully_adaptive_composition,
    make_privacy_filter,
    make_pureDP_to_zCDP,
    make_zCDP_to_approxDP,
)
from opendp.domains import atom_domain
from opendp.measurements import then_laplace
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import absolute_distance, symmetric_id_distance
from opendp.mod import OpenDPException
from opendp.transformations import make_user_transformation

from dp_polars.opendp import as_measurement, frame_domain

PEOPLE = 300
FRAME = pl.DataFrame(
    {
        "id": [i // 2 for i in range(2 * PEOPLE)],
        "ward": ["A", "B"] * PEOPLE,
        "x": [3, 3, 3, 8] * (PEOPLE // 2),
        "d": ["flu", "flu", "cold", "flu"] * (PEOPLE // 2),
    }
)

pytestmark = pytest.mark.usefixtures("features")
SPACE = symmetric_id_distance("id")


def wards():
    return dpp.protect("id", max_groups=2, max_rows_per_group=1).group_by({"ward": ["A", "B", "C"]})


def mode(**loss):
    return as_measurement(wards().agg(pl.col("d").dp.mode(["flu", "cold"], **loss)))


def median(**loss):
    return as_measurement(wards().agg(pl.col("x").dp.median(range(10), **loss)))


def count(scale, metric=SPACE):
    """OpenDP's Laplace count of the people, after a transformation of a user's own."""
    people = make_user_transformation(
        frame_domain(),
        metric,
        atom_domain(T=int),
        absolute_distance(T=int),
        lambda frame: frame.lazy().select(pl.col("id").n_unique()).collect().item(),
        lambda d_in: d_in,
    )
    return people >> then_laplace(scale=scale)


def check_answers(*answers):
    for answer in answers:
        assert answer["ward"].to_list() == ["A", "B", "C"]
        assert answer.width == 2


@pytest.fixture
def released(monkeypatch):
    """The releases that ran."""
    releases = []
    run = dpp.PrivateQuery.release

    def release(self, *arguments):
        releases.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(dpp.PrivateQuery, "release", release)
    return releases


def test_composition():
    both = make_composition([mode(epsilon=0.5), median(epsilon=0.25), count(scale=4.0)])
    assert both.map(1) == 1.0
    assert both.map(2) == 2.0
    top, middle, people = both(FRAME)
    check_answers(top, middle)
    assert abs(people - PEOPLE) < 400  # exp(-100)


def test_one_filter_for_our_mode_their_count_and_our_median():
    budget = make_privacy_filter(make_fully_adaptive_composition(frame_domain(), SPACE, max_divergence()), 1, 1.0)
    ask = budget(FRAME)
    check_answers(ask(mode(epsilon=0.5)))
    assert isinstance(ask(count(scale=4.0)), int)
    check_answers(ask(median(epsilon=0.25)))
    with pytest.raises(OpenDPException, match="would exceed privacy budget"):
        ask(mode(epsilon=1e-9))


def test_a_filter_refuses_what_is_over_budget_and_releases_nothing():
    budget = make_privacy_filter(make_fully_adaptive_composition(frame_domain(), SPACE, max_divergence()), 1, 1.0)
    ask = budget(FRAME)
    check_answers(ask(mode(epsilon=0.5)))
    with pytest.raises(OpenDPException, match=r"pending privacy loss \(1\.01\) would exceed privacy budget \(1\.0\)"):
        ask(median(epsilon=0.51))
    # OpenDP closes a filter that was asked for too much.
    with pytest.raises(OpenDPException, match="exhausted"):
        ask(median(epsilon=0.125))


def test_a_query_of_another_unit_or_metric_is_refused(released):
    ask = make_fully_adaptive_composition(frame_domain(), SPACE, max_divergence())(FRAME)
    with pytest.raises(OpenDPException, match="measure"):
        ask(mode(rho=0.5))
    with pytest.raises(OpenDPException, match="metric"):
        ask(as_measurement(pl.col("x").dp.median(range(10), epsilon=1)))
    assert not released


def test_pure_dp_as_zcdp():
    converted = make_pureDP_to_zCDP(mode(epsilon=1))
    assert converted.map(1) == 0.5
    check_answers(converted(FRAME))
    # The map of our own is sharper: both groups lose f(1/2), and f(x) = x + exp(-x) - 1 is below x²/2.
    direct = as_measurement(
        wards().agg(pl.col("d").dp.mode(["flu", "cold"], epsilon=1)), output_measure=zero_concentrated_divergence()
    )
    assert direct.map(1) == pytest.approx(2 * (math.exp(-0.5) - 0.5))


def test_zcdp_as_approximate_dp_at_a_fixed_delta():
    curve = make_zCDP_to_approxDP(mode(rho=0.1))
    fixed = make_fix_delta(curve, delta=1e-6)
    epsilon, delta = fixed.map(1)
    assert delta == 1e-6
    assert 0.1 < epsilon < 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))  # Bun & Steinke 2016, Proposition 1.3
    check_answers(fixed(FRAME))
    assert make_approximate(mode(epsilon=0.5)).map(1) == (0.5, 0.0)
