"""A tour in ten minutes. As a notebook: marimo edit examples/tour.py. As a script: python examples/tour.py."""

import marimo

app = marimo.App(width="medium", app_title="dp_polars: a tour")


@app.cell
def _():
    import tempfile
    from pathlib import Path

    import altair as alt
    import marimo as mo
    import numpy as np
    import polars as pl

    import dp_polars as dpp
    from dp_polars import analysis, plot

    # Once for the notebook: the budget below stays the same, however often its cell runs.
    folder = Path(tempfile.mkdtemp())
    return alt, analysis, dpp, folder, mo, np, pl, plot


@app.cell
def _(mo):
    mo.md("""
    # A tour of dp_polars

    We publish *choices* from rows about people: the most common reason to call a help line, and the median
    waiting time, for every region. First on made data that we may look at.
    """)


@app.cell
def _(np, pl):
    rng = np.random.default_rng(11)
    REASONS = ["billing", "delivery", "fault", "other"]
    REGIONS = ["north", "east", "south", "west"]
    people, calls = 3_000, 9_000
    made = pl.DataFrame(
        {
            "person": rng.integers(0, people, calls),
            "region": rng.choice(REGIONS, calls, p=[0.5, 0.3, 0.19, 0.01]),
            "reason": rng.choice(REASONS, calls, p=[0.3, 0.28, 0.25, 0.17]),
            "minutes": rng.gamma(2.0, 6.0, calls).round(1),
        }
    )
    made.head()
    return REASONS, REGIONS, made


@app.cell
def _(mo):
    mo.md("""
    ## A first private answer

    The reasons are *candidates*: public, written down beforehand. `epsilon` is what one person loses to the expression.
    """)


@app.cell
def _(REASONS, dpp, made):
    answers = made.group_by("region", maintain_order=True).agg(
        dpp.mode("reason", REASONS, epsilon=1, contributions=10),
        dpp.median("minutes", dpp.grid(0, 120, step=0.1), epsilon=1, contributions=10),
    )
    answers
    return (answers,)


@app.cell
def _(mo):
    mo.md("""
    ## How good is it? Move the slider

    For a selection the error is known exactly, before anything is spent. These are the counts of one region; the figure
    shows by how many calls the chosen reason misses the top one, on average, if one person makes one call.
    """)


@app.cell
def _(mo):
    epsilon = mo.ui.slider(start=0.005, stop=0.1, step=0.005, value=0.02, label="epsilon", show_value=True)
    epsilon
    return (epsilon,)


@app.cell
def _(alt, analysis, epsilon, made, mo, np, pl, plot):
    counts = made.filter(pl.col("region") == "south")["reason"].value_counts(sort=True)
    calls_ = counts["count"].to_numpy()
    error = analysis.expected_error(calls_, epsilon=epsilon.value, monotonic=True)
    best = analysis.probability_of_best(calls_, epsilon=epsilon.value, monotonic=True)
    curve = plot.error_curve(calls_, np.geomspace(0.002, epsilon.value * 2, 40).tolist(), monotonic=True)
    here = alt.Chart().mark_rule(strokeWidth=2, color="black").encode(x=alt.datum(epsilon.value))
    mo.vstack(
        [
            mo.md(
                f"At epsilon = **{epsilon.value:.3f}** the top reason comes out with probability **{best:.1%}**; "
                f"the expected error is **{error:.2f} calls**."
            ),
            curve + here,
            plot.probabilities(calls_, candidates=counts["reason"].to_list(), epsilon=epsilon.value, monotonic=True),
        ]
    )
    return best, counts, error


@app.cell
def _(mo):
    mo.md("""
    ## People, public keys and a budget

    A private frame knows who a person is, names the groups itself, and pays for every release before it reads a row.
    The budget is a file that keeps the answers too: a cell that runs again gets the same answer, for nothing.
    """)


@app.cell
def _(REASONS, REGIONS, dpp, folder, made, pl):
    budget = dpp.Budget(epsilon=1, path=folder / "help-line.db", name="help line")
    query = (
        made.dp.protect("person", budget=budget, max_groups=2, max_rows_per_group=3, dataset="help line")
        .filter(pl.col("minutes") > 0)
        .group_by({"region": REGIONS})
        .agg(
            reason=pl.col("reason").dp.mode(REASONS, epsilon=0.25),
            minutes=pl.col("minutes").dp.median(dpp.grid(0, 120, step=0.1), epsilon=0.15),
        )
    )
    query.explain()
    return budget, query


@app.cell
def _(analysis, made, plot, query):
    # Exact, and not private: it is for public or made frames such as this one.
    plot.simulation(analysis.simulate(query, made))


@app.cell
def _(budget, dpp, query):
    released = [query.release(), query.release()]  # the second is the first once more: it is kept, and free
    try:
        for _ in range(3):
            query.release(fresh=True)
        refused = ""
    except dpp.BudgetExceededError as error_:
        refused = str(error_)
    print(refused)
    released[0]
    return refused, released


@app.cell
def _(budget, plot, released):
    assert released[0].equals(released[1])
    plot.budget(budget)


if __name__ == "__main__":
    app.run()
    print("The tour ran from end to end.")
