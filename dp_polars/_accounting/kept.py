"""The answers that a ledger keeps: a table and an index in its database, made with the first of them.

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
    id INTEGER PRIMARY KEY, microseconds INTEGER, dataset TEXT, question TEXT, loss TEXT, text TEXT, "key" TEXT,
    answer_digest TEXT, answer BLOB, digest TEXT)""",
    "CREATE INDEX answers_by_key ON answers (key)",
]


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
    text
        All that decides the law of the answer: two questions with one text are the same.
    """

    dataset: str
    words: str
    loss: str
    text: str


class Answer(NamedTuple):
    """An answer that is kept: when it was drawn, in microseconds of UTC, what was asked, and how long it is."""

    microseconds: int
    question: Question
    size: int


def digest(*values: Any) -> str:  # noqa: ANN401
    """Return a short text of values that no other values have."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()


def are_there(connection: sqlite3.Connection) -> bool:
    """Return whether the ledger has kept an answer."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone() is not None


def write(connection: sqlite3.Connection, microseconds: int, question: Question, answer: bytes) -> None:
    """Keep an answer; the newest is the one that is found."""
    if not are_there(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for statement in (*TABLES, f"PRAGMA user_version = {version + 2}"):
            connection.execute(statement)
    (number,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM answers").fetchone()
    asked = (question.dataset, question.words, question.loss, question.text, digest(question.text))
    values = (number, microseconds, *asked, hashlib.sha256(answer).hexdigest())
    connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, answer, digest(*values)))


def find(connection: sqlite3.Connection, text: str) -> tuple[Answer, bytes] | None:
    """Return the newest answer to a question, if one is kept; raise if it is damaged."""
    if not are_there(connection):
        return None
    found = connection.execute(
        "SELECT * FROM answers WHERE key = ? AND text = ? ORDER BY id DESC LIMIT 1", (digest(text), text)
    ).fetchone()
    if found is None:
        return None
    number, answer_digest, answer = found[0], found[7], found[8]
    if not isinstance(answer, bytes) or hashlib.sha256(answer).hexdigest() != answer_digest:
        msg = f"answer {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return _checked(*found[:8], len(answer), found[9]), answer


def read(connection: sqlite3.Connection) -> Iterator[Answer]:
    """Yield what is kept, in the order in which it was; raise if it is damaged."""
    if are_there(connection):
        names = "id, microseconds, dataset, question, loss, text, key, answer_digest, length(answer), digest"
        for found in connection.execute(f"SELECT {names} FROM answers ORDER BY id"):
            yield _checked(*found)


def _checked(*found: Any) -> Answer:  # noqa: ANN401
    *values, size, stored = found
    number, microseconds, dataset, words, loss, text, key, _ = values
    if digest(*values) != stored or digest(text) != key:
        msg = f"answer {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return Answer(microseconds, Question(dataset, words, loss, text), size)
