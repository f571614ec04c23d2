"""Incidents as marks on any chart of time: a line where each was first seen, with its glyph and id above.

Invariant: a mark is of the range of the chart; what is not marked is counted in the last mark's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.core.incidents import Incident
from console.core.marks import SEVERITY_MARKS
from console.web.figure_style import STYLES, Figure, date, safe

MOST_MARKS = 12


def with_incidents(
    figure: Figure, incidents: Sequence[Incident], span: tuple[int | None, int | None], theme: str
) -> Figure:
    """The chart with the gravest incidents first seen in `span` (us; None = no bound), `incidents` being gravest first."""
    start, end = span
    seen = [
        (i, i.first_seen_us)
        for i in incidents
        if i.first_seen_us is not None
        and (start is None or i.first_seen_us >= start)
        and (end is None or i.first_seen_us < end)
    ]
    layout = figure["layout"]
    axes = sorted(name[5:] for name in layout if name.startswith("xaxis"))
    shapes, notes = list(layout.get("shapes", ())), list(layout.get("annotations", ()))
    for place, (incident, at_us) in enumerate(seen[:MOST_MARKS]):
        colour, mark = STYLES[theme].theme.severities[incident.severity], SEVERITY_MARKS[incident.severity]
        more = f" and {len(seen) - MOST_MARKS} more" if place == MOST_MARKS - 1 and len(seen) > MOST_MARKS else ""
        words = f"{mark.glyph} {mark.word} {incident.id} {safe(incident.title)}{more}"
        for number in axes:
            over: dict[str, Any] = {"xref": f"x{number}", "yref": f"y{number} domain"}
            line = {"color": colour, "width": 1.5, "dash": "dot"}
            shapes.append(
                {**over, "type": "line", "x0": date(at_us), "x1": date(at_us), "y0": 0, "y1": 1, "line": line}
            )
            notes.append({**over, "x": date(at_us), "y": 1, "yanchor": "top", "text": mark.glyph, "hovertext": words,
                          "showarrow": False, "font": {"color": colour}, "name": incident.id})  # fmt: skip
    return {**figure, "layout": {**layout, "shapes": shapes, "annotations": notes}}
