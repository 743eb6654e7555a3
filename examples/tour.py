"""A tour in ten minutes. As a notebook: marimo edit examples/tour.py. As a script: python examples/tour.py.

As a script it prints the answers; the figures are for the notebook.
"""

import marimo

__generated_with = "0.16.0"
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

    def show(title, frame):
        """Show a frame with readable numbers: in a notebook below the code of its cell, in a script as text."""
        if not mo.running_in_notebook():
            print(f"\n{title}")
            with pl.Config(
                tbl_hide_dataframe_shape=True,
                tbl_width_chars=100,
                fmt_str_lengths=60,
                tbl_cols=12,
                fmt_table_cell_list_len=5,
                float_precision=3,
                thousands_separator=",",
            ):
                print(frame)
        numbers = {name: readable for name, dtype in frame.schema.items() if dtype.is_numeric()}
        return with_code(mo.ui.table(frame, format_mapping=numbers, selection=None, label=title))

    def readable(number):
        if number is None:
            return "–"
        return f"{number:,}" if isinstance(number, int) else f"{number:,.4g}"

    def with_code(output):
        """Show an output below the code of its cell, also where a notebook runs as an app."""
        return mo.show_code(output) if mo.running_in_notebook() else output

    # Once for the notebook: the budget below stays the same, however often its cell runs.
    folder = Path(tempfile.mkdtemp())
    return alt, analysis, dpp, folder, mo, np, pl, plot, show, with_code


@app.cell
def _(mo):
    mo.md("""
    # A tour of dp_polars

    A help line wants to publish, for every region, the most common reasons to call and how long people waited,
    so that nobody's call can be read off the answers.
    We begin with synthetic calls, which we may look at.
    """)


@app.cell
def _(np, pl, show):
    rng = np.random.default_rng(11)
    REASONS = ["billing", "delivery", "fault", "other"]
    REGIONS = ["north", "east", "south", "west"]
    people, n = 3_000, 9_000
    calls = pl.DataFrame(
        {
            "person": rng.integers(0, people, n),
            "region": rng.choice(REGIONS, n, p=[0.5, 0.3, 0.19, 0.01]),
            "reason": rng.choice(REASONS, n, p=[0.3, 0.28, 0.25, 0.17]),
            "minutes": rng.gamma(2.0, 6.0, n).round(1),
        }
    )
    show(f"The first of {n:,} synthetic calls:", calls.head())
    return REASONS, REGIONS, calls


@app.cell
def _(mo):
    mo.md("""
    ## People, public keys and a budget

    `protect` names the column that identifies a person, and how much of one person counts.
    In numbers, people with more calls count in part; for the other answers, further calls are dropped.
    So counts are too low if people have more, and no interval shows by how much.
    The regions are *keys* and the reasons are *candidates*: public values, written down beforehand.
    `epsilon` limits what one person can change: no answer becomes more than exp(epsilon) times as likely.
    """)


@app.cell
def _(REASONS, REGIONS, calls, dpp, folder, pl, show):
    budget = dpp.Budget(epsilon=1.5, path=folder / "help-line.db", name="help line")
    query = (
        # 0.4 % of these synthetic calls are dropped: few people call from four regions, or more than eight times.
        calls.dp.protect("person", budget=budget, max_groups=3, max_rows=8, dataset="help line")
        .filter(pl.col("minutes") > 0)
        .group_by({"region": REGIONS})
        .agg(
            callers=dpp.n_people(epsilon=0.15),
            reason=pl.col("reason").dp.mode(REASONS, epsilon=0.25),
            minutes=pl.col("minutes").dp.median(dpp.grid(0, 120, step=0.1), epsilon=0.25),
        )
    )
    show(
        "What each output costs, and a bound on its error, before a row is read:",
        query.explain().select("output", "selects", "epsilon", "error_95", "error_unit"),
    )
    return budget, query


@app.cell
def _(budget, dpp, query, show):
    # The second is the first once more: the budget's file keeps it, and it is free.
    released = [query.release(intervals=True), query.release(intervals=True)]
    assert released[0].equals(released[1])
    try:
        for _ in range(3):
            query.release(ignore_cache=True)
        refused = ""
    except dpp.BudgetExceededError as error_:
        refused = str(error_)
    shown_ = show("The first release, of the calls that the limits keep, with 95 % intervals:", released[0])
    print(f"\nA third new release is refused:\n{refused}")
    shown_
    return refused, released


@app.cell
def _(plot, query, released, with_code):
    labels = {"callers": "Callers", "reason": "Top reason", "minutes": "Median minutes"}
    with_code(plot.answers(released[0], query, title="Calls by region", labels=labels))


@app.cell
def _(mo):
    mo.md("""
    ## How good is an answer? Move the slider

    For a choice the error is known exactly, before anything is spent.
    These are the calls of one region.
    The figure shows by how many calls the chosen reason misses the most common one, on average, if each person makes
    one call.
    """)


@app.cell
def _(mo):
    epsilon = mo.ui.slider(start=0.005, stop=0.1, step=0.005, value=0.02, label="epsilon", show_value=True)
    epsilon
    return (epsilon,)


@app.cell
def _(alt, analysis, calls, epsilon, mo, np, pl, plot, with_code):
    counts = calls.filter(pl.col("region") == "south")["reason"].value_counts(sort=True)
    calls_ = counts["count"].to_numpy()
    error = analysis.scores.expected_error(calls_, epsilon=epsilon.value, monotonic=True)
    best = analysis.scores.probability_of_best(calls_, epsilon=epsilon.value, monotonic=True)
    curve = plot.scores.error_curve(calls_, np.geomspace(0.002, epsilon.value * 2, 40).tolist(), monotonic=True)
    here = alt.Chart().mark_rule(strokeWidth=2, color="black").encode(x=alt.datum(epsilon.value))
    if not mo.running_in_notebook():
        print(
            f"\nAt epsilon = {epsilon.value:.3f} the top reason of the south comes out with probability {best:.1%}; "
            f"the expected error is {error:.2f} calls."
        )
    with_code(
        mo.vstack(
            [
                mo.md(
                    f"At epsilon = **{epsilon.value:.3f}** the top reason comes out with probability **{best:.1%}**; "
                    f"the expected error is **{error:.2f} calls**."
                ),
                curve + here,
                plot.scores.probabilities(
                    calls_, candidates=counts["reason"].to_list(), epsilon=epsilon.value, monotonic=True
                ),
            ]
        )
    )
    return best, counts, error


@app.cell
def _(mo):
    mo.md("""
    ## How good is a whole query?

    `simulate` computes the exact errors of every output in every region.
    It is not private: give it public or synthetic rows, such as these.
    It refuses the rows that the query protects, unless `allow_private=True` says that we know.
    The west has few calls, so its answers are hopeless at this loss.
    """)


@app.cell
def _(analysis, calls, pl, query, show):
    law = analysis.simulate(query, calls, allow_private=True)
    show(
        "How good the answers would be, exactly:",
        law.filter(pl.col("output") != "callers").select(
            "region", "output", "true_answer", "expected_error", "error_unit", "answer_5", "answer_95"
        ),
    )
    return (law,)


@app.cell
def _(law, plot, with_code):
    with_code(plot.simulation(law))


@app.cell
def _(mo):
    mo.md("""
    ## The top three

    `top_k` publishes the most common candidates of each region, best first.
    """)


@app.cell
def _(REASONS, REGIONS, calls, dpp, pl, show):
    top = (
        calls.dp.protect("person", max_groups=3)
        .group_by({"region": REGIONS})
        .agg(reasons=pl.col("reason").dp.top_k(3, REASONS, epsilon=1), callers=dpp.n_people(epsilon=0.5))
    )
    show("The top three reasons:", top.release())
    return (top,)


@app.cell
def _(mo):
    mo.md("""
    ## A box plot per region

    A list of five quantiles costs three draws instead of five, and makes a box for each region.
    """)


@app.cell
def _(REGIONS, calls, dpp, pl, show):
    five = [0.05, 0.25, 0.5, 0.75, 0.95]
    spread = (
        calls.dp.protect("person", max_groups=3, max_rows=8)
        .group_by({"region": REGIONS})
        .agg(minutes=pl.col("minutes").dp.quantile(five, dpp.grid(0, 120, step=0.1), epsilon=2))
    )
    boxes = spread.release()
    show("Five quantiles of the minutes:", boxes)
    return boxes, spread


@app.cell
def _(boxes, plot, spread, with_code):
    with_code(plot.box(boxes, spread, title="How long calls take, in minutes"))


@app.cell
def _(mo):
    mo.md("""
    ## A plain expression

    The same statistics work in any Polars query.
    An expression protects less: it trusts `contributions`, takes the regions from the rows, and has no budget.
    """)


@app.cell
def _(REASONS, calls, dpp, show):
    answers = calls.group_by("region", maintain_order=True).agg(
        dpp.mode("reason", REASONS, epsilon=1, contributions=10),
        dpp.median("minutes", dpp.grid(0, 120, step=0.1), epsilon=1, contributions=10),
    )
    show("By plain expressions:", answers)
    return (answers,)


@app.cell
def _(mo):
    mo.md("""
    ## What was spent?
    """)


@app.cell
def _(budget, plot, released, with_code):
    assert released[0].equals(released[1])
    with_code(plot.budget(budget))


if __name__ == "__main__":
    app.run()
