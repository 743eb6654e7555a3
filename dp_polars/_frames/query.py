"""A private query, and the sharing of one guarantee over its outputs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar, Unpack

import polars as pl

from dp_polars._accounting import gaussians
from dp_polars._accounting.budget import Budget, total_delta
from dp_polars._accounting.claims import Claim, cost, factor_to, in_words
from dp_polars._accounting.guarantees import Guarantee, State, UnitTaken
from dp_polars._accounting.terms import Loss, Terms, Unit, exact, in_decimals, warn_if_large
from dp_polars._base.calls import Suggesting, all_called
from dp_polars._base.files import expanded, replacing
from dp_polars._base.numbers import Number, as_fraction, flag, positive_int, rounded_down, show
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._frames.claim_files import CLAIM_KEY, STATEMENT, refuse_wide_integers
from dp_polars._frames.requests import PeopleRequest
from dp_polars._frames.statements import facts_of_request, statement_of
from dp_polars._release.cached import columns_needed, said_of
from dp_polars._release.contract import Intervals, KeyWork, Presentation, Released, Work
from dp_polars._release.found import FoundLimits
from dp_polars._release.protection import Protection
from dp_polars._release.release import Part, prepare, release_all
from dp_polars._release.request import AnyRequest, Ask, Request
from dp_polars._release.staged import StagedRequest, refuse_unknown_limits
from dp_polars._sources.running import on_cpu
from dp_polars._sources.source import Opened, PrivateRows, WithoutRows, opened_source
from dp_polars._sources.tables import has_untaken, refuse_untaken
from dp_polars._statistics.limits import LimitChoice
from dp_polars._statistics.measures import BETA, error_95
from dp_polars._statistics.statement import Statement
from dp_polars._statistics.statement_facts import AT_DELTA, Known
from dp_polars._statistics.statistic import Asked, Columns, HistogramQuery

if TYPE_CHECKING:
    from typing import TypeGuard

    from polars._typing import EngineType


# An output, and the types of its columns, as far as they are known.
Typed: TypeAlias = "tuple[Ask[Any], Columns]"
# The requests of the outputs, in their order: outputs of one request may share sums.
Requests: TypeAlias = "Sequence[AnyRequest[Any]]"

_OTHER: dict[Unit, Unit] = {"epsilon": "rho", "rho": "epsilon"}
_DIGITS = 10  # of the rho of outputs that keep a guarantee by themselves
_ROUNDS = 3  # in which the parts of a loss are found that pay for a first stage
_ROWS = 1000  # errors of means are compared for groups of this many rows, where none is requested


def at_guarantee(
    outputs: Sequence[Typed], requests: Requests, epsilon: Fraction, delta: Fraction, state: State | None
) -> tuple[list[Ask[Any]], UnitTaken]:
    """Return outputs that keep (epsilon, delta) together, in the unit with the smaller errors, and which one that is.

    The guarantee is as the budget has it: which rho it is, and how much of delta is for keys. Where it is all of a
    budget of which nothing is spent, or there is none, keys that are not selected are left nothing.
    """
    of_all = None if state is None else state.guarantee
    guarantee = Guarantee.of(epsilon, delta) if of_all is None else of_all.part(epsilon, delta)
    has_keys = any(ask.query.claim.delta or ask.query.claim._needs_delta for ask, _ in outputs)
    takes_all = not has_keys and (state is None or (guarantee is of_all and state.is_fresh))
    if takes_all:
        guarantee = guarantee.without_keys
    for_keys, whole = guarantee.keys_delta, show(delta)
    if of_all is not None and state is not None and any(ask.query.claim._needs_delta for ask, _ in outputs):
        for_keys = min(for_keys, state.left.delta)
        whole += " and a budget that has less" * (for_keys < guarantee.keys_delta)
    outputs = _with_deltas(outputs, for_keys / _parts_paid(requests), whole)
    goal = _Goal({"epsilon": epsilon, "rho": guarantee.rho}, _guaranteed(epsilon, delta), "in all")
    guaranteed = f"ε = {exact(epsilon)} and δ = {exact(delta)}"
    return _kept(outputs, requests, goal, state, guaranteed, guarantee if takes_all else None)


def _at_rest(
    outputs: Sequence[Typed], requests: Requests, state: State | None
) -> tuple[list[Ask[Any]], UnitTaken | None]:
    """Return outputs that cost what a budget has left, in the unit with the smaller errors if it takes both."""
    if state is None:
        msg = (
            "scaled_to must be given a loss or a guarantee, got none: there is no budget of which it could take the "
            "rest.\n\nHint: scaled_to(epsilon=1, delta=1e-6), or give protect a budget."
        )
        raise TypeError(msg)
    account, left = state.account, state.remaining
    if not left > 0 and not (left.rho or 0) > 0:
        msg = (
            f"scaled_to must be given a budget that has something left, got Budget({account}), all of which is spent."
            "\n\nHint: protect(…, dataset=…) returns the answers of a query that was released before. A new budget is "
            "new loss to the same people."
        )
        raise ValueError(msg)
    if isinstance(account, Guarantee) and state.is_fresh:
        return at_guarantee(outputs, requests, account.epsilon, account.delta, state)
    outputs = _with_deltas(outputs, state.left.delta / _parts_paid(requests), "a budget")
    if not isinstance(account, Guarantee):
        return _at_sum(outputs, requests, Loss(Fraction(left), account.unit)), None
    losses: dict[Unit, Fraction] = {"epsilon": left.epsilon or Fraction(0), "rho": left.rho or Fraction(0)}
    goal = _Goal(losses, " or ".join(f"{unit}={in_decimals(loss, up=False)}" for unit, loss in losses.items()), "left")
    return _kept(outputs, requests, goal, state, None, None)


def _parts_paid(requests: Requests) -> int:
    """Return how often each output is paid: in disjoint parts, for each one in which a person may change something."""
    (times,) = {request.protection.changed_parts for request in requests}
    return times


def _with_deltas(outputs: Sequence[Typed], for_keys: Fraction, whole: str) -> list[Typed]:
    """Return the outputs, with `for_keys` as the delta of those with selected keys, by weight."""
    claims = [ask.query.claim for ask, _ in outputs]
    gone, parts = (
        sum(claim.delta for claim in claims),
        sum(claim._loss_weight or 0 for claim in claims if claim._needs_delta),
    )
    if gone > for_keys or (parts and gone == for_keys):
        msg = (
            f"delta must leave room for the keys, which spend {show(Fraction(gone), up=True)}, got {whole}, of which "
            f"{show(for_keys)} is for keys.\n\nHint: a larger delta, or keys with a smaller one. After the budget is "
            "spent, protect(…, dataset=…) still returns the answers of a query that was released before."
        )
        raise ValueError(msg)

    def with_delta(ask: Ask[Any]) -> Ask[Any]:
        terms = ask.query.terms
        if not ask.query.claim._needs_delta or terms.loss_weight is None:
            return ask
        delta = (for_keys - gone) * terms.loss_weight / parts
        return replace(ask, query=ask.query.with_terms(replace(terms, delta=delta)))

    return [(with_delta(ask), types) for ask, types in outputs]


class _Goal(NamedTuple):
    """What outputs shall cost together, in each unit at most: 0 where that can't be."""

    losses: dict[Unit, Fraction]
    text: str
    of: str


def _kept(
    outputs: Sequence[Typed],
    requests: Requests,
    goal: _Goal,
    state: State | None,
    guaranteed: str | None,
    whole: Guarantee | None,
) -> tuple[list[Ask[Any]], UnitTaken]:
    """Return outputs that keep a goal, in the unit with the smaller errors, and which one that is.

    `guaranteed`: what they guarantee then, in words. `whole`: the guarantee, of which they take all.
    """
    found: dict[Unit, list[Ask[Any]]] = {}
    refused: dict[Unit, str] = {}
    for unit, loss in goal.losses.items():
        try:
            if loss:
                found[unit] = _in_unit(outputs, requests, Loss(loss, unit))
            else:
                refused[unit] = "all of delta is for keys" if unit == "rho" else "nothing is left"
        except ValueError as error:
            refused[unit] = str(error).partition("\n")[0].removesuffix(".")
    in_rho = found.get("rho", ())
    if whole is not None and in_rho and all(ask.query.claim.mechanism == "discrete_gaussian" for ask in in_rho):
        found["rho"] = _of_whole(outputs, requests, whole) or found["rho"]
    if not found:
        reasons = "; ".join(f"in {unit}, {reason}" for unit, reason in refused.items())
        msg = (
            f"scaled_to must be given a guarantee that the outputs can keep, got {goal.text}: {reasons}."
            "\n\nHint: a larger guarantee, or fewer outputs with a loss of their own."
        )
        raise ValueError(msg)
    errors: dict[Unit, tuple[float | None, ...]] = dict.fromkeys(_OTHER, (None,) * len(outputs))
    for unit, asks in found.items():
        errors[unit] = tuple(_error(ask, types) for ask, (_, types) in zip(asks, outputs, strict=True))
    unit, why = _chosen(outputs, requests, found, errors, refused, state)
    words = f"For {goal.text} {goal.of}, the unit is {unit}{why}."
    there = [None if _finds(ask) else error for ask, error in zip(found[unit], errors[_OTHER[unit]], strict=True)]
    return found[unit], UnitTaken(guaranteed, words, _OTHER[unit], tuple(there))


# A guess of the rho, whose shift then says by how much it is off, and the next ones, which nearly always are right.
_GUESSES = 4


def _of_whole(outputs: Sequence[Typed], requests: Requests, guarantee: Guarantee) -> list[Ask[Any]] | None:
    """Return outputs in rho that keep a guarantee by themselves, if they all are Gaussian: else None."""
    most = gaussians.largest_shift(guarantee.epsilon, guarantee.delta_of_whole)
    rho = most**2 / 2
    for guess in range(_GUESSES):
        if rho <= guarantee.rho:  # the sums of the guarantee prove more
            return None
        asks = _in_unit(outputs, requests, Loss(rounded_down(rho, _DIGITS), "rho"))
        claims = _claims_of(requests, asks)
        if any(claim.mechanism != "discrete_gaussian" for claim in claims):
            return None
        if guess and guarantee.is_kept_by(claims):
            return asks
        moves = [move for claim in claims for move in claim._moves]
        rho *= gaussians.likely_factor(moves, most) ** 2 * (1 - Fraction(1, 10**8))
    return None


def _in_unit(outputs: Sequence[Typed], requests: Requests, target: Loss) -> list[Ask[Any]]:
    """Return outputs that cost a sum together, each by the better mechanism for its unit.

    A loss that follows from an error is that of the output by itself. If sharing takes a mean's own pair of sums, that
    may be too little: then it is that of a sum and a count.
    """
    types = [of_output for _, of_output in outputs]
    asks = _in_unit_by(outputs, requests, target, by_itself=True)
    if all(ask.is_within(of_output) for ask, of_output in zip(asks, types, strict=True)):
        return asks
    return _in_unit_by(outputs, requests, target, by_itself=False)


def _in_unit_by(outputs: Sequence[Typed], requests: Requests, target: Loss, *, by_itself: bool) -> list[Ask[Any]]:
    claims = [ask.query.claim for ask, _ in outputs]
    units = {claim.loss.unit for claim in claims}
    weights = [claim._loss_weight for claim in claims]
    if not any(claim._is_open for claim in claims):  # their losses are; of different units, in the one that all have
        weights = [claim.loss.value if len(units) == 1 else claim.cost("rho") for claim in claims]

    def in_unit_of(request: AnyRequest[Any], ask: Ask[Any], types: Columns, weight: Fraction | None) -> Ask[Any]:
        if weight is not None:
            return replace(ask, query=ask.query.in_unit(target.unit))
        return request.reaching(ask, types, target.unit) if by_itself else ask.reaching(types, target.unit)

    of_each = [request for request in requests for _ in request.every]
    in_unit = [
        in_unit_of(request, *output, weight) for request, output, weight in zip(of_each, outputs, weights, strict=True)
    ]
    gone = Fraction(0)
    if any(claim._is_open for claim in claims):  # those that share sums need less
        gone = cost([one for one in _claims_of(requests, in_unit) if not one._is_open], target.unit)
        needed = _with_requests(requests, in_unit, lambda request: request.needed)
        weights = [None if weight is None else weight * part for weight, part in zip(weights, needed, strict=True)]
    rest, parts = target.value - gone, sum(weight for weight in weights if weight is not None)
    if not rest > 0:
        msg = (
            f"the outputs with a loss cost {Loss(gone, target.unit)} of {target}, which leaves nothing to the others"
            ".\n\nHint: a larger guarantee, or fewer outputs with a loss of their own."
        )
        raise ValueError(msg)
    asks = [
        ask if weight is None else _at_cost(ask, Loss(rest * weight / parts / _parts_paid(requests), target.unit))
        for ask, weight in zip(in_unit, weights, strict=True)
    ]
    return _with_requests(requests, asks, lambda request: request.every_unruled)


def _with_requests(
    requests: Requests, asks: Sequence[Ask[Any]], of: Callable[[AnyRequest[Any]], Iterable[FoundT]]
) -> list[FoundT]:
    """Return something of the requests, one after the other, that have these outputs in the place of theirs."""
    left, found = list(asks), list[FoundT]()
    for request in requests:
        number = len(request.every)
        found += of(request.with_asks(left[:number]))
        left = left[number:]
    return found


def _claims_of(requests: Requests, asks: Sequence[Ask[Any]]) -> list[Claim]:
    return _with_requests(requests, asks, lambda request: request.claims)


def _at_cost(ask: Ask[Any], loss: Loss) -> Ask[Any]:
    with ask.named():
        value = ask.query.claim._loss_at(loss)
    return ask.with_terms(ask.query.terms.with_loss(value))


def _finds(ask: Ask[Any]) -> bool:
    """Return whether the output's bounds are found first: until then, its error only compares the units."""
    return isinstance(ask.query, HistogramQuery) and bool(ask.query.finds)


def _error(ask: Ask[Any], types: Columns) -> float | None:
    if isinstance(ask.query, LimitChoice):  # outputs decide
        return None
    if not isinstance(ask.query, HistogramQuery):
        return float(ask.query.selection.people_for(1 - BETA))
    return error_95(ask.query, ask.rows or (_ROWS if ask.query.error_needs_rows else None), *types)


def _chosen(
    outputs: Sequence[Typed],
    requests: Requests,
    found: Mapping[Unit, Sequence[Ask[Any]]],
    errors: Mapping[Unit, Sequence[float | None]],
    refused: Mapping[Unit, str],
    state: State | None,
) -> tuple[Unit, str]:
    for other, reason in refused.items():
        return _OTHER[other], f", not {other}: {reason}"
    of_all = not any(ask.query.claim._is_open for ask, _ in outputs)
    moved = [ask for ask, _ in outputs if of_all or ask.query.claim._is_open]
    unit: Unit = "rho" if _size(errors["rho"]) < _size(errors["epsilon"]) else "epsilon"
    why = ""
    if only := [ask.name for ask in moved if ask.query.loss_units == ("epsilon",)]:
        unit, why = "epsilon", f", in which alone {', '.join(map(repr, only))} can be requested"

    def has_room(unit: Unit) -> bool:
        return state is None or state.has_room(_claims_of(requests, found[unit]))

    if not has_room(unit) and has_room(_OTHER[unit]):
        unit, why = _OTHER[unit], ", in which alone the budget has room"
    return unit, f"{why}: {_compared(errors, unit)}"


def _size(errors: Sequence[float | None]) -> tuple[int, float]:
    """Return a sort key: the number of nonzero errors, then the logarithm of their product."""
    logs = [math.log(error) for error in errors if error]
    return len(logs), math.fsum(logs)


def _compared(errors: Mapping[Unit, Sequence[float | None]], unit: Unit) -> str:
    """Return how large the errors in a unit are, as a multiple of those in the other one, by their geometric means."""
    pairs = zip(errors[unit], errors[_OTHER[unit]], strict=True)
    logs = [math.log(here / there) for here, there in pairs if here and there]
    if not logs:
        return "no errors are known that differ"
    ratio = as_fraction("ratio", math.exp(math.fsum(logs) / len(logs)))
    return f"errors are {show(ratio, 2)} times those in {_OTHER[unit]}"


def _guaranteed(epsilon: Fraction, delta: Fraction) -> str:
    return f"epsilon={in_decimals(epsilon, up=True)}, delta={in_decimals(delta, up=True)}"


class OfAnswers(Suggesting):
    """A query that is not released yet: its errors show that work on answers belongs after the release."""

    _answers = "query.release()"

    def _instead_of(self, name: str) -> str | None:
        if name == "collect":  # which looks repeatable
            return f"each release costs again: {self._answers}."
        if any(hasattr(kind, name) for kind in (pl.DataFrame, pl.LazyFrame)):
            return f"work on the answers after the release: {self._answers}.{name}(…)."
        return super()._instead_of(name)


QueryT = TypeVar("QueryT", bound="PrivateQuery")
FoundT = TypeVar("FoundT")


@all_called
class PrivateQuery(OfAnswers, WithoutRows):
    """Outputs of a private frame, requested but not yet released. Made by `PrivateFrame.agg`, `keys` and their like.

    Each call of `release` is charged as one release. No other method reads the private rows.
    """

    def __init__(self, request: AnyRequest[Asked], source: pl.LazyFrame | None, budget: Budget | None) -> None:
        if source is not None:  # what doesn't fit its columns is refused here
            prepare(request, PolarsEngine.of(source))
        self._planned: Final = request
        self._settled: list[AnyRequest[Any]] = []  # what the first stage of the last release has made of it
        self.budget: Final = budget
        self._source = source

    @property
    def _has_rows(self) -> bool:
        """Whether the query was built on data."""
        return self._source is not None

    @property
    def found(self) -> FoundLimits | None:
        """The limits and clipping bounds that the last release found privately; None before, or if none was left out.

        Its text says what was found for which outputs, and how many people are beyond it. `PrivateFrame.with_limits`
        takes it.
        """
        request = self._request
        return FoundLimits(request.all_found) if isinstance(request, StagedRequest) and request.all_found else None

    @property
    def _request(self) -> AnyRequest[Asked]:
        """The request; after a release, with the limits that its first stage has found."""
        return self._settled[0] if self._settled else self._planned

    def _settle(self, request: AnyRequest[Any]) -> None:
        self._settled[:] = [request]

    @property
    def _protection(self) -> Protection:
        """Who is protected, and by which contribution limits."""
        return self._request.protection

    @property
    def _asks(self) -> tuple[Ask[Asked], ...]:
        """The outputs, each with its terms."""
        return self._request.asks

    @property
    def loss(self) -> Loss:
        """The loss of one person by one release: in rho if all are given in rho, or one has no epsilon.

        A ValueError where an output has no loss yet: see `scaled_to`.
        """
        return self._request.loss

    @property
    def delta(self) -> Fraction:
        """The delta of one release, in addition to its loss: above 0 only for selected keys."""
        return self._request.delta

    def explain(self) -> pl.DataFrame:
        """Return the cost and the errors of a release, without reading a row.

        Returns
        -------
        DataFrame
            One row per output, with the same columns for all queries. When printed, it shows the most important columns
            and all notes. Frames made of it (`select`, `drop`) print as any frame.

            `output`, `selects`: the name and the statistic.

            `error_95`: with probability 0.95, the answer of a group is at most this far from the best one, or from the
            true number, under the limits. For a list of quantiles, this is true of all answers. Null for means, because
            their error depends on the rows of the group: `note` gives it for 1,000 and 100 rows. With `within`, a mean
            has the error of groups of at least `rows` rows. For keys: the number of people from which a key is shown
            with that probability. Without a loss, an output has neither an error nor `epsilon`, `rho` and `rate`.

            `error_unit`: "people", "rows", "the column's unit" or "the weights' unit", also of a gap.

            `epsilon`, `rho`: the loss of one person over all groups, in both units. A discrete Gaussian has no epsilon.
            Printed is that in the unit of the whole release's cost. `delta` (0 for all but keys) is spent in addition.

            `note`: the limits beyond which people count in part or rows are dropped, and the clipping bounds, which
            `error_95` leaves out; the reason for this mechanism; and a better statistic, if there is one. The first
            row's note ends with the cost of the whole release, also as an ε at δ = 10⁻⁶. After `scaled_to` a guarantee,
            notes give the unit, and the error in the other one.

            The others are `mechanism`, `candidates` (null for keys, and if only the column's type names them and no
            data is bound; 1 for a number), `neighboring_relation`, `privacy_unit`, `limits` (as text; null without any,
            and for keys), `score_range` (R of one person's row, or of one person; of a list of quantiles 1 or 2, see
            `dp_polars.quantile`) and `rate` (λ). `groups` is null for keys.
        """
        return self._request.explain(self._public_engine)

    @property
    def _public_engine(self) -> PolarsEngine | None:
        """What tells the types of columns; None without data."""
        return None if self._source is None else PolarsEngine.of(self._source)

    def statement(self, *, at_delta: Number = AT_DELTA, **known: Unpack[Known]) -> Statement:
        """Return the privacy statement of this query, for those who publish, sign and review its release.

        It reads no row and charges nothing. Its state is "planned", because a query does not know its releases.

        Parameters
        ----------
        at_delta
            The δ at which the loss is also given as an ε.
        **known
            Facts that only people know, by the names of the public registry's schema: `name`, `data_curators`,
            `description`, `intended_use`, `data_product_region`, `data_product_sector`, `publication_date`, `actors`,
            `justification` and others. An error lists them all. Your text never replaces facts of the package: it is
            added to them.

        Returns
        -------
        Statement
            With `to_markdown`, `to_html` and `to_yaml`. It contains names of files, the transformations after
            `protect`, and the kinds of those before it. With a budget, it gives all charges so far.

        Examples
        --------
        >>> import dp_polars as dpp
        >>> query = dpp.protect("patient", max_groups=1).agg(dpp.n_people(epsilon=1))
        >>> query.statement(name="Patients").facts["loss"]["variant"]
        'Pure DP'
        """
        return self._stated(known, at_delta, "planned")

    def _described(self, at_delta: Number) -> dict[str, Any]:
        return facts_of_request(self._request, self._source, at_delta)

    def _stated(self, known: Known, at_delta: Number, state: Literal["planned", "released", "published"]) -> Statement:
        return statement_of({"": (self._request, self._described(at_delta))}, self.budget, known, at_delta, state=state)

    def scaled_to(
        self, *, epsilon: Number | None = None, rho: Number | None = None, delta: Number | None = None
    ) -> Self:
        """Return this query with one guarantee for all of its outputs, shared among them.

        Outputs with a loss, or with `within`, keep it. Those without one share the rest, equally or by their
        `loss_weight`. If every output has a loss, all of them are scaled by one factor. An output with `within` then
        has another error: see `explain`. No row is read, and nothing is charged. Rows, budget, limits, the delta of
        keys, and mechanisms that you named, stay. Selected keys without a delta share the part for keys. A query whose
        answers are cached (`dataset` of `dp_polars.protect`) gets the losses that it had.

        Parameters
        ----------
        epsilon, delta
            With a delta, above 0 and below 1: the query keeps (epsilon, delta)-differential privacy, *in the unit with
            the smaller errors*. In `epsilon` the losses add up to epsilon. In `rho` they add up to the largest rho that
            proves (epsilon, delta), without the part of delta that the budget leaves to keys. Nothing is left to keys
            if the query selects none and is all that is released for the guarantee: without a budget, or with an unused
            one of the same epsilon and delta. If all noise is Gaussian then, rho is larger still. So a query that is
            scaled to the guarantee of a budget fits into it exactly.
        epsilon, rho
            Without a delta: the cost of one release, exactly one of them. Outputs without a loss get one in this unit.
            All others keep unit and mechanism.
        none of them
            All that the budget has left: of a guarantee (epsilon, delta), in the unit with the smaller errors.

        Returns
        -------
        PrivateQuery
            With a delta, `explain` shows the unit, and the error in the other one. The package compares the geometric
            means of `error_95` over all outputs, each by its better mechanism in that unit. A mean without `rows` is
            compared in groups of 1,000. An output that exists only in epsilon (a gap, a first above a threshold) or
            only in rho (Gaussian noise by name) decides for all. If the budget has room in only one unit, that unit is
            used.

            Without a delta, it costs exactly that if all losses are in this unit. Otherwise the factor is the largest
            one of four significant digits that costs at most that.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, if outputs that keep their loss leave nothing to the others, if keys
            spend more than their part of delta, if noise would not fit in 64 bits, or if epsilon is given without delta
            and an output has discrete Gaussian noise, which has no epsilon.

        Examples
        --------
        >>> import dp_polars as dpp
        >>> private = dpp.protect("patient", max_groups=4)
        >>> query = private.group_by({"ward": ["A", "B", "C", "D"]}).agg(
        ...     dpp.n_people(), dpp.mode("drug", ["A", "B"], loss_weight=2)
        ... )
        >>> query.scaled_to(epsilon=1, delta=1e-6).explain()["mechanism"].to_list()
        ['discrete_laplace', 'permute_and_flip']
        """
        return scaled([self], epsilon, rho, delta)[0]

    def _with_asks(self, asks: Iterable[Ask[Asked]], taken: UnitTaken | None) -> Self:
        """Return the same query with its outputs at other losses, and why they are in this unit."""
        return self._with_request(self._planned.with_asks(asks, taken))

    def _with_request(self, request: AnyRequest[Asked]) -> Self:
        return self if request is self._planned else type(self)(request, self._source, self.budget)

    def _made(self, released: Released) -> Any:  # noqa: ANN401  # a frame of the engine, or a cube
        """Return what a release gave as it is used."""
        return released

    def n_rows_dropped(
        self,
        per_person: int,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        loss_weight: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateQuery:
        r"""Count the rows that do not count because of the limits: those that are dropped or scaled away.

        It counts at most a public number of rows of each person.

        Pure DP (epsilon) or zCDP (rho) for one person, in addition to the cost of this query. Each person counts for at
        most `per_person` rows, so the noise is that of a sum with that limit, under both neighbouring relations.

        Proof: :doc:`/proofs/contributions`.

        Parameters
        ----------
        per_person
            The most rows of one person that are counted, a public integer of at least 1. Never take it from the rows.
            The answer misses further rows of people who lose more, and the noise grows with this number.
        epsilon, rho, loss_weight, mechanism
            As for `dp_polars.len`. Without a loss, use `scaled_to`.

        Returns
        -------
        PrivateQuery
            With one output, "n_rows_dropped", an Int64 for all groups together. A person counts for the output that
            loses most, to the nearest whole row. Six rows of weight ½ are three rows that do not count. If `max_groups`
            keeps random groups, the number is that of an average release. If an output counts people, a row is one
            candidate in one group. Clipped totals drop no row, and rows that a join left out before are not counted.
            The answer may be negative, and `.clip(0)` afterwards is free.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": [i // 3 for i in range(3000)] + [0] * 9})
        >>> query = visits.dp.protect("patient", max_rows=2).agg(dpp.len(epsilon=1))
        >>> 990 <= query.n_rows_dropped(10, epsilon=20).release().item() <= 1030
        True
        """
        request = self._request
        terms = Terms.of(epsilon, rho, mechanism=mechanism, within=None, loss_weight=loss_weight)
        if not isinstance(request, Request) or isinstance(request, PeopleRequest):
            msg = (
                "n_rows_dropped must follow a query about columns, got a query for "
                f"{self._asks[0].name}: nobody is cut in it.\n\nHint: private.agg(…).n_rows_dropped(…)."
            )
            raise TypeError(msg)
        refuse_unknown_limits(request, "n_rows_dropped")
        if request.protection.parts is not None:
            msg = (
                "n_rows_dropped must follow a query that is not about disjoint parts: its number is about all parts "
                "together.\n\nHint: call it on the query before dpp.publication(…, by=…)."
            )
            raise TypeError(msg)
        if terms.loss_weight is None:
            warn_if_large(terms.loss)
        asked = PeopleRequest.of_cut(request, terms, positive_int("per_person", per_person))
        return PrivateQuery(asked, self._source, self.budget)

    def release(
        self,
        frame: PrivateRows | None = None,
        *,
        intervals: Intervals = False,
        min_people: int | None = None,
        sure: bool = False,
        engine: EngineType = "auto",
        partitions: int | None = None,
        ignore_cache: bool = False,
        unchecked: bool = False,
    ) -> pl.DataFrame:
        """Release all outputs once, charged to the budget before a row is read.

        Parameters
        ----------
        frame
            The private rows, if the query was built without any: a LazyFrame, a DataFrame, a pyarrow dataset, or an
            object with Arrow's C stream (a pyarrow Table or RecordBatchReader, a DuckDB relation, pandas). A reader
            gives its rows once. Rows that others took from it before are missing, and after a release it is refused.
        intervals
            Whether every number has a 95 % confidence interval, `NAME_low` and `NAME_high`. The number without noise,
            under the limits of `protect`, lies between them with probability at least 0.95. This costs nothing. No
            confidence interval covers the effect of limits: if people have more rows, counts and sums are too low, and
            so are both ends. `n_rows_dropped` counts the lost rows. Ends of counts are whole numbers, rounded outward
            if people may count in part. "all": wider intervals, which all hold together with probability at least 0.95,
            in all groups, and for each count of a list.
        min_people
            If given, the other outputs of a group, and their intervals, are null if its released number of people is
            lower. The query must have exactly one `n_people` without `where` (if every row is a person, one `len`
            without `where`). This hides noise, and protects nobody further.
        sure
            Whether the lower end of that number's confidence interval must be `min_people` or more.
        engine
            Polars' engine: "auto", "in-memory" or "streaming". `polars.Config.set_engine_affinity` does not matter.
            "gpu" is refused, because transformations were tried only on the CPU's engines.
        partitions
            The number of parts of people that are counted one after the other: more parts take less memory and more
            time. None: one part for every 1 GiB or so. Then the rows are counted first.
        ignore_cache
            Whether to pay for a new answer although the budget caches one: see `dataset` of `dp_polars.protect`.
        unchecked
            As for `dp_polars.protect`, of the rows that are given here.

        Returns
        -------
        DataFrame
            The public keys, each once and in their given order, then one column per output. A quantile with an interval
            has its ends, `NAME_low` and `NAME_high`. Groups without rows are answered like any other. Rows of other
            keys are ignored.

        Raises
        ------
        BudgetExceededError
            If the budget has too little left. Nothing is charged, and no row is read.
        ReleaseError
            If the engine fails on the private rows, or can't read them. The charge stays.
        TypeError, ValueError
            If the frame is missing or has other columns than the query needs, if a file was rewritten since `protect`,
            if an argument is not as described, or if nothing counts the people for `min_people`. Nothing is charged.

        Notes
        -----
        `intervals`, `min_people` and `sure` change only how an answer is shown. If the data has a name (`dataset` of
        `dp_polars.protect`), the budget caches the draws of all groups. Another way to show them is then free. Without
        a name, each release is charged.

        The columns' types are public. If they would be inferred from values (pandas' object columns, a CSV file without
        a schema), state them beforehand.
        """
        presentation = self._request.presentation(intervals, min_people, sure)
        with Opened() as opened:
            part = self._handed_over(unchecked)._part(frame, presentation, opened, engine, partitions)
            return release_all([part], self.budget, ignore_cache=ignore_cache)[0]

    def _handed_over(self, unchecked: object) -> Self:
        """Return the query for rows that are taken unchecked, if they are; of its own rows `protect` says so."""
        if not flag("unchecked", unchecked):
            return self
        if self._has_rows:
            msg = (
                "unchecked must be left out: the query was built on a frame, which protect has looked at.\n\n"
                "Hint: frame.dp.protect(…, unchecked=True)."
            )
            raise TypeError(msg)
        query = self._with_request(self._planned.handed_over(unchecked=unchecked))
        query._settled = self._settled  # what it finds is found for both
        return query

    def _part(
        self,
        frame: PrivateRows | None,
        presentation: Presentation,
        opened: Opened,
        engine: EngineType = "auto",
        partitions: int | None = None,
        *,
        check: Callable[[Work | KeyWork], None] = lambda _: None,
        name: str | None = None,
    ) -> Part[pl.DataFrame]:
        """Return what is to be released of these rows by Polars, if `check` takes the work; queries share `opened`."""
        if partitions is not None:
            positive_int("partitions", partitions)
        engine = on_cpu(engine)
        if (frame is None) != self._has_rows:
            msg = (
                "release must be given a frame, for the query was built without one."
                if frame is None
                else "release must not be given a frame: the query was built on one.\n\n"
                "Hint: leave it out; dp_polars.protect(…) begins a query without data."
            )
            raise TypeError(msg)
        pipeline = self._request.pipeline
        rows = self._source if frame is None else frame
        source = opened_source(rows, pipeline.protection.unit, opened, unchecked=pipeline.unchecked)
        by_polars = PolarsEngine(source, engine, partitions)

        def before_charge(work: Work | KeyWork | None) -> None:
            source.refuse_rewritten_files(pipeline.files if frame is None else None)
            if work is not None:
                schema = pl.Schema() if source.unread is None else source.unread.collect_schema()
                if source.wanted is not None or has_untaken(schema):
                    read = columns_needed(work, schema)
                    refuse_untaken(read, schema)
                    if source.wanted is not None:
                        source.wanted.append(read)
                check(work)

        def on_misfit() -> None:
            if source.unread is not None:
                refuse_untaken(self._request.mentions, source.unread.collect_schema())

        return Part(self._planned, by_polars, presentation, before_charge, on_misfit, self._settle, name)

    def sink_parquet(
        self,
        path: str | os.PathLike[str],
        frame: PrivateRows | None = None,
        *,
        intervals: Intervals = False,
        min_people: int | None = None,
        sure: bool = False,
        engine: EngineType = "auto",
        partitions: int | None = None,
        ignore_cache: bool = False,
        unchecked: bool = False,
    ) -> None:
        """Release once into a Parquet file that carries its claim: `read_claim` reads it back.

        The file is written next to `path` and then renamed, so it is never incomplete. It replaces an existing file and
        takes its mode, but its owner is the user who writes. A symbolic link stays, and its target is replaced. A
        killed process leaves nothing behind, except `.NAME-…` on systems without O_TMPFILE (macOS, network drives).

        Parameters
        ----------
        path
            The file; `~` is the home folder. An integer of 128 bits, which Parquet doesn't have, is a TypeError, before
            anything is charged.
        all others
            As for `release`. The file contains only what is shown.
        """
        from pyarrow import parquet

        presentation = self._request.presentation(intervals, min_people, sure)
        target = expanded(path)
        if not target.parent.is_dir() or target.is_dir():
            msg = f"path must be a file in an existing folder, got {str(path)!r}."
            raise (IsADirectoryError if target.is_dir() else FileNotFoundError)(msg)
        query = self._handed_over(unchecked)
        claim = query._claim_of_file()
        # Opened before anything is charged, so that a folder that can't be written costs nothing.
        with replacing(target) as file:
            with Opened() as opened:
                part = query._part(frame, presentation, opened, engine, partitions, check=refuse_wide_integers)
                released = release_all([part], self.budget, ignore_cache=ignore_cache, is_stated=True)
                table = released[0].to_arrow()
            if query._request is not query._planned:  # what was found is known now
                claim = query._claim_of_file()
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), CLAIM_KEY: claim})
            parquet.write_table(table, file)

    def _claim_of_file(self) -> bytes:
        statement = self._stated({}, AT_DELTA, "released")
        return json.dumps({**self._request.claim_for_json(), STATEMENT: statement.written}).encode()

    def __repr__(self) -> str:
        claims = ((ask, ask.query.claim) for ask in self._asks)
        asks = "\n".join(f"  {ask}, {claim}" + f", {claim.mechanism}" * (not claim._is_open) for ask, claim in claims)
        costs = "nothing yet, see scaled_to" if self._request.is_open else in_words(self._request.claims)
        return f"<PrivateQuery: {self._request.about}, {self._protection}\n{asks}\n  costs: {costs}>"


def scaled(queries: Sequence[QueryT], epsilon: Number | None, rho: Number | None, delta: Number | None) -> list[QueryT]:
    """Return queries that cost one loss, or keep one guarantee, together; without numbers all that is left.

    If that depends on the budget, queries of named data sets are those whose answers are cached, if there are any.
    """
    budget = queries[0].budget
    datasets = {name for query in queries if (name := query._planned.pipeline.dataset) is not None}
    if budget is None:
        return _scaled_at(queries, epsilon, rho, delta, None)
    for before, stored in budget._cached(datasets) if datasets else ():
        with suppress(ValueError):  # in another state, other queries were possible
            found = _scaled_at(queries, epsilon, rho, delta, before)
            known = {(one.dataset, one.words, one.loss) for one in stored}
            if all((one._planned.pipeline.dataset, *said_of(one._request)) in known for one in found):
                return found
    return _scaled_at(queries, epsilon, rho, delta, budget._state)


def _scaled_at(
    queries: Sequence[QueryT], epsilon: Number | None, rho: Number | None, delta: Number | None, state: State | None
) -> list[QueryT]:
    found = _scaled(queries, epsilon, rho, delta, state)
    # Limits once: those of a unit may make the errors in the other one smaller. Then their parts of the losses, which
    # follow from the losses, and these from the parts.
    for change in (_with_limits_of_unit, *(_with_own_parts,) * _ROUNDS):
        changed = [change(one, of) for one, of in zip(queries, found, strict=True)]
        if any(one is not query for one, query in zip(changed, queries, strict=True)):
            queries = changed
            found = _scaled(queries, epsilon, rho, delta, state)
    return followed(found)


def _scaled(
    queries: Sequence[QueryT], epsilon: Number | None, rho: Number | None, delta: Number | None, state: State | None
) -> list[QueryT]:
    outputs = [output for query in queries for output in query._planned.typed(query._public_engine)]
    requests = [query._planned for query in queries]
    if epsilon is None and rho is None and delta is None:
        asks, taken = _at_rest(outputs, requests, state)
    else:
        asks, taken = _at_numbers(outputs, requests, Loss.of(epsilon=epsilon, rho=rho), delta, state)
    found, first = [], 0
    for query in queries:
        number = len(query._planned.every)
        part = None if taken is None else taken.part(first, number)
        found.append(query._with_asks(asks[first : first + number], part))
        first += number
    return found


def _with_limits_of_unit(query: QueryT, scaled: QueryT) -> QueryT:
    """Return a query with the limits to find that its unit needs, if it has any and no loss before."""
    before, after = query._planned, scaled._planned
    if not _has_own_parts(before) or not isinstance(after, StagedRequest):
        return query
    unit = after.unruled[0].query.claim.loss.unit
    return query._with_request(before.finding_in(unit))


def _with_own_parts(query: QueryT, scaled: QueryT) -> QueryT:
    """Return a query with other parts of its loss for what it finds, if it finds something and had no loss before."""
    before, after = query._planned, scaled._planned
    if not _has_own_parts(before) or not isinstance(after, StagedRequest) or after.has_enough:
        return query
    return query._with_request(before.with_parts(after.wanted))


def _has_own_parts(request: AnyRequest[Any]) -> TypeGuard[StagedRequest]:
    return isinstance(request, StagedRequest) and request.is_open and len(request.unruled) > 0


def followed(queries: Sequence[QueryT]) -> list[QueryT]:
    """Return the queries: one about dropped rows then refers to its query as it is now."""
    requests = [query._planned for query in queries]
    return [query._with_request(query._planned.about_one_of(requests)) for query in queries]


def _at_numbers(
    outputs: Sequence[Typed], requests: Requests, loss: Loss, delta: Number | None, state: State | None
) -> tuple[list[Ask[Any]], UnitTaken | None]:
    if delta is not None and loss.unit == "rho":
        msg = (
            "delta must be left out with rho: it is a part of a guarantee of (epsilon, delta).\n\n"
            "Hint: scaled_to(epsilon=1, delta=1e-6), which takes the unit with the smaller errors."
        )
        raise TypeError(msg)
    total = None if delta is None else total_delta(delta)
    warn_if_large(loss, total)
    if total is not None:
        return at_guarantee(outputs, requests, loss.value, total, state)
    if any(ask.query.claim._needs_delta for ask, _ in outputs):
        msg = (
            f"scaled_to must be given epsilon and delta, got {loss} alone: keys that are selected need a delta.\n\n"
            "Hint: scaled_to(epsilon=1, delta=1e-6), or keys(…, delta=1e-8)."
        )
        raise ValueError(msg)
    return _at_sum(outputs, requests, loss), None


def _at_sum(outputs: Sequence[Typed], requests: Requests, loss: Loss) -> list[Ask[Any]]:
    asks = [ask for ask, _ in outputs]
    if any(ask.query.claim._is_open for ask in asks):
        return _in_unit(outputs, requests, loss)

    def scaled(factor: Fraction) -> list[Ask[Any]]:
        return [ask.with_terms(ask.query.terms.times(factor)) for ask in asks]

    times = _parts_paid(requests)

    def cost_of(factor: Fraction) -> Fraction:
        return cost(_claims_of(requests, scaled(factor)), loss.unit) / times

    claims = [(ask.name, ask.query.claim) for ask in asks]
    return scaled(factor_to(claims, Loss(loss.value / times, loss.unit), cost_of))


def without_data(
    query: object, budget: Budget | None, *, unchecked: object = False
) -> tuple[AnyRequest[Asked], Budget | None]:
    """Return what an adapter releases from rows of its own, and what pays; refuse rows and a second budget."""
    if not isinstance(query, PrivateQuery):
        msg = f"query must be a PrivateQuery, got {type(query).__name__}."
        raise TypeError(msg)
    if query._has_rows:
        msg = "query must be built without data.\n\nHint: begin it with dp_polars.protect(…), not frame.dp.protect(…)."
        raise TypeError(msg)
    if budget is not None and query.budget is not None:
        msg = "budget must be left out where the query has one.\n\nHint: give it to protect, or here."
        raise TypeError(msg)
    return query._planned.handed_over(unchecked=unchecked), query.budget if budget is None else budget
