"""What a call refuses, in one line."""

import pytest


def refused(error, words, call, /, *arguments, **options):
    """Check that a call raises an error of a class, or of one of several, whose message holds a pattern; return it.

    Where the pattern is None, any message will do.
    """
    with pytest.raises(error, match=words) as found:
        call(*arguments, **options)
    return found.value
