"""Optional packages: imported late, and named where they are missing."""

import pytest

from dp_polars._base.process import require


def test_a_module_that_is_there():
    assert require("json.decoder", extra="x").JSONDecoder


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(ModuleNotFoundError, match=r"the package no_such_package[\s\S]*dp-polars\[plot\]"):
        require("no_such_package.part", extra="plot")


def test_what_an_optional_package_lacks_itself_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "a_broken_package.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_dependency'"):
        require("a_broken_package", extra="plot")
