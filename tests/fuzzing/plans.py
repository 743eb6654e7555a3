"""Plans before `protect`, as text: one to four transformations of rows of all types, whose unit is one column or two.

Nothing here knows which of them mix people: the check must. A plan that it accepts is run with and without one person.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import hypothesis.strategies as st
import polars as pl
from polars import selectors as cs

from dp_polars._sources.marks import Reading
from dp_polars._sources.plans import preprocessing_of
from tests.fuzzing.expressions import KINDS, Case, Columns, evaluated, text_of, type_of
from tests.helpers.needs import IS_OLD
from tests.registry import ENGINES, UNITS

# What is done with an expression among one person's rows. `{c}` is any column, `{by}` names the unit.
OF_GROUPS = [
    *("{e}", "({e}).{fn}()", "({e}).sort().{fn}()", "({e}).sort_by({c}).{fn}()", "({e}).sort().{fn}().max()"),
    *(
        "({e}).filter({c}.is_not_null()).{fn}()",
        "({e}).sort_by({c}).drop_nulls().{fn}()",
        "({e}).unique(maintain_order=True).{fn}()",
    ),
    *("({e}).sort_by({c}, descending=True).head(2).{fn}()", "({e}).sort_by({c}).{fn}().sum()", "({e}).sort_by({c})"),
    *(
        "({e}).unique(maintain_order=True).sort().{fn}()",
        "({e}).sort_by({c}).{fn}().implode()",
        "({e}).drop_nulls().{fn}()",
    ),
    *("({e}).filter({c} == {c}.max()).{fn}()", "({e}).get(0)", "({e}).rank().sum()", "({e}).top_k(2).{fn}()"),
]
OF_ROWS = [
    *("({e}).{fn}().over({by})", "({e}).{fn}().over({by}, {c})", "({e}).{fn}().over({by}, order_by={c})"),
    *("({e}).over({by})", "({e}).{fn}().over({by}, order_by={c}, descending=True)", "{e} - ({e}).{fn}().over({by})"),
    *("({e}).{fn}().over({by}, {c}.is_null(), order_by={c})", "({e}).rolling_sum(2).{fn}().over({by}, order_by={c})"),
    *("({e}).{fn}().over({by}, mapping_strategy='join')", "({e}).{fn}().over({by}, mapping_strategy='explode')"),
    *("({e}).shift(fill_value={c}.max()).over({by})", "pl.when({c}.is_null()).then(({e}).{fn}().over({by}))"),
    *("({e}).{fn}().over({c})", "({e}).{fn}()", "({e}).{fn}().over({by}, ({e}).{fn}())"),
    *("({e}).is_in({c}.implode().over({by}))", "({e}).{fn}().over({c}).max().over({by})"),
    *("({e}).interpolate_by({c}).over({by})", "({e}).{fn}().rolling({c}, period='2i').over({by})"),
]
FUNCTIONS = [
    *(
        "sum",
        "min",
        "max",
        "n_unique",
        "len",
        "count",
        "null_count",
        "median",
        "any",
        "all",
        "mode().sort",
        "mean",
        "product",
    ),
    *(
        "first",
        "last",
        "arg_max",
        "diff",
        "shift",
        "cum_sum",
        "cum_max",
        "rank",
        "cum_count",
        "unique().sort",
        "std",
        "kurtosis",
    ),
    *("var", "is_first_distinct", "is_duplicated", "has_nulls", "implode", "drop_nulls", "forward_fill", "pct_change"),
    *("rle_id", "sort", "cum_min", "reverse", "interpolate", "peak_max", "arg_sort", "entropy", "to_physical", "hash"),
    *(
        "value_counts().sort",
        "unique_counts",
        "rle",
        "is_unique",
        "backward_fill",
        "arg_unique",
        "skew",
        "str.join",
        "is_sorted",
    ),
]
# Transformations of `{f}`. `{a}` is an aggregation, `{w}` a window, `{b}` a condition, `{o}` another table of people,
# `{u}` the unit's names in a list, `{n}` a new name. What gives up the order of rows (`{m}`) may do so at the end.
BY_ROW = [
    *("{f}.with_columns({n}={e})", "{f}.with_columns({e})", "{f}.filter({b})", "{f}.remove({b})", "{f}.drop_nans()"),
    *("{f}.select({by}, {n}={e})", "{f}.drop_nulls({c})", "{f}.fill_null(0)", "{f}.fill_nan(0)", "{f}.fill_null({e})"),
    *("{f}.sort({c}, maintain_order={m})", "{f}.sort({c}, {d}, descending=True, nulls_last=True, maintain_order={m})"),
    *("{f}.explode({c})", "{f}.unpivot([{c}], index={u})", "{f}.unnest({c})", "{f}.drop({c})", "{f}.cache()"),
    *("{f}.rename({{{c}.meta.output_name(): '{n}'}})", "{f}.cast({{{c}.meta.output_name(): pl.String}})"),
    *("pl.concat([{f}, {f}.filter({b})])", "pl.concat([{f}, {f}.drop({c})], how='diagonal')"),
    *("{f}.join(h, on='c0', how='{how}', {mj})", "{f}.join(h, how='cross', suffix='_h', {mj})"),
    *("{f}.sort('c0', maintain_order=True).join_asof(h.sort('c0'), on='c0')", "{f}.with_columns(p={e})"),
    *(
        "{f}.sql('select * from self where c0 is not null')",
        "{f}.with_columns({c}.cast(pl.String).cast(pl.Categorical))",
    ),
    *("{f}.rename(dict(p='c0', c0='p'))", "{f}.with_columns(pl.col({u}).fill_null({e}))"),
]
BY_PERSON = [
    *("{f}.with_columns({n}={w})", "{f}.filter({b_of_w})", "{f}.with_columns({w})", "{f}.with_columns({w}, {n}={w2})"),
    *("{f}.group_by({by}, maintain_order={m}).agg({n}={a})", "{f}.group_by({by}, maintain_order={m}).agg({n}={a})"),
    *("{f}.group_by({by}, {c}, maintain_order={m}).agg({n}={a})", "{f}.group_by({by}, maintain_order={m}).{of_groups}"),
    *(
        "{f}.group_by({by}, {c}, maintain_order={m}).{of_groups}",
        "{f}.group_by({by}, maintain_order={m}).agg(pl.all())",
    ),
    *("{f}.group_by({by}, maintain_order={m}).having({b_of_a}).agg({c}, {n}={a})", "{f}.unique(maintain_order={m})"),
    *("{f}.unique([*{u}, {c}.meta.output_name()], keep='{keep}', maintain_order={m})", "{f}.select({by}, {n}={w})"),
    *("{f}.unique({u}, keep='{keep}', maintain_order={m})", "{f}.join({o}, on={u}, how='{how}', {mj})"),
    *("{f}.join({o}, on=[*{u}, 'c0'], how='{how}', {mj})", "{f}.join({o}, on={u}, how='full', coalesce=True, {mj})"),
    *("{f}.sort({c}, maintain_order=True).rolling({c}, period='2i', group_by={u}).agg({n}={a})",),
    *("{f}.sort({c}, maintain_order=True).group_by_dynamic({c}, every='2i', group_by={u}).agg({n}={a})",),
    *("{f}.update({o}.select({by}, 'c0'), on={u}, how='{how}')", "{f}.sort({c}, {d}, maintain_order=True)"),
    "{f}.sort('c0', maintain_order=True).join_asof({o}.sort('c0', maintain_order=True), on='c0', by={u}, {asof})",
    "pl.concat([{f}.select({by}, 'c0'), {o}.select({by}, 'c0')])",
]
# At the end, as they give up the order of rows.
AT_THE_END = [
    "{f}.select({by}, 'c0').sort('c0').merge_sorted({o}.select({by}, 'c0').sort('c0'), 'c0')",
    *(
        "{f}.join_where({o}, pl.col('p') == pl.col('p_right'))",
        "{f}.join_where(h.rename(dict(c0='h0')), c0 >= pl.col('h0'))",
    ),
    *("{f}.sql('select p, sum(c0) as x from self group by p')", "{f}.unique({u}, keep='none')"),
    *("{f}.sql('select *, max(c0) over (partition by p) from self')", "{f}.sql('select distinct p, c0 from self')"),
]
OF_ALL = [
    *("{f}.head(3)", "{f}.tail(3)", "{f}.slice(1, 3)", "{f}.top_k(3, by={c})", "{f}.reverse()", "{f}.shift(1)"),
    *("{f}.gather_every(2)", "{f}.with_row_index()", "{f}.interpolate()", "{f}.group_by({c}).agg({by_first}, {n}={a})"),
    *(
        "{f}.unique([{c}.meta.output_name()], keep='first', maintain_order=True)",
        "{f}.join({o}, on='c0')",
        "{f}.join({f}.group_by({c}).agg({n}={a}), on={c})",
    ),
    *(
        "{f}.set_sorted({c}.meta.output_name())",
        "{f}.max()",
        "{f}.fill_null(strategy='forward')",
        "{f}.shift(fill_value=0)",
    ),
    *("pl.concat([{f}, {f}.select({n}={c}.sort())], how='horizontal')", "{f}.map_batches(lambda rows: rows.head(2))"),
    *("{f}.sort({c}).rolling({c}, period='2i').agg({by_first}, {n}={a})", "{f}.join({o}.drop({u}), on='c0')"),
    *("{f}.join({f}.select({n}={a}), how='cross')", "{f}.limit(3)", "{f}.bottom_k(3, by={c})"),
    *("{f}.join({f}.filter({b}).drop({u}), on='c0', how='semi')", "{f}.group_by({c}).map_groups(lambda x: x, None)"),
    "{f}.sort('c0').join_asof({o}.sort('c0'), on='c0', suffix='_o')",
]
_OF_GROUPS = ["first()", "last()", "max()", "min()", "sum()", "mean()", "n_unique()", "len()", "head(2)", "tail(1)"]
_OF_GROUPS += ["median()", "quantile(0.5)", "count()", "all()"]
_HOW = ["inner", "left", "right", "full", "semi", "anti"]
# Kinds of which sums don't depend on their order but in the last bits.
_FLOATS = [0.5, -1.25, 3.0, 0.1, 1000.5, 0.0, -0.0, math.nan, math.inf, 2.5]
_OF_FLOATS = {"Float64", "Float32"}
_NUMBERS = itertools.count()
# Polars 1 crashes on some functions, and on some of other types.
_PLAIN = ["Boolean", "Date", "Datetime", "Decimal", "Enum", "Float32", "Float64", "Int64", "Int8", "String", "UInt32"]
OF_ROWS_KINDS = _PLAIN if IS_OLD else sorted(KINDS)
OF_UNITS = [name for name in sorted(UNITS) if not IS_OLD or name in _PLAIN]


@dataclass(frozen=True)
class Plan:
    """A plan on tables of one release, their rows, and whose they are."""

    kinds: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    people: tuple[int | None, ...]
    text: str

    @property
    def unit(self) -> tuple[str, ...]:
        return ("p", "q")[: len(self.units)]

    def persons(self, people: tuple[int | None, ...]) -> list[pl.Series]:
        """The columns of the unit: of two, each is one that several people share."""
        found = []
        for place, (name, kind) in enumerate(zip(self.unit, self.units, strict=True)):
            dtype, values = UNITS[kind]
            parts = [one if len(self.units) == 1 or one is None else one >> place & 1 for one in people]
            values = [None if one is None else values[one % len(values)] for one in parts]
            found.append(pl.Series(name, values, dtype=dtype, strict=False))
        return found

    def tables(self) -> dict[str, pl.DataFrame]:
        """Rows of people, another table about them, and a public one."""
        rows = Case(self.kinds, self.rows, "").frame(*range(len(self.rows)))
        few = rows.head(4)
        more = self.people[::-1][: few.height]
        return {
            "f": pl.DataFrame(self.persons(self.people[: rows.height])).hstack(rows),
            "g": pl.DataFrame(self.persons(more)).hstack(few.select("c0", y0=pl.int_range(pl.len()) % 3)),
            "h": few.select("c0").unique(maintain_order=True).with_columns(k=pl.int_range(pl.len())),
        }

    def frame(self, tables: dict[str, pl.DataFrame], text: str | None = None) -> pl.LazyFrame | None:
        return frame_of(self.text if text is None else text, {name: one.lazy() for name, one in tables.items()})


def frame_of(text: str, frames: dict[str, pl.LazyFrame]) -> pl.LazyFrame | None:
    made = evaluated(text, **frames)
    return made if isinstance(made, pl.LazyFrame) else None


def schema_of(frame: pl.LazyFrame | None) -> pl.Schema | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return None if frame is None else frame.collect_schema()
        except (Exception, pl.exceptions.PanicException):  # whatever: of types alone
            return None


@dataclass
class Tally:
    """How many transformations were tried, which were accepted, how many plans there were, and runs compared."""

    tried: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    plans: int = 0
    compared: int = 0


Check = Callable[[pl.LazyFrame, tuple[str, ...]], tuple[Reading, ...]]


def checked(frame: pl.LazyFrame, unit: tuple[str, ...]) -> tuple[Reading, ...]:
    return preprocessing_of(frame, unit)[0]


def unchecked(frame: pl.LazyFrame, unit: tuple[str, ...]) -> tuple[Reading, ...]:
    return preprocessing_of(frame, unit, unchecked=True)[0]


def readings(check: Check, frame: pl.LazyFrame | None, unit: tuple[str, ...]) -> tuple[Reading, ...] | None:
    """What an accepted plan reads; None of a refused one."""
    schema = schema_of(frame)
    if frame is None or schema is None or not {*unit} <= {*schema}:
        return None
    try:
        return check(frame, unit)
    except (ValueError, pl.exceptions.PolarsError):
        return None


def with_step(
    random: Random, columns: Columns, plan: Plan, text: str, number: int, *, is_last: bool
) -> tuple[str, str]:
    """A transformation more, and what it is made of."""
    names, by = [name for name, _ in columns], ", ".join(map(repr, plan.unit))
    template = random.choice(random.choices([BY_ROW, BY_PERSON, OF_ALL, AT_THE_END], [5, 8, 2, is_last])[0])
    gives_up = is_last and random.random() < 0.5

    def value(steps: int = 2) -> str:
        return text_of(random, columns, random.randrange(steps + 1), likely=IS_OLD)

    def filled(templates: list[str]) -> str:
        return random.choice(templates).format(e=value(), c=random.choice(names), fn=random.choice(FUNCTIONS), by=by)

    def chosen(make: Callable[[], str], is_right: Callable[[pl.DataType | None], bool]) -> str:
        """What has a type, if a few tries find it."""
        for _ in range(4):
            if is_right(type_of(columns, found := make())):
                break
        return found

    def any_type(dtype: pl.DataType | None) -> bool:
        return dtype is not None

    def condition(make: Callable[[], str]) -> str:
        of = chosen(make, any_type)
        return (
            of
            if type_of(columns, of) == pl.Boolean
            else f"({of}) {random.choice(['>=', '==', '<'])} {random.choice(names)}"
        )

    parts = {
        "f": text, "e": value(3), "c": random.choice(names), "by": by, "u": f"[{by}]", "n": f"x{number}",
        "b": condition(lambda: value(3)), "how": random.choice(_HOW), "of_groups": random.choice(_OF_GROUPS),
        "o": random.choice(["g", "f", text]), "keep": random.choice(["first", "last", "none"]),
        "d": random.choice(names), "m": not gives_up, "mj": f"maintain_order={'none' if gives_up else 'left_right'!r}",
        "asof": f"strategy={random.choice(['backward', 'forward', 'nearest'])!r}",
        "by_first": ", ".join(f"pl.col('{one}').first()" for one in plan.unit),
    }  # fmt: skip
    if "{a" in template or "_of_a}" in template:
        parts |= {"a": chosen(lambda: filled(OF_GROUPS), any_type), "b_of_a": condition(lambda: filled(OF_GROUPS))}
    if "{w" in template or "_of_w}" in template:
        parts |= {name: chosen(lambda: filled(OF_ROWS), any_type) for name in ("w", "w2")}
        parts |= {"b_of_w": condition(lambda: filled(OF_ROWS))}
    return template.format(**parts), template


def text_of_plan(random: Random, plan: Plan, steps: int, check: Check = checked, tally: Tally | None = None) -> str:
    """A plan of so many transformations that fit and that the check accepts, as far as a few tries find them."""
    text, tables, tally = "f", plan.tables(), tally or Tally()
    for number in range(steps):
        columns = tuple((schema_of(plan.frame(tables, text)) or {}).items())
        for _ in range(4):
            longer, template = with_step(random, columns, plan, text, number, is_last=number == steps - 1)
            if not {*plan.unit} <= {*(schema_of(made := plan.frame(tables, longer)) or ())}:
                continue
            tally.tried += 1
            if readings(check, made, plan.unit) is not None:
                text = longer
                tally.accepted[template] += 1
                break
    return text


def plans(check: Check = checked, tally: Tally | None = None) -> st.SearchStrategy[Plan]:
    @st.composite
    def drawn(draw: st.DrawFn) -> Plan:
        kinds = tuple(draw(st.lists(st.sampled_from(OF_ROWS_KINDS), min_size=1, max_size=3)))
        units = tuple(draw(st.lists(st.sampled_from(OF_UNITS), min_size=1, max_size=2)))
        values = [[None, *(_FLOATS if kind in _OF_FLOATS else KINDS[kind][1])] for kind in kinds]
        rows = draw(st.lists(st.tuples(*map(st.sampled_from, values)), min_size=4, max_size=10))
        people = draw(st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, None]), min_size=10, max_size=10))
        number, steps = draw(st.integers(0, 2**64 - 1)), draw(st.integers(1, 4))
        plan = Plan(kinds, units, tuple(rows), tuple(people), "f")
        random = Random(repr((plan, number)))
        return Plan(
            *(getattr(plan, one) for one in ("kinds", "units", "rows", "people")),
            text_of_plan(random, plan, steps, check, tally),
        )

    return drawn()


def rows_of(frame: pl.LazyFrame, unit: tuple[str, ...], person: str, engine: str) -> frozenset[Any]:
    """The rows of everybody else, and how often each is there; texts for categories."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = frame.collect(engine=engine).with_columns((cs.categorical() - cs.enum()).cast(pl.String))
    whose = rows.select(unit).rows()
    kept = [not any(one is None or one != one for one in of) and repr(of) != person for of in whose]
    return frozenset(
        Counter(repr(_rounded(row)) for row, is_kept in zip(rows.rows(), kept, strict=True) if is_kept).items()
    )


def _rounded(value: Any) -> Any:
    """The value without the last bits of floats, which follow from the order in which they are added."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, list):  # of `unique`, an engine decides the order
        return sorted(map(_rounded, value), key=repr)
    return tuple(map(_rounded, value)) if isinstance(value, tuple) else value


def compare(plan: Plan, check: Check = checked, tally: Tally | None = None) -> None:
    """See that the rows of everybody else are the same without one person, if the plan is accepted."""
    tally, tables = tally or Tally(), plan.tables()
    frame = plan.frame(tables)
    read = readings(check, frame, plan.unit)
    if read is None or plan.text == "f":
        return
    tally.plans += 1
    of_people = [one for one in read if one.memory is not None and "k" not in one.memory.columns]
    if any(one.computed_by or one.columns is None for one in of_people):  # whose rows they are is another query
        return
    whose = {"f": plan.unit, "g": plan.unit}
    for one in of_people:
        whose["g" if "y0" in one.memory.columns else "f"] = tuple(dict.fromkeys(one.columns))
    if len({len(names) for names in (plan.unit, *whose.values())}) > 1:
        return
    for person in [*dict.fromkeys(map(repr, tables["f"].select(whose["f"]).drop_nulls().rows()))][:2]:
        without = tables | {name: _without(tables[name], whose[name], person) for name in ("f", "g")}
        for engine in ENGINES:
            whole, others = set[frozenset[Any]](), set[frozenset[Any]]()
            for _ in range(4):  # the order within a `mode` differs each time, for one: any of what comes will do
                try:
                    whole.add(rows_of(plan.frame(_recoded(tables, 1)), plan.unit, person, engine))
                    others.add(rows_of(plan.frame(_recoded(without, -1)), plan.unit, person, engine))
                except (Exception, pl.exceptions.PanicException):  # whatever: it is charged, and nothing is said
                    break
                if not whole.isdisjoint(others):
                    break
            tally.compared += bool(others)
            assert not others or not whole.isdisjoint(others), said(plan, person, engine, whole, others)


def said(plan: Plan, person: str, engine: str, *found: set[frozenset[Any]]) -> str:
    one, other = (dict(next(iter(rows))) for rows in found)
    changed = {
        row: (n, other.get(row, 0))
        for row, n in {**dict.fromkeys(other, 0), **one}.items()
        if one.get(row) != other.get(row)
    }
    return f"without {person}, others have other rows ({engine}): {changed} of {plan}"


def _without(table: pl.DataFrame, whose: tuple[str, ...], person: str) -> pl.DataFrame:
    """The rows of all others, built anew: a slice would still hold a person's values."""
    kept = [place for place, row in enumerate(table.select(whose).rows()) if repr(row) != person]
    return pl.DataFrame([pl.Series(one.name, one.gather(kept).to_list(), dtype=one.dtype) for one in table])


def _recoded(tables: dict[str, pl.DataFrame], step: int) -> dict[str, pl.DataFrame]:
    """The same tables: another order in which categories came first gives them other numbers."""
    fresh = pl.Categorical(pl.Categories(f"of plan {next(_NUMBERS)}"))
    texts = [
        one.cast(pl.String).unique().sort() for table in tables.values() for one in table if one.dtype == pl.Categorical
    ]
    known = [pl.Series(one[::step], dtype=fresh) for one in texts[::step]]
    assert len(known) == len(texts)
    return {name: table.with_columns(cs.categorical().cast(pl.String).cast(fresh)) for name, table in tables.items()}
