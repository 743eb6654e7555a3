"""What gets noise, and which: recorded in place of the draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dp_polars._statistics import measures

if TYPE_CHECKING:
    import pytest

    from dp_polars._accounting.claims import Claim


class Noised(NamedTuple):
    """One draw: the claim that gives the noise its scale, and the true numbers."""

    claim: Claim
    values: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def scaled(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The numbers in units of the noise's scale."""
        return self.values * float(self.claim.rate)


def record(monkeypatch: pytest.MonkeyPatch) -> list[Noised]:
    """Let all noise be 0 from now on, and return the list of what would have got noise, in the order of drawing."""
    drawn: list[Noised] = []
    claims: list[Claim] = []

    def noise_of(claim: Claim, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        claims.append(claim)
        return np.zeros(count, np.int64)

    def add_noise(values: np.ndarray[Any, Any], noise: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        drawn.append(Noised(claims.pop(), values))
        return values + noise

    monkeypatch.setattr(measures, "noise_of", noise_of)
    monkeypatch.setattr(measures, "add_noise", add_noise)
    return drawn
