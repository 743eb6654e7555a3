"""The ledger of a budget: one small SQLite database that processes share and that survives a crash.

It has one `budget` row (what was promised, how much is spent), one `charges` row per charged output, and the answers
that are kept. Every charge holds a digest of itself and of the one before; the `budget` row holds the last of these and
one of its own. So a ledger damaged anywhere is an error rather than a smaller sum, and a charge reads one row only.

SQLite alone does not keep it (https://www.sqlite.org/howtocorrupt.html): its locks are POSIX locks, which the
system drops when *any* descriptor of the file is closed in the process, and its journal is named after the path. So
every transaction holds a lock on a file next to the ledger, and a ledger with a second name is refused.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from dp_polars._accounting import kept
from dp_polars._accounting.kept import digest as _digest
from dp_polars._accounting.locks import deadline_from_now, held, lock, name_of, pause
from dp_polars._accounting.uninterrupted import check_wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_APPLICATION = 0x44505042  # "DPPB", as SQLite's application_id

_VERSION = 6  # as SQLite's user_version; no other one is opened

_TABLES = [
    *kept.TABLES,
    """CREATE TABLE budget (
    id INTEGER PRIMARY KEY, unit TEXT, total TEXT, name TEXT, privacy_unit TEXT, neighboring_relation TEXT,
    charges INTEGER, spent TEXT, last_digest TEXT, delta TEXT, spent_delta TEXT,
    keys_delta TEXT, "order" TEXT, rho TEXT, spent_divergence TEXT, digest TEXT)""",
    """CREATE TABLE charges (
    id INTEGER PRIMARY KEY, microseconds INTEGER, what TEXT, mechanism TEXT, unit TEXT, loss TEXT, running_total TEXT,
    delta TEXT, running_delta TEXT, rho TEXT, running_divergence TEXT, unchecked INTEGER, digest TEXT)""",
    kept.DATASETS,
]


class Head(NamedTuple):
    """The `budget` row without its digest; numbers are exact rationals as text.

    The part of delta for keys, the order of divergences and the largest rho are those of a promise of (epsilon, delta),
    and None for others. Its sum of epsilons is None once a release had none.
    """

    unit: str
    total: str
    name: str | None
    privacy_unit: str | None = None
    neighboring_relation: str | None = None
    charges: int = 0
    spent: str | None = "0"
    last_digest: str = ""
    delta: str | None = None
    spent_delta: str = "0"
    keys_delta: str | None = None
    order: str | None = None
    rho: str | None = None
    spent_divergence: str = "0"


class Charge(NamedTuple):
    """A `charges` row without its number and digest; `unchecked` is 1 where the table was taken unchecked, else 0.

    Sums of losses have all losses in their unit. A promise of (epsilon, delta) has each in the unit that it was asked
    in, with its `rho`; the running total of epsilons is None once a release had none.
    """

    microseconds: int
    what: str
    mechanism: str
    unit: str
    loss: str
    running_total: str | None
    delta: str
    running_delta: str
    rho: str | None
    running_divergence: str
    unchecked: int = 0


def in_memory(head: Head) -> sqlite3.Connection:
    """Return a new ledger that only this process has."""
    with lock:
        connection = _connect(":memory:")
        _fill(connection, head)
    return connection


@contextmanager
def transaction_in_memory(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Yield a ledger of this process, and commit; after an error the next one undoes what was written."""
    with lock:
        connection.rollback()  # what the last one left, if it failed
        connection.execute("BEGIN")
        yield connection
        _commit(connection, "The budget")


def create(path: Path, head: Head) -> None:
    """Make the ledger under another name and link it: nobody sees half a file, or loses one that is there."""
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and not path.exists():
        msg = (
            f"{name_of(path)} must not be made while {str(journal)!r} is there: SQLite would take "
            "that for its own unfinished change.\n\nHint: put the ledger back that it belongs to."
        )
        raise FileExistsError(msg)
    try:
        with held(path, deadline_from_now()), lock:
            _sweep(path)  # what a crash here left
            if os.path.lexists(path):
                return
            try:
                unfinished = _unfinished(path)
                with clear_errors("The new ledger"), closing(_connect(_uri(unfinished, "rwc"))) as connection:
                    _fill(connection, head)
                with suppress(FileExistsError):
                    os.link(unfinished, path)
            finally:
                _sweep(path)
            if os.name == "posix":
                _sync_folder(path.parent)
    except TimeoutError:
        raise
    except OSError as error:
        msg = (
            f"{name_of(path)} could not be made: {error}\n\n"
            "Hint: its folder must be writable, with free space, on a local file system that has hard links and locks."
        )
        raise type(error)(msg) from error


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield the ledger, open and all one's own, and commit; on any error undo what was written."""
    deadline = deadline_from_now()
    with lock:
        _look(path)  # before locking, which would leave a file next to something that is no ledger
    with held(path, deadline):
        while True:
            with lock:
                # In this order: closing the file that is looked at drops SQLite's locks in this process.
                found = _look(path)
                _check_names(path, found)
                connection = _begun(path)
                if connection is not None:
                    with closing(connection):  # which undoes what is not committed
                        yield connection
                        _commit(connection, name_of(path))
                    _check_unmoved(path, found)
                    return
            pause(path, deadline)  # another program has it open


def _look(path: Path) -> os.stat_result:
    """Raise unless the file is a ledger: SQLite might change a foreign database."""
    where = name_of(path)
    try:
        found = path.lstat()
    except FileNotFoundError as error:
        msg = f"{where} is gone, and with it what was spent."
        raise FileNotFoundError(msg) from error
    if stat.S_ISDIR(found.st_mode):
        msg = f"{where} must be a file, got a folder."
        raise IsADirectoryError(msg)
    if not stat.S_ISREG(found.st_mode):
        msg = f"{where} must be a regular file, got a link or a device.\n\nHint: give the path it points to."
        raise ValueError(msg)
    with path.open("rb") as file:
        header = file.read(100)
    ours = header[:16] == b"SQLite format 3\0" and header[68:72] == _APPLICATION.to_bytes(4, "big")
    # Bytes 18 and 19 are 1 with a rollback journal: all that is committed is then in this one file.
    version = int.from_bytes(header[60:64], "big")
    if not ours or header[18:20] != b"\1\1" or version != _VERSION:
        msg = (
            f"{where} must be one that this version of dp_polars made, got another or a damaged file.\n\n"
            "Hint: give a new budget another path. If the ledger is damaged, restore a copy."
        )
        raise ValueError(msg)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        msg = f"{where} must be writable, and its folder too: a charge keeps a journal there."
        raise PermissionError(msg)
    return found


def _check_names(path: Path, found: os.stat_result) -> None:
    """Raise if the ledger may be reached by another path, where nobody would find this path's journal and lock."""
    why = (
        "SQLite's journal and the lock are named after the path, so a crash while the other is used would undo "
        "charges.\n\nHint:"
    )
    if found.st_nlink != 1:
        with suppress(OSError):
            _sweep(path)  # a crash left the name under which it was made
        links = path.lstat().st_nlink
        if links != 1:
            msg = (
                f"{name_of(path)} must have one name, got {links} hard links. {why} find the others with "
                "`find -samefile`. Keep the one with a `-journal` next to it (any, if none has), and remove the rest."
            )
            raise ValueError(msg)
    if hasattr(os, "O_PATH") and _mount(path) != _mount(path.parent):
        msg = f"{name_of(path)} must not be a mount of its own. {why} mount its folder (for a container, say)."
        raise ValueError(msg)


def _mount(path: Path) -> str | None:
    """Return the number of the mount that `path` is in, if Linux says it."""
    number = os.open(path, os.O_PATH | os.O_CLOEXEC)  # a descriptor whose closing drops no lock
    try:
        with open(f"/proc/self/fdinfo/{number}") as lines:  # noqa: PTH123
            return next((line for line in lines if line.startswith("mnt_id:")), None)
    except OSError:
        return None
    finally:
        os.close(number)


def _check_unmoved(path: Path, found: os.stat_result) -> None:
    """Raise unless the file that was changed is the one at `path`."""
    with suppress(OSError):
        if os.path.samestat(found, path.lstat()):
            return
    msg = (
        f"{name_of(path)} was moved, removed or replaced while it was in use. Nothing was released, but the charge may "
        "be in the file that was there."
    )
    raise OSError(msg)


def _begun(path: Path) -> sqlite3.Connection | None:
    """Return the ledger with all of SQLite's locks, so that a commit needs none; None if another program has one."""
    try:
        return _connect(_uri(path, "rw"), "BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        return None


def _commit(connection: sqlite3.Connection, where: str) -> None:
    """Commit, unless nobody waits for it any longer."""
    check_wanted()
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:  # after its journal is gone, say, where the folder can't be synced
        msg = (
            f"{where} could not be read or written: {error}. Nothing was released, but the charge may be in it.\n\n"
            "Hint: see the log of the budget."
        )
        raise OSError(msg) from error


def check(connection: sqlite3.Connection, head: Head) -> None:
    """Read the whole ledger, and raise if any of it is damaged."""
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
    tables = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master ORDER BY name")]
    if tables != _TABLES:
        msg = "its tables are not as they were made"
        raise sqlite3.DatabaseError(msg)
    for _ in (*read_charges(connection, head), *kept.read(connection)):
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
        _write(connection, "INSERT INTO charges", number, *charge, digest)
        head = head._replace(
            charges=number,
            spent=charge.running_total,
            spent_delta=charge.running_delta,
            spent_divergence=charge.running_divergence,
            last_digest=digest,
        )
    _write_head(connection, head)


@contextmanager
def clear_errors(where: str) -> Iterator[None]:
    """Turn SQLite's errors into an OSError where the disk failed, a ValueError where the file is damaged."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the second where a damaged text is no UTF-8
        problem = str(error)
        words = ("full", "I/O", "readonly", "unable to open", "locked")
        if isinstance(error, sqlite3.OperationalError) and any(word in problem for word in words):
            msg = f"{where} could not be read or written: {problem}. Nothing was released."
            raise OSError(msg) from error
        msg = (
            f"{where} is damaged: {problem}. Nothing was released.\n\n"
            "Hint: a new ledger would forget what was spent. Restore a copy, and count what came after it."
        )
        raise ValueError(msg) from error


def _connect(database: str, *statements: str) -> sqlite3.Connection:
    connection = sqlite3.connect(database, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        # A charge lasts once its rollback journal is gone from the folder. FULL leaves the folder unsynced:
        # after a power cut the journal could be back and undo the charge. EXTRA syncs it.
        for statement in ("PRAGMA synchronous = EXTRA", "PRAGMA fullfsync = ON", *statements):
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"{path.as_uri()}?mode={mode}&cache=private"


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}-unfinished")


def _sweep(path: Path) -> None:
    """Remove the name under which the ledger was made; only with its lock."""
    unfinished = _unfinished(path)
    unfinished.with_name(f"{unfinished.name}-journal").unlink(missing_ok=True)
    unfinished.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _fill(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute("BEGIN")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    for table in _TABLES:
        connection.execute(table)
    _write_head(connection, head)
    connection.execute("COMMIT")


def _write_head(connection: sqlite3.Connection, head: Head) -> None:
    _write(connection, "REPLACE INTO budget", 1, *head, _digest(*head))


def _write(connection: sqlite3.Connection, into: str, *values: object) -> None:
    connection.execute(f"{into} VALUES ({', '.join('?' * len(values))})", values)
