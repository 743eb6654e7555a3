"""`max_norm`: a limit on the norm of a person's numbers of rows per group, for numbers alone."""

import math

import polars as pl
import pytest

import dp_polars as dpp

# One person has eight rows in one group and four in another; five have a row in one of them.
ROWS = pl.DataFrame(
    [(0, "a", 5)] * 8 + [(0, "b", 5)] * 4 + [(p, "a", 1) for p in range(1, 6)],
    {"p": pl.Int64, "g": pl.String, "x": pl.Int64},
    orient="row",
)
KEYS = {"g": ["a", "b", "c"]}
LOSSES = {"epsilon": {"epsilon": 10**9}, "rho": {"rho": 10**12}}
# Unit and limits -> how many of the eight rows, and of the four, count.
COUNTED = {
    ("epsilon", None, 6): (4, 2),
    ("rho", None, 6): (8 * 6 / math.sqrt(80), 4 * 6 / math.sqrt(80)),
    ("epsilon", 4, 6): (3, 3),
    ("rho", 4, 6): (4, 4),  # the norm of (4, 4) is below 6
    ("rho", 4, 2): (2 / math.sqrt(2), 2 / math.sqrt(2)),
    ("epsilon", None, 12): (8, 4),
    ("rho", None, 9): (8, 4),
}


@pytest.mark.parametrize(("unit", "cap", "norm"), COUNTED)
def test_people_beyond_the_norm_count_in_part_and_all_others_in_full(unit, cap, norm):
    loss, (first, second) = LOSSES[unit], COUNTED[unit, cap, norm]
    private = ROWS.dp.protect("p", max_rows_per_group=cap, max_norm=norm)
    for frame in (private, ROWS.dp.protect("p", max_rows=1).with_limits(max_rows_per_group=cap, max_norm=norm)):
        query = frame.group_by(KEYS).agg(
            rows=dpp.len(**loss),
            values=dpp.count("x", **loss),
            sum=dpp.sum("x", 0, 9, **loss),
            mean=dpp.mean("x", 0, 9, **loss),
        )
        found = query.release()
        assert found["rows"].to_list() == found["values"].to_list() == [round(5 + first), round(second), 0]
        assert found["sum"].to_list() == [math.floor(5 + 5 * first + 0.5), math.floor(5 * second + 0.5), 0]
        expected = [(5 + 5 * first) / (5 + first), 5]
        assert found["mean"].head(2).to_list() == pytest.approx(expected, abs=1e-4)
        lost = 12 - first - second
        cut = query.n_rows_dropped(20, **LOSSES["epsilon"]).release().item()
        assert abs(cut - lost) <= 0.5 + 1e-4


@pytest.mark.parametrize(("unit", "counted"), [("epsilon", 10), ("rho", 14)])
def test_people_have_one_row_in_each_of_their_groups(unit, counted):
    """Twenty people in two groups, with three rows in each: with epsilon the norm is 2, with rho the root of 2."""
    rows = pl.DataFrame({"p": [*range(20)] * 6, "g": (["a"] * 20 + ["b"] * 20) * 3})
    private = rows.dp.protect("p", max_norm=1, max_rows_per_group=2)
    found = private.group_by(KEYS).agg(people=dpp.n_people(**LOSSES[unit])).release()
    assert found["people"].to_list() == [counted, counted, 0]


@pytest.mark.parametrize("unit", LOSSES)
def test_it_is_charged_as_that_many_rows(unit):
    loss = {unit: 1}
    numbers = [dpp.len(**loss), dpp.sum("x", -3, 9, **loss), dpp.mean("x", 0, 9, **loss)]
    for number in numbers:
        for grouped in (lambda frame: frame, lambda frame: frame.group_by(KEYS)):
            (ask,), (other,) = (
                grouped(dpp.protect("p", **{limit: 3})).agg(number.alias("o"))._asks
                for limit in ("max_norm", "max_rows")
            )
            assert ask.query.claim == other.query.claim
    # As if all were in one group, for the unit may change; but a person is in no more than three.
    people = [dpp.protect("p", max_norm=norm).group_by(KEYS).agg(dpp.n_people(**loss))._asks[0] for norm in (1, 2, 9)]
    contributions = [ask.query.claim.contributions for ask in people]
    assert [(each.total, each.squares) for each in contributions] == [(1, 1), (2, 4), (3, 3)]


def test_what_is_said_of_it(tmp_path):
    private = ROWS.dp.protect("p", max_rows_per_group=4, max_norm=6)
    assert repr(private).count("max_norm=6") == 1
    query = private.group_by(KEYS).agg(rows=dpp.len(epsilon=1), squared=dpp.len(rho=1), people=dpp.n_people(epsilon=1))
    assert "max_norm=6" in repr(query)
    explained = query.explain()
    both = "max_rows_per_group=4, max_norm=6"
    assert explained["limits"].to_list() == [both, both, "max_norm=6"]
    notes = explained["note"]
    assert all(note.startswith(f"Counts people beyond {both} in part, which makes it too low.") for note in notes[:2])
    assert notes[2].startswith("No row is dropped.")  # of three groups
    statement = " ".join(query.statement().to_html().split())
    most = "Each person counts at most as much as 4 rows in each group, a norm of 6."
    assert f"rows, squared: {most}" in statement
    assert "people: Each person counts with at most a norm of 6." in statement
    weights = "A person with more counts in part. Rows of that person get weights below 1, so that "
    assert f"rows: {weights}the sum of what counts in each group is at most that." in statement
    assert (
        f"squared: {weights}the root of the sum of squares of what counts in each group is at most that." in statement
    )
    assert "at random" not in statement
    page = dpp.report(query.release(), query, tmp_path / "page.html").read_text()
    assert f"<li>rows, squared: {most} A person with more counts in part.</li>" in page
    query.sink_parquet(tmp_path / "rows.parquet")
    claim = dpp.read_claim(tmp_path / "rows.parquet")
    assert claim["protection"].endswith(both)
    assert claim["statement"].facts["releases"][0]["limits"] == {"max_rows_per_group": "4", "max_norm": "6"}


def test_choices_and_cubes_have_the_other_limits_alone():
    bare, limited = dpp.protect("p", max_norm=3), dpp.protect("p", max_norm=3, max_rows=2, max_groups=1)
    mode = dpp.mode("x", [1, 5], epsilon=1)
    (ask,), (other,) = (frame.group_by(KEYS).agg(mode)._asks for frame in (bare, dpp.protect("p")))
    assert ask.query == other.query
    for choice in (dpp.median("x", range(9), epsilon=1), dpp.mode("x", [1, 5], counts="rows", epsilon=1)):
        with pytest.raises(
            ValueError, match=r"the rows of one person must be bounded for [\s\S]*Hint: give protect or"
        ):
            bare.agg(choice)
        query, without = limited.agg(choice), dpp.protect("p", max_rows=2, max_groups=1).agg(choice)
        assert query._asks == without._asks
        assert query.explain()["limits"].item() == "max_rows=2, max_groups=1"
        assert query.explain()["note"].item().startswith("Drops rows beyond max_rows=2 of a person")
    with pytest.raises(ValueError, match=r"keys: max_groups must be given[\s\S]*Hint: protect\("):
        bare.keys("g", epsilon=1, delta=1e-6)
    with pytest.raises(ValueError, match="the rows of one person must be bounded for this output, number of rows"):
        bare.cube(KEYS, counts="rows", epsilon=1)
    with pytest.raises(ValueError, match="max_groups=1"):
        dpp.protect("p", max_norm=1).cube(KEYS, epsilon=1)
    cube, without = (
        frame.cube(KEYS, counts="rows", epsilon=1) for frame in (limited, limited.with_limits(max_norm=None))
    )
    assert cube._asks == without._asks
    assert repr(cube) == repr(without)
