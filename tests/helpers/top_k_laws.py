"""Exact laws of top-k lists, by the definition: every list of k distinct candidates."""

import functools
import itertools
import math

from tests.helpers import reference


def lists(size, k):
    """All lists, in their order."""
    return list(itertools.permutations(range(size), k))


@functools.cache
def one_round(counts, rate, mechanism):
    return reference.floats(reference.law(list(counts), rate=rate, mechanism=mechanism, digits=17)).tolist()


@functools.cache
def in_rounds(counts, k, rate, mechanism):
    """Probability of each list where one candidate after the other is drawn from those that are left."""
    law = []
    for chosen in lists(len(counts), k):
        left, p = list(range(len(counts))), 1.0
        for candidate in chosen:
            best = max(counts[i] for i in left)
            of_left = one_round(tuple(counts[i] - best for i in left), rate, mechanism)
            p *= of_left[left.index(candidate)]
            left.remove(candidate)
        law.append(p)
    return law


def missed(counts, chosen):
    """The largest count that a list misses."""
    best = sorted(counts, reverse=True)
    return max(most - counts[candidate] for most, candidate in zip(best, chosen, strict=False))


@functools.cache
def jointly(counts, k, rate):
    """Probability of each list by the exponential mechanism on all of them."""
    weights = [math.exp(-float(rate) * missed(counts, chosen)) for chosen in lists(len(counts), k)]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def law_of(counts, k, rate, mechanism):
    """The law of a list, by the name of its mechanism."""
    counts = tuple(int(n) for n in counts)
    return jointly(counts, k, rate) if mechanism == "joint" else in_rounds(counts, k, rate, mechanism)
