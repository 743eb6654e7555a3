"""The privacy budget: what one person may lose to all releases together, paid before each of them."""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dp_polars._accounting import kept, ledger
from dp_polars._accounting.amounts import BudgetExceededError, exact, stored, total_of
from dp_polars._accounting.arguments import absolute, notice_again, take_name, total_delta
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.conversions import EpsilonAt, epsilon_at
from dp_polars._accounting.large import warn_if_large
from dp_polars._accounting.listings import frame_of_answers, frame_of_charges
from dp_polars._accounting.locks import name_of
from dp_polars._accounting.terms import Loss, check_delta
from dp_polars._accounting.uninterrupted import uninterrupted
from dp_polars._base.calls import called
from dp_polars._base.numbers import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import polars as pl

    from dp_polars._accounting.kept import Question, StoredAnswer
    from dp_polars._accounting.terms import NeighboringRelation, Unit
    from dp_polars._base.numbers import Number

T = TypeVar("T")


class Budget:
    """The most that one person may lose to all releases together, and the ledger of what was lost so far.

    Losses are exact rationals and add up, also where a later question depends on an earlier answer. A charge is on disk
    before its mechanism runs. So a crash can lose budget, but it never leaves a release unpaid. The first charge fixes
    the privacy unit and the neighbouring relation of all later ones.

    Parameters
    ----------
    epsilon, rho
        The total, in pure DP or in zero-concentrated DP: exactly one of them, a number above 0 (int, float,
        Fraction or Decimal; a float is the decimal that it prints as).
    delta
        The total δ, above 0 and below 1, for releases that spend one: keys that nobody listed. All others
        cost no δ. None: no release may spend any.
    path
        The file of the ledger (string or path-like; `~` is the home folder), on a local file system. It is made where
        there is none; otherwise it must have the same total, unit, delta and name. Any number of processes may use it
        at once. A file `<path>-lock` stays next to it. A ledger with two names (hard links, a mount of the file alone)
        is refused. Without a path the ledger lives in this process only, and copies of it are refused.
    name
        A name for people. Left out, an existing ledger keeps its own. Without a path it may be given once in a process.
        With neither, a cell of a notebook that runs again makes a full budget, and a UserWarning says so.

    Attributes
    ----------
    unit
        "epsilon" or "rho".
    total
        An exact `Fraction`, in `unit`.
    delta
        The total δ, an exact `Fraction`, or None.
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

    Proof: :doc:`/proofs/composition`.

    References
    ----------
    Sums bound the loss of questions that are chosen as one goes along: Rogers, Roth, Ullman & Vadhan 2016
    (arXiv 1605.08294) for epsilon and (epsilon, delta), Feldman & Zrnic 2021 (arXiv 2008.11193) for rho, Whitehouse,
    Ramdas, Rogers & Wu 2023 (arXiv 2203.05481, Theorem 1) for rho and delta, which is approximate zCDP. That paper also
    has filters for adaptively chosen (epsilon, delta) that match advanced composition; this package has none of them: a
    budget in rho gives most of that gain. Privacy loss distributions compose to less, but must know all losses
    beforehand.

    Examples
    --------
    >>> Budget(epsilon=1)
    Budget(epsilon=1, spent=0, remaining=1)
    >>> Budget(rho=0.5, delta=1e-6)
    Budget(rho=0.5, delta=0.000001, spent=0 (delta 0), remaining=0.5 (delta 0.000001))
    """

    unit: Unit
    total: Fraction
    delta: Fraction | None = None
    path: Path | None
    name: str | None
    _seen_delta = Fraction(0)

    @called
    def __init__(
        self,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        delta: Number | None = None,
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
        self.delta = None if delta is None else total_delta(delta)
        self.path = None if path is None else absolute(path)
        self._seen = self._seen_delta = Fraction(0)  # what was spent when the ledger was last read
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        head = ledger.Head(
            self.unit, stored(self.total), name, delta=None if self.delta is None else stored(self.delta)
        )
        warn_if_large(loss)
        uninterrupted(partial(self._make, head))
        self._check()
        if self.name is None and self.path is None:
            notice_again()

    @property
    def spent(self) -> Fraction:
        """What all charges so far cost together, as an exact `Fraction` in `unit`."""
        return self._in_ledger(lambda _, head: Fraction(head.spent))

    @property
    def remaining(self) -> Fraction:
        """What is left of the total, as an exact `Fraction` in `unit`."""
        return self.total - self.spent

    @property
    def spent_delta(self) -> Fraction:
        """What all charges so far spent of delta: an exact `Fraction`, 0 where the budget has none."""
        return self._in_ledger(lambda _, head: Fraction(head.spent_delta))

    @property
    def remaining_delta(self) -> Fraction:
        """What is left of delta: an exact `Fraction`, 0 where the budget has none."""
        return (self.delta or Fraction(0)) - self.spent_delta

    def epsilon_at(self, delta: Number) -> EpsilonAt:
        """Return what the budget means in (epsilon, delta)-DP, by the tightest proof for its sums.

        Parameters
        ----------
        delta
            0 or more, below 1: the δ of the whole statement. What the budget spends of δ counts towards it.

        Returns
        -------
        EpsilonAt
            `spent` and `total`, floats rounded up: an ε for what was charged so far, and one for the whole budget. For
            a budget in rho they come from the best order (Canonne, Kamath & Steinke 2020, arXiv 2004.00010,
            Corollary 13), and are infinite at δ = 0. For a budget in epsilon they are its ε at δ = 0, and at other δ
            that of randomized response, a little less. They are infinite where δ is below what the budget spends of it.

        Raises
        ------
        TypeError, ValueError
            If `delta` is not as described.

        Notes
        -----
        `total` holds however the questions were chosen. `spent` describes the charges so far as if they had been fixed
        beforehand. Where they were, `dp_polars.analysis.compose` of their claims may prove less.

        Examples
        --------
        >>> budget = Budget(rho=0.5)
        >>> round(budget.epsilon_at(1e-6).total, 2)
        5.22
        """
        at = check_delta(delta)
        spent = self._in_ledger(lambda _, head: (Fraction(head.spent), Fraction(head.spent_delta)))
        total = self.total, self.delta or Fraction(0)
        return EpsilonAt(*(epsilon_at(self.unit, loss, at, gone) for loss, gone in (spent, total)))

    def log(self) -> pl.DataFrame:
        """Return what was charged, one row per output, in the order of charging.

        Returns
        -------
        DataFrame
            Columns `when` (Datetime in UTC: the computer's clock at the charge, which may have been set back
            in between), `what` (String), `loss` and `running_total` (Float64), `exact_loss` and `exact_delta` (String,
            such as "1/10"), `unit` and `mechanism` (String), `delta` and `running_delta` (Float64, 0 for all but
            keys). It holds nothing of the private rows.
        """
        charges = self._in_ledger(lambda connection, head: list(ledger.read_charges(connection, head)))
        return frame_of_charges(charges, self.unit)

    def answers(self) -> pl.DataFrame:
        """Return which answers are kept, in the order in which they were drawn: see `dp_polars.protect`, `dataset`.

        Returns
        -------
        DataFrame
            Columns `when` (Datetime in UTC), `dataset`, `question` (the outputs in words), `loss` (of one release),
            `bytes` (Int64, the size of the answer), `source` (where the rows lay: the kind of source, and for files a
            digest of their paths, inode numbers and times of change) and `text`: all that decides the law of the
            answer, with digests of what is long. It holds nothing of the private rows.
        """
        return frame_of_answers(self._in_ledger(lambda connection, _: list(kept.read(connection))))

    def charged(self) -> tuple[ledger.Head, list[ledger.Charge]]:
        """Return all that the ledger holds of charges, read whole at one moment; a ValueError if it is damaged."""

        def read(connection: sqlite3.Connection, head: ledger.Head) -> tuple[ledger.Head, list[ledger.Charge]]:
            ledger.check(connection, head)
            return head, list(ledger.read_charges(connection, head))

        return self._in_ledger(read)

    def kept(self, question: Question) -> tuple[StoredAnswer, bytes] | None:
        """Return the newest answer that is kept to a question, as bytes, if there is one."""
        return self._in_ledger(lambda connection, _: kept.find(connection, question.text))

    def keep(self, question: Question, answer: bytes) -> None:
        """Keep an answer, once it is paid and drawn; durable when this returns."""
        now = time.time_ns() // 1000
        self._in_ledger(lambda connection, _: kept.write(connection, now, question, answer))

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
            If an entry is no claim with a loss above 0, if it spends a delta and the budget has none, if unit or
            relation are not those of the first charge, or if the ledger is damaged or has another name.
        OSError
            If the ledger can't be locked (TimeoutError, where it stays busy), read or written.

        Notes
        -----
        Nothing is charged where an error is raised, with two exceptions, in which budget may be lost: an OSError that
        says "the charge may be in" the ledger, because the disk failed at the end, and an interruption (such as
        KeyboardInterrupt), which may come when all is written. Wherever it comes, the budget can be used at once.
        """
        for what, claim in entries:
            self._check_entry(what, claim, neighboring_relation)
        uninterrupted(partial(self._pay, entries, privacy_unit, neighboring_relation))

    def _pay(
        self,
        entries: Sequence[tuple[str, Claim]],
        privacy_unit: str | None,
        neighboring_relation: NeighboringRelation,
    ) -> None:
        costs = [(claim.cost(self.unit), claim.delta) for _, claim in entries]
        requested, requested_delta = (sum((cost[i] for cost in costs), Fraction(0)) for i in (0, 1))
        for number in (requested, requested_delta):
            stored(number)  # a number too long to keep is too long for the messages below
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
            spent, spent_delta = Fraction(head.spent), Fraction(head.spent_delta)
            remaining, remaining_delta = self.total - spent, (self.delta or Fraction(0)) - spent_delta
            if requested > remaining or requested_delta > remaining_delta:
                deltas = (None, None) if self.delta is None else (requested_delta, remaining_delta)
                path = ends = None
                if self.path is not None:
                    path, times = str(self.path), [one.microseconds for one in ledger.read_charges(connection, head)]
                    ends = (_moment(times[0]), _moment(times[-1])) if times else None
                raise BudgetExceededError(requested, remaining, self.unit, deltas[0], deltas[1], path, ends)
            charges = []
            for (what, claim), (cost, delta) in zip(entries, costs, strict=True):
                spent, spent_delta = spent + cost, spent_delta + delta
                numbers = map(stored, (cost, spent, delta, spent_delta))
                charges.append(ledger.Charge(now, what, claim.mechanism, *numbers))
            head = head._replace(privacy_unit=privacy_unit, neighboring_relation=neighboring_relation)
            ledger.write_charges(connection, head, charges)
        self._seen, self._seen_delta = max(self._seen, spent), max(self._seen_delta, spent_delta)

    def _check_entry(self, what: object, claim: object, relation: NeighboringRelation) -> None:
        """Raise unless the claim can be charged here."""
        if not (isinstance(what, str) and isinstance(claim, Claim)):
            msg = f"entries must be pairs of a string and a Claim, got {(what, claim)!r}."
            raise TypeError(msg)
        if claim.neighboring_relation not in (None, relation):
            msg = (
                f"The claim of {what!r} must be for neighboring_relation={relation!r}, "
                f"got {claim.neighboring_relation!r}."
            )
            raise ValueError(msg)
        if claim.delta and self.delta is None:
            msg = (
                f"{self._where()} must have a delta for {what!r}, which spends delta={exact(claim.delta)}. "
                f"Nothing was charged.\n\nHint: Budget({self.unit}=…, delta=…)."
            )
            raise ValueError(msg)

    def __repr__(self) -> str:
        spent, gone = self._in_ledger(lambda _, head: (Fraction(head.spent), Fraction(head.spent_delta)))
        total, used, left = f"{self.unit}={exact(self.total)}", exact(spent), exact(self.total - spent)
        if self.delta is not None:
            total += f", delta={exact(self.delta)}"
            used, left = f"{used} (delta {exact(gone)})", f"{left} (delta {exact(self.delta - gone)})"
        text = f"{total}, spent={used}, remaining={left}"
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
        self._in_ledger(ledger.check)

    def _make(self, head: ledger.Head) -> None:
        """Make the ledger where there is none."""
        if self.path is None:
            take_name(self.name)
            self._memory = ledger.in_memory(head)
            weakref.finalize(self, self._memory.close)
        elif not os.path.lexists(self.path):
            ledger.create(self.path, head)

    def _in_ledger(self, use: Callable[[sqlite3.Connection, ledger.Head], T]) -> T:
        """Return what `use` makes of the open ledger and its head; what it writes is committed."""

        def transact() -> T:
            with self._transaction() as (connection, head):
                return use(connection, head)

        return uninterrupted(transact)

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, ledger.Head]]:
        """Open the ledger, yield it with its head, and commit; on any error roll back. Only in `uninterrupted`."""
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
        total, delta = Fraction(head.total), None if head.delta is None else Fraction(head.delta)
        spent, spent_delta = Fraction(head.spent), Fraction(head.spent_delta)
        if (head.unit, total, delta) != (self.unit, self.total, self.delta):
            msg = (
                f"{self._where()} must be opened with its own total, {total_of(head.unit, total, delta)}, "
                f"got {total_of(self.unit, self.total, self.delta)}.\n\n"
                "Hint: a ledger's total can't be changed. What was spent stays lost in addition to a new budget."
            )
            raise ValueError(msg)
        if self.name not in (None, head.name):
            msg = f"{self._where()} must be opened with its own name, {head.name!r}, got {self.name!r}."
            raise ValueError(msg)
        for now, before in ((spent, self._seen), (spent_delta, self._seen_delta)):
            if now < before:
                msg = f"it has {exact(now)} spent, and had {exact(before)} before"
                raise sqlite3.DatabaseError(msg)
        self.name, self._seen, self._seen_delta = head.name, spent, spent_delta
        return head


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 10**6, UTC)
