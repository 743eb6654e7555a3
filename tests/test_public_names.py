"""What `import dp_polars` gives, and what it loads."""

import ast
import inspect
import re
import rlcompleter
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._expressions.namespace import PrivateNamespace
from tests.helpers.needs import need
from tests.registry import ASKS, NUMBERS, OF_CONDITIONS, OF_NO_COLUMN

CORE = ("analysis", "mechanisms")
# Parts of the package that come with an extra -> the package of the extra.
PARTS = {"opendp": "opendp", "plot": "altair", "spark": "pyspark", "sql": "ibis"}
# In a Python without any of them.
WITHOUT = f"""
import importlib, inspect, pydoc, sys

for package in {list(PARTS.values())}:
    sys.modules[package] = None
import dp_polars

assert "analysis" in dir(dp_polars)
assert not set(dir(dp_polars)) & {set(PARTS)}
assert dict(inspect.getmembers(dp_polars)).keys() == set(dir(dp_polars))
assert "n_people" in pydoc.render_doc(dp_polars)
for name in {list(PARTS)}:
    assert not hasattr(dp_polars, name)
    try:
        getattr(dp_polars, name)
    except dp_polars.MissingExtraError as error:
        assert f"pip install 'dp-polars[{{name}}]'" in str(error)
    for statement in (f"import dp_polars.{{name}}", f"from dp_polars import {{name}}"):
        try:
            exec(statement)
        except ModuleNotFoundError as error:
            assert f"pip install 'dp-polars[{{name}}]'" in str(error)
        else:
            raise AssertionError(statement)
print("done")
"""


def test_every_public_name_is_there():
    # Type checkers read the imports, and Python the table.
    tree = ast.parse(Path(dpp.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = {
        (node.module, each.name): each.asname
        for node in ast.walk(checked)
        if isinstance(node, ast.ImportFrom) and node.module != "dp_polars"
        for each in node.names
    }
    assert imports == {(f"dp_polars.{home}", name): name for name, home in dpp._HOME_OF.items()}
    for name in dpp._HOME_OF:
        assert getattr(dpp, name) is getattr(dpp, name)
    assert {*dpp.__all__, *CORE, "__version__"} <= set(dir(dpp)) <= {*dpp.__all__, *CORE, "__version__", *PARTS}
    with pytest.raises(AttributeError, match="'dp_polars' has no attribute 'medain'"):
        dpp.medain  # noqa: B018


def test_every_public_name_stands_in_the_reference():
    folder = Path(__file__).parents[1] / "docs" / "api"
    pages = "".join(page.read_text(encoding="utf-8") for page in folder.glob("*.md"))
    assert {*dpp.__all__} - {*re.findall(r"^\.\. (?:auto|py:)\w+:: dp_polars\.(\w+)$", pages, re.MULTILINE)} == set()


@pytest.mark.parametrize(
    ("asked", "unused"),
    [
        ("frame.select(pl.col('x').dp.median(range(9), epsilon=1))", ["flint", "sqlite3", "dp_polars._frames.frame"]),
        ("frame.lazy().dp.protect(None)", ["flint", "dp_polars._expressions.choosing"]),
    ],
)
def test_a_process_loads_what_it_uses(asked, unused):
    program = (
        f"import sys, polars as pl, dp_polars; frame = pl.DataFrame({{'x': range(9)}}); {asked}; "
        f"print([name for name in {unused} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"


def test_what_is_not_installed_is_missing_and_named():
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize("name", [*CORE, *PARTS])
def test_a_part_shows_what_is_public_and_nothing_else(name):
    if name in PARTS:
        need(PARTS[name])
    part = getattr(dpp, name)
    assert name in dir(dpp)
    assert dir(part) == sorted(part.__all__)
    assert all(getattr(part, each).__doc__ for each in part.__all__)


def test_a_fault_of_a_package_that_is_installed_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "altair.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [name for name in sys.modules if name.startswith(("altair", "dp_polars.plot"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(vars(dpp), "plot", raising=False)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_dependency'"):
        dpp.plot  # noqa: B018


# How many public names a user may meet, and parameters: what is added beyond goes elsewhere, or something else goes.
MOST = {"PrivateQuery": 10, "Budget": 10, "Publication": 8, "Claim": 8}


def test_there_are_few_public_names():
    assert len(dpp.__all__) <= 40
    budget = dpp.Budget(epsilon=1, delta=1e-6)
    query = dpp.protect("p", budget=budget).agg(n=dpp.n_people(epsilon=1))
    assert {name: len(getattr(dpp, name).__all__) for name in CORE} == {"analysis": 10, "mechanisms": 4}
    claim = dpp.n_people(epsilon=1).query.claim
    for made in (query, budget, dpp.publication(n=query), claim):
        names = {name for name in dir(made) if name[0] != "_"}
        assert len(names) <= MOST[type(made).__name__], names
        assert all(hasattr(made, name) for name in names)


# A class that users don't make, and whose constructor lists what an error knows.
NOT_CALLED = {"BudgetExceededError", "Claim"}


def test_there_are_few_figures():
    need("altair")
    assert len(dpp.plot.__all__) <= 9


def test_there_are_few_parameters():
    functions = {name: getattr(dpp, name) for name in dpp.__all__ if name not in {"col", *NOT_CALLED}}
    methods = {
        f"{owner.__name__}.{name}": method
        for owner in (PrivateNamespace, dpp.PrivateFrame, dpp.PrivateQuery, dpp.Publication, dpp.Budget, dpp.Cube)
        for name, method in inspect.getmembers(owner, inspect.isroutine)
        if name[0] != "_"
    }
    counted = {}
    for name, function in {**functions, **methods}.items():
        try:
            counted[name] = len(inspect.signature(function).parameters.keys() - {"self"})
        except ValueError:  # a warning
            continue
    assert counted.keys() >= {"mode", "protect", "PrivateFrame.agg", "PrivateQuery.release"}
    assert {name: number for name, number in counted.items() if number > 12} == {}
    assert counted["mode"] <= 11


POSITIONAL = {"column", "candidates", "lower", "upper", "k", "quantile", "condition", "self"}


@pytest.mark.parametrize("name", [*ASKS, *NUMBERS, *OF_NO_COLUMN, *OF_CONDITIONS])
def test_what_stands_behind_candidates_or_clipping_bounds_is_given_by_name(name):
    for function in (getattr(dpp, name), getattr(PrivateNamespace, name, None)):
        if function is not None:
            parameters = inspect.signature(function).parameters.values()
            assert {one.name for one in parameters if one.kind is not one.KEYWORD_ONLY} <= POSITIONAL


def test_a_name_that_other_files_use_has_no_underscore():
    package = Path(dpp.__file__).parent
    crossing = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dp_polars"):
                home = package.parent.joinpath(*(node.module or "").split("."))
                private = [one.name for one in node.names if one.name[0] == "_" and one.name[1] != "_"]
                crossing += [(path.name, name) for name in private if not (home / name).is_dir()]
                crossing = [found for found in crossing if not (home / f"{found[1]}.py").is_file()]
    assert crossing == []


def completed(name, value):
    """Return what a terminal offers behind the name and a point."""
    completer, found = rlcompleter.Completer({name: value}), []
    while (text := completer.complete(f"{name}.", len(found))) is not None:
        found.append(text.removeprefix(f"{name}.").rstrip("()"))
    return found


def test_the_first_completions():
    frame = pl.DataFrame({"patient": [1, 2], "age": [30, 40]})
    private = frame.dp.protect("patient", max_rows=1)
    query = private.agg(dpp.n_people(epsilon=1))
    assert set(completed("dp", PrivateNamespace(pl.col("age")))) == {*ASKS, *NUMBERS}
    assert {*dpp.__all__, *CORE} <= set(completed("dpp", dpp)) <= {*dpp.__all__, *CORE, *PARTS}
    assert completed("frame", frame.dp) == ["protect"]
    assert {"agg", "group_by", "keys", "filter", "with_columns"} <= set(completed("private", private))
    assert {"release", "explain", "statement", "scaled_to"} <= set(completed("query", query))
