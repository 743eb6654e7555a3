"""The planner: a thin view of `dp_polars._publish`. Run it with `python -m dp_polars plan FILE`."""

import marimo

__generated_with = "0.16.0"  # without it, or with another import before, marimo warns that the notebook has errors
app = marimo.App(width="full", app_title="Plan a private release")

with app.setup:
    from dataclasses import replace
    from functools import partial
    from html import escape

    import marimo as mo
    import polars as pl

    from dp_polars._publish import page
    from dp_polars._publish.plan import DELTAS, EPSILONS, PARTS, Plan, draft, field_of, short
    from dp_polars._publish.schema import (
        DEMO,
        DEMO_PICKS,
        MORE,
        likely_unit,
        months_of,
        more_of,
        own_values,
        schema_of,
        statistics_of,
    )

    EACH = "every row is another person"
    slider = partial(mo.ui.slider, show_value=True, full_width=True)


@app.cell
def _():
    path = mo.cli_args().get("file")
    file = None if path is None else path.removeprefix("path:")
    try:
        schema, fault = (DEMO if file is None else schema_of(file)), ""
    except ValueError as error:
        schema, fault = None, f"<div style='white-space: pre-line'>{escape(str(error))}</div>"
    mo.stop(schema is None, mo.callout(mo.Html(fault), kind="danger"))
    months = months_of(schema)
    schema = schema | dict.fromkeys(months, pl.Date())
    # What was picked before: fields that are drawn anew begin with it.
    picked = dict(DEMO_PICKS) if file is None else {}
    texts_changed, set_texts_changed = mo.state(0)
    picks_changed, set_picks_changed = mo.state(0)

    def remember(key, value, changed=set_picks_changed):
        """Return the value that a field begins with, and what remembers another one.

        Such fields are no `mo.ui.dictionary`: of two changes at once it would lose the first.
        """
        picked[key] = value

        def on_change(new):
            picked[key] = new
            changed(lambda number: number + 1)

        return {"value": value, "on_change": on_change, "full_width": True}

    return file, months, picked, picks_changed, remember, schema, set_texts_changed, texts_changed


@app.cell
def _(schema):
    likely = likely_unit(schema)
    unit = mo.ui.dropdown(
        options={**{page.shown(name): name for name in schema}, EACH: EACH},
        value=None if likely is None else page.shown(likely),
        full_width=True,
    )
    return (unit,)


@app.cell
def _(picked, schema, unit):
    who = {None: ..., EACH: None}.get(unit.value, unit.value)
    others = {page.shown(name): name for name, dtype in schema.items() if name != who and page.may_group(dtype)}
    by = [title for title, name in others.items() if name in picked.get("groups", ())]
    # Without a limit marimo offers to pick all: of 200 columns, some hundred statistics.
    groups = mo.ui.multiselect(options=others, value=by, full_width=True, max_selections=5)
    return groups, who


@app.cell
def _(groups, picked, schema, who):
    asks = {page.shown(title): statistic for title, statistic in statistics_of(schema, who, groups.value).items()}
    usual = [title for title in picked.get("statistics", ()) if title in asks] or list(asks)[:1]
    statistics = mo.ui.multiselect(options=asks, value=usual, full_width=True, max_selections=30)
    return asks, statistics


@app.cell
def _(groups, picked, remember, schema):
    key_fields = {
        name: mo.ui.text_area(
            **remember(f"key {name}", picked.get(f"key {name}", own_values(schema[name]))),
            placeholder=page.example_of_keys(schema[name]),
            rows=4,
        )
        for name in groups.value
    }
    labels = {
        "selected": "select the groups privately: nobody lists their values",
        "apart": "a table for each of these columns, not for all together",
        "cube": "and tables of people that agree, by each column and by all",
    }
    switches = {name: mo.ui.switch(value=picked.get(name, False), label=label) for name, label in labels.items()}
    selected, apart, cube = switches.values()
    return apart, cube, key_fields, selected


@app.cell
def _(picked, remember, schema, set_texts_changed, statistics):
    def value_field(name):
        example, rows = page.example(schema[name])
        first = picked.get(f"value {name}", own_values(schema[name]))
        make = mo.ui.text if rows is None else partial(mo.ui.text_area, rows=rows)
        return make(**remember(f"value {name}", first, set_texts_changed), placeholder=example)

    asked_columns = dict.fromkeys(q.column for q in statistics.value if q.column is not None and q.ask != "share")
    value_fields = {name: value_field(name) for name in asked_columns}
    more_fields = {
        f"{kind} {name}": mo.ui.text(
            **remember(f"{kind} {name}", picked.get(f"{kind} {name}", MORE[kind].first), set_texts_changed),
            placeholder=MORE[kind].example,
        )
        for kind, name in more_of(statistics.value)
    }
    return more_fields, value_fields


@app.cell
def _():
    find = mo.ui.switch(value=True, label="find the limits privately, by a part of the guarantee")
    max_groups = slider(steps=[1, 2, 3, 4, 5, 7, 10, 15, 20], value=2)
    max_rows = slider(steps=page.BOUNDS, value=2)
    rows_each = slider(steps=[1, 1.5, 2, 3, 5, 10, 20, 50], value=3)
    skew = slider(start=0, stop=1.5, step=0.1, value=0.5)
    smallest = slider(steps=[20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000], value=500)
    relative = slider(steps=[1, 2, 5, 10, 20, 50], value=10)
    by_error = mo.ui.switch(value=False, label="say how wrong each may be instead")
    epsilon = slider(steps=EPSILONS, value=1)
    delta = mo.ui.dropdown(options={short(one): one for one in DELTAS}, value="1e-6", full_width=True)
    engine = mo.ui.dropdown(options={"Polars": "polars", "DuckDB": "duckdb"}, value="Polars", full_width=True)
    return by_error, delta, engine, epsilon, find, max_groups, max_rows, relative, rows_each, skew, smallest


@app.cell
def _(by_error, file, months, more_fields, picked, remember, schema, smallest, statistics, texts_changed, value_fields):
    texts_changed()
    values = {name: picked[f"value {name}"] for name in value_fields}
    more = {name: picked[name] for name in more_fields}
    measured = Plan(schema, file, values=values, rows=smallest.value, months=months, more=more)

    how = "within" if by_error.value else "share"

    def amount(statistic):
        steps, usual = (measured.steps(statistic), measured.usual(statistic)) if by_error.value else (PARTS, 1)
        moved = f"{how} {field_of(statistic)}"
        value = picked[moved] if picked.get(moved) in steps else usual
        return mo.ui.slider(steps=steps, show_value=True, **remember(moved, value))

    amounts = {statistic: amount(statistic) for statistic in statistics.value}
    return amounts, how, measured


@app.cell
def _(
    amounts,
    apart,
    asks,
    cube,
    delta,
    engine,
    epsilon,
    find,
    groups,
    how,
    key_fields,
    max_groups,
    max_rows,
    measured,
    picked,
    picks_changed,
    selected,
    who,
):
    picked["groups"], picked["statistics"] = groups.value, [name for name, q in asks.items() if q in amounts]
    picked["apart"], picked["cube"], picked["selected"] = apart.value, cube.value, selected.value
    picks_changed()
    plan = replace(
        measured,
        unit=who,
        keys={name: picked[f"key {name}"] for name in key_fields},
        statistics={statistic: picked[f"{how} {field_of(statistic)}"] for statistic in amounts},
        by_error=how == "within",
        epsilon=epsilon.value,
        delta=delta.value,
        max_groups=max_groups.value,
        max_rows_per_group=max_rows.value,
        found=find.value,
        apart=apart.value,
        selected=selected.value,
        cube=cube.value,
        engine=engine.value,
    )
    drafted = draft(plan)
    return drafted, plan


@app.cell
def _(
    apart,
    cube,
    delta,
    drafted,
    epsilon,
    groups,
    key_fields,
    more_fields,
    plan,
    selected,
    statistics,
    unit,
    value_fields,
):
    wrong, several = drafted.messages, len(key_fields) > 1

    def shown_if(condition, *parts):  # what is not wanted is hidden: fields that move up would be taken for others
        return f"<div{' hidden' * (not condition)}>{''.join(f'{part}' for part in parts)}</div>"

    picks = [
        page.section(
            "Guarantee for all answers together",
            page.fielded("ε (epsilon): the smaller, the better protected", epsilon),
            page.fielded("δ (delta): far below one over the number of people", delta),
            number=1,
        ),
        page.section(
            "Protected person",
            page.fielded("The column that tells people apart", unit, page.message(wrong, "unit")),
            number=2,
        ),
        page.section(
            "Groups",
            page.fielded("Columns (none: one group of all rows)", groups, page.message(wrong, "keys")),
            shown_if(key_fields and not plan.by_error, selected),
            shown_if(not plan.selects, *page.each_fielded("Public values of", "key", key_fields, wrong)),
            shown_if(several, apart),
            shown_if(several and not (plan.selects or plan.by_error), cube),
            number=3,
        ),
        page.section(
            "Statistics to publish",
            page.fielded("Statistics", statistics, page.message(wrong, "statistics")),
            *page.each_fielded("Public values, or ends, of", "value", value_fields, wrong),
            *page.further_fielded(more_fields, wrong),
            page.quiet("Take them from what you know, never from the rows.") if value_fields else "",
            number=4,
        ),
    ]
    return (picks,)


@app.cell
def _(amounts, by_error, drafted, find, max_groups, max_rows, plan, rows_each, skew, smallest):
    rows_of_person = "Rows in each group, at most (max_rows_per_group)" if plan.keys else "Rows, at most (max_rows)"
    # What is not wanted is hidden and not left out: fields that move up would be taken for others.
    parts = [
        page.section(
            "Contribution limits",
            f"<div{' hidden' * plan.by_error}>{find}</div><div{' hidden' * plan.finds_limits}>",
            f"<div{' hidden' * (not plan.keys)}>{page.fielded('Groups, at most (max_groups)', max_groups)}</div>",
            page.fielded(rows_of_person, max_rows),
            page.quiet("Smaller limits cost less and drop more. Try them on synthetic people:"),
            page.fielded("Rows of a person, on average", rows_each),
            page.fielded("People with many rows: from 0 (none) to 1.5 (they have most of the rows)", skew),
            "</div>",
            page.dropped(plan, drafted, rows_each.value, skew.value),
            number=5,
            hidden=plan.unit is None,
        ),
        page.section(
            "Weights of the answers",
            page.quiet(
                "With probability 95 %, an answer is no further off. Its loss follows from that, and has to fit."
                if plan.by_error
                else "Each answer gets a part of the guarantee: a larger part, a smaller error."
            ),
            *page.shares(plan, drafted, amounts),
            f"<div{' hidden' * (not plan.by_error)}>",
            page.fielded("Rows of the smallest group that matters, about", smallest),
            f"</div>{by_error}",
            number=5 if plan.unit is None else 6,
        ),
    ]
    return (parts,)


@app.cell
def _(drafted, engine, parts, picked, picks, plan, relative):
    code = mo.md(f"```python\n{drafted.code}```").text
    download = mo.download(drafted.code.encode(), "release.py", label="release.py")

    def show(figures):
        where = page.fielded("Engine", engine)
        seen = page.seen(plan, drafted, relative, f"{where}<div class='dp-code'>{code}</div>{download}", figures)
        mo.output.replace(mo.Html(page.whole(plan, drafted, [*picks, *parts], seen)))

    # The numbers come first, with the figures from before: to draw takes longer than to calculate.
    show(picked.get("figures", ""))
    picked["figures"] = "".join(page.figures(drafted))
    show(picked["figures"])


if __name__ == "__main__":
    app.run()
