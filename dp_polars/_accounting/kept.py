"""The answers that a ledger keeps: a table and an index in its database.

They are public. Unlike charges they are no chain: an answer that goes missing is drawn, and paid, once more.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = [
    """CREATE TABLE answers (
    id INTEGER PRIMARY KEY, microseconds INTEGER, dataset TEXT, question TEXT, loss TEXT, source TEXT, text TEXT,
    "key" TEXT, answer_digest TEXT, answer BLOB, digest TEXT)""",
    "CREATE INDEX answers_by_key ON answers (key)",
]


DATASETS = """CREATE TABLE datasets (
    id INTEGER PRIMARY KEY, about TEXT, "key" BLOB, "rows" TEXT, digest TEXT)"""


class RowsOf(NamedTuple):
    """Which rows in memory a data set stands for: their digest, and the key of it. They never leave the ledger."""

    key: bytes
    digest: str


class Question(NamedTuple):
    """What was asked.

    Parameters
    ----------
    dataset
        The name of the data set.
    words
        The outputs, for people.
    loss
        What a release costs one person, for people.
    source
        The mark of where the rows lie: see `Engine.mark`. It finds nothing, and is only compared.
    text
        All that decides the law of the answer: two questions with one text are the same.
    """

    dataset: str
    words: str
    loss: str
    source: str
    text: str


class StoredAnswer(NamedTuple):
    """An answer that is kept: when it was drawn, in microseconds of UTC, what was asked, and how long it is."""

    microseconds: int
    question: Question
    size: int


def digest(*values: Any) -> str:  # noqa: ANN401
    """Return a short text of values that no other values have."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()


def write(connection: sqlite3.Connection, microseconds: int, question: Question, answer: bytes) -> None:
    """Keep an answer; the newest is the one that is found."""
    (number,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM answers").fetchone()
    values = (number, microseconds, *question, digest(question.text), hashlib.sha256(answer).hexdigest())
    connection.execute(f"INSERT INTO answers VALUES (?{', ?' * 10})", (*values, answer, digest(*values)))


def find(connection: sqlite3.Connection, text: str) -> tuple[StoredAnswer, bytes] | None:
    """Return the newest answer to a question, if one is kept; raise if it is damaged."""
    found = connection.execute(
        "SELECT * FROM answers WHERE key = ? AND text = ? ORDER BY id DESC LIMIT 1", (digest(text), text)
    ).fetchone()
    if found is None:
        return None
    *values, answer, stored = found
    if not isinstance(answer, bytes) or hashlib.sha256(answer).hexdigest() != values[-1]:
        msg = f"answer {values[0]} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return _checked(*values, len(answer), stored), answer


def find_rows(connection: sqlite3.Connection, about: str) -> RowsOf | None:
    """Return which rows a data set stands for, if that is known; raise if it is damaged."""
    found = connection.execute("SELECT * FROM datasets WHERE about = ? ORDER BY id LIMIT 1", (about,)).fetchone()
    return None if found is None else _checked_rows(*found)


def note_rows(connection: sqlite3.Connection, about: str, rows: RowsOf) -> RowsOf:
    """Note which rows a data set stands for, unless that is known; return what is."""
    known = find_rows(connection, about)
    if known is None:
        (number,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM datasets").fetchone()
        values = (number, about, *rows)
        connection.execute("INSERT INTO datasets VALUES (?, ?, ?, ?, ?)", (*values, digest(*values)))
    return known or rows


def _checked_rows(number: int, about: str, key: bytes, rows: str, stored: str) -> RowsOf:
    if digest(number, about, key, rows) != stored:
        msg = f"data set {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return RowsOf(key, rows)


def read(connection: sqlite3.Connection) -> Iterator[StoredAnswer]:
    """Yield what is kept, in the order in which it was; raise if it is damaged."""
    names = "id, microseconds, dataset, question, loss, source, text, key, answer_digest, length(answer), digest"
    for found in connection.execute(f"SELECT {names} FROM answers ORDER BY id"):
        yield _checked(*found)
    for found in connection.execute("SELECT * FROM datasets"):
        _checked_rows(*found)


def _checked(*found: Any) -> StoredAnswer:  # noqa: ANN401
    *values, size, stored = found
    number, microseconds, *asked, key, _ = values
    question = Question(*asked)
    if digest(*values) != stored or digest(question.text) != key:
        msg = f"answer {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return StoredAnswer(microseconds, question, size)
