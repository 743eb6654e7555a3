"""Preprocessing before `protect`: what is ordinary is taken and right, what visibly mixes people is refused."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from polars.exceptions import PanicException

import dp_polars as dpp
from dp_polars._sources.plans import preprocessing_of
from dp_polars._sources.running import collected
from tests.frames import pipelines
from tests.frames.pipelines import Steps
from tests.helpers.needs import IS_OLD
from tests.helpers.refusals import refused

# Polars 2.1 has other names for `cut` and `qcut`.
pytestmark = pytest.mark.filterwarnings("ignore:.*cut. is deprecated")
c = pl.col
U = "patient"
WARDS = ["icu", "er", "surgery", "ped"]


@cache
def visits() -> pl.DataFrame:
    """Synthetic visits of 60 patients, with a column of every kind."""
    n = 600
    rows = range(n)
    return pl.DataFrame(
        {
            U: [i * 7 % 60 for i in rows],
            "ward": [WARDS[i * 5 % 4] for i in rows],
            "age": [i * 11 % 90 for i in rows],
            "qty": [i % 13 for i in rows],
            "cost": [(i * 37 % 1000) / 8 for i in rows],
            "code": [str(i % 30) for i in rows],
            "day": [dt.date(2024, 1, 1) + dt.timedelta(i % 300) for i in rows],
            "time": [dt.datetime(2024, 1, 1) + dt.timedelta(hours=i * 13 % 5000, minutes=i) for i in rows],
            "ok": [i % 3 == 0 for i in rows],
            "diagnosis": [None if i % 4 == 0 else "flu" if i % 2 else "cold" for i in rows],
            "tags": [["a", "b"][: i % 3] for i in rows],
            "scores": [[float(i), 1.5, -2.0] for i in rows],
            "at": [{"zip": i % 9, "street": f"s{i}"} for i in rows],
        },
        schema_overrides={"scores": pl.List(pl.Float64)},
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> SimpleNamespace:
    folder: Path = tmp_path_factory.mktemp("tables")
    flat = visits().drop("tags", "scores", "at")
    flat.write_parquet(folder / "visits.parquet")
    flat.write_csv(folder / "visits.csv")
    flat.write_ipc(folder / "visits.arrow")
    flat.write_ndjson(folder / "visits.ndjson")
    flat.head(300).write_parquet(folder / "part1.parquet")
    flat.tail(300).write_parquet(folder / "part2.parquet")
    patients = pl.DataFrame({U: range(60), "born": [1950 + i for i in range(60)], "sex": ["m", "f"] * 30})
    patients.write_parquet(folder / "patients.parquet")
    wards = pl.LazyFrame({"ward": WARDS, "site": ["N", "S", "N", "S"], "beds": [5, 9, 20, 11]})
    orders = flat.select(U, order=pl.int_range(pl.len()), status=c.ok)
    items = pl.DataFrame({"order": [i % 600 for i in range(1800)], "price": [i % 50 for i in range(1800)]})
    scanned = pl.scan_parquet(folder / "visits.parquet")
    return SimpleNamespace(
        V=scanned,
        averages=scanned.group_by("ward").agg(m=c.cost.mean()),
        M=visits().lazy(),
        K=scanned.with_columns(kind=c.ward.cast(pl.Categorical)),
        C=pl.scan_csv(folder / "visits.csv", try_parse_dates=True),
        I=pl.scan_ipc(folder / "visits.arrow"),
        N=pl.scan_ndjson(folder / "visits.ndjson"),
        P=pl.scan_parquet(folder / "patients.parquet"),
        W=wards,
        O=orders.lazy(),
        L=items.lazy(),
        parts=pl.scan_parquet(folder / "part*.parquet"),
        part1=pl.scan_parquet(folder / "part1.parquet"),
        part2=pl.scan_parquet(folder / "part2.parquet"),
        first=pl.scan_parquet(folder / "visits.parquet", n_rows=9),
        numbered=pl.scan_csv(folder / "visits.csv", row_index_name="i"),
        arrow_first=pl.scan_ipc(folder / "visits.arrow", n_rows=9),
        skipping=pl.scan_csv(folder / "visits.csv", skip_rows_after_header=3),
        arrow_numbered=pl.scan_ipc(folder / "visits.arrow", row_index_name="i"),
    )


def x_of_v(x):
    return lambda t: t.V.with_columns(x=x)


def x_of_m(x):
    return lambda t: t.M.with_columns(x=x)


def x_of_k(x):
    return lambda t: t.K.with_columns(x=x)


# Each is preprocessing of the tables above, as `t`: what the pipelines of private frames have not.
RATES = pl.LazyFrame({"age": [0, 18, 65] * 2, "ward": ["er"] * 3 + ["icu"] * 3, "rate": range(6)})

ORDINARY = {
    "as it is": lambda t: t.V,
    "in memory": lambda t: t.M,
    "csv": lambda t: t.C,
    "ipc": lambda t: t.I,
    "ndjson": lambda t: t.N,
    "glob": lambda t: t.parts,
    "concat of files": lambda t: pl.concat([t.part1, t.part2]),
    "diagonal concat": lambda t: pl.concat([t.part1, t.part2.drop("cost")], how="diagonal"),
    "a table twice": lambda t: pl.concat([t.V, t.V]),
    "merge_sorted": lambda t: t.part1.sort("age").merge_sorted(t.part2.sort("age"), key="age"),
    "filter of ipc": lambda t: t.I.filter(c.age > 30),
    "strptime": lambda t: t.V.with_columns(x=pl.lit("2024-01-01").str.strptime(pl.Date, "%Y-%m-%d")),
    "json_decode": lambda t: t.V.with_columns(x=pl.format("[{}]", "qty").str.json_decode(pl.List(pl.Int64))),
    "pl.date": lambda t: t.V.filter(c.day >= pl.date(2024, 2, 1)),
    "business days of the person": lambda t: t.V.with_columns(x=pl.business_day_count("day", c.day.max().over(U))),
    "fill_null by zero": lambda t: t.V.with_columns(c.qty.fill_null(strategy="zero")),
    "list.eval": lambda t: t.M.with_columns(x=c.scores.list.eval(pl.element().rank())),
    "list of the person": lambda t: t.M.with_columns(x=c.scores.first().over(U).list.mean()),
    "hash": lambda t: t.V.filter(c.patient.hash(3) % 4 == 0),
    "with_columns_seq": lambda t: t.V.with_columns_seq(x=c.age + 1),
    "cache": lambda t: t.V.filter("ok").cache(),
    "sort": lambda t: t.V.sort("time", descending=True),
    "set_sorted at the end": lambda t: t.V.sort("day").set_sorted("day"),
    "shift by person": lambda t: t.V.sort("time").with_columns(x=c.time.shift().over(U), y=c.time.diff().over(U)),
    "forward_fill by person": lambda t: t.V.with_columns(c.diagnosis.forward_fill().over(U, order_by="time")),
    "row number by person": lambda t: t.V.with_columns(x=pl.int_range(pl.len()).over(U)),
    "rolling mean by person": lambda t: t.V.sort("time").with_columns(x=c.cost.rolling_mean(3).over(U)),
    "group_by": lambda t: t.V.group_by(U).agg(c.cost.mean(), pl.len(), c.ward.first()),
    "sorted first": lambda t: t.V.sort("time").group_by(U, maintain_order=True).agg(c.ward.first()),
    "last": lambda t: t.V.sort("time").group_by(U).last(),
    "head of a person": lambda t: t.V.sort("time").group_by(U).head(2),
    "rolling": lambda t: t.V.sort("time").rolling("time", period="7d", group_by=U).agg(c.cost.sum()),
    "group_by a renamed unit": lambda t: t.V.rename({U: "p"}).group_by("p").agg(c.cost.sum()).rename({"p": U}),
    "over a renamed unit": lambda t: (
        t.V.select(c.patient.alias("p"), "cost").with_columns(x=c.cost.max().over("p")).rename({"p": U})
    ),
    "unit cast at the end": lambda t: t.V.group_by(U).agg(c.cost.sum()).with_columns(c.patient.cast(pl.String)),
    "unique by person": lambda t: t.V.unique([U, "ward"], keep="first", maintain_order=True),
    "join people": lambda t: t.V.join(t.P, on=U),
    "left join people": lambda t: t.V.join(t.P, on=U, how="left", validate="m:1"),
    "right join people": lambda t: t.P.join(t.V, on=U, how="right"),
    "full join people": lambda t: t.V.join(t.P, on=U, how="full", coalesce=True),
    "people with totals": lambda t: t.P.join(t.V.group_by(U).agg(n=pl.len()), on=U, how="left"),
    "totals joined back": lambda t: t.V.join(t.V.group_by(U).agg(total=c.cost.sum()), on=U),
    "self-join on the unit": lambda t: t.V.join(t.V.select(U, t2="time"), on=U).filter(c.t2 > c.time),
    "facts joined with rows": lambda t: t.W.join(t.V, on="ward"),
    "facts of facts": lambda t: t.V.join(
        t.W.join(t.W.group_by("site").agg(c.beds.sum().alias("all")), on="site"), on="ward"
    ),
    "the largest ward": lambda t: t.V.join(t.W.top_k(2, by="beds"), on="ward", how="semi"),
    "share of beds": lambda t: t.V.join(t.W.with_columns(share=c.beds / c.beds.sum()), on="ward"),
    "cross": lambda t: t.V.join(t.W.select(w2="ward"), how="cross"),
    "join_where": lambda t: t.V.join_where(t.W.rename({"ward": "w2"}), c.ward == c.w2),
    "join_asof": lambda t: t.V.sort("age").join_asof(pl.LazyFrame({"age": [0, 18, 65], "rate": [1, 2, 3]}), on="age"),
    "join_asof by person": lambda t: t.V.sort("age").join_asof(
        t.P.with_columns(age=c.born - 1940).sort("age"), on="age", by=U
    ),
    "join_asof of rows sorted before": lambda t: (
        t.V.sort("age", "time").filter(c.age > 1).with_columns(x=c.cost + 1).join_asof(RATES, on="age", by="ward")
    ),
    "join_asof by person, unsorted": lambda t: t.V.join_asof(t.P.with_columns(age=c.born - 1940), on="age", by=U),
    "orders and items": lambda t: t.O.join(t.L, on="order"),
    "items and orders": lambda t: t.L.join(t.O, on="order").group_by(U).agg(c.price.sum()),
    "large orders": lambda t: t.O.join(
        t.L.group_by("order").agg(c.price.sum()).filter(c.price > 60), on="order", how="semi"
    ),
    "sql": lambda t: pl.SQLContext(v=t.V).execute("select patient, ward, cost * 2 as c2 from v where age > 30"),
    "sql by person": lambda t: pl.SQLContext(v=t.V).execute("select patient, sum(cost) as s from v group by patient"),
    "sql window": lambda t: pl.SQLContext(v=t.V).execute("select *, avg(cost) over (partition by patient) as m from v"),
    "collected": lambda t: t.V.filter("ok").collect().lazy(),
    "a window by a copy of the unit": lambda t: t.V.with_columns(p=U).with_columns(x=c.cost.sum().over("p")),
    "unique by a copy of the unit": lambda t: t.V.with_columns(p=U).unique(["p", "ward"]),
    "a list's new list, of a person": x_of_m(c.scores.first().list.eval(pl.element() + 1).over(U)),
    "a field from fields": lambda t: t.M.with_columns(c.at.struct.with_fields(x=pl.field("zip") * 2)),
    "a running sum in two orders": lambda t: t.V.with_columns(x=c.cost.cum_sum().over(U, order_by=[c.day, -c.qty])),
    "texts of categories": lambda t: t.K.filter(c.kind == "er", c.kind.cat.len_chars() > 1).with_columns(
        c.kind.cast(pl.String), x=c.kind.replace_strict({"er": 1}, default=0), y=c.age.hash()
    ),
    "a person's categories": lambda t: t.K.group_by(U, "kind").agg(c.kind.n_unique().alias("n"), c.cost.sum()),
    "the last category of a person": lambda t: t.K.with_columns(x=c.kind.sort_by("time").last().over(U)),
    "numbers of an Enum": x_of_v(c.ward.cast(pl.Enum(WARDS)).to_physical()),
    "a column of the unit's own": lambda t: t.V.with_columns(patient=c.patient + 1),
    "two columns as one unit": lambda t: t.V.with_columns(patient=pl.format("{}-{}", U, "ward")),
}
if IS_OLD:  # whose cross joins are refused
    ORDINARY = {name: make for name, make in ORDINARY.items() if name not in {"cross", "join_where"}}

MIXING = {
    "over the ward in a hidden function": x_of_v(pl.business_day_count("day", c.day.max().over("ward"))),
    "a reduction in a hidden function": lambda t: t.M.with_columns(x=c.scores.shift().list.eval(pl.element() + 1)),
    "the sorted lists in a hidden function": lambda t: t.M.with_columns(x=c.scores.sort().list.eval(pl.element() + 1)),
    "the first of lists from a hidden function": x_of_m(c.scores.list.eval(pl.element() + 1).first()),
    "the place of the largest list": x_of_m(c.scores.arg_max().over(U)),
    "the place of the least struct": lambda t: t.M.group_by(U).agg(c.at.arg_min()),
    "the largest that a hidden function made": x_of_v(pl.business_day_count(pl.date(2020, 1, 1), "day").max()),
    "how many a hidden function made": x_of_m(c.scores.list.eval(pl.element() + 1).len()),
    "Python in lists": lambda t: t.M.with_columns(
        x=c.scores.list.eval(pl.element().map_batches(lambda s: s - s.mean(), is_elementwise=True))
    ),
    "the mean of a field": lambda t: t.M.with_columns(c.at.struct.with_fields(x=pl.field("zip").mean())),
    "a ward's mean in a field of a person's window": lambda t: t.M.with_columns(
        x=c.at.struct.with_fields(x=c.cost.mean().over("ward")).first().over(U)
    ),
    "a ward's mean in a field of a person's group": lambda t: t.M.group_by(U).agg(
        c.at.struct.with_fields(x=c.cost.mean().over("ward")).first()
    ),
    "a running sum in the order of others' days": x_of_v(c.cost.cum_sum().over(U, order_by=c.day.shift())),
    "a window by what is computed of the unit": lambda t: t.V.with_columns(p=c.patient // 10).with_columns(
        x=c.cost.sum().over("p")
    ),
    "a window by what was a copy of the unit": lambda t: (
        t.V.with_columns(p=U).with_columns(p="ward").with_columns(x=c.cost.sum().over("p"))
    ),
    "a window by a copy that others' rows fill": lambda t: (
        t.V.with_columns(p=U).join(t.P, on=U, how="full", coalesce=True).with_columns(x=c.age.sum().over("p"))
    ),
    "the last day in a hidden function": lambda t: t.V.with_columns(x=pl.business_day_count("day", c.day.max())),
    "the last day as a field in a hidden function": lambda t: t.M.with_columns(
        x=pl.business_day_count(pl.date(2020, 1, 1), c.at.struct.with_fields(x=c.day.max()).struct.field("x"))
    ),
    "a shift that fills": x_of_v(c.age.shift(1, fill_value=0)),
    "a shift of the unit that fills": lambda t: t.V.with_columns(c.patient.shift(1, fill_value=0)),
    "a shift of the frame that fills": lambda t: t.V.select(U, "age", "qty").shift(-1, fill_value=0),
    "reshape to one array": lambda t: t.V.filter(c.age >= c.age.reshape((1, 600)).arr.mean()),
    "reshape to pairs": lambda t: t.V.select(
        *(pl.col(name).reshape((-1, 2)).arr.get(place) for place, name in enumerate([U, "age"]))
    ),
    "cumulative_eval": x_of_v(c.age.cumulative_eval(pl.element().sum())),
    "cumulative_eval in a list": lambda t: t.M.with_columns(
        x=pl.concat_list(c.age.cumulative_eval(pl.element().last())).list.eval(pl.element() + 1)
    ),
    "a window of parts of a person's rows": x_of_v(c.cost.sum().over(U, c.cost > c.cost.mean())),
    "a window by a running number": x_of_v(c.cost.sum().over(U, pl.int_range(pl.len()) // 100)),
    "rows of a person in place of others": lambda t: t.V.select(U, x=c.cost.sort().over(U, mapping_strategy="explode")),
    "a ward's largest in a filter of a person's window": x_of_v(
        c.cost.filter(c.cost >= c.cost.max().over("ward")).sum().over(U)
    ),
    "a ward's largest in a filter of a person's group": lambda t: t.V.group_by(U).agg(
        c.cost.filter(c.cost >= c.cost.max().over("ward")).sum()
    ),
    "a ward's order in a person's group": lambda t: t.V.group_by(U).agg(
        c.cost.sort_by(c.age.rank().over("ward")).first()
    ),
    "a ward's place in a person's group": lambda t: t.V.group_by(U).agg(
        c.cost.gather((c.age.rank().over("ward") % 2).cast(pl.Int64)).first()
    ),
    "Python in a filter of a person's group": lambda t: t.V.group_by(U).agg(
        c.cost.filter(c.cost.map_batches(lambda s: s > s.mean(), return_dtype=pl.Boolean)).sum()
    ),
    "Python in a moving window of a person": x_of_v(
        c.cost.map_batches(lambda s: s, return_dtype=pl.Float64).sum().rolling("time", period="3d").over(U)
    ),
    "Python of groups, of a column named hint": lambda t: (
        t.V.rename({"age": "hint"})
        .group_by(U)
        .map_groups(lambda frame: frame, schema=t.V.rename({"age": "hint"}).collect_schema())
    ),
    "Python of groups, of a column named asof join": lambda t: (
        t.V.rename({"age": "asof join"})
        .group_by(U)
        .map_groups(lambda frame: frame, schema=t.V.rename({"age": "asof join"}).collect_schema())
    ),
    "a Series that is looked up": x_of_v(pl.lit(pl.Series(range(600))).is_in([1, 2])),
    "a Series that is added and looked up": x_of_v((c.age + pl.lit(pl.Series(range(600)))).is_in([1, 2])),
    "a Series that is replaced": x_of_v(pl.lit(pl.Series(range(600))).replace(1, 2)),
    "values looked up in all rows": x_of_v(c.age.is_in(c.qty.implode())),
    "values replaced by those of all rows": lambda t: t.V.unique([U, "age"]).with_columns(
        x=c.age.replace(c.age.implode(), c.qty.implode())
    ),
    "a format of the first row": x_of_v(c.code.str.to_date(strict=False)),
    "a format of the first row, in a list": lambda t: t.M.with_columns(
        x=pl.concat_list(c.code.str.to_datetime(strict=False)).list.eval(pl.element().dt.year())
    ),
    "a sample of a list": lambda t: t.M.with_columns(c.scores.list.sample(1, seed=1)),
    "a shuffle": x_of_v(c.age.shuffle(seed=1)),
    "append": lambda t: t.V.select(c.patient.append(c.age), x=1),
    "reverse": lambda t: t.V.reverse(),
    "row index": lambda t: t.V.with_row_index(),
    "a scan with n_rows": lambda t: t.first,
    "a scan with a row index": lambda t: t.numbered,
    "an ipc scan with n_rows": lambda t: t.arrow_first,
    "an ipc scan with a row index": lambda t: t.arrow_numbered,
    "a csv scan that skips": lambda t: t.skipping,
    "a Series": lambda t: t.V.with_columns(x=pl.Series(range(600))),
    "is_duplicated": lambda t: t.V.filter(c.day.is_duplicated()),
    "group_by ward": lambda t: t.V.group_by("ward").agg(c.patient.first(), c.cost.sum()),
    "group_by a constant": lambda t: t.V.group_by(pl.lit(1)).agg(c.patient.first(), c.cost.sum()),
    "group_by_dynamic": lambda t: (
        t.V.sort("time").group_by_dynamic("time", every="1mo").agg(c.cost.sum(), c.patient.first())
    ),
    "rolling": lambda t: t.V.sort("time").rolling("time", period="7d").agg(c.cost.sum(), c.patient.first()),
    "map_batches by person": lambda t: t.V.with_columns(
        c.cost.map_batches(lambda s: s, return_dtype=pl.Float64).over(U)
    ),
    "map_groups": lambda t: t.V.group_by(U).map_groups(lambda frame: frame, schema=t.V.collect_schema()),
    "fold": lambda t: t.V.with_columns(x=pl.fold(pl.lit(0), lambda one, two: one + two.mean(), ["age", "qty"])),
    "horizontal concat": lambda t: pl.concat([t.V, t.V.select(c2=c.cost)], how="horizontal"),
    "average joined back": lambda t: t.V.join(t.averages, on="ward"),
    "average joined back on another scan": lambda t: t.part1.join(
        t.parts.group_by("ward").agg(m=c.cost.mean()), on="ward"
    ),
    "average crossed": lambda t: t.V.join(t.V.select(m=c.cost.mean()), how="cross"),
    "average joined to facts first": lambda t: t.V.join(t.W.join(t.averages, on="ward"), on="ward"),
    "average joined to people first": lambda t: (
        t.P.with_columns(ward=pl.lit("er")).join(t.averages, on="ward").join(t.V.drop("ward"), on=U)
    ),
    "average of persons' sums": lambda t: t.V.join(
        t.V.group_by(U).agg(t=c.cost.sum(), w=c.ward.first()).group_by("w").agg(a=c.t.mean()),
        left_on="ward",
        right_on="w",
    ),
    "average price joined back": lambda t: t.O.join(t.L, on="order").join(
        t.L.group_by("price").agg(n=pl.len()), on="price"
    ),
    "busy wards": lambda t: t.V.join(t.V.group_by("ward").agg(n=pl.len()).filter(c.n > 9), on="ward", how="semi"),
    "self-join": lambda t: t.V.join(t.V.select("ward", c2="cost"), on="ward"),
    "a second unit beside": lambda t: t.V.join(t.P.with_columns(age=c.born - 1940), on="age"),
    "a second unit in another column": lambda t: t.V.join(
        t.P.with_columns(knows=c.born - 1930), left_on=U, right_on="knows"
    ),
    "a second unit instead": lambda t: t.V.drop(U).join(t.P.rename({"born": "age"}), on="age"),
    "renamed there and back": lambda t: (
        t.V.rename({U: "p", "age": U}).with_columns(m=c.cost.mean().over(U)).rename({U: "age", "p": U})
    ),
    "grouped there and back": lambda t: (
        t.V.with_columns(p=U)
        .with_columns(patient=c.age)
        .group_by(U)
        .agg(c.p.first(), c.cost.sum())
        .select(patient="p", cost="cost")
    ),
    "selected there and back": lambda t: (
        t.V.select(p=U, patient="ward", cost="cost").with_columns(m=c.cost.sum().over(U)).select(patient="p", m="m")
    ),
    "a constant as the unit": lambda t: t.V.mean().with_columns(patient=pl.lit(1)),
    "a unit that is counted": lambda t: t.V.with_columns(patient=pl.len().over("ward")),
    "the unit of a neighbour": lambda t: t.V.with_columns(patient=c.patient.shift(-1)),
    "group_by in one branch": lambda t: pl.concat(
        [t.part1.select(U, "cost"), t.part2.group_by("ward").agg(c.patient.first(), c.cost.sum()).select(U, "cost")]
    ),
    "join_asof of rows that nobody sorted": lambda t: t.V.join_asof(RATES, on="age", by="ward"),
    "join_asof of rows in the order of another column": lambda t: t.V.sort("time").join_asof(
        RATES, on="age", by="ward"
    ),
    "join_asof of rows sorted downwards": lambda t: t.V.sort("age", descending=True).join_asof(
        RATES, on="age", by="ward"
    ),
    "join_asof by what is no longer sorted": lambda t: (
        t.V.sort("age").with_columns(age=100 - c.age).join_asof(RATES, on="age", by="ward")
    ),
    "join_asof by a computed column": lambda t: t.V.sort("age").join_asof(
        RATES, left_on=c.age % 7, right_on="age", by="ward", coalesce=False
    ),
    "join_asof by the person's number alone": lambda t: t.V.join_asof(RATES, left_on=U, right_on="age", by="ward"),
    "set_sorted": lambda t: t.V.sort("day").set_sorted("day").filter(c.day > c.day.min().over(U)),
    "a column that is set_sorted": lambda t: t.V.with_columns(c.day.set_sorted()),
    "numbers of categories": lambda t: t.K.filter(c.kind.to_physical() > 0),
    "a hash of categories": lambda t: t.K.filter(c.kind.hash() % 2 == 0),
    "a hash of a field of categories": lambda t: t.K.with_columns(x=pl.struct("kind", "age").hash()),
    "categories as numbers": lambda t: t.K.with_columns(x=c.kind.cast(pl.UInt32)),
    "lists of categories as numbers": lambda t: t.K.with_columns(x=pl.concat_list("kind").cast(pl.List(pl.UInt32))),
    "numbers of categories in a list": lambda t: t.K.with_columns(
        x=pl.concat_list("kind").list.eval(pl.element().to_physical())
    ),
    "categories of a list as numbers": lambda t: t.K.with_columns(
        x=pl.concat_list("kind").list.eval(pl.element().cast(pl.UInt32))
    ),
    "numbers of categories in a struct": lambda t: t.K.with_columns(
        x=pl.struct("kind").struct.with_fields(x=pl.field("kind").to_physical())
    ),
    "the least category of a list": lambda t: t.K.with_columns(x=pl.concat_list("kind").list.min()),
    "the larger of two categories": lambda t: t.K.with_columns(x=pl.max_horizontal("kind", c.kind.shift().over(U))),
    "numbers of a person's categories": lambda t: t.K.group_by(U).agg(c.kind.to_physical().max()),
    "a person's rows by numbers of categories": x_of_k(c.age.sum().over(U, c.kind.to_physical() % 2)),
    "numbers of categories made on the way": x_of_v(c.ward.cast(pl.Categorical).to_physical()),
    "a running category": x_of_k(c.kind.peak_max().over(U)),
    "the category before in public rows": lambda t: t.K.sort("kind").join_asof(
        t.W.select(kind=c.ward.cast(t.K.collect_schema()["kind"]), beds="beds").sort("kind"), on="kind"
    ),
    "the largest of what is sorted": lambda t: t.V.group_by(U).agg(c.cost.sort().max()),
    "the place of the largest from behind": x_of_v(c.cost.reverse().arg_max().over(U)),
    "the largest in an order": x_of_v(c.cost.max().over(U, order_by="day", mapping_strategy="join")),
    "set_sorted among a person's rows": lambda t: t.V.group_by(U).agg(c.cost.max().set_sorted()),
    "sql limit": lambda t: pl.SQLContext(v=t.V).execute("select * from v limit 10"),
    "sql window": lambda t: pl.SQLContext(v=t.V).execute("select *, avg(cost) over (partition by ward) as m from v"),
    "sql subquery": lambda t: pl.SQLContext(v=t.V).execute(
        "select v.* from v join (select ward, avg(cost) as m from v group by ward) as a on v.ward = a.ward"
    ),
}


def asked(frame: pl.LazyFrame | pl.DataFrame, unit: str = U, **options: object) -> dpp.PrivateQuery:
    return frame.dp.protect(unit, max_rows=2000, **options).agg(
        rows=dpp.len(epsilon=10**6), people=dpp.n_people(epsilon=10**6)
    )


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_preprocessing_is_taken_and_right(name, tables):
    frame = ORDINARY[name](tables)
    rows = frame.collect()
    released = asked(frame).release()
    assert released.row(0) == (rows[U].count(), rows[U].drop_nulls().n_unique())


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_people_is_refused_with_all_ways_on(name, tables):
    frame, why = MIXING[name](tables), "a Python function" * name.startswith("Python")
    refused(ValueError, rf"^protect: [\s\S]*{why}[\s\S]*\n\nHint: [\s\S]*unchecked=True\.$", asked, frame)
    assert asked(frame, unchecked=True)._request.pipeline.unchecked
    given = dpp.protect(U, max_rows=2000).agg(people=dpp.n_people(epsilon=1))
    refused(ValueError, r"unchecked=True\.$", given.release, frame)


def of_pipelines(table: dict[str, Steps]) -> Iterator[tuple[str, str, pl.LazyFrame]]:
    """What a private frame takes or refuses, before `protect`: where the unit stays a column."""
    rows = {"visits": (U, pipelines.visits().lazy()), "lines": ("customer", pipelines.lines().lazy())}
    for name, steps in table.items():
        unit, frame = rows.get(name.partition(": ")[0], rows["visits"])
        try:
            prepared = steps(frame)
        except (TypeError, AttributeError):
            if not IS_OLD:  # which lacks some methods and parameters
                raise
            continue
        if unit in prepared.collect_schema():
            yield name, unit, prepared


# Those of one row, or of one person's rows, that Polars runs on all rows.
OF_ALL_ROWS = {"visits: parse a date without a format": "takes its format from the first values"}


@pytest.mark.slow
def test_pipelines_that_a_private_frame_takes_are_taken_before_it_and_right():
    taken = 0
    for name, unit, frame in of_pipelines(pipelines.BY_ROW | pipelines.BY_PERSON):
        if name in OF_ALL_ROWS:
            refused(ValueError, OF_ALL_ROWS[name], asked, frame, unit)
            continue
        if IS_OLD and "CROSS JOIN" in frame.explain(optimized=False).upper():
            refused(ValueError, r"a join \(Cross\)", asked, frame, unit)
            continue
        rows = frame.collect()
        assert asked(frame, unit).release().row(0) == (rows[unit].count(), rows[unit].drop_nulls().n_unique()), name
        taken += 1
    assert taken > (150 if IS_OLD else 200)


# What is a person's own in the order of the plain rows, and what makes another unit: `protect` takes both.
OF_ANOTHER_UNIT = {"groups of remainders", "the unit made coarser", "another column renamed to the unit"}
OF_ANOTHER_UNIT |= {"another column that takes the unit's name", "the unit's name of a selector"}
OF_ANOTHER_UNIT |= {"groups of another column that is named like people"}


@pytest.mark.slow
def test_pipelines_that_bring_people_together_are_refused_before_it():
    seen = 0
    for name, unit, frame in of_pipelines(pipelines.MIXED):
        if name not in OF_ANOTHER_UNIT and not name.startswith("one's own"):
            refused(ValueError, r"^protect: [\s\S]*\n\nHint: [\s\S]*unchecked=True\.$", asked, frame, unit)
            assert asked(frame, unit, unchecked=True)._request.pipeline.unchecked
            seen += 1
    assert seen > 85


# No functions of rows; bounds are constants.
LEFT_OUT = {"dp", "inspect", "meta", "plot", "agg_groups", "register_plugin", "lower_bound", "upper_bound"}


def _calls() -> dict[str, pl.Expr]:
    """Return a call of every method of expressions that Polars lists and that takes simple arguments."""
    rows, found = _company(), {}
    places = {"str": "w", "dt": "t", "list": "n", "arr": "arr", "struct": "st", "bin": "b", "cat": "cat"}
    columns = [*places.items(), ("", "x"), ("", "i"), ("", "ok")]
    for namespace, column in columns:
        of = getattr(c(column), namespace) if namespace else c(column)
        for method in dir(of):
            if method.startswith("_") or method in LEFT_OUT:
                continue
            call = getattr(of, method)
            if not callable(call) or method.startswith(("map_", "rolling_map")):
                continue
            try:
                wanted = [one for one in inspect.signature(call).parameters.values() if one.default is one.empty]
            except ValueError:
                continue
            wanted = [one for one in wanted if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
            for value in (1, "a", c(column), pl.Int64, "1h", [1.0]) if wanted else (1,):
                try:
                    expr = call(*[value] * len(wanted))
                    rows.lazy().select(expr).collect_schema()
                except (Exception, PanicException):
                    continue
                found[f"{namespace}.{method} of {column}"] = expr
                break
    further = {
        "int_range": pl.int_range(pl.len()), "corr": pl.corr("i", "x"), "cov": pl.cov("i", "x"),
        "arg_where": pl.arg_where(c.i > 1), "arg_sort_by": pl.arg_sort_by("x"), "bitwise_and": c.i.bitwise_and(),
        "dates": pl.date_range(dt.date(2024, 1, 1), dt.date(2024, 1, 9)),
        "rolling": c.x.sum().rolling("t", period="3d"), "qcut": c.x.qcut(2),
        "ewm_by": c.x.ewm_mean_by("t", half_life="1d"), "rolling_by": c.x.rolling_mean_by("t", "3d"),
        "linear_space": pl.linear_space(0, c.i.max(), pl.len()), "forward": c.i.forward_fill(),
        "nested": c.n.shift().list.len() + 1,
    }  # fmt: skip
    return found | further


@cache
def _company() -> pl.DataFrame:
    days = [5, 2, 9, 1, 3, 8, 4, 6, 7]
    return pl.DataFrame(
        {
            "w": ["b", "a", None, "zz", "a", "q", "1", "", "b"],
            "x": [2.5, None, 1.0, float("nan"), 7.0, -3.0, 2.5, 0.0, 1.0],
            "i": [5, 1, 1, 9, None, 3, 2, 8, 4],
            "t": [dt.datetime(2024, 1, day) for day in days],
            "n": [[1, 2], [3], [], None, [5], [7, 8], [3], [2, 1], [9]],
            "arr": pl.Series([[day, 2] for day in days], dtype=pl.Array(pl.Int64, 2)),
            "st": [{"a": day} for day in days],
            "b": [b"a", b"", None] * 3,
            "cat": pl.Series(list("abcabcaab"), dtype=pl.Categorical),
            "ok": [True, None, False, True, True, None, False, False, True],
            U: days,
        }
    )


def _looks_at_others(expr: pl.Expr) -> bool:
    """Return whether a row's value is another one where the other rows are not there."""
    rows = _company()
    whole = rows.select(expr)
    if whole.height != rows.height:
        return True
    return any(not rows[row].select(expr).equals(whole[row]) for row in range(rows.height))


@pytest.mark.filterwarnings("ignore")
def test_every_function_that_looks_at_other_rows_is_known():
    """A function that is not in the table of kinds must give each row of a frame what it gives that row alone."""
    taken, mixing = 0, 0
    for name, expr in _calls().items():
        try:
            mixes = _looks_at_others(expr)
        except (Exception, PanicException):
            continue
        try:
            preprocessing_of(
                _company().lazy().select(U, value=expr) if mixes else _company().lazy().with_columns(value=expr), (U,)
            )
        except ValueError:
            mixing += mixes
        else:
            assert not mixes, name
            taken += 1
    assert taken > 150
    assert mixing > 60


def test_a_join_takes_no_average_of_the_other_table(tables):
    people = tables.P.with_columns(ward=pl.lit("er")).join(tables.averages, on="ward")
    words = r"a table that is read twice|a table about people|made of other people's rows"
    refused(ValueError, words, lambda: tables.V.join(people, on=U).dp.protect(U, max_rows=5))


def test_facts_may_stand_in_both_tables_of_a_join(tables):
    rows = tables.V.join(tables.W, on="ward").select(U, "site")
    people = tables.P.with_columns(ward=pl.lit("er")).join(tables.W, on="ward").select(U, "beds")
    private = rows.join(people, on=U).dp.protect(U, max_rows=2000)
    assert private.agg(dpp.len(epsilon=10**6)).release().item() == 600


def test_without_a_unit_no_row_may_become_several(tables):
    for make in (
        lambda t: t.V.join(t.W, on="ward"),
        lambda t: t.M.explode("tags"),
        lambda t: t.V.unpivot(["age", "qty"]),
        lambda t: pl.concat([t.V, t.V]),
        lambda t: t.V.join(t.V, on="age", how="semi"),
        lambda t: t.V.group_by("ward").agg(c.cost.sum()),
        lambda t: t.V.with_columns(c.cost.sum().over(U)),
        lambda t: t.V.unique(),
        lambda t: t.V.head(3),
    ):
        refused(ValueError, r"unchecked=True\.$", make(tables).dp.protect, None)
        make(tables).dp.protect(None, unchecked=True)


def test_without_a_unit_steps_by_row_are_taken(tables):
    for make in (
        lambda t: t.V.filter(c.age > 3).with_columns(x=c.cost / 3),
        lambda t: pl.concat([t.part1, t.part2]),
        lambda t: t.V.join(t.W.filter(c.site == "N"), on="ward", how="semi"),
        lambda t: t.M.sort("cost").drop("ward"),
    ):
        frame = make(tables)
        released = frame.dp.protect(None).agg(dpp.len(epsilon=10**6)).release()
        assert released.item() == frame.collect().height


@pytest.mark.parametrize(
    ("make", "times"),
    [
        (lambda t: t.V.filter(c.age > 3).with_columns(x=c.cost / 3), 0),
        (lambda t: t.V.join(t.W, on="ward"), 0),
        (lambda t: t.V.group_by(U).agg(c.cost.mean()), 1),
        (lambda t: t.V.with_columns(x=c.cost.mean().over(U)), 1),
        (lambda t: t.V.unique([U, "ward"], keep="any"), 1),
        (lambda t: t.V.sort("day").join_asof(t.M.sort("day").select(U, "day", y="cost"), on="day", by=U), 1),
        (lambda t: t.V.join(t.W.with_columns(share=c.beds / c.beds.sum()), on="ward"), 1),
    ],
)
def test_what_may_differ_between_runs_is_run_once(make, times, tables, monkeypatch):
    """Two parts of the people, and the number of rows, are three scans of the rows."""
    runs = []
    monkeypatch.setattr(
        "dp_polars._sources.source.collected", lambda plans, engine: runs.append(1) or collected(plans, engine)
    )
    assert asked(make(tables)).release(partitions=2)["people"].item() == 60
    assert len(runs) == times


def test_preprocessing_that_fails_after_the_charge_says_nothing(tables):
    budget = dpp.Budget(epsilon=10)
    private = tables.V.with_columns(c.ward.cast(pl.Int64)).group_by(U).agg(c.ward.sum()).dp.protect(U, budget=budget)
    query = private.agg(dpp.n_people(epsilon=1))
    assert refused(RuntimeError, r"^The release failed while the engine ran", query.release).__context__ is None
    assert budget.spent == 1


def test_unchecked_stands_in_claim_ledger_statement_and_report(tables, tmp_path):
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")
    plan = tables.V.head(100)
    bound = plan.dp.protect(U, budget=budget, unchecked=True).agg(dpp.n_people(epsilon=1))
    free = dpp.protect(U, budget=budget).agg(dpp.n_people(epsilon=1))
    bound.sink_parquet(tmp_path / "bound.parquet")
    free.sink_parquet(tmp_path / "free.parquet", plan, unchecked=True)
    free.release(tables.V)
    assert [dpp.read_claim(tmp_path / f"{name}.parquet")["unchecked"] for name in ("bound", "free")] == [True, True]
    assert budget.log()["unchecked"].to_list() == [True, True, False]
    assert bound.statement().facts["releases"][0]["unchecked"] is True
    assert free.statement().facts["releases"][0]["unchecked"] is None
    assert "taken unchecked" in bound.statement().to_markdown()
    assert "taken unchecked" in dpp.statement(budget).to_markdown()
    dpp.report(bound.release(), bound, tmp_path / "report.html")
    assert "taken unchecked" in (tmp_path / "report.html").read_text()
    cube = dpp.protect(U, max_groups=1).cube({"ward": WARDS}, epsilon=1).release(plan, unchecked=True)
    assert cube.claim["unchecked"] is True
    refused(TypeError, r"^unchecked must be left out", bound.release, unchecked=True)
    refused(TypeError, r"^unchecked must be True or False", dpp.protect, U, unchecked="yes")
