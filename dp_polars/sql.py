"""Private queries in a database, through Ibis: SQL makes histograms in the database, and this process draws."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, overload
from weakref import ref

from dp_polars._base.calls import called
from dp_polars._base.column_types import must_have
from dp_polars._base.extras import require
from dp_polars._base.silence import silenced
from dp_polars._engines.sql.arithmetic import ABSENT
from dp_polars._engines.sql.counting import histograms
from dp_polars._engines.sql.dialects import TESTED, Common, Places, Select, Written, cast, compiled
from dp_polars._engines.sql.people import in_polars, one_row_per_person, people_by_key
from dp_polars._engines.sql.reading import columns_with_values, differs_between_runs, has_text, refuse_mixed_people
from dp_polars._engines.sql.rows import (
    binned,
    check_types,
    columns_read,
    in_kept_parts,
    public_table,
    schema_of,
)
from dp_polars._frames.publication import Publication, release_with
from dp_polars._release.cached import written
from dp_polars._release.contract import Intervals, KeyWork, LocalEngine, PartChoice, Work
from dp_polars._release.request import AnyRequest, only_counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import polars as pl
    from ibis.expr.types import Table

    from dp_polars._accounting.budget import Budget
    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._base.numbers import Ints
    from dp_polars._frames.cube import Cube
    from dp_polars._frames.cube_query import CubeQuery
    from dp_polars._frames.publication import Charged, ChargedAndShown
    from dp_polars._frames.query import PrivateQuery
    from dp_polars._mechanisms.histograms import Histogram
    from dp_polars._statistics.statistic import Asked

    _Written: TypeAlias = tuple[Common, Any, Places]


__all__ = ["release"]

_ibis: Any = require("ibis", extra="sql")

# The most statements that are cached, and their greatest length: Ibis takes longer to write one than an engine for a
# million rows.
_MOST_WRITTEN, _LONGEST_WRITTEN = 32, 2**20
_TEXTS = ["a", "A", "a ", "á", "a\u0301"]  # some collations treat these as equal


def __dir__() -> list[str]:
    return __all__


@overload
def release(query: CubeQuery, table: Table, **how: Unpack[Charged]) -> Cube: ...
@overload
def release(
    query: Publication, table: Table | Mapping[str, Table], **how: Unpack[ChargedAndShown]
) -> dict[str, Any]: ...
@overload
def release(query: PrivateQuery, table: Table, **how: Unpack[ChargedAndShown]) -> pl.DataFrame: ...
@called
def release(
    query: PrivateQuery | Publication,
    table: Table | Mapping[str, Table],
    *,
    budget: Budget | None = None,
    intervals: Intervals = False,
    min_people: int | None = None,
    sure: bool = False,
    ignore_cache: bool = False,
    unchecked: bool = False,
) -> pl.DataFrame | Cube | dict[str, Any]:
    """Release all outputs of a query once, from the rows of an Ibis table, charged before a row is read.

    The database makes all histograms by one SELECT: codes, contribution limits, distinct people, counts and sums are
    its own SQL. Only histograms come here, for the exact draw. SQL makes no noise. Nothing is created in the
    database, so you need only the right to read.

    Parameters
    ----------
    query
        A query of `dp_polars.protect(…)` without data, by `agg`, `keys` or another method. It has no row operations
        (filter, with_columns, select, join, expressions inside `agg`): do those in Ibis first, row by row. Or a
        publication of such queries, which is charged as one: all or nothing.
    table
        The private rows: an Ibis table expression of DuckDB or Postgres. Everything that made it is your preprocessing.
        Expressions that visibly mix people are refused, but views, files and queries in text are not checked. For a
        publication, the table of all its queries, or a dict of tables by their names.
    budget
        The budget to charge, if the query itself has none.
    unchecked
        As for `dp_polars.protect`: whether to accept any expression of Ibis.
    all others
        As for `PrivateQuery.release`.

    Returns
    -------
    DataFrame
        As for `PrivateQuery.release`. Selected keys are sorted. A query of `cube` returns a `Cube`, without
        `intervals`, `min_people` and `sure`. A publication returns a dict.

    Raises
    ------
    BudgetExceededError, ReleaseError, TypeError, ValueError
        As for `PrivateQuery.release`; also if the expression visibly mixes people, or the engine is not one of the
        tested ones. Nothing is charged then.

    Notes
    -----
    The engine's own hashes of a person's rows, with 63 random bits of this release, decide which rows count. The bits
    are part of the SQL statement. The limits hold whatever these bits are.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> import ibis
    >>> con = ibis.duckdb.connect()
    >>> visits = con.sql("SELECT range AS patient, 'flu' AS diagnosis FROM range(1000)")
    >>> query = dpp.protect("patient").agg(
    ...     dpp.mode("diagnosis", ["flu", "measles"], epsilon=1)
    ... )
    >>> dpp.sql.release(query, visits).item()
    'flu'
    """

    def engine_of(request: AnyRequest[Asked], one: Any, _: object) -> _SqlEngine:  # noqa: ANN401
        engine = _SqlEngine(one, only_counted(request), request.protection.unit or ())
        if not request.pipeline.unchecked:
            for column in refuse_mixed_people(one, request.protection.unit):
                engine.refuse_coarse(column)
        return engine

    asked: dict[str, Any] = {"intervals": intervals, "min_people": min_people, "sure": sure}
    asked |= {"ignore_cache": ignore_cache, "unchecked": unchecked}
    released: pl.DataFrame | Cube | dict[str, Any] = release_with(engine_of, query, table, budget, **asked)
    return released


class _SqlEngine(LocalEngine):
    """The rows of an Ibis table: one SELECT for all histograms. The `unit`'s columns are never cast."""

    rows_are = "the Ibis table"
    step = "statement"
    counts_per_person = True

    def __init__(self, table: Table, only_counted: Collection[str] = (), unit: PrivacyUnit = ()) -> None:
        if not isinstance(table, _ibis.Table):
            kind = f"{type(table).__module__}.{type(table).__name__}"
            msg = f"table must be an Ibis table, got {kind}.\n\nHint: ibis.duckdb.connect(…).table(…)."
            raise TypeError(msg)
        self._backend: Any = table.get_backend()
        name = self._backend.name
        if name not in TESTED:
            msg = (
                f"table must be of one of the tested engines {sorted(TESTED)}, got {name!r}: others may divide, round "
                "or compare in ways of their own.\n\nHint: if Polars reads its tables, as by pl.read_database, "
                "release them there: query.release(frame)."
            )
            raise ValueError(msg)
        self._dialect = TESTED[name]
        self._source = table
        self._table: Any = self._dialect.admit(self._backend, table)
        self._types: dict[str, str] | None = None  # the engine's own types of settled columns
        self._only_counted, self._unit = only_counted, unit

    def mark(self) -> str:
        return str(self._dialect.name)

    @silenced  # drivers' warnings may reveal rows
    def preprocessing(self) -> str | None:
        """Return a digest of the SQL of the transformations: names, constants and texts, on this engine."""
        if not has_text(self._source):
            return None
        return hashlib.sha256(compiled(self._backend, self._source).encode()).hexdigest()

    def schema(self, columns: Collection[str]) -> pl.Schema:
        if "" in (*columns, *self._unit):
            msg = (
                "table: a column that is read must have a name, got one without: no statement can read it.\n\n"
                'Hint: table.rename(place="").'
            )
            raise ValueError(msg)
        self._settle([*columns, *self._unit])  # the unit is read in any case
        return schema_of(self._table, columns, self._only_counted)

    def filled(self) -> frozenset[str]:
        """Return columns without null, of types that have no NaN here."""
        schema, may_be_nan = self._source.schema(), self._dialect.nan_in_decimals
        names = columns_with_values(self._source)
        return frozenset(
            name for name in names if not schema[name].is_floating() and not (may_be_nan and schema[name].is_decimal())
        )

    def bin(self, ends: Mapping[str, pl.Series]) -> None:
        self._table, self._types = binned(self._table, ends), None

    @silenced  # drivers' warnings may reveal rows
    def keep_parts(self, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, choice: PartChoice) -> None:
        self._check(unit, keys.columns)
        self._table = in_kept_parts(self._table, keys, most, unit, choice.secret, self._dialect)

    @silenced  # drivers' warnings may reveal rows
    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        bounds = work if work.per_person is None else work.per_person
        specs = work.specs if work.per_person is None else work.per_person.specs
        self._check(bounds.privacy_unit, columns_read(None, bounds.columns, specs))

        if not work.groups:  # until groups are selected, the statement is tried without groups
            work = replace(work, keys=None)

        def write() -> _Written:
            common, table = Common(is_prepared=differs_between_runs(self._source)), self._table
            if work.per_person is not None:
                table = common.once(one_row_per_person(table, work.per_person, self._dialect, common))
            counted = histograms(table, work, self._dialect, common)
            return common, counted.table, counted.places

        statement, places = self._prepared(["histograms", *self._text_of_rows(), written(work, but="rows")], write)
        return partial(self._histograms, work, places, statement)

    @silenced  # drivers' warnings may reveal rows
    def prepare_people_by_key(self, work: KeyWork) -> Callable[[], tuple[pl.DataFrame, Ints]]:
        self._check(work.privacy_unit, list(work.types))
        statement, _ = self._prepared(
            ["keys", *self._text_of_rows(), written(work, but="rows")],
            lambda: (Common(), people_by_key(self._table, work, self._dialect), ()),
        )
        return lambda: in_polars(self._dialect.fetch(self._backend, statement), work.types)

    def _text_of_rows(self) -> tuple[str, str]:
        return compiled(self._backend, self._table), str(self._table.schema())

    def _prepared(self, about: object, write: Callable[[], _Written]) -> tuple[Select, Places]:
        """Return the statement of `write` for a subject, accepted by the engine. Each connection tries it once."""
        found = self._once(about, write)
        statement = found.statement.sealed()
        if found.answer_of(self._backend) is None:
            self._dialect.check_version(self._backend.version)

            def tables() -> list[Any]:
                common, table, _ = write()
                return [*common.tables.values(), table]

            statement.prepare(self._backend, self._dialect, tables)
            found.asked = ref(self._backend), 0
        return statement, found.places

    def _once(self, about: object, write: Callable[[], _Written]) -> Written:
        """Return the cached statement of `write` for a subject. A new secret seals it each time."""
        cache, key = self._dialect.written, hashlib.sha256(json.dumps(about).encode()).hexdigest()
        found = cache.pop(key, None)
        if found is None:
            common, table, places = write()
            found = Written(Select.of(self._backend, table, common), places)
        if len(found.statement.sql) <= _LONGEST_WRITTEN:
            cache[key] = found
            for oldest in list(cache)[:-_MOST_WRITTEN]:
                cache.pop(oldest, None)
        return found

    @silenced  # drivers' warnings may reveal rows
    def _settle(self, names: Collection[str]) -> None:
        """Find the engine's own types of columns, and cast the columns to the types that Ibis shows."""
        self._backend._run_pre_execute_hooks(self._source)  # tables that Ibis holds in memory
        new = sorted({*names} & {*self._table.columns} - {*self._only_counted, *(self._types or ())})
        if new or self._types is None:
            types = self._dialect.describe(self._backend, self._table, new)
            settled = self._dialect.settled(
                self._table, {name: kind for name, kind in types.items() if name not in self._unit}
            )
            if settled:
                self._table = self._table.mutate(**settled)
                types |= self._dialect.describe(self._backend, self._table, list(settled))
            self._types = (self._types or {}) | types

    def _check(self, unit: PrivacyUnit | None, names: Collection[str]) -> None:
        unit = unit or ()
        for name in unit:
            must_have(name, self._table.columns, "privacy unit {}", "table")
        names = [*(name for name in names if name not in self._only_counted), *unit]
        self._settle(names)
        types = self._types or {}
        found = {name: types[name] for name in dict.fromkeys(names) if name in types}
        check_types(self._dialect, self._table, found, unit)

    def distinct(self, lists: Sequence[pl.DataFrame]) -> list[int]:
        return [*map(self._distinct, lists)]

    @silenced  # drivers' warnings may reveal rows
    def _distinct(self, constants: pl.DataFrame) -> int:
        kinds = [self._table.schema()[name] for name in constants.columns]

        def rows() -> Any:  # noqa: ANN401
            listed = public_table(constants.get_columns(), kinds, self._dialect)
            return listed.drop("number").distinct()

        # No setting of a session changes equality: texts are compared as bytes.
        return self._number(["distinct", list(map(str, kinds)), written(constants)], rows, is_known_again=True)

    @silenced  # drivers' warnings may reveal rows
    def refuse_coarse(self, column: Any) -> None:  # noqa: ANN401
        """Refuse a text column if the engine treats different texts as equal in a transformation. Reads no row."""
        table = column.rel.to_expr()
        self._backend._run_pre_execute_hooks(table)  # tables that Ibis holds in memory
        found = self._dialect.describe(self._backend, table, [column.name])
        check_types(self._dialect, table, found, (column.name,))
        none = table.select(column.name).filter(_ibis.literal(value=False))
        texts = [_ibis.literal(text).cast(column.dtype).name(column.name).as_table() for text in _TEXTS]
        compared = none.union(*texts).group_by(column.name).aggregate()
        if self._number(["coarse", compiled(self._backend, none)], lambda: compared) < len(_TEXTS):
            msg = (
                f"table: the privacy unit {column.name!r} must be compared byte by byte where transformations bring "
                "rows "
                f"together, but the engine takes some of {_TEXTS!a} for one.\n\nHint: a column without a collation."
            )
            raise ValueError(msg)

    def _number(self, about: object, constants: Callable[[], Any], *, is_known_again: bool = False) -> int:
        def write() -> _Written:
            rows = constants()
            return Common(), rows.aggregate(count=cast(rows.count(), "int64")), ()

        found = self._once(about, write)
        number = found.answer_of(self._backend) if is_known_again else None
        if number is None:
            number = int(self._dialect.fetch(self._backend, found.statement.sealed())["count"][0])
            found.asked = ref(self._backend), number
        return number

    def _histograms(self, work: Work, places: Places, statement: Select) -> list[Histogram]:
        cells = self._dialect.fetch(self._backend, statement)
        found = []
        for part, name in places:
            here = (cells["part"] == part) & (cells[name] != ABSENT)
            found.append(work.histogram(cells["group"][here], cells["code"][here], cells[name][here]))
        return found
