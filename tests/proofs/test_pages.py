"""The pages of proofs and the table of claims name code and tests that are there, and docstrings link to them."""

import ast
import functools
import importlib
import inspect
import re
from typing import get_args

import pytest

from dp_polars._accounting.costs import PROOFS
from dp_polars._accounting.terms import Mechanism
from dp_polars._expressions.namespace import PrivateNamespace
from tests.helpers.needs import need
from tests.helpers.places import ROOT

FOLDER = ROOT / "docs" / "proofs"
PAGES = sorted(FOLDER.glob("*.md"))
# Pages of a mechanism, or of what all of them rest on. What a solver proves has a form of its own.
THEOREMS = [path for path in PAGES if path.stem != "machine-checked"]
CLAIMS = ROOT / "docs" / "claims.md"

CODE = re.compile(r"`(dp_polars(?:\.\w+)+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
MECHANISMS = re.compile(r"^Mechanisms?: (.*)\.$", re.MULTILINE)
ASKED = re.compile(r"^Used by (.*)\.$", re.MULTILINE)
ROW = re.compile(r"^\| (?!claim \||---)(.*) \|$", re.MULTILINE)


def section(page, heading):
    """Return a section of a page, without its heading."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def found(name):
    """Return what a dotted name names; an AttributeError where there is nothing."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            outside = (error.name or "").partition(".")[0]
            if outside != "dp_polars":  # an optional package
                need(outside)
                raise
            continue
        return functools.reduce(getattr, parts[end:], value)
    raise AttributeError(name)


@functools.cache
def named_in(path):
    """Return the names of a module's tests, those of classes among them; a FileNotFoundError where it is not there."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def missing_tests(text):
    """Return the tests that a text names and that are not there."""
    lost = []
    for path, name in TEST.findall(text):
        if not (ROOT / path).is_file() or (name and name not in named_in(path)):
            lost.append(f"{path}::{name}")
    return lost


def theorems_of(page):
    """Return the numbers of the theorems that are stated, proved and tested."""
    stated = re.findall(r"^\*\*Theorem (\d+)", section(page, "Statement"), re.MULTILINE)
    proved = re.findall(r"^### Theorem (\d+)$", section(page, "Proof"), re.MULTILINE)
    tested = re.findall(r"^\| (\d+) \|", section(page, "Tests"), re.MULTILINE)
    return stated, proved, tested


@pytest.mark.parametrize("path", THEOREMS, ids=lambda path: path.stem)
def test_every_theorem_is_stated_proved_and_tested(path):
    page = path.read_text(encoding="utf-8")
    stated, proved, tested = theorems_of(page)
    assert stated == [str(number + 1) for number in range(len(stated))]
    assert stated == proved == tested != []
    rows = [line for line in section(page, "Tests").splitlines() if re.match(r"\| \d", line)]
    assert all(TEST.search(row) for row in rows)


@pytest.mark.parametrize("path", THEOREMS, ids=lambda path: path.stem)
def test_the_code_of_a_page_is_there(path):
    names = CODE.findall(section(path.read_text(encoding="utf-8"), "Code"))
    assert names
    for name in names:
        found(name)


@pytest.mark.parametrize("path", [*PAGES, CLAIMS], ids=lambda path: path.stem)
def test_the_tests_of_a_page_are_there(path):
    page = path.read_text(encoding="utf-8")
    assert TEST.search(page)
    assert missing_tests(page) == []


@pytest.mark.parametrize("path", THEOREMS, ids=lambda path: path.stem)
def test_what_asks_for_a_mechanism_links_to_its_proof(path):
    (asked,) = ASKED.findall(path.read_text(encoding="utf-8"))
    names = CODE.findall(asked)
    assert names
    # What a function of an expression's name refers to says it: the method of `.dp`.
    methods = {name: getattr(PrivateNamespace, name.rpartition(".")[2], None) for name in names}
    said = {name: f"{inspect.getdoc(found(name))} {inspect.getdoc(method)}" for name, method in methods.items()}
    assert [name for name, text in said.items() if f":doc:`/proofs/{path.stem}`" not in text] == []


def test_every_mechanism_has_one_page():
    words = [
        word
        for path in THEOREMS
        for listed in MECHANISMS.findall(path.read_text(encoding="utf-8"))
        for word in re.findall(r"`(\w+)`", listed)
    ]
    assert sorted(words) == sorted(PROOFS) == sorted(get_args(Mechanism))


def test_what_a_docstring_links_to_is_there():
    links = {
        name
        for path in (ROOT / "dp_polars").rglob("*.py")
        for name in re.findall(r"(?::doc:`/|docs/)(proofs/[\w-]+)", path.read_text(encoding="utf-8"))
    }
    assert links
    assert [name for name in sorted(links) if not (ROOT / "docs" / f"{name}.md").is_file()] == []


def test_a_claim_names_its_page_its_code_and_its_tests():
    rows = ROW.findall(section(CLAIMS.read_text(encoding="utf-8"), "The claims"))
    assert len(rows) > 30
    linked = set()
    for row in rows:
        claim, pages, code, tests = row.split(" | ")
        assert claim
        paths = re.findall(r"\]\(([\w/-]+\.md)(?:#[\w-]+)?\)", pages)
        assert paths, row
        assert all((CLAIMS.parent / path).is_file() for path in paths), row
        linked.update(paths)
        for name in CODE.findall(code):
            found(name)
        assert CODE.search(code), row
        assert TEST.search(tests), row
    assert {f"proofs/{path.name}" for path in THEOREMS} <= linked


# The tests of these tests.


def test_what_is_not_there_is_found():
    with pytest.raises(AttributeError):
        found("dp_polars._accounting.costs.no_such_curve")
    with pytest.raises(AttributeError):
        found("dp_polars._accounting.no_such_module.curve")
    assert found("dp_polars._accounting.claims.Claim.cost").__name__ == "cost"
    there = "`tests/proofs/test_pages.py::test_what_is_not_there_is_found`"
    assert missing_tests(f"{there} `tests/proofs/test_pages.py`") == []
    assert missing_tests("`tests/proofs/test_pages.py::test_gone` `tests/gone.py`") == [
        "tests/proofs/test_pages.py::test_gone",
        "tests/gone.py::",
    ]


def test_a_theorem_without_a_proof_is_found():
    page = "\n## Statement\n\n**Theorem 1.** A.\n\n## Proof\n\n## Tests\n\n| 1 | `tests/a.py::test_a` |\n"
    assert theorems_of(page) == (["1"], [], ["1"])
