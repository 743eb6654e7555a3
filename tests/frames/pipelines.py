"""Pipelines that analysts write of a hospital's and a shop's rows, as one table: which a private frame takes.

Each is a function of a frame, private or plain. A row of `VISITS` is a patient's visit, one of `LINES` is a line of a
customer's order (TPC-H, flat). They are of Polars' user guide, of TPC-H's queries and of reports. `BY_ROW` and
`BY_PERSON` follow from one row, or from one person's rows: all are taken but those in `REFUSED`, which says what to
write instead. `MIXED` bring people together: none is taken.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import polars as pl
from polars import selectors as cs

Steps: TypeAlias = Callable[[Any], Any]
col = pl.col

# --- Rows -----------------------------------------------------------------------------------------------------------

WARDS = ["A", "B", "C", "D"]
DOCTORS = ["Adams", "Brown", "Curie", "Dix"]
DIAGNOSES = ["E11", "I10", "I21", "J45", "S72"]
DRUGS = pl.Enum(["none", "aspirin", "insulin"])
NOTES = ["  Fall at home ", "cough, fever", "follow-up:  none", "Fever since 3 days", "", None]
CITIES = ["Oslo", "Bergen", "Utrecht"]
FIRST_DAY = dt.date(2023, 1, 1)


def visits(people: int = 300) -> pl.DataFrame:
    """Visits in which nothing ties: a patient has one visit a day, and no two of its numbers are the same."""
    random, rows, number = Random(38), [], 0
    for patient in range(people):
        born = dt.date(1930, 1, 1) + dt.timedelta(days=random.randrange(30_000))
        ages = 2023 - born.year
        days = random.sample(range(700), random.choice([1, 2, 3, 5, 8, 13]))
        for day in sorted(days):
            number += 1
            at = dt.datetime.combine(FIRST_DAY, dt.time()) + dt.timedelta(days=day, seconds=random.randrange(86_400))
            rows.append(
                {
                    "patient": patient,
                    "visit": number,
                    "at": at,
                    "day": at.date(),
                    "ward": random.choice(WARDS),
                    "doctor": random.choice(DOCTORS),
                    "diagnosis": random.choice(DIAGNOSES),
                    "drug": random.choice(DRUGS.categories.to_list()),
                    "kind": random.choice(["acute", "planned"]),
                    "cost": random.randrange(10_000, 900_000) / 100 + number / 1e6,
                    "temp": random.choice([None, 36.1, 36.8, 37.4, 38.2, 39.5]),
                    "weight": 50 + random.randrange(800) / 16,
                    "dose": random.choice([0, 5, 10, 20, 50]),
                    "age": ages,
                    "emergency": random.random() < 0.3,
                    "copay": f"{random.randrange(5000) / 100:.2f}",
                    "codes": random.choices(DIAGNOSES, k=random.randrange(4)),
                    "readings": [random.randrange(600, 1800) / 10 for _ in range(random.randrange(1, 5))],
                    "pain": random.choices(range(11), k=3),
                    "address": {"city": random.choice(CITIES), "zip": random.randrange(1000, 1010)},
                    "admitted": at.date().isoformat(),
                    "stay": dt.timedelta(hours=random.randrange(1, 400)),
                    "born": born,
                    "note": random.choice(NOTES),
                }
            )
    copay = col("copay").cast(pl.Decimal(10, 2))
    return pl.DataFrame(rows, schema_overrides={"drug": DRUGS, "age": pl.Int16, "weight": pl.Float32}).with_columns(
        copay, col("kind").cast(pl.Categorical)
    )


def lines(people: int = 300) -> pl.DataFrame:
    """Lines of orders: a customer has one order a day, and each line has its own line number."""
    random, rows, order = Random(39), [], 0
    for customer in range(people):
        for day in sorted(random.sample(range(1500), random.choice([1, 2, 3, 5]))):
            order += 1
            ordered = dt.date(1994, 6, 1) + dt.timedelta(days=day)
            priority, nation = random.choice(["1-URGENT", "2-HIGH", "5-LOW"]), random.choice(["BRAZIL", "FRANCE"])
            for line in range(1, random.randrange(2, 5)):
                shipped = ordered + dt.timedelta(days=random.randrange(1, 120))
                quantity = random.randrange(1, 51)
                rows.append(
                    {
                        "customer": customer,
                        "order": order,
                        "line": line,
                        "ordered": ordered,
                        "shipped": shipped,
                        "committed": ordered + dt.timedelta(days=random.randrange(30, 90)),
                        "received": shipped + dt.timedelta(days=random.randrange(1, 30)),
                        "quantity": quantity,
                        "price": quantity * random.randrange(90_000, 210_000) / 100,
                        "discount": random.randrange(11) / 100,
                        "tax": random.randrange(9) / 100,
                        "flag": random.choice("ANR"),
                        "status": random.choice("FO"),
                        "mode": random.choice(["AIR", "MAIL", "SHIP", "TRUCK"]),
                        "brand": random.choice(["Brand#12", "Brand#23", "Brand#34"]),
                        "container": random.choice(["SM CASE", "MED BOX", "LG DRUM"]),
                        "type": random.choice(["PROMO BURNISHED TIN", "ECONOMY ANODIZED STEEL"]),
                        "size": random.randrange(1, 51),
                        "nation": nation,
                        "priority": priority,
                        "phone": f"{random.randrange(10, 35)}-989-741-2988",
                        "comment": random.choice(["quickly special pending requests", "regular ideas", "express"]),
                    }
                )
    return pl.DataFrame(rows, schema_overrides={"size": pl.Int32})


WARD_FACTS = pl.LazyFrame({"ward": ["A", "B", "C"], "floor": [1, 2, 3], "bed_cost": [100.0, 250.5, 80.25]})
NATIONS = pl.LazyFrame({"n_name": ["BRAZIL", "FRANCE"], "region": ["AMERICA", "EUROPE"]})
PARTS = pl.LazyFrame({"brand": ["Brand#12", "Brand#23", "Brand#34"], "supplycost": [12.5, 99.25, 433.0]})

# --- Pipelines ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """Why a pipeline is refused, as a pattern of its message, and what to write instead: it gives the same."""

    why: str
    instead: Steps


_revenue = col("price") * (1 - col("discount"))

BY_ROW: dict[str, Steps] = {
    "visits: remove": lambda f: f.remove(col("temp").is_null()),
    "visits: parts of a hundred": lambda f: f.filter(col("visit").hash() % 10 == 0).select("visit"),
    "visits: types of selected columns": lambda f: f.select("cost", "temp", "dose").cast({cs.float(): pl.Float32}),
    "visits: parse a date without a format": lambda f: f.with_columns(col("admitted").str.to_date()),
    "visits: local times": lambda f: f.with_columns(
        hour=col("at").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Amsterdam").dt.hour()
    ),
    "visits: leap years": lambda f: f.filter(col("born").dt.is_leap_year()).with_columns(
        n=col("born").dt.ordinal_day()
    ),
    "visits: selected texts": lambda f: f.select(cs.string().str.to_uppercase().name.suffix("_upper")),
    "visits: a list joined": lambda f: f.with_columns(codes=col("codes").list.sort().list.join(";")),
    "visits: codes by chapter": lambda f: f.explode("codes").filter(col("codes").str.starts_with("I")),
    "visits: unnest": lambda f: f.unnest("address"),
    "visits: select by types": lambda f: f.select(cs.numeric() - cs.by_name("patient"), cs.temporal()),
    "visits: rename and drop": lambda f: f.rename({"cost": "price"}).drop("note", "codes"),
    "visits: rename by a function": lambda f: f.rename(lambda name: name if name == "patient" else name.upper()),
    "visits: columns as rows": lambda f: f.unpivot(["temp", "cost"], index=["patient", "visit"]),
    "visits: a function of frames": lambda f: f.pipe(lambda rows: rows.filter(col("age") > 30)),
    # TPC-H, what is done to each line.
    "lines: Q1": lambda f: f.filter(col("shipped") <= dt.date(1998, 9, 2)).with_columns(
        disc_price=_revenue, charge=_revenue * (1 + col("tax"))
    ),
    "lines: Q3": lambda f: f.filter(
        col("ordered") < dt.date(1995, 3, 15), col("shipped") > dt.date(1995, 3, 15)
    ).with_columns(revenue=_revenue),
    "lines: Q5": lambda f: (
        f.join(NATIONS, left_on="nation", right_on="n_name")
        .filter(col("region") == "EUROPE")
        .with_columns(revenue=_revenue)
    ),
    "lines: Q6": lambda f: f.filter(
        col("shipped").is_between(dt.date(1995, 1, 1), dt.date(1996, 1, 1), closed="left")
        & col("discount").is_between(0.05, 0.07)
        & (col("quantity") < 24)
    ).with_columns(revenue=col("price") * col("discount")),
    "lines: Q7": lambda f: f.filter(col("nation").is_in(["FRANCE", "BRAZIL"])).select(
        "nation", year=col("shipped").dt.year(), volume=_revenue
    ),
    "lines: Q8": lambda f: f.with_columns(
        volume=pl.when(col("nation") == "BRAZIL").then(_revenue).otherwise(0), year=col("ordered").dt.year()
    ),
    "lines: Q9": lambda f: f.join(PARTS, on="brand").with_columns(
        amount=_revenue - col("supplycost") * col("quantity"), o_year=col("ordered").dt.year()
    ),
    "lines: Q12": lambda f: f.filter(
        col("mode").is_in(["MAIL", "SHIP"]), col("committed") < col("received"), col("shipped") < col("committed")
    ).with_columns(
        high=col("priority").is_in(["1-URGENT", "2-HIGH"]).cast(pl.UInt8),
        low=(~col("priority").is_in(["1-URGENT", "2-HIGH"])).cast(pl.UInt8),
    ),
    "lines: Q14": lambda f: f.with_columns(
        promo=pl.when(col("type").str.starts_with("PROMO")).then(_revenue).otherwise(0)
    ),
    "lines: Q17": lambda f: f.filter(col("brand") == "Brand#23", col("container") == "MED BOX").with_columns(
        yearly=col("price") / 7.0
    ),
    "lines: Q19": lambda f: f.filter(
        (
            (col("brand") == "Brand#12")
            & col("container").is_in(["SM CASE", "SM BOX"])
            & col("quantity").is_between(1, 11)
            & col("size").is_between(1, 15)
        )
        | ((col("brand") == "Brand#23") & col("container").str.starts_with("MED") & col("quantity").is_between(10, 20))
        & col("mode").is_in(["AIR", "AIR REG"])
    ),
    "lines: Q22": lambda f: f.with_columns(country=col("phone").str.slice(0, 2)).filter(
        col("country").is_in(["13", "31", "23", "29"])
    ),
}

BY_PERSON: dict[str, Steps] = {
    # One row of each patient.
    "visits: how many, by len": lambda f: f.group_by("patient").len(),
    "visits: of emergencies, the first diagnosis": lambda f: f.group_by("patient").agg(
        col("diagnosis").filter(col("emergency")).sort_by(col("at").filter(col("emergency"))).first()
    ),
    "visits: sorted, of emergencies, the first": lambda f: f.group_by("patient").agg(
        col("diagnosis").sort_by("at").filter(col("emergency").sort_by("at")).first()
    ),
    # The first, the last, the greatest.
    "visits: first of a sorted frame": lambda f: f.sort("at").group_by("patient").agg(col("diagnosis").first()),
    "visits: the change of weight": lambda f: f.group_by("patient").agg(
        change=col("weight").sort_by("at").last() - col("weight").sort_by("at").first()
    ),
    # Lists of a patient's values.
    "visits: a list as it comes": lambda f: f.group_by("patient").agg(col("diagnosis")),
    # A value for each visit.
    "visits: back within a month": lambda f: f.with_columns(
        gap=col("at").diff().over("patient", order_by="at").dt.total_days()
    ).filter(col("gap") <= 30),
    "visits: one's own standard score": lambda f: f.with_columns(
        z=(col("cost") - col("cost").mean().over("patient")) / col("cost").std().over("patient")
    ),
    "visits: in a month": lambda f: f.with_columns(month=col("day").dt.truncate("1mo")).with_columns(
        n=pl.len().over("patient", "month")
    ),
    "visits: episodes": lambda f: (
        f.with_columns(new=(col("day").diff().over("patient", order_by="day") > dt.timedelta(days=90)).fill_null(True))
        .with_columns(episode=col("new").cum_sum().over("patient", order_by="day"))
        .group_by("patient", "episode")
        .agg(pl.len(), cost=col("cost").sum())
    ),
    "visits: relative change": lambda f: f.with_columns(col("cost").pct_change().over("patient", order_by="at")),
    # Rows without doubles.
    "visits: wards of each": lambda f: f.select("patient", "ward").unique(),
    "visits: rows that are the same": lambda f: f.unique(),
    # Several steps.
    "visits: how many wards had most": lambda f: (
        f.group_by("patient", "ward")
        .agg(n=pl.len(), cost=col("cost").sum())
        .group_by("patient")
        .agg(col("n").max(), wards=pl.len(), cost=col("cost").max())
    ),
    "visits: of people with several, the mean": lambda f: (
        f.group_by("patient")
        .agg(n=pl.len(), mean=col("cost").mean())
        .filter(col("n") > 2)
        .with_columns(level=col("mean").cut([500, 2000, 5000]).cast(pl.String))
    ),
    "visits: per month": lambda f: f.group_by_dynamic("day", every="1mo", group_by="patient").agg(col("dose").sum()),
    "visits: codes of a patient": lambda f: (
        f.select("patient", "codes")
        .explode("codes")
        .drop_nulls()
        .group_by("patient")
        .agg(col("codes").n_unique(), n=pl.len())
    ),
    "visits: facts of the last ward": lambda f: (
        f.group_by("patient").agg(col("ward").sort_by("at").last()).join(WARD_FACTS, on="ward", how="left")
    ),
    # TPC-H, what is done to each customer's lines.
    "lines: Q1 of a customer": lambda f: (
        f.filter(col("shipped") <= dt.date(1998, 9, 2))
        .group_by("customer", "flag", "status")
        .agg(
            sum_qty=col("quantity").sum(),
            sum_base_price=col("price").sum(),
            sum_disc_price=_revenue.sum(),
            sum_charge=(_revenue * (1 + col("tax"))).sum(),
            avg_qty=col("quantity").mean(),
            avg_price=col("price").mean(),
            avg_disc=col("discount").mean(),
            count_order=pl.len(),
        )
    ),
    "lines: Q3 of a customer": lambda f: (
        f.filter(col("shipped") > dt.date(1995, 3, 15))
        .group_by("customer", "order", "ordered", "priority")
        .agg(revenue=_revenue.sum())
    ),
    "lines: Q4 of a customer": lambda f: (
        f.filter(col("committed") < col("received"))
        .unique(["customer", "order"])
        .group_by("customer", "priority")
        .agg(order_count=pl.len())
    ),
    "lines: Q10 of a customer": lambda f: (
        f.filter(col("flag") == "R").group_by("customer", "nation", "phone").agg(revenue=_revenue.sum().round(2))
    ),
    "lines: Q13 of a customer": lambda f: (
        f.filter(~col("comment").str.contains("special.*requests"))
        .group_by("customer")
        .agg(c_count=col("order").n_unique())
    ),
    "lines: Q14 of a customer": lambda f: f.group_by("customer").agg(
        promo=100.0 * _revenue.filter(col("type").str.starts_with("PROMO")).sum() / _revenue.sum()
    ),
    "lines: Q17 of a customer": lambda f: (
        f.filter(col("quantity") < 0.5 * col("quantity").mean().over("customer"))
        .group_by("customer")
        .agg(avg_yearly=col("price").sum() / 7.0)
    ),
    "lines: Q18": lambda f: (
        f.group_by("customer", "order")
        .agg(col("quantity").sum(), total=col("price").sum(), ordered=col("ordered").min())
        .filter(col("quantity") > 60)
    ),
    "lines: Q21 of a customer": lambda f: (
        f.filter(col("received") > col("committed")).group_by("customer").agg(waits=col("order").n_unique())
    ),
    "lines: Q22 of a customer": lambda f: (
        f.filter(col("phone").str.slice(0, 2).is_in(["13", "31", "23"]))
        .group_by("customer")
        .agg(numcust=pl.len(), totacctbal=col("price").sum())
    ),
    # A shop's report.
    "lines: recency, frequency, money": lambda f: f.group_by("customer").agg(
        recency=(pl.lit(dt.date(1998, 12, 1)) - col("ordered").max()).dt.total_days(),
        frequency=col("order").n_unique(),
        money=_revenue.sum(),
    ),
    "lines: levels of spending": lambda f: (
        f.group_by("customer")
        .agg(money=_revenue.sum())
        .with_columns(
            level=pl.when(col("money") > 500_000)
            .then(pl.lit("gold"))
            .when(col("money") > 100_000)
            .then(pl.lit("silver"))
        )
    ),
    "lines: baskets": lambda f: (
        f.group_by("customer", "order")
        .agg(value=_revenue.sum(), lines=pl.len())
        .group_by("customer")
        .agg(col("value").mean(), largest=col("value").max(), lines=col("lines").mean())
    ),
    "lines: days between orders": lambda f: (
        f.unique(["customer", "order"])
        .select("customer", "order", "ordered")
        .with_columns(gap=col("ordered").diff().over("customer", order_by="ordered"))
    ),
    "lines: spending so far": lambda f: (
        f.group_by("customer", "ordered")
        .agg(value=_revenue.sum())
        .with_columns(so_far=col("value").cum_sum().over("customer", order_by="ordered"))
    ),
    "lines: the value of the first order": lambda f: (
        f.group_by("customer", "order")
        .agg(value=_revenue.sum(), ordered=col("ordered").min())
        .group_by("customer")
        .agg(first=col("value").sort_by("ordered").first(), last=col("value").sort_by("ordered").last())
    ),
    "lines: spending by year": lambda f: (
        f.with_columns(year=col("ordered").dt.year())
        .group_by("customer", "year")
        .agg(_revenue.sum().alias("value"))
        .with_columns(change=col("value") - col("value").shift(1).over("customer", order_by="year"))
    ),
    # In Polars' shorter words.
    "visits: largest of all": lambda f: f.select("patient", "dose", "day").group_by("patient").max(),
    "visits: means of all": lambda f: f.select("patient", "dose", "cost").group_by("patient").mean(),
    "visits: sums of all": lambda f: f.select("patient", "dose", "copay").group_by("patient").sum(),
    "visits: medians of all": lambda f: f.select("patient", "dose", "cost").group_by("patient").median(),
    "visits: different ones of all": lambda f: f.select("patient", "dose", "ward").group_by("patient").n_unique(),
    "visits: smallest of all": lambda f: f.select("patient", "dose", "ward").group_by("patient").min(),
    "visits: by several having": lambda f: (
        f.group_by("patient").having(pl.len() > 1, col("dose").max() > 5).agg(col("cost").mean())
    ),
    "visits: a struct of windows": lambda f: f.with_columns(
        pl.struct(col("dose").max().over("patient"), mean=col("dose").mean().over("patient")).alias("doses")
    ),
    "visits: a moving sum": lambda f: f.with_columns(
        x=col("temp").rolling_sum(3, min_samples=1).over("patient", order_by="at"),
        y=col("dose").rolling_mean(2).over("patient", order_by="at"),
        n=col("emergency").rolling_sum(2).over("patient", order_by="at"),
    ),
}

REFUSED: dict[str, Refused] = {
    "visits: parse a date without a format": Refused(
        "guesses its format", lambda f: f.with_columns(col("admitted").str.to_date("%Y-%m-%d"))
    ),
    "visits: first of a sorted frame": Refused(
        "sort: this goes by the order", lambda f: f.group_by("patient").agg(col("diagnosis").sort_by("at").first())
    ),
    "visits: a list as it comes": Refused(
        "gives several values", lambda f: f.group_by("patient").agg(col("diagnosis").sort_by("at"))
    ),
    "visits: rows that are the same": Refused("columns must not be nested", lambda f: f.unique(["patient", "visit"])),
    "visits: per month": Refused(
        "group_by_dynamic: this makes groups",
        lambda f: f.with_columns(col("day").dt.truncate("1mo")).group_by("patient", "day").agg(col("dose").sum()),
    ),
}


def _minus_mean(values: pl.Series) -> pl.Series:
    return values - values.mean()


# What brings people together. A window of one person's rows is `.over("patient", …)`.
MIXED: dict[str, Steps] = {
    # All rows at once.
    "scaled to the extremes": lambda f: f.with_columns(
        x=(col("cost") - col("cost").min()) / (col("cost").max() - col("cost").min())
    ),
    "a moving mean by time": lambda f: f.with_columns(x=col("cost").rolling_mean_by("at", "7d")),
    "runs of a struct": lambda f: f.select(x=col("ward").rle().struct.field("len").max()),
    "a search in another": lambda f: f.with_columns(x=col("dose").sort().search_sorted(col("age"))),
    "an index by a range of ages": lambda f: f.with_columns(x=pl.arange(pl.len()) + col("age")),
    "a number of a row": lambda f: f.with_row_index("x"),
    "an entropy": lambda f: f.with_columns(x=col("cost").entropy()),
    "a product of columns": lambda f: f.with_columns(x=col("cost").dot(col("dose").cast(pl.Float64))),
    # Values from other rows.
    "a frame filled by the row before": lambda f: f.select("visit", "temp").fill_null(strategy="forward"),
    # Rows by their place.
    "head": lambda f: f.head(5),
    "limit": lambda f: f.limit(5),
    "tail": lambda f: f.tail(5),
    "slice": lambda f: f.slice(3, 5),
    "every third": lambda f: f.gather_every(3),
    "the greatest of all": lambda f: f.top_k(5, by="cost"),
    "the first ones of a sorted frame": lambda f: f.sort("cost").head(5),
    "a sample by expressions": lambda f: f.filter(col("visit").sample(fraction=1.0, shuffle=True, seed=1) > 50),
    "the first row of each value of another column": lambda f: f.unique("ward", keep="first", maintain_order=True),
    "the last row of each value of two other columns": lambda f: f.unique(["ward", "day"], keep="last"),
    "values that nobody else has": lambda f: f.unique(["ward", "dose", "age"], keep="none"),
    # Groups of several people.
    "a window of another column": lambda f: f.with_columns(x=col("cost").mean().over("ward")),
    "a window of another column beside one's own": lambda f: f.with_columns(
        x=col("cost").sum().over("patient"), y=col("cost").sum().over("ward")
    ),
    "a rank in a ward": lambda f: f.with_columns(x=col("cost").rank().over("ward")),
    "a number in a ward": lambda f: f.filter(pl.int_range(pl.len()).over("ward", order_by="at") < 3),
    "the first of a day": lambda f: f.filter(col("at") == col("at").min().over("day")),
    "a window of a constant": lambda f: f.with_columns(x=col("cost").sum().over(pl.lit(1))),
    "a window of pairs of people": lambda f: f.with_columns(x=col("cost").sum().over(col("patient") // 2)),
    "a window of remainders": lambda f: f.with_columns(x=pl.len().over(col("patient") % 10, "ward")),
    "a window of the unit's name": lambda f: f.with_columns(x=pl.len().over((col("patient") // 2).alias("patient"))),
    "groups of another column": lambda f: f.group_by("ward").agg(col("cost").sum()),
    "groups of remainders": lambda f: f.group_by(col("patient") // 2).agg(pl.len()),
    "groups of another column that is named like people": lambda f: f.group_by(col("ward").alias("patient")).agg(
        pl.len()
    ),
    "groups by time": lambda f: f.group_by_dynamic("at", every="1w").agg(pl.len()),
    "groups of moving windows": lambda f: f.rolling("visit", period="9i").agg(pl.len()),
    "another column that takes the unit's name": lambda f: f.with_columns(patient=col("dose")).with_columns(
        x=pl.len().over("patient")
    ),
    "the unit made coarser": lambda f: f.with_columns(col("patient") // 2).with_columns(x=pl.len().over("patient")),
    "another column renamed to the unit": lambda f: f.rename({"patient": "p", "ward": "patient"}).with_columns(
        x=pl.len().over("patient")
    ),
    "the unit's name of a selector": lambda f: (
        f.select(cs.by_name("dose").name.replace("dose", "patient"), "visit").group_by("patient").agg(pl.len())
    ),
    "a self-join by ward": lambda f: f.join(f.group_by("ward").agg(n=pl.len()), on="ward"),
    "a self-join by the day": lambda f: f.join(f.select("day", other="cost"), on="day", how="inner"),
    "rows that another row has": lambda f: f.join(f.filter(col("emergency")).select("day"), on="day", how="semi"),
    "the nearest other row": lambda f: f.sort("at").join_asof(
        f.sort("at").select("at", o="cost"), on="at", strategy="backward", allow_exact_matches=False
    ),
    "rows of a condition": lambda f: f.select("visit", "day").join_where(
        f.select("age", d="day"), col("day") < col("d")
    ),
    "a wide table": lambda f: f.group_by("day").agg(col("ward")),
    # Disguised.
    "within when": lambda f: f.with_columns(x=pl.when(col("cost") > 0).then(col("cost").mean()).otherwise(0)),
    "a condition of all": lambda f: f.with_columns(
        x=pl.when(col("dose").max() > 10).then(col("cost")).otherwise(col("dose"))
    ),
    "within otherwise, of a ward": lambda f: f.with_columns(
        x=pl.when(col("age") > 500).then(0).otherwise(pl.len().over("ward"))
    ),
    "within a text": lambda f: f.with_columns(x=pl.format("{} of {}", "visit", col("visit").max())),
    "within a clip": lambda f: f.with_columns(x=col("cost").clip(0, col("cost").mean())),
    "within a cast and a round": lambda f: f.with_columns(x=(col("cost") - col("cost").mean()).round().cast(pl.Int64)),
    "within is_between": lambda f: f.filter(col("cost").is_between(col("cost").mean(), 99_999)),
    "within coalesce": lambda f: f.with_columns(x=pl.coalesce("temp", col("temp").mean())),
    "within concat_list": lambda f: f.with_columns(x=pl.concat_list("dose", col("dose").max())),
    "within a struct": lambda f: f.with_columns(x=pl.struct("dose", most=col("dose").max())),
    "within a date": lambda f: f.with_columns(x=pl.date(col("day").dt.year().max(), 1, 1)),
    "within list.contains": lambda f: f.filter(col("codes").list.contains(col("diagnosis").max())),
    "within list.eval of a column": lambda f: f.with_columns(
        x=col("codes").list.concat(col("ward").implode()).list.eval(pl.element().n_unique())
    ),
    "within the windows of a person": lambda f: f.with_columns(
        x=(col("cost").mean() - col("cost").mean().over("patient"))
    ),
    "a window in a window": lambda f: f.with_columns(x=col("cost").mean().over("ward").max().over("patient")),
    "all rows as a list": lambda f: f.with_columns(x=col("cost").implode().list.mean()),
    "a ward's rows as a list": lambda f: f.with_columns(x=col("cost").implode().over("ward").list.len()),
    "an aggregation of a whole frame": lambda f: f.select(col("cost").sum()),
    "a filter of an aggregation": lambda f: f.with_columns(x=col("cost").filter(col("ward") == "A").mean()),
    "a filter by all, of one person": lambda f: f.group_by("ward").agg(col("cost").filter(col("emergency")).sum()),
    "one's own, in the order of all": lambda f: f.with_columns(x=col("temp").forward_fill().over("patient")),
    "one's own number, in the order of all": lambda f: f.with_columns(x=pl.int_range(pl.len()).over("patient")),
    "one's own first, in the order of all": lambda f: f.group_by("patient").agg(col("ward").first()),
    "one's own running sum, in the order of all": lambda f: f.with_columns(x=col("dose").cum_sum().over("patient")),
    "one's own row before, in the order of all": lambda f: f.with_columns(x=col("ward").shift().over("patient")),
    "one's own list, in the order of all": lambda f: f.with_columns(x=col("ward").implode().over("patient")),
    "one's own runs, in the order of all": lambda f: f.group_by("patient").agg(col("ward").rle_id().max()),
    "one's own sorted by rows of all": lambda f: f.with_columns(
        x=col("ward").sort_by("cost").over("patient", mapping_strategy="explode")
    ),
    "one's own, drawn at random": lambda f: f.group_by("patient").agg(col("ward").sample(1, seed=1).first()),
    "one's own rank, drawn at random": lambda f: f.with_columns(x=col("dose").rank("random", seed=1).over("patient")),
    # Functions in Python.
    "a function of rows": lambda f: f.with_columns(x=col("cost").map_batches(_minus_mean, return_dtype=pl.Float64)),
    "a function of each person's rows": lambda f: f.with_columns(
        x=col("cost").map_batches(lambda values: values * 0 + len(values), return_dtype=pl.Float64)
    ),
    "a function of frames": lambda f: f.map_batches(lambda frame: frame.head(3)),
    "a function of several columns": lambda f: f.with_columns(
        x=pl.map_batches(["cost", "dose"], lambda several: several[0] - several[1].mean(), return_dtype=pl.Float64)
    ),
}
