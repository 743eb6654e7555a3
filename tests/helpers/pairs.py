"""Pairs of neighbouring laws, each as its privacy losses and their probabilities, and their exact composition."""

import math

import numpy as np


def deltas(losses, epsilons):
    """The δ of independent pairs at an ε, or at each of several, by convolution."""
    total, mass = np.zeros(1), np.ones(1)
    for values, probabilities in losses:
        total, mass = np.add.outer(total, values).ravel(), np.multiply.outer(mass, probabilities).ravel()
    found = np.array([(mass * np.maximum(-np.expm1(t - total), 0)).sum() for t in np.atleast_1d(epsilons)])
    return found if np.ndim(epsilons) else found.item()


def response(x):
    """Randomized response."""
    p = 1 / (1 + math.exp(-x))
    return np.array([x, -x]), np.array([p, 1 - p])


def gaussians(x, steps):
    """Two laws of discrete Gaussian noise that are `steps` apart, and x deviations."""
    deviation = steps / x
    places = np.arange(-math.ceil(15 * deviation) - steps, math.ceil(15 * deviation) + 2 * steps + 1)
    laws = [np.exp(-(((places - shift) / deviation) ** 2) / 2) for shift in (0, steps)]
    return tuple(law / law.sum() for law in laws)


def losses_of(p, q):
    """Two laws: each loss once, rounded down by a hair at most; very rare outcomes are left out."""
    seen = (p > 1e-18) & (q > 1e-18)
    losses, where = np.unique(np.round(np.log(p[seen] / q[seen]), 11), return_inverse=True)
    return losses - 1e-11, np.bincount(where, p[seen])
