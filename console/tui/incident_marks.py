"""Incidents as one line of marks under a chart of time.

Invariant: where several stand in one column the gravest is drawn; the line is as wide as its chart.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from console.core.incidents import Incident
from console.core.marks import SEVERITY_MARKS
from console.tui.palette import Palette


def incident_line(
    incidents: Iterable[Incident], first_us: int, last_us: int, columns: int, margin: int, palette: Palette
) -> Text | None:
    """Where incidents were first seen in [first_us, last_us], `columns` wide after `margin`; None where none was."""
    gravest: dict[int, Incident] = {}
    for incident in incidents:
        at = incident.first_seen_us
        if at is None or not first_us <= at <= last_us:
            continue
        column = min(int((at - first_us) / max(last_us - first_us, 1) * columns), columns - 1)
        if column not in gravest or incident.severity < gravest[column].severity:
            gravest[column] = incident
    if not gravest:
        return None
    line = Text(f"{'incident':>{margin - 1}} "[:margin], end="", style=palette.quiet)
    for column in range(columns):
        known = gravest.get(column)
        if known is None:
            line.append(" ")
        else:
            line.append(SEVERITY_MARKS[known.severity].glyph, style=palette.severity(known.severity))
    return line
