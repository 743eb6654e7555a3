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
    "a sentence that begins with Of": re.compile(
        r"""(?:^[ ]*|[.:;!?)|] |["#*]\s*)Of (?!course)(?=[\w`])""", re.MULTILINE
    ),
    "so many, so much, so few": re.compile(r"\bso (?:many|much|few)\b", re.IGNORECASE),
    "whoever": re.compile(r"\bwhoever\b", re.IGNORECASE),
    "who as a noun": re.compile(r"\b(?:[Ff]or|[Oo]f|[Ff]rom|[Bb]y|[Ww]ith|out) who\b|[;:] who\b"),
    "a phrase that says less than its plain form": re.compile(
        r"holds the number without noise|[Cc]an nobody list|the budget can't pay|to hand on|[Nn]obody adds up"
        r"|quotes nothing|A word is new|for a twentieth|must be at least one value|this is there already"
        r"|Other tools' work"
    ),
    "beside": re.compile(r"\bbeside\b", re.IGNORECASE),
}
BAD_NAMES = {"own", "kept", "told", "made", "few", "alone", "near", "each"}

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = [path for folder in ("dp_polars", "examples", "docs") for path in (ROOT / folder).rglob("*.py")]


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
    assert faults(path) == []


def not_there(page):
    """Return the files, classes and constants that a page tells of and that are not there. `OLD` stands for any."""
    folders = (ROOT, ROOT / "dp_polars")
    paths = [path for name in ("dp_polars", "tests") for path in (ROOT / name).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    defined = {*re.findall(r"^ *(?:class )?(\w+)(?:\(|\[| =|:)", code, re.MULTILINE)}
    files = {*re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|toml|cff))`", page)}
    names = {*re.findall(r"`(_?[A-Z]{2}[A-Z_]+|[A-Z][a-z]\w+)`", page)}
    return {name for name in files if not any((folder / name).is_file() for folder in folders)} | (
        names - defined - {"OLD"}
    )


def test_what_contributors_are_told_to_touch_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert not_there(page) == set()
    assert not_there(
        page.replace("nodes.py", "nods.py").replace("`Multiple`", "`Multipel`").replace("ASKS", "AKS")
    ) == {"_steps/nods.py", "Multipel", "AKS"}


# The tests of these tests.


def test_bad_words_are_found(tmp_path):
    for name, text, count in (
        ("page.md", "Of a plan, only the columns are compared.\n", 1),
        ("page.md", "It is so. Of `keys`, none are shown.\n| a | Of the threshold: none |\n", 2),
        ("page.md", "From so many on, take it. Whoever waits has it open.\n", 2),
        ("page.md", "The lock stays, for who waits has it; who has none waits.\n", 2),
        ("page.md", "Of course it stays: a person who waits has it. Who is protected?\n", 0),
        ("page.md", "A delta beside the loss.\n", 1),
        ("code.py", '"""Of each group: the first."""\n# Of n rows, one.\nx = f"so many {1}"\n', 3),
        ("code.py", "def f(own): ...\nfor each in (): ...\nx.kept = 1\n", 2),
        ("code.py", "from a import kept\ndef alone(): ...\nfew_rows = kept.made()\n", 0),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert len(faults(path)) == count
