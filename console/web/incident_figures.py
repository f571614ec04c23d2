"""Incidents in time as swimlanes, and whose content went into whose responses as a Sankey diagram.

Invariant: everything drawn stands in a table beside it; what is not drawn is counted in one band, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.core.incidents import Incident
from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS
from console.core.owners import Owners
from console.web.figure_style import STYLES, Figure, axis, date, layout, safe, time_axis
from forensics.rows import Row
from forensics.verdict import Verdict

MOST_FLOWS = 60
_SYMBOLS = ("triangle-up", "diamond", "circle", "circle-open")


def swimlanes(incidents: Sequence[Incident], span: tuple[int | None, int | None], theme: str) -> Figure:
    """One lane for each cause; a line from the first to the last of each incident. `customdata` is its id."""
    style = STYLES[theme]
    timed = [i for i in incidents if i.first_seen_us is not None and i.last_seen_us is not None]
    data = []
    for symbol, (severity, mark) in zip(_SYMBOLS, SEVERITY_MARKS.items(), strict=True):
        xs: list[str | None] = []
        lanes: list[str | None] = []
        ids: list[str | None] = []
        words: list[str | None] = []
        for incident in (i for i in timed if i.severity is severity):
            xs += [date(incident.first_seen_us or 0), date(incident.last_seen_us or 0), None]
            lanes += [safe(incident.title), safe(incident.title), None]
            ids += [incident.id, incident.id, None]
            words += [f"{mark.glyph} {severity.name} {incident.id} {safe(incident.title)}"] * 2 + [None]
        colour = style.theme.severities[severity]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": severity.name, "x": xs, "y": lanes, "customdata": ids,
            "hovertext": words, "hoverinfo": "text+x", "line": {"color": colour, "width": 4},
            "marker": {"symbol": symbol, "size": 12, "color": colour, "line": {"width": 1, "color": style.ink}},
        })  # fmt: skip
    order = sorted({safe(i.title) for i in timed}, reverse=True)
    shown = layout(
        style,
        uirevision=f"swimlanes/{span}",
        xaxis=time_axis(style, *span),
        yaxis=axis(
            style, "", type="category", categoryorder="array", categoryarray=order, automargin=True, fixedrange=True
        ),
        height=130 + 40 * max(len(order), 1),
    )
    return {"data": data, "layout": shown}


def sankey(flows: Sequence[Row], owners: Owners, theme: str) -> Figure:
    """Donors on the left, responses on the right; as wide as the pages. `flows`: rows of `console.core.flows`."""
    style = STYLES[theme]
    drawn, rest = list(flows[:MOST_FLOWS]), flows[MOST_FLOWS:]
    if rest:
        drawn.append({"donor_rid": f"{len(rest)} more flows", "donor_tenant": None, "rid": f"of {len({r['rid'] for r in rest})} responses",
                      "pages": sum(r["pages"] for r in rest), "verdict": None, "proof": ""})  # fmt: skip
    left = list(dict.fromkeys(row["donor_rid"] for row in drawn))
    right = list(dict.fromkeys(row["rid"] for row in drawn))
    tenants = {row["donor_rid"]: row["donor_tenant"] for row in drawn}
    colours = [owners.of(tenants[donor]).colour for donor in left] + [style.theme.quiet] * len(right)
    names = ["donor not named" if donor is None else donor for donor in left] + right
    return {
        "data": [{
            "type": "sankey", "orientation": "h", "arrangement": "fixed",
            "node": {"label": [safe(name, 40) for name in names], "color": colours, "pad": 10, "thickness": 16},
            "link": {
                "source": [left.index(row["donor_rid"]) for row in drawn], "target": [len(left) + right.index(row["rid"]) for row in drawn],
                # A finding that names no page is drawn as thin as one page; its table says none.
                "value": [max(row["pages"], 1) for row in drawn], "color": [_ribbon(row, theme) for row in drawn],
                "customdata": [f"{row['pages']} pages, {row['verdict'] or 'several verdicts'} {row['proof']}" for row in drawn],
                "hovertemplate": "%{source.label} → %{target.label}<br>%{customdata}<extra></extra>",
            },
        }],
        "layout": layout(style, height=max(220, 60 + 26 * max(len(left), len(right))), margin={"l": 8, "r": 8, "t": 8, "b": 8}),
    }  # fmt: skip


def _ribbon(row: Row, theme: str) -> str:
    """A verdict's colour, half seen through."""
    colour = (
        STYLES[theme].theme.verdicts[Verdict(row["verdict"])] if row["verdict"] else VERDICT_MARKS[Verdict.CLEAN].dark
    )
    return "rgba({},{},{},0.5)".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
