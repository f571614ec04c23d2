"""The Pages screen's lines: the map as letters, its scale and legend, and the story of the page under the cursor.

Invariant: a cell with a foreign read is drawn as one, whoever owns the rest of it; every colour repeats a letter.
"""

from __future__ import annotations

import numpy as np
from rich.style import Style
from rich.text import Text

from console.core.lives import Life
from console.core.owners import Owners
from console.core.page_map import FIRST_NAMED, FREE, HELD, SHARED_RANK, Area, PageMap
from console.core.page_marks import FOREIGN_READ
from console.core.page_view import Cell, UnderCursor
from console.core.printable import printable, shorten
from console.core.snapshot import Snapshot
from console.core.times import clock, clock_ms, duration
from console.tui.lineage_lines import event_lines
from console.tui.lines import cut, owner_text, rule
from console.tui.palette import Palette
from engine.ledger.tag import split_tag

READ, WRITE = "X", "▼"
MARGIN = 8
"""Columns left of the map, for the number of a row's first page."""
LEGEND_LINES = 3
MARKED = Style(bold=True, reverse=True)
_BARS = " ▁▂▃▄▅▆▇█"


def grid_lines(drawn: PageMap, reads: np.ndarray, writes: np.ndarray, owners: Owners, palette: Palette) -> list[Text]:
    """One line per row of cells, behind the number of its first page."""
    glyphs = {FREE: "·", HELD: "░", SHARED_RANK: "z"} | {FIRST_NAMED + o.rank: o.letter for o in owners.named}
    colours = {FIRST_NAMED + owner.rank: owner.colour for owner in owners.named}
    styles = {value: palette.cell(colours.get(value)) for value in glyphs}
    marks = np.where(reads > 0, 2, np.where(writes > 0, 1, 0)).astype(np.uint8)
    lines = []
    for row, cells in enumerate(drawn.cells):
        text = Text(f"{drawn.area.first_page + row * drawn.pages_per_row:>{MARGIN - 1}} ", style=palette.quiet, end="")
        keys = cells.astype(np.int16) + (marks[row].astype(np.int16) << 8)
        cuts = np.flatnonzero(np.diff(keys)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(keys)], strict=True):
            mark, value = divmod(int(keys[start]), 256)
            glyph = (glyphs[value], WRITE, READ)[mark]
            text.append(glyph * (stop - start), style=MARKED if mark else styles[value])
        lines.append(text)
    return lines


def legend_lines(drawn: PageMap, owners: Owners, width: int, palette: Palette) -> list[Text]:
    """Pool and scale, letters, and the times of the columns, in LEGEND_LINES lines."""
    area = drawn.area
    scale = Text(f" {printable(area.key[0])}/{printable(area.pool)}", style=palette.strong, end="")
    pages = "1 page" if drawn.pages_per_row == 1 else f"{drawn.pages_per_row:,} pages"
    scale.append(f"  row {pages}, column {_length(drawn.bin_us)}", style="not bold")
    scale.append(f"  pages {area.first_page}–{area.last_page}", style=palette.quiet)
    letters = Text(" ", end="")
    for mark, words in ((READ, "foreign read"), (WRITE, "late write")):
        letters.append(mark, style=MARKED).append(f" {words}  ")
    letters.append("· free  ░ held  ", style=palette.quiet)
    for owner in owners.named:
        letters.append_text(owner_text(owners, owner.tenant, palette, f"{shorten(printable(owner.tenant), 14)} "))
    if owners.others:
        letters.append(f"z {owners.others} others", style=palette.quiet)
    return [cut(scale, width), cut(letters, width), cut(_axis(area, drawn, palette), width)]


def _length(us: float) -> str:
    return f"{us:.1f} µs" if us < 1000 else duration(int(us))


def _axis(area: Area, drawn: PageMap, palette: Palette) -> Text:
    cols = drawn.cells.shape[1]
    fine = area.end_us - area.start_us < 60_000_000
    label = clock_ms if fine else clock
    step = 24 if fine else 20
    line = "   page "
    for col in range(0, cols - 12, step):
        line = line.ljust(MARGIN + col) + label(int(area.start_us + col * drawn.bin_us))
    return Text(line, style=palette.quiet, end="")


def story_lines(
    snapshot: Snapshot,
    drawn: PageMap,
    cell: Cell,
    found: UnderCursor,
    reads: np.ndarray,
    size: tuple[int, int],
    palette: Palette,
) -> list[Text]:
    """The page under the cursor in `size` (width, height): its owner, the one before, its row, marks, order of events."""
    width, height = size
    first = drawn.area.first_page + cell.row * drawn.pages_per_row
    last = min(first + drawn.pages_per_row - 1, drawn.area.last_page)
    row = f"{first}" if first == last else f"{first}–{last}"
    here = f"{len(found.marks)} mark{'s' * (len(found.marks) != 1)} in the cell" if found.marks else ""
    lines = [
        rule(
            f"PAGE {cell.page} at {clock_ms(cell.t_us)} UTC, row {row}",
            width,
            palette,
            here,
        )
    ]
    lines.append(
        _owner(snapshot, drawn.area, found.life, "owner  ", palette) or Text(" owner   nobody: the page is free")
    )
    lines.append(
        _owner(snapshot, drawn.area, found.before, "before ", palette) or Text(" before  nobody that is recorded")
    )
    lines.append(_shares(snapshot, found, palette))
    lines += [_mark(found, palette, i) for i in range(min(len(found.marks), 1 if height < 12 else 3))]
    room = height - len(lines) - 1
    if found.story is not None and room > 2:
        lines.append(
            rule(
                f"ORDER OF EVENTS for {shorten(printable(found.marks[0].rid), 24)} (UTC)",
                width,
                palette,
                "Δ ms, ≈ by clock",
            )
        )
        lines += _around_offence([line.text for line in event_lines(found.story, width, palette)], found, room - 1)
    lines += [Text("")] * (height - len(lines) - 1)
    return [cut(line, width) for line in [*lines, _bars(reads, palette)]]


def _around_offence(lines: list[Text], found: UnderCursor, room: int) -> list[Text]:
    """As many lines as there is room for, the one to look at first among them."""
    events = found.story.events if found.story is not None else ()
    at = next((i for i, event in enumerate(events) if event.offending), 0)
    start = min(max(at - room // 2, 0), max(len(lines) - room, 0))
    return lines[start : start + room]


def _owner(snapshot: Snapshot, area: Area, life: Life | None, title: str, palette: Palette) -> Text | None:
    if life is None:
        return None
    rid, tenant = snapshot.rid_of(area.key, life.req), snapshot.tenant_of(area.key, life.req)
    text = Text(f" {title} ", end="").append_text(
        owner_text(snapshot.owners, tenant, palette, f"{shorten(printable(rid), 24)} ")
    )
    text.append(f"{printable(tenant)}  g{split_tag(life.tag).seq}  {clock_ms(life.start_us)} → ", style=palette.quiet)
    text.append(
        "now" if life.end_us is None else f"{clock_ms(life.end_us)} {printable(life.cause)}", style=palette.quiet
    )
    if life.held_us is not None:
        text.append(f"  held from {clock_ms(life.held_us)}", style=palette.quiet)
    return text


def _shares(snapshot: Snapshot, found: UnderCursor, palette: Palette) -> Text:
    text = Text(" row     ", end="")
    for tenant, n in found.shares:
        text.append_text(owner_text(snapshot.owners, tenant, palette, f"{n:,} "))
    return text.append(f"free {found.free:,}", style=palette.quiet)


def _mark(found: UnderCursor, palette: Palette, at: int) -> Text:
    mark = found.marks[at]
    is_read = mark.kind == FOREIGN_READ
    text = Text(" ", end="").append(READ if is_read else WRITE, style=MARKED)
    if is_read:
        text.append(
            f" page {mark.page}: {shorten(printable(mark.rid), 24)} read what is of {shorten(printable(mark.donor), 24)}"
        )
    else:
        text.append(
            f" page {mark.page}: a write for {shorten(printable(mark.donor), 24)} landed under {shorten(printable(mark.rid), 24)}"
        )
    text.append(f"  {printable(mark.words)}", style=palette.quiet)
    return text.append(f"  ↵ {mark.incident}" if mark.incident else "", style=palette.strong)


def _bars(reads: np.ndarray, palette: Palette) -> Text:
    """Foreign reads per column under the columns of the map."""
    counts = reads.sum(axis=0)
    most = int(counts.max(initial=0))
    bars = "".join(_BARS[-(-int(n) * 8 // most)] if most else " " for n in counts)
    return Text(
        f"{'reads':>{MARGIN - 1}} {bars}" if most else f"{'reads':>{MARGIN - 1}} none in sight",
        style=palette.quiet,
        end="",
    )
