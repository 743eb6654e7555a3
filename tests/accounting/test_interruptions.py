"""Interruptions: wherever one comes, a budget has paid or is as it was, and can be used again at once."""

import gc
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest

import dp_polars as dpp
from dp_polars import _accounting
from dp_polars._accounting import ledger
from dp_polars._accounting.budget import Budget
from tests.accounting.test_deltas import pay, pure

TENTH = Fraction(1, 10)
OURS = str(Path(_accounting.__file__).parent)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """A lock that an interrupted charge still held would soon be an error."""
    monkeypatch.setattr(ledger, "_BUSY_SECONDS", 5)


@pytest.fixture(autouse=True)
def _hears_interruptions():
    """Ctrl-C raises, also where the tests run in the background of a shell, which ignores it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def budget(path):
    return Budget(epsilon=10_000, path=path)


def was_charged(budget, before):
    """Whether the charge was made; it was made once at most, whole, and others can be made at once."""
    spent = budget.spent
    pay(budget, pure(TENTH))
    assert budget.spent == spent + TENTH
    assert spent - before in (0, TENTH)
    return spent > before


@contextmanager
def interruptions(points):
    """Raise at such of the instructions that are run in the code of budgets, in this thread; yield the last one."""
    last = [0]

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last[0] += 1
            if last[0] in points:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield last
    finally:
        sys.settrace(before)


@pytest.mark.slow
@pytest.mark.parametrize("again", [0, 1, 3])
def test_an_interruption_at_any_instruction_of_the_thread_that_asks(budget, again):
    """And another one so many instructions later, while the first is being handled."""
    kept, charged, number = [], [], 1
    gc.disable()
    try:
        while True:
            before = budget.spent
            try:
                with interruptions({number, number + again}):
                    pay(budget, pure(TENTH))
                break
            except KeyboardInterrupt as error:
                kept.append(error)  # with its traceback, and all that this holds
            charged.append(was_charged(budget, before))
            number += 1
    finally:
        gc.enable()
    assert set(charged) == {False, True}  # some came before the charge, some after it
    assert number > 100
    assert budget.log().height * TENTH == budget.spent


class Spied(sqlite3.Connection):
    """A connection that may raise before or after any of its operations."""

    raises_at, when, operations, has_committed = range(0), "before", 0, False

    def execute(self, statement, *arguments):
        number = Spied.operations
        Spied.operations += 1
        if Spied.when == "before" and number in Spied.raises_at:
            raise KeyboardInterrupt
        done = super().execute(statement, *arguments)
        Spied.has_committed |= statement == "COMMIT"
        if Spied.when == "after" and number in Spied.raises_at:
            del done  # a traceback holds no statement here
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("further", [1, 2, 1000])
def test_an_interruption_at_any_operation_on_the_ledger(path, monkeypatch, when, further):
    """At one, or at others after it, too: then what was written can't be rolled back at once."""
    connect, kept, number = sqlite3.connect, [], 0
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, factory=Spied, **named))
    monkeypatch.setattr(Spied, "when", when)
    budget = Budget(epsilon=10_000, path=path)
    while True:
        before = budget.spent
        Spied.operations, Spied.raises_at, Spied.has_committed = 0, range(number, number + further), False
        try:
            pay(budget, pure(TENTH))
            break
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            Spied.raises_at = range(0)
        has_committed = Spied.has_committed
        assert was_charged(budget, before) == has_committed
        number += 1
    assert number >= 5
    assert budget.log().height * TENTH == budget.spent


def test_an_interrupted_charge_leaves_a_budget_as_it_was(budget, monkeypatch):
    write, kept = ledger.write_charges, []

    def interrupted(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write_charges", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt) as error:
                pay(budget, pure(1))
            kept.append(error)
            assert budget.spent == 0
    pay(budget, pure(1))
    assert budget.spent == 1


BY_THE_CLOCK = """
import gc, os, signal, sys
from fractions import Fraction
import polars as pl
import dp_polars as dpp

def interrupt(_, frame):  # in a release alone: elsewhere the loop below would end
    while frame is not None:
        if frame.f_code is dpp.PrivateQuery.release.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back

sys.unraisablehook = lambda _: None  # what came in the finalizer of an object
signal.signal(signal.SIGALRM, interrupt)
budget, kept, released, loss = dpp.Budget(epsilon=20, path=sys.argv[1] or None), [], 0, Fraction(1, 100)
query = pl.DataFrame({"x": [1]}).dp.protect(None, budget=budget).agg(dpp.len(epsilon=loss))
query.release()
before = budget.spent
gc.disable()
for number in range(600):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-5 + number % 200 * 1e-5, 2e-4)
            query.release()
            released += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (KeyboardInterrupt, dpp.ReleaseError) as error:  # the second where it came while Polars called us
        kept.append(error)
    assert budget.spent - before >= released * loss
assert budget.log().height * loss == budget.spent
# One that comes right after a release is counted twice.
print(released + len(kept) >= 600, max(released, len(kept)) <= 600, len(kept) > 50)
"""


@pytest.mark.slow
def test_interruptions_by_the_clock(path):
    """Real signals, some of which come while others are handled."""
    run = subprocess.run([sys.executable, "-c", BY_THE_CLOCK, str(path or "")], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("True True True\n", "")


@pytest.fixture
def signals_that_end_no_wait():
    """As Polars sets it at its first query, whenever that is."""
    signal.siginterrupt(signal.SIGINT, False)
    yield
    signal.siginterrupt(signal.SIGINT, True)


@pytest.mark.usefixtures("signals_that_end_no_wait")
def test_who_waits_for_a_busy_ledger_is_interrupted_at_once_and_pays_nothing(tmp_path):
    budget, started = Budget(epsilon=1, path=tmp_path / "ledger.db"), time.monotonic()
    main = threading.main_thread().ident
    with ledger.held(budget._path, ledger.deadline_from_now()):
        threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            pay(budget, pure(1))
        assert time.monotonic() - started < 3
        time.sleep(0.1)  # long enough for the other thread to notice
    assert budget.spent == 0


def test_what_nobody_waits_for_is_not_committed(budget, monkeypatch):
    """A charge whose release was interrupted costs nothing, unless it was all but done."""
    write, written, wait = ledger.write_charges, threading.Event(), threading.Event()

    def slowly(*arguments):
        write(*arguments)
        written.set()
        assert wait.wait(5)

    main = threading.main_thread().ident
    monkeypatch.setattr(ledger, "write_charges", slowly)
    threading.Thread(target=lambda: written.wait(5) and signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        pay(budget, pure(1))
    wait.set()
    monkeypatch.undo()
    assert budget.spent == 0


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_budget_whose_making_was_interrupted_can_be_made(path, at):
    kept = []
    try:
        with interruptions({at}):
            Budget(epsilon=1, path=path)
    except KeyboardInterrupt as error:
        kept.append(error)
    assert was_charged(Budget(epsilon=1, path=path), 0) is False


def test_a_budget_that_is_asked_within_a_charge_is_refused(budget, monkeypatch):
    """It would wait for itself."""
    write = ledger.write_charges

    def and_ask(*arguments):
        write(*arguments)
        return budget.spent

    monkeypatch.setattr(ledger, "write_charges", and_ask)
    with pytest.raises(RuntimeError, match="must not be used while the same thread uses one"):
        pay(budget, pure(1))
    monkeypatch.undo()
    assert budget.spent == 0


@pytest.mark.slow
def test_an_error_in_a_charge_holds_no_garbage(budget):
    """Its traceback does not hold the error: what it refers to goes with it."""
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(dpp.BudgetExceededError):
            pay(budget, pure(10**6))
        assert not [one for one in gc.get_objects() if isinstance(one, dpp.BudgetExceededError)]
    finally:
        gc.enable()
