"""Our measurements inside every accountant of OpenDP, next to OpenDP's own."""

import math

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("opendp")

from opendp.combinators import (
    make_adaptive_composition,
    make_approximate,
    make_composition,
    make_fix_delta,
    make_fully_adaptive_composition,
    make_privacy_filter,
    make_pureDP_to_zCDP,
    make_zCDP_to_approxDP,
)
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import then_laplace
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import absolute_distance, linf_distance, symmetric_distance, symmetric_id_distance
from opendp.mod import OpenDPException
from opendp.transformations import make_user_transformation

from dp_polars.opendp import as_measurement, frame_domain, make_selection

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


def test_adaptive_composition(released):
    composition = make_adaptive_composition(frame_domain(), SPACE, max_divergence(), d_in=1, d_mids=[0.3, 0.7])
    assert composition.map(1) == 1.0
    ask = composition(FRAME.lazy())
    with pytest.raises(OpenDPException, match="insufficient budget"):
        ask(mode(epsilon=0.30000001))
    assert not released
    check_answers(ask(mode(epsilon=0.3)), ask(median(epsilon=0.7)))
    with pytest.raises(OpenDPException, match="out of queries"):
        ask(mode(epsilon=0.3))
    assert len(released) == 2


def test_odometer():
    odometer = make_fully_adaptive_composition(frame_domain(), SPACE, max_divergence())
    ask = odometer(FRAME)
    assert ask.privacy_loss(1) == 0
    check_answers(ask(mode(epsilon=0.5)))
    assert ask.privacy_loss(1) == 0.5
    assert isinstance(ask(count(scale=4.0)), int)
    check_answers(ask(median(epsilon=0.125)))
    assert [ask.privacy_loss(d) for d in (1, 2, 3)] == [0.875, 1.75, 2.625]


def test_odometer_in_zcdp():
    odometer = make_fully_adaptive_composition(frame_domain(), SPACE, zero_concentrated_divergence())
    ask = odometer(FRAME)
    check_answers(ask(mode(rho=0.25)), ask(median(rho=0.5)))
    one, two = (ask.privacy_loss(d) for d in (1, 2))
    assert one == 0.75
    assert 2.8 < two < 3.0  # a little less than four times as much


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
    query = wards().agg(pl.col("d").dp.mode(["flu", "cold"], epsilon=1))
    direct = as_measurement(query, output_measure=zero_concentrated_divergence())
    assert direct.map(1) == pytest.approx(2 * (math.exp(-0.5) - 0.5))


def test_zcdp_as_approximate_dp_at_a_fixed_delta():
    curve = make_zCDP_to_approxDP(mode(rho=0.1))
    fixed = make_fix_delta(curve, delta=1e-6)
    epsilon, delta = fixed.map(1)
    assert delta == 1e-6
    assert 0.1 < epsilon < 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))  # Bun & Steinke 2016, Proposition 1.3
    check_answers(fixed(FRAME))
    assert make_approximate(mode(epsilon=0.5)).map(1) == (0.5, 0.0)


def test_composition_of_converted_measurements():
    fixed = [make_fix_delta(make_zCDP_to_approxDP(query), delta=1e-7) for query in (mode(rho=0.1), median(rho=0.1))]
    both = make_composition([*fixed, make_approximate(mode(epsilon=0.5))])
    epsilon, delta = both.map(1)
    assert delta == pytest.approx(2e-7)
    assert epsilon == pytest.approx(0.5 + sum(m.map(1)[0] for m in fixed))
    check_answers(*both(FRAME))


def test_selection_goes_into_compositions():
    space = vector_domain(atom_domain(T=int)), linf_distance(T=int)
    both = make_composition([make_selection(*space, max_divergence(), scale) for scale in (4.0, 8.0)])
    assert both.map(1) == 0.75
    assert both([0, 10_000]) == [1, 1]


def test_frames_without_a_person_column():
    rows = as_measurement(dpp.protect(None).agg(pl.col("x").dp.median(range(10), epsilon=0.5)))
    other = as_measurement(pl.col("d").dp.mode(["flu", "cold"], epsilon=0.5))
    both = make_composition([rows, other, count(scale=1.0, metric=symmetric_distance())])
    assert both.map(3) == 3 * 2.0
    middle, top, _ = both(FRAME)
    assert middle["x"].to_list() == [3]
    assert top["d"].to_list() == ["flu"]
