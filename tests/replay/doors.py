"""The points where record and replay touch the package's internals: all of them are here, in `_PLACES` and `_SPARK`.

While `Doors` are open, every mechanism answers what a salt says and nothing else, what it was given is recorded, and
random choices among a person's rows hang on these rows and the salt alone: neighbouring data sets are then coupled.
"""

from __future__ import annotations

import importlib
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partialmethod
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.polars.bounding import Stays
from dp_polars._mechanisms.quantile_trees import levels_of
from dp_polars._statistics.of_shared_draws import Bernstein

# 2026-01-01, in nanoseconds: all that is written down then is.
_NOW = 1_767_225_600 * 10**9


def _word(law: Any) -> str:
    """The mechanism that draws by a law."""
    laws = importlib.import_module("dp_polars._mechanisms.racing").LAWS
    return next(word for word, own in laws.items() if own is law)


def _of_rows(make):
    """What stands where rows are drawn from, of what stands where their histogram is."""
    return lambda doors, _: lambda draw, codes, lengths: make(doors, None)(draw, _histogram(codes, lengths, draw.size))


# --- Where ----------------------------------------------------------------------------------------------------------

# What draws, or chooses at random, or tells the time: module (or class in it), name, and the method of `Doors` that
# makes what stands there instead of it.
_PLACES = [
    # Mechanisms, each where all that follows from its output begins.
    ("_statistics.categories", "draw_groups", "_choice"),
    ("_statistics.categories", "draw_from_rows", "_choice_of_rows"),
    ("_statistics.categories", "gap_groups", "_gap"),
    ("_statistics.categories", "gap_from_rows", "_gap_of_rows"),
    ("_statistics.extremes", "first_above_groups", "_above"),
    ("_statistics.answer_lists", "draw_in_rounds", "_rounds"),
    ("_statistics.answer_lists", "draw_jointly", "_jointly"),
    ("_mechanisms.quantile_trees:TreeDraw", "groups", "_list"),
    ("_statistics.measures", "noise_of", "_noise"),
    ("_statistics.measures", "add_noise", "_with_noise"),
    ("_statistics.extremes", "best_rows", "_row"),
    ("_statistics.extremes", "best_rows_with_gap", "_row_with_gap"),
    ("_mechanisms.selection:OwnSensitivities", "best", "_own_row"),
    ("_mechanisms.partition_selection:PartitionSelection", "draw", "_shown"),
    ("_mechanisms.renyi_selection:RenyiSelection", "draw", "_shown"),
    ("_mechanisms.partition_selection:GaussianThreshold", "draw", "_shown_with_number"),
    # What is drawn for: an output from its histograms, or keys.
    ("_release.contract:Output", "drawn", "_output"),
    ("_statistics.statistic:KeysThatAreThere", "drawn", "_keys"),
    ("_statistics.limits:LimitChoice", "drawn", "_limit"),
    # Time, and secrets that are part of what is asked.
    ("_accounting.budget", "time", "_time"),
    ("_release.request", "datetime", "_datetime"),
    ("_sources.marks", "mark_of_files", "_mark"),  # inode numbers and times, which no two writes share
    ("_engines.polars.rows", "os", "_os"),
]
# Random choices of Polars' engine among a person's rows.
_CHOICES = [
    ("_engines.polars.engine", "count_people", "_sorted"),
    ("_engines.polars.people", "keep", "_keep"),
    ("_engines.polars.people", "_bounded", "_bounded"),
]
_SQL = [("_engines.sql.dialects", "secrets", "_secrets")]
# Spark: its secrets and stages, which run in other processes; what it is asked; and, over there, what is drawn for.
_SPARK = [
    ("spark", "fresh_seed", "_seed"),
    ("_engines.spark.counting", "fresh_seed", "_seed"),
    # By Spark's own estimate of how many rows there are: it decides where they are counted, never what.
    ("_engines.spark.counting", "_are_few", "_few"),
    ("spark", "drawing", "_stage"),
    ("_engines.spark.counting", "selecting", "_stage"),
    ("spark", "_published", "_planned"),
    ("spark", "_collected", "_planned"),
]
_WORKERS = [("_engines.spark.workers", "_histogram", "_listed")]
# Bytes of people's rows that Polars groups at once, where more become parts: those of a few rows.
PARTITION_BYTES = ("dp_polars._engines.polars.engine._PARTITION_BYTES", 150)


def known_dialects() -> dict[str, Any]:
    """The dialects of the tested databases, by name: what `dp_polars.sql` looks up."""
    return importlib.import_module("dp_polars.sql").TESTED


# --- What is recorded -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call of a mechanism.

    Parameters
    ----------
    output, number
        For which output it draws, and which of its draws it is.
    kind
        "choice", "above", "rounds", "jointly", "list", "number", "keys", "row", "limit" or "lost".
    mechanism, rate, draws
        As it draws; `draws` at this rate each.
    alpha
        Of a quantile.
    size, width
        Of how many candidates, or numbers for each group; how many are chosen.
    unit
        Of a number: R of one row, in its own unit.
    groups
        The public groups that it draws for.
    inputs
        (group, code) -> weight; of keys: key -> people; of a limit: (0, candidate) -> people beyond. What is left out
        is 0.
    """

    output: str
    number: int
    kind: str
    mechanism: str
    rate: Fraction
    draws: int
    alpha: Fraction | None
    size: int
    width: int
    unit: Fraction | None
    groups: tuple[int, ...]
    inputs: dict[Any, Any]


@dataclass(frozen=True)
class Parts:
    """The histograms of one output, each with the most that a row weighs there; 1: every row counts one."""

    output: str
    cells: tuple[dict[tuple[int, int], int], ...]
    largest: tuple[int, ...]
    is_bernstein: bool  # sums of products of distances from both clipping bounds


@dataclass
class Doors(AbstractContextManager["Doors"]):
    """Forced outputs and recorded inputs, of all that is drawn while the doors are open.

    Parameters
    ----------
    salt
        What the outputs follow from.
    shown
        The keys that are shown, where they are selected.
    couples
        Whether Polars' random choices follow from the salt and a person's own rows. Those of other engines always do:
        their hashes are of these rows and a secret.
    sql
        Whether a database is asked.
    folder
        Where what is drawn in other processes is recorded; for Spark.
    is_worker
        Whether this is such a process.
    """

    salt: int = 0
    shown: frozenset[tuple[str, ...]] = frozenset()
    couples: bool = True
    folder: Path | None = None
    sql: bool = False
    is_worker: bool = False
    calls: list[Call] = field(default_factory=list)
    parts: list[Parts] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._name, self._number, self._groups = "", 0, None
        self._claims: list[Any] = []
        self._listed_groups: Any = None
        self._own_keys: list[tuple[str, ...]] = []
        self._rows: Any = None

    def __enter__(self) -> Self:
        places = _PLACES + (_CHOICES if self.couples else []) + (_SQL if self.sql else [])
        if self.folder is not None:
            places += _WORKERS if self.is_worker else _SPARK
        for where, name, method in places:
            module, _, owner = where.partition(":")
            place = importlib.import_module(f"dp_polars.{module}")
            place = getattr(place, owner) if owner else place
            self._patch.setattr(place, name, getattr(self, method)(getattr(place, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        if self.is_worker:
            # As plain values: these classes are not importable here.
            told = pickle.dumps(([vars(call) for call in self.calls], [vars(part) for part in self.parts]))
            (self.folder / secrets.token_hex(8)).write_bytes(told)
        elif self.folder is not None:
            for file in sorted(self.folder.iterdir()):
                calls, parts = pickle.loads(file.read_bytes())
                self.calls += [Call(**call) for call in calls]
                self.parts += [Parts(**part) for part in parts]
                file.unlink()

    def word(self, *about: object) -> int:
        """64 bits that follow from the salt."""
        return int.from_bytes(blake2b(repr((self.salt, about)).encode(), digest_size=8).digest(), "big")

    # --- Which output is drawn for ---

    def _output(self, drawn):
        def noted(output, histograms, known=None):
            own = self._listed_groups
            self._groups = list(range(len(histograms[0].sizes))) if own is None else own
            self._name, self._number = output.name, 0
            weighings = [one.row_weight for one in output.query.count_rules(*output.types)]
            if len(histograms) > 1:
                largest = tuple(1 if row_weight is None else row_weight.largest for row_weight in weighings)
                # All of them in the finest parts, as people may count in part.
                bits = output.query.bits_of_parts(*output.types)
                cells = [
                    {cell: n << (max(bits) - bit) for cell, n in self._cells(histogram).items()}
                    for histogram, bit in zip(histograms, bits, strict=True)
                ]
                self.parts.append(Parts(output.name, tuple(cells), largest, isinstance(output.query, Bernstein)))
            try:
                return drawn(output, histograms, known)
            finally:
                self._name, self._groups = "", None

        return noted

    def _cells(self, histogram) -> dict[tuple[int, int], int]:
        groups = np.repeat(self._own(len(histogram.sizes)), histogram.sizes).tolist()
        pairs = zip(groups, histogram.codes.tolist(), strict=True)
        return dict(zip(pairs, histogram.weights.tolist(), strict=True))

    def _own(self, groups: int) -> list[int]:
        """The groups that are drawn for; those of an expression by their places."""
        return list(range(groups)) if self._groups is None else self._groups

    def _called(self, kind, mechanism, rate, groups, inputs, *, size=1, width=1, draws=1, alpha=None, unit=None) -> int:
        """Record a call, and return its number."""
        self._number += 1
        about = kind, mechanism, rate, draws, alpha, size, width, unit
        self.calls.append(Call(self._name, self._number, *about, tuple(groups), inputs))
        return self._number

    def _called_on(self, histogram, kind, draw, **more):
        """Record a call on a histogram; return its number, and the groups that it draws for."""
        groups = self._own(len(histogram.sizes))
        word = "first_above" if kind == "above" else _word(draw.law)
        return self._called(kind, word, draw.rate, groups, self._cells(histogram), size=draw.size, **more), groups

    # --- Choices ---

    def _choice(self, _):
        def draw_groups(draw, histogram):
            number, groups = self._called_on(histogram, "choice", draw, alpha=draw.score.ranks)
            return np.array([self.word("code", number, group) % draw.size for group in groups], np.int64)

        return draw_groups

    def _gap(self, _):
        choose = self._choice(None)

        def gap_groups(draw, histogram):
            codes = choose(draw, histogram)
            gaps = [self.word("gap", self._number, group) % 7 - 1 for group in self._own(len(codes))]
            return codes, np.array(gaps, np.int64)

        return gap_groups

    _choice_of_rows, _gap_of_rows = map(_of_rows, (_choice, _gap))

    def _above(self, _):
        def first_above_groups(search, histogram):
            number, groups = self._called_on(histogram, "above", search)
            codes = [self.word("code", number, group) % (search.size + 1) - 1 for group in groups]
            gaps = [-1 if code < 0 else self.word("gap", number, code) % 7 for code in codes]
            return np.array(codes, np.int64), np.array(gaps, np.int64)

        return first_above_groups

    def _several(self, kind, _):
        def drawn(draw, histogram, k):
            number, groups = self._called_on(histogram, kind, draw, width=k, draws=1 if kind == "jointly" else k)
            codes = [
                sorted(range(draw.size), key=lambda code: self.word("place", number, group, code))[:k]
                for group in groups
            ]
            return np.array(codes, np.int64).reshape(len(groups), k)

        return drawn

    _rounds, _jointly = partialmethod(_several, "rounds"), partialmethod(_several, "jointly")

    def _list(self, _):
        def groups_of(draw, histogram):
            width = sum(1 for _ in draw.root.nodes())
            number, groups = self._called_on(histogram, "list", draw, draws=levels_of(width))
            codes = [
                sorted(self.word("quantile", number, group, i) % draw.size for i in range(width)) for group in groups
            ]
            return np.array(codes, np.int64).reshape(len(groups), width)

        return groups_of

    # --- Numbers ---

    def _noise(self, _):
        def noise_of(claim, count):
            self._claims.append(claim)
            return np.zeros(count, np.int64)

        return noise_of

    def _with_noise(self, _):
        def add_noise(values, noise):
            claim = self._claims.pop()
            width = 1 if self._groups is None else len(values) // max(len(self._groups), 1)
            groups = self._own(len(values) // max(width, 1))
            cells = [(group, i) for group in groups for i in range(width)]
            number = self._called(
                "number", claim.mechanism, claim.rate, groups, dict(zip(cells, values.tolist(), strict=True)),
                size=width, unit=claim.score_range,
            )  # fmt: skip
            return np.array([self.word("number", number, cell) % 46 - 5 for cell in cells], np.int64)

        return add_noise

    # --- Rows of the caller's own scores ---

    def _row(self, _):
        def best_rows(scores, lengths, rate, law, words, *, offered=None, lowest=False):
            groups = self._own(len(lengths))
            self._called("row", _word(law), rate, groups, {}, size=int(lengths.max(initial=0)))
            sizes = zip(groups, lengths.tolist(), strict=True)
            return np.array([self.word("row", group) % n if n else -1 for group, n in sizes], np.int64)

        return best_rows

    def _row_with_gap(self, _):
        best = self._row(None)

        def best_rows_with_gap(scores, lengths, rate, unit, law, words, *, offered=None, lowest=False):
            rows = best(scores, lengths, rate, law, words)
            return rows, np.array([self.word("gap", i) % 7 - 1 for i in range(len(rows))], np.int64)

        return best_rows_with_gap

    def _own_row(self, _):
        def best(own, rate, law, words):
            self._called("row", _word(law), rate, range(len(own.counts)), {}, size=int(own.counts.max()))
            first = np.cumsum(own.counts) - own.counts
            offsets = [self.word("row", i) % n for i, n in enumerate(own.counts.tolist())]
            return first + np.array(offsets, np.int64)

        return best

    # --- Keys ---

    def _keys(self, drawn):
        def noted(query, keys, people):
            # A worker's query is not given the keys; they are all but the last of the columns that it draws for.
            rows = self._rows if self.is_worker else zip(*keys, strict=True)
            self._own_keys = [tuple(map(repr, key)) for key in rows]
            claim = query.claim
            self._called(
                "keys", claim.mechanism, claim.rate, (), dict(zip(self._own_keys, people.tolist(), strict=True))
            )
            return drawn(query, keys, people)

        return noted

    def _shown(self, _):
        return lambda _, people: (np.array([key in self.shown for key in self._own_keys], bool), None)

    def _shown_with_number(self, _):
        def draw(selection, people):
            numbers = [selection.threshold + self.word("people", key) % 9 for key in self._own_keys]
            return np.array([key in self.shown for key in self._own_keys], bool), np.array(numbers, np.int64)

        return draw

    # --- Limits ---

    def _limit(self, _):
        def drawn(choice, histograms, *columns):
            (histogram,) = histograms
            beyond = {(0, place): n for place, n in enumerate(choice.beyond(histogram).tolist())}
            number = self._called("limit", choice.claim.mechanism, choice.claim.rate, (), beyond, size=len(beyond))
            place = self.word("limit", choice.what, choice.of, number) % min(4, len(choice.values))  # that may bind
            (lost,) = choice.parts_lost(choice.beyond(histogram), place).tolist()
            self._called("lost", "discrete_laplace", choice.noise().rate, (), {(0, 0): lost})
            numbers = self.word("beyond", choice.of) % 46 - 5, self.word("lost", choice.of) % 9000 - 500
            return tuple(pl.Series([one]) for one in (place, *numbers))

        return drawn

    # --- Random choices of engines ---

    def _words(self, *about: object) -> Callable[[int], Any]:
        stream = np.random.Generator(np.random.PCG64(self.word(*about)))
        return lambda count: stream.integers(0, 2**64, count, np.uint64)

    def _os(self, found):
        return SimpleNamespace(urandom=lambda count: bytes(count), environ=found.environ, path=found.path)

    def _sorted(self, count_people):
        return lambda frame, *others: count_people(frame.sort(pl.exclude("person")), *others)

    def _keep(self, keep):
        def each(lengths, groups, specs, rng=None):
            found, first, taken = [[] for _ in specs], 0, [0] * len(specs)
            for n in lengths.tolist():
                own = slice(first, first + n)
                asked = [
                    replace(
                        spec,
                        contributing=None if spec.contributing is None else spec.contributing[own],
                        codes=None if spec.codes is None else spec.codes[own],
                    )
                    for spec in specs
                ]
                words = self._words("rows", groups[own].tolist())
                for place, stays in enumerate(keep(np.array([n]), groups[own], asked, words)):
                    whose = stays.whose
                    if whose is not None:
                        whose = np.where(whose < 0, -1, whose + taken[place])
                        taken[place] = max(taken[place], whose.max(initial=-1) + 1)
                    found[place].append((stays.rows + first, whose))
                first += n
            return [
                Stays(
                    np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in own)]),
                    None if spec.codes is None else np.concatenate([np.empty(0, np.int64), *(who for _, who in own)]),
                )
                for spec, own in zip(specs, found, strict=True)
            ]

        return each

    def _bounded(self, bounded):
        def each(lists, names, most, engine):
            columns = [lists[name].to_list() for name in names]
            own = [list(map(repr, zip(*keys, strict=True))) for keys in zip(*columns, strict=True)]

            def few(random_few, most):
                for keys in own:
                    order = sorted(range(len(keys)), key=keys.__getitem__)
                    chosen = random_few(np.array([len(keys)]), most, self._words("keys", sorted(keys)))
                    yield chosen[np.argsort(order)]

            with _of_each(lambda random_few, _, most: few(random_few, most)):
                return bounded(lists, names, most, engine)

        return each

    def _secrets(self, _):
        return SimpleNamespace(randbits=lambda bits: self.word("secret") >> (64 - bits), token_hex=secrets.token_hex)

    def _seed(self, _):
        return lambda: self.word("seed") >> 2

    def _few(self, _):
        return lambda rows, groups, candidates: self.word("few", groups, candidates) % 2 == 0

    def _time(self, _):
        return SimpleNamespace(time_ns=lambda: _NOW)

    def _mark(self, _):
        return lambda files: f"{len(files)} files"

    def _datetime(self, found):
        return SimpleNamespace(now=lambda zone: found.fromtimestamp(_NOW // 10**9, zone))

    # --- Spark ---

    def _stage(self, make):
        about = {"salt": self.salt, "shown": self.shown, "folder": self.folder}

        def made(*args, **kwargs):
            stage = make(*args, **kwargs)

            def forced(batches: Iterable[Any]) -> Iterator[Any]:
                held = list(batches)
                with Doors(**about, is_worker=True) as doors:
                    doors._rows = [
                        key
                        for batch in held
                        for key in zip(*(column.to_pylist() for column in batch.columns[:-1]), strict=True)
                    ]
                    # Drawn as a whole: what is between two batches may not be of this stage.
                    found = list(stage(held))
                yield from found

            return forced

        return made

    def _planned(self, published):
        def noted(drawn, *target):
            self.plans.append(_analysed(drawn))
            return published(drawn, *target)

        return noted

    def _listed(self, histogram):
        def noted(groups, codes, counts, listed):
            self._listed_groups = listed.tolist()
            return histogram(groups, codes, counts, listed)

        return noted


@contextmanager
def _of_each(few):
    """Let `few` choose the rows or keys of one person after the other, by the choice that stood there."""
    people = importlib.import_module("dp_polars._engines.polars.people")
    choose = people.random_few

    def chosen(lengths, most, _):
        return np.concatenate([np.empty(0, bool), *few(choose, lengths, most)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "random_few", chosen)
        yield


def _histogram(codes, lengths, size):
    """The histogram of rows, group after group."""
    histogram = importlib.import_module("dp_polars._mechanisms.histograms").Histogram
    return histogram.of_rows(codes, None, lengths, size)


def _analysed(frame):
    """The text of Spark's analysed plan."""
    if hasattr(frame, "_jdf"):
        return frame._jdf.queryExecution().analyzed().toString()
    return frame._explain_string(mode="extended").partition("== Analyzed")[2].partition("== Optimized")[0]
