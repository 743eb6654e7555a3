"""Lists of quantiles: the tree, what is refused, answers, the claim, and how wrong a list is."""

import datetime as dt
import importlib.util
import itertools
import math
import pickle
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._mechanisms import quantile_trees
from dp_polars._mechanisms.histograms import Histogram, QuantileScore
from dp_polars._mechanisms.quantile_trees import Cells, TreeDraw, digit_bits, levels_of, rows_off, tree
from dp_polars._mechanisms.racing import LAWS
from dp_polars._statistics.categories import Quantile
from tests.helpers.places import ROOT
from tests.privacy.datasets import all_counts, as_rows, scores_of
from tests.registry import MECHANISMS, RELATIONS

X = pl.col("x")
SPEC = importlib.util.spec_from_file_location("several_quantiles", ROOT / "examples" / "several_quantiles.py")
several_quantiles = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(several_quantiles)


def asked(alphas, candidates=range(10), **options):
    return dpp.quantile("x", alphas, candidates, **({} if "rho" in options else {"epsilon": 1}) | options).query


@st.composite
def lists(draw, most=40):
    each = st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100)
    return sorted(draw(st.sets(each, min_size=1, max_size=most)))


def depth(node):
    return 0 if node is None else 1 + max(depth(node.left), depth(node.right))


@given(lists())
def test_the_tree_has_every_quantile_once_on_as_few_levels_as_possible(alphas):
    root = tree(alphas)
    assert sorted(node.index for node in root.nodes()) == list(range(len(alphas)))
    assert depth(root) == levels_of(len(alphas)) == math.ceil(math.log2(len(alphas) + 1))

    def check(node, first, last, low, high):
        if node is None:
            assert first == last
            return
        assert first <= node.index < last
        assert node.alpha == (alphas[node.index] - low) / (high - low)
        assert node.score_range == 2 * max(node.alpha.numerator, node.alpha.denominator - node.alpha.numerator)
        assert node.splits == (last - first > 1)
        check(node.left, first, node.index, low, alphas[node.index])
        check(node.right, node.index + 1, last, alphas[node.index], high)

    check(root, 0, len(alphas), Fraction(0), Fraction(1))


def test_of_the_quantiles_that_may_stand_at_the_top_the_one_nearest_to_the_middle_does():
    assert tree([Fraction(i, 10) for i in (1, 2, 5, 9)]).index == 2
    assert tree([Fraction(i, 10) for i in (1, 5, 8, 9)]).index == 1
    assert tree([Fraction(i, 10) for i in (1, 2, 5)]).index == 1  # only then two levels are enough


def test_a_number_is_one_quantile_and_a_list_is_a_list():
    assert isinstance(asked(0.5), Quantile)
    for alphas in ([0.5], (0.25, 0.5), np.array([0.25, 0.5]), [Fraction(1, 4), Decimal("0.5")]):
        query = asked(alphas)
        assert query.width == len(query.alphas) in (1, 2)
        assert query.fixed_type == pl.List(pl.Int64)
    assert pickle.loads(pickle.dumps(asked([0.1, 0.9]))) == asked([0.1, 0.9])
    assert str(asked([0.1, 0.5])) == "quantiles (0.1, 0.5) on 10 grid points"
    assert str(asked([i / 10 for i in range(1, 10)])) == "quantiles (9 from 0.1 to 0.9) on 10 grid points"


@pytest.mark.parametrize(
    ("alphas", "error", "words"),
    [
        ([0.5, 0.5], ValueError, "quantile must not repeat, got 0.5 more than once.\n\nHint: the loss is shared"),
        ([0.25, 0.5, 0.50], ValueError, "must not repeat"),
        (
            [0.5, 0.25],
            ValueError,
            "quantile must be ascending, got 0.5 before 0.25.\n\nHint: answers come in the order",
        ),
        ([], ValueError, "at least one, got an empty list"),
        ([0.5, 1], ValueError, r"quantile\[1\] must lie strictly between 0 and 1, got 1."),
        ([0, 0.5], ValueError, r"quantile\[0\] must lie strictly between"),
        ([0.5, math.nan], ValueError, r"quantile\[1\] must be finite, got nan"),
        ([0.12345], ValueError, r"quantile\[0\] must be a fraction with a denominator of at most 10,000"),
        (["0.5"], TypeError, r"quantile\[0\] must be a number"),
        ([[0.5]], TypeError, r"quantile\[0\] must be a number"),
        ("0.5", TypeError, "quantile must be a number"),
        ({0.25, 0.5}, TypeError, "quantile must be a number .*, got set"),
        (pl.Series([0.25, 0.5]), TypeError, "quantile must be a number .*, got Series"),
        (np.array([[0.5]]), TypeError, "an array of 2 dimensions"),
        (
            [Fraction(1234, 9973), Fraction(5003, 9949), Fraction(7001, 9967)],
            ValueError,
            "denominator of at most 16,777,216",
        ),
    ],
)
def test_other_lists_are_refused_with_the_reason(alphas, error, words):
    with pytest.raises(error, match=words):
        X.dp.quantile(alphas, range(10), epsilon=1)


def test_rates_that_the_race_can_not_hold_are_refused():
    with pytest.raises(ValueError, match="between 2\\*\\*-1000 and 2\\*\\*1000"):
        asked([0.1, 0.5], epsilon=Fraction(1, 2**999))
    assert asked([0.1, 0.5], epsilon=Fraction(1, 2**990)).claim._draws == 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_each_level_costs_a_row_what_one_quantile_at_its_share_does(unit, relation, mechanism):
    """So the rates of its nodes are those of quantiles on their own at that loss, whatever group a new row is in."""
    alphas, bounds = [Fraction(i, 10) for i in range(1, 10)], Contributions(5, 2)
    query = asked(alphas, **{unit: Fraction(3, 5)}, mechanism=mechanism).under(bounds, relation)
    claim, levels = query.claim, 4
    assert (claim._draws, claim.contributions, claim.neighboring_relation) == (levels, bounds, relation)
    # Tenths are halves of what is above them, but for the second level: two fifths and three fifths.
    shares = [Fraction(1, 2), Fraction(3, 5), Fraction(1, 2), Fraction(1, 2)] if relation == "replace_one" else []
    assert claim._levels == tuple(1 / (2 * share) for share in shares)
    x, every = claim.rate * claim.score_range, [replace(claim, _draws=1, _levels=(), _same_group=Fraction(1))] * levels
    alone = [replace(every[0], _same_group=one) for one in claim._levels] or every
    for budget, distance in itertools.product(("epsilon", "rho"), (1, 3)):
        charged = sum(one._cost_of(budget, x * distance, distance) for one in alone)
        assert charged * (1 - Fraction(1, 2**80)) <= claim.cost(budget, distance) <= charged * (1 + Fraction(1, 2**80))
        most = sum(one._cost_of(budget, x * distance, distance) for one in every)
        assert (charged < most) == (budget == "rho" and relation == "replace_one")
    for node in query.root.nodes():
        one = asked(node.alpha, **{unit: Fraction(3, 5) / levels}, mechanism=mechanism).under(bounds, relation).claim
        one = replace(one, _same_group=Fraction(1))
        assert one.rate <= claim.rate / node.score_range
        assert (one.rate == claim.rate / node.score_range) == (unit == "epsilon" or not claim._levels)
    assert claim.cost(unit) == Fraction(3, 5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.9])
def test_a_list_of_one_draws_and_errs_like_that_quantile(alpha, mechanism):
    one, query = asked(alpha, mechanism=mechanism), asked([alpha], mechanism=mechanism)
    draw = TreeDraw(query.root, 10, digit_bits(10), query.claim.rate, query.claim.mechanism).of(query.root)
    assert (draw.rate, draw.size, draw.score) == (one.claim.rate, 10, one.score)
    assert query.error(10, 0.05) == pytest.approx(one.error(10, 0.05))


def histogram_of(counts):
    codes, lengths = as_rows(counts)
    return Histogram.of_rows(codes, None, lengths, np.asarray(counts).shape[1])


@given(lists(), st.data())
@settings(max_examples=80)
def test_answers_never_decrease_and_are_candidates(alphas, data):
    size = data.draw(st.sampled_from([1, 2, 7, 10**9, 2**53]))
    groups = [data.draw(st.lists(st.integers(0, size - 1), max_size=30)) for _ in range(4)]
    rows = np.array([code for group in groups for code in group], np.int64)
    histogram = Histogram.of_rows(rows, None, np.array([len(group) for group in groups]), size)
    rate = Fraction(data.draw(st.sampled_from([10**-6, 0.1, 3, 10**6])))
    for mechanism in MECHANISMS:
        answers = TreeDraw(tree(alphas), size, digit_bits(size), rate, LAWS[mechanism]).groups(histogram)
        assert answers.shape == (4, len(alphas))
        assert (np.diff(answers, axis=1) >= 0).all()
        assert 0 <= answers.min() <= answers.max() < size


@pytest.mark.parametrize("slices", [(), ("_SLICE_CELLS",), ("_SLICE_GROUPS",)])
@pytest.mark.parametrize("size", [12, 10**6, 2**53])
def test_at_a_large_loss_the_answers_are_the_true_ones(size, slices, monkeypatch):
    """Also of values that many rows have: their second digits cut them where the quantiles of a part need it."""
    for name in slices:
        monkeypatch.setattr(quantile_trees, name, 100)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 12, (300, 200)) * (rng.random((300, 200)) < 0.5) * ((size - 1) // 11)
    histogram = Histogram.of_rows(codes.ravel(), None, np.full(300, 200), size)
    alphas = [Fraction(i, 8) for i in range(1, 8)]
    answers = TreeDraw(tree(alphas), size, digit_bits(size), Fraction(10**6), LAWS["permute_and_flip"]).groups(
        histogram
    )
    ordered = np.sort(codes, axis=1)
    # A split may leave the rank beside it one row off, where the one above did, too.
    for i, alpha in enumerate(alphas):
        rank = math.ceil(alpha * 200) - 1
        assert (ordered[:, max(rank - 3, 0)] <= answers[:, i]).all()
        assert (answers[:, i] <= ordered[:, min(rank + 3, 199)]).all()
    assert (answers[:, 3] == ordered[:, 99]).all()


def test_no_groups():
    query = asked([0.25, 0.5])
    empty = Histogram(*(np.empty(0, np.int64) for _ in range(3)))
    assert query.draw_codes(empty).shape == (0, 2)
    (answers,) = query.drawn([empty])
    assert (answers.dtype, len(answers)) == (query.fixed_type, 0)


@pytest.mark.parametrize(
    ("values", "candidates"),
    [
        ([1, 2, 3], range(10)),
        ([1.25, 2.5], dpp.grid(0, 3, step=0.25)),
        ([1.25, 2.5], [0.1, 1.25, 2.5, 9.0]),
        ([Decimal("1.5"), Decimal("2.0")], dpp.grid(Decimal(0), Decimal(3), step=Decimal("0.5"))),
        ([dt.date(2020, 1, 5), dt.date(2020, 2, 5)], dpp.grid(dt.date(2020, 1, 1), dt.date(2020, 12, 31), step="1d")),
        ([dt.datetime(2020, 1, 5)], [dt.datetime(2020, 1, i) for i in (2, 5, 9)]),
        ([dt.timedelta(hours=3)], dpp.grid(dt.timedelta(0), dt.timedelta(days=1), step="1h")),
        ([dt.time(3)], [dt.time(1), dt.time(3)]),
        ([7, 10**9], dpp.grid(0, 10**9, step=1)),
    ],
    ids=str,
)
def test_answers_of_all_types(values, candidates):
    frame = pl.DataFrame({"x": values * 400, "g": [1] * 200 * len(values) + [2] * 200 * len(values)})
    expr = X.dp.quantile([0.1, 0.9], candidates, rho=10**6)
    for column in (expr, (X.filter(X.is_not_null())).dp.quantile([0.1, 0.9], candidates, rho=10**6)):
        for found in (
            frame.select(column),
            frame.lazy().select(column).collect(engine="streaming"),
            frame.group_by("g").agg(column).select("x"),
            frame.select(column.over("g")),
        ):
            assert found.schema == {
                "x": pl.List(pl.Series(values).dtype if not isinstance(values[0], Decimal) else pl.Decimal(38, 1))
            }
            assert set(map(tuple, found["x"].to_list())) == {(values[0], values[-1])}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("alphas", [("9/20", "1/2"), ("1/2", "11/20")])  # below and above the one that splits
def test_the_bound_of_a_list_is_that_of_its_draws(alphas, mechanism):
    """The sum that its docstring says, and no less."""
    size, rate, beta = 1000, Fraction(1, 3), 0.05

    def own(alpha, candidates):
        wide = int(QuantileScore(alpha).range("add_or_remove_one")) / alpha.denominator
        return LAWS[mechanism].log_odds(candidates, beta / 2) * wide / float(rate)

    split = own(Fraction(1, 2), size << digit_bits(size))
    other = 0.9 * (split + 1) + own(Fraction(9, 10), size)
    assert other > split
    found = rows_off(tree([Fraction(alpha) for alpha in alphas]), size, rate, LAWS[mechanism], beta)
    assert found == pytest.approx(other)


def test_true_codes_and_mistakes_are_those_of_each_quantile():
    counts, alphas = all_counts(4, 5), (Fraction(1, 4), Fraction(1, 2), Fraction(9, 10))
    query, histogram = asked(alphas, [1.0, 2.0, 4.0, 8.0]), histogram_of(counts)
    places = np.array([1.0, 2.0, 4.0, 8.0])
    true = query.true_codes(histogram)
    some = counts.sum(axis=1) > 0
    for answers in ([0, 0, 0], [1, 2, 2], [0, 3, 3], [3, 3, 3]):
        codes = np.tile(answers, (len(counts), 1))
        right, wrong, worst, ranks = query.mistakes(codes, histogram)
        for group in np.flatnonzero(some).tolist():
            scores = [np.array(scores_of(counts[group], alpha)) for alpha in alphas]
            assert [each[code] for each, code in zip(scores, true[group], strict=True)] == [0, 0, 0]
            missed = [
                -each[code] / alpha.denominator for each, code, alpha in zip(scores, answers, alphas, strict=True)
            ]
            assert ranks[group] == pytest.approx(np.mean(missed))
            assert right[group] == (max(missed) == 0)
            distances = np.abs(places[answers] - places[true[group]])
            assert (wrong[group], worst[group]) == (pytest.approx(distances.mean()), distances.max())


def test_distances_are_in_the_unit_that_is_said():
    days = [dt.date(2020, 1, d) for d in (1, 2, 9)]
    for candidates, unit, far in [
        (range(0, 30, 10), "the column's unit", 20),
        (days, "days", 8),
        ([dt.datetime(2020, 1, 1, 0, 0, s) for s in (0, 1, 5)], "seconds", 5),
    ]:
        query = asked([0.5], candidates)
        assert query.distance_unit == unit
        assert query.mistakes(np.array([[2]]), histogram_of([[3, 0, 0]])).wrong.tolist() == [far]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("shape", ["spread", "ties"])
@pytest.mark.parametrize("m", [1, 3, 9])
def test_the_bound_of_the_error_holds(m, shape, mechanism):
    """At most one in twenty of 2,000 draws is beyond."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 500, 3_000) if shape == "spread" else np.where(rng.random(3_000) < 0.6, 0, 499)
    root, size, rate = tree([Fraction(i, m + 1) for i in range(1, m + 1)]), 500, Fraction(1, 3)
    histogram = Histogram.of_rows(rows, None, np.array([len(rows)]), size).repeated(2_000)
    query = asked([Fraction(i, m + 1) for i in range(1, m + 1)], range(size))
    answers = TreeDraw(root, size, digit_bits(size), rate, LAWS[mechanism]).groups(histogram)
    ordered = np.sort(rows)
    aim = np.array([float(alpha) for alpha in query.alphas]) * len(rows)
    below, upto = np.searchsorted(ordered, answers, "left"), np.searchsorted(ordered, answers, "right")
    worst = np.maximum(aim - upto, below - aim).max(axis=1)
    law = LAWS[mechanism]
    bound = rows_off(root, size, rate, law, 0.05)
    assert np.mean(worst >= bound) <= 0.05
    less, more = (rows_off(root, size, *given) for given in ((rate * 2, law, 0.05), (rate, law, 0.01)))
    assert less < bound < more


def test_explain_simulate_and_private_frames_take_lists():
    frame = pl.DataFrame({"g": [1] * 500 + [2] * 300, "x": [*range(500), *[7] * 300], "p": range(800)})
    alphas = [0.1, 0.5, 0.9]
    bounds = {"max_groups": 1, "max_rows_per_group": 2}
    query = (
        frame.dp.protect("p", **bounds)
        .group_by({"g": [1, 2, 3]})
        .agg(q=X.dp.quantile(alphas, range(1000), epsilon=40), m=X.dp.median(range(1000), epsilon=40))
    )
    explained = query.explain().row(0, named=True)
    claim = query._asks[0].query.claim
    assert claim.contributions == Contributions(2, 2)
    assert explained["rate"] == 40 / 2 / 2
    assert (explained["candidates"], explained["error_unit"], explained["score_range"]) == (1000, "rows", 1)
    assert explained["error_95"] == rows_off(query._asks[0].query.root, 1000, Fraction(10), LAWS[claim.mechanism], 0.05)
    released = query.release(intervals=True)
    assert released.schema == {"g": pl.Int64, "q": pl.List(pl.Int64), "m": pl.Int64}
    assert released["q"][1].to_list() == [7, 7, 7]
    assert abs(np.array(released["q"][0].to_list()) - [49, 249, 449]).max() < 10
    assert all(low <= high for low, high in pairwise(released["q"][2]))


@pytest.mark.slow
def test_the_table_of_several_quantiles():
    """Of the issue on lists: at most so many rows off, beside separate quantiles at a loss of 1/m each."""
    found = {row[:2]: row[2:] for row in several_quantiles.table().rows()}
    skewed, zeros = "log-normal, 4,096 candidates", "60 % zeros, 101 candidates"
    assert found[skewed, 9][0] <= 0.5 * found[skewed, 9][1]
    assert found[skewed, 33][0] <= 0.2 * found[skewed, 33][1]
    assert found[zeros, 3][0] <= 1
    assert found[zeros, 33][0] <= 4


@pytest.mark.slow
def test_without_second_digits_a_heavy_value_spoils_what_stands_beside_it():
    """What they are for: the negative control of the table."""
    rows, candidates = several_quantiles.mostly_zero(np.random.default_rng(0))
    alphas = [Fraction(i, 34) for i in range(1, 34)]
    histogram = Histogram.of_rows(rows, None, np.array([len(rows)]), len(candidates)).repeated(30)
    off = {}
    for bits in (0, digit_bits(len(candidates))):
        root = tree(alphas)
        answers = TreeDraw(root, len(candidates), bits, Fraction(1, depth(root)), LAWS["permute_and_flip"]).groups(
            histogram
        )
        off[bits] = several_quantiles.misses(rows, answers, [float(alpha) for alpha in alphas])
    assert off[0] > 50 > 4 > off[digit_bits(len(candidates))]


def test_digits_that_a_close_race_has_drawn_stay(monkeypatch):
    def close(draw, slots, left_out, complete):
        complete(0)
        return np.zeros(1, np.int64), np.zeros(1, np.int64)

    monkeypatch.setattr(quantile_trees, "draw_from_slots", close)
    root, size = tree([Fraction(1, 2), Fraction(3, 4)]), 11
    bits = digit_bits(size)
    cells = Cells.of_values(np.array([5]), np.array([10**4]), np.array([1]), bits)
    draw = TreeDraw(root, size, bits, Fraction(1), LAWS["exponential"]).of(root)
    _, found = quantile_trees._draw_one(draw, cells, np.zeros(1, np.int64), np.full(1, (size << bits) - 1))
    assert found.totals.tolist() == [10**4]
    assert not found.bits.any()  # all digits are drawn
