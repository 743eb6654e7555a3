"""Private expressions: their class, their names, and that every answer is the right one."""

import inspect
import json
import math
import random
from decimal import Decimal
from fractions import Fraction
from functools import partial

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._expressions import expression as expressions
from tests.helpers.by_hand import nearest_code
from tests.registry import COLUMNS

X = pl.col("x")
# So much that every answer is the true one.
SURE = {"epsilon": 10**6}


def test_the_representation_is_the_claim():
    expr = X.dp.median(range(101), epsilon=0.5, contributions=2)
    lines = [
        "selects:   median on 101 grid points",
        "loss:      epsilon=0.5 in all (as rho: 0.106531)",
        "mechanism: permute_and_flip, rate 0.125 for R = 2 per row",
        "relation:  add_or_remove_one, rows of one person: 2",
    ]
    assert repr(expr) == str(expr) == f"{expr}" == "<PrivateExpr\n" + "\n".join(lines) + ">"
    assert expr._repr_html_() == "<pre>" + "\n".join(lines) + "</pre>"
    assert repr(expr.over("g").alias("y")) == repr(expr)


KEEPING = {
    "alias": (lambda e: e.alias("y"), "y"),
    "over": (lambda e: e.over("g"), "x"),
    "over more": (lambda e: e.over("g", "h", order_by="t", descending=True, nulls_last=True), "x"),
    "over in order": (lambda e: e.over(order_by="t"), "x"),
    "over, joined": (lambda e: e.over(["g"], mapping_strategy="join"), "x"),
    "all of them": (lambda e: e.name.prefix("a_").over("g").alias("z"), "z"),
    "name.keep": (lambda e: e.alias("y").name.keep(), "x"),
    "name.map": (lambda e: e.name.map(str.upper), "X"),
    "name.prefix": (lambda e: e.name.prefix("a_"), "a_x"),
    "name.suffix": (lambda e: e.name.suffix("_a"), "x_a"),
    "name.to_lowercase": (lambda e: e.name.to_lowercase(), "x"),
    "name.to_uppercase": (lambda e: e.name.to_uppercase(), "X"),
    "name.replace": (lambda e: e.name.replace("x", "y"), "y"),
    "name.replace literally": (lambda e: e.name.replace("x", "y", literal=True), "y"),
}


@pytest.mark.parametrize(("change", "name"), KEEPING.values(), ids=KEEPING)
@pytest.mark.parametrize("expr", [X.dp.median([1, 2], epsilon=1), X.dp.mode([1, 2], rho=1), X.dp.mode(epsilon=1)])
def test_naming_and_grouping_keep_the_class(expr, change, name):
    changed = change(expr)
    assert type(changed) is dpp.PrivateExpr
    assert changed.query is expr.query
    dtype = pl.Boolean if expr.query.fixed_type is None else pl.Int64
    frame = pl.DataFrame({"x": [1, 1], "g": [1, 1], "h": [1, 1], "t": [1, 2]}).cast({"x": dtype})
    assert frame.select(changed).columns == [name]


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_what_keeps_the_class_takes_what_polars_takes():
    for name in ("alias", "over"):
        assert parameters(getattr(dpp.PrivateExpr, name)) == parameters(getattr(pl.Expr, name))
    for name in ("keep", "map", "prefix", "suffix", "to_lowercase", "to_uppercase", "replace"):
        ours, theirs = getattr(expressions.PrivateName, name), getattr(type(X.name), name)
        assert [p[:2] for p in parameters(ours)] == [p[:2] for p in parameters(theirs)]


def test_every_way_of_polars_to_name_keeps_the_class():
    """Whatever Polars adds to its namespace must not lose the claim unnoticed."""
    ours, theirs = vars(expressions.PrivateName), vars(type(X.name))
    names = {name for name in theirs if not name.startswith("_")}
    of_fields = {"map_fields", "prefix_fields", "suffix_fields"}  # of structs, which no answer is
    by_replacing = {"strip_prefix", "strip_suffix"}  # Polars makes them of others
    assert names - of_fields - by_replacing <= set(ours)
    for name in names & by_replacing:
        assert type(getattr(X.dp.mode([1], epsilon=1).name, name)("x")) is dpp.PrivateExpr


PLAIN = {
    "arithmetic": lambda e: e + 1,
    "from the right": lambda e: 1 - e,
    "comparison": lambda e: e == 1,
    "cast": lambda e: e.cast(pl.Float64),
    "is_in": lambda e: e.is_in([1]),
    "fill_null": lambda e: e.fill_null(0),
    "struct": lambda e: pl.struct(e),
    "when": lambda e: pl.when(e > 1).then(e).otherwise(0),
    "implode": lambda e: e.implode(),
    "negation": lambda e: -e,
    "first": lambda e: e.first(),
    "clip": lambda e: e.clip(0, 1),
    "get": lambda e: X.get(e),
}


@pytest.mark.parametrize("change", PLAIN.values(), ids=PLAIN)
def test_post_processing_gives_a_plain_expression(change):
    changed = change(X.dp.median([0, 1], epsilon=1))
    assert type(changed) is pl.Expr
    assert not hasattr(changed, "query")
    assert pl.DataFrame({"x": [0, 1]}).select(changed).height >= 1


@pytest.mark.parametrize(
    "expr",
    [
        X.dp.median([1, 2], epsilon=1),
        (X + 1).dp.mode([1, 2], epsilon=1),
        X.dp.mode(epsilon=1),
        X.dp.argmax(sensitivity=1, epsilon=1),
    ],
)
def test_the_outermost_nodes_are_native(expr):
    """Engines may evaluate a bare UDF several times, and OpenDP aborts on one."""
    tree, path = json.loads(expr.meta.serialize(format="json")), []
    while not path or path[-1] not in ("First", "AnonymousFunction", "AnonymousAgg"):
        tree = tree[0] if isinstance(tree, list) else tree
        path.append("input" if "input" in tree else "expr" if "expr" in tree else next(iter(tree)))
        tree = tree[path[-1]]
    assert path[-2:] == ["Agg", "First"]
    assert "Cast" in path


NAMES = {
    "alias": (X.alias("y"), "y"),
    "filter": (X.filter(X), "x"),
    "prefix": (X.name.prefix("a_"), "a_x"),
    "map": (X.name.map(str.upper), "X"),
    "keep": (X.alias("y").name.keep(), "x"),
    "literal": (pl.lit(True), "literal"),
    "field": (pl.struct("x", "g").struct.field("g"), "g"),
    "when": (pl.when(X).then("g"), "g"),
}


@pytest.mark.parametrize(("column", "name"), NAMES.values(), ids=NAMES)
def test_answers_are_named_like_their_column(column, name):
    flags = pl.DataFrame({"x": [True, False], "g": [True, True]})
    assert flags.select(column.dp.mode([True], epsilon=1)).columns == [name]
    assert flags.select(column.dp.mode(epsilon=1)).columns == [name]
    assert flags.group_by("x").agg(column.dp.mode(epsilon=1).alias("z")).columns == ["x", "z"]
    numbers = column.cast(pl.Int8)
    assert flags.select(numbers.dp.median([1, 2], epsilon=1)).columns == [name]
    assert flags.select(numbers.dp.argmax(sensitivity=1, epsilon=1)).columns == [name]


# One expression, many frames: Polars keeps the type of a UDF for ever.


def test_one_expression_on_frames_of_many_types():
    expr = X.dp.mode(["a", "b"], **SURE)
    enum = pl.Enum(["z", "b", "a"])
    strings, wrong = pl.Series("x", ["b", "a", "b"]), pl.Series("x", [0, 1, 0])
    columns = [strings, wrong, strings.cast(enum), strings.cast(pl.Categorical), wrong, strings, strings.cast(enum)]
    for expression in (expr, pl.Expr.__copy__(expr) if hasattr(pl.Expr, "__copy__") else expr):
        for column in columns:
            frame = column.to_frame()
            for plan in (frame.lazy().select(expression), frame.lazy().group_by(pl.lit(1)).agg(expression).select("x")):
                if column.dtype == pl.Int64:
                    with pytest.raises(pl.exceptions.ComputeError, match="can't be categories of a column of"):
                        plan.collect_schema()
                else:
                    answer = pl.String() if column.dtype == pl.Categorical else column.dtype
                    assert plan.collect_schema()["x"] == answer
                    assert plan.collect()["x"].to_list() == ["b"]
                    assert plan.collect().schema["x"] == answer


def test_one_expression_without_candidates_on_frames_of_many_types():
    expr = X.dp.mode(**SURE)
    flags = pl.Series("x", [True, False, True])
    small, large = pl.Enum(["u", "v"]), pl.Enum(["v", "w", "u"])
    words = pl.Series("x", ["v", "v", "u"])
    for column in (flags, words, words.cast(small), flags, words.cast(large), words, words.cast(small)):
        plan = column.to_frame().lazy().select(expr)
        if column.dtype == pl.String:
            with pytest.raises(pl.exceptions.ComputeError, match="candidates must be given for a column of type"):
                plan.collect()
        else:
            assert plan.collect_schema() == {"x": column.dtype}
            assert plan.collect()["x"].equals(column[:1])


def test_one_quantile_on_frames_of_many_types():
    expr = X.dp.median(range(10), **SURE)
    integers, others = (
        [pl.Int8, pl.UInt64, pl.Int128],
        [pl.Float64, pl.String, pl.Decimal(5, 2), pl.Boolean, pl.Float32],
    )
    for dtype in (*others, *integers, *others, *integers):
        plan = pl.Series("x", [7, 3, 3]).cast(dtype).to_frame().lazy().select(expr)
        if dtype in (pl.String, pl.Boolean):
            with pytest.raises(pl.exceptions.ComputeError, match="can't be a quantile of a column of type"):
                plan.collect_schema()
        else:
            assert plan.collect().to_dict(as_series=False) == {"x": [3]}
            assert plan.collect_schema() == {"x": pl.Int64}


# Right at a huge epsilon: oracles.


def lower_quantile(points, code_of, values, alpha):
    """The lower α-quantile of the values' nearest candidates; all candidates where no row contributes."""
    codes = sorted(code for value in values if value is not None and (code := code_of(value)) is not None)
    return {points[codes[max(math.ceil(alpha * len(codes)) - 1, 0)]]} if codes else set(points)


def modes(candidates, values):
    counts = [sum(value == candidate for value in values if value is not None) for candidate in candidates]
    return {candidate for candidate, count in zip(candidates, counts, strict=True) if count == max(counts)}


ALPHAS = [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(1, 10_000)]


def many_groups(values, number, dtype):
    """The rows of many small groups, drawn from a few values and null, and the frame of them."""
    rng = random.Random(2)
    rows = [[rng.choice([*values, None]) for _ in range(rng.randint(1, 9))] for _ in range(number)]
    columns = {"g": [g for g, group in enumerate(rows) for _ in group], "x": [x for group in rows for x in group]}
    return rows, pl.DataFrame(columns, schema={"g": pl.Int64, "x": dtype})


@pytest.mark.parametrize("flat", [True, False], ids=["a column", "an expression"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_sure_answers_are_the_true_ones(kind, flat):
    known = COLUMNS[kind]
    dtype, of_mode = known.dtype, known.categories
    rows, frame = many_groups(known.values + [math.nan] * dtype.is_float(), 200, dtype)
    column = X if flat else X.filter(pl.lit(True))
    asked, truth = {}, {}
    for i, (given, points) in enumerate(known.points):
        inexact = [float(point) if isinstance(point, Decimal) and dtype.is_float() else point for point in points]
        code_of = nearest_code(points)
        for alpha in ALPHAS:
            asked[f"{alpha} {i}"] = column.dp.quantile(alpha, given, epsilon=10**9)
            truth[f"{alpha} {i}"] = partial(lower_quantile, inexact, code_of, alpha=alpha)
    if of_mode is not None:
        asked["mode"] = column.dp.mode(of_mode, rho=10**12)
        truth["mode"] = partial(modes, of_mode)
    if isinstance(dtype, pl.Enum) or dtype == pl.Boolean:
        asked["named by the type"] = column.dp.mode(**SURE)
        named = [False, True] if dtype == pl.Boolean else dtype.categories.to_list()
        truth["named by the type"] = partial(modes, named)

    answers = frame.group_by("g", maintain_order=True).agg(**asked)
    for row, group in zip(answers.drop("g").iter_rows(named=True), rows, strict=True):
        for name, answer in row.items():
            assert answer in truth[name](group), (name, group)
    for part in (frame, frame.head(1), frame.clear()):
        for name, answer in part.select(**asked).row(0, named=True).items():
            assert answer in truth[name](part["x"].to_list())
    for name in asked:
        dtypes = {answers.schema[name], frame.lazy().select(**asked).collect_schema()[name]}
        expected = dtype if name in ("mode", "named by the type") else asked[name].query.fixed_type
        if dtype.base_type() is pl.Categorical:
            expected = pl.String
        assert dtypes == {pl.Series([], dtype=expected).dtype}


SCORES = {
    pl.Int8: [-128, 0, 127],
    pl.Int64: [-(2**63), -1, 0, 1, 2**63 - 1],
    pl.UInt64: [0, 2**63, 2**64 - 2, 2**64 - 1],
    pl.Float32: [-0.0, 0.0, 1.5, -3e38, math.inf, -math.inf, math.nan],
    pl.Float64: [-1.7e308, 1.7e308, 0.1, 1e-280, 0.0, math.inf, -math.inf, math.nan],
    pl.Decimal(20, 3): [Decimal("-7.125"), Decimal("0.001"), Decimal(0)],
}


@pytest.mark.parametrize("dtype", SCORES, ids=str)
def test_sure_rows_are_the_best_ones(dtype):
    rows, frame = many_groups(SCORES[dtype], 500, dtype)
    sure = {"sensitivity": Fraction(1, 10**290), "epsilon": 10**9}
    answers = frame.group_by("g", maintain_order=True).agg(best=X.dp.argmax(**sure), worst=X.dp.argmin(**sure))
    assert answers.schema == {"g": pl.Int64, "best": pl.UInt32, "worst": pl.UInt32}
    for group, best, worst in zip(rows, answers["best"], answers["worst"], strict=True):
        finite = [x for x in group if x is not None and math.isfinite(x)]
        if finite:
            assert group[best] == max(finite)
            assert group[worst] == min(finite)
        else:
            assert best is worst is None


def test_the_sensitivity_of_decimals_is_in_their_own_unit():
    """One unit in the last place is not one: at 2 units apart and a rate of 1 the worse row often wins."""
    frame = pl.DataFrame({"g": range(4000), "x": [[Decimal("0.00"), Decimal("2.00")]] * 4000}).explode("x")
    frame = frame.cast({"x": pl.Decimal(20, 2)})
    best = frame.group_by("g").agg(X.dp.argmax(epsilon=1, sensitivity=1, monotonic=True))["x"]
    # Permute-and-flip gives the worse one exp(−2)/2 = 0.068: 271 ± 16 of 4,000. Here 10 standard deviations.
    assert 110 < (best == 0).sum() < 430


@pytest.mark.parametrize(
    "asked", [X.dp.mode([5], epsilon=1e-9), X.dp.median([5], rho=1e-9), X.dp.median(range(5, 6), epsilon=1)]
)
@pytest.mark.parametrize("rows", [[], [None], [7], [5, 5, None]])
def test_of_one_candidate_there_is_one_answer(asked, rows):
    frame = pl.DataFrame({"x": rows}, schema={"x": pl.Int64})
    assert frame.select(asked).to_dict(as_series=False) == {"x": [5]}
    assert frame.group_by("x").agg(y=asked)["y"].to_list() == [5] * len(set(rows))


def test_scores_that_no_row_offers():
    frame = pl.DataFrame({"g": [1, 1, 2, 2, 3], "x": [None, math.nan, math.inf, 1.0, -math.inf]})
    answers = frame.group_by("g", maintain_order=True).agg(X.dp.argmax(epsilon=1, sensitivity=1))["x"]
    assert answers.to_list() == [None, 1, None]
    assert answers.dtype == pl.UInt32
    best = X.dp.argmax(epsilon=1, sensitivity=1)
    price = frame.group_by("g", maintain_order=True).agg(pl.col("g").alias("y").get(best))
    assert price["y"].to_list() == [None, 2, None]


def test_negative_zero_is_zero():
    frame = pl.DataFrame({"x": [-0.0, 0.0, -0.0]})
    assert frame.select(X.dp.median([-1.0, 0.0, 1.0], **SURE)).item() == 0
    assert str(frame.select(X.dp.median([-1.0, -0.0, 1.0], **SURE)).item()) == "-0.0"  # the candidate as it was given
    chosen = {frame.head(2).select(X.dp.argmax(epsilon=10**6, sensitivity=1)).item() for _ in range(60)}
    assert chosen == {0, 1}


@pytest.mark.parametrize("dtype", [pl.Decimal(38, 0), pl.Decimal(38, 2)])
def test_decimal_scores_beyond_64_bits_are_not_clipped(dtype):
    frame = pl.DataFrame({"x": pl.Series([2**80, 2**80 + 1, None, -(2**80)]).cast(dtype)})
    for _ in range(20):
        assert frame.select(X.dp.argmax(epsilon=1000, sensitivity=1)).item() == 1
        assert frame.select(X.dp.argmin(epsilon=1000, sensitivity=1)).item() == 3
    law = dpp.analysis.simulate(dpp.argmax("x", epsilon=1, sensitivity=1, monotonic=True), frame)
    assert law["probability_true"].item() == pytest.approx(1 - math.exp(-1) / 2)
    assert law["counted"].item() == 3
