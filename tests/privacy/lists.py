"""Exact laws of lists of quantiles, by the definition: all digits of all rows, all answers of all levels.

Nothing here is shared with `_mechanisms/quantile_trees.py` but the shape of the tree, which is public.
"""

import functools
import itertools
import math
from collections import Counter
from fractions import Fraction

from tests.helpers import reference
from tests.privacy.datasets import quantile_score


@functools.cache
def one_law(counts, alpha, rate, mechanism):
    """Probability of each candidate as the answer of one draw, from the counts of all of them."""
    scores = [quantile_score(counts, candidate, alpha) for candidate in range(len(counts))]
    if not sum(counts):
        scores = [0] * len(counts)  # where nobody is, all candidates are as good
    return reference.floats(reference.law(scores, rate=rate, mechanism=mechanism, digits=17)).tolist()


@functools.cache
def digits_of(rows, digits):
    """How the rows of one value fall on so many digits, and how probable that is."""
    found = {}
    for each in itertools.product(range(rows + 1), repeat=digits):
        if sum(each) == rows:
            ways = math.factorial(rows) // math.prod(map(math.factorial, each))
            found[each] = Fraction(ways, digits**rows)
    return found


@functools.cache
def of_pairs(pairs, node, low, high, rate, mechanism, digits):
    """Law of the answers of a node and those below it, from the rows and the candidates between two pairs."""
    own = rate / (2 * max(node.alpha.numerator, node.alpha.denominator - node.alpha.numerator))
    if node.left is None and node.right is None:
        first, last = low // digits, high // digits
        counts = tuple(sum(pairs[value * digits : (value + 1) * digits]) for value in range(first, last + 1))
        return {((node.index, first + i),): p for i, p in enumerate(one_law(counts, node.alpha, own, mechanism))}
    law = Counter()
    for i, p in enumerate(one_law(pairs[low : high + 1], node.alpha, own, mechanism)):
        answer, here = low + i, {((node.index, (low + i) // digits),): p}
        upto = tuple(n if pair <= answer else 0 for pair, n in enumerate(pairs))
        beyond = tuple(n - m for n, m in zip(pairs, upto, strict=True))
        for child, part, ends in ((node.left, upto, (low, answer)), (node.right, beyond, (answer, high))):
            if child is not None:
                there = of_pairs(part, child, *ends, rate, mechanism, digits)
                here = {a + b: q * r for a, q in here.items() for b, r in there.items()}
        law.update(here)
    return dict(law)


@functools.cache
def law_of_list(counts, root, rate, mechanism, digits):
    """Probability of each list of values, for rows with so many digits each."""
    law = Counter()
    for spread in itertools.product(*(digits_of(rows, digits).items() for rows in counts)):
        pairs = tuple(itertools.chain.from_iterable(each for each, _ in spread))
        weight = float(math.prod((p for _, p in spread), start=Fraction(1)))
        for answers, p in of_pairs(pairs, root, 0, len(pairs) - 1, rate, mechanism, digits).items():
            law[tuple(value for _, value in sorted(answers))] += weight * p
    return dict(law)
