"""The page map as a Plotly figure: a heatmap of uint8 owner ranks, letters over it, marks for foreign reads and writes.

Invariant: binned here, at most 512 x 600 cells in base64; no text of the ledger reaches Plotly unescaped, since Plotly
reads a subset of HTML in labels.
"""

from __future__ import annotations

import base64
import html
from datetime import UTC, datetime, timedelta
from typing import Any

from console.core.marks import OTHER_COLOUR, OWNER_COLOURS
from console.core.page_map import FIRST_NAMED, PageMap, Tenure
from console.core.page_marks import FOREIGN_READ, LATE_WRITE, Marker
from console.core.printable import printable
from console.core.snapshot import Snapshot

MOST_LETTERS = 60
GROUND = {"dark": ("#1E1E1E", "#5A5A5A", "#E6E6E6"), "light": ("#F1F1F1", "#8C8C8C", "#1A1A1A")}
"""By theme: free, held, ink."""
SYMBOLS = {FOREIGN_READ: ("x", "#E8702A"), LATE_WRITE: ("triangle-down", "#E69F00")}
_LEVELS = FIRST_NAMED + len(OWNER_COLOURS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def page_map_figure(snapshot: Snapshot, drawn: PageMap, theme: str) -> dict[str, Any]:
    """`data` and `layout` for Plotly.react. `theme` is dark or light."""
    free, held, ink = GROUND[theme]
    rows, cols = drawn.cells.shape
    area = drawn.area
    heatmap = {
        "type": "heatmap", "name": "owner",
        "z": {"dtype": "u1", "bdata": base64.b64encode(drawn.cells.tobytes()).decode(), "shape": f"{rows}, {cols}"},
        "x0": _date(area.start_us + drawn.bin_us / 2), "dx": drawn.bin_us / 1000,
        "y0": area.first_page + (drawn.pages_per_row - 1) / 2, "dy": drawn.pages_per_row,
        "zmin": -0.5, "zmax": _LEVELS - 0.5, "colorscale": _steps([free, held, OTHER_COLOUR, *OWNER_COLOURS]),
        "showscale": False, "hovertemplate": "page %{y}<br>%{x}<extra></extra>",
    }  # fmt: skip
    data = [heatmap, _letters(snapshot, drawn), *(_marks(drawn, kind) for kind in SYMBOLS)]
    return {"data": data, "layout": _layout(drawn, ink)}


def _date(us: float) -> str:
    return (_EPOCH + timedelta(microseconds=round(us))).strftime("%Y-%m-%d %H:%M:%S.%f")


def _steps(colours: list[str]) -> list[list[Any]]:
    n = len(colours)
    return [stop for i, colour in enumerate(colours) for stop in ([i / n, colour], [(i + 1) / n, colour])]


def _letters(snapshot: Snapshot, drawn: PageMap) -> dict[str, Any]:
    """A letter on the largest tenures, so that owners can be told apart without colour."""
    area = drawn.area
    largest = sorted(drawn.tenures, key=lambda t: -len(t.pages) * (_end(drawn, t) - max(t.start_us, area.start_us)))
    shown = [t for t in largest[:MOST_LETTERS] if t.pages]
    owners = [snapshot.owners.of(t.tenant) for t in shown]
    dark = ("#CCBB44", "#66CCEE", "#EE6677", "#BBBBBB")
    return {
        "type": "scatter", "mode": "text", "name": "owner letters", "hoverinfo": "skip", "showlegend": False,
        "x": [_date((max(t.start_us, area.start_us) + _end(drawn, t)) / 2) for t in shown],
        "y": [(t.pages[0] + t.pages[-1]) / 2 for t in shown], "text": [owner.letter for owner in owners],
        "textfont": {"size": 13, "color": ["#000000" if o.colour in dark else "#FFFFFF" for o in owners]},
    }  # fmt: skip


def _end(drawn: PageMap, tenure: Tenure) -> int:
    return min(tenure.end_us if tenure.end_us is not None else drawn.area.end_us, drawn.area.end_us)


def _marks(drawn: PageMap, kind: str) -> dict[str, Any]:
    symbol, colour = SYMBOLS[kind]
    marks = [marker for marker in drawn.markers if marker.kind == kind]
    return {
        "type": "scatter", "mode": "markers", "name": kind, "showlegend": True,
        "x": [_date(m.t_us) for m in marks], "y": [m.page for m in marks],
        "hovertext": [_hover(m) for m in marks], "hoverinfo": "text",
        "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 1.5, "color": "#FFFFFF"}},
    }  # fmt: skip


def _hover(marker: Marker) -> str:
    what = "in the pages of" if marker.kind == LATE_WRITE else "read by"
    lines = [
        f"{marker.kind}, page {marker.page}",
        f"{what} {printable(marker.rid)}",
        f"content of {printable(marker.donor)}",
        printable(marker.words),
        _date(marker.t_us)[11:-2] + "Z",
    ]
    return "<br>".join(html.escape(line) for line in lines)


def _layout(drawn: PageMap, ink: str) -> dict[str, Any]:
    area = drawn.area
    grid = {"showgrid": False, "zeroline": False, "color": ink}
    times, pages = [_date(area.start_us), _date(area.end_us)], [area.last_page + 0.5, area.first_page - 0.5]
    return {
        "uirevision": f"{area.key}/{area.pool}",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": ink, "family": "system-ui, sans-serif", "size": 13},
        "dragmode": "zoom",
        "hovermode": "closest",
        "margin": {"l": 64, "r": 16, "t": 36, "b": 48},
        "xaxis": {**grid, "type": "date", "title": {"text": "time (UTC)"}, "range": times},
        "yaxis": {**grid, "title": {"text": "page"}, "range": pages},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
    }
