"""Statistics of the same rows share their sums: which do, and how much of the loss each sum gets.

Proof: `docs/proofs/shared-sums.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Loss, exact
from dp_polars._base.numbers import Floats, Ints
from dp_polars._bins.binning import OneCode
from dp_polars._bins.weights import type_in_steps
from dp_polars._mechanisms.noise import LARGEST_VALUE, check_scale
from dp_polars._mechanisms.noise_pairs import NoisePair
from dp_polars._mechanisms.person_weights import ends_of, rounded
from dp_polars._statistics.averages import Deviation, Mean, Share, Variance
from dp_polars._statistics.measures import Count, Measure, SharedDraw, Sum, checked
from dp_polars._statistics.statistic import Asked, CountRule, HistogramQuery

_WIDEST = 62  # bits of whole numbers that 64 bits hold with a sign and a carry


@dataclass(frozen=True)
class CentredSum(Sum):
    """A sum from the draws of a mean: the distances from the middle of the clipping bounds, and the number of rows."""

    @property
    def alone(self) -> Sum:  # type: ignore[override]  # a sum of its own has another draw
        return Sum(
            self.lower, self.upper, self.step, of_floats=self.of_floats, claim=self.claim, in_parts=self.in_parts
        )

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return CountRule(OneCode(), replace(self.units(*columns), doubled=True)), CountRule(OneCode())

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return what one row changes: the sum of distances, in halves of a step, and the count."""
        return (self.upper - self.lower) / self.known_step(*columns), Fraction(1)

    def units_of_row(self, *columns: pl.DataType) -> tuple[int, ...]:
        return tuple(map(int, self.changes(*columns)))

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return type_in_steps(self.known_step(*columns), *columns, of_floats=self.of_floats)

    def _middle(self, *columns: pl.DataType) -> int:
        """Return the middle of the bounds, in halves of a step."""
        return int((self.lower + self.upper) / self.known_step(*columns))

    def of_totals(self, totals: Sequence[Floats], *columns: pl.DataType) -> Floats:
        """Return sums, of noisy totals in whole units."""
        distance, count = totals
        half = float(self.known_step(*columns) / 2)
        sums: Floats = half * (np.asarray(distance) + self._middle(*columns) * np.asarray(count))
        return sums

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        bits, middle = self.bits_of_parts(*columns), self._middle(*columns)
        # In parts of 2**−finest halves of a step.
        finest = max(bits)
        numbers = [column.to_numpy() for column in drawn]
        factors = 1 << (finest - bits[0]), middle << (finest - bits[1])
        largest = sum(int(np.abs(one).max(initial=0)) * abs(by) for one, by in zip(numbers, factors, strict=True))
        if largest.bit_length() > _WIDEST - 1:
            numbers = [number.astype(object) for number in numbers]
        parts = numbers[0] * factors[0] + numbers[1] * factors[1]
        shown = [rounded(parts, finest + 1)]
        if beta is not None:
            bound = self._bound(beta, *columns)
            shown += ends_of(parts, -int(-bound * 2**finest // 1), finest + 1)
        return tuple(self.named([_in_64_bits(one)], *columns) for one in shown)

    def _bound(self, beta: float, *columns: pl.DataType) -> float:
        """Return how far noise moves the sum at most, in halves of a step, but for a probability of beta."""
        of_sum, of_count = self.noise(*columns)
        on_sum, on_count = self.bits_of_parts(*columns)
        return NoisePair.of(of_sum, of_count, (on_sum, on_count)).bound(-self._middle(*columns), beta)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return an error in the column's unit, with what rounding to whole steps adds."""
        return float((self._bound(beta, *columns) + 1) * float(self.known_step(*columns) / 2))


def _in_64_bits(numbers: Ints) -> Ints:
    return np.clip(numbers, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)


class Part(NamedTuple):
    """A statistic of a query, with its name, and what tells which rows contribute to it. None: nothing is known."""

    name: str
    rows: Hashable
    query: HistogramQuery


_Key: TypeAlias = "tuple[Hashable, ...]"
_COUNT: _Key = ("count",)


@dataclass(frozen=True)
class _Needs:
    """The loss that a statistic needs of each of its draws, to be no worse than by itself."""

    part: Part
    draws: dict[_Key, Fraction]  # in the order of its count rules


def with_shared_sums(parts: Sequence[Part], groups: int) -> list[HistogramQuery]:
    """Return the statistics, with the draws that they share. How they shared any before does not matter.

    Statistics share sums if the same rows contribute to them with the same weights, and their losses have one unit. The
    loss of all of them together goes to all of their draws. `groups` is how many public groups there are.
    """
    parts = [part._replace(query=alone(part.query)) for part in parts]
    found = [part.query for part in parts]
    for members in _alike(parts):
        for pool in (members, [place for place in members if not _is_sum(parts[place].query)]):
            shared = _shared([parts[place] for place in pool], groups)
            if shared is not None:
                for place, query in zip(pool, shared, strict=True):
                    found[place] = query
                break
    return found


def part_that_is_needed(parts: Sequence[Part], groups: int) -> list[Fraction]:
    """Return, for statistics whose losses are open, how much of its part of the loss each one needs if sums are shared.

    That is the same for all that share sums, and 1 for others. The rest goes to all outputs.
    """
    needed = [Fraction(1)] * len(parts)
    closed = [part._replace(query=_closed(part.query)) for part in parts]
    shared = with_shared_sums(closed, groups)
    for members in _alike(closed):
        pool = [place for place in members if isinstance(shared[place], Measure) and shared[place].shared]  # type: ignore[attr-defined]
        if pool and all(parts[place].query.claim._is_open for place in pool):
            needs = [_needs(closed[place]) for place in pool]
            factor = sum(_most(needs).values(), Fraction(0)) / _losses(needs)
            for place in pool:
                needed[place] = factor
    return needed


def alone(query: HistogramQuery) -> HistogramQuery:
    return query.alone if isinstance(query, Measure) else query


def draws_shared(query: Asked) -> tuple[SharedDraw, ...]:
    """Return the draws that a statistic shares with others of its query, if it does."""
    return query.shared if isinstance(query, Measure) else ()


def first_draw(query: Asked) -> Claim:
    """Return the claim of a statistic, or that of its first draw if it shares them."""
    return next((draw.claim for draw in draws_shared(query)), query.claim)


def _closed(query: HistogramQuery) -> HistogramQuery:
    claim = query.claim
    if not isinstance(query, Measure) or claim._loss_weight is None:
        return query
    return query.with_claim(replace(claim, loss=Loss(claim._loss_weight, claim.loss.unit), _loss_weight=None))


def _is_sum(query: HistogramQuery) -> bool:
    return isinstance(query, Sum)


def _alike(parts: Sequence[Part]) -> Iterator[list[int]]:
    """Yield the places of statistics that may share sums."""
    found: dict[Hashable, list[int]] = {}
    for place, (_, rows, query) in enumerate(parts):
        claim = query.claim
        is_of_rows = type(query) in _KINDS and getattr(query, "counted", "rows") in ("rows", "values")
        if rows is not None and is_of_rows and not claim._is_open:
            assert isinstance(query, Measure)
            key = (rows, query.in_parts, claim.mechanism, claim.loss.unit, claim._is_asked)
            found.setdefault(key, []).append(place)
    yield from (members for members in found.values() if len(members) > 1)


_KINDS = (Count, Sum, Mean, Share, Variance, Deviation)


def _needs(part: Part) -> _Needs:
    query, loss = part.query, part.query.claim.loss.value
    if isinstance(query, Count):
        return _Needs(part, {_COUNT: loss})
    assert isinstance(query, (Sum, Mean, Variance))
    distances: _Key = ("distances", query.lower, query.upper, query.step)
    if isinstance(query, Variance):
        squares: _Key = ("squares", *distances[1:])
        return _Needs(part, dict.fromkeys([distances, squares, _COUNT], loss / 3))
    if isinstance(query, Mean):
        return _Needs(part, dict.fromkeys([distances, _COUNT], loss / 2))
    # Scales add up at most to that of the sum, and squared deviations are as large.
    half, middle = (query.upper - query.lower) / 2, abs(query.upper + query.lower) / 2
    if query.claim._has_epsilon:
        return _Needs(part, {distances: loss, _COUNT: loss if middle else Fraction(0)})
    return _Needs(part, {distances: loss * half / (half + middle), _COUNT: loss * middle / (half + middle)})


def _most(needs: Sequence[_Needs]) -> dict[_Key, Fraction]:
    most: dict[_Key, Fraction] = {}
    for one in needs:
        for key, loss in one.draws.items():
            most[key] = max(loss, most.get(key, Fraction(0)))
    return most


def _losses(needs: Sequence[_Needs]) -> Fraction:
    return sum((one.part.query.claim.loss.value for one in needs), Fraction(0))


def _shared(parts: Sequence[Part], groups: int) -> list[HistogramQuery] | None:
    """Return statistics that share all of their draws; None if that would make one of them worse, or nothing shared."""
    needs = [_needs(part) for part in parts]
    most, losses = _most(needs), _losses(needs)
    used = [key for one in needs for key in one.draws]
    if len(parts) < 2 or len(used) == len(most) or sum(most.values()) > losses or not all(most.values()):
        return None
    factor = losses / sum(most.values(), Fraction(0))
    draws = {}
    for key, loss in most.items():
        names = tuple(one.part.name for one in needs if key in one.draws)
        user = next(one.part.query for one in needs if key in one.draws)
        draws[key] = SharedDraw(_claim(user, key, loss * factor, groups), _in_words(key), names)
    try:
        shared = [_with_draws(one.part.query, tuple(draws[key] for key in one.draws)) for one in needs]
    except ValueError:  # halves of a step, which a sum alone does not need, would leave 64 bits
        return None
    return (
        shared if all(_is_no_worse(one.part.query, query) for one, query in zip(needs, shared, strict=True)) else None
    )


def _claim(user: HistogramQuery, key: _Key, loss: Fraction, groups: int) -> Claim:
    """Return the claim of one draw under the limits of its statistics: of a count, or of numbers from −1 to 1."""
    claim = replace(
        user.claim, loss=replace(user.claim.loss, value=loss), _draws=1, _same_group=Fraction(1), _groups=None
    )
    one: Measure = Count("rows", claim)
    if key != _COUNT:
        one = Sum(Fraction(-1), Fraction(1), Fraction(1), of_floats=False, claim=claim)
    assert claim.neighboring_relation is not None
    return one.under(claim.contributions, claim.neighboring_relation, groups).claim


def _in_words(key: _Key) -> str:
    if key == _COUNT:
        return "number of rows"
    kind, lower, upper, _ = key
    return f"sum of {kind} from the middle of {exact(lower)} and {exact(upper)}"  # type: ignore[arg-type]


def _with_draws(query: HistogramQuery, draws: tuple[SharedDraw, ...]) -> HistogramQuery:
    assert isinstance(query, Measure)
    if isinstance(query, Sum):
        ends = query.lower, query.upper, query.step
        options = {"of_floats": query.of_floats, "claim": query.claim, "in_parts": query.in_parts}
        return checked(CentredSum(*ends, **options, shared=draws))  # type: ignore[arg-type]
    return checked(replace(query, shared=draws))


def _is_no_worse(apart: HistogramQuery, shared: HistogramQuery) -> bool:
    """Return whether no draw has more noise than that of the statistic alone; of a sum, both draws together."""
    assert isinstance(apart, Measure)
    assert isinstance(shared, Measure)
    before, after = apart.noise(), shared.noise()
    if not isinstance(shared, CentredSum):
        return all(new.rate >= old.rate for old, new in zip(before, after, strict=True))
    units = [Fraction(1, 2**bits) for bits in shared.bits_of_parts()]
    (old,), (old_unit,) = (1 / claim.rate for claim in before), (Fraction(1, 2**bits) for bits in apart.bits_of_parts())
    distances, counts = (unit / claim.rate for unit, claim in zip(units, after, strict=True))
    pair = distances / 2, abs(shared._middle()) * counts / 2  # in whole steps
    if shared.claim._has_epsilon:
        return sum(pair) <= old * old_unit
    return pair[0] ** 2 + pair[1] ** 2 <= (old * old_unit) ** 2
