"""Releases in two stages: contribution limits and clipping bounds are found first, by what one guarantee pays for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import polars as pl

from dp_polars._accounting.claims import Claim, claim_on
from dp_polars._accounting.terms import LARGEST, ONE_RELEASE, Loss, Terms, Unit, exact
from dp_polars._base import column_types
from dp_polars._base.numbers import show
from dp_polars._bins.binning import OneCode
from dp_polars._bins.candidates import grid_rule
from dp_polars._mechanisms.limit_rule import LimitKind, Rule, bound_rule, bounds_up_to, limit_rule, part_of_loss
from dp_polars._mechanisms.noise import check_scale
from dp_polars._release.contract import HistogramSpec, KeyWork, Output, PerPerson, PersonNumber, Presentation, Work
from dp_polars._release.protection import Limits, Protection
from dp_polars._release.request import AnyRequest, Ask, Request, asked_in, rounded_up, under
from dp_polars._statistics.answer_lists import TopK
from dp_polars._statistics.averages import Share, Variance
from dp_polars._statistics.categories import Ranked
from dp_polars._statistics.limits import LimitChoice, What
from dp_polars._statistics.measures import BETA, Clipped, Count, Measure, SumOfPeople, ValueCounts
from dp_polars._statistics.shared_sums import Part, alone, draws_shared
from dp_polars._statistics.statistic import Columns, CountRule, HistogramQuery

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken
    from dp_polars._release.contract import Engine

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
#: The name of the selection of groups.
THE_GROUPS = "the groups"

# The loss of the number of people that is added for quantiles, as a part of that of one of them.
_OF_PEOPLE = Fraction(1, 8)
_FEW = 100  # candidates of a narrow grid, of which the error is shown, too

OWN_LOSS = (
    "{} must have no loss of its own without {}: a part of one guarantee finds what is left out, before answers are "
    "drawn.\n\nHint: leave epsilon, rho and within out, and share one guarantee: query.scaled_to(epsilon=1, "
    "delta=1e-6). Or {}."
)


@dataclass(frozen=True)
class Found:
    """One limit, or clipping bound, that was found privately, and what it does to people."""

    what: What
    outputs: tuple[str, ...]  # the outputs that it serves; none: the groups are selected with it
    value: Fraction
    people: int  # how many people are beyond it, with noise
    bound: int  # how far that number may be off, with probability 0.95
    # How much of all people doesn't count, with noise, and how far that may be off: rows or groups, in rho at least so
    # many; of a bound how far the largest values of people are beyond it, in all.
    lost: Fraction
    lost_bound: Fraction
    noise: Fraction | None  # the expected noise of all groups together, measured as `lost`; None: there is none

    @property
    def name(self) -> str:
        """The limits and bounds that were found, with their outputs."""
        return f"{self.what} of {', '.join(self.outputs) or THE_GROUPS}"

    @property
    def is_bound(self) -> bool:
        return self.what in ("lower", "upper")

    @property
    def is_large(self) -> bool:
        """Whether more is lost than the noise of the answers hides, with probability 0.95 at least."""
        return self.noise is not None and self.lost - self.lost_bound > self.noise

    @property
    def loss_in_words(self) -> str:
        """How much of people doesn't count, with its 95 % confidence interval."""
        low, high = (_amount(max(self.lost + sign * self.lost_bound, Fraction(0))) for sign in (-1, 1))
        if self.is_bound:
            return f"their largest values are {low} to {high} beyond it in all"
        of = {"max_groups": "groups", "max_candidates": "candidates"}.get(self.what, "rows")
        return f"{low} to {high} of their {of} don't count"

    @property
    def warning(self) -> str:
        """The first line of a report, if more is lost than the noise hides."""
        return (
            f"{self.what}={exact(self.value)} changes {', '.join(self.outputs)} by more than the noise does: "
            f"{self.loss_in_words}, which no confidence interval covers."
        )

    def __str__(self) -> str:
        low, high = max(self.people - self.bound, 0), max(self.people + self.bound, 0)
        beyond = "people are below it" if self.what == "lower" else "people are beyond it"
        lost = f"; {self.loss_in_words}" if self.lost_bound else ""
        return f"{self.name}: {exact(self.value)} ({low:,} to {high:,} {beyond}{lost})"


def _amount(value: Fraction) -> str:
    return f"{round(value):,}" if value >= 100 else show(value, 3)


class FoundLimits(tuple[Found, ...]):
    """Limits and clipping bounds that a release has found privately, one after the other."""

    __slots__ = ()

    @property
    def limits(self) -> dict[str, int]:
        """The contribution limits by name: of several that were found for different outputs, the largest."""
        found: dict[str, int] = {}
        for one in self:
            if one.outputs and not one.is_bound and one.what != "max_candidates":
                found[one.what] = max(int(one.value), found.get(one.what, 0))
        return found

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def limit_needed(protection: Protection, query: HistogramQuery, groups: int) -> What | None:
    """Return which contribution limit a statistic needs that is left out; None: none."""
    if protection.unit is None or protection.max_rows is not None:
        return None
    by_norm = query.weighs_people
    if by_norm and protection.max_norm is not None:
        return None
    if query.counts_people and query.limits_people:
        is_given = protection.max_groups is not None or groups == 1
        return "max_groups" if not is_given and "max_groups" in protection.left_out else None
    in_groups = groups == 1 or protection.max_groups is not None or "max_groups" not in protection.left_out
    if query.counts_people and query.fixed_size == 1 and in_groups:  # a person counts once in each group
        return None
    if protection.max_rows_per_group is not None and in_groups:
        return None
    name: What = "max_norm" if by_norm else "max_rows"
    return name if name in protection.left_out else None


@dataclass(frozen=True)
class _Set:
    """Outputs of the same contributing rows and kind of counting, which share what is found."""

    what: What
    asks: tuple[int, ...]


def refuse_unknown_limits(request: AnyRequest[Any], call: str) -> None:
    """Raise where limits or clipping bounds are still to be found, which a release does."""
    if isinstance(request, StagedRequest) and not request.is_settled:
        names = ", ".join(ask.name for ask in request.found_first)
        msg = (
            f"{call} must have all limits and clipping bounds, got a query that finds {names} when it is released.\n\n"
            'Hint: give them, as in protect(…, max_rows=9), sum(0, 9) and mode(["a", "b"]). Or release the query first.'
        )
        raise ValueError(msg)


def request_of(
    pipeline: Any,  # noqa: ANN401
    keys: pl.DataFrame | None,
    asks: Iterable[Ask[HistogramQuery]],
    unit: Unit,
    engine: Engine[Any] | None,
) -> Request:
    """Return the request of these outputs; in two stages where limits or clipping bounds are left out."""
    groups = 1 if keys is None else keys.height
    protection = pipeline.protection
    given = tuple(asks)
    asks, people = with_people(given, protection, unit, [] if keys is None else keys.columns)
    needed = limits_needed(asks, protection, groups)
    if not any(limit or ask.query.finds for limit, ask in zip(needed, asks, strict=True)):
        return Request.of(pipeline, keys, asks, unit, engine)
    refuse_within(asks)
    request = StagedRequest.in_stages(pipeline, keys, [asked_in(ask, unit) for ask in asks], needed, unit)
    if engine is not None and any(ask.query.finds for ask in asks):
        types = [types for _, types in Request.typed(request, engine)]
        known = tuple(replace(ask, query=_of_type(ask.query, *of)) for ask, of in zip(asks, types, strict=True))
        if not any(limit or ask.query.finds for limit, ask in zip(needed, known, strict=True)):
            return Request.of(pipeline, keys, known, unit, engine)
        request = StagedRequest.in_stages(pipeline, keys, [asked_in(ask, unit) for ask in known], needed, unit)
    return replace(request, people=people, added=len(asks) > len(given))


def limits_needed(asks: Sequence[Ask[HistogramQuery]], protection: Protection, groups: int) -> list[What | None]:
    """Return which contribution limit each output needs that is left out; refuse a loss of its own where bounds are."""
    needed: list[What | None] = []
    for ask in asks:
        is_open = ask.query.claim._is_open and ask.within is None
        needed.append(limit_needed(protection, ask.query, groups) if is_open else None)
        if not is_open and ask.query.finds:
            what, call = ask.query.left_out
            raise ValueError(OWN_LOSS.format(f"Output {ask.name!r}", what, f"give {what}, as in {call}"))
    return needed


def refuse_within(asks: Iterable[Ask[HistogramQuery]]) -> None:
    if accurate := [ask.name for ask in asks if ask.within is not None]:
        msg = (
            f"within must be left out of a query whose limits are found privately, got it for {accurate}: the loss "
            "follows from the limits.\n\nHint: give protect the limits, or request those outputs in another query."
        )
        raise ValueError(msg)


def with_people(
    asks: tuple[Ask[HistogramQuery], ...], protection: Protection, unit: Unit, taken: Sequence[str]
) -> tuple[tuple[Ask[HistogramQuery], ...], str | None]:
    """Return outputs with one that counts people, if some are null where these are few; and its name, None: none is."""
    weights = [ask.query.claim._loss_weight or 0 for ask in asks if isinstance(ask.query, Ranked) and ask.query.finds]
    if not weights:
        return asks, None
    for ask in asks:
        if isinstance(ask.query, Count) and not ask.columns and protection.counts(ask.query) == "people":
            return asks, ask.name
    names = ("n_people", *(f"n_people_{number}" for number in range(2, len(asks) + len(taken) + 3)))
    name = next(name for name in names if name not in {*taken, *(ask.name for ask in asks)})
    weight = _OF_PEOPLE * (max(weights) or 1)
    claim = claim_on(replace(Terms.at(Loss(Fraction(1), unit)), loss_weight=weight), "number")
    return (*asks, Ask(name, (), Count("rows" if protection.unit is None else "people", claim))), name


@dataclass(frozen=True)
class StagedRequest(Request):
    """Answers whose limits or clipping bounds are found before they are drawn.

    The losses of both stages are fixed before. The noise of an answer follows from what was found, so its claim holds
    whatever that is: `docs/proofs/limits.md`.
    """

    sets: tuple[_Set, ...] = field(default=(), kw_only=True)
    choices: tuple[Ask[LimitChoice], ...] = field(default=(), kw_only=True)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict, kw_only=True)  # by output
    # Which part of the loss of its outputs each choice has, and should have.
    parts: tuple[Fraction, ...] = field(default=(), kw_only=True)
    wanted: tuple[Fraction, ...] = field(default=(), kw_only=True)
    found: tuple[Found, ...] = field(default=(), kw_only=True)
    people: str | None = field(default=None, kw_only=True)  # the number of people that decides which quantiles are null
    added: bool = field(default=False, kw_only=True)  # whether it was added for that
    planned: Self | None = field(default=None, kw_only=True)  # what was charged, of a request with what was found

    @classmethod
    def in_stages(
        cls,
        pipeline: Any,  # noqa: ANN401
        keys: pl.DataFrame | None,
        asks: Sequence[Ask[HistogramQuery]],
        needed: Sequence[What | None],
        unit: Unit,
        **fields: Any,  # noqa: ANN401  # the fields of a subclass
    ) -> Self:
        of: dict[tuple[object, ...], list[int]] = {}
        for place, (ask, limit) in enumerate(zip(asks, needed, strict=True)):
            if limit is not None:
                of.setdefault((limit, *_rows_of(ask)), []).append(place)
            for what in ask.query.finds:
                of.setdefault((what, *_values_of(ask)), []).append(place)
        sets = tuple(_Set(key[0], tuple(places)) for key, places in of.items())  # type: ignore[arg-type]
        request = cls(pipeline, keys, tuple(asks), sets=sets, **fields)
        groups = request.groups
        limits: dict[str, dict[str, int]]
        limits = {
            ask.name: {limit: min(REFERENCE, groups) if limit == "max_groups" else REFERENCE}
            for ask, limit in zip(asks, needed, strict=True)
            if limit is not None
        }
        request = replace(request, limits=limits)
        request = replace(request, asks=tuple(request._bounded(ask) for ask in asks))
        choices = tuple(request._choice(one, unit) for one in sets)
        return replace(request, choices=choices).with_parts((_SMALLEST_PART,) * len(sets))

    # --- What is charged --------------------------------------------------------------------------------------------

    @property
    def found_first(self) -> tuple[Ask[Any], ...]:
        return self.choices

    @property
    def is_settled(self) -> bool:
        """Whether all is found that the outputs need."""
        return bool(self.found)

    @property
    def all_found(self) -> tuple[Found, ...]:
        """The limits and bounds that were found so far."""
        return self.found

    @cached_property
    def charged(self) -> tuple[tuple[str, Claim], ...]:
        return super().charged if self.planned is None else self.planned.charged

    def _charged_as(self, ask: Ask[Any], claim: Claim) -> Claim:
        """Return the claim of what may be found that costs most in the other unit; in its own, all cost the same."""
        if claim._is_open or not claim._has_epsilon or isinstance(ask.query, LimitChoice):
            return claim
        other: Unit = "rho" if claim.loss.unit == "epsilon" else "epsilon"
        claims = self._possible_claims(ask)
        if draws_shared(ask.query):  # all of a row moves a draw by one, whatever the limits are
            claims = (replace(claim, contributions=one.contributions) for one in claims)
        return max(claims, key=lambda one: one.cost(other))

    def _possible_claims(self, ask: Ask[HistogramQuery]) -> Iterator[Claim]:
        query, asks = ask.query, [ask]
        if query.finds and isinstance(query, Clipped):  # bounds of both signs may cost more: most where they are alike
            reach = max(map(abs, query.sought))
            lower, upper = (sign * reach if name in query.finds else end for name, sign, end in _ends_of(query))
            asks += [replace(ask, query=query.with_sought(lower, upper))] if lower < upper else []
        if isinstance(query, TopK) and query.selects:  # if fewer candidates are selected, fewer draws share the loss
            asks.append(replace(ask, query=query.at_most(1)))
        protections = [self.protection_of(ask)]
        for of, choice in zip(self.sets, self.choices, strict=True):
            if of.what in self.limits.get(ask.name, ()) and ask.name in map(self._name_at, of.asks):
                protections = [self.protection.with_limits(**{of.what: int(one)}) for one in choice.query.values]
        yield from (under(protection, one, self.groups).claim for protection in protections for one in asks)

    def _parts(self, asks: Sequence[Ask[HistogramQuery]]) -> list[Part]:
        """Return statistics with what tells whose rows contribute, and which limit is found for them.

        How they share sums must not depend on what is found. It does on clipping bounds, and on limits where rows are
        replaced and losses have another unit, too.
        """
        limit_of, with_bounds = dict[str, int](), set[str]()
        for number, of in enumerate(self.sets):
            names = map(self._name_at, of.asks)
            if of.what in ("lower", "upper"):
                with_bounds.update(names)
            else:
                limit_of |= dict.fromkeys(names, number)
        is_replaced = self.protection.neighboring_relation == "replace_one"

        def is_fixed(part: Part) -> bool:
            return part.name not in with_bounds and not (is_replaced and part.query.claim._has_epsilon)

        return [
            part._replace(rows=(limit_of.get(part.name), part.rows) if is_fixed(part) else None)
            for part in super()._parts(asks)
        ]

    @property
    def needed(self) -> list[Fraction]:
        return [Fraction(1)] * len(self.found_first) + super().needed

    def _name_at(self, place: int) -> str:
        return self.asks[place].name

    def _alone_at(self, place: int) -> Ask[HistogramQuery]:
        ask = self.asks[place]
        return replace(ask, query=alone(ask.query))

    def typed(self, engine: Engine[Any] | None) -> list[tuple[Ask[Any], Columns]]:
        typed = super().typed(engine)
        is_ruled = engine is not None and all(one.query.rule is not None for one in self.choices)
        request = self._ruled({ask.name: types for ask, types in typed}) if is_ruled and not self.found else self
        return [*((ask, ()) for ask in request.choices), *typed]

    def with_asks(self, asks: Iterable[Ask[Any]], taken: UnitTaken | None = None) -> Self:
        every = tuple(asks)
        number = len(self.choices)
        asks = tuple(self._shared(every[number:]))
        request = replace(self, choices=every[:number], asks=asks, taken=taken, found=(), planned=None)
        return request if any(ask.query.claim._is_open for ask in every) else request._ruled()

    @property
    def has_enough(self) -> bool:
        """Whether the parts of the loss that the choices have are those that they should have."""
        return self.wanted == self.parts

    def with_parts(self, parts: tuple[Fraction, ...]) -> Self:
        """Return the request, nothing of which has a loss, with the parts of the loss that the choices are to have."""
        choices, needed = [], super().needed
        for of, choice, part in zip(self.sets, self.choices, parts, strict=True):
            weights = ((self.asks[place].query.claim._loss_weight or 0) * needed[place] for place in of.asks)
            weight = part / (1 - part) * sum(weights)
            choices.append(choice.with_claim(replace(choice.query.claim, _loss_weight=weight)))
        return replace(self, choices=tuple(choices), parts=parts)

    # --- The rule ---------------------------------------------------------------------------------------------------

    def _choice(self, of: _Set, unit: Unit) -> Ask[LimitChoice]:
        claim = claim_on(replace(Terms.at(Loss(Fraction(1), unit)), loss_weight=Fraction(1)), "choice")
        outputs = ", ".join(self.asks[place].name for place in of.asks)
        first = self.asks[of.asks[0]].query
        is_drawn = of.what in ("max_groups", "max_rows") and not first.weighs_people
        of_ranks = of.what in ("lower", "upper") and isinstance(first, Ranked)
        choice = LimitChoice(of.what, outputs, is_drawn, claim, of_ranks)
        choice = choice.under(ONE_RELEASE, self.protection.neighboring_relation)
        return Ask(f"{of.what} of {outputs}", (), choice)

    def _ruled(self, types: Types = MappingProxyType({})) -> Self:
        """Return the request with the public numbers of its choices: they follow from losses and types of columns.

        `types`: those of the columns of each output; empty if they are not known yet.
        """
        choices, wanted = [], []
        for of, choice in zip(self.sets, self.choices, strict=True):
            query, asks = choice.query, [self._alone_at(place) for place in of.asks]
            losses = [ask.query.claim.loss.value for ask in asks]
            noises = [self._noise(ask, of.what) for ask in asks]
            noise = sum((loss * one for loss, one in zip(losses, noises, strict=True)), Fraction(0)) / sum(losses)
            is_pure = asks[0].query.claim._has_epsilon
            # What else is released of people beyond is paid for: offsets follow from what is left for the choice.
            loss = Loss(min(query.claim.rate * query.range_of_scores, Fraction(LARGEST)), "epsilon")
            widths = [one.query.answer_width() if one.query.is_count else 1 for one in asks]
            cells = self.groups * max(widths)
            kind: LimitKind | None = None
            rule: Rule[Any]
            if query.is_bound:
                columns = types.get(asks[0].name, ())
                candidates = _OF_RANKS[of.what] if query.of_ranks else _candidates(of.what, *columns)
                if isinstance(asks[0].query, SumOfPeople):
                    step = asks[0].query.totals(*columns or (pl.Float64(),)).step
                    query, candidates = replace(query, step_of_totals=step), _totals(of.what, step)
                rule = bound_rule(loss, None if query.of_ranks else noise, candidates)
            else:
                by_rows: LimitKind = "norm" if of.what == "max_norm" else "root"
                kind = "selection" if query.is_drawn else "linear" if is_pure else by_rows
                rule = limit_rule(kind, loss, cells, noise, self.groups if of.what == "max_groups" else None)
            choices.append(replace(choice, query=replace(query, rule=rule, kind=kind)))
            whole = Loss(sum(losses) + query.claim.loss.value, query.claim.loss.unit)
            wanted.append(part_of_loss(whole, cells, noise, of_ranks=query.of_ranks))
        return replace(self, choices=tuple(choices), wanted=self._within_all(wanted))._fitting(types)

    def _fitting(self, types: Types) -> Self:
        """Return the request with those candidates alone that can be answered, whatever else is found.

        Columns and noise set how large bounds may be, at the smallest limits; and these how large limits may be. A
        ValueError where the smallest candidates are too large.
        """
        # How many candidates of each: for quantiles, any grid will do.
        most = [len(one.query.values) if one.query.of_ranks else 1 for one in self.choices]
        for is_bound in (True, False):
            sets = [at for at, one in enumerate(self.choices) if one.query.is_bound is is_bound]
            sets = [at for at in sets if not self.choices[at].query.of_ranks]
            found = {at: len(self.choices[at].query.values) for at in sets}
            for place in range(len(self.asks)):
                of_ask = [at for at in sets if place in self.sets[at].asks]
                number = self._most_answered(place, of_ask, most, types)
                found |= {at: min(found[at], number) for at in of_ask}
            most = [found.get(at, number) for at, number in enumerate(most)]
        choices = (
            replace(one, query=replace(one.query, rule=one.query._known.first(number)))
            for one, number in zip(self.choices, most, strict=True)
        )
        return replace(self, choices=tuple(choices))

    def _most_answered(self, place: int, sets: Sequence[int], numbers: Sequence[int], types: Types) -> int:
        """Return how many candidates of some choices can be answered by an output, where `numbers` says the others."""
        values = self._values(types)

        def answer(most: int) -> None:
            ends = [min(most, len(values[at])) if at in sets else number for at, number in enumerate(numbers)]
            ask = self._answering(place, [of[end - 1] for of, end in zip(values, ends, strict=True)], types)
            if ask.name in types:
                ask.query.answer_type(*types[ask.name])
                ask.query.count_rules(*types[ask.name])
            for noise in ask.query.noise(*types.get(ask.name, ())) if isinstance(ask.query, Measure) else ():
                check_scale(noise, room=_ROOM_OF_SQUARES if isinstance(ask.query, Variance) else _ROOM)

        def is_answered(most: int) -> bool:
            with suppress(ValueError):
                answer(most)
                return True
            return False

        most = max((len(values[at]) for at in sets), default=1)
        if not sets or is_answered(most):
            return most
        answer(1)
        return 1 + bisect_left(range(2, most), True, key=lambda number: not is_answered(number))

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

    def _noise(self, ask: Ask[HistogramQuery], what: What) -> Fraction:
        """Return the expected noise of all groups at a limit of one, in rows or people; of a sum, in its bounds."""
        limit = what if what not in ("lower", "upper") else next(iter(self.limits.get(ask.name, ())), None)
        query = ask.query if limit is None else under(self.protection.with_limits(**{limit: 1}), ask, self.groups)
        return self._of_all_groups(query)

    def _of_all_groups(self, query: HistogramQuery) -> Fraction:
        one = query.largest if isinstance(query, Measure) else Fraction(1)
        factor = Fraction(1) if query.claim._has_epsilon else _ROOT_OF_2_BY_PI
        return self.groups * factor / (query.claim.rate * one)

    def _noise_beside(self, of: _Set, value: Fraction) -> Fraction:
        """Return the noise of all groups with what was found, as `Found.lost` is measured: the least of its outputs."""
        unit = abs(value) if of.what in ("lower", "upper") else Fraction(1)
        return unit * min(self._of_all_groups(self._alone_at(place).query) for place in of.asks)

    # --- Both stages ------------------------------------------------------------------------------------------------

    def protection_of(self, ask: Ask[HistogramQuery]) -> Protection:
        limits = self.limits.get(ask.name)
        return self.protection if limits is None else self.protection.with_limits(**limits)

    def _bounded(self, ask: Ask[HistogramQuery]) -> Ask[HistogramQuery]:
        return replace(ask, query=under(self.protection_of(ask), ask, self.groups))

    def _work(self, keys: Any, read: Any, rows: Any) -> Work:  # noqa: ANN401  # as of any request
        asks = [
            replace(ask, query=ask.query.until_found(*types)) if isinstance(ask.query, Clipped) else ask
            for ask, (_, types) in zip(self.asks, read, strict=True)
        ]
        return Request._work(replace(self, asks=tuple(asks)), keys, read, rows)

    def _check_ends(self, work: Work) -> None:
        """Refuse what could not be answered, whatever is found."""
        if all(one.query.rule is not None for one in self.choices):
            self._ruled(_types_of(work))

    def stage(self, work: Work | KeyWork, engine: Engine[Any]) -> Work | KeyWork | None:
        if self.found:
            return None
        assert isinstance(work, Work), "keys need no first stage"
        return self._ruled(_types_of(work))._stage(work, engine)

    def _stage(self, work: Work, engine: Engine[Any]) -> Work:
        unit = work.privacy_unit
        numbers, outputs, specs = list[PersonNumber](), list[Output](), list[HistogramSpec]()
        of_output = {output.name: output for output in work.outputs}
        for place, (of, choice) in enumerate(zip(self.sets, self.choices, strict=True)):
            ask = self.asks[of.asks[0]]
            output = of_output[ask.name]
            is_all = not ask.query.weighs_people or _are_all(ask)
            number = _number(ask.query, choice.query, work.specs[output.specs[0]], self.protection, is_all=is_all)
            numbers.append(number)
            if unit is None:
                spec = number.spec
            else:
                column, types = (pl.col(PersonNumber.name(place)),), (pl.Int64(),)
                spec = HistogramSpec(column, types, choice.query.count_rules()[0], Limits(), people=False)
            specs.append(spec)
            outputs.append(Output(choice.name, choice.query, spec.types, (place,)))
        if unit is None:
            return Work(None, None, tuple(specs), tuple(outputs), work.rows)
        if not engine.counts_per_person:
            msg = "limits must be given here: this engine can't count the rows of each person."
            raise TypeError(msg)
        per_person = PerPerson(unit, self.keys if work.keys is None else work.keys, numbers=tuple(numbers))  # type: ignore[arg-type]
        return Work(None, None, tuple(specs), tuple(outputs), work.rows, per_person)

    def settled(self, found: pl.DataFrame, work: Work | KeyWork) -> tuple[StagedRequest, Work]:
        assert isinstance(work, Work), "keys need no first stage"
        types = _types_of(work)
        ruled, columns = self._ruled(types), iter(found.get_columns())
        drawn = [[int(next(columns).item()) for _ in choice.query.drawn_types()] for choice in ruled.choices]
        values = [of[place] for of, (place, *_) in zip(ruled._values(types), drawn, strict=True)]
        request = replace(self._with(values, types), planned=self)
        every = (
            Found(
                choice.query.what,
                tuple(self.asks[place].name for place in of.asks),
                value,
                people,
                choice.query.people_bound(BETA),
                *choice.query.lost(place, parts, BETA),
                request._noise_beside(of, value),
            )
            for of, choice, value, (place, people, parts) in zip(self.sets, ruled.choices, values, drawn, strict=True)
        )
        request = replace(request, found=tuple(every))
        return request, request.on_columns_of(work)

    def _values(self, types: Types) -> list[tuple[Fraction, ...]]:
        """Return what each choice may find, of columns of these types."""
        pairs = zip(self.sets, self.choices, strict=True)
        return [one.query.values_of(*types.get(self.asks[of.asks[0]].name, ())) for of, one in pairs]

    def _with(self, found: Sequence[Fraction], types: Types) -> Self:
        """Return the request with what was found in the place of what was left out."""
        asks = [self._answering(place, found, types) for place in range(len(self.asks))]
        limits = {ask.name: self._found_of(place, found)[0] for place, ask in enumerate(self.asks)}
        request = replace(self, limits={name: of for name, of in limits.items() if of})
        return replace(request, asks=tuple(request._shared(asks)))

    def _found_of(self, place: int, found: Sequence[Fraction]) -> tuple[dict[str, int], dict[str, Fraction]]:
        """Return the limits and the bounds of an output, of what was found."""
        of_ask = {of.what: value for of, value in zip(self.sets, found, strict=True) if place in of.asks}
        limits: dict[str, int] = {what: int(value) for what, value in of_ask.items() if what not in ("lower", "upper")}
        return limits, {what: value for what, value in of_ask.items() if what not in limits}

    def _answering(self, place: int, found: Sequence[Fraction], types: Types) -> Ask[HistogramQuery]:
        """Return an output by itself with what was found. A column of a type that is not known counts as floats."""
        ask = self._alone_at(place)
        limits, ends = self._found_of(place, found)
        if ends and (ask.name in types or isinstance(ask.query, Clipped)):
            column = types.get(ask.name, (pl.Float64(),))[0]
            ask = replace(ask, query=ask.query.with_bounds(column, **ends))
        protection = self.protection.with_limits(**limits) if limits else self.protection
        return replace(ask, query=under(protection, ask, self.groups))

    @property
    def _on_found_grids(self) -> frozenset[str]:
        """The names of quantiles whose grid is found."""
        of_ranks = (of for of, one in zip(self.sets, self.choices, strict=True) if one.query.of_ranks)
        return frozenset(self._name_at(place) for of in of_ranks for place in of.asks)

    def presentation(self, intervals: object = False, min_people: object = None, sure: object = False) -> Presentation:
        shown = super().presentation(intervals, min_people, sure)
        return replace(shown, people=self.people, hides=self._on_found_grids) if min_people is None else shown

    # --- Words ------------------------------------------------------------------------------------------------------

    def _of_choice(self, name: str, query: LimitChoice) -> dict[str, object]:
        notes = []
        found = next((one for one in self.all_found if one.name == name), None)
        if found is not None:
            notes += [found.warning] if found.is_large else []
            notes.append(f"Found {found}.")
        elif query.claim._is_open:
            notes.append("Found before the answers, by a part of the loss.")
        else:
            notes.append("Found before the answers are drawn.")
        error = None if query.claim._is_open else query.error(query.size_of() or 1, BETA)
        return {
            "error_95": error,
            "error_unit": "people",
            "candidates": query.size_of(),
            "groups": 1,
            "note": " ".join(notes),
        }

    def _of_grid(self, ask: Ask[HistogramQuery], types: Columns) -> Iterator[str]:
        """Yield what is said of a quantile whose grid is found."""
        query = ask.query
        if not self.found:
            rule = f": {grid_rule(types[0])}" if types else ""
            yield f"Its grid is found first{rule}."
        if types and not query.claim._is_open:
            size, narrow = query.size_of(*types) or 1, rounded_up(query.error(_FEW, BETA))
            most = "" if self.found else ", the most that there may be"
            yield f"error_95 is for {size:,} candidates{most}; for {_FEW} it is {narrow}."
            counted = next(one.query for one in self.asks if one.name == self.people)
            least = query.least_people(counted, *types)
            yield f"Groups of fewer than {least:,} people, by {self.people}, show null; min_people=… changes that."
        else:
            yield f"Groups of few people, by {self.people}, show null."

    def _errors(self, ask: Ask[HistogramQuery], types: Columns) -> dict[str, object]:
        if isinstance(ask.query, LimitChoice):
            return self._of_choice(ask.name, ask.query)
        errors = super()._errors(ask, types)
        if ask.name == self.people and self.added:
            errors["note"] = f"Added: it decides where quantiles are null. {errors['note']}"
        if ask.name in self._on_found_grids:
            errors["note"] = " ".join([*self._of_grid(ask, types), str(errors["note"])])
        if self.found:
            return errors
        if ask.query.finds and not isinstance(ask.query, Ranked):
            errors["error_95"] = None
            errors["note"] = f"Its clipping bounds are found first, so no error is known. {errors['note']}"
        elif ask.name in self.limits:
            ((limit, value),) = self.limits[ask.name].items()
            errors["note"] = f"error_95 is at {limit}={value}; the limit is found first. {errors['note']}"
        return errors


def _ends_of(query: Clipped) -> Iterator[tuple[str, int, Fraction]]:
    """Yield the names of clipping bounds, their usual signs, and the bounds."""
    yield from zip(("lower", "upper"), (-1, 1), query.sought, strict=True)


def _types_of(work: Work) -> Types:
    return {output.name: output.types for output in work.outputs}


def _candidates(what: What, *columns: pl.DataType) -> tuple[Fraction, ...]:
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


def _of_type(query: HistogramQuery, *columns: pl.DataType) -> HistogramQuery:
    """Return a statistic with the bounds that the column's type sets, of those that were to be found."""
    if not query.finds or not isinstance(query, Clipped) or not columns:
        return query
    lower, upper = query.sought
    is_boolean = columns[0] == pl.Boolean
    is_known = {
        "lower": (columns[0].is_unsigned_integer() or is_boolean) and upper > 0,
        # That 1 is a multiple of the step is not looked at here.
        "upper": is_boolean and not isinstance(query, SumOfPeople) and query.step is None and lower < 1,
    }
    known = [name for name in query.finds if is_known[name]]
    ends = (Fraction(name == "upper") if name in known else end for name, _, end in _ends_of(query))
    finds = tuple(name for name in query.finds if name not in known)
    return replace(query.with_sought(*ends), finds=finds).until_found(*columns)


def _totals(what: What, step: Fraction) -> tuple[Fraction, ...]:
    """Return the bounds of people's totals that may be found, from 0 away."""
    sizes = bounds_up_to(step, min(_MOST, 2**60 * step))
    return tuple(-size for size in sizes) if what == "lower" else sizes


def _values_of(ask: Ask[HistogramQuery]) -> tuple[object, ...]:
    """Return what tells outputs apart whose bounds are of other values, or of other totals of people.

    Quantiles, for which nobody should be beyond, have bounds of their own.
    """
    column = tuple(one.meta.undo_aliases().meta.serialize() for one in ask.columns)
    query = ask.query
    if isinstance(query, SumOfPeople):
        return (*column, query.lower, query.upper, query.step, query.free)
    return (*column, isinstance(query, Ranked))


def _rows_of(ask: Ask[HistogramQuery]) -> tuple[object, ...]:
    """Return what tells outputs of other contributing rows apart. Those whose rows are drawn share one choice."""
    is_drawn = not ask.query.weighs_people
    by_name = ask.query.claim.mechanism if not is_drawn and ask.query.claim._is_asked else ""
    if is_drawn or _are_all(ask):
        return "all rows", is_drawn, by_name
    column = tuple(one.meta.undo_aliases().meta.serialize() for one in ask.columns)
    return *column, getattr(ask.query, "counted", "") == "nulls", ask.query.counts_people, by_name


def _are_all(ask: Ask[HistogramQuery]) -> bool:
    """Return whether all rows may contribute to an output: those without a value are taken to be few."""
    is_plain = not ask.filtered and not isinstance(ask.query, (Share, ValueCounts, SumOfPeople))
    return is_plain and getattr(ask.query, "counted", "") not in ("nulls", "people" if ask.columns else "")


def _number(
    query: HistogramQuery, choice: LimitChoice, spec: HistogramSpec, protection: Protection, *, is_all: bool
) -> PersonNumber:
    """Return which number of a person decides."""
    plain = replace(spec, limits=Limits(), weight=None, bits=0)
    if choice.is_bound and isinstance(query, SumOfPeople):
        totals = replace(plain, rule=CountRule(OneCode(), query.totals(*spec.types)), people=True)
        return PersonNumber(totals, "smallest total" if choice.what == "lower" else "largest total")
    if choice.is_bound:
        codes = CountRule(choice.of_rows(spec.types[0]))
        largest = "smallest code" if choice.what == "lower" else "largest code"
        return PersonNumber(replace(plain, rule=codes, people=False), largest)  # type: ignore[arg-type]
    plain = replace(plain, rule=CountRule(spec.binning))
    if is_all:
        plain = HistogramSpec((), (), CountRule(OneCode()), Limits(), people=False)
    if choice.what in ("max_groups", "max_rows"):
        return PersonNumber(plain, "groups" if choice.what == "max_groups" else "rows")
    return PersonNumber(plain, "squares" if choice.squares else "rows", protection.max_rows_per_group)
