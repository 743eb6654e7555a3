"""Private frames: keys, steps, outputs, bounds, release, budget, and the claims that go with them."""

import datetime as dt
import os
import pickle
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._base.numbers import as_fraction
from dp_polars._engines.polars import engine as polars_engine
from tests.frames.asking import rows_of
from tests.helpers.needs import need
from tests.helpers.refusals import refusals
from tests.helpers.shared_memory import texts_in_memory_of_ones_own
from tests.registry import RELATIONS, under

HUGE = 10**6
DIAGNOSES = ["flu", "asthma", "none"]


@pytest.fixture
def visits():
    rng, n = np.random.default_rng(3), 3000
    columns = {"patient": rng.integers(0, 1000, n), "year": rng.integers(2023, 2025, n)}
    columns |= {"hospital": rng.choice(["A", "B", "X"], n), "ward": rng.integers(1, 4, n)}
    columns["diagnosis"] = rng.choice([*DIAGNOSES, "unlisted"], n, p=[0.5, 0.2, 0.2, 0.1])
    return pl.DataFrame(columns | {"age": rng.integers(0, 100, n)})


def top(epsilon=HUGE):
    return pl.col("diagnosis").dp.mode(DIAGNOSES, epsilon=epsilon)


def age(epsilon=HUGE):
    return pl.col("age").dp.median(range(121), epsilon=epsilon)


def test_release_answers_exactly_the_public_keys_in_their_order(visits):
    private = visits.lazy().dp.protect("patient", max_rows=3000).filter(pl.col("year") == 2024)
    keys = {"hospital": ["B", "C", "A"], "ward": range(1, 3)}
    released = private.group_by(keys).agg(top=top(), age=age()).release()
    assert released.columns == ["hospital", "ward", "top", "age"]
    assert released["hospital"].to_list() == ["B", "B", "C", "C", "A", "A"]
    assert released["ward"].to_list() == [1, 2] * 3
    rows = visits.filter(pl.col("year") == 2024, pl.col("hospital").is_in(["A", "B"]), pl.col("ward") < 3)
    listed = pl.struct("patient", "diagnosis").filter(pl.col("diagnosis").is_in(DIAGNOSES)).unique().struct[1]
    truth = rows.group_by("hospital", "ward").agg(listed.mode(), pl.col("age").quantile(0.5, "lower"))
    both = released.join(truth, on=["hospital", "ward"])
    assert both.height == 4
    assert both.select(pl.col("top").is_in(pl.col("diagnosis")).all()).item()
    assert both["age"].cast(pl.Float64).to_list() == both["age_right"].to_list()
    assert released.filter(pl.col("hospital") == "C")["top"].is_in(DIAGNOSES).all()


def test_keys_that_are_changed_later_stay_as_they_were_checked(visits):
    """In place, or in the array that they were made of: groups that come to be, or come twice, have no bounds."""
    wards = np.array([1, 2, 3])
    listed = {"frame": pl.DataFrame({"ward": wards}), "arrow": pa.table({"ward": wards})}
    protected = visits.dp.protect("patient", max_rows_per_group=1)
    given = [*listed.values(), {"ward": pl.Series(wards)}]
    queries = [protected.group_by(keys).agg(dpp.len(epsilon=HUGE)) for keys in given]
    listed["frame"].extend(pl.DataFrame({"ward": [4, 5]}))
    wards[:] = 1
    assert [query.release()["ward"].to_list() for query in queries] == [[1, 2, 3]] * 3


def test_keys_whose_bytes_are_written_to_later_stay_as_they_were_checked():
    names = ["the hospital of A", "the hospital of B"]
    texts, written = texts_in_memory_of_ones_own(names)
    private = pl.DataFrame({"k": [names[0]] * 5}).dp.protect(None)
    frames = [pl.DataFrame({"k": texts}), pa.table({"k": texts}), {"k": texts}]
    queries = [private.group_by(keys).agg(n=dpp.len(epsilon=HUGE)) for keys in frames]
    joined = private.join(pl.DataFrame({"k": texts}), on="k").agg(n=dpp.len(epsilon=HUGE))
    written[: len(names[0])] = written[len(names[0]) :] = ord("z")
    assert [query.release().rows() for query in queries] == [[(names[0], 5), (names[1], 0)]] * 3
    assert joined.release().item() == 5


def test_keys_come_in_the_types_of_their_columns_or_as_text(visits):
    frame = visits.with_columns(pl.col("ward").cast(pl.Int8), pl.col("hospital").cast(pl.Categorical))
    released = frame.dp.protect(None).group_by({"ward": [1, 2], "hospital": ["A", "zz"]}).agg(top()).release()
    assert released.schema["ward"] == pl.Int8
    assert released.schema["hospital"] == pl.String


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "at least one column"),
        ({"ward": []}, "must not be empty"),
        (pl.col("ward"), "group_by must be given names of columns, got Expr"),
        (pl.DataFrame({"ward": [1, 1]}), "must not repeat"),
        (pl.DataFrame({"ward": [None]}), "must not contain null"),
        (pl.DataFrame({"ward": []}), "at least one column and one combination"),
        ({"ward": range(10**9)}, "at most 10,000,000 combinations, got 1,000,000,000: every one of them is answered"),
        ({"ward": ["a"], "age": range(10**30)}, "at most 10,000,000 combinations"),
        ({"ward": [1, None]}, "^keys of column 'ward' must not contain null"),
        ({"ward": [1, 1]}, "^keys of column 'ward' must not repeat, got 1 more than once"),
        ({"ward": [1.5]}, "^keys of column 'ward' must be text, integers, booleans, decimals or times, got Float64"),
        ({"ward": None}, "^keys of column 'ward' must be text, .* got None"),
        ({"ward": dpp.grid(0, 3, step=1)}, "^keys of column 'ward' must be a list or a range, got a grid"),
        ({"ward": 3}, "^keys of column 'ward' must be a list"),
        ({1: [1]}, "name columns by strings"),
    ],
    ids=str,
)
def test_keys_that_are_refused(visits, keys, message):
    with pytest.raises((TypeError, ValueError), match=message):
        visits.dp.protect(None).group_by(keys)


class TestSteps:
    def test_join_that_repeats_a_key_is_refused(self, visits):
        public = pl.DataFrame({"hospital": ["A", "A"], "region": [1, 2]})
        with pytest.raises(ValueError, match="at most once"):
            visits.dp.protect(None).join(public, on="hospital")

    def test_a_public_frame_that_is_changed_later_stays_as_it_was_checked(self, visits):
        """In place, or in the array that it was made of: a key that comes twice would count a row twice."""
        wards = np.array([1, 2, 3])
        frames = [pl.DataFrame({"ward": wards}), pl.DataFrame({"ward": wards}), pl.DataFrame({"ward": [1, 2, 3]})]
        joined = [visits.dp.protect(None).join(public, on="ward") for public in frames]
        frames[0].extend(frames[0].clone())
        wards[:] = 1
        frames[2][1, "ward"] = 1
        assert [private.agg(dpp.len(epsilon=HUGE)).release().item() for private in joined] == [visits.height] * 3

    @pytest.mark.parametrize(
        "step",
        [
            lambda f: f.with_columns(pl.lit(1).alias("patient")),
            lambda f: f.with_columns(patient=pl.col("age")),
            lambda f: f.with_columns(pl.all().fill_null(0)),
            lambda f: f.with_columns(pl.col("patient") // 2),
            lambda f: f.select(pl.col("age").alias("patient")),
            lambda f: f.select(pl.all() + 1),
        ],
    )
    def test_the_privacy_unit_can_not_be_changed(self, visits, step):
        numbers = visits.select(pl.col(pl.Int64))
        with pytest.raises(ValueError, match="must not change the privacy unit"):
            step(numbers.dp.protect("patient", max_rows=1))

    def test_the_privacy_unit_and_the_rows_stay_when_they_are_not_selected(self, visits):
        protected = visits.dp.protect("patient", max_rows=1).select("age", "ward").select(pl.col("age"))
        assert protected.agg(age(1)).release().height == 1
        assert rows_of(visits.dp.protect(None).select(one=pl.lit("x"))).height == visits.height


class TestBounds:
    def test_rates(self):
        keys = {"ward": range(10)}
        for bounds, mode_rate, median_rate in [
            ({"max_rows": 4}, Fraction(1, 4), Fraction(1, 8)),
            ({"max_rows": 20}, Fraction(1, 10), Fraction(1, 40)),
            ({"max_groups": 2, "max_rows_per_group": 3}, Fraction(1, 2), Fraction(1, 12)),
            ({"max_groups": 99, "max_rows_per_group": 1}, Fraction(1, 10), Fraction(1, 20)),
            ({"max_groups": 2, "max_rows_per_group": 3, "max_rows": 5}, Fraction(1, 2), Fraction(1, 10)),
        ]:
            query = dpp.protect("patient", **bounds).group_by(keys).agg(top(1), age(1))
            assert [ask.query.claim.rate for ask in query._asks] == [mode_rate, median_rate]
        [only] = dpp.protect("patient", neighboring_relation="replace_one").agg(top(1))._asks
        assert only.query.claim.rate == Fraction(1, 2)

    @pytest.mark.parametrize("unit", [None, "patient"])
    def test_a_replacement_costs_a_quantile_less_where_there_is_one_group(self, unit):
        expr = dpp.quantile("age", 0.9, range(101), epsilon=1)
        assert under("replace_one", expr.query).claim.score_range == 36  # an expression can't know
        bounds = {} if unit is None else {"max_rows": 3}
        protected = dpp.protect(unit, **bounds, neighboring_relation="replace_one")
        for query, score_range in [
            (protected.agg(expr), 20),
            (protected.group_by({"ward": [1]}).agg(expr), 20),  # rows of other keys don't count
            (protected.group_by({"ward": [1, 2]}).agg(expr), 36),
            (dpp.protect(unit, **bounds).agg(dpp.quantile("age", 0.9, range(101), epsilon=1)), 18),
        ]:
            assert query.explain()["score_range"].item() == score_range
            rows = query._asks[0].query.claim.contributions.total
            assert query._asks[0].query.claim.rate == Fraction(1, score_range * rows)
            assert query.loss.value == 1

    def test_without_a_unit_no_bounds(self):
        [ask] = dpp.protect(None).group_by({"ward": range(100)}).agg(age(1))._asks
        assert ask.query.claim.rate == Fraction(1, 2)


def pipeline():
    return dpp.protect("patient", max_rows=5000).group_by({"ward": [1, 2, 3]}).agg(age=age())


FRAME = pl.DataFrame({"ward": [1], "floor?": [1.0], "diagnosis": ["flu"], "age": [50]})
PRIVATE, WARD, ABOVE_MEAN = FRAME.dp.protect(None), {"ward": [1]}, pl.col("age") > pl.col("age").mean()


def grouped(by, *outputs):
    return PRIVATE.group_by(by).agg(*outputs)


OF_FLOATS = "the key column 'floor.' must not hold floats, got Float64: floats that are"
CONTRIBUTIONS, WORK_ON_ANSWERS = "contributions must be left out", "Work on answers after the release"


@refusals(
    (lambda: dpp.protect(3), TypeError, "name of a column"),
    (lambda: dpp.protect("p", max_rows=0), ValueError, "at least 1"),
    (lambda: dpp.protect("p", max_groups=1.5), TypeError, "must be an integer"),
    (lambda: dpp.protect("p", neighboring_relation="change_one"), ValueError, "neighboring_relation"),
    (lambda: dpp.protect(None, max_rows=1), ValueError, "max_rows must be left out"),
    (lambda: dpp.protect("p", max_groups=2).group_by(WARD).agg(age()), ValueError, "max_rows, or max_rows_per_group"),
    (lambda: dpp.protect(None).filter(ABOVE_MEAN).agg(age()).release(FRAME), ValueError, "mean"),
    (lambda: pipeline().release(), TypeError, "must be given a frame"),
    (lambda: PRIVATE.agg(age()).release(FRAME), TypeError, "must not be given a frame"),
    (lambda: pipeline().release([1, 2]), TypeError, "must be a LazyFrame"),
    (lambda: pipeline().release(FRAME), ValueError, "privacy unit"),
    (lambda: PRIVATE.collect(), TypeError, "use agg"),
    (lambda: PRIVATE.agg(age()).collect(engine="streaming"), AttributeError, "each release costs again"),
    (lambda: grouped({"ward": ["one"]}, top()), TypeError, "keys of column 'ward'"),
    (lambda: grouped({"floor": [1]}, top()), ValueError, "must have the key column 'floor'"),
    (lambda: grouped({"floor?": [1]}, top()), TypeError, OF_FLOATS),
    (lambda: grouped(WARD, pl.col("age").median()), TypeError, WORK_ON_ANSWERS),
    (lambda: grouped(WARD, top() + "x"), TypeError, WORK_ON_ANSWERS),
    (lambda: grouped(WARD, pl.col("age").dp.argmax(sensitivity=1, epsilon=1)), TypeError, "argmax"),
    (lambda: grouped(WARD, age().over("ward")), TypeError, "over"),
    (lambda: grouped(WARD, dpp.mode("age", [1], epsilon=1, contributions=2)), ValueError, CONTRIBUTIONS),
    (lambda: grouped(WARD, top(), top()), ValueError, "several named"),
    (lambda: grouped(WARD, top().alias("ward")), ValueError, "several named"),
    (lambda: grouped(WARD), ValueError, "at least one"),
    (lambda: grouped(WARD, pl.col("age").max().dp.median(range(10), epsilon=1)), ValueError, "max"),
    (lambda: grouped(WARD, (pl.col("age") - pl.col("age").mean()).dp.median([1], epsilon=1)), ValueError, "mean"),
    (lambda: grouped(WARD, pl.col("nothing").dp.median([1], epsilon=1)), pl.exceptions.PolarsError, "nothing"),
    (lambda: grouped(WARD, pl.col("age").dp.mode(["a"], epsilon=1)), TypeError, "can't be categories"),
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


class Broken:
    """A frame that tells a row where it is opened."""

    def __arrow_c_stream__(self, requested_schema=None):
        msg = "secret-hiv"
        raise RuntimeError(msg)


def panic(*_, **__):
    msg = "secret-hiv"
    raise pl.exceptions.PanicException(msg)


class TestData:
    def test_every_kind_of_frame(self, visits, tmp_path):
        expected = pipeline().release(visits)
        visits.write_parquet(tmp_path / "v.parquet")
        table = visits.to_arrow()
        frames = [
            visits.lazy(),
            pl.scan_parquet(tmp_path / "v.parquet"),
            pa.dataset.dataset(tmp_path / "v.parquet"),
            table,
            pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        ]
        for frame in frames:
            assert_frame_equal(pipeline().release(frame), expected)
            if isinstance(frame, pl.LazyFrame):
                assert_frame_equal(pipeline().release(frame, engine="streaming"), expected)

    def test_duckdb_and_pandas(self, visits):
        duckdb = need("duckdb")
        expected = pipeline().release(visits)
        table = visits.to_arrow()
        assert_frame_equal(pipeline().release(duckdb.from_arrow(table)), expected)
        assert_frame_equal(pipeline().release(table.to_pandas()), expected)

    @pytest.mark.parametrize("source", ["csv", "pandas", "stream", "panic"])
    def test_errors_carry_no_rows_and_are_paid_for(self, source, tmp_path, monkeypatch):
        budget, values = dpp.Budget(epsilon=1), [1, 2, "secret-hiv"]
        (tmp_path / "rows.csv").write_text("\n".join(["age", *map(str, values)]))
        frames = {
            "csv": lambda: pl.scan_csv(tmp_path / "rows.csv", schema={"age": pl.Int64}),
            "pandas": lambda: need("pandas").DataFrame({"age": values}),
            "stream": Broken,
            "panic": lambda: pl.DataFrame({"age": [1]}),
        }
        if source == "panic":
            monkeypatch.setattr(polars_engine, "count", panic)
        query, frame = dpp.protect(None, budget=budget).agg(age(1)), frames[source]()
        with pytest.raises(dpp.ReleaseError, match="The release failed while") as caught:
            query.release(frame)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert "secret" not in str(caught.value)
        assert budget.remaining == 0
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    def test_messages_do_not_show_a_frame_that_is_given_by_mistake(self):
        rows = pl.DataFrame({"patient": ["Ann Smith"], "diagnosis": ["HIV"]})
        names, protected = rows["patient"], dpp.protect("patient")
        mistakes = [
            lambda: dpp.protect(rows),
            lambda: dpp.protect("patient", max_rows=names),
            lambda: dpp.protect("patient", budget=rows),
            lambda: dpp.protect("patient", neighboring_relation=names),
            lambda: protected.join(rows, on=names),
            lambda: protected.filter(rows),
            lambda: protected.group_by(names),
            lambda: dpp.quantile("x", names, [1], epsilon=1),
            lambda: dpp.mode("x", ["a"], epsilon=names),
            lambda: dpp.mode("x", ["a"], epsilon=1, mechanism=names),
            lambda: dpp.grid(names, names, step=1),
            lambda: dpp.grid(dt.date(2020, 1, 1), dt.date(2020, 1, 2), step=names),
            lambda: protected.agg(top()).release(names),
            lambda: protected.agg(top()).release(rows, engine=names),
        ]
        for mistake in mistakes:
            with pytest.raises((TypeError, ValueError)) as caught:
                mistake()
            assert "Ann" not in str(caught.value)
            assert "HIV" not in str(caught.value)


class TestBudget:
    def test_a_reader_that_is_used_up_costs_nothing(self, visits):
        budget = dpp.Budget(epsilon=2)
        reader = visits.to_arrow().to_reader()
        with pytest.raises(dpp.BudgetExceededError):
            dpp.protect("patient", budget=budget).agg(top(3)).release(reader)
        query = dpp.protect("patient", budget=budget).agg(top(1))
        query.release(reader)  # not read so far
        for _ in range(2):
            with pytest.raises(ValueError, match="got a RecordBatchReader that a release has read"):
                query.release(reader)
        assert budget.spent == 1

    @pytest.mark.parametrize("wrong", [{"partitions": 0}, {"partitions": 1.5}, {"engine": "spark"}])
    def test_wrong_arguments_of_release_cost_nothing(self, visits, wrong):
        budget = dpp.Budget(epsilon=1)
        with pytest.raises((TypeError, ValueError)):
            visits.dp.protect("patient", budget=budget).agg(top(1)).release(**wrong)
        assert budget.spent == 0

    def test_a_release_is_charged_under_its_own_relation(self, relation):
        budget, frame = dpp.Budget(epsilon=1), pl.DataFrame({"age": [1]})
        (other,) = {*RELATIONS} - {relation}
        own, others = (
            frame.dp.protect(None, budget=budget, neighboring_relation=each).agg(age(Fraction(1, 4)))
            for each in (relation, other)
        )
        own.release()
        with pytest.raises(ValueError, match=f"neighboring_relation='{relation}', as at first"):
            others.release()
        assert budget.spent == Fraction(1, 4)

    def test_a_budget_of_the_other_unit(self, visits):
        budget = dpp.Budget(rho=1)
        protected = visits.dp.protect("patient", budget=budget, max_groups=2).group_by({"ward": [1, 2, 3]})
        protected.agg(top(1)).release()
        half = 0.5
        assert float(budget.spent) == pytest.approx(2 * (half + np.expm1(-half)))
        with pytest.raises(ValueError, match="privacy_unit"):
            visits.dp.protect(None, budget=budget).agg(top(0.1)).release()


class TestExplainAndClaims:
    def test_explain(self, visits):
        groups = dpp.protect("patient", max_groups=2).group_by({"ward": range(5)})
        table = groups.agg(top(1), b=dpp.mode("flag", epsilon=1)).explain()
        assert table["output"].to_list() == ["diagnosis", "b"]
        assert table["candidates"].to_list() == [3, None]
        assert table["groups"].to_list() == [5, 5]
        assert table["epsilon"].to_list() == [1.0, 1.0]
        # (k − 1)·exp(−λt)/2 = 0.05 at k = 3, λ = 1/2: t is 5.99, and gaps are whole numbers.
        assert table["error_95"][0] == np.ceil(np.log(2 / 2 / 0.05) / 0.5) - 1 == 5
        assert table["error_unit"].to_list() == ["people", "people"]
        bound = visits.with_columns(flag=pl.col("age") > 3).dp.protect(None).agg(dpp.mode("flag", epsilon=1)).explain()
        assert bound["candidates"].to_list() == [2]

    def test_parquet_with_its_claim(self, visits, tmp_path):
        path = tmp_path / "out.parquet"
        low = pl.col("age").dp.quantile(0.1, range(121), rho=HUGE)
        query = visits.dp.protect(None).group_by({"ward": [1, 2]}).agg(top(HUGE), low=low)
        query.sink_parquet(path)
        assert_frame_equal(pl.read_parquet(path), query.release())
        claim = dpp.read_claim(path)
        assert claim["date"] == dt.datetime.now(dt.UTC).date().isoformat()
        assert claim["columns"]["diagnosis"] == {
            "selects": "mode of 3 candidates",
            "mechanism": "permute_and_flip",
            "loss": {"unit": "epsilon", "value": 1e6, "exact": "1000000"},
            "neighboring_relation": "add_or_remove_one",
            "privacy_unit": None,
            "limits": {},
        }
        assert claim["columns"]["low"]["mechanism"] == "exponential"
        assert [file.name for file in tmp_path.iterdir()] == ["out.parquet"]

    def test_a_file_is_on_the_disk_before_it_has_its_name(self, visits, tmp_path, monkeypatch):
        target, synced, real = tmp_path / "out.parquet", [], os.fsync

        def fsync(number):
            synced.append((os.fstat(number).st_size, os.fstat(number).st_ino, target.exists()))
            real(number)

        monkeypatch.setattr(os, "fsync", fsync)
        visits.dp.protect(None).agg(top(1)).sink_parquet(target)
        assert (target.stat().st_size, target.stat().st_ino, False) in synced

    @pytest.mark.parametrize("unnamed", [True, False])
    def test_a_file_keeps_its_mode_and_a_link_its_place(self, tmp_path, monkeypatch, *, unnamed):
        query, folder = pl.DataFrame({"x": [1, 2]}).dp.protect(None).agg(dpp.count("x", epsilon=1)), tmp_path / "own"
        modes, real = [], os.fsync

        def fsync(number):
            modes.append(os.fstat(number).st_mode & 0o777)
            assert len(list(folder.iterdir())) == before + (not unnamed)
            real(number)

        monkeypatch.setattr(os, "fsync", fsync)
        if not unnamed:
            monkeypatch.delattr(os, "O_TMPFILE", raising=False)
        folder.mkdir()
        new, secret, link, nowhere = (folder / name for name in ("new", "secret", "link", "nowhere"))
        secret.touch(0o600)
        link.symlink_to("secret")
        nowhere.symlink_to("later")
        before, old = 3, os.umask(0o027)
        try:
            for path in (new, secret, link, nowhere):
                query.sink_parquet(path)
                assert dpp.read_claim(path)["groups"] == 1
                before = len(list(folder.iterdir()))
            secret.chmod(0o664)
            query.sink_parquet(secret)
        finally:
            os.umask(old)
        assert modes == [0o640, 0o600, 0o600, 0o640, 0o664]
        assert sorted(path.name for path in folder.iterdir()) == ["later", "link", "new", "nowhere", "secret"]
        assert (link.readlink(), nowhere.readlink()) == (Path("secret"), Path("later"))
        assert (new.stat().st_mode & 0o777, secret.stat().st_mode & 0o777) == (0o640, 0o664)

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file has a name from its beginning")
    def test_a_sink_that_is_killed_leaves_nothing(self, tmp_path):
        script = """
import os, signal, sys
import dp_polars as dpp, pyarrow as pa
def batches():
    os.kill(os.getpid(), signal.SIGKILL)
    yield
query = dpp.protect(None).agg(dpp.len(epsilon=1))
query.sink_parquet(sys.argv[1], pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), batches()))
"""
        (tmp_path / "old").touch()
        for name in ("new", "old"):
            done = subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=False)
            assert done.returncode == -signal.SIGKILL
        assert [path.name for path in tmp_path.iterdir()] == ["old"]

    def test_a_failed_sink_leaves_nothing(self, visits, tmp_path):
        budget = dpp.Budget(epsilon=1)
        query = visits.dp.protect(None, budget=budget).agg(top(2))
        with pytest.raises(dpp.BudgetExceededError):
            query.sink_parquet(tmp_path / "out.parquet")
        assert not list(tmp_path.iterdir())
        with pytest.raises(FileNotFoundError):
            visits.dp.protect(None, budget=budget).agg(top(1)).sink_parquet(tmp_path / "no" / "out.parquet")
        with pytest.raises(IsADirectoryError, match="path must be a file in an existing folder"):
            visits.dp.protect(None, budget=budget).agg(top(1)).sink_parquet(tmp_path)
        assert budget.spent == 0

    def test_a_file_without_a_claim(self, visits, tmp_path):
        visits.write_parquet(tmp_path / "plain.parquet")
        with pytest.raises(ValueError, match="without a claim"):
            dpp.read_claim(tmp_path / "plain.parquet")

    def test_reprs_hold_no_rows(self, visits):
        frame = visits.with_columns(diagnosis=pl.lit("secret-hiv")).dp.protect("patient", max_rows=1)
        query = frame.agg(top(1))
        for text in (repr(frame), repr(query), str(query.explain())):
            assert "secret-hiv" not in text


BOUNDS = [{"privacy_unit": "person", "max_rows": 1}, {"privacy_unit": None}]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_nobody_decides_which_rows_of_a_dataset_are_read(tmp_path, engine, bounds):
    """Arrow skips row groups by their least and largest values, which leave NaN out: a plan must not use that."""
    kind = pl.when(pl.col("x").is_nan()).then(pl.lit("nan")).otherwise(pl.lit("number"))
    private = dpp.protect(**bounds).filter(pl.col("x") != 1.0).with_columns(kind=kind)
    query = private.group_by({"g": range(10)}).agg(dpp.mode("kind", ["number", "nan"], epsilon=HUGE))
    for others in ([1.0], [1.0, 10.0]):
        values = [float("nan")] * 10 + others
        frame = pl.DataFrame({"person": range(len(values)), "g": [*range(10), *[99] * len(others)], "x": values})
        frame.write_parquet(tmp_path / "rows")
        released = query.release(pa.dataset.dataset(tmp_path / "rows"), engine=engine)
        assert released["kind"].to_list() == ["nan"] * 10


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("when", ["before protect", "after protect"])
@pytest.mark.parametrize(
    ("values", "condition"),
    [
        ([5, 5, 2**62], pl.col("x") * 2 > 0),  # of the largest value, it overflows
        ([5, 5, 2**63 - 1], pl.col("x") + 1 > 3),
        ([float("nan"), float("nan"), 1.0], pl.col("x").is_nan()),
        ([float("nan"), float("nan"), 1.0], pl.col("x") != 1.0),
    ],
)
def test_nobody_decides_which_rows_of_a_parquet_file_are_read(tmp_path, engine, when, bounds, values, condition):
    """Polars leaves out row groups by what a filter gives on their least and largest values."""
    frame = pl.DataFrame({"person": range(3), "g": [0, 1, 2], "x": values, "kind": "there"})
    pq.write_table(frame.to_arrow(), tmp_path / "rows")
    query = dpp.protect(**bounds)
    rows = pl.scan_parquet(tmp_path / "rows")
    if when == "before protect":
        rows = rows.filter(condition)
    else:
        query = query.filter(condition)
    candidates = ["there", *(f"not {n}" for n in range(99))]
    asked = query.group_by({"g": [0, 1]}).agg(dpp.mode("kind", candidates, epsilon=HUGE))
    assert asked.release(rows, engine=engine)["kind"].to_list() == ["there"] * 2


class TestRepresentations:
    """What is shown of private things: what they are, and no row is read for it."""

    def test_a_frame_before_it_is_protected(self):
        def read(_):
            raise AssertionError("the rows were read")

        frame = pl.LazyFrame({"i": [1]}).map_batches(read, schema={"p": pl.Int64, "x": pl.Int64, "w": pl.String})
        assert repr(frame.dp) == "<.dp of a LazyFrame: protect(privacy_unit, …) takes its rows as private>"
        assert repr(pl.DataFrame({"x": ["secret"]}).dp).startswith("<.dp of a DataFrame: protect(")

    def test_a_private_frame_and_its_groups(self):
        rows = pl.DataFrame({"p": [1, 2], "x": [271828, 2], "w": ["secret", "A"]})
        private = rows.dp.protect("p", max_rows=1, budget=dpp.Budget(epsilon=2)).filter(pl.col("x") > 1)
        private = private.rename({"x": "y"}).cast({"y": pl.Int8}).drop_nulls("y")
        private = private.join(pl.DataFrame({"w": ["A"]}), on="w")
        described = (
            "rows:     private, only answers leave\n"
            "protects: one person per 'p', add_or_remove_one, max_rows=1\n"
            "steps:    filter, rename, cast, drop_nulls, join\n"
            "budget:   epsilon=2 in all\n"
        )
        how = "query:    agg(…), or group_by({column: public values}).agg(…)>"
        assert repr(private) == f"<PrivateFrame\n{described}{how}"
        grouped = private.group_by({"w": ["A", "B"], "y": range(3)})
        assert repr(grouped) == (
            f"<PrivateGroupBy\n{described}groups:   6 public groups by 'w', 'y'\nquery:    agg(…)>"
        )
        query = private.group_by({"w": ["A"]}).agg(pl.col("y").dp.median(range(9), epsilon=1))
        assert repr(query).startswith("<PrivateQuery: 1 public group, one person per 'p'")
        assert repr(dpp.protect(None)) == (
            "<PrivateFrame\nrows:     none yet, release(frame) takes them\nprotects: one person per row, "
            f"add_or_remove_one\nsteps:    none\nbudget:   none\n{how}"
        )


def test_a_frame_of_another_package_is_named(visits):
    other = visits.select("ward").unique().to_pandas()
    words = r"got pandas\.DataFrame\.\n\nHint: pl\.from_pandas\(…\) makes a Polars frame of it\."
    with pytest.raises(TypeError, match=words):
        visits.dp.protect(None).join(other, on="ward")
    with pytest.raises(TypeError, match=words):
        dpp.analysis.simulate(top(), other)


def test_explain_never_shows_less_than_the_cost():
    for n in range(1, 30):
        mode = dpp.mode("x", [1, 2], epsilon=Fraction(n, 97), mechanism="exponential")
        query = pl.DataFrame({"x": [1]}).dp.protect(None).agg(m=mode)
        assert as_fraction("rho", query.explain()["rho"].item()) >= query._asks[0].query.claim.cost("rho")
