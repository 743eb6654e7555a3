"""The planner: a thin view of `dp_polars._planner`. Run it with `python -m dp_polars plan FILE`."""

import marimo

app = marimo.App(width="full", app_title="Plan a private release")


@app.cell
def _():
    from html import escape
    from pathlib import PurePath

    import marimo as mo
    import polars as pl

    from dp_polars._planner import page
    from dp_polars._planner.plan import (
        Plan,
        draft,
        dropped_by_bounds,
        field_of,
        own_values,
        questions_of,
        values_field_of,
    )
    from dp_polars._planner.schema import DEMO, likely_unit, schema_of

    return (
        DEMO,
        Plan,
        PurePath,
        draft,
        dropped_by_bounds,
        escape,
        field_of,
        likely_unit,
        mo,
        own_values,
        page,
        pl,
        questions_of,
        schema_of,
        values_field_of,
    )


@app.cell
def _(DEMO, escape, mo, schema_of):
    path = mo.cli_args().get("file")
    file = None if path is None else path.removeprefix("path:")
    try:
        schema, fault = (DEMO if file is None else schema_of(file)), ""
    except ValueError as error_:
        schema, fault = None, str(error_)
    mo.stop(
        schema is None, mo.callout(mo.Html(f"<div style='white-space: pre-line'>{escape(fault)}</div>"), kind="danger")
    )
    # What was picked before: fields that are drawn anew begin with it.
    picked = {}
    if file is None:
        picked |= {
            "value diagnosis": "flu\nasthma\nfracture\nother",
            "value age": "0..120",
            "value days": "0..60 by 0.5",
        }
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

    return file, picked, picks_changed, remember, schema, set_texts_changed, texts_changed


@app.cell
def _(likely_unit, mo, page, schema):
    EACH = "every row is another person"
    likely = likely_unit(schema)
    unit = mo.ui.dropdown(
        options={**{page.shown(name): name for name in schema}, EACH: EACH},
        value=None if likely is None else page.shown(likely),
        full_width=True,
    )
    return EACH, unit


@app.cell
def _(EACH, file, mo, page, picked, pl, questions_of, schema, unit):
    # Nobody picked a unit: the package says what is missing.
    who = "person" if unit.value is None else None if unit.value == EACH else unit.value
    asks = {page.shown(title): question for title, question in questions_of(schema, who).items()}
    usual = ["how many rows" if who is None else "how many people"]
    if file is None and who is not None:
        usual += ["diagnosis: most common value", "age: median", "days: mean"]
    usual = [title for title in picked.get("questions", usual) if title in asks] or usual
    others = {
        page.shown(name): name
        for name, dtype in schema.items()
        if name != who and not dtype.is_nested() and dtype != pl.Binary
    }
    by = [title for title, name in others.items() if name in picked.get("groups", ["ward"] if file is None else [])]
    # Without a limit marimo offers to pick all: of 200 columns, some hundred questions.
    groups = mo.ui.multiselect(options=others, value=by, full_width=True, max_selections=5)
    questions = mo.ui.multiselect(options=asks, value=usual, full_width=True, max_selections=30)
    return asks, groups, questions, who


@app.cell
def _(groups, mo, own_values, picked, remember, schema):
    key_fields = {
        name: mo.ui.text_area(
            **remember(f"key {name}", picked.get(f"key {name}", own_values(schema[name]))),
            placeholder="public values, one a line; or 1..12",
            rows=4,
        )
        for name in groups.value
    }
    return (key_fields,)


@app.cell
def _(mo, own_values, picked, pl, questions, remember, schema, set_texts_changed):
    def value_field(name):
        dtype = schema[name]
        first = remember(f"value {name}", picked.get(f"value {name}", own_values(dtype)), set_texts_changed)
        if dtype.is_temporal():
            day = "2026-01-01..2026-12-31"
            return mo.ui.text(**first, placeholder="one time a line" if dtype == pl.Time else f"for example {day}")
        if dtype.is_numeric() and not dtype.is_integer():
            return mo.ui.text(**first, placeholder="for example 0..120, or 0..30 by 0.5")
        if dtype.is_integer():
            return mo.ui.text_area(**first, placeholder="for example 0..120; or values, one a line", rows=1)
        return mo.ui.text_area(**first, placeholder="public values, one a line", rows=4)

    asked_columns = dict.fromkeys(q.column for q in questions.value if q.column is not None and q.ask != "share")
    value_fields = {name: value_field(name) for name in asked_columns}
    return (value_fields,)


@app.cell
def _(mo):
    BOUNDS = [1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50]
    max_groups = mo.ui.slider(steps=[1, 2, 3, 4, 5, 7, 10, 15, 20], value=2, show_value=True, full_width=True)
    max_rows = mo.ui.slider(steps=BOUNDS, value=2, show_value=True, full_width=True)
    rows_each = mo.ui.slider(steps=[1, 1.5, 2, 3, 5, 10, 20, 50], value=3, show_value=True, full_width=True)
    skew = mo.ui.slider(start=0, stop=1.5, step=0.1, value=0.5, show_value=True, full_width=True)
    SIZES = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000]
    smallest = mo.ui.slider(steps=SIZES, value=500, show_value=True, full_width=True)
    relative = mo.ui.slider(steps=[1, 2, 5, 10, 20, 50], value=10, show_value=True, full_width=True)
    by_loss = mo.ui.switch(value=False, label="type losses instead")
    loss_unit = mo.ui.radio(options={"ε": "epsilon", "ρ": "rho"}, value="ε", inline=True)
    return BOUNDS, by_loss, loss_unit, max_groups, max_rows, relative, rows_each, skew, smallest


@app.cell
def _(Plan, by_loss, field_of, file, mo, picked, questions, remember, schema, smallest, texts_changed, value_fields):
    texts_changed()
    values = {name: picked[f"value {name}"] for name in value_fields}
    measured = Plan(schema, file, values=values, rows=smallest.value)

    def accuracy(question):
        typed, moved = f"loss {field_of(question)}", f"within {field_of(question)}"
        if by_loss.value:
            return mo.ui.text(**remember(typed, picked.get(typed, "0.1")))
        steps = measured.steps(question)
        value = picked[moved] if picked.get(moved) in steps else measured.usual(question)
        return mo.ui.slider(steps=steps, show_value=True, **remember(moved, value))

    accuracies = {question: accuracy(question) for question in questions.value}
    return accuracies, values


@app.cell
def _(
    Plan,
    accuracies,
    asks,
    by_loss,
    draft,
    field_of,
    file,
    groups,
    key_fields,
    loss_unit,
    max_groups,
    max_rows,
    picked,
    picks_changed,
    questions,
    schema,
    smallest,
    values,
    who,
):
    picked["groups"], picked["questions"] = groups.value, [name for name, q in asks.items() if q in questions.value]
    picks_changed()
    how = "loss" if by_loss.value else "within"
    plan = Plan(
        schema,
        file,
        who,
        {name: picked[f"key {name}"] for name in key_fields},
        values,
        {question: picked[f"{how} {field_of(question)}"] for question in accuracies},
        by_loss.value,
        loss_unit.value,
        max_groups.value,
        max_rows.value,
        smallest.value,
    )
    drafted = draft(plan)
    return drafted, plan


@app.cell
def _(BOUNDS, drafted, dropped_by_bounds, escape, key_fields, max_groups, max_rows, page, plan, rows_each, skew, who):
    def of_bounds():
        if who is None:
            return "<p class='dp-quiet'>Each person has one row here: no row is dropped.</p>"
        most = 1 if drafted.query is None else drafted.query.request.groups
        tried = [None] if not key_fields else sorted({max_groups.value, *(g for g in (1, 2, 3, 5) if g <= most)})
        try:
            frame = dropped_by_bounds(
                plan,
                people=1000,
                rows_each=rows_each.value,
                skew=skew.value,
                max_groups=tried,
                max_rows_per_group=BOUNDS,
            )
        except (TypeError, ValueError) as error:
            return f"<p class='dp-quiet'>No synthetic people can be made: {escape(str(error))}</p>"
        return page.dropped(
            frame, max_groups=max_groups.value if key_fields else None, max_rows_per_group=max_rows.value
        )

    dropping = of_bounds()
    return (dropping,)


@app.cell
def _(
    PurePath,
    accuracies,
    by_loss,
    drafted,
    dropping,
    escape,
    field_of,
    file,
    groups,
    key_fields,
    loss_unit,
    max_groups,
    max_rows,
    mo,
    page,
    picked,
    plan,
    questions,
    relative,
    rows_each,
    schema,
    skew,
    smallest,
    unit,
    value_fields,
    values_field_of,
    who,
):
    wrong, query = drafted.messages, drafted.query
    title = "synthetic rows" if file is None else PurePath(file).name
    symbol = {"epsilon": "ε", "rho": "ρ"}[loss_unit.value]
    losses = {one["output"]: one[loss_unit.value] for one in drafted.explained}

    # What is not wanted is hidden and not left out: fields that move up would be taken for others.
    def section(heading, *parts, number=None, hidden=False):
        return f"<section{' hidden' * hidden}>{page.heading(heading, number)}{''.join(parts)}</section>"

    def asked_field(name, question):
        field = accuracies[question]
        unit_ = {"mean": "", "sum": "", "share": "", "median": " rows", "len": " rows"}.get(question.ask, " people")
        called = page.shown(name)
        what = called if by_loss.value else f"{called}: off by at most {plan.questions[question]:,g}{unit_}"
        loss = losses.get(name)
        note = "" if loss is None else f"costs {symbol} = {loss:.4g}"
        if values_field_of(question) in wrong and name not in losses:
            note = f"not asked yet: see the public values of {page.shown(question.column or name)}"
        return page.fielded(what, field, page.message(wrong, field_of(question)), note)

    left = [
        section(
            "Who is protected?",
            page.fielded("The column that tells people apart", unit, page.message(wrong, "unit")),
            number=1,
        ),
        section(
            "For which groups?",
            page.fielded("Columns (none: one group of all rows)", groups, page.message(wrong, "keys")),
            *(
                page.fielded(f"Public values of {page.shown(name)}", field, page.message(wrong, f"key {name}"))
                for name, field in key_fields.items()
            ),
            number=2,
        ),
        section(
            "What do you want to publish?",
            page.fielded("Questions", questions, page.message(wrong, "questions")),
            *(
                page.fielded(
                    f"Public values, or ends, of {page.shown(name)}", field, page.message(wrong, f"value {name}")
                )
                for name, field in value_fields.items()
            ),
            "<p class='dp-quiet'>Take them from what you know, never from the rows.</p>" if value_fields else "",
            number=3,
        ),
        section(
            "How much of one person counts?",
            f"<div{' hidden' * (not key_fields)}>{page.fielded('Groups, at most (max_groups)', max_groups)}</div>",
            page.fielded(
                "Rows in each group, at most (max_rows_per_group)" if key_fields else "Rows, at most (max_rows)",
                max_rows,
            ),
            "<p class='dp-quiet'>Smaller bounds cost less and drop more. Try them on synthetic people:</p>",
            page.fielded("Rows of a person, on average", rows_each),
            page.fielded("People with many rows: from 0 (none) to 1.5 (they have most of the rows)", skew),
            dropping,
            number=4,
            hidden=who is None,
        ),
        section(
            "How wrong may an answer be?",
            "<p class='dp-quiet'>With probability 95 %, it is no further off. The loss follows from that.</p>"
            if not by_loss.value
            else "",
            *(asked_field(name, question) for name, question in plan.named().items()),
            page.fielded("Rows of the smallest group that matters, about", smallest),
            page.fielded("Unit of the budget", loss_unit),
            f"{by_loss}",
            number=4 if who is None else 5,
        ),
    ]
    if query is None:
        bar = "no query yet"
    else:
        bar = " · ".join(f"{name} = {amount}" for name, amount in page.cost(drafted).items())
        cost = section("What does it cost?", page.costs(drafted), page.message(wrong, "cost"))
        needed = section(
            "How many people must a group have?",
            page.fielded(f"For an error of at most {relative.value} %", relative),
            "<p class='dp-quiet'>That is of the group's size, or of the distance between the ends of a mean.</p>",
            page.outputs(drafted, query, relative.value / 100),
        )
        code = section(
            "The code",
            "<p class='dp-quiet'>It runs as it stands.</p>",
            f"<div class='dp-code'>{mo.md(f'```python{chr(10)}{drafted.code}```').text}</div>",
            f"{mo.download(drafted.code.encode(), 'release.py', label='release.py')}",
        )
        stated = section(
            "The statement",
            "<details><summary>A draft, with what is missing</summary>",
            page.statement(query, f"Answers from {title}"),
            "</details>",
        )

    def whole(figures):
        if query is None:
            seen = section("There is no query yet", "<p>The messages at the fields say why.</p>")
        else:
            good = section("How good is it?", f"<div class='dp-figures'>{figures}</div>")
            seen = f"{cost}{needed}{good}{code}{stated}"
        return mo.Html(
            f"<style>{page.STYLE}</style><div class='dp-planner'><header>"
            "<div class='dp-title' role='heading' aria-level='1'>Plan a private release</div>"
            f"<p>Of <strong>{escape(title)}</strong>. "
            "Only the names and types of its columns were read, and no row.</p>"
            f"{page.columns(schema)}</header><div>{''.join(left)}</div><div class='dp-seen'>{seen}</div>"
            f"<div class='dp-bar'>{bar}</div></div>"
        )

    # The numbers come first, with the figures from before: to draw takes longer than to calculate.
    mo.output.replace(whole(picked.get("figures", "")))
    picked["figures"] = "" if query is None else "".join(page.figures(drafted, query))
    mo.output.replace(whole(picked["figures"]))


if __name__ == "__main__":
    app.run()
