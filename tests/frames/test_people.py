"""Bounds that were released, and how many rows bounds leave out, as a user asks for it."""

import pickle
from collections import Counter
from fractions import Fraction

import hypothesis.strategies as st
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._bins.binning import OneCode
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._engines.polars.people import Cut
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.contract import HistogramSpec
from dp_polars._release.protection import Limits
from dp_polars._release.release import release_by
from dp_polars._release.request import only_counted
from dp_polars._statistics.statistic import CountRule
from tests.engines.toy import ToyEngine
from tests.helpers import by_hand
from tests.helpers.refusals import refusals
from tests.registry import ENGINES, RELATIONS

SURE = {"epsilon": 10_000}
WARDS = {"ward": ["A", "B", "C"]}
# Of 200 patients: one row in A; three in B, and one in C; every tenth has seven rows in each. And what counts nowhere.
ROWS = pl.DataFrame(
    [(p, "A", p % 3) for p in range(100)]
    + [(p, ward, 1) for p in range(100, 180) for ward in "BBBC"]
    + [(p, ward, p % 2) for p in range(180, 200) for ward in "ABC" * 7]
    + [(p, "elsewhere", 1) for p in range(200)] * 9
    + [(None, "A", 1)] * 500,
    {"patient": pl.Int64, "ward": pl.String, "days": pl.Int64},
    orient="row",
)


HINT = r"[\s\S]*Hint: "


def private(**more):
    return ROWS.dp.protect("patient", **more)


P = private()


def test_released_bounds_are_those_of_protect():
    budget = dpp.Budget(epsilon=10**6)
    found = pl.DataFrame({"max_groups": [3], "max_rows_per_group": [7]})
    for protect in (ROWS.dp.protect, dpp.protect):
        one = protect("patient", budget=budget).filter(pl.col("days") > 0).with_limits(**found.row(0, named=True))
        other = protect("patient", budget=budget).with_limits(**found.row(0, named=True)).filter(pl.col("days") > 0)
        bounded = protect("patient", max_groups=3, max_rows_per_group=7, budget=budget).filter(pl.col("days") > 0)
        for each in (one, other):
            assert each.protection == bounded.protection
            assert repr(each) == repr(bounded)
            query, expected = (part.group_by(WARDS).agg(dpp.len(epsilon=1)) for part in (each, bounded))
            assert repr(query) == repr(expected)
            assert_frame_equal(query.explain(), expected.explain())
    before = budget.spent
    private(budget=budget).with_limits(**found.row(0, named=True)).group_by(WARDS).agg(dpp.len(epsilon=1)).release()
    assert budget.spent == before + 1


HINT = r"[\s\S]*Hint: "


BOUNDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["max_rows", "max_groups", "max_rows_per_group", "max_norm"], st.integers(1, 4))
)
LISTED = [0, 1, 2]
X = pl.col("x")
ASKED = {
    "len": dpp.len(epsilon=1),
    "n_people": dpp.n_people(epsilon=1),
    "count": X.dp.count(epsilon=1),
    "mode": X.dp.mode([1, 2], epsilon=1),
    "heaviest": X.dp.mode([1, 2], counts=dpp.weights(X, max_weight=3), epsilon=1),
    "counts": X.dp.value_counts([2, 1, 0], epsilon=1),
}


# An output -> the code of a value.
CODES = {
    "len": lambda _: 0,
    "n_people": lambda _: 0,
    "count": lambda x: None if x is None else 0,
    "mode": lambda x: x if x in (1, 2) else None,
    "heaviest": lambda x: x if x in (1, 2) else None,
    "counts": lambda x: x if x in (0, 1, 2) else None,
}


def rows_scaled_away(rows, weight, *, of_people):
    """Return how many rows of each person do not count where all of them are weighted: rows (person, group, code)."""
    found = {}
    for person in {person for person, *_ in rows}:
        codes = {}
        for whose, group, code, *_ in rows:
            if whose == person:
                codes.setdefault(group, []).append(code)
        numbers = [len(set(of_group)) if of_people else len(of_group) for of_group in codes.values()]
        capped = [min(number, weight.cap or number) for number in numbers]
        assert weight.power == 1
        of_person = UNIT
        if weight.limit is not None and sum(capped) > weight.limit:
            of_person = UNIT * weight.limit // sum(capped)
        parts = sum(of_person * cap // number * number for cap, number in zip(capped, numbers, strict=True))
        found[person] = sum(numbers) - round(Fraction(parts, UNIT) + Fraction(1, 2**30))
    return found


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.integers(0, 4), st.sampled_from([None, *range(4)]))),
    bounds=BOUNDS,
    grouped=st.booleans(),
    names=st.lists(st.sampled_from(list(CODES)), min_size=1, unique=True),
    most=st.integers(1, 5),
    engine=st.sampled_from([*ENGINES, "toy"]),
)
def test_rows_that_are_cut_are_those_of_the_reference(rows, bounds, grouped, names, most, engine):
    frame = pl.DataFrame(rows, dict.fromkeys(["p", "k", "x"], pl.Int64), orient="row")
    protected = dpp.protect("p", **bounds)
    if not bounds.keys() & {"max_rows", "max_rows_per_group"}:
        unbounded = {"len", "count"} if "max_norm" not in bounds else set()
        names = [name for name in names if name not in unbounded] or ["mode"]
    asked = (protected.group_by({"k": LISTED}) if grouped else protected).agg(**{name: ASKED[name] for name in names})
    work, expected = asked._request.bind(PolarsEngine.of(frame.lazy())), Counter()
    for output in work.outputs:
        spec, code_of = work.specs[output.specs[0]], CODES[output.name]
        found = [
            (person, (key if grouped else 0,), code_of(x), 1)
            for person, key, x in rows
            if person is not None and (key in LISTED or not grouped) and code_of(x) is not None
        ]
        if spec.weight is not None:
            assert spec.limits == Limits()
            expected |= Counter(rows_scaled_away(found, spec.weight, of_people=spec.people))
        else:
            expected |= Counter(by_hand.rows_cut(found, spec.limits, spec.people))
    if not asked._request.drops():
        assert not expected.total()
        with pytest.raises(ValueError, match="n_rows_dropped: an output must be bounded"):
            asked.n_rows_dropped(most, **SURE)
        return
    query = asked.n_rows_dropped(most, **SURE)
    if engine == "toy":
        released = release_by(query._request, ToyEngine(frame.to_dicts(), dict(frame.schema)))
    else:
        released = query.release(frame, engine=engine)
    assert released.item() == sum(min(number, most) for number in expected.values())


def test_rows_that_are_cut_say_how_much_of_the_data_counts():
    # Nine tenths of the people have one row, the others eleven: more than half of all rows are theirs.
    people = [p for p in range(1000) for _ in range(1 if p % 10 else 11)]
    frame = pl.DataFrame({"p": people, "again": [p % 10 == 0 for p in people]})
    query = frame.dp.protect("p", max_rows=1).agg(share=dpp.share(pl.col("again"), **SURE), rows=dpp.len(**SURE))
    answers, cut = query.release(), query.n_rows_dropped(20, **SURE)
    assert answers["share"].item() == pytest.approx(0.1, abs=0.001)  # under the limit; of all rows, 0.55
    assert cut.release().item() == 1000 == frame.height - answers["rows"].item()
    for relation in RELATIONS:
        asked = dpp.protect("p", max_rows=1, neighboring_relation=relation).agg(dpp.len(epsilon=1))
        (ask,) = asked.n_rows_dropped(20, epsilon=Fraction(1, 2))._asks
        assert ask.query.claim.rate == Fraction(1, 40)
        assert ask.query.error_unit == "rows"
    for wrong in (0, -1, 1.5, None, True):
        with pytest.raises((TypeError, ValueError), match="per_person must be"):
            query.n_rows_dropped(wrong, epsilon=1)


def test_very_many_rows_of_a_person_are_clipped_and_overflow_nothing():
    counted = pl.LazyFrame({"code 0": [2**62, 3, 0], "person": [1, 1, 1]})
    limits = Limits(groups=1, rows_per_group=2**61)
    cut = Cut(HistogramSpec((), (), CountRule(OneCode()), limits, people=False), None, None)
    kept = (2**30 + 3 + 1) // 2
    assert counted.group_by("person").agg(cut.dropped(0).alias("n")).collect()["n"].item() == 2**30 + 3 - kept


def test_what_is_only_counted_may_be_of_any_type():
    asked = dpp.protect("patient", max_rows=4).group_by(WARDS).agg(dpp.count("days", epsilon=1), dpp.len(epsilon=1))
    assert only_counted(asked.n_rows_dropped(1, epsilon=1)._request) == only_counted(asked._request) == {"days"}


OF_NOBODY = dpp.protect(None).agg(dpp.len(epsilon=1))
OF_ROWS = private(max_rows=2).agg(dpp.len(epsilon=1))
CUT = OF_ROWS.n_rows_dropped(1, epsilon=1)
OF_PEOPLE, THREE = dpp.n_people(epsilon=1), X.dp.value_counts([1, 2, 3], epsilon=1)
ABOUT_COLUMNS = "n_rows_dropped must follow a query about columns, got a query for "
KEYS = private(max_groups=1).keys("ward", rho=1, delta=1e-6)


def test_what_n_rows_dropped_says_of_itself(tmp_path):
    budget = dpp.Budget(epsilon=3, path=tmp_path / "ledger.db")
    frame = private(budget=budget, dataset="visits", max_groups=2, max_rows_per_group=3)
    query = frame.group_by(WARDS).agg(dpp.len(epsilon=1)).n_rows_dropped(20, epsilon=Fraction(1, 2))
    (row,) = query.explain().to_dicts()
    assert (row["output"], row["epsilon"], row["error_unit"]) == ("n_rows_dropped", 0.5, "rows")
    assert (row["candidates"], row["groups"], row["score_range"], row["rate"]) == (1, 1, 20, 0.025)
    assert row["note"].startswith("No row is dropped. The error is that of the noise alone.")
    first = query.release(intervals=True)
    assert first.columns == ["n_rows_dropped", "n_rows_dropped_low", "n_rows_dropped_high"]
    assert first.dtypes == [pl.Int64] * 3
    assert_frame_equal(query.release(intervals=True), first)  # it is kept
    assert budget.spent == Fraction(1, 2)
    other = private(budget=budget, dataset="visits", max_groups=2, max_rows_per_group=2)
    other.group_by(WARDS).agg(dpp.len(epsilon=1)).n_rows_dropped(20, epsilon=Fraction(1, 2)).release(intervals=True)
    assert budget.spent == 1
    # Of an output at another loss the same rows are cut, so this is the same query.
    frame.group_by(WARDS).agg(dpp.len(epsilon=2)).n_rows_dropped(20, epsilon=Fraction(1, 2)).release(intervals=True)
    assert budget.spent == 1
    (simulated,) = dpp.analysis.simulate(query, ROWS, allow_private=True).to_dicts()
    assert (simulated["true_answer"], simulated["counted"], simulated["left_out"]) == (300, 20, 0)
    query.sink_parquet(tmp_path / "cut.parquet")
    claim = dpp.read_claim(tmp_path / "cut.parquet")
    assert claim["columns"]["n_rows_dropped"]["loss"] == {"unit": "epsilon", "value": 0.5, "exact": "1/2"}


def test_n_rows_dropped_is_asked_before_the_rows_are_there():
    made = dpp.protect("patient", max_rows=4).with_columns(pl.col("days") + 1).group_by(WARDS)
    query = pickle.loads(pickle.dumps(made.agg(dpp.sum("days", 0, 9, epsilon=1)).n_rows_dropped(1, **SURE)))
    assert query.release(ROWS).item() == 20
    with pytest.raises(ValueError, match="the frame must have the privacy unit 'patient'"):
        query.release(ROWS.drop("patient"))
    of_texts = dpp.protect("patient", max_rows=4).agg(dpp.sum("ward", 0, 9, epsilon=1)).n_rows_dropped(1, **SURE)
    with pytest.raises(TypeError, match="Output 'ward'"):
        of_texts.release(ROWS)


@refusals(
    (lambda: P.agg(OF_PEOPLE).n_rows_dropped(1, epsilon=1), ValueError, "an output must be bounded, got none" + HINT),
    (lambda: private(max_rows=5).agg(OF_PEOPLE).n_rows_dropped(1, epsilon=1), ValueError, "nobody is cut"),
    # A person counts three times at most, whatever the bound.
    (lambda: dpp.protect("p", max_rows=3).agg(THREE).n_rows_dropped(1, epsilon=1), ValueError, "nobody is cut"),
    (lambda: OF_NOBODY.n_rows_dropped(1, epsilon=1), ValueError, "n_rows_dropped: there must be a privacy unit" + HINT),
    (lambda: KEYS.n_rows_dropped(1, epsilon=1), TypeError, ABOUT_COLUMNS + "keys" + HINT),
    (lambda: CUT.n_rows_dropped(1, epsilon=1), TypeError, ABOUT_COLUMNS + "n_rows_dropped"),
    (
        lambda: OF_ROWS.n_rows_dropped(1, epsilon=1, rho=1),
        TypeError,
        "at most one of .* must be given, got epsilon and",
    ),
    (lambda: OF_ROWS.n_rows_dropped(1, epsilon=1, mechanism="exponential"), ValueError, "mechanism must be"),
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def noting(read):
    """The rows as a stream that notes when they are read."""
    table = ROWS.to_arrow()

    def batches():
        read.append(True)
        yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def test_a_budget_that_has_too_little_left_is_not_charged():
    budget, read = dpp.Budget(epsilon=1), []
    query = dpp.protect("patient", budget=budget, max_rows=2).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1.5)
    with pytest.raises(dpp.BudgetExceededError):
        query.release(noting(read))
    assert (budget.spent, read) == (0, [])
