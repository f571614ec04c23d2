"""The Overview screen's lines: open incidents, detectors, the fullest pool, the worst length, the page strip, events.

Invariant: every panel is as high as it is told to be, or lower; what does not fit is counted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from rich.text import Text

from console.core.detectors import Detector
from console.core.held_capacity import HeldFigure
from console.core.latency import Length
from console.core.marks import SEVERITY_MARKS, Severity
from console.core.overview import Overview, Stood
from console.core.owners import Owners
from console.core.page_map import PageMap
from console.core.printable import counted, printable, shorten
from console.core.sheet import SOURCE, Shown
from console.core.source_states import SourceState
from console.core.times import clock, clock_ms
from console.tui.charts import blocks, braille, course, resampled
from console.tui.incident_lines import state_words
from console.tui.line_list import Line
from console.tui.lineage_lines import strip_lines
from console.tui.lines import cut, severity_text, verdict_text
from console.tui.notices import nothing_left
from console.tui.palette import Palette
from forensics.rows import rows_of

MOST_OPEN = 200


def open_lines(figure: Overview, palette: Palette) -> list[Line]:
    """Incidents that nobody has acknowledged, gravest first, keyed by id."""
    lines = [Line(s.incident.key, _open_line(s, palette)) for s in figure.incidents[:MOST_OPEN]]
    if not lines:
        if not len(figure.left.rows):
            return nothing_left(figure.left, palette)
        return [Line(None, Text("none open; 2 lists what is acknowledged or silent", style=palette.quiet, end=""))]
    if len(figure.incidents) > MOST_OPEN:
        lines.append(Line(None, Text(f"… {MOST_OPEN} of {len(figure.incidents):,}", end="")))
    return lines


def _open_line(stood: Stood, palette: Palette) -> Text:
    incident = stood.incident
    text = Text.assemble(severity_text(incident.severity, palette), f" {printable(incident.key)} ")
    worst = incident.worst
    if incident.counts[worst]:
        text.append_text(verdict_text(worst, palette, f"{incident.counts[worst]} "))
    text.append(f"{state_words(stood)} {incident.title}")
    text.end = ""
    return text


def source_lines(
    states: Sequence[SourceState],
    is_open: Mapping[str, Mapping[Severity, int]],
    palette: Palette,
    width: int,
    height: int,
) -> list[Text]:
    """Each ledger: how it stands, its open incidents, its fullest pool; what is wrong with it; how whole its record is."""
    lines: list[Text] = []
    for state in states:
        line = Text(f" {state.words}", end="", style=palette.strong)
        for severity, mark in SEVERITY_MARKS.items() if state.known else ():
            n = is_open.get(state.name, {}).get(severity, 0)
            line.append(f"  {mark.glyph}{n}", style=palette.severity(severity) if n else palette.quiet)
        line.append(f"  held {state.held:.0%}" if state.held is not None else "")
        lines.append(cut(line, width))
        if state.trouble is not None:
            told = f"   ! {printable(state.trouble.what)}; {printable(state.trouble.remedy)}"
            lines += [
                Text(part, end="", style="bold") for part in textwrap.wrap(told, width, subsequent_indent="     ")
            ]
        if state.known is not None:
            known = state.known
            words = (
                f"   {counted(known.responses, 'response')}, {counted(known.rows, 'row')}, up to {clock(known.data_us)}"
            )
            lines.append(cut(Text(f"{words}; {known.record_words}", end="", style=palette.quiet), width))
            saw = ", ".join(f"{detector.code} {detector.hits:,}" for detector in known.detectors if detector.hits)
            lines.append(cut(Text(f"   saw something: {saw or 'none'}", end="", style=palette.quiet), width))
    return [*lines[: height - 1], Text(" …", end="")] if len(lines) > height else lines


def detector_lines(detectors: Sequence[Detector], palette: Palette, height: int) -> list[Text]:
    """One detector a line: hits of comparisons, and its state in words."""
    lines = []
    shown = list(detectors[: height - 1] if len(detectors) > height else detectors)
    for d in shown:
        state = "saw it" if d.hits else {"record only": "record"}.get(d.state, d.state)
        words = f" {d.code:<3} {d.words:<14}{d.hits:>4,} /{_short(d.looked):>5} {state}"
        text = Text(words, end="", style=palette.strong if d.hits else palette.quiet)
        lines.append(text)
    if len(shown) < len(detectors):
        lines.append(Text(f" … and {len(detectors) - len(shown)} more", end="", style=palette.quiet))
    return lines


def _short(n: int | None) -> str:
    """412,880 as 413k; nobody looked: a dash."""
    if n is None:
        return "–"
    return f"{n}" if n < 10_000 else f"{n / 1e3:.0f}k" if n < 10_000_000 else f"{n / 1e6:.0f}M"


def held_lines(figure: HeldFigure | None, palette: Palette, width: int, height: int) -> list[Text]:
    """The fullest pool: how much is held, its course, what it comes to, when it would be full."""
    if figure is None or not figure.starts_us:
        return [Text(" no gauges in this record: held pages were not sampled", end="", style=palette.quiet)]
    held, limit = figure.held or 0.0, figure.limit
    share = "" if figure.share is None else f"  {figure.share:.0%}"
    of = "" if limit is None else f" of {limit:,}"
    lines = [Text(f" {held:,.0f}{of} pages{share}  {printable(figure.worker)}/{printable(figure.pool)}", end="")]
    columns = resampled(figure.stacked["held"], max(width - 2, 1))
    top = float(limit or max(columns) or 1)
    lines += [Text(f" {row}", end="", style=palette.quiet) for row in blocks(columns, max(height - 3, 1), top)]
    lines.append(Text(f" steady {figure.formula}", end="", style=palette.quiet))
    lines.append(Text(f" {figure.forecast.words}", end="", style=palette.strong))
    return lines[:height]


def latency_lines(length: Length | None, palette: Palette, width: int, height: int) -> list[Text]:
    """The length to look at first: p5 against its baseline, and its course."""
    if length is None:
        return [Text(" no prefill has been timed in this record", end="", style=palette.quiet)]
    base = "–" if length.baseline_p5_ms is None else f"{length.baseline_p5_ms:,.0f} ms"
    change = "" if length.change is None else f" {length.change:+.0%}"
    few = f" n {length.requests} < 20" if length.few else ""
    words = f" {length.label} tok  base {base}  now {length.p5_ms:,.0f} ms{change}{few}"
    lines = [Text(words, end="", style=palette.strong if length.suspicious else "")]
    if length.starts_us:
        columns = course(length.starts_us, length.p5, (width - 2) * 2)
        rows = braille(columns, max(height - 2, 1), 0.0, max(length.p5))
        lines += [Text(f" {row}", end="") for row in rows]
    lines.append(
        Text(
            f" {length.below_floor} below {length.floor_ms:,.0f} ms, the least that is possible",
            end="",
            style=palette.quiet,
        )
    )
    return lines[:height]


def strip_panel(strip: PageMap | None, owners: Owners, palette: Palette, width: int, height: int) -> list[Text]:
    """The page map around the gravest incident, as much of it as has room."""
    if strip is None:
        return [Text(" no pool with pages in this record", end="", style=palette.quiet)]
    return strip_lines(owners, strip, palette, width, height)


def event_tail(events: Shown, palette: Palette, height: int) -> list[Text]:
    """The latest events, the latest last."""
    lines = []
    for row in rows_of(events.rows)[-height:] if height > 0 else []:
        text = Text(f" {clock_ms(row['t'])} ", end="", style=palette.quiet)
        text.append(f"{row['op']:<12}", style=palette.strong)
        source = f"{printable(row[SOURCE])} " if SOURCE in row else ""
        where = f"{source}{printable(row['worker'])} {shorten(printable(row['rid']), 20)} {printable(row['says'])}"
        lines.append(text.append(where))
    none = "none among the latest; 7 looks at all" if events.left_out else "nothing in this range"
    return lines or [Text(f" {none}", end="", style=palette.quiet)]


def overview_facts(figure: Overview, palette: Palette) -> str:
    """For the rule above the open incidents: how many of each severity."""
    return " ".join(f"{severity.name} {n}" for severity, n in figure.by_severity.items() if n)
