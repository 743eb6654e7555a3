"""An audit by another's tool: does a release ever show more than its claim says?

    pip install -e '.[audit]'     # in a checkout
    python examples/audit.py --out docs/figures/audit.png

JAX Privacy (Google) bounds ε from below, from the guesses of an attacker who sees answers and says which of two
neighbouring data sets they come from (`CanaryScoreAuditor.epsilon_clopper_pearson`; Jagielski, Ullman & Oprea 2020,
arXiv 2006.07709). The attacker here is strong: it knows the two data sets, has seen as many answers of each, and goes
by how often every answer came from which. All answers come from this package's public functions.

A bound above the claim refutes the claim, but for a chance of 1 in 20,000 each. Broken variants show that the tool
would see it: a loss that is sold as half of it, a person whose rows are not bounded, and permute-and-flip sold as the
exponential mechanism. The exit code is 1 where a claim is refuted, or a broken variant is not.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
from jax_privacy.auditing import CanaryScoreAuditor

import dp_polars as dpp
from dp_polars import analysis

SIGNIFICANCE = 1 / 20_000
DELTA = 0.05
# epsilon, releases -> as many independent answers, each as an integer, on one data set and on its neighbour.
Answers = Callable[[float, int], tuple[np.ndarray, np.ndarray]]
# The rows of one world: (person, group, value).
Rows = list[tuple[int, int, int]]


@dataclass(frozen=True)
class Audited:
    """What is audited, its answers, and the epsilon that is claimed at `delta` for a release at a loss of epsilon."""

    name: str
    answers: Answers
    claimed: Callable[[float], float] = lambda epsilon: epsilon
    delta: float = 0.0


def asked(
    expr: Callable[[float], dpp.PrivateExpr], rows: Rows, person: Rows, groups: int = 1, **bounds: int
) -> Answers:
    """Return the answers of a private frame with and without one person.

    A frame holds many worlds of the same people and rows, each with groups and people of its own: so one release gives
    as many independent answers. The answer of a world is that of all its groups together.
    """

    def worlds(number: int, people_rows: Rows) -> pl.DataFrame:
        world = np.repeat(np.arange(number), len(people_rows))
        people, group, value = (np.tile(np.array(column), number) for column in zip(*people_rows, strict=True))
        return pl.DataFrame({"person": world * 1000 + people, "group": world * groups + group, "x": value})

    def answers(epsilon: float, releases: int) -> tuple[np.ndarray, np.ndarray]:
        keys = {"group": range(releases * groups)}
        found = []
        for people_rows in (rows + person, rows):
            protected = worlds(releases, people_rows).dp.protect("person" if bounds else None, **bounds)
            answer = protected.group_by(keys).agg(answer=expr(epsilon)).release()["answer"].to_numpy()
            by_world = answer.reshape(releases, groups)
            found.append(np.unique(by_world, axis=0, return_inverse=True)[1] if groups > 1 else by_world[:, 0])
        return found[0], found[1]

    return answers


def selected(call: Callable[..., np.ndarray], scores: list[int], neighbor: list[int]) -> Answers:
    """Return the positions that a function of own scores selects."""

    def answers(epsilon: float, releases: int) -> tuple[np.ndarray, np.ndarray]:
        of_both = (np.tile(vector, (releases, 1)) for vector in (scores, neighbor))
        one, other = (call(vector, epsilon=epsilon, sensitivity=1) for vector in of_both)
        return one, other

    return answers


def twice(answers: Answers) -> Answers:
    """Return the answers at twice the loss that is claimed."""
    return lambda epsilon, releases: answers(2 * epsilon, releases)


def mode(**how: str) -> Callable[[float], dpp.PrivateExpr]:
    return lambda epsilon: dpp.mode("x", [0, 1], epsilon=epsilon, **how)


def median(epsilon: float) -> dpp.PrivateExpr:
    return dpp.median("x", [0, 1, 2], epsilon=epsilon)


# One person more moves one count apart from another that was equal: nothing is more telling.
EVEN: Rows = [(1, 0, 0), (2, 0, 1)]
SPREAD: Rows = [(p, g, x) for g in range(3) for p, x in ((1, 0), (2, 1))]
MORE: Rows = [(3, 0, 0)]
EVERYWHERE: Rows = [(3, g, 0) for g in range(3)]
UNEQUAL: tuple[list[int], list[int]] = ([1, -1], [0, 0])

PF_MODE = asked(mode(), EVEN, MORE)
CLAIMS = [
    Audited("mode", PF_MODE),
    Audited("mode, exponential mechanism", asked(mode(mechanism="exponential"), EVEN, MORE)),
    Audited("median", asked(median, [(1, 0, 1)], [(3, 0, 0)])),
    Audited("count", asked(lambda epsilon: dpp.len(epsilon=epsilon), EVEN, MORE)),
    Audited("sum", asked(lambda epsilon: dpp.sum("x", 0, 5, epsilon=epsilon), EVEN, [(3, 0, 5)])),
    Audited("mode of 3 groups, one per person", asked(mode(), SPREAD, EVERYWHERE, 3, max_groups=1)),
    Audited("permute_and_flip", selected(dpp.mechanisms.permute_and_flip, *UNEQUAL)),
    Audited("exponential_mechanism", selected(dpp.mechanisms.exponential_mechanism, *UNEQUAL)),
]
BROKEN = [
    Audited("mode at twice its rate", twice(PF_MODE)),
    Audited("count at half its noise", twice(CLAIMS[3].answers)),
    Audited("mode of 3 groups, rows not bounded", asked(mode(), SPREAD, EVERYWHERE, 3)),
    Audited(
        f"permute-and-flip sold as bounded range (δ = {DELTA})",
        selected(dpp.mechanisms.permute_and_flip, *UNEQUAL),
        lambda epsilon: analysis.privacy_profile(epsilon, "exponential").epsilon(DELTA),
        DELTA,
    ),
]


def bound(audited: Audited, epsilon: float, releases: int) -> float:
    """Return the tool's lower bound of epsilon: the attacker learns from half of the answers, and guesses the rest."""
    (seen, with_person), (seen_other, without) = (
        np.split(answers, 2) for answers in audited.answers(epsilon, 2 * releases)
    )
    values, place = np.unique(np.concatenate([seen, seen_other, with_person, without]), return_inverse=True)
    places = np.split(place, 4)
    often, other = (np.bincount(places[i], minlength=len(values)) + 1 for i in (0, 1))
    scores = np.log(often / other)
    auditor = CanaryScoreAuditor(scores[places[2]], scores[places[3]])
    return float(auditor.epsilon_clopper_pearson(SIGNIFICANCE, audited.delta, one_sided=False))


def table(epsilons: list[float], releases: int) -> pl.DataFrame:
    """Return the bound of every audit, next to its claim."""
    rows = [
        {
            "kind": kind,
            "audited": audited.name,
            "loss": epsilon,
            "claimed": audited.claimed(epsilon),
            "bound": bound(audited, epsilon, releases),
        }
        for kind, all_audited in (("claims of this package", CLAIMS), ("broken on purpose", BROKEN))
        for audited in all_audited
        for epsilon in epsilons
    ]
    return pl.DataFrame(rows).with_columns(refuted=pl.col("bound") > pl.col("claimed"))


def chart(found: pl.DataFrame) -> alt.VConcatChart:
    """Return the figure: for every audit the share of the claim that the tool could prove to be lost."""
    shown = found.with_columns(
        share=pl.col("bound") / pl.col("claimed"),
        verdict=pl.when("refuted").then(pl.lit("above the claim: refuted")).otherwise(pl.lit("within the claim")),
        asked=pl.format("ε = {}", "loss"),
    )
    most = math.ceil(4 * shown["share"].max()) / 4

    def panel(kind: str) -> alt.LayerChart:
        of_kind = shown.filter(pl.col("kind") == kind)
        base = alt.Chart(of_kind).encode(y=alt.Y("audited:N", sort=None, title=None, axis=alt.Axis(labelLimit=340)))
        points = base.mark_point(size=80, strokeWidth=2, opacity=1).encode(
            x=alt.X("share:Q", scale=alt.Scale(domain=[0, most]), title="proved lower bound of ε / claimed ε"),
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=["within the claim", "above the claim: refuted"], range=["#0072B2", "#D55E00"]),
            ),
            shape=alt.Shape("asked:N", title=None),
        )
        rule = alt.Chart(pl.DataFrame({"share": [1.0]})).mark_rule(strokeDash=[4, 3]).encode(x="share:Q")
        return (rule + points).properties(width=420, height=alt.Step(24), title=kind)

    panels = alt.vconcat(panel("claims of this package"), panel("broken on purpose"))
    return panels.configure_legend(orient="bottom").configure_title(anchor="start")


def main() -> int:
    parser = argparse.ArgumentParser(description="Audit this package's claims with JAX Privacy.")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    parser.add_argument("--releases", type=int, default=200_000, help="answers of each data set to guess by")
    parser.add_argument("--out", type=Path, help="the figure (PNG or SVG)")
    arguments = parser.parse_args()
    found = table(arguments.epsilons, arguments.releases)
    with pl.Config(tbl_rows=-1, fmt_str_lengths=60, tbl_width_chars=130):
        print(found)
    if arguments.out is not None:
        chart(found).save(arguments.out, scale_factor=2)
    return int((found["refuted"] != (found["kind"] == "broken on purpose")).any())


if __name__ == "__main__":
    sys.exit(main())
