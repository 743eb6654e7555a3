"""Mutants of the race, its exact path, selection by own scores, and noise."""

from tests.mutation.mutant import of

_racing = of("_mechanisms/racing.py", "mechanisms/test_racing.py mechanisms/test_exact_race.py")
_exact = of("_mechanisms/exact_race.py", "mechanisms/test_exact_race.py")
_selection = of("_mechanisms/selection.py", "mechanisms/test_selection.py")
_noise = of("_mechanisms/noise.py", "mechanisms/test_noise.py")
_errors = of("_mechanisms/errors.py", "analysis/test_facts.py queries/test_queries.py")
_words = of("_numeric/words.py", "numeric/test_words.py")
_RACES = "statistical/test_race.py"
_DRAWS = "statistical/test_noise_draws.py"

MUTANTS = [
    # --- The race
    _racing(
        '    if mechanism == "permute_and_flip":\n        low, high = np.expm1(low), np.expm1(high)\n',
        '    if mechanism != "permute_and_flip":\n        low, high = np.expm1(low), np.expm1(high)\n',
        "each mechanism draws the other's law",
        "statistical/test_race.py::test_the_race_follows_the_law",
    ),
    _racing(
        "    return -low * scale, -high * scale\n",
        "    return -low * scale * scale, -high * scale * scale\n",
        "twice the rate",
        "statistical/test_race.py::test_the_race_follows_the_law",
    ),
    _racing(
        "    if m is not None:\n        low, high = low / m, high / m\n",
        "",
        "a block wins as seldom as one candidate",
        "statistical/test_race.py::test_the_race_follows_the_law",
    ),
    _racing(
        "_SLACK = 2.0**-38\n",
        "_SLACK = 2.0**-60\n",
        "floats decide what they can't",
        "mechanisms/test_exact_race.py::test_verdicts_on_near_ties_are_right",
    ),
    _racing(
        "    bound = np.minimum.reduceat(high, run_starts(owner)) * (1 + _SLACK)\n",
        "    bound = np.minimum.reduceat(low, run_starts(owner))\n",
        "the first by floats wins, however near the next one is",
        "mechanisms/test_exact_race.py::test_races_of_equal_words",
    ),
    _racing(
        "_FIRST_SLACK = np.float32(2.0**-14)\n",
        "_FIRST_SLACK = np.float32(-(2.0**-6))\n",
        "the first pass rules out who might win",
        "mechanisms/test_racing.py::test_winners_are_positions_in_the_flat_blocks",
    ),
    _racing(
        "        kept = np.flatnonzero(low < latest)\n",
        "        kept = np.flatnonzero(low < latest / 4)\n",
        "the first pass rules out who might win",
        "mechanisms/test_racing.py::test_winners_are_positions_in_the_flat_blocks",
    ),
    _racing(
        "        nearest = math.exp(FAR) * (1 - _SLACK)\n",
        "        nearest = math.exp(FAR) * (1 + 2.0**-10)\n",
        "far candidates that just win are left out",
        "mechanisms/test_exact_race.py::test_a_far_one_that_comes_just_before_the_first_near_one_wins",
    ),
    _racing(
        "            undecided |= (far > 0) & (leading_bits(far_drawn) * nearest <= bound * far)\n",
        "            pass\n",
        "far candidates never win",
        "mechanisms/test_exact_race.py::test_a_far_one_that_comes_just_before_the_first_near_one_wins",
    ),
    _racing(
        "leading_bits(far_drawn) * nearest <= bound * far)",
        "leading_bits(far_drawn) * nearest <= bound)",
        "many far candidates are looked at as seldom as one",
        "statistical/test_race.py::test_far_candidates_win_as_often_as_they_should",
    ),
    _racing(
        "    near: NDArray[np.bool_] = gaps <= min(math.floor(Fraction(FAR) / rate), np.iinfo(gaps.dtype).max)\n",
        "    near: NDArray[np.bool_] = gaps <= math.floor(Fraction(FAR) / rate) % (np.iinfo(gaps.dtype).max + 1)\n",
        "a small rate makes near ones far",
        "mechanisms/test_racing.py::test_extreme_rates_and_gaps",
    ),
    _racing(
        "            weights = ~is_near if m is None else np.where(is_near, 0, m)\n",
        "            weights = ~is_near\n",
        "a far block counts as one candidate",
        "statistical/test_race.py::test_far_candidates_win_as_often_as_they_should",
    ),
    _racing("_V_BITS = 53\n", "_V_BITS = 52\n", "nothing", equivalent="a wider bound: more races go to the exact path"),
    _racing(
        "    drawn = first_bits.astype(np.uint64) << np.uint64(32) | words(len(alive)) >> np.uint64(32)\n",
        "    drawn = first_bits.astype(np.uint64) << np.uint64(32)\n",
        "V has 32 bits",
        "mechanisms/test_exact_race.py::test_races_of_equal_words",
    ),
    _racing("        starts[0] = 0\n", "", "nothing", equivalent="searchsorted gives 0 there"),
    # --- The exact path
    _exact(
        "        if best is None or is_less(time, best):\n",
        "        if best is None or not is_less(time, best):\n",
        "the last of two near ones wins",
        "mechanisms/test_exact_race.py::test_verdicts_on_equal_leading_bits",
    ),
    _exact(
        "        return _log_arrival(smallest, rate * gap(position))\n",
        "        return _log_arrival(smallest, rate * gap(position) / 2)\n",
        "half the rate in close races",
        "mechanisms/test_exact_race.py::test_verdicts_on_equal_leading_bits",
    ),
    _exact(
        "        return lambda bits: -(-uniform(bits)).log1p() / count\n",
        "        return lambda bits: -(-uniform(bits)).log1p()\n",
        "a block wins as seldom as one candidate in close races",
        "mechanisms/test_exact_race.py::test_verdicts_on_equal_leading_bits",
    ),
    _exact(
        "        left[position] -= 1\n",
        "",
        "a far candidate may be drawn twice",
        "mechanisms/test_exact_race.py::test_verdicts_on_one_far_candidate",
    ),
    _exact(
        "        value = _next_after(value, sum(left.values()), Uniform(0, 0, words), mechanism)\n",
        "        value = _smallest_of(sum(left.values()), Uniform(0, 0, words), mechanism)\n",
        "the next far one is drawn afresh",
        "mechanisms/test_exact_race.py::test_far_values_are_the_order_statistics",
    ),
    _exact(
        "    return lambda bits: value(bits) + (1 - value(bits)) * step(bits)\n",
        "    return lambda bits: value(bits) + step(bits)\n",
        "the next far one of permute-and-flip comes too late",
        "mechanisms/test_exact_race.py::test_far_values_are_the_order_statistics",
    ),
    _exact(
        "    nearest = min(far, key=gap)\n",
        "    nearest = max(far, key=gap)\n",
        "the far ones are given up too early",
        "mechanisms/test_exact_race.py::test_far_candidates_win_by_words_of_zero",
    ),
    _exact(
        "            self.prefix = self.prefix << 64 | int(self.words(1)[0])\n",
        "            self.prefix = self.prefix << 64\n",
        "close races have no more random bits",
        "mechanisms/test_exact_race.py::test_verdicts_on_equal_leading_bits",
    ),
    _exact(
        "        return ball_between(Fraction(self.prefix, scale), Fraction(self.prefix + 1, scale))\n",
        "        return ball_between(Fraction(self.prefix, scale), Fraction(self.prefix, scale))\n",
        "bits that are not drawn yet are taken as zeros",
        "mechanisms/test_exact_race.py::test_verdicts_on_equal_leading_bits",
    ),
    _exact(
        "    value = _smallest_of(sum(left.values()), Uniform(far_word, 64, words), mechanism)\n",
        "    value = _smallest_of(sum(left.values()), Uniform(0, 0, words), mechanism)\n",
        "the far ones are drawn twice, and the first time decides whether",
        "mechanisms/test_exact_race.py::test_far_candidates_win_by_words_of_zero",
    ),
    _exact(
        "        index -= weight\n",
        "        pass\n",
        "of the far blocks the first is too likely",
        "mechanisms/test_exact_race.py::test_far_candidates_win_by_words_of_zero",
    ),
    # --- Own scores
    _selection(
        "    best = (np.minimum if lowest else np.maximum).reduceat(scores, begins) if len(groups) else scores[:0]\n",
        "    best = np.maximum.reduceat(scores, begins) if len(groups) else scores[:0]\n",
        "the lowest is drawn by gaps from the highest",
        "mechanisms/test_selection.py::test_the_gaps_of_mixed_numbers_are_rounded_once",
    ),
    _selection(
        "        finite = np.isfinite(scores)\n",
        "        finite = ~np.isnan(scores)\n",
        "an infinite score wins, or raises",
        "mechanisms/test_selection.py::test_a_row_without_a_finite_score",
    ),
    _selection(
        "        return (lambda i: abs(top - Fraction(scores.item(start + i)))), [1] * size\n",
        "        return (lambda i: abs(float(top) - scores.item(start + i))), [1] * size\n",
        "scores are rounded in close races",
        "mechanisms/test_selection.py::test_the_gaps_of_mixed_numbers_are_rounded_once",
    ),
    _selection(
        "        high, low = (part, best) if self.lowest else (best, part)\n",
        "        high, low = best, part\n",
        "gaps of argmin are negative",
        "mechanisms/test_selection.py::test_the_gaps_of_mixed_numbers_are_rounded_once",
    ),
    _selection(
        'Claim.for_scores(Loss.of(epsilon=epsilon, rho=None), "permute_and_flip", sensitivity, monotonic)',
        'Claim.for_scores(Loss.of(epsilon=epsilon, rho=None), "permute_and_flip", sensitivity, True)',
        "scores that move apart get the rate of monotonic ones",
        "mechanisms/test_selection.py::test_monotonic_is_yes_or_no",
    ),
    _selection(
        "    found = np.flatnonzero(chosen >= 0)\n",
        "    found = np.flatnonzero(chosen >= -1)\n",
        "a group without a score gets an answer",
        "mechanisms/test_selection.py::test_a_row_without_a_finite_score",
    ),
    of("_numeric/column_types.py", "mechanisms/test_selection.py")(
        '    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:\n',
        '    if array.dtype.kind not in "iuf":\n',
        "long doubles are rounded",
        "mechanisms/test_selection.py::test_what_is_no_score",
    ),
    of("_numeric/column_types.py", "mechanisms/test_selection.py")(
        "    if not whole:\n        return np.array(values, np.float64), None\n    array = np.array(values)\n",
        "    array = np.array(values, np.float64)\n    return array, None\n",
        "integers beyond 2**53 are rounded",
        "mechanisms/test_selection.py::test_integers_are_never_rounded",
    ),
    # --- Noise
    _noise(
        "    noise: _Whole = both[:count] - both[count:]\n",
        "    noise: _Whole = both[:count] + both[count:]\n",
        "noise is never negative",
        "mechanisms/test_noise.py::test_noise_beyond_64_bits_becomes_the_last_number",
    ),
    _noise(
        "    noise: _Whole = both[:count] - both[count:]\n",
        "    noise: _Whole = both[:count] - both[:count]\n",
        "there is no noise",
        "mechanisms/test_noise.py::test_noise_beyond_64_bits_becomes_the_last_number",
    ),
    _noise(
        "    low *= -rounded\n",
        "    low *= -rounded / 2\n",
        "half the scale",
        "statistical/test_noise_draws.py::test_discrete_laplace",
    ),
    _noise(
        "    undecided = np.floor(low, out=low) != np.floor(high, out=high)\n",
        "    undecided = np.floor(low, out=low) != low\n",
        "floats decide floors that they can't",
        "mechanisms/test_noise.py::test_every_floor_is_the_true_one",
    ),
    _noise(
        "    undecided |= word < _SMALLEST_WORD\n",
        "",
        "the far tail is rounded",
        "mechanisms/test_noise.py::test_every_floor_is_the_true_one",
    ),
    _noise(
        "_SLACK = 2.0**-45\n",
        "_SLACK = 2.0**-70\n",
        "floats decide floors that they can't",
        "mechanisms/test_noise.py::test_every_floor_is_the_true_one",
    ),
    _noise(
        "        number += _remainders(count, shift, scale, words)\n",
        "",
        "noise of a large scale has zeros at its end",
        "mechanisms/test_noise.py::test_the_remainder_and_its_quotient_make_the_number",
    ),
    _noise(
        "                tails.append(i)\n",
        "                pass\n",
        "the last digits of large noise are uniform, not geometric",
        "mechanisms/test_noise.py::test_every_coin_of_a_remainder_is_the_true_one",
    ),
    _noise(
        "    scale = math.isqrt(math.floor(variance)) + 1  # ⌊σ⌋ + 1\n",
        "    scale = math.isqrt(math.floor(variance)) + 2  # ⌊σ⌋ + 1\n",
        "nothing but speed",
        equivalent="the acceptance follows the scale: the law is the same",
    ),
    _noise(
        "    z -= float(variance / scale)\n",
        "",
        "a Gaussian that is too narrow",
        "mechanisms/test_noise.py::test_every_coin_of_a_gaussian_is_the_true_one",
    ),
    _noise(
        "        z *= float(min(1 / (2 * variance), Fraction(2**1000)))",
        "        z *= float(min(1 / variance, Fraction(2**1000)))",
        "a Gaussian that is too narrow",
        "mechanisms/test_noise.py::test_every_coin_of_a_gaussian_is_the_true_one",
    ),
    _noise(
        "    exponent = -((size - variance / scale) ** 2) / (2 * variance)\n",
        "    exponent = -((size - variance / scale) ** 2) / variance\n",
        "close coins are those of a narrower Gaussian",
        "mechanisms/test_noise.py::test_every_coin_of_a_gaussian_is_the_true_one",
    ),
    _noise(
        "    return gaussian_noise(count, 1 / claim.rate**2)\n",
        "    return gaussian_noise(count, 1 / (2 * claim.rate**2))\n",
        "half the variance that is charged",
        "privacy/test_numbers.py::test_the_noise_has_the_rate_of_its_claim",
    ),
    _noise(
        "        return laplace_noise(count, 1 / claim.rate)\n",
        "        return laplace_noise(count, 1 / (2 * claim.rate))\n",
        "half the scale that is charged",
        "privacy/test_numbers.py::test_the_noise_has_the_rate_of_its_claim",
    ),
    _noise(
        '    variance = positive_fraction("sensitivity", sensitivity) ** 2 / (2 * loss.value)\n',
        '    variance = positive_fraction("sensitivity", sensitivity) / (2 * loss.value)\n',
        "the sensitivity is not squared",
        "mechanisms/test_noise.py::test_the_renyi_divergences_are_at_most_rho_times_their_order",
    ),
    _noise(
        "    return values + np.clip(noise, -LARGEST_VALUE - values, LARGEST_VALUE - values)\n",
        "    return values + np.clip(noise, -LARGEST_VALUE, LARGEST_VALUE)\n",
        "a clamped answer depends on more than the true sum",
        "mechanisms/test_noise.py::test_a_clamped_sum_does_not_show_that_the_noise_was_narrowed",
    ),
    _noise(
        "    return np.asarray(np.clip(array, -LARGEST_VALUE, LARGEST_VALUE), np.int64)\n",
        "    return np.asarray(array, np.int64)\n",
        "large values overflow",
        "mechanisms/test_noise.py::test_values_beyond_the_limit_are_clamped_without_an_error",
    ),
    _noise(
        "    tails = 2 * np.cumsum(weights[::-1])[::-1] / (2 * weights.sum() - 1)\n",
        "    tails = np.cumsum(weights[::-1])[::-1] / (2 * weights.sum() - 1)\n",
        "a 95 % range holds 90 %",
        "queries/test_measures.py::test_the_bound_of_the_noise_is_the_smallest",
    ),
    # --- Words
    _words(
        "    encryptor = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor()\n",
        "    encryptor = Cipher(AES256(bytes(32)), CTR(bytes(16))).encryptor()\n",
        "every release has the same words",
        "numeric/test_words.py::test_calls_differ",
    ),
    _words(
        "        accepted = word >= (~m + np.uint64(1)) % m\n",
        "        accepted = word >= 0\n",
        "choices within a block are not uniform",
        "numeric/test_words.py::test_uniform_choices_below_large_bounds_are_uniform",
    ),
    _words(
        "            encryptor.update_into(_ZEROS[: len(piece)], piece)\n",
        "            encryptor.update_into(_ZEROS[: len(piece)], piece) if start == 0 else None\n",
        "words after the first mebibyte are what memory held",
        "numeric/test_words.py::test_as_many_words_as_asked_and_none_twice",
    ),
]
