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
    copay = col.copay.cast(pl.Decimal(10, 2))
    return pl.DataFrame(rows, schema_overrides={"drug": DRUGS, "age": pl.Int16, "weight": pl.Float32}).with_columns(
        copay, col.kind.cast(pl.Categorical)
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


@dataclass(frozen=True)
class Refused:
    """Why a pipeline is refused, as a pattern of its message, and what to write instead: it gives the same."""

    why: str
    instead: Steps


def adds(*exprs: Any, **named: Any) -> Steps:
    return lambda f: f.with_columns(*exprs, **named)


def keeps(*conditions: Any) -> Steps:
    return lambda f: f.filter(*conditions)


def per_patient(*exprs: Any, **named: Any) -> Steps:
    return lambda f: f.group_by("patient").agg(*exprs, **named)


def per_customer(*exprs: Any, **named: Any) -> Steps:
    return lambda f: f.group_by("customer").agg(*exprs, **named)


_paid = col.price * (1 - col.discount)

BY_ROW: dict[str, Steps] = {
    # Filters.
    "visits: filter by a constraint and more": lambda f: f.filter(col.age > 40, doctor="Curie", ward="B"),
    "visits: doses of a public Series": lambda f: f.filter(col.dose.is_in(pl.Series("doses", [10, 20]))),
    "visits: remove": lambda f: f.remove(col.temp.is_null()),
    "visits: not null": lambda f: f.filter(col.note.is_not_null() & (col.note != "")),
    "visits: after a time": lambda f: f.filter(col.at > dt.datetime(2023, 7, 1, 12)),
    "visits: any of several": lambda f: f.filter(pl.any_horizontal(col.emergency, col.temp > 38)),
    "visits: all of several": lambda f: f.filter(pl.all_horizontal(col.emergency, col.age > 30)),
    # Numbers.
    "visits: at most": lambda f: f.with_columns(col.cost.clip(0, 5000)),
    "visits: logarithm": lambda f: f.with_columns(log=col.cost.log1p()),
    "visits: root and power": lambda f: f.with_columns(root=col.cost.sqrt(), square=col.cost**2),
    "visits: greatest of floats": lambda f: f.with_columns(most=pl.max_horizontal("temp", "cost")),
    "visits: mean of columns": lambda f: f.with_columns(mean=pl.mean_horizontal("temp", "cost", "dose")),
    "visits: nulls in a row": lambda f: f.with_columns(nulls=pl.sum_horizontal(pl.all().is_null())),
    "visits: bands with labels": lambda f: f.with_columns(
        band=col.age.cut([18, 65], labels=["child", "adult", "old"]).cast(pl.String)
    ),
    "visits: parts of a hundred": lambda f: f.filter(col.visit.hash() % 10 == 0).select("visit"),
    # Types.
    "visits: types of selected columns": lambda f: f.select("cost", "temp", "dose").cast({cs.float(): pl.Float32}),
    "visits: narrow integers": lambda f: f.with_columns(col.age.cast(pl.Int8, strict=False)),
    "visits: a boolean as number": lambda f: f.with_columns(col.emergency.cast(pl.Int8)),
    "visits: a number as text": lambda f: f.with_columns(col.visit.cast(pl.String).str.zfill(6)),
    "visits: a text of an Enum": lambda f: f.with_columns(col.drug.cast(pl.String).str.to_uppercase()),
    "visits: a Categorical of a text": lambda f: f.with_columns(col.ward.cast(pl.Categorical)),
    "visits: a text of a Categorical": lambda f: f.with_columns(col.kind.cast(pl.String)),
    "visits: a Decimal of a float": lambda f: f.with_columns(price=col.cost.round(2).cast(pl.Decimal(12, 2))),
    "visits: Decimals compared": lambda f: f.filter(col.copay.cast(pl.Float64) > 20.5),
    # Times.
    "visits: month and weekday": lambda f: f.with_columns(month=col.day.dt.month(), weekday=col.day.dt.weekday()),
    "visits: months as texts": lambda f: f.with_columns(month=col.day.dt.strftime("%Y-%m")),
    "visits: weeks": lambda f: f.with_columns(week=col.at.dt.truncate("1w"), number=col.at.dt.week()),
    "visits: quarters": lambda f: f.with_columns(q=pl.format("{}-Q{}", col.day.dt.year(), col.day.dt.quarter())),
    "visits: hours of a stay": lambda f: f.with_columns(hours=col.stay.dt.total_seconds() / 3600),
    "visits: a month later": lambda f: f.with_columns(again=col.day.dt.offset_by("1mo")),
    "visits: due after as many days": lambda f: f.with_columns(due=col.day + pl.duration(days=col.dose)),
    "visits: parse a date without a format": lambda f: f.with_columns(col.admitted.str.to_date()),
    "visits: parse a time": adds(at=(col.admitted + " 08:30").str.to_datetime("%Y-%m-%d %H:%M", strict=False)),
    "visits: local time": adds(h=col.at.dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Amsterdam").dt.hour()),
    "visits: a date of parts of a text": adds(
        day=pl.date(col.admitted.str.head(4).cast(pl.Int32), col.admitted.str.slice(5, 2).cast(pl.Int8), 1)
    ),
    "visits: the first of the month by replace": lambda f: f.with_columns(col.day.dt.replace(day=1)),
    "visits: at eight": lambda f: f.with_columns(eight=col.day.dt.combine(dt.time(8))),
    "visits: working days": lambda f: f.with_columns(days=pl.business_day_count("born", "day")),
    "visits: leap years": lambda f: f.filter(col.born.dt.is_leap_year()).with_columns(n=col.born.dt.ordinal_day()),
    "visits: seconds since 1970": lambda f: f.with_columns(epoch=col.at.dt.epoch("s")),
    # Texts.
    "visits: chapters by pattern": adds(n=col.diagnosis.str.extract(r"(\d+)", 1).str.to_integer()),
    "visits: tidy notes": adds(col.note.str.strip_chars().str.to_lowercase().str.replace_all(r"\s+", " ")),
    "visits: lengths of notes": lambda f: f.with_columns(n=col.note.str.len_chars(), b=col.note.str.len_bytes()),
    "visits: matches": lambda f: f.with_columns(e=col.note.str.count_matches("e"), at=col.note.str.find("e")),
    "visits: starts with": keeps(col.diagnosis.str.starts_with("I") | col.note.str.ends_with("days")),
    "visits: texts joined": lambda f: f.with_columns(place=pl.concat_str("ward", "doctor", separator="/")),
    "visits: a year of a text": adds(year=col.admitted.str.split("-").list.get(0).cast(pl.Int32)),
    "visits: parts of a text": adds(year=col.admitted.str.split_exact("-", 2).struct.field("field_0")),
    "visits: selected texts": lambda f: f.select(cs.string().str.to_uppercase().name.suffix("_upper")),
    # Values for values.
    "visits: replace": lambda f: f.with_columns(col.ward.replace({"A": "Alpha", "B": "Beta"})),
    "visits: replace all or default": adds(floor=col.ward.replace_strict({"A": 1, "B": 2}, default=0)),
    "visits: replace all by a type": adds(floor=col.ward.replace_strict(WARDS, [1, 2, 3, 4], return_dtype=pl.Int8)),
    "visits: coalesce": lambda f: f.with_columns(note=pl.coalesce("note", "diagnosis", pl.lit("none"))),
    "visits: null or equal": lambda f: f.filter(col.temp.eq_missing(36.8) | col.note.is_null()),
    # Lists and structs.
    "visits: in a list": lambda f: f.filter(col.codes.list.contains("I10")),
    "visits: a list joined": lambda f: f.with_columns(codes=col.codes.list.sort().list.join(";")),
    "visits: extremes of a list of floats": adds(low=col.readings.list.min(), high=col.readings.list.max()),
    "visits: how many are in a list": adds(n=col.codes.list.n_unique(), m=col.codes.list.unique().list.len()),
    "visits: each of a list tested": lambda f: f.with_columns(bad=col.pain.list.eval(pl.element() > 5).list.sum()),
    "visits: each of a list of floats": adds(col.readings.list.eval((pl.element() * 10).round().cast(pl.Int64))),
    "visits: any of a list": lambda f: f.filter(col.pain.list.eval(pl.element() > 8).list.any()),
    "visits: change along a list": lambda f: f.with_columns(last=col.pain.list.last() - col.pain.list.first()),
    "visits: lists of columns": lambda f: f.with_columns(both=pl.concat_list("dose", "visit")),
    "visits: codes by chapter": lambda f: f.explode("codes").filter(col.codes.str.starts_with("I")),
    "visits: filter by a field": lambda f: f.filter(col.address.struct.field("zip") < 1005),
    "visits: unnest": lambda f: f.unnest("address"),
    # Columns.
    "visits: select by types": lambda f: f.select(cs.numeric() - cs.by_name("patient"), cs.temporal()),
    "visits: select all but": lambda f: f.select(pl.exclude("note", "born", "patient")),
    "visits: select by a pattern": lambda f: f.with_columns(col("^(temp|cost)$").round(1).name.suffix("_1")),
    "visits: rename and drop": lambda f: f.rename({"cost": "price"}).drop("note", "codes"),
    "visits: rename by a function": lambda f: f.rename(lambda name: name if name == "patient" else name.upper()),
    "visits: columns as rows": lambda f: f.unpivot(["temp", "cost"], index=["patient", "visit"]),
    "visits: a function of frames": lambda f: f.pipe(lambda rows: rows.filter(col.age > 30)),
    # TPC-H, what is done to each line.
    "lines: Q1": lambda f: f.filter(col.shipped <= dt.date(1998, 9, 2)).with_columns(
        disc_price=_paid, charge=_paid * (1 + col.tax)
    ),
    "lines: Q3": lambda f: f.filter(
        col.ordered < dt.date(1995, 3, 15), col.shipped > dt.date(1995, 3, 15)
    ).with_columns(revenue=_paid),
    "lines: Q4": keeps(
        col.ordered.is_between(dt.date(1995, 1, 1), dt.date(1995, 4, 1), closed="left"),
        col.committed < col.received,
    ),
    "lines: Q5": lambda f: (
        f.join(NATIONS, left_on="nation", right_on="n_name").filter(col.region == "EUROPE").with_columns(revenue=_paid)
    ),
    "lines: Q6": lambda f: f.filter(
        col.shipped.is_between(dt.date(1995, 1, 1), dt.date(1996, 1, 1), closed="left")
        & col.discount.is_between(0.05, 0.07)
        & (col.quantity < 24)
    ).with_columns(revenue=col.price * col.discount),
    "lines: Q7": lambda f: f.filter(col.nation.is_in(["FRANCE", "BRAZIL"])).select(
        "nation", year=col.shipped.dt.year(), volume=_paid
    ),
    "lines: Q8": adds(volume=pl.when(col.nation == "BRAZIL").then(_paid).otherwise(0), year=col.ordered.dt.year()),
    "lines: Q9": lambda f: f.join(PARTS, on="brand").with_columns(
        amount=_paid - col.supplycost * col.quantity, o_year=col.ordered.dt.year()
    ),
    "lines: Q10": lambda f: f.filter(col.flag == "R", col.ordered.dt.truncate("1q") == dt.date(1995, 1, 1)),
    "lines: Q12": lambda f: f.filter(
        col.mode.is_in(["MAIL", "SHIP"]), col.committed < col.received, col.shipped < col.committed
    ).with_columns(
        high=col.priority.is_in(["1-URGENT", "2-HIGH"]).cast(pl.UInt8),
        low=(~col.priority.is_in(["1-URGENT", "2-HIGH"])).cast(pl.UInt8),
    ),
    "lines: Q13": lambda f: f.filter(~col.comment.str.contains("special.*requests")),
    "lines: Q14": adds(promo=pl.when(col.type.str.starts_with("PROMO")).then(_paid).otherwise(0)),
    "lines: Q15": keeps(col.shipped >= dt.date(1996, 1, 1), col.shipped < dt.date(1996, 1, 1) + dt.timedelta(days=90)),
    "lines: Q16": keeps(
        col.brand != "Brand#12", ~col.type.str.starts_with("ECONOMY"), col.size.is_in([3, 9, 14, 19, 23, 36])
    ),
    "lines: Q17": lambda f: f.filter(col.brand == "Brand#23", col.container == "MED BOX").with_columns(col.price / 7.0),
    "lines: Q19": keeps(
        (
            (col.brand == "Brand#12")
            & col.container.is_in(["SM CASE", "SM BOX"])
            & col.quantity.is_between(1, 11)
            & col.size.is_between(1, 15)
        )
        | ((col.brand == "Brand#23") & col.container.str.starts_with("MED") & col.quantity.is_between(10, 20))
        & col.mode.is_in(["AIR", "AIR REG"])
    ),
    "lines: Q22": lambda f: f.with_columns(c=col.phone.str.slice(0, 2)).filter(col.c.is_in(["13", "31", "23", "29"])),
    "lines: country codes": lambda f: f.with_columns(code=col.phone.str.split("-").list.first().cast(pl.Int16)),
    "lines: brand numbers": lambda f: f.with_columns(number=col.brand.str.strip_prefix("Brand#").cast(pl.UInt8)),
    "visits: a set as one list": lambda f: f.filter(col.diagnosis.is_in(pl.Series(["I10", "J45"]).implode())),
    "visits: an age on a day": adds(age=((col.day - col.born).dt.total_days() / 365.25).floor().cast(pl.Int32)),
    "lines: the mode as an Enum": lambda f: f.with_columns(col.mode.cast(pl.Enum(["AIR", "MAIL", "SHIP", "TRUCK"]))),
}

BY_PERSON: dict[str, Steps] = {
    # One row of each patient.
    "visits: how many, by len": lambda f: f.group_by("patient").len(),
    "visits: all copays": lambda f: f.group_by("patient").agg(col.copay.sum()),
    "visits: all time": lambda f: f.group_by("patient").agg(col.stay.sum(), longest=col.stay.max()),
    "visits: mean doses": lambda f: f.group_by("patient").agg(col.dose.mean(), age=col.age.mean()),
    "visits: mean of temperatures": lambda f: f.group_by("patient").agg(col.temp.mean(), n=col.temp.count()),
    "visits: mean weights": lambda f: f.group_by("patient").agg(col.weight.mean(), all=col.weight.sum()),
    "visits: mean time": lambda f: f.group_by("patient").agg(col.stay.mean()),
    "visits: spread of costs": lambda f: f.group_by("patient").agg(std=col.cost.std(), var=col.cost.var()),
    "visits: spread of doses": lambda f: f.group_by("patient").agg(col.dose.std()),
    "visits: median costs": lambda f: f.group_by("patient").agg(col.cost.median()),
    "visits: median doses": lambda f: f.group_by("patient").agg(col.dose.median(), day=col.day.median()),
    "visits: high costs": lambda f: f.group_by("patient").agg(col.cost.quantile(0.9, interpolation="higher")),
    "visits: extremes": lambda f: f.group_by("patient").agg(low=col.temp.min(), high=col.temp.max()),
    "visits: range of costs": lambda f: f.group_by("patient").agg(span=col.cost.max() - col.cost.min()),
    "visits: days under care": per_patient(days=(col.at.max() - col.at.min()).dt.total_days()),
    "visits: how many wards and doctors": lambda f: f.group_by("patient").agg(col("ward", "doctor").n_unique()),
    "visits: any emergency": per_patient(any=col.emergency.any(), all=col.emergency.all()),
    "visits: share of emergencies": lambda f: f.group_by("patient").agg(col.emergency.mean()),
    "visits: how many emergencies": lambda f: f.group_by("patient").agg(col.emergency.sum()),
    "visits: ever with a diagnosis": per_patient(ever=col.diagnosis.is_in(["I10", "I21"]).any()),
    "visits: nulls": lambda f: f.group_by("patient").agg(none=col.temp.null_count(), notes=col.note.count()),
    "visits: most of several columns": lambda f: f.group_by("patient").agg(col("dose", "age", "visit").max()),
    "visits: means of all floats": lambda f: f.group_by("patient").agg(cs.float().mean().name.suffix("_mean")),
    "visits: a weighted mean": per_patient(mean=(col.cost * col.age).sum() / col.age.sum()),
    "visits: mean of distances to the mean": per_patient(mad=(col.cost - col.cost.mean()).abs().mean()),
    "visits: of emergencies, how many": per_patient(
        n=col.visit.filter(col.emergency).count(), m=col.visit.filter("emergency").len()
    ),
    "visits: of emergencies, the last day": per_patient(
        col.day.filter(col.emergency).max(), mean=col.dose.filter(col.emergency).mean()
    ),
    "visits: of emergencies, how many wards": per_patient(col.ward.filter(col.emergency).n_unique()),
    "visits: of emergencies, the first diagnosis": per_patient(
        col.diagnosis.filter(col.emergency).sort_by(col.at.filter(col.emergency)).first()
    ),
    "visits: emergencies, sorted": per_patient(col.diagnosis.sort_by("at").filter(col.emergency.sort_by("at")).first()),
    "visits: by when, all costs": per_patient(
        a=pl.when(col.ward == "A").then("cost").otherwise(0).sum(), b=pl.when(col.ward == "B").then("dose").sum()
    ),
    "visits: without nulls, the mean": lambda f: f.group_by("patient").agg(col.temp.drop_nulls().mean()),
    "visits: without nulls, how many": lambda f: f.group_by("patient").agg(col.note.drop_nulls().n_unique()),
    # The first, the last, the greatest.
    "visits: the last by a descending order": per_patient(col.cost.sort_by("at", descending=True).first()),
    "visits: first of a sorted frame": lambda f: f.sort("at").group_by("patient").agg(col.diagnosis.first()),
    "visits: the drug of the greatest cost": lambda f: f.group_by("patient").agg(col.drug.sort_by("cost").last()),
    "visits: the diagnosis where the cost is greatest": per_patient(col.diagnosis.get(col.cost.arg_max())),
    "visits: the ward by the least cost": lambda f: f.group_by("patient").agg(col.ward.min_by("cost")),
    "visits: the last temperature that is there": per_patient(col.temp.sort_by("at").last(ignore_nulls=True)),
    "visits: change of weight": per_patient(change=col.weight.sort_by("at").last() - col.weight.sort_by("at").first()),
    "visits: the first list and struct": per_patient(col.codes.sort_by("at").first(), col.address.sort_by("at").last()),
    "visits: the longest gap": lambda f: f.group_by("patient").agg(gap=col.at.sort().diff().max()),
    "visits: the mean gap": lambda f: f.group_by("patient").agg(gap=col.day.sort().diff().dt.total_days().mean()),
    "visits: the three greatest costs": per_patient(col.cost.sort(descending=True).head(3).sum()),
    "visits: top three": lambda f: f.group_by("patient").agg(col.dose.top_k(3).sum()),
    "visits: the second day": lambda f: f.group_by("patient").agg(col.day.sort().get(1, null_on_oob=True)),
    "visits: the most frequent ward": lambda f: f.group_by("patient").agg(col.ward.mode().sort().first()),
    # Lists of a patient's values.
    "visits: a list of wards without doubles": lambda f: f.group_by("patient").agg(col.ward.unique().sort()),
    "visits: a path of wards": lambda f: f.group_by("patient").agg(col.ward.sort_by("at").str.join(">")),
    "visits: a list as it comes": lambda f: f.group_by("patient").agg(col.diagnosis),
    # A value for each visit.
    "visits: of people with an emergency": lambda f: f.filter(col.emergency.any().over("patient")),
    "visits: days since the last": adds(gap=(col.at - col.at.shift(1).over("patient", order_by="at")).dt.total_days()),
    "visits: days to the next": adds(gap=col.day.shift(-1).over("patient", order_by="day") - col.day),
    "visits: back within a month": lambda f: f.with_columns(
        gap=col.at.diff().over("patient", order_by="at").dt.total_days()
    ).filter(col.gap <= 30),
    "visits: the one before, or none": adds(x=col.diagnosis.shift(1, fill_value="none").over("patient", order_by="at")),
    "visits: costs so far": lambda f: f.with_columns(so_far=col.cost.cum_sum().over("patient", order_by="at")),
    "visits: doses so far": lambda f: f.with_columns(so_far=col.dose.cum_sum().over("patient", order_by="at")),
    "visits: the highest so far": lambda f: f.with_columns(high=col.dose.cum_max().over("patient", order_by="at")),
    "visits: numbers by count": lambda f: f.with_columns(n=col.visit.cum_count().over("patient", order_by="at")),
    "visits: the first three": lambda f: f.filter(pl.int_range(pl.len()).over("patient", order_by="at") < 3),
    "visits: the first three by rank": lambda f: f.filter(col.at.rank("min").over("patient") <= 3),
    "visits: one's own z-score": adds(z=(col.cost - col.cost.mean().over("patient")) / col.cost.std().over("patient")),
    "visits: a share of one's own costs": adds(share=col.cost / col.cost.sum().over("patient")),
    "visits: the first diagnosis beside each": adds(first=col.diagnosis.first().over("patient", order_by="at")),
    "visits: monthly": lambda f: f.with_columns(m=col.day.dt.truncate("1mo")).with_columns(
        n=pl.len().over("patient", "m")
    ),
    "visits: episodes": lambda f: (
        f.with_columns(new=(col.day.diff().over("patient", order_by="day") > dt.timedelta(days=90)).fill_null(True))
        .with_columns(episode=col.new.cum_sum().over("patient", order_by="day"))
        .group_by("patient", "episode")
        .agg(pl.len(), cost=col.cost.sum())
    ),
    "visits: temperatures carried on": adds(col.temp.forward_fill().over("patient", order_by="at")),
    "visits: one's own mean for a null": adds(col.temp.fill_null(col.temp.mean().over("patient"))),
    "visits: a moving mean": adds(col.cost.rolling_mean(3, min_samples=1).over("patient", order_by="at")),
    "visits: relative change": lambda f: f.with_columns(col.cost.pct_change().over("patient", order_by="at")),
    "visits: the first in a ward": lambda f: f.filter(col.ward.is_first_distinct().over("patient", order_by="at")),
    "visits: with a diagnosis again": lambda f: f.filter(col.diagnosis.is_duplicated().over("patient")),
    # Rows without doubles.
    "visits: wards of each": lambda f: f.select("patient", "ward").unique(),
    "visits: rows that are the same": lambda f: f.unique(),
    # Several steps.
    "visits: how many wards had most": lambda f: (
        f.group_by("patient", "ward")
        .agg(n=pl.len(), cost=col.cost.sum())
        .group_by("patient")
        .agg(col.n.max(), wards=pl.len(), cost=col.cost.max())
    ),
    "visits: of people with several, the mean": lambda f: (
        f.group_by("patient")
        .agg(n=pl.len(), mean=col.cost.mean())
        .filter(col.n > 2)
        .with_columns(level=col.mean.cut([500, 2000, 5000]).cast(pl.String))
    ),
    "visits: per year, at once": lambda f: f.group_by("patient", col.day.dt.year().alias("year")).agg(pl.len()),
    "visits: per month": lambda f: f.group_by_dynamic("day", every="1mo", group_by="patient").agg(col.dose.sum()),
    "visits: codes of a patient": lambda f: (
        f.select("patient", "codes")
        .explode("codes")
        .drop_nulls()
        .group_by("patient")
        .agg(col.codes.n_unique(), n=pl.len())
    ),
    "visits: codes of a patient, at once": lambda f: f.group_by("patient").agg(n=col.codes.list.len().sum()),
    "visits: facts of the last ward": lambda f: (
        f.group_by("patient").agg(col.ward.sort_by("at").last()).join(WARD_FACTS, on="ward", how="left")
    ),
    "visits: most of a list": lambda f: f.group_by("patient").agg(worst=col.pain.list.max().max()),
    # TPC-H, what is done to each customer's lines.
    "lines: own Q1": lambda f: (
        f.filter(col.shipped <= dt.date(1998, 9, 2))
        .group_by("customer", "flag", "status")
        .agg(
            sum_qty=col.quantity.sum(),
            sum_base_price=col.price.sum(),
            sum_disc_price=_paid.sum(),
            sum_charge=(_paid * (1 + col.tax)).sum(),
            avg_qty=col.quantity.mean(),
            avg_price=col.price.mean(),
            avg_disc=col.discount.mean(),
            count_order=pl.len(),
        )
    ),
    "lines: own Q3": lambda f: (
        f.filter(col.shipped > dt.date(1995, 3, 15))
        .group_by("customer", "order", "ordered", "priority")
        .agg(revenue=_paid.sum())
    ),
    "lines: own Q4": lambda f: (
        f.filter(col.committed < col.received)
        .unique(["customer", "order"])
        .group_by("customer", "priority")
        .agg(order_count=pl.len())
    ),
    "lines: own Q10": lambda f: (
        f.filter(col.flag == "R").group_by("customer", "nation", "phone").agg(revenue=_paid.sum().round(2))
    ),
    "lines: own Q12": lambda f: f.group_by("customer", "mode").agg(
        high=col.priority.is_in(["1-URGENT", "2-HIGH"]).sum(), low=(~col.priority.is_in(["1-URGENT"])).sum()
    ),
    "lines: own Q13": lambda f: (
        f.filter(~col.comment.str.contains("special.*requests")).group_by("customer").agg(n=col.order.n_unique())
    ),
    "lines: own Q14": per_customer(promo=100.0 * _paid.filter(col.type.str.starts_with("PROMO")).sum() / _paid.sum()),
    "lines: own Q17": lambda f: (
        f.filter(col.quantity < 0.5 * col.quantity.mean().over("customer"))
        .group_by("customer")
        .agg(avg_yearly=col.price.sum() / 7.0)
    ),
    "lines: Q18": lambda f: (
        f.group_by("customer", "order")
        .agg(col.quantity.sum(), total=col.price.sum(), ordered=col.ordered.min())
        .filter(col.quantity > 60)
    ),
    "lines: own Q21": lambda f: f.filter(col.received > col.committed).group_by("customer").agg(n=col.order.n_unique()),
    "lines: own Q22": lambda f: (
        f.filter(col.phone.str.slice(0, 2).is_in(["13", "31", "23"]))
        .group_by("customer")
        .agg(numcust=pl.len(), totacctbal=col.price.sum())
    ),
    # A shop's report.
    "lines: recency, frequency, money": per_customer(
        recency=(pl.lit(dt.date(1998, 12, 1)) - col.ordered.max()).dt.total_days(),
        frequency=col.order.n_unique(),
        money=_paid.sum(),
    ),
    "lines: levels of spending": lambda f: (
        f.group_by("customer")
        .agg(money=_paid.sum())
        .with_columns(
            level=pl.when(col.money > 500_000).then(pl.lit("gold")).when(col.money > 100_000).then(pl.lit("silver"))
        )
    ),
    "lines: baskets": lambda f: (
        f.group_by("customer", "order")
        .agg(value=_paid.sum(), lines=pl.len())
        .group_by("customer")
        .agg(col.value.mean(), largest=col.value.max(), lines=col.lines.mean())
    ),
    "lines: months since first": adds(months=(col.ordered - col.ordered.min().over("customer")).dt.total_days() // 30),
    "lines: which order": lambda f: f.with_columns(n=col.ordered.rank("dense").over("customer")),
    "lines: days between orders": lambda f: (
        f.unique(["customer", "order"])
        .select("customer", "order", "ordered")
        .with_columns(gap=col.ordered.diff().over("customer", order_by="ordered"))
    ),
    "lines: spending so far": lambda f: (
        f.group_by("customer", "ordered")
        .agg(value=_paid.sum())
        .with_columns(so_far=col.value.cum_sum().over("customer", order_by="ordered"))
    ),
    "lines: the value of the first order": lambda f: (
        f.group_by("customer", "order")
        .agg(value=_paid.sum(), ordered=col.ordered.min())
        .group_by("customer")
        .agg(first=col.value.sort_by("ordered").first(), last=col.value.sort_by("ordered").last())
    ),
    "lines: a brand bought again": adds(again=col.order.n_unique().over("customer", "brand") > 1),
    "lines: spending by year": lambda f: (
        f.with_columns(year=col.ordered.dt.year())
        .group_by("customer", "year")
        .agg(_paid.sum().alias("value"))
        .with_columns(change=col.value - col.value.shift(1).over("customer", order_by="year"))
    ),
    "lines: active years": lambda f: f.group_by("customer").agg(years=col.ordered.dt.year().n_unique()),
    "lines: discounts used": per_customer(
        n=(col.discount > 0.05).sum(), most=col.discount.max(), mean=col.discount.mean().round(6)
    ),
    "lines: by mode": per_customer(*(col.price.filter(col.mode == mode).sum().alias(mode) for mode in ["AIR", "MAIL"])),
    # In Polars' shorter words.
    "visits: largest of all": lambda f: f.select("patient", "dose", "day").group_by("patient").max(),
    "visits: means of all": lambda f: f.select("patient", "dose", "cost").group_by("patient").mean(),
    "visits: sums of all": lambda f: f.select("patient", "dose", "copay").group_by("patient").sum(),
    "visits: medians of all": lambda f: f.select("patient", "dose", "cost").group_by("patient").median(),
    "visits: different ones of all": lambda f: f.select("patient", "dose", "ward").group_by("patient").n_unique(),
    "visits: smallest of all": lambda f: f.select("patient", "dose", "ward").group_by("patient").min(),
    "visits: in order": lambda f: f.group_by("patient", maintain_order=True).agg(col.dose.max()),
    "visits: having": lambda f: f.group_by("patient").having(pl.len() > 1, col.dose.max() > 5).agg(col.cost.mean()),
    "visits: largest, sorted": per_patient(col.dose.top_k(3).sort(), later=col.at.sort().tail(2).sort(descending=True)),
    "visits: a struct": per_patient(pl.struct(col.dose.max().alias("most"), least=col.dose.min()).alias("doses")),
    "visits: a struct of windows": adds(
        pl.struct(col.dose.max().over("patient"), mean=col.dose.mean().over("patient")).alias("doses")
    ),
    "visits: means of readings": lambda f: f.group_by("patient").agg(col.readings.list.mean().mean()),
    "visits: a moving sum": adds(
        x=col.temp.rolling_sum(3, min_samples=1).over("patient", order_by="at"),
        y=col.dose.rolling_mean(2).over("patient", order_by="at"),
        n=col.emergency.rolling_sum(2).over("patient", order_by="at"),
    ),
    "visits: runs of wards": lambda f: f.with_columns(run=col.ward.rle_id().over("patient", order_by="at")),
    "visits: relative change of doses": per_patient((col.dose + 1).sort_by("at").pct_change().max()),
    "lines: three dearest": lambda f: f.filter(col.price.rank("ordinal", descending=True).over("customer") <= 3),
}

REFUSED: dict[str, Refused] = {
    "visits: parse a date without a format": Refused("guesses its format", adds(col.admitted.str.to_date("%Y-%m-%d"))),
}


def _minus_mean(values: pl.Series) -> pl.Series:
    return values - values.mean()


# What brings people together. A window of one person's rows is `.over("patient", …)`.
MIXED: dict[str, Steps] = {
    # All rows at once.
    "minus the mean": lambda f: f.with_columns(x=col.cost - col.cost.mean()),
    "a standard score": lambda f: f.with_columns(x=(col.cost - col.cost.mean()) / col.cost.std()),
    "a share of all": lambda f: f.with_columns(x=col.cost / col.cost.sum()),
    "scaled to the extremes": adds(x=(col.cost - col.cost.min()) / (col.cost.max() - col.cost.min())),
    "above the median": lambda f: f.filter(col.cost > col.cost.median()),
    "above a quantile": lambda f: f.filter(col.cost > col.cost.quantile(0.9)),
    "with the latest day": lambda f: f.filter(col.day == col.day.max()),
    "how many rows": lambda f: f.with_columns(n=pl.len()),
    "how many values": lambda f: f.with_columns(n=col.temp.count(), m=col.ward.n_unique()),
    "a rank": lambda f: f.with_columns(x=col.cost.rank()),
    "a rank of structs": lambda f: f.with_columns(x=pl.struct("ward", "cost").rank("dense")),
    "a shift": lambda f: f.with_columns(x=col.cost.shift(1)),
    "a difference": lambda f: f.with_columns(x=col.cost.diff()),
    "a relative change": lambda f: f.with_columns(x=col.dose.pct_change()),
    "a running sum": lambda f: f.with_columns(x=col.dose.cum_sum()),
    "a running maximum": lambda f: f.with_columns(x=col.dose.cum_max()),
    "a moving mean": lambda f: f.with_columns(x=col.cost.rolling_mean(3)),
    "a moving mean by time": lambda f: f.with_columns(x=col.cost.rolling_mean_by("at", "7d")),
    "an exponential mean": lambda f: f.with_columns(x=col.cost.ewm_mean(alpha=0.5)),
    "reversed": lambda f: f.with_columns(x=col.cost.reverse()),
    "sorted": lambda f: f.with_columns(x=col.cost.sort()),
    "sorted by another": lambda f: f.with_columns(x=col.ward.sort_by("cost")),
    "shuffled": lambda f: f.with_columns(x=col.cost.shuffle(seed=1)),
    "runs": lambda f: f.with_columns(x=col.ward.rle_id()),
    "runs of a struct": lambda f: f.select(x=col.ward.rle().struct.field("len").max()),
    "places among others": lambda f: f.with_columns(x=col.cost.search_sorted(500.0)),
    "a search in another": lambda f: f.with_columns(x=col.dose.sort().search_sorted(col.age)),
    "value counts": lambda f: f.select(x=col.ward.value_counts(sort=True).struct.field("count")),
    "the first value": lambda f: f.with_columns(x=col.ward.first()),
    "a value by its place": lambda f: f.with_columns(x=col.ward.get(-1)),
    "of distinct values, the first": lambda f: f.filter(col.diagnosis.is_first_distinct()),
    "unique values": lambda f: f.filter(col.cost.round(0).is_unique()),
    "in another column": lambda f: f.filter(col.visit.is_in(col.dose.implode())),
    "in another column's list": lambda f: f.with_columns(x=(col.visit % 60).is_in(col.dose.implode())),
    "replaced by columns": adds(x=col.ward.replace(col.doctor.unique().sort(), col.diagnosis.unique().sort().head(4))),
    "an index by a range": lambda f: f.with_columns(x=pl.int_range(pl.len())),
    "an index by a range of ages": lambda f: f.with_columns(x=pl.arange(pl.len()) + col.age),
    "a number of a row": lambda f: f.with_row_index("x"),
    "bins of quantiles": lambda f: f.with_columns(x=col.cost.qcut(4).cast(pl.String)),
    "bins by the rows": lambda f: f.select(x=col.cost.hist(bin_count=4)),
    "an entropy": lambda f: f.with_columns(x=col.cost.entropy()),
    "a correlation": lambda f: f.with_columns(x=pl.corr("cost", "dose")),
    "a product of columns": lambda f: f.with_columns(x=col.cost.dot(col.dose.cast(pl.Float64))),
    "joined texts of all": lambda f: f.with_columns(x=col.ward.str.join()),
    "peaks": lambda f: f.filter(col.cost.peak_max()),
    # Values from other rows.
    "filled by the row before": lambda f: f.with_columns(col.temp.forward_fill()),
    "filled by the row after": lambda f: f.with_columns(col.temp.fill_null(strategy="backward")),
    "filled by the mean": lambda f: f.with_columns(col.temp.fill_null(col.temp.mean())),
    "filled by the mean, as a strategy": lambda f: f.with_columns(col.temp.fill_null(strategy="mean")),
    "a frame filled by the row before": lambda f: f.select("visit", "temp").fill_null(strategy="forward"),
    "interpolated": lambda f: f.with_columns(col.temp.interpolate()),
    # Rows by their place.
    "head": lambda f: f.head(5),
    "limit": lambda f: f.limit(5),
    "tail": lambda f: f.tail(5),
    "slice": lambda f: f.slice(3, 5),
    "every third": lambda f: f.gather_every(3),
    "the greatest of all": lambda f: f.top_k(5, by="cost"),
    "the first ones of a sorted frame": lambda f: f.sort("cost").head(5),
    "a sample by expressions": lambda f: f.filter(col.visit.sample(fraction=1.0, shuffle=True, seed=1) > 50),
    "the first row of each value of another column": lambda f: f.unique("ward", keep="first", maintain_order=True),
    "the last row of each value of two other columns": lambda f: f.unique(["ward", "day"], keep="last"),
    "values that nobody else has": lambda f: f.unique(["ward", "dose", "age"], keep="none"),
    # Groups of several people.
    "a window of another column": lambda f: f.with_columns(x=col.cost.mean().over("ward")),
    "a window of another column and one's own": adds(x=col.cost.sum().over("patient"), y=col.cost.sum().over("ward")),
    "a rank in a ward": lambda f: f.with_columns(x=col.cost.rank().over("ward")),
    "a number in a ward": lambda f: f.filter(pl.int_range(pl.len()).over("ward", order_by="at") < 3),
    "the first of a day": lambda f: f.filter(col.at == col.at.min().over("day")),
    "a window of a constant": lambda f: f.with_columns(x=col.cost.sum().over(pl.lit(1))),
    "a window of pairs of people": lambda f: f.with_columns(x=col.cost.sum().over(col.patient // 2)),
    "a window of remainders": lambda f: f.with_columns(x=pl.len().over(col.patient % 10, "ward")),
    "a window of the unit's name": lambda f: f.with_columns(x=pl.len().over((col.patient // 2).alias("patient"))),
    "groups of another column": lambda f: f.group_by("ward").agg(col.cost.sum()),
    "groups of remainders": lambda f: f.group_by(col.patient // 2).agg(pl.len()),
    "groups of another column that is named like people": lambda f: f.group_by(col.ward.alias("patient")).agg(pl.len()),
    "groups by time": lambda f: f.group_by_dynamic("at", every="1w").agg(pl.len()),
    "groups of moving windows": lambda f: f.rolling("visit", period="9i").agg(pl.len()),
    "another column that takes the unit's name": lambda f: f.with_columns(patient=col.dose).with_columns(
        x=pl.len().over("patient")
    ),
    "the unit made coarser": lambda f: f.with_columns(col.patient // 2).with_columns(x=pl.len().over("patient")),
    "another column renamed to the unit": lambda f: f.rename({"patient": "p", "ward": "patient"}).with_columns(
        x=pl.len().over("patient")
    ),
    "the unit's name of a selector": lambda f: (
        f.select(cs.by_name("dose").name.replace("dose", "patient"), "visit").group_by("patient").agg(pl.len())
    ),
    "a self-join by ward": lambda f: f.join(f.group_by("ward").agg(n=pl.len()), on="ward"),
    "a self-join by the day": lambda f: f.join(f.select("day", other="cost"), on="day", how="inner"),
    "rows that another row has": lambda f: f.join(f.filter(col.emergency).select("day"), on="day", how="semi"),
    "the nearest other row": lambda f: f.sort("at").join_asof(
        f.sort("at").select("at", o="cost"), on="at", strategy="backward", allow_exact_matches=False
    ),
    "rows of a condition": lambda f: f.select("visit", "day").join_where(f.select("age", d="day"), col.day < col.d),
    "a wide table": lambda f: f.group_by("day").agg(col.ward),
    # Disguised.
    "within when": lambda f: f.with_columns(x=pl.when(col.cost > 0).then(col.cost.mean()).otherwise(0)),
    "a condition of all": adds(x=pl.when(col.dose.max() > 10).then(col.cost).otherwise(col.dose)),
    "within otherwise, of a ward": adds(x=pl.when(col.age > 500).then(0).otherwise(pl.len().over("ward"))),
    "within a text": lambda f: f.with_columns(x=pl.format("{} of {}", "visit", col.visit.max())),
    "within a clip": lambda f: f.with_columns(x=col.cost.clip(0, col.cost.mean())),
    "within a cast and a round": lambda f: f.with_columns(x=(col.cost - col.cost.mean()).round().cast(pl.Int64)),
    "within is_between": lambda f: f.filter(col.cost.is_between(col.cost.mean(), 99_999)),
    "within coalesce": lambda f: f.with_columns(x=pl.coalesce("temp", col.temp.mean())),
    "within concat_list": lambda f: f.with_columns(x=pl.concat_list("dose", col.dose.max())),
    "within a struct": lambda f: f.with_columns(x=pl.struct("dose", most=col.dose.max())),
    "within a date": lambda f: f.with_columns(x=pl.date(col.day.dt.year().max(), 1, 1)),
    "within list.contains": lambda f: f.filter(col.codes.list.contains(col.diagnosis.max())),
    "within list.eval of columns": adds(x=col.codes.list.concat(col.ward.implode()).list.eval(pl.element().n_unique())),
    "within the windows of a person": adds(x=(col.cost.mean() - col.cost.mean().over("patient"))),
    "a window in a window": lambda f: f.with_columns(x=col.cost.mean().over("ward").max().over("patient")),
    "all rows as a list": lambda f: f.with_columns(x=col.cost.implode().list.mean()),
    "a ward's rows as a list": lambda f: f.with_columns(x=col.cost.implode().over("ward").list.len()),
    "an aggregation of a whole frame": lambda f: f.select(col.cost.sum()),
    "a filter of an aggregation": lambda f: f.with_columns(x=col.cost.filter(col.ward == "A").mean()),
    "a filter by all, of one person": lambda f: f.group_by("ward").agg(col.cost.filter(col.emergency).sum()),
    "one's own, in the order of all": lambda f: f.with_columns(x=col.temp.forward_fill().over("patient")),
    "one's own number, in the order of all": lambda f: f.with_columns(x=pl.int_range(pl.len()).over("patient")),
    "one's own first, in the order of all": lambda f: f.group_by("patient").agg(col.ward.first()),
    "one's own running sum, in the order of all": lambda f: f.with_columns(x=col.dose.cum_sum().over("patient")),
    "one's own row before, in the order of all": lambda f: f.with_columns(x=col.ward.shift().over("patient")),
    "one's own list, in the order of all": lambda f: f.with_columns(x=col.ward.implode().over("patient")),
    "one's own runs, in the order of all": lambda f: f.group_by("patient").agg(col.ward.rle_id().max()),
    "one's own sorted by rows of all": adds(x=col.ward.sort_by("cost").over("patient", mapping_strategy="explode")),
    "one's own, drawn at random": lambda f: f.group_by("patient").agg(col.ward.sample(1, seed=1).first()),
    "one's own rank, drawn at random": lambda f: f.with_columns(x=col.dose.rank("random", seed=1).over("patient")),
    # Functions in Python.
    "a function of rows": lambda f: f.with_columns(x=col.cost.map_batches(_minus_mean, return_dtype=pl.Float64)),
    "a function of each person's rows": lambda f: f.with_columns(
        x=col.cost.map_batches(lambda values: values * 0 + len(values), return_dtype=pl.Float64)
    ),
    "a function of frames": lambda f: f.map_batches(lambda frame: frame.head(3)),
    "a function of several columns": lambda f: f.with_columns(
        x=pl.map_batches(["cost", "dose"], lambda several: several[0] - several[1].mean(), return_dtype=pl.Float64)
    ),
}
