"""Lists of quantiles of each group."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, check_rate
from dp_polars._base.arrays import Ints, owners, starts
from dp_polars._base.numbers import Number, show
from dp_polars._codes.candidates import Ordered
from dp_polars._codes.codings import Coding, NearestCoding
from dp_polars._codes.grids import Grid, distance_unit
from dp_polars._draws.quantile_trees import Node, TreeDraw, digit_bits, rows_off, tree
from dp_polars._mechanisms.laws import LAWS
from dp_polars._questions.choices import as_alpha
from dp_polars._questions.lists import ListQuery, Mistakes, in_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dp_polars._accounting.terms import NeighboringRelation
    from dp_polars._draws.histograms import Histogram

# Quantiles that are asked for at once.
Alphas: TypeAlias = "Sequence[Number] | NDArray[np.floating]"

# For a quantile of a part of the rows. With it, the gaps of 2**38 rows fit into 62 bits.
_LARGEST_DENOMINATOR = 2**24
_MOST_SHOWN = 5


@dataclass(frozen=True)
class QuantileList(ListQuery):
    """The candidates nearest to several lower quantiles of each group, ascending.

    The claim's draws are the levels of the tree (`_draws/quantile_trees.py`). A row is in one part of each level, and
    moves the score of its draw by R of that draw at most. Such a draw has the rate λ/R, λ being the claim's: so a level
    costs one row what a draw costs whose range is 1, and the claim's range is 1, or 2 under "replace_one".

    Parameters
    ----------
    alphas
        Strictly ascending, between 0 and 1.
    """

    alphas: tuple[Fraction, ...]
    candidates: Ordered
    claim: Claim

    def __post_init__(self) -> None:
        for node in () if self.claim.is_open else self.root.nodes():
            check_rate(self.claim.rate / node.score_range, self.claim.loss)

    @property
    def root(self) -> Node:
        """The tree of the quantiles."""
        return tree(self.alphas)

    @property
    def width(self) -> int:
        return len(self.alphas)

    @property
    def is_ordered(self) -> bool:
        """Whether answers lie on a line: each of a list does."""
        return True

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once: rows count, as for one quantile."""
        return False

    @property
    def bounds_people(self) -> bool:
        """Whether the range also bounds one person's effect."""
        return False

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return the range of every draw, whose rates are for scores of range 1.

        A replacement removes one row and adds another, perhaps in another part: each of the two moves the scores of its
        draw by half of this at most. Two such draws cost no more than one that both rows move, for costs are convex.
        """
        return Fraction(1 if relation == "add_or_remove_one" else 2)

    @property
    def fixed_type(self) -> pl.DataType:
        """Type of the answers."""
        return pl.List(self.candidates.dtype)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type; a TypeError where a column has none."""
        self.coding(*columns).encoder()
        return self.fixed_type

    def coding(self, *columns: pl.DataType) -> Coding:
        """Return the codes of rows: each value counts as its nearest candidate."""
        return NearestCoding(self.candidates, *columns)

    def draw_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:  # noqa: ARG002
        """Draw the codes of each group's list."""
        size = self.candidates.size
        law = LAWS[self.claim.mechanism]
        return TreeDraw(self.root, size, digit_bits(size), self.claim.rate, law).groups(histogram)

    def true_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:  # noqa: ARG002
        """Return the codes of the lower quantiles."""
        found = np.zeros((len(histogram.sizes), self.width), np.int64)
        some = histogram.sizes > 0
        running, totals = np.cumsum(histogram.weights), histogram.totals
        for i, alpha in enumerate(self.alphas):
            ranks = -(-alpha.numerator * totals // alpha.denominator)
            found[some, i] = histogram.codes[np.searchsorted(running, starts(totals) + ranks)[some]]
        return found

    def mistakes(self, codes: Ints, histogram: Histogram, *columns: pl.DataType) -> Mistakes:
        """Return how far the answers are from the true ones, and by how many rows they miss, each on average."""
        true = self.true_codes(histogram, *columns)
        below, upto = (self._rows(histogram, ends) for ends in (codes, codes + 1))
        misses = np.zeros(codes.shape)
        for i, alpha in enumerate(self.alphas):
            num, den = alpha.numerator, alpha.denominator
            aim = num * histogram.totals
            # The gap of the score (`QuantileScore`), in rows.
            misses[:, i] = np.maximum(np.maximum(aim - den * upto[:, i], den * below[:, i] - aim + 1), 0) / den
        if isinstance(self.candidates, Grid):
            distances = abs(self.candidates.distances(codes - true))
        else:
            places = self.candidates.places()
            distances = abs(places[codes] - places[true])
        right, ranks = (misses == 0).all(axis=1), misses.mean(axis=1)
        return Mistakes(right, distances.mean(axis=1), distances.max(axis=1), ranks)

    @staticmethod
    def _rows(histogram: Histogram, codes: Ints) -> Ints:
        """Return how many rows of each group lie below codes of shape (g, width)."""
        groups, width = codes.shape
        # Ranks of codes are small numbers, so that a group and a rank fit into 64 bits.
        _, ranks = np.unique(np.concatenate([histogram.codes, codes.ravel()]), return_inverse=True)
        ranks = ranks.ravel()
        number, size = len(histogram.codes), int(ranks.max(initial=0)) + 1
        cells = owners(histogram.sizes) * size + ranks[:number]
        asked = np.repeat(np.arange(groups) * size, width) + ranks[number:]
        upto = np.append(0, np.cumsum(histogram.weights))[np.searchsorted(cells, asked)].reshape(groups, width)
        return upto - starts(histogram.totals)[:, None]

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:  # noqa: ARG002
        """Return the lists of candidates."""
        return in_lists(self.candidates.take(codes.ravel()), self.width)

    @property
    def distance_unit(self) -> str:
        """What distances between the candidates are measured in."""
        return distance_unit(self.candidates.dtype)[0]

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:  # noqa: ARG002
        """Return by how many rows all answers of a list miss at most, with a probability of at least 1 − `beta`."""
        return rows_off(self.root, size, self.claim.rate, LAWS[self.claim.mechanism], beta)

    def __str__(self) -> str:
        shown = ", ".join(show(alpha) for alpha in self.alphas)
        if self.width > _MOST_SHOWN:
            shown = f"{self.width} from {show(self.alphas[0])} to {show(self.alphas[-1])}"
        return f"quantiles ({shown}) on {self.candidates}"


def as_alphas(alphas: Alphas) -> tuple[Fraction, ...]:
    """Return the quantiles of a list, as exact fractions, which must ascend."""
    if isinstance(alphas, np.ndarray) and alphas.ndim != 1:
        msg = f"alpha must be a number or a list of numbers, got an array of {alphas.ndim} dimensions."
        raise TypeError(msg)
    exact = tuple(as_alpha(f"alpha[{i}]", alpha) for i, alpha in enumerate(alphas))
    if not exact:
        msg = "alpha must be a number or a list of at least one, got an empty list."
        raise ValueError(msg)
    for before, after in pairwise(exact):
        if before == after:
            msg = (
                f"alpha must not repeat, got {show(after)} more than once.\n\n"
                "Hint: the loss is shared by all of a list, so asking twice makes every answer worse."
            )
            raise ValueError(msg)
        if before > after:
            msg = (
                f"alpha must be ascending, got {show(before)} before {show(after)}.\n\n"
                "Hint: answers come in the order of the list, and never decrease: sort it."
            )
            raise ValueError(msg)
    for node in tree(exact).nodes():
        if not node.alpha.denominator <= _LARGEST_DENOMINATOR:
            msg = (
                "alpha must be a list of fractions whose ratios of differences have a denominator of at most "
                f"{_LARGEST_DENOMINATOR:,}, got {node.alpha.denominator:,}.\n\n"
                "Hint: round them all to two or three decimals."
            )
            raise ValueError(msg)
    return exact
