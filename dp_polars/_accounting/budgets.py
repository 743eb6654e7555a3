"""The privacy budget: what one person may lose to all releases together, paid before each of them."""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._accounting import ledger
from dp_polars._accounting.claims import Claim, Loss
from dp_polars._accounting.locks import name_of
from dp_polars._numeric.numbers import show
from dp_polars._numeric.paths import expanded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from dp_polars._accounting.claims import NeighboringRelation, Unit
    from dp_polars._numeric.numbers import Number

# Bits of a numerator or denominator: the differences of such sums still print (Python stops at 4,300 digits).
_LONGEST = 4_000
# Characters of a ratio that people still read.
_SHORT = 20


class BudgetExceededError(ValueError):
    """A release costs more than its budget has left: nothing was charged, and no row was read.

    Attributes
    ----------
    requested, remaining, short_by
        Exact `Fraction`s, in `unit`.
    unit
        "epsilon" or "rho".
    """

    def __init__(self, requested: Fraction, remaining: Fraction, unit: Unit) -> None:
        super().__init__(requested, remaining, unit)
        self.requested = requested
        self.remaining = remaining
        self.short_by: Fraction = requested - remaining
        self.unit = unit

    def __str__(self) -> str:
        return (
            f"The release does not fit the budget: requested {self.unit}={_exact(self.requested)}, "
            f"remaining {_exact(self.remaining)}, short by {_exact(self.short_by)}. Nothing was charged.\n\n"
            "Hint: ask for smaller losses or fewer outputs. A new budget is new loss to the same people."
        )


class Budget:
    """The most that one person may lose to all releases together, and the ledger of what was lost so far.

    Losses are exact rationals and add up, also where a later question depends on an earlier answer. A charge is on disk
    before its mechanism runs. So a crash can lose budget, but it never leaves a release unpaid. The first charge fixes
    the privacy unit and the neighbouring relation of all later ones.

    Parameters
    ----------
    epsilon, rho
        The total, in pure DP or in zero-concentrated DP: exactly one of them, a number above 0 (int, float, Fraction or
        Decimal; a float is taken as the decimal that it prints as).
    path
        The file of the ledger (string or path-like; `~` is the home folder), on a local file system. If there is none,
        it is created; otherwise it must have the same total, unit and name. Any number of processes may use it at once.
        A file `<path>-lock` is kept beside it. A ledger with two names (hard links, a mount of the file alone) is
        refused. Without a path the ledger lives in this process only, and copies of it are refused.
    name
        A name for people. Left out, an existing ledger keeps its own.

    Attributes
    ----------
    unit
        "epsilon" or "rho".
    total
        An exact `Fraction`, in `unit`.
    path
        The absolute `Path` of the ledger, or None.
    name
        The name, or None.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or if the file is no ledger, is damaged or belongs to another budget. The
        file is then left as it is.
    OSError
        If the ledger can't be created, read or written: no such folder, no permission, a full disk.

    Notes
    -----
    The digests in the ledger find accidents, not forgers. An older copy put back in its place is found only
    by a process that has seen the newer one.

    References
    ----------
    Sums bound the loss also where questions are chosen after earlier answers: Rogers, Roth, Ullman & Vadhan 2016 (arXiv
    1605.08294) for epsilon, Feldman & Zrnic 2021 (arXiv 2008.11193) for rho.

    Examples
    --------
    >>> Budget(epsilon=1)
    Budget(epsilon=1, spent=0, remaining=1)
    """

    unit: Unit
    total: Fraction
    path: Path | None
    name: str | None

    def __init__(
        self,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        path: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> None:
        loss = Loss.of(epsilon=epsilon, rho=rho)
        if not loss.value < 2**1000:
            msg = f"{loss.unit} must be less than 2**1000, got {show(loss.value)}."
            raise ValueError(msg)
        if not isinstance(name, str | None):
            msg = f"name must be a string or None, got {name!r}."
            raise TypeError(msg)
        self.unit, self.total, self.name = loss.unit, loss.value, name
        self.path = None if path is None else _absolute(path)
        self._seen = Fraction(0)  # what was spent when the ledger was last read
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        head = ledger.Head(self.unit, _stored(self.total), name)
        if self.path is None:
            self._memory = ledger.in_memory(head)
            weakref.finalize(self, self._memory.close)
        elif not os.path.lexists(self.path):
            ledger.create(self.path, head)
        self._check()

    @property
    def spent(self) -> Fraction:
        """What all charges so far cost together, as an exact `Fraction` in `unit`."""
        with self._transaction() as (_, head):
            return Fraction(head.spent)

    @property
    def remaining(self) -> Fraction:
        """What is left of the total, as an exact `Fraction` in `unit`."""
        return self.total - self.spent

    def log(self) -> pl.DataFrame:
        """Return what was charged, one row per output, in the order of charging.

        Returns
        -------
        DataFrame
            Columns `when` (Datetime in UTC: the computer's clock at the charge, which may have been set back in
            between), `what` and `mechanism` (String), `unit` (String), `loss` and `running_total` (Float64),
            `exact_loss` (String, such as "1/10"). Nothing in it comes from the private rows.
        """
        with self._transaction() as (connection, head):
            charges = list(ledger.read_charges(connection, head))
        rows = [
            (when, what, mechanism, self.unit, float(Fraction(loss)), float(Fraction(total)), loss)
            for when, what, mechanism, loss, total in charges
        ]
        schema = {
            "when": pl.Int64,
            "what": pl.String,
            "mechanism": pl.String,
            "unit": pl.String,
            "loss": pl.Float64,
            "running_total": pl.Float64,
            "exact_loss": pl.String,
        }
        when = pl.col("when").cast(pl.Datetime("us", "UTC"))
        return pl.DataFrame(rows, schema, orient="row").with_columns(when)

    def charge(
        self,
        entries: Sequence[tuple[str, Claim]],
        *,
        privacy_unit: str | None,
        neighboring_relation: NeighboringRelation,
    ) -> None:
        """Pay for all `entries` (what is released, its claim) or for none; durable when this returns.

        Raises
        ------
        BudgetExceededError
            If too little is left.
        TypeError, ValueError
            If an entry is no claim with a loss above 0, if unit or relation are not those of the first charge, or if
            the ledger is damaged or has another name.
        OSError
            If the ledger can't be locked (TimeoutError, where it stays busy), read or written.

        Notes
        -----
        Nothing is charged where an error is raised, with two exceptions, in which budget may be lost: an OSError that
        says "the charge may be in" the ledger, for the disk failed at the end, and an interruption (such as
        KeyboardInterrupt), which may come when all is written.
        """
        for what, claim in entries:
            if not (isinstance(what, str) and isinstance(claim, Claim)):
                msg = f"entries must be pairs of a string and a Claim, got {(what, claim)!r}."
                raise TypeError(msg)
            if claim.neighboring_relation not in (None, neighboring_relation):
                msg = (
                    f"The claim of {what!r} must be for neighboring_relation={neighboring_relation!r}, "
                    f"got {claim.neighboring_relation!r}."
                )
                raise ValueError(msg)
        costs = [claim.cost(self.unit) for _, claim in entries]
        requested = sum(costs, Fraction(0))
        _stored(requested)  # a number too long to keep is too long for the messages below
        now = time.time_ns() // 1000
        with self._transaction() as (connection, head):
            first = (head.privacy_unit, head.neighboring_relation)
            if head.charges and first != (privacy_unit, neighboring_relation):
                msg = (
                    f"{self._where()} must be charged for privacy_unit={first[0]!r} and "
                    f"neighboring_relation={first[1]!r}, as at first, "
                    f"got {privacy_unit!r} and {neighboring_relation!r}.\n\n"
                    "Hint: losses of different units or relations do not add up. Keep a budget for each."
                )
                raise ValueError(msg)
            spent = Fraction(head.spent)
            if requested > self.total - spent:
                raise BudgetExceededError(requested, self.total - spent, self.unit)
            charges = []
            for (what, claim), cost in zip(entries, costs, strict=True):
                spent += cost
                charges.append(ledger.Charge(now, what, claim.mechanism, _stored(cost), _stored(spent)))
            head = head._replace(privacy_unit=privacy_unit, neighboring_relation=neighboring_relation)
            ledger.write_charges(connection, head, charges)
        self._seen = max(self._seen, spent)

    def __repr__(self) -> str:
        spent = self.spent
        text = f"{self.unit}={_exact(self.total)}, spent={_exact(spent)}, remaining={_exact(self.total - spent)}"
        if self.path is not None:
            text += f", path={str(self.path)!r}"
        if self.name is not None:
            text += f", name={self.name!r}"
        return f"Budget({text})"

    def __getstate__(self) -> dict[str, Any]:
        if self.path is None:
            msg = (
                "A Budget without a path must not be copied or pickled: two copies could spend it twice.\n\n"
                "Hint: give it a path, which copies and processes share."
            )
            raise TypeError(msg)
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._check()  # the ledger must be there: a new one would have nothing spent

    def _where(self) -> str:
        return "The budget" if self.path is None else name_of(self.path)

    def _check(self) -> None:
        with self._transaction() as (connection, head):
            ledger.check(connection, head)

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, ledger.Head]]:
        """Open the ledger, yield it with its head, and commit; on any error roll back."""
        with ledger.clear_errors(self._where()), self._opened() as connection:
            yield connection, self._head(connection)

    def _opened(self) -> AbstractContextManager[sqlite3.Connection]:
        if self.path is not None:
            return ledger.transaction(self.path)  # opened anew each time: forks and threads share no open file
        if self._memory is None or self._process != os.getpid():
            msg = (
                "A Budget without a path must be used by the process that made it: a forked copy could "
                "spend it once more.\n\nHint: give it a path, which processes share."
            )
            raise RuntimeError(msg)
        return ledger.transaction_in_memory(self._memory)

    def _head(self, connection: sqlite3.Connection) -> ledger.Head:
        """Read the head of the ledger; raise unless it is this budget's, and no older than it was."""
        head = ledger.read_head(connection)
        total, spent = Fraction(head.total), Fraction(head.spent)
        if (head.unit, total) != (self.unit, self.total):
            msg = (
                f"{self._where()} must be opened with its own total, {head.unit}={_exact(total)}, "
                f"got {self.unit}={_exact(self.total)}.\n\n"
                "Hint: a ledger's total can't be changed. What was spent stays lost beside a new budget."
            )
            raise ValueError(msg)
        if self.name not in (None, head.name):
            msg = f"{self._where()} must be opened with its own name, {head.name!r}, got {self.name!r}."
            raise ValueError(msg)
        if spent < self._seen:
            msg = f"it has {_exact(spent)} spent, and had {_exact(self._seen)} before"
            raise sqlite3.DatabaseError(msg)
        self.name, self._seen = head.name, spent
        return head


def _absolute(path: str | os.PathLike[str]) -> Path:
    given = os.fspath(path)
    if not isinstance(given, str):
        msg = f"path must be a string or a path-like object of strings, got {path!r}."
        raise TypeError(msg)
    target = expanded(given)
    folder = target.parent
    if not folder.is_dir():
        msg = f"path must be in an existing folder, got {given!r}.\n\nHint: create the folder first."
        raise FileNotFoundError(msg)
    return folder.resolve() / target.name


def _stored(value: Fraction) -> str:
    """Return an exact rational as the ledger keeps it: "1/10"."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONGEST:
        msg = (
            f"A loss, and the exact sum of all, must have at most {_LONGEST} bits in numerator and "
            "denominator.\n\nHint: ask for losses with few decimals, such as 0.1."
        )
        raise ValueError(msg)
    return str(value)


def _exact(value: Fraction) -> str:
    """Return an exact rational for people: a decimal of up to 20 places if it is one, else a ratio if that is short."""
    if 10**20 % value.denominator:
        return str(value) if len(str(value)) <= _SHORT else f"about {show(value)}"
    whole, places = divmod(value.numerator * (10**20 // value.denominator), 10**20)
    return f"{whole}.{places:020}".rstrip("0").rstrip(".")
