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

from fractions import Fraction

import dp_polars as dpp
from tests.helpers.accountants import GRIDS, REASONS, Found, opendp_zcdp, table
from tests.helpers.gaussians import delta_of, ratios

GUARANTEES = [(1, Fraction(1, 10**6)), (Fraction(1, 2), Fraction(1, 10**8)), (8, Fraction(1, 10**6))]
GROUPS = 20


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
    guarantees()
    wrong = [one for one in table() if one.factor > one.allowed]
    for one in wrong:
        print("WRONG", end=" ")
        show(one)
    return len(wrong) > 0


def guarantees() -> None:
    """Print which rho a guarantee is for two counts in each of some groups, and what delta they have, exactly."""
    print(f"rho of two counts in {GROUPS} groups of one release, by who converts it:")
    private = dpp.protect("p", max_groups=GROUPS, max_rows_per_group=1)
    counts = {"rows": dpp.len(mechanism="discrete_gaussian"), "people": dpp.n_people(mechanism="discrete_gaussian")}
    query = private.group_by({"g": range(GROUPS)}).agg(**counts)
    for epsilon, delta in GUARANTEES:
        beside, alone = (
            float(dpp.Budget(epsilon=epsilon, delta=delta, keys_delta=part).remaining.rho) for part in (delta / 2, 0)
        )
        scaled = query.scaled_to(epsilon=epsilon, delta=delta)
        found = delta_of([ratios(float(ask.query.claim.rate), GROUPS)[0] for ask in scaled._asks], float(epsilon))
        print(
            f"  ε = {float(epsilon):g}, δ = {float(delta):g}: a filter beside keys {beside:.5g}, without {alone:.5g}; "
            f"OpenDP {_by_opendp(float(epsilon), float(delta)):.5g}; the whole budget {float(scaled.loss.value):.5g}, "
            f"whose exact δ is {found / float(delta):.4f} of it"
        )


def _by_opendp(epsilon: float, delta: float) -> float:
    """Return the largest rho that OpenDP converts to that guarantee."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if opendp_zcdp(middle, delta) <= epsilon else (low, middle)
    return low


def show(one: Found) -> None:
    others = ", ".join(f"{name} {epsilon:.4g}" for name, epsilon in one.others.items())
    print(f"  {one.factor:.4f}  δ = {one.delta:g}  {one.plan}: {one.ours:.4g}; {others}")


if __name__ == "__main__":
    sys.exit(main())
