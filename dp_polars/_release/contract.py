"""The contract of an engine, its work, and the outputs that are made of its histograms."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import polars as pl

from dp_polars._base.column_types import PrivacyUnit
from dp_polars._base.numbers import Ints
from dp_polars._bins.binning import Binning, Clamping, OneCode
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.person_weights import PersonWeight
from dp_polars._statistics.measures import BETA
from dp_polars._statistics.shared_sums import draws_shared
from dp_polars._statistics.statistic import Columns, CountRule, DrawnOnce, HistogramQuery, KeysThatAreThere

if TYPE_CHECKING:
    from dp_polars._release.protection import Limits


#: Whether numbers come with their intervals, each of them at 95 %, or all of them together.
Intervals: TypeAlias = "bool | Literal['all']"


def names_of_ends(output: str) -> tuple[str, str]:
    return f"{output}_low", f"{output}_high"


@dataclass(frozen=True)
class Output:
    """One answer: its name, the statistic, of columns of which types, and the positions of its specs."""

    name: str
    query: HistogramQuery
    types: Columns
    specs: tuple[int, ...]

    @property
    def dtype(self) -> pl.DataType:
        return self.query.answer_type(*self.types)

    @property
    def drawn_types(self) -> tuple[pl.DataType, ...]:
        return self.query.drawn_types(*self.types)

    def names(self, *, intervals: bool) -> list[str]:
        return [self.name, *(names_of_ends(self.name) if self.query.has_ends(intervals=intervals) else ())]

    def drawn(self, histograms: Sequence[Histogram], known: DrawnOnce) -> tuple[pl.Series, ...]:
        """Draw from its histograms, but for what other outputs drew already: all of it is in `known` afterwards."""
        return self.query.drawn_once(histograms, known, *self.types)


@dataclass(frozen=True)
class Presentation:
    """How a release is shown."""

    # Whether numbers come with the ends of their 95 % intervals; "all": of intervals that all hold with 95 %.
    intervals: Intervals = False
    # The output that counts the people of a group. None: every group is shown.
    people: str | None = None
    min_people: int = 1  # the other outputs of groups with fewer people are null
    sure: bool = False  # whether it is the lower end of the range that must be as large
    # The outputs that are null by default in groups with fewer people than these need; with a `min_people`, all others.
    hides: frozenset[str] = frozenset()

    def of(self, outputs: Sequence[Output], groups: int) -> Shown:
        widths = (output.query.answer_width(*output.types) for output in outputs if output.query.has_intervals)
        numbers = groups * sum(widths)
        if self.intervals != "all":
            return Shown(tuple(outputs), self)
        # Numbers that share noise are not independent: of these, the probabilities add up.
        shares = any(draw.is_shared for output in outputs for draw in draws_shared(output.query))
        return Shown(tuple(outputs), self, BETA / numbers if shares and numbers else beta_of_each(numbers))


#: As it was drawn: without intervals, every group.
AS_DRAWN = Presentation()


def beta_of_each(numbers: int) -> float:
    """Return how often each of independent intervals may fail so that all of them hold with 95 %; rounded down."""
    return BETA if numbers <= 1 else -math.expm1(math.log1p(-BETA) / numbers) * (1 - 2.0**-40)


@dataclass(frozen=True)
class Shown:
    """How outputs are shown."""

    outputs: tuple[Output, ...]  # in their order
    presentation: Presentation  # what was requested
    beta: float = BETA  # how often each range fails, at most

    @property
    def names(self) -> list[list[str]]:
        return [output.names(intervals=bool(self.presentation.intervals)) for output in self.outputs]

    def columns(self, drawn: Sequence[pl.Series]) -> list[list[pl.Series]]:
        """Return the columns of each output, of what was drawn for all of them, one after the other."""
        left, beta = list(drawn), self.beta if self.presentation.intervals else None
        parts = [[left.pop(0) for _ in output.drawn_types] for output in self.outputs]
        shown = []
        for output, part, names in zip(self.outputs, parts, self.names, strict=True):
            columns = output.query.presented(part, beta, *output.types)
            shown.append([column.alias(name) for column, name in zip(columns, names, strict=True)])
        if self.presentation.people is None:
            return shown
        at = [output.name for output in self.outputs].index(self.presentation.people)
        beta = self.beta if self.presentation.sure else None
        counted = self.outputs[at].query
        numbers = counted.presented(parts[at], beta, *self.outputs[at].types)
        people, hides = numbers[1 if self.presentation.sure else 0], self.presentation.hides
        for place, (output, part) in enumerate(zip(self.outputs, shown, strict=True)):
            if output.name in hides if hides else place != at:
                enough = people >= (output.query.least_people(counted) if hides else self.presentation.min_people)
                shown[place] = [one.zip_with(enough, pl.Series(one.name, [None], one.dtype)) for one in part]
        return shown


Released = TypeVar("Released")

_OF_VALUES = CountRule(OneCode())


class UnreadableError(Exception):
    """Private rows can't even be opened. That, and why, depends on the rows: the release is charged, and fails."""


@dataclass(frozen=True)
class HistogramSpec:
    """One histogram to make: what is read, how a row is counted, and what counts of a person at most."""

    # Row-by-row expressions of the private rows, one output each. For engines that run no expressions they are plain
    # columns, called `names`.
    columns: tuple[pl.Expr, ...]
    types: Columns  # their types; of plain columns, as `Engine.schema` gave them
    # How a row is counted. `binning.encoder()` takes one Series per column, of these `types`, and returns one code per
    # row, also for null; `binning.size` is the code of a row that is ignored. `row_weight.weigh` takes the same and
    # returns one integer per row. None: one each. Where no column is read, every row has the code 0.
    rule: CountRule
    # The most that counts of one person's rows: one set for all specs of a work in which rows count; without a limit on
    # all rows it has the groups of people, too.
    limits: Limits
    people: bool  # whether distinct people are counted per code, rather than rows
    # How much of a person counts, where all rows of everybody do: then weights are in parts. None: `limits` say it.
    weight: PersonWeight | None = None
    bits: int = 0  # of how many parts a unit of the sum is, as a power of 2

    @property
    def names(self) -> list[str]:
        return [column.meta.root_names()[0] for column in self.columns]

    @property
    def binning(self) -> Binning:
        return self.rule.binning

    @property
    def row_weight(self) -> Clamping | None:
        return self.rule.row_weight

    @property
    def clamping(self) -> Clamping:
        """The row weight of a spec that has one."""
        assert self.row_weight is not None
        return self.row_weight

    @property
    def added(self) -> Clamping | None:
        """The weights of rows in sums; if people count, the sum of a person's weights is clipped."""
        return self.row_weight if self.row_weight is None or self.people else self.row_weight.added

    def of_sums(self, sums: Any, rows: Any, constant: Callable[[int], Any] = int) -> Any:  # noqa: ANN401
        """Return the sum of the weights of a number of rows, of the sum of `added`."""
        return sums if self.people else self.clamping.of_sums(sums, rows, constant)

    def counts_like(self, other: HistogramSpec) -> bool:
        """Return whether another histogram is of the same rows and codes, though perhaps of other weights."""
        return self._counted_by() == other._counted_by() and self.reads_like(other)

    def _counted_by(self) -> tuple[object, ...]:
        return self.binning, self.limits, self.people, self.weight

    def reads_like(self, other: HistogramSpec) -> bool:
        is_alike = self.types == other.types and len(self.columns) == len(other.columns)
        return is_alike and all(map(_is_the_same, self.columns, other.columns))

    @property
    def by_person(self) -> bool:
        """Whether it matters whose a row is, where there is a privacy unit."""
        return self.people or not self.limits.everything or self.weight is not None

    @property
    def reading_order(self) -> tuple[bool, bool]:
        """Sorts specs: what needs only whether a column has a value comes last, since another one may tell it."""
        return isinstance(self.binning, OneCode), self.row_weight is None


def _is_the_same(one: pl.Expr, two: pl.Expr) -> bool:
    """Return whether two expressions are the same but for their names; to `meta.eq` alone, 0.0 is -0.0."""
    one, two = one.meta.undo_aliases(), two.meta.undo_aliases()
    return one.meta.eq(two) and one.meta.serialize() == two.meta.serialize()


def reading_values(
    specs: Sequence[HistogramSpec], taken: Collection[str], put: Callable[[str, str], None]
) -> tuple[HistogramSpec, ...]:
    """Return the specs, for engines that run no expressions: those that count nulls read a further column instead.

    `put` is called with the name of the new column, which is none of `taken` in any case, and that of the old one: the
    new one must have a value (an integer) exactly where the old one is null.
    """
    names: dict[str, str] = {}
    used = {name.lower() for name in taken}  # to most engines, names of other case are the same

    def read(spec: HistogramSpec) -> HistogramSpec:
        if spec.binning != OneCode(nulls=True):
            return spec
        name = spec.names[0]
        if name not in names:
            names[name] = next(free for i in count() if (free := f"null{i}") not in {*used, *names.values()})
            put(names[name], name)
        return replace(spec, columns=(pl.col(names[name]),), types=(pl.Int64(),), rule=_OF_VALUES)

    return tuple(map(read, specs))


def gathered(
    specs: Sequence[HistogramSpec], goes_with: Callable[[HistogramSpec, HistogramSpec], bool]
) -> list[list[int]]:
    """Return the positions of specs, together where one goes with the first of the others."""
    found: list[list[int]] = []
    for number, spec in enumerate(specs):
        together = next((numbers for numbers in found if goes_with(spec, specs[numbers[0]])), None)
        if together is None:
            found.append([number])
        else:
            together.append(number)
    return found


#: The column of rows that stand for people who are cut: how many rows the limits leave out.
ROWS_CUT = "rows cut"
#: More rows of one person, in a group and in all, count as these: so that no arithmetic on them leaves 64 bits.
MOST_IN_GROUP, MOST_IN_ALL = 1 << 30, 1 << 32


#: More rows of one person in a group count as these where numbers of people are found: beyond every limit.
MOST_FOUND = 1 << 20


@dataclass(frozen=True)
class PersonNumber:
    """One number of each person, of the rows in listed groups that contribute to a spec; null where there are none.

    A person has n rows in a group (where people count: n codes); at most `cap` and `MOST_FOUND` count. "rows" is
    their sum over the groups, "squares" that of their squares, "most rows" the largest of them, "groups" how many
    groups have any. "largest code" and "smallest code" are of all rows. "largest total" and "smallest total" are of the
    groups: of what all rows that contribute weigh together, which is not clipped.
    """

    spec: HistogramSpec
    what: Literal[
        "rows", "squares", "most rows", "groups", "largest code", "smallest code", "largest total", "smallest total"
    ]
    cap: int | None = None

    @property
    def most(self) -> int:
        """How many rows of a group count at most."""
        return min(self.cap or MOST_FOUND, MOST_FOUND)

    @property
    def is_end(self) -> bool:
        """Whether it is the largest or the smallest one of several."""
        return self.is_total or self.what.endswith("code")

    @property
    def is_total(self) -> bool:
        """Whether it is the largest or the smallest total of a group."""
        return self.what.endswith("total")

    @staticmethod
    def name(place: int) -> str:
        """Return the column that holds a number, by its place."""
        return f"number {place}"


@dataclass(frozen=True)
class PerPerson:
    """The replacement of the private rows before anything else: one row of numbers for each person.

    Only rows of listed groups count, and a person without any has no row here. With `numbers` the columns are these, of
    Int64, by `PersonNumber.name`. With `cut` there is `ROWS_CUT`: for the spec that loses most, how many rows are left
    out. Let `limits.rows_per_group` leave s rows in k groups. Then `limits.groups` random ones of more groups keep
    s·groups/k on average, to the nearest whole number (ties up), and `limits.rows` at most that many. Where people
    count, a row is one code in one group.
    """

    privacy_unit: PrivacyUnit  # the columns that tell people apart, sorted: each combination of values is one person
    keys: pl.DataFrame | None = None  # public groups, as of `Work`. None: one group.
    # Only those people have a row here of whom the limits of at least one of these specs leave out something
    # that contributes to it, or whose weights in a group and code are clipped together (`Clamping.of_person`). That
    # follows from numbers of rows, codes and groups, and from sums: no order is drawn.
    cut: tuple[HistogramSpec, ...] = ()
    numbers: tuple[PersonNumber, ...] = ()
    # Instead of all of these: key columns that nobody listed, typed as in `KeyWork`. Then there is one column, by
    # `PersonNumber.name(0)`: how many keys a person has. A person without a key has no row here.
    by: pl.Schema | None = None

    @property
    def columns(self) -> list[str]:
        """The columns of keys."""
        return [*(() if self.keys is None else self.keys.columns), *(self.by or ())]

    @property
    def specs(self) -> tuple[HistogramSpec, ...]:
        """The columns that are read."""
        return (*self.cut, *(number.spec for number in self.numbers))


@dataclass(frozen=True, eq=False)
class Product:
    """All combinations of public values as keys, never made: group i is the i-th, the last column running fastest.

    Only the groups that have rows come back for each spec: as the codes of one group (`Work.histogram`).
    """

    values: tuple[pl.Series, ...]  # the values of each key column, in the types of `Work.keys`

    @property
    def columns(self) -> list[str]:
        return [one.name for one in self.values]

    @property
    def dtypes(self) -> list[pl.DataType]:
        return [one.dtype for one in self.values]

    @property
    def width(self) -> int:
        return len(self.values)

    @property
    def height(self) -> int:
        return prod(map(len, self.values))

    @property
    def strides(self) -> list[int]:
        """How far apart two groups are that differ by one place in a column."""
        return [prod(map(len, self.values[place + 1 :])) for place in range(self.width)]


@dataclass(frozen=True)
class Work:
    """A query on columns of known types: everything proved and typed, nothing read."""

    # The columns that tell people apart, sorted: each combination of values is one person. None: every row is a person
    # of its own, and nothing is bounded.
    privacy_unit: PrivacyUnit | None
    # The public groups: row i is group i. The columns have the names and types of private ones (of a Categorical: its
    # text). They hold no null and repeat no row. None: one group. With a `Product` specs have one code, and no weights.
    keys: pl.DataFrame | Product | None
    specs: tuple[HistogramSpec, ...]  # the histograms, each once: outputs that need the same one share it
    outputs: tuple[Output, ...]  # what is drawn from them
    # The steps, for engines that run expressions: they take rows of the columns of `Engine.schema`.
    rows: Callable[[pl.LazyFrame], pl.LazyFrame]
    # Whether, and how, the rows are first replaced by one for each person, with the columns that `PerPerson` names;
    # `privacy_unit` and `keys` are then None. Only for engines that say so (`Engine.counts_per_person`).
    per_person: PerPerson | None = None

    @property
    def groups(self) -> int:
        return 1 if self.keys is None else self.keys.height

    @property
    def columns(self) -> list[str]:
        """The columns of keys."""
        return [] if self.keys is None else self.keys.columns

    def histogram(self, groups: Ints, codes: Ints, weights: Ints) -> Histogram:
        """Return the histogram of pairs of a group and a code, in any order, each perhaps several times."""
        if isinstance(self.keys, Product):
            return Histogram.of_pairs(np.zeros(len(groups), np.int64), groups, weights, 1)
        return Histogram.of_pairs(groups, codes, weights, self.groups)

    def assemble(self, histograms: Sequence[Histogram]) -> pl.DataFrame:
        """Draw for every output once, and return the keys and what was drawn; columns are named by their places."""
        columns = self.keys.get_columns() if isinstance(self.keys, pl.DataFrame) else []
        known: DrawnOnce = {}
        for output in self.outputs:
            if self.groups:
                columns += output.drawn([histograms[spec] for spec in output.specs], known)
            else:  # none was selected
                columns += [pl.Series(dtype=dtype) for dtype in output.drawn_types]
        return pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)])

    def presented(self, drawn: pl.DataFrame, presentation: Presentation) -> pl.DataFrame:
        """Return what `assemble` gave as it is shown: the keys and the answers, by their names."""
        names = [] if self.keys is None else self.keys.columns
        columns = drawn.get_columns()
        keys = [column.alias(name) for column, name in zip(columns, names, strict=False)]
        shown = presentation.of(self.outputs, self.groups).columns(columns[len(names) :])
        # By their names: of a list of columns, Polars would name that without a name itself.
        return pl.DataFrame({column.name: column for column in [*keys, *(one for part in shown for one in part)]})


@dataclass(frozen=True)
class KeyWork:
    """Keys to find among the private rows, by partition selection: everything proved and typed, nothing read."""

    # The columns that tell people apart, as of `Work`. None: every row is a person of its own, with one key.
    privacy_unit: PrivacyUnit | None
    # The key columns, and the types in which keys are released: those of `Engine.schema`, text for a Categorical.
    types: pl.Schema
    # For how many keys a person counts, at most. 1 where every row is a person.
    most: int
    statistic: KeysThatAreThere  # what draws, once, from the numbers of people
    rows: Callable[[pl.LazyFrame], pl.LazyFrame]  # the steps, as of `Work`

    def assemble(self, keys: pl.DataFrame, people: Ints) -> pl.DataFrame:
        """Draw for each key once, and return those that are shown, sorted, in memory of their own.

        `keys`: columns as in `types`: each key that somebody has, once, without null; in any order.
        `people`: shape (n,): how many people have each of them.
        """
        return self.statistic.released(keys, people)

    def presented(self, drawn: pl.DataFrame, presentation: Presentation) -> pl.DataFrame:  # noqa: ARG002
        return drawn


@dataclass(frozen=True)
class Drawn(Generic[Released]):
    """The draws of a release: nothing more is ever drawn for it, however often it is shown."""

    packed: Callable[[], bytes]  # gives what was drawn as Arrow IPC, to be cached
    presented: Callable[[], Released]  # gives it as it is shown. Nothing that is not shown leaves the engine.


_SECRET_BITS = 63  # of the integers of all engines


class PartChoice:
    """The random choice of each person's parts, one for all queries of a release: `docs/proofs/parts.md`.

    An engine that hashes takes the secret; one that draws keeps what it has drawn of a source in `of_source`.
    """

    def __init__(self) -> None:
        self.secret: int = secrets.randbits(_SECRET_BITS)
        self.of_source: dict[int, Any] = {}


class Engine(ABC, Generic[Released]):
    """Private rows in one place, and what answers a query there.

    A release calls `filled`, `schema`, `keep_parts`, `prepare` and `distinct`, charges the budget, and then calls what
    `prepare` returned, once. If it has stages, it calls `prepare` and `distinct` again after the charge. The duties:

    1. **Before the charge** (`schema`, `prepare`, `distinct`) no row is read. Their errors are free and depend on
       public things only: names, types, the query. `schema` is requested the columns of specs and keys; that the
       privacy unit is a column too, `prepare` must see to, unless expressions are run (a release then knows it from
       `schema`).
    2. **Contributing rows first.** A run leaves out rows whose person is null or NaN in a column of the unit, rows of
       keys that are not listed (null equals no key), and, in each spec, rows whose code is `binning.size`. -0.0 and
       0.0 are one person. People differ where one column of the unit does: ("a", "bc") is not ("ab", "c").
    3. **Then limits, by one order.** Each release gives every person a random number for each of their groups and one
       for each of their rows. These numbers depend on that person's own rows and on fresh random words alone, never on
       another person's rows or on the order of rows; those of groups are never made from those of rows. All specs
       use the same numbers. Where people are counted (`people`), rows of a person with the same group and code are one
       from here on: its number is the smallest of theirs, its weight the sum of theirs, clipped to
       `row_weight.of_person`. `limits` looks only at rows that contribute to its spec. It keeps the groups with the
       smallest numbers, in each of them the rows with the smallest numbers, and of what is left the rows with the
       smallest numbers; None is no limit. So one pass over each person's rows serves all specs.
       **Numbers draw nothing** (`HistogramSpec.weight`). All rows of everybody count. In a group, n rows of a person
       contribute (where people count: n codes, each with its own weight). `PersonWeight` makes of these numbers what
       each row of the person in a group weighs, in parts (`UNIT`). `part_of` scales a person's sum in a group and code
       by it: that is what is added up. Neither overflow nor a float depends on the order of rows.
    4. **Then counting.** The weight of a code in a group is the sum of the weights of what stays there: without a
       row weight the number of rows, or of distinct people (`people`). Where `Work.privacy_unit` is None, every row is
       a person.
    5. **The same codes.** A row has the code that `binning.encoder()` gives it, and the weight of
       `row_weight.weigh`, whatever arithmetic found it.
    6. **One draw.** Every public group is drawn exactly once for each output, also one without rows, and also where a
       task is run again. `Work.assemble` does it for histograms that are at hand. All draws (`Drawn`) are cached as
       it is, and shown as a `Presentation` says, which draws nothing more.
    7. **No words about rows.** Nothing is printed or logged. A run of several steps, of a number that follows from the
       query alone, says by `progress.at` which one it is at, to a person who waits. A run may raise anything: a
       release replaces it by one fixed message, and the charge stays.
    8. **Keys** (`KeyWork`) are combinations of values in the key columns. Rows whose person is null or NaN are left
       out, and rows with a null in a key. Then a person's rows with the same key are one, and `KeyWork.most` of that
       person's keys stay: a random subset as in 3. A key's number is that of the people who have it then. Every key
       that somebody has is drawn for exactly once, and only those that are shown leave the engine: neither the order of
       the released rows nor where they lie may tell of others. `KeyWork.assemble` does all of that where keys and
       numbers are at hand.
    9. **People as rows** (`Work.per_person`). Rows whose person is null or NaN are left out, and where groups are
       listed, rows of other keys. Each person that is left is one row; with `PerPerson.cut`, each that is cut; with
       `PerPerson.by`, each that has a key, as in 8.
    10. **What is equal here is equal to us.** A row has one key and one code. Public keys and candidates are compared
        with columns in a type that tells all of them apart: a key between two values of a coarser column equals no row.
        `distinct` says how many the engine tells apart. A release calls it for all lists, and refuses one of which
        two are the same here: a row would count for both.
    """

    #: Whether row-by-row steps and expressions, which are Polars', can be run.
    runs_expressions: ClassVar[bool] = False
    #: Whether `Work.per_person` is done.
    counts_per_person: ClassVar[bool] = False
    #: What the private rows are, for hints: "the Spark DataFrame".
    rows_are: ClassVar[str] = "the private rows"
    #: What a run does once or several times, for a person who waits (`_base.progress`).
    step: ClassVar[str] = "scan"

    def preprocessing(self) -> str | None:
        """Return a public text of what made the rows: names, constants, files. None: there is none, as of Python code.

        Answers are cached for one text, and none where it is None. An engine that sees nothing of it says so by "".
        """
        return ""

    def digest_of_rows(self, key: bytes) -> str | None:  # noqa: ARG002
        """Return a keyed digest of rows that lie in memory: "" where none do, None where they have none."""
        return ""

    def mark(self) -> str:
        """Return where the private rows lie. It is public, cached with an answer, and compared when that is returned.

        So it must say nothing that depends on a row: no size, no number of rows. Here it is the kind of source alone.
        """
        return self.rows_are.removeprefix("the ")

    @abstractmethod
    def schema(self, columns: Collection[str]) -> pl.Schema:
        """Return the Polars types that tell the same values apart, of at least these columns.

        Raises
        ------
        TypeError, ValueError
            If a column is missing, or of a type that can't be queried.
        UnreadableError
            If the rows can't be opened.
        """

    def filled(self) -> frozenset[str]:
        """Return columns that have a value, and no NaN, in every row, as far as types and transformations say so.

        No row is read. Statistics of such columns share their number of rows: `docs/proofs/shared-sums.md`.
        """
        return frozenset()

    def bin(self, ends: Mapping[str, pl.Series]) -> None:
        """Replace columns by the numbers of their bins, once, before `prepare`: how many of the inner ends they reach.

        Null and NaN become null. Engines that run expressions get a transformation instead.
        """
        msg = (
            f"dimensions must have values here, got bins of {next(iter(ends))!r}.\n\n"
            f"Hint: make a column of whole numbers on {self.rows_are} first, row by row, and list these."
        )
        raise TypeError(msg)

    def keep_parts(self, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, choice: PartChoice) -> None:  # noqa: ARG002
        """Leave rows of listed parts alone, and of each person those in `most` random ones; called before `prepare`.

        Each part is a row of `keys`, in the types of `Work.keys`. The parts in which a person has rows get an order
        that follows from that person's rows and from `choice`. The first ones stay, the same in all queries of a
        release. Rows of nobody may stay. Nothing is read here.
        """
        msg = (
            f"by: {self.rows_are} can't be queried in parts.\n\n"
            "Hint: put the columns of by into the group_by of each query, under max_groups."
        )
        raise TypeError(msg)

    @abstractmethod
    def prepare(self, work: Work | KeyWork, presentation: Presentation = AS_DRAWN) -> Callable[[], Drawn[Released]]:
        """Refuse what can't be released here, and return what is called once, after the charge. Reads nothing itself.

        Its draws are shown as the public keys, then one column per output, as `presentation` has it; of a `KeyWork`
        as the keys that are shown, sorted, and their noisy numbers if requested.
        """

    def prepare_stage(self, work: Work | KeyWork) -> Callable[[], bytes]:
        """Return what is called once, after the charge, and gives what was drawn as Arrow IPC, in this process.

        Later stages follow from that, so no task may draw it again.
        """
        run = self.prepare(work)
        return lambda: run().packed()

    @abstractmethod
    def distinct(self, lists: Sequence[pl.DataFrame]) -> list[int]:
        """Return for each list of public constants how many rows differ, as private ones are compared with them.

        It looks at the constants alone: no private row is read. It is called after `prepare`.

        Parameters
        ----------
        lists
            Public keys, or in one column candidates, without null; named like the private columns whose values are
            compared with them, and typed as in `Work.keys`.
        """

    def picked(self, answer: bytes, keys: int, places: Sequence[int]) -> bytes:
        """Return an answer with other columns after those of keys: of each place among what was drawn, in this order.

        `answer`: as for `unpacked`. `keys`: the number of key columns.
        """
        drawn = in_polars(answer).get_columns()
        columns = [*drawn[:keys], *(drawn[keys + place] for place in places)]
        return _as_ipc(pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)]))

    @abstractmethod
    def unpacked(self, answer: bytes, work: Work | KeyWork, presentation: Presentation) -> Drawn[Released]:
        """Return the input of `Drawn.packed`, also in another process; to be shown in any way."""


class LocalEngine(Engine[pl.DataFrame]):
    """An engine whose histograms, and keys, come to this process and are drawn here."""

    def prepare(self, work: Work | KeyWork, presentation: Presentation = AS_DRAWN) -> Callable[[], Drawn[pl.DataFrame]]:
        if isinstance(work, KeyWork):
            count_people = self.prepare_people_by_key(work)
            return lambda: _drawn_here(work.assemble(*count_people()), work, presentation)
        count = self.prepare_histograms(work)
        return lambda: _drawn_here(work.assemble(count() if work.groups else ()), work, presentation)

    @abstractmethod
    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        """Return what makes the histogram of each spec, in their order, each with a size for every public group."""

    @abstractmethod
    def prepare_people_by_key(self, work: KeyWork) -> Callable[[], tuple[pl.DataFrame, Ints]]:
        """Return what finds every key that somebody has, once, in any order, and the number of people who have it."""

    def unpacked(self, answer: bytes, work: Work | KeyWork, presentation: Presentation) -> Drawn[pl.DataFrame]:
        return _drawn_here(pl.read_ipc(BytesIO(answer)), work, presentation)


def _drawn_here(drawn: pl.DataFrame, work: Work | KeyWork, presentation: Presentation) -> Drawn[pl.DataFrame]:
    return Drawn(partial(_as_ipc, drawn), partial(work.presented, drawn, presentation))


def in_polars(packed: bytes) -> pl.DataFrame:
    """Return what was drawn of a packed one: a file of Arrow IPC, or a stream."""
    return pl.read_ipc(BytesIO(packed)) if packed.startswith(b"ARROW1") else pl.read_ipc_stream(BytesIO(packed))


def _as_ipc(drawn: pl.DataFrame) -> bytes:
    file = BytesIO()
    drawn.write_ipc(file)
    return file.getvalue()
