"""The Incident screen's lines: the victim, its pages and donors, the order of events, the strip of the page map.

Solid lines are proved, dashed inferred, dotted are overlap only; a glyph and a word say the same.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
from rich.style import Style
from rich.text import Text

from console.core.incident_words import reading_words
from console.core.lineage import Donor, Lineage, LineagePage
from console.core.marks import VERDICT_MARKS, LinkStyle
from console.core.owners import Owners
from console.core.page_events import PageEvent, PageStory, Placed
from console.core.page_map import FIRST_NAMED, FREE, HELD, SHARED_RANK, PageMap
from console.core.page_marks import FOREIGN_READ
from console.core.printable import printable, shorten
from console.core.readings import Reading
from console.core.snapshot import Snapshot
from console.core.times import clock_ms
from console.tui.line_list import Line
from console.tui.lines import cut, owner_text, verdict_text
from console.tui.palette import Palette
from engine.ledger.tag import split_tag

LEGEND = "━ proved  ╌ inferred  ┈ overlap only  ? undecided"


def victim_line(snapshot: Snapshot, reading: Reading, known: Lineage | None, width: int, palette: Palette) -> Text:
    """Who read what, in one line."""
    line = Text(" VICTIM ", end="", style=palette.quiet)
    line.append(shorten(printable(reading.rid), max(width - 66, 16)), style=palette.strong)
    line.append(" ")
    line.append_text(owner_text(snapshot.owners, reading.tenant, palette, printable(reading.tenant)))
    line.append(f"  {printable(reading.status or None)}  ")
    line.append_text(verdict_text(reading.verdict, palette, reading_words(reading, known.total if known else None)))
    return cut(line, width)


def lineage_lines(snapshot: Snapshot, known: Lineage, width: int, palette: Palette) -> list[Line]:
    """One line per page in slot order, keyed by page, then what is not listed."""
    victim = shorten(printable(known.reading.rid), 12 if width < 100 else 24)
    pages = known.pages
    donors = {donor.rid: donor for donor in known.donors}
    tail = [f"○ {known.own} more page{'s' * (known.own > 1)} with own content"] if known.own else []
    tail += [f"… {known.more} more pages with findings; forensics query has all"] if known.more else []
    if not pages:
        return [Line(None, Text(f"{victim}: {known.reading.reason or 'no page is named by a finding'}", end=""))]
    rows = len(pages) + len(tail)
    lines, told = [], set[str | None]()
    for i, page in enumerate(pages):
        text = Text(_branch(i, rows, victim), end="", no_wrap=True)
        text.append_text(_page_text(page, palette))
        for link in page.links:
            text.append_text(_donor_text(snapshot, donors[link.donor], link.style, palette, brief=link.donor in told))
            told.add(link.donor)
        if not page.links and page.reason:
            text.append(f"  {printable(page.reason)}", style=palette.quiet)
        lines.append(Line(str(page.page), text))
    for i, words in enumerate(tail, start=len(pages)):
        lines.append(Line(None, Text(_branch(i, rows, victim) + words, end="", style=palette.quiet)))
    return lines


def _branch(i: int, rows: int, victim: str) -> str:
    middle = (rows - 1) // 2
    name = victim if i == middle else " " * len(victim)
    if rows == 1:
        return f"{name} ─── "
    joint = "┌" if i == 0 else "└" if i == rows - 1 else "├"
    if i == middle:
        joint = "┬" if i == 0 else "┼" if i < rows - 1 else "┴"
        return f"{name} ─{joint}─ "
    return f"{name}  {joint}─ "


def _page_text(page: LineagePage, palette: Palette) -> Text:
    mark = VERDICT_MARKS[page.verdict]
    text = Text(f"{mark.glyph} pg {page.page:>5}", style=palette.verdict(page.verdict, bold=True), end="")
    generation = f" g{split_tag(page.tag).seq}" if page.tag else ""
    tokens = "" if page.tok_lo is None else f" tok {page.tok_lo}–{(page.tok_hi or 1) - 1}"
    return text.append(f"{generation:<7}{tokens:<13} ", style="not bold default")


def _donor_text(snapshot: Snapshot, donor: Donor, style: LinkStyle, palette: Palette, *, brief: bool) -> Text:
    text = Text("◂" + style.stroke * 5 + " ", end="")
    if donor.rid is None:
        return text.append("donor not named")
    text.append_text(owner_text(snapshot.owners, donor.tenant, palette, shorten(printable(donor.rid), 24)))
    if not brief:
        room = "" if donor.room is None else f"  room …{donor.room % 10_000:04}"
        ended = f"  ended {printable(donor.status)}" if donor.status else ""
        text.append(f"  {printable(donor.tenant)}{ended}{room}", style=palette.quiet)
    return text


def event_lines(story: PageStory, width: int, palette: Palette) -> list[Line]:
    """One line per event in order, keyed by its place; the offending one is pointed at with »."""
    lines = [Line(str(i), _event_text(event, width, palette)) for i, event in enumerate(story.events)]
    if story.left_out:
        lines.append(Line(None, Text(f"… {story.left_out} more events", end="", style=palette.quiet)))
    return lines or [
        Line(None, Text("no row of the record names this page for this response", end="", style=palette.quiet))
    ]


def _event_text(event: PageEvent, width: int, palette: Palette) -> Text:
    text = Text("»" if event.offending else " ", end="", no_wrap=True)
    text.append(VERDICT_MARKS[event.verdict].glyph if event.verdict else " ")
    near = "≈" if event.placed is Placed.CLOCK else " "
    delta = "" if event.delta_us is None else f"{event.delta_us / 1000:+.1f}"
    text.append(f" {clock_ms(event.t_us)}{near}{delta:>7} ")
    text.append(f"{event.kind:<8}", style=palette.strong)
    if width >= 100:
        text.append(f" {printable(event.worker):<11}{event.seq:>8}", style=palette.quiet)
    generation = "" if event.generation is None else f"g{event.generation}"
    room = 16 if width >= 100 else 9
    text.append(f" {shorten(printable(event.rid), room):<{room}} {generation:<4} ")
    text.append(printable(event.note))
    if event.verdict is not None:
        text.stylize(palette.verdict(event.verdict, bold=event.offending))
    return text


def offending_key(story: PageStory) -> str | None:
    """Key of the line to look at first."""
    return next((str(i) for i, event in enumerate(story.events) if event.offending), None)


def map_lines(owners: Owners, drawn: PageMap, palette: Palette) -> list[Text]:
    """The page map as letters: one line per row of pages under its first page, then the legend."""
    lines = []
    for row, text in enumerate(map_rows(owners, drawn, palette)):
        first = drawn.area.first_page + row * drawn.pages_per_row
        lines.append(Text(f"{first:>6} ", end="", no_wrap=True, style=palette.quiet).append_text(text))
    named = "  ".join(f"{owner.letter} {printable(owner.tenant)}" for owner in owners.named)
    lines.append(Text(f"       X foreign read  ▼ late write  · free  ░ held  {named}", end="", style=palette.quiet))
    return lines


def map_rows(owners: Owners, drawn: PageMap, palette: Palette) -> list[Text]:
    """The cells of a page map as letters, marks over them."""
    rows, cols = drawn.cells.shape
    glyphs = {FREE: "·", HELD: "░", SHARED_RANK: "z"} | {FIRST_NAMED + o.rank: o.letter for o in owners.named}
    marks: dict[tuple[int, int], str] = {}
    for marker in drawn.markers:
        row = min((marker.page - drawn.area.first_page) // drawn.pages_per_row, rows - 1)
        col = min(int((marker.t_us - drawn.area.start_us) / drawn.bin_us), cols - 1)
        marks[row, col] = "X" if marker.kind == FOREIGN_READ or marks.get((row, col)) == "X" else "▼"
    lines = []
    for row, values in enumerate(drawn.cells.tolist()):
        text = Text("", end="", no_wrap=True)
        cells = [(marks.get((row, col)), value) for col, value in enumerate(values)]
        for (mark, value), alike in groupby(cells):
            style = "bold reverse" if mark else _cell_style(owners, value, palette)
            text.append((mark or glyphs[value]) * len(list(alike)), style=style)
        lines.append(text)
    return lines


def strip_lines(owners: Owners, drawn: PageMap, palette: Palette, width: int, height: int) -> list[Text]:
    """A page map of any size in a smaller one. A mark is never lost; of the cells that share one, the latest life's stands."""
    rows, cols = min(drawn.cells.shape[0], height), min(drawn.cells.shape[1], width)
    by_row, by_col = -(-drawn.cells.shape[0] // rows), -(-drawn.cells.shape[1] // cols)
    cells = np.array(
        [[_tile(drawn.cells[r : r + by_row, c : c + by_col]) for c in range(0, drawn.cells.shape[1], by_col)]
         for r in range(0, drawn.cells.shape[0], by_row)], np.uint8,
    )  # fmt: skip
    coarse = replace(drawn, cells=cells, pages_per_row=drawn.pages_per_row * by_row, bin_us=drawn.bin_us * by_col)
    return map_rows(owners, coarse, palette)


def _tile(cells: np.ndarray) -> int:
    """The value of several cells as one: of the last column, the most frequent that is not free."""
    last = cells[:, -1]
    taken = last[last != FREE]
    return int(np.bincount(taken).argmax()) if len(taken) else FREE


def _cell_style(owners: Owners, value: int, palette: Palette) -> Style:
    return palette.cell(None if value < FIRST_NAMED else owners.named[value - FIRST_NAMED].colour)


def proof_line(known: Lineage, page: int, width: int, palette: Palette) -> Text:
    """How one page of a response was judged."""
    found = next(p for p in known.pages if p.page == page)
    styles = ", ".join(sorted({link.style.value for link in found.links})) or "no donor"
    mark = VERDICT_MARKS[found.verdict]
    line = Text(
        f" pg {page} {mark.glyph} {mark.word} ({styles})", end="", style=palette.verdict(found.verdict, bold=True)
    )
    reason = (
        printable(found.reason) if found.reason else "seq and edges decide; g = seq of the reserve that began the life"
    )
    return cut(line.append(f"  {reason}", style=palette.quiet), width)
