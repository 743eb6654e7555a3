"""Record and replay of releases in stages: limits, selected groups and candidates, limits in these, and answers."""

from __future__ import annotations

import random
from types import SimpleNamespace

import polars as pl
import pytest

import dp_polars as dpp
from tests.registry import RELATIONS
from tests.replay.checks import _looked, check_equal, check_parts, check_recorded
from tests.replay.doors import Doors

pytestmark = pytest.mark.slow

CASES = 5
STAGES = ("limit", "lost", "keys")
PARTS = 1024  # of what limits leave out of one person
WARDS = [None, "A", "B", "C", "D"]


def rows_of(rng, person, most):
    return [
        (person, rng.choice(WARDS), rng.choice([2024, 2025]), rng.choice([None, -3, 1, 2, 70]), rng.choice("xy"))
        for _ in range(rng.randrange(1, most))
    ]


def neighbours(rng, relation):
    """Rows of a few people, and of one more, or of another one in the place of one, who has any number of rows."""
    base = [row for person in range(1, 5) for row in rows_of(rng, person, 9)] + rows_of(rng, None, 3)
    one = rows_of(rng, 0, 40)
    other = rows_of(rng, 0, 40) if relation == "replace_one" else []
    return base + one, base + other


def frame_of(rng, rows):
    schema = {"p": pl.Int64, "ward": pl.String, "year": pl.Int64, "x": pl.Int64, "k": pl.String}
    return pl.DataFrame(rng.sample(rows, len(rows)), schema, orient="row")


def asked(private, by, is_pure, candidates):
    """Outputs whose limits, and bounds, are found; a gap exists in epsilon alone. None: candidates are selected."""
    return (
        private.group_by(*by)
        .agg(
            people=dpp.n_people(),
            rows=dpp.len(),
            sums=pl.col("x").dp.sum(),
            mean=pl.col("x").dp.mean(-3, 9),
            top=pl.col("k").dp.mode(candidates, gap=is_pure),
            two=pl.col("k").dp.top_k(2, candidates, counts="rows"),
            half=pl.col("x").dp.median(range(-3, 9)),
        )
        .scaled_to(epsilon=1, delta=1e-4)
    )


@pytest.mark.parametrize("candidates", [["x", "y"], None], ids=str)
@pytest.mark.parametrize("by", [("ward",), ("ward", "year")], ids=str)
@pytest.mark.parametrize("is_pure", [True, False])
@pytest.mark.parametrize("relation", RELATIONS)
def test_stages_follow_from_what_was_released_and_move_as_claimed(relation, is_pure, by, candidates):
    answered = 0
    for seed in range(CASES):
        rng = random.Random(f"{seed} {relation} {is_pure} {by} {candidates}")
        frames = [frame_of(rng, rows) for rows in neighbours(rng, relation)]
        case = SimpleNamespace(salt=seed, couples=True, relation=relation, asked=[("n_people", 0, 0)])
        settled = []

        def ask(side, frames=frames, settled=settled):
            query = asked(frames[side].dp.protect("p", neighboring_relation=relation), by, is_pure, candidates)
            answers = query.release(intervals=True)
            settled.append(query)
            return {"answers": answers, "found": query.found, "explained": query.explain().rows()}

        found = [{key for call in _looked(case, ask, side, Doors)[1] if call.kind == "keys" for key in call.inputs}
                 for side in (0, 1)]  # fmt: skip
        shown = frozenset(sorted(found[0] & found[1])[seed % 2 :])
        one, other = (_looked(case, ask, side, Doors, shown) for side in (0, 1))
        check_equal(one[0], other[0])
        assert one[0]["error"] is None
        groups = settled[-1]._request.keys.height
        answered += groups > 0
        check_stages(case, settled[-1], one[1], other[1], groups)
        check_parts([*one[2], *other[2]])
    assert answered > CASES / 2


def check_stages(case, query, one, other, groups):
    """Each stage is drawn once, and its inputs move by no more than its claim says."""
    of_stages, theirs = ([call for call in calls if call.kind in STAGES] for calls in (one, other))
    selections = iter(query._request.selections)
    for call, other_call in zip(of_stages, theirs, strict=True):
        assert (call.kind, call.output) == (other_call.kind, other_call.output)
        cells = {*call.inputs, *other_call.inputs}
        moves = [other_call.inputs.get(cell, 0) - call.inputs.get(cell, 0) for cell in cells]
        most = PARTS if call.kind == "lost" else 1
        assert all(abs(n) <= most for n in moves), f"{call.output} moves by more than a person"
        if call.kind == "limit":
            assert min(moves, default=0) >= 0 or max(moves, default=0) <= 0, "people beyond move in two directions"
        elif call.kind == "keys":
            claim = next(selections).ask.query.claim
            assert call.rate == claim.rate
            assert sum(map(abs, moves)) <= claim.contributions.total, "more groups move than a person counts for"
    of_answers = [[call for call in calls if call.kind not in STAGES] for calls in (one, other)]
    if groups:
        case.groups = tuple(range(groups))
        check_recorded(case, query, *of_answers)
    else:
        assert not any(of_answers)
