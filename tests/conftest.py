"""What all tests share."""

import secrets
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from zlib import crc32

import pytest
from hypothesis import Phase, settings

from dp_polars._base import numbers

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("no deadline", settings(), deadline=None)
# For tests/mutation: that a test fails is all that counts, so nothing is made small that fails.
settings.register_profile(
    "mutants", settings(), deadline=None, database=None, phases=[Phase.explicit, Phase.generate], max_examples=40
)
settings.load_profile("no deadline")


# Of a test's cases the quick run tries so many, always the same ones; `-m ''` tries all.
# With `--part-by TEXT` it is one of them, which the text chooses, and of all others a sixteenth.
MOST_CASES = 2
# Of databases more, for runs that try nothing else; of Spark, and of the suite that every way of Polars passes, fewer.
MOST_OF = {"tests/spark": 1 / 20, "tests/sql": 1 / 12, "tests/engines/test_conformance.py": 0}
# Files of which each case is a mechanism of its own.
OF_EACH = {"test_quick_laws.py"}


# With `--noise-by TEXT`, all noise of a test follows from the text and the test's name, and that of a fixture from the
# fixture's name: a run can be repeated. Without, each run draws other noise.
NOISE = Random()


def pytest_configure(config):
    if config.getoption("--noise-by") is not None:
        numbers.os = SimpleNamespace(urandom=lambda size: NOISE.randbytes(size))
        secrets.randbits = lambda bits: NOISE.getrandbits(bits)


@contextmanager
def noise_of(config, name):
    before = NOISE.getstate()
    NOISE.seed(f"{config.getoption('--noise-by')} {name}")
    try:
        yield
    finally:
        NOISE.setstate(before)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    with noise_of(request.config, f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param', '')}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with noise_of(item.config, item.nodeid):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    cases, by, rest = {}, config.getoption("--part-by"), set()
    of_most = MOST_CASES if by is None else 1

    def drawn(item):
        return crc32((item.nodeid if by is None else f"{by} {item.nodeid}").encode())

    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, alike in cases.items():
        share = next((share for path, share in MOST_OF.items() if name.startswith(path)), None)
        most = of_most if share is None else max(1, round(len(alike) * share))
        if alike[0].path.name not in OF_EACH:
            for item in sorted(alike, key=drawn)[most:]:
                item.add_marker("alike")
                if by is not None and drawn(item) % 16:
                    rest.add(item)
    items[:] = [item for item in items if item not in rest]
    config.hook.pytest_deselected(items=[*rest])


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        nargs="?",
        type=float,
        const=3600.0,
        default=None,
        metavar="SECONDS",
        help="search with the fuzzers (tests/fuzzing) for so long in all, an hour if it is not said, by new seeds",
    )
    parser.addoption("--part-by", metavar="TEXT", help="the text chooses the cases of each test: see MOST_CASES")
    parser.addoption("--noise-by", metavar="TEXT", help="draw the same noise for the same text, not other in each run")
    parser.addoption(
        "--dpbench",
        type=Path,
        metavar="FOLDER",
        help="where the histograms of DPBench lie (NAME.n4096.npy), which nobody may publish: runs what needs them",
    )


@pytest.fixture
def dpbench(request):
    """The folder that the command line names: no test looks for files outside the checkout by itself."""
    folder = request.config.getoption("--dpbench")
    return pytest.skip("--dpbench FOLDER names no data") if folder is None else folder
