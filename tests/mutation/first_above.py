"""Mutants of the first above a threshold: its claim, its draw and its exact path."""
# fmt: off

from tests.mutation.mutant import of

_above = of("questions/test_first_above.py")
_NEAR = "mechanisms/test_thresholds.py"
_LAW = "statistical/test_first_above_draws.py"

MUTANTS = [
    # --- The claim
    _above("FirstAbove.range_of", "3", "2", "one who takes the place of another costs as much as one who comes",
        "privacy/test_first_above.py::test_all_small_data_sets"),
    _above("Claim._spread", "spread.per_group > 1 or distance > 1", "False",
        "groups of several rows are charged in rho as if they came in pairs",
        "questions/test_first_above.py -k several_groups"),
    # --- The draw
    _above("count_runs", "upto[ends - 1] = size", "", "candidates after the last occupied one are never answers",
        "questions/test_first_above.py::test_runs_of_one_count"),
    _above("_Search.first", "_chance(hazards.high * m) * (1 + _SLACK)", "_chance(hazards.high) * (1 + _SLACK)",
        "a run is reached as seldom as one candidate", f"{_LAW}::test_answers_and_leads_have_their_joint_law"),
    _above("_mechanisms/above_threshold:_SLACK", "-40", "-70", "floats decide what they can't", _NEAR),
    _above("_exact_place", "-number * hazard(bits)", "-hazard(bits)",
        "where floats can't decide, a run is reached as seldom as one candidate", _NEAR),
    _above("_Search._exactly", "missing if is_above else _zero", "_zero",
        "where floats can't decide, a lead is the noise alone", f"{_LAW} -k 'far_above or exact_path'"),
]
