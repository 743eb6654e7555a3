"""Public values that users give: candidates, keys, and partners of a join."""

import pickle
from typing import cast

import polars as pl


def unshared(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a copy in memory that nothing else refers to.

    A frame can be changed in place, and a NumPy array that it was made of written into. A value that is repeated after
    the check would multiply the rows of a person. Polars' own copies, `gather` too, still share the bytes of texts.
    """
    if pl.Object in frame.dtypes:
        msg = "a public frame must have columns of Polars' types, got one of type Object."
        raise TypeError(msg)
    return cast("pl.DataFrame", pickle.loads(pickle.dumps(frame)))
