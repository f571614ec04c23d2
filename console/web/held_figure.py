"""Held capacity as a chart: what keeps pages, stacked, the limit, and the forecast as a fan.

Invariant: the forecast begins where the record ends and is drawn as two bounds, never as one line.
"""

from __future__ import annotations

from typing import Any

from console.core.held_capacity import REASONS, HeldFigure
from console.web.figure_style import STYLES, Figure, Style, axis, date, layout, time_axis

_FILLS = {"held": ("#E69F00", ""), "quarantined": ("#D55E00", "x"), "in_transfer": ("#56B4E9", "/")}
"""By reason: a colour, and a pattern that says the same without it."""
_FORECAST = "#AA3377"
LEAST_AHEAD_US = 300_000_000


def held_chart(figure: HeldFigure, span: tuple[int | None, int | None], theme: str) -> Figure:
    """One pool over `span` (us; None = the record, and some of what is forecast)."""
    style = STYLES[theme]
    times = [date(t) for t in figure.starts_us]
    stacked = [_stacked(reason, times, figure) for reason in REASONS]
    data = [*stacked, *_fan(figure), *_limit(figure, style)]
    shown = layout(
        style,
        uirevision=f"{figure.worker}/{figure.pool}/{span}",
        hovermode="x unified",
        xaxis=time_axis(style, *_seen(figure, span)),
        yaxis=axis(style, "pages", rangemode="tozero"),
    )
    return {"data": data, "layout": shown}


def _seen(figure: HeldFigure, span: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """The record and as long a time to come, but five minutes at least: an hour would hide a short record."""
    if span != (None, None) or not figure.starts_us:
        return span
    begins, ends = figure.starts_us[0], figure.ends_us
    return begins, ends + min(max(ends - begins, LEAST_AHEAD_US), int(figure.forecast.seconds[-1] * 1e6))


def _stacked(reason: str, times: list[str], figure: HeldFigure) -> dict[str, Any]:
    colour, pattern = _FILLS[reason]
    return {
        "type": "scatter", "mode": "lines", "name": reason.replace("_", " "), "stackgroup": "kept", "x": times,
        "y": list(figure.stacked[reason]), "line": {"width": 1, "color": colour, "shape": "hv"},
        "fillpattern": {"shape": pattern, "fgcolor": "#000000", "size": 6},
    }  # fmt: skip


def _fan(figure: HeldFigure) -> list[dict[str, Any]]:
    if figure.held is None:
        return []
    begins, coming = figure.ends_us, figure.forecast
    times = [date(begins + s * 1e6) for s in coming.seconds]
    line = {"color": _FORECAST, "width": 1.5, "dash": "dot"}
    both = {"type": "scatter", "mode": "lines", "x": times, "line": line}
    return [
        {**both, "name": "forecast, lower", "y": list(coming.low), "showlegend": False},
        {**both, "name": "forecast", "y": list(coming.high),
         "fill": "tonexty", "fillcolor": "rgba(170,51,119,0.25)"},
    ]  # fmt: skip


def _limit(figure: HeldFigure, style: Style) -> list[dict[str, Any]]:
    if figure.limit is None or figure.held is None:
        return []
    ends = (*figure.starts_us, figure.ends_us)[0], figure.ends_us + figure.forecast.seconds[-1] * 1e6
    return [
        {
            "type": "scatter", "mode": "lines", "name": "limit", "x": [date(t) for t in ends],
            "y": [figure.limit, figure.limit], "line": {"color": style.ink, "width": 2, "dash": "dash"}, "hoverinfo": "name+y",
        }
    ]  # fmt: skip
