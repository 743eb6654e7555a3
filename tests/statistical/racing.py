"""Many draws at once: the same score blocks in many groups, in one race."""

from fractions import Fraction

import numpy as np

from dp_polars._mechanisms.racing import LAWS, Blocks, race


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
