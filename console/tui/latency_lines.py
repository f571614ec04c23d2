"""The Latency screen's lines: one per length of prompt, and the course of one.

Invariant: a length with few requests says so where its change would stand; a course hides no line behind the band.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.text import Text

from console.core.incidents import Incident
from console.core.latency import FEW, Length
from console.core.latency_axis import LatencyAxis, axis_of
from console.core.printable import printable
from console.core.times import clock
from console.core.view import View
from console.tui.charts import braille, course, pointed, points_of
from console.tui.columns import Column, fit, heading, row_text
from console.tui.incident_marks import incident_line
from console.tui.line_list import Line
from console.tui.lines import cut
from console.tui.palette import Palette

_AXIS = 11
BAND, FLOOR = "░", "┈"
"""Behind the course of a length: p10 to p90 of its baseline, and the least that its tokens can take."""


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def length_table(lengths: Sequence[Length], width: int, palette: Palette) -> tuple[Text, list[Line]]:
    """Column titles and one line per length, keyed by its least tokens."""
    columns: list[Column[Length]] = [
        Column("TOKENS", 9, lambda n: n.label, right=True),
        Column("N", 7, lambda n: f"{n.requests:,}", right=True),
        Column("FLOOR*", 9, lambda n: _ms(n.floor_ms), 3, right=True),
        Column("BASE p5", 9, lambda n: _ms(n.baseline_p5_ms), 1, right=True),
        Column("NOW p5", 9, lambda n: _ms(n.p5_ms), right=True),
        Column("CHANGE", 7, lambda n: _change(n, palette), right=True),
        Column("p50", 9, lambda n: _ms(n.p50_ms), 4, right=True),
        Column(
            "BELOW", 5, lambda n: Text(f"{n.below_floor}", style=palette.strong if n.below_floor else ""), 2, right=True
        ),
        Column("", 12, lambda n: Text("◆ suspicious" if n.suspicious else "", style=palette.strong), 0),
        Column("FASTEST", 20, lambda n: printable(", ".join(n.fastest) or None), 9, flexible=True),
    ]
    fitted = fit(columns, width - 3)
    lines = [Line(str(n.bucket_tokens), row_text(fitted, n)) for n in lengths]
    return cut(Text("   ", end="", style=palette.quiet).append_text(heading(fitted)), width), lines


def _change(length: Length, palette: Palette) -> Text:
    if length.few:
        return Text(f"n < {FEW}", style=palette.quiet)
    if length.change is None:
        return Text("–")
    return Text(f"{length.change:+.0%}", style=palette.strong if length.suspicious else "")


def course_lines(
    length: Length, view: View, incidents: Iterable[Incident], palette: Palette, width: int, height: int
) -> list[Text]:
    """p5 and p95 of one length over time, behind them the band of the baseline and the floor, with the axis under them and
    where incidents were first seen; `height` rows.
    """
    if not length.starts_us:
        return [Text(" no course: too few requests", end="", style=palette.quiet)]
    inner = max(width - _AXIS - 1, 10)
    first, last = length.starts_us[0], length.starts_us[-1]
    found = incident_line(incidents, first, last, inner, _AXIS, palette)
    across, rows = axis_of(length), max(height - 1 - (found is not None), 2)
    parts = [[across.part(ms) for ms in values] for values in (length.p5, length.p95)]
    drawn = [braille(course(length.starts_us, values, inner * 2), rows, 0.0, 1.0) for values in parts]
    merged = ["".join(_both(a, b) for a, b in zip(*pair, strict=True)) for pair in zip(*drawn, strict=True)]
    lines = []
    behind = _behind(length, across, rows)
    for row, line in enumerate(merged):
        label = _ms(across.at((rows - row) / rows)) if row % 2 == 0 else ""
        text = Text(f"{label:>{_AXIS - 1}}│", end="", style=palette.quiet)
        for is_line, group in groupby(line, lambda sign: sign != " "):
            signs = "".join(group)
            text.append(signs if is_line else behind[row] * len(signs), style="default" if is_line else palette.quiet)
        lines.append(text)
    words = f"{clock(first):<{max(inner - 9, 9)}}{clock(last)}"[:inner].ljust(inner)
    words = pointed(words, first, last, points_of(view))
    axis = Text(" " * (_AXIS - 1) + "└" + words, end="", style=palette.quiet)
    return [*lines, axis, *([found] if found else [])]


def _behind(length: Length, across: LatencyAxis, rows: int) -> list[str]:
    """What stands in each row, the highest first, where no line is: the floor, the baseline's band, or nothing."""

    def row_of(ms: float) -> int:
        return rows - 1 - min(int(across.part(ms) * rows), rows - 1)

    signs = [" "] * rows
    if length.band_ms is not None:
        low, high = (row_of(ms) for ms in length.band_ms)
        signs[high : low + 1] = [BAND] * (low + 1 - high)
    signs[row_of(length.floor_ms)] = FLOOR
    return signs


def _both(a: str, b: str) -> str:
    """The dots of two characters in one."""
    bits = 0
    for character in (a, b):
        bits |= ord(character) - 0x2800 if character != " " else 0
    return chr(0x2800 + bits) if bits else " "
