"""The Held screen's lines: pools, the course of what is held and its forecast, the formula, the holders.

Invariant: a forecast stands right of `now` and is drawn with other characters than what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from rich.text import Text

from console.core.held_capacity import REASONS, HeldFigure
from console.core.incidents import Incident
from console.core.printable import printable, shorten
from console.core.times import clock, duration
from console.core.view import View
from console.tui.charts import layered, pointed, points_of, resampled
from console.tui.columns import Column, fit, heading, row_text
from console.tui.incident_marks import incident_line
from console.tui.line_list import Line
from console.tui.lines import cut
from console.tui.palette import Palette
from forensics.rows import Row

GLYPHS = {"held": "█", "quarantined": "▓", "in_transfer": "▒"}
SURE, LIKELY = "▚", "░"
"""Held at the lower, and at the higher of the two rates."""
_AXIS = 9
MOST_ROWS = 200


def pool_lines(figures: Sequence[HeldFigure], palette: Palette) -> list[Line]:
    """One pool a line: what is held, of how many, and when it would be full."""
    return [Line(f.name, partial(_pool_text, f, palette)) for f in figures]


def _pool_text(f: HeldFigure, palette: Palette) -> Text:
    held = f.held or 0.0
    share = "  – " if f.share is None else f"{f.share:>4.0%}"
    of = "?" if f.limit is None else f"{f.limit:,}"
    pool = shorten(printable(f"{f.worker}/{f.pool}"), 24)
    text = Text(f"{pool:<24} {held:>9,.0f} of {of:>9} {share}  ", end="")
    full = f.forecast.full_in_s[0] is not None
    return text.append(f.forecast.words, style=palette.strong if full else palette.quiet)


def chart_lines(
    figure: HeldFigure, view: View, incidents: Iterable[Incident], palette: Palette, width: int, height: int
) -> list[Text]:
    """`height` rows: bars over time, the forecast of an hour on the right third where they reach the record's end, the
    axis under them, and where incidents were first seen."""
    if not figure.starts_us:
        none = "no gauges of this pool" if figure.held is None else "no gauge of this pool in this range"
        return [Text(f" {none}", end="", style=palette.quiet)]
    inner = max(width - _AXIS - 1, 12)
    ahead = inner // 3 if figure.reaches_end else 0
    past = inner - ahead - 1
    marks = incident_line(incidents, figure.starts_us[0], figure.starts_us[-1] + figure.bin_us, past, _AXIS, palette)
    rows = height - 1 - (marks is not None)
    layers = [resampled(figure.stacked[reason], past) for reason in REASONS]
    low, high = (resampled(line, ahead) if ahead else [] for line in (figure.forecast.low, figure.forecast.high))
    more = [max(h - n, 0.0) for n, h in zip(low, high, strict=True)]
    peak = max((sum(column) for column in zip(*layers, strict=True)), default=0.0)
    top = float(figure.limit or max(peak, *high, 1.0))
    before = layered(layers, rows, top, [GLYPHS[reason] for reason in REASONS])
    after = layered([low, more], rows, top, [SURE, LIKELY]) if ahead else [""] * rows
    lines = []
    for row, (left, right) in enumerate(zip(before, after, strict=True)):
        label = f"{top * (rows - row) / rows:>{_AXIS - 1},.0f}┤" if row % 2 == 0 else " " * (_AXIS - 1) + "│"
        text = Text(label, end="", style=palette.quiet)
        edge = "-" if row == 0 and figure.limit else " "
        text.append(left.replace(" ", edge), style=palette.strong)
        lines.append(text.append(f"│{right.replace(' ', edge)}", style=palette.quiet))
    return [*lines, _axis(figure, view, past, ahead, palette), *([marks] if marks else [])]


def _axis(figure: HeldFigure, view: View, past: int, ahead: int, palette: Palette) -> Text:
    first, last = figure.starts_us[0], figure.starts_us[-1] + figure.bin_us
    marks = list(pointed(f"{clock(first):<{past}}", first, last, points_of(view)))
    ends = f"now{'+1h':>{max(ahead - 2, 3)}}" if ahead else ""
    if not ahead:
        marks[-9:] = clock(last)[:9]
    return Text(" " * (_AXIS - 1) + "└" + "".join(marks) + ends, end="", style=palette.quiet)


def figure_words(figure: HeldFigure, tried: str, palette: Palette, width: int) -> list[Text]:
    """The legend, the steady state, when it is full, what is tried out."""
    f, stats = figure.forecast, figure.stats
    legend = "  ".join(f"{GLYPHS[reason]} {reason.replace('_', ' ')}" for reason in REASONS)
    lines = [
        Text(
            f" {legend}  {SURE}{LIKELY} forecast, slow and fast   - the pool's {figure.limit or 0:,} pages",
            end="",
            style=palette.quiet,
        )
    ]
    if stats is not None:
        lines.append(Text(f" this stretch: {stats.words('pages')}", end=""))
    against = f"{'>' if max(f.steady) > f.room else '≤'} room for {f.room:,}"
    lines.append(Text(f" steady state {figure.formula} {against}", end=""))
    text = Text(f" {f.words}", end="", style=palette.strong)
    if tried:
        text.append(f"   what if {tried}: not as measured; w takes it back", style="reverse")
    return [cut(line, width) for line in [*lines, text]]


def holder_table(rows: Sequence[Row], width: int, palette: Palette) -> tuple[Text, list[Line]]:
    """Column titles and one line per holder, keyed by request and since when."""
    columns: list[Column[Row]] = [
        Column("REQUEST", 16, lambda r: shorten(printable(r["rid"]), 40), flexible=True),
        Column("TENANT", 14, lambda r: shorten(printable(r["tenant"]), 14), 3),
        Column("PAGES", 7, lambda r: f"{r['pages']:,}", right=True),
        Column("AGE", 8, lambda r: duration(round(r["age_s"] * 1e6)), 1, right=True),
        Column("WHY", 10, lambda r: printable(r["why"]), 2),
        Column("SINCE", 9, lambda r: clock(r["since"]), 4),
        Column("DEADLINE", 9, lambda r: clock(r["deadline"]), 1),
        Column("OVERDUE", 7, lambda r: Text("! yes" if r["overdue"] == "yes" else "no"), 0),
        Column("PEER", 12, lambda r: shorten(printable(r["peer"]), 12), 3),
        Column("DRAIN ACK", 11, lambda r: printable(r["ack"]) if r["ack"] else "unknown", 1),
        Column("POOL", 16, lambda r: shorten(printable(f"{r['worker']}/{r['pool']}"), 24), 5),
    ]
    fitted = fit(columns, width - 3)
    lines = [Line(f"{r['rid']}|{r['since']}|{n}", partial(row_text, fitted, r)) for n, r in enumerate(rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        lines.append(Line(None, Text(f"… {MOST_ROWS} of {len(rows):,}; / narrows them down, e exports all", end="")))
    return cut(Text("   ", end="", style=palette.quiet).append_text(heading(fitted)), width), lines
