"""One incident as Markdown for a ticket: what is known, what people said, its responses, and whose content went where.

Invariant: everything from the ledger and from people has been through `printable` and means nothing to Markdown or HTML;
what is cut off for its length says how much.
"""

from __future__ import annotations

import re

import pyarrow as pa

from console.core.flows import flows_of
from console.core.incident_tables import responses_sheet
from console.core.incident_words import facts
from console.core.incidents import Incident
from console.core.printable import counted, printable
from console.core.snapshot import Snapshot
from console.core.standing_words import standing_facts
from console.core.times import moment
from console.core.triage import Standing
from console.core.view import View
from console.core.view_link import to_link
from forensics.rows import rows_of
from forensics.verdict import Verdict

MOST_ROWS = 50
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|])")
_RESPONSES = ["rid", "tenant", "verdict", "proof", "pages", "seen", "reason"]


def incident_report(snapshot: Snapshot, incident: Incident, stands: Standing, view: View, now_us: int) -> str:
    """The whole page. `stands` and `now_us`: how it stands, and when."""
    readings = snapshot.readings(incident)
    flows = flows_of(readings)
    parts = [
        f"# {incident.id} {_safe(incident.title)}, {incident.severity.name}",
        f"Ledger {_safe(printable(snapshot.name))}, read {moment(snapshot.taken_us)}, {_safe(snapshot.record_words)}; "
        f"view `{to_link(view)}`",
        "## What is known",
        "\n".join(f"- **{fact.label}**: {_safe(fact.words)}" for fact in facts(snapshot.rollup, incident)),
        "## People on call",
        "\n".join(f"- **{fact.label}**: {_safe(fact.words)}" for fact in standing_facts(stands, now_us)),
        "## Responses by verdict",
        "\n".join(["| verdict | responses |", "|---|---:|", *(f"| {v} | {incident.counts[v]:,} |" for v in Verdict)]),
        "## Responses",
        _table(responses_sheet(incident, readings).rows, _RESPONSES, "response"),
        "## Whose content went into whose responses",
        _table(flows, flows.column_names, "pair"),
    ]
    return "\n\n".join(parts) + "\n"


def _safe(words: str) -> str:
    return _MARKS.sub(r"\\\1", words)


def _table(rows: pa.Table, columns: list[str], noun: str) -> str:
    if not len(rows):
        return f"No {noun}."
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows_of(rows.slice(0, MOST_ROWS).select(columns)):
        lines.append("| " + " | ".join(_cell(name, value) for name, value in row.items()) + " |")
    if len(rows) > MOST_ROWS:
        lines.append(f"\n{MOST_ROWS} of {counted(len(rows), noun)}; export csv has all.")
    return "\n".join(lines)


def _cell(name: str, value: object) -> str:
    if isinstance(value, int):
        return moment(value) if name == "seen" else f"{value:,}"
    return _safe(printable(None if value is None else str(value)))
