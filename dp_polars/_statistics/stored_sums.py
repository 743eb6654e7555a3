"""Statistics that follow from sums which an earlier query has drawn: which draws are exact enough.

Proof: `docs/proofs/shared-sums.md`, Theorem 5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Loss
from dp_polars._statistics.averages import Variance
from dp_polars._statistics.measures import Clipped, Count, Measure, SharedDraw, Sum
from dp_polars._statistics.of_shared_draws import PAIR, THREE, Bernstein, BernsteinVariance, CentredSum, bernstein
from dp_polars._statistics.shared_sums import (
    Part,
    bernstein_needed,
    claims_needed,
    is_no_worse,
    is_of_shared_kind,
    with_draws,
)
from dp_polars._statistics.statistic import Columns, HistogramQuery

_COUNT = json.dumps(["count"])
_BERNSTEIN = {PAIR: "pair", THREE: "three"}
_SUMS = {kind: sums for sums, kind in _BERNSTEIN.items()}


class Noise(NamedTuple):
    """The claim of a draw and the rate of its noise, as far as equal limits don't determine them."""

    loss: Fraction
    score_range: Fraction
    draws: Fraction
    same_group: Fraction
    rate: Fraction
    groups: Fraction | None

    @classmethod
    def of(cls, claim: Claim, rate: Fraction) -> Noise:
        groups = None if claim._groups is None else Fraction(claim._groups)
        return cls(claim.loss.value, claim.score_range, Fraction(claim._draws), claim._same_group, rate, groups)

    @classmethod
    def read(cls, numbers: Sequence[str | None]) -> Noise:
        *others, groups = numbers
        loss, score_range, draws, same_group, rate = (Fraction(number or 0) for number in others)
        return cls(loss, score_range, draws, same_group, rate, None if groups is None else Fraction(groups))

    def on(self, claim: Claim) -> Claim:
        """Return a claim under the same limits with this loss and this rate."""
        return replace(
            claim,
            loss=Loss(self.loss, claim.loss.unit),
            score_range=self.score_range,
            _draws=int(self.draws),
            _same_group=self.same_group,
            _groups=None if self.groups is None else int(self.groups),
        )


@dataclass(frozen=True)
class Stored:
    """A stored draw: what it is of, its noise, and the place of its first column among those that were drawn."""

    what: str
    noise: Noise
    place: int


@dataclass(frozen=True)
class StoredStatistic:
    """A statistic of a cached answer: what it is, its own loss, and the places of the draws that it follows from."""

    what: str
    loss: Fraction
    places: tuple[int, ...]


@dataclass(frozen=True)
class Answered:
    """The draws of a cached answer, and its statistics."""

    draws: tuple[Stored, ...]
    statistics: tuple[StoredStatistic, ...]


class Texts(NamedTuple):
    """A statistic without its claim, as texts: the values that it reads, and itself; and the types that it reads."""

    values: str
    formula: str
    types: Columns

    @property
    def statistic(self) -> str:
        return json.dumps([self.values, self.formula])


@dataclass(frozen=True)
class FromStored:
    """A statistic that follows from stored draws, the types that it reads, and the places of these draws."""

    query: HistogramQuery
    types: Columns
    places: tuple[int, ...]


def drawn_sums(query: HistogramQuery, texts: Texts) -> list[tuple[str, Noise]]:
    """Return what each draw of a statistic is of, and its noise. Bernstein sums are one draw."""
    if not isinstance(query, Measure):
        return []
    claims = [draw.claim for draw in query.shared] or [query.claim] * len(query.changes(*texts.types))
    rates = [claim.rate for claim in query.noise(*texts.types)]
    # All Bernstein sums have the same rate.
    return list(zip(_whats(query, texts), map(Noise.of, claims, rates), strict=True))


def _whats(query: Measure, texts: Texts) -> list[str]:
    if not is_of_shared_kind(query.alone):
        return [json.dumps(["own", texts.statistic])]
    if isinstance(query, Bernstein):
        return [_of(_BERNSTEIN[len(query.places)], query.values, texts)]
    if isinstance(query, Count):
        return [_COUNT]
    assert isinstance(query, Clipped)
    if isinstance(query, Sum) and not isinstance(query, CentredSum):
        return [_of("sum", query, texts)]
    kinds = ["distances", "squares"] if isinstance(query, Variance) else ["distances"]
    return [*(_of(kind, query, texts) for kind in kinds), _COUNT]


def _of(kind: str, query: Clipped, texts: Texts) -> str:
    numbers = query.lower, query.upper, query.known_step(*texts.types)
    return json.dumps([kind, texts.values, *map(str, numbers)])


def from_stored(part: Part, texts: Texts, reads: Texts, groups: int, answered: Answered) -> FromStored | None:
    """Return a statistic from stored draws; None if there are none, or if it would be less exact than it may be.

    It is the same statistic at its own loss or a larger one; or it is no less exact than from the planned draws.

    Parameters
    ----------
    part
        The statistic as it is planned, with the draws that it would share.
    texts
        What it reads.
    reads
        What the planned draws read: another statistic of the query may provide them.
    groups
        The number of public groups.
    answered
        The draws and the statistics of a cached answer about the same rows under the same limits.
    """
    planned, stored = part.query, answered.draws
    if not isinstance(planned, Measure):
        return None
    ways = chain(
        _the_same(planned, texts, answered),
        [_with_rates(drawn_sums(planned, reads), stored)],
        _otherwise(part, planned, texts, groups, stored),
    )
    return next(filter(None, (_formed(planned, texts, draws) for draws in ways)), None)


def _the_same(planned: Measure, texts: Texts, answered: Answered) -> Iterator[list[Stored]]:
    """Yield the draws of the same statistic, if its own loss was as large."""
    for one in answered.statistics:
        if one.what == texts.statistic and one.loss >= planned.claim.loss.value:
            yield [draw for place in one.places for draw in answered.draws if draw.place == place]


def _otherwise(
    part: Part, planned: Measure, texts: Texts, groups: int, stored: Sequence[Stored]
) -> Iterator[list[Stored]]:
    """Yield draws from which the statistic is no worse than by itself, and by itself no worse than planned."""
    loss = _loss_alone(planned)
    if loss is None or not is_of_shared_kind(planned.alone):
        return
    apart = planned.alone.with_loss(loss)
    if isinstance(apart, (Count, Sum)):
        yield _with_rates(drawn_sums(apart, texts), stored)
    claims = claims_needed(part._replace(query=apart), groups)
    if claims is not None:
        split = with_draws(apart, tuple(SharedDraw(claim, "", ()) for claim in claims))
        draws = _with_rates(drawn_sums(split, texts), stored)
        found = _formed(apart, texts, draws)
        yield draws if found is not None and is_no_worse(apart, found.query) else []
    for draw in stored:
        kind = json.loads(draw.what)[0]
        sums = _SUMS.get(kind, 1)
        may_follow = sums > PAIR or not isinstance(apart, Variance)
        if sums >= PAIR and may_follow and draw.noise.loss >= loss * bernstein_needed(apart, sums):
            is_its_own = isinstance(apart, Clipped) and draw.what == _of(kind, apart, texts)
            yield [draw] if is_its_own or isinstance(apart, Count) else []


def _with_rates(wanted: Sequence[tuple[str, Noise]], stored: Sequence[Stored]) -> list[Stored]:
    """Return the most exact draw of each sum; none if one of them has a lower rate than is wanted."""
    found = []
    for what, noise in wanted:
        draws = [one for one in stored if one.what == what and one.noise.rate >= noise.rate]
        if not draws:
            return []
        found.append(max(draws, key=lambda one: one.noise.rate))
    return found


def _formed(planned: Measure, texts: Texts, draws: Sequence[Stored]) -> FromStored | None:
    """Return the statistic from stored draws; None if there are none, or a rate is not that of its claim."""
    if not draws:
        return None
    apart, types = planned.alone, texts.types
    kind, *of = json.loads(draws[0].what)
    sums = _SUMS.get(kind, 1)
    # Two names: others may follow from the same draws, so intervals that all hold take no independence for granted.
    shared = tuple(SharedDraw(one.noise.on(apart.claim), str(one.place), ("", ""), sums) for one in draws)
    found: Measure
    if sums < PAIR:
        found = with_draws(apart, shared) if kind == "distances" else replace(apart, shared=shared)  # type: ignore[assignment]
    elif isinstance(apart, Count):  # of a column that the query may not read: the step is known
        lower, upper, step = map(Fraction, of[1:])
        bounds = Sum(lower, upper, step, of_floats=False, terms=apart.terms, in_parts=apart.in_parts)
        found, types = bernstein(apart, shared[0], bounds), ()
    else:
        assert isinstance(apart, Clipped)
        found = bernstein(apart, shared[0], apart)
    if [claim.rate for claim in found.noise(*types)] != [one.noise.rate for one in draws for _ in range(sums)]:
        return None
    return FromStored(found, types, tuple(one.place + column for one in draws for column in range(sums)))


def _loss_alone(planned: Measure) -> Fraction | None:
    """Return a loss with which the statistic by itself is no worse than from the planned draws; None: unknown."""
    losses = [draw.claim.loss.value for draw in planned.shared]
    if not losses:
        return planned.claim.loss.value
    if isinstance(planned, BernsteinVariance):
        return None
    if isinstance(planned, (Bernstein, Count)):
        return losses[0]
    if not isinstance(planned, Sum):
        return len(losses) * max(losses)
    half, middle = (planned.upper - planned.lower) / 2, abs(planned.upper + planned.lower) / 2
    of_sum, of_count = losses
    if not planned.claim._has_epsilon:
        return planned.largest**2 / (half**2 / of_sum + middle**2 / of_count)
    if planned.claim.loss.unit == "rho":
        return None
    return planned.largest / max(half / of_sum, middle / of_count)
