"""AIM (McKenna, Mullins, Sheldon & Miklau 2022, arXiv 2201.12677): answers decide which tables are measured.

First each dimension is measured. Then rounds choose the table with the largest error of the model, by a race of exact
scores, and measure it. `docs/proofs/synthetic.md` proves the range of the scores, and the sum of the rounds' losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dp_polars._accounting.claims import Claim
from dp_polars._base import progress
from dp_polars._base.numbers import Floats, Ints, system_rng
from dp_polars._mechanisms.graphical_models import Measured, Model, cells_of, fit
from dp_polars._mechanisms.noise import LARGEST_VALUE, add_noise, noise_of
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.residuals import UNITS, Axes, Noise, below
from dp_polars._mechanisms.selection import best_rows

# Counts, and those of a model, are clipped to this. Then a difference of two, in units of 1/`UNITS`, has 64 bits.
_LARGEST_COUNT = 2**45


@dataclass(frozen=True)
class AdaptivePlan:
    """Everything that is fixed before the first draw. All fields are public."""

    sizes: Axes
    first: tuple[Axes, ...]  # measured before all rounds: each dimension is in one of these tables
    # The tables that may be chosen, with their weights in whole numbers.
    weights: tuple[tuple[Axes, int], ...]
    wanted: tuple[Axes, ...]  # the tables of the workload
    rounds: int  # the number of rounds if all have the first one's loss; 0: none
    most_cells: int  # of the model

    def measured(
        self,
        tables: Mapping[Axes, Ints],
        first: Sequence[Claim],
        claim_of: Callable[[Axes | None, Fraction], Claim],
    ) -> list[Measured]:
        """Draw everything: the first tables, and then one in each round.

        `tables`: the counts of all of them. `first`: the claims of the first tables. `claim_of`: the claim of a table
        for a part of the loss of all rounds; for None as the table, the claim of a choice.
        """
        found = [_noisy(axes, tables[axes], claim) for axes, claim in zip(self.first, first, strict=True)]
        if not self.rounds:
            return found
        model, left, units = fit(self.sizes, found), self.rounds, 1
        while left:
            units = units if left >= 2 * units else left  # a rest of less than a round is added to this one
            left, part = left - units, Fraction(units, self.rounds)
            progress.at(self.rounds - left, self.rounds)
            claims = {axes: claim_of(axes, part) for axes in self._allowed(found, self.rounds - left)}
            axes = self.chosen(tables, model, claims, claim_of(None, part))
            found.append(_noisy(axes, tables[axes], claims[axes]))
            before, model = model, fit(self.sizes, found, model)
            changed = float(np.abs(model.table(axes) - before.table(axes)).sum())
            if changed <= _expected(found[-1].noise, len(tables[axes])):
                units = self._units(units, left, found)
        return found

    def _units(self, before: int, left: int, measured: Sequence[Measured]) -> int:
        """Return the loss of further rounds, after one that changed the model by no more than its noise.

        All wanted tables share what is left. While fewer than half of them are measured, most may be known well enough:
        then at least twice the loss of the rounds before.
        """
        are_few = 2 * len({*self.wanted} & {one.axes for one in measured}) < len(self.wanted)
        return max(left // len(self.wanted), before * (1 + are_few))

    def chosen(self, tables: Mapping[Axes, Ints], model: Model, claims: Mapping[Axes, Claim], choice: Claim) -> Axes:
        """Return one of the tables of the claims: by a race of the exact `scores`."""
        scores = self.scores(tables, {axes: model.table(axes) for axes in claims}, claims)
        rate = choice._rate_in(Fraction(1, UNITS))
        won = best_rows(scores, np.array([len(scores)]), rate, LAWS[choice.mechanism], system_rng())
        return [*claims][int(won[0])]

    def scores(
        self, tables: Mapping[Axes, Ints], modelled: Mapping[Axes, Floats], claims: Mapping[Axes, Claim]
    ) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
        """Return the model's error beyond the noise, times the weight: integers, in units of 1/`UNITS`."""
        weights, scores = dict(self.weights), np.empty(len(claims), object)
        for place, (axes, claim) in enumerate(claims.items()):
            noise = Noise(claim.mechanism, claim.rate)
            expected = math.floor(_expected(noise, len(tables[axes])) * UNITS)
            scores[place] = weights[axes] * (_distance(tables[axes], modelled[axes]) - expected)
        return scores

    def _allowed(self, measured: Sequence[Measured], used: int) -> list[Axes]:
        """Return the tables that keep the model within the part of its size that is due by now."""
        known = {one.axes for one in measured}
        most = max(cells_of(self.sizes, known), self.most_cells * used // self.rounds)
        return [axes for axes, _ in self.weights if axes in known or cells_of(self.sizes, {*known, axes}) <= most]


def weights_of(workload: Mapping[Axes, Fraction]) -> tuple[tuple[Axes, int], ...]:
    """Return the tables below the wanted ones, weighted in whole numbers by the dimensions in common with these."""
    scale = math.lcm(*(weight.denominator for weight in workload.values()))
    weights = {
        axes: sum(int(weight * scale) * len({*axes} & {*wanted}) for wanted, weight in workload.items())
        for axes in below(workload)
        if axes
    }
    common = math.gcd(*weights.values())
    return tuple((axes, one // common) for axes, one in weights.items())


def _noisy(axes: Axes, counts: Ints, claim: Claim) -> Measured:
    clamped: Ints = np.clip(counts, 0, LARGEST_VALUE)
    return Measured(axes, Noise(claim.mechanism, claim.rate), add_noise(clamped, noise_of(claim, len(clamped))))


def _expected(noise: Noise, cells: int) -> float:
    """Return the expected sum of the absolute noise in a table."""
    return cells * noise.mean_size


def _distance(counts: Ints, modelled: Floats) -> int:
    """Return Σ│UNITS·n − m│ exactly, with m the numbers of a model, rounded to whole units."""
    exact = np.minimum(counts, _LARGEST_COUNT).astype(np.int64) * UNITS
    rounded = np.rint(np.clip(modelled, 0, _LARGEST_COUNT) * UNITS).astype(np.int64)
    apart = np.abs(exact - rounded)
    return (int((apart >> 32).sum()) << 32) + int((apart & (2**32 - 1)).sum())
