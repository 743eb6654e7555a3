import copy
import errno
import fcntl
import gc
import math
import os
import pickle
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dp_polars import Budget, BudgetExceededError
from dp_polars._accounting import budget as budgets
from dp_polars._accounting import ledger
from dp_polars._accounting.claims import claim_of_choice
from dp_polars._accounting.terms import Contributions, Loss
from tests.accounting.test_deltas import MICRO, gaussian, keys, pure
from tests.helpers.reference import bounded_range_rho

ONE = Contributions(1, 1)
LOG = {
    "when": pl.Datetime("us", "UTC"),
    "what": pl.String,
    "loss": pl.Float64,
    "running_total": pl.Float64,
    "exact_loss": pl.String,
    "exact_delta": pl.String,
    "running_rho": pl.Float64,
    "unchecked": pl.Boolean,
    "unit": pl.String,
    "mechanism": pl.String,
    "delta": pl.Float64,
    "running_delta": pl.Float64,
}


def claim(*, epsilon=None, rho=None, mechanism=None, contributions=ONE, relation="add_or_remove_one"):
    loss = Loss.of(epsilon=epsilon, rho=rho)
    return claim_of_choice(loss, mechanism, Fraction(1), contributions, relation)


def pay(budget, *claims, unit="patient", relation="add_or_remove_one"):
    entries = [(f"mode(c{i})", one) for i, one in enumerate(claims)]
    budget._charge(entries, privacy_unit=unit, neighboring_relation=relation)


@pytest.fixture
def budget(path):
    return Budget(epsilon=1, path=path)


@pytest.fixture
def one(tmp_path):
    """A budget on the disk."""
    return Budget(epsilon=1, path=tmp_path / "ledger.db")


def contents(folder):
    """Everything in a folder: to show that nothing was changed."""
    return {p.name: p.read_bytes() if p.is_file() else None for p in Path(folder).iterdir()}


# Sums


@pytest.mark.parametrize("tenth", [0.1, Decimal("0.1"), Fraction(1, 10)])
def test_ten_tenths_fit_one_and_an_eleventh_does_not(budget, tenth):
    for n in range(10):
        assert budget.spent == Fraction(n, 10)
        pay(budget, claim(epsilon=tenth))
    assert (budget.spent, budget.remaining) == (1, 0)
    with pytest.raises(BudgetExceededError, match=r"requested epsilon=0\.1, remaining 0, short by 0\.1\."):
        pay(budget, claim(epsilon=tenth))
    assert budget.spent == 1
    assert budget.log().height == 10


def test_a_hair_too_much_is_refused(budget):
    pay(budget, claim(epsilon=1 - Fraction(1, 10**15)))
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, claim(epsilon=Fraction(1, 10**15) + Fraction(1, 10**30)))
    assert refused.value.short_by == Fraction(1, 10**30)


RHO = {
    "permute_and_flip": lambda x: x + math.exp(-x) - 1,
    "exponential": lambda x: float(bounded_range_rho(Fraction(x))),
}


@pytest.mark.parametrize("mechanism", RHO)
@pytest.mark.parametrize("asked", ["epsilon", "rho"])
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_claim_is_charged_its_cost_in_the_unit_of_the_budget(path, unit, asked, mechanism):
    """Of a loss of 1/2 over groups of 2, 2 and 1 rows, at a rate of x: epsilon = 5x, and rho = 2f(2x) + f(x)."""
    spread = claim(**{asked: Fraction(1, 2)}, mechanism=mechanism, contributions=Contributions(5, 2))
    budget = Budget(**{unit: 10}, path=path)
    pay(budget, spread)
    assert (budget.spent == Fraction(1, 2)) == (unit == asked)
    if unit != asked:
        epsilon, rho = (float(budget.spent), 0.5) if unit == "epsilon" else (0.5, float(budget.spent))
        x, of_one = epsilon / 5, RHO[mechanism]
        assert rho == pytest.approx(2 * of_one(2 * x) + of_one(x), rel=1e-12)


def test_a_charge_is_all_or_nothing(budget):
    pay(budget, claim(epsilon=0.25), claim(epsilon=0.25))
    with pytest.raises(BudgetExceededError) as refused:
        pay(budget, claim(epsilon=0.25), claim(epsilon=0.25), claim(epsilon=0.25))
    error = refused.value
    assert (error.requested, error.remaining, error.short_by) == (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))
    assert error.unit == "epsilon"
    hint = (
        "Hint: it fits at epsilon=0.5: query.scaled_to(epsilon=budget.remaining.epsilon) takes all that is left, "
        "66.6 % of what was requested; where one guarantee is shared, it fits at 0.666 times its loss_weight."
    )
    assert hint in str(error)
    assert budget.spent == Fraction(1, 2)
    assert budget.log().height == 2


def test_an_error_in_the_middle_of_a_charge_leaves_nothing(budget):
    unwritable = "\ud800"  # no UTF-8 has it
    with pytest.raises(UnicodeEncodeError):
        budget._charge(
            [("first", claim(epsilon=0.1)), (unwritable, claim(epsilon=0.1))],
            privacy_unit=None,
            neighboring_relation="add_or_remove_one",
        )
    assert (budget.spent, budget.log().height) == (0, 0)
    pay(budget, claim(epsilon=0.5))
    assert budget.spent == Fraction(1, 2)


def test_numbers_of_a_refusal_are_decimals_in_full_or_on_the_safe_side():
    budget = Budget(epsilon=Fraction(10, 3))
    pay(budget, claim(epsilon=0.1))
    with pytest.raises(BudgetExceededError, match=r"requested epsilon=40, remaining 3\.23333, short by 36\.7667\."):
        pay(budget, claim(epsilon=40))
    with pytest.raises(BudgetExceededError, match=r"short by 0\.00000000000000000001\."):
        pay(Budget(epsilon=1), claim(epsilon=1 + Fraction(1, 10**20)))


def test_a_refusal_says_which_file_and_when_it_was_charged(tmp_path, monkeypatch):
    """A script that runs twice is refused by what its first run spent: the message must say so."""
    path = tmp_path / "ledger.db"
    with pytest.raises(BudgetExceededError, match=f"The ledger '{path}' was never charged\\.\n\nHint") as refused:
        pay(Budget(epsilon=1, path=path), claim(epsilon=2))
    assert (refused.value.ledger, refused.value.last_charge) == (str(path), None)
    times = [datetime(2026, 1, day, 12, 30, 59, tzinfo=UTC) for day in (2, 3, 4)]
    for when in times:
        monkeypatch.setattr(budgets.time, "time_ns", lambda when=when: int(when.timestamp()) * 10**9)
        pay(Budget(epsilon=1, path=path), claim(epsilon=0.25))
    told = "was first charged on 2026-01-02 12:30 UTC and last on 2026-01-04 12:30 UTC; budget.log() lists"
    with pytest.raises(BudgetExceededError, match=re.escape(f"charged. The ledger '{path}' {told}")) as refused:
        pay(Budget(epsilon=1, path=path), claim(epsilon=0.5))
    for error in (refused.value, pickle.loads(pickle.dumps(refused.value))):
        assert (error.ledger, error.first_charge, error.last_charge) == (str(path), times[0], times[-1])
        assert told in str(error)
    in_memory = Budget(epsilon=1)
    pay(in_memory, claim(epsilon=1))
    with pytest.raises(BudgetExceededError) as refused:
        pay(in_memory, claim(epsilon=1))
    assert "ledger" not in str(refused.value)
    assert refused.value.ledger is refused.value.first_charge is refused.value.last_charge is None


def test_numbers_too_long_to_keep_are_refused(path):
    long, budget = Fraction(2**4100 + 1, 2**4101), Budget(epsilon=1, path=path)
    for use in (
        lambda: Budget(epsilon=long, path=path),
        lambda: pay(budget, claim(epsilon=long)),
        lambda: pay(budget, claim(epsilon=2 + Fraction(1, 2**15_000))),  # too large as well
    ):
        with pytest.raises(ValueError, match="at most 4000 bits"):
            use()
    assert budget.spent == 0


def test_a_sum_that_grows_too_long_is_refused():
    budget = Budget(epsilon=1)
    losses = [Fraction(prime**400 // 10, prime**400) for prime in (3, 5, 7, 11)]  # 634 to 1,384 bits, coprime
    for loss in losses[:3]:
        pay(budget, claim(epsilon=loss))
    with pytest.raises(ValueError, match="at most 4000 bits"):
        pay(budget, claim(epsilon=losses[3]))
    with pytest.raises(BudgetExceededError, match="short by"):  # and what is left still prints
        pay(budget, claim(epsilon=losses[3] * 10))
    assert budget.spent == sum(losses[:3])


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("unit", ["patient", None])
def test_the_first_charge_fixes_privacy_unit_and_relation(budget, unit, relation):
    with pytest.raises(BudgetExceededError):  # a refusal fixes nothing
        pay(budget, claim(epsilon=2, relation="add_or_remove_one"), unit="doctor")
    other = "replace_one" if relation == "add_or_remove_one" else "add_or_remove_one"
    pay(budget, claim(epsilon=0.1, relation=relation), unit=unit, relation=relation)
    pay(budget, claim(epsilon=0.1, relation=relation), unit=unit, relation=relation)
    with pytest.raises(ValueError, match=f"neighboring_relation='{relation}', as at first, got .*'{other}'"):
        pay(budget, claim(epsilon=0.1, relation=other), unit=unit, relation=other)
    with pytest.raises(ValueError, match=rf"(?s)privacy_unit={unit!r} and .*got 'doctor' and .*Hint"):
        pay(budget, claim(epsilon=0.1, relation=relation), unit="doctor", relation=relation)
    assert budget.spent == Fraction(1, 5)


def test_a_claim_is_for_the_relation_charged():
    budget = Budget(epsilon=1)
    with pytest.raises(ValueError, match=r"claim of 'mode\(c0\)' must be for neighboring_relation='replace_one'"):
        pay(budget, claim(epsilon=0.1), relation="replace_one")
    pay(budget, claim(epsilon=0.1, relation=None), relation="replace_one")  # the caller's own sensitivity
    assert budget.spent == Fraction(1, 10)


@pytest.mark.parametrize("entry", [("x", None), ("x", Loss(Fraction(1, 10), "epsilon")), (1, claim(epsilon=0.1))])
def test_what_is_no_claim_is_refused(budget, entry):
    with pytest.raises(TypeError, match="entries must be pairs of a string and a Claim, got"):
        budget._charge([entry], privacy_unit=None, neighboring_relation="replace_one")
    assert budget.spent == 0


# The log


def test_the_log_has_a_row_for_each_output(path):
    before = datetime.now(UTC)
    budget = Budget(epsilon=2, path=path)
    assert_frame_equal(budget.log(), pl.DataFrame(schema=LOG))
    pay(budget, claim(epsilon=0.5), claim(epsilon=Fraction(1, 3), mechanism="exponential"))
    pay(budget, claim(epsilon=0.25))
    log = budget.log()
    assert log.schema == LOG
    of_all = (None, False, "epsilon")
    assert log.drop("when").rows() == [
        ("mode(c0)", 0.5, 0.5, "1/2", "0", *of_all, "permute_and_flip", 0.0, 0.0),
        ("mode(c1)", 1 / 3, 5 / 6, "1/3", "0", *of_all, "exponential", 0.0, 0.0),
        ("mode(c0)", 0.25, 13 / 12, "1/4", "0", *of_all, "permute_and_flip", 0.0, 0.0),
    ]
    assert log["when"].is_sorted()
    assert before <= log["when"][0] <= datetime.now(UTC)
    assert log["when"][0] == log["when"][1]


def test_the_log_keeps_its_order_when_the_clock_is_set_back(path, monkeypatch):
    one = Budget(epsilon=1, path=path)
    seconds = iter([2_000_000_000, 1_000_000_000, -1])
    monkeypatch.setattr(budgets.time, "time_ns", lambda: next(seconds) * 10**9)
    for _ in range(3):
        pay(one, claim(epsilon=0.1))
    assert one.log()["when"].dt.year().to_list() == [2033, 2001, 1969]
    assert one.log()["running_total"].to_list() == [0.1, 0.2, 0.3]


def test_a_long_ledger_is_charged_and_read_without_a_walk_through_it(budget):
    pay(budget, *[claim(epsilon=0.0001)] * 5_000)
    statements = []
    with budget._transaction() as (connection, head):
        connection.set_trace_callback(statements.append)
        assert budget._head(connection) == head
        connection.set_trace_callback(None)
    assert statements == ["SELECT * FROM budget"]
    assert budget.log()["running_total"][-1] == 0.5


# The file


def test_a_ledger_is_shared_and_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = Budget(epsilon=0.5, path="visits.db", name="visits")
    second = Budget(epsilon=Fraction(1, 2), path=tmp_path / "visits.db")
    monkeypatch.chdir("/")
    assert first._path == second._path == tmp_path / "visits.db"
    assert second._name == "visits"
    pay(first, claim(epsilon=0.1))
    pay(second, claim(epsilon=0.2))
    assert first.spent == second.spent == Fraction(3, 10)
    with pytest.raises(ValueError, match="privacy_unit='patient'"):
        pay(second, claim(epsilon=0.1), unit="doctor")
    assert_frame_equal(first.log(), second.log())
    assert set(contents(tmp_path)) == {"visits.db", "visits.db-lock"}


def test_odd_file_names_are_taken_as_they_are(tmp_path):
    for name in [":memory:", "a b?mode=ro#x%20", "façade.db", "file:x"]:
        pay(Budget(epsilon=1, path=tmp_path / name), claim(epsilon=0.1))
        assert Budget(epsilon=1, path=str(tmp_path / name)).spent == Fraction(1, 10)
    assert len(list(tmp_path.iterdir())) == 8  # each with its lock


def test_commits_are_synced_to_the_disk_and_the_folder(one):
    with one._transaction() as (connection, _):
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_the_folder_is_synced_once_the_new_ledger_is_in_it(tmp_path, monkeypatch):
    synced = []

    def fsync(number):
        synced.append((os.fstat(number).st_ino, sorted(contents(tmp_path))))

    monkeypatch.setattr(os, "fsync", fsync)
    Budget(epsilon=1, path=tmp_path / "ledger.db")
    assert synced == [(tmp_path.stat().st_ino, ["ledger.db", "ledger.db-lock"])]


def test_what_appears_while_a_ledger_is_made_is_not_replaced(tmp_path, monkeypatch):
    path, link = tmp_path / "ledger.db", os.link

    def after_another(made, target):
        path.write_text("another's")
        link(made, target)

    monkeypatch.setattr(os, "link", after_another)
    with pytest.raises(ValueError, match="must be one that this version of dp_polars made"):
        Budget(epsilon=1, path=path)
    assert contents(tmp_path) == {"ledger.db": b"another's", "ledger.db-lock": b""}


def test_a_ledger_has_one_name(tmp_path):
    path, other = tmp_path / "ledger.db", tmp_path / "other.db"
    one = Budget(epsilon=1, path=path)
    pay(one, claim(epsilon=0.1))
    other.hardlink_to(path)
    before = path.read_bytes()
    for use in (
        lambda: one.spent,
        lambda: pay(one, claim(epsilon=0.1)),
        lambda: Budget(epsilon=1, path=path),
        lambda: Budget(epsilon=1, path=other),
    ):
        with pytest.raises(ValueError, match=r"(?s)must have one name, got 2 hard links\. .*Hint: find the others"):
            use()
    assert path.read_bytes() == before
    other.unlink()
    pay(one, claim(epsilon=0.1))
    assert one.spent == Fraction(1, 5)


def test_a_ledger_that_is_moved_under_a_charge_is_an_error(one, tmp_path, monkeypatch):
    write = ledger.write_charges

    def and_move(*arguments):
        write(*arguments)
        one._path.rename(tmp_path / "moved.db")

    monkeypatch.setattr(ledger, "write_charges", and_move)
    with pytest.raises(OSError, match=r"was moved, removed or replaced .* the charge may be in the file"):
        pay(one, claim(epsilon=0.1))
    monkeypatch.undo()
    assert Budget(epsilon=1, path=tmp_path / "moved.db").spent == Fraction(1, 10)


@pytest.mark.parametrize("written", [True, False])
def test_an_error_at_the_end_does_not_say_that_nothing_was_charged(tmp_path, monkeypatch, written):
    class Fails(sqlite3.Connection):
        def execute(self, statement, *arguments):
            if statement == "COMMIT":
                if written:  # as where the folder can't be synced once the journal is gone
                    super().execute("COMMIT")
                msg = "disk I/O error"
                raise sqlite3.OperationalError(msg)
            return super().execute(statement, *arguments)

    one = Budget(epsilon=1, path=tmp_path / "ledger.db")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, factory=Fails, **named))
    with pytest.raises(OSError, match=r"could not be read or written: disk I/O error\. .*the charge may be in it"):
        pay(one, claim(epsilon=0.1))
    monkeypatch.undo()
    assert one.spent == (Fraction(1, 10) if written else 0)


@pytest.mark.parametrize(
    ("made_with", "arguments", "message"),
    [
        ("visits", {"epsilon": 2}, r"own total, epsilon=1, got epsilon=2\."),
        ("visits", {"epsilon": 1 + Fraction(1, 10**20)}, r"epsilon=1, got epsilon=1\.00000000000000000001\."),
        ("visits", {"rho": 1}, r"own total, epsilon=1, got rho=1\."),
        ("visits", {"epsilon": 1, "name": "visit"}, r"own name, 'visits', got 'visit'\."),
        (None, {"epsilon": 1, "name": "visits"}, "own name, None, got 'visits'"),
    ],
)
def test_another_total_unit_or_name_is_refused(tmp_path, made_with, arguments, message):
    pay(Budget(epsilon=1, path=tmp_path / "ledger.db", name=made_with), claim(epsilon=0.1))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=message):
        Budget(**arguments, path=tmp_path / "ledger.db")
    assert contents(tmp_path) == before


def foreign_database(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE budget (x)")


def database_in_wal_mode(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        connection.commit()
        copy = shutil.copytree(path.parent, path.parent.with_name("copy"))
    shutil.rmtree(path.parent)  # closing has folded the log in; the copy still has it
    copy.rename(path.parent)


def database_with_a_hot_journal(path):
    foreign_database(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO budget VALUES (zeroblob(100000))")
        copy = shutil.copytree(path.parent, path.parent.with_name("copy"))
    shutil.rmtree(path.parent)
    copy.rename(path.parent)
    assert path.with_name(path.name + "-journal").exists()


def ledger_of_another_version(path, version):
    Budget(epsilon=1, path=path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def ledger_in_wal_mode(path):
    Budget(epsilon=1, path=path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


@pytest.mark.parametrize(
    "make",
    [
        Path.touch,
        lambda path: path.write_text("epsilon,what\n"),
        lambda path: path.write_bytes(bytes(10_000)),
        lambda path: path.write_bytes(b"SQLite format 3\0"),
        foreign_database,
        database_in_wal_mode,
        database_with_a_hot_journal,
        *(partial(ledger_of_another_version, version=version) for version in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)),
        ledger_in_wal_mode,
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, make):
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder / "ledger.db")
    before = contents(folder)
    with pytest.raises(ValueError, match=r"'.*ledger.db' must be one that this version of dp_polars made"):
        Budget(epsilon=1, path=folder / "ledger.db")
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        (".", IsADirectoryError, "must be a file, got a folder"),
        ("..", IsADirectoryError, "must be a file, got a folder"),
        ("no/ledger.db", FileNotFoundError, "(?s)must be in an existing folder.*Hint: create"),
        ("file/ledger.db", FileNotFoundError, "must be in an existing folder"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path, place, error, words):
    (tmp_path / "file").touch()
    with pytest.raises(error, match=words):
        Budget(epsilon=1, path=tmp_path / place)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    code = "import sys, dp_polars; dp_polars.Budget(epsilon=1, path=sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "fifo"], stderr=subprocess.PIPE, text=True, timeout=30)
    assert "must be a regular file, got a link or a device" in run.stderr


@pytest.mark.parametrize("target", ["there.db", "nowhere.db"])
def test_a_symbolic_link_is_refused(tmp_path, target):
    Budget(epsilon=1, path=tmp_path / "there.db")
    (tmp_path / "link.db").symlink_to(target)
    with pytest.raises(ValueError, match="must be a regular file, got a link"):
        Budget(epsilon=1, path=tmp_path / "link.db")
    assert not (tmp_path / "nowhere.db").exists()


def test_a_linked_folder_is_the_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert Budget(epsilon=1, path=tmp_path / "link" / "x.db")._path == tmp_path / "folder" / "x.db"


def test_the_journal_of_a_lost_ledger_is_not_played_back_onto_a_new_one(tmp_path):
    (tmp_path / "ledger.db-journal").write_bytes(b"x")
    with pytest.raises(FileExistsError, match=r"must not be made while .*ledger.db-journal' is there"):
        Budget(epsilon=1, path=tmp_path / "ledger.db")
    assert contents(tmp_path) == {"ledger.db-journal": b"x"}


def test_a_ledger_that_goes_missing_is_not_made_anew(one, tmp_path):
    pickled = pickle.dumps(one)
    one._path.unlink()
    for use in (lambda: one.spent, one.log, lambda: pay(one, claim(epsilon=0.1))):
        with pytest.raises(FileNotFoundError, match="is gone, and with it what was spent"):
            use()
    with pytest.raises(FileNotFoundError, match="is gone"):
        pickle.loads(pickled)
    assert contents(tmp_path) == {"ledger.db-lock": b""}


def test_a_pickle_is_refused_a_ledger_with_another_total(tmp_path):
    pickled = pickle.dumps(Budget(epsilon=1, path=tmp_path / "ledger.db"))
    (tmp_path / "ledger.db").unlink()
    Budget(epsilon=2, path=tmp_path / "ledger.db")
    with pytest.raises(ValueError, match=r"own total, epsilon=2, got epsilon=1"):
        pickle.loads(pickled)


# Of each: what else the total is, what is charged before the copy and after it, and what is said.
COPIES = {
    "a loss": ({}, [claim(epsilon=0.1)], claim(epsilon=0.2), r"0\.1 spent, and had 0\.3 before"),
    "a delta": ({"delta": MICRO, "keys_delta": MICRO}, [], keys(Fraction(1, 10**30)), "0 spent, and had "),
    "no sum of epsilons": ({"delta": MICRO}, [claim(epsilon=0.1)], gaussian(0.001), r"0\.1 spent, and had more before"),
}


@pytest.mark.parametrize(("more", "before", "after", "words"), COPIES.values(), ids=COPIES)
def test_an_older_copy_is_seen_by_who_has_seen_the_newer(tmp_path, more, before, after, words):
    budget = Budget(epsilon=1, **more, path=tmp_path / "ledger.db")
    for one in before:
        pay(budget, one)
    older = budget._path.read_bytes()
    pay(budget, after)
    pickled = pickle.dumps(budget)
    budget._path.write_bytes(older)
    for use in (lambda: pickle.loads(pickled), lambda: pay(budget, claim(epsilon=0.1))):
        with pytest.raises(ValueError, match=f"is damaged: it has {words}"):
            use()
    assert budget._path.read_bytes() == older


def test_an_older_copy_is_seen_by_every_budget_of_a_process_that_saw_the_newer(tmp_path):
    """Also after the object that saw it is gone, and where the newer charges are those of another process."""
    path = tmp_path / "ledger.db"
    pay(Budget(epsilon=1, path=path), claim(epsilon=0.1))
    older = path.read_bytes()
    pay(Budget(epsilon=1, path=path), claim(epsilon=0.2))
    newer = path.read_bytes()
    gc.collect()
    path.write_bytes(older)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"is damaged: it has 0\.1 spent, and had 0\.3 before"):
            Budget(epsilon=1, path=path)
    path.write_bytes(newer)
    assert Budget(epsilon=1, path=path).spent == Fraction(3, 10)
    code = f"import dp_polars as d; print(d.Budget(epsilon=1, path={str(path)!r}).spent)"
    path.write_bytes(older)  # a process that has never seen the newer one takes it, as the Notes say
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"1/10\n"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"is gone, and with it what was spent: this process has seen it"):
        Budget(epsilon=1, path=path)
    assert not path.exists()
    assert Budget(epsilon=2, path=path).spent == 0  # another budget, and no copy of that one


def test_a_ledger_with_another_total_or_name_says_whose_it_is(tmp_path):
    path = tmp_path / "ledger.db"
    Budget(epsilon=1, path=path, name="survey")
    nothing = r"It is that of a budget 'survey', of which nothing is spent\."
    with pytest.raises(ValueError, match=rf"(?s)own total, epsilon=1, got epsilon=2\. {nothing}.*Hint: a budget of"):
        Budget(epsilon=2, path=path)
    budget = Budget(epsilon=1, path=path)
    entries = [("top: mode of 3 candidates", claim(epsilon=0.1)), ("other", claim(epsilon=0.1))]
    budget._charge(entries, privacy_unit="patient", neighboring_relation="add_or_remove_one")
    day = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    charged = rf"charged for people by patient from {day} to {day} UTC, first for top: mode of 3 candidates\."
    for other in ({"epsilon": 2}, {"epsilon": 1, "name": "poll"}):
        with pytest.raises(ValueError, match=rf"It is that of a budget 'survey', {charged}"):
            Budget(**other, path=path)


EDITS_OF_LOSSES = [
    "UPDATE budget SET spent = '0'",
    "UPDATE budget SET total = '100'",
    "UPDATE budget SET name = NULL",
    "UPDATE budget SET digest = NULL",
    "DELETE FROM budget",
    "INSERT INTO budget (id, spent) VALUES (2, '0')",
    "DROP TABLE budget",
    "ALTER TABLE budget ADD COLUMN more",
    "DELETE FROM charges",
    "DELETE FROM charges WHERE id = 3",
    "DELETE FROM charges WHERE id = 2",
    "DELETE FROM charges WHERE id = 1",
    "UPDATE charges SET loss = '0' WHERE id = 2",
    "UPDATE charges SET what = 'nothing' WHERE id = 3",
    "UPDATE charges SET microseconds = 0 WHERE id = 1",
    "UPDATE charges SET id = 9 WHERE id = 3",
    "INSERT INTO charges (id, loss) VALUES (4, '0')",
    "DROP TABLE charges",
    "CREATE TRIGGER cheap AFTER INSERT ON charges BEGIN UPDATE budget SET spent = '0'; END",
]
EDITS_OF_DELTAS = [
    "UPDATE budget SET spent_delta = '0'",
    "UPDATE budget SET delta = '1/2'",
    "UPDATE budget SET delta = NULL",
    "UPDATE charges SET delta = '0' WHERE id = 2",
    "UPDATE charges SET running_delta = '0' WHERE id = 1",
    "DELETE FROM charges WHERE id = 3",
    "ALTER TABLE charges DROP COLUMN running_delta",
]
EDITS_OF_GUARANTEES = [
    "UPDATE budget SET keys_delta = '0'",
    """UPDATE budget SET "order" = '2'""",
    "UPDATE budget SET rho = '1'",
    "UPDATE budget SET spent_divergence = '0'",
    "UPDATE budget SET spent = '0'",
    "UPDATE charges SET rho = '0' WHERE id = 1",
    "UPDATE charges SET running_divergence = '0' WHERE id = 1",
    "UPDATE charges SET unit = 'epsilon' WHERE id = 2",
]
EDITED = [
    *((None, [claim(epsilon=0.1)] * 3, edit) for edit in EDITS_OF_LOSSES),
    *((MICRO, [keys(0.1, MICRO / 10)] * 3, edit) for edit in EDITS_OF_DELTAS),
    *((MICRO, [pure(Fraction(1, 10)), gaussian(0.001)], edit) for edit in EDITS_OF_GUARANTEES),
]


@pytest.mark.parametrize(("delta", "claims", "edit"), EDITED)
def test_an_edited_ledger_is_refused(tmp_path, delta, claims, edit):
    pay(Budget(epsilon=1, delta=delta, path=tmp_path / "ledger.db", name="x"), *claims)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute(edit)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)ledger\.db' is damaged: .*Hint: a new ledger would"):
        Budget(epsilon=1, delta=delta, path=tmp_path / "ledger.db")
    assert contents(tmp_path) == before


def test_a_charge_of_another_ledger_is_found(tmp_path):
    """Its digest fits itself, and the one after fits the ledger: only the chain shows it."""
    for name, loss in (("one.db", 0.1), ("other.db", 0.2)):
        pay(Budget(epsilon=1, path=tmp_path / name), *[claim(epsilon=loss)] * 3)
    with closing(sqlite3.connect(tmp_path / "one.db")) as connection:
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
        with connection:
            connection.execute("REPLACE INTO charges SELECT * FROM other.charges WHERE id = 2")
    with pytest.raises(ValueError, match="is damaged: charge 2 does not fit its digest"):
        Budget(epsilon=1, path=tmp_path / "one.db")


# Locks


@contextmanager
def locked_beside(path):
    with path.with_name(f"{path.name}-lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def locked_by_sqlite(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.parametrize("locked", [locked_beside, locked_by_sqlite])
def test_a_ledger_that_stays_busy_is_a_clear_error(one, monkeypatch, locked):
    monkeypatch.setattr(ledger, "_BUSY_SECONDS", 0.05)
    with locked(one._path):
        for use in (lambda: pay(one, claim(epsilon=0.1)), lambda: one.spent):
            with pytest.raises(TimeoutError, match=r"was busy for 0\.05 seconds\. Nothing was released"):
                use()
    pay(one, claim(epsilon=0.1))
    assert one.spent == Fraction(1, 10)
    assert not ledger._descriptors


@pytest.mark.slow
@pytest.mark.parametrize("locked", [locked_beside, locked_by_sqlite])
def test_who_waits_for_a_lock_holds_nobody_else_up(tmp_path, locked):
    """Neither a budget in memory, nor another ledger, nor a fork."""
    code = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
import test_budgets
from test_budgets import Budget, claim, pay
memory, one, other = Budget(epsilon=1), *(Budget(epsilon=1, path=f"{sys.argv[1]}/{n}.db") for n in ("one", "other"))
pays = threading.Thread(target=pay, args=[one, claim(epsilon=0.5)])
with getattr(test_budgets, sys.argv[3])(one._path):
    pays.start()
    pays.join(0.2)
    for budget in (memory, other):
        pay(budget, claim(epsilon=0.5))
    if os.fork() == 0:
        assert (other.spent, len(test_budgets.ledger._descriptors)) == (0.5, 0)
        os._exit(0)
    assert os.wait()[1] == 0
    assert pays.is_alive()
pays.join()
assert (memory.spent, one.spent, other.spent) == (0.5, 0.5, 0.5)
"""
    run = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path), str(Path(__file__).parent), locked.__name__]
    subprocess.run(run, check=True, timeout=ledger._BUSY_SECONDS / 2)


@pytest.mark.slow
def test_a_fork_does_not_keep_the_lock_of_a_parent_that_dies(one, monkeypatch):
    code = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[2])
from test_budgets import Budget, claim, ledger, pay
one = Budget.__new__(Budget)  # the ledger is locked: it can't be opened as usual
one.__dict__.update(Budget(epsilon=1).__dict__, _path=__import__("pathlib").Path(sys.argv[1]))
threading.Thread(target=pay, args=[one, claim(epsilon=0.5)]).start()
time.sleep(0.2)
assert ledger._descriptors
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(0.1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = [sys.executable, "-W", "ignore", "-c", code, str(one._path), str(Path(__file__).parent)]
    with locked_by_sqlite(one._path):  # so the parent has the lock beside it, and waits for SQLite's
        parent = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
        child = int(parent.stdout.readline())
        parent.wait()
        parent.stdout.close()
    try:
        monkeypatch.setattr(ledger, "_BUSY_SECONDS", 1)
        assert one.spent == 0
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_copied_descriptor_does_not_keep_the_lock(one, monkeypatch):
    """As a child has that was forked by code that tells Python nothing."""
    with one._transaction():
        copied = os.dup(*ledger._descriptors)
    monkeypatch.setattr(ledger, "_BUSY_SECONDS", 0.05)
    try:
        assert one.spent == 0
    finally:
        os.close(copied)


def test_who_has_the_lock_has_it_alone(tmp_path):
    path = tmp_path / "ledger.db"
    Budget(epsilon=1, path=path)
    number = os.open(f"{path}-lock", os.O_RDONLY)
    with ledger.held(path, ledger.deadline_from_now()):
        for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            with pytest.raises(BlockingIOError):
                fcntl.flock(number, kind | fcntl.LOCK_NB)
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(number)


def test_a_program_that_reads_the_ledger_is_waited_for_before_anything_is_charged(one, monkeypatch):
    """All of SQLite's locks are there before the sum is read: a commit that waits could be half done."""
    monkeypatch.setattr(ledger, "_BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(one._path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM charges").fetchone() == (0,)
        with pytest.raises(TimeoutError, match="was busy"):
            pay(one, claim(epsilon=0.1))
        reader.execute("COMMIT")
    assert one.spent == 0


def test_a_lock_whose_file_was_removed_while_one_waited_is_taken_anew(one, tmp_path, monkeypatch):
    beside, flock, held = tmp_path / "ledger.db-lock", fcntl.flock, []

    def flock_of_one_removed_at_first(number, operation):
        if operation != fcntl.LOCK_UN:
            held.append(os.fstat(number).st_ino)
            if len(held) == 1:
                beside.rename(tmp_path / "removed")
        flock(number, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_one_removed_at_first)
    pay(one, claim(epsilon=0.1))
    assert held == [(tmp_path / "removed").stat().st_ino, beside.stat().st_ino]


def test_the_lock_is_readable_for_whom_the_ledger_is(one, tmp_path):
    beside = tmp_path / "ledger.db-lock"
    beside.unlink()
    one._path.chmod(0o660)
    assert one.spent == 0
    assert stat.S_IMODE(beside.stat().st_mode) == 0o660


def test_what_can_not_be_locked_is_an_error(one, tmp_path, monkeypatch):
    (tmp_path / "ledger.db-lock").unlink()
    (tmp_path / "ledger.db-lock").symlink_to("ledger.db")
    with pytest.raises(OSError, match=r"(?s)could not be locked: .*Hint: '.*ledger.db-lock' must be readable"):
        pay(one, claim(epsilon=0.1))
    (tmp_path / "ledger.db-lock").unlink()

    def no_locks(number, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match=r"(?s)could not be locked: .*No locks available.*Hint: keep it on a local"):
        pay(one, claim(epsilon=0.1))
    monkeypatch.undo()
    assert one.spent == 0


def test_without_flock_a_ledger_has_the_locks_of_sqlite(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "fcntl", None)
    one = Budget(epsilon=1, path=tmp_path / "ledger.db")
    pay(one, claim(epsilon=0.1))
    assert set(contents(tmp_path)) == {"ledger.db"}
    monkeypatch.setattr(ledger, "_BUSY_SECONDS", 0.05)
    with locked_by_sqlite(one._path), pytest.raises(TimeoutError, match="was busy"):
        pay(one, claim(epsilon=0.1))
    assert one.spent == Fraction(1, 10)


# Threads, forks, copies


def test_threads_never_overspend(budget):

    def spend(_):
        try:
            pay(budget, claim(epsilon=Fraction(1, 50)))
        except BudgetExceededError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(spend, range(80))) == 50
    assert budget.remaining == 0


def test_a_budget_in_memory_has_no_copies():
    budget = Budget(epsilon=1)
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"must not be copied or pickled.*\n\nHint: give it a path"):
            make(budget)


def test_copies_of_a_budget_on_disk_share_its_ledger(tmp_path):
    budget = Budget(rho=1, path=tmp_path / "ledger.db", name="x")
    copies = [pickle.loads(pickle.dumps(budget)), copy.copy(budget), copy.deepcopy(budget)]
    for one in copies:
        pay(one, claim(rho=0.1))
    for one in copies:
        assert (one.spent, one.total, one.unit, one._name) == (Fraction(3, 10), 1, "rho", "x")


def test_a_fork_shares_a_ledger_and_is_refused_a_budget_in_memory(tmp_path):
    code = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_budgets import Budget, claim, pay
memory, shared = Budget(epsilon=1), Budget(epsilon=1, path=sys.argv[1])
for budget in (memory, shared):
    pay(budget, claim(epsilon=0.5))
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    pay(memory, claim(epsilon=0.5))
    pay(shared, claim(epsilon=0.25))
    assert (memory.remaining, shared.remaining) == (0, 0)
else:
    pay(shared, claim(epsilon=0.25))
    try:
        memory.spent
    except RuntimeError as error:
        assert "must be used by the process that made it" in str(error)
        os._exit(0)  # Polars 2.0 waits at its end for a thread that no fork has
    os._exit(1)
"""
    run = [sys.executable, "-c", code, str(tmp_path / "ledger.db"), str(Path(__file__).parent)]
    subprocess.run(run, check=True, timeout=60)


# Words


def test_a_budget_prints_what_it_has(tmp_path):
    one = Budget(epsilon=2)
    pay(one, claim(epsilon=0.75))
    assert repr(one) == "Budget(epsilon=2, spent=0.75, remaining=1.25)"
    path = tmp_path / "l.db"
    assert repr(Budget(rho=Fraction(1, 3), path=path, name="x")) == (
        f"Budget(rho=Fraction(1, 3), spent=0, remaining=1/3, path='{path}', name='x')"
    )
    assert (one.unit, one.total, one._path, one._name) == ("epsilon", 2, None, None)


NO_DELTAS = (0, 0.0, -1e-9, 1, 1.5, math.nan, math.inf, True, "1e-6")
ERRORS = (TypeError, ValueError)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "exactly one of epsilon and rho"),
        ({"epsilon": 1, "rho": 1}, TypeError, "exactly one of epsilon and rho"),
        ({"epsilon": 0}, ValueError, "epsilon must be greater than 0"),
        ({"rho": -1}, ValueError, "rho must be greater than 0"),
        ({"epsilon": math.nan}, ValueError, "epsilon must be finite"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be finite"),
        ({"rho": 2**1000}, ValueError, r"rho must be less than 2\*\*1000"),
        ({"epsilon": True}, TypeError, "epsilon must be a number"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a number"),
        ({"epsilon": 1, "name": 7}, TypeError, "name must be a string or None, got 7"),
        ({"epsilon": 1, "path": b"x"}, TypeError, "path must be a string or a path-like"),
        ({"epsilon": 1, "path": 3}, TypeError, "os.PathLike"),
        *(({"epsilon": 1, "delta": value}, ERRORS, "^delta must be ") for value in NO_DELTAS),
        ({"epsilon": 1, "delta": MICRO, "keys_delta": 2e-6}, ValueError, "^keys_delta must be "),
        ({"epsilon": 1, "delta": MICRO, "keys_delta": -1e-9}, ValueError, "^keys_delta must be "),
        ({"epsilon": 1, "delta": MICRO, "keys_delta": "1e-7"}, TypeError, "^keys_delta must be "),
        ({"epsilon": 1, "keys_delta": 1e-7}, TypeError, "^keys_delta must be "),
        ({"rho": 1, "keys_delta": 1e-7}, TypeError, "^keys_delta must be "),
        ({"rho": 1, "delta": MICRO, "keys_delta": 1e-7}, TypeError, "^keys_delta must be "),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Budget(**arguments)
