"""Intervals of quantiles: where the ends lie, that they hold the quantile, what they cost, and what is refused."""

import datetime as dt
import itertools
import math
from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given

import dp_polars as dpp
from dp_polars._mechanisms import histograms
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.racing import LAWS
from tests.helpers import reference
from tests.privacy.datasets import all_counts, scores_of
from tests.registry import MECHANISMS, RELATIONS
from tests.statistical.goodness import check_sampler

X = pl.col("x")
ALPHAS = [Fraction(1, 2), Fraction(1, 4), Fraction(2, 3), Fraction(9, 10)]


def asked(alpha, size, *, groups=3, relation="add_or_remove_one", **options):
    """The statistic as a private frame asks it, of rows that are people."""
    if not {"epsilon", "rho"} & options.keys():
        options["epsilon"] = 1
    private = dpp.protect(None, neighboring_relation=relation).group_by({"g": range(groups)})
    made = private.agg(m=X.dp.quantile(alpha, range(size), **{"confidence": 0.95} | options))
    return made._asks[0].query


def three(query, counts):
    """The counts that the answer and the two ends are drawn from: those of the rows, and with public rows."""
    below, above = query.public_rows
    low, high = [*counts], [*counts]
    low[0] += below
    high[-1] += above
    return [*counts], low, high


def laws_of(query, counts, digits=17):
    """The law of each of the three draws."""
    scores = (scores_of(each, query.alpha) for each in three(query, counts))
    return [
        reference.floats(reference.law(s, rate=query.claim.rate, mechanism=query.claim.mechanism, digits=digits))
        for s in scores
    ]


def true_code(counts, alpha):
    """The candidate of rank ⌈αN⌉."""
    return int(np.searchsorted(np.cumsum(counts), math.ceil(alpha * sum(counts))))


# --- Where the ends lie -----------------------------------------------------------------------------------------------


def single_rows(counts):
    """The same histogram as rows one by one, the last ones first."""
    groups, codes = np.nonzero(counts)
    order = np.repeat(np.arange(len(groups)), counts[counts > 0])[::-1]
    parts = [(groups[part].astype(np.uint8), codes[part].astype(np.uint8)) for part in np.array_split(order, 2)]
    return histograms.SingleRows(parts, *counts.shape)


@pytest.mark.parametrize("most", [0, 1 << 20], ids=["counted", "one by one"])
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=5), st.integers(1, 9))
def test_rows_are_added_at_the_first_or_the_last_code_of_every_group(most, groups, rows):
    size = max(map(len, groups), default=1)
    counts = np.zeros((len(groups), size), np.int64)
    for place, each in enumerate(groups):
        counts[place, : len(each)] = each

    def histogram(counts):
        return Histogram.of_cells(*np.nonzero(counts), counts[counts > 0], len(counts))

    for code in {0, size - 1}:
        more = counts.copy()
        more[:, code] += rows
        expected = histogram(more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(histograms, "_MOST_ADDED", most)
            held = single_rows(counts).with_rows_at(code, rows)
            assert isinstance(held, histograms.SingleRows) == (most > 0 or not len(counts))
            for found in (histogram(counts).with_rows_at(code, rows), held):
                for name in ("codes", "weights", "sizes"):
                    assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_public_rows_shift_the_rank_by_the_bound_of_one_draw(alpha, mechanism):
    query = asked(alpha, 50, mechanism=mechanism, confidence=0.95)
    below, above = query.public_rows
    bound = LAWS[mechanism].log_odds(50, 0.025) / float(query.claim.rate) / alpha.denominator
    assert below - 1 < bound / (1 - alpha) <= below
    assert above - 1 < bound / alpha <= above
    assert asked(alpha, 50, mechanism=mechanism, confidence=0.6).public_rows < (below, above)
    assert asked(alpha, 1).public_rows == (1, 1)


# --- That they hold the quantile -------------------------------------------------------------------------------------


def held(query, ends, code):
    low, high = ends
    return low[: code + 1].sum() * high[code:].sum()


def shifted_laws(query, counts):
    """The laws of the ends where the rank alone is shifted, and no row is added."""
    num, den, rate = query.alpha.numerator, query.alpha.denominator, query.claim.rate
    bound = math.ceil(LAWS[query.claim.mechanism].log_odds(len(counts), 0.025) / float(rate))
    below = np.cumsum(counts) - counts
    for by in (-bound, bound):
        aim = num * sum(counts) + by
        scores = -np.maximum(np.maximum(aim - den * (below + counts), den * below - aim + 1), 0)
        yield reference.floats(reference.law(scores, rate=rate, mechanism=query.claim.mechanism, digits=17))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_ends_hold_the_quantile_of_every_small_data_set(alpha, mechanism):
    least, of_shifts = {0.6: 1, 0.95: 1}, 1
    for size, epsilon, interval in itertools.product((2, 4), (Fraction(1, 2), 6), least):
        query = asked(alpha, size, mechanism=mechanism, epsilon=epsilon, confidence=interval)
        for counts in all_counts(size, 7 if size == 2 else 4)[1:]:
            code = true_code(counts, alpha)
            _, low, high = laws_of(query, counts)
            least[interval] = min(least[interval], held(query, (low, high), code))
            if interval == 0.95 and size == 4:
                of_shifts = min(of_shifts, held(query, shifted_laws(query, counts), code))
    assert all(least[interval] >= interval for interval in least), least
    # Where fewer rows lie below than the rank is shifted by, a shift alone finds nothing that is low enough.
    assert of_shifts < 0.5


RNG = np.random.default_rng(27)
# Rows of one group, as values on 0 … 100.
ROWS = {
    "skewed": (RNG.pareto(1.2, 1001) * 4).clip(0, 100),
    "tied": np.repeat([3, 3, 3, 70], [200, 200, 102, 499]),
    "all equal": np.full(40, 50),
    "one row": np.array([100]),
    "one row in the middle": np.array([50]),
    "far apart": np.repeat([0, 100], [500, 500]),
    "at the ends of the ranks": np.repeat([0, 50, 100], [70, 1, 70]),
    "even": np.arange(101),
}
RELEASES = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.5, 0.9])
@pytest.mark.parametrize("loss", [{"epsilon": 0.5}, {"rho": 0.1}], ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_nineteen_of_twenty_intervals_hold_the_quantile(rows, loss, alpha):
    """Ten thousand releases, as many public groups: each has the same rows, and each person one row."""
    values = ROWS[rows]
    frame = pl.DataFrame({"g": np.repeat(np.arange(RELEASES), len(values)), "x": np.tile(values, RELEASES)})
    private = frame.lazy().dp.protect(None).group_by({"g": range(RELEASES)})
    released = private.agg(m=X.dp.quantile(alpha, range(101), confidence=0.95, **loss)).release()
    codes = np.ceil(values - 0.5)  # the nearest candidate, ties down
    true = np.sort(codes)[math.ceil(Fraction(str(alpha)) * len(values)) - 1]
    low, middle, high = (released[name].to_numpy() for name in ("m_low", "m", "m_high"))
    coverage, width = ((low <= true) & (true <= high)).mean(), np.median(high - low)
    print(f"{rows}, {loss}, {alpha}-quantile: {coverage:.2%} hold {true}, a median width of {width}")
    assert coverage >= 0.95
    assert (low <= middle).all()
    assert (middle <= high).all()


# --- That they cost no more ------------------------------------------------------------------------------------------


def near_data_sets(query, alpha):
    """Small data sets, and those where all three draws are between two candidates."""
    below, above = query.public_rows
    # (1 − α)·below rows between the low rank and the middle one, α·above between that and the high one.
    between = math.ceil((1 - alpha) * below), math.ceil(alpha * above)
    rest = max(3, math.ceil(sum(between) / alpha))
    first = math.floor(alpha * (rest + sum(between))) - between[0]
    around = [(first, *between, rest + sum(between) - first - sum(between))]
    yield from (tuple(counts) for counts in all_counts(4, 2))
    for counts in around:
        for change in itertools.product((-1, 0, 1), repeat=4):
            yield tuple(max(0, n + by) for n, by in zip(counts, change, strict=True))


def largest_loss(query, alpha, relation):
    """The largest log-ratio of the joint law of the three draws, over neighbours, and the largest Rényi divergence."""
    laws = {}

    def law(counts):
        if counts not in laws:
            laws[counts] = [np.log(each) for each in laws_of(query, counts)]
        return laws[counts]

    worst, renyi = 0, 0
    for counts in list(near_data_sets(query, alpha)):
        for other in neighbours(counts, relation):
            pairs = list(zip(law(counts), law(other), strict=True))
            for p, q in ((0, 1), (1, 0)):
                ratios = [pair[p] - pair[q] for pair in pairs]
                # The three are independent: the largest of the sum is the sum of the largest.
                worst = max(worst, sum(each.max() for each in ratios))
                for order in (1.0001, 2, 9, 50):
                    found = sum(
                        np.log(np.exp(order * pair[p] + (1 - order) * pair[q]).sum()) / (order - 1) for pair in pairs
                    )
                    renyi = max(renyi, found / order)
    return worst, renyi


def neighbours(counts, relation):
    for i in range(len(counts)):
        more = [*counts]
        more[i] += 1
        if relation == "add_or_remove_one":
            yield tuple(more)
            continue
        for j in range(len(counts)):
            if j != i and counts[j]:
                moved = [*more]
                moved[j] -= 1
                yield tuple(moved)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [{"epsilon": 3}, {"rho": 1}], ids=str)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(2, 3)])
def test_no_neighbours_are_told_apart_by_more_than_the_loss(alpha, relation, loss):
    for mechanism in MECHANISMS:
        query = asked(alpha, 4, groups=1, relation=relation, mechanism=mechanism, **loss)
        assert query.claim._draws == 3
        assert query.claim.loss.value == next(iter(loss.values()))
        ratio, divergence = largest_loss(query, alpha, relation)
        claimed = {unit: float(query.claim.cost(unit)) for unit in ("epsilon", "rho")}
        assert ratio <= claimed["epsilon"] * (1 + 1e-9), (mechanism, ratio, claimed)
        assert divergence <= claimed["rho"] * (1 + 1e-9), (mechanism, divergence, claimed)
        assert divergence >= 0.3 * claimed["rho"], (mechanism, divergence, claimed)
        if "epsilon" in loss:  # ends that are not paid for are found out
            unpaid = replace(query)
            unpaid.__dict__["claim"] = replace(query.claim, _draws=1)
            assert largest_loss(unpaid, alpha, relation)[0] > 1.2 * claimed["epsilon"]


# --- Their law --------------------------------------------------------------------------------------------------------

DRAWS, COUNTS = 30_000, (3, 0, 2, 4)


@pytest.mark.parametrize(("loss", "mechanism"), [("epsilon", "permute_and_flip"), ("rho", "exponential")])
def test_the_answer_and_its_ends_have_the_exact_joint_law(loss, mechanism):
    """The ends are the least and the greatest of three independent draws, and the answer is one of these as it was."""

    def ask(factor):
        value = 9 * factor if loss == "epsilon" else 2 * factor**2
        return X.dp.quantile(0.75, range(4), confidence=0.6, **{loss: value})

    rows = pl.DataFrame({"g": np.repeat(np.arange(DRAWS), sum(COUNTS)), "x": list(np.repeat(range(4), COUNTS)) * DRAWS})
    private = rows.lazy().dp.protect(None).group_by({"g": range(DRAWS)})
    query = private.agg(m=ask(Fraction(1)))._asks[0].query
    assert query.claim.mechanism == mechanism
    law = np.zeros((4, 4, 4))
    for codes in itertools.product(range(4), repeat=3):
        one, two, three_ = (own[code] for own, code in zip(laws_of(query, COUNTS), codes, strict=True))
        law[codes[0], min(codes), max(codes)] += one * two * three_
    possible = np.flatnonzero(law.ravel() > 0)

    def draw(factor):
        found = private.agg(m=ask(factor)).release()
        cells = np.ravel_multi_index([found[name].to_numpy() for name in ("m", "m_low", "m_high")], law.shape)
        assert np.isin(cells, possible).all(), "an answer that does not lie between its ends"
        return np.searchsorted(possible, cells)

    check_sampler(draw, law.ravel()[possible] / law.sum(), controls=(Fraction(1, 2), Fraction(3, 2)))


# --- As users meet them -----------------------------------------------------------------------------------------------

DAYS = [dt.date(2020, 1, 1) + dt.timedelta(i) for i in range(60)]
FRAME = pl.DataFrame({"p": range(900), "g": ["a", "b", "b"] * 300, "x": [i % 60 for i in range(900)]})


def private(**options):
    return FRAME.dp.protect("p", max_groups=1, max_rows_per_group=1, **options)


def test_ends_are_columns_of_every_release_in_the_columns_own_unit():
    frame = FRAME.with_columns(pl.Series("day", DAYS * 15))
    query = (
        frame.dp.protect("p", max_groups=1, max_rows_per_group=1)
        .group_by({"g": ["a", "b", "c"]})
        .agg(
            n=dpp.n_people(epsilon=1),
            day=pl.col("day").dp.median(dpp.grid(DAYS[0], DAYS[-1], step="1d"), confidence=0.95, epsilon=8),
            part=dpp.quantile(X / 4, 0.25, dpp.grid(0, 15, step=0.25), confidence=0.9, rho=3),
        )
    )
    for intervals in (False, True):
        released = query.release(intervals=intervals)
        of_numbers = ["n_low", "n_high"] * intervals
        assert released.columns == [
            "g",
            "n",
            *of_numbers,
            "day",
            "day_low",
            "day_high",
            "part",
            "part_low",
            "part_high",
        ]
        assert released.dtypes[-6:] == [pl.Date] * 3 + [pl.Float64] * 3
        for name in ("day", "part"):
            assert (released[f"{name}_low"] <= released[name]).all()
            assert (released[name] <= released[f"{name}_high"]).all()
    # Nobody is in the last group: its ends are those of the candidates.
    sure = private().group_by({"g": ["c"]}).agg(m=X.dp.median(range(60), confidence=0.95, epsilon=10_000)).release()
    assert sure.row(0)[2:] == (0, 59)
    # At a large loss all three are the true quantile; an end is shifted by less than a row.
    sure = private().agg(m=X.dp.quantile(0.51, range(60), confidence=0.95, epsilon=10_000))
    assert sure.release().row(0) == (30, 30, 30)


def test_an_interval_costs_what_was_asked_for_and_each_draw_a_third():
    def asked(epsilon, **more):
        return private().agg(m=X.dp.median(range(60), epsilon=epsilon, **more))

    with_ends, alone, third = asked(Fraction(3, 2), confidence=0.95), asked(Fraction(3, 2)), asked(Fraction(1, 2))
    assert with_ends.loss == alone.loss
    assert with_ends._asks[0].query.claim.rate == third._asks[0].query.claim.rate
    explained = with_ends.explain().row(0, named=True)
    assert explained["error_95"] == third.explain()["error_95"].item()
    assert f"{alone.explain()['error_95'].item():.3g} without the interval" in explained["note"]
    assert "hold it with probability 0.95" in explained["selects"]
    budget = dpp.Budget(epsilon=2)
    dpp.protect(None, budget=budget).agg(X.dp.median(range(60), confidence=0.95, epsilon=1.5)).release(FRAME)
    assert float(budget.spent) == 1.5


def test_a_simulation_has_the_law_of_the_answer():
    rows = FRAME.lazy()
    with_ends = dpp.protect(None).agg(m=X.dp.median(range(60), confidence=0.95, epsilon=Fraction(3, 10)))
    third = dpp.protect(None).agg(m=X.dp.median(range(60), epsilon=Fraction(1, 10)))
    names = ["true_answer", "probability_true", "expected_error", "answer_5", "answer_95"]
    one, other = (dpp.analysis.simulate(query, rows).select(names) for query in (with_ends, third))
    assert one.equals(other)


def test_answers_with_and_without_an_interval_are_cached_apart(tmp_path):
    budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger")
    frame = private(budget=budget, dataset="visits")
    queries = [
        frame.agg(m=X.dp.median(range(60), epsilon=1, **more))
        for more in ({}, {"confidence": 0.95}, {"confidence": 0.9}, {"confidence": Fraction(19, 20)})
    ]
    first = [query.release() for query in queries]
    again = [query.release() for query in queries]
    assert budget.log().height == 3  # 19/20 is 0.95
    assert all(one.equals(other) for one, other in zip(first, again, strict=True))
    assert first[1].equals(first[3])


def test_a_file_has_the_ends(tmp_path):
    query = private().agg(m=X.dp.median(range(60), confidence=0.95, epsilon=1))
    query.sink_parquet(tmp_path / "m.parquet")
    assert pl.read_parquet(tmp_path / "m.parquet").columns == ["m", "m_low", "m_high"]
    assert "hold it with probability 0.95" in dpp.read_claim(tmp_path / "m.parquet")["columns"]["m"]["selects"]


@pytest.mark.parametrize(
    ("interval", "error", "message"),
    [
        (0.5, ValueError, "strictly between 0.5 and 1, got 0.5"),
        (1, ValueError, "strictly between 0.5 and 1, got 1"),
        (math.nan, ValueError, "finite"),
        (True, TypeError, "confidence must be a number"),
        ("0.95", TypeError, "confidence must be a number"),
        (Fraction(10**4, 10**4 + 1), ValueError, "denominator of at most 10,000"),
    ],
)
def test_what_is_no_probability_is_refused(interval, error, message):
    with pytest.raises(error, match=message):
        X.dp.median(range(9), confidence=interval, epsilon=1)


def test_lists_have_no_interval():
    with pytest.raises(ValueError, match=r"confidence must be left out for a list[\s\S]*Hint: request each"):
        X.dp.quantile([0.25, 0.5], range(9), confidence=0.95, epsilon=1)


def test_plain_frames_have_no_column_for_the_ends():
    asked = X.dp.median(range(9), confidence=0.95, epsilon=1)
    for frame in (FRAME.lazy().select(asked), FRAME.lazy().group_by("g").agg(asked)):
        with pytest.raises(pl.exceptions.PolarsError, match=r"an interval must be used on a private frame[\s\S]*Hint"):
            frame.collect_schema()


def test_no_output_or_key_is_named_like_an_end():
    budget = dpp.Budget(epsilon=9)
    asked = X.dp.median(range(9), confidence=0.95, epsilon=1)
    by_key = private(budget=budget).rename({"g": "m_high"}).group_by({"m_high": ["a"]})
    for make in (lambda: private(budget=budget).agg(m=asked, m_low=dpp.len(epsilon=1)), lambda: by_key.agg(m=asked)):
        with pytest.raises(
            ValueError, match=r"must not be named like the ends of a confidence interval[\s\S]*Hint: rename them\."
        ):
            make()
    assert budget.spent == 0


def test_a_loss_for_which_the_ends_would_be_out_of_sight_is_refused():
    with pytest.raises(ValueError, match="larger loss than epsilon=1e-12"):
        private().agg(m=X.dp.median(range(9), confidence=0.95, epsilon=1e-12))
    query = asked(Fraction(1, 10_000), 10**6, epsilon=1e-6)
    assert max(query.public_rows) <= 2**40
    drawn = query.drawn([Histogram(np.array([7]), np.array([2**38]), np.array([1, 0, 0]))])
    assert [len(column) for column in drawn] == [3, 3, 3]
    assert replace(query.claim, _draws=1).rate > query.claim.rate


def test_hidden_groups_have_no_ends():
    asked = {"people": dpp.n_people(epsilon=1000), "m": X.dp.median(range(60), confidence=0.95, epsilon=1)}
    released = private().group_by({"g": ["a", "c"]}).agg(**asked).release(min_people=20)
    assert released["people"].to_list() == [300, 0]
    assert released.drop_nulls()["g"].to_list() == ["a"]
    assert released.row(1)[2:] == (None, None, None)
