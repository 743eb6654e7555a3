"""Plans of owned rows: groups and windows of all columns of their join, which are looked at when it is known."""

import itertools
from collections import Counter

import polars as pl
import pytest

import dp_polars as dpp

ORDERS = pl.DataFrame(
    {"p": [1, 1, 2, 2, 3, None], "order": [10, 11, 11, 12, 13, 14], "shop": ["a", "a", "a", "b", "b", "a"]}
)
ITEMS = pl.DataFrame(
    {
        "of": [10, 10, 11, 11, 12, 13, 14, None],
        "shop": ["a", "b", "a", "a", "b", "b", "a", "a"],
        "cents": [5, 6, 7, 8, 9, 1, 2, 3],
    }
)
cents = pl.col("cents")
# Plans, and the columns of the join: of the orders and of the items.
ONE, TWO = (["order"], ["of"]), (["order", "shop"], ["of", "shop"])
ACCEPTED = {
    "groups": (lambda items: items.group_by("of").agg(cents.sum(), pl.len()), ONE),
    "groups by more": (lambda items: items.group_by("shop", "of").agg(cents.max()), ONE),
    "a window": (lambda items: items.filter(cents == cents.min().over("of")), ONE),
    "renamed": (lambda items: items.group_by("of").agg(cents.sum()).rename({"of": "order"}), (["order"], ["order"])),
    "groups by two columns": (lambda items: items.group_by("shop", "of").agg(cents.max()), TWO),
    "windows of two columns": (lambda items: items.with_columns(n=pl.len().over("of", "shop")), TWO),
    "a join of owned rows": (lambda items: items.join(items.group_by("of").agg(n=pl.len()), on="of"), ONE),
    "row by row": (lambda items: items.filter(cents > 1).with_columns(pl.col("of") + 0), ONE),
}
REFUSED = {
    "groups of another column": (lambda items: items.group_by("shop").agg(of=pl.col("of").min()), ONE),
    "one column of two": (lambda items: items.group_by("of").agg(pl.col("shop").min()), TWO),
    "a window of one column of two": (lambda items: items.with_columns(n=pl.len().over("of")), TWO),
    "a window of another column": (lambda items: items.filter(cents == cents.max().over("shop")), ONE),
    "another column by its name": (lambda items: items.group_by("of").agg(cents.sum()).select(cents, of="cents"), ONE),
    "a join of other columns": (lambda items: items.join(items.select("shop"), on="shop"), ONE),
}


def orders(**options):
    return ORDERS.dp.protect("p", **options)


def joined_by(plan, on, rows=ORDERS, items=ITEMS):
    """The private frame, and its rows after the join."""
    left, right = on
    owned = plan(items.lazy())
    private = rows.dp.protect("p", max_rows=9).join(dpp.owned(owned), left_on=left, right_on=right, how="inner")
    proved = private._pipeline.proved(rows.schema, owned.collect_schema())
    return private, proved.rows(rows.lazy(), owned).drop_nulls("p").collect()


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_grouped_by_the_columns_of_the_join_is_taken(name):
    plan, on = ACCEPTED[name]
    private, found = joined_by(plan, on)
    plain = ORDERS.drop_nulls("p").lazy().join(plan(ITEMS.lazy()), left_on=on[0], right_on=on[1]).collect()
    assert Counter(found.rows()) == Counter(plain.rows())
    assert private.agg(dpp.len(epsilon=1000)).release().item() == plain.height
    # Without rows, the plan is looked at when they come.
    later = dpp.protect("p", max_rows=9).join(dpp.owned(), left_on=on[0], right_on=on[1], how="inner")
    assert later.agg(dpp.len(epsilon=1000)).release((ORDERS, plan(ITEMS.lazy()))).item() == plain.height


@pytest.mark.parametrize("name", ACCEPTED)
def test_with_a_person_go_the_items_that_nobody_else_names(name):
    """All others keep their rows, whoever is there; an item that others name stays with them."""
    plan, on = ACCEPTED[name]
    people = [1, 2, 3]

    def found(there):
        rows = ORDERS.filter(pl.col("p").is_in(there))
        items = ITEMS.join(rows, left_on=["of", "shop"][: len(on[0])], right_on=on[0], how="semi")
        _, frame = joined_by(plan, on, rows, items)
        return {person: Counter(frame.filter(p=person).rows()) for person in there}

    for number in (1, 2, 3):
        for there in itertools.combinations(people, number):
            everybody = found(there)
            for gone in there:
                left = [person for person in there if person != gone]
                assert found(left) == {person: everybody[person] for person in left}


@pytest.mark.parametrize("name", REFUSED)
def test_what_brings_rows_of_several_together_is_refused_at_the_join(name):
    plan, (left, right) = REFUSED[name]
    owned = dpp.owned(plan(ITEMS.lazy()))  # there may be a join that it is for
    budget = dpp.Budget(epsilon=5)
    with pytest.raises(ValueError, match=r"^join: `(group_by|over|join)` "):
        orders().join(owned, left_on=left, right_on=right)
    later = dpp.protect("p", budget=budget, max_rows=9).join(dpp.owned(), left_on=left, right_on=right)
    with pytest.raises(ValueError, match=r"^protect: `(group_by|over|join)` "):
        later.agg(dpp.len(epsilon=1)).release((ORDERS, plan(ITEMS.lazy())))
    assert budget.spent == 0


def test_each_join_looks_at_its_own_columns():
    items = dpp.owned(ITEMS.lazy().select("of", n=pl.len().over("of")))
    private = orders().join(items, left_on="order", right_on="of")
    with pytest.raises(ValueError, match=r"^join: `over` looks at rows of several people"):
        private.join(items, left_on="n", right_on="n")
    assert private.join(items, left_on="order", right_on="of").columns[-1] == "n_right"


def test_a_private_frame_on_the_right_is_looked_at_by_its_unit():
    rows = ORDERS.lazy().group_by("p").agg(n=pl.len())
    query = dpp.protect("p", max_rows=9).join(dpp.protect("p"), on="p", how="inner").agg(dpp.len(epsilon=1000))
    assert query.release((ORDERS, rows)).item() == 5
    with pytest.raises(ValueError, match=r"`group_by` combines rows of several people"):
        query.release((ORDERS, ORDERS.lazy().group_by("order").agg(pl.col("p").min())))
