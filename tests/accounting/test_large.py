"""The warning of a loss that protects nobody."""

import subprocess
import sys
import warnings
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting import large
from tests.registry import ASKS, ask


@pytest.fixture
def said(monkeypatch):
    """What is warned of, as in a new process."""
    monkeypatch.setattr(large, "_warned", [])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def weighty(loss):
    """Every way to release something at this loss."""
    for name in ASKS:
        yield lambda name=name: ask(name, "x", epsilon=loss)
        yield lambda name=name: ask(name, "x", rho=loss)
    yield lambda: pl.col("x").dp.mode(["a"], epsilon=loss)
    yield lambda: dpp.len(rho=loss)
    yield lambda: dpp.permute_and_flip([1, 2], epsilon=loss, sensitivity=1)
    yield lambda: dpp.exponential_mechanism([1, 2], rho=loss, sensitivity=1)
    yield lambda: dpp.discrete_laplace([1, 2], epsilon=loss, sensitivity=1)
    yield lambda: dpp.discrete_gaussian([1, 2], rho=loss, sensitivity=1)


def test_every_release_above_20_warns(said):
    for count, release in enumerate(weighty(20.5), 1):
        large._warned.clear()
        release()
        assert len(said) == count
        assert said[-1].category is dpp.LargeLossWarning
        assert "tests" in Path(said[-1].filename).parts  # the caller's line, here or in the registry
        assert str(said[-1].message).startswith(("epsilon=20.5 protects nobody: ", "rho=20.5 protects nobody: "))


def test_20_and_less_do_not(said):
    for release in weighty(20):
        release()
    assert not said


def test_what_is_no_release_does_not(said):
    dpp.Budget(epsilon=1000)
    analysis.expected_error([1, 2], epsilon=1000)
    analysis.accuracy(10, rho=1000)
    analysis.simulate(dpp.mode("x", [1], epsilon=1), pl.DataFrame({"x": [1]}), losses=[1, 1000])
    assert not said


def test_it_is_said_once(said):
    for _ in range(3):
        dpp.mode("x", [1], epsilon=10**6)
        dpp.median("x", [1], rho=21)
    assert len(said) == 1


def test_it_is_said_in_a_new_process_and_goes_with_a_filter():
    code = "import dp_polars as dpp\ndpp.len(epsilon=21)\ndpp.len(epsilon=22)\n"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.count("LargeLossWarning: epsilon=21 protects nobody") == 1
    assert "epsilon=22" not in run.stderr
    quiet = "import warnings, dp_polars as dpp\nwarnings.filterwarnings('ignore', category=dpp.LargeLossWarning)\n"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", quiet + code], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
