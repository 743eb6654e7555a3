"""The home folder in paths of users, wherever one is given."""

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base.paths import expanded


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
