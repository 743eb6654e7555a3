"""Record and replay of synthetic rows: from the rows of a person, over all rounds, to all that is seen of a release."""

from __future__ import annotations

import hashlib
import math
import random
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.costs import scaled_cost
from dp_polars._accounting.terms import Contributions
from dp_polars._frames import synthetic_query
from dp_polars._mechanisms import adaptive_tables
from dp_polars._release.protection import Limits, Protection
from tests.privacy.test_synthetic import Anything
from tests.registry import RELATIONS
from tests.replay.checks import check_equal, look
from tests.replay.doors import Doors

pytestmark = pytest.mark.slow

DIMENSIONS = {"a": ["x", "y"], "b": [0.0, 1.0, 2.0, 5.0], "c": [True, False]}
VALUES = {
    "a": ["x", "y", "z", None],
    "b": [-math.inf, -1.0, 0.0, 0.5, 1.0, 4.0, 9.0, math.nan, None],
    "c": [True, False, None],
}
BOUNDS = [{"max_groups": 1}, {"max_rows": 2}, {"max_groups": 2, "max_rows_per_group": 3}]
WORKLOADS = [{}, {"workload": [("a", "b", "c")]}, {"workload": [("a", "b"), ("c",)], "weights": [5, Fraction(1, 2)]}]
_ROUNDING = 1 + Fraction(1, 2**60)


class Recorder:
    """Forced outputs of all mechanisms, and what each of them was given."""

    def __init__(self, salt, monkeypatch):
        self.salt, self.calls = salt, []
        noisy = adaptive_tables._noisy
        monkeypatch.setattr(adaptive_tables, "_noisy", lambda *of: self._noisy(noisy, *of))
        monkeypatch.setattr(adaptive_tables, "best_rows", self._best_rows)

    def _word(self, *about):
        return int.from_bytes(hashlib.blake2b(repr((self.salt, len(self.calls), *about)).encode()).digest()[:4], "big")

    def _noisy(self, noisy, axes, counts, claim):
        self.calls.append(("table", axes, claim, counts.copy()))
        forced = np.array([self._word(i) % 40 - 5 for i in range(len(counts))])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adaptive_tables, "add_noise", lambda clamped, noise: forced)
            return noisy(axes, counts, claim)

    def _best_rows(self, scores, lengths, rate, racing, rng):
        word = {one: word for word, one in adaptive_tables.LAWS.items()}[racing]
        self.calls.append(("choice", len(scores), (rate, word), list(scores)))
        return np.array([self._word("choice") % len(scores)])


def cost_of(one, other):
    """Return what the inputs of a call move, in epsilon (None: there is none) and rho."""
    assert one[:3] == other[:3], "how it is drawn follows the rows"
    kind, _, how, _ = one
    if kind == "choice":
        (rate, word), moves = how, [b - a for a, b in zip(one[3], other[3], strict=True)]
        moved = rate * (max(moves) - min(moves))
    else:
        rate, word, change = how.rate, how.mechanism, np.abs(other[3] - one[3])
        if word == "discrete_gaussian":
            return None, rate**2 * int((change**2).sum()) / 2
        moved = rate * int(change.sum())
    return moved, scaled_cost("rho", word, moved, Contributions(1, 1))


def released(frame, private, how, salt):
    """Return all that is seen of a release of rows, and the calls of its mechanisms."""
    with pytest.MonkeyPatch.context() as patch, Doors(salt):
        patch.setattr(adaptive_tables, "fit", Anything)
        patch.setattr(adaptive_tables, "cells_of", lambda sizes, tables: 0)
        patch.setattr(synthetic_query, "imported", lambda: None)
        patch.setattr(synthetic_query, "cells_of", lambda sizes, tables: 0)
        recorder = Recorder(salt, patch)

        def ask():
            budget = dpp.Budget(**{how["unit"]: 2})
            query = private(frame, budget).synthetic(DIMENSIONS, **how["asked"], **{how["unit"]: 2})
            made = query.release()
            answers = [made.measured, [one.counts.tolist() for one in made._measured], repr(made), made._claim]
            return {"answers": answers, "ledger": budget.log().drop("time", strict=False).rows()}

        found = look(ask)
    return found, recorder.calls


def rows_of(chance, person, number):
    return [(person, *(chance.choice(VALUES[name]) for name in VALUES)) for _ in range(number)]


def frame_of(rows, chance):
    chance.shuffle(rows)
    return pl.DataFrame(rows, {"p": pl.Int64, "a": pl.String, "b": pl.Float64, "c": pl.Boolean}, orient="row")


def checked(salt):
    """Run both checks on neighbours; return which part of the loss their inputs move."""
    chance = random.Random(salt)
    bounds, relation = chance.choice(BOUNDS), chance.choice(RELATIONS)
    how = {"unit": chance.choice(["epsilon", "rho"]), "asked": chance.choice(WORKLOADS)}
    if chance.random() < 0.2:
        how["asked"] = {**how["asked"], "method": "fixed"}

    def private(frame, budget):
        return frame.dp.protect("p", **bounds, neighboring_relation=relation, budget=budget)

    others = [row for person in range(1, 6) for row in rows_of(chance, person, chance.randrange(5))]
    first = rows_of(chance, 0, chance.randrange(1, 6))
    second = rows_of(chance, 0, chance.randrange(6)) if relation == "replace_one" else []
    sides = [released(frame_of([*others, *own], chance), private, how, salt) for own in (first, second)]
    (one, calls), (other, of_other) = sides
    assert one["error"] is None
    assert one["asked"], "nothing is seen of what the engine gets"
    check_equal(one, other)
    assert len(calls) == len(of_other), "something else is drawn"
    costs = [cost_of(*both) for both in zip(calls, of_other, strict=True)]
    spent = sum((cost[how["unit"] == "rho"] for cost in costs), Fraction(0))
    assert spent <= 2 * _ROUNDING, "all draws together move by more than the loss"
    return spent / 2


def all_checked(many):
    return [checked(salt) for salt in range(many)]


def test_what_is_seen_follows_from_the_outputs_and_no_input_moves_by_more_than_the_loss():
    moved = all_checked(60)
    assert max(moved) > 0.5
    assert sum(part > 0 for part in moved) > 20


def test_a_count_in_a_log_line_is_found_out(monkeypatch):
    assemble = synthetic_query.SyntheticWork.assemble

    def printed(work, histograms):
        print(len(histograms[0].codes))
        return assemble(work, histograms)

    monkeypatch.setattr(synthetic_query.SyntheticWork, "assemble", printed)
    with pytest.raises(AssertionError, match="follow the rows"):
        all_checked(50)


def test_rows_beyond_a_limit_are_found_out(monkeypatch):
    limits = Protection.drawn_limits
    forgotten = dict.fromkeys(["groups", "rows", "rows_per_group"])
    monkeypatch.setattr(
        Protection,
        "drawn_limits",
        lambda protection, query, groups: Limits(**{**limits(protection, query, groups).__dict__, **forgotten}),
    )
    with pytest.raises(AssertionError, match="move by more than the loss"):
        all_checked(60)
