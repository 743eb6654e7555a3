"""Random words: no two streams alike; uniform choices exact."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dp_polars._base.numbers import system_rng, uniform_below
from tests.statistical.goodness import cell_counts, fits

CHUNK_WORDS = (1 << 20) // 8


@pytest.mark.parametrize("count", [0, 1, 7, CHUNK_WORDS, 2 * CHUNK_WORDS + 5])
def test_as_many_words_as_asked_and_none_twice(count):
    words = system_rng()
    drawn = np.concatenate([words(count), words(count)])
    assert drawn.dtype == np.uint64
    assert len(drawn) == 2 * count
    # Two equal ones among half a million words of 64 bits: less than 1e-7.
    assert len(np.unique(drawn)) == 2 * count


def test_bits_are_fair():
    bits = np.unpackbits(system_rng()(100_000).view(np.uint8)).reshape(-1, 64)
    for position in range(64):
        assert fits(cell_counts(bits[:, position], [0.5, 0.5]), [0.5, 0.5])
    for parity in (bits[:, :-1] ^ bits[:, 1:], bits[:-1] ^ bits[1:]):
        assert fits(cell_counts(parity.ravel(), [0.5, 0.5]), [0.5, 0.5])
    leading = bits[:, :8] @ (1 << np.arange(8))
    assert fits(cell_counts(leading, np.full(256, 1 / 256)), np.full(256, 1 / 256))


def test_calls_and_threads_differ():
    assert len({tuple(system_rng()(2).tolist()) for _ in range(1000)}) == 1000
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: tuple(system_rng()(2).tolist()), range(500)))
    assert len(set(drawn)) == 500


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
from dp_polars.mechanisms import permute_and_flip
from dp_polars._base.numbers import system_rng
system_rng()(10)
for child in range(4):
    if os.fork() == 0:
        break
else:
    for _ in range(4):
        os.wait()
answers = permute_and_flip([[0] * 1000] * 20, epsilon=1, sensitivity=1).tolist()
os.write(1, (repr((system_rng()(2).tolist(), answers)) + "\\n").encode())
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are of POSIX")
def test_forks_differ():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert len(set(lines)) == 5
    # The answers alone too: 20 draws of 1 in 1000 are not the same twice.
    assert len({line.split("], [")[1] for line in lines}) == 5


# Uniform choices


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 64, 1000])
def test_uniform_choices_are_uniform(bound):
    answers = uniform_below(np.full(100_000, bound), system_rng())
    assert fits(cell_counts(answers, np.full(bound, 1 / bound)), np.full(bound, 1 / bound))


@pytest.mark.parametrize("bound", [2**62, 2**62 - 1, 3 * 2**60 + 1, 2**61 + 12345])
def test_uniform_choices_below_large_bounds_are_uniform(bound):
    answers = uniform_below(np.full(100_000, bound), system_rng())
    assert ((answers >= 0) & (answers < bound)).all()
    edges = np.array([bound * i // 7 for i in range(8)])
    law = np.diff(edges.astype(float)) / bound
    assert fits(cell_counts(np.searchsorted(edges, answers, side="right") - 1, law), law)


def test_each_bound_has_its_own_answer():
    bounds = np.array([1, 5, 1, 2, 2**62, 3] * 1000)
    answers = uniform_below(bounds, system_rng())
    assert answers.dtype == np.int64
    assert ((answers >= 0) & (answers < bounds)).all()
    for bound in (2, 3, 5):
        law = np.full(bound, 1 / bound)
        assert fits(cell_counts(answers[bounds == bound], law), law)


@pytest.mark.parametrize("bound", [3, 6, 1000, 2**61 + 1, 2**62 - 1, 2**62])
def test_words_that_would_bias_are_drawn_again(bound):
    rejected = 2**64 % bound  # the words below it belong to a round that is not whole
    calls = []

    def words(count):
        calls.append(count)
        return np.array([[0, max(rejected - 1, 0), rejected, 2**64 - 1], [rejected + 5] * 2][len(calls) - 1], np.uint64)

    answers = uniform_below(np.full(4, bound), words)
    if rejected:
        assert calls == [4, 2]
        accepted = [rejected + 5, rejected + 5, rejected, 2**64 - 1]
    else:
        assert calls == [4]
        accepted = [0, 0, 0, 2**64 - 1]
    assert answers.tolist() == [word % bound for word in accepted]


def test_a_bound_of_one_needs_no_words():
    def words(count):
        raise AssertionError

    assert uniform_below(np.ones(5, np.int64), words).tolist() == [0] * 5
    assert uniform_below(np.empty(0, np.int64), words).tolist() == []
