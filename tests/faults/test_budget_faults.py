"""What a budget does when processes die, disks fill and files rot. Every spender is a real process."""

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._accounting.budget import Budget
from dp_polars._accounting.claims import claim_of_choice
from dp_polars._accounting.terms import Contributions, Loss
from tests.faults.asker import asked

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
NOBODY = 65534
LOSS = Fraction(1, 10)


class Forking:
    """A process that forks children and hears from them: its last argument is the number of their pipe."""

    def __init__(self, *command):
        self.pipe, write_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self.server = subprocess.Popen(
            [*map(str, command), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[write_end],
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
        os.close(write_end)

    def ask(self, line):
        print(line, file=self.server.stdin, flush=True)
        return self.server.stdout.readline()

    def said(self):
        try:
            return os.read(self.pipe, 1 << 16).decode()  # all of it: a pipe holds no more
        except BlockingIOError:
            return ""

    def close(self):
        self.server.stdin.close()
        assert self.server.wait(timeout=60) == 0
        self.server.stdout.close()
        os.close(self.pipe)


class Spender(Forking):
    """It forks spenders (spender.py)."""

    def __init__(self, *prefix):
        super().__init__(*prefix, sys.executable, HERE / "spender.py")
        self.started = 0

    def start(self, path, *, total=1_000, loss=LOSS, letter="x", **job):
        """Fork a spender and return its process id."""
        job |= {"path": str(path), "total": str(total), "loss": str(loss), "letter": letter}
        child = int(self.ask(json.dumps(job)))
        self.started += 1
        return child

    def run(self, end, path, **job):
        """Spend to the end, and return how it ended and how many charges were acknowledged."""
        self.start(path, end=str(end), **job)
        return self.ended(end), self.heard()["x"]

    def ended(self, end):
        self.wait()
        return Path(end).read_text()

    def wait(self):
        assert self.ask("") == "all ended\n"

    def heard(self):
        """Return how often each letter was heard since the last time."""
        return Counter(self.said())

    def wait_for(self, letters):
        """Return what was heard, once it holds a letter of `letters`."""
        heard, deadline = Counter(), time.monotonic() + 30
        while not any(heard[letter] for letter in letters):
            assert time.monotonic() < deadline
            heard += self.heard()
            time.sleep(0.0002)
        return heard


@pytest.fixture(scope="module")
def spender():
    with closing(Spender()) as one:
        yield one


@pytest.fixture
def open_folder():
    """A folder that a user without rights may look into, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def checked(path, total=1_000):
    """Open a ledger (which reads it whole) and return what it says, its sum against its log."""
    budget = Budget(epsilon=total, path=path)
    log = budget.log()
    assert budget.spent == sum(map(Fraction, log["exact_loss"]), Fraction(0))
    assert budget.spent + budget.remaining == total
    assert budget.remaining >= 0
    return budget.spent, log


# Kills


def test_a_hundred_kills_lose_no_acknowledged_charge(spender, tmp_path):
    rng = random.Random(1)
    path, journal = tmp_path / "ledger.db", tmp_path / "ledger.db-journal"
    acknowledged = interrupted = 0
    for kills in range(1, 101):
        child = spender.start(path, end=str(tmp_path / "end"))
        heard = spender.wait_for("!" if kills % 10 == 0 else "x")
        time.sleep(rng.uniform(0, 0.008))
        os.kill(child, signal.SIGKILL)
        spender.wait()
        acknowledged += heard["x"] + spender.heard()["x"]
        interrupted += journal.exists()
        spent, log = checked(path)
        # Each kill may leave one charge that was made and not heard of: lost budget, no unpaid release.
        assert acknowledged <= log.height <= acknowledged + kills
    assert spent == log.height * LOSS
    assert interrupted >= 10  # the kills did land inside charges (about 90 of them do)


def test_kills_while_it_is_made_leave_a_whole_ledger_or_none(spender, tmp_path):
    rng = random.Random(2)
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        child = spender.start(folder / "ledger.db", end=str(tmp_path / "end"))
        spender.wait_for("!")
        deadline = time.monotonic() + 30
        while not any(folder.iterdir()):
            assert time.monotonic() < deadline
        time.sleep(rng.uniform(0, 0.002))
        os.kill(child, signal.SIGKILL)
        spender.wait()
        acknowledged = spender.heard()["x"]
        assert not acknowledged or (folder / "ledger.db").exists()
        assert acknowledged <= checked(folder / "ledger.db")[1].height <= acknowledged + 1


# Many at once


def test_eight_spenders_spend_what_is_acknowledged_and_never_more(spender, tmp_path):
    path = tmp_path / "ledger.db"
    losses = {letter: Fraction(1, 7 + 2 * n) for n, letter in enumerate("abcdefgh")}
    start = time.time() + 0.3  # all make the ledger at the same time
    for letter, loss in losses.items():
        end = str(tmp_path / letter)
        spender.start(path, total=25, loss=loss, letter=letter, start=start, end=end)
    spender.wait()
    heard = spender.heard()
    assert [(tmp_path / letter).read_text() for letter in losses] == ["full"] * 8
    spent, log = checked(path, total=25)
    assert spent == sum(heard[letter] * loss for letter, loss in losses.items())
    assert 25 - spent < min(losses.values())  # nobody gave up early
    assert heard - Counter("!" * 8) == Counter(log["what"].to_list())
    assert set(tmp_path.glob("*ledger*")) == {path, tmp_path / "ledger.db-lock"}


def test_reading_the_file_while_charging_undoes_no_charge(spender, tmp_path):
    path = tmp_path / "ledger.db"
    start = time.time() + 0.3
    for letter in "abcd":
        spender.start(path, letter=letter, charges=40, start=start, reads=True, end=str(tmp_path / letter))
    spender.wait()
    heard = spender.heard() - Counter("!" * 4)
    assert [(tmp_path / letter).read_text() for letter in "abcd"] == ["done"] * 4
    assert heard == Counter("abcd" * 40)
    assert Counter(checked(path)[1]["what"].to_list()) == heard


def test_a_crash_under_one_name_undoes_no_charge_under_the_other(tmp_path):
    path, other = tmp_path / "ledger.db", tmp_path / "other.db"
    budget = Budget(epsilon=1_000, path=path)
    pay(budget, LOSS)
    other.hardlink_to(path)
    code = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE budget SET name = zeroblob(50000)")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code, str(other)]).returncode == -signal.SIGKILL
    assert (tmp_path / "other.db-journal").exists()
    paid = 1
    with pytest.raises(ValueError, match="must have one name, got 2 hard links"):  # else it is paid, and undone below
        pay(budget, LOSS)
    path.unlink()  # as the hint says: the name with the journal is kept
    assert checked(other)[0] == paid * LOSS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_the_name_is_given_leaves_a_ledger_or_none(tmp_path, when):
    code = """
import os, signal, sys
from dp_polars._accounting.budget import Budget
link = os.link
def crash(*names):
    if sys.argv[2] == "after":
        link(*names)
    os.kill(os.getpid(), signal.SIGKILL)
os.link = crash
Budget(epsilon=1_000, path=sys.argv[1])
"""
    path = tmp_path / "ledger.db"
    assert subprocess.run([sys.executable, "-c", code, str(path), when]).returncode == -signal.SIGKILL
    assert path.exists() == (when == "after")
    assert (tmp_path / ".ledger.db-unfinished").stat().st_nlink == (1 if when == "before" else 2)
    pay(Budget(epsilon=1_000, path=path), LOSS)
    assert checked(path)[0] == LOSS
    assert set(contents(tmp_path)) == {"ledger.db", "ledger.db-lock"}


def test_who_opens_a_ledger_while_it_gets_its_name_waits(spender, tmp_path, monkeypatch):
    path, link = tmp_path / "ledger.db", os.link

    def and_open(*names):
        link(*names)
        assert path.stat().st_nlink == 2
        spender.start(path, charges=1, end=str(tmp_path / "end"))
        spender.wait_for("!")
        time.sleep(0.2)

    monkeypatch.setattr(os, "link", and_open)
    Budget(epsilon=1_000, path=path)
    assert spender.ended(tmp_path / "end") == "done"
    assert spender.heard() == Counter("x")


def test_a_ledger_that_is_mounted_alone_is_refused(tmp_path):
    """Its journal would stay in a folder (of a container, say) that others do not see."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"]).returncode:
        pytest.skip("mounting is not permitted here")
    path, inside = Budget(epsilon=1_000, path=tmp_path / "ledger.db")._path, tmp_path / "inside"
    inside.mkdir()
    (inside / "ledger.db").touch()
    code = """
import subprocess, sys
from dp_polars._accounting.budget import Budget
folder, source, target = sys.argv[1:]
subprocess.run(["mount", "--bind", source, target], check=True)
try:
    Budget(epsilon=1_000, path=target)
except ValueError as error:
    assert "must not be a mount of its own" in str(error)
    subprocess.run(["umount", target], check=True)
    subprocess.run(["mount", "--bind", folder, folder + "/inside"], check=True)
    Budget(epsilon=1_000, path=target)
    print("refused")
"""
    run = ["unshare", "--mount", sys.executable, "-c", code, tmp_path, path, inside / "ledger.db"]
    assert subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True).stdout == "refused\n"


def test_who_makes_it_at_the_same_time_agrees(spender, tmp_path):
    for number in range(8):
        path = tmp_path / f"{number}.db"
        start = time.time() + 0.05
        for total in (1, 1, 2, 2):
            end = str(tmp_path / f"{number}-{spender.started}")
            spender.start(path, total=total, loss=1, charges=1, start=start, end=end)
        spender.wait()
        acknowledged = spender.heard()["x"]
        ends = sorted(end.read_text() for end in tmp_path.glob(f"{number}-*"))
        assert sum("must be opened with its own total" in end for end in ends) == 2, ends
        assert sum(end in ("done", "full") for end in ends) == 2
        total = acknowledged  # the winners' total is 1 or 2, and two charges of 1 use it up
        assert checked(path, total=total)[0] == total


def test_forks_among_threads_that_charge_neither_hang_nor_overspend(tmp_path):
    code = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from spender import spend, BudgetExceededError
acknowledged, acknowledge = os.pipe()
def until_full(path):
    try:
        spend(acknowledge, path=path, total=3, loss="1/10", letter="x")
    except BudgetExceededError:
        pass
for number in range(8):
    path = f"{sys.argv[1]}/{number}.db"
    threads = [threading.Thread(target=until_full, args=[path]) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            until_full(path)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    for thread in threads:
        thread.join()
    assert os.read(acknowledged, 1000) == b"x" * 30
"""
    run = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path), str(HERE)]
    subprocess.run(run, check=True, timeout=30)
    assert {checked(path, total=3)[0] for path in tmp_path.glob("*.db")} == {3}


# Disks that are full or read-only


@pytest.mark.parametrize("spare", range(0, 6_000, 750))
def test_a_file_that_may_not_grow_is_an_error_and_nothing_is_released(spender, tmp_path, spare):
    path, end = tmp_path / "ledger.db", tmp_path / "end"
    largest = Budget(epsilon=1_000, path=path)._path.stat().st_size + spare
    ended, acknowledged = spender.run(end, path, largest_file=largest)
    assert ended.startswith(f"OSError: The ledger '{path}' could not be read or written: "), ended
    assert "Nothing was released" in ended
    assert checked(path)[0] == acknowledged * LOSS
    assert spender.run(end, path, charges=3) == ("done", 3)  # and with room again it goes on
    assert checked(path)[0] == (acknowledged + 3) * LOSS


def test_no_ledger_is_made_on_a_full_disk(spender, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    ended, acknowledged = spender.run(tmp_path / "end", folder / "ledger.db", largest_file=5_000)
    assert ended.startswith(f"OSError: The ledger '{folder / 'ledger.db'}' could not be made: "), ended
    assert "Hint: its folder must be writable, with free space" in ended
    assert acknowledged == 0
    assert contents(folder) == {"ledger.db-lock": b""}


def test_a_full_disk_is_an_error_and_nothing_is_released(tmp_path):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"]).returncode:
        pytest.skip("mounting a tiny disk is not permitted here; the limit on file sizes stands for it")
    with closing(Spender("unshare", "--mount")) as spender:
        for size in range(48, 80, 4):
            folder = tmp_path / str(size)
            folder.mkdir()
            path, end = folder / "ledger.db", tmp_path / "end"
            ended, acknowledged = spender.run(end, path, tmpfs=f"{size}k")
            assert "database or disk is full" in ended, ended
            assert ended.startswith("OSError: The ledger '")
            assert acknowledged > 0
            assert checked(Path(f"{folder}-copy") / "ledger.db")[0] == acknowledged * LOSS


@pytest.fixture
def nobody():
    """The user to run as where permissions do not bind the one who runs the tests."""
    return NOBODY if os.geteuid() == 0 else None


READ_ONLY = "must be writable, and its folder too"


def test_no_ledger_is_made_in_a_read_only_folder(spender, open_folder, nobody, tmp_path):
    open_folder.chmod(0o555)
    ended, acknowledged = spender.run(tmp_path / "end", open_folder / "ledger.db", user=nobody)
    assert ended.startswith(f"PermissionError: The ledger '{open_folder / 'ledger.db'}' could not be made")
    assert (acknowledged, contents(open_folder)) == (0, {})


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o555, 0o666), (0o777, 0o444)])
def test_a_read_only_ledger_is_refused(spender, open_folder, nobody, tmp_path, folder_mode, file_mode):
    path = open_folder / "ledger.db"
    assert spender.run(tmp_path / "end", path, charges=3) == ("done", 3)
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)
    before = contents(open_folder)
    ended, acknowledged = spender.run(tmp_path / "end", path, user=nobody)
    assert ended.startswith(f"PermissionError: The ledger '{path}' {READ_ONLY}"), ended
    assert (acknowledged, contents(open_folder)) == (0, before)


def test_an_interrupted_ledger_in_a_read_only_folder_is_refused(spender, open_folder, nobody, tmp_path):
    path, journal = open_folder / "ledger.db", open_folder / "ledger.db-journal"
    leave_hot_journal(path)
    open_folder.chmod(0o555)
    before = contents(open_folder)
    ended, _ = spender.run(tmp_path / "end", path, user=nobody)
    assert ended.startswith(f"PermissionError: The ledger '{path}' {READ_ONLY}"), ended
    assert contents(open_folder) == before
    open_folder.chmod(0o755)
    assert checked(path)[0] == 1  # and where it may be written, it is repaired
    assert not journal.exists()


def test_a_folder_that_turns_read_only_stops_the_spending(spender, open_folder, nobody, tmp_path):
    path = open_folder / "ledger.db"
    open_folder.chmod(0o777)
    spender.start(path, user=nobody, end=str(tmp_path / "end"))
    heard = spender.wait_for("x")
    open_folder.chmod(0o555)
    ended = spender.ended(tmp_path / "end")
    assert ended.startswith(("PermissionError: The ledger", "OSError: The ledger")), ended
    open_folder.chmod(0o777)
    acknowledged = heard["x"] + spender.heard()["x"]
    assert acknowledged <= checked(path)[1].height <= acknowledged + 1  # the last one's journal may be stuck


# Files that rot


def leave_hot_journal(path):
    """Make a ledger with 1 spent, and leave a charge half written to it, as a crash would."""
    budget = Budget(epsilon=1_000, path=path)
    pay(budget, *[LOSS] * 10)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
        connection.execute("BEGIN")
        connection.execute("UPDATE budget SET spent = '0', name = zeroblob(50000)")
        connection.execute("DELETE FROM charges")
        files = contents(path.parent)
    for name, content in files.items():
        (path.parent / name).write_bytes(content)


def pay(budget, *losses):
    one = Contributions(1, 1)
    claims = [claim_of_choice(Loss(x, "epsilon"), None, Fraction(1), one, "add_or_remove_one") for x in losses]
    budget._charge(
        [(f"output {i} of a query", claim) for i, claim in enumerate(claims)],
        privacy_unit="patient",
        neighboring_relation="add_or_remove_one",
    )


def test_a_half_written_charge_is_undone(tmp_path):
    leave_hot_journal(tmp_path / "ledger.db")
    assert set(contents(tmp_path)) == {"ledger.db", "ledger.db-lock", "ledger.db-journal"}
    assert checked(tmp_path / "ledger.db")[0] == 1
    assert set(contents(tmp_path)) == {"ledger.db", "ledger.db-lock"}


def problem(ask):
    """Return an answer, or the words of a clear error."""
    try:
        return ask()
    except (ValueError, OSError) as error:
        return str(error)


def test_a_rotten_ledger_is_an_error_or_still_whole(tmp_path):
    """Damage of ten kinds: a ledger that opens says what was spent, and one that does not is not touched."""
    rng = random.Random(3)
    path = tmp_path / "ledger.db"
    budget = Budget(epsilon=1_000, path=path, name="x" * 20)
    versions = [path.read_bytes()]
    for _ in range(12):
        pay(budget, *[LOSS] * 5)
        versions.append(path.read_bytes())
    spent, log, whole = budget.spent, budget.log(), versions[-1]
    page, pages = 4096, len(whole) // 4096
    assert pages >= 5

    def damaged(kind):
        data, at = bytearray(whole), rng.randrange(len(whole))
        other = versions[rng.randrange(len(versions) - 1)]
        start, source = page * rng.randrange(pages), page * rng.randrange(pages)
        if kind == "bit":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "byte":
            data[at] = rng.randrange(256)
        elif kind == "byte in use":
            at = rng.choice([i for i in range(start, start + page) if data[i]])
            data[at] = rng.randrange(256)
        elif kind == "header":
            data[rng.randrange(100)] = rng.randrange(256)
        elif kind == "zeros":
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        elif kind == "noise":
            data[at : at + 64] = rng.randbytes(len(data[at : at + 64]))
        elif kind == "short":
            del data[at:]
        elif kind == "lost page":
            data[start : start + page] = bytes(page)
        elif kind == "page of another place":
            data[start : start + page] = data[source : source + page]
        elif kind == "older page" and start + page <= len(other):
            data[start : start + page] = other[start : start + page]
        return bytes(data)

    kinds = [
        *("bit", "byte", "byte in use", "header", "zeros"),
        *("noise", "short", "lost page", "page of another place", "older page"),
    ]
    seen = Counter()
    for kind in itertools.chain.from_iterable([kinds] * 100):
        data = damaged(kind)
        path.write_bytes(data)
        said = problem(lambda: (Budget(epsilon=1_000, path=path).spent, Budget(epsilon=1_000, path=path).log()))
        if isinstance(said, str):
            assert said.startswith(f"The ledger '{path}' "), said
            assert contents(tmp_path) == {"ledger.db": data, "ledger.db-lock": b""}
            seen[kind, "error"] += 1
            continue
        seen[kind, "whole"] += 1
        assert said[0] == spent
        assert_frame_equal(said[1], log)
        # What opens can be spent from, and that charge stays, or else there is an error.
        pay(Budget(epsilon=1_000, path=path), LOSS)
        assert Budget(epsilon=1_000, path=path).spent == spent + LOSS
    assert all(seen[kind, "error"] for kind in kinds), seen
    assert seen["short", "whole"] + seen["lost page", "whole"] == 0


KILLS = 100


class Asker(Forking):
    """It forks askers (asker.py)."""

    def __init__(self, path):
        super().__init__(sys.executable, HERE / "asker.py", path)

    def killed(self, first, wait):
        """Let a child ask until it has an answer, and a moment longer; return what it said before it was killed."""
        child, said, deadline = int(self.ask(first)), "", time.monotonic() + 60
        while "released" not in said:
            assert time.monotonic() < deadline
            said += self.said()
            time.sleep(0.0002)
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
        assert self.server.stdout.readline() == "ended\n"
        return [line.split() for line in (said + self.said()).splitlines()]


def test_a_hundred_kills_leave_no_free_draw(tmp_path):
    rng = random.Random(4)
    path = tmp_path / "ledger.db"
    drawn, released, first = Counter(), {}, 0
    with closing(Asker(path)) as asker:
        for _ in range(KILLS):
            for word, name, *answer in asker.killed(first, rng.uniform(0, 0.1)):
                if word == "drawn":
                    drawn[name] += 1
                else:
                    released[name] = int(*answer)
            budget = dpp.Budget(epsilon=10_000, path=path)  # which reads the ledger whole
            charges = Counter(what.partition(":")[0] for what in budget.log()["what"])
            kept = Counter(query.partition(":")[0] for query in budget.answers()["query"])
            assert budget.spent == charges.total() * Fraction(1, 8)
            # Whatever was drawn was paid before, and so was whatever is kept.
            assert all(number <= charges[name] for counted in (drawn, kept) for name, number in counted.items())
            # Who heard an answer finds it.
            assert set(released) <= set(kept)
            # A query whose answer was lost is asked once more, and paid once more.
            first = max(int(name[1:]) for name in kept) + 1
    spent = budget.spent
    for name, answer in released.items():
        assert asked(budget, int(name[1:])).release().item() == answer
    assert budget.spent == spent
    assert charges.total() - kept.total() >= 5  # kills did land between a charge and its answer
    assert len(released) >= KILLS
