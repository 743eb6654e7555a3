"""What calls refuse: one in a line, and tables of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(error, words, call, /, *arguments, **options):
    """Check that a call raises an error of a class, or of one of several, whose message holds a pattern; return it.

    Where the pattern is None, any message will do.
    """
    with pytest.raises(error, match=words) as found:
        call(*arguments, **options)
    return found.value


def refusals(*rows: tuple[Callable[..., Any], type[Exception], str]) -> pytest.MarkDecorator:
    """Cases of a test: calls, each with the class and the words of its error."""
    return pytest.mark.parametrize(("call", "error", "words"), rows)
