"""What all tests share."""

from hypothesis import Phase, settings

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("no deadline", settings(), deadline=None)
# For tests/mutation: that a test fails is all that counts, so nothing is made small that fails.
settings.register_profile(
    "mutants", settings(), deadline=None, database=None, phases=[Phase.explicit, Phase.generate], max_examples=40
)
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
