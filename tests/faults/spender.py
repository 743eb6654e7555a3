"""Spends budgets in processes that may be killed: one fork per job, of a process that has imported all.

Reads jobs from stdin, one JSON object per line, and answers each with the child's process id; an empty line
waits for all children. A child writes to the pipe whose number is the first argument: "!" when it starts, its
job's letter after each charge that has returned. How it ended stands in the job's file `end`.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from dp_polars import Budget, BudgetExceededError
from dp_polars._accounting.claims import claim_of_choice
from dp_polars._accounting.terms import Contributions, Loss

RELATION = "add_or_remove_one"


def spend(acknowledge, *, path, total, loss, letter, charges=None, start=0.0, reads=False):
    """Charge one loss again and again, until the budget is full or `charges` are made; a thread may read the file."""
    claim = claim_of_choice(Loss(Fraction(loss), "epsilon"), None, Fraction(1), Contributions(1, 1), RELATION)
    time.sleep(max(0.0, start - time.time()))
    budget = Budget(epsilon=Fraction(total), path=path)
    if reads:
        threading.Thread(target=read, args=[path], daemon=True).start()
    done = 0
    while done != charges:
        budget._charge([(letter, claim)], privacy_unit="patient", neighboring_relation=RELATION)
        os.write(acknowledge, letter.encode())
        done += 1


def read(path):
    """Read the ledger's file now and then, as a backup does: closing it drops all POSIX locks of this process."""
    while True:
        Path(path).read_bytes()
        time.sleep(0.002)


def run(acknowledge, job):
    """Spend under the conditions of the job, and write down how it ended."""
    with Path(job.pop("end")).open("w") as end:
        tmpfs, user, largest = job.pop("tmpfs", None), job.pop("user", None), job.pop("largest_file", None)
        if tmpfs is not None:  # in a mount namespace of this process's own
            folder = Path(job["path"]).parent
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={tmpfs}", "tmpfs", folder], check=True)
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        os.write(acknowledge, b"!")
        try:
            spend(acknowledge, **job)
            end.write("done")
        except BudgetExceededError:
            end.write("full")
        except Exception as error:  # whatever it is, the test judges it
            end.write(f"{type(error).__name__}: {error}")
        if tmpfs is not None:
            shutil.copytree(folder, f"{folder}-copy")


def main():
    """Serve jobs until stdin ends."""
    acknowledge = int(sys.argv[1])
    for line in sys.stdin:
        if line.strip():
            child = os.fork()
            if child == 0:
                run(acknowledge, json.loads(line))
                os._exit(0)
            print(child, flush=True)
        else:
            with suppress(ChildProcessError):
                while True:
                    os.wait()
            print("all ended", flush=True)


if __name__ == "__main__":
    main()
