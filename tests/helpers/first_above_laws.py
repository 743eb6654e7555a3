"""The exact law of the first candidate above a threshold, with how far it is above."""

import numpy as np


def log_law(counts, threshold, rate, gaps=6):
    """Logs of the chance of each answer with each gap, and of none, of several groups, shape (groups, answers).

    With u = exp(−rate·z), uniform, a candidate reaches the threshold with the chance min(1, u·exp(rate·(q − T))), and
    ℓ more with that of T + ℓ. These are pieces of lines, so products of them are polynomials between their kinks.
    """
    counts = np.asarray(counts, float)
    steps = np.append(np.arange(gaps), np.inf)
    slopes = np.exp(rate * (counts[:, :, None] - threshold - steps))
    kinks = 1 / slopes[:, :, :-1].reshape(len(counts), -1)
    ends = np.sort(np.concatenate([np.minimum(kinks, 1), np.tile([0.0, 1.0], (len(counts), 1))], axis=1), axis=1)
    at, weights = np.polynomial.legendre.leggauss(counts.shape[1] // 2 + 2)
    widths = np.diff(ends, axis=1)
    wide = (widths > 0).any(axis=0)  # candidates with equal counts have their kinks together
    half = widths[:, wide, None] / 2
    u = (ends[:, :-1][:, wide, None] + half * (1 + at)).reshape(len(counts), -1)
    weights = (half * weights).reshape(len(counts), -1)
    reached = np.minimum(1, slopes[:, :, :, None] * u[:, None, None])
    passed = np.cumprod(1 - reached[:, :, 0], axis=1)
    before = np.concatenate([np.ones_like(passed[:, :1]), passed[:, :-1]], axis=1)
    chances = ((reached[:, :, :-1] - reached[:, :, 1:]) * (before * weights[:, None])[:, :, None]).sum(axis=-1)
    none = (passed[:, -1] * weights).sum(axis=-1)
    return np.log(np.concatenate([chances.reshape(len(counts), -1), none[:, None]], axis=1))
