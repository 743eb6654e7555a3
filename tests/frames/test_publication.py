"""Publications: several queries with one guarantee, one charge, one statement and one report."""

import logging
import re
from fractions import Fraction

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._accounting import ledger
from dp_polars._accounting.terms import Loss
from dp_polars._release import release as releasing

VISITS = pl.DataFrame(
    {
        "patient": [number // 3 for number in range(1800)],
        "ward": ["A", "B", "C"] * 600,
        "month": [1 + number % 4 for number in range(1800)],
        "drug": ["x", "x", "y"] * 600,
        "age": [number % 90 for number in range(1800)],
    }
)
GUARANTEE = {"epsilon": 1, "delta": 1e-6}


def queries(private, **loss):
    return {
        "by_ward": private.group_by({"ward": ["A", "B", "C"]}).agg(
            people=dpp.n_people(**loss), drug=pl.col("drug").dp.mode(["x", "y"], **loss)
        ),
        "by_month": private.filter(pl.col("age") > 18)
        .group_by({"month": [1, 2, 3, 4]})
        .agg(people=dpp.n_people(**loss)),
        "in_all": private.agg(age=pl.col("age").dp.median(range(0, 90, 5), **loss)),
    }


def protected(budget=None, dataset=None, **bounds):
    bounds = {"max_groups": 3, "max_rows_per_group": 2, **bounds}
    return VISITS.dp.protect("patient", budget=budget, dataset=dataset, **bounds)


@pytest.fixture
def budget(tmp_path):
    return dpp.Budget(**GUARANTEE, path=tmp_path / "ledger.db")


@pytest.mark.parametrize("target", [GUARANTEE, {"epsilon": 1}, {"rho": Fraction(1, 10)}], ids=str)
def test_one_guarantee_is_shared_over_all_outputs(target):
    scaled = dpp.publication(queries(protected())).scaled_to(**target)
    losses = [ask.query.claim.loss for query in scaled.queries.values() for ask in query._asks]
    assert len({loss.unit for loss in losses}) == 1
    assert len({loss.value for loss in losses}) == 1
    if "delta" not in target:
        ((unit, value),) = target.items()
        assert scaled.loss == Loss(Fraction(value), unit)
    assert scaled.delta == 0


def test_losses_that_are_given_are_scaled_together():
    private = protected()
    both = dpp.publication(one=private.agg(n=dpp.n_people(epsilon=3)), other=private.agg(n=dpp.n_people(epsilon=1)))
    scaled = both.scaled_to(epsilon=1)
    assert [str(query.loss) for query in scaled.queries.values()] == ["epsilon=0.75", "epsilon=0.25"]
    assert [str(query.loss) for query in both.queries.values()] == ["epsilon=3", "epsilon=1"]


def test_the_unit_is_that_of_the_smaller_errors_over_all(budget):
    """Of one count alone it is epsilon, and of many outputs rho."""
    private = protected(budget)
    alone = dpp.publication(one=private.agg(n=dpp.n_people())).scaled_to(**GUARANTEE)
    many = {f"q{number}": private.group_by({"ward": ["A", "B", "C"]}).agg(n=dpp.n_people()) for number in range(12)}
    scaled = dpp.publication(many).scaled_to(**GUARANTEE)
    assert (alone.loss.unit, scaled.loss.unit) == ("epsilon", "rho")
    assert scaled.loss.value > Fraction(12, 10) * budget._guarantee.rho  # Gaussian noise alone takes all of it
    scaled.release()
    assert budget.remaining == 0


def test_explain_is_one_table_and_what_it_prints():
    publication = dpp.publication(queries(protected()))
    shown = publication.scaled_to(**GUARANTEE).explain()
    assert shown.columns == ["query", *publication.queries["in_all"].explain().columns]
    assert shown["query"].to_list() == ["by_ward", "by_ward", "by_month", "in_all"]
    assert shown["output"].to_list() == ["people", "drug", "people", "age"]
    assert [note for note in shown["note"] if "The release costs" in note] == [shown["note"][0]]
    assert "in all, the unit is" in shown["note"][0]
    assert publication.explain()["epsilon"].to_list() == [None] * 4
    assert "Nothing can be released yet" in publication.explain()["note"][0]
    assert repr(publication).startswith("<Publication: one person per 'patient'\n  by_ward: people: number of people, ")
    assert "costs: not known" in repr(publication)
    assert "\n  costs: epsilon=1 (rho=" in repr(publication.scaled_to(epsilon=1))
    (note,) = protected().agg(days=dpp.mean("age", 0, 100)).scaled_to(**GUARANTEE).explain()["note"]
    assert re.search(r"In rho 1,000 rows: ±[\d.]+\. ", note)


def test_what_one_query_was_scaled_to_is_not_what_all_guarantee():
    """Two queries that keep ε = 1 each keep 2 together."""
    both = {name: query.scaled_to(**GUARANTEE) for name, query in queries(protected()).items() if name != "by_ward"}
    notes = " ".join(dpp.publication(both).explain()["note"])
    assert "in all, the unit is" not in notes
    assert "The release costs epsilon=2 " in notes
    assert dpp.publication(both).statement().facts["guarantee"] is None


@pytest.mark.parametrize("epsilon", [1, Fraction(1, 2)])
def test_statement_and_report_begin_with_the_guarantee(epsilon, tmp_path):
    publication = dpp.publication(queries(protected())).scaled_to(epsilon=epsilon, delta=1e-6)
    words = f"ε = {float(epsilon):g} and δ = 0.000001"
    page = dpp.report(publication.release(), publication, tmp_path / "a.html").read_text()
    assert f"a guarantee: differential privacy with {words}.</p>" in page.replace("\xa0", " ")
    for asked in (publication, publication.queries["in_all"]):
        said = asked.statement().to_markdown()
        assert f"keeps the guarantee of {words}, by the loss that follows.\n\nOne person loses " in said
        assert "error_95 would be" not in said  # nobody signs what was not taken


def test_a_release_is_one_charge_and_each_query_has_its_own_answer(budget):
    released = dpp.publication(queries(protected(budget))).scaled_to(**GUARANTEE).release(intervals=True, min_people=1)
    assert {name: (frame.height, frame.columns) for name, frame in released.items()} == {
        "by_ward": (3, ["ward", "people", "people_low", "people_high", "drug"]),
        "by_month": (4, ["month", "people", "people_low", "people_high"]),
        "in_all": (1, ["age"]),
    }
    log = budget.log()
    assert log["what"].to_list() == [
        "by_ward: people: number of people",
        "by_ward: drug: mode of 2 candidates",
        "by_month: people: number of people",
        "in_all: age: median on 18 grid points",
    ]
    assert log["when"].n_unique() == 1
    private = protected(max_groups=None, max_rows_per_group=None, max_rows=3)
    exact = dpp.publication(queries(private, epsilon=10**6)).release()
    assert exact["by_ward"].rows() == [("A", 600, "x"), ("B", 600, "x"), ("C", 600, "y")]
    true = VISITS.filter(pl.col("age") > 18).group_by("month").agg(pl.col("patient").n_unique()).sort("month")
    assert exact["by_month"]["people"].to_list() == true["patient"].to_list()


def test_too_little_for_all_and_outputs_without_a_loss_charge_nothing(budget):
    with pytest.raises(dpp.BudgetExceededError) as refused:
        dpp.publication(queries(protected(budget), epsilon=0.3)).release()
    assert refused.value.requested == Fraction(12, 10)
    with pytest.raises(ValueError, match=r"^release: every output must have a loss, got none for 'people', 'drug'"):
        dpp.publication(queries(protected(budget))).release()
    assert (budget.remaining, budget.log().height) == (1, 0)


class _FailsError(Exception):
    pass


def failing(monkeypatch, which):
    """Let the engine fail at the query of this number."""
    prepare, seen = releasing.prepare, []

    def prepared(*arguments):
        work, run = prepare(*arguments)
        seen.append(run)

        def fail():
            raise _FailsError("a secret value")

        return work, fail if len(seen) == which else run

    monkeypatch.setattr(releasing, "prepare", prepared)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_where_one_query_fails_all_is_charged_once_and_nothing_is_cached(budget, monkeypatch, which):
    publication = dpp.publication(queries(protected(budget, "visits"), epsilon=0.1))
    with monkeypatch.context() as patched:
        failing(patched, which)
        with pytest.raises(dpp.ReleaseError) as caught:
            publication.release()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert (budget.remaining, budget.log().height, budget.answers().height) == (Fraction(6, 10), 4, 0)
    publication.release()
    assert (budget.remaining, budget.log().height, budget.answers().height) == (Fraction(2, 10), 8, 3)


def test_answers_that_can_not_be_cached_are_cached_of_none(budget, monkeypatch, caplog):
    calls, write = [], ledger.write

    def once(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise _FailsError
        write(*arguments)

    publication = dpp.publication(queries(protected(budget, "visits"), epsilon=0.1))
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "dp_polars"):
        patched.setattr(ledger, "write", once)
        assert set(publication.release()) == {"by_ward", "by_month", "in_all"}
    assert budget.answers().height == 0
    assert "could not be cached" in caplog.text


def test_answers_are_cached_for_each_query(budget):
    private = protected(budget, "visits")
    asked = queries(private, epsilon=0.1)
    alone = asked["by_ward"].release()
    publication = dpp.publication(asked)
    released = publication.release()
    assert_frame_equal(released["by_ward"], alone)  # kept, and free
    assert budget.remaining == Fraction(6, 10)
    assert budget.log().height == 4
    again = publication.release(intervals=True)
    assert budget.remaining == Fraction(6, 10)
    for name, frame in released.items():
        assert_frame_equal(again[name].select(frame.columns), frame)
        assert_frame_equal(asked[name].release(), frame)
    publication.release(ignore_cache=True)
    assert budget.remaining == Fraction(2, 10)


def test_rows_of_its_own_for_each_query_or_of_all():
    def unbound():
        private = dpp.protect("patient", max_groups=3, max_rows_per_group=2)
        return {
            "by_ward": private.group_by({"ward": ["A", "B"]}).agg(n=dpp.n_people(epsilon=10**6)),
            "in_all": private.agg(n=dpp.n_people(epsilon=10**6)),
        }

    publication, half = dpp.publication(**unbound()), VISITS.head(900)
    assert publication.release(VISITS)["in_all"].item() == 600
    both = publication.release({"by_ward": VISITS, "in_all": half})
    assert (both["by_ward"]["n"].to_list(), both["in_all"].item()) == ([600, 600], 300)
    for wrong in ({"by_ward": VISITS}, {"by_ward": VISITS, "in_all": VISITS, "more": VISITS}):
        with pytest.raises(ValueError, match="must have the names of the queries"):
            publication.release(wrong)
    with pytest.raises(TypeError, match="must be given a frame"):
        publication.release()
    reader = pa.RecordBatchReader.from_batches(VISITS.to_arrow().schema, VISITS.to_arrow().to_batches())
    read = publication.release(reader)  # once, for both
    assert (read["by_ward"]["n"].to_list(), read["in_all"].item()) == ([600, 600], 600)
    with pytest.raises(ValueError, match="a RecordBatchReader that a release has read"):
        publication.release(reader)


def test_min_people_is_for_the_queries_with_groups():
    released = dpp.publication(queries(protected(), epsilon=1000)).release(min_people=10**6)
    assert released["by_ward"]["drug"].to_list() == [None] * 3
    assert released["in_all"]["age"].null_count() == 0
    private = protected()
    uncounted = private.group_by({"ward": ["A"]}).agg(pl.col("drug").dp.mode(["x", "y"], epsilon=1))
    with pytest.raises(ValueError, match="min_people must be given where exactly one output counts"):
        dpp.publication(one=uncounted, other=queries(private, epsilon=1)["by_ward"]).release(min_people=5)


def test_one_ledger_is_one_budget(tmp_path):
    paths = [tmp_path / "a.db", tmp_path / "a.db", tmp_path / "b.db"]
    budgets = [dpp.Budget(epsilon=1, path=path) for path in paths]
    one, same, another = (protected(budget).agg(n=dpp.n_people(epsilon=0.25)) for budget in budgets)
    dpp.publication(one=one, same=same).release()
    assert float(budgets[0].spent) == float(budgets[1].spent) == 0.5
    with pytest.raises(ValueError, match="must have the same budget, got two budgets"):
        dpp.publication(one=one, another=another)


def test_what_is_no_publication():
    private = protected()
    query = private.agg(n=dpp.n_people(epsilon=1))
    for wrong, message in (
        ({}, "must be given queries by their names"),
        ([query], "must be given queries by their names"),
        ({"a": 1}, "'a' must be a query of a private frame"),
    ):
        with pytest.raises(TypeError, match=message):
            dpp.publication(wrong)
    others = {
        "the same privacy unit": VISITS.dp.protect("ward", max_rows=1),
        "the same neighboring_relation": VISITS.dp.protect("patient", neighboring_relation="replace_one", max_rows=1),
        "the same budget": VISITS.dp.protect("patient", max_rows=1, budget=dpp.Budget(epsilon=1)),
        "must have rows, or none": dpp.protect("patient", max_rows=1),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=f"^publication: all queries.* {message}"):
            dpp.publication(one=query, other=other.agg(n=dpp.n_people(epsilon=1)))


def test_a_table_of_two_units_is_refused(budget):
    """One table, whose rows would be a patient's in one query and a doctor's, by another name, in the other."""
    rows = VISITS.rename({"age": "doctor"})
    renamed = rows.lazy().drop("patient").rename({"doctor": "patient"})
    one = rows.dp.protect("patient", max_rows=1, budget=budget).agg(n=dpp.n_people(epsilon=0.1))
    other = renamed.dp.protect("patient", max_rows=1, budget=budget).agg(n=dpp.n_people(epsilon=0.1))
    with pytest.raises(ValueError, match="publication"):
        dpp.publication(one=one, other=other).release()
    assert budget.log().height == 0


def test_one_statement_says_once_what_holds_for_all(budget):
    publication = dpp.publication(queries(protected(budget))).scaled_to(**GUARANTEE)
    statement = publication.statement(name="Visits")
    text = statement.to_markdown()
    assert text.count("The table has the columns") == 1
    assert re.search("\nThe table has the columns patient", text)
    assert "by\\_ward" not in text
    assert "\nby_ward, in_all: No transformation after protect." in text
    assert "\nby_month: Transformations after protect, row by row: rows are kept where: " in text
    assert "Release 1" not in text
    assert "| by_month: people |" in text
    loss = statement.facts["loss"]
    assert (loss["unit"], Fraction(loss["exact"])) == (publication.loss.unit, publication.loss.value)
    assert [one["name"] for one in statement.facts["releases"]] == list(publication.queries)
    assert statement.to_html().count("<h2>") == 1


def test_the_statement_of_a_ledger_knows_publications(budget):
    publication = dpp.publication(queries(protected(budget))).scaled_to(**GUARANTEE)
    publication.release()
    statement = dpp.statement(budget, [publication])
    assert [one["recorded"] for one in statement.facts["ledger"]["entries"]] == ["by_ward"] * 2 + ["by_month", "in_all"]
    assert statement.facts["loss"]["exact"] == "1"
    assert statement.facts["loss"]["variant"] == "Approximate DP"
    with pytest.raises(ValueError, match="queries must have been charged to this budget"):
        dpp.statement(budget, [publication, publication])
    small = {"by_month": dpp.n_people(epsilon=0.1), "in_all": dpp.n_people(epsilon=0.2)}
    larger = dpp.Budget(epsilon=1)
    two = [dpp.publication({"of": protected(larger).agg(one)}) for one in small.values()]
    for one in two:
        one.release()
    entries = dpp.statement(larger, two).facts["ledger"]["entries"]
    assert [one["recorded"] for one in entries] == ["of (release 1)", "of (release 2)"]
    with pytest.raises(ValueError, match="queries must have been charged to this budget"):
        dpp.statement(budget, list(publication.queries.values()))


def test_one_page_for_all(budget, tmp_path):
    publication = dpp.publication(queries(protected(budget))).scaled_to(**GUARANTEE)
    released = publication.release(intervals=True)
    page = dpp.report(released, publication, tmp_path / "report.html", name="Visits & wards").read_text()
    assert page.count("<h1>") == page.count('class="dp-statement"') == page.count("is a guarantee") == 1
    assert re.findall(r'<section id="q\d"><h2>(\w+)</h2>', page.replace("\n", "")) == ["by_ward", "by_month", "in_all"]
    assert page.count("<thead>") >= 3
    assert "Visits &amp; wards" in page
    assert "Each person counts at most as much as 3 groups. A person with more counts in part.</li>" in page
    assert page.index("by_ward") < page.index("by_month</h2>") < page.index("How to read this")
    with pytest.raises(TypeError, match="released must be what publication"):
        dpp.report(released["by_ward"], publication, tmp_path / "again.html")


def test_a_single_query_is_the_same_page_and_names_of_queries_are_escaped(tmp_path):
    query = queries(protected(), epsilon=1)["by_ward"]
    alone = dpp.report(query.release(), query, tmp_path / "one.html").read_text()
    assert "differential privacy with ε\xa0=\xa02." in alone
    assert re.findall("<h2>(.*?)</h2>", alone) == ["How to read this"]
    publication = dpp.publication({"<script>x</script> | *y*": protected().agg(n=dpp.n_people(epsilon=1))})
    page = dpp.report(publication.release(), publication, tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "\\|" in publication.statement().to_markdown()
