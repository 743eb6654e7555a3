"""The warning of a loss that protects nobody."""

import re
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from tests.registry import ASKS, ask


@pytest.fixture
def said():
    """What is warned of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def weighty(loss):
    """Every way to release something at this loss."""
    for name in ASKS:
        yield lambda name=name: ask(name, "x", epsilon=loss)
        if name != "first_above":  # in pure differential privacy alone
            yield lambda name=name: ask(name, "x", rho=loss)
    yield lambda: pl.col("x").dp.mode(["a"], epsilon=loss)
    yield lambda: dpp.len(rho=loss)
    yield lambda: dpp.mechanisms.permute_and_flip([1, 2], epsilon=loss, sensitivity=1)
    yield lambda: dpp.mechanisms.exponential_mechanism([1, 2], rho=loss, sensitivity=1)
    yield lambda: dpp.mechanisms.discrete_laplace([1, 2], epsilon=loss, sensitivity=1)
    yield lambda: dpp.mechanisms.discrete_gaussian([1, 2], rho=loss, sensitivity=1)


ROWS = pl.DataFrame({"p": [1, 2], "x": ["a", "b"]})
PRIVATE = ROWS.dp.protect("p", max_rows=2, max_groups=1)


def wholes(loss):
    """Every way to ask of a private frame what costs so much in all, of parts that cost half of it; and budgets."""
    half = Fraction(loss) / 2
    parts = [dpp.len(epsilon=half), dpp.n_people(epsilon=half).alias("n")]
    yield lambda: PRIVATE.agg(*parts)
    yield lambda: PRIVATE.group_by({"x": ["a"]}).agg(*parts)
    yield lambda: PRIVATE.filter(pl.col("x") == "a").agg(parts)
    yield lambda: dpp.protect("p", max_rows=2).agg(a=parts[0], b=parts[1])
    yield lambda: PRIVATE.agg(dpp.len(rho=half), dpp.n_people(rho=half).alias("n"))
    yield lambda: PRIVATE.keys("x", epsilon=loss, delta=1e-6)
    yield lambda: PRIVATE.keys("x", rho=loss, delta=1e-6)
    yield lambda: PRIVATE.agg(dpp.len(epsilon=1)).n_rows_dropped(1, rho=loss)
    yield lambda: dpp.Budget(epsilon=loss)
    yield lambda: dpp.Budget(rho=loss, delta=1e-6)


def line_of(call):
    return call.__code__.co_firstlineno


@pytest.mark.parametrize("ways", [weighty, wholes])
def test_every_release_and_budget_above_20_in_all_warns(ways, said):
    for count, release in enumerate(ways(20.5), 1):
        release()
        assert len(said) == count
        assert said[-1].category is dpp.LargeLossWarning
        assert str(said[-1].message).startswith(("epsilon=20.5 protects nobody: ", "rho=20.5 protects nobody: "))
        if ways is wholes:
            assert (said[-1].filename, said[-1].lineno) == (__file__, line_of(release))
        else:
            assert "tests" in Path(said[-1].filename).parts  # the caller's line, here or in the registry


def test_it_is_said_at_the_line_of_the_caller(said):
    one, two = ROWS.lazy(), pl.col("x")
    for call in (
        lambda: two.dp.mode(["a"], epsilon=21),
        lambda: dpp.mode("x", ["a"], epsilon=21),
        lambda: two.dp.value_counts(["a"], epsilon=21),
        lambda: dpp.argmax("x", epsilon=21, sensitivity=1),
        lambda: pl.len().dp.count(epsilon=21),
        lambda: dpp.mechanisms.permute_and_flip([1, 2], epsilon=21, sensitivity=1),
        lambda: dpp.mechanisms.discrete_gaussian(3, rho=21, sensitivity=1),
        lambda: one.select(two.dp.mode(["a"], epsilon=21)),
        lambda: one.pipe(lambda frame: frame.group_by("p").agg(two.dp.mode(["a"], epsilon=21))),
    ):
        said.clear()
        call()
        assert [(warning.filename, warning.lineno) for warning in said] == [(__file__, line_of(call))]


def test_a_package_of_a_like_name_is_a_caller(said):
    namespace = {"__name__": "dp_polars_of_others", "dpp": dpp}
    exec(compile("dpp.len(epsilon=21)", "others.py", "exec"), namespace)
    assert said[0].filename == "others.py"


def test_20_and_less_do_not(said):
    for release in (*weighty(20), *wholes(20)):
        release()
    assert not said


def with_delta(delta):
    """Every way to say a delta for whole releases."""
    yield lambda: dpp.Budget(epsilon=1, delta=delta)
    yield lambda: dpp.Budget(rho=1, delta=delta)
    yield lambda: PRIVATE.keys("x", epsilon=1, delta=delta)
    yield lambda: PRIVATE.keys("x", rho=1, delta=delta)
    yield lambda: PRIVATE.agg(dpp.len()).scaled_to(epsilon=1, delta=delta)


@pytest.mark.parametrize("delta", [0.5, 0.01, Fraction(1, 999)])
def test_a_delta_that_protects_nobody_warns(delta, said):
    for count, release in enumerate(with_delta(delta), 1):
        release()
        assert len(said) == count
        assert said[-1].category is dpp.LargeLossWarning
        assert re.match(r"delta=\S+ protects nobody: [\s\S]*Hint: ", str(said[-1].message))
        assert (said[-1].filename, said[-1].lineno) == (__file__, line_of(release))
    said.clear()
    for release in with_delta(1e-3):
        release()
    assert not said


def test_analysis_simulations_and_explanations_do_not(said):
    parts = [dpp.mode("x", ["a", "b"], epsilon=15).alias(f"x{n}") for n in range(10)]
    query = PRIVATE.agg(parts)
    unbound = dpp.protect(None).agg(parts)
    assert len(said) == 2
    said.clear()
    query.explain()
    query.release()
    repr(query)
    analysis.scores.expected_error([1, 2], epsilon=1000)
    analysis.scores.accuracy(10, rho=1000)
    analysis.scores.loss_needed(10, error=1)
    analysis.simulate(dpp.mode("x", ["a"], epsilon=1), ROWS, losses=[1, 1000])
    analysis.simulate(unbound, ROWS)
    analysis.simulate(unbound, ROWS, losses=[1, 1000])
    analysis.compose([ask.query.claim for ask in query._asks], delta=1e-6)
    assert not said


@pytest.mark.slow
def test_one_line_says_it_once_and_others_say_it_too():
    code = """
import polars as pl
import dp_polars as dpp
for _ in range(3):
    dpp.len(epsilon=21)
dpp.len(epsilon=21)
for _ in range(3):
    pl.DataFrame({"x": [1]}).dp.protect(None).agg(a=dpp.len(epsilon=15), b=dpp.len(epsilon=15))
dpp.Budget(epsilon=1000)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line.split(":") for line in run.stderr.splitlines() if "LargeLossWarning: " in line]
    found = [(int(line[1]), line[3].split()[0]) for line in lines]
    assert found == [(5, "epsilon=21"), (6, "epsilon=21"), (8, "epsilon=30"), (9, "epsilon=1000")]
    quiet = "import warnings, dp_polars as dpp\nwarnings.filterwarnings('ignore', category=dpp.LargeLossWarning)\n"
    command = [sys.executable, "-W", "error", "-c", quiet + code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_as_an_error_it_comes_before_a_ledger_is_made(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dpp.LargeLossWarning):
            dpp.Budget(epsilon=21, path=tmp_path / "ledger.db")
        with pytest.raises(dpp.LargeLossWarning):
            dpp.Budget(epsilon=21, name="large and never made")
    assert not list(tmp_path.iterdir())
    dpp.Budget(epsilon=1, name="large and never made")
