"""What a run requires is not skipped."""

import sys

import pytest

from tests.helpers.needs import PACKAGES, is_here, need, required
from tests.helpers.places import ROOT


@pytest.fixture
def lacks_altair(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delenv("REQUIRE_PLOT", raising=False)


def test_a_lack_skips_and_fails_where_it_is_required(lacks_altair, monkeypatch):
    assert not is_here("altair")
    with pytest.raises(pytest.skip.Exception, match="altair is not installed"):
        need("altair.vegalite")
    monkeypatch.setenv("REQUIRE_PLOT", "1")
    with pytest.raises(pytest.fail.Exception, match="altair is not installed, and REQUIRE_PLOT is set"):
        need("altair.vegalite")
    with pytest.raises(AssertionError, match="altair is not installed"):
        is_here("altair")


def test_a_misspelt_name_is_an_error(monkeypatch):
    monkeypatch.setenv("REQUIRE_PLOTS", "1")
    with pytest.raises(AssertionError, match="PLOTS"):
        required()


def test_ci_requires_every_name_and_tests_skip_in_no_other_way():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [name for name in PACKAGES if f"REQUIRE_{name}=1" not in ci] == []
    others = [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "test_needs.py" and "importorskip" in path.read_text(encoding="utf-8")
    ]
    assert others == []
