"""Bounds found privately, and how many people they cut, as a user asks for them."""

import pickle
from collections import Counter, defaultdict
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
from dp_polars._questions.question import CountRule
from dp_polars._release.contract import HistogramSpec
from dp_polars._release.protection import Limits
from dp_polars._release.release import release_by
from dp_polars._release.request import only_counted
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


@pytest.mark.parametrize("loss", [SURE, {"rho": 10_000}])
def test_bounds_are_found_in_one_release(engine, loss):
    found = private().bounds(WARDS, **loss).release(engine=engine)
    assert_frame_equal(found, pl.DataFrame({"max_groups": [3], "max_rows_per_group": [7]}))
    # Half of all are beyond one group, a tenth beyond three rows: with a share of 0.8, a tenth is above each bound.
    found = private().bounds(WARDS, 0.8, **loss).release(engine=engine)
    assert found.row(0) == (2, 3)
    assert private().bounds(WARDS, 0.4, **loss).release(engine=engine).row(0) == (2, 3)
    assert private().bounds(None, candidates=range(5, 50), **loss).release(engine=engine).row(0) == (30,)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_the_loss_of_bounds_is_shared_in_equal_parts(unit, relation):
    whole, half = Fraction(1, 7), Fraction(1, 14)
    both = dpp.protect("patient", neighboring_relation=relation).bounds(WARDS, 0.9, **{unit: whole})
    assert both.loss == dpp.Loss(whole, unit)
    each = [("max_groups", Fraction(19, 20), half), ("max_rows_per_group", Fraction(19, 20), half)]
    assert [(ask.name, ask.query.alpha, ask.query.claim.loss.value) for ask in both.asks] == each
    for keys, bounds, name in (
        (WARDS, {"max_groups": 3}, "max_rows_per_group"),
        (WARDS, {"max_rows_per_group": 3}, "max_groups"),
        (None, {}, "max_rows_per_group"),
    ):
        protected = dpp.protect("patient", neighboring_relation=relation, **bounds)
        (ask,) = protected.bounds(keys, 0.9, **{unit: whole}).asks
        assert (ask.name, ask.query.alpha, ask.query.claim.loss.value) == (name, Fraction(9, 10), whole)
    # The R of a quantile in one group.
    per_row = {"add_or_remove_one": 2 * 19, "replace_one": 2 * 20}
    assert {ask.query.claim.score_range for ask in both.asks} == {per_row[relation]}


def noting(read):
    """The rows as a stream that notes when they are read."""
    table = ROWS.to_arrow()

    def batches():
        read.append(True)
        yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def test_nothing_is_read_or_charged_before_bounds_are_released(tmp_path):
    budget, read = dpp.Budget(epsilon=1, path=tmp_path / "ledger.db"), []
    frame = dpp.protect("patient", budget=budget, dataset="visits")
    query = frame.bounds(WARDS, epsilon=Fraction(1, 4))
    query.explain()
    assert (read, budget.spent) == ([], 0)
    assert query.release(noting(read)).height == 1
    assert (read, budget.spent) == ([True], Fraction(1, 4))
    # A reader has no text, and is not read to be compared: nothing is kept of it, as of rows in memory.
    first = query.release(ROWS)
    assert_frame_equal(frame.bounds(WARDS, epsilon=Fraction(1, 4)).release(ROWS), first)
    assert (read, budget.spent) == ([True], Fraction(1, 2))
    told = [f"{name}: 0.975-quantile on 100 grid points" for name in ("max_groups", "max_rows_per_group")]
    assert budget.log()["what"].to_list() == told * 2
    frame.bounds(WARDS, 0.9, epsilon=Fraction(1, 4)).release(noting(read))
    assert budget.spent == Fraction(3, 4)


def test_explain_and_simulate_say_how_good_bounds_are():
    query = dpp.protect("patient").filter(pl.col("days") >= 0).bounds(WARDS, epsilon=1)
    explained = query.explain()
    assert explained["output"].to_list() == ["max_groups", "max_rows_per_group"]
    assert set(explained["error_unit"]) == {"people"}
    assert set(explained["epsilon"]) == {0.5}
    nothing = "No row is dropped. The error is that of the noise alone."
    clipped = "Values beyond the clipping bounds 1 and 100 count as the bound, which no confidence interval covers."
    assert [note.partition(" The release costs ")[0] for note in explained["note"]] == [f"{nothing} {clipped}"] * 2
    assert repr(query).startswith("<PrivateQuery: people in 3 public groups, one person per 'patient'")
    simulated = dpp.analysis.simulate(query, ROWS)
    assert simulated["true_answer"].to_list() == [3, 7]
    assert simulated["counted"].to_list() == [200, 200]


def test_a_quantile_of_rows_in_one_group(engine):
    def largest(alpha, keys, **more):
        query = private(**more).rows_per_person(alpha, range(1, 50), keys=keys, **SURE)
        assert query.asks[0].name == "rows_per_person"
        return query.release(engine=engine).item()

    assert [largest(alpha, WARDS) for alpha in (0.5, 0.51, 0.9, 0.91)] == [1, 3, 3, 7]
    assert [largest(alpha, {"ward": ["C"]}) for alpha in (0.8, 0.81)] == [1, 7]
    assert largest(0.99, WARDS, max_rows=1) == 7  # the bounds do nothing here
    assert private().rows_per_person(0.99, range(1, 50), **SURE).release().item() == 30


P = private()


def test_released_bounds_are_those_of_protect():
    budget = dpp.Budget(epsilon=10**6)
    found = private(budget=budget).bounds(WARDS, **SURE).release()
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


def cut(query, **more):
    return query.n_cut(**SURE).release(**more).item()


BOUNDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["max_rows", "max_groups", "max_rows_per_group"], st.integers(1, 4))
)
LISTED = [0, 1, 2]
# An output -> its evidence of a value; whether rows with the same group and code are one; whether only groups are
# bounded; and to what a sum of weights is clipped.
OUTPUTS = {
    "len": (lambda _: 0, False, False, None),
    "n_people": (lambda _: 0, True, True, None),
    "count": (lambda x: None if x is None else 0, False, False, None),
    "mode": (lambda x: x if x in (1, 2) else None, True, True, None),
    "heaviest": (lambda x: x if x in (1, 2) else None, True, True, 3),
    "counts": (lambda x: x if x in (0, 1, 2) else None, True, False, None),
}
X = pl.col("x")
ASKED = {
    "len": dpp.len(epsilon=1),
    "n_people": dpp.n_people(epsilon=1),
    "count": X.dp.count(epsilon=1),
    "mode": X.dp.mode([1, 2], epsilon=1),
    "heaviest": X.dp.mode([1, 2], weights=X, max_weight=3, epsilon=1),
    "counts": X.dp.value_counts([2, 1, 0], epsilon=1),
}


def over(rows, grouped, bounds, name):
    """The people of whom an output loses something, by what the bounds of `protect` say."""
    code_of, of_people, of_groups, most = OUTPUTS[name]
    cells, weights = defaultdict(list), Counter()
    for person, key, value in rows:
        group, code = key if grouped else 0, code_of(value)
        if person is not None and (group in LISTED or not grouped) and code is not None:
            cells[person].append((group, code))
            weights[person, group, code] += value or 0
    found = {person for (person, *_), weight in weights.items() if most is not None and weight > most}
    for person, own in cells.items():
        groups = Counter(group for group, _ in (set(own) if of_people else own))
        numbers = {"max_groups": len(groups)}
        if of_groups:
            numbers["max_rows"] = len(groups)
        else:
            numbers |= {"max_rows": groups.total(), "max_rows_per_group": max(groups.values())}
        if any(numbers[bound] > largest for bound, largest in bounds.items() if bound in numbers):
            found.add(person)
    return found


def n_cut_of(asked):
    """The query for people who are cut; None where nobody can be."""
    try:
        return asked.n_cut(**SURE)
    except ValueError:
        return None


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.integers(0, 4), st.sampled_from([None, *range(4)]))),
    bounds=BOUNDS,
    grouped=st.booleans(),
    names=st.lists(st.sampled_from(list(OUTPUTS)), min_size=1, unique=True),
    most=st.integers(1, 5),
    engine=st.sampled_from([*ENGINES, "toy"]),
)
def test_people_and_rows_that_are_cut_are_those_of_the_reference(rows, bounds, grouped, names, most, engine):
    frame = pl.DataFrame(rows, dict.fromkeys(["p", "k", "x"], pl.Int64), orient="row")
    protected = dpp.protect("p", **bounds)
    if not bounds.keys() & {"max_rows", "max_rows_per_group"}:
        names = [name for name in names if name not in ("len", "count")] or ["mode"]
    asked = (protected.group_by({"k": LISTED}) if grouped else protected).agg(**{name: ASKED[name] for name in names})

    def released(query):
        if engine == "toy":
            return release_by(query.request, ToyEngine(frame.to_dicts(), dict(frame.schema))).item()
        return query.release(frame, engine=engine).item()

    people, query = set().union(*(over(rows, grouped, bounds, name) for name in names)), n_cut_of(asked)
    if query is None:
        assert not people
        with pytest.raises(ValueError, match="n_rows_dropped: an output must be bounded"):
            asked.n_rows_dropped(most, **SURE)
        return
    assert released(query) == len(people)
    work, expected = asked.request.bind(PolarsEngine.of(frame.lazy())), Counter()
    for output in work.outputs:
        spec = work.specs[output.specs[0]]
        code_of = OUTPUTS[output.name][0]
        found = [
            (person, (key if grouped else 0,), code_of(x), 1)
            for person, key, x in rows
            if person is not None and (key in LISTED or not grouped) and code_of(x) is not None
        ]
        expected |= Counter(by_hand.rows_cut(found, spec.limits, spec.people))
    assert released(asked.n_rows_dropped(most, **SURE)) == sum(min(number, most) for number in expected.values())


def test_rows_that_are_cut_say_how_much_of_the_data_counts():
    # Nine tenths of the people have one row, the others eleven: more than half of all rows are theirs.
    people = [p for p in range(1000) for _ in range(1 if p % 10 else 11)]
    frame = pl.DataFrame({"p": people, "again": [p % 10 == 0 for p in people]})
    query = frame.dp.protect("p", max_rows=1).agg(share=dpp.share(pl.col("again"), **SURE), rows=dpp.len(**SURE))
    answers, cut = query.release(), query.n_rows_dropped(20, **SURE)
    assert answers["share"].item() == pytest.approx(0.1, abs=0.001)  # of kept rows; of all, 0.55
    assert cut.release().item() == 1000 == frame.height - answers["rows"].item()
    for relation in RELATIONS:
        asked = dpp.protect("p", max_rows=1, neighboring_relation=relation).agg(dpp.len(epsilon=1))
        (ask,) = asked.n_rows_dropped(20, epsilon=Fraction(1, 2)).asks
        assert ask.query.claim.rate == Fraction(1, 40)
        assert ask.query.error_unit == "rows"
    for wrong in (0, -1, 1.5, None, True):
        with pytest.raises((TypeError, ValueError), match="per_person must be"):
            query.n_rows_dropped(wrong, epsilon=1)
    with pytest.raises(TypeError, match="n_rows_dropped must be asked of answers about columns, got a query for"):
        query.n_cut(epsilon=1).n_rows_dropped(3, epsilon=1)


def test_very_many_rows_of_a_person_are_clipped_and_overflow_nothing():
    counted = pl.LazyFrame({"code 0": [2**62, 3, 0], "person": [1, 1, 1]})
    limits = Limits(groups=1, rows_per_group=2**61)
    cut = Cut(HistogramSpec((), (), CountRule(OneCode()), limits, people=False), None, None)
    kept = (2**30 + 3 + 1) // 2
    assert counted.group_by("person").agg(cut.dropped(0).alias("n")).collect()["n"].item() == 2**30 + 3 - kept


@pytest.mark.parametrize("bounds", [{"max_rows": 1}, {"max_groups": 3, "max_rows_per_group": 50}])
def test_one_person_is_one_whatever_the_bounds_are(relation, bounds):
    asked = dpp.protect("patient", neighboring_relation=relation, **bounds).group_by(WARDS).agg(dpp.len(epsilon=1))
    for loss, rate in (({"epsilon": Fraction(1, 2)}, Fraction(1, 2)), ({"rho": Fraction(1, 2)}, 1)):
        (ask,) = asked.n_cut(**loss).asks
        assert (ask.query.claim.score_range, ask.query.claim.rate) == (1, rate)
        assert ask.query.claim.contributions.total == 1
    assert asked.n_cut(rho=1, mechanism="discrete_laplace").asks[0].query.claim.mechanism == "discrete_laplace"


def test_what_n_cut_says_of_itself(tmp_path):
    budget = dpp.Budget(epsilon=3, path=tmp_path / "ledger.db")
    frame = private(budget=budget, dataset="visits", max_groups=2, max_rows_per_group=3)
    query = frame.group_by(WARDS).agg(dpp.len(epsilon=1)).n_cut(epsilon=Fraction(1, 2))
    (row,) = query.explain().to_dicts()
    assert (row["output"], row["selects"]) == ("n_cut", "number of people over a bound")
    assert (row["epsilon"], row["error_unit"], row["mechanism"]) == (0.5, "people", "discrete_laplace")
    assert (row["candidates"], row["groups"], row["score_range"], row["rate"]) == (1, 1, 1, 0.5)
    assert row["note"].startswith("No row is dropped. The error is that of the noise alone.")
    assert row["error_95"] == dpp.protect(None).agg(dpp.len(epsilon=0.5)).explain()["error_95"].item()
    assert "\n  n_cut: number of people over a bound, epsilon=0.5, discrete_laplace\n  costs: " in repr(query)
    first = query.release(ranges=True)
    assert first.columns == ["n_cut", "n_cut_low", "n_cut_high"]
    assert first.dtypes == [pl.Int64] * 3
    assert budget.log()["what"].to_list() == ["n_cut: number of people over a bound"]
    assert_frame_equal(query.release(ranges=True), first)  # it is kept
    assert budget.spent == Fraction(1, 2)
    other = private(budget=budget, dataset="visits", max_groups=2, max_rows_per_group=2)
    other.group_by(WARDS).agg(dpp.len(epsilon=1)).n_cut(epsilon=Fraction(1, 2)).release(ranges=True)
    assert budget.spent == 1
    # Of an output at another loss the same people are cut, so this is the same question.
    frame.group_by(WARDS).agg(dpp.len(epsilon=2)).n_cut(epsilon=Fraction(1, 2)).release(ranges=True)
    assert budget.spent == 1
    (simulated,) = dpp.analysis.simulate(query, ROWS, private=True).to_dicts()
    assert (simulated["true_answer"], simulated["counted"], simulated["left_out"]) == (20, 20, 0)
    query.sink_parquet(tmp_path / "n_cut.parquet")
    claim = dpp.read_claim(tmp_path / "n_cut.parquet")
    assert claim["columns"]["n_cut"]["loss"] == {"unit": "epsilon", "value": 0.5, "exact": "1/2"}


def test_n_cut_is_asked_before_the_rows_are_there():
    made = dpp.protect("patient", max_rows=4).with_columns(pl.col("days") + 1).group_by(WARDS)
    query = pickle.loads(pickle.dumps(made.agg(dpp.sum("days", 0, 9, epsilon=1)).n_cut(**SURE)))
    assert query.release(ROWS).item() == 20
    with pytest.raises(ValueError, match="the frame must have the privacy unit 'patient'"):
        query.release(ROWS.drop("patient"))
    of_texts = dpp.protect("patient", max_rows=4).agg(dpp.sum("ward", 0, 9, epsilon=1)).n_cut(**SURE)
    with pytest.raises(TypeError, match="Output 'ward'"):
        of_texts.release(ROWS)


def test_what_is_only_counted_may_be_of_any_type():
    asked = dpp.protect("patient", max_rows=4).group_by(WARDS).agg(dpp.count("days", epsilon=1), dpp.len(epsilon=1))
    assert only_counted(asked.n_cut(epsilon=1).request) == only_counted(asked.request) == {"days"}
    assert only_counted(dpp.protect("patient").bounds(WARDS, epsilon=1).request) == set()


WHOLE = "must be whole numbers of at least 1"
ONE_OF = r"one of \['max_rows_per_group'\] must be left out of protect"
BOTH_THERE = dpp.protect("p", max_groups=1, max_rows_per_group=1)
OF_NOBODY = dpp.protect(None).agg(dpp.len(epsilon=1))
OF_ROWS = private(max_rows=2).agg(dpp.len(epsilon=1))
OF_PEOPLE, THREE = dpp.n_people(epsilon=1), X.dp.value_counts([1, 2, 3], epsilon=1)
ABOUT_COLUMNS = "n_cut must be asked of answers about columns, got a query for "


@refusals(
    (lambda: P.agg(OF_PEOPLE).n_cut(epsilon=1), ValueError, "n_cut: an output must be bounded, got none" + HINT),
    (lambda: private(max_rows=5).agg(OF_PEOPLE).n_cut(epsilon=1), ValueError, "nobody is cut"),
    # A person counts three times at most, whatever the bound.
    (lambda: dpp.protect("p", max_rows=3).agg(THREE).n_cut(epsilon=1), ValueError, "nobody is cut"),
    (lambda: OF_NOBODY.n_cut(epsilon=1), ValueError, "n_cut: there must be a privacy unit, got None" + HINT),
    (lambda: P.bounds(WARDS, epsilon=1).n_cut(epsilon=1), TypeError, ABOUT_COLUMNS + "max_groups" + HINT),
    (lambda: private(max_groups=1).keys("ward", rho=1, delta=1e-6).n_cut(epsilon=1), TypeError, ABOUT_COLUMNS + "keys"),
    (lambda: P.rows_per_person(0.5, [1], epsilon=1).n_cut(epsilon=1), TypeError, ABOUT_COLUMNS + "rows_per_person"),
    (lambda: OF_ROWS.n_cut(epsilon=1).n_cut(epsilon=1), TypeError, ABOUT_COLUMNS + "n_cut"),
    (lambda: OF_ROWS.n_cut(), TypeError, "exactly one of epsilon and rho must be given"),
    (lambda: OF_ROWS.n_cut(epsilon=1, mechanism="exponential"), ValueError, "mechanism must be"),
    (lambda: dpp.protect(None).bounds(WARDS, epsilon=1), ValueError, "bounds: there must be a privacy unit"),
    (lambda: P.bounds(WARDS, 1, epsilon=1), ValueError, "share must lie strictly between 0 and 1, got 1"),
    (lambda: P.bounds(WARDS, "x", epsilon=1), TypeError, "share must be a number"),
    (lambda: P.bounds(WARDS, 0.9999, epsilon=1), ValueError, "at most 5,000, got 0.9999.\n\nHint: .*three dec"),
    (lambda: P.bounds(WARDS), TypeError, "exactly one of epsilon and rho must be given, got neither"),
    (lambda: P.bounds(WARDS, epsilon=0), ValueError, "epsilon must be greater than 0"),
    (lambda: P.bounds(["ward"], epsilon=1), TypeError, "keys must be a dict"),
    (lambda: P.bounds(WARDS, epsilon=1, candidates=range(9)), ValueError, WHOLE),
    (lambda: P.bounds(WARDS, epsilon=1, candidates=[1.0, 2]), ValueError, WHOLE + r", got [\s\S]*Hint: range"),
    (lambda: P.bounds(WARDS, epsilon=1, candidates=["a"]), TypeError, "must be numbers or times"),
    (
        lambda: BOTH_THERE.bounds(WARDS, epsilon=1),
        *(ValueError, r"one of \['max_groups', 'max_rows_per_group'\] must be left out of protect"),
    ),
    (lambda: BOTH_THERE.bounds(None, epsilon=1), ValueError, ONE_OF),
    (lambda: P.rows_per_person(0.5, [1, 2], keys="ward", epsilon=1), TypeError, "keys must be a dict"),
    (lambda: P.bounds({"town": ["a"]}, epsilon=1), ValueError, "the frame must have the key column 'town'"),
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_budget_that_has_too_little_left_is_not_charged():
    budget, read = dpp.Budget(epsilon=1), []
    frame = dpp.protect("patient", budget=budget, max_rows=2)
    for query in (frame.agg(dpp.len(epsilon=1)).n_cut(epsilon=1.5), frame.bounds(WARDS, epsilon=1.5)):
        with pytest.raises(dpp.BudgetExceededError):
            query.release(noting(read))
    assert (budget.spent, read) == (0, [])
