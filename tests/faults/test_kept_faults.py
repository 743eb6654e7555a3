"""Answers that are kept, where the process dies at a random instant: a charge may be lost, a draw is never free."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

import dp_polars as dpp
from tests.faults.asker import asked

pytestmark = pytest.mark.slow

KILLS = 100


class Asker:
    """A process that forks askers (asker.py) and hears from them."""

    def __init__(self, path):
        self.pipe, write_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("asker.py")), str(path), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[write_end],
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
        os.close(write_end)

    def killed(self, first, wait):
        """Let a child ask until it has an answer, and a moment longer; return what it said before it was killed."""
        print(first, file=self.server.stdin, flush=True)
        child, said, deadline = int(self.server.stdout.readline()), "", time.monotonic() + 60
        while "released" not in said:
            assert time.monotonic() < deadline
            said += self.heard()
            time.sleep(0.0002)
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
        assert self.server.stdout.readline() == "ended\n"
        return [line.split() for line in (said + self.heard()).splitlines()]

    def heard(self):
        try:
            return os.read(self.pipe, 1 << 16).decode()  # all of it: a pipe holds no more
        except BlockingIOError:
            return ""

    def close(self):
        self.server.stdin.close()
        assert self.server.wait(timeout=60) == 0
        self.server.stdout.close()
        os.close(self.pipe)


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
            kept = Counter(question.partition(":")[0] for question in budget.answers()["question"])
            assert budget.spent == charges.total() * Fraction(1, 8)
            # Whatever was drawn was paid before, and so was whatever is kept.
            assert all(number <= charges[name] for counted in (drawn, kept) for name, number in counted.items())
            # Who heard an answer finds it.
            assert set(released) <= set(kept)
            # A question whose answer was lost is asked once more, and paid once more.
            first = max(int(name[1:]) for name in kept) + 1
    spent = budget.spent
    for name, answer in released.items():
        assert asked(budget, int(name[1:])).release().item() == answer
    assert budget.spent == spent
    assert charges.total() - kept.total() >= 5  # kills did land between a charge and its answer
    assert len(released) >= KILLS
