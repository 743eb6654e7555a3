"""Statistics of the same rows share sums: which ones, and the part of the loss for each sum.

Proof: `docs/proofs/shared-sums.md`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import exact
from dp_polars._statistics.averages import Deviation, Mean, Share, Variance
from dp_polars._statistics.measures import Clipped, Count, Measure, SharedDraw, Sum, checked
from dp_polars._statistics.of_shared_draws import PAIR, THREE, CentredSum, bernstein
from dp_polars._statistics.statistic import Asked, HistogramQuery


class Part(NamedTuple):
    """A statistic of a query: its name, the values it reads, and a key for its contributing rows.

    None as a key: unknown.
    """

    name: str
    values: Hashable
    rows: Hashable
    query: HistogramQuery


class Drawn(NamedTuple):
    """A statistic with its shared draws, and the place of the statistic that provides their column."""

    query: HistogramQuery
    reads: int


_Key: TypeAlias = "tuple[Hashable, ...]"
_COUNT: _Key = ("count",)


@dataclass(frozen=True)
class _Needs:
    """The loss that each draw needs, so that a statistic is no worse than with draws of its own."""

    part: Part
    draws: dict[_Key, Fraction]  # in the order of the statistic's count rules


@dataclass(frozen=True)
class _Plan:
    """Statistics that share all of their draws."""

    places: tuple[int, ...]
    drawn: tuple[Drawn, ...]
    needed: Fraction  # the least loss of all draws together that makes no statistic worse than with its own draws
    losses: Fraction  # the loss of all draws together
    errors: tuple[float, ...]  # each one's mean squared error, divided by that with its own draws


def with_shared_sums(parts: Sequence[Part], groups: int) -> list[Drawn]:
    """Return the statistics with the draws that they share. Earlier sharing is ignored.

    Statistics share sums if the same rows contribute to them with the same weights, and their losses have one unit. The
    loss of all of them together goes to all of their draws. `groups` is the number of public groups.
    """
    parts = [part._replace(query=alone(part.query)) for part in parts]
    found = [Drawn(part.query, place) for place, part in enumerate(parts)]
    for plan in _plans(parts, groups):
        for place, drawn in zip(plan.places, plan.drawn, strict=True):
            found[place] = drawn
    return found


def part_that_is_needed(parts: Sequence[Part], groups: int) -> list[Fraction]:
    """Return, for statistics with open losses, how much of its loss each one needs if sums are shared.

    It is the same for all that share sums, and 1 for others. The rest goes to all outputs.
    """
    needed = [Fraction(1)] * len(parts)
    closed = [part._replace(query=_closed(alone(part.query))) for part in parts]
    for plan in _plans(closed, groups):
        if all(parts[place].query.claim._is_open for place in plan.places):
            for place in plan.places:
                needed[place] = plan.needed / plan.losses
    return needed


def _plans(parts: Sequence[Part], groups: int) -> Iterator[_Plan]:
    for members in _alike(parts):
        ways = [_split(parts, members, groups)]
        if _may_pair(parts[members[0]].query.claim):
            ways.append(_of_bernstein(parts, members, groups))
        yield from min(ways, key=lambda way: _weighted_error(parts, members, way))


def _weighted_error(parts: Sequence[Part], members: Sequence[int], way: Sequence[_Plan]) -> float:
    """Return the sum of error ratios, each weighted by the statistic's loss."""
    # A mean that may have its own pair, but has none, has twice the squared error of a pair.
    errors = {place: 2.0 if _is_worse_without_pair(parts[place].query) else 1.0 for place in members}
    errors |= {place: error for plan in way for place, error in zip(plan.places, plan.errors, strict=True)}
    losses = {place: parts[place].query.claim.loss.value for place in members}
    whole = sum(losses.values())
    return sum(float(losses[place] / whole) * math.sqrt(error) for place, error in errors.items())


def _is_worse_without_pair(query: HistogramQuery) -> bool:
    is_of_few_steps = isinstance(query, Share) and not query.in_parts  # whole numbers of rows: intervals would be wide
    return isinstance(query, Mean) and _may_pair(query.claim) and not is_of_few_steps


def _split(parts: Sequence[Part], members: Sequence[int], groups: int) -> list[_Plan]:
    """Return the plan of one count, and one sum for each clipping bounds: of all statistics, or all but sums."""
    for pool in (members, [place for place in members if not _is_sum(parts[place].query)]):
        plan = _shared(parts, pool, groups)
        if plan is not None:
            return [plan]
    return []


def _of_bernstein(parts: Sequence[Part], members: Sequence[int], groups: int) -> list[_Plan]:
    """Return plans with Bernstein sums for each clipping bounds; one of them also gives the number of rows.

    With variances these are three sums, unless errors are smaller if a variance has draws of its own.
    """
    of: dict[_Key, list[int]] = {}
    counts = []
    for place in members:
        query = parts[place].query
        if isinstance(query, Count):
            counts.append(place)
        elif isinstance(query, Clipped):
            of.setdefault((parts[place].values, query.lower, query.upper, query.step), []).append(place)
    plans: list[_Plan] = []
    for every in of.values():
        no_variances = [place for place in every if not isinstance(parts[place].query, Variance)]
        found = list[list[_Plan]]()
        for pool in (every, no_variances):
            no_sums = [place for place in pool if not _is_sum(parts[place].query)]
            ways = ([*pool, *counts], pool, [*no_sums, *counts], no_sums)
            plan = next(filter(None, (_bernstein(parts, sorted(way), groups) for way in ways)), None)
            found.append([] if plan is None else [plan])
        best = min(found, key=lambda way: _weighted_error(parts, [*every, *counts], way))
        plans += best
        counts = [place for place in counts if not best or place not in best[0].places]
    return plans


def _may_pair(claim: Claim) -> bool:
    """Return whether a pair costs less than a sum and a count: one row moves both sums together as far as one."""
    is_pure = claim.mechanism == "discrete_laplace" and claim.loss.unit == "epsilon"
    return is_pure and claim.neighboring_relation == "add_or_remove_one"


def alone(query: HistogramQuery) -> HistogramQuery:
    return query.alone if isinstance(query, Measure) else query


def draws_shared(query: Asked) -> tuple[SharedDraw, ...]:
    """Return the draws that a statistic shares with others of its query; empty if none."""
    return query.shared if isinstance(query, Measure) else ()


def first_draw(query: Asked) -> Claim:
    """Return the claim of a statistic; if its draws are shared, that of the first one."""
    return next((draw.claim for draw in draws_shared(query)), query.claim)


def whole_claim(query: Asked) -> Claim:
    """Return the claim of a statistic; if its only draw is its own, that draw's claim."""
    draws = draws_shared(query)
    return draws[0].claim if len(draws) == 1 and not draws[0].is_shared else query.claim


def _closed(query: HistogramQuery) -> HistogramQuery:
    weight = query.terms.loss_weight
    return query if not isinstance(query, Measure) or weight is None else query.with_loss(weight)


def _is_sum(query: HistogramQuery) -> bool:
    return isinstance(query, Sum)


def _alike(parts: Sequence[Part]) -> Iterator[list[int]]:
    """Yield the places of statistics that may share sums."""
    found: dict[Hashable, list[int]] = {}
    for place, (_, _, rows, query) in enumerate(parts):
        claim = query.claim
        if rows is not None and is_of_shared_kind(query) and not claim._is_open:
            assert isinstance(query, Measure)
            key = (rows, query.in_parts, claim.mechanism, claim.loss.unit, claim._is_asked)
            found.setdefault(key, []).append(place)
    yield from found.values()


def is_of_shared_kind(query: HistogramQuery) -> bool:
    """Return whether a statistic with draws of its own may share sums: those of rows."""
    return type(query) in _KINDS and getattr(query, "counted", "rows") in ("rows", "values")


_KINDS = (Count, Sum, Mean, Share, Variance, Deviation)
# With this part of a pair's loss, a sum and a count give a mean with no larger squared error: √½, rounded up.
_OF_PAIR = Fraction(5, 7)
# From three Bernstein sums with its own loss, a mean or a variance has at most this squared error, over that alone. So
# this part of the loss is enough: the root, rounded up.
_SQUARED_OF_THREE, _OF_THREE = 1.25, Fraction(9, 8)


def _needs(part: Part) -> _Needs:
    query, loss = part.query, part.query.claim.loss.value
    if isinstance(query, Count):
        return _Needs(part, {_COUNT: loss})
    assert isinstance(query, (Sum, Mean, Variance))
    distances: _Key = ("distances", part.values, query.lower, query.upper, query.step)
    if isinstance(query, Variance):
        squares: _Key = ("squares", *distances[1:])
        return _Needs(part, dict.fromkeys([distances, squares, _COUNT], loss / 3))
    if isinstance(query, Mean):
        of_each = _OF_PAIR if _is_worse_without_pair(query) else Fraction(1, 2)
        return _Needs(part, dict.fromkeys([distances, _COUNT], loss * of_each))
    # Scales add up at most to the scale of the sum, and squared deviations are as large.
    half, middle = (query.upper - query.lower) / 2, abs(query.upper + query.lower) / 2
    if query.claim._has_epsilon:
        return _Needs(part, {distances: loss, _COUNT: loss if middle else Fraction(0)})
    return _Needs(part, {distances: loss * half / (half + middle), _COUNT: loss * middle / (half + middle)})


def claims_needed(part: Part, groups: int) -> tuple[Claim, ...] | None:
    """Return the claims of a sum and a count with which a statistic is no worse than alone; None if one is free."""
    draws = _needs(part).draws
    if not all(draws.values()):
        return None
    return tuple(_claim(part.query, key, loss, groups) for key, loss in draws.items())


def _most(needs: Sequence[_Needs]) -> dict[_Key, Fraction]:
    most: dict[_Key, Fraction] = {}
    for one in needs:
        for key, loss in one.draws.items():
            most[key] = max(loss, most.get(key, Fraction(0)))
    return most


def _losses(needs: Sequence[_Needs]) -> Fraction:
    return sum((one.part.query.claim.loss.value for one in needs), Fraction(0))


def _shared(parts: Sequence[Part], places: Sequence[int], groups: int) -> _Plan | None:
    """Return statistics that share all draws; None if one would be worse, or nothing would be shared."""
    needs = [_needs(parts[place]) for place in places]
    most, losses = _most(needs), _losses(needs)
    used = [key for one in needs for key in one.draws]
    if len(places) < 2 or len(used) == len(most) or sum(most.values()) > losses or not all(most.values()):
        return None
    needed = sum(most.values(), Fraction(0))
    factor, draws = losses / needed, {}
    for key, loss in most.items():
        names = tuple(one.part.name for one in needs if key in one.draws)
        user = next(one.part.query for one in needs if key in one.draws)
        draws[key] = SharedDraw(_claim(user, key, loss * factor, groups), _in_words(key), names)
    try:
        shared = [with_draws(one.part.query, tuple(draws[key] for key in one.draws)) for one in needs]
    except ValueError:  # halves of a step would overflow 64 bits; a sum of its own needs none
        return None
    if not all(is_no_worse(one.part.query, query) for one, query in zip(needs, shared, strict=True)):
        return None
    errors = tuple(_error_of_split(one, {key: most[key] * factor for key in one.draws}) for one in needs)
    return _Plan(tuple(places), tuple(map(Drawn, shared, places)), needed, losses, errors)


def _error_of_split(one: _Needs, losses: dict[_Key, Fraction]) -> float:
    """Return a statistic's mean squared error over that with its own draws; the largest possible ratio."""
    query, loss = one.part.query, one.part.query.claim.loss.value
    scales = [float(loss / of_draw) ** 2 if of_draw else 0.0 for of_draw in losses.values()]
    if isinstance(query, Variance):
        return max(scales) / 9
    if isinstance(query, Mean):  # from the middle of the bounds to an end
        return max(scales[0] / 2, sum(scales) / 4) if _may_pair(query.claim) else max(scales) / 4
    if isinstance(query, Sum):
        half, middle = float(query.upper - query.lower) / 2, float(query.upper + query.lower) / 2
        return (half**2 * scales[0] + middle**2 * scales[1]) / float(query.largest) ** 2
    return scales[0]


def _bernstein(parts: Sequence[Part], places: Sequence[int], groups: int) -> _Plan | None:
    """Return statistics from Bernstein sums of one column; None if one of them would be worse."""
    of = [parts[place] for place in places]
    reads = next((place for place in places if isinstance(parts[place].query, Clipped)), None)
    if reads is None or (len(of) < 2 and not _is_worse_without_pair(parts[reads].query)):
        return None
    values = parts[reads].query
    assert isinstance(values, Clipped)
    sums = THREE if any(isinstance(part.query, Variance) for part in of) else PAIR
    losses, needed = Fraction(0), Fraction(0)
    for part in of:
        loss = part.query.claim.loss.value
        losses, needed = losses + loss, max(needed, loss * bernstein_needed(part.query, sums))
    if needed > losses:
        return None
    what = (
        "squared distances from {} and {}, and of twice their product"
        if sums > PAIR
        else "distances from {} and from {}"
    )
    what = f"sums of {what.format(exact(values.lower), exact(values.upper))}"
    draw = SharedDraw(_claim(values, _COUNT, losses, groups), what, tuple(part.name for part in of), sums)
    try:
        shared = [checked(bernstein(part.query, draw, values)) for part in of]  # type: ignore[arg-type]
    except ValueError:  # distances would overflow 64 bits; a sum or a count of its own needs none
        return None
    errors = tuple(_error_of_bernstein(part.query, losses, sums) for part in of)
    return _Plan(tuple(places), tuple(Drawn(query, reads) for query in shared), needed, losses, errors)


def bernstein_needed(query: HistogramQuery, sums: int) -> Fraction:
    """Return the least part of its own loss that Bernstein sums need, so that the statistic is no worse without them.

    A mean is compared to its own pair, and a variance to its own three draws.
    """
    if isinstance(query, Count):
        return Fraction(sums)
    if isinstance(query, Sum):
        return sum(map(abs, _at_places(query, sums))) / query.largest
    return Fraction(1) if sums == PAIR else _OF_THREE


def _at_places(query: Sum, sums: int) -> list[Fraction]:
    """Return the values at the places of Bernstein sums, from the upper clipping bound to the lower one."""
    return [query.upper - (query.upper - query.lower) * number / (sums - 1) for number in range(sums)]


def _error_of_bernstein(query: HistogramQuery, losses: Fraction, sums: int) -> float:
    """Return a statistic's mean squared error from Bernstein sums, over that with its own draws; at most."""
    scale = float(query.claim.loss.value / losses) ** 2
    if isinstance(query, Count):
        return sums * scale
    if isinstance(query, Sum):
        return scale * float(sum(value**2 for value in _at_places(query, sums))) / float(query.largest) ** 2
    return scale if sums == PAIR else scale * _SQUARED_OF_THREE


def _claim(user: HistogramQuery, key: _Key, loss: Fraction, groups: int) -> Claim:
    """Return the claim of one draw under its statistics' limits: of a count, or of numbers from −1 to 1."""
    terms = replace(user.terms.with_loss(loss), groups=groups)
    if key == _COUNT:
        return checked(Count("rows", terms)).claim
    return checked(Sum(Fraction(-1), Fraction(1), Fraction(1), of_floats=False, terms=terms)).claim


def _in_words(key: _Key) -> str:
    if key == _COUNT:
        return "number of rows"
    kind, _, lower, upper, _ = key
    return f"sum of {kind} from the middle of {exact(lower)} and {exact(upper)}"  # type: ignore[arg-type]


def with_draws(query: HistogramQuery, draws: tuple[SharedDraw, ...]) -> HistogramQuery:
    assert isinstance(query, Measure)
    if isinstance(query, Sum):
        ends = query.lower, query.upper, query.step
        options = {"of_floats": query.of_floats, "terms": query.terms, "in_parts": query.in_parts}
        return checked(CentredSum(*ends, **options, shared=draws))  # type: ignore[arg-type]
    return checked(replace(query, shared=draws))


def is_no_worse(apart: HistogramQuery, shared: HistogramQuery) -> bool:
    """Return whether no draw has more noise than the statistic's own draw; for a sum, both draws count together."""
    assert isinstance(apart, Measure)
    assert isinstance(shared, Measure)
    before, after = apart.noise(), shared.noise()
    if not isinstance(shared, CentredSum):
        return all(new.rate >= old.rate for old, new in zip(before, after, strict=True))
    units = [Fraction(1, 2**bits) for bits in shared.bits_of_parts()]
    (old,), (old_unit,) = (1 / claim.rate for claim in before), (Fraction(1, 2**bits) for bits in apart.bits_of_parts())
    noises = (unit / claim.rate for unit, claim in zip(units, after, strict=True))
    pair = [abs(by) * noise for by, noise in zip(shared.coefficients(), noises, strict=True)]  # in whole steps
    if shared.claim._has_epsilon:
        return sum(pair) <= old * old_unit
    return pair[0] ** 2 + pair[1] ** 2 <= (old * old_unit) ** 2
