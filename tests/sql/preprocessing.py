"""Ordinary preprocessing in Ibis, by row or by person, and some that mixes: a hospital, TPC-H, Ibis' tutorial."""

from __future__ import annotations

import ibis
from ibis import _

# Tables, each by its columns and a SELECT of the rows of DuckDB or Postgres, where i is 0 to 239.
ROWS = """
  SELECT i, i % 40 AS patient, (i * 7) % 5 AS doctor, i % 4 AS ward,
    DATE '2023-01-01' + CAST((i * 11) % 700 AS INTEGER) AS admitted,
    TIMESTAMP '2023-01-01 08:00:00' + i * 11 * INTERVAL '1 hour' AS came,
    TIMESTAMP '2023-01-01 09:30:00' + i * 12 * INTERVAL '1 hour' AS went,
    CAST((i * 37) % 1000 AS DOUBLE PRECISION) + 0.25 AS cost,
    CAST(((i * 13) % 500) * 0.5 AS DECIMAL(10, 2)) AS price, 1 + i % 6 AS units, 20 + i % 70 AS age,
    CASE WHEN i % 9 = 0 THEN NULL ELSE CAST(i % 12 AS VARCHAR) END AS code,
    CASE i % 3 WHEN 0 THEN ' flu;cold' WHEN 1 THEN 'Cold' ELSE 'asthma;flu ' END AS diagnoses,
    i % 5 = 0 AS urgent, CASE WHEN i % 10 = 0 THEN NULL ELSE (i * 3) % 90 END AS score
  FROM numbers
"""
TABLES = {
    "visits": ROWS,
    "patients": "SELECT DISTINCT i % 40 AS patient, CAST('1950-01-01' AS DATE) + CAST(i % 40 AS INTEGER) * 400 "
    "AS born, CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END AS sex, i % 40 % 3 AS city FROM numbers",
    "wards": "SELECT DISTINCT i % 4 AS ward, 10 + i % 4 AS beds, i % 4 % 2 AS wing, 0.5 * (i % 4) AS rate FROM numbers",
    "prices": "SELECT DISTINCT 2023 + i % 2 AS year, 1.0 + (i % 2) * 0.25 AS factor FROM numbers",
    "customer": "SELECT i AS custkey, 'Customer ' || i AS name, i % 5 AS nationkey, CAST(i * 10.5 AS DECIMAL(15, 2)) "
    "AS acctbal, CASE WHEN i % 2 = 0 THEN 'BUILDING' ELSE 'AUTOMOBILE' END AS segment FROM numbers WHERE i < 30",
    "orders": "SELECT i AS orderkey, i % 30 AS custkey, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'O' END AS status, "
    "CAST(100 + i * 3.5 AS DECIMAL(15, 2)) AS totalprice, DATE '1995-01-01' + CAST(i * 5 AS INTEGER) AS orderdate, "
    "CASE WHEN i % 4 = 0 THEN '1-URGENT' ELSE '3-MEDIUM' END AS priority FROM numbers WHERE i < 120",
    "lineitem": "SELECT i % 120 AS orderkey, i % 10 AS partkey, CAST(1 + i % 50 AS DECIMAL(15, 2)) AS quantity, "
    "CAST(100 + i * 2 AS DECIMAL(15, 2)) AS extendedprice, CAST((i % 10) * 0.01 AS DECIMAL(15, 2)) AS discount, "
    "CASE WHEN i % 3 = 0 THEN 'R' ELSE 'N' END AS returnflag, DATE '1995-02-01' + CAST(i * 4 AS INTEGER) AS shipdate, "
    "DATE '1995-02-10' + CAST(i * 4 AS INTEGER) AS receiptdate, CASE WHEN i % 2 = 0 THEN 'MAIL' ELSE 'SHIP' END "
    "AS shipmode FROM numbers",
    "nation": "SELECT DISTINCT i % 5 AS nationkey, 'NATION ' || i % 5 AS nation, i % 5 % 2 AS regionkey FROM numbers",
    "part": "SELECT DISTINCT i % 10 AS partkey, 'Brand#' || i % 3 AS brand, i % 10 AS size FROM numbers WHERE i < 10",
    "penguins": "SELECT i AS penguin, CASE i % 3 WHEN 0 THEN 'Adelie' WHEN 1 THEN 'Gentoo' ELSE 'Chinstrap' END "
    "AS species, CASE WHEN i % 2 = 0 THEN 'Dream' ELSE 'Biscoe' END AS island, CASE WHEN i % 17 = 0 THEN NULL ELSE "
    "35.0 + i % 20 END AS bill_length_mm, 14.0 + (i % 7) * 0.5 AS bill_depth_mm, 2700 + i * 10 AS body_mass_g, "
    "CASE WHEN i % 11 = 0 THEN NULL WHEN i % 2 = 0 THEN 'male' ELSE 'female' END AS sex, 2007 + i % 3 AS year "
    "FROM numbers",
}


# Each is given the tables, by name.
VISITS = {
    "the table": lambda t: t.visits,
    "select": lambda t: t.visits.select("patient", "ward", "cost"),
    "drop": lambda t: t.visits.drop("doctor", "code"),
    "rename": lambda t: t.visits.rename(amount="cost", unit="ward"),
    "filter by a number": lambda t: t.visits.filter(_.cost > 100),
    "filter by several": lambda t: t.visits.filter(_.age >= 18, _.urgent | (_.ward == 2)),
    "filter by a text": lambda t: t.visits.filter(_.diagnoses.contains("flu")),
    "filter by a list": lambda t: t.visits.filter(_.ward.isin([1, 2])),
    "filter by a constant date": lambda t: t.visits.filter(_.admitted <= ibis.date(2024, 9, 2)),
    "filter by a constant time": lambda t: t.visits.filter(_.came >= ibis.timestamp(2023, 2, 1, 0, 0, 0)),
    "filter by a date in text": lambda t: t.visits.filter(_.admitted >= "2023-06-01"),
    "filter between dates": lambda t: t.visits.filter(
        _.admitted.between(ibis.date("2023-02-01"), ibis.date("2023-09-01"))
    ),
    "filter by a constant interval": lambda t: t.visits.filter(
        _.admitted >= ibis.date("2024-01-01") - ibis.interval(days=90)
    ),
    "filter nulls out": lambda t: t.visits.filter(_.score.notnull()),
    "drop nulls": lambda t: t.visits.drop_null(["score", "code"]),
    "fill nulls": lambda t: t.visits.fill_null({"score": 0}),
    "fill nulls of a column": lambda t: t.visits.mutate(score=_.score.fill_null(-1)),
    "coalesce": lambda t: t.visits.mutate(score=ibis.coalesce(_.score, _.age)),
    "sum of columns": lambda t: t.visits.mutate(x=_.age + _.price),
    "product of columns": lambda t: t.visits.mutate(x=_.units * _.price),
    "tens": lambda t: t.visits.mutate(x=_.age // 10 * 10),
    "remainder": lambda t: t.visits.mutate(x=_.age % 10),
    "quotient of columns": lambda t: t.visits.mutate(x=_.price / _.units),
    "quotient of integers": lambda t: t.visits.mutate(x=_.age / _.units),
    "quotient that may be by zero": lambda t: t.visits.mutate(x=_.cost / _.ward.nullif(0)),
    "share": lambda t: t.visits.mutate(x=_.cost / (_.cost + 100) * 100),
    "bins by floor": lambda t: t.visits.mutate(x=(_.cost / 50).floor() * 50),
    "bins by ceil": lambda t: t.visits.mutate(x=(_.cost / 50).ceil()),
    "round": lambda t: t.visits.mutate(x=_.cost.round()),
    "round to digits": lambda t: t.visits.mutate(x=(_.cost / 3).round(2)),
    "cast to int": lambda t: t.visits.mutate(x=_.cost.cast("int64")),
    "cast to a narrow int": lambda t: t.visits.mutate(x=_.age.cast("int16")),
    "cast to float": lambda t: t.visits.mutate(x=_.price.cast("float64")),
    "cast to text": lambda t: t.visits.mutate(x=_.ward.cast("string")),
    "cast of text": lambda t: t.visits.mutate(x=_.code.cast("int64")),
    "cast of text, then more": lambda t: t.visits.mutate(x=_.code.cast("int64") + 1),
    "cast to decimal": lambda t: t.visits.mutate(x=_.cost.cast("decimal(12, 2)")),
    "cast of a table": lambda t: t.visits.cast({"age": "float64"}),
    "cast to boolean": lambda t: t.visits.mutate(x=(_.ward > 1).cast("int64")),
    "sqrt": lambda t: t.visits.mutate(x=_.cost.sqrt()),
    "log": lambda t: t.visits.mutate(x=_.cost.log()),
    "log10 of one more": lambda t: t.visits.mutate(x=(_.cost + 1).log10()),
    "exp": lambda t: t.visits.mutate(x=(_.age / 100).exp()),
    "power": lambda t: t.visits.mutate(x=_.age**2),
    "root as a power": lambda t: t.visits.mutate(x=_.cost**0.5),
    "abs": lambda t: t.visits.mutate(x=(_.age - 50).abs()),
    "sign": lambda t: t.visits.mutate(x=(_.age - 50).sign()),
    "negate": lambda t: t.visits.mutate(x=-_.age),
    "clip": lambda t: t.visits.mutate(x=_.cost.clip(0, 500)),
    "greatest": lambda t: t.visits.mutate(x=ibis.greatest(_.cost, _.age)),
    "bucket": lambda t: t.visits.mutate(x=_.age.bucket([0, 18, 65, 120])),
    "ifelse": lambda t: t.visits.mutate(x=(_.age >= 65).ifelse("old", "young")),
    "cases": lambda t: t.visits.mutate(x=ibis.cases((_.age < 18, "child"), (_.age < 65, "adult"), else_="old")),
    "cases of values": lambda t: t.visits.mutate(x=_.ward.cases((0, "a"), (1, "b"), else_="c")),
    "substitute": lambda t: t.visits.mutate(x=_.code.substitute({"1": "one"})),
    "two steps": lambda t: t.visits.mutate(x=_.cost * 2).mutate(y=_.x + 1).filter(_.y > 5),
    "upper": lambda t: t.visits.mutate(x=_.diagnoses.upper()),
    "strip and lower": lambda t: t.visits.mutate(x=_.diagnoses.strip().lower()),
    "length": lambda t: t.visits.mutate(x=_.diagnoses.length()),
    "first letters": lambda t: t.visits.mutate(x=_.diagnoses[:3]),
    "substr": lambda t: t.visits.mutate(x=_.diagnoses.substr(1, 3)),
    "concatenate": lambda t: t.visits.mutate(x=_.ward.cast("string") + "-" + _.code),
    "replace": lambda t: t.visits.mutate(x=_.diagnoses.replace(";", ",")),
    "a regular expression": lambda t: t.visits.filter(_.diagnoses.re_search("^[A-Z]")),
    "extract by one": lambda t: t.visits.mutate(x=_.diagnoses.re_extract("([a-z]+);", 1)),
    "replace by one": lambda t: t.visits.mutate(x=_.diagnoses.re_replace("[^a-z]", "")),
    "split": lambda t: t.visits.mutate(x=_.diagnoses.split(";")[0]),
    "like": lambda t: t.visits.filter(_.diagnoses.like("%flu%")),
    "pad": lambda t: t.visits.mutate(x=_.code.lpad(4, "0")),
    "find": lambda t: t.visits.mutate(x=_.diagnoses.find("flu")),
    "hash": lambda t: t.visits.filter(_.patient.hash() % 2 == 0),
    "year": lambda t: t.visits.mutate(x=_.admitted.year()),
    "month and day": lambda t: t.visits.mutate(x=_.admitted.month(), y=_.admitted.day()),
    "quarter": lambda t: t.visits.mutate(x=_.admitted.quarter()),
    "weekday": lambda t: t.visits.mutate(x=_.admitted.day_of_week.index()),
    "weekday's name": lambda t: t.visits.mutate(x=_.admitted.day_of_week.full_name()),
    "hour": lambda t: t.visits.mutate(x=_.came.hour()),
    "date of a time": lambda t: t.visits.mutate(x=_.came.date()),
    "truncate a date": lambda t: t.visits.mutate(x=_.admitted.truncate("M")),
    "truncate a time": lambda t: t.visits.mutate(x=_.came.truncate("D")),
    "week": lambda t: t.visits.mutate(x=_.admitted.week_of_year()),
    "strftime": lambda t: t.visits.mutate(x=_.admitted.strftime("%Y-%m")),
    "a later day": lambda t: t.visits.mutate(x=_.admitted + ibis.interval(days=30)),
    "an earlier time": lambda t: t.visits.mutate(x=_.came - ibis.interval(hours=6)),
    "length of stay": lambda t: t.visits.mutate(x=_.went.delta(_.came, unit="hour")),
    "days between": lambda t: t.visits.mutate(x=_.admitted.delta(ibis.date("2023-01-01"), unit="day")),
    "difference of times": lambda t: t.visits.mutate(stay=_.went - _.came),
    "filter by a difference": lambda t: t.visits.filter(_.came + ibis.interval(hours=20) < _.went),
    "epoch": lambda t: t.visits.mutate(x=_.came.epoch_seconds()),
    "a date of parts": lambda t: t.visits.mutate(x=ibis.date(_.admitted.year(), _.admitted.month(), 1)),
    "parse a date": lambda t: t.visits.mutate(x=_.admitted.cast("string").as_date("%Y-%m-%d")),
    "minutes": lambda t: t.visits.mutate(x=_.came.hour() * 60 + _.came.minute()),
    "order": lambda t: t.visits.order_by("cost", ibis.desc("admitted")),
    "union of parts": lambda t: t.visits.filter(_.ward == 0).union(t.visits.filter(_.ward == 1)),
    "across": lambda t: t.visits.mutate(ibis.selectors.across(["cost", "score"], _.fill_null(0))),
    "unit as text": lambda t: t.visits.mutate(patient=_.patient.cast("string")),
    "unit as text by groups": lambda t: (
        t.visits.mutate(patient=_.patient.cast("string")).group_by("patient").agg(x=_.cost.sum())
    ),
    "groups, then unit as text": lambda t: (
        t.visits.group_by("patient").agg(x=_.cost.sum()).mutate(patient=_.patient.cast("string"))
    ),
    # --- By person
    "count by person": lambda t: t.visits.group_by("patient").agg(n=_.count()),
    "sum by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.sum()),
    "mean by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.mean()),
    "sum of decimals by person": lambda t: t.visits.group_by("patient").agg(x=_.price.sum()),
    "extremes by person": lambda t: t.visits.group_by("patient").agg(low=_.cost.min(), high=_.cost.max()),
    "spread by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.std(), y=_.cost.var()),
    "median by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.median()),
    "distinct by person": lambda t: t.visits.group_by("patient").agg(x=_.ward.nunique()),
    "conditional count by person": lambda t: t.visits.group_by("patient").agg(x=_.urgent.sum(), y=(_.cost > 200).sum()),
    "conditional sum by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.sum(where=_.urgent)),
    "share by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.sum() / _.count()),
    "range by person": lambda t: t.visits.group_by("patient").agg(x=_.cost.max() - _.cost.min()),
    "first by person": lambda t: t.visits.group_by("patient").agg(x=_.diagnoses.first(order_by=_.came)),
    "argmax by person": lambda t: t.visits.group_by("patient").agg(x=_.ward.argmax(_.cost)),
    "days by person": lambda t: t.visits.group_by("patient").agg(
        x=_.admitted.max().delta(_.admitted.min(), unit="day")
    ),
    "finer groups": lambda t: t.visits.group_by("patient", "ward").agg(x=_.cost.sum()),
    "groups by a month": lambda t: t.visits.group_by("patient", month=_.admitted.truncate("M")).agg(x=_.cost.sum()),
    "groups of groups": lambda t: (
        t.visits.group_by("patient", "ward").agg(n=_.count()).group_by("patient").agg(x=_.n.max())
    ),
    "having": lambda t: t.visits.group_by("patient").having(_.count() > 5).agg(x=_.cost.mean()),
    "groups under another name": lambda t: t.visits.group_by(who="patient").agg(x=_.cost.sum()).rename(patient="who"),
    "lists by person": lambda t: t.visits.group_by("patient").agg(x=_.ward.collect().length()),
    "bits by person": lambda t: t.visits.group_by("patient").agg(x=_.urgent.any(), y=_.urgent.all()),
    "pivot wider": lambda t: t.visits.join(t.patients, "patient").pivot_wider(
        id_cols="patient", names_from="sex", names=["f", "m"], values_from="cost", values_agg="sum"
    ),
    "mean over person": lambda t: t.visits.mutate(x=_.cost.mean().over(group_by="patient")),
    "minus the person's mean": lambda t: t.visits.mutate(x=_.cost - _.cost.mean().over(group_by="patient")),
    "share of the person": lambda t: t.visits.mutate(x=_.cost / _.cost.sum().over(group_by="patient")),
    "numbered visits": lambda t: t.visits.mutate(x=ibis.row_number().over(group_by="patient", order_by="came")),
    "first visit": lambda t: t.visits.filter(ibis.row_number().over(group_by="patient", order_by="came") == 0),
    "three dearest": lambda t: t.visits.mutate(r=ibis.rank().over(group_by="patient", order_by=_.cost.desc())).filter(
        _.r < 3
    ),
    "days since the last visit": lambda t: t.visits.mutate(
        x=_.came.delta(_.came.lag().over(group_by="patient", order_by="came"), unit="day")
    ),
    "previous ward": lambda t: t.visits.mutate(x=_.ward.lag().over(group_by="patient", order_by="came")),
    "readmitted": lambda t: t.visits.mutate(
        x=_.came.lead().over(group_by="patient", order_by="came") < _.went + ibis.interval(days=30)
    ),
    "running cost": lambda t: t.visits.mutate(
        x=_.cost.sum().over(ibis.cumulative_window(group_by="patient", order_by="came"))
    ),
    "moving mean": lambda t: t.visits.mutate(
        x=_.cost.mean().over(ibis.trailing_window(2, group_by="patient", order_by="came"))
    ),
    "grouped mutate": lambda t: t.visits.group_by("patient").mutate(x=_.cost.max()),
    "one row each": lambda t: t.visits.distinct(on="patient", keep="first"),
    "pairs": lambda t: t.visits.select("patient", "ward").distinct(),
    "all columns once": lambda t: t.visits.distinct(),
    "quartile of the person": lambda t: t.visits.mutate(x=ibis.ntile(4).over(group_by="patient", order_by="cost")),
    # --- Other tables
    "lookup": lambda t: t.visits.join(t.wards, "ward"),
    "left lookup": lambda t: t.visits.left_join(t.wards, "ward"),
    "lookup of some columns": lambda t: t.visits.join(t.wards.select("ward", "beds"), "ward").mutate(x=_.cost / _.beds),
    "lookup of filtered facts": lambda t: t.visits.semi_join(t.wards.filter(_.beds > 11), "ward"),
    "rows without facts": lambda t: t.visits.anti_join(t.wards.filter(_.beds > 11), "ward"),
    "lookup by a year": lambda t: (
        t.visits.mutate(year=_.admitted.year()).join(t.prices, "year").mutate(x=_.cost * _.factor)
    ),
    "lookup of grouped facts": lambda t: t.visits.join(
        t.wards.group_by("wing").agg(beds=_.beds.sum()), [("ward", "wing")]
    ),
    "facts above their mean": lambda t: t.visits.join(t.wards.filter(_.beds > _.beds.mean()), "ward"),
    "listed wards": lambda t: t.visits.filter(_.ward.isin(t.wards.filter(_.wing == 1).ward)),
    "a number of facts": lambda t: t.visits.mutate(x=_.cost / t.wards.beds.max().as_scalar()),
    "patients' rows": lambda t: t.visits.join(t.patients, "patient"),
    "age at admission": lambda t: t.visits.join(t.patients, "patient").mutate(x=_.admitted.year() - _.born.year()),
    "listed patients": lambda t: t.visits.filter(_.patient.isin(t.patients.filter(_.sex == "f").patient)),
    "patients with a visit": lambda t: t.patients.semi_join(t.visits.filter(_.urgent), "patient"),
    "patients without one": lambda t: t.patients.anti_join(t.visits.filter(_.urgent), "patient"),
    "patients with sums": lambda t: t.patients.left_join(t.visits.group_by("patient").agg(x=_.cost.sum()), "patient"),
    "sums joined back": lambda t: t.visits.join(t.visits.group_by("patient").agg(total=_.cost.sum()), "patient").mutate(
        x=_.cost / _.total
    ),
    "first visit joined back": lambda t: t.visits.join(
        t.visits.group_by("patient").agg(first=_.came.min()), "patient"
    ).filter(_.came == _.first),
    "pairs of visits": lambda t: t.visits.join(
        later := t.visits.view(), [t.visits.patient == later.patient, t.visits.came < later.came]
    ).select(t.visits.patient, t.visits.cost),
    "every year": lambda t: t.patients.cross_join(t.prices),
    "any visit": lambda t: t.patients.filter((t.patients.patient == t.visits.patient).any()),
    "a list in memory": lambda t: t.visits.semi_join(ibis.memtable({"ward": [0, 1]}), "ward"),
}
TPCH = {
    "Q1's charge": lambda t: (
        t.lineitem.join(t.orders, "orderkey")
        .mutate(x=_.extendedprice * (1 - _.discount))
        .filter(_.shipdate <= ibis.date("1998-12-01") - ibis.interval(days=90))
    ),
    "Q3": lambda t: (
        t.customer.filter(_.segment == "BUILDING")
        .join(t.orders, "custkey")
        .join(t.lineitem, "orderkey")
        .filter(_.orderdate < ibis.date(1995, 3, 15), _.shipdate > ibis.date(1995, 3, 15))
        .group_by("custkey", "orderkey")
        .agg(x=(_.extendedprice * (1 - _.discount)).sum())
    ),
    "Q4": lambda t: t.orders.semi_join(t.lineitem.filter(_.receiptdate > _.shipdate), "orderkey"),
    "Q5": lambda t: t.customer.join(t.orders, "custkey").join(t.nation, "nationkey").filter(_.regionkey == 1),
    "Q6": lambda t: (
        t.lineitem.join(t.orders, "orderkey")
        .filter(_.discount.between(0.05, 0.07), _.quantity < 24)
        .mutate(x=_.extendedprice * _.discount)
    ),
    "Q7": lambda t: t.customer.join(t.orders, "custkey").join(t.nation, "nationkey").mutate(year=_.orderdate.year()),
    "Q10": lambda t: (
        t.customer.join(t.orders, "custkey")
        .join(t.lineitem.filter(_.returnflag == "R"), "orderkey")
        .group_by("custkey", "acctbal")
        .agg(x=(_.extendedprice * (1 - _.discount)).sum())
    ),
    "Q12": lambda t: t.orders.join(t.lineitem.filter(_.shipmode.isin(["MAIL", "SHIP"])), "orderkey").mutate(
        x=_.priority.isin(["1-URGENT", "2-HIGH"]).ifelse(1, 0)
    ),
    "Q13": lambda t: t.customer.left_join(t.orders, "custkey").group_by("custkey").agg(x=_.orderkey.count()),
    "Q14": lambda t: (
        t.orders.join(t.lineitem, "orderkey").join(t.part, "partkey").mutate(x=_.brand.startswith("Brand#1"))
    ),
    "Q19": lambda t: (
        t.orders.join(t.lineitem, "orderkey")
        .join(t.part, "partkey")
        .filter(((_.brand == "Brand#1") & (_.quantity <= 11)) | ((_.brand == "Brand#2") & (_.size <= 5)))
    ),
    "orders with their lines": lambda t: t.orders.join(
        t.lineitem.group_by("orderkey").agg(lines=_.count(), x=_.quantity.sum()), "orderkey"
    ),
    "spend of a customer": lambda t: t.orders.group_by("custkey").agg(x=_.totalprice.sum()),
    "months of a customer": lambda t: t.orders.group_by("custkey", month=_.orderdate.truncate("M")).agg(
        x=_.totalprice.mean()
    ),
    "gap between orders": lambda t: t.orders.mutate(
        x=_.orderdate.delta(_.orderdate.lag().over(group_by="custkey", order_by="orderdate"), unit="day")
    ),
}
TUTORIAL = {
    "penguins": lambda t: t.penguins,
    "a species": lambda t: t.penguins.filter(_.species == "Adelie", _.island == "Dream"),
    "a ratio": lambda t: t.penguins.mutate(x=_.bill_length_mm / _.bill_depth_mm),
    "centimetres": lambda t: t.penguins.mutate(x=_.bill_length_mm / 10).select("penguin", "x"),
    "kilograms": lambda t: t.penguins.mutate(x=(_.body_mass_g / 1000).round(1)),
    "known sex": lambda t: t.penguins.drop_null(["sex"]),
    "heavier half by a constant": lambda t: t.penguins.mutate(x=(_.body_mass_g > 4000).ifelse("heavy", "light")),
    "all of millimetres": lambda t: t.penguins.mutate(ibis.selectors.across(ibis.selectors.endswith("mm"), _ / 10)),
    "a code": lambda t: t.penguins.mutate(x=_.species.substr(0, 1) + _.year.cast("string")),
}
ORDINARY = {"patient": VISITS, "custkey": TPCH, "penguin": TUTORIAL}


@ibis.udf.scalar.python
def twice(x: float) -> float:
    """A function of Python."""
    return 2 * x


def joined_mean(t, key="ward"):
    """The mean of a ward's visits."""
    return t.visits.group_by(key).agg(y=_.cost.mean())


# All of them mix patients.
MIXING = {
    "minus the mean": lambda t: t.visits.mutate(x=_.cost - _.cost.mean()),
    "z-score": lambda t: t.visits.mutate(x=(_.cost - _.cost.mean()) / _.cost.std()),
    "share of the sum": lambda t: t.visits.mutate(x=_.cost / _.cost.sum()),
    "above the mean": lambda t: t.visits.filter(_.cost > _.cost.mean()),
    "rank of all": lambda t: t.visits.mutate(x=ibis.rank().over(order_by="cost")),
    "quantile bins": lambda t: t.visits.mutate(x=ibis.ntile(4).over(order_by="cost")),
    "percent rank": lambda t: t.visits.mutate(x=_.cost.percent_rank()),
    "shift of all": lambda t: t.visits.mutate(x=_.cost.lag().over(order_by="came")),
    "running sum of all": lambda t: t.visits.mutate(x=_.cost.cumsum(order_by="came")),
    "moving mean of all": lambda t: t.visits.mutate(x=_.cost.mean().over(ibis.trailing_window(3, order_by="came"))),
    "window by another column": lambda t: t.visits.mutate(x=_.cost.mean().over(group_by="ward")),
    "grouped mutate by another column": lambda t: t.visits.group_by("ward").mutate(x=_.cost - _.cost.mean()),
    "numbered rows": lambda t: t.visits.mutate(x=ibis.row_number()),
    "row ids": lambda t: t.visits.mutate(x=t.visits.rowid()),
    "head": lambda t: t.visits.head(10),
    "the dearest": lambda t: t.visits.order_by(_.cost.desc()).limit(10),
    "an offset": lambda t: t.visits.order_by("cost").limit(10, offset=5),
    "a sample": lambda t: t.visits.sample(0.5),
    "random rows": lambda t: t.visits.filter(ibis.random() < 0.5),
    "first row of a ward": lambda t: t.visits.distinct(on="ward", keep="first"),
    "first row of a ward by a window": lambda t: t.visits.filter(
        ibis.row_number().over(group_by="ward", order_by="came") == 0
    ),
    "groups of wards": lambda t: t.visits.group_by("ward").agg(patient=_.patient.min(), x=_.cost.mean()),
    "one group": lambda t: t.visits.agg(patient=_.patient.max(), x=_.cost.mean()),
    "a mean joined back": lambda t: t.visits.join(joined_mean(t), "ward"),
    "a mean joined back by a left join": lambda t: t.visits.left_join(joined_mean(t), "ward"),
    "a mean joined back to changed rows": lambda t: (
        t.visits.mutate(z=_.cost * 2).filter(_.z > 0).join(joined_mean(t), "ward")
    ),
    "a mean of a view": lambda t: t.visits.join((of := t.visits.view()).group_by("ward").agg(y=of.cost.mean()), "ward"),
    "a mean through many steps": lambda t: t.visits.join(
        joined_mean(t).mutate(z=_.y + 1).filter(_.z > 0).select("ward", "z").rename(place="ward"), [("ward", "place")]
    ),
    "a mean of everything": lambda t: t.visits.cross_join(t.visits.agg(y=_.cost.mean())),
    "a mean joined twice": lambda t: t.visits.join(t.wards, "ward").join(joined_mean(t, "doctor"), "doctor"),
    "a mean below a union": lambda t: t.visits.mutate(y=_.cost).union(
        t.visits.join(joined_mean(t), "ward").select(*t.visits.columns, "y")
    ),
    "itself by a ward": lambda t: t.visits.join(of := t.visits.view(), t.visits.ward == of.ward).select(
        t.visits.patient, of.cost
    ),
    "itself by a ward without names": lambda t: t.visits.join(t.visits.view().select("ward", z="cost"), "ward"),
    "itself everywhere": lambda t: t.visits.cross_join(t.visits.view().select(z="cost")),
    "wards that others are in": lambda t: t.visits.filter(_.ward.isin(t.visits.filter(_.urgent).ward)),
    "others in the ward": lambda t: t.visits.filter((t.visits.ward == t.visits.view().ward).any()),
    "the latest of others": lambda t: t.visits.asof_join(t.visits.view().select("came", z="cost"), "came"),
    "doctors for patients and back": lambda t: (
        t.visits.rename(patient="doctor", doctor="patient")
        .group_by("patient")
        .mutate(x=_.cost.mean())
        .rename(patient="doctor", doctor="patient")
    ),
    "a number for a person": lambda t: t.visits.group_by("ward").agg(n=_.count()).mutate(patient=_.n),
    "a constant person": lambda t: t.visits.group_by("ward").agg(n=_.count()).mutate(patient=1),
    "patients and doctors together": lambda t: t.visits.select("patient", "cost").union(
        t.visits.select("cost", patient="doctor").select("patient", "cost")
    ),
    "patients and doctors, computed": lambda t: (
        t.visits.select("cost", who="patient").union(t.visits.select("cost", who="doctor")).mutate(patient=_.who + 1)
    ),
    "a function of Python": lambda t: t.visits.mutate(x=twice(_.cost)),
    "a mean of patients": lambda t: t.visits.join(t.patients.group_by("city").agg(n=_.count()), [("ward", "city")]),
    "patients that differ": lambda t: t.visits.join(t.patients, t.visits.doctor == t.patients.patient).select(
        t.visits.patient, "born"
    ),
    "patients above their mean": lambda t: t.visits.join(t.patients.filter(_.city > _.city.mean()), "patient"),
    "the mean of another table of patients": lambda t: t.visits.filter(_.ward > t.patients.city.mean().as_scalar()),
    "a part of lines": lambda t: (
        t.lineitem.join(t.orders, "orderkey")
        .rename(patient="custkey")
        .join(t.lineitem.group_by("partkey").agg(q=_.quantity.mean()), "partkey")
    ),
}
