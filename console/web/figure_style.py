"""What every chart shares: colours of a dark and a light ground, times, axes, and text made safe.

Invariant: Plotly reads a subset of HTML in labels, so that no text of the ledger reaches it but through `safe`; no
colour of Plotly's own is used.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from console.core.palettes import CONTRAST, DARK, LIGHT, Theme
from console.core.printable import printable, shorten

Figure = dict[str, Any]
"""`data` and `layout`, as Plotly.react takes them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Style:
    """`free` and `held`: pages without an owner; `grid`: lines behind the data."""

    theme: Theme
    free: str
    held: str
    grid: str

    @property
    def ink(self) -> str:
        """Text and axes."""
        return self.theme.ink


STYLES = {
    "dark": Style(DARK, "#1E1E1E", "#5A5A5A", "#3A3A3A"), "light": Style(LIGHT, "#F1F1F1", "#8C8C8C", "#C8C8C8"),
    "contrast": Style(CONTRAST, "#1A1A1A", "#707070", "#8C8C8C"),
}  # fmt: skip


def date(us: float) -> str:
    """A moment as Plotly reads it; its dates have no zone, and all of ours are UTC."""
    return (_EPOCH + timedelta(microseconds=round(us))).strftime("%Y-%m-%d %H:%M:%S.%f")


def safe(text: str | None, width: int | None = None) -> str:
    """Text of the ledger for a label, of at most `width` characters."""
    plain = printable(text)
    return html.escape(plain if width is None else shorten(plain, width))


def axis(style: Style, title: str, **more: Any) -> dict[str, Any]:
    """One axis."""
    return {"title": {"text": title}, "color": style.ink, "gridcolor": style.grid, "zeroline": False, **more}


def time_axis(style: Style, start_us: int | None, end_us: int | None, **more: Any) -> dict[str, Any]:
    """An axis of time over [start_us, end_us); without both, as far as the data go."""
    whole = {} if start_us is None or end_us is None else {"range": [date(start_us), date(end_us)]}
    return axis(style, "time (UTC)", type="date", **whole, **more)


def point_at(figure: Figure, at_us: int, theme: str, *, is_mark: bool = False) -> None:
    """Draw what is pointed at, or marked, over every panel that has an axis of time; the range of the axis stays."""
    shown, line = figure["layout"], {"color": STYLES[theme].ink, "width": 1, "dash": "dash" if is_mark else "dot"}
    numbers = [n.removeprefix("xaxis") for n, a in shown.items() if n.startswith("xaxis") and a.get("type") == "date"]
    shown["shapes"] = shown.get("shapes", []) + [
        {"type": "line", "xref": f"x{n}", "yref": f"y{n} domain", "x0": date(at_us), "x1": date(at_us), "y0": 0, "y1": 1,
         "line": line, "name": "marked" if is_mark else "pointed at"}
        for n in numbers
    ]  # fmt: skip


def layout(style: Style, **more: Any) -> dict[str, Any]:
    """The ground on which everything is drawn."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": style.ink, "family": "system-ui, sans-serif", "size": 13},
        "dragmode": "zoom",
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": style.theme.ground, "font": {"color": style.ink}},
        "margin": {"l": 64, "r": 16, "t": 36, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        **more,
    }
