"""The Incidents screen's lines: one row per incident, and the facts of one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial

from rich.text import Text

from console.core.desk import Desk
from console.core.incident_words import Fact, facts, reading_words
from console.core.incidents import Incident
from console.core.overview import Stood
from console.core.own_time import own_words
from console.core.printable import printable, shorten
from console.core.readings import Reading
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot
from console.core.standing_words import standing_short
from console.core.times import clock, duration
from console.core.triage import State
from console.tui.columns import Column, fit, heading, row_text, source_column
from console.tui.line_list import Line
from console.tui.lines import cut, severity_text, verdict_text
from console.tui.palette import Palette
from forensics.verdict import Verdict

CURSOR_WIDTH = 2
LABEL_WIDTH = 11
MOST_ROWS = 200


def incident_table(
    known: Rollup, stood: Sequence[Stood], now_us: int, width: int, palette: Palette
) -> tuple[Text, list[Line]]:
    """Column titles and one line per incident, keyed by its id; `MOST_ROWS` of them at most. `now_us`: as in `standing`."""
    columns = _incident_columns(known, palette, width)
    if any(s.standing.last for s in stood):
        at = next(n for n, column in enumerate(columns) if column.title == "STATE") + 1
        columns.insert(at, Column("SAID BY", 14, lambda s: standing_short(s.standing, now_us), 4))
    if any(s.incident.source for s in stood):
        columns.insert(1, source_column(lambda s: s.incident.source, stood))
    fitted = fit(columns, width - CURSOR_WIDTH - 1)
    lines = [Line(s.incident.key, partial(row_text, fitted, s)) for s in stood[:MOST_ROWS]]
    if len(stood) > MOST_ROWS:
        lines.append(Line(None, Text(f"… {MOST_ROWS} of {len(stood):,}; / narrows them down", end="")))
    return _titles(heading(fitted), width, palette), lines


def _incident_columns(known: Rollup, palette: Palette, width: int) -> list[Column[Stood]]:
    def count(verdict: Verdict) -> Callable[[Stood], Text]:
        def cell(stood: Stood) -> Text:
            n = stood.incident.counts[verdict]
            return Text(str(n), style=palette.verdict(verdict, bold=True) if n else palette.quiet)

        return cell

    return [
        Column("SEV", 3, lambda s: severity_text(s.incident.severity, palette)),
        Column("ID", 10, lambda s: s.incident.id),
        Column("CAUSE", 19, lambda s: s.incident.title, flexible=width < 100),
        Column("FIRST SEEN", 10, lambda s: clock(s.incident.first_seen_us), 2),
        Column("LASTED", 8, lambda s: duration(s.incident.lasted_us or None), 5, right=True),
        Column("✗", 4, count(Verdict.CONTAMINATED), 0, right=True),
        Column("?", 3, count(Verdict.UNKNOWN), 1, right=True),
        Column("≠", 3, count(Verdict.CORRUPT), 6, right=True),
        Column("~", 3, count(Verdict.EXPOSED), 1, right=True),
        Column("TENANTS", 7, lambda s: _tenants(known, s.incident), 3),
        Column("STATE", 8, state_words, 2),
        Column("DETECTORS", 9, lambda s: " ".join(s.incident.detectors), 7),
        Column("WORKERS", 26, lambda s: printable(", ".join(s.incident.workers) or None), 9, flexible=width >= 100),
    ]


def _tenants(known: Rollup, incident: Incident) -> str:
    def letters(tenants: tuple[str, ...]) -> str:
        return "".join(sorted({known.owners.of(t).letter for t in tenants})) or "?"

    return f"{letters(incident.donor_tenants)}→{letters(incident.reader_tenants)}"


def state_words(stood: Stood) -> str:
    """How it stands with the people on call; `+` where it still grows."""
    words = {State.OPEN: "new", State.ACKED: "ack", State.SILENCED: "silent", State.BACK: "back"}
    return words[stood.standing.state] + ("+" if stood.incident.growing else "")


def fact_lines(known: Rollup, incident: Incident, width: int, palette: Palette, said: Sequence[Fact] = ()) -> Text:
    """The facts of an incident, wrapped to `width`; what people `said` of it after its verdict."""
    block = Text(end="")
    verdict, *others = facts(known, incident)
    for fact in (verdict, *said, *others):
        words = _wrapped(fact.words, width - LABEL_WIDTH - 2)
        for i, part in enumerate(words):
            block.append(f" {fact.label if not i else '':<{LABEL_WIDTH}}", style=palette.quiet)
            style = palette.verdict(incident.worst, bold=True) if fact.label == "verdict" else ""
            block.append(part + "\n", style=style)
    return block


def _wrapped(words: str, width: int) -> list[str]:
    """Lines of at most `width` characters; a word that is longer (a path) is cut, never dropped."""
    return textwrap.wrap(words, max(width, 8), break_on_hyphens=False) or [""]


def note_lines(said: Sequence[Fact], width: int) -> list[Line]:
    """How an incident stands and what was noted of it, wrapped to `width`: nothing that was written is left out."""
    wrapped = [part for fact in said for part in _wrapped(fact.words, width - 4)]
    return [Line(str(n), Text(part, end="")) for n, part in enumerate(wrapped)]


def reading_table(snapshot: Snapshot, incident: Incident, width: int, palette: Palette) -> tuple[Text, list[Line]]:
    """Column titles and one line per response of an incident, keyed by rid."""
    readings = snapshot.readings(incident)
    columns: list[Column[Reading]] = [
        Column(
            "RESPONSE", 14, lambda r: Text.assemble(verdict_text(r.verdict, palette, shorten(printable(r.rid), 40)))
        ),
        Column("T", 1, lambda r: snapshot.owners.of(r.tenant).letter, 1),
        Column("PAGES", 5, lambda r: str(r.pages), 1, right=True),
        Column("DONORS", 6, lambda r: str(len(r.donors)), 3, right=True),
        Column("SEEN", 9, lambda r: clock(r.seen_us), 2),
        Column("VERDICT", 40, reading_words, 9, flexible=True),
    ]
    if width < 90:
        columns[0] = Column("RESPONSE", 14, columns[0].cell, flexible=True)
        columns.pop()
    fitted = fit(columns, width - CURSOR_WIDTH - 1)
    lines = [Line(r.key, partial(row_text, fitted, r)) for r in readings[:MOST_ROWS]]
    if len(readings) > MOST_ROWS:
        lines.append(Line(None, Text(f"… {MOST_ROWS} of {len(readings):,} shown; forensics query has all", end="")))
    return _titles(heading(fitted), width, palette), lines


def _titles(titles: Text, width: int, palette: Palette) -> Text:
    line = Text("   ", end="", style=palette.quiet)
    return cut(line.append_text(titles), width)


def crumb_line(desk: Desk, width: int, palette: Palette) -> Text:
    """Incidents › I-xxxx mechanism › response."""
    incident, reading = desk.incident, desk.reading
    line = Text(" Incidents › ", end="", style=palette.quiet)
    if incident is None:
        when = "any more" if desk.whole is None else "at this moment of the replay"
        return cut(line.append(f"{printable(desk.view.incident)} is not in this ledger {when}"), width)
    line.append(f"{incident.id} {incident.title}", style=palette.strong)
    if reading is not None:
        rids = list(dict.fromkeys(r.rid for r in desk.readings))
        line.append(f" › {shorten(printable(reading.rid), 20)} ({rids.index(reading.rid) + 1} of {len(rids)})")
    if own_words(desk.view):
        line.append(f"  {own_words(desk.view)}", style=palette.quiet)
    if desk.view.mark_us is not None:
        line.append(f"  m {clock(desk.view.mark_us)}", style=palette.strong)
    return cut(line, width)
