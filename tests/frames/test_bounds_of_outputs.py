"""Bounds of one output: they override those of `protect` one by one, wherever a bound shows."""

import json
import pickle
from itertools import product

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars.analysis import simulate
from tests.registry import ASKS, LOSS, NUMBERS, OF_NO_COLUMN, OWN_BOUNDS

X = pl.col("x")
ROWS = pl.DataFrame(
    {"p": [i // 6 for i in range(60)], "g": [i % 3 for i in range(60)], "x": [i % 4 for i in range(60)]}
)
KEYS = {"g": [0, 1, 2]}
EVERY = {
    **{
        name: lambda name=name, ask=ask, **more: getattr(X.dp, name)(
            *ask.arguments, **{"epsilon": 1} | ask.options | more
        )
        for name, ask in {**ASKS, **NUMBERS}.items()
        if ask.counts
    },
    **{name: getattr(dpp, name) for name in OF_NO_COLUMN},
    "share": lambda **more: dpp.share(X > 1, **more),
    "mode of rows": lambda **more: X.dp.mode([1, 2], counts="rows", **more),
    "several quantiles": lambda **more: X.dp.quantile([0.25, 0.5], [1, 2], **more),
    "totals": lambda **more: X.dp.sum(0, 3, per_person=(0, 5), **more),
}


def own_bounds(*values):
    return {name: value for name, value in zip(OWN_BOUNDS, values, strict=True) if value != "protect"}


def specs_of(query):
    work = query.request.bind(PolarsEngine(ROWS.lazy(), ROWS.lazy))
    return [(spec.limits, spec.people) for spec in work.specs]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_an_output_is_as_if_protect_had_its_bounds(name):
    """Its claim, and what is enforced: whatever is left out is that of `protect`, None is no bound."""
    tried = 0
    for values in product(("protect", None, 1, 4), ("protect", None, 2), ("protect", None, 1, 3)):
        own, of_protect = own_bounds(*values), {"max_rows": 3, "max_groups": 1, "max_rows_per_group": 2}
        if name == "totals" and isinstance(own.get("max_rows_per_group"), int):
            continue
        theirs = {bound: value for bound, value in {**of_protect, **own}.items() if value is not None}
        try:
            expected = dpp.protect("p", **theirs).group_by(KEYS).agg(a=EVERY[name](epsilon=1))
        except ValueError:
            with pytest.raises(ValueError, match="the rows of one person must be bounded"):
                dpp.protect("p", **of_protect).group_by(KEYS).agg(a=EVERY[name](epsilon=1, **own))
            continue
        found = dpp.protect("p", **of_protect).group_by(KEYS).agg(a=EVERY[name](epsilon=1, **own))
        assert found.asks[0].query == expected.asks[0].query
        assert specs_of(found) == specs_of(expected)
        for query in (found, expected):
            (bounds,) = query.explain()["bounds"]
            shown = {} if bounds is None else dict(each.split("=") for each in bounds.split(", "))
            matter = [
                bound for bound in theirs if bound != "max_rows_per_group" or not query.asks[0].query.bounds_people
            ]
            assert shown == {bound: str(theirs[bound]) for bound in matter}
            columns = query.request.claim_for_json()["columns"]
            assert columns["a"]["bounds"] == {bound: theirs[bound] for bound in matter}
            assert json.loads(json.dumps(columns)) == columns
        tried += 1
    assert tried > 10


def test_outputs_of_one_query_have_bounds_of_their_own():
    private = ROWS.dp.protect("p", max_rows_per_group=2)
    query = private.group_by(KEYS).agg(
        a=dpp.len(epsilon=1e4), b=dpp.len(epsilon=1e4, max_rows_per_group=1), c=dpp.n_people(epsilon=1e4, max_groups=1)
    )
    assert query.release()["a"].to_list() == [20] * 3
    assert query.release()["b"].to_list() == [10] * 3
    assert query.release()["c"].sum() == 10
    assert query.explain()["bounds"].to_list() == ["max_rows_per_group=2", "max_rows_per_group=1", "max_groups=1"]
    assert "\n  a: number of rows, " in repr(query)
    assert "\n  b: number of rows (max_rows_per_group=1), " in repr(query)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bounds", [{"max_rows": 2}, {"max_groups": None}, {"max_rows_per_group": None}])
def test_bounds_are_refused_where_nobody_knows_who_is_a_person(name, bounds):
    """Where Polars resolves the schema: the rows behind it can't be read."""

    def unread(_):
        raise AssertionError

    expr = EVERY[name](epsilon=1, **bounds)
    message = "private frame" if name in ("n_people", "totals") else f"{next(iter(bounds))} must be left out here"
    unreadable = ROWS.lazy().map_batches(unread, schema=ROWS.schema)
    for frame in (
        unreadable.select(expr),
        unreadable.select(a=expr),
        unreadable.group_by("g").agg(expr.name.suffix("_a") if name not in OF_NO_COLUMN else expr.alias("a")),
        unreadable.with_columns(expr.over("g").alias("a")),
        unreadable.select(pickle.loads(pickle.dumps(expr))),
        unreadable.select(expr.alias("b").name.to_uppercase()),
    ):
        with pytest.raises(pl.exceptions.ComputeError, match=message):
            frame.collect_schema()
        with pytest.raises(pl.exceptions.ComputeError, match=message):
            frame.collect()


@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"n_people", "totals"}))
def test_without_a_privacy_unit_bounds_are_refused(name):
    asked = EVERY[name](epsilon=1, max_rows=2)
    words = r"(?s)^Output 'a': max_rows must be left out where privacy_unit is None.*Hint"
    with pytest.raises(ValueError, match=words):
        ROWS.dp.protect(None).agg(a=asked)
    with pytest.raises(TypeError, match="max_rows must be left out here"):
        simulate(asked, ROWS)


def test_bounds_travel_with_the_expression_and_not_with_its_question():
    plain, own = dpp.count("x", epsilon=1), dpp.count("x", epsilon=1, max_rows=None, max_groups=2)
    assert plain.query == own.query
    assert str(plain.bounds) == ""
    pickled = pickle.loads(pickle.dumps(own))
    for expr in (own, own.alias("b"), own.name.keep(), own.name.prefix("b"), own.over("g"), pickled):
        assert expr.bounds == own.bounds
        assert expr.bounds.given == {"max_rows": None, "max_groups": 2}
    assert repr(own).endswith("\nbounds:    max_rows=None, max_groups=2>")
    assert own._repr_html_().endswith("\nbounds:    max_rows=None, max_groups=2</pre>")
    assert "bounds" not in repr(plain)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bound", OWN_BOUNDS)
def test_bounds_are_whole_numbers_of_at_least_1_or_none(name, bound):
    words = rf"(?s)^{bound} must be .*Hint: {bound}=None is no such bound; left out, it is"
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.0, TypeError), (True, TypeError), ("all", TypeError)):
        with pytest.raises(error, match=words):
            EVERY[name](epsilon=1, **{bound: wrong})


PRIVATE = ROWS.dp.protect("p", max_groups=1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: X.dp.argmax(epsilon=1, sensitivity=1, max_rows=1),
        lambda: X.dp.argmin(epsilon=1, sensitivity=1, max_rows=1),
        lambda: PRIVATE.keys("g", epsilon=1, delta=1e-3, max_groups=1),
        lambda: PRIVATE.rows_per_person(0.5, [1], epsilon=1, max_rows=1),
        lambda: PRIVATE.groups_per_person(KEYS, 0.5, [1], epsilon=1, max_groups=1),
    ],
)
def test_what_takes_no_bounds(ask):
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_"):
        ask()
    people, keys = PRIVATE.rows_per_person(0.5, [1, 2], epsilon=1), PRIVATE.keys("g", epsilon=1, delta=1e-3)
    assert people.explain()["bounds"].to_list() == [None]
    assert people.request.claim_for_json()["columns"]["rows_per_person"]["bounds"] == {}
    assert keys.request.claim_for_json()["columns"]["keys"]["bounds"] == {}


def test_the_charge_and_its_text_are_those_of_the_output():
    budget = dpp.Budget(rho=9)
    private = ROWS.dp.protect("p", max_rows=8, budget=budget)
    query = private.group_by(KEYS).agg(a=dpp.len(epsilon=1), b=dpp.len(epsilon=1, max_rows_per_group=1))
    query.release()
    eight, one = (ask.query.claim for ask in query.asks)
    assert (eight.contributions.total, one.contributions.total) == (8, 3)
    assert eight.cost("rho") != one.cost("rho")
    assert budget.spent == eight.cost("rho") + one.cost("rho")
    assert budget.log()["what"].to_list() == ["a: number of rows", "b: number of rows (max_rows_per_group=1)"]
    with pytest.raises(ValueError, match="must be bounded for a number of rows"):
        private.agg(a=dpp.len(epsilon=1, max_rows=None))
    assert budget.log().height == 2


def test_a_simulation_drops_what_the_output_drops():
    private = dpp.protect("p", max_rows_per_group=2).group_by(KEYS)
    found = simulate(private.agg(a=dpp.len(epsilon=9), b=dpp.len(epsilon=9, max_rows_per_group=1)), ROWS)
    assert found.group_by("output", maintain_order=True).agg("counted", "left_out").rows() == [
        ("a", [20] * 3, [0] * 3),
        ("b", [10] * 3, [10] * 3),
    ]


def test_a_released_file_and_the_words_of_a_figure_say_the_bounds_of_outputs(tmp_path):
    query = ROWS.dp.protect("p", max_rows=2).agg(
        a=dpp.len(epsilon=1), b=dpp.len(epsilon=1, max_rows=5, max_groups=None)
    )
    query.sink_parquet(tmp_path / "out.parquet")
    columns = dpp.read_claim(tmp_path / "out.parquet")["columns"]
    assert {name: column["bounds"] for name, column in columns.items()} == {"a": {"max_rows": 2}, "b": {"max_rows": 5}}
    assert query.request.promise == "one person per 'p', add_or_remove_one, max_rows=2 · b: max_rows=5, max_groups=None"


@pytest.mark.parametrize("name", [name for name, ask in NUMBERS.items()])
def test_defaults_leave_bounds_to_protect(name):
    assert NUMBERS[name].keywords.items() >= {**OWN_BOUNDS, **LOSS}.items()
