"""The ledger of a budget: one small SQLite database that processes share and that survives a crash.

It has one `budget` row (what was promised, how much is spent) and one `charges` row per charged output. Every
charge holds a digest of itself and of the one before; the `budget` row holds the last of these and one of its
own. So a ledger damaged anywhere is an error rather than a smaller sum, and a charge reads one row only.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_APPLICATION = 0x44505042  # "DPPB", as SQLite's application_id
_VERSION = 1
_BUSY_SECONDS = 60

_TABLES = [
    """CREATE TABLE budget (
    id INTEGER PRIMARY KEY, unit TEXT, total TEXT, name TEXT, privacy_unit TEXT, neighboring_relation TEXT,
    charges INTEGER, spent TEXT, last_digest TEXT, digest TEXT)""",
    """CREATE TABLE charges (
    id INTEGER PRIMARY KEY, microseconds INTEGER, what TEXT, mechanism TEXT, loss TEXT, running_total TEXT,
    digest TEXT)""",
]

# Whoever has a ledger open in this process holds this lock, and so does a fork: a child must not inherit an
# open ledger, for SQLite in it would believe that it holds the file's locks.
lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class Head(NamedTuple):
    """The `budget` row without its digest; numbers are exact rationals as text."""

    unit: str
    total: str
    name: str | None
    privacy_unit: str | None = None
    neighboring_relation: str | None = None
    charges: int = 0
    spent: str = "0"
    last_digest: str = ""


class Charge(NamedTuple):
    """A `charges` row without its number and digest."""

    microseconds: int
    what: str
    mechanism: str
    loss: str
    running_total: str


def in_memory(head: Head) -> sqlite3.Connection:
    """Return a new ledger that only this process has."""
    connection = _connect(":memory:")
    _fill(connection, head)
    return connection


def create(path: Path, head: Head) -> None:
    """Make the ledger elsewhere and link it: of two processes one wins, and neither sees half a file."""
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and not path.exists():
        msg = (
            f"The ledger {str(path)!r} must not be made while {str(journal)!r} is there: SQLite would take "
            "that for its own unfinished change.\n\nHint: put the ledger back that it belongs to."
        )
        raise FileExistsError(msg)
    try:
        with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            made = Path(folder, "ledger")
            with clear_errors("The new ledger"), closing(_connect(_uri(made, "rwc"))) as connection:
                _fill(connection, head)
            with suppress(FileExistsError):
                path.hardlink_to(made)
    except OSError as error:
        msg = (
            f"The ledger {str(path)!r} could not be made: {error}\n\n"
            "Hint: its folder must be writable, with free space, on a local file system that has hard links."
        )
        raise type(error)(msg) from error
    if os.name == "posix":
        folder_number = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder_number)
        finally:
            os.close(folder_number)


def open_file(path: Path) -> sqlite3.Connection:
    """Open a ledger that is there, after a look at the file: SQLite might change a foreign database."""
    where = f"The ledger {str(path)!r}"
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError as error:
        msg = f"{where} is gone, and with it what was spent."
        raise FileNotFoundError(msg) from error
    if stat.S_ISDIR(mode):
        msg = f"{where} must be a file, got a folder."
        raise IsADirectoryError(msg)
    if not stat.S_ISREG(mode):
        msg = f"{where} must be a regular file, got a link or a device.\n\nHint: give the path it points to."
        raise ValueError(msg)
    with path.open("rb") as file:
        header = file.read(100)
    ours = header[:16] == b"SQLite format 3\0" and header[68:72] == _APPLICATION.to_bytes(4, "big")
    # Bytes 18 and 19 are 1 with a rollback journal: all that is committed is then in this one file.
    if not ours or header[18:20] != b"\1\1" or header[60:64] != _VERSION.to_bytes(4, "big"):
        msg = (
            f"{where} must be one that this version of dp_polars made, got another or a damaged file.\n\n"
            "Hint: give a new budget another path; of a damaged ledger, restore a copy."
        )
        raise ValueError(msg)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        msg = f"{where} must be writable, and its folder too: a charge keeps a journal there."
        raise PermissionError(msg)
    return _connect(_uri(path, "rw"))


def check(connection: sqlite3.Connection, head: Head) -> None:
    """Read the whole ledger, and raise if any of it is damaged."""
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
    if [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master ORDER BY name")] != _TABLES:
        msg = "its tables are not as they were made"
        raise sqlite3.DatabaseError(msg)
    for _ in read_charges(connection, head):
        pass


def read_head(connection: sqlite3.Connection) -> Head:
    """Return the `budget` row."""
    rows = connection.execute("SELECT * FROM budget").fetchall()
    if len(rows) != 1 or rows[0][-1] != _digest(*rows[0][1:-1]):
        msg = "its sum does not fit the digest"
        raise sqlite3.DatabaseError(msg)
    return Head(*rows[0][1:-1])


def read_charges(connection: sqlite3.Connection, head: Head) -> Iterator[Charge]:
    """Yield every charge; raise unless they are all there, each as it was written."""
    number, digest = 0, ""
    for number, (stored_number, *values, stored_digest) in enumerate(
        connection.execute("SELECT * FROM charges ORDER BY id"), 1
    ):
        digest = _digest(digest, number, *values)
        if (number, digest) != (stored_number, stored_digest):
            msg = f"charge {number} does not fit its digest"
            raise sqlite3.DatabaseError(msg)
        yield Charge(*values)
    if (number, digest) != (head.charges, head.last_digest):
        msg = f"it holds {number} charges and should hold {head.charges}"
        raise sqlite3.DatabaseError(msg)


def write_charges(connection: sqlite3.Connection, head: Head, charges: Iterable[Charge]) -> None:
    """Append `charges`, and set `head` to what it says, with the new sum."""
    for charge in charges:
        number = head.charges + 1
        digest = _digest(head.last_digest, number, *charge)
        connection.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?)", (number, *charge, digest))
        head = head._replace(charges=number, spent=charge.running_total, last_digest=digest)
    _write_head(connection, head)


@contextmanager
def clear_errors(where: str) -> Iterator[None]:
    """Turn SQLite's errors into an OSError where the disk failed, a ValueError where the file is damaged."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the second where a damaged text is no UTF-8
        problem = str(error)
        if isinstance(error, sqlite3.OperationalError):
            if "locked" in problem:
                msg = f"{where} was busy for {_BUSY_SECONDS} seconds. Nothing was released."
                raise TimeoutError(msg) from error
            if any(words in problem for words in ("full", "I/O", "readonly", "unable to open")):
                msg = f"{where} could not be read or written: {problem}. Nothing was released."
                raise OSError(msg) from error
        msg = (
            f"{where} is damaged: {problem}. Nothing was released.\n\n"
            "Hint: a new ledger would forget what was spent. Restore a copy, and count what came after it."
        )
        raise ValueError(msg) from error


def _connect(database: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        database, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # A charge lasts once its rollback journal is gone from the folder. FULL leaves the folder unsynced:
        # after a power cut the journal could be back and undo the charge. EXTRA syncs it.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"{path.as_uri()}?mode={mode}"


def _fill(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute("BEGIN")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    for table in _TABLES:
        connection.execute(table)
    _write_head(connection, head)
    connection.execute("COMMIT")


def _write_head(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute("REPLACE INTO budget VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*head, _digest(*head)))


def _digest(*values: Any) -> str:  # noqa: ANN401
    return hashlib.sha256(ascii(values).encode()).hexdigest()
