"""Selection by the caller's own scores: exact gaps, bad input, and scores at the ends of their types."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from dp_polars import analysis
from dp_polars._accounting.claims import claim_for_scores
from dp_polars._accounting.terms import Loss
from dp_polars._base.column_types import exact_numbers
from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import racing, selection
from dp_polars._mechanisms.racing import LAWS, Winners
from dp_polars._mechanisms.selection import best_rows, exponential_mechanism, permute_and_flip
from tests.registry import MECHANISMS
from tests.statistical.goodness import check_sampler

CALLS = [permute_and_flip, exponential_mechanism]


# Shapes and types


@pytest.mark.parametrize("call", CALLS)
def test_a_vector_gives_an_int_and_a_matrix_an_array(call):
    one = call([1, 2, 10**6], epsilon=1, sensitivity=1)
    assert one == 2
    assert type(one) is int
    several = call(np.array([[0, 10**6], [10**6, 0], [0, 10**6]]), epsilon=1, sensitivity=1)
    assert several.tolist() == [1, 0, 1]
    assert several.dtype == np.int64
    assert call(np.empty((0, 3)), epsilon=1, sensitivity=1).tolist() == []


@pytest.mark.parametrize("dtype", [*"bhilqBHILQ", "e", "f", "d", ">i4", ">f8", "<u2"])
def test_all_types_of_scores(dtype):
    scores = np.array([3, 100, 50], np.dtype(dtype))
    for call in CALLS:
        assert call(scores, epsilon=100, sensitivity=1) == 1
        assert call(scores[::-1], epsilon=100, sensitivity=1) == 1
        assert call(np.tile(scores, (2, 2))[:, ::3], epsilon=100, sensitivity=1).tolist() in (
            [0, 0],
            [0, 1],
            [1, 0],
            [1, 1],
        )


NOTHING = [math.nan, math.inf, -math.inf]
NO_SCORES = [
    *(["a"], [True], [True, 1], [None], [1, None], [1j], [Fraction(1)], [Decimal(1)], [[1, None]]),
    *(np.array([1, 2], np.longdouble), [np.longdouble(1)], [1, np.longdouble(2)], np.array([1, 2], object)),
    *(pl.Series([Decimal(1)]), pl.Series([[1]]), pl.Series([True]), pd.array(["a", None], dtype="string")),
]
BAD = [0, -1, math.nan, math.inf, True, "1", None]
# Argument, what is given, and how the error begins.
REFUSED = [
    (
        "scores",
        [[], [[]], 3, [[[1]]], np.empty((2, 0))],
        r"scores must have shape \(k,\) or \(g, k\) with k >= 1, got ",
    ),
    ("scores", NO_SCORES, "scores must be integers or floats of at most 64 bits, got "),
    ("scores", [NOTHING, [[0.0] * 3, NOTHING]], r"scores must have at least one finite number in every row\.$"),
    ("epsilon", BAD, "(epsilon must be|exactly one of epsilon and rho) "),
    ("sensitivity", BAD, "sensitivity must be "),
    ("monotonic", [1, 0, None, "yes"], "monotonic must be True or False, got "),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("name", "value", "words"), [(name, value, words) for name, values, words in REFUSED for value in values], ids=repr
)
def test_what_is_refused(call, name, value, words):
    kind = {"scores": ValueError, "monotonic": TypeError}.get(name, (TypeError, ValueError))
    kind = TypeError if "integers or floats" in words else kind
    with pytest.raises(kind, match=f"^{words}"):
        call(**{"scores": [1, 2], "epsilon": 1, "sensitivity": 1, name: value})


def test_scores_that_are_not_finite_are_left_out():
    for call in CALLS:
        assert call([*NOTHING, 0.5], epsilon=1, sensitivity=1) == 3


BIG = [2**53 + 1, 2**53, -5]
NOT_FLOATS = {
    "signs": [2**63 + 1025, 2**63 + 1024, -1],
    "scalars": [np.uint64(2**63 + 1025), np.uint64(2**63 + 1024), np.int64(-1)],
    "beyond 64 bits": [2**70 + 1, 2**70, 3],
    "beside a float": [2**53 + 1, 2**53, 0.5],
    "beside NaN": [2**53 + 1, 2**53, float("nan")],
    "beyond all floats": [2**2000 + 1, 2**2000, 0.5],
    "Series": pl.Series([*BIG[:2], None]),
    "Int128": pl.Series([2**100 + 1, 2**100, None], dtype=pl.Int128),
    "pyarrow": pa.array([*BIG[:2], None]),
    "chunks": pa.chunked_array([BIG[:2], [None]]),
    "pandas": pd.Series([*BIG[:2], None], dtype="Int64"),
    "index of pandas": pd.Index([*BIG[:2], None], dtype="Int64"),
    "array of pandas": pd.array([*BIG[:2], None], dtype="Int64"),
    "masked": np.ma.array([*BIG[:2], 2**60], mask=[False, False, True]),
}
TABLES = {
    "lists": [BIG, [2**53 + 1, 2**53, 0.5]],
    "arrays": [np.array([2**64 - 1, 2**64 - 2, 0], np.uint64), np.array([3, 2, -1])],
    "Series": [pl.Series([*BIG[:2], None]), pl.Series(BIG)],
    "DataFrame": pl.DataFrame({"a": [BIG[0], 1], "b": [BIG[1], 0], "c": [0.5, None]}),
    "pyarrow": pa.table({"a": [BIG[0], 1], "b": [BIG[1], 0], "c": [None, -1]}),
    "pandas": pd.DataFrame({"a": [BIG[0], 1], "b": [BIG[1], 0], "c": [0.5, -1.0]}),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", NOT_FLOATS)
def test_integers_are_never_rounded(case, call):
    scores = NOT_FLOATS[case]
    # A gap of 1, at a rate where a second best never wins; as floats the two best are one.
    assert [call(scores, epsilon=1000, sensitivity=1) for _ in range(20)] == [0] * 20
    two = scores.to_pylist()[:2] if hasattr(scores, "to_pylist") else scores[:2]
    law = analysis.scores.selection_probabilities(two, epsilon=1, monotonic=True)
    assert law.tolist() == pytest.approx([1 - math.exp(-1) / 2, math.exp(-1) / 2])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", TABLES)
def test_integers_of_tables_are_never_rounded(case, call):
    for _ in range(20):
        assert call(TABLES[case], epsilon=1000, sensitivity=1).tolist() == [0, 0]


def test_the_gaps_of_mixed_numbers_are_rounded_once():
    scores, offered = exact_numbers("scores", [2**70, 0.5, float("inf"), 2**53 + 1, -(2.0**-1074), 2**2000])
    assert offered.tolist() == [True, True, False, True, True, True]
    exact = [2**70, Fraction(1, 2), 0, 2**53 + 1, Fraction(-1, 2**1074), 2**2000]
    assert scores.tolist() == exact
    for lowest in (False, True):
        flat, gaps, _ = gaps_of(scores[[0, 1, 3, 4]], [2, 2], lowest=lowest)
        true = [abs(a - b) for a, b in ((exact[0], exact[1]), (exact[3], exact[4]))]
        assert sorted(gaps) == [0, 0, *sorted(true)]
        assert flat.tolist() == [float(gap) for gap in gaps]
    assert gaps_of(scores[[5, 0]], [2])[0].tolist() == [0, np.inf]


def test_scores_of_lists_of_small_numbers_are_plain_arrays():
    small = [np.float32(1), np.float16(2)]
    for scores, dtype in [([1, 2.5], "f8"), ([2**64 - 1, 2**63], "u8"), ([], "f8"), (small, "f8")]:
        found, offered = exact_numbers("scores", scores)
        assert (found.tolist(), found.dtype, offered) == (scores, dtype, None)


@pytest.mark.slow
def test_draws_by_integers_beyond_64_bits_follow_the_law(mechanism):
    scores, offered = exact_numbers("scores", [2**80, 2**80 - 1, 2**80 - 3, -(2**80)])
    assert offered.all()
    draws = 20_000
    law = [*analysis.scores.selection_probabilities([3, 2, 0], epsilon=0.5, monotonic=True, mechanism=mechanism), 0.0]

    def draw(factor):
        lengths = np.full(draws, 4)
        return best_rows(np.tile(scores, draws), lengths, Fraction(1, 2) * factor, LAWS[mechanism], system_rng())

    check_sampler(draw, law)


@pytest.mark.parametrize("loss", [{}, {"epsilon": 1, "rho": 1}])
def test_the_exponential_mechanism_takes_one_loss(loss):
    with pytest.raises(TypeError, match=r"^exactly one of epsilon and rho must be given"):
        exponential_mechanism([1, 2], **loss, sensitivity=1)


SECRET = 98765.4321


@pytest.mark.parametrize(
    "scores",
    [
        [[SECRET, 1.0], [math.nan, math.inf]],
        [[SECRET, 1.0], [2.0]],
        [SECRET, "1"],
        [SECRET, None],
        [[[SECRET]]],
        np.array([[[SECRET]]]),
        np.array([SECRET, 1], np.longdouble),
        np.array([SECRET, None], object),
        pl.DataFrame({"a": [SECRET], "b": ["1"]}),
        pl.Series([[SECRET]]),
        SECRET,
    ],
    ids=lambda scores: f"{type(scores).__name__}",
)
def test_errors_show_no_score(scores):
    """Each of these holds a score, and is refused."""
    assert re.search("98765|9.8765", str(scores))
    with pytest.raises((TypeError, ValueError)) as caught:
        permute_and_flip(scores, epsilon=1, sensitivity=1)
    assert not re.search("98765|9.8765", str(caught.value))
    assert caught.value.__cause__ is None


def test_the_range_of_monotonic_scores_is_the_sensitivity(mechanism):
    loss = Loss.of(epsilon=3, rho=None)
    assert claim_for_scores(loss, mechanism, 0.1, monotonic=True).rate == 30
    assert claim_for_scores(loss, mechanism, 0.1, monotonic=False).rate == 15


# Gaps


def gaps_of(scores, lengths, *, lowest=False):
    """Flat gaps, as the race sees them, with their exact values and the groups' starts."""
    seen = []

    def stand_in(blocks, rate, law, words):
        flat = np.concatenate([blocks.gaps[i : i + 3] for i in range(0, len(blocks.gaps), 3)])
        exact = [blocks.exact(group) for group in range(len(blocks.starts))]
        seen.append((flat, [gap(i) for gap, m in exact for i in range(len(m))], blocks.starts))
        return Winners(blocks.starts.copy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "race", stand_in)
        best_rows(scores, np.array(lengths), Fraction(1), LAWS["exponential"], system_rng(), lowest=lowest)
    return seen[0]


types = st.sampled_from([np.int8, np.int32, np.int64, np.uint8, np.uint64]) | st.just(np.float64)


@given(st.data(), types, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
@settings(max_examples=300)
def test_gaps_are_exact_and_those_of_floats_are_rounded_once(data, dtype, lengths, lowest):
    finite = st.floats(allow_nan=False, allow_infinity=False) if dtype is np.float64 else None
    scores = data.draw(arrays.arrays(dtype, sum(lengths), elements=finite))
    flat, exact, starts = gaps_of(scores, lengths, lowest=lowest)
    expected = []
    for part in np.split(scores, starts[1:]):
        values = [Fraction(v) for v in part.tolist()]
        best = min(values) if lowest else max(values)
        expected += [abs(best - v) for v in values]
    assert exact == expected
    if dtype is np.float64:
        expected = [float(gap) if gap < 2**1024 - 2**970 else np.inf for gap in expected]
    assert flat.tolist() == expected


@given(arrays.arrays(np.int64, 6, elements=st.integers(-(2**62), 2**62)), st.integers(-(2**62), 2**62 - 1))
def test_a_constant_added_to_all_scores_changes_nothing(scores, constant):
    assert (gaps_of(scores, [6])[0] == gaps_of(scores + constant, [6])[0]).all()


@given(arrays.arrays(np.int64, 6), st.permutations(range(6)))
def test_permuted_scores_have_permuted_gaps(scores, order):
    assert (gaps_of(scores, [6])[0][order] == gaps_of(scores[order], [6])[0]).all()
    assert np.array_equal(gaps_of(scores, [6], lowest=True)[0][order], gaps_of(scores[order], [6], lowest=True)[0])


# Rows


def best(scores, lengths, **kwargs):
    return best_rows(np.array(scores), np.array(lengths), Fraction(1000), LAWS["exponential"], system_rng(), **kwargs)


def test_groups_of_rows():
    assert best([1, 5, 2, 7, 7, 0, 3], [3, 0, 1, 3, 0]).tolist()[:3] == [1, -1, 0]
    assert best([1, 5, 2, 7, 6, 0, 3], [3, 0, 1, 3, 0]).tolist() == [1, -1, 0, 0, -1]
    assert best([1, 5, 2, 7, 6, 0, 3], [3, 0, 1, 3, 0], lowest=True).tolist() == [0, -1, 0, 1, -1]


def test_only_rows_on_offer_win():
    offered = np.array([True, False, True, False, False, True])
    assert best([1, 5, 2, 7, 6, 0], [3, 2, 1], offered=offered).tolist() == [2, -1, 0]
    nan = float("nan")
    assert best([1, nan, 2, nan, float("inf"), 0], [3, 2, 1]).tolist() == [2, -1, 0]
    assert best([1, nan, 2, 7, 6, nan], [3, 2, 1], offered=offered).tolist() == [2, -1, -1]


anything = arrays.arrays(st.sampled_from([np.int8, np.int64, np.uint64, np.float32, np.float64]), st.integers(1, 12))


@pytest.mark.slow
@given(anything, st.fractions(Fraction(1, 10**9), 10**9), st.sampled_from(MECHANISMS), st.booleans(), st.data())
def test_every_answer_is_a_row_on_offer(scores, rate, mechanism, lowest, data):
    # NaN and infinities among them; no warning either.
    lengths = np.array([len(scores) // 2, 0, len(scores) - len(scores) // 2])
    offered = data.draw(arrays.arrays(bool, len(scores)))
    if scores.dtype.kind == "f":
        scores = scores.astype(np.float64)
    chosen = best_rows(scores, lengths, rate, LAWS[mechanism], system_rng(), offered=offered, lowest=lowest)
    can_win = offered & (np.isfinite(scores) if scores.dtype.kind == "f" else True)
    for row, possible in zip(chosen, np.split(can_win, np.cumsum(lengths)[:-1]), strict=True):
        assert possible[row] if row >= 0 else not possible.any()


def test_no_rows_at_all():
    assert best(np.empty(0), []).tolist() == []
    assert best(np.empty(0), [0, 0]).tolist() == [-1, -1]
    assert best([float("nan")] * 3, [2, 1]).tolist() == [-1, -1]


def test_groups_cut_between_batches(monkeypatch):
    monkeypatch.setattr(racing, "CHUNK", 4)
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, 200)
    for dtype in (np.int16, np.uint64, np.float64):
        scores = rng.integers(0, 100, lengths.sum()).astype(dtype)
        expected = [part.max() if len(part) else None for part in np.split(scores, np.cumsum(lengths)[:-1])]
        chosen = best(scores, lengths)
        for part, row, top in zip(np.split(scores, np.cumsum(lengths)[:-1]), chosen, expected, strict=True):
            assert (row == -1) if top is None else (part[row] == top)


INTEGERS = [np.array([2**63 - 1, -(2**63), 0, 2**63 - 1]), np.array([0, 2**64 - 1, 2**64 - 2], np.uint64)]
FLOATS = [
    np.array([1.7976931348623157e308, -1.7976931348623157e308, 0.0]),
    np.array([5e-324, 0.0, -5e-324, -0.0]),
    np.array([1e300, 1e300, 1.0000000000000002e300]),
    np.array([-1.0]),
]
RATES = [Fraction(1, 2**1000), Fraction(1, 10**6), Fraction(1), Fraction(2**1000)]
# A Decimal's scores are its ticks, at a rate of up to 10**-38 of the claim's.
SMALLER = Fraction(1, 2**1130)


@pytest.mark.parametrize(
    ("scores", "rate"), [(s, r) for s in INTEGERS + FLOATS for r in RATES] + [(s, SMALLER) for s in INTEGERS]
)
def test_extreme_scores_and_rates(scores, rate, mechanism):
    # Warnings are errors here.
    rows, lengths = np.tile(scores, 50), np.full(50, len(scores))
    chosen = best_rows(rows, lengths, rate, LAWS[mechanism], system_rng())
    assert ((chosen >= 0) & (chosen < len(scores))).all()
    exact = [Fraction(s) for s in scores.tolist()]
    if rate * min([max(exact) - s for s in exact if s != max(exact)], default=1) > 100:
        assert all(exact[c] == max(exact) for c in chosen)


def test_scores_keep_their_integers_and_widen_floats():
    for scores, dtype in [([1, 2], np.int64), (np.array([1], np.uint8), np.uint8), (np.ones(1, "e"), np.float64)]:
        found, offered = exact_numbers("scores", scores)
        assert (found.dtype, offered) == (dtype, None)
