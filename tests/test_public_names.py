"""What `import dp_polars` gives, and what it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dp_polars as dpp


def test_every_public_name_is_there():
    assert sorted(dpp.__all__) == sorted(dpp._HOME_OF)
    for name in dpp.__all__:
        assert getattr(dpp, name) is getattr(dpp, name)
    assert {*dpp.__all__, "analysis", "opendp", "plot", "spark", "sql"} <= set(dir(dpp))
    with pytest.raises(AttributeError, match="'dp_polars' has no attribute 'medain'"):
        dpp.medain  # noqa: B018


@pytest.mark.parametrize(
    ("asked", "unused"),
    [
        ("frame.select(pl.col('x').dp.median(range(9), epsilon=1))", ["flint", "sqlite3", "dp_polars._frames.frame"]),
        ("frame.lazy().dp.protect(None)", ["flint", "dp_polars._expressions.tops"]),
    ],
)
def test_a_process_loads_what_it_uses(asked, unused):
    program = (
        f"import sys, polars as pl, dp_polars; frame = pl.DataFrame({{'x': range(9)}}); {asked}; "
        f"print([name for name in {unused} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"
