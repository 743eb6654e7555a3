"""`compose` beside other accountants, on 1,000 plans: what each reason costs, and every plan that costs more for one.

    python benchmarks/accountants.py [--all]

A plan is a list of releases and a delta; the numbers are epsilons: ours, by dp_accounting's privacy loss distributions
and Rényi divergences, and by OpenDP. `--all` prints those without a reason, too. Exits non-zero where ours is larger
than the best of the others by more than its reason allows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.accountants import GRIDS, REASONS, Found, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    every = parser.parse_args().all
    for reason in (*REASONS, None):
        found = [one for one in table() if one.reason == reason]
        above = sorted((one for one in found if one.factor > GRIDS), key=lambda one: -one.factor)
        below = sum(one.factor < 1 / GRIDS for one in found)
        most = max(one.factor for one in found)
        print(f"{reason or 'no reason'}:")
        print(f"  {len(found)} plans, {len(above)} cost more, at most {most:.7g} times; {below} cost less")
        for one in found if every else above:
            show(one)
    wrong = [one for one in table() if one.factor > one.allowed]
    for one in wrong:
        print("WRONG", end=" ")
        show(one)
    return len(wrong) > 0


def show(one: Found) -> None:
    others = ", ".join(f"{name} {epsilon:.4g}" for name, epsilon in one.others.items())
    print(f"  {one.factor:.4f}  δ = {one.delta:g}  {one.plan}: {one.ours:.4g}; {others}")


if __name__ == "__main__":
    sys.exit(main())
