"""`make_selection` beside OpenDP's `make_noisy_max`: the same parameters, map and law."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.helpers import reference
from tests.helpers.needs import need
from tests.statistical.goodness import cell_counts, check_sampler, fits

need("opendp")

from opendp.domains import atom_domain, option_domain, vector_domain
from opendp.measurements import make_noisy_max, then_noisy_max
from opendp.measures import approximate, max_divergence, zero_concentrated_divergence
from opendp.metrics import l1_distance, linf_distance
from opendp.mod import OpenDPException

from dp_polars.opendp import make_selection, then_selection

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("features")]

MEASURES = {"permute_and_flip": max_divergence, "exponential": zero_concentrated_divergence}


def space(T="i32", monotonic=False, **element):
    element |= {"nan": False} if T[0] == "f" else {}
    return vector_domain(atom_domain(T=T, **element)), linf_distance(T=T, monotonic=monotonic)


SCORES = [0] * 5 + [8] + [0] * 5 + [5] + [0] * 18


def cells(values):
    """Of a quantity per candidate: that of the best, of the next, and of all others together."""
    values = np.asarray(values)
    return np.array([values[5], values[11], np.delete(values, [5, 11]).sum()])


@pytest.mark.parametrize("mechanism", MEASURES)
@pytest.mark.parametrize(("T", "monotonic", "negate"), [("i32", False, False), ("f64", True, True)])
def test_the_law_is_the_exact_one_and_that_of_noisy_max(mechanism, T, monotonic, negate):
    law = cells(reference.floats(reference.law(SCORES, rate=Fraction(1, 2), mechanism=mechanism, digits=20)))
    unit = -0.25 if T == "f64" else 1
    scores = [unit * score for score in SCORES]

    def draw(make, factor):
        selection = make(*space(T, monotonic), MEASURES[mechanism](), float(2 * abs(Fraction(unit)) / factor), negate)
        drawn = np.bincount([selection(scores) for _ in range(2_500)], minlength=len(scores))
        return np.repeat(np.arange(3), cells(drawn))

    for make in (make_selection, make_noisy_max):
        check_sampler(lambda factor, make=make: draw(make, factor), law)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("monotonic", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3.0, 0.1, 7e-5, 1e9])
@pytest.mark.parametrize(("T", "distances"), [("i64", [0, 1, 2, 3, 1000]), ("f64", [0.0, 0.1, 1.0, 1 / 3, 1e-9, 5e6])])
def test_the_map_is_exact_and_never_above_that_of_noisy_max(measure, monotonic, scale, T, distances):
    ours, theirs = (make(*space(T, monotonic), measure(), scale) for make in (make_selection, make_noisy_max))
    for d in distances:
        x = Fraction(d) * (1 if monotonic else 2) / Fraction(str(scale))
        exact = x if measure is max_divergence else reference.bounded_range_rho(x)
        assert Fraction(ours.map(d)) >= exact * (1 - Fraction(1, 10**50))
        assert d == 0 or Fraction(math.nextafter(ours.map(d), 0)) < exact * (1 + Fraction(1, 2**90))
        # Theirs rounds up at every step (and takes a scale of 0.1 as the float64 next to it); its rho is x²/8.
        assert ours.map(d) * (1 - 1e-15) <= theirs.map(d)
        if measure is max_divergence:
            assert theirs.map(d) <= ours.map(d) * (1 + 1e-15)
        assert ours.check(d, theirs.map(d) * (1 + 1e-15))


def test_the_arguments_are_those_of_noisy_max():
    selection = space() >> then_selection(max_divergence(), 2.0)
    theirs = space() >> then_noisy_max(max_divergence(), 2.0)
    for name in ("input_domain", "input_metric", "output_measure"):
        assert getattr(selection, name) == getattr(theirs, name)
    assert (selection.input_carrier_type, selection.map(1)) == (theirs.input_carrier_type, theirs.map(1))
    assert type(selection([1, 2])) is type(theirs([1, 2])) is int
    lowest = space() >> then_selection(output_measure=max_divergence(), scale=0.01, negate=True)
    assert lowest([3, 0, 4]) == make_selection(*space(), max_divergence(), scale=0.01, negate=True)([3, 0, 4]) == 1
    assert make_selection(*space(), max_divergence(), Fraction(1, 3)).map(1) == 6.0


DTYPES = {"i32": np.int32, "i64": np.int64, "u32": np.uint32, "u64": np.uint64, "usize": np.uintp}
DTYPES |= {"f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("T", DTYPES)
def test_all_types_of_scores(T):
    best = 2.0**127 if T[0] == "f" else 2**31 - 1
    selection = make_selection(*space(T), max_divergence(), 1.0)
    low = 0 if T[0] == "u" else -best
    assert selection([low, best, best - best / 2 if T[0] == "f" else best - 100]) == 1
    assert selection(np.array([low, best, 0], DTYPES[T])) == 1
    assert selection((low, best)) == 1


def test_scores_beyond_the_integers_of_float64():
    selection = make_selection(*space("u64"), max_divergence(), 0.01)
    assert selection([2**64 - 2, 2**64 - 1, 0]) == 1


def test_infinite_scores_count_as_the_largest_floats_like_theirs():
    law = [0.5, 0, 0.5]
    scores = [math.inf, -math.inf, 1.7976931348623157e308]
    for make in (make_selection, make_noisy_max):
        selection = make(*space("f64"), max_divergence(), 1.0)
        assert fits(cell_counts([selection(scores) for _ in range(200)], law), law)
        assert selection([-math.inf, 0.0]) == 1
    only = make_selection(*space("f64"), max_divergence(), 1.0)
    assert {only([-math.inf, -math.inf]) for _ in range(60)} == {0, 1}


@pytest.mark.parametrize("d_in", [-1.0, math.nan, math.inf, -math.inf])
def test_distances_that_are_none(d_in):
    selection = make_selection(*space("f64"), max_divergence(), 1.0)
    with pytest.raises(OpenDPException, match="d_in must be finite and not negative"):
        selection.map(d_in)


@pytest.mark.parametrize(
    ("scale", "error", "message"),
    [
        (0, ValueError, "scale must be greater than 0, got 0."),
        (-1.0, ValueError, "scale must be greater than 0, got -1.0."),
        (math.nan, ValueError, "scale must be finite, got nan."),
        (math.inf, ValueError, "scale must be finite, got inf."),
        (True, TypeError, "scale must be a number"),
        ("1", TypeError, "scale must be a number"),
        (1e305, ValueError, "must lie between 2\\*\\*-1000 and 2\\*\\*1000"),
    ],
)
def test_scales_that_are_none(scale, error, message):
    with pytest.raises(error, match=message):
        make_selection(*space(), max_divergence(), scale)


@pytest.mark.parametrize(
    "arguments",
    {
        "floats that may be NaN": (vector_domain(atom_domain(T=float)), linf_distance(T=float), max_divergence()),
        "no vector": (atom_domain(T=int), linf_distance(T=int), max_divergence()),
        "optional": (option_domain(atom_domain(T=int)), linf_distance(T=int), max_divergence()),
        "another type": (vector_domain(atom_domain(T=int)), linf_distance(T=float), max_divergence()),
        "another metric": (vector_domain(atom_domain(T=int)), l1_distance(T=int), max_divergence()),
        "another measure": (vector_domain(atom_domain(T=int)), linf_distance(T=int), approximate(max_divergence())),
        "strings": (vector_domain(atom_domain(T=str)), linf_distance(T=int), max_divergence()),
    }.values(),
    ids=str,
)
def test_spaces_that_are_refused_by_both(arguments):
    for make in (make_selection, make_noisy_max):
        with pytest.raises(OpenDPException):
            make(*arguments, 1.0)


def test_errors_hold_no_scores():
    selection = make_selection(*space("f64"), max_divergence(), 1.0)
    with pytest.raises(OpenDPException, match="the vector of scores must not be empty"):
        selection([])
    # Not of the domain, which has no NaN: still no error that depends on the scores.
    assert selection([math.nan, 1.0]) == 1
