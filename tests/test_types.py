"""What type checkers know of `dpp.col("age").dp`: mypy and pyright read a program, line by line."""

import json
import re
import subprocess
import sys

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

# A line -> what its type is called, or None where it is an error.
LINES = {
    'dpp.col("age").dp.median(range(10), epsilon=1)': "PrivateExpr",
    'dpp.col.age.dp.mode(["a"], epsilon=1)': "PrivateExpr",
    'dpp.col("age", "weight").dp': "PrivateNamespace",
    'dpp.col(["age", "weight"]).dp': "PrivateNamespace",
    "dpp.col(pl.Int64, pl.Int32).dp": "PrivateNamespace",
    "dpp.col(int).dp": "PrivateNamespace",
    'dpp.col("age") + 1': "Expr",
    'dpp.col("age").dp.median(range(10), epsilon="one")': None,
    'dpp.col("age").dp.median(range(10), epsilonn=1)': None,
    'dpp.col("age").dp.medain(range(10), epsilon=1)': None,
    'dpp.col("age", 3).dp': None,
    '(dpp.col("age") + 1).dp': None,
    'pl.DataFrame().select(dpp.col("age"), dpp.col.age + 1)': "DataFrame",
}
HEAD = "from typing_extensions import reveal_type\nimport polars as pl\nimport dp_polars as dpp\n"


def says_mypy(program):
    need("mypy")
    cache = program.parent / "cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={cache}", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if found := re.match(r"[^:]+:(\d+): (error|note): (.*)", line):
            yield int(found[1]), found[2] == "error", found[3]


def says_pyright(program):
    need("pyright")
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", program.parent, "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for found in json.loads(done.stdout)["generalDiagnostics"]:
        yield found["range"]["start"]["line"] + 1, found["severity"] == "error", found["message"]


@pytest.mark.parametrize("checker", [says_mypy, says_pyright])
def test_type_checkers_know_what_col_gives(checker, tmp_path):
    program = tmp_path / "program.py"
    lines = (line if kind is None else f"reveal_type({line})" for line, kind in LINES.items())
    program.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    said = [*checker(program)]
    for number, (line, kind) in enumerate(LINES.items(), HEAD.count("\n") + 1):
        about = [(is_error, text) for at, is_error, text in said if at == number]
        assert about, line
        if kind is None:
            assert any(is_error for is_error, _ in about), line
        else:
            assert not any(is_error for is_error, _ in about), (line, about)
            assert any(re.search(rf'\b{kind}"', text) for _, text in about), (line, about)
    assert {at for at, is_error, _ in said if is_error} <= {
        number for number, kind in enumerate(LINES.values(), HEAD.count("\n") + 1) if kind is None
    }


def test_at_run_time_it_makes_the_columns_of_polars():
    assert isinstance(dpp.col, type(pl.col))
    assert type(dpp.col("age")) is type(dpp.col.age) is pl.Expr
    frame = pl.DataFrame({"age": [30] * 50, "sex": ["f"] * 50})
    asked = frame.select(dpp.col("age").dp.median(range(99), epsilon=9**9), dpp.col.sex.dp.mode(["f"], epsilon=1))
    assert asked.rows() == [(30, "f")]
