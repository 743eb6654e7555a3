"""Bad input: refused in our words where it is written, or where the schema tells; never by what stands in the rows."""

import math
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.exceptions import ComputeError
from polars.testing.parametric import series

import dp_polars as dpp
from dp_polars._expressions.expression import DrawRows
from tests.registry import ASKS, COLUMNS, COUNTED, ENGINES, ask

X = pl.col("x")
# Every way to ask, lacking only its loss.
ASK = {name: partial(ask, name) for name in ASKS}
NOT_POSITIVE = [
    (0, ValueError, "greater than 0, got 0."),
    (-1, ValueError, "greater than 0, got -1."),
    (0.0, ValueError, "greater than 0, got 0.0."),
    (-0.5, ValueError, "greater than 0, got -0.5."),
    (Fraction(-1, 3), ValueError, "greater than 0, got Fraction(-1, 3)."),
    (math.nan, ValueError, "finite, got nan."),
    (math.inf, ValueError, "finite, got inf."),
    (-math.inf, ValueError, "finite, got -inf."),
    (Decimal("nan"), ValueError, "finite, got Decimal('NaN')."),
    (np.float32("inf"), ValueError, "finite, got "),
    (True, TypeError, "a number (int, float, Fraction or Decimal), got True."),
    (np.bool_(True), TypeError, "a number (int, float, Fraction or Decimal), got "),
    ("1", TypeError, "a number (int, float, Fraction or Decimal), got '1'."),
    (1j, TypeError, "a number (int, float, Fraction or Decimal), got 1j."),
    ([1], TypeError, "a number (int, float, Fraction or Decimal), got list."),
    (pl.lit(1), TypeError, "a number (int, float, Fraction or Decimal), got "),
]


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize(("value", "error", "message"), NOT_POSITIVE)
def test_a_loss_is_a_positive_number(ask, unit, value, error, message):
    with pytest.raises(error, match=re.escape(f"{unit} must be {message}")):
        ask(**{unit: value})


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("value", "error", "message"), [*NOT_POSITIVE[:-1], (None, TypeError, "a number (int")])
def test_a_sensitivity_is_a_positive_number(name, value, error, message):
    with pytest.raises(error, match=re.escape(f"sensitivity must be {message}")):
        getattr(X.dp, name)(sensitivity=value, epsilon=1)


def _plain(expr):
    """Return what Polars sees of a private expression."""
    return pl.Expr._from_pyexpr(expr._pyexpr)


@pytest.mark.parametrize("name", ASK)
def test_one_loss_at_most(name):
    """What a private frame may be asked can wait for its loss; a plain frame refuses it then, and draws nothing."""
    if "loss_weight" not in ASKS[name].keywords:
        with pytest.raises(TypeError, match=r"^exactly one of epsilon and rho must be given, got neither\."):
            ASK[name]()
        with pytest.raises(TypeError, match=r"^exactly one of epsilon and rho must be given, got both\."):
            ASK[name](epsilon=1, rho=0.5)
        return
    of = "within, epsilon, rho and loss_weight"
    with pytest.raises(TypeError, match=rf"^at most one of {of} must be given, got epsilon and rho\."):
        ASK[name](epsilon=1, rho=0.5)
    with pytest.raises(TypeError, match=rf"^at most one of {of} must be given, got epsilon and loss_weight\."):
        ASK[name](epsilon=1, loss_weight=1)
    assert b"Draw" in _plain(ASK[name](epsilon=1)).meta.serialize()
    for expr in (ASK[name](), ASK[name](loss_weight=2)):
        assert b"Draw" not in _plain(expr).meta.serialize()
        for frame in (pl.DataFrame({"x": [1, 2]}), pl.LazyFrame({"x": [1, 2]})):
            with pytest.raises(ComputeError, match=r"(?s)a loss must be given here, got none.*epsilon=1\.0"):
                frame.select(expr).lazy().collect()
    for share, error in ((0, "greater than 0, got 0"), (-1, "greater than 0"), (math.nan, "finite"), (True, "number")):
        with pytest.raises((TypeError, ValueError), match=f"loss_weight must be .*{error}"):
            ASK[name](loss_weight=share)


@pytest.mark.parametrize("method", [method for method in ASK if ASKS[method].mechanisms])
@pytest.mark.parametrize("name", ["Permute_and_flip", "pf", "laplace", "", 1, True])
def test_unknown_mechanisms(method, name):
    message = f"mechanism must be one of {list(ASKS[method].mechanisms)} or None, got {name!r}."
    with pytest.raises(ValueError, match=re.escape(message)):
        ASK[method](epsilon=1, mechanism=name)


@pytest.mark.parametrize("name", ["replace", "add_or_remove", "", None, 1])
def test_unknown_relations(name):
    message = f"neighboring_relation must be one of ['add_or_remove_one', 'replace_one'], got {name!r}."
    with pytest.raises(ValueError, match=re.escape(message)):
        dpp.protect(None, neighboring_relation=name)


@pytest.mark.parametrize("ask", [ASK[name] for name in COUNTED], ids=COUNTED)
@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (0, ValueError, "at least 1, got 0."),
        (-3, ValueError, "at least 1, got -3."),
        (1.0, TypeError, "an integer, got 1.0."),
        (math.nan, TypeError, "an integer, got nan."),
        (True, TypeError, "an integer, got True."),
        ("1", TypeError, "an integer, got '1'."),
        (None, TypeError, "an integer, got None."),
    ],
)
def test_contributions_are_counted_from_one(ask, rows, error, message):
    with pytest.raises(error, match=re.escape(f"contributions must be {message}")):
        ask(epsilon=1, contributions=rows)


BETWEEN = "lie strictly between 0 and 1, got {}.\n\nHint: 0.5 is"
SMALL = "be a fraction with a denominator of at most 10,000, got {!r}."
ALPHAS = [
    *((alpha, ValueError, BETWEEN.format(alpha)) for alpha in (0, 1, -0.1, 1.5, 2, 50)),
    *((alpha, ValueError, SMALL.format(alpha)) for alpha in (Fraction(1, 10_001), 0.123456)),
    *((alpha, ValueError, f"be finite, got {alpha}.") for alpha in (math.nan, math.inf)),
    *((alpha, TypeError, "be a number") for alpha in (True, "0.5", None)),
]


@pytest.mark.parametrize(("alpha", "error", "message"), ALPHAS)
def test_alpha_is_a_fraction_between_zero_and_one(alpha, error, message):
    with pytest.raises(error, match=re.escape(f"quantile must {message}")):
        X.dp.quantile(alpha, [1, 2], epsilon=1)


ALIKE = "over the range of the score must lie between 2**-1000 and 2**1000"
ANSWER = X.dp.mode(["a"], epsilon=1)
PRIVATE = "must not be a private answer itself: use the column"
A_LIST = "candidates must be a list, a range, a Series or a NumPy or Arrow array, got "
REFUSED = [
    *(
        (
            partial(X.dp.argmax, epsilon=1, sensitivity=1, monotonic=value),
            TypeError,
            f"monotonic must be True or False, got {value!r}.",
        )
        for value in (None, 1, 0, "yes", 1.0)
    ),
    *(
        (partial(X.dp.mode, ["a"], epsilon=loss), ValueError, ALIKE)
        for loss in (Fraction(1, 2**1002), 2**1002, 1e-302 / 7, 1e304)
    ),
    *(
        (partial(column.dp.mode, ["a"], epsilon=1), TypeError, PRIVATE)
        for column in (ANSWER, ANSWER.alias("y"), ANSWER.over("g"), ANSWER.name.keep())
    ),
    *((partial(X.dp.median, given, epsilon=1), TypeError, A_LIST) for given in (3, "abc", {"a"})),
    (partial(X.dp.argmax, epsilon=1), TypeError, "missing a required argument: 'sensitivity'"),
]


@pytest.mark.parametrize(("ask", "error", "message"), REFUSED)
def test_other_arguments_are_refused_at_once(ask, error, message):
    with pytest.raises(error, match=re.escape(message)):
        ask()


MANY = {
    "all": pl.all(),
    "star": pl.col("*"),
    "names": pl.col("x", "y"),
    "one name in a list": pl.col(["x"]),
    "dtype": pl.col(pl.Int64),
    "regex": pl.col("^x$"),
    "exclude": pl.exclude("y"),
    "selector": cs.numeric(),
    "selector by name": cs.by_name("x", "y"),
    "nth": pl.nth(0),
    "first": pl.first(),
    "last": pl.last(),
    "computed": pl.all() + 1,
    "fields": pl.col("x").struct.field("*"),
    "two fields": pl.col("x").struct.field("a", "b"),
    "unnest": pl.col("x").struct.unnest(),
}


@pytest.mark.parametrize("column", MANY.values(), ids=MANY)
@pytest.mark.parametrize("name", ASK)
def test_one_release_per_column_by_accident(column, name):
    hint = r'Hint: name the column, as in pl\.col\("name"\)\.'
    if column.meta.eq(pl.col(["x"])) and not column.meta.has_multiple_outputs():
        pytest.skip("this Polars reads a list of one name as a name")
    # Private frames have an output for each, of what they can count: others refuse as soon as it is known.
    with pytest.raises(
        (ValueError, ComputeError), match=rf"the expression must have one output: with several[\s\S]*{hint}"
    ):
        pl.DataFrame({"x": [1], "y": [2]}).select(ask(name, column, epsilon=1))


def test_the_column_is_a_name_or_an_expression():
    for column in (pl.Series([1]), 3, None, ["x"]):
        expected = f"the column must be a name or a Polars expression, got {type(column).__name__}."
        with pytest.raises(TypeError, match=re.escape(expected)):
            dpp.mode(column, [1], epsilon=1)
    with pytest.raises(ComputeError, match="must have one output"):
        pl.DataFrame({"x": [1]}).select(dpp.mode("*", [1], epsilon=1))


# What only the schema tells: our words, from `collect_schema`.

MISFITS = {
    "mode of strings on integers": (
        X.dp.mode(["secret"], epsilon=1),
        pl.Int64,
        "mode of 1 candidate: candidates of type String can't be categories of a column of type Int64.",
    ),
    "mode of integers on strings": (
        X.dp.mode([1, 2], epsilon=1),
        pl.String,
        "mode of 2 candidates: candidates of type Int64 can't be categories of a column of type String.",
    ),
    "mode of floats": (
        X.dp.mode([1, 2], epsilon=1),
        pl.Float64,
        "the column must not hold floats, got Float64: floats that are meant to be equal often differ in their last "
        "digit."
        "\n\nHint: make integers",
    ),
    "mode of the type, of floats": (X.dp.mode(epsilon=1), pl.Float32, "the column must not hold floats, got Float32"),
    "mode beyond the type": (
        X.dp.mode([1, 300], epsilon=1),
        pl.Int8,
        "candidates must be values that a column of type Int8 can hold, got some that it can't.",
    ),
    "mode beyond the enum": (
        X.dp.mode(["a", "b"], epsilon=1),
        pl.Enum(["a", "c"]),
        "candidates must be values that a column of type Enum(categories=['a', 'c']) can hold, got some that it can't.",
    ),
    "mode without candidates": (
        X.dp.mode(epsilon=1),
        pl.String,
        "candidates must be given for a column of type String, as the type names none.\n\nHint: list them from public",
    ),
    "mode without candidates of an expression": (
        X.head(3).dp.mode(epsilon=1),
        pl.Int16,
        "candidates must be given for a column of type Int16, as the type names none.",
    ),
    "mode of lists": (X.dp.mode(["a"], epsilon=1), pl.List(pl.String), "of a column of type List(String)."),
    "mode of nulls": (X.dp.mode(["a"], epsilon=1), pl.Null, "of a column of type Null."),
    "median of strings": (
        X.dp.median(range(3), epsilon=1),
        pl.String,
        "median on 3 grid points: candidates of type Int64 can't be a quantile of a column of type String.",
    ),
    "median of an enum": (X.dp.median([1], epsilon=1), pl.Enum(["a"]), "can't be a quantile of a column of type Enum"),
    "median of flags": (X.dp.median([0, 1], epsilon=1), pl.Boolean, "can't be a quantile of a column of type Boolean."),
    "median of dates on numbers": (
        (X + 0).dp.median([date(2020, 1, 1)], epsilon=1),
        pl.Int64,
        "median on 1 candidate: candidates of type Date can't be a quantile of a column of type Int64.",
    ),
    "quantile with a time zone": (
        X.dp.quantile(0.9, [date(2020, 1, 1)], epsilon=1),
        pl.Datetime("us", "UTC"),
        "0.9-quantile on 1 candidate: candidates of type Date can't be a quantile of a column of type Datetime",
    ),
    "quantile beyond the type": (
        X.dp.median(dpp.grid(date(1500, 1, 1), date(2500, 1, 1), step="1d"), epsilon=1),
        pl.Datetime("ns"),
        "candidates of a quantile must span less than 2**63 units of the column's type.",
    ),
    "argmax of strings": (
        X.dp.argmax(epsilon=1, sensitivity=1),
        pl.String,
        "row with the highest score: scores must be integers of at most 64 bits, floats or decimals, got String.",
    ),
    "argmin of wide integers": (
        X.dp.argmin(epsilon=1, sensitivity=1),
        pl.Int128,
        "row with the lowest score: scores must be integers of at most 64 bits, floats or decimals, got Int128.",
    ),
    "argmax of booleans": (X.dp.argmax(epsilon=1, sensitivity=1), pl.Boolean, "decimals, got Boolean."),
}
CONTEXTS = {
    "select": lambda frame, e: frame.select(e),
    "with_columns": lambda frame, e: frame.with_columns(y=e),
    "agg": lambda frame, e: frame.group_by("g").agg(y=e),
    "over": lambda frame, e: frame.select(e.over("g")),
    "dynamic": lambda frame, e: frame.group_by_dynamic("i", every="2i").agg(y=e),
    "rolling": lambda frame, e: frame.rolling("i", period="2i").agg(y=e),
    "filter": lambda frame, e: frame.filter(e.is_null()),
    "below others": lambda frame, e: frame.select(pl.struct(e, "g"), z=e == e).filter(pl.col("z")),
}


def empty_frame(dtype):
    return pl.LazyFrame(schema={"x": dtype, "g": pl.Int64, "i": pl.Int64}).set_sorted("i")


def said(error):
    """Our words, with a hint: they stand whole between the way they came and what describes the plan."""
    before, raised, text = str(error).partition("python: TypeError: ")
    assert raised
    assert before == "'name.map_fields' produced an error: "
    text = text.split("\n\nResolved plan until failure:")[0]
    assert text.startswith("column 'x', ")
    assert text.endswith(".")
    assert not text.endswith("..")
    return text


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize(("expr", "dtype", "message"), MISFITS.values(), ids=MISFITS)
def test_the_schema_tells(expr, dtype, message, context):
    plan = context(empty_frame(dtype), expr)
    with pytest.raises(ComputeError) as found:
        plan.collect_schema()
    assert message in said(found.value)
    with pytest.raises(ComputeError) as when_explained:
        plan.explain()
    assert said(when_explained.value) == said(found.value)


@pytest.mark.parametrize(("expr", "dtype", "message"), MISFITS.values(), ids=MISFITS)
def test_a_type_error_comes_before_any_row_is_read_and_again_at_run_time(expr, dtype, message):
    def read(_):
        raise AssertionError("the rows were read")

    plan = pl.LazyFrame({"g": [1]}).map_batches(read, schema={"x": dtype}).select(expr)
    with pytest.raises(ComputeError) as found:
        plan.collect()
    assert message in said(found.value)
    # Should Polars not have told: what makes codes and draws refuses the same types in the same words.
    lists = pl.Series("x", [], dtype=dtype).implode()
    with pytest.raises((TypeError, ValueError), match=re.escape(message.rpartition(": ")[2])):
        DrawRows(expr.query)([lists])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("misfit", ["mode of strings on integers", "argmax of strings", "median of strings"])
def test_rows_do_not_change_a_message(misfit, engine):
    expr, dtype, message = MISFITS[misfit]
    filled = ["secret-hiv", None, ""] if dtype == pl.String else [-271_828, None, 2**62]
    messages = set()
    for rows in ([], [None], filled, filled * 1000):
        frame = pl.DataFrame({"x": rows, "g": [1] * len(rows)}, schema={"x": dtype, "g": pl.Int64})
        for plan in (frame.lazy().select(expr), frame.lazy().group_by("g").agg(expr)):
            with pytest.raises(ComputeError) as found:
                plan.collect(engine=engine)
            messages.add(said(found.value))
            assert "hiv" not in str(found.value)
            assert "271828" not in str(found.value)
    assert len(messages) == 1
    assert message in messages.pop()


def test_a_missing_column_is_polars_own_error():
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="nope"):
        pl.LazyFrame({"x": [1]}).select(dpp.mode("nope", [1], epsilon=1)).collect_schema()


# Nothing in the rows raises or warns (warnings are errors here).


@pytest.mark.slow
@pytest.mark.parametrize("kind", COLUMNS)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_row_is_fine_and_every_answer_is_a_candidate(kind, data):
    known = COLUMNS[kind]
    dtype = known.dtype
    made = pl.Categorical() if isinstance(dtype, pl.Categorical) else dtype  # Polars 1 makes no others
    column = data.draw(series(name="x", dtype=made, allow_null=True, max_size=20)).cast(dtype)
    frame = column.to_frame().with_columns(g=pl.int_range(pl.len()) % 3)
    asked, allowed = {}, {}
    if known.categories is not None:
        asked |= {"mode": X.dp.mode(known.categories, epsilon=0.1)}
        asked |= {"mode of two": X.head(2).dp.mode(known.categories, rho=0.1)}
        allowed |= dict.fromkeys(asked, known.categories)
    for i, (given_as, points) in enumerate(known.points):
        asked[f"median {i}"] = X.dp.median(given_as, epsilon=0.1)
        asked[f"quantile {i}"] = X.head(2).dp.quantile(0.9, given_as, rho=3)
        allowed |= {f"median {i}": points, f"quantile {i}": points}
    if dtype.is_numeric() and dtype not in (pl.Int128, pl.UInt128):
        asked |= {
            "argmax": X.dp.argmax(epsilon=1, sensitivity=0.1),
            "argmin": X.dp.argmin(rho=1, sensitivity=Fraction(3)),
        }
    alone = frame.select(**asked)
    grouped = frame.group_by("g").agg(**asked)
    assert alone.schema == grouped.drop("g").schema == frame.lazy().select(**asked).collect_schema()
    assert grouped.height == frame["g"].n_unique()
    for answers in (alone, grouped.drop("g")):
        for answer in answers:
            if answer.name.startswith("arg"):
                assert (answer.drop_nulls() < max(len(frame), 1)).all()
            else:
                points = allowed[answer.name]
                assert set(answer) <= set(map(float, points) if answer.dtype.is_float() else points)
