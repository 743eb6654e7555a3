"""One `.dp` for two packages, whichever is imported first; every script is a Python of its own."""

import inspect

import pytest

from dp_polars._expressions import sharing
from dp_polars._expressions.namespace import PrivateNamespace
from tests.helpers.needs import need
from tests.opendp.tools import needs_frames, run, succeed

pytestmark = pytest.mark.slow


@pytest.fixture
def opendp():
    need("opendp")


ORDERS = {
    "ours first": "import dp_polars\nimport opendp.prelude as dp",
    "theirs first": "import opendp.prelude as dp\nimport dp_polars",
    "theirs by the context": "import dp_polars\nimport opendp.context\nimport opendp.prelude as dp",
}

CHECK = """
import importlib, inspect, sys
import polars as pl
import opendp.extras.polars as theirs

def check():
    dp = pl.col("x").dp
    assert dp.expr.meta.eq(pl.col("x"))
    ours = {"mode", "top_k", "median", "quantile", "argmax", "argmin", "sum", "mean", "count", "value_counts"}
    ours |= {"null_count", "var", "std", "first_above"}
    assert {name for name in dir(dp) if not name.startswith("_")} == ours | {
        name for name in dir(theirs.DPExpr) if not name.startswith("_")
    } | {"expr"}
    for private in (
        dp.mode(["a"], epsilon=1), dp.median([1, 2], epsilon=1), dp.median([1, 2], rho=1),
        dp.quantile(0.9, [1, 2], epsilon=1), dp.argmax(sensitivity=1, epsilon=1), dp.argmin(sensitivity=1, rho=1),
    ):
        assert type(private).__module__ == "dp_polars._expressions.expression"
    for by_us, by_them in (
        (dp.median([1, 2]), theirs.DPExpr(pl.col("x")).median([1, 2])),
        (dp.median([1, 2], 3.0), theirs.DPExpr(pl.col("x")).median([1, 2], 3.0)),
        (dp.median(candidates=[1, 2], scale=3.0), theirs.DPExpr(pl.col("x")).median([1, 2], 3.0)),
        (dp.quantile(0.9, [1, 2]), theirs.DPExpr(pl.col("x")).quantile(0.9, [1, 2])),
        (dp.quantile(0.9, [1, 2], scale=3.0), theirs.DPExpr(pl.col("x")).quantile(0.9, [1, 2], 3.0)),
        (dp.len(signed=True), theirs.DPExpr(pl.col("x")).len(signed=True)),
        (dp.sum((0, 1)), theirs.DPExpr(pl.col("x")).sum((0, 1))),
        (dp.mean((0, 1)), theirs.DPExpr(pl.col("x")).mean((0, 1))),
        (dp.noise(2.0), theirs.DPExpr(pl.col("x")).noise(2.0)),
    ):
        assert type(by_us) is pl.Expr
        assert str(by_us) == str(by_them)
    assert issubclass(type(dp), theirs.DPExpr)
"""


@pytest.mark.usefixtures("opendp")
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_accessor_offers_the_methods_of_both(order):
    reload = "check()\nfor _ in range(3):\n    importlib.reload(theirs)\n    check()"
    assert succeed(f"{order}\n{CHECK}\n{reload}") == ""


@pytest.mark.usefixtures("opendp")
def test_a_reloaded_package_of_ours_keeps_both():
    again = """
import dp_polars._expressions.namespace
for _ in range(2):
    importlib.reload(dp_polars._expressions.namespace)
    importlib.reload(dp_polars._expressions.namespace)
    check()
    importlib.reload(theirs)
    check()
"""
    assert succeed(f"{ORDERS['ours first']}\n{CHECK}\n{again}") == ""


@pytest.mark.usefixtures("opendp")
def test_arguments_of_both_are_refused_and_ours_are_never_ignored():
    script = """
import dp_polars, opendp.prelude, polars as pl
dp = pl.col("x").dp
for call in (
    lambda: dp.median([1], 2.0, epsilon=1),
    lambda: dp.median([1], scale=2.0, contributions=3),
    lambda: dp.quantile(0.5, [1], scale=2.0, mechanism="exponential"),
    lambda: dp.quantile(0.5, [1], contributions=2),
):
    try:
        call()
    except TypeError as error:
        print(str(error).splitlines()[0])
open_ones = [dp.median([1], contributions=3), dp.median([1], loss_weight=1), dp.mode(["a"])]
assert all(isinstance(one, dp_polars.PrivateExpr) and one.query.claim._is_open for one in open_ones)
assert not isinstance(dp.median([1]), dp_polars.PrivateExpr)
"""
    both = "scale must be left out where epsilon, rho or another argument of dp_polars is given: it is OpenDP's."
    assert succeed(script).splitlines() == [both] * 3


@pytest.mark.usefixtures("opendp")
@pytest.mark.parametrize("order", ORDERS)
def test_numbers_of_both_packages_are_told_apart_by_their_arguments(order):
    """A loss makes a call ours; OpenDP's bounds and scale go to it, positional or named."""
    script = f"""
{ORDERS[order]}
import polars as pl
from dp_polars import PrivateExpr
dp_ = pl.col("x").dp
ours = [
    dp_.sum(0, 9, epsilon=1), dp_.mean(0, 9, step=1, rho=1), dp_.count(epsilon=1), dp_.value_counts([1], rho=1),
    dp_.sum(0, 9, step=3, epsilon=1), dp_.mean(0, 9, step=3, rho=1), dp_.sum(0, 9, step=3, per_person=(0, 6), rho=1),
    dp_.sum(lower=0, upper=9, step=3, epsilon=1),
    dp_.sum(0, 9, step=3), dp_.mean(0, 9, step=3), dp_.sum(lower=0, upper=9), dp_.sum(0, 9, step=1),
    dp_.count(loss_weight=1),
]
assert ours[4].query == ours[7].query == dp_.sum(0, 9, step=3, epsilon=1).query != ours[0].query
theirs = [
    dp_.sum((0, 9)), dp_.sum((0, 9), 2.0), dp_.sum(bounds=(0, 9), scale=2.0), dp_.mean((0, 9), scale=2.0),
    dp_.mean((0, 9), 2.0), dp_.count(signed=True), dp_.count(2.0, True), dp_.len(2.0, True),
    dp_.sum((0, 9), 2.0, step=None),
]
assert all(isinstance(expr, PrivateExpr) for expr in ours)
assert not any(isinstance(expr, PrivateExpr) for expr in theirs)
assert str(dp_.sum((0, 9), 2.0)) == str(dp_.sum(bounds=(0, 9), scale=2.0)) == str(dp_.sum((0, 9), scale=2.0))
for call in (
    lambda: dp_.sum(0, 9, scale=2.0, epsilon=1), lambda: dp_.mean(0, 9, scale=2.0, step=1),
    lambda: dp_.sum(0, 9, bounds=(0, 1), rho=1), lambda: dp_.mean(0, 9, bounds=(0, 1), step=1, epsilon=1),
    lambda: dp_.count(signed=True, epsilon=1), lambda: dp_.count(signed=False, contributions=2, rho=1),
):
    try:
        call()
    except TypeError as error:
        print(str(error).partition(":")[0].partition(", got")[0])
"""
    both = "must be left out where epsilon, rho or another argument of dp_polars is given"
    expected = [f"{name} {both}" for name in ("scale", "bounds", "signed") for _ in "12"]
    assert succeed(script).splitlines() == expected


OURS = {"epsilon": 1, "rho": 2, "contributions": 3, "mechanism": "exponential"}


class Theirs:
    """The methods of OpenDP whose names we have, too: they give back what they are called with."""

    def median(self, candidates, scale=None):
        return candidates, scale

    def quantile(self, alpha, candidates, scale=None):
        return alpha, candidates, scale

    def count(self, scale=None, signed=None):
        return scale, signed

    def sum(self, bounds, scale=None):
        return bounds, scale

    def mean(self, bounds, scale=None):
        return bounds, scale


@pytest.mark.parametrize("name", ["median", "quantile", "count", "sum", "mean"])
def test_every_argument_of_ours_arrives(name):
    signature = inspect.signature(getattr(PrivateNamespace, name))

    def record(*given, **named):
        return signature.bind(*given, **named).arguments

    record.__signature__ = signature
    both = sharing._shared(name, type("Ours", (), {name: record}), Theirs)
    positional = [each for each in ("quantile", "candidates", "lower", "upper") if each in signature.parameters]
    given = {each: f"the {each}" for each in positional}
    named = OURS | ({"step": 0.5} if "step" in signature.parameters else {})
    if "step" in named:
        assert both("me", *given.values(), step=0.5) == {"self": "me"} | given | {"step": 0.5}
    assert {"self": "me"} | given | named == both("me", *given.values(), **named) == both("me", **given, **named)
    for each, value in named.items():  # one of them makes a call ours
        assert both("me", **given, **{each: value}) == {"self": "me"} | given | {each: value}
        extra = "signed" if name == "count" else "scale"
        with pytest.raises(TypeError, match=f"^{extra} must be left out"):
            both("me", **given, **{each: value, extra: 1})
    theirs = inspect.signature(getattr(Theirs, name)).parameters
    assert set(inspect.signature(both).parameters) == {*signature.parameters} | {*theirs}


@pytest.mark.parametrize(
    ("name", "given", "named"),
    [
        ("median", ([1, 2], 3.0), {}),
        ("quantile", (0.5, [1, 2]), {"scale": 3.0}),
        ("count", (2.0, True), {}),
        ("sum", ((0, 9), 2.0), {}),
        ("sum", ((0, 9), 2.0), {"step": None}),
        ("mean", ((0, 9),), {"scale": 2.0, "epsilon": None, "contributions": 1}),
    ],
)
def test_a_call_without_arguments_of_ours_is_theirs(name, given, named):
    expected = {"quantile": (0.5, [1, 2], 3.0), "mean": ((0, 9), 2.0)}.get(name, given)
    assert sharing._shared(name, PrivateNamespace, Theirs)("me", *given, **named) == expected


def test_without_opendp_a_loss_may_be_left_out():
    script = """
import sys
import dp_polars, polars as pl
for made in (pl.col("x").dp.median([1]), pl.col("x").dp.quantile(0.5, [1])):
    assert made.query.claim._is_open
assert not hasattr(pl.col("x").dp, "len")
assert not any(name.partition(".")[0] == "opendp" for name in sys.modules)
"""
    assert succeed(script) == ""


def test_without_opendp_the_adapter_says_what_to_install():
    script = """
import sys
sys.modules["opendp"] = None  # as if it were not installed
import dp_polars.opendp
"""
    result = run(script)
    assert result.returncode == 1
    assert "the package opendp must be installed" in result.stderr
    assert "pip install 'dp-polars[opendp]'" in result.stderr


def test_another_package_that_owns_the_accessor_is_not_taken_over_silently():
    script = """
import polars as pl
@pl.api.register_expr_namespace("dp")
class Other:
    def __init__(self, expr): ...
import dp_polars
"""
    result = run(script)
    assert result.returncode == 1
    assert "namespace 'dp'" in result.stderr


@pytest.mark.usefixtures("opendp")
def test_a_failed_import_of_theirs_leaves_ours():
    script = """
import sys
import dp_polars, polars as pl
sys.modules["opendp.extras.mbi"] = None  # which their module imports
try:
    import opendp.extras.polars
except ImportError:
    print("failed")
assert type(pl.col("x").dp.median([1], epsilon=1)) is dp_polars.PrivateExpr
del sys.modules["opendp.extras.mbi"]
import opendp.extras.polars
pl.col("x").dp.len(signed=True)
"""
    assert succeed(script) == "failed\n"


CONTEXT = """
import dp_polars, opendp.prelude as dp, polars as pl
dp.enable_features("contrib")
data = pl.LazyFrame({"x": [1, 5, 9] * 100, "d": ["a", "b", "a"] * 100})
context = dp.Context.compositor(
    data=data, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(epsilon=1e6), split_evenly_over=3,
    margins=[dp.polars.Margin(max_length=1000)],
)
"""


@pytest.mark.usefixtures("opendp")
@needs_frames
def test_inside_a_context_the_methods_are_theirs():
    script = """
print(context.query().select(pl.col("x").dp.median([1, 5, 9])).release().collect().item())
print(context.query().select(pl.col("x").dp.quantile(0.9, [1, 5, 9])).release().collect().item())
print(context.query().select(pl.col("x").dp.len(signed=True)).release().collect().item())
"""
    assert succeed(CONTEXT + script).split() == ["5", "9", "300"]


@pytest.mark.usefixtures("opendp")
@needs_frames
def test_inside_a_context_our_expressions_are_a_clean_error():
    # With a Python function as its outermost node, OpenDP would end the process.
    script = """
x, d = pl.col("x"), pl.col("d")
space = context.accountant.input_space
for plan in (
    data.select(x.dp.median([1, 5, 9], epsilon=1)),
    data.select((x + 1).dp.quantile(0.9, [1, 5, 9], rho=1).alias("y")),
    data.select(d.cast(pl.Enum(["a", "b"])).dp.mode(epsilon=1)),
    data.select(x.dp.median([1, 5, 9], epsilon=1).over("d")),
    data.group_by("d").agg(x.dp.argmax(sensitivity=1, epsilon=1)),
):
    try:  # what a release calls, many times
        dp.m.make_private_lazyframe(*space, dp.max_divergence(), plan, global_scale=1.0)
    except dp.OpenDPException as error:
        print(error.variant)
assert context.query().select(x.dp.len(signed=True)).release().collect().item() == 300
"""
    printed = succeed(CONTEXT + script).split()
    assert len(printed) == 5
    assert set(printed) <= {"MakeMeasurement", "MakeTransformation"}


PICKLED = """
import copy, pickle
import polars as pl

import opendp.prelude, opendp.extras.polars
import dp_polars

accessor = pickle.loads(pickle.dumps(pl.col("x").dp))
assert type(accessor) is type(pl.col("x").dp)
assert accessor.expr.meta.eq(pl.col("x"))
assert isinstance(copy.deepcopy(accessor).mode([1], epsilon=1), dp_polars.PrivateExpr)
"""


def test_the_shared_accessor_may_be_pickled(opendp):
    succeed(PICKLED)
