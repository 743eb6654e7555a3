"""What is asked of top-k: claims, types, refusals, bounds of errors and notes."""

import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._statistics.measures import ValueCounts
from tests.helpers.reference import bounded_range_rho
from tests.helpers.top_k_laws import law_of, lists, missed
from tests.mechanisms.test_ranking import histogram_of
from tests.registry import COLUMNS, ENGINES, under

ADD, REPLACE = "add_or_remove_one", "replace_one"
X = pl.col("x")


def top(k=3, candidates=range(9), **given):
    return X.dp.top_k(k, candidates, **given).query


@pytest.mark.parametrize(
    ("query", "mechanism", "draws", "score_range", "rate"),
    [
        (top(epsilon=1), "permute_and_flip", 3, 1, Fraction(1, 3)),
        (top(epsilon=1, mechanism="exponential"), "exponential", 3, 1, Fraction(1, 3)),
        (top(epsilon=1, mechanism="joint"), "exponential", 1, 2, Fraction(1, 2)),
        (under(REPLACE, top(epsilon=1)), "permute_and_flip", 3, 2, Fraction(1, 6)),
        (under(REPLACE, top(epsilon=1, mechanism="joint")), "exponential", 1, 4, Fraction(1, 4)),
        (top(rho=3 * bounded_range_rho(2)), "exponential", 3, 1, 2),
        (top(rho=bounded_range_rho(2), mechanism="joint"), "exponential", 1, 2, 1),
        (top(epsilon=1, contributions=5), "permute_and_flip", 3, 1, Fraction(1, 15)),
        (top(5, epsilon=1), "exponential", 1, 2, Fraction(1, 2)),
        (top(4, epsilon=1), "permute_and_flip", 4, 1, Fraction(1, 4)),
        (top(9, rho=9 * bounded_range_rho(3)), "exponential", 9, 1, 3),
    ],
)
def test_the_draws_share_the_loss(query, mechanism, draws, score_range, rate):
    claim = query.claim
    assert (claim.mechanism, claim._draws, claim.score_range) == (mechanism, draws, score_range)
    assert float(claim.rate) == pytest.approx(float(rate), rel=1e-15)
    assert claim.cost(claim.loss.unit) == claim.loss.value


def test_bounds_of_a_frame_change_the_rate():
    spread = top(epsilon=1).under(Contributions(4, 1), REPLACE)
    assert spread.claim.rate == Fraction(1, 3 * 4 * 2)
    assert spread.claim.loss == top(epsilon=1).claim.loss
    assert top(epsilon=1, mechanism="joint").under(Contributions(4, 1), ADD).claim.rate == Fraction(1, 8)


@pytest.mark.parametrize("asked", [top(epsilon=1), X.dp.top_k(2, rho=1).query, top(9, epsilon=1)])
def test_it_is_a_frozen_value(asked):
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert hash(asked) == hash(dataclasses.replace(asked))
    with pytest.raises(dataclasses.FrozenInstanceError):
        asked.k = 2


@pytest.mark.parametrize("joint", [False, True])
def test_the_claim_is_of_the_draws_that_are_made(joint):
    claim = dataclasses.replace(top(epsilon=1), joint=joint, k=3).claim
    assert (claim._draws, claim.mechanism) == ((1, "exponential") if joint else (3, "permute_and_flip"))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("unit", "other"), [("epsilon", "rho"), ("rho", "epsilon")])
def test_in_another_unit_the_claim_is_as_if_it_was_requested_there(unit, other, relation):
    """One joint draw in epsilon, and rounds in rho: a row moves the scores of a list by twice as much."""
    there = under(relation, top(5, **{unit: 1})).in_unit(other)
    assert there == under(relation, top(5, **{other: 1}))
    assert there.claim.score_range == there.range_of(relation)
    private = dpp.protect(None, neighboring_relation=relation)
    scaled, asked = (private.agg(X.dp.top_k(5, range(9), **{of: 1})) for of in (unit, other))
    guarantee = {"epsilon": 1, "delta": 1e-6}
    assert scaled.scaled_to(**guarantee)._asks[0].query == asked.scaled_to(**guarantee)._asks[0].query


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        *(({"k": k}, ValueError, "k must be at ") for k in (0, -1, 10, 2**70)),
        *(({"k": k}, TypeError, "k must be an integer") for k in (True, 1.0, "3", None)),
        *(({"counts": word}, ValueError, "counts must be 'people', 'rows' or") for word in ("laplace", 3, None)),
        ({"mechanism": "discrete_laplace"}, ValueError, "mechanism must be one of .*'joint'"),
    ],
)
def test_what_is_refused_at_once(asked, error, words):
    with pytest.raises(error, match=words):
        top(epsilon=1, **asked)


def test_what_only_the_type_tells_is_refused_when_the_schema_is_resolved():
    frame = pl.DataFrame({"x": [True, False]}).lazy()
    with pytest.raises(pl.exceptions.ComputeError, match="at most the number of candidates, 2, got 3"):
        frame.select(X.dp.top_k(3, epsilon=1)).collect_schema()
    with pytest.raises(ValueError, match="Output 'x': k must be at most the number of candidates, 2, got 3"):
        frame.collect().dp.protect(None).agg(X.dp.top_k(3, epsilon=1)).release()
    assert frame.select(X.dp.top_k(2, epsilon=1)).collect_schema() == {"x": pl.List(pl.Boolean)}


@pytest.mark.parametrize("mechanism", [None, "joint"])
@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if column.categories])
def test_lists_of_every_type(name, mechanism):
    column = COLUMNS[name]
    known = column.categories
    values = pl.Series("x", [*[known[0]] * 3, *column.values, None], dtype=column.dtype)
    frame = pl.DataFrame({"g": [1] * len(values), "x": values})
    expr = X.dp.top_k(len(known), known, epsilon=10**7, mechanism=mechanism)
    out = pl.List(pl.String() if isinstance(column.dtype, pl.Categorical) else column.dtype)
    answers = [frame.lazy().group_by("g").agg(expr).collect(engine=engine)["x"] for engine in ENGINES]
    answers.append(frame.dp.protect(None).group_by({"g": [1]}).agg(expr).release()["x"])
    answers.append(frame.select(expr)["x"])
    answers.append(frame.select((pl.col("x").filter(pl.lit(True))).dp.top_k(len(known), known, epsilon=10**7))["x"])
    for answer in answers:
        assert answer.dtype == out
        assert answer.item()[0] == known[0]
        assert sorted(map(str, answer.item())) == sorted(map(str, pl.Series(known)))
    assert frame.clear().group_by("g").agg(expr).schema["x"] == out


def test_too_few_rows_are_no_error():
    frame = pl.DataFrame({"g": [1, 2], "x": [None, "b"]})
    asked = X.dp.top_k(3, ["a", "b", "c"], epsilon=50)
    answers = frame.dp.protect(None).group_by({"g": [1, 2, 3]}).agg(asked).release()["x"].to_list()
    assert [sorted(answer) for answer in answers] == [["a", "b", "c"]] * 3
    assert answers[1][0] == "b"


@pytest.mark.parametrize("beta", [0.05, 0.4])
@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential", "joint"])
@pytest.mark.parametrize("counts", [[9, 7, 4, 2, 1], [9, 0, 0, 0, 0], [20, 20, 19, 0, 0], [0] * 5, [30, 20, 10, 0, 0]])
def test_the_bound_holds_for_all_lists(counts, mechanism, beta):
    for k in range(1, 6):
        for epsilon in (Fraction(1, 2), Fraction(3)):
            asked = top(k, range(5), epsilon=epsilon, mechanism=mechanism)
            bound = asked.error(5, beta)
            law = law_of(counts, k, asked.claim.rate, mechanism)
            beyond = sum(p for p, chosen in zip(law, lists(5, k), strict=True) if missed(counts, chosen) >= bound)
            assert beyond <= beta * (1 + 1e-9) or bound == 0


def test_one_candidate_has_no_error():
    assert top(1, [7], epsilon=1).error(1, 0.05) == 0
    assert top(1, [7], epsilon=1, mechanism="joint").error(1, 0.05) == 0
    assert math.isfinite(top(9, epsilon=1).error(10**7, 0.05))


@pytest.mark.parametrize("mechanism", [None, "joint"])
def test_true_lists_and_what_a_list_misses(mechanism):
    asked = top(3, range(6), epsilon=1, mechanism=mechanism)
    counts = np.random.default_rng(0).integers(0, 4, (50, 6))
    histogram = histogram_of(counts)
    true = asked.true_codes(histogram)
    assert true.tolist() == np.argsort(-counts, axis=1, kind="stable")[:, :3].tolist()
    codes = asked.draw_codes(histogram)
    found = asked.mistakes(codes, histogram)
    expected = [missed(one, chosen) for one, chosen in zip(counts.tolist(), codes.tolist(), strict=True)]
    assert found.wrong.tolist() == expected
    assert found.right.tolist() == [n == 0 for n in expected]
    assert asked.mistakes(true, histogram).right.all()
    nobody = Histogram(*(np.empty(0, np.int64),) * 2, np.zeros(2, np.int64))
    assert asked.mistakes(asked.draw_codes(nobody), nobody).right.all()


def test_simulated_errors_are_those_of_the_law():
    counts, k = [9, 7, 4, 2, 1], 2
    frame = pl.DataFrame({"x": np.repeat(np.arange(5), counts)})
    for mechanism in ("permute_and_flip", "joint"):
        expr = X.dp.top_k(k, range(5), epsilon=1, mechanism=mechanism)
        (row,) = dpp.analysis.simulate(expr, frame).to_dicts()
        law = law_of(counts, k, expr.query.claim.rate, mechanism)
        errors = [missed(counts, chosen) for chosen in lists(5, k)]
        mean = sum(p * e for p, e in zip(law, errors, strict=True))
        spread = math.sqrt(sum(p * (e - mean) ** 2 for p, e in zip(law, errors, strict=True)) / 200)
        assert abs(row["expected_error"] - mean) < 7 * spread
        right = sum(p for p, e in zip(law, errors, strict=True) if e == 0)
        assert abs(row["probability_true"] - right) < 7 * math.sqrt(right * (1 - right) / 200)
        assert row["true_answer"] == [0, 1]
        assert (row["counted"], row["left_out"], row["error_unit"], row["ordered"]) == (23, 0, "rows", False)


def frame_of_people():
    return pl.DataFrame({"who": range(20), "x": ["a"] * 20}, schema={"who": pl.Int64, "x": pl.Enum(list("abcdefgh"))})


def note(k, *, given=None, protect=None, **asked):
    private = frame_of_people().dp.protect("who", **(protect or {}))
    (explained,) = private.agg(X.dp.top_k(k, given, **(asked or {"epsilon": 1}))).explain().to_dicts()
    own, _, _ = explained["note"].partition(" The release costs ")
    return own.removesuffix("No row is dropped. The error is that of the noise alone.").rstrip()


def test_explain_says_which_mechanism_was_chosen_and_why():
    assert note(3) == (
        "Rounds, for k < 5: on evenly spread counts the error is about 6 by a joint draw, 5.5 in rounds."
    )
    assert note(6).startswith("One joint draw, for k >= 5: ")
    assert "about 12 by a joint draw, 14.7 in rounds" in note(6)
    assert note(6, epsilon=1, mechanism="permute_and_flip") == ""
    assert note(6, rho=1) == ""


def test_explain_names_value_counts_where_they_are_better():
    for bound in ({"max_rows_per_group": 1}, {"max_rows": 1}, {"max_rows": 2}):
        most = next(iter(bound.values()))
        found = note(6, protect=bound, epsilon=1, mechanism="permute_and_flip")
        assert found.startswith(f"Better: value_counts, sorted. One person counts for at most {most} of the candidates")
    assert note(6, protect={"max_rows_per_group": 1}, rho=0.05).startswith("Better: value_counts")
    # Not where a person may count for any number of candidates, or for as many as are drawn.
    for protect in ({}, {"max_rows_per_group": 8}):
        assert note(3, protect=protect, epsilon=1, mechanism="permute_and_flip") == ""
    assert note(1, protect={"max_rows_per_group": 1}, epsilon=1, mechanism="permute_and_flip") == ""


def test_an_error_of_ranked_counts_is_as_stated():
    counts, asked = np.array([40, 30, 20, 9, 9, 9, 0, 0]), top(3, range(8), epsilon=1, mechanism="permute_and_flip")
    text = asked.note(8, asked.alternative())
    bound = float(text.split("error_95 of ")[1].rstrip("."))
    claim = asked.alternative().claim
    assert claim.cost("epsilon") == 1
    noisy = counts + dpp.mechanisms.discrete_laplace(np.zeros((20_000, 8), int), epsilon=claim.rate, sensitivity=1)
    drawn = np.argsort(-noisy, axis=1, kind="stable")[:, :3]
    beyond = ((counts[:3] - counts[drawn]).max(axis=1) > bound).mean()
    assert beyond < 0.05


def test_the_alternative_has_the_same_loss_and_bounds():
    for mechanism in ("permute_and_flip", "joint"):
        asked = under(REPLACE, top(3, epsilon=1, mechanism=mechanism))
        other = asked.alternative()
        assert isinstance(other, ValueCounts)
        assert (other.claim.loss, other.claim._draws, other.claim.score_range) == (asked.claim.loss, 1, 2)
    assert X.dp.top_k(3, epsilon=1).query.alternative() is None
    assert X.dp.top_k(3, rho=1).query.alternative(pl.Enum(["a", "b", "c"])).claim.mechanism == "discrete_gaussian"


def test_an_expression_prints_its_note():
    text = str(X.dp.top_k(6, range(9), epsilon=1))
    assert "selects:   top 6 of 9 candidates, jointly" in text
    assert "note:      Better: value_counts, sorted. One person counts for at most 1 of" in text
    assert " One joint draw, for k >= 5: " in text
    assert "in each of 2 draws" in str(X.dp.top_k(2, rho=1))
    assert "note" not in str(X.dp.mode(range(9), epsilon=1))
