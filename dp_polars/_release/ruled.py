"""Requests with outputs whose limits or clipping bounds are left out: the public rules by which these are chosen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import polars as pl

from dp_polars._accounting import costs
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import LARGEST, Contributions, Loss, Terms, Unit
from dp_polars._base import column_types
from dp_polars._mechanisms.limit_rule import (
    LimitKind,
    Rule,
    bound_rule,
    bounds_up_to,
    limit_rule,
    limits_up_to,
    part_of_loss,
)
from dp_polars._mechanisms.noise import check_scale
from dp_polars._release.left_out import limits_needed, rows_apart, values_apart
from dp_polars._release.protection import Protection
from dp_polars._release.request import Ask, Request, under
from dp_polars._statistics.answer_lists import TopK
from dp_polars._statistics.averages import Variance
from dp_polars._statistics.categories import Ranked
from dp_polars._statistics.limits import LimitChoice, What, is_bound
from dp_polars._statistics.measures import Clipped, Measure, SumOfPeople
from dp_polars._statistics.shared_sums import Part, alone, draws_shared
from dp_polars._statistics.statistic import Columns, HistogramQuery

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken

# What each choice has of the loss of its outputs, where a larger part is not needed.
_SMALLEST_PART = Fraction(1, 50)
# The most that all choices together have of the whole loss, in several groups and in one.
_LARGEST_PART, _LARGEST_PART_OF_ONE = Fraction(1, 5), Fraction(3, 10)
_ROOT_OF_2_BY_PI = Fraction("0.797884560802865")
# The smallest clipping bounds but 0: of floats, and of Decimals with many places (if these hold few digits before the
# point, as a part of the largest ones). And the largest ones.
_LEAST, _LEAST_OF_DECIMALS, _RATIO, _MOST = (
    Fraction(1, 1000),
    Fraction(1, 10**6),
    Fraction(1, 10**12),
    Fraction(10) ** 18,
)

_SIZES_OF_RANKS = bounds_up_to(Fraction(1, 1000), Fraction(10) ** 12)
_OF_RANKS: dict[What, tuple[Fraction, ...]] = {
    "lower": tuple(-size for size in _SIZES_OF_RANKS),
    "upper": _SIZES_OF_RANKS,
}

# Between bounds there are 10⁶ to 10⁷ steps by default, or 2²⁹ to 2³⁰ for squares. With smaller bounds, noise has up to
# this many times as many of them.
_ROOM, _ROOM_OF_SQUARES = 10, 2

# The types of the columns of outputs, by their names.
Types: TypeAlias = "Mapping[str, Columns]"

#: The limit at which errors are shown, and units compared, before a limit is found.
REFERENCE = 5


@dataclass(frozen=True)
class OneSet:
    """Outputs of the same contributing rows and kind of counting, which share what is found."""

    what: What
    asks: tuple[int, ...]


class _Facts(NamedTuple):
    """The losses of the outputs of a choice, the noise of all groups at a limit of one, and how many cells have it."""

    losses: Fraction
    noise: Fraction
    cells: int


@dataclass(frozen=True)
class RuledRequest(Request):
    """Answers whose limits or clipping bounds are left out, with the choices that find them, and their public rules.

    Rules follow from losses, and from the types of columns if these are known. They are made when they are needed.
    """

    sets: tuple[OneSet, ...] = field(default=(), kw_only=True)
    unruled: tuple[Ask[LimitChoice], ...] = field(default=(), kw_only=True)  # the choices, without their rules
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict, kw_only=True)  # by output
    parts: tuple[Fraction, ...] = field(default=(), kw_only=True)  # that the choices have of the loss of their outputs
    types: Types = field(default_factory=dict, kw_only=True)  # of the columns of each output; empty: not known
    ruled: tuple[Ask[LimitChoice], ...] = field(default=(), kw_only=True)  # the choices, of a request with their values
    _of_types: dict[object, Self] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def in_stages(
        cls,
        pipeline: Any,  # noqa: ANN401
        keys: pl.DataFrame | None,
        asks: Sequence[Ask[HistogramQuery]],
        needed: Sequence[Sequence[What]],
        unit: Unit,
        **fields: Any,  # noqa: ANN401  # the fields of a subclass
    ) -> Self:
        return cls(pipeline, keys, tuple(asks), **fields)._finding(needed, unit)

    def _finding(self, needed: Sequence[Sequence[What]], unit: Unit) -> Self:
        """Return the request, nothing of which has a loss, with choices of limits, and of bounds that are left out."""
        of: dict[tuple[object, ...], list[int]] = {}
        for place, (ask, needs) in enumerate(zip(self.asks, needed, strict=True)):
            for limit in needs:
                of.setdefault((limit, *rows_apart(ask)), []).append(place)
            for what in ask.query.finds:
                of.setdefault((what, *values_apart(ask)), []).append(place)
        sets = tuple(OneSet(key[0], tuple(places)) for key, places in of.items())  # type: ignore[arg-type]
        limits: dict[str, dict[str, int]] = {
            ask.name: {limit: min(REFERENCE, self.groups) if limit == "max_groups" else REFERENCE for limit in needs}
            for ask, needs in zip(self.asks, needed, strict=True)
            if needs
        }
        request = replace(self, sets=sets, limits=limits)
        request = replace(request, asks=tuple(request._bounded(ask) for ask in request.asks))
        choices = tuple(request._choice(one, unit) for one in sets)
        return replace(request, unruled=choices).with_parts((_SMALLEST_PART,) * len(sets))

    def finding_in(self, unit: Unit) -> Self:
        """Return the request, nothing of which has a loss, with the limits that are needed in a unit."""
        needed = limits_needed(self.asks, self.protection, self.groups, unit)
        known = [tuple(self.limits.get(ask.name, ())) for ask in self.asks]
        return self if needed == known else self._finding(needed, unit)

    # --- What is charged --------------------------------------------------------------------------------------------

    @property
    def found_first(self) -> tuple[Ask[Any], ...]:
        return self.choices

    @property
    def every_unruled(self) -> tuple[Ask[Any], ...]:
        return *self.unruled, *self.asks

    @property
    def needed(self) -> list[Fraction]:
        return [Fraction(1)] * (len(self.every_unruled) - len(self.asks)) + super().needed

    def with_asks(self, asks: Iterable[Ask[Any]], taken: UnitTaken | None = None) -> Self:
        every = tuple(asks)
        number = len(self.unruled)
        asks = tuple(self._shared(every[number:]))
        request = replace(self, unruled=every[:number], asks=asks, taken=taken, ruled=())
        if not request._has_open:
            request._check_smallest()
        return request

    @property
    def _has_open(self) -> bool:
        return any(ask.query.claim._is_open for ask in (*self.unruled, *self.asks))

    @property
    def has_enough(self) -> bool:
        """Whether the parts of the loss that the choices have are those that they should have."""
        return self.wanted == self.parts

    def with_parts(self, parts: tuple[Fraction, ...]) -> Self:
        """Return the request, nothing of which has a loss, with the parts of the loss that the choices are to have."""
        choices, needed = [], super().needed
        for of, choice, part in zip(self.sets, self.unruled, parts, strict=True):
            weights = ((self.asks[place].query.claim._loss_weight or 0) * needed[place] for place in of.asks)
            weight = part / (1 - part) * sum(weights)
            choices.append(choice.with_terms(replace(choice.query.terms, loss_weight=weight)))
        return replace(self, unruled=tuple(choices), parts=parts)

    def _charged_as(self, ask: Ask[Any], claim: Claim) -> Claim:
        """Return the claim of what may be found that costs most in the other unit; in its own, all cost the same."""
        if claim._is_open or not claim._has_epsilon or isinstance(ask.query, LimitChoice):
            return claim
        if len(self.limits.get(ask.name, ())) > 1:  # in groups of both people, and one more as rates are rounded
            people = 1 if self.protection.neighboring_relation == "add_or_remove_one" else 2
            return at_worst(claim, people * self.groups + 1)
        other: Unit = "rho" if claim.loss.unit == "epsilon" else "epsilon"
        claims = self._possible_claims(ask)
        if draws_shared(ask.query):  # all of a row moves a draw by one, whatever the limits are
            claims = (replace(claim, contributions=one.contributions) for one in claims)
        return max(claims, key=lambda one: one.cost(other))

    def _possible_claims(self, ask: Ask[HistogramQuery]) -> Iterator[Claim]:
        query, asks = ask.query, [ask]
        if query.finds and isinstance(query, Clipped):  # bounds of both signs may cost more: most where they are alike
            reach = max(map(abs, query.sought))
            lower, upper = (sign * reach if name in query.finds else end for name, sign, end in ends_of(query))
            asks += [replace(ask, query=query.with_sought(lower, upper))] if lower < upper else []
        if isinstance(query, TopK) and query.selects:  # if fewer candidates are selected, fewer draws share the loss
            asks.append(replace(ask, query=query.at_most(1)))
        protections = [self.protection_of(ask)]
        for of, choice in zip(self.sets, self.choices, strict=True):
            if of.what in self.limits.get(ask.name, ()) and ask.name in map(self._name_at, of.asks):
                protections = [self.protection.with_limits(**{of.what: int(one)}) for one in choice.query.values]
        yield from (under(protection, one, self.groups).claim for protection in protections for one in asks)

    def sharing(self, asks: Sequence[Ask[HistogramQuery]]) -> list[Part]:
        """Return statistics with what tells whose rows contribute, and which limit is found for them.

        How they share sums must not depend on what is found. It does on clipping bounds, and on limits where rows are
        replaced and losses have another unit, too.
        """
        limit_of, with_bounds = dict[str, int](), set[str]()
        for number, of in enumerate(self.sets):
            names = map(self._name_at, of.asks)
            if is_bound(of.what):
                with_bounds.update(names)
            else:
                limit_of |= dict.fromkeys(names, number)
        is_replaced = self.protection.neighboring_relation == "replace_one"

        def is_fixed(part: Part) -> bool:
            return part.name not in with_bounds and not (is_replaced and part.query.claim._has_epsilon)

        return [
            part._replace(rows=(limit_of.get(part.name), part.rows) if is_fixed(part) else None)
            for part in super().sharing(asks)
        ]

    # --- The rule ---------------------------------------------------------------------------------------------------

    def _choice(self, of: OneSet, unit: Unit) -> Ask[LimitChoice]:
        relation = self.protection.neighboring_relation
        terms = replace(Terms.at(Loss(Fraction(1), unit)), loss_weight=Fraction(1), neighboring_relation=relation)
        outputs = ", ".join(self.asks[place].name for place in of.asks)
        first = self.asks[of.asks[0]].query
        is_drawn = of.what in ("max_groups", "max_rows", "max_rows_per_group") and not first.weighs_people
        of_ranks = is_bound(of.what) and isinstance(first, Ranked)
        return Ask(f"{of.what} of {outputs}", (), LimitChoice(of.what, outputs, is_drawn, terms, of_ranks))

    def of_types(self, types: Types) -> Self:
        """Return the request with the rules for columns of these types, by output."""
        key = tuple(types.items())
        if key not in self._of_types:
            self._of_types[key] = replace(self, types=types)
        return self._of_types[key]

    @cached_property
    def choices(self) -> tuple[Ask[LimitChoice], ...]:
        """The choices with their public numbers, if all losses are known."""
        if self.ruled or self._has_open:
            return self.ruled or self.unruled
        numbers = self._numbers_that_fit()
        return tuple(self._ruled(*one) for one in zip(self.sets, self.unruled, self._facts, numbers, strict=True))

    @cached_property
    def wanted(self) -> tuple[Fraction, ...]:
        """Which part of the loss of its outputs each choice should have."""
        wanted = []
        for choice, facts in zip(self.unruled, self._facts, strict=True):
            loss = choice.query.claim.loss
            whole = Loss(facts.losses + loss.value, loss.unit)
            wanted.append(part_of_loss(whole, facts.cells, facts.noise, of_ranks=choice.query.of_ranks))
        return self._within_all(wanted)

    @cached_property
    def _facts(self) -> tuple[_Facts, ...]:
        return tuple(map(self._facts_of, self.sets))

    def _facts_of(self, of: OneSet) -> _Facts:
        asks = [self._alone_at(place) for place in of.asks]
        losses = [ask.query.claim.loss.value for ask in asks]
        noises = (loss * self._noise(ask) for ask, loss in zip(asks, losses, strict=True))
        widths = (ask.query.answer_width() if ask.query.is_count else 1 for ask in asks)
        return _Facts(sum(losses, Fraction(0)), sum(noises, Fraction(0)) / sum(losses), self.groups * max(widths))

    def _ruled(self, of: OneSet, choice: Ask[LimitChoice], facts: _Facts, number: int) -> Ask[LimitChoice]:
        """Return a choice with its public numbers, among the first `number` candidates."""
        query, first = choice.query, self.asks[of.asks[0]]
        # What else is released of people beyond is paid for: offsets follow from what is left for the choice.
        loss = Loss(min(query.claim.rate * query.range_of_scores, Fraction(LARGEST)), "epsilon")
        kind: LimitKind | None = None
        rule: Rule[Any]
        if query.is_bound:
            if isinstance(first.query, SumOfPeople):
                query = replace(query, step_of_totals=self._step_of_totals(first))
            rule = bound_rule(loss, None if query.of_ranks else facts.noise, self._candidates(of, choice))
        else:
            by_rows: LimitKind = "norm" if of.what == "max_norm" else "root"
            kind = (
                "selection"
                if query.is_drawn
                else "linear"
                if self._alone_at(of.asks[0]).query.claim._has_epsilon
                else by_rows
            )
            rule = limit_rule(kind, loss, facts.cells, facts.noise, self._most(of))
        return replace(choice, query=replace(query, rule=rule.first(number), kind=kind))

    def _candidates(self, of: OneSet, choice: Ask[LimitChoice]) -> tuple[Fraction, ...]:
        """Return the limits or bounds that a choice may find, if all of them can be answered."""
        first = self.asks[of.asks[0]]
        if not choice.query.is_bound:
            return tuple(map(Fraction, limits_up_to(self._most(of))))
        if choice.query.of_ranks:
            return _OF_RANKS[of.what]
        if isinstance(first.query, SumOfPeople):
            return _totals(of.what, self._step_of_totals(first))
        return _bounds(of.what, *self.types.get(first.name, ()))

    def _most(self, of: OneSet) -> int | None:
        return self.groups if of.what == "max_groups" else None

    def _step_of_totals(self, ask: Ask[HistogramQuery]) -> Fraction:
        assert isinstance(ask.query, SumOfPeople), "others have no totals"
        return ask.query.totals(*self.types.get(ask.name, ()) or (pl.Float64(),)).step

    def _offered(self) -> list[tuple[Fraction, ...]]:
        """Return what each choice may find, if all of it can be answered."""
        return [
            one.query.read_as(self._candidates(of, one), *self.types.get(self.asks[of.asks[0]].name, ()))
            for of, one in zip(self.sets, self.unruled, strict=True)
        ]

    def _check_smallest(self) -> None:
        """Raise a ValueError if an output can't be answered with the smallest limits and bounds."""
        offered = self._offered()
        first = [of[-1 if one.query.of_ranks else 0] for of, one in zip(offered, self.unruled, strict=True)]
        is_any = [one.query.of_ranks for one in self.unruled]  # any grid will do
        for place in {
            place for of, any_grid in zip(self.sets, is_any, strict=True) if not any_grid for place in of.asks
        }:
            self._check_answered(place, first)

    def _numbers_that_fit(self) -> list[int]:
        """Return how many of its candidates each choice may find: those that can be answered, whatever else is found.

        Columns and noise set how large bounds may be, at the smallest limits; and these how large limits may be. A
        ValueError where the smallest candidates are too large.
        """
        offered = self._offered()
        # For quantiles, any grid will do.
        most = [len(of) if one.query.of_ranks else 1 for of, one in zip(offered, self.unruled, strict=True)]
        for of_bounds in (True, False):
            sets = [at for at, one in enumerate(self.unruled) if one.query.is_bound is of_bounds]
            sets = [at for at in sets if not self.unruled[at].query.of_ranks]
            found = {at: len(offered[at]) for at in sets}
            for place in range(len(self.asks)):
                of_ask = [at for at in sets if place in self.sets[at].asks]
                number = self._most_answered(place, of_ask, most, offered)
                found |= {at: min(found[at], number) for at in of_ask}
            most = [found.get(at, number) for at, number in enumerate(most)]
        return most

    def _most_answered(
        self, place: int, sets: Sequence[int], numbers: Sequence[int], offered: Sequence[Sequence[Fraction]]
    ) -> int:
        """Return how many candidates of some choices can be answered by an output, where `numbers` says the others."""

        def check(most: int) -> None:
            ends = (min(most, len(offered[at])) if at in sets else number for at, number in enumerate(numbers))
            self._check_answered(place, [of[end - 1] for of, end in zip(offered, ends, strict=True)])

        def is_answered(most: int) -> bool:
            with suppress(ValueError):
                check(most)
                return True
            return False

        most = max((len(offered[at]) for at in sets), default=1)
        if not sets or is_answered(most):
            return most
        check(1)
        return 1 + bisect_left(range(2, most), True, key=lambda number: not is_answered(number))

    def _check_answered(self, place: int, found: Sequence[Fraction]) -> None:
        """Raise a ValueError if an output can't be answered with what is found."""
        ask = self._answering(place, found)
        types = self.types.get(ask.name, ())
        if ask.name in self.types:
            ask.query.answer_type(*types)
            ask.query.count_rules(*types)
        for noise in ask.query.noise(*types) if isinstance(ask.query, Measure) else ():
            check_scale(noise, room=_ROOM_OF_SQUARES if isinstance(ask.query, Variance) else _ROOM)

    def _within_all(self, parts: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """Return parts of the losses of outputs, made smaller where all choices would take too much of all of it."""
        if not parts:
            return ()
        losses = [ask.query.claim.loss.value for ask in self.asks]
        beside = [part / (1 - part) for part in parts]  # of the loss of the outputs
        taken = sum(one * sum(losses[place] for place in of.asks) for of, one in zip(self.sets, beside, strict=True))
        largest = _LARGEST_PART_OF_ONE if self.groups == 1 else _LARGEST_PART
        fits = min(largest / (1 - largest) * sum(losses) / taken, Fraction(1))
        return tuple(one * fits / (1 + one * fits) for one in beside)

    def _noise(self, ask: Ask[HistogramQuery]) -> Fraction:
        """Return the expected noise of all groups at limits of one, in rows or people; of a sum, in its bounds."""
        limits = dict.fromkeys(self.limits.get(ask.name, ()), 1)
        query = under(self.protection.with_limits(**limits), ask, self.groups) if limits else ask.query
        return self._of_all_groups(query)

    def _of_all_groups(self, query: HistogramQuery) -> Fraction:
        one = query.largest if isinstance(query, Measure) else Fraction(1)
        factor = Fraction(1) if query.claim._has_epsilon else _ROOT_OF_2_BY_PI
        return self.groups * factor / (query.claim.rate * one)

    # --- What is found ----------------------------------------------------------------------------------------------

    def protection_of(self, ask: Ask[HistogramQuery]) -> Protection:
        limits = self.limits.get(ask.name)
        return self.protection if limits is None else self.protection.with_limits(**limits)

    def _bounded(self, ask: Ask[HistogramQuery]) -> Ask[HistogramQuery]:
        return replace(ask, query=under(self.protection_of(ask), ask, self.groups))

    def _values(self) -> list[tuple[Fraction, ...]]:
        """Return what each choice may find."""
        pairs = zip(self.sets, self.choices, strict=True)
        return [one.query.values_of(*self.types.get(self.asks[of.asks[0]].name, ())) for of, one in pairs]

    def _with(self, found: Sequence[Fraction]) -> Self:
        """Return the request with what was found in the place of what was left out."""
        asks = [self._answering(place, found) for place in range(len(self.asks))]
        limits = {ask.name: self._found_of(place, found)[0] for place, ask in enumerate(self.asks)}
        request = replace(self, limits={name: of for name, of in limits.items() if of}, ruled=self.choices)
        return replace(request, asks=tuple(request._shared(asks)))

    def _name_at(self, place: int) -> str:
        return self.asks[place].name

    def _alone_at(self, place: int) -> Ask[HistogramQuery]:
        ask = self.asks[place]
        return replace(ask, query=alone(ask.query))

    def _found_of(self, place: int, found: Sequence[Fraction]) -> tuple[dict[str, int], dict[str, Fraction]]:
        """Return the limits and the bounds of an output, of what was found."""
        of_ask = {of.what: value for of, value in zip(self.sets, found, strict=True) if place in of.asks}
        limits: dict[str, int] = {what: int(value) for what, value in of_ask.items() if not is_bound(what)}
        return limits, {what: value for what, value in of_ask.items() if is_bound(what)}

    def _answering(self, place: int, found: Sequence[Fraction]) -> Ask[HistogramQuery]:
        """Return an output by itself with what was found. A column of a type that is not known counts as floats."""
        ask = self._alone_at(place)
        limits, ends = self._found_of(place, found)
        if ends and (ask.name in self.types or isinstance(ask.query, Clipped)):
            column = self.types.get(ask.name, (pl.Float64(),))[0]
            ask = replace(ask, query=ask.query.with_bounds(column, **ends))
        protection = self.protection.with_limits(**limits) if limits else self.protection
        return replace(ask, query=under(protection, ask, self.groups))


def at_worst(claim: Claim, groups: int) -> Claim:
    """Return the claim of the same loss that costs most in the other unit, under any limits.

    In epsilon all of a person's loss in one draw costs most in rho. In rho it costs most in epsilon if it is spread
    over as many draws as can be, in that number of groups. `docs/proofs/limits.md`, Theorem 7.
    """
    if claim._is_open or not claim._has_epsilon:
        return claim
    return replace(
        claim,
        score_range=Fraction(1),
        contributions=Contributions(1 if claim.loss.unit == "epsilon" else groups * claim._draws, 1),
        _draws=1,
        _same_group=costs.ALL,
        _groups=None,
        _levels=(),
    )


def ends_of(query: Clipped) -> Iterator[tuple[str, int, Fraction]]:
    """Yield the names of clipping bounds, their usual signs, and the bounds."""
    yield from zip(("lower", "upper"), (-1, 1), query.sought, strict=True)


def _bounds(what: What, *columns: pl.DataType) -> tuple[Fraction, ...]:
    """Return the clipping bounds that may be found, from 0 away; of a column whose type is not known as of floats."""
    least, most = _LEAST, _MOST
    tick = column_types.tick(columns[0]) if columns else None
    if tick is not None:
        low, high = column_types.ends(columns[0])
        most = min(most, -low if what == "lower" else high)
        if column_types.is_wide(columns[0]):
            most = min(most, 2**62 * tick)
        least = max(tick, min(_LEAST_OF_DECIMALS, most * _RATIO))
    sizes = bounds_up_to(least, most) if most else (Fraction(0),)
    sizes += () if sizes[-1] == most else (most,)
    return tuple(-size for size in sizes) if what == "lower" else sizes


def _totals(what: What, step: Fraction) -> tuple[Fraction, ...]:
    """Return the bounds of people's totals that may be found, from 0 away."""
    sizes = bounds_up_to(step, min(_MOST, 2**60 * step))
    return tuple(-size for size in sizes) if what == "lower" else sizes
