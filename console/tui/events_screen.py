"""The Events screen: the rows of all tables in time, at most 200 at once, sliding over the record.

Invariant: the cursor stays on its event when rows come or go; the end of the record is followed only while the cursor
stands on the last row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from console.core.event_window import EventWindow, EventWindows, Looked, words_of
from console.core.events import EventKey
from console.core.filter_language import parse_filter
from console.core.merged import Record
from console.core.places import Place
from console.tui.background import BackgroundScreen
from console.tui.canvas import Canvas
from console.tui.event_lines import event_detail, event_table, key_of_text, key_text, with_mark
from console.tui.line_list import Line, LineList
from console.tui.lines import rule, view_line
from console.tui.notices import Notice, reading_notice
from console.tui.screen_base import bindings_of
from forensics.rows import rows_of

NEAR = 20
"""So many rows before its end a window slides on."""


class EventList(LineList):
    """A list that says when one wants to go on, also where it has no more rows."""

    class Stepped(Message):
        """A step by hand: down (1) or up (-1)."""

        def __init__(self, by: int) -> None:
            self.by = by
            super().__init__()

    def action_step(self, by: int) -> None:
        """Move the cursor by rows."""
        super().action_step(by)
        self.post_message(self.Stepped(1 if by > 0 else -1))


@dataclass(frozen=True)
class _Found:
    """A window, of which reading, and the event to put the cursor on (None = where it is)."""

    shown: Record
    windows: EventWindows
    looked: Looked
    window: EventWindow
    cursor: EventKey | None


class EventsScreen(BackgroundScreen):
    """Events page by page."""

    PLACE: ClassVar[Place] = Place.EVENTS
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.EVENTS)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {"event-rows": ("event-titles",)}

    def __init__(self) -> None:
        super().__init__()
        self._found: _Found | None = None
        self._asked: tuple[int, str, str] | None = None
        self._pointed: int | None = None
        self._follows = True
        self._made_of: tuple[int, int, str, int | None] | None = None
        self._titles = Text("", end="")
        self._lines: list[Line] = []

    def compose_body(self) -> ComposeResult:
        """Titles, rows, and the one under the cursor."""
        yield Canvas(id="event-titles")
        yield EventList(id="event-rows")
        yield Canvas(id="event-detail")

    def crumbs(self) -> Text:
        """The view, how many of how many, and whether the end is followed."""
        app, width = self.console_app, self.app.size.width
        if self._found is None or app.desk.rollup is None:
            return super().crumbs()
        said = words_of(self._found.window) + (", following" if self._follows else "")
        return view_line(app.looking(), said, width, self.palette)

    def draw_body(self, width: int) -> None:
        """The window, and another one where something else is looked at."""
        app = self.console_app
        shown = app.desk.record
        told = reading_notice(app.desk, app.source.path)
        if told is None and shown is not None:
            self._look_again(shown)
            told = self._nothing()
        self.tell(told)
        if told is None and self._found is not None:
            self._draw_rows(self._found, width, None)

    def _nothing(self) -> Notice | None:
        if self._found is None:
            return self.pending(
                "events", Notice("Putting the events in order …", "Every table's rows, by time.", "q quits.")
            )
        window = self._found.window
        if len(window.rows):
            return None
        if window.earlier is not None or window.later is not None:
            return Notice(
                "Nothing yet",
                f"Searched: {words_of(window)}.",
                "Next: k searches on above, j below; / changes the filter.",
            )
        near = self.nearest_words()
        cause = f"{words_of(window)}." + (f" {near[0].upper()}{near[1:]}." if near else "")
        return Notice("No event", cause, "Next: / changes the filter, z shows the whole record.")

    def _look_again(self, shown: Record) -> None:
        """Ask for another window where the reading, the filter, the range or the moment pointed at has changed."""
        app = self.console_app
        view, at = app.desk.view, app.looking()
        looked = Looked(parse_filter(at.view.filter), at.span, at.now_us)
        asked = (id(shown), at.view.filter, view.range.text)
        pointed = view.cursor_us if view.cursor_us != self._pointed else None
        if asked == self._asked and pointed is None:
            return
        other_question = self._asked is None or asked[1:] != self._asked[1:]
        self._asked, self._pointed = asked, view.cursor_us
        if pointed is not None:
            self._follows = False
            place: EventKey | None = EventKey(pointed, "", 0, 0)
        else:
            place = None if other_question or self._follows else self._cursor
        self._follows = self._follows or (other_question and place is None)
        known = self._found

        def find() -> _Found:
            windows = known.windows if known is not None and known.shown is shown else EventWindows(shown)
            if place is None:
                window = windows.last(looked)
                return _Found(shown, windows, looked, window, _edge(window, -1))
            window = windows.around(place, looked)
            later = next((key for key in window.keys if key >= place), _edge(window, -1))
            return _Found(shown, windows, looked, window, later)

        self.compute("events", find, self._take)

    @property
    def _cursor(self) -> EventKey | None:
        here = self.query_one("#event-rows", EventList).cursor_key
        return None if here is None else key_of_text(here)

    def _take(self, found: _Found) -> None:
        self._found = found
        self.tell(self._nothing())
        self._draw_rows(found, self.app.size.width, found.cursor)
        self.draw_frame()

    def _draw_rows(self, found: _Found, width: int, cursor: EventKey | None) -> None:
        mark = self.console_app.desk.view.mark_us
        made_of = (id(found.window), width, self.app.theme, mark)
        if made_of != self._made_of:
            self._made_of = made_of
            self._titles, lines = event_table(found.window, found.shown.owners, width, self.palette)
            self._lines = with_mark(found.window, lines, mark, width, self.palette)
        self.query_one("#event-titles", Canvas).show([self._titles])
        self.query_one("#event-rows", EventList).show(self._lines, None if cursor is None else key_text(cursor))
        self._draw_detail()

    def _draw_detail(self) -> None:
        width, cursor = self.app.size.width, self._cursor
        lines = [rule("EVENT", width, self.palette, "" if cursor is None else "↵ opens its incident")]
        if self._found is not None and cursor is not None:
            lines += event_detail(self._found.window, cursor, width, self.palette)
        self.query_one("#event-detail", Canvas).show(lines)

    @on(LineList.Moved, "#event-rows")
    def _moved(self, event: LineList.Moved) -> None:
        """Point all screens at the moment of the event."""
        app, key = self.console_app, key_of_text(event.key)
        self._pointed = key.t_us
        window = self._found.window if self._found is not None else None
        self._follows = window is not None and window.at_end and key == _edge(window, -1)
        app.desk = replace(app.desk, view=replace(app.desk.view, cursor_us=key.t_us))
        self._draw_detail()
        self.draw_frame()

    @on(EventList.Stepped)
    def _stepped(self, event: EventList.Stepped) -> None:
        """Slide on where the cursor has come near the end of the window."""
        found, cursor = self._found, self._cursor
        if found is None:
            return
        place = None if cursor is None else found.window.place_of(cursor)
        rows = len(found.window.rows)
        left = 0 if place is None else (place if event.by < 0 else rows - 1 - place)
        there = found.window.earlier if event.by < 0 else found.window.later
        if left >= NEAR or there is None or self.is_computing:
            return

        def slide() -> _Found:
            step = found.windows.up if event.by < 0 else found.windows.down
            return replace(found, window=step(found.window, found.looked), cursor=None)

        self.compute("events", slide, self._take)

    def pointed_us(self) -> int | None:
        """That of the event under the cursor."""
        cursor = self._cursor
        return super().pointed_us() if cursor is None else cursor.t_us

    def action_desk(self, action: str) -> None:
        """`g` and `G` go to the ends of the record, not of the window."""
        if action not in ("first", "last") or self._found is None:
            super().action_desk(action)
            return
        found = self._found
        self._follows = action == "last"

        def edge() -> _Found:
            window = found.windows.last(found.looked) if action == "last" else found.windows.first(found.looked)
            return replace(found, window=window, cursor=_edge(window, -1 if action == "last" else 0))

        self.compute("events", edge, self._take)

    @on(LineList.Opened, "#event-rows")
    def _open(self, event: LineList.Opened) -> None:
        if self._found is None:
            return
        place = self._found.window.place_of(key_of_text(event.key))
        if place is not None:
            self.console_app.open_event(rows_of(self._found.window.rows.slice(place, 1))[0])


def _edge(window: EventWindow, at: int) -> EventKey | None:
    return window.keys[at] if window.keys else None
