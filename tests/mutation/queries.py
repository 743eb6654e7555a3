"""Mutants of scores, codes, weights and draws."""

from tests.mutation.mutant import of

_scores = of("_queries/scores.py", "queries/test_scores.py")
_drawing = of("_queries/drawing.py", "queries/test_drawing.py")
_encoding = of("_queries/encoding.py", "queries/test_encoding.py")
_choices = of("_queries/choices.py", "queries/test_queries.py queries/test_weights.py")
_codings = of("_queries/codings.py", "queries/test_sums.py")
_measures = of("_queries/measures.py", "queries/test_measures.py privacy/test_numbers.py")
_sums = of("_queries/sums.py", "queries/test_sums.py privacy/test_numbers.py")
_units = of("_queries/units.py", "queries/test_sums.py queries/test_weights.py")
_histograms = of("_queries/histograms.py", "queries/test_weights.py queries/test_drawing.py")
_candidates = of("_queries/candidates.py", "queries/test_candidates.py")

MUTANTS = [
    # --- Scores and their ranges
    _scores(
        '        return Fraction(1 if relation == "add_or_remove_one" else 2)\n',
        "        return Fraction(1)\n",
        "a replacement moves two counts apart",
        "privacy/test_brute_force.py -k 'epsilon and mode'",
    ),
    _scores(
        '        return Fraction(one if relation == "add_or_remove_one" else 2 * one)\n',
        "        return Fraction(one)\n",
        "a replacement moves a quantile twice",
        "privacy/test_brute_force.py -k 'loses_more_than_epsilon'",
    ),
    _scores(
        "        one = 2 * max(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)\n",
        "        one = 2 * min(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)\n",
        "R of a ninth decile is that of the other side",
    ),
    _scores(
        "        one = 2 * max(self.alpha.numerator, self.alpha.denominator - self.alpha.numerator)\n",
        "        one = self.alpha.denominator\n",
        "R of a ninth decile is that of a median",
        "privacy/test_brute_force.py -k 'loses_more_than_epsilon and decile'",
    ),
    _scores(
        "    gap = np.add(below, 1, out=out)\n",
        "    gap = np.add(below, 0, out=out)\n",
        "a tie at the quantile has two best candidates",
    ),
    _scores(
        "        gaps[total[:, 0] == 0] = 0  # where nobody is, all candidates are as good\n",
        "",
        "an empty group prefers some candidates",
        "queries/test_scores.py queries/test_drawing.py",
    ),
    _scores(
        "    gaps[totals == 0] = 0  # where nobody is, all candidates are as good\n",
        "",
        "an empty group prefers some candidates",
        "queries/test_scores.py queries/test_drawing.py",
    ),
    _scores(
        "    return np.int32 if rows * unit < 2**31 - 1 else np.int64\n",
        "    return np.int32 if rows < 2**31 - 1 else np.int64\n",
        "gaps of many rows overflow",
    ),
    _scores(
        "    dtype = gap_dtype(max(low + ranks, int(totals.max())) + 1, alpha.denominator)\n",
        "    dtype = gap_dtype(max(low + ranks, int(totals.min())) + 1, alpha.denominator)\n",
        "gaps overflow where a small group stands beside a large one",
        "queries/test_drawing.py queries/test_scores.py",
    ),
    _scores(
        "            np.insert(np.ones_like(counts), rest, (size - runs.sizes)[has_rest]),\n",
        "            np.insert(np.ones_like(counts), rest, np.ones_like(runs.sizes)[has_rest]),\n",
        "candidates that nobody has count as one",
        "queries/test_scores.py queries/test_drawing.py",
    ),
    _scores(
        "    of_people = True\n    ranks = None\n",
        "    of_people = False\n    ranks = None\n",
        "a mode counts a person's rows",
        "frames/test_frame.py",
    ),
    _scores(
        "    alpha: Fraction\n    of_people = False\n",
        "    alpha: Fraction\n    of_people = True\n",
        "a quantile counts each person's value once, but its R is that of a row",
        "frames/test_frame.py privacy/test_private_frames.py",
    ),
    _scores(
        "        return n + np.bincount(passed, minlength=len(self.sizes))\n",
        "        return n\n",
        "a candidate that nobody has is drawn as one that somebody has",
        "queries/test_scores.py queries/test_drawing.py",
    ),
    # --- Draws
    _drawing(
        "    dtype = scores.gap_dtype(int(lengths.max()), draw.score.unit)\n    gaps = np.empty",
        "    dtype = scores.gap_dtype(int(lengths.min()), draw.score.unit)\n    gaps = np.empty",
        "gaps overflow where a small group stands beside a large one",
    ),
    _drawing(
        "    return min(math.ceil(Fraction(FAR) / draw.rate), 2**62 // alpha.denominator)\n",
        "    return min(math.ceil(Fraction(FAR) / draw.rate / 3), 2**62 // alpha.denominator)\n",
        "near candidates of a quantile are treated as far ones",
    ),
    _drawing(
        "        left_out += rows[:, 0]\n",
        "        pass\n",
        "far candidates below a quantile never win",
        "queries/test_drawing.py statistical/test_kernel_draws.py",
    ),
    _drawing(
        "    left_out = np.maximum(size - 1 - rows[:, -1], 0).astype(np.int64)\n",
        "    left_out = np.zeros(len(rows), np.int64)\n",
        "far candidates above a quantile never win",
        "queries/test_drawing.py statistical/test_kernel_draws.py",
    ),
    _drawing(
        "    return first, uniform_below(count, words)\n",
        "    return first, np.zeros_like(count)\n",
        "of a block the first candidate is always drawn",
        "statistical/test_kernel_draws.py",
    ),
    _drawing(
        "    slots = scores.quantile_slots(near, draw.size, alpha, low, high)\n    code, offset = _draw_from_slots(draw, slots, low + (draw.size - high), complete)\n",
        "    slots = scores.quantile_slots(near, draw.size, alpha, low, high)\n    code, offset = _draw_from_slots(draw, slots, None, complete)\n",
        "far candidates of a quantile never win",
        "queries/test_drawing.py statistical/test_kernel_draws.py",
    ),
    _drawing(
        "        return gaps[group].tolist().__getitem__, [1] * draw.size\n",
        "        return gaps[0].tolist().__getitem__, [1] * draw.size\n",
        "close races of a group are run with another's scores",
        "queries/test_drawing.py statistical/test_kernel_draws.py",
    ),
    # --- Codes
    _encoding(
        "        x -= 0.5\n        np.ceil(x, out=x)\n",
        "        np.floor(x, out=x)\n",
        "values go down to a candidate, not to the nearest",
    ),
    _encoding(
        "    shift = low * whole - first + (stride + 1) // 2 - 1\n",
        "    shift = low * whole - first + stride // 2\n",
        "ties go up",
    ),
    _encoding(
        "    if (high - low) * whole + abs(shift) + stride >= 2**63:\n",
        "    if (high - low) * whole + abs(shift) + stride >= 2**64:\n",
        "a long span overflows and gives wrong candidates",
    ),
    _encoding(
        "        return lambda x: np.where(np.isnan(x), size, np.searchsorted(middles, x))\n",
        "        return lambda x: np.searchsorted(middles, x)\n",
        "NaN counts as the largest value",
    ),
    _encoding(
        "        np.clip(x, 0, size - 1, out=x)\n        return np.fmin(x, size, out=x)",
        "        np.clip(x, 0, size - 1, out=x)\n        return np.nan_to_num(x)",
        "NaN counts as the smallest value",
    ),
    _encoding("        codes[column.is_null().to_numpy()] = size\n", "        pass\n", "null counts as a value"),
    _encoding(
        "            return np.where(ascending[position] == column, rank[position], out.type(size))\n",
        "            return rank[position]\n",
        "a value that is no candidate counts for the next one",
    ),
    _encoding(
        "            found: Codes = table[np.minimum(offset, np.uint64(beyond), out=offset).view(np.int64)]\n",
        "            found: Codes = table[(offset % np.uint64(beyond + 1)).view(np.int64)]\n",
        "a value that is no candidate counts for another one",
    ),
    # --- Choices
    _choices(
        "        return super().range_of(relation) * (1 if self.weights is None else self.weights.most)\n",
        "        return super().range_of(relation)\n",
        "a row may weigh more than one and is charged as one",
    ),
    _choices(
        "        rate = self.claim.rate * self.step(*columns)\n",
        "        rate = self.claim.rate\n",
        "weights in steps are drawn as if in units",
    ),
    _choices(
        "        return draw if self.too_few is None else replace(draw, size=draw.size + 1)\n",
        "        return draw\n",
        "the candidate for too few can't be drawn",
    ),
    _choices(
        "        return histogram.with_code(self.coding(*columns).size, int(self.too_few / self.step(*columns)))\n",
        "        return histogram.with_code(self.coding(*columns).size, int(self.too_few))\n",
        "too few is counted in steps of the weights",
    ),
    # --- Weights and sums
    _codings(
        "            units = np.clip(self._units(columns[self.column], low, high), low, high)\n",
        "            units = self._units(columns[self.column], low, high)\n",
        "values beyond the bounds count in full",
        "queries/test_sums.py queries/test_weights.py",
    ),
    _codings(
        "            return 2 * units - (low + high) if self.doubled else units\n",
        "            return 2 * units - low if self.doubled else units\n",
        "a mean adds up distances from the wrong middle",
    ),
    _codings(
        "            return int((self.upper - self.lower) / self.step)\n",
        "            return int((self.upper - self.lower) / self.step / 2)\n",
        "the largest weight of a mean is half of what a row can weigh",
        "queries/test_sums.py privacy/test_numbers.py",
    ),
    _codings(
        "        return int(max(abs(self.lower), abs(self.upper)) / self.step)\n",
        "        return int(abs(self.upper) / self.step)\n",
        "the largest weight forgets negative bounds",
        "queries/test_sums.py queries/test_weights.py privacy/test_numbers.py",
    ),
    _codings(
        "    return missing | column.is_nan().fill_null(value=False) if column.dtype.is_float() else missing\n",
        "    return missing\n",
        "NaN is counted as a value",
        "queries/test_measures.py queries/test_sums.py",
    ),
    _sums(
        "        return max(abs(self.lower), abs(self.upper))\n",
        "        return self.upper - self.lower\n",
        "a sum's sensitivity is the width of its bounds",
    ),
    _measures(
        '    return largest if relation == "add_or_remove_one" else 2 * largest\n',
        "    return largest\n",
        "a replacement is charged as one row",
    ),
    _measures(
        "    clamped: Ints = np.clip(totals, -LARGEST_VALUE, LARGEST_VALUE)\n",
        "    clamped: Ints = totals\n",
        "a huge total overflows",
    ),
    _measures(
        "    return add_noise(clamped, noise_of(claim, len(totals)))\n",
        "    return add_noise(clamped, np.repeat(noise_of(claim, 1), len(totals)))\n",
        "all groups have the same noise",
        "statistical/test_number_draws.py",
    ),
    _measures(
        "        numbers, bound = noisy(totals[0], self.claim), noise_bound(self.claim, BETA)\n",
        "        numbers, bound = noisy(totals[0], self.claim), noise_bound(self.claim, 2 * BETA)\n",
        "a 95 % range holds 90 %",
    ),
    _measures(
        "    total[histogram.sizes > 0] = histogram.weights\n",
        "    total[: len(histogram.weights)] = histogram.weights\n",
        "a group gets the number of another",
        "queries/test_measures.py queries/test_sums.py",
    ),
    _sums("draws=2)", "draws=1)", "a mean is charged once for its two draws"),
    _units(
        "    if not max(Fraction(units.largest), (units.upper - units.lower) / units.step) <= _MOST_UNITS:\n",
        "    if not Fraction(units.largest) <= 2**62:\n",
        "sums overflow",
    ),
    _histograms(
        "        counts = np.flatnonzero(codes < size)\n",
        "        counts = np.flatnonzero(codes <= size)\n",
        "rows that are no evidence are counted",
        "queries/test_weights.py queries/test_measures.py queries/test_sums.py",
    ),
    _histograms(
        "        order = np.lexsort((codes, groups))\n",
        '        order = np.argsort(codes, kind="stable")\n',
        "rows of one group are counted for another",
        "queries/test_weights.py queries/test_sums.py",
    ),
]
