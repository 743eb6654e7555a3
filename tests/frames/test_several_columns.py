"""A privacy unit of several columns: who is a person then, what steps must name, and what ledgers hold."""

import pickle
import re
import sqlite3

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars.rows import in_parts
from dp_polars.analysis import simulate
from tests.frames.asking import rows_of
from tests.helpers.needs import need
from tests.helpers.refusals import refusals

UNIT = ["month", "patient"]
TEXT = '["month", "patient"]'
VISITS = pl.DataFrame(
    {
        "patient": ["a", "a", "a", "ab", "b", None, "b"],
        "month": ["bc", "bc", "c", "c", "c", "c", None],
        "cents": [1, 2, 4, 8, 16, 32, 64],
    }
)
PLANS = pl.DataFrame(
    {"patient": ["a", "a", "ab", "b", None], "month": ["bc", "c", "bc", "c", "c"], "plan": ["x", "y", "x", "z", "y"]}
)
CENTS = pl.col("cents")


def protected(rows=VISITS, unit=UNIT, **options):
    return rows.dp.protect(unit, **({"max_rows": 2} | options))


@pytest.mark.parametrize(
    ("unit", "same", "text"),
    [
        (["patient", "month"], UNIT, f"['month', 'patient'] {TEXT}"),
        (("month", "patient"), UNIT, f"['month', 'patient'] {TEXT}"),
        (["patient"], "patient", "'patient' patient"),
        (("patient",), "patient", "'patient' patient"),
    ],
    ids=str,
)
def test_the_order_of_the_names_does_not_matter_and_a_list_with_one_name_is_that_name(unit, same, text):
    protection = protected(unit=unit).protection
    assert protection == protected(unit=same).protection
    assert str(protection).partition(", add")[0] + " " + protection.privacy_unit == f"one person per {text}"


def test_a_budget_of_patients_refuses_patient_months(tmp_path):
    path = tmp_path / "ledger.db"
    budget = dpp.Budget(epsilon=2, path=path)
    protected(unit=["patient", "month"], budget=budget).agg(dpp.len(epsilon=1)).release()
    with sqlite3.connect(path) as ledger:
        assert ledger.execute("SELECT privacy_unit FROM budget").fetchall() == [(TEXT,)]
    for other in ("patient", ["patient", "cents"], None):
        bounds = {"max_rows": None} if other is None else {}
        query = protected(unit=other, budget=budget, **bounds).agg(dpp.len(epsilon=1))
        with pytest.raises(ValueError, match=re.escape(f"privacy_unit={TEXT!r} and ")):
            query.release()
    assert budget.spent == 1
    of_patients = dpp.Budget(epsilon=2)
    protected(unit="patient", budget=of_patients).agg(dpp.len(epsilon=1)).release()
    with pytest.raises(ValueError, match=r"privacy_unit='patient' and [\s\S]*Hint"):
        protected(budget=of_patients).agg(dpp.len(epsilon=1)).release()
    assert of_patients.spent == 1


def test_a_name_that_looks_like_several_is_another_unit():
    rows = VISITS.with_columns(pl.col("patient").alias(TEXT))
    budget = dpp.Budget(epsilon=2)
    protected(rows, budget=budget).agg(dpp.len(epsilon=1)).release()
    with pytest.raises(ValueError, match="must be charged for privacy_unit="):
        protected(rows, unit=TEXT, budget=budget).agg(dpp.len(epsilon=1)).release()


def test_a_cached_answer_is_that_of_the_same_unit_in_any_order(tmp_path):
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")

    def asked(unit):
        private = protected(unit=unit, budget=budget, dataset="visits")
        return private.agg(dpp.len(epsilon=0.01)).release()

    first = asked(["patient", "month"])
    assert_frame_equal(asked(["month", "patient"]), first)
    assert budget.spent * 100 == 1
    with pytest.raises(ValueError, match="privacy_unit"):
        asked(["patient"])


def test_explain_and_statements_name_the_unit_as_the_ledger_does():
    query = protected().agg(dpp.len(epsilon=1))
    for asked in (query, protected(max_groups=1).keys("cents", epsilon=1, delta=1e-3)):
        assert asked.explain()["privacy_unit"].to_list() == [TEXT]
    assert [each["privacy_unit"] for each in query._request.claim_for_json()["columns"].values()] == [TEXT]
    assert "one person per ['month', 'patient']" in repr(protected())
    again = pickle.loads(pickle.dumps(dpp.protect(UNIT, max_rows=1).agg(dpp.len(epsilon=1))))
    assert again._protection.unit == ("month", "patient")


FRAME, COUNT = protected(), dpp.len(epsilon=1)
LISTS = protected(VISITS.with_columns(month=pl.concat_list("month")))
NESTED = VISITS.with_columns(month=pl.concat_list(pl.col("month").cast(pl.Categorical)))
NAMES = "^privacy_unit must .*name of a column, a list of names, or None, got"
MUST_NOT, BOTH = "must not change the privacy unit", r"the privacy unit \['month', 'patient'\]"


@refusals(
    (
        lambda: dpp.protect([]),
        *(ValueError, r"^privacy_unit must .*at least one column, and each once, got \[\][\s\S]*Hint: protect\(None\)"),
    ),
    (lambda: dpp.protect(["p", "q", "p"]), ValueError, r"^privacy_unit must .*each once, got \['p', 'q', 'p'\]"),
    (lambda: dpp.protect(["p", 3]), TypeError, NAMES),
    (lambda: dpp.protect([None]), TypeError, NAMES),
    (lambda: dpp.protect({"p", "q"}), TypeError, NAMES),
    (lambda: dpp.protect(pl.col("p")), TypeError, "must be given the privacy unit alone, got Expr"),
    (
        lambda: protected(unit=["year", "patient"]).agg(COUNT).release(),
        *(ValueError, "must have the privacy unit 'year' as a column"),
    ),
    (
        lambda: protected(NESTED).agg(COUNT).release(),
        *(TypeError, "the privacy unit 'month' must not hold Categoricals inside a nested type"),
    ),
    (lambda: FRAME.with_columns(month=pl.lit("x")), ValueError, rf"must not change {BOTH}"),
    (lambda: FRAME.select(CENTS.alias("patient")), ValueError, MUST_NOT),
    (lambda: FRAME.select("cents", pl.lit("c").alias("month")), ValueError, MUST_NOT),
    (lambda: FRAME.drop("month"), ValueError, f"drop: {BOTH} must stay"),
    (lambda: FRAME.cast({"patient": pl.Categorical}), ValueError, "cast: the privacy unit"),
    (lambda: FRAME.rename({"month": "m"}), ValueError, f"rename: {BOTH} must keep"),
    (lambda: FRAME.rename({"month": "patient", "patient": "month"}), ValueError, "rename: the privacy unit"),
    (lambda: FRAME.drop("cents").rename({"month": "cents"}), ValueError, "rename: the privacy unit"),
    (lambda: FRAME.unpivot(["month"]), ValueError, "unpivot: the privacy unit"),
    # One person's rows are worked on before `protect`, in groups that name all of the unit.
    (
        lambda: FRAME.unique("patient", keep="none"),
        *(ValueError, r'frame.unique\(\["month", "patient"\], keep="none"\).dp.protect\(\["month", "patient"\], …\)'),
    ),
    (
        lambda: FRAME.group_by(*UNIT),
        *(
            ValueError,
            r'frame.group_by\("month", "patient"\).agg\(…\).dp.protect\(\["month", "patient"\], max_rows=1\)',
        ),
    ),
    (
        lambda: FRAME.with_columns(x=CENTS.sum().over("patient", "month")),
        *(ValueError, r'x=pl.col\("cents"\).sum\(\).over\("patient", "month"\)\).dp.protect\(\["month", "patient"\]'),
    ),
    (lambda: FRAME.with_columns(x=CENTS.sum().over("patient")), ValueError, "combines several rows"),
    (lambda: FRAME.filter(CENTS.sum().over("month", "cents") > 0), ValueError, "combines several rows"),
    (
        lambda: FRAME.join(protected(PLANS), on=UNIT),
        *(ValueError, r'join\(other, on=\["month", "patient"\], how="left"\).dp.protect\(\["month", "patient"\], …\)'),
    ),
    (
        lambda: FRAME.join(pl.DataFrame({"cents": [1], "month": ["c"]}), on="cents"),
        *(ValueError, r"must not have a column named like the privacy unit, \['month', 'patient'\]"),
    ),
    (
        lambda: LISTS.explode("month"),
        *(TypeError, "explode: the column 'month' must be one of lists or arrays, got the privacy unit"),
    ),
)
def test_steps_that_mix_or_change_people_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_columns_of_the_unit_stay():
    frame = protected()
    left = [frame.select("cents"), frame.select("month", "cents"), frame.select(CENTS + 1), frame.unpivot(["cents"])]
    for each in (*left, frame.with_columns(more=1).drop("more"), frame.fill_null("x").fill_nan(0)):
        found = rows_of(each)
        assert {*UNIT} <= {*found.columns}
        assert found.select(UNIT).sort(UNIT).equals(VISITS.select(UNIT).sort(UNIT))


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "ab", "b", "bc", "c"]), pl.String])
def test_all_rows_of_a_person_are_in_one_part(kind):
    rows = VISITS.drop_nulls().with_columns(pl.col(UNIT).cast(kind), f=pl.Series([0.0, -0.0, 0.0, 0.0, 0.0]))
    seen = []
    for part in in_parts(rows.lazy(), ("f", "month", "patient"), 3):
        seen += part.collect().select(pl.col(UNIT).cast(pl.String)).unique().rows()
    assert sorted(seen) == [("bc", "a"), ("c", "a"), ("c", "ab"), ("c", "b")]


def test_parts_differ_where_one_column_does():
    rows = pl.DataFrame({"p": [1] * 300, "q": range(300)})
    for unit in (("p", "q"), ("q", "p")):
        sizes = [part.collect().height for part in in_parts(rows.lazy(), unit, 3)]
        assert sum(sizes) == 300
        assert min(sizes) > 50


def test_a_person_is_one_combination():
    query = protected(max_rows=None, max_groups=1).agg(n=dpp.n_people(epsilon=10**6))
    assert query.release().item() == 4
    keys = {"month": ["bc", "c", "d"]}  # a column of the unit may be a key
    by_month = protected(max_rows=None, max_groups=1).group_by(keys).agg(n=dpp.n_people(epsilon=10**6))
    assert by_month.release()["n"].to_list() == [1, 3, 0]
    sums = protected(max_rows=1).agg(pl.col("cents").dp.count(epsilon=10**6))
    assert sums.release().item() == 4


def test_simulate_counts_rows_of_nobody_as_left_out():
    found = simulate(protected(max_rows=5).agg(n=pl.col("cents").dp.count(epsilon=1)), VISITS, allow_private=True)
    assert found.select("true_answer", "counted", "left_out").rows() == [(7, 5, 2)]


def test_opendp_refuses_several_identifiers():
    need("opendp")
    import opendp.prelude as dp

    from dp_polars import opendp

    dp.enable_features("contrib", "honest-but-curious")
    query = dpp.protect(UNIT, max_rows=1).agg(dpp.len(epsilon=1))
    with pytest.raises(
        ValueError, match=r"one column, got \['month', 'patient'\]: OpenDP knows one[\s\S]*Hint: protect\('month'"
    ):
        opendp.as_measurement(query)
    assert opendp.as_measurement(dpp.protect(["month"], max_rows=1).agg(dpp.len(epsilon=1))).map(1) == 1.0


CENTS_OF_ALL = {
    "groups": lambda rows, by: rows.group_by(by).agg(CENTS.sum()),
    "windows": lambda rows, by: rows.with_columns(CENTS.sum().over(by)),
    "joins": lambda rows, by: rows.join(rows.select(*by, more="cents"), on=by),
}


@pytest.mark.parametrize("step", CENTS_OF_ALL)
def test_plans_before_protect_must_name_all_columns(step):
    rows, of = VISITS.lazy(), CENTS_OF_ALL[step]
    total = protected(of(rows, UNIT), max_rows=9).agg(CENTS.dp.sum(0, 99, epsilon=10**6))
    assert total.release().item() == of(rows.drop_nulls(UNIT), UNIT).select(CENTS.sum()).collect().item()
    of_patients = rows.group_by("patient").agg(pl.col("month").max(), CENTS.sum())
    with pytest.raises(ValueError, match="could change what is in another's rows"):
        protected(of_patients if step == "groups" else of(rows, ["patient"]))


def test_a_column_named_like_the_text_of_the_unit_is_not_the_unit():
    rows = VISITS.lazy().with_columns(pl.lit("one").alias(TEXT))
    with pytest.raises(ValueError, match="could change what is in another's rows"):
        protected(rows.group_by(TEXT).agg(pl.col("month", "patient").max(), CENTS.sum()))
    with pytest.raises(ValueError, match="could change what is in another's rows"):
        protected(rows.with_columns(CENTS.max().over(TEXT)))
    bracket = VISITS.lazy().rename({"patient": "[p"}).group_by("[p").agg(pl.len())
    assert bracket.dp.protect("[p", max_rows=1).columns == ["[p", "len"]
