"""Small data sets, their scores by the definition, and the scores that the kernel makes of them."""

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._mechanisms import drawing
from dp_polars._mechanisms.histograms import CountScore, QuantileScore
from dp_polars._mechanisms.racing import Winners
from dp_polars._statistics.categories import Mode
from tests.helpers import reference

# Rényi orders.
ORDERS = (1.001, 1.05, 1.3, 1.7, 2, 3, 5, 9, 17, 30, 50)


def renyi(p, q, order):
    """The Rényi divergence of laws that are given by their logarithms, along the last axis."""
    exponents = order * p + (1 - order) * q
    top = exponents.max(axis=-1)
    return (top + np.log(np.exp(exponents - top[..., None]).sum(axis=-1))) / (order - 1)


def all_counts(size, rows):
    """Every histogram of `size` candidates with at most `rows` rows, shape (n, size)."""
    every = [c for c in itertools.product(range(rows + 1), repeat=size) if sum(c) <= rows]
    return np.array(every, np.int64)


def neighbors(counts, relation, contributions=1):
    """Whether at most so many rows go, or come, between each data set and each other one; or so many are replaced."""
    change = counts[None] - counts[:, None]
    removed, added = np.maximum(-change, 0).sum(axis=2), np.maximum(change, 0).sum(axis=2)
    near = (removed <= contributions) & (added <= contributions)
    return near if relation == "replace_one" else near & ((removed == 0) | (added == 0))


def histograms(query, *tables, shape, times=1):
    """Every histogram, of shape (groups, size), that counting gives; what bounds keep is another one each time."""
    engine = PolarsEngine.of(*(table.lazy() for table in tables))
    work, found = query._request.bind(engine), set()
    for _ in range(times):
        [sparse] = engine.prepare_histograms(work)()
        dense = np.zeros(shape, np.int64)
        dense[np.repeat(np.arange(len(dense)), sparse.sizes), sparse.codes] = sparse.weights
        found.add(tuple(map(tuple, dense.tolist())))
    return found


def log_law(query, counts):
    """Log-probability of every candidate in one group, of a query with one mode or quantile."""
    [ask] = query._asks
    few = ask.query.too_few if isinstance(ask.query, Mode) else None
    alpha = None if isinstance(ask.query, Mode) else ask.query.alpha
    scores = scores_of(counts, alpha) + ([] if few is None else [few])
    return _log_law(tuple(scores), ask.query.claim.rate, ask.query.claim.mechanism)


@functools.cache
def _log_law(scores, rate, mechanism):
    return np.log(reference.floats(reference.law(list(scores), rate=rate, mechanism=mechanism, digits=20)))


def loss(query, one, other):
    """The largest log-ratio, either way, of the two laws of the released frame: groups are drawn independently."""
    ratios = np.array([log_law(query, a) - log_law(query, b) for a, b in zip(one, other, strict=True)])
    return float(max(ratios.max(axis=1).sum(), (-ratios).max(axis=1).sum()))


def largest_loss(query, relation, without, with_one, of_pair=loss):
    """The largest loss between all that may be drawn from: with no person and with each, or with one and another.

    Whatever bounds keep of a person is a histogram of its own: a mixture of laws that each keep a bound keeps it too.
    """
    if relation == "add_or_remove_one":
        pairs = itertools.product(without, set().union(*with_one))
    else:
        pairs = itertools.chain.from_iterable(itertools.starmap(itertools.product, itertools.combinations(with_one, 2)))
    return max(of_pair(query, *pair) for pair in pairs)


def check_alone(found_for, options, people=3, *, every=None, alone=None):
    """Raise unless what comes of each person is what comes of them alone; the first of the options is no rows.

    Return whether something came of them, as a set.

    Parameters
    ----------
    found_for
        An option for each person -> what comes of each.
    every
        What is chosen for all people; None: all choices.
    alone
        (place of a person, option) -> what comes of them alone, where that is not found by `found_for`.
    """

    @functools.cache
    def by_itself(place, option):
        return found_for([option if other == place else options[0] for other in range(people)])[place]

    seen = set()
    for chosen in itertools.product(options, repeat=people) if every is None else every:
        found = found_for(chosen)
        for place, option in enumerate(chosen):
            assert found[place] == (alone or by_itself)(place, option), (chosen, place)
            seen.add(bool(found[place]))
    return seen


def as_rows(counts, *, shuffle=False):
    """Codes of the rows of histograms of shape (g, size), and the lengths of the groups."""
    counts = np.asarray(counts)
    groups, size = counts.shape
    codes = np.repeat(np.tile(np.arange(size), groups), counts.ravel())
    lengths = counts.sum(axis=1)
    if shuffle:
        order = np.lexsort((np.random.default_rng(0).random(len(codes)), np.repeat(np.arange(groups), lengths)))
        codes = codes[order]
    return codes.astype(np.min_scalar_type(size)), lengths


def quantile_score(counts, candidate, alpha):
    """The quantile score: −max(0, num·N − den·A, den·L − num·N + 1)."""
    below, upto, total = sum(counts[:candidate]), sum(counts[: candidate + 1]), sum(counts)
    num, den = alpha.numerator, alpha.denominator
    return -max(0, num * total - den * upto, den * below - num * total + 1)


def score_of(alpha):
    return CountScore() if alpha is None else QuantileScore(alpha)


def scores_of(counts, alpha):
    """Scores of all candidates on one data set: counts, or of the quantile."""
    counts = [int(c) for c in counts]
    if alpha is None:
        return counts
    return [quantile_score(counts, candidate, alpha) for candidate in range(len(counts))]


def gaps_of(counts, alpha):
    """Best score minus score of each candidate of each data set, shape (g, size)."""
    scores = np.array([scores_of(one, alpha) for one in counts])
    return scores.max(axis=1, keepdims=True) - scores


def built_gaps(way, draw, codes, lengths):
    """Gap of each code of each group, as the kernel hands them to the race: exactly, and through all it does after.

    A stand-in for the race names each block in turn, and one for the uniform choice each code of the block.
    """
    groups, gaps = len(lengths), np.full((len(lengths), draw.size), -1, object)
    for turn in range(draw.size):
        turns = {}

        def race(blocks, rate, law, words, turn=turn, turns=turns):
            assert (rate, law) == (draw.rate, draw.law)
            winners = Winners(blocks.starts.copy())
            for group, (start, size) in enumerate(zip(blocks.starts.tolist(), blocks.sizes().tolist(), strict=True)):
                gap, multiplicities = blocks.exact(group)
                assert sum(multiplicities) == draw.size
                position = int(np.searchsorted(np.cumsum(multiplicities), turn, side="right"))
                turns[group] = (turn - sum(multiplicities[:position]), gap(position))
                if position < size:
                    winners.blocks[group] += position
                else:
                    winners.blocks[group] = -1
                    winners.left_out[group] = position
                flat = blocks.gaps[start : start + size]
                assert [Fraction(g) for g in flat.tolist()] == [gap(i) for i in range(size)]
                if blocks.left_out is not None:
                    assert blocks.left_out[group] == sum(multiplicities[size:])
            return winners

        def uniform_below(bounds, words, turns=turns):
            offsets = np.array([turns[group][0] for group in range(groups)])
            assert (offsets < bounds).all()
            return offsets

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drawing, "race", race)
            patch.setattr(drawing, "uniform_below", uniform_below)
            chosen = way(draw, codes, lengths)
        for group in range(groups):
            assert gaps[group, chosen[group]] == -1, "a code was named twice"
            gaps[group, chosen[group]] = turns[group][1]
    return gaps
