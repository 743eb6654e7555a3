"""What a new user gets wrong first: every refusal says what to write instead."""

import copy
import datetime as dt
import inspect
import linecache
import pickle
import re
import subprocess
import sys
import tomllib
import traceback
import warnings

import polars as pl
import pytest
from packaging.requirements import Requirement

import dp_polars as dpp
from dp_polars._base.calls import called
from dp_polars._expressions.namespace import PrivateNamespace
from tests.helpers.needs import IS_OLD
from tests.helpers.places import ROOT

STAYS = pl.DataFrame(
    {
        "patient": [1, 2, 3] * 20,
        "ward": ["A", "B", "A"] * 20,
        "age": [30, 40, 50] * 20,
        "tags": [["x"], ["y"], []] * 20,
        "day": [dt.date(2026, 1, 1)] * 60,
    }
)
PUBLIC = pl.DataFrame({"ward": ["A", "B"], "beds": [10, 20]})
DAYS = pl.date_range(dt.date(2026, 1, 1), dt.date(2026, 1, 9))


def private():
    return STAYS.dp.protect("patient", max_rows=3, max_groups=1)


def asked():
    return private().agg(dpp.len(epsilon=1))


AGE, TAGS = pl.col("age"), pl.col("tags")
# Without the methods that OpenDP adds to `.dp` where another test has loaded it.
OF_AGE = PrivateNamespace(AGE)
# What is tried -> what it says of it, and what to write instead.
TRIED = {
    "groups by an expression": (
        lambda: private().group_by(pl.col("ward")),
        "group_by must be given names of columns, got Expr",
        "make a column with with_columns first",
    ),
    "keys that are not released": (
        lambda: private().group_by(private().keys("ward", epsilon=1, delta=1e-6)),
        "keys must be released first, got PrivateQuery",
        'group_by("ward") selects them by a part of one guarantee; or release them first, frame.keys("ward", …)',
    ),
    "a count of Polars": (
        lambda: private().agg(pl.len()),
        "must be given private answers, got Expr",
        "dp_polars.len(epsilon=…) counts rows, dp_polars.n_people(epsilon=…) people",
    ),
    "arithmetic on answers": (
        lambda: private().agg(dpp.sum("age", 0, 9, epsilon=1) / dpp.len(epsilon=1)),
        "must be given private answers, got Expr",
        "query.release().with_columns(…)",
    ),
    "len of groups": (
        lambda: private().group_by({"ward": ["A"]}).len(),
        "combines the rows of several people",
        "agg(dp_polars.len(epsilon=…)) counts rows, agg(dp_polars.n_people(epsilon=…)) people",
    ),
    "a full join": (
        lambda: private().join(PUBLIC, on="ward", how="full"),
        'how must be "left", "inner", "semi" or "anti", got \'full\'',
        "join the released answers to a public frame",
    ),
    "candidates of an expression": (
        lambda: pl.col("day").dp.mode(DAYS, epsilon=1),
        "candidates must be a list, a range, a Series",
        'pl.date_range(…, eager=True) has, and so has dp_polars.grid(start, stop, step="1d")',
    ),
    "keys of an expression": (
        lambda: private().group_by({"day": DAYS}),
        "keys of column 'day' must be a list, a range, a Series",
        "eager=True",
    ),
    "lists on a plain frame": (
        lambda: STAYS.select(TAGS.dp.mode(["x"], epsilon=1)),
        "column 'tags', mode of 1 candidate: candidates of type String can't be categories of a column of type List",
        "make a row of each element first: frame.explode(…)",
    ),
    "lists on a private frame": (
        lambda: private().agg(TAGS.dp.value_counts(["x"], epsilon=1)),
        "Output 'tags': candidates of type String can't be categories of a column of type List",
        "frame.explode(…)",
    ),
    "quantiles of the rows": (
        lambda: private().with_columns(AGE.qcut(4)),
        "takes its breaks from the rows",
        "bin_intervals([…]), which Polars 1 calls cut([…])",
    ),
    "having": (
        lambda: private().group_by({"ward": ["A"]}).having(pl.len() > 3),
        "chooses groups by their rows",
        "query.release().filter(…)",
    ),
    "a maximum": (lambda: OF_AGE.max(), ".dp has no attribute 'max'", ".dp.quantile(0.99, …)"),
    "distinct values": (lambda: OF_AGE.n_unique(), "no attribute 'n_unique'", "dp_polars.n_people(epsilon=…)"),
    "people of a column": (lambda: OF_AGE.n_people(), "no attribute 'n_people'", "dp_polars.n_people(epsilon"),
    "a histogram": (lambda: OF_AGE.hist(), "no attribute 'hist'", ".dp.value_counts(candidates, epsilon=…)"),
    "another function": (lambda: OF_AGE.skew(), "no attribute 'skew'", "the page Choose a statistic"),
    "a budget without a unit": (lambda: dpp.Budget(1), "Budget: too many positional arguments", "Budget(epsilon=…)"),
    "a loss without a unit": (
        lambda: dpp.mode("ward", ["A"], 1),
        "mode: too many positional arguments",
        "mode(column, candidates=…, epsilon=…), or column.dp.mode(candidates=…, epsilon=…)",
    ),
    "a median without candidates": (
        lambda: private().agg(OF_AGE.median(epsilon=1)),
        "Output 'age' must have no loss of its own without candidates",
        "Or give candidates, as in median(range(121))",
    ),
    "a mean without bounds": (
        lambda: private().agg(OF_AGE.mean(epsilon=1)),
        "Output 'age' must have no loss of its own without lower and upper",
        "Or give lower and upper, as in mean(0, 100)",
    ),
    "keys without delta": (
        lambda: private().keys("ward", epsilon=1),
        "keys: delta must be given with a loss, got epsilon=1 alone",
        "keys(…, delta=1e-8), or leave out both",
    ),
    "nobody": (
        lambda: STAYS.dp.protect(),
        "protect: missing a required argument: 'privacy_unit'",
        "protect(privacy_unit)",
    ),
    "a word": (
        lambda: dpp.n_people(eps=1),
        "n_people: got an unexpected keyword argument 'eps'",
        "n_people(epsilon=…)",
    ),
    "the largest, as Polars writes it": (lambda: OF_AGE.arg_max(), "no attribute 'arg_max'", ".dp.argmax(…)"),
    "the smallest, as Polars writes it": (lambda: OF_AGE.arg_min(), "no attribute 'arg_min'", ".dp.argmin(…)"),
    "a misspelt answer": (lambda: OF_AGE.meen(0, 9, epsilon=1), "no attribute 'meen'", "did you mean mean?"),
    "a misspelt function": (
        lambda: dpp.npeople(),
        "no attribute 'npeople'",
        "did you mean dp_polars.n_people?",
    ),
    "a misspelt part": (lambda: dpp.analisis, "no attribute 'analisis'", "did you mean dp_polars.analysis?"),
    "a misspelt step": (lambda: private().with_column(), "no attribute 'with_column'", "did you mean with_columns?"),
    "a misspelt step of groups": (
        lambda: private().group_by({"ward": ["A"]}).ag(dpp.len(epsilon=1)),
        "no attribute 'ag'",
        "did you mean agg?",
    ),
    "a misspelt method of a query": (lambda: asked().relese(), "no attribute 'relese'", "did you mean release?"),
    "a misspelt method of a publication": (
        lambda: dpp.publication(one=asked()).relese(),
        "no attribute 'relese'",
        "did you mean release?",
    ),
    "a misspelt protect": (lambda: STAYS.dp.protct("patient"), "no attribute 'protct'", "did you mean protect?"),
    "a misspelt bound": (
        lambda: STAYS.dp.protect("patient", max_row=3),
        "protect: got an unexpected keyword argument 'max_row'",
        "max_rows instead of max_row: protect(privacy_unit, max_rows=…)",
    ),
    "a misspelt bound of values": (
        lambda: OF_AGE.mean(lowr=0, upper=9, epsilon=1),
        "mean: got an unexpected keyword argument 'lowr'",
        "lower instead of lowr: column.dp.mean(lower=…, upper=…",
    ),
    "a misspelt option": (
        lambda: asked().release(interval=True),
        "release: got an unexpected keyword argument 'interval'",
        "intervals instead of interval: release(frame=…, intervals=…)",
    ),
    "a query that is sorted": (lambda: asked().sort("len"), "no attribute 'sort'", "query.release().sort(…)"),
    "a query that is filtered": (lambda: asked().filter(AGE > 3), "no attribute 'filter'", "query.release().filter(…)"),
    "a query that is written": (
        lambda: asked().write_csv("x"),
        "no attribute 'write_csv'",
        "query.release().write_csv(",
    ),
    "keys that are sorted": (
        lambda: private().keys("ward", epsilon=1, delta=1e-6).sort("ward"),
        "no attribute 'sort'",
        "query.release().sort(…)",
    ),
    "a publication that is joined": (
        lambda: dpp.publication(one=asked()).join(PUBLIC, on="ward"),
        "no attribute 'join'",
        'publication.release()["name"].join(…)',
    ),
    "groups of a plain frame": (
        lambda: STAYS.dp.group_by({"ward": ["A"]}),
        "no attribute 'group_by'",
        'frame.dp.protect("patient", max_rows=1).group_by(…)',
    ),
    "answers of a plain frame": (
        lambda: STAYS.lazy().dp.agg(dpp.len(epsilon=1)),
        "no attribute 'agg'",
        'frame.dp.protect("patient", max_rows=1).agg(…)',
    ),
    "people of a plain group": (
        lambda: STAYS.group_by("ward").agg(dpp.n_people(epsilon=1)),
        "must be used on a private frame that knows who is a person",
        'frame.dp.protect("patient", max_groups=1).agg(…)',
    ),
    "an answer before protect": (
        lambda: STAYS.lazy().with_columns(m=AGE.dp.mean(0, 99, epsilon=1)).dp.protect("patient", max_rows=1),
        "protect: a private answer must come after `protect`",
        'use it after `protect`: frame.dp.protect("patient", max_rows=1).agg(',
    ),
    "an answer in a filter before protect": (
        lambda: STAYS.lazy().filter(dpp.median("age", range(99), epsilon=1) < AGE).dp.protect("patient", max_rows=1),
        "protect: a private answer must come after `protect`",
        "use it after `protect`",
    ),
    "answers of people before protect": (
        lambda: STAYS.lazy().group_by("patient").agg(dpp.len(epsilon=1)).dp.protect("patient", max_rows=1),
        "protect: a private answer must come after `protect`",
        "use it after `protect`",
    ),
    "an answer before the rows are handed over": (
        lambda: (
            dpp.protect("patient", max_rows=1)
            .agg(dpp.len(epsilon=1))
            .release(STAYS.lazy().with_columns(m=dpp.mode("ward", ["A"], epsilon=1)))
        ),
        "a private answer must come after `protect`",
        "use it after `protect`",
    ),
    "an answer in a step": (
        lambda: private().filter(AGE.dp.median(range(99), epsilon=1) < AGE),
        "filter: a step must not hold a private answer",
        "put it into agg",
    ),
    "null among keys": (
        lambda: private().group_by({"ward": ["A", None]}),
        "keys of column 'ward' must not contain null",
        'pl.col("x").fill_null("unknown")',
    ),
    "null in a frame of keys": (
        lambda: private().group_by(pl.DataFrame({"ward": ["A", None]})),
        "keys must not contain null",
        'fill_null("unknown")',
    ),
    "null among candidates": (
        lambda: dpp.mode("ward", ["A", None], epsilon=1),
        "candidates must not contain null",
        'fill_null("unknown")',
    ),
    "data given twice": (
        lambda: private().agg(dpp.len(epsilon=1)).release(STAYS),
        "release must not be given a frame: the query was built on one",
        "dp_polars.protect(…) begins a query without data",
    ),
}


@pytest.mark.parametrize(("tried", "said", "instead"), TRIED.values(), ids=TRIED)
def test_a_refusal_says_what_to_write(tried, said, instead):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Polars 2.1 on qcut
        with pytest.raises((TypeError, ValueError, AttributeError, pl.exceptions.ComputeError)) as caught:
            tried()
    message = str(caught.value)
    assert said in message
    assert instead in message.partition("Hint: ")[2]
    assert not re.search(r"\b(FrameNamespace|Unlisted|_Both|PrivateNamespace|_RaisesError)\b", message)
    assert not type(caught.value).__name__.startswith("_")
    assert len(frames_of(caught.value)) <= 2


def test_a_terminal_says_once_which_name_is_meant():
    """Python itself suggests names that are alike, in terminals alone."""
    begin = "import polars as pl, dp_polars as dpp; frame = pl.DataFrame({'p': [1]}); "
    wrong = ["pl.col('x').dp.meen()", "frame.dp.protct()", "dpp.analisis", "frame.dp.protect('p').with_column()"]
    for code in wrong:
        run = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=False)
        assert run.stderr.lower().count("did you mean") == 1, run.stderr


def frames_of(error):
    """Return the functions of this package that a traceback shows."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [frame.f_code.co_name for frame in frames if frame.f_globals["__name__"].startswith("dp_polars")]


DEEP = {
    "filter": lambda: private().filter(AGE.mean() > 3),
    "with_columns": lambda: private().with_columns(AGE.rank()),
    "median": lambda: AGE.dp.median(range(3), epsilon=-1),
    "simulate": lambda: dpp.analysis.simulate(private().agg(dpp.len(epsilon=1)), 3),
    "agg": lambda: private().agg(dpp.mean("ward", 0, 1, epsilon=1)).release(),
}


@pytest.mark.parametrize(("name", "tried"), DEEP.items(), ids=DEEP)
def test_a_traceback_shows_the_function_and_the_line_that_raised(name, tried):
    with pytest.raises((TypeError, ValueError)) as caught:
        tried()
    shown = frames_of(caught.value)
    assert len(shown) == 2
    assert shown[0] in (name, "method")


def test_a_traceback_shows_the_frames_of_users_and_of_others():
    def mine(frame):
        return frame.pipe(lambda one: one.filter(AGE.mean() > 3))

    with pytest.raises(ValueError, match="combines several rows") as caught:
        private().pipe(mine)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert {"mine", "<lambda>"} <= {*names}
    assert len(frames_of(caught.value)) == 2


@pytest.mark.slow
def test_development_mode_shows_all_frames():
    code = "import dp_polars as d, polars as p; p.LazyFrame({'p': [1]}).dp.protect('p').filter(p.col('p').mean() > 3)"
    shown = [
        subprocess.run([sys.executable, *mode, "-c", code], capture_output=True, text=True, check=False).stderr
        for mode in ([], ["-X", "dev"])
    ]
    assert all("ValueError" in text for text in shown)
    few, many = (text.count("dp_polars/") for text in shown)
    assert few == 2 < 5 < many


def test_every_public_function_says_how_it_is_called():
    modules = (dpp, dpp.mechanisms)
    public = [getattr(module, name) for module in modules for name in module.__all__]
    functions = [one for one in public if inspect.isfunction(one)]
    methods = [dpp.PrivateFrame.cube, dpp.PrivateQuery.n_rows_dropped, STAYS.dp.protect, dpp.Budget]
    ours = {"discrete_gaussian", "median", "n_people", "protect", "value_counts"}
    assert ours <= {function.__name__ for function in functions}
    for function in [*functions, *methods]:
        if function.__name__ in ("grid", "read_claim"):  # all of theirs is in their name
            continue
        with pytest.raises(TypeError, match=r"^\w+: [\s\S]*\n\nHint: \w+\("):
            function(*range(20))


def test_errors_of_a_function_are_its_own():
    @called
    def adds(one: int, other: int) -> int:
        """Add."""
        return one + other

    assert adds(1, other=2) == 3
    assert (adds.__name__, adds.__doc__, [*inspect.signature(adds).parameters]) == ("adds", "Add.", ["one", "other"])
    with pytest.raises(TypeError, match="unsupported operand"):
        adds(1, "2")
    words = r"missing a required argument: 'other'\.\n\nHint: adds\(one, other\)\."
    with pytest.raises(TypeError, match=words) as caught:
        adds(1)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_the_extra_of_spark_takes_no_pandas_that_pyspark_warns_of():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (pandas,) = [Requirement(text) for text in extras["spark"] if text.startswith("pandas")]
    assert [pandas.specifier.contains(version) for version in ("2.1.0", "2.2.0", "2.3.3", "3.0.0", "3.1.1")] == [
        *(False, True, True, False, False)
    ]


# --- Budgets of a cell that runs again


def run_cell(text, number, namespace):
    """Run a cell as IPython does: compiled anew, under a name of no file, with its text where Python looks for it."""
    name = f"<cell-{number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        exec(compile(text, name, "exec"), namespace)
    finally:
        del linecache.cache[name]


AGAIN = {
    "a budget": ("budget = dpp.Budget(epsilon=1)", True),
    "two budgets": ("one, other = dpp.Budget(epsilon=1), dpp.Budget(rho=1)", True),
    "a loop": ("for _ in range(3):\n    dpp.Budget(epsilon=1)", True),
    "a name": ("budget = dpp.Budget(epsilon=1, name=f'budget {number}')", False),
    "a path": ("budget = dpp.Budget(epsilon=1, path=folder / 'budget.db')", False),
    "no budget": ("number", False),
}


@pytest.mark.parametrize(("text", "warned"), AGAIN.values(), ids=AGAIN)
def test_a_cell_that_runs_again_is_told_that_its_budget_is_full(text, warned, tmp_path):
    text = f"# {tmp_path}\n{text}\n"  # a text of this test alone
    said = []
    for number in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run_cell(text, number, {"dpp": dpp, "folder": tmp_path, "number": f"{tmp_path} {number}"})
        said.append([str(warning.message) for warning in caught])
        assert all(warning.filename == f"<cell-{number}>" for warning in caught)
    assert [len(messages) for messages in said] == ([0, 1, 1] if warned else [0, 0, 0])
    if warned:
        assert [messages[0][:35] for messages in said[1:]] == [
            "this cell has made 2 budgets that h",
            "this cell has made 3 budgets that h",
        ]
        assert "Hint: give it a path" in said[1][0]


def test_a_function_that_makes_budgets_may_run_again(tmp_path):
    namespace = {"dpp": dpp}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_cell(f"# {tmp_path}\ndef make():\n    return dpp.Budget(epsilon=1)\n", 1, namespace)
        run_cell("make(); make()", 2, namespace)
        run_cell("make()", 3, namespace)
        for _ in range(2):  # what Python has no text of, and what is in a file
            exec(compile("dpp.Budget(epsilon=1)", "<elsewhere>", "exec"), namespace)
            exec(compile("dpp.Budget(epsilon=1)", __file__, "exec"), namespace)


def test_slips_of_newcomers_are_told_what_to_write():
    frame = pl.DataFrame({"p": [1], "day": [dt.date(2026, 1, 1)], "text": ["a"], "ward": ["x"]})
    private = frame.dp.protect("p", max_rows=1)

    def ask(expr):
        return lambda: private.agg(expr).release()

    for slip, error, said in [
        (
            lambda: private.group_by(ward=["x"]),
            TypeError,
            r"group_by must be given public keys.*Hint: group_by\(\{'ward'",
        ),
        (lambda: private.group_by(), TypeError, "group_by must be given public keys"),
        (lambda: private.group_by({"ward": ["x"]}).release(), AttributeError, r"call agg first: agg\(…\).release"),
        (lambda: private.release(), AttributeError, "call agg first"),
        (lambda: frame.join(private, on="ward"), TypeError, "PrivateFrame"),
        (lambda: frame.lazy().join(private, on="ward"), TypeError, "PrivateFrame"),
        (lambda: pl.concat([frame, private]), AttributeError, r"given a private frame.*Hint: call methods"),
        (lambda: OF_AGE.share(epsilon=1), AttributeError, r"Hint: dp_polars\.share\(pl\.col"),
        (
            lambda: private.with_columns(m=pl.col("text").dt.month()),
            ValueError,
            r"needs Polars 2.*write the transformation before `protect`"
            if IS_OLD
            else r"Hint: make dates.*str.to_date",
        ),
        (ask(dpp.mean("text", 0, 1, epsilon=1)), TypeError, "Hint: make numbers of them first"),
        (ask(dpp.median("day", [1, 2], epsilon=1)), TypeError, "Hint: give values of the column's type"),
        (ask(dpp.mode("day", [1, 2], epsilon=1)), TypeError, "Hint: give values of the column's type"),
    ]:
        with pytest.raises(error, match=f"(?s){said}"):
            slip()
    assert not isinstance(frame, dpp.PrivateFrame)
    assert isinstance(private, dpp.PrivateFrame)
    tiny = private.agg(dpp.top_k("text", 1, ["a", "b"], epsilon=1e-20))
    assert tiny.explain().height == tiny.release().height == 1


def test_names_and_completion_stay_as_they_are():
    query, namespace = asked(), STAYS.dp
    for one in (query, namespace, private(), dpp.publication(one=query), OF_AGE):
        assert not any(hasattr(one, name) for name in ("_repr_nothing_", "sort_of_nothing"))
        assert "_instead_of" in dir(one) or "__getattr__" in dir(one)
        assert not any(name in ("sort", "write_csv", "collect_schema_of") for name in dir(query))
    assert copy.copy(query) is query
    assert pickle.loads(pickle.dumps(dpp.protect("p", max_rows=1).agg(dpp.len(epsilon=1)))).loss == query.loss
    assert "_like" not in dir(dpp)


@pytest.mark.skipif(IS_OLD, reason="Polars 1 has no maps")
def test_functions_of_maps_are_refused_by_their_names():
    frame = pl.LazyFrame(schema={"p": pl.Int64, "tags": pl.Map(pl.String, pl.Int64)}).dp.protect("p", max_rows=1)
    for name, step in {
        "map.get": pl.col("tags").map.get("a"),
        "map.keys": pl.col("tags").map.keys(),
        "map.contains_key": pl.col("tags").map.contains_key("a"),
    }.items():
        with pytest.raises(ValueError, match=f"with_columns: `{name}` is not known to look at its own row alone"):
            frame.with_columns(x=step)


def test_a_csv_that_does_not_fit_its_guessed_types_is_told_how_to_read_it(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("p,x\n" + "1,2\n" * 200 + "1,secret\n")
    private = pl.scan_csv(rows).dp.protect("p", max_rows=1)
    with pytest.raises(dpp.ReleaseError, match=r"(?s)Hint: .*infer_schema=False.*strict=False") as caught:
        private.agg(dpp.mean("x", 0, 9, epsilon=1)).release()
    assert "secret" not in str(caught.value)
    read = pl.scan_csv(rows, infer_schema=False).with_columns(pl.all().cast(pl.Int64, strict=False))
    mean = read.dp.protect("p", max_rows=1).agg(dpp.mean("x", 0, 9, epsilon=10**9)).release().item()
    assert mean == pytest.approx(2, abs=1e-3)  # weights are rounded down, and nothing is divided by less than one row
