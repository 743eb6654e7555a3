"""One privacy budget in OpenDP for its own noisy counts and for our selections.

    python examples/opendp_composition.py

10,000 synthetic patients with several visits each. An OpenDP privacy filter with epsilon 1 per *patient* answers, in
turn: our most common diagnosis per ward, OpenDP's Laplace count of the patients, and our median age per ward. Then it
refuses what does not fit. The same queries once more from OpenDP's Context, which splits the budget and finds the
losses.
"""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import polars as pl

import dp_polars as dpp
from dp_polars.opendp import as_measurement, frame_domain, register

PATIENTS = 10_000
WARDS = ["A", "B", "C"]
DIAGNOSES = ["asthma", "diabetes", "flu", "none"]


def made_visits() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(PATIENTS), rng.integers(1, 6, PATIENTS))
    return pl.DataFrame(
        {
            "patient": patient,
            "ward": rng.choice(WARDS, len(patient)),
            "diagnosis": rng.choice(DIAGNOSES, len(patient), p=[0.1, 0.2, 0.4, 0.3]),
            "age": rng.integers(18, 90, PATIENTS)[patient],
        }
    )


def patients_seen(visits: pl.LazyFrame) -> int:
    return visits.select(pl.col("patient").n_unique()).collect().item()


def noisy_count(scale: float) -> dp.Measurement:
    """OpenDP's Laplace noise on the number of patients, of which one more or less changes it by one."""
    count = dp.t.make_user_transformation(
        frame_domain(),
        dp.symmetric_id_distance("patient"),
        dp.atom_domain(T=int),
        dp.absolute_distance(T=int),
        function=patients_seen,
        stability_map=lambda patients: patients,
    )
    return count >> dp.m.then_laplace(scale)


def private_queries() -> tuple[dpp.PrivateQuery, dpp.PrivateQuery]:
    """The two queries, without data: the losses are what one patient loses over all wards."""
    wards = dpp.protect("patient", max_groups=2, max_rows_per_group=1).group_by({"ward": WARDS})
    return (
        wards.agg(pl.col("diagnosis").dp.mode(DIAGNOSES, epsilon=0.5)),
        wards.agg(pl.col("age").dp.median(range(121), epsilon=0.25)),
    )


def by_filter(visits: pl.DataFrame) -> None:
    top, middle = (as_measurement(query) for query in private_queries())
    accountant = dp.c.make_fully_adaptive_composition(*top.input_space, dp.max_divergence())
    ask = dp.c.make_privacy_filter(accountant, d_in=1, d_out=1.0)(visits.lazy())
    print("A privacy filter of OpenDP, epsilon 1 per patient:")
    for name, measurement in [
        ("our top diagnosis", top),
        ("OpenDP's count of patients", noisy_count(scale=4.0)),
        ("our median age", middle),
    ]:
        answer = ask(measurement)
        print(f"\n{name}, epsilon {measurement.map(1)}; spent so far {ask.privacy_loss(1)}:\n{answer}")
    try:
        ask(middle)
    except dp.OpenDPException as error:
        print(f"\nonce more:{error}")


def by_context(visits: pl.DataFrame) -> None:
    context = dp.Context.compositor(
        data=visits.lazy(),
        domain=frame_domain(),
        privacy_unit=dp.unit_of(contributions=1, identifier="patient"),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_by_weights=[3, 1],
    )
    print("\nA Context of OpenDP, epsilon 1 split 3 : 1, the losses found by its search:")
    for query in private_queries():
        found = context.query().private_query(query)
        print(f"\nat epsilon {found.param():.6g}:\n{found.release()}")


if __name__ == "__main__":
    # Never switched on silently: what our measurements claim is for us to prove, and OpenDP takes our word for it.
    dp.enable_features("contrib", "honest-but-curious")
    register()
    visits = made_visits()
    by_filter(visits)
    by_context(visits)
