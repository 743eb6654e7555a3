"""The budget: its arguments, its charges, and what remains."""

from __future__ import annotations

import linecache
import os
import sqlite3
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import polars as pl

from dp_polars._accounting import ledger
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.costs import EpsilonAt
from dp_polars._accounting.guarantees import FREE, Cost, Guarantee, State, Sums, sum_of
from dp_polars._accounting.ledger import RowsOf, StoredAnswer, StoredDraw, StoredQuery, lock, name_of, uninterrupted
from dp_polars._accounting.terms import (
    Loss,
    NeighboringRelation,
    Remaining,
    Unit,
    check_delta,
    exact,
    stored,
    warn_if_large,
)
from dp_polars._base.calls import called, caller, warn
from dp_polars._base.files import expanded
from dp_polars._base.numbers import Number, given, show

# Names of budgets in memory, for the lifetime of the process: the budgets themselves may be gone.
_taken: set[str] = set()
# Code that made budgets without name and path, by the text of its cell and its function.
_runs: dict[tuple[str, str], list[CodeType]] = {}
# The largest spending of each ledger that this process has seen, by its path and its total.
_newest: dict[tuple[Path, tuple[object, ...]], Cost] = {}


def take_name(name: str | None) -> None:
    """Name a budget in memory; refuse a name that another one had before."""
    with lock:
        if name in _taken:
            msg = (
                f"a Budget without a path must have a name that none had before in this process, got {name!r} again: "
                "what the other has spent would be forgotten, as where a cell of a notebook runs again.\n\n"
                "Hint: give it a path, which keeps what was spent."
            )
            raise ValueError(msg)
        if name is not None:
            _taken.add(name)


def notice_again() -> None:
    """Warn if a notebook cell makes a budget in memory again: each one starts full.

    A cell is code without a file, but with text that Python knows. It has run again if the same text is compiled anew.
    So a loop, or a function that is called again, may make several budgets.
    """
    code = caller()[0].f_code
    text = "".join(linecache.getlines(code.co_filename))
    if not text or os.path.exists(code.co_filename):  # noqa: PTH110  # False for anything that is no path
        return
    with lock:
        runs = _runs.setdefault((text, code.co_qualname), [])
        is_new = all(run is not code for run in runs)
        runs += [code] * is_new
    if is_new and len(runs) > 1:
        msg = (
            f"this cell has made {len(runs)} budgets that have neither a name nor a path: each starts full, and what "
            "the others have spent is forgotten.\n\n"
            "Hint: give it a path, which keeps what was spent. With a name alone, the second one is an error."
        )
        warn(msg, UserWarning)


def total_delta(delta: object) -> Fraction:
    checked = check_delta(delta)
    if not checked > 0:
        msg = (
            f"delta must be greater than 0 and below 1, got {delta!r}.\n\n"
            "Hint: leave it out of a guarantee in epsilon alone, and of a budget in rho whose releases spend none."
        )
        raise ValueError(msg)
    return checked


def keys_delta_of(keys_delta: object, delta: Fraction | None, unit: Unit) -> Fraction | None:
    """Return the part of a guarantee's delta for keys. None: it is not given, or there is no such guarantee."""
    if keys_delta is None:
        return None
    if delta is not None and unit == "epsilon":
        checked = check_delta(keys_delta, "keys_delta")
        if checked > delta:
            msg = f"keys_delta must be at most delta={exact(delta)}, of which it is a part, got {keys_delta!r}."
            raise ValueError(msg)
        return checked
    msg = (
        f"keys_delta must be left out of a budget in {unit}{'' if delta is None else ' with a delta'}, got "
        f"{given(keys_delta)}: it is the part of a guarantee of epsilon and delta that keys may spend.\n\n"
        "Hint: Budget(epsilon=…, delta=…, keys_delta=…)."
    )
    raise TypeError(msg)


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a ledger; its folder must exist."""
    given = os.fspath(path)
    if not isinstance(given, str):
        msg = f"path must be a string or a path-like object of strings, got {path!r}."
        raise TypeError(msg)
    target = expanded(given)
    if not target.parent.is_dir():
        msg = f"path must be in an existing folder, got {given!r}.\n\nHint: create the folder first."
        raise FileNotFoundError(msg)
    return target.parent.resolve() / target.name


_WHEN = pl.col("when").cast(pl.Datetime("us", "UTC"))

T = TypeVar("T")


class Budget:
    """The most that one person may lose by all releases together, and the ledger of all charges.

    Losses are exact rationals and add up, also if a later statistic depends on an earlier answer. A charge is on disk
    before its mechanism runs. So a crash can lose budget, but it never leaves a release unpaid. The first charge fixes
    the privacy unit and the neighbouring relation of all later ones.

    Parameters
    ----------
    epsilon, rho
        The total: exactly one of them, a number above 0 (int, float, Fraction or Decimal). A float is the decimal that
        it prints as, rounded down to 12 digits, as for all losses and deltas. Epsilon without a delta is pure DP, and
        refuses a release without an epsilon. Epsilon with a delta is a guarantee, and accepts releases in either unit.
        Rho is zero-concentrated DP.
    delta
        Above 0 and below 1. With epsilon, it is the δ of the guarantee, and pays for selected keys and for releases in
        rho. With rho, it is for keys only. None: no release may spend any.
    keys_delta
        With epsilon and delta: the part of δ for keys, from 0 to `delta`. None: the first charge fixes it, at 0 if it
        takes the whole budget and selects no keys, and else at a half. With all of δ, only releases with an epsilon
        fit.
    path
        The file of the ledger (string or path-like; `~` is the home folder), on a local file system. A missing file is
        created. An existing one must have the same total, unit, deltas and name. Any number of processes may use it at
        once. A file `<path>-lock` stays next to it. A ledger with two names (hard links, a mount of the file alone) is
        refused. Without a path the ledger lives in this process only, and copies of it are refused.
    name
        A name for people. If left out, an existing ledger keeps its own. Without a path you may give a name once in a
        process. Without both, a notebook cell that runs again makes a full budget, with a UserWarning.

    Attributes
    ----------
    unit
        "epsilon" or "rho", in which the total was given.
    total
        An exact `Fraction`, in `unit`.
    delta
        The total δ, an exact `Fraction`, or None.
    keys_delta
        The part of δ for keys: an exact `Fraction`, or None if the budget has no δ.
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
    The digests in the ledger find accidents, not forgers. A process that has seen the newer ledger refuses an older
    copy in its place. Other processes can't know, and accept it.

    A guarantee of (epsilon, delta) has two sums: of epsilons, and of Rényi divergences of one order, fixed in advance.
    A pure release adds at most its epsilon to the second. A release is allowed while one of the sums fits, and the
    deltas of keys fit their part. You may choose each after earlier answers. A first release with only discrete
    Gaussian noise may take more rho: it is a fixed list, with a proof of its own, and closes the budget.

    Proof: :doc:`/proofs/guarantees`; of sums in one unit :doc:`/proofs/composition`.

    References
    ----------
    Sums bound the loss of statistics that are chosen one after the other. For epsilon: Rogers, Roth, Ullman & Vadhan
    2016 (arXiv 1605.08294). For rho and for divergences of one order: Feldman & Zrnic 2021 (arXiv 2008.11193). For rho
    and delta, which is approximate zCDP: Whitehouse, Ramdas, Rogers & Wu 2023 (arXiv 2203.05481, Theorem 1). Privacy
    loss distributions compose to less, but must know all losses beforehand.

    Examples
    --------
    >>> Budget(epsilon=1)
    Budget(epsilon=1, spent=0, remaining=1)
    >>> Budget(rho=0.5, delta=1e-6)
    Budget(rho=0.5, delta=0.000001, spent=0 (delta 0), remaining=0.5 (delta 0.000001))
    >>> guarantee = Budget(epsilon=3, delta=1e-6)
    >>> guarantee.remaining.epsilon
    Fraction(3, 1)
    >>> round(float(guarantee.remaining.rho), 4)
    0.1757
    """

    unit: Unit
    total: Fraction
    delta: Fraction | None = None
    _path: Path | None
    _name: str | None

    @called
    def __init__(
        self,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        delta: Number | None = None,
        keys_delta: Number | None = None,
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
        self.unit, self.total, self._name = loss.unit, loss.value, name
        self.delta = None if delta is None else total_delta(delta)
        for_keys = keys_delta_of(keys_delta, self.delta, self.unit)
        self._path = None if path is None else absolute(path)
        self._account: Sums | Guarantee = Sums(self.unit, self.total, self.delta)
        if self.delta is not None and self.unit == "epsilon":
            self._account = Guarantee.of(self.total, self.delta, for_keys)
        self._at_first = self._account  # before a release fixes the part for keys
        self._seen = FREE  # spending when the ledger was last read
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        head = _head_of(self._account, name)
        warn_if_large(loss, self.delta)
        uninterrupted(partial(self._make, head))
        self._in_ledger(ledger.check)
        if self._name is None and self._path is None:
            notice_again()

    @property
    def spent(self) -> Fraction:
        """The sum of all charges so far, as an exact `Fraction` in `unit`."""
        return self.total - self.remaining

    @property
    def remaining(self) -> Remaining:
        """The rest of the total, as an exact `Fraction` in `unit`.

        Its attributes `epsilon` and `rho` are the largest losses that still fit. A guarantee of (epsilon, delta) has
        both, and a release without an epsilon leaves less of both.
        """
        return self._state.remaining

    @property
    def spent_delta(self) -> Fraction:
        """The delta of all charges so far: an exact `Fraction`, 0 if the budget has none."""
        return self._in_ledger(lambda _, head: _spent(head)).delta

    @property
    def remaining_delta(self) -> Fraction:
        """The rest of `keys_delta`: an exact `Fraction`, 0 if the budget has no delta."""
        return self._state.left.delta

    @property
    def _keys_delta(self) -> Fraction | None:
        """The part of δ for keys."""
        return self._account.keys_delta if isinstance(self._account, Guarantee) else self.delta

    @property
    def _guarantee(self) -> Guarantee | None:
        """The guarantee of (epsilon, delta), with the largest rho that fits into all of it. None: another budget."""
        return self._account if isinstance(self._account, Guarantee) else None

    @property
    def _total_text(self) -> str:
        """The arguments of a budget with this total."""
        return str(self._account)

    @property
    def _state(self) -> State:
        """The guarantee, and what is spent of it now."""
        return self._in_ledger(lambda _, head: State(self._account, _spent(head), head.charges == 0))

    def _cached(self, datasets: Collection[str]) -> list[tuple[State, list[StoredQuery]]]:
        """Return the queries about data sets whose answers are cached, with the state in which they were paid.

        The newest are first. Other processes that charged at the same time may hide a state.
        """

        def read(connection: sqlite3.Connection, head: ledger.Head) -> list[tuple[State, list[StoredQuery]]]:
            answers = [answer for answer in ledger.read(connection) if answer.query.dataset in datasets]
            states, last = dict[int, State](), State(self._at_first, FREE, is_fresh=True)
            for one in ledger.read_charges(connection, head) if answers else ():
                states.setdefault(one.microseconds, last)
                last = State(self._account, _spent_until(one), is_fresh=False)
            moments, of = sorted(states), dict[int, list[StoredQuery]]()
            for answer in reversed(answers):
                if before := bisect_right(moments, answer.microseconds):
                    of.setdefault(moments[before - 1], []).append(answer.query)
            return [(states[moment], queries) for moment, queries in of.items()]

        return self._in_ledger(read)

    def _as_charged(self, claim: Claim) -> tuple[Unit, Fraction] | None:
        """Return the loss that the ledger would store for a claim. None: it accepts no such claim."""
        if not self._account.takes(claim):
            return None
        unit, loss, _ = self._account.written(claim)
        return unit, loss

    def epsilon_at(self, delta: Number) -> EpsilonAt:
        """Convert the budget to (epsilon, delta)-DP, by the tightest proof for its sums.

        Parameters
        ----------
        delta
            0 or more, below 1: the δ of the whole statement. The δ that the budget spends counts towards it.

        Returns
        -------
        EpsilonAt
            `spent` and `total`, floats rounded up: an ε for all charges so far, and one for the whole budget. In rho,
            they come from the best order (Canonne, Kamath & Steinke 2020, arXiv 2004.00010, Corollary 13), and are
            infinite at δ = 0. In epsilon, they are its ε at δ = 0, and at other δ the ε of randomized response, a
            little less. For a guarantee, `total` is its ε at its δ and above, and `spent` the least that its sums
            prove. They are infinite if the budget spends more δ than you give.

        Raises
        ------
        TypeError, ValueError
            If `delta` is not as described.

        Notes
        -----
        `total` holds however the statistics were chosen. `spent` is for charges that were fixed beforehand. For such
        charges, `dp_polars.analysis.compose` of their claims may prove less.

        Examples
        --------
        >>> budget = Budget(rho=0.5)
        >>> round(budget.epsilon_at(1e-6).total, 2)
        5.22
        """
        return self._epsilon_of(*self._charged(), check_delta(delta))

    def log(self) -> pl.DataFrame:
        """Return all charges, one row per output, in their order.

        Returns
        -------
        DataFrame
            Columns `when` (Datetime in UTC, by the computer's clock), `what` (String), `loss` and `running_total`
            (Float64), `exact_loss` and `exact_delta` (String, such as "1/10"), `running_rho` (Float64), `unchecked`
            (Boolean: see `dp_polars.protect`), `unit` and `mechanism` (String), `delta` and `running_delta` (Float64, 0
            for all but keys). It contains nothing of the private rows.

            With a guarantee of (epsilon, delta), each loss is in its own unit. `running_total` is the sum of epsilons,
            and null after a release without one. `running_rho` is the sum of divergences, divided by their order, and
            null for other budgets.
        """
        charges = self._in_ledger(lambda connection, head: list(ledger.read_charges(connection, head)))
        order = Fraction(1) if self._guarantee is None else self._guarantee.order
        rows = [
            (
                *(one.microseconds, one.what, float(Fraction(one.loss))),
                None if one.running_total is None else float(Fraction(one.running_total)),
                *(one.loss, one.delta, None if one.rho is None else float(Fraction(one.running_divergence) / order)),
                *(bool(one.unchecked), one.unit, one.mechanism),
                *(float(Fraction(one.delta)), float(Fraction(one.running_delta))),
            )
            for one in charges
        ]
        schema = {
            "when": pl.Int64,
            "what": pl.String,
            "loss": pl.Float64,
            "running_total": pl.Float64,
            "exact_loss": pl.String,
            "exact_delta": pl.String,
            "running_rho": pl.Float64,
            "unchecked": pl.Boolean,
            "unit": pl.String,
            "mechanism": pl.String,
            "delta": pl.Float64,
            "running_delta": pl.Float64,
        }
        return pl.DataFrame(rows, schema, orient="row").with_columns(_WHEN)

    def answers(self) -> pl.DataFrame:
        """Return the cached answers, in the order in which they were drawn: see `dp_polars.protect`, `dataset`.

        Returns
        -------
        DataFrame
            Columns `when` (Datetime in UTC), `dataset`, `query` (the outputs in words), `loss` (of one release),
            `bytes` (Int64, the size of the answer), `source` (the kind of source, and for files a digest of their
            paths, inode numbers and times of change) and `text`: everything that decides the law of the answer, with
            digests of long parts. It contains nothing of the private rows.
        """
        answers = self._in_ledger(lambda connection, _: list(ledger.read(connection)))
        rows = [(when, *asked[:3], size, *asked[3:]) for when, asked, size in answers]
        names = ("when", "dataset", "query", "loss", "bytes", "source", "text")
        schema = {name: pl.Int64 if name in ("when", "bytes") else pl.String for name in names}
        return pl.DataFrame(rows, schema, orient="row").with_columns(_WHEN)

    def _charged(self) -> tuple[ledger.Head, list[ledger.Charge]]:
        """Return all charges in the ledger, read at one moment; a ValueError if it is damaged."""

        def read(connection: sqlite3.Connection, head: ledger.Head) -> tuple[ledger.Head, list[ledger.Charge]]:
            ledger.check(connection, head)
            return head, list(ledger.read_charges(connection, head))

        return self._in_ledger(read)

    def _epsilon_of(self, head: ledger.Head, charges: Iterable[ledger.Charge], delta: Fraction) -> EpsilonAt:
        """Convert the ledger's state at one moment to epsilons at a delta."""
        rho = sum((Fraction(one.rho) for one in charges if one.rho is not None), Fraction(0))
        return self._account.epsilon_at(delta, _spent(head), rho)

    def _cached_answer(self, query: StoredQuery) -> tuple[StoredAnswer, bytes] | None:
        """Return the newest cached answer of a statistic as bytes, if there is one."""
        return self._in_ledger(lambda connection, _: ledger.find(connection, query.text))

    def _stored_draws(self, rows: str) -> list[tuple[int, StoredDraw]]:
        """Return the draws of some rows that are stored, each with the number of its answer, the newest first."""
        return self._in_ledger(lambda connection, _: ledger.find_draws(connection, rows))

    def _answer_numbered(self, number: int) -> tuple[StoredAnswer, bytes] | None:
        return self._in_ledger(lambda connection, _: ledger.find_answer(connection, number))

    def _cache_answers(self, answers: Iterable[tuple[StoredQuery, bytes, Sequence[StoredDraw]]]) -> None:
        """Cache answers, all or none, after they are paid and drawn; durable when this returns."""
        now, pairs = time.time_ns() // 1000, list(answers)

        def write(connection: sqlite3.Connection, _: ledger.Head) -> None:
            for query, answer, draws in pairs:
                ledger.write(connection, now, query, answer, draws)

        self._in_ledger(write)

    def _rows_of(self, about: str) -> RowsOf | None:
        return self._in_ledger(lambda connection, _: ledger.find_rows(connection, about))

    def _note_rows(self, about: str, rows: RowsOf) -> RowsOf:
        """Note the rows of a data set unless they are known; return the known ones."""
        return self._in_ledger(lambda connection, _: ledger.note_rows(connection, about, rows))

    def _charge(
        self,
        entries: Sequence[tuple[str, Claim]],
        *,
        privacy_unit: str | None,
        neighboring_relation: NeighboringRelation,
        unchecked: bool = False,
    ) -> None:
        """Pay for all `entries` (the release in words, its claim) or for none; durable when this returns.

        `unchecked`: whether the table's preprocessing was unchecked, see `dp_polars.protect`.

        Raises
        ------
        BudgetExceededError
            If too little is left.
        TypeError, ValueError
            If an entry is no claim with a loss above 0, or spends a delta that the budget lacks. If the first charge
            had another unit or relation. If the ledger is damaged or has another name.
        OSError
            If the ledger can't be locked (TimeoutError if it stays busy), read or written.

        Notes
        -----
        If an error is raised, nothing is charged, with two exceptions in which budget may be lost.
        The first is an OSError with the words "the charge may be in": the disk failed at the end.
        The second is an interruption (such as KeyboardInterrupt), which may come when all is written.
        The budget can be used at once in any case.
        """
        for what, claim in entries:
            self._check_entry(what, claim, neighboring_relation)

        def pay() -> None:
            now = time.time_ns() // 1000
            with self._transaction() as (connection, head):
                account = self._account  # with the ledger's order
                if not head.charges:
                    account = account.fixed_by([claim for _, claim in entries])
                costs = [account.cost(claim) for _, claim in entries]
                requested = sum_of(costs)
                for number in requested:
                    _text(number)  # a number too long to store is too long for the messages below
                first = (head.privacy_unit, head.neighboring_relation)
                if head.charges and first != (privacy_unit, neighboring_relation):
                    msg = (
                        f"{self._where()} must be charged for privacy_unit={first[0]!r} and "
                        f"neighboring_relation={first[1]!r}, as at first, "
                        f"got {privacy_unit!r} and {neighboring_relation!r}.\n\n"
                        "Hint: losses of different units or relations do not add up. Keep a budget for each."
                    )
                    raise ValueError(msg)
                spent = _spent(head)
                left = account.left(spent)
                takes_all = account != self._account and isinstance(account, Guarantee) and account.is_closed
                if not takes_all and not account.fits(requested, left):
                    times = [one.microseconds for one in ledger.read_charges(connection, head)] if self._path else []
                    ends = (_moment(times[0]), _moment(times[-1])) if times else None
                    raise account.refusal(requested, left, None if self._path is None else str(self._path), ends)
                charges = []
                for (what, claim), cost in zip(entries, costs, strict=True):
                    spent = spent.plus(cost)
                    unit, loss, rho = account.written(claim)
                    charges.append(
                        ledger.Charge(
                            *(now, what, claim.mechanism, unit, stored(loss), _text(spent.loss), stored(cost.delta)),
                            *(stored(spent.delta), _text(rho), stored(spent.divergence), int(unchecked)),
                        )
                    )
                head = _with_account(head, account)
                head = head._replace(privacy_unit=privacy_unit, neighboring_relation=neighboring_relation)
                ledger.write_charges(connection, head, charges)
            self._account = account
            self._see(spent)

        uninterrupted(pay)

    @property
    def _known_spent(self) -> Cost:
        """The largest spending of the ledger that this process has seen."""
        return FREE if self._path is None else _newest.get((self._path, self._account.terms), FREE)

    def _see(self, spent: Cost) -> None:
        """Note the spending, for all budgets of this process with this ledger."""
        with lock:
            if not _fallen(spent, self._seen):  # another thread may have charged more
                self._seen = spent
            if self._path is not None and not _fallen(spent, self._known_spent):
                _newest[self._path, self._account.terms] = spent

    def _check_entry(self, what: object, claim: object, relation: NeighboringRelation) -> None:
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
        state = self._state
        left, remaining = state.left, state.remaining
        used, rest = [f"spent={exact(self.total - remaining)}"], [f"remaining={exact(remaining)}"]
        others = [] if self._guarantee is None or remaining.rho is None else [f"rho {exact(remaining.rho)}"]
        if self._keys_delta is not None:
            used.append(f"(delta {exact(self._keys_delta - left.delta)})")
            rest.append(f"({', '.join([*others, f'delta {exact(left.delta)}'])})")
        text = f"{self._account}, {' '.join(used)}, {' '.join(rest)}"
        if self._path is not None:
            text += f", path={str(self._path)!r}"
        if self._name is not None:
            text += f", name={self._name!r}"
        return f"Budget({text})"

    def __getstate__(self) -> dict[str, Any]:
        if self._path is None:
            msg = (
                "A Budget without a path must not be copied or pickled: two copies could spend it twice.\n\n"
                "Hint: give it a path, which copies and processes share."
            )
            raise TypeError(msg)
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._in_ledger(ledger.check)  # it must exist: a new one would have no spending

    def _where(self) -> str:
        return "The budget" if self._path is None else name_of(self._path)

    def _make(self, head: ledger.Head) -> None:
        """Create the ledger unless it exists."""
        if self._path is None:
            take_name(self._name)
            self._memory = ledger.in_memory(head)
            weakref.finalize(self, self._memory.close)
        elif not os.path.lexists(self._path):
            if self._known_spent != FREE:
                msg = (
                    f"{name_of(self._path)} is gone, and with it what was spent: this process has seen it.\n\n"
                    "Hint: put it back. A budget of something else needs another path."
                )
                raise FileNotFoundError(msg)
            ledger.create(self._path, head)

    def _in_ledger(self, use: Callable[[sqlite3.Connection, ledger.Head], T]) -> T:
        """Call `use` with the open ledger and its head; its writes are committed."""

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
        if self._path is not None:
            return ledger.transaction(self._path)  # opened anew each time: forks and threads share no open file
        if self._memory is None or self._process != os.getpid():
            msg = (
                "A Budget without a path must be used by the process that made it: a forked copy could "
                "spend it once more.\n\nHint: give it a path, which processes share."
            )
            raise RuntimeError(msg)
        return ledger.transaction_in_memory(self._memory)

    def _head(self, connection: sqlite3.Connection) -> ledger.Head:
        """Read the head of the ledger; raise if it belongs to another budget, or is older than a known state."""
        head = ledger.read_head(connection)
        account, spent = _account_of(head), _spent(head)
        if not self._account.is_opened_as(account):
            msg = (
                f"{self._where()} must be opened with its own total, {account}, got {self._account}. "
                f"{_whose(connection, head)}.\n\n"
                "Hint: a budget of something else needs another path. A ledger's total can't be changed: what was "
                "spent stays lost in addition to a new budget."
            )
            raise ValueError(msg)
        if self._name not in (None, head.name):
            msg = (
                f"{self._where()} must be opened with its own name, {head.name!r}, got {self._name!r}. "
                f"{_whose(connection, head)}."
            )
            raise ValueError(msg)
        fallen = _fallen(spent, self._seen) or _fallen(spent, self._known_spent)
        if fallen is not None:
            msg = f"it has {exact(fallen[0])} spent, and had {'more' if fallen[1] is None else exact(fallen[1])} before"
            raise sqlite3.DatabaseError(msg)
        if isinstance(account, Guarantee) and isinstance(self._account, Guarantee):
            account = replace(account, is_said=self._account.is_said or account.is_said)
        self._name, self._account = head.name, account  # a guarantee keeps its first order
        self._see(spent)
        return head


def _head_of(account: Sums | Guarantee, name: str | None) -> ledger.Head:
    if isinstance(account, Sums):
        return ledger.Head(account.unit, stored(account.total), name, delta=_text(account.delta))
    return _with_account(ledger.Head("epsilon", stored(account.epsilon), name, delta=stored(account.delta)), account)


def _with_account(head: ledger.Head, account: Sums | Guarantee) -> ledger.Head:
    if isinstance(account, Sums):
        return head
    return head._replace(
        keys_delta=stored(account.keys_delta),
        order=stored(account.order),
        rho=stored(account.rho),
        is_said=int(account.is_said),
        is_closed=int(account.is_closed),
    )


def _account_of(head: ledger.Head) -> Sums | Guarantee:
    total, delta = Fraction(head.total), None if head.delta is None else Fraction(head.delta)
    if delta is None or head.keys_delta is None or head.order is None or head.rho is None:
        return Sums("rho" if head.unit == "rho" else "epsilon", total, delta)
    keys_delta, order, rho = map(Fraction, (head.keys_delta, head.order, head.rho))
    return Guarantee(total, delta, keys_delta, order, rho, bool(head.is_said), bool(head.is_closed))


def _spent(head: ledger.Head) -> Cost:
    return _cost_of(head.spent, head.spent_divergence, head.spent_delta)


def _spent_until(charge: ledger.Charge) -> Cost:
    return _cost_of(charge.running_total, charge.running_divergence, charge.running_delta)


def _cost_of(loss: str | None, divergence: str, delta: str) -> Cost:
    return Cost(None if loss is None else Fraction(loss), Fraction(divergence), Fraction(delta))


def _whose(connection: sqlite3.Connection, head: ledger.Head) -> str:
    """Identify a ledger in messages: by its name and its charges."""
    name = "without a name" if head.name is None else repr(head.name)
    charges = list(ledger.read_charges(connection, head))
    if not charges:
        return f"It is that of a budget {name}, of which nothing is spent"
    whom = "rows" if head.privacy_unit is None else f"people by {head.privacy_unit}"
    first, last = (_moment(one.microseconds) for one in (charges[0], charges[-1]))
    return (
        f"It is that of a budget {name}, charged for {whom} from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, "
        f"first for {charges[0].what}"
    )


def _fallen(now: Cost, before: Cost) -> tuple[Fraction, Fraction | None] | None:
    """Return a sum that fell, with its value now and before: an older ledger has replaced this one."""
    sums = zip(now, before, strict=True)
    return next(((one, was) for one, was in sums if one is not None and (was is None or one < was)), None)


def _text(number: Fraction | None) -> str | None:
    return None if number is None else stored(number)


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 10**6, UTC)
