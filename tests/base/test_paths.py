"""Paths that users give: the home folder, and files that can't be written."""

import os
import stat

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base.process import expanded, require
from tests.helpers.refusals import refused


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.chdir(elsewhere)
    return folder


def test_a_leading_tilde_is_the_home_folder(home):
    assert expanded("~") == home
    assert expanded("~/a/b.parquet") == home / "a" / "b.parquet"
    assert str(expanded("a/~/b")) == "a/~/b"
    with pytest.raises(FileNotFoundError, match=r"path must begin with an existing home folder, got '~nobody-here/x'"):
        expanded("~nobody-here/x")


def test_a_budget_in_the_home_folder(home):
    budget = dpp.Budget(epsilon=1, path="~/ledger.db")
    assert budget.path == home.resolve() / "ledger.db"
    assert (home / "ledger.db").exists()
    assert dpp.Budget(epsilon=1, path=home / "ledger.db").path == budget.path
    with pytest.raises(FileNotFoundError, match=r"path must be in an existing folder, got '~/no/ledger.db'"):
        dpp.Budget(epsilon=1, path="~/no/ledger.db")


def test_answers_in_the_home_folder(home):
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
