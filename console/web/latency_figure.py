"""Prefill times as small multiples: one panel for each length of prompt, p5 against the band of its baseline and its floor.

Invariant: all panels share the axis of time; a length with few requests is drawn pale and says so.
"""

from __future__ import annotations

from typing import Any

from console.core.latency import LatencyFigure, Length
from console.core.latency_axis import axis_of
from console.web.figure_style import STYLES, Figure, Style, axis, date, layout, time_axis

COLUMNS, MOST_PANELS = 3, 18
_GAP_X, _GAP_Y = 0.06, 0.14
_P5, _BELOW = "#56B4E9", "#E8702A"


def latency_chart(figure: LatencyFigure, span: tuple[int | None, int | None], theme: str) -> Figure:
    """The lengths over `span` (us; None = as far as there are requests), shortest first."""
    style, lengths = STYLES[theme], figure.lengths[:MOST_PANELS]
    rows = max(-(-len(lengths) // COLUMNS), 1)
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    notes: list[dict[str, Any]] = []
    for place, length in enumerate(lengths):
        number = "" if place == 0 else str(place + 1)
        left, right, bottom, top = _cell(place, rows)
        across = time_axis(style, *span, domain=[left, right], anchor=f"y{number}")
        axes[f"xaxis{number}"] = across | {"title": {"text": ""}} | ({"matches": "x"} if place else {})
        kind = {"type": "log"} if axis_of(length).is_log else {"rangemode": "tozero"}
        axes[f"yaxis{number}"] = axis(style, "ms", **kind, domain=[bottom, top], anchor=f"x{number}")
        data += _panel(length, number, is_first=place == 0, style=style)
        few = ", too few to tell" if length.few else ""
        words = f"<b>{length.label} tokens</b>, n={length.requests:,}{few}"
        notes.append({"text": words, "x": left, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left",
                      "yanchor": "bottom", "showarrow": False})  # fmt: skip
    shown = layout(style, uirevision=f"latency/{span}", annotations=notes, height=90 + 230 * rows, **axes)
    shown["legend"] = {"orientation": "h", "x": 0, "y": 1 + 0.12 / rows, "yanchor": "bottom"}
    shown["margin"] = {"l": 64, "r": 16, "t": 76, "b": 40}
    return {"data": data, "layout": shown}


def _cell(place: int, rows: int) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a panel, as parts of the chart."""
    row, column = divmod(place, COLUMNS)
    width = (1 - _GAP_X * (COLUMNS - 1)) / COLUMNS
    gap = _GAP_Y if rows > 1 else 0.0
    height = (1 - gap * (rows - 1)) / rows
    left, top = column * (width + _GAP_X), 1 - row * (height + gap)
    return left, min(left + width, 1.0), max(top - height, 0.0), top


def _pale(colour: str) -> str:
    """A colour through which lines are seen."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def _panel(length: Length, number: str, *, is_first: bool, style: Style) -> list[dict[str, Any]]:
    times = [date(t) for t in length.starts_us]
    common = {
        "type": "scatter", "x": times, "xaxis": f"x{number}", "yaxis": f"y{number}", "showlegend": is_first,
        "opacity": 0.45 if length.few else 1.0,
    }  # fmt: skip
    thin = {"width": 1, "color": style.theme.quiet}
    lines = [
        {**common, "mode": "lines+markers", "name": "p5", "legendgroup": "p5", "y": list(length.p5),
         "line": {"width": 2, "color": _P5}, "marker": {"size": 4}, "customdata": list(length.counts),
         "hovertemplate": "p5 %{y:.1f} ms, n=%{customdata}<extra></extra>"},
        {**common, "mode": "lines", "name": "p50", "legendgroup": "p50", "y": list(length.p50), "line": thin},
        {**common, "mode": "lines", "name": "p95", "legendgroup": "p95", "y": list(length.p95), "line": {**thin, "dash": "dot"}},
    ]  # fmt: skip
    ends = times[:1] + times[-1:]
    levels = [("baseline p5", length.baseline_p5_ms, "dashdot"), ("floor", length.floor_ms, "dash")]
    for name, level, dash in levels:
        line = {"width": 1.5, "color": style.ink, "dash": dash}
        lines.append(
            {
                **common,
                "mode": "lines",
                "name": name,
                "legendgroup": name,
                "x": ends,
                "y": [level] * len(ends),
                "line": line,
            }
        )
    if length.band_ms is not None and times:
        low, high = length.band_ms
        lines.append(
            {**common, "mode": "lines", "name": "baseline p10 to p90", "legendgroup": "band", "fill": "toself",
             "x": [times[0], times[-1], times[-1], times[0]], "y": [low, low, high, high], "line": {"width": 0},
             "fillcolor": _pale(style.theme.quiet), "hoveron": "points"}
        )  # fmt: skip
    below = [(t, p5) for t, p5 in zip(times, length.p5, strict=True) if p5 < length.floor_ms]
    marker = {"symbol": "diamond", "size": 10, "color": _BELOW}
    lines.append(
        {**common, "mode": "markers", "name": "p5 below the floor", "legendgroup": "below", "x": [t for t, _ in below],
         "y": [p5 for _, p5 in below], "marker": marker}
    )  # fmt: skip
    return lines
