"""What a query says of itself before a row is read: the columns of `explain`, their print, the notes, the cost."""

import math
import pickle
import re
from fractions import Fraction
from itertools import product

import polars as pl
import pytest

import dp_polars as dpp
from tests.registry import ASKS, NUMBERS, OF_FRAMES

FIRST = ["output", "selects", "error_95", "error_unit"]
LAST = ["groups", "epsilon", "rho", "note"]
COLUMNS = [
    *FIRST,
    *("mechanism", "candidates", "neighboring_relation", "privacy_unit", "limits", "score_range", "rate", "delta"),
    *LAST,
]
KEYS = {"g": range(36)}
X = pl.col("x")
ASKED = dpp.n_people(epsilon=1)
NOTHING = "No row is dropped. The error is that of the noise alone."


def every_kind(**loss):
    frame = dpp.protect("p", max_rows=2, max_groups=3)
    others = {"argmax", "argmin", *(["first_above"] if "rho" in loss else [])}
    known = {name: one for name, one in (ASKS | NUMBERS).items() if name not in others}
    answers = [getattr(X.dp, name)(*one.arguments, **one.options, **loss) for name, one in known.items()]
    queries = [frame.group_by(KEYS).agg(one) for one in (*answers, dpp.len(**loss), dpp.n_people(**loss))]
    for made in OF_FRAMES.values():
        queries += made(frame, {"g": [1, 2]}, "k", loss)
    return queries


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 1}])
def test_all_queries_have_the_same_columns(loss):
    queries = [*every_kind(**loss), dpp.protect(None).agg(dpp.mode("x", epsilon=1))]
    explained = [query.explain() for query in queries]
    assert all(one.schema == explained[0].schema for one in explained)
    assert explained[0].columns == COLUMNS
    assert pl.Null not in explained[0].dtypes
    assert explained[0].schema["error_95"] == pl.Float64
    assert explained[0].schema["note"] == pl.String
    assert pl.concat(explained).height == sum(len(query._asks) for query in queries)
    assert pl.concat(explained)["note"].null_count() == 0


def headers(text):
    """Return the names of the columns in the print of a frame, which wraps them where they are long."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("┌")) + 1
    end = next(number for number, line in enumerate(lines) if line.startswith("╞"))
    cells = [[cell.strip() for cell in line.strip("│").split("┆")] for line in lines[begin:end]]
    return ["".join(parts).partition("---")[0] for parts in zip(*cells, strict=True)]


@pytest.mark.parametrize("by", ["config", "environment"])
def test_what_matters_is_in_sight_at_80_characters(by, monkeypatch):
    budget = dpp.Budget(epsilon=20, delta=2e-3)
    rows = pl.DataFrame({"p": range(40), "g": [1, 2] * 20, "x": [3] * 40, "k": ["a"] * 40})
    frame = rows.dp.protect("p", max_groups=1, max_rows_per_group=1, budget=budget)
    query = frame.group_by({"g": [1, 2]}).agg(dpp.n_people(epsilon=1), X.dp.mean(0, 9, epsilon=1))
    query.release()
    frame.keys("k", epsilon=1, delta=1e-4).release()
    with pl.Config(restore_defaults=True):
        if by == "environment":
            monkeypatch.setenv("POLARS_TABLE_WIDTH", "80")
        else:
            pl.Config.set_tbl_width_chars(80)
        for one in (query, frame.keys("k", epsilon=1, delta=1e-4)):
            text = str(pl.DataFrame(one.explain()))
            assert max(map(len, text.splitlines())) <= 80
            assert headers(text) == [*FIRST, "…", *LAST]
        assert headers(str(budget.log())) == [
            *("when", "what", "loss", "running_total", "…", "unit", "mechanism", "delta", "running_delta")
        ]
        # Of a text, Polars prints the first 30 characters.
        pl.Config.set_tbl_width_chars(400)
        explained = frame.group_by({"g": [1, 2]}).agg(ASKED).explain()
        assert "┆ Counts people beyond max_group… │" in str(pl.DataFrame(explained))


def test_explain_printed_alone_shows_what_matters_and_all_notes():
    frame = dpp.protect("p", max_groups=1, max_rows_per_group=1).group_by({"g": [1, 2]})
    query = frame.agg(
        n=dpp.len(epsilon=0.5), top=pl.col("k").dp.mode(["<b>", "b"], rho=0.1), m=dpp.mean("x", 0, 9, epsilon=0.25)
    )
    explained = query.explain()
    assert isinstance(explained, pl.DataFrame)
    assert explained.columns == COLUMNS
    head, rule, *rows = (text := str(explained)).split("\n\n")[0].splitlines()
    assert head.split() == ["output", "selects", "mechanism", "error_95", "epsilon"]
    assert {*head.split()} <= {*COLUMNS}
    assert set(rule) == {"─", " "}
    assert [row.split()[0] for row in rows] == ["n", "top", "m"]
    assert "number of rows" in rows[0]
    assert "discrete_laplace  ±6.5 rows" in rows[0]  # the bound of the noise, 5.99, and a half for rounding
    assert rows[0].endswith(" 0.5")
    assert rows[1].endswith(" 0.8995")  # what rho=0.1 is worth: the loss in epsilon, where there is one
    assert "see below" in rows[2]
    # Every sentence once, behind the names of the outputs that it is about.
    of_all, *paragraphs = [" ".join(one.split()) for one in text.split("\n\n")[1:-1]]
    assert of_all == f"The release costs {costs(query)}."
    told = [(name, one.partition(": ")[2]) for one in paragraphs for name in one.partition(": ")[0].split(", ")]
    for output, note in explained.select("output", "note").rows():
        said = " ".join([*(part for name, part in told if name == output), *[of_all] * (output == "n")])
        assert sorted(re.split(r"(?<=\.) (?=[A-Z])", note)) == sorted(re.split(r"(?<=\.) (?=[A-Z])", said))
    assert sum("The error is that of the noise alone." in one for one in paragraphs) == 1
    assert any(one.startswith("n, top, m: ") for one in paragraphs)
    assert max(map(len, text.splitlines())) <= 80
    assert repr(explained) == text
    assert explained._repr_html_().startswith("<pre>output")
    # What is made of it, and what it is a part of, is as of any frame.
    for made in (explained.select("output", "note"), explained.drop("loss", strict=False).select("note")):
        assert str(made).startswith("shape: ")
    assert "shape: " in str(explained.head(1).drop("note"))
    assert pickle.loads(pickle.dumps(explained)).equals(explained)
    assert pl.concat([explained, explained]).height == 6
    unasked = str(dpp.protect(None).agg(dpp.len()).explain())
    assert "none yet" in unasked
    of_many = str(dpp.publication(one=query, two=query).explain())
    assert re.search(r"\none +n  ", of_many)
    assert "\none: top; two: top: " in of_many
    keys = str(dpp.protect("p", max_groups=1).keys("k", epsilon=1, delta=1e-6).explain())
    assert keys.splitlines()[0].endswith("epsilon  delta")
    assert keys.splitlines()[2].endswith("1        0.000001")


def printed_losses(*outputs):
    head, _, *rows = str(dpp.protect("p", max_rows=1).agg(*outputs).explain()).split("\n\n")[0].splitlines()
    return [head.split()[-1], *(" ".join(row.split()[-2:]) if row.endswith("yet") else row.split()[-1] for row in rows)]


def test_printed_losses_are_in_the_unit_of_the_release():
    rows, mean, mode = dpp.len(epsilon=0.5), dpp.mean("x", 0, 9, rho=0.1), dpp.mode("k", [1, 2], rho=0.05)
    assert printed_losses(rows, mode) == ["epsilon", "0.5", "0.6343"]  # x − 1 − ln x = 0.05, of x = ε/(1 − exp(−ε))
    assert printed_losses(rows, mean, mode) == ["rho", "0.1225", "0.1", "0.05"]  # 0.5·tanh(0.25)
    assert printed_losses(mode, dpp.top_k("l", 2, [1, 2, 3], rho=0.2)) == ["rho", "0.05", "0.2"]
    # The cost of a release is open while one of its losses is.
    assert printed_losses(mean, dpp.len()) == ["rho", "0.1", "none yet"]
    assert printed_losses(dpp.len()) == ["epsilon", "none yet"]


def test_the_log_is_the_same_with_and_without_a_delta():
    budgets = [dpp.Budget(epsilon=1), dpp.Budget(rho=1, delta=1e-6)]
    for budget in budgets:
        dpp.protect(None, budget=budget).agg(dpp.len(epsilon=Fraction(1, 10))).release(pl.DataFrame({"x": [1]}))
    one, other = (budget.log() for budget in budgets)
    assert one.schema == other.schema == dpp.Budget(epsilon=1).log().schema
    assert pl.concat([one, other])["delta"].to_list() == [0, 0]
    assert one["exact_loss"].to_list() == ["1/10"]


def note(asked, **bounds):
    (row,) = dpp.protect("p", **bounds).group_by(KEYS).agg(asked).explain().to_dicts()
    return row["note"]


def test_a_note_says_what_matters_in_its_first_32_characters():
    """Polars prints 30 of them, and an ellipsis."""
    loss, flip = {"epsilon": 1}, {"epsilon": 1, "mechanism": "permute_and_flip"}
    totals = dpp.sum("x", 0, 1, per_person=(0, 2), **loss)
    notes = {
        "Noise grows with all 36 groups: ": note(dpp.n_people(**loss)),
        "Counts people beyond max_groups=": note(dpp.n_people(**loss), max_groups=3),
        "Counts people beyond max_rows=2 ": note(dpp.len(**loss), max_rows=2),
        "Counts people beyond max_norm=2 ": note(dpp.len(**loss), max_norm=2),
        "Drops rows beyond max_groups=3 o": note(X.dp.mode([1, 2], **loss), max_groups=3),
        "Drops rows beyond max_rows=2 of ": note(X.dp.median(range(9), **loss), max_rows=2),
        "Better: value_counts, sorted. On": note(X.dp.top_k(6, range(8), **flip), max_rows_per_group=1, max_groups=36),
        "Rounds, for k < 5: on evenly spr": note(X.dp.top_k(3, range(8), **loss), max_groups=36),
        "One joint draw, for k >= 5: on e": note(X.dp.top_k(6, range(8), **loss), max_groups=36),
        "Clips a person's total to 0 … 2.": note(totals, max_groups=36),
        "No row is dropped. The error is ": note(dpp.n_people(**loss), max_groups=36),
        "1,000 rows: ±0.00369; 100: ±0.03": note(X.dp.mean(0, 1, step=1, epsilon=9), max_rows=9),
        "error_95 is for 500 rows or more": note(X.dp.mean(0, 1, within=0.1, rows=500, step=1), max_rows=9),
    }
    assert [said[:32] for said in notes.values()] == list(notes)
    # And `max_groups` makes the error smaller, as the first note says.
    frames = (dpp.protect("p"), dpp.protect("p", max_groups=3))
    errors = [frame.group_by(KEYS).agg(ASKED).explain()["error_95"].item() for frame in frames]
    assert errors == [108, pytest.approx(3 * math.log(20) + 0.5, abs=0.001)]


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_where_noise_grows_with_the_groups_a_note_says_so(unit, relation):
    loss = {unit: 1}
    asked = {
        "n": dpp.n_people(**loss),
        "rows": dpp.len(**loss),
        "mode": X.dp.mode([1, 2], **loss),
        "mean": X.dp.mean(0, 9, **loss),
    }
    names = ("max_rows", "max_groups", "max_rows_per_group")
    for values in product((None, 1, 40, 72, 100), (None, 3, 40), (1, 2)):
        bounds = dict(zip(names, values, strict=True))
        frame = dpp.protect("p", neighboring_relation=relation, **bounds)
        here, more = (frame.group_by({"g": range(groups)}).agg(**asked) for groups in (36, 37))
        for said, one, other in zip(here.explain()["note"], here._asks, more._asks, strict=True):
            grows = other.query.claim.rate < one.query.claim.rate
            expected = grows and bounds["max_groups"] is None
            assert ("Noise grows with all 36 groups: give max_groups." in said) == expected, (bounds, one.name)
    said = dpp.protect("p").agg(dpp.n_people(**loss)).explain()["note"].item()
    assert "grows" not in said  # one group
    said = dpp.protect(None).group_by(KEYS).agg(dpp.len(**loss)).explain()["note"].item()
    assert "grows" not in said  # one row each
    cut = dpp.protect("p", max_rows=1).group_by(KEYS).agg(dpp.len(**loss)).n_rows_dropped(1, **loss)
    assert "grows" not in cut.explain()["note"][0]


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 0.5}])
def test_the_error_of_a_mean_is_told_for_two_sizes_of_a_group(loss):
    asked = X.dp.mean(0, 300, step=1, **loss)
    for frame in (dpp.protect("p", max_rows=2), pl.DataFrame({"p": [1], "x": [2]}).dp.protect("p", max_rows=2)):
        query = frame.agg(asked)
        (row,) = query.explain().to_dicts()
        many, some = re.match(r"1,000 rows: ±([^;]*); 100: ±(\d\S*)\. Counts people", row["note"]).groups()
        for said, rows in ((many, 1000), (some, 100)):
            error = query._asks[0].query.error_among(rows, 0.05, pl.Int64())
            assert error <= float(said) < error * 1.01
        assert row["error_95"] is None
        assert "rows: ±" not in frame.agg(dpp.len(**loss)).explain()["note"].item()


def costs(query):
    (line,) = [line for line in repr(query).splitlines() if line.startswith("  costs: ")]
    return line.removeprefix("  costs: ").removesuffix(">")


def test_the_first_note_and_the_repr_say_what_the_whole_release_costs():
    query = dpp.protect(None).agg(a=dpp.len(epsilon=1), b=X.dp.mode([1, 2], epsilon=1))
    assert costs(query) == "epsilon=2 (rho=0.829997; ε = 2 at δ = 10⁻⁶)"
    first, second = query.explain()["note"]
    assert first == f"{NOTHING} The release costs {costs(query)}."
    assert second == NOTHING
    budget = dpp.Budget(rho=1)
    dpp.protect(None, budget=budget).agg(a=dpp.len(epsilon=1), b=X.dp.mode([1, 2], epsilon=1)).release(
        pl.DataFrame({"x": [1]})
    )
    assert 0.829996 < budget.spent <= Fraction("0.829997")
    gaussian = dpp.protect(None).agg(a=dpp.len(rho=0.5), b=X.dp.mode([1, 2], epsilon=0.1))
    spent = dpp.Budget(rho=gaussian.loss.value).epsilon_at(1e-6).total
    assert costs(gaussian) == f"rho=0.504838 (ε = {math.ceil(spent * 1000) / 1000:.4g} at δ = 10⁻⁶)"
    keys = dpp.protect("p", max_groups=1).keys("k", epsilon=1, delta=1e-6)
    assert costs(keys) == "epsilon=1, delta=0.000001 (rho=0.462118; ε = 1 at δ = 10⁻⁶)"
    assert costs(dpp.protect("p", max_groups=1).keys("k", rho=1, delta=1e-6)) == "rho=1, delta=0.000001"
    far_below_all_use = dpp.protect(None).agg(X.dp.mode([1, 2], rho=Fraction(1, 10**400)))
    assert costs(far_below_all_use) == "rho=1e-400 (epsilon=2.82843e-200; ε = 0 at δ = 10⁻⁶)"


def test_a_note_names_the_unit_in_which_the_whole_is_cheaper():
    """Many choices add up to less in rho: the figures are those of a budget."""
    asked = {f"x{i}": X.dp.mode([1, 2], epsilon=0.1, mechanism="exponential") for i in range(100)}
    many = dpp.protect(None).agg(**asked)
    assert costs(many) == "epsilon=10 (rho=0.124983; ε = 10 at δ = 10⁻⁶)"
    first, *others = many.explain()["note"]
    assert first.endswith("It costs less in rho: a budget in rho charges rho=0.124983, which is ε = 2.419 at δ = 10⁻⁶.")
    assert not any("costs less" in other for other in others)
    in_rho = sum(one.query.claim.cost("rho") for one in many._asks)
    assert 2.418 < dpp.Budget(rho=in_rho).epsilon_at(1e-6).total <= 2.419
    one = dpp.protect(None).agg(X.dp.mode([1, 2], rho=0.1))
    less = "It costs less in epsilon: a budget in epsilon charges epsilon=0.899405, which is ε = 0.8995 at δ = 10⁻⁶."
    assert one.explain()["note"].item().endswith(less)


def test_a_unit_that_is_cheaper_by_less_than_a_tenth_is_not_named():
    shares = set()
    for number in range(4, 14):
        loss = {"epsilon": Fraction(1, 4), "mechanism": "exponential"}
        query = dpp.protect(None).agg(**{f"x{i}": X.dp.mode([1, 2], **loss) for i in range(number)})
        in_rho = dpp.Budget(rho=sum(one.query.claim.cost("rho") for one in query._asks))
        share = in_rho.epsilon_at(1e-6).total / dpp.Budget(epsilon=query.loss.value).epsilon_at(1e-6).total
        shares.add(share)
        assert ("costs less in rho" in query.explain()["note"][0]) == (share <= 0.9)
    assert min(shares) < 0.9 < max(share for share in shares if share < 1)
    for query in (dpp.protect(None).agg(dpp.len(rho=1)), dpp.protect(None).agg(dpp.len(epsilon=1))):
        assert "costs less" not in query.explain()["note"].item()


@pytest.mark.filterwarnings("ignore::dp_polars.LargeLossWarning")
@pytest.mark.parametrize("loss", [{"rho": 10**400}, {"rho": 10**299}, {"epsilon": 10**290}])
def test_losses_beyond_all_use_have_a_cost_in_words(loss):
    query = dpp.protect("p", max_rows=1).agg(dpp.len(**loss))
    assert costs(query).startswith(f"{next(iter(loss))}=1e+" if loss != {"rho": 10**400} else "rho=1.00000e+400")
    assert query.explain()["note"].item().startswith("Counts people beyond max_rows=1 in part")
