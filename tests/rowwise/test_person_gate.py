"""Steps on one person's rows: what is taken gives each person the same rows whoever else is there."""

import itertools
import math
import random
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import polars.selectors as cs
import pytest

from dp_polars._frames.person_steps import PersonGroups
from dp_polars._frames.recipe import Expressions
from dp_polars._rowwise import person_gate, person_rules, person_trials
from tests.helpers.needs import IS_OLD
from tests.rowwise.test_gate import lines

LONG = 2**63 - 1
SCHEMA = pl.Schema(
    {
        "p": pl.Int64,
        "i": pl.Int64,
        "n": pl.Int8,
        "u": pl.UInt64,
        "f": pl.Float64,
        "h": pl.Float32,
        "b": pl.Boolean,
        "s": pl.String,
        "d": pl.Date,
        "w": pl.Datetime("us"),
        "v": pl.Duration("ms"),
        "o": pl.Time,
        "x": pl.Decimal(12, 2),
        "c": pl.Categorical(),
        "e": pl.Enum(["low", "high"]),
        "l": pl.List(pl.Int64),
        "k": pl.Struct({"a": pl.Float64}),
    }
)
VALUES = {
    "p": [1, 1, 2, 2, 2, 3, 4, None],
    "i": [0, 1, 1, 5, LONG, -LONG - 1, None],
    "n": [0, 1, 127, -128, None],
    "u": [0, 1, 2**64 - 1, None],
    "f": [0.0, -0.0, math.nan, math.inf, -1.5, 0.1, 1e16, None],
    "h": [0.0, -0.0, math.nan, 1.5, None],
    "b": [True, False, None],
    "s": ["", "a", "b", None],
    "d": [date(2020, 1, 31), date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), None],
    "w": [datetime(2020, 1, 31), datetime(2021, 1, 1), None],
    "v": [timedelta(0), timedelta(days=1), timedelta(days=-1), None],
    "o": [time(0), time(2, 30), None],
    "x": [Decimal("1.50"), Decimal("-9999999999.99"), Decimal(0), None],
    "c": ["b", "a", "", None],
    "e": ["low", "high", None],
    "l": [[1, 2], [], None],
    "k": [{"a": 0.0}, {"a": -0.0}, None],
}
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


OF_GROUPS = lines("""
pl.len()
i.len()
i.count()
i.null_count()
i.has_nulls()
pl.lit(1)
f.count()
c.count()
l.null_count()
k.count()
i.n_unique()
f.n_unique()
h.n_unique()
c.n_unique()
x.n_unique()
i.sum()
n.sum()
u.sum()
b.sum()
v.sum()
i.min()
i.max()
f.min()
f.max()
h.max()
s.min()
d.max()
w.min()
v.max()
o.min()
x.max()
e.min()
b.max()
b.any()
b.all()
b.all(ignore_nulls=False)
i.median()
n.median()
d.median()
w.median()
v.median()
i.quantile(0.3)
i.quantile(0.3, "linear")
n.quantile(0.9, "midpoint")
i.max() - i.min()
i.sum() / pl.len()
i.sum() / i.count()
(i - i.min()).max()
(i > i.median()).sum()
((f * 100).round().cast(pl.Int64)).sum()
pl.when(b).then(i).sum()
pl.when(b).then(i).sum() > 3
i.sort().first()
i.sort(descending=True, nulls_last=True).last()
s.sort_by("d", "s").first()
s.sort_by("d", "s", descending=[True, False]).last()
s.sort_by("d", "s").first(ignore_nulls=True)
i.sort().diff().max()
i.sort().shift().min()
i.sort().shift(1, fill_value=0).max()
d.sort().diff().min()
i.sort().cum_sum().max()
n.sort().cum_sum().max()
i.sort().cum_count().max()
i.sort_by("d", "i").cum_max().median()
i.sort_by("d", "i").cum_min().median()
(i.sort_by("d", "i") - n.sort_by("d", "i").min()).diff().max()
i.sort().arg_max()
s.sort_by("i", "s").arg_min()
i.rank("dense").max()
f.rank("max").max()
i.rank("min").median()
i.sort().rank("ordinal").max()
s.str.len_chars().sum()
d.min().dt.year()
pl.col("i", "n").sum()
cs.integer().sum().name.suffix("_total")
cs.by_name("d", "w").min()
pl.all().null_count()
i.sum().alias("total").name.keep()
(pl.col("i", "n") - n.min()).max()
""")
OVER = lines("""
i.min().over("p")
pl.len().over("p")
i.sum().over("p", "s")
i.sum().over("p", "f")
i.sum().over("p", "c")
i.sum().over("s", "p")
f.max().over("p")
i - i.min().over("p")
(i - i.min()).over("p")
(i.max() - i.min()).over("p")
d == d.min().over("p")
i == i.max().over("p")
(d - d.min()).max().over("p")
s.sort_by("d", "s").first().over("p")
s.first().over("p", order_by=["d", "s"])
s.last().over("p", order_by=["d", "s"], descending=True, nulls_last=True)
i.diff().max().over("p", order_by="i")
i.diff().max().over("p", order_by=["d", "i"])
i.rank("min").over("p")
i.rank("max", descending=True).over("p")
f.rank("dense").over("p")
i.rank("average").over("p")
cs.integer().sum().over("p").name.suffix("_total")
pl.col("i", "n").min().over("p").name.prefix("least_")
i.n_unique().over("p") > 1
pl.when(b).then(i.sum().over("p")).otherwise(n.max().over("p", "s"))
i.over("p")
""")
# On few columns, all of which the order can name.
FEW = pl.Schema({name: SCHEMA[name] for name in ("p", "i", "s", "d")})
ALONG = lines("""
i.cum_sum().over("p", order_by=["d", "i", "s"])
i.cum_sum(reverse=True).over("p", order_by=["s", "i", "d"], descending=True)
i.diff().over("p", order_by=["d", "i", "s"])
d.diff().over("p", order_by=["d", "i", "s"])
i.shift().over("p", order_by=["d", "i", "s"])
i.shift(-2).over("p", order_by=["d", "i", "s"])
i.rank("ordinal").over("p", order_by=["d", "i", "s"])
i.cum_count().over("p", order_by=["d", "i", "s"])
(i.cum_sum() - i).over("p", order_by=["d", "i", "s"])
(i.cum_max() - i.cum_min()).over("p", order_by=["d", "i", "s"])
i.cum_sum().over("p", "s", order_by=["i", "d"])
""")
NEEDS_POLARS_2 = lines("""
i.sum() / pl.len()
i.sum() / i.count()
(i > i.median()).sum()
((f * 100).round().cast(pl.Int64)).sum()
(i.sort_by("d", "i") - n.sort_by("d", "i").min()).diff().max()
d.min().dt.year()
(pl.col("i", "n") - n.min()).max()
d == d.min().over("p")
(d - d.min()).max().over("p")
pl.when(b).then(i.sum().over("p")).otherwise(n.max().over("p", "s"))
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
    with pytest.raises(ValueError, match="needs Polars 2"):
        (groups if text in OF_GROUPS else columns)(built(text))
    return False


@pytest.mark.parametrize("text", OF_GROUPS)
def test_what_is_taken_of_groups_follows_from_one_persons_rows(text):
    if not has(text):
        return
    for keys in (["p"], ["p", "c"], ["p", "f"]):
        if keys[-1] not in built(text).meta.root_names():
            together = check(groups(built(text), keys=tuple(keys)))
        if keys == ["p"]:
            assert together.total() == 4


@pytest.mark.parametrize("text", OVER)
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


def test_floats_leave_nan_out_and_have_one_zero():
    frame = pl.DataFrame({"p": [1, 1, 1, 2, 3, 3], "f": [math.nan, 2.0, None, math.nan, -0.0, 0.0]})
    run = groups(pl.col("f").min().alias("least"), pl.col("f").n_unique().alias("kinds"), schema=frame.schema)
    assert run(frame.lazy()).sort("p").collect().rows() == [(1, 2.0, 3), (2, None, 1), (3, 0.0, 1)]
    assert repr(run(frame.lazy()).sort("p").collect()["least"].to_list()) == "[2.0, None, 0.0]"


def test_sums_are_of_64_bits_and_wrap():
    small = pl.Series([2**31 - 1] * 2, dtype=pl.Int32)
    frame = pl.DataFrame({"p": [1, 1], "i": [LONG, 1], "n": pl.Series([127, 127], dtype=pl.Int8), "m": small})
    run = groups(pl.col("i", "n", "m").sum(), schema=frame.schema)
    assert run(frame.lazy()).collect().rows() == [(1, -LONG - 1, 254, 2**32 - 2)]


REFUSED = {
    "f.sum()": "rounds floats",
    "h.sum()": "rounds floats",
    "(i / 3).sum()": "rounds floats",
    "f.sort().cum_sum().max()": "equal to the last bit",
    "x.sum()": "raises where the digits",
    "d.sum()": "takes integers",
    "f.median()": "takes integers of at most 64 bits, dates",
    "f.quantile(0.5)": "takes integers of at most 64 bits, dates",
    "x.median()": "takes integers of at most 64 bits, dates",
    "f.nan_max()": "gives NaN",
    "c.min()": "needs values with one order",
    "l.max()": "needs values with one order",
    "c.rank('min').max()": "needs values with one order",
    "l.n_unique()": "tell the same values apart",
    "k.n_unique()": "tell the same values apart",
    "i.rank('random').max()": "draws at random",
    "i.quantile(n.max())": "takes a parameter from the rows",
    "i.sort().shift(n.max()).max()": "takes a parameter from the rows",
    "i.mean()": "rounds by the order",
    "i.std()": "rounds by the order",
    "i.var()": "rounds by the order",
    "i.product()": "rounds by the order",
    "s.cast(pl.Categorical).n_unique()": "may add to the categories",
    "i.mode()": "follows the order",
    "i.mode().first()": "follows the order",
    "i.unique().first()": "follows the order",
    "i.first()": "follows the order",
    "i.last()": "follows the order",
    "i.diff().max()": "follows the order",
    "i.shift().max()": "follows the order",
    "i.cum_sum().max()": "follows the order",
    "i.arg_max()": "follows the order",
    "i.rank('ordinal').max()": "follows the order",
    "i.sort_by('d').first()": r"may tell rows apart .*\['i'\], as it reads them\)\.",
    "(i + n).sort_by('i').first()": r"may tell rows apart .*\['n'\], as it reads them\)\.",
    "i.sort_by('f', 'i').first()": "equal to the last bit.*by 'f'",
    "i.sort_by('c', 'i').first()": "equal to the last bit.*'c'",
    "i.sort_by('l', 'i').first()": "equal to the last bit.*'l'",
    "f.sort_by('i', 'f').first()": "equal to the last bit.*by 'f'",
    "c.sort().first()": "equal to the last bit",
    "i.sort_by(n + 1).first()": "takes names of columns",
    "(i.sort().diff() + i).max()": "different orders",
    "(i.sort().diff() + n.sort().diff()).max()": "different orders",
    "i.sort().sort_by('n').first()": "different orders",
    "i.sort().cum_sum().diff().max()": "follow an order, in which",
    "i.sort().cum_sum().last()": "follow an order, in which",
    "i.sort_by('d', 'i', descending=[True, False]).diff().max()": "one direction",
    "i": "gives several values",
    "i + 1": "gives several values",
    "i.sort()": "gives several values",
    "i.rank('min')": "gives several values",
    "i.sort().diff()": "gives several values",
    "pl.lit(1).sum()": "one value for a person already",
    "i.sum().sum()": "one value for a person already",
    "i.filter(b).sum()": "changes the number",
    "i.drop_nulls().len()": "changes the number",
    "i.drop_nulls().first()": "changes the number",
    "i.sum().over('p')": "another group",
    "i.implode()": "is not known to follow",
    "i.head(1).sum()": "follows the order|is not known to follow",
    "i.sort().get(0)": "follows the order|is not known to follow",
    "i.approx_n_unique()": "is not known to follow",
    "i.value_counts().len()": "is not known to follow",
    "i.sample(1).sum()": "is not known to follow",
    "i.rle_id().max()": "is not known to follow",
    "i.bitwise_xor()": "is not known to follow",
    "i.ewm_mean(com=1).max()": "is not known to follow",
    "i.forward_fill().max()": "is not known to follow",
    "i.map_elements(lambda x: x, return_dtype=pl.Int64).sum()": "can.* be inspected|is not known to follow",
    "d.sort().shift(1, fill_value=0).len()": "would follow from the rows",
    "i.sort().shift(1, fill_value=0.5).len()": "would follow from the rows",
    "pl.struct(i, s).n_unique()": "tell the same values apart",
    "pl.max_horizontal(pl.col('i', 'n')).max()": "as many outputs as its selectors",
    "(s.cast(pl.Int64) + pl.Series([1])).sum()": "values of its own",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_of_groups(text):
    with pytest.raises(
        (ValueError, TypeError),
        match=f"(?s)^group_by: .*({REFUSED[text]}).*|needs Polars 2"
        if IS_OLD
        else f"(?s)^group_by: .*({REFUSED[text]})",
    ):
        groups(built(text))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
def test_which_of_equal_values_is_found_does_not_follow_from_what_is_known_of_the_column(name, engine):
    """Polars gives the last largest value of a column that it knows to be sorted, as that of one person may be."""
    frame = pl.DataFrame({"p": [1, 1, 1, 2, 2], "i": [3, 3, 3, 3, 3]})
    of = getattr(pl.col("i").sort(), name)()
    private = frame.dp.protect("p")
    for step in (private.group_by("p").agg(found=of), private.with_columns(found=of.over("p"))):
        run = step._recipe.proved(frame.schema).rows
        for rows in (frame, frame.sort("i"), frame.sort("i", descending=True), frame[:3].sort("i")):
            assert set(run(rows.lazy()).collect(engine=engine)["found"]) == {0}


REFUSED_OVER = {
    "i.sum().over('s')": "must include the privacy unit 'p'",
    "i.sum().over(order_by='i')": "must include the privacy unit 'p'",
    "i.sum().over(pl.lit(1))": "must include the privacy unit 'p'",
    "i.sum().over(p + 0)": "takes names of columns",
    "i.sum().over('p', s.str.len_chars())": "takes names of columns",
    "i.sum().over('p', 'l')": "must not be lists",
    "i.sum().over('p', 'k')": "must not be lists",
    "i.sum().over('p', 'nowhere')": "unable to find column",
    "i.sum().over('p', mapping_strategy='explode')": "changes the place",
    "i.over('p', mapping_strategy='join')": "changes the place",
    "i.sum().over('p') + i.sum()": "combines several rows",
    "i.sum().over('p').sum()": "combines several rows",
    "i.sum().over('p').over('p')": "one value for a person already|another group",
    "(i - i.sum().over('p')).max().over('p')": "another group",
    "i.cum_sum().over('p')": "follows the order",
    "i.first().over('p')": "follows the order",
    "i.cum_sum().over('p', order_by='d')": r"\['i'\], as it reads them",
    "i.cum_sum().over('p', order_by=['d', 'i'])": "as each row has its own value",
    "i.diff().over('p', order_by='i')": "as each row has its own value",
    "i.rank('ordinal').over('p', order_by='i')": "as each row has its own value",
    "i.first().over('p', order_by=['i', 'f'])": "equal to the last bit",
    "i.sort().over('p')": "by their place",
    "i.sort_by('i').over('p')": "by their place",
    "i.sort().diff().over('p')": "by their place",
    "f.sum().over('p')": "rounds floats",
    "i.mean().over('p')": "rounds by the order",
    "(i.sum().over('p') + pl.lit(float('nan')))": "no NaN",
}


@pytest.mark.parametrize("text", REFUSED_OVER)
def test_what_is_refused_over_people(text):
    with pytest.raises((ValueError, TypeError, pl.exceptions.PolarsError), match=f"(?s){REFUSED_OVER[text]}"):
        columns(built(text).alias("new"))


def test_two_orders_in_one_step_are_refused():
    up, down = (i_along(order) for order in (["d", "i", "s"], ["s", "i", "d"]))
    columns(up.alias("a"), up.alias("b"), schema=FEW)
    with pytest.raises(ValueError, match="several orders in one step"):
        columns(up.alias("a"), down.alias("b"), schema=FEW)


def i_along(order):
    return pl.col("i").cum_sum().over("p", order_by=order)


def test_a_float_key_whose_zeros_differ_must_be_in_the_order():
    schema = pl.Schema({"p": pl.Int64, "f": pl.Float64, "i": pl.Int64})
    with pytest.raises(ValueError, match=r"\['f'\], as each row has its own value"):
        columns(pl.col("i").cum_sum().over("p", "f", order_by="i").alias("new"), schema=schema)


def test_the_trial_finds_what_the_rules_would_miss(monkeypatch):
    monkeypatch.setattr(person_gate.person_rules, "REFUSED", ())
    monkeypatch.setattr(person_gate.person_rules, "TAKEN", person_rules.TAKEN | {"mode", "unique"})
    monkeypatch.setattr(person_gate.person_rules, "FIRST_OF_ORDER", frozenset())
    for text in ("f.sort_by('i').first()", "i.first()"):
        with pytest.raises(ValueError, match="another result alone than among others"):
            groups(built(text))
    monkeypatch.undo()
    with pytest.raises(ValueError, match="raises on some values"):
        person_trials.refuse_company(lambda rows: rows.select(pl.col("p").cast(pl.Int8)), FEW, "p", "select")


@pytest.mark.parametrize("of", [pl.max, pl.min, pl.n_unique, pl.count], ids=lambda of: of.__name__)
@pytest.mark.parametrize(("schema", "name"), [*((FEW, name) for name in "isd"), *((SCHEMA, name) for name in "ifsdx")])
def test_the_trial_finds_what_is_the_same_in_every_order_but_not_for_one_person(of, schema, name):
    with pytest.raises(ValueError, match="another result alone than among others"):
        person_trials.refuse_company(lambda rows: rows.with_columns(of(name)), schema, "p", "select")
