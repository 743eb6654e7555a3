"""The mutants' own tools: what fits, what is said of what doesn't, and which are drawn."""

import ast
import re
from dataclasses import replace

import pytest

from tests.mutation.__main__ import MUTANTS, is_there, misfit, sampled
from tests.mutation.fitting import MisfitError, mutated
from tests.mutation.mutant import Mutant

MODULE = '''
"""A module."""
SLACK = 2.0**-38  # why

def free(rows, most):
    """Say what `rows <= most` means."""
    said = dict(most=most, rows=rows)
    if rows <= most and not said:
        raise ValueError("rows")
    said["most"] = {"most": most, **said}
    return min(rows, most), rows + most * 2

class Bound:
    least = 0

    @property
    def most(self):
        """Return
a bound."""
        return self.most_of(1, width=2)
'''


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/file.py").write_text(MODULE)
    (tmp_path / "other.py").write_text("def free(): return 1\ndef two(): return (1, 1)\n")
    return tmp_path


def of(function, old, new):
    return Mutant(function, old, new, "", "")


@pytest.mark.parametrize(
    ("function", "old", "new", "line", "changed"),
    [
        ("SLACK", "38", "60", "SLACK = 2.0**-38  # why", "SLACK = 2.0 ** (-60)"),
        ("package:free", "rows<=most", "rows < most", "    if rows <= most and", "    if rows < most and"),
        ("file:free", "not said", "", "rows <= most and not said:", "rows <= most:"),
        ("package:free", "rows=rows", "rows=1", "rows=rows)", "rows=1)"),
        ("package:free", "rows=rows", "", "most=most, rows=rows)", "most=most)"),
        ("package:free", "rows, most", "rows", "min(rows, most)", "min(rows)"),
        ("package:free", "'most': most", "", '{"most": most, **said}', "{**said}"),
        ("package:free", "(most*2)", "most", "rows + most * 2", "rows + most"),
        ("package:free", "raise ValueError('rows')", "", 'raise ValueError("rows")', "pass"),
        ("Bound.most", "property", "cached", "    @property", "    @cached"),
        ("Bound.most", "width=2", "", "(1, width=2)", "(1)"),
        ("Bound", "least = 0", "least = 1", "least = 0", "least = 1"),
    ],
)
def test_a_mutant_changes_one_place_and_nothing_else(package, function, old, new, line, changed):
    path, text = mutated(of(function, old, new), package)
    assert path.as_posix() == "package/file.py"
    assert _read(text) == _read(MODULE.replace(line, changed)) != _read(MODULE)


def _read(text):
    return ast.dump(ast.parse(text))


def test_a_mutant_outlives_a_new_layout_and_a_move(package):
    mutant = of("Bound.most", "self.most_of(1, width=2)", "self")
    before = mutated(mutant, package)[1]
    (package / "package").rename(package / "hall")
    text = MODULE.replace("(1, width=2)", "(  # one\n            1,\n            width=2,\n        )")
    (package / "hall/file.py").write_text(text)
    path, after = mutated(mutant, package / "hall" / "..")
    assert path.as_posix() == "hall/file.py"
    assert _read(after) == _read(before)


@pytest.mark.parametrize(
    ("function", "old", "new", "why"),
    [
        ("free", "1", "2", "it is defined in other.py, package/file.py: say in which, as in other:free"),
        ("Bounds.most", "2", "3", "nothing has that name; the nearest: Bound.most"),
        ("package:free", "rows <= mast", "0", "is there 0 times; the nearest: `rows <= most`"),
        ("package:free", "self.most_of(1, width=2)", "0", "is there 0 times; the nearest: in Bound, in Bound.most"),
        ("two", "1", "2", "is there 2 times"),
        ("two", "(1, 1)", "(1,1)", "the mutant changes nothing"),
    ],
)
def test_a_misfit_says_what_is_nearest(package, function, old, new, why):
    with pytest.raises(MisfitError, match=re.escape(why)):
        mutated(of(function, old, new), package)


def test_a_check_finds_mutants_that_are_no_python(package):
    assert misfit(of("SLACK", "38", "60"), package) == ""
    assert "no Python: 'return' outside function" in misfit(of("Bound", "least = 0", "return"), package)


@pytest.mark.slow
def test_a_check_finds_tests_that_are_not_there():
    mutant = MUTANTS[0]
    assert misfit(mutant) == ""
    for tests in ("mechanisms/test_nothing.py", f"accounting/test_claims.py {__name__}.py::test_nothing"):
        assert misfit(replace(mutant, tests=tests)).endswith("is not there")
    chosen = f"{mutant.tests} -k 'test and not nothing_has_this'"
    assert misfit(replace(mutant, tests=chosen)) == "no test has nothing_has_this in its name"
    assert is_there("sql/test_conformance.py::TestDuckDB::test_a_failure_shows_no_value_and_stays_charged")
    assert not is_there("sql/test_conformance.py::TestDuckDB::test_nothing")
    assert not is_there("sql/test_conformance.py::TestNothing")


def test_a_sample_follows_from_its_text():
    one, again, other = (sampled(MUTANTS, 0.1, by) for by in ("a", "a", "b"))
    assert one == again != other
    assert len(one) == len(other) == -(-len(MUTANTS) // 10)
    assert one == [each for each in MUTANTS if each in one]
    assert sampled(MUTANTS, 1, "a") == MUTANTS
