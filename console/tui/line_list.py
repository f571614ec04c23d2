"""A list of text lines with a cursor, drawn line by line: nothing is measured, nothing is mounted per row,
and a text may be made only when its row comes in sight.

Invariant: the cursor follows a key, never an index, so that it stays on its row when the list changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

CURSOR = "▸ "
CONTEXT = 2
"""Rows kept in sight below the cursor."""


@dataclass(frozen=True)
class Line:
    """One row; a row without a key cannot be selected. `made`: its text, or what makes it when it comes in sight."""

    key: str | None
    made: Text | Callable[[], Text]

    @cached_property
    def text(self) -> Text:
        """The text."""
        return self.made() if callable(self.made) else self.made


class LineList(ScrollView, can_focus=True):
    """Rows under a cursor. Posts `Moved` when the cursor moves by hand and `Opened` on Enter or a second click."""

    DEFAULT_CSS = """
    LineList { background: $background; scrollbar-size-vertical: 1; overflow-x: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "step(1)", show=False),
        Binding("up", "step(-1)", show=False),
        Binding("pagedown", "pages(1)", show=False),
        Binding("pageup", "pages(-1)", show=False),
        Binding("home", "edge(-1)", show=False),
        Binding("end", "edge(1)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Moved(Message):
        """The cursor is on `key` now."""

        def __init__(self, sender: LineList, key: str) -> None:
            self.list, self.key = sender, key
            super().__init__()

        @property
        def control(self) -> LineList:
            """The list."""
            return self.list

    class Opened(Moved):
        """`key` is to be opened."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._keys: list[int] = []
        self.cursor_key: str | None = None

    def show(self, lines: Sequence[Line], cursor: str | None = None) -> None:
        """Draw `lines`. The cursor goes to `cursor`, else stays on its key, else goes to the first row."""
        self._lines = lines
        self._keys = [i for i, line in enumerate(lines) if line.key is not None]
        wanted = cursor if cursor is not None else self.cursor_key
        keys = [lines[i].key for i in self._keys]
        self.cursor_key = wanted if wanted in keys else (keys[0] if keys else None)
        self.virtual_size = Size(0, len(lines))
        self._reveal()
        self.refresh()

    @property
    def _at(self) -> int | None:
        """Index in `_keys` of the cursor."""
        return next((n for n, i in enumerate(self._keys) if self._lines[i].key == self.cursor_key), None)

    def action_step(self, by: int) -> None:
        """Move the cursor by rows."""
        at = self._at
        if at is not None:
            self._go(at + by)

    def action_pages(self, by: int) -> None:
        """Move the cursor by screens."""
        self.action_step(by * max(self.size.height - 1, 1))

    def action_half(self, by: int) -> None:
        """Move the cursor by half screens."""
        self.action_step(by * max(self.size.height // 2, 1))

    def action_edge(self, side: int) -> None:
        """Move the cursor to the first or the last row."""
        self._go(0 if side < 0 else len(self._keys) - 1)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.cursor_key is not None:
            self.post_message(self.Opened(self, self.cursor_key))

    def _go(self, at: int) -> None:
        if not self._keys:
            return
        key = self._lines[self._keys[min(max(at, 0), len(self._keys) - 1)]].key
        if key is not None and key != self.cursor_key:
            self.cursor_key = key
            self._reveal()
            self.refresh()
            self.post_message(self.Moved(self, key))

    def _reveal(self) -> None:
        at, height = self._at, self.size.height
        if at is None or height == 0:
            return
        row, top = self._keys[at], self.scroll_offset.y
        if row < top:
            self.scroll_to(y=row, animate=False, force=True)
        elif row >= top + height - CONTEXT:
            self.scroll_to(y=row - height + 1 + CONTEXT, animate=False, force=True)

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        self._reveal()

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one on the same row opens it."""
        row = event.y + self.scroll_offset.y
        if row in self._keys:
            if self._lines[row].key == self.cursor_key:
                self.action_open()
            else:
                self._go(self._keys.index(row))

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        width = self.scrollable_content_region.width
        row = y + self.scroll_offset.y
        style = self.visual_style.rich_style
        if row >= len(self._lines):
            return Strip.blank(width, style)
        line = self._lines[row]
        here = line.key is not None and line.key == self.cursor_key
        text = Text(CURSOR if here else "  ", end="", no_wrap=True)
        text.append_text(line.text)
        text.truncate(width, overflow="ellipsis", pad=True)
        strip = Strip(list(text.render(self.app.console)), width).apply_style(style)
        if here:
            return strip.apply_style(Style(reverse=True) if self.has_focus else Style(bold=True))
        return strip
