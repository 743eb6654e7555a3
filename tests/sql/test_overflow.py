"""No number, time or text that a column may hold makes an error of steps that the gate takes."""

from __future__ import annotations

import datetime as dt
import random
from itertools import permutations

import pytest

from tests.helpers.needs import need
from tests.sql.tools import MARKS, TYPES, need_ibis

need_ibis()
need("duckdb")

import ibis  # noqa: E402

from dp_polars._relational.steps import refuse_unsafe_steps  # noqa: E402
from tests.sql.test_gate import run  # noqa: E402

pytestmark = MARKS

INTEGERS = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt64"]
FLOATS = ["Float32", "Float64"]
DECIMALS = ["Decimal", "wide Decimal", "Int128", "any Decimal"]
NUMBERS = [*INTEGERS, *FLOATS, *DECIMALS]
TIMES = ["Date", "Datetime", "Datetime in UTC", "Datetime in ns", "Datetime in s"]
CLOCK = ["Time", *TIMES[1:]]
MORE = {
    "duckdb": {
        "UInt8": "UTINYINT",
        "UInt64": "UBIGINT",
        "Int128": "HUGEINT",
        "Datetime in UTC": "TIMESTAMPTZ",
        "Datetime in ns": "TIMESTAMP_NS",
        "Datetime in s": "TIMESTAMP_S",
    },
    "postgres": {"any Decimal": "numeric", "Datetime in UTC": "timestamptz"},
    "sqlite": {"Int8": "TINYINT", "Int16": "SMALLINT", "Date": "DATE", "Datetime": "TIMESTAMP"},
    "datafusion": {"UInt64": "BIGINT UNSIGNED"},
}


def ends(bits):
    return [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -1, 0, 1]


FLOAT = ["1.7e308", "-1.7e308", "5e-324", "-5e-324", "0", "1e-200", "1e200", "2.5", "-2.5", "'inf'", "'-inf'", "'nan'"]
NEAR = {"Date": ["'0001-01-01'", "'9999-12-31'", "'1999-12-31'"]}
NEAR |= {name: ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'1999-12-31 23:59:59'"] for name in TIMES[1:]}
VALUES = {
    **{f"Int{bits}": ends(bits) for bits in (8, 16, 32, 64, 128)},
    **{f"UInt{bits}": [0, 1, 2**bits - 1] for bits in (8, 64)},
    "Float32": ["3.4e38", "-3.4e38", "1e-45", "0", "2.5", "'inf'", "'-inf'", "'nan'"],
    "Float64": FLOAT,
    "Decimal": ["99999999.99", "-99999999.99", "0.01", "0"],
    "wide Decimal": [f"'{'9' * 32}.999999'", f"'-{'9' * 32}.999999'", "'0.000001'", "0"],
    "any Decimal": ["'nan'", "'infinity'", "'-infinity'", "'1e131071'", "'1e-16383'", "2.5"],
    "String": ["''", "'a'", "'-'", "'%_'", "'é'", "'99999999999999999999'", "'" + "xa" * 500 + "'"],
    "Boolean": ["true", "false"],
    "Time": ["'00:00:00'", "'23:59:59.999999'"],
}
FAR = {
    "duckdb": {
        "Date": ["'5881580-07-10'", "'5877642-06-25 (BC)'", "'infinity'", "'-infinity'"],
        "Datetime": ["'294247-01-10 04:00:54.775806'", "'290309-12-22 (BC) 00:00:00'", "'infinity'", "'-infinity'"],
        "Datetime in UTC": ["'294247-01-10 04:00:54.775806+00'", "'290309-12-22 (BC) 00:00:00+00'", "'infinity'"],
        "Datetime in ns": ["'1677-09-22'", "'2262-04-11 23:47:16'", "'infinity'"],
        "Datetime in s": ["'0001-01-01'", "'294246-01-01'", "'infinity'"],
        "Time": ["'24:00:00'"],
    },
    "postgres": {
        "Date": ["'5874897-12-31'", "'4713-01-01 BC'", "'infinity'", "'-infinity'"],
        "Datetime": ["'294276-12-31 23:59:59.999999'", "'4713-01-01 BC'", "'infinity'", "'-infinity'"],
        "Datetime in UTC": ["'294276-12-31 23:59:59.999999'", "'4713-01-02 BC'", "'infinity'", "'-infinity'"],
        "Decimal": ["'nan'"],
        "wide Decimal": ["'nan'"],
        "Time": ["'24:00:00'"],
    },
    # Integers of 64 bits are held by columns of all sizes, and texts are what their columns say.
    "sqlite": {
        **{column: [str(2**63 - 1), str(-(2**63)), "7"] for column in ("Int8", "Int16", "Boolean")},
        "Float64": ["9e999", "-9e999"],
        "String": ["CAST(x'ff' AS TEXT)"],
    },
    "datafusion": {
        "Date": [f"arrow_cast(CAST({days} AS INT), 'Date32')" for days in ends(32)],
        "Datetime": [f"arrow_cast(CAST({at} AS BIGINT), 'Timestamp(Microsecond, None)')" for at in ends(64)],
    },
}
ENDS = dt.date(1900, 1, 1), dt.date(2100, 1, 1)


def near(at):
    """Times that nanoseconds reach; null for others."""
    low, high = (dt.datetime(end.year, 1, 1) for end in ENDS) if at.type().is_timestamp() else ENDS
    return ibis.ifelse(at.between(low, high), at, None)


# fmt: off
by = [(n, unit) for unit in ("days", "months", "years", "weeks") for n in (1, 3, 10**4, 10**6, 2 * 10**9)]
MADE = {
    "arithmetic": (
        NUMBERS,
        [
            *(lambda x, n=n: x + n for n in (1, 100, 1000, 2**31, 2**62, 0.5, 1e300)),
            *(lambda x, n=n: x - n for n in (1, 200, 2**31, 2**62, 0.01, 1e300)),
            *(lambda x, n=n: x * n for n in (2, 100, 300, 2**31, 2**62, -1, 0, 0.01, 100.0, 1e300, 1e-300)),
            *(lambda x, n=n: x / n for n in (3, -1, 0.1, 1e300, 1e-300)),
            *(lambda x, n=n: x // n for n in (1, -1, 3)),
            *(lambda x, n=n: x % n for n in (-1, 7, 0.3)),
            *(lambda x, n=n: x**n for n in (0, 1, 2, 9)),
            *(lambda x, n=n: x.round(n) for n in (0, 2, 20, 308, -1, -2, -300, -308)),
            lambda x: -x, lambda x: x.abs(), lambda x: x.sign(), lambda x: x + x, lambda x: x - x, lambda x: x * x,
            lambda x: x * x * x, lambda x: x / x.nullif(0), lambda x: x % x.nullif(0), lambda x: 3 / x.nullif(0),
            lambda x: x // x.nullif(0), lambda x: 1 - x, lambda x: x.round(), lambda x: x.ceil(), lambda x: x.floor(),
            lambda x: -x.cast("int64") + 1, lambda x: x.cast("int64") * 100, lambda x: x.cast("float64") * 10,
        ],
    ),
    "functions": (
        NUMBERS,
        [
            lambda x: x.ln(), lambda x: x.sqrt(), lambda x: x.exp(), lambda x: x.log2(), lambda x: x.log10(),
            lambda x: x.clip(1, 100).ln(), lambda x: x.clip(5e-324).ln(), lambda x: x.clip(5e-324).log2(),
            lambda x: x.clip(5e-324).log10(), lambda x: x.clip(0).sqrt(), lambda x: x.clip(-700, 700).exp(),
            lambda x: x.hash(), lambda x: x.hash() % 10, lambda x: x.hash().abs(), lambda x: x.bucket([0, 1, 5]),
        ],
    ),
    "bits": (INTEGERS, [lambda x: x & 3, lambda x: x | 1, lambda x: x ^ 1, lambda x: ~x, lambda x: (x & 3) * 30]),
    "NaN": (FLOATS, [lambda x: x.isnan(), lambda x: x.isinf()]),
    "casts": (
        [*NUMBERS, "Boolean", "String", *TIMES, "Time"],
        [
            lambda x, to=to, how=how: getattr(x, how)(to)
            for to in ("int8", "int16", "int32", "int64", "float32", "float64", "decimal(5,2)", "decimal(20,0)",
                       "decimal(38,2)", "string", "boolean", "date", "timestamp", "timestamp(0)", "timestamp(3)",
                       "timestamp(6)", "timestamp(9)", "time")
            for how in ("cast", "try_cast")
        ],
    ),
    "comparisons": (
        NUMBERS,
        [
            lambda x: x == 3, lambda x: x == 2**62, lambda x: x > 1.5, lambda x: x.between(1, 2.5),
            lambda x: x.isin([1, 2**40]), lambda x: x.isin([1.5, 2]), lambda x: x.nullif(2**40),
            lambda x: x.cases((1, 2), (2**40, 1), else_=0), lambda x: ibis.coalesce(x, 0, 2**40),
            lambda x: ibis.coalesce(x, 0.5), lambda x: x.fill_null(0), lambda x: ibis.greatest(x, 2**40),
            lambda x: ibis.least(x, 0.5), lambda x: ibis.ifelse(x > 1, x, 2**40), lambda x: x.substitute({1: 2}),
            lambda x: x.identical_to(3), lambda x: x.clip(0, 100), lambda x: x.clip(0.5), lambda x: x.isnull(),
        ],
    ),
    "texts": (
        ["String"],
        [
            *(lambda s, of=of: getattr(s, of)() for of in ("upper", "lower", "length", "reverse", "capitalize",
                                                           "strip",
                                                           "lstrip", "rstrip", "hexdigest", "hash")),
            *(lambda s, n=n, of=of: getattr(s, of)(n, "*") for n in (0, 5, -5, 2**31, 2**40)
              for of in ("lpad", "rpad")),
            *(lambda s, of=of: getattr(s, of)(5, "") for of in ("lpad", "rpad")),
            *(lambda s, n=n: s.repeat(n) for n in (0, 2, -2, 50, 3 * 10**6, 2**40)),
            lambda s: s.substr(0, 1).repeat(1000), lambda s: s.repeat(100).repeat(100),
            *(lambda s, a=a, n=n: s.substr(a, n)
              for a, n in ((1, 2), (0, 0), (-3, 2), (2**31 - 1, 2**31 - 1), (2**62, 2**62))),
            *(lambda s, n=n: s.right(n) for n in (0, 2, -2, 2**31, 2**40)),
            lambda s: s[0:2], lambda s: s[0 : 2**40], lambda s: s + s, lambda s: s.find("x"), lambda s: s.find(s),
            *(lambda s, a=a, b=b: s.replace(a, b) for a, b in (("a", "b"), ("", "b"), ("a", ""), ("x", "y" * 9**6))),
            *(lambda s, a=a, b=b: s.translate(a, b) for a, b in (("ab", "xy"), ("abc", "x"), ("", ""))),
            *(lambda s, p=p: s.re_search(p) for p in
              ("a+", "^a|b$", "[a-z]{2,3}?", r"\d+", r"(a)\1", "(?=a)", "(", "*", "a**", "a++", "^*", "[a-b-c]",
               "[z-a]", "x{300}", "(a{99}){99}", "(|a)", "a|", "()", r"\b",
                "\\", "", r"\{2}", "[[:alpha:]]", "[]a]", "é",
                "(?i)a",
               "x{3,2}", "(?:a|b)*", "{2}", "a{,2}", r"\Z", "]", "a]", "}", "($|a)*", "(^)*", "^+", "(?:)", "(a*)*")),
            *(lambda s, p=p, n=n: s.re_extract(p, n) for p, n in (("(a)", 1), ("(a)", 0), ("(a)", 2), ("(a)", -1),
                                                                 ("a", 9), ("(", 0), ("(a)(b)?", 2))),
            *(lambda s, p=p, to=to: s.re_replace(p, to) for p, to in
              (("a", "b"), ("(a)", r"\1"), ("(a)", r"\2"), ("a", r"\\"), ("a", "$1"), ("(a", "b"), ("a", "\\"),
               ("(a)(b)", r"\2\1"), ("x", r"\0"))),
            *(lambda s, p=p, of=of: getattr(s, of)(p) for p in ("a%", "a\\%b", "a\\", "é_")
              for of in ("like", "ilike")),
            lambda s: s.contains("a"), lambda s: s.startswith(s), lambda s: s.endswith("a"), lambda s: s.length() + 1,
            lambda s: s.length() * 100, lambda s: s.length().cast("int64") * 100, lambda s: s == "a",
        ],
    ),
    "clocks": (
        CLOCK,
        [
            *(lambda x, of=of: getattr(x, of)() for of in ("hour", "minute", "second", "millisecond", "microsecond")),
            lambda x: x.hour() * 100, lambda x: x.minute() * 100 - x.second(), lambda x: x.time(),
            *(lambda x, unit=unit: x.truncate(unit) for unit in ("h", "m", "s", "ms", "us")),
            *(lambda x, n=n: x + ibis.interval(hours=n) for n in (1, 10**6, 10**12)),
            lambda x: x - ibis.interval(hours=1),
            *(lambda x, unit=unit: x.delta(dt.datetime(2024, 1, 1), unit=unit)
              for unit in ("day", "hour", "second", "microsecond", "month", "year")),
        ],
    ),
    "times": (
        TIMES,
        [
            *(lambda x, of=of: getattr(x, of)() for of in
              ("date", "year", "month", "day", "quarter", "day_of_year", "week_of_year", "iso_year", "epoch_seconds")),
            lambda x: x.day_of_week.index(), lambda x: x.day_of_week.full_name(), lambda x: x.year() * 100 + x.month(),
            lambda x: x.year().cast("int64"), lambda x: x.epoch_seconds().cast("int64") * 1000,
            *(lambda x, unit=unit: x.truncate(unit) for unit in "YQMWD"),
            *(lambda x, unit=unit: x.delta(dt.date(2024, 1, 1), unit=unit)
              for unit in ("day", "month", "year", "week")),
            *(lambda x, n=n, unit=unit: x + ibis.interval(**{unit: n}) for n, unit in by),
            *(lambda x, n=n, unit=unit: x - ibis.interval(**{unit: n}) for n, unit in by),
            *(lambda x, f=f: x.strftime(f) for f in ("%Y-%m-%d", "%H:%M:%S %j", "%Q", "%", "", "x", "%e")),
            lambda x: x > dt.date(2024, 1, 1), lambda x: x > dt.datetime(2024, 1, 1), lambda x: x - x,
            lambda x: ibis.coalesce(x, dt.datetime(2024, 1, 1)),
        ],
    ),
    "sums": (
        [*INTEGERS, "Boolean"],
        [
            lambda x: x.sum(), lambda x: x.sum() * 2, lambda x: x.sum().clip(0, 100) * 2, lambda x: -x.sum(),
            lambda x: x.sum().clip(0, 100).cast("int32"), lambda x: x.sum() + x.sum(), lambda x: x.sum().abs(),
            lambda x: x.sum() / x.count().nullif(0), lambda x: x.count() * 2, lambda x: x.max() - x.min(),
            lambda x: x.max(), lambda x: x.nunique() + 1,
        ],
    ),
}
TAMED = {
    **{name: [lambda x: x, lambda x: x.clip(0, 100), lambda x: x.clip(-(10**4), 10**6).round(2)] for name in NUMBERS},
    **{name: [lambda x: x, near] for name in TIMES},
}


# fmt: on
def columns_of(name):
    return TYPES[name] | MORE[name]


@pytest.fixture
def extremes(engine):
    """Tables of an engine, one for each type, with all that a column holds at most."""
    con, tables = engine.owner, {}
    for number, (column, kind) in enumerate(columns_of(engine.name).items()):
        name = f"extreme_{number}"
        run(con, f"DROP TABLE IF EXISTS {name}")
        run(con, f"CREATE TABLE {name} (n BIGINT, p INTEGER, v {kind})")
        near = VALUES.get(column, []) + NEAR.get(column, [])
        if engine.name == "sqlite" or column == "Datetime in ns":
            near = [value for value in near if engine.name == "sqlite" and str(value) not in FLOAT[-3:]]
        given = [
            *(value if engine.name == "sqlite" else f"CAST({_quoted(value)} AS {kind})" for value in near),
            *(
                value if engine.name in {"sqlite", "datafusion"} else f"CAST({value} AS {kind})"
                for value in FAR[engine.name].get(column, [])
            ),
        ]
        for place, value in enumerate(given):
            run(con, f"INSERT INTO {name} VALUES ({place}, 1, {value})")
            if column in {*INTEGERS, "Boolean"}:  # of which sums are tried
                run(con, f"INSERT INTO {name} VALUES ({place}, {place + 2}, {value}), ({place}, {place + 2}, {value})")
        tables[column] = con.table(name)
    if engine.name == "sqlite":
        con.con.text_factory = bytes  # what is read here, not in a release, may be no UTF-8
    yield engine.name, con, tables
    if engine.name == "sqlite":
        con.con.text_factory = str
    for table in tables.values():
        run(con, f"DROP TABLE {table.get_name()}")


def _quoted(value):
    return f"'{value}'" if isinstance(value, int) else value


def taken(table, name):
    try:
        refuse_unsafe_steps(table, ("p",), name)
    except ValueError:
        return False
    return True


def statement(con, table):
    """The SQL of an expression that the engine can run where there is no row; None where it can't."""
    sql = con.compile(table, limit=None)
    return f"SELECT CAST(r AS text) FROM ({sql}) AS r" if con.name == "postgres" else sql


def declared(con, name):
    """A table, whose types Ibis reads as text."""
    if con.name != "sqlite":
        return con.table(name)
    con.con.text_factory, factory = str, con.con.text_factory
    table = con.table(name)
    con.con.text_factory = factory
    return table


def run_through(con, sql):
    """Run a query to its end. DuckDB's driver needs pytz to make Python's own values of times with a zone."""
    run(con, f"CREATE OR REPLACE TEMP TABLE given AS {sql}" if con.name == "duckdb" else sql)


def check(con, steps, table):
    """See that no row raises; return whether the engine knows the steps at all."""
    try:
        run_through(con, statement(con, steps(table)))
    except BaseException:
        try:
            run_through(con, statement(con, steps(table.filter(table.n < 0))))
        except BaseException:  # what raises without a row tells of none
            return False
        raise
    return True


def tried(con, steps, table, failed, *what):
    """Run steps that the gate takes; return whether they ran, and write down those of which some row raises."""
    try:
        made = steps(table)
        con.compile(made)
    except Exception:  # Ibis knows no such step
        return False
    if not taken(made, con.name):
        return False
    try:
        return check(con, steps, table)
    except BaseException as error:
        failed.append((*what, str(con.compile(made))[:200], str(error)[:200]))
        return False


@pytest.mark.parametrize("of", MADE)
def test_nothing_that_is_taken_raises_on_what_a_column_holds(extremes, of):
    _, con, tables = extremes
    columns, functions = MADE[of]
    failed, ran = [], 0
    for column in set(columns) & set(tables):
        table = tables[column]
        for number, function in enumerate(functions):
            for place, tame in enumerate(TAMED.get(column, [lambda x: x])):

                def steps(t, function=function, tame=tame):
                    if of == "sums":
                        t = t.mutate(v=tame(t.v))
                        return t.group_by("p").aggregate(z=function(t.v))
                    return t.select("p", z=function(tame(t.v)))

                ran += tried(con, steps, table, failed, column, number, place)
    assert not failed
    assert ran >= (0 if of in {"NaN", "clocks", "bits"} else 5)


# --- Random expressions ---------------------------------------------------------------------------------------------

LIMITS = [(0, 1), (0, 100), (-100, 100), (-(10**4), 10**4), (1, 10**6), (0, 10**9), (0.5, 9.5), (0, 255)]


def random_number(table, chance, depth):
    """A random number of a row: good steps and bad ones."""

    def column():
        found = table[chance.choice(table.columns)]
        tame = [
            lambda: found,
            lambda: found.clip(*chance.choice(LIMITS)),
            lambda: found.clip(*chance.choice(LIMITS)),
            lambda: found.cast("int64"),
            lambda: found.nullif(0),
            lambda: found.clip(0, 10**4).round(2),
        ]
        return chance.choice(tame)()

    if depth == 0:
        return column()
    one = random_number(table, chance, depth - 1)
    other = random_number(table, chance, depth - 1)
    if chance.random() < 0.3:
        other = chance.choice([1, 2, -1, 3, 100, 0.5, 0.01, 10**6])
    never_zero = other.nullif(0) if isinstance(other, ibis.Value) else other
    return chance.choice(
        [
            *[lambda: one + other, lambda: one - other, lambda: one * other] * 2,
            *[lambda: one / never_zero, lambda: one // never_zero, lambda: one % never_zero],
            *[lambda: -one, lambda: one.abs(), lambda: one**2, lambda: one.round(chance.choice([0, 1, 2, -2]))],
            *[lambda: one.ceil(), lambda: one.floor(), lambda: one.round(), lambda: one.clip(0, 50)],
            lambda: one.cast(chance.choice(["int64", "int32", "int16", "float64", "decimal(20,2)"])),
            *[lambda: ibis.ifelse(one > 1, one, other), lambda: ibis.coalesce(one, other)],
            *[lambda: ibis.greatest(one, other), lambda: ibis.ifelse(one.between(0, 1000), one, None)],
        ]
    )()


def test_random_arithmetic_that_is_taken_does_not_raise(extremes):
    name, con, tables = extremes
    numbers = [column for column in NUMBERS if column in tables and column not in {"Int128", "any Decimal"}]
    chance, made = random.Random(7), f"extreme_{name}"
    rows = {
        column: run(con, con.compile(tables[column].select(v=tables[column].v.cast("string")))) for column in numbers
    }
    rows = {column: _texts(found) for column, found in rows.items()}
    kinds = {f"c{number}": columns_of(name)[column] for number, column in enumerate(numbers)}
    run(con, f"DROP TABLE IF EXISTS {made}")
    run(con, f"CREATE TABLE {made} ({', '.join(map(' '.join, kinds.items()))})")
    for _ in range(60):
        values = (f"CAST('{chance.choice(rows[column])}' AS {columns_of(name)[column]})" for column in numbers)
        run(con, f"INSERT INTO {made} VALUES ({', '.join(values)})")
    table, ran, refused = declared(con, made), 0, 0
    while ran < 60:
        try:
            steps = table.select(z=random_number(table, chance, chance.choice([1, 2, 2])))
            if chance.random() < 0.4:
                steps = steps.mutate(y=steps.z * chance.choice([2, 100]) + chance.choice([0, 10]))
            sql = statement(con, steps)
        except Exception:  # Ibis knows no such step
            continue
        try:
            refuse_unsafe_steps(steps, None, name)
        except ValueError:
            refused += 1
            continue
        try:
            run_through(con, statement(con, steps.filter(False)))
        except BaseException:
            continue
        run_through(con, sql)
        ran += 1
    assert refused > ran / 2
    run(con, f"DROP TABLE {made}")


def _texts(found):
    if hasattr(found, "__len__") and found and hasattr(found[0], "to_pydict"):
        return [value for batch in found for value in batch.to_pydict()["v"]]
    return [value.decode() if isinstance(value, bytes) else value for (value,) in found]


# --- Values of two types --------------------------------------------------------------------------------------------

PAIRS = [
    lambda t, x, y: x == y, lambda t, x, y: x > y, lambda t, x, y: x.isin([y]), lambda t, x, y: x.between(y, y),
    lambda t, x, y: x.nullif(y), lambda t, x, y: x.identical_to(y), lambda t, x, y: ibis.coalesce(x, y),
    lambda t, x, y: ibis.greatest(x, y), lambda t, x, y: ibis.ifelse(t.n > 3, x, y),
    lambda t, x, y: x.cases((y, 1), else_=2), lambda t, x, y: x.clip(y), lambda t, x, y: x & y,
    lambda t, x, y: ibis.array([x, y]), lambda t, x, y: ibis.array([x]) == ibis.array([y]),
    lambda t, x, y: ibis.struct({"a": x}) == ibis.struct({"a": y}),
    lambda t, x, y: ibis.array([ibis.struct({"a": x}), ibis.struct({"a": y})]),
]  # fmt: skip


def test_values_of_two_types_that_are_taken_do_not_raise(extremes):
    """Engines make one type of them, which may not hold both."""
    name, con, tables = extremes
    kinds = {f"c{number}": columns_of(name)[column] for number, column in enumerate(tables)}
    made = f"pairs_{name}"
    run(con, f"DROP TABLE IF EXISTS {made}")
    run(con, f"CREATE TABLE {made} (n BIGINT, p INTEGER, {', '.join(map(' '.join, kinds.items()))})")
    columns = ", ".join(f"e{number}.v" for number in range(len(tables)))
    rows = tables["Float64"].get_name()
    for number, table in enumerate(tables.values()):
        rows += f" LEFT JOIN {table.get_name()} AS e{number} ON e{number}.n = f.n AND e{number}.p = 1"
    run(con, f"INSERT INTO {made} SELECT f.n, f.p, {columns} FROM {rows.replace(' LEFT', ' AS f LEFT', 1)}")
    table, failed, ran = declared(con, made), [], 0
    for one, other in permutations(kinds, 2):
        for number, function in enumerate(PAIRS):

            def steps(t, function=function, one=one, other=other):
                return t.select("p", z=function(t, t[one], t[other]))

            ran += tried(con, steps, table, failed, kinds[one], kinds[other], number)
    assert not failed
    assert ran > 150
    run(con, f"DROP TABLE {made}")
