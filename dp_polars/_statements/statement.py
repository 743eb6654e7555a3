"""A statement, and its renderings: Markdown, HTML and the registry's YAML."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp_polars._statements.known import FIELDS, TO_BE_STATED
from dp_polars._statements.texts import Table, amount, state_of, stated, tier_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dp_polars._statements.known import Field
    from dp_polars._statements.texts import Part

_HEADINGS = {
    "basic": "The release",
    "dp_variant": "What is promised, about which data",
    "privacy_loss": "Who is protected, and how much",
    "deployment_model": "Who sees what",
    "accounting": "How losses add up",
    "implementation": "How it was computed",
    "administrative": "This record",
}
# Characters that Markdown reads as marks; an underscore within a word is none.
_MARKS = re.compile(r"[\\`*\[\]#|~$<>]|&(?=[#\w]+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# Characters that YAML must not hold as they are, or reads as ends of lines.
_UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Statement:
    r"""What was done for privacy, for those who publish, sign and review a release. It never changes.

    Made by `PrivateQuery.statement`, `PrivateExpr.statement` and `dp_polars.statement`; `read_claim` finds the one that
    a file carries. It says whom the release protects and how much, what is not protected, and how each number was
    drawn. What the package does not know stands there as "TO BE STATED", "not known" or "not recorded".

    Nothing in it depends on a private row, or on what the steps before `protect` say.

    Attributes
    ----------
    written
        All facts as JSON.

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
    def of(cls, facts: Mapping[str, Any]) -> Statement:
        """Return the statement of these facts."""
        return cls(json.dumps(facts))

    @property
    def facts(self) -> dict[str, Any]:
        """All facts, as a new mapping of texts, numbers, lists and mappings."""
        facts: dict[str, Any] = json.loads(self.written)
        return facts

    def to_markdown(self) -> str:
        """Return the statement as a page of Markdown, with every text of keys, names and arguments escaped."""
        lines = [f"# {_for_markdown(self._title)}", "", _for_markdown(state_of(self.facts))]
        for heading, fields in self._sections():
            lines += ["", f"## {heading}"]
            for label, parts in fields:
                lines += ["", f"**{label}**"]
                for part in parts:
                    lines += _markdown_table(part) if isinstance(part, Table) else ["", _for_markdown(part)]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return the statement as a `<section>` of HTML, with every text of keys, names and arguments escaped.

        It needs nothing else: no style, no script, no network.
        """
        lines = ['<section class="dp-statement">', f"<h2>{html.escape(self._title)}</h2>"]
        lines.append(f"<p>{html.escape(state_of(self.facts))}</p>")
        for heading, fields in self._sections():
            lines += [f"<h3>{heading}</h3>", "<dl>"]
            for label, parts in fields:
                lines.append(f"<dt>{label}</dt>")
                lines += [f"<dd>{_html(part)}</dd>" for part in parts]
            lines.append("</dl>")
        return "\n".join([*lines, "</section>"]) + "\n"

    def to_yaml(self) -> str:
        """Return the statement as an entry of the public registry of deployments, by its schema.

        Raises
        ------
        ValueError
            If a field that the schema requires takes no blank, and has no value: a date or an enumeration.

        Notes
        -----
        A text that is missing is "TO BE STATED"; an enumeration that is missing is left out. `tier` is the highest one
        all of whose fields are stated, if it was not given.
        """
        return "\n".join(_yaml(self._record())) + "\n"

    def __repr__(self) -> str:
        facts = self.facts
        lines = {
            "about": self._title,
            "state": state_of(facts),
            "loss": "not known" if facts["loss"] is None else f"{amount(facts['loss'])}, {facts['loss']['variant']}",
            "protects": " ".join(map(str, stated(facts, _field("privacy_unit")))),
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
        """Return the fields that are to be stated."""
        facts = self.facts
        return [
            field.name
            for field in FIELDS
            if field.section != "record"
            and (not (parts := stated(facts, field)) or str(parts[-1]).endswith(TO_BE_STATED))
            and field.kind != "fact"
        ]

    def _sections(self) -> Iterator[tuple[str, list[tuple[str, list[Part]]]]]:
        """Yield each heading, and the fields below it: their labels, and what stands in them."""
        facts = self.facts
        for section, heading in _HEADINGS.items():
            fields = ((field, stated(facts, field)) for field in FIELDS if field.section == section)
            yield heading, [(field.label, parts or ["Not stated"]) for field, parts in fields]

    def _record(self) -> dict[str, Any]:
        """Return the entry of the registry."""
        facts = self.facts
        sections: dict[str, dict[str, Any]] = {}
        for field in FIELDS:
            value = tier_of(facts) if field.name == "tier" else _value(facts, field)
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


def _field(name: str) -> Field:
    return next(field for field in FIELDS if field.name == name)


def _value(facts: Mapping[str, Any], field: Field) -> object:
    """Return what a field of the registry has, as the schema wants it; None where it is left out."""
    facts = dict(facts)
    if field.name == "privacy_parameters":
        return _parameters(facts)
    parts = stated(facts, field)
    if field.kind == "texts":
        return [str(part) for part in parts]
    texts = ["\n".join(f"- {line}" for line in part.lines()) if isinstance(part, Table) else part for part in parts]
    return "\n\n".join(texts) or None


def _parameters(facts: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the loss as floats that are no less; None where it is not known."""
    loss = facts["loss"]
    if loss is None:
        return None
    found = {loss["unit"]: loss["value"], **({"delta": loss["delta"]["value"]} if loss["delta"]["value"] else {})}
    return {name: value for name, value in found.items() if value is not None} or None


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping; texts stand in quotes, so that no date and no "no" is taken for another type."""
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
    # YAML 1.1 takes 1e-06 for a text.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _for_markdown(text: str) -> str:
    """Return a text for Markdown, on one line, that shows as it is."""
    return _MARKS.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def _markdown_table(table: Table) -> list[str]:
    rows = [table.headers, tuple("---" for _ in table.headers), *(map(_for_markdown, row) for row in table.rows)]
    return ["", *(f"| {' | '.join(row)} |" for row in rows)]


def _html(part: Part) -> str:
    if not isinstance(part, Table):
        return html.escape(part)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in part.headers)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in part.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
