"""Mutants of constants that lemmas prove, and of ranges that z3 proves."""
# fmt: off

from tests.mutation.mutant import of

_lemmas = of("mechanisms/test_lemmas.py")
_ranges_for_all = of("questions/test_ranges_for_all.py")

MUTANTS = [
    _lemmas("_mechanisms/racing:FAR", "45.0", "44.0", "a far coin is more than 64 bits tell", "-k racing.FAR"),
    _lemmas("DiscreteLaplace.reach", "45", "44", "the table ends before 64 bits do", "-k DiscreteLaplace.reach"),
    _lemmas("DiscreteGaussian.reach", "45", "44", "the table ends before 64 bits do", "-k DiscreteGaussian.reach"),
    _lemmas("_coins", "size.astype(np.float64)", "size.astype(np.float32).astype(np.float64)",
        "a distance loses half of its digits", "-k noise._COIN_SLACK"),
    _lemmas("_sharp_times", "np.exp(exponents)", "np.exp(exponents.astype(np.float32))",
        "half of the digits are lost before the race is decided", "-k racing._SLACK"),
    _ranges_for_all("CountScore.range", '1 if relation == "add_or_remove_one" else 2', "1",
        "R of a replaced row is that of one", "::test_no_neighbours_exceed_the_range_and_some_attain_it"),
    _ranges_for_all("_gap", "-upto", "-2 * upto", "a score that moves further than R says",
        "::test_no_neighbours_exceed_the_range_and_some_attain_it"),
    _ranges_for_all("QuantileScore.range", "2 * self.alpha.denominator if groups == 1 else 2 * one",
        "one if groups == 1 else 2 * one", "R of a replaced row in one group is that of one that comes",
        "::test_no_neighbours_exceed_the_range_and_some_attain_it"),
    _ranges_for_all("Total.range_of", "groups == 1 and self.is_one_sided", "groups == 1", "values of both signs cancel",
        "::test_no_neighbours_exceed_the_range_and_some_attain_it"),
    _ranges_for_all("TopK.range_of", "2 if self.joint and self.k > 1 else 1", "1", "the joint top k has R of a mode",
        "::test_no_neighbours_exceed_the_range_and_some_attain_it"),
    _ranges_for_all("Squares.largest", "steps * steps + self.half", "steps * steps - (1 << self.shift)",
        "R of squares is one step short", "::test_no_neighbours_exceed_the_range_and_some_attain_it"),
]
