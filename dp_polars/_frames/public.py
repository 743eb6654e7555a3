"""Public frames that users give: keys, and partners of a join."""

import polars as pl


def unshared(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a copy in memory of its own.

    A frame can be changed in place, and a NumPy array that it was made of written into. A key that is repeated after
    the check would multiply the rows of a person.
    """
    return frame.select(pl.all().gather(pl.int_range(pl.len())))
