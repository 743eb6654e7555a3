"""What all tests share."""

from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import Phase, settings

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("no deadline", settings(), deadline=None)
# For tests/mutation: that a test fails is all that counts, so nothing is made small that fails.
settings.register_profile(
    "mutants", settings(), deadline=None, database=None, phases=[Phase.explicit, Phase.generate], max_examples=40
)
settings.load_profile("no deadline")


# Suites of many alike cases: of so many the quick run tries one, always the same one, and `-m ''` all.
THINNED = {
    "tests/engines/test_conformance.py": 4,
    "tests/frames/test_pipelines.py": 3,
    "tests/interop/test_contexts.py": 7,
    "tests/mechanisms/test_exact_race.py": 3,
    "tests/mechanisms/test_leading.py": 5,
    "tests/privacy/test_released.py": 4,
    "tests/questions/test_sums.py": 3,
    "tests/spark/test_conformance.py": 3,
    "tests/sql/test_conformance.py": 3,
    "tests/steps/test_person_gate.py": 3,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        file = item.nodeid.partition("::")[0]
        if crc32(item.nodeid.encode()) % THINNED.get(file, 1):
            item.add_marker("alike")


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
