"""Lists of quantiles, and the top k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._accounting.claims import check_rate
from dp_polars._accounting.costs import ALL
from dp_polars._accounting.terms import NeighboringRelation, Terms, Unit
from dp_polars._base.numbers import Ints, Number, owners, show, starts
from dp_polars._bins.candidates import Categories, Grid, Ordered, distance_unit
from dp_polars._bins.weights import ONE_EACH, Weights
from dp_polars._mechanisms.drawing import Draw, of_parts
from dp_polars._mechanisms.histograms import CountScore, Histogram
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._mechanisms.quantile_trees import Node, TreeDraw, digit_bits, levels_of, rows_off, tree
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.top_k import Ranking, counts_at, draw_in_rounds, draw_jointly
from dp_polars._statistics.categories import OfCategories, Ranked, as_alpha, how, step_of
from dp_polars._statistics.measures import counts_at_loss
from dp_polars._statistics.statistic import HistogramQuery, ListQuery, Mistakes, in_lists

# The levels of a list of quantiles.
Alphas: TypeAlias = "Sequence[Number] | NDArray[np.floating]"

# For a quantile of a part of the rows. Then the gaps of 2**38 rows fit into 62 bits.
_LARGEST_DENOMINATOR = 2**24
_MOST_SHOWN = 5


@dataclass(frozen=True)
class QuantileList(Ranked, ListQuery):
    """The candidates nearest to several lower quantiles of each group, ascending.

    The claim's draws are the levels of the tree (`_mechanisms/quantile_trees.py`). A row is in one part of each level,
    and moves the score of that draw only, by at most R. Such a draw has the rate λ/R, with λ the claim's rate. So one
    row's effect on a level costs as much as a draw of range 1. The claim's range is 1, or 2 under "replace_one".
    """

    alphas: tuple[Fraction, ...]  # strictly ascending, between 0 and 1
    candidates: Ordered | None
    terms: Terms

    def __post_init__(self) -> None:
        for node in () if self.claim._is_open else self.root.nodes():
            check_rate(self.claim.rate / node.score_range, self.claim.loss)

    @property
    def draws(self) -> int:
        return levels_of(self.width)

    @property
    def root(self) -> Node:
        return tree(self.alphas)

    @property
    def width(self) -> int:
        return len(self.alphas)

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return the range of every draw, at rates for scores of range 1: `docs/proofs/quantiles.md`, Theorem 2."""
        return Fraction(1 if relation == "add_or_remove_one" else 2)

    def levels_of(self, relation: NeighboringRelation) -> tuple[Fraction, ...]:
        """Return each level's R if another row of its part replaces a row, as a part of 2, the most."""
        if relation == "add_or_remove_one":
            return ()
        levels, nodes = list[Fraction](), [self.root]
        while nodes:
            levels.append(max(1 / (2 * max(node.alpha, 1 - node.alpha)) for node in nodes))
            nodes = [child for node in nodes for child in (node.left, node.right) if child is not None]
        return tuple(levels) if min(levels) < 1 else ()

    @property
    def fixed_type(self) -> pl.DataType | None:
        return None if self.candidates is None else pl.List(self.candidates.dtype)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        self.binning(*columns).encoder()
        return pl.List(self.points_of(*columns).dtype)

    def draw_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:  # noqa: ARG002
        size = self.points.size
        law = LAWS[self.claim.mechanism]
        return TreeDraw(self.root, size, digit_bits(size), self.claim.rate, law).groups(histogram)

    def true_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:  # noqa: ARG002
        found = np.zeros((len(histogram.sizes), self.width), np.int64)
        some = histogram.sizes > 0
        running, totals = np.cumsum(histogram.weights), histogram.totals
        for i, alpha in enumerate(self.alphas):
            ranks = -(-alpha.numerator * totals // alpha.denominator)
            found[some, i] = histogram.codes[np.searchsorted(running, starts(totals) + ranks)[some]]
        return found

    def mistakes(self, codes: Ints, histogram: Histogram, *columns: pl.DataType) -> Mistakes:
        true = self.true_codes(histogram, *columns)
        below, upto = (self._rows(histogram, ends) for ends in (codes, codes + 1))
        misses = np.zeros(codes.shape)
        for i, alpha in enumerate(self.alphas):
            num, den = alpha.numerator, alpha.denominator
            aim = num * histogram.totals
            # The gap of the score (`QuantileScore`), in rows.
            misses[:, i] = np.maximum(np.maximum(aim - den * upto[:, i], den * below[:, i] - aim + 1), 0) / den
        if isinstance(self.points, Grid):
            distances = abs(self.points.distances(codes - true))
        else:
            places = self.points.places()
            distances = abs(places[codes] - places[true])
        right, ranks = (misses == 0).all(axis=1), misses.mean(axis=1)
        return Mistakes(right, distances.mean(axis=1), distances.max(axis=1), ranks)

    @staticmethod
    def _rows(histogram: Histogram, codes: Ints) -> Ints:
        """Return the number of each group's rows below codes of shape (g, width)."""
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
        return in_lists(self.points.take(codes.ravel()), self.width)

    @property
    def distance_unit(self) -> str:
        return distance_unit(self.points.dtype)[0]

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:  # noqa: ARG002
        """Return by how many rows all answers of a list miss at most, with a probability of at least 1 − `beta`."""
        return rows_off(self.root, size, self.claim.rate, LAWS[self.claim.mechanism], beta)

    def __str__(self) -> str:
        shown = ", ".join(show(alpha) for alpha in self.alphas)
        if self.width > _MOST_SHOWN:
            shown = f"{self.width} from {show(self.alphas[0])} to {show(self.alphas[-1])}"
        return f"quantiles ({shown}) {self._on}"


def as_alphas(alphas: Alphas) -> tuple[Fraction, ...]:
    if isinstance(alphas, np.ndarray) and alphas.ndim != 1:
        msg = f"quantile must be a number or a list of numbers, got an array of {alphas.ndim} dimensions."
        raise TypeError(msg)
    exact = tuple(as_alpha(f"quantile[{i}]", alpha) for i, alpha in enumerate(alphas))
    if not exact:
        msg = "quantile must be a number or a list of at least one, got an empty list."
        raise ValueError(msg)
    for before, after in pairwise(exact):
        if before == after:
            msg = (
                f"quantile must not repeat, got {show(after)} more than once.\n\n"
                "Hint: the loss is shared by all of a list, so the same one twice makes every answer worse."
            )
            raise ValueError(msg)
        if before > after:
            msg = (
                f"quantile must be ascending, got {show(before)} before {show(after)}.\n\n"
                "Hint: answers come in the order of the list, and never decrease: sort it."
            )
            raise ValueError(msg)
    for node in tree(exact).nodes():
        if not node.alpha.denominator <= _LARGEST_DENOMINATOR:
            msg = (
                "quantile must be a list of fractions whose ratios of differences have a denominator of at most "
                f"{_LARGEST_DENOMINATOR:,}, got {node.alpha.denominator:,}.\n\n"
                "Hint: round them all to two or three decimals."
            )
            raise ValueError(msg)
    return exact


# In pure DP, one joint draw is better than k rounds from this k on. On evenly spread counts, the largest count missed
# is about 2·k/ε on average with a joint draw. In rounds, it is k·(1 + 1/2 + … + 1/k)/ε. Neither depends on the number
# of candidates. `docs/design.md` has the trials.
JOINT_FROM = 5


@dataclass(frozen=True)
class TopK(OfCategories, ListQuery):
    """The k most common candidates, best first: in rounds, or jointly, as in `docs/proofs/top-k.md`.

    With weights, read sums for counts and `weights.most` for 1.
    """

    k: int
    candidates: Categories
    terms: Terms
    of_people: bool = True
    joint: bool = False  # one draw among all lists (`top_k.py`), instead of k draws without replacement
    weights: Weights = ONE_EACH

    @property
    def draws(self) -> int:
        return 1 if self.joint else self.k

    @property
    def mechanism(self) -> str | None:
        return "exponential" if self.joint else self.terms.mechanism

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        # The joint score of one candidate is the score of a mode.
        return CountScore().range(relation) * (2 if self._is_of_lists else 1) * self.weights.most

    @property
    def _is_of_lists(self) -> bool:
        return self.joint and self.k > 1

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return 3/4 if one row of a group replaces another; a person may move all counts."""
        is_of_rows = self._is_of_lists and relation == "replace_one" and not self.of_people
        return Fraction(3, 4) if is_of_rows else ALL

    def among(self, values: pl.Series) -> TopK:
        return replace(self.at_most(len(values)), candidates=Categories(values))

    def at_most(self, number: int) -> TopK:
        """Return the statistic with lists of this length, if they are longer, at the same loss."""
        return replace(self, k=min(self.k, number))

    @property
    def fixed_type(self) -> pl.DataType | None:
        return None if self.candidates.values is None else pl.List(self.candidates.values.dtype)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        values = self.values(*columns)
        if not self.selects:
            check_number(self.k, len(values))
        self.weights.units(*columns)  # raises if the column can't be weights
        return pl.List(values.dtype)

    @property
    def width(self) -> int:
        return self.k

    def draw_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        rate = self.claim._rate_in(step_of(self.weights, *columns))
        draw = Draw(self.binning(*columns).size, CountScore(), rate, LAWS[self.claim.mechanism])
        drawn = draw_jointly if self.joint else draw_in_rounds
        parts = of_parts(lambda part: drawn(draw, part, self.k), histogram, self.k)
        return np.concatenate([np.empty((0, self.k), np.int64), *parts])

    def true_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        """Return the codes of each group's k most common candidates, shape (g, k), the first of equal ones first."""
        ranking = Ranking.of(histogram, self.binning(*columns).size)
        return ranking.codes_at(np.tile(np.arange(self.k), (len(histogram.sizes), 1)))

    def mistakes(self, codes: Ints, histogram: Histogram, *columns: pl.DataType) -> Mistakes:
        """Return the largest count, or weight, that each list misses: how far a j-th answer is below the j-th best."""
        best = counts_at(histogram, self.true_codes(histogram, *columns))
        missed = (best - counts_at(histogram, codes)).max(axis=1)
        wrong = missed * float(step_of(self.weights, *columns))
        return Mistakes(missed == 0, wrong, wrong)

    @property
    def distance_unit(self) -> str | None:
        return self.error_unit

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        return in_lists(self.values(*columns).gather(codes.ravel()), self.k)

    def in_unit(self, unit: Unit) -> TopK:
        """Return the statistic with the same loss in another unit; that may replace rounds by one joint draw."""
        changed = super().in_unit(unit)
        is_asked = self.terms.mechanism is not None or unit == self.terms.loss.unit
        return changed if is_asked else replace(changed, joint=is_joint(self.k, unit))

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:
        """Return a largest count missed that is exceeded with probability at most `beta`: top-k.md, Theorem 4."""
        size = max(size, self.k)  # as long as candidates are not selected, fewer may stand for them
        if self.joint:
            lists = math.lgamma(size + 1) - math.lgamma(size - self.k + 1)
            most = lists - math.log(beta) if size > 1 else 0.0
        else:
            odds = LAWS[self.claim.mechanism].odds
            wrong = sum(odds(size - j) for j in range(self.k) if size - j > 1)
            most = math.log(wrong / beta) if wrong else 0.0
        return self.weights.missed(max(0.0, most) / float(self.claim.rate), *columns)

    def alternative(self, *columns: pl.DataType) -> HistogramQuery | None:
        if self.weights.is_column or self.selects or (self.candidates.values is None and not columns):
            return None
        return counts_at_loss(self.terms, self.values(*columns))

    def note(self, size: int, alternative: HistogramQuery | None) -> str | None:
        notes = []
        if alternative is not None:
            # If the noise of the k best is at least −a, the j-th highest noisy count is at least c_j − a.
            # No noise is above b.
            noise = alternative.claim
            ranked = float(noise_bound(noise, 0.05 / self.k) + noise_bound(noise, 0.05 / size))
            if ranked < self.error(size, 0.05):
                most = noise.contributions.per_group
                notes.append(
                    f"Better: value_counts, sorted. One person counts for at most {most} of the candidates of a group, "
                    f"so at the same loss its top {self.k} has an error_95 of {ranked:.3g}."
                )
        if not self.claim._is_asked and self.claim.loss.unit == "epsilon":
            one_draw = 2 / float(self.claim.rate) * (self.k / 2 if self.joint else 1)
            rounds = one_draw / 2 * sum(1 / n for n in range(1, self.k + 1))
            drawn = f"One joint draw, for k >= {JOINT_FROM}" if self.joint else f"Rounds, for k < {JOINT_FROM}"
            notes.append(
                f"{drawn}: on evenly spread counts the error is about {one_draw:.3g} by a joint draw, {rounds:.3g} in "
                "rounds."
            )
        return " ".join(notes) or None

    def __str__(self) -> str:
        return f"top {self.k} of {self.candidates}{how(self)}" + (", jointly" if self.joint else "")


def is_joint(k: int, unit: Unit) -> bool:
    return unit == "epsilon" and k >= JOINT_FROM


def check_number(k: int, size: int) -> None:
    if not k <= size:
        msg = f"k must be at most the number of candidates, {size:,}, got {k:,}."
        raise ValueError(msg)
