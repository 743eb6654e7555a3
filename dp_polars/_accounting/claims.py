"""The privacy claim: the cost of a release for one person, the rate that it pays for, and the cost of several.

Everything is an exact rational. Irrational numbers are rounded so that the claim stays true: rates down, costs up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypedDict

from dp_polars._accounting import costs, gaussians
from dp_polars._accounting.terms import (
    ONE_RELEASE,
    Contributions,
    Loss,
    Mechanism,
    NeighboringRelation,
    Unit,
    check_delta,
    check_relation,
    in_decimals,
)
from dp_polars._base.numbers import (
    Number,
    as_fraction,
    ball,
    flag,
    float_up,
    one_of,
    positive_fraction,
    positive_int,
    precision,
    show,
    upper,
)

# The better mechanism for a unit. At equal epsilon permute-and-flip is never worse than the exponential mechanism
# (McKenna & Sheldon 2020, Theorem 2). At equal rho the exponential mechanism has the larger rate, because only it
# has a bounded range. It is nearly always better.
_BETTER: dict[costs.MechanismKind, dict[Unit, Mechanism]] = {
    "choice": {"epsilon": "permute_and_flip", "rho": "exponential"},
    "number": {"epsilon": "discrete_laplace", "rho": "discrete_gaussian"},
    "keys": {"epsilon": "partition_selection", "rho": "renyi_partition_selection"},
    "threshold": {"epsilon": "first_above", "rho": "first_above"},
}

# The racing floats represent rates between these bounds (`_mechanisms/racing.py`).
_SMALLEST_RATE = Fraction(1, 2**1000)
_LARGEST_RATE = Fraction(2**1000)

_NO_EPSILON = (
    "a discrete Gaussian, and keys that are selected in rho, have no loss in epsilon.\n\n"
    "Hint: keep a budget in rho, or give epsilon= instead of rho=: that draws discrete Laplace noise, or other coins."
)
#: The hint for a missing loss.
SAY_A_LOSS = (
    "Hint: query.scaled_to(epsilon=1, delta=1e-6) shares one guarantee over all outputs of a private frame; or give "
    "each its own, epsilon=…, rho=… or within=…."
)
#: The message if a loss is needed and missing.
NO_LOSS = f"a loss must be said first, got none.\n\n{SAY_A_LOSS}"


def range_of(sensitivity: Number, monotonic: bool) -> Fraction:
    """Return R for scores with the caller's own sensitivity: one person's largest change of a score difference."""
    exact = positive_fraction("sensitivity", sensitivity)
    return exact if flag("monotonic", monotonic) else 2 * exact


def check_mechanism(kind: costs.MechanismKind, mechanism: str | None, unit: Unit) -> Mechanism:
    """Return the requested mechanism, if it makes such draws, or the better one for the unit of the loss."""
    if mechanism is None:
        return _BETTER[kind][unit]
    words = mechanisms_of(kind)
    return one_of("mechanism", mechanism, words, f"one of {list(words)} or None")


def mechanisms_of(kind: costs.MechanismKind) -> tuple[Mechanism, ...]:
    return tuple(word for word, proof in costs.PROOFS.items() if proof.kind == kind)


class _HowReplaced(TypedDict):
    same_group: Fraction
    groups: int | None
    draws: int
    levels: tuple[Fraction, ...]


@dataclass(frozen=True)
class Claim:
    """The guarantee of one release to one person, and the rate at which it holds.

    The rate follows from the other fields, however a claim is made, also by `dataclasses.replace`. So no claim is
    charged less than its draws cost.

    Attributes
    ----------
    loss
        The loss of one person over all groups, as the caller requested it.
    mechanism
        "permute_and_flip" or "exponential", of a choice; "discrete_laplace" or "discrete_gaussian", of a number;
        "partition_selection" (loss in epsilon), "renyi_partition_selection" or "discrete_gaussian_threshold" (loss in
        rho), of keys; "first_above", of the first candidate above a threshold.
    score_range
        R: the most that one row (one person, for counts of people; one neighbour, for scores of the caller's own)
        can change the difference of two scores, or a number that gets noise, under `neighboring_relation`. For the
        first above a threshold it is 2, or 3 under "replace_one": the noise of the threshold moves, too. For a
        list of quantiles it is 1, or 2 under "replace_one": a draw whose scores have another range R has the rate λ/R.
    contributions
        How one person's rows may spread over the groups.
    neighboring_relation
        "add_or_remove_one", "replace_one", or None if the caller's sensitivity implies it.
    delta
        δ, from 0 to below 1: spent in addition to the loss, over all groups. Above 0 for keys, and 0 for all others.
    rate
        λ: a candidate whose score is less than the best one by `gap` has the coin exp(−λ·gap). For noise it is one
        over the scale (discrete Laplace) or over the standard deviation (discrete Gaussian); for partition selection
        the epsilon of one key, or in rho √(2·rho) of one key. The largest that `loss` pays for, rounded down.

    Raises
    ------
    TypeError, ValueError
        If a field is not as described, or the rate lies beyond 2**±1000.

    Notes
    -----
    Proof: :doc:`/proofs/spreads`.
    """

    loss: Loss
    mechanism: Mechanism
    score_range: Fraction
    contributions: Contributions
    neighboring_relation: NeighboringRelation | None
    # The number of draws that share the loss equally, each at `rate`: two for a mean, k for the top k in rounds. For a
    # list of quantiles, the levels of its tree: each level draws once from every row.
    _draws: int = field(default=1, kw_only=True)
    # Under "replace_one": R if the old row and the new one are in one group, as a part of `score_range`. It is from
    # 1/2, if a single row moves a number as far, to 1. For a number with several draws, their joint cost
    # (`docs/proofs/spreads.md`, Theorem 5).
    _same_group: Fraction = field(default=costs.ALL, kw_only=True)
    # The number of public groups, at least as many as a person can fill: under "replace_one" few groups make two people
    # share some. None: unknown.
    _groups: int | None = field(default=None, kw_only=True)
    # For a list of quantiles under "replace_one": `same_group` of each draw. Empty: 1 for each.
    _levels: tuple[Fraction, ...] = field(default=(), kw_only=True)
    # For a discrete Gaussian: its part of its own largest rho, when all histograms of a cube of tables together cost
    # most. 1 for anything else.
    _attained: Fraction = field(default=costs.ALL, kw_only=True)
    # Whether a choice, or the first above a threshold, is released with its gap. This changes nothing in epsilon. In
    # rho it is charged like any mechanism with the same epsilon.
    _gap: bool = field(default=False, kw_only=True)
    delta: Fraction = field(default=Fraction(0), kw_only=True)
    # Set while the loss is undecided: this statistic's weight in the joint guarantee. Then `loss` only has a unit,
    # there is no cost, and the rate is 0: a draw at it would reveal nothing of the rows. None: `loss` is the loss.
    _loss_weight: Fraction | None = field(default=None, kw_only=True)
    # Whether the mechanism was requested by name. Otherwise the unit of the loss chooses it.
    _is_asked: bool = field(default=False, kw_only=True, compare=False)
    rate: Fraction = field(init=False)

    def __post_init__(self) -> None:
        one_of("mechanism", self.mechanism, tuple(costs.PROOFS))
        if not self._has_epsilon and self.loss.unit == "epsilon":
            msg = (
                f"{self.mechanism} has no epsilon, got {self.loss}.\n\n"
                "Hint: give its loss as rho, or leave mechanism out: in epsilon another one is drawn."
            )
            raise ValueError(msg)
        if self._kind == "keys" and self._has_epsilon and self.loss.unit == "rho":
            msg = (
                f"{self.mechanism.replace('_', ' ')} must have its loss in epsilon, got rho.\n\n"
                'Hint: by rho, keys are shown by "renyi_partition_selection".'
            )
            raise ValueError(msg)
        positive_fraction("score_range", self.score_range)
        positive_int("draws", self._draws)
        if self._gap and self._kind not in ("choice", "threshold"):
            msg = f"a gap must be that of a choice, got the mechanism {self.mechanism!r}."
            raise ValueError(msg)
        if self.neighboring_relation is not None:
            check_relation(self.neighboring_relation)
        object.__setattr__(self, "delta", check_delta(self.delta))
        self._check_keys()
        self._check_same_group()
        if not 0 < self._attained <= (1 if self._has_epsilon or self._kind != "number" else self._attained):
            msg = f"attained must be 1, or of a discrete Gaussian above 0, got {show(self._attained)}."
            raise ValueError(msg)
        paid = Fraction(0) if self._is_open else check_rate(self._paid_x(self.loss) / self.score_range, self.loss)
        object.__setattr__(self, "rate", paid)

    def __str__(self) -> str:
        if self._loss_weight is not None:
            return "no loss yet" if self._loss_weight == 1 else f"no loss yet, loss_weight={show(self._loss_weight)}"
        return f"{self.loss}, delta={show(self.delta, up=True)}" if self.delta else str(self.loss)

    @property
    def _is_open(self) -> bool:
        return self._loss_weight is not None

    def _paid_x(self, loss: Loss) -> Fraction:
        """Return the largest rate times range of each draw that a loss pays for."""
        paid = loss.value / self._attained
        return costs.scaled_rate(loss.unit, self._charged_as, paid, self._spread(), **self._replaced)

    def _rate_in(self, step: Fraction | int) -> Fraction:
        """Return the rate for scores in steps, at most the largest: a lower rate is as private, and still certain."""
        return min(self.rate * step, _LARGEST_RATE)

    @property
    def _loss_units(self) -> tuple[Unit, ...]:
        """The units in which a loss may be requested: a gap, or the first above a threshold, only in epsilon.

        Gaussian noise that was requested by name stays in rho.
        """
        if self._gap or self._kind == "threshold":
            return ("epsilon",)
        return ("rho",) if self._is_asked and not self._has_epsilon else ("epsilon", "rho")

    def _with_loss(self, value: Fraction) -> Claim:
        """Return the claim with another loss in the same unit."""
        return replace(self, loss=Loss(value, self.loss.unit), _loss_weight=None)

    def _loss_at(self, cost: Loss) -> Fraction:
        """Return the largest loss, in the claim's own unit, that costs at most this."""
        if self.loss.unit == cost.unit:
            return cost.value
        if not self._has_epsilon:
            raise ValueError(_NO_EPSILON)
        return self._cost_of(self.loss.unit, self._paid_x(cost))

    def _check_keys(self) -> None:
        """Raise unless delta is above 0 for keys, which count each person once, and 0 for all others.

        Keys without a loss may get their delta together with the loss.
        """
        if self._kind != "keys":
            if self.delta != 0:
                msg = f"delta must be 0 for {self.mechanism!r}, which spends none, got {show(self.delta)}."
                raise ValueError(msg)
            return
        if not self.delta > 0 and not self._is_open:
            msg = (
                f"delta must be greater than 0 for {self.mechanism!r}, got 0.\n\n"
                "Hint: a key of one person is shown with probability at most delta. Far below one over the number of "
                "people is usual, such as delta=1e-8."
            )
            raise ValueError(msg)
        if self.contributions.per_group != 1 or self._draws != 1:
            msg = f"keys must count every person once, by one draw, got {self.contributions} and draws={self._draws}."
            raise ValueError(msg)

    @property
    def _needs_delta(self) -> bool:
        """Whether delta is undecided together with the loss."""
        return self._kind == "keys" and not self.delta

    def _check_same_group(self) -> None:
        """Raise unless the proof of `scaled_cost` covers these replacements within one group."""
        is_proved = self.neighboring_relation == "replace_one" and self._kind in ("choice", "number") and not self._gap
        least = costs.HALF if is_proved else costs.ALL
        if self._levels and (len(self._levels) != self._draws or self._kind != "choice"):
            msg = f"levels must be those of the {self._draws} draws of a choice, got {len(self._levels)}."
            raise ValueError(msg)
        if not all(least <= one <= costs.ALL for one in (self._same_group, *self._levels)):
            msg = (
                'same_group must be 1, or under "replace_one" from 1/2 on for a number, or a choice without its gap, '
                f"got {show(self._same_group)}."
            )
            raise ValueError(msg)
        if self._groups is not None:
            positive_int("groups", self._groups)
            if self._groups * self.contributions.per_group < self.contributions.total:
                msg = f"groups must be at least as many as {self.contributions} can fill, got {self._groups}."
                raise ValueError(msg)

    @property
    def _kind(self) -> costs.MechanismKind:
        return costs.PROOFS[self.mechanism].kind

    @property
    def _has_epsilon(self) -> bool:
        """Whether the release has a loss in epsilon (in addition to its delta): a Gaussian has none."""
        return costs.PROOFS[self.mechanism].curve.is_pure

    @property
    def _charged_as(self) -> Mechanism:
        """The mechanism by which this release is charged in rho.

        The curves of both choices hold without a gap only. With a gap, only the pure loss is known.
        The worst case in rho for a pure loss is randomized response, which is how discrete Laplace noise is charged.
        """
        return "discrete_laplace" if self._gap else self.mechanism

    def cost(self, unit: Unit, distance: int | Fraction = 1) -> Fraction:
        """Return the joint loss of `distance` people in `unit`, never too low.

        In the requested unit and for one person it is the requested loss.
        Raises a ValueError for a discrete Gaussian's epsilon. Keys spend `delta` in addition.
        (Epsilon, delta)-DP partition selection is, in rho, delta-approximately zero-concentrated.
        """
        if self._is_open:
            raise ValueError(NO_LOSS)
        if unit == "epsilon" and not self._has_epsilon:
            raise ValueError(_NO_EPSILON)
        if unit == self.loss.unit and distance == 1:
            return self.loss.value
        return self._cost_of(unit, self.rate * self.score_range * distance, distance)

    def _cost_of(self, unit: Unit, x: Fraction, distance: int | Fraction = 1) -> Fraction:
        """Return the cost of all draws at a rate times range, which includes the factor `distance`."""
        unattained = costs.scaled_cost(unit, self._charged_as, x, self._spread(distance), **self._replaced)
        return self._attained * unattained

    @property
    def _squares(self) -> Fraction:
        """The largest sum of squares of one person's moves, as a discrete Gaussian is charged for it."""
        return 2 * self._cost_of("rho", self.score_range)

    @property
    def _moves(self) -> list[tuple[Fraction, int | Fraction]]:
        """Moves of Gaussians over the deviation of their noise, with their number: they dominate all draws.

        `docs/proofs/spreads.md`, Theorem 6. Numbers need not be whole: only the sum of squares matters.
        If people count in part, all squares are attributed to the longest moves, for which noise must be widened most.
        """
        x, spread, times = self.rate * self.score_range, self.contributions, self._draws * self._attained
        if self._same_group < costs.ALL:
            replaced = costs.Replaced(x / 2, x * (self._same_group - costs.HALF), spread, self._groups)
            if self._draws == 1:  # no group moves further than the joint contribution of both people
                longest = (replaced.a + replaced.b) * spread.per_group
                return [(longest, times * replaced.squares(1) / longest**2)]
            times *= 2 * (replaced.a**2 + replaced.b**2) / x**2
        return [(x * spread.per_group, times * Fraction(spread.squares, spread.per_group**2))]

    @property
    def _replaced(self) -> _HowReplaced:
        return {"same_group": self._same_group, "groups": self._groups, "draws": self._draws, "levels": self._levels}

    def _spread(self, distance: int | Fraction = 1) -> Contributions:
        """Return how the rows of a person, or of `distance` people, are assumed to spread over the groups.

        For the first above a threshold under "replace_one", all of several rows are assumed to be in one group
        (`docs/proofs/first-above.md`, Theorem 3).
        """
        spread = self.contributions
        is_one_way = self._kind == "threshold" and self.neighboring_relation == "replace_one"
        several = spread.per_group > 1 or distance > 1
        return Contributions(spread.total, spread.total) if is_one_way and several else spread

    def _delta_of(self, distance: int | Fraction = 1) -> Fraction:
        """Return the joint delta of `distance` people, in addition to their loss, never too low.

        `docs/proofs/keys.md`, Theorem 4. For a Gaussian threshold and more than one person nothing is proved: 1.
        """
        if self.delta == 0 or distance <= 1:
            return self.delta if distance > 0 else Fraction(0)
        if not self._has_epsilon:
            return Fraction(1)
        x, people = self.rate * self.score_range, math.ceil(distance)
        with precision(costs.BITS + 2 * max(0, costs.floor_log2(1 / x)) + 32):
            growth = ball(people * x).expm1() / ball(x).expm1()
            return min(Fraction(1), costs.round_up(upper(-(-ball(self.delta)).log1p() * growth)))


def claim_of_choice(
    loss: Loss,
    mechanism: str | None,
    score_range: Fraction,
    contributions: Contributions,
    neighboring_relation: NeighboringRelation | None,
    same_group: Fraction = costs.ALL,
) -> Claim:
    chosen = check_mechanism("choice", mechanism, loss.unit)
    return Claim(loss, chosen, score_range, contributions, neighboring_relation, _same_group=same_group)


def claim_for_scores(loss: Loss, mechanism: str | None, sensitivity: Number, monotonic: bool) -> Claim:
    """Return the claim of a selection by scores with the caller's own sensitivity and relation."""
    return claim_of_choice(loss, mechanism, range_of(sensitivity, monotonic), ONE_RELEASE, None)


def check_rate(rate: Fraction, loss: Loss) -> Fraction:
    """Return the rate that a loss pays for, if the racing floats can represent it."""
    if not _SMALLEST_RATE <= rate <= _LARGEST_RATE:
        msg = f"{loss.unit} over the range of the score must lie between 2**-1000 and 2**1000, got {loss}."
        raise ValueError(msg)
    return rate


# The δ for comparing losses in both units: nearly always below one over the number of people.
_DELTA, _AT_DELTA = Fraction(1, 10**6), "at δ = 10⁻⁶"
# Mention a budget in the other unit if it charges at most this part, as ε at that δ.
_CHEAPER = 0.9


def cost(claims: Sequence[Claim], unit: Unit) -> Fraction:
    return sum((times * claim.cost(unit) for claim, times in Counter(claims).items()), Fraction(0))


def loss_of(claims: Sequence[Claim]) -> Loss:
    """Return the joint cost of outputs: in rho if all are given in rho, or one has no epsilon."""
    # A discrete Gaussian only has a loss in rho.
    is_pure = _is_pure(claims) and {claim.loss.unit for claim in claims} != {"rho"}
    unit: Unit = "epsilon" if is_pure else "rho"
    return Loss(cost(claims, unit), unit)


def epsilon_of(claims: Sequence[Claim], delta: Fraction = _DELTA) -> float:
    """Return the joint cost of outputs as an ε at a δ."""
    return _epsilon_at(loss_of(claims), claims, delta)


def _epsilon_at(loss: Loss, claims: Sequence[Claim], delta: Fraction = _DELTA) -> float:
    epsilon = costs.epsilon_at(loss.unit, loss.value, delta, delta_of(claims))
    if any(claim.mechanism != "discrete_gaussian" for claim in claims):
        return epsilon
    shift = gaussians.shift_of(move for claim in claims for move in claim._moves)
    least = None if shift is None else gaussians.epsilon_of(shift, delta)
    return epsilon if least is None else min(epsilon, float_up(least))


# A guarantee that one release takes as a whole is kept with more room than this.
_ROOM = 1 + Fraction(1, 10**9)


def costs_no_more(claims: Sequence[Claim], others: Sequence[Claim], *, as_whole: bool) -> bool:
    """Return whether claims cost no more than others: in all units that these have.

    `as_whole`: and as one release of Gaussians, which may take a guarantee as a whole.
    """
    units: tuple[Unit, ...] = ("epsilon", "rho") if _is_pure(others) else ("rho",)
    if any(cost(claims, unit) > cost(others, unit) for unit in units):
        return False
    if not as_whole or any(claim.mechanism != "discrete_gaussian" for claim in others):
        return True
    shift, most = (gaussians.shift_of(move for claim in of for move in claim._moves) for of in (claims, others))
    return most is None or (shift is not None and shift <= most * _ROOM)


def in_words(claims: Sequence[Claim]) -> str:
    """Return the joint cost of outputs: in the unit of the query, in the other one, and as (ε, δ)."""
    loss, gone = loss_of(claims), delta_of(claims)
    meant = [str(_in_other_unit(claims))] if _is_pure(claims) else []
    epsilon = epsilon_of(claims)
    if epsilon < math.inf:
        meant.append(_at_delta(epsilon))
    text = f"{loss}, delta={in_decimals(gone, up=True)}" if gone else str(loss)
    return f"{text} ({'; '.join(meant)})" if meant else text


def notes_of_cost(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield notes on the cost of the whole release."""
    yield f"The release costs {in_words(claims)}."
    if not _is_pure(claims):
        return
    loss, other = loss_of(claims), _in_other_unit(claims)
    here, there = (_epsilon_at(one, claims) for one in (loss, other))
    if there < math.inf and there <= _CHEAPER * here:
        unit = other.unit
        yield f"It costs less in {unit}: a budget in {unit} charges {other}, which is {_at_delta(there)}."


def factor_to(claims: Sequence[tuple[str, Claim]], target: Loss, cost_of: Callable[[Fraction], Fraction]) -> Fraction:
    """Return the factor of the losses of outputs (name, claim) at which their joint cost is a target.

    `cost_of`: the joint cost at a factor, in the unit of the target. Outputs may share draws.

    The factor is the largest one with a cost of at most `target`.
    If a loss has another unit, no factor may reach the target exactly, so it has four significant digits.
    """
    for name, claim in claims:
        if target.unit == "epsilon" and not claim._has_epsilon:
            msg = (
                f"scaled_to must be given rho, got epsilon: output {name!r} has discrete Gaussian noise, or keys that "
                "are selected in rho, which have no loss in epsilon.\n\n"
                "Hint: scaled_to(rho=…), or request the output with epsilon=…."
            )
            raise ValueError(msg)
    every = [claim for _, claim in claims]
    if {claim.loss.unit for claim in every} == {target.unit}:
        return target.value / cost(every, target.unit)

    def holds(factor: Fraction) -> bool:
        return cost_of(factor) <= target.value

    # An output's cost grows with its loss, in any unit.
    power = Fraction(1)
    while holds(10 * power):
        power *= 10
    while not holds(power):
        power /= 10
    digits = range(1000, 10_000)
    return digits[bisect_left(digits, True, key=lambda number: not holds(number * power / 1000)) - 1] * power / 1000


def _in_other_unit(claims: Sequence[Claim]) -> Loss:
    """Return the joint cost of outputs that all have an epsilon, in the unit that `loss_of` doesn't choose."""
    unit: Unit = "rho" if loss_of(claims).unit == "epsilon" else "epsilon"
    return Loss(cost(claims, unit), unit)


def _is_pure(claims: Sequence[Claim]) -> bool:
    return all(claim._has_epsilon for claim in claims)


def delta_of(claims: Sequence[Claim]) -> Fraction:
    return sum((claim.delta for claim in claims), Fraction(0))


def _at_delta(epsilon: float) -> str:
    return f"ε = {show(as_fraction('epsilon', epsilon), 4, up=True)} {_AT_DELTA}"
