"""Arithmetic on private values hears nothing of what a process sets: NumPy's errors, warnings, Polars' settings."""

import os
import subprocess
import sys
import threading
import warnings
from functools import cache

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base.silence import in_parallel, silenced

POLARS = {"POLARS_MAX_THREADS": "3", "POLARS_STREAMING_CHUNK_SIZE": "7", "POLARS_IDEAL_MORSEL_SIZE": "7"}
POLARS |= {"POLARS_WARN_UNSTABLE": "1", "POLARS_ALLOW_NESTED_CSPE": "1", "POLARS_NO_PARTITION": "1"}
POLARS |= {"POLARS_NO_CHUNKED_JOIN": "1", "POLARS_JOIN_SAMPLE_LIMIT": "1", "POLARS_FORCE_ASYNC": "1"}


def answers(*engine: str, **environment: str) -> str:
    program = [sys.executable, "-m", "tests.interop.answers", *engine]
    done = subprocess.run(program, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@cache
def plain() -> str:
    return answers()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gpu", "streaming", "in-memory"])
def test_answers_are_the_same_whatever_a_process_sets(engine):
    assert answers(engine, **POLARS, POLARS_ENGINE_AFFINITY=engine, PYTHONWARNINGS="error") == plain()


def test_a_frame_of_people_is_counted_the_same_where_polars_makes_structs(monkeypatch):
    monkeypatch.setenv("POLARS_AUTO_STRUCTIFY", "1")  # of 1.36: several columns of one expression are one
    frame = pl.LazyFrame({"p": [1, 1, 2], "x": [1.0, 1.0, 3.0]})
    query = frame.dp.protect("p", max_rows=1).agg(x=dpp.mean("x", 0, 4, step=0.5, epsilon=10**9))
    assert query.release().item() == 2


def noisy() -> float:
    warnings.warn("Ada is 36", stacklevel=1)
    return float(np.float64(1e-320) * 0.3 + np.float64(1e308) * 1e308 + np.float64(1) / np.float64(0))


def heard() -> bool:
    try:
        noisy()
    except (UserWarning, FloatingPointError):
        return True
    return False


def test_a_silenced_function_is_silenced_and_nothing_else():
    def inside():
        assert noisy() == np.inf
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert silenced(noisy)() == np.inf  # to a filter that is newer than its own
        assert noisy() == np.inf

    def fails():
        raise ZeroDivisionError

    with np.errstate(all="raise"):
        silenced(inside)()
        assert heard()
        with pytest.raises(FloatingPointError):
            np.float64(1e-320) * 0.3
    with pytest.raises(ZeroDivisionError):
        silenced(fails)()
    assert heard()


def test_other_threads_hear_all_the_same():
    entered, done, found = threading.Event(), threading.Event(), []

    @silenced
    def quiet():
        entered.set()
        done.wait()

    def other():
        found.append(heard())

    thread = threading.Thread(target=quiet)
    thread.start()
    entered.wait()
    listener = threading.Thread(target=other)
    listener.start()
    listener.join()
    done.set()
    thread.join()
    assert found == [True]
    assert heard()


def test_a_warning_is_not_repeated_because_of_a_silenced_function():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(5):
            silenced(noisy)()
            warnings.warn("once", stacklevel=1)
    assert [str(each.message) for each in found] == ["once"]


@pytest.mark.parametrize("parts", [1, 5])
def test_worker_threads_are_silenced(parts):
    with np.errstate(all="raise"):
        assert in_parallel(lambda *_: noisy(), [(0, 1)] * parts) == [np.inf] * parts


INTERRUPTED = """
import signal
import numpy as np
from dp_polars._base.silence import is_silenced, silenced

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
function = silenced(int)
still_silenced = changed = 0
before = np.geterr()
for _ in range(1000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 5e-5)
        while True:
            function()
    except KeyboardInterrupt as error:
        last = error  # somebody keeps it, as notebooks do
    still_silenced += is_silenced.get()
    changed += np.geterr() != before
print(still_silenced, changed)
"""


def test_nobody_stays_silenced_after_an_interruption():
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("0 0\n", "")
