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


def test_words():
    assert {str(path.relative_to(ROOT)): found for path in PAGES + CODE if (found := faults(path))} == {}


# What the field calls it -> the package's old word, where it has the old meaning.
OLD_WORDS = {
    "guarantee, not promise": re.compile(r"""\bpromis(?:e|es|ed|ing)\b"""),
    "confidence interval, not range": re.compile(
        r"95 % ranges?\b|\b[Nn]o range (?:shows|says|tells|holds)\b|\branges? of (?:a|the) (?:number|sum|"
        r"count|mean)s?\b|\bnumbers? with (?:its|their) ranges?\b|\b(?:too low|null), and so (?:is|"
        r"are) (?:its|their) ranges?\b"
    ),
    "contribution limits, not bounds": re.compile(
        r"\b[Cc]ontribution bounds?\b|\bbounds? (?:of|on|for|per) (?:a |each |one |every )?(?:person|"
        r"people)\b|\b(?:[Tt]he|its|their|which|what) bounds (?:keep|drop)\b|\bbounds that few\b|"
        r"\bbounds of `|\b(?:[Yy]our|[Ss]maller|[Uu]nder (?:the|its|their|these)) bounds\b|"
        r"\bbounds? how (?:many|much)\b"
    ),
    "clipped, not cut": re.compile(r"\bcut (?:at|to) (?:0|zero)\b"),
    "preprocessing, not preparation": re.compile(r"""\b[Pp]reparations?\b"""),
    "selected keys, partition selection": re.compile(
        r"\b[Kk]eys that nobody list|\b[Uu]nlisted\b|\b[Nn]obody (?:has )?(?:listed|can list)\b|"
        r"\bkeys found\b"
    ),
    "package, not room": re.compile(r"\brooms\b|\b(?:[Tt]h(?:e|is|at)|[Ee]ach|[Ee]very|a|its own|one) room\b"),
    "statistic or query, not question": re.compile(r"\b[Qq]uestions?\b(?! is)|\b[Aa]sk(?:s|ed|ing)?\b(?! = )(?!\[)"),
    "contributing rows, not evidence": re.compile(r"""\b[Ee]vidence\b"""),
    "context, not company": re.compile(r"""\bin company\b"""),
    "gap, not lead": re.compile(
        r"\b(?:[Aa]|[Ii]ts|[Tt]heir) leads?\b(?! to\b)|\*\*Leads?\*\*|\bhow (?:far|much) (?:it|they|\w+) leads?\b"
    ),
    "cached, not kept": re.compile(
        r"\b[Kk]ept answers?\b|\banswers? (?:that )?(?:is|are) kept\b|\bkeeps? (?:the|every|all|an?|its) answers?\b"
    ),
    "transformation, not step": re.compile(
        r"\b[Ss]teps? of a private frame\b|\b(?:[Tt]he|[Nn]o|[Aa]) steps? (?:before|after) `|"
        r"\b[Ss]teps that (?:visibly|look)\b|\b[Ee]arlier steps\b|\blast step of a\b"
    ),
    "is, not stands": re.compile(r"\b[Ss]tands?\b(?! for\b)"),
    "part, not share": re.compile(r"""\bshares? of (?:the|its|a|this) (?:loss|guarantee|budget)\b"""),
}

CODE_ON_PAGES = re.compile(
    r"^( *)(`{3,})[^\n]*\n[\s\S]*?^\1\2 *$|`[^`\n]+`|\]\([^)\s]*\)|<!--[\s\S]*?-->", re.MULTILINE
)


def old_words(text):
    """Return the old words of a text, code aside, and also those that a line break divides."""
    prose = re.sub(r"\s+", " ", CODE_ON_PAGES.sub("`…`", text))
    return [f"{why}: {match[0]!r}" for why, old in OLD_WORDS.items() for match in old.finditer(prose)]


def texts_of(code):
    """Return the docstrings of public names of a module, and its texts of several words: messages, notes, labels."""
    tree = ast.parse(code)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (docstring := ast.get_docstring(node)):
            skipped.add(id(node.body[0].value))
            if not getattr(node, "name", "_").startswith("_"):
                yield docstring
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in skipped:
            continue
        is_sql = "TEXT" in node.value or "dataset, query" in node.value
        if " " in node.value.strip() and not is_sql:
            yield node.value


USER_PAGES = [*PAGES, ROOT / "docs" / "static" / "llms.txt"]
PACKAGE = [*(ROOT / "dp_polars").rglob("*.py")]


def texts_for_users(path):
    text = path.read_text(encoding="utf-8")
    return texts_of(text) if path.suffix == ".py" else [text]


def test_no_old_word_is_in_text_for_users():
    found = {
        (str(path), word) for path in USER_PAGES + PACKAGE for one in texts_for_users(path) for word in old_words(one)
    }
    assert found == set()


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
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "extending.md"]
    page = "\n".join(path.read_text(encoding="utf-8") for path in pages)
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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A promise of (ε, δ), with its 95 % range.", 2),
        ("The bounds keep 2 rows; contribution bounds are public.", 2),
        ("A preparation of unlisted keys.", 2),
        ("What is asked? The question was asked again.", 3),
        ("It stands for a value, and stands below; by how far it leads, cut at 0.", 3),
        ("The room has rooms; it leaves room for errors. Under its bounds it keeps every answer.", 4),
        ("A kept answer is evidence.", 2),
        ("The kept\n    answer.", 1),
        ("The steps before `protect` are steps of a private frame.", 2),
        ("`promise` and `ranges=` are code: `range(9)`.\n```python\npromise = 1\n```\n", 0),
        ("The bounded range R leads to a bound of ε, in steps of 5.", 0),
    ],
)
def test_old_words_are_found(text, count):
    assert len(old_words(text)) == count


def test_messages_and_public_docstrings_are_read():
    code = (
        'def f():\n    """A promise."""\n    raise ValueError(f"a promise of {1}")\ndef _g():\n    """A promise."""\n'
    )
    assert [word for text in texts_of(code) for word in old_words(text)] == ["guarantee, not promise: 'promise'"] * 2
