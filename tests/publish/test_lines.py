"""Statement, `explain` and released intervals agree for every output of every query; bounds that clip."""

import datetime as dt
import html
import re
from fractions import Fraction
from functools import cache

import polars as pl
import pytest
import yaml

import dp_polars as dpp
from dp_polars._accounting.guarantees import Guarantee
from dp_polars._base.numbers import cost_up, loss_up
from dp_polars._bins.binning import NearestBinning
from dp_polars._release.contract import names_of_ends
from dp_polars._release.request import _cell
from dp_polars._statistics.measures import Multiple
from dp_polars._statistics.shared_sums import draws_shared, first_draw
from dp_polars._statistics.statement_facts import guaranteed
from tests.helpers.needs import need
from tests.registry import ASKS, NOISE, NUMBERS, OF_CONDITIONS, OF_FRAMES, OF_NO_COLUMN, STATISTICS, WEIGHT, Statistic

PEOPLE = 3000
ROWS = pl.DataFrame(
    {
        "p": range(PEOPLE),
        "g": [1, 2] * (PEOPLE // 2),
        "x": [0, 1, 2, 3, 4, 5] * (PEOPLE // 6),
        "y": [3, 1, 4] * (PEOPLE // 3),
        WEIGHT: [1, 2, 5] * (PEOPLE // 3),
        "k": ["a", "b", "c"] * (PEOPLE // 3),
    }
)
X = pl.col("x")
KEYS = {"g": [1, 2]}
UNITS = ["epsilon", "rho"]
# Each output another loss, so that no number is right in another's place.
LOSSES = [Fraction(1, 2) + Fraction(n, 10) for n in range(60)]


def private(**limits):
    return ROWS.dp.protect("p", **({"max_groups": 2, "max_rows": 3} | limits))


def of_registry(unit):
    """One query with every way to ask, each with a loss of its own."""
    outputs, losses = {}, iter(LOSSES)
    for name, ask in {**ASKS, **NUMBERS}.items():
        if ask.counts and name not in OF_CONDITIONS and not (unit == "rho" and name == "first_above"):
            outputs[name] = getattr(X.dp, name)(*ask.arguments, **ask.options, **{unit: next(losses)})
    for name in OF_NO_COLUMN:
        outputs[name] = getattr(dpp, name)(**{unit: next(losses)})
    for name in OF_CONDITIONS:
        outputs[name] = getattr(dpp, name)(X > 2, **{unit: next(losses)})
    return outputs


def statistics(unit):
    losses = iter(LOSSES)
    asked = {name: one for name, one in STATISTICS.items() if not (unit == "rho" and one.is_pure)}
    return {name: one.ask(**{unit: next(losses)}) for name, one in asked.items()}


def more_outputs(unit):
    losses = iter(LOSSES)
    return {
        "five": X.dp.quantile([0.1, 0.25, 0.5], range(9), **{unit: next(losses)}),
        "rounds": pl.col("k").dp.top_k(2, ["a", "b", "c"], **{unit: next(losses)}),
        "joint": X.dp.top_k(5, range(6), **{unit: next(losses)}),
        "interval": X.dp.median(range(9), confidence=0.9, **{unit: next(losses)}),
        "some": X.filter(pl.col("k") == "a").dp.sum(0, 4, **{unit: next(losses)}),
        "mean": X.dp.mean(0, 5, within=0.5, rows=1000),
        "var": X.dp.var(0, 5, within=Fraction(1, 2), rows=1000),
        "within": dpp.len(within=7),
    }


@cache
def queries(unit):
    """Every kind of query but cubes with tables."""
    grouped, loss = private().group_by(KEYS), {unit: 1}
    in_floats = ROWS.cast({WEIGHT: pl.Float64}).dp.protect("p", max_groups=2, max_rows=3)  # of steps of 3/2
    found = {
        "registry": grouped.agg(**of_registry(unit)),
        "one group": private().agg(**of_registry(unit)),
        "statistics": in_floats.group_by(KEYS).agg(**statistics(unit)),
        "every row a person": ROWS.dp.protect(None).agg(dpp.len(**loss), X.dp.mean(0, 3, **loss).alias("mean")),
        "replacement": private(neighboring_relation="replace_one").agg(a=dpp.len(**loss), b=X.dp.sum(0, 3, **loss)),
        "more": grouped.agg(**more_outputs(unit)),
        "several columns": grouped.agg(pl.col("x", "y").dp.mean(0, 4, **loss), pl.col(WEIGHT, "y").dp.count(**loss)
                                       .name.suffix("_n")),
        "open": grouped.agg(dpp.len(), b=X.dp.sum(0, 4, loss_weight=3), c=X.dp.median(range(9)), d=dpp.n_people(**loss))
        .scaled_to(**{unit: 3}),
        "guaranteed": grouped.agg(dpp.len(), b=X.dp.sum(0, 4, loss_weight=3), c=X.dp.median(range(9)))
        .scaled_to(epsilon=1, delta=1e-6),
    }  # fmt: skip
    for name, made in OF_FRAMES.items():
        frame = private(max_groups=1)
        found |= {f"{name} {n}": one for n, one in enumerate(made(frame, KEYS, "k", loss))}
    return found


def lines_of(statement):
    """The outputs of a statement as readers see them: in Markdown and in the registry's record."""
    text = statement.to_markdown()
    table = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    (head,) = [place for place, row in enumerate(table) if row[:2] == ["output", "statistic"]]
    rows = []
    for row in table[head + 2 :]:
        if len(row) != len(table[head]):
            break
        rows.append(dict(zip(table[head], row, strict=True)))
    record = yaml.safe_load(statement.to_yaml())["deployment"]["implementation"]["mechanisms"]
    return rows, [line for line in record.splitlines() if line.startswith("- output: ")]


def agree(query, explained=None, facts=None):
    """Check that `explain`, the claims and the statement say the same of each output; return the rows by name."""
    statement = query.statement(publication_date="2026-11-28")
    rows = (query.explain() if explained is None else explained).rows(named=True)
    facts = statement.facts["releases"][0]["outputs"] if facts is None else facts
    asks = {ask.name: ask.query for ask in query._asks}
    assert len(asks) == len(query._asks)
    assert [row["output"] for row in rows] == [one["name"] for one in facts]
    assert len({row["output"] for row in rows}) == len(rows) >= len(asks)
    for row, one in zip(rows, facts, strict=True):
        assert one["error_95"] == row["error_95"]
        assert (one["error_unit"], one["limits"]) == (row["error_unit"], row["limits"])
        assert (one["mechanism"], one["selects"].startswith(row["selects"])) == (row["mechanism"], True)
        assert row["note"].startswith(one["note"])
        assert one["clipping"] is None or one["clipping"] in row["note"]
        if row["output"] not in asks:  # it follows from others
            assert (row["mechanism"], row["rate"], row["rho"], one["loss"], one["draws"]) == (None, None, 0, None, 0)
            continue
        claim = asks[row["output"]].claim
        drawn, shared = first_draw(asks[row["output"]]), draws_shared(asks[row["output"]])
        assert (one["rate"], row["rate"]) == (float(drawn.rate),) * 2
        assert (one["score_range"], row["score_range"]) == (str(drawn.score_range), float(drawn.score_range))
        assert (one["mechanism"], one["draws"]) == (claim.mechanism, len(shared) or claim._draws)
        loss = one["loss"]
        assert (Fraction(loss["exact"]), loss["unit"]) == (claim.loss.value, claim.loss.unit)
        assert row[loss["unit"]] == loss_up(claim.loss.value)
    losses = [Fraction(one["loss"]["exact"]) for one in facts if one["draws"]]
    assert query.loss.value == sum(losses) or len({one["loss"]["unit"] for one in facts if one["draws"]}) == 2
    if facts is statement.facts["releases"][0]["outputs"] or len(statement.facts["releases"]) == 1:
        shown, record = lines_of(statement)
        assert len(shown) == len(record) == len(rows)
        for row, line, text in zip(rows, shown, record, strict=True):
            assert text.startswith(f"- output: {row['output']}; statistic: {row['selects']}")
            cells = {cell: _cell(row, cell) for cell in ("error_95", "epsilon", "rho", "delta")}  # as `explain` prints
            error = "see the note"
            if row["error_95"] is not None:
                error = f"at most {cells['error_95'].removeprefix('±').partition(' ')[0]} ("
            assert error in line["error"]
            assert error in text
            assert (row["mechanism"] or "none") in (line["mechanism"], text)
            assert f"mechanism: {row['mechanism'] or 'none'};" in text
            rate = "not drawn"
            if row["rate"] is not None:
                claim = asks[row["output"]].claim
                shown_rate = float(re.match(r"rate ([\d.e+-]+), ", line["rate"])[1])
                drawn = first_draw(asks[row["output"]])
                assert drawn.rate <= Fraction(str(shown_rate)) <= drawn.rate * Fraction("1.001")
                rate = line["rate"]
                delta = f", delta = {cells['delta']}" * bool(row["delta"])
                assert line["loss"] == f"{claim.loss.unit} = {cost_up(claim.loss.value)}{delta}"
                assert cells[claim.loss.unit] in ("", cost_up(claim.loss.value))
            assert line["rate"].startswith(rate)
    return {row["output"]: row for row in rows}


def half_width(released, name):
    low, high = (released[end] for end in names_of_ends(name))
    if isinstance(low.dtype, pl.List):  # of value counts
        low, high = (one.explode().struct.field("count") for one in (low, high))
    return [(b - a) / 2 for a, b in zip(low.cast(pl.Float64), high.cast(pl.Float64), strict=True)]


def has_the_errors_of(released, query, rows):
    """Check that released intervals are as wide as errors are large; return the outputs that were compared."""
    found = []
    for ask in query._asks:
        if not ask.query.has_intervals:
            continue
        widths = half_width(released, ask.name)
        if ask.query.error_needs_rows:
            if ask.within is None:
                continue
            # Of groups with a half more rows; a range is that of its own answer, an error that of the worst one.
            assert all(0.05 < width / rows[ask.name]["error_95"] < 1.2 for width in widths), ask.name
        elif ask.query.in_parts:
            # The error includes that the answer is the nearest whole number; ends are the next ones outside.
            step = float(ask.query.answer_step(released[ask.name].dtype)) if isinstance(ask.query, Multiple) else 1
            error, in_steps = rows[ask.name]["error_95"] / step, [width / step for width in widths]
            assert all(error - 0.5 <= width < error + 0.5 for width in in_steps), ask.name
            assert all(abs(2 * width - round(2 * width)) < 1e-6 for width in in_steps), ask.name
        else:
            assert widths == pytest.approx([rows[ask.name]["error_95"]] * len(widths), rel=1e-12), ask.name
        found.append(ask.name)
    return found


@pytest.mark.parametrize(("unit", "name"), [(unit, name) for unit in UNITS for name in queries(unit)])
def test_statement_explain_and_ranges_agree(unit, name):
    query = queries(unit)[name]
    rows = agree(query)
    if not name.startswith(("cube", "keys")):
        with_noise = [ask for ask in query._asks if ask.query.claim.mechanism in NOISE]
        known = [ask.name for ask in with_noise if ask.within is not None or not ask.query.error_needs_rows]
        assert has_the_errors_of(query.release(intervals=True), query, rows) == known


@pytest.mark.parametrize(("unit", "name"), [(unit, name) for unit in UNITS for name in queries(unit)])
def test_explain_statement_and_report_give_the_same_loss(unit, name, tmp_path, monkeypatch):
    """To the last digit that is shown, and never below what is true."""
    monkeypatch.setattr("dp_polars._publish.report.find_spec", lambda _: None)  # without figures, which take long
    query = queries(unit)[name]
    released = query.release()
    page = dpp.report(released, query, tmp_path / "page.html", name="x").read_text("utf-8").replace("\xa0", " ")
    (said,) = re.findall(r"is a guarantee: differential privacy with (.*?)\.</p>", page)
    facts = query.statement().facts
    assert said in (facts["guarantee"], guaranteed(facts["loss"]))
    shown = re.search(r"[ερ] = ([\d.]+)", said)[1]
    assert "δ = " in said or not query.delta
    note = query.explain()["note"][0]
    if query.loss.unit == "epsilon":
        assert query.loss.value <= Fraction(shown) <= query.loss.value * Fraction("1.001")
        assert Fraction(re.search(r"The release costs epsilon=([\d./]+)", note)[1]) <= Fraction(shown)
    elif facts["guarantee"] is None and not query.delta:
        assert re.search(r"ε = ([\d.]+) at δ = 10⁻⁶", note)[1] == shown
    loss = re.search(r"One person loses (\w+) = ([\d.]+)", html.unescape(page))
    assert (loss[1], loss[2]) == (query.loss.unit, cost_up(query.loss.value))
    assert Fraction(loss[2]) >= query.loss.value


# --- Cubes ---

DIMENSIONS = {"g": [1, 2], "x": range(6), "k": ["a", "b", "c"]}
CUBES = {
    "small before large": {"tables": [("g",), ("g", "x", "k")]},
    "large before small": {"tables": [("g", "x", "k"), ("k",), ()]},
    "not drawn": {"tables": [("g",), ("g", "x"), ("k",)], "weights": [1, 10**6, 1]},
    "crossed": {"tables": [("x", "k"), ("g", "k"), ("g", "x")], "weights": [1, 5, 2]},
    "none": {"tables": None},
}
PERSONS = {
    "people": ({"max_groups": 1}, "people"),
    "rows": ({"max_groups": 2, "max_rows_per_group": 3}, "rows"),
    "every row": (None, "people"),
}
LOSSES_OF_CUBES = {"rho": {"rho": Fraction(1, 50)}, "guarantee": {"epsilon": 1, "delta": 1e-6}}


def by_of(name):
    return [] if name == "count of all" else name.removeprefix("count by ").split(", ")


@pytest.mark.parametrize("loss", LOSSES_OF_CUBES)
@pytest.mark.parametrize("person", PERSONS)
@pytest.mark.parametrize("name", CUBES)
def test_statement_explain_and_ranges_of_cubes_agree(name, person, loss):
    limits, counts = PERSONS[person]
    frame = ROWS.dp.protect(None) if limits is None else ROWS.dp.protect("p", **limits)
    query = frame.cube(DIMENSIONS, counts=counts, **CUBES[name], **LOSSES_OF_CUBES[loss])
    rows, cube, wanted = agree(query), query.release(), CUBES[name]["tables"]
    if wanted is None:
        (row,), counts = rows.values(), cube.counts(by=[*DIMENSIONS])
        assert {*(counts["count_high"] - counts["count_low"])} == {2 * row["error_95"]}
        return
    named = {frozenset(by_of(one)): row for one, row in rows.items()}
    assert {frozenset(one) for one in wanted} <= named.keys()
    assert [*rows][: len(wanted)] == [row["output"] for row in (named[frozenset(one)] for one in wanted)]
    for by, row in named.items():  # also of what is drawn for others
        counts = (
            cube.counts(by=[*by])
            if by
            else pl.DataFrame([cube.count()], ["count", "count_low", "count_high"], orient="row")
        )
        for width in half_width(counts, "count"):
            assert row["error_95"] <= width + 1e-9 <= row["error_95"] + 2**-15
        assert row["groups"] == counts.height
    assert len({row["error_95"] for row in rows.values()}) == len(rows)  # a mix-up is seen
    assert (None in {row["mechanism"] for row in rows.values()}) == (name == "not drawn")


def test_tables_have_a_line_each_whatever_dimensions_are_called(tmp_path):
    rows = ROWS.rename({"g": "a, b", "x": "a", "y": "b"})
    query = rows.dp.protect("p", max_groups=1).cube(
        {"a, b": [1, 2], "a": range(6), "b": [1, 3, 4]}, tables=[("a", "b"), ("a, b",), ("a, b", "a", "b")], rho=1
    )
    found = agree(query)
    assert "count by 'a, b'" in found
    assert "count by 'a', 'b'" in found
    cube = query.release()
    assert cube.claim["columns"].keys() == {ask.name for ask in query._asks}
    page = html.unescape(dpp.report(cube, query, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.count("<h2>count by 'a', 'b'</h2>") == page.count("<h2>count by 'a, b'</h2>") == 1


def test_the_ledger_has_the_lines_of_the_query():
    budget = dpp.Budget(rho=1, name="lines")
    frame = ROWS.dp.protect("p", max_groups=1, budget=budget)
    cube = frame.cube(DIMENSIONS, **CUBES["not drawn"], rho=0.1)
    asked = frame.group_by(KEYS).agg(n=dpp.n_people(rho=0.2), m=X.dp.mode(range(6), rho=0.1))
    cube.release()
    asked.release()
    statement = dpp.statement(budget, [cube, asked], publication_date="2026-11-28")
    for query, release in zip((cube, asked), statement.facts["releases"], strict=True):
        agree(query, facts=release["outputs"])
        assert release["outputs"] == query.statement().facts["releases"][0]["outputs"]
    drawn = [one["what"].partition(":")[0] for one in statement.facts["ledger"]["entries"]]
    assert drawn == [ask.name for ask in (*cube._asks, *asked._asks)]


def test_publications_have_the_lines_of_their_queries():
    grouped = private().group_by(KEYS)
    outputs = {"n": dpp.len(), "b": X.dp.sum(0, 4, loss_weight=3), "c": X.dp.median(range(9))}
    whole = dpp.publication(
        one=grouped.agg(**outputs), two=private().agg(c=X.dp.mode(range(6)), n=dpp.n_people(), b=dpp.count("x"))
    ).scaled_to(epsilon=1, delta=1e-6)
    released, explained, statement = whole.release(intervals=True), whole.explain(), whole.statement()
    for facts in statement.facts["releases"]:
        query = whole.queries[facts["name"]]
        of_query = explained.filter(pl.col("query") == facts["name"]).drop("query")
        rows = agree(query, of_query, facts["outputs"])
        assert {*has_the_errors_of(released[facts["name"]], query, rows)} >= {"n"}
    shown, _ = lines_of(whole.statement(publication_date="2026-11-28"))
    names = [f"{row['query']}: {row['output']}" for row in explained.rows(named=True)]
    assert [line["output"] for line in shown] == names


@pytest.mark.parametrize("of_publication", [False, True])
def test_the_error_in_the_other_unit_is_that_of_the_same_output(of_publication):
    grouped = private().group_by(KEYS)
    outputs = {"a": dpp.len(), "b": X.dp.sum(0, 400, loss_weight=3), "c": X.dp.median(range(900)), "d": dpp.n_people()}
    query = grouped.agg(**outputs)
    query = dpp.publication(one=query, two=private().agg(**outputs)) if of_publication else query
    guarantee = Guarantee.of(Fraction(1), Fraction(1, 10**6), Fraction(0))
    taken = query.scaled_to(epsilon=1, delta=1e-6).explain().rows(named=True)
    other = "rho" if taken[0]["mechanism"] == "discrete_laplace" else "epsilon"
    value = guarantee.rho if other == "rho" else 1
    for row, there in zip(taken, query.scaled_to(**{other: value}).explain().rows(named=True), strict=True):
        (said,) = re.findall(rf"In {other} error_95 would be ([\d,.]+\d)\.", row["note"])
        assert there["error_95"] <= float(said.replace(",", "")) <= there["error_95"] * 1.01 + 1
        assert (row["output"], row.get("query")) == (there["output"], there.get("query"))


# --- Clipping ---

THIRD = Fraction(1, 3)
DAYS = [dt.date(2026, 1, 1) + dt.timedelta(days=n) for n in range(9)]
BY_WEIGHT = dpp.weights(WEIGHT, max_weight=4)
CLIPPED = {
    "sum": (lambda **loss: X.dp.sum(-2, 1_234_567, **loss), ("-2", "1,234,567")),
    "mean": (lambda **loss: X.dp.mean(0, 20, **loss), ("0", "20")),
    "thirds": (lambda **loss: X.dp.mean(THIRD, 7 * THIRD, step=THIRD, **loss), ("1/3", "7/3")),
    "var": (lambda **loss: X.dp.var(0, 20, **loss), ("0", "20")),
    "std": (lambda **loss: X.dp.std(-1, 20.5, step=0.5, **loss), ("-1", "20.5")),
    "per person": (lambda **loss: X.dp.sum(0, 20, per_person=(3, 12), **loss), ("0", "20", "3 … 12")),
    "median": (lambda **loss: X.dp.median(range(11), **loss), ("0", "10")),
    "interval": (lambda **loss: X.dp.median([9, 1, 4], confidence=0.9, **loss), ("1", "9")),
    "list": (lambda **loss: X.dp.quantile([0.25, 0.5], dpp.grid(-1, 3, step=0.5), **loss), ("-1", "3")),
    "dates": (lambda **loss: pl.col("day").dp.median(DAYS, **loss), ("2026-01-01", "2026-01-09")),
    "weights": (lambda **loss: X.dp.mode([1, 2], counts=BY_WEIGHT, **loss), ("0", "4", "0 … 4")),
    "top by weights": (lambda **loss: X.dp.top_k(2, [1, 2, 3], counts=BY_WEIGHT, **loss), ("0", "4")),
    "first above": (lambda **loss: X.dp.first_above(dpp.grid(0, 30, step=2), threshold=5, **loss), ("0", "30")),
    "share": (lambda **loss: dpp.share(X > 2, **loss), ("0", "1")),
}  # fmt: skip


@pytest.mark.parametrize("name", CLIPPED)
def test_clipping_bounds_are_named_wherever_an_answer_is_described(name, tmp_path):
    ask, bounds = CLIPPED[name]
    rows = ROWS.with_columns(day=pl.lit(DAYS[0]))
    query = rows.dp.protect("p", max_groups=1, max_rows_per_group=1).group_by(KEYS).agg(
        dpp.n_people(epsilon=1), out=ask(epsilon=1)
    )  # fmt: skip
    released = query.release(intervals=True)
    path = dpp.report(released, query, tmp_path / "page.html", name="Clipped")
    page = html.unescape(path.read_text(encoding="utf-8"))
    page, statement = page.split('<section class="dp-statement">')
    note, plain = query.explain()["note"][1], ask(epsilon=1).statement().to_markdown()
    texts = [note, statement, *re.findall("<li>out: (.*?)</li>", page)]
    assert len(texts) > 2
    said = re.findall(r"(?:Values|Weights) below (.*?) count as \1, and \w+ above (.*?) as \2,", " ".join(texts[2:]))
    said += [("0", "1")] * ("True counts as 1 and false as 0, which are the clipping bounds" in texts[-1])
    assert said == [bounds[:2]]
    for text in (note, statement, page, *([] if "per_person" in plain else [plain])):
        assert query._asks[1].query.clipping in text.replace("\\", "")
    for total in bounds[2:]:
        assert f"in a group is clipped to {total}: what is beyond counts as the bound." in page
        assert total in note
        assert f"in a group is clipped to {total}" in statement
    assert ("Values are clipped" in page) == (name != "share")
    assert "exact number" not in page
    assert "It does not cover what is left out or clipped" in page
    assert "clipping bounds" not in query.explain()["note"][0]


def test_figures_and_ranges_say_of_what_the_number_is(tmp_path):
    need("altair")
    limited = ROWS.dp.protect("p", max_groups=1, max_rows_per_group=1).group_by(KEYS)
    free = ROWS.dp.protect(None).group_by(KEYS)
    mean, count = {"m": X.dp.mean(0, 2, epsilon=1)}, {"n": dpp.len(epsilon=1)}
    for query, said in (
        (limited.agg(**mean), ", of clipped values within the contribution limits,"),
        (limited.agg(**count), ", within the contribution limits,"),
        (free.agg(**mean), ", of clipped values,"),
        (free.agg(**count), ""),
    ):
        released = query.release(intervals=True)
        text = dpp.plot.answers(released, query).to_dict()["vconcat"][0]["title"]["text"]
        lies = f"The number without noise{said} lies in the interval with a probability of 95 %."
        assert lies in " ".join(text)
        assert ("Values below 0 count as 0, and values above 2 as 2" in " ".join(text)) == ("m" in released.columns)
        assert lies in dpp.report(released, query, tmp_path / "p.html").read_text("utf-8")


def test_outputs_with_the_same_bounds_say_them_once():
    names = ["x", "y", WEIGHT]
    query = private().group_by(KEYS).agg(pl.col(names).dp.mean(0, 2, epsilon=1), q=X.dp.median(range(9), epsilon=1))
    clipping = query._asks[0].query.clipping
    assert query.statement().to_markdown().count(clipping) == 1
    assert f"{', '.join(names)}: {clipping}" in query.statement().to_markdown()
    printed = " ".join(str(query.explain()).split())
    assert printed.count(clipping) == 1
    assert [note.count(clipping) for note in query.explain()["note"]] == [1, 1, 1, 0]


@pytest.mark.parametrize("name", STATISTICS)
def test_what_moves_values_has_clipping_bounds(name):
    """Whatever counts a value as another one, or weighs by one, names its bounds: by its rules of counting."""
    statistic: Statistic = STATISTICS[name]
    rows = ROWS.cast({WEIGHT: pl.Float64})
    query = rows.dp.protect("p", max_rows=1).agg(statistic.ask(epsilon=1).alias("out"))._asks[0].query
    types = (
        (pl.Boolean(),)
        if name == "share"
        else (pl.Int64(), *[pl.Float64()] * (not isinstance(statistic.options.get("counts", ""), str)))
    )
    rules = query.count_rules(*([] if statistic.way in OF_NO_COLUMN else types))
    moves = any(rule.row_weight is not None or isinstance(rule.binning, NearestBinning) for rule in rules)
    assert (query.clipping is not None) == moves
    assert query.clips_values == (moves and name != "share")
