"""A release that takes long says which step it is at, to who looks on and to nobody else; paths that users give."""

import io
import logging
import os
import stat
import sys
import threading
import time
import types
import warnings

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base import progress
from dp_polars._base.extras import require
from dp_polars._base.files import expanded
from dp_polars._base.silence import silenced
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars.rows import in_parts
from tests.helpers.refusals import refused

pytestmark = pytest.mark.timeout(60)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    screen = Terminal()
    # pytest puts a standard error of its own between this and the test.
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=screen, modules=sys.modules))
    monkeypatch.setattr(progress, "_SECONDS", 0.01)
    return screen


def wait_for(screen, text):
    end = time.monotonic() + 5
    while text not in screen.getvalue():
        assert time.monotonic() < end, screen.getvalue()
        time.sleep(0.005)


def last_line(screen):
    """What is on the screen in the end."""
    line = ""
    for part in screen.getvalue().replace("\x1b[A", "").split("\r"):
        line = part + line[len(part) :]
    return line.strip()


def test_each_step_is_named_and_the_line_cleared(screen):
    with progress.shown("statement"):
        for step in (1, 2, 3):
            progress.at(step, 3)
            wait_for(screen, f"release: statement {step} of 3")
    assert last_line(screen) == ""
    shown = screen.getvalue()
    time.sleep(0.05)
    assert screen.getvalue() == shown  # it is over
    with progress.shown("scan"):
        wait_for(screen, "release: scan 1 of 1")
        wait_for(screen, "[1 s]")
    assert last_line(screen) == ""


def test_nothing_is_shown_where_it_takes_less_than_a_second_or_nobody_looks_on(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with progress.shown("scan"):
        pass
    assert progress._SECONDS == 1
    assert screen.getvalue() == ""
    monkeypatch.setattr(progress, "_SECONDS", 0.01)
    for screen in (io.StringIO(), None):
        monkeypatch.setattr("sys.stderr", screen)
        threads = threading.active_count()
        with progress.shown("scan"):
            assert threading.active_count() == threads
            time.sleep(0.05)
            progress.at(1, 2)
        assert screen is None or screen.getvalue() == ""


def test_a_notebook_is_a_place_to_look_at(screen, monkeypatch):
    monkeypatch.setattr(screen, "isatty", lambda: False, raising=False)
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    with progress.shown("scan"):
        wait_for(screen, "scan 1 of 1")


def test_a_screen_that_fails_does_not_fail_the_release(screen, monkeypatch):
    def fail(*_):
        raise OSError

    monkeypatch.setattr(screen, "write", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with progress.shown("scan"):
            time.sleep(0.05)
        monkeypatch.setattr(threading.Thread, "start", fail)
        with progress.shown("scan"):
            pass


def test_what_fails_leaves_the_line_clear(screen):
    @progress.shown("scan")
    def fail():
        wait_for(screen, "scan 1 of 1")
        raise ValueError("rows")

    refused(ValueError, "rows", fail)
    assert last_line(screen) == ""


def test_parts_of_the_people_are_steps_and_a_silenced_run_finds_its_line(screen):
    rows = pl.LazyFrame({"p": [1, 2, 3]})
    with progress.shown("scan"):
        for number, _ in enumerate(in_parts(rows, ("p",), 3), 2):
            wait_for(screen, f"scan {number} of 4")
    assert last_line(screen) == ""

    def tell():
        progress.at(2, 2)
        wait_for(screen, "statement 2 of 2")

    with progress.shown("statement"):
        silenced(tell)()


@pytest.mark.parametrize(("unit", "scans"), [(None, ["1 of 1"]), ("x", ["1 of 2", "2 of 2"])])
def test_a_release_shows_its_scans(screen, unit, scans, monkeypatch):
    """Where people are bounded, the rows are counted first."""
    left = list(scans)

    def waiting(function):
        def run(*arguments, **options):
            wait_for(screen, f"release: scan {left.pop(0)}")
            return function(*arguments, **options)

        return run

    monkeypatch.setattr(polars_engine, "count", waiting(polars_engine.count))
    if unit is not None:
        collected = polars_engine.collected
        monkeypatch.setattr(polars_engine, "collected", once(waiting(collected), collected))
    asked = pl.DataFrame({"x": [1, 2, 3]}).lazy().dp.protect(unit, max_rows=1 if unit else None)
    assert asked.agg(dpp.len(epsilon=1)).release().height == 1
    assert left == []
    assert last_line(screen) == ""


def once(first, then):
    """A function that is another one from its second call on."""
    functions = [first]
    return lambda *arguments: (functions.pop() if functions else then)(*arguments)


def test_the_log_tells_what_the_query_tells(caplog):
    caplog.set_level(logging.INFO, "dp_polars")
    asked = [dpp.len(epsilon=1), dpp.sum("x", 0, 9, rho=0.5).alias("total")]
    messages = []
    for values in ([1, 2, 3], [9] * 1000, []):
        caplog.clear()
        frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Int64)}).lazy().dp.protect(None)
        for ask in asked:
            frame.agg(ask).release()
        messages.append(caplog.messages)
    assert messages[0] == messages[1] == messages[2]
    assert messages[0] == [
        "The release of 'len' (epsilon=1) begins.",
        "The release of 'len' (epsilon=1) has ended.",
        "The release of 'total' (rho=0.5) begins.",
        "The release of 'total' (rho=0.5) has ended.",
    ]


def test_the_log_does_not_tell_whether_the_rows_made_a_release_fail(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "dp_polars")

    def fail(*_, **__):
        raise ValueError("a private value")

    monkeypatch.setattr(polars_engine, "count", fail)
    refused(dpp.ReleaseError, None, pl.LazyFrame({"x": [1]}).dp.protect(None).agg(dpp.len(epsilon=1)).release)
    assert caplog.messages == [f"The release of 'len' (epsilon=1) {what}." for what in ("begins", "has ended")]


def test_a_handler_that_fails_does_not_cost_the_answer(monkeypatch):
    class Failing(logging.Handler):
        def emit(self, record):
            raise OSError

    logger, handler = logging.getLogger("dp_polars"), Failing()
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.setattr(logger, "handlers", [handler])
    logger.manager._clear_cache()
    answer = pl.DataFrame({"x": [1]}).lazy().dp.protect(None).agg(dpp.len(epsilon=1)).release()
    assert answer.height == 1


# --- Paths: the home folder, and files that can't be written; and packages that are missing


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.chdir(elsewhere)
    return folder


def test_a_leading_tilde_is_the_home_folder_also_of_budgets_and_answers(home):
    assert expanded("~") == home
    assert expanded("~/a/b.parquet") == home / "a" / "b.parquet"
    assert str(expanded("a/~/b")) == "a/~/b"
    with pytest.raises(FileNotFoundError, match=r"path must begin with an existing home folder, got '~nobody-here/x'"):
        expanded("~nobody-here/x")
    budget = dpp.Budget(epsilon=1, path="~/ledger.db")
    assert budget._path == home.resolve() / "ledger.db"
    assert (home / "ledger.db").exists()
    assert dpp.Budget(epsilon=1, path=home / "ledger.db")._path == budget._path
    with pytest.raises(FileNotFoundError, match=r"path must be in an existing folder, got '~/no/ledger.db'"):
        dpp.Budget(epsilon=1, path="~/no/ledger.db")
    query = pl.DataFrame({"x": [1, 2]}).dp.protect(None).agg(pl.col("x").dp.median([1, 2], epsilon=1))
    query.sink_parquet("~/answers.parquet")
    assert (home / "answers.parquet").exists()
    assert dpp.read_claim("~/answers.parquet")["groups"] == 1
    assert not list(home.parent.glob("elsewhere/*"))


def answers():
    budget = dpp.Budget(epsilon=5)
    return budget, pl.DataFrame({"x": [1]}).dp.protect(None, budget=budget).agg(n=dpp.len(epsilon=1))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes in folders")
def test_answers_replace_no_pipe_and_no_device(tmp_path):
    budget, query = answers()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(ValueError, match=r"path must be a file, or nothing yet, got '.*': a device, a pipe or the"):
            query.sink_parquet(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert budget.spent == 0


@pytest.mark.parametrize("letter", ["x", "語"])
def test_long_names_of_files_are_written_or_cost_nothing(tmp_path, letter):
    budget, query = answers()
    longest = letter * (255 // len(letter.encode()))
    query.sink_parquet(tmp_path / longest)
    query.sink_parquet(tmp_path / longest)
    assert budget.spent == 2
    refused(OSError, "name too long", query.sink_parquet, tmp_path / (longest + letter))
    assert budget.spent == 2
    assert [file.name for file in tmp_path.iterdir()] == [longest]


def test_a_missing_package_is_named_with_its_extra_and_what_it_lacks_itself_is_not_hidden(tmp_path, monkeypatch):
    assert require("json.decoder", extra="x").JSONDecoder
    words = r"the package no_such_package[\s\S]*dp-polars\[plot\]"
    refused(ModuleNotFoundError, words, require, "no_such_package.part", extra="plot")
    (tmp_path / "a_broken_package.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    refused(ModuleNotFoundError, "No module named 'no_such_dependency'", require, "a_broken_package", extra="plot")
