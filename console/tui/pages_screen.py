"""The Pages screen: who owned which page when, every foreign read on it, and the story of the page under the cursor.

Invariant: page and moment under the cursor are the view's, so that other screens and addresses point there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.core.nearest import Nearest, nearest_to
from console.core.page_map import Area, PageMap, mark_counts, page_map, whole_area
from console.core.page_marks import FOREIGN_READ, LATE_WRITE, Marker
from console.core.page_tables import allocations_of, marks_of
from console.core.page_view import (
    ROWS,
    Cell,
    UnderCursor,
    area_of,
    cell_at,
    moved,
    next_mark,
    pool_fault,
    pool_looked_at,
    under,
    zoomed,
)
from console.core.places import Place
from console.core.pool_names import pool_name
from console.core.printable import counted
from console.core.sheet import Sheet, Shown
from console.core.snapshot import Snapshot
from console.core.time_range import ALL, Span, TimeRange, rfc3339
from console.core.view import View
from console.tui.app_base import Refused
from console.tui.background import BackgroundScreen
from console.tui.canvas import Canvas
from console.tui.layout import is_workspace
from console.tui.lines import view_line
from console.tui.notices import Notice, reading_notice
from console.tui.own_tables import OwnTables, unfiltered
from console.tui.page_grid import PageGrid
from console.tui.page_lines import LEGEND_LINES, MARGIN, grid_lines, legend_lines, story_lines
from console.tui.screen_base import bindings_of

STORY_LINES = {False: 7, True: 18}
"""Height of the story, by whether the terminal is wide."""
_FRAME_LINES = 4
_FAR = 1 << 30


@dataclass(frozen=True)
class _Picture:
    """A drawn map and its marks by cell; all of it in `whole`."""

    shown: Snapshot
    whole: Area
    drawn: PageMap
    reads: np.ndarray
    writes: np.ndarray


@dataclass(frozen=True)
class _Asked:
    """What a picture is drawn of."""

    shown: int
    view: tuple[str | None, str | None, str, str | None]
    span: Span
    size: tuple[int, int]


class PagesScreen(OwnTables, BackgroundScreen):
    """The page map."""

    PLACE: ClassVar[Place] = Place.PAGES
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.PAGES)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {"page-grid": ("page-legend",), "page-story": ()}

    def __init__(self) -> None:
        super().__init__()
        self._asked: _Asked | None = None
        self._picture: _Picture | None = None
        self._none = False
        self._story: tuple[Cell, UnderCursor] | None = None
        self._asked_story: tuple[_Picture, Cell] | None = None

    def compose_body(self) -> ComposeResult:
        """Scale and letters, map, story."""
        yield Canvas(id="page-legend")
        yield PageGrid(id="page-grid")
        yield Canvas(id="page-story", pane=True)

    def crumbs(self) -> Text:
        """The view, and how many marks are in sight."""
        app, width, picture = self.console_app, self.app.size.width, self._picture
        if picture is None or app.desk.rollup is None:
            return super().crumbs()
        reads, writes = int(picture.reads.sum()), int(picture.writes.sum())
        said = f"{counted(reads, 'foreign read')}, {counted(writes, 'late write')}"
        said += ", not filtered here" if app.desk.view.filter else ""
        return view_line(app.looking(), said, width, self.palette)

    def addressed(self, view: View) -> View:
        """With the pool that is shown."""
        if self._picture is None:
            return view
        (worker, epoch), pool = self._picture.whole.key, self._picture.whole.pool
        return replace(view, pool=pool_name(worker, pool, epoch))

    def tables(self) -> tuple[tuple[Sheet, Shown], ...]:
        """Every mark and every allocation of the area in sight, of which the map filters none."""
        app, picture = self.console_app, self._picture
        if picture is None:
            raise Refused("no pages are drawn yet")
        sheets = (marks_of(picture.shown, picture.drawn.area), allocations_of(picture.shown, picture.drawn.area))
        return tuple(unfiltered(sheet, replace(app.desk.view, sort=None), app.now_us()) for sheet in sheets)

    def draw_body(self, width: int) -> None:
        """The map; another one where something else is looked at."""
        app = self.console_app
        shown = app.desk.shown
        told = reading_notice(app.desk, app.source.path)
        if told is None and shown is not None:
            self._look_again(shown, width)
            told = self._nothing()
        self.tell(told)
        if told is None:
            self._draw_map(width)

    def nearest(self) -> Nearest | None:
        """Where the pool begins or ends, as far as the picture knows: asking for its lives takes longer than a key may."""
        if self._picture is None:
            return None
        whole = self._picture.whole
        return nearest_to(self.console_app.looking().span, (np.array([whole.start_us]), np.array([whole.end_us])))

    def _nothing(self) -> Notice | None:
        near = self.nearest_words()
        if near:
            return Notice(
                "Nothing of this pool in this range",
                f"{near[0].upper()}{near[1:]}.",
                "Next: z shows all of its time, p the next pool.",
            )
        if self._picture is not None and not self._none:
            return None
        if self._none:
            return Notice(
                "No pages",
                "No pool of this record has had a page reserved.",
                "Next: 7 shows its events; space follows the ledger.",
            )
        return self.pending("pages", Notice("Drawing the pages …", "Every page's owners over time.", "q quits."))

    def _look_again(self, shown: Snapshot, width: int) -> None:
        app = self.console_app
        view, span = app.desk.view, app.looking().span
        story = 0 if self.alone == "page-grid" else STORY_LINES[is_workspace(width)]
        height = app.size.height - _FRAME_LINES - LEGEND_LINES - story
        key = (view.pool, view.incident if view.pool is None else None, view.range.text, view.option(ROWS))
        asked = _Asked(id(shown), key, span, (max(height, 1), width - MARGIN))
        if asked != self._asked:
            self._asked = asked
            fault = pool_fault(shown, view)
            if fault:
                app.say_once(fault)
            self.compute("pages", partial(_pictured, shown, view, span, asked.size), self._take)

    def _take(self, picture: _Picture | None) -> None:
        self._picture, self._none, self._story = picture, picture is None, None
        self.tell(self._nothing())
        if picture is not None:
            self._draw_map(self.app.size.width)
            self.draw_frame()

    def _draw_map(self, width: int) -> None:
        picture = self._picture
        if picture is None:
            return
        owners, palette = picture.shown.owners, self.palette
        self.query_one("#page-legend", Canvas).show(legend_lines(picture.drawn, owners, width, palette))
        self.query_one(PageGrid).show(grid_lines(picture.drawn, picture.reads, picture.writes, owners, palette))
        self._draw_cursor()

    @property
    def _cell(self) -> Cell | None:
        view = self.console_app.desk.view
        return None if self._picture is None else cell_at(self._picture.drawn, view.page, view.cursor_us)

    def _draw_cursor(self) -> None:
        picture, cell = self._picture, self._cell
        if picture is None or cell is None:
            return
        self.query_one(PageGrid).point(cell.row, cell.col)
        if self._story is not None and self._story[0] == cell:
            self._draw_story()
            return
        before, self._asked_story = self._asked_story, (picture, cell)
        if before is None or before[0] is not picture or before[1] != cell:
            self.compute("story", lambda: (picture, cell, under(picture.shown, picture.drawn, cell)), self._take_story)

    def _take_story(self, told: tuple[_Picture, Cell, UnderCursor]) -> None:
        picture, cell, found = told
        if picture is self._picture and cell == self._cell:
            self._story = (cell, found)
            self._draw_story()

    def _draw_story(self) -> None:
        picture, story = self._picture, self._story
        if picture is None or story is None:
            return
        width = self.app.size.width
        alone = self.app.size.height - _FRAME_LINES if self.alone == "page-story" else None
        size = (width, alone or STORY_LINES[is_workspace(width)])
        lines = story_lines(picture.shown, picture.drawn, *story, picture.reads, size, self.palette)
        self.query_one("#page-story", Canvas).show(lines)

    def _point(self, page: int, t_us: int) -> None:
        app = self.console_app
        app.desk = replace(app.desk, view=replace(app.desk.view, page=page, cursor_us=t_us))
        self._draw_cursor()
        self.draw_frame()

    @on(PageGrid.Moved)
    def _moved(self, event: PageGrid.Moved) -> None:
        picture, cell = self._picture, self._cell
        if picture is None or cell is None:
            return
        marks = picture.shown.marks(picture.whole.key, picture.whole.pool)
        there = moved(picture.drawn, cell, event.rows, event.cols, marks)
        self._point(there.page, there.t_us)

    def pointed_us(self) -> int | None:
        """That of the cell under the cursor."""
        cell = self._cell
        return super().pointed_us() if cell is None else cell.t_us

    def action_desk(self, action: str) -> None:
        """Moves are over cells."""
        half = max(self.query_one(PageGrid).size.height // 2, 1)
        moves = {
            "down": (1, 0), "up": (-1, 0), "left": (0, -1), "right": (0, 1), "half_down": (half, 0), "half_up": (-half, 0),
            "first": (-_FAR, 0), "last": (_FAR, 0),
        }  # fmt: skip
        if action in moves:
            self.query_one(PageGrid).action_move(*moves[action])
        else:
            super().action_desk(action)

    def do_zoom_in(self) -> None:
        """Half as many pages and half as much time around the cursor."""
        self._zoom(0.5)

    def do_zoom_out(self) -> None:
        """Twice as many pages and twice as much time."""
        self._zoom(2.0)

    def do_zoom_fit(self) -> None:
        """All pages and all time of the pool."""
        view = self.console_app.desk.view
        self.console_app.change(view.with_option(ROWS, None).with_range(ALL))

    def _zoom(self, factor: float) -> None:
        picture, cell = self._picture, self._cell
        if picture is not None and cell is not None:
            self.console_app.change(_seen(self.console_app.desk.view, picture, cell, factor))

    def do_next_found(self) -> None:
        """The next foreign read or late write of the pool, round."""
        self._find(1)

    def do_previous_found(self) -> None:
        """The previous one."""
        self._find(-1)

    def _find(self, by: int) -> None:
        picture, cell = self._picture, self._cell
        if picture is None or cell is None:
            return
        mark = next_mark(picture.shown.marks(picture.whole.key, picture.whole.pool), cell.page, cell.t_us, by)
        if mark is None:
            self.console_app.say("no foreign read and no late write is known of this pool")
        else:
            self._go_to(picture, mark)

    def _go_to(self, picture: _Picture, mark: Marker) -> None:
        """Point at a mark; where it is out of sight, as much around it as was seen before."""
        area = picture.drawn.area
        if area.start_us <= mark.t_us <= area.end_us and area.first_page <= mark.page <= area.last_page:
            self._point(mark.page, mark.t_us)
            return
        there = Cell(0, 0, mark.page, mark.t_us)
        self.console_app.change(_seen(self.console_app.desk.view, picture, there, 1.0))

    def do_pool(self) -> None:
        """The next pool, all of it."""
        app = self.console_app
        if self._picture is None or app.desk.shown is None:
            return
        pools = app.desk.shown.pools
        here = pools.index((self._picture.whole.key, self._picture.whole.pool))
        (worker, epoch), pool = pools[(here + 1) % len(pools)]
        view = app.desk.view.with_option(ROWS, None)
        app.change(replace(view, pool=pool_name(worker, pool, epoch), page=None))

    def do_next_incident(self) -> None:
        """The first mark of the next incident."""
        self._step_incident(1)

    def do_previous_incident(self) -> None:
        """The first mark of the previous one."""
        self._step_incident(-1)

    def _step_incident(self, by: int) -> None:
        app = self.console_app
        (app.do_next_incident if by > 0 else app.do_previous_incident)()
        shown, chosen = app.desk.shown, app.desk.view.incident
        where = None if shown is None else pool_looked_at(shown, replace(app.desk.view, pool=None))
        if shown is None or where is None:
            return

        def first_mark() -> tuple[str | None, Marker | None]:
            return chosen, next((m for m in shown.marks(*where).markers if m.incident == chosen), None)

        (worker, epoch), pool = where
        self.compute(
            "the marks of an incident", first_mark, partial(self._go_to_incident, pool_name(worker, pool, epoch))
        )

    def _go_to_incident(self, pool: str, found: tuple[str | None, Marker | None]) -> None:
        app, (chosen, first) = self.console_app, found
        if app.desk.view.incident != chosen:
            return
        view = replace(app.desk.view, pool=pool)
        if first is not None:
            view = replace(view.with_option(ROWS, None).with_range(ALL), page=first.page, cursor_us=first.t_us)
        app.change(view)

    @on(PageGrid.Opened)
    def _open(self) -> None:
        app = self.console_app
        marks = self._story[1].marks if self._story is not None else ()
        mark = next((m for m in marks if m.incident is not None), None)
        if mark is None or mark.incident is None:
            app.say("nothing was read here that was not its reader's; n goes to the next mark")
            return
        app.open_incident(mark.incident, mark.rid)
        app.desk = app.desk.select(page=mark.page)
        app.redraw()


def _pictured(shown: Snapshot, view: View, span: Span, size: tuple[int, int]) -> _Picture | None:
    area = area_of(shown, view, span)
    if area is None:
        return None
    drawn = page_map(shown, area, rows=size[0], cols=size[1])
    reads, writes = (mark_counts(shown, drawn, kind) for kind in (FOREIGN_READ, LATE_WRITE))
    return _Picture(shown, whole_area(shown, area.key, area.pool), drawn, reads, writes)


def _seen(view: View, picture: _Picture, cell: Cell, factor: float) -> View:
    """The view with `factor` times as much in sight around a cell."""
    pointed, span = zoomed(view, picture.drawn.area, picture.whole, cell, factor)
    if span.start_us is None or span.end_us is None:
        return pointed.with_range(ALL)
    return pointed.with_range(TimeRange(rfc3339(span.start_us), rfc3339(span.end_us)))
