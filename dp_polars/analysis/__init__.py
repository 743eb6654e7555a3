"""Know before you spend: the quality of a query's answers on public or synthetic rows.

**Nothing here is private.** The functions show the frames that they get. Use public or synthetic rows, such as last
year's published data. `analysis.scores` has the exact laws of a choice among scores, and bounds for any scores.

Every function raises TypeError or ValueError for an argument that is not as described.
"""

from dp_polars.analysis import scores
from dp_polars.analysis._losses import loss_for
from dp_polars.analysis._profile import PrivacyProfile as PrivacyProfile
from dp_polars.analysis._profile import compose, privacy_profile
from dp_polars.analysis._rehearsal import simulate
from dp_polars.analysis._sizes import best_by_gap, error_by_size, rows_dropped, size_needed, synthetic

__all__ = [
    "best_by_gap",
    "compose",
    "error_by_size",
    "loss_for",
    "privacy_profile",
    "rows_dropped",
    "scores",
    "simulate",
    "size_needed",
    "synthetic",
]


def __dir__() -> list[str]:
    return __all__
