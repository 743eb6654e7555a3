"""The terms of a release: losses, units, relations, limits, mechanisms; amounts of a budget; large losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal, TypeAlias, get_args

from dp_polars._base.calls import warn
from dp_polars._base.numbers import (
    DIGITS,
    Number,
    as_fraction,
    as_loss,
    decimal_of,
    given,
    one_of,
    positive_fraction,
    positive_int,
    positive_loss,
    rounded_down,
    show,
)

Unit: TypeAlias = Literal["epsilon", "rho"]
Mechanism: TypeAlias = Literal[
    "permute_and_flip",
    "exponential",
    "discrete_laplace",
    "discrete_gaussian",
    "partition_selection",
    "renyi_partition_selection",
    "discrete_gaussian_threshold",
    "first_above",
]
NeighboringRelation: TypeAlias = Literal["add_or_remove_one", "replace_one"]

# Limit for both units: a larger loss protects nobody. A rho of 20 corresponds to an even larger epsilon.
LARGEST = 20
# A larger delta protects nobody either: it may show one person of a thousand.
LARGEST_DELTA = Fraction(1, 1000)

_UNITS: tuple[Unit, ...] = get_args(Unit)
_RELATIONS: tuple[NeighboringRelation, ...] = get_args(NeighboringRelation)
#: The relation of plain expressions, and of `protect` unless it is given another one.
USUAL_RELATION: NeighboringRelation = "add_or_remove_one"


@dataclass(frozen=True)
class Loss:
    """A privacy loss: `value` in pure DP ("epsilon") or in zero-concentrated DP ("rho")."""

    value: Fraction
    unit: Unit

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", positive_loss(check_unit(self.unit), self.value))

    @classmethod
    def of(cls, *, epsilon: Number | None, rho: Number | None) -> Loss:
        if (epsilon is None) == (rho is None):
            msg = (
                f"exactly one of epsilon and rho must be given, got {'neither' if rho is None else 'both'}.\n\n"
                "Hint: epsilon=1.0 for pure differential privacy, rho=0.1 for zero-concentrated."
            )
            raise TypeError(msg)
        unit: Unit = "epsilon" if rho is None else "rho"
        return cls(positive_loss(unit, epsilon if rho is None else rho), unit)

    def __str__(self) -> str:
        return f"{self.unit}={show(self.value, up=True)}"


@dataclass(frozen=True)
class Within:
    """An accuracy in place of a loss: the error's limit with probability 0.95, in the unit of `error_95`."""

    value: Fraction  # exact, at least 0
    rows: int | None = None  # for groups with at least this many contributing rows; None: for every group
    unreached: str | None = None  # why no loss was found for a plain frame; None: one was found

    def __post_init__(self) -> None:
        if not self.value >= 0:
            msg = f"within must be at least 0, got {show(self.value)}."
            raise ValueError(msg)
        if self.rows is not None:
            object.__setattr__(self, "rows", positive_int("rows", self.rows))

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", rows={self.rows}"
        return f"within={show(self.value)}{rows}"


@dataclass(frozen=True)
class Contributions:
    """The spread of one person's rows: `total` in all, at most `per_group` of them in one group."""

    total: int
    per_group: int

    def __post_init__(self) -> None:
        if not 1 <= self.per_group <= self.total:
            msg = f"contributions must have 1 <= per_group <= total, got {self}."
            raise ValueError(msg)

    @property
    def full_groups(self) -> int:
        """Groups that a person can fill."""
        return self.total // self.per_group

    @property
    def rest(self) -> int:
        """Rows left over for one more group."""
        return self.total % self.per_group

    @property
    def squares(self) -> int:
        """The largest sum of squares of a person's rows per group."""
        return self.full_groups * self.per_group**2 + self.rest**2


# For a person with a contribution that the caller's sensitivity describes.
ONE_RELEASE = Contributions(1, 1)


def check_unit(unit: str) -> Unit:
    return one_of("unit", unit, _UNITS)


def check_delta(delta: object, name: str = "delta") -> Fraction:
    """Return a delta from 0 to below 1, exactly; a float is read as in `as_loss`."""
    exact = as_loss(name, delta)
    if not 0 <= exact < 1:
        msg = f"{name} must be at least 0 and below 1, got {delta!r}."
        raise ValueError(msg)
    return exact


def check_relation(relation: str) -> NeighboringRelation:
    return one_of("neighboring_relation", relation, _RELATIONS)


def in_words(limits: Mapping[str, int | None]) -> str:
    return ", ".join(f"{name}={value}" for name, value in limits.items())


@dataclass(frozen=True)
class Terms:
    """The part of a claim that does not follow from the statistic, as an expression requests it or a frame sets it."""

    loss: Loss  # the most that one person may lose in total
    # The number of rows of one person. An expression doesn't know the groups, so all rows may be in one.
    contributions: Contributions
    mechanism: str | None = None  # the requested name; None: the unit of the loss chooses
    # The requested accuracy: then the loss follows, and `loss` only has its unit. None: the loss was given.
    within: Within | None = None
    # The output's weight in the joint guarantee: then `loss` only has a possible unit. None: the loss was given, or
    # follows from `within`.
    loss_weight: Fraction | None = None
    neighboring_relation: NeighboringRelation | None = USUAL_RELATION  # None: the caller's sensitivity implies it
    groups: int | None = None  # the number of public groups; None: unknown, as in an expression
    gap: bool = False  # whether a choice is released with its gap
    delta: Fraction = Fraction(0)  # for keys
    attained: Fraction = Fraction(1)  # of the cost of a discrete Gaussian, the part that all histograms together reach

    @classmethod
    def of(
        cls,
        epsilon: Number | None,
        rho: Number | None,
        contributions: int = 1,
        mechanism: str | None = None,
        *,
        within: Number | None,
        rows: int | None = None,
        loss_weight: Number | None = None,
    ) -> Terms:
        """Return the terms of these arguments; at most one of them may set the loss or the accuracy."""
        given_ones = {"within": within, "epsilon": epsilon, "rho": rho, "loss_weight": loss_weight}
        named = [name for name, value in given_ones.items() if value is not None]
        if len(named) > 1:
            msg = (
                f"at most one of within, epsilon, rho and loss_weight must be given, got {' and '.join(named)}.\n\n"
                "Hint: within=10 says how wrong the answer may be, and the loss follows from it; epsilon=1.0 is for "
                "pure differential privacy, rho=0.1 for zero-concentrated; loss_weight=2 takes twice the part of what "
                "query.scaled_to(epsilon=1, delta=1e-6) shares."
            )
            raise TypeError(msg)
        # A Gaussian has no epsilon.
        unit: Unit = "rho" if mechanism == "discrete_gaussian" else "epsilon"
        accuracy = weight = None
        if within is not None:
            loss, accuracy = Loss(Fraction(LARGEST), unit), Within(as_fraction("within", within), rows)
        elif rows is not None:
            msg = (
                f"rows must be left out without within, got {given(rows)}: it says of which groups within is "
                "true.\n\nHint: within=0.5, rows=1000."
            )
            raise TypeError(msg)
        elif epsilon is None and rho is None:
            weight = positive_fraction("loss_weight", 1 if loss_weight is None else loss_weight)
            loss = Loss(Fraction(1), unit)
        else:
            loss = Loss.of(epsilon=epsilon, rho=rho)
        terms = cls.at(loss, contributions, mechanism)
        return replace(terms, within=accuracy, loss_weight=weight)

    @classmethod
    def at(
        cls,
        loss: Loss,
        contributions: int = 1,
        mechanism: str | None = None,
    ) -> Terms:
        most = positive_int("contributions", contributions)
        return cls(loss, Contributions(most, most), mechanism)

    def with_loss(self, value: Fraction) -> Terms:
        """Return the terms with another loss in the same unit."""
        return replace(self, loss=Loss(value, self.loss.unit), loss_weight=None)

    def times(self, factor: Fraction) -> Terms:
        """Return the terms with the loss times a factor; while the loss is undecided, with its weight times it."""
        if self.loss_weight is not None:
            return replace(self, loss_weight=self.loss_weight * factor)
        return self.with_loss(self.loss.value * factor)


# Bits of a numerator or denominator: the differences of such sums still print (Python stops at 4,300 digits).
_LONGEST = 4_000
# Characters of a ratio, and digits of a decimal, that people can still read.
_SHORT = 20


class Remaining(Fraction):
    """The rest of a budget: an exact `Fraction` in the unit of its total.

    `epsilon`, `rho`: the largest loss in this unit that still fits. The other one is None if a budget
        only adds up one unit.
    """

    __slots__ = ("epsilon", "rho")
    epsilon: Fraction | None
    rho: Fraction | None

    def __new__(cls, epsilon: Fraction | None, rho: Fraction | None) -> Remaining:  # noqa: PYI034
        self = super().__new__(cls, (rho or 0) if epsilon is None else epsilon)
        self.epsilon, self.rho = epsilon, rho
        return self

    def __str__(self) -> str:
        if self.epsilon is None or self.rho is None:
            return super().__str__()
        return f"epsilon={exact(self.epsilon)} or rho={exact(self.rho)}"

    def __repr__(self) -> str:
        if self.epsilon is None or self.rho is None:
            return repr(Fraction(self))
        return f"Remaining(epsilon={self.epsilon!r}, rho={self.rho!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Remaining, (self.epsilon, self.rho)

    def __copy__(self) -> Remaining:
        return self

    def __deepcopy__(self, memo: Any) -> Remaining:  # noqa: ANN401
        return self


class BudgetExceededError(ValueError):
    """A release costs more than its budget has left: nothing was charged, and no row was read.

    Attributes
    ----------
    requested, remaining, short_by
        Exact numbers (`Fraction`), in `unit`.
    unit
        "epsilon" or "rho". A guarantee of (epsilon, delta) has "rho" where the release has no epsilon.
    requested_rho, remaining_rho, short_by_rho
        The same in rho, for a guarantee of (epsilon, delta): a release fits if it is short by 0 in one of both units. A
        pure release counts there with at most its epsilon over the order of the guarantee. None for other budgets.
    requested_delta, remaining_delta, short_by_delta
        The same of delta: exact numbers, or None where the budget has no delta.
    ledger, first_charge, last_charge
        The path of the budget's file, and the times of its first and last charge (`datetime` in UTC), in any run.
        None if the budget has no file, or was never charged.
    """

    def __init__(
        self,
        requested: Fraction,
        remaining: Fraction,
        unit: Unit,
        requested_delta: Fraction | None = None,
        remaining_delta: Fraction | None = None,
        ledger: str | None = None,
        charged: tuple[datetime, datetime] | None = None,
        requested_rho: Fraction | None = None,
        remaining_rho: Fraction | None = None,
    ) -> None:
        deltas, rhos = (requested_delta, remaining_delta), (requested_rho, remaining_rho)
        super().__init__(requested, remaining, unit, *deltas, ledger, charged, *rhos)
        self.requested = requested
        self.remaining = remaining
        self.short_by: Fraction = max(requested - remaining, Fraction(0))
        self.unit = unit
        self.requested_rho: Fraction | None = requested_rho
        self.remaining_rho: Fraction | None = remaining_rho
        self.short_by_rho: Fraction | None = _short_by(*rhos)
        self.requested_delta: Fraction | None = requested_delta
        self.remaining_delta: Fraction | None = remaining_delta
        self.short_by_delta: Fraction | None = _short_by(*deltas)
        self.ledger: str | None = ledger
        self.first_charge: datetime | None = None if charged is None else charged[0]
        self.last_charge: datetime | None = None if charged is None else charged[1]

    def __str__(self) -> str:
        losses, missing, ways = [_asked(self.unit, self.requested, self.remaining)], [], []
        is_short = self.short_by > 0
        if self.unit != "rho" and self.requested_rho is not None and self.remaining_rho is not None:
            losses.append(_asked("rho", self.requested_rho, self.remaining_rho))
            is_short = is_short and self.requested_rho > self.remaining_rho
        if is_short or not self.short_by_delta:
            missing.append(" (or in rho: ".join(losses) + ")" * (len(losses) - 1))
            part = rounded_down(self.remaining / self.requested, 3)
            ways.append(
                f"it fits at {self.unit}={in_decimals(self.remaining, up=False)}: "
                f"query.scaled_to({self.unit}=budget.remaining.{self.unit}) takes all that is left, "
                f"{show(100 * part)} % of what was requested; where one guarantee is shared, it fits at {show(part)} "
                "times its loss_weight"
                if self.remaining > 0
                else "budget.remaining is 0, so that no query.scaled_to(…) fits"
            )
        if self.short_by_delta and self.requested_delta is not None and self.remaining_delta is not None:
            missing.append(_asked("delta", self.requested_delta, self.remaining_delta))
            ways.append("budget.remaining_delta is what keys may still spend; query.scaled_to(…) leaves their delta")
        charged = "was never charged"
        if self.first_charge is not None and self.last_charge is not None:
            first, last = (f"{when:%Y-%m-%d %H:%M} UTC" for when in (self.first_charge, self.last_charge))
            charged = f"was first charged on {first} and last on {last}; budget.log() lists the charges of all runs"
        where = "" if self.ledger is None else f" The ledger {self.ledger!r} {charged}."
        return (
            f"The release does not fit the budget: {'; '.join(missing)}. Nothing was charged.{where}\n\n"
            f"Hint: {'; '.join(ways)}. A new budget is new loss to the same people."
        )


def _short_by(requested: Fraction | None, remaining: Fraction | None) -> Fraction | None:
    return None if requested is None or remaining is None else max(requested - remaining, Fraction(0))


def _asked(name: str, requested: Fraction, remaining: Fraction) -> str:
    more, left = in_decimals(requested, up=True), in_decimals(remaining, up=False)
    return f"requested {name}={more}, remaining {left}, short by {in_decimals(requested - remaining, up=True)}"


def stored(value: Fraction) -> str:
    """Return an exact rational as the ledger stores it: "1/10"."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONGEST:
        msg = (
            f"A loss, and the exact sum of all, must have at most {_LONGEST} bits in numerator and "
            "denominator.\n\nHint: give losses with few decimals, such as 0.1."
        )
        raise ValueError(msg)
    return str(value)


def exact(value: Fraction) -> str:
    """Return an exact rational for people: a decimal if it is short, else a ratio if that is short."""
    short = str(value) if len(str(value)) <= _SHORT else f"about {show(value)}"
    return _as_decimal(value) or short


def argument(value: Fraction) -> str:
    """Return a number as an argument for a loss, a delta or a total: a float only if nothing is lost."""
    text = repr(value)
    return exact(value) if value == rounded_down(value, DIGITS) or len(text) > 2 * _SHORT else text


def in_decimals(value: Fraction, *, up: bool) -> str:
    """Return a decimal for people: the exact one if it is short, else one of six digits, rounded up or down."""
    return _as_decimal(value) or show(value if up else rounded_down(value, 6), up=up)


def _as_decimal(value: Fraction) -> str | None:
    """Return the decimal equal to a rational, if it has at most 20 places, or 20 significant digits."""
    if 10**_SHORT % value.denominator == 0:
        whole, places = divmod(abs(value.numerator) * (10**_SHORT // value.denominator), 10**_SHORT)
        return "-" * (value < 0) + f"{whole}.{places:0{_SHORT}}".rstrip("0").rstrip(".")
    short = decimal_of(value, _SHORT)
    return f"{short:g}" if Fraction(short) == value else None


class LargeLossWarning(UserWarning):
    """A release was requested with a loss above 20 or a delta above 0.001, or a budget was made with such a total.

    For a private frame the losses of all outputs are added up. The warning is of the caller's line: unless Python's
    filters are set otherwise, they show it once for each line. Nothing of `dp_polars.analysis` warns, nor `explain`.

    An answer may then be e²⁰, some five hundred million times, as likely with a person's rows as without them. With
    probability delta nothing is guaranteed.

    Examples
    --------
    If you mean it, as in tests on synthetic rows:

    >>> import warnings
    >>> import dp_polars as dpp
    >>> warnings.filterwarnings("ignore", category=dpp.LargeLossWarning)
    """


def warn_if_large(loss: Loss, delta: Fraction | None = None) -> None:
    """Warn, at the caller's line, of a loss or a delta that protects nobody."""
    if loss.value > LARGEST:
        msg = (
            f"{loss} protects nobody: what is released may be more than e**{LARGEST} times as likely with a person's "
            "rows as without them.\n\n"
            "Hint: losses of about 1 are usual. Where rows are synthetic, as in tests, ignore "
            "dp_polars.LargeLossWarning."
        )
        warn(msg, LargeLossWarning)
    if delta is not None and delta > LARGEST_DELTA:
        msg = (
            f"delta={show(delta)} protects nobody: with that probability, all of a person's rows may be released.\n\n"
            "Hint: delta must be far below 1 divided by the number of people, for example 1e-6. Where rows are "
            "synthetic, as in tests, ignore dp_polars.LargeLossWarning."
        )
        warn(msg, LargeLossWarning)
