"""OpenDP's Context API with our queries at the end of its chains."""

import math

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.opendp.tools import needs_frames

pytestmark = pytest.mark.slow

need("opendp")

PEOPLE = 300
FRAME = pl.DataFrame(
    {"id": [i // 2 for i in range(2 * PEOPLE)], "ward": ["A", "B"] * PEOPLE, "x": [3, 3, 3, 8] * (PEOPLE // 2)}
)


@pytest.fixture
def dp():
    """OpenDP's prelude, with its features for the time of a test."""
    import opendp.prelude as prelude

    import dp_polars.opendp

    dp_polars.opendp.register()
    prelude.enable_features("contrib", "honest-but-curious")
    yield prelude
    prelude.disable_features("contrib", "honest-but-curious")


@pytest.fixture
def ours(dp):
    import dp_polars.opendp

    return dp_polars.opendp


def wards(unit="epsilon"):
    frame = dpp.protect("id", max_groups=2, max_rows_per_group=1).group_by({"ward": ["A", "B", "C"]})
    return frame.agg(a=dpp.median("x", range(10), **{unit: 3}), b=dpp.mode("x", [3, 8], **{unit: 1}))


def people(dp):
    return dp.unit_of(contributions=1, identifier="id")


def compositor(dp, data=FRAME, *, split_evenly_over=None, split_by_weights=None, **loss):
    from dp_polars.opendp import frame_domain

    split = {"split_evenly_over": split_evenly_over, "split_by_weights": split_by_weights}
    return dp.Context.compositor(data, people(dp), dp.loss_of(**loss), **split, domain=frame_domain())


def check_answer(answer):
    assert answer.columns == ["ward", "a", "b"]
    assert answer["ward"].to_list() == ["A", "B", "C"]


def test_splitting_with_the_loss_found(dp):
    context = compositor(dp, split_evenly_over=4, epsilon=1.0)
    query = context.query().private_query(wards())
    assert 0.25 <= query.param() < 0.25 + 1e-12  # a loss has 12 digits
    check_answer(query.release())
    check_answer(context.query().private_query(wards()).release())
    assert context.current_privacy_loss() == [0.25] * 2
    with pytest.raises(dp.OpenDPException, match="insufficient budget"):
        context.query().private_query(wards(), 0.26).release()
    check_answer(context.query().private_query(wards(), loss=0.2).release())
    check_answer(context.query().private_query(wards(), 0.25).release())
    with pytest.raises(ValueError, match="exhausted"):
        context.query()


def test_weights_and_measures(dp):
    context = compositor(dp, FRAME.lazy(), split_by_weights=[3, 1], rho=0.5)
    assert context.query().private_query(wards("rho")).param() == pytest.approx(0.375, rel=1e-12)
    check_answer(context.query().private_query(wards("rho")).release())
    # A query in epsilon costs epsilon²/2 by OpenDP's conversion, and less by our own map.
    rest = context.remaining_privacy_loss()[0]
    converted = context.query().private_query(wards()).resolve()
    assert converted.map(1) <= rest
    sharper = context.query().private_query(wards(), output_measure=dp.zero_concentrated_divergence()).resolve()
    assert rest * (1 - 1e-9) < sharper.map(1) <= rest
    assert sharper.param > 1.2 * math.sqrt(2 * rest)
    check_answer(context.query().private_query(wards(), output_measure=dp.zero_concentrated_divergence()).release())


def test_a_filter_with_the_loss_given(dp, ours):
    context = compositor(dp, epsilon=1.0)
    check_answer(context.query(epsilon=0.5).private_query(wards()).release())
    check_answer(context.query().private_query(wards(), 0.25).release())
    check_answer(context(ours.make_private_query(*context.accountant.input_space, wards(), 0.125)))
    assert context.current_privacy_loss() == 0.875
    with pytest.raises(dp.OpenDPException, match="exceed privacy budget"):
        context.query(epsilon=0.2).private_query(wards()).release()


def test_approximate_dp(dp):
    context = compositor(dp, split_evenly_over=2, epsilon=1.0, delta=1e-6)
    check_answer(context.query().private_query(wards()).release())
    # Found by OpenDP's search it would take minutes: at every step it looks for the best point of a curve.
    check_answer(context.query().private_query(wards("rho"), 0.003).release())


def test_rows_and_expressions(dp, ours):
    context = dp.Context.compositor(
        FRAME, dp.unit_of(contributions=2), dp.loss_of(epsilon=1.0), split_evenly_over=1, domain=ours.frame_domain()
    )
    query = context.query().private_query(dpp.median("x", range(10), epsilon=1))
    # Of each of the two rows that a person has. A loss has 12 digits, so the search finds the largest of its floats.
    assert 0.5 <= query.param() < 0.5 + 1e-12
    assert query.release().to_dict(as_series=False) == {"x": [3]}


def test_selection_beside_noisy_max(dp):
    context = dp.Context.compositor(
        [0, 500, 3],
        (dp.linf_distance(T=int), 1),
        dp.loss_of(epsilon=1.0),
        split_evenly_over=3,
        domain=dp.vector_domain(dp.atom_domain(T=int)),
    )
    param = context.query().selection(dp.max_divergence()).param()
    assert param == pytest.approx(context.query().noisy_max(dp.max_divergence()).param(), rel=1e-12)
    assert param == pytest.approx(6)
    assert context.query().selection(dp.max_divergence()).release() == 1
    assert context.query().selection(dp.max_divergence(), 6.5, negate=False).release() == 1
    assert context.query().noisy_max(dp.max_divergence()).release() == 1


def test_registering_again_changes_nothing(dp, ours):
    from opendp.context import constructors

    before = dict(constructors)
    ours.register()
    assert constructors == before
    assert {"private_query", "selection"} <= set(constructors)


@needs_frames
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_next_to_opendps_own_queries_over_a_frame(dp, ours, unit):
    context = dp.Context.compositor(FRAME.lazy(), people(dp), dp.loss_of(**{unit: 4.0}))
    domain = context.accountant.input_domain
    check_answer(
        context(ours.as_measurement(wards(unit), input_domain=domain))
        if unit == "rho"
        else context(ours.make_private_query(*context.accountant.input_space, wards(unit), 1.0))
    )
    spent = context.current_privacy_loss()
    assert spent == (4.0 if unit == "rho" else 1.0)
    if unit == "epsilon":
        count = context.query(epsilon=1.0).truncate_per_group(1).select(dp.len(signed=True)).release().collect().item()
        assert abs(count - PEOPLE) < 100  # exp(-100)
        assert context.current_privacy_loss() == pytest.approx(2.0)


@needs_frames
def test_a_query_of_rows_is_refused_where_a_context_counts_people(dp, ours):
    context = dp.Context.compositor(FRAME.lazy(), people(dp), dp.loss_of(epsilon=1.0))
    with pytest.raises(dp.OpenDPException, match="metric"):
        context(ours.as_measurement(dpp.median("x", [1], epsilon=1), input_domain=context.accountant.input_domain))
    with pytest.raises(ValueError, match="input_metric must be SymmetricDistance"):
        ours.make_private_query(*context.accountant.input_space, dpp.median("x", range(10), epsilon=1), 1)
