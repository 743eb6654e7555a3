"""Mutants of scores, codes, weights and draws."""

from tests.mutation.mutant import of

_scores = of("_draws/scores.py", "draws/test_scores.py")
_drawing = of("_draws/drawing.py", "draws/test_drawing.py")
_encoding = of("_codes/encoding.py", "codes/test_encoding.py")
_choices = of("_questions/choices.py", "questions/test_queries.py questions/test_weights.py")
_categories = of("_questions/of_categories.py", "questions/test_weights.py")
_modes = of("_questions/modes.py", "questions/test_weights.py")
_codings = of("_codes/codings.py", "questions/test_sums.py")
_measures = of("_questions/measures.py", "questions/test_measures.py privacy/test_numbers.py")
_sums = of("_questions/sums.py", "questions/test_sums.py privacy/test_numbers.py")
_lists = of("_questions/quantile_lists.py", "questions/test_quantile_lists.py privacy/test_quantile_lists.py")
_trees = of("_draws/quantile_trees.py", "questions/test_quantile_lists.py privacy/test_quantile_lists.py")
_cells = of("_draws/cells.py", "draws/test_cells.py")
_tops = of("_questions/tops.py", "questions/test_tops.py privacy/test_top_k.py")
_ranking = of("_draws/ranking.py", "draws/test_ranking.py statistical/test_top_k_draws.py")
_joint = of("_draws/joint.py", "draws/test_joint.py statistical/test_top_k_draws.py")
_units = of("_codes/units.py", "questions/test_sums.py questions/test_weights.py")
_histograms = of("_draws/histograms.py", "questions/test_weights.py draws/test_drawing.py")
_candidates = of("_codes/candidates.py", "codes/test_candidates.py")
_simulated = of("analysis/_simulated_draws.py", "analysis/test_simulated_lists.py")

MUTANTS = [
    # --- Scores and their ranges
    _scores(
        '        return Fraction(1 if relation == "add_or_remove_one" else 2)\n',
        "        return Fraction(1)\n",
        "a replacement moves two counts apart",
        "privacy/test_brute_force.py::test_no_pair_of_neighbors_loses_more_than_epsilon",
    ),
    _scores(
        "        return Fraction(2 * self.alpha.denominator if groups == 1 else 2 * one)\n",
        "        return Fraction(one)\n",
        "a replacement moves a quantile twice",
        "privacy/test_brute_force.py::test_no_pair_of_neighbors_loses_more_than_epsilon",
    ),
    _scores(
        "        one = 2 * max(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)\n",
        "        one = 2 * min(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)\n",
        "R of a ninth decile is that of the other side",
        "draws/test_scores.py::test_the_range_by_enumeration",
    ),
    _scores(
        "        one = 2 * max(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)\n",
        "        one = self.alpha.denominator\n",
        "R of a ninth decile is that of a median",
        "privacy/test_brute_force.py::test_no_pair_of_neighbors_loses_more_than_epsilon",
    ),
    _scores(
        "    gap = np.add(below, 1, out=out)\n",
        "    gap = np.add(below, 0, out=out)\n",
        "a tie at the quantile has two best candidates",
        "draws/test_scores.py::test_gaps_are_those_of_the_definition",
    ),
    _scores(
        "        gaps[total[:, 0] == 0] = 0  # where nobody is, all candidates are as good\n",
        "",
        "an empty group prefers some candidates",
        "draws/test_drawing.py::test_all_small_data_sets_get_their_scores",
    ),
    _scores(
        "    gaps[totals == 0] = 0  # where nobody is, all candidates are as good\n",
        "",
        "an empty group prefers some candidates",
        "draws/test_drawing.py::test_all_small_data_sets_get_their_scores",
    ),
    _scores(
        "    return np.int32 if rows * unit < 2**31 - 1 else np.int64\n",
        "    return np.int32 if rows < 2**31 - 1 else np.int64\n",
        "gaps of many rows overflow",
        "draws/test_drawing.py::test_a_small_group_beside_a_large_one",
    ),
    _scores(
        "    dtype = gap_dtype(max(low + ranks, int(totals.max())) + 1, alpha.denominator)\n",
        "    dtype = gap_dtype(max(low + ranks, int(totals.min())) + 1, alpha.denominator)\n",
        "gaps overflow where a small group stands beside a large one",
        equivalent="den·(low + ranks) is at least num·N of the largest group, for the ranks reach its middle",
    ),
    _scores(
        "            np.insert(np.ones_like(counts), rest, (size - runs.sizes)[has_rest]),\n",
        "            np.insert(np.ones_like(counts), rest, np.ones_like(runs.sizes)[has_rest]),\n",
        "candidates that nobody has count as one",
        "draws/test_scores.py::test_slots_name_every_code_once_with_its_gap",
    ),
    _categories(
        '        """Whether a person counts once for each candidate, where it is known who they are."""\n        return self.of_people\n',
        '        """Whether a person counts once for each candidate, where it is known who they are."""\n        return False\n',
        "a mode counts a person's rows",
        "frames/test_protection.py frames/test_frame.py",
    ),
    _scores(
        "    alpha: Fraction\n    of_people = False\n",
        "    alpha: Fraction\n    of_people = True\n",
        "a quantile counts each person's value once, but its R is that of a row",
        "frames/test_frame.py::TestBounds::test_a_quantile_needs_a_bound_on_rows",
    ),
    _scores(
        "        return n + np.bincount(passed, minlength=len(self.sizes))\n",
        "        return n\n",
        "a candidate that nobody has is drawn as one that somebody has",
        "draws/test_drawing.py::test_all_small_data_sets_get_their_scores",
    ),
    # --- Draws
    _drawing(
        "    dtype = scores.gap_dtype(int(lengths.max()), draw.score.unit)\n    gaps = np.empty",
        "    dtype = scores.gap_dtype(int(lengths.min()), draw.score.unit)\n    gaps = np.empty",
        "gaps overflow where a small group stands beside a large one",
        "draws/test_drawing.py::test_a_small_group_beside_a_large_one",
    ),
    _drawing(
        "    return min(math.ceil(Fraction(FAR) / draw.rate), 2**62 // alpha.denominator)\n",
        "    return min(math.ceil(Fraction(FAR) / draw.rate / 3), 2**62 // alpha.denominator)\n",
        "near candidates of a quantile are treated as far ones",
        "draws/test_drawing.py::test_what_is_left_out_is_far",
    ),
    _drawing(
        "        left_out += rows[:, 0]\n",
        "        pass\n",
        "far candidates below a quantile never win",
        "draws/test_drawing.py",
    ),
    _drawing(
        "    left_out = np.maximum(size - 1 - rows[:, -1], 0).astype(np.int64)\n",
        "    left_out = np.zeros(len(rows), np.int64)\n",
        "far candidates above a quantile never win",
        "draws/test_drawing.py::test_a_histogram_without_its_far_ends_keeps_every_score",
    ),
    _drawing(
        "    return first, uniform_below(count, words)\n",
        "    return first, np.zeros_like(count)\n",
        "of a block the first candidate is always drawn",
        "statistical/test_kernel_draws.py::test_draws_from_rows_follow_the_law",
    ),
    _drawing(
        "    code, offset = draw_from_slots(draw, slots, low + (draw.size - high), complete)\n",
        "    code, offset = draw_from_slots(draw, slots, None, complete)\n",
        "far candidates of a quantile never win",
        "statistical/test_kernel_draws.py::test_runs_left_out_win_as_often_as_they_should",
    ),
    _drawing(
        "        return gaps[group].tolist().__getitem__, [1] * gaps.shape[1]\n",
        "        return gaps[0].tolist().__getitem__, [1] * gaps.shape[1]\n",
        "close races of a group are run with another's scores",
        "draws/test_drawing.py::test_all_small_data_sets_get_their_scores",
    ),
    # --- Codes
    _encoding(
        "        x -= 0.5\n        np.ceil(x, out=x)\n",
        "        np.floor(x, out=x)\n",
        "values go down to a candidate, not to the nearest",
        "codes/test_encoding.py::test_decimal_ties_of_floats_go_down",
    ),
    _encoding(
        "    shift = low * whole - first + (stride + 1) // 2 - 1\n",
        "    shift = low * whole - first + stride // 2\n",
        "ties go up",
        "codes/test_encoding.py::test_integers_go_to_the_nearest_integer",
    ),
    _encoding(
        "    if (high - low) * whole + abs(shift) + stride >= 2**63:\n",
        "    if (high - low) * whole + abs(shift) + stride >= 2**64:\n",
        "a long span overflows and gives wrong candidates",
        "codes/test_encoding.py -k 63_bits",
    ),
    _encoding(
        "        return lambda x: np.where(np.isnan(x), size, np.searchsorted(middles, x))\n",
        "        return lambda x: np.searchsorted(middles, x)\n",
        "NaN counts as the largest value",
        "codes/test_encoding.py::test_integers_beyond_64_bits_go_to_the_nearest_candidate_too",
    ),
    _encoding(
        "        np.clip(x, 0, size - 1, out=x)\n        return np.fmin(x, size, out=x)",
        "        np.clip(x, 0, size - 1, out=x)\n        return np.nan_to_num(x)",
        "NaN counts as the smallest value",
        "codes/test_encoding.py::test_numbers_of_all_kinds_go_to_the_nearest_rational",
    ),
    _encoding(
        "        codes[column.is_null().to_numpy()] = size\n",
        "        pass\n",
        "null counts as a value",
        "codes/test_encoding.py::test_integers_go_to_the_nearest_integer",
    ),
    _encoding(
        "            return np.where(ascending[position] == column, rank[position], out.type(size))\n",
        "            return rank[position]\n",
        "a value that is no candidate counts for the next one",
        "codes/test_encoding.py::test_a_value_that_is_no_candidate_is_no_evidence",
    ),
    _encoding(
        "            found: Codes = table[np.minimum(offset, np.uint64(beyond), out=offset).view(np.int64)]\n",
        "            found: Codes = table[(offset % np.uint64(beyond + 1)).view(np.int64)]\n",
        "a value that is no candidate counts for another one",
        "codes/test_encoding.py::test_a_value_that_is_no_candidate_is_no_evidence",
    ),
    # --- Choices
    _modes(
        "        return super().range_of(relation, groups) * self.most\n",
        "        return super().range_of(relation, groups)\n",
        "a row may weigh more than one and is charged as one",
        "questions/test_weights.py::test_claim_and_error_are_in_the_unit_of_the_weights",
    ),
    _choices(
        "        rate = self.claim.rate_in(self.step(*columns))\n",
        "        rate = self.claim.rate\n",
        "weights in steps are drawn as if in units",
        "questions/test_weights.py::test_a_draw_counts_steps_and_its_rate_is_for_steps",
    ),
    _modes(
        "        return draw if self.too_few is None else replace(draw, size=draw.size + 1)\n",
        "        return draw\n",
        "the candidate for too few can't be drawn",
        "questions/test_weights.py::test_too_few_is_a_weight",
    ),
    _modes(
        "        return histogram.with_code(self.coding(*columns).size, int(self.too_few / self.step(*columns)))\n",
        "        return histogram.with_code(self.coding(*columns).size, int(self.too_few))\n",
        "too few is counted in steps of the weights",
        "questions/test_weights.py::test_too_few_is_a_weight",
    ),
    # --- Weights and sums
    _codings(
        "            units = np.clip(self._units(columns[self.column], low, high), low, high)\n",
        "            units = self._units(columns[self.column], low, high)\n",
        "values beyond the bounds count in full",
        "questions/test_sums.py::test_integers_become_their_nearest_steps_exactly",
    ),
    _codings(
        "            return 2 * units - (low + high) if self.doubled else units\n",
        "            return 2 * units - low if self.doubled else units\n",
        "a mean adds up distances from the wrong middle",
        "questions/test_sums.py::test_ties_go_to_even_and_bounds_are_kept",
    ),
    _codings(
        "            return int((self.upper - self.lower) / self.step)\n",
        "            return int((self.upper - self.lower) / self.step / 2)\n",
        "the largest weight of a mean is half of what a row can weigh",
        equivalent="it limits what a person weighs together, and means are of rows; sizes are checked before they are doubled",
    ),
    _codings(
        "        return int(max(abs(self.lower), abs(self.upper)) / self.step)\n",
        "        return int(abs(self.upper) / self.step)\n",
        "the largest weight forgets negative bounds",
        "questions/test_sums.py::test_types",
    ),
    _codings(
        "    return missing | column.is_nan().fill_null(value=False) if column.dtype.is_float() else missing\n",
        "    return missing\n",
        "NaN is counted as a value",
        "questions/test_sums.py::test_floats_that_are_no_numbers",
    ),
    _sums(
        "        return max(abs(self.lower), abs(self.upper))\n",
        "        return self.upper - self.lower\n",
        "a sum's sensitivity is the width of its bounds",
        "questions/test_sums.py::test_noise_is_in_the_unit_of_what_it_is_added_to",
    ),
    _measures(
        '    return largest if relation == "add_or_remove_one" else 2 * largest\n',
        "    return largest\n",
        "a replacement is charged as one row",
        "privacy/test_numbers.py::test_nor_does_a_replacement",
    ),
    _measures(
        "    clamped: Ints = np.clip(totals, -LARGEST_VALUE, LARGEST_VALUE)\n",
        "    clamped: Ints = totals\n",
        "a huge total overflows",
        "questions/test_measures.py::test_totals_are_clamped_to_62_bits",
    ),
    _measures(
        "    return add_noise(clamped, noise_of(claim, len(totals)))\n",
        "    return add_noise(clamped, np.repeat(noise_of(claim, 1), len(totals)))\n",
        "all groups have the same noise",
        "statistical/test_number_draws.py::test_expressions_have_the_exact_law",
    ),
    _measures(
        "        numbers, bound = noisy(totals[0], self.claim), noise_bound(self.claim, BETA)\n",
        "        numbers, bound = noisy(totals[0], self.claim), noise_bound(self.claim, 2 * BETA)\n",
        "a 95 % range holds 90 %",
        "questions/test_measures.py::test_ranges_cover_the_true_number_as_often_as_they_say",
    ),
    _measures(
        "    total[histogram.sizes > 0] = histogram.weights\n",
        "    total[: len(histogram.weights)] = histogram.weights\n",
        "a group gets the number of another",
        "questions/test_measures.py::test_groups_without_rows_stand_between_the_others",
    ),
    _sums(
        "    return lower >= 0 or upper <= 0\n",
        "    return True\n",
        "under replace_one, a sum of both signs is charged as one of one sign",
        "privacy/test_numbers.py -k replacement",
    ),
    _sums(
        '''        """Distances from the middle have both signs."""
        return False
''',
        '''        """Distances from the middle have both signs."""
        return True
''',
        "under replace_one, a mean is charged as a sum of one sign",
        "privacy/test_numbers.py -k replacement",
    ),
    _measures(
        "        return self.largest if groups == 1 and self.is_one_sided else super().range_of(relation, groups)\n",
        "        return self.largest if self.is_one_sided else super().range_of(relation, groups)\n",
        "a replaced row that changes its group is charged as one that stays in it",
        "privacy/test_numbers.py -k replacement",
    ),
    _measures(
        "        return _range_of(self.largest, relation)\n",
        "        return self.largest if groups == 1 else _range_of(self.largest, relation)\n",
        "a replaced row that changes two counts of a group is charged for one",
        "privacy/test_numbers.py::test_nor_does_a_replacement_in_one_group",
    ),
    _sums(
        "is_one_sided=False, draws=2\n",
        "is_one_sided=False, draws=1\n",
        "a mean is charged once for its two draws",
        "privacy/test_numbers.py::test_no_person_changes_a_number_by_more_than_the_loss_pays_for",
    ),
    _units(
        "    if not max(Fraction(units.largest), (units.upper - units.lower) / units.step) <= _MOST_UNITS:\n",
        "    if not Fraction(units.largest) <= 2**62:\n",
        "sums overflow",
        "questions/test_sums.py::test_arguments",
    ),
    _histograms(
        "        if weights is not None:\n            counts = np.flatnonzero(codes < size)\n",
        "        if weights is not None:\n            counts = np.flatnonzero(codes <= size)\n",
        "rows that are no evidence weigh something",
        "draws/test_histogram_sums.py",
    ),
    _histograms(
        "        if not len(lengths) * (size + 1) < 2**63:\n            counts = np.flatnonzero(codes < size)\n",
        "        if not len(lengths) * (size + 1) < 2**63:\n            counts = np.flatnonzero(codes <= size)\n",
        "rows that are no evidence are counted where cells leave 64 bits",
        "draws/test_histograms.py",
    ),
    _histograms(
        "        kept = occupied < size\n",
        "        kept = occupied <= size\n",
        "rows that are no evidence are counted",
        "draws/test_histogram_sums.py draws/test_histograms.py",
    ),
    _histograms(
        "        order = np.lexsort((codes, groups))\n",
        '        order = np.argsort(codes, kind="stable")\n',
        "rows of one group are counted for another",
        "draws/test_histograms.py",
    ),
    # --- Halves of a claim, and noise where nobody is
    _sums(
        "        return replace(self.claim, score_range=self.claim.score_range / step)\n",
        "        return self.claim\n",
        "the noise of a sum is in its unit, not in steps",
        "questions/test_sums.py::test_noise_is_in_the_unit_of_what_it_is_added_to",
    ),
    _sums(
        "loss=replace(self.claim.loss, value=self.claim.loss.value / 2), draws=1)",
        "loss=self.claim.loss, draws=1)",
        "each half of a mean gets the whole loss",
        "privacy/test_numbers.py -k mean",
    ),
    _sums(
        "half.score_range * (self.upper - self.lower) / step), half\n",
        "half.score_range * (self.upper - self.lower) / step / 2), half\n",
        "the distances of a mean move by twice what they are charged for",
        "privacy/test_numbers.py::test_no_person_changes_a_number_by_more_than_the_loss_pays_for",
    ),
    _measures(
        '        """Whether `range_of` also bounds one person\'s effect on a group."""\n        return False\n',
        '        """Whether `range_of` also bounds one person\'s effect on a group."""\n        return True\n',
        "a person who has several values, or rows, is charged for one",
        "privacy/test_numbers.py::test_no_person_changes_a_number_by_more_than_the_loss_pays_for",
    ),
    _measures(
        "        numbers, bound = noisy(counts, self.claim), noise_bound(self.claim, BETA)\n",
        "        numbers, bound = np.where(counts > 0, noisy(counts, self.claim), 0), noise_bound(self.claim, BETA)\n",
        "values that nobody has get no noise",
        "statistical/test_number_draws.py::test_where_nobody_is_there_is_as_much_noise",
    ),
    _measures(
        "        numbers, bound = noisy(totals[0], self.claim), noise_bound(self.claim, BETA)\n",
        "        numbers, bound = np.where(totals[0] > 0, noisy(totals[0], self.claim), 0), noise_bound(self.claim, BETA)\n",
        "groups without rows get no noise",
        "statistical/test_number_draws.py::test_where_nobody_is_there_is_as_much_noise",
    ),
    _sums(
        "        distance, count = (noisy(total, claim) for total, claim in zip(totals, claims, strict=True))\n",
        "        distance, count = (noisy(total, claim) * (total != 0) for total, claim in zip(totals, claims, strict=True))\n",
        "means of nobody get no noise",
        "statistical/test_number_draws.py::test_where_nobody_is_there_is_as_much_noise",
    ),
    # --- Lists of quantiles
    _lists(
        "        draws=levels_of(len(exact)),\n",
        "        draws=max(levels_of(len(exact)) - 1, 1),\n",
        "the last level of a tree is free",
        "privacy/test_quantile_lists.py::test_no_pair_of_neighbors_loses_more_than_epsilon",
    ),
    _lists(
        '        return Fraction(1 if relation == "add_or_remove_one" else 2)\n',
        "        return Fraction(1)\n",
        "on private frames a replacement is charged as one row",
        "questions/test_quantile_lists.py privacy/test_quantile_lists.py",
    ),
    _lists(
        '    score_range = Fraction(1 if relation == "add_or_remove_one" else 2)\n',
        "    score_range = Fraction(1)\n",
        "a replacement is charged as one row",
        "privacy/test_quantile_lists.py::test_no_pair_of_neighbors_loses_more_than_epsilon",
    ),
    _trees(
        "    each = beta / sum(1 for _ in root.nodes())\n",
        "    each = beta\n",
        "error_95 of a list of quantiles holds for each draw, not for all",
        "questions/test_quantile_lists.py::test_the_bound_of_a_list_is_that_of_its_draws",
    ),
    _trees(
        "worst(node.left, low, error + 1)",
        "worst(node.left, low, error)",
        "error_95 of a list forgets what a split adds",
        "questions/test_quantile_lists.py::test_the_bound_of_a_list_is_that_of_its_draws",
    ),
    _trees(
        "        error = (1 - share) * low + share * high + own\n",
        "        error = share * low + (1 - share) * high + own\n",
        "error_95 of a list weighs the wrong end",
        "questions/test_quantile_lists.py::test_the_bound_of_a_list_is_that_of_its_draws",
    ),
    _trees(
        "        candidates = size << digit_bits(size) if node.splits else size\n",
        "        candidates = size\n",
        "error_95 of a list counts values where pairs are drawn",
        "questions/test_quantile_lists.py::test_the_bound_of_a_list_is_that_of_its_draws",
    ),
    _trees(
        "        rate = self.rate / node.score_range\n",
        "        rate = self.rate\n",
        "the draws of a list are at the rate of scores of range 1",
        "statistical/test_list_draws.py",
    ),
    _trees(
        "        most = 2 ** (levels_of(last - first) - 1) - 1  # of one side\n",
        "        most = last - first  # of one side\n",
        "a tree has more levels than are charged",
        "questions/test_quantile_lists.py::test_the_tree_has_every_quantile_once_on_as_few_levels_as_possible",
    ),
    _trees(
        '        return int(QuantileScore(self.alpha).range("add_or_remove_one"))\n',
        "        return self.alpha.denominator\n",
        "R of a draw of a list is that of a median",
        "questions/test_quantile_lists.py::test_each_level_costs_a_row_what_one_quantile_at_its_share_does",
    ),
    _cells(
        "        return self.at(positions(begins, sizes), sizes), self.at(positions(begins + sizes, rest), rest)\n",
        "        return self.at(positions(begins, sizes), sizes), self.at(positions(begins, rest + sizes), rest + sizes)\n",
        "rows below an answer are drawn from on both sides of it",
        "privacy/test_quantile_lists.py draws/test_cells.py",
    ),
    _cells(
        "        upto = offsets(self.codes <= np.repeat(codes, self.sizes))\n",
        "        upto = offsets(self.codes < np.repeat(codes, self.sizes))\n",
        "rows of an answer's own pair go to the other side",
        "draws/test_cells.py::test_a_cut_leaves_every_cell_on_its_side",
    ),
    _cells(
        "        digits = words(total // 2 + 1).view(np.uint32)[:total] >> np.repeat(np.uint32(MOST_BITS) - bits, rows)\n",
        "        digits = np.zeros(total, np.uint32)\n",
        "second digits are no random ones",
        "draws/test_cells.py::test_digits_have_the_law_of_independent_ones",
    ),
    # --- Top k
    _tops(
        "        rate = self.claim.rate_in(self.step(*columns))\n",
        "        rate = self.claim.rate_in(self.step(*columns)) * self.claim.draws\n",
        "every round gets the whole loss",
        "statistical/test_top_k_draws.py",
    ),
    _tops(
        "        if self.claim.draws != (1 if self.joint else self.k) or",
        "        if",
        "k rounds are charged as one",
        "questions/test_tops.py::test_a_claim_of_other_draws_is_refused",
    ),
    _tops(
        "    return CountScore().range(relation) * (2 if joint and k > 1 else 1)\n",
        "    return CountScore().range(relation)\n",
        "R of a joint draw is that of a count",
        "privacy/test_top_k.py::test_no_person_with_any_rows_loses_more_than_epsilon",
    ),
    _tops(
        "        return _range_of(relation, self.k, joint=self.joint) * self.most\n",
        "        return _range_of(relation, self.k, joint=self.joint)\n",
        "on private frames a weight is charged as one row",
        "questions/test_weights.py::test_top_k_by_weight",
    ),
    _tops(
        "        _range_of(relation, number, joint=joint) * most_of(weights),\n",
        "        _range_of(relation, number, joint=joint),\n",
        "a weight is charged as one row",
        "questions/test_weights.py::test_top_k_by_weight",
    ),
    _ranking(
        "        left[won] -= 1\n",
        "        pass\n",
        "a level is drawn from as often as it has candidates, and more",
        "statistical/test_top_k_draws.py",
    ),
    _ranking(
        "        best = np.maximum.reduceat(np.where(left > 0, ranking.counts, -1), begins)\n",
        "        best = np.maximum.reduceat(ranking.counts, begins)\n",
        "gaps are from the best of all, not from the best that is left",
        "statistical/test_top_k_draws.py",
    ),
    _ranking(
        "ranking.above[won], uniform_below(left[won], words))\n",
        "ranking.above[won], np.zeros_like(won))\n",
        "of equal candidates the first one is always drawn",
        "statistical/test_top_k_draws.py",
    ),
    _joint(
        "    exponents = np.minimum(exponents_of(steps.errors, draw.rate), 1e300)\n",
        "    exponents = np.minimum(exponents_of(steps.errors, draw.rate * 2), 1e300)\n",
        "a joint draw has twice the rate",
        "statistical/test_top_k_draws.py",
    ),
    _joint(
        '            draw.rate,\n            "exponential",\n',
        '            draw.rate * 2,\n            "exponential",\n',
        "a joint draw has twice the rate in close races",
        "statistical/test_top_k_draws.py::test_races_that_floats_leave_open_have_the_same_law",
    ),
    _joint(
        "    slack = (exponents + (most + 64)) * _SLACK + off\n",
        "    slack = 0.0\n",
        "floats decide joint draws that they can't",
        "draws/test_joint.py::test_near_ties_are_decided_exactly",
    ),
    _joint(
        "        return math.prod(width if rank == own else width - rank for",
        "        return math.prod(width - rank for",
        "in close races some lists are too seldom",
        "draws/test_joint.py::test_the_blocks_are_all_lists_each_once",
    ),
    _joint(
        "free_place(places[:, :rank], first[:, rank], uniform_below(free, words))\n",
        "free_place(places[:, :rank], first[:, rank], np.zeros_like(free))\n",
        "of lists with one error the first one is always drawn",
        "statistical/test_top_k_draws.py",
    ),
    # --- By weight
    _categories(
        "        return most_of(self.weights)\n",
        "        return Fraction(1)\n",
        "on private frames a weight is charged as one row",
        "questions/test_weights.py",
    ),
    _modes(
        "        most_of(weights),\n",
        "        Fraction(1),\n",
        "a weight is charged as one row",
        "questions/test_weights.py::test_claim_and_error_are_in_the_unit_of_the_weights",
    ),
    _units(
        '            units = units_of(Fraction(0), self.most, self.step, column, "max_weight")\n',
        '            units = units_of(-self.most, self.most, self.step, column, "max_weight")\n',
        "weights may be negative, and move two candidates apart",
        "questions/test_weights.py::test_negative_weights_are_none",
    ),
    # --- R in one group, and leads
    _scores(
        "        return Fraction(2 * self.alpha.denominator if groups == 1 else 2 * one)\n",
        "        return Fraction(2 * self.alpha.denominator)\n",
        "a replacement that leaves one group and enters another is charged as one within a group",
        "privacy/test_brute_force.py::test_a_row_that_leaves_one_group_and_enters_another_may_lose_all_of_epsilon",
    ),
    of("_questions/question.py", "expressions/test_leads.py")(
        '    if claim.loss.unit != "epsilon":\n',
        "    if False:\n",
        "a lead is free under rho",
        "expressions/test_leads.py::test_a_lead_is_free_under_epsilon_and_refused_under_rho",
    ),
    of("_questions/question.py", "questions/test_queries.py")(
        "                contributions=contributions,\n",
        "",
        "the bounds of a private frame do not change the rate",
        "questions/test_queries.py::test_bounds_that_a_frame_knows_change_the_rate_and_not_the_loss",
    ),
    of("_draws/leads.py", "statistical/test_lead_draws.py")(
        "    return np.where(first < 0, runs.nth_unoccupied(offset), first + offset), leaders.leads\n",
        "    return np.where(first < 0, runs.nth_unoccupied(offset * 0), first + offset), leaders.leads\n",
        "with a lead, of the candidates that nobody has the first one is always drawn",
        "statistical/test_lead_draws.py::test_with_a_lead_candidates_that_nobody_has_are_as_good_as_each_other",
    ),
    of("_codes/encoding.py", "codes/test_encoding.py")(
        "physical.fill_null(most + 1) if physical.null_count() else physical",
        "physical.fill_null(0) if physical.null_count() else physical",
        "a row without a value counts for a category, or takes that of others away",
    ),
    # --- Candidates
    _candidates(
        "series if series.dtype == pl.Object else unshared(series.to_frame()).to_series()",
        "series",
        "who writes into the candidates' memory counts a row several times",
        "codes/test_candidates.py -k written_to_later",
    ),
    _simulated(
        "        drawn.append(query.draw_codes(kept.repeated(number), *types))\n",
        "        drawn.append(query.draw_codes(everything.repeated(number), *types))\n",
        "simulated lists are drawn from rows that the bounds drop: errors look smaller than they are",
        "analysis/test_simulated_lists.py::test_lists_are_drawn_from_the_rows_that_bounds_keep",
    ),
]
