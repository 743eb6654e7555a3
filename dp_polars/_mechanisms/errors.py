"""How far a choice may be from the best one: bounds that hold for all scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_polars._accounting.claims import Claim


def log_odds(k: int, beta: float, mechanism: str) -> float:
    """Return λ times the error that the bound gives."""
    if k == 1:
        return 0.0
    bound = (k - 1) / 2 if mechanism == "permute_and_flip" else k
    return max(0.0, math.log(bound / beta))


def error_bound(k: int, beta: float, claim: Claim) -> float:
    """Return an error that is exceeded with probability at most `beta`, in the units of the claim's range."""
    return log_odds(k, beta, claim.mechanism) / float(claim.rate)
