"""The statement of a release, and its texts for people and registries."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from dp_polars._accounting.claims import mechanisms_of
from dp_polars._accounting.costs import PROOFS
from dp_polars._accounting.terms import in_words
from dp_polars._base.numbers import as_fraction, cost_up, plural, rounded_down, show
from dp_polars._statistics.statement_facts import FIELDS, NOT_RECORDED, TO_BE_STATED, Facts, Field, checked, software


@dataclass(frozen=True)
class TextTable:
    """Rows of texts under headers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        return [
            "; ".join(f"{header}: {cell}" for header, cell in zip(self.headers, row, strict=True) if cell)
            for row in self.rows
        ]


Part: TypeAlias = "str | TextTable"

_STATES = {
    "planned": "Planned: a query does not know whether it was released.",
    "released": "Released into the file that carries this statement.",
    "published": "Released, with the page that this statement is on.",
    "charged": "Charged: everything that the ledger holds was paid for before a row was read.",
    "asked": "A plain expression: every evaluation is a release, and nothing counts them.",
}
_RELATIONS = {
    "add_or_remove_one": "Two data sets are neighbours if one is the other without all rows of {person}.",
    "replace_one": "Two data sets are neighbours if all rows of {person} in one are replaced by those of another one.",
}
_NOT_KNOWN = "Not known"
_UNCHECKED = (
    "taken unchecked (unchecked=True). That each person's rows follow from that person's is what its owner says: it "
    "was not looked at."
)


def stated(facts: Facts, field: Field) -> list[Part]:
    """Return the text of a field: facts of the package, then those from people, or "TO BE STATED"."""
    known = facts["known"].get(field.name, field.usual)
    found: list[Part] = list(_OF_FIELD[field.name](facts)) if field.name in _OF_FIELD else []
    if known is not None:
        return [*found, *map(str, known if isinstance(known, list) else [known])]
    if found and field.name not in _ALSO_PEOPLES:
        return found
    if field.kind in ("text", "texts"):
        return [*found, f"{_ALSO_PEOPLES.get(field.name, '')}{TO_BE_STATED}"]
    return found


def _is_open(facts: Facts, field: Field) -> bool:
    parts = stated(facts, field)
    return not parts or any(str(part).endswith(TO_BE_STATED) for part in parts)


def amount(loss: Facts) -> str:
    """Return a loss as in `explain`: rounded up to four digits."""
    text = f"{loss['unit']} = {_rounded(loss)}"
    return f"{text}, delta = {_rounded(loss['delta'])}" if loss["delta"]["exact"] != "0" else text


def _rounded(number: Facts) -> str:
    return cost_up(Fraction(number["exact"]))


def _in_full(loss: Facts) -> str:
    """Return a loss; if it or its delta is rounded, also the exact numbers."""
    found = [one["exact"] for one in (loss, loss["delta"]) if Fraction(_rounded(one)) != Fraction(one["exact"])]
    return amount(loss) + (f" (exactly {', '.join(found)})" if found else "")


def _releases(facts: Facts) -> Iterator[tuple[str, Facts]]:
    """Yield a prefix for each release, its name in a publication or its number, and the release."""
    many = len(facts["releases"]) > 1
    for number, release in enumerate(facts["releases"], 1):
        name = release.get("name") or (f"Release {number}" if many else "")
        yield f"{name}: " if name else "", release


def _of_each(facts: Facts, texts: Callable[[Facts], Iterable[str]]) -> Iterator[str]:
    """Yield texts about all releases: common ones once, others after the names of their releases."""
    found: dict[str, list[str]] = {}
    releases = list(_releases(facts))
    for begin, release in releases:
        for text in dict.fromkeys(texts(release)):
            found.setdefault(text, []).append(begin)
    for text, begins in found.items():
        names = ", ".join(begin.removesuffix(": ") for begin in begins)
        is_of_all = len(begins) == len(releases)
        yield text if is_of_all else f"{names}: {text}"


def _domain(facts: Facts) -> Iterator[Part]:
    if facts["state"] == "asked":
        yield f"{_NOT_KNOWN}: the data, for a plain expression has none."
        return
    yield "Every data set with the columns below is in the domain, whatever its rows are, and however many."
    yield (
        "That keys, candidates, limits and clipping bounds are public, and that one person's rows do not depend on "
        "another's, is the "
        "word of those who made the query."
    )
    yield from _of_each(facts, _columns)
    yield from _of_each(facts, lambda one: [] if one["keys"] is None else [_keys(one["keys"])])
    yield from _unrecorded(facts, "Columns and keys")


def _columns(release: Facts) -> Iterator[str]:
    columns = release["table"]["columns"]
    if columns is None:
        yield f"The table: columns are {_NOT_KNOWN.lower()}, for no data are bound."
    else:
        yield f"The table has the columns {', '.join(f'{column} ({dtype})' for column, dtype in columns.items())}."


def _keys(keys: Facts) -> str:
    columns = ", ".join(keys["columns"])
    if not keys["are_selected"]:
        return f"{plural(keys['number'], 'public group')}, by {columns}: {keys['values']}."
    if keys["number"] is None:
        return f"Groups by {columns} are selected privately, before they are answered."
    return f"{plural(keys['number'], 'group')}, by {columns}, were selected privately: {keys['values']}."


def _unprotected(facts: Facts) -> Iterator[Part]:
    yield (
        "The statistics themselves: names and losses of outputs, limits, clipping bounds, transformations after "
        "protect, and names and types of "
        "columns."
    )
    yield from _of_each(facts, _public)
    if facts["state"] == "asked":
        yield f"{_NOT_KNOWN}: what else the query releases with the expression, its groups among it."
    yield from _unrecorded(facts, "Keys, candidates, limits, clipping bounds, joined public frames and files")
    yield "How long a release takes, and how much memory."


def _public(release: Facts) -> Iterator[str]:
    if release["keys"] is not None:
        are_public = "" if release["keys"]["are_selected"] else " They are public, or were released before."
        yield f"Keys. {_keys(release['keys'])}{are_public}"
    for output in release["outputs"]:
        if output["candidates"] is not None:
            yield f"Candidates of {output['name']}: {output['candidates']}."
    if release["limits"]:
        yield f"Contribution limits: {in_words(release['limits'])}."
    for frame in release["public_frames"]:
        yield f"A public frame that is joined: {frame}."
    if release["table"]["files"] is not None:
        yield f"Files, by name: {release['table']['files']}."


def _unit(facts: Facts) -> Iterator[Part]:
    unit = facts["unit"]
    yield f"One person: {unit['why'] if unit['person'] is None else unit['person'] + '.'}"


def _unit_details(facts: Facts) -> Iterator[Part]:
    unit = facts["unit"]
    if unit["relation"] is None:
        yield f"{_NOT_KNOWN}: which data sets are neighbours."
    else:
        yield f"{_RELATIONS[unit['relation']].format(person='one person')} ({unit['relation']})"
    yield from unit["notes"]
    yield from _of_each(facts, lambda one: [one["protection"]])


def _loss_details(facts: Facts) -> Iterator[Part]:
    loss = facts["loss"]
    if loss is None:
        yield f"{_NOT_KNOWN}: {facts['no_loss']}"
        return
    what = "one evaluation" if facts["state"] == "asked" else "all that is stated here"
    if facts["guarantee"] is not None:
        yield f"All that is stated here keeps the guarantee of {facts['guarantee']}, by the loss that follows."
    yield f"One person loses {_in_full(loss)} to {what}."
    if loss["definition"]:
        yield loss["definition"]
    yield loss["means"]
    at = loss["at_delta"]
    shown = f"no finite ε at δ = {at['text']}"
    if at["epsilon"] is not None:
        shown = f"ε = {show(as_fraction('epsilon', at['epsilon']), 4, up=True)} at δ = {at['text']}"
    yield f"As (ε, δ)-DP it is {shown}."
    if facts["ledger"] is not None and facts["state"] == "charged":
        ledger = facts["ledger"]
        yield (
            "This is the guarantee of the budget. It holds however the statistics and their losses were chosen. The "
            f"charges so far are {amount(ledger['spent'])}, if they were fixed beforehand."
            if ledger["is_guarantee"]
            else f"The budget is {amount(ledger['total'])} in all. That bound holds however the statistics were "
            "chosen; the sum so far is the loss of statistics, and of losses, that were fixed beforehand."
        )


_MODEL = (
    "Those who run the release read the rows as they are, and are trusted with them. Only drawn answers leave; those "
    "who see these need not be trusted."
)
_POST_PROCESSING = (
    "Intervals, and groups that are left out because their noisy number of people is small, follow from what was drawn "
    "and from public values. They cost nothing."
)


def _composition(facts: Facts) -> Iterator[Part]:
    if facts["state"] == "asked":
        yield (
            f"{_NOT_KNOWN}: how often the expression is evaluated, for how many groups, and what else is queried. Each "
            "evaluation costs its loss, and no budget adds them up."
        )
        return
    yield "Losses add up, over outputs and over releases, also where a statistic depends on an earlier answer."
    yield "The loss of an output is that of one person over all groups together."
    for release, one in _releases(facts):
        outputs = " + ".join(amount(output["loss"]) for output in one["outputs"] if output["draws"])
        yield f"{release}{outputs} cost {amount(one['loss'])} in all."
    if any(output["mechanism"] in mechanisms_of("keys") for _, one in _releases(facts) for output in one["outputs"]):
        yield "The δ is for selected keys: one of a single person is shown with that probability at most."
    ledger = facts["ledger"]
    if ledger is None:
        yield "No budget: what else was released of the same people is not recorded."
        return
    yield (
        f"A budget of {amount(ledger['total'])} pays before a row is read. Charged when this was written: "
        f"{amount(ledger['spent'])}, by {plural(ledger['charges'], 'output')}."
    )
    if ledger["is_guarantee"]:
        yield (
            "A release is allowed while the sum of all ε, or the sum of Rényi divergences of one order, is within what "
            "proves this guarantee. The order was fixed before the first charge."
        )
    if ledger["delta_for"]:
        of_keys = "The part of its δ that keys may spend" if ledger["is_guarantee"] else "Its δ"
        yield f"{of_keys} was spent by {', '.join(ledger['delta_for'])}: by selected keys."
    yield f"SHA-256 of the ledger's last entry: {ledger['digest'] or 'none, for nothing is charged'}."
    if ledger["entries"]:
        rows = tuple(
            (one["when"], one["what"], one["mechanism"], amount(one["loss"]), one["recorded"])
            for one in ledger["entries"]
        )
        yield TextTable(("charged", "output", "mechanism", "loss", "its query"), rows)


def _before(facts: Facts) -> Iterator[Part]:
    yield from _of_each(facts, _steps)
    ledger = facts["ledger"]
    if ledger is not None and (unchecked := [one["what"] for one in ledger["entries"] if one["unchecked"]]):
        yield f"In the ledger, the table of {', '.join(unchecked)} was {_UNCHECKED}"
    if ledger is not None and ledger["asked_before"]:
        yield f"Keys that were selected from the rows, and charged: {'; '.join(ledger['asked_before'])}."
    if facts["state"] == "asked":
        yield f"{_NOT_KNOWN}: the transformations of the query with the expression."
    yield from _unrecorded(facts, "Steps")


def _steps(release: Facts) -> Iterator[str]:
    kinds = release["table"]["before"]
    if kinds is None:
        yield f"Transformations before protect: {_NOT_KNOWN.lower()}, for no data are bound, or files are gone."
    elif kinds:
        yield f"Transformations before protect, of these kinds: {', '.join(kinds)}. Their constants are not shown."
    else:
        yield "No transformation before protect."
    if release["unchecked"]:
        yield f"The table was {_UNCHECKED}"
    if release["steps"] is not None:
        steps = "; ".join(release["steps"])
        yield f"Transformations after protect, row by row: {steps}." if steps else "No transformation after protect."


def _mechanisms(facts: Facts) -> Iterator[Part]:
    rows = [
        (
            *(release + output["name"], output["selects"], *_drawn(output)),
            *(_error(output), output.get("note") or ""),
        )
        for release, one in _releases(facts)
        for output in one["outputs"]
    ]
    if rows:
        yield TextTable(("output", "statistic", "mechanism", "loss", "rate", "error", "note"), tuple(rows))
    clipped: dict[str, list[str]] = {}
    for release, one in _releases(facts):
        for output in one["outputs"]:
            if output["clipping"] is not None:
                clipped.setdefault(output["clipping"], []).append(release + output["name"])
    yield from (f"{', '.join(names)}: {said}" for said, names in clipped.items())
    used = {output["mechanism"] for _, one in _releases(facts) for output in one["outputs"]}
    used |= {one["mechanism"] for one in (facts["ledger"] or {"entries": []})["entries"] if facts["state"] == "charged"}
    yield from (proof.said for name, proof in PROOFS.items() if name in used)
    versions = facts["versions"]
    yield (
        f"By dp_polars {versions['dp_polars']} with Polars {versions['polars']} and Python {versions['python']}, on "
        f"{facts['date']}."
    )
    yield (
        "Every draw is exact: losses, rates and sums are rational or whole numbers, and where floats can't decide a "
        "draw, more digits do. Random words are AES-256 in counter mode under a key of the operating system."
    )
    yield (
        "Time is not protected: nobody who must not see the rows may time a release, or watch the terminal. A message "
        "of an error never holds a value of a row."
    )


def _drawn(output: Facts) -> tuple[str, str, str]:
    """Return mechanism, loss and rate of an output's draws."""
    if not output["draws"]:
        return "none", "none", "not drawn"
    return output["mechanism"], amount(output["loss"]), _rate(output)


def _rate(output: Facts) -> str:
    rate = f"rate {_up(output['rate'], 4)}"
    if output["scale"] is not None:
        what = "standard deviation" if "gaussian" in output["mechanism"] else "scale"
        rate += f", {what} {show(rounded_down(as_fraction('scale', output['scale']), 4), 4)}"
    draws = f", {output['draws']} draws" if output["draws"] > 1 else ""
    return f"{rate}, range {output['score_range']}{draws}"


def _error(output: Facts) -> str:
    if output.get("error_95") is None:
        return "depends on rows that are private: see the note" if output.get("note") else "not known without data"
    return f"at most {_up(output['error_95'], 3)} ({output['error_unit']}) with 95 %"


def _up(value: float, digits: int) -> str:
    return show(as_fraction("value", value), digits, up=True)


def _unrecorded(facts: Facts, what: str) -> Iterator[Part]:
    """Yield that a ledger lacks this fact, for outputs without their query."""
    ledger = facts["ledger"]
    if facts["state"] == "charged" and ledger is not None and ledger["unrecorded"]:
        yield f"{what} of {plural(ledger['unrecorded'], 'output')} in the ledger: {NOT_RECORDED}."


_OF_FIELD: dict[str, Callable[[Facts], Iterable[Part]]] = {
    "variant_name": lambda facts: [] if facts["loss"] is None else [facts["loss"]["variant"]],
    "data_domain": _domain,
    "unprotected_quantities": _unprotected,
    "privacy_unit": _unit,
    "privacy_parameters": lambda facts: [] if facts["loss"] is None else [amount(facts["loss"])],
    "privacy_unit_details": _unit_details,
    "privacy_parameters_details": _loss_details,
    "model_name_details": lambda _: [_MODEL],
    "post_processing": lambda _: [_POST_PROCESSING],
    "composition": _composition,
    "preprocessing_and_hyperparameter_tuning": _before,
    "mechanisms": _mechanisms,
}
# Fields that people complete, because the package knows only a part: the start of that text.
_ALSO_PEOPLES = {
    "post_processing": "Work with the answers afterwards: ",
    "preprocessing_and_hyperparameter_tuning": "How limits, clipping bounds, keys and losses were chosen: ",
    "mechanisms": "How the rows are secured, and who may read them: ",
}


_HEADINGS = {
    "basic": "The release",
    "dp_variant": "The guarantee, and its data",
    "privacy_loss": "Who is protected, and how much",
    "deployment_model": "Who sees what",
    "accounting": "How losses add up",
    "implementation": "How it was computed",
    "administrative": "This record",
}
# Characters that Markdown reads as marks; an underscore within a word is no mark.
_MARKS = re.compile(r"[\\`*\[\]#|~$<>]|&(?=[#\w]+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# Characters that YAML forbids unescaped, or reads as ends of lines.
_UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Statement:
    r"""The protection of a release, for those who publish, sign and review it. It never changes.

    Made by `PrivateQuery.statement`, `PrivateExpr.statement` and `dp_polars.statement`; `read_claim` returns the one in
    a file. It shows whom the release protects and how much, what is not protected, and how each number was drawn. Facts
    that the package does not know appear as "TO BE STATED", "not known" or "not recorded".

    Nothing in it depends on a private row, or on the contents of the transformations before `protect`. `written` has
    all facts as JSON.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient", max_groups=1).agg(dpp.n_people(epsilon=0.5))
    >>> statement = query.statement(name="Patients", publication_date="2026-11-23")
    >>> statement.facts["loss"]["exact"]
    '1/2'
    >>> print(statement.to_yaml().splitlines()[5])
        name: "Patients"
    """

    written: str

    @classmethod
    def of(cls, state: str, known: Mapping[str, object], **facts: object) -> Statement:
        """Return the statement from these facts, those from people, and those about the software."""
        of_all = {**software(), "state": state, "known": checked(known), "guarantee": None, "ledger": None}
        return cls(json.dumps(of_all | facts))

    @property
    def facts(self) -> dict[str, Any]:
        """All facts, as a new mapping of texts, numbers, lists and mappings."""
        facts: dict[str, Any] = json.loads(self.written)
        return facts

    def to_markdown(self) -> str:
        """Return the statement as a page of Markdown, with every text of keys, names and arguments escaped."""
        lines = [f"# {_for_markdown(self._title)}", "", _for_markdown(_STATES[self.facts["state"]])]
        for heading, fields in self._sections():
            lines += ["", f"## {heading}"]
            for label, parts in fields:
                lines += ["", f"**{label}**"]
                for part in parts:
                    lines += _markdown_table(part) if isinstance(part, TextTable) else ["", _for_markdown(part)]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return the statement as a `<section>` of HTML, with every text of keys, names and arguments escaped.

        It needs nothing else: no style, no script, no network.
        """
        lines = ['<section class="dp-statement">', f"<h2>{html.escape(self._title)}</h2>"]
        lines.append(f"<p>{html.escape(_STATES[self.facts['state']])}</p>")
        for heading, fields in self._sections():
            lines += [f"<h3>{heading}</h3>", "<dl>"]
            for label, parts in fields:
                lines.append(f"<dt>{label}</dt>")
                lines += [f"<dd>{_html(part)}</dd>" for part in parts]
            lines.append("</dl>")
        return "\n".join([*lines, "</section>"]) + "\n"

    def to_yaml(self) -> str:
        """Return the statement as an entry of the public registry of deployments, by its schema.

        A missing text is "TO BE STATED"; a missing enumeration is left out. If `tier` was not given, it is the highest
        tier without missing fields. ValueError if a required date or enumeration is missing, as the schema accepts no
        blank there.
        """
        return "\n".join(_yaml(self._record())) + "\n"

    def __repr__(self) -> str:
        facts = self.facts
        unit = next(field for field in FIELDS if field.name == "privacy_unit")
        lines = {
            "about": self._title,
            "state": _STATES[facts["state"]],
            "loss": "not known" if facts["loss"] is None else f"{amount(facts['loss'])}, {facts['loss']['variant']}",
            "protects": " ".join(map(str, stated(facts, unit))),
            "outputs": ", ".join(output["name"] for one in facts["releases"] for output in one["outputs"]) or "none",
            "open": ", ".join(self._open()) or "nothing",
        }
        return "<Statement\n" + "\n".join(f"{key + ':':<10}{text}" for key, text in lines.items()) + ">"

    def _repr_html_(self) -> str:
        return self.to_html()

    @property
    def _title(self) -> str:
        return f"Privacy statement: {self.facts['known'].get('name', TO_BE_STATED)}"

    def _open(self) -> list[str]:
        facts, asked = self.facts, (field for field in FIELDS if field.section != "record" and field.kind != "fact")
        return [field.name for field in asked if _is_open(facts, field)]

    def _sections(self) -> Iterator[tuple[str, list[tuple[str, list[Part]]]]]:
        """Yield headings with their fields; a published statement ends with a list of missing facts."""
        facts = self.facts
        is_draft, missing = facts["state"] != "published", list[str]()
        for section, heading in _HEADINGS.items():
            found: list[tuple[str, list[Part]]] = []
            for field in (field for field in FIELDS if field.section == section):
                parts = stated(facts, field)
                if not is_draft and _is_open(facts, field):
                    missing.append(field.label)
                    parts = [part for part in parts if not str(part).endswith(TO_BE_STATED)]
                if is_draft or parts:
                    found.append((field.label, parts or ["Not stated"]))
            if section == [*_HEADINGS][-1] and missing:
                found.append(("Not stated", [", ".join(missing)]))
            if found:
                yield heading, found

    def _record(self) -> dict[str, Any]:
        facts = self.facts
        lacking = [field.tier for field in FIELDS if field.tier is not None and _is_open(facts, field)]
        tier = facts["known"].get("tier", max(1, min(lacking, default=4) - 1))
        sections: dict[str, dict[str, Any]] = {}
        for field in FIELDS:
            value = tier if field.name == "tier" else _value(facts, field)
            if value is not None:
                sections.setdefault(field.section, {})[field.name] = value
            elif field.is_required:
                hint = f"one of {list(field.words)}" if field.words else "such as '2026-11-23'"
                msg = (
                    f"to_yaml: {field.name} must be stated, for the registry requires it.\n\n"
                    f"Hint: statement({field.name}=…), {hint}."
                )
                raise ValueError(msg)
        return {**sections.pop("record"), "deployment": sections}


def _value(facts: Mapping[str, Any], field: Field) -> object:
    if field.name == "privacy_parameters":
        return _parameters(facts)
    parts = stated(dict(facts), field)
    if field.kind == "texts":
        return list(map(str, parts))
    texts = ["\n".join(f"- {line}" for line in part.lines()) if isinstance(part, TextTable) else part for part in parts]
    return "\n\n".join(texts) or None


def _parameters(facts: Mapping[str, Any]) -> dict[str, float] | None:
    loss = facts["loss"]
    if loss is None:
        return None
    found = {loss["unit"]: loss["value"], **({"delta": loss["delta"]["value"]} if loss["delta"]["value"] else {})}
    return {name: value for name, value in found.items() if value is not None} or None


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping; quotes keep texts from being read as dates or booleans."""
    for name, one in value.items():
        if isinstance(one, dict):
            yield f"{indent}{name}:"
            yield from _yaml(one, f"{indent}  ")
        elif isinstance(one, list):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {_scalar(text)}" for text in one)
        else:
            yield f"{indent}{name}: {_scalar(one)}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    text = repr(value)
    # YAML 1.1 reads 1e-06 as text.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _for_markdown(text: str) -> str:
    return _MARKS.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def _markdown_table(table: TextTable) -> list[str]:
    rows = [table.headers, tuple("---" for _ in table.headers), *(map(_for_markdown, row) for row in table.rows)]
    return ["", *(f"| {' | '.join(row)} |" for row in rows)]


def _html(part: Part) -> str:
    if not isinstance(part, TextTable):
        return html.escape(part)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in part.headers)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in part.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
