"""How much of a person counts, against exact fractions: within the limits in full, beyond them in proportion."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dp_polars._mechanisms.person_weights import (
    ARRAYS,
    UNIT,
    UNIT_BITS,
    PersonWeight,
    bits_of_parts,
    bound_in_rows,
    ends_of,
    part_of,
    rounded,
)

# Beyond these, a person's rows in a group count as so many.
MOST = {1: 2**30, 2: 2**20}
# By how much a root may be below the exact one, as a part of it; and what rounding down takes.
NEAR = 1 - Fraction(1, 2**49)

powers = st.sampled_from([1, 2])
caps = st.none() | st.integers(1, 5) | st.integers(1, 2**40)
limits = st.integers(1, 50) | st.integers(1, 2**62)
numbers = st.lists(st.integers(0, 6) | st.integers(0, 2**62), min_size=1, max_size=8)


def capped(weight: PersonWeight, rows: int) -> int:
    """How many rows of a group would count but for the norm, by the definition."""
    return min(rows, MOST[weight.power], weight.cap or rows)


def norm_of(weight: PersonWeight, rows: list[int]) -> int:
    return sum(capped(weight, n) ** weight.power for n in rows)


def found(weight: PersonWeight, rows: list[int]) -> tuple[int, list[int]]:
    """The weight of a person with so many rows in each group, and those of a row in each group, in parts."""
    array = np.array(rows, np.int64)
    with np.errstate(all="raise"):
        norm = weight.norm(array, ARRAYS).sum()
        person = UNIT if weight.limit is None else weight.of_norm(norm, ARRAYS)
        of_rows = weight.of_rows(norm, array, ARRAYS)
    assert of_rows.dtype == np.int64
    return int(person), of_rows.tolist()


def check_person(weight: PersonWeight, rows: list[int], person: int) -> None:
    """Raise unless a person's weight is the largest that keeps the norm, or at most a hair below."""
    norm, power = norm_of(weight, rows), weight.power
    limit = norm if weight.limit is None else min(weight.limit, MOST[1] ** power)
    if norm <= limit:
        assert person == UNIT
        return
    assert person < UNIT
    assert person**power * norm <= limit * UNIT**power
    more = person + 1
    if power == 1:
        assert more * norm > limit * UNIT
    else:
        assert Fraction(more) ** 2 * norm > NEAR**2 * limit * UNIT**2


@given(powers, caps, st.none() | limits, numbers)
@example(1, None, 1, [2])
@example(2, None, 2, [1, 1])  # the root of two squares: exactly within
@example(2, None, 2, [1, 1, 1])
@example(1, None, 2**30, [2**30])
@example(1, None, 2**30, [2**30, 1])
@example(2, None, 2**40, [2**20])
@example(2, None, 2**40, [2**20, 1])
@example(2, None, 2**62, [2**62] * 8)
@example(1, None, 2**62, [2**62] * 8)
@example(1, 1, 1, [2**62])
def test_nobody_adds_more_than_the_limit_and_nobody_within_it_less(power, cap, limit, rows):
    weight = PersonWeight(cap, limit, power)
    person, of_rows = found(weight, rows)
    check_person(weight, rows, person)
    added = []
    for n, row in zip(rows, of_rows, strict=True):
        # The largest whole number of parts that makes of n rows no more than the person's weight makes of those capped.
        assert row == (person * capped(weight, n) // n if n else 0)
        added.append(Fraction(row * n, UNIT))
        assert added[-1] <= (cap or n)
    if limit is not None:
        assert sum(x**power for x in added) <= limit
    is_small = max(rows) <= min(MOST[power], cap or MOST[power])
    if is_small and sum(n**power for n in rows) <= min(limit or MOST[1] ** power, MOST[1] ** power):
        assert added == rows


@given(powers, limits, st.integers(0, 2**62))
@example(2, 1, 2**62)
@example(2, 2**60, 2**60 + 1)  # a float of 53 bits takes them for one
@example(2, 2**60 - 1, 2**60)
@example(2, 2**53, 2**53 + 1)
@example(1, 2**30, 2**30 + 1)
def test_whole_numbers_decide_who_is_beyond(power, limit, norm):
    weight = PersonWeight(None, limit, power)
    if power == 1:
        norm = min(norm, 2**62 // UNIT)
    most = min(limit, 2 ** (30 * power))
    person = int(weight.of_norm(np.array([norm]), ARRAYS)[0])
    assert bool(weight.is_beyond(norm, ARRAYS)) == (norm > most)
    assert (person == UNIT) == (norm <= most)
    assert person**power * norm <= most * UNIT**power or norm <= most


def test_a_root_is_on_the_safe_side_of_a_float():
    limit, norm = 2**60 - 1, 2**62 - 1
    careless = int(UNIT * math.sqrt(limit / norm))
    assert careless**2 * norm > limit * UNIT**2  # the control: floats alone call too much of a person within the limit
    weight = PersonWeight(None, limit, 2)
    assert int(weight.of_norm(np.array([norm]), ARRAYS)[0]) == careless - 1
    # Norms that are the limit times a square, or next to one.
    squares = np.arange(2, 3000) ** 2
    for limit in (1, 2, 3, 5, 7):
        weight = PersonWeight(None, limit, 2)
        for off in (-1, 0, 1):
            norm = limit * squares + off
            safe = weight.of_norm(norm, ARRAYS).astype(object)
            assert (safe**2 * norm <= limit * UNIT**2).all()
            assert ((safe + 2) ** 2 * norm > limit * UNIT**2).all()


@given(st.integers(0, UNIT_BITS), st.integers(0, UNIT), st.integers(-(2**62), 2**62))
@example(20, UNIT, -(2**42))
@example(0, UNIT, -(2**62))
@example(0, UNIT - 1, 2**62)
@example(20, 1, -1)
def test_a_sum_is_scaled_exactly_and_cut_toward_zero(bits, weight, total):
    total = int(math.copysign(min(abs(total), 2**62 >> bits), total))
    with np.errstate(all="raise"):
        (part,) = part_of(np.array([total]), np.array([weight]), bits, ARRAYS).tolist()
    exact = Fraction(total * weight * 2**bits, UNIT)
    assert part == math.trunc(exact)
    assert abs(part) <= abs(exact)
    if weight == UNIT:
        assert part == total * 2**bits


@given(st.integers(1, 2**40))
@example(1)
@example(2**20 - 1)
@example(2**20)
@example(2**21)
def test_a_row_has_from_20_bits_on_and_a_coarse_one_no_more_than_21(largest):
    bits = bits_of_parts(largest)
    assert 0 <= bits <= UNIT_BITS
    assert largest << bits >= 2**20
    assert bits == 0 or largest << bits < 2**21
    assert bits_of_parts(0) == bits_of_parts(1) == UNIT_BITS


@given(st.integers(-(2**60), 2**60), st.integers(0, 2**60), st.integers(0, UNIT_BITS))
@example(-1, 0, 1)
@example(1, 0, 1)
def test_an_answer_is_the_nearest_whole_number_and_its_ends_enclose_the_interval(parts, bound, bits):
    array, unit = np.array([parts]), 2**bits
    (answer,), ((low,), (high,)) = rounded(array, bits).tolist(), (end.tolist() for end in ends_of(array, bound, bits))
    assert abs(Fraction(parts, unit) - answer) <= Fraction(1, 2)
    assert rounded(parts, bits) == answer
    assert low == math.floor(Fraction(parts - bound, unit))
    assert high == math.ceil(Fraction(parts + bound, unit))
    assert low <= answer <= high
    if bits == 0:
        assert (answer, low, high) == (parts, parts - bound, parts + bound)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(0, UNIT_BITS))
def test_an_error_holds_what_rounding_adds(truth, noise, bits):
    answer = rounded(truth + noise, bits)
    assert abs(answer - Fraction(truth, 2**bits)) <= Fraction(bound_in_rows(abs(noise), bits))
    assert bound_in_rows(abs(noise), 0) == abs(noise)


@pytest.mark.parametrize("power", [1, 2])
def test_a_person_beyond_the_limit_counts_in_proportion(power):
    """Twice as many rows as are allowed: half of each."""
    limit = 6 if power == 1 else 14
    weight = PersonWeight(None, limit, power)
    assert found(weight, [1, 2, 3]) == (UNIT, [UNIT] * 3)
    half = UNIT // 2 - (power == 2)  # a root is rounded down by one part where it is exact
    assert found(weight, [2, 4, 6]) == (half, [half] * 3)
    # With a cap, the rows of a full group count less than those of another one.
    with_cap = PersonWeight(2, None, power)
    assert found(with_cap, [1, 2, 8]) == (UNIT, [UNIT, UNIT, UNIT // 4])
