"""Plans before `protect` that look at all rows of one person: what is taken, what is not, and what comes out."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta

import polars as pl
import pyarrow.dataset
import pytest

import dp_polars as dpp
from dp_polars._rowwise import plan_rules
from dp_polars._rowwise.plans import refuse_unsafe_plan
from dp_polars._rowwise.views import raises_on_twins

HOWS = ("inner", "left", "semi", "anti")
TOP, DAY = 2**63 - 1, date(2020, 1, 1)
VISITS = pl.DataFrame(
    {
        "p": [1, 1, 1, 2, 2, 3, None, None, 4],
        "ward": ["A", "A", "B", "A", None, "A", "A", "B", "B"],
        "cents": [5, 7, None, TOP, TOP, 9, 4, 4, None],
        "small": pl.Series([1, 2, 3, 4, 5, 6, 7, 8, 9], dtype=pl.Int8),
        "day": [DAY + timedelta(days=days) for days in (0, 0, 20, 3, 90, 5, 0, 1, 2)],
        "ok": [True, None, False, True, True, None, False, None, None],
        "cost": [0.0, -0.0, 1.5, float("nan"), 2.0, None, 0.0, 1.0, 0.1],
        "codes": [[1], [], [2, 3], None, [1], [1, 1], [2], [], [5]],
    }
)
PEOPLE = pl.DataFrame(
    {
        "id": [1, 2, 2, 3, None, 5],
        "ward": ["A", "A", "B", "C", "A", None],
        "plan": ["x", "y", "z", "x", "y", "z"],
        "cents": [1, 2, 3, 4, 5, 6],
        "cost": [0.5] * 6,
    }
)
cents, day, ward = pl.col("cents"), pl.col("day"), pl.col("ward")


def with_p(people):
    return people.rename({"id": "p"})


# From visits and people, whose unit is "p" and "id", to a plan whose unit is "p".
ACCEPTED = {
    **{
        f"a join, {how}": lambda v, w, how=how: v.join(w, left_on="p", right_on="id", how=how, maintain_order="left")
        for how in HOWS
    },
    **{
        f"a join by two columns, {how}": lambda v, w, how=how: v.join(
            w, left_on=["ward", "p"], right_on=["ward", "id"], how=how
        )
        for how in HOWS
    },
    "a join of one name": lambda v, w: v.join(with_p(w), on="p", suffix="_of_w", coalesce=False, allow_parallel=False),
    "a join with itself": lambda v, _: v.join(v.filter(cents > 5), on="p", how="semi"),
    "a join after a join": lambda v, w: v.join(with_p(w), on="p").join(with_p(w).select("p", "plan"), on=["p", "plan"]),
    "a join of groups": lambda v, w: v.join(w.group_by("id").agg(plans=pl.len()), left_on="p", right_on="id"),
    "a join of what is cached": lambda v, _: v.cache().join(v.cache(), on="p"),
    "groups": lambda v, _: v.group_by("p").agg(cents.sum(), pl.len(), first=day.min(), last=day.max()),
    "groups by more": lambda v, _: v.group_by("ward", "p", maintain_order=True).agg(cents.count(), day.n_unique()),
    "groups by another name": lambda v, _: v.rename({"p": "q"}).group_by(p="q", w="ward").agg(cents.null_count()),
    "groups, renamed": lambda v, _: (
        v.group_by("p").agg(pl.len()).select(pl.col("p").alias("q"), "len").rename({"q": "p"})
    ),
    "every function": lambda v, _: v.group_by("p").agg(
        pl.col("ok").any().alias("any"),
        pl.col("ok").all().alias("all"),
        pl.col("ok").any(ignore_nulls=False).alias("any or null"),
        pl.col("ok").all(ignore_nulls=False).alias("all or null"),
        pl.col("cost").count().alias("count"),
        pl.col("codes").len().alias("len"),
        pl.col("codes").null_count().alias("nulls"),
        pl.col("small").median().alias("median"),
        pl.col("day").median().alias("median day"),
        ward.n_unique().alias("n_unique"),
        ward.min().alias("min"),
        pl.col("small").max().alias("max"),
        cents.sum().alias("sum"),
    ),
    "groups of groups": lambda v, _: v.group_by("p", "ward").agg(pl.len()).group_by("p").agg(pl.col("len").max()),
    "a sum after a cast": lambda v, _: (
        v.with_columns(pl.col("small").cast(pl.Int64)).group_by("p").agg(pl.col("small").sum())
    ),
    "windows": lambda v, _: v.with_columns(
        gap=cents - cents.min().over("p"), share=cents - cents.sum().over("p", "ward"), n=pl.len().over("p")
    ).filter(pl.col("gap") > 0),
    "a window of dates": lambda v, _: v.with_columns(first=day.min().over("p"), days=day.n_unique().over("p")),
    "a window in filter": lambda v, _: v.filter(cents == cents.min().over("p")),
    "a window in select": lambda v, _: v.select("p", most=pl.when(cents == cents.max().over("p")).then(1)),
    "a window of a name that another column gets": lambda v, _: v.select(
        "cents", p="p", ward=pl.len().over("ward", "p")
    ),
    "a window in sort": lambda v, _: v.sort(pl.len().over("p")),
    "a division of integers": lambda v, _: v.with_columns(small=pl.col("small") // 2 + pl.len().over("p") // 2),
    "explode, then groups": lambda v, _: v.explode("codes").group_by("p").agg(pl.col("codes").n_unique()),
    "unpivot, then groups": lambda v, _: (
        v.unpivot(["small", "cents"], index="p").group_by("p").agg(pl.col("value").max())
    ),
    "a concat, then groups": lambda v, w: pl.concat([v.select("p"), with_p(w).select("p")]).group_by("p").len(),
    "groups in a concat": lambda v, w: pl.concat([v.group_by("p").len(), with_p(w).group_by("p").len()]),
    "another column becomes the unit first": lambda v, _: v.with_columns(p=pl.col("small")).group_by("p").len(),
}


def rows(plan, *, engine="in-memory", optimized=True):
    """The rows of a plan to the bit, and how often each is there."""
    flags = pl.QueryOptFlags(predicate_pushdown=False) if optimized else pl.QueryOptFlags.none()
    frame = plan.collect(engine=engine, optimizations=flags)
    return Counter(map(repr, frame.select(pl.all().to_physical()).sort("p").iter_rows()))


def of(frame, unit, person):
    return frame.filter(pl.col(unit).eq_missing(person)).lazy()


def shuffled(frame, seed):
    return frame.sample(fraction=1, shuffle=True, seed=seed)


def chunked(frame):
    return pl.concat([frame[start : start + 2] for start in range(0, frame.height, 2)], rechunk=False)


def unit_of(name):
    """The column of the visits that tells people apart."""
    return "small" if name == "another column becomes the unit first" else "p"


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_accepted_plan_is_person_by_person(name):
    plan, unit = ACCEPTED[name], unit_of(name)
    refuse_unsafe_plan(plan(VISITS.lazy(), PEOPLE.lazy()), ("p",))
    together = rows(plan(VISITS.lazy(), PEOPLE.lazy()))
    people = {*VISITS[unit], *PEOPLE["id"]}
    alone = Counter()
    for person in people:
        alone += rows(plan(of(VISITS, unit, person), of(PEOPLE, "id", person)))
    assert alone == together
    for seed in range(5):
        found = plan(shuffled(VISITS, seed).lazy(), shuffled(PEOPLE, seed).lazy())
        assert rows(found) == rows(found, engine="streaming") == rows(found, optimized=False) == together
    found = plan(chunked(VISITS).lazy(), chunked(PEOPLE).lazy())
    assert rows(found) == rows(found, engine="streaming") == together


@pytest.mark.parametrize("name", ACCEPTED)
def test_small_neighbours_differ_in_the_rows_of_one_person(name):
    """All others keep their rows, whoever goes, from every part of the tables."""
    plan, unit = ACCEPTED[name], unit_of(name)
    people = sorted({*VISITS[unit].drop_nulls(), *PEOPLE["id"].drop_nulls()})[:3]

    def found(there):
        visits, others = VISITS.filter(pl.col(unit).is_in(there)), PEOPLE.filter(pl.col("id").is_in(there))
        frame = plan(visits.lazy(), others.lazy()).collect()
        return {person: Counter(map(repr, frame.filter(p=person).rows())) for person in there}

    for number in range(1, len(people) + 1):
        for there in itertools.combinations(people, number):
            everybody = found(there)
            for gone in there:
                left = [person for person in there if person != gone]
                assert found(left) == {person: everybody[person] for person in left}


COMBINES, TOGETHER = "combines several rows", "brings rows together"
ONE, EXACT = "is one function of one column here", "takes names of columns here that are integers"
REFUSED = {
    "groups without the unit": (lambda v, _: v.group_by("ward").agg(cents.sum()), f"`group_by` {COMBINES}"),
    "the unit is computed from groups": (
        lambda v, _: v.group_by("ward").agg(pl.col("p").min()),
        f"`group_by` {COMBINES}",
    ),
    "the unit is changed after groups": (
        lambda v, _: v.group_by("p").agg(cents.sum()).with_columns(pl.col("p") // 2),
        f"`group_by` {COMBINES}",
    ),
    "another column becomes the unit": (
        lambda v, _: v.group_by("p").agg(pl.col("small").max()).select(p="small").group_by("p").len(),
        f"`group_by` {COMBINES}",
    ),
    "the unit is exploded after groups": (
        lambda v, _: v.group_by("p", "ward").len().with_columns(p=pl.concat_list("p")).explode("p"),
        "`explode` makes rows of several people out of one",
    ),
    "the unit is unpivoted after groups": (
        lambda v, _: v.group_by("p", "small").len().unpivot(["p"], index="len", value_name="q").rename({"q": "p"}),
        "`unpivot` makes rows of several people out of one",
    ),
    "the unit is unnested after groups": (
        lambda v, _: v.group_by("p", "ward").len().select(pl.struct(p="len")).unnest("p"),
        f"`group_by` {COMBINES}",
    ),
    "the unit is another column of a window": (
        lambda v, _: v.select(p="small", n=pl.len().over("p")),
        f"`over` {COMBINES}",
    ),
    "a key that is computed": (lambda v, _: v.group_by(pl.col("p") + 0).len(), f"`group_by` {COMBINES}"),
    "a further key that is computed": (lambda v, _: v.group_by("p", cents + 1).len(), f"`group_by` {EXACT}"),
    "a key of floats": (lambda v, _: v.group_by("p", "cost").len(), f"`group_by` {EXACT}"),
    "a key of lists": (lambda v, _: v.group_by("p", "codes").len(), f"`group_by` {EXACT}"),
    "a Categorical": (
        lambda v, _: v.with_columns(ward.cast(pl.Categorical)).group_by("p", "ward").len(),
        f"`group_by` {EXACT}",
    ),
    "in time": (
        lambda v, _: v.sort("day").group_by_dynamic("day", every="1d", group_by="p").agg(pl.len()),
        "`group_by` takes windows of time",
    ),
    "rolling": (
        lambda v, _: v.sort("day").rolling("day", period="1d", group_by="p").agg(pl.len()),
        "`group_by` takes windows of time",
    ),
    "Python": (lambda v, _: v.group_by("p").map_groups(lambda rows: rows, schema=None), "can't be inspected"),
    "head": (lambda v, _: v.group_by("p").head(1), "is not taken of a person's rows here|" + ONE),
    "lists": (lambda v, _: v.group_by("p").agg(cents), "is not taken of a person's rows here|" + ONE),
    "having": (lambda v, _: v.group_by("p").having(pl.len() > 1).agg(cents.sum()), ONE),
    "a step around": (lambda v, _: v.group_by("p").agg(cents.sum() + 1), ONE),
    "a step within": (lambda v, _: v.group_by("p").agg((cents + 1).sum()), ONE),
    "a constant": (lambda v, _: v.group_by("p").agg(x=pl.lit(1)), ONE),
    "first": (lambda v, _: v.group_by("p").agg(cents.first()), "`first` is not taken of a person's rows here"),
    "sorted": (lambda v, _: v.group_by("p").agg(cents.sort_by("day").last()), "`last` is not taken of"),
    "mean": (lambda v, _: v.group_by("p").agg(cents.mean()), "`mean` is not taken of a person's rows here"),
    "a quantile": (lambda v, _: v.group_by("p").agg(cents.quantile(0.5)), "`quantile` is not taken of"),
    "a sum of floats": (lambda v, _: v.group_by("p").agg(pl.col("cost").sum()), "`sum` rounds floats by the order"),
    "a sum of small integers": (lambda v, _: v.group_by("p").agg(pl.col("small").sum()), "`sum` adds Int64 alone"),
    "a sum of booleans": (lambda v, _: v.group_by("p").agg(pl.col("ok").sum()), "`sum` adds Int64 alone here"),
    "a sum of Decimals": (
        lambda v, _: v.with_columns(pl.col("small").cast(pl.Decimal(9, 0))).group_by("p").agg(pl.col("small").sum()),
        "`sum` raises where the digits don't suffice",
    ),
    **{
        f"{name} of floats": (
            lambda v, _, name=name: v.group_by("p").agg(getattr(pl.col("cost"), name)()),
            f"`{name}` takes integers of at most 64 bits",
        )
        for name in ("max", "min", "n_unique", "median")
    },
    "NaN": (lambda v, _: v.group_by("p").agg(pl.col("cost").nan_max()), "`max` gives NaN to some people"),
    "a window without the unit": (lambda v, _: v.filter(cents == cents.max().over("ward")), f"`over` {COMBINES}"),
    "a window by what is computed": (lambda v, _: v.select("p", cents.max().over(pl.col("p") + 0)), f"`over` {EXACT}"),
    "a window in an order": (
        lambda v, _: v.with_columns(cents.cum_sum().over("p", order_by="day")),
        "`over` takes no order and no mapping here",
    ),
    "a window with a mapping": (
        lambda v, _: v.with_columns(cents.max().over("p", mapping_strategy="join")),
        "`over` takes no order and no mapping here",
    ),
    "a window of rows": (lambda v, _: v.with_columns(cents.shift(1).over("p")), "`shift` is not taken of"),
    "rank": (lambda v, _: v.with_columns(cents.rank("min").over("p")), "`rank` is not taken of"),
    "a window within a window": (lambda v, _: v.with_columns((cents - cents.min().over("p")).max().over("p")), ONE),
    "rolling expressions": (
        lambda v, _: v.sort("day").with_columns(cents.sum().rolling("day", period="2d")),
        "rolling. combines several rows|a step that Polars does not show",
    ),
    "a division by a window": (
        lambda v, _: v.with_columns(pl.col("cost") / cents.max().over("p")),
        "`/` rounds a row's last bit differently",
    ),
    "a division in a step after": (
        lambda v, _: v.with_columns(n=pl.len().over("p")).with_columns(pl.col("cost") / pl.col("n")),
        "`/` rounds a row's last bit differently",
    ),
    "a division after groups": (
        lambda v, _: v.group_by("p").agg(cents.sum(), pl.len()).with_columns(cents / pl.col("len")),
        "`/` rounds a row's last bit differently",
    ),
    "a division of durations": (
        lambda v, _: v.with_columns((day - day.min().over("p")) / pl.len().over("p")),
        "`/` rounds a row's last bit differently|needs Polars 2",
    ),
    "a join by other columns": (lambda v, w: v.join(w, on="ward"), f"`join` {TOGETHER}"),
    "the unit on one side": (
        lambda v, w: v.join(w, left_on="p", right_on="cents").select(p="id"),
        f"`join` {TOGETHER}",
    ),
    "a unit from the right": (
        lambda v, w: v.join(w.rename({"id": "q"}), left_on="p", right_on="cents").select(p="q"),
        f"`join` {TOGETHER}",
    ),
    "a changed unit below the right side": (
        lambda v, w: v.join(w.group_by("id").agg(pl.len()).select(p=pl.col("id") // 2), on="p"),
        f"`group_by` {COMBINES}",
    ),
    "a changed unit after a join": (
        lambda v, w: v.join(with_p(w), on="p").with_columns(pl.col("p") // 2),
        f"`join` {TOGETHER}",
    ),
    **{
        f"a {how} join": (
            lambda v, w, how=how: v.join(with_p(w), on="p", how=how, coalesce=True),
            '`join` is "inner", "left", "semi" or "anti" here',
        )
        for how in ("full", "right")
    },
    "a cross join": (lambda v, w: v.join(w, how="cross"), f"`join` {TOGETHER}"),
    "an inequality": (lambda v, w: v.join_where(w, pl.col("p") >= pl.col("id")), f"`join` {TOGETHER}|does not show"),
    "asof": (
        lambda v, w: v.sort("cents").join_asof(with_p(w).sort("cents"), on="cents", by="p"),
        f"`join` {TOGETHER}|does not show",
    ),
    "null equals null": (lambda v, w: v.join(with_p(w), on="p", nulls_equal=True), "`join` lets null equal nothing"),
    "a join by what is computed": (
        lambda v, w: v.join(with_p(w), left_on=["p", cents + 1], right_on=["p", "cents"]),
        f"`join` {EXACT}",
    ),
    "a join of floats": (lambda v, w: v.join(with_p(w), on=["p", "cost"]), f"`join` {EXACT}"),
    "a join of two types": (
        lambda v, w: v.join(with_p(w), left_on=["p", "small"], right_on=["p", "cents"]),
        f"`join` {EXACT}",
    ),
    "a unit of floats": (
        lambda v, _: v.with_columns(pl.col("p").cast(pl.Float64)).group_by("p").len(),
        f"`group_by` {EXACT}",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name):
    plan, words = REFUSED[name]
    with pytest.raises(ValueError, match=rf"^protect: .*({words})[^\0]*\n\nHint: "):
        plan(VISITS.lazy(), PEOPLE.lazy()).dp.protect("p")


def test_values_of_several_columns_that_become_the_unit_are_refused():
    plan = VISITS.lazy().group_by("p").agg(n=cents.sum()).unpivot(["p", "n"], value_name="p")
    with pytest.raises(
        (ValueError, pl.exceptions.DuplicateError),
        match=r"`group_by` combines|`unpivot` makes rows of several people|duplicate column name",
    ):
        plan.dp.protect("p")


@pytest.mark.parametrize("name", ACCEPTED)
def test_without_a_unit_nothing_is_taken(name):
    with pytest.raises(ValueError, match=r"^protect: (`(group_by|over|join|explode|unpivot)`|a concat) "):
        ACCEPTED[name](VISITS.lazy(), PEOPLE.lazy()).dp.protect(None)


@pytest.mark.parametrize("validate", ["1:1", "1:m", "m:1"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_that_checks_its_keys_is_refused(tmp_path, how, validate):
    """No node shows it, wherever the rows are and whatever stands above it."""
    VISITS.write_parquet(tmp_path / "v.parquet")
    PEOPLE.write_ipc(tmp_path / "w.arrow")
    scans = pl.scan_parquet(tmp_path / "v.parquet"), pl.scan_ipc(tmp_path / "w.arrow")
    arrow = pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(tmp_path / "v.parquet")), PEOPLE.lazy()
    for v, w in ((VISITS.lazy(), PEOPLE.lazy()), scans, arrow):

        def joined(left, right, **options):
            return left.join(right, left_on="p", right_on="id", how=how, **options)

        checked = joined(v, w, validate=validate)
        for plan in (
            checked,
            checked.filter(cents > TOP - 1).group_by("p").len(),
            joined(checked.filter(cents < -TOP), w, suffix="_again"),
            joined(v, joined(v, w, validate=validate).select(id="p"), suffix="_again"),
            pl.concat([joined(v, w), checked]),
        ):
            with pytest.raises(ValueError, match=r"^protect: `join` raises on some values.*\n\nHint: leave `validate`"):
                plan.dp.protect("p")
        joined(v, w, validate="m:m").dp.protect("p")


def test_a_join_that_is_not_found_counts_as_one_that_raises():
    plan = VISITS.lazy().join(PEOPLE.lazy(), left_on="p", right_on="id")
    assert not raises_on_twins(plan, 0)
    assert raises_on_twins(plan, 1)


def test_no_row_is_read(tmp_path):
    file = tmp_path / "v.parquet"
    VISITS.select("p", "cents").write_parquet(file, compression="uncompressed")
    data = bytearray(file.read_bytes())
    data[4:150] = bytes(146)  # the pages; the footer stays
    file.write_bytes(data)
    rows = pl.scan_parquet(file)
    with pytest.raises((pl.exceptions.PolarsError, pl.exceptions.PanicException)):
        rows.collect()
    rows.join(rows, on="p").group_by("p").agg(cents.sum()).filter(cents == cents.max().over("p")).dp.protect("p")


def test_the_names_of_columns_fool_nobody():
    names = ["self", "exprs", "of 0", "0", "p", "1"]
    rows = pl.DataFrame({name: [1, 1, 2] for name in names}).lazy()
    plan = rows.group_by("p", "0", "self", "of 0").agg(pl.col("1").sum(), pl.col("exprs").max())
    plan = plan.join(rows, on=["p", "self"])
    refuse_unsafe_plan(plan, ("p",))
    for name in ("of 0", "0_right"):
        with pytest.raises(ValueError, match=r"`(group_by|join)` "):
            refuse_unsafe_plan(plan.drop("p").rename({name: "p"}), ("p",))


def test_what_a_trial_finds_is_refused(monkeypatch):
    """Also where no rule knows of it."""
    monkeypatch.setattr(plan_rules, "LATER", replace(plan_rules.LATER, where=lambda _: False))
    for plan in (
        VISITS.lazy().group_by("p").agg(cents.first()),
        VISITS.lazy().with_columns(cents.first().over("ward", "p")),
    ):
        with pytest.raises(ValueError, match="gives a person another result alone than among others"):
            plan.dp.protect("p")


@pytest.mark.parametrize("of", ["memory", "parquet", "ipc", "arrow"])
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_answers_are_those_of_plain_polars(tmp_path, of, engine):
    def source(frame, name):
        file = tmp_path / name
        if of == "ipc":
            frame.write_ipc(file)
            return pl.scan_ipc(file)
        frame.write_parquet(file)
        arrow = pyarrow.dataset.dataset(file)
        return {"memory": frame.lazy(), "parquet": pl.scan_parquet(file), "arrow": pl.scan_pyarrow_dataset(arrow)}[of]

    visits = pl.DataFrame({"patient": [i // 3 for i in range(600)], "cents": [i % 7 for i in range(600)]})
    patients = pl.DataFrame({"patient": range(0, 300, 2), "plan": ["a", "b", "c"] * 50})
    left, right = source(visits, "v"), source(patients, "p")
    plan = left.group_by("patient").agg(pl.col("cents").sum(), visits=pl.len()).join(right, on="patient")
    query = (
        plan.dp.protect("patient", max_rows=1)
        .group_by({"plan": ["a", "b", "c"]})
        .agg(dpp.n_people(epsilon=1000).alias("n"), pl.col("cents").dp.sum(0, 30, epsilon=10_000).alias("cents"))
    )
    plain = plan.group_by("plan").agg(n=pl.len().cast(pl.Int64), cents=pl.col("cents").sum()).sort("plan").collect()
    assert query.release(engine=engine).sort("plan").equals(plain)
    assert dpp.protect("patient", max_rows=1).agg(dpp.n_people(epsilon=1000)).release(plan).item() == 100
