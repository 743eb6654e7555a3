"""Limits and clipping bounds that a release has found privately, and what they do to people, in words."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dp_polars._accounting.terms import exact
from dp_polars._base.numbers import show
from dp_polars._statistics.limits import What, is_bound
from dp_polars._statistics.statistic import by_thousands

#: The name of the selection of groups.
THE_GROUPS = "the groups"


@dataclass(frozen=True)
class Found:
    """One limit, or clipping bound, that was found privately, and what it does to people."""

    what: What
    outputs: tuple[str, ...]  # the outputs that it serves; none: the groups are selected with it
    value: Fraction
    people: int  # how many people are beyond it, with noise
    bound: int  # how far that number may be off, with probability 0.95
    # How much of all people doesn't count, with noise, and how far that may be off: rows or groups, in rho at least so
    # many; of a bound how far the largest values of people are beyond it, in all.
    lost: Fraction
    lost_bound: Fraction
    noise: Fraction | None  # the expected noise of all groups together, measured as `lost`; None: there is none

    @property
    def name(self) -> str:
        """The limits and bounds that were found, with their outputs."""
        return f"{self.what} of {', '.join(self.outputs) or THE_GROUPS}"

    @property
    def is_bound(self) -> bool:
        return is_bound(self.what)

    @property
    def shown(self) -> str:
        return by_thousands(exact(self.value))

    @property
    def is_large(self) -> bool:
        """Whether more seems to be lost than the noise of the answers hides: their intervals then often miss."""
        return self.noise is not None and self.lost > max(self.noise, self.lost_bound)

    @property
    def _times(self) -> str:
        return f"{show(self.lost / self.noise, 2)} times" if self.noise else "many times"

    @property
    def loss_in_words(self) -> str:
        """How much of people doesn't count, with its 95 % confidence interval."""
        low, high = (_amount(max(self.lost + sign * self.lost_bound, Fraction(0))) for sign in (-1, 1))
        if self.is_bound:
            return f"their largest values are {low} to {high} beyond it in all"
        of = {"max_groups": "groups", "max_candidates": "candidates"}.get(self.what, "rows")
        return f"{low} to {high} of their {of} don't count"

    @property
    def warning(self) -> str:
        """The first line of a report, if more is lost than the noise hides."""
        return (
            f"{self.what}={self.shown} changes {', '.join(self.outputs)} by about {self._times} the noise: "
            f"{self.loss_in_words}, which no confidence interval covers."
        )

    def __str__(self) -> str:
        low, high = max(self.people - self.bound, 0), max(self.people + self.bound, 0)
        beyond = "people are below it" if self.what == "lower" else "people are beyond it"
        lost = f"; {self.loss_in_words}" if self.lost_bound else ""
        return f"{self.name}: {self.shown} ({low:,} to {high:,} {beyond}{lost})"


def _amount(value: Fraction) -> str:
    return f"{round(value):,}" if value >= 100 else show(value, 3)


class FoundLimits(tuple[Found, ...]):
    """Limits and clipping bounds that a release has found privately, one after the other."""

    __slots__ = ()

    @property
    def limits(self) -> dict[str, int]:
        """The contribution limits by name: of several that were found for different outputs, the largest.

        A limit of the rows that are drawn in each group would leave rows out of numbers, which have a norm.
        """
        found: dict[str, int] = {}
        for one in self:
            if one.outputs and not one.is_bound and one.what != "max_candidates":
                found[one.what] = max(int(one.value), found.get(one.what, 0))
        if "max_norm" in found:
            found.pop("max_rows_per_group", None)
        return found

    def __repr__(self) -> str:
        return "\n".join(map(str, self))
