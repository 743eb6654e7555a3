"""The least error of private selections that look at differences of scores alone: a linear program on a lattice.

`reproduce_paper.py` compares it with the errors of the two mechanisms.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse


def lattice_scores(n: int, levels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the score vectors of `optimal_expected_error`, and how many different ones are a permutation of each.

    Each has `n` scores from 0, −2, …, −2·(levels − 1), for sensitivity 1, and descends from 0.
    """
    rest = itertools.combinations_with_replacement(range(levels), n - 1)
    gaps = np.array([(0, *others) for others in rest], np.int64)
    orders = [math.factorial(n) // math.prod(map(math.factorial, np.bincount(row).tolist())) for row in gaps]
    return -2 * gaps, np.array(orders, np.int64)


def optimal_expected_error(n: int, levels: int, epsilon: float) -> float:
    """Return the least mean error, on a lattice, of a private selection that looks at differences of scores alone.

    The mean goes over all vectors of `n` scores from {0, −2, …, −2·(levels − 1)} whose best is 0. A
    mechanism is held to what `epsilon`-DP with sensitivity 1 asks for where one candidate moves by one step
    of 2: it rises by 1 and all others fall by 1. So no `epsilon`-DP mechanism does better that looks only at
    differences of scores (is shift-invariant). One that looks at the scores themselves can: see docs/paper.md.

    Solved by SciPy's HiGHS to about 1e-7, after merging what permuting the candidates maps to each other. Symmetry
    costs nothing here: a mechanism may first permute the candidates at random.
    """
    scores, orders = lattice_scores(n, levels)
    classes = [tuple(row) for row in (scores // -2).tolist()]

    # One variable for each class of vectors and each gap in it: the probability of one candidate at that gap.
    variable = {key: i for i, key in enumerate((row, gap) for row in classes for gap in sorted(set(row)))}
    sizes = np.array([row.count(gap) for row, gap in variable])
    owner = np.repeat(np.arange(len(classes)), [len(set(row)) for row in classes])
    cost = np.array([gap for _, gap in variable]) * sizes * orders[owner]
    total_is_one = sparse.csr_array((sizes, (owner, np.arange(len(variable)))))

    pairs = sorted(_neighboring_variables(classes, variable, levels))
    rows = np.arange(len(pairs))
    larger, smaller = np.array(pairs, np.int64).reshape(-1, 2).T
    private = sparse.csr_array(
        (np.repeat([math.exp(-epsilon), -1.0], len(pairs)), (np.tile(rows, 2), np.concatenate([larger, smaller]))),
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
