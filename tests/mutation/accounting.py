"""Mutants of claims, budgets and the ledger."""

from tests.mutation.mutant import of

_claims = of("_accounting/claims.py", "accounting/test_claims.py")
_costs = of("_accounting/costs.py", "accounting/test_claims.py")
_budgets = of("_accounting/budgets.py", "accounting/test_budgets.py")
_conversions = of("_accounting/conversions.py", "accounting/test_deltas.py")
_kept = of("_accounting/kept.py", "frames/test_kept.py")
_ledger = of("_accounting/ledger.py", "accounting/test_budgets.py")
_large = of("_accounting/large.py", "accounting/test_large.py")
_locks = of("_accounting/locks.py", "accounting/test_budgets.py")
_uninterrupted = of("_accounting/uninterrupted.py", "accounting/test_interruptions.py")

MUTANTS = [
    # --- Claims
    _costs(
        "    filled = groups * rho_of(x * contributions.per_group) + rho_of(x * contributions.rest)\n",
        "    filled = contributions.total * rho_of(x)\n",
        "under rho, the rows of a full group are charged as if each were in a group of its own",
        "accounting/test_claims.py::test_the_cost_in_rho_is_never_below_the_truth",
    ),
    _costs(
        "        return min(round_up(upper(rho)), x**2 / 8)",
        "        return min(round_up(upper(rho)), x**2 / 16)",
        "half the rho of bounded range",
        "accounting/test_claims.py::test_the_cost_in_rho_is_never_below_the_truth",
    ),
    _costs(
        "    return x**2 / 2\n",
        "    return x**2 / 4\n",
        "half the rho of Gaussian noise",
        "accounting/test_costs.py -k replaced",
    ),
    _costs(
        "upper(ball(x) * -(-ball(x)).expm1() / (1 + (-ball(x)).exp()))",
        "upper(ball(x) * -(-ball(x)).expm1() / (2 + (-ball(x)).exp()))",
        "what is only pure costs less rho than randomized response",
        "privacy/test_numbers.py -k other_unit",
    ),
    _costs(
        '    "discrete_laplace": pure_rho,\n',
        '    "discrete_laplace": laplace_rho,\n',
        "discrete Laplace noise is charged by a curve of the continuous one",
        "privacy/test_numbers.py -k other_unit",
    ),
    _costs(
        '    "partition_selection": pure_rho,\n',
        '    "partition_selection": laplace_rho,\n',
        "keys are charged as a Laplace mechanism",
        "accounting/test_claims.py::test_what_keys_cost_beside_their_delta",
    ),
    _costs(
        "    if rho_of is not pure_rho or not contributions.rest:\n",
        "    if True:\n",
        "full groups are taken for the worst spread of what is only pure",
        "accounting/test_costs.py",
    ),
    _costs(
        "        return 2 * _rho_of_spread(mechanism, x / 2, contributions)\n",
        "        return _rho_of_spread(mechanism, x / 2, contributions)\n",
        "of a replaced person, only the old one's rows are charged in rho",
        "privacy/test_numbers.py -k other_unit",
    ),
    _costs(
        "        return 2 * scaled_rate(unit, mechanism, loss / 2, contributions)\n",
        "        return 2 * scaled_rate(unit, mechanism, loss, contributions)\n",
        "the rate of numbers under replace_one costs twice the rho",
        "privacy/test_numbers.py::test_nor_does_a_replacement",
    ),
    _costs(
        "    of_full = max(rho_of(same_group * full), 2 * rho_of(full / 2))\n",
        "    of_full = rho_of(same_group * full)\n",
        "of quantiles, a row that changes its group is charged as one that stays in it",
        "accounting/test_costs.py -k quantiles",
    ),
    _costs(
        "    of_full = max(rho_of(same_group * full), 2 * rho_of(full / 2))\n",
        "    of_full = 2 * rho_of(full / 2)\n",
        "of quantiles, a row that stays in its group is charged as one that changes it",
        "accounting/test_costs.py -k quantiles",
    ),
    _costs(
        "Fraction(contributions.total, contributions.per_group) * of_full",
        "contributions.full_groups * of_full",
        "of replaced quantiles, rows left over for one more group are free",
        "accounting/test_costs.py -k quantiles",
    ),
    _costs(
        '    "permute_and_flip": laplace_rho,\n',
        '    "permute_and_flip": bounded_range_rho,\n',
        "permute-and-flip is charged as bounded range (opendp #2911)",
        "accounting/test_claims.py::test_the_rate_of_zcdp_is_the_largest_that_the_loss_pays",
    ),
    _costs(
        "    filled = groups * rho_of(x * contributions.per_group) + rho_of(x * contributions.rest)\n",
        "    filled = groups * rho_of(x * contributions.per_group)\n",
        "rows left over for one more group are free",
        "accounting/test_claims.py::test_the_rate_of_zcdp_is_the_largest_that_the_loss_pays",
    ),
    _costs(
        "        return x * contributions.total\n",
        "        return x * contributions.per_group\n",
        "losses of several groups do not add up",
        "accounting/test_claims.py::test_the_cost_in_epsilon_is_exact",
    ),
    _costs(
        "        return loss / contributions.total\n",
        "        return loss / contributions.per_group\n",
        "the rate is that of one group",
        "accounting/test_claims.py::test_the_rate_of_pure_dp_is_exact",
    ),
    _costs(
        "    return _sqrt_down(2 * loss / contributions.squares)\n",
        "    return _sqrt_down(8 * loss / contributions.squares)\n",
        "noise of half the deviation that rho pays for",
        "privacy/test_numbers.py::test_no_person_changes_a_number_by_more_than_the_loss_pays_for",
    ),
    _costs(
        "    return _sqrt_down(2 * loss / contributions.squares)\n",
        "    return _sqrt_down(2 * loss / contributions.total)\n",
        "under rho, noise for groups of several rows is that for single rows",
        "privacy/test_numbers.py::test_no_person_changes_a_number_by_more_than_the_loss_pays_for",
    ),
    _claims(
        "(is_between and self.charged_as not in _CHOOSING)",
        "(is_between and self.mechanism not in _CHOOSING)",
        "a lead is charged by a proof for convex costs",
        "accounting/test_costs.py::test_what_a_replacement_in_one_group_does_is_checked",
    ),
    _claims(
        '        least = HALF if self.neighboring_relation == "replace_one" else ALL\n',
        "        least = HALF\n",
        "a person who comes or goes can be charged as one who is replaced",
        "accounting/test_costs.py::test_what_a_replacement_in_one_group_does_is_checked",
    ),
    _claims(
        "    return exact if monotonic else 2 * exact\n",
        "    return exact\n",
        "scores that move apart are charged as monotonic ones",
        "mechanisms/test_selection.py::test_the_range_of_monotonic_scores_is_the_sensitivity",
    ),
    _claims(
        "    return exact if monotonic else 2 * exact\n",
        "    return 2 * exact\n",
        "monotonic scores get half the rate that they may have",
        "mechanisms/test_selection.py::test_the_range_of_monotonic_scores_is_the_sensitivity",
    ),
    _costs(
        "    return math.ceil(x / step) * step\n",
        "    return math.floor(x / step) * step\n",
        "irrational costs are rounded down",
        "accounting/test_claims.py::test_the_cost_in_rho_is_never_below_the_truth",
    ),
    _costs(
        "    return Fraction(math.isqrt(math.floor(x * 4**shift)), 2**shift)",
        "    return Fraction(math.isqrt(math.floor(x * 4**shift)) + 1, 2**shift)",
        "irrational rates are rounded up",
        "accounting/test_claims.py::test_irrational_roots_are_rounded_down",
    ),
    _costs(
        "    return _largest(lambda steps: cost(steps) <= rho, guess) * step\n",
        "    return (_largest(lambda steps: cost(steps) <= rho, guess) + 1) * step\n",
        "the rate that rho pays for is rounded up",
        "accounting/test_claims.py::test_the_rate_of_zcdp_is_the_largest_that_the_loss_pays",
    ),
    _claims(
        "        return self.full_groups * self.per_group**2 + self.rest**2\n",
        "        return self.full_groups * self.per_group**2\n",
        "a last group that is not full is free under rho",
        "accounting/test_claims.py::test_full_groups_are_the_worst_case",
    ),
    _claims(
        "        return self.full_groups * self.per_group**2 + self.rest**2\n",
        "        return self.full_groups * self.per_group + self.rest\n",
        "rows, not their squares, add up under rho",
        "accounting/test_claims.py::test_full_groups_are_the_worst_case",
    ),
    _claims(
        "        return self.total // self.per_group\n",
        "        return max(1, self.total // (self.per_group + 1))\n",
        "fewer groups are full than a person can fill",
        "accounting/test_claims.py::test_full_groups_are_the_worst_case",
    ),
    _claims(
        "        share = self.loss.value / self.draws\n",
        "        share = self.loss.value\n",
        "every draw of a mean gets the whole loss",
        "privacy/test_numbers.py -k mean",
    ),
    _claims(
        "        return self.draws * scaled_cost(",
        "        return scaled_cost(",
        "in the other unit, one of several draws is charged",
        "privacy/test_numbers.py -k mean",
    ),
    _claims(
        "        x = self.rate * self.score_range * distance\n",
        "        x = self.rate * distance\n",
        "a cost in the other unit forgets the range",
        "accounting/test_claims.py::test_no_claim_is_charged_less_than_its_rate_spends",
    ),
    _claims(
        "        if unit == self.loss.unit and distance == 1:\n",
        "        if unit == self.loss.unit:\n",
        "several people lose as much as one",
        "accounting/test_claims.py::test_the_cost_of_several_people",
    ),
    _claims(
        '        if unit == "epsilon" and not self.has_epsilon:\n',
        "        if False:\n",
        "a Gaussian has an epsilon",
        "questions/test_measures.py frames/test_numbers.py",
    ),
    _claims(
        '        if not self.has_epsilon and self.loss.unit == "epsilon":\n',
        "        if False:\n",
        "a Gaussian is drawn for an epsilon",
        "questions/test_measures.py expressions/test_numbers.py",
    ),
    _claims(
        '        return "permute_and_flip" if unit == "epsilon" else "exponential"\n',
        '        return "exponential" if unit == "epsilon" else "permute_and_flip"\n',
        "the unit chooses the worse mechanism",
        "accounting/test_claims.py::test_the_unit_chooses_the_mechanism",
    ),
    _claims(
        '        return "discrete_laplace" if unit == "epsilon" else "discrete_gaussian"\n',
        '        return "discrete_laplace"\n',
        "numbers under rho get the wrong noise",
        "questions/test_measures.py frames/test_numbers.py",
    ),
    _claims(
        "        if not 1 <= self.per_group <= self.total:\n",
        "        if not 1 <= self.per_group:\n",
        "a group may hold more rows than a person",
        "accounting/test_claims.py::test_every_field_of_a_claim_is_checked",
    ),
    _claims(
        "        if (epsilon is None) == (rho is None):\n",
        "        if epsilon is None and rho is None:\n",
        "both units are given, and one is ignored",
        "accounting/test_claims.py::test_exactly_one_loss",
    ),
    _claims(
        '        return f"{self.unit}={show(self.value, up=True)}"\n',
        '        return f"{self.unit}={show(self.value)}"\n',
        "a printed loss is below the true one",
        "accounting/test_claims.py::test_a_loss_is_exact",
    ),
    _costs(
        "    while not holds(low):\n        low, reach = low - reach, 2 * reach\n",
        "",
        "a secant's guess is taken for a rate also where it costs too much",
        "accounting/test_claims.py::test_no_claim_is_charged_less_than_its_rate_spends",
    ),
    # --- Budgets
    _budgets(
        "            if requested > remaining or requested_delta > remaining_delta:\n",
        "            if requested > self.total or requested_delta > remaining_delta:\n",
        "every release is compared with the whole budget",
        "accounting/test_budgets.py::test_ten_tenths_fit_one_and_an_eleventh_does_not",
    ),
    _budgets(
        "            if requested > remaining or requested_delta > remaining_delta:\n",
        "            if max(cost for cost, _ in costs) > remaining or requested_delta > remaining_delta:\n",
        "outputs of one release are compared one by one",
        "accounting/test_budgets.py::test_a_charge_is_all_or_nothing",
    ),
    _budgets(
        "            if requested > remaining or requested_delta > remaining_delta:\n",
        "            if float(requested) > float(remaining) or requested_delta > remaining_delta:\n",
        "a hair too much is spent",
        "accounting/test_budgets.py::test_numbers_stand_in_full_in_the_refusal",
    ),
    _budgets(
        "                spent, spent_delta = spent + cost, spent_delta + delta\n",
        "                spent, spent_delta = max(spent, cost), spent_delta + delta\n",
        "charges do not add up",
        "accounting/test_budgets.py::test_ten_tenths_fit_one_and_an_eleventh_does_not",
    ),
    _budgets(
        "        costs = [(claim.cost(self.unit), claim.delta) for _, claim in entries]\n",
        "        costs = [(claim.loss.value, claim.delta) for _, claim in entries]\n",
        "a loss in the other unit is charged as if in this one",
        "accounting/test_budgets.py::test_a_claim_is_charged_its_cost_in_the_unit_of_the_budget",
    ),
    _budgets(
        "            if head.charges and first != (privacy_unit, neighboring_relation):\n",
        "            if head.charges and first[0] != privacy_unit:\n",
        "losses of different relations add up",
        "accounting/test_budgets.py::test_the_first_charge_fixes_privacy_unit_and_relation",
    ),
    _budgets(
        "            if head.charges and first != (privacy_unit, neighboring_relation):\n",
        "            if head.charges and first[1] != neighboring_relation:\n",
        "losses of different units add up",
        "accounting/test_budgets.py::test_the_first_charge_fixes_privacy_unit_and_relation",
    ),
    _budgets(
        "        if claim.neighboring_relation not in (None, relation):\n",
        "        if False:\n",
        "a claim is charged for another relation",
        "accounting/test_budgets.py::test_a_claim_is_for_the_relation_charged",
    ),
    _budgets(
        "            stored(number)  # a number too long to keep is too long for the messages below\n",
        "            pass\n",
        "a request too long to print fails in the refusal",
        "accounting/test_budgets.py::test_a_request_that_is_too_long_and_too_large_is_refused_in_words",
    ),
    _budgets(
        "            if now < before:\n",
        "            if False:\n",
        "an older ledger put back spends twice",
        "accounting/test_budgets.py::test_an_older_copy_is_seen_by_a_pickle_of_who_has_seen_the_newer",
    ),
    _budgets(
        "        if (head.unit, total, delta) != (self.unit, self.total, self.delta):\n",
        "        if (head.unit, delta) != (self.unit, self.delta):\n",
        "a ledger is opened with a larger total",
        "accounting/test_budgets.py::test_another_total_unit_or_name_is_refused",
    ),
    _budgets(
        "        if self._memory is None or self._process != os.getpid():\n",
        "        if self._memory is None:\n",
        "a fork spends the budget once more",
        "accounting/test_budgets.py::test_a_fork_shares_a_ledger_and_is_refused_a_budget_in_memory",
    ),
    _budgets(
        '        if self.path is None:\n            msg = (\n                "A Budget without a path must not be copied',
        '        if False:\n            msg = (\n                "A Budget without a path must not be copied',
        "a copy spends the budget once more",
        "accounting/test_budgets.py::test_a_budget_in_memory_has_no_copies",
    ),
    _budgets(
        "        self._seen, self._seen_delta = max(self._seen, spent), max(self._seen_delta, spent_delta)\n",
        "",
        "an older ledger put back after a charge of this process is taken",
        "accounting/test_budgets.py::test_an_older_copy_is_seen_by_a_pickle_of_who_has_seen_the_newer",
    ),
    # --- The ledger
    _ledger(
        '        connection.execute("COMMIT")\n    except sqlite3.Error',
        '        connection.execute("ROLLBACK")\n    except sqlite3.Error',
        "nothing is ever charged",
        "accounting/test_budgets.py::test_ten_tenths_fit_one_and_an_eleventh_does_not",
    ),
    _ledger(
        "        digest = _digest(digest, number, *values)\n",
        '        digest = _digest("", number, *values)\n',
        "digests do not hang on the charge before",
        "accounting/test_budgets.py::test_ten_tenths_fit_one_and_an_eleventh_does_not",
    ),
    _ledger(
        "        digest = _digest(digest, number, *values)\n        if (number, digest) != (stored_number, stored_digest):\n",
        "        digest = stored_digest\n        if number != stored_number:\n",
        "an edited charge is taken",
        "accounting/test_budgets.py::test_an_edited_ledger_is_refused",
    ),
    _ledger(
        "    if (number, digest) != (head.charges, head.last_digest):\n",
        "    if False:\n",
        "charges that were removed at the end are not missed",
        "accounting/test_budgets.py::test_an_edited_ledger_is_refused",
    ),
    _ledger(
        "    if len(rows) != 1 or rows[0][-1] != _digest(*rows[0][1:-1]):\n",
        "    if len(rows) != 1:\n",
        "an edited sum is taken",
        "accounting/test_budgets.py::test_an_edited_ledger_is_refused",
    ),
    _ledger(
        '("PRAGMA synchronous = EXTRA", "PRAGMA fullfsync = ON", *statements)',
        '("PRAGMA synchronous = FULL", "PRAGMA fullfsync = ON", *statements)',
        "a power cut undoes a charge: the folder is not synced",
        "accounting/test_budgets.py::test_commits_are_synced_to_the_disk_and_the_folder",
    ),
    _ledger(
        '("PRAGMA synchronous = EXTRA", "PRAGMA fullfsync = ON", *statements)',
        '("PRAGMA synchronous = EXTRA", *statements)',
        "a power cut on macOS undoes a charge",
        "accounting/test_budgets.py::test_commits_are_synced_to_the_disk_and_the_folder",
    ),
    _ledger(
        "                _sync_folder(path.parent)\n",
        "                pass\n",
        "a power cut undoes the making of the ledger",
        "accounting/test_budgets.py::test_the_folder_is_synced_once_the_new_ledger_is_in_it",
    ),
    _ledger(
        "                with suppress(FileExistsError):\n                    os.link(made, path)\n",
        "                os.replace(made, path)\n",
        "what another program put there meanwhile is replaced, and its charges are gone",
        "accounting/test_budgets.py::test_what_appears_while_a_ledger_is_made_is_not_replaced",
    ),
    _ledger(
        "    if found.st_nlink != 1:\n",
        "    if False:\n",
        "a ledger with two names is used, and a crash undoes charges",
        "accounting/test_budgets.py::test_a_ledger_has_one_name",
    ),
    _ledger(
        "    if not stat.S_ISREG(found.st_mode):\n",
        "    if False:\n",
        "a pipe is opened, and nothing ever comes out of it",
        "accounting/test_budgets.py::test_a_pipe_is_refused_and_not_waited_for",
    ),
    _ledger(
        "                    _check_unmoved(path, found)\n",
        "",
        "a charge goes into a file that was moved away",
        "accounting/test_budgets.py::test_a_ledger_that_is_moved_under_a_charge_is_an_error",
    ),
    _ledger(
        '"BEGIN EXCLUSIVE")',
        '"BEGIN")',
        "two processes read the same sum and both spend it",
        "accounting/test_budgets.py -k waited_for_before",
    ),
    _ledger(
        "            charges=number, spent=charge.running_total, spent_delta=charge.running_delta, last_digest=digest\n",
        "            charges=number, spent_delta=charge.running_delta, last_digest=digest\n",
        "what is spent is not kept",
        "accounting/test_budgets.py::test_ten_tenths_fit_one_and_an_eleventh_does_not",
    ),
    _ledger(
        "        connection.rollback()  # what the last one left, if it failed\n",
        "        if connection.in_transaction:\n            connection.commit()\n",
        "an error in the middle leaves half a charge",
        "accounting/test_budgets.py::test_an_error_in_the_middle_of_a_charge_leaves_nothing",
    ),
    _ledger(
        "        connection.rollback()  # what the last one left, if it failed\n",
        "",
        "an interruption in a charge leaves a budget in memory in an open transaction, of no more use",
        "accounting/test_interruptions.py::test_an_interrupted_charge_leaves_a_budget_as_it_was",
    ),
    _ledger(
        "    check_wanted()\n    try:\n",
        "    try:\n",
        "a charge that nobody waits for is made all the same",
        "accounting/test_interruptions.py::test_what_nobody_waits_for_is_not_committed",
    ),
    _locks(
        "    check_wanted()\n    if time.monotonic()",
        "    if time.monotonic()",
        "a charge that nobody waits for goes on waiting for a busy ledger",
        equivalent="it does not commit, and others wait for the same lock: it ends a minute later at most",
    ),
    _uninterrupted(
        "    call = _Call()\n    try:\n",
        "    if True:\n        return function()\n    call = _Call()\n    try:\n",
        "an interruption in a charge keeps its locks",
        "accounting/test_interruptions.py -k instruction",
    ),
    _uninterrupted(
        "        while not call.ended.acquire(timeout=_GLANCE_SECONDS):\n            pass\n",
        "        call.ended.acquire()\n",
        "Ctrl-C does not end the wait for a busy ledger",
        "accounting/test_interruptions.py::test_who_waits_for_a_busy_ledger_is_interrupted_at_once_and_pays_nothing",
    ),
    _uninterrupted(
        "            del error  # whose traceback holds this frame\n",
        "            pass\n",
        "an error in a charge lives on until a garbage collection, with all that its traceback holds",
        "accounting/test_interruptions.py::test_an_error_in_a_charge_holds_no_garbage",
    ),
    _large(
        "    if loss.value > LARGEST:\n",
        "    if loss.value > 2 * LARGEST:\n",
        "a loss of 21 is not warned of",
    ),
    _budgets(
        "        warn_if_large(loss)\n",
        "",
        "a budget of 1,000 is not warned of",
        "accounting/test_large.py",
    ),
    # --- Budgets with a delta
    _budgets(
        "            if requested > remaining or requested_delta > remaining_delta:\n",
        "            if requested > remaining:\n",
        "a delta is charged and never refused",
        "accounting/test_deltas.py::test_a_delta_too_much_is_refused_with_both_numbers",
    ),
    _budgets(
        "            if requested > remaining or requested_delta > remaining_delta:\n",
        "            if requested > remaining or requested_delta > (self.delta or 0):\n",
        "every release is compared with the whole delta",
        "accounting/test_deltas.py::test_a_delta_too_much_is_refused_with_both_numbers",
    ),
    _budgets(
        "            if requested > remaining or requested_delta > remaining_delta:\n",
        "            if requested > remaining or float(requested_delta) > float(remaining_delta):\n",
        "a hair of delta too much is spent",
        "accounting/test_deltas.py::test_a_hair_of_delta_too_much_is_refused",
    ),
    _budgets(
        "                spent, spent_delta = spent + cost, spent_delta + delta\n",
        "                spent, spent_delta = spent + cost, max(spent_delta, delta)\n",
        "deltas do not add up",
        "accounting/test_deltas.py::test_losses_and_deltas_add_up_exactly",
    ),
    _budgets(
        "        for now, before in ((spent, self._seen), (spent_delta, self._seen_delta)):\n",
        "        for now, before in ((spent, self._seen),):\n",
        "an older ledger that was charged elsewhere is put back, and its delta is spent twice",
        "accounting/test_deltas.py::test_an_older_copy_that_was_charged_elsewhere_is_seen_by_its_delta",
    ),
    _budgets(
        "        if (head.unit, total, delta) != (self.unit, self.total, self.delta):\n",
        "        if (head.unit, total) != (self.unit, self.total):\n",
        "a ledger is opened with a larger delta",
        "accounting/test_deltas.py::test_a_ledger_keeps_its_delta",
    ),
    _ledger(
        "spent_delta=charge.running_delta, last_digest=digest\n",
        "last_digest=digest\n",
        "what is spent of delta is not kept",
        "accounting/test_deltas.py::test_losses_and_deltas_add_up_exactly",
    ),
    _claims(
        "        if self.contributions.per_group != 1 or self.draws != 1:\n",
        "        if False:\n",
        "a person counts several times in a key, and the noise is that for once",
        "accounting/test_claims.py::test_keys_spend_a_delta_and_only_they",
    ),
    _claims(
        "            growth = ball(people * x).expm1() / ball(x).expm1()\n",
        "            growth = ball(people)\n",
        "the delta of several people is that of one, so many times",
        "accounting/test_deltas.py::test_the_delta_of_several_people",
    ),
    _claims(
        '        return "discrete_laplace" if self.lead else self.mechanism\n',
        "        return self.mechanism\n",
        "under rho a lead is charged as the choice alone",
        "accounting/test_claims.py::test_a_lead_changes_nothing_in_epsilon_and_costs_what_is_pure_in_rho",
    ),
    # --- What a budget means in (epsilon, delta)
    _conversions(
        "    return None if spent >= 1 or delta < spent else (delta - spent) / (1 - spent)\n",
        "    return None if spent >= 1 or delta < spent else delta\n",
        "what keys spend of delta is spent once more",
        "accounting/test_deltas.py::test_what_is_spent_of_delta_counts",
    ),
    _conversions(
        "    below = -float_up(-left)\n",
        "    below = float_up(left)\n",
        "a delta is rounded up before it is used: next to 1 its logarithm is 0",
        "accounting/test_conversions.py",
    ),
    _conversions(
        "max(0.0, float_above(ball(epsilon) + share.max(least).log()))",
        "max(0.0, float((ball(epsilon) + share.max(least).log()).mid()))",
        "an epsilon of pure DP at a delta may be one float below the truth",
        "accounting/test_conversions.py",
    ),
    _conversions(
        "        share = 1 - ball(delta) * (1 + least)  # exp(t − ε)\n",
        "        share = 1 - ball(delta) * (1 + least) ** 2  # exp(t − ε)\n",
        "an epsilon at a delta is below what randomized response has",
        "accounting/test_deltas.py analysis/test_profile.py",
    ),
    _conversions(
        "        return max(0.0, float_above(ball((1 + a) * rho) + log / ball(a)))\n",
        "        return max(0.0, float(((1 + a) * rho)) + float(log / ball(a)) * 0.999)\n",
        "an epsilon of zCDP is rounded down",
        "accounting/test_deltas.py analysis/test_profile.py",
    ),
    # --- Answers that are kept
    _kept(
        "    if not isinstance(answer, bytes) or hashlib.sha256(answer).hexdigest() != values[-1]:\n",
        "    if False:\n",
        "a kept answer that was changed is returned",
        "frames/test_kept.py::test_an_answer_that_was_changed_is_damage",
    ),
    _kept(
        "ORDER BY id DESC LIMIT 1",
        "ORDER BY id LIMIT 1",
        "an answer that was drawn anew is not the one that is kept",
        "frames/test_kept.py::test_fresh_draws_and_pays_anew_and_the_newest_is_kept",
    ),
    # --- The lock beside it
    _locks(
        "        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        "the lock keeps nobody out",
        "accounting/test_budgets.py -k has_it_alone",
    ),
    _locks(
        "                if os.path.samestat(os.fstat(number), name.stat()):  # else somebody removed the file meanwhile\n                    yield\n                    return\n",
        "                yield\n                return\n",
        "two hold two locks of one name",
        "accounting/test_budgets.py::test_a_lock_whose_file_was_removed_while_one_waited_is_taken_anew",
    ),
    _locks(
        "    while _descriptors:\n        os.close(_descriptors.pop())\n",
        "",
        "a child keeps the lock of a parent that died",
        "accounting/test_budgets.py::test_a_fork_does_not_keep_the_lock_of_a_parent_that_dies",
    ),
]
