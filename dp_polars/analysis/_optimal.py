"""The least error of private selections by differences of scores, on a lattice of scores: a linear program."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from dp_polars._base.arrays import owners
from dp_polars._base.extras import require
from dp_polars._base.numbers import Number, positive_fraction, positive_int

if TYPE_CHECKING:
    from numpy.typing import NDArray


def lattice_scores(n: int, levels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the score vectors of `optimal_expected_error`, one for each class of permuted ones.

    Parameters
    ----------
    n
        Candidates, at least 1.
    levels
        Scores that a candidate can have, at least 1: 0, −2, …, −2·(levels − 1), for sensitivity 1.

    Returns
    -------
    scores : numpy.ndarray
        Shape (s, n), int64: each row descends from 0.
    orders : numpy.ndarray
        Shape (s,), int64: how many different vectors are a permutation of the row.
    """
    gaps = np.array(_gap_classes(positive_int("n", n), positive_int("levels", levels)), np.int64)
    orders = [math.factorial(n) // math.prod(map(math.factorial, np.bincount(row).tolist())) for row in gaps]
    return -2 * gaps, np.array(orders, np.int64)


def optimal_expected_error(n: int, levels: int, epsilon: Number) -> float:
    """Return the least mean error, on a lattice, of a private selection that looks at differences of scores alone.

    The mean goes over all vectors of `n` scores from {0, −2, …, −2·(levels − 1)} whose best is 0. A
    mechanism is held to what `epsilon`-DP with sensitivity 1 asks for where one candidate moves by one step
    of 2: it rises by 1 and all others fall by 1. So no `epsilon`-DP mechanism does better that looks only at
    differences of scores (is shift-invariant). One that looks at the scores themselves can: see the notes.

    Parameters
    ----------
    n
        Candidates, at least 1.
    levels
        Scores that a candidate can have, at least 1.
    epsilon
        The privacy loss, above 0.

    Returns
    -------
    float
        In units of the sensitivity. Solved by SciPy's HiGHS (extra ``analysis``) to about 1e-7, after
        merging what permuting the candidates maps to each other.

    Notes
    -----
    Permute-and-flip has this error wherever `epsilon` is at least 2·ln((1 + √5)/2), about 0.9624: its overall
    error is the least among *regular* mechanisms, which are symmetric, monotone and shift-invariant (McKenna &
    Sheldon 2020, arXiv 2010.12603, Theorem 3). Symmetry costs nothing here, for a mechanism may first permute
    the candidates at random. Shift invariance does: with n = 3 and 2 levels, the best mechanism on all integer
    scores has the error 0.3153 at `epsilon` = 1, permute-and-flip 0.3818 (0.1160 and 0.1494 at 2).

    Examples
    --------
    >>> from dp_polars.analysis import expected_error
    >>> scores, orders = lattice_scores(3, 4)
    >>> errors = [expected_error(row, epsilon=1) for row in scores]
    >>> ratio = np.average(errors, weights=orders) / optimal_expected_error(3, 4, epsilon=1)
    >>> print(f"{ratio:.6f}")
    1.000000
    """
    optimize, sparse = require("scipy.optimize", extra="analysis"), require("scipy.sparse", extra="analysis")
    ratio = math.exp(-float(positive_fraction("epsilon", epsilon)))
    scores, orders = lattice_scores(n, levels)
    classes = [tuple(row) for row in (scores // -2).tolist()]

    # One variable for each class of vectors and each gap in it: the probability of one candidate at that gap.
    variable = {key: i for i, key in enumerate((row, gap) for row in classes for gap in sorted(set(row)))}
    sizes = np.array([row.count(gap) for row, gap in variable])
    owner = owners(np.array([len(set(row)) for row in classes]))
    cost = np.array([gap for _, gap in variable]) * sizes * orders[owner]
    total_is_one = sparse.csr_array((sizes, (owner, np.arange(len(variable)))))

    pairs = sorted(_neighboring_variables(classes, variable, levels))
    rows = np.arange(len(pairs))
    larger, smaller = np.array(pairs, np.int64).reshape(-1, 2).T
    private = sparse.csr_array(
        (np.repeat([ratio, -1.0], len(pairs)), (np.tile(rows, 2), np.concatenate([larger, smaller]))),
        shape=(len(pairs), len(variable)),
    )
    solution = optimize.linprog(
        cost / orders.sum(),
        A_ub=private,
        b_ub=np.zeros(len(pairs)),
        A_eq=total_is_one,
        b_eq=np.ones(len(classes)),
        method="highs",
    )
    return 2 * float(solution.fun)


def _gap_classes(n: int, levels: int) -> list[tuple[int, ...]]:
    rest = itertools.combinations_with_replacement(range(levels), n - 1)
    return [(0, *gaps) for gaps in rest]


def _neighboring_variables(
    classes: list[tuple[int, ...]], variable: dict[tuple[tuple[int, ...], int], int], levels: int
) -> set[tuple[int, int]]:
    """Return the pairs (a, b) with exp(−epsilon)·probability a ≤ probability b."""
    pairs = set()
    for row, mover in itertools.product(classes, range(len(classes[0]))):
        moved = [gap - (i == mover) for i, gap in enumerate(row)]
        best = min(moved)
        neighbor = tuple(sorted(gap - best for gap in moved))
        if neighbor[-1] >= levels:
            continue
        for gap, after in zip(row, moved, strict=True):
            a, b = variable[row, gap], variable[neighbor, after - best]
            pairs |= {(a, b), (b, a)}
    return pairs
