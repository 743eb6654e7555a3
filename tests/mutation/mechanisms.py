"""Mutants of mechanisms, of constants that lemmas prove, and of ranges that z3 proves."""
# fmt: off

from tests.mutation.mutant import of

_race = of("statistical/test_race.py")
_exact_race = of("mechanisms/test_exact_race.py")
_racing = of("mechanisms/test_racing.py")
_selection = of("mechanisms/test_selection.py")
_noise = of("mechanisms/test_noise.py")
_noise_draws = of("statistical/test_noise_draws.py")
_numbers = of("privacy/test_numbers.py")
_inversion = of("mechanisms/test_inversion.py")
_gap_draws = of("statistical/test_gap_draws.py")
_own_sensitivities = of("mechanisms/test_own_sensitivities.py")
_key_selection = of("mechanisms/test_key_selection.py")
_renyi_selection = of("mechanisms/test_renyi_selection.py")
_first_above = of("statistics/test_first_above.py")
_first_above_draws = of("statistical/test_first_above_draws.py")
_thresholds = of("mechanisms/test_thresholds.py")
_lemmas = of("mechanisms/test_lemmas.py")
_range = of("statistics/test_ranges_for_all.py::test_no_neighbours_exceed_the_range_and_some_attain_it")

MUTANTS = [
    # --- The race
    _race("LAWS", "lambda waits: waits", "lambda waits: -np.expm1(-waits)", "the exponential mechanism draws the law of permute-and-flip",
        "::test_the_race_follows_the_law"),
    _exact_race("race", "np.minimum.reduceat(high, run_starts(owner)) * (1 + _SLACK)",
        "np.minimum.reduceat(low, run_starts(owner))", "the first by floats wins, however near the next one is",
        "::test_races_of_equal_words"),
    _racing("_rule_out", "low < latest", "low < latest / 4", "the first pass rules out who might win",
        "::test_winners_are_positions_in_the_flat_blocks"),
    _racing("_are_near", "min(math.floor(most), np.iinfo(gaps.dtype).max)",
        "math.floor(most) % (np.iinfo(gaps.dtype).max + 1)", "a small rate makes near ones far",
        "::test_extreme_rates_and_gaps"),
    _race("_near_batches", "~is_near if m is None else np.where(is_near, 0, m)", "~is_near",
        "a far block counts as one candidate", "::test_far_candidates_win_as_often_as_they_should"),
    # --- The exact path
    _exact_race("first_arrival", "best is None or is_less(time, best)", "best is None or not is_less(time, best)",
        "the last of two near ones wins", "::test_verdicts_on_equal_leading_bits"),
    _exact_race("wait_of", "-(-uniform(bits)).log1p() / count", "-(-uniform(bits)).log1p()",
        "a block wins as seldom as one candidate in close races", "::test_verdicts_on_equal_leading_bits"),
    _exact_race("_mechanisms/racing:LAWS", "-(-wait).expm1()", "wait",
        "close races of permute-and-flip are those of the exponential mechanism"),
    _exact_race("Uniform.__call__", "self.prefix << 64 | int(self.rng(1)[0])", "self.prefix << 64",
        "close races have no more random bits", "::test_verdicts_on_equal_leading_bits"),
    _exact_race("_uniform_position", "bisect_right(ends, index)", "0", "of the far blocks the first always wins",
        "::test_far_candidates_win_by_words_of_zero"),
    # --- Own scores
    _selection("_blocks", "np.minimum if lowest else np.maximum", "np.maximum",
        "the lowest is drawn by gaps from the highest", "::test_the_gaps_of_mixed_numbers_are_rounded_once"),
    _selection("_offered", "np.isfinite(scores)", "~np.isnan(scores)", "an infinite score wins, or raises",
        "::test_what_is_refused"),
    _selection("_RowGaps.__getitem__", "(part, best) if self.lowest else (best, part)", "best, part",
        "gaps of argmin are negative", "::test_the_gaps_of_mixed_numbers_are_rounded_once"),
    _selection("permute_and_flip", "sensitivity, monotonic", "sensitivity, True",
        "scores that move apart get the rate of monotonic ones", "::test_what_is_refused"),
    _selection("_mechanisms/selection:_places", "chosen >= 0", "chosen >= -1", "a group without a score gets an answer",
        "::test_what_is_refused"),
    # --- Noise
    _noise("_laplace", "both[:count] - both[count:]", "both[:count] + both[count:]", "noise is never negative",
        "::test_noise_beyond_64_bits_becomes_the_last_number"),
    _noise_draws("_geometric", "-rounded", "-rounded / 2", "half the scale", "::test_discrete_laplace"),
    _noise("_remainders", "tails.append(i)", "pass", "the last digits of large noise are uniform, not geometric",
        "::test_every_coin_of_a_remainder_is_the_true_one"),
    _noise("_exact_coin", "2 * variance", "variance", "close coins are those of a narrower Gaussian",
        "::test_every_coin_of_a_gaussian_is_the_true_one"),
    _numbers("_NOISE", "scale**2", "scale**2 / 2", "half the variance that is charged",
        "::test_the_noise_has_the_rate_of_its_claim"),
    _numbers("noise_of", "1 / claim.rate", "1 / (2 * claim.rate)", "half the scale that is charged",
        "::test_the_noise_has_the_rate_of_its_claim"),
    _noise("discrete_gaussian", 'positive_fraction("sensitivity", sensitivity) ** 2',
        'positive_fraction("sensitivity", sensitivity)', "the sensitivity is not squared",
        "::test_the_renyi_divergences_are_at_most_rho_times_their_order"),
    _noise("add_noise", "-LARGEST_VALUE - values, LARGEST_VALUE - values", "-LARGEST_VALUE, LARGEST_VALUE",
        "a clamped answer depends on more than the true sum",
        "::test_a_clamped_sum_does_not_show_that_the_noise_was_narrowed"),
    _noise("_mechanisms/noise:_checked", "np.clip(array, -LARGEST_VALUE, LARGEST_VALUE)", "array",
        "large values overflow", "::test_values_beyond_the_limit_are_clamped_without_an_error"),
    _noise("discrete_laplace", 'positive_fraction("sensitivity", sensitivity)', "1",
        "the scale forgets the sensitivity", "::test_neighbours_differ_by_epsilon_and_no_more"),
    _noise("_narrow", "np.clip(noise, 1 - 2**63, 2**63 - 1)", "noise % 2**63", "huge noise comes out small",
        "::test_noise_beyond_64_bits_becomes_the_last_number"),
    # --- Noise from a table
    _inversion("_floors", "np.array(least, np.uint64)", "np.array(least, np.uint64) + np.uint64(1)",
        "every threshold is one unit too high", "::test_thresholds_are_the_first_64_bits_of_the_distribution_function"),
    _inversion("NoiseTable.of", "upper_half[::-1]", "upper_half[::-1] // 2", "half of the negative noise is missing",
        "::test_thresholds_are_the_first_64_bits_of_the_distribution_function"),
    _inversion("NoiseTable._by_words", "np.flatnonzero(self.thresholds[position] == word).tolist()", "()",
        "words that equal a threshold are given one of the two numbers",
        "::test_words_that_equal_a_threshold_are_decided_by_more_bits"),
    _noise_draws("NoiseTable.draw",
        "leading[open_at].astype(np.uint64) << _CELL | rng(len(open_at)) >> np.uint64(_GUIDE_BITS)",
        "leading[open_at].astype(np.uint64) << _CELL", "what 16 bits leave open is decided by zeros"),
    _inversion("DiscreteGaussian._weight_from", "integral.union(integral + after)", "integral",
        "the tail of a wide Gaussian is taken for less than it is, and a key is shown too soon",
        "::test_a_tail_by_few_terms_lies_between_its_bounds"),
    # --- Gaps
    _gap_draws("_Race.of_groups", "float_of(self.rate * self.unit)", "float_of(self.rate * self.unit) * 2",
        "a gap is half of what it is"),
    _gap_draws("_log_second_times", "m - 1", "m", "what comes second of equal candidates comes too soon"),
    of("mechanisms/test_noisy_gap.py")("first_and_gap", "multiplicities[winner] - 1", "multiplicities[winner]",
        "in close races what comes second of equal candidates comes too soon", "::test_verdicts_of_the_exact_path"),
    # --- Sensitivities of their own
    _own_sensitivities("_exact_gap", "sensitivities[row] + one", "sensitivities[row]",
        "in close races a score moves by more than one"),
    _own_sensitivities("_largest_quotients", "weights[:, some, None] + weights[:, None]", "weights[:, some, None]",
        "a score moves by more than one: only its own sensitivity counts"),
    _own_sensitivities("OwnSensitivities.gaps", "gaps *= float_of(1 / self.unit)", "",
        "gaps are in the unit of the columns' last digits"),
    # --- Selected keys
    of("privacy/test_keys.py")("_share", "ball(delta) if keys == 1 else -((-ball(delta)).log1p() / keys).expm1()",
        "ball(delta)", "each of a person's keys spends the whole delta",
        "::test_keys_of_one_person_alone_are_shown_with_probability_at_most_delta"),
    _key_selection("delta_of_one_key", "round_down(lower(_share(delta, keys)))",
        "round_down(lower(_share(delta, keys))) * (1 + Fraction(1, 2**90))",
        "the delta of one key is rounded up by a hair", "::test_the_delta_of_one_key_is_rounded_down_by_a_hair"),
    _key_selection("PartitionSelection.turning_point", "1 + floor_of(ratio)", "2 + floor_of(ratio)",
        "a key of one more than n₁ people is shown too often", "::test_the_closed_form_is_the_recurrence"),
    _key_selection("PartitionSelection.shown", "int(people[i])", "int(people[i]) + 1",
        "in close races a key has one person more"),
    _key_selection("GaussianThreshold.draw", "noisy >= self.threshold", "people >= self.threshold",
        "keys are shown by their true numbers", "::test_noisy_numbers_are_shown_from_the_threshold_on"),
    _key_selection("threshold_for", "_smallest(enough, max(guess, 1)) + 1", "_smallest(enough, max(guess, 1))",
        "a lone key reaches the threshold with more than delta", "::test_the_threshold_is_the_smallest_by_brute_sums"),
    # --- Selected keys in rho, without their numbers
    _renyi_selection("_is_proved", "bool(excess > slope * above) and bool(excess > -slope * below)", "True",
        "a probability is taken without proof", "::test_what_is_proved_is_true"),
    _renyi_selection("_is_proved", "bool(-start < width) and bool(slope > 0)", "True",
        "the order 1 is taken without proof", "::test_randomized_response_costs_what_is_known"),
    _renyi_selection("chances_for", "(1 - chance.exact) / share", "1 - (chance.exact - delta)",
        "the larger law is proved with a wrong complement"),
    _renyi_selection("chances_for", "_largest_width(logit, width, float(rho))", "_largest_width(logit, width, float(rho) / 2)",
        "half of rho is left", "::test_every_person_more_costs_at_most_rho_and_no_larger_chance_does"),
    _renyi_selection("RenyiSelection.shown", "(word < floor)", "(word <= floor)",
        "in close races a key is always shown", "::test_words_decide_exactly_and_then_more_bits"),
    of("privacy/test_keys.py")("_statistics/statistic:_by_renyi", "claim.rate**2 / 2", "claim.rate**2",
        "coins cost twice the rho that is charged", "::test_coins_by_rho_are_approximately_zero_concentrated"),
    of("privacy/test_keys.py")("_statistics/statistic:_by_renyi", "delta_of_one_key(claim.delta, claim.contributions.total)",
        "claim.delta", "each of a person's coins spends the whole delta",
        "::test_keys_of_one_person_alone_are_shown_with_probability_at_most_delta"),
    # --- Sensitivities of one's own, gaps and rare scores
    _own_sensitivities("_mechanisms/selection:_double",
        "np.array([float_of(Fraction(number) - a) for number, a in zip(numbers, finite, strict=True)], np.float64)",
        "np.zeros(len(numbers))", "huge exact scores are rounded to floats in gaps",
        "::test_gaps_of_exact_numbers_are_not_those_of_their_floats"),
    of("mechanisms/test_integer_scores.py")("_mechanisms/selection:_place_of",
        "uniform_below(np.array([len(places)]), rng)[0]", "0",
        "among many integer scores a rare best score always gives its first place",
        "::test_a_rare_best_score_wins_at_each_of_its_places"),
    # --- The first above a threshold
    of("privacy/test_first_above.py")("FirstAbove.range_of", "3", "2",
        "one who takes the place of another costs as much as one who comes", "::test_all_small_data_sets"),
    _first_above("Claim._spread", "spread.per_group > 1 or distance > 1", "False",
        "groups of several rows are charged in rho as if they came in pairs", "-k several_groups"),
    _first_above("count_runs", "upto[ends - 1] = size", "", "candidates after the last occupied one are never answers",
        "::test_runs_of_one_count"),
    _first_above_draws("_Search.first", "_chance(hazards.high * m) * (1 + _SLACK)",
        "_chance(hazards.high) * (1 + _SLACK)", "a run is reached as seldom as one candidate",
        "::test_answers_and_gaps_have_their_joint_law"),
    _thresholds("_mechanisms/above_threshold:_SLACK", "-40", "-70", "floats decide what they can't"),
    _thresholds("_exact_place", "-number * hazard(bits)", "-hazard(bits)",
        "where floats can't decide, a run is reached as seldom as one candidate"),
    _first_above_draws("_Search._exactly", "missing if is_above else _zero", "_zero",
        "where floats can't decide, a gap is the noise alone", "-k 'far_above or exact_path'"),
    # --- Lemmas, and ranges for all data
    _lemmas("_mechanisms/racing:FAR", "45.0", "44.0", "a far coin is more than 64 bits tell", "-k racing.FAR"),
    _lemmas("DiscreteLaplace.reach", "45", "44", "the table ends before 64 bits do", "-k DiscreteLaplace.reach"),
    _lemmas("DiscreteGaussian.reach", "45", "44", "the table ends before 64 bits do", "-k DiscreteGaussian.reach"),
    _lemmas("_coins", "size.astype(np.float64)", "size.astype(np.float32).astype(np.float64)",
        "a distance loses half of its digits", "-k noise._COIN_SLACK"),
    _lemmas("_sharp_times", "np.exp(exponents)", "np.exp(exponents.astype(np.float32))",
        "half of the digits are lost before the race is decided", "-k racing._SLACK"),
    _range("CountScore.range", '1 if relation == "add_or_remove_one" else 2', "1",
        "R of a replaced row is that of one"),
    _range("_gap", "-upto", "-2 * upto", "a score that moves further than R says"),
    _range("QuantileScore.range", "2 * self.alpha.denominator if groups == 1 else 2 * one",
        "one if groups == 1 else 2 * one", "R of a replaced row in one group is that of one that comes"),
    _range("Sum.exchanged", "max(high, Fraction(0)) - min(low, Fraction(0))", "self.largest",
        "values of both signs cancel"),
    _range("TopK.range_of", "2 if self._is_of_lists else 1", "1", "the joint top k has R of a mode"),
    _range("Squares.largest", "steps * steps + self.half", "steps * steps - (1 << self.shift)",
        "R of squares is one step short"),
]
