"""What the screen Pages looks at: which pool, which pages, which time, and the page and moment under its cursor.

Invariant: whatever the view says, the area lies within the pool and its record, and the cursor lies within the area.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from console.core.lives import NONE, Life
from console.core.page_events import PageStory, page_story
from console.core.page_map import Area, PageMap, incident_area, whole_area
from console.core.page_marks import Marker, PoolMarks
from console.core.pool_names import pool_name, pool_named
from console.core.printable import printable
from console.core.time_range import Span
from console.core.view import View
from forensics.rows import WorkerKey

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

ROWS = "rows"
"""The view's option that says which pages: `first-last`."""


def pool_looked_at(snapshot: Snapshot, view: View) -> tuple[WorkerKey, str] | None:
    """The view's pool; where it names none of them, that of its incident or of the gravest; None where no pool has pages."""
    named = pool_named(view.pool, [(*key, pool) for key, pool in snapshot.pools])
    if named is not None:
        return snapshot.pools[named]
    chosen = [i for i in snapshot.incidents if i.id == view.incident]
    for incident in (*chosen, *snapshot.incidents):
        area = incident_area(snapshot, incident)
        if area is not None:
            return area.key, area.pool
    return next(iter(snapshot.pools), None)


def pool_fault(snapshot: Snapshot, view: View) -> str:
    """What is wrong with the pool that the view names, in words; else empty."""
    pools = [(*key, pool) for key, pool in snapshot.pools]
    if view.pool is None or pool_named(view.pool, pools) is not None:
        return ""
    there = ", ".join(printable(pool_name(worker, pool, epoch)) for worker, epoch, pool in pools) or "none"
    return f"There is no pool {printable(view.pool)} in this ledger. It has: {there}."


def area_of(snapshot: Snapshot, view: View, span: Span) -> Area | None:
    """What to draw. A range in which the pool has no record shows the pool's whole time."""
    found = pool_looked_at(snapshot, view)
    if found is None:
        return None
    whole = rows_area(snapshot, *found, view)
    start = whole.start_us if span.start_us is None else max(span.start_us, whole.start_us)
    end = whole.end_us if span.end_us is None else min(span.end_us, whole.end_us)
    if start >= end:
        start, end = whole.start_us, whole.end_us
    return replace(whole, start_us=start, end_us=end)


def rows_area(snapshot: Snapshot, key: WorkerKey, pool: str, view: View) -> Area:
    """All time of a pool, and the pages that the view looks at."""
    whole = whole_area(snapshot, key, pool)
    first, last = _rows(view.option(ROWS), whole)
    return replace(whole, first_page=first, last_page=last)


def _rows(text: str | None, whole: Area) -> tuple[int, int]:
    first, dash, last = (text or "").partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal():
        return whole.first_page, whole.last_page
    low = min(max(int(first), whole.first_page), whole.last_page)
    return low, min(max(int(last), low), whole.last_page)


@dataclass(frozen=True)
class Cell:
    """A cell of a drawn map, and the page and moment in it that are pointed at."""

    row: int
    col: int
    page: int
    t_us: int


def cell_at(drawn: PageMap, page: int | None, t_us: int | None) -> Cell:
    """The cell of a page at a moment, or the nearest; without them the first foreign read or write, else the first cell."""
    area, (rows, cols) = drawn.area, drawn.cells.shape
    first = next(iter(drawn.markers), None)
    if page is None:
        page = first.page if first else area.first_page
        t_us = first.t_us if first and t_us is None else t_us
    page = min(max(page, area.first_page), area.last_page)
    t_us = min(max(area.start_us if t_us is None else t_us, area.start_us), area.end_us)
    row = min((page - area.first_page) // drawn.pages_per_row, rows - 1)
    return Cell(row, min(int((t_us - area.start_us) / drawn.bin_us), cols - 1), page, t_us)


def marks_in(drawn: PageMap, cell: Cell, marks: PoolMarks) -> tuple[Marker, ...]:
    """The marks of a cell, in time."""
    area = drawn.area
    first = area.first_page + cell.row * drawn.pages_per_row
    start, end = (int(area.start_us + (cell.col + i) * drawn.bin_us) for i in (0, 1))
    last = min(first + drawn.pages_per_row - 1, area.last_page)
    return tuple(m for m in marks.inside(start, end + 1, first, last) if cell_at(drawn, m.page, m.t_us).col == cell.col)


def moved(drawn: PageMap, cell: Cell, rows: int, cols: int, marks: PoolMarks) -> Cell:
    """The cell so many rows lower and columns later, or the last before the edge.

    It points at the first mark in the cell, else at the cell's first page and the middle of its time.
    """
    area, (height, width) = drawn.area, drawn.cells.shape
    row, col = min(max(cell.row + rows, 0), height - 1), min(max(cell.col + cols, 0), width - 1)
    page = area.first_page + row * drawn.pages_per_row
    there = Cell(row, col, page, min(int(area.start_us + (col + 0.5) * drawn.bin_us), area.end_us))
    first = next(iter(marks_in(drawn, there, marks)), None)
    return there if first is None else Cell(row, col, first.page, first.t_us)


def next_mark(marks: PoolMarks, page: int, t_us: int, by: int) -> Marker | None:
    """The mark after (`by` 1) or before (-1) what is pointed at, by time and page, round."""
    if not marks.markers:
        return None
    side = bisect_right if by > 0 else bisect_left
    at = side(marks.markers, (t_us, page), key=lambda m: (m.t_us, m.page)) - (by < 0)
    return marks.markers[at % len(marks.markers)]


def zoomed(view: View, area: Area, whole: Area, cell: Cell, factor: float) -> tuple[View, Span]:
    """`factor` times as many pages around the cursor, and the times around it; both within the pool."""
    pages = max(round((area.last_page - area.first_page + 1) * factor), 1)
    most = whole.last_page - whole.first_page + 1
    first = min(max(cell.page - pages // 2, whole.first_page), max(whole.last_page - pages + 1, whole.first_page))
    rows = None if pages >= most else f"{first}-{min(first + pages - 1, whole.last_page)}"
    length = max(round((area.end_us - area.start_us) * factor), 1)
    start = max(cell.t_us - length // 2, whole.start_us)
    end = min(start + length, whole.end_us)
    everything = start <= whole.start_us and end >= whole.end_us
    pointed = replace(view.with_option(ROWS, rows), page=cell.page, cursor_us=cell.t_us)
    return pointed, Span() if everything else Span(max(end - length, whole.start_us), end)


@dataclass(frozen=True)
class UnderCursor:
    """What the record says of a page at a moment. `life`: whose it was; `before`: whose last. `held`: pages of the cell's
    row by tenant at that moment (None = free). `marks`: those of the cell, its page's first. `story`: the order of events where the
    page was read there and not the reader's own.
    """

    life: Life | None
    before: Life | None
    shares: tuple[tuple[str | None, int], ...]
    free: int
    marks: tuple[Marker, ...]
    story: PageStory | None


def under(snapshot: Snapshot, drawn: PageMap, cell: Cell) -> UnderCursor:
    """The story of the page under the cursor."""
    area = drawn.area
    lives = snapshot.lives(area.key, area.pool)
    begun = [life for life in lives.of_page(cell.page) if life.start_us <= cell.t_us]
    life = begun.pop() if begun and (begun[-1].end_us is None or cell.t_us < begun[-1].end_us) else None
    before = begun[-1] if begun else None
    first = area.first_page + cell.row * drawn.pages_per_row
    last = min(first + drawn.pages_per_row - 1, area.last_page)
    found = marks_in(drawn, cell, snapshot.marks(area.key, area.pool))
    marks = tuple(sorted(found, key=lambda m: m.page != cell.page))
    return UnderCursor(
        life, before, *_shares(snapshot, area, first, last, cell.t_us), marks, _story(snapshot, area, cell, marks)
    )


def _shares(
    snapshot: Snapshot, area: Area, first: int, last: int, t_us: int
) -> tuple[tuple[tuple[str | None, int], ...], int]:
    """Pages of [first, last] by tenant at a moment, the most first, and how many nobody had."""
    lives = snapshot.lives(area.key, area.pool).inside(t_us, t_us, first, last)
    going_on = lives.where((lives.end_us == NONE) | (lives.end_us > t_us))
    counts: dict[str | None, int] = {}
    for req, n in zip(*np.unique(going_on.req, return_counts=True), strict=True):
        tenant = snapshot.tenant_of(area.key, None if req == NONE else int(req))
        counts[tenant] = counts.get(tenant, 0) + int(n)
    shares = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0] or "")))
    return shares, last - first + 1 - sum(counts.values())


def _story(snapshot: Snapshot, area: Area, cell: Cell, marks: tuple[Marker, ...]) -> PageStory | None:
    """The order of events on the page for its reader: of a mark under the cursor, or of a reading of that life."""
    read = next((m for m in marks if m.page == cell.page and m.incident is not None), None)
    incident = snapshot.incident(read.incident) if read is not None else None
    if read is None or incident is None:
        return None
    for reading in snapshot.readings(incident):
        if (reading.rid, reading.worker, reading.epoch, reading.pool) == (read.rid, *area.key, area.pool):
            return page_story(snapshot, reading, cell.page)
    return None
