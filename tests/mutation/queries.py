"""Mutants of scores, codes, weights and draws."""
# fmt: off

from tests.mutation.mutant import of

_drawing = of("mechanisms/test_drawing.py")
_scores = of("mechanisms/test_drawing.py::test_all_small_data_sets_get_their_scores")
_kernel_draws = of("statistical/test_kernel_draws.py")
_encoding = of("bins/test_encoding.py")
_weights = of("statistics/test_weights.py")
_intervals = of("statistics/test_intervals.py")
_sums = of("statistics/test_sums.py")
_shared_sums = of("statistics/test_shared_sums.py")
_joint_noise = of("mechanisms/test_joint_noise.py")
_pairs = of("statistics/test_sum_pairs.py")
_numbers = of("privacy/test_numbers.py")
_histograms = of("mechanisms/test_scores.py")
_guaranteed = of("frames/test_guarantees.py")
_within_and_more = of("statistics/test_within.py frames/test_within.py expressions/test_within.py")
_quantile_lists = of("statistics/test_quantile_lists.py")
_top_k_draws = of("statistical/test_top_k_draws.py")

MUTANTS = [
    # --- Weights as Polars' own arithmetic
    of("bins/test_native_weights.py")("OneCode.counts", "column_types.has_value(columns[0], types[0])",
        "columns[0].is_not_null()", "NaN is counted as a value"),
    # --- Sums that statistics share
    _shared_sums("Total._drawn", "None if draw is None else known.get(draw)", "None",
        "each statistic draws a sum anew, and one draw is charged", "::test_draws_are_of_the_right_sums"),
    _shared_sums("AnyRequest.charged", "found[draw] = str(draw), self._charged_as(ask, draw.claim)",
        "found[place] = str(draw), self._charged_as(ask, draw.claim)",
        "of the draws of each statistic only one is charged", "::test_each_draw_is_charged_once"),
    _shared_sums("is_no_worse", "new.rate >= old.rate", "True",
        "a mean that shares its draws has more noise than alone", "::test_nothing_is_worse_than_alone"),
    _numbers("_statistics/shared_sums:_claim", "Fraction(-1)", "Fraction(0)",
        "one who takes the place of another moves a sum of distances by half of what is charged",
        "-k 'share_sums and replace_one'"),
    _shared_sums("Combined.presented", "2 * (largest + off) + unit >= 1 << _WIDEST", "False",
        "sums of many rows with wide bounds overflow", "::test_wide_sums_do_not_leave_64_bits"),
    # --- Pairs of sums
    _pairs("_may_pair", 'claim.neighboring_relation == "add_or_remove_one"', "True",
        "a row in the place of another moves a pair by twice what is charged",
        "::test_pairs_are_for_pure_losses_of_rows_that_come_or_go"),
    _pairs("bernstein_needed", "Fraction(sums)", "Fraction(1)", "a number of rows from a pair has more noise than alone",
        "::test_nothing_is_worse_than_alone"),
    of("privacy/test_sum_pairs.py")("Bernstein.changes", "(self._of_row(*columns),)", "(self._of_row(*columns) / 2,)",
        "both sums of a pair get half of the noise that they are charged for",
        "::test_bernstein_sums_cost_what_their_statistics_pay"),
    of("privacy/test_sum_pairs.py")("Clamping.of_sums", "rows * constant(high) - sums", "rows * constant(2 * high) - sums",
        "the second sum of a pair moves by more than it may", "::test_bernstein_sums_cost_what_their_statistics_pay"),
    _pairs("BernsteinMean.error_among", "noise_bound(claim, beta / 2)", "noise_bound(claim, beta * 4)", "a mean is further off than is said",
        "::test_a_mean_is_within_its_error"),
    _joint_noise("JointNoise.parts", "[place - v for place in places]", "[place - v * place for place in places]",
        "the interval of a mean from a pair is that of another mean", "::test_the_true_part_is_between_the_ends"),
    _pairs("bernstein_needed", "_OF_THREE", "Fraction(1)", "a mean of three sums has more noise than of its own pair",
        "::test_three_sums_are_for_pure_losses_of_rows_that_come_or_go"),
    of("privacy/test_sum_pairs.py")("Products.of_units", "(distances * constant(by) - squares)", "(distances * constant(by))",
        "three sums move by more together than is charged", "::test_bernstein_sums_cost_what_their_statistics_pay"),
    of("privacy/test_sum_pairs.py")("Products.per_step", "max(1, finest // self.steps)", "max(1, finest // self.steps * 8)",
        "squares of many steps overflow",
        "::test_rounded_products_of_a_row_are_whole_numbers_with_a_fixed_sum"),
    _pairs("BernsteinVariance._bounds", "beta / len(factors)", "beta * 12", "intervals of variances are too narrow",
        "::test_intervals_of_three_sums_cover"),
    # --- Intervals of means
    _joint_noise("JointNoise.may_be", "_tail_of_laplace(far, *scales)", "_tail_of_laplace(far, scales[0], 0 * scales[1])", "intervals of means forget the noise of the number of rows",
        "::test_the_true_quotient_is_between_the_ends"),
    _joint_noise("_slack_of_laplace", "1 - scale * math.log(2 / (1 + math.exp(-1 / scale)))", "0.0",
        "whole numbers of noise pass their bound too often", "::test_whole_numbers_are_near_a_continuous_variable"),
    # --- Squares
    of("statistics/test_variances.py")("Squares.shift", "(steps * steps - 1) >> _MOST_SQUARES",
        "(steps * steps - 1) >> (_MOST_SQUARES + 2)", "sums of squares overflow"),
    # --- Scores and their intervals
    _scores("QuantileScore.dense_gaps", "gaps[total[:, 0] == 0] = 0", "", "an empty group prefers some candidates"),
    _scores("slots_of_ranks", "gaps[totals == 0] = 0", "", "an empty group prefers some candidates"),
    _drawing("gap_dtype", "rows * unit", "rows", "gaps of many rows overflow",
        "::test_a_small_group_beside_a_large_one"),
    of("mechanisms/test_scores.py")("CountScore.slots", "size - runs.sizes", "np.ones_like(runs.sizes)",
        "candidates that nobody has count as one", "::test_slots_name_every_code_once_with_its_gap"),
    of("frames/test_frame.py")("QuantileScore.of_people", "False", "True",
        "a quantile counts each person's value once, but its R is that of a row",
        "::test_what_is_refused"),
    _scores("Runs.nth_unoccupied", "n + np.bincount(passed, minlength=len(self.sizes))", "n",
        "a candidate that nobody has is drawn as one that somebody has"),
    # --- Draws
    _drawing("gaps_of_rows", "lengths.max", "lengths.min",
        "gaps overflow where a small group stands beside a large one", "::test_a_small_group_beside_a_large_one"),
    _drawing("far_gap", "Fraction(FAR) / draw.rate", "Fraction(FAR) / draw.rate / 3",
        "near candidates of a quantile are treated as far ones", "::test_what_is_left_out_is_far"),
    _drawing("_near_slots", "left_out += rows[:, 0]", "pass", "far candidates below a quantile never win"),
    _kernel_draws("draw_from_slots", "uniform_below(count, rng)", "np.zeros_like(count)",
        "of a block the first candidate is always drawn", "::test_draws_from_rows_follow_the_law"),
    _kernel_draws("_draw_near_runs", "low + (draw.size - high)", "None", "far candidates of a quantile never win",
        "::test_runs_left_out_win_as_often_as_they_should"),
    _scores("blocks_of_gaps", "gaps[group]", "gaps[0]", "close races of a group are run with another's scores"),
    # --- Codes
    of("bins/test_found_grids.py")("_encoder_by_pieces", "(inside + offsets[piece]) // strides[piece]", "(inside + offsets[piece]) // strides[0]", "all decades of a grid have the steps of the first",
        "::test_codes_are_those_of_a_list_of_the_points"),
    _encoding("_without_nulls", "codes[column.is_null().to_numpy()] = size", "pass", "null counts as a value",
        "::test_integers_go_to_the_nearest_integer"),
    _encoding("category_encoder", "np.where(ascending[position] == column, rank[position], out.type(size))",
        "rank[position]", "a value that is no candidate counts for the next one",
        "::test_a_value_that_is_no_candidate_does_not_contribute"),
    # --- Choices
    _weights("Choice.range_of", "self.score.range(relation, groups) * self.weights.most", "self.score.range(relation, groups)",
        "a row may weigh more than one and is charged as one", "::test_claim_and_error_are_in_the_unit_of_the_weights"),
    _intervals("QuantileWithInterval.__post_init__", "max(self.public_rows) <= _MOST_ROWS", "True",
        "the ranks of the ends don't fit into 64 bits",
        "::test_a_loss_for_which_the_ends_would_be_out_of_sight_is_refused"),
    _intervals("Histogram.with_rows_at", "Histogram.of_cells", "self.of_cells",
        "an interval of held rows is of wrong rows",
        "::test_rows_are_added_at_the_first_or_the_last_code_of_every_group"),
    _intervals("SingleRows.with_rows_at", "*self.rows, (groups, codes)", "(groups, codes)",
        "an interval of held rows is of public rows alone",
        "::test_rows_are_added_at_the_first_or_the_last_code_of_every_group"),
    _intervals("Histogram.with_rows_at", "np.cumsum(self.sizes) if code else starts(self.sizes)", "starts(self.sizes)",
        "rows at the last candidate stand before all others",
        "::test_rows_are_added_at_the_first_or_the_last_code_of_every_group"),
    # --- Weights and sums
    _sums("Clamping.weigh", "np.clip(self._units(columns[self.column], low, high), low, high)",
        "self._units(columns[self.column], low, high)", "values beyond the bounds count in full",
        "::test_integers_become_their_nearest_steps_exactly"),
    _sums("Clamping.of_units", "constant(low + high)", "constant(low)", "a mean adds up distances from the wrong middle",
        "::test_ties_go_to_even_and_bounds_are_kept"),
    _sums("Clamping.largest", "max(abs(self.lower), abs(self.upper))", "abs(self.upper)",
        "the largest weight forgets negative bounds", "::test_types"),
    _sums("_bins/binning:_is_missing",
        "missing | column.is_nan().fill_null(value=False) if column.dtype.is_float() else missing", "missing",
        "NaN is counted as a value", "::test_floats_that_are_no_numbers"),
    of("statistics/test_totals.py")("Clamping.of_person",
        "low, high = (int(end / self.step) for end in self.ends_of_person)",
        "high = max(int(abs(end) / self.step) for end in self.ends_of_person); low = -high",
        "a total of both signs may be as low as it may be high: under replace_one, one of one sign is charged for less",
        "statistics/test_totals.py::test_a_person_without_a_value_adds_nothing statistics/test_totals.py::test_values_are_clipped_first_and_then_the_total_of_a_person_in_a_group"),
    _numbers("Measure.range_of", '2 * self.largest', "self.largest", "a replacement is charged as one row",
        "::test_nor_does_a_replacement"),
    _numbers("Variance.changes", "Fraction(self.squares(*columns).largest)",
        "Fraction(self.squares(*columns).largest, 2)", "squares move by twice what they are charged for",
        "::test_several_draws_cost_an_equal_share_each"),
    _sums("step_by_default", "not _fit(step, ends)", "False", "sums of floats leave 62 bits",
        "::test_the_step_by_default"),
    _sums("check_size", "max(Fraction(units.largest), (units.upper - units.lower) / units.step) <= _MOST_UNITS",
        "Fraction(units.largest) <= 2**62", "sums overflow", "::test_arguments"),
    of("mechanisms/test_scores.py")("Histogram.of_rows", "codes < size", "codes <= size",
        "rows that do not contribute weigh something"),
    _histograms("Histogram._of_many_codes", "codes < size", "codes <= size",
        "rows that do not contribute are counted where cells leave 64 bits"),
    _histograms("Histogram.of_pairs", "groups * width + codes", "codes",
        "rows of one group are counted for another"),
    # --- Halves of a claim, and noise where nobody is
    _numbers("Mean.changes", "(self.upper - self.lower) / self.known_step(*columns)",
        "(self.upper - self.lower) / self.known_step(*columns) / 2",
        "the distances of a mean move by twice what they are charged for",
        "::test_no_person_changes_a_number_by_more_than_the_loss_pays_for"),
    # --- How wrong an answer may be
    _guaranteed("Claim._loss_units", "self._gap", "False", "a gap is charged in rho"),
    _guaranteed("_statistics/statistic:Asked.mechanism", "self.terms.mechanism", "None", "a mechanism by name is another one under rho"),
    # --- One guarantee for all outputs
    _guaranteed("Claim._loss_at", "not self._has_epsilon", "False", "Gaussian noise is taken for pure"),
    _guaranteed("_release/release:release_all", "part.request.refuse_open('release')", "",
        "what has no loss is released"),
    _within_and_more("Request.of", "request.typed(engine)", "request.typed(None)", "the column's step is not looked at"),
    _within_and_more("Terms.of", "len(named) > 1", "False", "within hides a loss that was given"),
    # --- Lists of quantiles
    of("statistics/test_quantile_lists.py privacy/test_quantile_lists.py")("QuantileList.range_of",
        '1 if relation == "add_or_remove_one" else 2', "1", "on private frames a replacement is charged as one row"),
    of("statistical/test_list_draws.py")("TreeDraw.of", "self.rate / node.score_range", "self.rate",
        "the draws of a list are at the rate of scores of range 1"),
    _quantile_lists("tree", "2 ** (levels_of(last - first) - 1) - 1", "last - first",
        "a tree has more levels than are charged",
        "::test_the_tree_has_every_quantile_once_on_as_few_levels_as_possible"),
    _quantile_lists("Node.score_range", 'int(QuantileScore(self.alpha).range("add_or_remove_one"))',
        "self.alpha.denominator", "R of a draw of a list is that of a median",
        "::test_each_level_costs_a_row_what_one_quantile_at_its_share_does"),
    of("privacy/test_quantile_lists.py mechanisms/test_cells.py")("Cells.cut", "positions(begins + sizes, rest), rest",
        "positions(begins, rest + sizes), rest + sizes", "rows below an answer are drawn from on both sides of it"),
    of("mechanisms/test_cells.py")("_Window.with_digits",
        "rng(total // 2 + 1).view(np.uint32)[:total] >> np.repeat(np.uint32(MOST_BITS) - bits, rows)",
        "np.zeros(total, np.uint32)", "second digits are no random ones",
        "::test_digits_have_the_law_of_independent_ones"),
    # --- Top k
    _top_k_draws("draw_in_rounds", "left[won] -= 1", "pass",
        "a level is drawn from as often as it has candidates, and more"),
    _top_k_draws("_mechanisms/top_k:_race", "steps.errors, draw.rate", "steps.errors, draw.rate * 2",
        "a joint draw has twice the rate"),
    of("mechanisms/test_joint.py")("_Steps.multiplicity", "width if rank == rank_of_step else width - rank",
        "width - rank", "in close races some lists are too seldom", "::test_the_blocks_are_all_lists_each_once"),
    _top_k_draws("_mechanisms/top_k:_places", "uniform_below(free, rng)", "np.zeros_like(free)",
        "of lists with one error the first one is always drawn"),
    # --- By weight
    _weights("TopK.range_of",
        "CountScore().range(relation) * (2 if self._is_of_lists else 1) * self.weights.most",
        "CountScore().range(relation) * (2 if self._is_of_lists else 1)",
        "in a list a weight is charged as one row"),
    _weights("Weights.units", "Fraction(0)", "-self.most", "weights may be negative, and move two candidates apart",
        "::test_negative_weights_are_none"),
    # --- Claims
    of("statistics/test_tops.py")("Asked.claim", "_draws=self.draws", "_draws=1", "several draws are paid for as one",
        "::test_the_draws_share_the_loss"),
    # --- R in one group, and gaps
    of("statistics/test_queries.py")("HistogramQuery.under", "contributions=contributions", "",
        "the bounds of a private frame do not change the rate",
        "::test_bounds_that_a_frame_knows_change_the_rate_and_not_the_loss"),
    of("statistical/test_gap_draws.py")("_gap_from_runs", "runs.nth_unoccupied(offset)",
        "runs.nth_unoccupied(offset * 0)",
        "with a gap, of the candidates that nobody has the first one is always drawn",
        "::test_with_a_gap_candidates_that_nobody_has_are_as_good_as_each_other"),
    _encoding("_by_category", "most + 1", "0",
        "a row without a value counts for a category, or takes that of others away"),
    # --- Candidates
    of("bins/test_candidates.py")("_to_series",
        "series if series.dtype == pl.Object else unshared(series.to_frame()).to_series()", "series",
        "who writes into the candidates' memory counts a row several times", "-k written_to_later"),
]
