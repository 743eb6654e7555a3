"""`as_measurement`: spaces, maps, laws, and what may go wrong, over the real library."""

import gc
import math
import os
import sys
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._release.request import Request
from dp_polars._statistics.categories import Mode
from tests.helpers import reference
from tests.helpers.needs import need
from tests.opendp.tools import succeed
from tests.registry import ask, quantile_scores
from tests.statistical.goodness import check_sampler

need("opendp")

from opendp import metrics
from opendp.combinators import make_composition
from opendp.domains import atom_domain, vector_domain
from opendp.measures import approximate, max_divergence, zero_concentrated_divergence
from opendp.mod import GLOBAL_FEATURES, OpenDPException, disable_features, enable_features

from dp_polars._base.numbers import as_loss
from dp_polars.opendp import as_measurement, frame_domain, make_private_query, make_selection

pytestmark = pytest.mark.usefixtures("features")

ONE = Contributions(1, 1)
MEASURES = {"epsilon": max_divergence, "rho": zero_concentrated_divergence}
X, D = pl.col("x"), pl.col("d")


def median(**loss):
    return X.dp.median(range(10), **loss)


def mode(**loss):
    return D.dp.mode(["a", "b", "c"], **loss)


def f(x):
    with localcontext(Context(prec=80)):
        exact = Decimal(x.numerator) / Decimal(x.denominator)
        return Fraction(exact + (-exact).exp() - 1)


def true_cost(unit, mechanism, x, T, m):
    """Design §3, Grouping: of a rate times range `x`, T rows in all and m in a group."""
    k, r = divmod(T, m)
    if unit == "epsilon":
        return x * T
    of_one = reference.bounded_range_rho if mechanism == "exponential" else f
    return k * of_one(x * m) + of_one(x * r)


def assert_rounded_up(value, exact):
    assert Fraction(value) >= exact
    assert value == 0 or Fraction(math.nextafter(value, 0)) < exact * (1 + Fraction(1, 2**60))


BOUNDS = {
    "a person a row": ({}, None, (1, 1)),
    "one group": ({"max_rows": 3}, None, (3, 3)),
    "groups": ({"max_groups": 3, "max_rows_per_group": 2}, 5, (6, 2)),
    "groups and a rest": ({"max_rows": 5, "max_groups": 3, "max_rows_per_group": 2}, 5, (5, 2)),
    "fewer keys than groups": ({"max_groups": 9, "max_rows_per_group": 1}, 4, (4, 1)),
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("given", MEASURES)
def test_the_map_is_that_of_the_design_at_every_distance(bounds, relation, mechanism, given):
    given_bounds, groups, (T, m) = bounds
    frame = dpp.protect("id" if given_bounds else None, **given_bounds, neighboring_relation=relation)
    asked = median(**{given: 0.5}, mechanism=mechanism)
    query = frame.agg(asked) if groups is None else frame.group_by({"g": range(groups)}).agg(asked)
    # λR: of the unit that was given the cost at distance 1 is one half.
    x = query._asks[0].query.claim.rate * (2 if relation == "add_or_remove_one" else 4)
    assert true_cost(given, mechanism, x, T, m) == pytest.approx(0.5, rel=1e-25)
    for unit, measure in MEASURES.items():
        measurement = as_measurement(query, output_measure=measure())
        assert measurement.output_measure == measure()
        assert measurement.map(0) == 0
        for d in (1, 2, 3, 7, 2**32 - 1):
            if unit == given and d == 1:
                assert measurement.map(1) == 0.5
            else:
                assert_rounded_up(measurement.map(d), true_cost(unit, mechanism, x * d, T, m))


def test_permute_and_flip_is_not_charged_by_bounded_range():
    measurement = as_measurement(median(epsilon=2), output_measure=zero_concentrated_divergence())
    assert measurement.map(1) == pytest.approx(2 + math.exp(-2) - 1)
    assert measurement.map(1) > 2**2 / 8


def test_outputs_add_up():
    frame = dpp.protect("id", max_groups=2, max_rows_per_group=3).group_by({"g": [1, 2, 3]})
    query = frame.agg(median(epsilon=0.25), mode(epsilon=0.5), other=mode(epsilon=0.125))
    assert as_measurement(query).map(3) == 3 * 0.875
    mixed = frame.agg(median(epsilon=0.25), mode(rho=0.5))
    # A person is in two groups: each has half of the rho, and epsilon = 2λ.
    assert as_measurement(mixed).output_measure == max_divergence()
    rate = mixed._asks[1].query.claim.rate
    assert reference.bounded_range_rho(rate) == pytest.approx(0.25, rel=1e-25)
    assert as_measurement(mixed).map(1) == pytest.approx(0.25 + 2 * float(rate), rel=1e-15)
    rho = as_measurement(frame.agg(median(rho=0.25), mode(rho=0.5)))
    assert (rho.output_measure, rho.map(1)) == (zero_concentrated_divergence(), 0.75)
    assert 2.8 < rho.map(2) < 3.0


@pytest.mark.parametrize("loss", [0.1, 0.2, 0.3, 0.7, 1 / 3, Fraction(1, 3), 1e-3])
def test_a_loss_is_the_float_that_opendp_takes_it_for(loss, monkeypatch):
    measurement, exact = as_measurement(median(epsilon=loss)), as_loss("loss", loss)  # of a float, 12 digits
    assert measurement.map(1) == float(exact)
    assert measurement.check(1, float(exact))
    assert not measurement.check(1, math.nextafter(float(exact), 0))
    # And what runs costs no more than that float.
    released = []
    monkeypatch.setattr(dpp.PrivateQuery, "release", lambda self, _: released.append(self.loss.value))
    measurement(pl.DataFrame({"x": [1]}))
    assert released == [min(Fraction(float(exact)), exact)]


METRICS = {
    "rows": (None, "add_or_remove_one", lambda: metrics.symmetric_distance()),
    "people": ("id", "add_or_remove_one", lambda: metrics.symmetric_id_distance("id")),
    "replaced rows": (None, "replace_one", lambda: metrics.change_one_distance()),
    "replaced people": ("id", "replace_one", lambda: metrics.change_one_id_distance("id")),
}


@pytest.mark.parametrize("case", METRICS)
def test_the_metric_says_what_a_person_is(case):
    unit, relation, metric = METRICS[case]
    bounds = {} if unit is None else {"max_rows": 1}
    query = dpp.protect(unit, neighboring_relation=relation, **bounds).agg(median(epsilon=1))
    measurement = as_measurement(query)
    assert measurement.input_metric == metric()
    assert measurement.input_domain == frame_domain()
    assert measurement.input_carrier_type == "ExtrinsicObject"
    for other in METRICS:
        if other != case:
            with pytest.raises(ValueError, match=r"input_metric must be .*\n\nHint: unit_of\(contributions"):
                make_private_query(frame_domain(), METRICS[other][2](), query, 1)


# One group's rows, and the scores of the candidates 0 to 29 on them: the most common first.
ROWS = [5] * 8 + [11] * 5
N = len(ROWS)
SCORES = {
    "mode": [ROWS.count(c) for c in range(30)],
    "median": quantile_scores([ROWS.count(c) for c in range(30)], 1, 2),
}
ASKED = {what: partial(ask, what, "x", range(30)) for what in SCORES}


@pytest.mark.slow
@pytest.mark.parametrize("unit", MEASURES)
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("person", [None, "id"])
def test_the_law_is_the_exact_one(unit, what, person):
    groups, rate = 6_000, Fraction(1, 2)
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), N), "x": ROWS * groups, "id": np.arange(N * groups)})
    mechanism = "permute_and_flip" if unit == "epsilon" else "exponential"
    law = reference.floats(reference.law(SCORES[what], rate=rate, mechanism=mechanism, digits=20))
    score_range = 1 if what == "mode" else 2

    def draw(factor):
        x = rate * factor * score_range
        loss = {"epsilon": x} if unit == "epsilon" else {"rho": reference.bounded_range_rho(x, digits=20)}
        protected = dpp.protect(person, max_rows=None if person is None else 1).group_by({"g": range(groups)})
        measurement = as_measurement(protected.agg(ASKED[what](**loss)))
        assert measurement.output_measure == MEASURES[unit]()
        return measurement(frame.lazy())["x"].to_numpy()

    check_sampler(draw, law)


def test_what_comes_out_is_the_release():
    frame = pl.DataFrame({"id": [1, 1, 2, 3] * 100, "g": ["A", "B", "A", "A"] * 100, "x": [1, 9, 3, 3] * 100})
    query = (
        dpp.protect("id", max_groups=1, max_rows_per_group=1)
        .filter(pl.col("x") < 9)
        .group_by({"g": ["B", "A"]})
        .agg(y=median(epsilon=10**6), z=X.dp.mode([1, 3], epsilon=10**6))
    )
    for given in (frame, frame.lazy()):
        out = as_measurement(query)(given)
        assert out.schema == {"g": pl.String, "y": pl.Int64, "z": pl.Int64}
        assert out["g"].to_list() == ["B", "A"]
        assert out.row(1) == ("A", 3, 3)


def test_an_expression_is_a_query_of_one_group():
    frame = pl.DataFrame({"x": [3] * 1000, "d": ["b"] * 1000})
    assert as_measurement(median(epsilon=1).alias("y"))(frame).to_dict(as_series=False) == {"y": [3]}
    assert as_measurement(mode(rho=1))(frame.lazy()).to_dict(as_series=False) == {"d": ["b"]}
    replaced = as_measurement(dpp.protect(None, neighboring_relation="replace_one").agg(median(epsilon=1)))
    assert (replaced.input_metric, replaced.map(2)) == (metrics.change_one_distance(), 2.0)


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_a_replacement_in_one_group_has_its_own_range(mechanism):
    unbound = dpp.protect(None, neighboring_relation="replace_one")
    ninth = dpp.quantile("x", 0.9, range(30), epsilon=0.5, mechanism=mechanism)
    [ask] = unbound.agg(ninth)._asks
    assert (ask.query.claim.score_range, ask.query.claim.rate) == (20, Fraction(1, 40))
    query = unbound.agg(ninth)
    for d in (1, 2, 7):
        assert as_measurement(query).map(d) == d * 0.5
        measurement = as_measurement(query, output_measure=zero_concentrated_divergence())
        assert_rounded_up(measurement.map(d), true_cost("rho", mechanism, Fraction(d, 2), 1, 1))


def test_all_outputs_keep_their_shares_of_another_loss():
    query = dpp.protect(None).agg(a=median(epsilon=0.5), b=median(epsilon=1.5))
    measurement = make_private_query(frame_domain(), metrics.symmetric_distance(), query, 0.25)
    assert [measurement.map(d) for d in range(4)] == [0, 0.25, 0.5, 0.75]
    alone = make_private_query(frame_domain(), metrics.symmetric_distance(), median(rho=1), 0.25, max_divergence())
    assert reference.bounded_range_rho(alone.map(1)) == pytest.approx(0.25, rel=1e-15)


REFUSED = {
    "data": (
        lambda: pl.DataFrame({"x": [1]}).dp.protect(None).agg(median(epsilon=1)),
        ValueError,
        "query must have no data and no budget of its own",
    ),
    "budget": (
        lambda: dpp.protect(None, budget=dpp.Budget(epsilon=1)).agg(median(epsilon=1)),
        ValueError,
        "query must have no data and no budget of its own",
    ),
    "argmax": (lambda: X.dp.argmax(epsilon=1, sensitivity=1), TypeError, "got an argmax[\\s\\S]*make_selection"),
    "contributions": (lambda: median(epsilon=1, contributions=2), ValueError, "without contributions"),
    "window": (lambda: median(epsilon=1).over("g"), TypeError, "with over"),
    "plain expression": (lambda: X.median(), TypeError, "query must be a PrivateQuery, a publication or a PrivateExpr"),
    "frame": (lambda: dpp.protect(None), TypeError, "got PrivateFrame"),
    "synthetic rows": (
        lambda: dpp.protect(None).synthetic({"a": [0, 1]}, rho=1),
        TypeError,
        "not be of synthetic rows: what rounds of unknown losses cost several people is not proved",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_queries_that_are_none(case):
    query, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        as_measurement(query())


@pytest.mark.parametrize("loss", [0, -1, math.nan, math.inf, "1", True, None])
def test_losses_that_are_none(loss):
    with pytest.raises((ValueError, TypeError), match="loss must be"):
        make_private_query(frame_domain(), metrics.symmetric_distance(), median(epsilon=1), loss)


def test_domains_and_measures_that_are_refused():
    with pytest.raises(ValueError, match=r"input_domain must be frame_domain\(\) or a LazyFrameDomain, got Vector"):
        as_measurement(median(epsilon=1), input_domain=vector_domain(atom_domain(T=int)))
    with pytest.raises(ValueError, match=r"output_measure must be max_divergence[\s\S]*make_zCDP_to_approxDP"):
        as_measurement(median(epsilon=1), output_measure=approximate(max_divergence()))


def test_a_metric_that_is_not_the_querys_is_refused():
    """What is claimed for one relation, or for people, is not charged for another."""
    for metric in (metrics.change_one_distance(), metrics.symmetric_id_distance("id"), metrics.linf_distance(T=int)):
        with pytest.raises(ValueError, match=r"^input_metric must be SymmetricDistance\(\), which is what"):
            make_private_query(frame_domain(), metric, median(epsilon=1), 1)


@pytest.mark.parametrize("d_in", [-1, math.nan, math.inf, 1.5, 2**32])
def test_distances_that_are_none(d_in):
    with pytest.raises((ValueError, TypeError)):
        as_measurement(median(epsilon=1)).map(d_in)


SECRET = {"x": ["secret-1", "secret-2"], "g": ["secret-3", "secret-3"], "id": ["secret-4", None]}
PARSED = X.str.to_date("%Y").dt.year()
WRONG = {
    "no frame": (lambda _: SECRET, "the data must be a LazyFrame or a DataFrame, got dict."),
    "no unit": (lambda frame: frame.drop("id"), "the frame must have the privacy unit 'id' as a column"),
    "no key": (lambda frame: frame.drop("g"), "the frame must have the key column 'g'"),
    "no column": (lambda frame: frame.drop("x"), 'unable to find column "x"'),
    "another type": (lambda frame: frame, "can't be a quantile of a column of type String"),
    "several rows": (lambda frame: frame.lazy().head(1), "picks or fills by the place among all rows"),
    # These raise on rows, and Polars would print some of them.
    "a strict cast": (lambda frame: frame.lazy().with_columns(X.cast(pl.Int64)), "The release failed while"),
    "a strict parse": (lambda frame: frame.lazy().with_columns(PARSED), "The release failed while"),
    "a power": (lambda frame: frame.lazy().with_columns(X.str.len_bytes() ** pl.lit(-1)), "The release failed while"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("lazy", [False, True])
def test_errors_say_what_is_wrong_and_hold_no_rows(case, lazy):
    change, message = WRONG[case]
    query = dpp.protect("id", max_rows=1).group_by({"g": ["a"]}).agg(median(epsilon=1))
    frame = pl.DataFrame(SECRET)
    with pytest.raises(OpenDPException, match=message) as raised:
        as_measurement(query)(change(frame.lazy() if lazy else frame))
    for text in (str(raised.value), repr(raised.value), raised.value.raw_traceback or ""):
        assert "secret" not in text


@pytest.mark.slow
def test_an_interrupt_or_a_panic_does_not_end_the_process():
    script = """
import polars as pl, dp_polars as dpp
from opendp.mod import OpenDPException, enable_features
from dp_polars.opendp import as_measurement
enable_features("contrib", "honest-but-curious")
for kind in (KeyboardInterrupt, SystemExit, pl.exceptions.PanicException):
    def release(self, frame):
        raise kind("secret")
    dpp.PrivateQuery.release = release
    try:
        as_measurement(pl.col("x").dp.median([1], epsilon=1))(pl.DataFrame({"x": [1]}))
    except OpenDPException as error:
        assert "secret" not in str(error)
        print(str(error).splitlines()[-2])
"""
    kinds = ["KeyboardInterrupt", "SystemExit", "PanicException"]
    words = "RuntimeError: The release was stopped by {}; nothing was released."
    assert succeed(script).splitlines() == [words.format(kind) for kind in kinds]


@pytest.mark.parametrize("enabled", [(), ("contrib",), ("honest-but-curious",)])
def test_features_are_asked_for_and_never_switched_on(enabled):
    disable_features("contrib", "honest-but-curious")
    enable_features(*enabled)
    scores = vector_domain(atom_domain(T="i32", bounds=None)), metrics.linf_distance(T="i32")
    selection = partial(make_selection, *scores, max_divergence(), 1.0)
    for call in (frame_domain, selection, lambda: as_measurement(median(epsilon=1))):
        with pytest.raises(OpenDPException, match=r'enable_features\("contrib", "honest-but-curious"\)'):
            call()
    assert set(enabled) == GLOBAL_FEATURES & {"contrib", "honest-but-curious"}


STATM = Path("/proc/self/statm")


def resident():
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="memory is read from Linux' /proc")
def test_a_thousand_invocations_leak_no_memory_to_speak_of():
    frame = pl.DataFrame({"x": np.arange(10_000) % 10})
    measurement = as_measurement(median(epsilon=1))
    space = vector_domain(atom_domain(T=int)), metrics.linf_distance(T=int)
    selection, scores = make_selection(*space, max_divergence(), 1.0), list(range(1_000))

    def invoke(times):
        for _ in range(times):
            measurement(frame)
            measurement.map(1)
            selection(scores)
        gc.collect()
        return resident(), len(gc.get_objects()), sys.getrefcount(frame)

    memory, objects, references = invoke(100)
    memory_after, objects_after, references_after = invoke(1_000)
    # One frame kept at each invocation would be 80 MB, one object 1,000 objects.
    assert memory_after - memory < 20e6
    assert objects_after - objects < 100
    assert references_after == references


class Spending(Mode):
    """A choice of which the claim spends a delta."""

    mechanism_kind = "keys"


def spending(mechanism, unit, groups=2):
    """A query whose claim spends a delta, for the map only."""
    asked = dpp.protect("p", max_groups=groups).group_by({"g": ["a", "b", "c"]}).agg(m=mode(**{unit: 0.5}))
    (one,) = asked._asks
    terms = replace(one.query.terms, mechanism=mechanism, delta=Fraction(1, 10**6))
    asks = (replace(one, query=Spending(one.query.candidates, terms)),)
    return dpp.PrivateQuery(Request.of(asked._request.pipeline, asked._request.keys, asks), None, None)


def test_a_delta_makes_the_measure_approximate():
    selection = spending("partition_selection", "epsilon")
    measurement = as_measurement(selection)
    assert measurement.output_measure == approximate(max_divergence())
    assert [measurement.map(d) for d in (0, 1)] == [(0.0, 0.0), (0.5, 1e-6)]
    loss, delta = measurement.map(2)
    assert (loss, delta) == (1.0, pytest.approx(1e-6 * math.expm1(0.5) / math.expm1(0.25), rel=1e-5))
    assert measurement.map(200) == (100.0, 1.0)
    in_rho = as_measurement(selection, output_measure=approximate(zero_concentrated_divergence()))
    cost, delta = in_rho.map(1)
    assert (cost, delta) == (pytest.approx(2 * 0.25 * math.tanh(0.125), rel=1e-15), 1e-6)
    gaussian = as_measurement(spending("discrete_gaussian_threshold", "rho"))
    assert gaussian.output_measure == approximate(zero_concentrated_divergence())
    assert gaussian.map(1) == (0.5, 1e-6)
    assert make_composition([gaussian, in_rho]).map(1) == (pytest.approx(0.5 + cost, rel=1e-15), 2e-6)
    with pytest.raises(ValueError, match=r"output_measure must be approximate\(max_divergence\(\)\) or approximate"):
        as_measurement(selection, output_measure=max_divergence())


@pytest.mark.parametrize("loss", ["epsilon", "rho"])
def test_rows_and_totals_under_other_limits(loss):
    """Maps, and what is counted, are those of the frame with these limits."""
    rows = pl.DataFrame({"p": [1] * 6 + [2] * 2, "g": [0, 0, 0, 1, 1, 1, 0, 0], "x": [3] * 8})
    query = (
        dpp.protect("p", max_rows=2)
        .with_limits(max_rows=None, max_rows_per_group=1)
        .group_by({"g": [0, 1]})
        .agg(n=dpp.len(**{loss: 2**20}), total=dpp.sum("x", 0, 5, per_person=(0, 8), **{loss: 2**20}))
    )
    measurement = as_measurement(query)
    assert measurement.map(1) == 2**21
    assert measurement.map(3) == (3 if loss == "epsilon" else 9) * 2**21
    released = measurement(rows)
    assert released.rows() == [(0, 2, 8 + 6), (1, 1, 8)]


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 1}], ids=str)
def test_an_interval_costs_its_three_draws(loss):
    query = dpp.protect(None).agg(x=X.dp.median(range(9), confidence=0.95, **loss))
    measurement = as_measurement(query)
    assert measurement.map(1) == 1.0
    claim = query._asks[0].query.claim
    assert claim._draws == 3
    assert measurement.map(2) == pytest.approx(float(claim.cost(claim.loss.unit, 2)))
    released = measurement(pl.DataFrame({"x": [4] * 1000}))
    assert released.columns == ["x", "x_low", "x_high"]
    assert released.row(0) == (4, 4, 4)
    half = make_private_query(frame_domain(), metrics.symmetric_distance(), query, 0.5)
    assert half.map(1) == 0.5


def test_what_made_a_table_is_looked_at_unless_protect_says_otherwise():
    first = pl.LazyFrame({"p": [1, 2, 3] * 10}).head(9)
    people = dpp.n_people(epsilon=10**6)
    taken = as_measurement(dpp.protect("p", unchecked=True).agg(n=people))
    assert taken(first).item() == 3
    with pytest.raises(OpenDPException, match="picks or fills by the place among all rows"):
        as_measurement(dpp.protect("p").agg(n=people))(first)


def test_a_publication_is_one_measurement():
    rows = pl.DataFrame({"p": [number // 2 for number in range(200)], "d": ["a", "b"] * 100})
    private = dpp.protect("p", max_groups=1, max_rows_per_group=1)
    by_d = private.group_by({"d": ["a", "b"]}).agg(rows=dpp.len(), people=dpp.n_people())
    asked = dpp.publication(
        by_d=by_d,
        cube=private.cube({"d": ["a", "b"]}, tables=[("d",), ()]),
        keys=private.keys("d"),
        cut=by_d.n_rows_dropped(5),
    ).scaled_to(epsilon=1, delta=1e-6)
    measurement = as_measurement(asked)
    assert as_measurement(asked, output_measure=approximate(zero_concentrated_divergence())).map(1) == measurement.map(
        1
    )
    (loss, delta), claims = measurement.map(1), asked._claims()
    assert loss == pytest.approx(float(asked.loss.value), rel=1e-9)
    assert loss <= float(asked.loss.value)
    assert delta <= float(asked.delta) == 5e-7
    for distance in (2, 3):
        of_each = sum(claim.cost("rho", distance) for claim in claims)
        assert measurement.map(distance)[0] == pytest.approx(float(of_each), rel=1e-9)
    released = measurement(rows)
    assert [*released] == ["by_d", "cube", "keys", "cut"]
    assert released["by_d"].columns == ["d", "rows", "people"]
    assert released["cube"].columns == ["d", "count"]
    with pytest.raises(ValueError, match="must have no data and no budget"):
        as_measurement(dpp.publication(one=rows.dp.protect("p").agg(dpp.n_people(epsilon=1))))
    with pytest.raises(TypeError, match="must not be of synthetic rows"):
        as_measurement(dpp.publication(one=private.synthetic({"d": ["a", "b"]}, rho=1)))


def test_what_finds_limits_is_refused():
    """What finds them is charged, too, and for one person alone."""
    query = dpp.protect("p").group_by({"d": ["a", "b"]}).agg(rows=dpp.len()).scaled_to(epsilon=1, delta=1e-6)
    for asked in (query, dpp.publication(one=query)):
        with pytest.raises(TypeError, match="query must be given all limits and clipping bounds"):
            as_measurement(asked)


@pytest.mark.parametrize(("relation", "changed"), [("add_or_remove_one", 1), ("replace_one", 2)])
def test_disjoint_parts_have_a_map(relation, changed):
    """Several people may change more parts: at most all of them."""
    private = dpp.protect("p", max_groups=1, neighboring_relation=relation)
    asked = dpp.publication(one=private.agg(people=dpp.n_people(epsilon=1)), by={"d": ["a", "b", "c"]})
    measurement = as_measurement(asked)
    alone = as_measurement(private.agg(people=dpp.n_people(epsilon=1)))
    for people in (1, 2, 3):
        parts = min(people * changed, 3)
        assert measurement.map(people) == pytest.approx(parts * alone.map(people), rel=1e-9)
    frame = pl.LazyFrame({"p": [1, 1, 2], "d": ["a", "b", "a"]})
    assert measurement(frame)["one"]["d"].to_list() == ["a", "b", "c"]


def test_a_query_of_disjoint_parts_is_refused_alone():
    query = dpp.protect("p", max_groups=1).agg(people=dpp.n_people(epsilon=1))
    with pytest.raises(TypeError, match="query must not be of the disjoint parts of a publication"):
        as_measurement(dpp.publication(one=query, by={"d": ["a", "b"]}).queries["one"])
