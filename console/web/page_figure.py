"""The page map as a Plotly figure: a heatmap of uint8 owner ranks, letters over it, marks for foreign reads and writes.

Invariant: binned here, at most 512 x 600 cells in base64; no text of the ledger reaches Plotly unescaped, since Plotly
reads a subset of HTML in labels.
"""

from __future__ import annotations

import base64
from typing import Any

from console.core.marks import OTHER_COLOUR, OWNER_COLOURS
from console.core.owners import Owners
from console.core.page_map import FIRST_NAMED, PageMap, Tenure
from console.core.page_marks import FOREIGN_READ, LATE_WRITE, Marker
from console.web.figure_style import STYLES, Figure, Style, date, layout, safe, time_axis

MOST_LETTERS = 60
SYMBOLS = {FOREIGN_READ: ("x", "#E8702A"), LATE_WRITE: ("triangle-down", "#E69F00")}
_LEVELS = FIRST_NAMED + len(OWNER_COLOURS)


def page_map_figure(owners: Owners, drawn: PageMap, theme: str) -> Figure:
    """`data` and `layout` for Plotly.react. `theme` is dark or light."""
    style = STYLES[theme]
    rows, cols = drawn.cells.shape
    area = drawn.area
    heatmap = {
        "type": "heatmap", "name": "owner",
        "z": {"dtype": "u1", "bdata": base64.b64encode(drawn.cells.tobytes()).decode(), "shape": f"{rows}, {cols}"},
        "x0": date(area.start_us + drawn.bin_us / 2), "dx": drawn.bin_us / 1000,
        "y0": area.first_page + (drawn.pages_per_row - 1) / 2, "dy": drawn.pages_per_row,
        "zmin": -0.5, "zmax": _LEVELS - 0.5, "colorscale": _steps([style.free, style.held, OTHER_COLOUR, *OWNER_COLOURS]),
        "showscale": False, "hovertemplate": "page %{y}<br>%{x}<extra></extra>",
    }  # fmt: skip
    data = [heatmap, _letters(owners, drawn, style), *(_marks(drawn, kind) for kind in SYMBOLS)]
    return {"data": data, "layout": _layout(drawn, style)}


def _steps(colours: list[str]) -> list[list[Any]]:
    n = len(colours)
    return [stop for i, colour in enumerate(colours) for stop in ([i / n, colour], [(i + 1) / n, colour])]


def _letters(names: Owners, drawn: PageMap, style: Style) -> dict[str, Any]:
    """A letter on the largest tenures, so that owners can be told apart without colour."""
    area = drawn.area
    largest = sorted(drawn.tenures, key=lambda t: -len(t.pages) * (_end(drawn, t) - max(t.start_us, area.start_us)))
    shown = [t for t in largest[:MOST_LETTERS] if t.pages]
    owners = [names.of(t.tenant) for t in shown]
    return {
        "type": "scatter", "mode": "text", "name": "owner letters", "hoverinfo": "skip", "showlegend": False,
        "x": [date((max(t.start_us, area.start_us) + _end(drawn, t)) / 2) for t in shown],
        "y": [(t.pages[0] + t.pages[-1]) / 2 for t in shown], "text": [owner.letter for owner in owners],
        "textfont": {"size": 13, "color": [style.theme.letter_on(o.colour) for o in owners]},
    }  # fmt: skip


def _end(drawn: PageMap, tenure: Tenure) -> int:
    return min(tenure.end_us if tenure.end_us is not None else drawn.area.end_us, drawn.area.end_us)


def _marks(drawn: PageMap, kind: str) -> dict[str, Any]:
    symbol, colour = SYMBOLS[kind]
    marks = [marker for marker in drawn.markers if marker.kind == kind]
    return {
        "type": "scatter", "mode": "markers", "name": kind, "showlegend": True,
        "x": [date(m.t_us) for m in marks], "y": [m.page for m in marks],
        "hovertext": [_hover(m) for m in marks], "hoverinfo": "text",
        "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 1.5, "color": "#FFFFFF"}},
    }  # fmt: skip


def _hover(marker: Marker) -> str:
    what = "in the pages of" if marker.kind == LATE_WRITE else "read by"
    lines = [
        f"{marker.kind}, page {marker.page}",
        f"{what} {safe(marker.rid)}",
        f"content of {safe(marker.donor)}",
        safe(marker.words),
        date(marker.t_us)[11:-2] + "Z",
    ]
    return "<br>".join(lines)


def _layout(drawn: PageMap, style: Style) -> dict[str, Any]:
    area = drawn.area
    pages = [area.last_page + 0.5, area.first_page - 0.5]
    return layout(
        style,
        uirevision=f"{area.key}/{area.pool}/{area.start_us}/{area.end_us}/{pages}",
        xaxis=time_axis(style, area.start_us, area.end_us, showgrid=False),
        yaxis={"title": {"text": "page"}, "color": style.ink, "showgrid": False, "zeroline": False, "range": pages},
    )
