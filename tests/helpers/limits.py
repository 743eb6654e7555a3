"""Choices by the rule of limits and clipping bounds alone."""

from fractions import Fraction

from dp_polars._accounting.claims import claim_for_scores
from dp_polars._base.numbers import system_rng


def claim_of(rule, loss):
    """What a choice of one candidate loses: permute-and-flip in epsilon, bounded range in rho."""
    return claim_for_scores(loss, None, Fraction(rule.score_range, 2), False)


def drawn(rule, beyond, loss):
    """A candidate, drawn at this loss."""
    return rule.candidates[rule.place(beyond, claim_of(rule, loss), system_rng())]
