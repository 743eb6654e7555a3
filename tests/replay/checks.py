"""The two checks: what follows from the same outputs is the same, and no input moves by more than its claim says."""

from __future__ import annotations

import difflib
import io
import itertools
import logging
import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.costs import scaled_cost
from dp_polars._accounting.terms import Contributions
from dp_polars._statistics.shared_sums import draws_shared
from tests.registry import quantile_scores
from tests.replay.cases import OF_PEOPLE, Case
from tests.replay.doors import Call, Doors, Parts

# All in which queries to an engine may differ: where something lies in memory, how many rows Polars itself finds in
# the head of a file, how often the test has made a table, and Spark's numbers of columns and of its own tables.
_MASKED = re.compile(r"0x[0-9a-fA-F]+|ESTIMATED ROWS: \d+|(?<=\brows)\d+|(?<=#)\d+L?|(?<=RDD\[)\d+|(?<=_)\d+(?=\])")
# Costs that are irrational are rounded up, each by itself.
_ROUNDING = 1 + Fraction(1, 2**60)
_ONE = Contributions(1, 1)

# side, its rows -> what is seen, by name: "answers" and whatever else; it may raise.
Ask = Callable[[int], "dict[str, Any]"]


def check(case: Case, ask: Ask, doors: Callable[..., Doors] = Doors, leaves_out: Sequence[str] = ()) -> bool:
    """Run both checks on a case, and return whether there were answers; `leaves_out` is not compared."""
    query = case.query(dpp.protect)
    one, other = (_looked(case, ask, side, doors) for side in (0, 1))
    if case.asked[0][0] == "keys":
        found = [{key for call in calls for key in call.inputs} for _, calls, _ in (one, other)]
        shown = frozenset(sorted(found[0] & found[1])[case.salt % 3 :])
        check_equal(one[0], other[0], leaves_out)
        one, other = (_looked(case, ask, side, doors, shown) for side in (0, 1))
    check_equal(one[0], other[0], leaves_out)
    if one[0]["error"] is None:
        check_recorded(case, query, one[1], other[1])
        check_parts([*one[2], *other[2]])
        assert one[0]["asked"] or one[0]["plans"], "nothing is seen of what the engine gets"
    else:
        print(one[0]["error"])  # shown where too little is answered
    return one[0]["error"] is None


def _looked(case: Case, ask: Ask, side: int, doors: Callable[..., Doors], shown: frozenset[Any] = frozenset()) -> Any:
    opened = doors(case.salt, shown, case.couples)
    with opened:
        found = look(lambda: ask(side))
    found["plans"] = [_MASKED.sub("", plan) for plan in opened.plans]
    return found, opened.calls, opened.parts


# --- Replay ---------------------------------------------------------------------------------------------------------


def look(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return all that can be seen of a release: what it gives, raises, warns, logs, prints, and asks of Polars."""
    logs, printed, error, found = _Logs(), io.StringIO(), None, {}
    logger = logging.getLogger("dp_polars")
    level = logger.level
    logger.addHandler(logs)
    logger.setLevel(logging.DEBUG)
    with (
        warnings.catch_warnings(record=True) as warned,
        redirect_stdout(printed),
        redirect_stderr(printed),
        asked_of_polars() as asked,
    ):
        warnings.simplefilter("always")
        try:
            found = ask()
        except (Exception, pl.exceptions.PanicException) as raised:
            error = _said(raised)
        finally:
            logger.removeHandler(logs)
            logger.setLevel(level)
    if isinstance(found.get("answers"), dpp.Cube):
        cube = found["answers"]
        found |= {"answers": cube.to_frame(), "cube": (repr(cube), pickle.dumps(cube))}
    if isinstance(found.get("answers"), pl.DataFrame):
        found["answers"] = seen(found["answers"])
    return {
        **found,
        "error": error,
        "warnings": [(one.category, str(one.message)) for one in warned],
        "logs": logs.lines,
        "printed": printed.getvalue(),
        "asked": [_MASKED.sub("", text) for text in [*asked, *found.get("asked", ())]],
    }


def _said(raised: BaseException | None) -> Any:
    """An error and those behind it, as a caller sees them."""
    if raised is None:
        return None
    return (
        type(raised),
        str(raised),
        getattr(raised, "__notes__", []),
        _said(raised.__cause__),
        _said(raised.__context__),
    )


class _Logs(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, record.levelname, record.getMessage()))


@contextmanager
def asked_of_polars() -> Iterator[list[str]]:
    """Note each plan that Polars runs, as it is handed over, and how; not the methods of a Series or DataFrame."""
    asked: list[str] = []
    collect, collect_all = pl.LazyFrame.collect, pl.collect_all

    def note(plans: Sequence[pl.LazyFrame], given: dict[str, Any]) -> None:
        flags = given.get("optimizations")
        if flags is not None and flags._pyoptflags.eager:
            return
        pushes = None if flags is None else flags.predicate_pushdown
        asked.extend(f"{given.get('engine')} {pushes} {plan.explain(optimized=False)}" for plan in plans)

    def noted(plan: pl.LazyFrame, *args: Any, **given: Any) -> Any:
        note([plan], given)
        return collect(plan, *args, **given)

    def all_noted(plans: Any, *args: Any, **given: Any) -> Any:
        plans = list(plans)
        note(plans, given)
        return collect_all(plans, *args, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.LazyFrame, "collect", noted)
        patch.setattr(pl, "collect_all", all_noted)
        yield asked


def seen(frame: pl.DataFrame) -> Any:
    """All that can be seen of released columns: values, types, flags, chunks and bytes."""
    columns = []
    for column in frame.get_columns():  # one by one: Polars 1 writes what lies beside an Enum in one of two ways
        file = io.BytesIO()
        if "128" not in str(column.dtype):  # of which Arrow's files have none
            column.to_frame().write_ipc(file)
        about = column.name, column.dtype, column.flags, column.n_chunks(), column.null_count()
        columns.append((about, column.to_physical().to_list(), file.getvalue()))
    return frame.shape, columns


def check_equal(one: dict[str, Any], other: dict[str, Any], leaves_out: Sequence[str] = ()) -> None:
    """Raise unless all that is seen of both sides is the same."""
    assert one.keys() == other.keys(), "something else is seen"
    for name in one:
        if name not in leaves_out:
            if name in ("asked", "plans") and one[name] != other[name]:
                print("\n".join(difflib.unified_diff(*("\n".join(each[name]).splitlines() for each in (one, other)))))
            assert one[name] == other[name], f"the {name} follow the rows"


# --- Record ---------------------------------------------------------------------------------------------------------


def check_recorded(case: Case, query: dpp.PrivateQuery, one: Sequence[Call], other: Sequence[Call]) -> None:
    """Raise unless the inputs of all mechanisms of a release differ by no more than the claims say."""
    draws, of_other = _joined(one), _joined(other)
    assert draws.keys() == of_other.keys(), "something else is drawn"
    times = 1 if case.relation == "add_or_remove_one" else 2
    known = {ask.name: ask for ask in query._asks}
    (only, *_) = known
    costs: dict[str, list[Fraction]] = {name: [Fraction(0), Fraction(0)] for name in known}
    groups_of = dict.fromkeys(known, 1 if case.groups is None or case.asked[0][0] in OF_PEOPLE else len(case.groups))
    if case.asked[0][0] == "cube":
        groups_of = dict(query.explain().select("output", "groups").rows())
    for (name, number), call in draws.items():
        theirs = of_other[name, number]
        assert replace(call, inputs={}) == replace(theirs, inputs={}), "how it is drawn follows the rows"
        # Selected keys are no output with a name.
        ask = known[name or only]
        groups = groups_of[ask.name]
        assert call.groups == (() if call.kind == "keys" else tuple(range(groups))), "a group is not drawn once"
        cells = {*call.inputs, *theirs.inputs}
        change = {cell: theirs.inputs.get(cell, 0) - call.inputs.get(cell, 0) for cell in cells}
        change = {cell: n for cell, n in change.items() if n}
        people = ask.query.limits_people and query._protection.counts_people(ask.query) if call.kind != "keys" else True
        in_range = times  # rows of one person whose changes add up in R
        if call.kind == "number":
            in_range = ask.query.range_of(case.relation, groups) / ask.query.range_of("add_or_remove_one", groups)
        _check_spread(call, ask.query.claim, change, times, in_range, people=people)
        claim = ask.query.claim
        charged = claim._charged_as if claim._gap else call.mechanism
        moved = list(_moved(call, theirs, change)) if call.kind != "above" else list(_moved_above(call, change))
        costs[ask.name][0] += call.draws * sum(moved, Fraction(0))
        costs[ask.name][1] += call.draws * sum((scaled_cost("rho", charged, x, _ONE) for x in moved), Fraction(0))
    drawn_before: set[object] = set()
    for name, (epsilon, rho) in costs.items():
        # What outputs share is drawn by the first of them.
        shared = draws_shared(known[name].query)
        claims = [draw.claim for draw in shared if draw not in drawn_before] if shared else [known[name].query.claim]
        drawn_before |= {*shared}
        assert any(found in (name, "") for found, _ in draws) == bool(claims), f"{name} is not drawn"
        if all(claim._has_epsilon for claim in claims):
            paid = sum((claim.cost("epsilon") for claim in claims), Fraction(0))
            assert epsilon <= paid * _ROUNDING, f"{name} moves by more than epsilon"
        paid = sum((claim.cost("rho") for claim in claims), Fraction(0))
        assert rho <= paid * _ROUNDING, f"{name} moves by more than rho"
    unit = query.loss.unit
    together = sum((cost[unit == "rho"] for cost in costs.values()), Fraction(0))
    assert together <= query.loss.value * _ROUNDING, "all outputs together move by more than the loss"


def _joined(calls: Sequence[Call]) -> dict[tuple[str, int], Call]:
    """The calls of each draw as one: Spark draws for some groups here and for others there."""
    of_draw = defaultdict(list)
    for call in calls:
        of_draw[call.output, call.number].append(call)
    joined = {}
    for draw, parts in of_draw.items():
        first = parts[0]
        groups = tuple(sorted(group for part in parts for group in part.groups))
        inputs: dict[Any, int] = {}
        for part in parts:
            assert not inputs.keys() & part.inputs.keys(), "something is drawn for twice"
            assert replace(part, groups=(), inputs={}) == replace(first, groups=(), inputs={})
            inputs |= part.inputs
        joined[draw] = replace(first, groups=groups, inputs=inputs)
    return joined


def _check_spread(
    call: Call, claim: Claim, change: dict[Any, int], times: int, in_range: Fraction | int, *, people: bool
) -> None:
    """Raise unless a person's rows are spread over groups and codes as the claim's contributions say."""
    bounds = claim.contributions
    if call.kind == "keys":
        assert all(abs(n) <= 1 for n in change.values()), "a key moves by more than a person"
        assert len(change) <= bounds.total, "more keys move than a person counts for"
        return
    # The most that a row, or a person who counts once for each code, adds to an input.
    if call.alpha is not None or call.kind in ("list", "above"):
        most = Fraction(1)
    elif call.kind == "number":
        most = call.unit / in_range
    else:
        most = claim.score_range * claim.rate / call.rate / times / (2 if call.kind == "jointly" else 1)
    by_group: dict[int, int] = defaultdict(int)
    for (group, _), n in change.items():
        by_group[group] += abs(n)
    if people and call.kind != "number":
        assert all(abs(n) <= most for n in change.values()), "a code moves by more than a person"
        assert len(by_group) <= times * bounds.total, "more groups move than a person counts in"
        return
    if people:  # a total of both signs may go from one end to the other, where another person comes with it
        most = call.unit
        assert all(abs(n) <= most for n in change.values()), "a code moves by more than a person"
    assert max(by_group.values(), default=0) <= times * bounds.per_group * most, "a group moves by more than its rows"
    if claim._has_epsilon:  # people beyond the limits count in part: the norm that the noise needs is limited
        assert sum(by_group.values()) <= times * bounds.total * most, "the groups move by more than all rows (L1)"
    squares = sum(n**2 for n in by_group.values())
    assert squares <= (times * most) ** 2 * bounds.squares, "the groups move by more than all rows (squared L2)"


def _moved(call: Call, other: Call, change: dict[Any, int]) -> Iterator[Fraction]:
    """The range of what moves, times the rate: of each group that is chosen for, or of each number."""
    if call.kind in ("number", "keys"):
        yield from (call.rate * abs(n) for n in change.values())
        return
    for group in {group for group, _ in change}:
        own = {code: n for (place, code), n in change.items() if place == group}
        if call.kind == "list":  # each row in one part of each level, whose rate is that of range 1
            yield call.rate * sum(map(abs, own.values()))
        elif call.kind == "jointly" or call.alpha is not None:
            both = [[each.inputs.get((group, code), 0) for code in range(call.size)] for each in (call, other)]
            moves = [b - a for a, b in zip(*(_scores(call, counts) for counts in both), strict=True)]
            yield call.rate * (max(moves) - min(moves))
        else:
            moves = [*own.values(), *([0] * (len(own) < call.size))]
            yield call.rate * (max(moves) - min(moves))


def _moved_above(call: Call, change: dict[Any, int]) -> Iterator[Fraction]:
    """The losses of a first above a threshold, of groups or of several together: the worse one of the two ways.

    A group whose counts rise by up to j and fall by up to i has the losses i + 2j one way and 2i + j the other.
    """
    groups = {group for group, _ in change}
    moves = [[n for (place, _), n in change.items() if place == group] for group in groups]
    ways = [(max(0, -min(own)), max(0, *own)) for own in moves]
    if any(max(way) > 1 for way in ways):  # what is known of rows of one group is their pure loss
        ways = [(sum(i for i, _ in ways), sum(j for _, j in ways))]
    else:  # a group that loses one and a group that gets one are as one group that does both
        numbers = [sum(way == kind for way in ways) for kind in ((1, 1), (1, 0), (0, 1))]
        pairs = min(numbers[1:])
        ways = [(1, 1)] * (numbers[0] + pairs) + [(1, 0)] * (max(numbers[1:]) - pairs)
    yield from (call.rate * (i + j + max(i, j)) for i, j in ways)


def _scores(call: Call, counts: list[int]) -> list[int]:
    """The scores of all that may be chosen, by the definition."""
    if call.alpha is not None:
        return quantile_scores(counts, call.alpha.numerator, call.alpha.denominator)
    best = sorted(counts, reverse=True)
    lists = itertools.permutations(range(call.size), call.width)
    return [-max(best[j] - counts[code] for j, code in enumerate(each)) for each in lists]


def check_parts(parts: Sequence[Parts]) -> None:
    """Raise unless the histograms of one output are of the same rows: a sum, and how many there are to divide it by.

    Of Bernstein sums each row adds the same to all of them together, and never takes from one.
    """
    for part in parts:
        *_, number = part.cells  # the count is the last of them
        if part.is_bernstein:
            assert len(set(part.largest)) == 1
            assert all(n >= 0 for cells in part.cells for n in cells.values()), "a row takes from a sum"
            continue
        for cells, largest in zip(part.cells, part.largest, strict=True):
            assert cells.keys() == number.keys(), "the parts of an answer keep rows of different cells"
            assert all(abs(n) <= largest * number[cell] for cell, n in cells.items()), "the parts keep different rows"
