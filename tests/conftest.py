"""What all tests share."""

from hypothesis import settings

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("no deadline", settings(), deadline=None)
settings.load_profile("no deadline")


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
