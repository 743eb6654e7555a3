"""Exact laws of many discrete Gaussians that move by one."""

import math

import numpy as np


def ratios(rate, numbers):
    """The law of the log-ratio of so many discrete Gaussians that move by one, in both directions: exact sums."""
    last = math.ceil(14 / rate) + 2
    mass = np.exp(-((np.arange(-last, last + 1) * rate) ** 2) / 2)
    one, law = mass / mass.sum(), np.ones(1)
    for _ in range(numbers):
        law = np.convolve(law, one)
    sums = np.arange(-numbers * last, numbers * last + 1)
    law, sums = law[law > 1e-25], sums[law > 1e-25]
    # P(k)/P(k − 1) = exp(rate²·(1 − 2k)/2), of all together by their sum.
    return [(law, rate**2 * (numbers / 2 + sign * sums)) for sign in (1, -1)]


def delta_of(laws, epsilon):
    """The hockey-stick divergence of the product of two such laws."""
    (first, one), (second, other) = laws
    found = [np.maximum(-np.expm1(epsilon - ratio - other), 0) @ second for ratio in one]
    return float(first @ np.array(found))
