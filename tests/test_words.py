"""The words of pages and code: what reads like a translation is found by pattern, and so are names that say no thing.

A variable's name says what it holds: `own` or `made` says neither whose, nor what.
"""

import ast
import io
import re
import tokenize

import pytest

from tests.helpers.places import ROOT

BAD_WORDS = {
    "a sentence that begins with Of": re.compile(r"""(?:^|[.:;!?)|] |["#*]\s*)Of (?!course)(?=[\w`])""", re.MULTILINE),
    "so many, so much, so few": re.compile(r"\bso (?:many|much|few)\b", re.IGNORECASE),
    "whoever": re.compile(r"\bwhoever\b", re.IGNORECASE),
    "who as a noun": re.compile(r"\b(?:[Ff]or|[Oo]f|[Ff]rom|[Bb]y|[Ww]ith|out) who\b|[;:] who\b"),
    "beside": re.compile(r"\bbeside\b", re.IGNORECASE),
}
BAD_NAMES = {"own", "kept", "told", "made", "few", "alone", "near", "each"}

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
CODE = [path for folder in ("dp_polars", "examples", "docs") for path in (ROOT / folder).rglob("*.py")]
# Files that still have some.
STILL_TO_DO: set[str] = {
    "dp_polars/_accounting/claims.py",
    "dp_polars/_engines/bounding.py",
    "dp_polars/_engines/contract.py",
    "dp_polars/_engines/polars_arrays.py",
    "dp_polars/_engines/polars_engine.py",
    "dp_polars/_engines/polars_people.py",
    "dp_polars/_expressions/argmax.py",
    "dp_polars/_expressions/choices.py",
    "dp_polars/_expressions/expressions.py",
    "dp_polars/_expressions/sharing.py",
    "dp_polars/_frames/group_keys.py",
    "dp_polars/_frames/keys.py",
    "dp_polars/_frames/people.py",
    "dp_polars/_frames/protection.py",
    "dp_polars/_frames/query.py",
    "dp_polars/_frames/question_text.py",
    "dp_polars/_frames/recipe.py",
    "dp_polars/_frames/release.py",
    "dp_polars/_frames/steps.py",
    "dp_polars/_frames/unlisted.py",
    "dp_polars/_questions/argmax.py",
    "dp_polars/_questions/choices.py",
    "dp_polars/_questions/lists.py",
    "dp_polars/_questions/modes.py",
    "dp_polars/_questions/of_categories.py",
    "dp_polars/_questions/quantile_lists.py",
    "dp_polars/_questions/question.py",
    "dp_polars/_questions/tops.py",
    "dp_polars/_questions/unlisted_keys.py",
    "dp_polars/analysis/_noise_laws.py",
    "dp_polars/analysis/_simulation.py",
    "dp_polars/spark/__init__.py",
    "dp_polars/spark/_column_types.py",
    "dp_polars/spark/_counting.py",
    "dp_polars/spark/_workers.py",
    "dp_polars/sql/__init__.py",
    "dp_polars/sql/_arithmetic.py",
    "dp_polars/sql/_counting.py",
    "dp_polars/sql/_dialects.py",
    "dp_polars/sql/_people.py",
    "dp_polars/sql/_sqlite.py",
}


def prose_of(code):
    """Return the comments and texts of a module, and docstrings among them, line by line."""
    kinds = {tokenize.COMMENT, tokenize.STRING}
    return "\n".join(
        token.string for token in tokenize.generate_tokens(io.StringIO(code).readline) if token.type in kinds
    )


def names_of(code):
    """Return the variables and parameters of a module."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def faults(path):
    """Return what is wrong with the words of a file."""
    text = path.read_text(encoding="utf-8")
    prose = prose_of(text) if path.suffix == ".py" else text
    found = [
        f"{why}: …{match[0]}{prose[match.end() :][:40]!r}"
        for why, bad in BAD_WORDS.items()
        for match in bad.finditer(prose)
    ]
    names = names_of(text) if path.suffix == ".py" else ()
    return found + [f"a variable named {name}" for name in sorted(BAD_NAMES.intersection(names))]


@pytest.mark.parametrize("path", PAGES + CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_words(path):
    name = str(path.relative_to(ROOT))
    if name in STILL_TO_DO:
        assert faults(path), "take the file out of STILL_TO_DO"
    else:
        assert faults(path) == []


def test_what_is_still_to_do_is_there():
    assert {str(path.relative_to(ROOT)) for path in PAGES + CODE} >= STILL_TO_DO


# The tests of these tests.


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("page.md", "Of a plan, only the columns are compared.\n", 1),
        ("page.md", "It is so. Of `keys`, none are shown.\n| a | Of the threshold: none |\n", 2),
        ("page.md", "From so many on, take it. Whoever waits has it open.\n", 2),
        ("page.md", "The lock stays, for who waits has it; who has none waits.\n", 2),
        ("page.md", "Of course it stays: a person who waits has it. Who is protected?\n", 0),
        ("page.md", "A delta beside the loss.\n", 1),
        ("code.py", '"""Of each group: the first."""\n# Of n rows, one.\nx = f"so many {1}"\n', 3),
        ("code.py", "def f(own): ...\nfor each in (): ...\nx.kept = 1\n", 2),
        ("code.py", "from a import kept\ndef alone(): ...\nfew_rows = kept.made()\n", 0),
    ],
)
def test_bad_words_are_found(name, text, count, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert len(faults(path)) == count
