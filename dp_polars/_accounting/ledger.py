"""The file of a budget: its rows, cached answers, locks, and operations that no interruption may split."""

from __future__ import annotations

import _thread
import hashlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# The longest delay of an interruption: no signal ends a wait if its handler continues it (Polars sets such a handler).
_GLANCE_SECONDS = 0.05


class AbandonedError(RuntimeError):
    """The waiting thread was interrupted: nobody receives the result."""


class _Call:
    """A call in another thread: its result, and whether anybody waits for it."""

    def __init__(self) -> None:
        self.outcome: list[tuple[object, BaseException | None]] = []
        self.abandoned = False
        self.ended = _thread.allocate_lock()
        self.ended.acquire()

    def run(self, function: Callable[[], object]) -> None:
        _here.call = self
        try:
            self.outcome.append((function(), None))
        except BaseException as error:
            self.outcome.append((None, error))
        finally:
            self.ended.release()


class _Here(threading.local):
    call: _Call | None = None


_here = _Here()


def uninterrupted(function: Callable[[], T]) -> T:
    """Return `function()`, or raise its error. An interruption ends the wait at once, and the call when it is safe.

    Raises RuntimeError if such a call needs another one, for example in an object's finalizer: it would wait for
    itself.
    """
    if _here.call is not None:
        msg = "A budget must not be used while the same thread uses one, as in the finalizer of an object."
        raise RuntimeError(msg)
    call = _Call()
    try:
        # Not threading.Thread: its start waits in Python, and an interruption there could leave the new thread waiting.
        _thread.start_new_thread(call.run, (function,))
        while not call.ended.acquire(timeout=_GLANCE_SECONDS):
            pass
    except BaseException:
        call.abandoned = True
        raise
    result, error = call.outcome.pop()
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame
    return result  # type: ignore[return-value]


def check_wanted() -> None:
    """Raise in such a call if nobody waits for it any longer."""
    if _here.call is not None and _here.call.abandoned:
        raise AbandonedError


try:
    import fcntl
except ImportError:  # Windows: there SQLite's own locks belong to a handle, and closing another drops none
    fcntl = None  # type: ignore[assignment]

_BUSY_SECONDS = 60
_PAUSE_SECONDS = 0.002

# Held by code inside SQLite in this process, and during a fork: a child must not inherit an open ledger, because its
# SQLite would believe that it owns the file's locks. No thread waits for another process with it.
lock = threading.RLock()

# The lock files that are open in this process.
_descriptors: set[int] = set()


def _after_fork_in_child() -> None:
    """Close the lock files: if the parent dies, its child must not keep its locks."""
    while _descriptors:
        os.close(_descriptors.pop())
    lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=_after_fork_in_child)


@contextmanager
def held(path: Path, deadline: float) -> Iterator[None]:
    """Hold the lock file next to the ledger: no thread and no process has another transaction.

    The lock belongs to a descriptor that is opened here.
    Closing the ledger, or another descriptor of the lock, does not drop it, but a crash does.
    The lock file is never deleted: a waiting process may have it open.
    """
    if fcntl is None:
        yield
        return
    name = path.with_name(f"{path.name}-lock")
    while True:
        with lock:
            number = _open_lock(name, path)
            _descriptors.add(number)
        try:
            while not _has_locked(number, path):
                pause(path, deadline)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), name.stat()):  # else somebody has removed the file meanwhile
                    yield
                    return
        finally:
            # Unlock explicitly: a recently forked child may have a copy of the descriptor.
            with suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_UN)
            with lock:
                _descriptors.discard(number)
                os.close(number)


def _open_lock(name: Path, path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with suppress(FileNotFoundError):
            return os.open(name, flags)
        try:
            number = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return os.open(name, flags)
        with suppress(OSError):  # every user with read access to the ledger may lock it
            found = path.stat()
            if os.geteuid() == 0:
                os.fchown(number, found.st_uid, found.st_gid)
            os.fchmod(number, stat.S_IMODE(found.st_mode))
    except OSError as error:
        msg = (
            f"{name_of(path)} could not be locked: {error}. Nothing was released.\n\n"
            f"Hint: {str(name)!r} must be readable for all who use the ledger, like the ledger."
        )
        raise type(error)(msg) from error
    return number


def _has_locked(number: int, path: Path) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        msg = (
            f"{name_of(path)} could not be locked: {error}. Nothing was released.\n\n"
            "Hint: keep it on a local file system, which has locks (flock)."
        )
        raise OSError(msg) from error
    return True


def deadline_from_now() -> float:
    return time.monotonic() + _BUSY_SECONDS


def pause(path: Path, deadline: float) -> None:
    """Wait a moment; raise after the deadline, or if nobody waits for the charge any longer."""
    check_wanted()
    if time.monotonic() >= deadline:
        msg = f"{name_of(path)} was busy for {_BUSY_SECONDS} seconds. Nothing was released."
        raise TimeoutError(msg)
    time.sleep(_PAUSE_SECONDS)


def name_of(path: Path) -> str:
    return f"The ledger {str(path)!r}"


class RowsOf(NamedTuple):
    """The rows in memory of a data set: their digest, and its key. They never leave the ledger."""

    key: bytes
    digest: str


class StoredQuery(NamedTuple):
    dataset: str  # the name of the data set
    words: str  # the outputs, for people
    loss: str  # the cost of a release for one person, for people
    # The mark of the rows' location: see `Engine.mark`. It is only compared, not used to find rows.
    source: str
    text: str  # determines the law of the answer: statistics with equal text are equal


class StoredDraw(NamedTuple):
    """A draw of a cached answer, for other queries that need it; or a statistic that follows from its draws."""

    rows: str  # a text of the data set, the groups, the contributing rows and the limits: all must be the same
    what: str  # a text of what is drawn of them, or of the statistic
    claim: str  # the claim and the rate of the noise; of a statistic its loss and the places of its draws
    place: int  # the place of its first column among those that were drawn; -1 of a statistic


class StoredAnswer(NamedTuple):
    """A cached answer: its time in microseconds of UTC, its statistic, and its length."""

    microseconds: int
    query: StoredQuery
    size: int


def digest_of_text(*values: Any) -> str:  # noqa: ANN401
    """Return a short text that is different for different values."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()


def write(
    connection: sqlite3.Connection, microseconds: int, query: StoredQuery, answer: bytes, draws: Iterable[StoredDraw]
) -> None:
    values = (microseconds, *query, digest_of_text(query.text), hashlib.sha256(answer).hexdigest())
    number = _append(connection, "answers", values, answer)
    for rows, *draw in draws:
        _append(connection, "draws", (digest_of_text(rows), *draw, number))


def _append(connection: sqlite3.Connection, table: str, values: Iterable[object], *undigested: object) -> int:
    (number,) = connection.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()
    _write(connection, f"INSERT INTO {table}", number, *values, *undigested, digest_of_text(number, *values))
    return int(number)


def find_draws(connection: sqlite3.Connection, rows: str) -> list[tuple[int, StoredDraw]]:
    """Return the stored draws of some rows, each with the number of its answer, the newest first."""
    found = connection.execute("SELECT * FROM draws WHERE key = ? ORDER BY id DESC", (digest_of_text(rows),)).fetchall()
    draws = []
    for one in found:
        what, claim, place, answer = _checked_draw(*one)
        draws.append((answer, StoredDraw(rows, what, claim, place)))
    return draws


def _checked_draw(number: int, key: str, what: str, claim: str, place: int, answer: int, stored: str) -> Any:  # noqa: ANN401
    if digest_of_text(number, key, what, claim, place, answer) != stored:
        msg = f"draw {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return what, claim, place, answer


def find(connection: sqlite3.Connection, text: str) -> tuple[StoredAnswer, bytes] | None:
    """Return the newest cached answer of a statistic; raise if it is damaged."""
    where = "key = ? AND text = ? ORDER BY id DESC LIMIT 1"
    return _found(connection, where, digest_of_text(text), text)


def find_answer(connection: sqlite3.Connection, number: int) -> tuple[StoredAnswer, bytes] | None:
    return _found(connection, "id = ?", number)


def _found(connection: sqlite3.Connection, where: str, *values_of: object) -> tuple[StoredAnswer, bytes] | None:
    found = connection.execute(f"SELECT * FROM answers WHERE {where}", values_of).fetchone()
    if found is None:
        return None
    *values, answer, stored = found
    if not isinstance(answer, bytes) or hashlib.sha256(answer).hexdigest() != values[-1]:
        msg = f"answer {values[0]} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return _checked(*values, len(answer), stored), answer


def find_rows(connection: sqlite3.Connection, about: str) -> RowsOf | None:
    """Return the known rows of a data set; raise if they are damaged."""
    found = connection.execute("SELECT * FROM datasets WHERE about = ? ORDER BY id LIMIT 1", (about,)).fetchone()
    return None if found is None else _checked_rows(*found)


def note_rows(connection: sqlite3.Connection, about: str, rows: RowsOf) -> RowsOf:
    """Note the rows of a data set unless they are known; return the known ones."""
    known = find_rows(connection, about)
    if known is None:
        _append(connection, "datasets", (about, *rows))
    return known or rows


def _checked_rows(number: int, about: str, key: bytes, rows: str, stored: str) -> RowsOf:
    if digest_of_text(number, about, key, rows) != stored:
        msg = f"data set {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return RowsOf(key, rows)


def read(connection: sqlite3.Connection) -> Iterator[StoredAnswer]:
    """Yield the cached answers in their order; raise if one is damaged."""
    names = "id, microseconds, dataset, query, loss, source, text, key, answer_digest, length(answer), digest"
    for found in connection.execute(f"SELECT {names} FROM answers ORDER BY id"):
        yield _checked(*found)
    for found in connection.execute("SELECT * FROM datasets"):
        _checked_rows(*found)
    for found in connection.execute("SELECT * FROM draws"):
        _checked_draw(*found)


def _checked(*found: Any) -> StoredAnswer:  # noqa: ANN401
    *values, size, stored = found
    number, microseconds, *asked, key, _ = values
    query = StoredQuery(*asked)
    if digest_of_text(*values) != stored or digest_of_text(query.text) != key:
        msg = f"answer {number} does not fit its digest"
        raise sqlite3.DatabaseError(msg)
    return StoredAnswer(microseconds, query, size)


_APPLICATION = 0x44505042  # "DPPB", as SQLite's application_id

_VERSION = 9  # SQLite's user_version; no other one is opened

_TABLES = [
    """CREATE TABLE answers (
    id INTEGER PRIMARY KEY, microseconds INTEGER, dataset TEXT, query TEXT, loss TEXT, source TEXT, text TEXT,
    "key" TEXT, answer_digest TEXT, answer BLOB, digest TEXT)""",
    "CREATE INDEX answers_by_key ON answers (key)",
    """CREATE TABLE budget (
    id INTEGER PRIMARY KEY, unit TEXT, total TEXT, name TEXT, privacy_unit TEXT, neighboring_relation TEXT,
    charges INTEGER, spent TEXT, last_digest TEXT, delta TEXT, spent_delta TEXT,
    keys_delta TEXT, "order" TEXT, rho TEXT, spent_divergence TEXT, is_said INTEGER, is_closed INTEGER, digest TEXT)""",
    """CREATE TABLE charges (
    id INTEGER PRIMARY KEY, microseconds INTEGER, what TEXT, mechanism TEXT, unit TEXT, loss TEXT, running_total TEXT,
    delta TEXT, running_delta TEXT, rho TEXT, running_divergence TEXT, unchecked INTEGER, digest TEXT)""",
    """CREATE TABLE datasets (
    id INTEGER PRIMARY KEY, about TEXT, "key" BLOB, "rows" TEXT, digest TEXT)""",
    """CREATE TABLE draws (
    id INTEGER PRIMARY KEY, "key" TEXT, what TEXT, claim TEXT, place INTEGER, answer INTEGER, digest TEXT)""",
    "CREATE INDEX draws_by_key ON draws (key)",
]


class Head(NamedTuple):
    """The `budget` row without its digest; numbers are exact rationals as text.

    The part of delta for keys, the order of divergences and the largest rho belong to a guarantee of (epsilon, delta).
    They are None for other budgets. Its sum of epsilons is None after a release without epsilon.
    `is_said` is 1 if the part for keys was given. `is_closed` is 1 if one release took the whole guarantee. Else they
    are 0.
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
    is_said: int = 0
    is_closed: int = 0


class Charge(NamedTuple):
    """A `charges` row without its number and digest; `unchecked` is 1 for unchecked preprocessing, else 0.

    In sums of losses, all losses are in the budget's unit.
    In a guarantee of (epsilon, delta), each loss is in its requested unit, with its `rho`.
    Its running total of epsilons is None after a release without epsilon.
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
    with lock:
        connection = _connect(":memory:")
        _fill(connection, head)
    return connection


@contextmanager
def transaction_in_memory(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Yield this process's ledger, and commit; after an error, the next transaction undoes the writes."""
    with lock:
        connection.rollback()  # the last one's writes, if it failed
        connection.execute("BEGIN")
        yield connection
        _commit(connection, "The budget")


def create(path: Path, head: Head) -> None:
    """Make the ledger under another name and link it: nobody sees half a file, or loses an existing one."""
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and not path.exists():
        msg = (
            f"{name_of(path)} must not be made while {str(journal)!r} is there: SQLite would take "
            "that for its own unfinished change.\n\nHint: put the ledger back that it belongs to."
        )
        raise FileExistsError(msg)
    try:
        with held(path, deadline_from_now()), lock:
            _sweep(path)  # remove remains of a crash
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
                number = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)
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
    """Yield the ledger, open and locked, and commit; on any error undo the writes."""
    deadline = deadline_from_now()
    with lock:
        _look(path)  # before locking, which would leave a file next to a file that is no ledger
    with held(path, deadline):
        while True:
            with lock:
                # In this order: closing the inspected file drops SQLite's locks in this process.
                found = _look(path)
                _check_names(path, found)
                connection = _begun(path)
                if connection is not None:
                    with closing(connection):  # closing undoes uncommitted writes
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
    # Bytes 18 and 19 are 1 with a rollback journal: then this one file has all that is committed.
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
    """Raise if another path leads to the ledger: nobody would find this path's journal and lock there."""
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
    """Return the number of the mount that contains `path`, if Linux reports it."""
    number = os.open(path, os.O_PATH | os.O_CLOEXEC)  # closing such a descriptor drops no lock
    try:
        with open(f"/proc/self/fdinfo/{number}") as lines:  # noqa: PTH123
            return next((line for line in lines if line.startswith("mnt_id:")), None)
    except OSError:
        return None
    finally:
        os.close(number)


def _check_unmoved(path: Path, found: os.stat_result) -> None:
    """Raise unless the changed file is still at `path`."""
    with suppress(OSError):
        if os.path.samestat(found, path.lstat()):
            return
    msg = (
        f"{name_of(path)} was moved, removed or replaced while it was in use. Nothing was released, but the charge may "
        "be in the file that was there."
    )
    raise OSError(msg)


def _begun(path: Path) -> sqlite3.Connection | None:
    """Return the ledger with all of SQLite's locks, so that a commit needs none. None: another program has one."""
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
    except sqlite3.Error as error:  # after the journal is gone, for example if the folder can't be synced
        msg = (
            f"{where} could not be read or written: {error}. Nothing was released, but the charge may be in it.\n\n"
            "Hint: see the log of the budget."
        )
        raise OSError(msg) from error


def check(connection: sqlite3.Connection, head: Head) -> None:
    """Read the whole ledger, and raise if any part is damaged."""
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
    tables = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master ORDER BY name")]
    if tables != _TABLES:
        msg = "its tables are not as they were made"
        raise sqlite3.DatabaseError(msg)
    for _ in (*read_charges(connection, head), *read(connection)):
        pass


def read_head(connection: sqlite3.Connection) -> Head:
    rows = connection.execute("SELECT * FROM budget").fetchall()
    if len(rows) != 1 or rows[0][-1] != digest_of_text(*rows[0][1:-1]):
        msg = "its sum does not fit the digest"
        raise sqlite3.DatabaseError(msg)
    return Head(*rows[0][1:-1])


def read_charges(connection: sqlite3.Connection, head: Head) -> Iterator[Charge]:
    """Yield every charge; raise unless all are there, each as it was written."""
    number, digest = 0, ""
    # The cursor has no name: otherwise an error's traceback would keep it, and lock the file.
    for number, (stored_number, *values, stored_digest) in enumerate(
        connection.execute("SELECT * FROM charges ORDER BY id"), 1
    ):
        digest = digest_of_text(digest, number, *values)
        if (number, digest) != (stored_number, stored_digest):
            msg = f"charge {number} does not fit its digest"
            raise sqlite3.DatabaseError(msg)
        yield Charge(*values)
    if (number, digest) != (head.charges, head.last_digest):
        msg = f"it holds {number} charges and should hold {head.charges}"
        raise sqlite3.DatabaseError(msg)


def write_charges(connection: sqlite3.Connection, head: Head, charges: Iterable[Charge]) -> None:
    """Append `charges`, and set `head`, which has the new sum."""
    for charge in charges:
        number = head.charges + 1
        digest = digest_of_text(head.last_digest, number, *charge)
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
    """Turn SQLite's errors into an OSError if the disk failed, or a ValueError if the file is damaged."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the second one for damaged text
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
        # A charge is durable once its rollback journal is gone from the folder. FULL leaves the folder unsynced: after
        # a power cut the journal could come back and undo the charge. EXTRA syncs it.
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


def _fill(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute("BEGIN")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    for table in _TABLES:
        connection.execute(table)
    _write_head(connection, head)
    connection.execute("COMMIT")


def _write_head(connection: sqlite3.Connection, head: Head) -> None:
    _write(connection, "REPLACE INTO budget", 1, *head, digest_of_text(*head))


def _write(connection: sqlite3.Connection, into: str, *values: object) -> None:
    connection.execute(f"{into} VALUES ({', '.join('?' * len(values))})", values)
