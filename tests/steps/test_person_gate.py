"""Steps on one person's rows: what is taken gives each person the same rows whoever else is there."""

import itertools
import math
import random
import struct
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import polars.selectors as cs
import pytest

from dp_polars._release.pipeline import Expressions, PersonGroups
from dp_polars._steps import person_gate, person_rules, trials
from tests.helpers.needs import IS_OLD
from tests.helpers.refusals import refused
from tests.steps.test_gate import entries

LONG = 2**63 - 1
NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0123))[0]  # another NaN
# By name: the type of a column and its values.
COLUMNS = {
    "p": (pl.Int64, [1, 1, 2, 2, 2, 3, 4, None]),
    "i": (pl.Int64, [0, 1, 1, 5, LONG, -LONG - 1, None]),
    "n": (pl.Int8, [0, 1, 127, -128, None]),
    "u": (pl.UInt64, [0, 1, 2**64 - 1, None]),
    "f": (pl.Float64, [0.0, -0.0, math.nan, NAN, math.inf, -1.5, 0.1, 1e16, 0.3, 5e-324, 2.0**54, 0.7, None]),
    "h": (pl.Float32, [0.0, -0.0, math.nan, 1.5, None]),
    "b": (pl.Boolean, [True, False, None]),
    "s": (pl.String, ["", "a", "b", None]),
    "d": (pl.Date, [date(2020, 1, 31), date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]),
    "w": (pl.Datetime("us"), [datetime(2020, 1, 31), datetime(2021, 1, 1), None]),
    "v": (pl.Duration("ms"), [timedelta(0), timedelta(days=1), timedelta(days=-1), None]),
    "o": (pl.Time, [time(0), time(2, 30), None]),
    "x": (pl.Decimal(12, 2), [Decimal("1.50"), Decimal("-9999999999.99"), Decimal(0), None]),
    "c": (pl.Categorical(), ["b", "a", "", None]),
    "e": (pl.Enum(["low", "high"]), ["low", "high", None]),
    "l": (pl.List(pl.Int64), [[1, 2], [], None]),
    "k": (pl.Struct({"a": pl.Float64}), [{"a": 0.0}, {"a": -0.0}, None]),
    "g": (pl.List(pl.Float32), [[0.0], [-0.0, None], [], None]),
    "y": (pl.Binary, [b"", b"a", b"\xff", None]),
}
SCHEMA = pl.Schema({name: dtype for name, (dtype, _) in COLUMNS.items()})
VALUES = {name: values for name, (_, values) in COLUMNS.items()}
NAMES = {**{name: pl.col(name) for name in SCHEMA}, "pl": pl, "cs": cs, "timedelta": timedelta}


def rows_of_people(seed=0, height=80):
    """Rows of random values; some of them twice."""
    rng = random.Random(seed)
    rows = [{name: rng.choice(VALUES[name]) for name in SCHEMA} for _ in range(height)]
    return pl.DataFrame(rows + rng.sample(rows, height // 4), schema=SCHEMA)


FRAME = rows_of_people()


def counted(plan, engine="in-memory"):
    """The rows of a plan and how often each is there, to the bit; the category's text."""
    frame = plan.collect(engine=engine).with_columns(cs.categorical().cast(pl.String))
    return Counter(map(repr, frame.select(pl.all().to_physical()).iter_rows()))


def check(run, frame=FRAME):
    """Check that a person's rows follow from that person's rows alone, in any order; return the rows of all."""
    together = counted(run(frame.lazy()))
    people = frame.filter(pl.col("p").is_not_null()).partition_by("p")
    assert sum((counted(run(person.lazy())) for person in people), Counter()) == together
    for person in people:  # the others without this one
        rest = frame.join(person, on="p", how="anti")
        assert counted(run(rest.lazy())) + counted(run(person.lazy())) == together
    for seed in range(4):
        shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
        chunks = pl.concat([shuffled[start : start + 7] for start in range(0, frame.height, 7)], rechunk=False)
        for other, engine in itertools.product((shuffled, chunks), ("in-memory", "streaming")):
            assert counted(run(other.lazy()), engine) == together
    return together


OF_GROUPS = entries("""
pl.len()   i.len()   i.count()   i.null_count()   i.has_nulls()   pl.lit(1)   f.count()   c.count()   l.null_count()
k.count()   i.n_unique()   f.n_unique()   h.n_unique()   c.n_unique()   x.n_unique()   i.sum()   n.sum()   u.sum()
b.sum()   v.sum()   i.min()   i.max()   f.min()   f.max()   h.max()   s.min()   d.max()   w.min()   v.max()
o.min()   x.max()   e.min()   b.max()   b.any()   b.all()   b.all(ignore_nulls=False)   i.median()   n.median()
d.median()   w.median()   v.median()   i.quantile(0.3)   i.quantile(0.3, "linear")   n.quantile(0.9, "midpoint")
i.max() - i.min()   i.sum() / pl.len()   i.sum() / i.count()   (i - i.min()).max()   (i > i.median()).sum()
((f * 100).round().cast(pl.Int64)).sum()   pl.when(b).then(i).sum()   pl.when(b).then(i).sum() > 3
i.sort().first()   i.sort(descending=True, nulls_last=True).last()   s.sort_by("d", "s").first()
s.sort_by("d", "s", descending=[True, False]).last()   s.sort_by("d", "s").first(ignore_nulls=True)
i.sort().diff().max()   i.sort().shift().min()   i.sort().shift(1, fill_value=0).max()   d.sort().diff().min()
i.sort().cum_sum().max()   n.sort().cum_sum().max()   i.sort().cum_count().max()
i.sort_by("d", "i").cum_max().median()   i.top_k(3).sort()
i.sort_by("d", "i").tail(3).sort(descending=True).first()   n.sort_by("d", "n").rolling_sum(2).max()
n.sort_by("d", "n").rolling_mean(2, min_samples=1).max()   b.sort_by("d", "b").rolling_sum(2).max()
n.sort_by("d", "n").pct_change(2).max()   s.sort_by("d", "s").rle_id().max()
i.sort_by("d", "i").cum_min().median()   (i.sort_by("d", "i") - n.sort_by("d", "i").min()).diff().max()
i.sort().arg_max()   s.sort_by("i", "s").arg_min()   i.rank("dense").max()   f.rank("max").max()
i.rank("min").median()   i.sort().rank("ordinal").max()   s.str.len_chars().sum()   d.min().dt.year()
pl.col("i", "n").sum()   cs.integer().sum().name.suffix("_total")   cs.by_name("d", "w").min()
pl.all().null_count()   i.sum().alias("total").name.keep()   (pl.col("i", "n") - n.min()).max()
""")
# What follows an order that may tie, or a sum that Polars would round by the order of the rows.
REWRITTEN_OF_GROUPS = entries("""
f.sum()   h.sum()   x.sum()   i.mean()   n.mean()   u.mean()   b.mean()   f.mean()   h.mean()   x.mean()   d.mean()
w.mean()   v.mean()   o.mean()   f.std()   f.var(0)   h.var()   i.std()   n.var()   b.var()   x.std()
(i / 3).sum()   (n * 0.1).mean() - (n * 0.1).sum()   f.sort().cum_sum().max()   f.median()   h.median()   x.median()
f.quantile(0.5)   f.quantile(0.3, "linear")   f.quantile(0.3, "midpoint")   f.quantile(0.9, "nearest")
x.quantile(0.1, "lower")   s.sort_by("d").first()   s.sort_by("w", descending=True).first()   f.sort_by("d").first()
k.sort_by("d").first()   l.sort_by("d").last()   g.sort_by("i", "d").first()   c.sort_by("d").first()
e.sort_by("c").first()   (1 / f).sort_by("d").first()   s.sort_by(-n).first()   s.sort_by(d.dt.year(), n * 2).last()
s.sort_by(i - i.min()).last()   i.sort_by("f", "i").first()   i.sort_by("l").first()   i.sort_by("k").first()
i.sort_by("d").diff().max()   i.sort_by("d", "n", descending=[True, False]).diff().max()
i.sort_by("d", "f", descending=[False, True], nulls_last=[True, False]).shift().max()
i.sort_by("d").cum_sum().diff().max()   f.sort_by("d").cum_sum().last()
i.sort_by("d").cum_sum().last() + n.sort_by("w").cum_sum().first()   i.rank("ordinal").max()   i.filter(b).sum()
f.filter(b).sum()   f.filter(b).std()   i.filter(b).mean()   i.filter(b).len()   i.filter(b).count()
i.filter(b).null_count()   i.filter(b).has_nulls()   i.filter(b).n_unique()   f.filter(b).n_unique()
f.filter(i > 0).max()   f.filter(b).median()   b.filter(i > 0).any()   b.filter(i > 0).all(ignore_nulls=False)
i.filter(i > i.median()).min()   s.sort_by("d").filter(b.sort_by("d")).first()
s.filter(b).sort_by(d.filter(b)).first()   i.filter(b).sort().diff().max()   i.filter(b).sort().arg_max()
i.filter(b).filter(n.filter(b) > 0).sum()   i.drop_nulls().len()   f.drop_nans().n_unique()   f.drop_nans().len()
i.drop_nulls().n_unique()   i.sort().drop_nulls().first()   s.sort_by("d").drop_nulls().first()   i.unique().sum()
f.unique().len()   i.unique().sort().first()   i.unique().sort().diff().max()   i.mode().min()
f.mode().sort().last()   f.mode().len()   f.sort()   f.unique().sort()   s.sort_by("d")   s.sort_by("d").implode()
i.sort(descending=True).head(2)   i.sort(descending=True).head(2).sum()   i.sort().tail(2).sum()
s.sort_by("d").slice(1, 2).first()   s.sort_by("d").slice(-2).n_unique()   i.sort().diff()   s.sort_by("d").get(0)
s.sort_by("d").get(-2)   s.drop_nulls().unique().sort()   i.is_duplicated().sum()   f.is_unique().sum()
i.is_first_distinct().sum()   i.filter(f.is_first_distinct()).n_unique()
""")
if not IS_OLD:
    REWRITTEN_OF_GROUPS += ['s.max_by("d")', 'f.min_by("i")', 'f.max_by("f")']

OVER = entries("""
i.min().over("p")   pl.len().over("p")   i.sum().over("p", "s")   i.sum().over("p", "f")   i.sum().over("p", "c")
i.sum().over("s", "p")   f.max().over("p")   i - i.min().over("p")   (i - i.min()).over("p")
(i.max() - i.min()).over("p")   d == d.min().over("p")   i == i.max().over("p")   (d - d.min()).max().over("p")
s.sort_by("d", "s").first().over("p")   s.first().over("p", order_by=["d", "s"])
s.last().over("p", order_by=["d", "s"], descending=True, nulls_last=True)   i.diff().max().over("p", order_by="i")
i.diff().max().over("p", order_by=["d", "i"])   i.rank("min").over("p")   i.rank("max", descending=True).over("p")
f.rank("dense").over("p")   i.rank("average").over("p")   cs.integer().sum().over("p").name.suffix("_total")
pl.col("i", "n").min().over("p").name.prefix("least_")   i.n_unique().over("p") > 1
pl.when(b).then(i.sum().over("p")).otherwise(n.max().over("p", "s"))   i.over("p")
""")
REWRITTEN_OVER = entries("""
f.sum().over("p")   f.mean().over("p", "s")   f - f.mean().over("p")   f.std().over("p")   h.median().over("p")
x.sum().over("p")   x.cum_sum().over("p", order_by="d")   i.filter(b).sum().over("p")
s.sort_by("d").first().over("p")   s.sort_by("d").filter(b.sort_by("d")).first().over("p")
s.first().over("p", order_by="d")   k.last().over("p", order_by="d")   i.cum_sum().over("p", order_by="d")
i.cum_sum().over("p", order_by=d.dt.year())   f.cum_sum().over("p", order_by="w")
h.cum_sum(reverse=True).over("p", order_by="w")   i.diff().over("p", order_by="c")
s.shift().over("p", order_by="l")   i.cum_count().over("p", order_by=["d", "k"], descending=True)
i.rank("ordinal").over("p")   i.rank("ordinal").over("p", order_by="d")   i.cum_sum().diff().over("p", order_by="d")
i.diff().over("p", order_by="d") - n.diff().over("p", order_by="w")   s.arg_max().over("p", order_by="d")
f.is_first_distinct().over("p")   f.is_last_distinct().over("p")   i.is_duplicated().over("p")
f.is_unique().over("p", "s")   s.sort().head(1).first().over("p")   i.cum_max().over("p", order_by="d")
f.rolling_sum(3, min_samples=1).over("p", order_by="d")   n.rolling_mean(2).over("p", order_by="d", descending=True)
f.pct_change().over("p", order_by="d")   h.rle_id().over("p", order_by="d")
""")
# On few columns, all of which the order can name.
FEW = pl.Schema({name: SCHEMA[name] for name in ("p", "i", "s", "d")})
ALONG = entries("""
i.cum_sum().over("p", order_by=["d", "i", "s"])
i.cum_sum(reverse=True).over("p", order_by=["s", "i", "d"], descending=True)
i.diff().over("p", order_by=["d", "i", "s"])   d.diff().over("p", order_by=["d", "i", "s"])
i.shift().over("p", order_by=["d", "i", "s"])   i.shift(-2).over("p", order_by=["d", "i", "s"])
i.rank("ordinal").over("p", order_by=["d", "i", "s"])   i.cum_count().over("p", order_by=["d", "i", "s"])
(i.cum_sum() - i).over("p", order_by=["d", "i", "s"])
(i.cum_max() - i.cum_min()).over("p", order_by=["d", "i", "s"])   i.cum_sum().over("p", "s", order_by=["i", "d"])
""")
NEEDS_POLARS_2 = entries("""
i.sum() / pl.len()   i.sum() / i.count()   (i > i.median()).sum()   ((f * 100).round().cast(pl.Int64)).sum()
(i.sort_by("d", "i") - n.sort_by("d", "i").min()).diff().max()   d.min().dt.year()
(pl.col("i", "n") - n.min()).max()   d == d.min().over("p")   (d - d.min()).max().over("p")
pl.when(b).then(i.sum().over("p")).otherwise(n.max().over("p", "s"))
i.top_k(3).sort()   i.sort_by("d", "i").tail(3).sort(descending=True).first()   k.sort_by("d").first()
l.sort_by("d").last()   g.sort_by("i", "d").first()   s.sort_by(d.dt.year(), n * 2).last()   i.sort_by("l").first()
i.sort_by("k").first()   i.filter(i > i.median()).min()   s.sort_by("d").filter(b.sort_by("d")).first()
s.filter(b).sort_by(d.filter(b)).first()   i.filter(b).sort().arg_max()   i.sort().drop_nulls().first()
s.sort_by("d").drop_nulls().first()   s.sort_by("d").slice(1, 2).first()   i.unique().sort().first()
f.mode().sort().last()   f.unique().sort()   i.sort(descending=True).head(2)   s.drop_nulls().unique().sort()
s.sort_by("d").filter(b.sort_by("d")).first().over("p")   i.cum_sum().over("p", order_by=d.dt.year())
i.diff().over("p", order_by="d") - n.diff().over("p", order_by="w")   s.sort().head(1).first().over("p")
""")


def built(text):
    return eval(text, NAMES)


def groups(*exprs, keys=("p",), schema=SCHEMA):
    return PersonGroups(keys, exprs).proved(schema, "p")


def columns(*exprs, schema=SCHEMA, method="with_columns"):
    return Expressions(method, exprs).proved(schema, "p")


def plain(frame, *exprs, keys=("p",)):
    return frame.lazy().filter(pl.col("p").is_not_null()).group_by(keys).agg(*exprs)


def has(text):
    """Whether this Polars takes the row-by-row parts of an expression; if not, that it is said."""
    if not IS_OLD or text not in NEEDS_POLARS_2:
        return True
    refused(ValueError, "needs Polars 2", groups if text in OF_GROUPS + REWRITTEN_OF_GROUPS else columns, built(text))
    return False


@pytest.mark.parametrize("text", OF_GROUPS + REWRITTEN_OF_GROUPS)
def test_what_is_taken_of_groups_follows_from_one_persons_rows(text):
    if not has(text):
        return
    for keys in (["p"], ["p", "c"], ["p", "f"]):
        if keys[-1] not in built(text).meta.root_names():
            together = check(groups(built(text), keys=tuple(keys)))
        if keys == ["p"]:
            assert together.total() == 4


@pytest.mark.parametrize("text", OVER + REWRITTEN_OVER)
def test_what_is_taken_over_people_follows_from_one_persons_rows(text):
    if not has(text):
        return
    expr = built(text)
    if expr.meta.has_multiple_outputs():
        check(columns(expr))
        return
    check(columns(expr.alias("new")))
    check(columns(expr.alias("new"), pl.col("i"), method="select"))
    if pl.LazyFrame(schema=SCHEMA).select(expr).collect_schema().dtypes() == [pl.Boolean]:
        check(columns(expr, method="filter"))


@pytest.mark.parametrize("text", ALONG)
def test_what_follows_an_order_of_all_columns_follows_from_one_persons_rows(text):
    check(columns(built(text).alias("new"), schema=FEW), FRAME.select(FEW.names()))


# Where Polars' own answer has other types, or follows the order of rows.
OTHERWISE = {"n.sum()", "u.sum()", "b.sum()", "f.n_unique()", "h.n_unique()", "i.sort().cum_sum().max()"}
OTHERWISE |= {"(i > i.median()).sum()", "s.str.len_chars().sum()", 'cs.integer().sum().name.suffix("_total")'}
OTHERWISE |= {text for text in OF_GROUPS if text.startswith(("f.", "h.", "((f", "n.sort"))}


@pytest.mark.parametrize("text", [text for text in OF_GROUPS if text not in OTHERWISE])
def test_what_is_taken_of_groups_is_what_polars_gives(text):
    if not has(text):
        return
    ours, theirs = groups(built(text))(FRAME.lazy()), plain(FRAME, built(text))
    assert ours.collect_schema() == theirs.collect_schema()
    assert counted(ours) == counted(theirs)


@pytest.mark.parametrize(
    "text", [text for text in OVER + ALONG if '"f")' not in text and not text.startswith(("f.", "cs."))]
)
def test_what_is_taken_over_people_is_what_polars_gives(text):
    if not has(text):
        return
    schema = FEW if text in ALONG else SCHEMA
    frame = FRAME.select(schema.names()).filter(pl.col("p").is_not_null())
    ours, theirs = columns(built(text), schema=schema)(frame.lazy()), frame.lazy().with_columns(built(text))
    assert ours.collect_schema() == theirs.collect_schema()
    if text in ALONG:  # twins come in any order
        frame = frame.unique()
        ours, theirs = columns(built(text), schema=schema)(frame.lazy()), frame.lazy().with_columns(built(text))
    assert counted(ours) == counted(theirs)


def distinct():
    """Rows of people in whose columns no value is there twice, and at most one is null."""
    rng, people, most = random.Random(5), 6, 9
    rows = []
    for person in range(people):
        size = rng.randint(1, most)
        places = {name: rng.sample(range(size + 1), size) for name in SCHEMA}
        for row in range(size):
            at = {name: place[row] for name, place in places.items()}
            values = {
                **dict.fromkeys("i", at["i"] * 3 - 7),
                "n": at["n"] - 4,
                "u": at["u"],
                "f": (at["f"] - 4) * 1.7 + 0.3,
                "h": at["h"] * 0.5 - 1.25,
                "b": rng.choice([True, False]),
                "s": "abcdefghijk"[at["s"]],
                "d": date(2000 + at["d"], 1 + at["d"], 3),
                "w": datetime(2001, 1, 1 + at["w"]),
                "v": timedelta(minutes=at["v"]),
                "o": time(at["o"]),
                "x": Decimal(at["x"]) / 4 - 1,
                "c": "zyxwvutsrqp"[at["c"]],
                "e": ["low", "high"][at["e"] % 2],
                "l": [at["l"], 1],
                "k": {"a": at["k"] + 0.5},
                "g": [at["g"] + 0.5],
                "y": bytes([at["y"]]),
            }
            rows.append({name: None if at[name] == size else value for name, value in values.items()} | {"p": person})
    return pl.DataFrame(rows, schema=SCHEMA)


DISTINCT = distinct()


def near(plan):
    """The rows of a plan, in their order, with floats that are equal up to rounding the same."""

    def rounded(value):
        if isinstance(value, (list, tuple)):
            return [rounded(part) for part in value]
        return float(f"{round(value, 9):.6g}") + 0.0 if isinstance(value, float) else value

    return [rounded(row) for row in plan.collect(engine="in-memory").rows()]


@pytest.mark.parametrize("text", REWRITTEN_OF_GROUPS)
def test_what_is_rewritten_of_groups_is_what_polars_gives_where_no_rows_tie(text):
    if not has(text):
        return
    ours, theirs = groups(built(text))(DISTINCT.lazy()), plain(DISTINCT, built(text))
    assert IS_OLD or ours.collect_schema() == theirs.collect_schema()  # there sums of Decimals have fewer digits
    assert near(ours.sort("p")) == near(theirs.sort("p"))


@pytest.mark.parametrize("text", REWRITTEN_OVER)
def test_what_is_rewritten_over_people_is_what_polars_gives_where_no_rows_tie(text):
    if not has(text):
        return
    new, order = built(text).alias("new"), ["p", "i", "n", "u"]
    ours, theirs = columns(new)(DISTINCT.lazy()), DISTINCT.lazy().with_columns(new)
    assert IS_OLD or ours.collect_schema() == theirs.collect_schema()
    assert near(ours.sort(order).select("new")) == near(theirs.sort(order).select("new"))


def test_rows_that_tie_are_the_same_in_all_that_a_later_step_may_read():
    """Zeros and NaN that are equal but not the same, in lists and structs, too, and Categoricals."""
    schema = pl.Schema(
        {name: SCHEMA[name] for name in ("p", "i", "f", "c")}
        | {
            "l": pl.List(pl.Float64),
            "a": pl.Array(pl.Float64, 1),
            "k": pl.Struct({"a": pl.Float64, "c": pl.Categorical}),
        }
    )
    rng = random.Random(8)
    zeros = [0.0, -0.0, math.nan, NAN]
    rows = [
        {
            "p": rng.choice([1, 1, 2]),
            "i": rng.choice([1, 2]),
            "f": rng.choice(zeros),
            "c": rng.choice("ba"),
            "l": [rng.choice(zeros)],
            "a": [rng.choice(zeros)],
            "k": {"a": rng.choice(zeros), "c": rng.choice("ba")},
        }
        for _ in range(60)
    ]
    frame = pl.DataFrame(rows, schema=schema)
    by_time = pl.col("i").cum_count().over("p", order_by="i").alias("a_number")
    twice = [by_time, pl.col("i").cum_sum().over("p", order_by="c").alias("another")]
    inverse = [
        (1 / pl.col("f")).alias("1"),
        pl.col("f").is_nan().alias("2"),
        (1 / pl.col("l").list.first()).alias("3"),
        (1 / pl.col("a").arr.first()).alias("4"),
        (1 / pl.col("k").struct.field("a")).alias("5"),
    ]
    for exprs in ([by_time], twice):
        run = columns(*exprs, schema=schema)

        def later(rows, run=run):
            texts = pl.col("c").cast(pl.String), pl.col("k").struct.field("c").cast(pl.String).alias("6")
            return run(rows).with_columns(*inverse, *texts).drop("k")

        check(later, frame)
        bits = run(frame.lazy()).collect()["f"].to_numpy().view("u8")
        assert len({*bits.tolist()}) == 2  # one zero and one NaN


def test_twins_come_in_one_order_wherever_two_functions_follow_one():
    """Rows that are the same, of which two functions number each: the two numbers of a row say nothing of the frame."""
    rows = [(1, 1, 2), (1, 1, 2), (1, 1, 2), (1, 2, 1), (1, 2, 1), (2, 1, 1)]
    frame = pl.DataFrame(rows * 8, schema={"p": pl.Int64, "i": pl.Int64, "n": pl.Int64}, orient="row")
    i = pl.col("i")
    exprs = [
        i.cum_count().over("p", order_by="i").alias("up"),
        i.cum_count().over("p", order_by="n", descending=True).alias("down"),
        i.cum_sum(reverse=True).over("p", order_by="n").alias("sum"),
    ]
    check(columns(*exprs, schema=frame.schema), frame)


def test_what_has_no_order_is_named():
    frame = pl.DataFrame({"p": [1], "i": [1], "o": [object()]})
    with pytest.raises(ValueError, match="'o' of Object"):
        columns(pl.col("i").cum_sum().over("p", order_by="i").alias("new"), schema=frame.schema)
    columns(pl.col("i").sort_by("p").first().over("p").alias("new"), schema=frame.schema)


def test_what_is_beyond_makes_the_sums_of_that_person_null_alone():
    frame = pl.DataFrame({"p": [1, 1, 2, 2, 3, 4], "f": [1.0, 2.0**55, 0.5, 0.25, math.inf, None]})
    f = pl.col("f")
    run = groups(f.sum().alias("sum"), f.mean().alias("mean"), f.std().alias("std"), schema=frame.schema)
    assert run(frame.lazy()).sort("p").collect().rows() == [
        (1, None, None, None),
        (2, 0.75, 0.375, pytest.approx(0.125 * 2**0.5)),
        (3, None, None, None),
        (4, 0.0, None, None),
    ]
    along = columns(f.cum_sum().over("p", order_by="f").alias("new"), schema=frame.schema)(frame.lazy())
    assert along.sort("p", "f").collect()["new"].to_list() == [None, None, 0.25, 0.75, None, None]


def test_floats_leave_nan_out_and_have_one_zero_and_sums_are_of_64_bits_and_wrap():
    frame = pl.DataFrame({"p": [1, 1, 1, 2, 3, 3], "f": [math.nan, 2.0, None, math.nan, -0.0, 0.0]})
    run = groups(pl.col("f").min().alias("least"), pl.col("f").n_unique().alias("kinds"), schema=frame.schema)
    assert run(frame.lazy()).sort("p").collect().rows() == [(1, 2.0, 3), (2, None, 1), (3, 0.0, 1)]
    assert repr(run(frame.lazy()).sort("p").collect()["least"].to_list()) == "[2.0, None, 0.0]"
    small = pl.Series([2**31 - 1] * 2, dtype=pl.Int32)
    frame = pl.DataFrame({"p": [1, 1], "i": [LONG, 1], "n": pl.Series([127, 127], dtype=pl.Int8), "m": small})
    run = groups(pl.col("i", "n", "m").sum(), schema=frame.schema)
    assert run(frame.lazy()).collect().rows() == [(1, -LONG - 1, 254, 2**32 - 2)]


_REFUSED = {
    "takes numbers": "d.sum()",
    "different orders or numbers": """
        (i.filter(b) + n).sum()   i.filter(b).sort_by('d').first()   i.sort().filter(b).first()
        i.sort_by(n.sort()).first()
    """,
    "follows the order": """
        i.head(2).sum()   i.get(0)   i.mode().first()   i.unique().first()   i.first()   i.last()   i.diff().max()
        i.shift().max()   i.cum_sum().max()   i.arg_max()   i.drop_nulls().first()   i.implode()
        i.rolling_sum(2).max()
    """,
    "parameter from the rows": "i.sort().head(n.max()).sum()",
    "tell the same values apart": "l.unique().len()   l.n_unique()   k.n_unique()   pl.struct(i, s).n_unique()",
    "gives several values": "i.filter(b)   i.unique()   i.mode()   i   i + 1   i.rank('min')",
    "gives NaN": "f.nan_max()",
    "needs values with one order": "c.min()   l.max()   c.rank('min').max()",
    "draws at random": "i.rank('random').max()",
    "takes a parameter from the rows": "i.quantile(n.max())   i.sort().shift(n.max()).max()",
    "rounds by the order": "i.product()",
    "may add to the categories": "s.cast(pl.Categorical).n_unique()",
    "different orders": """
        (i.sort().diff() + i).max()   (i.sort().diff() + n.sort().diff()).max()   i.sort().sort_by('n').first()
    """,
    "one value for a person already": "pl.lit(1).sum()   i.sum().sum()",
    "another group": "i.sum().over('p')",
    "follows the order|is not known to follow": "i.head(1).sum()",
    "is not known to follow": "i.approx_n_unique()   i.sample(1).sum()   i.bitwise_xor()   i.ewm_mean(com=1).max()",
    "gives several values for one person": "i.value_counts().len()",
    "changes the number of rows": "l.explode().n_unique()",
    "`rle_id` follows the order": "i.rle_id().max()",
    "`pct_change` follows the order": "i.pct_change().max()",
    "takes sums and means": """
        i.sort().rolling_max(2).max()   i.sort().rolling_sum(2, center=True).max()
        i.sort().rolling_mean(2, weights=[1.0, 2.0]).max()   w.sort().rolling_sum(2).max()
    """,
    "follows the order of the rows": "i.forward_fill().max()",
    "can.* be inspected|is not known to follow": "i.map_elements(lambda x: x, return_dtype=pl.Int64).sum()",
    "would follow from the rows": "d.sort().shift(1, fill_value=0).len()   i.sort().shift(1, fill_value=0.5).len()",
    "as many outputs as its selectors": "pl.max_horizontal(pl.col('i', 'n')).max()",
    "values of its own": "(s.cast(pl.Int64) + pl.Series([1])).sum()",
}
REFUSED = {text: why for why, texts in _REFUSED.items() for text in entries(texts)}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_of_groups(text):
    words = f"(?s)^group_by: .*({REFUSED[text]})" + "|needs Polars 2" * IS_OLD
    refused((ValueError, TypeError), words, groups, built(text))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
def test_which_of_equal_values_is_found_does_not_follow_from_what_is_known_of_the_column(name, engine):
    """Polars gives the last largest value of a column that it knows to be sorted, as that of one person may be."""
    frame = pl.DataFrame({"p": [1, 1, 1, 2, 2], "i": [3, 3, 3, 3, 3]})
    of = getattr(pl.col("i").sort(), name)()
    private = frame.dp.protect("p")
    for step in (private.group_by("p").agg(found=of), private.with_columns(found=of.over("p"))):
        run = step._pipeline.proved(frame.schema).rows
        for rows in (frame, frame.sort("i"), frame.sort("i", descending=True), frame[:3].sort("i")):
            assert set(run(rows.lazy()).collect(engine=engine)["found"]) == {0}


_REFUSED_OVER = {
    "must include the privacy unit 'p'": "i.sum().over('s')   i.sum().over(order_by='i')   i.sum().over(pl.lit(1))",
    "must include the privacy unit 'p', got .'an expression'.": "i.sum().over(p + 0)",
    "`mean` combines several rows": "i.sum().over('p', i - i.mean())",
    "must not be lists": "i.sum().over('p', 'l')   i.sum().over('p', 'k')",
    "unable to find column": "i.sum().over('p', 'nowhere')",
    "changes the place": "i.sum().over('p', mapping_strategy='explode')   i.over('p', mapping_strategy='join')",
    "combines several rows": "i.sum().over('p') + i.sum()   i.sum().over('p').sum()",
    "one value for a person already|another group": "i.sum().over('p').over('p')",
    "another group": "(i - i.sum().over('p')).max().over('p')",
    "follows the order": "i.cum_sum().over('p')   i.first().over('p')",
    "by their place": """
        i.sort().over('p')   i.sort_by('i').over('p')   i.filter(b).over('p')   i.unique().over('p')
        i.sort().diff().over('p')
    """,
    "no NaN": "(i.sum().over('p') + pl.lit(float('nan')))",
}
REFUSED_OVER = {text: why for why, texts in _REFUSED_OVER.items() for text in entries(texts)}


@pytest.mark.parametrize("text", REFUSED_OVER)
def test_what_is_refused_over_people(text):
    errors = (ValueError, TypeError, pl.exceptions.PolarsError)
    refused(errors, f"(?s){REFUSED_OVER[text]}", columns, built(text).alias("new"))


def test_the_trial_finds_what_the_rules_would_miss(monkeypatch):
    monkeypatch.setattr(person_gate.person_rules, "REFUSED", ())
    monkeypatch.setattr(person_gate.person_rules, "TAKEN", person_rules.TAKEN | {"mode", "unique"})
    monkeypatch.setattr(person_gate.person_rules, "FIRST_OF_ORDER", frozenset())
    for text in ("f.sort_by('i').first()", "i.first()"):
        refused(ValueError, "another result alone than among others", groups, built(text))
    monkeypatch.undo()
    with pytest.raises(ValueError, match="raises on some values"):
        trials.refuse_company(lambda rows: rows.select(pl.col("p").cast(pl.Int8)), FEW, "p", "select")


@pytest.mark.parametrize("of", [pl.max, pl.min, pl.n_unique, pl.count], ids=lambda of: of.__name__)
@pytest.mark.parametrize(("schema", "name"), [*((FEW, name) for name in "isd"), *((SCHEMA, name) for name in "ifsdx")])
def test_the_trial_finds_what_is_the_same_in_every_order_but_not_for_one_person(of, schema, name):
    with pytest.raises(ValueError, match="another result alone than among others"):
        trials.refuse_company(lambda rows: rows.with_columns(of(name)), schema, "p", "select")
