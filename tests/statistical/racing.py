"""Blocks of scores for races: as they are given, and the same ones in many groups, in one race."""

from fractions import Fraction

import numpy as np

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms.racing import LAWS, Blocks, race


class Words:
    """A source of words that begins as it is told, call by call, and is random from then on.

    Each call is an array of words, or makes one of their number.
    """

    def __init__(self, *calls):
        self.calls, self.random, self.drawn = list(calls), system_rng(), 0

    def __call__(self, count):
        self.drawn += count
        if not self.calls:
            return self.random(count)
        call = self.calls.pop(0)
        words = np.array(call(count) if callable(call) else call, np.uint64)
        assert len(words) == count
        return words


def never(group):
    """What stands for exact blocks that nobody may ask for."""
    raise AssertionError(group)


def blocks_of(gaps, starts, multiplicities=None, left_out=None, exact=None):
    """The blocks of groups that begin at these places; floats may be infinitely far apart."""
    gaps, starts = np.asarray(gaps), np.asarray(starts)
    m = None if multiplicities is None else np.asarray(multiplicities)

    def all_blocks(group):
        stop = starts[group + 1] if group + 1 < len(starts) else len(gaps)
        part = [Fraction(g) if np.isfinite(g) else Fraction(2) ** 1024 for g in gaps[starts[group] : stop].tolist()]
        return part.__getitem__, [1] * len(part) if m is None else m[starts[group] : stop].tolist()

    return Blocks(gaps, starts, exact or all_blocks, m, None if left_out is None else np.asarray(left_out))


def draw_blocks(scores, multiplicities, rate, mechanism, words, *, draws, left_out=0):
    """Winning block of each of many independent races.

    The last `left_out` blocks have no place among the flat blocks: they are far, and only the exact path knows them.
    """
    best = max(scores)
    exact = [best - score for score in scores]
    near = len(scores) - left_out
    dtype = np.float64 if any(isinstance(score, float) for score in scores) else np.int64
    m = None if multiplicities is None else np.array(multiplicities, np.int64)
    blocks = Blocks(
        np.tile(np.array(exact[:near], dtype), draws),
        np.arange(draws) * near,
        lambda _: ([Fraction(gap) for gap in exact].__getitem__, [1] * len(exact) if m is None else m.tolist()),
        None if m is None else np.tile(m[:near], draws),
        np.full(draws, left_out if m is None else m[near:].sum()) if left_out else None,
    )
    winners = race(blocks, rate, LAWS[mechanism], words)
    chosen = winners.blocks - blocks.starts
    for group, position in winners.left_out.items():
        assert winners.blocks[group] == -1
        chosen[group] = position
    assert ((chosen >= 0) & (chosen < len(scores))).all()
    return chosen
