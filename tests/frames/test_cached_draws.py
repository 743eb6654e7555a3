"""A later query is free if it follows from draws of a cached answer: from the same ones, and never less exact."""

import itertools
import logging
import re
import sqlite3
from contextlib import closing, nullcontext
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._accounting import ledger
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.cached_draws import QueryTexts
from dp_polars._release.release import prepare
from dp_polars._statistics.averages import Variance
from dp_polars._statistics.of_shared_draws import Bernstein
from dp_polars._statistics.stored_sums import Answered, Stored, Texts, drawn_sums, from_stored
from tests.helpers.noised import record
from tests.registry import RELATIONS
from tests.statistics.test_sum_pairs import of_variance

ROWS = pl.DataFrame(
    {
        "p": [i // 2 for i in range(400)],
        "ward": ["A", "B"] * 200,
        "x": [i % 50 for i in range(400)],
        "y": [i % 7 / 4 for i in range(400)],
        "is": [i % 3 == 0 for i in range(400)],
    }
)
WARDS = {"ward": ["A", "B", "C"]}
X, Y = pl.col("x"), pl.col("y")
LIMITS = {"max_rows": 2}
UNITS = ["epsilon", "rho"]


def asked(budget, table=ROWS, *, steps=lambda frame: frame, keys=WARDS, dataset="visits", protect=LIMITS, **outputs):
    frame = steps(table.dp.protect("p", budget=budget, dataset=dataset, **protect))
    return frame.group_by(keys).agg(**outputs)


def kinds(low=0, high=50, **loss):
    return {
        "people": dpp.n_people(**loss),
        "rows": dpp.count(X, **loss),
        "total": X.dp.sum(low, high, **loss),
        "mean": X.dp.mean(low, high, **loss),
        "spread": X.dp.std(low, high, **loss),
        "capped": X.dp.sum(0, 50, per_person=(0, 60), **loss),
        "nulls": X.dp.null_count(**loss),
        "counts": X.dp.value_counts([1, 2], **loss),
        "of_y": Y.dp.mean(0, 2, step=0.25, **loss),
        "true": dpp.share("is", **loss),
    }


@pytest.fixture
def whole(tmp_path):
    return dpp.Budget(epsilon=100, delta=1e-6, path=tmp_path / "whole.db")


def charges(budget):
    return budget.log().height


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("bounds", [(0, 50), (-10, 50), (-50, 50), (20, 40)], ids=str)
def test_some_of_the_outputs_are_free(whole, unit, relation, bounds, caplog):
    """Each of them, two, and all but one: the same numbers with the same intervals, and nothing is charged."""
    loss = {unit: Fraction(1, 4)}
    protect = {"max_rows": 2, "neighboring_relation": relation}
    outputs = kinds(*bounds, **loss)
    first = asked(whole, protect=protect, **outputs).release(intervals=True)
    before, names = charges(whole), list(outputs)
    caplog.set_level(logging.INFO, "dp_polars")
    for some in (*itertools.combinations(names, 1), *itertools.pairwise(names), names[1:]):
        caplog.clear()
        query = asked(whole, protect=protect, **{name: outputs[name] for name in some})
        found = query.release(intervals=True)
        assert_frame_equal(found, first.select(found.columns))
        assert re.search("of .* follows from what was drawn on .* nothing is charged", caplog.text), some
        assert found.width > len(some)
    assert charges(whole) == before
    assert whole.answers().height == 1


def test_nothing_is_drawn_and_no_row_is_read(whole, tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    ROWS.write_parquet(path)
    rows = pl.scan_parquet(path, schema=ROWS.schema)
    first = asked(whole, rows, **kinds(epsilon=1)).release()
    query = asked(whole, rows, mean=X.dp.mean(0, 50, epsilon=1))
    noised = record(monkeypatch)
    ROWS.clear().write_parquet(path)
    with pytest.warns(dpp.CachedAnswerWarning, match="follows from draws of .*, and nothing is charged"):
        assert_frame_equal(query.release(), first.select("ward", "mean"))
    assert noised == []


def test_other_rows_in_memory_are_refused(whole):
    asked(whole, **kinds(epsilon=1)).release()
    query = asked(whole, ROWS.with_columns(x=X + 1), mean=X.dp.mean(0, 50, epsilon=1))
    with pytest.raises(ValueError, match="must have the same rows"):
        query.release()


def test_what_follows_from_other_statistics_is_free(whole):
    asked(whole, spread=X.dp.var(0, 50, epsilon=3)).release()
    before = charges(whole)
    for free in (
        {"mean": X.dp.mean(0, 50, epsilon=1)},
        {"rows": dpp.count(X, epsilon=1)},
        {"spread": X.dp.std(0, 50, epsilon=Fraction(5, 2))},
        {"total": X.dp.sum(0, 50, epsilon=1)},
    ):
        asked(whole, **free).release(intervals="all")
    assert charges(whole) == before
    asked(whole, total=X.dp.sum(0, 50, epsilon=Fraction(101, 100))).release()
    assert charges(whole) == before + 1


def test_what_follows_from_three_sums_is_free(whole):
    """Each statistic with a part of the loss at which it would be no more exact alone."""
    asked(whole, mean=X.dp.mean(0, 50, epsilon=2), spread=X.dp.var(0, 50, epsilon=1)).release()
    before = charges(whole)
    for free in (
        {"mean": X.dp.mean(0, 50, epsilon=Fraction(8, 3))},
        {"rows": dpp.count(X, epsilon=1)},
        {"spread": X.dp.std(0, 50, epsilon=Fraction(8, 3))},
        {"total": X.dp.sum(0, 50, epsilon=2)},
        {"spread": X.dp.var(0, 50, epsilon=1), "mean": X.dp.mean(0, 50, epsilon=1), "rows": dpp.count(X, epsilon=1)},
    ):
        asked(whole, **free).release(intervals="all")
    assert charges(whole) == before
    for dear in ({"rows": X.dp.count(epsilon=1.1)}, {"mean": X.dp.mean(0, 50, epsilon=2.7)}):
        asked(whole, **dear).release()
        before += 1
        assert charges(whole) == before


def test_a_number_of_all_rows_follows_from_a_pair(whole):
    """If columns publicly have a value in every row."""
    steps = {"steps": lambda frame: frame.drop_nulls().drop_nans()}
    found = asked(whole, mean=X.dp.mean(0, 50, epsilon=1), rows=dpp.len(epsilon=1), **steps).release(intervals=True)
    asked(whole, mean=Y.dp.mean(0, 1, step=1, epsilon=1), **steps).release()
    before = charges(whole)
    rows = asked(whole, rows=dpp.len(epsilon=1), **steps).release(intervals=True)
    assert_frame_equal(rows, found.select(rows.columns))
    rows = asked(whole, rows=dpp.count(Y, epsilon=1), **steps).release(intervals=True)
    assert_frame_equal(rows, found.select(rows.columns))
    assert charges(whole) == before
    asked(whole, rows=dpp.count(Y, epsilon=1)).release()
    assert charges(whole) == before + 1


LATER = {
    "a larger loss": {"mean": X.dp.mean(0, 50, epsilon=Fraction(5, 2))},
    "other bounds": {"mean": X.dp.mean(0, 51, epsilon=1)},
    "another step": {"mean": X.dp.mean(0, 50, step=2, epsilon=1)},
    "another column": {"mean": pl.col("p").dp.mean(0, 50, epsilon=1)},
    "another unit": {"mean": X.dp.mean(0, 50, rho=0.01)},
    "another mechanism": {"total": X.dp.sum(0, 50, mechanism="discrete_gaussian", rho=0.01)},
    "a condition": {"mean": X.filter(Y > 1).dp.mean(0, 50, epsilon=1)},
    "another expression": {"mean": (X + 1).dp.mean(0, 50, epsilon=1)},
    "other rows": {"rows": dpp.len(epsilon=1)},
    "where it is true": {"rows": dpp.len(where="is", epsilon=1)},
    "other groups": {"keys": {"ward": ["A", "B"]}},
    "groups in another order": {"keys": {"ward": ["A", "C", "B"]}},
    "other limits": {"protect": {"max_rows": 1}},
    "another limit": {"protect": {"max_norm": 2}},
    "a filter": {"steps": lambda frame: frame.filter(X > 0)},
    "another column of that name": {"steps": lambda frame: frame.with_columns(x=X + 1)},
    "another data set": {"dataset": "others"},
    "one more statistic": {"mean": X.dp.mean(0, 50, epsilon=1), "top": X.dp.mode(range(50), epsilon=1)},
}  # fmt: skip


@pytest.mark.parametrize("case", LATER)
def test_other_sums_are_drawn_and_charged(whole, case):
    first = {
        "rows": dpp.count(X, epsilon=1),
        "mean": X.dp.mean(0, 50, epsilon=1),
        "of_true": dpp.count("is", epsilon=1),
    }
    asked(whole, **first).release()
    before = charges(whole)
    asked(whole, mean=first["mean"]).release()
    assert charges(whole) == before
    given = {"mean": first["mean"]} if {"keys", "protect", "steps", "dataset"} & LATER[case].keys() else {}
    asked(whole, **given | LATER[case]).release()
    assert charges(whole) > before


def test_other_types_are_other_sums(whole, tmp_path):
    path = tmp_path / "rows.parquet"
    for dtype, is_new in ((pl.Int64, True), (pl.Float64, True), (pl.Int64, False)):
        rows = ROWS.with_columns(X.cast(dtype))
        rows.write_parquet(path)
        before = charges(whole)
        query = asked(whole, pl.scan_parquet(path), mean=X.dp.mean(0, 50, epsilon=1), rest=dpp.len(epsilon=1))
        if is_new:
            query.release()
        with nullcontext() if is_new else pytest.warns(dpp.CachedAnswerWarning):
            asked(whole, pl.scan_parquet(path), mean=X.dp.mean(0, 50, epsilon=1)).release()
        assert charges(whole) == before + 2 * is_new


def test_a_new_draw_is_made_if_it_is_wanted(whole):
    report = kinds(epsilon=1)
    asked(whole, **report).release()
    before = charges(whole)
    asked(whole, mean=report["mean"]).release(ignore_cache=True)
    assert charges(whole) == before + 1
    # The newest is taken.
    newest = asked(whole, mean=report["mean"]).release()
    assert_frame_equal(asked(whole, m=X.dp.mean(0, 50, epsilon=Fraction(1, 2))).release(), newest.rename({"mean": "m"}))
    assert charges(whole) == before + 1


def test_what_says_its_loss_is_drawn_with_it(whole, tmp_path):
    """A file and a publication state what their answers cost, and stored draws may have a larger loss."""
    asked(whole, **kinds(epsilon=1)).release()
    before = charges(whole)
    query = asked(whole, mean=X.dp.mean(0, 50, epsilon=Fraction(1, 2)))
    query.sink_parquet(tmp_path / "mean.parquet")
    assert charges(whole) == before + 1
    published = asked(whole, mean=X.dp.mean(0, 50, epsilon=Fraction(1, 3)))
    dpp.publication(means=published).release()
    assert charges(whole) == before + 2


EDITS = [
    "UPDATE draws SET claim = replace(claim, '1', '2')", "UPDATE draws SET place = 1 - place",
    "UPDATE draws SET what = 'another'", "UPDATE draws SET answer = 2", "UPDATE draws SET key = digest_of('another')",
    "UPDATE draws SET id = 99 WHERE id = 1", "DROP INDEX draws_by_key", "DROP TABLE draws",
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_draw_that_was_changed_is_damage(whole, edit):
    asked(whole, **kinds(epsilon=1)).release()
    with closing(sqlite3.connect(whole._path)) as connection, connection:
        connection.create_function("digest_of", 1, ledger.digest_of_text)
        connection.execute(edit)
    with pytest.raises(ValueError, match=r"(?s)is damaged: .*Hint: a new ledger would"):
        dpp.Budget(epsilon=100, delta=1e-6, path=whole._path).answers()


@pytest.mark.parametrize("unit", UNITS)
def test_a_draw_of_another_rate_is_not_taken(unit):
    """Its claim is made again from what is stored, and intervals follow from that."""
    query = asked(None, dataset=None, **{name: kinds(**{unit: 1})[name] for name in ("rows", "mean", "total")})
    for part, output in zip(
        query._request.sharing(query._asks), prepare(query._request, query._public_engine)[0].outputs, strict=True
    ):
        texts = Texts("", "", output.types)
        sums = drawn_sums(output.query, texts) if part.name == "mean" else []
        for factor in (1, 2):
            stored = tuple(Stored(what, noise._replace(rate=noise.rate * factor), 0) for what, noise in sums)
            found = from_stored(part, texts, texts, 3, Answered(stored, ()))
            assert (found is not None) == (factor == 1 and part.name == "mean")


def test_draws_without_their_answer_are_no_answer(whole):
    asked(whole, **kinds(epsilon=1)).release()
    before = charges(whole)
    with closing(sqlite3.connect(whole._path)) as connection, connection:
        connection.execute("DELETE FROM answers")
    asked(whole, mean=X.dp.mean(0, 50, epsilon=1)).release()
    assert charges(whole) == before + 1


def spreads(query, *types):
    """The squared noise of an answer, in squared steps; of a mean times its rows at both ends and in the middle.

    Of a variance it is that of large groups, with different means and mean squares.
    """
    pairs = zip(query.noise(*types), query.bits_of_parts(*types), strict=True)
    scales = [float(1 / claim.rate) / 2**bits for claim, bits in pairs]
    if isinstance(query, Variance):
        places = itertools.product((-1, -0.6, 0, 0.3), (0, 0.3, 0.57, 0.8, 1))
        return [of_variance(query, mean, square, *types) for mean, square in places if mean**2 <= square]
    if hasattr(query, "coefficients"):
        by = map(float, query.coefficients(*types))
        return [sum((one * scale) ** 2 for one, scale in zip(by, scales, strict=True))]
    if len(scales) == 1:
        return [scales[0] ** 2]
    places = (0, 0.5, 1)
    if isinstance(query, Bernstein):
        per_row = float(query.changes(*types)[0])
        return [sum(((float(one) - v) * scales[0] / per_row) ** 2 for one in query.places) for v in places]
    steps = float(query.changes(*types)[0])
    return [(scales[0] / steps / 2) ** 2 + ((v - 0.5) * scales[1]) ** 2 for v in places]


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_answer_is_less_exact_than_planned(whole, monkeypatch, relation):
    """Losses and outputs at random: each error by exact variances, of what is stored and of what was planned.

    A statistic of the cached query at its own loss, or a smaller one, is as exact as it was there.
    """
    record(monkeypatch)
    random, served = np.random.default_rng(3), 0
    names = ["rows", "total", "mean", "spread"]
    for number in range(60):
        low, high = [(0, 50), (-10, 50), (-50, 50), (20, 40)][number % 4]
        unit = UNITS[number // 4 % 2]
        protect = {"max_rows": 2, "neighboring_relation": relation}

        def some(most, low=low, high=high, unit=unit):
            chosen = random.choice(names, random.integers(1, 3), replace=False)
            return {
                name: kinds(low, high, **{unit: Fraction(int(random.integers(1, most)), 10_000)})[name]
                for name in chosen
            }

        dataset = f"visits {number}"
        cached = some(60)
        asked(whole, dataset=dataset, protect=protect, **cached).release()
        query = asked(whole, dataset=dataset, protect=protect, **some(12))
        engine = PolarsEngine.of(query._source)
        work, _ = prepare(query._request, engine)
        found = QueryTexts.of(query._request, engine, work, engine.preprocessing()).answered(whole)
        for new, planned in zip(found.work.outputs, work.outputs, strict=True) if found else ():
            before = cached.get(new.name)
            if before is not None and before.query.claim.loss.value >= planned.query.claim.loss.value:
                continue
            served += 1
            errors, limits = spreads(new.query, *new.types), spreads(planned.query, *planned.types)
            assert all(one <= most * (1 + 1e-9) for one, most in zip(errors, limits, strict=True)), (new, planned)
    assert served > 15
