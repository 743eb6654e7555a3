"""What the check takes before `protect` leaves everybody else's rows as they are: on random plans of all kinds."""

from __future__ import annotations

import pytest

from dp_polars._steps import nodes
from tests.fuzzing.exploring import explore
from tests.fuzzing.plans import BY_PERSON, BY_ROW, Tally, compare, plans, unchecked
from tests.helpers.needs import IS_OLD

pytestmark = pytest.mark.filterwarnings("ignore")


def search(tally: Tally, examples: int, config: pytest.Config | None = None) -> None:
    explore(lambda plan: compare(plan, tally=tally), plans(tally=tally), examples=examples, config=config)


def test_a_few_random_plans_that_are_taken_leave_everybody_else_alone():
    search(tally := Tally(), 40)
    assert tally.compared > 60


@pytest.mark.slow
def test_random_plans_that_are_taken_leave_everybody_else_alone(request):
    search(tally := Tally(), 1000, request.config)
    taken = tally.accepted.total()
    print(f"{taken} of {tally.tried} transformations were taken, and {tally.compared} times two runs compared")
    assert taken > 0.5 * tally.tried  # else this would be a test of nothing
    assert tally.compared > 2 * tally.plans
    never = {*BY_ROW, *BY_PERSON} - tally.accepted.keys()
    assert len(never) < (10 if IS_OLD else 3), never


@pytest.mark.slow
@pytest.mark.parametrize("mixing", ["no check", "rank", "cum_sum"])
def test_the_search_finds_what_mixes_people(mixing, monkeypatch):
    """The negative control: nothing is checked, or a function that looks at several rows is said to be by row."""
    monkeypatch.setattr(nodes, "BY_ROW", nodes.BY_ROW | {mixing})
    check = {"check": unchecked} if mixing == "no check" else {}
    if not check:  # the plans are about it: among all functions it is rare
        monkeypatch.setattr("tests.fuzzing.plans.FUNCTIONS", [mixing])
    with pytest.raises(AssertionError, match="others have other rows"):
        explore(lambda plan: compare(plan, **check), plans(**check), examples=1000, shrinks=False)
