"""Mutants of the first above a threshold: its claim, its draw and its exact path."""
# fmt: off

from tests.mutation.mutant import of

_first_above = of("questions/test_first_above.py")
_first_above_draws = of("statistical/test_first_above_draws.py")
_thresholds = of("mechanisms/test_thresholds.py")

MUTANTS = [
    # --- The claim
    of("privacy/test_first_above.py")("FirstAbove.range_of", "3", "2",
        "one who takes the place of another costs as much as one who comes", "::test_all_small_data_sets"),
    _first_above("Claim._spread", "spread.per_group > 1 or distance > 1", "False",
        "groups of several rows are charged in rho as if they came in pairs", "-k several_groups"),
    # --- The draw
    _first_above("count_runs", "upto[ends - 1] = size", "", "candidates after the last occupied one are never answers",
        "::test_runs_of_one_count"),
    _first_above_draws("_Search.first", "_chance(hazards.high * m) * (1 + _SLACK)",
        "_chance(hazards.high) * (1 + _SLACK)", "a run is reached as seldom as one candidate",
        "::test_answers_and_leads_have_their_joint_law"),
    _thresholds("_mechanisms/above_threshold:_SLACK", "-40", "-70", "floats decide what they can't"),
    _thresholds("_exact_place", "-number * hazard(bits)", "-hazard(bits)",
        "where floats can't decide, a run is reached as seldom as one candidate"),
    _first_above_draws("_Search._exactly", "missing if is_above else _zero", "_zero",
        "where floats can't decide, a lead is the noise alone", "-k 'far_above or exact_path'"),
]
