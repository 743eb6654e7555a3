"""Mutants of the race, its exact path, leads, selection by own scores, noise, and the selection of keys."""

from tests.mutation.mutant import of

_racing = of("_mechanisms/racing.py", "mechanisms/test_racing.py mechanisms/test_exact_race.py")
_exact = of("_mechanisms/exact_race.py", "mechanisms/test_exact_race.py")
_selection = of("_mechanisms/selection.py", "mechanisms/test_selection.py")
_noise = of("_mechanisms/noise.py", "mechanisms/test_noise.py")
_inversion = of("_mechanisms/inversion.py", "mechanisms/test_inversion.py")
_leading = of("_mechanisms/leading.py", "mechanisms/test_leading.py")
_own = of("_mechanisms/own_sensitivities.py", "mechanisms/test_own_sensitivities.py")
_keys = of("_mechanisms/key_selection.py", "mechanisms/test_key_selection.py")
_asked_keys = of("_questions/unlisted_keys.py", "privacy/test_keys.py")
_errors = of("_mechanisms/errors.py", "analysis/test_facts.py questions/test_queries.py")
_words = of("_base/words.py", "base/test_words.py")
_integers = of("_mechanisms/integer_scores.py", "mechanisms/test_integer_scores.py")
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
        "else min(math.floor(most), np.iinfo(gaps.dtype).max)\n",
        "else math.floor(most) % (np.iinfo(gaps.dtype).max + 1)\n",
        "a small rate makes near ones far",
        "mechanisms/test_racing.py::test_extreme_rates_and_gaps",
    ),
    _racing(
        "v <= np.uint32(math.ceil(earliest))",
        "v <= np.uint32(math.ceil(earliest) // 2)",
        "a later batch leaves out some who are in time",
        "mechanisms/test_racing.py::test_who_wins_does_not_depend_on_the_batch",
    ),
    _racing(
        "        goes_on = near[-1] < end\n",
        "        goes_on = near[0] < end\n",
        "a batch leaves out who is late for another group",
        "mechanisms/test_racing.py",
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
    of("_base/column_types.py", "mechanisms/test_selection.py")(
        '    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:\n',
        '    if array.dtype.kind not in "iuf":\n',
        "long doubles are rounded",
        "mechanisms/test_selection.py::test_what_is_no_score",
    ),
    of("_base/column_types.py", "mechanisms/test_selection.py")(
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
        "questions/test_measures.py::test_the_bound_of_the_noise_is_the_smallest",
    ),
    _noise(
        '    scale = positive_fraction("sensitivity", sensitivity) / loss.value\n',
        "    scale = 1 / loss.value\n",
        "the scale forgets the sensitivity",
        "mechanisms/test_noise.py::test_neighbours_differ_by_epsilon_and_no_more",
    ),
    _noise(
        "_COIN_SLACK = 2.0**-40\n",
        "_COIN_SLACK = 2.0**-70\n",
        "floats decide coins that they can't",
        "mechanisms/test_noise.py::test_every_coin_of_a_gaussian_is_the_true_one",
    ),
    _noise(
        "    surely_kept = np.uint64(2 ** (65 - _DIRECT_BITS))\n",
        "    surely_kept = np.uint64(2 ** (60 - _DIRECT_BITS))\n",
        "of large noise, coins that may come down tails are not tossed",
        "mechanisms/test_noise.py::test_every_coin_of_a_remainder_is_the_true_one",
    ),
    _noise(
        "        noise = np.clip(noise, 1 - 2**63, 2**63 - 1).astype(np.int64)\n",
        "        noise = (noise % 2**63).astype(np.int64)\n",
        "huge noise comes out small",
        "mechanisms/test_noise.py::test_noise_beyond_64_bits_becomes_the_last_number",
    ),
    # --- Noise from a table
    _inversion(
        "            return np.array(least, np.uint64)\n",
        "            return np.array(least, np.uint64) + np.uint64(1)\n",
        "every threshold is one unit too high",
        "mechanisms/test_inversion.py::test_thresholds_are_the_first_64_bits_of_the_distribution_function",
    ),
    _inversion(
        "        thresholds = np.concatenate([upper_half[::-1], ~upper_half])\n",
        "        thresholds = np.concatenate([upper_half[::-1] // 2, ~upper_half])\n",
        "half of the negative noise is missing",
        "mechanisms/test_inversion.py::test_thresholds_are_the_first_64_bits_of_the_distribution_function",
    ),
    _inversion(
        'np.searchsorted(thresholds, edges | ~(~np.uint64(0) << _CELL), side="right")',
        "np.searchsorted(thresholds, edges)",
        "16 bits decide draws that they can't",
        "mechanisms/test_inversion.py::test_every_entry_of_the_guide_is_what_its_words_say",
    ),
    _inversion(
        "        for i in np.flatnonzero(self.thresholds[position] == word).tolist():\n",
        "        for i in ():\n",
        "words that equal a threshold are given one of the two numbers",
        "mechanisms/test_inversion.py::test_words_that_equal_a_threshold_are_decided_by_more_bits",
    ),
    _inversion(
        "        return math.ceil(Fraction(45) * self.scale) + 1  # 64·ln 2 < 45\n",
        "        return math.ceil(Fraction(20) * self.scale) + 1  # 64·ln 2 < 45\n",
        "the tail of Laplace noise is cut off",
        "mechanisms/test_inversion.py::test_reach_is_beyond_64_bits",
    ),
    _inversion(
        "            word = leading[open_at].astype(np.uint64) << _CELL | words(len(open_at)) >> np.uint64(_GUIDE_BITS)\n",
        "            word = leading[open_at].astype(np.uint64) << _CELL\n",
        "what 16 bits leave open is decided by zeros",
        "statistical/test_noise_draws.py",
    ),
    _inversion(
        "        leading = words(-(-count * _GUIDE_BITS // 64)).view(np.uint16)[:count]\n",
        "        leading = np.resize(words(-(-count * _GUIDE_BITS // 64)).view(np.uint16)[: -(-count // 2)], count)\n",
        "two draws have the same noise",
        "mechanisms/test_noise.py::test_no_two_draws_of_a_call_have_the_same_noise",
    ),
    _inversion(
        "        return sum(weights, integral.union(integral + after))\n",
        "        return sum(weights, integral)\n",
        "the tail of a wide Gaussian is taken for less than it is, and a key is shown too soon",
        "mechanisms/test_inversion.py::test_a_tail_by_few_terms_lies_between_its_bounds",
    ),
    # --- Leads
    _leading(
        "_SLACK = 2.0**-40\n",
        "_SLACK = 2.0**-70\n",
        "floats decide leads that they can't",
        "mechanisms/test_leading.py::test_floats_bound_the_logarithms_of_arrival_times",
    ),
    _leading(
        "        leads = _whole_units(between, float_of(self.rate * self.unit))\n",
        "        leads = _whole_units(between, float_of(self.rate * self.unit) * 2)\n",
        "a lead is half of what it is",
        "statistical/test_lead_draws.py",
    ),
    _leading(
        "        certain = times.high[heads] < next_low\n",
        "        certain = times.low[heads] < next_low\n",
        "floats decide who arrives first, however near the next one is",
        "mechanisms/test_leading.py::test_near_ties_and_leads_near_whole_units_are_decided_exactly",
    ),
    _leading(
        "np.log1p(-(other + i)) / (m - 1) for i",
        "np.log1p(-(other + i)) / m for i",
        "what comes second of equal candidates comes too soon",
        "statistical/test_lead_draws.py",
    ),
    _exact(
        "        after = _next_after(smallest[winner], multiplicities[winner] - 1, uniform, mechanism)\n",
        "        after = _next_after(smallest[winner], multiplicities[winner], uniform, mechanism)\n",
        "in close races what comes second of equal candidates comes too soon",
        "mechanisms/test_leading.py::test_verdicts_of_the_exact_path",
    ),
    # --- Sensitivities of their own
    _own(
        "        return max((c - other) / (own + weight) for other, weight in self._distinct) / self.unit\n",
        "        return max((c - other) / own for other, weight in self._distinct) / self.unit\n",
        "in close races a score moves by more than one",
    ),
    _own(
        "            quotient /= own[:, some, None] + own[:, None]\n",
        "            quotient /= own[:, some, None]\n",
        "a score moves by more than one: only its own sensitivity counts",
    ),
    _own(
        "            gaps *= float_of(1 / self.unit)\n",
        "",
        "gaps are in the unit of the columns' last digits",
    ),
    _own(
        "            sure = (slack <= gaps * 2.0**-50) | (slack * float_of(rate / self.unit) <= 2.0**-46)\n",
        "            sure = np.ones(len(gaps), bool)\n",
        "floats give gaps that they can't",
    ),
    of("_questions/argmax.py", "privacy/test_own_sensitivities.py")(
        "    claim = Claim.for_scores(Loss.of(epsilon=epsilon, rho=rho), mechanism, 1, monotonic=False)\n",
        "    claim = Claim.for_scores(Loss.of(epsilon=epsilon, rho=rho), mechanism, 1, monotonic=True)\n",
        "scores with sensitivities of their own are charged as if all moved together",
    ),
    of("_questions/argmax.py", "expressions/test_leads.py::test_rows_that_can_not_win")(
        "    rows = np.flatnonzero(is_there & (weights > 0).astype(bool))\n",
        "    rows = np.flatnonzero(is_there)\n",
        "a row whose sensitivity is 0 or below may win",
    ),
    # --- Keys that nobody listed
    _keys(
        "    return ball(delta) if keys == 1 else -((-ball(delta)).log1p() / keys).expm1()\n",
        "    return ball(delta)\n",
        "each of a person's keys spends the whole delta",
        "privacy/test_keys.py::test_keys_of_one_person_alone_are_shown_with_probability_at_most_delta",
    ),
    _keys(
        "        return round_down(lower(_share(delta, keys)))\n",
        "        return round_down(lower(_share(delta, keys))) * (1 + Fraction(1, 2**90))\n",
        "the delta of one key is rounded up by a hair",
        "mechanisms/test_key_selection.py::test_the_delta_of_one_key_is_rounded_down_by_a_hair",
    ),
    _keys(
        "        return 1 + floor_of(ratio)\n",
        "        return 2 + floor_of(ratio)\n",
        "a key of one more than n₁ people is shown too often",
        "mechanisms/test_key_selection.py::test_the_closed_form_is_the_recurrence",
    ),
    _keys(
        "_SLACK = 2.0**-37\n",
        "_SLACK = 2.0**-60\n",
        "floats decide about keys where they can't",
        "mechanisms/test_key_selection.py::test_floats_stay_within_their_bound",
    ),
    _keys(
        "(undecided).tolist():\n            number = int(people[i])\n",
        "(undecided).tolist():\n            number = int(people[i]) + 1\n",
        "in close races a key has one person more",
        "mechanisms/test_key_selection.py",
    ),
    _keys(
        "        return noisy >= self.threshold, noisy\n",
        "        return people >= self.threshold, noisy\n",
        "keys are shown by their true numbers",
        "mechanisms/test_key_selection.py::test_noisy_numbers_are_shown_from_the_threshold_on",
    ),
    _keys(
        "    return _smallest(enough, max(guess, 1)) + 1\n",
        "    return _smallest(enough, max(guess, 1))\n",
        "a lone key reaches the threshold with more than delta",
        "mechanisms/test_key_selection.py::test_the_threshold_is_the_smallest_by_brute_sums",
    ),
    _keys(
        "                if tail <= share:\n                    return True\n",
        "                if tail.lower() <= share:\n                    return True\n",
        "a threshold is taken before it is proved",
        "mechanisms/test_key_selection.py::test_a_threshold_is_proved_by_however_few_terms",
    ),
    _asked_keys(
        '        changed = keys_per_person if relation == "add_or_remove_one" else 2 * keys_per_person\n',
        "        changed = keys_per_person\n",
        "a replaced person is charged for the keys of one",
        "privacy/test_keys.py::test_keys_by_epsilon_cost_at_most_epsilon_and_delta",
    ),
    _asked_keys(
        "delta_of_one_key(claim.delta, changed)",
        "delta_of_one_key(claim.delta, self.keys_per_person)",
        "the keys of a person who takes another's place spend no delta",
        "privacy/test_keys.py::test_keys_by_epsilon_cost_at_most_epsilon_and_delta",
    ),
    _asked_keys(
        "threshold_for(variance, claim.delta, self.keys_per_person)",
        "threshold_for(variance, claim.delta, 1)",
        "the threshold is that of one key",
        "privacy/test_keys.py::test_keys_of_one_person_alone_are_shown_with_probability_at_most_delta",
    ),
    _asked_keys(
        "        variance = 1 / claim.rate**2\n",
        "        variance = 1 / claim.rate**2 / changed\n",
        "the noise is that for one key",
        "privacy/test_keys.py::test_keys_by_rho_are_approximately_zero_concentrated",
    ),
    _asked_keys(
        "            columns.append(pl.Series(COUNT, noisy))\n",
        "            columns.append(pl.Series(COUNT, people))\n",
        "the true numbers of people come along",
        "privacy/test_keys.py::test_noisy_numbers_follow_the_law",
    ),
    _asked_keys(
        ".filter(pl.Series(shown)).sort(self.columns)\n",
        ".filter(pl.Series(shown))\n",
        "the order of the keys is that of the rows",
        "frames/test_keys.py::test_keys_that_many_have_come_out_sorted",
    ),
    _asked_keys(
        "    return pl.Series(column.name, column.to_arrow()) if column.dtype == pl.String else column\n",
        "    return column\n",
        "texts of keys that are not shown leave in a buffer",
        "frames/test_keys.py::test_keys_that_are_not_shown_leave_nothing",
    ),
    # --- Words
    _words(
        "    encryptor = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor()\n",
        "    encryptor = Cipher(AES256(bytes(32)), CTR(bytes(16))).encryptor()\n",
        "every release has the same words",
        "base/test_words.py::test_calls_differ",
    ),
    _words(
        "        accepted = word >= (~m + np.uint64(1)) % m\n",
        "        accepted = word >= 0\n",
        "choices within a block are not uniform",
        "base/test_words.py::test_uniform_choices_below_large_bounds_are_uniform",
    ),
    _words(
        "            encryptor.update_into(_ZEROS[: len(piece)], piece)\n",
        "            encryptor.update_into(_ZEROS[: len(piece)], piece) if start == 0 else None\n",
        "words after the first mebibyte are what memory held",
        "base/test_words.py::test_as_many_words_as_asked_and_none_twice",
    ),
    # --- Sensitivities of one's own, leads and rare scores
    _own(
        "                sure &= (each >= _SMALLEST) & (each <= _LARGEST)\n",
        "                sure &= each <= _LARGEST\n",
        "floats decide gaps of denormal sensitivities",
        "mechanisms/test_own_sensitivities.py::test_gaps_are_as_exact_as_the_race_wants_them",
    ),
    _own(
        "        low = np.array([float_of(Fraction(number) - a) for number, a in zip(numbers, finite, strict=True)], np.float64)\n",
        "        low = np.zeros(len(numbers))\n",
        "huge exact scores are rounded to floats in gaps",
        "mechanisms/test_own_sensitivities.py::test_gaps_of_exact_numbers_are_not_those_of_their_floats",
    ),
    _leading(
        "_RELATIVE_SLACK = 2.0**-46\n",
        "_RELATIVE_SLACK = 2.0**-70\n",
        "large leads next to a whole unit are decided by floats",
        "mechanisms/test_leading.py::test_large_leads_near_whole_units_are_decided_exactly",
    ),
    _integers(
        "    return int(places[uniform_below(np.array([len(places)]), words)[0]])\n",
        "    return int(places[0])\n",
        "among many integer scores a rare best score always gives its first place",
        "mechanisms/test_integer_scores.py::test_a_rare_best_score_wins_at_each_of_its_places",
    ),
]
