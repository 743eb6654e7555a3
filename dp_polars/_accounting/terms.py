"""The terms of a question: its loss, the rows of one person, the neighbouring relation, and the mechanism asked for."""

from __future__ import annotations

from dataclasses import dataclass

from dp_polars._accounting.claims import Claim, Contributions, Loss, Mechanism, NeighboringRelation, check_relation
from dp_polars._base.numbers import Number, positive_int


@dataclass(frozen=True)
class Terms:
    """On what terms something is asked.

    Parameters
    ----------
    loss
        What one person may lose in all.
    contributions
        How many rows one person has. An expression can't know the groups, so all of them may lie in one.
    neighboring_relation
        "add_or_remove_one" or "replace_one".
    mechanism
        The word that was given; None: the unit of the loss chooses.
    """

    loss: Loss
    contributions: Contributions
    neighboring_relation: NeighboringRelation
    mechanism: str | None = None

    @classmethod
    def of(
        cls,
        epsilon: Number | None,
        rho: Number | None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> Terms:
        """Return the terms of these arguments."""
        loss, relation = Loss.of(epsilon=epsilon, rho=rho), check_relation(neighboring_relation)
        rows = positive_int("contributions", contributions)
        return cls(loss, Contributions(rows, rows), relation, mechanism)

    def claim(self, mechanism: Mechanism, *, draws: int = 1) -> Claim:
        """Return the claim of a question that is not made yet, with a range for which every loss has a rate.

        `HistogramQuery.on` puts the question's own range in its place.
        """
        return Claim(self.loss, mechanism, self.loss.value, self.contributions, self.neighboring_relation, draws=draws)
