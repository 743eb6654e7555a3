"""Pages are short and in plain English: words per page, words per sentence, and no sentence that begins with "What".

Code, tables and formulas are no sentences. Words are counted without code, and with tables.
"""

import re

from tests.helpers.places import ROOT
from tests.test_words import PACKAGE, texts_of

#: The most words of a page.
MOST = {
    # Start
    "docs/index.md": 150,
    "docs/install.md": 150,
    "docs/ten_minutes.md": 800,
    "docs/first_release.md": 900,
    "docs/tour.md": 150,
    # How to
    "docs/choose.md": 700,
    "docs/epsilon.md": 900,
    "docs/limits.md": 700,
    "docs/groups.md": 500,
    "docs/budgets.md": 700,
    "docs/people.md": 900,
    "docs/cubes.md": 800,
    "docs/synthetic.md": 400,
    "docs/report.md": 700,
    "docs/databases.md": 800,
    "docs/spark.md": 800,
    "docs/opendp.md": 600,
    "docs/planner.md": 300,
    "docs/gallery.md": 500,
    "docs/whole_report.md": 700,
    # Understand
    "docs/protected.md": 1200,
    "docs/rules.md": 500,
    "docs/mechanisms.md": 700,
    "docs/how.md": 800,
    "docs/comparison.md": 900,
    "docs/performance.md": 200,
    "docs/paper.md": 1200,
    # Reference
    "docs/api/errors.md": 400,
    "docs/glossary.md": 700,
    # Assurance
    "docs/claims.md": 2000,
    "docs/verification.md": 1500,
    # Repository only
    "CONTRIBUTING.md": 600,
    "docs/extending.md": 1600,
    "docs/design.md": 3000,
}
#: Pages that are still longer than they should be, and how long they are.
LONGER: dict[str, int] = {}
#: The most words of a sentence, on average.
AVERAGE = 18
#: Pages with longer sentences, and their average, rounded up.
HARDER: dict[str, int] = {}

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Not the proofs, whose statements need their own form, nor a generated list, nor pages for contributors.
FOR_USERS = [
    path
    for path in PAGES
    if path.parent.name != "proofs" and path.name not in {"steps.md", "design.md", "extending.md"}
]

CODE = re.compile(r"^( *)(`{3,})[^\n]*\n[\s\S]*?^\1\2 *$", re.MULTILINE)
NO_SENTENCE = re.compile(r"^ *(?:#|\||>|!\[|\(|:\w+:|:{3,}|\[\w+\]: )")


def prose_of(page):
    """Return the text of a page without code, comments, and marks."""
    text = re.sub(r"<!--[\s\S]*?-->", "", CODE.sub("", page))
    text = re.sub(r"^ *:{3,}.*$|^ *:[\w-]+:.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)\s]*\)|<[^>\n]*>", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    return re.sub(r"`[^`\n]*`", "code", text)


def words_of(page):
    return re.findall(r"[^\s|*_]*\w[^\s|]*", prose_of(page))


def sentences_of(page):
    """Return the sentences of a page: each item of a list and each line begins one."""
    lines = [line for line in prose_of(page).splitlines() if line.strip() and not NO_SENTENCE.match(line)]
    texts = [re.sub(r"^ *(?:[-*]|\d+\.) +", "", line).strip() for line in lines]
    parts = [part for text in texts for part in re.split(r"(?<=[.!?])[*_)]*\s+(?=[^a-z\s])", text)]
    joined = []
    for part in parts:
        if joined and re.search(r"\b(?:al|Prop|Thm|vs|p)\.$", joined[-1]):
            joined[-1] += f" {part}"
        else:
            joined.append(part)
    return [part for part in joined if len(part.split()) > 1]


def average(page):
    sentences = sentences_of(page)
    return sum(len(one.split()) for one in sentences) / max(1, len(sentences))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def test_no_page_is_longer_than_it_should_be():
    count = {name: len(words_of((ROOT / name).read_text(encoding="utf-8"))) for name in MOST}
    assert {name: n for name, n in count.items() if n > LONGER.get(name, MOST[name])} == {}
    assert [name for name in LONGER if count[name] <= MOST[name]] == []  # short enough: take it from the list


def test_sentences_are_short_on_average():
    mean = {name_of(path): average(path.read_text(encoding="utf-8")) for path in PAGES}
    assert {name: one for name, one in mean.items() if one > HARDER.get(name, AVERAGE)} == {}
    assert [name for name in HARDER if mean[name] <= AVERAGE] == []  # short enough: take it from the list


# Things don't say, tell or stand, and a clause with "whose" or "of which" is a sentence of its own.
STIFF = re.compile(r"\b(?:says?|said|tells?|told|stands?|whose|of which|is that of)\b", re.IGNORECASE)


def faults_of(page):
    """Return what is stiff: sentences that begin with "What" or have a semicolon, and headings that are questions."""
    sentences = sentences_of(page)
    headings = [line for line in CODE.sub("", page).splitlines() if re.match(r"#+ .*\?$", line)]
    return [one for one in sentences if one.startswith("What ") or ";" in one or STIFF.search(one)] + headings


def test_pages_for_users_are_plain():
    assert {name_of(path): found for path in FOR_USERS if (found := faults_of(path.read_text(encoding="utf-8")))} == {}


def test_no_message_or_docstring_begins_a_sentence_with_what():
    found = {
        (name_of(path), text[:60])
        for path in PACKAGE
        for text in texts_of(path.read_text(encoding="utf-8"))
        if re.search(r"(?:^|[.:]\s+)What \w", text)
    }
    assert found == set()


def test_every_page_of_the_site_has_a_limit_or_is_a_reference():
    free = {path for path in PAGES if path.parent.name in {"api", "proofs"}} | {ROOT / "docs" / "api.md"}
    pages = [path for path in PAGES if path.parent.name == "docs" and path not in free]
    assert sorted(map(name_of, pages)) == sorted(name for name in MOST if re.fullmatch(r"docs/\w+\.md", name))


# The tests of these tests.


def test_sentences_and_words_are_counted_as_people_do():
    page = (
        "# A title\n\nOne two three. Four `a b c` five!\nSix seven [eight nine](ten.md) ten.\n\n- Eleven twelve:\n\n"
        "```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| c d | `e` |\n\n"
        ":::{note}\nThirteen fourteen (Smith et al. 2020) fifteen.\n:::\n\n![A figure](b.png)\n"
    )
    assert [len(one.split()) for one in sentences_of(page)] == [3, 3, 5, 2, 7]
    assert average(page) == 4
    assert len(words_of(page)) == 2 + 20 + 5


def test_a_page_that_is_hard_to_read_is_found():
    assert average("word " * 19 + "end.\n") == 20
    page = "# Is it?\n\nWhat is asked is this. It is so; it stays. A row says it. It is.\n"
    assert faults_of(page) == ["What is asked is this.", "It is so; it stays.", "A row says it.", "# Is it?"]
