"""The plan that the planner writes, and its texts."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import cached_property, partial
from keyword import iskeyword
from pathlib import PurePath
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from unicodedata import normalize

import polars as pl

import dp_polars as dpp
from dp_polars._accounting.budget import Budget
from dp_polars._accounting.claims import in_words
from dp_polars._base.column_types import family, tick
from dp_polars._bins.candidates import grid, size_of
from dp_polars._bins.weights import bounds_of, step_by_default
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._frames.publication import Publication
from dp_polars._frames.query import PrivateQuery
from dp_polars._publish.schema import MORE, TOP, Statistic
from dp_polars._release.request import Request
from dp_polars._release.staged import StagedRequest
from dp_polars.analysis import rows_dropped, synthetic

if TYPE_CHECKING:
    from dp_polars._frames.cube_query import CubeQuery
    from dp_polars._frames.frame import PrivateFrame, PrivateGroupBy

    Tables: TypeAlias = Mapping[str, PrivateFrame | PrivateGroupBy]


T = TypeVar("T")
_WIDTH = 76  # characters of a line of code, so that it fits next to the fields
_QUOTED = re.compile(r"'([^'\\]|\\.)*'|\"([^\"\\]|\\.)*\"")  # one text in quotes, as Python writes it
_MONTH = re.compile(r"\d{4}-\d\d")  # a month stands for its first day
_MONTHS = re.compile(r"[1-9]\d*(mo|q|y)")  # steps that are no fixed number of days
# A column of weights, and the most that they add up to for one person.
_WEIGHTS = re.compile(r"\s*(?P<column>.+?)\s+up\s+to\s+(?P<most>\S+)\s*")
# Two ends, and a step: 0..120, or 0..30 by 0.5.
_RANGE = re.compile(r"\s*(?P<first>\S+?)\s*\.\.\s*(?P<last>\S+)(?:\s+(?:by|step)\s+(?P<step>\S+))?\s*")


Code: TypeAlias = "str | Bracket"


class Bracket(NamedTuple):
    """Code in brackets, each part with what is before it: in one line, or in lines of their own."""

    begin: str
    parts: list[tuple[str, Code]]
    end: str

    def __str__(self) -> str:
        return f"{self.begin}{', '.join(f'{before}{code}' for before, code in self.parts)}{self.end}"


class Written(NamedTuple):
    """A value with the code that makes it."""

    value: object
    code: Code


def public(value: object) -> object:
    return value.value if isinstance(value, Written) else value


class Ends(NamedTuple):
    """Two ends and a step that were typed; what is missing is None."""

    first: object
    last: object
    step: object


def as_code(value: object) -> Code:
    if isinstance(value, Written):
        return value.code
    if isinstance(value, str):
        text = repr(value)
        return text if '"' in value else f'"{text[1:-1]}"'
    if isinstance(value, Decimal):
        return f'Decimal("{value}")'
    if isinstance(value, list):
        return Bracket("[", [("", as_code(item)) for item in value], "]")
    if isinstance(value, tuple):
        return f"({', '.join(str(as_code(item)) for item in value)}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return Bracket("{", [(f"{as_code(name)}: ", as_code(item)) for name, item in value.items()], "}")
    if isinstance(value, pl.Enum):
        return call("pl.Enum", value.categories.to_list())
    return f"pl.{value}" if isinstance(value, pl.DataType) else repr(value)


def call(name: str, /, *arguments: object, **named: object) -> Bracket:
    """Return the code of a call. Names that Python doesn't take, or takes for other ones, are those of a dict."""
    parts = [("", as_code(item)) for item in arguments]
    if all(key.isidentifier() and not iskeyword(key) and key == normalize("NFKC", key) for key in named):
        return Bracket(f"{name}(", [*parts, *((f"{key}=", as_code(item)) for key, item in named.items())], ")")
    return Bracket(f"{name}(", [*parts, ("**", as_code(named))], ")")


def laid_out(code: Code, before: str = "", indent: str = "", after: str = "") -> str:
    line = f"{indent}{before}{code}{after}"
    if isinstance(code, str) or len(line) <= _WIDTH:
        return line
    deeper, lines = indent + " " * 4, [f"{indent}{before}{code.begin}"]
    is_list = all(isinstance(part, str) and not prefix for prefix, part in code.parts)
    for prefix, part in code.parts:
        if is_list and len(lines) > 1 and len(lines[-1]) + len(part) + 2 <= _WIDTH:
            lines[-1] += f" {part},"
        else:
            lines.append(laid_out(part, prefix, deeper, ","))
    return "\n".join([*lines, f"{indent}{code.end}{after}"])


def one(text: str, dtype: pl.DataType) -> object:
    """Return the value of a line for a column of this type; the text itself where it is none, to be refused."""
    text = text.strip()
    if text in ("null", "None"):
        return None
    if _QUOTED.fullmatch(text):
        try:
            return str(ast.literal_eval(text))
        except (SyntaxError, ValueError):
            return text
    for reader in _readers(dtype):
        try:
            return reader(text)
        except (KeyError, ValueError, InvalidOperation):
            continue
    return text


def _readers(dtype: pl.DataType) -> tuple[Callable[[str], object], ...]:
    if isinstance(dtype, pl.Decimal):
        return (int, Decimal)
    if dtype.is_numeric():
        return (int, float)
    of_type: dict[object, Callable[[str], object]] = {
        pl.Boolean: lambda text: {"true": True, "false": False}[text.lower()],
        pl.Date: _date,
        pl.Datetime: partial(_datetime, zone=getattr(dtype, "time_zone", None)),
        pl.Time: time.fromisoformat,
    }
    reader = of_type.get(dtype.base_type())
    return () if reader is None else (reader,)


def _date(text: str) -> date:
    return date.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)


def _datetime(text: str, zone: str | None) -> datetime:
    read = datetime.fromisoformat(text)
    return read.replace(tzinfo=UTC) if zone == "UTC" and read.tzinfo is None else read


def ends(text: str, dtype: pl.DataType) -> Ends | None:
    found = None if family(dtype) == "text" else _RANGE.fullmatch(text)
    if found is None:
        return None
    step = found["step"]
    if step is None and dtype == pl.Date and all(_MONTH.fullmatch(found[end]) for end in ("first", "last")):
        step = "1mo"
    first, last = (one(found[end], dtype) for end in ("first", "last"))
    return Ends(first, last, step if step is None or dtype.is_temporal() else one(step, dtype))


def several(text: str, dtype: pl.DataType) -> object:
    """Return the public values that a text has, one a line: a list, or what its ends stand for."""
    found = ends(text, dtype)
    if found is None:
        return [one(line, dtype) for line in text.splitlines() if line.strip()]
    first, last, step = found
    if isinstance(first, int) and isinstance(last, int) and step is None:
        return range(first, last + 1) if first else Written(range(last + 1), f"range({last + 1})")
    step = ("1d" if dtype == pl.Date else 1) if step is None else step
    if dtype == pl.Date and _MONTHS.fullmatch(str(step)) and isinstance(first, date) and isinstance(last, date):
        days = pl.date_range(first, last, str(step), eager=True)
        return Written(days, call("pl.date_range", first, last, step, eager=True))
    points = grid(first, last, step=step)  # type: ignore[call-overload]  # it says what does not fit
    return Written(points, call("dpp.grid", first, last, step=step))


# What sliders go through: a guarantee, and which part of it an answer gets.
EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20)
DELTAS = tuple(float(f"1e-{power}") for power in range(4, 13))
PARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 20)
# How far off answers may be: what sliders go through, in people or rows, and as shares of the largest answer. All have
# as many steps: marimo takes a slider that is drawn in the place of another one for the same, at the same step.
_COUNTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10_000)
_SHARES = tuple(count * 1e-4 for count in (*_COUNTS[3:16], 1000, 1200, 1500, 2000, 2500, 3000, 4000, 5000))
# Deviations are far less certain than means: nobody can afford a twentieth of theirs in a small group.
_USUAL = {"mean": 0.05, "sum": 0.05, "share": 0.05, "var": 0.25, "std": 0.4}
_FAR = 2.0**1000  # ends that are further off are refused; sliders don't follow them
# What the package calls what is wrong there.
_SAID_OF = {"quantile": "quantiles", "threshold": "threshold", "weights": "weights", "max_weight": "weights"}
_OF_ENDS = ("mean", "sum", "var", "std")


@dataclass(frozen=True)
class Plan:
    """The choices of the user."""

    schema: pl.Schema  # the types of the columns of the file, and of `months`
    file: str | None = None  # its path; None: rows are synthetic
    # The column that tells people apart; None: every row is another person; ...: nobody has said so yet.
    unit: str | EllipsisType | None = None
    # What was typed for the columns that groups are made by, and for those that are read: public values.
    keys: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    # What is asked, each with its part of the guarantee, or with how far off it may be.
    statistics: Mapping[Statistic, object] = field(default_factory=dict)
    by_error: bool = False  # whether it is the latter
    # What all answers together guarantee.
    epsilon: float = 1
    delta: float = 1e-6
    # How much of one person counts.
    max_groups: int = 1
    max_rows_per_group: int = 1
    found: bool = False  # whether limits are found privately in the place of these, unless errors are said
    rows: int = 200  # a public number of rows that the groups which matter have
    months: Mapping[str, str] = field(default_factory=dict)  # columns that are the month of another one
    more: Mapping[str, str] = field(default_factory=dict)  # what was typed for `MORE`, by its kind and the column
    apart: bool = False  # whether each column that groups are made by has a table of its own
    selected: bool = False  # whether groups are selected privately, unless errors are said
    cube: bool = False  # whether there also are tables of people that agree, by each of several columns and by all
    engine: str = "polars"  # what runs the code: "polars" or "duckdb"

    def tables(self) -> dict[str, dict[str, str]]:
        if self.apart and len(self.keys) > 1:
            return {f"by_{name}": {name: text} for name, text in self.keys.items()}
        return {"": dict(self.keys)}

    def named(self) -> dict[str, Statistic]:
        taken: dict[str, Statistic] = {}
        for statistic in self.statistics:
            short = {"n_people": "people", "len": "rows"}.get(statistic.ask, statistic.ask)
            name = short if statistic.column is None else f"{statistic.column}_{short}"
            while name in taken or name in self.keys:
                name += "_"
            taken[name] = statistic
        return taken

    def arguments(self, statistic: Statistic) -> tuple[list[object], dict[str, object]]:
        ask, column = statistic
        plain: list[object] = [] if column is None else [column]
        named: dict[str, object] = {}
        if column is not None and ask != "share":
            text, dtype = self.values.get(column, ""), self.schema[column]
            if ask in _OF_ENDS:
                found = ends(text, dtype)
                low, high, step = (one(text, dtype) or None, None, None) if found is None else found
                # The planner shows the errors of what it requests, so that no bound is found when it is released.
                plain += ["" if end is None else end for end in (low, high)]
                step = self._known_step(low, high, dtype) if step is None else step
                named |= {} if step is None else {"step": step}
            else:
                values = several(text, dtype)
                plain += [min(TOP, size_of(public(values))) or 1] if ask == "top_k" else []
                plain += [self._quantiles(column)] if ask == "quantile" else []
                plain += [values]
            if ask == "first_above":
                named["threshold"] = one(self._more("threshold", column), pl.Int64())
            if ask in MORE["weights"].asks:
                named |= self._counts(column)
        return plain, named

    def _more(self, kind: str, column: str) -> str:
        return self.more.get(f"{kind} {column}", MORE[kind].first)

    def _quantiles(self, column: str) -> list[object]:
        return [one(part, pl.Float64()) for part in self._more("quantiles", column).split(",") if part.strip()]

    def _counts(self, column: str) -> dict[str, object]:
        named = self._weights(column)
        if not named:
            return {}
        by = named.pop("column")
        weighed = dpp.weights(by, **named)  # type: ignore[arg-type]  # it says what does not fit
        return {"counts": Written(weighed, call("dpp.weights", by, **named))}

    def _weights(self, column: str) -> dict[str, object]:
        text = self._more("weights", column)
        found = _WEIGHTS.fullmatch(text)
        if found is None:
            return {"column": text, "max_weight": None} if text.strip() else {}
        dtype = self.schema.get(found["column"], pl.Float64())
        step = {"step": 1} if dtype.is_float() else {}
        return {"column": found["column"], "max_weight": one(found["most"], pl.Float64()), **step}

    def _known_step(self, low: object, high: object, dtype: pl.DataType) -> object:
        """Return the step that follows from the column's type, where a query without data is asked: it has no types."""
        if self.engine == "polars" or dtype.is_integer() or dtype == pl.Boolean:
            return None
        try:
            first, last, _ = bounds_of(low, high, None)  # type: ignore[arg-type]  # it says what does not fit
            step = step_by_default(last - first, dtype, (first, last)) or tick(dtype)
        except (TypeError, ValueError):
            return None  # said where it is asked
        if isinstance(dtype, pl.Decimal) and step is not None:
            return Decimal(step.numerator) / Decimal(step.denominator)
        return None if step is None else float(step)

    def amount(self, statistic: Statistic) -> dict[str, object]:
        wanted = self.statistics[statistic]
        whole = int(wanted) if isinstance(wanted, float) and wanted.is_integer() else wanted
        if not self.by_error:
            return {} if whole == 1 else {"loss_weight": whole}
        if statistic.ask == "first_above":  # whose error is not known beforehand
            return {"epsilon": whole}
        return {"within": whole} | ({"rows": self.rows} if statistic.ask in ("mean", "share", "var", "std") else {})

    def guarantee(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta}

    @property
    def finds_limits(self) -> bool:
        """Whether a part of the guarantee finds the limits: a loss that follows from an error leaves nothing for it."""
        return self.found and not self.by_error and isinstance(self.unit, str)

    @property
    def selects(self) -> bool:
        """Whether a part of the guarantee selects the groups: nobody lists them."""
        return self.selected and not self.by_error and bool(self.keys)

    @property
    def has_cube(self) -> bool:
        """Whether there is a cube: its dimensions are listed, and it has the loss that is left."""
        return self.cube and not (self.by_error or self.selects) and len(self.keys) > 1

    def cube_tables(self) -> list[tuple[str, ...]]:
        return [*((name,) for name in self.keys), tuple(self.keys)]

    def limits(self) -> dict[str, int]:
        if self.unit is None or self.finds_limits:
            return {}
        if not self.keys:
            return {"max_rows": self.max_rows_per_group}
        return {"max_groups": self.max_groups, "max_rows_per_group": self.max_rows_per_group}

    def public_keys(self) -> dict[str, object]:
        listed = {} if self.selects else self.keys
        return {name: several(text, self.schema[name]) for name, text in listed.items()}

    def steps(self, statistic: Statistic) -> list[float]:
        largest: float = 1
        if statistic.ask == "first_above":
            return [*PARTS]
        if statistic.ask not in (*_OF_ENDS, "share"):
            has_weights = statistic.column is not None and statistic.ask in MORE["weights"].asks
            most = self._weights(statistic.column or "").get("max_weight") if has_weights else None
            return [count * most if isinstance(most, (int, float)) and 0 < most <= _FAR else count for count in _COUNTS]
        if statistic.column is not None and statistic.ask != "share":
            found = ends(self.values.get(statistic.column, ""), self.schema[statistic.column])
            low, high = (0, 1) if found is None else found[:2]
            if isinstance(low, (int, float)) and isinstance(high, (int, float)) and -_FAR <= low < high <= _FAR:
                largest = {
                    "mean": high - low,
                    "sum": max(abs(low), abs(high)) * self.rows,
                    "var": (high - low) ** 2 / 4 if high - low <= _FAR**0.5 else 1,
                    "std": (high - low) / 2,
                }[statistic.ask]
        return [int(step) if step == int(step) else step for step in (float(f"{s * largest:.3g}") for s in _SHARES)]

    def usual(self, statistic: Statistic) -> float:
        """Return how far off an answer may be, where nobody has said so yet: a tenth of a group that matters."""
        steps = self.steps(statistic)
        if statistic.ask == "first_above":
            return 1
        usual = _USUAL.get(statistic.ask)
        goal = self.rows / 10 if usual is None else steps[_SHARES.index(usual)]
        return min(steps, key=lambda step: abs(step - goal))


@dataclass(frozen=True)
class Draft:
    """The result of a plan: a query if there can be one, errors field by field, and the code."""

    publication: Publication | None
    messages: Mapping[str, str]
    code: str = ""

    @property
    def query(self) -> PrivateQuery | None:
        return None if self.publication is None else next(iter(self.publication.queries.values()))

    @cached_property
    def explained(self) -> list[dict[str, Any]]:
        return [] if self.query is None else self.query.explain().rows(named=True)


def at_known_limits(query: PrivateQuery) -> PrivateQuery:
    """Return a query whose limits are known: those at which errors are shown, where its release finds them."""
    request = query._request
    if not isinstance(request, StagedRequest):
        return query
    limits = {name: most for of_output in request.limits.values() for name, most in of_output.items()}
    pipeline = replace(request.pipeline, protection=request.protection.with_limits(**limits))
    keys = request.keys if request.groups_are_known else None  # until groups are selected, there is none
    return PrivateQuery(Request(pipeline, keys, request.asks), query._source, None)


def short(number: float) -> str:
    return f"{number:g}".replace("e-0", "e-")


def field_of(statistic: Statistic) -> str:
    return f"statistic {statistic.ask} {statistic.column}"


def values_field_of(statistic: Statistic) -> str:
    """Return the name of the field of the public values that a statistic is about; its own where there are none."""
    return (
        field_of(statistic) if (statistic.column is None or statistic.ask == "share") else f"value {statistic.column}"
    )


def draft(plan: Plan) -> Draft:
    """Return the query of a plan, and what the package says of each field that it refuses. It reads no row."""
    messages: dict[str, str] = {}
    asked = _query(plan, messages)
    if asked is None:
        return Draft(None, messages)
    claims = asked._claims()
    if asked.budget is not None and not asked.budget._state.has_room(claims):
        messages["cost"] = (
            f"These errors cost {in_words(claims)}, which is more than the guarantee.\n\n"
            "Hint: a larger guarantee, larger errors, or smaller limits."
        )
        return Draft(asked, messages)
    return Draft(asked, messages, code_of(plan, [ask.name for ask in next(iter(asked.queries.values()))._asks]))


def title_of(plan: Plan) -> str:
    return "synthetic rows" if plan.file is None else PurePath(plan.file).name


def _query(plan: Plan, messages: dict[str, str]) -> Publication | None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = _tried(messages, "unit", lambda: _frame(plan))
        if frame is None:
            return None
        tried = {name: _fitting(plan, statistic, messages) for name, statistic in plan.named().items()}
        asked = {name: expression for name, expression in tried.items() if expression is not None}
        groups = _groups(plan, frame, messages)
        if groups is None:
            return None
        cube = _tried(messages, "keys", lambda: _cube(plan, frame)) if plan.has_cube else None
        query = _asked(plan, groups, asked, messages, {} if cube is None else {CUBE: cube})
    said = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    if query is not None and said:
        messages["cost"] = "\n\n".join(said)
    return query


def _tried(messages: dict[str, str], name: str, make: Callable[[], T]) -> T | None:
    """Return what is made, or None: then the message of the package stands at the field."""
    try:
        return make()
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        messages[name] = str(error)
    return None


def _frame(plan: Plan) -> PrivateFrame:
    if plan.unit is ...:
        msg = "privacy_unit must be given, and none was.\n\nHint: pick the column that tells people apart."
        raise ValueError(msg)
    rows = pl.LazyFrame(schema=plan.schema)
    budget = Budget(epsilon=plan.epsilon, delta=plan.delta)  # as that of the code, before anything is spent
    frame: PrivateFrame = rows.dp.protect(plan.unit, budget=budget, **plan.limits())  # type: ignore[attr-defined]
    if plan.file is None and plan.unit is not None:
        synthetic({plan.unit: plan.schema[plan.unit]}, people=1, rows=1)  # it says which people can't be made up
    return frame


def _fitting(
    plan: Plan, statistic: Statistic, messages: dict[str, str], agg: Callable[[PrivateExpr], object] | None = None
) -> PrivateExpr | None:
    """Return the output of a statistic, and try it; where it can't be used at all, its public values don't fit."""

    def asked(amount: Mapping[str, object]) -> PrivateExpr:
        plain, named = plan.arguments(statistic)
        expression: PrivateExpr = getattr(dpp, statistic.ask)(
            *map(public, plain), **{name: public(value) for name, value in named.items()}, **amount
        )
        if agg is not None:
            agg(expression)
        return expression

    where = values_field_of(statistic)
    if _tried(messages, where, lambda: asked({})) is None:
        kind = _SAID_OF.get(messages[where].partition(" ")[0].partition("[")[0])
        if kind is not None:
            messages[f"{kind} {statistic.column}"] = messages.pop(where)
        return None
    return _tried(messages, field_of(statistic), lambda: asked(plan.amount(statistic)))


def _groups(plan: Plan, frame: PrivateFrame, messages: dict[str, str]) -> Tables | None:
    if not plan.keys:
        return {"": frame}

    if plan.selects:
        return _tried(
            messages, "keys", lambda: {table: frame.group_by(*names) for table, names in plan.tables().items()}
        )

    def values(name: str, text: str) -> Any:  # noqa: ANN401
        listed = public(several(text, plan.schema[name]))
        frame.group_by({name: listed}).agg(dpp.len())  # it says what does not fit
        return listed

    found = {name: _tried(messages, f"key {name}", partial(values, name, text)) for name, text in plan.keys.items()}
    if any(listed is None for listed in found.values()):
        return None
    tables = {table: {name: found[name] for name in keys} for table, keys in plan.tables().items()}
    return _tried(messages, "keys", lambda: {table: frame.group_by(keys) for table, keys in tables.items()})


CUBE = "cube"  # what the tables that agree are called in the code


def _cube(plan: Plan, frame: PrivateFrame) -> CubeQuery:
    """Return the tables of people that agree, in which each person counts once."""
    limits: Any = {} if plan.unit is None else {"max_groups": 1, "max_rows_per_group": 1}
    dimensions: Any = {name: public(values) for name, values in plan.public_keys().items()}
    return frame.with_limits(**limits).cube(dimensions, tables=plan.cube_tables())


def _asked(
    plan: Plan,
    groups: Tables,
    asked: dict[str, PrivateExpr],
    messages: dict[str, str],
    more: Mapping[str, PrivateQuery],
) -> Publication | None:
    def together(chosen: dict[str, PrivateExpr]) -> Publication:
        answers = {table or "answers": grouped.agg(**chosen) for table, grouped in groups.items()}
        tables = Publication({**answers, **more})
        if not plan.by_error:
            tables = tables.scaled_to(**plan.guarantee())
        for name, query in tables.queries.items():
            if name in answers:
                query._request.presentation(intervals=True)
            query.explain()
        return tables

    if not asked:
        if not plan.statistics:
            messages["statistics"] = "Pick at least one statistic."
        return None
    try:
        return together(asked)
    except (TypeError, ValueError):
        names = plan.named()
        by_itself = {name: lambda output, name=name: together({name: output}) for name in asked}
        checked = {name: _fitting(plan, names[name], messages, agg) for name, agg in by_itself.items()}
        good = {name: output for name, output in checked.items() if output is not None}
    if not good:
        return None
    return _tried(messages, "statistics", lambda: together(good))


def code_of(plan: Plan, names: Collection[str]) -> str:
    stem = "synthetic" if plan.file is None else PurePath(plan.file).stem or "rows"
    guarantee = {name: Written(None, short(part)) for name, part in plan.guarantee().items()}
    budget = call("dpp.Budget", **guarantee, path=f"{stem}-budget.db")
    statistics, keys, has_data = plan.named(), plan.public_keys(), plan.engine == "polars"
    outputs = {}
    for name in names:
        plain, named = plan.arguments(statistics[name])
        named |= plan.amount(statistics[name])
        outputs[name] = Written(None, call(f"dpp.{statistics[name].ask}", *plain, **named))
    begin = "rows.dp.protect" if has_data else "dpp.protect"
    protect = call(begin, plan.unit, budget=Written(None, "budget"), **plan.limits(), dataset=stem)
    shared = [] if plan.by_error else [call(".scaled_to", **guarantee)]
    tables = plan.tables()
    # What groups are made by: names of columns, or their public values.
    by: dict[str, list[object]]
    by = {table: [*of] if plan.selects else [{name: keys[name] for name in of}] for table, of in tables.items()}
    before, steps = (
        [],
        [protect, *(call(".group_by", *one) for one in by.values() if plan.keys), call(".agg", **outputs)],
    )
    if several_tables := (len(tables) > 1 or plan.has_cube):
        grouped = {
            table or "answers": Written(None, Bracket("private.group_by(", call("", *one).parts, ").agg(**outputs)"))
            for table, one in by.items()
        }
        before = [laid_out(protect, "private = "), laid_out(call("dict", **outputs), "outputs = ")]
        if plan.has_cube:
            once = "private" if plan.unit is None else "private.with_limits(max_groups=1, max_rows_per_group=1)"
            before.append(f"once = {once}  # a person counts in one cell of a cube")
            grouped[CUBE] = Written(None, call("once.cube", keys, tables=plan.cube_tables()))
        steps = [call("dpp.publication", grouped)]
    query = [*before, "query = (", *(laid_out(step, indent="    ") for step in [*steps, *shared]), ")"]
    released = "query.release(intervals=True)" if has_data else "dpp.sql.release(query, rows, intervals=True)"
    shown = [*["query"] * several_tables, "output", "error_95", "error_unit", "epsilon", "rho"]
    body = "\n".join(
        [
            "# What all answers together guarantee. The file remembers what is spent of it.",
            laid_out(budget, "budget = "),
            *_rows_code(plan),
            *query,
            laid_out(as_code(shown), "shown = "),
            "with pl.Config(tbl_cols=-1, tbl_rows=-1, tbl_width_chars=160):",
            "    print(query.explain().select(shown))",
            "    # It is charged once: the same statistic about this data set is free.",
            *(
                [f"    for name, table in {released}.items():", "        print(name, table)"]
                if several_tables
                else [f"    print({released})"]
            ),
        ]
    )
    standard = ["import datetime"] * ("datetime." in body) + ["from decimal import Decimal"] * ("Decimal(" in body)
    imports = [*standard, ""] * bool(standard) + ["import ibis"] * (not has_data) + ["import polars as pl", ""]
    imports += ["import dp_polars as dpp"] + ["from dp_polars import analysis"] * (plan.file is None)
    return "\n".join([*imports, "", body, ""])


def _rows_code(plan: Plan) -> list[str]:
    asked = {*plan.keys, *(statistic.column for statistic in plan.statistics)}
    derived = {name: Written(None, _month_code(plan, column)) for name, column in plan.months.items() if name in asked}
    if plan.engine == "polars":
        add = "rows.with_columns"
        if plan.file is None:
            lines = [_synthetic_code(plan, after=".lazy()")]
        else:
            glob = {"glob": False} if any(sign in plan.file for sign in "*?[") else {}
            lines = [laid_out(call("pl.scan_parquet", plan.file, **glob), "rows = ")]
    else:
        add, lines = "rows.mutate", ["database = ibis.duckdb.connect()"]
        if plan.file is None:
            lines += [_synthetic_code(plan), 'rows.write_parquet("synthetic.parquet")']
        # A name of the table, so that asking again is the same statistic.
        name = "synthetic.parquet" if plan.file is None else re.sub(r"[*?\[]", lambda sign: f"[{sign[0]}]", plan.file)
        lines.append(laid_out(call("database.read_parquet", name, table_name="rows"), "rows = "))
    return lines + ([laid_out(call(add, **derived), "rows = ")] if derived else [])


def _month_code(plan: Plan, column: str) -> str:
    """Return the code of the first day of each month: of texts that begin with one such as 2026-01-31."""
    has_time, is_text = isinstance(plan.schema[column], pl.Datetime), plan.schema[column] == pl.String
    if plan.engine == "polars":
        to_date = ".dt.date()" * has_time + '.str.head(10).str.to_date("%Y-%m-%d", strict=False)' * is_text
        return f"{call('pl.col', column)}{to_date}.dt.month_start()"
    to_date = ".date()" * has_time + '.substr(0, 10).try_cast("date")' * is_text
    return f'rows[{as_code(column)}]{to_date}.truncate("M")'


def _synthetic_code(plan: Plan, after: str = "") -> str:
    """Return the code that makes synthetic rows of the schema, with those public values that its columns can hold."""

    def held(name: str, text: str) -> object:
        dtype = plan.schema[name]
        listed = several(text, dtype)
        synthetic({f"{name}_": pl.Int64(), name: dtype}, people=1, rows=1, values={name: public(listed)})
        return listed

    typed = {name: text for name, text in {**plan.values, **plan.keys}.items() if name not in plan.months}
    tried = {name: _tried({}, name, partial(held, name, text)) for name, text in typed.items()}
    values = {name: listed for name, listed in tried.items() if listed is not None}
    unit = {} if plan.unit is None else {"privacy_unit": plan.unit}
    schema = {name: dtype for name, dtype in plan.schema.items() if name not in plan.months}
    rows = call("analysis.synthetic", schema, people=5000, rows=15_000, values=values, **unit)
    return laid_out(rows, "rows = ", after=after)


def dropped_by_limits(
    plan: Plan,
    *,
    people: int,
    rows_each: float,
    skew: float,
    max_groups: Sequence[int | None],
    max_rows_per_group: list[int],
) -> pl.DataFrame:
    if not isinstance(plan.unit, str):
        msg = "privacy_unit must be given, for each person has one row otherwise: limits drop nothing."
        raise ValueError(msg)
    columns = [name for name in plan.schema if name == plan.unit or name in plan.keys]
    values = {name: public(listed) for name, listed in plan.public_keys().items()}
    rows = synthetic(
        {name: plan.schema[name] for name in columns},
        people=people,
        rows=round(people * rows_each),
        values={name: listed for name, listed in values.items() if name != plan.unit},
        privacy_unit=plan.unit,
        skew=skew,
    )
    return rows_dropped(
        rows, plan.unit, by=list(plan.keys), max_groups=max_groups, max_rows_per_group=max_rows_per_group
    )
